//! What a sample measures.

use crate::object::{Object, ObjectClass};

/// Resource that a pressure figure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureResource {
    /// Processor time.
    Cpu,
    /// Memory.
    Memory,
    /// Block devices.
    Io,
}

impl PressureResource {
    /// All, in the order of their codes.
    pub const ALL: [PressureResource; 3] =
        [PressureResource::Cpu, PressureResource::Memory, PressureResource::Io];

    /// The value of label `psi_resource`.
    pub const fn as_str(self) -> &'static str {
        match self {
            PressureResource::Cpu => "cpu",
            PressureResource::Memory => "mem",
            PressureResource::Io => "io",
        }
    }
}

/// How many tasks waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureDegree {
    /// At least one.
    Some,
    /// All that had work.
    Full,
}

impl PressureDegree {
    /// All, in the order of their codes.
    pub const ALL: [PressureDegree; 2] = [PressureDegree::Some, PressureDegree::Full];

    /// The value of label `psi_degree`.
    pub const fn as_str(self) -> &'static str {
        match self {
            PressureDegree::Some => "some",
            PressureDegree::Full => "full",
        }
    }
}

/// Which number of a pressure line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureFigure {
    /// Percent of the last 10 s.
    Avg10,
    /// Percent of the last 60 s.
    Avg60,
    /// Percent of the last 300 s.
    Avg300,
    /// Seconds since the group was made.
    Total,
}

impl PressureFigure {
    /// All, in the order of their codes.
    pub const ALL: [PressureFigure; 4] =
        [PressureFigure::Avg10, PressureFigure::Avg60, PressureFigure::Avg300, PressureFigure::Total];

    /// The value of label `psi_precision`.
    pub const fn as_str(self) -> &'static str {
        match self {
            PressureFigure::Avg10 => "avg10",
            PressureFigure::Avg60 => "avg60",
            PressureFigure::Avg300 => "avg300",
            PressureFigure::Total => "total",
        }
    }
}

/// One number of the pressure files of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pressure {
    /// The file.
    pub resource: PressureResource,
    /// The line.
    pub degree: PressureDegree,
    /// The number in it.
    pub figure: PressureFigure,
}

impl Pressure {
    /// Number of different ones.
    const COUNT: u16 = 24;

    const fn index(self) -> u16 {
        (self.resource as u16) * 8 + (self.degree as u16) * 4 + self.figure as u16
    }

    const fn from_index(index: u16) -> Option<Pressure> {
        if index >= Pressure::COUNT {
            return None;
        }
        let resource = match index / 8 {
            0 => PressureResource::Cpu,
            1 => PressureResource::Memory,
            _ => PressureResource::Io,
        };
        let degree = match index / 4 % 2 {
            0 => PressureDegree::Some,
            _ => PressureDegree::Full,
        };
        let figure = match index % 4 {
            0 => PressureFigure::Avg10,
            1 => PressureFigure::Avg60,
            2 => PressureFigure::Avg300,
            _ => PressureFigure::Total,
        };
        Some(Pressure { resource, degree, figure })
    }
}

/// What an event counter of a container counted while it was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpiResource {
    /// Cycles.
    Cycle,
    /// Instructions.
    Instruction,
}

impl CpiResource {
    /// The value of label `cpi_resource`.
    pub const fn as_str(self) -> &'static str {
        match self {
            CpiResource::Cycle => "cycle",
            CpiResource::Instruction => "instruction",
        }
    }
}

