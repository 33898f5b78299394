use prost::Message;

use super::*;
use crate::v1;

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn resources() -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: 1,
        cpu_quota: -1,
        cpu_shares: 3,
        memory_limit_in_bytes: 4,
        oom_score_adj: -999,
        cpuset_cpus: "6".into(),
        cpuset_mems: "7".into(),
        hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".into(), limit: u64::MAX }],
        unified: map(&[("memory.high", "9")]),
        memory_swap_limit_in_bytes: 10,
    }
}

fn resources_view() -> Resources<'static> {
    Resources {
        cpu_period: 1,
        cpu_quota: -1,
        cpu_shares: 3,
        memory_limit_in_bytes: 4,
        oom_score_adj: -999,
        cpuset_cpus: "6",
        cpuset_mems: "7",
        hugepage_limits: vec![HugepageLimit { page_size: "2MB", limit: u64::MAX }],
        unified: [("memory.high", "9")].into(),
        memory_swap_limit_in_bytes: 10,
    }
}

fn pod() -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "p".into(),
            uid: "u".into(),
            namespace: "n".into(),
            attempt: 2,
        }),
        labels: map(&[("l", "1")]),
        annotations: map(&[("a", "1")]),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: "/kp".into(),
            overhead: Some(v1::LinuxContainerResources { cpu_shares: 5, ..Default::default() }),
            resources: Some(resources()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn pod_view() -> PodConfig<'static> {
    PodConfig {
        metadata: PodMetadata { name: "p", uid: "u", namespace: "n", attempt: 2 },
        labels: [("l", "1")].into(),
        annotations: [("a", "1")].into(),
        linux: Some(PodLinux {
            cgroup_parent: "/kp",
            overhead: Some(Resources { cpu_shares: 5, ..Default::default() }),
            resources: Some(resources_view()),
        }),
    }
}

fn container() -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 1 }),
        envs: vec![
            v1::KeyValue { key: "A".into(), value: b"1".into() },
            v1::KeyValue { key: "B".into(), value: b"\xff".into() },
            v1::KeyValue { key: "A".into(), value: b"2".into() },
        ],
        labels: map(&[("l", "1")]),
        annotations: map(&[("a", "1")]),
        linux: Some(v1::LinuxContainerConfig { resources: Some(resources()), ..Default::default() }),
        ..Default::default()
    }
}

fn container_view() -> ContainerConfig<'static> {
    ContainerConfig {
        name: "c",
        attempt: 1,
        envs: vec![
            KeyValue { key: b"A", value: b"1" },
            KeyValue { key: b"B", value: b"\xff" },
            KeyValue { key: b"A", value: b"2" },
        ],
        annotations: [("a", "1")].into(),
        resources: Some(resources_view()),
    }
}

#[test]
fn run_and_restore() {
    let run =
        v1::RunPodSandboxRequest { config: Some(pod()), runtime_handler: "runc".into() }.encode_to_vec();
    assert_eq!(
        RunPodSandbox::read(&run).unwrap(),
        RunPodSandbox { config: pod_view(), runtime_handler: "runc" }
    );

    let restore = v1::RestorePodRequest {
        checkpoint_path: "/c".into(),
        config: Some(pod()),
        runtime_handler: "runc".into(),
        container_configs: vec![container(), v1::ContainerConfig::default()],
        ..Default::default()
    }
    .encode_to_vec();
    assert_eq!(
        RestorePod::read(&restore).unwrap(),
        RestorePod {
            config: pod_view(),
            runtime_handler: "runc",
            container_configs: vec![container_view(), ContainerConfig::default()],
        }
    );
}

