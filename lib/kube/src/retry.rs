//! When a request is sent again.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use koord_runtime::supervisor::Backoff;

use crate::error::Failure;

/// How often and after which pauses a request is sent again that failed for a reason that can pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Tries in all, the first included.
    pub tries: u32,
    /// The pauses between them.
    pub backoff: Backoff,
    /// A server that asks for a longer pause is not asked again by the same call.
    pub longest_pause: Duration,
}

impl Default for RetryPolicy {
    /// Four tries within some three seconds: past that the caller's next round is the better retry, with newer values.
    fn default() -> RetryPolicy {
        RetryPolicy {
            tries: 4,
            backoff: Backoff {
                first: Duration::from_millis(200),
                cap: Duration::from_secs(2),
                reset_after: Duration::from_secs(30),
            },
            longest_pause: Duration::from_secs(10),
        }
    }
}

impl RetryPolicy {
    /// Fails at the first failure.
    pub const NEVER: RetryPolicy = RetryPolicy {
        tries: 1,
        backoff: Backoff { first: Duration::ZERO, cap: Duration::ZERO, reset_after: Duration::ZERO },
        longest_pause: Duration::ZERO,
    };

    /// The pause before the next try after `tries` of them, the last of which ended with `failure`; `None` if there
    /// shall be no other. `jitter` in 0..1.
    pub fn pause(&self, failure: &Failure, tries: u32, jitter: f64) -> Option<Duration> {
        if tries >= self.tries || !failure.is_transient() {
            return None;
        }
        let own = self.backoff.pause(tries.saturating_sub(1), jitter);
        match failure.retry_after() {
            // All who were told the same second must not come back in the same instant.
            Some(asked) if asked <= self.longest_pause => Some(asked + own),
            Some(_) => None,
            None => Some(own),
        }
    }

    /// The same for a conflict: the object has been read anew, so there is little to wait for.
    pub fn pause_after_conflict(&self, tries: u32, jitter: f64) -> Option<Duration> {
        (tries < self.tries).then(|| {
            let first = self.backoff.first.min(Duration::from_millis(10));
            Backoff { first, ..self.backoff }.pause(tries.saturating_sub(1), jitter)
        })
    }
}

/// A number in 0..1, good enough to spread requests.
pub fn jitter() -> f64 {
    // The standard hasher's keys are random; hashing nothing yields them mixed.
    let bits = std::hash::RandomState::new().build_hasher().finish();
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(retry_after: Option<u64>) -> Failure {
        Failure::TooManyRequests { retry_after: retry_after.map(Duration::from_secs), message: String::new() }
    }

    #[test]
    fn pauses_grow_and_tries_end() {
        let policy = RetryPolicy::default();
        let pauses: Vec<_> = (1..=5).map(|tries| policy.pause(&busy(None), tries, 1.0)).collect();
        let milliseconds = |value| Some(Duration::from_millis(value));
        assert_eq!(pauses, [milliseconds(200), milliseconds(400), milliseconds(800), None, None]);
    }

    #[test]
    fn the_server_s_pause_comes_on_top_unless_it_is_too_long() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.pause(&busy(Some(1)), 1, 1.0), Some(Duration::from_millis(1200)));
        assert_eq!(policy.pause(&busy(Some(10)), 1, 1.0), Some(Duration::from_millis(10_200)));
        assert_eq!(policy.pause(&busy(Some(11)), 1, 1.0), None);
    }

    #[test]
    fn what_cannot_pass_is_not_tried_again() {
        let policy = RetryPolicy::default();
        let invalid = Failure::Invalid { message: String::new() };
        assert_eq!(policy.pause(&invalid, 1, 0.5), None);
        assert_eq!(RetryPolicy::NEVER.pause(&busy(None), 1, 0.5), None);
        assert_eq!(RetryPolicy::NEVER.pause_after_conflict(1, 0.5), None);
    }

    #[test]
    fn conflicts_are_tried_again_soon() {
        let policy = RetryPolicy::default();
        let pauses: Vec<_> = (1..=4).map(|tries| policy.pause_after_conflict(tries, 1.0)).collect();
        let milliseconds = |value| Some(Duration::from_millis(value));
        assert_eq!(pauses, [milliseconds(10), milliseconds(20), milliseconds(40), None]);
    }

    #[test]
    fn jitter_is_between_zero_and_one_and_not_constant() {
        let values: Vec<f64> = (0..100).map(|_| jitter()).collect();
        assert!(values.iter().all(|value| (0.0..1.0).contains(value)));
        assert!(values.iter().any(|value| value != &values[0]));
    }
}
