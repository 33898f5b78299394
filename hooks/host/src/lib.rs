//! Hooks of the proxy: where they are named, how they are reached, and what bounds them.
//!
//! A [`chain::Chain`] holds all hooks in the order they are asked: the program's own rules, libraries from a directory
//! ([`plugins`]), and servers from [`registration`] files. The [`dispatcher`] calls one of them within its time and
//! remembers how that went. A library runs in the program or in a child of it ([`library`], [`isolated`]); a server is
//! reached over its socket ([`unix_channel`]).

pub mod chain;
pub mod dispatcher;
pub mod endpoint;
pub mod isolated;
mod keys;
pub mod library;
pub mod metrics;
pub mod plugins;
pub mod probe;
pub mod registration;
pub mod trust;
pub mod unix_channel;
mod watch;

pub use probe::{ProbeReport, probe};

#[cfg(test)]
mod testing;
