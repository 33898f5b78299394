//! What the proxy remembers of pods and containers.
//!
//! Records change by replacement, and only after the runtime has agreed. One short lock guards the maps; it is
//! never held across a call. Work on one container that must not overlap is ordered by [`Store::order`].

mod order;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use koord_hook::v1alpha1::LinuxContainerResources;
use koord_intercept::record::{Change, ContainerRecord, PodRecord};

use crate::metrics::Metrics;
use crate::qos::ledger::{Ledger, Levels};

pub use order::{OrderGuard, Ordered, Waiting};

/// How long the record of a stopped object is kept if its removal is never seen.
pub const KEEP_STOPPED: Duration = Duration::from_secs(10 * 60);

/// A moment in the store's life; see [`Store::moment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

#[derive(Debug)]
struct Entry<T> {
    record: Arc<T>,
    since: Moment,
    /// For containers: whether the environment in the record is the container's.
    envs_known: bool,
}

#[derive(Debug, Default)]
struct Maps {
    pods: HashMap<String, Entry<PodRecord>>,
    containers: HashMap<String, Entry<ContainerRecord>>,
    moment: u64,
}

impl Maps {
    fn next(&mut self) -> Moment {
        self.moment += 1;
        Moment(self.moment)
    }
}

/// A container with its pod.
#[derive(Debug, Clone)]
pub struct KnownContainer {
    /// The container.
    pub container: Arc<ContainerRecord>,
    /// Its pod.
    pub pod: Arc<PodRecord>,
    /// Whether the container's environment is in the record; it may not have been kept.
    pub envs_known: bool,
}

/// All records at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Pods by sandbox id, sorted.
    pub pods: Vec<(String, Arc<PodRecord>)>,
    /// Containers by id, sorted.
    pub containers: Vec<(String, Arc<ContainerRecord>)>,
    /// What was asked, sent and wanted for them.
    pub levels: Levels,
}

/// The records, shared by all calls.
#[derive(Debug)]
pub struct Store {
    maps: Mutex<Maps>,
    metrics: Metrics,
    keep_envs: AtomicBool,
    any_moved: AtomicBool,
    dirty: tokio::sync::watch::Sender<u64>,
    orders: order::Orders,
    ledger: Ledger,
}

impl Store {
    /// An empty store.
    pub fn new(metrics: Metrics) -> Self {
        metrics.store_records(0, 0);
        Self {
            maps: Mutex::default(),
            metrics,
            keep_envs: AtomicBool::new(false),
            any_moved: AtomicBool::new(false),
            dirty: tokio::sync::watch::Sender::new(0),
            orders: order::Orders::default(),
            ledger: Ledger::default(),
        }
    }

