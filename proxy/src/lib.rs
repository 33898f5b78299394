//! The CRI proxy.
