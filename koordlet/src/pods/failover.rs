//! Which source of pods is used.

use crate::flags::PodSource;

/// Rounds that fail in a row before the API server is asked, and that succeed before it no longer is.
const ROUNDS: u32 = 3;

/// Where pods come from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Current {
    /// The kubelet.
    Kubelet,
    /// A watch of the API server.
    ApiServer,
}

impl Current {
    /// A word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Current::Kubelet => "kubelet",
            Current::ApiServer => "apiserver",
        }
    }
}

/// Decides between the sources. The kubelet is cheaper for the cluster, so it is asked on while the API server helps out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    wanted: PodSource,
    current: Current,
    failed: u32,
    succeeded: u32,
}

impl Failover {
    /// By what the flag says.
    pub fn new(wanted: PodSource) -> Failover {
        let current = match wanted {
            PodSource::Auto | PodSource::Kubelet => Current::Kubelet,
            PodSource::ApiServer => Current::ApiServer,
        };
        Failover { wanted, current, failed: 0, succeeded: 0 }
    }

    /// Whether the kubelet is asked at all.
    pub fn asks_kubelet(&self) -> bool {
        self.wanted != PodSource::ApiServer
    }

    /// The source whose pods count.
    pub fn current(&self) -> Current {
        self.current
    }

    /// Takes the outcome of a round with the kubelet. True if the source has changed.
    pub fn round(&mut self, succeeded: bool) -> bool {
        if succeeded {
            (self.failed, self.succeeded) = (0, self.succeeded.saturating_add(1));
        } else {
            (self.failed, self.succeeded) = (self.failed.saturating_add(1), 0);
        }
        let next = match self.current {
            Current::Kubelet if self.wanted == PodSource::Auto && self.failed >= ROUNDS => Current::ApiServer,
            Current::ApiServer if self.wanted == PodSource::Auto && self.succeeded >= ROUNDS => {
                Current::Kubelet
            }
            current => current,
        };
        let changed = next != self.current;
        self.current = next;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_bad_rounds_there_and_three_good_ones_back() {
        let mut auto = Failover::new(PodSource::Auto);
        let changes: Vec<bool> =
            [false, false, true, false, false, false, true, true, false, true, true, true, true]
                .map(|ok| auto.round(ok))
                .to_vec();
        assert_eq!(
            changes,
            [false, false, false, false, false, true, false, false, false, false, false, true, false]
        );
        assert_eq!(auto.current(), Current::Kubelet);
    }

    #[test]
    fn a_stated_source_stays() {
        let mut kubelet = Failover::new(PodSource::Kubelet);
        assert!((0..10).all(|_| !kubelet.round(false)));
        assert_eq!(kubelet.current(), Current::Kubelet);
        let server = Failover::new(PodSource::ApiServer);
        assert_eq!((server.current(), server.asks_kubelet()), (Current::ApiServer, false));
    }
}
