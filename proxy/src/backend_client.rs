//! The proxy's own calls to the runtime: lists and verbose status.
//!
//! These run over one internal connection, apart from those of the clients.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use koord_cri::v1;
use koord_hook::v1alpha1::LinuxContainerResources;
use prost::Message;
use tonic::{Code, Status};

use crate::unix_channel::UnixChannel;

/// Largest answer taken. The runtime's own limit (16 MiB by default) is normally hit first.
const MESSAGE_LIMIT: usize = 64 * 1024 * 1024;

/// A package of the protocol. The messages of both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CriVersion {
    /// `runtime.v1`.
    V1,
    /// `runtime.v1alpha2`, for runtimes of before Kubernetes 1.26.
    V1Alpha2,
}

impl CriVersion {
    /// The package's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "runtime.v1",
            Self::V1Alpha2 => "runtime.v1alpha2",
        }
    }
}

/// A method in both packages.
#[derive(Debug, Clone, Copy)]
struct Method {
    v1: &'static str,
    v1alpha2: &'static str,
}

macro_rules! runtime_method {
    ($name:literal) => {
        Method {
            v1: concat!("/runtime.v1.RuntimeService/", $name),
            v1alpha2: concat!("/runtime.v1alpha2.RuntimeService/", $name),
        }
    };
}

const VERSION: Method = runtime_method!("Version");
const LIST_POD_SANDBOX: Method = runtime_method!("ListPodSandbox");
const STREAM_POD_SANDBOXES: Method = runtime_method!("StreamPodSandboxes");
const POD_SANDBOX_STATUS: Method = runtime_method!("PodSandboxStatus");
const LIST_CONTAINERS: Method = runtime_method!("ListContainers");
const STREAM_CONTAINERS: Method = runtime_method!("StreamContainers");
const CONTAINER_STATUS: Method = runtime_method!("ContainerStatus");
const UPDATE_CONTAINER_RESOURCES: Method = runtime_method!("UpdateContainerResources");
const RUNTIME_CONFIG: Method = runtime_method!("RuntimeConfig");

/// A list of objects and whether it can be told from it that an object does not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing<T> {
    /// The objects.
    pub items: Vec<T>,
    /// False when a part was too large to be sent.
    pub complete: bool,
}

/// The runtime as the proxy itself calls it.
#[derive(Debug)]
pub struct BackendClient {
    channel: UnixChannel,
    version: AtomicU8,
    /// Name and version of the runtime, as of the last probe.
    runtime: Mutex<Option<(String, String)>>,
}

const UNKNOWN: u8 = 0;
const V1: u8 = 1;
const V1ALPHA2: u8 = 2;

impl BackendClient {
    /// Calls through `channel`; nothing is dialled yet.
    pub fn new(channel: UnixChannel) -> Self {
        Self { channel, version: AtomicU8::new(UNKNOWN), runtime: Mutex::default() }
    }

    /// The connection the calls go through.
    pub fn channel(&self) -> &UnixChannel {
        &self.channel
    }

    /// The package the runtime was last found to speak.
    pub fn cri_version(&self) -> Option<CriVersion> {
        match self.version.load(Ordering::Relaxed) {
            V1 => Some(CriVersion::V1),
            V1ALPHA2 => Some(CriVersion::V1Alpha2),
            _ => None,
        }
    }

    /// Asks for name and version, and thereby which package the runtime speaks.
    ///
    /// # Errors
    ///
    /// The runtime's status, of `runtime.v1` if it knows neither package.
    pub async fn probe(&self, within: Duration) -> Result<(CriVersion, v1::VersionResponse), Status> {
        let first = self.raw(VERSION.v1, &v1::VersionRequest::default(), within).await;
        let (version, number, answer) = match first {
            Err(status) if status.code() == Code::Unimplemented => {
                match self.raw(VERSION.v1alpha2, &v1::VersionRequest::default(), within).await {
                    Ok(answer) => (CriVersion::V1Alpha2, V1ALPHA2, answer),
                    Err(_) => return Err(status),
                }
            }
            first => (CriVersion::V1, V1, first?),
        };
        self.version.store(number, Ordering::Relaxed);
        let answer: v1::VersionResponse = decode(&answer)?;
        *self.runtime.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((answer.runtime_name.clone(), answer.runtime_version.clone()));
        Ok((version, answer))
    }

