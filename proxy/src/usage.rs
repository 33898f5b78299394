//! What pods use: sampled once for the whole node, shown as metrics and streamed to other programs.
//!
//! One thread samples everything that the store of records knows. Each pass is completed, kept in small windows, and
//! handed to whoever listens: a client that reads slowly loses passes and is told so; it holds up neither the thread nor
//! the relay. Nothing is saved: another process samples anew, and clients that want more than it has keep it themselves.

mod inventory;
mod service;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use koord_runtime::supervisor::{Backoff, Policy, Supervisor, TaskHandle, TaskResult, ThreadOptions};
use koord_usage::complete::{Completion, CompletionOptions};
use koord_usage::pass::Pass;
use koord_usage::sampler::{Sampler, SamplerOptions, Stop, TickStatus};
use koord_usage::store::{Retention, Store as Windows};
use koord_usage::wire;
use koord_usage_api::v1;
use tokio::sync::broadcast;

use crate::flags::{UsageConfig, UsageMetrics};
use crate::qos::Qos;
use crate::store::Store;
use inventory::Follower;

pub use inventory::Measured;
pub use service::{SERVICE, routes};

/// How long samples are kept. A client that comes back within five minutes misses nothing of nodes and pods; of
/// containers, which are several times as many, the minute is kept over which tools average.
const RETENTION: Retention = Retention {
    node: Duration::from_secs(5 * 60),
    pod: Duration::from_secs(5 * 60),
    container: Duration::from_secs(60),
};

/// Passes that wait for the slowest client, one list for all of them.
const WAITING_PASSES: usize = 8;

/// How often pressure is read, as often as the kernel's shortest average is long.
const PRESSURE_INTERVAL: Duration = Duration::from_secs(10);

/// Descriptors that are left to connections and everything else.
const OTHER_DESCRIPTORS: u64 = 4096;

/// Stack of the sampling thread, in bytes.
const STACK: usize = 256 * 1024;

/// Everything about one tick.
#[derive(Debug)]
pub struct Published {
    /// The samples, those of the system among them.
    pub pass: Pass,
    /// Who was measured.
    pub measured: Arc<Measured>,
    /// The state of the collectors.
    pub collectors: Arc<Vec<v1::CollectorState>>,
    /// How the ticks went.
    pub ticks: TickStatus,
}

/// What is known now, for metrics and streams.
#[derive(Debug)]
pub struct Usage {
    latest: ArcSwapOption<Published>,
    windows: Arc<Windows>,
    listeners: broadcast::Sender<Arc<Published>>,
    boot_id: String,
    cpus: u32,
    memory: u64,
    interval: Duration,
    detail: UsageMetrics,
    watchers: AtomicUsize,
    dropped: AtomicU64,
}

