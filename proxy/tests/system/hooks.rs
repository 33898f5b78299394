//! Hooked calls: what hook servers are asked, what becomes of their answers, and what their faults cost.

use std::time::{Duration, Instant};

use koord_cri::v1;
use koord_hook::v1alpha1 as hook;
use koord_testing::client::{CallHead, runtime_path};
use koord_testing::cri::{container_config, pod_config};
use koord_testing::hooks::{ALL_HOOKS, Script, decode, registration, write_registration};
use koord_testing::runtime::{Reply, empty_answers, unary};
use koord_testing::wait::{LIMIT, until, until_true};
use prost::Message;

use crate::{
    Bed, V1_HOOK_REQUEST, V1_REQUEST, V2_HOOK_RESPONSE, V2_REQUEST, answer, container_id, create, hex, map,
    options, pod_id, run_pod, start_container, stop_container, update,
};

/// V1, V2, V3 and V28 through the program.
#[test]
fn requests_are_edited_in_bytes_in_both_versions_of_the_protocol() {
    let bed = Bed::with(empty_answers(), options());
    let hooks = bed.hook_server("h", Script::Bytes(hex(V2_HOOK_RESPONSE)), "Fail", &["PreRunPodSandbox"]);
    let client = bed.proxy.client();
    for version in ["v1", "v1alpha2"] {
        let path = format!("/runtime.{version}.RuntimeService/RunPodSandbox");
        hooks.script(Script::Bytes(hex(V2_HOOK_RESPONSE)));
        client.call(&CallHead::new(path.clone()), &hex(V1_REQUEST)).expect_ok();
        let sent = bed.last("RunPodSandbox");
        assert_eq!((sent.path.as_str(), sent.message()), (path.as_str(), hex(V2_REQUEST)));
        hooks.script(Script::Echo);
        client.call(&CallHead::new(path), &hex(V1_REQUEST)).expect_ok();
        assert_eq!(bed.last("RunPodSandbox").message(), hex(V1_REQUEST), "an echo changes no byte");
    }
    let asked: Vec<_> = hooks.calls("PreRunPodSandbox").iter().map(|call| call.message()).collect();
    assert_eq!(asked, vec![hex(V1_HOOK_REQUEST); 4]);
}

