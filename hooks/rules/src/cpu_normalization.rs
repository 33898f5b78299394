//! CPUNormalization: limits written for a slower CPU are made smaller where the CPUs are faster.

use koord_extension::gates::Gate;
use koord_extension::qos::QosClass;
use koord_extension::units::scale;

use crate::cpuset;
use crate::facts::PodFacts;
use crate::field::Field;
use crate::plan::{Plan, Rule};
use crate::view::{Asked, DEFAULT_PERIOD, NodeView};

const RULE: Rule = Rule::CpuNormalization;

/// Divides a quota, both in the given period. `asked` is always what the kubelet asked: dividing a divided
/// quota again would throttle the pod more with each update. A pod's quota is divided only if the kubelet set
/// one, which it does only where every container has a limit.
fn divide(node: &NodeView, facts: &PodFacts, asked: &Asked, period: i64, plan: &mut Plan) {
    if !node.gates.enabled(Gate::CpuNormalization) {
        return;
    }
    match facts.qos() {
        Some(QosClass::Ls) => {}
        None if cpuset::owned_cpus(facts).is_none() => {}
        _ => return,
    }
    let Some(ratio) = node.cpu_normalization_ratio.filter(|ratio| ratio.divides()) else { return };
    let Some(quota) = asked.cpu_quota.filter(|quota| *quota > 0) else { return };
    let quota = scale(quota, period, asked.period().0);
    let value = ratio.divide(quota);
    plan.number(RULE, Field::CpuQuota, value, || {
        format!("quota {quota} us per {} ms, / {ratio} for the faster CPUs = {value} us", period / 1000)
    });
}

pub(crate) fn pod(node: &NodeView, facts: &PodFacts, asked: &Asked, plan: &mut Plan) {
    divide(node, facts, asked, asked.period().0, plan);
}

pub(crate) fn container(node: &NodeView, facts: &PodFacts, asked: &Asked, plan: &mut Plan) {
    divide(node, facts, asked, DEFAULT_PERIOD.0, plan);
}
