//! What a node agent reports of usage: the status of NodeMetric, and when it is written.
//!
//! - [`mod@policy`]: what the object's spec asks for, laid over the defaults
//! - [`mod@status`]: the status, computed from the windows of a [`Store`](koord_usage::store::Store)
//! - [`evidence`]: which samples stand behind each figure
//! - [`training`]: what the predictor learns from
//! - [`schedule`], [`deadband`], [`limiter`]: when a status is written, and when it need not be
//!
//! Nothing here does I/O or reads a clock. Rules are those of Koordinator's development branch of July 2026,
//! unless a comment says otherwise. A report with unknown figures differs from one with zeros: an unknown
//! usage is `{}`, and readers take it for unknown.
//!
//! The pod type is [`koord_prediction::pod::Pod`], here as [`Pod`].

pub mod deadband;
pub mod evidence;
pub mod limiter;
pub mod memory;
pub mod policy;
pub mod schedule;
pub mod status;
pub mod training;

pub use koord_prediction::pod::Pod;
pub use policy::Policy;
pub use status::{Report, View, report, status};
