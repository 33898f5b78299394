//! Reads records out of requests.

use std::sync::Arc;

use koord_cri::view;
use koord_cri::wire::WireError;
use koord_hook::v1alpha1::{ContainerMetadata, PodSandboxMetadata};

use crate::merge::{owned_map, owned_resources};
use crate::method::CriMethod;
use crate::record::{ContainerRecord, PodRecord};

/// What a request is about, and so which records are needed before it can be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A pod that does not exist yet.
    NewPod,
    /// The pod sandbox of this identifier; for CreateContainer the one it is created in.
    Pod(&'a str),
    /// The container of this identifier, and its pod.
    Container(&'a str),
}

impl<'a> Subject<'a> {
    /// Reads what `message`, a request of `method`, is about.
    ///
    /// # Errors
    ///
    /// [`WireError`] when the message is malformed.
    pub fn of(method: CriMethod, message: &'a [u8]) -> Result<Self, WireError> {
        match method {
            CriMethod::RunPodSandbox | CriMethod::RestorePod => Ok(Self::NewPod),
            CriMethod::CreateContainer
            | CriMethod::StopPodSandbox
            | CriMethod::RemovePodSandbox
            | CriMethod::UpdatePodSandboxResources => Ok(Self::Pod(view::Identified::read(message)?.id)),
            CriMethod::StartContainer
            | CriMethod::StopContainer
            | CriMethod::RemoveContainer
            | CriMethod::UpdateContainerResources => Ok(Self::Container(view::Identified::read(message)?.id)),
        }
    }
}

/// The records a request refers to, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The pod.
    pub pod: Option<Arc<PodRecord>>,
    /// The container; `None` for requests about a pod.
    pub container: Option<Arc<ContainerRecord>>,
}

/// The record of a pod as the kubelet asks for it.
pub(crate) fn pod_record(config: &view::PodConfig<'_>, runtime_handler: &str) -> PodRecord {
    let linux = config.linux.as_ref();
    PodRecord {
        metadata: PodSandboxMetadata {
            name: config.metadata.name.to_owned(),
            uid: config.metadata.uid.to_owned(),
            namespace: config.metadata.namespace.to_owned(),
            attempt: config.metadata.attempt,
        },
        runtime_handler: runtime_handler.to_owned(),
        labels: owned_map(&config.labels),
        annotations: owned_map(&config.annotations),
        cgroup_parent: config.cgroup_parent().to_owned(),
        kubelet_cgroup_parent: Some(config.cgroup_parent().to_owned()),
        overhead: linux.and_then(|linux| linux.overhead.as_ref()).map(owned_resources),
        resources: linux.and_then(|linux| linux.resources.as_ref()).map(owned_resources),
        stopped: None,
    }
}

/// The record of a container as the kubelet asks for it, without its identifier.
pub(crate) fn container_record(
    pod_id: &str,
    config: &view::ContainerConfig<'_>,
    cgroup_parent: &str,
) -> ContainerRecord {
    ContainerRecord {
        pod_id: pod_id.to_owned(),
        metadata: ContainerMetadata {
            name: config.name.to_owned(),
            attempt: config.attempt,
            id: String::new(),
        },
        annotations: owned_map(&config.annotations).into(),
        resources: config.resources.as_ref().map(owned_resources),
        cgroup_parent: cgroup_parent.to_owned(),
        envs: owned_map(&config.text_envs()).into(),
        stopped: None,
    }
}
