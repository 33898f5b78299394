//! One call from its request to what is remembered of it.

use std::sync::Arc;

use koord_cri::edit::Patch;
use koord_cri::view::{self, number};
use koord_cri::wire::WireError;
use koord_hook::v1alpha1::{ContainerResourceHookResponse, LinuxContainerResources, PodSandboxHookResponse};
use prost::Message;

use crate::hook_type::HookType;
use crate::merge::{
    CgroupParentFault, Ignored, ResourceMerge, ServerOptions, UpdateScope, ignored_cgroup_parent,
    merge_annotations, merge_cgroup_parent, merge_labels, merge_resources, overlay_request, owned_map,
    owned_resources,
};
use crate::method::CriMethod;
use crate::patch::set_text;
use crate::record::{Change, ContainerRecord, PodRecord};
use crate::request::{Known, container_record, pod_record};
use crate::resource_patch::ResourcePatch;

mod answer;
mod edits;

use answer::Target;
pub use answer::{AnswerError, HookAnswer, Stage};
use edits::{container_patch, pod_patch, update_patch};

/// A pod that is being created.
#[derive(Debug, Clone)]
struct PodWork {
    record: PodRecord,
    answered: bool,
    resources_applied: bool,
}

/// A container that is being created, started or updated.
#[derive(Debug, Clone)]
struct ContainerWork {
    /// As it was before any hook was asked.
    before: ContainerRecord,
    /// As it is after the hooks asked so far.
    record: ContainerRecord,
    /// The cgroup parent an answered one is measured against.
    original_cgroup_parent: String,
    answered: bool,
    /// Whether an answering server wants all that is known in an update.
    full_scope: bool,
    /// What an update asks for, as the request says it.
    requested: Option<LinuxContainerResources>,
    /// Encoded devices and mounts that rules add at creation.
    devices: Vec<Vec<u8>>,
    mounts: Vec<Vec<u8>>,
}

impl ContainerWork {
    fn new(record: ContainerRecord) -> Self {
        Self {
            original_cgroup_parent: record.cgroup_parent.clone(),
            before: record.clone(),
            record,
            answered: false,
            full_scope: false,
            requested: None,
            devices: Vec::new(),
            mounts: Vec::new(),
        }
    }

    /// Measures an answered cgroup parent against the one the container has through its pod.
    fn within(mut self, pod: Option<&PodRecord>) -> Self {
        if let Some(pod) = pod {
            self.record.effective_cgroup_parent(pod).clone_into(&mut self.original_cgroup_parent);
        }
        self
    }
}

#[derive(Debug, Clone)]
enum State {
    Run {
        pod: PodWork,
    },
    Restore {
        pod: PodWork,
        containers: Vec<ContainerWork>,
    },
    Create {
        pod: Option<Arc<PodRecord>>,
        container: ContainerWork,
    },
    Start {
        pod: Option<Arc<PodRecord>>,
        container: Option<ContainerWork>,
    },
    Update {
        pod: Option<Arc<PodRecord>>,
        container: Option<ContainerWork>,
    },
    StopPod {
        pod: Option<Arc<PodRecord>>,
    },
    StopContainer {
        pod: Option<Arc<PodRecord>>,
        container: Option<Arc<ContainerRecord>>,
    },
    RemovePod {
        pod: Option<Arc<PodRecord>>,
    },
    RemoveContainer {
        pod: Option<Arc<PodRecord>>,
    },
    UpdatePod {
        pod: Option<Arc<PodRecord>>,
        overhead: Option<LinuxContainerResources>,
        resources: Option<LinuxContainerResources>,
    },
}

/// One call of an intercepted or observed method, in work.
///
/// For each of its [`stages`](Self::stages) every server in turn is sent
/// [`hook_request`](Self::hook_request) and its answer goes to [`merge`](Self::merge). Then
/// [`patch`](Self::patch) gives what to send to the runtime and, after success,
/// [`commit`](Self::commit) what to remember.
#[derive(Debug, Clone)]
pub struct Working {
    method: CriMethod,
    /// Identifier named by the request; empty for a new pod.
    id: String,
    state: State,
}

