//! The sampler: one thread that runs all collectors on the ticks of one clock.

pub mod options;
pub mod status;

use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use koord_cgroup::layout::Layout;
use koord_cgroup::system_file::SystemRoots;

pub use self::options::{CpiOptions, SamplerOptions};
pub use self::status::{Collector, CollectorState, CollectorStatus, TickStatus};
use crate::inventory::Inventory;
use crate::pass::Pass;
use crate::time::Tick;

/// Reads what is to be measured, all of it with one thread.
#[derive(Debug)]
pub struct Sampler {
    options: SamplerOptions,
    layout: Layout,
    roots: SystemRoots,
    ticks: TickStatus,
    collectors: Vec<CollectorStatus>,
}

impl Sampler {
    /// A sampler that has read nothing yet. What it cannot do on this machine is told by [`Sampler::status`].
    pub fn new(options: SamplerOptions, layout: Layout, roots: SystemRoots) -> Sampler {
        let collectors = Collector::ALL.map(CollectorStatus::new).to_vec();
        Sampler { options, layout, roots, ticks: TickStatus::default(), collectors }
    }

    /// Reads everything that is due at `tick`. Never fails as a whole: what cannot be read has no sample.
    pub fn sample(&mut self, tick: Tick, inventory: &Inventory) -> Pass {
        let _ = (&self.options, &self.layout, &self.roots, inventory);
        Pass::new(tick)
    }

    /// How each collector is doing.
    pub fn status(&self) -> &[CollectorStatus] {
        &self.collectors
    }

    /// How the ticks of [`Sampler::run`] went.
    pub fn ticks(&self) -> TickStatus {
        self.ticks
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
        let interval = self.options.interval.max(Duration::from_millis(1));
        let mut next = Tick::now();
        while !stop.wait(next.since(Tick::now())) {
            let inventory = inventory();
            let pass = self.sample(next, &inventory);
            if deliver(pass, &inventory, self).is_break() {
                return;
            }
            next = next.ahead(interval);
        }
    }
}

/// Ends [`Sampler::run`] from another thread.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Ends the wait for the next tick at once; a pass that has begun is delivered.
    pub fn stop(&self) {
        let (stopped, changed) = &*self.0;
        // A poisoned flag is as good as any: nothing that could panic runs while it is locked.
        *stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether [`Stop::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits at most `time`. True if stopped.
    fn wait(&self, time: Duration) -> bool {
        let (stopped, changed) = &*self.0;
        let guard = stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let waited = changed.wait_timeout_while(guard, time, |stopped| !*stopped);
        *waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
}
