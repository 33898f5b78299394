//! The CRI proxy.

pub mod metrics;
pub mod pipeline;
