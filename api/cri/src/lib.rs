//! CRI protocol.
