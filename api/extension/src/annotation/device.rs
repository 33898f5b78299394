//! Devices: wishes of the pod, answers of the scheduler, partitions of GPUs.

use std::collections::BTreeMap;

use super::{AnnotationError, LabelSelector, json_annotation, json_newtype};
use crate::keys::annotation;
use crate::quantity::{Quantity, ResourceList};
use crate::{json_object, json_words};

/// Types of devices, as used in maps by type. There may be others.
pub mod device_type {
    /// GPUs.
    pub const GPU: &str = "gpu";
    /// RDMA network cards.
    pub const RDMA: &str = "rdma";
    /// FPGAs.
    pub const FPGA: &str = "fpga";
}

json_newtype! {
    /// Devices the scheduler gave, by type.
    pub struct DeviceAllocated(BTreeMap<String, Vec<DeviceAllocation>>);
}

json_newtype! {
    /// How devices are to be chosen, by type.
    pub struct DeviceAllocateHints(BTreeMap<String, DeviceHint>);
}

json_newtype! {
    /// Partitions that the GPUs of a Device object have, by number of GPUs.
    pub struct GpuPartitions(BTreeMap<i64, Vec<GpuPartition>>);
}

json_words! {
    /// How a device request is understood.
    pub enum DeviceAllocateStrategy {
        /// Not stated.
        Unset = "",
        /// Every device that matches.
        ApplyForAll = "ApplyForAll",
        /// The request is a number of devices.
        RequestsAsCount = "RequestsAsCount",
    }

    /// What devices of one pod must share, from the widest to the narrowest.
    pub enum DeviceTopologyScope {
        /// Not stated.
        Unset = "",
        /// The machine.
        Node = "Node",
        /// The NUMA node.
        NumaNode = "NUMANode",
        /// The PCIe switch.
        Pcie = "PCIe",
        /// The device.
        Device = "Device",
    }

    /// Whom a device is kept from.
    pub enum DeviceExclusivePolicy {
        /// Not stated.
        Unset = "",
        /// Others on the same device.
        DeviceLevel = "DeviceLevel",
        /// Others on the same PCIe switch.
        PcieLevel = "PCIeLevel",
    }

    /// What devices of several types must share.
    pub enum DeviceJointScope {
        /// Not stated.
        Unset = "",
        /// The PCIe switch.
        SamePcie = "SamePCIe",
    }

    /// How GPU partitions are chosen.
    pub enum GpuPartitionAllocatePolicy {
        /// Not stated, which is BestEffort.
        Unset = "",
        /// The best ones if possible.
        BestEffort = "BestEffort",
        /// The best ones only.
        Restricted = "Restricted",
    }
}

json_object! {
    /// One device of a pod, or a share of it.
    pub struct DeviceAllocation {
        /// Number of the device in its type.
        minor: i32 = "minor" keep,
        /// What it gives.
        resources: ResourceList = "resources" keep,
        /// Well known id, such as a PCI address, where the minor means nothing.
        id: String = "id",
        /// More about it.
        extension: Option<DeviceExtension> = "extension",
    }

    /// More about an allocation.
    pub struct DeviceExtension {
        /// Virtual functions given.
        virtual_functions: Vec<VirtualFunction> = "vfs",
        /// Template the share was cut by.
        gpu_shared_resource_template: String = "gpuSharedResourceTemplate",
    }

    /// A virtual function.
    pub struct VirtualFunction {
        /// Number.
        minor: i32 = "minor",
        /// PCI address.
        bus_id: String = "busID",
    }

    /// How devices of one type are to be chosen.
    pub struct DeviceHint {
        /// Devices by label.
        selector: Option<LabelSelector> = "selector",
        /// Virtual functions by label.
        vf_selector: Option<LabelSelector> = "vfSelector",
        /// How the request is understood.
        allocate_strategy: DeviceAllocateStrategy = "allocateStrategy",
        /// What they must share.
        required_topology_scope: DeviceTopologyScope = "requiredTopologyScope",
        /// Whom they are kept from.
        exclusive_policy: DeviceExclusivePolicy = "exclusivePolicy",
    }

    /// Devices to be chosen together.
    pub struct DeviceJointAllocate {
        /// Their types.
        device_types: Vec<String> = "deviceTypes",
        /// What they must share.
        required_scope: DeviceJointScope = "requiredScope",
    }

    /// What a pod wants of GPU partitions. An absent annotation is not an empty object.
    pub struct GpuPartitionSpec {
        /// How they are chosen; BestEffort unless stated.
        allocate_policy: GpuPartitionAllocatePolicy = "allocatePolicy",
        /// The least bandwidth between its GPUs.
        ring_bus_bandwidth: Option<Quantity> = "ringBusBandwidth",
    }

    /// GPUs that belong together.
    pub struct GpuPartition {
        /// Minors of the GPUs.
        minors: Vec<i32> = "minors" keep,
        /// Link between them, such as NVLink.
        gpu_link_type: String = "gpuLinkType",
        /// Bandwidth between them.
        ring_bus_bandwidth: Option<Quantity> = "ringBusBandwidth",
        /// Worth; higher is better.
        allocation_score: i64 = "allocationScore",
    }
}

json_annotation!(DeviceAllocated, annotation::DEVICE_ALLOCATED);
json_annotation!(DeviceAllocateHints, annotation::DEVICE_ALLOCATE_HINT);
json_annotation!(DeviceJointAllocate, annotation::DEVICE_JOINT_ALLOCATE);
json_annotation!(GpuPartitionSpec, annotation::GPU_PARTITION_SPEC);

impl DeviceAllocated {
    /// The devices of a type; none if it has no entry.
    pub fn of_type(&self, device_type: &str) -> &[DeviceAllocation] {
        self.0.get(device_type).map_or(&[], Vec::as_slice)
    }
}

impl DeviceTopologyScope {
    /// How narrow it is: Device 4, PCIe 3, NUMANode 2, Node 1, anything else 0.
    pub const fn level(&self) -> u8 {
        match self {
            DeviceTopologyScope::Device => 4,
            DeviceTopologyScope::Pcie => 3,
            DeviceTopologyScope::NumaNode => 2,
            DeviceTopologyScope::Node => 1,
            DeviceTopologyScope::Unset | DeviceTopologyScope::Other(_) => 0,
        }
    }
}

impl GpuPartitionAllocatePolicy {
    /// Whether the best partitions are the only ones. Unset is BestEffort.
    pub fn is_restricted(&self) -> bool {
        *self == GpuPartitionAllocatePolicy::Restricted
    }
}

impl GpuPartitions {
    /// Key of the annotation.
    pub const KEY: &'static str = annotation::GPU_PARTITIONS;

    /// Reads the annotation; none if it is absent or empty.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<GpuPartitions>, AnnotationError> {
        match annotations.get(Self::KEY) {
            Some(text) if !text.is_empty() => GpuPartitions::parse(text).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads the text of the annotation. A bare `null` is an error.
    pub fn parse(text: &str) -> Result<GpuPartitions, AnnotationError> {
        let fail = |problem: String| AnnotationError::new(Self::KEY, text, problem);
        serde_json::from_str::<Option<GpuPartitions>>(text)
            .map_err(|error| fail(error.to_string()))?
            .ok_or_else(|| fail("null; wanted an object of partitions by number of GPUs".to_owned()))
    }

    /// The text of the annotation.
    pub fn to_text(&self) -> String {
        // A map of numbers and strings is always representable.
        serde_json::to_string(self).unwrap_or_default()
    }
}
