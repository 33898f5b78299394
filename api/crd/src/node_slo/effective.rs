//! What programs act on: defaults laid under, disabled features taken out.

use std::collections::BTreeMap;

use koord_extension::annotation::{
    Bandwidth, Block, CpuBurst, CpuBurstPolicy, CpuQos, MemoryQos, MemoryQosPolicy, MemoryQosValues,
};
use koord_extension::qos::QosClass;
use serde_json::Value;

use super::spec::{
    BlkioQosStrategy, CpuBurstStrategy, CpuEvictPolicy, CpuPolicy, CpuSuppressPolicy, HostApplication,
    MemoryQosStrategy, NetworkPolicy, NetworkQosStrategy, NodeSloSpec, ResctrlQosStrategy, ResourceQos,
    ResourceThresholdStrategy, SystemStrategy,
};

/// What a node does for quality of service.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveNodeSlo {
    /// What best-effort pods may take, and when they are evicted.
    pub threshold: ThresholdStrategyInForce,
    /// By what CPU time is divided.
    pub cpu_policy: CpuPolicy,
    /// By what bandwidth is divided.
    pub network_policy: NetworkPolicy,
    /// LSE and LSR pods.
    pub lsr: ClassQos,
    /// LS pods.
    pub ls: ClassQos,
    /// BE pods.
    pub be: ClassQos,
    /// SYSTEM pods.
    pub system: ClassQos,
    /// The root cgroup.
    pub cgroup_root: ClassQos,
    /// CPU burst of pods that state nothing else.
    pub cpu_burst: CpuBurstStrategyInForce,
    /// Settings of the kernel; what is unset is left as it is.
    pub system_strategy: SystemStrategy,
    /// Applications outside of Kubernetes.
    pub host_applications: Vec<HostApplication>,
    /// More, by name.
    pub extensions: BTreeMap<String, Value>,
}

/// What one class gets.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassQos {
    /// CPU.
    pub cpu: ClassCpuQos,
    /// Memory.
    pub memory: ClassMemoryQos,
    /// Block I/O.
    pub blkio: ClassBlkioQos,
    /// Cache and memory bandwidth.
    pub resctrl: ClassResctrlQos,
    /// Network.
    pub network: ClassNetworkQos,
}

/// CPU QoS of a class or a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCpuQos {
    /// Whether it is on. Off, the other values are those that change nothing.
    pub enable: bool,
    /// Group identity, -1..2.
    pub group_identity: i64,
    /// Whether its cgroups are idle.
    pub sched_idle: bool,
    /// Whether its pods keep idle ones off their cores.
    pub core_expeller: bool,
}

/// Memory QoS of a class or a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassMemoryQos {
    /// Whether it is on. Off, the other values are those that change nothing.
    pub enable: bool,
    /// memory.min in percent of the request, 0..100.
    pub min_limit_percent: i64,
    /// memory.low in percent of the request, 0..100.
    pub low_limit_percent: i64,
    /// memory.high in percent of the way from request to limit, 0..100 where 0 is off.
    pub throttling_percent: i64,
    /// Background reclaim starts at this percent of the limit, 0..100 where 0 is off.
    pub wmark_ratio: i64,
    /// Background reclaim stops so many thousandths below, 1..1000.
    pub wmark_scale_permill: i64,
    /// Moves the global watermark, -25..50.
    pub wmark_min_adj: i64,
    /// Whether the OOM priority counts.
    pub priority_enable: bool,
    /// OOM priority, 0..12.
    pub priority: i64,
    /// Whether the OOM killer takes all of the cgroup.
    pub oom_kill_group: bool,
    /// Whether the page cache is limited; none decides by the limit.
    pub page_cache_enable: Option<bool>,
    /// Limit of the page cache in percent of the memory limit, 0..100.
    pub page_cache_limit_percent: Option<i64>,
    /// Limit of the page cache in bytes.
    pub page_cache_limit_size: Option<i64>,
    /// Whether the page cache is reclaimed at once.
    pub page_cache_reclaim_sync: Option<bool>,
}

