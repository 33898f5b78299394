use koord_extension::keys::annotation;
use koord_extension::qos::KubeQos;
use koord_extension::units::Bytes;
use serde_json::json;

use super::*;

const GI: i64 = 1 << 30;

fn policy(class: &str, values: Json) -> Json {
    let mut memory = values;
    memory["enable"] = json!(true);
    json!({"resourceQOSStrategy": {class: {"memoryQOS": memory}}})
}

fn memory_node(class: &str, values: Json, kernel: KernelView) -> NodeView {
    a_node(policy(class, values), kernel, &[Gate::CgroupReconcile])
}

fn vendor() -> KernelView {
    KernelView { memory_watermarks: true, memory_priority: true, ..mainline_kernel() }
}

/// A container of a burstable LS pod with this request and limit.
fn ls_container(node: &NodeView, request: Option<i64>, limit: i64, annotations: &[(&str, &str)]) -> Plan {
    let pod = a_pod("LS", KubeQos::Burstable, annotations);
    let asked = Asked { memory_limit: (limit != 0).then_some(limit), ..Asked::default() };
    container(
        node,
        &pod,
        &ContainerView { name: "a", asked: &asked, memory_request: request.map(Bytes), is_sandbox: false },
    )
}

/// memory.min, memory.low, memory.high.
fn values(plan: &Plan) -> [Option<i64>; 3] {
    [Field::MemoryMin, Field::MemoryLow, Field::MemoryHigh].map(|field| plan.integer(&field))
}

#[test]
fn protection_is_a_part_of_the_request() {
    let node = memory_node("lsClass", json!({"minLimitPercent": 50, "lowLimitPercent": 30}), vendor());
    let plan = ls_container(&node, Some(GI), 2 * GI, &[]);
    assert_eq!(values(&plan), [Some(536_870_912), Some(536_870_912), Some(-1)]);
    assert_eq!(
        plan.get(&Field::MemoryMin).unwrap().reason,
        "minLimitPercent 50 % of the request 1073741824 bytes"
    );
    let node = memory_node("lsClass", json!({"minLimitPercent": 30, "lowLimitPercent": 50}), vendor());
    let plan = ls_container(&node, Some(GI), 2 * GI, &[]);
    assert_eq!(values(&plan), [Some(322_122_547), Some(536_870_912), Some(-1)]);
    let node = memory_node("lsClass", json!({"minLimitPercent": 30}), vendor());
    assert_eq!(values(&ls_container(&node, Some(GI), 0, &[])), [Some(322_122_547), Some(0), Some(-1)]);
}

#[test]
fn throttling_between_request_and_limit() {
    let throttled = |percent: i64| memory_node("lsClass", json!({"throttlingPercent": percent}), vendor());
    let high = |node: &NodeView, request, limit| {
        ls_container(node, Some(request), limit, &[]).integer(&Field::MemoryHigh)
    };
    assert_eq!(high(&throttled(80), GI, 2 * GI), Some(1_932_734_464));
    assert_eq!(high(&throttled(90), 0, GI), Some(966_365_184));
    assert_eq!(high(&throttled(0), GI, 2 * GI), Some(-1));
    let mut node = throttled(80);
    assert_eq!(high(&node, 0, 0), None);
    node.allocatable_memory = Some(Bytes(GI));
    assert_eq!(high(&node, 0, 0), Some(858_992_640));
    let all = memory_node(
        "lsClass",
        json!({"minLimitPercent": 90, "lowLimitPercent": 50, "throttlingPercent": 90}),
        vendor(),
    );
    let expected = [Some(1_449_551_462), Some(1_449_551_462), Some(2_093_793_280)];
    assert_eq!(values(&ls_container(&all, Some(3 * GI / 2), 2 * GI, &[])), expected);
}

#[test]
fn throttling_starts_not_below_what_is_protected() {
    // 1 byte of request in a page of 4096 would give 0.
    let node = memory_node("lsClass", json!({"minLimitPercent": 100, "throttlingPercent": 1}), vendor());
    let plan = ls_container(&node, Some(5000), 5001, &[]);
    assert_eq!(values(&plan), [Some(5000), Some(0), Some(5000)]);
}

