use koord_usage::pass::Pass;
use koord_usage::wire::{Parts, Teller};

use super::*;

fn pod(name: &str, qos: &str, containers: &[&str]) -> Arc<v1::Pod> {
    Arc::new(v1::Pod {
        uid: format!("uid-{name}"),
        namespace: if name == "web" { "shop" } else { "batch" }.to_owned(),
        name: name.to_owned(),
        qos_class: qos.to_owned(),
        priority_class: if qos == "BE" { "koord-batch" } else { "" }.to_owned(),
        kube_qos_class: "Burstable".to_owned(),
        cgroup: format!("/kubepods/burstable/poduid-{name}"),
        containers: containers
            .iter()
            .map(|id| v1::Container {
                id: (*id).to_owned(),
                name: format!("c-{id}"),
                ..v1::Container::default()
            })
            .collect(),
        batch_milli_cpu_request: None,
    })
}

fn pods() -> Vec<Arc<v1::Pod>> {
    vec![pod("web", "", &["a"]), pod("crunch", "BE", &["c", "b"]), pod("idle", "BE", &[])]
}

/// Figures that heard a history through the protocol.
fn told(pods: &[Arc<v1::Pod>], passes: &[Pass]) -> Figures {
    let mut figures = Figures::default();
    let mut reader = Reader::new();
    let mut teller = Teller::new(Parts::ALL);
    let start = v1::Start { cpus: 4, memory_bytes: 1 << 30, ..v1::Start::default() };
    let start = v1::WatchResponse { event: Some(v1::watch_response::Event::Start(start)) };
    let messages = std::iter::once(start)
        .chain(teller.inventory(pods))
        .chain(passes.iter().map(|pass| teller.pass(pass, false)).collect::<Vec<_>>());
    for message in messages {
        let event = reader.apply(message, Tick(0)).expect("by the rules");
        figures.take(event, &reader);
    }
    figures
}

fn of_pod(name: &str) -> Object {
    Object::Pod(format!("uid-{name}").into())
}

fn passes() -> Vec<Pass> {
    let pressure = Pressure {
        resource: PressureResource::Cpu,
        degree: PressureDegree::Some,
        figure: PressureFigure::Avg10,
    };
    (1..=70_u32)
        .map(|second| {
            let mut pass = Pass::new(Tick(u64::from(second) * 1000));
            let rising = f64::from(second);
            pass.push(Object::Node, Kind::NodeCpuUsage, 2.0);
            pass.push(Object::Node, Kind::NodeMemoryUsage, 1000.4);
            pass.push(Object::Node, Kind::SystemCpuUsage, 0.5);
            pass.push(Object::Numa(1), Kind::NumaCpuUsage, 0.25);
            pass.push(Object::Numa(0), Kind::NumaCpuUsage, 0.75);
            pass.push(Object::Tier(TierSeries::RealLimit), Kind::NodeBe, 1500.0);
            pass.push(of_pod("web"), Kind::PodCpuUsage, rising);
            pass.push(of_pod("crunch"), Kind::PodCpuUsage, 0.125);
            pass.push(of_pod("crunch"), Kind::PodCpuThrottled, 0.5);
            pass.push(of_pod("crunch"), Kind::PodPsi(pressure), 12.5);
            // Memory comes less often, and that of one pod stopped coming.
            if second == 66 {
                pass.push(of_pod("crunch"), Kind::PodMemoryUsage, 2048.0);
            }
            if second == 39 {
                pass.push(of_pod("web"), Kind::PodMemoryUsage, 4096.0);
            }
            let id = || Object::Container { pod_uid: "uid-crunch".into(), id: "b".into() };
            pass.push(id(), Kind::ContainerCpuUsage, 0.0625);
            pass
        })
        .collect()
}

#[test]
fn averages_span_a_minute_and_old_figures_are_left_out() {
    let figures = told(&pods(), &passes());
    assert!(figures.has_rates());
    let pods = figures.pods(&TopPods::default());
    let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["web", "crunch", "idle"]);
    let expected = UsageFigures {
        cpu_cores: Some(70.0),
        // The seconds 10 to 70, both included.
        cpu_cores_average_1m: Some(40.0),
        // 31 s old.
        memory_bytes: None,
        memory_with_page_cache_bytes: None,
    };
    assert_eq!(pods[0].usage.figures, expected);
    assert_eq!((pods[0].qos.as_str(), pods[0].effective_qos.as_str()), ("", "LS"));
    assert_eq!(pods[1].usage.figures.memory_bytes, Some(2048));
    assert_eq!(pods[1].usage.cpu_throttled_ratio, Some(0.5));
    assert_eq!(pods[1].usage.cpu_pressure_some_10s, Some(12.5));
    assert_eq!(pods[1].usage.io_pressure_some_10s, None);
    assert_eq!(pods[1].priority_class, "koord-batch");
    let containers: Vec<(&str, Option<f64>)> = pods[1]
        .containers
        .iter()
        .map(|container| (container.name.as_str(), container.usage.figures.cpu_cores))
        .collect();
    assert_eq!(containers, [("c-b", Some(0.0625)), ("c-c", None)]);
    assert_eq!(pods[2].usage, GroupUsage::default());
}

