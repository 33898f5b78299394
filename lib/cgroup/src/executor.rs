//! The one writer of control group files.
//!
//! A caller says what it wants in files of some groups, all in one batch; the executor reads what is there, writes only
//! what differs, in an order that the kernel accepts, reads it back, and answers for each write. It remembers what it was
//! asked for: who owns a file, what was in it before, and when it was last looked at. An unchanged wish costs a look at
//! the directory's identity for a minute, and reading the file after that.
//!
//! All calls block: run them where that does no harm.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use koord_extension::units::Bytes;
use rustix::io::Errno;

use crate::driver::RuntimeName;
use crate::error::{CgroupError, Operation};
use crate::files::{Directory, Files, KernelFiles};
use crate::layout::{Controller, Layout};
use crate::path::{self, CgroupPath};
use crate::resource::{Resource, ResourceFile};
use crate::value::Value;
use crate::version::CgroupVersion;
use crate::weight::Conversion;

mod batch;
mod order;
mod state;
#[cfg(test)]
mod tests;
mod walk;

pub use state::Counts;
use state::State;

/// How long a file is trusted to hold what it held.
pub const VERIFY_AFTER: Duration = Duration::from_secs(60);

/// Locks of which each pod takes one.
const LANES: usize = 64;

/// Who wants a value: a rule, a strategy, a plugin. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

impl Owner {
    /// An owner with this name.
    pub fn new(name: &str) -> Owner {
        Owner(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<&str> for Owner {
    fn from(name: &str) -> Owner {
        Owner::new(name)
    }
}

/// A wish: this value in this file of this group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The group.
    pub path: CgroupPath,
    /// The file.
    pub resource: Resource,
    /// What it should hold.
    pub value: Value,
    /// Who wants it.
    pub owner: Owner,
}

/// What became of a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// What the file held before.
    pub before: Option<Value>,
    /// What it holds now. A value that the file cannot tell from the wanted one (shares that have the same weight, bytes
    /// of the same page) is given as the wanted one. Of CPUs on version 2 it is what is in effect.
    pub found: Option<Value>,
    /// How it went.
    pub result: Outcome,
}

/// How a wish went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Written, and read back.
    Written,
    /// The file held it already.
    Same,
    /// Kept for later: shares of an idle group, which the kernel refuses until it is idle no more. The executor writes
    /// them then.
    Deferred,
    /// The group does not exist (any more).
    Gone,
    /// This kernel has no such file, or not for this group.
    Unsupported,
    /// Refused.
    Failed(CgroupError),
}

impl Outcome {
    /// A word for metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Outcome::Written => "changed",
            Outcome::Same => "same",
            Outcome::Deferred => "deferred",
            Outcome::Gone => "gone",
            Outcome::Unsupported => "unsupported",
            Outcome::Failed(_) => "error",
        }
    }

    /// True if the file holds the value.
    pub const fn is_in_effect(&self) -> bool {
        matches!(self, Outcome::Written | Outcome::Same)
    }
}

/// What an [`Observer`] is told of a wish.
#[derive(Debug, Clone, Copy)]
pub struct WriteEvent<'a> {
    /// The wish.
    pub write: &'a Write,
    /// What became of it.
    pub written: &'a Written,
}

/// Sees what the executor does: for metrics, logs and audit. It is called while locks are held, so it must be quick and
/// must not call the executor.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A wish was dealt with, other than by finding that nothing changed since the last look.
    fn handled(&self, event: &WriteEvent<'_>);
    /// A wish was refused because `holder` owns the file.
    fn conflict(&self, write: &Write, holder: &Owner);
}

/// Tells the time, so that tests can.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now, on a clock that never goes back.
    fn now(&self) -> Instant;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A file that an owner gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The group.
    pub path: CgroupPath,
    /// The file.
    pub resource: Resource,
    /// What it held before the owner's first write, to put back.
    pub before: Option<Value>,
    /// What the owner last wanted.
    pub wanted: Value,
}

/// Whether the node has a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Support {
    /// The group of all pods has it.
    Yes,
    /// The group of all pods has none.
    No,
    /// The group of all pods does not exist yet.
    Unknown,
}

/// The writer. A clone is another handle of the same one.
#[derive(Clone)]
pub struct Executor {
    shared: Arc<Shared>,
}

struct Shared {
    layout: Layout,
    files: Box<dyn Files>,
    clock: Box<dyn Clock>,
    observer: Option<Box<dyn Observer>>,
    conversion: AtomicU8,
    conversion_is_fixed: bool,
    lanes: Vec<Mutex<()>>,
    state: Mutex<State>,
    supported: Mutex<HashMap<Resource, Support>>,
}