/// A pod's life with all hooks: order, requests, edits and the store between them.
#[test]
fn a_pod_lives_through_all_hooks() {
    let (bed, cri) = Bed::start();
    let script = answer(
        |pod| {
            pod.annotations.insert("hook".into(), "pod".into());
            pod.cgroup_parent = "/kubepods/besteffort/podu".into();
        },
        |container| {
            let resources = container.container_resources.get_or_insert_default();
            resources.cpu_shares = 2;
            container.container_envs.insert("ADDED".into(), "1".into());
        },
    );
    let hooks = bed.hook_server("h", script, "Fail", &ALL_HOOKS);
    let client = bed.proxy.client();
    let config = pod_config("p", "u", "n", "/kubepods/burstable/podu");
    let pod = pod_id(&client.cri("RunPodSandbox", &run_pod(config.clone())).expect_ok());
    let kept = cri.pod(&pod).unwrap().config;
    assert_eq!(kept.annotations, map(&[("hook", "pod")]));
    assert_eq!(kept.linux.unwrap().cgroup_parent, "/kubepods/besteffort/podu");

    let asked =
        v1::LinuxContainerResources { cpu_shares: 512, cpuset_cpus: "0-1".into(), ..Default::default() };
    let mut container = container_config("c", asked);
    container.envs = vec![v1::KeyValue { key: "A".into(), value: vec![0xff] }];
    let made = client.cri("CreateContainer", &create(&pod, container, config)).expect_ok();
    let id = container_id(&made);
    let kept = cri.container(&id).unwrap();
    assert_eq!((kept.resources.cpu_shares, kept.resources.cpuset_cpus.as_str()), (2, "0-1"));
    let envs: Vec<_> = kept.config.envs.iter().map(|env| (env.key.as_str(), env.value.as_slice())).collect();
    assert_eq!(envs, [("A", &[0xff][..]), ("ADDED", b"1")]);
    let sent: v1::CreateContainerRequest = decode(&bed.last("CreateContainer").message());
    let parent = sent.sandbox_config.unwrap().linux.unwrap().cgroup_parent;
    assert_eq!(parent, "/kubepods/besteffort/podu", "containers follow their pod");

    client.cri("StartContainer", &start_container(&id)).expect_ok();
    let more = v1::LinuxContainerResources { memory_limit_in_bytes: 1 << 20, ..Default::default() };
    client.cri("UpdateContainerResources", &update(&id, more)).expect_ok();
    client.cri("StopContainer", &stop_container(&id)).expect_ok();
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod.clone() }.encode_to_vec();
    client.cri("StopPodSandbox", &stop).expect_ok();
    assert_eq!(
        hooks.sequence(),
        [
            "PreRunPodSandbox",
            "PreCreateContainer",
            "PreStartContainer",
            "PostStartContainer",
            "PreUpdateContainerResources",
            "PostStopContainer",
            "PostStopPodSandbox",
        ]
    );
    let asked = hooks.container_requests("PreUpdateContainerResources").remove(0);
    let resources = asked.container_resources.unwrap();
    assert_eq!((resources.cpu_shares, resources.memory_limit_in_bytes), (2, 1 << 20));
    assert_eq!(asked.pod_cgroup_parent, "/kubepods/besteffort/podu");
    assert_eq!(asked.pod_annotations, map(&[("hook", "pod")]));
    assert_eq!(asked.container_meta.unwrap().id, id);
    assert_eq!(hooks.pod_requests("PostStopPodSandbox")[0].pod_meta.as_ref().unwrap().uid, "u");

    // Stopping again asks nobody; removing empties the store.
    client.cri("StopPodSandbox", &stop).expect_ok();
    assert_eq!(hooks.calls("PostStopPodSandbox").len(), 1);
    client
        .cri("RemovePodSandbox", &v1::RemovePodSandboxRequest { pod_sandbox_id: pod }.encode_to_vec())
        .expect_ok();
    for kind in ["kind=\"pod\"", "kind=\"container\""] {
        until_true("the store to be empty", || {
            bed.proxy.metric("koord_runtime_proxy_store_records", &[kind]) == 0.0
        });
    }
}

/// V20: registrations come, change, break and go while calls run.
#[test]
fn registrations_are_followed() {
    let bed = Bed::with(empty_answers(), options());
    let directory = bed.proxy.place.hooks();
    let client = bed.proxy.client();
    let run =
        |client: &koord_testing::client::RawClient| client.cri("RunPodSandbox", &hex(V1_REQUEST)).expect_ok();
    std::fs::write(directory.join("a.json"), "{\"remote-endpoint\": ").unwrap();
    std::fs::write(directory.join("notes.txt"), "not json").unwrap();
    run(&client);
    assert_eq!(bed.last("RunPodSandbox").message(), hex(V1_REQUEST));

    // The file becomes valid, with a doubled slash and hook names that no proxy knows.
    let socket = bed.proxy.place.path("first.sock");
    let first = koord_testing::hooks::FakeHookServer::start(&socket, Script::Echo).unwrap();
    let doubled = socket.to_str().unwrap().replacen("/first", "//first", 1);
    let text = registration(doubled.as_ref(), "Fail", &["PreRunPodSandbox", "PreRemoveRunPodSandbox", "Foo"]);
    std::fs::write(directory.join("a.json"), text).unwrap();
    within_a_second("hooks of the repaired file", || {
        run(&client);
        !first.calls("PreRunPodSandbox").is_empty()
    });

    // Renamed over, with keys in another case.
    let second =
        koord_testing::hooks::FakeHookServer::start(bed.proxy.place.path("second.sock"), Script::Echo);
    let second = second.unwrap();
    let text = registration(&bed.proxy.place.path("second.sock"), "Fail", &["PreRunPodSandbox"])
        .replace("remote-endpoint", "Remote-Endpoint")
        .replace("runtime-hooks", "RUNTIME-HOOKS");
    write_registration(&directory, "a.json", &text).unwrap();
    within_a_second("hooks of the new file", || {
        run(&client);
        !second.calls("PreRunPodSandbox").is_empty()
    });
    let before = first.calls("PreRunPodSandbox").len();
    run(&client);
    assert_eq!(first.calls("PreRunPodSandbox").len(), before);

    // Damaged: the last valid version stays in use. Then deleted.
    std::fs::write(directory.join("a.json"), "{").unwrap();
    until_true("the error to be counted", || {
        bed.proxy.metric("koord_runtime_proxy_hook_config_errors_total", &["a.json"]) > 0.0
    });
    let before = second.calls("PreRunPodSandbox").len();
    run(&client);
    assert_eq!(second.calls("PreRunPodSandbox").len(), before + 1);
    std::fs::remove_file(directory.join("a.json")).unwrap();
    within_a_second("the hooks to end", || {
        let before = second.calls("PreRunPodSandbox").len();
        run(&client);
        second.calls("PreRunPodSandbox").len() == before
    });
}

