use koord_extension::keys::annotation;
use koord_extension::qos::KubeQos;
use serde_json::json;

use super::*;

const GI: i64 = 1 << 30;

/// A: request 500m, limit 1000m, 1Gi; B: request and limit 500m, 1Gi.
const A_AND_B: &str = r#"{"containers":{
    "a":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"},
         "limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"1Gi"}},
    "b":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"},
         "limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"}}}}"#;

/// A as above; B requests 200m and has no limits.
const B_WITHOUT_LIMITS: &str = r#"{"containers":{
    "a":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"},
         "limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"1Gi"}},
    "b":{"requests":{"kubernetes.io/batch-cpu":"200"}}}}"#;

fn bare_node() -> NodeView {
    a_node(json!({}), KernelView::bare(CgroupVersion::V1), &[])
}

fn batch_pod(qos: &str, spec: &str) -> PodView {
    a_pod(qos, KubeQos::BestEffort, &[(annotation::EXTENDED_RESOURCE_SPEC, spec)])
}

/// Shares, quota, memory limit.
fn values(plan: &Plan) -> [Option<i64>; 3] {
    [Field::CpuShares, Field::CpuQuota, Field::MemoryLimit].map(|field| plan.integer(&field))
}

fn all(shares: i64, quota: i64, memory: i64) -> [Option<i64>; 3] {
    [Some(shares), Some(quota), Some(memory)]
}

#[test]
fn containers_add_up() {
    let pod = batch_pod("BE", A_AND_B);
    assert_eq!(values(&pod_plan(&bare_node(), &pod)), all(1024, 150_000, 2_147_483_648));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "a")), all(512, 100_000, GI));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "b")), all(512, 50_000, GI));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "c")), [None; 3]);
}

#[test]
fn reasons_have_the_numbers() {
    let pod = batch_pod("BE", A_AND_B);
    let plan = plan_of(&bare_node(), &pod, "a");
    let reason = |field: Field| plan.get(&field).unwrap().reason.clone();
    assert_eq!(reason(Field::CpuQuota), "batch-cpu limit 1000m x 100 us = 100000 us per 100 ms");
    assert_eq!(reason(Field::CpuShares), "batch-cpu request 500m x 1024 / 1000 = 512 shares");
    assert_eq!(reason(Field::MemoryLimit), "batch-memory limit 1073741824 bytes");
    assert!(
        plan.wishes
            .iter()
            .filter(|wish| wish.field != Field::CpusetCpus)
            .all(|wish| wish.rule == Rule::BatchResource)
    );
}

#[test]
fn one_container_without_a_limit_leaves_the_pod_without_one() {
    let pod = batch_pod("BE", B_WITHOUT_LIMITS);
    assert_eq!(values(&pod_plan(&bare_node(), &pod)), all(716, -1, -1));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "a")), all(512, 100_000, GI));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "b")), all(204, -1, -1));
}

#[test]
fn faster_cpus_have_smaller_quotas() {
    let mut node = bare_node();
    let pod = batch_pod("BE", A_AND_B);
    node.cpu_normalization_ratio = NormalizationRatio::new(1.2);
    assert_eq!(values(&pod_plan(&node, &pod)), all(1024, 125_000, 2 * GI));
    assert_eq!(values(&plan_of(&node, &pod, "a")), all(512, 83_334, GI));
    assert_eq!(values(&plan_of(&node, &pod, "b")), all(512, 41_667, GI));
    let reason = plan_of(&node, &pod, "b").get(&Field::CpuQuota).unwrap().reason.clone();
    let expected =
        "batch-cpu limit 500m x 100 us = 50000 us per 100 ms, / 1.20 for the faster CPUs = 41667 us";
    assert_eq!(reason, expected);
    for slower in [0.9, 1.0] {
        node.cpu_normalization_ratio = NormalizationRatio::new(slower);
        assert_eq!(plan_of(&node, &pod, "b").integer(&Field::CpuQuota), Some(50_000), "{slower}");
    }
    node.cpu_normalization_ratio = NormalizationRatio::new(1.5);
    let small = r#"{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"5"}}}}"#;
    assert_eq!(plan_of(&node, &batch_pod("BE", small), "a").integer(&Field::CpuQuota), Some(1000));
}

