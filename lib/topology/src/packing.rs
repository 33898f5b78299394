//! Takes CPUs for the system as the kubelet's CPU manager does: whole sockets, whole NUMA nodes, whole cores, then
//! single threads, always from where least is left.

use std::collections::BTreeMap;

use koord_extension::cpuset::CpuSet;

use crate::model::Topology;

/// More CPUs are wanted than there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} CPUs are wanted, {available} are available")]
pub struct NotEnoughCpus {
    /// How many were asked for.
    pub wanted: usize,
    /// How many there are.
    pub available: usize,
}

/// Takes `count` CPUs out of `available`.
///
/// While they fit into what is still needed: whole free sockets, then whole free NUMA nodes, then whole free
/// cores, then threads. Candidates are in the order of sockets, in them nodes, in them cores, in them threads, each
/// by free CPUs ascending, then by number. "Free" means that all CPUs that are online are available. This is what
/// kubelet 1.22 and later do under the static policy without further options.
pub fn take(topology: &Topology, available: &CpuSet, count: usize) -> Result<CpuSet, NotEnoughCpus> {
    let mut free = available.intersection(&topology.cpu_set());
    if count > free.len() {
        return Err(NotEnoughCpus { wanted: count, available: free.len() });
    }
    let mut taken = CpuSet::new();
    for stage in [Stage::Sockets, Stage::Nodes, Stage::Cores, Stage::Threads] {
        for candidate in stage.candidates(topology, &free) {
            if candidate.len() <= count - taken.len() {
                taken = taken.union(&candidate);
                free = free.difference(&candidate);
            }
        }
    }
    Ok(taken)
}

#[derive(Clone, Copy)]
enum Stage {
    Sockets,
    Nodes,
    Cores,
    Threads,
}

impl Stage {
    /// What may be taken as a whole, in order. No CPU is in two of them.
    fn candidates(self, topology: &Topology, free: &CpuSet) -> Vec<CpuSet> {
        let mut found = Vec::new();
        let everything = topology.cpu_set();
        for socket in ordered(topology.sockets(), &everything, free) {
            if let Stage::Sockets = self {
                found.extend(whole(socket, free));
                continue;
            }
            for node in ordered(topology.nodes(), socket, free) {
                if let Stage::Nodes = self {
                    // A node that spans sockets is whole only if all of it is free; it is met in each of them.
                    if let Some(node) = whole(node, free).filter(|node| !found.contains(node)) {
                        found.push(node);
                    }
                    continue;
                }
                let inside = node.intersection(socket);
                for core in ordered(topology.cores(), &inside, free) {
                    match self {
                        Stage::Cores => found.extend(whole(core, free)),
                        _ => found.extend(core.intersection(free).iter().map(|cpu| CpuSet::range(cpu, cpu))),
                    }
                }
            }
        }
        found
    }
}

fn whole(group: &CpuSet, free: &CpuSet) -> Option<CpuSet> {
    group.is_subset(free).then(|| group.clone())
}

/// The groups with a free CPU inside `inside`, those with fewest free CPUs first, then by number.
fn ordered<'a>(groups: &'a BTreeMap<u32, CpuSet>, inside: &CpuSet, free: &CpuSet) -> Vec<&'a CpuSet> {
    let inside = inside.intersection(free);
    let mut found: Vec<(usize, u32, &CpuSet)> = groups
        .iter()
        .filter(|(_, group)| !group.is_disjoint(&inside))
        .map(|(number, group)| (group.intersection(free).len(), *number, group))
        .collect();
    found.sort_unstable_by_key(|(left, number, _)| (*left, *number));
    found.into_iter().map(|(_, _, group)| group).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Cpu;

    /// One socket, cores 0 to 3; core i has CPUs i and i + 4.
    pub(crate) fn one_socket() -> Topology {
        Topology::new((0..8).map(|id| Cpu { id, core: id % 4, socket: 0, node: 0, cache: None }))
            .expect("a layout")
    }

    /// CPUs i and i + 6 are core i; even cores are in socket and node 0, odd ones in 1.
    pub(crate) fn two_sockets() -> Topology {
        Topology::new((0..12).map(|id| {
            let core = id % 6;
            Cpu { id, core, socket: core % 2, node: core % 2, cache: None }
        }))
        .expect("a layout")
    }

    fn taken(topology: &Topology, free: &str, count: usize) -> String {
        take(topology, &CpuSet::parse(free).expect("a list"), count).expect("enough").to_string()
    }

    #[test]
    fn as_the_kubelet_packs() {
        let (one, two) = (one_socket(), two_sockets());
        assert_eq!(taken(&two, "0-11", 0), "");
        assert_eq!(taken(&two, "0-11", 2), "0,6");
        assert_eq!(taken(&two, "0-11", 3), "0,2,6");
        // Socket 0 whole, then core 1.
        assert_eq!(taken(&two, "0-11", 8), "0-2,4,6-8,10");
        assert_eq!(taken(&two, "0-11", 12), "0-11");
        // The only whole core.
        assert_eq!(taken(&one, "0-3,6", 2), "2,6");
        // The core with fewest free threads.
        assert_eq!(taken(&one, "1,3,5-7", 1), "6");
    }

    #[test]
    fn the_fuller_socket_first() {
        let two = two_sockets();
        // Socket 1 has fewer free CPUs (1, 3, 7, 9), so its cores go first.
        assert_eq!(taken(&two, "0-4,6-10", 2), "1,7");
        // 0 is left of core 0; socket 0 has five free CPUs, socket 1 six.
        assert_eq!(taken(&two, "0-5,7-11", 1), "0");
    }

    #[test]
    fn more_than_there_is() {
        let two = two_sockets();
        let free = CpuSet::range(0, 2);
        assert_eq!(take(&two, &free, 4), Err(NotEnoughCpus { wanted: 4, available: 3 }));
        // CPUs the machine does not have are no help.
        assert_eq!(take(&two, &CpuSet::range(10, 20), 3), Err(NotEnoughCpus { wanted: 3, available: 2 }));
    }

    #[test]
    fn a_node_across_sockets_is_taken_once() {
        // Each CPU a socket of its own, as some virtual machines have it, and one NUMA node.
        let flat = Topology::new((0..4).map(|id| Cpu { id, core: id, socket: id, node: 0, cache: None }))
            .expect("a layout");
        assert_eq!(taken(&flat, "0-3", 3), "0-2");
    }

    proptest! {
        #[test]
        fn exactly_as_many_as_wanted_and_only_from_what_is_free(
            free in proptest::collection::btree_set(0_u32..16, 0..16),
            share in 0_usize..=100,
        ) {
            let topology = Topology::regular(2, 2, 2, 2).expect("a layout");
            let free: CpuSet = free.into_iter().collect();
            let count = free.len() * share / 100;
            let taken = take(&topology, &free, count).expect("enough");
            prop_assert_eq!(taken.len(), count);
            prop_assert!(taken.is_subset(&free));
        }
    }
}
