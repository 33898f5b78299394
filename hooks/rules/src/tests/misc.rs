use koord_extension::keys::annotation;
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::units::{Micros, Percent};
use serde_json::json;

use super::*;

fn quota(quota: i64) -> Asked {
    Asked { cpu_quota: Some(quota), cpu_period: Some(100_000), ..Asked::default() }
}

mod normalization {
    use super::*;

    fn node(ratio: f64) -> NodeView {
        let mut node = a_node(json!({}), KernelView::bare(CgroupVersion::V1), &[Gate::CpuNormalization]);
        node.cpu_normalization_ratio = NormalizationRatio::new(ratio);
        node
    }

    fn divided(node: &NodeView, pod: &PodView, asked: i64) -> Option<i64> {
        let mut pod = pod.clone();
        pod.asked = quota(asked);
        let found = plan_with(node, &pod, "a", &quota(asked)).integer(&Field::CpuQuota);
        assert_eq!(pod_plan(node, &pod).integer(&Field::CpuQuota), found);
        found
    }

    #[test]
    fn limits_are_divided_by_the_ratio() {
        let ls = a_pod("LS", KubeQos::Burstable, &[]);
        let vector = [
            (1.2, 200_000, Some(166_667)),
            (1.1, 100_000, Some(90_910)),
            (1.5, 150_000, Some(100_000)),
            (1.5, 1000, Some(1000)),
            (1.0, 200_000, None),
            (0.8, 200_000, None),
            (1.2, -1, None),
            (1.2, 0, None),
        ];
        for (ratio, asked, expected) in vector {
            assert_eq!(divided(&node(ratio), &ls, asked), expected, "{ratio} {asked}");
        }
        let mut unknown = node(1.2);
        unknown.cpu_normalization_ratio = None;
        assert_eq!(divided(&unknown, &ls, 200_000), None);
        let mut off = node(1.2);
        off.gates.set(Gate::CpuNormalization, false);
        assert_eq!(divided(&off, &ls, 200_000), None);
    }

