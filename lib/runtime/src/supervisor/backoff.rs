//! Pauses between restarts.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

/// Exponential pauses, capped, with jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The pause after the first failure, before jitter.
    pub first: Duration,
    /// The longest pause, jitter included.
    pub cap: Duration,
    /// A run at least this long counts as a success: the next failure starts at `first` again.
    pub reset_after: Duration,
}

impl Default for Backoff {
    /// 100 ms to 3 s, reset after 30 s: quick enough that a restarted part is hardly missed, slow
    /// enough that a broken one does not fill the log.
    fn default() -> Backoff {
        Backoff {
            first: Duration::from_millis(100),
            cap: Duration::from_secs(3),
            reset_after: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// The pause after `failures` earlier failures in a row. `jitter` in 0..1 spreads it over the
    /// upper half, so that parts that failed together do not come back together.
    pub fn pause(&self, failures: u32, jitter: f64) -> Duration {
        let full = self.first.saturating_mul(2u32.saturating_pow(failures)).min(self.cap);
        full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
    }
}

/// A number in 0..1 that is good enough for jitter.
pub(super) fn random_unit() -> f64 {
    // The standard hasher's keys are random; hashing nothing yields them mixed.
    let bits = std::hash::RandomState::new().build_hasher().finish();
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_cap() {
        let backoff = Backoff::default();
        for (failures, milliseconds) in [(0, 100), (1, 200), (2, 400), (4, 1600), (5, 3000), (1000, 3000)] {
            assert_eq!(backoff.pause(failures, 1.0), Duration::from_millis(milliseconds), "{failures}");
            assert_eq!(backoff.pause(failures, 0.0), Duration::from_millis(milliseconds) / 2, "{failures}");
        }
    }

    #[test]
    fn jitter_stays_in_range() {
        for _ in 0..1000 {
            let value = random_unit();
            assert!((0.0..1.0).contains(&value));
        }
    }
}
