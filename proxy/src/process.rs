//! The life of the proxy's process from serving to its end: orders, hand-over, shutdown.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_runtime::error_chain::Chain;
use koord_runtime::exit::Exit;
use koord_runtime::life::{Life, Phase};
use koord_runtime::notify::{Notification, Notifier, monotonic_microseconds};
use koord_runtime::shutdown::{self, Shutdown, Step};
use koord_runtime::signals::{ProcessSignal, Signals};
use koord_runtime::supervisor::{Policy, Supervisor, TaskHandle};
use koord_runtime::telemetry::LogControl;
use koord_runtime::unix_socket::SocketFile;
use tokio::sync::{mpsc, watch};

use crate::handover::{
    self, HandoverError, Limits, Predecessor, Program, Succession, SuccessionError, Successor,
};
use crate::listener::Listener;
use crate::status_line::SERVING;

/// How long a start waits for the rebuild before it is called ready all the same: the kubelet must not
/// be kept waiting by a slow backend.
pub const READY_LIMIT: Duration = Duration::from_secs(5);

/// How long writing the checkpoint may take at the end.
const STATE_LIMIT: Duration = Duration::from_secs(3);

/// How long tasks may take to end once everything else is done.
const TASKS_LIMIT: Duration = Duration::from_secs(2);

/// Time beyond the grace time that the relay gets to end the streams that remain.
const DRAIN_MARGIN: Duration = Duration::from_secs(3);

/// Orders that may wait. Operators and service managers send few; what does not fit is refused.
pub const ORDER_QUEUE: usize = 8;

/// What the process is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// SIGTERM or SIGINT: end in order; the second one ends at once.
    End,
    /// End in order.
    Drain,
    /// Hand over to a new process.
    Reload,
    /// Switch debug output on or off.
    ToggleLogLevel,
}

impl From<ProcessSignal> for Order {
    fn from(signal: ProcessSignal) -> Order {
        match signal {
            ProcessSignal::Terminate | ProcessSignal::Interrupt => Order::End,
            ProcessSignal::Reload => Order::Reload,
            ProcessSignal::ToggleLogLevel => Order::ToggleLogLevel,
        }
    }
}

/// Turns signals into orders for as long as the process lives.
pub fn forward_signals(supervisor: &Supervisor, signals: Signals, orders: mpsc::Sender<Order>) {
    let mut signals = Some(signals);
    let _detached = supervisor.spawn("signals", Policy::EndProcess, move |token| {
        let (signals, orders) = (signals.take(), orders.clone());
        async move {
            let Some(mut signals) = signals else { return Ok(()) };
            loop {
                let signal = tokio::select! {
                    () = token.cancelled() => return Ok(()),
                    signal = signals.next() => signal,
                };
                tracing::info!(?signal, "signal");
                // Signals of one kind are one until they are taken, so waiting here loses none.
                orders.send(signal.into()).await?;
            }
        }
    });
}

type BoxFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The relay, as the process's life needs it. Dropping the last handle ends accepting for good.
pub trait Relay: Send + Sync + 'static {
    /// Stops accepting connections; those that exist live on. Takes effect before it returns.
    fn stop_accepting(&self);

    /// Accepts again, after a hand-over that failed.
    fn resume_accepting(&self);

    /// Sends GOAWAY to all clients and resolves when no stream is left. At `deadline` the streams that
    /// remain are ended with UNAVAILABLE. May be dropped and called again with another deadline.
    fn drain(&self, deadline: Instant) -> BoxFuture<'_>;

    /// Streams open now.
    fn active_streams(&self) -> usize;
}

/// The store's checkpoint, as the process's life needs it.
pub trait State: Send + Sync + 'static {
    /// Writes the checkpoint and gives up the right to write.
    fn release(&self) -> BoxFuture<'_>;

    /// Takes the right to write back, after a hand-over that failed.
    fn retake(&self) -> BoxFuture<'_>;

    /// The process that handed over to this one has ended: what its last calls changed can be read from
    /// the backend now.
    fn predecessor_ended(&self) {}
}

/// Waits for the rebuild, at most [`READY_LIMIT`], and enters full service. `notifier` is told unless a
/// predecessor speaks for the service.
pub async fn become_ready(life: &Life, notifier: Option<&Notifier>, rebuilt: impl Future<Output = ()>) {
    life.advance(Phase::Recovering);
    if tokio::time::timeout(READY_LIMIT, rebuilt).await.is_err() {
        tracing::warn!(limit_s = READY_LIMIT.as_secs(), "the store is not rebuilt yet; serving all the same");
    }
    life.advance(Phase::Serving);
    if let Some(notifier) = notifier {
        notifier.tell(&[Notification::Ready, Notification::Status(SERVING.to_owned())]);
    }
}

