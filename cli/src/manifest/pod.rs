//! The facts of a pod that count, read leniently: what cannot be read is a problem and the rest goes on.

use std::collections::BTreeMap;

use koord_extension::keys::resource;
use koord_extension::quantity::{Quantity, ResourceList};
use koord_extension::translation::{ContainerResources, PodResources, Requirements};
use serde_json::Value;

/// A pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pod {
    /// Namespace, `default` if none is written.
    pub namespace: String,
    /// Name, or the beginning of a name that is to be made up.
    pub name: String,
    /// UID, if the object comes from a cluster.
    pub uid: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// `spec.priorityClassName`.
    pub priority_class_name: Option<String>,
    /// Resources, with the requests that the API server adds where there is only a limit.
    pub resources: PodResources,
    /// `status.qosClass`, if the object comes from a cluster.
    pub status_qos: Option<String>,
    /// What cannot be read, each with its place.
    pub problems: Vec<String>,
}

/// Reads a pod or a template. `object` is what the template stands in; a template has no name of its own.
pub fn read(pod: &Value, object: &Value) -> Pod {
    let mut problems = Vec::new();
    let metadata = |key: &str| {
        text(pod.pointer(&format!("/metadata/{key}")))
            .or_else(|| text(object.pointer(&format!("/metadata/{key}"))))
    };
    let spec = |key: &str| pod.pointer(&format!("/spec/{key}"));
    let name = match (metadata("name"), metadata("generateName")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(beginning)) => format!("{beginning}*"),
        (None, None) => String::new(),
    };
    let containers = |key: &str, problems: &mut Vec<String>| -> Vec<ContainerResources> {
        let items = items(spec(key), &format!("spec.{key}"), problems);
        items.into_iter().map(|(number, value)| container(value, key, number, problems)).collect()
    };
    let own = spec("resources").filter(|value| !value.is_null());
    let mut resources = PodResources {
        init_containers: containers("initContainers", &mut problems),
        containers: containers("containers", &mut problems),
        overhead: quantities(spec("overhead"), "spec.overhead", &mut problems),
        resources: own.map(|value| requirements(Some(value), "spec", &mut problems)),
    };
    add_requests_of_limits(&mut resources);
    Pod {
        namespace: metadata("namespace").unwrap_or("default").to_owned(),
        name,
        // A template's UID is that of the object it stands in, not the pod's.
        uid: text(pod.pointer("/metadata/uid")).map(str::to_owned),
        labels: texts(pod.pointer("/metadata/labels"), "metadata.labels", &mut problems),
        annotations: texts(pod.pointer("/metadata/annotations"), "metadata.annotations", &mut problems),
        priority: priority(spec("priority"), &mut problems),
        priority_class_name: text(spec("priorityClassName")).map(str::to_owned),
        resources,
        status_qos: text(pod.pointer("/status/qosClass")).map(str::to_owned),
        problems,
    }
}

fn text(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn container(value: &Value, key: &str, number: usize, problems: &mut Vec<String>) -> ContainerResources {
    let place = format!("spec.{key}[{number}].resources");
    ContainerResources {
        name: text(value.get("name")).unwrap_or_default().to_owned(),
        restart_policy: text(value.get("restartPolicy")).unwrap_or_default().to_owned(),
        resources: requirements(value.get("resources"), &place, problems),
    }
}

fn requirements(value: Option<&Value>, place: &str, problems: &mut Vec<String>) -> Requirements {
    let mut list =
        |key: &str| quantities(value.and_then(|value| value.get(key)), &format!("{place}.{key}"), problems);
    Requirements { requests: list("requests"), limits: list("limits") }
}

/// Where there is a limit and no request, the API server makes the limit the request. For the pod as a whole it first
/// takes what the containers request together (Kubernetes 1.34).
fn add_requests_of_limits(resources: &mut PodResources) {
    let add = |own: &mut Requirements| {
        for (name, limit) in &own.limits {
            own.requests.entry(name.clone()).or_insert(*limit);
        }
    };
    for container in resources.init_containers.iter_mut().chain(&mut resources.containers) {
        add(&mut container.resources);
    }
    let Some(mut own) = resources.resources.take() else { return };
    let together = PodResources { overhead: ResourceList::new(), ..resources.clone() };
    for name in [resource::CPU, resource::MEMORY] {
        let request = together.request(name);
        if request.is_positive() {
            own.requests.entry(name.to_owned()).or_insert(request);
        }
    }
    add(&mut own);
    resources.resources = Some(own);
}

fn items<'a>(value: Option<&'a Value>, place: &str, problems: &mut Vec<String>) -> Vec<(usize, &'a Value)> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.iter().enumerate().collect(),
        Some(_) => {
            problems.push(format!("{place} is not a list"));
            Vec::new()
        }
    }
}

fn priority(value: Option<&Value>, problems: &mut Vec<String>) -> Option<i32> {
    let value = value.filter(|value| !value.is_null())?;
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    if number.is_none() {
        problems.push(format!("spec.priority {value} is not a whole number of 32 bits"));
    }
    number
}

