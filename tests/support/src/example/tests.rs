use std::time::Duration;

use koord_hook::v1alpha1::{ContainerMetadata, ContainerResourceHookRequest};
use prost::Message;

use super::*;
use crate::client::{CallHead, RawClient};
use crate::hooks::{ALL_HOOKS, decode};

#[test]
fn it_registers_answers_logs_and_cleans_up() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, file, log) =
        (directory.path().join("s"), directory.path().join("e.json"), directory.path().join("log"));
    let options = ExampleOptions {
        socket: socket.clone(),
        register: Some(file.clone()),
        policy: "Fail".into(),
        hooks: ALL_HOOKS.map(str::to_owned).to_vec(),
        overrides: Overrides {
            cpu_shares: Some(2),
            cpu_quota: Some(-1),
            annotations: BTreeMap::from([("a".into(), "b".into())]),
            ..Overrides::default()
        },
        log: Some(log.clone()),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve(options, async { drop(stopped.await) }))
    });
    crate::wait::until_true("the registration", || file.exists());
    let registered: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(registered["remote-endpoint"], json!(socket));
    assert_eq!(registered["failure-policy"], "Fail");
    assert_eq!(registered["runtime-hooks"].as_array().unwrap().len(), 7);

    let asked = LinuxContainerResources { cpu_shares: 500, cpuset_cpus: "0-3".into(), ..Default::default() };
    let request = ContainerResourceHookRequest {
        container_meta: Some(ContainerMetadata { name: "c".into(), ..Default::default() }),
        container_resources: Some(asked.clone()),
        pod_cgroup_parent: "/kubepods".into(),
        container_envs: BTreeMap::from([("E".into(), "1".into())]),
        ..Default::default()
    };
    let client = RawClient::connect(&socket).unwrap();
    let head = CallHead::new("/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook");
    let answer: ContainerResourceHookResponse =
        decode(&client.call(&head, &request.encode_to_vec()).expect_ok());
    assert_eq!(
        answer,
        ContainerResourceHookResponse {
            container_annotations: BTreeMap::from([("a".into(), "b".into())]),
            container_resources: Some(LinuxContainerResources { cpu_shares: 2, cpu_quota: -1, ..asked }),
            pod_cgroup_parent: "/kubepods".into(),
            container_envs: request.container_envs,
        }
    );
    let line: Value = serde_json::from_str(std::fs::read_to_string(&log).unwrap().trim()).unwrap();
    assert_eq!((&line["hook"], &line["container"]), (&json!("PreCreateContainer"), &json!("c")));
    assert_eq!((&line["asked"]["cpu_shares"], &line["answered"]["cpu_shares"]), (&json!(500), &json!(2)));
    assert!(line.to_string().find("\"E\"").is_none(), "environment values stay out of the log");

    client.peer().close();
    stop.send(()).unwrap();
    crate::wait::until("the end", Duration::from_secs(10), || server.is_finished().then_some(()));
    server.join().unwrap().unwrap();
    assert!(!file.exists() && !socket.exists());
}

#[test]
fn nothing_to_set_echoes() {
    let request = PodSandboxHookRequest { cgroup_parent: "/p".into(), ..Default::default() };
    assert_eq!(Overrides::default().pod(request).cgroup_parent, "/p");
    let response = Overrides::default().container(ContainerResourceHookRequest::default());
    assert_eq!(response, ContainerResourceHookResponse::default());
    let moved = Overrides { cgroup_parent: Some("/q".into()), ..Overrides::default() };
    assert_eq!(moved.pod(PodSandboxHookRequest::default()).cgroup_parent, "/q");
}
