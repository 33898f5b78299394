//! The node agent.
//!
//! It knows the node, its pods and the policies for it ([`state`-like modules below]), takes samples of usage from the
//! proxy's stream or measures by itself, and reports to Kubernetes and Prometheus.

pub mod flags;
