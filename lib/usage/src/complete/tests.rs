use super::*;
use std::sync::Arc;

use koord_cgroup::path::CgroupPath;
use koord_extension::qos::KubeQos;
use koord_extension::units::MilliCpu;
use proptest::prelude::*;

use crate::inventory::{HostApplicationEntry, PodEntry};

fn inventory(pods: &[&str]) -> Inventory {
    let pod = |uid: &&str| {
        Arc::new(PodEntry {
            uid: (*uid).into(),
            namespace: "shop".into(),
            name: (*uid).into(),
            qos: None,
            kube_qos: KubeQos::Burstable,
            cgroup: CgroupPath::root(),
            batch_cpu_request: MilliCpu::ZERO,
            containers: Vec::new(),
        })
    };
    Inventory { pods: pods.iter().map(pod).collect(), ..Inventory::default() }
}

fn with_application(mut live: Inventory, name: &str) -> Inventory {
    live.host_applications
        .push(Arc::new(HostApplicationEntry { name: name.into(), cgroup: CgroupPath::root() }));
    live
}

fn pod(uid: &str) -> Object {
    Object::Pod(uid.into())
}

fn pass(seconds: u64, samples: &[(Object, Kind, f64)]) -> Pass {
    let mut pass = Pass::new(Tick(seconds * 1000));
    for (object, kind, value) in samples {
        pass.push(object.clone(), *kind, *value);
    }
    pass
}

fn node(cpu: f64, memory: f64) -> Vec<(Object, Kind, f64)> {
    vec![(Object::Node, Kind::NodeCpuUsage, cpu), (Object::Node, Kind::NodeMemoryUsage, memory)]
}

fn pod_samples(uid: &str, cpu: f64, memory: f64) -> Vec<(Object, Kind, f64)> {
    vec![(pod(uid), Kind::PodCpuUsage, cpu), (pod(uid), Kind::PodMemoryUsage, memory)]
}

fn application(name: &str, cpu: f64, memory: f64) -> Vec<(Object, Kind, f64)> {
    let object = || Object::HostApplication(name.into());
    vec![(object(), Kind::HostApplicationCpuUsage, cpu), (object(), Kind::HostApplicationMemoryUsage, memory)]
}

/// The system's CPU and memory after `pass`.
fn system(completion: &mut Completion, mut pass: Pass, live: &Inventory) -> (Option<f64>, Option<f64>) {
    completion.complete(&mut pass, live);
    (pass.value(&Object::Node, Kind::SystemCpuUsage), pass.value(&Object::Node, Kind::SystemMemoryUsage))
}

fn close(found: Option<f64>, expected: f64) {
    let found = found.expect("a sample");
    assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
}

#[test]
fn the_system_has_what_nobody_else_has() {
    let mut completion = Completion::default();
    let live = with_application(inventory(&["a", "b"]), "nginx");
    let samples = [
        node(4.0, 1000.0),
        pod_samples("a", 1.0, 100.0),
        pod_samples("b", 0.5, 250.0),
        application("nginx", 0.25, 50.0),
    ];
    let found = system(&mut completion, pass(10, &samples.concat()), &live);
    assert_eq!(found, (Some(2.25), Some(600.0)));
}

#[test]
fn the_system_never_has_less_than_nothing() {
    let mut completion = Completion::default();
    let live = inventory(&["a"]);
    let samples = [node(4.0, 100.0), pod_samples("a", 2.5, 60.0), application("x", 2.0, 60.0)];
    assert_eq!(system(&mut completion, pass(10, &samples.concat()), &live), (Some(0.0), Some(0.0)));
}

#[test]
fn without_pods_and_applications_all_is_the_systems() {
    let found = system(&mut Completion::default(), pass(10, &node(1.5, 64.0)), &inventory(&[]));
    assert_eq!(found, (Some(1.5), Some(64.0)));
}

#[test]
fn a_missing_figure_ends_it() {
    let live = inventory(&["a"]);
    // The first pass of a sampler has none of these.
    assert_eq!(system(&mut Completion::default(), pass(1, &[]), &live), (None, None));
    // No pod gave a figure.
    assert_eq!(system(&mut Completion::default(), pass(1, &node(1.0, 1.0)), &live), (None, None));
    // No figure of the node.
    assert_eq!(system(&mut Completion::default(), pass(1, &pod_samples("a", 1.0, 1.0)), &live), (None, None));
    // No memory of the pod: not even CPU.
    let samples = [node(1.0, 1.0), vec![(pod("a"), Kind::PodCpuUsage, 0.5)]];
    assert_eq!(system(&mut Completion::default(), pass(1, &samples.concat()), &live), (None, None));
}

