//! Clients that break the protocol or try to exhaust the proxy: it lives, serves others, and its memory stays bounded.

use std::time::Duration;

use koord_testing::client::{ByteClient, CallHead, RawClient, hpack_bomb, runtime_path};
use koord_testing::frame::{Frame, PREFACE, code, flag, grpc_message, kind};
use koord_testing::hooks::Script;
use koord_testing::peer::{PeerOptions, literal_block};
use koord_testing::runtime::{empty_answers, unary};
use koord_testing::wait::{LIMIT, until_true};

use crate::{Bed, V1_REQUEST, hex, options};

/// What all hostile clients of one test together may leave behind, KiB. The proxy's own size is a few MiB.
const SLACK_KIB: u64 = 24 << 10;

fn bed() -> (Bed, koord_testing::hooks::FakeHookServer) {
    let bed = Bed::with(empty_answers(), options());
    let hooks = bed.hook_server("h", Script::Echo, "Fail", &["PreRunPodSandbox"]);
    (bed, hooks)
}

/// Another client's calls, passing and held, still work; memory is near where it was.
#[track_caller]
fn still_well(bed: &mut Bed, before_kib: u64) {
    assert!(bed.proxy.is_running(), "{}", bed.proxy.log());
    let client = bed.proxy.client();
    client.cri("Version", b"").expect_ok();
    client.cri("RunPodSandbox", &hex(V1_REQUEST)).expect_ok();
    // Calls of the hostile clients may still be arriving at the runtime, so it need not be the last.
    let message = hex(V1_REQUEST);
    let mut body = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
    body.extend(message);
    assert!(bed.runtime.calls_of("RunPodSandbox").iter().any(|call| call.complete && call.body == body));
    let after = bed.proxy.resident_kib();
    assert!(after < before_kib + SLACK_KIB, "{before_kib} KiB before, {after} KiB after");
}

fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    // xorshift64*: the same bytes in every run.
    let mut state = seed | 1;
    (0..count)
        .map(|_| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()[7]
        })
        .collect()
}

