//! The node as rules see it, put together from the policy, the kernel, the machine and its pods.

use std::path::PathBuf;

use koord_crd::node_slo::EffectiveNodeSlo;
use koord_extension::cpuset::CpuSet;
use koord_extension::gates::Gates;
use koord_rules::{KernelView, KubeletCpuPolicy, NodeView, Options, Pool, SharePools};
use koord_topology::kubelet::CpuManagerState;
use koord_topology::model::Topology;
use koord_topology::pools::{self, PodCpus, PoolInput, SharePool};

use super::machine::Machine;
use super::probe::MachineRoots;

/// Everything about the node at one moment.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// What rules see.
    pub view: NodeView,
    /// All CPUs that are on.
    pub all_cpus: CpuSet,
}

/// What does not change while the process runs.
#[derive(Debug, Clone)]
pub struct Fixed {
    /// Where the machine describes itself.
    pub machine: MachineRoots,
    /// The CPUs; `None` where the machine does not tell them.
    pub topology: Option<Topology>,
    /// Rules switched on or off.
    pub gates: Gates,
    /// Choices of the operator.
    pub options: Options,
    /// The kubelet's directory.
    pub kubelet_dir: PathBuf,
}

/// A pod and the CPUs it has of its own, by the pod's UID.
pub(super) type OwnCpus = Vec<(String, PodCpus)>;

/// The pools in force, kept for the time when no CPU is left.
#[derive(Debug, Clone, Default)]
pub(super) struct LastPools(Option<pools::SharePools>);

impl Fixed {
    /// The state the kubelet's CPU manager has saved; `None` when there is none or it cannot be read.
    pub fn kubelet_state(&self) -> Option<CpuManagerState> {
        let file = self.kubelet_dir.join("cpu_manager_state");
        match CpuManagerState::read(&file) {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "state of the kubelet's CPU manager not used");
                None
            }
        }
    }

    /// Puts a node together.
    pub(super) fn node(
        &self,
        slo: EffectiveNodeSlo,
        kernel: KernelView,
        machine: &Machine,
        kubelet: Option<&CpuManagerState>,
        pods: &OwnCpus,
        last: &mut LastPools,
    ) -> Node {
        let mut view = NodeView::new(slo, self.gates, kernel);
        view.options = self.options.clone();
        view.devices = machine.devices.clone();
        view.disks = machine.disks.clone();
        view.allocatable_memory = machine.memory;
        view.kubelet_cpu_policy = Some(match kubelet {
            Some(state) if state.is_static() => KubeletCpuPolicy::Static,
            _ => KubeletCpuPolicy::None,
        });
        let mut all_cpus = CpuSet::new();
        if let Some(topology) = &self.topology {
            all_cpus = topology.cpu_set();
            let wanted = share_pools(topology, kubelet, pods);
            let (in_force, alarms) = pools::in_force(last.0.as_ref(), wanted);
            if last.0.as_ref() != Some(&in_force) {
                for alarm in alarms {
                    tracing::warn!(%alarm, "share pools");
                }
            }
            view.pools = SharePools {
                ls: rule_pools(&in_force.latency_sensitive),
                be: rule_pools(&in_force.best_effort),
            };
            last.0 = Some(in_force);
        }
        Node { view, all_cpus }
    }
}

fn share_pools(topology: &Topology, kubelet: Option<&CpuManagerState>, pods: &OwnCpus) -> pools::SharePools {
    let of_kubelet = kubelet
        .map(|state| {
            let find = |uid: &str| pods.iter().find(|(pod, _)| pod == uid).map(|(_, pod)| pod.clone());
            pools::kubelet_allocations(state, find)
                .into_iter()
                .fold(CpuSet::new(), |all, (_, cpus)| all.union(&cpus))
        })
        .unwrap_or_default();
    let pods: Vec<PodCpus> = pods.iter().map(|(_, pod)| pod.clone()).collect();
    pools::SharePools::of(&PoolInput {
        topology,
        kubelet: &of_kubelet,
        pods: &pods,
        reserved: &CpuSet::new(),
        system_exclusive: &CpuSet::new(),
    })
}

fn rule_pools(pools: &[SharePool]) -> Vec<Pool> {
    pools.iter().map(|pool| Pool { numa_node: i64::from(pool.node), cpus: pool.cpus.clone() }).collect()
}
