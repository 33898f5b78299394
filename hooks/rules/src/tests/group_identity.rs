use koord_crd::node_slo::HostApplication;
use koord_extension::keys::annotation;
use koord_extension::qos::KubeQos;
use serde_json::json;

use super::*;

const ALL: [&str; 3] = ["lsrClass", "lsClass", "beClass"];

fn identity(node: &NodeView, qos: &str, kube_qos: KubeQos, annotations: &[(&str, &str)]) -> Option<i64> {
    let pod = a_pod(qos, kube_qos, annotations);
    let plan = pod_plan(node, &pod);
    assert_eq!(plan.integer(&Field::CpuBvtWarpNs), plan_of(node, &pod, "a").integer(&Field::CpuBvtWarpNs));
    plan.integer(&Field::CpuBvtWarpNs)
}

#[test]
fn identities_of_pods() {
    let node = a_node(cpu_qos(&ALL), vendor_kernel(), &[]);
    for (qos, expected) in [("LSE", 2), ("LSR", 2), ("LS", 2), ("BE", -1)] {
        assert_eq!(identity(&node, qos, usual_directory(qos), &[]), Some(expected), "{qos}");
    }
    let by_directory = [
        ("SYSTEM", KubeQos::Burstable, 2),
        ("", KubeQos::BestEffort, -1),
        ("", KubeQos::Guaranteed, 2),
        ("", KubeQos::Burstable, 2),
        ("be", KubeQos::Burstable, 2),
    ];
    for (qos, kube_qos, expected) in by_directory {
        assert_eq!(identity(&node, qos, kube_qos, &[]), Some(expected), "{qos} {kube_qos:?}");
    }
}

#[test]
fn identities_of_directories() {
    let node = a_node(cpu_qos(&ALL), vendor_kernel(), &[]);
    for (kube_qos, expected) in [(KubeQos::Guaranteed, 0), (KubeQos::Burstable, 2), (KubeQos::BestEffort, -1)]
    {
        let plan = qos_dir(&node, kube_qos);
        assert_eq!(plan.integer(&Field::CpuBvtWarpNs), Some(expected), "{kube_qos:?}");
        assert_eq!(plan.get(&Field::CpuIdle), None);
    }
}

#[test]
fn a_class_that_is_not_enabled_has_identity_0() {
    let node = a_node(cpu_qos(&["beClass"]), vendor_kernel(), &[]);
    assert_eq!(identity(&node, "LS", KubeQos::Burstable, &[]), Some(0));
    assert_eq!(identity(&node, "", KubeQos::Guaranteed, &[]), Some(0));
    assert_eq!(identity(&node, "BE", KubeQos::BestEffort, &[]), Some(-1));
}

#[test]
fn an_unlabelled_guaranteed_pod_is_ls_where_lsr_is_not_enabled() {
    let policy =
        json!({"resourceQOSStrategy": {"lsClass": {"cpuQOS": {"enable": true, "groupIdentity": 1}}}});
    let node = a_node(policy, vendor_kernel(), &[]);
    assert_eq!(identity(&node, "", KubeQos::Guaranteed, &[]), Some(1));
    assert_eq!(identity(&node, "LSR", KubeQos::Guaranteed, &[]), Some(0));
}