impl Working {
    /// Begins work on a request.
    ///
    /// # Errors
    ///
    /// [`WireError`] when the message is malformed; the call is then relayed as it came.
    pub fn from_request(method: CriMethod, message: &[u8], known: Known) -> Result<Self, WireError> {
        let Known { pod, container } = known;
        let mut id = String::new();
        let state = match method {
            CriMethod::RunPodSandbox => {
                let request = view::RunPodSandbox::read(message)?;
                State::Run { pod: new_pod(&request.config, request.runtime_handler) }
            }
            CriMethod::RestorePod => {
                let request = view::RestorePod::read(message)?;
                // Containers of a restored pod have no cgroup parent of their own.
                let containers = request
                    .container_configs
                    .iter()
                    .map(|config| ContainerWork::new(container_record("", config, "")))
                    .collect();
                State::Restore { pod: new_pod(&request.config, request.runtime_handler), containers }
            }
            CriMethod::CreateContainer => {
                let request = view::CreateContainer::read(message)?;
                request.pod_id.clone_into(&mut id);
                let asked = request.sandbox_config.cgroup_parent();
                // The kubelet repeats what it asked for, also when a hook moved the pod since.
                let parent = match &pod {
                    Some(pod) if pod.was_moved() && pod.kubelet_cgroup_parent.as_deref() == Some(asked) => {
                        &pod.cgroup_parent
                    }
                    _ => asked,
                };
                let mut container =
                    ContainerWork::new(container_record(request.pod_id, &request.config, parent));
                asked.clone_into(&mut container.original_cgroup_parent);
                State::Create { container, pod }
            }
            CriMethod::UpdateContainerResources => {
                let request = view::UpdateContainerResources::read(message)?;
                request.container_id.clone_into(&mut id);
                let container =
                    container.map(|known| updated(known.as_ref().clone(), &request).within(pod.as_deref()));
                State::Update { pod, container }
            }
            CriMethod::UpdatePodSandboxResources => {
                let request = view::UpdatePodSandboxResources::read(message)?;
                request.pod_id.clone_into(&mut id);
                State::UpdatePod {
                    pod,
                    overhead: request.overhead.as_ref().map(owned_resources),
                    resources: request.resources.as_ref().map(owned_resources),
                }
            }
            CriMethod::StartContainer
            | CriMethod::StopContainer
            | CriMethod::RemoveContainer
            | CriMethod::StopPodSandbox
            | CriMethod::RemovePodSandbox => {
                view::Identified::read(message)?.id.clone_into(&mut id);
                match method {
                    CriMethod::StartContainer => {
                        let container = container
                            .map(|known| ContainerWork::new(known.as_ref().clone()).within(pod.as_deref()));
                        State::Start { pod, container }
                    }
                    CriMethod::StopContainer => State::StopContainer { pod, container },
                    CriMethod::RemoveContainer => State::RemoveContainer { pod },
                    CriMethod::StopPodSandbox => State::StopPod { pod },
                    _ => State::RemovePod { pod },
                }
            }
        };
        Ok(Self { method, id, state })
    }

    /// The method of the call.
    pub fn method(&self) -> CriMethod {
        self.method
    }

    /// The pod as it is known by now; `None` when the call refers to an unknown one.
    pub fn pod(&self) -> Option<&PodRecord> {
        match &self.state {
            State::Run { pod } | State::Restore { pod, .. } => Some(&pod.record),
            State::Create { pod, .. }
            | State::Start { pod, .. }
            | State::Update { pod, .. }
            | State::StopPod { pod }
            | State::StopContainer { pod, .. }
            | State::RemovePod { pod }
            | State::RemoveContainer { pod }
            | State::UpdatePod { pod, .. } => pod.as_deref(),
        }
    }

