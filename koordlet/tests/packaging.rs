//! The manifests are what the program and Prometheus expect.

use std::ffi::OsString;
use std::path::Path;

use koord_runtime::yaml::documents;
use koordlet::flags::{AgentMode, Command, Surroundings, command};
use serde_json::{Value, json};

fn manifest(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/koordlet").join(name);
    let text = std::fs::read_to_string(&path).expect("a manifest");
    documents(&text).expect("YAML")
}

#[test]
fn the_daemon_set_gives_flags_that_the_program_takes() {
    let documents = manifest("daemonset.yaml");
    let [daemon_set] = documents.as_slice() else { panic!("one document") };
    let pod = &daemon_set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments: Vec<OsString> = container["args"]
        .as_array()
        .expect("arguments")
        .iter()
        .map(|argument| argument.as_str().expect("text").into())
        .collect();
    let surroundings = Surroundings { node_name: "n".to_owned(), mode: AgentMode::Container };
    let Ok(Command::Serve(config)) = command(arguments, &surroundings) else { panic!("refused") };
    assert!(config.ignored.is_empty() && config.gate_warnings.is_empty());

    // Each directory that the flags name is a volume.
    let mounts: Vec<&str> = container["volumeMounts"]
        .as_array()
        .expect("mounts")
        .iter()
        .filter_map(|mount| mount["mountPath"].as_str())
        .collect();
    let paths = &config.paths;
    for path in [&paths.cgroup, &paths.sys, &paths.sys_fs, &paths.run, &paths.kubelet] {
        assert!(mounts.contains(&path.to_str().expect("text")), "{}", path.display());
    }
    for path in [&config.store.directory, &config.prediction.directory, &config.audit.directory] {
        assert!(mounts.contains(&path.to_str().expect("text")), "{}", path.display());
    }
    assert!(config.process.admin_socket.starts_with("/var/run/koordlet"));
    let names = |field: &str, list: &Value| -> Vec<String> {
        let mut names: Vec<String> = list
            .as_array()
            .expect("a list")
            .iter()
            .map(|item| item[field].as_str().expect("a name").to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("name", &container["volumeMounts"]), names("name", &pod["volumes"]));

    assert_eq!(container["env"][0]["name"], "NODE_NAME");
    assert_eq!(container["ports"][0]["containerPort"], json!(9316));
    assert_eq!(container["resources"]["limits"], json!({"cpu": "500m", "memory": "256Mi"}));
    assert_eq!((&pod["hostNetwork"], &pod["hostPID"]), (&json!(true), &json!(true)));
    assert_eq!(daemon_set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], "20%");
}

#[test]
fn the_role_deletes_nothing_and_names_everything() {
    let documents = manifest("rbac.yaml");
    let kinds: Vec<&str> = documents.iter().filter_map(|document| document["kind"].as_str()).collect();
    assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]);
    let rules = documents[1]["rules"].as_array().expect("rules");
    for rule in rules {
        for field in ["apiGroups", "resources", "verbs"] {
            for word in rule[field].as_array().expect("a list") {
                let word = word.as_str().expect("text");
                assert!(!word.contains('*') && !word.starts_with("delete"), "{rule}");
            }
        }
    }
    let may = |group: &str, resource: &str, verb: &str| {
        let has = |rule: &Value, field: &str, word: &str| {
            rule[field].as_array().expect("a list").iter().any(|one| one == word)
        };
        rules.iter().any(|rule| {
            has(rule, "apiGroups", group) && has(rule, "resources", resource) && has(rule, "verbs", verb)
        })
    };
    for (group, resource, verb) in [
        ("", "nodes", "watch"),
        ("", "nodes/configz", "get"),
        ("slo.koordinator.sh", "nodeslos", "watch"),
        ("slo.koordinator.sh", "nodemetrics", "watch"),
        ("slo.koordinator.sh", "nodemetrics/status", "patch"),
        ("topology.node.k8s.io", "noderesourcetopologies", "create"),
        ("topology.node.k8s.io", "noderesourcetopologies", "update"),
    ] {
        assert!(may(group, resource, verb), "{verb} {resource}.{group}");
    }
    assert!(!may("slo.koordinator.sh", "nodemetrics", "create"), "the manager makes them");
    assert_eq!(documents[2]["subjects"][0]["namespace"], "koordinator-system");
}

#[test]
fn prometheus_finds_the_metrics_as_before() {
    let service = &manifest("service.yaml")[0];
    assert_eq!(service["metadata"]["name"], "koordlet-service");
    assert_eq!(service["metadata"]["labels"], json!({"koord-app": "koordlet"}));
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["ports"][0]["name"], "koordlet-service");
    assert_eq!(service["spec"]["ports"][0]["port"], json!(9316));
    let monitor = &manifest("servicemonitor.yaml")[0];
    assert_eq!(monitor["metadata"]["namespace"], "koordinator-system");
    assert_eq!(monitor["spec"]["jobLabel"], "koord-app");
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], json!({"koord-app": "koordlet"}));
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(
        (&endpoint["port"], &endpoint["interval"], &endpoint["scheme"]),
        (&json!("koordlet-service"), &json!("30s"), &json!("http"))
    );
}
