//! Reports that need not be written because nothing moved.

use std::time::Duration;

use koord_crd::node_metric::{NodeMetricInfo, NodeMetricStatus, ResourceMap};
use koord_extension::keys::resource;
use koord_extension::quantity::Quantity;
use koord_extension::units::{Bytes, MilliCpu};

/// No matter how much it is in percent, this much is a movement.
const CPU: MilliCpu = MilliCpu(100);
const MEMORY: Bytes = Bytes(256 << 20);

/// The age that a report may reach: readers take one of 180 s for outdated.
const LONGEST_GAP: Duration = Duration::from_secs(150);

/// Whether a round is left out, and which one before was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadBand {
    /// Movement in percent that is none; 0 switches it off.
    percent: u32,
    skipped_last: bool,
}

impl DeadBand {
    /// With so many percent.
    pub const fn new(percent: u32) -> DeadBand {
        DeadBand { percent, skipped_last: false }
    }

    /// Whether to leave out `next` as nothing moved since `written`: every figure of the node by less than
    /// the percentage, less than 100m of CPU and less than 256 MiB; the same pods and host applications.
    /// Never twice in a row, and only if two intervals are short enough for readers.
    pub fn skips(
        &mut self,
        written: Option<&NodeMetricStatus>,
        next: &NodeMetricStatus,
        interval: Duration,
    ) -> bool {
        let skips = self.percent > 0
            && !self.skipped_last
            && interval.saturating_mul(2) <= LONGEST_GAP
            && written.is_some_and(|written| is_still(written, next, self.percent));
        self.skipped_last = skips;
        skips
    }
}

fn is_still(old: &NodeMetricStatus, new: &NodeMetricStatus, percent: u32) -> bool {
    let pods = |status: &NodeMetricStatus| {
        let pods = status.pods_metric.iter();
        pods.map(|pod| (pod.namespace.clone(), pod.name.clone(), pod.priority.clone(), pod.qos.clone()))
            .collect::<Vec<_>>()
    };
    let applications = |status: &NodeMetricStatus| {
        let applications = status.host_application_metric.iter();
        applications.map(|one| (one.name.clone(), one.priority.clone(), one.qos.clone())).collect::<Vec<_>>()
    };
    let (before, after) = (figures(old), figures(new));
    pods(old) == pods(new)
        && applications(old) == applications(new)
        && before.len() == after.len()
        && before
            .iter()
            .zip(&after)
            .all(|((one, was), (other, is))| one == other && is_alike(was, is, percent))
}

/// All figures of the node, each with its place.
fn figures(status: &NodeMetricStatus) -> Vec<(String, &ResourceMap)> {
    let mut figures = Vec::new();
    if let Some(NodeMetricInfo {
        node_usage,
        aggregated_node_usages,
        system_usage,
        aggregated_system_usages,
        numa_usages,
    }) = &status.node_metric
    {
        figures.push(("node".to_owned(), node_usage));
        figures.push(("system".to_owned(), system_usage));
        for (list, usages) in [("node", aggregated_node_usages), ("system", aggregated_system_usages)] {
            for aggregated in usages {
                for (key, usage) in &aggregated.usage {
                    figures.push((format!("{list} {} {key}", aggregated.duration), usage));
                }
            }
        }
        for numa in numa_usages {
            figures.push((format!("numa {} node", numa.numa_node_id), &numa.node_usage));
            figures.push((format!("numa {} system", numa.numa_node_id), &numa.system_usage));
        }
    }
    for (name, predicted) in
        [("reclaimable", &status.prod_reclaimable_metric), ("peak", &status.prod_peak_metric)]
    {
        if let Some(predicted) = predicted {
            figures.push((name.to_owned(), &predicted.resource));
        }
    }
    figures
}

fn is_alike(old: &ResourceMap, new: &ResourceMap, percent: u32) -> bool {
    let lists_alike = |old: &koord_extension::quantity::ResourceList,
                       new: &koord_extension::quantity::ResourceList| {
        old.len() == new.len()
            && old
                .iter()
                .zip(new)
                .all(|((one, was), (other, is))| one == other && moved_little(one, *was, *is, percent))
    };
    lists_alike(&old.resources, &new.resources)
        && old.devices.len() == new.devices.len()
        && old.devices.iter().zip(&new.devices).all(|(was, is)| {
            was.id == is.id && was.health == is.health && lists_alike(&was.resources, &is.resources)
        })
}

