//! Usage of one control group.

use std::time::Duration;

use koord_cgroup::layout::{Controller, Layout};
use koord_cgroup::version::CgroupVersion;

use super::clock::Clock;
use super::file::{Buffer, Descriptors, Importance, KeptFile, ReadError, Tree};
use super::rate::Rate;
use super::text::{GroupMemory, MemoryHints, Throttling, cpu_stat, memory_stat, single};

/// The trees of the controllers that are read. On version 2 all are the same directory.
#[derive(Debug)]
pub struct Trees {
    /// Version of the interface.
    pub version: CgroupVersion,
    /// Bytes of a page.
    pub page_size: u64,
    /// Controller `cpu`: quota and throttling.
    pub cpu: Tree,
    /// Controller `cpuacct`: CPU time.
    pub cpuacct: Tree,
    /// Controller `memory`.
    pub memory: Tree,
    /// Controller `cpuset`.
    pub cpuset: Tree,
}

impl Trees {
    /// The trees of a layout.
    pub fn new(layout: &Layout) -> Trees {
        Trees {
            version: layout.version(),
            page_size: u64::try_from(layout.page_size()).unwrap_or(4096),
            cpu: Tree::new(layout.directory(Controller::Cpu)),
            cpuacct: Tree::new(layout.directory(Controller::Cpuacct)),
            memory: Tree::new(layout.directory(Controller::Memory)),
            cpuset: Tree::new(layout.directory(Controller::Cpuset)),
        }
    }
}

/// What every read of a group needs.
#[derive(Debug)]
pub struct Reader<'a> {
    /// Where groups are.
    pub trees: &'a mut Trees,
    /// How many files may stay open.
    pub room: &'a Descriptors,
    /// What files are read into.
    pub buffer: &'a mut Buffer,
    /// When they were read.
    pub clock: &'a Clock,
    /// Counters older than this are not compared with.
    pub pause: Duration,
}

/// What a group used since it was read before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupUsage {
    /// CPUs.
    pub cores: f64,
    /// CPU time in nanoseconds since the group was made.
    pub cpu_time: u64,
    /// The part of its periods that were throttled. Absent where nothing counts them.
    pub throttled: Option<f64>,
    /// Memory, if it was read.
    pub memory: Option<GroupMemory>,
}

/// Files and counters of one group.
#[derive(Debug)]
pub struct GroupMeter {
    cpu: KeptFile,
    /// Version 1 counts throttling in another file than CPU time.
    throttling: Option<KeptFile>,
    memory: KeptFile,
    rate: Rate,
    throttled: Option<Throttling>,
    hints: MemoryHints,
}

impl GroupMeter {
    /// A meter of a group; `memory` tells how much its memory file matters.
    pub fn new(version: CgroupVersion, memory: Importance) -> GroupMeter {
        let (cpu, throttling) = match version {
            CgroupVersion::V1 => ("cpuacct.usage", Some(KeptFile::new("cpu.stat", memory))),
            CgroupVersion::V2 => ("cpu.stat", None),
        };
        GroupMeter {
            cpu: KeptFile::new(cpu, Importance::Needed),
            throttling,
            memory: KeptFile::new("memory.stat", memory),
            rate: Rate::default(),
            throttled: None,
            hints: MemoryHints::default(),
        }
    }

    /// Reads CPU time, throttling and, when `with_memory`, memory. `None` in the first read and after a counter that went
    /// back: there is no rate yet.
    ///
    /// # Errors
    /// CPU time or memory could not be read. Counters are as they were, so that the next read covers the time in between;
    /// if the group is gone, they are forgotten.
    pub fn read(
        &mut self,
        reader: &mut Reader<'_>,
        group: &str,
        with_memory: bool,
    ) -> Result<Option<GroupUsage>, ReadError> {
        let read = self.counters(reader, group, with_memory);
        if read == Err(ReadError::Gone) {
            self.rate.forget();
            self.throttled = None;
        }
        read
    }

    fn counters(
        &mut self,
        reader: &mut Reader<'_>,
        group: &str,
        with_memory: bool,
    ) -> Result<Option<GroupUsage>, ReadError> {
        let version = reader.trees.version;
        let text = self.cpu.read(&mut reader.trees.cpuacct, group, reader.room, reader.buffer)?;
        let now = reader.clock.now();
        let (cpu_time, mut throttling) = match version {
            CgroupVersion::V1 => (single(text, self.cpu.name())?, None),
            CgroupVersion::V2 => {
                let cpu = cpu_stat(text, version)?;
                (cpu.usage.unwrap_or(0), cpu.throttling)
            }
        };
        let memory = if with_memory {
            let text = self.memory.read(&mut reader.trees.memory, group, reader.room, reader.buffer)?;
            Some(memory_stat(text, version, &mut self.hints)?)
        } else {
            None
        };
        if let Some(file) = &mut self.throttling {
            // Usage is told without it.
            let text = file.read(&mut reader.trees.cpu, group, reader.room, reader.buffer).ok();
            throttling = text.and_then(|text| cpu_stat(text, version).ok()).and_then(|cpu| cpu.throttling);
        }
        let before = std::mem::replace(&mut self.throttled, throttling);
        let Some(growth) = self.rate.growth(cpu_time, now, reader.pause) else { return Ok(None) };
        let throttled = throttling.zip(before).map(|(now, before)| now.ratio_since(before));
        Ok(Some(GroupUsage { cores: growth.ratio(), cpu_time, throttled, memory }))
    }

    /// Files open.
    pub fn open_files(&self) -> usize {
        let throttling = self.throttling.as_ref().is_some_and(KeptFile::is_open);
        usize::from(self.cpu.is_open()) + usize::from(self.memory.is_open()) + usize::from(throttling)
    }
}

/// The file of a group's memory with page cache and the kernel's own.
pub const fn memory_usage_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "memory.usage_in_bytes",
        CgroupVersion::V2 => "memory.current",
    }
}

#[cfg(test)]
mod tests;
