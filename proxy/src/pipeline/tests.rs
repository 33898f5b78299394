mod asking;
mod faults;
mod records;
mod rules;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use koord_cri::v1;
use koord_hook::v1alpha1 as hook;
use koord_hooks::chain::BuiltIn;
use prost::Message;
use tempfile::TempDir;

use super::*;
use crate::backend_client::BackendClient;
use crate::endpoint::Endpoint;
use crate::registration::{Registration, Registrations, Server, Table};
use crate::testing::{FakeServer, Reply};
use crate::trust::Trust;
use crate::unix_channel::UnixChannel;

const SKIP_KEY: &str = "runtimeproxy.koordinator.sh/skip-hookserver";

const ALL_HOOKS: &str = r#""PreRunPodSandbox","PostStopPodSandbox","PreCreateContainer","PreStartContainer","PostStartContainer","PreUpdateContainerResources","PostStopContainer""#;

/// The sandbox request of the first test vector, whose unknown fields must survive.
const RUN: &str = "0a2b0a090a01701201751a016e32060a01611201313a060a0178120179420b0a092f6b756265706f6473c00c07120472756e639a06027a7a";
const RUN_HOOK_REQUEST: &str =
    "0a090a01701201751a016e120472756e631a060a016112013122060a01781201792a092f6b756265706f6473";
const RUN_ANSWER: &str = "12060a016b1201761a082f6f66666c696e65";
const RUN_PATCHED: &str = "0a320a090a01701201751a016e32060a01611201313a060a0178120179420a0a082f6f66666c696e65c00c073a060a016b120176120472756e639a06027a7a";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

struct Bed {
    directory: TempDir,
    registrations: Arc<Registrations>,
    store: Arc<Store>,
    pipeline: Arc<Pipeline>,
    registry: prometheus_client::registry::Registry,
}

impl Bed {
    fn new() -> Self {
        Self::with(Limits::default(), &[])
    }

    fn with(limits: Limits, skip_namespaces: &[&str]) -> Self {
        Self::of(limits, skip_namespaces, None)
    }

    /// One with the rules and records of `node`.
    fn with_rules(node: &crate::qos::tests::Bed) -> Self {
        Self::of(Limits::default(), &[], Some(node))
    }

    fn of(limits: Limits, skip_namespaces: &[&str], node: Option<&crate::qos::tests::Bed>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = Metrics::register(&mut registry);
        let trust = Trust::of_this_process();
        let registrations =
            Arc::new(Registrations::new(directory.path().join("hookserver.d"), trust, metrics.clone()));
        let store = node.map_or_else(|| Arc::new(Store::new(metrics.clone())), |node| node.store.clone());
        let built_in = node.map(|_| BuiltIn::default());
        let backend: Endpoint =
            directory.path().join("backend.sock").to_str().expect("text").parse().expect("an endpoint");
        let failover = Arc::new(Failover::new(
            BackendClient::new(UnixChannel::new(backend)),
            store.clone(),
            metrics.clone(),
            Vec::new(),
        ));
        let pipeline = Arc::new(Pipeline::new(Parts {
            chain: Arc::new(Chain::new(registrations.clone(), None, built_in)),
            dispatcher: Arc::new(Dispatcher::new(trust, metrics.clone())),
            store: store.clone(),
            failover,
            metrics,
            limits,
            skip: SkipRule {
                key: SKIP_KEY.to_owned(),
                value: "true".to_owned(),
                namespaces: skip_namespaces.iter().map(|name| (*name).to_owned()).collect(),
            },
            qos: node.map(|node| node.qos.clone()),
            failpoints: Failpoints::default(),
        }));
        Self { directory, registrations, store, pipeline, registry }
    }

