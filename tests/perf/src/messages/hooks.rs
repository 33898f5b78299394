//! The messages of the hooks' benchmark: a best-effort pod with batch resources and its container.

use koord_cri::v1;
use koord_hook::v1alpha1::{ContainerResourceHookResponse, LinuxContainerResources};
use koord_testing::cri::{container_config, pod_config};
use prost::Message;

use super::{identity, map};

/// UID of the pod.
pub(crate) const UID: &str = "0f4e2c0e-6f9c-4a53-9f0e-1d1e6b1a7a11";

/// Name of the container.
const NAME: &str = "main";

/// What the example plugin and the hook server make of `cpu.shares`.
const SHARES: i64 = 700;

/// The cgroup that the kubelet gives a best-effort pod.
pub(crate) fn cgroup_parent(uid: &str) -> String {
    format!("/kubepods/besteffort/pod{uid}")
}

/// What the runtime calls the container.
pub(crate) fn container_id() -> String {
    identity(2)
}

/// A best-effort pod whose containers have half a core and a gibibyte of batch resources.
pub(crate) fn pod(name: &str, uid: &str, containers: &[&str]) -> v1::PodSandboxConfig {
    let amounts =
        |cpu: &str| serde_json::json!({"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": "1Gi"});
    let containers: serde_json::Map<String, serde_json::Value> = containers
        .iter()
        .map(|name| {
            let resources = serde_json::json!({"requests": amounts("500"), "limits": amounts("1000")});
            ((*name).to_owned(), resources)
        })
        .collect();
    let batch = serde_json::json!({ "containers": containers }).to_string();
    let mut config = pod_config(name, uid, "default", &cgroup_parent(uid));
    config.labels = map(&[
        ("app", "batch".into()),
        ("koordinator.sh/qosClass", "BE".into()),
        ("koordinator.sh/priority", "5500".into()),
    ]);
    config.annotations = map(&[("node.koordinator.sh/extended-resource-spec", batch)]);
    config
}

/// The pod of the calls that are measured. `exempt` pods carry the label that keeps hooks away.
pub(crate) fn measured_pod(exempt: bool) -> v1::PodSandboxConfig {
    let mut config = pod("batch-5c689d88bb-x2x7z", UID, &[NAME]);
    if exempt {
        config.labels.insert("runtimeproxy.koordinator.sh/skip-hookserver".into(), "true".into());
    }
    config.annotations.insert("example.koordinator.sh/cpu-shares".into(), SHARES.to_string());
    config.annotations.extend((0..7).map(|number| (format!("example.com/note-{number}"), "n".repeat(250))));
    config
}

/// What a kubelet asks of a best-effort container: it does not know batch resources.
fn asked() -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_shares: 2,
        oom_score_adj: 1000,
        ..Default::default()
    }
}

/// A container with environment, mounts and annotations of an ordinary one.
pub(crate) fn container(name: &str, envs: usize) -> v1::ContainerConfig {
    let mut config = container_config(name, asked());
    config.image = Some(v1::ImageSpec { image: format!("sha256:{}", identity(7)), ..Default::default() });
    config.envs = (0..envs)
        .map(|env| v1::KeyValue { key: format!("SERVICE_{env}_HOST"), value: b"10.96.117.21".to_vec() })
        .collect();
    config.mounts = ["data", "config", "token", "hosts", "log"]
        .iter()
        .map(|mount| v1::Mount {
            container_path: format!("/var/run/{mount}"),
            host_path: format!("/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~projected/{mount}"),
            ..Default::default()
        })
        .collect();
    config.labels = map(&[
        ("io.kubernetes.container.name", name.into()),
        ("io.kubernetes.pod.name", "batch-5c689d88bb-x2x7z".into()),
        ("io.kubernetes.pod.namespace", "default".into()),
        ("io.kubernetes.pod.uid", UID.into()),
    ]);
    config.annotations = map(&[
        ("io.kubernetes.container.hash", "1f2e3d4c".into()),
        ("io.kubernetes.container.restartCount", "0".into()),
        ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log".into()),
        ("io.kubernetes.container.terminationMessagePolicy", "File".into()),
        ("io.kubernetes.pod.terminationGracePeriod", "30".into()),
    ]);
    config
}

pub(super) fn create() -> v1::CreateContainerRequest {
    let mut config = container(NAME, 60);
    config.annotations.extend((0..6).map(|number| (format!("example.com/own-{number}"), "o".repeat(212))));
    v1::CreateContainerRequest {
        pod_sandbox_id: identity(1),
        config: Some(config),
        sandbox_config: Some(measured_pod(false)),
    }
}

pub(super) fn update() -> v1::UpdateContainerResourcesRequest {
    v1::UpdateContainerResourcesRequest {
        container_id: container_id(),
        linux: Some(asked()),
        annotations: (0..20).map(|number| (format!("example.com/note-{number}"), "n".repeat(310))).collect(),
        ..Default::default()
    }
}

/// The hook server's answer: the same as the example plugin's to an update.
pub(super) fn server_answer() -> Vec<u8> {
    ContainerResourceHookResponse {
        container_resources: Some(LinuxContainerResources { cpu_shares: SHARES, ..Default::default() }),
        ..Default::default()
    }
    .encode_to_vec()
}
