//! What all parts of the agent share.
//!
//! Snapshots never change: a new one takes the place of the old one, and whoever follows is told once, however many
//! changes there were.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use koord_audit::Auditor;
use koord_cgroup::driver::RuntimeName;
use koord_cgroup::layout::Layout;
use koord_crd::node_slo::{EffectiveNodeSlo, NodeSloSpec};
use koord_kube::k8s_openapi::api::core::v1::Node;
use koord_kube::{Object, Observed};
use koord_prediction::Predictor;
use koord_usage::inventory::{Inventory, PodEntry};
use koord_usage::time::Tick;
use tokio::sync::{Notify, watch};

use crate::facts::NodeFacts;
use crate::flags::Config;
use crate::intake::Intake;
use crate::metrics::{Registry, external, internal};
use crate::pods::PodSet;
use crate::source::{Choice, Source};

/// The NodeMetric or NodeSLO of a node. Specifications are read leniently, field by field, so they stay JSON at first.
pub type Lenient = Object<serde_json::Value, serde_json::Value>;

/// The pods, and how fresh they are.
#[derive(Debug, Clone, Default)]
pub struct PodView {
    /// The pods.
    pub set: Arc<PodSet>,
    /// When pods were last heard of; nothing before the first time.
    pub heard: Option<Tick>,
}

/// How a collector is doing, of whichever program runs it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CollectorView {
    /// Its name.
    pub name: String,
    /// `ready`, `waiting`, `failed` or `disabled`.
    pub state: String,
    /// Why, if there is something to tell.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Milliseconds since boot of the last success.
    pub last_success: Option<u64>,
    /// Microseconds that its part of the last pass took.
    pub duration_microseconds: u64,
    /// Files that did not read as they should since the start.
    pub errors: u64,
    /// Files it keeps open.
    pub open_descriptors: u64,
}

