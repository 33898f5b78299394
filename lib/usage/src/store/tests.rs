use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use koord_cgroup::path::CgroupPath;
use koord_extension::qos::KubeQos;
use koord_extension::units::MilliCpu;

use super::*;
use crate::inventory::{ContainerEntry, HostApplicationEntry, PodEntry};
use crate::object::TierSeries;
use crate::pass::Sample;
use crate::window::Percentile;

mod model;

const MINUTE: Duration = Duration::from_secs(60);
const END: Tick = Tick(u64::MAX);

fn pod(uid: &str) -> Object {
    Object::Pod(uid.into())
}

fn container(uid: &str, id: &str) -> Object {
    Object::Container { pod_uid: uid.into(), id: id.into() }
}

fn seconds(seconds: u64) -> Tick {
    Tick(seconds * 1000)
}

fn pass(tick: Tick, samples: &[(Object, Kind, f64)]) -> Pass {
    let samples = samples.iter().map(|(object, kind, value)| Sample {
        object: object.clone(),
        kind: *kind,
        value: *value,
    });
    Pass { tick, samples: samples.collect() }
}

/// A store with one value of the node's CPU at each of the ticks.
fn node_cpu(samples: &[(u64, f64)]) -> Store {
    let store = Store::default();
    for &(tick, value) in samples {
        store.record(&pass(Tick(tick), &[(Object::Node, Kind::NodeCpuUsage, value)]));
    }
    store
}

fn window(store: &Store, from: u64, to: u64) -> Result<Window, WindowError> {
    store.window(&Object::Node, Kind::NodeCpuUsage, Tick(from), Tick(to))
}

#[test]
fn both_ends_of_a_window_are_in_it() {
    let store = node_cpu(&[(1_000, 1.0), (2_000, 2.0), (3_000, 3.0)]);
    let found = |from, to| window(&store, from, to).map(|window| (window.count(), window.average()));
    assert_eq!(found(1_000, 3_000), Ok((3, 2.0)));
    assert_eq!(found(1_001, 3_000), Ok((2, 2.5)));
    assert_eq!(found(1_000, 2_999), Ok((2, 1.5)));
    assert_eq!(found(2_000, 2_000), Ok((1, 2.0)));
    let all = window(&store, 0, u64::MAX).expect("three samples");
    assert_eq!((all.first_tick(), all.last_tick(), all.last()), (Tick(1_000), Tick(3_000), 3.0));
    assert_eq!(all.duration(), Duration::from_secs(2));
    let summary = store.summary(&Object::Node, Kind::NodeCpuUsage, Tick(0), END);
    assert_eq!(summary, Ok(all.summary));
}

#[test]
fn no_window_without_samples() {
    let store = node_cpu(&[(1_000, 1.0), (3_000, 3.0)]);
    assert_eq!(window(&store, 0, 999), Err(WindowError::NoData));
    assert_eq!(window(&store, 1_001, 2_999), Err(WindowError::Stale { last: Tick(1_000) }));
    assert_eq!(window(&store, 3_001, 9_000), Err(WindowError::Stale { last: Tick(3_000) }));
    assert_eq!(
        window(&store, 3_000, 1_000),
        Err(WindowError::Stale { last: Tick(1_000) }),
        "the wrong way round"
    );
    let other = |object: &Object, kind| store.window(object, kind, Tick::ZERO, END);
    assert_eq!(other(&Object::Node, Kind::NodeMemoryUsage), Err(WindowError::NoData));
    assert_eq!(other(&pod("a"), Kind::PodCpuUsage), Err(WindowError::NoData));
    assert_eq!(store.samples(&pod("a"), Kind::PodCpuUsage, Tick::ZERO, END), []);
    assert_eq!(store.latest(&pod("a"), Kind::PodCpuUsage), None);
}

