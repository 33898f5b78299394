//! The one place that starts tasks and threads.
//!
//! Every task and thread has a name, runs inside a span that carries it, gets a cancellation token
//! and has a rule for its end. A panic is caught, reported and handled by that rule; it is never
//! lost and never takes the process down by itself.

mod backoff;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::error_chain::Chain;
pub use backoff::Backoff;

/// What a task ends with when it does not end well.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// What a task returns.
pub type TaskResult = Result<(), TaskError>;

/// What happens when a long-lived task or thread ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// A panic or an error is reported; nothing else happens.
    Report,
    /// After a panic or an error it is started again, after a pause. A good end is an end.
    Restart(Backoff),
    /// The process cannot go on without it: any end that was not asked for is a failure of the
    /// process, see [`Supervisor::failed`].
    EndProcess,
}

/// The failure that should end the process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("essential task {task} ended: {reason}")]
pub struct Failure {
    /// The task's name.
    pub task: String,
    /// Its error, its panic message, or that it ended without either.
    pub reason: String,
}

/// A thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start thread {name}")]
pub struct SpawnError {
    /// The thread's name.
    pub name: String,
    /// What the operating system said.
    #[source]
    pub source: std::io::Error,
}

/// Settings of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadOptions {
    /// Stack size in bytes. Only touched pages count as used memory.
    pub stack_bytes: usize,
    /// Whether an end that was not asked for ends the process.
    pub essential: bool,
}

impl Default for ThreadOptions {
    /// 256 KiB of stack, not essential: fit for one of many connection threads.
    fn default() -> ThreadOptions {
        ThreadOptions { stack_bytes: 256 * 1024, essential: false }
    }
}

/// What is known of a running task or thread.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TaskStatus {
    /// Its name.
    pub name: String,
    /// True for a thread, false for a task.
    pub thread: bool,
    /// How often it was started again.
    pub restarts: u64,
    /// Seconds since it was first started.
    pub age_seconds: u64,
    /// Its last error or panic, if it was started again after one.
    pub last_error: Option<String>,
}

/// Owner of all tasks and threads of a process. Clones share one supervisor.
#[derive(Debug, Clone)]
pub struct Supervisor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runtime: tokio::runtime::Handle,
    token: CancellationToken,
    entries: Mutex<BTreeMap<u64, Entry>>,
    next: AtomicU64,
    running: watch::Sender<usize>,
    failure: watch::Sender<Option<Failure>>,
    panics: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    name: Cow<'static, str>,
    thread: bool,
    started: Instant,
    restarts: u64,
    last_error: Option<String>,
    abort: Option<tokio::task::AbortHandle>,
}

/// Handle on one task. Dropping it leaves the task running.
#[derive(Debug)]
pub struct TaskHandle {
    token: CancellationToken,
    join: tokio::task::JoinHandle<()>,
}

impl TaskHandle {
    /// Asks the task to end.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Waits for the task's end. Its outcome has been handled by its policy by then.
    pub async fn finished(self) {
        if let Err(error) = self.join.await
            && !error.is_cancelled()
        {
            tracing::error!(error = %error, "supervised task failed outside its guard");
        }
    }
}

/// Removes the entry of a task or thread when it ends, however it ends.
struct Registration {
    inner: Arc<Inner>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.inner.entries().remove(&self.id);
        self.inner.running.send_modify(|running| *running -= 1);
    }
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        // The map is consistent between statements, so a panic elsewhere does not spoil it.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(self: &Arc<Self>, name: Cow<'static, str>, thread: bool) -> Registration {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let entry =
            Entry { name, thread, started: Instant::now(), restarts: 0, last_error: None, abort: None };
        self.entries().insert(id, entry);
        self.running.send_modify(|running| *running += 1);
        Registration { inner: Arc::clone(self), id }
    }

    fn fail(&self, task: &str, reason: String) {
        tracing::error!(task, reason, "essential task ended");
        self.failure.send_if_modified(|failure| {
            // The first failure is the cause; later ones are its consequences.
            let first = failure.is_none();
            if first {
                *failure = Some(Failure { task: task.to_owned(), reason });
            }
            first
        });
    }
}