/// Block I/O of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassBlkioQos {
    /// Whether it is on.
    pub enable: bool,
    /// Settings, one for each device.
    pub blocks: Vec<Block>,
}

/// Cache and memory bandwidth of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassResctrlQos {
    /// Whether it is on. Off, the other values are those that change nothing.
    pub enable: bool,
    /// Start of its range of the last-level cache, 0..100.
    pub cat_range_start_percent: i64,
    /// End of its range of the last-level cache, 0..100.
    pub cat_range_end_percent: i64,
    /// Its share of memory bandwidth, 0..100.
    pub mba_percent: i64,
}

/// Bandwidth of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassNetworkQos {
    /// Whether it is on. Users of the numbers look at it.
    pub enable: bool,
    /// What it receives at least.
    pub ingress_request: Bandwidth,
    /// What it receives at most.
    pub ingress_limit: Bandwidth,
    /// What it sends at least.
    pub egress_request: Bandwidth,
    /// What it sends at most.
    pub egress_limit: Bandwidth,
}

/// What best-effort pods may take, and when they are evicted; meanings as in
/// [`ResourceThresholdStrategy`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the strategy, with its defaults")]
pub struct ThresholdStrategyInForce {
    pub enable: bool,
    pub cpu_suppress_threshold_percent: i64,
    pub cpu_suppress_min_percent: Option<i64>,
    pub cpu_suppress_policy: CpuSuppressPolicy,
    pub memory_evict_threshold_percent: i64,
    pub memory_evict_lower_percent: i64,
    pub memory_allocatable_evict_threshold_percent: Option<i64>,
    pub memory_allocatable_evict_lower_percent: Option<i64>,
    pub cpu_evict_be_satisfaction_lower_percent: Option<i64>,
    pub cpu_evict_be_satisfaction_upper_percent: Option<i64>,
    pub cpu_evict_be_usage_threshold_percent: Option<i64>,
    pub cpu_evict_time_window_seconds: Option<i64>,
    pub cpu_evict_threshold_percent: Option<i64>,
    pub cpu_evict_lower_percent: Option<i64>,
    pub cpu_allocatable_evict_threshold_percent: Option<i64>,
    pub cpu_allocatable_evict_lower_percent: Option<i64>,
    pub cpu_evict_policy: CpuEvictPolicy,
    pub evict_enabled_priority_threshold: Option<i32>,
    pub allocatable_evict_priority_threshold: Option<i32>,
}

/// CPU burst of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuBurstStrategyInForce {
    /// Which ways are used.
    pub policy: CpuBurstPolicy,
    /// Burst in percent of the limit, 0..10000 where 0 is off.
    pub cpu_burst_percent: i64,
    /// To how many percent of the limit the quota may be raised, at least 100.
    pub cfs_quota_burst_percent: i64,
    /// For how many seconds it may stay raised; -1 for ever.
    pub cfs_quota_burst_period_seconds: i64,
    /// Usage of the shared pool from which on no quota is raised, 0..100.
    pub share_pool_threshold_percent: i64,
}

impl CpuBurstStrategyInForce {
    /// Whether unused quota is kept for later (cpu.cfs_burst_us).
    pub fn keeps_unused_quota(&self) -> bool {
        matches!(self.policy, CpuBurstPolicy::CpuBurstOnly | CpuBurstPolicy::Auto)
    }

    /// Whether the quota of a throttled pod is raised.
    pub fn raises_quota(&self) -> bool {
        matches!(self.policy, CpuBurstPolicy::CfsQuotaBurstOnly | CpuBurstPolicy::Auto)
    }
}

/// Which defaults a class has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Lsr,
    Ls,
    Be,
    System,
    Root,
}

impl Class {
    const fn of(qos: QosClass) -> Class {
        match qos {
            QosClass::Lse | QosClass::Lsr => Class::Lsr,
            QosClass::Ls => Class::Ls,
            QosClass::Be => Class::Be,
            QosClass::System => Class::System,
        }
    }

