//! The Container Runtime Interface: messages of the protocol.
//!
//! The messages of [`v1`] are for reading and for tests. They drop fields they do not
//! know, so a message of a peer is never re-encoded with them.
//!
//! The features `client` and `server` add the tonic clients and servers, `v1alpha2` the
//! older package of the protocol.

/// Messages and services of package `runtime.v1`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    reason = "generated code"
)]
pub mod v1 {
    include!("gen/runtime_v1.rs");
}

/// Messages and services of package `runtime.v1alpha2`.
#[cfg(feature = "v1alpha2")]
#[allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    unreachable_pub,
    deprecated,
    clippy::all,
    reason = "generated code"
)]
pub mod v1alpha2 {
    include!("gen/runtime_v1alpha2.rs");
}
