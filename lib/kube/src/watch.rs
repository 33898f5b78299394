//! The newest state of objects, for readers that never wait for the API server.
//!
//! A watch keeps what it saw last while the server is away, and says how fresh that is ([`Health`]). Its `run` is
//! started by the program's supervisor and may be started again after a failure: readers keep their receivers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use koord_runtime::CancellationToken;
use koord_runtime::error_chain::Chain;
use koord_runtime::supervisor::Backoff;
use kube::Resource;
use kube::core::ObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::access::Access;
use crate::error::Failure;
use crate::retry::jitter;

/// Pauses after failures. Long enough for a struggling server, short enough that a server that was away is heard of
/// within half a minute.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    cap: Duration::from_secs(30),
    reset_after: Duration::from_secs(60),
};

/// What is known of one object.
#[derive(Debug, PartialEq)]
pub enum Observed<K> {
    /// The server has not been heard yet.
    Unknown,
    /// There is no such object.
    Absent,
    /// The newest version seen.
    Present(Arc<K>),
}

impl<K> Observed<K> {
    /// The object, if there is one.
    pub fn present(&self) -> Option<&Arc<K>> {
        match self {
            Observed::Present(object) => Some(object),
            Observed::Unknown | Observed::Absent => None,
        }
    }

    /// Whether the server has been heard.
    pub fn is_known(&self) -> bool {
        !matches!(self, Observed::Unknown)
    }
}

impl<K> Clone for Observed<K> {
    fn clone(&self) -> Observed<K> {
        match self {
            Observed::Unknown => Observed::Unknown,
            Observed::Absent => Observed::Absent,
            Observed::Present(object) => Observed::Present(Arc::clone(object)),
        }
    }
}

/// All objects of a selection by namespace and name; the namespace is empty for objects without one.
pub type ObjectSet<K> = BTreeMap<(Arc<str>, Arc<str>), Arc<K>>;

/// How a watch fares.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Health {
    /// The last answer was none of failure.
    pub connected: bool,
    /// When the server was last heard.
    pub heard: Option<Instant>,
    /// Failures since the start.
    pub failures: u64,
    /// The last failure with its causes, while it lasts.
    pub last_failure: Option<String>,
}

/// Failures in a row and the pauses they make.
#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
}

/// Keeps the health of a watch and logs its changes.
#[derive(Debug)]
struct Monitor {
    what: String,
    health: watch::Sender<Health>,
}

impl Monitor {
    fn new(what: String) -> Monitor {
        Monitor { what, health: watch::Sender::new(Health::default()) }
    }

    fn heard(&self, failures: &mut Failures) {
        failures.in_a_row = 0;
        let was_away = self.health.borrow().last_failure.is_some();
        self.health.send_modify(|health| {
            health.connected = true;
            health.heard = Some(Instant::now());
            health.last_failure = None;
        });
        if was_away {
            tracing::info!(watched = %self.what, "watch goes on");
        }
    }

    /// The pause before the next try.
    fn failed(&self, failures: &mut Failures, error: &(dyn std::error::Error + 'static)) -> Duration {
        let pause = BACKOFF.pause(failures.in_a_row, jitter());
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        let text = Chain(error).to_string();
        let is_new = self.health.borrow().last_failure.is_none();
        // Told once; an outage of an hour is one warning, not hundreds.
        if is_new {
            tracing::warn!(watched = %self.what, error = text, "watch failed, the last state is kept");
        } else {
            tracing::debug!(watched = %self.what, error = text, pause_ms = pause.as_millis(), "watch failed again");
        }
        self.health.send_modify(|health| {
            health.connected = false;
            health.failures += 1;
            health.last_failure = Some(text);
        });
        pause
    }
}

/// Failures in a row after which what is known of the server's versions is dropped and a new list is asked for: a server
/// whose storage was restored from a backup has older versions than those seen.
const FAILURES_BEFORE_NEW_LIST: u32 = 5;

/// The events of a watch, without its failures.
struct Feed<'a, K> {
    api: kube::Api<K>,
    selection: watcher::Config,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    monitor: &'a Monitor,
    token: &'a CancellationToken,
    failures: Failures,
}