#[test]
fn figures_of_pods_count_for_ten_seconds() {
    for (age, expected) in [(10, (Some(1.0), Some(90.0))), (11, (None, None))] {
        let mut completion = Completion::default();
        let live = inventory(&["a"]);
        system(&mut completion, pass(100, &pod_samples("a", 3.0, 10.0)), &live);
        let found = system(&mut completion, pass(100 + age, &node(4.0, 100.0)), &live);
        assert_eq!(found, expected, "{age} s");
    }
}

#[test]
fn figures_of_the_node_count_for_ten_seconds() {
    for (age, expected) in [(10, (Some(3.0), Some(90.0))), (11, (None, None))] {
        let mut completion = Completion::default();
        let live = inventory(&["a"]);
        system(&mut completion, pass(100, &node(4.0, 100.0)), &live);
        let found = system(&mut completion, pass(100 + age, &pod_samples("a", 1.0, 10.0)), &live);
        assert_eq!(found, expected, "{age} s");
    }
}

#[test]
fn memory_of_pods_is_the_newest_of_each() {
    let mut completion = Completion::default();
    let live = inventory(&["a", "b"]);
    let first = [node(2.0, 1000.0), pod_samples("a", 0.5, 100.0), pod_samples("b", 0.5, 200.0)];
    system(&mut completion, pass(1, &first.concat()), &live);
    // Their CPU comes with every pass, their memory from time to time.
    let cpu = |uid: &str| vec![(pod(uid), Kind::PodCpuUsage, 0.25)];
    let second = [node(2.0, 1000.0), cpu("a"), cpu("b")];
    assert_eq!(system(&mut completion, pass(4, &second.concat()), &live), (Some(1.5), Some(700.0)));
    let third = [node(2.0, 1000.0), cpu("a"), pod_samples("b", 0.25, 300.0)];
    assert_eq!(system(&mut completion, pass(5, &third.concat()), &live), (Some(1.5), Some(600.0)));
    // 11 s after its last figure pod a is left out, pod b is not.
    let fourth = [node(2.0, 1000.0), cpu("a"), cpu("b")];
    assert_eq!(system(&mut completion, pass(12, &fourth.concat()), &live), (Some(1.5), Some(700.0)));
}

#[test]
fn slow_memory_is_not_too_old() {
    let options =
        CompletionOptions { memory_interval: Duration::from_secs(15), ..CompletionOptions::default() };
    let mut completion = Completion::new(options);
    let live = inventory(&["a"]);
    system(&mut completion, pass(100, &pod_samples("a", 1.0, 10.0)), &live);
    for (seconds, memory) in [(130, Some(90.0)), (131, None)] {
        let samples = [node(4.0, 100.0), vec![(pod("a"), Kind::PodCpuUsage, 1.0)]].concat();
        assert_eq!(system(&mut completion, pass(seconds, &samples), &live).1, memory, "{seconds} s");
    }
}

/// <https://github.com/koordinator-sh/koordinator/issues/990>
#[test]
fn issue_990_a_deleted_pod_leaves_the_sum_at_once() {
    let mut completion = Completion::default();
    let samples = [node(4.0, 100.0), pod_samples("a", 1.0, 10.0), pod_samples("b", 2.0, 30.0)].concat();
    system(&mut completion, pass(1, &samples), &inventory(&["a", "b"]));
    // Its memory is with the node no more, so that it must not be subtracted.
    let samples = [node(2.0, 70.0), pod_samples("a", 1.0, 10.0)].concat();
    assert_eq!(system(&mut completion, pass(2, &samples), &inventory(&["a"])), (Some(1.0), Some(60.0)));
    // A sample of one that is not live does not bring it back.
    let samples = [node(2.0, 70.0), pod_samples("a", 1.0, 10.0), pod_samples("b", 0.5, 5.0)].concat();
    assert_eq!(system(&mut completion, pass(3, &samples), &inventory(&["a"])), (Some(1.0), Some(60.0)));
    // The last one goes.
    assert_eq!(system(&mut completion, pass(4, &node(2.0, 70.0)), &inventory(&[])), (Some(2.0), Some(70.0)));
}

#[test]
fn memory_of_applications_follows_the_policy() {
    let samples = [
        node(4.0, 100.0),
        application("x", 1.0, 10.0),
        vec![(Object::HostApplication("x".into()), Kind::HostApplicationMemoryUsageWithPageCache, 40.0)],
    ]
    .concat();
    let policies =
        [(HostApplicationMemory::WithoutPageCache, 90.0), (HostApplicationMemory::WithPageCache, 60.0)];
    for (host_application_memory, expected) in policies {
        let options = CompletionOptions { host_application_memory, ..CompletionOptions::default() };
        let found = system(&mut Completion::new(options), pass(1, &samples), &inventory(&[]));
        assert_eq!(found, (Some(3.0), Some(expected)));
    }
}

