//! Built-in rules of quality of service: what a pod, its containers and the directories above them shall have,
//! by the node's policy and the pod's labels and annotations, compatible with Koordinator.
//!
//! Every function here depends on its arguments only. Rules see what the CRI carries: labels, annotations and
//! the resources that the kubelet asks, not the pod's specification. What is not known is not guessed.
//!
//! A rule answers with [`Wish`]es, each with a reason in words. Wishes have the vocabulary of cgroup v1;
//! whoever applies them converts, orders, writes, and puts back what was asked when a wish is gone
//! ([`Rule::releases`], [`Field::neutral`]). An annotation that cannot be read is a [`Problem`] of the rules
//! that need it; the others go on.
//!
//! ```text
//! PodView ---> PodFacts --+--> pod_with        --> Plan
//!                         +--> container_with  --> Plan
//! NodeView ---------------+--> qos_dir         --> Plan
//!                         +--> node            --> NodePlan
//!                         +--> host_application --> Plan
//! ```
//!
//! The order of precedence where two rules wish for one field is that of [`Rule::ALL`].

pub mod batch_resource;
mod block_io;
pub mod core_sched;
pub mod cpu;
mod cpu_burst;
mod cpu_class;
mod cpu_normalization;
pub mod cpuset;
mod device;
mod facts;
mod field;
pub mod group_identity;
mod host_application;
pub mod memory_qos;
mod oom_score_adj;
mod plan;
mod policy;
pub mod resctrl;
mod system;
#[cfg(test)]
mod tests;
mod view;

use koord_extension::qos::KubeQos;

pub use facts::PodFacts;
pub use field::{DiskNumber, Field, Level};
pub use host_application::host_application;
pub use plan::{BindMount, DeviceNode, Plan, Problem, Rule, Severity, Value, Wish};
pub use system::KernelSwitch;
pub use view::{
    Asked, BatchQuota, BeIdleScope, CgroupVersion, ContainerView, CpuQosBackend, CpusetQuota, DEFAULT_PERIOD,
    HostDevices, HostDisks, KernelView, KubeletCpuPolicy, NodeView, NormalizationRatio, Options, PodView,
    Pool, SharePools, SliceOptions, UclampOptions,
};

/// Microseconds of the period that a container's quota counts in: the quota wished for a container goes with
/// this period. A pod's counts in the period that its directory has.
pub const CFS_PERIOD_MICROS: i64 = DEFAULT_PERIOD.0;

/// What the rules wish for a pod's directory.
pub fn pod(node: &NodeView, pod: &PodView) -> Plan {
    pod_with(node, pod, &PodFacts::new(pod))
}

/// [`pod`], with what was read of it before.
pub fn pod_with(node: &NodeView, pod: &PodView, facts: &PodFacts) -> Plan {
    let mut plan = new_plan();
    cpuset::pod(node, facts, &mut plan);
    batch_resource::pod(node, pod, facts, &mut plan);
    cpu_normalization::pod(node, facts, &pod.asked, &mut plan);
    group_identity::pod(node, facts, &mut plan, Level::Pod);
    core_sched::pod(node, facts, &mut plan);
    cpu_burst::pod(node, facts, &pod.asked, &mut plan);
    memory_qos::pod(node, pod, facts, &mut plan);
    resctrl::pod(node, pod, facts, &mut plan);
    block_io::pod(node, pod, facts, &mut plan);
    device::pod(node, facts, &mut plan);
    cpu_class::uclamp(node, facts, &mut plan);
    plan
}

/// What the rules wish for a container.
pub fn container(node: &NodeView, pod: &PodView, container: &ContainerView<'_>) -> Plan {
    container_with(node, pod, &PodFacts::new(pod), container)
}

/// [`container`], with what was read of its pod before.
pub fn container_with(
    node: &NodeView,
    pod: &PodView,
    facts: &PodFacts,
    container: &ContainerView<'_>,
) -> Plan {
    let mut plan = new_plan();
    let (name, asked) = (container.name, container.asked);
    cpuset::container(node, pod, facts, asked, &mut plan);
    if !container.is_sandbox {
        batch_resource::container(node, facts, name, &mut plan);
        cpu_normalization::container(node, facts, asked, &mut plan);
    }
    group_identity::pod(node, facts, &mut plan, Level::Container);
    core_sched::container(node, pod, facts, &mut plan);
    resctrl::container(node, pod, facts, name, &mut plan);
    if !container.is_sandbox {
        cpu_burst::container(node, facts, asked, &mut plan);
        memory_qos::container(node, facts, container, &mut plan);
        oom_score_adj::container(node, facts, name, &mut plan);
        device::gpu(node, pod, facts, name, &mut plan);
        device::rdma(node, facts, &mut plan);
        cpu_class::slice(node, facts, &mut plan);
    }
    plan
}

