//! The request that a hook library is tested with, as JSON.

use std::collections::BTreeMap;

use koord_hook::HookType;
use koord_hook::v1alpha1::{
    ContainerMetadata, ContainerResourceHookRequest, LinuxContainerResources, PodSandboxHookRequest,
    PodSandboxMetadata,
};
use prost::Message as _;
use serde::Deserialize;

/// A request in words. What is left out is empty; keys that are not known are refused, since a misspelt one would
/// test something else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Sample {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Parent cgroup of the pod, as the CRI has it.
    pub cgroup_parent: String,
    /// Runtime handler; of stages of pods only.
    pub runtime_handler: String,
    /// Name of the container; of stages of containers only, as the rest of its fields.
    pub container: String,
    /// Id of the container.
    pub container_id: String,
    /// Annotations of the container.
    pub container_annotations: BTreeMap<String, String>,
    /// Environment of the container.
    pub envs: BTreeMap<String, String>,
    /// Resources of the container, or of the pod in stages of pods.
    pub resources: Resources,
}

/// Resources as the CRI has them; 0 is "not stated".
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// Period of the quota, in microseconds.
    pub cpu_period: i64,
    /// Quota, in microseconds of each period; -1 is none.
    pub cpu_quota: i64,
    /// Shares, from 2 to 262144.
    pub cpu_shares: i64,
    /// Limit of memory, in bytes.
    pub memory_limit_in_bytes: i64,
    /// Limit of memory and swap, in bytes.
    pub memory_swap_limit_in_bytes: i64,
    /// OOM score adjustment, from -1000 to 1000.
    pub oom_score_adj: i64,
    /// CPUs, as a Linux CPU list.
    pub cpuset_cpus: String,
    /// NUMA nodes, as a Linux list.
    pub cpuset_mems: String,
    /// Files of cgroup v2.
    pub unified: BTreeMap<String, String>,
}

impl Sample {
    /// The message of a stage, encoded.
    pub fn encode(self, stage: HookType) -> Vec<u8> {
        let resources = LinuxContainerResources {
            cpu_period: self.resources.cpu_period,
            cpu_quota: self.resources.cpu_quota,
            cpu_shares: self.resources.cpu_shares,
            memory_limit_in_bytes: self.resources.memory_limit_in_bytes,
            memory_swap_limit_in_bytes: self.resources.memory_swap_limit_in_bytes,
            oom_score_adj: self.resources.oom_score_adj,
            cpuset_cpus: self.resources.cpuset_cpus,
            cpuset_mems: self.resources.cpuset_mems,
            unified: self.resources.unified,
            ..Default::default()
        };
        let pod_meta =
            Some(PodSandboxMetadata { name: self.pod, uid: self.uid, namespace: self.namespace, attempt: 0 });
        match stage {
            HookType::PreRunPodSandbox | HookType::PostStopPodSandbox => PodSandboxHookRequest {
                pod_meta,
                runtime_handler: self.runtime_handler,
                labels: self.labels,
                annotations: self.annotations,
                cgroup_parent: self.cgroup_parent,
                resources: Some(resources),
                ..Default::default()
            }
            .encode_to_vec(),
            _ => ContainerResourceHookRequest {
                pod_meta,
                container_meta: Some(ContainerMetadata {
                    name: self.container,
                    attempt: 0,
                    id: self.container_id,
                }),
                container_annotations: self.container_annotations,
                container_resources: Some(resources),
                pod_annotations: self.annotations,
                pod_labels: self.labels,
                pod_cgroup_parent: self.cgroup_parent,
                container_envs: self.envs,
                ..Default::default()
            }
            .encode_to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_sent() {
        let text = r#"{"namespace":"n","pod":"p","labels":{"a":"b"},"annotations":{"c":"d"},"container":"x",
            "envs":{"E":"1"},"cgroupParent":"/g","resources":{"cpuShares":512,"cpuQuota":-1,"cpusetCpus":"0-3"}}"#;
        let sample: Sample = serde_json::from_str(text).unwrap();
        let bytes = sample.clone().encode(HookType::PreCreateContainer);
        let request = ContainerResourceHookRequest::decode(bytes.as_slice()).unwrap();
        let resources = request.container_resources.unwrap();
        assert_eq!(
            (resources.cpu_shares, resources.cpu_quota, resources.cpuset_cpus.as_str()),
            (512, -1, "0-3")
        );
        assert_eq!(request.container_meta.unwrap().name, "x");
        assert_eq!(request.pod_labels["a"], "b");
        assert_eq!(request.pod_annotations["c"], "d");
        assert_eq!(request.container_envs["E"], "1");
        assert_eq!(request.pod_cgroup_parent, "/g");
        let bytes = sample.encode(HookType::PreRunPodSandbox);
        let request = PodSandboxHookRequest::decode(bytes.as_slice()).unwrap();
        assert_eq!(request.annotations["c"], "d");
        assert_eq!(request.pod_meta.unwrap().namespace, "n");
        assert!(serde_json::from_str::<Sample>(r#"{"label":{}}"#).is_err());
    }
}
