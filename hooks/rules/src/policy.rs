//! The node's policy in the words that rules use, with what a pod states over it.

use koord_crd::node_slo::{ClassMemoryQos, CpuPolicy, CpuSuppressPolicy, IoSettings};
use koord_extension::annotation::{
    BlkioQos, Block as StatedBlock, BlockType, CpuBurst, MemoryQos, MemoryQosPolicy,
};
use koord_extension::qos::QosClass;
use koord_extension::units::{Bytes, Percent};

use crate::field::DiskNumber;
use crate::view::{BatchQuota, CgroupVersion, NodeView};

/// Whether CPU time is divided by group identity.
pub(crate) fn is_group_identity(node: &NodeView) -> bool {
    node.slo.cpu_policy == CpuPolicy::GroupIdentity
}

/// Whether CPU time is divided by core scheduling.
pub(crate) fn is_core_sched(node: &NodeView) -> bool {
    node.slo.cpu_policy == CpuPolicy::CoreSched
}

/// Whether CPU QoS of a class is enabled.
pub(crate) fn cpu_enabled(node: &NodeView, class: QosClass) -> bool {
    node.slo.class(class).cpu.enable
}

/// Identity of a class, held to what the kernel takes.
pub(crate) fn group_identity(node: &NodeView, class: QosClass) -> i64 {
    node.slo.class(class).cpu.group_identity.clamp(-1, 2)
}

/// Whether the directories of a class are idle.
pub(crate) fn sched_idle(node: &NodeView, class: QosClass) -> bool {
    node.slo.class(class).cpu.sched_idle
}

/// Whether a class's pods keep others off their cores.
pub(crate) fn core_expeller(node: &NodeView, class: QosClass) -> bool {
    node.slo.class(class).cpu.core_expeller
}

/// The suppression of best-effort pods under which none has a quota of its own; `None` = they have.
pub(crate) fn suppression_without_quota(node: &NodeView) -> Option<&'static str> {
    let threshold = &node.slo.threshold;
    if !threshold.enable {
        return None;
    }
    match (&threshold.cpu_suppress_policy, node.options.batch_quota) {
        (CpuSuppressPolicy::CfsQuota, _) => Some("quota"),
        (_, BatchQuota::UnsetUnderSuppression) => Some("CPUs"),
        (_, BatchQuota::UnsetUnderQuotaSuppression) => None,
    }
}

/// Burst in percent of the quota; `None` = the policy has none.
pub(crate) fn burst_percent(node: &NodeView, own: Option<&CpuBurst>) -> Option<i64> {
    let strategy = node.slo.cpu_burst_of_pod(own);
    strategy.keeps_unused_quota().then(|| strategy.cpu_burst_percent.clamp(0, 10_000))
}

/// Shares of cache and memory bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheShares {
    pub(crate) cat_start: Percent,
    pub(crate) cat_end: Percent,
    pub(crate) mba: Percent,
}

/// What an enabled class gets of cache and memory bandwidth.
pub(crate) fn resctrl(node: &NodeView, class: QosClass) -> Option<CacheShares> {
    let shares = node.slo.class(class).resctrl;
    shares.enable.then_some(CacheShares {
        cat_start: Percent(shares.cat_range_start_percent),
        cat_end: Percent(shares.cat_range_end_percent),
        mba: Percent(shares.mba_percent),
    })
}

/// Memory QoS of a pod or a class, within what the kernel takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemorySettings {
    /// Whether the class, or the pod's own policy, enables it: otherwise the values mean "nothing".
    pub(crate) enabled: bool,
    pub(crate) min: Percent,
    pub(crate) low: Percent,
    pub(crate) throttling: Percent,
    pub(crate) wmark_ratio: Percent,
    pub(crate) wmark_scale_permill: i64,
    pub(crate) wmark_min_adj: i64,
    pub(crate) priority_enable: i64,
    pub(crate) priority: i64,
    pub(crate) oom_group: i64,
    pub(crate) page_cache_enable: Option<bool>,
    pub(crate) page_cache_percent: Option<Percent>,
    pub(crate) page_cache_size: Option<Bytes>,
    pub(crate) page_cache_sync: Option<bool>,
}

impl From<ClassMemoryQos> for MemorySettings {
    fn from(values: ClassMemoryQos) -> MemorySettings {
        let percent = |value: i64| Percent(value.clamp(0, 100));
        MemorySettings {
            enabled: values.enable,
            min: percent(values.min_limit_percent),
            low: percent(values.low_limit_percent),
            throttling: percent(values.throttling_percent),
            wmark_ratio: percent(values.wmark_ratio),
            wmark_scale_permill: values.wmark_scale_permill.clamp(1, 1000),
            wmark_min_adj: values.wmark_min_adj.clamp(-25, 50),
            priority_enable: i64::from(values.priority_enable),
            priority: values.priority.clamp(0, 12),
            oom_group: i64::from(values.oom_kill_group),
            page_cache_enable: values.page_cache_enable,
            page_cache_percent: values.page_cache_limit_percent.map(percent),
            page_cache_size: values.page_cache_limit_size.map(|size| Bytes(size.max(0))),
            page_cache_sync: values.page_cache_reclaim_sync,
        }
    }
}

/// Memory QoS of a class, with what a pod states over it; `None`: the class does not enable it and the pod
/// states nothing, so files that others may use are left alone.
pub(crate) fn memory(node: &NodeView, class: QosClass, own: Option<&MemoryQos>) -> Option<MemorySettings> {
    let of_class = node.slo.class(class).memory;
    let stated =
        own.is_some_and(|own| own.policy == MemoryQosPolicy::Auto || own.values != Default::default());
    (of_class.enable || stated).then(|| node.slo.memory_of_pod(class, own).into())
}

