use std::collections::BTreeMap;

use prost::Message;

use crate::v1alpha1::{
    ContainerMetadata, ContainerResourceHookRequest, HugepageLimit, LinuxContainerResources,
    PodSandboxHookRequest, PodSandboxHookResponse, PodSandboxMetadata,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn pod() -> PodSandboxMetadata {
    PodSandboxMetadata { name: "p".into(), uid: "u".into(), namespace: "n".into(), attempt: 0 }
}

#[test]
fn pod_request_bytes() {
    let request = PodSandboxHookRequest {
        pod_meta: Some(pod()),
        runtime_handler: "runc".into(),
        labels: map(&[("a", "1")]),
        annotations: map(&[("x", "y")]),
        cgroup_parent: "/kubepods".into(),
        overhead: None,
        resources: None,
    };
    assert_eq!(
        hex(&request.encode_to_vec()),
        "0a090a01701201751a016e120472756e631a060a016112013122060a01781201792a092f6b756265706f6473"
    );
}

#[test]
fn container_request_bytes() {
    let request = ContainerResourceHookRequest {
        pod_meta: Some(pod()),
        container_meta: Some(ContainerMetadata { name: "c".into(), attempt: 1, id: String::new() }),
        container_resources: Some(LinuxContainerResources::default()),
        pod_cgroup_parent: "/kp".into(),
        container_envs: map(&[("A", "1")]),
        ..Default::default()
    };
    assert_eq!(
        hex(&request.encode_to_vec()),
        "0a090a01701201751a016e12050a01631001220042032f6b704a060a0141120131"
    );
}

#[test]
fn pod_response_is_read() {
    let bytes = [
        0x12, 0x06, 0x0a, 0x01, b'k', 0x12, 0x01, b'v', 0x1a, 0x08, b'/', b'o', b'f', b'f', b'l', b'i', b'n',
        b'e',
    ];
    let response = PodSandboxHookResponse::decode(&bytes[..]).unwrap();
    assert_eq!(response.annotations, map(&[("k", "v")]));
    assert_eq!(response.cgroup_parent, "/offline");
    assert_eq!(response.labels, BTreeMap::new());
    assert_eq!(response.resources, None);
}

/// Every field has the number and the type of the protocol.
#[test]
fn resource_field_numbers() {
    let resources = LinuxContainerResources {
        cpu_period: 1,
        cpu_quota: -1,
        cpu_shares: 3,
        memory_limit_in_bytes: 4,
        oom_score_adj: 5,
        cpuset_cpus: "6".into(),
        cpuset_mems: "7".into(),
        hugepage_limits: vec![HugepageLimit { page_size: "s".into(), limit: 8 }],
        unified: map(&[("b", "2"), ("a", "1")]),
        memory_swap_limit_in_bytes: 10,
    };
    assert_eq!(
        hex(&resources.encode_to_vec()),
        "0801\
         10ffffffffffffffffff01\
         1803\
         2004\
         2805\
         320136\
         3a0137\
         42050a01731008\
         4a060a0161120131\
         4a060a0162120132\
         500a"
    );
}