    /// The container as it is known by now; `None` when the call is about a pod or refers to an
    /// unknown container.
    pub fn container(&self) -> Option<&ContainerRecord> {
        match &self.state {
            State::Create { container, .. } => Some(&container.record),
            State::Start { container, .. } | State::Update { container, .. } => {
                container.as_ref().map(|container| &container.record)
            }
            State::StopContainer { container, .. } => container.as_deref(),
            State::Run { .. }
            | State::Restore { .. }
            | State::StopPod { .. }
            | State::RemovePod { .. }
            | State::RemoveContainer { .. }
            | State::UpdatePod { .. } => None,
        }
    }

    /// The questions to hook servers before the call, in order. There is none when the call
    /// refers to a pod or container that is not known.
    pub fn stages(&self) -> Vec<Stage> {
        let pod = |hook| Stage { hook, target: Target::Pod };
        let container = |hook, index| Stage { hook, target: Target::Container(index) };
        match &self.state {
            State::Run { .. } => vec![pod(HookType::PreRunPodSandbox)],
            State::Restore { containers, .. } => {
                let of_containers =
                    (0..containers.len()).map(|index| container(HookType::PreCreateContainer, index));
                std::iter::once(pod(HookType::PreRunPodSandbox)).chain(of_containers).collect()
            }
            State::Create { pod: Some(_), .. } => vec![container(HookType::PreCreateContainer, 0)],
            State::Start { pod: Some(_), container: Some(_) } => {
                vec![container(HookType::PreStartContainer, 0)]
            }
            State::Update { pod: Some(_), container: Some(_) } => {
                vec![container(HookType::PreUpdateContainerResources, 0)]
            }
            _ => Vec::new(),
        }
    }

    /// The encoded message that asks a server at `stage`, with all that was merged so far.
    pub fn hook_request(&self, stage: Stage) -> Vec<u8> {
        match (&self.state, stage.target) {
            (State::Run { pod } | State::Restore { pod, .. }, Target::Pod) => {
                pod.record.hook_request().encode_to_vec()
            }
            (State::Restore { pod, containers }, Target::Container(index)) => containers
                .get(index)
                .map(|container| encoded_request(&container.record, &pod.record))
                .unwrap_or_default(),
            (State::Create { pod: Some(pod), container }, Target::Container(_)) => {
                // At creation the request has the say, even if it says nothing.
                container.record.encode_hook_request(pod, &container.record.cgroup_parent)
            }
            (
                State::Start { pod: Some(pod), container: Some(container) }
                | State::Update { pod: Some(pod), container: Some(container) },
                Target::Container(_),
            ) => encoded_request(&container.record, pod),
            // A stage of another call; there is nothing to ask.
            _ => Vec::new(),
        }
    }

    /// Decodes the bytes a server answered at `stage`.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Decode`].
    pub fn decode(stage: Stage, answer: &[u8]) -> Result<HookAnswer, AnswerError> {
        let failed = |source| AnswerError::Decode { hook: stage.hook, source };
        match stage.target {
            Target::Pod => PodSandboxHookResponse::decode(answer).map(HookAnswer::Pod).map_err(failed),
            Target::Container(_) => {
                ContainerResourceHookResponse::decode(answer).map(HookAnswer::Container).map_err(failed)
            }
        }
    }