impl<'a, K> Feed<'a, K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    fn new(
        api: kube::Api<K>,
        selection: watcher::Config,
        monitor: &'a Monitor,
        token: &'a CancellationToken,
    ) -> Feed<'a, K> {
        let events = watcher(api.clone(), selection.clone()).boxed();
        Feed { api, selection, events, monitor, token, failures: Failures::default() }
    }

    /// The next event; `None` once the token is cancelled.
    async fn next(&mut self) -> Option<Event<K>> {
        loop {
            let next = tokio::select! {
                () = self.token.cancelled() => return None,
                next = self.events.next() => next?,
            };
            let error = match next {
                // A new list is about to be asked for; the server has not been heard yet.
                Ok(Event::Init) => return Some(Event::Init),
                Ok(event) => {
                    self.monitor.heard(&mut self.failures);
                    return Some(event);
                }
                Err(error) => error,
            };
            let pause = self.monitor.failed(&mut self.failures, &error);
            if needs_new_list(&error) || self.failures.in_a_row.is_multiple_of(FAILURES_BEFORE_NEW_LIST) {
                self.events = watcher(self.api.clone(), self.selection.clone()).boxed();
            }
            tokio::select! {
                () = self.token.cancelled() => return None,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// Whether a watch that was refused will be refused for ever: the server no longer has the version (410), or knows
/// nothing of the resource for now (404). One that is busy or away will take it.
fn needs_new_list(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            !Failure::of_status(status).is_transient()
        }
        _ => false,
    }
}

fn by_name<K>(access: &Access<K>, name: &str) -> watcher::Config
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
    K::DynamicType: Clone,
{
    // The server's cache is good enough to start from: what it lacks comes as an event.
    watcher::Config::default().fields(&access.selector(name)).any_semantic()
}

/// Follows one object.
pub struct ObjectWatch<K: Resource> {
    access: Access<K>,
    name: String,
    state: watch::Sender<Observed<K>>,
    monitor: Monitor,
}

impl<K: Resource> fmt::Debug for ObjectWatch<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ObjectWatch").field("watched", &self.monitor.what).finish_non_exhaustive()
    }
}

impl<K> ObjectWatch<K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    /// A watch of the object of that name. Nothing happens before [`ObjectWatch::run`].
    pub fn new(access: Access<K>, name: &str) -> ObjectWatch<K> {
        let monitor = Monitor::new(access.describe(name));
        ObjectWatch { access, name: name.to_owned(), state: watch::Sender::new(Observed::Unknown), monitor }
    }

    /// The state, now and later.
    pub fn subscribe(&self) -> watch::Receiver<Observed<K>> {
        self.state.subscribe()
    }

    /// How the watch fares.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.monitor.health.subscribe()
    }

    /// Watches until `token` is cancelled.
    pub async fn run(&self, token: CancellationToken) {
        let mut listed = None;
        let selection = by_name(&self.access, &self.name);
        let mut feed = Feed::new(self.access.api().clone(), selection, &self.monitor, &token);
        while let Some(event) = feed.next().await {
            match event {
                Event::Init => listed = None,
                Event::InitApply(object) => listed = Some(object),
                Event::InitDone => self.put(listed.take()),
                Event::Apply(object) => self.put(Some(object)),
                Event::Delete(_) => self.put(None),
            }
        }
    }

    fn put(&self, object: Option<K>) {
        let next = object.map_or(Observed::Absent, |object| Observed::Present(Arc::new(object)));
        self.state.send_if_modified(|state| {
            // A new list after a lost connection mostly brings what is known.
            let same = match (&*state, &next) {
                (Observed::Absent, Observed::Absent) => true,
                (Observed::Present(old), Observed::Present(new)) => {
                    let (old, new) = (old.meta(), new.meta());
                    old.uid == new.uid
                        && new.resource_version.is_some()
                        && old.resource_version == new.resource_version
                }
                _ => false,
            };
            if !same {
                *state = next;
            }
            !same
        });
    }
}

/// What tells one version of an object's `spec` from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    uid: Option<String>,
    generation: Option<i64>,
    /// Where the server counts no generations.
    resource_version: Option<String>,
}

impl Version {
    /// Reads metadata.
    pub fn of(metadata: &ObjectMeta) -> Version {
        let generation = metadata.generation.filter(|generation| *generation > 0);
        Version {
            uid: metadata.uid.clone(),
            generation,
            resource_version: metadata.resource_version.clone().filter(|_| generation.is_none()),
        }
    }
}

/// Follows one object by its metadata, and fetches the object only when its `spec` has changed: the status that a
/// program writes does not come back to it with each write.
pub struct MetadataWatch<K: Resource> {
    access: Access<K>,
    name: String,
    state: watch::Sender<Observed<K>>,
    monitor: Monitor,
}

impl<K: Resource> fmt::Debug for MetadataWatch<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MetadataWatch").field("watched", &self.monitor.what).finish_non_exhaustive()
    }
}

