//! Cycles and instructions of containers, counted by the processor.
//!
//! A container is counted on the CPUs of its set, with one group of two counters on each, for a short time each minute. Only
//! containers that are busy enough to tell something are, and no more at once than descriptors were granted; the others have
//! their turn in later rounds. Counters are opened a few hundred in a pass, so that no pass is held up: opening one interrupts
//! the CPU it is for.

pub mod perf;
pub mod plan;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use koord_cgroup::layout::{Controller, Layout};
use koord_cgroup::version::CgroupVersion;
use koord_extension::cpuset::CpuSet;
use rustix::io::Errno;

use self::plan::{Candidate, choose};
use super::file::{Buffer, Descriptors, Importance, KeptFile, Tree};
use crate::inventory::Inventory;
use crate::kind::{CpiResource, Kind};
use crate::object::Object;
use crate::pass::Pass;
use crate::sampler::CpiOptions;
use crate::time::Tick;

/// Counters opened or closed before others may run.
const BATCH: usize = 256;

/// Counters opened in one pass, but for the rest of the container that goes beyond.
const PER_PASS: usize = 2 * BATCH;

/// Counters of one group: cycles and instructions.
pub const COUNTERS: usize = 2;

/// What one group of counters counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Cycles.
    pub cycles: u64,
    /// Instructions.
    pub instructions: u64,
    /// Time the group was on.
    pub enabled: Duration,
    /// Time it really counted: less when counters are shared out over time.
    pub running: Duration,
}

/// What would have been counted all the time: `value × enabled / running`, or `value` where a time is zero.
#[expect(clippy::cast_precision_loss, reason = "counts within seconds; a scaled one is an estimate anyway")]
pub fn scale(value: u64, enabled: Duration, running: Duration) -> f64 {
    if enabled.is_zero() || running.is_zero() {
        return value as f64;
    }
    value as f64 * (enabled.as_secs_f64() / running.as_secs_f64())
}

/// Opens counters. The kernel's in a program, others in tests.
pub trait CounterSource: Send + std::fmt::Debug {
    /// Opens cycles and instructions of a control group on one CPU, and switches them on.
    ///
    /// # Errors
    /// The kernel's.
    fn open(&self, group: &File, cpu: u32) -> io::Result<Box<dyn CounterGroup>>;
}

/// Open counters.
pub trait CounterGroup: Send + std::fmt::Debug {
    /// What they counted.
    ///
    /// # Errors
    /// The kernel's.
    fn read(&mut self) -> io::Result<Counted>;
}

/// A container that is being counted.
#[derive(Debug)]
struct Counting {
    object: Object,
    counters: Vec<Box<dyn CounterGroup>>,
    until: Tick,
}

/// A container whose counters are to be opened.
#[derive(Debug)]
struct Pending {
    object: Object,
    group: String,
    cpus: CpuSet,
}

/// How the collector is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpiState {
    /// No round has ended.
    Waiting,
    /// Rounds end with figures, or with no container that is busy enough.
    Counting,
    /// The machine does not allow it.
    NotSupported(String),
}

/// Counts cycles and instructions.
#[derive(Debug)]
pub struct CpiCollector {
    options: CpiOptions,
    source: Box<dyn CounterSource>,
    groups: Tree,
    cpusets: Tree,
    cpuset_file: &'static str,
    pending: VecDeque<Pending>,
    counting: Vec<Counting>,
    next_round: Tick,
    in_round: bool,
    /// CPU time in seconds of each container at the start of the last round, and when that was.
    seen: HashMap<Arc<str>, f64>,
    seen_at: Option<Tick>,
    last_served: Option<Arc<str>>,
    state: CpiState,
    skipped: u64,
}

