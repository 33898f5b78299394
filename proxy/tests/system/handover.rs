//! A new process takes over without a failed call.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use koord_testing::client::{ByteClient, CallHead, SteadyClient, runtime_path};
use koord_testing::cri::{FakeCri, pod_config};
use koord_testing::frame::{Frame, flag, grpc_message, kind};
use koord_testing::harness::{ProxyOptions, is_alive};
use koord_testing::hooks::Script;
use koord_testing::peer::{Event, fields, literal_block};
use koord_testing::runtime::Behaviour;
use koord_testing::wait::{LIMIT, until_true};
use nix::sys::signal::Signal;

use crate::{Bed, V1_REQUEST, V2_HOOK_RESPONSE, V2_REQUEST, answer, hex, options, pod_id, run_pod};

/// A runtime with a slow call and an event stream that sends an event whenever `Tick` is called.
fn eventful(cri: &FakeCri) -> Behaviour {
    let cri = cri.clone();
    let streams = Arc::new(std::sync::Mutex::new(Vec::new()));
    Arc::new(move |call| match call.method() {
        "GetContainerEvents" => {
            call.message();
            let head = fields(&[(":status", "200"), ("content-type", "application/grpc")]);
            call.stream().send_headers(&head, false);
            streams.lock().unwrap().push(call.stream().clone());
            call.stream().wait_reset(Duration::from_secs(3600));
        }
        "Tick" => {
            for stream in streams.lock().unwrap().iter() {
                // A stream that was closed meanwhile hears nothing.
                let _ = stream.send_message(b"event", false);
            }
            call.reply(|_| koord_testing::runtime::Reply::ok([]));
        }
        "ExecSync" => call.reply(|_| koord_testing::runtime::Reply::ok([]).after(Duration::from_millis(300))),
        "RunPodSandbox" => call.reply(|message| koord_testing::runtime::Reply::ok(message)),
        method => call.reply(|message| cri.answer(method, message)),
    })
}