#[test]
fn a_kind_that_is_not_supported_says_so() {
    let store = node_cpu(&[(1_000, 1.0)]);
    let cold = || store.window(&Object::Node, Kind::NodeMemoryColdPageSize, Tick::ZERO, END);
    store.set_supported(Kind::NodeMemoryColdPageSize, false);
    assert_eq!(cold(), Err(WindowError::NotSupported));
    store.set_supported(Kind::NodeMemoryColdPageSize, true);
    assert_eq!(cold(), Err(WindowError::NoData));
    // Samples of before are still there.
    store.set_supported(Kind::NodeCpuUsage, false);
    assert_eq!(window(&store, 0, 1_000).map(|window| window.last()), Ok(1.0));
    assert_eq!(window(&store, 2_000, 3_000), Err(WindowError::NotSupported));
}

#[test]
fn passes_that_come_late_are_put_where_they_belong() {
    let store = node_cpu(&[(2_000, 7.0), (1_000, 3.0), (3_000, 1.0)]);
    let all = window(&store, 0, 9_000).expect("three samples");
    assert_eq!((all.last(), all.duration()), (1.0, Duration::from_secs(2)));
    let samples = store.samples(&Object::Node, Kind::NodeCpuUsage, Tick::ZERO, END);
    assert_eq!(samples, [(Tick(1_000), 3.0), (Tick(2_000), 7.0), (Tick(3_000), 1.0)]);
    // The same tick once more replaces its value and adds what was not there.
    store.record(&pass(
        Tick(2_000),
        &[(Object::Node, Kind::NodeCpuUsage, 8.0), (pod("a"), Kind::PodCpuUsage, 4.0)],
    ));
    assert_eq!(window(&store, 2_000, 2_000).map(|window| window.last()), Ok(8.0));
    assert_eq!(store.latest(&pod("a"), Kind::PodCpuUsage), Some((Tick(2_000), 4.0)));
    assert_eq!(store.stats().newest, Some(Tick(3_000)));
}

#[test]
fn absent_samples_are_not_counted() {
    let store = Store::default();
    for second in 1..=10_u32 {
        let mut samples = vec![(Object::Node, Kind::NodeCpuUsage, 1.0)];
        if second % 3 == 0 {
            samples.push((pod("a"), Kind::PodCpuUsage, f64::from(second)));
        }
        store.record(&pass(seconds(u64::from(second)), &samples));
    }
    let found = store.window(&pod("a"), Kind::PodCpuUsage, seconds(1), seconds(10)).expect("three samples");
    assert_eq!((found.count(), found.average(), found.last()), (3, 6.0, 9.0));
    assert_eq!((found.first_tick(), found.last_tick()), (seconds(3), seconds(9)));
}

#[test]
fn what_is_no_sample_is_refused_and_harms_no_other() {
    let store = Store::default();
    let recorded = store.record(&pass(
        seconds(1),
        &[
            (Object::Node, Kind::NodeCpuUsage, f64::NAN),
            (Object::Node, Kind::NodeMemoryUsage, f64::INFINITY),
            (pod("a"), Kind::NodeMemoryUsage, 1.0),
            (pod("a"), Kind::PodCpuTime, 17.0),
            (pod("a"), Kind::PodCpuUsage, 0.5),
            (Object::Tier(TierSeries::Usage), Kind::NodeBe, 1234.0),
        ],
    ));
    assert_eq!(recorded, Recorded { kept: 2, passing: 1, refused: 3, outdated: 0 });
    let stats = store.stats();
    assert_eq!((stats.objects, stats.series, stats.passes, stats.refused), (2, 2, 1, 3));
    assert_eq!(store.objects(), [Object::Tier(TierSeries::Usage), pod("a")]);
    assert_eq!(store.latest(&Object::Tier(TierSeries::Usage), Kind::NodeBe), Some((seconds(1), 1234.0)));
}