    /// Whether disabled CPU, memory and cache features are taken out. Users of the other classes look at
    /// the switch themselves.
    const fn takes_out_disabled(self) -> bool {
        matches!(self, Class::Lsr | Class::Ls | Class::Be)
    }
}

impl ClassCpuQos {
    /// Off, and changing nothing.
    pub const NONE: ClassCpuQos =
        ClassCpuQos { enable: false, group_identity: 0, sched_idle: false, core_expeller: false };

    fn defaults(class: Class) -> ClassCpuQos {
        let (group_identity, core_expeller) = match class {
            Class::Lsr | Class::Ls => (2, true),
            Class::Be => (-1, false),
            Class::System | Class::Root => (0, false),
        };
        ClassCpuQos { group_identity, core_expeller, ..ClassCpuQos::NONE }
    }

    fn of(class: Class, stated: Option<&CpuQos>) -> ClassCpuQos {
        let defaults = ClassCpuQos::defaults(class);
        let Some(stated) = stated else {
            return if class.takes_out_disabled() { ClassCpuQos::NONE } else { defaults };
        };
        let enable = stated.enable.unwrap_or(false);
        if !enable && class.takes_out_disabled() {
            return ClassCpuQos::NONE;
        }
        ClassCpuQos {
            enable,
            group_identity: stated.group_identity.unwrap_or(defaults.group_identity),
            sched_idle: stated.sched_idle.map_or(defaults.sched_idle, |idle| idle == 1),
            core_expeller: stated.core_expeller.unwrap_or(defaults.core_expeller),
        }
    }
}

impl ClassMemoryQos {
    /// Off, and changing nothing.
    pub const NONE: ClassMemoryQos = ClassMemoryQos {
        enable: false,
        min_limit_percent: 0,
        low_limit_percent: 0,
        throttling_percent: 0,
        wmark_ratio: 0,
        wmark_scale_permill: 50,
        wmark_min_adj: 0,
        priority_enable: false,
        priority: 0,
        oom_kill_group: false,
        page_cache_enable: None,
        page_cache_limit_percent: None,
        page_cache_limit_size: None,
        page_cache_reclaim_sync: None,
    };

    fn defaults(class: Class) -> ClassMemoryQos {
        let (wmark_ratio, wmark_scale_permill, wmark_min_adj) = match class {
            Class::Lsr | Class::Ls => (95, 20, -25),
            Class::Be => (95, 20, 50),
            Class::System | Class::Root => (0, 50, 0),
        };
        ClassMemoryQos { wmark_ratio, wmark_scale_permill, wmark_min_adj, ..ClassMemoryQos::NONE }
    }

    fn of(class: Class, stated: Option<&MemoryQosStrategy>) -> ClassMemoryQos {
        let enable = stated.and_then(|stated| stated.enable).unwrap_or(false);
        if !enable && class.takes_out_disabled() {
            return ClassMemoryQos::NONE;
        }
        let defaults = ClassMemoryQos { enable, ..ClassMemoryQos::defaults(class) };
        match stated {
            Some(stated) => defaults.overridden(&stated.values),
            None => defaults,
        }
    }

    /// These values, where `stated` does not state others.
    fn overridden(self, stated: &MemoryQosValues) -> ClassMemoryQos {
        ClassMemoryQos {
            enable: self.enable,
            min_limit_percent: stated.min_limit_percent.unwrap_or(self.min_limit_percent),
            low_limit_percent: stated.low_limit_percent.unwrap_or(self.low_limit_percent),
            throttling_percent: stated.throttling_percent.unwrap_or(self.throttling_percent),
            wmark_ratio: stated.wmark_ratio.unwrap_or(self.wmark_ratio),
            wmark_scale_permill: stated.wmark_scale_permill.unwrap_or(self.wmark_scale_permill),
            wmark_min_adj: stated.wmark_min_adj.unwrap_or(self.wmark_min_adj),
            priority_enable: stated.priority_enable.map_or(self.priority_enable, |on| on == 1),
            priority: stated.priority.unwrap_or(self.priority),
            oom_kill_group: stated.oom_kill_group.map_or(self.oom_kill_group, |on| on == 1),
            page_cache_enable: stated.page_cache_enable.or(self.page_cache_enable),
            page_cache_limit_percent: stated.page_cache_limit_percent.or(self.page_cache_limit_percent),
            page_cache_limit_size: stated.page_cache_limit_size.or(self.page_cache_limit_size),
            page_cache_reclaim_sync: stated.page_cache_reclaim_sync.or(self.page_cache_reclaim_sync),
        }
    }
}