    fn server(&self, name: &str, hooks: &str, more: &str) -> Server {
        let socket = self.directory.path().join(format!("{name}.sock"));
        let text = format!(r#"{{"remote-endpoint":"{}","runtime-hooks":[{hooks}]{more}}}"#, socket.display());
        Server {
            name: name.to_owned(),
            registration: Registration::parse(text.as_bytes()).expect("a registration"),
        }
    }

    fn register(&self, servers: impl IntoIterator<Item = Server>) {
        self.registrations.replace(Table::of(servers));
        self.pipeline.hooks_changed();
    }

    fn serve(
        &self,
        name: &str,
        handler: impl Fn(&str, Bytes) -> Reply + Send + Sync + 'static,
    ) -> FakeServer {
        FakeServer::serve(&self.directory.path().join(format!("{name}.sock")), handler)
    }

    fn head(method: &str) -> RequestHead {
        RequestHead {
            path: format!("/runtime.v1.RuntimeService/{method}"),
            timeout: None,
            received: Instant::now(),
            peer: 1,
            mode: TapMode::Hold,
        }
    }

    async fn start(&self, head: RequestHead, message: Vec<u8>) -> Before {
        match self.pipeline.start(head, message) {
            Started::Ready(before) => before,
            Started::Pending(before) => before.await,
        }
    }

    /// The whole call, the backend answering success with `response`.
    async fn call(&self, method: &str, message: Vec<u8>, response: &[u8]) -> Verdict {
        let Before { verdict, call } = self.start(Self::head(method), message).await;
        if !matches!(verdict, Verdict::Refuse { .. }) {
            self.finish(call, 0, response).await;
        }
        verdict
    }

    async fn finish(&self, call: CallState, grpc_status: u32, response: &[u8]) {
        let outcome = Outcome { grpc_status, message: Some(response) };
        if let Some(after) = self.pipeline.finish(call, outcome) {
            after.await;
        }
    }

    async fn run_pod(&self, message: Vec<u8>, id: &str) -> Verdict {
        let response = v1::RunPodSandboxResponse { pod_sandbox_id: id.to_owned() };
        self.call("RunPodSandbox", message, &response.encode_to_vec()).await
    }

    async fn create(&self, request: &v1::CreateContainerRequest, id: &str) -> Verdict {
        let response = v1::CreateContainerResponse { container_id: id.to_owned() };
        self.call("CreateContainer", request.encode_to_vec(), &response.encode_to_vec()).await
    }

    fn metric(&self, line: &str) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("encoded");
        text.lines().any(|have| have == line)
    }
}

fn id_request(id: &str) -> Vec<u8> {
    // Every request that names a pod or a container has its id in field 1.
    v1::StartContainerRequest { container_id: id.to_owned() }.encode_to_vec()
}

fn create_request(pod: &str, cgroup_parent: &str) -> v1::CreateContainerRequest {
    v1::CreateContainerRequest {
        pod_sandbox_id: pod.to_owned(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "c".to_owned(), attempt: 1 }),
            envs: vec![v1::KeyValue { key: "A".to_owned(), value: b"1".to_vec() }],
            ..Default::default()
        }),
        sandbox_config: Some(v1::PodSandboxConfig {
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: cgroup_parent.to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

fn update_request(id: &str, cpus: &str) -> Vec<u8> {
    let linux = v1::LinuxContainerResources { cpuset_cpus: cpus.to_owned(), ..Default::default() };
    v1::UpdateContainerResourcesRequest {
        container_id: id.to_owned(),
        linux: Some(linux),
        ..Default::default()
    }
    .encode_to_vec()
}

fn ok(_: &str, _: Bytes) -> Reply {
    Reply::empty()
}

/// Echoes requests as koordlet does.
fn echo(method: &str, message: Bytes) -> Reply {
    if method.contains("PodSandbox") {
        let request = hook::PodSandboxHookRequest::decode(message).expect("a request");
        return Reply::message(&hook::PodSandboxHookResponse {
            labels: request.labels,
            annotations: request.annotations,
            cgroup_parent: request.cgroup_parent,
            resources: request.resources,
        });
    }
    let request = hook::ContainerResourceHookRequest::decode(message).expect("a request");
    Reply::message(&hook::ContainerResourceHookResponse {
        container_annotations: request.container_annotations,
        container_resources: request.container_resources,
        pod_cgroup_parent: request.pod_cgroup_parent,
        container_envs: request.container_envs,
    })
}

fn pod_request(label: &str, annotation: &str) -> Vec<u8> {
    let map = |value: &str| match value {
        "" => Default::default(),
        value => std::collections::BTreeMap::from([(SKIP_KEY.to_owned(), value.to_owned())]),
    };
    v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "p".to_owned(),
                uid: "u".to_owned(),
                namespace: "tenant".to_owned(),
                attempt: 0,
            }),
            labels: map(label),
            annotations: map(annotation),
            ..Default::default()
        }),
        runtime_handler: String::new(),
    }
    .encode_to_vec()
}
