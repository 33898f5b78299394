//! The example hook server: echoes what it is asked and overrides the fields it was told to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use koord_hook::v1alpha1::runtime_hook_service_server::{RuntimeHookService, RuntimeHookServiceServer};
use koord_hook::v1alpha1::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, LinuxContainerResources,
    PodSandboxHookRequest, PodSandboxHookResponse, PodSandboxMetadata,
};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::hooks::{echo_container, echo_pod, registration, write_registration};

/// Fields to set in every answer; `None` and empty leave what was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Relative weight.
    pub cpu_shares: Option<i64>,
    /// Microseconds of CPU time per period; -1 is no limit.
    pub cpu_quota: Option<i64>,
    /// Microseconds.
    pub cpu_period: Option<i64>,
    /// Bytes.
    pub memory: Option<i64>,
    /// CPU list such as `0-3,8`.
    pub cpuset: Option<String>,
    /// -1000 to 1000.
    pub oom_score_adj: Option<i64>,
    /// Annotations to add to pods and containers.
    pub annotations: BTreeMap<String, String>,
    /// The pod's cgroup parent.
    pub cgroup_parent: Option<String>,
}

impl Overrides {
    fn resources(&self, current: Option<LinuxContainerResources>) -> Option<LinuxContainerResources> {
        let any = self.cpu_shares.is_some()
            || self.cpu_quota.is_some()
            || self.cpu_period.is_some()
            || self.memory.is_some()
            || self.cpuset.is_some()
            || self.oom_score_adj.is_some();
        if !any {
            return current;
        }
        let mut resources = current.unwrap_or_default();
        let set = |field: &mut i64, value: Option<i64>| *field = value.unwrap_or(*field);
        set(&mut resources.cpu_shares, self.cpu_shares);
        set(&mut resources.cpu_quota, self.cpu_quota);
        set(&mut resources.cpu_period, self.cpu_period);
        set(&mut resources.memory_limit_in_bytes, self.memory);
        set(&mut resources.oom_score_adj, self.oom_score_adj);
        if let Some(cpus) = &self.cpuset {
            resources.cpuset_cpus.clone_from(cpus);
        }
        Some(resources)
    }

    /// The answer for a pod. Pod resources are left alone: the overrides are a container's.
    pub fn pod(&self, request: PodSandboxHookRequest) -> PodSandboxHookResponse {
        let mut response = echo_pod(request);
        response.annotations.extend(self.annotations.clone());
        if let Some(parent) = &self.cgroup_parent {
            response.cgroup_parent.clone_from(parent);
        }
        response
    }

    /// The answer for a container.
    pub fn container(&self, request: ContainerResourceHookRequest) -> ContainerResourceHookResponse {
        let mut response = echo_container(request);
        response.container_annotations.extend(self.annotations.clone());
        response.container_resources = self.resources(response.container_resources);
        response
    }
}

/// What to serve and where.
#[derive(Debug, Clone)]
pub struct ExampleOptions {
    /// Socket to listen on; a stale file is replaced.
    pub socket: PathBuf,
    /// Registration file to write once the socket answers.
    pub register: Option<PathBuf>,
    /// `Ignore` or `Fail`.
    pub policy: String,
    /// Hook types to register for.
    pub hooks: Vec<String>,
    /// Fields to set.
    pub overrides: Overrides,
    /// File that gets one JSON line per call.
    pub log: Option<PathBuf>,
}

struct Service {
    overrides: Overrides,
    log: Option<Mutex<File>>,
}

