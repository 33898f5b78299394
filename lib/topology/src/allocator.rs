//! Picks CPUs for a pod that gets some of its own.
//!
//! The outcome depends on the arguments only, and it is the one Koordinator's scheduler has for them: two agents that
//! see the same state pick the same CPUs. [`take`] describes the order.

mod picker;

use std::collections::{BTreeMap, BTreeSet};

use koord_extension::annotation::{CpuBindPolicy, CpuExclusivePolicy, ResourceSpec};
use koord_extension::cpuset::CpuSet;
use koord_extension::units::MilliCpu;

use crate::model::Topology;
use picker::Picker;

/// How the CPUs of a pod lie on cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindPolicy {
    /// Whole cores, as long as there are some (`FullPCPUs`).
    FullPcpus,
    /// One thread of each core before the second of any (`SpreadByPCPUs`).
    SpreadByPcpus,
    /// No CPUs of its own: the pod may burst inside the shared pool of its NUMA nodes (`ConstrainedBurst`).
    ConstrainedBurst,
}

/// The bind policy of a pod, and how much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The policy.
    pub policy: BindPolicy,
    /// True if the pod is not placed where the policy cannot be met.
    pub is_required: bool,
}

impl Binding {
    /// The policy that a pod's annotation asks for: the required one, else the preferred one; `Default`, and a preferred
    /// one that is not stated, mean the scheduler's, and so does a word that is not known.
    pub fn of_pod(spec: &ResourceSpec, schedulers: BindPolicy) -> Binding {
        let is_required = spec.required_cpu_bind_policy != CpuBindPolicy::Unset;
        let stated =
            if is_required { &spec.required_cpu_bind_policy } else { &spec.preferred_cpu_bind_policy };
        let policy = match stated {
            CpuBindPolicy::Unset | CpuBindPolicy::Default | CpuBindPolicy::Other(_) => schedulers,
            CpuBindPolicy::FullPcpus => BindPolicy::FullPcpus,
            CpuBindPolicy::SpreadByPcpus => BindPolicy::SpreadByPcpus,
            CpuBindPolicy::ConstrainedBurst => BindPolicy::ConstrainedBurst,
        };
        Binding { policy, is_required }
    }
}

/// What a pod wants to have for itself, as far as possible.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExclusivePolicy {
    /// Nothing.
    #[default]
    None,
    /// No core together with another pod of this policy (`PCPULevel`).
    PcpuLevel,
    /// No NUMA node together with another pod of this policy (`NUMANodeLevel`).
    NumaNodeLevel,
}

/// A word that is not known excludes nothing.
impl From<&CpuExclusivePolicy> for ExclusivePolicy {
    fn from(policy: &CpuExclusivePolicy) -> ExclusivePolicy {
        match policy {
            CpuExclusivePolicy::Unset | CpuExclusivePolicy::None | CpuExclusivePolicy::Other(_) => {
                ExclusivePolicy::None
            }
            CpuExclusivePolicy::PcpuLevel => ExclusivePolicy::PcpuLevel,
            CpuExclusivePolicy::NumaNodeLevel => ExclusivePolicy::NumaNodeLevel,
        }
    }
}

/// Which NUMA node is tried first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NumaStrategy {
    /// The fullest that still has room.
    #[default]
    MostAllocated,
    /// The emptiest.
    LeastAllocated,
    /// The emptiest; a pod that fits into no single node is spread over as few as hold it, evenly
    /// ([`take_evenly`]).
    DistributeEvenly,
}

impl NumaStrategy {
    /// The strategy that the label `node.koordinator.sh/numa-allocate-strategy` names; absent for any other text.
    pub fn of_label(text: &str) -> Option<NumaStrategy> {
        match text {
            "MostAllocated" => Some(NumaStrategy::MostAllocated),
            "LeastAllocated" => Some(NumaStrategy::LeastAllocated),
            "DistributeEvenly" => Some(NumaStrategy::DistributeEvenly),
            _ => None,
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Number of CPUs.
    pub count: usize,
    /// How they lie on cores.
    pub bind: BindPolicy,
    /// What is to be avoided.
    pub exclusive: ExclusivePolicy,
    /// Which NUMA node comes first.
    pub strategy: NumaStrategy,
    /// Available CPUs to use before others: those of a reservation or of pods that are preempted for this one.
    pub preferred: &'a CpuSet,
}

/// Why CPUs were not picked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// Fewer are available than asked for.
    #[error("not enough cpus available to satisfy request: {wanted} wanted, {available} available")]
    NotEnough {
        /// How many were asked for.
        wanted: usize,
        /// How many there are.
        available: usize,
    },
    /// CPUs are given away whole.
    #[error("the requested CPUs must be integer")]
    NotInteger(MilliCpu),
}

/// The number of CPUs in a request; an error if it is no multiple of one CPU.
pub fn cpu_count(request: MilliCpu) -> Result<usize, TakeError> {
    match usize::try_from(request.get()) {
        Ok(milli) if milli % 1000 == 0 => Ok(milli / 1000),
        _ => Err(TakeError::NotInteger(request)),
    }
}

/// Which CPUs pods have, and on what terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocations {
    by_cpu: BTreeMap<u32, BTreeMap<ExclusivePolicy, u32>>,
}

