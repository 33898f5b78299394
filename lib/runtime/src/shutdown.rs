//! Shutdown as a sequence of named steps, each with its own time limit.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// One step of the sequence.
pub struct Step {
    name: &'static str,
    limit: Duration,
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Step").field("name", &self.name).field("limit", &self.limit).finish()
    }
}

impl Step {
    /// A step that is dropped when it takes longer than `limit`; the next one follows in any case.
    pub fn new(name: &'static str, limit: Duration, work: impl Future<Output = ()> + Send + 'static) -> Step {
        Step { name, limit, work: Box::pin(work) }
    }
}

/// How the sequence went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shutdown {
    /// All steps ran; those named were cut off at their limit.
    Complete {
        /// Names of the steps that ran out of time.
        cut_off: Vec<&'static str>,
    },
    /// `hurry` came while the named step was running; later steps did not run.
    Hurried {
        /// The step that was running.
        during: &'static str,
    },
}

/// Runs the steps in order. When `hurry` resolves (a second signal) it returns at once.
pub async fn run(steps: Vec<Step>, hurry: impl Future<Output = ()>) -> Shutdown {
    let mut hurry = std::pin::pin!(hurry);
    let mut cut_off = Vec::new();
    for step in steps {
        let started = tokio::time::Instant::now();
        tokio::select! {
            biased;
            () = &mut hurry => {
                tracing::warn!(step = step.name, "asked to end at once");
                return Shutdown::Hurried { during: step.name };
            }
            outcome = tokio::time::timeout(step.limit, step.work) => {
                let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
                if outcome.is_ok() {
                    tracing::debug!(step = step.name, elapsed_ms, "shutdown step done");
                } else {
                    tracing::warn!(step = step.name, elapsed_ms, "shutdown step ran out of time");
                    cut_off.push(step.name);
                }
            }
        }
    }
    Shutdown::Complete { cut_off }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn record(log: &Arc<Mutex<Vec<&'static str>>>, name: &'static str) -> impl Future<Output = ()> + use<> {
        let log = Arc::clone(log);
        async move { log.lock().expect("not poisoned").push(name) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_over_its_limit_does_not_stop_the_next() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let steps = vec![
            Step::new("first", Duration::from_secs(1), record(&log, "first")),
            Step::new("stuck", Duration::from_secs(10), std::future::pending()),
            Step::new("last", Duration::from_secs(1), record(&log, "last")),
        ];
        let started = tokio::time::Instant::now();
        let outcome = run(steps, std::future::pending()).await;
        assert_eq!(outcome, Shutdown::Complete { cut_off: vec!["stuck"] });
        assert_eq!(*log.lock().expect("not poisoned"), ["first", "last"]);
        assert_eq!(started.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_it_at_once() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let steps = vec![
            Step::new("stuck", Duration::from_secs(10), std::future::pending()),
            Step::new("last", Duration::from_secs(1), record(&log, "last")),
        ];
        let outcome = run(steps, tokio::time::sleep(Duration::from_secs(2))).await;
        assert_eq!(outcome, Shutdown::Hurried { during: "stuck" });
        assert!(log.lock().expect("not poisoned").is_empty());
    }
}
