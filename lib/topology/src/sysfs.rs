//! Reads the layout from sysfs.
//!
//! Files below the root, which is `/sys` on a real machine:
//! `devices/system/cpu/{online,smt/active}`, `devices/system/cpu/cpuN/topology/*`,
//! `devices/system/cpu/cpuN/cache/indexM/*`, `devices/system/node/nodeN/cpulist`.
//! No command is run: the output of `lscpu` is localised and differs between its versions and architectures.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use koord_extension::cpuset::{CpuSet, CpuSetError};

use crate::model::{Cpu, Topology, TopologyError};

/// Why the layout could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// A file or folder could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file that lists CPUs holds something else.
    #[error("{} is no CPU list", path.display())]
    CpuList {
        /// The file.
        path: PathBuf,
        /// What is wrong with the text.
        source: CpuSetError,
    },
    /// A file that holds a number holds something else.
    #[error("{} says {text:?}; expected a whole number", path.display())]
    Number {
        /// The file.
        path: PathBuf,
        /// Its text.
        text: String,
    },
    /// What was read is no layout.
    #[error("{} describes no layout of CPUs", root.display())]
    Layout {
        /// The root of sysfs.
        root: PathBuf,
        /// What is wrong with it.
        source: TopologyError,
    },
}

/// Reads the layout of the CPUs that are online.
///
/// What a machine leaves out has a value that is right for a small one: without NUMA nodes every CPU is in node
/// 0, without a list of siblings each is a core of its own, without a package (or package -1, as some ARM
/// firmware has it) all are in one socket, without an L3 cache the cache is absent.
pub fn read(root: &Path) -> Result<Topology, SysfsError> {
    let cpu_folder = root.join("devices/system/cpu");
    let online = online(&cpu_folder)?;
    let (node_of, empty_nodes) = numa_nodes(&root.join("devices/system/node"))?;

    let mut cores = Numbering::new();
    let mut sockets = Numbering::new();
    let mut cpus = Vec::with_capacity(online.len());
    for id in online.iter() {
        let folder = cpu_folder.join(format!("cpu{id}"));
        let topology = folder.join("topology");
        let siblings = match cpu_list(&topology.join("core_cpus_list"))? {
            Some(list) => Some(list),
            // The name before Linux 5.3.
            None => cpu_list(&topology.join("thread_siblings_list"))?,
        };
        let package = number(&topology.join("physical_package_id"))?.unwrap_or(-1);
        // Cores are told apart by their lowest thread: core_id repeats in every socket, die and cluster. The package
        // counts as well, because some hypervisors name siblings across packages.
        let lowest = siblings.and_then(|list| list.intersection(&online).first()).unwrap_or(id).min(id);
        cpus.push(Cpu {
            id,
            core: cores.of((package, lowest)),
            socket: sockets.of(package),
            node: node_of.get(&id).copied().unwrap_or(0),
            cache: last_level_cache(&folder.join("cache"))?,
        });
    }
    Topology::new(cpus)
        .map(|topology| topology.with_memory_only_nodes(empty_nodes))
        .map_err(|source| SysfsError::Layout { root: root.to_owned(), source })
}

/// True if two threads share a core somewhere; absent on kernels without the file (before 4.19).
pub fn smt_active(root: &Path) -> Result<Option<bool>, SysfsError> {
    Ok(number(&root.join("devices/system/cpu/smt/active"))?.map(|value| value == 1))
}

/// True if the processor may exceed its nominal frequency, as the `intel_pstate` driver says; absent under other
/// drivers.
pub fn turbo_enabled(root: &Path) -> Result<Option<bool>, SysfsError> {
    Ok(number(&root.join("devices/system/cpu/intel_pstate/no_turbo"))?.map(|value| value == 0))
}

/// Numbers from 0 in the order of first sight.
struct Numbering<K> {
    seen: BTreeMap<K, u32>,
    next: u32,
}

impl<K: Ord> Numbering<K> {
    const fn new() -> Numbering<K> {
        Numbering { seen: BTreeMap::new(), next: 0 }
    }

    fn of(&mut self, key: K) -> u32 {
        *self.seen.entry(key).or_insert_with(|| {
            let number = self.next;
            self.next += 1;
            number
        })
    }
}

/// The kernel's list, or else the folders of CPUs that do not say they are offline.
fn online(folder: &Path) -> Result<CpuSet, SysfsError> {
    if let Some(list) = cpu_list(&folder.join("online"))? {
        return Ok(list);
    }
    let mut online = CpuSet::new();
    for id in numbered_folders(folder, "cpu")?.unwrap_or_default() {
        if number(&folder.join(format!("cpu{id}/online")))? != Some(0) {
            online.insert(id);
        }
    }
    Ok(online)
}

/// The NUMA node of each CPU that has one, and the nodes without CPUs.
fn numa_nodes(folder: &Path) -> Result<(BTreeMap<u32, u32>, Vec<u32>), SysfsError> {
    let mut node_of = BTreeMap::new();
    let mut empty = Vec::new();
    for node in numbered_folders(folder, "node")?.unwrap_or_default() {
        let cpus = cpu_list(&folder.join(format!("node{node}/cpulist")))?.unwrap_or_default();
        if cpus.is_empty() {
            empty.push(node);
        }
        node_of.extend(cpus.iter().map(|cpu| (cpu, node)));
    }
    Ok((node_of, empty))
}

/// The id of the L3 cache. Kernels before 4.11 and some ARM firmware give none; the lowest CPU that shares the
/// cache stands for it then.
fn last_level_cache(folder: &Path) -> Result<Option<u32>, SysfsError> {
    for index in numbered_folders(folder, "index")?.unwrap_or_default() {
        let folder = folder.join(format!("index{index}"));
        if number(&folder.join("level"))? != Some(3) {
            continue;
        }
        let id_file = folder.join("id");
        if let Some(id) = number(&id_file)? {
            return match u32::try_from(id) {
                Ok(id) => Ok(Some(id)),
                Err(_) => Err(SysfsError::Number { path: id_file, text: id.to_string() }),
            };
        }
        return Ok(cpu_list(&folder.join("shared_cpu_list"))?.and_then(|list| list.first()));
    }
    Ok(None)
}

/// The numbers of the entries `<prefix>N`, ascending; `None` if the folder is missing.
fn numbered_folders(folder: &Path, prefix: &str) -> Result<Option<Vec<u32>>, SysfsError> {
    let fail = |source| SysfsError::Read { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(fail)?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(prefix)).unwrap_or("");
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            numbers.extend(digits.parse::<u32>());
        }
    }
    numbers.sort_unstable();
    Ok(Some(numbers))
}

fn text(path: &Path) -> Result<Option<String>, SysfsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SysfsError::Read { path: path.to_owned(), source }),
    }
}

fn cpu_list(path: &Path) -> Result<Option<CpuSet>, SysfsError> {
    let Some(text) = text(path)? else { return Ok(None) };
    let list = CpuSet::parse(&text);
    list.map(Some).map_err(|source| SysfsError::CpuList { path: path.to_owned(), source })
}

fn number(path: &Path) -> Result<Option<i64>, SysfsError> {
    let Some(text) = text(path)? else { return Ok(None) };
    let number = text.trim().parse();
    number.map(Some).map_err(|_| SysfsError::Number { path: path.to_owned(), text })
}

#[cfg(test)]
mod tests;
