use koord_extension::keys::annotation;
use koord_extension::qos::KubeQos;
use serde_json::json;

use super::*;

fn pools(pairs: [(i64, &str); 2]) -> Vec<Pool> {
    pairs.map(|(numa_node, text)| Pool { numa_node, cpus: cpus(text) }).into()
}

/// Two NUMA nodes; a kubelet without a CPU policy.
fn two_nodes() -> NodeView {
    let mut node = a_node(json!({}), KernelView::bare(CgroupVersion::V1), &[]);
    node.pools = SharePools { ls: pools([(0, "0-7"), (1, "8-15")]), be: pools([(0, "0-7"), (1, "8-13")]) };
    node.kubelet_cpu_policy = Some(KubeletCpuPolicy::None);
    node
}

fn status(text: &str) -> [(&str, &str); 1] {
    [(annotation::RESOURCE_STATUS, text)]
}

/// CPUs of a container: as asked, cleared (""), or these.
fn decided(node: &NodeView, qos: &str, kube_qos: KubeQos, status_text: Option<&str>) -> Option<CpuSet> {
    let annotations = status_text.map(status);
    let pod = a_pod(qos, kube_qos, annotations.as_ref().map_or(&[], |pairs| pairs.as_slice()));
    let plan = plan_of(node, &pod, "a");
    let asked = Asked::default();
    let sandbox = ContainerView { name: "", asked: &asked, memory_request: None, is_sandbox: true };
    assert_eq!(wished_cpus(&plan), wished_cpus(&container(node, &pod, &sandbox)));
    wished_cpus(&plan)
}

