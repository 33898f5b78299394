//! What rules see: the node, a pod and a container, as far as the CRI carries them.

use std::collections::BTreeMap;

use koord_crd::node_slo::EffectiveNodeSlo;
use koord_extension::cpuset::CpuSet;
use koord_extension::gates::Gates;
use koord_extension::qos::KubeQos;
use koord_extension::units::{Bytes, Micros, Percent};

use crate::field::DiskNumber;
use crate::plan::DeviceNode;

/// Version of the cgroup tree that has the controllers; a hybrid tree is version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum CgroupVersion {
    /// One tree for each controller.
    V1,
    /// One tree.
    #[default]
    V2,
}

/// What the kubelet asked for in the CRI (`LinuxContainerResources`).
///
/// What the request leaves out or has as 0 is `None`; unlimited is -1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// `cpu_shares`.
    pub cpu_shares: Option<i64>,
    /// `cpu_quota`, microseconds a period.
    pub cpu_quota: Option<i64>,
    /// `cpu_period`, microseconds.
    pub cpu_period: Option<i64>,
    /// `memory_limit_in_bytes`.
    pub memory_limit: Option<i64>,
    /// `oom_score_adj`.
    pub oom_score_adj: Option<i64>,
    /// `cpuset_cpus`, when not empty.
    pub cpuset_cpus: Option<String>,
}

impl Asked {
    /// Length of a period: what was asked, or the kernel's 100 ms.
    pub fn period(&self) -> Micros {
        Micros(self.cpu_period.filter(|period| *period > 0).unwrap_or(DEFAULT_PERIOD.0))
    }
}

/// Period of a CPU quota when nothing else was asked: the kernel's and the kubelet's default.
pub const DEFAULT_PERIOD: Micros = Micros(100_000);

/// A pod as RunPodSandbox tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The parent directory that the request names.
    pub cgroup_parent: String,
    /// The class of that directory.
    pub kube_qos: KubeQos,
    /// What the kubelet set on the pod's directory. The kubelet fills the directory before it asks for the
    /// sandbox, so the caller can read it there; `None` where that is not known. A sum of containers' limits
    /// (`LinuxPodSandboxConfig.resources`) is no substitute for the quota: it leaves out what is unlimited.
    pub asked: Asked,
    /// Memory that the pod requests, where the caller knows it from the pod's specification.
    pub memory_request: Option<Bytes>,
}

/// A container as CreateContainer or UpdateContainerResources tells it.
#[derive(Debug, Clone)]
pub struct ContainerView<'a> {
    /// Name in the pod; the sandbox has none.
    pub name: &'a str,
    /// What the kubelet asks. Of an update that names only some of the values, the values in force otherwise.
    pub asked: &'a Asked,
    /// Memory that the container requests, where the caller knows it from the pod's specification.
    pub memory_request: Option<Bytes>,
    /// Whether it is the sandbox (pause) container.
    pub is_sandbox: bool,
}

/// What the kernel and the service manager offer. Found by looking for the files, never by version numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelView {
    /// The tree.
    pub cgroup_version: CgroupVersion,
    /// `cpu.bvt_warp_ns`, or the switch `kernel.sched_group_identity_enabled`, is there.
    pub group_identity: bool,
    /// State of the switch `kernel.sched_group_identity_enabled`; `None` where there is none.
    pub group_identity_switch: Option<bool>,
    /// Some directory has a negative `cpu.bvt_warp_ns`; looked at only where there is no switch.
    pub negative_identity_in_use: bool,
    /// `cpu.idle`.
    pub cpu_idle: bool,
    /// systemd owns the directories and takes `CPUWeight=idle` (v2, systemd 250).
    pub systemd_idle_weight: bool,
    /// `cpu.cfs_burst_us` or `cpu.max.burst`.
    pub cpu_burst: bool,
    /// A burst may exceed the quota (vendor kernels); mainline refuses that.
    pub burst_above_quota: bool,
    /// `cpu.uclamp.min` and `cpu.uclamp.max`.
    pub cpu_uclamp: bool,
    /// Threads can be given a slice with `sched_setattr` (6.12).
    pub scheduler_slice: bool,
    /// Core scheduling works.
    pub core_scheduling: bool,
    /// State of the switch `kernel.sched_core` of vendor kernels; `None` where there is none.
    pub core_scheduling_switch: Option<bool>,
    /// Cores run more than one thread now (`devices/system/cpu/smt/active`).
    pub smt_active: bool,
    /// `memory.min` and `memory.low`.
    pub memory_protection: bool,
    /// `memory.high`, in a kernel that does not hang in it (5.9).
    pub memory_high: bool,
    /// `memory.reclaim` (5.19).
    pub memory_reclaim: bool,
    /// `memory.oom.group`.
    pub memory_oom_group: bool,
    /// `memory.wmark_ratio`, `memory.wmark_scale_factor`, `memory.wmark_min_adj` (vendor kernels).
    pub memory_watermarks: bool,
    /// `memory.priority`, `memory.use_priority_oom` (vendor kernels).
    pub memory_priority: bool,
    /// `memory.pagecache_limit.*` (vendor kernels, v2).
    pub page_cache_limit: bool,
    /// Size of a page.
    pub page_size: Bytes,
    /// `blkio.throttle.*_device` (v1).
    pub blkio_throttle: bool,
    /// `blkio.cost.weight`, and `.qos` and `.model` in the root (v1, vendor kernels).
    pub blkio_cost: bool,
    /// `io.max` (v2).
    pub io_max: bool,
    /// `io.weight` (v2).
    pub io_weight: bool,
    /// `io.latency` (v2).
    pub io_latency: bool,
    /// `io.cost.qos` and `io.cost.model` in the root (v2).
    pub io_cost: bool,
    /// resctrl is mounted, and the runtime can be told a class or tasks can be moved.
    pub resctrl: bool,
}

