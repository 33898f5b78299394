use koord_extension::duration::GoDuration;
use koord_prediction::model::{ModelName, Usage};
use koord_prediction::predictor::{PodUsage, PredictorOptions, TrainingRound};
use koord_usage::object::GpuUser;
use koord_usage::pass::Pass;
use koord_usage::store::Retention;
use serde_json::{Value, json};

use super::*;
use crate::training::training_round;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

/// The moment of all reports here, in milliseconds since boot.
const NOW: u64 = 10_000_000;

fn wall() -> WallTime {
    "2026-07-24T08:00:00Z".parse().unwrap()
}

/// A world that a report is made of.
struct World {
    store: Store,
    policy: Policy,
    pods: Vec<Arc<Pod>>,
    bands: PriorityBands,
    host_applications: Vec<HostApplication>,
    numa_nodes: Vec<u32>,
    gpus: Vec<GpuFacts>,
    predictor: Option<(Predictor, Option<Resources>)>,
    options: ReportOptions,
}

impl World {
    fn new() -> World {
        World {
            store: Store::new(Retention::default()),
            policy: Policy::default(),
            pods: Vec::new(),
            bands: PriorityBands::default(),
            host_applications: Vec::new(),
            numa_nodes: Vec::new(),
            gpus: Vec::new(),
            predictor: None,
            options: ReportOptions::default(),
        }
    }

    /// One sample, `before` seconds ago.
    fn sample(&self, before: u64, object: Object, kind: Kind, value: f64) {
        let mut pass = Pass::new(Tick(NOW - before * 1000));
        pass.push(object, kind, value);
        let recorded = self.store.record(&pass);
        assert_eq!(recorded.kept, 1);
    }

    /// The same CPU and memory in each of the last `seconds` and now.
    fn steady(&self, seconds: u64, object: Object, kinds: (Kind, Kind), cpu: f64, memory: f64) {
        for before in (0..=seconds).rev() {
            self.sample(before, object.clone(), kinds.0, cpu);
            self.sample(before, object.clone(), kinds.1, memory);
        }
    }

    fn node(&self, seconds: u64, cpu: f64, memory: f64) {
        self.steady(seconds, Object::Node, (Kind::NodeCpuUsage, Kind::NodeMemoryUsage), cpu, memory);
    }

    fn system(&self, seconds: u64, cpu: f64, memory: f64) {
        self.steady(seconds, Object::Node, (Kind::SystemCpuUsage, Kind::SystemMemoryUsage), cpu, memory);
    }

    fn pod(&mut self, namespace: &str, name: &str) -> Object {
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"),
                "creationTimestamp": "2026-07-20T08:00:00Z"},
            "spec": {"priority": 9500,
                "containers": [{"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}]},
            "status": {"phase": "Running", "qosClass": "Burstable"},
        });
        self.add_pod(&pod)
    }

    fn add_pod(&mut self, pod: &Value) -> Object {
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        let object = Object::Pod(pod.metadata.uid.as_str().into());
        self.pods.push(Arc::new(pod));
        object
    }

    fn use_pod(&mut self, namespace: &str, name: &str, cpu: f64, memory: f64) {
        let object = self.pod(namespace, name);
        self.steady(2, object, (Kind::PodCpuUsage, Kind::PodMemoryUsage), cpu, memory);
    }

    fn report(&self) -> Report {
        report(&View {
            store: &self.store,
            tick: Tick(NOW),
            now: wall(),
            policy: &self.policy,
            pods: &self.pods,
            bands: &self.bands,
            host_applications: &self.host_applications,
            numa_nodes: &self.numa_nodes,
            gpus: &self.gpus,
            prediction: self
                .predictor
                .as_ref()
                .map(|(predictor, allocatable)| Prediction { predictor, allocatable: *allocatable }),
            options: self.options,
        })
    }

    fn json(&self) -> Value {
        serde_json::to_value(self.report().status).unwrap()
    }
}

