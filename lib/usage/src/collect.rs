//! Collectors: each reads some files of the kernel.
//!
//! A collector holds the files it reads open ([`mod@file`]), the counters it saw last ([`rate`]), and nothing else. [`text`] makes
//! figures of what was read; [`clock`] tells when; [`schedule`] tells whose turn it is where not everything is read in every
//! pass. The collectors are driven by [`crate::sampler::Sampler`].

pub mod best_effort;
pub mod clock;
pub mod cold_memory;
pub mod cpi;
pub mod devices;
pub mod facts;
#[cfg(test)]
pub(crate) mod fake;
pub mod file;
pub mod group;
pub mod host_applications;
pub mod node;
pub mod pods;
pub mod pressure;
pub mod rate;
pub mod resctrl;
pub mod schedule;
pub mod storage;
pub mod text;
