use proptest::prelude::*;

use super::*;

fn set(list: &str) -> CpuSet {
    CpuSet::parse(list).expect("a list")
}

fn request(count: usize, bind: BindPolicy, strategy: NumaStrategy) -> Request<'static> {
    const NONE: &CpuSet = &CpuSet::new();
    Request { count, bind, exclusive: ExclusivePolicy::None, strategy, preferred: NONE }
}

fn taken(topology: &Topology, allocated: &str, terms: ExclusivePolicy, request: &Request<'_>) -> String {
    let mut allocations = Allocations::default();
    allocations.add(&set(allocated), terms);
    let free = available(topology, &[], &allocations, 1);
    take(topology, &free, &allocations, request).expect("enough").to_string()
}

#[test]
fn as_koordinators_scheduler_picks() {
    use BindPolicy::{FullPcpus as Full, SpreadByPcpus as Spread};
    use ExclusivePolicy::{None, NumaNodeLevel, PcpuLevel};
    use NumaStrategy::{LeastAllocated as Least, MostAllocated as Most};
    // Sockets, nodes per socket, cores per node, threads per core; CPUs allocated and on what terms; request; CPUs.
    let cases = [
        ((1, 1, 4, 2), "", None, 2, Full, None, &[Most][..], "0-1"),
        ((1, 1, 4, 2), "0-1", None, 2, Full, None, &[Most], "2-3"),
        ((2, 1, 4, 2), "", None, 12, Full, None, &[Most, Least], "0-11"),
        ((2, 1, 4, 2), "0-1", None, 8, Full, None, &[Most, Least], "8-15"),
        ((2, 2, 4, 2), "0-5,16-23", None, 6, Full, None, &[Most], "24-29"),
        ((2, 2, 4, 2), "0-5,16-23", None, 6, Full, None, &[Least], "8-13"),
        ((2, 2, 4, 2), "0-5,16-23", None, 12, Full, None, &[Most], "6-15,24-25"),
        ((2, 2, 4, 2), "0-3,8-11", None, 4, Full, None, &[Least], "16-19"),
        ((2, 2, 2, 2), "0,2,4,8,12", None, 4, Full, None, &[Most], "10-11,14-15"),
        ((2, 2, 2, 2), "0,2,4,8,10,12", None, 6, Full, None, &[Most], "5-7,13-15"),
        ((1, 1, 4, 2), "", None, 4, Spread, None, &[Most, Least], "0,2,4,6"),
        ((2, 1, 4, 2), "0,2", None, 4, Spread, None, &[Most], "1,3-4,6"),
        ((2, 1, 4, 2), "0,2", None, 4, Spread, None, &[Least], "8,10,12,14"),
        ((2, 1, 4, 2), "0,2", PcpuLevel, 4, Spread, PcpuLevel, &[Most], "8,10,12,14"),
        ((2, 1, 4, 2), "0,2", NumaNodeLevel, 4, Full, NumaNodeLevel, &[Most], "8-11"),
        ((2, 1, 4, 2), "0,2", NumaNodeLevel, 4, Full, None, &[Most], "4-7"),
    ];
    for ((sockets, nodes, cores, threads), allocated, terms, count, bind, exclusive, strategies, cpus) in
        cases
    {
        let topology = Topology::regular(sockets, nodes, cores, threads).expect("a layout");
        for strategy in strategies {
            let request = Request { exclusive, ..request(count, bind, *strategy) };
            assert_eq!(
                taken(&topology, allocated, terms, &request),
                cpus,
                "{count} of {sockets},{nodes},{cores},{threads} without {allocated}, {bind:?}, {strategy:?}"
            );
        }
    }
}