/// How often samples of a kind come, which decides where they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cadence {
    /// With every pass: kept on the timeline that all objects share.
    EveryPass,
    /// Memory of pods and containers: every few passes, spread over them.
    Memory,
    /// Pressure.
    Pressure,
    /// Event counters, monitors of caches.
    Slow,
    /// Not kept: counters for others to subtract, and parts of a sum. The latest value is not kept either.
    Passing,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal, $class:ident, $cadence:ident;)*) => {
        /// What a sample measures. CPU is in cores, memory in bytes, other units are told.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
            /// Cycles or instructions of a container within one counting time.
            ContainerCpi(CpiResource),
            /// Pressure on a pod: percent, or seconds for [`PressureFigure::Total`].
            PodPsi(Pressure),
            /// Pressure on a container: percent, or seconds for [`PressureFigure::Total`].
            ContainerPsi(Pressure),
        }

        impl Kind {
            /// The kinds without a label of their own, in the order of their codes.
            pub const PLAIN: &'static [Kind] = &[$(Kind::$name),*];

            /// Koordinator's name of the series where it has one.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Kind::$name => $text,)*
                    Kind::ContainerCpi(_) => "container_cpi",
                    Kind::PodPsi(_) => "pod_psi",
                    Kind::ContainerPsi(_) => "container_psi",
                }
            }

            /// A number that stays the same from one version to the next.
            pub const fn code(self) -> u16 {
                match self {
                    $(Kind::$name => $code,)*
                    Kind::ContainerCpi(CpiResource::Cycle) => CPI_CODE,
                    Kind::ContainerCpi(CpiResource::Instruction) => CPI_CODE + 1,
                    Kind::PodPsi(pressure) => POD_PSI_CODE + pressure.index(),
                    Kind::ContainerPsi(pressure) => CONTAINER_PSI_CODE + pressure.index(),
                }
            }

            /// The kind of a code; `None` for one that this version does not know.
            pub const fn from_code(code: u16) -> Option<Kind> {
                match code {
                    $($code => Some(Kind::$name),)*
                    CPI_CODE => Some(Kind::ContainerCpi(CpiResource::Cycle)),
                    CPI_INSTRUCTION_CODE => Some(Kind::ContainerCpi(CpiResource::Instruction)),
                    POD_PSI_CODE.. => {
                        if code >= CONTAINER_PSI_CODE {
                            match Pressure::from_index(code - CONTAINER_PSI_CODE) {
                                Some(pressure) => Some(Kind::ContainerPsi(pressure)),
                                None => None,
                            }
                        } else {
                            match Pressure::from_index(code - POD_PSI_CODE) {
                                Some(pressure) => Some(Kind::PodPsi(pressure)),
                                None => None,
                            }
                        }
                    }
                    _ => None,
                }
            }

            /// The sort of objects that it is measured for.
            pub const fn object_class(self) -> ObjectClass {
                match self {
                    $(Kind::$name => ObjectClass::$class,)*
                    Kind::ContainerCpi(_) | Kind::ContainerPsi(_) => ObjectClass::Container,
                    Kind::PodPsi(_) => ObjectClass::Pod,
                }
            }

            /// How often its samples come.
            pub const fn cadence(self) -> Cadence {
                match self {
                    $(Kind::$name => Cadence::$cadence,)*
                    Kind::ContainerCpi(_) => Cadence::Slow,
                    Kind::PodPsi(pressure) | Kind::ContainerPsi(pressure) => match pressure.figure {
                        PressureFigure::Avg10 => Cadence::Pressure,
                        _ => Cadence::Passing,
                    },
                }
            }
        }
    };
}

const CPI_CODE: u16 = 512;
const CPI_INSTRUCTION_CODE: u16 = CPI_CODE + 1;
const POD_PSI_CODE: u16 = 1024;
const CONTAINER_PSI_CODE: u16 = 1088;

