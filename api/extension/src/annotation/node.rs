//! Annotations of nodes.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::scheduling::resources;
use super::{AnnotationError, json_annotation};
use crate::keys::{annotation, resource};
use crate::quantity::{Format, Quantity, ResourceList};
use crate::{json_object, json_words};

json_words! {
    /// What a reservation takes from a node.
    pub enum ReservationApplyPolicy {
        /// Not stated, which is Default.
        Unset = "",
        /// Resources, for the scheduler and for batch, and CPUs.
        Default = "Default",
        /// CPUs only, from binding and shared pools.
        ReservedCpusOnly = "ReservedCPUsOnly",
    }

    /// How CPU or memory in use is counted when reclaimed resources are computed.
    pub enum CalculatePolicy {
        /// Not stated.
        Unset = "",
        /// What is used.
        Usage = "usage",
        /// What is requested; memory only.
        Request = "request",
        /// The larger of the two.
        MaxUsageRequest = "maxUsageRequest",
    }

    /// How memory in use is measured.
    pub enum MemoryCollectPolicy {
        /// Not stated.
        Unset = "",
        /// Without the page cache.
        UsageWithoutPageCache = "usageWithoutPageCache",
        /// With the page cache.
        UsageWithPageCache = "usageWithPageCache",
        /// With the part of the page cache that is in use.
        UsageWithHotPageCache = "usageWithHotPageCache",
    }
}

json_object! {
    /// Resources and CPUs that are kept from pods.
    pub struct NodeReservation {
        /// Resources.
        resources: ResourceList = "resources",
        /// CPUs, a Linux CPU list.
        reserved_cpus: String = "reservedCPUs",
        /// What it takes from the node.
        apply_policy: ReservationApplyPolicy = "applyPolicy",
    }

    /// CPUs of SYSTEM pods.
    pub struct SystemQosResource {
        /// The CPUs, a Linux CPU list.
        cpuset: String = "cpuset",
        /// Whether they are kept from all others; true unless stated.
        cpuset_exclusive: Option<bool> = "cpusetExclusive",
    }

    /// Extended resources before those of other systems were taken off.
    pub struct OriginExtendedAllocatable {
        /// The resources.
        resources: ResourceList = "resources",
    }

    /// Batch resources that other systems use.
    pub struct ThirdPartyAllocations {
        /// One entry for each of them.
        allocations: Vec<ThirdPartyAllocation> = "allocations",
    }

    /// Batch resources that one other system uses.
    pub struct ThirdPartyAllocation {
        /// Its name.
        name: String = "name" keep,
        /// Priority class of what it runs.
        priority: String = "priority",
        /// The resources.
        resources: ResourceList = "resources",
    }

    /// Load-aware thresholds of one node, in percent by resource.
    pub struct UsageThresholds {
        /// Of all that is used.
        usage_thresholds: BTreeMap<String, i64> = "usageThresholds",
        /// Of what prod pods use.
        prod_usage_thresholds: BTreeMap<String, i64> = "prodUsageThresholds",
        /// Of percentiles.
        aggregated_usage: Option<AggregatedUsage> = "aggregatedUsage",
    }

    /// Load-aware thresholds of percentiles.
    pub struct AggregatedUsage {
        /// In percent, by resource.
        usage_thresholds: BTreeMap<String, i64> = "usageThresholds",
        /// Which percentile, such as p95.
        usage_aggregation_type: String = "usageAggregationType",
        /// Over which time, a Go duration.
        usage_aggregated_duration: Option<String> = "usageAggregatedDuration",
    }

    /// How much of a node is given away a second time. What is unset comes from the level above.
    pub struct ColocationStrategy {
        /// Whether it is on.
        enable: Option<bool> = "enable",
        /// Over how many seconds usage is averaged, at least 1.
        metric_aggregate_duration_seconds: Option<i64> = "metricAggregateDurationSeconds",
        /// Seconds between reports, at least 1.
        metric_report_interval_seconds: Option<i64> = "metricReportIntervalSeconds",
        /// Over which times percentiles are computed.
        metric_aggregate_policy: Option<AggregatePolicy> = "metricAggregatePolicy",
        /// How memory is measured.
        metric_memory_collect_policy: Option<MemoryCollectPolicy> = "metricMemoryCollectPolicy",
        /// Percent of CPU that may be given away, at least 0.
        cpu_reclaim_threshold_percent: Option<i64> = "cpuReclaimThresholdPercent",
        /// How CPU in use is counted.
        cpu_calculate_policy: Option<CalculatePolicy> = "cpuCalculatePolicy",
        /// Percent of memory that may be given away, at least 0.
        memory_reclaim_threshold_percent: Option<i64> = "memoryReclaimThresholdPercent",
        /// How memory in use is counted.
        memory_calculate_policy: Option<CalculatePolicy> = "memoryCalculatePolicy",
        /// After how many minutes without a report nothing is given away, at least 1.
        degrade_time_minutes: Option<i64> = "degradeTimeMinutes",
        /// After how many seconds the node is updated in any case, at least 1.
        update_time_threshold_seconds: Option<i64> = "updateTimeThresholdSeconds",
        /// Relative change from which on the node is updated, above 0 and at most 1.
        resource_diff_threshold: Option<f64> = "resourceDiffThreshold",
        /// How mid resources are computed: unset, or static.
        mid_reclaim_mode: Option<String> = "midReclaimMode",
        /// Most mid CPU in percent of the node, 0..100.
        mid_cpu_threshold_percent: Option<i64> = "midCPUThresholdPercent",
        /// Most mid memory in percent of the node, 0..100.
        mid_memory_threshold_percent: Option<i64> = "midMemoryThresholdPercent",
        /// Percent of what is not allocated that counts as mid, 0..100.
        mid_unallocated_percent: Option<i64> = "midUnallocatedPercent",
        /// Percent of CPU reserved for mid in static mode, 0..100.
        mid_static_cpu_reserved_percent: Option<i64> = "midStaticCPUReservedPercent",
        /// Percent of memory reserved for mid in static mode, 0..100.
        mid_static_memory_reserved_percent: Option<i64> = "midStaticMemoryReservedPercent",
        /// Most batch CPU in percent of the node.
        batch_cpu_threshold_percent: Option<i64> = "batchCPUThresholdPercent",
        /// Most batch memory in percent of the node.
        batch_memory_threshold_percent: Option<i64> = "batchMemoryThresholdPercent",
        /// More, by name.
        extensions: BTreeMap<String, serde_json::Value> = "extensions",
    }

    /// Over which times percentiles are computed.
    pub struct AggregatePolicy {
        /// Go durations, such as 5m.
        durations: Vec<String> = "durations",
    }
}

