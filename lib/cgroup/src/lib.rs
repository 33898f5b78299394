//! Control groups of Linux, as pods and containers have them.
//!
//! - [`version`], [`driver`], [`layout`]: what a node has: version 1, version 2 or both, who makes the groups, and where.
//! - [`path`]: groups of classes, pods and containers, with names as kubelet and runtimes make them; unsafe ones are refused.
//! - [`resource`], [`value`], [`weight`], [`io`]: every file, what it takes and how its text reads.
//! - [`executor`]: the one ordered writer; [`memory_limit`] lowers a limit below what is in use.
//! - [`resctrl`]: cache and memory bandwidth, which are divided outside of control groups.
//! - [`stat`], [`oom`], [`systemd`], [`system_file`]: figures, processes' scores, units' properties, files of the node.

pub mod driver;
pub mod error;
pub mod executor;
pub mod files;
pub mod io;
pub mod layout;
pub mod memory_limit;
pub mod oom;
pub mod path;
pub mod resctrl;
pub mod resource;
pub mod stat;
pub mod system_file;
pub mod systemd;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod value;
pub mod version;
pub mod weight;

pub use error::CgroupError;