#[test]
fn ls_pods_may_choose_their_own() {
    let node = a_node(cpu_qos(&ALL), vendor_kernel(), &[]);
    let vector = [
        ("LS", r#"{"enable":true,"groupIdentity":-1}"#, Some(-1)),
        ("LS", r#"{"groupIdentity":-1}"#, Some(0)),
        ("LS", r#"{"enable":false,"groupIdentity":-1}"#, Some(0)),
        ("LS", r#"{"enable":true}"#, Some(2)),
        ("LS", r#"{"enable":true,"groupIdentity":3}"#, None),
        ("LS", r#"{"enable":true,"groupIdentity":-2}"#, None),
        ("LS", "not json", None),
        ("BE", r#"{"enable":true,"groupIdentity":2}"#, Some(-1)),
        ("BE", "not json", Some(-1)),
    ];
    for (qos, text, expected) in vector {
        let found = identity(&node, qos, usual_directory(qos), &[(annotation::CPU_QOS, text)]);
        assert_eq!(found, expected, "{qos} {text}");
    }
    let pod = a_pod("LS", KubeQos::Burstable, &[(annotation::CPU_QOS, "not json")]);
    let problems = pod_plan(&node, &pod).problems;
    assert_eq!(problems.iter().map(|problem| problem.rule).collect::<Vec<_>>(), [Rule::GroupIdentity]);
}

#[test]
fn another_policy_or_no_class_means_identity_0_everywhere() {
    let mut policy = cpu_qos(&ALL);
    policy["resourceQOSStrategy"]["policies"] = json!({"cpuPolicy": "coreSched"});
    for node in [a_node(policy, vendor_kernel(), &[]), a_node(json!({}), vendor_kernel(), &[])] {
        for qos in ["LSE", "LSR", "LS", "BE", "SYSTEM", ""] {
            let own = [(annotation::CPU_QOS, r#"{"enable":true,"groupIdentity":-1}"#)];
            assert_eq!(identity(&node, qos, usual_directory(qos), &own), Some(0), "{qos}");
        }
        for kube_qos in KubeQos::ALL {
            assert_eq!(qos_dir(&node, kube_qos).integer(&Field::CpuBvtWarpNs), Some(0));
        }
    }
}

#[test]
fn zeros_are_not_written_where_the_kernel_does_not_heed_them() {
    let kernel = KernelView { group_identity_switch: Some(false), ..vendor_kernel() };
    let node = a_node(json!({}), kernel.clone(), &[]);
    assert_eq!(identity(&node, "BE", KubeQos::BestEffort, &[]), None);
    assert_eq!(qos_dir(&node, KubeQos::BestEffort), Plan::default());
    let node = a_node(cpu_qos(&ALL), kernel, &[]);
    assert_eq!(identity(&node, "BE", KubeQos::BestEffort, &[]), Some(-1));
}

#[test]
fn the_gate_switches_the_rule_off() {
    let mut node = a_node(cpu_qos(&ALL), vendor_kernel(), &[]);
    node.gates.set(Gate::GroupIdentity, false);
    assert_eq!(identity(&node, "BE", KubeQos::BestEffort, &[]), None);
    assert_eq!(qos_dir(&node, KubeQos::BestEffort), Plan::default());
}

/// What a BE pod in its own directory, a BE pod among burstable ones, an LS pod and the best-effort directory
/// get.
fn yielding(node: &NodeView, field: &Field) -> [Option<i64>; 4] {
    let of = |qos, kube_qos| pod_plan(node, &a_pod(qos, kube_qos, &[])).integer(field);
    [
        of("BE", KubeQos::BestEffort),
        of("BE", KubeQos::Burstable),
        of("LS", KubeQos::Burstable),
        qos_dir(node, KubeQos::BestEffort).integer(field),
    ]
}

#[test]
fn mainline_kernels_have_idle_pods() {
    let node = a_node(cpu_qos(&ALL), mainline_kernel(), &[]);
    assert_eq!(yielding(&node, &Field::CpuIdle), [Some(1), Some(1), None, None]);
    assert_eq!(yielding(&node, &Field::CpuBvtWarpNs), [None; 4]);
    assert_eq!(yielding(&node, &Field::CpuShares), [None; 4]);
    let pod = a_pod("BE", KubeQos::BestEffort, &[]);
    assert_eq!(plan_of(&node, &pod, "a").get(&Field::CpuIdle), None);
    let wish = pod_plan(&node, &pod).get(&Field::CpuIdle).cloned().unwrap();
    assert_eq!(wish.rule, Rule::GroupIdentity);
    assert_eq!(wish.reason, "BE pods have identity -1: cpu.idle 1 on this kernel");
}

#[test]
fn the_best_effort_directory_is_idle_only_where_systemd_does_it_or_somebody_insists() {
    let kernel = KernelView { systemd_idle_weight: true, ..mainline_kernel() };
    let mut node = a_node(cpu_qos(&ALL), kernel, &[]);
    assert_eq!(yielding(&node, &Field::CpuIdle), [None, Some(1), None, Some(1)]);
    node.options.be_idle_scope = BeIdleScope::Pod;
    assert_eq!(yielding(&node, &Field::CpuIdle), [Some(1), Some(1), None, None]);
    node.kernel.systemd_idle_weight = false;
    node.options.be_idle_scope = BeIdleScope::Qos;
    assert_eq!(yielding(&node, &Field::CpuIdle), [None, Some(1), None, Some(1)]);
    for kube_qos in [KubeQos::Guaranteed, KubeQos::Burstable] {
        assert_eq!(qos_dir(&node, kube_qos).get(&Field::CpuIdle), None);
    }
}

#[test]
fn backends_by_kernel_and_choice() {
    use crate::group_identity::{Mechanism, mechanism};
    use CpuQosBackend::*;
    let bare = || KernelView::bare(CgroupVersion::V2);
    let idle = || KernelView { cpu_idle: true, ..bare() };
    let vector = [
        (vendor_kernel(), Auto, BeIdleScope::Auto, Mechanism::Bvt),
        (vendor_kernel(), Idle, BeIdleScope::Auto, Mechanism::IdlePods),
        (idle(), Auto, BeIdleScope::Auto, Mechanism::IdlePods),
        (idle(), Auto, BeIdleScope::Off, Mechanism::Weight),
        (idle(), Idle, BeIdleScope::Off, Mechanism::Nothing),
        (idle(), Bvt, BeIdleScope::Auto, Mechanism::Nothing),
        (idle(), Weight, BeIdleScope::Auto, Mechanism::Weight),
        (idle(), Off, BeIdleScope::Qos, Mechanism::Nothing),
        (bare(), Auto, BeIdleScope::Qos, Mechanism::Weight),
        (bare(), Idle, BeIdleScope::Qos, Mechanism::Nothing),
    ];
    for (kernel, backend, scope, expected) in vector {
        let mut node = a_node(cpu_qos(&ALL), kernel, &[]);
        node.options.cpu_qos_backend = backend;
        node.options.be_idle_scope = scope;
        assert_eq!(mechanism(&node).0, expected, "{backend:?} {scope:?}");
        assert_eq!(node_plan(&node).backends[0].backend, expected.as_str());
        if expected == Mechanism::Nothing {
            assert_eq!(pod_plan(&node, &a_pod("BE", KubeQos::BestEffort, &[])).wishes, []);
        }
    }
}

#[test]
fn the_weight_backend_gives_the_least_shares_to_pods_without_batch_resources() {
    let mut node = a_node(cpu_qos(&ALL), KernelView::bare(CgroupVersion::V1), &[]);
    assert_eq!(yielding(&node, &Field::CpuShares), [Some(2), Some(2), None, None]);
    let spec = r#"{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}}"#;
    let pod = a_pod("BE", KubeQos::BestEffort, &[(annotation::EXTENDED_RESOURCE_SPEC, spec)]);
    let plan = pod_plan(&node, &pod);
    assert_eq!(plan.integer(&Field::CpuShares), Some(1024));
    assert_eq!(plan.get(&Field::CpuShares).unwrap().rule, Rule::BatchResource);
    // An idle pod keeps the wish for its shares: the writer knows in which order they go.
    node.kernel.cpu_idle = true;
    let plan = pod_plan(&node, &pod);
    assert_eq!((plan.integer(&Field::CpuShares), plan.integer(&Field::CpuIdle)), (Some(1024), Some(1)));
}

#[test]
fn without_a_policy_a_mainline_kernel_is_left_alone() {
    let node = a_node(json!({}), mainline_kernel(), &[]);
    for qos in ["LSE", "LSR", "LS", "SYSTEM", ""] {
        let pod = a_pod(qos, usual_directory(qos), &[]);
        assert_eq!(pod_plan(&node, &pod), Plan::default(), "{qos}");
        assert_eq!(plan_of(&node, &pod, "a"), Plan::default(), "{qos}");
    }
    for kube_qos in KubeQos::ALL {
        assert_eq!(qos_dir(&node, kube_qos), Plan::default());
    }
}

fn application(qos: &str) -> HostApplication {
    HostApplication { name: "app".to_owned(), qos: qos.to_owned(), ..HostApplication::default() }
}

#[test]
fn applications_of_the_host() {
    let mut node = a_node(cpu_qos(&ALL), vendor_kernel(), &[]);
    node.pools.ls = vec![Pool { numa_node: 0, cpus: cpus("0-3") }];
    let vector = [
        ("LSE", Some(2), None),
        ("LSR", Some(2), None),
        ("LS", Some(2), Some(cpus("0-3"))),
        ("BE", Some(-1), None),
        ("SYSTEM", Some(0), None),
        ("", Some(0), None),
    ];
    for (qos, identity, shared) in vector {
        let plan = host_application(&node, &application(qos));
        assert_eq!(plan.integer(&Field::CpuBvtWarpNs), identity, "{qos}");
        assert_eq!(wished_cpus(&plan), shared, "{qos}");
        assert!(plan.wishes.iter().all(|wish| wish.rule.may_own(&wish.field, Level::HostApplication)));
    }
    node.kernel = mainline_kernel();
    assert_eq!(host_application(&node, &application("BE")).integer(&Field::CpuIdle), Some(1));
    assert_eq!(host_application(&node, &application("LSR")), Plan::default());
    node.gates = node.gates.without(Gate::GroupIdentity).without(Gate::CpuSetAllocator);
    for qos in ["LS", "BE"] {
        assert_eq!(host_application(&node, &application(qos)), Plan::default());
    }
}

#[test]
fn switches_of_the_kernel_in_order() {
    let switches = |policy: &Json, identity: Option<bool>, core: Option<bool>| -> Vec<(&'static str, bool)> {
        let kernel = KernelView {
            group_identity: true,
            group_identity_switch: identity,
            core_scheduling_switch: core,
            ..mainline_kernel()
        };
        let plan = node_plan(&a_node(policy.clone(), kernel, &[Gate::CoreSched]));
        plan.switches.iter().map(|switch| (switch.name, switch.on)).collect()
    };
    let identity = cpu_qos(&ALL);
    let mut cookies = identity.clone();
    cookies["resourceQOSStrategy"]["policies"] = json!({"cpuPolicy": "coreSched"});
    let (by_identity, by_core) = ("sched_group_identity_enabled", "sched_core");
    let on = Some(true);
    assert_eq!(switches(&identity, on, on), [(by_core, false), (by_identity, true)]);
    assert_eq!(switches(&identity, Some(false), None), [(by_identity, true)]);
    assert_eq!(switches(&identity, None, on), []);
    assert_eq!(switches(&cookies, on, on), [(by_identity, false), (by_core, true)]);
    assert_eq!(switches(&cookies, None, Some(false)), [(by_core, true)]);
    assert_eq!(switches(&cookies, on, None), []);
    assert_eq!(switches(&json!({}), on, on), []);
}