#[test]
fn suppression_by_quota_leaves_no_quota_to_the_pods() {
    let policy = |enable: bool, policy: &str| json!({"resourceUsedThresholdWithBE": {"enable": enable, "cpuSuppressPolicy": policy}});
    let quotas = |enable, suppress, choice| {
        let mut node = a_node(policy(enable, suppress), KernelView::bare(CgroupVersion::V1), &[]);
        node.options.batch_quota = choice;
        let pod = batch_pod("BE", A_AND_B);
        let plans = [pod_plan(&node, &pod), plan_of(&node, &pod, "a"), plan_of(&node, &pod, "b")];
        assert_eq!(plans.each_ref().map(|plan| plan.integer(&Field::CpuShares).unwrap()), [1024, 512, 512]);
        assert_eq!(plans.each_ref().map(|plan| plan.integer(&Field::MemoryLimit).unwrap()), [2 * GI, GI, GI]);
        plans.each_ref().map(|plan| plan.integer(&Field::CpuQuota).unwrap())
    };
    use BatchQuota::*;
    assert_eq!(quotas(true, "cfsQuota", UnsetUnderQuotaSuppression), [-1, -1, -1]);
    assert_eq!(quotas(false, "cfsQuota", UnsetUnderQuotaSuppression), [150_000, 100_000, 50_000]);
    assert_eq!(quotas(true, "cpuset", UnsetUnderQuotaSuppression), [150_000, 100_000, 50_000]);
    assert_eq!(quotas(true, "cpuset", UnsetUnderSuppression), [-1, -1, -1]);
    assert_eq!(quotas(false, "cpuset", UnsetUnderSuppression), [150_000, 100_000, 50_000]);
}

#[test]
fn batch_resources_are_for_best_effort_pods() {
    for qos in ["LS", "LSR", "LSE", "SYSTEM", "", "be"] {
        let pod = batch_pod(qos, A_AND_B);
        assert_eq!(values(&pod_plan(&bare_node(), &pod)), [None; 3], "{qos}");
        assert_eq!(values(&plan_of(&bare_node(), &pod, "a")), [None; 3], "{qos}");
    }
}

#[test]
fn mid_resources_are_for_ls_pods_too() {
    let spec = r#"{"containers":{"a":{"requests":{"kubernetes.io/mid-cpu":"500","kubernetes.io/mid-memory":"1Gi"},
        "limits":{"kubernetes.io/mid-cpu":"1k","kubernetes.io/mid-memory":"2Gi"}}}}"#;
    for (qos, acts) in [("LS", true), ("BE", true), ("LSR", false), ("", false)] {
        let expected = if acts { all(512, 100_000, 2 * GI) } else { [None; 3] };
        assert_eq!(values(&plan_of(&bare_node(), &batch_pod(qos, spec), "a")), expected, "{qos}");
        assert_eq!(values(&pod_plan(&bare_node(), &batch_pod(qos, spec))), expected, "{qos}");
    }
    let plan = plan_of(&bare_node(), &batch_pod("LS", spec), "a");
    assert_eq!(plan.get(&Field::MemoryLimit).unwrap().reason, "mid-memory limit 2147483648 bytes");
    let mut off = bare_node();
    off.gates.set(Gate::MidResource, false);
    assert_eq!(values(&plan_of(&off, &batch_pod("LS", spec), "a")), [None; 3]);
}

