//! Decisions about intercepted CRI calls: what hook servers are told, what follows from
//! their answers for the request, and what is remembered.
//!
//! Everything here is a function of its arguments. Nothing opens a file or a socket, reads
//! a clock or logs.

pub mod hook_type;
pub mod method;
pub mod record;

pub use hook_type::{HookSet, HookType};
pub use method::CriMethod;
pub use record::{Change, ContainerRecord, PodRecord};