#[test]
fn create_and_update() {
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: "s".into(),
        config: Some(container()),
        sandbox_config: Some(pod()),
    }
    .encode_to_vec();
    assert_eq!(
        CreateContainer::read(&create).unwrap(),
        CreateContainer { pod_id: "s", config: container_view(), sandbox_config: pod_view() }
    );

    let update = v1::UpdateContainerResourcesRequest {
        container_id: "c".into(),
        linux: Some(resources()),
        annotations: map(&[("a", "1")]),
        ..Default::default()
    }
    .encode_to_vec();
    assert_eq!(
        UpdateContainerResources::read(&update).unwrap(),
        UpdateContainerResources {
            container_id: "c",
            linux: Some(resources_view()),
            annotations: [("a", "1")].into(),
        }
    );

    let pod_update = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: "s".into(),
        overhead: None,
        resources: Some(resources()),
    }
    .encode_to_vec();
    assert_eq!(
        UpdatePodSandboxResources::read(&pod_update).unwrap(),
        UpdatePodSandboxResources { pod_id: "s", overhead: None, resources: Some(resources_view()) }
    );
}

#[test]
fn identifiers() {
    let stop = v1::StopContainerRequest { container_id: "c".into(), timeout: 30 }.encode_to_vec();
    assert_eq!(Identified::read(&stop).unwrap().id, "c");
    let restored = v1::RestorePodResponse {
        pod_sandbox_id: "s".into(),
        restored_containers: vec![v1::RestoredContainer { name: "n".into(), container_id: "c".into() }],
    }
    .encode_to_vec();
    assert_eq!(
        Restored::read(&restored).unwrap(),
        Restored { pod_id: "s", containers: vec![RestoredContainer { name: "n", container_id: "c" }] }
    );
}

#[test]
fn the_last_text_value_of_a_variable_counts() {
    assert_eq!(container_view().text_envs(), [("A", "2")].into());
    let hidden = ContainerConfig {
        envs: vec![KeyValue { key: b"A", value: b"1" }, KeyValue { key: b"A", value: b"\xff" }],
        ..Default::default()
    };
    assert_eq!(hidden.text_envs(), TextMap::new());
}

#[test]
fn parts_of_a_message_are_merged() {
    let first = v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig { labels: map(&[("a", "1"), ("b", "1")]), ..pod() }),
        runtime_handler: "one".into(),
    };
    let second = v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig {
            labels: map(&[("b", "2")]),
            linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: "/new".into(), ..Default::default() }),
            ..Default::default()
        }),
        runtime_handler: "two".into(),
    };
    let both = [first.encode_to_vec(), second.encode_to_vec()].concat();
    let view = RunPodSandbox::read(&both).unwrap();
    assert_eq!(view.runtime_handler, "two");
    assert_eq!(view.config.labels, [("a", "1"), ("b", "2")].into());
    assert_eq!(view.config.cgroup_parent(), "/new");
    assert_eq!(view.config.metadata, pod_view().metadata);
    assert_eq!(view.config.linux.unwrap().resources, Some(resources_view()));
}

#[test]
fn malformed_parts_are_errors() {
    // The pod's name is a number.
    assert_eq!(
        RunPodSandbox::read(&[0x0a, 0x04, 0x0a, 0x02, 0x08, 0x01]),
        Err(WireError::Mismatch { field: 1 })
    );
    // The runtime handler is not UTF-8.
    assert_eq!(RunPodSandbox::read(&[0x12, 0x01, 0xff]), Err(WireError::Text { field: 2 }));
    // An unknown field may hold anything.
    assert_eq!(RunPodSandbox::read(&[0x7a, 0x01, 0xff]), Ok(RunPodSandbox::default()));
    assert_eq!(RunPodSandbox::read(&[0x0a, 0x05, 0x00]), Err(WireError::Length { offset: 1 }));
}

/// The protocol has the methods the relay was designed for.
#[test]
fn every_method_of_the_protocol_is_there() {
    let proto = include_str!("../../proto/runtime/v1/api.proto");
    let methods = |service: &str| {
        let body =
            proto.split(&format!("service {service} {{")).nth(1).unwrap().split("\n}\n").next().unwrap();
        body.lines().filter(|line| line.trim_start().starts_with("rpc ")).count()
    };
    assert_eq!(methods("RuntimeService"), 37);
    assert_eq!(methods("ImageService"), 6);
}
