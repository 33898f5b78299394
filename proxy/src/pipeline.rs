//! What happens to an intercepted call between the relay's two sides.
//!
//! The relay asks [`Pipeline::mode`] how closely to look at a call, hands the request message to
//! [`Pipeline::start`], acts on the [`Verdict`], and tells [`Pipeline::finish`] how the backend answered.
//!
//! Invariants: the store changes only after the backend has agreed; a call that needs no hook and no look-up
//! waits for nothing; stops and removals never wait before the backend; whatever fails in here, short of a hook
//! under the policy `Fail`, lets the call pass as it came.

mod hooks;
mod report;
mod rules;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use koord_intercept::request::{Known, Subject};
use koord_intercept::skip::SkipRule;
use koord_intercept::working::Working;
use koord_intercept::{CriMethod, HookSet, HookType};

use koord_hooks::chain::{Carrier, Chain, Snapshot};

use crate::dispatcher::Dispatcher;
use crate::dispatcher::budget::Limits;
use crate::failover::Failover;
use crate::failpoint::Failpoints;
use crate::metrics::{BypassReason, CallKind, Metrics};
use crate::qos::Qos;
use crate::store::{OrderGuard, Ordered, Store};

use report::Report;
use rules::RulesAsked;

/// gRPC status CANCELLED, which is what becomes of a call nobody waits for.
const CANCELLED: u32 = 1;
/// gRPC status UNKNOWN, under which a failed hook reaches the kubelet.
const UNKNOWN: u32 = 2;
/// gRPC status DEADLINE_EXCEEDED.
const DEADLINE_EXCEEDED: u32 = 4;

/// Hooks that are told the environment of a container that exists already.
const ENVIRONMENT_HOOKS: [HookType; 4] = [
    HookType::PreStartContainer,
    HookType::PostStartContainer,
    HookType::PreUpdateContainerResources,
    HookType::PostStopContainer,
];

/// How closely the relay looks at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapMode {
    /// Nothing is kept; the call passes as bytes.
    Pass,
    /// The request passes at once and a copy of it is kept; the answer is told to the pipeline.
    Observe,
    /// The request waits for the verdict.
    Hold,
}

/// What the relay does with a held request.
///
/// Payloads are bare protobuf messages without the five-byte gRPC prefix.
#[derive(Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Send the original bytes.
    Forward,
    /// Send these bytes instead.
    Replace(Vec<u8>),
    /// Do not call the backend; answer this status.
    Refuse {
        /// gRPC status code.
        code: u32,
        /// Status message, not yet percent-encoded.
        message: String,
    },
}

/// Requests carry environment values, which are not printed.
impl std::fmt::Debug for Verdict {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forward => formatter.write_str("Forward"),
            Self::Replace(message) => write!(formatter, "Replace({} bytes)", message.len()),
            Self::Refuse { code, message } => {
                formatter.debug_struct("Refuse").field("code", code).field("message", message).finish()
            }
        }
    }
}

/// What is known about a call before its message.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The `:path`, such as `/runtime.v1.RuntimeService/RunPodSandbox`.
    pub path: String,
    /// The `grpc-timeout` of the caller.
    pub timeout: Option<Duration>,
    /// When the request's headers arrived; the timeout counts from here.
    pub received: Instant,
    /// Identity of the client connection, for logs.
    pub peer: u64,
    /// How the call is looked at; hooks are asked only while its request waits.
    pub mode: TapMode,
}

impl RequestHead {
    /// When the caller gives up, if it said so.
    fn deadline(&self) -> Option<Instant> {
        self.received.checked_add(self.timeout?)
    }
}

/// How the backend answered.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// `grpc-status`; 0 is success.
    pub grpc_status: u32,
    /// The response message, `None` when it was too large to keep or could not be read.
    pub message: Option<&'a [u8]>,
}

