//! What holds for every pod on every node.

use std::collections::BTreeMap;

use koord_extension::keys::annotation;
use koord_extension::qos::KubeQos;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Request and limit of CPU (thousandths) and memory of containers, by batch resources.
type Resources = BTreeMap<String, (i64, Option<i64>, i64, Option<i64>)>;

fn resources() -> impl Strategy<Value = Resources> {
    let amounts =
        (0i64..20_000, prop::option::of(0i64..20_000), 0i64..1 << 40, prop::option::of(0i64..1 << 40));
    prop::collection::btree_map("[a-d]", amounts, 1..5)
}

fn spec(resources: &Resources) -> String {
    let mut containers = json!({});
    for (name, (cpu, cpu_limit, memory, memory_limit)) in resources {
        let mut limits = json!({});
        if let Some(limit) = cpu_limit {
            limits["kubernetes.io/batch-cpu"] = json!(limit.to_string());
        }
        if let Some(limit) = memory_limit {
            limits["kubernetes.io/batch-memory"] = json!(limit.to_string());
        }
        let requests = json!({"kubernetes.io/batch-cpu": cpu.to_string(), "kubernetes.io/batch-memory": memory.to_string()});
        containers[name] = json!({"requests": requests, "limits": limits});
    }
    json!({"containers": containers}).to_string()
}

fn kube_qos() -> impl Strategy<Value = KubeQos> {
    prop::sample::select(KubeQos::ALL.to_vec())
}

fn qos() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["LSE", "LSR", "LS", "BE", "SYSTEM", "", "other"])
}

fn asked() -> impl Strategy<Value = Asked> {
    (
        prop::option::of(2i64..300_000),
        prop::option::of(-1i64..2_000_000),
        prop::option::of(0i64..1_000_000),
        prop::option::of(-1i64..1 << 40),
    )
        .prop_map(|(cpu_shares, cpu_quota, cpu_period, memory_limit)| Asked {
            cpu_shares,
            cpu_quota,
            cpu_period,
            memory_limit,
            oom_score_adj: Some(1000),
            cpuset_cpus: None,
        })
}