#[test]
fn pods_are_chosen_and_ordered() {
    let figures = told(&pods(), &passes());
    let names = |options: &TopPods| -> Vec<String> {
        figures.pods(options).into_iter().map(|pod| pod.name).collect()
    };
    let sorted = |sort| names(&TopPods { sort, ..TopPods::default() });
    assert_eq!(sorted(SortBy::Name), ["crunch", "idle", "web"]);
    assert_eq!(sorted(SortBy::CpuAverage), ["web", "crunch", "idle"]);
    assert_eq!(sorted(SortBy::Throttled), ["crunch", "idle", "web"]);
    assert_eq!(sorted(SortBy::Memory), ["crunch", "idle", "web"]);
    assert_eq!(sorted(SortBy::Pressure), ["crunch", "idle", "web"]);
    let with = |text: &str| TopPods { text: Some(text.to_owned()), ..TopPods::default() };
    assert_eq!(names(&with("shop/w")), ["web"]);
    assert_eq!(names(&with("i")), ["idle"]);
    assert_eq!(names(&with("nothing")), [] as [&str; 0]);
    assert_eq!(
        names(&TopPods { namespace: Some("batch".to_owned()), ..TopPods::default() }),
        ["crunch", "idle"]
    );
    assert_eq!(names(&TopPods { qos: Some(QosClass::Ls), ..TopPods::default() }), ["web"]);
    assert_eq!(names(&TopPods { limit: Some(2), ..TopPods::default() }), ["web", "crunch"]);
}

#[test]
fn classes_are_sums_of_their_pods() {
    let qos = told(&pods(), &passes()).qos();
    let classes: Vec<(&str, u64, Option<f64>, Option<u64>)> = qos
        .classes
        .iter()
        .map(|class| (class.qos.as_str(), class.pods, class.figures.cpu_cores, class.figures.memory_bytes))
        .collect();
    assert_eq!(classes, [("LS", 1, Some(70.0), None), ("BE", 2, Some(0.125), Some(2048))]);
    assert_eq!((qos.best_effort_cpu_limit_cores, qos.best_effort_cpu_request_cores), (Some(1.5), None));
}

#[test]
fn the_node_has_its_parts() {
    let node = told(&pods(), &passes()).node();
    assert_eq!((node.cpus, node.memory_capacity_bytes, node.pod_count), (Some(4), Some(1 << 30), 3));
    assert_eq!((node.node.cpu_cores, node.node.memory_bytes), (Some(2.0), Some(1000)));
    assert_eq!((node.pods.cpu_cores, node.pods.memory_bytes), (Some(70.125), Some(2048)));
    assert_eq!((node.system.cpu_cores, node.system.memory_bytes), (Some(0.5), None));
    let numa: Vec<(u32, Option<f64>)> =
        node.numa_nodes.iter().map(|numa| (numa.numa_node, numa.figures.cpu_cores)).collect();
    assert_eq!(numa, [(0, Some(0.75)), (1, Some(0.25))]);
}

#[test]
fn without_samples_there_is_nothing_to_tell() {
    let figures = told(&[], &[]);
    assert!(!figures.has_rates());
    assert_eq!(figures.qos(), QosUsage::default());
    assert_eq!(figures.pods(&TopPods::default()), []);
    assert_eq!(figures.node().node, UsageFigures::default());
    let mut first = Pass::new(Tick(1));
    first.push(Object::Node, Kind::NodeCpuUsage, 1.0);
    // Rates of the node alone are enough where there are no pods.
    assert!(told(&[], std::slice::from_ref(&first)).has_rates());
    assert!(!told(&pods(), &[first]).has_rates());
}

#[test]
fn pods_that_go_are_forgotten() {
    let mut figures = told(&pods(), &passes());
    let mut reader = Reader::new();
    for message in [
        v1::watch_response::Event::Start(v1::Start::default()),
        v1::watch_response::Event::Inventory(v1::Inventory { pods: vec![v1::Pod::clone(&pods()[0])] }),
    ] {
        let event = reader.apply(v1::WatchResponse { event: Some(message) }, Tick(0)).expect("by the rules");
        figures.take(event, &reader);
    }
    assert!(!figures.windows.objects().contains(&of_pod("crunch")));
    assert_eq!(figures.pods(&TopPods::default()).len(), 1);
    assert!(figures.windows.objects().contains(&of_pod("web")));
}