#[test]
fn the_bytes_of_a_status_are_those_of_koordinator() {
    let mut world = World::new();
    world.policy.durations = vec![Duration::from_secs(300)];
    // Half of the time 2.3 cores and half of it 2.39, so that the percentiles differ from the average.
    for before in (0..200).rev() {
        let cpu = if before < 100 { 2.39 } else { 2.3 };
        world.sample(before, Object::Node, Kind::NodeCpuUsage, cpu);
        world.sample(before, Object::Node, Kind::NodeMemoryUsage, 512.0 * MIB);
    }
    world.system(10, 0.2, 100.0 * MIB);
    world.numa_nodes = vec![0];
    let numa = (Kind::NumaCpuUsage, Kind::NumaMemoryUsage);
    world.steady(10, Object::Numa(0), numa, 2.345_678, 500.0 * MIB);
    world.use_pod("shop", "web-0", 1.001, 300.0 * MIB);
    let text = serde_json::to_string(&world.report().status).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"updateTime":"2026-07-24T08:00:00Z","#,
            r#""nodeMetric":{"nodeUsage":{"resources":{"cpu":"2345m","memory":"512Mi"}},"#,
            r#""aggregatedNodeUsages":[{"usage":{"#,
            r#""avg":{"resources":{"cpu":"2345m","memory":"512Mi"}},"#,
            r#""p50":{"resources":{"cpu":"2300m","memory":"512Mi"}},"#,
            r#""p90":{"resources":{"cpu":"2390m","memory":"512Mi"}},"#,
            r#""p95":{"resources":{"cpu":"2390m","memory":"512Mi"}},"#,
            r#""p99":{"resources":{"cpu":"2390m","memory":"512Mi"}}},"duration":"5m0s"}],"#,
            r#""systemUsage":{"resources":{"cpu":"200m","memory":"100Mi"}},"#,
            r#""aggregatedSystemUsages":[{"usage":{"avg":{},"p50":{},"p90":{},"p95":{},"p99":{}},"duration":"5m0s"}],"#,
            r#""numaUsages":[{"numaNodeID":0,"nodeUsage":{"resources":{"cpu":"2345m","memory":"500Mi"}},"systemUsage":{}}]},"#,
            r#""podsMetric":[{"name":"web-0","namespace":"shop","podUsage":{"resources":{"cpu":"1001m","memory":"300Mi"}},"#,
            r#""priority":"koord-prod","qos":"LS"}]}"#,
        )
    );
}

#[test]
fn figures_are_truncated() {
    // M1 and X15.
    for (cores, expected) in [
        (1.001, "1001m"),
        (0.29, "290m"),
        (2.3456, "2345m"),
        (0.5795, "579m"),
        (4.35, "4350m"),
        (1.0049, "1004m"),
        (0.0009, "0"),
        (128.9999, "128999m"),
    ] {
        let world = World::new();
        world.node(0, cores, 1.9);
        let usage = &world.json()["nodeMetric"]["nodeUsage"];
        assert_eq!(usage, &json!({"resources": {"cpu": expected, "memory": "1"}}));
    }
}

#[test]
fn a_window_has_both_ends() {
    let world = World::new();
    for (before, cpu) in [(301, 100.0), (300, 3.0), (0, 1.0)] {
        world.sample(before, Object::Node, Kind::NodeCpuUsage, cpu);
        world.sample(before, Object::Node, Kind::NodeMemoryUsage, cpu);
    }
    let usage = &world.json()["nodeMetric"]["nodeUsage"]["resources"];
    assert_eq!(usage, &json!({"cpu": "2", "memory": "2"}));
}

