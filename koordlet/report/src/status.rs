//! The status of NodeMetric.

mod gpu;
mod node;
mod pods;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use koord_crd::node_metric::{NodeMetricInfo, NodeMetricStatus, PredictedMetric, ResourceMap};
use koord_crd::node_slo::HostApplication;
use koord_extension::priority::PriorityBands;
use koord_extension::units::{Bytes, MilliCpu};
use koord_prediction::pod::Pod;
use koord_prediction::prod::{ProdPrediction, ProdView};
use koord_prediction::{Predictor, Resources, WallTime};
use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::store::Store;
use koord_usage::time::Tick;

pub use gpu::GpuFacts;

use crate::evidence::{Evidence, Windows};
use crate::memory::MemoryMeasure;
use crate::policy::Policy;

/// Everything a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Windows of samples.
    pub store: &'a Store,
    /// Now, by the clock of samples.
    pub tick: Tick,
    /// Now, by the wall clock.
    pub now: WallTime,
    /// What is asked for.
    pub policy: &'a Policy,
    /// The pods of the node, in the order of the pod list.
    pub pods: &'a [Arc<Pod>],
    /// Which values of `spec.priority` are of which class.
    pub bands: &'a PriorityBands,
    /// Applications outside of Kubernetes; none where NodeSLO is not known.
    pub host_applications: &'a [HostApplication],
    /// Numbers of the NUMA nodes; none where they are not known.
    pub numa_nodes: &'a [u32],
    /// GPUs of the node.
    pub gpus: &'a [GpuFacts],
    /// What the predictor needs; none where nothing is to be predicted.
    pub prediction: Option<Prediction<'a>>,
    /// Details of the report.
    pub options: ReportOptions,
}

/// What the predictor needs.
#[derive(Debug, Clone, Copy)]
pub struct Prediction<'a> {
    /// The models.
    pub predictor: &'a Predictor,
    /// What the node can give to pods; see [`allocatable`](koord_prediction::prod::allocatable).
    pub allocatable: Option<Resources>,
}

/// Which parts of a status are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// All.
    #[default]
    Full,
    /// Without percentiles of the system, which no part of Koordinator reads.
    Slim,
}

/// Details of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportOptions {
    /// Which parts are written.
    pub profile: Profile,
    /// Whether the kernel tells which page cache is in use.
    pub hot_page_cache: bool,
    /// Whether the system's memory is measured as the node's is, so that the node's is the sum of pods, host
    /// applications and the system under every policy (gate PolicyAwareSystemMemory). Koordinator always
    /// reports it without page cache.
    pub policy_aware_system_memory: bool,
    /// Whether the evidence of every figure is wanted.
    pub explain: bool,
}

/// A report and what else is to be told of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The status.
    pub status: NodeMetricStatus,
    /// Figures of gauges.
    pub gauges: Gauges,
    /// The prediction in all its parts, where there is one.
    pub prediction: Option<ProdPrediction>,
    /// Why some memory is not measured as the policy wants; none if all is.
    pub memory_fallback: Option<MemoryFallback>,
    /// The evidence of every figure, if it was wanted.
    pub evidence: Vec<Evidence>,
}

/// CPU and memory in base units, as gauges show them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GaugeUsage {
    /// Cores.
    pub cpu: f64,
    /// Bytes.
    pub memory: f64,
}

/// What is used on a NUMA node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumaGauges {
    /// Number of the NUMA node.
    pub numa_node_id: u32,
    /// All of it.
    pub node: GaugeUsage,
    /// The system's, where it is known.
    pub system: Option<GaugeUsage>,
}

/// Figures of the last report as gauges (`node_metric_*`), each absent where it is not known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gauges {
    /// The node's usage.
    pub node: Option<GaugeUsage>,
    /// The system's usage.
    pub system: Option<GaugeUsage>,
    /// Usage by NUMA node.
    pub numa: Vec<NumaGauges>,
}

/// Why memory is measured without page cache although the policy wants otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFallback {
    /// The kernel does not tell which page cache is in use.
    HotPageCacheUnsupported,
    /// A series of the wanted measure has no samples.
    NoSamples(MemoryMeasure),
}

impl std::fmt::Display for MemoryFallback {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemoryFallback::HotPageCacheUnsupported => formatter.write_str(
                "usageWithHotPageCache is asked for, but the kernel does not tell which page cache is in use; memory is reported without page cache",
            ),
            MemoryFallback::NoSamples(measure) => write!(
                formatter,
                "{} is asked for, but not measured for every object; where it is not, memory is reported without page cache",
                measure.as_str()
            ),
        }
    }
}

/// The status alone; see [`report`].
pub fn status(view: &View<'_>) -> NodeMetricStatus {
    report(view).status
}

/// Computes a report. Its time is new in any case; what is not known is `{}`.
pub fn report(view: &View<'_>) -> Report {
    let windows = Windows::new(view.store, view.tick);
    let windows = if view.options.explain { windows.explained() } else { windows };
    let mut reader = Reader::new(view, &windows);
    let mut gauges = Gauges::default();

    let node_metric = reader.node_metric(&mut gauges);
    let host_application_metric = reader.host_applications();
    let (pods_metric, measured) = reader.pods();
    let memory_fallback = reader.fallback;

    let prediction = view.prediction.map(|prediction| {
        let of = ProdView { allocatable: prediction.allocatable, bands: view.bands, now: view.now };
        prediction.predictor.prod(measured, &of)
    });
    let predicted = |resources: &Resources| PredictedMetric {
        resource: ResourceMap::cpu_and_memory(resources.cpu, resources.memory),
    };
    let status = NodeMetricStatus {
        update_time: Some(view.now.timestamp()),
        node_metric: Some(node_metric),
        pods_metric,
        host_application_metric,
        // That there is no prediction is told by an empty one; of the peak, by none.
        prod_reclaimable_metric: prediction
            .as_ref()
            .map(|prediction| prediction.reclaimable.as_ref().map(predicted).unwrap_or_default()),
        prod_peak_metric: prediction
            .as_ref()
            .and_then(|prediction| prediction.peak.as_ref().ok().map(predicted)),
    };
    Report { status, gauges, prediction, memory_fallback, evidence: windows.into_evidence() }
}