#[test]
fn junk_instead_of_a_preface() {
    let (mut bed, _hooks) = bed();
    let before = bed.proxy.resident_kib();
    for seed in 1..40 {
        let mut client = ByteClient::connect(&bed.proxy.place.socket()).unwrap();
        // The other end may close while we write.
        let _ = client.send(&random_bytes(seed, 20_000));
        let _ = client.finish();
    }
    let mut http1 = ByteClient::connect(&bed.proxy.place.socket()).unwrap();
    http1.send(b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\n\r\n").unwrap();
    http1.finish().unwrap();
    // Connections that say nothing or half a preface and leave.
    for length in [0, 1, 10, PREFACE.len() - 1, PREFACE.len()] {
        let mut client = ByteClient::connect(&bed.proxy.place.socket()).unwrap();
        client.send(&PREFACE[..length]).unwrap();
    }
    still_well(&mut bed, before);
}

#[test]
fn malformed_frames() {
    let (mut bed, _hooks) = bed();
    let before = bed.proxy.resident_kib();
    let head = literal_block(&CallHead::new(runtime_path("RunPodSandbox")).fields());
    let open = |stream| Frame::new(kind::HEADERS, flag::END_HEADERS, stream, head.clone());
    let broken: Vec<Vec<Frame>> = vec![
        // DATA and HEADERS on stream 0, on an even stream, on one never opened.
        vec![Frame::data(0, b"x", false)],
        vec![open(0)],
        vec![open(2)],
        vec![Frame::data(9, b"x", true)],
        // Padding longer than the frame.
        vec![open(1), Frame::new(kind::DATA, flag::PADDED, 1, [200, 0])],
        vec![Frame::new(kind::HEADERS, flag::PADDED | flag::END_HEADERS, 1, [255])],
        // Frames of a wrong length.
        vec![Frame::new(kind::SETTINGS, 0, 0, [0; 5])],
        vec![Frame::new(kind::PING, 0, 0, [0; 3])],
        vec![Frame::new(kind::WINDOW_UPDATE, 0, 0, [0; 2])],
        vec![open(1), Frame::new(kind::RST_STREAM, 0, 1, [0; 3])],
        vec![Frame::new(kind::GOAWAY, 0, 0, [0; 3])],
        // A zero window update and one that overflows.
        vec![Frame::window_update(0, 0)],
        vec![Frame::window_update(0, 0x7fff_ffff), Frame::window_update(0, 0x7fff_ffff)],
        // A header block interrupted, continued on another stream, never begun, of no known coding.
        vec![Frame::new(kind::HEADERS, 0, 1, head.clone()), Frame::ping(*b"interval")],
        vec![Frame::new(kind::HEADERS, 0, 1, head.clone()), Frame::new(kind::CONTINUATION, 4, 3, [])],
        vec![Frame::new(kind::CONTINUATION, flag::END_HEADERS, 1, head.clone())],
        vec![Frame::new(kind::HEADERS, flag::END_HEADERS, 1, [0xff; 40])],
        vec![Frame::new(kind::HEADERS, flag::END_HEADERS, 1, [0x80])],
        vec![Frame::new(kind::HEADERS, flag::END_HEADERS, 1, [0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])],
        // Ids that go back, a push from a client, types nobody knows, a frame larger than allowed.
        vec![open(5), open(3)],
        vec![Frame::new(kind::PUSH_PROMISE, flag::END_HEADERS, 1, [0, 0, 0, 2])],
        vec![Frame::new(0xee, 0xff, 0x7fff_ffff, [1; 100])],
        vec![open(1), Frame::data(1, vec![0; 1 << 20], true)],
        // A gRPC prefix that promises more than comes, and one that promises 4 GiB.
        vec![open(1), Frame::data(1, [0, 0, 0, 1, 0, 7], true)],
        vec![open(1), Frame::data(1, [0, 0xff, 0xff, 0xff, 0xff, 7], true)],
        // Data behind the end of the stream.
        vec![open(1), Frame::data(1, grpc_message(b""), true), Frame::data(1, b"more", true)],
        // A window of more than 2^31-1, a frame size below the least.
        vec![Frame::settings(&[(4, 0xffff_ffff)])],
        vec![Frame::settings(&[(5, 1)])],
    ];
    for (number, frames) in broken.iter().enumerate() {
        let mut client = ByteClient::greet(&bed.proxy.place.socket()).unwrap();
        for frame in frames {
            // The other end may close while we write.
            let _ = client.send_frame(frame);
        }
        let _ = client.finish();
        let mut other = RawClient::connect(&bed.proxy.place.socket()).unwrap();
        let answer = other.cri("Version", b"");
        assert_eq!(answer.status(), Some(0), "after number {number}: {frames:?}");
        other = bed.proxy.client();
        other.peer().close();
    }
    still_well(&mut bed, before);
}

#[test]
fn random_frames() {
    let (mut bed, _hooks) = bed();
    let before = bed.proxy.resident_kib();
    for seed in 1..200 {
        let mut client = ByteClient::greet(&bed.proxy.place.socket()).unwrap();
        let bytes = random_bytes(seed, 600);
        for part in bytes.chunks(20) {
            let stream = u32::from(part[2] % 8);
            let frame = Frame::new(part[0] % 11, part[1], stream, &part[3..3 + usize::from(part[2] % 17)]);
            if client.send_frame(&frame).is_err() {
                break;
            }
        }
        let _ = client.finish();
    }
    still_well(&mut bed, before);
}

/// 4 KiB put into the table and referred to 50,000 times: 200 MiB if it were expanded.
#[test]
fn an_hpack_bomb_is_not_expanded() {
    let (mut bed, _hooks) = bed();
    let before = bed.proxy.resident_kib();
    for _ in 0..5 {
        let mut client = ByteClient::greet(&bed.proxy.place.socket()).unwrap();
        let block = hpack_bomb(4_000, 50_000);
        for frame in Frame::headers(1, &block, true, None) {
            if client.send_frame(&frame).is_err() {
                break;
            }
        }
        let _ = client.finish();
    }
    still_well(&mut bed, before);
    let peak = koord_testing::harness::peak_kib(bed.proxy.pid()).unwrap();
    assert!(peak < before + (64 << 10), "{before} KiB before, {peak} KiB at the peak");
}

/// Header blocks up to 1 MiB pass to the runtime; blocks without an end are bounded.
#[test]
fn a_mebibyte_of_headers_passes_and_endless_ones_do_not_pile_up() {
    let (mut bed, hooks) = bed();
    let client = bed.proxy.client();
    let large = CallHead::new(runtime_path("RunPodSandbox")).field("x-large", vec![b'v'; (1 << 20) - 2_000]);
    client.call(&large, &hex(V1_REQUEST)).expect_ok();
    assert_eq!(bed.last("RunPodSandbox").head, large.fields());
    assert_eq!(hooks.calls("PreRunPodSandbox").len(), 1, "the call is still hooked");
    client.peer().close();
    let before = bed.proxy.resident_kib();
    for _ in 0..3 {
        let mut client = ByteClient::greet(&bed.proxy.place.socket()).unwrap();
        let first = literal_block(&CallHead::new(runtime_path("RunPodSandbox")).fields());
        let mut sent = client.send_frame(&Frame::new(kind::HEADERS, 0, 1, first)).is_ok();
        // 64 MiB of CONTINUATION that never end.
        for _ in 0..4_096 {
            sent = sent && client.send_frame(&Frame::new(kind::CONTINUATION, 0, 1, vec![0; 16_384])).is_ok();
        }
    }
    still_well(&mut bed, before);
}

#[test]
fn a_flood_of_resets() {
    let (mut bed, _hooks) = bed();
    let client = bed.proxy.client();
    client.cri("Version", b"").expect_ok();
    let before = bed.proxy.resident_kib();
    for method in ["Version", "RunPodSandbox", "StopContainer"] {
        let client = bed.proxy.client();
        client.reset_flood(&CallHead::new(runtime_path(method)), 10_000, code::CANCEL);
        // The connection may have been ended by the runtime; either way what was sent has been looked at.
        client.peer().ping(*b"flooded!", LIMIT);
    }
    still_well(&mut bed, before);
    until_true("no stream to be left", || bed.proxy.metric("koord_runtime_proxy_streams_active", &[]) == 0.0);
}

/// Held requests that never end, each within its window, from many connections.
#[test]
fn unfinished_requests_are_bounded_and_let_go() {
    let (mut bed, _hooks) = bed();
    let before = bed.proxy.resident_kib();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let client = bed.proxy.client();
            for _ in 0..20 {
                let stream = client.open(&CallHead::new(runtime_path("RunPodSandbox")));
                // 1 MiB promised, 100 KB sent.
                let mut body = grpc_message(&vec![0; 1 << 20]);
                body.truncate(100_000);
                let _ = stream.send_data_within(&body, false, Duration::from_secs(2));
            }
            client
        })
        .collect();
    let held = bed.proxy.resident_kib();
    assert!(held < before + (80 << 10), "{before} KiB before, {held} KiB with 40 MB held");
    for client in clients {
        client.peer().close();
    }
    until_true("the streams to be let go", || {
        bed.proxy.metric("koord_runtime_proxy_streams_active", &[]) == 0.0
    });
    bed.proxy.client().cri("Version", b"").expect_ok();
    assert!(bed.proxy.is_running());
}