impl Usage {
    /// Nothing is known yet.
    pub fn new(config: &UsageConfig, proc_root: &Path) -> Usage {
        Usage {
            latest: ArcSwapOption::empty(),
            windows: Arc::new(Windows::new(RETENTION)),
            listeners: broadcast::Sender::new(WAITING_PASSES),
            boot_id: boot_id(proc_root),
            cpus: cpus(proc_root),
            memory: memory(proc_root),
            interval: config.interval,
            detail: config.metrics,
            watchers: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// The last pass; nothing before the first one.
    pub fn latest(&self) -> Option<Arc<Published>> {
        self.latest.load_full()
    }

    /// The samples of the last minutes.
    pub fn windows(&self) -> &Arc<Windows> {
        &self.windows
    }

    /// Which series metrics show.
    pub fn detail(&self) -> UsageMetrics {
        self.detail
    }

    /// Clients that listen now.
    pub fn watchers(&self) -> usize {
        self.watchers.load(Ordering::Relaxed)
    }

    /// Passes that clients lost because they read too slowly.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Keeps a pass and hands it on. Never waits.
    pub fn publish(&self, published: Published) {
        let known = self.latest.load();
        if known.as_ref().is_none_or(|known| !Arc::ptr_eq(&known.measured, &published.measured)) {
            self.windows.retain_live(&published.measured.inventory);
        }
        drop(known);
        self.windows.record(&published.pass);
        let published = Arc::new(published);
        self.latest.store(Some(Arc::clone(&published)));
        // Nobody listening is no failure.
        let _ = self.listeners.send(published);
    }
}

/// Samples until the process ends.
#[derive(Debug, Clone)]
pub struct Sampling {
    /// Where passes go.
    pub usage: Arc<Usage>,
    /// Where pods are.
    pub qos: Arc<Qos>,
    /// Which pods there are.
    pub store: Arc<Store>,
    /// How to sample.
    pub config: UsageConfig,
}

impl Sampling {
    /// Starts the thread that samples, again after a failure. Cancelling the handle ends it.
    pub fn start(self, supervisor: &Supervisor) -> TaskHandle {
        raise_descriptor_limit();
        let threads = supervisor.clone();
        supervisor.spawn("usage", Policy::Restart(Backoff::default()), move |token| {
            let (sampling, threads) = (self.clone(), threads.clone());
            async move {
                let stop = Stop::default();
                let (ended, end) = tokio::sync::oneshot::channel::<()>();
                threads.thread("usage-sampler", ThreadOptions { stack_bytes: STACK, essential: false }, {
                    let stop = stop.clone();
                    move |_token| {
                        // Dropped however the thread ends.
                        let _ended = ended;
                        sampling.run(&stop)
                    }
                })?;
                let mut end = std::pin::pin!(end);
                tokio::select! {
                    () = token.cancelled() => {
                        stop.stop();
                        let _gone = end.await;
                        Ok(())
                    }
                    _gone = &mut end => Err("the sampling thread ended".into()),
                }
            }
        })
    }

    fn options(&self) -> SamplerOptions {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let room = limit.unwrap_or(u64::MAX).saturating_sub(OTHER_DESCRIPTORS);
        SamplerOptions {
            interval: self.config.interval,
            memory_interval: self.config.memory_interval,
            pressure_interval: self.config.pressure.then_some(PRESSURE_INTERVAL),
            descriptor_limit: usize::try_from(room)
                .unwrap_or(usize::MAX)
                .min(SamplerOptions::DEFAULT_DESCRIPTOR_LIMIT),
            ..SamplerOptions::default()
        }
    }

    fn run(&self, stop: &Stop) -> TaskResult {
        let mut completion = Completion::new(CompletionOptions::default());
        // Once more for each tree that is found in the place of the first.
        while !stop.is_stopped() {
            let mut follower = Follower::new(Arc::clone(&self.qos), Arc::clone(&self.store));
            let layout = self.qos.layout();
            let mut sampler = Sampler::new(self.options(), layout.clone(), self.qos.system_roots());
            let measured = std::cell::RefCell::new(follower.refresh());
            sampler.run(
                stop,
                || {
                    let now = follower.refresh();
                    let inventory = Arc::clone(&now.inventory);
                    measured.replace(now);
                    inventory
                },
                |mut pass, inventory, sampler| {
                    completion.complete(&mut pass, inventory);
                    self.usage.publish(Published {
                        pass,
                        measured: Arc::clone(&measured.borrow()),
                        collectors: Arc::new(sampler.status().iter().map(wire::collector).collect()),
                        ticks: sampler.ticks(),
                    });
                    if self.qos.has_layout(&layout) {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                },
            );
        }
        Ok(())
    }
}

/// Kept files of a thousand pods are more than the usual limit; what goes beyond is opened anew for each read.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::debug!(%error, "the limit of descriptors stays as it was");
    }
}

/// The identifier of the machine's boot; empty if the kernel does not tell.
fn boot_id(proc_root: &Path) -> String {
    let file = proc_root.join("sys/kernel/random/boot_id");
    std::fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// CPUs that are on; 0 if the kernel does not tell.
fn cpus(proc_root: &Path) -> u32 {
    let text = std::fs::read_to_string(proc_root.join("stat")).unwrap_or_default();
    let of_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    u32::try_from(text.lines().filter(of_one).count()).unwrap_or(0)
}

/// Memory of the machine in bytes; 0 if the kernel does not tell.
fn memory(proc_root: &Path) -> u64 {
    let text = std::fs::read_to_string(proc_root.join("meminfo")).unwrap_or_default();
    let kibibytes = text.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kibibytes.unwrap_or(0).saturating_mul(1024)
}
