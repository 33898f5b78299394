//! Which pod or container a text means.

use crate::{ContainerEntry, PodEntry};

/// Fewest characters of an id that may stand for it.
pub const SHORTEST_PREFIX: usize = 4;

/// What a text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected<'a> {
    /// A pod with all its containers.
    Pod(&'a PodEntry),
    /// One container of a pod.
    Container(&'a PodEntry, &'a ContainerEntry),
}

impl<'a> Selected<'a> {
    /// The pod, or the container's pod.
    pub fn pod(self) -> &'a PodEntry {
        match self {
            Selected::Pod(pod) | Selected::Container(pod, _) => pod,
        }
    }
}

/// What `text` means among `pods`. The first of these that fits anything decides:
///
/// 1. the id of a pod or container,
/// 2. the UID of a pod,
/// 3. `NAMESPACE/NAME` of a pod,
/// 4. the name of a pod,
/// 5. `NAMESPACE/NAME/CONTAINER`, or `NAME/CONTAINER`,
/// 6. the beginning of an id, at least [`SHORTEST_PREFIX`] characters,
/// 7. the name of a container.
///
/// More than one item means that the text is not enough to tell: a pod may have several sandboxes while it is
/// replaced, and names repeat in other namespaces.
pub fn select<'a>(pods: &'a [PodEntry], text: &str) -> Vec<Selected<'a>> {
    let readings: [&dyn Fn() -> Vec<Selected<'a>>; 7] = [
        &|| matching(pods, |pod| pod.id == text, |_, container| container.id == text),
        &|| matching(pods, |pod| pod.uid == text, |_, _| false),
        &|| matching(pods, |pod| is_path(text, &[&pod.namespace, &pod.name]), |_, _| false),
        &|| matching(pods, |pod| pod.name == text, |_, _| false),
        &|| {
            matching(
                pods,
                |_| false,
                |pod, container| {
                    is_path(text, &[&pod.namespace, &pod.name, &container.name])
                        || is_path(text, &[&pod.name, &container.name])
                },
            )
        },
        &|| {
            let begins = |id: &str| text.len() >= SHORTEST_PREFIX && id.starts_with(text);
            matching(pods, |pod| begins(&pod.id), |_, container| begins(&container.id))
        },
        &|| matching(pods, |_| false, |_, container| container.name == text),
    ];
    if text.is_empty() {
        return Vec::new();
    }
    readings.iter().map(|reading| reading()).find(|found| !found.is_empty()).unwrap_or_default()
}

/// The pods that `text` may mean, for an answer: pods of [`select`], each once.
pub fn filter(pods: Vec<PodEntry>, text: &str) -> Vec<PodEntry> {
    let kept: Vec<String> = select(&pods, text).into_iter().map(|found| found.pod().id.clone()).collect();
    pods.into_iter().filter(|pod| kept.contains(&pod.id)).collect()
}

fn matching<'a>(
    pods: &'a [PodEntry],
    pod_fits: impl Fn(&PodEntry) -> bool,
    container_fits: impl Fn(&PodEntry, &ContainerEntry) -> bool,
) -> Vec<Selected<'a>> {
    let mut found = Vec::new();
    for pod in pods {
        if pod_fits(pod) {
            found.push(Selected::Pod(pod));
        }
        let containers = pod.containers.iter().filter(|container| container_fits(pod, container));
        found.extend(containers.map(|container| Selected::Container(pod, container)));
    }
    found
}

fn is_path(text: &str, parts: &[&str]) -> bool {
    text.split('/').eq(parts.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContainerState;

    fn pod(id: &str, namespace: &str, name: &str, uid: &str, containers: &[(&str, &str)]) -> PodEntry {
        PodEntry {
            id: id.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            qos: String::new(),
            effective_qos: "LS".to_owned(),
            kube_qos: "Burstable".to_owned(),
            priority_class: String::new(),
            cgroup: String::new(),
            fields: Vec::new(),
            problems: Vec::new(),
            containers: containers
                .iter()
                .map(|(id, name)| ContainerEntry {
                    id: (*id).to_owned(),
                    name: (*name).to_owned(),
                    cgroup: String::new(),
                    state: ContainerState::Running,
                    fields: Vec::new(),
                    problems: Vec::new(),
                })
                .collect(),
        }
    }

    fn pods() -> Vec<PodEntry> {
        vec![
            pod("aaaa1111", "default", "web", "uid-1", &[("cccc1111", "app"), ("cccc2222", "proxy")]),
            pod("aaaa2222", "other", "web", "uid-2", &[("cccc3333", "app")]),
            pod("bbbb1111", "other", "app", "uid-3", &[("aaaa3333", "main")]),
        ]
    }

    fn shown(text: &str) -> Vec<String> {
        select(&pods(), text)
            .into_iter()
            .map(|found| match found {
                Selected::Pod(pod) => pod.id.clone(),
                Selected::Container(pod, container) => format!("{}:{}", pod.id, container.id),
            })
            .collect()
    }

    #[test]
    fn what_texts_mean() {
        let table: [(&str, &[&str]); 17] = [
            ("aaaa1111", &["aaaa1111"]),
            ("cccc3333", &["aaaa2222:cccc3333"]),
            ("uid-2", &["aaaa2222"]),
            ("other/web", &["aaaa2222"]),
            ("web", &["aaaa1111", "aaaa2222"]),
            // The name of a pod comes before that of a container.
            ("app", &["bbbb1111"]),
            ("default/web/app", &["aaaa1111:cccc1111"]),
            ("web/app", &["aaaa1111:cccc1111", "aaaa2222:cccc3333"]),
            ("web/proxy", &["aaaa1111:cccc2222"]),
            ("aaaa", &["aaaa1111", "aaaa2222", "bbbb1111:aaaa3333"]),
            ("aaa", &[]),
            ("aaaa3", &["bbbb1111:aaaa3333"]),
            ("bbbb", &["bbbb1111"]),
            ("proxy", &["aaaa1111:cccc2222"]),
            ("main", &["bbbb1111:aaaa3333"]),
            ("default/web/app/x", &[]),
            ("", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_answer_has_each_pod_once() {
        let ids =
            |text: &str| -> Vec<String> { filter(pods(), text).into_iter().map(|pod| pod.id).collect() };
        assert_eq!(ids("cccc"), ["aaaa1111", "aaaa2222"]);
        assert_eq!(ids("main"), ["bbbb1111"]);
        assert_eq!(ids("nothing"), [] as [&str; 0]);
    }
}