    /// Merges a server's answer at `stage`; returns the parts of it that were not taken.
    ///
    /// # Errors
    ///
    /// [`AnswerError::WrongKind`]; nothing was taken then.
    pub fn merge(
        &mut self,
        stage: Stage,
        answer: HookAnswer,
        options: ServerOptions,
    ) -> Result<Vec<Ignored>, AnswerError> {
        let mut ignored = Vec::new();
        match (&mut self.state, stage.target, answer) {
            (State::Run { pod } | State::Restore { pod, .. }, Target::Pod, HookAnswer::Pod(answer)) => {
                merge_pod(pod, answer, options, &mut ignored);
            }
            (
                State::Restore { pod, containers },
                Target::Container(index),
                HookAnswer::Container(mut answer),
            ) => {
                let parent = std::mem::take(&mut answer.pod_cgroup_parent);
                if !parent.is_empty() && parent != pod.record.cgroup_parent {
                    ignored.push(ignored_cgroup_parent(&parent, CgroupParentFault::NoPlace));
                }
                if let Some(container) = containers.get_mut(index) {
                    merge_container(container, answer, options, &mut ignored);
                }
            }
            (State::Create { container, .. }, Target::Container(_), HookAnswer::Container(answer)) => {
                merge_container(container, answer, options, &mut ignored);
            }
            (
                State::Start { pod: Some(pod), container: Some(container) }
                | State::Update { pod: Some(pod), container: Some(container) },
                Target::Container(_),
                HookAnswer::Container(mut answer),
            ) => {
                // What the server was shown is no parent of the container's own.
                if container.record.cgroup_parent.is_empty() && answer.pod_cgroup_parent == pod.cgroup_parent
                {
                    answer.pod_cgroup_parent.clear();
                }
                merge_container(container, answer, options, &mut ignored);
            }
            _ => return Err(AnswerError::WrongKind { hook: stage.hook }),
        }
        Ok(ignored)
    }

    /// The pod, to be kept; see [`Working::pod`].
    pub fn pod_shared(&self) -> Option<Arc<PodRecord>> {
        match &self.state {
            State::Run { pod } | State::Restore { pod, .. } => Some(Arc::new(pod.record.clone())),
            State::Create { pod, .. }
            | State::Start { pod, .. }
            | State::Update { pod, .. }
            | State::StopPod { pod }
            | State::StopContainer { pod, .. }
            | State::RemovePod { pod }
            | State::RemoveContainer { pod }
            | State::UpdatePod { pod, .. } => pod.clone(),
        }
    }

    /// The identifier of the pod that a new container belongs to; `None` for other calls.
    pub fn pod_id(&self) -> Option<&str> {
        matches!(self.state, State::Create { .. }).then_some(self.id.as_str())
    }

    /// What the kubelet wants of a container with this update, if it wanted `earlier` before. For other calls
    /// that is `earlier`.
    pub fn asked_over(&self, earlier: &LinuxContainerResources) -> LinuxContainerResources {
        match &self.state {
            State::Update { container: Some(ContainerWork { requested: Some(requested), .. }), .. } => {
                overlay_request(Some(earlier), requested.clone())
            }
            _ => earlier.clone(),
        }
    }

    /// What is known by now of the container `stage` is about; `None` at a stage about a pod.
    pub fn container_at(&self, stage: Stage) -> Option<&ContainerRecord> {
        match (&self.state, stage.target) {
            (State::Restore { containers, .. }, Target::Container(index)) => {
                containers.get(index).map(|container| &container.record)
            }
            (_, Target::Container(_)) => self.container(),
            (_, Target::Pod) => None,
        }
    }

    /// Changes the request as built-in rules say. At a stage about a pod only the files of its cgroup
    /// are changed, which is not done here.
    ///
    /// Devices, mounts and the environment of a container that exists already are fixed.
    pub fn apply(&mut self, stage: Stage, patch: &ResourcePatch) {
        if patch.is_empty() {
            return;
        }
        let creates = matches!(self.state, State::Create { .. } | State::Restore { .. });
        let container = match (&mut self.state, stage.target) {
            (State::Restore { containers, .. }, Target::Container(index)) => containers.get_mut(index),
            (State::Create { container, .. }, Target::Container(_)) => Some(container),
            (
                State::Start { container: Some(container), .. }
                | State::Update { container: Some(container), .. },
                Target::Container(_),
            ) => Some(container),
            _ => None,
        };
        let Some(container) = container else { return };
        container.answered = true;
        let record = &mut container.record;
        if patch.names_resources() {
            patch.lay_over(record.resources.get_or_insert_default());
        }
        if creates {
            record.envs.extend(patch.envs.iter().map(|(name, value)| (name.clone(), value.clone())));
            record
                .annotations
                .extend(patch.annotations.iter().map(|(key, value)| (key.clone(), value.clone())));
            container.devices.extend(patch.encoded_devices());
            container.mounts.extend(patch.encoded_mounts());
        }
    }

