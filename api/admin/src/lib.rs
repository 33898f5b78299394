//! JSON of the proxy's endpoints about QoS, shared by the proxy (which answers) and `koordctl` (which asks).
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /qos/status` | | [`NodeStatus`] |
//! | `GET /qos/pods` | | list of [`PodEntry`]; `?pod=TEXT` keeps what [`select`](selection::select) finds |
//! | `GET /qos/hooks` | | list of [`HookEntry`], in the order hooks are asked |
//! | `POST /qos/mode` | [`ModeChange`] | [`NodeStatus`] after the change |
//! | `POST /restore` | | [`RestoreReport`]; the proxy goes to mode `off` |
//!
//! A refused request is answered with 4xx or 5xx and an [`ErrorBody`]. Keys are written in camelCase. A reader
//! ignores keys it does not know, so a program may be newer than its peer. Nothing here does I/O.

pub mod hooks;
pub mod mode;
pub mod pods;
pub mod query;
pub mod restore;
pub mod selection;
pub mod status;
pub mod usage;

use serde::{Deserialize, Serialize};

pub use hooks::{HookCarrier, HookEntry, HookState, LibraryMode};
pub use koord_extension::timestamp::Timestamp;
pub use mode::{Mode, ModeChange, UnknownMode};
pub use pods::{ContainerEntry, ContainerState, FieldEntry, PodEntry, Problem};
pub use restore::{RestoreFailure, RestoreReport};
pub use status::{Backend, CgroupStatus, Counts, NodeStatus, PolicyState, PolicyStatus, RuntimeStatus};

/// Paths of the endpoints.
pub mod path {
    /// State of the node: [`NodeStatus`](crate::NodeStatus).
    pub const STATUS: &str = "/qos/status";
    /// Pods and their values: list of [`PodEntry`](crate::PodEntry).
    pub const PODS: &str = "/qos/pods";
    /// Hooks in the order they are asked: list of [`HookEntry`](crate::HookEntry).
    pub const HOOKS: &str = "/qos/hooks";
    /// Takes a [`ModeChange`](crate::ModeChange).
    pub const MODE: &str = "/qos/mode";
    /// Puts back what the kubelet asked for: [`RestoreReport`](crate::RestoreReport).
    pub const RESTORE: &str = "/restore";
}

/// Body of an answer with a status of 4xx or 5xx: `{"error": "pods are not known yet"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong, in one sentence, with the value that was refused and what is accepted.
    pub error: String,
}
