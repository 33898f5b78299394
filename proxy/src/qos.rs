//! Quality of service in the proxy: built-in rules, the cgroups they are written to, and the record of it.
//!
//! Rules are asked where a hook server would be: before RunPodSandbox, CreateContainer and
//! UpdateContainerResources. What the CRI carries goes into the request. What it does not carry is written into
//! the cgroup: of a pod before its sandbox is asked for, of a container before the caller hears that it was
//! started. A reconciler writes again what another program has changed, and follows policy and pods.
//!
//! Invariants: no file is written outside the mode `enforce`, except to put back what the kubelet asked; nothing
//! here blocks a connection's thread; a cgroup that is gone is no error.

mod acts;
mod adopt;
mod apply;
pub mod carry;
pub mod draft;
pub mod ledger;
mod machine;
mod measured;
mod node;
mod policy;
mod probe;
mod reconcile;
mod restore;
mod view;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use koord_admin::Mode;
use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::executor::{Executor, Support};
use koord_cgroup::weight::Conversion;
use koord_cri::v1;
use koord_extension::annotation::ResourceStatus;
use koord_extension::cpuset::CpuSet;
use koord_extension::qos::{KubeQos, QosClass};
use koord_intercept::record::PodRecord;
use koord_intercept::skip::SkipRule;
use koord_rules::{Asked, ContainerView, Plan, PodFacts, PodView, Severity};
use koord_topology::pools::PodCpus;
use tokio::sync::OwnedRwLockReadGuard;

use crate::backend_client::BackendClient;
use crate::metrics::WriteCounter;
use crate::store::Store;
use acts::Acts;
use carry::Carried;
use draft::Draft;
use ledger::Ledger;
use machine::Machine;
use node::{Fixed, LastPools, Node, OwnCpus};

pub use node::Fixed as FixedNode;
pub use policy::{NodePolicy, PolicyError, read as read_policy};
pub use probe::{MachineRoots, TreeOptions};

/// How long what was seen of devices and disks is good for.
const MACHINE_AGE: Duration = Duration::from_secs(10);

/// How long the runtime may take to tell its cgroup driver.
const DRIVER_LIMIT: Duration = Duration::from_secs(2);

/// What the rules are made of.
#[derive(Debug)]
pub struct Parts {
    /// The mode to begin in.
    pub mode: Mode,
    /// The policy and its file.
    pub policy: NodePolicy,
    /// What does not change while the process runs.
    pub fixed: FixedNode,
    /// How the tree of cgroups is found.
    pub tree: TreeOptions,
    /// The writer for the tree as it was found.
    pub executor: Executor,
    /// Where the writer counts.
    pub observer: Arc<WriteCounter>,
    /// Pods and containers.
    pub store: Arc<Store>,
    /// Runs what blocks.
    pub async_runtime: tokio::runtime::Handle,
    /// How often values are compared.
    pub interval: Duration,
    /// Which pods are exempt.
    pub skip: SkipRule,
}

#[derive(Debug)]
struct State {
    policy: NodePolicy,
    pools: LastPools,
    own_cpus: OwnCpus,
    machine: Machine,
    machine_read: Option<Instant>,
}

/// Asks rules and carries their wishes out.
#[derive(Debug)]
pub struct Qos {
    mode: AtomicU8,
    state: Mutex<State>,
    node: ArcSwap<Node>,
    fixed: Fixed,
    tree: TreeOptions,
    observer: Arc<WriteCounter>,
    executor: ArcSwap<Executor>,
    store: Arc<Store>,
    async_runtime: tokio::runtime::Handle,
    interval: Duration,
    skip: SkipRule,
    facts: Mutex<HashMap<String, PodFactsEntry>>,
    wake: tokio::sync::Notify,
    dirty: Mutex<reconcile::Dirty>,
    last_reconcile: Mutex<Option<SystemTime>>,
    /// The formula between shares and weights of the last round.
    formula: Mutex<Option<Conversion>>,
    /// The next round looks at running containers for that formula first.
    learns: AtomicBool,
    conflicts: std::sync::atomic::AtomicU64,
    acts: Acts,
    /// Shared by all who write for rules, and taken alone before values are put back: who had begun has ended then, and
    /// who comes later sees the mode.
    writing: RwLock<()>,
    /// The same for calls whose request carries values: from the decision until what came of it is in the ledger.
    sending: Arc<tokio::sync::RwLock<()>>,
}

