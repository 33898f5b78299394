//! A container runtime with the memory of a real one: pods and containers that are created, listed and removed.
//!
//! It keeps what the requests said, so that a restarted proxy finds in lists and verbose status what it would find
//! in containerd. It runs nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use koord_cri::v1;
use prost::Message;
use serde_json::{Map, Value, json};

use crate::hooks::decode;
use crate::runtime::{Behaviour, Reply, unary};

/// A pod as the runtime knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// What RunPodSandbox said, after the proxy.
    pub config: v1::PodSandboxConfig,
    /// Runtime handler.
    pub handler: String,
    /// Whether StopPodSandbox was called.
    pub stopped: bool,
}

/// A container as the runtime knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// Its pod.
    pub pod: String,
    /// What CreateContainer said, after the proxy.
    pub config: v1::ContainerConfig,
    /// Current resources.
    pub resources: v1::LinuxContainerResources,
    /// [`v1::ContainerState`] as on the wire.
    pub state: i32,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    pods: BTreeMap<String, Pod>,
    containers: BTreeMap<String, Container>,
}

/// The runtime's memory; survives a restart of the fake that uses it.
#[derive(Debug, Clone, Default)]
pub struct FakeCri {
    state: Arc<Mutex<State>>,
}

impl FakeCri {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pod that was there before; gives its id.
    pub fn add_pod(&self, config: v1::PodSandboxConfig, handler: &str) -> String {
        let mut state = self.lock();
        let id = state.identity();
        state.pods.insert(id.clone(), Pod { config, handler: handler.into(), stopped: false });
        id
    }

    /// Adds a running container that was there before; its pod need not exist. Gives its id.
    pub fn add_container(&self, pod: &str, config: v1::ContainerConfig) -> String {
        let mut state = self.lock();
        let id = state.identity();
        state
            .containers
            .insert(id.clone(), Container::new(pod, config, v1::ContainerState::ContainerRunning));
        id
    }

    /// The pod with this id.
    pub fn pod(&self, id: &str) -> Option<Pod> {
        self.lock().pods.get(id).cloned()
    }

    /// The container with this id.
    pub fn container(&self, id: &str) -> Option<Container> {
        self.lock().containers.get(id).cloned()
    }

    /// Numbers of pods and containers.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.pods.len(), state.containers.len())
    }

    /// Serves calls from this memory.
    pub fn behaviour(&self) -> Behaviour {
        let cri = self.clone();
        unary(move |call, message| cri.answer(call.method(), message))
    }

    /// The answer to one call; unknown methods get UNIMPLEMENTED as from a real runtime.
    pub fn answer(&self, method: &str, message: &[u8]) -> Reply {
        let mut state = self.lock();
        match method {
            "Version" => Reply::ok(version()),
            "Status" => Reply::ok(status()),
            "RunPodSandbox" => state.run_pod(decode(message)),
            "StopPodSandbox" => {
                let request: v1::StopPodSandboxRequest = decode(message);
                if let Some(pod) = state.pods.get_mut(&request.pod_sandbox_id) {
                    pod.stopped = true;
                }
                Reply::ok([])
            }
            "RemovePodSandbox" => {
                let request: v1::RemovePodSandboxRequest = decode(message);
                state.pods.remove(&request.pod_sandbox_id);
                state.containers.retain(|_, container| container.pod != request.pod_sandbox_id);
                Reply::ok([])
            }
            "CreateContainer" => state.create(decode(message)),
            "StartContainer" => {
                let request: v1::StartContainerRequest = decode(message);
                state.move_container(&request.container_id, v1::ContainerState::ContainerRunning)
            }
            "StopContainer" => {
                let request: v1::StopContainerRequest = decode(message);
                // Stopping what is not there succeeds.
                state.move_container(&request.container_id, v1::ContainerState::ContainerExited);
                Reply::ok([])
            }
            "RemoveContainer" => {
                let request: v1::RemoveContainerRequest = decode(message);
                state.containers.remove(&request.container_id);
                Reply::ok([])
            }
            "UpdateContainerResources" => state.update(decode(message)),
            "ListPodSandbox" => Reply::ok(state.list_pods(&decode(message))),
            "ListContainers" => Reply::ok(state.list_containers(&decode(message))),
            "PodSandboxStatus" => state.pod_status(&decode(message)),
            "ContainerStatus" => state.container_status(&decode(message)),
            _ => Reply::error(12, &format!("unknown%20method%20{method}")),
        }
    }
}

