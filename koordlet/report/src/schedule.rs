//! When a report is due.
//!
//! Reports of all nodes at the same moment make the API server swing between idle and overload. So each node
//! has a phase of its own within the interval, from its name, and keeps to it by the wall clock, whenever it
//! was started. Koordinator waits one interval after another instead, the first one before the first report.

use std::time::Duration;

use koord_prediction::WallTime;

/// Samples that the first report needs. Until it is there, a new or restarted node is unknown to the
/// scheduler.
pub const FIRST_REPORT_SAMPLES: Duration = Duration::from_secs(30);

/// How often the first report is considered.
const FIRST_REPORT_POLL: Duration = Duration::from_secs(1);

/// When reports of a node are due.
#[derive(Debug, Clone)]
pub struct Schedule {
    hash: u64,
    reported: bool,
}

/// What was found at some moment, for the decision whether a report is due.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The time by the wall clock.
    pub now: WallTime,
    /// Time since the start.
    pub since_start: Duration,
    /// Time from the oldest to the newest sample of the node's CPU.
    pub sampled: Duration,
}

impl Schedule {
    /// The schedule of a node.
    pub fn new(node_name: &str) -> Schedule {
        Schedule { hash: hash(node_name), reported: false }
    }

    /// The node's place within an interval.
    pub fn phase(&self, interval: Duration) -> Duration {
        Duration::from_millis(self.hash % millis(interval))
    }

    /// How long to wait until the next report, or until asking again; zero: now.
    ///
    /// The first report is due as soon as there are 30 s of samples, after one interval in any case. A wait
    /// that has begun is not shortened when the interval becomes shorter.
    pub fn wait(&self, moment: Moment, interval: Duration) -> Duration {
        if !self.reported {
            if moment.sampled >= FIRST_REPORT_SAMPLES || moment.since_start >= interval {
                return Duration::ZERO;
            }
            return FIRST_REPORT_POLL.min(interval.saturating_sub(moment.since_start));
        }
        let interval = millis(interval);
        let phase = self.hash % interval;
        let now = u64::try_from(moment.now.unix_millis()).unwrap_or(0) % interval;
        let wait = (phase + interval - now) % interval;
        // A report a little before its time, as the clock was slewed meanwhile, is not made twice.
        let too_soon = (interval / 10).min(1000);
        Duration::from_millis(if wait < too_soon { wait + interval } else { wait })
    }

    /// Notes that a report was tried.
    pub const fn reported(&mut self) {
        self.reported = true;
    }
}

/// Milliseconds, at least 1.
fn millis(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX / 4).clamp(1, u64::MAX / 4)
}

/// FNV-1a with a last stirring: names that differ in their last digit are spread over the whole range. The
/// same in all versions, so that an update does not move the phases.
fn hash(name: &str) -> u64 {
    let mut hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(millis: i64) -> Moment {
        Moment {
            now: WallTime::from_unix_millis(1_784_851_200_000 + millis),
            since_start: MINUTE * 5,
            sampled: MINUTE * 5,
        }
    }

    fn first(since_start: u64, sampled: u64) -> Duration {
        let moment = Moment {
            since_start: Duration::from_millis(since_start),
            sampled: Duration::from_secs(sampled),
            ..at(0)
        };
        Schedule::new("node-1").wait(moment, MINUTE)
    }

    #[test]
    fn the_first_report_waits_for_samples_but_not_for_ever() {
        assert_eq!(first(0, 0), Duration::from_secs(1));
        assert_eq!(first(29_000, 29), Duration::from_secs(1));
        assert_eq!(first(30_000, 30), Duration::ZERO);
        // Samples from before a restart count.
        assert_eq!(first(100, 1800), Duration::ZERO);
        assert_eq!(first(59_999, 0), Duration::from_millis(1));
        assert_eq!(first(60_000, 0), Duration::ZERO);
    }

    #[test]
    fn later_reports_keep_the_phase() {
        let mut schedule = Schedule::new("node-1");
        schedule.reported();
        let phase = i64::try_from(schedule.phase(MINUTE).as_millis()).unwrap();
        let wait = |millis| i64::try_from(schedule.wait(at(millis), MINUTE).as_millis()).unwrap();
        assert_eq!(wait(phase), 60_000);
        assert_eq!(wait(phase + 10), 59_990);
        assert_eq!(wait(phase + 30_000), 30_000);
        assert_eq!(wait(phase - 1000), 1000);
        // A little too early: this one was meant.
        assert_eq!(wait(phase - 999), 60_999);
    }

    #[test]
    fn names_spread_over_the_interval() {
        // 6000 nodes, ten seconds each: every tenth of the interval gets its share of 600, plus or minus a fifth.
        let mut tenths = [0_u32; 10];
        for number in 0..6000 {
            let phase = Schedule::new(&format!("node-{number}")).phase(MINUTE);
            tenths[usize::try_from(phase.as_secs() / 6).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (480..720).contains(count)), "{tenths:?}");
        // Fixed, or an update of the program would move it.
        assert_eq!(hash("node-1") % 60_000, Schedule::new("node-1").hash % 60_000);
    }

    proptest! {
        #[test]
        fn a_wait_ends_at_the_phase(name in "[a-z0-9-]{1,20}", now in 0..10_000_000_i64, seconds in 30..4000_u64) {
            let interval = Duration::from_secs(seconds);
            let mut schedule = Schedule::new(&name);
            schedule.reported();
            let wait = schedule.wait(at(now), interval);
            let end = u64::try_from(at(now).now.plus(wait).unix_millis()).unwrap();
            prop_assert_eq!(Duration::from_millis(end % (seconds * 1000)), schedule.phase(interval));
            prop_assert!(wait >= Duration::from_secs(1) && wait <= interval + Duration::from_secs(1));
        }
    }
}
