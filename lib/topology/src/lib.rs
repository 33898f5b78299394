//! CPUs, cores, caches, sockets and NUMA nodes of a machine, and who may run on which of them.
//!
//! [`sysfs`] reads the layout, [`kubelet`] what the kubelet's CPU manager has given away. Everything else is a
//! pure function of those: [`pools`] says which CPUs are shared, [`packing`] takes CPUs for the system and
//! [`allocator`] for a pod.

pub mod allocator;
pub mod kubelet;
pub mod model;
pub mod packing;
pub mod pools;
pub mod processor;
pub mod report;
pub mod sysfs;

pub use model::{Cpu, Topology, TopologyError};
