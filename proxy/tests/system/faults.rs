//! The runtime fails within calls.

use std::sync::Arc;
use std::time::Duration;

use koord_testing::client::{CallHead, runtime_path};
use koord_testing::frame::grpc_message;
use koord_testing::hooks::Script;
use koord_testing::peer::{Answer, Event, fields};
use koord_testing::runtime::{Ending, Reply, unary};
use koord_testing::wait::{LIMIT, until_true};

use crate::{Bed, V1_REQUEST, hex, options};

/// Calls under way when the runtime dies end with UNAVAILABLE, whatever their kind, and nothing is sent twice.
#[test]
fn calls_under_way_end_unavailable_when_the_runtime_dies() {
    let mut bed = Bed::with(
        Arc::new(|call| match call.method() {
            "GetContainerEvents" => {
                call.message();
                call.stream().send_headers(
                    &fields(&[(":status", "200"), ("content-type", "application/grpc")]),
                    false,
                );
                call.stream().send_message(b"event", false).unwrap();
                call.stream().wait_reset(Duration::from_secs(3600));
            }
            "ExecSync" | "RunPodSandbox" | "RemoveContainer" | "StopContainer" => {
                call.reply(|_| Reply::ending(Ending::Hang));
            }
            _ => call.reply(|_| Reply::ok([])),
        }),
        options(),
    );
    let _hooks = bed.hook_server("h", Script::Echo, "Fail", &["PreRunPodSandbox"]);
    let client = bed.proxy.client();
    let methods = ["ExecSync", "RunPodSandbox", "RemoveContainer", "StopContainer"];
    let streams: Vec<_> = methods
        .iter()
        .map(|method| client.start(&CallHead::new(runtime_path(method)), &hex(V1_REQUEST)).unwrap())
        .collect();
    let events = client.start(&CallHead::new(runtime_path("GetContainerEvents")), b"").unwrap();
    assert!(matches!(events.next(LIMIT), Some(Event::Headers { .. })));
    assert_eq!(events.next(LIMIT), Some(Event::Data { bytes: grpc_message(b"event"), end: false }));
    for method in methods {
        bed.runtime.wait_call(method, 1);
    }
    bed.runtime.kill();
    for (method, stream) in methods.iter().zip(&streams) {
        let answer = Answer::collect(stream, LIMIT);
        assert_eq!(answer.status(), Some(14), "{method}: {answer:?}");
    }
    let Some(Event::Headers { fields: trailers, end: true }) = events.next(LIMIT) else {
        panic!("no trailers")
    };
    assert_eq!(koord_testing::peer::field(&trailers, "grpc-status"), Some(&b"14"[..]));
    bed.runtime.listen().unwrap();
    until_true("calls to succeed again", || bed.proxy.client().cri("Version", b"").status() == Some(0));
    for method in methods {
        assert_eq!(bed.runtime.calls_of(method).len(), 1, "{method}");
    }
}

/// An answer cut in the middle ends with UNAVAILABLE behind what came.
#[test]
fn a_cut_answer_ends_unavailable() {
    let bed = Bed::with(
        unary(|call, _| match call.method() {
            "ExecSync" => Reply { messages: vec![vec![7; 100_000]], ..Reply::ending(Ending::Disconnect) },
            _ => Reply::ok([]),
        }),
        options(),
    );
    let answer = bed.proxy.client().cri("ExecSync", b"");
    assert_eq!(answer.status(), Some(14), "{:?} {:?}", answer.reset, answer.lost);
}

/// A runtime that goes away politely: the call it did not look at can be made again.
#[test]
fn a_goaway_of_the_runtime_is_followed_by_a_new_connection() {
    let bed = Bed::with(
        unary(|call, _| match call.method() {
            "ListImages" if call.earlier == 0 => Reply::ending(Ending::Goaway),
            _ => Reply::ok(b"\x0a\x00"),
        }),
        options(),
    );
    let mut client = koord_testing::client::SteadyClient::new(&bed.proxy.place.socket());
    let head = CallHead::new("/runtime.v1.ImageService/ListImages");
    client.call(&head, b"").unwrap().expect_ok();
    client.call(&head, b"").unwrap().expect_ok();
    assert_eq!(bed.runtime.calls_of("ListImages").len(), 3);
}

/// What GOAWAY said about unprocessed streams is not taken back when the connection then ends.
#[test]
fn a_goaway_is_not_taken_back() {
    let bed = Bed::with(
        unary(|call, _| match call.method() {
            "ListImages" => Reply::ending(Ending::Goaway),
            _ => Reply::ok([]),
        }),
        options(),
    );
    let client = bed.proxy.client();
    let stream = client.start(&CallHead::new("/runtime.v1.ImageService/ListImages"), b"").unwrap();
    assert_eq!(Answer::collect(&stream, LIMIT).lost.as_deref(), Some("the other end closed"));
    assert_eq!(client.peer().wait_goaway(Duration::ZERO).map(|goaway| goaway.last_stream), Some(0));
}

/// The runtime dies again and again under calls: each call gets an answer, and the proxy lives.
#[test]
fn a_runtime_that_keeps_dying_never_leaves_a_call_without_an_answer() {
    let mut bed = Bed::with(unary(|_, _| Reply::ok([]).after(Duration::from_millis(20))), options());
    let _hooks = bed.hook_server("h", Script::Echo, "Ignore", &["PreRunPodSandbox"]);
    let socket = bed.proxy.place.socket();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|number| {
            let (socket, stop) = (socket.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut client = koord_testing::client::SteadyClient::new(&socket);
                let mut answered = (0_usize, 0_usize);
                let method = if number % 2 == 0 { "RunPodSandbox" } else { "ExecSync" };
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    let answer = client.call(&CallHead::new(runtime_path(method)), &hex(V1_REQUEST)).unwrap();
                    match answer.status() {
                        Some(0) => answered.0 += 1,
                        Some(14) => answered.1 += 1,
                        _ => panic!("{answer:?}"),
                    }
                }
                answered
            })
        })
        .collect();
    for round in 1..=8 {
        until_true("calls to be under way", || bed.runtime.calls().len() > 8);
        bed.runtime.kill();
        bed.runtime.forget_calls();
        bed.runtime.listen().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    until_true("calls after the last death", || bed.runtime.calls().len() > 8);
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    for caller in callers {
        let (succeeded, failed) = caller.join().unwrap();
        assert!(succeeded > 0, "{succeeded} calls succeeded, {failed} failed");
    }
    assert!(bed.proxy.is_running());
}