impl CpiCollector {
    /// The collector of a layout with the kernel's counters or others.
    pub fn new(options: CpiOptions, layout: &Layout, source: Box<dyn CounterSource>) -> CpiCollector {
        let own = layout.directory(Controller::PerfEvent);
        // A controller that no version 1 tree has is in the version 2 tree beside them.
        let elsewhere = layout.version() == CgroupVersion::V1 && !own.is_dir() && layout.is_hybrid();
        let groups = if elsewhere { layout.directory(Controller::Unified) } else { own };
        CpiCollector {
            options,
            source,
            groups: Tree::new(groups),
            cpusets: Tree::new(layout.directory(Controller::Cpuset)),
            cpuset_file: match layout.version() {
                CgroupVersion::V1 => "cpuset.cpus",
                CgroupVersion::V2 => "cpuset.cpus.effective",
            },
            pending: VecDeque::new(),
            counting: Vec::new(),
            next_round: Tick::ZERO,
            in_round: false,
            seen: HashMap::new(),
            seen_at: None,
            last_served: None,
            state: CpiState::Waiting,
            skipped: 0,
        }
    }

    /// How it is doing.
    pub const fn state(&self) -> &CpiState {
        &self.state
    }

    /// Containers that gave nothing because the kernel had no counters for them at that time.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Counters open.
    pub fn open_files(&self) -> usize {
        self.counting.iter().map(|counting| counting.counters.len() * COUNTERS).sum()
    }

    /// Does what is due at the pass's tick: reads counters whose time is over, opens those of the next containers, starts a
    /// round. `pass` holds the containers' CPU times already.
    pub fn collect(
        &mut self,
        inventory: &Inventory,
        online: &CpuSet,
        room: &Descriptors,
        buffer: &mut Buffer,
        pass: &mut Pass,
    ) {
        self.finish(pass);
        if self.in_round && self.pending.is_empty() && self.counting.is_empty() {
            self.in_round = false;
            self.next_round = pass.tick.ahead(self.options.interval);
            if self.state == CpiState::Waiting {
                self.state = CpiState::Counting;
            }
        }
        if !self.in_round && pass.tick >= self.next_round {
            self.start(inventory, online, room, buffer, pass);
        }
        self.open(pass.tick);
    }

    /// Chooses the containers of a round.
    fn start(
        &mut self,
        inventory: &Inventory,
        online: &CpuSet,
        room: &Descriptors,
        buffer: &mut Buffer,
        pass: &Pass,
    ) {
        self.in_round = true;
        let mut busy: HashMap<Arc<str>, f64> = HashMap::new();
        let mut times: HashMap<Arc<str>, f64> = HashMap::new();
        let elapsed = self.seen_at.map(|then| pass.tick.since(then).as_secs_f64());
        for sample in &pass.samples {
            let Object::Container { id, .. } = &sample.object else { continue };
            match sample.kind {
                Kind::ContainerCpuUsage => {
                    busy.insert(id.clone(), sample.value);
                }
                Kind::ContainerCpuTime => {
                    times.insert(id.clone(), sample.value);
                    let before = self.seen.get(id).zip(elapsed).filter(|(_, elapsed)| *elapsed > 0.0);
                    if let Some((before, elapsed)) = before {
                        busy.insert(id.clone(), (sample.value - before) / elapsed);
                    }
                }
                _ => {}
            }
        }
        self.seen = times;
        self.seen_at = Some(pass.tick);
        let mut candidates = Vec::new();
        let mut waiting: HashMap<Arc<str>, Pending> = HashMap::new();
        for pod in &inventory.pods {
            for container in &pod.containers {
                if busy.get(&container.id).is_none_or(|cores| *cores < self.options.minimum_cores) {
                    continue;
                }
                let group = container.cgroup.as_str();
                let cpus = self.cpus_of(group, online, room, buffer);
                candidates.push(Candidate { id: container.id.clone(), descriptors: cpus.len() * COUNTERS });
                let object = Object::Container { pod_uid: pod.uid.clone(), id: container.id.clone() };
                waiting.insert(container.id.clone(), Pending { object, group: group.to_owned(), cpus });
            }
        }
        let chosen = choose(candidates, self.last_served.as_deref(), self.options.max_descriptors);
        self.pending = chosen.iter().filter_map(|id| waiting.remove(id)).collect();
        if let Some(last) = chosen.last() {
            self.last_served = Some(last.clone());
        }
    }