kinds! {
    /// CPU of the node: all that was not idle.
    NodeCpuUsage = 1, "node_cpu_usage", Node, EveryPass;
    /// Memory of the node without what it can give back: total less available.
    NodeMemoryUsage = 2, "node_memory_usage", Node, EveryPass;
    /// Memory of the node with page cache: total less free.
    NodeMemoryUsageWithPageCache = 3, "node_memory_usage_with_page_cache", Node, EveryPass;
    /// Memory of the node with that page cache which is in use.
    NodeMemoryWithHotPageUsage = 4, "node_memory_with_hot_page_usage", Node, EveryPass;
    /// Page cache of the node that is not in use.
    NodeMemoryColdPageSize = 5, "node_memory_cold_page_size", Node, EveryPass;
    /// A GPU's computing: percent.
    NodeGpuCoreUsage = 6, "node_gpu_core_usage", NodeGpu, EveryPass;
    /// A GPU's memory.
    NodeGpuMemoryUsage = 7, "node_gpu_memory_usage", NodeGpu, EveryPass;
    /// CPU of a NUMA node.
    NumaCpuUsage = 8, "node_numa_cpu_usage", Numa, EveryPass;
    /// Memory of a NUMA node without page cache.
    NumaMemoryUsage = 9, "node_numa_memory_usage", Numa, EveryPass;

    /// CPU of what is neither a pod nor a host application.
    SystemCpuUsage = 32, "sys_cpu_usage", Node, EveryPass;
    /// Memory, without page cache, of what is neither a pod nor a host application.
    SystemMemoryUsage = 33, "sys_memory_usage", Node, EveryPass;
    /// The system's CPU on a NUMA node.
    SystemNumaCpuUsage = 34, "sys_numa_cpu_usage", Numa, EveryPass;
    /// The system's memory on a NUMA node.
    SystemNumaMemoryUsage = 35, "sys_numa_memory_usage", Numa, EveryPass;
    /// Memory, with page cache, of what is neither a pod nor a host application.
    SystemMemoryUsageWithPageCache = 36, "sys_memory_usage_with_page_cache", Node, EveryPass;
    /// Memory, with page cache in use, of what is neither a pod nor a host application.
    SystemMemoryWithHotPageUsage = 37, "sys_memory_with_hot_page_usage", Node, EveryPass;
    /// CPU of all groups beside those of pods, as the kernel counts it; cgroup version 2 only.
    SystemCpuUsageDirect = 38, "sys_cpu_usage_direct", Node, EveryPass;

    /// A figure of the best-effort tier: thousandths of a CPU.
    NodeBe = 48, "node_be", Tier, EveryPass;

    /// CPU of a pod.
    PodCpuUsage = 64, "pod_cpu_usage", Pod, EveryPass;
    /// Memory of a pod without page cache.
    PodMemoryUsage = 65, "pod_memory_usage", Pod, Memory;
    /// Memory of a pod with page cache.
    PodMemoryUsageWithPageCache = 66, "pod_memory_usage_with_page_cache", Pod, Memory;
    /// Memory of a pod with page cache that is in use.
    PodMemoryWithHotPageUsage = 67, "pod_memory_with_hot_page_usage", Pod, Memory;
    /// Page cache of a pod that is not in use.
    PodMemoryColdPageSize = 68, "pod_memory_cold_page_size", Pod, Memory;
    /// Throttled periods by periods of a pod's quota.
    PodCpuThrottled = 69, "pod_cpu_throttled", Pod, EveryPass;
    /// A pod's computing on a GPU: percent.
    PodGpuCoreUsage = 70, "pod_gpu_core_usage", PodGpu, EveryPass;
    /// A pod's memory on a GPU.
    PodGpuMemoryUsage = 71, "pod_gpu_memory_usage", PodGpu, EveryPass;
    /// Whether the kernel tells for a pod when all tasks wait for CPU: 1 or 0.
    PodPsiCpuFullSupported = 72, "pod_psi_cpu_full_supported", Pod, Pressure;
    /// Seconds of CPU that a pod used since its group was made.
    PodCpuTime = 73, "pod_cpu_seconds", Pod, Passing;
    /// Memory of a pod on a NUMA node.
    PodNumaMemoryUsage = 74, "pod_numa_memory_usage", PodNuma, Passing;

    /// CPU of a container.
    ContainerCpuUsage = 96, "container_cpu_usage", Container, EveryPass;
    /// Memory of a container without page cache.
    ContainerMemoryUsage = 97, "container_memory_usage", Container, Memory;
    /// Memory of a container with page cache.
    ContainerMemoryUsageWithPageCache = 98, "container_memory_usage_with_page_cache", Container, Memory;
    /// Memory of a container with page cache that is in use.
    ContainerMemoryWithHotPageUsage = 99, "container_memory_with_hot_page_usage", Container, Memory;
    /// Page cache of a container that is not in use.
    ContainerMemoryColdPageSize = 100, "container_memory_cold_page_size", Container, Memory;
    /// Throttled periods by periods of a container's quota.
    ContainerCpuThrottled = 101, "container_cpu_throttled", Container, EveryPass;
    /// A container's computing on a GPU: percent.
    ContainerGpuCoreUsage = 102, "container_gpu_core_usage", ContainerGpu, EveryPass;
    /// A container's memory on a GPU.
    ContainerGpuMemoryUsage = 103, "container_gpu_memory_usage", ContainerGpu, EveryPass;
    /// Whether the kernel tells for a container when all tasks wait for CPU: 1 or 0.
    ContainerPsiCpuFullSupported = 104, "container_psi_cpu_full_supported", Container, Pressure;
    /// Seconds of CPU that a container used since its group was made.
    ContainerCpuTime = 105, "container_cpu_seconds", Container, Passing;

    /// CPU of a host application.
    HostApplicationCpuUsage = 128, "host_application_cpu_usage", HostApplication, EveryPass;
    /// Memory of a host application without page cache.
    HostApplicationMemoryUsage = 129, "host_application_memory_usage", HostApplication, EveryPass;
    /// Memory of a host application with page cache and the kernel's own.
    HostApplicationMemoryUsageWithPageCache = 130, "host_application_memory_usage_with_page_cache", HostApplication, EveryPass;
    /// Memory of a host application with page cache that is in use.
    HostApplicationMemoryWithHotPageUsage = 131, "host_application_memory_with_hot_page_usage", HostApplication, EveryPass;

    /// Bytes of the level 3 cache that a group occupies.
    ResctrlLlc = 160, "resctrl_resource_llc", Resctrl, Slow;
    /// Bytes that a group moved to and from the memory of its own socket; a counter.
    ResctrlLocalBandwidth = 161, "resctrl_resource_mb_local", Resctrl, Slow;
    /// Bytes that a group moved to and from any memory; a counter.
    ResctrlTotalBandwidth = 162, "resctrl_resource_mb_total", Resctrl, Slow;
}