impl Allocations {
    /// Adds the CPUs of one pod.
    pub fn add(&mut self, cpus: &CpuSet, exclusive: ExclusivePolicy) {
        for cpu in cpus.iter() {
            *self.by_cpu.entry(cpu).or_default().entry(exclusive).or_default() += 1;
        }
    }

    /// Takes the CPUs of one pod out again. CPUs that were not added under this policy are passed over.
    pub fn remove(&mut self, cpus: &CpuSet, exclusive: ExclusivePolicy) {
        for cpu in cpus.iter() {
            let Some(policies) = self.by_cpu.get_mut(&cpu) else { continue };
            if let Some(count) = policies.get_mut(&exclusive) {
                *count -= 1;
                if *count == 0 {
                    policies.remove(&exclusive);
                }
            }
            if policies.is_empty() {
                self.by_cpu.remove(&cpu);
            }
        }
    }

    /// How many pods have this CPU.
    pub fn references(&self, cpu: u32) -> u32 {
        self.by_cpu.get(&cpu).map_or(0, |policies| policies.values().sum())
    }

    /// CPUs that at least `references` pods have. An available CPU has fewer than the node's limit, which is 1 unless
    /// the node amplifies its CPUs.
    pub fn with_references(&self, references: u32) -> CpuSet {
        self.by_cpu.keys().copied().filter(|cpu| self.references(*cpu) >= references).collect()
    }

    /// CPUs of pods under this policy.
    fn under(&self, exclusive: ExclusivePolicy) -> impl Iterator<Item = u32> {
        self.by_cpu.iter().filter(move |(_, policies)| policies.contains_key(&exclusive)).map(|(cpu, _)| *cpu)
    }
}

/// The CPUs that pods may be given: all without those kept for others (pods of the kubelet, reservations of the
/// kubelet and of the node, exclusive CPUs of system daemons) and without those that have as many pods as a CPU may
/// have.
pub fn available(
    topology: &Topology,
    kept: &[&CpuSet],
    allocations: &Allocations,
    references_at_most: u32,
) -> CpuSet {
    kept.iter()
        .fold(topology.cpu_set(), |free, kept| free.difference(kept))
        .difference(&allocations.with_references(references_at_most))
}

/// Picks CPUs.
///
/// The preferred CPUs are used up before any other. In each of the two sets:
///
/// - Under `FullPCPUs`, and on machines with one thread per core: the first NUMA node whose whole free cores hold the
///   request, else the first such socket, else the sockets with most free cores, each as a whole if the request takes
///   it up, and the rest core by core from the others, those with least first.
/// - Under `SpreadByPCPUs`: the first NUMA node that holds the request with one thread per core and none avoided, else
///   the first that holds it at all, else the same with sockets.
/// - What is still missing comes from everywhere: first where CPUs were already taken, then by strategy.
///
/// "First" is by strategy: the fullest or the emptiest, then the one in the fullest or emptiest socket, then by
/// number. Nodes and cores that the exclusive policy avoids are used only if there is no other way.
///
/// `ConstrainedBurst` gets no CPUs.
pub fn take(
    topology: &Topology,
    available: &CpuSet,
    allocations: &Allocations,
    request: &Request<'_>,
) -> Result<CpuSet, TakeError> {
    if request.bind == BindPolicy::ConstrainedBurst {
        return Ok(CpuSet::new());
    }
    let available = enough(&available.intersection(&topology.cpu_set()), request.count)?;
    let preferred = available.intersection(request.preferred);
    let first = request.count.min(preferred.len());
    let others = available.difference(&preferred);
    let pick = |free: CpuSet, count: usize| {
        if request.strategy == NumaStrategy::DistributeEvenly
            && let Some(nodes) = nodes_to_share(topology, &free, count)
        {
            return pick_evenly(topology, &free, allocations, request, count, &nodes);
        }
        Picker::new(topology, free, allocations, request).pick(count)
    };
    let taken = pick(preferred, first);
    Ok(taken.union(&pick(others, request.count - first)))
}