/// Annotations, right, wrong and absent.
fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let texts: Vec<(&str, Vec<&str>)> = vec![
        (
            annotation::RESOURCE_STATUS,
            vec![r#"{"cpuset":"0-1"}"#, r#"{"numaNodeResources":[{"node":1,"resources":{"cpu":"1"}}]}"#, "x"],
        ),
        (annotation::CPU_QOS, vec![r#"{"enable":true,"groupIdentity":-1}"#, "{}", "[]"]),
        (
            annotation::CPU_BURST,
            vec![r#"{"cpuBurstPercent":10000,"policy":"auto"}"#, r#"{"policy":"none"}"#, "x"],
        ),
        (
            annotation::MEMORY_QOS,
            vec![
                r#"{"policy":"auto","minLimitPercent":100,"throttlingPercent":60}"#,
                r#"{"wmarkRatio":9999,"priority":-5}"#,
                "x",
            ],
        ),
        (annotation::OOM_SCORE_ADJ, vec!["7", "-1001", "x"]),
        (annotation::RESCTRL, vec!["{}", "x"]),
        (
            annotation::BLKIO_QOS,
            vec![
                r#"{"blocks":[{"name":"/dev/sda","type":"device","ioCfg":{"ioWeightPercent":5000,"readBPS":-4}}]}"#,
                "x",
            ],
        ),
    ];
    texts
        .into_iter()
        .map(|(key, values)| {
            prop::option::of(prop::sample::select(values))
                .prop_map(move |value| value.map(|value| (key, value)))
        })
        .collect::<Vec<_>>()
        .prop_map(|pairs| {
            pairs.into_iter().flatten().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        })
}

/// A node with everything switched on, on some kernel.
fn nodes() -> impl Strategy<Value = NodeView> {
    (any::<bool>(), any::<bool>(), any::<bool>(), 0.5f64..3.0).prop_map(|(vendor, first, suppressed, ratio)| {
        let class = json!({
            "cpuQOS": {"enable": true},
            "memoryQOS": {"enable": true, "minLimitPercent": 60, "lowLimitPercent": 20, "throttlingPercent": 80},
            "resctrlQOS": {"enable": true},
        });
        let policy = json!({
            "resourceQOSStrategy": {"lsrClass": class, "lsClass": class, "beClass": class},
            "cpuBurstStrategy": {"policy": "auto"},
            "resourceUsedThresholdWithBE": {"enable": suppressed, "cpuSuppressPolicy": "cfsQuota"},
        });
        let kernel = KernelView {
            cgroup_version: if first { CgroupVersion::V1 } else { CgroupVersion::V2 },
            group_identity: vendor,
            memory_watermarks: vendor,
            memory_priority: vendor,
            burst_above_quota: vendor,
            scheduler_slice: true,
            cpu_uclamp: true,
            resctrl: true,
            blkio_throttle: true,
            blkio_cost: true,
            ..mainline_kernel()
        };
        let gates = [Gate::CgroupReconcile, Gate::OomScoreAdj, Gate::Resctrl, Gate::BlkIoReconcile];
        let mut node = a_node(policy, kernel, &gates);
        node.cpu_normalization_ratio = NormalizationRatio::new(ratio);
        node.options.scheduler_slice = Some(SliceOptions::default());
        node.options.cpu_uclamp = Some(UclampOptions::default());
        node.pools.ls = vec![Pool { numa_node: 0, cpus: cpus("0-3") }, Pool { numa_node: 1, cpus: cpus("4-7") }];
        node.kubelet_cpu_policy = Some(KubeletCpuPolicy::None);
        node.disks.devices = [("/dev/sda".to_owned(), DiskNumber { major: 8, minor: 0 })].into();
        node
    })
}

/// Whether a value is one that the kernel takes.
fn is_acceptable(field: &Field, value: &Value) -> bool {
    let Value::Integer(number) = value else { return true };
    match field {
        Field::CpuShares => (2..=262_144).contains(number),
        Field::CpuQuota => *number == -1 || *number >= 1000,
        Field::CpuBurst => (0..=100_000_000).contains(number),
        Field::CpuBvtWarpNs => (-1..=2).contains(number),
        Field::CpuIdle
        | Field::MemoryUsePriorityOom
        | Field::MemoryOomGroup
        | Field::MemoryPageCacheLimitEnable
        | Field::MemoryPageCacheLimitSync => (0..=1).contains(number),
        Field::MemoryLimit => *number == -1 || *number > 0,
        Field::MemoryHigh => *number >= -1,
        Field::MemoryMin | Field::MemoryLow | Field::MemoryPageCacheLimitSize => *number >= 0,
        Field::MemoryPriority => (0..=12).contains(number),
        Field::MemoryWmarkRatio => (0..=100).contains(number),
        Field::MemoryWmarkScaleFactor => (1..=1000).contains(number),
        Field::MemoryWmarkMinAdj => (-25..=50).contains(number),
        Field::OomScoreAdj => (-1000..=1000).contains(number),
        Field::SchedulerSlice => (100..=100_000).contains(number),
        _ => false,
    }
}

/// The resources of a request in which the wishes stand.
fn with_wishes(asked: &Asked, plan: &Plan) -> Asked {
    let number = |field: Field, asked: Option<i64>| plan.integer(&field).or(asked);
    Asked {
        cpu_shares: number(Field::CpuShares, asked.cpu_shares),
        cpu_quota: number(Field::CpuQuota, asked.cpu_quota),
        cpu_period: if plan.get(&Field::CpuQuota).is_some() {
            Some(CFS_PERIOD_MICROS)
        } else {
            asked.cpu_period
        },
        memory_limit: number(Field::MemoryLimit, asked.memory_limit),
        oom_score_adj: number(Field::OomScoreAdj, asked.oom_score_adj),
        cpuset_cpus: wished_cpus(plan).map(|cpus| cpus.to_string()).or_else(|| asked.cpuset_cpus.clone()),
    }
}

proptest! {
    #[test]
    fn a_pods_quota_is_the_sum_of_its_containers(resources in resources()) {
        let node = a_node(json!({}), KernelView::bare(CgroupVersion::V1), &[]);
        let pod = a_pod("BE", KubeQos::BestEffort, &[(annotation::EXTENDED_RESOURCE_SPEC, &spec(&resources))]);
        let whole = pod_plan(&node, &pod);
        let of = |field: &Field| -> Vec<i64> {
            resources.keys().map(|name| plan_of(&node, &pod, name).integer(field).unwrap()).collect()
        };
        for field in [Field::CpuQuota, Field::MemoryLimit] {
            let parts = of(&field);
            let unlimited = parts.contains(&-1);
            // Below 10 thousandths a quota is more than its share: the kernel takes no less.
            let exact = field != Field::CpuQuota || resources.values().all(|(_, limit, ..)| limit.is_none_or(|limit| limit >= 10));
            let expected = if unlimited { -1 } else { parts.iter().sum() };
            if unlimited || exact {
                prop_assert_eq!(whole.integer(&field), Some(expected));
            }
            // On v1 no container may have more than its pod.
            prop_assert!(unlimited || parts.iter().all(|part| *part <= whole.integer(&field).unwrap()));
        }
        let most = whole.integer(&Field::CpuShares).unwrap();
        prop_assert!(of(&Field::CpuShares).iter().all(|shares| *shares <= most));
    }

    #[test]
    fn no_container_has_more_quota_than_its_pod_on_faster_cpus(resources in resources(), ratio in 1.0f64..4.0) {
        let mut node = a_node(json!({}), KernelView::bare(CgroupVersion::V1), &[]);
        node.cpu_normalization_ratio = NormalizationRatio::new(ratio);
        let pod = a_pod("BE", KubeQos::BestEffort, &[(annotation::EXTENDED_RESOURCE_SPEC, &spec(&resources))]);
        let whole = pod_plan(&node, &pod).integer(&Field::CpuQuota).unwrap();
        for name in resources.keys() {
            let own = plan_of(&node, &pod, name).integer(&Field::CpuQuota).unwrap();
            prop_assert!(whole == -1 || (own != -1 && own <= whole), "{own} of {whole}");
        }
    }

    #[test]
    fn values_are_acceptable_owned_and_explained(
        node in nodes(),
        qos in qos(),
        kube_qos in kube_qos(),
        mut annotations in annotations(),
        resources in prop::option::of(resources()),
        asked in asked(),
        is_sandbox in any::<bool>(),
    ) {
        if let Some(resources) = &resources {
            annotations.insert(annotation::EXTENDED_RESOURCE_SPEC.to_owned(), spec(resources));
        }
        let mut pod = a_pod(qos, kube_qos, &[]);
        pod.annotations = annotations;
        pod.asked = asked.clone();
        let view = ContainerView { name: "a", asked: &asked, memory_request: None, is_sandbox };
        let facts = PodFacts::new(&pod);
        let plans = [
            (Level::Pod, pod_plan(&node, &pod)),
            (Level::Container, container(&node, &pod, &view)),
            (Level::QosDirectory, qos_dir(&node, kube_qos)),
        ];
        for (level, plan) in &plans {
            for wish in &plan.wishes {
                prop_assert!(is_acceptable(&wish.field, &wish.value), "{wish:?}");
                prop_assert!(wish.rule.may_own(&wish.field, *level), "{wish:?} at {level:?}");
                prop_assert!(!wish.reason.is_empty(), "{wish:?}");
                let same = plan.wishes.iter().filter(|other| other.field == wish.field).count();
                prop_assert_eq!(same, 1, "{:?}", wish);
            }
            // On mainline no burst exceeds its quota.
            if let (Some(burst), Some(quota)) = (plan.integer(&Field::CpuBurst), plan.integer(&Field::CpuQuota))
                && !node.kernel.burst_above_quota
            {
                prop_assert!(burst <= quota.max(0));
            }
            if let (Some(min), Some(low)) = (plan.integer(&Field::MemoryMin), plan.integer(&Field::MemoryLow)) {
                prop_assert!(low == 0 || low >= min);
            }
        }
        // The same again, from what was read before.
        prop_assert_eq!(&plans[0].1, &pod_with(&node, &pod, &facts));
        prop_assert_eq!(&plans[1].1, &container_with(&node, &pod, &facts, &view));
    }

    #[test]
    fn wishes_that_were_met_are_the_same_wishes(
        node in nodes(),
        qos in qos(),
        kube_qos in kube_qos(),
        mut annotations in annotations(),
        resources in prop::option::of(resources()),
        asked in asked(),
    ) {
        if let Some(resources) = &resources {
            annotations.insert(annotation::EXTENDED_RESOURCE_SPEC.to_owned(), spec(resources));
        }
        let mut pod = a_pod(qos, kube_qos, &[]);
        pod.annotations = annotations;
        let first = plan_with(&node, &pod, "a", &asked);
        let second = plan_with(&node, &pod, "a", &with_wishes(&asked, &first));
        prop_assert_eq!(first, second);
    }

    #[test]
    fn annotations_of_any_text_are_survived(text in ".{0,60}", qos in qos()) {
        let node = a_node(json!({}), mainline_kernel(), Gate::ALL);
        let mut pod = a_pod(qos, KubeQos::Burstable, &[]);
        for key in [annotation::RESOURCE_STATUS, annotation::EXTENDED_RESOURCE_SPEC, annotation::CPU_QOS,
            annotation::CPU_BURST, annotation::MEMORY_QOS, annotation::BLKIO_QOS, annotation::DEVICE_ALLOCATED,
            annotation::RESCTRL, annotation::OOM_SCORE_ADJ, annotation::OOM_SCORE_ADJ_SPEC] {
            pod.annotations.insert(key.to_owned(), text.clone());
        }
        let plan = plan_of(&node, &pod, "a");
        prop_assert!(plan.wishes.iter().all(|wish| is_acceptable(&wish.field, &wish.value)));
    }
}