impl ClassBlkioQos {
    fn of(class: Class, stated: Option<&BlkioQosStrategy>) -> ClassBlkioQos {
        let enable = stated.and_then(|stated| stated.enable).unwrap_or(false);
        let taken_out = !enable && matches!(class, Class::Be | Class::Root);
        let blocks = match stated {
            Some(stated) if !taken_out => stated.blocks.clone(),
            _ => Vec::new(),
        };
        ClassBlkioQos { enable, blocks }
    }
}

impl ClassResctrlQos {
    /// Off, and changing nothing.
    pub const NONE: ClassResctrlQos = ClassResctrlQos {
        enable: false,
        cat_range_start_percent: 0,
        cat_range_end_percent: 100,
        mba_percent: 100,
    };

    fn of(class: Class, stated: Option<&ResctrlQosStrategy>) -> ClassResctrlQos {
        let enable = stated.and_then(|stated| stated.enable).unwrap_or(false);
        if !enable && class.takes_out_disabled() {
            return ClassResctrlQos::NONE;
        }
        let end = if class == Class::Be { BE_CAT_RANGE_END_PERCENT } else { 100 };
        let stated = stated.cloned().unwrap_or_default();
        ClassResctrlQos {
            enable,
            cat_range_start_percent: stated.cat_range_start_percent.unwrap_or(0),
            cat_range_end_percent: stated.cat_range_end_percent.unwrap_or(end),
            mba_percent: stated.mba_percent.unwrap_or(100),
        }
    }
}

/// End of the range of the last-level cache that best-effort pods have by default.
pub(super) const BE_CAT_RANGE_END_PERCENT: i64 = 30;

/// Memory in use from which on pods are evicted by default, percent.
pub(super) const MEMORY_EVICT_THRESHOLD_PERCENT: i64 = 70;

/// How far below the threshold eviction goes by default, percent.
pub(super) const EVICT_LOWER_BY_PERCENT: i64 = 2;

impl ClassNetworkQos {
    fn of(stated: Option<&NetworkQosStrategy>) -> ClassNetworkQos {
        let Some(stated) = stated else { return ClassNetworkQos::default() };
        ClassNetworkQos {
            enable: stated.enable.unwrap_or(false),
            ingress_request: stated.ingress_request.unwrap_or_default(),
            ingress_limit: stated.ingress_limit.unwrap_or_default(),
            egress_request: stated.egress_request.unwrap_or_default(),
            egress_limit: stated.egress_limit.unwrap_or_default(),
        }
    }
}

impl ClassQos {
    fn of(class: Class, stated: Option<&ResourceQos>) -> ClassQos {
        ClassQos {
            cpu: ClassCpuQos::of(class, stated.and_then(|stated| stated.cpu_qos.as_ref())),
            memory: ClassMemoryQos::of(class, stated.and_then(|stated| stated.memory_qos.as_ref())),
            blkio: ClassBlkioQos::of(class, stated.and_then(|stated| stated.blkio_qos.as_ref())),
            resctrl: ClassResctrlQos::of(class, stated.and_then(|stated| stated.resctrl_qos.as_ref())),
            network: ClassNetworkQos::of(stated.and_then(|stated| stated.network_qos.as_ref())),
        }
    }
}