/// Small, slow and held calls from several connections while the process is replaced three times: none fails, and
/// an event stream of before the first hand-over goes on.
#[test]
fn no_call_fails_while_processes_change() {
    let cri = FakeCri::default();
    let mut bed = Bed::with(eventful(&cri), options());
    let _hooks = bed.hook_server("h", Script::Bytes(hex(V2_HOOK_RESPONSE)), "Fail", &["PreRunPodSandbox"]);
    let events_client = bed.proxy.client();
    let events = events_client.start(&CallHead::new(runtime_path("GetContainerEvents")), b"").unwrap();
    assert!(matches!(events.next(LIMIT), Some(Event::Headers { .. })));
    let socket = bed.proxy.place.socket();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = ["Version", "ExecSync", "RunPodSandbox", "Version", "RunPodSandbox"]
        .into_iter()
        .map(|method| {
            let (socket, stop) = (socket.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut client = SteadyClient::new(&socket);
                let mut calls = 0_usize;
                while !stop.load(Ordering::SeqCst) {
                    let answer = client.call(&CallHead::new(runtime_path(method)), &hex(V1_REQUEST)).unwrap();
                    let message = answer.expect_ok();
                    if method == "RunPodSandbox" {
                        assert_eq!(message, hex(V2_REQUEST), "every call is hooked");
                    }
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut processes = vec![bed.proxy.pid()];
    for _ in 0..3 {
        let before = bed.runtime.calls().len();
        until_true("calls to be under way", || bed.runtime.calls().len() > before + 50);
        bed.proxy.signal(Signal::SIGHUP);
        processes.push(bed.proxy.wait_successor());
        // The old event stream still delivers.
        bed.proxy.client().cri("Tick", b"").expect_ok();
        assert_eq!(events.next(LIMIT), Some(Event::Data { bytes: grpc_message(b"event"), end: false }));
    }
    let before = bed.runtime.calls().len();
    until_true("calls by the last process", || bed.runtime.calls().len() > before + 50);
    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        assert!(caller.join().unwrap() > 0);
    }
    // The first process lives for its event stream only; the two between have nothing left to do.
    assert!(is_alive(processes[0]));
    for pid in &processes[1..3] {
        until_true("the drained process to end", || !is_alive(*pid));
    }
    events.cancel();
    assert!(bed.proxy.wait_exit(LIMIT).success());
    assert!(is_alive(processes[3]));
    bed.proxy.client().cri("Version", b"").expect_ok();
}

/// A client that has answered the PING behind GOAWAY before it sends a call that it had queued, as the `h2` crate may, has
/// that call answered, and is told at the end which stream was the last.
#[test]
fn a_call_that_was_queued_when_goaway_came_is_answered() {
    let (mut bed, _cri) = Bed::start();
    let block = literal_block(&CallHead::new(runtime_path("Version")).fields());
    for _ in 0..20 {
        let mut client = ByteClient::greet(&bed.proxy.place.socket()).unwrap();
        client.read_until(|frame| frame.kind == kind::SETTINGS).unwrap();
        bed.proxy.signal(Signal::SIGHUP);
        let first = client.read_until(|frame| frame.kind == kind::GOAWAY).unwrap();
        assert_eq!(first.payload[..4], [0x7f, 0xff, 0xff, 0xff]);
        let ping = client.read_until(|frame| frame.kind == kind::PING).unwrap();
        let confirmed = Instant::now();
        client.send_frame(&Frame::new(kind::PING, flag::ACK, 0, ping.payload)).unwrap();
        // Long enough for the proxy to see that nothing is open.
        std::thread::sleep(Duration::from_millis(50));
        let sent: io::Result<()> = Frame::headers(1, &block, false, None)
            .into_iter()
            .chain([Frame::data(1, grpc_message(b""), true)])
            .try_for_each(|frame| client.send_frame(&frame));
        let took = confirmed.elapsed();
        bed.proxy.wait_successor();
        if took > Duration::from_millis(500) {
            // The machine was too busy: the proxy may have waited in vain.
            continue;
        }
        sent.unwrap();
        let answer = client.read_until(|frame| frame.kind == kind::HEADERS).unwrap();
        assert_eq!(answer.stream, 1);
        let last = client.read_until(|frame| frame.kind == kind::GOAWAY).unwrap();
        assert_eq!(last.payload, [0, 0, 0, 1, 0, 0, 0, 0]);
        assert!(client.drain(1).unwrap().is_empty(), "the connection is closed behind it");
        return;
    }
    panic!("the machine was too busy twenty times");
}

/// The new process knows what the old one knew.
#[test]
fn the_store_goes_over() {
    let (mut bed, _cri) = Bed::start();
    let moved = answer(|pod| pod.cgroup_parent = "/moved/podu".into(), |_| {});
    let hooks = bed.hook_server("h", moved, "Fail", &["PreRunPodSandbox", "PostStopPodSandbox"]);
    let pod = pod_id(
        &bed.proxy
            .client()
            .cri("RunPodSandbox", &run_pod(pod_config("p", "u", "n", "/kubepods/podu")))
            .expect_ok(),
    );
    bed.proxy.signal(Signal::SIGHUP);
    bed.proxy.wait_successor();
    hooks.script(Script::Echo);
    let stop = prost::Message::encode_to_vec(&koord_cri::v1::StopPodSandboxRequest { pod_sandbox_id: pod });
    bed.proxy.client().cri("StopPodSandbox", &stop).expect_ok();
    assert_eq!(hooks.pod_requests("PostStopPodSandbox")[0].cgroup_parent, "/moved/podu");
}

/// A new program that does not come up leaves the old one serving, which says why.
#[test]
fn a_failed_hand_over_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("proxy");
    fs::copy(env!("CARGO_BIN_EXE_koord-runtime-proxy"), &program).unwrap();
    let cri = FakeCri::default();
    let mut bed = Bed::with(cri.behaviour(), ProxyOptions::new(&program));
    let client = bed.proxy.client();
    client.cri("Version", b"").expect_ok();
    fs::remove_file(&program).unwrap();
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let logged = bed.proxy.log().len();
    bed.proxy.signal(Signal::SIGHUP);
    until_true("the failure to be logged", || {
        bed.proxy.log()[logged..].lines().any(|line| line.contains("ERROR") || line.contains("WARN"))
    });
    assert!(bed.proxy.is_running());
    client.cri("Version", b"").expect_ok();
    bed.proxy.client().cri("Version", b"").expect_ok();
    bed.proxy.wait_ready();
}
