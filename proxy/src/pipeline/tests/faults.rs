//! Time, damage and cancellation.

use super::*;

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

#[test]
fn nothing_secret_is_printed() {
    let text = format!("{:?}", Verdict::Replace(b"hunter2".to_vec()));
    assert_eq!(text, "Replace(7 bytes)");
}

#[cfg(feature = "failpoints")]
#[tokio::test]
async fn a_fault_inside_stays_inside() {
    let bed = Bed::new();
    for point in ["call-after-backend", "call-committed"] {
        let old = bed.pipeline.parts();
        let pipeline = Arc::new(Pipeline::new(Parts {
            registrations: old.registrations.clone(),
            dispatcher: old.dispatcher.clone(),
            store: old.store.clone(),
            failover: old.failover.clone(),
            metrics: old.metrics.clone(),
            limits: old.limits,
            skip: old.skip.clone(),
            failpoints: Failpoints::parse(&format!("{point}=panic")).expect("failpoints"),
        }));
        let Before { call, .. } = bed.start(Bed::head("RunPodSandbox"), bytes(RUN)).await;
        let response = v1::RunPodSandboxResponse { pod_sandbox_id: point.to_owned() }.encode_to_vec();
        let after = pipeline.finish(call, Outcome { grpc_status: 0, message: Some(&response) });
        assert!(after.is_none());
        assert_eq!(bed.store.pod(point).is_some(), point == "call-committed");
    }
}