/// A process that serves.
pub struct Process {
    /// Its phase.
    pub life: Life,
    /// Its tasks.
    pub supervisor: Supervisor,
    /// The service manager.
    pub notifier: Arc<Notifier>,
    /// The listening socket; the relay accepts on a copy of it.
    pub listener: Listener,
    /// The admin socket's file, removed in the end.
    pub admin_socket: Option<SocketFile>,
    /// Listeners for operators, and the sampling of usage, that must not go on beside a successor's.
    pub admin_tasks: Vec<TaskHandle>,
    /// What a hand-over starts; none if it is not known.
    pub program: Option<Program>,
    /// The relay.
    pub relay: Arc<dyn Relay>,
    /// The checkpoint.
    pub state: Arc<dyn State>,
    /// Orders from signals and operators.
    pub orders: mpsc::Receiver<Order>,
    /// The log's verbosity.
    pub log: Option<LogControl>,
    /// What the service's status says while nothing else is to be said.
    pub status: watch::Receiver<String>,
    /// How long a shutdown waits for calls in flight.
    pub shutdown_grace: Duration,
    /// How long calls may live on after a hand-over.
    pub handover_drain: Duration,
    /// Time limits of a hand-over.
    pub limits: Limits,
    /// The process that handed over to this one, while it lives.
    pub predecessor: Option<Succession>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Process").field("life", &self.life).finish_non_exhaustive()
    }
}

/// Why the process leaves its loop.
enum Cause {
    Order(Order),
    Failure,
    Cancelled,
}

impl Process {
    /// Serves until an order or a failure ends the process.
    pub async fn run(mut self) -> Exit {
        loop {
            let cause = tokio::select! {
                failure = self.supervisor.failed() => {
                    tracing::error!(error = %failure, "ending because of a failure");
                    Cause::Failure
                }
                order = self.orders.recv() => match order {
                    Some(Order::ToggleLogLevel) => {
                        if let Some(log) = &self.log {
                            log.toggle();
                        }
                        continue;
                    }
                    Some(order) => Cause::Order(order),
                    // Nobody can give orders any more, which only an end explains.
                    None => Cause::Order(Order::Drain),
                },
                ended = predecessor_ended(&mut self.predecessor) => match ended {
                    Ok(()) => {
                        tracing::info!("the old process has ended");
                        // The old one said that it drains.
                        self.notifier.tell(&[Notification::Status(self.status.borrow().clone())]);
                        self.state.predecessor_ended();
                        continue;
                    }
                    Err(error) => {
                        tracing::error!(error = %Chain(&error), "ending");
                        Cause::Cancelled
                    }
                },
            };
            match cause {
                Cause::Order(Order::Reload) => match self.reload().await {
                    Ok(successor) => return self.leave_to(successor).await,
                    Err(ReloadError::Failed) => {}
                    Err(ReloadError::Ended(order)) => return self.end(order).await,
                },
                Cause::Order(order) => return self.end(order).await,
                Cause::Failure => {
                    self.end(Order::Drain).await;
                    return Exit::RuntimeError;
                }
                Cause::Cancelled => {
                    // The old process still serves: socket, path and state are its own.
                    self.relay.stop_accepting();
                    self.listener.leave();
                    return Exit::RuntimeError;
                }
            }
        }
    }

    /// Hands over. An order to end that comes meanwhile stops it.
    async fn reload(&mut self) -> Result<Successor, ReloadError> {
        tracing::info!("handing over to a new process");
        self.notifier.tell(&[
            Notification::Reloading { monotonic_usec: monotonic_microseconds() },
            Notification::Status("handing over to a new process".to_owned()),
        ]);
        let mut ended = None;
        let parts = Parts { relay: &*self.relay, state: &*self.state };
        let result = {
            let give_up = async { ended = Some(next_end(&mut self.orders).await) };
            match &self.program {
                Some(program) => {
                    handover::hand_over(program, &self.listener, &parts, self.limits, give_up).await
                }
                None => Err(HandoverError::UnknownProgram),
            }
        };
        let error = match result {
            Ok(successor) => return Ok(successor),
            Err(error) => error,
        };
        tracing::error!(error = %Chain(&error), "hand-over failed, serving on");
        let status = format!("serving; the last hand-over failed: {}", Chain(&error));
        // Ready ends the reload, for better or worse; the service has not stopped.
        self.notifier.tell(&[Notification::Ready, Notification::Status(status)]);
        Err(ended.map_or(ReloadError::Failed, ReloadError::Ended))
    }

