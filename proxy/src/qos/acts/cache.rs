//! Groups of resctrl: those of classes by the policy, those of pods by their annotation, and the tasks of
//! containers in them.
//!
//! A group that this process did not make or fill is not removed: Koordinator's agent uses the same names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use koord_cgroup::executor::Executor;
use koord_cgroup::path::CgroupPath;
use koord_cgroup::resctrl::groups::{LineResult, POD_PREFIX};
use koord_cgroup::resctrl::pod_groups::PodGroups;
use koord_cgroup::resctrl::runtime_class::{RuntimeResource, runtime_class};
use koord_cgroup::resctrl::{
    BandwidthUnit, ClassGroups, ClassShare, GroupName, PodShare, RdtClass, Resctrl, ResctrlError, Schemata,
    pod_schemata,
};
use koord_extension::annotation;
use koord_intercept::record::{ContainerRecord, PodRecord};
use koord_rules::resctrl::ClassGroup;

use super::super::locked;
use super::super::probe::MachineRoots;
use super::{Acted, gone_or_failed};

/// How often a container's tasks are listed again for those that were started meanwhile.
const ROUNDS: usize = 3;

/// Whether the runtime puts the container into a group itself.
pub(in super::super) fn is_the_runtimes(container: &ContainerRecord, pod: &PodRecord) -> bool {
    let name = &container.metadata.name;
    runtime_class(RuntimeResource::Rdt, &pod.annotations, &container.annotations, name).is_some()
}

#[derive(Debug)]
pub(super) struct CacheGroups {
    root: PathBuf,
    cpu_info: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Arc<Resctrl>>,
    pods: PodGroups,
    /// What pods ask for, by UID, with the text of the annotation.
    shares: HashMap<String, PodShare>,
    /// Classes whose groups are looked after here.
    classes: BTreeSet<RdtClass>,
    /// Why classes have no group.
    without: BTreeMap<RdtClass, String>,
}

fn group_name(text: &str) -> Option<GroupName> {
    match text.strip_prefix(POD_PREFIX) {
        Some(uid) => GroupName::pod(uid).ok(),
        None => RdtClass::ALL.into_iter().find(|class| class.as_str() == text).map(GroupName::Class),
    }
}