#[test]
fn memory_with_cache_is_subtracted_from_memory_with_cache() {
    let samples = [
        node(4.0, 100.0),
        pod_samples("a", 1.0, 10.0),
        application("x", 1.0, 5.0),
        vec![
            (Object::Node, Kind::NodeMemoryUsageWithPageCache, 500.0),
            (pod("a"), Kind::PodMemoryUsageWithPageCache, 200.0),
            (Object::HostApplication("x".into()), Kind::HostApplicationMemoryUsageWithPageCache, 30.0),
        ],
    ]
    .concat();
    let mut pass = pass(1, &samples);
    Completion::default().complete(&mut pass, &inventory(&["a"]));
    assert_eq!(pass.value(&Object::Node, Kind::SystemMemoryUsage), Some(85.0));
    assert_eq!(pass.value(&Object::Node, Kind::SystemMemoryUsageWithPageCache), Some(270.0));
    assert_eq!(pass.value(&Object::Node, Kind::SystemMemoryWithHotPageUsage), None, "nobody knows");
}

#[test]
fn cpu_of_the_system_is_shared_as_that_of_the_numa_nodes() {
    let numa = |first: f64, second: f64| {
        let samples = [
            node(4.0, 100.0),
            pod_samples("a", 3.2, 10.0),
            vec![(Object::Numa(0), Kind::NumaCpuUsage, first), (Object::Numa(1), Kind::NumaCpuUsage, second)],
        ];
        let mut pass = pass(1, &samples.concat());
        Completion::default().complete(&mut pass, &inventory(&["a"]));
        [0, 1].map(|numa| pass.value(&Object::Numa(numa), Kind::SystemNumaCpuUsage))
    };
    let [first, second] = numa(1.0, 3.0);
    close(first, 0.2);
    close(second, 0.6);
    assert_eq!(numa(0.0, 0.0), [Some(0.0), Some(0.0)]);
}

#[test]
fn an_old_figure_of_one_numa_node_ends_the_cpu_of_all() {
    let mut completion = Completion::default();
    let live = inventory(&[]);
    let both = [
        node(4.0, 100.0),
        vec![(Object::Numa(0), Kind::NumaCpuUsage, 1.0), (Object::Numa(1), Kind::NumaCpuUsage, 3.0)],
    ];
    completion.complete(&mut pass(1, &both.concat()), &live);
    for (seconds, expected) in [(11, Some(1.0)), (12, None)] {
        let one = [node(4.0, 100.0), vec![(Object::Numa(0), Kind::NumaCpuUsage, 1.0)]];
        let mut pass = pass(seconds, &one.concat());
        completion.complete(&mut pass, &live);
        assert_eq!(pass.value(&Object::Numa(0), Kind::SystemNumaCpuUsage), expected, "{seconds} s");
        assert_eq!(pass.value(&Object::Node, Kind::SystemCpuUsage), Some(4.0));
    }
}

#[test]
fn memory_of_numa_nodes_is_less_that_of_pods() {
    const MIB: f64 = 1024.0 * 1024.0;
    let part = |uid: &str, numa, value| {
        (Object::PodNuma { pod_uid: uid.into(), numa }, Kind::PodNumaMemoryUsage, value)
    };
    let nodes = vec![
        (Object::Numa(0), Kind::NumaMemoryUsage, 1024.0 * MIB),
        (Object::Numa(1), Kind::NumaMemoryUsage, 2048.0 * MIB),
    ];
    let memory = |samples: Vec<(Object, Kind, f64)>, pods: &[&str]| {
        let mut pass = pass(1, &samples);
        Completion::default().complete(&mut pass, &inventory(pods));
        [0, 1].map(|numa| pass.value(&Object::Numa(numa), Kind::SystemNumaMemoryUsage))
    };
    let pods = vec![
        part("a", 0, 500.0 * MIB),
        part("a", 1, 4000.0 * MIB),
        part("b", 0, 12.0 * MIB),
        part("b", 1, 96.0 * MIB),
    ];
    let all = [nodes.clone(), pods].concat();
    assert_eq!(memory(all.clone(), &["a", "b"]), [Some(512.0 * MIB), Some(0.0)]);
    // Host applications are not subtracted; they say nothing of NUMA nodes.
    let more = [all.clone(), application("x", 1.0, MIB)].concat();
    assert_eq!(memory(more, &["a", "b"]), [Some(512.0 * MIB), Some(0.0)]);
    // Pods that tell of one node use nothing of the other.
    let one = [nodes.clone(), vec![part("a", 0, 24.0 * MIB)]].concat();
    assert_eq!(memory(one, &["a"]), [Some(1000.0 * MIB), Some(2048.0 * MIB)]);
    // Nobody tells.
    assert_eq!(memory(nodes, &["a"]), [None, None]);
    assert_eq!(memory(all, &[]), [None, None], "pods that are gone");
}