    #[test]
    fn classes() {
        let owned = [(annotation::RESOURCE_STATUS, r#"{"cpuset":"0-1"}"#)];
        for (qos, acts) in
            [("LS", true), ("", true), ("LSR", false), ("LSE", false), ("BE", false), ("SYSTEM", false)]
        {
            let pod = a_pod(qos, KubeQos::Burstable, &[]);
            assert_eq!(divided(&node(1.2), &pod, 120_000), acts.then_some(100_000), "{qos}");
        }
        let pod = a_pod("", KubeQos::Guaranteed, &owned);
        assert_eq!(divided(&node(1.2), &pod, 120_000), Some(-1));
    }

    #[test]
    fn other_periods() {
        let pod = a_pod("LS", KubeQos::Burstable, &[]);
        let asked = Asked { cpu_quota: Some(60_000), cpu_period: Some(50_000), ..Asked::default() };
        // The quota of a container goes with a period of 100 ms, that of a pod with its own.
        assert_eq!(plan_with(&node(1.2), &pod, "a", &asked).integer(&Field::CpuQuota), Some(100_000));
        let pod = PodView { asked, ..pod };
        assert_eq!(pod_plan(&node(1.2), &pod).integer(&Field::CpuQuota), Some(50_000));
    }
}

mod burst {
    use super::*;

    fn node(strategy: Json, kernel: KernelView) -> NodeView {
        a_node(json!({"cpuBurstStrategy": strategy}), kernel, &[])
    }

    fn burst(node: &NodeView, pod: &PodView, asked: i64) -> Option<i64> {
        plan_with(node, pod, "a", &quota(asked)).integer(&Field::CpuBurst)
    }

    #[test]
    fn a_burst_is_a_part_of_the_quota_and_at_most_all_of_it() {
        let pod = a_pod("LS", KubeQos::Burstable, &[]);
        let vendor = KernelView { burst_above_quota: true, ..mainline_kernel() };
        let vector = [
            ("auto", 1000, 200_000, mainline_kernel(), Some(200_000)),
            ("cpuBurstOnly", 1000, 200_000, mainline_kernel(), Some(200_000)),
            ("cpuBurstOnly", 1000, 200_000, vendor.clone(), Some(2_000_000)),
            ("cpuBurstOnly", 10_000, 2_000_000, vendor, Some(100_000_000)),
            ("auto", 50, 200_000, mainline_kernel(), Some(100_000)),
            ("auto", 50, -1, mainline_kernel(), Some(0)),
            ("auto", 50, 0, mainline_kernel(), Some(0)),
            ("none", 50, 200_000, mainline_kernel(), None),
            ("cfsQuotaBurstOnly", 50, 200_000, mainline_kernel(), None),
            ("auto", 50, 200_000, KernelView { cpu_burst: false, ..mainline_kernel() }, None),
        ];
        for (policy, percent, asked, kernel, expected) in vector {
            let node = node(json!({"policy": policy, "cpuBurstPercent": percent}), kernel);
            assert_eq!(burst(&node, &pod, asked), expected, "{policy} {percent} {asked}");
        }
        let default = node(json!({"policy": "auto"}), mainline_kernel());
        let plan = plan_with(&default, &pod, "a", &quota(200_000));
        let reason = &plan.get(&Field::CpuBurst).unwrap().reason;
        assert_eq!(reason, "cpuBurstPercent 1000 % of the quota 200000 us = 2000000 us, held at 200000 us");
    }

    #[test]
    fn classes_and_annotation() {
        let node = node(json!({"policy": "auto", "cpuBurstPercent": 50}), mainline_kernel());
        for (qos, acts) in
            [("LS", true), ("", true), ("SYSTEM", true), ("LSR", false), ("LSE", false), ("BE", false)]
        {
            let pod = a_pod(qos, KubeQos::Burstable, &[]);
            assert_eq!(burst(&node, &pod, 200_000), acts.then_some(100_000), "{qos}");
        }
        for (text, expected) in [
            (r#"{"cpuBurstPercent":25}"#, Some(50_000)),
            (r#"{"policy":"none"}"#, None),
            (r#"{"policy":"cpuBurstOnly","cpuBurstPercent":10}"#, Some(20_000)),
            ("not json", Some(100_000)),
        ] {
            let pod = a_pod("LS", KubeQos::Burstable, &[(annotation::CPU_BURST, text)]);
            assert_eq!(burst(&node, &pod, 200_000), expected, "{text}");
        }
        let mut off = node;
        off.gates.set(Gate::CpuBurst, false);
        assert_eq!(burst(&off, &a_pod("LS", KubeQos::Burstable, &[]), 200_000), None);
    }

    #[test]
    fn the_quota_of_another_rule_counts() {
        let mut node = node(json!({"policy": "auto"}), mainline_kernel());
        node.gates.set(Gate::CpuNormalization, true);
        node.cpu_normalization_ratio = NormalizationRatio::new(1.2);
        let pod = a_pod("LS", KubeQos::Burstable, &[]);
        assert_eq!(burst(&node, &pod, 120_000), Some(100_000));
        let owned = a_pod("LS", KubeQos::Burstable, &[(annotation::RESOURCE_STATUS, r#"{"cpuset":"0-1"}"#)]);
        assert_eq!(burst(&node, &owned, 120_000), Some(0));
    }

    #[test]
    fn a_pod_saves_up_no_more_than_its_quota() {
        let node = node(json!({"policy": "auto"}), mainline_kernel());
        let mut pod = a_pod("LS", KubeQos::Burstable, &[]);
        assert_eq!(pod_plan(&node, &pod).integer(&Field::CpuBurst), None);
        pod.asked = quota(-1);
        assert_eq!(pod_plan(&node, &pod).integer(&Field::CpuBurst), None);
        pod.asked = quota(300_000);
        assert_eq!(pod_plan(&node, &pod).integer(&Field::CpuBurst), Some(300_000));
    }
}

mod oom_score_adj {
    use super::*;

    fn score(annotations: &[(&str, &str)], name: &str) -> (Option<i64>, usize) {
        let node = a_node(json!({}), mainline_kernel(), &[Gate::OomScoreAdj]);
        let plan = plan_of(&node, &a_pod("LS", KubeQos::Burstable, annotations), name);
        (plan.integer(&Field::OomScoreAdj), plan.problems.len())
    }

    #[test]
    fn the_container_comes_before_the_pod() {
        let both = [(annotation::OOM_SCORE_ADJ, "-500"), (annotation::OOM_SCORE_ADJ_SPEC, r#"{"a":200}"#)];
        assert_eq!(score(&both, "a"), (Some(200), 0));
        assert_eq!(score(&both, "b"), (Some(-500), 0));
        assert_eq!(score(&both[1..], "b"), (None, 0));
        assert_eq!(score(&[], "a"), (None, 0));
    }

    #[test]
    fn values_that_cannot_be_are_skipped() {
        for (text, expected) in [
            ("1000", (Some(1000), 0)),
            ("1001", (None, 1)),
            ("-1000", (Some(-1000), 0)),
            ("-1001", (None, 1)),
            ("x", (None, 1)),
            ("", (None, 1)),
        ] {
            assert_eq!(score(&[(annotation::OOM_SCORE_ADJ, text)], "a"), expected, "{text}");
        }
        let bad = [(annotation::OOM_SCORE_ADJ, "7"), (annotation::OOM_SCORE_ADJ_SPEC, r#"{"a":1001}"#)];
        assert_eq!(score(&bad, "a"), (None, 1));
        assert_eq!(score(&bad, "b"), (Some(7), 0));
        let broken = [(annotation::OOM_SCORE_ADJ, "7"), (annotation::OOM_SCORE_ADJ_SPEC, "[]")];
        assert_eq!(score(&broken, "a"), (None, 1));
    }

    #[test]
    fn never_the_sandbox_and_not_without_the_gate() {
        let pod = a_pod("LS", KubeQos::Burstable, &[(annotation::OOM_SCORE_ADJ, "7")]);
        let asked = Asked::default();
        let sandbox = ContainerView { name: "", asked: &asked, memory_request: None, is_sandbox: true };
        let node = a_node(json!({}), mainline_kernel(), &[Gate::OomScoreAdj]);
        assert_eq!(container(&node, &pod, &sandbox).get(&Field::OomScoreAdj), None);
        let node = a_node(json!({}), mainline_kernel(), &[]);
        assert_eq!(plan_of(&node, &pod, "a"), Plan::default());
    }
}

mod resctrl {
    use super::*;

    const OWN: (&str, &str) = (annotation::RESCTRL, r#"{"llc":{"schemata":{"range":[0,50]}}}"#);

    fn class_node(classes: &[&str]) -> NodeView {
        let mut strategy = json!({});
        for class in classes {
            strategy[*class] = json!({"resctrlQOS": {"enable": true}});
        }
        let kernel = KernelView { resctrl: true, ..mainline_kernel() };
        a_node(json!({"resourceQOSStrategy": strategy}), kernel, &[Gate::Resctrl])
    }

    fn class(node: &NodeView, pod: &PodView, name: &str) -> Option<String> {
        text_of(&plan_of(node, pod, name), &Field::ResctrlClass)
    }

    #[test]
    fn classes_of_pods() {
        let node = class_node(&["lsrClass", "lsClass", "beClass"]);
        let vector = [
            ("LSE", KubeQos::Guaranteed, Some("LSR")),
            ("LSR", KubeQos::Guaranteed, Some("LSR")),
            ("LS", KubeQos::Burstable, Some("LS")),
            ("BE", KubeQos::BestEffort, Some("BE")),
            ("SYSTEM", KubeQos::Burstable, None),
            ("", KubeQos::Guaranteed, Some("LSR")),
            ("", KubeQos::Burstable, Some("LS")),
            ("", KubeQos::BestEffort, Some("BE")),
        ];
        for (qos, kube_qos, expected) in vector {
            assert_eq!(
                class(&node, &a_pod(qos, kube_qos, &[]), "a").as_deref(),
                expected,
                "{qos} {kube_qos:?}"
            );
        }
        let only_be = class_node(&["beClass"]);
        assert_eq!(class(&only_be, &a_pod("LS", KubeQos::Burstable, &[]), "a"), None);
        assert_eq!(
            pod_plan(&only_be, &a_pod("BE", KubeQos::BestEffort, &[])).get(&Field::ResctrlClass),
            None
        );
    }

    #[test]
    fn groups_of_enabled_classes() {
        let plan = node_plan(&class_node(&["lsClass", "beClass"]));
        let groups: Vec<_> = plan
            .resctrl
            .iter()
            .map(|group| (group.class, group.cat_start, group.cat_end, group.mba))
            .collect();
        let expected = [
            (QosClass::Ls, Percent(0), Percent(100), Percent(100)),
            (QosClass::Be, Percent(0), Percent(30), Percent(100)),
        ];
        assert_eq!(groups, expected);
        let mut without = class_node(&["beClass"]);
        without.kernel.resctrl = false;
        let plan = node_plan(&without);
        assert_eq!((plan.resctrl.len(), plan.problems.len()), (0, 1));
        let mut off = class_node(&["beClass"]);
        off.gates.set(Gate::RdtResctrl, false);
        assert_eq!(node_plan(&off).resctrl, []);
        assert_eq!(class(&off, &a_pod("BE", KubeQos::BestEffort, &[]), "a"), None);
    }

    #[test]
    fn a_pod_with_a_group_of_its_own() {
        let node = class_node(&["lsClass"]);
        let pod = a_pod("LS", KubeQos::Burstable, &[OWN]);
        assert_eq!(class(&node, &pod, "a").as_deref(), Some("koordlet-u-1"));
        assert_eq!(text_of(&pod_plan(&node, &pod), &Field::ResctrlClass).as_deref(), Some("koordlet-u-1"));
        assert!(PodFacts::new(&pod).own_resctrl().is_some());
        let mut off = node.clone();
        off.gates.set(Gate::Resctrl, false);
        assert_eq!(class(&off, &pod, "a"), None);
        let broken = a_pod("LS", KubeQos::Burstable, &[(annotation::RESCTRL, "not json")]);
        assert_eq!(class(&node, &broken, "a"), None);
        assert_eq!(plan_of(&node, &broken, "a").problems[0].rule, Rule::Resctrl);
        let mut bare = node;
        bare.kernel.resctrl = false;
        assert_eq!(class(&bare, &pod, "a"), None);
        assert_eq!(pod_plan(&bare, &pod).problems[0].rule, Rule::Resctrl);
    }

    #[test]
    fn what_the_runtime_was_told_is_left_to_it() {
        let node = class_node(&["lsClass"]);
        for key in
            [annotation::RDT_POD, annotation::RDT_CRI_CLASS, "rdt.resources.beta.kubernetes.io/container.a"]
        {
            let pod = a_pod("LS", KubeQos::Burstable, &[(key, "gold")]);
            assert_eq!(class(&node, &pod, "a"), None, "{key}");
            let others = key.ends_with(".a").then(|| "LS".to_owned());
            assert_eq!(class(&node, &pod, "b"), others, "{key}");
        }
        let both = a_pod("LS", KubeQos::Burstable, &[(annotation::RDT_POD, "gold"), OWN]);
        assert_eq!(pod_plan(&node, &both).get(&Field::ResctrlClass), None);
    }
}

mod block_io {
    use super::*;

    const SDA: DiskNumber = DiskNumber { major: 8, minor: 0 };
    const SDB: DiskNumber = DiskNumber { major: 8, minor: 16 };

    fn block(name: &str, kind: &str, config: Json) -> Json {
        json!({"name": name, "type": kind, "ioCfg": config})
    }

    fn node(class: &str, blocks: &[Json], kernel: KernelView) -> NodeView {
        let policy =
            json!({"resourceQOSStrategy": {class: {"blkioQOS": {"enable": true, "blocks": blocks}}}});
        let mut node = a_node(policy, kernel, &[Gate::BlkIoReconcile]);
        node.disks.devices = [("/dev/sda".to_owned(), SDA), ("/dev/sda1".to_owned(), SDA)].into();
        node.disks.volume_groups = [("vg".to_owned(), SDB)].into();
        node.disks.pod_volumes = [(("u-1".to_owned(), "data".to_owned()), SDB)].into();
        node
    }

    fn v1() -> KernelView {
        KernelView { blkio_throttle: true, blkio_cost: true, ..KernelView::bare(CgroupVersion::V1) }
    }

    fn lines(plan: &Plan) -> Vec<(String, String)> {
        plan.wishes
            .iter()
            .filter(|wish| wish.rule == Rule::BlkioQos)
            .map(|wish| (wish.field.to_string(), wish.value.to_string()))
            .collect()
    }

    fn expect(plan: &Plan, expected: &[(&str, &str)]) {
        let expected: Vec<_> =
            expected.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect();
        assert_eq!(lines(plan), expected);
    }

    #[test]
    fn five_lines_for_a_disk_on_version_1() {
        let blocks = [block("/dev/sda1", "device", json!({"readIOPS": 100, "writeBPS": 1_048_576}))];
        let plan = qos_dir(&node("beClass", &blocks, v1()), KubeQos::BestEffort);
        expect(
            &plan,
            &[
                ("blkio.throttle.read_iops_device 8:0", "8:0 100"),
                ("blkio.throttle.read_bps_device 8:0", "8:0 0"),
                ("blkio.throttle.write_iops_device 8:0", "8:0 0"),
                ("blkio.throttle.write_bps_device 8:0", "8:0 1048576"),
                ("blkio.cost.weight 8:0", "8:0 100"),
            ],
        );
        assert_eq!(plan.get(&Field::BlkioReadIops(SDA)).unwrap().reason, "/dev/sda1: readIOPS 100");
        assert_eq!(plan.get(&Field::BlkioReadBps(SDA)).unwrap().reason, "/dev/sda1: no readBPS");
    }

    #[test]
    fn limits_and_weight_on_version_2() {
        let blocks = [block(
            "vg",
            "volumegroup",
            json!({"readIOPS": 100, "writeBPS": 1_048_576, "ioWeightPercent": 20}),
        )];
        let plan = qos_dir(&node("beClass", &blocks, mainline_kernel()), KubeQos::BestEffort);
        expect(
            &plan,
            &[
                ("io.max 8:16", "8:16 rbps=max wbps=1048576 riops=100 wiops=max"),
                ("io.weight 8:16", "8:16 20"),
            ],
        );
    }

    #[test]
    fn a_block_of_no_disk_does_not_stop_the_others() {
        let blocks = [
            block("/dev/nope", "device", json!({})),
            block("data", "podvolume", json!({})),
            block("/dev/sda", "device", json!({})),
        ];
        let plan = qos_dir(&node("beClass", &blocks, mainline_kernel()), KubeQos::BestEffort);
        assert_eq!(lines(&plan).len(), 2);
        let messages: Vec<_> = plan.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(messages, ["/dev/nope is on no known disk", "podvolume data: only pods have volumes"]);
    }

    #[test]
    fn pods_with_blocks_of_their_own() {
        let node = node("beClass", &[], mainline_kernel());
        let own = r#"{"blocks":[{"name":"data","type":"podvolume","ioCfg":{"readBPS":4096,"readLatency":2000,"writeLatency":5000}}]}"#;
        let pod = |qos| a_pod(qos, KubeQos::Burstable, &[(annotation::BLKIO_QOS, own)]);
        let limit = ("io.max 8:16", "8:16 rbps=4096 wbps=max riops=max wiops=max");
        let weight = ("io.weight 8:16", "8:16 100");
        expect(&pod_plan(&node, &pod("BE")), &[limit, weight]);
        expect(&pod_plan(&node, &pod("LS")), &[limit, weight, ("io.latency 8:16", "8:16 target=2000")]);
        expect(&pod_plan(&node, &pod("")), &[]);
        let broken = a_pod("LS", KubeQos::Burstable, &[(annotation::BLKIO_QOS, "not json")]);
        assert_eq!(pod_plan(&node, &broken).problems[0].rule, Rule::BlkioQos);
        let mut told = pod("LS");
        told.annotations.insert(annotation::BLOCKIO_POD.to_owned(), "gold".to_owned());
        expect(&pod_plan(&node, &told), &[]);
        let mut off = node;
        off.gates.set(Gate::BlkIoReconcile, false);
        expect(&pod_plan(&off, &pod("LS")), &[]);
    }

    #[test]
    fn weights_of_sensitive_classes_need_version_2() {
        let blocks = [block("/dev/sda", "device", json!({"ioWeightPercent": 90}))];
        let old = node("lsClass", &blocks, v1());
        assert_eq!(qos_dir(&old, KubeQos::Burstable).problems.len(), 1);
        expect(&pod_plan(&old, &a_pod("LS", KubeQos::Burstable, &[])), &[]);
        let new = node("lsClass", &blocks, mainline_kernel());
        assert_eq!(qos_dir(&new, KubeQos::Burstable).problems, []);
        let limits = ("io.max 8:0", "8:0 rbps=max wbps=max riops=max wiops=max");
        expect(
            &pod_plan(&new, &a_pod("LS", KubeQos::Burstable, &[])),
            &[limits, ("io.weight 8:0", "8:0 90")],
        );
        expect(&pod_plan(&new, &a_pod("LSR", KubeQos::Guaranteed, &[])), &[]);
        expect(&pod_plan(&new, &a_pod("BE", KubeQos::BestEffort, &[])), &[]);
    }

    #[test]
    fn the_controllers_settings_are_in_the_root() {
        let blocks = [block("/dev/sda", "device", json!({"readLatency": 2000, "readLatencyPercent": 90}))];
        expect(
            &node_plan(&node("cgroupRoot", &blocks, v1())).root,
            &[
                ("blkio.cost.qos 8:0", "8:0 enable=1 ctrl=user rpct=90 rlat=2000 wpct=95 wlat=3000"),
                ("blkio.cost.model 8:0", "8:0 ctrl=auto"),
            ],
        );
        expect(
            &node_plan(&node("cgroupRoot", &blocks, mainline_kernel())).root,
            &[
                (
                    "io.cost.qos 8:0",
                    "8:0 enable=1 ctrl=user rpct=90.00 rlat=2000 wpct=95.00 wlat=3000 min=50 max=150",
                ),
                ("io.cost.model 8:0", "8:0 ctrl=auto"),
            ],
        );
    }

    #[test]
    fn a_model_of_the_users() {
        let model = json!({"enableUserModel": true, "modelReadBPS": 1, "modelReadSeqIOPS": 2, "modelReadRandIOPS": 3,
            "modelWriteBPS": 4, "modelWriteSeqIOPS": 5});
        let blocks = [block("/dev/sda", "device", model)];
        let line = "8:0 ctrl=user rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=1";
        let root = node_plan(&node("cgroupRoot", &blocks, v1())).root;
        assert_eq!(text_of(&root, &Field::BlkioCostModel(SDA)).as_deref(), Some(line));
        let root = node_plan(&node("cgroupRoot", &blocks, mainline_kernel())).root;
        assert_eq!(text_of(&root, &Field::IoCostModel(SDA)).as_deref(), Some(line));
    }
}

#[test]
fn slices_of_the_scheduler() {
    let kernel = KernelView { scheduler_slice: true, ..mainline_kernel() };
    let mut node = a_node(json!({}), kernel, &[]);
    let slice = |node: &NodeView, qos: &str| {
        plan_of(node, &a_pod(qos, usual_directory(qos), &[]), "a").integer(&Field::SchedulerSlice)
    };
    assert_eq!(slice(&node, "LS"), None);
    node.options.scheduler_slice = Some(SliceOptions::default());
    let found = ["LSE", "LSR", "LS", "BE", "SYSTEM", ""].map(|qos| slice(&node, qos));
    assert_eq!(found, [None, Some(1000), Some(1000), Some(20_000), None, Some(1000)]);
    node.options.scheduler_slice =
        Some(SliceOptions { latency_sensitive: Micros(1), best_effort: Micros(1_000_000) });
    assert_eq!(["LS", "BE"].map(|qos| slice(&node, qos)), [Some(100), Some(100_000)]);
    node.kernel.scheduler_slice = false;
    assert_eq!(slice(&node, "LS"), None);
}

#[test]
fn bounds_of_capacity() {
    let kernel = KernelView { cpu_uclamp: true, ..mainline_kernel() };
    let mut node = a_node(json!({}), kernel, &[]);
    let clamp = |node: &NodeView, qos: &str| {
        let plan = pod_plan(node, &a_pod(qos, usual_directory(qos), &[]));
        (text_of(&plan, &Field::CpuUclampMin), text_of(&plan, &Field::CpuUclampMax))
    };
    assert_eq!(clamp(&node, "BE"), (None, None));
    node.options.cpu_uclamp = Some(UclampOptions::default());
    assert_eq!(clamp(&node, "BE"), (None, Some("50.00".to_owned())));
    assert_eq!(clamp(&node, "LS"), (None, None));
    node.options.cpu_uclamp =
        Some(UclampOptions { latency_sensitive_min: Percent(20), best_effort_max: Percent(100) });
    assert_eq!(clamp(&node, "BE"), (None, None));
    assert_eq!(clamp(&node, "LSE"), (Some("20.00".to_owned()), None));
    assert_eq!(clamp(&node, "SYSTEM"), (None, None));
}

#[test]
fn a_broken_annotation_concerns_its_rule_only() {
    let mut policy = cpu_qos(&["lsClass"]);
    policy["cpuBurstStrategy"] = json!({"policy": "auto"});
    let kernel = KernelView { group_identity: true, ..mainline_kernel() };
    let node = a_node(policy, kernel, &[Gate::OomScoreAdj]);
    let annotations = [
        (annotation::RESOURCE_STATUS, "not json"),
        (annotation::CPU_BURST, "not json"),
        (annotation::OOM_SCORE_ADJ, "100"),
    ];
    let pod = a_pod("LS", KubeQos::Burstable, &annotations);
    let plan = plan_with(&node, &pod, "a", &quota(100_000));
    assert_eq!(plan.integer(&Field::CpuBvtWarpNs), Some(2));
    assert_eq!(plan.integer(&Field::CpuBurst), Some(100_000));
    assert_eq!(plan.integer(&Field::OomScoreAdj), Some(100));
    let rules: Vec<_> = plan.problems.iter().map(|problem| problem.rule).collect();
    assert_eq!(rules, [Rule::CpusetAllocator, Rule::CpuBurst]);
}

#[test]
fn names_of_rules_lead_back_to_them() {
    for rule in Rule::ALL {
        assert_eq!(Rule::from_name(rule.as_str()), Some(rule));
    }
    assert_eq!(Rule::from_name("kubelet"), None);
}

#[test]
fn facts_of_a_pod_take_little_room() {
    assert!(size_of::<PodFacts>() <= 384, "{}", size_of::<PodFacts>());
}
