//! The API server of Kubernetes, as the product's programs use it.
//!
//! - [`client`]: where the server is and who we are, the limit of requests, and a client that starts and works on
//!   while the server is away;
//! - [`resource`]: objects of custom resources, known by group, version and kind at run time;
//! - [`access`]: reading and writing one kind of object, with the ways of writing that fit several writers;
//! - [`watch`]: the newest state of one object, or of a selected set, for readers that never wait;
//! - [`election`]: one leader of several candidates, by a Lease;
//! - [`events`]: Events about objects, which never hold up their author;
//! - [`kubelet`]: the HTTP endpoints of a kubelet;
//! - [`limit`], [`observe`], [`token`]: layers of the client, of use on their own;
//! - [`error`], [`retry`]: what fails and when it is tried again.
//!
//! Invariants:
//! - an object that is not there is a value, never an error;
//! - nothing here starts a task: a watch, an election and a recorder have a `run` that the program's supervisor runs;
//! - every request has a time limit, and every queue a length;
//! - no environment variable is read; what a pod is given comes in as values.

pub mod access;
pub mod client;
pub mod election;
pub mod error;
pub mod events;
pub mod kubelet;
pub mod limit;
pub mod observe;
pub mod resource;
pub mod retry;
pub mod token;
mod transport;
pub mod watch;

pub use access::{Access, Written};
pub use client::{ClientOptions, Source, connect};
pub use error::{ApiError, Failure, Verb};
pub use k8s_openapi;
pub use kube;
pub use resource::{Object, Plain};
pub use watch::Observed;
