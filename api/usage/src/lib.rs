//! What pods of a node use, as one program of the node tells others.
//!
//! Package `koord.usage.v1`, service `UsageService`. A client asks once and gets a stream: who is measured, then one pass
//! for each tick with the samples of all of them. Series are named once and are numbers from then on, so a sample takes
//! about ten octets.
//!
//! The features `client` and `server` add the tonic client and server.

/// Messages and service of package `koord.usage.v1`.
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
    include!("gen/usage_v1.rs");
}

#[cfg(test)]
mod tests;
