//! Custom resources of Koordinator: types, defaults, checks. Nothing here does I/O.
//!
//! - [`node_slo`]: what a node is told to do for quality of service (`NodeSLO.spec`)

pub mod node_slo;