/// A client that does not read, and a runtime that answers 12 MiB: bounded by windows, harmless to others.
#[test]
fn clients_that_do_not_read_fill_no_memory() {
    let bed = Bed::with(
        unary(|call, _| {
            koord_testing::runtime::Reply::ok(if call.method() == "ListImages" {
                vec![1; 12 << 20]
            } else {
                Vec::new()
            })
        }),
        options(),
    );
    bed.proxy.client().cri("Version", b"").expect_ok();
    let before = bed.proxy.resident_kib();
    let stalled: Vec<_> = (0..20)
        .map(|_| {
            let client = bed.proxy.client();
            client.cri("Version", b"").expect_ok();
            client.peer().pause_reading(true);
            for _ in 0..3 {
                client.start(&CallHead::new("/runtime.v1.ImageService/ListImages"), b"").unwrap();
            }
            client
        })
        .collect();
    // Windows of 2 GiB and no reading: only the kernel's buffers and back-pressure limit this one.
    let greedy = PeerOptions {
        settings: vec![(4, 0x7fff_ffff)],
        connection_window: 0x7fff_ffff,
        ..PeerOptions::default()
    };
    let greedy = RawClient::connect_with(&bed.proxy.place.socket(), greedy).unwrap();
    greedy.cri("Version", b"").expect_ok();
    greedy.peer().pause_reading(true);
    for _ in 0..50 {
        greedy.start(&CallHead::new("/runtime.v1.ImageService/ListImages"), b"").unwrap();
    }
    bed.runtime.wait_call("ListImages", 60);
    // Others are served meanwhile, large answers too.
    for _ in 0..5 {
        let client = bed.proxy.client();
        let large = client.call(&CallHead::new("/runtime.v1.ImageService/ListImages"), b"");
        assert_eq!(large.expect_ok().len(), 12 << 20);
    }
    let after = bed.proxy.resident_kib();
    assert!(after < before + (64 << 10), "{before} KiB before, {after} KiB with 1.3 GB unread");
    for client in stalled {
        client.peer().close();
    }
    greedy.peer().close();
}
