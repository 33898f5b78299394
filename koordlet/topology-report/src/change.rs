//! Whether an object has to be written.

use std::collections::BTreeMap;
use std::fmt;

use koord_crd::node_resource_topology::{NodeResourceTopology, Zone, ZoneResource};
use koord_extension::keys::{annotation, label};
use serde_json::Value;

use crate::Report;
use crate::zones::MANAGED;

/// The annotations that a report owns.
pub const ANNOTATIONS: [&str; 8] = [
    annotation::NODE_CPU_BASIC_INFO,
    annotation::KUBELET_CPU_MANAGER_POLICY,
    annotation::NODE_CPU_SHARED_POOLS,
    annotation::NODE_BE_CPU_SHARED_POOLS,
    annotation::NODE_CPU_TOPOLOGY,
    annotation::NODE_POD_CPU_ALLOCS,
    annotation::NODE_RESERVATION,
    annotation::NODE_SYSTEM_QOS_RESOURCE,
];

/// The labels that a report owns.
pub const LABELS: [&str; 1] = [label::NODE_ENABLE_NUMA_RESERVATION];

/// An object as it is published.
#[derive(Debug, Clone, Copy)]
pub struct Published<'a> {
    /// `metadata.labels`.
    pub labels: &'a BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// Everything but the metadata.
    pub body: &'a NodeResourceTopology,
}

/// The first thing that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An annotation, by key.
    Annotation(&'static str),
    /// A label, by key.
    Label(&'static str),
    /// `topologyPolicies`.
    Policies,
    /// The number of zones, or the name or type of one.
    Zones,
    /// A resource of a zone.
    Resource {
        /// The zone.
        zone: String,
        /// The resource.
        resource: &'static str,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Annotation(key) => write!(formatter, "annotation {key}"),
            Change::Label(key) => write!(formatter, "label {key}"),
            Change::Policies => formatter.write_str("topologyPolicies"),
            Change::Zones => formatter.write_str("zones"),
            Change::Resource { zone, resource } => write!(formatter, "{resource} of {zone}"),
        }
    }
}

/// The first difference that matters. Annotations are compared as JSON: neither spaces nor the order of keys matter. Text
/// that is no JSON differs from everything. Amounts are compared as numbers.
pub(crate) fn change(report: &Report, published: &Published<'_>) -> Option<Change> {
    let annotation = ANNOTATIONS
        .into_iter()
        .find(|key| !same_json(report.annotations.get(*key), published.annotations.get(*key)));
    if let Some(key) = annotation {
        return Some(Change::Annotation(key));
    }
    let label = LABELS.into_iter().find(|key| {
        let wanted = report.labels.get(key).and_then(Option::as_deref).unwrap_or_default();
        wanted != published.labels.get(*key).map_or("", String::as_str)
    });
    if let Some(key) = label {
        return Some(Change::Label(key));
    }
    if report.body.topology_policies != published.body.topology_policies {
        return Some(Change::Policies);
    }
    zones_change(&report.body.zones, &published.body.zones)
}

fn zones_change(wanted: &[Zone], published: &[Zone]) -> Option<Change> {
    let is_same_zone =
        |(one, other): (&Zone, &Zone)| one.name == other.name && one.zone_type == other.zone_type;
    if wanted.len() != published.len() || !wanted.iter().zip(published).all(is_same_zone) {
        return Some(Change::Zones);
    }
    wanted.iter().zip(published).find_map(|(one, other)| {
        let resource = MANAGED.into_iter().find(|name| of(one, name) != of(other, name))?;
        Some(Change::Resource { zone: one.name.clone(), resource })
    })
}

fn of<'a>(zone: &'a Zone, name: &str) -> Option<&'a ZoneResource> {
    zone.resources.iter().find(|resource| resource.name == name)
}

fn same_json(one: Option<&String>, other: Option<&String>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            one == other || matches!((json(one), json(other)), (Some(one), Some(other)) if one == other)
        }
        _ => false,
    }
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}