#[test]
fn an_unknown_request_is_not_guessed() {
    let node = memory_node("lsClass", json!({"minLimitPercent": 50, "throttlingPercent": 80}), vendor());
    assert_eq!(values(&ls_container(&node, None, 2 * GI, &[])), [None, None, None]);
    // A guaranteed container requests its limit.
    let pod = a_pod("LS", KubeQos::Guaranteed, &[]);
    let asked = Asked { memory_limit: Some(GI), ..Asked::default() };
    assert_eq!(values(&plan_with(&node, &pod, "a", &asked)), [Some(GI / 2), Some(0), Some(GI)]);
    // Of nothing, a part is nothing.
    let pod = a_pod("", KubeQos::BestEffort, &[]);
    let node = memory_node("beClass", json!({"minLimitPercent": 50}), vendor());
    assert_eq!(values(&plan_of(&node, &pod, "a")), [Some(0), Some(0), Some(-1)]);
}

#[test]
fn batch_memory_is_the_request_of_best_effort_pods() {
    let spec = r#"{"containers":{
        "a":{"requests":{"kubernetes.io/batch-memory":"1Gi"},"limits":{"kubernetes.io/batch-memory":"2Gi"}},
        "b":{"requests":{"kubernetes.io/batch-memory":"1Gi"},"limits":{"kubernetes.io/batch-memory":"1Gi"}}}}"#;
    let pod = a_pod("BE", KubeQos::BestEffort, &[(annotation::EXTENDED_RESOURCE_SPEC, spec)]);
    let node = memory_node("beClass", json!({"minLimitPercent": 50, "throttlingPercent": 80}), vendor());
    assert_eq!(values(&plan_of(&node, &pod, "a")), [Some(GI / 2), Some(0), Some(1_932_734_464)]);
    assert_eq!(values(&pod_plan(&node, &pod)), [Some(GI), Some(0), None]);
    let plain = a_pod("BE", KubeQos::BestEffort, &[]);
    assert_eq!(values(&pod_plan(&node, &plain)), [Some(0), Some(0), None]);
}

#[test]
fn vendor_files_are_copied() {
    let node =
        memory_node("lsClass", json!({"priorityEnable": 1, "priority": 5, "oomKillGroup": 1}), vendor());
    let vector = [
        (Field::MemoryWmarkRatio, 95),
        (Field::MemoryWmarkScaleFactor, 20),
        (Field::MemoryWmarkMinAdj, -25),
        (Field::MemoryUsePriorityOom, 1),
        (Field::MemoryPriority, 5),
        (Field::MemoryOomGroup, 1),
    ];
    let pod = a_pod("LS", KubeQos::Burstable, &[]);
    for (field, expected) in vector {
        assert_eq!(pod_plan(&node, &pod).integer(&field), Some(expected), "{field}");
        assert_eq!(plan_of(&node, &pod, "a").integer(&field), Some(expected), "{field}");
    }
    let directory = qos_dir(&node, KubeQos::Burstable);
    assert_eq!(directory.integer(&Field::MemoryPriority), Some(5));
    assert_eq!(qos_dir(&node, KubeQos::BestEffort), Plan::default());
}

#[test]
fn on_mainline_kernels_an_adjusted_watermark_is_protection_of_the_request() {
    let node = memory_node("lsClass", json!({}), mainline_kernel());
    let mut pod = a_pod("LS", KubeQos::Burstable, &[]);
    assert_eq!(values(&pod_plan(&node, &pod)), [Some(0), Some(0), None]);
    pod.memory_request = Some(Bytes(GI));
    assert_eq!(values(&pod_plan(&node, &pod)), [Some(0), Some(GI), None]);
    // Only the pod as a whole.
    assert_eq!(values(&ls_container(&node, Some(GI), 2 * GI, &[])), [Some(0), Some(0), Some(-1)]);
    assert_eq!(pod_plan(&node, &pod).get(&Field::MemoryWmarkRatio), None);
}