impl Kind {
    /// Whether it is measured for such an object.
    pub fn suits(self, object: &Object) -> bool {
        self.object_class() == object.class()
    }

    /// Whether a [`crate::store::Store`] keeps its samples.
    pub const fn is_kept(self) -> bool {
        !matches!(self.cadence(), Cadence::Passing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<Kind> {
        let pressures = || (0..Pressure::COUNT).map(|index| Pressure::from_index(index).expect("in range"));
        Kind::PLAIN
            .iter()
            .copied()
            .chain([CpiResource::Cycle, CpiResource::Instruction].map(Kind::ContainerCpi))
            .chain(pressures().map(Kind::PodPsi))
            .chain(pressures().map(Kind::ContainerPsi))
            .collect()
    }

    #[test]
    fn codes_name_kinds() {
        let kinds = all();
        for &kind in &kinds {
            assert_eq!(Kind::from_code(kind.code()), Some(kind));
        }
        let codes: BTreeSet<u16> = kinds.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), kinds.len());
        let known = (0..=u16::MAX).filter(|&code| Kind::from_code(code).is_some()).count();
        assert_eq!(known, kinds.len());
    }

    #[test]
    fn codes_and_names_stay() {
        let table = [
            (Kind::NodeCpuUsage, 1, "node_cpu_usage"),
            (Kind::SystemMemoryUsage, 33, "sys_memory_usage"),
            (Kind::NodeBe, 48, "node_be"),
            (Kind::PodMemoryUsage, 65, "pod_memory_usage"),
            (Kind::ContainerCpuThrottled, 101, "container_cpu_throttled"),
            (Kind::ContainerCpi(CpiResource::Instruction), 513, "container_cpi"),
            (
                Kind::PodPsi(Pressure {
                    resource: PressureResource::Memory,
                    degree: PressureDegree::Full,
                    figure: PressureFigure::Avg60,
                }),
                1024 + 13,
                "pod_psi",
            ),
        ];
        for (kind, code, name) in table {
            assert_eq!((kind.code(), kind.as_str()), (code, name));
        }
        let names: BTreeSet<&str> = Kind::PLAIN.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(names.len(), Kind::PLAIN.len());
    }

    #[test]
    fn kinds_suit_their_objects_only() {
        assert!(Kind::NodeCpuUsage.suits(&Object::Node));
        assert!(!Kind::NodeCpuUsage.suits(&Object::Numa(0)));
        assert!(!Kind::PodCpuUsage.suits(&Object::Node));
        assert!(Kind::PodCpuUsage.suits(&Object::Pod("a".into())));
        assert!(
            Kind::ContainerCpi(CpiResource::Cycle)
                .suits(&Object::Container { pod_uid: "a".into(), id: "b".into() })
        );
    }

    #[test]
    fn only_the_short_average_of_pressure_is_kept() {
        let kept = (0..Pressure::COUNT)
            .filter_map(Pressure::from_index)
            .filter(|&pressure| Kind::ContainerPsi(pressure).is_kept())
            .count();
        assert_eq!(kept, 6);
        assert!(!Kind::PodCpuTime.is_kept());
    }
}
