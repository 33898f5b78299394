//! What rules wish for that is no file of a cgroup: scores of processes, groups of resctrl, cookies of core
//! scheduling, properties of systemd's units, switches of the kernel.
//!
//! Each is done where a file would be written, noted in the ledger as a file would be, and undone where a file
//! would be put back. All of it blocks.

mod cache;
mod cookies;
mod idle;
mod node;
mod sandbox;
mod scores;

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Instant;

use koord_cgroup::executor::Executor;
use koord_cgroup::path::CgroupPath;
use koord_cgroup::resource::Resource;
use koord_cgroup::system_file::{SystemFile, SystemRoots};
use koord_cgroup::systemd::Systemctl;
use koord_cgroup::value::Value as FileValue;
use koord_extension::gates::Gate;
use koord_extension::qos::KubeQos;
use koord_rules::{Field, KernelView, Level as RuleLevel, Value, Wish};

use super::ledger::Entry;
use super::probe::MachineRoots;
use super::{KnownPod, Qos, locked};
pub(super) use cache::is_the_runtimes as is_in_group_of_runtime;
pub(super) use sandbox::{field_of as field_of_sandbox, put as put_sandbox, take as take_sandbox};
pub(super) use scores::found as found_score;

use cache::CacheGroups;
use cookies::{CookieCalls, CookieGroups, KernelCookies};
use idle::IdleUnits;
use node::NodeState;

/// Messages that are kept so as not to say them again.
const SAID_AT_MOST: usize = 1000;

/// How a field is carried out that is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// The score of the container's processes.
    Score,
    /// The group of resctrl.
    CacheGroup,
    /// The cookie of core scheduling.
    Cookie,
    /// `CPUWeight=idle` of a slice.
    IdleUnit,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Acted {
    /// It is as wished.
    Done {
        /// What was found before, where that can be told.
        before: Option<String>,
        /// Whether it was another one.
        changed: bool,
    },
    /// There is nothing to do it to, not yet or no longer.
    Gone,
    /// It could not be done.
    Failed(String),
}

impl Acted {
    fn done(changed: bool) -> Self {
        Acted::Done { before: None, changed }
    }
}

/// What is known of everything that is no file.
#[derive(Debug)]
pub(super) struct Acts {
    idle: IdleUnits,
    cache: CacheGroups,
    cookie_calls: Box<dyn CookieCalls>,
    cookies: Mutex<CookieGroups>,
    node: Mutex<NodeState>,
    said: Mutex<HashSet<String>>,
}

impl Acts {
    pub(super) fn new(machine: &MachineRoots) -> Self {
        Self {
            idle: IdleUnits::new(Box::new(Systemctl::new(&machine.systemctl))),
            cache: CacheGroups::new(machine),
            cookie_calls: Box::new(KernelCookies::default()),
            cookies: Mutex::default(),
            node: Mutex::default(),
            said: Mutex::default(),
        }
    }

    /// Finds out what takes a while to find out, once.
    pub(super) fn probe(&self, executor: &Executor) {
        self.idle.probe(executor.layout());
    }

    /// Completes what is known of the kernel.
    pub(super) fn complete(&self, kernel: &mut KernelView, executor: &Executor, machine: &MachineRoots) {
        kernel.systemd_idle_weight = self.idle.works(executor.layout());
        let switch = SystemFile::SchedCore.read(&roots(machine)).ok().flatten();
        kernel.core_scheduling_switch = switch.map(|value| value != 0);
        kernel.core_scheduling = switch.is_some() || self.cookie_calls.supported();
        if kernel.group_identity && kernel.group_identity_switch.is_none() {
            let negative = |class| {
                let found = executor.read(&executor.layout().qos_dir(class), Resource::CpuBvtWarpNs);
                matches!(found, Ok(FileValue::Integer(identity)) if identity < 0)
            };
            kernel.negative_identity_in_use =
                [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort].into_iter().any(negative);
        }
    }

    /// Notes what a pod asks for in a group of its own.
    pub(super) fn pod_asks(&self, pod: &KnownPod) {
        self.cache.pod_asks(&pod.view.uid, pod.facts.own_resctrl());
    }

    /// Whether a message was not given lately.
    fn is_news(&self, message: &str) -> bool {
        let mut said = locked(&self.said);
        if said.len() >= SAID_AT_MOST {
            said.clear();
        }
        said.insert(message.to_owned())
    }

    #[cfg(test)]
    fn use_units(&mut self, units: impl koord_cgroup::systemd::UnitManager + 'static) {
        self.idle = IdleUnits::new(Box::new(units));
    }

    #[cfg(test)]
    fn use_cookies(&mut self, calls: impl CookieCalls + 'static) {
        self.cookie_calls = Box::new(calls);
    }
}

fn roots(machine: &MachineRoots) -> SystemRoots {
    SystemRoots { proc_root: machine.proc_root.clone(), sys_root: machine.sys_root.clone() }
}

