//! Decisions about intercepted CRI calls: what to ask hook servers and what to make of their answers.
//!
//! Pure: no sockets, no files, no clocks.

pub mod record;
