//! The CRI proxy.

pub mod admin;
pub mod backend_client;
pub mod checkpoint;
pub mod failover;
pub mod failpoint;
pub mod flags;
pub mod handover;
mod hook_view;
pub mod listener;
pub mod metrics;
pub mod peer;
pub mod pipeline;
pub mod process;
pub mod qos;
pub mod relay;
pub mod serve;
pub mod state_directory;
pub mod status_line;
pub mod store;
pub mod store_view;
pub mod usage;
pub mod validate;

pub use koord_hooks::{dispatcher, endpoint, registration, trust, unix_channel};

#[cfg(test)]
mod testing;
