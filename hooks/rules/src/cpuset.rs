//! CPUSetAllocator: which CPUs a container runs on, and that a pod with CPUs of its own has no quota.

use std::borrow::Cow;

use koord_extension::cpuset::CpuSet;
use koord_extension::gates::Gate;
use koord_extension::qos::{KubeQos, QosClass};

use crate::cpu::UNLIMITED;
use crate::facts::{PodFacts, known};
use crate::field::Field;
use crate::plan::{Plan, Problem, Rule, Severity, Value};
use crate::view::{Asked, CpusetQuota, KubeletCpuPolicy, NodeView, PodView, Pool};

const RULE: Rule = Rule::CpusetAllocator;

/// What is decided about a container's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// These CPUs; the empty set clears what the kubelet asked.
    Cpus(CpuSet, String),
    /// As the kubelet asked.
    Untouched,
    /// As the kubelet asked, although the rule has an opinion: why.
    Impossible(String),
}

fn union(pools: &[Pool], wanted: impl Fn(&Pool) -> bool) -> CpuSet {
    let mut sets = pools.iter().filter(|pool| wanted(pool)).map(|pool| Cow::Borrowed(&pool.cpus));
    let Some(first) = sets.next() else { return CpuSet::default() };
    sets.fold(first, |all, next| Cow::Owned(all.union(&next))).into_owned()
}

/// All LS pools, for a kind of pod.
fn all_shared(node: &NodeView, who: &str) -> Decision {
    if node.pools.ls.is_empty() {
        return Decision::Untouched;
    }
    let cpus = union(&node.pools.ls, |_| true);
    if cpus.is_empty() {
        // An empty set would let the container onto CPUs that others own.
        return Decision::Impossible("the shared CPUs of LS pods are used up; CPUs left as asked".to_owned());
    }
    let reason = format!("{who} on the {} shared CPUs", cpus.len());
    Decision::Cpus(cpus, reason)
}

/// Decides on the CPUs of the containers of a pod; the first that applies counts.
///
/// # Errors
///
/// The scheduler's answer on the pod cannot be read: the CPUs stay as they are.
pub fn decide(node: &NodeView, facts: &PodFacts) -> Result<Decision, String> {
    let placement = facts.placement.as_ref().map_err(ToString::to_string)?.as_deref();
    if let Some(placement) = placement {
        if !placement.cpus.is_empty() {
            let reason = format!("the scheduler gave the pod {} CPUs", placement.cpus.len());
            return Ok(Decision::Cpus(placement.cpus.clone(), reason));
        }
        if let Some(decision) = on_numa_nodes(node, facts.qos(), &placement.numa_nodes) {
            return Ok(decision);
        }
    }
    if facts.qos() == Some(QosClass::System)
        && let Some(cpus) = node.system_cpuset.as_ref().filter(|cpus| !cpus.is_empty())
    {
        return Ok(Decision::Cpus(cpus.clone(), "SYSTEM pods run on the system CPUs".to_owned()));
    }
    if facts.qos() == Some(QosClass::Ls) {
        return Ok(all_shared(node, "LS pods run"));
    }
    if facts.kube_qos() == KubeQos::BestEffort {
        let reason = "best-effort pods run where their directory may; no CPUs of their own".to_owned();
        return Ok(Decision::Cpus(CpuSet::default(), reason));
    }
    match node.kubelet_cpu_policy {
        // The kubelet decides, or it is not known who does.
        Some(KubeletCpuPolicy::Static) | None => Ok(Decision::Untouched),
        Some(KubeletCpuPolicy::None) => Ok(all_shared(node, "pods without CPUs of their own run")),
    }
}

