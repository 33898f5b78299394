//! Figures over a span of time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::time::Tick;

/// The percentiles that are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Percentile {
    /// The median.
    P50,
    /// Nine tenths.
    P90,
    /// Nineteen twentieths.
    P95,
    /// Ninety-nine hundredths.
    P99,
}

impl Percentile {
    /// All, ascending.
    pub const ALL: [Percentile; 4] = [Percentile::P50, Percentile::P90, Percentile::P95, Percentile::P99];

    /// The key in NodeMetric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P95 => "p95",
            Percentile::P99 => "p99",
        }
    }

    /// Hundredths.
    pub const fn percent(self) -> usize {
        match self {
            Percentile::P50 => 50,
            Percentile::P90 => 90,
            Percentile::P95 => 95,
            Percentile::P99 => 99,
        }
    }

    /// Place of the percentile among `count` ascending values: the whole part of `count` x p, less one, at least 0.
    ///
    /// Koordinator 1.7 multiplies in 32-bit floating point; for less than 4000 values the place is the same.
    pub const fn index(self, count: usize) -> usize {
        (count.saturating_mul(self.percent()) / 100).saturating_sub(1)
    }
}

/// Why there is no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// No sample lies in the window, and none before it.
    #[error("no sample")]
    NoData,
    /// The kind is not measured on this node.
    #[error("not measured on this node")]
    NotSupported,
    /// All samples lie before the window.
    #[error("no sample since {last}")]
    Stale {
        /// Time of the newest sample, in seconds since boot.
        last: Tick,
    },
}

/// Figures of a window that need no order of its values. There is at least one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Sum of the values divided by their number.
    pub average: f64,
    /// The newest value.
    pub last: f64,
    /// Number of values.
    pub count: usize,
    /// Time of the oldest value.
    pub first_tick: Tick,
    /// Time of the newest value.
    pub last_tick: Tick,
}

impl Summary {
    /// The figures of `values`, ascending by time, of which there is at least one.
    pub(crate) fn of(values: &[f64], first_tick: Tick, last_tick: Tick) -> Summary {
        let sum: f64 = values.iter().sum();
        Summary {
            average: sum / values.len() as f64,
            last: values.last().copied().unwrap_or(f64::NAN),
            count: values.len(),
            first_tick,
            last_tick,
        }
    }

    /// Time from the oldest to the newest value.
    pub const fn duration(&self) -> Duration {
        self.last_tick.since(self.first_tick)
    }
}

/// All figures of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Those without order.
    pub summary: Summary,
    pub(crate) percentiles: [f64; 4],
}

impl Window {
    /// The figures of `values`, ascending by time, of which there is at least one. Their order is lost.
    pub(crate) fn of(values: &mut [f64], first_tick: Tick, last_tick: Tick) -> Window {
        let summary = Summary::of(values, first_tick, last_tick);
        Window { summary, percentiles: select(values) }
    }

    /// Sum of the values divided by their number.
    pub const fn average(&self) -> f64 {
        self.summary.average
    }

    /// The value at a percentile's place; see [`Percentile::index`].
    pub const fn percentile(&self, percentile: Percentile) -> f64 {
        let [p50, p90, p95, p99] = self.percentiles;
        match percentile {
            Percentile::P50 => p50,
            Percentile::P90 => p90,
            Percentile::P95 => p95,
            Percentile::P99 => p99,
        }
    }

    /// The newest value.
    pub const fn last(&self) -> f64 {
        self.summary.last
    }

    /// Number of values, at least 1.
    pub const fn count(&self) -> usize {
        self.summary.count
    }

    /// Time of the oldest value.
    pub const fn first_tick(&self) -> Tick {
        self.summary.first_tick
    }

    /// Time of the newest value.
    pub const fn last_tick(&self) -> Tick {
        self.summary.last_tick
    }

    /// Time from the oldest to the newest value.
    pub const fn duration(&self) -> Duration {
        self.summary.duration()
    }
}

/// The values at the places of [`Percentile::ALL`]. Each selection leaves only the values above for the next.
fn select(values: &mut [f64]) -> [f64; 4] {
    let count = values.len();
    let mut percentiles = [f64::NAN; 4];
    let (mut rest, mut offset, mut previous) = (values, 0, f64::NAN);
    for (result, percentile) in percentiles.iter_mut().zip(Percentile::ALL) {
        let index = percentile.index(count);
        // The same place as before, when there are few values.
        if let Some(place) = index.checked_sub(offset)
            && place < rest.len()
        {
            let (_, &mut value, above) = rest.select_nth_unstable_by(place, f64::total_cmp);
            (rest, offset, previous) = (above, index + 1, value);
        }
        *result = previous;
    }
    percentiles
}
