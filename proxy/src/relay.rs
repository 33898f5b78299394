//! The relay between clients and the runtime: one thread and one connection to the runtime per client connection.
//!
//! Octets go through a [`koord_tap::Tap`]; calls that the [`Interceptor`] wants to see are handed to it. Its asynchronous
//! work runs on the async runtime and comes back to the connection's thread through a mailbox.

mod acceptor;
mod calls;
mod connection;
mod dial;
mod interceptor;
mod mailbox;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use koord_runtime::supervisor::Supervisor;
use koord_tap::Refusal;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::pipeline::BoxFuture;
use crate::process;

pub use acceptor::{Acceptor, AcceptorError};
pub use interceptor::{Begun, Interceptor, PassThrough};
use mailbox::{Mailbox, Message};

/// The service that may have a backend of its own, in both packages.
const IMAGE_SERVICES: [&str; 2] = ["/runtime.v1.ImageService/", "/runtime.v1alpha2.ImageService/"];

/// Which of two backends a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Runtime,
    Image,
}

impl Service {
    fn of(path: &str) -> Self {
        if IMAGE_SERVICES.iter().any(|service| path.starts_with(service)) {
            Self::Image
        } else {
            Self::Runtime
        }
    }
}

/// gRPC status UNAVAILABLE.
const UNAVAILABLE: u32 = 14;

/// How long ended connections get to send their last octets.
const LAST_OCTETS: Duration = Duration::from_secs(2);

/// Decides which `:path` is relayed at all.
pub type PathFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Settings of a relay.
#[derive(Clone)]
pub struct RelayOptions {
    /// Socket of the runtime.
    pub backend: PathBuf,
    /// Socket of the image service, where it is another one. A connection is bound to one of the two by its first call.
    pub image_backend: Option<PathBuf>,
    /// How long a client's first call waits for a missing runtime.
    pub backend_wait: Duration,
    /// Largest held message, in bytes.
    pub max_message_bytes: usize,
    /// Calls outside are answered PERMISSION_DENIED; `None` relays everything.
    pub filter: Option<PathFilter>,
}

impl std::fmt::Debug for RelayOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RelayOptions")
            .field("backend", &self.backend)
            .field("image_backend", &self.image_backend)
            .field("backend_wait", &self.backend_wait)
            .field("max_message_bytes", &self.max_message_bytes)
            .field("filtered", &self.filter.is_some())
            .finish()
    }
}

/// The relay; clones share it.
#[derive(Debug)]
pub struct Relay<I: Interceptor> {
    shared: Arc<Shared<I>>,
}

impl<I: Interceptor> Clone for Relay<I> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// What all connections share.
struct Shared<I: Interceptor> {
    options: RelayOptions,
    interceptor: Arc<I>,
    metrics: Metrics,
    supervisor: Supervisor,
    connections: Mutex<HashMap<u64, Arc<Mailbox<I::Call>>>>,
    next_connection: AtomicU64,
    streams: AtomicUsize,
    /// Whether a connection to the runtime was lost since one was last made.
    backend_lost: AtomicBool,
    open: watch::Sender<usize>,
    /// Set once a drain has begun: connections that come later drain at once.
    draining: AtomicBool,
}