/// How one run of a task ended.
enum End {
    Good,
    Bad(String),
}

impl Supervisor {
    /// A supervisor whose tasks run on `runtime`.
    pub fn new(runtime: tokio::runtime::Handle) -> Supervisor {
        Supervisor {
            inner: Arc::new(Inner {
                runtime,
                token: CancellationToken::new(),
                entries: Mutex::default(),
                next: AtomicU64::new(0),
                running: watch::Sender::new(0),
                failure: watch::Sender::new(None),
                panics: AtomicU64::new(0),
            }),
        }
    }

    /// Starts a long-lived task. `make` builds its future, again for each restart.
    pub fn spawn<F, Fut>(&self, name: impl Into<Cow<'static, str>>, policy: Policy, make: F) -> TaskHandle
    where
        F: FnMut(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        let name = name.into();
        let token = self.inner.token.child_token();
        let registration = self.inner.register(name.clone(), false);
        let id = registration.id;
        let span = tracing::info_span!("task", task = %name);
        let task = supervise(registration, name, policy, token.clone(), make).instrument(span);
        self.start(id, token, task)
    }

    /// Starts a task that runs once. `future` must end by itself; when the supervisor shuts down it
    /// is given the time of the deadline and then dropped.
    pub fn spawn_once<Fut>(&self, name: impl Into<Cow<'static, str>>, future: Fut) -> TaskHandle
    where
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        let name = name.into();
        let token = self.inner.token.child_token();
        let registration = self.inner.register(name.clone(), false);
        let id = registration.id;
        let span = tracing::debug_span!("task", task = %name);
        let task = async move {
            if let End::Bad(reason) = end_of(&registration.inner, future).await {
                tracing::warn!(task = %name, reason, "task failed");
            }
            drop(registration);
        };
        self.start(id, token, task.instrument(span))
    }

    fn start(
        &self,
        id: u64,
        token: CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> TaskHandle {
        let join = self.inner.runtime.spawn(task);
        if let Some(entry) = self.inner.entries().get_mut(&id) {
            entry.abort = Some(join.abort_handle());
        }
        TaskHandle { token, join }
    }

    /// Starts a thread. The body must watch its token, or be woken by its owner, to end early.
    ///
    /// # Errors
    /// The operating system refused another thread.
    pub fn thread<F>(
        &self,
        name: impl Into<Cow<'static, str>>,
        options: ThreadOptions,
        body: F,
    ) -> Result<(), SpawnError>
    where
        F: FnOnce(CancellationToken) -> TaskResult + Send + 'static,
    {
        let name = name.into();
        let token = self.inner.token.child_token();
        let registration = self.inner.register(name.clone(), true);
        let thread_name = name.clone().into_owned();
        std::thread::Builder::new()
            .name(name.clone().into_owned())
            .stack_size(options.stack_bytes)
            .spawn(move || {
                let inner = Arc::clone(&registration.inner);
                let span = tracing::debug_span!("thread", thread = %thread_name);
                let _entered = span.enter();
                let asked = token.clone();
                let end = match std::panic::catch_unwind(AssertUnwindSafe(move || body(token))) {
                    Ok(Ok(())) => End::Good,
                    Ok(Err(error)) => End::Bad(Chain(&*error).to_string()),
                    Err(payload) => End::Bad(inner.panicked(&*payload)),
                };
                match end {
                    _ if options.essential && !asked.is_cancelled() => {
                        inner.fail(&thread_name, end.into_reason());
                    }
                    End::Bad(reason) => tracing::warn!(thread = %thread_name, reason, "thread failed"),
                    End::Good => {}
                }
                drop(registration);
            })
            .map(|_detached| ())
            .map_err(|source| SpawnError { name: name.into_owned(), source })
    }

    /// A token that is cancelled when the supervisor shuts down.
    pub fn token(&self) -> CancellationToken {
        self.inner.token.child_token()
    }

    /// The runtime that tasks run on.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.inner.runtime
    }

    /// Waits for the first end of an essential task or thread that was not asked for.
    pub async fn failed(&self) -> Failure {
        let mut receiver = self.inner.failure.subscribe();
        loop {
            if let Some(failure) = receiver.borrow_and_update().clone() {
                return failure;
            }
            if receiver.changed().await.is_err() {
                // The sender lives in `self`; this cannot happen, and waiting is the safe answer.
                std::future::pending::<()>().await;
            }
        }
    }

    /// How many panics were caught so far.
    pub fn panics(&self) -> u64 {
        self.inner.panics.load(Ordering::Relaxed)
    }

    /// How many tasks and threads run now.
    pub fn running(&self) -> usize {
        *self.inner.running.borrow()
    }

    /// What runs now, in the order of starting.
    pub fn status(&self) -> Vec<TaskStatus> {
        let entries = self.inner.entries();
        entries
            .values()
            .map(|entry| TaskStatus {
                name: entry.name.clone().into_owned(),
                thread: entry.thread,
                restarts: entry.restarts,
                age_seconds: entry.started.elapsed().as_secs(),
                last_error: entry.last_error.clone(),
            })
            .collect()
    }

    /// Asks everything to end and waits at most `limit`. Tasks still running then are dropped.
    /// Returns the names of what did not end in time; threads among them keep running until the
    /// process ends.
    pub async fn shut_down(&self, limit: Duration) -> Vec<String> {
        self.inner.token.cancel();
        let mut running = self.inner.running.subscribe();
        if tokio::time::timeout(limit, running.wait_for(|count| *count == 0)).await.is_ok() {
            return Vec::new();
        }
        let entries = self.inner.entries();
        for abort in entries.values().filter_map(|entry| entry.abort.as_ref()) {
            abort.abort();
        }
        entries.values().map(|entry| entry.name.clone().into_owned()).collect()
    }
}

impl End {
    fn into_reason(self) -> String {
        match self {
            End::Good => "it returned".to_owned(),
            End::Bad(reason) => reason,
        }
    }
}

impl Inner {
    fn panicked(&self, payload: &(dyn Any + Send)) -> String {
        self.panics.fetch_add(1, Ordering::Relaxed);
        format!("panic: {}", panic_message(payload))
    }
}

/// The text of a caught panic.
pub fn panic_message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "unknown payload"
    }
}

