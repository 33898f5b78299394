//! What a sampler measures and how often.

use std::time::Duration;

use crate::collect::clock::Clock;
use crate::collect::text::NumaMemory;

/// Options of a [`super::Sampler`]. Durations below the interval, and zero, mean every pass.
#[derive(Debug, Clone)]
pub struct SamplerOptions {
    /// Time from one pass to the next.
    pub interval: Duration,
    /// How often memory of a pod is read; that of a container half as often. Equal to the interval: both in every pass.
    ///
    /// The kernel sums memory up over all CPUs and all groups below when it is read, which costs more than everything else.
    pub memory_interval: Duration,
    /// How often memory of NUMA nodes is read, on machines with at least two.
    pub numa_interval: Duration,
    /// Which memory of pods is counted for a NUMA node.
    pub numa_memory: NumaMemory,
    /// Whether memory with page cache gives samples. It costs no further read.
    pub page_cache: bool,
    /// Whether containers are measured one by one, beside their pods.
    pub containers: bool,
    /// Whether init containers are among them.
    pub init_containers: bool,
    /// How often pressure files are read; `None` for never.
    pub pressure_interval: Option<Duration>,
    /// How often page cache that is not in use is read, where the kernel tells; `None` for never.
    pub cold_memory_interval: Option<Duration>,
    /// How often monitors of cache and memory bandwidth are read; `None` for never.
    pub resctrl_interval: Option<Duration>,
    /// Counting of cycles and instructions; `None` for never.
    pub cpi: Option<CpiOptions>,
    /// How often the layout of CPUs is compared with what is known.
    pub layout_interval: Duration,
    /// Files that may be kept open, those of event counters not counted.
    pub descriptor_limit: usize,
    /// The clock of counters' reads.
    pub clock: Clock,
}

impl SamplerOptions {
    /// Files kept open unless told otherwise: enough for 1,000 pods of 3 containers.
    pub const DEFAULT_DESCRIPTOR_LIMIT: usize = 16_384;
}

impl Default for SamplerOptions {
    /// A pass a second; memory every 5 s and 10 s; no pressure, no event counters, no monitors.
    fn default() -> SamplerOptions {
        SamplerOptions {
            interval: Duration::from_secs(1),
            memory_interval: Duration::from_secs(5),
            numa_interval: Duration::from_secs(5),
            numa_memory: NumaMemory::WithoutCache,
            page_cache: true,
            containers: true,
            init_containers: true,
            pressure_interval: None,
            cold_memory_interval: None,
            resctrl_interval: None,
            cpi: None,
            layout_interval: Duration::from_secs(60),
            descriptor_limit: SamplerOptions::DEFAULT_DESCRIPTOR_LIMIT,
            clock: Clock::Kernel,
        }
    }
}

/// How cycles and instructions are counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpiOptions {
    /// Pause between the end of one round and the start of the next.
    pub interval: Duration,
    /// How long a container is counted.
    pub window: Duration,
    /// Containers below this many cores since the last round are not counted.
    pub minimum_cores: f64,
    /// Descriptors of event counters in one round. Containers beyond have their turn in the next.
    pub max_descriptors: usize,
}

impl Default for CpiOptions {
    /// 10 s a minute for containers of 0.25 cores, with 8,192 descriptors.
    fn default() -> CpiOptions {
        CpiOptions {
            interval: Duration::from_secs(60),
            window: Duration::from_secs(10),
            minimum_cores: 0.25,
            max_descriptors: 8192,
        }
    }
}