    /// The CPUs of a container that are online; all of those if it has no set of its own.
    fn cpus_of(&mut self, group: &str, online: &CpuSet, room: &Descriptors, buffer: &mut Buffer) -> CpuSet {
        // Read once a minute: not kept open.
        let mut file = KeptFile::new(self.cpuset_file, Importance::Optional);
        let text = file.read(&mut self.cpusets, group, room, buffer).ok();
        let set =
            text.and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| CpuSet::parse(text).ok());
        match set.filter(|set| !set.is_empty()) {
            Some(set) => set.intersection(online),
            None => online.clone(),
        }
    }

    /// Opens counters of containers that wait.
    fn open(&mut self, tick: Tick) {
        let mut opened = 0;
        while opened < PER_PASS {
            let Some(next) = self.pending.pop_front() else { return };
            // The container may have gone since the round began.
            let Ok(group) = self.groups.open_directory(&next.group) else { continue };
            let mut counters = Vec::with_capacity(next.cpus.len());
            for cpu in next.cpus.iter() {
                match self.source.open(&group, cpu) {
                    Ok(counter) => counters.push(counter),
                    Err(error) => {
                        counters.clear();
                        if self.refuse(&error) {
                            return;
                        }
                        break;
                    }
                }
                opened += COUNTERS;
                if opened.is_multiple_of(BATCH) {
                    std::thread::yield_now();
                }
            }
            if !counters.is_empty() {
                self.state = CpiState::Counting;
                let until = tick.ahead(self.options.window);
                self.counting.push(Counting { object: next.object, counters, until });
            }
        }
    }

    /// Whether an error is one of the machine, not of a container: then the round is over.
    fn refuse(&mut self, error: &io::Error) -> bool {
        if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
            self.skipped += 1;
            return false;
        }
        self.state = CpiState::NotSupported(reason(error));
        self.pending.clear();
        self.counting.clear();
        true
    }

    /// Reads and closes counters whose time is over. A container with any error gives nothing.
    fn finish(&mut self, pass: &mut Pass) {
        let mut closed = 0;
        let mut index = 0;
        while let Some(counting) = self.counting.get(index) {
            if pass.tick < counting.until {
                index += 1;
                continue;
            }
            let mut counting = self.counting.swap_remove(index);
            let mut sums = Some((0.0, 0.0));
            for counter in &mut counting.counters {
                sums = sums.zip(counter.read().ok()).map(|((cycles, instructions), counted)| {
                    (
                        cycles + scale(counted.cycles, counted.enabled, counted.running),
                        instructions + scale(counted.instructions, counted.enabled, counted.running),
                    )
                });
                closed += COUNTERS;
                if closed % BATCH == 0 {
                    std::thread::yield_now();
                }
            }
            match sums {
                Some((cycles, instructions)) => {
                    pass.push(counting.object.clone(), Kind::ContainerCpi(CpiResource::Cycle), cycles);
                    pass.push(counting.object, Kind::ContainerCpi(CpiResource::Instruction), instructions);
                }
                None => self.skipped += 1,
            }
        }
    }
}

/// Why counters cannot be had, in words for operators.
fn reason(error: &io::Error) -> String {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => "the kernel does not allow it (perf_event_paranoid, lockdown)",
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => "the machine has no hardware counters",
        Some(Errno::MFILE | Errno::NFILE) => "no descriptors are left",
        Some(Errno::NOSYS) => "the kernel has no event counters",
        _ => "counters cannot be opened",
    };
    format!("{why}: {error}")
}

#[cfg(test)]
mod tests;
