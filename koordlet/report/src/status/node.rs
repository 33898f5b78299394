//! Percentiles of the node and of the system, and usage by NUMA node.

use std::time::Duration;

use koord_crd::node_metric::{AggregatedUsage, NumaUsage, ResourceMap, aggregation};
use koord_extension::duration::GoDuration;
use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::window::{Percentile, Window};

use super::{GaugeUsage, Gauges, GpuFacts, NumaGauges, Reader, resource_map};

/// Average and percentiles, in the order of [`aggregation::ALL`].
pub(super) fn all_of(window: &Window) -> [f64; 5] {
    let [p50, p90, p95, p99] = Percentile::ALL.map(|at| window.percentile(at));
    [window.average(), p50, p90, p95, p99]
}

impl Reader<'_> {
    /// An entry for each duration of the policy, with all keys in any case.
    pub(super) fn aggregated(
        &self,
        list: &str,
        cpu: Kind,
        memory: Kind,
        gpus: &[GpuFacts],
    ) -> Vec<AggregatedUsage> {
        let durations = self.view.policy.durations.iter();
        durations
            .map(|duration| {
                let figures = self.percentiles(list, *duration, cpu, memory, gpus);
                let figures = figures.unwrap_or_else(|| aggregation::ALL.map(|_| ResourceMap::default()));
                let usage = aggregation::ALL.into_iter().map(str::to_owned).zip(figures).collect();
                AggregatedUsage { usage, duration: GoDuration(*duration) }
            })
            .collect()
    }

    /// Average and percentiles, in the order of [`aggregation::ALL`]; none unless CPU and memory are known
    /// and samples of CPU span half of the duration: after a start, a window holds too little to stand for
    /// it.
    fn percentiles(
        &self,
        list: &str,
        duration: Duration,
        cpu: Kind,
        memory: Kind,
        gpus: &[GpuFacts],
    ) -> Option<[ResourceMap; 5]> {
        let field = |resource: &str| {
            format!("nodeMetric.{list}[{}].usage.*.resources.{resource}", GoDuration(duration))
        };
        let cpu = self.windows.window(&Object::Node, cpu, duration, || field("cpu"))?;
        if cpu.duration().saturating_mul(2) < duration {
            self.windows.remark(|| {
                format!(
                    "left out: samples span {} ms, less than half of the window",
                    cpu.duration().as_millis()
                )
            });
            return None;
        }
        let memory = self.windows.window(&Object::Node, memory, duration, || field("memory"))?;
        let mut figures = all_of(&cpu)
            .into_iter()
            .zip(all_of(&memory))
            .map(|(cpu, memory)| resource_map(cpu, memory))
            .collect::<Vec<ResourceMap>>();
        for gpu in gpus {
            let Some(devices) = self.gpu_percentiles(list, duration, gpu) else { continue };
            for (usage, device) in figures.iter_mut().zip(devices) {
                usage.devices.push(device);
            }
        }
        figures.try_into().ok()
    }

    /// Usage of the NUMA nodes of which CPU and memory are known, ascending by number.
    pub(super) fn numa_usages(&self, gauges: &mut Gauges) -> Vec<NumaUsage> {
        let mut numbers = self.view.numa_nodes.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let window = self.aggregate();
        let mut usages = Vec::new();
        for number in numbers {
            let Ok(numa_node_id) = i32::try_from(number) else { continue };
            let object = Object::Numa(number);
            let average = |kind, field: &str| {
                let path = || format!("nodeMetric.numaUsages[{number}].{field}");
                self.windows.summary(&object, kind, window, path).map(|found| found.average)
            };
            let both = |cpu, memory, usage: &str| {
                let cpu = average(cpu, &format!("{usage}.resources.cpu"))?;
                let memory = average(memory, &format!("{usage}.resources.memory"))?;
                Some(GaugeUsage { cpu, memory })
            };
            let Some(node) = both(Kind::NumaCpuUsage, Kind::NumaMemoryUsage, "nodeUsage") else { continue };
            let system = both(Kind::SystemNumaCpuUsage, Kind::SystemNumaMemoryUsage, "systemUsage");
            let map = |usage: GaugeUsage| resource_map(usage.cpu, usage.memory);
            usages.push(NumaUsage {
                numa_node_id,
                node_usage: map(node),
                system_usage: system.map(map).unwrap_or_default(),
            });
            gauges.numa.push(NumaGauges { numa_node_id: number, node, system });
        }
        usages
    }
}
