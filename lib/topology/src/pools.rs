//! Share pools: the CPUs that pods without CPUs of their own run on.
//!
//! There are two. The *LS pool* is what latency-sensitive pods share: no CPU in it belongs to any pod. The *BE pool*
//! is what best-effort pods share: the LS pool and the CPUs of LSR pods, which lend them.

use std::collections::BTreeMap;

use koord_extension::cpuset::CpuSet;
use koord_extension::qos::QosClass;

use crate::kubelet::CpuManagerState;
use crate::model::Topology;

/// What the pools of a node are computed from.
#[derive(Debug, Clone, Copy)]
pub struct PoolInput<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// CPUs the kubelet has given to pods that it manages (see [`kubelet_allocations`]). Leave it empty if the
    /// kubelet is not to be asked. CPUs that the kubelet keeps for the system stay in the pools.
    pub kubelet: &'a CpuSet,
    /// The pods that a scheduler has given CPUs to (annotation `scheduling.koordinator.sh/resource-status`).
    pub pods: &'a [PodCpus],
    /// CPUs of the node reservation.
    pub reserved: &'a CpuSet,
    /// CPUs of system daemons, if they are exclusive.
    pub system_exclusive: &'a CpuSet,
}

/// A pod with CPUs of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCpus {
    /// The QoS class that its label says.
    pub qos: Option<QosClass>,
    /// `cpuset` of its resource status.
    pub cpus: CpuSet,
}

/// The shared CPUs of one NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharePool {
    /// The socket of the node's lowest CPU. Where a node spans sockets, any other choice would vary.
    pub socket: u32,
    /// The NUMA node.
    pub node: u32,
    /// Its shared CPUs. May be empty.
    pub cpus: CpuSet,
}

/// Both pools of a machine, each ascending by socket and node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharePools {
    /// Shared by pods of class LS and pods without a class.
    pub latency_sensitive: Vec<SharePool>,
    /// Shared by pods of class BE.
    pub best_effort: Vec<SharePool>,
}

impl SharePools {
    /// Computes both pools.
    ///
    /// LS: all CPUs without those of the kubelet's pods and of every pod with CPUs of its own. BE: the same, but of
    /// pods with CPUs of their own only those of class LSE. From both, reserved CPUs and exclusive CPUs of system
    /// daemons are taken last. A NUMA node that has nothing left before that last step has no entry; one that loses
    /// everything in it has an empty entry.
    pub fn of(input: &PoolInput<'_>) -> SharePools {
        let base = input.topology.cpu_set().difference(input.kubelet);
        let of_pods = |counts: fn(Option<QosClass>) -> bool| {
            input
                .pods
                .iter()
                .filter(|pod| counts(pod.qos))
                .fold(CpuSet::new(), |all, pod| all.union(&pod.cpus))
        };
        let unshared = input.reserved.union(input.system_exclusive);
        let pool = |taken: CpuSet| {
            let shared = base.difference(&taken);
            let mut pools: Vec<SharePool> = input
                .topology
                .nodes()
                .iter()
                .filter(|(_, cpus)| !cpus.is_disjoint(&shared))
                .filter_map(|(node, cpus)| {
                    let socket = input.topology.cpu(cpus.first()?)?.socket;
                    let cpus = cpus.intersection(&shared).difference(&unshared);
                    Some(SharePool { socket, node: *node, cpus })
                })
                .collect();
            pools.sort_by_key(|pool| (pool.socket, pool.node));
            pools
        };
        SharePools {
            latency_sensitive: pool(of_pods(|_| true)),
            best_effort: pool(of_pods(|qos| qos == Some(QosClass::Lse))),
        }
    }
}

/// All CPUs of a pool.
pub fn all_cpus(pool: &[SharePool]) -> CpuSet {
    pool.iter().fold(CpuSet::new(), |all, pool| all.union(&pool.cpus))
}

/// True if a pod's CPUs are ours to decide, so that what the kubelet has given it does not count: its label says LS
/// or BE, or a scheduler has given it CPUs.
pub fn is_managed(qos: Option<QosClass>, status_cpus: &CpuSet) -> bool {
    matches!(qos, Some(QosClass::Ls | QosClass::Be)) || !status_cpus.is_empty()
}

/// The pods to which the kubelet has given CPUs and which are not ours, ascending by UID. `pod` finds what is known
/// of a pod; one that is not known counts as the kubelet's. Under another policy than static there is none.
pub fn kubelet_allocations(
    state: &CpuManagerState,
    pod: impl Fn(&str) -> Option<PodCpus>,
) -> Vec<(&str, CpuSet)> {
    if !state.is_static() {
        return Vec::new();
    }
    state.pods().filter(|(uid, _)| !pod(uid).is_some_and(|pod| is_managed(pod.qos, &pod.cpus))).collect()
}

