//! The CRI proxy.

pub mod dispatcher;
pub mod endpoint;
pub mod flags;
pub mod hook_type;
pub mod metrics;
pub mod pipeline;
pub mod registration;
pub mod trust;
pub mod unix_channel;