/// One second as the contract says, and the slack of a machine under load.
#[track_caller]
fn within_a_second(what: &str, mut probe: impl FnMut() -> bool) {
    until(what, Duration::from_millis(2_000), || probe().then_some(()));
}

/// V21: the label exempts a pod and its containers; other values and the annotation do not.
#[test]
fn the_skip_label_exempts_a_pod() {
    let (bed, _cri) = Bed::start();
    let hooks = bed.hook_server("h", Script::Echo, "Fail", &ALL_HOOKS);
    let client = bed.proxy.client();
    let key = "runtimeproxy.koordinator.sh/skip-hookserver";
    let live = |labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
        let mut config = pod_config("p", "u", "n", "/k");
        config.labels = map(labels);
        config.annotations = map(annotations);
        let pod = pod_id(&client.cri("RunPodSandbox", &run_pod(config.clone())).expect_ok());
        let container = container_config("c", v1::LinuxContainerResources::default());
        let id = container_id(&client.cri("CreateContainer", &create(&pod, container, config)).expect_ok());
        client.cri("StartContainer", &start_container(&id)).expect_ok();
        client.cri("UpdateContainerResources", &update(&id, Default::default())).expect_ok();
        client.cri("StopContainer", &stop_container(&id)).expect_ok();
        client
            .cri("StopPodSandbox", &v1::StopPodSandboxRequest { pod_sandbox_id: pod }.encode_to_vec())
            .expect_ok();
    };
    live(&[(key, "true")], &[]);
    assert_eq!(hooks.sequence(), [""; 0]);
    assert_eq!(bed.proxy.metric("koord_runtime_proxy_store_records", &["kind=\"pod\""]), 1.0, "it is stored");
    for (number, (labels, annotations)) in
        [(vec![(key, "True")], vec![]), (vec![(key, "1")], vec![]), (vec![], vec![(key, "true")])]
            .iter()
            .enumerate()
    {
        live(labels, annotations);
        assert_eq!(hooks.sequence().len(), (number + 1) * 7);
    }
}

/// V22: what the store does not know is relayed without a hook and without an error.
#[test]
fn unknown_ids_are_relayed() {
    let (bed, _cri) = Bed::start();
    let hooks = bed.hook_server("h", Script::Echo, "Fail", &ALL_HOOKS);
    let client = bed.proxy.client();
    let id = "3b2f1c1e-7f0f-4c6e-a1a1-7e5a4a3d2c1b";
    client.cri("StopContainer", &stop_container(id)).expect_ok();
    client
        .cri("RemoveContainer", &v1::RemoveContainerRequest { container_id: id.into() }.encode_to_vec())
        .expect_ok();
    client
        .cri("StopPodSandbox", &v1::StopPodSandboxRequest { pod_sandbox_id: id.into() }.encode_to_vec())
        .expect_ok();
    client
        .cri("RemovePodSandbox", &v1::RemovePodSandboxRequest { pod_sandbox_id: id.into() }.encode_to_vec())
        .expect_ok();
    assert_eq!(hooks.sequence(), [""; 0]);
}

