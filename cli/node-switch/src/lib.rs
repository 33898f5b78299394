//! Puts the proxy between the kubelet of this node and its runtime, and takes it out again without a trace.
//!
//! - [`endpoint`]: sockets of runtimes, and where the proxy listens in front of them;
//! - [`mod@unit`], [`flags`], [`yaml`]: the forms of configuration, read and changed in place;
//! - [`discover`]: how this kubelet is configured, and what wins;
//! - [`plan`]: which files change, and to what; [`diff`] shows it;
//! - [`checks`]: what could go wrong;
//! - [`journal`]: what is remembered, so that a switch can be interrupted and taken back;
//! - [`switch`]: enabling, disabling and status;
//! - [`system`]: the node behind a trait; [`real`] is the one this program runs on, [`systemd`] its units.

mod calls;
pub mod checks;
pub mod diff;
pub mod discover;
pub mod endpoint;
pub mod flags;
pub mod journal;
pub mod plan;
pub mod real;
pub mod switch;
pub mod system;
pub mod systemd;
#[cfg(test)]
mod testing;
pub mod unit;
pub mod yaml;
