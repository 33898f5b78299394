//! How often a status is written at most.

use std::time::Duration;

use koord_usage::time::Tick;

/// Time in which one more write becomes possible.
const REFILL: Duration = Duration::from_secs(10);

/// Writes that are possible at once.
const BURST: u32 = 2;

/// One write in ten seconds, two at once. A third attempt within them fails and the next round makes it
/// good, so that repeated conflicts do not become load.
#[derive(Debug, Clone)]
pub struct WriteLimiter {
    /// Milliseconds of waiting that are saved up.
    saved: u64,
    last: Option<Tick>,
}

/// Too many writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than {BURST} writes within {} s; the next one is possible in {} ms",
    REFILL.as_secs(),
    after.as_millis()
)]
pub struct TooManyWrites {
    /// When the next one is possible.
    pub after: Duration,
}

impl Default for WriteLimiter {
    fn default() -> WriteLimiter {
        WriteLimiter { saved: full(), last: None }
    }
}

fn refill() -> u64 {
    u64::try_from(REFILL.as_millis()).unwrap_or(u64::MAX)
}

fn full() -> u64 {
    refill() * u64::from(BURST)
}

impl WriteLimiter {
    /// Takes one write.
    ///
    /// # Errors
    /// None is left.
    pub fn take(&mut self, now: Tick) -> Result<(), TooManyWrites> {
        let passed = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.last = Some(now);
        let passed = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.saved = self.saved.saturating_add(passed).min(full());
        match self.saved.checked_sub(refill()) {
            Some(left) => {
                self.saved = left;
                Ok(())
            }
            None => Err(TooManyWrites { after: Duration::from_millis(refill() - self.saved) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_attempt_within_ten_seconds_fails() {
        // M15.
        let mut limiter = WriteLimiter::default();
        assert_eq!(limiter.take(Tick(1000)), Ok(()));
        assert_eq!(limiter.take(Tick(1010)), Ok(()));
        let refused = limiter.take(Tick(1060)).unwrap_err();
        assert_eq!(refused, TooManyWrites { after: Duration::from_millis(9940) });
        assert_eq!(
            refused.to_string(),
            "more than 2 writes within 10 s; the next one is possible in 9940 ms"
        );
        assert!(limiter.take(Tick(10_999)).is_err());
        // Ten seconds after the burst began one is possible, and one only.
        assert_eq!(limiter.take(Tick(11_000)), Ok(()));
        assert!(limiter.take(Tick(11_010)).is_err());
    }

    #[test]
    fn writes_are_not_saved_up_beyond_two() {
        let mut limiter = WriteLimiter::default();
        assert_eq!(limiter.take(Tick(0)), Ok(()));
        assert_eq!(limiter.take(Tick(3_600_000)), Ok(()));
        assert_eq!(limiter.take(Tick(3_600_000)), Ok(()));
        assert!(limiter.take(Tick(3_600_000)).is_err());
    }

    #[test]
    fn a_report_every_half_minute_is_never_held_up() {
        let mut limiter = WriteLimiter::default();
        assert!((0..100).all(|round| limiter.take(Tick(round * 30_000)).is_ok()));
    }
}