/// V23: a failed stop keeps the record and asks nobody.
#[test]
fn a_stop_that_fails_first_gives_one_hook_call() {
    let cri = koord_testing::cri::FakeCri::default();
    let memory = cri.clone();
    let bed = Bed::with(
        unary(move |call, message| match call.method() {
            "StopContainer" if call.earlier == 0 => Reply::error(4, "context%20deadline%20exceeded"),
            method => memory.answer(method, message),
        }),
        options(),
    );
    let hooks = bed.hook_server("h", Script::Echo, "Ignore", &["PostStopContainer"]);
    let client = bed.proxy.client();
    let config = pod_config("p", "u", "n", "/k");
    let pod = pod_id(&client.cri("RunPodSandbox", &run_pod(config.clone())).expect_ok());
    let container = container_config("c", v1::LinuxContainerResources::default());
    let id = container_id(&client.cri("CreateContainer", &create(&pod, container, config)).expect_ok());
    let failed = client.cri("StopContainer", &stop_container(&id));
    assert_eq!(
        (failed.status(), failed.status_message().as_str()),
        (Some(4), "context%20deadline%20exceeded")
    );
    assert_eq!(hooks.sequence(), [""; 0]);
    client.cri("StopContainer", &stop_container(&id)).expect_ok();
    assert_eq!(hooks.sequence(), ["PostStopContainer"]);
}

/// V24: a hook server that never answers costs its time limit, or a share of the deadline.
#[test]
fn a_hanging_hook_server_costs_its_time_limit() {
    let bed = Bed::with(empty_answers(), options());
    let hooks = bed.hook_server("h", Script::Hang, "Ignore", &["PreRunPodSandbox"]);
    let client = bed.proxy.client();
    for (number, (timeout, least, most)) in [("4M", 1_900, 4_000), ("1S", 450, 1_000)].into_iter().enumerate()
    {
        let start = Instant::now();
        let head = CallHead::new(runtime_path("RunPodSandbox")).timeout(timeout);
        client.call(&head, &hex(V1_REQUEST)).expect_ok();
        let took = start.elapsed();
        assert!(
            (Duration::from_millis(least)..Duration::from_millis(most)).contains(&took),
            "{timeout}: {took:?}"
        );
        let sent = bed.last("RunPodSandbox");
        assert_eq!(sent.message(), hex(V1_REQUEST), "the original bytes");
        assert!(sent.field("grpc-timeout").is_some());
        assert_eq!(hooks.calls("PreRunPodSandbox").len(), number + 1);
    }
}

/// Every fault of a hook server, under both policies.
#[test]
fn faults_of_a_hook_server_follow_its_policy() {
    let bed = Bed::with(empty_answers(), options().flag("--hook-timeout", "300ms"));
    let mut server = bed.hook_server("h", Script::Echo, "Ignore", &["PreRunPodSandbox"]);
    let faults = [
        Script::Crash,
        Script::Bytes(vec![0xff; 40]),
        Script::Bytes({
            // One annotation of 5 MiB: valid, and above the limit of 4 MiB.
            hook::PodSandboxHookResponse {
                annotations: [("k".to_owned(), "v".repeat(5 << 20))].into(),
                ..Default::default()
            }
            .encode_to_vec()
        }),
        Script::Status(13, "broken".into()),
        Script::Reset(2),
        Script::Hang,
    ];
    for policy in ["Ignore", "Fail"] {
        server.register(&bed.proxy.place.hooks(), "h.json", policy, &["PreRunPodSandbox"]).unwrap();
        until_true("the policy to be in use", || {
            bed.proxy.admin("/config").is_ok_and(|answer| answer.body.contains(&format!("\"{policy}\"")))
        });
        for fault in &faults {
            server.script(fault.clone());
            check_fault(&bed, policy, &format!("{fault:?}"));
        }
        server.kill();
        check_fault(&bed, policy, "gone");
        server.listen().unwrap();
        server.script(Script::Bytes(hex(V2_HOOK_RESPONSE)));
        until_true("the hook server to be used again", || {
            let answer = bed.proxy.client().cri("RunPodSandbox", &hex(V1_REQUEST));
            answer.status() == Some(0) && bed.last("RunPodSandbox").message() == hex(V2_REQUEST)
        });
    }
}

