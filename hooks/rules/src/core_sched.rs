//! CoreSched: who may share a core with whom.
//!
//! Tasks with one cookie may run on the threads of one core at the same moment; tasks with different cookies
//! never do. Rules name the group, whoever applies the plan makes and hands on the cookies.

use koord_extension::gates::Gate;
use koord_extension::keys::label;
use koord_extension::qos::{KubeQos, QosClass};

use crate::facts::PodFacts;
use crate::field::Field;
use crate::group_identity::{self, Mechanism};
use crate::plan::{Plan, Rule, Value};
use crate::policy;
use crate::view::{NodeView, PodView};

const RULE: Rule = Rule::CoreSched;

/// What is decided about a pod's cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The pod's tasks have the cookie of this group; the group without a name is one too.
    Group(String),
    /// The pod's tasks have no cookie.
    Cleared,
    /// The rule has nothing to say.
    Untouched,
}

/// Whether the policy has the rule give cookies.
pub(crate) fn active(node: &NodeView) -> bool {
    node.gates.enabled(Gate::CoreSched)
        && policy::is_core_sched(node)
        && [QosClass::Lsr, QosClass::Ls, QosClass::Be]
            .into_iter()
            .any(|class| policy::cpu_enabled(node, class))
}

/// The class whose settings hold in a directory.
fn class_of_directory(node: &NodeView, kube_qos: KubeQos) -> QosClass {
    match kube_qos {
        KubeQos::Guaranteed if policy::cpu_enabled(node, QosClass::Lsr) => QosClass::Lsr,
        KubeQos::Guaranteed | KubeQos::Burstable => QosClass::Ls,
        KubeQos::BestEffort => QosClass::Be,
    }
}

fn class_of_pod(node: &NodeView, facts: &PodFacts) -> Option<QosClass> {
    match facts.qos() {
        Some(QosClass::Lse | QosClass::Lsr) => Some(QosClass::Lsr),
        Some(QosClass::Ls) => Some(QosClass::Ls),
        Some(QosClass::Be) => Some(QosClass::Be),
        Some(QosClass::System) => None,
        None => Some(class_of_directory(node, facts.kube_qos())),
    }
}

/// Decides on the cookie of a pod's tasks.
pub fn decide(node: &NodeView, pod: &PodView, facts: &PodFacts) -> Decision {
    // The agent that hands out cookies has to stay without one, and is a SYSTEM pod.
    let Some(class) = class_of_pod(node, facts).filter(|_| active(node)) else { return Decision::Untouched };
    let policy = pod.labels.get(label::CORE_SCHED_POLICY).map(String::as_str);
    if policy == Some("none") || !policy::cpu_enabled(node, class) {
        return Decision::Cleared;
    }
    let mut group = if policy == Some("exclusive") {
        pod.uid.clone()
    } else {
        pod.labels.get(label::CORE_SCHED_GROUP_ID).cloned().unwrap_or_default()
    };
    if policy::core_expeller(node, class) {
        group.push_str("-expeller");
    }
    Decision::Group(group)
}

pub(crate) fn container(node: &NodeView, pod: &PodView, facts: &PodFacts, plan: &mut Plan) {
    let decision = decide(node, pod, facts);
    // Without a second thread on a core, cookies only cost.
    if decision == Decision::Untouched || !node.kernel.core_scheduling || !node.kernel.smt_active {
        return;
    }
    let identity_in_use = node.kernel.group_identity_switch.unwrap_or(node.kernel.negative_identity_in_use);
    match decision {
        Decision::Group(_) if identity_in_use => {
            plan.problem(
                RULE,
                "group identity is in use on the node; together with cookies it locks some kernels up",
            );
        }
        Decision::Group(group) => {
            let reason = format!("tasks share cores within the group {group:?} only");
            plan.wish(RULE, Field::CoreSchedGroup, Value::Text(group), || reason);
        }
        Decision::Cleared => {
            let reason = || "the pod, or its class, shares cores with everybody".to_owned();
            plan.wish(RULE, Field::CoreSchedGroup, Value::Unset, reason);
        }
        Decision::Untouched => {}
    }
}

/// Where directories of QoS classes cannot be idle, the pods in them are.
pub(crate) fn pod(node: &NodeView, facts: &PodFacts, plan: &mut Plan) {
    let Some(class) = class_of_pod(node, facts).filter(|_| active(node)) else { return };
    let idle_pods = group_identity::idle(node).0 == Mechanism::IdlePods;
    if idle_pods && node.kernel.cpu_idle && policy::sched_idle(node, class) {
        plan.number(RULE, Field::CpuIdle, 1, || format!("{class} pods are idle (schedIdle 1)"));
    }
}

pub(crate) fn directory(node: &NodeView, kube_qos: KubeQos, plan: &mut Plan) {
    if !active(node) || !node.kernel.cpu_idle || group_identity::idle(node).0 != Mechanism::IdleDirectory {
        return;
    }
    let class = class_of_directory(node, kube_qos);
    let idle = i64::from(policy::sched_idle(node, class));
    plan.number(RULE, Field::CpuIdle, idle, || format!("{class} pods have schedIdle {idle}"));
}