#[test]
fn each_sort_of_objects_has_its_own_retention() {
    let retention = Retention { node: 30 * MINUTE, pod: 10 * MINUTE, container: 5 * MINUTE };
    let store = Store::new(retention);
    for second in 1..=4000 {
        store.record(&pass(
            seconds(second),
            &[
                (Object::Node, Kind::NodeCpuUsage, 1.0),
                (pod("a"), Kind::PodCpuUsage, 1.0),
                (pod("a"), Kind::PodMemoryUsage, 1.0),
                (container("a", "b"), Kind::ContainerCpuUsage, 1.0),
            ],
        ));
    }
    let first = |object: &Object, kind| {
        store.window(object, kind, Tick::ZERO, END).map(|window| (window.count(), window.first_tick()))
    };
    // 10 s more than asked for.
    assert_eq!(first(&Object::Node, Kind::NodeCpuUsage), Ok((1811, seconds(2190))));
    assert_eq!(first(&pod("a"), Kind::PodCpuUsage), Ok((611, seconds(3390))));
    assert_eq!(first(&pod("a"), Kind::PodMemoryUsage), Ok((611, seconds(3390))));
    assert_eq!(first(&container("a", "b"), Kind::ContainerCpuUsage), Ok((311, seconds(3690))));
    let recorded = store.record(&pass(
        seconds(3000),
        &[(Object::Node, Kind::NodeCpuUsage, 2.0), (pod("a"), Kind::PodCpuUsage, 2.0)],
    ));
    assert_eq!(recorded, Recorded { kept: 1, outdated: 1, ..Recorded::default() });
}

#[test]
fn longer_windows_keep_what_is_there() {
    let minutes =
        |minutes: u32| Retention { node: minutes * MINUTE, pod: minutes * MINUTE, container: MINUTE };
    let store = Store::new(minutes(5));
    let record = |range: std::ops::RangeInclusive<u64>| {
        for second in range {
            store.record(&pass(
                seconds(second),
                &[(Object::Node, Kind::NodeCpuUsage, 1.0), (pod("a"), Kind::PodMemoryUsage, 1.0)],
            ));
        }
    };
    let counts = || {
        let count = |object: &Object, kind| {
            store.window(object, kind, Tick::ZERO, END).map_or(0, |window| window.count())
        };
        [count(&Object::Node, Kind::NodeCpuUsage), count(&pod("a"), Kind::PodMemoryUsage)]
    };
    record(1..=600);
    assert_eq!(counts(), [311; 2]);
    store.set_retention(minutes(10));
    assert_eq!(store.retention(), minutes(10));
    record(601..=800);
    assert_eq!(counts(), [511; 2]);
    store.set_retention(minutes(1));
    assert_eq!(counts(), [71; 2], "shorter ones forget");
}

#[test]
fn windows_of_reports_and_local_decisions_set_the_retention() {
    let retention = |aggregate: u32, longest: u32, local: u32, limit: u32| {
        Retention::for_windows(aggregate * MINUTE, longest * MINUTE, local * MINUTE, limit * MINUTE)
    };
    let expected = |node: u32, pod: u32, container: u32| Retention {
        node: node * MINUTE,
        pod: pod * MINUTE,
        container: container * MINUTE,
    };
    assert_eq!(retention(5, 30, 0, 720), expected(30, 5, 5));
    assert_eq!(retention(1, 1, 1, 720), expected(30, 5, 5));
    assert_eq!(retention(10, 60, 15, 720), expected(60, 15, 5));
    assert_eq!(retention(20, 60, 90, 720), expected(90, 90, 5));
    assert_eq!(retention(10, 60, 15, 8), expected(8, 8, 5));
    assert_eq!(retention(10, 60, 15, 0), expected(1, 1, 1));
}

