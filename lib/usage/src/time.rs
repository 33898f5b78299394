//! Time of samples.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment: milliseconds since the machine booted, counted on while it sleeps (`CLOCK_BOOTTIME`).
///
/// Steps of the wall clock do not move it, and it means the same in every process until the next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// The first moment.
    pub const ZERO: Tick = Tick(0);

    /// The current moment.
    pub fn now() -> Tick {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let milliseconds = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or(0);
        Tick(seconds.saturating_mul(1000).saturating_add(milliseconds))
    }

    /// Milliseconds since boot.
    pub const fn milliseconds(self) -> u64 {
        self.0
    }

    /// The time that passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Tick) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The moment `duration` before this one, at least [`Tick::ZERO`].
    #[must_use]
    pub fn back(self, duration: Duration) -> Tick {
        Tick(self.0.saturating_sub(milliseconds(duration)))
    }

    /// The moment `duration` after this one.
    #[must_use]
    pub fn ahead(self, duration: Duration) -> Tick {
        Tick(self.0.saturating_add(milliseconds(duration)))
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Whole milliseconds of `duration`, held at the end of the range.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_stop_at_the_ends() {
        let tick = Tick(1_500);
        assert_eq!(tick.back(Duration::from_secs(1)), Tick(500));
        assert_eq!(tick.back(Duration::from_secs(2)), Tick::ZERO);
        assert_eq!(tick.ahead(Duration::from_millis(1)), Tick(1_501));
        assert_eq!(Tick(u64::MAX).ahead(Duration::MAX), Tick(u64::MAX));
        assert_eq!(tick.since(Tick(1_000)), Duration::from_millis(500));
        assert_eq!(Tick(1_000).since(tick), Duration::ZERO);
        assert_eq!(tick.to_string(), "1.500");
    }

    #[test]
    fn the_clock_is_that_of_the_boot() {
        let text = std::fs::read_to_string("/proc/uptime").expect("the kernel tells");
        let uptime: f64 = text.split(' ').next().expect("a word").parse().expect("seconds");
        // The file counts boot time too; it was read a moment before.
        let now = Tick::now().milliseconds();
        let lower = Duration::from_secs_f64(uptime).as_millis();
        assert!(u128::from(now) + 20 >= lower, "{now} is before {lower}");
        assert!(u128::from(now) <= lower + 60_000, "{now} is long after {lower}");
    }
}
