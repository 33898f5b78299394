//! Requests as built-in rules change them.

use koord_cri::v1;

use super::*;

fn linux(resources: v1::LinuxContainerResources) -> v1::LinuxContainerConfig {
    v1::LinuxContainerConfig { resources: Some(resources), ..Default::default() }
}

fn create(resources: v1::LinuxContainerResources) -> Vec<u8> {
    v1::CreateContainerRequest {
        pod_sandbox_id: "p".into(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "main".into(), attempt: 0 }),
            linux: Some(linux(resources)),
            ..Default::default()
        }),
        sandbox_config: None,
    }
    .encode_to_vec()
}

fn known() -> Known {
    Known { pod: Some(Arc::new(PodRecord::default())), container: None }
}

fn asked() -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 2,
        cpuset_cpus: "0-3".into(),
        oom_score_adj: 1000,
        ..Default::default()
    }
}

#[test]
fn a_created_container_gets_what_rules_say() {
    let message = create(asked());
    let mut working = Working::from_request(CriMethod::CreateContainer, &message, known()).unwrap();
    let stage = working.stages()[0];
    working.apply(
        stage,
        &ResourcePatch {
            cpu_quota: Some(-1),
            cpu_shares: Some(512),
            memory_limit: Some(1 << 30),
            cpuset_cpus: Some(String::new()),
            unified: [("cpu.idle".into(), "1".into())].into(),
            envs: [("NVIDIA_VISIBLE_DEVICES".into(), "0".into())].into(),
            devices: vec![v1::Device { host_path: "/dev/nvidia0".into(), ..Default::default() }],
            mounts: vec![v1::Mount { host_path: "/lib".into(), ..Default::default() }],
            ..Default::default()
        },
    );
    let sent = working.patch(&message).unwrap().unwrap();
    let config = v1::CreateContainerRequest::decode(sent.as_slice()).unwrap().config.unwrap();
    let resources = config.linux.unwrap().resources.unwrap();
    let expected = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: -1,
        cpu_shares: 512,
        memory_limit_in_bytes: 1 << 30,
        cpuset_cpus: String::new(),
        oom_score_adj: 1000,
        unified: [("cpu.idle".into(), "1".into())].into(),
        ..Default::default()
    };
    assert_eq!(resources, expected);
    assert_eq!(config.envs.len(), 1);
    assert_eq!(
        (config.envs[0].key.as_str(), config.envs[0].value.as_ref()),
        ("NVIDIA_VISIBLE_DEVICES", "0".as_bytes())
    );
    assert_eq!(config.devices[0].host_path, "/dev/nvidia0");
    assert_eq!(config.mounts[0].host_path, "/lib");
    assert_eq!(working.container_at(stage).unwrap().resources.as_ref().unwrap().cpu_shares, 512);
}

#[test]
fn a_partial_answer_keeps_the_environment_it_does_not_name() {
    let message = v1::CreateContainerRequest {
        config: Some(v1::ContainerConfig {
            envs: vec![v1::KeyValue { key: "PATH".into(), value: "/bin".into() }],
            ..Default::default()
        }),
        ..Default::default()
    }
    .encode_to_vec();
    for (resource_merge, names) in
        [(ResourceMerge::Overlay, vec!["GREETING", "PATH"]), (ResourceMerge::Koordinator, vec!["GREETING"])]
    {
        let mut working = Working::from_request(CriMethod::CreateContainer, &message, known()).unwrap();
        let stage = working.stages()[0];
        let answer = ContainerResourceHookResponse {
            container_envs: [("GREETING".into(), "hello".into())].into(),
            ..Default::default()
        };
        let options = ServerOptions { resource_merge, ..Default::default() };
        working.merge(stage, HookAnswer::Container(answer), options).unwrap();
        let sent = working.patch(&message).unwrap().unwrap();
        let config = v1::CreateContainerRequest::decode(sent.as_slice()).unwrap().config.unwrap();
        let mut sent: Vec<&str> = config.envs.iter().map(|env| env.key.as_str()).collect();
        sent.sort_unstable();
        assert_eq!(sent, names, "{resource_merge:?}");
    }
}

#[test]
fn a_patch_that_agrees_with_the_request_changes_no_byte() {
    let message = create(asked());
    let mut working = Working::from_request(CriMethod::CreateContainer, &message, known()).unwrap();
    let stage = working.stages()[0];
    working.apply(stage, &ResourcePatch { cpu_shares: Some(2), ..Default::default() });
    assert_eq!(working.patch(&message).unwrap(), None);
    working.apply(stage, &ResourcePatch::default());
    assert_eq!(working.patch(&message).unwrap(), None);
}

fn update(linux: v1::LinuxContainerResources) -> Vec<u8> {
    v1::UpdateContainerResourcesRequest { container_id: "c".into(), linux: Some(linux), ..Default::default() }
        .encode_to_vec()
}

fn running(resources: LinuxContainerResources) -> Known {
    let container = ContainerRecord { pod_id: "p".into(), resources: Some(resources), ..Default::default() };
    Known { container: Some(Arc::new(container)), ..known() }
}

#[test]
fn an_update_of_the_kubelet_does_not_undo_a_rule() {
    let record = LinuxContainerResources { cpu_shares: 512, cpu_quota: 50_000, ..Default::default() };
    let message = update(v1::LinuxContainerResources {
        cpu_shares: 2,
        memory_limit_in_bytes: 1 << 20,
        ..Default::default()
    });
    let mut working =
        Working::from_request(CriMethod::UpdateContainerResources, &message, running(record)).unwrap();
    let stage = working.stages()[0];
    let rule = ResourcePatch {
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        envs: [("X".into(), "y".into())].into(),
        devices: vec![v1::Device::default()],
        ..Default::default()
    };
    working.apply(stage, &rule);
    let sent = working.patch(&message).unwrap().unwrap();
    let sent = v1::UpdateContainerResourcesRequest::decode(sent.as_slice()).unwrap();
    // The quota is as it was, so nothing need be said of it.
    let expected =
        v1::LinuxContainerResources { cpu_shares: 512, memory_limit_in_bytes: 1 << 20, ..Default::default() };
    assert_eq!(sent.linux.unwrap(), expected);
    assert!(sent.annotations.is_empty());
    assert!(working.container_at(stage).unwrap().envs.is_empty());
}