    /// The message to send to the runtime in place of `message`, the request this was made from;
    /// `None` when that one is to be sent.
    ///
    /// # Errors
    ///
    /// [`WireError`] when the message is malformed; the call is then relayed as it came.
    pub fn patch(&self, message: &[u8]) -> Result<Option<Vec<u8>>, WireError> {
        let mut patch = Patch::new();
        match &self.state {
            State::Run { pod } => pod_patch(patch.message(number::RUN_CONFIG), pod),
            State::Restore { pod, containers } => {
                pod_patch(patch.message(number::RESTORE_CONFIG), pod);
                for (index, container) in containers.iter().enumerate() {
                    if container.answered {
                        let config = patch.element(number::RESTORE_CONTAINER_CONFIGS, index);
                        container_patch(config, container);
                    }
                }
            }
            State::Create { container, .. } => {
                if container.answered {
                    container_patch(patch.message(number::CREATE_CONFIG), container);
                }
                // Also without an answer: the container belongs where its pod was moved to.
                if container.record.cgroup_parent != container.original_cgroup_parent {
                    let linux = patch.message(number::CREATE_SANDBOX_CONFIG).message(number::POD_LINUX);
                    set_text(linux, number::POD_LINUX_CGROUP_PARENT, &container.record.cgroup_parent);
                }
            }
            State::Update { container: Some(container), .. } if container.answered => {
                update_patch(&mut patch, container);
            }
            _ => {}
        }
        if patch.is_empty() { Ok(None) } else { patch.apply(message) }
    }

    /// What to remember after the call succeeded with this response; empty when the response
    /// was not kept and its content matters.
    ///
    /// # Errors
    ///
    /// [`WireError`] when the response is malformed.
    pub fn commit(&self, response: Option<&[u8]>) -> Result<Vec<Change>, WireError> {
        let given_id =
            || response.map(view::Identified::read).transpose().map(|read| read.map_or("", |read| read.id));
        let id = self.id.clone();
        let changes = match &self.state {
            State::Run { pod } => match given_id()? {
                "" => Vec::new(),
                id => vec![Change::PutPod { id: id.to_owned(), record: pod.record.clone() }],
            },
            State::Restore { pod, containers } => match response {
                Some(response) => restored(pod, containers, &view::Restored::read(response)?),
                None => Vec::new(),
            },
            State::Create { container, .. } => match given_id()? {
                "" => Vec::new(),
                id => vec![put_container(id, &self.id, &container.record)],
            },
            State::Start { container: Some(container), .. } if container.answered => {
                vec![Change::PutContainer { id, record: container.record.clone() }]
            }
            State::Update { container: Some(container), .. } => {
                vec![Change::PutContainer { id, record: container.record.clone() }]
            }
            State::Start { .. } | State::Update { container: None, .. } => Vec::new(),
            State::StopPod { .. } => vec![Change::StopPod { id }],
            State::StopContainer { .. } => vec![Change::StopContainer { id }],
            State::RemovePod { .. } => vec![Change::RemovePod { id }],
            State::RemoveContainer { .. } => vec![Change::RemoveContainer { id }],
            State::UpdatePod { overhead, resources, .. } => {
                vec![Change::SetPodResources { id, overhead: overhead.clone(), resources: resources.clone() }]
            }
        };
        Ok(changes)
    }

    /// The hook after a successful call and the encoded message for its servers; `None` when
    /// there is no such hook or the pod or container is not known.
    ///
    /// A pod or container that was stopped before has had its hook.
    pub fn post_hook(&self) -> Option<(HookType, Vec<u8>)> {
        let request = match &self.state {
            State::Start { pod: Some(pod), container: Some(container) } => {
                encoded_request(&container.record, pod)
            }
            State::StopPod { pod: Some(pod) } if pod.stopped.is_none() => pod.hook_request().encode_to_vec(),
            State::StopContainer { pod: Some(pod), container: Some(container) }
                if container.stopped.is_none() =>
            {
                encoded_request(container, pod)
            }
            _ => return None,
        };
        Some((self.method.after()?, request))
    }
}