/// Of a pod that the scheduler placed on NUMA nodes: the pools there.
fn on_numa_nodes(node: &NodeView, qos: Option<QosClass>, numa_nodes: &[i64]) -> Option<Decision> {
    let best_effort = qos == Some(QosClass::Be);
    if numa_nodes.is_empty() || (best_effort && !node.gates.enabled(Gate::BeCpuManager)) {
        return None;
    }
    let (pools, name) = if best_effort { (&node.pools.be, "BE") } else { (&node.pools.ls, "LS") };
    if pools.is_empty() {
        return Some(Decision::Untouched);
    }
    let cpus = union(pools, |pool| numa_nodes.contains(&pool.numa_node));
    let nodes = numa_nodes.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    if cpus.is_empty() {
        let message =
            format!("the scheduler chose NUMA node {nodes}, which has no shared CPUs for {name} pods");
        return Some(Decision::Impossible(message));
    }
    let reason =
        format!("the scheduler chose NUMA node {nodes}, with {} shared CPUs for {name} pods", cpus.len());
    Some(Decision::Cpus(cpus, reason))
}

/// Whether the pod owns CPUs by the scheduler's answer, with their number.
pub(crate) fn owned_cpus(facts: &PodFacts) -> Option<usize> {
    let placement = facts.placement.as_ref().ok()?.as_deref()?;
    (!placement.cpus.is_empty()).then(|| placement.cpus.len())
}

pub(crate) fn pod(node: &NodeView, facts: &PodFacts, plan: &mut Plan) {
    if !node.gates.enabled(Gate::CpuSetAllocator) || known(&facts.placement, RULE, plan).is_none() {
        return;
    }
    if let Some(cpus) = owned_cpus(facts)
        && node.options.cpuset_quota != CpusetQuota::Keep
    {
        plan.number(RULE, Field::CpuQuota, UNLIMITED, || format!("the {cpus} CPUs of the pod are its limit"));
    }
}

pub(crate) fn container(node: &NodeView, pod: &PodView, facts: &PodFacts, asked: &Asked, plan: &mut Plan) {
    if !node.gates.enabled(Gate::CpuSetAllocator) {
        return;
    }
    match decide(node, facts) {
        Ok(Decision::Cpus(cpus, reason)) => plan.wish(RULE, Field::CpusetCpus, Value::Cpus(cpus), || reason),
        Ok(Decision::Untouched) => {}
        Ok(Decision::Impossible(message)) => plan.problem(RULE, message),
        Err(message) => return plan.problem(RULE, message),
    }
    let Some(cpus) = owned_cpus(facts) else { return };
    match node.options.cpuset_quota {
        CpusetQuota::Keep => {}
        CpusetQuota::Auto if others_have_limits(pod, asked) => {}
        CpusetQuota::Auto | CpusetQuota::Unset => {
            plan.number(RULE, Field::CpuQuota, UNLIMITED, || {
                format!("the {cpus} CPUs of the pod are its limit")
            });
        }
    }
}

/// Whether other containers of the pod have limits beside this one: the pod's quota is more than this one's.
fn others_have_limits(pod: &PodView, asked: &Asked) -> bool {
    let milli = |asked: &Asked| {
        asked
            .cpu_quota
            .filter(|quota| *quota > 0)
            .map(|quota| i128::from(quota) * 1000 / i128::from(asked.period().0))
    };
    matches!((milli(&pod.asked), milli(asked)), (Some(all), Some(own)) if own < all)
}

/// An LS application of the host.
pub(crate) fn host_application(node: &NodeView, plan: &mut Plan) {
    match all_shared(node, "LS applications run") {
        Decision::Cpus(cpus, reason) => plan.wish(RULE, Field::CpusetCpus, Value::Cpus(cpus), || reason),
        Decision::Untouched => {}
        Decision::Impossible(message) => plan.problem(RULE, message),
    }
}

/// The kubelet's static policy gives and takes CPUs too: it writes its own again every 10 s.
pub(crate) fn kubelet_conflict(node: &NodeView, problems: &mut Vec<Problem>) {
    let both = node.gates.enabled(Gate::CpuSetAllocator)
        && node.kubelet_cpu_policy == Some(KubeletCpuPolicy::Static)
        && !node.pools.ls.is_empty();
    if both {
        problems.push(Problem {
            rule: RULE,
            message:
                "the kubelet's CPU manager policy is static: it and this rule both give CPUs to containers; \
                      updates of the kubelet are answered with this rule's CPUs"
                    .to_owned(),
            severity: Severity::Skipped,
        });
    }
}
