//! All series of one object.

use super::ring::{Column, Place, Timeline};
use crate::kind::{Cadence, Kind};
use crate::object::Object;
use crate::time::Tick;

#[derive(Debug)]
pub(super) struct Series {
    pub(super) kind: Kind,
    column: Column,
}

/// A timeline of this object alone: its samples of one cadence come together, but not together with those of other objects.
#[derive(Debug)]
struct Lane {
    cadence: Cadence,
    timeline: Timeline,
}

/// How far back samples go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    /// Ticks before this one are forgotten.
    pub(super) oldest: Tick,
    /// The number of that tick on the shared timeline.
    pub(super) shared: u64,
    /// Slots at most.
    pub(super) slots: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) object: Object,
    series: Vec<Series>,
    lanes: Vec<Lane>,
}

impl Entry {
    pub(super) const fn new(object: Object) -> Entry {
        Entry { object, series: Vec::new(), lanes: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    pub(super) fn series(&self) -> &[Series] {
        &self.series
    }

    pub(super) fn find(&self, kind: Kind) -> Option<&Series> {
        self.series.iter().find(|series| series.kind == kind)
    }

    /// The timeline of a kind.
    pub(super) fn timeline<'a>(&'a self, kind: Kind, shared: &'a Timeline) -> Option<&'a Timeline> {
        match kind.cadence() {
            Cadence::EveryPass => Some(shared),
            cadence => self.lanes.iter().find(|lane| lane.cadence == cadence).map(|lane| &lane.timeline),
        }
    }

    fn column(&mut self, kind: Kind) -> &mut Column {
        let index = match self.series.iter().position(|series| series.kind == kind) {
            Some(index) => index,
            None => {
                self.series.reserve_exact(1);
                self.series.push(Series { kind, column: Column::default() });
                self.series.len() - 1
            }
        };
        &mut self.series[index].column
    }

    /// Puts a value on the shared timeline: whether it is there now.
    pub(super) fn set_shared(
        &mut self,
        kind: Kind,
        number: u64,
        value: f64,
        overwrite: Overwrite,
        bound: Bound,
    ) -> bool {
        let column = self.column(kind);
        let is_set = overwrite == Overwrite::Yes || column.get(number).is_none();
        if is_set {
            column.set(number, value);
        }
        column.forget_below(bound.shared);
        is_set
    }

    /// Puts a value on the object's own timeline of the kind's cadence: whether it is there now.
    pub(super) fn set_own(
        &mut self,
        kind: Kind,
        tick: Tick,
        value: f64,
        overwrite: Overwrite,
        bound: Bound,
    ) -> bool {
        let cadence = kind.cadence();
        let lane = match self.lanes.iter().position(|lane| lane.cadence == cadence) {
            Some(index) => index,
            None => {
                self.lanes.reserve_exact(1);
                self.lanes.push(Lane { cadence, timeline: Timeline::default() });
                self.lanes.len() - 1
            }
        };
        let number = match self.lanes[lane].timeline.place(tick) {
            Place::At(number) => number,
            Place::Inserted(number) => {
                self.insert(cadence, number);
                number
            }
        };
        let column = self.column(kind);
        let is_set = overwrite == Overwrite::Yes || column.get(number).is_none();
        if is_set {
            column.set(number, value);
        }
        self.forget_own(bound);
        is_set
    }

    fn insert(&mut self, cadence: Cadence, number: u64) {
        for series in self.series.iter_mut().filter(|series| series.kind.cadence() == cadence) {
            series.column.insert(number);
        }
    }

    /// Follows the shared timeline, in which a tick was inserted.
    pub(super) fn insert_shared(&mut self, number: u64) {
        self.insert(Cadence::EveryPass, number);
    }

    fn forget_own(&mut self, bound: Bound) {
        for lane in &mut self.lanes {
            let excess = lane.timeline.len().saturating_sub(bound.slots) as u64;
            let below = lane.timeline.number_from(bound.oldest).max(lane.timeline.first() + excess);
            if below > lane.timeline.first() {
                lane.timeline.forget_below(below);
                for series in self.series.iter_mut().filter(|series| series.kind.cadence() == lane.cadence) {
                    series.column.forget_below(below);
                }
            }
        }
    }

    /// Forgets everything beyond `bound`, and series that have nothing left.
    pub(super) fn forget(&mut self, bound: Bound) {
        self.forget_own(bound);
        for series in &mut self.series {
            if series.kind.cadence() == Cadence::EveryPass {
                series.column.forget_below(bound.shared);
            }
            series.column.give_back();
        }
        self.series.retain(|series| !series.column.is_empty());
        for lane in &mut self.lanes {
            lane.timeline.give_back();
        }
        self.lanes.retain(|lane| lane.timeline.len() > 0);
    }

    /// Octets of memory, names included.
    pub(super) fn bytes(&self) -> usize {
        let series: usize =
            self.series.iter().map(|series| series.column.bytes() + size_of::<Series>()).sum();
        let lanes: usize = self.lanes.iter().map(|lane| lane.timeline.bytes() + size_of::<Lane>()).sum();
        series + lanes + size_of::<Entry>() + self.object.text_bytes()
    }
}

impl Series {
    pub(super) const fn column(&self) -> &Column {
        &self.column
    }
}

/// What becomes of a value that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overwrite {
    /// The new one takes its place.
    Yes,
    /// It stays.
    No,
}
