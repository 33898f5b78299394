//! Switches of the whole kernel that rules depend on.

use koord_extension::gates::Gate;

use crate::core_sched;
use crate::group_identity::{self, Mechanism};
use crate::plan::Rule;
use crate::view::NodeView;

/// A switch below `/proc/sys/kernel`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSwitch {
    /// Name of the file.
    pub name: &'static str,
    /// Whether it shall be on.
    pub on: bool,
    /// Who wishes it.
    pub rule: Rule,
    /// Why.
    pub reason: &'static str,
}

/// Switch of group identity on vendor kernels.
const GROUP_IDENTITY: &str = "sched_group_identity_enabled";
/// Switch of core scheduling on vendor kernels.
const CORE_SCHED: &str = "sched_core";

/// Switches in the order in which they have to be set; if one fails, the later ones and the rule's wishes have
/// to wait. Identity and core scheduling are never on together: some vendor kernels lock up. What is switched
/// on stays on when its rule ends, with identities of 0 and without cookies.
pub(crate) fn switches(node: &NodeView) -> Vec<KernelSwitch> {
    let kernel = &node.kernel;
    let identity = node.gates.enabled(Gate::GroupIdentity)
        && group_identity::enabled(node)
        && group_identity::mechanism(node).0 == Mechanism::Bvt;
    let (rule, first, second) = if identity && kernel.group_identity_switch.is_some() {
        let first = kernel
            .core_scheduling_switch
            .map(|_| (CORE_SCHED, "core scheduling ends before identities count"));
        (Rule::GroupIdentity, first, (GROUP_IDENTITY, "identities count"))
    } else if core_sched::active(node) && kernel.core_scheduling_switch.is_some() {
        let first =
            kernel.group_identity_switch.map(|_| (GROUP_IDENTITY, "identities end before cookies are given"));
        (Rule::CoreSched, first, (CORE_SCHED, "cookies count"))
    } else {
        return Vec::new();
    };
    let off = first.map(|(name, reason)| KernelSwitch { name, on: false, rule, reason });
    let on = KernelSwitch { name: second.0, on: true, rule, reason: second.1 };
    off.into_iter().chain([on]).collect()
}