#[track_caller]
fn check_fault(bed: &Bed, policy: &str, fault: &str) {
    let before =
        bed.runtime.calls_of("RunPodSandbox").into_iter().filter(|call| !call.body.is_empty()).count();
    let answer = bed.proxy.client().cri("RunPodSandbox", &hex(V1_REQUEST));
    let sent: Vec<_> = bed
        .runtime
        .calls_of("RunPodSandbox")
        .into_iter()
        .filter(|call| !call.body.is_empty())
        .skip(before)
        .collect();
    if policy == "Ignore" {
        assert_eq!(answer.status(), Some(0), "{fault}: {}", answer.status_message());
        assert_eq!(sent.len(), 1, "{fault}");
        assert_eq!(sent[0].message(), hex(V1_REQUEST), "{fault}");
    } else {
        assert_eq!(answer.status(), Some(2), "{fault}: {}", answer.status_message());
        let text = answer.status_message().replace("%20", " ");
        assert!(text.starts_with("hook server err: rpc error: code = "), "{fault}: {text}");
        assert_eq!(sent.len(), 0, "{fault}: no byte of the request reaches the runtime");
    }
}

/// After three timeouts in a row an Ignore server is left alone for a while.
#[test]
fn a_server_that_keeps_hanging_is_skipped() {
    let bed = Bed::with(empty_answers(), options().flag("--hook-timeout", "200ms"));
    let hooks = bed.hook_server("h", Script::Hang, "Ignore", &["PreRunPodSandbox"]);
    let client = bed.proxy.client();
    for _ in 0..3 {
        client.cri("RunPodSandbox", &hex(V1_REQUEST)).expect_ok();
    }
    assert_eq!(hooks.calls("PreRunPodSandbox").len(), 3);
    for _ in 0..20 {
        client.cri("RunPodSandbox", &hex(V1_REQUEST)).expect_ok();
    }
    assert_eq!(hooks.calls("PreRunPodSandbox").len(), 3);
    assert_eq!(bed.proxy.metric("koord_runtime_proxy_hook_fail_open_total", &["reason=\"breaker\""]), 20.0);
    // The probe that finds it well again comes within the pause of 5 s.
    hooks.script(Script::Bytes(hex(V2_HOOK_RESPONSE)));
    until_true("the server to be asked again", || {
        client.cri("RunPodSandbox", &hex(V1_REQUEST)).expect_ok();
        bed.last("RunPodSandbox").message() == hex(V2_REQUEST)
    });
}

/// A client that gives up cancels the hook call and the runtime never sees the message.
#[test]
fn cancelling_a_held_call_cancels_its_hook() {
    let bed = Bed::with(empty_answers(), options());
    let hooks = bed.hook_server("h", Script::Hang, "Fail", &["PreRunPodSandbox"]);
    let client = bed.proxy.client();
    let head = CallHead::new(runtime_path("RunPodSandbox"));
    let stream = client.start(&head, &hex(V1_REQUEST)).unwrap();
    hooks.server().wait_call("PreRunPodSandboxHook", 1);
    stream.cancel();
    until_true("the hook call to be cancelled", || hooks.calls("PreRunPodSandbox")[0].reset.is_some());
    client.cri("Version", b"").expect_ok();
    let bodies: usize = bed.runtime.calls_of("RunPodSandbox").iter().map(|call| call.body.len()).sum();
    assert_eq!(bodies, 0);
}

