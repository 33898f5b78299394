//! The calls of one connection: between the tap and the interceptor, with their books.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use koord_intercept::compression::{CompressionError, readable};
use koord_tap::{
    Bypass, Closed, Decision, Encoding, Handler, Head, Mode, Refusal, Request, ResponseEnd, Trailers,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::interceptor::{Begun, Interceptor};
use super::mailbox::{Mailbox, Message};
use super::{Cancel, Service, Shared, UNAVAILABLE, spawn};
use crate::metrics::{BypassReason, CallKind, Metrics, Phase};
use crate::pipeline::{Outcome, RequestHead, TapMode, Verdict};

/// gRPC status codes that the relay reports on its own.
const CANCELLED: u32 = 1;
const UNKNOWN: u32 = 2;
const PERMISSION_DENIED: u32 = 7;
const INTERNAL: u32 = 13;
/// HTTP/2 error codes and what gRPC makes of them.
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
/// Paths whose metric handles are kept per connection.
const MAX_CACHED_METHODS: usize = 128;
/// Counters kept per method: all codes of gRPC in two kinds.
const MAX_CACHED_COUNTERS: usize = 34;

/// One call.
pub(super) struct Call<C> {
    method: Rc<Method>,
    path: Rc<str>,
    kind: CallKind,
    timeout: Option<Duration>,
    encoding: Encoding,
    opened: Instant,
    decided: Option<Instant>,
    answered: Option<Instant>,
    /// The interceptor's part, between its two halves.
    state: Option<C>,
    /// The first half is under way.
    starting: bool,
    /// The answer came before the first half was done.
    early_answer: Option<(u32, Option<Vec<u8>>)>,
    /// Asynchronous work on behalf of the call; dropped with it.
    work: Option<Cancel>,
}

/// Metric handles of one method.
struct Method {
    service: String,
    name: String,
    total: Histogram,
    /// Of calls that a hook may change.
    phases: Option<[Histogram; 4]>,
    /// Its counters by status and kind, as far as they have been used: a few.
    counters: RefCell<Vec<(u32, CallKind, Counter)>>,
}

/// The tap's [`Handler`] for one connection.
pub(super) struct Calls<I: Interceptor> {
    connection: u64,
    shared: Arc<Shared<I>>,
    mailbox: Arc<Mailbox<I::Call>>,
    /// The service this connection is bound to, where the two have backends of their own.
    service: Option<Service>,
    methods: foldhash::HashMap<Rc<str>, Rc<Method>>,
}

impl<I: Interceptor> Calls<I> {
    pub(super) fn new(
        connection: u64,
        shared: Arc<Shared<I>>,
        mailbox: Arc<Mailbox<I::Call>>,
        service: Option<Service>,
    ) -> Self {
        Self { connection, shared, mailbox, service, methods: foldhash::HashMap::default() }
    }

    fn method(&mut self, path: &str) -> (Rc<str>, Rc<Method>) {
        if let Some((path, method)) = self.methods.get_key_value(path) {
            return (Rc::clone(path), Rc::clone(method));
        }
        let (service, name) =
            path.strip_prefix('/').and_then(|path| path.split_once('/')).unwrap_or(("other", "other"));
        let metrics = &self.shared.metrics;
        let intercepted = self.shared.interceptor.mode(path) != TapMode::Pass;
        let phase = |phase| metrics.cri_request_duration(service, name, phase);
        let method = Rc::new(Method {
            service: service.to_owned(),
            name: name.to_owned(),
            total: phase(Phase::Total),
            phases: intercepted.then(|| [Phase::Pre, Phase::Backend, Phase::Post, Phase::Added].map(phase)),
            counters: RefCell::default(),
        });
        let path: Rc<str> = Rc::from(path);
        if self.methods.len() < MAX_CACHED_METHODS {
            self.methods.insert(Rc::clone(&path), Rc::clone(&method));
        }
        (path, method)
    }

    fn count(&self, call: &Call<I::Call>, code: u32) {
        let mut counters = call.method.counters.borrow_mut();
        if let Some((_, _, counter)) = counters.iter().find(|(of, kind, _)| (*of, *kind) == (code, call.kind))
        {
            counter.inc();
            return;
        }
        let counter =
            self.shared.metrics.cri_requests(&call.method.service, &call.method.name, code, call.kind);
        counter.inc();
        if counters.len() < MAX_CACHED_COUNTERS {
            counters.push((code, call.kind, counter));
        }
    }

    /// The first half of a call is done; the connection's thread passes the message here before the verdict takes effect.
    /// Says whether trailers that wait for it may go.
    pub(super) fn started(&mut self, stream: u32, call: &mut Call<I::Call>, state: Option<I::Call>) -> bool {
        call.starting = false;
        call.work = None;
        call.decided = Some(Instant::now());
        call.state = state;
        match call.early_answer.take() {
            Some((status, message)) => !self.finish(stream, call, status, message.as_deref()),
            None => false,
        }
    }

    /// Hands the answer to the interceptor. Says whether the trailers have to wait.
    fn finish(
        &mut self,
        stream: u32,
        call: &mut Call<I::Call>,
        grpc_status: u32,
        message: Option<&[u8]>,
    ) -> bool {
        let Some(state) = call.state.take() else { return false };
        let interceptor = &self.shared.interceptor;
        let outcome = Outcome { grpc_status, message };
        let hooks = catch_unwind(AssertUnwindSafe(|| interceptor.finish(state, outcome)));
        let Ok(Some(hooks)) = hooks else {
            if hooks.is_err() {
                tracing::error!(
                    method = call.method.name,
                    "the code behind a call failed; its answer passes"
                );
            }
            return false;
        };
        let mailbox = Arc::clone(&self.mailbox);
        // The trailers are released even when the hooks fail.
        let release = OnDrop(Some(move || mailbox.send(Message::Release { stream })));
        call.work = Some(spawn(
            &self.shared,
            "hooks after a call",
            Box::pin(async move {
                let _release = release;
                hooks.await;
            }),
        ));
        true
    }

    /// The message of a request, decompressed where we can.
    fn message(call: &Call<I::Call>, request: Request<'_>, limit: usize) -> Result<Vec<u8>, BypassReason> {
        let encoding = match call.encoding {
            Encoding::Identity => None,
            Encoding::Gzip => Some("gzip"),
            Encoding::Other => Some("other"),
        };
        match readable(request.compressed, encoding, request.payload, limit) {
            Ok(message) => Ok(message.into_owned()),
            Err(CompressionError::Unsupported { .. }) => Err(BypassReason::Encoding),
            Err(CompressionError::TooLarge { .. }) => Err(BypassReason::Size),
            Err(CompressionError::Damaged(_)) => Err(BypassReason::Decode),
        }
    }

    fn bypass(&self, call: &Call<I::Call>, reason: BypassReason) {
        if call.method.phases.is_some() {
            self.shared.metrics.intercept_bypassed(&call.method.name, reason);
        }
    }
}

impl<I: Interceptor> Handler for Calls<I> {
    type Call = Call<I::Call>;

    fn open(&mut self, _stream: u32, head: Head) -> (Mode, Self::Call) {
        let path = String::from_utf8_lossy(&head.path);
        let (path, method) = self.method(&path);
        let refused = self.shared.options.filter.as_ref().is_some_and(|admits| !admits(&path));
        let elsewhere = self.service.is_some_and(|service| service != Service::of(&path));
        let (mode, kind) = if elsewhere && !refused {
            let message = format!(
                "{path} has a backend of its own (--remote-image-service-endpoint): it needs a connection of its own too"
            );
            (Mode::Refuse(Refusal { code: UNAVAILABLE, message }), CallKind::Passthrough)
        } else if refused {
            let message = format!("{path} is not relayed (--relay-services)");
            (Mode::Refuse(Refusal { code: PERMISSION_DENIED, message }), CallKind::Passthrough)
        } else {
            match self.shared.interceptor.mode(&path) {
                TapMode::Pass => (Mode::Pass, CallKind::Passthrough),
                TapMode::Observe => (Mode::Observe, CallKind::Observed),
                TapMode::Hold => (Mode::Hold, CallKind::Hooked),
            }
        };
        self.shared.streams.fetch_add(1, Ordering::Relaxed);
        self.shared.metrics.streams_active().inc();
        let call = Call {
            method,
            path,
            kind,
            timeout: head.timeout,
            encoding: head.encoding,
            opened: Instant::now(),
            decided: None,
            answered: None,
            state: None,
            starting: false,
            early_answer: None,
            work: None,
        };
        (mode, call)
    }

    fn request(&mut self, stream: u32, call: &mut Self::Call, request: Request<'_>) -> Decision {
        let message = match Self::message(call, request, self.shared.options.max_message_bytes) {
            Ok(message) => message,
            Err(reason) => {
                self.bypass(call, reason);
                return Decision::Now(koord_tap::Verdict::Forward);
            }
        };
        let head = RequestHead {
            path: call.path.to_string(),
            timeout: call.timeout,
            received: call.opened,
            peer: self.connection,
            mode: if call.kind == CallKind::Hooked { TapMode::Hold } else { TapMode::Observe },
        };
        let interceptor = &self.shared.interceptor;
        match catch_unwind(AssertUnwindSafe(|| interceptor.start(head, message))) {
            Ok(Begun::Ready(verdict, state)) => {
                call.decided = Some(Instant::now());
                call.state = Some(state);
                Decision::Now(tap_verdict(verdict))
            }
            Ok(Begun::Pending(first_half)) => {
                let mailbox = Arc::clone(&self.mailbox);
                // When the first half fails, the request passes as it came.
                let mut answer = OnDrop(Some(move || {
                    mailbox.send(Message::Verdict { stream, verdict: Verdict::Forward, call: None });
                }));
                let mailbox = Arc::clone(&self.mailbox);
                call.starting = true;
                call.work = Some(spawn(
                    &self.shared,
                    "hooks before a call",
                    Box::pin(async move {
                        let (verdict, state) = first_half.await;
                        answer.disarm();
                        mailbox.send(Message::Verdict { stream, verdict, call: Some(state) });
                    }),
                ));
                Decision::Later
            }
            Err(_panic) => {
                tracing::error!(
                    method = call.method.name,
                    "the code behind a call failed; its request passes unchanged"
                );
                self.bypass(call, BypassReason::Decode);
                Decision::Now(koord_tap::Verdict::Forward)
            }
        }
    }

    fn bypassed(&mut self, _stream: u32, call: &mut Self::Call, why: Bypass) {
        let reason = match why {
            Bypass::Size => BypassReason::Size,
            Bypass::Framing => BypassReason::Decode,
        };
        self.bypass(call, reason);
    }

    fn response(&mut self, stream: u32, call: &mut Self::Call, end: ResponseEnd<'_>) -> Trailers {
        call.answered = Some(Instant::now());
        let status = end.status.unwrap_or(UNKNOWN);
        if call.starting {
            if status != 0 {
                call.work = None;
                return Trailers::Pass;
            }
            call.early_answer = Some((status, end.message.map(<[u8]>::to_vec)));
            return Trailers::Hold;
        }
        if self.finish(stream, call, status, end.message) { Trailers::Hold } else { Trailers::Pass }
    }

    fn closed(&mut self, _stream: u32, call: Self::Call, how: Closed) {
        let code = match how {
            Closed::Answered(status) => status.unwrap_or(UNKNOWN),
            Closed::Cancelled | Closed::Reset(CANCEL) => CANCELLED,
            Closed::Reset(REFUSED_STREAM) | Closed::Unprocessed | Closed::Disconnected => UNAVAILABLE,
            Closed::Reset(_) => INTERNAL,
            Closed::Refused(status) => status,
        };
        let now = Instant::now();
        self.shared.streams.fetch_sub(1, Ordering::Relaxed);
        self.shared.metrics.streams_active().dec();
        let total = now.duration_since(call.opened);
        call.method.total.observe(total.as_secs_f64());
        if let Some([pre, backend, post, added]) = &call.method.phases {
            let decided = call.decided.unwrap_or(call.opened);
            let answered = call.answered.unwrap_or(now);
            let backend_time = answered.duration_since(decided);
            pre.observe(decided.duration_since(call.opened).as_secs_f64());
            backend.observe(backend_time.as_secs_f64());
            post.observe(now.duration_since(answered).as_secs_f64());
            added.observe(total.saturating_sub(backend_time).as_secs_f64());
        }
        self.count(&call, code);
    }
}

/// The tap's form of a verdict.
pub(super) fn tap_verdict(verdict: Verdict) -> koord_tap::Verdict {
    match verdict {
        Verdict::Forward => koord_tap::Verdict::Forward,
        Verdict::Replace(message) => koord_tap::Verdict::Replace(message),
        Verdict::Refuse { code, message } => koord_tap::Verdict::Refuse(Refusal { code, message }),
    }
}

/// Runs its closure when dropped, unless it was taken out.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(action) = self.0.take() {
            action();
        }
    }
}

/// Counters of relayed octets.
pub(super) struct ByteCounters {
    pub request: Counter,
    pub response: Counter,
}

impl ByteCounters {
    pub(super) fn new(metrics: &Metrics) -> Self {
        use crate::metrics::Direction;
        Self {
            request: metrics.bytes(Direction::Request).clone(),
            response: metrics.bytes(Direction::Response).clone(),
        }
    }
}
