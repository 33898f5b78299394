//! `NodeMetric` of slo.koordinator.sh/v1alpha1: what a node uses, published by the node agent.
//!
//! The object is cluster-scoped and named like its node. The manager creates it and writes its spec, the
//! node agent writes its status. The shapes are those of Koordinator 1.6 (field order included, so that the
//! bytes are the same), read leniently as its Go programs read them.

use std::collections::BTreeMap;

use koord_extension::annotation::MemoryCollectPolicy;
use koord_extension::duration::GoDuration;
use koord_extension::json_object;
use koord_extension::keys::resource;
use koord_extension::quantity::{Format, Quantity, ResourceList};
use koord_extension::timestamp::Timestamp;
use koord_extension::units::{Bytes, MilliCpu};
use serde_json::Value;

use crate::device::DeviceInfo;

/// API group.
pub const GROUP: &str = "slo.koordinator.sh";
/// API version.
pub const VERSION: &str = "v1alpha1";
/// Kind.
pub const KIND: &str = "NodeMetric";
/// Name of the resource in paths.
pub const PLURAL: &str = "nodemetrics";

/// Keys of [`AggregatedUsage::usage`].
pub mod aggregation {
    /// Average.
    pub const AVERAGE: &str = "avg";
    /// Median.
    pub const P50: &str = "p50";
    /// 90th percentile.
    pub const P90: &str = "p90";
    /// 95th percentile.
    pub const P95: &str = "p95";
    /// 99th percentile.
    pub const P99: &str = "p99";

    /// All of them, in the order of JSON.
    pub const ALL: [&str; 5] = [AVERAGE, P50, P90, P95, P99];
}

json_object! {
    /// What is to be measured and how often it is reported.
    pub struct NodeMetricSpec {
        /// How usage is collected. What is unset comes from the defaults of the node agent.
        metric_collect_policy: Option<MetricCollectPolicy> = "metricCollectPolicy",
    }

    /// How usage is collected. What is unset comes from the defaults of the node agent.
    pub struct MetricCollectPolicy {
        /// Over how many seconds usage is averaged; below 60 counts as 60. Default 300.
        aggregate_duration_seconds: Option<i64> = "aggregateDurationSeconds",
        /// Seconds between two reports; below 30 counts as 30. Default 60.
        report_interval_seconds: Option<i64> = "reportIntervalSeconds",
        /// Over which times percentiles are computed. Default 5m, 10m and 30m.
        node_aggregate_policy: Option<NodeAggregatePolicy> = "nodeAggregatePolicy",
        /// What counts as memory in use. Default usageWithoutPageCache.
        node_memory_collect_policy: Option<MemoryCollectPolicy> = "nodeMemoryCollectPolicy",
    }

    /// Over which times percentiles are computed.
    pub struct NodeAggregatePolicy {
        /// Go durations, such as 5m0s. An empty list is none; an absent one is the default.
        durations: Option<Vec<GoDuration>> = "durations",
    }

    /// What the node uses.
    pub struct NodeMetricStatus {
        /// When the report was made.
        update_time: Option<Timestamp> = "updateTime",
        /// Usage of the node.
        node_metric: Option<NodeMetricInfo> = "nodeMetric",
        /// Usage of each pod, sorted by namespace and name.
        pods_metric: Vec<PodMetricInfo> = "podsMetric",
        /// Usage of each application outside of Kubernetes, sorted by name.
        host_application_metric: Vec<HostApplicationMetricInfo> = "hostApplicationMetric",
        /// What prod pods requested and are not expected to use.
        prod_reclaimable_metric: Option<PredictedMetric> = "prodReclaimableMetric",
        /// What prod pods are expected to use at their peak.
        prod_peak_metric: Option<PredictedMetric> = "prodPeakMetric",
    }

    /// Usage of the node. An empty usage is not known.
    pub struct NodeMetricInfo {
        /// Average usage of the whole node.
        node_usage: ResourceMap = "nodeUsage" keep,
        /// Average and percentiles of the usage of the whole node, one entry for each time.
        aggregated_node_usages: Vec<AggregatedUsage> = "aggregatedNodeUsages",
        /// Average usage of what is neither a pod nor a known application: the node without them.
        system_usage: ResourceMap = "systemUsage" keep,
        /// Average and percentiles of the system's usage, one entry for each time.
        aggregated_system_usages: Vec<AggregatedUsage> = "aggregatedSystemUsages",
        /// Average usage by NUMA node, sorted by number.
        numa_usages: Vec<NumaUsage> = "numaUsages",
    }

    /// Average and percentiles of usage over one time.
    pub struct AggregatedUsage {
        /// Usage by avg, p50, p90, p95 and p99. An empty one had too few samples.
        usage: BTreeMap<String, ResourceMap> = "usage",
        /// Over which time, a Go duration such as 5m0s.
        duration: GoDuration = "duration" keep,
    }

    /// Average usage of one NUMA node.
    pub struct NumaUsage {
        /// Number of the NUMA node.
        numa_node_id: i32 = "numaNodeID" keep,
        /// Usage of everything on it.
        node_usage: ResourceMap = "nodeUsage" keep,
        /// Usage of the system on it.
        system_usage: ResourceMap = "systemUsage" keep,
    }

    /// Average usage of one pod.
    pub struct PodMetricInfo {
        /// Name of the pod.
        name: String = "name",
        /// Namespace of the pod.
        namespace: String = "namespace",
        /// What it uses.
        pod_usage: ResourceMap = "podUsage" keep,
        /// Priority class of the pod, such as koord-prod.
        priority: String = "priority",
        /// QoS class of the pod, such as LS.
        qos: String = "qos",
        /// More about it, by name.
        extensions: BTreeMap<String, Value> = "extensions",
    }

    /// Average usage of one application outside of Kubernetes.
    pub struct HostApplicationMetricInfo {
        /// Name of the application.
        name: String = "name",
        /// What it uses.
        usage: ResourceMap = "usage" keep,
        /// Priority class of the application, such as koord-prod.
        priority: String = "priority",
        /// QoS class of the application, such as LS.
        qos: String = "qos",
    }

    /// A prediction.
    pub struct PredictedMetric {
        /// The predicted amounts. Empty if nothing can be predicted.
        resource: ResourceMap = "resource" keep,
    }

    /// Amounts of resources.
    pub struct ResourceMap {
        /// Amounts by name of the resource: cpu in cores, memory in bytes.
        resources: ResourceList = "resources",
        /// Amounts by device.
        devices: Vec<DeviceInfo> = "devices",
    }
}

impl ResourceMap {
    /// So much CPU and memory.
    pub fn cpu_and_memory(cpu: MilliCpu, memory: Bytes) -> ResourceMap {
        let resources = ResourceList::from([
            (resource::CPU.to_owned(), Quantity::from_milli(cpu.get(), Format::DecimalSi)),
            (resource::MEMORY.to_owned(), Quantity::from_value(memory.get(), Format::BinarySi)),
        ]);
        ResourceMap { resources, devices: Vec::new() }
    }

    /// Whether nothing is stated, which readers take as unknown.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.devices.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod tests;
