//! Every file of a control group that the product knows: where it is on each version, what it takes, how its text reads.
//!
//! A resource is named after its file of version 1, because that is the word of the CRI and of Koordinator; files that only
//! version 2 has keep their name. Kernel versions are where a file first appeared in mainline. They are told for readers:
//! code looks for the file.

use std::fmt;

use crate::error::CgroupError;
use crate::layout::Controller;
use crate::value::Value;
use crate::version::CgroupVersion;
use crate::weight::Conversion;

mod table;
mod text;

pub(crate) use text::{FileText, extent, number_of};

/// A file of a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Periods, throttling and, on version 2, use of CPU. Read only.
    CpuStat,
    /// Share of the CPU while it is contended, in shares (2..262144). Version 2: `cpu.weight`, converted.
    CpuShares,
    /// CPU time in each period, in microseconds; −1 for no limit. Version 2: first word of `cpu.max`.
    CpuQuota,
    /// Length of the period, in microseconds. Version 2: second word of `cpu.max`.
    CpuPeriod,
    /// CPU time that may be saved up, in microseconds (5.14). Version 2: `cpu.max.burst`.
    CpuBurst,
    /// Identity of the group for vendor kernels' schedulers (−1..2).
    CpuBvtWarpNs,
    /// 1 for a group that yields to all others (5.15).
    CpuIdle,
    /// Least performance the group asks for, in percent (5.4).
    CpuUclampMin,
    /// Most performance the group asks for, in percent or `max` (5.4).
    CpuUclampMax,
    /// Threads. Version 2: `cgroup.threads`. One id for each write.
    Tasks,
    /// Processes. One id for each write.
    Procs,
    /// CPUs that may be used. On version 2 the CPUs in effect are read from `cpuset.cpus.effective`.
    CpusetCpus,
    /// Memory nodes that may be used.
    CpusetMems,
    /// Exclusive CPUs for a partition (version 2, 6.7).
    CpusetExclusive,
    /// Kind of partition (version 2, 5.0): `member`, `root`, `isolated`.
    CpusetPartition,
    /// CPU time by mode. Version 2: `cpu.stat`. Read only.
    CpuacctStat,
    /// CPU time in nanoseconds. Version 2: `cpu.stat`. Read only.
    CpuacctUsage,
    /// Stalls for want of CPU. On version 1 in the vendor's `cpuacct`, or in the version 2 tree of a hybrid node.
    CpuPressure,
    /// Stalls for want of memory.
    MemoryPressure,
    /// Stalls for want of I/O.
    IoPressure,
    /// Limit of memory in bytes; −1 for none. Version 2: `memory.max`.
    MemoryLimit,
    /// Limit that reclaim aims at when memory is short, in bytes; −1 for none (version 1).
    MemorySoftLimit,
    /// Limit of memory and swap together, in bytes; −1 for none (version 1). Never below [`Resource::MemoryLimit`].
    MemorySwapLimit,
    /// Limit of swap in bytes; −1 for none (version 2).
    MemorySwapMax,
    /// Memory in use, in bytes. Version 2: `memory.current`. Read only.
    MemoryUsage,
    /// Memory by kind. Read only.
    MemoryStat,
    /// Memory by kind and node. Read only.
    MemoryNumaStat,
    /// Memory that is never reclaimed, in bytes; −1 for all.
    MemoryMin,
    /// Memory that is reclaimed last, in bytes; −1 for all.
    MemoryLow,
    /// Memory above which tasks are throttled and reclaimed from, in bytes; −1 for none.
    MemoryHigh,
    /// Reclaims at once when written: `BYTES [swappiness=N]` (version 2, 5.19). Never the same, never read.
    MemoryReclaim,
    /// Share of the limit at which background reclaim starts, in percent (vendor).
    MemoryWmarkRatio,
    /// Distance between the watermarks of background reclaim (vendor).
    MemoryWmarkScaleFactor,
    /// Shift of the node's watermarks for this group, in percent (vendor).
    MemoryWmarkMinAdj,
    /// Order in which groups are killed when memory is out (vendor).
    MemoryPriority,
    /// 1 to use that order (vendor).
    MemoryUsePriorityOom,
    /// 1 to kill the group as a whole (version 2, 4.19; vendor on version 1).
    MemoryOomGroup,
    /// 1 to limit the page cache (vendor).
    MemoryPageCacheEnable,
    /// Limit of the page cache in bytes (vendor).
    MemoryPageCacheSize,
    /// 1 to reclaim page cache in the writer's time (vendor).
    MemoryPageCacheSync,
    /// Pages by idle time (vendor). Read only.
    MemoryIdlePageStats,
    /// Reads each second: `MAJOR:MINOR N`, 0 for no limit. Version 2: key `riops` of `io.max`.
    BlkioReadIops,
    /// Bytes read each second: `MAJOR:MINOR N`, 0 for no limit. Version 2: key `rbps` of `io.max`.
    BlkioReadBps,
    /// Writes each second: `MAJOR:MINOR N`, 0 for no limit. Version 2: key `wiops` of `io.max`.
    BlkioWriteIops,
    /// Bytes written each second: `MAJOR:MINOR N`, 0 for no limit. Version 2: key `wbps` of `io.max`.
    BlkioWriteBps,
    /// Share of a device: `MAJOR:MINOR N` (vendor). Version 2: the same line of `io.weight`.
    BlkioCostWeight,
    /// Quality of service of a device (root only; vendor). Version 2: `io.cost.qos` (5.4).
    BlkioCostQos,
    /// Cost model of a device (root only; vendor). Version 2: `io.cost.model` (5.4).
    BlkioCostModel,
    /// All limits of a device: `MAJOR:MINOR rbps=N wbps=N riops=N wiops=N` (version 2, 4.5).
    IoMax,
    /// Share of all devices or of one: `default N` or `MAJOR:MINOR N` (version 2, 5.4).
    IoWeight,
    /// Share for the BFQ scheduler: a number, `default N` or `MAJOR:MINOR N` (version 2, 5.0).
    IoBfqWeight,
    /// Latency to protect: `MAJOR:MINOR target=MICROSECONDS` (version 2, 4.19).
    IoLatency,
    /// Class of I/O requests (version 2, 5.14): `no-change`, `promote-to-rt`, `restrict-to-be`, `idle`.
    IoPrioClass,
    /// Class of network packets (version 1), 0..0xFFFFFFFF.
    NetClsClassId,
}

