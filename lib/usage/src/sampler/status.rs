//! How collectors are doing.

use std::fmt;
use std::time::Duration;

use crate::time::Tick;

/// One of the collectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collector {
    /// CPU and memory of the node and its NUMA nodes.
    Node,
    /// CPU, memory and throttling of pods and containers.
    Pods,
    /// Limit, request and usage of the best-effort tier.
    BestEffort,
    /// Host applications.
    HostApplications,
    /// Pressure of pods and containers.
    Pressure,
    /// Page cache that is not in use.
    ColdMemory,
    /// Cycles and instructions of containers.
    Cpi,
    /// Monitors of cache and memory bandwidth.
    Resctrl,
}

impl Collector {
    /// All, in the order of a pass.
    pub const ALL: [Collector; 8] = [
        Collector::Node,
        Collector::Pods,
        Collector::BestEffort,
        Collector::HostApplications,
        Collector::Pressure,
        Collector::ColdMemory,
        Collector::Cpi,
        Collector::Resctrl,
    ];

    /// Name in metrics and readiness.
    pub const fn as_str(self) -> &'static str {
        match self {
            Collector::Node => "node",
            Collector::Pods => "pods",
            Collector::BestEffort => "best-effort",
            Collector::HostApplications => "host-applications",
            Collector::Pressure => "pressure",
            Collector::ColdMemory => "cold-memory",
            Collector::Cpi => "cpi",
            Collector::Resctrl => "resctrl",
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Whether a collector gives samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectorState {
    /// It has gone through one complete pass.
    Ready,
    /// It has not yet: rates need two reads.
    Waiting,
    /// Its last pass failed.
    Failed(String),
    /// It is off, or this machine cannot do it.
    Disabled(String),
}

impl CollectorState {
    /// `ready`, `waiting`, `failed` or `disabled`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            CollectorState::Ready => "ready",
            CollectorState::Waiting => "waiting",
            CollectorState::Failed(_) => "failed",
            CollectorState::Disabled(_) => "disabled",
        }
    }

    /// Why, if there is something to tell.
    pub fn reason(&self) -> Option<&str> {
        match self {
            CollectorState::Ready | CollectorState::Waiting => None,
            CollectorState::Failed(reason) | CollectorState::Disabled(reason) => Some(reason),
        }
    }
}

/// One collector's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorStatus {
    /// The collector.
    pub collector: Collector,
    /// Whether it gives samples.
    pub state: CollectorState,
    /// The last complete pass.
    pub last_success: Option<Tick>,
    /// How long its part of the last pass took.
    pub duration: Duration,
    /// Files that did not read as they should since the start. Groups that are gone are not counted: they go all the time.
    pub errors: u64,
    /// The last of these errors.
    pub last_error: Option<String>,
    /// Files it keeps open.
    pub open_descriptors: usize,
}

impl CollectorStatus {
    pub(crate) const fn new(collector: Collector) -> CollectorStatus {
        CollectorStatus {
            collector,
            state: CollectorState::Waiting,
            last_success: None,
            duration: Duration::ZERO,
            errors: 0,
            last_error: None,
            open_descriptors: 0,
        }
    }

    pub(crate) fn succeed(&mut self, tick: Tick) {
        self.state = CollectorState::Ready;
        self.last_success = Some(tick);
    }

    pub(crate) fn fail(&mut self, reason: &dyn fmt::Display) {
        let reason = reason.to_string();
        self.errors += 1;
        self.last_error = Some(reason.clone());
        self.state = CollectorState::Failed(reason);
    }

    pub(crate) fn note(&mut self, error: &dyn fmt::Display) {
        self.errors += 1;
        self.last_error = Some(error.to_string());
    }

    pub(crate) fn disable(&mut self, reason: impl Into<String>) {
        self.state = CollectorState::Disabled(reason.into());
    }
}

/// How the ticks of a running sampler went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TickStatus {
    /// Passes made.
    pub passes: u64,
    /// Ticks left out because the pass before them had not ended.
    pub skipped: u64,
    /// How late the last pass started.
    pub lateness: Duration,
    /// The latest that one started.
    pub worst_lateness: Duration,
    /// How long the last pass took.
    pub duration: Duration,
}