impl<K> MetadataWatch<K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    /// A watch of the object of that name. Nothing happens before [`MetadataWatch::run`].
    pub fn new(access: Access<K>, name: &str) -> MetadataWatch<K> {
        let monitor = Monitor::new(access.describe(name));
        MetadataWatch { access, name: name.to_owned(), state: watch::Sender::new(Observed::Unknown), monitor }
    }

    /// The state, now and later. Its status is as old as its `spec`.
    pub fn subscribe(&self) -> watch::Receiver<Observed<K>> {
        self.state.subscribe()
    }

    /// How the watch fares.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.monitor.health.subscribe()
    }

    /// Watches until `token` is cancelled.
    pub async fn run(&self, token: CancellationToken) {
        let mut listed = None;
        let selection = by_name(&self.access, &self.name);
        let mut feed = Feed::new(self.access.metadata(), selection, &self.monitor, &token);
        while let Some(event) = feed.next().await {
            match event {
                Event::Init => listed = None,
                Event::InitApply(partial) => listed = Some(partial.metadata),
                Event::InitDone => self.put(listed.take(), &token).await,
                Event::Apply(partial) => self.put(Some(partial.metadata), &token).await,
                Event::Delete(_) => self.put(None, &token).await,
            }
        }
    }

    async fn put(&self, metadata: Option<ObjectMeta>, token: &CancellationToken) {
        let Some(metadata) = metadata else {
            self.state.send_if_modified(|state| {
                let changed = !matches!(state, Observed::Absent);
                *state = Observed::Absent;
                changed
            });
            return;
        };
        let known = self.state.borrow().present().map(|object| Version::of(object.meta()));
        if known == Some(Version::of(&metadata)) {
            return;
        }
        let mut failures = Failures::default();
        loop {
            let answer = tokio::select! {
                () = token.cancelled() => return,
                answer = self.access.get(&self.name) => answer,
            };
            let error = match answer {
                Ok(object) => {
                    self.monitor.heard(&mut failures);
                    let next = object.map_or(Observed::Absent, |object| Observed::Present(Arc::new(object)));
                    self.state.send_replace(next);
                    return;
                }
                Err(error) => error,
            };
            let pause = self.monitor.failed(&mut failures, &error);
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// Follows all objects of a selection. Readers see whole sets: a list that is under way shows nothing of itself.
pub struct SetWatch<K: Resource> {
    access: Access<K>,
    selection: watcher::Config,
    state: watch::Sender<Option<Arc<ObjectSet<K>>>>,
    monitor: Monitor,
}

impl<K: Resource> fmt::Debug for SetWatch<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SetWatch").field("watched", &self.monitor.what).finish_non_exhaustive()
    }
}

impl<K> SetWatch<K>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    /// A watch of the objects that the field selector names, for example `spec.nodeName=node-1` for the pods of a
    /// node. Nothing happens before [`SetWatch::run`].
    pub fn new(access: Access<K>, fields: &str) -> SetWatch<K> {
        let monitor = Monitor::new(format!("{} {fields}", access.describe("")));
        let selection = watcher::Config::default().fields(fields).any_semantic();
        SetWatch { access, selection, state: watch::Sender::new(None), monitor }
    }

    /// The set, now and later; `None` until the server has been heard.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<ObjectSet<K>>>> {
        self.state.subscribe()
    }

    /// How the watch fares.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.monitor.health.subscribe()
    }

    /// Watches until `token` is cancelled.
    pub async fn run(&self, token: CancellationToken) {
        let mut listed = ObjectSet::new();
        let mut feed = Feed::new(self.access.api().clone(), self.selection.clone(), &self.monitor, &token);
        while let Some(event) = feed.next().await {
            match event {
                Event::Init => listed = ObjectSet::new(),
                Event::InitApply(object) => {
                    listed.insert(key(object.meta()), Arc::new(object));
                }
                Event::InitDone => {
                    self.state.send_replace(Some(Arc::new(std::mem::take(&mut listed))));
                }
                Event::Apply(object) => self.change(|set| {
                    set.insert(key(object.meta()), Arc::new(object));
                }),
                Event::Delete(object) => self.change(|set| {
                    set.remove(&key(object.meta()));
                }),
            }
        }
    }

    /// Readers that still hold the old set keep it.
    fn change(&self, change: impl FnOnce(&mut ObjectSet<K>)) {
        self.state.send_modify(|state| change(Arc::make_mut(state.get_or_insert_default())));
    }
}

fn key(metadata: &ObjectMeta) -> (Arc<str>, Arc<str>) {
    let text = |value: &Option<String>| Arc::from(value.as_deref().unwrap_or_default());
    (text(&metadata.namespace), text(&metadata.name))
}

#[cfg(test)]
mod tests;
