//! The same measurements give the same report, whether the agent makes them itself or reads them from the proxy's stream.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::layout::Layout;
use koord_cgroup::system_file::SystemRoots;
use koord_cgroup::version::CgroupVersion;
use koord_crd::node_slo::NodeSloSpec;
use koord_kube::Observed;
use koord_kube::k8s_openapi::api::core::v1::Node;
use koord_node_report::policy::Policy;
use koord_prediction::Predictor;
use koord_usage::collect::clock::Clock;
use koord_usage::inventory::Inventory;
use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::pass::Pass;
use koord_usage::sampler::{Sampler, SamplerOptions};
use koord_usage::store::Store;
use koord_usage::time::Tick;
use koord_usage::wire::{Parts as WireParts, Teller};
use koord_usage_api::v1;
use koordlet::flags::{AgentMode, Command, Config, Surroundings, command};
use koordlet::intake::Intake;
use koordlet::pods::PodSet;
use koordlet::reporter::{Reporter, completion, retention};
use koordlet::source::Source;
use koordlet::state::{Parts, State};
use koordlet::stream::Follower;
use koordlet::{predict, sampling};
use serde_json::json;
use tokio::sync::watch;

const BOOT: &str = "the-boot";

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, content).expect("written");
}

fn config() -> Config {
    let surroundings = Surroundings { node_name: "node-1".to_owned(), mode: AgentMode::Host };
    let arguments = ["--proxy-endpoint=/nowhere.sock".into(), "--collect-memory-stat-interval=1s".into()];
    match command(arguments, &surroundings) {
        Ok(Command::Serve(config)) => *config,
        other => panic!("{other:?}"),
    }
}

fn node() -> Observed<Node> {
    let value = json!({
        "metadata": {"name": "node-1", "uid": "n"},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi"}},
    });
    Observed::Present(Arc::new(serde_json::from_value(value).expect("a node")))
}

fn pods() -> Arc<PodSet> {
    let pod = |name: &str, qos: &str, request: &str| {
        let value = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"koordinator.sh/qosClass": qos}},
            "spec": {"priority": 5500, "containers": [{"name": "main", "resources":
                {"requests": {"kubernetes.io/batch-cpu": request}}}]},
            "status": {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": [
                {"name": "main", "containerID": format!("containerd://id-{name}"), "state": {"running": {}}}]},
        });
        Arc::new(serde_json::from_value(value).expect("a pod"))
    };
    Arc::new(PodSet::new(vec![pod("web", "BE", "1500"), pod("job", "BE", "500")]))
}

fn state(root: &Path) -> Arc<State> {
    let config = config();
    let policy = Policy::default();
    let layout =
        Layout::new(root.join("cgroup"), CgroupVersion::V1, CgroupDriver::Cgroupfs, "/").expect("a layout");
    let store = Arc::new(Store::new(retention(&policy, config.store.retention)));
    let state = State::new(Parts {
        intake: Arc::new(Intake::new(store, completion(&policy, &config))),
        predictor: Predictor::new(predict::options(&config.prediction)),
        layout,
        audit: None,
        node: watch::Sender::new(node()).subscribe(),
        node_metric: watch::Sender::new(Observed::Absent).subscribe(),
        config,
    });
    state.publish_pods(pods(), Tick::now());
    let policy = json!({"hostApplications": [
        {"name": "nginx", "priority": "koord-prod", "qos": "LS", "cgroupPath": {"base": "CgroupRoot", "relativePath": "nginx"}}]});
    state.publish_policy(NodeSloSpec::clamped(&policy).0.effective());
    Arc::new(state)
}

/// What a machine's files say after so many seconds.
fn machine(root: &Path, second: u64) {
    write(
        root,
        "proc/stat",
        &format!(
            "cpu {} 0 {} 900 0 0 0 0 0 0\ncpu0 {0} 0 {1} 900 0 0 0 0 0 0\n",
            100 + second * 250,
            second * 50
        ),
    );
    write(
        root,
        "proc/meminfo",
        "MemTotal: 16777216 kB\nMemFree: 4194304 kB\nMemAvailable: 12582912 kB\nActive(file): 1024 kB\nInactive(file): 2048 kB\nSReclaimable: 512 kB\n",
    );
    let group = |path: &str, nanoseconds: u64, bytes: u64| {
        write(root, &format!("cgroup/cpuacct/{path}/cpuacct.usage"), &format!("{}\n", second * nanoseconds));
        write(
            root,
            &format!("cgroup/cpu/{path}/cpu.stat"),
            &format!("nr_periods {}\nnr_throttled {second}\nthrottled_time 7\n", second * 10),
        );
        let half = bytes / 2;
        let stat = format!(
            "total_cache 4096\ntotal_rss {bytes}\ntotal_inactive_anon {half}\ntotal_active_anon {half}\n\
             total_inactive_file 1024\ntotal_active_file 2048\ntotal_unevictable 0\n"
        );
        write(root, &format!("cgroup/memory/{path}/memory.stat"), &stat);
        write(root, &format!("cgroup/memory/{path}/memory.usage_in_bytes"), &format!("{}\n", bytes + 4096));
    };
    let best_effort = "kubepods/besteffort";
    group(best_effort, 800_000_000, 3 << 20);
    for (name, nanoseconds, bytes) in [("web", 500_000_000, 2 << 20), ("job", 300_000_000, 1 << 20)] {
        group(&format!("{best_effort}/poduid-{name}"), nanoseconds, bytes);
        group(&format!("{best_effort}/poduid-{name}/id-{name}"), nanoseconds, bytes);
    }
    group("nginx", 200_000_000, 1 << 20);
    write(root, "cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us", "-1\n");
    write(root, "cgroup/cpu/kubepods/besteffort/cpu.cfs_period_us", "100000\n");
    write(root, "cgroup/cpuset/kubepods/besteffort/cpuset.cpus", "0-3\n");
}

