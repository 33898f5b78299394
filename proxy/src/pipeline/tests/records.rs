//! What is remembered, looked up and told after a call.

use super::*;

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

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn one_line_per_hooked_call_and_nothing_secret_in_it() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let bed = Bed::new();
    let _server = bed.serve("h", echo);
    let _broken = bed.serve("broken", |_, _| Reply::Status(13, "broken"));
    bed.register([bed.server("h", ALL_HOOKS, ""), bed.server("broken", ALL_HOOKS, "")]);
    // Another test's thread may have found the line's place in the code first, when nobody wanted it: once it is known,
    // who wants it is asked again.
    bed.run_pod(pod_request("", "hunter2"), "first").await;
    tracing::callsite::rebuild_interest_cache();
    log.0.lock().expect("lock").clear();
    bed.run_pod(pod_request("", "hunter2"), "sb").await;
    let mut request = create_request("sb", "/kp");
    let config = request.config.as_mut().expect("a config");
    config.envs[0].value = b"hunter2".to_vec();
    config.annotations = [("a".to_owned(), "hunter2".to_owned())].into();
    bed.create(&request, "c").await;
    bed.call("StopContainer", id_request("c"), &[]).await;
    // No hook was asked: no line.
    bed.call("RemoveContainer", id_request("c"), &[]).await;
    let text = String::from_utf8(log.0.lock().expect("lock").clone()).expect("text");
    assert!(!text.contains("hunter2"), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("call hooked")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    for part in [
        "method=\"CreateContainer\"",
        "namespace=\"tenant\"",
        "pod=\"p\"",
        "uid=\"u\"",
        "container=\"c\"",
        "hooks=\"broken/PreCreateContainer=decode h/PreCreateContainer=ok\"",
        "added_us=",
        "patched=false",
        "code=0",
    ] {
        assert!(lines[1].contains(part), "{part} is not in {}", lines[1]);
    }
    assert!(lines[2].contains("h/PostStopContainer=ok"), "{}", lines[2]);
}