#[test]
fn a_cold_window_has_its_keys_and_no_figures() {
    let empty = json!({"avg": {}, "p50": {}, "p90": {}, "p95": {}, "p99": {}});
    let ten_minutes = |seconds: u64| {
        let mut world = World::new();
        world.policy.durations = vec![Duration::from_secs(600)];
        world.node(seconds, 1.0, GIB);
        world.json()["nodeMetric"]["aggregatedNodeUsages"].clone()
    };
    // M5.
    let figures = json!({"resources": {"cpu": "1", "memory": "1Gi"}});
    let full = json!({"avg": figures, "p50": figures, "p90": figures, "p95": figures, "p99": figures});
    assert_eq!(ten_minutes(300), json!([{"usage": full, "duration": "10m0s"}]));
    assert_eq!(ten_minutes(299), json!([{"usage": empty, "duration": "10m0s"}]));
    // X14: 151 samples are half of 5 min.
    let mut world = World::new();
    world.policy.durations = vec![Duration::from_secs(300)];
    world.node(150, 1.0, GIB);
    assert_eq!(
        world.json()["nodeMetric"]["aggregatedNodeUsages"],
        json!([{"usage": full, "duration": "5m0s"}])
    );
    // Only the CPU's samples are looked at; without memory there is nothing to report either.
    let mut world = World::new();
    world.policy.durations = vec![Duration::from_secs(300)];
    for before in (0..=150).rev() {
        world.sample(before, Object::Node, Kind::NodeCpuUsage, 1.0);
    }
    assert_eq!(
        world.json()["nodeMetric"]["aggregatedNodeUsages"],
        json!([{"usage": empty, "duration": "5m0s"}])
    );
    world.sample(0, Object::Node, Kind::NodeMemoryUsage, GIB);
    assert_eq!(
        world.json()["nodeMetric"]["aggregatedNodeUsages"],
        json!([{"usage": full, "duration": "5m0s"}])
    );
}

#[test]
fn durations_are_reported_in_the_order_of_the_spec() {
    let mut world = World::new();
    let durations = |world: &World| {
        let report = world.report().status.node_metric.unwrap();
        let of = |list: Vec<koord_crd::node_metric::AggregatedUsage>| {
            list.into_iter().map(|entry| entry.duration).collect::<Vec<GoDuration>>()
        };
        (of(report.aggregated_node_usages), of(report.aggregated_system_usages))
    };
    let default = [300, 600, 1800].map(GoDuration::from_secs).to_vec();
    assert_eq!(durations(&world), (default.clone(), default));
    world.policy.durations = [600, 60].map(Duration::from_secs).into();
    let stated = [600, 60].map(GoDuration::from_secs).to_vec();
    assert_eq!(durations(&world), (stated.clone(), stated.clone()));
    world.options.profile = Profile::Slim;
    assert_eq!(durations(&world), (stated, Vec::new()));
    // X13.
    world.policy.durations = Vec::new();
    assert_eq!(world.json()["nodeMetric"], json!({"nodeUsage": {}, "systemUsage": {}}));
}

#[test]
fn an_unknown_node_is_reported_as_unknown() {
    // M6, and M12: without NodeSLO there are no host applications.
    let mut world = World::new();
    world.policy.durations = Vec::new();
    world.use_pod("shop", "web", 0.5, MIB);
    assert_eq!(
        world.json(),
        json!({
            "updateTime": "2026-07-24T08:00:00Z",
            "nodeMetric": {"nodeUsage": {}, "systemUsage": {}},
            "podsMetric": [{"name": "web", "namespace": "shop", "priority": "koord-prod", "qos": "LS",
                "podUsage": {"resources": {"cpu": "500m", "memory": "1Mi"}}}],
        })
    );
    assert_eq!(world.report().gauges, Gauges::default());
    // CPU alone is not a usage.
    world.sample(0, Object::Node, Kind::NodeCpuUsage, 1.0);
    assert_eq!(world.json()["nodeMetric"]["nodeUsage"], json!({}));
}

#[test]
fn pods_are_sorted_and_complete() {
    // M9.
    let mut world = World::new();
    for (namespace, name) in [("b", "x"), ("a", "z"), ("a", "y")] {
        world.use_pod(namespace, name, 0.1, MIB);
    }
    // M11, and a pod that has ended although its samples are still there.
    let object = world.pod("a", "no-memory");
    world.sample(0, object, Kind::PodCpuUsage, 1.0);
    let object = world.add_pod(&json!({"metadata": {"name": "done", "namespace": "a", "uid": "d"},
        "status": {"phase": "Succeeded"}}));
    world.steady(2, object, (Kind::PodCpuUsage, Kind::PodMemoryUsage), 1.0, MIB);
    let status = world.report().status;
    let keys: Vec<String> =
        status.pods_metric.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    assert_eq!(keys, ["a/y", "a/z", "b/x"]);
}

