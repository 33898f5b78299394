//! The process is killed, fails or panics at each step of keeping its state and of relaying a hooked call.

use koord_cri::v1;
use koord_testing::cri::{container_config, pod_config};
use koord_testing::hooks::{ALL_HOOKS, Script};
use koord_testing::wait::{LIMIT, until_true};
use prost::Message;

use crate::{Bed, container_id, create, options, pod_id, run_pod, start_container};

const PERSISTENCE: [&str; 5] =
    ["checkpoint-create", "checkpoint-write", "checkpoint-sync", "checkpoint-rename", "checkpoint-done"];
const RELAY: [&str; 3] = ["call-before-backend", "call-after-backend", "call-committed"];

fn records(bed: &Bed, kind: &str) -> f64 {
    bed.proxy.metric("koord_runtime_proxy_store_records", &[&format!("kind=\"{kind}\"")])
}

/// A pod with a container from a well proxy, then one call of a proxy that dies at `point`, then a well one again.
fn dies_at(point: &str) {
    let (mut bed, cri) = Bed::start();
    let _hooks = bed.hook_server("h", Script::Echo, "Ignore", &ALL_HOOKS);
    let client = bed.proxy.client();
    let config = pod_config("p1", "u1", "n", "/k");
    let pod = pod_id(&client.cri("RunPodSandbox", &run_pod(config.clone())).expect_ok());
    let container = container_config("c", v1::LinuxContainerResources::default());
    let id = container_id(&client.cri("CreateContainer", &create(&pod, container, config)).expect_ok());
    let checkpoint = bed.proxy.place.state().join("store.v1");
    until_true("the checkpoint", || {
        std::fs::read(&checkpoint)
            .is_ok_and(|bytes| bytes.windows(id.len()).any(|window| window == id.as_bytes()))
    });

    // The point may be passed as early as in the start: the process need not serve.
    let failing = options().variable("KOORD_FAILPOINTS", &format!("{point}=kill"));
    if bed.proxy.try_restart_with(failing).unwrap() {
        let client = koord_testing::client::RawClient::connect(&bed.proxy.place.socket());
        if let Ok(client) = client {
            client.cri("RunPodSandbox", &run_pod(pod_config("p2", "u2", "n", "/k")));
        }
    }
    let status = bed.proxy.wait_exit(LIMIT);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{point}");

    bed.proxy.restart_with(options()).unwrap();
    bed.proxy.wait_ready();
    let (pods, _) = cri.counts();
    let pods = f64::from(u32::try_from(pods).unwrap());
    until_true(&format!("{point}: the runtime's pods"), || records(&bed, "pod") == pods);
    until_true(&format!("{point}: the runtime's container"), || records(&bed, "container") == 1.0);
    let client = bed.proxy.client();
    client.cri("StartContainer", &start_container(&id)).expect_ok();
    client
        .cri("StopPodSandbox", &v1::StopPodSandboxRequest { pod_sandbox_id: pod }.encode_to_vec())
        .expect_ok();
}

#[test]
fn killed_at_each_step_of_keeping_state() {
    PERSISTENCE.iter().for_each(|point| dies_at(point));
}

#[test]
fn killed_at_each_step_of_a_hooked_call() {
    RELAY.iter().for_each(|point| dies_at(point));
}

/// A checkpoint that cannot be written costs nothing but itself.
#[test]
fn a_failing_checkpoint_costs_no_call() {
    for point in &PERSISTENCE[..4] {
        let failing = options().variable("KOORD_FAILPOINTS", &format!("{point}=error"));
        let cri = koord_testing::cri::FakeCri::default();
        let mut bed = Bed::with(cri.behaviour(), failing);
        for number in 0..3 {
            let config = pod_config("p", &format!("u{number}"), "n", "/k");
            bed.proxy.client().cri("RunPodSandbox", &run_pod(config)).expect_ok();
        }
        assert_eq!(records(&bed, "pod"), 3.0, "{point}");
        assert!(bed.proxy.is_running());
    }
}

/// A panic within a call ends at that call: it still gets an answer, and the process lives.
#[test]
fn a_panic_is_contained_to_its_call() {
    for point in RELAY {
        let failing = options().variable("KOORD_FAILPOINTS", &format!("{point}=panic"));
        let cri = koord_testing::cri::FakeCri::default();
        let mut bed = Bed::with(cri.behaviour(), failing);
        let _hooks = bed.hook_server("h", Script::Echo, "Ignore", &ALL_HOOKS);
        let client = bed.proxy.client();
        let answer = client.cri("RunPodSandbox", &run_pod(pod_config("p", "u", "n", "/k")));
        assert_eq!(answer.status(), Some(0), "{point}: {answer:?}");
        client.cri("Version", b"").expect_ok();
        assert!(bed.proxy.is_running(), "{point}");
    }
}
