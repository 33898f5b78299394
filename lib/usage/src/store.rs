//! Windows of all series.

use std::time::Duration;

use crate::inventory::Inventory;
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;
use crate::snapshot::SnapshotError;
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

/// What became of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Samples that are kept.
    pub kept: usize,
    /// Samples that no number or no kind of their object forbids to keep.
    pub refused: usize,
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
}

/// Windows of all series.
#[derive(Debug, Default)]
pub struct Store {}

impl Store {
    /// An empty store.
    pub fn new(retention: Retention) -> Store {
        let _ = retention;
        Store {}
    }

    /// Changes how long samples are kept; those that are there stay as long as they are not too old.
    pub fn set_retention(&self, retention: Retention) {
        let _ = retention;
    }

    /// Adds a pass. Older ones than the newest are put where they belong; a sample of the same series and tick is replaced.
    pub fn record(&self, pass: &Pass) -> Recorded {
        let _ = pass;
        Recorded::default()
    }

    /// All figures of the samples from `from` to `to`, both included.
    ///
    /// # Errors
    /// There is no sample.
    pub fn window(&self, object: &Object, kind: Kind, from: Tick, to: Tick) -> Result<Window, WindowError> {
        let _ = (object, kind, from, to);
        Err(WindowError::NoData)
    }

    /// Like [`Store::window`], without the percentiles, which cost most.
    ///
    /// # Errors
    /// There is no sample.
    pub fn summary(&self, object: &Object, kind: Kind, from: Tick, to: Tick) -> Result<Summary, WindowError> {
        let _ = (object, kind, from, to);
        Err(WindowError::NoData)
    }

    /// The samples themselves, ascending by time.
    pub fn samples(&self, object: &Object, kind: Kind, from: Tick, to: Tick) -> Vec<(Tick, f64)> {
        let _ = (object, kind, from, to);
        Vec::new()
    }

    /// The newest sample, however old.
    pub fn latest(&self, object: &Object, kind: Kind) -> Option<(Tick, f64)> {
        let _ = (object, kind);
        None
    }

    /// Says that a kind cannot be measured on this node, or that it can after all.
    pub fn set_supported(&self, kind: Kind, supported: bool) {
        let _ = (kind, supported);
    }

    /// Forgets every object that `is_live` does not know.
    pub fn retain(&self, is_live: impl Fn(&Object) -> bool) {
        let _ = is_live;
    }

    /// Forgets pods, containers and host applications that are not in `live`.
    pub fn retain_live(&self, live: &Inventory) {
        let _ = live;
    }

    /// Every object that has series, in no order.
    pub fn objects(&self) -> Vec<Object> {
        Vec::new()
    }

    /// Every series, in the order of objects and kinds.
    pub fn list(&self) -> Vec<SeriesInfo> {
        Vec::new()
    }

    /// Size of the store.
    pub fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    /// The samples of node, system, best-effort tier, pods and host applications as bytes.
    pub fn snapshot(&self, boot_id: &str) -> Vec<u8> {
        let _ = boot_id;
        Vec::new()
    }

    /// Takes the samples of a snapshot. Those that are there already stay.
    ///
    /// # Errors
    /// It is damaged, of another boot, or too old; nothing is taken then.
    pub fn restore(&self, bytes: &[u8], boot_id: &str, now: Tick) -> Result<Restored, SnapshotError> {
        let _ = (bytes, boot_id, now);
        Err(SnapshotError::Format)
    }
}
