//! The layout of a machine's CPUs as a value.

use std::collections::{BTreeMap, BTreeSet};

use koord_extension::cpuset::CpuSet;

/// One logical CPU that is online.
///
/// Numbers of cores and sockets are unique on the whole machine and count from 0 in the order of the lowest CPU
/// in them, as `lscpu` prints them; the hardware's own numbers repeat from socket to socket and have gaps.
/// Numbers of CPUs, NUMA nodes and caches are the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu {
    /// The kernel's number of the CPU.
    pub id: u32,
    /// Physical core.
    pub core: u32,
    /// Socket (physical package).
    pub socket: u32,
    /// NUMA node; 0 where the kernel knows none.
    pub node: u32,
    /// The kernel's id of the last level (L3) cache, if there is one. It is the domain id of `resctrl`.
    pub cache: Option<u32>,
}

/// Why a list of CPUs is no layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// There must be at least one CPU.
    #[error("no CPU")]
    Empty,
    /// A CPU is there twice.
    #[error("CPU {0} is listed twice")]
    DuplicateCpu(u32),
    /// CPUs of one core are said to be in different sockets.
    #[error("core {core} has CPUs in sockets {first} and {second}; a core is in one socket")]
    CoreInTwoSockets {
        /// The core.
        core: u32,
        /// One socket.
        first: u32,
        /// The other one.
        second: u32,
    },
}

/// The layout of a machine: its CPUs and how they are grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Ascending by id.
    cpus: Vec<Cpu>,
    cores: BTreeMap<u32, CpuSet>,
    sockets: BTreeMap<u32, CpuSet>,
    nodes: BTreeMap<u32, CpuSet>,
    caches: BTreeMap<u32, CpuSet>,
    memory_only_nodes: BTreeSet<u32>,
}

impl Topology {
    /// A layout of these CPUs. Their order does not matter.
    pub fn new(cpus: impl IntoIterator<Item = Cpu>) -> Result<Topology, TopologyError> {
        let mut cpus: Vec<Cpu> = cpus.into_iter().collect();
        cpus.sort_unstable();
        if cpus.is_empty() {
            return Err(TopologyError::Empty);
        }
        if let Some(twice) = cpus.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(TopologyError::DuplicateCpu(twice[0].id));
        }
        let mut socket_of_core = BTreeMap::new();
        for cpu in &cpus {
            let first = *socket_of_core.entry(cpu.core).or_insert(cpu.socket);
            if first != cpu.socket {
                return Err(TopologyError::CoreInTwoSockets { core: cpu.core, first, second: cpu.socket });
            }
        }
        Ok(Topology {
            cores: grouped(&cpus, |cpu| Some(cpu.core)),
            sockets: grouped(&cpus, |cpu| Some(cpu.socket)),
            nodes: grouped(&cpus, |cpu| Some(cpu.node)),
            caches: grouped(&cpus, |cpu| cpu.cache),
            memory_only_nodes: BTreeSet::new(),
            cpus,
        })
    }

    /// The same layout with NUMA nodes that have memory and no CPU (CXL memory, persistent memory, offline
    /// sockets). Nodes that have a CPU are left out.
    #[must_use]
    pub fn with_memory_only_nodes(mut self, nodes: impl IntoIterator<Item = u32>) -> Topology {
        self.memory_only_nodes = nodes.into_iter().filter(|node| !self.nodes.contains_key(node)).collect();
        self
    }

    /// A machine in which everything is full and numbers run through threads, cores, NUMA nodes and sockets.
    /// Each socket has one cache. For simulations and tests.
    pub fn regular(
        sockets: u32,
        nodes_per_socket: u32,
        cores_per_node: u32,
        threads_per_core: u32,
    ) -> Result<Topology, TopologyError> {
        let threads_per_node = cores_per_node.saturating_mul(threads_per_core);
        let threads_per_socket = threads_per_node.saturating_mul(nodes_per_socket);
        Topology::new((0..threads_per_socket.saturating_mul(sockets)).map(|id| {
            let socket = id / threads_per_socket;
            Cpu { id, core: id / threads_per_core, socket, node: id / threads_per_node, cache: Some(socket) }
        }))
    }

    /// All CPUs, ascending by id.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// One CPU, if it is online.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().and_then(|index| self.cpus.get(index))
    }

    /// The ids of all CPUs.
    pub fn cpu_set(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// CPUs by core.
    pub fn cores(&self) -> &BTreeMap<u32, CpuSet> {
        &self.cores
    }

    /// CPUs by socket.
    pub fn sockets(&self) -> &BTreeMap<u32, CpuSet> {
        &self.sockets
    }

    /// CPUs by NUMA node. Nodes without CPUs are not in it.
    pub fn nodes(&self) -> &BTreeMap<u32, CpuSet> {
        &self.nodes
    }

    /// CPUs by L3 cache, under the kernel's id of the cache. CPUs without one are not in it.
    pub fn caches(&self) -> &BTreeMap<u32, CpuSet> {
        &self.caches
    }

    /// NUMA nodes that have memory and no CPU.
    pub fn memory_only_nodes(&self) -> &BTreeSet<u32> {
        &self.memory_only_nodes
    }

    /// Threads of a core as Koordinator counts them: CPUs by cores, rounded down. Where some threads are offline
    /// this is less than the hardware has.
    pub fn cpus_per_core(&self) -> usize {
        self.cpus.len().checked_div(self.cores.len()).unwrap_or(0)
    }

    /// CPUs of the largest NUMA node.
    pub fn largest_node(&self) -> usize {
        self.nodes.values().map(CpuSet::len).max().unwrap_or(0)
    }

    /// CPUs of the largest socket.
    pub fn largest_socket(&self) -> usize {
        self.sockets.values().map(CpuSet::len).max().unwrap_or(0)
    }
}

