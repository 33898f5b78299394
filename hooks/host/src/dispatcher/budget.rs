//! How long hooks may take.

use std::time::{Duration, Instant};

/// The program's limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Upper bound of one hook call.
    pub hook_timeout: Duration,
    /// The share (0 to 1) of a request's remaining time that all its hooks before the backend together may
    /// use.
    pub deadline_share: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { hook_timeout: Duration::from_secs(2), deadline_share: 0.5 }
    }
}

/// What is left for the hooks of one stage of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    hook_timeout: Duration,
    until: Option<Instant>,
}

impl Budget {
    /// The budget of a stage that starts `now`, in a call that ends for its caller at `deadline`.
    pub fn new(limits: &Limits, deadline: Option<Instant>, now: Instant) -> Self {
        let share = limits.deadline_share.clamp(0.0, 1.0);
        Self {
            hook_timeout: limits.hook_timeout,
            until: deadline.map(|deadline| now + deadline.saturating_duration_since(now).mul_f64(share)),
        }
    }

    /// The time of one call to a server with its own `server_timeout`; zero when the budget is used up.
    pub fn for_call(&self, server_timeout: Option<Duration>, now: Instant) -> Duration {
        let mut time = self.hook_timeout;
        if let Some(server_timeout) = server_timeout {
            time = time.min(server_timeout);
        }
        if let Some(until) = self.until {
            time = time.min(until.saturating_duration_since(now));
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_smallest_of_the_three_limits_counts() {
        let now = Instant::now();
        let limits = Limits::default();
        for (deadline, server, expected) in [
            (None, None, 2.0),
            (None, Some(1.0), 1.0),
            (None, Some(10.0), 2.0),
            (Some(240.0), None, 2.0),
            (Some(4.0), None, 2.0),
            (Some(3.0), None, 1.5),
            (Some(1.0), None, 0.5),
            (Some(1.0), Some(0.25), 0.25),
            (Some(0.0), None, 0.0),
        ] {
            let budget = Budget::new(&limits, deadline.map(|d| now + seconds(d)), now);
            assert_eq!(
                budget.for_call(server.map(seconds), now),
                seconds(expected),
                "{deadline:?} {server:?}"
            );
        }
    }

    #[test]
    fn all_hooks_of_a_call_share_it() {
        let now = Instant::now();
        let budget = Budget::new(&Limits::default(), Some(now + seconds(4.0)), now);
        assert_eq!(budget.for_call(None, now + seconds(0.5)), seconds(1.5));
        assert_eq!(budget.for_call(None, now + seconds(2.0)), Duration::ZERO);
        assert_eq!(budget.for_call(None, now + seconds(9.0)), Duration::ZERO);
    }

    #[test]
    fn a_deadline_in_the_past_leaves_nothing() {
        let now = Instant::now();
        let later = now + seconds(1.0);
        let budget = Budget::new(&Limits::default(), Some(now), later);
        assert_eq!(budget.for_call(None, later), Duration::ZERO);
    }
}
