//! Many calls at a time.

use std::sync::Arc;
use std::time::Duration;

use koord_testing::client::{CallHead, RawClient, runtime_path};
use koord_testing::frame::setting;
use koord_testing::hooks::Script;
use koord_testing::peer::{Answer, Grant, PeerOptions};
use koord_testing::runtime::{Reply, unary};
use koord_testing::wait::LIMIT;

use crate::{Bed, V1_REQUEST, V2_HOOK_RESPONSE, V2_REQUEST, hex, options};

/// 200 streams on one connection: held ones with a slow hook, passing ones with small and large answers.
#[test]
fn two_hundred_streams_held_and_passing() {
    let bed = Bed::with(
        unary(|call, message| match call.method() {
            "ListContainerStats" => Reply::ok([message, &vec![3; 220_000]].concat()),
            "ExecSync" => Reply::ok(message).after(Duration::from_millis(50)),
            _ => Reply::ok(message),
        }),
        options(),
    );
    let hooks = bed.hook_server("h", Script::Bytes(hex(V2_HOOK_RESPONSE)), "Fail", &["PreRunPodSandbox"]);
    let client = PeerOptions {
        settings: vec![(setting::INITIAL_WINDOW_SIZE, 65_535)],
        connection_window: 1 << 20,
        ..PeerOptions::default()
    };
    let client = RawClient::connect_with(&bed.proxy.place.socket(), client).unwrap();
    let methods = ["RunPodSandbox", "Version", "ListContainerStats", "ExecSync"];
    let calls: Vec<_> = (0..200_u8)
        .map(|number| {
            let method = methods[usize::from(number) % methods.len()];
            let message = if method == "RunPodSandbox" { hex(V1_REQUEST) } else { vec![number; 100] };
            let stream = client.start(&CallHead::new(runtime_path(method)), &message).unwrap();
            (method, message, stream)
        })
        .collect();
    // The last ones first: no order between streams is needed.
    for (method, message, stream) in calls.iter().rev() {
        let answer = Answer::collect(stream, LIMIT).expect_ok();
        match *method {
            "RunPodSandbox" => assert_eq!(answer, hex(V2_REQUEST)),
            "ListContainerStats" => {
                assert_eq!((answer.len(), &answer[..100]), (220_100, message.as_slice()));
            }
            _ => assert_eq!(answer, *message),
        }
    }
    assert_eq!(hooks.calls("PreRunPodSandbox").len(), 50);
}

/// A reader that gives back every byte late, beside quick ones.
#[test]
fn slow_readers_get_everything_and_hold_up_nobody() {
    let bed = Bed::with(
        unary(|call, _| Reply::ok(if call.method() == "ListImages" { vec![1; 2 << 20] } else { Vec::new() })),
        options(),
    );
    let slow = PeerOptions {
        settings: vec![(setting::INITIAL_WINDOW_SIZE, 500)],
        connection_window: 65_535,
        grant: Grant::AtOnce,
        ..PeerOptions::default()
    };
    let slow = RawClient::connect_with(&bed.proxy.place.socket(), slow).unwrap();
    let stream = slow.start(&CallHead::new("/runtime.v1.ImageService/ListImages"), b"").unwrap();
    for _ in 0..50 {
        bed.proxy.client().cri("Version", b"").expect_ok();
        // The same connection's other streams flow too.
        slow.cri("Version", b"").expect_ok();
    }
    assert_eq!(Answer::collect(&stream, LIMIT * 3).expect_ok().len(), 2 << 20);
}

/// Many short connections, as crictl makes them, leave nothing behind.
#[test]
fn short_connections_leave_nothing_behind() {
    let bed = Bed::with(unary(|_, _| Reply::ok([])), options());
    let hooks = bed.hook_server("h", Script::Echo, "Fail", &["PreRunPodSandbox"]);
    let descriptors = |bed: &Bed| std::fs::read_dir(format!("/proc/{}/fd", bed.proxy.pid())).unwrap().count();
    let threads = |bed: &Bed| std::fs::read_dir(format!("/proc/{}/task", bed.proxy.pid())).unwrap().count();
    bed.proxy.client().cri("RunPodSandbox", &hex(V1_REQUEST)).expect_ok();
    let connect = |bed: &Bed| {
        let client = bed.proxy.client();
        client.cri("Version", b"").expect_ok();
        client.cri("RunPodSandbox", &hex(V1_REQUEST)).expect_ok();
        client.peer().close();
    };
    (0..20).for_each(|_| connect(&bed));
    let before = (descriptors(&bed), threads(&bed), bed.proxy.resident_kib());
    (0..300).for_each(|_| connect(&bed));
    koord_testing::wait::until_true("descriptors and threads to be given back", || {
        descriptors(&bed) <= before.0 + 2 && threads(&bed) <= before.1 + 2
    });
    let after = bed.proxy.resident_kib();
    assert!(after < before.2 + (8 << 10), "{} KiB before, {after} KiB after", before.2);
    assert_eq!(hooks.calls("PreRunPodSandbox").len(), 321);
}

/// Many connections at a time, each with its own backend connection.
#[test]
fn many_connections_at_a_time() {
    let bed = Bed::with(unary(|_, message| Reply::ok(message)), options());
    let socket = Arc::new(bed.proxy.place.socket());
    let callers: Vec<_> = (0..64_u8)
        .map(|number| {
            let socket = Arc::clone(&socket);
            std::thread::spawn(move || {
                let client = RawClient::connect(&socket).unwrap();
                for _ in 0..20 {
                    assert_eq!(client.cri("Version", &[number; 9]).expect_ok(), [number; 9]);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
}
