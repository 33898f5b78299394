//! CPUs and memory of the machine, as the NodeResourceTopology tells of them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use koord_extension::annotation::CpuBasicInfo;
use koord_extension::units::Bytes;
use koord_topology::Topology;
use koord_topology::processor::Processor;
use koord_topology::sysfs::{self, SysfsError};
use koord_topology_report::zones::NumaMemory;

/// What a look at the machine gave.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    /// The CPUs.
    pub topology: Topology,
    /// Their model and abilities.
    pub processor: CpuBasicInfo,
    /// Memory by NUMA node.
    pub memory: BTreeMap<u32, NumaMemory>,
}

/// Why there are no facts.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The CPUs cannot be read.
    #[error("cannot read the CPUs of the machine")]
    Cpus(#[from] SysfsError),
    /// A file cannot be read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: String,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// A file is not as the kernel writes it.
    #[error("{path}: {problem}")]
    Content {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

impl FactsError {
    /// Whether it is about the memory of NUMA nodes, not about CPUs.
    pub fn is_of_numa(&self) -> bool {
        !matches!(self, FactsError::Cpus(_))
    }
}

fn text(path: &Path) -> Result<String, FactsError> {
    std::fs::read_to_string(path)
        .map_err(|source| FactsError::File { path: path.display().to_string(), source })
}

/// `MemTotal` of a NUMA node's `meminfo`, whose lines are `Node 0 MemTotal:  1048576 kB`, or of `/proc/meminfo`.
fn total_memory(content: &str) -> Option<Bytes> {
    let line = content.lines().find(|line| line.split_whitespace().any(|word| word == "MemTotal:"))?;
    let kib: i64 = line.split_once("MemTotal:")?.1.split_whitespace().next()?.parse().ok()?;
    Some(Bytes(kib.checked_mul(1024)?))
}

/// Bytes of the huge pages of one size on a NUMA node; a kernel without such pages has none.
fn huge_pages(node: &Path, kib: i64) -> Bytes {
    let file = node.join(format!("hugepages/hugepages-{kib}kB/nr_hugepages"));
    let count: i64 =
        std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Bytes(count.saturating_mul(kib).saturating_mul(1024))
}

/// Reads memory of the NUMA nodes that the topology has.
fn memory(
    topology: &Topology,
    proc_root: &Path,
    sys_root: &Path,
) -> Result<BTreeMap<u32, NumaMemory>, FactsError> {
    let folder = sys_root.join("devices/system/node");
    let mut memory = BTreeMap::new();
    let numbers: Vec<u32> =
        topology.nodes().keys().copied().chain(topology.memory_only_nodes().iter().copied()).collect();
    for number in numbers {
        let node = folder.join(format!("node{number}"));
        let mut path = node.join("meminfo");
        // A kernel without NUMA has no such folder, and all memory is in the one node.
        if !folder.exists() {
            path = proc_root.join("meminfo");
        }
        let total = total_memory(&text(&path)?).ok_or_else(|| FactsError::Content {
            path: path.display().to_string(),
            problem: "there is no MemTotal in kB".to_owned(),
        })?;
        memory.insert(
            number,
            NumaMemory {
                total,
                huge_pages_1gi: huge_pages(&node, 1_048_576),
                huge_pages_2mi: huge_pages(&node, 2048),
            },
        );
    }
    Ok(memory)
}

/// Looks at the machine.
///
/// # Errors
/// Something that must be known cannot be.
pub fn look(proc_root: &Path, sys_root: &Path, sys_fs_root: &Path) -> Result<NodeFacts, FactsError> {
    let topology = sysfs::read(sys_root)?;
    let cpuinfo = text(&proc_root.join("cpuinfo"))?;
    let mask = std::fs::read_to_string(sys_fs_root.join("resctrl/info/L3/cbm_mask")).unwrap_or_default();
    let processor = koord_topology::report::cpu_basic_info(
        &Processor::parse(&cpuinfo),
        &topology,
        sysfs::smt_active(sys_root).unwrap_or_default(),
        turbo(sys_root),
        mask.trim(),
    );
    let memory = memory(&topology, proc_root, sys_root)?;
    Ok(NodeFacts { topology, processor, memory })
}

/// Whether the processor may exceed its nominal frequency: Intel's driver has a file for no, others one for yes.
fn turbo(sys_root: &Path) -> Option<bool> {
    sysfs::turbo_enabled(sys_root).unwrap_or_default().or_else(|| {
        let boost = std::fs::read_to_string(sys_root.join("devices/system/cpu/cpufreq/boost")).ok()?;
        Some(boost.trim() == "1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, content).expect("written");
    }

    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        write(root, "proc/cpuinfo", "processor : 0\nvendor_id : AuthenticAMD\nmodel name : EPYC\n");
        write(root, "proc/meminfo", "MemTotal: 4 kB\n");
        write(root, "sys/devices/system/cpu/online", "0-3\n");
        write(root, "sys/devices/system/cpu/cpufreq/boost", "1\n");
        for cpu in 0..4 {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            write(root, &format!("{folder}/core_cpus_list"), &format!("{cpu}\n"));
            write(root, &format!("{folder}/physical_package_id"), "0\n");
        }
        folder
    }

    fn see(folder: &tempfile::TempDir) -> Result<NodeFacts, FactsError> {
        let root = folder.path();
        look(&root.join("proc"), &root.join("sys"), &root.join("sys/fs"))
    }

    #[test]
    fn a_machine_without_numa_has_all_memory_in_one_node() {
        let facts = see(&machine()).expect("facts");
        assert_eq!(facts.topology.cpus().len(), 4);
        assert_eq!(facts.memory.get(&0).map(|memory| memory.total), Some(Bytes(4096)));
        assert_eq!(facts.processor.vendor_id, "AuthenticAMD");
        assert!(facts.processor.turbo_enabled, "the boost file counts where Intel's is missing");
    }

    #[test]
    fn memory_and_huge_pages_of_each_numa_node() {
        let machine = machine();
        let root = machine.path();
        write(root, "sys/devices/system/node/online", "0-1\n");
        for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
            let folder = format!("sys/devices/system/node/node{node}");
            write(root, &format!("{folder}/cpulist"), &format!("{cpus}\n"));
            write(
                root,
                &format!("{folder}/meminfo"),
                &format!("Node {node} MemTotal:  {} kB\n", 1024 * (node + 1)),
            );
            write(root, &format!("{folder}/hugepages/hugepages-2048kB/nr_hugepages"), "3\n");
        }
        let facts = see(&machine).expect("facts");
        let totals: Vec<i64> = facts.memory.values().map(|memory| memory.total.get()).collect();
        assert_eq!(totals, [1_048_576, 2_097_152]);
        assert_eq!(facts.memory.get(&1).map(|memory| memory.huge_pages_2mi), Some(Bytes(6_291_456)));

        write(root, "sys/devices/system/node/node1/meminfo", "Node 1 MemFree: 1 kB\n");
        let error = see(&machine).expect_err("no total");
        assert!(error.is_of_numa() && error.to_string().contains("node1/meminfo"), "{error}");
    }
}