impl ThresholdStrategyInForce {
    fn of(stated: Option<&ResourceThresholdStrategy>) -> ThresholdStrategyInForce {
        let stated = stated.cloned().unwrap_or_default();
        let memory = stated.memory_evict_threshold_percent.unwrap_or(MEMORY_EVICT_THRESHOLD_PERCENT);
        let below = |threshold: i64| threshold.saturating_sub(EVICT_LOWER_BY_PERCENT).max(0);
        ThresholdStrategyInForce {
            enable: stated.enable.unwrap_or(false),
            cpu_suppress_threshold_percent: stated.cpu_suppress_threshold_percent.unwrap_or(65),
            cpu_suppress_min_percent: stated.cpu_suppress_min_percent,
            cpu_suppress_policy: stated
                .cpu_suppress_policy
                .filter(|policy| !policy.as_str().is_empty())
                .unwrap_or_default(),
            memory_evict_threshold_percent: memory,
            memory_evict_lower_percent: stated.memory_evict_lower_percent.unwrap_or_else(|| below(memory)),
            memory_allocatable_evict_threshold_percent: stated.memory_allocatable_evict_threshold_percent,
            memory_allocatable_evict_lower_percent: stated.memory_allocatable_evict_lower_percent,
            cpu_evict_be_satisfaction_lower_percent: stated.cpu_evict_be_satisfaction_lower_percent,
            cpu_evict_be_satisfaction_upper_percent: stated.cpu_evict_be_satisfaction_upper_percent,
            cpu_evict_be_usage_threshold_percent: stated.cpu_evict_be_usage_threshold_percent,
            cpu_evict_time_window_seconds: stated.cpu_evict_time_window_seconds,
            cpu_evict_threshold_percent: stated.cpu_evict_threshold_percent,
            cpu_evict_lower_percent: stated
                .cpu_evict_lower_percent
                .or_else(|| stated.cpu_evict_threshold_percent.map(below)),
            cpu_allocatable_evict_threshold_percent: stated.cpu_allocatable_evict_threshold_percent,
            cpu_allocatable_evict_lower_percent: stated.cpu_allocatable_evict_lower_percent,
            cpu_evict_policy: stated
                .cpu_evict_policy
                .filter(|policy| !policy.as_str().is_empty())
                .unwrap_or_default(),
            evict_enabled_priority_threshold: stated.evict_enabled_priority_threshold,
            allocatable_evict_priority_threshold: stated.allocatable_evict_priority_threshold,
        }
    }
}

impl CpuBurstStrategyInForce {
    fn of(stated: Option<&CpuBurstStrategy>) -> CpuBurstStrategyInForce {
        let defaults = CpuBurstStrategyInForce {
            policy: CpuBurstPolicy::None,
            cpu_burst_percent: 1000,
            cfs_quota_burst_percent: 300,
            cfs_quota_burst_period_seconds: -1,
            share_pool_threshold_percent: 50,
        };
        let Some(stated) = stated else { return defaults };
        CpuBurstStrategyInForce {
            share_pool_threshold_percent: stated
                .share_pool_threshold_percent
                .unwrap_or(defaults.share_pool_threshold_percent),
            ..defaults.overridden(&stated.burst())
        }
    }

    /// These values, where `stated` does not state others.
    fn overridden(&self, stated: &CpuBurst) -> CpuBurstStrategyInForce {
        CpuBurstStrategyInForce {
            policy: match &stated.policy {
                CpuBurstPolicy::Unset => self.policy.clone(),
                policy => policy.clone(),
            },
            cpu_burst_percent: stated.cpu_burst_percent.unwrap_or(self.cpu_burst_percent),
            cfs_quota_burst_percent: stated.cfs_quota_burst_percent.unwrap_or(self.cfs_quota_burst_percent),
            cfs_quota_burst_period_seconds: stated
                .cfs_quota_burst_period_seconds
                .unwrap_or(self.cfs_quota_burst_period_seconds),
            share_pool_threshold_percent: self.share_pool_threshold_percent,
        }
    }
}

impl Default for EffectiveNodeSlo {
    /// What holds where nothing is stated: every feature is off.
    fn default() -> EffectiveNodeSlo {
        NodeSloSpec::default().effective()
    }
}