/// A map of texts; the API server refuses the object if a value is no text.
fn texts(value: Option<&Value>, place: &str, problems: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for (key, value) in fields(value, place, problems) {
        match value {
            Value::String(text) => {
                texts.insert(key.clone(), text.clone());
            }
            other => problems.push(format!("{place}: {key}: {other} is not a text; put it in quotes")),
        }
    }
    texts
}

fn quantities(value: Option<&Value>, place: &str, problems: &mut Vec<String>) -> ResourceList {
    let mut list = ResourceList::new();
    for (name, value) in fields(value, place, problems) {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => {
                problems.push(format!("{place}: {name}: {other} is not a quantity"));
                continue;
            }
        };
        match Quantity::parse(&text) {
            Ok(quantity) => {
                list.insert(name.clone(), quantity);
            }
            Err(error) => problems.push(format!("{place}: {name}: {error}")),
        }
    }
    list
}

fn fields<'a>(
    value: Option<&'a Value>,
    place: &str,
    problems: &mut Vec<String>,
) -> Vec<(&'a String, &'a Value)> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(fields)) => fields.iter().collect(),
        Some(_) => {
            problems.push(format!("{place} is not a map"));
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use koord_extension::qos::KubeQos;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_does_not_hide_the_rest() {
        let object = json!({
            "metadata": {"name": "web", "labels": {"a": 1, "b": "x"}, "annotations": []},
            "spec": {
                "priority": 1.5,
                "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}],
                "containers": [{"name": "c", "resources": {
                    "requests": {"cpu": 1, "memory": "1Gx", "x": [1]}, "limits": {"cpu": "1500m"},
                }}],
                "overhead": {"cpu": 0.5},
            },
        });
        let pod = read(&object, &object);
        assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("default", "web"));
        assert_eq!(pod.labels, BTreeMap::from([("b".to_owned(), "x".to_owned())]));
        assert_eq!(pod.priority, None);
        let init: Vec<_> = pod
            .resources
            .init_containers
            .iter()
            .map(|container| (container.name.as_str(), container.restart_policy.as_str()))
            .collect();
        assert_eq!(init, [("s", "Always"), ("i", "")]);
        let resources = &pod.resources.containers[0].resources;
        assert_eq!(resources.requests.len(), 1);
        assert_eq!(resources.requests["cpu"].milli(), 1_000);
        assert_eq!(resources.limits["cpu"].milli(), 1_500);
        assert_eq!(pod.resources.overhead["cpu"].milli(), 500);
        assert_eq!(pod.problems.len(), 5, "{:?}", pod.problems);
        assert!(pod.problems.contains(&"metadata.labels: a: 1 is not a text; put it in quotes".to_owned()));
        assert!(pod.problems.contains(&"metadata.annotations is not a map".to_owned()));
        assert!(pod.problems.contains(&"spec.priority 1.5 is not a whole number of 32 bits".to_owned()));
        assert!(
            pod.problems
                .iter()
                .any(|problem| problem.starts_with("spec.containers[0].resources.requests: memory: quantity")),
            "{:?}",
            pod.problems
        );
    }

    #[test]
    fn templates_have_the_name_of_their_object() {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
            "spec": {"template": {"metadata": {"labels": {}}, "spec": {"containers": []}}},
        });
        let pod = read(&object["spec"]["template"], &object);
        assert_eq!((pod.namespace.as_str(), pod.name.as_str(), pod.uid), ("shop", "web", None));
        let object = json!({"metadata": {"generateName": "web-"}, "spec": {}});
        assert_eq!(read(&object, &object).name, "web-*");
    }

    #[test]
    fn kubernetes_qos_class_with_requests_from_limits() {
        use KubeQos::{BestEffort, Burstable, Guaranteed};
        let full = json!({"cpu": "1", "memory": "1Gi"});
        let container = |requests: Value, limits: Value| json!({"name": "c", "resources": {"requests": requests, "limits": limits}});
        let same = json!({"cpu": "1000m", "memory": "1024Mi"});
        for (spec, expected) in [
            (json!({}), BestEffort),
            (json!({"containers": [{"name": "c"}]}), BestEffort),
            (json!({"containers": [container(json!({"cpu": "0"}), json!({}))]}), BestEffort),
            (json!({"containers": [container(full.clone(), same)]}), Guaranteed),
            (json!({"containers": [container(json!({}), full.clone())]}), Guaranteed),
            (json!({"containers": [container(json!({}), json!({"cpu": "1"}))]}), Burstable),
            (json!({"containers": [container(json!({"cpu": "500m"}), full.clone())]}), Burstable),
            (
                json!({"containers": [container(json!({}), full.clone())], "initContainers": [{"name": "i"}]}),
                Burstable,
            ),
            (json!({"containers": [{"name": "c"}], "resources": {"limits": full}}), Guaranteed),
            (
                json!({
                    "containers": [container(json!({"cpu": "500m"}), json!({}))],
                    "resources": {"limits": full},
                }),
                Burstable,
            ),
        ] {
            let object = json!({"metadata": {}, "spec": spec});
            assert_eq!(read(&object, &object).resources.kube_qos(), expected, "{spec}");
        }
    }
}
