//! Every key of the protocol. No other crate spells one.

/// Domains of the keys, with the slash.
pub mod domain {
    /// QoS, priority, names of device resources, options of the node agent.
    pub const KOORDINATOR: &str = "koordinator.sh/";
    /// Batch and mid resources. In this domain a request may be below its limit.
    pub const RESOURCE: &str = "kubernetes.io/";
    /// What a pod wants of the scheduler, and what it answers.
    pub const SCHEDULING: &str = "scheduling.koordinator.sh/";
    /// The scheduler's own notes.
    pub const INTERNAL_SCHEDULING: &str = "internal.scheduling.koordinator.sh/";
    /// Strategy and topology of a node.
    pub const NODE: &str = "node.koordinator.sh/";
    /// Switches of a pod.
    pub const POD: &str = "pod.koordinator.sh/";
    /// Quotas.
    pub const QUOTA: &str = "quota.scheduling.koordinator.sh/";
    /// Gangs.
    pub const GANG: &str = "gang.scheduling.koordinator.sh/";
    /// Switches of profiles.
    pub const CONFIG: &str = "config.koordinator.sh/";
    /// Facts about kubelet.
    pub const KUBELET: &str = "kubelet.koordinator.sh/";
}

/// Prefix of keys that name the RDT class of one container, followed by the container's name.
pub const RDT_CONTAINER_PREFIX: &str = "rdt.resources.beta.kubernetes.io/container.";

/// Prefix of keys that name the block I/O class of one container, followed by the container's name.
pub const BLOCKIO_CONTAINER_PREFIX: &str = "blockio.resources.beta.kubernetes.io/container.";

macro_rules! keys {
    ($($name:ident = $key:literal, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: &str = $key;)*

        /// All of them.
        pub const ALL: &[&str] = &[$($name,)*];
    };
}

