//! CPUBurst, the part that depends on nothing measured: how much unused quota a container may save up.

use koord_extension::gates::Gate;
use koord_extension::qos::QosClass;
use koord_extension::units::scale;

use crate::cpu::UNLIMITED;
use crate::facts::PodFacts;
use crate::field::Field;
use crate::plan::{Plan, Rule};
use crate::policy;
use crate::view::{Asked, DEFAULT_PERIOD, NodeView};

const RULE: Rule = Rule::CpuBurst;

/// Most that the kernel's file takes: 100 s in microseconds.
const MAX_BURST: i64 = 100_000_000;

/// `quota` x percent / 100, no more than the kernel takes: mainline refuses a burst above the quota.
fn burst(quota: i64, percent: i64, above_quota: bool) -> i64 {
    let wished = scale(quota, percent, 100).clamp(0, MAX_BURST);
    if above_quota { wished } else { wished.min(quota) }
}

/// The quota that will be in force: a rule's, else the kubelet's.
fn quota_in_force(asked: &Asked, plan: &Plan, period: i64) -> Option<i64> {
    if let Some(quota) = plan.integer(&Field::CpuQuota) {
        return Some(quota);
    }
    let quota = asked.cpu_quota?;
    Some(if quota > 0 { scale(quota, period, asked.period().0) } else { UNLIMITED })
}

/// Percent of the quota, if the strategy and the pod want a burst.
fn percent(node: &NodeView, facts: &PodFacts, plan: &mut Plan) -> Option<i64> {
    let applies = !matches!(facts.qos(), Some(QosClass::Lse | QosClass::Lsr | QosClass::Be));
    if !applies || !node.gates.enabled(Gate::CpuBurst) || !node.kernel.cpu_burst {
        return None;
    }
    let own = match &facts.cpu_burst {
        Ok(own) => own.as_deref(),
        Err(message) => {
            plan.problem(RULE, format!("{message}; the node's strategy counts"));
            None
        }
    };
    policy::burst_percent(node, own)
}

pub(crate) fn container(node: &NodeView, facts: &PodFacts, asked: &Asked, plan: &mut Plan) {
    let Some(percent) = percent(node, facts, plan) else { return };
    // Of an own quota the period is the rules' one, of the kubelet's its own: the burst counts in microseconds.
    let period = if plan.get(&Field::CpuQuota).is_some() { DEFAULT_PERIOD } else { asked.period() };
    match quota_in_force(asked, plan, period.0).filter(|quota| *quota > 0) {
        Some(quota) => {
            let value = burst(quota, percent, node.kernel.burst_above_quota);
            plan.number(RULE, Field::CpuBurst, value, || {
                let wished = scale(quota, percent, 100);
                let held = if wished > value { format!(", held at {value} us") } else { String::new() };
                format!("cpuBurstPercent {percent} % of the quota {quota} us = {wished} us{held}")
            });
        }
        None => plan.number(RULE, Field::CpuBurst, 0, || "no CPU limit: nothing to save up".to_owned()),
    }
}

/// The bursts of a pod's containers add up; together they save no more than the pod's quota. A pod without a
/// quota needs no burst.
pub(crate) fn pod(node: &NodeView, facts: &PodFacts, asked: &Asked, plan: &mut Plan) {
    let Some(percent) = percent(node, facts, plan) else { return };
    let Some(quota) = quota_in_force(asked, plan, asked.period().0).filter(|quota| *quota > 0) else {
        return;
    };
    let value = burst(quota, percent, node.kernel.burst_above_quota);
    plan.number(RULE, Field::CpuBurst, value, || {
        format!("cpuBurstPercent {percent} %, within the pod's quota {quota} us")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mainline_kernels_take_no_burst_above_the_quota() {
        assert_eq!(burst(200_000, 1000, false), 200_000);
        assert_eq!(burst(200_000, 50, false), 100_000);
        assert_eq!(burst(200_000, 0, false), 0);
        assert_eq!(burst(200_000, 1000, true), 2_000_000);
        assert_eq!(burst(i64::MAX, 1000, true), MAX_BURST);
    }
}