/// Pods that are ours and to which the kubelet gives other CPUs than the scheduler did, with what the kubelet gives. Under
/// the static policy it does so for pods of the Guaranteed class, and writes it again each time it reconciles; an operator
/// must know, because only one of the two can win.
pub fn kubelet_conflicts(
    state: &CpuManagerState,
    pod: impl Fn(&str) -> Option<PodCpus>,
) -> Vec<(&str, CpuSet)> {
    if !state.is_static() {
        return Vec::new();
    }
    state
        .pods()
        .filter(|(uid, cpus)| pod(uid).is_some_and(|pod| is_managed(pod.qos, &pod.cpus) && pod.cpus != *cpus))
        .collect()
}

/// Something about the LS pool that an operator must know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolAlarm {
    /// No CPU is left to share. The last pool that had some stays in force, so pods run on CPUs of others.
    #[error(
        "no CPU is left for latency-sensitive pods; they stay on {kept}, where other pods have CPUs of their own"
    )]
    Exhausted {
        /// The CPUs of the pool that stays in force.
        kept: CpuSet,
    },
    /// No CPU is left to share, and none ever was since the start: pods keep the CPUs that they have.
    #[error("no CPU is left for latency-sensitive pods")]
    Never,
    /// No CPU of a NUMA node is left; pods that must run on it have none.
    #[error("no CPU of NUMA node {node} is left for latency-sensitive pods")]
    NodeExhausted {
        /// The node.
        node: u32,
    },
}

/// The pools to put in force when `wanted` follows `last`, which is the last in force.
///
/// An empty LS pool is never put in force: an empty CPU list means "no change" to the kernel and to runtimes, so
/// pods would silently stay where they are. The last LS pool stays, and the alarm says so.
pub fn in_force(last: Option<&SharePools>, mut wanted: SharePools) -> (SharePools, Vec<PoolAlarm>) {
    if !all_cpus(&wanted.latency_sensitive).is_empty() {
        let alarms = wanted
            .latency_sensitive
            .iter()
            .filter(|pool| pool.cpus.is_empty())
            .map(|pool| PoolAlarm::NodeExhausted { node: pool.node })
            .collect();
        return (wanted, alarms);
    }
    let kept = last.map(|last| all_cpus(&last.latency_sensitive)).unwrap_or_default();
    match last {
        Some(last) if !kept.is_empty() => {
            wanted.latency_sensitive.clone_from(&last.latency_sensitive);
            (wanted, vec![PoolAlarm::Exhausted { kept }])
        }
        _ => (wanted, vec![PoolAlarm::Never]),
    }
}

/// Which of the CPUs given to pods may be reported as theirs alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ownership {
    /// No shared container runs there any more.
    pub owned: CpuSet,
    /// Shared containers still run there; they must be moved first.
    pub waiting: CpuSet,
}

/// Splits CPUs that pods own alone by what has been written so far. `written` holds the LS pools that containers may
/// still run on: the new one, and the old one until the last write that follows from the change is done. So a pool
/// shrinks first, and its CPUs are reported as owned after.
pub fn ownership(exclusive: &CpuSet, written: &[&[SharePool]]) -> Ownership {
    let occupied = written.iter().fold(CpuSet::new(), |all, pool| all.union(&all_cpus(pool)));
    Ownership { owned: exclusive.difference(&occupied), waiting: exclusive.intersection(&occupied) }
}

