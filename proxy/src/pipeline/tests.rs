use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use koord_cri::v1;
use koord_hook::v1alpha1 as hook;
use prost::Message;
use tempfile::TempDir;

use super::*;
use crate::backend_client::BackendClient;
use crate::endpoint::Endpoint;
use crate::registration::{Registration, Server};
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
        let directory = tempfile::tempdir().expect("a directory");
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = Metrics::register(&mut registry);
        let trust = Trust::of_this_process();
        let registrations =
            Arc::new(Registrations::new(directory.path().join("hookserver.d"), trust, metrics.clone()));
        let store = Arc::new(Store::new(metrics.clone()));
        let backend: Endpoint =
            directory.path().join("backend.sock").to_str().expect("text").parse().expect("an endpoint");
        let failover = Arc::new(Failover::new(
            BackendClient::new(UnixChannel::new(backend)),
            store.clone(),
            metrics.clone(),
            Vec::new(),
        ));
        let pipeline = Arc::new(Pipeline::new(Parts {
            registrations: registrations.clone(),
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
        self.pipeline.registrations_changed();
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

#[tokio::test]
async fn a_sandbox_is_asked_about_patched_and_remembered() {
    let bed = Bed::new();
    let server = bed.serve("h", |_, _| Reply::Messages(vec![bytes(RUN_ANSWER)]));
    bed.register([bed.server("h", r#""PreRunPodSandbox""#, r#","failure-policy":"Fail""#)]);
    assert_eq!(bed.pipeline.mode("/runtime.v1.RuntimeService/RunPodSandbox"), TapMode::Hold);
    let verdict = bed.run_pod(bytes(RUN), "sb1").await;
    assert_eq!(verdict, Verdict::Replace(bytes(RUN_PATCHED)));
    assert_eq!(server.last("PreRunPodSandboxHook").message, bytes(RUN_HOOK_REQUEST));
    let pod = bed.store.pod("sb1").expect("remembered");
    assert_eq!((pod.annotations["k"].as_str(), pod.cgroup_parent.as_str()), ("v", "/offline"));
    assert!(bed.metric("request_patched_total{method=\"RunPodSandbox\"} 1"));
    assert!(bed.metric(
        "hook_requests_total{server=\"h\",hook=\"PreRunPodSandbox\",result=\"ok\",policy=\"Fail\"} 1"
    ));
}

#[tokio::test]
async fn without_a_matching_registration_nobody_is_asked() {
    let bed = Bed::new();
    let server = bed.serve("h", ok);
    for hooks in ["", r#""PreUpdateContainerResources""#] {
        bed.register([bed.server("h", hooks, r#","failure-policy":"Fail""#)]);
        assert_eq!(bed.pipeline.mode("/runtime.v1.RuntimeService/RunPodSandbox"), TapMode::Observe);
        let started = bed.pipeline.start(Bed::head("RunPodSandbox"), bytes(RUN));
        assert!(matches!(started, Started::Ready(Before { verdict: Verdict::Forward, .. })), "{started:?}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn the_policy_decides_what_an_error_does() {
    let bed = Bed::new();
    let _server = bed.serve("h", |_, _| Reply::Status(3, "bad"));
    bed.register([bed.server("h", r#""PreRunPodSandbox""#, r#","failure-policy":"Fail""#)]);
    assert_eq!(
        bed.run_pod(bytes(RUN), "sb1").await,
        Verdict::Refuse {
            code: 2,
            message: "hook server err: rpc error: code = InvalidArgument desc = bad".to_owned()
        }
    );
    assert!(bed.store.is_empty());
    assert!(bed.metric(
        "hook_requests_total{server=\"h\",hook=\"PreRunPodSandbox\",result=\"error\",policy=\"Fail\"} 1"
    ));
    for policy in ["Ignore", "", "fail", "FAIL"] {
        bed.register([bed.server("h", r#""PreRunPodSandbox""#, &format!(r#","failure-policy":"{policy}""#))]);
        assert_eq!(bed.run_pod(bytes(RUN), "sb1").await, Verdict::Forward, "{policy}");
    }
    assert_eq!(bed.store.pod("sb1").expect("remembered").cgroup_parent, "/kubepods");
    assert!(bed.metric("hook_fail_open_total{hook=\"PreRunPodSandbox\",reason=\"error\"} 4"));
}

#[tokio::test]
async fn a_dead_socket_reads_as_in_koordinator() {
    let bed = Bed::new();
    bed.register([bed.server("h", r#""PreRunPodSandbox""#, r#","failure-policy":"Fail""#)]);
    let Verdict::Refuse { code, message } = bed.run_pod(bytes(RUN), "sb1").await else { panic!("refused") };
    assert_eq!(code, 2);
    let start = "hook server err: rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix ";
    assert!(message.starts_with(start), "{message}");
}

#[tokio::test]
async fn garbage_and_giants_are_errors_the_wrong_kind_is_not() {
    let bed = Bed::new();
    let reply = Arc::new(Mutex::new(Reply::empty()));
    let replies = reply.clone();
    let _server = bed.serve("h", move |_, _| replies.lock().expect("lock").clone());
    bed.store.put_pod("p".to_owned(), Default::default());
    bed.register([bed.server("h", r#""PreCreateContainer""#, r#","failure-policy":"Fail""#)]);
    let answer = |bytes: Vec<u8>| *reply.lock().expect("lock") = Reply::Messages(vec![bytes]);

    answer(vec![0xff, 0xff]);
    let verdict = bed.create(&create_request("p", "/kp"), "c").await;
    let Verdict::Refuse { code: 2, message } = verdict else { panic!("{verdict:?}") };
    assert!(
        message.starts_with("hook server err: rpc error: code = Internal desc = grpc: failed to unmarshal"),
        "{message}"
    );
    assert!(bed.metric(
        "hook_requests_total{server=\"h\",hook=\"PreCreateContainer\",result=\"error\",policy=\"Fail\"} 1"
    ));

    answer(vec![0; 4 * 1024 * 1024 + 1]);
    let verdict = bed.create(&create_request("p", "/kp"), "c").await;
    let Verdict::Refuse { code: 2, message } = verdict else { panic!("{verdict:?}") };
    assert!(message.contains("received message larger than max (4194305 vs. 4194304)"), "{message}");

    // An answer about a pod, where one about a container belongs.
    answer(
        hook::PodSandboxHookResponse {
            annotations: [("k".to_owned(), "v".to_owned())].into(),
            ..Default::default()
        }
        .encode_to_vec(),
    );
    assert_eq!(bed.create(&create_request("p", "/kp"), "c").await, Verdict::Forward);
    assert!(bed.store.container("c").expect("remembered").annotations.is_empty());
}

#[tokio::test]
async fn servers_are_asked_in_order_each_seeing_what_came_before() {
    let bed = Bed::new();
    let annotate = |key: &'static str| {
        move |_: &str, message: Bytes| {
            let request = hook::PodSandboxHookRequest::decode(message).expect("a request");
            let seen = request.annotations.keys().cloned().collect::<String>();
            Reply::message(&hook::PodSandboxHookResponse {
                annotations: [(key.to_owned(), seen)].into(),
                ..Default::default()
            })
        }
    };
    let _a = bed.serve("a", annotate("a"));
    let _b = bed.serve("b", annotate("b"));
    let _c = bed.serve("c", |_, _| Reply::Status(13, "broken"));
    let _d = bed.serve("d", annotate("d"));
    let hooks = r#""PreRunPodSandbox""#;
    bed.register([
        bed.server("a", hooks, r#","priority":2"#),
        bed.server("b", hooks, ""),
        bed.server("c", hooks, ""),
        bed.server("d", hooks, r#","priority":-1"#),
    ]);
    bed.run_pod(bytes(RUN), "sb").await;
    let annotations = bed.store.pod("sb").expect("remembered").annotations.clone();
    let expected = [("a", "bdx"), ("b", "dx"), ("d", "x"), ("x", "y")];
    assert_eq!(annotations, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}

#[tokio::test]
async fn a_failure_under_fail_stops_the_chain() {
    let bed = Bed::new();
    let _a = bed.serve("a", |_, _| Reply::Status(13, "broken"));
    let b = bed.serve("b", ok);
    bed.register([
        bed.server("a", r#""PreRunPodSandbox""#, r#","failure-policy":"Fail""#),
        bed.server("b", r#""PreRunPodSandbox""#, ""),
    ]);
    assert!(matches!(bed.run_pod(bytes(RUN), "sb").await, Verdict::Refuse { .. }));
    assert!(b.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hung_server_costs_two_seconds_or_half_of_what_is_left() {
    for (timeout, milliseconds) in
        [(Some(240_000), 2_000), (None, 2_000), (Some(1_000), 500), (Some(3_000), 1_500)]
    {
        let bed = Bed::new();
        let server = bed.serve("h", |_, _| Reply::Hang);
        bed.register([bed.server("h", r#""PreRunPodSandbox""#, "")]);
        let head = RequestHead { timeout: timeout.map(Duration::from_millis), ..Bed::head("RunPodSandbox") };
        let started = tokio::time::Instant::now();
        let before = bed.start(head, bytes(RUN)).await;
        assert_eq!(before.verdict, Verdict::Forward);
        let elapsed = started.elapsed();
        let expected = Duration::from_millis(milliseconds);
        assert!(elapsed.abs_diff(expected) < Duration::from_millis(100), "{timeout:?}: {elapsed:?}");
        assert!(server.last("PreRunPodSandboxHook").timeout.is_some());
        assert!(bed.metric("hook_fail_open_total{hook=\"PreRunPodSandbox\",reason=\"timeout\"} 1"));
    }
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_refused() {
    let bed = Bed::new();
    let server = bed.serve("h", ok);
    bed.register([bed.server("h", r#""PreRunPodSandbox""#, r#","failure-policy":"Fail""#)]);
    let head = RequestHead { timeout: Some(Duration::ZERO), ..Bed::head("RunPodSandbox") };
    let before = bed.start(head, bytes(RUN)).await;
    assert_eq!(before.verdict, Verdict::Refuse { code: 4, message: "context deadline exceeded".to_owned() });
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn registrations_take_effect_while_running() {
    let bed = Bed::new();
    std::fs::create_dir(bed.registrations.directory()).expect("created");
    let watching = {
        let (registrations, pipeline) = (bed.registrations.clone(), bed.pipeline.clone());
        tokio::spawn(async move { tokio::join!(registrations.watch(), pipeline.follow_registrations()) })
    };
    let server = bed.serve("h", ok);
    let file = bed.registrations.directory().join("a.json");
    std::fs::write(&file, "{").expect("written");
    assert_eq!(bed.run_pod(bytes(RUN), "sb").await, Verdict::Forward);
    let text = format!(
        r#"{{"Remote-Endpoint":"{}/h.sock","runtime-hooks":["PreRemoveRunPodSandbox","Foo","PreRunPodSandbox"]}}"#,
        bed.directory.path().display()
    );
    std::fs::write(&file, text).expect("written");
    let mut changes = bed.registrations.changes();
    let within = Duration::from_secs(1);
    let active = async {
        while bed.pipeline.mode("/runtime.v1.RuntimeService/RunPodSandbox") != TapMode::Hold {
            changes.changed().await.expect("the registrations live");
        }
    };
    tokio::time::timeout(within, active).await.expect("in force within a second");
    bed.run_pod(bytes(RUN), "sb").await;
    assert_eq!(server.methods(), ["PreRunPodSandboxHook"]);
    std::fs::remove_file(&file).expect("removed");
    let inactive = async {
        while bed.pipeline.mode("/runtime.v1.RuntimeService/RunPodSandbox") != TapMode::Observe {
            changes.changed().await.expect("the registrations live");
        }
    };
    tokio::time::timeout(within, inactive).await.expect("out of force within a second");
    while bed.pipeline.parts().dispatcher.connections() != 0 {
        tokio::task::yield_now().await;
    }
    watching.abort();
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

#[tokio::test]
async fn a_labelled_pod_is_exempt_in_all_its_calls() {
    let bed = Bed::new();
    let server = bed.serve("h", ok);
    bed.register([bed.server("h", ALL_HOOKS, r#","failure-policy":"Fail""#)]);
    assert_eq!(bed.run_pod(pod_request("true", ""), "sb").await, Verdict::Forward);
    assert_eq!(bed.create(&create_request("sb", ""), "c").await, Verdict::Forward);
    bed.call("StartContainer", id_request("c"), &[]).await;
    assert_eq!(bed.call("UpdateContainerResources", update_request("c", "0-1"), &[]).await, Verdict::Forward);
    bed.call("StopContainer", id_request("c"), &[]).await;
    bed.call("StopPodSandbox", id_request("sb"), &[]).await;
    assert_eq!(server.methods(), [""; 0]);
    // The records are kept all the same.
    let container = bed.store.container("c").expect("remembered");
    assert_eq!(container.resources.as_ref().map(|r| r.cpuset_cpus.as_str()), Some("0-1"));
    assert!(bed.metric("intercept_bypassed_total{method=\"StopPodSandbox\",reason=\"skip_label\"} 1"));

    for (label, annotation) in [("True", ""), ("1", ""), ("", "true")] {
        let before = server.seen().len();
        bed.run_pod(pod_request(label, annotation), "sb2").await;
        assert_eq!(server.seen().len(), before + 1, "{label:?} {annotation:?}");
    }
}

#[tokio::test]
async fn the_label_counts_in_the_named_namespaces_only() {
    for (namespaces, asked) in [(&["kube-system"][..], 1), (&["kube-system", "tenant"][..], 0)] {
        let bed = Bed::with(Limits::default(), namespaces);
        let server = bed.serve("h", ok);
        bed.register([bed.server("h", ALL_HOOKS, "")]);
        bed.run_pod(pod_request("true", ""), "sb").await;
        assert_eq!(server.seen().len(), asked);
    }
}

#[tokio::test]
async fn calls_about_unknown_objects_pass_without_hooks() {
    let bed = Bed::new();
    let server = bed.serve("h", ok);
    let backend = bed.serve("backend", |method, _| match method {
        "Version" => Reply::empty(),
        _ => Reply::Status(5, "not found"),
    });
    bed.register([bed.server("h", ALL_HOOKS, r#","failure-policy":"Fail""#)]);
    for method in ["StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"] {
        let started = bed.pipeline.start(Bed::head(method), id_request("6c1a"));
        let Started::Ready(Before { verdict: Verdict::Forward, call }) = started else {
            panic!("{method} waits: {started:?}")
        };
        bed.finish(call, 0, &[]).await;
    }
    assert!(backend.seen().is_empty(), "stops are not looked up");
    // The others are looked up first.
    for (method, message) in [
        ("StartContainer", id_request("6c1a")),
        ("UpdateContainerResources", update_request("6c1a", "0")),
        ("CreateContainer", create_request("6c1a", "/kp").encode_to_vec()),
    ] {
        let before = bed.start(Bed::head(method), message).await;
        assert_eq!(before.verdict, Verdict::Forward, "{method}");
        assert!(
            bed.metric(&format!("intercept_bypassed_total{{method=\"{method}\",reason=\"unknown_id\"}} 1"))
        );
    }
    assert!(backend.methods().contains(&"ContainerStatus".to_owned()));
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_stop_is_told_once_after_it_succeeded() {
    let bed = Bed::new();
    let server = bed.serve("h", ok);
    bed.register([bed.server("h", ALL_HOOKS, r#","failure-policy":"Fail""#)]);
    bed.run_pod(bytes(RUN), "sb").await;
    bed.create(&create_request("sb", "/kubepods"), "c").await;
    let count = |method: &str| server.methods().iter().filter(|seen| *seen == method).count();
    for (method, id, hook) in
        [("StopContainer", "c", "PostStopContainerHook"), ("StopPodSandbox", "sb", "PostStopPodSandboxHook")]
    {
        let Before { verdict, call } = bed.start(Bed::head(method), id_request(id)).await;
        assert_eq!(verdict, Verdict::Forward);
        bed.finish(call, 4, &[]).await;
        assert_eq!(count(hook), 0, "{method} failed");
        bed.call(method, id_request(id), &[]).await;
        assert_eq!(count(hook), 1, "{method} succeeded");
        bed.call(method, id_request(id), &[]).await;
        assert_eq!(count(hook), 1, "{method} again");
    }
    let told: hook::ContainerResourceHookRequest = server.last("PostStopContainerHook").decode();
    assert_eq!(told.container_meta.map(|meta| meta.id).as_deref(), Some("c"));
    assert_eq!(told.container_envs["A"], "1");
    assert_eq!(bed.store.len(), (1, 1));
    bed.call("RemoveContainer", id_request("c"), &[]).await;
    assert_eq!(bed.store.len(), (1, 0));
    bed.call("RemovePodSandbox", id_request("sb"), &[]).await;
    assert!(bed.store.is_empty());
}

#[tokio::test]
async fn hooks_after_a_call_cannot_fail_it() {
    let bed = Bed::new();
    let server = bed.serve("h", |_, _| Reply::Status(13, "broken"));
    bed.register([bed.server(
        "h",
        r#""PostStartContainer","PostStopContainer""#,
        r#","failure-policy":"Fail""#,
    )]);
    bed.store.put_pod("p".to_owned(), Default::default());
    let record = koord_intercept::ContainerRecord { pod_id: "p".to_owned(), ..Default::default() };
    bed.store.put_container("c".to_owned(), record);
    // Only hooks after the call: the request does not wait.
    assert_eq!(bed.pipeline.mode("/runtime.v1.RuntimeService/StartContainer"), TapMode::Observe);
    assert_eq!(bed.call("StartContainer", id_request("c"), &[]).await, Verdict::Forward);
    assert_eq!(bed.call("StopContainer", id_request("c"), &[]).await, Verdict::Forward);
    assert_eq!(server.methods(), ["PostStartContainerHook", "PostStopContainerHook"]);
    assert!(bed.store.container("c").expect("known").stopped.is_some());
    assert!(bed.metric("hook_fail_open_total{hook=\"PostStopContainer\",reason=\"decode\"} 1"));
}

#[tokio::test]
async fn containers_follow_their_pod_to_where_a_hook_moved_it() {
    let bed = Bed::new();
    let server = bed.serve("h", |_, _| Reply::Messages(vec![bytes(RUN_ANSWER)]));
    bed.register([bed.server("h", r#""PreRunPodSandbox""#, "")]);
    let path = "/runtime.v1.RuntimeService/CreateContainer";
    assert_eq!(bed.pipeline.mode(path), TapMode::Observe);
    bed.run_pod(bytes(RUN), "sb").await;
    assert_eq!(bed.pipeline.mode(path), TapMode::Hold);
    let request = create_request("sb", "/kubepods");
    // Nobody is to be asked, so nothing is waited for.
    let Started::Ready(before) = bed.pipeline.start(Bed::head("CreateContainer"), request.encode_to_vec())
    else {
        panic!("it waits")
    };
    let Verdict::Replace(patched) = before.verdict else { panic!("{:?}", before.verdict) };
    let patched = v1::CreateContainerRequest::decode(&patched[..]).expect("a request");
    assert_eq!(patched, create_request("sb", "/offline"));
    assert_eq!(server.seen().len(), 1);
    // Also after the registration is gone.
    bed.register([]);
    assert_eq!(bed.pipeline.mode(path), TapMode::Hold);
    bed.call("RemovePodSandbox", id_request("sb"), &[]).await;
    assert_eq!(bed.pipeline.mode(path), TapMode::Observe);
}

#[tokio::test]
async fn an_update_of_a_container_from_before_the_restart_is_told_in_full() {
    let bed = Bed::new();
    let server = bed.serve("h", echo);
    let _backend = bed.serve("backend", |method, _| match method {
        "Version" => Reply::message(&v1::VersionResponse::default()),
        "ContainerStatus" => Reply::message(&v1::ContainerStatusResponse {
            status: Some(v1::ContainerStatus {
                id: "c".to_owned(),
                resources: Some(v1::ContainerResources {
                    linux: Some(v1::LinuxContainerResources {
                        cpu_period: 100_000,
                        cpu_quota: 200_000,
                        cpu_shares: 2048,
                        memory_limit_in_bytes: 1 << 30,
                        ..Default::default()
                    }),
                    windows: None,
                }),
                ..Default::default()
            }),
            info: [("info".to_owned(), r#"{"sandboxID":"p"}"#.to_owned())].into(),
        }),
        "PodSandboxStatus" => Reply::message(&v1::PodSandboxStatusResponse {
            status: Some(v1::PodSandboxStatus { id: "p".to_owned(), ..Default::default() }),
            ..Default::default()
        }),
        _ => Reply::unimplemented(),
    });
    bed.register([bed.server("h", r#""PreUpdateContainerResources""#, "")]);
    let verdict = bed.call("UpdateContainerResources", update_request("c", "0-1"), &[]).await;
    let told: hook::ContainerResourceHookRequest = server.last("PreUpdateContainerResourcesHook").decode();
    let expected = hook::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 200_000,
        cpu_shares: 2048,
        memory_limit_in_bytes: 1 << 30,
        cpuset_cpus: "0-1".to_owned(),
        ..Default::default()
    };
    assert_eq!(told.container_resources, Some(expected.clone()));
    let Verdict::Replace(sent) = verdict else { panic!("{verdict:?}") };
    let sent = v1::UpdateContainerResourcesRequest::decode(&sent[..]).expect("a request");
    assert_eq!(sent.linux.map(|linux| linux.cpu_quota), Some(200_000));
    assert_eq!(bed.store.container("c").expect("remembered").resources, Some(expected));
}

#[tokio::test]
async fn a_resized_pod_is_told_with_its_next_container() {
    let bed = Bed::new();
    let server = bed.serve("h", ok);
    bed.register([bed.server("h", r#""PreCreateContainer""#, "")]);
    bed.store.put_pod("s".to_owned(), Default::default());
    let resize = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: "s".to_owned(),
        resources: Some(v1::LinuxContainerResources { cpu_shares: 4096, ..Default::default() }),
        ..Default::default()
    }
    .encode_to_vec();
    assert_eq!(bed.pipeline.mode("/runtime.v1.RuntimeService/UpdatePodSandboxResources"), TapMode::Observe);
    let Before { call, .. } = bed.start(Bed::head("UpdatePodSandboxResources"), resize.clone()).await;
    bed.finish(call, 12, &[]).await;
    assert_eq!(bed.store.pod("s").expect("known").resources, None);
    bed.call("UpdatePodSandboxResources", resize, &[]).await;
    bed.create(&create_request("s", "/kp"), "c").await;
    let told: hook::ContainerResourceHookRequest = server.last("PreCreateContainerHook").decode();
    assert_eq!(told.pod_resources.map(|resources| resources.cpu_shares), Some(4096));
}

#[tokio::test]
async fn a_restored_pod_is_hooked_like_a_new_one() {
    let bed = Bed::new();
    let server = bed.serve("h", |method, message| {
        if method == "PreRunPodSandboxHook" {
            return Reply::Messages(vec![bytes(RUN_ANSWER)]);
        }
        let request = hook::ContainerResourceHookRequest::decode(message).expect("a request");
        let shares = if request.container_meta.is_some_and(|meta| meta.name == "one") { 11 } else { 22 };
        Reply::message(&hook::ContainerResourceHookResponse {
            container_resources: Some(hook::LinuxContainerResources {
                cpu_shares: shares,
                ..Default::default()
            }),
            ..Default::default()
        })
    });
    bed.register([bed.server("h", r#""PreRunPodSandbox","PreCreateContainer""#, "")]);
    let config = |name: &str| v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
        ..Default::default()
    };
    let run = v1::RunPodSandboxRequest::decode(&bytes(RUN)[..]).expect("a request");
    let request = v1::RestorePodRequest {
        config: run.config,
        runtime_handler: run.runtime_handler,
        container_configs: vec![config("one"), config("two")],
        ..Default::default()
    };
    let response = v1::RestorePodResponse {
        pod_sandbox_id: "sb".to_owned(),
        restored_containers: vec![
            v1::RestoredContainer { name: "two".to_owned(), container_id: "c2".to_owned() },
            v1::RestoredContainer { name: "one".to_owned(), container_id: "c1".to_owned() },
        ],
    };
    let verdict = bed.call("RestorePod", request.encode_to_vec(), &response.encode_to_vec()).await;
    let Verdict::Replace(sent) = verdict else { panic!("{verdict:?}") };
    let sent = v1::RestorePodRequest::decode(&sent[..]).expect("a request");
    let shares = |config: &v1::ContainerConfig| {
        config.linux.as_ref().and_then(|l| l.resources.as_ref()).map(|r| r.cpu_shares)
    };
    assert_eq!(sent.container_configs.iter().map(shares).collect::<Vec<_>>(), [Some(11), Some(22)]);
    assert_eq!(
        server.methods(),
        ["PreRunPodSandboxHook", "PreCreateContainerHook", "PreCreateContainerHook"]
    );
    assert_eq!(bed.store.pod("sb").expect("remembered").cgroup_parent, "/offline");
    let stored = |id: &str| {
        let container = bed.store.container(id).expect("remembered");
        (container.metadata.name.clone(), container.resources.as_ref().map(|r| r.cpu_shares))
    };
    assert_eq!(stored("c1"), ("one".to_owned(), Some(11)));
    assert_eq!(stored("c2"), ("two".to_owned(), Some(22)));
}

#[tokio::test]
async fn updates_of_one_container_follow_each_other() {
    let bed = Bed::new();
    let _server = bed.serve("h", echo);
    bed.register([bed.server("h", r#""PreUpdateContainerResources""#, "")]);
    bed.store.put_pod("p".to_owned(), Default::default());
    for id in ["c", "other"] {
        let record = koord_intercept::ContainerRecord { pod_id: "p".to_owned(), ..Default::default() };
        bed.store.put_container(id.to_owned(), record);
    }
    let head = || Bed::head("UpdateContainerResources");
    let first = bed.start(head(), update_request("c", "0")).await;
    let second_head = head();
    let pipeline = bed.pipeline.clone();
    let begun = Arc::new(AtomicBool::new(false));
    let done = begun.clone();
    let second = tokio::spawn(async move {
        let Started::Pending(before) = pipeline.start(second_head, update_request("c", "1")) else {
            panic!("it does not wait")
        };
        let before = before.await;
        done.store(true, Ordering::SeqCst);
        before
    });
    // Another container waits for nobody, and neither does a stop of this one.
    bed.call("UpdateContainerResources", update_request("other", "7"), &[]).await;
    let stop = bed.pipeline.start(Bed::head("StopContainer"), id_request("c"));
    assert!(matches!(stop, Started::Ready(_)));
    assert!(!begun.load(Ordering::SeqCst));
    bed.finish(first.call, 0, &[]).await;
    let second = second.await.expect("ran");
    bed.finish(second.call, 0, &[]).await;
    let cpus = bed.store.container("c").expect("known").resources.clone().expect("resources").cpuset_cpus;
    assert_eq!(cpus, "1");
}

#[tokio::test]
async fn a_cancelled_call_frees_its_container() {
    let bed = Bed::new();
    let _server = bed.serve("h", |_, _| Reply::Hang);
    bed.register([bed.server("h", r#""PreStartContainer""#, "")]);
    bed.store.put_pod("p".to_owned(), Default::default());
    let record = koord_intercept::ContainerRecord { pod_id: "p".to_owned(), ..Default::default() };
    bed.store.put_container("c".to_owned(), record);
    let started = bed.pipeline.start(Bed::head("StartContainer"), id_request("c"));
    assert!(matches!(started, Started::Pending(_)));
    assert!(matches!(bed.store.order("c"), Ordered::Waiting(_)));
    drop(started);
    assert!(matches!(bed.store.order("c"), Ordered::Ready(_)));
}

#[tokio::test]
async fn what_cannot_be_decoded_passes_as_it_came() {
    let bed = Bed::new();
    let server = bed.serve("h", ok);
    bed.register([bed.server("h", ALL_HOOKS, r#","failure-policy":"Fail""#)]);
    for method in CriMethod::ALL {
        let started = bed.pipeline.start(Bed::head(method.as_str()), vec![0x0a, 0x7f]);
        let Started::Ready(Before { verdict, call }) = started else { panic!("{method} waits") };
        assert_eq!(verdict, Verdict::Forward, "{method}");
        bed.finish(call, 0, &[0xff]).await;
        assert!(bed.metric(&format!("intercept_bypassed_total{{method=\"{method}\",reason=\"decode\"}} 1")));
    }
    assert!(server.seen().is_empty());
    assert!(bed.store.is_empty());
}

#[tokio::test]
async fn a_response_that_cannot_be_read_is_not_remembered() {
    let bed = Bed::new();
    for response in [None, Some(&[0x0a, 0x7f][..]), Some(&[][..])] {
        let Before { call, .. } = bed.start(Bed::head("RunPodSandbox"), bytes(RUN)).await;
        let after = bed.pipeline.finish(call, Outcome { grpc_status: 0, message: response });
        assert!(after.is_none());
    }
    assert!(bed.store.is_empty());
}

#[tokio::test]
async fn other_paths_pass() {
    let bed = Bed::new();
    bed.register([bed.server("h", ALL_HOOKS, "")]);
    for path in
        ["/runtime.v1.RuntimeService/Version", "/foo.v9.Bar/Baz", "/runtime.v1.ImageService/PullImage", ""]
    {
        assert_eq!(bed.pipeline.mode(path), TapMode::Pass, "{path}");
    }
    assert_eq!(bed.pipeline.mode("/runtime.v1alpha2.RuntimeService/RunPodSandbox"), TapMode::Hold);
    let head = RequestHead { path: "/foo.v9.Bar/Baz".to_owned(), ..Bed::head("") };
    assert!(matches!(
        bed.pipeline.start(head, Vec::new()),
        Started::Ready(Before { verdict: Verdict::Forward, .. })
    ));
}

#[test]
fn nothing_secret_is_printed() {
    let text = format!("{:?}", Verdict::Replace(b"hunter2".to_vec()));
    assert_eq!(text, "Replace(7 bytes)");
}
