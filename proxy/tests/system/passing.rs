//! Calls that pass: what one end says is what the other end hears.

use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_cri::v1;
use koord_testing::client::{Authority, CallHead, RawClient, runtime_path};
use koord_testing::frame::{code, setting};
use koord_testing::harness::{Place, Proxy};
use koord_testing::hooks::Script;
use koord_testing::peer::{Answer, Coding, Event, Fields, Grant, PeerOptions, field, fields};
use koord_testing::runtime::{Ending, FakeRuntime, Reply, empty_answers, unary};
use koord_testing::wait::{LIMIT, until_true};
use prost::Message;

use crate::{Bed, V1_REQUEST, V2_HOOK_RESPONSE, V2_REQUEST, hex, options};

/// V25: a bidirectional stream of an unknown service, its metadata and its error details.
#[test]
fn an_unknown_bidirectional_call_passes_with_all_its_metadata() {
    let details = [0, 0xff, 0x80, b'x'];
    let mut trailers = fields(&[("grpc-status", "9"), ("x-a", "1"), ("x-a", "2")]);
    trailers.push((b"grpc-status-details-bin".to_vec(), b"CAkSAm5v".to_vec()));
    trailers.push((b"x-raw".to_vec(), details.to_vec()));
    let head =
        fields(&[(":status", "200"), ("content-type", "application/grpc"), ("x-head", "a"), ("x-head", "b")]);
    let (sent_head, sent_trailers) = (head.clone(), trailers.clone());
    let bed = Bed::with(
        Arc::new(move |call| {
            if call.path != "/foo.v9.Bar/Baz" {
                call.reply(|_| Reply::ok([]));
                return;
            }
            call.stream().send_headers(&sent_head, false);
            for _ in 0..3 {
                // Each message is answered before the next one is sent.
                let Some(Event::Data { bytes, .. }) = call.next(LIMIT) else { return };
                call.stream().send_data(&bytes, false).unwrap();
            }
            if let Some(Event::Data { end: true, .. }) = call.next(LIMIT) {
                call.stream().send_headers(&sent_trailers, true);
            }
        }),
        options(),
    );
    let client = bed.proxy.client();
    let request = CallHead::new("/foo.v9.Bar/Baz")
        .timeout("119999m")
        .field("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .field("x-data-bin", "AP+A")
        .field("x-twice", "1")
        .field("x-twice", "2");
    let stream = client.open(&request);
    let mut heard_head = Fields::new();
    for number in 0..3_u8 {
        stream.send_message(&[number; 5], false).unwrap();
        if number == 0 {
            let Some(Event::Headers { fields, end: false }) = stream.next(LIMIT) else { panic!("no head") };
            heard_head = fields;
        }
        let expected = [&[0, 0, 0, 0, 5][..], &[number; 5]].concat();
        assert_eq!(stream.next(LIMIT), Some(Event::Data { bytes: expected, end: false }));
    }
    stream.send_data(&[], true).unwrap();
    assert_eq!(stream.next(LIMIT), Some(Event::Headers { fields: trailers, end: true }));
    assert_eq!(heard_head, head);
    assert_eq!(bed.last("Baz").head, request.fields());
}

/// V26, first half: large answers and the runtime's own limit.
#[test]
fn large_answers_and_the_runtimes_limit_pass() {
    let large: Vec<u8> = (0..12_u32 << 20).map(|number| number.to_le_bytes()[1]).collect();
    let sent = large.clone();
    let bed = Bed::with(
        unary(move |call, _| match call.method() {
            "ListImages" => Reply::ok(sent.clone()),
            "ExecSync" => Reply::error(8, "trying%20to%20send%20message%20larger%20than%20max"),
            _ => Reply::ok([]),
        }),
        options(),
    );
    let client = bed.proxy.client();
    let heard = client.call(&CallHead::new("/runtime.v1.ImageService/ListImages"), b"").expect_ok();
    assert!(heard == large, "{} bytes", heard.len());
    let refused = client.cri("ExecSync", b"");
    assert_eq!(refused.status(), Some(8));
    assert_eq!(refused.status_message(), "trying%20to%20send%20message%20larger%20than%20max");
    assert_eq!(refused.trailers, None, "a trailers-only answer stays one");
}

/// V26, second half: a request above the cap is relayed without a hook and counted.
#[test]
fn a_request_above_the_cap_passes_unhooked_and_is_counted() {
    let bed = Bed::with(empty_answers(), options());
    let hooks = bed.hook_server("echo", Script::Echo, "Fail", &["PreCreateContainer"]);
    // 40 MiB: above the default cap of 32 MiB.
    let config = v1::ContainerConfig { log_path: "x".repeat(40 << 20), ..Default::default() };
    let request =
        v1::CreateContainerRequest { pod_sandbox_id: "p".into(), config: Some(config), sandbox_config: None };
    let message = request.encode_to_vec();
    bed.proxy.client().cri("CreateContainer", &message).expect_ok();
    assert!(bed.last("CreateContainer").message() == message);
    assert_eq!(hooks.calls("PreCreateContainer").len(), 0);
    let labels = ["method=\"CreateContainer\"", "reason=\"size\""];
    until_true("the bypass to be counted", || {
        bed.proxy.metric("koord_runtime_proxy_intercept_bypassed_total", &labels) == 1.0
    });
}

/// V27: every spelling of `:authority`, on passing and on held calls.
#[test]
fn any_authority_is_served() {
    let bed = Bed::with(empty_answers(), options());
    let hooks = bed.hook_server("fixed", Script::Bytes(hex(V2_HOOK_RESPONSE)), "Fail", &["PreRunPodSandbox"]);
    let authorities = [
        Authority::Text("/run/x.sock".into()),
        Authority::Text("%2Frun%2Fx.sock".into()),
        Authority::Text(String::new()),
        Authority::Missing,
        Authority::Localhost,
    ];
    for (number, authority) in authorities.into_iter().enumerate() {
        let client = bed.proxy.client();
        let version = CallHead::new(runtime_path("Version")).authority(authority.clone());
        client.call(&version, b"").expect_ok();
        let run = CallHead::new(runtime_path("RunPodSandbox")).authority(authority.clone());
        client.call(&run, &hex(V1_REQUEST)).expect_ok();
        assert_eq!(hooks.calls("PreRunPodSandbox").len(), number + 1, "{authority:?}");
        assert_eq!(bed.last("RunPodSandbox").message(), hex(V2_REQUEST), "{authority:?}");
    }
}

/// Peers with small windows, padding, cut header blocks and writes of a few bytes.
#[test]
fn awkward_peers_are_served_alike() {
    let body: Vec<u8> = (0..300_000_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
    let place = Place::new().unwrap();
    let server = PeerOptions {
        settings: vec![(setting::INITIAL_WINDOW_SIZE, 1_000)],
        connection_window: 65_535,
        grant: Grant::AtOnce,
        padding: Some(255),
        header_fragment: Some(5),
        ..PeerOptions::default()
    };
    let runtime =
        FakeRuntime::start_with(place.backend(), server, unary(|_, message| Reply::ok(message))).unwrap();
    let proxy = Proxy::start_in(place, options()).unwrap();
    let bed = Bed { proxy, runtime };
    let config = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 0 }),
        log_path: String::from_utf8(body.iter().map(|byte| byte % 64 + 32).collect()).unwrap(),
        ..Default::default()
    };
    let create =
        v1::CreateContainerRequest { pod_sandbox_id: "p".into(), config: Some(config), sandbox_config: None };
    let create = create.encode_to_vec();
    let hooks = bed.hook_server("echo", Script::Echo, "Ignore", &["PreCreateContainer", "PreRunPodSandbox"]);
    for coding in [Coding::Literal, Coding::Indexed] {
        let client = PeerOptions {
            settings: vec![(setting::INITIAL_WINDOW_SIZE, 700)],
            connection_window: 65_535,
            padding: Some(13),
            header_fragment: Some(1),
            coding,
            write_size: 7,
            ..PeerOptions::default()
        };
        let client = RawClient::connect_with(&bed.proxy.place.socket(), client).unwrap();
        let passed = client.call_within(&CallHead::new("/a.v1.B/C"), &body, LIMIT * 3);
        assert!(passed.expect_ok() == body);
        let held = client.call_within(&CallHead::new(runtime_path("CreateContainer")), &create, LIMIT * 3);
        assert!(held.expect_ok() == create);
        let run = client.call_within(&CallHead::new(runtime_path("RunPodSandbox")), &hex(V1_REQUEST), LIMIT);
        assert_eq!(run.expect_ok(), hex(V1_REQUEST));
    }
    assert_eq!(hooks.calls("PreRunPodSandbox").len(), 2);
}