#[test]
fn classes_of_pods_have_defaults() {
    // M10, and classes that are stated.
    let mut world = World::new();
    let guaranteed = json!({"metadata": {"name": "g", "namespace": "a", "uid": "g"},
        "status": {"phase": "Running", "qosClass": "Guaranteed"}});
    let batch = json!({"metadata": {"name": "h", "namespace": "a", "uid": "h",
        "labels": {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}},
        "status": {"phase": "Running", "qosClass": "BestEffort"}});
    for pod in [guaranteed, batch] {
        let object = world.add_pod(&pod);
        world.steady(1, object, (Kind::PodCpuUsage, Kind::PodMemoryUsage), 1.0, MIB);
    }
    let status = world.report().status;
    let classes: Vec<(&str, &str)> =
        status.pods_metric.iter().map(|pod| (pod.qos.as_str(), pod.priority.as_str())).collect();
    assert_eq!(classes, [("LSR", "koord-prod"), ("BE", "koord-batch")]);
}

#[test]
fn memory_is_measured_as_the_policy_wants() {
    let mut world = World::new();
    world.policy.memory = MemoryMeasure::WithPageCache;
    world.policy.durations = vec![Duration::from_secs(60)];
    world.node(60, 1.0, GIB);
    world.system(60, 0.5, GIB / 4.0);
    world.use_pod("a", "p", 0.5, GIB / 2.0);
    let pod = Object::Pod("uid-p".into());
    world.sample(0, Object::Node, Kind::NodeMemoryUsageWithPageCache, 3.0 * GIB);
    world.sample(0, Object::Node, Kind::SystemMemoryUsageWithPageCache, 2.0 * GIB);
    world.sample(0, pod, Kind::PodMemoryUsageWithPageCache, GIB);
    let memory = |world: &World| {
        let json = world.json();
        [
            &json["nodeMetric"]["nodeUsage"],
            &json["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]["p95"],
            &json["nodeMetric"]["systemUsage"],
            &json["nodeMetric"]["aggregatedSystemUsages"][0]["usage"]["p95"],
            &json["podsMetric"][0]["podUsage"],
        ]
        .map(|usage| usage["resources"]["memory"].as_str().unwrap_or("none").to_owned())
    };
    // The system's is without page cache, unless wanted otherwise.
    assert_eq!(memory(&world), ["3Gi", "3Gi", "256Mi", "256Mi", "1Gi"]);
    assert_eq!(world.report().memory_fallback, None);
    world.options.policy_aware_system_memory = true;
    assert_eq!(memory(&world), ["3Gi", "3Gi", "2Gi", "2Gi", "1Gi"]);
    world.policy.memory = MemoryMeasure::WithoutPageCache;
    assert_eq!(memory(&world), ["1Gi", "1Gi", "256Mi", "256Mi", "512Mi"]);
    // M8: the kernel does not tell which page cache is in use.
    world.policy.memory = MemoryMeasure::WithHotPageCache;
    assert_eq!(memory(&world), ["1Gi", "1Gi", "256Mi", "256Mi", "512Mi"]);
    assert_eq!(world.report().memory_fallback, Some(MemoryFallback::HotPageCacheUnsupported));
    // Where it does, but nothing was measured yet.
    world.options.hot_page_cache = true;
    assert_eq!(memory(&world), ["1Gi", "1Gi", "256Mi", "256Mi", "512Mi"]);
    let fallback = MemoryFallback::NoSamples(MemoryMeasure::WithHotPageCache);
    assert_eq!(world.report().memory_fallback, Some(fallback));
    world.sample(0, Object::Node, Kind::NodeMemoryWithHotPageUsage, 1.5 * GIB);
    assert_eq!(memory(&world)[0], "1536Mi");
}

#[test]
fn a_series_that_is_empty_is_replaced() {
    // M7.
    let mut world = World::new();
    world.policy.memory = MemoryMeasure::WithPageCache;
    world.options.policy_aware_system_memory = true;
    world.node(0, 1.0, GIB);
    world.system(0, 0.5, GIB / 4.0);
    world.use_pod("a", "p", 0.5, GIB / 2.0);
    let report = world.report();
    let json = serde_json::to_value(&report.status).unwrap();
    assert_eq!(json["nodeMetric"]["nodeUsage"]["resources"]["memory"], "1Gi");
    assert_eq!(json["nodeMetric"]["systemUsage"]["resources"]["memory"], "256Mi");
    assert_eq!(json["podsMetric"][0]["podUsage"]["resources"]["memory"], "512Mi");
    let fallback = report.memory_fallback.unwrap();
    assert_eq!(fallback, MemoryFallback::NoSamples(MemoryMeasure::WithPageCache));
    assert!(fallback.to_string().starts_with("usageWithPageCache is asked for, but not measured"));
}

#[test]
fn numa_nodes_need_cpu_and_memory() {
    // M13, and the order of numbers.
    let mut world = World::new();
    world.policy.durations = Vec::new();
    world.numa_nodes = vec![2, 1, 0];
    for (number, cpu) in [(0, 1.0), (2, 3.0)] {
        world.steady(1, Object::Numa(number), (Kind::NumaCpuUsage, Kind::NumaMemoryUsage), cpu, GIB);
    }
    world.sample(0, Object::Numa(1), Kind::NumaCpuUsage, 2.0);
    world.steady(1, Object::Numa(2), (Kind::SystemNumaCpuUsage, Kind::SystemNumaMemoryUsage), 0.5, MIB);
    let report = world.report();
    assert_eq!(
        serde_json::to_value(&report.status.node_metric.unwrap().numa_usages).unwrap(),
        json!([
            {"numaNodeID": 0, "nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}, "systemUsage": {}},
            {"numaNodeID": 2, "nodeUsage": {"resources": {"cpu": "3", "memory": "1Gi"}},
                "systemUsage": {"resources": {"cpu": "500m", "memory": "1Mi"}}},
        ])
    );
    let gauges: Vec<(u32, f64, Option<f64>)> = report
        .gauges
        .numa
        .iter()
        .map(|numa| (numa.numa_node_id, numa.node.cpu, numa.system.map(|system| system.cpu)))
        .collect();
    assert_eq!(gauges, [(0, 1.0, None), (2, 3.0, Some(0.5))]);
}

#[test]
fn host_applications_are_sorted_and_have_their_own_classes() {
    let mut world = World::new();
    let application = |name: &str, priority: &str, qos: &str| HostApplication {
        name: name.to_owned(),
        priority: priority.to_owned(),
        qos: qos.to_owned(),
        ..HostApplication::default()
    };
    world.host_applications = vec![
        application("yarn", "koord-batch", "BE"),
        application("nginx", "", "LS"),
        application("absent", "", ""),
    ];
    let kinds = (Kind::HostApplicationCpuUsage, Kind::HostApplicationMemoryUsage);
    for (name, cpu) in [("yarn", 2.0), ("nginx", 0.5)] {
        world.steady(1, Object::HostApplication(name.into()), kinds, cpu, MIB);
    }
    assert_eq!(
        world.json()["hostApplicationMetric"],
        json!([
            {"name": "nginx", "usage": {"resources": {"cpu": "500m", "memory": "1Mi"}}, "qos": "LS"},
            {"name": "yarn", "usage": {"resources": {"cpu": "2", "memory": "1Mi"}},
                "priority": "koord-batch", "qos": "BE"},
        ])
    );
}

#[test]
fn gpus_with_samples_are_reported() {
    // M14 and X17.
    let mut world = World::new();
    let gpu = |minor: u32, healthy| GpuFacts {
        minor,
        uuid: format!("GPU-{minor}").into(),
        memory: Bytes(8000 * 1_048_576),
        healthy,
    };
    world.gpus = vec![gpu(0, false), gpu(1, true)];
    world.node(0, 1.0, GIB);
    world.use_pod("a", "p", 0.5, MIB);
    let object = |user, minor: u32| Object::Gpu { user, minor, uuid: format!("GPU-{minor}").into() };
    let node = object(GpuUser::Node, 0);
    world.steady(1, node, (Kind::NodeGpuCoreUsage, Kind::NodeGpuMemoryUsage), 37.9, 4200.0 * MIB);
    let pod = object(GpuUser::Pod("uid-p".into()), 1);
    world.steady(1, pod, (Kind::PodGpuCoreUsage, Kind::PodGpuMemoryUsage), 100.0, 8000.0 * MIB);
    let json = world.json();
    assert_eq!(
        json["nodeMetric"]["nodeUsage"]["devices"],
        json!([{"type": "gpu", "id": "GPU-0", "minor": 0, "health": false, "resources": {
            "koordinator.sh/gpu-core": "37", "koordinator.sh/gpu-memory": "4200Mi",
            "koordinator.sh/gpu-memory-ratio": "52"}}])
    );
    assert_eq!(
        json["podsMetric"][0]["podUsage"]["devices"],
        json!([{"type": "gpu", "id": "GPU-1", "minor": 1, "health": true, "resources": {
            "koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "8000Mi",
            "koordinator.sh/gpu-memory-ratio": "100"}}])
    );
    // Percentiles have their own: of 0 to 99 percent the median is the fiftieth value.
    world.policy.durations = vec![Duration::from_secs(100)];
    world.node(99, 1.0, GIB);
    for before in (0..100_u32).rev() {
        let object = object(GpuUser::Node, 1);
        world.sample(before.into(), object.clone(), Kind::NodeGpuCoreUsage, f64::from(99 - before));
        world.sample(before.into(), object, Kind::NodeGpuMemoryUsage, 800.0 * MIB);
    }
    let usage = world.json()["nodeMetric"]["aggregatedNodeUsages"][0]["usage"].clone();
    let cores = |key: &str| {
        let devices = usage[key]["devices"].as_array().unwrap().iter();
        devices.map(|device| device["resources"]["koordinator.sh/gpu-core"].clone()).collect::<Vec<_>>()
    };
    assert_eq!([cores("avg"), cores("p50"), cores("p99")], [["37", "49"], ["37", "49"], ["37", "98"]]);
    assert_eq!(gpu::resources(1.0, 1.0, Bytes(0))["koordinator.sh/gpu-memory-ratio"].value(), 0);
}

#[test]
fn predictions_are_part_of_the_status() {
    let mut world = World::new();
    world.policy.durations = Vec::new();
    world.use_pod("shop", "web", 0.5, GIB);
    let options = PredictorOptions { min_samples: 0, ..PredictorOptions::default() };
    let mut predictor = Predictor::new(options.clone());
    let usage = Usage { cpu: 0.5, memory: GIB };
    let pods = vec![PodUsage {
        uid: "uid-web".into(),
        class: Some(koord_extension::priority::PriorityClass::Prod),
        usage,
    }];
    predictor.train(&TrainingRound { node: Some(usage), pods }, wall());
    let node = Some(Resources { cpu: MilliCpu(8000), memory: Bytes(16 << 30) });
    world.predictor = Some((predictor, node));
    let json = world.json();
    // The pod's peak is 592m, as of a sample of half a core; the classes' is (539 + 25 + 25) x 1.1 = 647m.
    assert_eq!(json["prodReclaimableMetric"]["resource"]["resources"]["cpu"], "1353m");
    assert_eq!(json["prodPeakMetric"]["resource"]["resources"]["cpu"], "647m");

    // R10: the node is not known. The peak does not need it.
    world.predictor.as_mut().unwrap().1 = None;
    let json = world.json();
    assert_eq!(json["prodReclaimableMetric"], json!({"resource": {}}));
    assert_eq!(json["prodPeakMetric"]["resource"]["resources"]["cpu"], "647m");

    // R9: nothing was learnt of the system.
    world.predictor = Some((Predictor::new(options), node));
    let json = world.json();
    assert_eq!(json["prodReclaimableMetric"], json!({"resource": {}}));
    assert_eq!(json.get("prodPeakMetric"), None);

    // Pods without usage are not looked at.
    world.pod("shop", "silent");
    let prediction = world.report().prediction.unwrap();
    assert_eq!(prediction.problems.iter().map(|one| one.pod.as_str()).collect::<Vec<_>>(), ["shop/web"]);

    world.predictor = None;
    assert_eq!(world.json().get("prodReclaimableMetric"), None);
}

#[test]
fn gauges_have_base_units() {
    let world = World::new();
    world.node(1, 2.5, GIB);
    world.system(1, 0.25, MIB);
    let gauges = world.report().gauges;
    assert_eq!(gauges.node, Some(GaugeUsage { cpu: 2.5, memory: GIB }));
    assert_eq!(gauges.system, Some(GaugeUsage { cpu: 0.25, memory: MIB }));
}

#[test]
fn every_figure_can_be_explained() {
    let mut world = World::new();
    world.policy.durations = vec![Duration::from_secs(300)];
    world.policy.memory = MemoryMeasure::WithPageCache;
    world.node(10, 1.0, GIB);
    world.use_pod("a", "p", 0.5, MIB);
    assert_eq!(world.report().evidence, []);
    world.options.explain = true;
    let report = world.report();
    let of = |field: &str| -> Vec<Value> {
        let found = report.evidence.iter().filter(|evidence| evidence.field == field);
        found.map(|evidence| serde_json::to_value(evidence).unwrap()).collect()
    };
    assert_eq!(
        of("nodeMetric.nodeUsage.resources.cpu"),
        [json!({"field": "nodeMetric.nodeUsage.resources.cpu", "object": "node", "series": "node_cpu_usage",
            "windowMillis": 300_000, "count": 11, "firstMillis": 10_000, "lastMillis": 0})]
    );
    let memory = of("podsMetric[a/p].podUsage.resources.memory");
    assert_eq!(memory[0]["series"], "pod_memory_usage_with_page_cache");
    assert_eq!((&memory[0]["count"], &memory[0]["note"]), (&json!(0), &json!("no sample")));
    assert_eq!(memory[1]["series"], "pod_memory_usage");
    assert_eq!(memory[1]["note"], "in place of usageWithPageCache, which has no samples");
    let cold = of("nodeMetric.aggregatedNodeUsages[5m0s].usage.*.resources.cpu");
    assert_eq!(cold[0]["note"], "left out: samples span 10000 ms, less than half of the window");
    assert_eq!(of("nodeMetric.systemUsage.resources.cpu")[0]["count"], 0);
    // The figures are the same, explained or not.
    world.options.explain = false;
    assert_eq!(world.report().status, report.status);
}

#[test]
fn training_takes_the_percentiles_of_the_last_interval() {
    let mut world = World::new();
    let minute = Duration::from_secs(60);
    let object = world.pod("a", "p");
    // Outside of the minute, then 1 to 10: the 90th percentile is the ninth.
    world.sample(61, Object::Node, Kind::NodeCpuUsage, 100.0);
    for value in 1..=10_u32 {
        let before = u64::from(10 - value);
        world.sample(before, Object::Node, Kind::NodeCpuUsage, f64::from(value));
        world.sample(before, Object::Node, Kind::NodeMemoryUsage, f64::from(value) * MIB);
        world.sample(before, object.clone(), Kind::PodCpuUsage, f64::from(value) / 10.0);
        world.sample(before, object.clone(), Kind::PodMemoryUsage, f64::from(value));
    }
    let object = world.pod("a", "no-memory");
    world.sample(0, object, Kind::PodCpuUsage, 1.0);
    let round = training_round(&world.store, Tick(NOW), minute, &world.pods, &world.bands);
    assert_eq!(round.node, Some(Usage { cpu: 9.0, memory: 9.0 * MIB }));
    let pod = PodUsage {
        uid: "uid-p".into(),
        class: Some(koord_extension::priority::PriorityClass::Prod),
        usage: Usage { cpu: 0.9, memory: 9.0 },
    };
    assert_eq!(round.pods, [pod]);
    let later = training_round(&world.store, Tick(NOW + 120_000), minute, &world.pods, &world.bands);
    assert_eq!(later, TrainingRound::default());
    // What is learnt is found under the pod's name.
    let mut predictor = Predictor::new(PredictorOptions::default());
    predictor.train(&round, wall());
    assert!(predictor.model(&ModelName::pod("uid-p")).is_some());
}
