//! The store's records as JSON, for operators.

use std::time::{SystemTime, UNIX_EPOCH};

use koord_hook::v1alpha1::LinuxContainerResources;
use serde_json::{Map, Value, json};

use crate::admin::REDACTED;
use crate::store::Snapshot;

/// `{"pods": {ID: ...}, "containers": {ID: ...}}`. Env values are replaced, since they are often secrets.
pub fn records(snapshot: &Snapshot) -> Value {
    let pods: Map<String, Value> = snapshot
        .pods
        .iter()
        .map(|(id, pod)| {
            let record = json!({
                "name": pod.metadata.name,
                "namespace": pod.metadata.namespace,
                "uid": pod.metadata.uid,
                "attempt": pod.metadata.attempt,
                "runtime_handler": pod.runtime_handler,
                "labels": pod.labels,
                "annotations": pod.annotations,
                "cgroup_parent": pod.cgroup_parent,
                "kubelet_cgroup_parent": pod.kubelet_cgroup_parent,
                "overhead": pod.overhead.as_ref().map(resources),
                "resources": pod.resources.as_ref().map(resources),
                "stopped_unix_seconds": pod.stopped.map(unix_seconds),
            });
            (id.clone(), record)
        })
        .collect();
    let containers: Map<String, Value> = snapshot
        .containers
        .iter()
        .map(|(id, container)| {
            let envs: Map<String, Value> =
                container.envs.keys().map(|name| (name.clone(), Value::from(REDACTED))).collect();
            let record = json!({
                "pod_id": container.pod_id,
                "name": container.metadata.name,
                "attempt": container.metadata.attempt,
                "annotations": *container.annotations,
                "cgroup_parent": container.cgroup_parent,
                "resources": container.resources.as_ref().map(resources),
                "envs": envs,
                "stopped_unix_seconds": container.stopped.map(unix_seconds),
            });
            (id.clone(), record)
        })
        .collect();
    json!({ "pods": pods, "containers": containers })
}

fn resources(resources: &LinuxContainerResources) -> Value {
    json!({
        "cpu_period": resources.cpu_period,
        "cpu_quota": resources.cpu_quota,
        "cpu_shares": resources.cpu_shares,
        "memory_limit_in_bytes": resources.memory_limit_in_bytes,
        "oom_score_adj": resources.oom_score_adj,
        "cpuset_cpus": resources.cpuset_cpus,
        "cpuset_mems": resources.cpuset_mems,
        "hugepage_limits": resources
            .hugepage_limits
            .iter()
            .map(|limit| json!({ "page_size": limit.page_size, "limit": limit.limit }))
            .collect::<Vec<_>>(),
        "unified": resources.unified,
        "memory_swap_limit_in_bytes": resources.memory_swap_limit_in_bytes,
    })
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use koord_intercept::record::{ContainerRecord, PodRecord};

    use super::*;

    #[test]
    fn no_env_value_is_shown() {
        let container = ContainerRecord {
            pod_id: "pod".to_owned(),
            envs: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
            resources: Some(LinuxContainerResources { cpu_quota: -1, ..Default::default() }),
            ..Default::default()
        };
        let snapshot = Snapshot {
            pods: vec![("pod".to_owned(), Arc::new(PodRecord::default()))],
            containers: vec![("c".to_owned(), Arc::new(container))],
            ..Snapshot::default()
        };
        let view = records(&snapshot);
        assert!(!view.to_string().contains("hunter2"));
        assert_eq!(view["containers"]["c"]["envs"]["TOKEN"], REDACTED);
        assert_eq!(view["containers"]["c"]["resources"]["cpu_quota"], -1);
        assert_eq!(view["pods"]["pod"]["cgroup_parent"], "");
    }
}
