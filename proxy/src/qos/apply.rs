//! Carrying wishes out by file, and what the ledger says of it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use koord_admin::Mode;
use koord_cgroup::driver::{CgroupDriver, RuntimeName};
use koord_cgroup::executor::{Outcome, Owner, Write, Written};
use koord_cgroup::path::CgroupPath;
use koord_cgroup::resource::Resource;
use koord_cgroup::value::Value;
use koord_extension::cpuset::CpuSet;
use koord_intercept::record::{ContainerRecord, PodRecord};
use koord_rules::{Field, Level as RuleLevel, Plan, Rule, Wish};

use super::acts::{self, Acted};
use super::adopt::{asked_of_level, disown};
use super::draft::Draft;
use super::ledger::{Entry, KUBELET, Level, Problem};
use super::{Qos, asked};

const BURST: &str = "cpu.cfs_burst_us";

/// How long a call waits for writes into cgroups. The kernel may reclaim memory before it takes a limit; the
/// kubelet must not be kept waiting for that.
const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// Which fields of a plan are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Those that no request has carried.
    ByFile,
    /// All of them, to undo what others wrote.
    All,
}

/// Whether a cgroup was there to be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// It was.
    Yes,
    /// It is not there, not yet or no longer.
    No,
}

/// The file a field is written to and read from; `None` for what is no file of a cgroup.
pub(super) fn resource_of(field: &str) -> Option<Resource> {
    // Lines of files about disks are named with the disk.
    let file = field.split_once(' ').map_or(field, |(file, _)| file);
    let file = match file {
        "io.cost.qos" => "blkio.cost.qos",
        "io.cost.model" => "blkio.cost.model",
        file => file,
    };
    Resource::from_name(file).filter(|resource| resource.is_writable())
}

/// A value of the ledger as the writer takes it.
pub(super) fn value_of(field: &str, text: &str) -> Value {
    if field.starts_with("cpuset.") {
        return CpuSet::parse(text).map_or_else(|_| Value::Text(text.to_owned()), Value::Cpus);
    }
    match text.parse() {
        Ok(number) => Value::Integer(number),
        Err(_) => Value::Text(text.to_owned()),
    }
}

fn value_of_wish(wish: &Wish) -> Option<Value> {
    match &wish.value {
        koord_rules::Value::Integer(number) => Some(Value::Integer(*number)),
        koord_rules::Value::Cpus(cpus) => Some(Value::Cpus(cpus.clone())),
        koord_rules::Value::Text(text) => Some(Value::Text(text.clone())),
        koord_rules::Value::Device(_) | koord_rules::Value::Mount(_) | koord_rules::Value::Unset => None,
    }
}

/// The value that no rule has a part in: what the kubelet asked, or what means nothing.
pub(super) fn value_to_restore(entry: &Entry) -> Option<Value> {
    if let Some(asked) = &entry.asked {
        return Some(value_of(&entry.field, asked));
    }
    let unasked = match &*entry.field {
        // What the kernel gives a group that nobody asked anything for.
        "cpu.cfs_quota_us" | "memory.limit_in_bytes" => Some("-1".to_owned()),
        "cpu.shares" => Some("1024".to_owned()),
        field => neutral_text(field),
    };
    unasked.map(|text| value_of(&entry.field, &text))
}

/// The value of a field that means nobody wants anything.
fn neutral_text(field: &str) -> Option<String> {
    Field::from_name(field)?.neutral().map(|value| value.to_string())
}

/// Whether a rule decides the entry's value, not a hook that was asked after the rules.
fn is_of_rule(entry: &Entry) -> bool {
    Rule::from_name(&entry.owner).is_some()
}

/// All rules write as one: which of them wants a value is in the ledger.
pub(super) fn owner() -> Owner {
    Owner::from("rules")
}

