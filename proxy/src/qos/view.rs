//! What operators are shown: the answers of the admin endpoints about quality of service.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use koord_admin::{
    Backend, CgroupStatus, ContainerEntry, ContainerState, Counts, FieldEntry, NodeStatus, PodEntry, Problem,
    RuntimeStatus, Timestamp,
};
use koord_cgroup::path::CgroupPath;
use koord_extension::priority::{PriorityBands, PriorityClass};
use koord_extension::qos::{KubeQos, QosClass};
use koord_intercept::record::{ContainerRecord, PodRecord};

use super::acts;
use super::apply::resource_of;
use super::ledger::{KUBELET, Level, Text};
use super::{Qos, locked};

impl Qos {
    /// The policy in force and the state of its file.
    pub fn policy_status(&self) -> koord_admin::PolicyStatus {
        locked(&self.state).policy.status()
    }

    /// The state of the node.
    pub fn status(&self, runtime: RuntimeStatus) -> NodeStatus {
        let node = self.node();
        let (pods, containers) = self.store.len();
        let sums = self.ledger().sums();
        let executor = self.executor();
        let layout = executor.layout();
        let backends = koord_rules::node(&node.view)
            .backends
            .into_iter()
            .map(|choice| Backend {
                intent: choice.intent.to_owned(),
                backend: choice.backend.to_owned(),
                reason: choice.reason.to_owned(),
            })
            .collect();
        NodeStatus {
            mode: self.mode(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy: locked(&self.state).policy.status(),
            cgroup: CgroupStatus {
                root: layout.root().display().to_string(),
                version: layout.version().as_str().to_owned(),
                driver: layout.driver().as_str().to_owned(),
                kubelet_root: format!("/{}", layout.kubepods().as_str().trim_start_matches('/')),
                weight_conversion: executor.conversion().as_str().to_owned(),
            },
            backends,
            runtime,
            counts: Counts {
                pods: pods as u64,
                containers: containers as u64,
                fields: sums.fields,
                changed: sums.changed,
                conflicts: self.conflicts.load(Ordering::Relaxed),
            },
            last_reconcile: locked(&self.last_reconcile).map(Timestamp::from_system_time),
        }
    }

    /// Pods with their containers and fields, found values read from the kernel now. Blocks.
    pub fn pods(&self) -> Vec<PodEntry> {
        let mut containers: BTreeMap<String, Vec<ContainerEntry>> = BTreeMap::new();
        let mut known = self.store.containers();
        known.sort_by(|a, b| {
            (&a.1.container.metadata.name, a.1.container.metadata.attempt, &a.0).cmp(&(
                &b.1.container.metadata.name,
                b.1.container.metadata.attempt,
                &b.0,
            ))
        });
        for (id, known) in known {
            let entry = self.container_entry(&id, &known.container, &known.pod);
            containers.entry(known.container.pod_id.clone()).or_default().push(entry);
        }
        let mut pods: Vec<PodEntry> = self
            .store
            .pods()
            .into_iter()
            .map(|(id, pod)| {
                let containers = containers.remove(&id).unwrap_or_default();
                self.pod_entry(id, &pod, containers)
            })
            .collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name, &a.id).cmp(&(&b.namespace, &b.name, &b.id)));
        pods
    }

    fn pod_entry(&self, id: String, pod: &PodRecord, containers: Vec<ContainerEntry>) -> PodEntry {
        let path = self.pod_path(pod);
        let level = self.ledger().pod(&id);
        let mut fields = self.fields(level.as_deref(), path.as_ref());
        if let Some(path) = self.sandbox_path(&id, pod) {
            for entry in &mut fields {
                if let Some(field) = acts::field_of_sandbox(&entry.field) {
                    entry.found = self.found(&path, field);
                }
            }
        }
        let kube_qos = KubeQos::of_cgroup_path(&pod.cgroup_parent);
        let raw = QosClass::raw(&pod.labels);
        let priority = PriorityBands::default().raw(&pod.labels, None);
        PodEntry {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            qos: raw.map_or("", QosClass::as_str).to_owned(),
            effective_qos: QosClass::with_default(raw, kube_qos).as_str().to_owned(),
            kube_qos: kube_qos.as_str().to_owned(),
            priority_class: priority.map_or("", PriorityClass::as_str).to_owned(),
            cgroup: shown(path.as_ref()),
            fields,
            problems: problems(level.as_deref()),
            containers,
            id,
        }
    }

    fn container_entry(&self, id: &str, container: &ContainerRecord, pod: &PodRecord) -> ContainerEntry {
        let path = self.container_path(id, container, pod).filter(|path| self.executor().exists(path));
        let level = self.ledger().container(id);
        let state = match (&container.stopped, &path) {
            (Some(_), _) => ContainerState::Stopped,
            (None, Some(_)) => ContainerState::Running,
            (None, None) if self.pod_path(pod).is_some() => ContainerState::Created,
            (None, None) => ContainerState::Unknown,
        };
        ContainerEntry {
            id: id.to_owned(),
            name: container.metadata.name.clone(),
            cgroup: shown(path.as_ref()),
            state,
            fields: self.fields(level.as_deref(), path.as_ref()),
            problems: problems(level.as_deref()),
        }
    }

    fn fields(&self, level: Option<&Level>, path: Option<&CgroupPath>) -> Vec<FieldEntry> {
        let Some(level) = level else { return Vec::new() };
        let text = |value: &Option<Text>| value.as_deref().map(str::to_owned);
        level
            .entries
            .iter()
            .map(|entry| FieldEntry {
                field: entry.field.to_string(),
                asked: text(&entry.asked),
                sent: text(&entry.sent),
                found: path.and_then(|path| self.found(path, &entry.field)),
                owner: if entry.is_owned() { entry.owner.to_string() } else { KUBELET.to_owned() },
                reason: entry.reason.to_string(),
                wished: text(&entry.wished),
            })
            .collect()
    }

    /// What the kernel has for a field now.
    fn found(&self, path: &CgroupPath, field: &str) -> Option<String> {
        if field == "oom_score_adj" {
            return acts::found_score(&self.executor(), path, &self.fixed.machine.proc_root);
        }
        let resource = resource_of(field)?;
        self.executor().read(path, resource).ok().map(|value| value.to_string())
    }
}

fn problems(level: Option<&Level>) -> Vec<Problem> {
    let problems = level.map(|level| level.problems.as_slice()).unwrap_or_default();
    problems
        .iter()
        .map(|problem| Problem { rule: problem.rule.to_string(), message: problem.message.to_string() })
        .collect()
}

fn shown(path: Option<&CgroupPath>) -> String {
    path.map(|path| format!("/{}", path.as_str().trim_start_matches('/'))).unwrap_or_default()
}
