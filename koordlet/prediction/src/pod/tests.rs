use koord_extension::units::{Bytes, MilliCpu};
use serde_json::json;

use super::*;
use crate::resources::Resources;

fn pod(json: serde_json::Value) -> Pod {
    serde_json::from_value(json).unwrap()
}

fn requests(cpu: &str, memory: &str) -> serde_json::Value {
    json!({"requests": {"cpu": cpu, "memory": memory}})
}

fn request(spec: serde_json::Value) -> (i64, i64) {
    let Resources { cpu: MilliCpu(cpu), memory: Bytes(memory) } = pod(json!({"spec": spec})).request();
    (cpu, memory)
}

#[test]
fn a_request_is_the_sum_of_the_containers() {
    let spec = json!({"containers": [
        {"name": "a", "resources": requests("500m", "100")},
        {"name": "b", "resources": requests("1", "1Ki")},
        {"name": "c"},
    ]});
    assert_eq!(request(spec), (1500, 1124));
    assert_eq!(request(json!({})), (0, 0));
}

#[test]
fn init_containers_count_by_the_largest() {
    let spec = json!({
        "initContainers": [
            {"name": "i", "resources": requests("3", "10")},
            {"name": "j", "resources": requests("1", "500")},
        ],
        "containers": [{"name": "a", "resources": requests("2", "100")}],
    });
    assert_eq!(request(spec), (3000, 500));
}

#[test]
fn sidecars_count_at_the_end_and_during_later_init_containers() {
    // At the end: 2 + 1 + 1 = 4. During the last init container: 1 + 1 + 3 = 5.
    let sidecar =
        |name: &str| json!({"name": name, "restartPolicy": "Always", "resources": requests("1", "10")});
    let spec = json!({
        "initContainers": [
            sidecar("s"),
            {"name": "i", "resources": requests("2", "1")},
            sidecar("t"),
            {"name": "j", "resources": requests("3", "1")},
        ],
        "containers": [{"name": "a", "resources": requests("2", "100")}],
    });
    assert_eq!(request(spec), (5000, 120));
}

#[test]
fn resources_of_the_pod_stand_in_place_of_its_containers() {
    let spec = json!({
        "resources": {"requests": {"cpu": "4"}},
        "overhead": {"cpu": "100m", "memory": "7"},
        "containers": [{"name": "a", "resources": requests("1", "100")}],
    });
    assert_eq!(request(spec), (4100, 107));
}

#[test]
fn amounts_that_are_no_request_are_nothing() {
    let spec = json!({"containers": [{"name": "a", "resources": requests("-1", "9223372036854775807")}],
        "overhead": {"memory": "1Ei"}});
    assert_eq!(request(spec), (0, i64::MAX));
}

#[test]
fn kube_qos_is_stated_or_follows_from_the_containers() {
    let both = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let part = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}});
    let qos = |containers: Vec<&serde_json::Value>| {
        let containers: Vec<_> = containers.into_iter().map(|all| json!({"resources": all})).collect();
        pod(json!({"spec": {"containers": containers}})).kube_qos()
    };
    assert_eq!(qos(vec![&both, &both]), KubeQos::Guaranteed);
    // The API server fills in requests, so a pod without them has none.
    assert_eq!(qos(vec![&both, &limits]), KubeQos::Burstable);
    assert_eq!(qos(vec![&both, &part]), KubeQos::Burstable);
    assert_eq!(qos(vec![&both, &json!({})]), KubeQos::Burstable);
    assert_eq!(qos(vec![&json!({}), &json!({"requests": {"cpu": "0"}})]), KubeQos::BestEffort);

    let stated =
        json!({"spec": {"containers": [{"resources": both.clone()}]}, "status": {"qosClass": "Burstable"}});
    assert_eq!(pod(stated).kube_qos(), KubeQos::Burstable);
    let whole = json!({"spec": {"resources": both, "containers": [{}]}});
    assert_eq!(pod(whole).kube_qos(), KubeQos::Guaranteed);
    let init =
        json!({"spec": {"initContainers": [{"resources": part}], "containers": [{"resources": both}]}});
    assert_eq!(pod(init).kube_qos(), KubeQos::Burstable);
}

