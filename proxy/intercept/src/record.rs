//! What is remembered of pods and containers between calls.
//!
//! Records are values: a change makes a new one, and whoever holds the old one keeps it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use koord_hook::v1alpha1::{LinuxContainerResources, PodSandboxMetadata};

/// A map of text, in the order it is encoded.
pub type TextMap = BTreeMap<String, String>;

/// A pod sandbox as the runtime was asked for it, hook changes included.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodRecord {
    /// Name, uid, namespace and attempt.
    pub meta: PodSandboxMetadata,
    /// The runtime handler asked for; empty for the default.
    pub runtime_handler: String,
    /// Labels.
    pub labels: TextMap,
    /// Annotations.
    pub annotations: TextMap,
    /// The parent cgroup given to the runtime.
    pub cgroup_parent: String,
    /// The parent cgroup the kubelet asked for, which it repeats with every container of the pod. Differs from
    /// `cgroup_parent` if a hook moved the pod.
    pub kubelet_cgroup_parent: String,
    /// Overhead of the sandbox.
    pub overhead: Option<LinuxContainerResources>,
    /// Resources of all its containers together.
    pub resources: Option<LinuxContainerResources>,
    /// When the sandbox was stopped, if it was.
    pub stopped_at: Option<SystemTime>,
}

impl PodRecord {
    /// The parent cgroup a hook gave the pod in place of the kubelet's.
    pub fn moved_to(&self) -> Option<&str> {
        (self.cgroup_parent != self.kubelet_cgroup_parent).then_some(self.cgroup_parent.as_str())
    }
}

/// A container as the runtime was asked for it, hook changes included.
///
/// What concerns its pod is in the pod's record.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerRecord {
    /// The sandbox it is in.
    pub pod_sandbox_id: String,
    /// Name.
    pub name: String,
    /// Attempt.
    pub attempt: u32,
    /// Annotations.
    pub annotations: TextMap,
    /// Resources, as of creation and all updates since.
    pub resources: Option<LinuxContainerResources>,
    /// A parent cgroup of its own; empty means that of its pod.
    pub cgroup_parent: String,
    /// Environment, without values that are not text. `None` if it was not kept.
    pub envs: Option<TextMap>,
    /// When the container was stopped, if it was.
    pub stopped_at: Option<SystemTime>,
}

impl ContainerRecord {
    /// The parent cgroup it runs under.
    pub fn effective_cgroup_parent<'a>(&'a self, pod: &'a PodRecord) -> &'a str {
        if self.cgroup_parent.is_empty() { &pod.cgroup_parent } else { &self.cgroup_parent }
    }
}