#[test]
fn sidecars_init_containers_and_overhead_count() {
    // Regular 500 + sidecar 200 = 700; during init 200 + 900 = 1100 is more. Overhead 100 on top.
    let spec = r#"{"containers":{
        "":{"requests":{"kubernetes.io/batch-cpu":"100","kubernetes.io/batch-memory":"1Mi"}},
        "main":{"requests":{"kubernetes.io/batch-cpu":"500"},
                "limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"3Gi"}},
        "side":{"kind":"sidecar","order":0,"requests":{"kubernetes.io/batch-cpu":"200"},
                "limits":{"kubernetes.io/batch-cpu":"200","kubernetes.io/batch-memory":"1Gi"}},
        "init":{"kind":"init","order":1,"requests":{"kubernetes.io/batch-cpu":"900"},
                "limits":{"kubernetes.io/batch-cpu":"900","kubernetes.io/batch-memory":"1Gi"}}}}"#;
    let pod = batch_pod("BE", spec);
    assert_eq!(values(&pod_plan(&bare_node(), &pod)), all(1228, 120_000, 4 * GI + (1 << 20)));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "init")), all(921, 90_000, GI));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "side")), all(204, 20_000, GI));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "")), [None; 3]);
}

#[test]
fn nothing_asked_changes_nothing() {
    for spec in [
        "{}",
        r#"{"containers":{}}"#,
        r#"{"containers":{"a":{}}}"#,
        r#"{"containers":{"a":{"requests":{"koordinator.sh/gpu":"100"}}}}"#,
        r#"{"containers":{"":{"requests":{"kubernetes.io/batch-cpu":"100"}}}}"#,
    ] {
        let pod = batch_pod("BE", spec);
        assert_eq!(values(&pod_plan(&bare_node(), &pod)), [None; 3], "{spec}");
        assert_eq!(values(&plan_of(&bare_node(), &pod, "a")), [None; 3], "{spec}");
        assert_eq!(pod_plan(&bare_node(), &pod).problems, [], "{spec}");
    }
}

#[test]
fn a_limit_of_zero_is_no_limit() {
    let spec = r#"{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"0"},
        "limits":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}}}"#;
    let pod = batch_pod("BE", spec);
    assert_eq!(values(&pod_plan(&bare_node(), &pod)), all(2, -1, -1));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "a")), all(2, -1, -1));
}

#[test]
fn an_unreadable_annotation_is_as_if_absent() {
    let pod = batch_pod("BE", r#"{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"1x"}}}}"#);
    for plan in [pod_plan(&bare_node(), &pod), plan_of(&bare_node(), &pod, "a")] {
        assert_eq!(values(&plan), [None; 3]);
        assert_eq!(plan.problems.len(), 1);
        assert_eq!(plan.problems[0].rule, Rule::BatchResource);
        assert_eq!(plan.problems[0].severity, Severity::Skipped);
    }
    // The other rules go on.
    assert_eq!(wished_cpus(&plan_of(&bare_node(), &pod, "a")), Some(cpus("")));
}

#[test]
fn a_pods_quota_counts_in_the_period_of_its_directory() {
    let mut pod = batch_pod("BE", A_AND_B);
    pod.asked.cpu_period = Some(50_000);
    assert_eq!(pod_plan(&bare_node(), &pod).integer(&Field::CpuQuota), Some(75_000));
    let asked = Asked { cpu_period: Some(50_000), ..Asked::default() };
    assert_eq!(plan_with(&bare_node(), &pod, "a", &asked).integer(&Field::CpuQuota), Some(100_000));
}

#[test]
fn the_sandbox_has_no_batch_resources() {
    let pod = batch_pod("BE", A_AND_B);
    let asked = Asked::default();
    let sandbox = ContainerView { name: "a", asked: &asked, memory_request: None, is_sandbox: true };
    assert_eq!(values(&container(&bare_node(), &pod, &sandbox)), [None; 3]);
}

#[test]
fn owned_cpus_come_before_batch_limits() {
    let annotations =
        [(annotation::EXTENDED_RESOURCE_SPEC, A_AND_B), (annotation::RESOURCE_STATUS, r#"{"cpuset":"1"}"#)];
    let pod = a_pod("BE", KubeQos::BestEffort, &annotations);
    assert_eq!(values(&pod_plan(&bare_node(), &pod)), all(1024, -1, 2 * GI));
    assert_eq!(values(&plan_of(&bare_node(), &pod, "a")), all(512, -1, GI));
}