/// Labels of pods, nodes, quotas, reservations and profiles.
pub mod label {
    keys! {
        QOS_CLASS = "koordinator.sh/qosClass", "QoS class of a pod.";
        PRIORITY = "koordinator.sh/priority", "Sub-priority inside the priority class, an integer.";
        PRIORITY_CLASS = "koordinator.sh/priority-class", "Priority class of a pod; overrides the value of `spec.priority` for the detection of the class.";
        EVICTION_ENABLED = "koordinator.sh/eviction-enabled", "`true`: the pod may be evicted by paths that ask for consent.";
        CORE_SCHED_GROUP_ID = "koordinator.sh/core-sched-group-id", "Core-scheduling group.";
        CORE_SCHED_POLICY = "koordinator.sh/core-sched-policy", "Core-scheduling policy: none, exclusive, or the default.";
        GPU_ISOLATION_PROVIDER = "koordinator.sh/gpu-isolation-provider", "What isolates shares of a GPU.";
        MUTATING_UPDATE = "pod.koordinator.sh/mutating-update", "`true`: the webhook changes the pod on updates as well.";
        SKIP_ENHANCED_VALIDATION = "pod.koordinator.sh/skip-enhanced-validation", "`true`: exempt from the enhanced validator.";
        IS_PRE_ALLOCATABLE = "pod.koordinator.sh/is-pre-allocatable", "`true`: a candidate for the pre-allocation of a reservation.";
        PREEMPTION_POLICY = "scheduling.koordinator.sh/preemption-policy", "Never or PreemptLowerPriority.";
        DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible", "`true`: never a victim of a reservation's preemption.";
        RESERVATION_IGNORED = "scheduling.koordinator.sh/reservation-ignored", "`true`: scheduled as if there were no reservations.";
        OPERATING_MODE = "scheduling.koordinator.sh/operating-mode", "Runnable, or Reservation: the pod is a reservation.";
        SCHEDULER_NAME = "scheduling.koordinator.sh/scheduler-name", "Overrides `spec.schedulerName` for Koordinator, even with an empty text.";
        QUESTIONED_OBJECT_KEY = "scheduling.koordinator.sh/questioned-object-key", "Object whose scheduling is to be explained.";
        TOPOLOGY_KEY_TO_EXPLAIN = "scheduling.koordinator.sh/topology-key-to-explain", "Topology key of an explanation.";
        RESERVATION_ORDER = "scheduling.koordinator.sh/reservation-order", "Order of a reservation: lower non-zero first, 0 by score.";
        PRE_ALLOCATION_REQUIRED = "scheduling.koordinator.sh/pre-allocation-required", "`true`: the reservation takes pods that run already.";
        QUOTA_NAME = "quota.scheduling.koordinator.sh/name", "Quota of a pod.";
        QUOTA_TREE_ID = "quota.scheduling.koordinator.sh/tree-id", "Quota tree.";
        QUOTA_PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible", "`false`: the pod is never preempted within its quota.";
        QUOTA_IS_PARENT = "quota.scheduling.koordinator.sh/is-parent", "`true`: the quota has children.";
        QUOTA_PARENT = "quota.scheduling.koordinator.sh/parent", "Parent of the quota; empty is the root.";
        QUOTA_ALLOW_LENT_RESOURCE = "quota.scheduling.koordinator.sh/allow-lent-resource", "Whether others may borrow what is unused; true unless `false`.";
        QUOTA_PROFILE = "quota.scheduling.koordinator.sh/profile", "Profile that made the quota.";
        QUOTA_IS_ROOT = "quota.scheduling.koordinator.sh/is-root", "`true`: root of a tree.";
        QUOTA_IGNORE_DEFAULT_TREE = "quota.scheduling.koordinator.sh/ignore-default-tree", "`true`: does not count in the default tree.";
        QUOTA_ALLOW_FORCE_UPDATE = "quota.scheduling.koordinator.sh/allow-force-update", "`true`: may be changed against the usual checks.";
        POD_GROUP = "pod-group.scheduling.sigs.k8s.io", "Pod group of a pod, the first place of a gang's name.";
        LIGHTWEIGHT_POD_GROUP_NAME = "pod-group.scheduling.sigs.k8s.io/name", "Pod group of a pod, deprecated.";
        LIGHTWEIGHT_POD_GROUP_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available", "Minimum of a gang, deprecated.";
        NODE_CPU_BIND_POLICY = "node.koordinator.sh/cpu-bind-policy", "How CPUs are bound on the node.";
        NODE_NUMA_ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy", "How NUMA nodes are chosen.";
        NODE_NUMA_TOPOLOGY_POLICY = "node.koordinator.sh/numa-topology-policy", "How resources are aligned to NUMA nodes.";
        NODE_CPU_RECLAIM_RATIO = "node.koordinator.sh/cpu-reclaim-ratio", "Overrides the percent of CPU that is reclaimed.";
        NODE_MEMORY_RECLAIM_RATIO = "node.koordinator.sh/memory-reclaim-ratio", "Overrides the percent of memory that is reclaimed.";
        NODE_MID_STATIC_CPU_RESERVED_RATIO = "node.koordinator.sh/mid-static-cpu-reserved-ratio", "Overrides the percent of CPU reserved for mid.";
        NODE_MID_STATIC_MEMORY_RESERVED_RATIO = "node.koordinator.sh/mid-static-memory-reserved-ratio", "Overrides the percent of memory reserved for mid.";
        NODE_CPU_NORMALIZATION_ENABLED = "node.koordinator.sh/cpu-normalization-enabled", "Overrides whether CPUs are normalized; a wide boolean.";
        NODE_ENABLE_NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation", "`true`: kubelet's reservation is taken from each NUMA zone.";
        NODE_GPU_PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy", "Honor, else Prefer.";
        NODE_GPU_VENDOR = "node.koordinator.sh/gpu-vendor", "Vendor of the GPUs.";
        NODE_GPU_MODEL = "node.koordinator.sh/gpu-model", "Model of the GPUs.";
        NODE_GPU_DRIVER_VERSION = "node.koordinator.sh/gpu-driver-version", "Version of the GPUs' driver.";
        NODE_SECONDARY_DEVICE_WELL_PLANNED = "node.koordinator.sh/secondary-device-well-planned", "`true` on a Device: its secondary devices are planned.";
        HAMI_VGPU_NODE = "hami.io/vgpu-node", "Node a virtual GPU was given on.";
        PROFILE_CONTROLLER_MANAGED = "config.koordinator.sh/controller-managed", "`true` on a profile: applied to existing pods as well.";
        MANAGED_BY = "app.kubernetes.io/managed-by", "Who made an object.";
    }
}

