//! Page cache that is not in use, where the kernel keeps account of idle pages (kidled, a patch of vendors for version 1).
//!
//! Mainline kernels have no such figure, and none is made up: a wrong estimate is worse than none.

use std::fs;
use std::io;
use std::path::PathBuf;

use koord_cgroup::layout::{Controller, Layout};
use koord_cgroup::system_file::SystemRoots;
use koord_cgroup::version::CgroupVersion;

use super::file::{Buffer, Descriptors, Importance, KeptFile, ReadError, Tree};
use super::node::{MemoryInfo, float};
use super::pods::Faults;
use super::text::{TextError, lines, number, single, words};
use crate::inventory::Inventory;
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;

/// Lines of `memory.idle_page_stats`.
const LINES: usize = 31;

/// Buckets of idleness before this one are too young to be cold.
const FIRST_COLD_BUCKET: usize = 5;

/// Rows of page cache: clean and dirty, evictable and unevictable by use.
const COLD_ROWS: [&[u8]; 4] = [b"cfei", b"dfei", b"cfui", b"dfui"];

/// Seconds between two scans of the kernel's thread.
const SCAN_PERIOD: &str = "5";

/// Bytes that were idle through at least five scans, from the text of `memory.idle_page_stats`.
///
/// # Errors
/// A text that has not 31 lines, or a row that is no row of numbers.
pub fn cold_bytes(text: &[u8]) -> Result<u64, TextError> {
    const FILE: &str = "memory.idle_page_stats";
    if lines(text).count() != LINES {
        return Err(TextError::new(FILE, "31 lines"));
    }
    let mut cold: u64 = 0;
    for line in lines(text) {
        let mut words = words(line);
        if !words.next().is_some_and(|name| COLD_ROWS.contains(&name)) {
            continue;
        }
        for word in words.skip(FIRST_COLD_BUCKET) {
            cold = cold.saturating_add(number(word).ok_or(TextError::new(FILE, "row of numbers"))?);
        }
    }
    Ok(cold)
}

/// Reads the account of idle pages of the node, pods, containers and host applications.
#[derive(Debug)]
pub struct ColdMemoryCollector {
    kidled: PathBuf,
    memory: Tree,
    proc_tree: Tree,
    is_version_1: bool,
    is_started: bool,
}

/// The account cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ColdMemoryError {
    /// This kernel has none.
    #[error("the kernel keeps no account of idle pages")]
    Unsupported,
    /// It could not be switched on.
    #[error("cannot write {}", path.display())]
    Switch {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The node's own figures cannot be read.
    #[error("cannot read the node's memory")]
    Node(#[from] ReadError),
}

impl ColdMemoryCollector {
    /// The collector of a layout.
    pub fn new(layout: &Layout, roots: &SystemRoots) -> ColdMemoryCollector {
        ColdMemoryCollector {
            kidled: roots.sys_root.join("kernel/mm/kidled"),
            memory: Tree::new(layout.directory(Controller::Memory)),
            proc_tree: Tree::new(&roots.proc_root),
            is_version_1: layout.version() == CgroupVersion::V1,
            is_started: false,
        }
    }

    fn start(&mut self) -> Result<(), ColdMemoryError> {
        if !self.is_version_1 || !self.kidled.is_dir() {
            return Err(ColdMemoryError::Unsupported);
        }
        if !self.is_started {
            for (file, value) in [("scan_period_in_seconds", SCAN_PERIOD), ("use_hierarchy", "1")] {
                let path = self.kidled.join(file);
                fs::write(&path, value).map_err(|source| ColdMemoryError::Switch { path, source })?;
            }
            self.is_started = true;
        }
        Ok(())
    }

    /// Reads all groups and appends the samples of cold and hot memory. The account is switched on by the first call.
    ///
    /// # Errors
    /// [`ColdMemoryError`]; a single pod or container that cannot be read is none.
    pub fn collect(
        &mut self,
        inventory: &Inventory,
        room: &Descriptors,
        buffer: &mut Buffer,
        pass: &mut Pass,
    ) -> Result<Faults, ColdMemoryError> {
        self.start()?;
        let cold = self.cold("", room, buffer)?;
        let mut meminfo = KeptFile::new("meminfo", Importance::Optional);
        let text = meminfo.read(&mut self.proc_tree, "", room, buffer)?;
        let memory = MemoryInfo::parse(text).map_err(ReadError::from)?;
        pass.push(Object::Node, Kind::NodeMemoryColdPageSize, float(cold));
        let hot = memory.used_with_page_cache().saturating_sub(cold);
        pass.push(Object::Node, Kind::NodeMemoryWithHotPageUsage, float(hot));
        let mut faults = Faults::default();
        for pod in &inventory.pods {
            match self.of_group(pod.cgroup.as_str(), room, buffer) {
                Ok((cold, hot)) => {
                    let object = || Object::Pod(pod.uid.clone());
                    pass.push(object(), Kind::PodMemoryColdPageSize, float(cold));
                    pass.push(object(), Kind::PodMemoryWithHotPageUsage, float(hot));
                }
                Err(error) => faults.add(error),
            }
            for container in &pod.containers {
                match self.of_group(container.cgroup.as_str(), room, buffer) {
                    Ok((cold, hot)) => {
                        let object =
                            || Object::Container { pod_uid: pod.uid.clone(), id: container.id.clone() };
                        pass.push(object(), Kind::ContainerMemoryColdPageSize, float(cold));
                        pass.push(object(), Kind::ContainerMemoryWithHotPageUsage, float(hot));
                    }
                    Err(error) => faults.add(error),
                }
            }
        }
        for application in &inventory.host_applications {
            match self.of_group(application.cgroup.as_str(), room, buffer) {
                Ok((_, hot)) => pass.push(
                    Object::HostApplication(application.name.clone()),
                    Kind::HostApplicationMemoryWithHotPageUsage,
                    float(hot),
                ),
                Err(error) => faults.add(error),
            }
        }
        Ok(faults)
    }

    fn cold(&mut self, group: &str, room: &Descriptors, buffer: &mut Buffer) -> Result<u64, ReadError> {
        // Read every few seconds, on few kernels: not kept open.
        let mut file = KeptFile::new("memory.idle_page_stats", Importance::Optional);
        Ok(cold_bytes(file.read(&mut self.memory, group, room, buffer)?)?)
    }

    /// Cold bytes of a group, and its usage with page cache less those.
    fn of_group(
        &mut self,
        group: &str,
        room: &Descriptors,
        buffer: &mut Buffer,
    ) -> Result<(u64, u64), ReadError> {
        let cold = self.cold(group, room, buffer)?;
        let mut file = KeptFile::new("memory.usage_in_bytes", Importance::Optional);
        let usage = single(file.read(&mut self.memory, group, room, buffer)?, "memory.usage_in_bytes")?;
        Ok((cold, usage.saturating_sub(cold)))
    }
}

#[cfg(test)]
mod tests;