/// What the pipeline keeps about a call between its two halves; dropping it means the call was cancelled.
#[derive(Debug)]
pub struct CallState {
    head: RequestHead,
    /// `None` for a call that could not be read.
    working: Option<Box<Working>>,
    /// The container named by the request, for a look-up after the call.
    container_id: Option<String>,
    envs_known: bool,
    skipped: bool,
    /// Others wait for this call to be done with its container.
    order: Option<OrderGuard>,
    rules: RulesAsked,
    report: Box<Report>,
}

impl CallState {
    /// What was done with the request: whether a hook was asked before the backend.
    pub fn kind(&self) -> CallKind {
        if self.report.asked() { CallKind::Hooked } else { CallKind::Observed }
    }

    fn unread(head: RequestHead) -> Self {
        let report = Box::new(Report::new(&head));
        Self {
            head,
            working: None,
            container_id: None,
            envs_known: true,
            skipped: false,
            order: None,
            rules: RulesAsked::default(),
            report,
        }
    }
}

/// The result of the first half.
#[derive(Debug)]
pub struct Before {
    /// What to do with the request.
    pub verdict: Verdict,
    /// To be handed to [`Pipeline::finish`].
    pub call: CallState,
}

/// A future the relay drives on its async runtime.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The first half of a call, done or under way.
#[allow(
    clippy::large_enum_variant,
    reason = "it lives for a moment, and a box would cost each call an allocation"
)]
pub enum Started {
    /// Nothing had to be waited for.
    Ready(Before),
    /// Hooks or a look-up are being waited for; dropping the future cancels them.
    Pending(BoxFuture<Before>),
}

impl std::fmt::Debug for Started {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready(before) => formatter.debug_tuple("Ready").field(before).finish(),
            Self::Pending(_) => formatter.write_str("Pending"),
        }
    }
}

/// What a pipeline is made of.
#[derive(Debug)]
pub struct Parts {
    /// The hooks in force.
    pub chain: Arc<Chain>,
    /// Calls hook servers.
    pub dispatcher: Arc<Dispatcher>,
    /// The records.
    pub store: Arc<Store>,
    /// Finds records the store has not.
    pub failover: Arc<Failover>,
    /// All metrics.
    pub metrics: Metrics,
    /// How long hooks may take.
    pub limits: Limits,
    /// Which pods are exempt.
    pub skip: SkipRule,
    /// The built-in rules; `None` has none.
    pub qos: Option<Arc<Qos>>,
    /// For tests.
    pub failpoints: Failpoints,
}

/// Decides about intercepted calls.
#[derive(Debug)]
pub struct Pipeline {
    parts: Parts,
}

/// A request in the first half.
struct Held {
    method: CriMethod,
    head: RequestHead,
    message: Vec<u8>,
    hooks: Arc<Snapshot>,
    order: Option<OrderGuard>,
}

/// How far a request gets without waiting.
enum Step {
    Done(Before),
    /// Hooks are to be asked.
    Ask(Held, CallState),
    /// Records are to be looked up first.
    LookUp(Held),
}

impl Pipeline {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Self {
        let pipeline = Self { parts };
        pipeline.hooks_changed();
        pipeline
    }

