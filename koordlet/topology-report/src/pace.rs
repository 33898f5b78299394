//! When a report is computed, and when the kubelet is asked for its configuration.
//!
//! Koordinator does both every 3 s. Here facts that change start a computation, and time alone starts one now and then, in
//! case a change was missed.

use std::time::{Duration, Instant};

/// A computation waits this long for further changes: pods come in groups, and each write of the object goes to every
/// scheduler.
pub const DEBOUNCE: Duration = Duration::from_secs(1);

/// Without changes a report is computed this often.
pub const SAFETY_INTERVAL: Duration = Duration::from_secs(60);

/// After a failure the next attempt comes after this time, as often as Koordinator tries.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// The kubelet's configuration is read this often, in case a restart of the kubelet was missed.
pub const CONFIG_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// When the next report is to be computed. The first one is due at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    due: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::new()
    }
}

impl Pace {
    /// Due at once.
    pub const fn new() -> Pace {
        Pace { due: None }
    }

    /// Facts have changed: due [`DEBOUNCE`] later, or earlier if it was so already. Changes that go on do not put it off.
    pub fn changed(&mut self, now: Instant) {
        self.due = self.due.map(|due| due.min(now + DEBOUNCE));
    }

    /// A report was computed, and published if it had to be.
    pub fn succeeded(&mut self, now: Instant) {
        self.due = Some(now + SAFETY_INTERVAL);
    }

    /// There was no report, or it could not be published.
    pub fn failed(&mut self, now: Instant) {
        self.due = Some(now + RETRY_INTERVAL);
    }

    /// How long to wait for the next computation, if nothing changes meanwhile.
    pub fn wait(&self, now: Instant) -> Duration {
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }
}

/// What tells that a kubelet has another configuration, or may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeletIdentity {
    /// `status.nodeInfo.kubeletVersion` of the node.
    pub version: String,
    /// `status.nodeInfo.bootID` of the node.
    pub boot_id: String,
    /// How often a connection to the kubelet was cut, which is what its restart does.
    pub resets: u64,
}

/// When the kubelet is to be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigPace {
    /// When it was asked last, and who it was then.
    asked: Option<(Instant, KubeletIdentity)>,
    has_failed: bool,
}

impl ConfigPace {
    /// True at the start, when the kubelet is another one, every [`CONFIG_INTERVAL`], and [`RETRY_INTERVAL`] after a
    /// failure.
    pub fn is_due(&self, identity: &KubeletIdentity, now: Instant) -> bool {
        let Some((at, asked)) = &self.asked else { return true };
        let interval = if self.has_failed { RETRY_INTERVAL } else { CONFIG_INTERVAL };
        now.saturating_duration_since(*at) >= interval || (!self.has_failed && asked != identity)
    }

    /// The kubelet has answered with its configuration.
    pub fn succeeded(&mut self, identity: KubeletIdentity, now: Instant) {
        self.asked = Some((now, identity));
        self.has_failed = false;
    }

    /// It has not. What it said before counts no more, as it may be another one.
    pub fn failed(&mut self, identity: KubeletIdentity, now: Instant) {
        self.asked = Some((now, identity));
        self.has_failed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn changes_are_gathered_for_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new();
        assert_eq!(pace.wait(start), Duration::ZERO);
        pace.changed(start);
        assert_eq!(pace.wait(start), Duration::ZERO);
        pace.succeeded(start);
        assert_eq!(pace.wait(start), SAFETY_INTERVAL);
        pace.changed(start + 10 * SECOND);
        assert_eq!(pace.wait(start + 10 * SECOND), SECOND);
        // A second change half a second later does not put it off.
        pace.changed(start + 10 * SECOND + SECOND / 2);
        assert_eq!(pace.wait(start + 10 * SECOND + SECOND / 2), SECOND / 2);
        assert_eq!(pace.wait(start + 20 * SECOND), Duration::ZERO);
        pace.succeeded(start + 20 * SECOND);
        // A change right before the safety pass does not delay that.
        pace.changed(start + 79 * SECOND + SECOND / 2);
        assert_eq!(pace.wait(start + 80 * SECOND), Duration::ZERO);
    }

    #[test]
    fn failures_are_tried_again() {
        let start = Instant::now();
        let mut pace = Pace::new();
        pace.failed(start);
        assert_eq!(pace.wait(start), RETRY_INTERVAL);
        pace.changed(start);
        assert_eq!(pace.wait(start), DEBOUNCE);
    }

    #[test]
    fn the_kubelet_is_asked_when_it_may_be_another_one() {
        let start = Instant::now();
        let identity = KubeletIdentity { version: "v1.37.2".into(), boot_id: "a".into(), resets: 0 };
        let mut pace = ConfigPace::default();
        assert!(pace.is_due(&identity, start));
        pace.succeeded(identity.clone(), start);
        assert!(!pace.is_due(&identity, start));
        assert!(!pace.is_due(&identity, start + CONFIG_INTERVAL - MOMENT));
        assert!(pace.is_due(&identity, start + CONFIG_INTERVAL));
        for other in [
            KubeletIdentity { version: "v1.38.0".into(), ..identity.clone() },
            KubeletIdentity { boot_id: "b".into(), ..identity.clone() },
            KubeletIdentity { resets: 1, ..identity.clone() },
        ] {
            assert!(pace.is_due(&other, start + MOMENT), "{other:?}");
        }
    }

    #[test]
    fn a_kubelet_that_does_not_answer_is_asked_every_three_seconds() {
        let start = Instant::now();
        let identity = KubeletIdentity::default();
        let mut pace = ConfigPace::default();
        pace.failed(identity.clone(), start);
        assert!(!pace.is_due(&identity, start + RETRY_INTERVAL - MOMENT));
        assert!(pace.is_due(&identity, start + RETRY_INTERVAL));
        // A connection that is cut while it is away is no reason to ask more often.
        let cut = KubeletIdentity { resets: 5, ..identity };
        assert!(!pace.is_due(&cut, start + MOMENT));
        pace.succeeded(cut.clone(), start + RETRY_INTERVAL);
        assert!(!pace.is_due(&cut, start + 2 * RETRY_INTERVAL));
    }
}