/// CPU and memory of one object, averaged.
#[derive(Debug, Clone, Copy)]
struct Measured {
    cpu: f64,
    memory: f64,
    /// What memory was measured by.
    by: MemoryMeasure,
}

impl Measured {
    fn resource_map(&self) -> ResourceMap {
        resource_map(self.cpu, self.memory)
    }

    fn gauges(&self) -> GaugeUsage {
        GaugeUsage { cpu: self.cpu, memory: self.memory }
    }
}

/// Cores to thousandths and bytes to whole ones, truncated.
fn resource_map(cpu: f64, memory: f64) -> ResourceMap {
    ResourceMap::cpu_and_memory(milli(cpu), Bytes(truncated(memory)))
}

/// Thousandths of a CPU, truncated. A figure less than a millionth of one below the next is that: binary
/// fractions make 1000.9999999999999 of 1.001 times 1000, and an average of 0.2s is not always 0.2.
fn milli(cores: f64) -> MilliCpu {
    const NOISE: f64 = 1e-6;
    MilliCpu(truncated(cores * 1000.0 + NOISE))
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "truncation is the rule; out of range it is held at the ends"
)]
fn truncated(value: f64) -> i64 {
    value as i64
}

/// Reads the figures of a view.
struct Reader<'a> {
    view: &'a View<'a>,
    windows: &'a Windows<'a>,
    /// What the policy wants and the kernel can give.
    measure: MemoryMeasure,
    fallback: Option<MemoryFallback>,
}

impl<'a> Reader<'a> {
    fn new(view: &'a View<'a>, windows: &'a Windows<'a>) -> Reader<'a> {
        let is_unsupported =
            view.policy.memory == MemoryMeasure::WithHotPageCache && !view.options.hot_page_cache;
        let (measure, fallback) = if is_unsupported {
            (MemoryMeasure::WithoutPageCache, Some(MemoryFallback::HotPageCacheUnsupported))
        } else {
            (view.policy.memory, None)
        };
        Reader { view, windows, measure, fallback }
    }

    fn aggregate(&self) -> Duration {
        self.view.policy.aggregate
    }

    /// Average CPU and memory of an object; none unless both are known. Memory is measured as wanted, or
    /// else without page cache.
    fn measured(
        &mut self,
        object: &Object,
        cpu: Kind,
        memory: fn(MemoryMeasure) -> Kind,
        field: impl Fn(&str) -> String,
    ) -> Option<Measured> {
        let window = self.aggregate();
        let cpu = self.windows.summary(object, cpu, window, || field("cpu"))?.average;
        let wanted = self.measure;
        if let Some(found) = self.windows.summary(object, memory(wanted), window, || field("memory")) {
            return Some(Measured { cpu, memory: found.average, by: wanted });
        }
        if wanted == MemoryMeasure::WithoutPageCache {
            return None;
        }
        let other = MemoryMeasure::WithoutPageCache;
        let found = self.windows.summary(object, memory(other), window, || field("memory"))?;
        self.windows.remark(|| format!("in place of {}, which has no samples", wanted.as_str()));
        self.fallback = self.fallback.or(Some(MemoryFallback::NoSamples(wanted)));
        Some(Measured { cpu, memory: found.average, by: other })
    }

    fn node_metric(&mut self, gauges: &mut Gauges) -> NodeMetricInfo {
        let node = self.measured(&Object::Node, Kind::NodeCpuUsage, MemoryMeasure::of_node, |resource| {
            format!("nodeMetric.nodeUsage.resources.{resource}")
        });
        gauges.node = node.as_ref().map(Measured::gauges);
        let by = node.map_or(self.measure, |node| node.by);
        let system_by =
            if self.view.options.policy_aware_system_memory { by } else { MemoryMeasure::WithoutPageCache };
        let system = self.system(system_by);
        gauges.system = system.as_ref().map(Measured::gauges);

        let mut node_usage = node.as_ref().map(Measured::resource_map).unwrap_or_default();
        if node.is_some() {
            node_usage.devices = self.node_gpus();
        }
        NodeMetricInfo {
            node_usage,
            aggregated_node_usages: self.aggregated(
                "aggregatedNodeUsages",
                Kind::NodeCpuUsage,
                by.of_node(),
                self.view.gpus,
            ),
            system_usage: system.as_ref().map(Measured::resource_map).unwrap_or_default(),
            aggregated_system_usages: match self.view.options.profile {
                Profile::Full => {
                    let memory = system_by.of_system();
                    self.aggregated("aggregatedSystemUsages", Kind::SystemCpuUsage, memory, &[])
                }
                Profile::Slim => Vec::new(),
            },
            numa_usages: self.numa_usages(gauges),
        }
    }

    /// The system's usage, its memory measured like the node's.
    fn system(&self, by: MemoryMeasure) -> Option<Measured> {
        let field = |resource: &str| format!("nodeMetric.systemUsage.resources.{resource}");
        let window = self.aggregate();
        let average = |kind, resource| {
            self.windows.summary(&Object::Node, kind, window, || field(resource)).map(|found| found.average)
        };
        let cpu = average(Kind::SystemCpuUsage, "cpu")?;
        let memory = average(by.of_system(), "memory")?;
        Some(Measured { cpu, memory, by })
    }
}