/// Where a resource is on one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceFile {
    /// The hierarchy; of no meaning on version 2.
    pub controller: Controller,
    /// Name of the file that is written.
    pub name: &'static str,
    /// Name of the file that tells what is in effect, where that is another.
    pub effective: Option<&'static str>,
}

impl Resource {
    /// All of them, in the order of their declaration.
    pub const ALL: &'static [Resource] = table::ALL;

    /// The name: the file's of version 1, or of version 2 where only that has it.
    pub fn as_str(self) -> &'static str {
        let row = table::row(self);
        row.v1.or(row.v2).map_or("", |file| file.name)
    }

    /// The resource with this name.
    pub fn from_name(name: &str) -> Option<Resource> {
        Resource::ALL.iter().copied().find(|resource| resource.as_str() == name)
    }

    /// Where it is on `version`, or nothing if that version has none.
    pub fn file(self, version: CgroupVersion) -> Option<ResourceFile> {
        let row = table::row(self);
        match version {
            CgroupVersion::V1 => row.v1,
            CgroupVersion::V2 => row.v2,
        }
    }

    /// True if it exists in the root of a hierarchy only.
    pub const fn is_root_only(self) -> bool {
        matches!(self, Resource::BlkioCostQos | Resource::BlkioCostModel)
    }

    /// True if it can be written.
    pub fn is_writable(self) -> bool {
        !matches!(table::row(self).kind, table::Kind::ReadOnly | table::Kind::Pressure)
    }

    /// True if writing it is an act rather than a setting: nothing is compared, read back or remembered.
    pub const fn is_act(self) -> bool {
        matches!(self, Resource::Tasks | Resource::Procs | Resource::MemoryReclaim)
    }

    /// Checks a value: its kind and its range. The error says what is accepted.
    pub fn validate(self, value: &Value, version: CgroupVersion) -> Result<(), CgroupError> {
        text::validate(self, value, version)
    }

    /// The text that the kernel takes for a value, checked.
    ///
    /// On version 2 a quota is written without its period, which the kernel then keeps; a period alone cannot be written
    /// there, so its text is for a group without quota (`max PERIOD`) and the executor puts the quota in.
    pub fn to_kernel_text(
        self,
        value: &Value,
        version: CgroupVersion,
        conversion: Conversion,
    ) -> Result<String, CgroupError> {
        text::to_kernel_text(self, value, version, conversion)
    }

    /// The value of a kernel's text.
    pub fn parse_kernel_text(
        self,
        text: &str,
        version: CgroupVersion,
        conversion: Conversion,
    ) -> Result<Value, CgroupError> {
        text::parse_kernel_text(self, text, version, conversion)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
