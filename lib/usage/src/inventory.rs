//! What there is to measure.

use std::sync::Arc;

use koord_cgroup::path::CgroupPath;
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::units::MilliCpu;

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEntry {
    /// Its id, without the runtime's prefix.
    pub id: Arc<str>,
    /// Its name in the pod.
    pub name: Arc<str>,
    /// Its control group.
    pub cgroup: CgroupPath,
    /// Whether it stands among the init containers: one that runs to its end or a sidecar that restarts.
    pub is_init: bool,
}

/// A pod that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEntry {
    /// Its UID.
    pub uid: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Koordinator's class as its label says; `None` without a valid label.
    pub qos: Option<QosClass>,
    /// The class of Kubernetes.
    pub kube_qos: KubeQos,
    /// Its control group.
    pub cgroup: CgroupPath,
    /// Batch CPU that its containers and sidecars ask for.
    pub batch_cpu_request: MilliCpu,
    /// Containers that run, without the sandbox's own.
    pub containers: Vec<ContainerEntry>,
}

/// An application outside of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostApplicationEntry {
    /// The name that NodeSLO gives it.
    pub name: Arc<str>,
    /// Its control group.
    pub cgroup: CgroupPath,
}

/// Everything to measure beside the node itself. It does not change: its owner replaces the whole.
///
/// Pods that succeeded or failed are not in it, nor containers that do not run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// The pods, in any order; each UID once.
    pub pods: Vec<Arc<PodEntry>>,
    /// The host applications; each name once.
    pub host_applications: Vec<Arc<HostApplicationEntry>>,
}
