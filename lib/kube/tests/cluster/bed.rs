//! The other side: the test bed on standard input and output.

use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use koord_kube::client::{ClientOptions, Source, connect};
use koord_kube::error::Verb;
use koord_kube::kube::Client;
use koord_kube::limit::Rate;
use koord_kube::observe::{Observer, Outcome, RequestInfo};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

/// Keeps what was asked of the server.
#[derive(Default)]
pub(crate) struct Requests {
    kept: Mutex<Vec<(RequestInfo, Outcome)>>,
}

impl Observer for Requests {
    fn finished(&self, request: &RequestInfo, outcome: Outcome, _elapsed: Duration) {
        self.kept.lock().unwrap().push((request.clone(), outcome));
    }
}

impl Requests {
    /// How many requests had this verb, resource and outcome.
    pub(crate) fn count(&self, verb: Verb, resource: &str, outcome: Outcome) -> usize {
        let kept = self.kept.lock().unwrap();
        kept.iter()
            .filter(|(info, ended)| info.verb == verb && info.resource == resource && *ended == outcome)
            .count()
    }
}

/// What a scenario works with.
pub(crate) struct Bed {
    kubeconfig: PathBuf,
    lines: Lines<BufReader<Stdin>>,
    passed: AtomicU64,
    failed: AtomicU64,
}

impl Bed {
    /// Nothing is connected yet.
    pub(crate) fn new(kubeconfig: PathBuf) -> Bed {
        let lines = BufReader::new(tokio::io::stdin()).lines();
        Bed { kubeconfig, lines, passed: AtomicU64::new(0), failed: AtomicU64::new(0) }
    }

    /// Asks the bed to do something; gives its answer when it is done.
    pub(crate) async fn ask(&mut self, action: &str) -> String {
        println!("> {action}");
        std::io::stdout().flush().unwrap();
        self.lines.next_line().await.unwrap().expect("the bed answers")
    }

    /// A client with requests that are kept.
    pub(crate) async fn client(&self, rate: Option<Rate>) -> (Client, Arc<Requests>) {
        let source = Source::Kubeconfig { path: self.kubeconfig.clone(), context: None };
        let requests = Arc::new(Requests::default());
        let options = ClientOptions { rate, ..ClientOptions::new(source, "koord-kube-test") };
        (connect(&options, requests.clone()).await.unwrap(), requests)
    }

    /// Keeps and prints one result.
    pub(crate) fn check(&self, name: &str, right: bool) {
        println!("  {} {name}", if right { "ok    " } else { "FAILED" });
        let count = if right { &self.passed } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// One value.
    pub(crate) fn equal<T: PartialEq + Debug>(&self, name: &str, found: T, wanted: T) {
        if found != wanted {
            println!("  found {found:?}, wanted {wanted:?}");
        }
        self.check(name, found == wanted);
    }

    /// Prints the counts.
    pub(crate) fn finish(&self) -> ExitCode {
        let (passed, failed) = (self.passed.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        println!("{passed} passed, {failed} failed");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Waits until a watched value is right.
pub(crate) async fn until<T>(
    receiver: &mut tokio::sync::watch::Receiver<T>,
    right: impl Fn(&T) -> bool,
) -> bool {
    let waited = tokio::time::timeout(Duration::from_secs(60), receiver.wait_for(|value| right(value))).await;
    matches!(waited, Ok(Ok(_)))
}
