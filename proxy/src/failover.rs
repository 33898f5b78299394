//! Rebuilding the store from the runtime: after a start, after a loss of the runtime, and for one object that
//! is asked for and unknown.

pub mod layout;
pub mod status;