    /// Name and version that the runtime gave itself when it was last asked.
    pub fn runtime_name(&self) -> Option<(String, String)> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All pod sandboxes.
    ///
    /// # Errors
    ///
    /// The runtime's status.
    pub async fn list_pod_sandboxes(&self, within: Duration) -> Result<Listing<v1::PodSandbox>, Status> {
        let states = [v1::PodSandboxState::SandboxReady, v1::PodSandboxState::SandboxNotready];
        let by_state = states.map(|state| v1::ListPodSandboxRequest {
            filter: Some(v1::PodSandboxFilter {
                state: Some(v1::PodSandboxStateValue { state: state.into() }),
                ..Default::default()
            }),
        });
        self.list(
            LIST_POD_SANDBOX,
            STREAM_POD_SANDBOXES,
            &by_state,
            within,
            |answer: v1::ListPodSandboxResponse| answer.items,
            |answer: v1::StreamPodSandboxesResponse| answer.pod_sandboxes,
        )
        .await
    }

    /// The sandbox a container is in, for runtimes whose verbose status does not tell it.
    ///
    /// # Errors
    ///
    /// The runtime's status.
    pub async fn sandbox_of(&self, container_id: &str, within: Duration) -> Result<Option<String>, Status> {
        let filter = v1::ContainerFilter { id: container_id.to_owned(), ..Default::default() };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let answer: v1::ListContainersResponse = self.call(LIST_CONTAINERS, &request, within).await?;
        Ok(answer
            .containers
            .into_iter()
            .find(|container| container.id == container_id)
            .map(|container| container.pod_sandbox_id))
    }

    /// All containers.
    ///
    /// # Errors
    ///
    /// The runtime's status.
    pub async fn list_containers(&self, within: Duration) -> Result<Listing<v1::Container>, Status> {
        let states = [
            v1::ContainerState::ContainerRunning,
            v1::ContainerState::ContainerCreated,
            v1::ContainerState::ContainerUnknown,
            v1::ContainerState::ContainerExited,
        ];
        let by_state = states.map(|state| v1::ListContainersRequest {
            filter: Some(v1::ContainerFilter {
                state: Some(v1::ContainerStateValue { state: state.into() }),
                ..Default::default()
            }),
        });
        self.list(
            LIST_CONTAINERS,
            STREAM_CONTAINERS,
            &by_state,
            within,
            |answer: v1::ListContainersResponse| answer.containers,
            |answer: v1::StreamContainersResponse| answer.containers,
        )
        .await
    }

