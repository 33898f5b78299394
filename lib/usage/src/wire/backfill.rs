//! Passes made of what a store has kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::tell::Parts;
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::{Pass, Sample};
use crate::store::{SeriesInfo, Store};
use crate::time::Tick;

/// Span of time that is read from the store at once: little memory, however far back a client wishes to see.
const PIECE: Duration = Duration::from_secs(5);

/// The passes of a span of time, oldest first, made piece by piece.
///
/// They have what the store keeps: neither counters nor samples older than its retention.
#[derive(Debug)]
pub struct Backfill {
    store: Arc<Store>,
    series: Vec<(Object, Kind)>,
    from: Tick,
    to: Tick,
    ready: std::vec::IntoIter<Pass>,
}

impl Backfill {
    /// The passes from `from` to `to`, both included, with the series that are in `parts`.
    pub fn new(store: Arc<Store>, parts: Parts, from: Tick, to: Tick) -> Backfill {
        let kept: Vec<SeriesInfo> = store
            .list()
            .into_iter()
            .filter(|series| parts.has(series.kind) && series.last_tick >= from && series.first_tick <= to)
            .collect();
        // Without any, the end is before the beginning.
        let oldest = kept.iter().map(|series| series.first_tick).min();
        let from = oldest.map_or_else(|| to.ahead(Duration::from_millis(1)), |oldest| oldest.max(from));
        let series = kept.into_iter().map(|series| (series.object, series.kind)).collect();
        Backfill { store, series, from, to, ready: Vec::new().into_iter() }
    }

    fn piece(&mut self) -> Vec<Pass> {
        let end = self.from.ahead(PIECE).min(self.to.ahead(Duration::from_millis(1)));
        let mut passes: BTreeMap<Tick, Vec<Sample>> = BTreeMap::new();
        // The end is not included.
        let last = end.back(Duration::from_millis(1));
        for (object, kind) in &self.series {
            for (tick, value) in self.store.samples(object, *kind, self.from, last) {
                passes.entry(tick).or_default().push(Sample { object: object.clone(), kind: *kind, value });
            }
        }
        self.from = end;
        passes.into_iter().map(|(tick, samples)| Pass { tick, samples }).collect()
    }
}

impl Iterator for Backfill {
    type Item = Pass;

    fn next(&mut self) -> Option<Pass> {
        loop {
            if let Some(pass) = self.ready.next() {
                return Some(pass);
            }
            if self.from > self.to {
                return None;
            }
            self.ready = self.piece().into_iter();
        }
    }
}