impl Qos {
    /// The cgroup of a pod, if its parent names one that may be written to.
    pub(super) fn pod_path(&self, pod: &PodRecord) -> Option<CgroupPath> {
        CgroupPath::from_cri_parent(&pod.cgroup_parent, self.executor().layout()).ok()
    }

    /// The cgroup of a container.
    pub(super) fn container_path(
        &self,
        id: &str,
        container: &ContainerRecord,
        pod: &PodRecord,
    ) -> Option<CgroupPath> {
        let parent = container.effective_cgroup_parent(pod);
        let parent = CgroupPath::from_cri_parent(parent, self.executor().layout()).ok()?;
        let executor = self.executor();
        // The name tells the runtime, and which one this is, is not known before it was asked.
        let of = |runtime| executor.container(&parent, runtime, id).ok();
        of(RuntimeName::Containerd)
            .filter(|path| executor.exists(path))
            .or_else(|| of(RuntimeName::CriO).filter(|path| executor.exists(path)))
            .or_else(|| of(RuntimeName::Containerd))
    }

    /// Writes the wishes of a plan, and what wishes that are no more leave behind, into one cgroup. Blocks.
    pub(super) fn carry_out(
        &self,
        path: &CgroupPath,
        at: RuleLevel,
        plan: &Plan,
        level: &mut Level,
        which: Which,
    ) -> Reached {
        self.note(plan, level);
        let mut fields: Vec<Cow<'_, str>> = Vec::new();
        let mut writes = Vec::new();
        let mut acts = Vec::new();
        for wish in &plan.wishes {
            let name = wish.field.as_str();
            let Some(entry) = level.entry(&name).filter(|entry| is_of_rule(entry)) else { continue };
            if which == Which::ByFile && !entry.by_file || self.waits(wish.rule) {
                continue;
            }
            if let Some(act) = self.act_of(&wish.field, at) {
                acts.push((name, act, wish));
                continue;
            }
            let (Some(resource), Some(value)) = (resource_of(&name), value_of_wish(wish)) else { continue };
            writes.push(Write { path: path.clone(), resource, value, owner: owner() });
            fields.push(name);
        }
        let released = self.release(path, at, plan, level);
        if writes.is_empty() && acts.is_empty() && !released {
            return if self.executor().exists(path) { Reached::Yes } else { Reached::No };
        }
        let mut reached = Reached::Yes;
        for (field, written) in fields.into_iter().zip(self.write_all(&writes)) {
            match written.result {
                Outcome::Written | Outcome::Same => {
                    let changed = written.result == Outcome::Written;
                    let before = written.before.map(|value| value.to_string());
                    self.record_written(level.entry_mut(&field), before.as_deref(), changed);
                }
                // Written by the executor as soon as the kernel takes it.
                Outcome::Deferred => self.record_written(level.entry_mut(&field), None, false),
                Outcome::Gone => reached = Reached::No,
                Outcome::Unsupported => {
                    note_problem(level, &field, "the kernel has no such file".to_owned());
                }
                Outcome::Failed(error) => {
                    tracing::warn!(cgroup = %path, %field, %error, "value not written");
                    note_problem(level, &field, error.to_string());
                }
            }
        }
        for (field, act, wish) in acts {
            let sent = level.entry(&field).and_then(|entry| entry.sent.clone());
            match self.act(act, path, at, wish, sent.as_deref()) {
                Acted::Done { before, changed } => {
                    let entry = level.entry_mut(&field);
                    self.record_written(entry, before.as_deref(), changed);
                    if wish.value == koord_rules::Value::Unset {
                        entry.sent = None;
                    }
                }
                Acted::Gone => reached = Reached::No,
                Acted::Failed(error) => {
                    self.complain(path.as_str(), &field, &error);
                    note_problem(level, &field, error);
                }
            }
        }
        reached
    }

