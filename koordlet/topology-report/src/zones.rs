//! Resources by NUMA node.

use std::collections::{BTreeMap, BTreeSet};

use koord_crd::node_resource_topology::{ZONE_TYPE_NODE, Zone, ZoneResource};
use koord_extension::keys::{label, resource};
use koord_extension::label::is_true;
use koord_extension::quantity::{Format, Quantity, ResourceList};
use koord_extension::units::Bytes;
use koord_topology::Topology;

use crate::input::NodeFacts;

/// Pages of 1 GiB, a resource of a zone.
pub const HUGE_PAGES_1GI: &str = "hugepages-1Gi";

/// Pages of 2 MiB, a resource of a zone.
pub const HUGE_PAGES_2MI: &str = "hugepages-2Mi";

/// The resources of a zone that the report owns, or that Koordinator's report owns; of a GPU nothing is computed here.
pub const MANAGED: [&str; 5] =
    [resource::CPU, resource::MEMORY, resource::GPU, HUGE_PAGES_1GI, HUGE_PAGES_2MI];

/// Memory of one NUMA node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NumaMemory {
    /// `MemTotal` of the node's `meminfo`.
    pub total: Bytes,
    /// What is set aside in pages of 1 GiB.
    pub huge_pages_1gi: Bytes,
    /// What is set aside in pages of 2 MiB.
    pub huge_pages_2mi: Bytes,
}

/// What zones are computed from.
#[derive(Debug, Clone)]
pub struct ZoneInput<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Memory by NUMA node.
    pub memory: &'a BTreeMap<u32, NumaMemory>,
    /// Whether pages that are set aside are told apart from other memory.
    pub report_huge_pages: bool,
    /// What is taken from all zones together (see [`kubelet_reservation`]).
    pub reserved: ResourceList,
}

/// What the kubelet keeps from pods, if the node's label `enable-numa-reservation` says that each zone bears a part of it:
/// CPU and memory of which capacity is above allocatable.
pub fn kubelet_reservation(node: NodeFacts<'_>) -> ResourceList {
    if !is_true(node.labels, label::NODE_ENABLE_NUMA_RESERVATION) {
        return ResourceList::new();
    }
    let reserved = |name: &str| {
        let (capacity, allocatable) = (node.capacity.get(name)?, node.allocatable.get(name)?);
        Some(capacity.minus(*allocatable)).filter(|reserved| reserved.is_positive())
    };
    [resource::CPU, resource::MEMORY]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), reserved(name)?)))
        .collect()
}

/// A zone for each NUMA node, ordered by name as text: `node-10` comes before `node-2`. A node without CPUs or without
/// memory has none of it.
///
/// Of what is reserved each zone bears the same part, in thousandths and upward, for memory too; a zone that has less is
/// left with nothing. Capacity stays whole.
pub fn zones(input: &ZoneInput<'_>) -> Vec<Zone> {
    let topology = input.topology;
    let nodes: BTreeSet<u32> = topology
        .nodes()
        .keys()
        .chain(topology.memory_only_nodes())
        .chain(input.memory.keys())
        .copied()
        .collect();
    let parts = shares(&input.reserved, nodes.len());
    let mut zones: Vec<Zone> = nodes
        .into_iter()
        .map(|node| Zone {
            name: format!("node-{node}"),
            zone_type: ZONE_TYPE_NODE.to_owned(),
            resources: resources(input, node)
                .into_iter()
                .map(|(name, capacity)| {
                    let left = parts.get(name).map_or(capacity, |part| less(capacity, *part));
                    ZoneResource { name: name.to_owned(), capacity, allocatable: left, available: left }
                })
                .collect(),
            ..Zone::default()
        })
        .collect();
    zones.sort_by(|one, other| one.name.cmp(&other.name));
    zones
}

/// Capacity of a NUMA node, by name.
fn resources(input: &ZoneInput<'_>, node: u32) -> BTreeMap<&'static str, Quantity> {
    let cpus = input.topology.nodes().get(&node).map_or(0, koord_extension::cpuset::CpuSet::len);
    let memory = input.memory.get(&node).copied().unwrap_or_default();
    let (large, small) = if input.report_huge_pages {
        (memory.huge_pages_1gi, memory.huge_pages_2mi)
    } else {
        (Bytes::ZERO, Bytes::ZERO)
    };
    let other = memory.total.saturating_sub(large).saturating_sub(small).max(Bytes::ZERO);
    let bytes = |bytes: Bytes| Quantity::from_value(bytes.get(), Format::BinarySi);
    let cpus = Quantity::from_value(i64::try_from(cpus).unwrap_or(i64::MAX), Format::DecimalSi);
    BTreeMap::from([
        (resource::CPU, cpus),
        (resource::MEMORY, bytes(other)),
        (HUGE_PAGES_1GI, bytes(large)),
        (HUGE_PAGES_2MI, bytes(small)),
    ])
}

/// The part of one of `zones` zones, in thousandths and upward.
fn shares(reserved: &ResourceList, zones: usize) -> BTreeMap<&str, Quantity> {
    const NANOS_OF_A_THOUSANDTH: i128 = 1_000_000;
    let Some(divisor) = i128::try_from(zones).ok().filter(|zones| *zones > 0) else {
        return BTreeMap::new();
    };
    let divisor = divisor * NANOS_OF_A_THOUSANDTH;
    reserved
        .iter()
        .map(|(name, quantity)| {
            // Rounding to thousandths first would give the same: a quotient upward of a quotient upward.
            let thousandths =
                quantity.nanos().div_euclid(divisor) + i128::from(quantity.nanos().rem_euclid(divisor) != 0);
            let part = Quantity::from_nanos(thousandths * NANOS_OF_A_THOUSANDTH, quantity.format());
            (name.as_str(), part)
        })
        .collect()
}

fn less(capacity: Quantity, part: Quantity) -> Quantity {
    let left = capacity.minus(part);
    if left.is_positive() {
        left.with_format(capacity.format())
    } else {
        Quantity::from_value(0, capacity.format())
    }
}

/// `computed` with what others have put into the zones that are still there: their resources, costs and attributes.
pub fn merged(existing: &[Zone], computed: Vec<Zone>) -> Vec<Zone> {
    computed
        .into_iter()
        .map(|mut zone| {
            let Some(known) =
                existing.iter().find(|known| known.name == zone.name && known.zone_type == zone.zone_type)
            else {
                return zone;
            };
            let foreign = known
                .resources
                .iter()
                .filter(|other| !zone.resources.iter().any(|own| own.name == other.name))
                .cloned()
                .collect::<Vec<_>>();
            zone.resources.extend(foreign);
            zone.resources.sort_by(|one, other| one.name.cmp(&other.name));
            Zone {
                parent: known.parent.clone(),
                costs: known.costs.clone(),
                attributes: known.attributes.clone(),
                ..zone
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
