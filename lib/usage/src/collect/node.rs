//! CPU and memory of the node and of its NUMA nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use koord_cgroup::system_file::SystemRoots;
use koord_topology::model::Topology;

use super::clock::Clock;
use super::file::{Buffer, Descriptors, Importance, KeptFile, ReadError, Tree};
use super::rate::{Growth, Rate};
use super::schedule::{Cycle, Turn};
use super::text::{TextError, lines, number, words};
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;

/// CPUs beyond this number are not looked at: no kernel has them, and a table of them must have an end.
const LARGEST_CPU: u64 = 1 << 16;

/// Ticks that a line of `/proc/stat` counts as used: user, nice, system, irq and softirq. Time of guests is inside user time.
///
/// # Errors
/// A line with fewer than eight words (the first is `cpu` or `cpuN`), or one that is no number.
pub fn used_ticks(line: &[u8]) -> Result<u64, TextError> {
    let wrong = TextError::new("stat", "line cpu with at least 7 numbers");
    let mut fields = words(line).skip(1);
    let mut field = || fields.next().and_then(number).ok_or(wrong);
    let user = field()?;
    let nice = field()?;
    let system = field()?;
    let _idle = field()?;
    let _iowait = field()?;
    let irq = field()?;
    let softirq = field()?;
    Ok([user, nice, system, irq, softirq].into_iter().fold(0, u64::saturating_add))
}

/// The lines of CPUs in `/proc/stat`: `None` for the sum of all, which comes first.
fn cpu_lines(text: &[u8]) -> impl Iterator<Item = (Option<u64>, &[u8])> {
    lines(text).map_while(|line| {
        let rest = line.strip_prefix(b"cpu")?;
        Some((number(rest), line))
    })
}

/// Figures of `/proc/meminfo` or of a NUMA node's `meminfo`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryInfo {
    /// All memory.
    pub total: u64,
    /// Memory without use.
    pub free: u64,
    /// What can be used without swapping, as the kernel estimates (Linux 3.14). NUMA nodes do not have it.
    pub available: Option<u64>,
    /// Page cache in recent use.
    pub active_file: u64,
    /// Page cache not in recent use.
    pub inactive_file: u64,
    /// Kernel memory that can be reclaimed.
    pub reclaimable: u64,
}

impl MemoryInfo {
    /// Reads a text of either shape: `MemTotal: 1 kB`, or `Node 0 MemTotal: 1 kB`.
    ///
    /// # Errors
    /// Without `MemTotal` and `MemFree`.
    pub fn parse(text: &[u8]) -> Result<MemoryInfo, TextError> {
        let mut info = MemoryInfo::default();
        let (mut total, mut free) = (None, None);
        for line in lines(text) {
            let mut words = words(line);
            let mut key = words.next();
            if key == Some(b"Node") {
                key = words.nth(1);
            }
            let Some(key) = key.and_then(|key| key.strip_suffix(b":")) else { continue };
            let mut bytes = || words.next().and_then(number).map(|kilobytes| kilobytes.saturating_mul(1024));
            match key {
                b"MemTotal" => total = bytes(),
                b"MemFree" => free = bytes(),
                b"MemAvailable" => info.available = bytes(),
                b"Active(file)" => info.active_file = bytes().unwrap_or(0),
                b"Inactive(file)" => info.inactive_file = bytes().unwrap_or(0),
                b"SReclaimable" => {
                    // The last of those wanted, in every kernel; the rest of the file is longer than what was read.
                    info.reclaimable = bytes().unwrap_or(0);
                    break;
                }
                _ => {}
            }
        }
        info.total = total.ok_or(TextError::new("meminfo", "MemTotal"))?;
        info.free = free.ok_or(TextError::new("meminfo", "MemFree"))?;
        Ok(info)
    }

    /// Free memory and what the kernel can take back, by its parts.
    const fn available_by_parts(self) -> u64 {
        self.free
            .saturating_add(self.active_file)
            .saturating_add(self.inactive_file)
            .saturating_add(self.reclaimable)
    }

    /// Memory of the node in use: all less what is available.
    pub fn used(self) -> u64 {
        self.total.saturating_sub(self.available.unwrap_or_else(|| self.available_by_parts()))
    }

    /// Memory of a NUMA node in use, by the parts that NUMA nodes have figures of.
    pub const fn numa_used(self) -> u64 {
        self.total.saturating_sub(self.available_by_parts())
    }