impl Qos {
    /// How a field is carried out; `None` if it is a file.
    pub(super) fn act_of(&self, field: &Field, at: RuleLevel) -> Option<Act> {
        match field {
            Field::OomScoreAdj => Some(Act::Score),
            Field::ResctrlClass => Some(Act::CacheGroup),
            Field::CoreSchedGroup => Some(Act::Cookie),
            // Written into the file, it would keep the kubelet from starting.
            Field::CpuIdle
                if at == RuleLevel::QosDirectory && self.acts.idle.is_systemds(self.executor().layout()) =>
            {
                Some(Act::IdleUnit)
            }
            _ => None,
        }
    }

    /// Carries out a wish. `sent` is what was carried out before.
    pub(super) fn act(
        &self,
        act: Act,
        path: &CgroupPath,
        at: RuleLevel,
        wish: &Wish,
        sent: Option<&str>,
    ) -> Acted {
        let executor = self.executor();
        match (act, &wish.value) {
            (Act::Score, Value::Integer(score)) => {
                scores::set(&executor, path, *score, &self.fixed.machine.proc_root)
            }
            (Act::CacheGroup, Value::Text(group)) if at == RuleLevel::Pod => {
                self.acts.cache.make_pod_group(group, Instant::now())
            }
            (Act::CacheGroup, Value::Text(group)) => self.acts.cache.place(&executor, path, group),
            (Act::Cookie, Value::Text(group)) => self.give_cookie(&executor, path, group),
            (Act::Cookie, Value::Unset) => self.take_cookie(&executor, path, sent.is_some()),
            (Act::IdleUnit, Value::Integer(1)) => self.acts.idle.make(&executor, path),
            (Act::IdleUnit, Value::Integer(_)) => self.acts.idle.clear(&executor, path),
            _ => Acted::Failed(format!("{} cannot be {:?}", wish.field, wish.value)),
        }
    }

    /// Undoes what was carried out for an entry; `None` if it is a file.
    pub(super) fn undo(&self, path: &CgroupPath, at: RuleLevel, entry: &Entry) -> Option<Acted> {
        let act = self.act_of(&Field::from_name(&entry.field)?, at)?;
        let executor = self.executor();
        let sent = entry.sent.as_deref().unwrap_or_default();
        Some(match act {
            Act::Score => match entry.asked.as_ref().and_then(|asked| asked.parse().ok()) {
                Some(asked) => scores::set(&executor, path, asked, &self.fixed.machine.proc_root),
                None => Acted::done(false),
            },
            Act::CacheGroup if at == RuleLevel::Pod => self.acts.cache.remove_pod_group(sent),
            Act::CacheGroup => self.acts.cache.take_out(&executor, path, sent),
            Act::Cookie => self.take_cookie(&executor, path, true),
            Act::IdleUnit => self.acts.idle.clear(&executor, path),
        })
    }

    /// Tells the log once, and not each round, what could not be done.
    pub(super) fn complain(&self, place: &str, field: &str, error: &str) {
        if self.acts.is_news(&format!("{place} {field} {error}")) {
            tracing::warn!(place, field, error, "not carried out");
        }
    }

    fn give_cookie(&self, executor: &Executor, path: &CgroupPath, group: &str) -> Acted {
        let pids = match executor.pids(path) {
            Ok(pids) => pids,
            Err(error) => return gone_or_failed(&error),
        };
        let calls = &*self.acts.cookie_calls;
        locked(&self.acts.cookies).give(calls, path.as_str(), group, &pids)
    }

    fn take_cookie(&self, executor: &Executor, path: &CgroupPath, had_one: bool) -> Acted {
        let is_known = locked(&self.acts.cookies).forget(path.as_str());
        if !is_known && !had_one {
            return Acted::done(false);
        }
        match executor.pids(path) {
            Ok(pids) => cookies::clear(&*self.acts.cookie_calls, &pids),
            Err(error) => gone_or_failed(&error),
        }
    }

    /// Drops what is known of containers and pods that are gone.
    pub(super) fn sweep_acts(&self) {
        let executor = self.executor();
        let calls = &*self.acts.cookie_calls;
        let gone: Vec<String> = locked(&self.acts.cookies)
            .containers()
            .filter(|path| CgroupPath::new(path, executor.layout()).is_ok_and(|path| !executor.exists(&path)))
            .map(str::to_owned)
            .collect();
        let mut cookies = locked(&self.acts.cookies);
        for path in gone {
            cookies.forget(&path);
        }
        cookies.sweep(calls);
        drop(cookies);
        let node = self.node();
        if !node.view.gates.enabled(Gate::Resctrl) || !node.view.kernel.resctrl {
            return;
        }
        let live = self.store.pods().into_iter().map(|(_, pod)| pod.metadata.uid.clone()).collect();
        for message in self.acts.cache.remove_ghosts(&live, Instant::now()) {
            self.complain("resctrl", "group of a pod", &message);
        }
    }
}

fn gone_or_failed(error: &koord_cgroup::CgroupError) -> Acted {
    match error {
        koord_cgroup::CgroupError::Gone { .. } => Acted::Gone,
        error => Acted::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
