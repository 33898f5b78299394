//! What the proxy knows after it, or the runtime, was gone.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use koord_cri::v1;
use koord_testing::client::{CallHead, SteadyClient, runtime_path};
use koord_testing::cri::{FakeCri, container_config, pod_config};
use koord_testing::harness::{Place, Proxy};
use koord_testing::hooks::{ALL_HOOKS, FakeHookServer, Script, decode};
use koord_testing::runtime::FakeRuntime;
use koord_testing::wait::until_true;
use nix::sys::signal::Signal;
use prost::Message;

use crate::{Bed, answer, container_id, create, map, options, pod_id, run_pod, update};

fn records(proxy: &Proxy, kind: &str) -> f64 {
    proxy.metric("koord_runtime_proxy_store_records", &[&format!("kind=\"{kind}\"")])
}

/// V30: pods and containers that were there before, one of them without its pod.
#[test]
fn what_was_there_before_is_found() {
    let cri = FakeCri::default();
    let resources = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 200_000,
        cpu_shares: 2_048,
        memory_limit_in_bytes: 1 << 30,
        ..Default::default()
    };
    let first = cri.add_pod(pod_config("p1", "u1", "n", "/kubepods/podu1"), "runc");
    let second = cri.add_pod(pod_config("p2", "u2", "n", "/kubepods/podu2"), "");
    let old = cri.add_container(&first, container_config("c1", resources.clone()));
    cri.add_container(&second, container_config("c2", v1::LinuxContainerResources::default()));
    cri.add_container("absent", container_config("c3", v1::LinuxContainerResources::default()));
    let bed = Bed::with(cri.behaviour(), options());
    until_true("two pods", || records(&bed.proxy, "pod") == 2.0);
    until_true("two containers", || records(&bed.proxy, "container") == 2.0);
    let hooks =
        bed.hook_server("h", Script::Echo, "Fail", &["PreUpdateContainerResources", "PostStopPodSandbox"]);
    let change = v1::LinuxContainerResources { cpuset_cpus: "0-1".into(), ..Default::default() };
    let client = bed.proxy.client();
    client.cri("UpdateContainerResources", &update(&old, change)).expect_ok();
    let asked = hooks.container_requests("PreUpdateContainerResources").remove(0);
    let seen = asked.container_resources.unwrap();
    assert_eq!(
        (
            seen.cpu_period,
            seen.cpu_quota,
            seen.cpu_shares,
            seen.memory_limit_in_bytes,
            seen.cpuset_cpus.as_str()
        ),
        (100_000, 200_000, 2_048, 1 << 30, "0-1")
    );
    assert_eq!(asked.pod_cgroup_parent, "/kubepods/podu1");
    let pod = asked.pod_meta.unwrap();
    assert_eq!((pod.name.as_str(), pod.uid.as_str(), pod.namespace.as_str()), ("p1", "u1", "n"));
    client
        .cri("StopPodSandbox", &v1::StopPodSandboxRequest { pod_sandbox_id: first }.encode_to_vec())
        .expect_ok();
    let stopped = hooks.pod_requests("PostStopPodSandbox").remove(0);
    assert_eq!(
        (stopped.cgroup_parent.as_str(), stopped.runtime_handler.as_str()),
        ("/kubepods/podu1", "runc")
    );
}

