//! The CRI proxy.

pub mod admin;
pub mod backend_client;
pub mod checkpoint;
pub mod dispatcher;
pub mod endpoint;
pub mod failover;
pub mod failpoint;
pub mod flags;
pub mod handover;
pub mod listener;
pub mod metrics;
pub mod peer;
pub mod pipeline;
pub mod process;
pub mod registration;
pub mod relay;
pub mod serve;
pub mod state_directory;
pub mod store;
pub mod store_view;
pub mod trust;
pub mod unix_channel;
pub mod validate;

#[cfg(test)]
mod testing;
