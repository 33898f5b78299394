//! What a node is made of: its CPUs, its NUMA nodes and their memory.
//!
//! Nothing is run: the output of `lscpu` is localised and costs a process a minute. Facts are read again when the list of
//! online CPUs or of NUMA nodes changed ([`Fingerprint`]), and from time to time.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use koord_cgroup::system_file::SystemRoots;
use koord_extension::cpuset::{CpuSet, CpuSetError};
use koord_topology::model::Topology;
use koord_topology::sysfs::{self, SysfsError};

use super::node::MemoryInfo;
use super::text::{TextError, number};

/// Facts cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The layout of CPUs.
    #[error("cannot read the layout of CPUs")]
    Cpus(#[from] SysfsError),
    /// A file.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file that holds something else.
    #[error("{}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is missing in it.
        source: TextError,
    },
    /// A list of NUMA nodes that is none.
    #[error("{} is no list", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: CpuSetError,
    },
    /// NUMA nodes are not numbered without gaps, so figures by number would belong to others.
    #[error("NUMA nodes {0:?} are not numbered from 0 without gaps")]
    NumaNumbers(Vec<u32>),
}

/// Facts about the processor that stand beside its layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BasicInfo {
    /// `model name` of the first CPU; empty where the kernel tells none.
    pub cpu_model: String,
    /// `vendor_id` of the first CPU, `CPU implementer` on ARM.
    pub vendor_id: String,
    /// Whether cores have several threads that are in use.
    pub hyper_thread_enabled: bool,
    /// Whether the processor may exceed its nominal frequency.
    pub turbo_enabled: bool,
    /// Ways of the level 3 cache that can be divided, as hexadecimal digits; empty without that feature.
    pub cat_l3_cbm_mask: String,
}

impl BasicInfo {
    /// Reads it. Facts that the machine does not tell have the value of a machine without them.
    ///
    /// # Errors
    /// A file of sysfs holds something else than a number.
    pub fn read(roots: &SystemRoots, topology: &Topology) -> Result<BasicInfo, FactsError> {
        let cpuinfo = text(&roots.proc_root.join("cpuinfo"))?.unwrap_or_default();
        let field = |name: &str| {
            let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
        };
        let smt = sysfs::smt_active(&roots.sys_root)?;
        let turbo = match sysfs::turbo_enabled(&roots.sys_root)? {
            Some(turbo) => Some(turbo),
            // Other drivers than Intel's.
            None => text(&roots.sys_root.join("devices/system/cpu/cpufreq/boost"))?
                .map(|text| number(text.as_bytes()) == Some(1)),
        };
        let mask = text(&roots.sys_root.join("fs/resctrl/info/L3/cbm_mask"))?.unwrap_or_default();
        Ok(BasicInfo {
            cpu_model: field("model name").unwrap_or_default(),
            vendor_id: field("vendor_id").or_else(|| field("CPU implementer")).unwrap_or_default(),
            hyper_thread_enabled: smt.unwrap_or_else(|| topology.cpus_per_core() > 1),
            turbo_enabled: turbo.unwrap_or(false),
            cat_l3_cbm_mask: mask.trim().to_owned(),
        })
    }
}

/// CPUs of the node and its processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuFacts {
    /// The layout.
    pub topology: Topology,
    /// The rest.
    pub basic: BasicInfo,
}

impl CpuFacts {
    /// Reads both.
    ///
    /// # Errors
    /// [`FactsError`].
    pub fn read(roots: &SystemRoots) -> Result<CpuFacts, FactsError> {
        let topology = sysfs::read(&roots.sys_root)?;
        let basic = BasicInfo::read(roots, &topology)?;
        Ok(CpuFacts { topology, basic })
    }
}

/// Pages of one size that a NUMA node has set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Size of a page in bytes.
    pub page_size: u64,
    /// Number of pages.
    pub pages: u64,
}

