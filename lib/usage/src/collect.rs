//! Collectors: each reads some files of the kernel.
//!
//! A collector holds the files it reads open, the counters it saw last, and nothing else. [`text`] makes figures of what was
//! read; [`clock`] tells when.

pub mod clock;
pub mod text;