/// Picks CPUs in these NUMA nodes, as nearly the same number in each as free CPUs allow. Under `FullPCPUs` shares are
/// whole cores, except for what is left at the end. Nodes that cannot give their share give what they have.
/// Preferred CPUs are used up before any other.
pub fn take_evenly(
    topology: &Topology,
    available: &CpuSet,
    allocations: &Allocations,
    request: &Request<'_>,
    nodes: &BTreeSet<u32>,
) -> Result<CpuSet, TakeError> {
    if request.bind == BindPolicy::ConstrainedBurst {
        return Ok(CpuSet::new());
    }
    let inside = topology
        .nodes()
        .iter()
        .filter(|(node, _)| nodes.contains(node))
        .fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus));
    let available = enough(&available.intersection(&inside), request.count)?;
    let preferred = available.intersection(request.preferred);
    let first = request.count.min(preferred.len());
    let others = available.difference(&preferred);
    let taken = pick_evenly(topology, &preferred, allocations, request, first, nodes);
    let rest = pick_evenly(topology, &others, allocations, request, request.count - first, nodes);
    Ok(taken.union(&rest))
}

fn enough(available: &CpuSet, wanted: usize) -> Result<CpuSet, TakeError> {
    if wanted > available.len() {
        return Err(TakeError::NotEnough { wanted, available: available.len() });
    }
    Ok(available.clone())
}

/// The fewest NUMA nodes that hold `count` free CPUs together, those with most free CPUs first, then by number;
/// `None` if one is enough.
fn nodes_to_share(topology: &Topology, free: &CpuSet, count: usize) -> Option<BTreeSet<u32>> {
    let mut nodes: Vec<(usize, u32)> =
        topology.nodes().iter().map(|(node, cpus)| (cpus.intersection(free).len(), *node)).collect();
    nodes.sort_unstable_by(|(left, node), (right, other)| right.cmp(left).then(node.cmp(other)));
    let mut chosen = BTreeSet::new();
    let mut room = 0;
    for (free, node) in nodes {
        if room >= count {
            break;
        }
        room += free;
        chosen.insert(node);
    }
    (chosen.len() > 1).then_some(chosen)
}

fn pick_evenly(
    topology: &Topology,
    free: &CpuSet,
    allocations: &Allocations,
    request: &Request<'_>,
    count: usize,
    nodes: &BTreeSet<u32>,
) -> CpuSet {
    let rooms: BTreeMap<u32, CpuSet> = topology
        .nodes()
        .iter()
        .filter(|(node, _)| nodes.contains(node))
        .map(|(node, cpus)| (*node, cpus.intersection(free)))
        .collect();
    let unit = match request.bind {
        BindPolicy::FullPcpus => topology.cpus_per_core().max(1),
        _ => 1,
    };
    let sizes: Vec<(u32, usize)> = rooms.iter().map(|(node, room)| (*node, room.len())).collect();
    let shares = even_shares(&sizes, count, unit);
    rooms.iter().fold(CpuSet::new(), |taken, (node, room)| {
        let share = shares.get(node).copied().unwrap_or(0);
        taken.union(&Picker::new(topology, room.clone(), allocations, request).pick(share))
    })
}

/// Splits `count` over rooms of these sizes. Small rooms choose first, so that large ones make up for them.
fn even_shares(rooms: &[(u32, usize)], count: usize, unit: usize) -> BTreeMap<u32, usize> {
    let mut order: Vec<(usize, u32)> = rooms.iter().map(|(node, size)| (*size, *node)).collect();
    order.sort_unstable();
    let mut left = count;
    let mut shares = BTreeMap::new();
    for (index, (size, node)) in order.iter().enumerate() {
        let share = left / (order.len() - index);
        // Threads of a core stay together; the last room takes what does not divide.
        let whole = if index + 1 == order.len() { share } else { share - share % unit };
        let given = whole.min(*size);
        shares.insert(*node, given);
        left -= given;
    }
    for (size, node) in order.iter().rev() {
        if let Some(share) = shares.get_mut(node) {
            let more = left.min(size - *share);
            *share += more;
            left -= more;
        }
    }
    shares
}

#[cfg(test)]
mod tests;
