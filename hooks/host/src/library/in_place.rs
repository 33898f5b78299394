//! Waiting for an answer on the thread that asks.
//!
//! A caller that leaves its thread while a library works is woken through the reactor, a worker of the async runtime and
//! the thread of its connection: three hand-overs, of which each takes longer than what most libraries do. So the thread
//! itself sleeps, but never long enough for the other calls of its connection to notice.

use std::time::Duration;

/// Longest sleep.
const LONGEST: Duration = Duration::from_micros(200);

/// How long the thread sleeps for an answer, if the call before took `last`: not at all for a library that is slower.
pub(crate) fn wait_limit(last: Duration) -> Duration {
    if last <= LONGEST { LONGEST } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_library_is_not_waited_for_in_place() {
        assert_eq!(wait_limit(Duration::ZERO), LONGEST);
        assert_eq!(wait_limit(LONGEST), LONGEST);
        assert_eq!(wait_limit(LONGEST + Duration::from_nanos(1)), Duration::ZERO);
    }
}