fn encoded_request(container: &ContainerRecord, pod: &PodRecord) -> Vec<u8> {
    container.encode_hook_request(pod, container.effective_cgroup_parent(pod))
}

fn new_pod(config: &view::PodConfig<'_>, runtime_handler: &str) -> PodWork {
    PodWork { record: pod_record(config, runtime_handler), answered: false, resources_applied: false }
}

/// The container with the request's changes, before any hook.
fn updated(mut record: ContainerRecord, request: &view::UpdateContainerResources<'_>) -> ContainerWork {
    let requested = request.linux.as_ref().map(owned_resources);
    if let Some(requested) = &requested {
        record.resources = Some(overlay_request(record.resources.as_ref(), requested.clone()));
    }
    record.annotations.extend(owned_map(&request.annotations));
    ContainerWork { requested, ..ContainerWork::new(record) }
}

fn merge_pod(
    pod: &mut PodWork,
    answer: PodSandboxHookResponse,
    options: ServerOptions,
    ignored: &mut Vec<Ignored>,
) {
    pod.answered = true;
    let record = &mut pod.record;
    merge_labels(&mut record.labels, answer.labels, ignored);
    merge_annotations(&mut record.annotations, answer.annotations, ignored);
    let original = record.kubelet_cgroup_parent.clone().unwrap_or_default();
    merge_cgroup_parent(&mut record.cgroup_parent, answer.cgroup_parent, &original, ignored);
    if let (true, Some(resources)) = (options.apply_pod_resources, answer.resources) {
        pod.resources_applied = true;
        merge_resources(record.resources.get_or_insert_default(), &resources, options.resource_merge);
    }
}

fn merge_container(
    container: &mut ContainerWork,
    answer: ContainerResourceHookResponse,
    options: ServerOptions,
    ignored: &mut Vec<Ignored>,
) {
    container.answered = true;
    container.full_scope |= options.update_scope == UpdateScope::Full;
    let record = &mut container.record;
    if !answer.container_annotations.is_empty() {
        merge_annotations(&mut record.annotations, answer.container_annotations, ignored);
    }
    if let Some(resources) = &answer.container_resources {
        merge_resources(record.resources.get_or_insert_default(), resources, options.resource_merge);
    }
    merge_cgroup_parent(
        &mut record.cgroup_parent,
        answer.pod_cgroup_parent,
        &container.original_cgroup_parent,
        ignored,
    );
    match options.resource_merge {
        _ if answer.container_envs.is_empty() => {}
        ResourceMerge::Koordinator => record.envs = answer.container_envs.into(),
        // An answer that is partial must not take away what it does not name.
        ResourceMerge::Overlay => record.envs.extend(answer.container_envs),
    }
}

fn put_container(id: &str, pod_id: &str, record: &ContainerRecord) -> Change {
    let mut record = record.clone();
    id.clone_into(&mut record.metadata.id);
    pod_id.clone_into(&mut record.pod_id);
    Change::PutContainer { id: id.to_owned(), record }
}

/// The pod and those of its containers that the response names.
fn restored(pod: &PodWork, containers: &[ContainerWork], response: &view::Restored<'_>) -> Vec<Change> {
    if response.pod_id.is_empty() {
        return Vec::new();
    }
    let put_pod = Change::PutPod { id: response.pod_id.to_owned(), record: pod.record.clone() };
    let put_containers = response.containers.iter().filter_map(|given| {
        let container = containers.iter().find(|container| container.record.metadata.name == given.name)?;
        (!given.container_id.is_empty())
            .then(|| put_container(given.container_id, response.pod_id, &container.record))
    });
    std::iter::once(put_pod).chain(put_containers).collect()
}

#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod tests;