/// Annotations of pods, nodes, topology reports, quotas and profiles.
pub mod annotation {
    keys! {
        EXTENDED_RESOURCE_SPEC = "node.koordinator.sh/extended-resource-spec", "Batch and mid resources of the containers, for hooks that see no pod spec.";
        RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec", "Wishes for CPU binding.";
        RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status", "CPUs and NUMA resources the scheduler gave.";
        NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec", "Wishes for NUMA alignment.";
        DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated", "Devices the scheduler gave.";
        DEVICE_ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint", "How devices are to be chosen.";
        DEVICE_JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate", "Devices to be chosen together.";
        GPU_PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec", "Wishes for GPU partitions.";
        GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions", "Partitions that the GPUs of a Device have.";
        RESERVATION_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated", "Reservation the pod runs in.";
        RESERVATION_AFFINITY = "scheduling.koordinator.sh/reservation-affinity", "Reservations the pod wants.";
        EXACT_MATCH_RESERVATION = "scheduling.koordinator.sh/exact-match-reservation", "Resources that must equal the reservation's.";
        RESERVATION_OWNERS = "scheduling.koordinator.sh/reservation-owners", "Owners of an operating-mode pod.";
        RESERVATION_CURRENT_OWNER = "scheduling.koordinator.sh/reservation-current-owner", "Current owner of an operating-mode pod.";
        RESERVATION_RESTRICTED_OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options", "Resources that a restricted reservation restricts.";
        EVICTION_COST = "scheduling.koordinator.sh/eviction-cost", "Cost of an eviction; the maximum means never.";
        SOFT_EVICTION = "scheduling.koordinator.sh/soft-eviction", "A wish to be evicted.";
        LOAD_ESTIMATED_SCALING_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors", "Factors of the pod's load estimate.";
        LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled", "How long after scheduling the estimate counts.";
        LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized", "How long after initialization the estimate counts.";
        NETWORK_TOPOLOGY_SELECTOR = "scheduling.koordinator.sh/network-topology-selector", "Network topology of the pod.";
        SCHEDULING_HINT = "internal.scheduling.koordinator.sh/scheduling-hint", "Nodes to try first.";
        SCHEDULING_HINT_OLD = "scheduling.koordinator.sh/scheduling-hint", "Nodes to try first, former key.";
        BIND_GANG_GROUP_ID = "internal.scheduling.koordinator.sh/bind-gang-group-id", "Gang group a pod is bound with.";
        BIND_GANG_GROUP_ID_OLD = "scheduling.koordinator.sh/bind-gang-group-id", "Gang group a pod is bound with, former key.";
        BIND_GANG_MEMBER_COUNT = "internal.scheduling.koordinator.sh/bind-gang-member-count", "Members of the gang group.";
        BIND_GANG_MEMBER_COUNT_OLD = "scheduling.koordinator.sh/bind-gang-member-count", "Members of the gang group, former key.";
        ORIGINAL_SCHEDULER_NAME = "internal.scheduling.koordinator.sh/original-scheduler-name", "Scheduler name before it was overridden.";
        CPU_BURST = "koordinator.sh/cpuBurst", "CPU burst of the pod.";
        CPU_QOS = "koordinator.sh/cpuQOS", "CPU QoS of the pod.";
        MEMORY_QOS = "koordinator.sh/memoryQOS", "Memory QoS of the pod.";
        BLKIO_QOS = "koordinator.sh/blkioQOS", "Block I/O QoS of the pod.";
        NETWORK_QOS = "koordinator.sh/networkQOS", "Bandwidth limits of the pod, in bits per second.";
        OOM_SCORE_ADJ = "koordinator.sh/oom-score-adj", "OOM score adjustment of the pod's containers.";
        OOM_SCORE_ADJ_SPEC = "koordinator.sh/oom-score-adj-spec", "OOM score adjustment by container.";
        EVICTION_POLICY = "koordinator.sh/eviction-policy", "Eviction features that may take the pod.";
        EVICTION_PRIORITY = "koordinator.sh/eviction-priority", "Lower is evicted first, before `spec.priority` counts.";
        RESCTRL = "node.koordinator.sh/resctrl", "Cache and memory bandwidth of the pod.";
        REPLACE_RESOURCES = "pod.koordinator.sh/replace-resources", "Resource names to be renamed or erased.";
        PRE_ALLOCATABLE_PRIORITY = "pod.koordinator.sh/pre-allocatable-priority", "Order of pre-allocation candidates, higher first.";
        BIND_TIMESTAMP = "scheduling.koordinator.sh/bind-timestamp", "When the pod was bound.";
        GPU_MINORS = "scheduling.koordinator.sh/gpu-minors", "Minors of the pod's GPUs.";
        RESERVE_POD = "scheduling.koordinator.sh/reserve-pod", "Marks the scheduler's own stand-in of a reservation; forbidden on users' pods.";
        RESERVATION_NAME = "scheduling.koordinator.sh/reservation-name", "Reservation of a stand-in pod.";
        RESERVATION_NODE = "scheduling.koordinator.sh/reservation-node", "Node of a stand-in pod.";
        RESERVATION_RESIZE_ALLOCATABLE = "scheduling.koordinator.sh/reservation-resize-allocatable", "Resize of a reservation.";
        IS_PRE_ALLOCATION = "scheduling.koordinator.sh/is-pre-allocation", "Marks a pre-allocation.";
        NODE_COLOCATION_STRATEGY = "node.koordinator.sh/colocation-strategy", "Co-location strategy of the node.";
        NODE_RESERVATION = "node.koordinator.sh/reservation", "Resources and CPUs kept from pods.";
        NODE_SYSTEM_QOS_RESOURCE = "node.koordinator.sh/system-qos-resource", "CPUs of SYSTEM pods.";
        NODE_NETWORK_BANDWIDTH = "node.koordinator.sh/network-bandwidth", "Total bandwidth, in bits per second.";
        NODE_RESOURCE_AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio", "Factors of the node's allocatable resources.";
        NODE_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable", "Allocatable resources before amplification.";
        NODE_CPU_NORMALIZATION_RATIO = "node.koordinator.sh/cpu-normalization-ratio", "Speed of the node's CPUs, two decimals.";
        NODE_ORIGIN_EXTENDED_ALLOCATABLE = "node.koordinator.sh/originExtendedAllocatable", "Extended resources before those of other systems were taken off.";
        NODE_THIRD_PARTY_ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations", "Batch resources other systems use.";
        NODE_USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds", "Load-aware thresholds of the node.";
        NODE_CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology", "CPUs with core, socket and NUMA node.";
        NODE_POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs", "CPUs that kubelet gave to pods.";
        NODE_CPU_SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools", "Pools of latency-sensitive pods.";
        NODE_BE_CPU_SHARED_POOLS = "node.koordinator.sh/be-cpu-shared-pools", "Pools of best-effort pods.";
        NODE_CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info", "Model and features of the CPUs.";
        KUBELET_CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy", "CPU manager policy of kubelet.";
        QUOTA_SHARED_WEIGHT = "quota.scheduling.koordinator.sh/shared-weight", "Weight of the quota; absent is `spec.max`.";
        QUOTA_RUNTIME = "quota.scheduling.koordinator.sh/runtime", "Runtime quota.";
        QUOTA_REQUEST = "quota.scheduling.koordinator.sh/request", "Requests of the quota.";
        QUOTA_CHILD_REQUEST = "quota.scheduling.koordinator.sh/child-request", "Requests of the quota's children.";
        QUOTA_TOTAL_RESOURCE = "quota.scheduling.koordinator.sh/total-resource", "Total of a tree.";
        QUOTA_UNSCHEDULABLE_RESOURCE = "quota.scheduling.koordinator.sh/unschedulable-resource", "Part of the total that cannot be used.";
        QUOTA_GUARANTEED = "quota.scheduling.koordinator.sh/guaranteed", "Guaranteed part.";
        QUOTA_ALLOCATED = "quota.scheduling.koordinator.sh/allocated", "Allocated part.";
        QUOTA_NON_PREEMPTIBLE_REQUEST = "quota.scheduling.koordinator.sh/non-preemptible-request", "Requests of pods that are never preempted.";
        QUOTA_NON_PREEMPTIBLE_USED = "quota.scheduling.koordinator.sh/non-preemptible-used", "Usage of pods that are never preempted.";
        QUOTA_ADMISSION = "quota.scheduling.koordinator.sh/admission", "Limits checked at admission.";
        QUOTA_RESOURCE_KEYS = "quota.scheduling.koordinator.sh/resource-keys", "Names the quota counts.";
        QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS = "quota.scheduling.koordinator.sh/max-strict-check-resource-keys", "Names whose maximum is strict.";
        QUOTA_NAMESPACES = "quota.scheduling.koordinator.sh/namespaces", "Namespaces of the quota.";
        GANG_NAME = "gang.scheduling.koordinator.sh/name", "Gang of the pod.";
        GANG_MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available", "Members that must be placed together.";
        GANG_TOTAL_NUMBER = "gang.scheduling.koordinator.sh/total-number", "All members.";
        GANG_WAITING_TIME = "gang.scheduling.koordinator.sh/waiting-time", "How long placed members wait, a Go duration.";
        GANG_MODE = "gang.scheduling.koordinator.sh/mode", "Strict or NonStrict.";
        GANG_GROUPS = "gang.scheduling.koordinator.sh/groups", "Gangs that are placed together.";
        GANG_TIMEOUT = "gang.scheduling.koordinator.sh/timeout", "The gang timed out.";
        GANG_MATCH_POLICY = "gang.scheduling.koordinator.sh/match-policy", "Which members count.";
        GANG_MATCH_POLICY_ALIAS = "pod-group.scheduling.sigs.k8s.io/match-policy", "Which members count, other key.";
        GANG_NETWORK_TOPOLOGY_INDEX = "gang.scheduling.koordinator.sh/network-topology-index", "Index of the pod in its gang.";
        GANG_NETWORK_TOPOLOGY_SPEC = "gang.scheduling.koordinator.sh/network-topology-spec", "How the gang is to be gathered.";
        PROFILE_SKIP_UPDATE_RESOURCES = "config.koordinator.sh/skip-update-resources", "On a profile: resources are not translated.";
        PROFILE_ORDER = "config.koordinator.sh/profile-order", "On a profile: when it is applied, lower first.";
        PROFILE_STOP = "config.koordinator.sh/profile-stop", "`true` on a profile: no later one is applied.";
        RDT_POD = "rdt.resources.beta.kubernetes.io/pod", "RDT class of a pod, read by the runtime.";
        RDT_CRI_CLASS = "io.kubernetes.cri.rdt-class", "RDT class of a container, read by the runtime.";
        BLOCKIO_POD = "blockio.resources.beta.kubernetes.io/pod", "Block I/O class of a pod, read by the runtime.";
        BLOCKIO_CRI_CLASS = "io.kubernetes.cri.blockio-class", "Block I/O class of a container, read by the runtime.";
    }
}