    /// Memory in use with page cache: all less what is free.
    pub const fn used_with_page_cache(self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// A NUMA node.
#[derive(Debug)]
struct Numa {
    number: u32,
    directory: String,
    meminfo: KeptFile,
    memory: Option<u64>,
}

/// Reads the node's own files.
#[derive(Debug)]
pub struct NodeCollector {
    proc_tree: Tree,
    node_tree: Tree,
    stat: KeptFile,
    meminfo: KeptFile,
    total: Rate,
    cpus: Vec<Rate>,
    /// NUMA node of each CPU; `u32::MAX` for none.
    node_of: Vec<u32>,
    numa: Vec<Numa>,
    numa_turn: Turn,
    /// Nanoseconds of a tick of `/proc/stat`.
    tick: u64,
    pause: Duration,
}

/// Nanoseconds of a tick where the kernel does not tell its rate.
const USUAL_TICK: u64 = 10_000_000;

impl NodeCollector {
    /// Reads below `roots`; counters older than `pause` are not compared with.
    pub fn new(roots: &SystemRoots, pause: Duration) -> NodeCollector {
        let tick = 1_000_000_000_u64.checked_div(rustix::param::clock_ticks_per_second());
        NodeCollector {
            proc_tree: Tree::new(&roots.proc_root),
            node_tree: Tree::new(roots.sys_root.join("devices/system/node")),
            stat: KeptFile::new("stat", Importance::Needed),
            meminfo: KeptFile::new("meminfo", Importance::Needed),
            total: Rate::default(),
            cpus: Vec::new(),
            node_of: Vec::new(),
            numa: Vec::new(),
            numa_turn: Turn::default(),
            tick: tick.filter(|tick| *tick > 0).unwrap_or(USUAL_TICK),
            pause,
        }
    }

    /// The same with another length of a tick in nanoseconds.
    #[must_use]
    pub const fn with_tick(mut self, nanoseconds: u64) -> NodeCollector {
        self.tick = if nanoseconds == 0 { USUAL_TICK } else { nanoseconds };
        self
    }

    /// Takes the machine's layout. Counters of CPUs stay.
    pub fn set_topology(&mut self, topology: &Topology) {
        self.node_of.clear();
        for cpu in topology.cpus() {
            let Some(index) = usize::try_from(cpu.id).ok().filter(|_| u64::from(cpu.id) < LARGEST_CPU) else {
                continue;
            };
            if self.node_of.len() <= index {
                self.node_of.resize(index + 1, u32::MAX);
            }
            if let Some(place) = self.node_of.get_mut(index) {
                *place = cpu.node;
            }
        }
        let mut numbers: Vec<u32> =
            topology.nodes().keys().chain(topology.memory_only_nodes()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        if !numbers.iter().eq(self.numa.iter().map(|numa| &numa.number)) {
            self.numa = numbers
                .into_iter()
                .map(|number| Numa {
                    number,
                    directory: format!("node{number}"),
                    meminfo: KeptFile::new("meminfo", Importance::Needed),
                    memory: None,
                })
                .collect();
            self.numa_turn.again();
        }
    }

    /// NUMA nodes known.
    pub fn numa_count(&self) -> usize {
        self.numa.len()
    }

    /// Reads CPU and memory and appends their samples. Without a CPU figure, as in the first pass, nothing is appended.
    ///
    /// # Errors
    /// A file could not be read. What was appended before stays out: this pass has no node.
    pub fn collect(
        &mut self,
        numa_cycle: Cycle,
        clock: &Clock,
        room: &Descriptors,
        buffer: &mut Buffer,
        pass: &mut Pass,
    ) -> Result<Outcome, ReadError> {
        let text = self.stat.read(&mut self.proc_tree, "", room, buffer)?;
        let now = clock.now();
        let mut of_numa: BTreeMap<u32, f64> = BTreeMap::new();
        let mut of_node = None;
        let several = self.numa.len() > 1;
        for (cpu, line) in cpu_lines(text) {
            let Some(cpu) = cpu else {
                let used = used_ticks(line)?.saturating_mul(self.tick);
                of_node = Some(self.total.growth(used, now, self.pause));
                if several {
                    continue;
                }
                break;
            };
            let Some(index) = usize::try_from(cpu).ok().filter(|_| cpu < LARGEST_CPU) else { continue };
            let Some(node) = self.node_of.get(index).filter(|node| **node != u32::MAX) else { continue };
            if self.cpus.len() <= index {
                self.cpus.resize(index + 1, Rate::default());
            }
            let Some(rate) = self.cpus.get_mut(index) else { continue };
            let used = used_ticks(line)?.saturating_mul(self.tick);
            if let Some(growth) = rate.growth(used, now, self.pause) {
                *of_numa.entry(*node).or_default() += growth.ratio();
            }
        }
        let of_node: Option<Growth> = of_node.ok_or(TextError::new("stat", "line cpu"))?;
        let memory = MemoryInfo::parse(self.meminfo.read(&mut self.proc_tree, "", room, buffer)?)?;
        let mut numa_read = false;
        if several && self.numa_turn.take(pass.tick, numa_cycle, 0) {
            numa_read = true;
            for numa in &mut self.numa {
                let text = numa.meminfo.read(&mut self.node_tree, &numa.directory, room, buffer);
                let info = text.and_then(|text| Ok(MemoryInfo::parse(text)?));
                numa.memory = info.ok().map(MemoryInfo::numa_used);
            }
        }
        let Some(of_node) = of_node else {
            // What was read counts when there is a CPU figure beside it.
            self.numa_turn.again();
            return Ok(Outcome::First);
        };
        let cores = of_node.ratio();
        pass.push(Object::Node, Kind::NodeCpuUsage, cores);
        pass.push(Object::Node, Kind::NodeMemoryUsage, float(memory.used()));
        pass.push(Object::Node, Kind::NodeMemoryUsageWithPageCache, float(memory.used_with_page_cache()));
        for numa in &self.numa {
            let object = Object::Numa(numa.number);
            if !several {
                pass.push(object.clone(), Kind::NumaCpuUsage, cores);
                pass.push(object, Kind::NumaMemoryUsage, float(memory.numa_used()));
                continue;
            }
            if let Some(cores) = of_numa.get(&numa.number) {
                pass.push(object.clone(), Kind::NumaCpuUsage, *cores);
            }
            if let Some(memory) = numa.memory.filter(|_| numa_read) {
                pass.push(object, Kind::NumaMemoryUsage, float(memory));
            }
        }
        Ok(Outcome::Complete)
    }

    /// Files open.
    pub fn open_files(&self) -> usize {
        let numa = self.numa.iter().filter(|numa| numa.meminfo.is_open()).count();
        usize::from(self.stat.is_open()) + usize::from(self.meminfo.is_open()) + numa
    }
}

/// How far a pass of a collector got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Counters were read for the first time: there is no rate yet.
    First,
    /// There are samples of everything.
    Complete,
}

/// A count as the number of a sample.
#[expect(clippy::cast_precision_loss, reason = "sizes of memory are far below 2^53")]
pub(crate) const fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;