fn failed(error: &ResctrlError) -> Acted {
    Acted::Failed(chain(error))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

impl CacheGroups {
    pub(super) fn new(machine: &MachineRoots) -> Self {
        Self {
            root: machine.sys_root.join("fs/resctrl"),
            cpu_info: machine.proc_root.join("cpuinfo"),
            state: Mutex::default(),
        }
    }

    /// The file system, opened when it is first needed; groups of pods that are there are taken over.
    fn resctrl(&self, state: &mut State) -> Result<Arc<Resctrl>, ResctrlError> {
        if let Some(open) = &state.open {
            return Ok(open.clone());
        }
        let vendor = std::fs::read_to_string(&self.cpu_info).unwrap_or_default();
        let vendor = vendor
            .lines()
            .find_map(|line| line.strip_prefix("vendor_id"))
            .map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim())
            .unwrap_or_default();
        let resctrl = Arc::new(Resctrl::open(&self.root, BandwidthUnit::of_vendor(vendor))?);
        state.pods.adopt(resctrl.pods()?, Instant::now());
        state.open = Some(resctrl.clone());
        Ok(resctrl)
    }

    /// Makes the groups of classes hold what the policy says, and removes those that it no longer names.
    /// `in_use` are classes that containers were put into, be it by an earlier process. What could not be done is
    /// told in words.
    pub(super) fn classes(&self, groups: &[ClassGroup], in_use: BTreeSet<RdtClass>) -> Vec<String> {
        let mut state = locked(&self.state);
        if groups.is_empty() && state.classes.is_empty() && in_use.is_empty() {
            return Vec::new();
        }
        let resctrl = match self.resctrl(&mut state) {
            Ok(resctrl) => resctrl,
            Err(error) => return vec![chain(&error)],
        };
        let shares: Vec<ClassShare> = groups
            .iter()
            .filter_map(|group| {
                Some(ClassShare {
                    class: RdtClass::of(group.class)?,
                    cache_start: group.cat_start.0,
                    cache_end: group.cat_end.0,
                    bandwidth: Some(group.mba.0),
                })
            })
            .collect();
        let mut messages = Vec::new();
        let wanted: BTreeSet<RdtClass> = shares.iter().map(|share| share.class).collect();
        state.classes.extend(in_use);
        let others: Vec<RdtClass> = state.classes.difference(&wanted).copied().collect();
        // First, so that their classes of service are free.
        for class in others {
            match resctrl.remove(&GroupName::Class(class)) {
                Ok(_) => {
                    state.classes.remove(&class);
                }
                Err(error) => messages.push(chain(&error)),
            }
        }
        state.without.clear();
        for group in ClassGroups::plan(resctrl.info(), resctrl.unlimited(), &shares) {
            let name = GroupName::Class(group.class);
            let of_class = |text: String| format!("class {}: {text}", group.class.as_str());
            messages.extend(group.problems.iter().map(|problem| of_class(problem.to_string())));
            if let Err(error) = resctrl.make(&name) {
                let text = chain(&error);
                messages.push(of_class(text.clone()));
                state.without.insert(group.class, text);
                continue;
            }
            state.classes.insert(group.class);
            messages.extend(apply(&resctrl, &name, &group.schemata).0.into_iter().map(of_class));
        }
        messages
    }

    /// Removes the groups of all classes that are looked after here.
    pub(super) fn remove_classes(&self) -> Vec<String> {
        self.classes(&[], BTreeSet::new())
    }

    /// Notes what a pod asks for, for when its group is made.
    pub(super) fn pod_asks(&self, uid: &str, asks: Option<&annotation::Resctrl>) {
        if let Some(asks) = asks {
            locked(&self.state).shares.insert(uid.to_owned(), PodShare::from(asks));
        }
    }

    /// Makes the group of a pod hold what the pod asks for.
    pub(super) fn make_pod_group(&self, group: &str, now: Instant) -> Acted {
        let Some(GroupName::Pod(uid)) = group_name(group) else {
            return Acted::Failed(format!("{group:?} cannot be the name of a pod's group"));
        };
        let mut state = locked(&self.state);
        let resctrl = match self.resctrl(&mut state) {
            Ok(resctrl) => resctrl,
            Err(error) => return failed(&error),
        };
        let share = state.shares.get(uid.as_str()).cloned().unwrap_or_default();
        let name = GroupName::Pod(uid.clone());
        if !resctrl.folder(&name).is_dir() && !state.pods.may_make(now) {
            return Acted::Failed("no class of service was left lately".to_owned());
        }
        let made = match resctrl.make(&name) {
            Ok(made) => made,
            Err(error) => {
                if matches!(error, ResctrlError::NoClosid { .. }) {
                    state.pods.exhausted(now);
                }
                return failed(&error);
            }
        };
        state.pods.written(uid.as_str(), "", now);
        drop(state);
        let wanted = pod_schemata(resctrl.info(), resctrl.unlimited(), &share);
        let (mut messages, changed) = apply(&resctrl, &name, &wanted.schemata);
        messages.extend(wanted.problems.iter().map(ToString::to_string));
        match messages.is_empty() {
            true => Acted::done(changed || made == koord_cgroup::resctrl::groups::Made::New),
            false => Acted::Failed(messages.join("; ")),
        }
    }

    /// Removes the group of a pod; its tasks fall back into the root group.
    pub(super) fn remove_pod_group(&self, group: &str) -> Acted {
        let Some(name @ GroupName::Pod(_)) = group_name(group) else { return Acted::Gone };
        let mut state = locked(&self.state);
        match self.resctrl(&mut state).and_then(|resctrl| resctrl.remove(&name)) {
            Ok(was_there) => {
                if let GroupName::Pod(uid) = &name {
                    state.pods.removed(uid.as_str());
                    state.shares.remove(uid.as_str());
                }
                Acted::done(was_there)
            }
            Err(error) => failed(&error),
        }
    }

    /// Removes groups of pods that are not among the live ones. What could not be done is told in words.
    pub(super) fn remove_ghosts(&self, live: &BTreeSet<String>, now: Instant) -> Vec<String> {
        let mut state = locked(&self.state);
        let resctrl = match self.resctrl(&mut state) {
            Ok(resctrl) => resctrl,
            Err(error) => return vec![chain(&error)],
        };
        state.shares.retain(|uid, _| live.contains(uid));
        let mut messages = Vec::new();
        for uid in state.pods.left_over(live, now) {
            match GroupName::pod(&uid).and_then(|name| resctrl.remove(&name)) {
                Ok(_) => state.pods.removed(&uid),
                Err(error) => messages.push(chain(&error)),
            }
        }
        messages
    }

    /// Moves all tasks of a container into a group.
    pub(super) fn place(&self, executor: &Executor, path: &CgroupPath, group: &str) -> Acted {
        let Some(name) = group_name(group) else {
            return Acted::Failed(format!("{group:?} is no group"));
        };
        let resctrl = {
            let mut state = locked(&self.state);
            if let GroupName::Class(class) = &name
                && let Some(why) = state.without.get(class)
            {
                return Acted::Failed(why.clone());
            }
            match self.resctrl(&mut state) {
                Ok(resctrl) => resctrl,
                Err(error) => return failed(&error),
            }
        };
        if !resctrl.folder(&name).is_dir() {
            return Acted::Failed(format!("the group {group} is not there"));
        }
        let mut changed = false;
        for round in 0..ROUNDS {
            let tasks = match tasks(executor, path) {
                Ok(tasks) => tasks,
                Err(acted) => return acted,
            };
            if tasks.is_empty() {
                return if round == 0 { Acted::Gone } else { Acted::done(changed) };
            }
            match resctrl.move_tasks(&name, &tasks) {
                Ok(moved) if moved.moved.is_empty() => break,
                Ok(_) => changed = true,
                Err(error) => return failed(&error),
            }
        }
        Acted::done(changed)
    }

    /// Moves the tasks of a container out of the group they were put into, to where every task starts.
    pub(super) fn take_out(&self, executor: &Executor, path: &CgroupPath, group: &str) -> Acted {
        let Some(name) = group_name(group) else { return Acted::done(false) };
        let Ok(resctrl) = self.resctrl(&mut locked(&self.state)) else { return Acted::done(false) };
        // A group that is gone has let its tasks go.
        let Ok(there) = resctrl.tasks(&name) else { return Acted::done(false) };
        let tasks = match tasks(executor, path) {
            Ok(tasks) => tasks,
            Err(acted) => return acted,
        };
        let own = tasks.intersection(&there).copied().collect();
        match resctrl.move_tasks(&GroupName::Root, &own) {
            Ok(moved) => Acted::done(!moved.moved.is_empty()),
            Err(error) => failed(&error),
        }
    }
}

fn tasks(executor: &Executor, path: &CgroupPath) -> Result<BTreeSet<u32>, Acted> {
    match executor.threads(path) {
        Ok(threads) => Ok(threads.into_iter().filter_map(|thread| u32::try_from(thread).ok()).collect()),
        Err(error) => Err(gone_or_failed(&error)),
    }
}

/// Writes the lines that differ; gives what the kernel refused, and whether anything was written.
fn apply(resctrl: &Resctrl, group: &GroupName, wanted: &Schemata) -> (Vec<String>, bool) {
    let mut messages = Vec::new();
    let mut changed = false;
    for (_, result) in resctrl.apply(group, wanted) {
        match result {
            LineResult::Same => {}
            LineResult::Written => changed = true,
            LineResult::Failed(error) => messages.push(chain(&error)),
        }
    }
    (messages, changed)
}