    /// Takes a plan into the level: what rules wish now, and no value of a hook.
    fn note(&self, plan: &Plan, level: &mut Level) {
        level.problems = plan
            .problems
            .iter()
            .map(|problem| Problem {
                rule: problem.rule.as_str().into(),
                message: problem.message.as_str().into(),
            })
            .collect();
        for wish in &plan.wishes {
            let known = level.entry(&wish.field.as_str()).is_some();
            let entry = level.entry_mut(&wish.field.as_str());
            if entry.is_owned() && !is_of_rule(entry) {
                continue;
            }
            // A field that no request has named before can only be written.
            entry.by_file |= !known;
            entry.owner = wish.rule.as_str().into();
            if *entry.reason != *wish.reason {
                entry.reason = wish.reason.as_str().into();
            }
            let value = wish.value.to_string();
            entry.wished = (entry.sent.as_deref() != Some(&value)).then(|| value.into());
        }
    }

    fn record_written(&self, entry: &mut Entry, before: Option<&str>, changed: bool) {
        let wished = entry.wished.take();
        match (&wished, changed) {
            // Ours before, and somebody has written since. What the kubelet writes is what it asks from now on.
            (None, true) => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                if entry.by_file {
                    entry.asked = before.map(Into::into);
                }
                tracing::debug!(field = %entry.field, found = before, sent = entry.sent.as_deref(), "value written again");
            }
            // The first time: what is there is what the kubelet asked, unless it is ours from an earlier life.
            (Some(wished), _) if entry.by_file && entry.sent.is_none() => {
                let neutral = neutral_text(&entry.field);
                if changed || neutral.is_none() || neutral.as_deref() == Some(&**wished) {
                    entry.asked = before.map(Into::into);
                }
            }
            _ => {}
        }
        if wished.is_some() {
            entry.sent = wished;
        }
    }

    /// Writes, and answers for each write. On v1 the limit of memory and swap together, which runtimes set to the
    /// memory limit, rises along with it: the kernel refuses a memory limit above it.
    pub(super) fn write_all(&self, writes: &[Write]) -> Vec<Written> {
        let executor = self.executor();
        let mut all = writes.to_vec();
        for write in writes.iter().filter(|write| write.resource == Resource::MemoryLimit) {
            let (Value::Integer(limit), Ok(Value::Integer(with_swap))) =
                (&write.value, executor.read(&write.path, Resource::MemorySwapLimit))
            else {
                continue;
            };
            if with_swap >= 0 && (*limit < 0 || with_swap < *limit) {
                all.push(Write { resource: Resource::MemorySwapLimit, ..write.clone() });
            }
        }
        let mut written = executor.apply(&all);
        written.truncate(writes.len());
        written
    }

    /// Puts back what rules no longer wish. True if anything was to be put back.
    fn release(&self, path: &CgroupPath, at: RuleLevel, plan: &Plan, level: &mut Level) -> bool {
        let gone: Vec<usize> = level
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| {
                is_of_rule(entry) && !plan.wishes.iter().any(|wish| wish.field.as_str() == *entry.field)
            })
            .map(|(place, _)| place)
            .collect();
        if gone.is_empty() {
            return false;
        }
        let mut writes = Vec::new();
        for place in &gone {
            let entry = &level.entries[*place];
            if entry.sent.is_none() || entry.sent == entry.asked {
                continue;
            }
            if let Some(undone) = self.undo(path, at, entry) {
                if let Acted::Failed(error) = undone {
                    self.complain(path.as_str(), &entry.field, &error);
                }
                continue;
            }
            if let (Some(resource), Some(value)) = (resource_of(&entry.field), value_to_restore(entry)) {
                writes.push(Write { path: path.clone(), resource, value, owner: owner() });
            }
        }
        for (write, written) in writes.iter().zip(self.write_all(&writes)) {
            // What was put back is not watched any longer.
            if let Outcome::Failed(error) = written.result {
                tracing::warn!(cgroup = %path, resource = %write.resource, %error, "value not put back");
            }
        }
        for place in gone.into_iter().rev() {
            let entry = &mut level.entries[place];
            if entry.asked.is_some() {
                entry.owner = KUBELET.into();
                entry.reason = "as asked".into();
                entry.sent.clone_from(&entry.asked);
                entry.wished = None;
            } else {
                level.entries.remove(place);
            }
        }
        true
    }

    /// Before a sandbox is asked for: writes what the rules wish for the pod's cgroup, if it is there, and moves
    /// others off CPUs that the pod is to have for itself.
    pub async fn prepare_pod(self: &Arc<Self>, pod: Arc<PodRecord>, draft: &mut Draft, mode: Mode) {
        self.learn_driver(&pod.cgroup_parent);
        let mut level = std::mem::take(draft.level_mut());
        let qos = self.clone();
        let work = move || {
            let held = qos.enforcing();
            // Stepped aside since the call began.
            if mode == Mode::Enforce && held.is_none() {
                return level;
            }
            if mode == Mode::Enforce {
                qos.claim_cpus(&pod);
            }
            qos.write_pod(&pod, &mut level, mode);
            level
        };
        match tokio::time::timeout(WRITE_LIMIT, self.async_runtime.spawn_blocking(work)).await {
            Ok(Ok(level)) => *draft.level_mut() = level,
            Ok(Err(error)) => tracing::error!(%error, "writing a pod's cgroup ended in a panic"),
            Err(_elapsed) => tracing::error!("writing a pod's cgroup takes too long, its call goes on"),
        }
    }

    /// Decides about a pod and, in the mode `enforce`, writes. Blocks.
    pub(super) fn write_pod(&self, pod: &PodRecord, level: &mut Level, mode: Mode) -> Reached {
        let Some(path) = self.pod_path(pod) else {
            // Pods outside the kubelet's tree are none of ours.
            return Reached::No;
        };
        let found = self.find_asked(&path, level);
        let node = self.node();
        let asked = asked_of_level(level);
        let known = super::facts_of(pod, asked);
        let plan = koord_rules::pod_with(&node.view, &known.view, &known.facts);
        disown(level, &plan, |field| found.contains(&field));
        if mode == Mode::Enforce {
            self.acts.pod_asks(&known);
            self.carry_out(&path, RuleLevel::Pod, &plan, level, Which::All)
        } else {
            self.note(&plan, level);
            Reached::Yes
        }
    }

    /// After the sandbox runs: writes what waited for the pod's cgroup.
    pub async fn settle_pod(self: &Arc<Self>, pod_id: &str) {
        let Some(pod) = self.store.pod(pod_id).filter(|pod| !self.skips(pod)) else { return };
        let (qos, id) = (self.clone(), pod_id.to_owned());
        self.blocking(move || {
            let Some(_held) = qos.enforcing() else { return };
            let mut level = qos.ledger().pod(&id).as_deref().cloned().unwrap_or_default();
            let mut sandbox = acts::take_sandbox(&mut level);
            let waits = level.entries.iter().any(|entry| entry.wished.is_some());
            let of_systemd = qos.executor().layout().driver() == CgroupDriver::Systemd;
            if let (true, Some(path)) = (of_systemd, qos.pod_path(&pod)) {
                qos.executor().expire(&path);
            }
            if waits || of_systemd || level.entries.is_empty() {
                qos.write_pod(&pod, &mut level, Mode::Enforce);
            }
            qos.write_sandbox(&id, &pod, &mut sandbox);
            acts::put_sandbox(&mut level, sandbox);
            qos.ledger().put_pod(&id, level);
        })
        .await;
    }

    /// Whether a container has a burst that keeps the kernel from taking a quota: it wants the burst not to
    /// exceed it.
    pub fn has_burst_above(&self, container_id: &str, quota: i64) -> bool {
        let burst = |level: Arc<Level>| level.entry(BURST)?.sent.as_ref()?.parse::<i64>().ok();
        quota > 0 && self.ledger().container(container_id).and_then(burst).is_some_and(|burst| burst > quota)
    }

    /// Lowers a container's burst before the runtime lowers its quota. The round that follows an update gives
    /// it the burst that belongs to the new quota.
    pub async fn make_room_for_quota(self: &Arc<Self>, container_id: &str, quota: i64) {
        let Some(known) = self.store.container_and_pod(container_id) else { return };
        let (qos, id) = (self.clone(), container_id.to_owned());
        self.blocking(move || {
            let Some(_held) = qos.enforcing() else { return };
            let Some(path) = qos.container_path(&id, &known.container, &known.pod) else { return };
            let write =
                Write { path, resource: Resource::CpuBurst, value: Value::Integer(quota), owner: owner() };
            for written in qos.executor().apply(&[write]) {
                if let Outcome::Failed(error) = written.result {
                    tracing::warn!(container = id, %error, "burst not lowered before the quota");
                }
            }
            let Some(level) = qos.ledger().container(&id) else { return };
            let mut level = (*level).clone();
            level.entry_mut(BURST).sent = Some(quota.to_string().into());
            qos.ledger().put_container(&id, level);
        })
        .await;
    }

    /// Whether something waits to be written into a container's cgroup.
    pub fn has_files(&self, container_id: &str) -> bool {
        let Some(level) = self.ledger().container(container_id) else { return false };
        level.entries.iter().any(|entry| entry.by_file && entry.wished.is_some())
            || self.executor().layout().driver() == CgroupDriver::Systemd
            || self.executor().layout().version() == koord_cgroup::version::CgroupVersion::V2
                && level.entries.iter().any(|entry| entry.is_owned())
    }

    /// After a container was started: writes what no request carries and checks the rest.
    pub async fn settle_container(self: &Arc<Self>, container_id: &str) {
        let Some(known) = self.store.container_and_pod(container_id) else { return };
        self.learn_driver(&known.pod.cgroup_parent);
        let (qos, id) = (self.clone(), container_id.to_owned());
        self.blocking(move || {
            let Some(_held) = qos.enforcing() else { return };
            if qos.learn_conversion(&id, &known.container, &known.pod) {
                qos.check_all();
            }
            qos.write_container(&id, &known.container, &known.pod, Mode::Enforce);
            qos.follow_systemd(&known.container.pod_id, &known.pod);
        })
        .await;
    }

    /// systemd writes its own view of a pod's slice when the first scope starts in it: what was written into it
    /// before is written again.
    fn follow_systemd(&self, pod_id: &str, pod: &PodRecord) {
        if self.executor().layout().driver() != CgroupDriver::Systemd {
            return;
        }
        if let (Some(path), Some(level)) = (self.pod_path(pod), self.ledger().pod(pod_id)) {
            self.executor().expire(&path);
            let mut level = (*level).clone();
            let sandbox = acts::take_sandbox(&mut level);
            self.write_pod(pod, &mut level, Mode::Enforce);
            acts::put_sandbox(&mut level, sandbox);
            self.ledger().put_pod(pod_id, level);
        }
    }

    /// Learns from the containers that run already, before anything is written: a weight that this proxy has
    /// written teaches nothing.
    pub(super) fn learn_from_running(&self) {
        for (id, known) in self.store.containers() {
            if known.container.stopped.is_none() {
                self.learn_conversion(&id, &known.container, &known.pod);
            }
        }
    }

    /// Sees from a container that the runtime has made how it turns shares into a weight; true if that is not
    /// what was taken for granted. To be asked before the container's first write: afterwards nothing is seen.
    fn learn_conversion(&self, id: &str, container: &ContainerRecord, pod: &PodRecord) -> bool {
        if self.executor().layout().version() == koord_cgroup::version::CgroupVersion::V1 {
            return false;
        }
        let before = self.executor().conversion();
        let sent = container.resources.as_ref().map(|resources| resources.cpu_shares);
        if let (Some(shares), Some(path)) =
            (sent.filter(|shares| *shares > 0), self.container_path(id, container, pod))
        {
            self.executor().learn_conversion(&path, shares);
        }
        self.executor().conversion() != before
    }

    /// Decides about a container that exists and, in the mode `enforce`, writes. Blocks.
    pub(super) fn write_container(
        &self,
        id: &str,
        container: &ContainerRecord,
        pod: &Arc<PodRecord>,
        mode: Mode,
    ) -> Reached {
        let Some(path) = self.container_path(id, container, pod) else { return Reached::No };
        let earlier = self.ledger().container(id);
        let mut level = match earlier.as_deref() {
            Some(level) => level.clone(),
            // Created before this proxy was there: what the runtime was told is what was asked.
            None => {
                let asked = container.resources.clone().unwrap_or_default();
                let mut level = Draft::of_container(&container.metadata.name, asked).finish(false, None);
                if container.resources.is_none() {
                    // A score of 0 would be taken for what the kubelet asked.
                    level.entries.clear();
                }
                level
            }
        };
        let is_new = earlier.is_none();
        let node = self.node();
        let known = self.facts(Some(&container.pod_id), pod);
        let asked = asked(level.asked.as_ref());
        let view = koord_rules::ContainerView {
            name: &container.metadata.name,
            asked: &asked,
            memory_request: None,
            is_sandbox: false,
        };
        let mut plan = koord_rules::container_with(&node.view, &known.view, &known.facts, &view);
        if acts::is_in_group_of_runtime(container, pod) {
            plan.wishes.retain(|wish| wish.field != Field::ResctrlClass);
        }
        // All CPUs mean nothing to a container that may use all of them anyway.
        if asked.cpuset_cpus.is_none() && level.entry("cpuset.cpus").is_none() {
            let all = koord_rules::Value::Cpus(node.all_cpus.clone());
            plan.wishes.retain(|wish| wish.field != Field::CpusetCpus || wish.value != all);
        }
        disown(&mut level, &plan, |_| is_new);
        let reached = if mode == Mode::Enforce {
            let has_shares = plan.wishes.iter().any(|wish| wish.field == Field::CpuShares);
            // A round may be here before the container is started.
            if has_shares && self.learn_conversion(id, container, pod) {
                self.check_all();
            }
            self.carry_out(&path, RuleLevel::Container, &plan, &mut level, Which::All)
        } else {
            self.note(&plan, &mut level);
            Reached::Yes
        };
        self.ledger().put_container(id, level);
        reached
    }

    /// Makes directories that rules want mounted: new, empty, and with the mode they name.
    pub async fn make_directories(&self, directories: Vec<(String, u32)>) {
        self.blocking(move || {
            for (directory, mode) in directories {
                if let Err(error) = make_directory(&directory, mode) {
                    tracing::warn!(directory, %error, "directory not made");
                }
            }
        })
        .await;
    }

    async fn blocking(&self, work: impl FnOnce() + Send + 'static) {
        match tokio::time::timeout(WRITE_LIMIT, self.async_runtime.spawn_blocking(work)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "writing a cgroup ended in a panic"),
            Err(_elapsed) => tracing::error!("writing a cgroup takes too long, its call goes on"),
        }
    }
}

fn note_problem(level: &mut Level, field: &str, what: String) {
    let rule = level.entry(field).map(|entry| entry.owner.clone()).unwrap_or_default();
    level.problems.push(Problem { rule: (&*rule).into(), message: format!("{field}: {what}").into() });
}

fn make_directory(directory: &str, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let path = std::path::Path::new(directory);
    // Names of pods and containers are in the path.
    let plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    if !path.is_absolute() || !plain || path.components().count() < 4 {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "not the path of a directory for one container",
        ));
    }
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
