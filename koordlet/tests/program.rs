//! The program as a process: against an API server that is away, and against one that answers.

#[path = "fake/server.rs"]
mod fake;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fake::{Server, write};
use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::pass::Pass;
use koord_usage::snapshot::file::{SnapshotFile, boot_id};
use koord_usage::store::Store;
use koord_usage::time::Tick;
use serde_json::{Value, json};

struct Agent {
    child: Child,
    address: String,
    log: std::path::PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free at this moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.local_addr().expect("an address").port()
}

fn command(root: &Path, server: &str) -> Command {
    write(
        root,
        "kubeconfig",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        ),
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_koordlet"));
    let path = |name: &str| root.join(name).display().to_string();
    command
        .env("NODE_NAME", "node-1")
        .env("agent_mode", "hostMode")
        .arg(format!("--kubeconfig={}", path("kubeconfig")))
        .arg(format!("--cgroup-root-dir={}", path("cgroup")))
        .arg("--cgroup-driver=cgroupfs")
        .arg(format!("--admin-socket={}", path("admin.sock")))
        .arg(format!("--tsdb-path={}", path("data")))
        .arg(format!("--prediction-checkpoint-filepath={}", path("models")))
        .arg(format!("--audit-log-dir={}", path("audit")))
        .arg(format!("--var-lib-kubelet-dir={}", path("kubelet")))
        .arg(format!("--run-root-dir={}", path("run")))
        .arg("--collect-memory-stat-interval=1s")
        .arg("--kubelet-sync-interval=200ms")
        .arg("--feature-gates=AuditEvents=true,AuditEventsHTTPHandler=true")
        .stdin(Stdio::null());
    command
}

impl Agent {
    fn start(root: &Path, server: &str, more: &[String]) -> Agent {
        let address = format!("127.0.0.1:{}", free_port());
        let log = root.join("log");
        let file = std::fs::File::create(&log).expect("a log");
        let child = command(root, server)
            .arg(format!("--addr={address}"))
            .args(more)
            .stderr(file)
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        Agent { child, address, log }
    }

    fn get(&self, path: &str) -> Option<(u16, String)> {
        fake::get(&self.address, path)
    }

