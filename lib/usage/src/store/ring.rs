//! Ticks and values side by side.
//!
//! A [`Timeline`] numbers its ticks; the number of the oldest grows as old ticks are forgotten. A [`Column`] has a value, or NaN,
//! for each number of a span of its timeline. What lies outside of the span is absent and costs nothing.

use std::collections::VecDeque;

use crate::time::Tick;

/// Makes room by an eighth, so that a ring of its final length wastes little.
fn make_room<T>(ring: &mut VecDeque<T>) {
    if ring.len() == ring.capacity() {
        ring.reserve_exact((ring.len() / 8).max(16));
    }
}

/// Gives back room that a ring which became shorter does not need.
fn give_back<T>(ring: &mut VecDeque<T>) {
    if ring.capacity() > ring.len() + ring.len() / 4 + 32 {
        ring.shrink_to(ring.len() + 16);
    }
}

/// Where a tick stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It was there or came at the end.
    At(u64),
    /// It was put before others: from this number on all are one higher than before.
    Inserted(u64),
}

/// Ascending ticks, each once.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    first: u64,
    ticks: VecDeque<Tick>,
}

impl Timeline {
    /// The place of `tick`, which is added if it is new.
    pub(super) fn place(&mut self, tick: Tick) -> Place {
        match self.ticks.back() {
            Some(&last) if last == tick => return Place::At(self.end() - 1),
            Some(&last) if last > tick => {}
            _ => {
                make_room(&mut self.ticks);
                self.ticks.push_back(tick);
                return Place::At(self.end() - 1);
            }
        }
        let index = self.ticks.partition_point(|&other| other < tick);
        let number = self.first + index as u64;
        if self.ticks.get(index) == Some(&tick) {
            return Place::At(number);
        }
        make_room(&mut self.ticks);
        self.ticks.insert(index, tick);
        Place::Inserted(number)
    }

    /// Number of the oldest tick.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// One more than the number of the newest tick.
    pub(super) fn end(&self) -> u64 {
        self.first + self.ticks.len() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.ticks.len()
    }

    /// Number of the first tick that is not before `tick`.
    pub(super) fn number_from(&self, tick: Tick) -> u64 {
        self.first + self.ticks.partition_point(|&other| other < tick) as u64
    }

    /// One more than the number of the last tick that is not after `tick`.
    pub(super) fn number_past(&self, tick: Tick) -> u64 {
        self.first + self.ticks.partition_point(|&other| other <= tick) as u64
    }

    /// The ticks from number `from` on.
    pub(super) fn ticks_from(&self, from: u64) -> impl Iterator<Item = Tick> + '_ {
        let index =
            usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.ticks.len());
        self.ticks.range(index..).copied()
    }

    /// Forgets the ticks below `number`.
    pub(super) fn forget_below(&mut self, number: u64) {
        let count =
            usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.ticks.len());
        self.ticks.drain(..count);
        self.first += count as u64;
    }

    pub(super) fn give_back(&mut self) {
        give_back(&mut self.ticks);
    }

    pub(super) fn bytes(&self) -> usize {
        self.ticks.capacity() * size_of::<Tick>()
    }
}

/// Values of one series. Its first value, if there is one, is a number.
#[derive(Debug, Default)]
pub(super) struct Column {
    first: u64,
    values: VecDeque<f64>,
}

impl Column {
    fn end(&self) -> u64 {
        self.first + self.values.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<f64>()
    }

    /// The value at a number.
    pub(super) fn get(&self, number: u64) -> Option<f64> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.values.get(index).copied().filter(|value| !value.is_nan())
    }

    /// Puts `value`, which is finite, at a number.
    pub(super) fn set(&mut self, number: u64, value: f64) {
        if self.values.is_empty() {
            self.first = number;
        }
        while self.first > number {
            make_room(&mut self.values);
            self.values.push_front(f64::NAN);
            self.first -= 1;
        }
        while self.end() <= number {
            make_room(&mut self.values);
            self.values.push_back(f64::NAN);
        }
        let index = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        if let Some(slot) = self.values.get_mut(index) {
            *slot = value;
        }
    }

    /// Follows a timeline in which a tick was inserted at `number`.
    pub(super) fn insert(&mut self, number: u64) {
        if number <= self.first {
            self.first += 1;
        } else if number < self.end() {
            let index = usize::try_from(number - self.first).unwrap_or(usize::MAX).min(self.values.len());
            make_room(&mut self.values);
            self.values.insert(index, f64::NAN);
        }
    }

    /// Forgets the values below `number`.
    pub(super) fn forget_below(&mut self, number: u64) {
        while let Some(&value) = self.values.front()
            && (self.first < number || value.is_nan())
        {
            self.values.pop_front();
            self.first += 1;
        }
    }

    pub(super) fn give_back(&mut self) {
        give_back(&mut self.values);
    }

    /// The values from number `from` to below `end`, with their ticks, ascending.
    pub(super) fn samples<'a>(
        &'a self,
        timeline: &'a Timeline,
        from: u64,
        end: u64,
    ) -> impl Iterator<Item = (Tick, f64)> + 'a {
        let from = from.max(self.first).max(timeline.first());
        let end = end.min(self.end()).min(timeline.end()).max(from);
        let index = |number: u64| {
            usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.values.len())
        };
        timeline
            .ticks_from(from)
            .zip(self.values.range(index(from)..index(end)).copied())
            .filter(|(_, value)| !value.is_nan())
    }

    /// The newest value below number `end`, with its tick.
    pub(super) fn last(&self, timeline: &Timeline, end: u64) -> Option<(Tick, f64)> {
        let first = self.first.max(timeline.first());
        let end = end.min(self.end()).min(timeline.end());
        let number = (first..end).rev().find(|&number| self.get(number).is_some())?;
        Some((timeline.ticks_from(number).next()?, self.get(number)?))
    }

    /// Copies what [`Column::samples`] gives without the ticks: the ticks of the first and the last value.
    pub(super) fn copy(
        &self,
        timeline: &Timeline,
        from: u64,
        end: u64,
        values: &mut Vec<f64>,
    ) -> Option<(Tick, Tick)> {
        values.clear();
        let first = from.max(self.first).max(timeline.first());
        let end = end.min(self.end()).min(timeline.end()).max(first);
        let index = |number: u64| {
            usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.values.len())
        };
        values.extend(self.values.range(index(first)..index(end)).filter(|value| !value.is_nan()));
        if values.is_empty() {
            return None;
        }
        let oldest = (first..end).find(|&number| self.get(number).is_some())?;
        let newest = (first..end).rev().find(|&number| self.get(number).is_some())?;
        Some((timeline.ticks_from(oldest).next()?, timeline.ticks_from(newest).next()?))
    }
}
