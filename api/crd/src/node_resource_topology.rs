//! `NodeResourceTopology` of topology.node.k8s.io/v1alpha1: resources of a node by NUMA node.
//!
//! The object is cluster-scoped and named like its node. It has neither spec nor status: its fields stand
//! beside `metadata`. What Koordinator says about CPUs is in its annotations, see
//! `koord_extension::annotation`.

use koord_extension::quantity::Quantity;
use koord_extension::{json_object, json_words};

/// API group.
pub const GROUP: &str = "topology.node.k8s.io";
/// API version.
pub const VERSION: &str = "v1alpha1";
/// Kind.
pub const KIND: &str = "NodeResourceTopology";
/// Name of the resource in paths.
pub const PLURAL: &str = "noderesourcetopologies";

/// The type of a zone that is a NUMA node.
pub const ZONE_TYPE_NODE: &str = "Node";

json_words! {
    /// How kubelet's topology manager aligns resources: its policy and its scope.
    pub enum TopologyPolicy {
        /// Not at all.
        None = "None",
        /// Each container on one NUMA node, or the pod is refused.
        SingleNumaNodeContainerLevel = "SingleNUMANodeContainerLevel",
        /// Each pod on one NUMA node, or it is refused.
        SingleNumaNodePodLevel = "SingleNUMANodePodLevel",
        /// Each container as its devices prefer, or the pod is refused.
        RestrictedContainerLevel = "RestrictedContainerLevel",
        /// Each pod as its devices prefer, or it is refused.
        RestrictedPodLevel = "RestrictedPodLevel",
        /// Each container as its devices prefer, if possible.
        BestEffortContainerLevel = "BestEffortContainerLevel",
        /// Each pod as its devices prefer, if possible.
        BestEffortPodLevel = "BestEffortPodLevel",
    }
}

json_object! {
    /// Resources of a node by NUMA node: all fields of the object but `apiVersion`, `kind` and `metadata`.
    pub struct NodeResourceTopology {
        /// How kubelet aligns resources: its topology policy and scope in one word.
        topology_policies: Vec<TopologyPolicy> = "topologyPolicies" keep,
        /// Parts of the node, such as NUMA nodes.
        zones: Vec<Zone> = "zones" keep,
        /// Properties of the node.
        attributes: Vec<Attribute> = "attributes",
    }

    /// A part of a node, such as a NUMA node.
    pub struct Zone {
        /// Name of the zone, such as node-0.
        name: String = "name" keep,
        /// Type of the zone, such as Node.
        zone_type: String = "type" keep,
        /// Name of the zone this one is a part of.
        parent: String = "parent",
        /// Distances to other zones.
        costs: Vec<Cost> = "costs",
        /// Properties of the zone.
        attributes: Vec<Attribute> = "attributes",
        /// Resources of the zone, sorted by name.
        resources: Vec<ZoneResource> = "resources",
    }

    /// One resource of a zone.
    pub struct ZoneResource {
        /// Name of the resource.
        name: String = "name" keep,
        /// What the zone has of it.
        capacity: Quantity = "capacity" keep,
        /// What of it pods may use.
        allocatable: Quantity = "allocatable" keep,
        /// What of it is left for further pods.
        available: Quantity = "available" keep,
    }

    /// Distance to another zone.
    pub struct Cost {
        /// Name of the other zone.
        name: String = "name" keep,
        /// The distance.
        value: i64 = "value" keep,
    }

    /// A property.
    pub struct Attribute {
        /// Name of the property.
        name: String = "name" keep,
        /// Its value.
        value: String = "value" keep,
    }
}

#[cfg(test)]
pub(crate) mod tests;