/// Two servers: each sees what the one before it made of the request, in order of priority and name.
#[test]
fn servers_form_a_chain() {
    let (bed, cri) = Bed::start();
    let add = |name: &'static str| {
        answer(
            move |pod| {
                let seen = pod.annotations.get("seen").cloned().unwrap_or_default();
                pod.annotations.insert("seen".into(), format!("{seen}{name}"));
            },
            |_| {},
        )
    };
    let _second = bed.hook_server("b", add("b"), "Fail", &["PreRunPodSandbox"]);
    let _first = bed.hook_server("a", add("a"), "Fail", &["PreRunPodSandbox"]);
    let client = bed.proxy.client();
    let pod = pod_id(&client.cri("RunPodSandbox", &run_pod(pod_config("p", "u", "n", "/k"))).expect_ok());
    assert_eq!(cri.pod(&pod).unwrap().config.annotations, map(&[("seen", "ab")]));
}

/// V35: a resized pod is what later containers' hooks see; a runtime that cannot resize changes nothing.
#[test]
fn a_resized_pod_is_remembered() {
    let cri = koord_testing::cri::FakeCri::default();
    let memory = cri.clone();
    let bed = Bed::with(
        unary(move |call, message| match call.method() {
            "UpdatePodSandboxResources" if call.earlier == 0 => Reply::ok([]),
            method => memory.answer(method, message),
        }),
        options(),
    );
    let hooks = bed.hook_server("h", Script::Echo, "Fail", &["PreCreateContainer"]);
    let client = bed.proxy.client();
    let config = pod_config("p", "u", "n", "/k");
    let pod = pod_id(&client.cri("RunPodSandbox", &run_pod(config.clone())).expect_ok());
    for (shares, status) in [(4_096, 0), (9_999, 12)] {
        let resize = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: pod.clone(),
            overhead: None,
            resources: Some(v1::LinuxContainerResources { cpu_shares: shares, ..Default::default() }),
        };
        assert_eq!(client.cri("UpdatePodSandboxResources", &resize.encode_to_vec()).status(), Some(status));
        let container = container_config("c", v1::LinuxContainerResources::default());
        client.cri("CreateContainer", &create(&pod, container, config.clone())).expect_ok();
        let asked = hooks.container_requests("PreCreateContainer").pop().unwrap();
        assert_eq!(asked.pod_resources.unwrap().cpu_shares, 4_096);
    }
}

/// Secrets of requests are in no log, at the default verbosity and at the highest.
#[test]
fn secrets_stay_out_of_the_log() {
    let (bed, _cri) = Bed::start();
    let mut bed = bed;
    for verbosity in ["2", "10"] {
        bed.proxy.restart_with(options().flag("--v", verbosity)).unwrap();
        bed.proxy.wait_ready();
        let hooks = bed.hook_server(&format!("h{verbosity}"), Script::Echo, "Fail", &ALL_HOOKS);
        let client = bed.proxy.client();
        let mut config = pod_config("p", "u", "n", "/k");
        config.annotations = map(&[("note", "hush-annotation")]);
        let pod = pod_id(&client.cri("RunPodSandbox", &run_pod(config.clone())).expect_ok());
        let mut container = container_config("c", v1::LinuxContainerResources::default());
        container.envs = vec![v1::KeyValue { key: "TOKEN".into(), value: b"hush-environment".to_vec() }];
        client.cri("CreateContainer", &create(&pod, container, config)).expect_ok();
        let auth = v1::AuthConfig { password: "hush-password".into(), ..Default::default() };
        let pull = v1::PullImageRequest { auth: Some(auth), ..Default::default() }.encode_to_vec();
        client.call(&CallHead::new("/runtime.v1.ImageService/PullImage"), &pull);
        assert!(!hooks.sequence().is_empty());
        let log = bed.proxy.log();
        assert!(!log.contains("hush-environment") && !log.contains("hush-password"), "{log}");
        let store = bed.proxy.admin("/store").unwrap().body;
        assert!(store.contains("TOKEN") && !store.contains("hush-environment"), "{store}");
        if verbosity == "2" {
            assert!(!log.contains("hush-annotation"), "{log}");
        }
        std::fs::remove_file(bed.proxy.place.hooks().join(format!("h{verbosity}.json"))).unwrap();
    }
}

