//! Koordinator's vocabulary: what a pod says about itself, what the scheduler answers, what a node says.
//!
//! All keys, JSON shapes and defaults are wire format, shared with Koordinator's own components (the facts
//! are those of its development branch in July 2026). Nothing here does I/O; every decision is a function
//! of its arguments.
//!
//! - [`keys`]: labels, annotations, resource names
//! - [`qos`], [`priority`], [`legality`]: the two classes of a pod, and which go together
//! - [`units`], [`quantity`], [`cpuset`], [`duration`], [`timestamp`]: numbers, sets and times
//! - [`annotation`]: typed annotations
//! - [`label`]: typed labels
//! - [`translation`]: native resources to batch and mid ones, devices, former names
//! - [`gates`]: feature gates

pub mod annotation;
pub mod cpuset;
pub mod duration;
pub mod gates;
pub mod json;
pub mod keys;
pub mod label;
pub mod legality;
pub mod priority;
pub mod qos;
pub mod quantity;
pub mod timestamp;
pub mod translation;
pub mod units;