/// RST_STREAM codes and cancellation pass in both directions.
#[test]
fn resets_keep_their_codes_both_ways() {
    let bed = Bed::with(
        unary(|call, _| match call.method() {
            "Reset" => Reply::ending(Ending::Reset(code::ENHANCE_YOUR_CALM)),
            "Hang" => Reply::ending(Ending::Hang),
            _ => Reply::ok([]),
        }),
        options(),
    );
    let client = bed.proxy.client();
    assert_eq!(client.call(&CallHead::new("/a.v1.B/Reset"), b"").reset, Some(code::ENHANCE_YOUR_CALM));
    let stream = client.start(&CallHead::new("/a.v1.B/Hang"), b"").unwrap();
    bed.runtime.wait_call("Hang", 1);
    stream.cancel();
    until_true("the runtime to hear of the cancellation", || bed.last("Hang").reset == Some(code::CANCEL));
}

/// UNIMPLEMENTED is the runtime's to say: it passes, and the proxy never says it.
#[test]
fn unimplemented_comes_from_the_runtime_only() {
    let bed = Bed::with(
        unary(|call, _| match call.method() {
            "StreamContainers" => Reply::error(12, "unknown%20method"),
            _ => Reply::ok([]),
        }),
        options(),
    );
    let client = bed.proxy.client();
    let answer = client.cri("StreamContainers", b"");
    assert_eq!((answer.status(), answer.status_message().as_str()), (Some(12), "unknown%20method"));
    for method in
        ["GetContainerEvents", "CheckpointPod", "RestorePod", "UpdatePodSandboxResources", "NotYetInvented"]
    {
        client.cri(method, b"").expect_ok();
    }
}