/// Everything shared.
#[derive(Debug)]
pub struct State {
    /// The flags.
    pub config: Config,
    /// Metrics for operators.
    pub internal: Registry,
    /// Metrics for users.
    pub external: Registry,
    /// What takes samples.
    pub intake: Arc<Intake>,
    /// The audit log, if its gate is on.
    pub audit: Option<Arc<Auditor>>,
    /// The layout of control groups.
    pub layout: watch::Sender<Arc<Layout>>,
    /// The pods.
    pub pods: watch::Sender<PodView>,
    /// What is to be measured, as Kubernetes knows it.
    pub inventory: watch::Sender<Arc<Inventory>>,
    /// The node object.
    pub node: watch::Receiver<Observed<Node>>,
    /// The policy in force.
    pub policy: watch::Sender<Arc<EffectiveNodeSlo>>,
    /// The object that usage is reported in.
    pub node_metric: watch::Receiver<Observed<Lenient>>,
    /// CPUs and memory of the machine.
    pub facts: watch::Sender<Option<Arc<NodeFacts>>>,
    /// Asks for a look at the pods. Requests that wait are one.
    pub wants_pods: Notify,
    /// Whether the proxy's stream tells what begins and ends.
    pub has_stream: AtomicBool,
    /// How often the kubelet did not answer, as it does when it restarts: it may be another one then.
    pub kubelet_resets: AtomicU64,
    /// Whether directories are scanned because they cannot be watched.
    pub is_degraded: AtomicBool,
    /// The predictor.
    pub predictor: Mutex<Predictor>,
    source: Mutex<Choice>,
    collectors: Mutex<(Vec<CollectorView>, Vec<CollectorView>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No holder leaves half a change behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a [`State`] is made of.
#[derive(Debug)]
pub struct Parts {
    /// The flags.
    pub config: Config,
    /// The layout of control groups.
    pub layout: Layout,
    /// What takes samples.
    pub intake: Arc<Intake>,
    /// The audit log.
    pub audit: Option<Arc<Auditor>>,
    /// The node object.
    pub node: watch::Receiver<Observed<Node>>,
    /// The object that usage is reported in.
    pub node_metric: watch::Receiver<Observed<Lenient>>,
    /// The predictor.
    pub predictor: Predictor,
}

impl State {
    /// The state at the start: nothing has been heard of.
    pub fn new(parts: Parts) -> State {
        let now = Tick::now();
        let choice = Choice::new(parts.config.proxy.path().is_some(), now);
        State {
            internal: Registry::new(&parts.config.node_name, internal::ALL),
            external: Registry::new(&parts.config.node_name, external::ALL),
            intake: parts.intake,
            audit: parts.audit,
            layout: watch::Sender::new(Arc::new(parts.layout)),
            pods: watch::Sender::new(PodView::default()),
            inventory: watch::Sender::new(Arc::default()),
            node: parts.node,
            policy: watch::Sender::new(Arc::new(NodeSloSpec::default().effective())),
            node_metric: parts.node_metric,
            facts: watch::Sender::new(None),
            wants_pods: Notify::new(),
            has_stream: AtomicBool::new(false),
            kubelet_resets: AtomicU64::new(0),
            is_degraded: AtomicBool::new(false),
            predictor: Mutex::new(parts.predictor),
            source: Mutex::new(choice),
            collectors: Mutex::default(),
            config: parts.config,
        }
    }

    /// The choice of the source of samples.
    pub fn choice<T>(&self, ask: impl FnOnce(&mut Choice) -> T) -> T {
        ask(&mut lock(&self.source))
    }

    /// Where samples come from.
    pub fn source(&self) -> Source {
        self.choice(|choice| choice.current())
    }

    /// The predictor, locked.
    pub fn predictor(&self) -> MutexGuard<'_, Predictor> {
        lock(&self.predictor)
    }

    /// Takes the states of the collectors of the agent's own sampler.
    pub fn own_collectors(&self, views: Vec<CollectorView>) {
        lock(&self.collectors).0 = views;
    }

    /// Takes the states of the proxy's collectors.
    pub fn proxy_collectors(&self, views: Vec<CollectorView>) {
        lock(&self.collectors).1 = views;
    }

    /// The states of the proxy's collectors.
    pub fn proxy_views(&self) -> Vec<CollectorView> {
        lock(&self.collectors).1.clone()
    }

    /// How the collectors are doing that samples come from: the proxy's while it is the source, completed by those of the
    /// agent that the proxy does not have.
    pub fn collectors(&self) -> Vec<CollectorView> {
        let collectors = lock(&self.collectors);
        let (own, proxy) = &*collectors;
        if self.source() != Source::Proxy {
            return own.clone();
        }
        let is_off = |view: &CollectorView| view.state == "disabled";
        let mut views: Vec<CollectorView> = proxy.clone();
        for view in own.iter().filter(|view| !is_off(view)) {
            match views.iter_mut().find(|known| known.name == view.name) {
                Some(known) if is_off(known) => *known = view.clone(),
                Some(_) => {}
                None => views.push(view.clone()),
            }
        }
        views
    }

    /// Publishes pods, and what is to be measured of them.
    pub fn publish_pods(&self, set: Arc<PodSet>, now: Tick) {
        let runtime: RuntimeName = self.config.paths.runtime.parse().unwrap_or(RuntimeName::Containerd);
        let layout = Arc::clone(&self.layout.borrow());
        let previous = Arc::clone(&self.inventory.borrow());
        let groups = crate::pods::inventory::MountedGroups(&layout);
        let (pods, refused) = crate::pods::inventory::pods(&set, &previous.pods, &layout, runtime, &groups);
        for refused in refused {
            tracing::debug!(subject = refused.subject, problem = refused.problem, "not measured");
        }
        let (requests, limits) = crate::pods::resources::rows(&set);
        self.external.replace(&external::CONTAINER_REQUESTS, requests);
        self.external.replace(&external::CONTAINER_LIMITS, limits);
        self.internal.set(&internal::PODS, &[], set.pods.len() as f64);
        self.replace_inventory(|inventory| Inventory {
            pods,
            host_applications: inventory.host_applications.clone(),
        });
        self.pods.send_replace(PodView { set, heard: Some(now) });
    }

    /// Makes anew what depends on the layout of control groups.
    pub fn publish_again(&self) {
        let view = self.pods.borrow().clone();
        if let Some(heard) = view.heard {
            self.publish_pods(view.set, heard);
        }
        let policy = EffectiveNodeSlo::clone(&self.policy.borrow());
        self.publish_policy(policy);
    }

    /// Says that the pods are as they were.
    pub fn pods_unchanged(&self, now: Tick) {
        self.pods.send_if_modified(|view| {
            view.heard = Some(now);
            false
        });
    }

    fn replace_inventory(&self, make: impl FnOnce(&Inventory) -> Inventory) {
        self.inventory.send_if_modified(|inventory| {
            let next = make(inventory);
            let changed = next != **inventory;
            if changed {
                *inventory = Arc::new(next);
            }
            changed
        });
    }

    /// Publishes a policy, and the host applications it names.
    pub fn publish_policy(&self, policy: EffectiveNodeSlo) {
        let layout = Arc::clone(&self.layout.borrow());
        let (applications, refused) =
            crate::pods::inventory::host_applications(&policy.host_applications, &layout);
        for refused in refused {
            tracing::warn!(subject = refused.subject, problem = refused.problem, "not measured");
        }
        self.replace_inventory(|inventory| Inventory {
            pods: inventory.pods.clone(),
            host_applications: applications,
        });
        self.policy.send_replace(Arc::new(policy));
    }

    /// Who is live while the proxy's stream is the source: its pods, with what only Kubernetes knows, and the host
    /// applications of the policy.
    pub fn streamed_inventory(&self, streamed: &Inventory) -> Inventory {
        let known = Arc::clone(&self.inventory.borrow());
        let requests: std::collections::HashMap<&str, &Arc<PodEntry>> =
            known.pods.iter().map(|pod| (&*pod.uid, pod)).collect();
        let pods = streamed
            .pods
            .iter()
            .map(|pod| match requests.get(&*pod.uid) {
                Some(entry) if entry.batch_cpu_request != pod.batch_cpu_request || entry.qos != pod.qos => {
                    Arc::new(PodEntry {
                        batch_cpu_request: entry.batch_cpu_request,
                        qos: entry.qos,
                        ..PodEntry::clone(pod)
                    })
                }
                _ => Arc::clone(pod),
            })
            .collect();
        Inventory { pods, host_applications: known.host_applications.clone() }
    }

    /// Seconds since pods were last heard of.
    pub fn pods_age(&self, now: Tick) -> Option<Duration> {
        self.pods.borrow().heard.map(|heard| now.since(heard))
    }

    /// Says whether directories are scanned.
    pub fn set_degraded(&self, is_degraded: bool) {
        self.is_degraded.store(is_degraded, Ordering::Relaxed);
        self.internal.set(&internal::PLEG_DEGRADED, &[], f64::from(u8::from(is_degraded)));
    }
}
