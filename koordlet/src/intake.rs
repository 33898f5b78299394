//! What becomes of passes, whoever made them: completed by the usage of the system, kept, and told as metrics.
//!
//! The passes of the proxy and those of the agent's own sampler go the same way, so both give the same figures. What the
//! proxy does not measure, the agent does: host applications, and what gates ask for. Its samples wait for the next pass
//! of the stream and are counted with it.

mod latest;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use koord_extension::qos::QosClass;
use koord_usage::complete::{Completion, CompletionOptions};
use koord_usage::inventory::Inventory;
use koord_usage::kind::Kind;
use koord_usage::object::{Object, TierSeries};
use koord_usage::pass::{Pass, Sample};
use koord_usage::store::Store;
use koord_usage::time::Tick;

pub use latest::{CpiReading, Latest, PressureReading, Readings};

/// Samples that wait for a pass of the stream are dropped at this number: no stream takes them.
const MOST_WAITING: usize = 200_000;

/// How often what is gone is forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Inner {
    completion: Completion,
    waiting: Vec<Sample>,
    latest: Latest,
    forgotten: Option<Tick>,
}

/// Takes passes.
#[derive(Debug)]
pub struct Intake {
    store: Arc<Store>,
    inner: Mutex<Inner>,
}

/// What pods of raw class BE ask for as batch CPU, in thousandths of a CPU.
pub fn best_effort_request(inventory: &Inventory) -> f64 {
    let request: i64 = inventory
        .pods
        .iter()
        .filter(|pod| pod.qos == Some(QosClass::Be))
        .map(|pod| pod.batch_cpu_request.get())
        .fold(0, i64::saturating_add);
    request as f64
}

impl Intake {
    /// One that keeps samples in `store`.
    pub fn new(store: Arc<Store>, options: CompletionOptions) -> Intake {
        let inner = Inner { completion: Completion::new(options), ..Inner::default() };
        Intake { store, inner: Mutex::new(inner) }
    }

    /// Nothing between lock and unlock leaves a half-made state that matters.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where samples are kept.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Changes how the usage of the system is found.
    pub fn set_options(&self, options: CompletionOptions) {
        self.inner().completion.set_options(options);
    }

    /// Takes a pass of the agent's own sampler.
    pub fn own(&self, pass: Pass, live: &Inventory) {
        let mut inner = self.inner();
        inner.waiting.clear();
        self.take(&mut inner, pass, live);
    }

    /// Takes samples that go with the next pass of the stream.
    pub fn beside(&self, samples: Vec<Sample>) {
        let mut inner = self.inner();
        if inner.waiting.len() + samples.len() > MOST_WAITING {
            inner.waiting.clear();
        }
        inner.waiting.extend(samples);
    }

    /// Takes a pass of the stream. `live` is who is measured, with the requests that only Kubernetes knows.
    pub fn streamed(&self, mut pass: Pass, live: &Inventory) {
        let mut inner = self.inner();
        let waiting = std::mem::take(&mut inner.waiting);
        pass.samples.extend(waiting);
        // The proxy sees containers; what they request of Kubernetes it may not know.
        let request = Object::Tier(TierSeries::Request);
        pass.samples.retain(|sample| sample.object != request);
        pass.push(request, Kind::NodeBe, best_effort_request(live));
        self.take(&mut inner, pass, live);
    }

    /// Takes a pass of the stream from before it was asked for.
    pub fn backfill(&self, mut pass: Pass, live: &Inventory) {
        let mut inner = self.inner();
        inner.completion.complete(&mut pass, live);
        self.store.record(&pass);
    }

    fn take(&self, inner: &mut Inner, mut pass: Pass, live: &Inventory) {
        inner.completion.complete(&mut pass, live);
        inner.latest.take(&pass);
        self.store.record(&pass);
        let tick = pass.tick;
        if inner.forgotten.is_none_or(|last| tick.since(last) >= FORGET_EVERY) {
            inner.forgotten = Some(tick);
            inner.latest.forget(live, tick);
            self.store.retain_live(live);
        }
    }

    /// The latest readings that are told as metrics but not kept.
    pub fn readings(&self) -> Readings {
        self.inner().latest.readings()
    }

    /// The tick of the newest sample of a kind for the node, or for any pod.
    pub fn newest(&self, kind: Kind) -> Option<Tick> {
        self.inner().latest.newest(kind)
    }
}
