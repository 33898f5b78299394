//! Picks CPUs out of one set of free ones.

use std::collections::{BTreeMap, BTreeSet};

use koord_extension::cpuset::CpuSet;

use super::{Allocations, BindPolicy, ExclusivePolicy, NumaStrategy, Request};
use crate::model::{Cpu, Topology};

/// Whether what the exclusive policy avoids is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Avoidance {
    On,
    Off,
}

const FIRST_WITH_AVOIDANCE: [Avoidance; 2] = [Avoidance::On, Avoidance::Off];

/// Groups that CPUs are looked for in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Node,
    Socket,
}

impl Scope {
    fn of(self, cpu: &Cpu) -> u32 {
        match self {
            Scope::Node => cpu.node,
            Scope::Socket => cpu.socket,
        }
    }
}

/// A core and its threads.
type Core = (u32, Vec<u32>);

pub(super) struct Picker<'a> {
    topology: &'a Topology,
    allocations: &'a Allocations,
    bind: BindPolicy,
    strategy: NumaStrategy,
    avoided_cores: BTreeSet<u32>,
    avoided_nodes: BTreeSet<u32>,
    /// Whole cores are told by it, even when some of their CPUs are not among the free ones.
    free: CpuSet,
    taken: CpuSet,
    needed: usize,
}