/// Pings are answered end to end and any number of them is welcome.
#[test]
fn pings_are_answered() {
    let bed = Bed::with(empty_answers(), options());
    let client = bed.proxy.client();
    for number in 0..500_u64 {
        assert!(client.peer().ping(number.to_be_bytes(), LIMIT));
    }
    client.cri("Version", b"").expect_ok();
}

/// The settings a client gets are fit for a kubelet.
#[test]
fn the_settings_leave_room() {
    let bed = Bed::with(empty_answers(), options());
    let client = bed.proxy.client();
    client.cri("Version", b"").expect_ok();
    let settings = client.peer().peer_settings().unwrap();
    let value = |name| settings.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value);
    assert!(value(setting::MAX_CONCURRENT_STREAMS).is_none_or(|streams| streams >= 65_535), "{settings:?}");
    assert!(value(setting::MAX_HEADER_LIST_SIZE).is_none_or(|size| size >= 1 << 20), "{settings:?}");
}

/// V34: no runtime, a runtime that comes while a call waits, a runtime lost within a call.
#[test]
fn a_missing_runtime_is_waited_for_and_then_unavailable() {
    let place = Place::new().unwrap();
    let mut runtime = FakeRuntime::absent(
        place.backend(),
        unary(|call, _| match call.method() {
            "Hang" => Reply::ending(Ending::Hang),
            "Version" => Reply::ok(b"\x0a\x01x"),
            _ => Reply::ok([]),
        }),
    );
    let proxy = Proxy::start_in(place, options().flag("--backend-wait", "1s")).unwrap();
    let start = Instant::now();
    let answer = proxy.client().cri("Version", b"");
    let waited = start.elapsed();
    assert_eq!(answer.status(), Some(14), "{answer:?}");
    let text = answer.status_message();
    assert!(text.contains("connection error") || text.contains("connection%20error"), "{text}");
    assert!(text.contains("backend.sock"), "{text}");
    assert!((Duration::from_millis(900)..Duration::from_millis(2_000)).contains(&waited), "{waited:?}");
    assert_eq!(proxy.admin("/readyz").unwrap().status, 503);
    assert_eq!(proxy.admin("/healthz").unwrap().status, 200);

    // The runtime appears while a call waits for it.
    let client = proxy.client();
    let waiting = client.start(&CallHead::new(runtime_path("Version")), b"").unwrap();
    assert_eq!(
        waiting.next(Duration::from_millis(400)).filter(|event| matches!(event, Event::Lost(_))),
        None
    );
    runtime.listen().unwrap();
    assert_eq!(Answer::collect(&waiting, LIMIT).expect_ok(), b"\x0a\x01x");
    proxy.wait_ready();

    // A call under way is not sent a second time.
    let client = proxy.client();
    client.cri("Version", b"").expect_ok();
    let lost = client.start(&CallHead::new(runtime_path("Hang")), b"").unwrap();
    runtime.wait_call("Hang", 1);
    runtime.kill();
    let answer = Answer::collect(&lost, LIMIT);
    assert_eq!(answer.status(), Some(14), "{answer:?}");
    runtime.listen().unwrap();
    until_true("calls to succeed again", || proxy.client().cri("Version", b"").status() == Some(0));
    assert_eq!(runtime.calls_of("Hang").len(), 1);
}

