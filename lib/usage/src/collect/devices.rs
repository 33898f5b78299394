//! Devices that pods ask for: what is there, and whether it works.
//!
//! - [`xpu`]: accelerators that their vendors' programs describe in files;
//! - [`rdma`]: network functions with remote direct memory access, found in sysfs.

pub mod rdma;
pub mod xpu;
