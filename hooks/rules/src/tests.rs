//! Tests of the rules together, with the values that Koordinator's rules give.

mod batch_resource;
mod core_sched;
mod cpuset;
mod device;
mod group_identity;
mod memory;
mod misc;
mod properties;

use std::collections::BTreeMap;

use koord_crd::node_slo::NodeSloSpec;
use koord_extension::cpuset::CpuSet;
use koord_extension::gates::{Gate, Gates};
use koord_extension::keys::label;
use koord_extension::qos::KubeQos;
use serde_json::{Value as Json, json};

use crate::*;

/// Labels or annotations from pairs.
fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A pod of a class (or none, "") with annotations.
fn a_pod(qos: &str, kube_qos: KubeQos, annotations: &[(&str, &str)]) -> PodView {
    let labels = if qos.is_empty() { BTreeMap::new() } else { map(&[(label::QOS_CLASS, qos)]) };
    PodView {
        namespace: "default".to_owned(),
        name: "pod".to_owned(),
        uid: "u-1".to_owned(),
        labels,
        annotations: map(annotations),
        cgroup_parent: "/kubepods/podu-1".to_owned(),
        kube_qos,
        asked: Asked::default(),
        memory_request: None,
    }
}

/// The directory that a class of pods lies in as a rule.
fn usual_directory(qos: &str) -> KubeQos {
    match qos {
        "LSE" | "LSR" => KubeQos::Guaranteed,
        "BE" => KubeQos::BestEffort,
        _ => KubeQos::Burstable,
    }
}

/// A node with a policy in the form of NodeSLO's spec, on a kernel, with gates beside the default ones.
fn a_node(policy: Json, kernel: KernelView, gates: &[Gate]) -> NodeView {
    let slo = NodeSloSpec::check(&policy).expect("a valid policy").effective();
    let mut all = Gates::default();
    for gate in gates {
        all.set(*gate, true);
    }
    NodeView::new(slo, all, kernel)
}

/// CPU QoS enabled for classes, with the default values.
fn cpu_qos(classes: &[&str]) -> Json {
    let mut strategy = json!({});
    for class in classes {
        strategy[*class] = json!({"cpuQOS": {"enable": true}});
    }
    json!({"resourceQOSStrategy": strategy})
}

/// A kernel of a vendor on v1.
fn vendor_kernel() -> KernelView {
    KernelView { group_identity: true, cpu_idle: true, ..KernelView::bare(CgroupVersion::V1) }
}

/// A mainline kernel of 6.12 on v2.
fn mainline_kernel() -> KernelView {
    KernelView {
        cpu_idle: true,
        cpu_burst: true,
        memory_protection: true,
        memory_high: true,
        memory_reclaim: true,
        memory_oom_group: true,
        io_max: true,
        io_weight: true,
        io_latency: true,
        io_cost: true,
        ..KernelView::bare(CgroupVersion::V2)
    }
}

/// The plan for a pod.
fn pod_plan(node: &NodeView, pod: &PodView) -> Plan {
    crate::pod(node, pod)
}

/// The plan for the node itself.
fn node_plan(node: &NodeView) -> NodePlan {
    crate::node(node)
}

/// The plan for a container with a name that asks for nothing.
fn plan_of(node: &NodeView, pod: &PodView, name: &str) -> Plan {
    plan_with(node, pod, name, &Asked::default())
}

fn plan_with(node: &NodeView, pod: &PodView, name: &str, asked: &Asked) -> Plan {
    container(node, pod, &ContainerView { name, asked, memory_request: None, is_sandbox: false })
}

/// The CPUs wished, if any; the empty set clears.
fn wished_cpus(plan: &Plan) -> Option<CpuSet> {
    match &plan.get(&Field::CpusetCpus)?.value {
        Value::Cpus(cpus) => Some(cpus.clone()),
        other => panic!("{other:?} is no set of CPUs"),
    }
}

fn cpus(text: &str) -> CpuSet {
    CpuSet::parse(text).expect("a list of CPUs")
}

fn text_of(plan: &Plan, field: &Field) -> Option<String> {
    plan.get(field).map(|wish| wish.value.to_string())
}
