//! From the runtime's messages to records.

use koord_cri::v1;
use koord_hook::v1alpha1 as hook;
use koord_intercept::record::{ContainerRecord, PodRecord};

use super::status::{ContainerInfo, PodInfo};

/// The key of the verbose text in a status answer.
const INFO: &str = "info";

fn pod_metadata(metadata: Option<v1::PodSandboxMetadata>) -> hook::PodSandboxMetadata {
    let metadata = metadata.unwrap_or_default();
    hook::PodSandboxMetadata {
        name: metadata.name,
        uid: metadata.uid,
        namespace: metadata.namespace,
        attempt: metadata.attempt,
    }
}

/// Resources as they are in a status. The runtime does not tell huge page limits there.
///
/// A swap limit that equals the memory limit is what the runtime sets when it was given none. It is left
/// out: repeated in a later update with a higher memory limit it would be an error, left out it is set anew.
fn resources(resources: v1::LinuxContainerResources) -> hook::LinuxContainerResources {
    let swap_is_default = resources.memory_swap_limit_in_bytes == resources.memory_limit_in_bytes;
    hook::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit_in_bytes,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus,
        cpuset_mems: resources.cpuset_mems,
        hugepage_limits: resources
            .hugepage_limits
            .into_iter()
            .map(|limit| hook::HugepageLimit { page_size: limit.page_size, limit: limit.limit })
            .collect(),
        unified: resources.unified,
        memory_swap_limit_in_bytes: if swap_is_default { 0 } else { resources.memory_swap_limit_in_bytes },
    }
}

/// What a list tells of a pod.
pub(super) fn pod_of_list(pod: v1::PodSandbox) -> PodRecord {
    PodRecord {
        metadata: pod_metadata(pod.metadata),
        runtime_handler: pod.runtime_handler,
        labels: pod.labels,
        annotations: pod.annotations,
        ..PodRecord::default()
    }
}

/// What a verbose status tells of a pod; `None` for an answer without a status.
pub(super) fn pod_of_status(answer: v1::PodSandboxStatusResponse) -> Option<PodRecord> {
    let status = answer.status?;
    let info = answer.info.get(INFO).map(|text| PodInfo::parse(text)).unwrap_or_default();
    Some(PodRecord {
        metadata: pod_metadata(status.metadata),
        runtime_handler: status.runtime_handler,
        labels: status.labels,
        annotations: status.annotations,
        cgroup_parent: info.cgroup_parent,
        kubelet_cgroup_parent: None,
        overhead: info.overhead,
        resources: info.resources,
        stopped: None,
    })
}

/// What a verbose status tells of a container; the sandbox's id is empty if it does not tell it.
pub(super) fn container_of_status(answer: v1::ContainerStatusResponse) -> Option<ContainerRecord> {
    let status = answer.status?;
    let info = answer.info.get(INFO).map(|text| ContainerInfo::parse(text)).unwrap_or_default();
    let metadata = status.metadata.unwrap_or_default();
    // The status reflects updates, the configuration only the creation.
    let current = status.resources.and_then(|resources| resources.linux).map(resources);
    let resources = match (current, info.resources) {
        (Some(mut current), Some(created)) => {
            if current.hugepage_limits.is_empty() {
                current.hugepage_limits = created.hugepage_limits;
            }
            Some(current)
        }
        (current, created) => current.or(created),
    };
    Some(ContainerRecord {
        pod_id: info.sandbox_id,
        metadata: hook::ContainerMetadata { name: metadata.name, attempt: metadata.attempt, id: status.id },
        annotations: status.annotations.into(),
        resources,
        cgroup_parent: String::new(),
        envs: info.envs.into(),
        stopped: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_limit_is_taken_only_if_somebody_chose_it() {
        let swap = |memory, swap| {
            resources(v1::LinuxContainerResources {
                memory_limit_in_bytes: memory,
                memory_swap_limit_in_bytes: swap,
                ..Default::default()
            })
            .memory_swap_limit_in_bytes
        };
        assert_eq!(swap(1 << 30, 1 << 30), 0);
        assert_eq!(swap(1 << 30, (1 << 30) + 1), (1 << 30) + 1);
        assert_eq!(swap(1 << 30, 0), 0);
        assert_eq!(swap(1 << 30, -1), -1);
    }
}