async fn end_of(inner: &Inner, future: impl Future<Output = TaskResult>) -> End {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(Ok(())) => End::Good,
        Ok(Err(error)) => End::Bad(Chain(&*error).to_string()),
        Err(payload) => End::Bad(inner.panicked(&*payload)),
    }
}

async fn supervise<F, Fut>(
    registration: Registration,
    name: Cow<'static, str>,
    policy: Policy,
    token: CancellationToken,
    mut make: F,
) where
    F: FnMut(CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = TaskResult> + Send + 'static,
{
    let inner = Arc::clone(&registration.inner);
    let mut failures_in_a_row = 0;
    loop {
        let started = tokio::time::Instant::now();
        // The closure is called inside the guard: it may panic as well.
        let end = end_of(&inner, async { make(token.clone()).await }).await;
        if token.is_cancelled() {
            if let End::Bad(reason) = end {
                tracing::warn!(reason, "task failed while ending");
            }
            break;
        }
        match (policy, end) {
            (Policy::EndProcess, end) => {
                inner.fail(&name, end.into_reason());
                break;
            }
            (_, End::Good) => break,
            (Policy::Report, End::Bad(reason)) => {
                tracing::error!(reason, "task failed");
                break;
            }
            (Policy::Restart(backoff), End::Bad(reason)) => {
                if started.elapsed() >= backoff.reset_after {
                    failures_in_a_row = 0;
                }
                let pause = backoff.pause(failures_in_a_row, backoff::random_unit());
                failures_in_a_row += 1;
                tracing::error!(
                    reason,
                    pause_ms = pause.as_secs_f64() * 1e3,
                    "task failed, starting it again"
                );
                if let Some(entry) = inner.entries().get_mut(&registration.id) {
                    entry.restarts += 1;
                    entry.last_error = Some(reason);
                }
                tokio::select! {
                    () = token.cancelled() => break,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
    drop(registration);
}
