//! Events about objects, as `kubectl describe` shows them (`events.k8s.io/v1`).
//!
//! Whoever reports something never waits: what the queue cannot take is dropped and counted. Repeated reports of the
//! same kind about the same object become one Event with a count, and one object gets a limited number of Events.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use koord_runtime::CancellationToken;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::error::Failure;
use crate::limit::{Bucket, Rate};

/// Reports that may wait. More than a node has pods: a start that concerns each of them once loses none.
const QUEUE: usize = 512;

/// Events about one object, as client-go's correlator limits them: 25 at once, then one in five minutes.
const RATE_PER_OBJECT: Rate = Rate { per_second: 1.0 / 300.0, burst: 25 };

/// Objects whose rate is known. Beyond it the one that was quiet for longest is forgotten.
const OBJECTS: usize = 4096;

/// Time for one Event to be written.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// The server cuts longer notes off by refusing the Event.
const LONGEST_NOTE: usize = 1024;

/// How grave it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// For information.
    Normal,
    /// Somebody should look.
    Warning,
}

/// What is to be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The object it is about.
    pub about: ObjectReference,
    /// How grave it is.
    pub severity: Severity,
    /// Why, one word in upper camel case, at most 128 characters.
    pub reason: String,
    /// What was done or failed, one word in upper camel case, at most 128 characters.
    pub action: String,
    /// In words. Longer ones than the server takes (1024 octets) are cut.
    pub note: String,
}

/// A reference to an object without namespace, such as a node.
pub fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Counts of a recorder.
#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    limited: AtomicU64,
}

/// What became of reports so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Written, as an Event of their own or as a higher count of one.
    pub written: u64,
    /// The server refused them or was away.
    pub failed: u64,
    /// The queue was full.
    pub dropped: u64,
    /// Their object had its share.
    pub limited: u64,
}

/// Takes reports. Clones share one queue.
#[derive(Clone)]
pub struct EventSink {
    queue: mpsc::Sender<Report>,
    counts: Arc<Counts>,
}

impl fmt::Debug for EventSink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EventSink").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl EventSink {
    /// Hands a report over; it is written later, or not at all.
    pub fn report(&self, report: Report) {
        if self.queue.try_send(report).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of reports so far.
    pub fn counts(&self) -> EventCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        EventCounts {
            written: read(&self.counts.written),
            failed: read(&self.counts.failed),
            dropped: read(&self.counts.dropped),
            limited: read(&self.counts.limited),
        }
    }
}

/// Writes the reports of an [`EventSink`].
pub struct EventWriter {
    recorder: Recorder,
    queue: Mutex<mpsc::Receiver<Report>>,
    counts: Arc<Counts>,
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

/// A sink and its writer. `controller` names the program, `instance` which one of them, for example by its node. The
/// program needs the permissions to create and patch `events` of `events.k8s.io`; Events about objects without
/// namespace go to the namespace `default`.
pub fn event_sink(client: &Client, controller: &str, instance: &str) -> (EventSink, EventWriter) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let counts = Arc::new(Counts::default());
    let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
    let recorder = Recorder::new(client.clone(), reporter);
    let writer = EventWriter { recorder, queue: Mutex::new(receiver), counts: Arc::clone(&counts) };
    (EventSink { queue: sender, counts }, writer)
}