impl<'a> Picker<'a> {
    pub(super) fn new(
        topology: &'a Topology,
        free: CpuSet,
        allocations: &'a Allocations,
        request: &Request<'_>,
    ) -> Picker<'a> {
        let of_others = |policy, key: fn(&Cpu) -> u32| -> BTreeSet<u32> {
            if request.exclusive != policy {
                return BTreeSet::new();
            }
            allocations.under(policy).filter_map(|cpu| topology.cpu(cpu)).map(key).collect()
        };
        Picker {
            topology,
            allocations,
            bind: request.bind,
            strategy: request.strategy,
            avoided_cores: of_others(ExclusivePolicy::PcpuLevel, |cpu| cpu.core),
            avoided_nodes: of_others(ExclusivePolicy::NumaNodeLevel, |cpu| cpu.node),
            free,
            taken: CpuSet::new(),
            needed: 0,
        }
    }

    /// Picks `count` CPUs, or all if there are fewer.
    pub(super) fn pick(mut self, count: usize) -> CpuSet {
        self.needed = count.min(self.free.len());
        let full_cores = self.bind == BindPolicy::FullPcpus;
        if full_cores || self.topology.cpus_per_core() == 1 {
            self.pick_whole_cores();
        }
        if !full_cores {
            self.pick_spread();
        }
        self.pick_anywhere();
        self.taken
    }

    fn take(&mut self, cpus: &[u32]) {
        for cpu in cpus.iter().take(self.needed) {
            self.taken.insert(*cpu);
            self.free.remove(*cpu);
        }
        self.needed -= cpus.len().min(self.needed);
    }

    /// Free CPUs in order of their number, with or without those to avoid.
    fn eligible(&self, avoidance: Avoidance) -> Vec<Cpu> {
        let avoided = |cpu: &Cpu| {
            avoidance == Avoidance::On
                && (self.avoided_cores.contains(&cpu.core) || self.avoided_nodes.contains(&cpu.node))
        };
        self.free.iter().filter_map(|id| self.topology.cpu(id)).copied().filter(|cpu| !avoided(cpu)).collect()
    }

    /// A number that sorts ascending into the order of the strategy.
    fn rank(&self, free: usize) -> usize {
        match self.strategy {
            NumaStrategy::MostAllocated => free,
            NumaStrategy::LeastAllocated | NumaStrategy::DistributeEvenly => usize::MAX - free,
        }
    }

    fn references(&self, cpus: &[u32]) -> u32 {
        cpus.iter().map(|cpu| self.allocations.references(*cpu)).sum()
    }

    fn pick_whole_cores(&mut self) {
        if self.needed <= self.topology.largest_node() && self.needed > 0 {
            for avoidance in FIRST_WITH_AVOIDANCE {
                if self.take_from_first(&self.whole_cores(Scope::Node, avoidance)) {
                    return;
                }
            }
        }
        let mut sockets = self.whole_cores(Scope::Socket, Avoidance::Off);
        if self.needed <= self.topology.largest_socket() && self.take_from_first(&sockets) {
            return;
        }
        // The request does not fit into one group any more: as few sockets as possible, whatever the strategy.
        sockets.sort_by_key(|cores| usize::MAX - size(cores));
        let mut partial = Vec::new();
        for cores in sockets {
            if self.needed >= size(&cores) {
                self.take(&cores.concat());
            } else {
                partial.push(cores);
            }
        }
        partial.sort_by_key(|cores| size(cores));
        for core in partial.iter().flatten() {
            if self.needed >= core.len() {
                self.take(core);
            }
        }
    }

    fn take_from_first(&mut self, groups: &[Vec<Vec<u32>>]) -> bool {
        let Some(cores) = groups.iter().find(|cores| size(cores) >= self.needed) else { return false };
        self.take(&cores.concat());
        true
    }

    /// The cores that are free with all their threads, by group in order; cores with more threads first, then those
    /// with fewer pods, then by number.
    fn whole_cores(&self, scope: Scope, avoidance: Avoidance) -> Vec<Vec<Vec<u32>>> {
        let eligible = self.eligible(avoidance);
        let free_in_socket = counted(&eligible, |cpu| cpu.socket);
        let mut cores: BTreeMap<u32, Vec<Cpu>> = BTreeMap::new();
        for cpu in eligible {
            cores.entry(cpu.core).or_default().push(cpu);
        }
        let mut groups: BTreeMap<u32, (u32, Vec<Core>)> = BTreeMap::new();
        for (core, cpus) in cores {
            let is_whole = self.topology.cores().get(&core).is_some_and(|all| all.len() == cpus.len());
            let Some(first) = cpus.first().filter(|_| is_whole) else { continue };
            let (_, cores) = groups.entry(scope.of(first)).or_insert_with(|| (first.socket, Vec::new()));
            cores.push((core, cpus.iter().map(|cpu| cpu.id).collect()));
        }
        let mut ordered: Vec<_> = groups
            .into_iter()
            .map(|(group, (socket, mut cores))| {
                cores.sort_by_key(|(core, cpus)| (usize::MAX - cpus.len(), self.references(cpus), *core));
                let cores: Vec<Vec<u32>> = cores.into_iter().map(|(_, cpus)| cpus).collect();
                let in_socket = match scope {
                    Scope::Node => free_in_socket.get(&socket).copied().unwrap_or(0),
                    Scope::Socket => 0,
                };
                ((self.rank(size(&cores)), self.rank(in_socket), group), cores)
            })
            .collect();
        ordered.sort_unstable_by_key(|(key, _)| *key);
        ordered.into_iter().map(|(_, cores)| cores).collect()
    }

    fn pick_spread(&mut self) {
        for (scope, largest) in
            [(Scope::Node, self.topology.largest_node()), (Scope::Socket, self.topology.largest_socket())]
        {
            if self.needed == 0 || self.needed > largest {
                continue;
            }
            for avoidance in FIRST_WITH_AVOIDANCE {
                let groups = self.threads(scope, avoidance);
                if let Some(cpus) = groups.iter().find(|cpus| cpus.len() >= self.needed) {
                    self.take(&self.round_robin(cpus));
                    return;
                }
            }
        }
    }

    /// Free CPUs by group in order; those with fewer pods first, then by number. With avoidance, one of each core.
    fn threads(&self, scope: Scope, avoidance: Avoidance) -> Vec<Vec<u32>> {
        let eligible = self.eligible(avoidance);
        let free_in_node = counted(&eligible, |cpu| cpu.node);
        let free_in_socket = counted(&eligible, |cpu| cpu.socket);
        let mut groups: BTreeMap<u32, Vec<Cpu>> = BTreeMap::new();
        for cpu in eligible {
            groups.entry(scope.of(&cpu)).or_default().push(cpu);
        }
        let mut ordered: Vec<_> = groups
            .into_iter()
            .map(|(group, mut cpus)| {
                cpus.sort_by_key(|cpu| (self.allocations.references(cpu.id), cpu.id));
                if avoidance == Avoidance::On {
                    let mut cores = BTreeSet::new();
                    cpus.retain(|cpu| cores.insert(cpu.core));
                }
                // Nodes count all their free CPUs, sockets only what is left to choose from.
                let key = match scope {
                    Scope::Node => {
                        let socket = cpus.first().and_then(|cpu| free_in_socket.get(&cpu.socket));
                        let node = free_in_node.get(&group).copied().unwrap_or(0);
                        (self.rank(node), self.rank(socket.copied().unwrap_or(0)), group)
                    }
                    Scope::Socket => (self.rank(cpus.len()), 0, group),
                };
                (key, cpus.iter().map(|cpu| cpu.id).collect())
            })
            .collect();
        ordered.sort_unstable_by_key(|(key, _): &(_, Vec<u32>)| *key);
        ordered.into_iter().map(|(_, cpus)| cpus).collect()
    }

    fn pick_anywhere(&mut self) {
        for avoidance in FIRST_WITH_AVOIDANCE {
            if self.needed == 0 {
                return;
            }
            let cpus = self.round_robin(&self.by_closeness(avoidance));
            self.take(&cpus);
        }
    }

    /// All free CPUs, core by core: first where CPUs were taken already, then by strategy, then cores that are in use
    /// anyway.
    fn by_closeness(&self, avoidance: Avoidance) -> Vec<u32> {
        let eligible = self.eligible(avoidance);
        let free_in_node = counted(&eligible, |cpu| cpu.node);
        let free_in_socket = counted(&eligible, |cpu| cpu.socket);
        let taken: Vec<Cpu> = self.taken.iter().filter_map(|cpu| self.topology.cpu(cpu)).copied().collect();
        let taken_in_socket = counted(&taken, |cpu| cpu.socket);
        let mut cores: BTreeMap<u32, Vec<Cpu>> = BTreeMap::new();
        for cpu in eligible {
            cores.entry(cpu.core).or_default().push(cpu);
        }
        let mut ordered = Vec::new();
        for (core, mut cpus) in cores {
            let Some(first) = cpus.first().copied() else { continue };
            let of = |counts: &BTreeMap<u32, usize>, key| counts.get(&key).copied().unwrap_or(0);
            let ids: Vec<u32> = cpus.iter().map(|cpu| cpu.id).collect();
            let key = (
                usize::MAX - of(&taken_in_socket, first.socket),
                self.rank(of(&free_in_socket, first.socket)),
                self.rank(of(&free_in_node, first.node)),
                cpus.len(),
                first.socket,
                self.references(&ids),
                core,
            );
            cpus.sort_by_key(|cpu| (self.allocations.references(cpu.id), cpu.id));
            ordered.push((key, cpus));
        }
        ordered.sort_unstable_by_key(|(key, _)| *key);
        ordered.into_iter().flat_map(|(_, cpus)| cpus).map(|cpu| cpu.id).collect()
    }

    /// The first CPU of each core, then the second of each, and so on; cores in the order of their first CPU.
    fn round_robin(&self, cpus: &[u32]) -> Vec<u32> {
        let mut turns: BTreeMap<u32, usize> = BTreeMap::new();
        let mut arranged: Vec<(usize, u32)> = cpus
            .iter()
            .filter_map(|cpu| self.topology.cpu(*cpu))
            .map(|cpu| {
                let turn = turns.entry(cpu.core).or_insert(0);
                *turn += 1;
                (*turn, cpu.id)
            })
            .collect();
        arranged.sort_by_key(|(turn, _)| *turn);
        arranged.into_iter().map(|(_, cpu)| cpu).collect()
    }
}

fn size(cores: &[Vec<u32>]) -> usize {
    cores.iter().map(Vec::len).sum()
}

fn counted(cpus: &[Cpu], key: impl Fn(&Cpu) -> u32) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for cpu in cpus {
        *counts.entry(key(cpu)).or_insert(0) += 1;
    }
    counts
}