json_annotation!(NodeReservation, annotation::NODE_RESERVATION, empty = absent);
json_annotation!(SystemQosResource, annotation::NODE_SYSTEM_QOS_RESOURCE);
json_annotation!(OriginExtendedAllocatable, annotation::NODE_ORIGIN_EXTENDED_ALLOCATABLE);
json_annotation!(ThirdPartyAllocations, annotation::NODE_THIRD_PARTY_ALLOCATIONS);
json_annotation!(UsageThresholds, annotation::NODE_USAGE_THRESHOLDS);
json_annotation!(ColocationStrategy, annotation::NODE_COLOCATION_STRATEGY);

/// Which CPUs a reservation takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservedCpus {
    /// These, a Linux CPU list.
    List(String),
    /// So many, to be chosen by topology; 0 is none.
    Count(i64),
}

impl NodeReservation {
    /// Which CPUs it takes: the list if there is one, else as many as the reserved CPU makes, upward.
    pub fn cpus(&self) -> ReservedCpus {
        if !self.reserved_cpus.is_empty() {
            return ReservedCpus::List(self.reserved_cpus.clone());
        }
        let cpu = self.resources.get(resource::CPU).copied().unwrap_or_default();
        ReservedCpus::Count(cpu.milli_cpu().cpus_upward().max(0))
    }

    /// Whether the resources are taken from what the scheduler and batch may give.
    pub fn takes_resources(&self) -> bool {
        self.apply_policy != ReservationApplyPolicy::ReservedCpusOnly
    }
}

