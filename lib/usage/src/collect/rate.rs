//! Counters to rates.

use std::time::Duration;

/// What a counter said last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rate {
    last: Option<(u64, u64)>,
}

/// What came of a counter since it was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// How much it grew.
    pub amount: u64,
    /// Nanoseconds between both reads.
    pub nanoseconds: u64,
}

impl Growth {
    /// Growth per time, both in nanoseconds: a number of CPUs.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
    pub fn ratio(self) -> f64 {
        self.amount as f64 / self.nanoseconds as f64
    }
}

impl Rate {
    /// Takes the counter's `value`, read at `now` in nanoseconds. `None` for the first one, after a pause of more than `pause`,
    /// for a counter that went back and for a clock that did not move; in each case this read is what the next is compared with.
    pub fn growth(&mut self, value: u64, now: u64, pause: Duration) -> Option<Growth> {
        let (before, then) = self.last.replace((value, now))?;
        let nanoseconds = now.checked_sub(then).filter(|time| *time > 0)?;
        if u128::from(nanoseconds) > pause.as_nanos() {
            return None;
        }
        Some(Growth { amount: value.checked_sub(before)?, nanoseconds })
    }

    /// Forgets what was read.
    pub fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAUSE: Duration = Duration::from_secs(20);
    const SECOND: u64 = 1_000_000_000;

    fn cores(before: u64, after: u64, nanoseconds: u64) -> Option<f64> {
        let mut rate = Rate::default();
        assert_eq!(rate.growth(before, 5 * SECOND, PAUSE), None);
        rate.growth(after, 5 * SECOND + nanoseconds, PAUSE).map(Growth::ratio)
    }

    #[test]
    fn cores_are_time_used_by_time_gone() {
        assert_eq!(cores(1_000_000_000, 1_500_000_000, SECOND), Some(0.5));
        assert_eq!(cores(10_000_000_000, 10_250_000_000, SECOND / 2), Some(0.5));
        assert_eq!(cores(7, 7, SECOND), Some(0.0));
    }

    #[test]
    fn what_is_compared_with_nothing_gives_nothing() {
        assert_eq!(cores(10, 9, SECOND), None, "a counter that went back");
        assert_eq!(cores(10, 20, 0), None, "no time has passed");
        assert_eq!(cores(0, 20 * SECOND, 20 * SECOND), Some(1.0), "as long as may be");
        assert_eq!(cores(0, 20 * SECOND, 20 * SECOND + 1), None, "too long ago");
        assert_eq!(cores(0, 25 * SECOND, 25 * SECOND), None, "25 s old");
    }

    #[test]
    fn a_counter_that_went_back_is_the_new_start() {
        let mut rate = Rate::default();
        assert_eq!(rate.growth(100, SECOND, PAUSE), None);
        assert_eq!(rate.growth(50, 2 * SECOND, PAUSE), None);
        assert_eq!(rate.growth(60, 3 * SECOND, PAUSE), Some(Growth { amount: 10, nanoseconds: SECOND }));
        rate.forget();
        assert_eq!(rate.growth(70, 4 * SECOND, PAUSE), None);
    }

    proptest! {
        /// Growth adds up to the way from first to last as long as the counter only grows.
        #[test]
        fn no_growth_is_lost(steps in proptest::collection::vec((0_u64..1 << 40, 1_u64..SECOND), 1..50)) {
            let mut rate = Rate::default();
            let (mut value, mut now) = (3, 5);
            prop_assert_eq!(rate.growth(value, now, PAUSE), None);
            let (mut sum, mut time) = (0, 0);
            for (more, later) in steps {
                value += more;
                now += later;
                let growth = rate.growth(value, now, PAUSE).expect("it grew within the pause");
                sum += growth.amount;
                time += growth.nanoseconds;
            }
            prop_assert_eq!((sum + 3, time + 5), (value, now));
        }
    }
}