fn moved_little(name: &str, old: Quantity, new: Quantity, percent: u32) -> bool {
    let moved = new.minus(old).nanos().unsigned_abs();
    if moved == 0 {
        return true;
    }
    let most = match name {
        resource::CPU => Quantity::from_milli(CPU.get(), Default::default()).nanos().unsigned_abs(),
        resource::MEMORY => Quantity::from_value(MEMORY.get(), Default::default()).nanos().unsigned_abs(),
        _ => u128::MAX,
    };
    // A magnitude is below 2^93, so neither product can overflow.
    moved < most && moved * 100 < old.nanos().unsigned_abs() * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use koord_crd::node_metric::{PodMetricInfo, PredictedMetric};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const GIB: i64 = 1 << 30;

    fn status(cpu: i64, memory: i64, pods: &[&str]) -> NodeMetricStatus {
        let usage = ResourceMap::cpu_and_memory(MilliCpu(cpu), Bytes(memory));
        NodeMetricStatus {
            node_metric: Some(NodeMetricInfo { node_usage: usage, ..NodeMetricInfo::default() }),
            pods_metric: pods
                .iter()
                .map(|name| PodMetricInfo { name: (*name).to_owned(), ..PodMetricInfo::default() })
                .collect(),
            ..NodeMetricStatus::default()
        }
    }

    fn skips(percent: u32, old: &NodeMetricStatus, new: &NodeMetricStatus) -> bool {
        DeadBand::new(percent).skips(Some(old), new, MINUTE)
    }

    #[test]
    fn small_movements_are_none() {
        let old = status(1000, GIB, &["a"]);
        assert!(skips(5, &old, &old));
        // Less than 5 %: 50m of 1000m is not.
        assert!(skips(5, &old, &status(1049, GIB, &["a"])));
        assert!(!skips(5, &old, &status(1050, GIB, &["a"])));
        assert!(skips(5, &old, &status(951, GIB, &["a"])));
        assert!(!skips(5, &old, &status(950, GIB, &["a"])));
        assert!(skips(5, &old, &status(1000, GIB + GIB / 20 - 1, &["a"])));
        assert!(!skips(5, &old, &status(1000, GIB + GIB / 20 + 1, &["a"])));
        // Less than 100m and 256 MiB, whatever the percentage.
        let large = status(10_000, 100 * GIB, &["a"]);
        assert!(skips(5, &large, &status(10_099, 100 * GIB, &["a"])));
        assert!(!skips(5, &large, &status(10_100, 100 * GIB, &["a"])));
        assert!(skips(5, &large, &status(10_000, 100 * GIB + GIB / 4 - 1, &["a"])));
        assert!(!skips(5, &large, &status(10_000, 100 * GIB + GIB / 4, &["a"])));
        // Of nothing every movement is one.
        assert!(!skips(5, &status(0, 0, &[]), &status(1, 0, &[])));
    }

    #[test]
    fn what_changes_its_shape_moves() {
        let old = status(1000, GIB, &["a", "b"]);
        assert!(!skips(5, &old, &status(1000, GIB, &["a"])));
        assert!(!skips(5, &old, &status(1000, GIB, &["a", "c"])));
        let unknown = NodeMetricStatus { node_metric: Some(NodeMetricInfo::default()), ..old.clone() };
        assert!(!skips(5, &old, &unknown));
        let predicted =
            NodeMetricStatus { prod_peak_metric: Some(PredictedMetric::default()), ..old.clone() };
        assert!(!skips(5, &old, &predicted));
        let mut aggregated = old.clone();
        if let Some(node) = &mut aggregated.node_metric {
            node.aggregated_node_usages.push(koord_crd::node_metric::AggregatedUsage {
                usage: [("avg".to_owned(), ResourceMap::default())].into(),
                ..Default::default()
            });
        }
        assert!(!skips(5, &old, &aggregated));
        assert!(skips(5, &aggregated, &aggregated));
    }

    #[test]
    fn a_round_is_left_out_once_and_only_where_readers_do_not_notice() {
        let status = status(1000, GIB, &[]);
        let mut band = DeadBand::new(5);
        assert!(!band.skips(None, &status, MINUTE));
        let rounds: Vec<bool> = (0..4).map(|_| band.skips(Some(&status), &status, MINUTE)).collect();
        assert_eq!(rounds, [true, false, true, false]);
        assert!(DeadBand::new(5).skips(Some(&status), &status, Duration::from_secs(75)));
        assert!(!DeadBand::new(5).skips(Some(&status), &status, Duration::from_secs(76)));
        assert!(!DeadBand::new(0).skips(Some(&status), &status, MINUTE));
    }
}