impl Container {
    fn new(pod: &str, config: v1::ContainerConfig, state: v1::ContainerState) -> Self {
        let resources = config.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default();
        Self { pod: pod.into(), config, resources, state: state as i32 }
    }
}

/// A VersionResponse as containerd sends it.
pub fn version() -> Vec<u8> {
    v1::VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "containerd".into(),
        runtime_version: "v2.4.2".into(),
        runtime_api_version: "v1".into(),
    }
    .encode_to_vec()
}

fn status() -> Vec<u8> {
    let condition =
        |name: &str| v1::RuntimeCondition { r#type: name.into(), status: true, ..Default::default() };
    let status = v1::RuntimeStatus { conditions: vec![condition("RuntimeReady"), condition("NetworkReady")] };
    v1::StatusResponse { status: Some(status), ..Default::default() }.encode_to_vec()
}

fn not_found(kind: &str, id: &str) -> Reply {
    Reply::error(5, &format!("{kind}%20%22{id}%22:%20not%20found"))
}

impl State {
    fn identity(&mut self) -> String {
        self.next += 1;
        format!("{:064x}", self.next)
    }

    fn run_pod(&mut self, request: v1::RunPodSandboxRequest) -> Reply {
        let Some(config) = request.config else { return Reply::error(3, "no%20config") };
        let id = self.identity();
        self.pods.insert(id.clone(), Pod { config, handler: request.runtime_handler, stopped: false });
        Reply::ok(v1::RunPodSandboxResponse { pod_sandbox_id: id }.encode_to_vec())
    }

    fn create(&mut self, request: v1::CreateContainerRequest) -> Reply {
        if !self.pods.contains_key(&request.pod_sandbox_id) {
            return not_found("sandbox", &request.pod_sandbox_id);
        }
        let id = self.identity();
        let config = request.config.unwrap_or_default();
        let container = Container::new(&request.pod_sandbox_id, config, v1::ContainerState::ContainerCreated);
        self.containers.insert(id.clone(), container);
        Reply::ok(v1::CreateContainerResponse { container_id: id }.encode_to_vec())
    }

    fn move_container(&mut self, id: &str, to: v1::ContainerState) -> Reply {
        match self.containers.get_mut(id) {
            Some(container) => {
                container.state = to as i32;
                Reply::ok([])
            }
            None => not_found("container", id),
        }
    }

    /// Overlays what is not zero, as containerd does.
    fn update(&mut self, request: v1::UpdateContainerResourcesRequest) -> Reply {
        let Some(container) = self.containers.get_mut(&request.container_id) else {
            return not_found("container", &request.container_id);
        };
        let new = request.linux.unwrap_or_default();
        let kept = &mut container.resources;
        for (field, value) in [
            (&mut kept.cpu_period, new.cpu_period),
            (&mut kept.cpu_quota, new.cpu_quota),
            (&mut kept.cpu_shares, new.cpu_shares),
            (&mut kept.memory_limit_in_bytes, new.memory_limit_in_bytes),
            (&mut kept.memory_swap_limit_in_bytes, new.memory_swap_limit_in_bytes),
        ] {
            if value != 0 {
                *field = value;
            }
        }
        for (field, value) in
            [(&mut kept.cpuset_cpus, new.cpuset_cpus), (&mut kept.cpuset_mems, new.cpuset_mems)]
        {
            if !value.is_empty() {
                *field = value;
            }
        }
        kept.unified.extend(new.unified);
        Reply::ok([])
    }

    fn list_pods(&self, request: &v1::ListPodSandboxRequest) -> Vec<u8> {
        let filter = request.filter.clone().unwrap_or_default();
        let wanted =
            |pod: &Pod| filter.state.as_ref().is_none_or(|state| state.state == i32::from(pod.stopped));
        let items = self
            .pods
            .iter()
            .filter(|(id, pod)| (filter.id.is_empty() || **id == filter.id) && wanted(pod))
            .map(|(id, pod)| v1::PodSandbox {
                id: id.clone(),
                metadata: pod.config.metadata.clone(),
                state: i32::from(pod.stopped),
                created_at: 1,
                labels: pod.config.labels.clone(),
                annotations: pod.config.annotations.clone(),
                runtime_handler: pod.handler.clone(),
            })
            .collect();
        v1::ListPodSandboxResponse { items }.encode_to_vec()
    }

    fn list_containers(&self, request: &v1::ListContainersRequest) -> Vec<u8> {
        let filter = request.filter.clone().unwrap_or_default();
        let wanted = |id: &str, container: &Container| {
            (filter.id.is_empty() || id == filter.id)
                && (filter.pod_sandbox_id.is_empty() || container.pod == filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|state| state.state == container.state)
        };
        let containers = self
            .containers
            .iter()
            .filter(|(id, container)| wanted(id, container))
            .map(|(id, container)| v1::Container {
                id: id.clone(),
                pod_sandbox_id: container.pod.clone(),
                metadata: container.config.metadata.clone(),
                image: container.config.image.clone(),
                state: container.state,
                created_at: 1,
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
                ..Default::default()
            })
            .collect();
        v1::ListContainersResponse { containers }.encode_to_vec()
    }

    fn pod_status(&self, request: &v1::PodSandboxStatusRequest) -> Reply {
        let id = &request.pod_sandbox_id;
        let Some(pod) = self.pods.get(id) else { return not_found("sandbox", id) };
        let mut response = v1::PodSandboxStatusResponse {
            status: Some(v1::PodSandboxStatus {
                id: id.clone(),
                metadata: pod.config.metadata.clone(),
                state: i32::from(pod.stopped),
                created_at: 1,
                labels: pod.config.labels.clone(),
                annotations: pod.config.annotations.clone(),
                runtime_handler: pod.handler.clone(),
                ..Default::default()
            }),
            ..Default::default()
        };
        if request.verbose {
            response.info.insert("info".into(), pod_info(pod).to_string());
        }
        Reply::ok(response.encode_to_vec())
    }

    fn container_status(&self, request: &v1::ContainerStatusRequest) -> Reply {
        let id = &request.container_id;
        let Some(container) = self.containers.get(id) else { return not_found("container", id) };
        let mut response = v1::ContainerStatusResponse {
            status: Some(v1::ContainerStatus {
                id: id.clone(),
                metadata: container.config.metadata.clone(),
                state: container.state,
                created_at: 1,
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
                resources: Some(v1::ContainerResources {
                    linux: Some(container.resources.clone()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        if request.verbose {
            response.info.insert("info".into(), container_info(container).to_string());
        }
        Reply::ok(response.encode_to_vec())
    }
}

fn pod_info(pod: &Pod) -> Value {
    let config = &pod.config;
    let metadata = config.metadata.clone().unwrap_or_default();
    let mut linux = Map::new();
    if let Some(from) = &config.linux {
        linux.insert("cgroup_parent".into(), json!(from.cgroup_parent));
        for (name, resources) in [("resources", &from.resources), ("overhead", &from.overhead)] {
            if let Some(resources) = resources {
                linux.insert(name.into(), resources_info(resources));
            }
        }
    }
    json!({
        "pid": 1,
        "runtimeHandler": pod.handler,
        "config": {
            "metadata": {
                "name": metadata.name,
                "uid": metadata.uid,
                "namespace": metadata.namespace,
                "attempt": metadata.attempt,
            },
            "labels": config.labels,
            "annotations": config.annotations,
            "linux": linux,
        },
    })
}

fn container_info(container: &Container) -> Value {
    let config = &container.config;
    let metadata = config.metadata.clone().unwrap_or_default();
    let envs: Vec<_> = config
        .envs
        .iter()
        .map(|entry| json!({ "key": entry.key, "value": String::from_utf8_lossy(&entry.value) }))
        .collect();
    json!({
        "sandboxID": container.pod,
        "pid": 1,
        "config": {
            "metadata": { "name": metadata.name, "attempt": metadata.attempt },
            "envs": envs,
            "labels": config.labels,
            "annotations": config.annotations,
            "linux": { "resources": resources_info(&container.resources) },
        },
    })
}

/// Zero fields are left out, as Go's JSON does.
fn resources_info(resources: &v1::LinuxContainerResources) -> Value {
    let mut info = Map::new();
    for (name, value) in [
        ("cpu_period", resources.cpu_period),
        ("cpu_quota", resources.cpu_quota),
        ("cpu_shares", resources.cpu_shares),
        ("memory_limit_in_bytes", resources.memory_limit_in_bytes),
        ("oom_score_adj", resources.oom_score_adj),
        ("memory_swap_limit_in_bytes", resources.memory_swap_limit_in_bytes),
    ] {
        if value != 0 {
            info.insert(name.into(), json!(value));
        }
    }
    for (name, value) in [("cpuset_cpus", &resources.cpuset_cpus), ("cpuset_mems", &resources.cpuset_mems)] {
        if !value.is_empty() {
            info.insert(name.into(), json!(value));
        }
    }
    if !resources.unified.is_empty() {
        info.insert("unified".into(), json!(resources.unified));
    }
    Value::Object(info)
}

/// A pod's config as a kubelet makes it.
pub fn pod_config(name: &str, uid: &str, namespace: &str, cgroup_parent: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.into(),
            uid: uid.into(),
            namespace: namespace.into(),
            attempt: 0,
        }),
        linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: cgroup_parent.into(), ..Default::default() }),
        ..Default::default()
    }
}

/// A container's config as a kubelet makes it.
pub fn container_config(name: &str, resources: v1::LinuxContainerResources) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
        linux: Some(v1::LinuxContainerConfig { resources: Some(resources), ..Default::default() }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(reply: Reply) -> Vec<u8> {
        assert_eq!(reply.messages.len(), 1, "{reply:?}");
        reply.messages.into_iter().next().unwrap()
    }

    #[test]
    fn a_container_lives_and_its_verbose_status_says_what_was_asked() {
        let cri = FakeCri::default();
        let config = pod_config("p", "u", "n", "/kubepods/burstable/podu");
        let run = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: "runc".into() };
        let pod: v1::RunPodSandboxResponse = decode(&ok(cri.answer("RunPodSandbox", &run.encode_to_vec())));
        let asked = v1::LinuxContainerResources { cpu_shares: 500, cpu_quota: -1, ..Default::default() };
        let create = v1::CreateContainerRequest {
            pod_sandbox_id: pod.pod_sandbox_id.clone(),
            config: Some(container_config("c", asked)),
            ..Default::default()
        };
        let created: v1::CreateContainerResponse =
            decode(&ok(cri.answer("CreateContainer", &create.encode_to_vec())));
        let update = v1::UpdateContainerResourcesRequest {
            container_id: created.container_id.clone(),
            linux: Some(v1::LinuxContainerResources { cpuset_cpus: "0-1".into(), ..Default::default() }),
            ..Default::default()
        };
        ok(cri.answer("UpdateContainerResources", &update.encode_to_vec()));
        let status = v1::ContainerStatusRequest { container_id: created.container_id.clone(), verbose: true };
        let status: v1::ContainerStatusResponse =
            decode(&ok(cri.answer("ContainerStatus", &status.encode_to_vec())));
        let info: Value = serde_json::from_str(&status.info["info"]).unwrap();
        assert_eq!(info["sandboxID"], json!(pod.pod_sandbox_id));
        let expected = json!({ "cpu_quota": -1, "cpu_shares": 500, "cpuset_cpus": "0-1" });
        assert_eq!(info["config"]["linux"]["resources"], expected);
        let status =
            v1::PodSandboxStatusRequest { pod_sandbox_id: pod.pod_sandbox_id.clone(), verbose: true };
        let status: v1::PodSandboxStatusResponse =
            decode(&ok(cri.answer("PodSandboxStatus", &status.encode_to_vec())));
        let info: Value = serde_json::from_str(&status.info["info"]).unwrap();
        assert_eq!(info["config"]["linux"]["cgroup_parent"], "/kubepods/burstable/podu");
        assert_eq!(cri.counts(), (1, 1));
        let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: pod.pod_sandbox_id };
        ok(cri.answer("RemovePodSandbox", &remove.encode_to_vec()));
        assert_eq!(cri.counts(), (0, 0));
        let start = v1::StartContainerRequest { container_id: created.container_id };
        assert!(cri.answer("StartContainer", &start.encode_to_vec()).messages.is_empty());
    }
}