/// RestorePod is hooked like the pod and the containers it makes.
#[test]
fn restored_pods_do_not_escape_the_hooks() {
    let bed = Bed::with(
        unary(|call, _| match call.method() {
            "RestorePod" => Reply::ok(
                v1::RestorePodResponse {
                    pod_sandbox_id: "restored".into(),
                    restored_containers: vec![v1::RestoredContainer {
                        name: "c".into(),
                        container_id: "restored-c".into(),
                    }],
                }
                .encode_to_vec(),
            ),
            _ => Reply::ok([]),
        }),
        options(),
    );
    let script = answer(
        |pod| {
            pod.annotations.insert("a".into(), "b".into());
        },
        |container| container.container_resources.get_or_insert_default().cpu_shares = 2,
    );
    let hooks = bed.hook_server("h", script, "Fail", &ALL_HOOKS);
    let client = bed.proxy.client();
    let request = v1::RestorePodRequest {
        config: Some(pod_config("p", "u", "n", "/k")),
        container_configs: vec![container_config("c", v1::LinuxContainerResources::default())],
        ..Default::default()
    };
    client.cri("RestorePod", &request.encode_to_vec()).expect_ok();
    let sent: v1::RestorePodRequest = decode(&bed.last("RestorePod").message());
    assert_eq!(sent.config.unwrap().annotations, map(&[("a", "b")]));
    assert_eq!(sent.container_configs[0].linux.as_ref().unwrap().resources.as_ref().unwrap().cpu_shares, 2);
    client.cri("StartContainer", &start_container("restored-c")).expect_ok();
    let started = hooks.container_requests("PreStartContainer").remove(0);
    assert_eq!(started.pod_meta.unwrap().uid, "u");
    assert_eq!(started.container_resources.unwrap().cpu_shares, 2);
    until_true("the records", || bed.proxy.metric("koord_runtime_proxy_store_records", &[]) == 2.0);
}

/// A stop that takes long holds up nothing else of its container's pod, and a hanging hook only its own call.
#[test]
fn calls_wait_only_for_their_own_container() {
    let cri = koord_testing::cri::FakeCri::default();
    let memory = cri.clone();
    let bed = Bed::with(
        unary(move |call, message| match call.method() {
            "StopContainer" => memory.answer("StopContainer", message).after(Duration::from_secs(5)),
            method => memory.answer(method, message),
        }),
        options(),
    );
    let _hooks = bed.hook_server("h", Script::Echo, "Fail", &ALL_HOOKS);
    let client = bed.proxy.client();
    let config = pod_config("p", "u", "n", "/k");
    let pod = pod_id(&client.cri("RunPodSandbox", &run_pod(config.clone())).expect_ok());
    let make = |name: &str| {
        let container = container_config(name, v1::LinuxContainerResources::default());
        container_id(&client.cri("CreateContainer", &create(&pod, container, config.clone())).expect_ok())
    };
    let (one, two) = (make("one"), make("two"));
    let stopping =
        client.start(&CallHead::new(runtime_path("StopContainer")), &stop_container(&one)).unwrap();
    bed.runtime.wait_call("StopContainer", 1);
    let start = Instant::now();
    client.cri("UpdateContainerResources", &update(&one, Default::default())).expect_ok();
    client.cri("StartContainer", &start_container(&two)).expect_ok();
    client.cri("UpdateContainerResources", &update(&two, Default::default())).expect_ok();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    koord_testing::peer::Answer::collect(&stopping, LIMIT).expect_ok();
}
