//! What the node agent publishes about a node's CPUs.

use std::collections::BTreeMap;

use super::{AnnotationError, json_annotation, json_newtype};
use crate::json_object;
use crate::keys::{annotation, label};

json_object! {
    /// CPUs of a node, sorted by id.
    pub struct CpuTopology {
        /// The CPUs.
        detail: Vec<CpuInfo> = "detail",
    }

    /// One logical CPU.
    pub struct CpuInfo {
        /// Its number.
        id: i32 = "id" keep,
        /// Its core, unique on the node.
        core: i32 = "core" keep,
        /// Its socket.
        socket: i32 = "socket" keep,
        /// Its NUMA node, unique on the node.
        node: i32 = "node" keep,
    }

    /// CPUs that kubelet gave to a pod.
    pub struct PodCpuAlloc {
        /// Namespace of the pod.
        namespace: String = "namespace",
        /// Name of the pod.
        name: String = "name",
        /// Unique id of the pod.
        uid: String = "uid",
        /// The CPUs, a Linux CPU list.
        cpuset: String = "cpuset",
        /// Whether kubelet gave them.
        managed_by_kubelet: bool = "managedByKubelet",
    }

    /// CPUs of one NUMA node that pods share.
    pub struct CpuSharedPool {
        /// Socket.
        socket: i32 = "socket" keep,
        /// NUMA node.
        node: i32 = "node" keep,
        /// The CPUs, a Linux CPU list; may be empty.
        cpuset: String = "cpuset",
    }

    /// Model and features of a node's CPUs.
    pub struct CpuBasicInfo {
        /// Model.
        cpu_model: String = "cpuModel",
        /// Whether cores have several threads.
        hyper_thread_enabled: bool = "hyperThreadEnabled",
        /// Whether the clock may exceed its nominal frequency.
        turbo_enabled: bool = "turboEnabled",
        /// Cache mask of the root resctrl group, hexadecimal.
        cat_l3_cbm_mask: String = "catL3CbmMask",
        /// Vendor.
        vendor_id: String = "vendorID",
    }

    /// CPU manager policy of kubelet.
    pub struct KubeletCpuManagerPolicy {
        /// static or none.
        policy: String = "policy",
        /// Its options.
        options: BTreeMap<String, String> = "options",
        /// CPUs kubelet reserves, a Linux CPU list.
        reserved_cpus: String = "reservedCPUs",
    }
}

json_newtype! {
    /// CPUs that kubelet gave to pods. Written `null` when there are none.
    pub struct PodCpuAllocs(Vec<PodCpuAlloc>);
}

json_newtype! {
    /// Pools of latency-sensitive pods, sorted by socket and NUMA node.
    pub struct CpuSharedPools(Vec<CpuSharedPool>);
}

json_newtype! {
    /// Pools of best-effort pods, sorted by socket and NUMA node.
    pub struct BeCpuSharedPools(Vec<CpuSharedPool>);
}

json_annotation!(CpuTopology, annotation::NODE_CPU_TOPOLOGY);
json_annotation!(CpuSharedPools, annotation::NODE_CPU_SHARED_POOLS);
json_annotation!(BeCpuSharedPools, annotation::NODE_BE_CPU_SHARED_POOLS);
json_annotation!(CpuBasicInfo, annotation::NODE_CPU_BASIC_INFO);
json_annotation!(KubeletCpuManagerPolicy, annotation::KUBELET_CPU_MANAGER_POLICY);

impl CpuTopology {
    /// The CPUs, sorted by id.
    pub fn sorted(mut detail: Vec<CpuInfo>) -> CpuTopology {
        detail.sort_by_key(|cpu| cpu.id);
        CpuTopology { detail }
    }
}

impl PodCpuAllocs {
    /// Key of the annotation.
    pub const KEY: &'static str = annotation::NODE_POD_CPU_ALLOCS;

    /// The entries, sorted by uid.
    pub fn sorted(mut allocs: Vec<PodCpuAlloc>) -> PodCpuAllocs {
        allocs.sort_by(|one, other| one.uid.cmp(&other.uid));
        PodCpuAllocs(allocs)
    }

    /// Reads the annotation; none if it is absent.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<PodCpuAllocs>, AnnotationError> {
        annotations.get(Self::KEY).map(|text| PodCpuAllocs::parse(text)).transpose()
    }

    /// Reads the text of the annotation; `null` is no entry.
    pub fn parse(text: &str) -> Result<PodCpuAllocs, AnnotationError> {
        serde_json::from_str(text).map_err(|error| AnnotationError::new(Self::KEY, text, error))
    }

    /// The text of the annotation.
    pub fn to_text(&self) -> String {
        if self.0.is_empty() {
            return "null".to_owned();
        }
        // Strings and booleans are always representable.
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

impl CpuSharedPools {
    /// The pools, sorted by socket and NUMA node.
    pub fn sorted(mut pools: Vec<CpuSharedPool>) -> CpuSharedPools {
        pools.sort_by_key(|pool| (pool.socket, pool.node));
        CpuSharedPools(pools)
    }
}

impl BeCpuSharedPools {
    /// The pools, sorted by socket and NUMA node.
    pub fn sorted(mut pools: Vec<CpuSharedPool>) -> BeCpuSharedPools {
        pools.sort_by_key(|pool| (pool.socket, pool.node));
        BeCpuSharedPools(pools)
    }
}

impl KubeletCpuManagerPolicy {
    /// The policy that gives CPUs to Guaranteed pods.
    pub const STATIC: &'static str = "static";
    /// The policy that gives none.
    pub const NONE: &'static str = "none";
    /// The option by which only whole cores are given.
    pub const FULL_PCPUS_ONLY: &'static str = "full-pcpus-only";
    /// The option by which CPUs are given evenly from all NUMA nodes.
    pub const DISTRIBUTE_ACROSS_NUMA: &'static str = "distribute-cpus-across-numa";

    /// Whether kubelet gives CPUs to pods.
    pub fn is_static(&self) -> bool {
        self.policy == Self::STATIC
    }

    /// Whether kubelet gives whole cores only.
    pub fn is_full_pcpus_only(&self) -> bool {
        self.is_static() && self.options.get(Self::FULL_PCPUS_ONLY).is_some_and(|value| value == "true")
    }
}

/// How CPUs are bound on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum NodeCpuBindPolicy {
    /// As the pod wants.
    #[default]
    None,
    /// Whole cores only.
    FullPcpusOnly,
    /// Spread over cores.
    SpreadByPcpus,
}

impl NodeCpuBindPolicy {
    /// As on the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            NodeCpuBindPolicy::None => "None",
            NodeCpuBindPolicy::FullPcpusOnly => "FullPCPUsOnly",
            NodeCpuBindPolicy::SpreadByPcpus => "SpreadByPCPUs",
        }
    }

    /// The policy of a node: whole cores if its label or kubelet says so, else spread if its label says so.
    pub fn of_node(
        labels: &BTreeMap<String, String>,
        kubelet: Option<&KubeletCpuManagerPolicy>,
    ) -> NodeCpuBindPolicy {
        let stated = labels.get(label::NODE_CPU_BIND_POLICY).map_or("", String::as_str);
        if stated == NodeCpuBindPolicy::FullPcpusOnly.as_str()
            || kubelet.is_some_and(KubeletCpuManagerPolicy::is_full_pcpus_only)
        {
            NodeCpuBindPolicy::FullPcpusOnly
        } else if stated == NodeCpuBindPolicy::SpreadByPcpus.as_str() {
            NodeCpuBindPolicy::SpreadByPcpus
        } else {
            NodeCpuBindPolicy::None
        }
    }
}
