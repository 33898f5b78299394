//! The layout, the pools and the kubelet's allocations as the annotations of a NodeResourceTopology object.

use koord_extension::annotation::{
    BeCpuSharedPools, CpuBasicInfo, CpuInfo, CpuSharedPool, CpuSharedPools, CpuTopology,
    KubeletCpuManagerPolicy, PodCpuAlloc, PodCpuAllocs,
};
use koord_extension::cpuset::CpuSet;

use crate::model::Topology;
use crate::pools::{SharePool, SharePools};
use crate::processor::Processor;

/// `node.koordinator.sh/cpu-topology`.
pub fn cpu_topology(topology: &Topology) -> CpuTopology {
    CpuTopology::sorted(
        topology
            .cpus()
            .iter()
            .map(|cpu| CpuInfo {
                id: number(cpu.id),
                core: number(cpu.core),
                socket: number(cpu.socket),
                node: number(cpu.node),
            })
            .collect(),
    )
}

/// `node.koordinator.sh/cpu-shared-pools` and `node.koordinator.sh/be-cpu-shared-pools`.
pub fn shared_pools(pools: &SharePools) -> (CpuSharedPools, BeCpuSharedPools) {
    let entries = |pools: &[SharePool]| {
        pools
            .iter()
            .map(|pool| CpuSharedPool {
                socket: number(pool.socket),
                node: number(pool.node),
                cpuset: pool.cpus.to_string(),
            })
            .collect()
    };
    (
        CpuSharedPools::sorted(entries(&pools.latency_sensitive)),
        BeCpuSharedPools::sorted(entries(&pools.best_effort)),
    )
}

/// `node.koordinator.sh/pod-cpu-allocs`. `name` finds namespace and name of a pod by its UID; those of a pod that is not
/// known stay empty.
pub fn pod_cpu_allocs(
    allocations: &[(&str, CpuSet)],
    name: impl Fn(&str) -> Option<(String, String)>,
) -> PodCpuAllocs {
    PodCpuAllocs::sorted(
        allocations
            .iter()
            .map(|(uid, cpus)| {
                let (namespace, name) = name(uid).unwrap_or_default();
                PodCpuAlloc {
                    namespace,
                    name,
                    uid: (*uid).to_owned(),
                    cpuset: cpus.to_string(),
                    managed_by_kubelet: true,
                }
            })
            .collect(),
    )
}

/// `node.koordinator.sh/cpu-basic-info`. `smt_active` and `turbo_enabled` are what sysfs says
/// ([`crate::sysfs::smt_active`], [`crate::sysfs::turbo_enabled`]); without the former, cores with two threads tell.
/// `cache_mask` is the mask of the whole L3 cache in hexadecimal, empty without `resctrl`.
pub fn cpu_basic_info(
    processor: &Processor,
    topology: &Topology,
    smt_active: Option<bool>,
    turbo_enabled: Option<bool>,
    cache_mask: &str,
) -> CpuBasicInfo {
    CpuBasicInfo {
        cpu_model: processor.model.clone().unwrap_or_default(),
        hyper_thread_enabled: smt_active.unwrap_or_else(|| topology.cpus_per_core() > 1),
        turbo_enabled: turbo_enabled.unwrap_or(false),
        cat_l3_cbm_mask: cache_mask.to_owned(),
        vendor_id: processor.vendor_id.clone().unwrap_or_default(),
    }
}

/// `kubelet.koordinator.sh/cpu-manager-policy`. Reserved CPUs mean something under the static policy only.
pub fn cpu_manager_policy(
    policy: &str,
    options: impl IntoIterator<Item = (String, String)>,
    reserved: &CpuSet,
) -> KubeletCpuManagerPolicy {
    let mut report = KubeletCpuManagerPolicy {
        policy: policy.to_owned(),
        options: options.into_iter().collect(),
        reserved_cpus: String::new(),
    };
    if report.is_static() {
        report.reserved_cpus = reserved.to_string();
    }
    report
}

/// Kubernetes has signed numbers. Linux has far fewer CPUs than either can say.
fn number(id: u32) -> i32 {
    i32::try_from(id).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::CpuManagerState;
    use crate::pools::kubelet_allocations;

    #[test]
    fn the_layout() {
        let topology = Topology::regular(2, 1, 1, 2).expect("a layout");
        assert_eq!(
            cpu_topology(&topology).to_text(),
            r#"{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":0,"socket":0,"node":0},"#
                .to_owned()
                + r#"{"id":2,"core":1,"socket":1,"node":1},{"id":3,"core":1,"socket":1,"node":1}]}"#
        );
    }

    #[test]
    fn the_pools() {
        let pool =
            |socket, node, cpus| SharePool { socket, node, cpus: CpuSet::parse(cpus).expect("a list") };
        let pools = SharePools {
            latency_sensitive: vec![pool(0, 0, "0-3"), pool(1, 1, "")],
            best_effort: vec![pool(0, 0, "0-3,6")],
        };
        let (ls, be) = shared_pools(&pools);
        assert_eq!(ls.0.len(), 2);
        assert_eq!((ls.0[0].socket, ls.0[0].node, ls.0[0].cpuset.as_str()), (0, 0, "0-3"));
        assert_eq!((ls.0[1].socket, ls.0[1].node, ls.0[1].cpuset.as_str()), (1, 1, ""));
        assert_eq!(be.to_text(), r#"[{"socket":0,"node":0,"cpuset":"0-3,6"}]"#);
    }

    #[test]
    fn the_allocations() {
        let state = CpuManagerState::parse(
            r#"{"policyName":"static","defaultCpuSet":"0","entries":{"podB":{"c":"4"},"podA":{"c1":"1-2","c2":"2-3"}}}"#,
        )
        .expect("a state");
        let found = kubelet_allocations(&state, |_| None);
        let allocs = pod_cpu_allocs(&found, |uid| (uid == "podB").then(|| ("ns".to_owned(), "b".to_owned())));
        let rows: Vec<_> = allocs
            .0
            .iter()
            .map(|pod| (&*pod.namespace, &*pod.name, &*pod.uid, &*pod.cpuset, pod.managed_by_kubelet))
            .collect();
        assert_eq!(rows, [("", "", "podA", "1-3", true), ("ns", "b", "podB", "4", true)]);
        assert_eq!(pod_cpu_allocs(&[], |_| None).to_text(), "null");
    }

    #[test]
    fn the_processor() {
        let processor = Processor::parse("model name : M\nvendor_id : V\n");
        let threads = Topology::regular(1, 1, 2, 2).expect("a layout");
        let info = cpu_basic_info(&processor, &threads, None, None, "7ff");
        assert_eq!((&*info.cpu_model, &*info.vendor_id, &*info.cat_l3_cbm_mask), ("M", "V", "7ff"));
        assert!(info.hyper_thread_enabled && !info.turbo_enabled);
        assert!(!cpu_basic_info(&processor, &threads, Some(false), Some(true), "").hyper_thread_enabled);
        let cores = Topology::regular(1, 1, 2, 1).expect("a layout");
        assert!(!cpu_basic_info(&processor, &cores, None, None, "").hyper_thread_enabled);
    }

    #[test]
    fn the_policy() {
        let reserved = CpuSet::range(0, 1);
        assert_eq!(cpu_manager_policy("static", [], &reserved).reserved_cpus, "0-1");
        assert_eq!(cpu_manager_policy("none", [], &reserved).reserved_cpus, "");
        let options = [("full-pcpus-only".to_owned(), "true".to_owned())];
        assert!(cpu_manager_policy("static", options, &reserved).is_full_pcpus_only());
    }
}