/// What to do about a limit below what is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OverUse {
    Refuse,
    Kill,
}

/// How an [`Executor`] is made.
#[derive(Debug)]
pub struct ExecutorBuilder {
    layout: Layout,
    files: Box<dyn Files>,
    clock: Box<dyn Clock>,
    observer: Option<Box<dyn Observer>>,
    conversion: Option<Conversion>,
}

impl ExecutorBuilder {
    /// With other files than the kernel's.
    #[must_use]
    pub fn files(mut self, files: impl Files + 'static) -> ExecutorBuilder {
        self.files = Box::new(files);
        self
    }

    /// With another clock than the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> ExecutorBuilder {
        self.clock = Box::new(clock);
        self
    }

    /// With someone who is told of everything.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> ExecutorBuilder {
        self.observer = Some(Box::new(observer));
        self
    }

    /// With a fixed formula for weights. Without, it is linear until [`Executor::learn_conversion`] has seen what the
    /// runtime does.
    #[must_use]
    pub fn conversion(mut self, conversion: Option<Conversion>) -> ExecutorBuilder {
        self.conversion = conversion;
        self
    }

    /// The executor.
    pub fn build(self) -> Executor {
        Executor {
            shared: Arc::new(Shared {
                layout: self.layout,
                files: self.files,
                clock: self.clock,
                observer: self.observer,
                conversion_is_fixed: self.conversion.is_some(),
                conversion: AtomicU8::new(conversion_code(self.conversion.unwrap_or_default())),
                lanes: (0..LANES).map(|_| Mutex::new(())).collect(),
                state: Mutex::new(State::default()),
                supported: Mutex::new(HashMap::new()),
            }),
        }
    }
}