impl SystemQosResource {
    /// What is published about a node's SYSTEM pods: none for a node without any annotation, an empty
    /// object for one without this annotation.
    pub fn published(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<SystemQosResource>, AnnotationError> {
        if annotations.is_empty() {
            return Ok(None);
        }
        SystemQosResource::from_annotations(annotations).map(Option::unwrap_or_default).map(Some)
    }

    /// Whether the CPUs are kept from all others.
    pub fn is_exclusive(&self) -> bool {
        self.cpuset_exclusive.unwrap_or(true)
    }
}

impl ColocationStrategy {
    /// What holds where nothing is stated.
    pub fn defaults() -> ColocationStrategy {
        ColocationStrategy {
            enable: Some(false),
            metric_aggregate_duration_seconds: Some(300),
            metric_report_interval_seconds: Some(60),
            metric_aggregate_policy: Some(AggregatePolicy {
                durations: ["5m", "10m", "30m"].map(str::to_owned).into(),
            }),
            metric_memory_collect_policy: Some(MemoryCollectPolicy::UsageWithoutPageCache),
            cpu_reclaim_threshold_percent: Some(60),
            cpu_calculate_policy: Some(CalculatePolicy::Usage),
            memory_reclaim_threshold_percent: Some(65),
            memory_calculate_policy: Some(CalculatePolicy::Usage),
            degrade_time_minutes: Some(15),
            update_time_threshold_seconds: Some(300),
            resource_diff_threshold: Some(0.1),
            mid_reclaim_mode: None,
            mid_cpu_threshold_percent: Some(100),
            mid_memory_threshold_percent: Some(100),
            mid_unallocated_percent: Some(0),
            mid_static_cpu_reserved_percent: Some(0),
            mid_static_memory_reserved_percent: Some(0),
            batch_cpu_threshold_percent: None,
            batch_memory_threshold_percent: None,
            extensions: BTreeMap::new(),
        }
    }
}

/// Total bandwidth of a node, bits per second; none if it states none.
pub fn network_bandwidth(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<Quantity>, AnnotationError> {
    let key = annotation::NODE_NETWORK_BANDWIDTH;
    let Some(text) = annotations.get(key) else { return Ok(None) };
    Quantity::parse(text).map(Some).map_err(|error| AnnotationError::new(key, text, error))
}

/// Allocatable resources of a node before amplification; none if it states none.
pub fn raw_allocatable(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<ResourceList>, AnnotationError> {
    resources(annotations, annotation::NODE_RAW_ALLOCATABLE)
}

/// Factors by which a node's resources are amplified, by resource.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AmplificationRatios(pub BTreeMap<String, f64>);

impl AmplificationRatios {
    /// Key of the annotation.
    pub const KEY: &'static str = annotation::NODE_RESOURCE_AMPLIFICATION_RATIO;

    /// Reads the annotation; none if it is absent.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<AmplificationRatios>, AnnotationError> {
        let Some(text) = annotations.get(Self::KEY) else { return Ok(None) };
        serde_json::from_str::<Option<BTreeMap<String, f64>>>(text)
            .map(|ratios| Some(AmplificationRatios(ratios.unwrap_or_default())))
            .map_err(|error| AnnotationError::new(Self::KEY, text, error))
    }

    /// The text of the annotation: every factor with two decimals.
    pub fn to_text(&self) -> String {
        let mut text = String::from("{");
        let mut separator = "";
        for (name, ratio) in &self.0 {
            // A name is a string, which is always representable; writing to a string cannot fail.
            let name = serde_json::to_string(name).unwrap_or_default();
            let _ = write!(text, "{separator}{name}:{ratio:.2}");
            separator = ",";
        }
        text.push('}');
        text
    }

    /// The factor of a resource; none if it has none.
    pub fn of(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

/// A node's resource times a factor, upward: CPU to a thousandth, any other to a whole unit. A factor of
/// 1 or less changes nothing. Memory and local storage are written in binary notation.
pub fn amplify(name: &str, quantity: Quantity, ratio: f64) -> Quantity {
    if ratio.is_nan() || ratio <= 1.0 || quantity.is_zero() {
        return quantity;
    }
    if name == resource::CPU {
        return Quantity::from_milli(amplified(quantity.milli(), ratio), Format::DecimalSi);
    }
    let format = match name {
        resource::MEMORY | resource::EPHEMERAL_STORAGE => Format::BinarySi,
        _ => quantity.format(),
    };
    Quantity::from_value(amplified(quantity.value(), ratio), format)
}

/// `value` x `ratio`, upward, in floating point as everywhere in the protocol; held at the ends of the
/// range.
fn amplified(value: i64, ratio: f64) -> i64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "`as` holds a float at the ends of the range; Koordinator loses the same precision"
    )]
    let amplified = (value as f64 * ratio).ceil() as i64;
    amplified
}

/// Speed of a node's CPUs relative to the nominal one; none if normalization is off.
pub fn cpu_normalization_ratio(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<f64>, AnnotationError> {
    let key = annotation::NODE_CPU_NORMALIZATION_RATIO;
    let Some(text) = annotations.get(key) else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(ratio) if ratio > 0.0 && ratio.is_finite() => Ok(Some(ratio)),
        _ => Err(AnnotationError::new(key, text, "wanted a number above 0")),
    }
}

/// The text of a normalization ratio: two decimals.
pub fn cpu_normalization_text(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// Whether two normalization ratios differ by more than the written precision, 0.01.
pub fn cpu_normalization_differs(one: f64, other: f64) -> bool {
    (one - other).abs() > 0.01
}

/// Key of a CPU model in the table of normalization ratios.
pub fn cpu_model_key(info: &super::CpuBasicInfo) -> String {
    format!("{}_{}_{}", info.cpu_model, info.hyper_thread_enabled, info.turbo_enabled)
}
