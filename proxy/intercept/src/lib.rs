//! Decisions about intercepted calls.
