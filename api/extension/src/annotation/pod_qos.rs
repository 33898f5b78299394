//! QoS of one pod: CPU, burst, memory, block I/O, network, OOM score.
//!
//! The types without a policy of their own are used for whole classes of pods as well.

use std::collections::BTreeMap;

use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AnnotationError, json_annotation, json_newtype};
use crate::json::shape::{Described, Shape};
use crate::json::{self, Fill, FillSeed, Object};
use crate::keys::annotation;
use crate::quantity::{Quantity, QuantityError};
use crate::{json_object, json_words};

json_words! {
    /// Which ways of CPU burst are used.
    pub enum CpuBurstPolicy {
        /// Not stated.
        Unset = "",
        /// None.
        None = "none",
        /// The kernel's: unused quota is kept for later.
        CpuBurstOnly = "cpuBurstOnly",
        /// The quota is raised while the pod is throttled.
        CfsQuotaBurstOnly = "cfsQuotaBurstOnly",
        /// Both.
        Auto = "auto",
    }

    /// Where a pod's memory QoS comes from.
    pub enum MemoryQosPolicy {
        /// The node's configuration, same as `Default`.
        Unset = "",
        /// The node's configuration.
        Default = "default",
        /// Nowhere: it is off.
        None = "none",
        /// Recommended values, even where the node's configuration is off.
        Auto = "auto",
    }

    /// What a block I/O setting is about.
    pub enum BlockType {
        /// Not stated.
        Unset = "",
        /// A device, such as /dev/sdb.
        Device = "device",
        /// A volume group.
        VolumeGroup = "volumegroup",
        /// A volume of the pod.
        PodVolume = "podvolume",
    }
}

json_object! {
    /// CPU burst of a pod; what is unset comes from the node.
    pub struct CpuBurst {
        /// Which ways are used.
        policy: CpuBurstPolicy = "policy",
        /// Burst in percent of the limit, 0..10000 where 0 is off.
        cpu_burst_percent: Option<i64> = "cpuBurstPercent",
        /// To how many percent of the limit the quota may be raised, at least 100.
        cfs_quota_burst_percent: Option<i64> = "cfsQuotaBurstPercent",
        /// For how many seconds it may stay raised; -1 for ever.
        cfs_quota_burst_period_seconds: Option<i64> = "cfsQuotaBurstPeriodSeconds",
    }

    /// CPU QoS of a pod or a class.
    pub struct CpuQos {
        /// Whether it is on.
        enable: Option<bool> = "enable",
        /// Group identity, -1..2.
        group_identity: Option<i64> = "groupIdentity",
        /// Whether the cgroup is idle, 0..1.
        sched_idle: Option<i64> = "schedIdle",
        /// Whether its pods keep idle ones off their cores.
        core_expeller: Option<bool> = "coreExpeller",
    }

    /// Numbers of memory QoS, of a pod or a class.
    pub struct MemoryQosValues {
        /// memory.min in percent of the request, 0..100.
        min_limit_percent: Option<i64> = "minLimitPercent",
        /// memory.low in percent of the request, 0..100.
        low_limit_percent: Option<i64> = "lowLimitPercent",
        /// memory.high in percent of the way from request to limit, 0..100 where 0 is off.
        throttling_percent: Option<i64> = "throttlingPercent",
        /// Background reclaim starts at this percent of the limit, 0..100 where 0 is off.
        wmark_ratio: Option<i64> = "wmarkRatio",
        /// Background reclaim stops so many thousandths below, 1..1000.
        wmark_scale_permill: Option<i64> = "wmarkScalePermill",
        /// Moves the global watermark for the cgroup, -25..50.
        wmark_min_adj: Option<i64> = "wmarkMinAdj",
        /// Whether the OOM priority counts, 0..1.
        priority_enable: Option<i64> = "priorityEnable",
        /// OOM priority, 0..12.
        priority: Option<i64> = "priority",
        /// Whether the OOM killer takes all of the cgroup, 0..1.
        oom_kill_group: Option<i64> = "oomKillGroup",
        /// Whether the page cache is limited.
        page_cache_enable: Option<bool> = "pageCacheEnable",
        /// Limit of the page cache in percent of the memory limit, 0..100.
        page_cache_limit_percent: Option<i64> = "pageCacheLimitPercent",
        /// Limit of the page cache in bytes.
        page_cache_limit_size: Option<i64> = "pageCacheLimitSize",
        /// Whether the page cache is reclaimed at once.
        page_cache_reclaim_sync: Option<bool> = "pageCacheReclaimSync",
    }

    /// Block I/O QoS of a pod.
    pub struct BlkioQos {
        /// Settings, one for each device.
        blocks: Vec<Block> = "blocks",
    }

    /// Block I/O of one device.
    pub struct Block {
        /// Name of the device, the volume group, or the volume.
        name: String = "name",
        /// Whether the name is that of a device, a volume group, or a volume of a pod.
        block_type: BlockType = "type",
        /// Settings for it.
        io_cfg: IoConfig = "ioCfg" keep,
    }

    /// Settings of block I/O.
    pub struct IoConfig {
        /// Reads per second; 0 is no limit.
        read_iops: Option<i64> = "readIOPS",
        /// Writes per second; 0 is no limit.
        write_iops: Option<i64> = "writeIOPS",
        /// Bytes read per second; 0 is no limit.
        read_bps: Option<i64> = "readBPS",
        /// Bytes written per second; 0 is no limit.
        write_bps: Option<i64> = "writeBPS",
        /// Weight in percent, 1..100.
        io_weight_percent: Option<i64> = "ioWeightPercent",
        /// Wished latency of reads, microseconds.
        read_latency: Option<i64> = "readLatency",
        /// Wished latency of writes, microseconds.
        write_latency: Option<i64> = "writeLatency",
        /// Percentile at which the reads' latency is looked at, 0..100.
        read_latency_percent: Option<i64> = "readLatencyPercent",
        /// Percentile at which the writes' latency is looked at, 0..100.
        write_latency_percent: Option<i64> = "writeLatencyPercent",
        /// Whether the numbers below are used in place of the kernel's own measurements.
        enable_user_model: Option<bool> = "enableUserModel",
        /// Bytes the device reads per second, at least 1.
        model_read_bps: Option<i64> = "modelReadBPS",
        /// Bytes the device writes per second, at least 1.
        model_write_bps: Option<i64> = "modelWriteBPS",
        /// Sequential reads per second, at least 1.
        model_read_seq_iops: Option<i64> = "modelReadSeqIOPS",
        /// Sequential writes per second, at least 1.
        model_write_seq_iops: Option<i64> = "modelWriteSeqIOPS",
        /// Random reads per second, at least 1.
        model_read_rand_iops: Option<i64> = "modelReadRandIOPS",
        /// Random writes per second, at least 1.
        model_write_rand_iops: Option<i64> = "modelWriteRandIOPS",
    }

    /// Bandwidth limits of a pod, quantities of bits per second.
    pub struct NetworkQos {
        /// Of what it receives; empty is none.
        ingress_limit: String = "ingressLimit",
        /// Of what it sends; empty is none.
        egress_limit: String = "egressLimit",
    }
}

