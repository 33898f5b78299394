//! The sampler: one thread that runs all collectors on the ticks of one clock.
//!
//! Figures of one pass are taken within milliseconds of each other, so what is subtracted from one another is of one moment.
//! Parents are read before what is below them: version 2 sums statistics up when the topmost group is read, and finds little
//! left to do for the others.

mod collectors;
pub mod options;
pub mod status;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use koord_cgroup::layout::Layout;
use koord_cgroup::system_file::SystemRoots;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::collectors::Collectors;
pub use self::options::{CpiOptions, SamplerOptions};
pub use self::status::{Collector, CollectorState, CollectorStatus, TickStatus};
use crate::collect::cpi::CounterSource;
use crate::collect::cpi::perf::PerfEvents;
use crate::inventory::Inventory;
use crate::pass::Pass;
use crate::time::Tick;

/// Reads what is to be measured, all of it with one thread.
#[derive(Debug)]
pub struct Sampler {
    interval: Duration,
    collectors: Collectors,
    ticks: TickStatus,
    /// Samples of the last pass, as room for the next.
    expected: usize,
}

impl Sampler {
    /// A sampler that has read nothing yet. What it cannot do on this machine is told by [`Sampler::status`].
    pub fn new(options: SamplerOptions, layout: Layout, roots: SystemRoots) -> Sampler {
        Sampler::with_counters(options, &layout, &roots, Box::new(PerfEvents::Hardware))
    }

    /// The same with other event counters than the processor's.
    pub fn with_counters(
        options: SamplerOptions,
        layout: &Layout,
        roots: &SystemRoots,
        counters: Box<dyn CounterSource>,
    ) -> Sampler {
        Sampler {
            interval: options.interval.max(Duration::from_millis(1)),
            collectors: Collectors::new(options, layout, roots, counters),
            ticks: TickStatus::default(),
            expected: 0,
        }
    }

    /// Reads everything that is due at `tick`. Never fails as a whole: what cannot be read has no sample.
    pub fn sample(&mut self, tick: Tick, inventory: &Inventory) -> Pass {
        let start = Instant::now();
        let mut pass = Pass { tick, samples: Vec::with_capacity(self.expected + self.expected / 8) };
        self.collectors.collect(inventory, &mut pass);
        self.expected = pass.samples.len();
        self.ticks.passes += 1;
        self.ticks.duration = start.elapsed();
        pass
    }

    /// How each collector is doing.
    pub fn status(&self) -> &[CollectorStatus] {
        self.collectors.status()
    }

    /// How the ticks of [`Sampler::run`] went.
    pub const fn ticks(&self) -> TickStatus {
        self.ticks
    }

    /// Files kept open, without those of event counters.
    pub fn open_descriptors(&self) -> usize {
        self.collectors.open_descriptors()
    }

    /// Samples on absolute ticks, the start and every interval after it, until `stop` or until `deliver` breaks off.
    ///
    /// It blocks: give it a thread. `inventory` is asked once a tick and must not wait; `deliver` is given each pass, what was
    /// to be measured and this sampler. A pass that takes longer than the interval makes ticks be left out, not late.
    pub fn run(
        &mut self,
        stop: &Stop,
        mut inventory: impl FnMut() -> Arc<Inventory>,
        mut deliver: impl FnMut(Pass, &Arc<Inventory>, &Sampler) -> ControlFlow<()>,
    ) {
        let mut schedule = Schedule::new(Tick::now(), self.interval);
        while !stop.wait(schedule.next.since(Tick::now())) {
            let lateness = Tick::now().since(schedule.next);
            self.ticks.lateness = lateness;
            self.ticks.worst_lateness = self.ticks.worst_lateness.max(lateness);
            let inventory = inventory();
            let pass = self.sample(schedule.next, &inventory);
            if deliver(pass, &inventory, self).is_break() {
                return;
            }
            self.ticks.skipped += schedule.advance(Tick::now());
        }
    }
}

/// Ticks at whole intervals from a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Schedule {
    next: Tick,
    interval: Duration,
}

impl Schedule {
    const fn new(start: Tick, interval: Duration) -> Schedule {
        Schedule { next: start, interval }
    }

    /// Goes to the first tick after the last one that is not over at `now`. Gives the number left out.
    fn advance(&mut self, now: Tick) -> u64 {
        self.next = self.next.ahead(self.interval);
        let interval = crate::time::milliseconds(self.interval).max(1);
        let skipped = now.milliseconds().saturating_sub(self.next.milliseconds()) / interval;
        self.next = Tick(self.next.milliseconds().saturating_add(skipped.saturating_mul(interval)));
        skipped
    }
}

/// Ends [`Sampler::run`] from another thread.
#[derive(Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Ends the wait for the next tick at once; a pass that has begun is delivered.
    pub fn stop(&self) {
        let (stopped, changed) = &*self.0;
        // A poisoned flag is as good as any: nothing that could panic runs while it is locked.
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether [`Stop::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at most `time`. True if stopped.
    fn wait(&self, time: Duration) -> bool {
        let (stopped, changed) = &*self.0;
        let guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(guard, time, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Stop").field(&self.is_stopped()).finish()
    }
}

/// Raises this process's limit of open files to the highest it may set itself. Gives the limit in force.
///
/// Called once at start, by a program: a sampler keeps about three files open for a pod and two for a container.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Refused only where the limit may not be changed at all; then the one in force holds.
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    limit.current.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