/// How long values are kept from being put back by a call that carries others to the runtime.
const SENDING_LIMIT: Duration = Duration::from_secs(10);

/// Held by a call whose request carries values of rules.
pub type Sending = OwnedRwLockReadGuard<()>;

/// A pod as rules see it, its annotations read.
#[derive(Debug)]
struct KnownPod {
    view: PodView,
    facts: PodFacts,
}

/// The record that facts were read from, and the facts.
type PodFactsEntry = (Arc<PodRecord>, Arc<KnownPod>);

fn to_number(mode: Mode) -> u8 {
    match mode {
        Mode::Enforce => 0,
        Mode::Shadow => 1,
        Mode::Off => 2,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Qos {
    /// Reads the policy once; the rest follows with [`Qos::run`].
    pub fn new(parts: Parts) -> Self {
        let Parts { mode, mut policy, fixed, tree, executor, observer, store, async_runtime, interval, skip } =
            parts;
        policy.refresh(SystemTime::now());
        observer.mode(mode);
        let mut state = State {
            policy,
            pools: LastPools::default(),
            own_cpus: own_cpus(&store),
            machine: Machine::default(),
            machine_read: None,
        };
        let acts = Acts::new(&fixed.machine);
        let node = make_node(&fixed, &executor, &acts, &mut state);
        Self {
            mode: AtomicU8::new(to_number(mode)),
            state: Mutex::new(state),
            node: ArcSwap::from_pointee(node),
            fixed,
            tree,
            observer,
            executor: ArcSwap::from_pointee(executor),
            store,
            async_runtime,
            interval,
            skip,
            facts: Mutex::default(),
            wake: tokio::sync::Notify::new(),
            dirty: Mutex::default(),
            last_reconcile: Mutex::default(),
            formula: Mutex::default(),
            learns: AtomicBool::new(false),
            conflicts: std::sync::atomic::AtomicU64::new(0),
            writing: RwLock::new(()),
            sending: Arc::default(),
            acts,
        }
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Relaxed) {
            0 => Mode::Enforce,
            1 => Mode::Shadow,
            _ => Mode::Off,
        }
    }

    /// Whether rules and hooks are asked at all.
    pub fn is_on(&self) -> bool {
        self.mode() != Mode::Off
    }

    /// Goes to another mode. Values that were set stay until [`Qos::restore`] puts them back.
    pub fn set_mode(&self, mode: Mode) {
        let before = self.mode();
        if before != mode {
            // Containers that were started meanwhile are as the runtime made them.
            self.learns.store(true, Ordering::Relaxed);
        }
        self.mode.store(to_number(mode), Ordering::Relaxed);
        if before != mode {
            tracing::info!(%before, %mode, "mode of rules and hooks");
            self.observer.mode(mode);
            self.check_all();
        }
    }

    /// To be held while anything is written for rules; nothing if they are not enforced.
    fn enforcing(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let held = self.writing.read().unwrap_or_else(PoisonError::into_inner);
        (self.mode() == Mode::Enforce).then_some(held)
    }

    /// To be held by a call whose request carries values, until what came of it is in the ledger; nothing if rules are
    /// not enforced.
    pub fn begin_sending(&self) -> Option<Sending> {
        // Only putting values back takes it alone, and has changed the mode before.
        let held = self.sending.clone().try_read_owned().ok()?;
        (self.mode() == Mode::Enforce).then_some(held)
    }

    /// Waits for calls whose requests carry values.
    async fn wait_for_senders(&self) {
        if tokio::time::timeout(SENDING_LIMIT, self.sending.write()).await.is_err() {
            tracing::warn!("a call to the runtime takes too long: values that it sets are not put back");
        }
    }

    /// Waits for all who write for rules. Blocks.
    fn wait_for_writers(&self) {
        drop(self.writing.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The runtime that futures of this part need.
    pub fn async_runtime(&self) -> &tokio::runtime::Handle {
        &self.async_runtime
    }

    /// The record of what was asked and sent.
    pub fn ledger(&self) -> &Ledger {
        self.store.ledger()
    }

    /// The one writer of the tree.
    fn executor(&self) -> Arc<Executor> {
        self.executor.load_full()
    }

    /// Looks for the tree again if a pod's parent shows that the kubelet names cgroups in the other style:
    /// before the kubelet has made its directories, the style can only be assumed.
    fn learn_driver(&self, cgroup_parent: &str) {
        if self.tree.driver.is_some() || !cgroup_parent.contains("kubepods") {
            return;
        }
        let Some(driver) = CgroupDriver::of_cri_parent(cgroup_parent) else { return };
        self.use_driver(driver);
    }

    fn use_driver(&self, driver: CgroupDriver) {
        if self.executor().layout().driver() == driver {
            return;
        }
        match self.tree.executor(Some(driver), &self.observer) {
            Ok(executor) => {
                self.executor.store(Arc::new(executor));
                // The new one knows nothing of the runtime's formula.
                self.learns.store(true, Ordering::Relaxed);
                self.refresh_node();
            }
            Err(error) => tracing::warn!(%error, "control groups not found again"),
        }
    }

    /// Asks the runtime which style of cgroup names it was configured for; kubelets since 1.31 follow it.
    pub async fn ask_driver(&self, runtime: &BackendClient) {
        if self.tree.driver.is_some() {
            return;
        }
        let told = match runtime.cgroup_driver(DRIVER_LIMIT).await {
            Ok(Some(v1::CgroupDriver::Systemd)) => CgroupDriver::Systemd,
            Ok(Some(v1::CgroupDriver::Cgroupfs)) => CgroupDriver::Cgroupfs,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "the runtime does not tell its cgroup driver");
                return;
            }
        };
        self.use_driver(told);
    }

    fn node(&self) -> Arc<Node> {
        self.node.load_full()
    }

    /// What is known of a pod, its annotations read once.
    fn facts(&self, pod_id: Option<&str>, pod: &Arc<PodRecord>) -> Arc<KnownPod> {
        let Some(pod_id) = pod_id else { return Arc::new(facts_of(pod, Asked::default())) };
        if let Some((known, facts)) = locked(&self.facts).get(pod_id)
            && Arc::ptr_eq(known, pod)
        {
            return facts.clone();
        }
        let facts = Arc::new(facts_of(pod, self.asked_of_pod(pod_id)));
        locked(&self.facts).insert(pod_id.to_owned(), (pod.clone(), facts.clone()));
        facts
    }

    /// What the kubelet set on a pod's cgroup, as far as that was ever found.
    fn asked_of_pod(&self, pod_id: &str) -> Asked {
        let Some(level) = self.ledger().pod(pod_id) else { return Asked::default() };
        let number = |field: &str| level.entry(field)?.asked.as_ref()?.parse().ok();
        Asked {
            cpu_shares: number("cpu.shares"),
            cpu_quota: number("cpu.cfs_quota_us"),
            cpu_period: number("cpu.cfs_period_us"),
            memory_limit: number("memory.limit_in_bytes"),
            oom_score_adj: None,
            cpuset_cpus: None,
        }
    }

    /// The wishes for a container that is being created or updated, and the way they take; both are noted in the draft.
    pub fn decide_container(
        &self,
        pod_id: Option<&str>,
        pod: &Arc<PodRecord>,
        draft: &mut Draft,
    ) -> (Plan, Carried) {
        let node = self.node();
        let known = self.facts(pod_id, pod);
        let asked = asked(draft.asked());
        let view =
            ContainerView { name: draft.name(), asked: &asked, memory_request: None, is_sandbox: false };
        let plan = koord_rules::container_with(&node.view, &known.view, &known.facts, &view);
        let asked_cpus = asked.cpuset_cpus.as_deref().unwrap_or_default();
        let carried =
            carry::container(&plan, node.view.kernel.cgroup_version, asked_cpus, &node.all_cpus, |field| {
                apply::resource_of(&field.as_str())
                    .is_some_and(|file| self.executor.load().supported(file) == Support::Yes)
            });
        if draft.is_adopted() {
            adopt::disown(draft.level_mut(), &plan, |_| true);
        }
        draft.rules(&plan, &carried);
        (plan, carried)
    }

    /// Why a container must not start, if so: it was given devices and would run without them.
    pub fn refusal(&self, plan: &Plan) -> Option<String> {
        let problem = plan.problems.iter().find(|problem| problem.severity == Severity::Refuses)?;
        Some(format!("{}: {}", problem.rule, problem.message))
    }

    /// Whether rules have a say in a pod: it says so itself, or is the kubelet's. Others come from people with
    /// `crictl`, who know what they ask for.
    pub fn concerns(&self, pod: &PodRecord) -> bool {
        QosClass::raw(&pod.labels).is_some() || self.pod_path(pod).is_some()
    }

    fn skips(&self, pod: &PodRecord) -> bool {
        self.skip.skips(pod)
    }

    /// Forgets what is known of pods that are gone.
    fn forget_facts(&self) {
        locked(&self.facts).retain(|id, _| self.store.pod(id).is_some());
    }

    /// Puts the node together anew; true if rules see something else now.
    fn refresh_node(&self) -> bool {
        let mut state = locked(&self.state);
        let policy_changed = state.policy.refresh(SystemTime::now());
        let own_cpus = own_cpus(&self.store);
        let pods_changed = state.own_cpus != own_cpus;
        state.own_cpus = own_cpus;
        let node = make_node(&self.fixed, &self.executor(), &self.acts, &mut state);
        let before = self.node.load();
        let pools_changed = before.view.pools != node.view.pools
            || before.view.kubelet_cpu_policy != node.view.kubelet_cpu_policy
            || before.view.kernel != node.view.kernel
            || before.view.disks != node.view.disks
            || before.view.devices != node.view.devices;
        drop(before);
        let changed = policy_changed || pods_changed || pools_changed;
        if changed {
            self.node.store(Arc::new(node));
        }
        policy_changed || pools_changed
    }
}

fn make_node(fixed: &Fixed, executor: &Executor, acts: &Acts, state: &mut State) -> Node {
    let slo = state.policy.spec().effective();
    let kubelet = fixed.kubelet_state();
    let mut kernel = probe::kernel(executor, &fixed.machine);
    acts.complete(&mut kernel, executor, &fixed.machine);
    if state.machine_read.is_none_or(|read| read.elapsed() >= MACHINE_AGE) {
        state.machine = Machine::read(&fixed.machine);
        state.machine_read = Some(Instant::now());
    }
    fixed.node(slo, kernel, &state.machine, kubelet.as_ref(), &state.own_cpus, &mut state.pools)
}

/// CPUs that pods have of their own, and the pods whose CPUs are not the kubelet's to give.
fn own_cpus(store: &Store) -> OwnCpus {
    let mut pods: OwnCpus = store
        .pods()
        .into_iter()
        .filter(|(_, pod)| pod.stopped.is_none())
        .filter_map(|(_, pod)| own_cpus_of(&pod))
        .collect();
    pods.sort_by(|a, b| a.0.cmp(&b.0));
    pods
}

fn own_cpus_of(pod: &PodRecord) -> Option<(String, PodCpus)> {
    let qos = QosClass::raw(&pod.labels);
    let status = ResourceStatus::from_annotations(&pod.annotations).ok().flatten();
    let cpus = status.and_then(|status| CpuSet::parse(&status.cpuset).ok()).unwrap_or_default();
    (qos.is_some() || !cpus.is_empty()).then(|| (pod.metadata.uid.clone(), PodCpus { qos, cpus }))
}

/// What rules are told of a pod.
fn facts_of(pod: &PodRecord, asked: Asked) -> KnownPod {
    let view = PodView {
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        labels: pod.labels.clone(),
        annotations: pod.annotations.clone(),
        cgroup_parent: pod.cgroup_parent.clone(),
        kube_qos: KubeQos::of_cgroup_path(&pod.cgroup_parent),
        asked,
        memory_request: None,
    };
    KnownPod { facts: PodFacts::new(&view), view }
}

/// What rules are told of a request.
fn asked(resources: Option<&koord_hook::v1alpha1::LinuxContainerResources>) -> Asked {
    let Some(resources) = resources else { return Asked::default() };
    let some = |value: i64| (value != 0).then_some(value);
    Asked {
        cpu_shares: some(resources.cpu_shares),
        cpu_quota: some(resources.cpu_quota),
        cpu_period: some(resources.cpu_period),
        memory_limit: some(resources.memory_limit_in_bytes),
        oom_score_adj: Some(resources.oom_score_adj),
        cpuset_cpus: Some(resources.cpuset_cpus.clone()).filter(|cpus| !cpus.is_empty()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