const fn conversion_code(conversion: Conversion) -> u8 {
    match conversion {
        Conversion::Linear => 0,
        Conversion::Quadratic => 1,
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Executor").field("layout", &self.shared.layout).finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor of the kernel's files in this layout.
    pub fn new(layout: Layout) -> Executor {
        Executor::builder(layout).build()
    }

    /// An executor of chosen parts.
    pub fn builder(layout: Layout) -> ExecutorBuilder {
        ExecutorBuilder {
            layout,
            files: Box::<KernelFiles>::default(),
            clock: Box::new(SystemClock),
            observer: None,
            conversion: None,
        }
    }

    /// Where the groups are.
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// The formula between shares and weights.
    pub fn conversion(&self) -> Conversion {
        match self.shared.conversion.load(Ordering::Relaxed) {
            0 => Conversion::Linear,
            _ => Conversion::Quadratic,
        }
    }

    /// Sees which formula the runtime uses, from the group of a container for which it was asked `shares` and which nobody
    /// else has written. Nothing if that cannot be told, and of a group whose shares this executor has set: that would be
    /// its own formula. The executor then goes on with the formula it has. A formula that was set stays.
    pub fn learn_conversion(&self, path: &CgroupPath, shares: i64) -> Option<Conversion> {
        if self.version() == CgroupVersion::V1 {
            return None;
        }
        if self.lock_state().group(path).is_some_and(|group| group.file(Resource::CpuShares, None).is_some())
        {
            return None;
        }
        let text = self.open(Controller::Cpu, path).ok()?.read("cpu.weight").ok()?;
        let seen = Conversion::of_observation(shares, text.trim().parse().ok()?)?;
        if !self.shared.conversion_is_fixed {
            self.shared.conversion.store(conversion_code(seen), Ordering::Relaxed);
        }
        Some(seen)
    }

    /// Makes files hold what is wanted. The answers are in the order of the wishes.
    ///
    /// The batch may span levels: limits that grow are written from the top down, limits that shrink from the bottom up,
    /// and between them CPU sets that do both hold the union. Of several wishes for one file the last counts.
    pub fn apply(&self, writes: &[Write]) -> Vec<Written> {
        let _lanes = self.lock_lanes(writes.iter().map(|write| &write.path));
        batch::apply(self, writes, OverUse::Refuse)
    }

    /// Applies a limit of memory even if more is in use, which makes a kernel of version 2 kill.
    pub(crate) fn apply_though_it_kills(&self, write: &Write) -> Option<Written> {
        let _lanes = self.lock_lanes(std::iter::once(&write.path));
        batch::apply(self, std::slice::from_ref(write), OverUse::Kill).pop()
    }

    /// Reads a file. Of CPUs on version 2 it is what is in effect; pressure that version 1 does not tell is read in the
    /// version 2 tree of a hybrid node.
    pub fn read(&self, path: &CgroupPath, resource: Resource) -> Result<Value, CgroupError> {
        let text = self.read_text(path, resource)?;
        resource.parse_kernel_text(&text, self.version(), self.conversion())
    }

    /// Reads a file's text, as [`Executor::read`] does.
    pub fn read_text(&self, path: &CgroupPath, resource: Resource) -> Result<String, CgroupError> {
        let unsupported = || CgroupError::Unsupported { path: path.to_string(), resource };
        let file = resource.file(self.version()).ok_or_else(unsupported)?;
        let is_pressure =
            matches!(resource, Resource::CpuPressure | Resource::MemoryPressure | Resource::IoPressure);
        let read = |controller, name: &str| {
            let directory = self
                .open(controller, path)
                .map_err(|error| self.failed(Operation::Open, path, resource, None, error))?;
            match directory.read(name) {
                Ok(text) => Ok(Some(text)),
                Err(Errno::NOENT) => Ok(None),
                Err(error) => Err(self.failed(Operation::Read, path, resource, None, error)),
            }
        };
        if let Some(text) = file.effective.and_then(|name| read(file.controller, name).transpose()) {
            return text;
        }
        let own = read(file.controller, file.name);
        if is_pressure && self.version() == CgroupVersion::V1 && !matches!(own, Ok(Some(_))) {
            return read(Controller::Unified, file.name)?.ok_or_else(unsupported);
        }
        own?.ok_or_else(unsupported)
    }

    /// Whether the node has a file, seen in the group of all pods (or in the root for what is only there). "Yes" is
    /// remembered; anything else is looked at again, because the group may come later and so may a controller.
    pub fn supported(&self, resource: Resource) -> Support {
        if self.lock_supported().get(&resource) == Some(&Support::Yes) {
            return Support::Yes;
        }
        let path = if resource.is_root_only() { CgroupPath::root() } else { self.layout().kubepods() };
        let support = self.supported_in(&path, resource);
        if support == Support::Yes {
            self.lock_supported().insert(resource, support);
        }
        support
    }

    /// Whether one group has a file.
    pub fn supported_in(&self, path: &CgroupPath, resource: Resource) -> Support {
        let Some(file) = resource.file(self.version()) else { return Support::No };
        match self.open(file.controller, path) {
            Ok(directory) => match directory.has(file.name) {
                Ok(true) => Support::Yes,
                _ => Support::No,
            },
            // The hierarchy may be missing as a whole.
            Err(_) => match self.open(Controller::Cpu, path) {
                Ok(_) => Support::No,
                Err(_) => Support::Unknown,
            },
        }
    }

    /// True if the group exists in the hierarchy of CPU time.
    pub fn exists(&self, path: &CgroupPath) -> bool {
        self.open(Controller::Cpu, path).is_ok()
    }

    /// The group of a container of the pod `pod`: of the names it may have the one that exists.
    pub fn container(
        &self,
        pod: &CgroupPath,
        runtime: RuntimeName,
        container_id: &str,
    ) -> Result<CgroupPath, CgroupError> {
        let candidates = pod.container_candidates(runtime, container_id)?;
        match candidates.into_iter().find(|candidate| self.exists(candidate)) {
            Some(found) => Ok(found),
            None => pod.container(runtime, container_id),
        }
    }

    /// Gives up all files of an owner and tells what was in them. Nothing is written.
    pub fn release(&self, owner: &Owner) -> Vec<Released> {
        self.lock_state().release(|_, held| held == owner)
    }

    /// Gives up the files of an owner in a group and below it. Nothing is written.
    pub fn release_in(&self, path: &CgroupPath, owner: &Owner) -> Vec<Released> {
        self.lock_state().release(|group, held| held == owner && path.contains(group))
    }

    /// Drops everything known of a group and all below it: it was removed.
    pub fn forget(&self, path: &CgroupPath) {
        self.lock_state().forget(path);
    }

    /// Makes the next wish for a file of this group, or of one below it, look at the file: somebody else, a runtime for
    /// one, may have written it.
    pub fn expire(&self, path: &CgroupPath) {
        self.lock_state().expire(path);
    }

    /// Drops what is known of groups that no longer exist, and tells how many. To be called now and then.
    pub fn sweep(&self) -> usize {
        let groups = self.lock_state().groups();
        let mut dropped = 0;
        for (path, identities) in groups {
            let gone = identities.iter().all(|(controller, identity)| {
                !matches!(self.open(*controller, &path).map(|open| open.identity()), Ok(Ok(now)) if now == *identity)
            });
            if gone {
                self.lock_state().drop_group(&path);
                dropped += 1;
            }
        }
        dropped
    }

    /// Files that have an owner.
    pub fn owned(&self) -> usize {
        self.lock_state().owned()
    }

    /// How often what happened.
    pub fn counts(&self) -> Counts {
        self.lock_state().counts
    }

    fn version(&self) -> CgroupVersion {
        self.shared.layout.version()
    }

    fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    fn open(&self, controller: Controller, path: &CgroupPath) -> Result<Box<dyn Directory>, Errno> {
        let layout = self.layout();
        if controller == Controller::Unified && layout.version() == CgroupVersion::V1 && !layout.is_hybrid() {
            return Err(Errno::NOENT);
        }
        self.shared.files.open(&layout.directory(controller), path.as_str())
    }

    /// An error of the kernel as an error of this crate.
    fn failed(
        &self,
        operation: Operation,
        path: &CgroupPath,
        resource: Resource,
        value: Option<&str>,
        error: Errno,
    ) -> CgroupError {
        let name = resource.file(self.version()).map_or(resource.as_str(), |file: ResourceFile| file.name);
        match (operation, error) {
            (Operation::Open, Errno::NOENT) | (_, Errno::NODEV) => {
                CgroupError::Gone { path: path.to_string() }
            }
            (_, Errno::NOENT | Errno::OPNOTSUPP) => {
                CgroupError::Unsupported { path: path.to_string(), resource }
            }
            (operation, source) => CgroupError::Kernel {
                operation,
                place: format!("{name} of {path}"),
                value: value.map(crate::error::shown),
                hint: if operation == Operation::Write {
                    hint(resource, source, self.version())
                } else {
                    None
                },
                source,
            },
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_supported(&self) -> MutexGuard<'_, HashMap<Resource, Support>> {
        self.shared.supported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the lanes of the pods in question, so that each pod has one writer at a time and a slow write of one pod
    /// holds up no other.
    fn lock_lanes<'a>(&self, paths: impl Iterator<Item = &'a CgroupPath>) -> Vec<MutexGuard<'_, ()>> {
        let mut lanes: Vec<usize> = paths.map(|path| self.lane(path)).collect();
        // One order for all batches, so that no two wait for each other.
        lanes.sort_unstable();
        lanes.dedup();
        let lanes = lanes.into_iter().filter_map(|lane| self.shared.lanes.get(lane));
        lanes.map(|lane| lane.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    fn lane(&self, path: &CgroupPath) -> usize {
        let driver = self.layout().driver();
        let mut hasher = DefaultHasher::new();
        for level in path.as_str().split('/') {
            level.hash(&mut hasher);
            if path::parse_pod_name(driver, level).is_some() {
                break;
            }
        }
        usize::try_from(hasher.finish() % 64).unwrap_or(0) % LANES
    }
}

/// The kernel's rule behind a refusal.
fn hint(resource: Resource, error: Errno, version: CgroupVersion) -> Option<&'static str> {
    let is_v1 = version == CgroupVersion::V1;
    match (resource, error) {
        (Resource::CpuQuota | Resource::CpuPeriod, Errno::INVAL) if is_v1 => {
            Some("more than the parent's quota, less than a child's, or less than the burst")
        }
        (Resource::CpuQuota | Resource::CpuPeriod, Errno::INVAL) => Some("less than the burst"),
        (Resource::CpuBurst, Errno::INVAL) => Some("more than the quota"),
        (Resource::CpuShares, Errno::INVAL) => Some("the group is idle"),
        (Resource::CpusetCpus | Resource::CpusetMems, Errno::ACCESS | Errno::PERM) => {
            Some("not all of them are the parent's")
        }
        (Resource::CpusetCpus | Resource::CpusetMems, Errno::BUSY) => Some("a child has others"),
        (Resource::CpusetCpus | Resource::CpusetMems, Errno::NOSPC) => {
            Some("the group has tasks, which need some")
        }
        (Resource::CpusetCpus, Errno::RANGE) => Some("a CPU is beyond what the kernel was built for"),
        (Resource::CpusetCpus, Errno::INVAL) => {
            Some("a CPU does not exist, or another group has it to itself")
        }
        (Resource::MemoryLimit, Errno::INVAL) if is_v1 => {
            Some("more than the limit of memory and swap together")
        }
        (Resource::MemorySwapLimit, Errno::INVAL) => Some("less than the limit of memory"),
        (Resource::Procs | Resource::Tasks, Errno::SRCH) => Some("the task has ended"),
        _ => None,
    }
}

/// Bytes in use by a group.
pub(crate) fn usage(executor: &Executor, path: &CgroupPath) -> Option<Bytes> {
    executor.read(path, Resource::MemoryUsage).ok()?.integer().map(Bytes)
}