impl KernelView {
    /// A kernel that offers nothing.
    pub fn bare(cgroup_version: CgroupVersion) -> KernelView {
        KernelView {
            cgroup_version,
            group_identity: false,
            group_identity_switch: None,
            negative_identity_in_use: false,
            cpu_idle: false,
            systemd_idle_weight: false,
            cpu_burst: false,
            burst_above_quota: false,
            cpu_uclamp: false,
            scheduler_slice: false,
            core_scheduling: false,
            core_scheduling_switch: None,
            smt_active: false,
            memory_protection: false,
            memory_high: false,
            memory_reclaim: false,
            memory_oom_group: false,
            memory_watermarks: false,
            memory_priority: false,
            page_cache_limit: false,
            page_size: Bytes(4096),
            blkio_throttle: false,
            blkio_cost: false,
            io_max: false,
            io_weight: false,
            io_latency: false,
            io_cost: false,
            resctrl: false,
        }
    }
}

/// Mechanism for the intent "who gives way to whom on a CPU" (`--cpu-qos-backend`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CpuQosBackend {
    /// The first of identity, idle, weight that works.
    #[default]
    Auto,
    /// Group identity of vendor kernels.
    Bvt,
    /// `cpu.idle`.
    Idle,
    /// The least weight.
    Weight,
    /// None.
    Off,
}

/// Which directories of best-effort pods are made idle (`--be-idle-scope`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BeIdleScope {
    /// The QoS directory if systemd can be told so, else each pod.
    #[default]
    Auto,
    /// The QoS directory, whatever it means for the kubelet: written into the file directly, the kubelet's own
    /// write of the weight fails and the kubelet does not start.
    Qos,
    /// Each pod.
    Pod,
    /// None.
    Off,
}

/// Quota of containers that own CPUs (`--cpuset-container-quota`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CpusetQuota {
    /// No quota for pod and containers: their CPUs are the limit.
    #[default]
    Unset,
    /// As the kubelet asked (`--disable-unset-cpu-quota`).
    Keep,
    /// No quota for the pod; a container keeps its own if other containers of the pod have one too, so that
    /// it cannot starve them.
    Auto,
}

/// Slices for the scheduler, by class of pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceOptions {
    /// Threads of LS and LSR containers.
    pub latency_sensitive: Micros,
    /// Threads of BE containers.
    pub best_effort: Micros,
}

impl Default for SliceOptions {
    /// 1 ms and 20 ms.
    fn default() -> Self {
        SliceOptions { latency_sensitive: Micros(1_000), best_effort: Micros(20_000) }
    }
}

/// Bounds of the CPU's capacity, by class of pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UclampOptions {
    /// `cpu.uclamp.min` of LSE, LSR and LS pods; 0 = untouched.
    pub latency_sensitive_min: Percent,
    /// `cpu.uclamp.max` of BE pods; 100 = untouched.
    pub best_effort_max: Percent,
}

impl Default for UclampOptions {
    /// 0 and 50 %.
    fn default() -> Self {
        UclampOptions { latency_sensitive_min: Percent(0), best_effort_max: Percent(50) }
    }
}

/// Choices of the operator beside the node's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Mechanism of group identity.
    pub cpu_qos_backend: CpuQosBackend,
    /// Scope of `cpu.idle`.
    pub be_idle_scope: BeIdleScope,
    /// Quota of containers that own CPUs.
    pub cpuset_quota: CpusetQuota,
    /// Which suppression takes the quota of batch pods away.
    pub batch_quota: BatchQuota,
    /// Slices of the scheduler; `None` = off.
    pub scheduler_slice: Option<SliceOptions>,
    /// Bounds of the CPU's capacity; `None` = off.
    pub cpu_uclamp: Option<UclampOptions>,
    /// The library of HAMi-core on the host and in containers; `None` = `/usr/local/vgpu/libvgpu.so`.
    pub hami_core_library: Option<String>,
}