/// Room for the wishes of a usual pod, taken at once.
fn new_plan() -> Plan {
    Plan { wishes: Vec::with_capacity(8), problems: Vec::new() }
}

/// What the rules wish for the kubelet's directory of a class, apart from the sums of its pods
/// ([`memory_qos::directory_protection`]).
pub fn qos_dir(node: &NodeView, kube_qos: KubeQos) -> Plan {
    let mut plan = new_plan();
    group_identity::directory(node, kube_qos, &mut plan);
    core_sched::directory(node, kube_qos, &mut plan);
    memory_qos::directory(node, kube_qos, &mut plan);
    block_io::directory(node, kube_qos, &mut plan);
    plan
}

/// What there is only one of on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Switches of the kernel, in the order in which they have to be set.
    pub switches: Vec<KernelSwitch>,
    /// Groups of resctrl for classes of pods.
    pub resctrl: Vec<resctrl::ClassGroup>,
    /// Wishes for the root of the cgroup tree.
    pub root: Plan,
    /// What carries out what the policy means, by intent.
    pub backends: Vec<Backend>,
    /// What stood in the way.
    pub problems: Vec<Problem>,
}

/// The mechanism that carries out an intent on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// What is meant.
    pub intent: &'static str,
    /// The mechanism; `none` if nothing does it.
    pub backend: &'static str,
    /// Why this one.
    pub reason: &'static str,
}

/// What the rules wish for the node as a whole.
pub fn node(node: &NodeView) -> NodePlan {
    let mut problems = Vec::new();
    let resctrl = resctrl::class_groups(node, &mut problems);
    let mut root = Plan::default();
    block_io::root(node, &mut root);
    cpuset::kubelet_conflict(node, &mut problems);
    NodePlan { switches: system::switches(node), resctrl, root, backends: backends(node), problems }
}

fn backends(node: &NodeView) -> Vec<Backend> {
    let kernel = &node.kernel;
    let (mechanism, reason) = group_identity::mechanism(node);
    let mut found = vec![Backend { intent: "CPU priority", backend: mechanism.as_str(), reason }];
    let mut add = |intent, backend, reason| found.push(Backend { intent, backend, reason });
    match (kernel.core_scheduling, kernel.smt_active) {
        (true, true) => add("core scheduling", "cookies", "the kernel has it and cores run several threads"),
        (true, false) => add("core scheduling", "none", "cores run one thread only"),
        (false, _) => add("core scheduling", "none", "the kernel has no core scheduling"),
    }
    if kernel.memory_watermarks {
        add("memory watermarks", "memory.wmark_ratio", "the kernel has the file");
    } else if kernel.memory_reclaim {
        add("memory watermarks", "memory.reclaim", "the kernel has no memory.wmark_ratio");
    } else if kernel.memory_high {
        add(
            "memory watermarks",
            "memory.high",
            "the kernel has neither memory.wmark_ratio nor memory.reclaim",
        );
    } else {
        add("memory watermarks", "none", "the kernel has no file for them");
    }
    if kernel.memory_protection {
        add("memory protection", "memory.min, memory.low", "the kernel has the files");
    } else {
        add("memory protection", "none", "the kernel has no memory.min");
    }
    match kernel.cgroup_version {
        CgroupVersion::V1 if kernel.blkio_throttle => add("disk limits", "blkio.throttle", "cgroup v1"),
        CgroupVersion::V2 if kernel.io_max => add("disk limits", "io.max", "cgroup v2"),
        CgroupVersion::V1 | CgroupVersion::V2 => add("disk limits", "none", "the controller is not there"),
    }
    if kernel.resctrl {
        add("cache and memory bandwidth", "resctrl", "it is mounted");
    } else {
        add("cache and memory bandwidth", "none", "the node has no resctrl");
    }
    found
}