    fn eventually<T>(&mut self, what: &str, mut check: impl FnMut(&Agent) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            if let Some(found) = check(self) {
                return found;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("ended with {status} while waiting for {what}:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("not in time: {what}\n{:?}\n{}", self.get("/readyz"), self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it in order and returns its exit code.
    fn end(mut self) -> Option<i32> {
        let killed =
            Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status().expect("kill");
        assert!(killed.success());
        self.child.wait().expect("ended").code()
    }
}

/// Faults of a page that Prometheus would refuse or warn of.
fn faults(text: &str) -> Vec<String> {
    let (mut helps, mut types, mut series, mut faults) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helps.push(rest.split(' ').next().unwrap_or_default().to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            types.push(rest.split(' ').next().unwrap_or_default().to_owned());
        } else {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let known =
                |name: &str| helps.iter().any(|one| one == name) && types.iter().any(|one| one == name);
            if !known(name) && !base.is_some_and(known) {
                faults.push(format!("{name}: no help or no type before it"));
            }
            series.push(line.rsplit_once(' ').map_or(line, |(series, _)| series).to_owned());
        }
    }
    for list in [&mut helps, &mut types, &mut series] {
        list.sort();
        faults.extend(
            list.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| format!("{}: twice", pair[0])),
        );
    }
    faults
}

fn machine(root: &Path) {
    let group = |path: &str| {
        write(root, &format!("cgroup/cpuacct/{path}/cpuacct.usage"), "0\n");
        write(
            root,
            &format!("cgroup/cpu/{path}/cpu.stat"),
            "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        );
        let stat = "total_cache 0\ntotal_rss 0\ntotal_inactive_anon 1048576\ntotal_active_anon 0\n\
             total_inactive_file 0\ntotal_active_file 0\ntotal_unevictable 0\n";
        write(root, &format!("cgroup/memory/{path}/memory.stat"), stat);
        write(root, &format!("cgroup/memory/{path}/memory.usage_in_bytes"), "1048576\n");
    };
    group("kubepods/besteffort");
    group("kubepods/burstable/poduid-web");
    group("kubepods/burstable/poduid-web/id-web");
    write(root, "cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us", "-1\n");
    write(root, "cgroup/cpu/kubepods/besteffort/cpu.cfs_period_us", "100000\n");
    write(root, "cgroup/cpuset/kubepods/besteffort/cpuset.cpus", "0\n");
}

/// Half a minute of samples, as an agent of before has left them.
fn samples_of_before(root: &Path) {
    let store = Store::default();
    let now = Tick::now();
    for second in 0..=40 {
        let mut pass = Pass::new(now.back(Duration::from_secs(41 - second)));
        pass.push(Object::Node, Kind::NodeCpuUsage, 1.0);
        pass.push(Object::Node, Kind::NodeMemoryUsage, 1024.0);
        store.record(&pass);
    }
    let boot = boot_id(Path::new("/proc")).expect("a boot");
    SnapshotFile::new(root.join("data"), 1 << 20).save(&store.snapshot(&boot)).expect("saved");
}

#[test]
fn without_an_api_server_it_measures_and_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    machine(root);
    let away = format!("http://127.0.0.1:{}", free_port());
    let mut agent = Agent::start(root, &away, &[]);
    let (status, _) = agent.eventually("health", |agent| agent.get("/healthz"));
    assert_eq!(status, 200);
    let text = agent.eventually("usage of the node", |agent| {
        let (status, text) = agent.get("/readyz")?;
        assert_eq!(status, 503, "no pods were heard of");
        text.contains("node usage: ok").then_some(text)
    });
    for line in [
        "pods: not ready, never heard of",
        "source of samples: own",
        "collector node: ready",
        "collector pressure: disabled",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let (status, metrics) = agent.get("/metrics").expect("metrics");
    assert_eq!(status, 200);
    assert_eq!(faults(&metrics), Vec::<String>::new());
    for name in [
        "koordlet_start_time{node=\"node-1\"}",
        "koordlet_node_used_cpu_cores",
        "koordlet_collector_ready",
        "process_open_fds",
    ] {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
    let (_, external) = agent.get("/external-metrics").expect("metrics");
    assert!(!external.contains("process_") && !external.contains("koordlet_start_time"), "{external}");
    let (_, text) = agent.get("/debug/state").expect("state");
    let debug: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(debug["source"], "own");
    assert!(debug["store"]["series"].as_u64() > Some(3), "{debug}");
    assert_eq!(agent.get("/debug/pprof/heap").map(|(status, _)| status), Some(404));
    let (status, events) = agent.get("/events").expect("events");
    assert_eq!(status, 200);
    assert!(events.contains("the agent starts"), "{events}");
    assert_eq!(agent.get("/events?size=2049").map(|(status, _)| status), Some(400));

    let dump = command(root, &away).args(["metrics", "dump", "--explain", "node"]).output().expect("run");
    let text = String::from_utf8_lossy(&dump.stdout);
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    for part in
        ["node_cpu_usage", "status of the NodeMetric", "\"nodeMetric\"", "where its figures come from"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("\nbest-effort/"), "only what was asked for\n{text}");

    assert_eq!(agent.end(), Some(0));
    assert!(root.join("data/usage.snapshot").exists(), "samples are saved at the end");
    assert!(!root.join("admin.sock").exists());

    // The next one goes on with them.
    let mut next = Agent::start(root, &away, &[]);
    next.eventually("health", |agent| agent.get("/healthz"));
    assert!(next.log().contains("samples of before"), "{}", next.log());
    assert_eq!(next.end(), Some(0));
}

#[test]
fn with_an_api_server_and_a_kubelet_it_becomes_ready_and_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    machine(root);
    let kubelet = Server::start();
    let pods = json!({"items": [{
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"priority": 9500, "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [
            {"name": "main", "containerID": "containerd://id-web", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]},
    }]});
    kubelet.put("/pods/", &pods);
    kubelet.put("/configz", &json!({"kubeletconfig": {"cpuManagerPolicy": "none", "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}}));
    let server = Server::start();
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-1", "uid": "node-uid", "resourceVersion": "5"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
            "allocatable": {"cpu": "8", "memory": "16Gi", "kubernetes.io/batch-cpu": "4000"},
            "capacity": {"cpu": "8", "memory": "16Gi"},
        },
    });
    server.put_list("/api/v1/nodes", "v1", "NodeList", &[node]);
    let metric = json!({
        "apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric",
        "metadata": {"name": "node-1", "uid": "m", "resourceVersion": "7", "generation": 1},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 30}},
    });
    server.put_list(
        "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
        "slo.koordinator.sh/v1alpha1",
        "NodeMetricList",
        std::slice::from_ref(&metric),
    );
    server.put("/apis/slo.koordinator.sh/v1alpha1/nodemetrics/node-1", &metric);
    server.put_list(
        "/apis/slo.koordinator.sh/v1alpha1/nodeslos",
        "slo.koordinator.sh/v1alpha1",
        "NodeSLOList",
        &[],
    );
    server.put_list(
        "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
        "topology.node.k8s.io/v1alpha1",
        "NodeResourceTopologyList",
        &[],
    );
    let answer = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metric["metadata"]});
    server.put("/apis/slo.koordinator.sh/v1alpha1/nodemetrics/node-1/status", &answer);
    samples_of_before(root);
    let more = ["--kubelet-insecure-tls".to_owned(), format!("--kubelet-read-only-port={}", kubelet.port())];
    let mut agent = Agent::start(root, &server.url(), &more);

    let text = agent.eventually("readiness", |agent| {
        let (status, text) = agent.get("/readyz")?;
        (status == 200).then_some(text)
    });
    assert!(text.contains("pod usage: ok"), "{text}");
    let (_, metrics) = agent.get("/metrics").expect("metrics");
    assert_eq!(faults(&metrics), Vec::<String>::new());
    for line in [
        "koordlet_node_resource_allocatable{node=\"node-1\",resource=\"kubernetes.io/batch-cpu\",unit=\"integer\"} 4000",
        "koordlet_pods{node=\"node-1\"} 1",
    ] {
        assert!(metrics.lines().any(|have| have == line), "{line} is not in\n{metrics}");
    }
    assert!(metrics.contains("koordlet_kubelet_request_duration_seconds_bucket{code=\"200\",le=\"0.001\",path=\"/pods/\",verb=\"get\"}"), "{metrics}");
    assert!(
        metrics.contains(
            "koordlet_apiserver_requests_total{code=\"200\",node=\"node-1\",resource=\"nodes\",verb=\"list\"}"
        ),
        "{metrics}"
    );

    // The topology is made once, with the kubelet's policy.
    let created = agent.eventually("the topology", |_| {
        server
            .requests()
            .into_iter()
            .find(|(method, path, _)| method == "POST" && path.ends_with("/noderesourcetopologies"))
    });
    let object: Value = serde_json::from_str(&created.2).expect("JSON");
    assert_eq!(object["topologyPolicies"], json!(["SingleNUMANodePodLevel"]));
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Koordinator");

    // With samples of before the first report need not wait for new ones.
    let patch = agent.eventually("a report", |_| {
        server
            .requests()
            .into_iter()
            .find(|(method, path, _)| method == "PATCH" && path.ends_with("/nodemetrics/node-1/status"))
    });
    let patch: Value = serde_json::from_str(&patch.2).expect("JSON");
    assert_eq!((&patch[0]["op"], &patch[0]["path"]), (&json!("add"), &json!("/status")));
    assert!(patch[0]["value"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"].is_string(), "{patch}");
    agent.eventually("the count of reports", |agent| {
        let (_, metrics) = agent.get("/metrics")?;
        metrics
            .contains("koordlet_node_metric_report_total{node=\"node-1\",result=\"written\"} 1")
            .then_some(())
    });
    let fetched = |requests: Vec<(String, String, String)>| {
        requests
            .iter()
            .filter(|(method, path, _)| method == "GET" && path.ends_with("/nodemetrics/node-1"))
            .count()
    };
    assert_eq!(fetched(server.requests()), 1, "once for its generation");

    // The report of this moment has the pod as soon as it is measured.
    let dump = agent.eventually("the pod in the report", |_| {
        let dump = command(root, &server.url()).args(["metrics", "dump"]).output().ok()?;
        let text = String::from_utf8_lossy(&dump.stdout).into_owned();
        text.contains("\"podsMetric\"").then_some(text)
    });
    let status = dump.lines().find(|line| line.starts_with('{')).expect("a status");
    let status: Value = serde_json::from_str(status).expect("JSON");
    assert_eq!(status["podsMetric"][0]["name"], "web");
    assert_eq!(status["podsMetric"][0]["priority"], "koord-prod");
    assert_eq!(status["podsMetric"][0]["podUsage"]["resources"]["memory"], "1Mi");

    // A kubelet that fails takes no pods away.
    kubelet.take("/pods/");
    agent.eventually("a failed look", |agent| {
        let (_, metrics) = agent.get("/metrics")?;
        metrics
            .contains("koordlet_pod_syncs_total{node=\"node-1\",result=\"failed\",source=\"kubelet\"}")
            .then_some(())
    });
    let (_, metrics) = agent.get("/metrics").expect("metrics");
    assert!(metrics.lines().any(|line| line == "koordlet_pods{node=\"node-1\"} 1"), "{metrics}");
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn it_ends_for_flags_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |change: fn(&mut Command)| {
        let mut command = command(folder.path(), "http://127.0.0.1:1");
        change(&mut command);
        let output = command.output().expect("run");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run(|command| {
        command.env_remove("NODE_NAME");
    });
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("NODE_NAME"), "{text}");
    let (code, text) = run(|command| {
        command.arg("--collect-res-used-interval=500ms").arg("--nonsense");
    });
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--nonsense: unknown flag") && text.contains("500ms"), "{text}");
    let (code, text) = run(|command| {
        command.arg("validate");
    });
    assert_eq!(code, Some(0), "{text}");
}
