//! Who is measured: the pods and containers of the store whose cgroups are there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use koord_extension::annotation::{ContainerKind, ExtendedResourceSpec};
use koord_extension::keys::resource;
use koord_extension::priority::{PriorityBands, PriorityClass};
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::units::MilliCpu;
use koord_intercept::record::{ContainerRecord, PodRecord};
use koord_usage::inventory::{ContainerEntry, Inventory, PodEntry};
use koord_usage::time::Tick;
use koord_usage::wire;
use koord_usage_api::v1;
use tokio::sync::watch;

use crate::qos::Qos;
use crate::store::Store;

/// First and longest pause before a container without a cgroup is looked for again: it may be about to start, or have
/// ended by itself.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How often all cgroups are looked for again: containers that end by themselves change no record.
const FULL_CHECK: Duration = Duration::from_secs(30);

/// Who is measured. It does not change: a new one takes its place.
#[derive(Debug, Default)]
pub struct Measured {
    /// For the sampler.
    pub inventory: Arc<Inventory>,
    /// For streams and metrics; in the order of the inventory.
    pub pods: Vec<Arc<v1::Pod>>,
}

/// The records of a pod, all of its sandboxes that live.
#[derive(Debug, Default, Clone)]
struct Records {
    sandboxes: Vec<Arc<PodRecord>>,
    containers: BTreeMap<String, (Arc<ContainerRecord>, usize)>,
}

impl Records {
    fn are_same(&self, other: &Records) -> bool {
        self.sandboxes.len() == other.sandboxes.len()
            && self.sandboxes.iter().zip(&other.sandboxes).all(|(one, two)| Arc::ptr_eq(one, two))
            && self.containers.len() == other.containers.len()
            && self
                .containers
                .iter()
                .zip(&other.containers)
                .all(|((id, one), (other_id, two))| id == other_id && Arc::ptr_eq(&one.0, &two.0))
    }
}

#[derive(Debug)]
struct Known {
    records: Records,
    found: Option<(Arc<PodEntry>, Arc<v1::Pod>)>,
    /// When to look again for cgroups that were not there, and how long after the last time that is.
    retry: Option<(Tick, Duration)>,
}

/// Follows the store.
#[derive(Debug)]
pub(super) struct Follower {
    qos: Arc<Qos>,
    store: Arc<Store>,
    changes: watch::Receiver<u64>,
    known: HashMap<String, Known>,
    current: Arc<Measured>,
    checked: Option<Tick>,
}

impl Follower {
    pub(super) fn new(qos: Arc<Qos>, store: Arc<Store>) -> Follower {
        let changes = store.changes();
        Follower { qos, store, changes, known: HashMap::new(), current: Arc::default(), checked: None }
    }

    /// Who is to be measured now; the same as last time if nothing has changed.
    pub(super) fn refresh(&mut self) -> Arc<Measured> {
        self.refresh_at(Tick::now())
    }

    pub(super) fn refresh_at(&mut self, now: Tick) -> Arc<Measured> {
        let full = self.checked.is_none_or(|checked| now.since(checked) >= FULL_CHECK);
        // The sender lives in the store, which this holds.
        let changed = self.changes.has_changed().unwrap_or(false);
        let due = |known: &Known| known.retry.is_some_and(|(at, _)| at <= now);
        if !full && !changed && !self.known.values().any(due) {
            return Arc::clone(&self.current);
        }
        self.changes.mark_unchanged();
        if full {
            self.checked = Some(now);
        }
        let mut any = false;
        let records = records(&self.store);
        let before = self.known.len();
        self.known.retain(|uid, _| records.contains_key(uid));
        any |= self.known.len() != before;
        for (uid, records) in records {
            let known = self.known.get(&uid);
            let same = known.is_some_and(|known| known.records.are_same(&records));
            if same && !full && !known.is_some_and(due) {
                continue;
            }
            let (entry, missing) = entry(&self.qos, &uid, &records);
            let waited = known.filter(|_| same).and_then(|known| known.retry).map(|(_, pause)| pause);
            let retry = missing.then(|| {
                let pause = waited.map_or(RETRY.0, |pause| (pause * 2).min(RETRY.1));
                (now.ahead(pause), pause)
            });
            let found = known.and_then(|known| known.found.clone());
            let found = match (entry, found) {
                (Some(entry), Some(found)) if *found.0 == entry.0 && *found.1 == entry.1 => Some(found),
                (Some((entry, pod)), _) => {
                    any = true;
                    Some((Arc::new(entry), Arc::new(pod)))
                }
                (None, Some(_)) => {
                    any = true;
                    None
                }
                (None, None) => None,
            };
            self.known.insert(uid, Known { records, found, retry });
        }
        if any {
            let found = || self.known.values().filter_map(|known| known.found.as_ref());
            self.current = Arc::new(Measured {
                inventory: Arc::new(Inventory {
                    pods: found().map(|(entry, _)| Arc::clone(entry)).collect(),
                    ..Inventory::default()
                }),
                pods: found().map(|(_, pod)| Arc::clone(pod)).collect(),
            });
        }
        Arc::clone(&self.current)
    }
}