/// Memory QoS of a pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryQos {
    /// Where the numbers come from that are not stated here.
    pub policy: MemoryQosPolicy,
    /// Numbers of the pod itself, which hold under every policy.
    pub values: MemoryQosValues,
}

impl MemoryQos {
    const POLICY: &'static str = "policy";
}

// In JSON the numbers stand beside the policy.
impl Object for MemoryQos {
    fn field_named(key: &str) -> Option<&'static str> {
        if key == MemoryQos::POLICY { Some(MemoryQos::POLICY) } else { MemoryQosValues::field_named(key) }
    }

    fn field_like(key: &str) -> Option<&'static str> {
        if json::same_key(key, MemoryQos::POLICY) {
            Some(MemoryQos::POLICY)
        } else {
            MemoryQosValues::field_like(key)
        }
    }

    fn fill_field<'de, A: MapAccess<'de>>(
        &mut self,
        field: &'static str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match field {
            MemoryQos::POLICY => map.next_value_seed(FillSeed(&mut self.policy)),
            _ => self.values.fill_field(field, map),
        }
    }
}

impl Fill for MemoryQos {
    fn fill<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        json::fill_object(self, deserializer)
    }
}

impl<'de> Deserialize<'de> for MemoryQos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MemoryQos, D::Error> {
        json::filled(deserializer)
    }
}

impl Serialize for MemoryQos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            #[serde(skip_serializing_if = "str::is_empty")]
            policy: &'a str,
            #[serde(flatten)]
            values: &'a MemoryQosValues,
        }
        Flat { policy: self.policy.as_str(), values: &self.values }.serialize(serializer)
    }
}

/// A bandwidth of a class: a share of the node's total, or a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bandwidth {
    /// Percent of the node's total, 0..100. An integer in JSON.
    Percent(i64),
    /// Bits per second. A string in JSON.
    BitsPerSecond(Quantity),
}

impl Default for Bandwidth {
    /// Nothing, which is no limit and no request.
    fn default() -> Bandwidth {
        Bandwidth::Percent(0)
    }
}

impl Bandwidth {
    /// Bytes per second on a node with a total of so many bits per second, downward.
    pub fn bytes_per_second(self, total_bits: i64) -> i64 {
        let bits = match self {
            Bandwidth::Percent(percent) => crate::units::scale(total_bits, percent, 100),
            Bandwidth::BitsPerSecond(bits) => bits.value(),
        };
        bits / 8
    }
}

