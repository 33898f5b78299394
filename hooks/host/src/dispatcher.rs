//! Calls hook servers: one connection per endpoint, bounded in time, skipped while they hang.

pub mod breaker;
pub mod budget;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::{Code, Status};

use crate::endpoint::Endpoint;
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
    last_warning: Option<Instant>,
    suppressed_warnings: u64,
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
        server: &Server,
        hook: HookType,
        request: Bytes,
        within: Duration,
        decode: impl FnOnce(&[u8]) -> Result<A, Status>,
    ) -> Result<A, HookError> {
        let policy = server.registration.failure_policy;
        let mut attempt = self.admit(server, policy, within)?;
        let started = Instant::now();
        let answer = if within.is_zero() {
            Err(Status::deadline_exceeded("context deadline exceeded"))
        } else {
            let channel = self.channel(&server.registration.endpoint);
            let answer = channel.unary(hook.grpc_path(), request, DEFAULT_MESSAGE_LIMIT, within).await;
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
        self.metrics.hook_called(&server.name, hook, result, policy, started.elapsed());
        answer.map_err(HookError::Call)
    }

    /// Logs a failed hook of a call that goes on, at most once per server in ten seconds, and counts it.
    pub fn failed_open(&self, server: &Server, hook: HookType, error: &HookError) {
        self.metrics.hook_fail_open(hook, error.reason());
        let now = Instant::now();
        let suppressed = {
            let mut servers = locked(&self.servers);
            let state = servers.entry(server.name.clone()).or_default();
            if state.last_warning.is_some_and(|last| now.duration_since(last) < WARNING_INTERVAL) {
                state.suppressed_warnings += 1;
                return;
            }
            state.last_warning = Some(now);
            std::mem::take(&mut state.suppressed_warnings)
        };
        tracing::warn!(
            server = server.name,
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
        server: &Server,
        policy: FailurePolicy,
        within: Duration,
    ) -> Result<Attempt<'_>, HookError> {
        let admission = match policy {
            FailurePolicy::Fail => Admission::Call,
            // No time left: nothing can be learnt, so this must not become the probe.
            FailurePolicy::Ignore if within.is_zero() => Admission::Call,
            FailurePolicy::Ignore => {
                locked(&self.servers).entry(server.name.clone()).or_default().breaker.admit(Instant::now())
            }
        };
        if admission == Admission::Skip {
            return Err(HookError::Skipped);
        }
        let counts = policy == FailurePolicy::Ignore;
        Ok(Attempt {
            dispatcher: self,
            server: counts.then(|| server.name.clone()),
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
