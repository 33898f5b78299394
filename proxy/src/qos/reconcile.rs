//! Keeps values as they are wished: after changes of the policy, of pods and of what others write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use koord_admin::Mode;
use koord_cgroup::driver::CgroupDriver;
use koord_extension::qos::KubeQos;
use koord_intercept::record::PodRecord;
use koord_rules::Level as RuleLevel;

use super::acts;
use super::apply::Which;
use super::ledger::Level;
use super::{Qos, locked, own_cpus, own_cpus_of};

/// How often the policy's file is looked at.
const POLICY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a burst of changes is waited out.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// What is to be looked at.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    all: bool,
    /// Pods have come or gone.
    pods: bool,
    containers: BTreeSet<String>,
    /// What rules set on the directories of QoS classes.
    pub(super) classes: BTreeMap<&'static str, Level>,
}

/// Which pods and containers are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Among {
    All,
    /// Those of which nothing is recorded yet.
    Unknown,
}

const CLASSES: [KubeQos; 3] = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];

pub(super) fn class_name(class: KubeQos) -> &'static str {
    match class {
        KubeQos::Guaranteed => "Guaranteed",
        KubeQos::Burstable => "Burstable",
        KubeQos::BestEffort => "BestEffort",
    }
}

impl Qos {
    /// Has one container looked at, soon.
    pub fn check_soon(&self, container_id: &str) {
        locked(&self.dirty).containers.insert(container_id.to_owned());
        self.wake.notify_one();
    }

    /// Has everything looked at, soon.
    pub fn check_all(&self) {
        locked(&self.dirty).all = true;
        self.wake.notify_one();
    }