impl EventWriter {
    /// Writes until `token` is cancelled or no sink is left.
    pub async fn run(&self, token: CancellationToken) {
        let mut queue = self.queue.lock().await;
        let mut shares = Shares::new(RATE_PER_OBJECT, OBJECTS);
        loop {
            let report = tokio::select! {
                () = token.cancelled() => return,
                report = queue.recv() => report,
            };
            let Some(report) = report else { return };
            if !shares.admit(&report.about, Instant::now()) {
                self.counts.limited.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.write(report).await;
        }
    }

    async fn write(&self, report: Report) {
        let about = report.about.clone();
        let event = event(report);
        let failure = match tokio::time::timeout(WRITE_LIMIT, self.recorder.publish(&event, &about)).await {
            Ok(Ok(())) => {
                self.counts.written.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(Err(error)) => Failure::of(error),
            Err(_elapsed) => Failure::Timeout { limit: WRITE_LIMIT },
        };
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(
            reason = event.reason, about = about.name.as_deref().unwrap_or_default(),
            error = %koord_runtime::error_chain::Chain(&failure), "event was not written"
        );
    }
}

fn event(report: Report) -> Event {
    let type_ = match report.severity {
        Severity::Normal => EventType::Normal,
        Severity::Warning => EventType::Warning,
    };
    let note = Some(cut(report.note, LONGEST_NOTE)).filter(|note| !note.is_empty());
    Event { type_, reason: report.reason, note, action: report.action, secondary: None }
}

/// The longest start that fits, at the border of a character.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// What each object may still report.
#[derive(Debug)]
struct Shares {
    rate: Rate,
    most: usize,
    buckets: HashMap<(String, String, String), (Bucket, Instant)>,
}

impl Shares {
    fn new(rate: Rate, most: usize) -> Shares {
        Shares { rate, most, buckets: HashMap::new() }
    }

    fn admit(&mut self, about: &ObjectReference, now: Instant) -> bool {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let key = (text(&about.kind), text(&about.namespace), text(&about.name));
        if !self.buckets.contains_key(&key) && self.buckets.len() >= self.most {
            let quietest = self.buckets.iter().min_by_key(|(_, (_, last))| *last).map(|(key, _)| key.clone());
            if let Some(quietest) = quietest {
                self.buckets.remove(&quietest);
            }
        }
        let (bucket, last) = self.buckets.entry(key).or_insert_with(|| (Bucket::new(self.rate, now), now));
        *last = now;
        bucket.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, note: &str) -> Report {
        Report {
            about: reference("v1", "Node", name, "uid"),
            severity: Severity::Warning,
            reason: "CollectorFailed".into(),
            action: "Collect".into(),
            note: note.into(),
        }
    }

    #[test]
    fn an_object_has_its_share() {
        let start = Instant::now();
        let mut shares = Shares::new(RATE_PER_OBJECT, OBJECTS);
        let node = reference("v1", "Node", "a", "1");
        let admitted = (0..30).filter(|_| shares.admit(&node, start)).count();
        assert_eq!(admitted, 25);
        assert!(shares.admit(&reference("v1", "Node", "b", "2"), start), "others have theirs");
        assert!(!shares.admit(&node, start + Duration::from_secs(299)));
        assert!(shares.admit(&node, start + Duration::from_secs(300)));
        assert!(!shares.admit(&node, start + Duration::from_secs(301)));
    }

    #[test]
    fn the_quietest_object_is_forgotten() {
        let start = Instant::now();
        let mut shares = Shares::new(Rate { per_second: 0.001, burst: 1 }, 2);
        let at = |seconds| start + Duration::from_secs(seconds);
        let [a, b, c] = ["a", "b", "c"].map(|name| reference("v1", "Node", name, ""));
        assert!(shares.admit(&a, at(0)));
        assert!(shares.admit(&b, at(1)));
        assert!(!shares.admit(&a, at(2)));
        assert!(shares.admit(&c, at(3)));
        assert_eq!(shares.buckets.len(), 2);
        assert!(!shares.admit(&a, at(4)), "a is remembered");
        assert!(shares.admit(&b, at(5)), "b was forgotten");
    }

    #[test]
    fn notes_are_cut_between_characters() {
        assert_eq!(cut("abc".into(), 3), "abc");
        assert_eq!(cut("abcd".into(), 3), "abc");
        assert_eq!(cut("aäb".into(), 2), "a");
        assert_eq!(cut("ä".into(), 1), "");
        assert_eq!(event(report("a", "")).note, None);
        assert_eq!(event(report("a", &"x".repeat(2000))).note.map(|note| note.len()), Some(1024));
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts() {
        let client = Client::new(
            tower::service_fn(|_request: http::Request<kube::client::Body>| async {
                Err::<http::Response<kube::client::Body>, _>(tower::BoxError::from("away"))
            }),
            "default",
        );
        let (sink, writer) = event_sink(&client, "koordlet", "node-1");
        for _ in 0..QUEUE + 3 {
            sink.report(report("a", "again"));
        }
        assert_eq!(sink.counts(), EventCounts { dropped: 3, ..EventCounts::default() });
        // What was taken is tried; past the share of the object nothing is sent.
        let counts = Arc::clone(&sink.counts);
        drop(sink);
        writer.run(CancellationToken::new()).await;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!((read(&counts.failed), read(&counts.limited)), (25, (QUEUE - 25) as u64));
    }
}
