//! Histograms with buckets that grow exponentially, in which old samples fade.
//!
//! The same as Koordinator's, which come from the vertical pod autoscaler: a percentile is the upper end of a
//! bucket, so an answer is up to 5 % too large, and never too small.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::wall_time::WallTime;

/// How much larger a bucket is than the one before it.
const GROWTH: f64 = 1.05;

/// A bucket that weighs less is empty.
const EPSILON: f64 = 0.0001;

/// After so many half-lives the time of weight 1 moves on, before weights become too large.
const MOST_HALF_LIVES: i64 = 100;

/// What is counted, which decides the buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Cores: from 0.025 to 1024.
    Cpu,
    /// Bytes: from 5 MiB to 2 TiB.
    Memory,
}

impl Scale {
    /// Size of the first bucket.
    pub const fn first(self) -> f64 {
        match self {
            Scale::Cpu => 0.025,
            Scale::Memory => 5_242_880.0,
        }
    }

    /// The value from which on all values share the last bucket.
    pub const fn highest(self) -> f64 {
        match self {
            Scale::Cpu => 1024.0,
            Scale::Memory => 2_199_023_255_552.0,
        }
    }

    /// Number of buckets: as many as are needed for the start of the last one to reach
    /// [`highest`](Scale::highest).
    pub const fn buckets(self) -> usize {
        match self {
            Scale::Cpu => 158,
            Scale::Memory => 205,
        }
    }

    /// The bucket of a value.
    pub fn bucket(self, value: f64) -> usize {
        // Written so that a value that is not a number falls into the first bucket.
        if value >= self.first() {
            let bucket = position(value, self.first());
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "truncation is the rule"
            )]
            let bucket = bucket as usize;
            bucket.min(self.buckets() - 1)
        } else {
            0
        }
    }

    /// Where a bucket starts.
    pub fn start(self, bucket: usize) -> f64 {
        // Buckets are a few hundred at most.
        let bucket = i32::try_from(bucket).unwrap_or(i32::MAX);
        self.first() * (GROWTH.powf(f64::from(bucket)) - 1.0) / (GROWTH - 1.0)
    }

    /// Where a bucket ends; the last one, which has no end, where it starts.
    pub fn end(self, bucket: usize) -> f64 {
        self.start((bucket + 1).min(self.buckets() - 1))
    }
}

/// How many buckets fit below `value`, with the fraction of the next one.
fn position(value: f64, first: f64) -> f64 {
    (value * (GROWTH - 1.0) / first + 1.0).ln() / GROWTH.ln()
}

/// A histogram in which a sample weighs half as much after each half-life.
///
/// A sample of weight 1 at time t is counted as 2^((t - reference) / half-life): old samples are not touched,
/// newer ones weigh more.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    scale: Scale,
    /// Milliseconds, at least 1.
    half_life: i64,
    /// When a sample weighs 1; a multiple of the half-life. None before the first sample.
    reference: Option<WallTime>,
    weights: Box<[f64]>,
    total: f64,
}

/// Weights of a histogram that cannot be taken over.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HistogramError {
    /// A bucket that the histogram does not have.
    #[error("bucketWeights: bucket {bucket} is beyond the last one, {last}")]
    UnknownBucket {
        /// The bucket.
        bucket: u32,
        /// The last bucket there is.
        last: usize,
    },
    /// A total that is no weight.
    #[error("totalWeight is {0}; wanted a finite number of at least 0")]
    Total(f64),
    /// Weights that would outweigh every sample to come.
    #[error("referenceTimestamp {reference} is later than now, {now}")]
    Future {
        /// The time of weight 1.
        reference: WallTime,
        /// Now.
        now: WallTime,
    },
}

impl Histogram {
    /// An empty histogram. A half-life below a millisecond counts as one.
    pub fn new(scale: Scale, half_life: Duration) -> Histogram {
        let half_life = i64::try_from(half_life.as_millis()).unwrap_or(i64::MAX / MOST_HALF_LIVES);
        Histogram {
            scale,
            half_life: half_life.clamp(1, i64::MAX / MOST_HALF_LIVES),
            reference: None,
            weights: vec![0.0; scale.buckets()].into(),
            total: 0.0,
        }
    }

    /// What it counts.
    pub const fn scale(&self) -> Scale {
        self.scale
    }

    /// When a sample weighs 1; none before the first sample.
    pub const fn reference(&self) -> Option<WallTime> {
        self.reference
    }

    /// Weight of all samples, as of the reference.
    pub const fn total_weight(&self) -> f64 {
        self.total
    }