    /// What was asked, sent and wanted; forgotten together with the pod or container.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn forget_levels(&self, maps: &Maps) {
        self.ledger.retain(|id| maps.pods.contains_key(id), |id| maps.containers.contains_key(id));
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, maps: &Maps) {
        self.metrics.store_records(maps.pods.len(), maps.containers.len());
        let any_moved = maps.pods.values().any(|entry| entry.record.was_moved());
        self.any_moved.store(any_moved, Ordering::Relaxed);
        self.dirty.send_modify(|count| *count += 1);
    }

    /// A number that grows with each change.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.dirty.subscribe()
    }

    /// The record of a pod.
    pub fn pod(&self, pod_id: &str) -> Option<Arc<PodRecord>> {
        self.maps().pods.get(pod_id).map(|entry| entry.record.clone())
    }

    /// The record of a container.
    pub fn container(&self, container_id: &str) -> Option<Arc<ContainerRecord>> {
        self.maps().containers.get(container_id).map(|entry| entry.record.clone())
    }

    /// A container and its pod, if both are known.
    pub fn container_and_pod(&self, container_id: &str) -> Option<KnownContainer> {
        let maps = self.maps();
        let entry = maps.containers.get(container_id)?;
        let pod = maps.pods.get(&entry.record.pod_id)?.record.clone();
        Some(KnownContainer { container: entry.record.clone(), pod, envs_known: entry.envs_known })
    }

    /// All pods with their identifiers, in no order.
    pub fn pods(&self) -> Vec<(String, Arc<PodRecord>)> {
        self.maps().pods.iter().map(|(id, entry)| (id.clone(), entry.record.clone())).collect()
    }

    /// All containers whose pods are known, with their identifiers, in no order.
    pub fn containers(&self) -> Vec<(String, KnownContainer)> {
        let maps = self.maps();
        maps.containers
            .iter()
            .filter_map(|(id, entry)| {
                let pod = maps.pods.get(&entry.record.pod_id)?.record.clone();
                let known =
                    KnownContainer { container: entry.record.clone(), pod, envs_known: entry.envs_known };
                Some((id.clone(), known))
            })
            .collect()
    }

    /// Whether a hook has given any pod another parent cgroup than the kubelet repeats with its containers.
    pub fn any_moved_pod(&self) -> bool {
        self.any_moved.load(Ordering::Relaxed)
    }

    /// Number of pods and of containers.
    pub fn len(&self) -> (usize, usize) {
        let maps = self.maps();
        (maps.pods.len(), maps.containers.len())
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// All records.
    pub fn snapshot(&self) -> Snapshot {
        let maps = self.maps();
        let mut pods: Vec<_> = maps.pods.iter().map(|(id, e)| (id.clone(), e.record.clone())).collect();
        let mut containers: Vec<_> =
            maps.containers.iter().map(|(id, e)| (id.clone(), e.record.clone())).collect();
        drop(maps);
        pods.sort_by(|a, b| a.0.cmp(&b.0));
        containers.sort_by(|a, b| a.0.cmp(&b.0));
        Snapshot { pods, containers, levels: self.ledger.levels() }
    }

    /// Puts a pod in.
    pub fn put_pod(&self, pod_id: String, record: PodRecord) {
        let mut maps = self.maps();
        let since = maps.next();
        maps.pods.insert(pod_id, Entry { record: Arc::new(record), since, envs_known: false });
        self.changed(&maps);
    }

    /// Puts a container in, its environment known.
    pub fn put_container(&self, container_id: String, record: ContainerRecord) {
        let (record, envs_known) = self.slim(record, true);
        let mut maps = self.maps();
        let since = maps.next();
        maps.containers.insert(container_id, Entry { record: Arc::new(record), since, envs_known });
        self.changed(&maps);
    }

    /// Puts a pod in unless one of that id is there, which is newer than anything found elsewhere.
    pub fn put_pod_if_absent(&self, pod_id: &str, record: PodRecord) -> Arc<PodRecord> {
        let mut maps = self.maps();
        if let Some(entry) = maps.pods.get(pod_id) {
            return entry.record.clone();
        }
        let since = maps.next();
        let record = Arc::new(record);
        maps.pods.insert(pod_id.to_owned(), Entry { record: record.clone(), since, envs_known: false });
        self.changed(&maps);
        record
    }

    /// Puts a container in unless one of that id is there. A missing environment of that one is filled in.
    pub fn put_container_if_absent(
        &self,
        container_id: &str,
        record: ContainerRecord,
        envs_known: bool,
    ) -> Arc<ContainerRecord> {
        let (record, envs_known) = self.slim(record, envs_known);
        let mut maps = self.maps();
        if let Some(entry) = maps.containers.get_mut(container_id) {
            if envs_known && !entry.envs_known {
                Arc::make_mut(&mut entry.record).envs = record.envs;
                entry.envs_known = true;
            }
            return entry.record.clone();
        }
        let since = maps.next();
        let record = Arc::new(record);
        maps.containers.insert(container_id.to_owned(), Entry { record: record.clone(), since, envs_known });
        self.changed(&maps);
        record
    }

    /// Puts in what a checkpoint says, over what was found by asking the runtime: it knows what hooks did.
    ///
    /// Only before calls are served; later the store knows better.
    pub fn restore(&self, snapshot: Snapshot) {
        let mut maps = self.maps();
        for (id, record) in snapshot.pods {
            let since = maps.next();
            maps.pods.insert(id, Entry { record, since, envs_known: false });
        }
        for (id, mut record) in snapshot.containers {
            let mut envs_known = false;
            if let Some(found) = maps.containers.get(&id).filter(|found| found.envs_known) {
                Arc::make_mut(&mut record).envs.clone_from(&found.record.envs);
                envs_known = true;
            }
            let since = maps.next();
            maps.containers.insert(id, Entry { record, since, envs_known });
        }
        self.ledger.restore(snapshot.levels);
        self.changed(&maps);
    }

    /// Replaces the record of a container that is still there. A mark that it was stopped meanwhile stays.
    pub fn update_container(&self, container_id: &str, record: ContainerRecord) {
        let (mut record, _) = self.slim(record, true);
        let mut maps = self.maps();
        let Some(entry) = maps.containers.get_mut(container_id) else { return };
        record.stopped = entry.record.stopped;
        entry.record = Arc::new(record);
        self.changed(&maps);
    }

    /// Sets what an UpdatePodSandboxResources said.
    pub fn update_pod_resources(
        &self,
        pod_id: &str,
        overhead: Option<LinuxContainerResources>,
        resources: Option<LinuxContainerResources>,
    ) {
        let mut maps = self.maps();
        let Some(entry) = maps.pods.get_mut(pod_id) else { return };
        let record = Arc::make_mut(&mut entry.record);
        if overhead.is_some() {
            record.overhead = overhead;
        }
        if resources.is_some() {
            record.resources = resources;
        }
        self.changed(&maps);
    }

    /// Marks a pod as stopped; the first mark counts. True if this is the first.
    pub fn mark_pod_stopped(&self, pod_id: &str, now: SystemTime) -> bool {
        let mut maps = self.maps();
        let Some(entry) = maps.pods.get_mut(pod_id) else { return false };
        let first = entry.record.stopped.is_none();
        if first {
            Arc::make_mut(&mut entry.record).stopped = Some(now);
            self.changed(&maps);
        }
        first
    }

    /// Marks a container as stopped; the first mark counts. True if this is the first.
    pub fn mark_container_stopped(&self, container_id: &str, now: SystemTime) -> bool {
        let mut maps = self.maps();
        let Some(entry) = maps.containers.get_mut(container_id) else { return false };
        let first = entry.record.stopped.is_none();
        if first {
            Arc::make_mut(&mut entry.record).stopped = Some(now);
            self.changed(&maps);
        }
        first
    }

    /// Forgets a pod and its containers.
    pub fn remove_pod(&self, pod_id: &str) {
        let mut maps = self.maps();
        let before = maps.containers.len();
        maps.containers.retain(|_, entry| entry.record.pod_id != pod_id);
        if maps.pods.remove(pod_id).is_some() || maps.containers.len() != before {
            self.changed(&maps);
            self.forget_levels(&maps);
        }
    }

    /// Forgets a container.
    pub fn remove_container(&self, container_id: &str) {
        let mut maps = self.maps();
        if maps.containers.remove(container_id).is_some() {
            self.changed(&maps);
            self.forget_levels(&maps);
        }
    }

    /// The present moment: take it before asking the runtime for its lists, and give it to
    /// [`Store::retain_pods`] and [`Store::retain_containers`].
    pub fn moment(&self) -> Moment {
        Moment(self.maps().moment)
    }

    /// Forgets pods for which `listed` says no, except those put in after `moment`. Their containers go too.
    pub fn retain_pods(&self, moment: Moment, listed: impl Fn(&str) -> bool) {
        let mut maps = self.maps();
        let maps = &mut *maps;
        let before = (maps.pods.len(), maps.containers.len());
        maps.pods.retain(|id, entry| entry.since > moment || listed(id));
        let pods = &maps.pods;
        maps.containers.retain(|_, entry| pods.contains_key(&entry.record.pod_id));
        if before != (maps.pods.len(), maps.containers.len()) {
            self.changed(maps);
            self.forget_levels(maps);
        }
    }

    /// Forgets containers for which `listed` says no, except those put in after `moment`.
    pub fn retain_containers(&self, moment: Moment, listed: impl Fn(&str) -> bool) {
        let mut maps = self.maps();
        let before = maps.containers.len();
        maps.containers.retain(|id, entry| entry.since > moment || listed(id));
        if maps.containers.len() != before {
            self.changed(&maps);
            self.forget_levels(&maps);
        }
    }

    /// Forgets what was stopped [`KEEP_STOPPED`] ago or earlier.
    pub fn forget_stopped(&self, now: SystemTime) {
        let expired = |stopped: Option<SystemTime>| {
            stopped.is_some_and(|at| now.duration_since(at).is_ok_and(|age| age >= KEEP_STOPPED))
        };
        let mut maps = self.maps();
        let maps = &mut *maps;
        let before = (maps.pods.len(), maps.containers.len());
        maps.pods.retain(|_, entry| !expired(entry.record.stopped));
        let pods = &maps.pods;
        maps.containers
            .retain(|_, entry| !expired(entry.record.stopped) && pods.contains_key(&entry.record.pod_id));
        if before != (maps.pods.len(), maps.containers.len()) {
            self.changed(maps);
            self.forget_levels(maps);
        }
    }

    /// Whether environments are kept. They are the bulk of a record, and only hooks that run after the
    /// creation of a container need them.
    pub fn keep_envs(&self, keep: bool) {
        if self.keep_envs.swap(keep, Ordering::Relaxed) && !keep {
            for entry in self.maps().containers.values_mut() {
                entry.envs_known = false;
                if !entry.record.envs.is_empty() {
                    Arc::make_mut(&mut entry.record).envs.clear();
                }
            }
        }
    }

    fn slim(&self, mut record: ContainerRecord, envs_known: bool) -> (ContainerRecord, bool) {
        if envs_known && self.keep_envs.load(Ordering::Relaxed) {
            return (record, true);
        }
        record.envs.clear();
        (record, false)
    }

    /// Does what a successful call entails. True if that includes the first stop of a pod or container.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>, now: SystemTime) -> bool {
        let mut first_stop = false;
        for change in changes {
            match change {
                Change::PutPod { id, record } => self.put_pod(id, record),
                Change::PutContainer { id, record } => {
                    // A container that is known was changed by the call, not created.
                    if self.container(&id).is_some() {
                        self.update_container(&id, record);
                    } else {
                        self.put_container(id, record);
                    }
                }
                Change::SetPodResources { id, overhead, resources } => {
                    self.update_pod_resources(&id, overhead, resources);
                }
                Change::StopPod { id } => first_stop |= self.mark_pod_stopped(&id, now),
                Change::StopContainer { id } => first_stop |= self.mark_container_stopped(&id, now),
                Change::RemovePod { id } => self.remove_pod(&id),
                Change::RemoveContainer { id } => self.remove_container(&id),
            }
        }
        first_stop
    }

    /// Waits for earlier work on a container to be done; see [`Ordered`].
    pub fn order(&self, container_id: &str) -> Ordered {
        self.orders.enter(container_id)
    }
}

#[cfg(test)]
mod tests;