/// Numbers of a pod's annotation that are out of range, in words.
pub(crate) fn memory_out_of_range(own: &MemoryQos) -> Vec<String> {
    let values = &own.values;
    let ranges = [
        ("minLimitPercent", values.min_limit_percent, 0, 100),
        ("lowLimitPercent", values.low_limit_percent, 0, 100),
        ("throttlingPercent", values.throttling_percent, 0, 100),
        ("wmarkRatio", values.wmark_ratio, 0, 100),
        ("wmarkScalePermill", values.wmark_scale_permill, 1, 1000),
        ("wmarkMinAdj", values.wmark_min_adj, -25, 50),
        ("priorityEnable", values.priority_enable, 0, 1),
        ("priority", values.priority, 0, 12),
        ("oomKillGroup", values.oom_kill_group, 0, 1),
        ("pageCacheLimitPercent", values.page_cache_limit_percent, 0, 100),
    ];
    ranges
        .into_iter()
        .filter_map(|(name, value, least, most)| {
            let value = value.filter(|value| !(least..=most).contains(value))?;
            Some(format!("annotation {}: {name} {value} is outside {least} to {most}", MemoryQos::KEY))
        })
        .collect()
}

/// What a block is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Device,
    VolumeGroup,
    PodVolume,
    Unknown,
}

/// Settings of one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: BlockKind,
    pub(crate) io: IoNumbers,
    pub(crate) cost: Cost,
}

/// Limits of one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IoNumbers {
    pub(crate) read_iops: i64,
    pub(crate) write_iops: i64,
    pub(crate) read_bps: i64,
    pub(crate) write_bps: i64,
    pub(crate) weight_percent: i64,
    /// The lower of the latencies that are stated, microseconds.
    pub(crate) latency_target: Option<i64>,
}

/// Settings of the I/O cost controller for one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) read_percent: i64,
    pub(crate) read_latency: i64,
    pub(crate) write_percent: i64,
    pub(crate) write_latency: i64,
    /// Bytes a second, sequential and random operations a second: of reads, of writes.
    pub(crate) user_model: Option<[i64; 6]>,
}

impl Cost {
    /// The line of `blkio.cost.qos` (v1) or `io.cost.qos` (v2).
    pub(crate) fn qos_line(&self, disk: DiskNumber, version: CgroupVersion) -> String {
        let Cost { read_percent, read_latency, write_percent, write_latency, .. } = self;
        match version {
            CgroupVersion::V1 => format!(
                "{disk} enable=1 ctrl=user rpct={read_percent} rlat={read_latency} wpct={write_percent} wlat={write_latency}"
            ),
            // The kernel may slow the disk down to half and speed it up by half.
            CgroupVersion::V2 => format!(
                "{disk} enable=1 ctrl=user rpct={read_percent}.00 rlat={read_latency} wpct={write_percent}.00 wlat={write_latency} min=50 max=150"
            ),
        }
    }

    /// The line of `blkio.cost.model` (v1) or `io.cost.model` (v2).
    pub(crate) fn model_line(&self, disk: DiskNumber) -> String {
        match self.user_model {
            Some([read_bps, read_sequential, read_random, write_bps, write_sequential, write_random]) => {
                format!(
                    "{disk} ctrl=user rbps={read_bps} rseqiops={read_sequential} rrandiops={read_random} \
                 wbps={write_bps} wseqiops={write_sequential} wrandiops={write_random}"
                )
            }
            None => format!("{disk} ctrl=auto"),
        }
    }
}

fn block(stated: &StatedBlock) -> Block<'_> {
    let config = &stated.io_cfg;
    let io = IoSettings::from(config);
    let latencies = [config.read_latency, config.write_latency];
    let percentile = |value: i64| value.clamp(0, 100);
    Block {
        name: &stated.name,
        kind: match &stated.block_type {
            BlockType::Device => BlockKind::Device,
            BlockType::VolumeGroup => BlockKind::VolumeGroup,
            BlockType::PodVolume => BlockKind::PodVolume,
            _ => BlockKind::Unknown,
        },
        io: IoNumbers {
            read_iops: io.read_iops.max(0),
            write_iops: io.write_iops.max(0),
            read_bps: io.read_bps.max(0),
            write_bps: io.write_bps.max(0),
            weight_percent: io.io_weight_percent.clamp(1, 100),
            latency_target: latencies.into_iter().flatten().filter(|latency| *latency > 0).min(),
        },
        cost: Cost {
            read_percent: percentile(io.read_latency_percent),
            read_latency: io.read_latency.max(1),
            write_percent: percentile(io.write_latency_percent),
            write_latency: io.write_latency.max(1),
            user_model: io.enable_user_model.then(|| {
                [
                    io.model_read_bps,
                    io.model_read_seq_iops,
                    io.model_read_rand_iops,
                    io.model_write_bps,
                    io.model_write_seq_iops,
                    io.model_write_rand_iops,
                ]
                .map(|number| number.max(1))
            }),
        },
    }
}

/// Blocks of a pod's annotation.
pub(crate) fn blocks_of_annotation(own: &BlkioQos) -> Vec<Block<'_>> {
    own.blocks.iter().map(block).collect()
}

/// Blocks of an enabled class.
pub(crate) fn blocks_of_class(node: &NodeView, class: QosClass) -> Vec<Block<'_>> {
    let blkio = &node.slo.class(class).blkio;
    blkio.blocks.iter().filter(|_| blkio.enable).map(block).collect()
}

/// Blocks of the root of the tree.
pub(crate) fn blocks_of_root(node: &NodeView) -> Vec<Block<'_>> {
    let blkio = &node.slo.cgroup_root.blkio;
    blkio.blocks.iter().filter(|_| blkio.enable).map(block).collect()
}
