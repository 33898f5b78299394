//! `Device` of scheduling.koordinator.sh/v1alpha1: devices of a node and their state.
//!
//! The object is cluster-scoped and named like its node. The node agent writes its spec; its status, which
//! is not a subresource, is written by nobody at present.

use std::collections::BTreeMap;

use koord_extension::quantity::ResourceList;
use koord_extension::timestamp::Timestamp;
use koord_extension::{json_object, json_words};

/// API group.
pub const GROUP: &str = "scheduling.koordinator.sh";
/// API version.
pub const VERSION: &str = "v1alpha1";
/// Kind.
pub const KIND: &str = "Device";
/// Name of the resource in paths.
pub const PLURAL: &str = "devices";

json_words! {
    /// Types of devices.
    pub enum DeviceType {
        /// Not stated.
        Unset = "",
        /// A GPU, or another accelerator that is scheduled like one.
        Gpu = "gpu",
        /// An FPGA.
        Fpga = "fpga",
        /// An RDMA network card.
        Rdma = "rdma",
    }

    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// Nobody knows.
        Unknown = "Unknown",
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
    }
}

json_object! {
    /// Devices of a node.
    pub struct DeviceSpec {
        /// The devices.
        devices: Vec<DeviceInfo> = "devices",
    }

    /// Allocated devices of a node.
    pub struct DeviceStatus {
        /// What is allocated, by type.
        allocations: Vec<DeviceAllocation> = "allocations",
    }

    /// Allocated devices of one type.
    pub struct DeviceAllocation {
        /// Type of the devices.
        device_type: DeviceType = "type",
        /// Whom they are allocated to.
        entries: Vec<DeviceAllocationItem> = "entries",
    }

    /// Devices allocated to one pod.
    pub struct DeviceAllocationItem {
        /// Name of the pod.
        name: String = "name",
        /// Namespace of the pod.
        namespace: String = "namespace",
        /// Unique id of the pod.
        uuid: String = "uuid",
        /// Minor numbers of the devices.
        minors: Vec<i32> = "minors",
    }

    /// A device.
    pub struct DeviceInfo {
        /// Type of the device.
        device_type: DeviceType = "type",
        /// Properties to select devices by.
        labels: BTreeMap<String, String> = "labels",
        /// Unique id of the device.
        id: String = "id",
        /// Minor number of the device in its type, from 0.
        minor: Option<i32> = "minor",
        /// Physical position of the device.
        module_id: Option<i32> = "moduleID",
        /// Whether the device works.
        health: bool = "health" keep,
        /// What the device offers, or what of it is used, by name of the resource.
        resources: ResourceList = "resources",
        /// Where the device is.
        topology: Option<DeviceTopology> = "topology",
        /// Virtual functions of the device.
        vf_groups: Vec<VirtualFunctionGroup> = "vfGroups",
        /// Conditions of the device.
        conditions: Vec<Condition> = "conditions",
    }

    /// Where a device is.
    pub struct DeviceTopology {
        /// CPU socket; -1 if it is not known.
        socket_id: i32 = "socketID" keep,
        /// NUMA node, unique on the node; -1 if it is not known.
        node_id: i32 = "nodeID" keep,
        /// PCIe switch, unique on the node.
        pcie_id: String = "pcieID" keep,
        /// PCI address, domain:bus:device.function.
        bus_id: String = "busID",
    }

    /// Virtual functions with the same properties.
    pub struct VirtualFunctionGroup {
        /// Properties to select them by.
        labels: BTreeMap<String, String> = "labels",
        /// The virtual functions.
        virtual_functions: Vec<VirtualFunction> = "vfs",
    }

    /// A virtual function.
    pub struct VirtualFunction {
        /// Minor number of the virtual function, from 0; -1 if it has none.
        minor: i32 = "minor" keep,
        /// PCI address, domain:bus:device.function.
        bus_id: String = "busID",
    }

    /// One aspect of the state of a device.
    pub struct Condition {
        /// Which aspect, such as Healthy.
        condition_type: String = "type" keep,
        /// Whether it holds.
        status: ConditionStatus = "status" keep,
        /// Generation of the object it was found for.
        observed_generation: i64 = "observedGeneration",
        /// When the status changed last.
        last_transition_time: Timestamp = "lastTransitionTime" keep,
        /// Why, in one word for programs.
        reason: String = "reason" keep,
        /// Why, for people.
        message: String = "message" keep,
    }
}

/// The most characters a reason may have.
const LONGEST_REASON: usize = 1024;

impl Condition {
    /// The aspect that tells whether a device works.
    pub const HEALTHY: &'static str = "Healthy";

    /// The reason for an error code of a vendor: the code itself if a reason may read so, else its letters
    /// and digits after `ErrCode_`. A code without any is `Unknown`.
    ///
    /// The API server refuses the whole object for one reason that is not a word of letters, digits and
    /// `_ , :` beginning with a letter; vendors have codes such as -8001.
    pub fn reason_of(code: &str) -> String {
        if is_reason(code) {
            return code.to_owned();
        }
        let kept: String = code.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect();
        let kept = kept.trim_matches('_');
        if kept.is_empty() {
            return ConditionStatus::Unknown.as_str().to_owned();
        }
        "ErrCode_".chars().chain(kept.chars()).take(LONGEST_REASON).collect()
    }
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn is_reason(text: &str) -> bool {
    text.len() <= LONGEST_REASON
        && text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.ends_with(is_plain)
        && text.chars().all(|letter| is_plain(letter) || matches!(letter, ',' | ':'))
}

#[cfg(test)]
pub(crate) mod tests;