/// What memory of so many objects costs.
#[test]
fn samples_take_little_memory() {
    let store = Store::default();
    let objects: Vec<(Object, Object)> = (0..100)
        .map(|number| (pod(&format!("{number:036}")), container("a", &format!("{number:064}"))))
        .collect();
    for second in 1..=900_u64 {
        let mut all = vec![(Object::Node, Kind::NodeCpuUsage, 1.0)];
        for (number, (pod, container)) in (0_u64..).zip(&objects) {
            all.push((pod.clone(), Kind::PodCpuUsage, 1.0));
            if (second + number) % 5 == 0 {
                all.push((pod.clone(), Kind::PodMemoryUsage, 1.0));
            }
            all.push((container.clone(), Kind::ContainerCpuUsage, 1.0));
            if (second + number) % 10 == 0 {
                all.push((container.clone(), Kind::ContainerMemoryUsage, 1.0));
            }
        }
        store.record(&pass(seconds(second), &all));
    }
    let stats = store.stats();
    assert_eq!((stats.objects, stats.series), (201, 401));
    // A pod needs 311 values of CPU, 63 of memory and their 63 ticks; a container 311, 32 and 32. An eighth may be spare room, and
    // some names, maps and fixed parts come with each.
    let numbers = 100 * (311 + 63 + 63 + 311 + 32 + 32) * 8;
    let most = numbers + numbers / 8 + 100 * 1500 + 40_000;
    assert!(stats.bytes > numbers, "{} B cannot hold {numbers} B", stats.bytes);
    assert!(stats.bytes < most, "{} B instead of {most} B", stats.bytes);
}

fn inventory(pods: &[(&str, &[&str])], applications: &[&str]) -> Inventory {
    let pod = |&(uid, containers): &(&str, &[&str])| {
        let container = |id: &&str| ContainerEntry {
            id: (*id).into(),
            name: "main".into(),
            cgroup: CgroupPath::root(),
            is_init: false,
        };
        Arc::new(PodEntry {
            uid: uid.into(),
            namespace: "shop".into(),
            name: uid.into(),
            qos: None,
            kube_qos: KubeQos::Burstable,
            cgroup: CgroupPath::root(),
            batch_cpu_request: MilliCpu::ZERO,
            containers: containers.iter().map(container).collect(),
        })
    };
    let application =
        |name: &&str| Arc::new(HostApplicationEntry { name: (*name).into(), cgroup: CgroupPath::root() });
    Inventory {
        pods: pods.iter().map(pod).collect(),
        host_applications: applications.iter().map(application).collect(),
    }
}

#[test]
fn what_is_gone_is_forgotten() {
    let store = Store::default();
    let gpu = |user| Object::Gpu { user, minor: 0, uuid: "GPU-0".into() };
    let all = [
        (Object::Node, Kind::NodeCpuUsage, 1.0),
        (gpu(GpuUser::Node), Kind::NodeGpuCoreUsage, 1.0),
        (pod("a"), Kind::PodCpuUsage, 1.0),
        (gpu(GpuUser::Pod("a".into())), Kind::PodGpuCoreUsage, 1.0),
        (container("a", "a1"), Kind::ContainerCpuUsage, 1.0),
        (container("a", "a2"), Kind::ContainerCpuUsage, 1.0),
        (gpu(GpuUser::Container("a2".into())), Kind::ContainerGpuCoreUsage, 1.0),
        (pod("b"), Kind::PodCpuUsage, 1.0),
        (container("b", "b1"), Kind::ContainerCpuUsage, 1.0),
        (Object::HostApplication("nginx".into()), Kind::HostApplicationCpuUsage, 1.0),
        (Object::HostApplication("envoy".into()), Kind::HostApplicationCpuUsage, 1.0),
    ];
    store.record(&pass(seconds(1), &all));
    store.retain_live(&inventory(&[("a", &["a1"])], &["envoy"]));
    let expected = [
        Object::Node,
        pod("a"),
        container("a", "a1"),
        Object::HostApplication("envoy".into()),
        gpu(GpuUser::Node),
        gpu(GpuUser::Pod("a".into())),
    ];
    assert_eq!(store.objects(), expected);
    // A new object in the place of an old one has nothing of it.
    store.record(&pass(seconds(2), &[(pod("c"), Kind::PodCpuUsage, 2.0)]));
    assert_eq!(store.samples(&pod("c"), Kind::PodCpuUsage, Tick::ZERO, END), [(seconds(2), 2.0)]);
    store.retain(|object| *object == pod("c"));
    assert_eq!(store.objects(), [pod("c")]);
}

