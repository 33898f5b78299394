//! The object's own form: everything optional. What is unset comes from the defaults.

use std::collections::BTreeMap;

use koord_extension::annotation::{Bandwidth, Block, CpuBurst, CpuBurstPolicy, CpuQos, MemoryQosValues};
use koord_extension::json::shape::{Described, FieldShape, ObjectShape, Shape};
use koord_extension::json::{self, Fill, FillSeed, Object};
use koord_extension::qos::QosClass;
use koord_extension::quantity::Quantity;
use koord_extension::{json_object, json_words};
use serde::de::MapAccess;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

json_words! {
    /// By what CPU time is divided among classes.
    pub enum CpuPolicy {
        /// By group identity, or what stands for it on the node's kernel.
        GroupIdentity = "groupIdentity",
        /// By core scheduling and idle cgroups.
        CoreSched = "coreSched",
    }

    /// By what bandwidth is divided among classes.
    pub enum NetworkPolicy {
        /// By the kernel's traffic control.
        Tc = "tc",
        /// By Terway.
        TerwayQos = "terway-qos",
    }

    /// How best-effort pods are held to the CPU that is left.
    pub enum CpuSuppressPolicy {
        /// By the CPUs they may run on.
        Cpuset = "cpuset",
        /// By a quota.
        CfsQuota = "cfsQuota",
    }

    /// What the satisfaction of best-effort pods is measured by.
    pub enum CpuEvictPolicy {
        /// By what they may really use.
        EvictByRealLimit = "evictByRealLimit",
        /// By what the node publishes as allocatable.
        EvictByAllocatable = "evictByAllocatable",
    }

    /// Where the cgroup of a host application is.
    pub enum CgroupBase {
        /// Not stated, which is the root.
        Unset = "",
        /// Below the root.
        CgroupRoot = "CgroupRoot",
        /// Below the directory of all pods.
        Kubepods = "Kubepods",
        /// Below the directory of Burstable pods.
        KubepodsBurstable = "KubepodsBurstable",
        /// Below the directory of BestEffort pods.
        KubepodsBesteffort = "KubepodsBesteffort",
    }
}