#[test]
fn owned_cpus_come_first_and_need_no_quota() {
    let node = two_nodes();
    for (qos, kube_qos) in
        [("LSE", KubeQos::Guaranteed), ("LSR", KubeQos::Guaranteed), ("LS", KubeQos::Burstable)]
    {
        assert_eq!(decided(&node, qos, kube_qos, Some(r#"{"cpuset":"2-3"}"#)), Some(cpus("2-3")), "{qos}");
        let pod = a_pod(qos, kube_qos, &status(r#"{"cpuset":"2-3"}"#));
        let plan = plan_of(&node, &pod, "a");
        assert_eq!(plan.integer(&Field::CpuQuota), Some(-1));
        assert_eq!(plan.get(&Field::CpuQuota).unwrap().rule, Rule::CpusetAllocator);
        assert_eq!(plan.get(&Field::CpuQuota).unwrap().reason, "the 2 CPUs of the pod are its limit");
        assert_eq!(plan.get(&Field::CpusetCpus).unwrap().reason, "the scheduler gave the pod 2 CPUs");
        assert_eq!(pod_plan(&node, &pod).integer(&Field::CpuQuota), Some(-1));
    }
}

#[test]
fn ls_pods_share_all_pools() {
    assert_eq!(decided(&two_nodes(), "LS", KubeQos::Burstable, None), Some(cpus("0-7,8-15")));
    assert_eq!(decided(&two_nodes(), "LS", KubeQos::Guaranteed, Some("{}")), Some(cpus("0-15")));
    let pod = a_pod("LS", KubeQos::Burstable, &[]);
    assert_eq!(plan_of(&two_nodes(), &pod, "a").get(&Field::CpuQuota), None);
}

#[test]
fn numa_nodes_with_cpu_confine_a_pod() {
    let node = two_nodes();
    let on = |numa: i64, resources: &str| {
        format!(r#"{{"numaNodeResources":[{{"node":{numa},"resources":{resources}}}]}}"#)
    };
    let vector = [
        (on(1, r#"{"cpu":"4"}"#), "8-15"),
        (on(0, r#"{"cpu":"4"}"#), "0-7"),
        (on(0, r#"{"hugepages-2Mi":"4Mi"}"#), "0-15"),
        (on(0, r#"{"cpu":"0"}"#), "0-15"),
        (on(1, r#"{"kubernetes.io/batch-cpu":"1k"}"#), "8-15"),
    ];
    for (text, expected) in vector {
        assert_eq!(decided(&node, "LS", KubeQos::Burstable, Some(&text)), Some(cpus(expected)), "{text}");
    }
    let both =
        r#"{"numaNodeResources":[{"node":1,"resources":{"cpu":"4"}},{"node":0,"resources":{"cpu":"4"}}]}"#;
    assert_eq!(decided(&node, "LS", KubeQos::Burstable, Some(both)), Some(cpus("0-15")));
    assert_eq!(decided(&node, "", KubeQos::Burstable, Some(&on(1, r#"{"cpu":"4"}"#))), Some(cpus("8-15")));
}

#[test]
fn best_effort_pods_are_confined_only_with_the_gate() {
    let text = r#"{"numaNodeResources":[{"node":1,"resources":{"kubernetes.io/batch-cpu":"1000"}}]}"#;
    let mut node = two_nodes();
    assert_eq!(decided(&node, "BE", KubeQos::BestEffort, Some(text)), Some(cpus("")));
    node.gates.set(Gate::BeCpuManager, true);
    assert_eq!(decided(&node, "BE", KubeQos::BestEffort, Some(text)), Some(cpus("8-13")));
    assert_eq!(decided(&node, "BE", KubeQos::BestEffort, None), Some(cpus("")));
}

#[test]
fn pods_without_a_class_follow_the_kubelet() {
    let mut node = two_nodes();
    assert_eq!(decided(&node, "", KubeQos::Burstable, None), Some(cpus("0-7,8-15")));
    assert_eq!(decided(&node, "LSR", KubeQos::Guaranteed, None), Some(cpus("0-15")));
    assert_eq!(decided(&node, "", KubeQos::BestEffort, None), Some(cpus("")));
    node.kubelet_cpu_policy = Some(KubeletCpuPolicy::Static);
    assert_eq!(decided(&node, "", KubeQos::Burstable, None), None);
    assert_eq!(decided(&node, "", KubeQos::BestEffort, None), Some(cpus("")));
    assert_eq!(decided(&node, "LS", KubeQos::Burstable, None), Some(cpus("0-15")));
    node.kubelet_cpu_policy = None;
    assert_eq!(decided(&node, "", KubeQos::Burstable, None), None);
}

#[test]
fn system_pods_have_the_system_cpus() {
    let mut node = two_nodes();
    assert_eq!(decided(&node, "SYSTEM", KubeQos::Burstable, None), Some(cpus("0-7,8-15")));
    node.system_cpuset = Some(cpus(""));
    assert_eq!(decided(&node, "SYSTEM", KubeQos::Burstable, None), Some(cpus("0-15")));
    node.system_cpuset = Some(cpus("0-1"));
    assert_eq!(decided(&node, "SYSTEM", KubeQos::Burstable, None), Some(cpus("0-1")));
    assert_eq!(decided(&node, "SYSTEM", KubeQos::BestEffort, None), Some(cpus("0-1")));
}

#[test]
fn an_unreadable_answer_of_the_scheduler_leaves_cpus_and_quota() {
    let node = two_nodes();
    for text in ["not json", r#"{"cpuset":7}"#, r#"{"cpuset":"3-"}"#] {
        for qos in ["LSR", "LS", "BE"] {
            let pod = a_pod(qos, usual_directory(qos), &status(text));
            let plan = plan_of(&node, &pod, "a");
            assert_eq!(plan.get(&Field::CpusetCpus), None, "{text}");
            assert_eq!(plan.get(&Field::CpuQuota), None, "{text}");
            assert_eq!(plan.problems[0].rule, Rule::CpusetAllocator);
            assert!(plan.problems[0].message.contains(annotation::RESOURCE_STATUS), "{:?}", plan.problems);
            assert_eq!(pod_plan(&node, &pod).problems[0].rule, Rule::CpusetAllocator);
        }
    }
}

#[test]
fn used_up_pools_never_mean_every_cpu() {
    let mut node = two_nodes();
    node.pools.ls = pools([(0, ""), (1, "")]);
    let plan = plan_of(&node, &a_pod("LS", KubeQos::Burstable, &[]), "a");
    assert_eq!(plan.get(&Field::CpusetCpus), None);
    assert_eq!(plan.problems.len(), 1);
    let numa = status(r#"{"numaNodeResources":[{"node":7,"resources":{"cpu":"4"}}]}"#);
    let plan = plan_of(&two_nodes(), &a_pod("LS", KubeQos::Burstable, &numa), "a");
    assert_eq!(plan.get(&Field::CpusetCpus), None);
    assert!(plan.problems[0].message.contains("NUMA node 7"), "{:?}", plan.problems);
}

#[test]
fn without_pools_nothing_is_decided_from_them() {
    let mut node = two_nodes();
    node.pools = SharePools::default();
    assert_eq!(decided(&node, "LS", KubeQos::Burstable, None), None);
    assert_eq!(decided(&node, "", KubeQos::Burstable, None), None);
    let numa = r#"{"numaNodeResources":[{"node":1,"resources":{"cpu":"4"}}]}"#;
    assert_eq!(decided(&node, "LS", KubeQos::Burstable, Some(numa)), None);
    assert_eq!(decided(&node, "LSR", KubeQos::Guaranteed, Some(r#"{"cpuset":"2"}"#)), Some(cpus("2")));
}

#[test]
fn quota_of_pods_with_cpus_by_choice() {
    let pod_quota =
        |quota: i64| Asked { cpu_quota: Some(quota), cpu_period: Some(100_000), ..Asked::default() };
    let vector = [
        // (choice, quota of the pod, of the container) -> (pod, container)
        (CpusetQuota::Unset, 300_000, 200_000, (Some(-1), Some(-1))),
        (CpusetQuota::Keep, 300_000, 200_000, (None, None)),
        (CpusetQuota::Auto, 300_000, 200_000, (Some(-1), None)),
        (CpusetQuota::Auto, 200_000, 200_000, (Some(-1), Some(-1))),
        (CpusetQuota::Auto, -1, 200_000, (Some(-1), Some(-1))),
        (CpusetQuota::Auto, 300_000, -1, (Some(-1), Some(-1))),
    ];
    for (choice, of_pod, of_container, expected) in vector {
        let mut node = two_nodes();
        node.options.cpuset_quota = choice;
        let mut pod = a_pod("LSR", KubeQos::Guaranteed, &status(r#"{"cpuset":"2-4"}"#));
        pod.asked = pod_quota(of_pod);
        let plan = plan_with(&node, &pod, "a", &pod_quota(of_container));
        let found = (pod_plan(&node, &pod).integer(&Field::CpuQuota), plan.integer(&Field::CpuQuota));
        assert_eq!(found, expected, "{choice:?} {of_pod} {of_container}");
        assert_eq!(wished_cpus(&plan), Some(cpus("2-4")));
    }
}

#[test]
fn the_gate_switches_the_rule_off() {
    let mut node = two_nodes();
    node.gates.set(Gate::CpuSetAllocator, false);
    let pod = a_pod("LSR", KubeQos::Guaranteed, &status(r#"{"cpuset":"2-4"}"#));
    assert_eq!((pod_plan(&node, &pod), plan_of(&node, &pod, "a")), (Plan::default(), Plan::default()));
}

#[test]
fn two_givers_of_cpus_are_reported() {
    let mut node = two_nodes();
    assert_eq!(node_plan(&node).problems, []);
    node.kubelet_cpu_policy = Some(KubeletCpuPolicy::Static);
    assert_eq!(node_plan(&node).problems.len(), 1);
}
