//! The table of files.

use super::{Resource, ResourceFile};
use crate::layout::Controller;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Statistics.
    ReadOnly,
    /// Statistics, of which version 1 has a second place.
    Pressure,
    /// Shares or weight.
    Shares,
    /// Quota: −1 or at least 1000.
    Quota,
    /// Period: 1000..1000000.
    Period,
    /// Burst: a number, on version 1 at most 100 s.
    Burst,
    /// A number in a range.
    Range(i64, i64),
    /// A number of bytes; −1 is none, written −1 on version 1 and `max` on version 2.
    Limit,
    /// A number of bytes; −1 is all, written as the largest number on version 1 and `max` on version 2.
    Protection,
    /// A percentage with `max`.
    Clamp,
    /// A list of CPUs.
    Cpus,
    /// An id, one for each write.
    Id,
    /// Text, checked loosely.
    Reclaim,
    /// One of some words.
    Word(&'static [&'static str]),
    /// A line for a device with one number: `MAJOR:MINOR N`, 0 or missing for none; on version 2 this key of a line.
    DeviceNumber(&'static str),
    /// A weight: `MAJOR:MINOR N`, and `default N` where the flag is set. The numbers are the range.
    DeviceWeight { default: bool, most: i64 },
    /// A line for a device with keys.
    DeviceKeys(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) v1: Option<ResourceFile>,
    pub(super) v2: Option<ResourceFile>,
    pub(super) kind: Kind,
}

const fn file(controller: Controller, name: &'static str) -> Option<ResourceFile> {
    Some(ResourceFile { controller, name, effective: None })
}

const fn both(controller: Controller, v1: &'static str, v2: &'static str, kind: Kind) -> Row {
    Row { v1: file(controller, v1), v2: file(controller, v2), kind }
}

const fn only_v1(controller: Controller, name: &'static str, kind: Kind) -> Row {
    Row { v1: file(controller, name), v2: None, kind }
}

const fn only_v2(controller: Controller, name: &'static str, kind: Kind) -> Row {
    Row { v1: None, v2: file(controller, name), kind }
}

pub(super) const ALL: &[Resource] = &[
    Resource::CpuStat,
    Resource::CpuShares,
    Resource::CpuQuota,
    Resource::CpuPeriod,
    Resource::CpuBurst,
    Resource::CpuBvtWarpNs,
    Resource::CpuIdle,
    Resource::CpuUclampMin,
    Resource::CpuUclampMax,
    Resource::Tasks,
    Resource::Procs,
    Resource::CpusetCpus,
    Resource::CpusetMems,
    Resource::CpusetExclusive,
    Resource::CpusetPartition,
    Resource::CpuacctStat,
    Resource::CpuacctUsage,
    Resource::CpuPressure,
    Resource::MemoryPressure,
    Resource::IoPressure,
    Resource::MemoryLimit,
    Resource::MemorySoftLimit,
    Resource::MemorySwapLimit,
    Resource::MemorySwapMax,
    Resource::MemoryUsage,
    Resource::MemoryStat,
    Resource::MemoryNumaStat,
    Resource::MemoryMin,
    Resource::MemoryLow,
    Resource::MemoryHigh,
    Resource::MemoryReclaim,
    Resource::MemoryWmarkRatio,
    Resource::MemoryWmarkScaleFactor,
    Resource::MemoryWmarkMinAdj,
    Resource::MemoryPriority,
    Resource::MemoryUsePriorityOom,
    Resource::MemoryOomGroup,
    Resource::MemoryPageCacheEnable,
    Resource::MemoryPageCacheSize,
    Resource::MemoryPageCacheSync,
    Resource::MemoryIdlePageStats,
    Resource::BlkioReadIops,
    Resource::BlkioReadBps,
    Resource::BlkioWriteIops,
    Resource::BlkioWriteBps,
    Resource::BlkioCostWeight,
    Resource::BlkioCostQos,
    Resource::BlkioCostModel,
    Resource::IoMax,
    Resource::IoWeight,
    Resource::IoBfqWeight,
    Resource::IoLatency,
    Resource::IoPrioClass,
    Resource::NetClsClassId,
];

