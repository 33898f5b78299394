//! Who is asked, in which order, and what follows from the answers.

use super::*;

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

#[tokio::test]
async fn registrations_take_effect_while_running() {
    let bed = Bed::new();
    std::fs::create_dir(bed.registrations.directory()).expect("created");
    let watching = {
        let (registrations, pipeline) = (bed.registrations.clone(), bed.pipeline.clone());
        tokio::spawn(async move { tokio::join!(registrations.watch(), pipeline.follow_hooks()) })
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

#[tokio::test]
async fn a_registration_that_comes_while_a_request_passes_does_not_apply_to_it() {
    let bed = Bed::new();
    let server = bed.serve("h", |_, _| Reply::Messages(vec![bytes(RUN_ANSWER)]));
    bed.register([bed.server("h", r#""PreRunPodSandbox""#, r#","failure-policy":"Fail""#)]);
    let head = RequestHead { mode: TapMode::Observe, ..Bed::head("RunPodSandbox") };
    let started = bed.pipeline.start(head, bytes(RUN));
    assert!(matches!(started, Started::Ready(Before { verdict: Verdict::Forward, .. })), "{started:?}");
    assert!(server.seen().is_empty());
}