/// When batch pods have no quota of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BatchQuota {
    /// While the best-effort directory is suppressed by quota.
    #[default]
    UnsetUnderQuotaSuppression,
    /// While the best-effort directory is suppressed, by quota or by CPUs.
    UnsetUnderSuppression,
}

/// CPUs of one NUMA node that a class of pods shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// NUMA node.
    pub numa_node: i64,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// CPUs that are left for pods without CPUs of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharePools {
    /// For LS pods, in the order of the nodes; empty = not known.
    pub ls: Vec<Pool>,
    /// For BE pods, in the order of the nodes; empty = not known.
    pub be: Vec<Pool>,
}

/// CPU manager policy of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KubeletCpuPolicy {
    /// Every container may use every CPU.
    None,
    /// Guaranteed containers with whole CPUs own them, and all others are kept off those.
    Static,
}

/// How much faster the node's CPUs are than the CPU that limits are written for.
///
/// Exact to a millionth, so that a division gives what arithmetic on paper gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NormalizationRatio {
    millionths: i64,
}

impl NormalizationRatio {
    /// The ratio, if it is a number above 0 and below a million.
    pub fn new(ratio: f64) -> Option<NormalizationRatio> {
        let millionths = (ratio * 1e6).round();
        #[allow(clippy::cast_possible_truncation, reason = "below 1e12, and whole")]
        let exact = millionths as i64;
        (1.0..1e12).contains(&millionths).then_some(NormalizationRatio { millionths: exact })
    }

    /// Whether limits are divided: only for CPUs that are faster.
    pub const fn divides(self) -> bool {
        self.millionths > 1_000_000
    }

    /// `quota` / ratio, rounded up, at least 1 ms; an unlimited quota and a ratio up to 1 change nothing.
    pub fn divide(self, quota: i64) -> i64 {
        if quota <= 0 || !self.divides() {
            return quota;
        }
        let exact = i128::from(quota) * 1_000_000;
        let ratio = i128::from(self.millionths);
        i64::try_from((exact + ratio - 1) / ratio).unwrap_or(quota).max(crate::cpu::MIN_QUOTA)
    }
}

impl std::fmt::Display for NormalizationRatio {
    /// As the node's annotation has it: two decimals.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hundredths = (self.millionths + 5_000) / 10_000;
        write!(formatter, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

/// Devices of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostDevices {
    /// Device nodes that exist, by path: `/dev/nvidia0`, `/dev/nvidiactl`, `/dev/infiniband/rdma_cm`, ...
    pub nodes: BTreeMap<String, DeviceNode>,
    /// What `/sys/bus/pci/devices/BDF/infiniband_verbs` holds, in order, by bus id.
    pub infiniband_verbs: BTreeMap<String, Vec<String>>,
}

/// Disks of the host, by the names that policies use for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostDisks {
    /// Devices (`/dev/sda`, `/dev/sda1`) and the whole disk behind each.
    pub devices: BTreeMap<String, DiskNumber>,
    /// Volume groups on one disk.
    pub volume_groups: BTreeMap<String, DiskNumber>,
    /// Volumes of pods: (UID, name of the volume).
    pub pod_volumes: BTreeMap<(String, String), DiskNumber>,
}

/// Everything about the node that rules need.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// The policy, defaults laid under.
    pub slo: EffectiveNodeSlo,
    /// Which rules are on.
    pub gates: Gates,
    /// What the kernel offers.
    pub kernel: KernelView,
    /// What the operator chose.
    pub options: Options,
    /// Share pools.
    pub pools: SharePools,
    /// CPUs of SYSTEM pods.
    pub system_cpuset: Option<CpuSet>,
    /// CPU manager policy of the kubelet; `None` = not known.
    pub kubelet_cpu_policy: Option<KubeletCpuPolicy>,
    /// How fast the CPUs are; `None` = normalization is off.
    pub cpu_normalization_ratio: Option<NormalizationRatio>,
    /// Memory that pods can have on the node; `None` = not known.
    pub allocatable_memory: Option<Bytes>,
    /// Devices.
    pub devices: HostDevices,
    /// Disks.
    pub disks: HostDisks,
}

impl NodeView {
    /// A node of which nothing is known but its policy, what is on and what the kernel offers.
    pub fn new(slo: EffectiveNodeSlo, gates: Gates, kernel: KernelView) -> NodeView {
        NodeView {
            slo,
            gates,
            kernel,
            options: Options::default(),
            pools: SharePools::default(),
            system_cpuset: None,
            kubelet_cpu_policy: None,
            cpu_normalization_ratio: None,
            allocatable_memory: None,
            devices: HostDevices::default(),
            disks: HostDisks::default(),
        }
    }
}
