use proptest::prelude::*;

use super::*;

const GIB: i64 = 1 << 30;

fn list(entries: &[(&str, &str)]) -> ResourceList {
    entries
        .iter()
        .map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).expect("a quantity")))
        .collect()
}

fn memory(gibibytes: &[(u32, i64)]) -> BTreeMap<u32, NumaMemory> {
    gibibytes
        .iter()
        .map(|(node, size)| (*node, NumaMemory { total: Bytes(size * GIB), ..NumaMemory::default() }))
        .collect()
}

/// `name: capacity/allocatable/available`, one for each resource of each zone.
fn shown(zones: &[Zone], wanted: &str) -> Vec<String> {
    let of_zone = |zone: &Zone| {
        let resource =
            zone.resources.iter().find(|resource| resource.name == wanted).expect("a resource").clone();
        format!("{}: {}/{}/{}", zone.name, resource.capacity, resource.allocatable, resource.available)
    };
    zones.iter().map(of_zone).collect()
}

fn parts(name: &str, reserved: &str, zones: usize) -> String {
    shares(&list(&[(name, reserved)]), zones)[name].to_string()
}

#[test]
fn the_part_of_a_zone() {
    assert_eq!(parts("cpu", "4", 2), "2");
    assert_eq!(parts("cpu", "4", 3), "1334m");
    assert_eq!(parts("memory", "10Gi", 3), "3579139413334m");
    assert_eq!(parts("memory", "10Gi", 4), "2560Mi");
    assert_eq!(Quantity::parse(&parts("memory", "10Gi", 4)).expect("a quantity").value(), 2_684_354_560);
    assert_eq!(parts("cpu", "1m", 8), "1m");
    assert!(shares(&list(&[("cpu", "4")]), 0).is_empty());
}

#[test]
fn a_reservation_of_four_of_48_cpus() {
    let topology = Topology::regular(2, 1, 24, 1).expect("a layout");
    let zones = zones(&ZoneInput {
        topology: &topology,
        memory: &memory(&[(0, 64), (1, 64)]),
        report_huge_pages: false,
        reserved: list(&[("cpu", "4"), ("memory", "10Gi")]),
    });
    assert_eq!(shown(&zones, "cpu"), ["node-0: 24/22/22", "node-1: 24/22/22"]);
    assert_eq!(shown(&zones, "memory"), ["node-0: 64Gi/59Gi/59Gi", "node-1: 64Gi/59Gi/59Gi"]);
    assert_eq!(shown(&zones, "hugepages-1Gi"), ["node-0: 0/0/0", "node-1: 0/0/0"]);
}

#[test]
fn a_reservation_that_no_zone_divides() {
    let topology = Topology::regular(3, 1, 4, 1).expect("a layout");
    let zones = zones(&ZoneInput {
        topology: &topology,
        memory: &memory(&[(0, 4), (1, 4), (2, 4)]),
        report_huge_pages: false,
        reserved: list(&[("cpu", "4"), ("memory", "10Gi")]),
    });
    assert_eq!(shown(&zones, "cpu")[0], "node-0: 4/2666m/2666m");
    // 4294967296000m - 3579139413334m
    assert_eq!(shown(&zones, "memory")[2], "node-2: 4Gi/715827882666m/715827882666m");
}

#[test]
fn a_zone_smaller_than_its_part_has_nothing_left() {
    let topology = Topology::regular(2, 1, 1, 1).expect("a layout");
    let zones = zones(&ZoneInput {
        topology: &topology,
        memory: &memory(&[(0, 1), (1, 8)]),
        report_huge_pages: false,
        reserved: list(&[("cpu", "4"), ("memory", "4Gi")]),
    });
    assert_eq!(shown(&zones, "cpu"), ["node-0: 1/0/0", "node-1: 1/0/0"]);
    assert_eq!(shown(&zones, "memory"), ["node-0: 1Gi/0/0", "node-1: 8Gi/6Gi/6Gi"]);
}

#[test]
fn what_the_kubelet_keeps() {
    let capacity = list(&[("cpu", "48"), ("memory", "128Gi"), ("pods", "110")]);
    let allocatable = list(&[("cpu", "44"), ("memory", "128Gi"), ("pods", "100")]);
    let none = BTreeMap::new();
    let labels =
        |value: &str| BTreeMap::from([(label::NODE_ENABLE_NUMA_RESERVATION.to_owned(), value.to_owned())]);
    let reserved =
        |labels: &BTreeMap<String, String>, capacity: &ResourceList, allocatable: &ResourceList| {
            kubelet_reservation(NodeFacts { labels, annotations: &none, capacity, allocatable })
        };
    assert_eq!(reserved(&labels("true"), &capacity, &allocatable), list(&[("cpu", "4")]));
    assert!(reserved(&labels("false"), &capacity, &allocatable).is_empty());
    assert!(reserved(&none, &capacity, &allocatable).is_empty());
    assert!(reserved(&labels("true"), &capacity, &capacity).is_empty());
    // Allocatable above capacity, as amplification makes it, or unknown.
    assert!(reserved(&labels("true"), &allocatable, &capacity).is_empty());
    assert!(reserved(&labels("true"), &capacity, &ResourceList::new()).is_empty());
}

