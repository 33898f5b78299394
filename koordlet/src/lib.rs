//! The node agent.
//!
//! It knows the node, its pods ([`pods`]) and the policies for it ([`state`]), takes samples of usage from the proxy's
//! stream ([`stream`]) or measures by itself ([`sampling`]; [`source`] chooses, [`intake`] takes both), and reports: to
//! Kubernetes ([`reporter`], [`topology`], with what [`predict`] has learnt), to Prometheus ([`metrics`], [`scrape`]) and
//! to operators ([`readiness`], [`admin`], [`dump`]).
//!
//! The command line is read by [`flags`], [`facts`] looks at the machine, [`serve`] puts everything together.
//!
//! Invariants:
//! - it ends by itself only when the flags cannot be used or the node has no name;
//! - what is known stays known while its source is away;
//! - a part that fails stops no other;
//! - both sources of samples give the same report.

pub mod admin;
pub mod dump;
pub mod facts;
pub mod flags;
pub mod intake;
pub mod metrics;
pub mod pods;
pub mod predict;
pub mod readiness;
pub mod reporter;
pub mod sampling;
pub mod scrape;
pub mod serve;
pub mod source;
pub mod state;
pub mod stream;
pub mod topology;
