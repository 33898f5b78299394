use koord_extension::keys::label;
use koord_extension::qos::KubeQos;
use serde_json::json;

use super::*;
use crate::core_sched::{Decision, decide};

fn policy() -> Json {
    let mut policy = cpu_qos(&["lsrClass", "lsClass"]);
    policy["resourceQOSStrategy"]["policies"] = json!({"cpuPolicy": "coreSched"});
    policy
}

fn kernel() -> KernelView {
    KernelView { core_scheduling: true, smt_active: true, ..mainline_kernel() }
}

fn core_node() -> NodeView {
    a_node(policy(), kernel(), &[Gate::CoreSched])
}

fn labelled(qos: &str, labels: &[(&str, &str)]) -> PodView {
    let mut pod = a_pod(qos, usual_directory(qos), &[]);
    pod.labels.extend(map(labels));
    pod
}

fn decision(node: &NodeView, pod: &PodView) -> Decision {
    decide(node, pod, &PodFacts::new(pod))
}

#[test]
fn groups_of_pods() {
    let group = |text: &str| Decision::Group(text.to_owned());
    let vector = [
        ("LS", vec![(label::CORE_SCHED_GROUP_ID, "g")], group("g-expeller")),
        ("LS", vec![], group("-expeller")),
        ("LS", vec![(label::CORE_SCHED_POLICY, "exclusive")], group("u-1-expeller")),
        ("LS", vec![(label::CORE_SCHED_POLICY, "none")], Decision::Cleared),
        (
            "LS",
            vec![(label::CORE_SCHED_POLICY, "other"), (label::CORE_SCHED_GROUP_ID, "g")],
            group("g-expeller"),
        ),
        ("LSR", vec![(label::CORE_SCHED_GROUP_ID, "g")], group("g-expeller")),
        ("", vec![(label::CORE_SCHED_GROUP_ID, "g")], group("g-expeller")),
        ("BE", vec![(label::CORE_SCHED_GROUP_ID, "g")], Decision::Cleared),
        ("SYSTEM", vec![(label::CORE_SCHED_GROUP_ID, "g")], Decision::Untouched),
    ];
    for (qos, labels, expected) in vector {
        assert_eq!(decision(&core_node(), &labelled(qos, &labels)), expected, "{qos} {labels:?}");
    }
}

#[test]
fn a_class_that_expels_nobody_has_the_bare_group() {
    let mut policy = policy();
    policy["resourceQOSStrategy"]["lsClass"]["cpuQOS"]["coreExpeller"] = json!(false);
    let node = a_node(policy, kernel(), &[Gate::CoreSched]);
    let exclusive = labelled("LS", &[(label::CORE_SCHED_POLICY, "exclusive")]);
    assert_eq!(decision(&node, &exclusive), Decision::Group("u-1".to_owned()));
    assert_eq!(decision(&node, &labelled("LS", &[])), Decision::Group(String::new()));
}

#[test]
fn wishes_for_cookies() {
    let plan = plan_of(&core_node(), &labelled("LS", &[(label::CORE_SCHED_GROUP_ID, "g")]), "a");
    assert_eq!(plan.get(&Field::CoreSchedGroup).unwrap().value, Value::Text("g-expeller".to_owned()));
    let plan = plan_of(&core_node(), &labelled("BE", &[]), "a");
    assert_eq!(plan.get(&Field::CoreSchedGroup).unwrap().value, Value::Unset);
    let plan = plan_of(&core_node(), &labelled("SYSTEM", &[]), "a");
    assert_eq!(plan.get(&Field::CoreSchedGroup), None);
}

#[test]
fn cookies_need_policy_gate_kernel_and_threads() {
    let pod = labelled("LS", &[]);
    let group = |node: &NodeView| plan_of(node, &pod, "a").get(&Field::CoreSchedGroup).is_some();
    assert!(group(&core_node()));
    assert!(!group(&a_node(policy(), kernel(), &[])));
    assert!(!group(&a_node(cpu_qos(&["lsClass"]), kernel(), &[Gate::CoreSched])));
    assert!(!group(&a_node(policy(), KernelView { smt_active: false, ..kernel() }, &[Gate::CoreSched])));
    assert!(!group(&a_node(policy(), KernelView { core_scheduling: false, ..kernel() }, &[Gate::CoreSched])));
}

#[test]
fn cookies_and_group_identity_never_meet() {
    let vector =
        [(Some(true), false, true), (Some(false), true, false), (None, true, true), (None, false, false)];
    for (switch, in_use, refused) in vector {
        let kernel =
            KernelView { group_identity_switch: switch, negative_identity_in_use: in_use, ..kernel() };
        let plan = plan_of(&a_node(policy(), kernel, &[Gate::CoreSched]), &labelled("LS", &[]), "a");
        assert_eq!(plan.get(&Field::CoreSchedGroup).is_none(), refused, "{switch:?} {in_use}");
        assert_eq!(plan.problems.len(), usize::from(refused), "{switch:?} {in_use}");
    }
}

#[test]
fn idle_classes() {
    let mut policy = policy();
    policy["resourceQOSStrategy"]["beClass"] = json!({"cpuQOS": {"enable": true, "schedIdle": 1}});
    let mut node = a_node(policy, KernelView { systemd_idle_weight: true, ..kernel() }, &[Gate::CoreSched]);
    let directories =
        |node: &NodeView| KubeQos::ALL.map(|kube_qos| qos_dir(node, kube_qos).integer(&Field::CpuIdle));
    assert_eq!(directories(&node), [Some(0), Some(0), Some(1)]);
    assert_eq!(pod_plan(&node, &labelled("BE", &[])).integer(&Field::CpuIdle), None);
    // A directory that systemd knows nothing of is left alone: the kubelet could not start.
    node.kernel.systemd_idle_weight = false;
    assert_eq!(directories(&node), [None; 3]);
    assert_eq!(pod_plan(&node, &labelled("BE", &[])).integer(&Field::CpuIdle), Some(1));
    assert_eq!(pod_plan(&node, &labelled("LS", &[])).integer(&Field::CpuIdle), None);
}