impl NodeSloSpec {
    /// What a node does: the defaults of Koordinator laid under, and of the classes LSR, LS and BE the CPU,
    /// memory and cache features that are off replaced by values that change nothing. Block I/O is taken out
    /// of BE and the root. SYSTEM and network keep their numbers; users look at the switch.
    pub fn effective(&self) -> EffectiveNodeSlo {
        let qos = self.resource_qos_strategy.as_ref();
        let policies = qos.and_then(|qos| qos.policies.as_ref());
        let class = |class, of: fn(&super::ResourceQosStrategy) -> Option<&ResourceQos>| {
            ClassQos::of(class, qos.and_then(of))
        };
        EffectiveNodeSlo {
            threshold: ThresholdStrategyInForce::of(self.resource_used_threshold_with_be.as_ref()),
            cpu_policy: policies
                .and_then(|policies| policies.cpu_policy.clone())
                .filter(|policy| !policy.as_str().is_empty())
                .unwrap_or_default(),
            network_policy: policies
                .and_then(|policies| policies.net_qos_policy.clone())
                .filter(|policy| !policy.as_str().is_empty())
                .unwrap_or_default(),
            lsr: class(Class::Lsr, |qos| qos.lsr_class.as_ref()),
            ls: class(Class::Ls, |qos| qos.ls_class.as_ref()),
            be: class(Class::Be, |qos| qos.be_class.as_ref()),
            system: class(Class::System, |qos| qos.system_class.as_ref()),
            cgroup_root: class(Class::Root, |qos| qos.cgroup_root.as_ref()),
            cpu_burst: CpuBurstStrategyInForce::of(self.cpu_burst_strategy.as_ref()),
            system_strategy: self.system_strategy.clone().unwrap_or_default(),
            host_applications: self.host_applications.clone(),
            extensions: self.extensions.clone(),
        }
    }
}

impl EffectiveNodeSlo {
    /// What pods of a QoS class get. LSE pods share LSR's.
    pub const fn class(&self, qos: QosClass) -> &ClassQos {
        match Class::of(qos) {
            Class::Lsr => &self.lsr,
            Class::Ls => &self.ls,
            Class::Be => &self.be,
            Class::System | Class::Root => &self.system,
        }
    }

    /// CPU QoS of a pod. Only LS pods can state their own group identity: the stated one if the pod enables
    /// it, else 0. Idle cgroups and core scheduling are always the class's.
    pub fn cpu_of_pod(&self, qos: QosClass, stated: Option<&CpuQos>) -> ClassCpuQos {
        let of_class = self.class(qos).cpu;
        match stated {
            Some(stated) if qos == QosClass::Ls => {
                let enable = stated.enable == Some(true);
                let identity = stated.group_identity.unwrap_or(of_class.group_identity);
                let group_identity = if enable { identity } else { 0 };
                ClassCpuQos { enable, group_identity, ..of_class }
            }
            _ => of_class,
        }
    }

    /// Memory QoS of a pod: by its policy nothing, the recommended values of its class even where the node
    /// has it off, or the node's; over that what the pod states itself.
    pub fn memory_of_pod(&self, qos: QosClass, stated: Option<&MemoryQos>) -> ClassMemoryQos {
        let of_class = self.class(qos).memory;
        let Some(stated) = stated else { return of_class };
        let base = match stated.policy {
            MemoryQosPolicy::None => ClassMemoryQos::NONE,
            MemoryQosPolicy::Auto => {
                ClassMemoryQos { enable: true, ..ClassMemoryQos::defaults(Class::of(qos)) }
            }
            MemoryQosPolicy::Unset | MemoryQosPolicy::Default | MemoryQosPolicy::Other(_) => of_class,
        };
        base.overridden(&stated.values)
    }

    /// CPU burst of a pod: what it states, field by field, over the node's.
    pub fn cpu_burst_of_pod(&self, stated: Option<&CpuBurst>) -> CpuBurstStrategyInForce {
        match stated {
            Some(stated) => self.cpu_burst.overridden(stated),
            None => self.cpu_burst.clone(),
        }
    }
}
