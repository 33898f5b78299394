//! What is known about pods and containers between calls.

use std::{collections::BTreeMap, fmt, time::SystemTime};

use koord_cri::wire::put_bytes_field;
use koord_hook::v1alpha1::{
    ContainerMetadata, ContainerResourceHookRequest, LinuxContainerResources, PodSandboxHookRequest,
    PodSandboxMetadata,
};
use prost::Message;

use crate::shared_map::SharedMap;

/// A pod sandbox as the runtime was told to run it, after all hooks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodRecord {
    /// Identity of the pod.
    pub metadata: PodSandboxMetadata,
    /// Named runtime configuration the sandbox runs with.
    pub runtime_handler: String,
    /// Labels of the pod; the skip label is looked for here.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Parent cgroup of the pod, in cgroupfs style.
    pub cgroup_parent: String,
    /// The parent cgroup the kubelet sent for the sandbox; `None` when that is not known,
    /// as for a record rebuilt from the runtime.
    pub kubelet_cgroup_parent: Option<String>,
    /// Overhead of the sandbox itself.
    pub overhead: Option<LinuxContainerResources>,
    /// Sum of the resources of the pod's containers.
    pub resources: Option<LinuxContainerResources>,
    /// When the sandbox was stopped through this proxy.
    pub stopped: Option<SystemTime>,
}

impl PodRecord {
    /// Whether a hook moved the pod to another cgroup than the kubelet asked for.
    pub fn was_moved(&self) -> bool {
        self.kubelet_cgroup_parent.as_ref().is_some_and(|original| *original != self.cgroup_parent)
    }

    /// The message that describes the pod to a hook server.
    pub fn hook_request(&self) -> PodSandboxHookRequest {
        PodSandboxHookRequest {
            pod_meta: Some(self.metadata.clone()),
            runtime_handler: self.runtime_handler.clone(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            cgroup_parent: self.cgroup_parent.clone(),
            overhead: self.overhead.clone(),
            resources: self.resources.clone(),
        }
    }
}

/// A container as the runtime was told to run it, after all hooks.
///
/// What belongs to its pod is looked up in the pod's record.
#[derive(Clone, PartialEq, Default)]
pub struct ContainerRecord {
    /// Identifier of the pod sandbox it belongs to.
    pub pod_id: String,
    /// Name and attempt of the container, and its identifier.
    pub metadata: ContainerMetadata,
    /// Annotations of the container.
    pub annotations: SharedMap,
    /// Resources of the container; `None` when they are not known.
    pub resources: Option<LinuxContainerResources>,
    /// Parent cgroup sent with the container; empty takes the pod's.
    pub cgroup_parent: String,
    /// Environment, without values that are not text.
    pub envs: SharedMap,
    /// When the container was stopped through this proxy.
    pub stopped: Option<SystemTime>,
}

impl ContainerRecord {
    /// The message that describes the container and its pod to a hook server.
    ///
    /// The resources are always there, be it as an empty message.
    pub fn hook_request(&self, pod: &PodRecord) -> ContainerResourceHookRequest {
        ContainerResourceHookRequest {
            pod_meta: Some(pod.metadata.clone()),
            container_meta: Some(self.metadata.clone()),
            container_annotations: (*self.annotations).clone(),
            container_resources: Some(self.resources.clone().unwrap_or_default()),
            pod_resources: pod.resources.clone(),
            pod_annotations: pod.annotations.clone(),
            pod_labels: pod.labels.clone(),
            pod_cgroup_parent: self.effective_cgroup_parent(pod).to_owned(),
            container_envs: (*self.envs).clone(),
        }
    }

    /// The encoded form of [`hook_request`](Self::hook_request), with `cgroup_parent` as the parent cgroup.
    ///
    /// Written from the record itself: a request is mostly maps, and copying them takes several times as long.
    pub(crate) fn encode_hook_request(&self, pod: &PodRecord, cgroup_parent: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(HOOK_REQUEST_BYTES);
        put_bytes_field(&mut out, 1, &pod.metadata.encode_to_vec());
        put_bytes_field(&mut out, 2, &self.metadata.encode_to_vec());
        put_map(&mut out, 3, &self.annotations);
        let resources = self.resources.as_ref().map(Message::encode_to_vec).unwrap_or_default();
        put_bytes_field(&mut out, 4, &resources);
        if let Some(resources) = &pod.resources {
            put_bytes_field(&mut out, 5, &resources.encode_to_vec());
        }
        put_map(&mut out, 6, &pod.annotations);
        put_map(&mut out, 7, &pod.labels);
        if !cgroup_parent.is_empty() {
            put_bytes_field(&mut out, 8, cgroup_parent.as_bytes());
        }
        put_map(&mut out, 9, &self.envs);
        out
    }

