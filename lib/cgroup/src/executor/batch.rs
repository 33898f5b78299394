//! One batch: look, order, write, read back.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use koord_extension::cpuset::CpuSet;
use rustix::io::Errno;

use super::order::{self, Change, Step};
use super::state::FileState;
use super::{Executor, Outcome, OverUse, Owner, Write, WriteEvent, Written};
use crate::error::{CgroupError, Operation};
use crate::files::{Directory, Identity};
use crate::layout::Controller;
use crate::path::CgroupPath;
use crate::resource::{FileText, Resource, ResourceFile, number_of};
use crate::value::{UNLIMITED, Value};
use crate::version::CgroupVersion;

mod companions;

/// Waits before what the kernel called busy is tried again.
const BUSY_WAITS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(4)];

/// A wish that needs writing.
struct Pending<'a> {
    /// Which wish of the batch.
    index: usize,
    write: &'a Write,
    /// The value with "as the parent" put into CPUs where the kernel needs that.
    wanted: Value,
    file: ResourceFile,
    before: Option<Value>,
    /// The file's text when it was looked at.
    text: Option<String>,
    result: Option<Result<(), Errno>>,
    outcome: Option<Outcome>,
}

struct Batch<'a> {
    executor: &'a Executor,
    now: Instant,
    over_use: OverUse,
    /// Owners of this batch's files that have none yet.
    claimed: HashMap<(CgroupPath, Resource, Option<String>), Owner>,
    /// Directories looked at without opening them.
    identities: HashMap<(Controller, CgroupPath), Result<Identity, Errno>>,
    open: HashMap<(Controller, CgroupPath), Result<Box<dyn Directory>, Errno>>,
    writes: u64,
    reads: u64,
}

pub(super) fn apply(executor: &Executor, writes: &[Write], over_use: OverUse) -> Vec<Written> {
    let now = executor.now();
    let mut batch = Batch {
        executor,
        now,
        over_use,
        claimed: HashMap::new(),
        identities: HashMap::new(),
        open: HashMap::new(),
        writes: 0,
        reads: 0,
    };
    let last = last_wishes(executor, writes);
    let mut answers: Vec<Option<Written>> = vec![None; writes.len()];
    let mut pending = Vec::new();
    for (index, write) in writes.iter().enumerate() {
        if last.get(index) != Some(&index) {
            continue;
        }
        match batch.look(index, write) {
            Looked::Answer(written) => {
                if let Some(answer) = answers.get_mut(index) {
                    *answer = Some(written);
                }
            }
            Looked::Pending(item) => pending.push(*item),
        }
    }
    batch.run(&mut pending);
    for item in pending {
        let index = item.index;
        let written = batch.conclude(item);
        if let Some(answer) = answers.get_mut(index) {
            *answer = Some(written);
        }
    }
    let mut state = executor.lock_state();
    state.counts.kernel_writes += batch.writes;
    state.counts.kernel_reads += batch.reads;
    drop(state);
    // Every wish that is the last for its file has its answer; the others get the last one's.
    let answer_of = |index: &usize| answers.get(*index).cloned().flatten();
    last.iter()
        .map(|index| {
            answer_of(index).unwrap_or(Written { before: None, found: None, result: Outcome::Unsupported })
        })
        .collect()
}

/// For each wish the last one of the batch for the same file. A wish of another owner stands for itself.
fn last_wishes(executor: &Executor, writes: &[Write]) -> Vec<usize> {
    let mut last = HashMap::new();
    let keys: Vec<_> = writes
        .iter()
        .map(|write| {
            (&write.path, write.resource, batch_text(executor, write, &write.value).key(), &write.owner)
        })
        .collect();
    for (index, key) in keys.iter().enumerate() {
        last.insert(key, index);
    }
    keys.iter()
        .enumerate()
        .map(|(index, key)| match writes.get(index) {
            // Each task and each reclaim is an act of its own.
            Some(write) if write.resource.is_act() => index,
            _ => last.get(key).copied().unwrap_or(index),
        })
        .collect()
}

fn batch_text<'a>(executor: &Executor, write: &Write, wanted: &'a Value) -> FileText<'a> {
    FileText {
        resource: write.resource,
        version: executor.version(),
        conversion: executor.conversion(),
        page_size: executor.layout().page_size(),
        wanted,
    }
}

enum Looked<'a> {
    Answer(Written),
    Pending(Box<Pending<'a>>),
}

