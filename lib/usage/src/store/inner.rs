//! What is behind the lock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::entry::{Bound, Entry, Overwrite};
use super::ring::{Place, Timeline};
use super::{Recorded, Retention, SeriesInfo, StoreStats};
use crate::kind::{Cadence, Kind};
use crate::object::{Object, ObjectClass};
use crate::pass::Pass;
use crate::snapshot::Encoder;
use crate::time::Tick;
use crate::window::WindowError;

/// Samples are kept this much longer than asked for: whoever asks for windows took the time a little before.
const SLACK: Duration = Duration::from_secs(10);

/// After so much time without it, what nobody measures any more is looked for and forgotten.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Slots for each second of retention: twice what one sampler fills, as two may overlap.
const SLOTS_PER_SECOND: u64 = 2;

#[derive(Debug, Default)]
pub(super) struct Inner {
    retention: Retention,
    shared: Timeline,
    numbers: HashMap<Object, usize, RandomState>,
    /// By number; `None` where an object was forgotten.
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// Numbers in the order in which the newest pass had its objects, since the next one mostly has the same.
    order: Vec<usize>,
    unsupported: HashSet<Kind>,
    newest: Option<Tick>,
    swept: Tick,
    passes: u64,
    refused: u64,
}

/// Finds the entries of one pass, mostly without hashing a name.
#[derive(Debug, Default)]
struct Finder {
    position: usize,
    current: Option<usize>,
}

impl Inner {
    pub(super) fn new(retention: Retention) -> Inner {
        Inner { retention, ..Inner::default() }
    }

    pub(super) const fn retention(&self) -> Retention {
        self.retention
    }

    pub(super) fn set_retention(&mut self, retention: Retention) {
        self.retention = retention;
        self.sweep();
    }

    pub(super) fn set_supported(&mut self, kind: Kind, supported: bool) {
        if supported {
            self.unsupported.remove(&kind);
        } else {
            self.unsupported.insert(kind);
        }
    }

    fn slots(retention: Duration) -> usize {
        let slots = retention.saturating_add(SLACK).as_secs().saturating_mul(SLOTS_PER_SECOND);
        usize::try_from(slots).unwrap_or(usize::MAX)
    }

    fn bound(&self, class: ObjectClass) -> Bound {
        let retention = self.retention.of(class);
        let oldest = self.newest.unwrap_or(Tick::ZERO).back(retention.saturating_add(SLACK));
        let slots = Inner::slots(retention);
        let shared = self.shared.number_from(oldest).max(self.shared.end().saturating_sub(slots as u64));
        Bound { oldest, shared, slots }
    }

    fn add(&mut self, object: &Object) -> usize {
        let entry = Some(Entry::new(object.clone()));
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.numbers.insert(object.clone(), number);
        number
    }

    fn is_at(&self, number: usize, object: &Object) -> bool {
        matches!(self.entries.get(number), Some(Some(entry)) if entry.object.is_same(object))
    }

    fn find(&mut self, finder: &mut Finder, object: &Object) -> usize {
        if let Some(current) = finder.current
            && self.is_at(current, object)
        {
            return current;
        }
        let number = match self.order.get(finder.position) {
            Some(&number) if self.is_at(number, object) => number,
            _ => match self.numbers.get(object) {
                Some(&number) => number,
                None => self.add(object),
            },
        };
        match self.order.get_mut(finder.position) {
            Some(slot) => *slot = number,
            None => self.order.push(number),
        }
        finder.position += 1;
        finder.current = Some(number);
        number
    }

    /// The number of `tick` on the shared timeline.
    fn place(&mut self, tick: Tick) -> u64 {
        match self.shared.place(tick) {
            Place::At(number) => number,
            Place::Inserted(number) => {
                for entry in self.entries.iter_mut().flatten() {
                    entry.insert_shared(number);
                }
                number
            }
        }
    }

    /// Forgets ticks that no object keeps.
    fn forget_ticks(&mut self) {
        let longest = self.retention.longest();
        let oldest = self.newest.unwrap_or(Tick::ZERO).back(longest.saturating_add(SLACK));
        let excess = self.shared.len().saturating_sub(Inner::slots(longest)) as u64;
        self.shared.forget_below(self.shared.number_from(oldest).max(self.shared.first() + excess));
    }

