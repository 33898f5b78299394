//! Puts the proxy between the kubelet of this node and its runtime, and takes it out again without a trace.
//!
//! - [`endpoint`]: sockets of runtimes, and where the proxy listens in front of them;
//! - [`unit`], [`flags`], [`yaml`]: the forms of configuration, read and changed in place;
//! - [`discover`]: how this kubelet is configured, and what wins;
//! - [`plan`]: which files change, and to what; [`diff`] shows it;
//! - [`system`]: the node behind a trait.

pub mod diff;
pub mod discover;
pub mod endpoint;
pub mod flags;
pub mod plan;
pub mod system;
#[cfg(test)]
mod testing;
pub mod unit;
pub mod yaml;