#[test]
fn without_reclaim_the_watermark_of_best_effort_containers_throttles() {
    let kernel = KernelView { memory_reclaim: false, ..mainline_kernel() };
    let node = memory_node("beClass", json!({"wmarkRatio": 95}), kernel);
    let pod = a_pod("BE", KubeQos::BestEffort, &[]);
    let asked = Asked { memory_limit: Some(GI), ..Asked::default() };
    // 95 % of 1 Gi is 1020054732.8, in whole pages 1020051456.
    assert_eq!(plan_with(&node, &pod, "a", &asked).integer(&Field::MemoryHigh), Some(1_020_051_456));
    assert_eq!(plan_of(&node, &pod, "a").integer(&Field::MemoryHigh), Some(-1));
}

#[test]
fn best_effort_containers_go_as_a_whole() {
    let be = a_pod("BE", KubeQos::BestEffort, &[]);
    let group = |node: &NodeView, pod: &PodView| plan_of(node, pod, "a").integer(&Field::MemoryOomGroup);
    assert_eq!(group(&memory_node("beClass", json!({}), mainline_kernel()), &be), Some(1));
    assert_eq!(group(&memory_node("beClass", json!({}), vendor()), &be), Some(0));
    let ls = a_pod("LS", KubeQos::Burstable, &[]);
    assert_eq!(group(&memory_node("lsClass", json!({}), mainline_kernel()), &ls), Some(0));
}

#[test]
fn nothing_is_written_for_a_class_that_is_not_enabled() {
    let node = memory_node("beClass", json!({}), vendor());
    let pod = a_pod("LS", KubeQos::Burstable, &[]);
    assert_eq!(values(&pod_plan(&node, &pod)), [None; 3]);
    assert_eq!(pod_plan(&node, &pod).get(&Field::MemoryWmarkRatio), None);
    let mut off = memory_node("lsClass", json!({}), vendor());
    off.gates.set(Gate::CgroupReconcile, false);
    assert_eq!(values(&pod_plan(&off, &pod)), [None; 3]);
    assert_eq!(qos_dir(&off, KubeQos::Burstable).get(&Field::MemoryPriority), None);
}

