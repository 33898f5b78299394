//! `NodeSLO.spec` of slo.koordinator.sh/v1alpha1: what a node is told to do for quality of service.
//!
//! Three forms of it:
//! - [`NodeSloSpec`]: as in the object, everything optional;
//! - JSON that is looked at before it is believed: [`NodeSloSpec::check`] refuses every mistake of a file
//!   somebody wrote, [`NodeSloSpec::clamped`] makes the best of what the API server hands out;
//! - [`EffectiveNodeSlo`]: defaults laid under and disabled features taken out, which is what programs act
//!   on.

mod check;
mod effective;
mod io_settings;
mod schema;
mod spec;
#[cfg(test)]
mod tests;

/// API group.
pub const GROUP: &str = "slo.koordinator.sh";
/// API version.
pub const VERSION: &str = "v1alpha1";
/// Kind.
pub const KIND: &str = "NodeSLO";
/// Name of the resource in paths.
pub const PLURAL: &str = "nodeslos";

pub use check::FieldError;
pub use effective::{
    ClassBlkioQos, ClassCpuQos, ClassMemoryQos, ClassNetworkQos, ClassQos, ClassResctrlQos,
    CpuBurstStrategyInForce, EffectiveNodeSlo, ThresholdStrategyInForce,
};
pub use io_settings::IoSettings;
pub use spec::{
    BlkioQosStrategy, CgroupBase, CpuBurstStrategy, CpuEvictPolicy, CpuPolicy, CpuSuppressPolicy,
    HostApplication, HostCgroupPath, HostDirectory, MemoryQosStrategy, NetworkPolicy, NetworkQosStrategy,
    NodeSloSpec, ResctrlQosStrategy, ResourceQos, ResourceQosPolicies, ResourceQosStrategy,
    ResourceThresholdStrategy, SystemStrategy,
};
