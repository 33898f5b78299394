//! Custom resources of Koordinator: types, defaults, checks. Nothing here does I/O.
//!
//! - [`node_slo`]: what a node is told to do for quality of service (`NodeSLO.spec`)
//! - [`node_metric`]: what a node uses (`NodeMetric`)
//! - [`node_resource_topology`]: resources of a node by NUMA node (`NodeResourceTopology`)
//! - [`device`]: devices of a node (`Device`)
//! - [`definition`]: what an API server is told about all of them

pub mod definition;
pub mod device;
pub mod node_metric;
pub mod node_resource_topology;
pub mod node_slo;