json_object! {
    /// What a node is told to do for quality of service.
    pub struct NodeSloSpec {
        /// What best-effort pods may take, and when they are evicted.
        resource_used_threshold_with_be: Option<ResourceThresholdStrategy> = "resourceUsedThresholdWithBE",
        /// What the classes of pods get.
        resource_qos_strategy: Option<ResourceQosStrategy> = "resourceQOSStrategy",
        /// CPU burst of all pods.
        cpu_burst_strategy: Option<CpuBurstStrategy> = "cpuBurstStrategy",
        /// Settings of the kernel of the node.
        system_strategy: Option<SystemStrategy> = "systemStrategy",
        /// Applications outside of Kubernetes.
        host_applications: Vec<HostApplication> = "hostApplications",
        /// More, by name, for others than this project.
        extensions: BTreeMap<String, Value> = "extensions",
    }

    /// What best-effort pods may take, and when they are evicted. Percents are of the node unless said.
    pub struct ResourceThresholdStrategy {
        /// Whether it is on.
        enable: Option<bool> = "enable",
        /// CPU used by all pods up to which best-effort pods are given more, 0..100.
        cpu_suppress_threshold_percent: Option<i64> = "cpuSuppressThresholdPercent",
        /// CPU that best-effort pods keep in any case, 0..100.
        cpu_suppress_min_percent: Option<i64> = "cpuSuppressMinPercent",
        /// How best-effort pods are held to what they may take. Default cpuset.
        cpu_suppress_policy: Option<CpuSuppressPolicy> = "cpuSuppressPolicy",
        /// Memory in use from which on pods are evicted, 0..100.
        memory_evict_threshold_percent: Option<i64> = "memoryEvictThresholdPercent",
        /// Memory in use down to which they are evicted, 0..100.
        memory_evict_lower_percent: Option<i64> = "memoryEvictLowerPercent",
        /// Memory requested of allocatable from which on pods are evicted, at least 0.
        memory_allocatable_evict_threshold_percent: Option<i64> = "memoryAllocatableEvictThresholdPercent",
        /// Memory requested of allocatable down to which they are evicted, at least 0.
        memory_allocatable_evict_lower_percent: Option<i64> = "memoryAllocatableEvictLowerPercent",
        /// Satisfaction of best-effort pods below which they are evicted, 0..100.
        cpu_evict_be_satisfaction_lower_percent: Option<i64> = "cpuEvictBESatisfactionLowerPercent",
        /// Satisfaction of best-effort pods up to which they are evicted, 0..100.
        cpu_evict_be_satisfaction_upper_percent: Option<i64> = "cpuEvictBESatisfactionUpperPercent",
        /// Usage of what they may use from which on satisfaction counts, 0..100.
        cpu_evict_be_usage_threshold_percent: Option<i64> = "cpuEvictBEUsageThresholdPercent",
        /// Over how many seconds it is averaged, at least 1.
        cpu_evict_time_window_seconds: Option<i64> = "cpuEvictTimeWindowSeconds",
        /// CPU in use from which on pods are evicted, 0..100.
        cpu_evict_threshold_percent: Option<i64> = "cpuEvictThresholdPercent",
        /// CPU in use down to which they are evicted, 0..100.
        cpu_evict_lower_percent: Option<i64> = "cpuEvictLowerPercent",
        /// CPU requested of allocatable from which on pods are evicted, at least 0.
        cpu_allocatable_evict_threshold_percent: Option<i64> = "cpuAllocatableEvictThresholdPercent",
        /// CPU requested of allocatable down to which they are evicted, at least 0.
        cpu_allocatable_evict_lower_percent: Option<i64> = "cpuAllocatableEvictLowerPercent",
        /// What satisfaction is measured by. Default evictByRealLimit.
        cpu_evict_policy: Option<CpuEvictPolicy> = "cpuEvictPolicy",
        /// Pods above this `spec.priority` are not evicted by usage.
        evict_enabled_priority_threshold: Option<i32> = "evictEnabledPriorityThreshold",
        /// Pods above this `spec.priority` are not evicted by allocatable, 0..7999.
        allocatable_evict_priority_threshold: Option<i32> = "allocatableEvictPriorityThreshold",
    }

    /// What the classes of pods get.
    pub struct ResourceQosStrategy {
        /// Which mechanisms of the kernel give it.
        policies: Option<ResourceQosPolicies> = "policies",
        /// What LSE and LSR pods get.
        lsr_class: Option<ResourceQos> = "lsrClass",
        /// What LS pods get.
        ls_class: Option<ResourceQos> = "lsClass",
        /// What BE pods get.
        be_class: Option<ResourceQos> = "beClass",
        /// What SYSTEM pods get.
        system_class: Option<ResourceQos> = "systemClass",
        /// What holds for the root cgroup: settings of block devices.
        cgroup_root: Option<ResourceQos> = "cgroupRoot",
    }

    /// Which mechanisms of the kernel give the classes what they get.
    pub struct ResourceQosPolicies {
        /// Mechanism for CPU time. Default groupIdentity.
        cpu_policy: Option<CpuPolicy> = "cpuPolicy",
        /// Mechanism for bandwidth. Default tc.
        net_qos_policy: Option<NetworkPolicy> = "netQOSPolicy",
    }

    /// What one class gets.
    pub struct ResourceQos {
        /// CPU time of the class.
        cpu_qos: Option<CpuQos> = "cpuQOS",
        /// Protection and reclaim of the memory of the class.
        memory_qos: Option<MemoryQosStrategy> = "memoryQOS",
        /// Block I/O of the class.
        blkio_qos: Option<BlkioQosStrategy> = "blkioQOS",
        /// Cache and memory bandwidth of the class.
        resctrl_qos: Option<ResctrlQosStrategy> = "resctrlQOS",
        /// Bandwidth of the class.
        network_qos: Option<NetworkQosStrategy> = "networkQOS",
    }

    /// Block I/O of a class.
    pub struct BlkioQosStrategy {
        /// Whether it is on.
        enable: Option<bool> = "enable",
        /// Settings, one for each device.
        blocks: Vec<Block> = "blocks",
    }

    /// Cache and memory bandwidth of a class.
    pub struct ResctrlQosStrategy {
        /// Whether it is on.
        enable: Option<bool> = "enable",
        /// Start of its range of the last-level cache, 0..100 and below the end.
        cat_range_start_percent: Option<i64> = "catRangeStartPercent",
        /// End of its range of the last-level cache, 0..100 and above the start.
        cat_range_end_percent: Option<i64> = "catRangeEndPercent",
        /// Its share of memory bandwidth, 0..100.
        mba_percent: Option<i64> = "mbaPercent",
    }

    /// Bandwidth of a class.
    pub struct NetworkQosStrategy {
        /// Whether it is on.
        enable: Option<bool> = "enable",
        /// Bandwidth it receives at least: a whole number is percent of the node's total, a text is bits per
        /// second as a quantity.
        ingress_request: Option<Bandwidth> = "ingressRequest",
        /// Bandwidth it receives at most: a whole number is percent of the node's total, a text is bits per
        /// second as a quantity.
        ingress_limit: Option<Bandwidth> = "ingressLimit",
        /// Bandwidth it sends at least: a whole number is percent of the node's total, a text is bits per
        /// second as a quantity.
        egress_request: Option<Bandwidth> = "egressRequest",
        /// Bandwidth it sends at most: a whole number is percent of the node's total, a text is bits per
        /// second as a quantity.
        egress_limit: Option<Bandwidth> = "egressLimit",
    }

    /// CPU burst of all pods.
    pub struct CpuBurstStrategy {
        /// Which ways of burst are used. Default none.
        policy: CpuBurstPolicy = "policy",
        /// Burst in percent of the limit, 0..10000 where 0 is off.
        cpu_burst_percent: Option<i64> = "cpuBurstPercent",
        /// To how many percent of the limit the quota may be raised, at least 100.
        cfs_quota_burst_percent: Option<i64> = "cfsQuotaBurstPercent",
        /// For how many seconds it may stay raised; -1 for ever.
        cfs_quota_burst_period_seconds: Option<i64> = "cfsQuotaBurstPeriodSeconds",
        /// Usage of the shared pool from which on no quota is raised, 0..100.
        share_pool_threshold_percent: Option<i64> = "sharePoolThresholdPercent",
    }

    /// Settings of the kernel. What is unset is left as it is.
    pub struct SystemStrategy {
        /// vm.min_free_kbytes in ten-thousandths of memory, at least 1.
        min_free_kbytes_factor: Option<i64> = "minFreeKbytesFactor",
        /// vm.watermark_scale_factor, 1..400.
        watermark_scale_factor: Option<i64> = "watermarkScaleFactor",
        /// Whether dead memory cgroups are reaped, 0..1.
        memcg_reap_background: Option<i64> = "memcgReapBackGround",
        /// Whether the page cache can be limited, 0..1.
        page_cache_limit_enabled: Option<i64> = "pageCacheLimitEnabled",
        /// Whether group identity is on, 0..1.
        sched_group_identity_enabled: Option<i64> = "schedGroupIdentityEnabled",
        /// Watermark of the idle saver, at least 0.
        sched_idle_saver_wmark: Option<i64> = "schedIdleSaverWmark",
        /// Scheduler features to be on or off.
        sched_features: BTreeMap<String, bool> = "schedFeatures",
        /// Total bandwidth, bits per second; 0 is not known.
        total_network_bandwidth: Option<Quantity> = "totalNetworkBandwidth",
    }

    /// An application outside of Kubernetes.
    pub struct HostApplication {
        /// Name of the application.
        name: String = "name",
        /// Priority class of the application: koord-prod, koord-mid, koord-batch or koord-free.
        priority: String = "priority",
        /// QoS class of the application: LSE, LSR, LS, BE or SYSTEM.
        qos: String = "qos",
        /// Where the cgroup of the application is.
        cgroup_path: Option<HostCgroupPath> = "cgroupPath",
        /// More about the application, for others than this project.
        strategy: Value = "strategy",
    }

    /// Where the cgroup of a host application is.
    pub struct HostCgroupPath {
        /// Directory below which the cgroup is. Default CgroupRoot.
        base: CgroupBase = "base",
        /// Directories between the base and the cgroup's own.
        parent_dir: String = "parentDir",
        /// The cgroup's own directory, below the parent.
        relative_path: String = "relativePath",
    }
}

