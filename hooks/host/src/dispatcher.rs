//! Calls hook servers: one connection per endpoint, bounded in time, skipped while they hang.

pub mod breaker;
pub mod budget;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::{Code, Status};

use crate::chain::{Carrier, Entry, Snapshot};
use crate::endpoint::Endpoint;
use crate::library::Plugin;
use crate::metrics::{HookMetrics, HookResult};
use crate::registration::{FailurePolicy, Server, Table};
use crate::trust::Trust;
use crate::unix_channel::{DEFAULT_MESSAGE_LIMIT, UnixChannel, go_error_text};
use koord_hook::HookType;

use breaker::{Admission, Breaker, CallEnd};

/// One warning per server in this time.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A server that had less time than this and missed it says nothing about whether it hangs.
const SHORTEST_TELLING_TIME: Duration = Duration::from_millis(100);

/// A hook that can be called: an entry of the chain, or a server by itself.
pub trait Callee {
    /// The name of its file.
    fn name(&self) -> &str;

    /// What its failure means.
    fn failure_policy(&self) -> FailurePolicy;

    /// How it is reached.
    fn way(&self) -> Way<'_>;
}

/// How a hook is reached.
#[derive(Debug, Clone, Copy)]
pub enum Way<'a> {
    /// Not by a call: the program runs its own rules itself.
    BuiltIn,
    /// A library.
    Library(&'a Plugin),
    /// A server.
    Remote(&'a Endpoint),
}

impl Callee for Entry {
    fn name(&self) -> &str {
        &self.name
    }

    fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    fn way(&self) -> Way<'_> {
        match &self.carrier {
            Carrier::BuiltIn => Way::BuiltIn,
            Carrier::Library(plugin) => Way::Library(plugin),
            Carrier::Remote(endpoint) => Way::Remote(endpoint),
        }
    }
}

impl Callee for Server {
    fn name(&self) -> &str {
        &self.name
    }

    fn failure_policy(&self) -> FailurePolicy {
        self.registration.failure_policy
    }

    fn way(&self) -> Way<'_> {
        Way::Remote(&self.registration.endpoint)
    }
}

impl<C: Callee> Callee for Arc<C> {
    fn name(&self) -> &str {
        C::name(self)
    }

    fn failure_policy(&self) -> FailurePolicy {
        C::failure_policy(self)
    }

    fn way(&self) -> Way<'_> {
        C::way(self)
    }
}

/// Why a hook gave no answer that can be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HookError {
    /// The server has timed out again and again and is left alone for a while.
    #[error("skipped after {} timeouts in a row", breaker::TIMEOUTS_TO_OPEN)]
    Skipped,
    /// The call failed; printed as Go's client prints it.
    #[error("{}", go_error_text(.0))]
    Call(Status),
}

impl HookError {
    /// The label value for `hook_fail_open_total`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Skipped => "breaker",
            Self::Call(status) => match status.code() {
                Code::DeadlineExceeded => "timeout",
                Code::Unavailable => "unavailable",
                Code::ResourceExhausted => "size",
                Code::Internal => "decode",
                _ => "error",
            },
        }
    }
}

#[derive(Debug, Default)]
struct ServerState {
    breaker: Breaker,
    /// Of the library the breaker knows; 0 for a server.
    generation: u64,
    last_warning: Option<Instant>,
    suppressed_warnings: u64,
    calls: u64,
    errors: u64,
}

/// How the calls of one hook went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCounts {
    /// Calls made.
    pub calls: u64,
    /// Calls of these that failed.
    pub errors: u64,
    /// Whether calls are skipped now, because several in a row took too long.
    pub skipped: bool,
}