    /// The old process's way out after a hand-over.
    async fn leave_to(mut self, successor: Successor) -> Exit {
        let pid = successor.pid();
        tracing::info!(process = pid, streams = self.relay.active_streams(), "handed over, draining");
        self.notifier.tell(&[
            Notification::MainPid(pid),
            Notification::Ready,
            // The new one is heard from now on, and its next sign of life may be a third of the interval away.
            Notification::Watchdog,
            Notification::Status(format!("serving; process {} drains", std::process::id())),
        ]);
        self.notifier.retire();
        self.life.advance(Phase::Draining);
        self.listener.leave();
        self.admin_tasks.iter().for_each(TaskHandle::cancel);
        let relay = Arc::clone(&self.relay);
        let drain = Step::new("drain", self.handover_drain + DRAIN_MARGIN, {
            let deadline = Instant::now() + self.handover_drain;
            async move { relay.drain(deadline).await }
        });
        let asked = next_end(&mut self.orders);
        if let Shutdown::Hurried { .. } = shutdown::run(vec![drain], discard(asked)).await {
            let relay = Arc::clone(&self.relay);
            let deadline = Instant::now() + self.shutdown_grace;
            let quick = Step::new("drain", self.shutdown_grace + DRAIN_MARGIN, async move {
                relay.drain(deadline).await;
            });
            shutdown::run(vec![quick], discard(next_end(&mut self.orders))).await;
        }
        drop(self.relay);
        let _late = self.supervisor.shut_down(TASKS_LIMIT).await;
        self.life.advance(Phase::Stopped);
        drop(successor);
        Exit::Success
    }

    /// The orderly end.
    async fn end(mut self, first: Order) -> Exit {
        self.life.advance(Phase::Draining);
        let streams = self.relay.active_streams();
        tracing::info!(streams, grace_s = self.shutdown_grace.as_secs_f64(), "ending");
        self.notifier.tell(&[
            Notification::Stopping,
            Notification::Status(format!("draining {streams} streams")),
            Notification::ExtendTimeout(self.shutdown_grace + DRAIN_MARGIN + STATE_LIMIT + TASKS_LIMIT),
        ]);
        self.relay.stop_accepting();
        let (relay, state, supervisor) = (self.relay, self.state, self.supervisor.clone());
        let draining = Arc::clone(&relay);
        let deadline = Instant::now() + self.shutdown_grace;
        let steps =
            vec![
                Step::new("drain", self.shutdown_grace + DRAIN_MARGIN, async move {
                    draining.drain(deadline).await
                }),
                Step::new("checkpoint", STATE_LIMIT, async move { state.release().await }),
                Step::new("tasks", TASKS_LIMIT + Duration::from_millis(100), async move {
                    // The acceptor's thread ends with the relay.
                    drop(relay);
                    let late = supervisor.shut_down(TASKS_LIMIT).await;
                    if !late.is_empty() {
                        tracing::warn!(tasks = ?late, "tasks did not end in time");
                    }
                }),
            ];
        let orders = &mut self.orders;
        let outcome = shutdown::run(steps, async {
            // The signal that asks for what is under way already is not the second one.
            if first == Order::Drain {
                next_signal(orders).await;
            }
            next_signal(orders).await;
        })
        .await;
        self.listener.forget(&self.notifier);
        self.listener.close();
        if let Some(file) = self.admin_socket {
            file.remove();
        }
        self.life.advance(Phase::Stopped);
        match outcome {
            Shutdown::Complete { .. } => Exit::Success,
            Shutdown::Hurried { .. } => Exit::RuntimeError,
        }
    }
}

enum ReloadError {
    /// It did not happen; the process serves on.
    Failed,
    /// It was stopped by this order.
    Ended(Order),
}

/// Waits for an order that ends the process; others mean nothing meanwhile.
async fn next_end(orders: &mut mpsc::Receiver<Order>) -> Order {
    loop {
        match orders.recv().await {
            Some(order @ (Order::End | Order::Drain)) => return order,
            Some(Order::Reload | Order::ToggleLogLevel) => {}
            None => std::future::pending().await,
        }
    }
}

/// Waits for [`Order::End`].
async fn next_signal(orders: &mut mpsc::Receiver<Order>) {
    while next_end(orders).await != Order::End {}
}

async fn discard<T>(future: impl Future<Output = T>) {
    let _value = future.await;
}

async fn predecessor_ended(predecessor: &mut Option<Succession>) -> Result<(), SuccessionError> {
    let Some(succession) = predecessor else { return std::future::pending().await };
    let ended = succession.predecessor_ended().await;
    *predecessor = None;
    ended
}

struct Parts<'a> {
    relay: &'a dyn Relay,
    state: &'a dyn State,
}

impl Predecessor for Parts<'_> {
    fn stop_accepting(&self) {
        self.relay.stop_accepting();
    }
    fn resume_accepting(&self) {
        self.relay.resume_accepting();
    }
    fn release_state(&self) -> BoxFuture<'_> {
        self.state.release()
    }
    fn retake_state(&self) -> BoxFuture<'_> {
        self.state.retake()
    }
}