/// `--relay-services` refuses other services without asking the runtime.
#[test]
fn services_outside_the_list_are_refused() {
    let bed = Bed::with(empty_answers(), options().flag("--relay-services", "runtime.v1,runtime.v1alpha2"));
    let client = bed.proxy.client();
    client.cri("Version", b"").expect_ok();
    client.call(&CallHead::new("/runtime.v1alpha2.RuntimeService/Version"), b"").expect_ok();
    client.call(&CallHead::new("/runtime.v1.ImageService/ListImages"), b"").expect_ok();
    let refused = client.call(&CallHead::new("/containerd.services.tasks.v1.Tasks/Kill"), b"");
    assert_eq!(refused.status(), Some(7));
    let body = bed.runtime.calls_of("Kill").into_iter().map(|call| call.body).collect::<Vec<_>>().concat();
    assert_eq!(body, b"", "the refused request stays here");
    client.cri("Version", b"").expect_ok();
    assert_eq!(field(&refused.head, ":status"), Some(&b"200"[..]));
}

/// `--remote-image-service-endpoint`: the first call of a connection chooses its backend.
#[test]
fn an_image_service_may_have_a_backend_of_its_own() {
    let place = Place::new().unwrap();
    let image_socket = place.path("image.sock");
    let runtime = FakeRuntime::start(
        place.backend(),
        unary(|call, _| match call.method() {
            "Version" => Reply::ok(*b"\x0a\x07runtime"),
            _ => Reply::ok([]),
        }),
    )
    .unwrap();
    let mut images = FakeRuntime::start(&image_socket, unary(|_, _| Reply::ok(*b"\x0a\x05image"))).unwrap();
    let endpoint = format!("unix://{}", image_socket.display());
    let flags = options().flag("--remote-image-service-endpoint", &endpoint).flag("--backend-wait", "300ms");
    let proxy = Proxy::start_in(place, flags).unwrap();
    proxy.wait_ready();
    let list = CallHead::new("/runtime.v1.ImageService/ListImages");

    let client = proxy.client();
    for _ in 0..3 {
        assert_eq!(client.call(&list, b"").expect_ok(), b"\x0a\x05image");
    }
    let elsewhere = client.cri("Version", b"");
    assert_eq!(elsewhere.status(), Some(14), "{elsewhere:?}");
    assert_eq!(client.call(&list, b"").expect_ok(), b"\x0a\x05image");
    assert_eq!((images.calls_of("ListImages").len(), images.calls_of("Version").len()), (4, 0));

    let client = proxy.client();
    assert_eq!(client.cri("Version", b"").expect_ok(), b"\x0a\x07runtime");
    assert_eq!(client.call(&list, b"").status(), Some(14));
    assert_eq!(client.cri("Version", b"").expect_ok(), b"\x0a\x07runtime");
    assert_eq!(runtime.calls_of("ListImages").len(), 0);

    images.kill();
    let answer = proxy.client().call(&list, b"");
    assert_eq!(answer.status(), Some(14), "{answer:?}");
    assert!(answer.status_message().contains("image.sock"), "{answer:?}");
    proxy.client().cri("Version", b"").expect_ok();
}