#[test]
fn pods_choose_by_annotation() {
    let wmark = |node: &NodeView, qos: &str, text: &str| {
        let pod = a_pod(qos, usual_directory(qos), &[(annotation::MEMORY_QOS, text)]);
        let plan = plan_of(node, &pod, "a");
        [Field::MemoryWmarkRatio, Field::MemoryWmarkScaleFactor, Field::MemoryWmarkMinAdj]
            .map(|field| plan.integer(&field))
    };
    let enabled = memory_node("lsClass", json!({"wmarkRatio": 90}), vendor());
    assert_eq!(wmark(&enabled, "LS", r#"{"policy":"none"}"#), [Some(0), Some(50), Some(0)]);
    assert_eq!(wmark(&enabled, "LS", r#"{"policy":"auto"}"#), [Some(95), Some(20), Some(-25)]);
    assert_eq!(wmark(&enabled, "LS", r#"{"policy":"default"}"#), [Some(90), Some(20), Some(-25)]);
    assert_eq!(wmark(&enabled, "LS", r#"{"wmarkMinAdj":-10}"#), [Some(90), Some(20), Some(-10)]);
    let disabled = a_node(json!({}), vendor(), &[Gate::CgroupReconcile]);
    assert_eq!(
        wmark(&disabled, "BE", r#"{"policy":"auto","wmarkRatio":80}"#),
        [Some(80), Some(20), Some(50)]
    );
    assert_eq!(wmark(&disabled, "LS", r#"{"policy":"default"}"#), [None; 3]);
    let none = plan_of(
        &enabled,
        &a_pod("LS", KubeQos::Burstable, &[(annotation::MEMORY_QOS, r#"{"policy":"none"}"#)]),
        "a",
    );
    assert_eq!(values(&none), [Some(0), Some(0), Some(-1)]);
}

#[test]
fn an_unreadable_annotation_leaves_the_nodes_settings() {
    let node = memory_node("lsClass", json!({"wmarkRatio": 90}), vendor());
    let pod = a_pod("LS", KubeQos::Burstable, &[(annotation::MEMORY_QOS, "not json")]);
    let plan = plan_of(&node, &pod, "a");
    assert_eq!(plan.integer(&Field::MemoryWmarkRatio), Some(90));
    assert_eq!(plan.problems.iter().map(|problem| problem.rule).collect::<Vec<_>>(), [Rule::MemoryQos]);
}

#[test]
fn values_of_annotations_stay_within_what_the_kernel_takes() {
    let node = memory_node("lsClass", json!({}), vendor());
    let text = r#"{"minLimitPercent":500,"wmarkRatio":-3,"wmarkScalePermill":0,"wmarkMinAdj":99,"priority":77,"oomKillGroup":2}"#;
    let plan = ls_container(&node, Some(GI), 2 * GI, &[(annotation::MEMORY_QOS, text)]);
    let vector = [
        (Field::MemoryMin, GI),
        (Field::MemoryWmarkRatio, 0),
        (Field::MemoryWmarkScaleFactor, 1),
        (Field::MemoryWmarkMinAdj, 50),
        (Field::MemoryPriority, 12),
        (Field::MemoryOomGroup, 0),
    ];
    for (field, expected) in vector {
        assert_eq!(plan.integer(&field), Some(expected), "{field}");
    }
    assert_eq!(plan.problems.len(), 6);
}

#[test]
fn page_cache_limits() {
    let kernel = KernelView { page_cache_limit: true, ..vendor() };
    let fields =
        [Field::MemoryPageCacheLimitEnable, Field::MemoryPageCacheLimitSize, Field::MemoryPageCacheLimitSync];
    let vector = [
        (json!({"pageCacheLimitSize": 2 * GI}), GI, [Some(1), Some(GI), Some(0)]),
        (
            json!({"pageCacheLimitSize": 2 * GI, "pageCacheReclaimSync": true}),
            0,
            [Some(1), Some(2 * GI), Some(1)],
        ),
        (json!({"pageCacheLimitSize": 0}), GI, [Some(0), Some(0), None]),
        (json!({"pageCacheLimitPercent": 50}), GI, [Some(1), Some(GI / 2), Some(0)]),
        (json!({"pageCacheLimitPercent": 50}), 0, [None, None, None]),
        (json!({"pageCacheLimitSize": 4096, "pageCacheEnable": false}), GI, [Some(0), Some(4096), Some(0)]),
        (json!({"pageCacheEnable": true}), GI, [Some(1), None, None]),
        (json!({}), GI, [None, None, None]),
    ];
    for (values, limit, expected) in vector {
        let node = memory_node("lsClass", values.clone(), kernel.clone());
        let mut pod = a_pod("LS", KubeQos::Burstable, &[]);
        pod.asked.memory_limit = (limit > 0).then_some(limit);
        let plan = pod_plan(&node, &pod);
        assert_eq!(fields.each_ref().map(|field| plan.integer(field)), expected, "{values} {limit}");
        assert!(fields.iter().all(|field| plan_of(&node, &pod, "a").get(field).is_none()));
    }
}

#[test]
fn directories_protect_the_sum_of_their_pods() {
    let node =
        memory_node("lsClass", json!({"minLimitPercent": 100, "lowLimitPercent": 100}), mainline_kernel());
    let plan = |min: i64| Plan {
        wishes: [Field::MemoryMin, Field::MemoryLow]
            .map(|field| Wish {
                field,
                value: Value::Integer(min),
                rule: Rule::MemoryQos,
                reason: String::new(),
            })
            .into(),
        problems: vec![],
    };
    let plans =
        [(KubeQos::Guaranteed, plan(GI)), (KubeQos::Burstable, plan(2 * GI)), (KubeQos::BestEffort, plan(0))];
    let sums = memory_qos::directory_protection(plans.iter().map(|(kube_qos, plan)| (*kube_qos, plan)));
    let min = sums.map(|(kube_qos, protection)| (kube_qos, protection.min.0));
    assert_eq!(min, [(KubeQos::Guaranteed, 3 * GI), (KubeQos::Burstable, 2 * GI), (KubeQos::BestEffort, 0)]);
    let wishes = sums.map(|(_, protection)| values(&protection.plan(&node)));
    assert_eq!(wishes[0], [Some(3 * GI), Some(3 * GI), None]);
    assert_eq!(wishes[2], [Some(0), Some(0), None]);
    let off = a_node(json!({}), mainline_kernel(), &[Gate::CgroupReconcile]);
    assert_eq!(memory_qos::Protection::default().plan(&off), Plan::default());
}
