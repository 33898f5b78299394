//! Metrics of what containers ask for.

use koord_extension::keys::resource;
use koord_extension::quantity::ResourceList;

use super::PodSet;
use crate::metrics::Rows;

/// The resources that are told, each with the unit in the label of requests.
const RESOURCES: [(&str, &str); 4] = [
    (resource::BATCH_CPU, "integer"),
    (resource::BATCH_MEMORY, "byte"),
    (resource::MID_CPU, "integer"),
    (resource::MID_MEMORY, "byte"),
];

/// Requests and limits of batch and mid resources of each application container.
///
/// The unit of a limit is always `byte`, as in Koordinator, whose dashboards select by it.
pub fn rows(set: &PodSet) -> (Rows, Rows) {
    let (mut requests, mut limits) = (Rows::new(), Rows::new());
    for pod in set.live() {
        for container in &pod.spec.containers {
            let id = pod
                .status
                .container_statuses
                .iter()
                .find(|status| status.name == container.name)
                .map_or("", |status| status.container_id.as_str());
            let push = |rows: &mut Rows, list: &ResourceList, unit_of: fn(&'static str) -> &'static str| {
                for (name, unit) in RESOURCES {
                    let Some(quantity) = list.get(name) else { continue };
                    let labels = [
                        ("resource", name),
                        ("unit", unit_of(unit)),
                        ("pod_uid", pod.metadata.uid.as_str()),
                        ("pod_name", pod.metadata.name.as_str()),
                        ("pod_namespace", pod.metadata.namespace.as_str()),
                        ("container_id", id),
                        ("container_name", container.name.as_str()),
                    ];
                    rows.push(labels, quantity.value() as f64);
                }
            };
            push(&mut requests, &container.resources.requests, |unit| unit);
            push(&mut limits, &container.resources.limits, |_unit| "byte");
        }
    }
    (requests, limits)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metrics::{Registry, external};

    #[test]
    fn the_unit_of_a_limit_is_always_byte() {
        let pod = serde_json::json!({
            "metadata": {"name": "p", "namespace": "x", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {
                "requests": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"},
                "limits": {"kubernetes.io/batch-cpu": "1000", "cpu": "1"},
            }}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "containerID": "containerd://abc"}]},
        });
        let pod = serde_json::from_value(pod).expect("a pod");
        let (requests, limits) = rows(&PodSet::new(vec![Arc::new(pod)]));
        assert_eq!((requests.len(), limits.len()), (2, 1));
        let registry = Registry::new("n", external::ALL);
        registry.replace(&external::CONTAINER_REQUESTS, requests);
        registry.replace(&external::CONTAINER_LIMITS, limits);
        let text = registry.page().render();
        let ids = "container_id=\"containerd://abc\",container_name=\"c\",node=\"n\",pod_name=\"p\",pod_namespace=\"x\",pod_uid=\"u\"";
        for line in [
            format!(
                "koordlet_container_resource_limits{{{ids},resource=\"kubernetes.io/batch-cpu\",unit=\"byte\"}} 1000"
            ),
            format!(
                "koordlet_container_resource_requests{{{ids},resource=\"kubernetes.io/batch-cpu\",unit=\"integer\"}} 1000"
            ),
            format!(
                "koordlet_container_resource_requests{{{ids},resource=\"kubernetes.io/batch-memory\",unit=\"byte\"}} 1073741824"
            ),
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }
}
