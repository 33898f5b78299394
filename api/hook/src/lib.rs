//! The runtime hook protocol: what a CRI proxy asks a hook server, and what it answers.
//!
//! Package `runtime.v1alpha1`, service `RuntimeHookService`, wire-compatible with
//! Koordinator in both roles. Maps are ordered, so a message has one encoding only.
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

#[cfg(test)]
mod tests;