    /// The parts.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Adapts to each change of the chain, until the future is dropped.
    pub async fn follow_hooks(&self) {
        let mut changes = self.parts.chain.changes();
        let follow = async {
            loop {
                self.hooks_changed();
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = self.parts.chain.follow() => {}
            () = follow => {}
        }
    }

    fn hooks_changed(&self) {
        self.parts.chain.rebuild();
        let hooks = self.parts.chain.snapshot();
        self.parts.dispatcher.retain_chain(&hooks);
        self.parts.store.keep_envs(asked_hooks(&hooks).intersects(ENVIRONMENT_HOOKS.into_iter().collect()));
    }

    /// How closely to look at a call of `path`.
    pub fn mode(&self, path: &str) -> TapMode {
        match CriMethod::from_path(path) {
            None => TapMode::Pass,
            Some(method) if self.holds(method, self.parts.chain.stages()) => TapMode::Hold,
            Some(_) => TapMode::Observe,
        }
    }

    fn holds(&self, method: CriMethod, hooks: HookSet) -> bool {
        self.asks(method, hooks) || (method == CriMethod::CreateContainer && self.parts.store.any_moved_pod())
    }

    /// Whether rules or servers are to be asked before a call of `method`.
    fn asks(&self, method: CriMethod, hooks: HookSet) -> bool {
        self.parts.qos.as_ref().is_none_or(|qos| qos.is_on()) && asks(method, hooks)
    }

    /// Takes a request message; for an observed call the verdict is to be ignored.
    pub fn start(self: &Arc<Self>, head: RequestHead, message: Vec<u8>) -> Started {
        let Some(method) = CriMethod::from_path(&head.path) else {
            return Started::Ready(pass(CallState::unread(head)));
        };
        let hooks = self.parts.chain.snapshot();
        let held = Held { method, head: head.clone(), message, hooks, order: None };
        let begun = catch_unwind(AssertUnwindSafe(|| self.begin(held)));
        begun.unwrap_or_else(|_| Started::Ready(self.contained(method, head)))
    }

    fn begin(self: &Arc<Self>, mut held: Held) -> Started {
        let mut turn = None;
        let waits = held.head.mode == TapMode::Hold;
        if waits && held_in_order(held.method) && self.holds(held.method, held.hooks.stages()) {
            // An unreadable request is dealt with in `prepare`.
            if let Ok(Subject::Container(id)) = Subject::of(held.method, &held.message) {
                match self.parts.store.order(id) {
                    Ordered::Ready(guard) => held.order = Some(guard),
                    Ordered::Waiting(waiting) => turn = Some(waiting),
                }
            }
        }
        if turn.is_none() {
            match self.prepare(held, MayLookUp::Yes) {
                Step::Done(before) => return Started::Ready(before),
                Step::Ask(held, call) => {
                    let pipeline = self.clone();
                    let (method, head) = (held.method, held.head.clone());
                    let asking = self.pending(method, head, async move { pipeline.ask(held, call).await });
                    return self.begin_asking(asking);
                }
                Step::LookUp(waits) => held = waits,
            }
        }
        let pipeline = self.clone();
        let (method, head) = (held.method, held.head.clone());
        self.pending(method, head, async move {
            if let Some(waiting) = turn {
                held.order = Some(waiting.turn().await);
            }
            pipeline.wait_and_ask(held).await
        })
    }

    /// Goes as far as it can without waiting: rules wait for nothing, and what is sent to a server is sent a
    /// thread switch earlier.
    fn begin_asking(&self, asking: Started) -> Started {
        let Some(qos) = &self.parts.qos else { return asking };
        let Started::Pending(mut asking) = asking else { return asking };
        let _entered = qos.async_runtime().enter();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match asking.as_mut().poll(&mut context) {
            std::task::Poll::Ready(before) => Started::Ready(before),
            std::task::Poll::Pending => Started::Pending(asking),
        }
    }

    /// A first half under way, whose failure is its own.
    fn pending(
        self: &Arc<Self>,
        method: CriMethod,
        head: RequestHead,
        work: impl Future<Output = Before> + Send + 'static,
    ) -> Started {
        let pipeline = self.clone();
        Started::Pending(Box::pin(async move {
            let done = AssertUnwindSafe(work).catch_unwind().await;
            done.unwrap_or_else(|_| pipeline.contained(method, head))
        }))
    }

    async fn wait_and_ask(self: &Arc<Self>, held: Held) -> Before {
        let mut may_look_up = MayLookUp::Yes;
        let mut held = held;
        loop {
            match self.prepare(held, may_look_up) {
                Step::Done(before) => return before,
                Step::Ask(held, call) => return self.ask(held, call).await,
                Step::LookUp(waits) => {
                    held = waits;
                    may_look_up = MayLookUp::No;
                    match Subject::of(held.method, &held.message) {
                        Ok(Subject::Pod(id)) => {
                            self.parts.failover.find_pod(id).await;
                        }
                        Ok(Subject::Container(id)) => {
                            self.parts.failover.find_container(id, true).await;
                        }
                        Ok(Subject::NewPod) | Err(_) => {}
                    }
                }
            }
        }
    }

    /// Does everything that needs no waiting.
    fn prepare(&self, held: Held, may_look_up: MayLookUp) -> Step {
        let method = held.method;
        let waits = held.head.mode == TapMode::Hold;
        // A registration that came after the request had passed does not apply to it.
        let asked = waits && self.asks(method, held.hooks.stages());
        let mut call = CallState::unread(held.head.clone());
        let subject = match Subject::of(method, &held.message) {
            Ok(subject) => subject,
            Err(error) => return Step::Done(self.unreadable(method, call, &error)),
        };
        let known = match subject {
            Subject::NewPod => Known::default(),
            Subject::Pod(id) => Known { pod: self.parts.store.pod(id), container: None },
            Subject::Container(id) => {
                call.container_id = Some(id.to_owned());
                match self.parts.store.container_and_pod(id) {
                    Some(known) => {
                        call.envs_known = known.envs_known;
                        Known { pod: Some(known.pod), container: Some(known.container) }
                    }
                    None => Known::default(),
                }
            }
        };
        let is_known = match subject {
            Subject::NewPod => true,
            Subject::Pod(_) => known.pod.is_some(),
            Subject::Container(_) => known.container.is_some(),
        };
        call.skipped = known.pod.as_ref().is_some_and(|pod| self.parts.skip.skips(pod));
        // Rules do not look at the environment.
        let incomplete = !is_known || (!call.envs_known && asks(method, asked_hooks(&held.hooks)));
        if asked && incomplete && !call.skipped && may_look_up == MayLookUp::Yes {
            return Step::LookUp(held);
        }
        let working = match Working::from_request(method, &held.message, known) {
            Ok(working) => working,
            Err(error) => return Step::Done(self.unreadable(method, call, &error)),
        };
        call.skipped = working.pod().is_some_and(|pod| self.parts.skip.skips(pod));
        call.report.describe(&working, call.container_id.as_deref());
        call.order = None;
        if asked && !is_known {
            self.bypassed(method, BypassReason::UnknownId);
        } else if asked && call.skipped {
            self.bypassed(method, BypassReason::SkipLabel);
        } else if asked {
            call.working = Some(Box::new(working));
            return Step::Ask(held, call);
        }
        // A container still belongs where its pod was moved to.
        let holds = waits && self.holds(method, held.hooks.stages());
        call.working = Some(Box::new(working));
        call.order = held.order;
        Step::Done(if holds { self.decide(held.head.deadline(), &held.message, call) } else { pass(call) })
    }

    /// The verdict after all hooks: the edited message, the original, or that there is no time left.
    fn decide(&self, deadline: Option<Instant>, message: &[u8], mut call: CallState) -> Before {
        self.pass_failpoint("call-before-backend");
        if is_past(deadline) {
            return refuse(call, DEADLINE_EXCEEDED, "context deadline exceeded".to_owned());
        }
        let Some(working) = &call.working else { return pass(call) };
        let method = working.method();
        match working.patch(message) {
            Ok(None) => pass(call),
            Ok(Some(patched)) => {
                self.parts.metrics.request_patched(method.as_str());
                call.report.patched();
                Before { verdict: Verdict::Replace(patched), call }
            }
            Err(error) => {
                // The request passes as it came, so what the hooks said must not be remembered.
                call.working = None;
                call.rules = RulesAsked::default();
                self.unreadable(method, call, &error)
            }
        }
    }

    fn unreadable(&self, method: CriMethod, call: CallState, error: &koord_cri::wire::WireError) -> Before {
        tracing::warn!(method = method.as_str(), peer = call.head.peer, %error, "request cannot be decoded, it passes as it came");
        self.bypassed(method, BypassReason::Decode);
        pass(call)
    }

    /// The result for a call in whose handling something has failed that never should.
    fn contained(&self, method: CriMethod, head: RequestHead) -> Before {
        tracing::error!(
            method = method.as_str(),
            "a fault in handling a call was contained, it passes as it came"
        );
        self.bypassed(method, BypassReason::Decode);
        pass(CallState::unread(head))
    }

    fn bypassed(&self, method: CriMethod, reason: BypassReason) {
        self.parts.metrics.intercept_bypassed(method.as_str(), reason);
    }

    /// Takes the backend's answer: the store is up to date when this returns.
    ///
    /// A returned future stands for hooks after the call; the answer's trailers wait for it.
    pub fn finish(self: &Arc<Self>, call: CallState, outcome: Outcome<'_>) -> Option<BoxFuture<()>> {
        let path = call.head.path.clone();
        let finished = catch_unwind(AssertUnwindSafe(|| self.conclude(call, outcome)));
        finished.unwrap_or_else(|_| {
            tracing::error!(path, "a fault after a call was contained");
            None
        })
    }

    fn conclude(self: &Arc<Self>, mut call: CallState, outcome: Outcome<'_>) -> Option<BoxFuture<()>> {
        let Some(working) = call.working.take() else {
            call.report.write(outcome.grpc_status);
            return None;
        };
        if outcome.grpc_status != 0 {
            call.report.write(outcome.grpc_status);
            return None;
        }
        self.pass_failpoint("call-after-backend");
        let mut settling = None;
        let first_stop = match working.commit(outcome.message) {
            Ok(changes) => {
                let ids = rules::ids_of(&changes);
                let first_stop = self.parts.store.apply(changes, SystemTime::now());
                settling = self.settle(&working, &mut call, ids);
                first_stop
            }
            Err(error) => {
                tracing::warn!(method = working.method().as_str(), %error, "response cannot be decoded");
                false
            }
        };
        self.pass_failpoint("call-committed");
        // The next call on the container may begin.
        call.order = None;

        let after = self.after(&working, &call, first_stop);
        if after.is_none() && settling.is_none() {
            call.report.write(0);
            return None;
        }
        let pipeline = self.clone();
        Some(Box::pin(async move {
            let work = async move {
                if let Some(settling) = settling {
                    settling.await;
                }
                match after {
                    Some(after) => pipeline.run_after(after, call).await,
                    None => call.report.write(0),
                }
            };
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!("a fault in what follows a call was contained");
            }
        }))
    }

    fn pass_failpoint(&self, name: &'static str) {
        if let Err(error) = self.parts.failpoints.pass(name) {
            tracing::error!(%error, "failpoint");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MayLookUp {
    Yes,
    No,
}

/// The stages at which hooks other than the built-in rules are asked.
fn asked_hooks(hooks: &Snapshot) -> HookSet {
    let others = hooks.entries().iter().filter(|entry| entry.carrier != Carrier::BuiltIn);
    others.fold(HookSet::default(), |all, entry| all.union(entry.stages))
}

/// Whether a hook is to be asked before a call of `method`.
fn asks(method: CriMethod, hooks: HookSet) -> bool {
    method.before().iter().any(|hook| hooks.contains(*hook))
}

/// Calls whose hooks and commit must not overlap with those of another call on the same container.
fn held_in_order(method: CriMethod) -> bool {
    matches!(method, CriMethod::StartContainer | CriMethod::UpdateContainerResources)
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

fn refuse(mut call: CallState, code: u32, message: String) -> Before {
    call.report.refused(code);
    Before { verdict: Verdict::Refuse { code, message }, call }
}

fn pass(call: CallState) -> Before {
    Before { verdict: Verdict::Forward, call }
}

#[cfg(test)]
mod tests;
