//! Finding the pods of a manifest: pods themselves, lists, and the templates of workloads.

use serde_json::Value;

/// Lists nested deeper than this are not looked into.
const DEEPEST_LIST: usize = 8;

/// A pod or the template of one.
#[derive(Debug, Clone, Copy)]
pub struct PodSource<'a> {
    /// Kind of the object, such as `Deployment`.
    pub kind: &'a str,
    /// The object.
    pub object: &'a Value,
    /// The pod or the template in it: what has `metadata` and `spec`.
    pub pod: &'a Value,
}

/// What was found in a manifest.
#[derive(Debug, Clone, Default)]
pub struct Found<'a> {
    /// Pods and templates, in the order of the manifest.
    pub pods: Vec<PodSource<'a>>,
    /// Objects without pods, each with the reason.
    pub skipped: Vec<String>,
}

/// Finds the pods of the documents of a manifest.
pub fn pods_of(documents: &[Value]) -> Found<'_> {
    let mut found = Found::default();
    for (number, document) in (1..).zip(documents) {
        add(document, &format!("document {number}"), DEEPEST_LIST, &mut found);
    }
    found
}

fn add<'a>(object: &'a Value, place: &str, depth: usize, found: &mut Found<'a>) {
    if !object.is_object() {
        found.skipped.push(format!("{place} is not an object"));
        return;
    }
    let Some(kind) = object.get("kind").and_then(Value::as_str).filter(|kind| !kind.is_empty()) else {
        found.skipped.push(format!("{place} has no kind"));
        return;
    };
    let path: &[&str] = match kind {
        "Pod" => &[],
        "PodTemplate" => &["template"],
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
            &["spec", "template"]
        }
        "CronJob" => &["spec", "jobTemplate", "spec", "template"],
        _ => {
            let items = object.get("items").and_then(Value::as_array).filter(|_| kind.ends_with("List"));
            match items {
                Some(items) if depth > 0 => {
                    for (number, item) in (1..).zip(items) {
                        add(item, &format!("{place}, item {number}"), depth - 1, found);
                    }
                }
                Some(_) => found.skipped.push(format!("{place} is a list in too many lists")),
                None => found.skipped.push(format!("{place} is a {kind}, which has no pods")),
            }
            return;
        }
    };
    let pod = path.iter().try_fold(object, |value, key| value.get(key));
    match pod.filter(|pod| pod.get("spec").is_some_and(Value::is_object)) {
        Some(pod) => found.pods.push(PodSource { kind, object, pod }),
        None => {
            let path = path.iter().chain(&["spec"]).copied().collect::<Vec<_>>().join(".");
            found.skipped.push(format!("{place} is a {kind} without {path}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_lists_and_templates() {
        let template = json!({"metadata": {}, "spec": {"containers": []}});
        let documents = [
            json!({"kind": "Pod", "spec": {}}),
            json!({"kind": "List", "items": [
                {"kind": "Deployment", "spec": {"template": template}},
                {"kind": "Service", "spec": {}},
                {"kind": "PodList", "items": [{"kind": "Pod", "spec": {}}]},
            ]}),
            json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": template}}}}),
            json!({"kind": "PodTemplate", "template": template}),
            json!({"kind": "Job", "spec": {}}),
            json!({"kind": "Pod", "spec": []}),
            json!({"spec": {}}),
            json!([1]),
        ];
        let Found { pods, skipped } = pods_of(&documents);
        let kinds: Vec<&str> = pods.iter().map(|source| source.kind).collect();
        assert_eq!(kinds, ["Pod", "Deployment", "Pod", "CronJob", "PodTemplate"]);
        assert_eq!(pods[3].pod, &template);
        assert_eq!(
            skipped,
            [
                "document 2, item 2 is a Service, which has no pods",
                "document 5 is a Job without spec.template.spec",
                "document 6 is a Pod without spec",
                "document 7 has no kind",
                "document 8 is not an object",
            ]
        );
    }

    #[test]
    fn lists_in_lists_end() {
        let mut list = json!({"kind": "Pod", "spec": {}});
        for _ in 0..=DEEPEST_LIST {
            list = json!({"kind": "List", "items": [list]});
        }
        let documents = [list];
        let found = pods_of(&documents);
        assert!(found.pods.is_empty());
        assert!(found.skipped[0].ends_with("is a list in too many lists"), "{:?}", found.skipped);
        let documents = [documents[0]["items"][0].clone()];
        assert_eq!(pods_of(&documents).pods.len(), 1);
    }
}