impl Serialize for Bandwidth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Bandwidth::Percent(percent) => serializer.serialize_i64(*percent),
            Bandwidth::BitsPerSecond(bits) => bits.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bandwidth, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Percent(i64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Percent(percent) => Ok(Bandwidth::Percent(percent)),
            Either::Text(text) => {
                Quantity::parse(&text).map(Bandwidth::BitsPerSecond).map_err(serde::de::Error::custom)
            }
        }
    }
}

impl Described for Bandwidth {
    fn shape() -> Shape {
        Shape::IntegerOrText
    }
}

impl Fill for Bandwidth {
    fn fill<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        if let Some(value) = Option::<Bandwidth>::deserialize(deserializer)? {
            *self = value;
        }
        Ok(())
    }
}

json_newtype! {
    /// OOM score adjustment by container, each -1000..1000.
    pub struct OomScoreAdjSpec(BTreeMap<String, i64>);
}

json_annotation!(CpuBurst, annotation::CPU_BURST);
json_annotation!(CpuQos, annotation::CPU_QOS, check = check_cpu_qos);
json_annotation!(MemoryQos, annotation::MEMORY_QOS);
json_annotation!(BlkioQos, annotation::BLKIO_QOS);
json_annotation!(NetworkQos, annotation::NETWORK_QOS);
json_annotation!(OomScoreAdjSpec, annotation::OOM_SCORE_ADJ_SPEC);

fn check_cpu_qos(qos: &CpuQos) -> Result<(), String> {
    match qos.group_identity {
        Some(identity) if !(-1..=2).contains(&identity) => {
            Err(format!("groupIdentity is {identity}; wanted -1..2"))
        }
        _ => Ok(()),
    }
}

impl MemoryQosValues {
    /// These values, and where they are unset those of `base`.
    #[must_use]
    pub fn over(&self, base: &MemoryQosValues) -> MemoryQosValues {
        MemoryQosValues {
            min_limit_percent: self.min_limit_percent.or(base.min_limit_percent),
            low_limit_percent: self.low_limit_percent.or(base.low_limit_percent),
            throttling_percent: self.throttling_percent.or(base.throttling_percent),
            wmark_ratio: self.wmark_ratio.or(base.wmark_ratio),
            wmark_scale_permill: self.wmark_scale_permill.or(base.wmark_scale_permill),
            wmark_min_adj: self.wmark_min_adj.or(base.wmark_min_adj),
            priority_enable: self.priority_enable.or(base.priority_enable),
            priority: self.priority.or(base.priority),
            oom_kill_group: self.oom_kill_group.or(base.oom_kill_group),
            page_cache_enable: self.page_cache_enable.or(base.page_cache_enable),
            page_cache_limit_percent: self.page_cache_limit_percent.or(base.page_cache_limit_percent),
            page_cache_limit_size: self.page_cache_limit_size.or(base.page_cache_limit_size),
            page_cache_reclaim_sync: self.page_cache_reclaim_sync.or(base.page_cache_reclaim_sync),
        }
    }
}

impl NetworkQos {
    /// Limit of what the pod receives, bytes per second; none if it states none.
    pub fn ingress_bytes_per_second(&self) -> Result<Option<i64>, QuantityError> {
        bytes_per_second(&self.ingress_limit)
    }

    /// Limit of what the pod sends, bytes per second; none if it states none.
    pub fn egress_bytes_per_second(&self) -> Result<Option<i64>, QuantityError> {
        bytes_per_second(&self.egress_limit)
    }
}

fn bytes_per_second(bits: &str) -> Result<Option<i64>, QuantityError> {
    if bits.is_empty() { Ok(None) } else { Ok(Some(Quantity::parse(bits)?.value() / 8)) }
}

/// OOM score adjustment that a pod wants for a container: the container's own, else the pod's, else none.
///
/// An error concerns this container only; the others may still be adjusted.
pub fn oom_score_adj(
    annotations: &BTreeMap<String, String>,
    container: &str,
) -> Result<Option<i64>, AnnotationError> {
    if let Some(spec) = OomScoreAdjSpec::from_annotations(annotations)?
        && let Some(score) = spec.0.get(container)
    {
        return checked_score(*score).map(Some).map_err(|problem| {
            AnnotationError::new(OomScoreAdjSpec::KEY, &format!("{container}: {score}"), problem)
        });
    }
    let key = annotation::OOM_SCORE_ADJ;
    let Some(text) = annotations.get(key) else { return Ok(None) };
    match text.parse() {
        Ok(score) => {
            checked_score(score).map(Some).map_err(|problem| AnnotationError::new(key, text, problem))
        }
        Err(_) => Err(AnnotationError::new(key, text, "wanted a whole number, -1000..1000")),
    }
}

fn checked_score(score: i64) -> Result<i64, String> {
    if (-1000..=1000).contains(&score) {
        Ok(score)
    } else {
        Err(format!("{score} is out of range; wanted -1000..1000"))
    }
}