impl<'a> Batch<'a> {
    fn directory(&mut self, controller: Controller, path: &CgroupPath) -> Result<&dyn Directory, Errno> {
        let executor = self.executor;
        let opened =
            self.open.entry((controller, path.clone())).or_insert_with(|| executor.open(controller, path));
        opened.as_deref().map_err(|error| *error)
    }

    fn read(&mut self, controller: Controller, path: &CgroupPath, file: &str) -> Result<String, Errno> {
        self.reads += 1;
        self.directory(controller, path)?.read(file)
    }

    fn write(
        &mut self,
        controller: Controller,
        path: &CgroupPath,
        file: &str,
        text: &str,
    ) -> Result<(), Errno> {
        self.writes += 1;
        self.directory(controller, path)?.write(file, text)
    }

    /// Answers what needs no write.
    fn look(&mut self, index: usize, write: &'a Write) -> Looked<'a> {
        match self.look_closely(index, write) {
            Ok(looked) => looked,
            Err(error) => Looked::Answer(self.settle(write, None, None, refusal(error))),
        }
    }

    fn look_closely(&mut self, index: usize, write: &'a Write) -> Result<Looked<'a>, CgroupError> {
        let (executor, version) = (self.executor, self.executor.version());
        let resource = write.resource;
        check_path(executor, write)?;
        let unsupported = || CgroupError::Unsupported { path: write.path.to_string(), resource };
        let file = resource.file(version).ok_or_else(unsupported)?;
        resource.validate(&write.value, version)?;
        let key = batch_text(executor, write, &write.value).key();
        if let Some(answer) = self.known(write, file, key.as_deref()) {
            return Ok(Looked::Answer(answer));
        }
        let identity = match self.directory(file.controller, &write.path).and_then(Directory::identity) {
            Ok(identity) => identity,
            Err(error) => {
                let failed = executor.failed(Operation::Open, &write.path, resource, None, error);
                if let CgroupError::Gone { .. } = failed {
                    // A controller whose hierarchy is missing says nothing about the group.
                    if file.controller != Controller::Cpu && executor.exists(&write.path) {
                        return Err(unsupported());
                    }
                    executor.lock_state().drop_group(&write.path);
                }
                return Err(failed);
            }
        };
        self.claim(write, file, key.as_deref(), identity)?;
        if resource.is_act() {
            return Ok(Looked::Pending(Box::new(Pending::new(index, write, write.value.clone(), file))));
        }
        let text = match self.read(file.controller, &write.path, file.name) {
            Ok(text) => Some(text),
            Err(error @ (Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP)) => {
                return Err(self.missing(write, file, error));
            }
            // A file that cannot be read may still be written.
            Err(_) => None,
        };
        let wanted = self.resolve(write, file)?;
        let compare = batch_text(executor, write, &wanted);
        let before = text.as_deref().and_then(|text| compare.current(text));
        if text.as_deref().is_some_and(|text| compare.is_same(text)) {
            self.remember(write, before.clone(), Some(write.value.clone()), Some(self.now), false);
            let found = self.in_effect(write, file, &wanted);
            return Ok(Looked::Answer(self.settle(write, before, found, Outcome::Same)));
        }
        self.refuse_kill(write, &wanted)?;
        let mut pending = Pending::new(index, write, wanted, file);
        pending.before = before;
        pending.text = text;
        Ok(Looked::Pending(Box::new(pending)))
    }

    /// The answer to a wish that was known to hold not long ago, if its directory is still the same.
    fn known(&mut self, write: &Write, file: ResourceFile, key: Option<&str>) -> Option<Written> {
        let executor = self.executor;
        let (remembered, answer) = {
            let state = executor.lock_state();
            let group = state.group(&write.path)?;
            let known = state.fresh(&write.path, write.resource, key, &write.value, self.now)?;
            if known.owner != write.owner {
                return None;
            }
            let identity = group.identities.iter().find(|(controller, _)| *controller == file.controller)?.1;
            let result = if known.is_deferred { Outcome::Deferred } else { Outcome::Same };
            (identity, Written { before: known.found.clone(), found: known.found.clone(), result })
        };
        let identity = *self.identities.entry((file.controller, write.path.clone())).or_insert_with(|| {
            executor.shared.files.identity(&executor.layout().directory(file.controller), write.path.as_str())
        });
        if identity != Ok(remembered) {
            return None;
        }
        executor.lock_state().counts.fresh += 1;
        Some(answer)
    }

    /// Sees to it that the file is nobody else's.
    fn claim(
        &mut self,
        write: &Write,
        file: ResourceFile,
        key: Option<&str>,
        identity: Identity,
    ) -> Result<(), CgroupError> {
        let executor = self.executor;
        let mut state = executor.lock_state();
        state.identify(&write.path, file.controller, identity);
        let known = state.group(&write.path).and_then(|group| group.file(write.resource, key));
        let claim = (write.path.clone(), write.resource, key.map(str::to_owned));
        let holder = match known {
            Some(known) => &known.owner,
            // Each task and each reclaim is an act of its own.
            None if write.resource.is_act() => return Ok(()),
            None => self.claimed.entry(claim).or_insert_with(|| write.owner.clone()),
        };
        if *holder == write.owner {
            return Ok(());
        }
        let holder = holder.clone();
        state.counts.conflicts += 1;
        drop(state);
        if let Some(observer) = &executor.shared.observer {
            observer.conflict(write, &holder);
        }
        Err(CgroupError::Owned { path: write.path.to_string(), resource: write.resource, owner: holder })
    }

    /// A file or a group that is not there: which of the two.
    fn missing(&mut self, write: &Write, file: ResourceFile, error: Errno) -> CgroupError {
        let executor = self.executor;
        let is_there = error != Errno::NODEV && executor.open(file.controller, &write.path).is_ok();
        if is_there {
            CgroupError::Unsupported { path: write.path.to_string(), resource: write.resource }
        } else {
            executor.lock_state().drop_group(&write.path);
            CgroupError::Gone { path: write.path.to_string() }
        }
    }

    /// A set of CPUs cannot be emptied while there are tasks: "as the parent" is the parent's set then. A group of
    /// version 2 that has none of its own already follows its parent.
    fn resolve(&mut self, write: &Write, file: ResourceFile) -> Result<Value, CgroupError> {
        let is_empty = write.value.cpus().is_some_and(CpuSet::is_empty);
        if !is_empty {
            return Ok(write.value.clone());
        }
        let parent = write.path.parent().unwrap_or_else(CgroupPath::root);
        let mut name = file.name;
        if self.executor.version() == CgroupVersion::V2 {
            let own = self.read(file.controller, &write.path, file.name).unwrap_or_default();
            let events = self.read(file.controller, &write.path, "cgroup.events").unwrap_or_default();
            let has_tasks = events.lines().any(|line| line == "populated 1");
            match file.effective {
                Some(effective) if !own.trim().is_empty() && has_tasks => name = effective,
                _ => return Ok(write.value.clone()),
            }
        }
        let text = self
            .read(file.controller, &parent, name)
            .map_err(|error| self.executor.failed(Operation::Read, &parent, write.resource, None, error))?;
        write.resource.parse_kernel_text(&text, self.executor.version(), self.executor.conversion())
    }

    /// A limit below what is in use is refused by version 1. Version 2 takes it and kills; here it refuses as well, and
    /// [`crate::memory_limit`] goes there by steps.
    fn refuse_kill(&mut self, write: &Write, wanted: &Value) -> Result<(), CgroupError> {
        let Some(limit) = wanted.integer() else { return Ok(()) };
        if write.resource != Resource::MemoryLimit
            || self.over_use == OverUse::Kill
            || limit == UNLIMITED
            || self.executor.version() == CgroupVersion::V1
        {
            return Ok(());
        }
        let used = self.read(Controller::Memory, &write.path, "memory.current").ok();
        match used.and_then(|text| number_of(text.trim())) {
            Some(usage) if usage > limit => {
                Err(CgroupError::Busy { path: write.path.to_string(), wanted: limit, usage })
            }
            _ => Ok(()),
        }
    }

    /// Writes what is pending: in order, then what the kernel refused once more from the back, because another order may
    /// do, then what was busy after a wait.
    fn run(&mut self, pending: &mut [Pending<'_>]) {
        let changes: Vec<Change> = pending
            .iter()
            .map(|item| Change {
                path: item.write.path.clone(),
                resource: item.write.resource,
                before: item.before.clone(),
                wanted: item.wanted.clone(),
            })
            .collect();
        let mut steps = order::order(&changes);
        for round in 0..=1 + BUSY_WAITS.len() {
            let mut failed = Vec::new();
            for step in &steps {
                let Some(item) = pending.get_mut(step.change) else { continue };
                let result = self.step(item, step, &changes);
                if step.is_interim {
                    // The last step tells how it went.
                    continue;
                }
                item.result = Some(result);
                if is_worth_another_try(item.write.resource, result) {
                    failed.push(step.clone());
                }
            }
            let others_may_have_helped = round == 0 && changes.len() > 1;
            let is_busy = failed.iter().any(|step| {
                pending.get(step.change).is_some_and(|item| item.result == Some(Err(Errno::BUSY)))
            });
            if failed.is_empty() || !(others_may_have_helped || is_busy) {
                break;
            }
            if let Some(wait) = round.checked_sub(1).and_then(|wait| BUSY_WAITS.get(wait)) {
                thread::sleep(*wait);
            }
            failed.reverse();
            steps = failed;
        }
    }

    fn step(&mut self, item: &mut Pending<'_>, step: &Step, changes: &[Change]) -> Result<(), Errno> {
        let (executor, version) = (self.executor, self.executor.version());
        let resource = item.write.resource;
        let path = &item.write.path;
        // Checked before; only the union of two checked sets is new.
        let Ok(text) = resource.to_kernel_text(&step.value, version, executor.conversion()) else {
            return Err(Errno::INVAL);
        };
        let text = batch_text(executor, item.write, &step.value).with_quota_of(text, item.text.as_deref());
        if resource == Resource::CpuIdle && step.value == Value::Integer(1) {
            self.note_shares(path);
        }
        let result = self.write(item.file.controller, path, item.file.name, &text);
        match (resource, result) {
            (Resource::CpuShares, Err(Errno::INVAL)) if self.is_idle(path) => {
                item.outcome = Some(Outcome::Deferred);
                Ok(())
            }
            (Resource::CpuShares, Ok(())) => {
                item.outcome = None;
                Ok(())
            }
            (Resource::CpuQuota, Err(Errno::INVAL)) => {
                match step.value.integer().filter(|quota| *quota != UNLIMITED) {
                    Some(quota) if self.lower_burst(path, quota) => {
                        self.write(item.file.controller, path, item.file.name, &text)
                    }
                    _ => Err(Errno::INVAL),
                }
            }
            (Resource::CpuIdle, Ok(())) if step.value == Value::Integer(0) => {
                let has_shares = changes
                    .iter()
                    .any(|change| change.path == *path && change.resource == Resource::CpuShares);
                if has_shares { Ok(()) } else { self.restore_shares(path) }
            }
            (_, result) => result,
        }
    }

    /// Reads back what was written and answers.
    fn conclude(&mut self, item: Pending<'a>) -> Written {
        let Pending { write, wanted, file, before, result, outcome, .. } = item;
        let executor = self.executor;
        if let Some(outcome) = outcome {
            self.remember(write, before.clone(), before.clone(), Some(self.now), true);
            return self.settle(write, before.clone(), before, outcome);
        }
        if let Err(error) = result.unwrap_or(Err(Errno::INVAL)) {
            let text = write.resource.to_kernel_text(&wanted, executor.version(), executor.conversion());
            let error = match error {
                Errno::NOENT | Errno::NODEV => self.missing(write, file, error),
                Errno::BUSY if write.resource == Resource::MemoryLimit => CgroupError::Busy {
                    path: write.path.to_string(),
                    wanted: wanted.integer().unwrap_or(UNLIMITED),
                    usage: super::usage(executor, &write.path).map_or(0, |usage| usage.0),
                },
                error => {
                    let text = text.as_deref().ok();
                    executor.failed(Operation::Write, &write.path, write.resource, text, error)
                }
            };
            if !matches!(error, CgroupError::Gone { .. } | CgroupError::Unsupported { .. }) {
                // The owner keeps the file: the next try is its own.
                self.remember(write, before.clone(), before.clone(), None, false);
            }
            return self.settle(write, before.clone(), before, refusal(error));
        }
        if write.resource.is_act() {
            return self.settle(write, None, None, Outcome::Written);
        }
        let text = match self.read(file.controller, &write.path, file.name) {
            Ok(text) => text,
            Err(error @ (Errno::NOENT | Errno::NODEV)) => {
                let error = self.missing(write, file, error);
                return self.settle(write, before, None, refusal(error));
            }
            // Taken, and not to be read.
            Err(_) => {
                self.remember(write, before.clone(), None, Some(self.now), false);
                return self.settle(write, before, None, Outcome::Written);
            }
        };
        let compare = batch_text(executor, write, &wanted);
        let written = write.resource.to_kernel_text(&wanted, executor.version(), executor.conversion());
        let is_kept =
            compare.is_same(&text) || written.as_deref().is_ok_and(|written| written.trim() == text.trim());
        if !is_kept && write.resource == Resource::CpuShares && self.is_idle(&write.path) {
            // The same batch made the group idle after its shares were written.
            self.remember(write, before.clone(), before.clone(), Some(self.now), true);
            return self.settle(write, before.clone(), before, Outcome::Deferred);
        }
        if !is_kept {
            let found = compare.current(&text);
            self.remember(write, before.clone(), found.clone(), None, false);
            let name = format!("{} of {}", file.name, write.path);
            let error = CgroupError::NotKept {
                place: name,
                wanted: written.map_or_else(|_| wanted.to_string(), |text| text.trim().to_owned()),
                found: crate::error::shown(&text),
            };
            return self.settle(write, before, found, Outcome::Failed(error));
        }
        self.remember(write, before.clone(), Some(write.value.clone()), Some(self.now), false);
        let found = self.in_effect(write, file, &wanted);
        self.settle(write, before, found, Outcome::Written)
    }

    /// What a file that holds the wanted value means: of CPUs on version 2 those that are in effect.
    fn in_effect(&mut self, write: &Write, file: ResourceFile, wanted: &Value) -> Option<Value> {
        let effective = file.effective.and_then(|name| {
            let text = self.read(file.controller, &write.path, name).ok()?;
            CpuSet::parse(text.trim()).ok().map(Value::Cpus)
        });
        Some(effective.unwrap_or_else(|| wanted.clone()))
    }

    fn remember(
        &self,
        write: &Write,
        before: Option<Value>,
        found: Option<Value>,
        verified: Option<Instant>,
        is_deferred: bool,
    ) {
        let key = batch_text(self.executor, write, &write.value).key();
        let controller = write.resource.file(self.executor.version()).map(|file| file.controller);
        let identity = controller.and_then(|controller| {
            let opened = self.open.get(&(controller, write.path.clone()))?.as_ref().ok()?;
            Some((controller, opened.identity().ok()?))
        });
        let mut state = self.executor.lock_state();
        let group = state.group_mut(&write.path);
        if let Some((controller, identity)) = identity
            && !group.identities.iter().any(|(known, _)| *known == controller)
        {
            group.identities.push((controller, identity));
        }
        match group.file_mut(write.resource, key.as_deref()) {
            Some(file) => {
                file.wanted = write.value.clone();
                file.found = found;
                file.verified = verified;
                file.is_deferred = is_deferred;
            }
            None => group.files.push(FileState {
                resource: write.resource,
                key: key.map(String::into_boxed_str),
                owner: Owner::clone(&write.owner),
                wanted: write.value.clone(),
                before,
                found,
                verified,
                is_deferred,
            }),
        }
    }

    fn settle(&self, write: &Write, before: Option<Value>, found: Option<Value>, result: Outcome) -> Written {
        self.executor.lock_state().counts.count(&result);
        let written = Written { before, found, result };
        if let Some(observer) = &self.executor.shared.observer {
            observer.handled(&WriteEvent { write, written: &written });
        }
        written
    }
}

impl<'a> Pending<'a> {
    fn new(index: usize, write: &'a Write, wanted: Value, file: ResourceFile) -> Pending<'a> {
        Pending { index, write, wanted, file, before: None, text: None, result: None, outcome: None }
    }
}

fn check_path(executor: &Executor, write: &Write) -> Result<(), CgroupError> {
    let refused = |problem| CgroupError::Path { text: write.path.to_string(), problem };
    match (write.path.is_root(), write.resource.is_root_only()) {
        (true, true) => Ok(()),
        (true, false) => Err(refused(crate::error::PathProblem::Root)),
        (false, true) => {
            Err(CgroupError::Unsupported { path: write.path.to_string(), resource: write.resource })
        }
        (false, false) if executor.layout().allows(write.path.as_str()) => Ok(()),
        (false, false) => Err(refused(crate::error::PathProblem::Outside)),
    }
}

fn refusal(error: CgroupError) -> Outcome {
    match error {
        CgroupError::Gone { .. } => Outcome::Gone,
        CgroupError::Unsupported { .. } => Outcome::Unsupported,
        other => Outcome::Failed(other),
    }
}

fn is_worth_another_try(resource: Resource, result: Result<(), Errno>) -> bool {
    match result {
        // Reclaim does not get further by trying at once; see memory_limit.
        Err(Errno::BUSY) => resource != Resource::MemoryLimit,
        Err(Errno::INVAL | Errno::ACCESS | Errno::NOSPC) => true,
        _ => false,
    }
}
