//! The Container Runtime Interface: messages of the protocol, and tools to look into and
//! change the messages of a peer without losing anything in them.
//!
//! The messages of [`v1`] are for own calls and for tests. They drop fields they do not
//! know, so a message of a peer is never re-encoded with them: [`view`] reads it and
//! [`edit`] changes it in its bytes.
//!
//! The features `client` and `server` add the tonic clients and servers, `v1alpha2` the
//! older package of the protocol.

pub mod edit;
pub mod view;
pub mod wire;

/// Messages and services of package `runtime.v1`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    rustdoc::all,
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
    rustdoc::all,
    reason = "generated code"
)]
pub mod v1alpha2 {
    include!("gen/runtime_v1alpha2.rs");
}
