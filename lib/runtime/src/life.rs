//! The life of a process as one value that readiness, systemd notification and tests watch.

use std::fmt;

use tokio::sync::watch;

/// Where a process is in its life. It only ever moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Reading configuration and taking its sockets.
    Starting,
    /// Serving already if it can, while state of an earlier life is being rebuilt.
    Recovering,
    /// Full service.
    Serving,
    /// Accepts nothing new; finishes what is in flight.
    Draining,
    /// Done; the process is about to end.
    Stopped,
}

impl Phase {
    /// The lower-case name used in status texts and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Recovering => "recovering",
            Phase::Serving => "serving",
            Phase::Draining => "draining",
            Phase::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Shared handle on the phase of a process. Clones are the same life.
#[derive(Debug, Clone)]
pub struct Life {
    phase: watch::Sender<Phase>,
}

impl Default for Life {
    fn default() -> Life {
        Life::new()
    }
}

impl Life {
    /// A life in [`Phase::Starting`].
    pub fn new() -> Life {
        Life { phase: watch::Sender::new(Phase::Starting) }
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves forward to `phase`. Returns false, and changes nothing, if the life is there already or
    /// further on.
    pub fn advance(&self, phase: Phase) -> bool {
        let moved = self.phase.send_if_modified(|current| {
            let forward = phase > *current;
            if forward {
                *current = phase;
            }
            forward
        });
        if moved {
            tracing::info!(phase = phase.name(), "process phase");
        }
        moved
    }

    /// Waits until the life has reached `phase` or a later one, and returns where it is.
    pub async fn reached(&self, phase: Phase) -> Phase {
        let mut receiver = self.phase.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail; should it, the last value counts.
        match receiver.wait_for(|current| *current >= phase).await {
            Ok(current) => *current,
            Err(_) => self.phase(),
        }
    }

    /// A receiver that sees every change from now on.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_forward_only() {
        let life = Life::new();
        assert_eq!(life.phase(), Phase::Starting);
        assert!(life.advance(Phase::Serving));
        assert!(!life.advance(Phase::Serving));
        assert!(!life.advance(Phase::Recovering));
        assert_eq!(life.phase(), Phase::Serving);
        assert!(life.advance(Phase::Stopped));
        assert!(!life.advance(Phase::Draining));
    }

    #[tokio::test]
    async fn waiting_ends_at_or_past_the_phase() {
        let life = Life::new();
        let other = life.clone();
        let (reached, _) = tokio::join!(life.reached(Phase::Recovering), async move {
            tokio::task::yield_now().await;
            other.advance(Phase::Draining)
        });
        assert_eq!(reached, Phase::Draining);
        assert_eq!(life.reached(Phase::Starting).await, Phase::Draining);
    }
}