/// Memory QoS of a class.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MemoryQosStrategy {
    /// Whether it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// The numbers.
    #[serde(flatten)]
    pub values: MemoryQosValues,
}

const ENABLE: &str = "enable";

// In JSON the numbers stand beside the switch.
impl Object for MemoryQosStrategy {
    fn field_named(key: &str) -> Option<&'static str> {
        if key == ENABLE { Some(ENABLE) } else { MemoryQosValues::field_named(key) }
    }

    fn field_like(key: &str) -> Option<&'static str> {
        if json::same_key(key, ENABLE) { Some(ENABLE) } else { MemoryQosValues::field_like(key) }
    }

    fn fill_field<'de, A: MapAccess<'de>>(
        &mut self,
        field: &'static str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match field {
            ENABLE => map.next_value_seed(FillSeed(&mut self.enable)),
            _ => self.values.fill_field(field, map),
        }
    }
}

impl Fill for MemoryQosStrategy {
    fn fill<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        json::fill_object(self, deserializer)
    }
}

impl Described for MemoryQosStrategy {
    fn shape() -> Shape {
        let mut fields = vec![FieldShape::of::<Option<bool>>(ENABLE, "Whether it is on.")];
        if let Shape::Object(values) = MemoryQosValues::shape() {
            fields.extend(values.fields);
        }
        Shape::Object(ObjectShape::new("MemoryQosStrategy", "Memory QoS of a class.", fields))
    }
}