#[test]
fn classes_have_defaults() {
    let bands = PriorityBands::default();
    let of = |value| {
        let pod = pod(value);
        (pod.qos().as_str(), pod.priority_class(&bands).as_str())
    };
    // M10: Guaranteed, without labels and priority.
    assert_eq!(of(json!({"status": {"qosClass": "Guaranteed"}})), ("LSR", "koord-prod"));
    assert_eq!(of(json!({"status": {"qosClass": "BestEffort"}})), ("BE", "koord-batch"));
    assert_eq!(
        of(json!({"metadata": {"labels": {"koordinator.sh/qosClass": "BE"}}, "spec": {"priority": 3100}})),
        ("BE", "koord-free")
    );
}

#[test]
fn a_list_of_the_kubelet_is_read() {
    let text = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [
        {
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-07-24T08:00:00Z",
                "labels": {"app": "web"},
                "annotations": {"kubernetes.io/config.hash": "h", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {"priority": 9500, "hostNetwork": true, "runtimeClassName": "kata", "nodeName": "n",
                "volumes": [{"name": "v"}], "containers": [{"name": "c", "image": "i", "resources": {}}]},
            "status": {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-07-24T08:00:01Z",
                "containerStatuses": [
                    {"name": "c", "containerID": "containerd://abc", "state": {"running": {"startedAt": "2026-07-24T08:00:02Z"}}},
                    {"name": "d", "state": {"waiting": {"reason": "ContainerCreating"}}}],
                "initContainerStatuses": [
                    {"name": "i", "containerID": "containerd://def", "state": {"terminated": {"exitCode": 0}}}]},
        },
        {"metadata": {"name": "bare", "namespace": "shop", "uid": "u2", "labels": null, "annotations": null},
            "spec": {"containers": null}, "status": {"phase": "Odd"}},
        {"metadata": {"name": "bad", "namespace": "shop", "uid": "u3"},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}},
        {"metadata": {"name": "nobody", "namespace": "shop"}},
    ]})
    .to_string();
    let list = PodList::decode(text.as_bytes()).unwrap();
    let keys: Vec<String> = list.pods.iter().map(|pod| pod.key().to_string()).collect();
    assert_eq!(keys, ["shop/web-0", "shop/bare"]);
    let web = &list.pods[0];
    assert_eq!(web.metadata.annotations.keys().collect::<Vec<_>>(), ["kubernetes.io/config.hash"]);
    assert_eq!(web.spec.priority, Some(9500));
    assert!(web.spec.host_network);
    assert_eq!(web.spec.runtime_class_name.as_deref(), Some("kata"));
    assert_eq!(web.status.phase, Phase::Running);
    assert!(!web.is_terminated() && !web.is_terminating());
    let [running, waiting] = web.status.container_statuses.as_slice() else { panic!("two containers") };
    assert_eq!((running.bare_id(), running.state.running), (Some("abc"), true));
    assert_eq!((waiting.bare_id(), waiting.state.running), (None, false));
    assert!(web.status.init_container_statuses[0].state.terminated);
    assert_eq!(web.age_millis("2026-07-24T08:01:00Z".parse().unwrap()), 60_000);
    assert_eq!(list.pods[1].status.phase, Phase::Unknown);

    let refused: Vec<(usize, &str)> =
        list.refused.iter().map(|refused| (refused.index, refused.name.as_str())).collect();
    assert_eq!(refused, [(2, "shop/bad"), (3, "shop/nobody")]);
    assert!(list.refused[0].problem.contains("many"), "{}", list.refused[0]);
}

#[test]
fn lists_may_be_empty_but_not_something_else() {
    assert!(PodList::decode(br#"{"items":null}"#).unwrap().pods.is_empty());
    assert!(PodList::decode(br#"{}"#).unwrap().pods.is_empty());
    for text in ["", "Unauthorized", "[]", r#"{"items":{}}"#, r#"{"items":["#] {
        assert!(PodList::decode(text.as_bytes()).is_err(), "{text}");
    }
}
