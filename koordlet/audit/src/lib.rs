//! The audit log of a node: what was done to it, its pods and groups of them, and why.
//!
//! [`event`] says what a record is, [`log`] keeps records in files of bounded size, [`reverse`] reads them newest first,
//! [`query`] is the HTTP interface as a function, [`readers`] remembers who has read how far, and [`auditor`] puts these
//! together. Files, JSON and the interface are those of Koordinator's koordlet, so that its clients work and its files
//! can be read.

pub mod auditor;
pub mod event;
pub mod log;
pub mod query;
pub mod readers;
pub mod reverse;

pub use auditor::{AuditOptions, Auditor};
pub use event::{Event, Subject};