/// The connections to hook servers and what is remembered of each server.
#[derive(Debug)]
pub struct Dispatcher {
    trust: Trust,
    metrics: Arc<dyn HookMetrics>,
    channels: Mutex<HashMap<Endpoint, Arc<UnixChannel>>>,
    servers: Mutex<HashMap<String, ServerState>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dispatcher {
    /// Connects only to sockets of trusted users.
    pub fn new(trust: Trust, metrics: impl HookMetrics) -> Self {
        Self { trust, metrics: Arc::new(metrics), channels: Mutex::default(), servers: Mutex::default() }
    }

    /// Calls one server; `decode` makes its answer of the bytes of the message.
    ///
    /// `within` covers connecting and the call.
    ///
    /// # Errors
    ///
    /// [`HookError`]; what follows from it is the caller's to decide by the server's policy.
    pub async fn call<A>(
        &self,
        server: &impl Callee,
        hook: HookType,
        request: Bytes,
        within: Duration,
        decode: impl FnOnce(&[u8]) -> Result<A, Status>,
    ) -> Result<A, HookError> {
        let policy = server.failure_policy();
        let mut attempt = self.admit(server, policy, within)?;
        let started = Instant::now();
        let answer = if within.is_zero() {
            Err(Status::deadline_exceeded("context deadline exceeded"))
        } else {
            let answer = match server.way() {
                Way::Remote(endpoint) => {
                    let channel = self.channel(endpoint);
                    channel.unary(hook.grpc_path(), request, DEFAULT_MESSAGE_LIMIT, within).await
                }
                Way::Library(plugin) => plugin.call(hook, request, within).await,
                Way::BuiltIn => Err(Status::unimplemented("the built-in rules are not reached by a call")),
            };
            answer.and_then(|bytes| decode(&bytes))
        };
        let result = match &answer {
            Ok(_) => HookResult::Ok,
            Err(status) if status.code() == Code::DeadlineExceeded => HookResult::Timeout,
            Err(_) => HookResult::Error,
        };
        attempt.end = match result {
            HookResult::Timeout if within < SHORTEST_TELLING_TIME => CallEnd::Cancelled,
            HookResult::Timeout => CallEnd::TimedOut,
            HookResult::Ok | HookResult::Error => CallEnd::Prompt,
        };
        {
            let mut servers = locked(&self.servers);
            if let Some(state) = servers.get_mut(server.name()) {
                state.calls += 1;
                state.errors += u64::from(answer.is_err());
            } else {
                let state =
                    ServerState { calls: 1, errors: u64::from(answer.is_err()), ..Default::default() };
                servers.insert(server.name().to_owned(), state);
            }
        }
        self.metrics.hook_called(server.name(), hook, result, policy, started.elapsed());
        answer.map_err(HookError::Call)
    }

    /// Logs a failed hook of a call that goes on, at most once per server in ten seconds, and counts it.
    pub fn failed_open(&self, server: &impl Callee, hook: HookType, error: &HookError) {
        self.metrics.hook_fail_open(hook, error.reason());
        let now = Instant::now();
        let suppressed = {
            let mut servers = locked(&self.servers);
            let state = servers.entry(server.name().to_owned()).or_default();
            if state.last_warning.is_some_and(|last| now.duration_since(last) < WARNING_INTERVAL) {
                state.suppressed_warnings += 1;
                return;
            }
            state.last_warning = Some(now);
            std::mem::take(&mut state.suppressed_warnings)
        };
        tracing::warn!(
            server = server.name(),
            hook = hook.as_str(),
            %error,
            suppressed,
            "hook failed, the call goes on without it"
        );
    }

    /// Drops connections and memories of servers that are not in `table`; calls under way finish.
    pub fn retain(&self, table: &Table) {
        locked(&self.channels).retain(|endpoint, _| {
            table.servers().iter().any(|server| server.registration.endpoint == *endpoint)
        });
        locked(&self.servers).retain(|name, _| table.servers().iter().any(|server| server.name == *name));
    }

    /// Drops connections and memories of hooks that are not in `snapshot`; calls under way finish.
    pub fn retain_chain(&self, snapshot: &Snapshot) {
        locked(&self.channels).retain(|endpoint, _| {
            snapshot
                .entries()
                .iter()
                .any(|entry| matches!(&entry.carrier, Carrier::Remote(remote) if remote == endpoint))
        });
        locked(&self.servers).retain(|name, _| snapshot.entries().iter().any(|entry| entry.name == *name));
    }

    /// How the calls of a hook went since it was first called.
    pub fn counts(&self, name: &str) -> CallCounts {
        let servers = locked(&self.servers);
        let Some(state) = servers.get(name) else { return CallCounts::default() };
        CallCounts { calls: state.calls, errors: state.errors, skipped: state.breaker.is_open() }
    }

    /// How many connections are kept.
    pub fn connections(&self) -> usize {
        locked(&self.channels).len()
    }

    fn channel(&self, endpoint: &Endpoint) -> Arc<UnixChannel> {
        locked(&self.channels)
            .entry(endpoint.clone())
            .or_insert_with(|| Arc::new(UnixChannel::new(endpoint.clone()).with_trust(self.trust)))
            .clone()
    }

    /// A server under `Fail` is always asked: skipping it would fail calls it might serve.
    fn admit(
        &self,
        server: &impl Callee,
        policy: FailurePolicy,
        within: Duration,
    ) -> Result<Attempt<'_>, HookError> {
        let admission = match policy {
            FailurePolicy::Fail => Admission::Call,
            // No time left: nothing can be learnt, so this must not become the probe.
            FailurePolicy::Ignore if within.is_zero() => Admission::Call,
            FailurePolicy::Ignore => {
                let generation = match server.way() {
                    Way::Library(plugin) => plugin.generation(),
                    Way::BuiltIn | Way::Remote(_) => 0,
                };
                let mut servers = locked(&self.servers);
                let state = servers.entry(server.name().to_owned()).or_default();
                if state.generation != generation {
                    // Another library: what hung is gone.
                    *state = ServerState { generation, ..ServerState::default() };
                }
                state.breaker.admit(Instant::now())
            }
        };
        if admission == Admission::Skip {
            return Err(HookError::Skipped);
        }
        let counts = policy == FailurePolicy::Ignore;
        Ok(Attempt {
            dispatcher: self,
            server: counts.then(|| server.name().to_owned()),
            admission,
            end: CallEnd::Cancelled,
        })
    }
}

/// Tells the breaker how a call ended, also when its future is dropped.
struct Attempt<'a> {
    dispatcher: &'a Dispatcher,
    server: Option<String>,
    admission: Admission,
    end: CallEnd,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Some(name) = &self.server else { return };
        let opened = match locked(&self.dispatcher.servers).get_mut(name) {
            Some(state) => state.breaker.ended(Instant::now(), self.admission, self.end),
            None => false,
        };
        if opened {
            tracing::warn!(
                server = name,
                seconds = breaker::OPEN_FOR.as_secs(),
                "hook server does not answer, its calls are skipped"
            );
        }
    }
}

#[cfg(test)]
mod tests;