/// What hooks changed is only in the checkpoint: it outlives kill -9.
#[test]
fn the_checkpoint_outlives_a_kill() {
    let (mut bed, _cri) = Bed::start();
    let moved = answer(|pod| pod.cgroup_parent = "/moved/podu".into(), |_| {});
    let hooks = bed.hook_server("h", moved, "Fail", &["PreRunPodSandbox", "PreCreateContainer"]);
    let config = pod_config("p", "u", "n", "/kubepods/podu");
    let pod = pod_id(&bed.proxy.client().cri("RunPodSandbox", &run_pod(config.clone())).expect_ok());
    let file = bed.proxy.place.state().join("store.v1");
    until_true("the checkpoint", || fs::read(&file).is_ok_and(|bytes| contains(&bytes, pod.as_bytes())));
    bed.proxy.kill();
    bed.proxy.restart().unwrap();
    bed.proxy.wait_ready();
    hooks.script(Script::Echo);
    let container = container_config("c", v1::LinuxContainerResources::default());
    bed.proxy.client().cri("CreateContainer", &create(&pod, container, config)).expect_ok();
    let asked = hooks.container_requests("PreCreateContainer").remove(0);
    assert_eq!(asked.pod_cgroup_parent, "/moved/podu");
    let sent: v1::CreateContainerRequest = decode(&bed.last("CreateContainer").message());
    assert_eq!(sent.sandbox_config.unwrap().linux.unwrap().cgroup_parent, "/moved/podu");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A damaged checkpoint is ignored; the runtime's own knowledge is used.
#[test]
fn a_damaged_checkpoint_is_ignored() {
    let (mut bed, _cri) = Bed::start();
    let client = bed.proxy.client();
    let config = pod_config("p", "u", "n", "/kubepods/podu");
    client.cri("RunPodSandbox", &run_pod(config)).expect_ok();
    let file = bed.proxy.place.state().join("store.v1");
    until_true("the checkpoint", || file.exists());
    for damage in [&b""[..], b"\0\0\0", b"{}", &[0xff; 4_096]] {
        bed.proxy.kill();
        fs::write(&file, damage).unwrap();
        bed.proxy.restart().unwrap();
        bed.proxy.wait_ready();
        until_true("the pod", || records(&bed.proxy, "pod") == 1.0);
    }
    bed.proxy.kill();
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    bed.proxy.restart().unwrap();
    bed.proxy.wait_ready();
    until_true("the pod", || records(&bed.proxy, "pod") == 1.0);
}

/// Killed at any moment under load: it comes back, agrees with the runtime, and its socket works.
#[test]
fn it_can_be_killed_at_any_moment() {
    let (mut bed, cri) = Bed::start();
    let _hooks = bed.hook_server("h", Script::Echo, "Ignore", &ALL_HOOKS);
    let socket = bed.proxy.place.socket();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..3)
        .map(|number| {
            let (socket, stop) = (socket.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut client = SteadyClient::new(&socket);
                let mut call = |method: &str, message: &[u8]| {
                    client
                        .call(&CallHead::new(runtime_path(method)), message)
                        .ok()
                        .filter(|answer| answer.status() == Some(0))
                };
                for round in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let uid = format!("u{number}-{round}");
                    let config = pod_config("p", &uid, "n", "/k");
                    // While the proxy is gone every call fails; the next round tries again.
                    let Some(run) = call("RunPodSandbox", &run_pod(config.clone())) else { continue };
                    let pod = pod_id(&run.message());
                    let container = container_config("c", v1::LinuxContainerResources::default());
                    let Some(made) = call("CreateContainer", &create(&pod, container, config)) else {
                        continue;
                    };
                    call("StartContainer", &crate::start_container(&container_id(&made.message())));
                    if round % 2 == 0 {
                        call(
                            "StopPodSandbox",
                            &v1::StopPodSandboxRequest { pod_sandbox_id: pod.clone() }.encode_to_vec(),
                        );
                        call(
                            "RemovePodSandbox",
                            &v1::RemovePodSandboxRequest { pod_sandbox_id: pod }.encode_to_vec(),
                        );
                    }
                }
            })
        })
        .collect();
    for round in 0..6_usize {
        // A different number of calls each time: the kill falls into another moment.
        let until_calls = bed.runtime.calls().len() + 20 + round * 7;
        until_true("calls to be under way", || bed.runtime.calls().len() > until_calls);
        bed.proxy.kill();
        bed.proxy.restart().unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.join().unwrap();
    }
    bed.proxy.kill();
    bed.proxy.restart().unwrap();
    bed.proxy.wait_ready();
    let (pods, containers) = cri.counts();
    let exact = |count: usize| f64::from(u32::try_from(count).unwrap());
    until_true("the runtime's pods", || records(&bed.proxy, "pod") == exact(pods));
    until_true("the runtime's containers", || records(&bed.proxy, "container") == exact(containers));
}

