//! Process machinery that every program of the product shares.
//!
//! A program's `main` captures the [`environment`], sets up [`telemetry`], builds a
//! [`supervisor::Supervisor`] that owns every task and thread, moves its [`life::Life`] through the
//! phases, tells systemd about them ([`notify`]), serves the [`admin`] endpoints and ends through
//! [`shutdown`].
//!
//! Invariants:
//! - nothing here is global except what the operating system makes global (signals, the panic hook,
//!   the tracing subscriber); each of those is installed by one call from `main`;
//! - the supervisor is the only place that starts tasks and threads;
//! - only [`environment::Environment::from_process`] reads environment variables, and only `main`
//!   calls it;
//! - no unsafe code: file descriptors cross process borders through owned types only.

pub mod admin;
pub mod command_line;
pub mod descriptors;
pub mod environment;
pub mod environment_file;
pub mod error_chain;
pub mod exit;
mod journal;
pub mod life;
pub mod metrics;
pub mod notify;
pub mod shutdown;
pub mod signals;
pub mod supervisor;
pub mod telemetry;
pub mod unix_socket;
pub mod yaml;

pub use koord_extension::duration;
pub use tokio_util::sync::CancellationToken;
