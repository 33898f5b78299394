//! Hooks of the proxy: where they are registered, how they are reached, and what bounds them.

pub mod dispatcher;
pub mod endpoint;
mod keys;
pub mod metrics;
pub mod registration;
pub mod trust;
pub mod unix_channel;

#[cfg(test)]
mod testing;