/// The runtime comes back with less than it had: so does the store.
#[test]
fn a_restarted_runtime_is_asked_what_it_has() {
    let (mut bed, cri) = Bed::start();
    let client = bed.proxy.client();
    let keep = pod_id(&client.cri("RunPodSandbox", &run_pod(pod_config("p1", "u1", "n", "/k"))).expect_ok());
    let lose = pod_id(&client.cri("RunPodSandbox", &run_pod(pod_config("p2", "u2", "n", "/k"))).expect_ok());
    assert_eq!(records(&bed.proxy, "pod"), 2.0);
    bed.runtime.kill();
    cri.answer("RemovePodSandbox", &v1::RemovePodSandboxRequest { pod_sandbox_id: lose }.encode_to_vec());
    bed.runtime.listen().unwrap();
    until_true("the store to follow", || records(&bed.proxy, "pod") == 1.0);
    assert!(bed.proxy.admin("/store").unwrap().body.contains(&keep));
}

/// The socket's file of a killed proxy is taken over; a living proxy's is not.
#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let (mut bed, _cri) = Bed::start();
    bed.proxy.kill();
    assert!(bed.proxy.place.socket().exists());
    bed.proxy.restart().unwrap();
    bed.proxy.wait_ready();
    bed.proxy.client().cri("Version", b"").expect_ok();
    let flag = |name: &str, path: std::path::PathBuf| format!("--{name}={}", path.display());
    let place = &bed.proxy.place;
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_koord-runtime-proxy"))
        .args([
            flag("koord-runtimeproxy-endpoint", place.socket()),
            flag("remote-runtime-service-endpoint", place.backend()),
            flag("hook-config-dir", place.hooks()),
            flag("state-dir", place.path("other-state")),
            flag("admin-socket", place.path("other-admin.sock")),
        ])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1), "{}", String::from_utf8_lossy(&second.stderr));
    bed.proxy.client().cri("Version", b"").expect_ok();
}

/// A proxy started before its runtime serves at once and becomes ready when the runtime comes.
#[test]
fn the_proxy_may_be_first() {
    let cri = FakeCri::default();
    cri.add_pod(pod_config("p", "u", "n", "/k"), "");
    let place = Place::new().unwrap();
    let mut runtime = FakeRuntime::absent(place.backend(), cri.behaviour());
    let mut proxy = Proxy::start_in(place, options().flag("--backend-wait", "100ms")).unwrap();
    assert_eq!(proxy.client().cri("Version", b"").status(), Some(14));
    assert_eq!(proxy.admin("/readyz").unwrap().status, 503);
    runtime.listen().unwrap();
    proxy.wait_ready();
    until_true("the pod", || records(&proxy, "pod") == 1.0);
    proxy.signal(Signal::SIGTERM);
    assert!(proxy.wait_exit(koord_testing::wait::LIMIT).success());
}

/// The hook server is started after the proxy, and again after both were gone.
#[test]
fn hook_server_and_proxy_may_come_in_any_order() {
    let (mut bed, _cri) = Bed::start();
    let socket = bed.proxy.place.path("late.sock");
    let text = koord_testing::hooks::registration(&socket, "Ignore", &["PreRunPodSandbox"]);
    fs::write(bed.proxy.place.hooks().join("late.json"), text).unwrap();
    let run = |bed: &Bed| {
        bed.proxy.client().cri("RunPodSandbox", &run_pod(pod_config("p", "u", "n", "/k"))).expect_ok()
    };
    run(&bed);
    let script = answer(|pod| pod.annotations.extend(map(&[("a", "b")])), |_| {});
    let hooks = FakeHookServer::start(&socket, script).unwrap();
    until_true("the late server to be asked", || {
        run(&bed);
        !hooks.calls("PreRunPodSandbox").is_empty()
    });
    bed.proxy.kill();
    bed.proxy.restart().unwrap();
    let before = hooks.calls("PreRunPodSandbox").len();
    run(&bed);
    assert_eq!(
        hooks.calls("PreRunPodSandbox").len(),
        before + 1,
        "registrations are read before the first call"
    );
}