/// Sizes of pages that are told, in kilobytes.
const HUGE_PAGE_KILOBYTES: [u64; 2] = [2048, 1_048_576];

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaFacts {
    /// Its number.
    pub number: u32,
    /// Its memory; all zero for one without.
    pub memory: MemoryInfo,
    /// Huge pages, of the sizes that the kernel has.
    pub huge_pages: Vec<HugePages>,
}

/// The NUMA nodes with CPUs or memory, in order: not those that a device starts memory accesses from.
///
/// # Errors
/// [`FactsError`]; nodes that are not numbered from 0 without gaps.
pub fn numa_nodes(roots: &SystemRoots) -> Result<Vec<NumaFacts>, FactsError> {
    let folder = roots.sys_root.join("devices/system/node");
    let numbers = numa_numbers(&folder)?;
    if numbers.is_empty() {
        // A kernel without NUMA: all memory is one node.
        let path = roots.proc_root.join("meminfo");
        let text = text(&path)?.unwrap_or_default();
        let memory =
            MemoryInfo::parse(text.as_bytes()).map_err(|source| FactsError::Text { path, source })?;
        return Ok(vec![NumaFacts { number: 0, memory, huge_pages: Vec::new() }]);
    }
    if !numbers.iter().copied().eq((0..).take(numbers.len())) {
        return Err(FactsError::NumaNumbers(numbers.into_iter().collect()));
    }
    numbers.into_iter().map(|number| numa_node(&folder.join(format!("node{number}")), number)).collect()
}

fn numa_numbers(folder: &Path) -> Result<BTreeSet<u32>, FactsError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(source) => return Err(FactsError::Read { path: folder.to_owned(), source }),
    };
    let mut numbers = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(|source| FactsError::Read { path: folder.to_owned(), source })?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("node"));
        if let Some(number) = digits.filter(|digits| digits.bytes().all(|octet| octet.is_ascii_digit())) {
            numbers.extend(number.parse::<u32>());
        }
    }
    let path = folder.join("has_generic_initiator");
    if let Some(text) = text(&path)?.filter(|text| !text.trim().is_empty()) {
        let devices = CpuSet::parse(&text).map_err(|source| FactsError::List { path, source })?;
        numbers.retain(|number| !devices.contains(*number));
    }
    Ok(numbers)
}

fn numa_node(folder: &Path, node: u32) -> Result<NumaFacts, FactsError> {
    let path = folder.join("meminfo");
    // A node without memory may have no such file.
    let memory = match text(&path)? {
        Some(text) => {
            MemoryInfo::parse(text.as_bytes()).map_err(|source| FactsError::Text { path, source })?
        }
        None => MemoryInfo::default(),
    };
    let mut huge_pages = Vec::new();
    for kilobytes in HUGE_PAGE_KILOBYTES {
        let path = folder.join(format!("hugepages/hugepages-{kilobytes}kB/nr_hugepages"));
        if let Some(text) = text(&path)? {
            let source = TextError::new("nr_hugepages", "number");
            let pages = number(text.as_bytes()).ok_or(FactsError::Text { path, source })?;
            huge_pages.push(HugePages { page_size: kilobytes * 1024, pages });
        }
    }
    Ok(NumaFacts { number: node, memory, huge_pages })
}

/// What changes when CPUs or NUMA nodes come and go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fingerprint {
    cpus: String,
    nodes: String,
}

impl Fingerprint {
    /// Reads the kernel's two lists. A list it does not have is empty.
    ///
    /// # Errors
    /// A list cannot be read.
    pub fn read(roots: &SystemRoots) -> Result<Fingerprint, FactsError> {
        let list = |path: &str| text(&roots.sys_root.join(path)).map(Option::unwrap_or_default);
        Ok(Fingerprint {
            cpus: list("devices/system/cpu/online")?,
            nodes: list("devices/system/node/online")?,
        })
    }
}

fn text(path: &Path) -> Result<Option<String>, FactsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FactsError::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests;