    /// Weights of the buckets, as of the reference.
    pub const fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// How many samples of time `now` all samples weigh.
    pub fn weight_at(&self, now: WallTime) -> f64 {
        match self.reference {
            Some(reference) => self.total * (-self.half_lives(reference, now)).exp2(),
            None => 0.0,
        }
    }

    /// What `samples` samples weigh at the time of the last of them, when they came one `interval` apart.
    pub fn weight_of_regular(&self, samples: f64, interval: Duration) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a half-life of 2^53 ms is longer than time")]
        let fade = (-(interval.as_secs_f64() * 1000.0) / self.half_life as f64).exp2();
        if fade >= 1.0 { samples } else { (1.0 - fade.powf(samples)) / (1.0 - fade) }
    }

    /// Adds a sample of weight 1.
    pub fn add(&mut self, value: f64, now: WallTime) {
        let reference = self.reference_for(now);
        let weight = self.half_lives(reference, now).exp2();
        if let Some(bucket) = self.weights.get_mut(self.scale.bucket(value)) {
            *bucket += weight;
            self.total += weight;
        }
    }

    /// The reference, moved if a weight would become too large.
    fn reference_for(&mut self, now: WallTime) -> WallTime {
        let moved = now.rounded(self.half_life);
        let Some(reference) = self.reference else {
            self.reference = Some(moved);
            return moved;
        };
        let limit = self.half_life.saturating_mul(MOST_HALF_LIVES);
        if now.millis_since(reference) > limit {
            let factor = self.half_lives(moved, reference).round().exp2();
            self.weights.iter_mut().for_each(|weight| *weight *= factor);
            self.total *= factor;
            self.reference = Some(moved);
        } else if now.millis_since(reference) < -limit {
            // The clock was set back so far that a sample would weigh nothing: what was learnt in a future
            // that has not come is dropped.
            self.weights.fill(0.0);
            self.total = 0.0;
            self.reference = Some(moved);
        }
        self.reference.unwrap_or(moved)
    }

    fn half_lives(&self, from: WallTime, to: WallTime) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "times of ten thousand years are below 2^53 ms")]
        let half_lives = to.millis_since(from) as f64 / self.half_life as f64;
        half_lives
    }

    /// Whether no bucket has a weight worth the name.
    pub fn is_empty(&self) -> bool {
        self.weights.iter().all(|weight| *weight < EPSILON)
    }

    /// The value that the share `percentile` (0 to 1) of the weight does not exceed: the upper end of a
    /// bucket. 0 if it is empty.
    pub fn percentile(&self, percentile: f64) -> f64 {
        let used = |weight: &f64| *weight >= EPSILON;
        let (Some(lowest), Some(highest)) =
            (self.weights.iter().position(used), self.weights.iter().rposition(used))
        else {
            return 0.0;
        };
        let threshold = percentile * self.total;
        let mut sum = 0.0;
        let mut bucket = lowest;
        for weight in self.weights.iter().take(highest).skip(lowest) {
            sum += weight;
            if sum >= threshold {
                break;
            }
            bucket += 1;
        }
        self.scale.end(bucket)
    }

    /// Adds weights: of each bucket its part of `weights`, so that all are `total` together.
    ///
    /// A histogram that has samples of its own is not changed; nor is one of which the weights cannot be
    /// used. `now` is the time of the reading: weights of a time that has not come are refused.
    pub fn restore(
        &mut self,
        reference: Option<WallTime>,
        weights: impl Iterator<Item = (u32, u32)> + Clone,
        total: f64,
        now: WallTime,
    ) -> Result<(), HistogramError> {
        if !(total.is_finite() && total >= 0.0) {
            return Err(HistogramError::Total(total));
        }
        let last = self.weights.len() - 1;
        if let Some((bucket, _)) =
            weights.clone().find(|(bucket, _)| usize::try_from(*bucket).map_or(true, |bucket| bucket > last))
        {
            return Err(HistogramError::UnknownBucket { bucket, last });
        }
        let sum: f64 = weights.clone().map(|(_, weight)| f64::from(weight)).sum();
        let Some(reference) = reference.filter(|_| sum > 0.0 && total > 0.0) else { return Ok(()) };
        // The reference of a sample is up to half of a half-life later than the sample.
        if reference.millis_since(now) > self.half_life {
            return Err(HistogramError::Future { reference, now });
        }
        if self.reference.is_some() {
            return Ok(());
        }
        for (bucket, weight) in weights {
            if let Some(kept) = usize::try_from(bucket).ok().and_then(|bucket| self.weights.get_mut(bucket)) {
                *kept += f64::from(weight) * (total / sum);
            }
        }
        self.total = total;
        self.reference = Some(reference);
        Ok(())
    }
}
