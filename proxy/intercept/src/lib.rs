//! Decisions about intercepted CRI calls: what hook servers are told, what follows from
//! their answers for the request, and what is remembered.
//!
//! Everything here is a function of its arguments. Nothing opens a file or a socket, reads
//! a clock or logs.

pub mod compression;
pub mod merge;
pub mod method;
mod patch;
pub mod record;
pub mod request;
pub mod resource_patch;
pub mod shared_map;
pub mod skip;
pub mod working;

pub use koord_hook::stage as hook_type;
pub use koord_hook::stage::{HookSet, HookType};
pub use merge::{Ignored, ResourceMerge, ServerOptions, UpdateScope};
pub use method::CriMethod;
pub use record::{Change, ContainerRecord, PodRecord};
pub use request::{Known, Subject};
pub use resource_patch::ResourcePatch;
pub use shared_map::SharedMap;
pub use skip::SkipRule;
pub use working::{AnswerError, HookAnswer, Stage, Working};
