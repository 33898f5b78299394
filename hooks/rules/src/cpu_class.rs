//! Choices of mainline kernels that Koordinator has no words for, off unless the operator wants them: slices
//! of the scheduler, and bounds of the CPU's capacity.

use koord_extension::qos::QosClass;

use crate::facts::PodFacts;
use crate::field::Field;
use crate::plan::{Plan, Rule, Value};
use crate::view::NodeView;

/// Slices of a container's threads: a short one is served soon, a long one is interrupted rarely.
pub(crate) fn slice(node: &NodeView, facts: &PodFacts, plan: &mut Plan) {
    let Some(slices) = node.options.scheduler_slice.filter(|_| node.kernel.scheduler_slice) else { return };
    let class = facts.qos_with_default();
    let slice = match class {
        QosClass::Lsr | QosClass::Ls => slices.latency_sensitive,
        QosClass::Be => slices.best_effort,
        QosClass::Lse | QosClass::System => return,
    };
    // What the kernel takes.
    let slice = slice.0.clamp(100, 100_000);
    plan.number(Rule::SchedulerSlice, Field::SchedulerSlice, slice, || {
        format!("{class} threads run {slice} us at a time")
    });
}

/// Bounds of the CPU's capacity for a pod.
pub(crate) fn uclamp(node: &NodeView, facts: &PodFacts, plan: &mut Plan) {
    let Some(bounds) = node.options.cpu_uclamp.filter(|_| node.kernel.cpu_uclamp) else { return };
    let class = facts.qos_with_default();
    let (field, percent, untouched) = match class {
        QosClass::Lse | QosClass::Lsr | QosClass::Ls => {
            (Field::CpuUclampMin, bounds.latency_sensitive_min, 0)
        }
        QosClass::Be => (Field::CpuUclampMax, bounds.best_effort_max, 100),
        QosClass::System => return,
    };
    let percent = percent.0.clamp(0, 100);
    if percent != untouched {
        plan.wish(Rule::CpuUclamp, field, Value::Text(format!("{percent}.00")), || {
            format!("{class} pods: {percent} % of the CPU's capacity")
        });
    }
}