    pub(super) fn record(&mut self, pass: &Pass) -> Recorded {
        let mut recorded = Recorded::default();
        let mut finder = Finder::default();
        let tick = pass.tick;
        self.newest = self.newest.max(Some(tick));
        let mut number = None;
        // One bound for each sort of objects; computed anew when the sort changes, which it does a few times in a pass.
        let mut bound: Option<(ObjectClass, Bound)> = None;
        for sample in &pass.samples {
            let class = sample.object.class();
            if !sample.value.is_finite() || sample.kind.object_class() != class {
                recorded.refused += 1;
                continue;
            }
            let cadence = sample.kind.cadence();
            if cadence == Cadence::Passing {
                recorded.passing += 1;
                continue;
            }
            let mut limit = match bound {
                Some((of, limit)) if of == class => limit,
                _ => self.bound(class),
            };
            if tick < limit.oldest {
                recorded.outdated += 1;
                continue;
            }
            if cadence == Cadence::EveryPass && number.is_none() {
                number = Some(self.place(tick));
                // The timeline is longer now.
                limit = self.bound(class);
            }
            bound = Some((class, limit));
            let index = self.find(&mut finder, &sample.object);
            let Some(Some(entry)) = self.entries.get_mut(index) else { continue };
            let is_set = match (cadence, number) {
                (Cadence::EveryPass, Some(number)) => {
                    entry.set_shared(sample.kind, number, sample.value, Overwrite::Yes, limit)
                }
                _ => entry.set_own(sample.kind, tick, sample.value, Overwrite::Yes, limit),
            };
            recorded.kept += usize::from(is_set);
        }
        self.order.truncate(finder.position);
        self.passes += 1;
        self.refused += recorded.refused as u64;
        self.forget_ticks();
        if self.newest.unwrap_or(Tick::ZERO).since(self.swept) >= SWEEP_INTERVAL {
            self.sweep();
        }
        recorded
    }

    /// Adds samples of one series, ascending by time, where there are none yet: how many are kept.
    pub(super) fn fill(&mut self, object: &Object, kind: Kind, samples: &[(Tick, f64)]) -> usize {
        let class = object.class();
        let Some(&(newest, _)) = samples.last() else { return 0 };
        if kind.object_class() != class || !kind.is_kept() {
            return 0;
        }
        self.newest = self.newest.max(Some(newest));
        let limit = self.bound(class);
        if newest < limit.oldest {
            return 0;
        }
        let index = match self.numbers.get(object) {
            Some(&index) => index,
            None => self.add(object),
        };
        let mut kept = 0;
        for &(tick, value) in
            samples.iter().filter(|(tick, value)| *tick >= limit.oldest && value.is_finite())
        {
            let shared = (kind.cadence() == Cadence::EveryPass).then(|| self.place(tick));
            let Some(Some(entry)) = self.entries.get_mut(index) else { break };
            let is_new = match shared {
                Some(number) => entry.set_shared(kind, number, value, Overwrite::No, limit),
                None => entry.set_own(kind, tick, value, Overwrite::No, limit),
            };
            kept += usize::from(is_new);
        }
        self.forget_ticks();
        kept
    }

    fn entry(&self, object: &Object) -> Option<&Entry> {
        let number = *self.numbers.get(object)?;
        self.entries.get(number)?.as_ref()
    }

    /// Copies the values from `from` to `to`: the ticks of the first and the last.
    pub(super) fn copy(
        &self,
        object: &Object,
        kind: Kind,
        from: Tick,
        to: Tick,
        values: &mut Vec<f64>,
    ) -> Result<(Tick, Tick), WindowError> {
        let series = self
            .entry(object)
            .and_then(|entry| Some((entry.find(kind)?, entry.timeline(kind, &self.shared)?)));
        let absent =
            if self.unsupported.contains(&kind) { WindowError::NotSupported } else { WindowError::NoData };
        let Some((series, timeline)) = series else { return Err(absent) };
        let column = series.column();
        let (start, end) = (timeline.number_from(from), timeline.number_past(to));
        column.copy(timeline, start, end, values).ok_or_else(|| match column.last(timeline, start) {
            Some((last, _)) if absent == WindowError::NoData => WindowError::Stale { last },
            _ => absent,
        })
    }

