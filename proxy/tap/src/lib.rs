//! Frame relay with a tap.