/// Names of resources.
pub mod resource {
    keys! {
        CPU = "cpu", "CPUs.";
        MEMORY = "memory", "Bytes of memory.";
        EPHEMERAL_STORAGE = "ephemeral-storage", "Bytes of local storage.";
        BATCH_CPU = "kubernetes.io/batch-cpu", "Reclaimed CPU, whole thousandths: 1000 is one CPU.";
        BATCH_MEMORY = "kubernetes.io/batch-memory", "Reclaimed memory, bytes.";
        MID_CPU = "kubernetes.io/mid-cpu", "CPU that is likely to stay idle, whole thousandths: 1000 is one CPU.";
        MID_MEMORY = "kubernetes.io/mid-memory", "Memory that is likely to stay idle, bytes.";
        GPU = "koordinator.sh/gpu", "Percent of GPUs, 100 is one.";
        GPU_SHARED = "koordinator.sh/gpu.shared", "Number of GPUs to share.";
        GPU_CORE = "koordinator.sh/gpu-core", "Percent of GPU cores.";
        GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio", "Percent of GPU memory.";
        GPU_MEMORY = "koordinator.sh/gpu-memory", "Bytes of GPU memory.";
        RDMA = "koordinator.sh/rdma", "Percent of RDMA devices.";
        FPGA = "koordinator.sh/fpga", "Percent of FPGAs.";
        NVIDIA_GPU = "nvidia.com/gpu", "GPUs of NVIDIA.";
        AMD_GPU = "amd.com/gpu", "GPUs of AMD.";
        HYGON_DCU = "dcu.com/gpu", "Accelerators of Hygon.";
        HUAWEI_NPU_CORE = "huawei.com/npu-core", "Cores of Huawei's accelerators.";
        HUAWEI_NPU_CPU = "huawei.com/npu-cpu", "CPUs of Huawei's accelerators.";
        HUAWEI_NPU_DVPP = "huawei.com/npu-dvpp", "Image units of Huawei's accelerators.";
    }
}

