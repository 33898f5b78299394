//! What a report is computed from.

use std::collections::BTreeMap;

use koord_extension::annotation::CpuBasicInfo;
use koord_extension::qos::QosClass;
use koord_extension::quantity::ResourceList;
use koord_topology::Topology;
use koord_topology::kubelet::CpuManagerState;

use crate::change::Published;
use crate::kubelet::KubeletConfig;
use crate::zones::NumaMemory;

/// Everything a report depends on.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The node object.
    pub node: NodeFacts<'a>,
    /// The machine's CPUs. Memory-only NUMA nodes in it have zones as well.
    pub topology: &'a Topology,
    /// Model and features of the CPUs (`koord_topology::report::cpu_basic_info`).
    pub processor: &'a CpuBasicInfo,
    /// Memory by NUMA node. A node that is missing here has none.
    pub memory: &'a BTreeMap<u32, NumaMemory>,
    /// The kubelet's configuration; none if it is not to be asked, and then what its CPU manager has given away does not
    /// count. If it should be asked and cannot be, there is no report to compute.
    pub kubelet: Option<&'a KubeletConfig>,
    /// The state of the kubelet's CPU manager; none if there is no file or an empty one. It counts under the static policy
    /// only. If it is malformed under that policy, there is no report to compute.
    pub cpu_manager_state: Option<&'a CpuManagerState>,
    /// The pods of the node that have not ended.
    pub pods: &'a [PodFacts<'a>],
    /// What the API server has; none if there is no object yet.
    pub published: Option<Published<'a>>,
    /// Gate `HugePageReport`.
    pub report_huge_pages: bool,
}

/// What the report needs of the node object.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a> {
    /// `metadata.labels`.
    pub labels: &'a BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// `status.capacity`.
    pub capacity: &'a ResourceList,
    /// `status.allocatable`.
    pub allocatable: &'a ResourceList,
}

/// What the report needs of a pod.
#[derive(Debug, Clone, Copy)]
pub struct PodFacts<'a> {
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// The class that its label says (`QosClass::raw`).
    pub qos: Option<QosClass>,
    /// The text of its annotation `scheduling.koordinator.sh/resource-status`.
    pub resource_status: Option<&'a str>,
}