#[test]
fn what_nobody_measures_any_more_is_forgotten_in_time() {
    let store = Store::default();
    store.record(&pass(
        seconds(1),
        &[(pod("a"), Kind::PodCpuUsage, 1.0), (pod("b"), Kind::PodMemoryUsage, 1.0)],
    ));
    for second in 2..=400 {
        store.record(&pass(seconds(second), &[(Object::Node, Kind::NodeCpuUsage, 1.0)]));
    }
    assert_eq!(store.objects(), [Object::Node]);
}

#[test]
fn memory_does_not_grow_with_pods_that_come_and_go() {
    let store = Store::default();
    let mut most = [0, 0];
    for second in 1..=3000_u64 {
        let recent = second.saturating_sub(19)..=second;
        let uids: Vec<String> = recent.map(|number| format!("{number:036}")).collect();
        let samples: Vec<_> = uids.iter().map(|uid| (pod(uid), Kind::PodCpuUsage, 1.0)).collect();
        store.record(&pass(seconds(second), &samples));
        let live: Vec<(&str, &[&str])> = uids.iter().map(|uid| (uid.as_str(), &[][..])).collect();
        store.retain_live(&inventory(&live, &[]));
        assert!(store.stats().objects <= 20);
        let half = usize::from(second > 2000);
        most[half] = most[half].max(store.stats().bytes);
    }
    assert!(most[1] <= most[0], "{most:?}");
}

/// A sampler that ran wild fills no more than twice the seconds of the retention.
#[test]
fn slots_have_a_bound() {
    let store = Store::new(Retention { node: 2 * MINUTE, pod: MINUTE, container: MINUTE });
    let series = [
        (Object::Node, Kind::NodeCpuUsage, 260),
        (pod("a"), Kind::PodCpuUsage, 140),
        (pod("a"), Kind::PodMemoryUsage, 140),
    ];
    for tick in 0..5000 {
        let samples = series.each_ref().map(|(object, kind, _)| (object.clone(), *kind, 1.0));
        store.record(&pass(Tick(tick * 10), &samples));
    }
    for (object, kind, slots) in series {
        let count = store.window(&object, kind, Tick::ZERO, END).map_or(0, |window| window.count());
        assert!((slots..=slots + 1).contains(&count), "{count} of {object}");
    }
}

#[test]
fn series_are_listed() {
    let store = Store::default();
    store.record(&pass(
        seconds(1),
        &[(pod("a"), Kind::PodMemoryUsage, 5.0), (pod("a"), Kind::PodCpuUsage, 1.0)],
    ));
    store.record(&pass(
        seconds(2),
        &[(pod("a"), Kind::PodCpuUsage, 2.0), (Object::Node, Kind::NodeCpuUsage, 3.0)],
    ));
    let info = |object, kind, count, first, last, value| SeriesInfo {
        object,
        kind,
        count,
        first_tick: seconds(first),
        last_tick: seconds(last),
        last: value,
    };
    let expected = [
        info(Object::Node, Kind::NodeCpuUsage, 1, 2, 2, 3.0),
        info(pod("a"), Kind::PodCpuUsage, 2, 1, 2, 2.0),
        info(pod("a"), Kind::PodMemoryUsage, 1, 1, 1, 5.0),
    ];
    assert_eq!(store.list(), expected);
    assert_eq!(store.list_object(&Object::Node), expected[..1]);
}