/// Former names of resources, each with the name of today. They are renamed when they are read.
pub const DEPRECATED_RESOURCES: [(&str, &str); 8] = [
    ("koordinator.sh/batch-cpu", resource::BATCH_CPU),
    ("koordinator.sh/batch-memory", resource::BATCH_MEMORY),
    ("kubernetes.io/rdma", resource::RDMA),
    ("kubernetes.io/fpga", resource::FPGA),
    ("kubernetes.io/gpu", resource::GPU),
    ("kubernetes.io/gpu-core", resource::GPU_CORE),
    ("kubernetes.io/gpu-memory", resource::GPU_MEMORY),
    ("kubernetes.io/gpu-memory-ratio", resource::GPU_MEMORY_RATIO),
];

/// Whether a key lies in one of Koordinator's domains.
pub fn is_koordinator_key(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(domain, _)| domain == "koordinator.sh" || domain.ends_with(".koordinator.sh"))
}

/// The known key nearest to one that is not known, if any is near enough to be a slip of the pen: at most
/// a third of the letters differ.
pub fn nearest<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = key.chars().count().clamp(1, 120) / 3;
    known
        .into_iter()
        .map(|candidate| (distance(key, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove or change; a change of case counts nothing.
fn distance(one: &str, other: &str) -> usize {
    // Keys of Kubernetes have at most 317 letters; what is longer is not a slip of the pen.
    const MOST_LETTERS: usize = 317;
    let letters = |text: &str| -> Vec<char> {
        text.chars().take(MOST_LETTERS).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    let (one, other) = (letters(one), letters(other));
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.iter().enumerate() {
        let mut diagonal = index;
        let mut left = index + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, candidate) in row.iter_mut().skip(1).zip(&other) {
            let changed = diagonal + usize::from(letter != candidate);
            diagonal = *cell;
            *cell = changed.min(diagonal + 1).min(left + 1);
            left = *cell;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_key_is_spelt_twice() {
        for keys in [label::ALL, annotation::ALL, resource::ALL] {
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
        }
        assert_eq!((label::ALL.len(), annotation::ALL.len(), resource::ALL.len()), (49, 95, 20));
    }

    #[test]
    fn keys_are_legal_in_kubernetes() {
        for key in label::ALL.iter().chain(annotation::ALL) {
            let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
            assert!(prefix.len() <= 253 && (1..=63).contains(&name.len()), "{key}");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{key}");
        }
    }

    #[test]
    fn slips_of_the_pen_are_recognised() {
        let near = |key| nearest(key, label::ALL.iter().copied());
        assert_eq!(near("koordinator.sh/qosclass"), Some(label::QOS_CLASS));
        assert_eq!(near("koordinator.sh/qos-class"), Some(label::QOS_CLASS));
        assert_eq!(near("koordinator.sh/QoSClas"), Some(label::QOS_CLASS));
        assert_eq!(near("example.com/something"), None);
        assert_eq!(nearest("lss", ["LSE", "LS", "BE"]), Some("LS"));
        assert_eq!(nearest("", ["LS"]), None);
    }

    #[test]
    fn distances() {
        for (one, other, distance) in
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("Ab", "aB", 0)]
        {
            assert_eq!(super::distance(one, other), distance, "{one} {other}");
        }
    }

    #[test]
    fn domains_are_recognised() {
        assert!(is_koordinator_key("koordinator.sh/qosClass"));
        assert!(is_koordinator_key("quota.scheduling.koordinator.sh/x"));
        assert!(!is_koordinator_key("evilkoordinator.sh/x"));
        assert!(!is_koordinator_key("koordinator.sh"));
        assert!(!is_koordinator_key("kubernetes.io/batch-cpu"));
    }
}