impl<'de> Deserialize<'de> for MemoryQosStrategy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MemoryQosStrategy, D::Error> {
        json::filled(deserializer)
    }
}

impl NodeSloSpec {
    /// This spec laid over another: what is unset here is the other's, field by field; lists are taken
    /// whole.
    #[must_use]
    pub fn over(&self, base: &NodeSloSpec) -> NodeSloSpec {
        // Both forms are trees of the same fields, so the merge is that of the trees.
        let merged = match (serde_json::to_value(base), serde_json::to_value(self)) {
            (Ok(mut base), Ok(over)) => {
                lay_over(&mut base, over);
                serde_json::from_value(base)
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        // A spec is always representable, and a merge of two specs is one.
        merged.unwrap_or_else(|_| self.clone())
    }
}

fn lay_over(base: &mut Value, over: Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                lay_over(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

impl CpuBurstStrategy {
    /// The part that pods can override.
    pub fn burst(&self) -> CpuBurst {
        CpuBurst {
            policy: self.policy.clone(),
            cpu_burst_percent: self.cpu_burst_percent,
            cfs_quota_burst_percent: self.cfs_quota_burst_percent,
            cfs_quota_burst_period_seconds: self.cfs_quota_burst_period_seconds,
        }
    }
}

/// Directory of a host application's cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDirectory {
    /// Below what. The cgroup driver decides how that directory is called.
    pub base: CgroupBase,
    /// The path below it, without a slash at either end. Not yet checked to be one.
    pub path: String,
}

impl HostApplication {
    /// Its QoS class; none if it states none that is known.
    pub fn qos_class(&self) -> Option<QosClass> {
        QosClass::from_name(&self.qos)
    }

    /// Directory of its cgroup: as stated, else by its QoS class.
    pub fn directory(&self) -> HostDirectory {
        match &self.cgroup_path {
            Some(stated) => {
                let path = [&stated.parent_dir, &stated.relative_path]
                    .into_iter()
                    .map(|part| part.trim_matches('/'))
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join("/");
                let base = match &stated.base {
                    CgroupBase::Unset => CgroupBase::CgroupRoot,
                    base => base.clone(),
                };
                HostDirectory { base, path }
            }
            None => {
                let name = self.name.trim_matches('/');
                let path = match self.qos_class() {
                    Some(QosClass::Lse | QosClass::Lsr | QosClass::Ls) => {
                        format!("host-latency-sensitive/{name}")
                    }
                    Some(QosClass::Be) => format!("host-best-effort/{name}"),
                    Some(QosClass::System) | None => name.to_owned(),
                };
                HostDirectory { base: CgroupBase::CgroupRoot, path }
            }
        }
    }
}