impl<I: Interceptor> std::fmt::Debug for Shared<I> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<I: Interceptor> Shared<I> {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mailbox<I::Call>>>> {
        // The map is consistent between statements, so a panic elsewhere does not spoil it.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<I: Interceptor> Relay<I> {
    /// A relay without connections.
    pub fn new(options: RelayOptions, interceptor: Arc<I>, metrics: Metrics, supervisor: Supervisor) -> Self {
        let shared = Shared {
            options,
            interceptor,
            metrics,
            supervisor,
            connections: Mutex::default(),
            next_connection: AtomicU64::new(1),
            streams: AtomicUsize::new(0),
            backend_lost: AtomicBool::new(false),
            open: watch::Sender::new(0),
            draining: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Client connections open now.
    pub fn connections(&self) -> usize {
        *self.shared.open.borrow()
    }

    fn tell_all(&self, message: impl Fn() -> Message<I::Call>) {
        for mailbox in self.shared.connections().values() {
            mailbox.send(message());
        }
    }

    /// Connections whose threads have not answered since they were asked last. Asks all of them anew.
    fn silent_connections(&self) -> Vec<u64> {
        let mut silent = Vec::new();
        for (id, mailbox) in self.shared.connections().iter() {
            if mailbox.is_silent() {
                silent.push(*id);
            }
            mailbox.ask();
        }
        silent.sort_unstable();
        silent
    }

    /// Calls in flight.
    pub fn active_streams(&self) -> usize {
        self.shared.streams.load(Ordering::Relaxed)
    }

    /// Asks all clients to go elsewhere and resolves when no connection is left. What remains at `deadline` is ended with
    /// UNAVAILABLE.
    pub async fn drain(&self, deadline: Instant) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.tell_all(|| Message::Drain);
        if tokio::time::timeout_at(deadline.into(), self.until_empty()).await.is_ok() {
            return;
        }
        tracing::info!(
            connections = self.connections(),
            streams = self.active_streams(),
            "ending what is left"
        );
        let refusal =
            Refusal { code: UNAVAILABLE, message: "koord-runtime-proxy is shutting down".to_owned() };
        self.tell_all(|| Message::End(refusal.clone()));
        if tokio::time::timeout(LAST_OCTETS, self.until_empty()).await.is_err() {
            tracing::warn!(connections = self.connections(), "connections left open at the end");
        }
    }

    async fn until_empty(&self) {
        let mut open = self.shared.open.subscribe();
        // The sender lives as long as `self`.
        let _ = open.wait_for(|open| *open == 0).await;
    }
}

/// A relay and its acceptor, as the process's life needs them.
#[derive(Debug)]
pub struct Serving<I: Interceptor> {
    /// The relay.
    pub relay: Relay<I>,
    /// What feeds it.
    pub acceptor: Acceptor,
}

impl<I: Interceptor> Serving<I> {
    /// Names the threads that gave no sign of life since the last call, and asks all of them for the next.
    pub fn silent(&self) -> Vec<String> {
        let acceptor = self.acceptor.is_silent().then(|| "the acceptor".to_owned());
        self.acceptor.ask();
        let connections = self.relay.silent_connections();
        acceptor.into_iter().chain(connections.into_iter().map(|id| format!("connection {id}"))).collect()
    }
}

impl<I: Interceptor> process::Relay for Serving<I> {
    fn stop_accepting(&self) {
        self.acceptor.pause();
    }

    fn resume_accepting(&self) {
        self.acceptor.resume();
    }

    fn drain(&self, deadline: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            self.relay.drain(deadline).await;
            self.acceptor.end();
        })
    }

    fn active_streams(&self) -> usize {
        self.relay.active_streams()
    }
}

/// Text of the status when the runtime cannot be reached, as Go's client words it.
fn unreachable_message(path: &std::path::Path, error: &std::io::Error) -> String {
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    format!(
        "connection error: desc = \"transport: Error while dialing: dial unix {}: connect: {reason}\"",
        path.display()
    )
}

/// What an asynchronous half of a call leaves on the runtime: dropping the sender ends it.
type Cancel = tokio::sync::oneshot::Sender<()>;

/// Runs `work` on the async runtime until it is done or the returned handle is dropped.
fn spawn<I: Interceptor>(shared: &Shared<I>, name: &'static str, work: BoxFuture<()>) -> Cancel {
    let (cancel, cancelled) = tokio::sync::oneshot::channel::<()>();
    shared.supervisor.spawn_once(name, async move {
        tokio::select! {
            biased;
            () = work => {}
            _ = cancelled => {}
        }
        Ok(())
    });
    cancel
}
