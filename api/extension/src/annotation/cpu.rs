//! CPU and NUMA: wishes of the pod, answers of the scheduler.

use std::collections::BTreeMap;

use super::{AnnotationError, json_annotation};
use crate::cpuset::{CpuSet, CpuSetError};
use crate::keys::{annotation, label, resource};
use crate::quantity::ResourceList;
use crate::{json_object, json_words};

json_words! {
    /// How the CPUs of a pod are bound.
    pub enum CpuBindPolicy {
        /// Not stated.
        Unset = "",
        /// As the scheduler's configuration says.
        Default = "Default",
        /// Whole physical cores.
        FullPcpus = "FullPCPUs",
        /// Spread over physical cores.
        SpreadByPcpus = "SpreadByPCPUs",
        /// No CPUs of its own, but confined to the shared pool of its NUMA nodes.
        ConstrainedBurst = "ConstrainedBurst",
    }

    /// Whom the CPUs of a pod are kept from.
    pub enum CpuExclusivePolicy {
        /// Not stated.
        Unset = "",
        /// Nobody.
        None = "None",
        /// Pods of the same policy on the same physical core.
        PcpuLevel = "PCPULevel",
        /// Pods of the same policy on the same NUMA node.
        NumaNodeLevel = "NUMANodeLevel",
    }

    /// How resources are aligned to NUMA nodes.
    pub enum NumaTopologyPolicy {
        /// Not aligned.
        None = "",
        /// Aligned if possible.
        BestEffort = "BestEffort",
        /// Aligned, or not placed.
        Restricted = "Restricted",
        /// On one NUMA node, or not placed.
        SingleNumaNode = "SingleNUMANode",
    }

    /// How NUMA nodes are chosen, as on a node's label.
    pub enum NumaAllocateStrategy {
        /// Not stated.
        Unset = "",
        /// The fullest that fits.
        MostAllocated = "MostAllocated",
        /// The emptiest.
        LeastAllocated = "LeastAllocated",
        /// Evenly.
        DistributeEvenly = "DistributeEvenly",
    }

    /// What pods a NUMA node holds.
    pub enum NumaNodeStatus {
        /// None.
        Idle = "idle",
        /// Pods across several NUMA nodes.
        Shared = "shared",
        /// Pods on this NUMA node only.
        Single = "single",
    }

    /// Whether a pod on one NUMA node and a pod across several may share one.
    pub enum NumaExclusive {
        /// Not stated.
        Unset = "",
        /// They should not.
        Preferred = "Preferred",
        /// They must not.
        Required = "Required",
    }
}

json_object! {
    /// What a pod wants of CPU binding.
    pub struct ResourceSpec {
        /// The pod is not placed unless it is met.
        required_cpu_bind_policy: CpuBindPolicy = "requiredCPUBindPolicy",
        /// Met if possible; unset and Default mean the scheduler's configuration.
        preferred_cpu_bind_policy: CpuBindPolicy = "preferredCPUBindPolicy",
        /// Met if possible.
        preferred_cpu_exclusive_policy: CpuExclusivePolicy = "preferredCPUExclusivePolicy",
    }

    /// What the scheduler gave.
    pub struct ResourceStatus {
        /// CPUs of the pod, a Linux CPU list; empty if it has none of its own.
        cpuset: String = "cpuset",
        /// Share of each NUMA node; empty if the pod was not placed under a NUMA policy.
        numa_node_resources: Vec<NumaNodeResource> = "numaNodeResources",
    }

    /// Share of one NUMA node.
    pub struct NumaNodeResource {
        /// Number of the node.
        node: i32 = "node" keep,
        /// What it gives.
        resources: ResourceList = "resources",
    }

    /// What a pod wants of NUMA alignment.
    pub struct NumaTopologySpec {
        /// How its resources are aligned.
        numa_topology_policy: NumaTopologyPolicy = "numaTopologyPolicy",
        /// Whether it shares NUMA nodes with pods across several.
        single_numa_node_exclusive: NumaExclusive = "singleNUMANodeExclusive",
    }
}

json_annotation!(ResourceSpec, annotation::RESOURCE_SPEC);
json_annotation!(ResourceStatus, annotation::RESOURCE_STATUS);
json_annotation!(NumaTopologySpec, annotation::NUMA_TOPOLOGY_SPEC);

impl NumaAllocateStrategy {
    /// The strategy that a node's label states.
    pub fn of_node(labels: &BTreeMap<String, String>) -> NumaAllocateStrategy {
        let text = labels.get(label::NODE_NUMA_ALLOCATE_STRATEGY).map_or("", String::as_str);
        NumaAllocateStrategy::from(text)
    }
}

impl NumaTopologyPolicy {
    /// The policy that a node's label states.
    pub fn of_node(labels: &BTreeMap<String, String>) -> NumaTopologyPolicy {
        NumaTopologyPolicy::from(labels.get(label::NODE_NUMA_TOPOLOGY_POLICY).map_or("", String::as_str))
    }
}

impl ResourceStatus {
    /// The CPUs as a set; none if the pod has none of its own.
    pub fn cpus(&self) -> Result<Option<CpuSet>, AnnotationError> {
        if self.cpuset.is_empty() {
            return Ok(None);
        }
        CpuSet::parse(&self.cpuset)
            .map(Some)
            .map_err(|error: CpuSetError| AnnotationError::new(Self::KEY, &self.cpuset, error))
    }

    /// Whether some NUMA node gives CPU: cpu other than zero, or batch-cpu above zero. Only then are the
    /// pod's CPUs confined to its NUMA nodes.
    pub fn is_numa_aware(&self) -> bool {
        self.numa_node_resources.iter().any(NumaNodeResource::gives_cpu)
    }
}

impl NumaNodeResource {
    /// Whether the node gives CPU: cpu other than zero, or batch-cpu above zero.
    pub fn gives_cpu(&self) -> bool {
        let of = |name| self.resources.get(name).copied().unwrap_or_default();
        !of(resource::CPU).is_zero() || of(resource::BATCH_CPU).is_positive()
    }
}