    /// The container's own parent cgroup, else its pod's.
    pub fn effective_cgroup_parent<'a>(&'a self, pod: &'a PodRecord) -> &'a str {
        if self.cgroup_parent.is_empty() { &pod.cgroup_parent } else { &self.cgroup_parent }
    }
}

/// What a usual request to a hook takes.
const HOOK_REQUEST_BYTES: usize = 8 << 10;

/// Appends a map. An entry's key or value that is empty is left out, as the default value it is.
fn put_map(out: &mut Vec<u8>, number: u32, map: &BTreeMap<String, String>) {
    let mut entry = Vec::new();
    for (key, value) in map {
        entry.clear();
        for (field, text) in [(1, key), (2, value)] {
            if !text.is_empty() {
                put_bytes_field(&mut entry, field, text.as_bytes());
            }
        }
        put_bytes_field(out, number, &entry);
    }
}

/// Environment values are often secrets: only their number is printed.
impl fmt::Debug for ContainerRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ContainerRecord")
            .field("pod_id", &self.pod_id)
            .field("metadata", &self.metadata)
            .field("annotations", &self.annotations)
            .field("resources", &self.resources)
            .field("cgroup_parent", &self.cgroup_parent)
            .field("envs", &format_args!("{} values", self.envs.len()))
            .field("stopped", &self.stopped)
            .finish()
    }
}

/// One consequence of a successful call for the store.
#[expect(clippy::large_enum_variant, reason = "a call has one or two of them, and they are moved once")]
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The pod exists and is described by the record.
    PutPod {
        /// Identifier given by the runtime.
        id: String,
        /// The new record.
        record: PodRecord,
    },
    /// The container exists and is described by the record.
    PutContainer {
        /// Identifier given by the runtime.
        id: String,
        /// The new record.
        record: ContainerRecord,
    },
    /// The pod's overhead and resources are now these; nothing else of its record changes.
    SetPodResources {
        /// Identifier given by the runtime.
        id: String,
        /// New overhead; `None` keeps the known one.
        overhead: Option<LinuxContainerResources>,
        /// New resources; `None` keeps the known ones.
        resources: Option<LinuxContainerResources>,
    },
    /// The pod is stopped.
    StopPod {
        /// Identifier given by the runtime.
        id: String,
    },
    /// The container is stopped.
    StopContainer {
        /// Identifier given by the runtime.
        id: String,
    },
    /// The pod is gone, and its containers with it.
    RemovePod {
        /// Identifier given by the runtime.
        id: String,
    },
    /// The container is gone.
    RemoveContainer {
        /// Identifier given by the runtime.
        id: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pod() -> PodRecord {
        PodRecord {
            cgroup_parent: "/offline".into(),
            kubelet_cgroup_parent: Some("/kubepods".into()),
            ..PodRecord::default()
        }
    }

    #[test]
    fn a_container_without_a_cgroup_parent_takes_its_pods() {
        let mut container = ContainerRecord::default();
        assert_eq!(container.hook_request(&pod()).pod_cgroup_parent, "/offline");
        container.cgroup_parent = "/own".into();
        assert_eq!(container.hook_request(&pod()).pod_cgroup_parent, "/own");
    }

    fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
        proptest::collection::btree_map(".{0,4}", ".{0,200}", 0..4)
    }

    fn resources() -> impl Strategy<Value = Option<LinuxContainerResources>> {
        proptest::option::of((any::<i64>(), ".{0,8}", texts()).prop_map(
            |(cpu_shares, cpuset_cpus, unified)| LinuxContainerResources {
                cpu_shares,
                cpuset_cpus,
                unified,
                ..Default::default()
            },
        ))
    }

    proptest! {
        #[test]
        fn the_encoded_request_is_the_message_encoded(
            (labels, annotations, own, envs) in (texts(), texts(), texts(), texts()),
            (of_pod, of_container) in (resources(), resources()),
            (name, attempt, parent) in (".{0,8}", any::<u32>(), ".{0,8}"),
        ) {
            let pod = PodRecord {
                metadata: PodSandboxMetadata { name: name.clone(), attempt, ..Default::default() },
                labels,
                annotations,
                resources: of_pod,
                ..pod()
            };
            let container = ContainerRecord {
                metadata: ContainerMetadata { name, attempt, ..Default::default() },
                annotations: own.into(),
                resources: of_container,
                envs: envs.into(),
                ..ContainerRecord::default()
            };
            let mut message = container.hook_request(&pod);
            message.pod_cgroup_parent.clone_from(&parent);
            prop_assert_eq!(container.encode_hook_request(&pod, &parent), message.encode_to_vec());
        }
    }

    #[test]
    fn a_pod_was_moved_when_both_parents_are_known_and_differ() {
        assert!(pod().was_moved());
        assert!(!PodRecord { kubelet_cgroup_parent: Some("/offline".into()), ..pod() }.was_moved());
        assert!(!PodRecord { kubelet_cgroup_parent: None, ..pod() }.was_moved());
    }

    #[test]
    fn debug_text_hides_environment_values() {
        let container = ContainerRecord {
            envs: [("TOKEN".into(), "s3cret".into())].into(),
            ..ContainerRecord::default()
        };
        let text = format!("{container:?}");
        assert!(!text.contains("s3cret") && text.contains("1 values"), "{text}");
    }
}