/// Pools by NUMA node, as rules of containers look them up.
pub fn by_node(pool: &[SharePool]) -> BTreeMap<u32, CpuSet> {
    pool.iter().map(|pool| (pool.node, pool.cpus.clone())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Cpu;

    fn set(list: &str) -> CpuSet {
        CpuSet::parse(list).expect("a list")
    }

    fn pod(qos: QosClass, cpus: &str) -> PodCpus {
        PodCpus { qos: Some(qos), cpus: set(cpus) }
    }

    /// Computes pools; each entry as "socket/node:cpus".
    fn pools(
        topology: &Topology,
        kubelet: &str,
        pods: &[PodCpus],
        reserved: &str,
        system: &str,
    ) -> [Vec<String>; 2] {
        let (kubelet, reserved, system_exclusive) = (&set(kubelet), &set(reserved), &set(system));
        let pools = SharePools::of(&PoolInput { topology, kubelet, pods, reserved, system_exclusive });
        let text = |pools: Vec<SharePool>| {
            pools.iter().map(|pool| format!("{}/{}:{}", pool.socket, pool.node, pool.cpus)).collect()
        };
        [text(pools.latency_sensitive), text(pools.best_effort)]
    }

    #[test]
    fn who_shares_what() {
        let one = Topology::regular(1, 1, 8, 1).expect("a layout");
        let pods = [pod(QosClass::Lse, "0-1"), pod(QosClass::Lsr, "2-3")];
        assert_eq!(pools(&one, "", &pods, "7", ""), [["0/0:4-6"], ["0/0:2-6"]]);

        // Two nodes of eight: the pools of 0-7 and 8-15, and of 0-7 and 8-13 with an LSE pod on the last two.
        let two = Topology::regular(2, 1, 8, 1).expect("a layout");
        assert_eq!(pools(&two, "", &[], "", ""), [["0/0:0-7", "1/1:8-15"], ["0/0:0-7", "1/1:8-15"]]);
        let [_, best_effort] = pools(&two, "", &[pod(QosClass::Lse, "14-15")], "", "");
        assert_eq!(best_effort, ["0/0:0-7", "1/1:8-13"]);
    }

    #[test]
    fn every_class_takes_its_cpus_out_of_the_ls_pool() {
        let topology = Topology::regular(1, 1, 8, 1).expect("a layout");
        let pods = [
            pod(QosClass::Ls, "0"),
            pod(QosClass::Be, "1"),
            pod(QosClass::System, "2"),
            PodCpus { qos: None, cpus: set("3") },
        ];
        assert_eq!(pools(&topology, "4", &pods, "5", "6"), [["0/0:7"], ["0/0:0-3,7"]]);
    }

    #[test]
    fn a_node_without_cpus_has_no_entry_and_one_that_loses_them_last_an_empty_one() {
        let topology = Topology::regular(2, 1, 2, 1).expect("a layout");
        let all_taken = [pod(QosClass::Lse, "2-3")];
        assert_eq!(pools(&topology, "", &all_taken, "0-1", ""), [["0/0:"], ["0/0:"]]);
        assert_eq!(pools(&topology, "0-1", &[], "", "2-3"), [["1/1:"], ["1/1:"]]);
        assert_eq!(pools(&topology, "0-3", &[], "", ""), [Vec::<String>::new(), Vec::new()]);
    }

    #[test]
    fn the_socket_of_a_node_that_spans_sockets_is_always_the_same() {
        // Sixteen virtual CPUs, each a socket of its own, in one node and in two that are numbered backwards.
        let flat = |node: fn(u32) -> u32| {
            Topology::new((0..16).map(|id| Cpu { id, core: id, socket: id, node: node(id), cache: None }))
                .expect("a layout")
        };
        let taken = [pod(QosClass::Lse, "0")];
        assert_eq!(pools(&flat(|_| 0), "", &taken, "", "")[0], ["0/0:1-15"]);
        let backwards = flat(|id| u32::from(id < 8));
        assert_eq!(pools(&backwards, "", &taken, "", "")[0], ["0/1:1-7", "8/0:8-15"]);
    }

    #[test]
    fn allocations_of_the_kubelet() {
        let state = CpuManagerState::parse(
            r#"{"policyName":"static","defaultCpuSet":"0","entries":{"podA":{"c1":"1-2","c2":"2-3"},"podB":{"c":"4"}}}"#,
        )
        .expect("a state");
        let found = |known: fn(&str) -> Option<PodCpus>| {
            let found = kubelet_allocations(&state, known);
            found.iter().map(|(uid, cpus)| format!("{uid}:{cpus}")).collect::<Vec<_>>()
        };
        assert_eq!(found(|_| None), ["podA:1-3", "podB:4"]);
        assert_eq!(found(|uid| (uid == "podA").then(|| pod(QosClass::Be, ""))), ["podB:4"]);
        assert_eq!(found(|uid| (uid == "podA").then(|| pod(QosClass::Ls, ""))), ["podB:4"]);
        assert_eq!(found(|uid| (uid == "podA").then(|| pod(QosClass::Lsr, "5"))), ["podB:4"]);
        assert_eq!(found(|uid| (uid == "podA").then(|| pod(QosClass::Lsr, ""))), ["podA:1-3", "podB:4"]);
        assert_eq!(found(|_| Some(PodCpus { qos: None, cpus: CpuSet::new() })), ["podA:1-3", "podB:4"]);
        let none = CpuManagerState { policy: "none".to_owned(), ..state.clone() };
        assert_eq!(kubelet_allocations(&none, |_| None), []);
    }

    #[test]
    fn the_kubelet_and_the_scheduler_disagree() {
        let mut state = CpuManagerState::parse(
            r#"{"policyName":"static","defaultCpuSet":"0","entries":{"same":{"c":"1-2"},"other":{"c":"3"},
                "shared":{"c":"4"},"theirs":{"c":"5"},"gone":{"c":"6"}}}"#,
        )
        .expect("a state");
        let known = |uid: &str| match uid {
            "same" => Some(pod(QosClass::Lsr, "1-2")),
            "other" => Some(pod(QosClass::Lsr, "1")),
            "shared" => Some(pod(QosClass::Ls, "")),
            "theirs" => Some(PodCpus { qos: None, cpus: CpuSet::new() }),
            _ => None,
        };
        assert_eq!(kubelet_conflicts(&state, known), [("other", set("3")), ("shared", set("4"))]);
        state.policy = "none".to_owned();
        assert_eq!(kubelet_conflicts(&state, known), []);
    }

    fn shared(entries: &[(u32, &str)]) -> Vec<SharePool> {
        entries.iter().map(|(node, cpus)| SharePool { socket: 0, node: *node, cpus: set(cpus) }).collect()
    }

    fn ls(entries: &[(u32, &str)]) -> SharePools {
        SharePools { latency_sensitive: shared(entries), best_effort: shared(&[(0, "9")]) }
    }

    #[test]
    fn an_empty_pool_is_never_put_in_force() {
        let last = ls(&[(0, "0-3"), (1, "")]);
        let (pools, alarms) = in_force(Some(&last), ls(&[(0, "1")]));
        assert_eq!((pools, alarms), (ls(&[(0, "1")]), vec![]));

        let mut wanted = ls(&[(0, ""), (1, "")]);
        wanted.best_effort = shared(&[(0, "7")]);
        let (pools, alarms) = in_force(Some(&last), wanted);
        assert_eq!(pools.latency_sensitive, last.latency_sensitive);
        assert_eq!(pools.best_effort, shared(&[(0, "7")]));
        assert_eq!(alarms, [PoolAlarm::Exhausted { kept: set("0-3") }]);

        assert_eq!(in_force(Some(&last), ls(&[])).1, [PoolAlarm::Exhausted { kept: set("0-3") }]);
        assert_eq!(in_force(None, ls(&[])), (ls(&[]), vec![PoolAlarm::Never]));
        assert_eq!(in_force(Some(&ls(&[(0, "")])), ls(&[])), (ls(&[]), vec![PoolAlarm::Never]));
    }

    #[test]
    fn a_node_that_is_exhausted_is_named() {
        let wanted = ls(&[(0, "1"), (1, "")]);
        assert_eq!(in_force(None, wanted.clone()), (wanted, vec![PoolAlarm::NodeExhausted { node: 1 }]));
    }

    #[test]
    fn cpus_are_owned_when_nobody_shares_them_any_more() {
        let (old, new) = (shared(&[(0, "0-7")]), shared(&[(0, "2-7")]));
        let while_moving = ownership(&set("0-1,8"), &[&old, &new]);
        assert_eq!(while_moving, Ownership { owned: set("8"), waiting: set("0-1") });
        let after = ownership(&set("0-1,8"), &[&new]);
        assert_eq!(after, Ownership { owned: set("0-1,8"), waiting: CpuSet::new() });
    }

    #[test]
    fn pools_by_node() {
        let pools = by_node(&shared(&[(0, "0-1"), (3, "")]));
        assert_eq!(pools, BTreeMap::from([(0, set("0-1")), (3, CpuSet::new())]));
    }

    proptest! {
        #[test]
        fn the_ls_pool_is_in_the_be_pool_and_nobody_else_is_in_it(
            kubelet in proptest::collection::btree_set(0_u32..16, 0..6),
            own in proptest::collection::vec((0_usize..5, proptest::collection::btree_set(0_u32..16, 0..6)), 0..4),
            reserved in proptest::collection::btree_set(0_u32..16, 0..3),
        ) {
            let classes = [QosClass::Lse, QosClass::Lsr, QosClass::Ls, QosClass::Be, QosClass::System];
            let topology = Topology::regular(2, 2, 2, 2).expect("a layout");
            let (kubelet, reserved): (CpuSet, CpuSet) = (kubelet.into_iter().collect(), reserved.into_iter().collect());
            let pods: Vec<PodCpus> = own
                .into_iter()
                .map(|(class, cpus)| PodCpus { qos: Some(classes[class]), cpus: cpus.into_iter().collect() })
                .collect();
            let pools = SharePools::of(&PoolInput {
                topology: &topology, kubelet: &kubelet, pods: &pods, reserved: &reserved, system_exclusive: &CpuSet::new(),
            });
            let (ls, be) = (all_cpus(&pools.latency_sensitive), all_cpus(&pools.best_effort));
            prop_assert!(ls.is_subset(&be));
            prop_assert!(be.is_disjoint(&kubelet) && be.is_disjoint(&reserved));
            for pod in &pods {
                prop_assert!(ls.is_disjoint(&pod.cpus));
                prop_assert!(pod.qos != Some(QosClass::Lse) || be.is_disjoint(&pod.cpus));
            }
        }
    }
}