/// Passes of a sampler over the machine, of the seconds before `end`.
fn record(root: &Path, inventory: &Inventory, seconds: u64, end: Tick) -> Vec<Pass> {
    let layout =
        Layout::new(root.join("cgroup"), CgroupVersion::V1, CgroupDriver::Cgroupfs, "/").expect("a layout");
    let roots = SystemRoots { proc_root: root.join("proc"), sys_root: root.join("sys") };
    let clock = Clock::manual(1_000_000_000);
    let options = SamplerOptions { clock: clock.clone(), ..sampling::options(&config()) };
    machine(root, 0);
    let mut sampler = Sampler::new(options, layout, roots);
    let start = end.back(Duration::from_secs(seconds));
    (0..=seconds)
        .map(|second| {
            machine(root, second);
            let pass = sampler.sample(start.ahead(Duration::from_secs(second)), inventory);
            clock.advance(1_000_000_000);
            pass
        })
        .collect()
}

fn report(state: &Arc<State>) -> serde_json::Value {
    let mut status = Reporter::new(Arc::clone(state)).report(false).status;
    status.update_time = None;
    serde_json::to_value(&status).expect("JSON")
}

#[test]
fn both_sources_give_the_same_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    for cpu in 0..4 {
        write(root, &format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0\n");
    }
    write(root, "sys/devices/system/cpu/online", "0-3\n");
    let own = state(root);
    let inventory = Arc::clone(&own.inventory.borrow());
    assert_eq!(inventory.pods.len(), 2);
    assert_eq!(inventory.host_applications.len(), 1);
    let end = Tick::now();
    let passes = record(root, &inventory, 40, end);
    for pass in &passes {
        own.intake.own(pass.clone(), &inventory);
    }

    // The proxy knows pods by the runtime, and no host applications; those the agent measures beside the stream.
    let streamed = state(root);
    let mut follower = Follower::new(Arc::clone(&streamed), BOOT);
    let request = follower.request(end);
    let mut teller = Teller::new(WireParts::of(&request));
    let mut tell =
        |message: v1::WatchResponse, now: Tick| follower.message(message, now).expect("understood");
    let first = passes.first().expect("a pass").tick;
    let start = v1::Start {
        boot_id: BOOT.to_owned(),
        now_tick: first.0,
        interval_milliseconds: 1000,
        server: String::new(),
        cpus: 4,
        memory_bytes: 8 << 30,
    };
    tell(v1::WatchResponse { event: Some(v1::watch_response::Event::Start(start)) }, first);
    let told: Vec<Arc<v1::Pod>> = inventory
        .pods
        .iter()
        .map(|pod| Arc::new(v1::Pod { batch_milli_cpu_request: None, ..koord_usage::wire::pod(pod) }))
        .collect();
    for message in teller.inventory(&told) {
        tell(message, first);
    }
    for pass in &passes {
        streamed.intake.beside(sampling::beside(pass.samples.clone(), sampling::Wanted::default()));
        tell(teller.pass(pass, false), pass.tick);
        assert_eq!(streamed.source(), Source::Proxy);
    }

    let (own_report, streamed_report) = (report(&own), report(&streamed));
    assert_eq!(own_report, streamed_report);
    // They are not the same for lack of figures.
    let node = &own_report["nodeMetric"]["nodeUsage"]["resources"];
    assert_eq!(node, &json!({"cpu": "3", "memory": "4Gi"}));
    assert_eq!(
        own_report["podsMetric"],
        json!([
            {"name": "job", "namespace": "shop", "podUsage": {"resources": {"cpu": "300m", "memory": "1Mi"}}, "priority": "koord-batch", "qos": "BE"},
            {"name": "web", "namespace": "shop", "podUsage": {"resources": {"cpu": "500m", "memory": "2Mi"}}, "priority": "koord-batch", "qos": "BE"},
        ])
    );
    assert_eq!(
        own_report["hostApplicationMetric"],
        json!([{"name": "nginx", "usage": {"resources": {"cpu": "200m", "memory": "1Mi"}}, "priority": "koord-prod", "qos": "LS"}])
    );
    // 3 cores less 0.8 of pods and 0.2 of the host application.
    assert_eq!(own_report["nodeMetric"]["systemUsage"]["resources"]["cpu"], "2");
    let request = Object::Tier(koord_usage::object::TierSeries::Request);
    for state in [&own, &streamed] {
        assert_eq!(state.intake.store().latest(&request, Kind::NodeBe).map(|(_, value)| value), Some(2000.0));
    }
}

#[test]
fn a_stream_of_another_boot_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut follower = Follower::new(state(folder.path()), BOOT);
    let start = v1::Start { boot_id: "other".to_owned(), ..v1::Start::default() };
    let message = v1::WatchResponse { event: Some(v1::watch_response::Event::Start(start)) };
    let error = follower.message(message, Tick::now()).expect_err("refused");
    assert!(error.to_string().contains("other"), "{error}");
}
