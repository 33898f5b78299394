//! What a rule can wish for: one setting of a pod, of a container or of a directory of the cgroup tree.
//!
//! Fields of the kernel have the names and the values of cgroup v1 where both versions have them (shares,
//! quota); whoever writes converts. Names are those of the kernel's files and of the CRI.

use std::borrow::Cow;
use std::fmt;

use crate::plan::Value;
use crate::view::CgroupVersion;

/// Where in the cgroup tree a wish belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The root of the tree, and what the node has only once.
    Node,
    /// The kubelet's directory of a Kubernetes QoS class; `Guaranteed` has the kubepods root.
    QosDirectory,
    /// The directory of an application of the host.
    HostApplication,
    /// A pod's directory.
    Pod,
    /// A container's directory, the sandbox's included, and what is given to its process.
    Container,
}

/// Number of a block device, `MAJOR:MINOR`: a whole disk, never a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the disk at its driver.
    pub minor: u32,
}

impl fmt::Display for DiskNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// One setting.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Field {
            $($(#[$doc])* $name,)*
            /// `blkio.throttle.read_iops_device` of a disk (v1): operations a second, 0 = no limit.
            BlkioReadIops(DiskNumber),
            /// `blkio.throttle.read_bps_device` of a disk (v1): bytes a second, 0 = no limit.
            BlkioReadBps(DiskNumber),
            /// `blkio.throttle.write_iops_device` of a disk (v1): operations a second, 0 = no limit.
            BlkioWriteIops(DiskNumber),
            /// `blkio.throttle.write_bps_device` of a disk (v1): bytes a second, 0 = no limit.
            BlkioWriteBps(DiskNumber),
            /// `blkio.cost.weight` of a disk (v1, vendor kernels): 1 to 100.
            BlkioCostWeight(DiskNumber),
            /// `blkio.cost.qos` of a disk (v1 root, vendor kernels): the line.
            BlkioCostQos(DiskNumber),
            /// `blkio.cost.model` of a disk (v1 root, vendor kernels): the line.
            BlkioCostModel(DiskNumber),
            /// `io.max` of a disk (v2, 4.5): the line.
            IoMax(DiskNumber),
            /// `io.weight` of a disk (v2, 5.4): the line `MAJOR:MINOR WEIGHT`, 1 to 10000.
            IoWeight(DiskNumber),
            /// `io.latency` of a disk (v2, 4.19): the line `MAJOR:MINOR target=MICROSECONDS`.
            IoLatency(DiskNumber),
            /// `io.cost.qos` of a disk (v2 root, 5.4): the line.
            IoCostQos(DiskNumber),
            /// `io.cost.model` of a disk (v2 root, 5.4): the line.
            IoCostModel(DiskNumber),
            /// An environment variable of a container, by name.
            Env(String),
            /// A device node of a container, by its path there.
            Device(String),
            /// A mount of a container, by its path there.
            Mount(String),
        }

        impl Field {
            /// The fields that there is one of per directory.
            pub const SINGLE: &[Field] = &[$(Field::$name),*];

            fn single_name(&self) -> Option<&'static str> {
                match self {
                    $(Field::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

fields! {
    /// `cpu.shares`: 2 to 262144; `cpu.weight` on v2.
    CpuShares = "cpu.shares",
    /// `cpu.cfs_quota_us`: microseconds a period, -1 = unlimited; first word of `cpu.max` on v2.
    CpuQuota = "cpu.cfs_quota_us",
    /// `cpu.cfs_burst_us` (5.14): microseconds that may be saved up; `cpu.max.burst` on v2.
    CpuBurst = "cpu.cfs_burst_us",
    /// `cpu.bvt_warp_ns` (vendor kernels): -1 to 2.
    CpuBvtWarpNs = "cpu.bvt_warp_ns",
    /// `cpu.idle` (5.15): 1 = runs only where nothing else wants to.
    CpuIdle = "cpu.idle",
    /// `cpu.uclamp.min` (5.4): percent with two decimals, or `max`.
    CpuUclampMin = "cpu.uclamp.min",
    /// `cpu.uclamp.max` (5.4): percent with two decimals, or `max`.
    CpuUclampMax = "cpu.uclamp.max",
    /// `cpuset.cpus`: CPUs; the empty set clears what was asked.
    CpusetCpus = "cpuset.cpus",
    /// `memory.limit_in_bytes`: bytes, -1 = unlimited; `memory.max` on v2.
    MemoryLimit = "memory.limit_in_bytes",
    /// `memory.min`: bytes.
    MemoryMin = "memory.min",
    /// `memory.low`: bytes.
    MemoryLow = "memory.low",
    /// `memory.high`: bytes, -1 = unlimited.
    MemoryHigh = "memory.high",
    /// `memory.oom.group`: 0 or 1.
    MemoryOomGroup = "memory.oom.group",
    /// `memory.use_priority_oom` (vendor kernels): 0 or 1.
    MemoryUsePriorityOom = "memory.use_priority_oom",
    /// `memory.priority` (vendor kernels): 0 to 12.
    MemoryPriority = "memory.priority",
    /// `memory.wmark_ratio` (vendor kernels): percent of the limit, 0 = off.
    MemoryWmarkRatio = "memory.wmark_ratio",
    /// `memory.wmark_scale_factor` (vendor kernels): 1 to 1000.
    MemoryWmarkScaleFactor = "memory.wmark_scale_factor",
    /// `memory.wmark_min_adj` (vendor kernels): -25 to 50.
    MemoryWmarkMinAdj = "memory.wmark_min_adj",
    /// `memory.pagecache_limit.enable` (vendor kernels, v2): 0 or 1.
    MemoryPageCacheLimitEnable = "memory.pagecache_limit.enable",
    /// `memory.pagecache_limit.size` (vendor kernels, v2): bytes.
    MemoryPageCacheLimitSize = "memory.pagecache_limit.size",
    /// `memory.pagecache_limit.sync` (vendor kernels, v2): 0 or 1.
    MemoryPageCacheLimitSync = "memory.pagecache_limit.sync",
    /// `oom_score_adj` of a container's processes: -1000 to 1000.
    OomScoreAdj = "oom_score_adj",
    /// Group of resctrl that a container's tasks belong to; at the level of the pod: the pod's own group.
    ResctrlClass = "resctrl class",
    /// Group of core scheduling: tasks of one group have one cookie; unset = no cookie.
    CoreSchedGroup = "core scheduling group",
    /// Slice of a container's threads (6.12), microseconds; 0 = the scheduler's own.
    SchedulerSlice = "sched_runtime",
}

/// A field of one disk, from the disk.
type OfDisk = fn(DiskNumber) -> Field;

/// The files that have a line for each disk.
const DISK_FILES: [(&str, OfDisk); 12] = [
    ("blkio.throttle.read_iops_device", Field::BlkioReadIops),
    ("blkio.throttle.read_bps_device", Field::BlkioReadBps),
    ("blkio.throttle.write_iops_device", Field::BlkioWriteIops),
    ("blkio.throttle.write_bps_device", Field::BlkioWriteBps),
    ("blkio.cost.weight", Field::BlkioCostWeight),
    ("blkio.cost.qos", Field::BlkioCostQos),
    ("blkio.cost.model", Field::BlkioCostModel),
    ("io.max", Field::IoMax),
    ("io.weight", Field::IoWeight),
    ("io.latency", Field::IoLatency),
    ("io.cost.qos", Field::IoCostQos),
    ("io.cost.model", Field::IoCostModel),
];

/// File and disk of the fields that there is one of per disk.
fn disk_field(field: &Field) -> Option<(&'static str, DiskNumber)> {
    let disk = match field {
        Field::BlkioReadIops(disk)
        | Field::BlkioReadBps(disk)
        | Field::BlkioWriteIops(disk)
        | Field::BlkioWriteBps(disk)
        | Field::BlkioCostWeight(disk)
        | Field::BlkioCostQos(disk)
        | Field::BlkioCostModel(disk)
        | Field::IoMax(disk)
        | Field::IoWeight(disk)
        | Field::IoLatency(disk)
        | Field::IoCostQos(disk)
        | Field::IoCostModel(disk) => *disk,
        _ => return None,
    };
    DISK_FILES.into_iter().find(|(_, of)| of(disk) == *field).map(|(file, _)| (file, disk))
}

impl Field {
    /// The name that is shown: the kernel's or the CRI's word, such as `cpu.shares` or `env NAME`.
    pub fn as_str(&self) -> Cow<'static, str> {
        if let Some(name) = self.single_name() {
            return Cow::Borrowed(name);
        }
        if let Some((file, disk)) = disk_field(self) {
            return Cow::Owned(format!("{file} {disk}"));
        }
        match self {
            Field::Env(name) => Cow::Owned(format!("env {name}")),
            Field::Device(path) => Cow::Owned(format!("device {path}")),
            Field::Mount(path) => Cow::Owned(format!("mount {path}")),
            _ => Cow::Borrowed("unnamed"),
        }
    }

    /// The field of that name, as [`Field::as_str`] gives it.
    pub fn from_name(name: &str) -> Option<Field> {
        if let Some(field) = Field::SINGLE.iter().find(|field| field.single_name() == Some(name)) {
            return Some(field.clone());
        }
        let (kind, which) = name.split_once(' ')?;
        match kind {
            "env" => Some(Field::Env(which.to_owned())),
            "device" => Some(Field::Device(which.to_owned())),
            "mount" => Some(Field::Mount(which.to_owned())),
            file => {
                let (major, minor) = which.split_once(':')?;
                let disk = DiskNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
                DISK_FILES.into_iter().find(|(name, _)| *name == file).map(|(_, of)| of(disk))
            }
        }
    }

    /// The kernel's file without the disk, for fields that are lines of a file of block devices.
    pub fn disk(&self) -> Option<(&'static str, DiskNumber)> {
        disk_field(self)
    }

    /// Whether a request of the CRI has a field for it at this level.
    ///
    /// Runtimes set nothing on a pod's directory: the resources in a sandbox's configuration are for
    /// information. What is given with a container's `unified` map is told by [`Field::unified_key`].
    pub fn carried_by_cri(&self, level: Level) -> bool {
        level == Level::Container
            && matches!(
                self,
                Field::CpuShares
                    | Field::CpuQuota
                    | Field::CpusetCpus
                    | Field::MemoryLimit
                    | Field::OomScoreAdj
                    | Field::Env(_)
                    | Field::Device(_)
                    | Field::Mount(_)
            )
    }

    /// Key of a container's `unified` map on v2, for fields that the CRI has no own field for.
    ///
    /// Files that take one line per disk are left out: a map has one value for a key.
    pub fn unified_key(&self, version: CgroupVersion) -> Option<&'static str> {
        if version == CgroupVersion::V1 {
            return None;
        }
        match self {
            Field::CpuBurst => Some("cpu.max.burst"),
            Field::CpuIdle
            | Field::CpuBvtWarpNs
            | Field::CpuUclampMin
            | Field::CpuUclampMax
            | Field::MemoryMin
            | Field::MemoryLow
            | Field::MemoryHigh
            | Field::MemoryOomGroup
            | Field::MemoryUsePriorityOom
            | Field::MemoryPriority
            | Field::MemoryWmarkRatio
            | Field::MemoryWmarkScaleFactor
            | Field::MemoryWmarkMinAdj
            | Field::MemoryPageCacheLimitEnable
            | Field::MemoryPageCacheLimitSize
            | Field::MemoryPageCacheLimitSync => self.single_name(),
            _ => None,
        }
    }

    /// The value that means nobody wants anything, to be put back when no rule wishes the field any longer
    /// and neither the kubelet asked for a value nor is the earlier one known.
    ///
    /// `None`: there is no such value; what the kubelet asked is put back, or nothing is done.
    pub fn neutral(&self) -> Option<Value> {
        let value = match self {
            Field::CpuBvtWarpNs
            | Field::CpuIdle
            | Field::CpuBurst
            | Field::MemoryMin
            | Field::MemoryLow
            | Field::MemoryUsePriorityOom
            | Field::MemoryPriority
            | Field::MemoryWmarkRatio
            | Field::MemoryWmarkMinAdj
            | Field::MemoryPageCacheLimitEnable
            | Field::MemoryPageCacheLimitSize
            | Field::MemoryPageCacheLimitSync
            | Field::SchedulerSlice => Value::Integer(0),
            Field::MemoryHigh => Value::Integer(-1),
            Field::MemoryWmarkScaleFactor => Value::Integer(50),
            Field::CpuUclampMin => Value::Text("0.00".to_owned()),
            Field::CpuUclampMax => Value::Text("max".to_owned()),
            Field::CpusetCpus => Value::Cpus(koord_extension::cpuset::CpuSet::default()),
            Field::CoreSchedGroup | Field::ResctrlClass => Value::Unset,
            Field::BlkioReadIops(disk)
            | Field::BlkioReadBps(disk)
            | Field::BlkioWriteIops(disk)
            | Field::BlkioWriteBps(disk) => Value::Text(format!("{disk} 0")),
            Field::BlkioCostWeight(disk) | Field::IoWeight(disk) => Value::Text(format!("{disk} 100")),
            Field::BlkioCostQos(disk) | Field::IoCostQos(disk) => Value::Text(format!("{disk} enable=0")),
            Field::IoMax(disk) => Value::Text(format!("{disk} rbps=max wbps=max riops=max wiops=max")),
            Field::IoLatency(disk) => Value::Text(format!("{disk} target=0")),
            Field::IoCostModel(disk) | Field::BlkioCostModel(disk) => {
                Value::Text(format!("{disk} ctrl=auto"))
            }
            Field::CpuShares
            | Field::CpuQuota
            | Field::MemoryLimit
            | Field::MemoryOomGroup
            | Field::OomScoreAdj
            | Field::Env(_)
            | Field::Device(_)
            | Field::Mount(_) => return None,
        };
        Some(value)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DiskNumber = DiskNumber { major: 8, minor: 16 };

    #[test]
    fn names_are_the_kernels_and_the_cris() {
        assert_eq!(Field::CpuQuota.as_str(), "cpu.cfs_quota_us");
        assert_eq!(Field::MemoryLimit.as_str(), "memory.limit_in_bytes");
        assert_eq!(Field::Env("A".to_owned()).as_str(), "env A");
        assert_eq!(Field::Device("/dev/nvidia0".to_owned()).to_string(), "device /dev/nvidia0");
        assert_eq!(Field::IoMax(DISK).as_str(), "io.max 8:16");
        assert_eq!(Field::BlkioReadBps(DISK).disk(), Some(("blkio.throttle.read_bps_device", DISK)));
    }

    #[test]
    fn names_lead_back_to_fields() {
        let of_disks = DISK_FILES.map(|(_, of)| of(DISK));
        let named = [
            Field::Env("A B".to_owned()),
            Field::Device("/dev/a".to_owned()),
            Field::Mount("/m n".to_owned()),
        ];
        for field in Field::SINGLE.iter().chain(&of_disks).chain(&named) {
            assert_eq!(Field::from_name(&field.as_str()).as_ref(), Some(field));
            assert_ne!(field.as_str(), "unnamed");
        }
        for text in ["", "cpu", "io.max", "io.max 8", "io.max 8:x", "io.other 8:0", "cpu.shares 8:0"] {
            assert_eq!(Field::from_name(text), None, "{text}");
        }
    }

    #[test]
    fn the_cri_carries_values_of_containers_only() {
        for field in [Field::CpuShares, Field::CpuQuota, Field::CpusetCpus, Field::MemoryLimit] {
            assert!(field.carried_by_cri(Level::Container), "{field}");
            assert!(!field.carried_by_cri(Level::Pod), "{field}");
            assert_eq!(field.unified_key(CgroupVersion::V2), None, "{field}");
        }
        assert!(!Field::CpuIdle.carried_by_cri(Level::Container));
        assert!(!Field::MemoryHigh.carried_by_cri(Level::Container));
    }

    #[test]
    fn the_unified_map_has_the_names_of_version_2() {
        assert_eq!(Field::CpuBurst.unified_key(CgroupVersion::V2), Some("cpu.max.burst"));
        assert_eq!(Field::MemoryHigh.unified_key(CgroupVersion::V2), Some("memory.high"));
        assert_eq!(Field::MemoryHigh.unified_key(CgroupVersion::V1), None);
        assert_eq!(Field::IoMax(DISK).unified_key(CgroupVersion::V2), None);
        assert_eq!(Field::CoreSchedGroup.unified_key(CgroupVersion::V2), None);
    }

    #[test]
    fn a_field_that_the_kubelet_asks_has_no_neutral_value() {
        assert_eq!(Field::CpuShares.neutral(), None);
        assert_eq!(Field::OomScoreAdj.neutral(), None);
        assert_eq!(Field::MemoryHigh.neutral(), Some(Value::Integer(-1)));
        assert_eq!(Field::IoWeight(DISK).neutral(), Some(Value::Text("8:16 100".to_owned())));
    }
}
