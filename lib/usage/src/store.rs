//! Windows of all series.
//!
//! Samples that come with every pass lie on one timeline that all objects share, so that they cost one number each. What comes
//! less often, and at different ticks for different objects, lies on short timelines of its object.
//!
//! One thread records, many ask. All is behind one lock, held for a pass while it is written, and for the copy of one
//! series while a window is asked for: some microseconds. Sums and selections are made on the copy, without the lock, and the
//! lock prefers a waiting writer. So a report over thousands of windows delays a pass by no more than the copies that are just
//! being made, and a window never shows half a pass.

mod entry;
mod inner;
mod ring;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use self::inner::Inner;
use crate::inventory::Inventory;
use crate::kind::Kind;
use crate::object::{GpuUser, Object, ObjectClass};
use crate::pass::Pass;
use crate::snapshot::{self, Encoder, SnapshotError};
use crate::time::Tick;
use crate::window::{Summary, Window, WindowError};

/// How long samples are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Node, system, NUMA nodes, best-effort tier, devices of the node.
    pub node: Duration,
    /// Pods and host applications.
    pub pod: Duration,
    /// Containers.
    pub container: Duration,
}

impl Default for Retention {
    /// 30 min for the node, 5 min for the others.
    fn default() -> Retention {
        Retention {
            node: Duration::from_secs(30 * 60),
            pod: Duration::from_secs(5 * 60),
            container: Duration::from_secs(5 * 60),
        }
    }
}

impl Retention {
    /// What reports need whose averages span `aggregate` and whose percentiles span `longest` at most, beside local
    /// decisions that look back `local`; nothing longer than `limit`, and never shorter than a minute.
    pub fn for_windows(
        aggregate: Duration,
        longest: Duration,
        local: Duration,
        limit: Duration,
    ) -> Retention {
        let least = Retention::default();
        let limit = limit.max(Duration::from_secs(60));
        Retention {
            node: least.node.max(aggregate).max(longest).max(local).min(limit),
            pod: least.pod.max(aggregate).max(local).min(limit),
            container: least.container.min(limit),
        }
    }

    /// The longest of the three.
    pub fn longest(&self) -> Duration {
        self.node.max(self.pod).max(self.container)
    }

    /// How long samples of a sort of objects are kept.
    pub const fn of(&self, class: ObjectClass) -> Duration {
        match class {
            ObjectClass::Node
            | ObjectClass::Numa
            | ObjectClass::Tier
            | ObjectClass::NodeGpu
            | ObjectClass::Resctrl => self.node,
            ObjectClass::Pod | ObjectClass::PodNuma | ObjectClass::PodGpu | ObjectClass::HostApplication => {
                self.pod
            }
            ObjectClass::Container | ObjectClass::ContainerGpu => self.container,
        }
    }
}

/// What became of the samples of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// They are kept.
    pub kept: usize,
    /// Nobody keeps their kind.
    pub passing: usize,
    /// They are no numbers, or their kind is not measured for their object.
    pub refused: usize,
    /// They are older than what is kept.
    pub outdated: usize,
}

/// Size of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// Objects with at least one series.
    pub objects: usize,
    /// Series.
    pub series: usize,
    /// Octets of memory that samples and names take.
    pub bytes: usize,
    /// Passes recorded since the start.
    pub passes: u64,
    /// Samples refused since the start.
    pub refused: u64,
    /// Time of the newest pass.
    pub newest: Option<Tick>,
}

/// One series, as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesInfo {
    /// The object.
    pub object: Object,
    /// The kind.
    pub kind: Kind,
    /// Number of samples kept.
    pub count: usize,
    /// Time of the oldest sample.
    pub first_tick: Tick,
    /// Time of the newest sample.
    pub last_tick: Tick,
    /// The newest value.
    pub last: f64,
}

/// What a snapshot brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restored {
    /// Objects.
    pub objects: usize,
    /// Series.
    pub series: usize,
    /// Samples.
    pub samples: usize,
}