impl Service {
    fn note(&self, line: &Value) {
        if let Some(log) = &self.log {
            // A full disk must not fail the hook.
            let _ = writeln!(log.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
        }
    }

    fn pod(
        &self,
        hook: &str,
        request: Request<PodSandboxHookRequest>,
    ) -> Result<Response<PodSandboxHookResponse>, Status> {
        let request = request.into_inner();
        let mut line = describe(hook, request.pod_meta.as_ref());
        line["asked"] = json!({ "cgroup_parent": request.cgroup_parent });
        let response = self.overrides.pod(request);
        line["answered"] = json!({ "cgroup_parent": response.cgroup_parent });
        self.note(&line);
        Ok(Response::new(response))
    }

    fn container(
        &self,
        hook: &str,
        request: Request<ContainerResourceHookRequest>,
    ) -> Result<Response<ContainerResourceHookResponse>, Status> {
        let request = request.into_inner();
        let mut line = describe(hook, request.pod_meta.as_ref());
        if let Some(container) = &request.container_meta {
            line["container"] = json!(container.name);
            line["id"] = json!(container.id);
        }
        line["asked"] = describe_resources(request.container_resources.as_ref());
        line["pod_cgroup_parent"] = json!(request.pod_cgroup_parent);
        let response = self.overrides.container(request);
        line["answered"] = describe_resources(response.container_resources.as_ref());
        self.note(&line);
        Ok(Response::new(response))
    }
}

fn describe(hook: &str, pod: Option<&PodSandboxMetadata>) -> Value {
    match pod {
        Some(pod) => json!({ "hook": hook, "namespace": pod.namespace, "pod": pod.name, "uid": pod.uid }),
        None => json!({ "hook": hook }),
    }
}

fn describe_resources(resources: Option<&LinuxContainerResources>) -> Value {
    resources.map_or(Value::Null, |resources| {
        json!({
            "cpu_period": resources.cpu_period,
            "cpu_quota": resources.cpu_quota,
            "cpu_shares": resources.cpu_shares,
            "memory_limit_in_bytes": resources.memory_limit_in_bytes,
            "memory_swap_limit_in_bytes": resources.memory_swap_limit_in_bytes,
            "oom_score_adj": resources.oom_score_adj,
            "cpuset_cpus": resources.cpuset_cpus,
            "cpuset_mems": resources.cpuset_mems,
            "unified": resources.unified,
        })
    })
}

#[tonic::async_trait]
impl RuntimeHookService for Service {
    async fn pre_run_pod_sandbox_hook(
        &self,
        request: Request<PodSandboxHookRequest>,
    ) -> Result<Response<PodSandboxHookResponse>, Status> {
        self.pod("PreRunPodSandbox", request)
    }

    async fn post_stop_pod_sandbox_hook(
        &self,
        request: Request<PodSandboxHookRequest>,
    ) -> Result<Response<PodSandboxHookResponse>, Status> {
        self.pod("PostStopPodSandbox", request)
    }

    async fn pre_create_container_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Result<Response<ContainerResourceHookResponse>, Status> {
        self.container("PreCreateContainer", request)
    }

    async fn pre_start_container_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Result<Response<ContainerResourceHookResponse>, Status> {
        self.container("PreStartContainer", request)
    }

    async fn post_start_container_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Result<Response<ContainerResourceHookResponse>, Status> {
        self.container("PostStartContainer", request)
    }

    async fn post_stop_container_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Result<Response<ContainerResourceHookResponse>, Status> {
        self.container("PostStopContainer", request)
    }

    async fn pre_update_container_resources_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Result<Response<ContainerResourceHookResponse>, Status> {
        self.container("PreUpdateContainerResources", request)
    }
}

/// Serves until `stop` resolves; then the registration and the socket are removed.
pub async fn serve(options: ExampleOptions, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    remove_if_there(&options.socket)?;
    let listener = UnixListener::bind(&options.socket)?;
    let log = options.log.as_deref().map(File::create).transpose()?.map(Mutex::new);
    let service = Service { overrides: options.overrides, log };
    if let Some(file) = &options.register {
        let hooks: Vec<_> = options.hooks.iter().map(String::as_str).collect();
        let socket = std::path::absolute(&options.socket)?;
        let (directory, name) = split(file)?;
        write_registration(directory, name, &registration(&socket, &options.policy, &hooks))?;
    }
    let served = tonic::transport::Server::builder()
        .add_service(RuntimeHookServiceServer::from_arc(Arc::new(service)))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await;
    if let Some(file) = &options.register {
        remove_if_there(file)?;
    }
    remove_if_there(&options.socket)?;
    Ok(served?)
}

fn split(file: &Path) -> anyhow::Result<(&Path, &str)> {
    let directory =
        file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let name = file.file_name().and_then(|name| name.to_str());
    Ok((directory, name.ok_or_else(|| anyhow::anyhow!("{}: not the name of a file", file.display()))?))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