#[test]
fn a_snapshot_carries_windows_over_a_restart() {
    let store = Store::default();
    for second in 1..=100 {
        let mut samples = vec![
            (Object::Node, Kind::NodeCpuUsage, 4.0),
            (Object::Node, Kind::SystemCpuUsage, 1.0),
            (pod("a"), Kind::PodCpuUsage, 2.0),
            (container("a", "b"), Kind::ContainerCpuUsage, 2.0),
        ];
        if second % 5 == 0 {
            samples.push((pod("a"), Kind::PodMemoryUsage, 64.0));
        }
        store.record(&pass(seconds(second), &samples));
    }
    let bytes = store.snapshot("boot");

    let restored = Store::default();
    let brought = restored.restore(&bytes, "boot", seconds(130)).expect("it is sound");
    assert_eq!(brought, Restored { objects: 2, series: 4, samples: 100 + 100 + 100 + 20 });
    assert_eq!(restored.snapshot("boot"), bytes);
    assert_eq!(
        restored.latest(&container("a", "b"), Kind::ContainerCpuUsage),
        None,
        "their windows are short"
    );
    // The gap has no samples.
    for second in 131..=140 {
        restored.record(&pass(seconds(second), &[(Object::Node, Kind::NodeCpuUsage, 8.0)]));
    }
    let cpu =
        restored.window(&Object::Node, Kind::NodeCpuUsage, seconds(91), seconds(140)).expect("20 samples");
    assert_eq!((cpu.count(), cpu.average(), cpu.percentile(Percentile::P50)), (20, 6.0, 4.0));
    assert_eq!(cpu.duration(), Duration::from_secs(49));
}

#[test]
fn a_snapshot_never_replaces_what_was_measured() {
    let bytes = node_cpu(&[(1_000, 1.0), (2_000, 2.0), (3_500, 3.5)]).snapshot("boot");
    let store = node_cpu(&[(2_000, 20.0), (3_000, 30.0)]);
    let brought = store.restore(&bytes, "boot", Tick(4_000)).expect("it is sound");
    assert_eq!(brought, Restored { objects: 1, series: 1, samples: 2 });
    let samples = store.samples(&Object::Node, Kind::NodeCpuUsage, Tick::ZERO, END);
    let expected = [(1_000, 1.0), (2_000, 20.0), (3_000, 30.0), (3_500, 3.5)];
    assert_eq!(samples, expected.map(|(tick, value)| (Tick(tick), value)));
}

#[test]
fn a_useless_snapshot_brings_nothing() {
    let bytes = node_cpu(&[(1_000, 1.0)]).snapshot("boot");
    let store = Store::default();
    assert!(matches!(store.restore(&bytes, "other", Tick(2_000)), Err(SnapshotError::Boot { .. })));
    let late = Tick(1_000).ahead(30 * MINUTE + Duration::from_millis(1));
    assert!(matches!(store.restore(&bytes, "boot", late), Err(SnapshotError::Age { .. })));
    assert_eq!(store.restore(&bytes[1..], "boot", Tick(2_000)), Err(SnapshotError::Format));
    assert_eq!(store.stats().series, 0);
    assert!(
        store.restore(&Store::default().snapshot("boot"), "boot", Tick(2_000)).is_ok(),
        "an empty one is sound"
    );
}

/// Whoever sees a sample of a pass sees the others too.
#[test]
fn passes_are_seen_whole() {
    const PASSES: u32 = 2000;
    let store = Store::default();
    let done = AtomicBool::new(false);
    let objects: Vec<Object> = (0..20).map(|number| pod(&number.to_string())).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0.0;
                while !done.load(Ordering::Acquire) {
                    for object in &objects {
                        let last = store
                            .window(object, Kind::PodCpuUsage, Tick::ZERO, END)
                            .map_or(0.0, |window| window.last());
                        assert!(last >= seen, "{last} after {seen}");
                        seen = last;
                    }
                    // The first one was written before the last one.
                    let first = store.latest(&objects[0], Kind::PodCpuUsage).map_or(0.0, |(_, value)| value);
                    assert!(first >= seen, "{first} after {seen}");
                }
            });
        }
        for number in 1..=PASSES {
            let samples: Vec<_> =
                objects.iter().map(|object| (object.clone(), Kind::PodCpuUsage, f64::from(number))).collect();
            store.record(&pass(Tick(u64::from(number) * 1000), &samples));
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(store.stats().passes, u64::from(PASSES));
}