thread_local! {
    /// The copy that sums and selections are made on.
    static SCRATCH: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// Windows of all series.
#[derive(Debug, Default)]
pub struct Store {
    inner: RwLock<Inner>,
}

impl Store {
    /// An empty store.
    pub fn new(retention: Retention) -> Store {
        Store { inner: RwLock::new(Inner::new(retention)) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes how long samples are kept. What is there and not too old stays.
    pub fn set_retention(&self, retention: Retention) {
        self.write().set_retention(retention);
    }

    /// How long samples are kept.
    pub fn retention(&self) -> Retention {
        self.read().retention()
    }

    /// Adds a pass. One that is older than the newest is put where it belongs; a sample of the same series and tick is
    /// replaced. A sample that is no number counts as absent; it does not harm the others.
    pub fn record(&self, pass: &Pass) -> Recorded {
        self.write().record(pass)
    }

    /// Copies a series into the scratch, then `work`s on it without the lock.
    fn with_values<T>(
        &self,
        object: &Object,
        kind: Kind,
        from: Tick,
        to: Tick,
        work: impl FnOnce(&mut [f64], Tick, Tick) -> T,
    ) -> Result<T, WindowError> {
        SCRATCH.with_borrow_mut(|scratch| {
            let (first, last) = self.read().copy(object, kind, from, to, scratch)?;
            Ok(work(scratch, first, last))
        })
    }

    /// All figures of the samples from `from` to `to`, both included.
    ///
    /// # Errors
    /// There is no sample.
    pub fn window(&self, object: &Object, kind: Kind, from: Tick, to: Tick) -> Result<Window, WindowError> {
        self.with_values(object, kind, from, to, Window::of)
    }

    /// Like [`Store::window`], without the percentiles, which cost most.
    ///
    /// # Errors
    /// There is no sample.
    pub fn summary(&self, object: &Object, kind: Kind, from: Tick, to: Tick) -> Result<Summary, WindowError> {
        self.with_values(object, kind, from, to, |values, first, last| Summary::of(values, first, last))
    }

    /// The samples themselves, ascending by time.
    pub fn samples(&self, object: &Object, kind: Kind, from: Tick, to: Tick) -> Vec<(Tick, f64)> {
        self.read().samples(object, kind, from, to)
    }

    /// The newest sample, however old.
    pub fn latest(&self, object: &Object, kind: Kind) -> Option<(Tick, f64)> {
        self.read().latest(object, kind)
    }

    /// Says that a kind cannot be measured on this node, or that it can after all.
    pub fn set_supported(&self, kind: Kind, supported: bool) {
        self.write().set_supported(kind, supported);
    }

    /// Forgets every object that `is_live` does not know.
    pub fn retain(&self, is_live: impl Fn(&Object) -> bool) {
        self.write().retain(is_live);
    }

    /// Forgets pods, containers and host applications that are not in `live`.
    pub fn retain_live(&self, live: &Inventory) {
        let pods: HashSet<&str> = live.pods.iter().map(|pod| &*pod.uid).collect();
        let containers: HashSet<&str> =
            live.pods.iter().flat_map(|pod| &pod.containers).map(|container| &*container.id).collect();
        let applications: HashSet<&str> =
            live.host_applications.iter().map(|application| &*application.name).collect();
        self.retain(|object| match object {
            Object::Pod(uid)
            | Object::PodNuma { pod_uid: uid, .. }
            | Object::Gpu { user: GpuUser::Pod(uid), .. } => pods.contains(&**uid),
            Object::Container { id, .. } | Object::Gpu { user: GpuUser::Container(id), .. } => {
                containers.contains(&**id)
            }
            Object::HostApplication(name) => applications.contains(&**name),
            Object::Node
            | Object::Numa(_)
            | Object::Tier(_)
            | Object::Gpu { user: GpuUser::Node, .. }
            | Object::Resctrl { .. } => true,
        });
    }

    /// Every object that has series, ascending.
    pub fn objects(&self) -> Vec<Object> {
        let mut objects = self.read().objects();
        objects.sort_unstable();
        objects
    }

    /// The series of one object, by kind.
    pub fn list_object(&self, object: &Object) -> Vec<SeriesInfo> {
        let mut list = self.read().list(object);
        list.sort_unstable_by_key(|info| info.kind);
        list
    }

    /// Every series, in the order of objects and kinds. The lock is released between objects.
    pub fn list(&self) -> Vec<SeriesInfo> {
        self.objects().iter().flat_map(|object| self.list_object(object)).collect()
    }

    /// Size of the store.
    pub fn stats(&self) -> StoreStats {
        self.read().stats()
    }

    /// The samples of node, system, best-effort tier, pods and host applications as bytes; containers' are left out, since
    /// their windows are short. The lock is released between objects; a pass that comes meanwhile is not in it.
    pub fn snapshot(&self, boot_id: &str) -> Vec<u8> {
        let newest = self.stats().newest.unwrap_or(Tick::ZERO);
        let mut encoder = Encoder::new(boot_id, newest);
        for object in self.objects() {
            if snapshot::is_carried(object.class()) {
                self.read().encode(&object, newest, &mut encoder);
            }
        }
        encoder.finish()
    }

    /// Takes the samples of a snapshot. Those that are there already stay.
    ///
    /// # Errors
    /// It is damaged, of another boot, from the future or older than the longest window; nothing is taken then.
    pub fn restore(&self, bytes: &[u8], boot_id: &str, now: Tick) -> Result<Restored, SnapshotError> {
        let content = snapshot::decode(bytes)?;
        content.check(boot_id, now, self.retention().longest())?;
        let mut restored = Restored::default();
        for object in &content.objects {
            let mut inner = self.write();
            let before = restored.samples;
            for series in &object.series {
                let kept = inner.fill(&object.object, series.kind, &series.samples);
                restored.series += usize::from(kept > 0);
                restored.samples += kept;
            }
            restored.objects += usize::from(restored.samples > before);
        }
        Ok(restored)
    }
}
