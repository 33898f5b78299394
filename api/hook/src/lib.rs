//! Runtime hook protocol.
