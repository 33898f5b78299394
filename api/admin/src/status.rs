//! State of the node's QoS machinery.

use serde::{Deserialize, Serialize};

use crate::{Mode, Timestamp};

/// Answer of `GET /qos/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Whether rules act.
    pub mode: Mode,
    /// Release of the proxy.
    pub version: String,
    /// The node policy.
    pub policy: PolicyStatus,
    /// The cgroup tree in use.
    pub cgroup: CgroupStatus,
    /// How each intent is carried out on this kernel.
    pub backends: Vec<Backend>,
    /// The container runtime behind the proxy.
    pub runtime: RuntimeStatus,
    /// What the proxy knows and has changed.
    pub counts: Counts,
    /// End of the last comparison of values wanted with values found; `null` before the first.
    pub last_reconcile: Option<Timestamp>,
}

/// Where the node policy in force comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PolicyState {
    /// The file as it is now.
    #[serde(rename = "in force")]
    InForce,
    /// An earlier form of the file: what it holds now was refused.
    #[serde(rename = "last good")]
    LastGood,
    /// The built-in defaults: there is no file, or it never was acceptable.
    #[serde(rename = "default")]
    Default,
}

impl PolicyState {
    /// The text used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyState::InForce => "in force",
            PolicyState::LastGood => "last good",
            PolicyState::Default => "default",
        }
    }
}

/// The node policy: what the node should do for each QoS class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// Path of the policy file, absolute.
    pub file: String,
    /// Where the policy in force comes from.
    pub state: PolicyState,
    /// Grows by one with each accepted policy; 0 for the built-in defaults.
    pub generation: u64,
    /// When the policy in force was accepted; `null` for the built-in defaults.
    pub loaded_at: Option<Timestamp>,
    /// Why the file as it is now was refused, one sentence for each mistake; empty if it was not.
    #[serde(default)]
    pub errors: Vec<String>,
}

/// The cgroup tree in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CgroupStatus {
    /// Mount point of the cgroup file systems, absolute.
    pub root: String,
    /// `v1` or `v2`.
    pub version: String,
    /// `systemd` or `cgroupfs`.
    pub driver: String,
    /// Directory below the mount point under which the kubelet keeps pods, such as `/kubepods.slice`.
    pub kubelet_root: String,
    /// How `cpu.shares` become `cpu.weight` on v2: `linear` or `quadratic`.
    pub weight_conversion: String,
}

/// How one intent is carried out on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// What is to be reached, such as `best-effort CPU`.
    pub intent: String,
    /// The means chosen, such as `cpu.idle`, or `off`.
    pub backend: String,
    /// Why this one, in words.
    pub reason: String,
}

/// The container runtime behind the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStatus {
    /// The proxy's own connection to the runtime stands.
    pub connected: bool,
    /// Name the runtime gives itself, such as `containerd`; empty if it was never reached.
    pub name: String,
    /// Version the runtime gives itself; empty if it was never reached.
    pub version: String,
}

/// What the proxy knows and has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Pods known.
    pub pods: u64,
    /// Containers known.
    pub containers: u64,
    /// Fields recorded, over all pods and containers.
    pub fields: u64,
    /// Fields whose value is not what the kubelet asked for (in shadow mode: would not be).
    pub changed: u64,
    /// Fields in which another program's value was found in the place of the proxy's.
    pub conflicts: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"mode":"enforce","version":"0.1.0","policy":{"file":"/etc/koord/node-slo.yaml","state":"last good","generation":3,"loadedAt":"2026-07-01T12:00:00Z","errors":["beClass.cpuQOS.groupIdentity: 7 is not accepted; -1 to 2"]},"cgroup":{"root":"/sys/fs/cgroup","version":"v2","driver":"systemd","kubeletRoot":"/kubepods.slice","weightConversion":"quadratic"},"backends":[{"intent":"best-effort CPU","backend":"cpu.idle","reason":"the kernel has no cpu.bvt_warp_ns"}],"runtime":{"connected":true,"name":"containerd","version":"2.1.4"},"counts":{"pods":2,"containers":3,"fields":12,"changed":4,"conflicts":1},"lastReconcile":null}"#;

    fn status() -> NodeStatus {
        NodeStatus {
            mode: Mode::Enforce,
            version: "0.1.0".to_owned(),
            policy: PolicyStatus {
                file: "/etc/koord/node-slo.yaml".to_owned(),
                state: PolicyState::LastGood,
                generation: 3,
                loaded_at: Some(Timestamp::from_unix_seconds(1_782_907_200)),
                errors: vec!["beClass.cpuQOS.groupIdentity: 7 is not accepted; -1 to 2".to_owned()],
            },
            cgroup: CgroupStatus {
                root: "/sys/fs/cgroup".to_owned(),
                version: "v2".to_owned(),
                driver: "systemd".to_owned(),
                kubelet_root: "/kubepods.slice".to_owned(),
                weight_conversion: "quadratic".to_owned(),
            },
            backends: vec![Backend {
                intent: "best-effort CPU".to_owned(),
                backend: "cpu.idle".to_owned(),
                reason: "the kernel has no cpu.bvt_warp_ns".to_owned(),
            }],
            runtime: RuntimeStatus {
                connected: true,
                name: "containerd".to_owned(),
                version: "2.1.4".to_owned(),
            },
            counts: Counts { pods: 2, containers: 3, fields: 12, changed: 4, conflicts: 1 },
            last_reconcile: None,
        }
    }

    #[test]
    fn the_text_is_frozen() {
        assert_eq!(serde_json::to_string(&status()).unwrap(), TEXT);
        assert_eq!(serde_json::from_str::<NodeStatus>(TEXT).unwrap(), status());
    }

    #[test]
    fn keys_of_a_newer_proxy_are_ignored() {
        let newer = TEXT.replacen('{', r#"{"new":[1],"#, 1);
        assert_eq!(serde_json::from_str::<NodeStatus>(&newer).unwrap(), status());
    }

    #[test]
    fn states_are_written_as_they_are_said() {
        for state in [PolicyState::InForce, PolicyState::LastGood, PolicyState::Default] {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.as_str()));
        }
    }
}
