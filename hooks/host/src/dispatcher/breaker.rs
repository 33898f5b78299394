//! Keeps a hung server from costing every call its timeout.

use std::time::{Duration, Instant};

/// Timeouts in a row that open the breaker.
pub const TIMEOUTS_TO_OPEN: u32 = 3;
/// How long an open breaker skips the server before one call probes it.
pub const OPEN_FOR: Duration = Duration::from_secs(5);

/// What to do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Make it.
    Call,
    /// Make it; on its end depends whether others follow.
    Probe,
    /// Do without it.
    Skip,
}

/// How an admitted call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The server answered, or failed at once: either way it does not hang.
    Prompt,
    /// The server did not answer in time.
    TimedOut,
    /// Nobody waited for the answer any more.
    Cancelled,
}

/// The state kept for one server; time is given by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// Calls are made; so many in a row have timed out.
    Closed {
        /// Timeouts since the last prompt end.
        timeouts: u32,
    },
    /// Calls are skipped.
    Open {
        /// When the next call probes.
        until: Instant,
    },
    /// One call is on its way to find out.
    Probing,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { timeouts: 0 }
    }
}

impl Breaker {
    /// Whether calls are skipped, or one of them is finding out.
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Closed { .. })
    }

    /// Asks before a call.
    pub fn admit(&mut self, now: Instant) -> Admission {
        match *self {
            Self::Closed { .. } => Admission::Call,
            Self::Open { until } if now < until => Admission::Skip,
            Self::Open { .. } => {
                *self = Self::Probing;
                Admission::Probe
            }
            Self::Probing => Admission::Skip,
        }
    }

    /// Tells the end of an admitted call; true if it opened the breaker.
    pub fn ended(&mut self, now: Instant, admission: Admission, end: CallEnd) -> bool {
        match (*self, admission, end) {
            (Self::Probing, Admission::Probe, CallEnd::Prompt) => *self = Self::default(),
            (Self::Probing, Admission::Probe, CallEnd::TimedOut) => {
                *self = Self::Open { until: now + OPEN_FOR };
                return true;
            }
            // The next call probes in its stead.
            (Self::Probing, Admission::Probe, CallEnd::Cancelled) => *self = Self::Open { until: now },
            (Self::Closed { .. }, Admission::Call, CallEnd::Prompt) => *self = Self::default(),
            (Self::Closed { timeouts }, Admission::Call, CallEnd::TimedOut) => {
                let timeouts = timeouts + 1;
                if timeouts >= TIMEOUTS_TO_OPEN {
                    *self = Self::Open { until: now + OPEN_FOR };
                    return true;
                }
                *self = Self::Closed { timeouts };
            }
            // A call from before the breaker opened says nothing new.
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            assert_eq!(breaker.admit(now), Admission::Call);
            breaker.ended(now, Admission::Call, CallEnd::TimedOut);
        }
        breaker
    }

    #[test]
    fn the_third_timeout_in_a_row_opens() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        assert!(!breaker.ended(now, Admission::Call, CallEnd::TimedOut));
        assert!(!breaker.ended(now, Admission::Call, CallEnd::TimedOut));
        assert!(!breaker.ended(now, Admission::Call, CallEnd::Prompt));
        assert!(!breaker.ended(now, Admission::Call, CallEnd::TimedOut));
        assert!(!breaker.ended(now, Admission::Call, CallEnd::TimedOut));
        assert!(!breaker.ended(now, Admission::Call, CallEnd::Cancelled));
        assert_eq!(breaker.admit(now), Admission::Call);
        assert!(breaker.ended(now, Admission::Call, CallEnd::TimedOut));
        assert_eq!(breaker.admit(now), Admission::Skip);
    }

    #[test]
    fn one_probe_after_five_seconds() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let almost = now + Duration::from_millis(4_999);
        assert_eq!(breaker.admit(almost), Admission::Skip);
        let later = now + Duration::from_secs(5);
        assert_eq!(breaker.admit(later), Admission::Probe);
        assert_eq!(breaker.admit(later), Admission::Skip);
        assert!(breaker.ended(later, Admission::Probe, CallEnd::TimedOut));
        assert_eq!(breaker.admit(later + Duration::from_millis(4_999)), Admission::Skip);
        let again = later + Duration::from_secs(5);
        assert_eq!(breaker.admit(again), Admission::Probe);
        assert!(!breaker.ended(again, Admission::Probe, CallEnd::Prompt));
        assert_eq!(breaker.admit(again), Admission::Call);
    }

    #[test]
    fn a_cancelled_probe_lets_the_next_call_probe() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + OPEN_FOR;
        assert_eq!(breaker.admit(later), Admission::Probe);
        breaker.ended(later, Admission::Probe, CallEnd::Cancelled);
        assert_eq!(breaker.admit(later), Admission::Probe);
    }

    #[test]
    fn late_ends_of_earlier_calls_change_nothing() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let before = breaker;
        for end in [CallEnd::Prompt, CallEnd::TimedOut, CallEnd::Cancelled] {
            assert!(!breaker.ended(now + Duration::from_secs(1), Admission::Call, end));
            assert_eq!(breaker, before);
        }
    }

    proptest! {
        /// Whatever happens: at most one probe is under way, a skipped server is probed again within five
        /// seconds of quiet, and a server without timeouts is never skipped.
        #[test]
        fn never_stuck(steps in proptest::collection::vec((0u64..3_000, 0u8..3, any::<bool>()), 1..80)) {
            let mut now = Instant::now();
            let mut breaker = Breaker::default();
            let mut under_way: Vec<Admission> = Vec::new();
            let mut any_timeout = false;
            for (pause, end, admit) in steps {
                now += Duration::from_millis(pause);
                if admit {
                    let admission = breaker.admit(now);
                    prop_assert!(any_timeout || admission == Admission::Call);
                    if admission != Admission::Skip {
                        under_way.push(admission);
                    }
                } else if let Some(admission) = under_way.pop() {
                    let end = [CallEnd::Prompt, CallEnd::TimedOut, CallEnd::Cancelled][usize::from(end)];
                    any_timeout |= end == CallEnd::TimedOut;
                    breaker.ended(now, admission, end);
                }
                prop_assert!(under_way.iter().filter(|a| **a == Admission::Probe).count() <= 1);
            }
            for admission in under_way {
                breaker.ended(now, admission, CallEnd::Cancelled);
            }
            prop_assert_ne!(breaker.admit(now + OPEN_FOR), Admission::Skip);
        }
    }
}