fn grouped(cpus: &[Cpu], key: impl Fn(&Cpu) -> Option<u32>) -> BTreeMap<u32, CpuSet> {
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in cpus {
        if let Some(key) = key(cpu) {
            groups.entry(key).or_default().push(cpu.id);
        }
    }
    groups.into_iter().map(|(key, ids)| (key, ids.into_iter().collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(id: u32, core: u32, socket: u32) -> Cpu {
        Cpu { id, core, socket, node: socket, cache: None }
    }

    #[test]
    fn a_regular_machine_is_numbered_through() {
        let topology = Topology::regular(2, 2, 2, 2).expect("a layout");
        let last = Cpu { id: 15, core: 7, socket: 1, node: 3, cache: Some(1) };
        assert_eq!(topology.cpus().last(), Some(&last));
        assert_eq!(topology.cpu(15), Some(&last));
        assert_eq!(topology.cpu(16), None);
        assert_eq!(topology.nodes()[&2].to_string(), "8-11");
        assert_eq!(topology.sockets()[&1].to_string(), "8-15");
        assert_eq!(topology.cores()[&3].to_string(), "6-7");
        assert_eq!(topology.caches()[&0].to_string(), "0-7");
        assert_eq!((topology.cpus_per_core(), topology.largest_node(), topology.largest_socket()), (2, 4, 8));
        assert_eq!(topology.cpu_set().to_string(), "0-15");
    }

    #[test]
    fn what_is_no_layout() {
        assert_eq!(Topology::new([]), Err(TopologyError::Empty));
        assert_eq!(Topology::regular(1, 1, 0, 2), Err(TopologyError::Empty));
        let twice = [cpu(1, 0, 0), cpu(2, 1, 0), cpu(1, 2, 0)];
        assert_eq!(Topology::new(twice), Err(TopologyError::DuplicateCpu(1)));
        let split = [cpu(0, 0, 0), cpu(1, 0, 1)];
        assert_eq!(
            Topology::new(split),
            Err(TopologyError::CoreInTwoSockets { core: 0, first: 0, second: 1 })
        );
    }

    #[test]
    fn nodes_with_a_cpu_are_not_memory_only() {
        let topology = Topology::new([cpu(0, 0, 0)]).expect("a layout").with_memory_only_nodes([0, 2]);
        assert_eq!(topology.memory_only_nodes(), &BTreeSet::from([2]));
    }
}