    /// The verbose status of one sandbox; `None` if there is no such sandbox.
    ///
    /// # Errors
    ///
    /// Any other status of the runtime.
    pub async fn pod_sandbox_status(
        &self,
        id: &str,
        within: Duration,
    ) -> Result<Option<v1::PodSandboxStatusResponse>, Status> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        found(self.call(POD_SANDBOX_STATUS, &request, within).await)
    }

    /// The verbose status of one container; `None` if there is no such container.
    ///
    /// # Errors
    ///
    /// Any other status of the runtime.
    pub async fn container_status(
        &self,
        id: &str,
        within: Duration,
    ) -> Result<Option<v1::ContainerStatusResponse>, Status> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        found(self.call(CONTAINER_STATUS, &request, within).await)
    }

    /// A plain list; if that is too large for a message, the stream; if there is none, state by state.
    async fn list<R, L, S, T>(
        &self,
        list: Method,
        stream: Method,
        by_state: &[R],
        within: Duration,
        of_list: impl Fn(L) -> Vec<T>,
        of_stream: impl Fn(S) -> Vec<T>,
    ) -> Result<Listing<T>, Status>
    where
        R: Message + std::fmt::Debug,
        L: Message + Default,
        S: Message + Default,
    {
        let everything = Nothing {};
        match self.call(list, &everything, within).await {
            Ok(answer) => return Ok(Listing { items: of_list(answer), complete: true }),
            Err(status) if status.code() == Code::ResourceExhausted => {}
            Err(status) => return Err(status),
        }
        tracing::debug!(method = list.v1, "the list is too large for one message");
        let mut items = Vec::new();
        let path = self.path(stream);
        let streamed = self
            .channel
            .server_stream(path, Bytes::new(), MESSAGE_LIMIT, within, |message| {
                items.extend(of_stream(decode(&message)?));
                Ok(())
            })
            .await;
        match streamed {
            Ok(()) => return Ok(Listing { items, complete: true }),
            Err(status) if status.code() == Code::Unimplemented => {}
            Err(status) => return Err(status),
        }
        let mut listing = Listing { items: Vec::new(), complete: true };
        for request in by_state {
            match self.call(list, request, within).await {
                Ok(answer) => listing.items.extend(of_list(answer)),
                Err(status) if status.code() == Code::ResourceExhausted => {
                    tracing::warn!(method = list.v1, ?request, "a list is too large for the runtime to send");
                    listing.complete = false;
                }
                Err(status) => return Err(status),
            }
        }
        Ok(listing)
    }

    /// Sets a container's resources; fields that are 0 or empty stay as they are. A container that is gone is
    /// no error.
    ///
    /// # Errors
    ///
    /// The runtime's status.
    pub async fn update_container_resources(
        &self,
        container_id: &str,
        resources: &LinuxContainerResources,
        within: Duration,
    ) -> Result<(), Status> {
        let linux = v1::LinuxContainerResources {
            cpu_period: resources.cpu_period,
            cpu_quota: resources.cpu_quota,
            cpu_shares: resources.cpu_shares,
            memory_limit_in_bytes: resources.memory_limit_in_bytes,
            oom_score_adj: resources.oom_score_adj,
            cpuset_cpus: resources.cpuset_cpus.clone(),
            cpuset_mems: resources.cpuset_mems.clone(),
            unified: resources.unified.clone(),
            memory_swap_limit_in_bytes: resources.memory_swap_limit_in_bytes,
            ..v1::LinuxContainerResources::default()
        };
        let request = v1::UpdateContainerResourcesRequest {
            container_id: container_id.to_owned(),
            linux: Some(linux),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        let answer = self.call(UPDATE_CONTAINER_RESOURCES, &request, within).await;
        found(answer).map(|_: Option<v1::UpdateContainerResourcesResponse>| ())
    }

    /// The cgroup driver the runtime is configured with; `None` if it does not say (before containerd 2.0 and
    /// CRI-O 1.28).
    ///
    /// # Errors
    ///
    /// The runtime's status.
    pub async fn cgroup_driver(&self, within: Duration) -> Result<Option<v1::CgroupDriver>, Status> {
        let answer: v1::RuntimeConfigResponse =
            match self.call(RUNTIME_CONFIG, &v1::RuntimeConfigRequest::default(), within).await {
                Err(status) if status.code() == Code::Unimplemented => return Ok(None),
                answer => answer?,
            };
        Ok(answer.linux.and_then(|linux| v1::CgroupDriver::try_from(linux.cgroup_driver).ok()))
    }

    async fn call<R: Message, A: Message + Default>(
        &self,
        method: Method,
        request: &R,
        within: Duration,
    ) -> Result<A, Status> {
        if self.cri_version().is_none() {
            self.probe(within).await?;
        }
        match self.raw(self.path(method), request, within).await {
            // Another runtime may have come in the old one's place.
            Err(status) if status.code() == Code::Unimplemented && is_unknown_service(&status) => {
                self.probe(within).await?;
                decode(&self.raw(self.path(method), request, within).await?)
            }
            answer => decode(&answer?),
        }
    }

    fn path(&self, method: Method) -> &'static str {
        match self.cri_version() {
            Some(CriVersion::V1Alpha2) => method.v1alpha2,
            _ => method.v1,
        }
    }

    async fn raw<R: Message>(
        &self,
        path: &'static str,
        request: &R,
        within: Duration,
    ) -> Result<Bytes, Status> {
        self.channel.unary(path, request.encode_to_vec().into(), MESSAGE_LIMIT, within).await
    }
}

/// Every request without fields has this encoding: none.
#[derive(Clone, Copy, PartialEq, Message)]
struct Nothing {}

fn is_unknown_service(status: &Status) -> bool {
    status.message().starts_with("unknown service")
}

fn decode<A: Message + Default>(bytes: &Bytes) -> Result<A, Status> {
    A::decode(bytes.clone()).map_err(|error| Status::internal(format!("cannot decode the answer: {error}")))
}

/// A missing object is an answer, not an error. CRI-O says so with NOT_FOUND too.
fn found<A>(answer: Result<A, Status>) -> Result<Option<A>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
