//! The runtime hook protocol: what a CRI proxy asks a hook server, and what it answers.
//!
//! Package `runtime.v1alpha1`, service `RuntimeHookService`, wire-compatible with
//! Koordinator in both roles. Maps are ordered, so a message has one encoding only.
//!
//! [`stage`] names the points of a call at which hooks are asked, [`options`] what an operator says about a hook.
//!
//! The features `client` and `server` add the tonic client and server.

/// Messages and service of package `runtime.v1alpha1`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    rustdoc::all,
    reason = "generated code"
)]
pub mod v1alpha1 {
    include!("gen/runtime_v1alpha1.rs");
}

pub mod options;
pub mod stage;

pub use options::{FailurePolicy, ResourceMerge, ServerOptions, UpdateScope};
pub use stage::{HookSet, HookType};

#[cfg(test)]
mod tests;
