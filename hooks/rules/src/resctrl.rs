//! Resctrl: which cache and memory bandwidth group a container's tasks belong to, and what the groups of
//! classes get. Masks and units of the hardware are made where the hardware is known.

use koord_extension::gates::Gate;
use koord_extension::qos::QosClass;
use koord_extension::units::Percent;

use crate::facts::{PodFacts, known};
use crate::field::Field;
use crate::plan::{Plan, Problem, Rule, Value};
use crate::policy;
use crate::view::{NodeView, PodView};

const RULE: Rule = Rule::Resctrl;

/// What a class's group gets of cache and memory bandwidth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassGroup {
    /// Class of pods, and name of the group.
    pub class: QosClass,
    /// Start of the class's part of the last-level cache.
    pub cat_start: Percent,
    /// End of that part, above the start.
    pub cat_end: Percent,
    /// Part of the memory bandwidth.
    pub mba: Percent,
    /// Why.
    pub reason: String,
}

/// Name of a pod's own group.
pub fn pod_group(uid: &str) -> String {
    format!("koordlet-{uid}")
}

/// Groups of the classes that the policy enables.
pub(crate) fn class_groups(node: &NodeView, problems: &mut Vec<Problem>) -> Vec<ClassGroup> {
    let mut groups = Vec::new();
    if !node.gates.enabled(Gate::RdtResctrl) {
        return groups;
    }
    for class in [QosClass::Lsr, QosClass::Ls, QosClass::Be] {
        let Some(shares) = policy::resctrl(node, class) else { continue };
        if !node.kernel.resctrl {
            problems.push(Problem {
                rule: RULE,
                message: format!("{class} pods shall have a group of their own, and the node has no resctrl"),
                severity: crate::plan::Severity::Skipped,
            });
            continue;
        }
        groups.push(ClassGroup {
            class,
            cat_start: shares.cat_start,
            cat_end: shares.cat_end,
            mba: shares.mba,
            reason: format!(
                "{class} pods have {} to {} % of the last-level cache and {} % of the memory bandwidth",
                shares.cat_start.0, shares.cat_end.0, shares.mba.0
            ),
        });
    }
    groups
}

/// The pod's own group, to be made before its sandbox; what is in it says the annotation.
pub(crate) fn pod(node: &NodeView, pod: &PodView, facts: &PodFacts, plan: &mut Plan) {
    if facts.runtime_class_of(RuntimeClass::Rdt, None) || !node.gates.enabled(Gate::Resctrl) {
        return;
    }
    if known(&facts.resctrl, RULE, plan).is_none() || !own_group(facts) {
        return;
    }
    if !node.kernel.resctrl {
        return plan.problem(RULE, "the pod asks for a group of its own, and the node has no resctrl");
    }
    let group = pod_group(&pod.uid);
    plan.wish(RULE, Field::ResctrlClass, Value::Text(group), || {
        "the pod asks for cache and memory bandwidth of its own".to_owned()
    });
}

fn own_group(facts: &PodFacts) -> bool {
    matches!(facts.resctrl, Ok(Some(_)))
}

pub(crate) fn container(node: &NodeView, pod: &PodView, facts: &PodFacts, name: &str, plan: &mut Plan) {
    // The runtime puts the container into a group itself.
    if !node.kernel.resctrl || facts.runtime_class_of(RuntimeClass::Rdt, Some(name)) {
        return;
    }
    // Unreadable: the pod wants a group of its own, whatever is in it, and not its class's.
    if facts.resctrl.is_err() {
        known(&facts.resctrl, RULE, plan);
        return;
    }
    if own_group(facts) {
        if node.gates.enabled(Gate::Resctrl) {
            plan.wish(RULE, Field::ResctrlClass, Value::Text(pod_group(&pod.uid)), || {
                "the pod asks for cache and memory bandwidth of its own".to_owned()
            });
        }
        return;
    }
    let class = match facts.qos_with_default() {
        QosClass::Lse | QosClass::Lsr => QosClass::Lsr,
        QosClass::Ls => QosClass::Ls,
        QosClass::Be => QosClass::Be,
        QosClass::System => return,
    };
    if node.gates.enabled(Gate::RdtResctrl) && policy::resctrl(node, class).is_some() {
        plan.wish(RULE, Field::ResctrlClass, Value::Text(class.as_str().to_owned()), || {
            format!("{class} pods share a part of cache and memory bandwidth")
        });
    }
}

/// Classes that a runtime sets by annotations of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuntimeClass {
    /// Cache and memory bandwidth.
    Rdt,
    /// Disks.
    Blockio,
}