    /// Follows policy, pods and time until the future is dropped.
    pub async fn run(self: &Arc<Self>) {
        let qos = self.clone();
        let learning = self.async_runtime.spawn_blocking(move || qos.learn_from_running());
        if let Err(error) = learning.await {
            tracing::error!(%error, "looking at running containers ended in a panic");
        }
        let mut pods = self.store.changes();
        let mut policy = tokio::time::interval(POLICY_INTERVAL);
        let mut everything = tokio::time::interval(self.interval);
        everything.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        policy.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let mut all = false;
            tokio::select! {
                _ = policy.tick() => {}
                _ = everything.tick() => all = true,
                () = self.wake.notified() => tokio::time::sleep(DEBOUNCE).await,
                Ok(()) = pods.changed() => {
                    locked(&self.dirty).pods = true;
                    tokio::time::sleep(DEBOUNCE).await;
                }
            }
            pods.mark_unchanged();
            let qos = self.clone();
            let round = self.async_runtime.spawn_blocking(move || qos.round(all));
            if let Err(error) = round.await {
                tracing::error!(%error, "a round of comparing values ended in a panic");
            }
        }
    }

    /// One round. Blocks.
    fn round(&self, all: bool) {
        self.acts.probe(&self.executor());
        let node_changed = self.refresh_node();
        self.forget_facts();
        let held = self.enforcing();
        let (wanted_all, pods_changed, containers) = {
            let mut dirty = locked(&self.dirty);
            let (all, pods) = (std::mem::take(&mut dirty.all), std::mem::take(&mut dirty.pods));
            (all, pods, std::mem::take(&mut dirty.containers))
        };
        let mode = match self.mode() {
            _ if held.is_some() => Mode::Enforce,
            Mode::Shadow => Mode::Shadow,
            // Switched on this moment: that has another round made.
            Mode::Off | Mode::Enforce => return,
        };
        if self.learns.swap(false, Ordering::Relaxed) {
            self.learn_from_running();
        }
        let formula_changed = {
            let formula = Some(self.executor().conversion());
            std::mem::replace(&mut *locked(&self.formula), formula) != formula
        };
        let all = all || wanted_all || node_changed || formula_changed;
        if formula_changed || (all && self.executor().layout().driver() == CgroupDriver::Systemd) {
            // systemd writes its own view whenever it touches a unit.
            let kubepods = self.executor().layout().kubepods();
            self.executor().expire(&kubepods);
        }
        for id in &containers {
            // The runtime has just written.
            if let Some(known) = self.store.container_and_pod(id)
                && let Some(path) = self.container_path(id, &known.container, &known.pod)
            {
                self.executor().expire(&path);
            }
        }
        if all {
            self.look_at_node(mode);
            self.look_at_classes(mode);
            self.look_at_pods(mode, Among::All);
            self.executor().sweep();
            if mode == Mode::Enforce {
                self.sweep_acts();
            }
            *locked(&self.last_reconcile) = Some(SystemTime::now());
        } else {
            if pods_changed && self.node().view.kernel.memory_protection {
                // What the directories protect is the sum of their pods'.
                self.look_at_classes(mode);
            }
            for id in containers {
                if let Some(known) = self.store.container_and_pod(&id) {
                    self.write_container(&id, &known.container, &known.pod, mode);
                }
            }
        }
    }

    /// One round over everything, now.
    #[cfg(test)]
    pub(super) fn round_for_test(&self) {
        self.round(true);
    }

    /// Looks at pods that run, then at containers. Blocks.
    pub(super) fn look_at_pods(&self, mode: Mode, among: Among) {
        for (id, pod) in self.store.pods() {
            let known = among == Among::Unknown && self.ledger().pod(&id).is_some();
            if !known && pod.stopped.is_none() && !self.skips(&pod) {
                self.look_at_pod(&id, &pod, mode);
            }
        }
        for (id, found) in self.store.containers() {
            let known = among == Among::Unknown && self.ledger().container(&id).is_some();
            let runs = found.container.stopped.is_none();
            if !known && runs && !self.skips(&found.pod) && self.concerns(&found.pod) {
                self.write_container(&id, &found.container, &found.pod, mode);
            }
        }
    }

    fn look_at_pod(&self, id: &str, pod: &Arc<PodRecord>, mode: Mode) {
        let mut level = self.ledger().pod(id).as_deref().cloned().unwrap_or_default();
        let mut sandbox = acts::take_sandbox(&mut level);
        self.write_pod(pod, &mut level, mode);
        if mode == Mode::Enforce {
            self.write_sandbox(id, pod, &mut sandbox);
        }
        acts::put_sandbox(&mut level, sandbox);
        self.ledger().put_pod(id, level);
    }

    /// The directories of the Kubernetes QoS classes.
    fn look_at_classes(&self, mode: Mode) {
        let node = self.node();
        let protection = if mode == Mode::Enforce { self.protection() } else { Vec::new() };
        for class in CLASSES {
            let mut plan = koord_rules::qos_dir(&node.view, class);
            for (_, sum) in protection.iter().filter(|(of, _)| *of == class) {
                plan.wishes.extend_from_slice(&sum.wishes);
            }
            let name = class_name(class);
            let mut level = locked(&self.dirty).classes.get(name).cloned().unwrap_or_default();
            if plan.wishes.is_empty() && level.entries.is_empty() {
                continue;
            }
            if mode == Mode::Enforce {
                let path = self.executor().layout().qos_dir(class);
                self.carry_out(&path, RuleLevel::QosDirectory, &plan, &mut level, Which::All);
            }
            locked(&self.dirty).classes.insert(name, level);
        }
    }

    /// Moves containers off CPUs that a new pod is to have for itself, before the pod runs. Blocks.
    pub(super) fn claim_cpus(&self, pod: &PodRecord) {
        let Some((uid, own)) = own_cpus_of(pod) else { return };
        if own.cpus.is_empty() {
            return;
        }
        let changed = {
            let mut state = locked(&self.state);
            let mut pods = own_cpus(&self.store);
            pods.retain(|(known, _)| *known != uid);
            pods.push((uid, own));
            pods.sort_by(|a, b| a.0.cmp(&b.0));
            state.own_cpus = pods;
            let node = super::make_node(&self.fixed, &self.executor(), &self.acts, &mut state);
            let changed = self.node.load().view.pools != node.view.pools;
            self.node.store(Arc::new(node));
            changed
        };
        if changed {
            for (id, known) in self.store.containers() {
                if known.container.stopped.is_none() && !self.skips(&known.pod) {
                    self.write_container(&id, &known.container, &known.pod, Mode::Enforce);
                }
            }
        }
    }
}

/// The class of that name.
pub(super) fn class_of(name: &str) -> Option<KubeQos> {
    CLASSES.into_iter().find(|class| class_name(*class) == name)
}