#[test]
fn huge_pages() {
    let topology = Topology::regular(1, 1, 2, 1).expect("a layout");
    let memory = BTreeMap::from([(
        0,
        NumaMemory {
            total: Bytes(16 * GIB),
            huge_pages_1gi: Bytes(4 * GIB),
            huge_pages_2mi: Bytes(512 << 20),
        },
    )]);
    let zones = |report_huge_pages| {
        zones(&ZoneInput {
            topology: &topology,
            memory: &memory,
            report_huge_pages,
            reserved: ResourceList::new(),
        })
    };
    let names: Vec<_> = zones(true)[0].resources.iter().map(|resource| resource.name.clone()).collect();
    assert_eq!(names, ["cpu", "hugepages-1Gi", "hugepages-2Mi", "memory"]);
    assert_eq!(shown(&zones(true), "memory"), ["node-0: 11776Mi/11776Mi/11776Mi"]);
    assert_eq!(shown(&zones(true), "hugepages-1Gi"), ["node-0: 4Gi/4Gi/4Gi"]);
    assert_eq!(shown(&zones(true), "hugepages-2Mi"), ["node-0: 512Mi/512Mi/512Mi"]);
    assert_eq!(shown(&zones(false), "memory"), ["node-0: 16Gi/16Gi/16Gi"]);
    assert_eq!(shown(&zones(false), "hugepages-1Gi"), ["node-0: 0/0/0"]);
}

#[test]
fn nodes_without_cpus_or_memory() {
    let topology = Topology::regular(2, 1, 2, 1).expect("a layout").with_memory_only_nodes([2]);
    let zones = zones(&ZoneInput {
        topology: &topology,
        memory: &memory(&[(0, 8), (2, 32), (3, 1)]),
        report_huge_pages: true,
        reserved: ResourceList::new(),
    });
    assert_eq!(shown(&zones, "cpu"), ["node-0: 2/2/2", "node-1: 2/2/2", "node-2: 0/0/0", "node-3: 0/0/0"]);
    assert_eq!(
        shown(&zones, "memory"),
        ["node-0: 8Gi/8Gi/8Gi", "node-1: 0/0/0", "node-2: 32Gi/32Gi/32Gi", "node-3: 1Gi/1Gi/1Gi"]
    );
}

#[test]
fn zones_are_in_the_order_of_their_names() {
    let topology = Topology::regular(11, 1, 1, 1).expect("a layout");
    let zones = zones(&ZoneInput {
        topology: &topology,
        memory: &BTreeMap::new(),
        report_huge_pages: false,
        reserved: ResourceList::new(),
    });
    let names: Vec<_> = zones.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!(names[..4], ["node-0", "node-1", "node-10", "node-2"]);
    assert!(zones.iter().all(|zone| zone.zone_type == "Node"));
}

#[test]
fn what_others_have_put_into_zones_stays() {
    let resource = |name: &str, amount: i64| {
        let amount = Quantity::from_value(amount, Format::DecimalSi);
        ZoneResource { name: name.to_owned(), capacity: amount, allocatable: amount, available: amount }
    };
    let zone = |name: &str, resources: Vec<ZoneResource>| Zone {
        name: name.to_owned(),
        zone_type: ZONE_TYPE_NODE.to_owned(),
        resources,
        ..Zone::default()
    };
    let existing = [
        Zone {
            parent: "socket-0".to_owned(),
            ..zone(
                "node-0",
                vec![resource("vendor.com/x", 3), resource("cpu", 9), resource("koordinator.sh/gpu", 1)],
            )
        },
        zone("node-9", vec![resource("vendor.com/x", 3)]),
    ];
    let merged = merged(
        &existing,
        vec![zone("node-0", vec![resource("cpu", 4), resource("memory", 5)]), zone("node-1", vec![])],
    );
    assert_eq!(merged.len(), 2);
    assert_eq!(
        merged[0].resources,
        [
            resource("cpu", 4),
            resource("koordinator.sh/gpu", 1),
            resource("memory", 5),
            resource("vendor.com/x", 3)
        ]
    );
    assert_eq!(merged[0].parent, "socket-0");
    assert_eq!(merged[1], zone("node-1", vec![]));
}

proptest! {
    #[test]
    fn all_zones_bear_at_least_the_reservation(
        milli in 1_i64..1_000_000_000_000, zones in 1_usize..64, binary in any::<bool>(),
    ) {
        let format = if binary { Format::BinarySi } else { Format::DecimalSi };
        let reserved = Quantity::from_milli(milli, format);
        let part = shares(&ResourceList::from([("r".to_owned(), reserved)]), zones)["r"];
        let count = i64::try_from(zones).expect("few");
        prop_assert!(part.milli() * count >= milli);
        prop_assert!((part.milli() - 1) * count < milli);
        prop_assert_eq!(part.format(), format);
    }
}
