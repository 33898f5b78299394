//! The proxy is told to end.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use koord_testing::client::{CallHead, runtime_path};
use koord_testing::hooks::Script;
use koord_testing::peer::Answer;
use koord_testing::runtime::{Ending, Reply, unary};
use koord_testing::wait::LIMIT;
use nix::sys::signal::Signal;

use crate::{Bed, V1_REQUEST, hex, options};

/// Calls under way end well, held ones too; then the process ends with 0.
#[test]
fn calls_under_way_end_well() {
    let mut bed = Bed::with(
        unary(|call, _| match call.method() {
            "ExecSync" => Reply::ok(b"done").after(Duration::from_millis(700)),
            _ => Reply::ok([]),
        }),
        options(),
    );
    let hooks = bed.hook_server("h", Script::Slow(Duration::from_millis(500)), "Fail", &["PreRunPodSandbox"]);
    let client = bed.proxy.client();
    let passing = client.start(&CallHead::new(runtime_path("ExecSync")), b"").unwrap();
    let held = client.start(&CallHead::new(runtime_path("RunPodSandbox")), &hex(V1_REQUEST)).unwrap();
    bed.runtime.wait_call("ExecSync", 1);
    hooks.server().wait_call("PreRunPodSandboxHook", 1);
    bed.proxy.signal(Signal::SIGTERM);
    assert!(client.peer().wait_goaway(LIMIT).is_some());
    assert_eq!(Answer::collect(&passing, LIMIT).expect_ok(), b"done");
    Answer::collect(&held, LIMIT).expect_ok();
    let start = Instant::now();
    assert!(bed.proxy.wait_exit(LIMIT).success());
    assert!(start.elapsed() < Duration::from_secs(5), "idle connections are not waited for");
    assert!(bed.proxy.place.state().join("store.v1").exists(), "the checkpoint is written");
    assert!(UnixStream::connect(bed.proxy.place.socket()).is_err());
}

/// What outlives the grace time ends with UNAVAILABLE.
#[test]
fn calls_beyond_the_grace_time_end_unavailable() {
    let mut bed = Bed::with(
        unary(|call, _| match call.method() {
            "GetContainerEvents" => Reply::ending(Ending::Hang),
            _ => Reply::ok([]),
        }),
        options().flag("--shutdown-grace", "500ms"),
    );
    let client = bed.proxy.client();
    let events = client.start(&CallHead::new(runtime_path("GetContainerEvents")), b"").unwrap();
    bed.runtime.wait_call("GetContainerEvents", 1);
    bed.proxy.signal(Signal::SIGTERM);
    let answer = Answer::collect(&events, LIMIT);
    assert_eq!(answer.status(), Some(14), "{answer:?}");
    assert!(bed.proxy.wait_exit(LIMIT).success());
}

/// A second signal ends at once.
#[test]
fn a_second_signal_ends_at_once() {
    let mut bed = Bed::with(
        unary(|call, _| match call.method() {
            "GetContainerEvents" => Reply::ending(Ending::Hang),
            _ => Reply::ok([]),
        }),
        options().flag("--shutdown-grace", "60s"),
    );
    let client = bed.proxy.client();
    let _events = client.start(&CallHead::new(runtime_path("GetContainerEvents")), b"").unwrap();
    bed.runtime.wait_call("GetContainerEvents", 1);
    bed.proxy.signal(Signal::SIGTERM);
    assert!(client.peer().wait_goaway(LIMIT).is_some());
    bed.proxy.signal(Signal::SIGTERM);
    bed.proxy.wait_exit(Duration::from_secs(10));
}

/// A bad command line ends with status 2 and names the flag.
#[test]
fn a_bad_flag_is_named() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_koord-runtime-proxy"))
        .args(["--hook-timeout=soon", "--remote-runtime-service-endpoint=http://x"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--hook-timeout") && text.contains("--remote-runtime-service-endpoint"), "{text}");
}