#[test]
fn what_a_pod_and_a_node_ask_for() {
    let binding = |text| {
        let spec = ResourceSpec::parse(text).expect("an annotation");
        let binding = Binding::of_pod(&spec, BindPolicy::SpreadByPcpus);
        (binding.policy, binding.is_required)
    };
    assert_eq!(binding("{}"), (BindPolicy::SpreadByPcpus, false));
    assert_eq!(binding(r#"{"preferredCPUBindPolicy":"Default"}"#), (BindPolicy::SpreadByPcpus, false));
    assert_eq!(binding(r#"{"preferredCPUBindPolicy":"FullPCPUs"}"#), (BindPolicy::FullPcpus, false));
    assert_eq!(
        binding(r#"{"requiredCPUBindPolicy":"Default","preferredCPUBindPolicy":"FullPCPUs"}"#),
        (BindPolicy::SpreadByPcpus, true)
    );
    assert_eq!(
        binding(r#"{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUBindPolicy":"SpreadByPCPUs"}"#),
        (BindPolicy::FullPcpus, true)
    );
    assert_eq!(
        binding(r#"{"preferredCPUBindPolicy":"ConstrainedBurst"}"#),
        (BindPolicy::ConstrainedBurst, false)
    );
    assert_eq!(binding(r#"{"preferredCPUBindPolicy":"Later"}"#), (BindPolicy::SpreadByPcpus, false));
    assert_eq!(ExclusivePolicy::from(&CpuExclusivePolicy::Other("Later".to_owned())), ExclusivePolicy::None);
    assert_eq!(ExclusivePolicy::from(&CpuExclusivePolicy::Unset), ExclusivePolicy::None);
    assert_eq!(ExclusivePolicy::from(&CpuExclusivePolicy::PcpuLevel), ExclusivePolicy::PcpuLevel);
    assert_eq!(ExclusivePolicy::from(&CpuExclusivePolicy::NumaNodeLevel), ExclusivePolicy::NumaNodeLevel);
    assert_eq!(NumaStrategy::of_label("MostAllocated"), Some(NumaStrategy::MostAllocated));
    assert_eq!(NumaStrategy::of_label("LeastAllocated"), Some(NumaStrategy::LeastAllocated));
    assert_eq!(NumaStrategy::of_label("DistributeEvenly"), Some(NumaStrategy::DistributeEvenly));
    assert_eq!(NumaStrategy::of_label("mostallocated"), None);
}

#[test]
fn requests_are_whole_cpus() {
    assert_eq!(
        cpu_count(MilliCpu(1500)).map_err(|error| error.to_string()),
        Err("the requested CPUs must be integer".to_owned())
    );
    assert_eq!(cpu_count(MilliCpu(2000)), Ok(2));
    assert_eq!(cpu_count(MilliCpu(0)), Ok(0));
    assert_eq!(cpu_count(MilliCpu(-1000)), Err(TakeError::NotInteger(MilliCpu(-1000))));
}

#[test]
fn more_than_is_available() {
    let topology = Topology::regular(1, 1, 2, 2).expect("a layout");
    let request = request(5, BindPolicy::FullPcpus, NumaStrategy::MostAllocated);
    let error = take(&topology, &set("0-7"), &Allocations::default(), &request);
    assert_eq!(error, Err(TakeError::NotEnough { wanted: 5, available: 4 }));
    let nodes = BTreeSet::from([0]);
    let error = take_evenly(&topology, &set("1-2"), &Allocations::default(), &request, &nodes);
    assert_eq!(error, Err(TakeError::NotEnough { wanted: 5, available: 2 }));
}

#[test]
fn constrained_burst_shares() {
    let topology = Topology::regular(1, 1, 2, 2).expect("a layout");
    let request = request(9, BindPolicy::ConstrainedBurst, NumaStrategy::MostAllocated);
    assert_eq!(take(&topology, &set("0-3"), &Allocations::default(), &request), Ok(CpuSet::new()));
}

#[test]
fn an_odd_number_of_cpus_splits_one_core_only() {
    let topology = Topology::regular(2, 1, 4, 2).expect("a layout");
    let full = |count| request(count, BindPolicy::FullPcpus, NumaStrategy::MostAllocated);
    assert_eq!(taken(&topology, "", ExclusivePolicy::None, &full(3)), "0-2");
    // Socket 0 is taken up; of the other a core, and the thread after it.
    assert_eq!(taken(&topology, "", ExclusivePolicy::None, &full(11)), "0-10");
    // A single CPU goes to a core that is broken already.
    let topology = Topology::regular(1, 1, 4, 2).expect("a layout");
    assert_eq!(taken(&topology, "0,2-7", ExclusivePolicy::None, &full(1)), "1");
}

#[test]
fn avoidance_gives_way() {
    // Pods with a NUMA node each have both nodes; another one still gets CPUs.
    let topology = Topology::regular(2, 1, 4, 2).expect("a layout");
    let exclusive = ExclusivePolicy::NumaNodeLevel;
    let request = Request { exclusive, ..request(4, BindPolicy::FullPcpus, NumaStrategy::MostAllocated) };
    assert_eq!(taken(&topology, "0,8-9", exclusive, &request), "10-13");
    // A pod of another policy is not avoided.
    assert_eq!(taken(&topology, "0-3", ExclusivePolicy::PcpuLevel, &request), "4-7");
}

#[test]
fn one_thread_per_core_takes_whole_cores_under_any_policy() {
    let topology = Topology::regular(2, 1, 4, 1).expect("a layout");
    let spread = request(2, BindPolicy::SpreadByPcpus, NumaStrategy::MostAllocated);
    assert_eq!(taken(&topology, "4", ExclusivePolicy::None, &spread), "5-6");
}

#[test]
fn preferred_cpus_are_used_up_first() {
    let topology = Topology::regular(2, 1, 4, 2).expect("a layout");
    let preferred = set("6-7,9,40");
    let full = |count| Request {
        preferred: &preferred,
        ..request(count, BindPolicy::FullPcpus, NumaStrategy::MostAllocated)
    };
    assert_eq!(taken(&topology, "", ExclusivePolicy::None, &full(2)), "6-7");
    assert_eq!(taken(&topology, "", ExclusivePolicy::None, &full(3)), "6-7,9");
    // Two more: whole cores; the node with fewer of them (each has six CPUs in whole cores, node 0 is in no fuller
    // socket: 6 free CPUs against 7).
    assert_eq!(taken(&topology, "", ExclusivePolicy::None, &full(5)), "0-1,6-7,9");
}

#[test]
fn cpus_with_fewer_pods_first() {
    let topology = Topology::regular(1, 1, 4, 2).expect("a layout");
    let mut allocations = Allocations::default();
    allocations.add(&set("0-3"), ExclusivePolicy::None);
    allocations.add(&set("4"), ExclusivePolicy::None);
    allocations.add(&set("0"), ExclusivePolicy::None);
    let free = available(&topology, &[], &allocations, 2);
    assert_eq!(free, set("1-7"));
    let pick = |count, bind| {
        take(&topology, &free, &allocations, &request(count, bind, NumaStrategy::MostAllocated))
            .expect("enough")
    };
    // Whole cores that are free: {2, 3} with two pods, {4, 5} with one, {6, 7} with none.
    assert_eq!(pick(2, BindPolicy::FullPcpus), set("6-7"));
    assert_eq!(pick(4, BindPolicy::FullPcpus), set("4-7"));
    // Threads without pods are 5, 6 and 7; one of each core first.
    assert_eq!(pick(3, BindPolicy::SpreadByPcpus), set("1,5-6"));
}

#[test]
fn what_is_kept_for_others_is_not_available() {
    let topology = Topology::regular(1, 1, 4, 2).expect("a layout");
    let mut allocations = Allocations::default();
    allocations.add(&set("4-5"), ExclusivePolicy::PcpuLevel);
    assert_eq!(available(&topology, &[&set("0"), &set("7,99")], &allocations, 1), set("1-3,6"));
    allocations.add(&set("4"), ExclusivePolicy::None);
    assert_eq!(allocations.references(4), 2);
    allocations.remove(&set("4-6"), ExclusivePolicy::PcpuLevel);
    assert_eq!((allocations.references(4), allocations.references(5)), (1, 0));
    assert_eq!(allocations.with_references(1), set("4"));
    allocations.remove(&set("4"), ExclusivePolicy::None);
    assert_eq!(allocations, Allocations::default());
}

#[test]
fn evenly_over_as_few_nodes_as_hold_it() {
    let topology = Topology::regular(2, 2, 4, 2).expect("a layout");
    let evenly = |allocated: &str, count, bind| {
        taken(
            &topology,
            allocated,
            ExclusivePolicy::None,
            &request(count, bind, NumaStrategy::DistributeEvenly),
        )
    };
    // It fits into a node: the emptiest, in the emptiest socket.
    assert_eq!(evenly("0-1", 8, BindPolicy::FullPcpus), "16-23");
    // Two nodes of eight hold twelve: six each.
    assert_eq!(evenly("", 12, BindPolicy::FullPcpus), "0-5,8-13");
    assert_eq!(evenly("", 12, BindPolicy::SpreadByPcpus), "0-4,6,8-12,14");
    // Five cores over two nodes: two and three.
    assert_eq!(evenly("", 10, BindPolicy::FullPcpus), "0-3,8-13");
    // Node 0 has two CPUs left and nodes 1 and 2 have six: 6 and 8 of the emptiest two hold fourteen.
    assert_eq!(evenly("0-5,8-9,16-17", 14, BindPolicy::FullPcpus), "10-15,24-31");
}

#[test]
fn evenly_over_the_nodes_of_a_hint() {
    let topology = Topology::regular(2, 2, 4, 2).expect("a layout");
    let allocations = Allocations::default();
    let evenly = |free: &str, count, nodes: &[u32]| {
        let request = request(count, BindPolicy::FullPcpus, NumaStrategy::MostAllocated);
        let nodes = nodes.iter().copied().collect();
        take_evenly(&topology, &set(free), &allocations, &request, &nodes).map(|cpus| cpus.to_string())
    };
    assert_eq!(evenly("0-31", 8, &[1, 3]).as_deref(), Ok("8-11,24-27"));
    // Node 1 has one core; the others make up for it.
    assert_eq!(evenly("0-9,16-31", 10, &[0, 1, 2]).as_deref(), Ok("0-3,8-9,16-19"));
    // Rounding down to whole cores leaves nothing behind.
    assert_eq!(evenly("0-1,8-9", 3, &[0, 1]).as_deref(), Ok("0,8-9"));
    assert_eq!(evenly("0-31", 8, &[9]), Err(TakeError::NotEnough { wanted: 8, available: 0 }));
}

#[test]
fn shares_of_unequal_rooms() {
    let shares = |rooms: &[(u32, usize)], count, unit| -> Vec<(u32, usize)> {
        even_shares(rooms, count, unit).into_iter().collect()
    };
    assert_eq!(shares(&[(0, 8), (1, 8), (2, 1)], 9, 1), [(0, 4), (1, 4), (2, 1)]);
    assert_eq!(shares(&[(0, 3), (1, 4)], 7, 2), [(0, 3), (1, 4)]);
    assert_eq!(shares(&[], 3, 1), []);
}

fn any_bind() -> impl Strategy<Value = BindPolicy> {
    prop_oneof![Just(BindPolicy::FullPcpus), Just(BindPolicy::SpreadByPcpus)]
}

fn any_exclusive() -> impl Strategy<Value = ExclusivePolicy> {
    prop_oneof![
        Just(ExclusivePolicy::None),
        Just(ExclusivePolicy::PcpuLevel),
        Just(ExclusivePolicy::NumaNodeLevel)
    ]
}

fn any_strategy() -> impl Strategy<Value = NumaStrategy> {
    prop_oneof![
        Just(NumaStrategy::MostAllocated),
        Just(NumaStrategy::LeastAllocated),
        Just(NumaStrategy::DistributeEvenly)
    ]
}

proptest! {
    #[test]
    fn exactly_as_many_as_wanted_and_only_available_ones(
        shape in (1_u32..3, 1_u32..3, 1_u32..5, 1_u32..4),
        allocated in proptest::collection::vec(any::<bool>(), 48),
        terms in any_exclusive(),
        share in 0_usize..=100,
        bind in any_bind(),
        exclusive in any_exclusive(),
        strategy in any_strategy(),
        preferred in proptest::collection::btree_set(0_u32..48, 0..10),
    ) {
        let topology = Topology::regular(shape.0, shape.1, shape.2, shape.3).expect("a layout");
        let mut allocations = Allocations::default();
        let used: CpuSet = (0_u32..).zip(&allocated).filter(|(_, used)| **used).map(|(cpu, _)| cpu).collect();
        allocations.add(&used, terms);
        let free = available(&topology, &[], &allocations, 1);
        let preferred: CpuSet = preferred.into_iter().collect();
        let count = free.len() * share / 100;
        let request = Request { count, bind, exclusive, strategy, preferred: &preferred };
        let taken = take(&topology, &free, &allocations, &request).expect("enough");
        prop_assert_eq!(taken.len(), count);
        prop_assert!(taken.is_subset(&free));
        let preferred = preferred.intersection(&free);
        prop_assert_eq!(taken.intersection(&preferred).len(), count.min(preferred.len()));
    }

    #[test]
    fn whole_cores_stay_whole_while_there_are_some(
        used_cores in proptest::collection::btree_set(0_u32..16, 0..16),
        cores in 0_usize..=16,
        strategy in any_strategy(),
    ) {
        let topology = Topology::regular(2, 2, 4, 2).expect("a layout");
        let mut allocations = Allocations::default();
        let used: CpuSet = used_cores.iter().flat_map(|core| [core * 2, core * 2 + 1]).collect();
        allocations.add(&used, ExclusivePolicy::None);
        let free = available(&topology, &[], &allocations, 1);
        let cores = cores.min(free.len() / 2);
        let taken = take(&topology, &free, &allocations, &request(cores * 2, BindPolicy::FullPcpus, strategy)).expect("enough");
        for core in topology.cores().values() {
            prop_assert!(core.is_subset(&taken) || core.is_disjoint(&taken));
        }
    }

    #[test]
    fn shares_add_up(
        rooms in proptest::collection::vec(0_usize..20, 1..6),
        share in 0_usize..=100,
        unit in 1_usize..5,
    ) {
        let count = rooms.iter().sum::<usize>() * share / 100;
        let rooms: Vec<(u32, usize)> = (0_u32..).zip(rooms).collect();
        let shares = even_shares(&rooms, count, unit);
        prop_assert_eq!(shares.values().sum::<usize>(), count);
        for (node, size) in &rooms {
            prop_assert!(shares[node] <= *size);
        }
    }
}