    pub(super) fn samples(&self, object: &Object, kind: Kind, from: Tick, to: Tick) -> Vec<(Tick, f64)> {
        let series = self
            .entry(object)
            .and_then(|entry| Some((entry.find(kind)?, entry.timeline(kind, &self.shared)?)));
        series.map_or_else(Vec::new, |(series, timeline)| {
            series.column().samples(timeline, timeline.number_from(from), timeline.number_past(to)).collect()
        })
    }

    pub(super) fn latest(&self, object: &Object, kind: Kind) -> Option<(Tick, f64)> {
        let entry = self.entry(object)?;
        let timeline = entry.timeline(kind, &self.shared)?;
        entry.find(kind)?.column().last(timeline, timeline.end())
    }

    pub(super) fn objects(&self) -> Vec<Object> {
        self.entries.iter().flatten().map(|entry| entry.object.clone()).collect()
    }

    pub(super) fn list(&self, object: &Object) -> Vec<SeriesInfo> {
        let Some(entry) = self.entry(object) else { return Vec::new() };
        let info = |kind: Kind| {
            let timeline = entry.timeline(kind, &self.shared)?;
            let mut samples = entry.find(kind)?.column().samples(timeline, 0, u64::MAX);
            let (first_tick, value) = samples.next()?;
            let (count, last_tick, last) =
                samples.fold((1, first_tick, value), |(count, ..), (tick, value)| (count + 1, tick, value));
            Some(SeriesInfo { object: object.clone(), kind, count, first_tick, last_tick, last })
        };
        entry.series().iter().filter_map(|series| info(series.kind)).collect()
    }

    /// Appends the samples of an object up to `newest`.
    pub(super) fn encode(&self, object: &Object, newest: Tick, encoder: &mut Encoder) {
        let Some(entry) = self.entry(object) else { return };
        encoder.object(object, entry.series().len());
        for series in entry.series() {
            let samples = entry
                .timeline(series.kind, &self.shared)
                .into_iter()
                .flat_map(|timeline| series.column().samples(timeline, 0, timeline.number_past(newest)));
            encoder.series(series.kind, samples);
        }
    }

    pub(super) fn stats(&self) -> StoreStats {
        let entries = || self.entries.iter().flatten();
        let map = self.numbers.capacity() * (size_of::<(Object, usize)>() + 1);
        let lists = (self.order.capacity() + self.free.capacity()) * size_of::<usize>();
        let holes = (self.entries.capacity() - self.numbers.len()) * size_of::<Option<Entry>>();
        StoreStats {
            objects: self.numbers.len(),
            series: entries().map(|entry| entry.series().len()).sum(),
            bytes: entries().map(Entry::bytes).sum::<usize>() + self.shared.bytes() + map + lists + holes,
            passes: self.passes,
            refused: self.refused,
            newest: self.newest,
        }
    }

    pub(super) fn retain(&mut self, is_live: impl Fn(&Object) -> bool) {
        self.remove(|entry| !is_live(&entry.object));
    }

    fn remove(&mut self, is_gone: impl Fn(&Entry) -> bool) {
        for (number, slot) in self.entries.iter_mut().enumerate() {
            if let Some(entry) = slot.take_if(|entry| is_gone(entry)) {
                self.numbers.remove(&entry.object);
                self.free.push(number);
            }
        }
        // After many have gone, what is left takes little room.
        if self.free.len() > self.numbers.len() + 64 {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.entries.retain(Option::is_some);
        self.entries.shrink_to_fit();
        self.free = Vec::new();
        self.order = Vec::new();
        self.numbers = self
            .entries
            .iter()
            .enumerate()
            .filter_map(|(number, entry)| Some((entry.as_ref()?.object.clone(), number)))
            .collect();
    }

    /// Forgets what is too old everywhere, also of objects that got no samples.
    fn sweep(&mut self) {
        self.swept = self.newest.unwrap_or(Tick::ZERO);
        self.forget_ticks();
        let classes = [ObjectClass::Node, ObjectClass::Pod, ObjectClass::Container]
            .map(|class| (self.retention.of(class), self.bound(class)));
        for entry in self.entries.iter_mut().flatten() {
            let retention = self.retention.of(entry.object.class());
            if let Some(&(_, bound)) = classes.iter().find(|(of, _)| *of == retention) {
                entry.forget(bound);
            }
        }
        self.shared.give_back();
        self.remove(Entry::is_empty);
    }
}
