//! Pods, containers and the values of their fields.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One pod sandbox, an item of the answer of `GET /qos/pods`. Items are ordered by namespace, name and id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodEntry {
    /// Sandbox id the runtime gave.
    pub id: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod in the API server.
    pub uid: String,
    /// QoS class as the label `koordinator.sh/qosClass` says it; empty without a valid label.
    pub qos: String,
    /// QoS class the rules use: the label's, or the one that follows from the Kubernetes QoS class.
    pub effective_qos: String,
    /// Kubernetes QoS class: `Guaranteed`, `Burstable` or `BestEffort`.
    pub kube_qos: String,
    /// Priority class such as `koord-prod`; empty if none is known.
    pub priority_class: String,
    /// Directory of the pod below the mount point of the cgroup file system.
    pub cgroup: String,
    /// The pod's own fields.
    pub fields: Vec<FieldEntry>,
    /// What rules could not do for the pod.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// Containers, in the order they were created.
    pub containers: Vec<ContainerEntry>,
}

/// One container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerEntry {
    /// Container id the runtime gave.
    pub id: String,
    /// Name of the container in the pod.
    pub name: String,
    /// Directory of the container below the mount point of the cgroup file system; empty while it has none.
    pub cgroup: String,
    /// Where the container is in its life.
    pub state: ContainerState,
    /// The container's fields.
    pub fields: Vec<FieldEntry>,
    /// What rules could not do for the container.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerState {
    /// Created, not started.
    Created,
    /// Started.
    Running,
    /// Ended, not removed.
    Stopped,
    /// Not known, for example just after the proxy was started.
    Unknown,
}

impl fmt::Display for ContainerState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            ContainerState::Created => "created",
            ContainerState::Running => "running",
            ContainerState::Stopped => "stopped",
            ContainerState::Unknown => "unknown",
        })
    }
}

/// One value under the proxy's eyes. Values are texts, exact and as the kernel writes them: `"512"`, `"-1"`,
/// `"0-3"`, `"max"`. `null` means that there is no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldEntry {
    /// Name of the field as the kernel or CRI says it, such as `cpu.shares` or `oom_score_adj`.
    pub field: String,
    /// What the kubelet asked for; `null` if it asked for nothing.
    pub asked: Option<String>,
    /// What the runtime was told, or what was written to the kernel; `null` if nothing was.
    pub sent: Option<String>,
    /// What the kernel said when it was last read; `null` if it was not read or has no such file.
    pub found: Option<String>,
    /// Who decided the value: a rule, a hook, or `kubelet`.
    pub owner: String,
    /// Why the value is what it is, in words.
    pub reason: String,
    /// What the owner wants, where that was not sent: in shadow mode, or not yet. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wished: Option<String>,
}

/// Something a rule could not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The rule, such as `CPUSetAllocator`.
    pub rule: String,
    /// What is wrong, in words, with the value.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"[{"id":"5f3a","namespace":"default","name":"web","uid":"u-1","qos":"","effectiveQos":"LS","kubeQos":"Burstable","priorityClass":"","cgroup":"/kubepods/burstable/podu-1","fields":[],"problems":[{"rule":"CPUSetAllocator","message":"bad"}],"containers":[{"id":"77aa","name":"app","cgroup":"/kubepods/burstable/podu-1/77aa","state":"running","fields":[{"field":"cpu.shares","asked":"512","sent":"1024","found":"1024","owner":"BatchResource","reason":"because"},{"field":"cpu.idle","asked":null,"sent":null,"found":"0","owner":"GroupIdentity","reason":"shadow","wished":"1"}],"problems":[]}]}]"#;

    fn pods() -> Vec<PodEntry> {
        vec![PodEntry {
            id: "5f3a".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            uid: "u-1".to_owned(),
            qos: String::new(),
            effective_qos: "LS".to_owned(),
            kube_qos: "Burstable".to_owned(),
            priority_class: String::new(),
            cgroup: "/kubepods/burstable/podu-1".to_owned(),
            fields: Vec::new(),
            problems: vec![Problem { rule: "CPUSetAllocator".to_owned(), message: "bad".to_owned() }],
            containers: vec![ContainerEntry {
                id: "77aa".to_owned(),
                name: "app".to_owned(),
                cgroup: "/kubepods/burstable/podu-1/77aa".to_owned(),
                state: ContainerState::Running,
                fields: vec![
                    FieldEntry {
                        field: "cpu.shares".to_owned(),
                        asked: Some("512".to_owned()),
                        sent: Some("1024".to_owned()),
                        found: Some("1024".to_owned()),
                        owner: "BatchResource".to_owned(),
                        reason: "because".to_owned(),
                        wished: None,
                    },
                    FieldEntry {
                        field: "cpu.idle".to_owned(),
                        asked: None,
                        sent: None,
                        found: Some("0".to_owned()),
                        owner: "GroupIdentity".to_owned(),
                        reason: "shadow".to_owned(),
                        wished: Some("1".to_owned()),
                    },
                ],
                problems: Vec::new(),
            }],
        }]
    }

    #[test]
    fn the_text_is_frozen() {
        assert_eq!(serde_json::to_string(&pods()).unwrap(), TEXT);
        assert_eq!(serde_json::from_str::<Vec<PodEntry>>(TEXT).unwrap(), pods());
    }

    #[test]
    fn problems_and_wishes_may_be_left_out() {
        let text = TEXT.replace(r#","problems":[]"#, "").replace(r#","wished":"1""#, r#","wished":null"#);
        let read: Vec<PodEntry> = serde_json::from_str(&text).unwrap();
        assert_eq!(read[0].containers[0].fields[1].wished, None);
        assert_eq!(read[0].containers[0].problems, []);
    }

    #[test]
    fn states_are_written_as_they_are_said() {
        use ContainerState::{Created, Running, Stopped, Unknown};
        for state in [Created, Running, Stopped, Unknown] {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
    }
}