pub(super) fn row(resource: Resource) -> Row {
    use Controller::{Blkio, Cpu, Cpuacct, Cpuset, Memory, NetCls};
    match resource {
        Resource::CpuStat => both(Cpu, "cpu.stat", "cpu.stat", Kind::ReadOnly),
        Resource::CpuShares => both(Cpu, "cpu.shares", "cpu.weight", Kind::Shares),
        Resource::CpuQuota => both(Cpu, "cpu.cfs_quota_us", "cpu.max", Kind::Quota),
        Resource::CpuPeriod => both(Cpu, "cpu.cfs_period_us", "cpu.max", Kind::Period),
        Resource::CpuBurst => both(Cpu, "cpu.cfs_burst_us", "cpu.max.burst", Kind::Burst),
        Resource::CpuBvtWarpNs => both(Cpu, "cpu.bvt_warp_ns", "cpu.bvt_warp_ns", Kind::Range(-1, 2)),
        Resource::CpuIdle => both(Cpu, "cpu.idle", "cpu.idle", Kind::Range(0, 1)),
        Resource::CpuUclampMin => both(Cpu, "cpu.uclamp.min", "cpu.uclamp.min", Kind::Clamp),
        Resource::CpuUclampMax => both(Cpu, "cpu.uclamp.max", "cpu.uclamp.max", Kind::Clamp),
        Resource::Tasks => both(Cpu, "tasks", "cgroup.threads", Kind::Id),
        Resource::Procs => both(Cpu, "cgroup.procs", "cgroup.procs", Kind::Id),
        Resource::CpusetCpus => Row {
            v1: file(Cpuset, "cpuset.cpus"),
            v2: Some(ResourceFile {
                controller: Cpuset,
                name: "cpuset.cpus",
                effective: Some("cpuset.cpus.effective"),
            }),
            kind: Kind::Cpus,
        },
        Resource::CpusetMems => Row {
            v1: file(Cpuset, "cpuset.mems"),
            v2: Some(ResourceFile {
                controller: Cpuset,
                name: "cpuset.mems",
                effective: Some("cpuset.mems.effective"),
            }),
            kind: Kind::Cpus,
        },
        Resource::CpusetExclusive => only_v2(Cpuset, "cpuset.cpus.exclusive", Kind::Cpus),
        Resource::CpusetPartition => {
            only_v2(Cpuset, "cpuset.cpus.partition", Kind::Word(&["member", "root", "isolated"]))
        }
        Resource::CpuacctStat => both(Cpuacct, "cpuacct.stat", "cpu.stat", Kind::ReadOnly),
        Resource::CpuacctUsage => both(Cpuacct, "cpuacct.usage", "cpu.stat", Kind::ReadOnly),
        Resource::CpuPressure => both(Cpuacct, "cpu.pressure", "cpu.pressure", Kind::Pressure),
        Resource::MemoryPressure => both(Cpuacct, "memory.pressure", "memory.pressure", Kind::Pressure),
        Resource::IoPressure => both(Cpuacct, "io.pressure", "io.pressure", Kind::Pressure),
        Resource::MemoryLimit => both(Memory, "memory.limit_in_bytes", "memory.max", Kind::Limit),
        Resource::MemorySoftLimit => only_v1(Memory, "memory.soft_limit_in_bytes", Kind::Limit),
        Resource::MemorySwapLimit => only_v1(Memory, "memory.memsw.limit_in_bytes", Kind::Limit),
        Resource::MemorySwapMax => only_v2(Memory, "memory.swap.max", Kind::Limit),
        Resource::MemoryUsage => both(Memory, "memory.usage_in_bytes", "memory.current", Kind::ReadOnly),
        Resource::MemoryStat => both(Memory, "memory.stat", "memory.stat", Kind::ReadOnly),
        Resource::MemoryNumaStat => both(Memory, "memory.numa_stat", "memory.numa_stat", Kind::ReadOnly),
        Resource::MemoryMin => both(Memory, "memory.min", "memory.min", Kind::Protection),
        Resource::MemoryLow => both(Memory, "memory.low", "memory.low", Kind::Protection),
        Resource::MemoryHigh => both(Memory, "memory.high", "memory.high", Kind::Protection),
        Resource::MemoryReclaim => only_v2(Memory, "memory.reclaim", Kind::Reclaim),
        Resource::MemoryWmarkRatio => {
            both(Memory, "memory.wmark_ratio", "memory.wmark_ratio", Kind::Range(0, 100))
        }
        Resource::MemoryWmarkScaleFactor => {
            both(Memory, "memory.wmark_scale_factor", "memory.wmark_scale_factor", Kind::Range(1, 1000))
        }
        Resource::MemoryWmarkMinAdj => {
            both(Memory, "memory.wmark_min_adj", "memory.wmark_min_adj", Kind::Range(-25, 50))
        }
        Resource::MemoryPriority => both(Memory, "memory.priority", "memory.priority", Kind::Range(0, 12)),
        Resource::MemoryUsePriorityOom => {
            both(Memory, "memory.use_priority_oom", "memory.use_priority_oom", Kind::Range(0, 1))
        }
        Resource::MemoryOomGroup => both(Memory, "memory.oom.group", "memory.oom.group", Kind::Range(0, 1)),
        Resource::MemoryPageCacheEnable => {
            only_v2(Memory, "memory.pagecache_limit.enable", Kind::Range(0, 1))
        }
        Resource::MemoryPageCacheSize => {
            only_v2(Memory, "memory.pagecache_limit.size", Kind::Range(0, i64::MAX))
        }
        Resource::MemoryPageCacheSync => only_v2(Memory, "memory.pagecache_limit.sync", Kind::Range(0, 1)),
        Resource::MemoryIdlePageStats => only_v1(Memory, "memory.idle_page_stats", Kind::ReadOnly),
        Resource::BlkioReadIops => {
            both(Blkio, "blkio.throttle.read_iops_device", "io.max", Kind::DeviceNumber("riops"))
        }
        Resource::BlkioReadBps => {
            both(Blkio, "blkio.throttle.read_bps_device", "io.max", Kind::DeviceNumber("rbps"))
        }
        Resource::BlkioWriteIops => {
            both(Blkio, "blkio.throttle.write_iops_device", "io.max", Kind::DeviceNumber("wiops"))
        }
        Resource::BlkioWriteBps => {
            both(Blkio, "blkio.throttle.write_bps_device", "io.max", Kind::DeviceNumber("wbps"))
        }
        Resource::BlkioCostWeight => {
            both(Blkio, "blkio.cost.weight", "io.weight", Kind::DeviceWeight { default: false, most: 100 })
        }
        Resource::BlkioCostQos => both(
            Blkio,
            "blkio.cost.qos",
            "io.cost.qos",
            Kind::DeviceKeys(&["enable", "ctrl", "rpct", "rlat", "wpct", "wlat", "min", "max"]),
        ),
        Resource::BlkioCostModel => both(
            Blkio,
            "blkio.cost.model",
            "io.cost.model",
            Kind::DeviceKeys(&[
                "ctrl",
                "model",
                "rbps",
                "rseqiops",
                "rrandiops",
                "wbps",
                "wseqiops",
                "wrandiops",
            ]),
        ),
        Resource::IoMax => only_v2(Blkio, "io.max", Kind::DeviceKeys(&["rbps", "wbps", "riops", "wiops"])),
        Resource::IoWeight => only_v2(Blkio, "io.weight", Kind::DeviceWeight { default: true, most: 10_000 }),
        Resource::IoBfqWeight => {
            only_v2(Blkio, "io.bfq.weight", Kind::DeviceWeight { default: true, most: 1_000 })
        }
        Resource::IoLatency => only_v2(Blkio, "io.latency", Kind::DeviceKeys(&["target"])),
        Resource::IoPrioClass => only_v2(
            Blkio,
            "io.prio.class",
            Kind::Word(&["no-change", "promote-to-rt", "restrict-to-be", "idle", "none-to-rt"]),
        ),
        Resource::NetClsClassId => only_v1(NetCls, "net_cls.classid", Kind::Range(0, 0xFFFF_FFFF)),
    }
}