#[test]
fn all_memory_of_pods_lies_on_the_only_numa_node() {
    let samples = [
        node(4.0, 100.0),
        pod_samples("a", 1.0, 30.0),
        vec![(Object::Numa(0), Kind::NumaMemoryUsage, 90.0), (Object::Numa(0), Kind::NumaCpuUsage, 4.0)],
    ];
    let mut pass = pass(1, &samples.concat());
    Completion::default().complete(&mut pass, &inventory(&["a"]));
    assert_eq!(pass.value(&Object::Numa(0), Kind::SystemNumaMemoryUsage), Some(60.0));
    assert_eq!(pass.value(&Object::Numa(0), Kind::SystemNumaCpuUsage), Some(3.0));
}

#[test]
fn completing_twice_is_completing_once() {
    let mut pass = pass(1, &[node(4.0, 100.0), pod_samples("a", 1.0, 30.0)].concat());
    let mut completion = Completion::default();
    completion.complete(&mut pass, &inventory(&["a"]));
    let once = pass.clone();
    completion.complete(&mut pass, &inventory(&["a"]));
    assert_eq!(pass, once);
    assert_eq!(pass.samples.len(), 6);
}

#[test]
fn an_older_pass_does_not_move_the_board_back() {
    let mut completion = Completion::default();
    let live = inventory(&[]);
    system(&mut completion, pass(10, &node(4.0, 100.0)), &live);
    let mut older = pass(9, &[node(9.0, 900.0), vec![(Object::Node, Kind::SystemCpuUsage, 7.0)]].concat());
    completion.complete(&mut older, &live);
    assert_eq!(older.samples.len(), 2, "it says nothing of the system");
    assert_eq!(completion.board().node_cpu, Some(Reading { tick: Tick(10_000), value: 4.0 }));
}

#[test]
fn the_order_of_pods_does_not_change_a_sum() {
    // 0.1 + 0.2 + 0.3 depends on the order in floating point.
    let values = [("a", 0.1), ("b", 0.2), ("c", 0.3)];
    let sums = [[0, 1, 2], [2, 1, 0], [1, 2, 0]].map(|order| {
        let samples = order.map(|index| {
            let (uid, value) = values[index];
            pod_samples(uid, value, value)
        });
        let uids = order.map(|index| values[index].0);
        system(
            &mut Completion::default(),
            pass(1, &[node(1.0, 1.0), samples.concat()].concat()),
            &inventory(&uids),
        )
    });
    assert_eq!(sums[0], sums[1]);
    assert_eq!(sums[0], sums[2]);
    assert!(sums[0].0.is_some());
}

proptest! {
    #[test]
    fn the_rest_is_the_systems(
        node_cpu in 0.0_f64..200.0,
        node_memory in 0.0_f64..1e12,
        pods in prop::collection::btree_map("[a-f0-9]{4}", (0.0_f64..10.0, 0.0_f64..1e10), 0..40),
        applications in prop::collection::btree_map("[a-z]{3}", (0.0_f64..10.0, 0.0_f64..1e10), 0..5),
    ) {
        let mut samples = node(node_cpu, node_memory);
        for (uid, (cpu, memory)) in &pods {
            samples.extend(pod_samples(uid, *cpu, *memory));
        }
        for (name, (cpu, memory)) in &applications {
            samples.extend(application(name, *cpu, *memory));
        }
        let uids: Vec<&str> = pods.keys().map(String::as_str).collect();
        let (cpu, memory) = system(&mut Completion::default(), pass(1, &samples), &inventory(&uids));
        let used = pods.values().chain(applications.values());
        let (used_cpu, used_memory) = used.fold((0.0, 0.0), |(cpu, memory), (more, most)| (cpu + more, memory + most));
        let (cpu, memory) = (cpu.expect("all is known"), memory.expect("all is known"));
        prop_assert!(cpu >= 0.0 && memory >= 0.0);
        prop_assert!((cpu - (node_cpu - used_cpu).max(0.0)).abs() < 1e-9);
        prop_assert!((memory - (node_memory - used_memory).max(0.0)).abs() < 1.0);
    }
}