/// The records of all pods that live, by UID. Sandboxes that other programs made have none and are left out.
fn records(store: &Store) -> HashMap<String, Records> {
    let mut sandboxes: Vec<(String, Arc<PodRecord>)> = store.pods();
    sandboxes.retain(|(_, pod)| pod.stopped.is_none() && !pod.metadata.uid.is_empty());
    // The newest sandbox of a pod speaks for it.
    sandboxes.sort_by(|(id, pod), (other_id, other)| {
        (other.metadata.attempt, other_id).cmp(&(pod.metadata.attempt, id))
    });
    let mut records: HashMap<String, Records> = HashMap::new();
    let mut places: HashMap<String, (String, usize)> = HashMap::new();
    for (id, pod) in sandboxes {
        let uid = pod.metadata.uid.clone();
        let of_pod = records.entry(uid.clone()).or_default();
        places.insert(id, (uid, of_pod.sandboxes.len()));
        of_pod.sandboxes.push(pod);
    }
    for (id, known) in store.containers() {
        if known.container.stopped.is_some() {
            continue;
        }
        let Some((uid, place)) = places.get(&known.container.pod_id) else { continue };
        if let Some(of_pod) = records.get_mut(uid) {
            of_pod.containers.insert(id, (known.container, *place));
        }
    }
    records
}

/// A pod as it is measured, unless its cgroup is not there, and whether any cgroup was missing.
fn entry(qos: &Qos, uid: &str, records: &Records) -> (Option<(PodEntry, v1::Pod)>, bool) {
    let Some(pod) = records.sandboxes.first() else { return (None, false) };
    let Some(cgroup) = qos.present_pod(pod) else { return (None, true) };
    let spec = ExtendedResourceSpec::from_annotations(&pod.annotations).ok().flatten();
    let mut missing = false;
    let mut containers = Vec::with_capacity(records.containers.len());
    for (id, (container, place)) in &records.containers {
        let Some(sandbox) = records.sandboxes.get(*place) else { continue };
        let Some(cgroup) = qos.present_container(id, container, sandbox) else {
            missing = true;
            continue;
        };
        let name = container.metadata.name.as_str();
        let kind = spec.as_ref().and_then(|spec| spec.containers.get(name)).map(|entry| &entry.kind);
        containers.push(ContainerEntry {
            id: id.as_str().into(),
            name: name.into(),
            cgroup,
            is_init: matches!(kind, Some(ContainerKind::Init | ContainerKind::Sidecar)),
        });
    }
    let entry = PodEntry {
        uid: uid.into(),
        namespace: pod.metadata.namespace.as_str().into(),
        name: pod.metadata.name.as_str().into(),
        qos: QosClass::raw(&pod.labels),
        kube_qos: KubeQos::of_cgroup_path(&pod.cgroup_parent),
        cgroup,
        // The resource counts thousandths of a core.
        batch_cpu_request: MilliCpu(spec.map_or(0, |spec| spec.pod_request(resource::BATCH_CPU).value())),
        containers,
    };
    let priority = PriorityBands::default().raw(&pod.labels, None);
    let told = v1::Pod {
        priority_class: priority.map_or("", PriorityClass::as_str).to_owned(),
        ..wire::pod(&entry)
    };
    (Some((entry, told)), missing)
}
