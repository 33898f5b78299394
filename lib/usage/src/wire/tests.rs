use std::collections::BTreeSet;
use std::time::Duration;

use std::sync::Arc;

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::layout::Layout;
use koord_cgroup::path::CgroupPath;
use koord_cgroup::version::CgroupVersion;
use koord_extension::qos::KubeQos;
use koord_extension::units::MilliCpu;
use koord_usage_api::v1::watch_response::Event as Message;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::inventory::ContainerEntry;
use crate::object::{GpuUser, Object, TierSeries};
use crate::pass::Pass;
use crate::sampler::Collector;
use crate::time::Tick;

fn layout() -> Layout {
    Layout::new("/sys/fs/cgroup", CgroupVersion::V2, CgroupDriver::Cgroupfs, "/").expect("a layout")
}

fn entry(uid: &str, containers: &[&str]) -> PodEntry {
    let layout = layout();
    let group = |path: String| CgroupPath::new(&path, &layout).expect("below the pods");
    let directory = format!("kubepods/burstable/pod{uid}");
    PodEntry {
        uid: uid.into(),
        namespace: "default".into(),
        name: format!("name-{uid}").into(),
        qos: Some(QosClass::Be),
        kube_qos: KubeQos::Burstable,
        cgroup: group(directory.clone()),
        batch_cpu_request: MilliCpu(500),
        containers: containers
            .iter()
            .map(|id| ContainerEntry {
                id: (*id).into(),
                name: "app".into(),
                cgroup: group(format!("{directory}/{id}")),
                is_init: false,
            })
            .collect(),
    }
}

fn told(uid: &str, containers: &[&str]) -> Arc<v1::Pod> {
    Arc::new(pod(&entry(uid, containers)))
}

fn event(message: v1::WatchResponse) -> Message {
    message.event.expect("an event")
}

fn start() -> v1::WatchResponse {
    let start = v1::Start { boot_id: "b".to_owned(), now_tick: 1, ..v1::Start::default() };
    v1::WatchResponse { event: Some(Message::Start(start)) }
}

/// A reader that knows an empty inventory.
fn reader() -> Reader {
    let mut reader = Reader::new();
    assert_eq!(reader.apply(start(), Tick(1)), Ok(Event::Started));
    for message in Teller::new(Parts::ALL).inventory(&[]) {
        assert_eq!(reader.apply(message, Tick(1)), Ok(Event::InventoryChanged));
    }
    reader
}

fn apply_pass(reader: &mut Reader, pass: v1::Pass) -> Result<Event, WireError> {
    reader.apply(v1::WatchResponse { event: Some(Message::Pass(pass)) }, Tick(5))
}

fn objects() -> Vec<(Object, Kind)> {
    let uid: Arc<str> = "u".into();
    let id: Arc<str> = "c".into();
    let gpu = |user| Object::Gpu { user, minor: 1, uuid: "g".into() };
    vec![
        (Object::Node, Kind::NodeCpuUsage),
        (Object::Node, Kind::SystemMemoryUsage),
        (Object::Numa(3), Kind::NumaCpuUsage),
        (Object::Tier(TierSeries::RealLimit), Kind::NodeBe),
        (Object::Tier(TierSeries::Request), Kind::NodeBe),
        (Object::Tier(TierSeries::Usage), Kind::NodeBe),
        (Object::Pod(uid.clone()), Kind::PodCpuUsage),
        (Object::Pod(uid.clone()), Kind::PodCpuTime),
        (Object::PodNuma { pod_uid: uid.clone(), numa: 1 }, Kind::PodNumaMemoryUsage),
        (Object::Container { pod_uid: uid.clone(), id: id.clone() }, Kind::ContainerCpuUsage),
        (Object::HostApplication("nginx".into()), Kind::HostApplicationCpuUsage),
        (gpu(GpuUser::Node), Kind::NodeGpuCoreUsage),
        (gpu(GpuUser::Pod(uid)), Kind::PodGpuCoreUsage),
        (gpu(GpuUser::Container(id)), Kind::ContainerGpuCoreUsage),
        (Object::Resctrl { group: "LS".into(), cache: 2 }, Kind::ResctrlLlc),
    ]
}

fn pass_of(tick: u64, series: &[(Object, Kind)]) -> Pass {
    let mut pass = Pass::new(Tick(tick));
    for ((object, kind), value) in series.iter().zip(0_u32..) {
        pass.push(object.clone(), *kind, f64::from(value) + 0.25);
    }
    pass
}

#[test]
fn every_object_arrives_as_it_was() {
    let mut teller = Teller::new(Parts::ALL);
    let mut reader = reader();
    for (tick, origin) in [(1000, Origin::Backfill), (2000, Origin::Live)] {
        let pass = pass_of(tick, &objects());
        let message = teller.pass(&pass, origin == Origin::Backfill);
        let octets = message.encode_to_vec();
        let message = v1::WatchResponse::decode(octets.as_slice()).expect("decoded");
        assert_eq!(reader.apply(message, Tick(2)), Ok(Event::Pass(pass, origin)));
    }
}

#[test]
fn series_are_named_once() {
    let mut teller = Teller::new(Parts::ALL);
    let Message::Pass(first) = event(teller.pass(&pass_of(1, &objects()), false)) else { panic!("no pass") };
    assert_eq!(first.series.len(), 15);
    assert_eq!(first.numbers, (0..15).collect::<Vec<u32>>());
    let Message::Pass(second) = event(teller.pass(&pass_of(2, &objects()), false)) else { panic!("no pass") };
    assert_eq!((second.series.len(), second.numbers), (0, first.numbers));
}

#[test]
fn only_wanted_parts_are_told() {
    let table: [(&[i32], usize); 8] = [
        (&[], 15),
        // Node, NUMA node, tier (3), GPU, monitor; not the system.
        (&[1], 7),
        (&[2], 4),
        (&[3], 2),
        (&[4], 1),
        (&[5], 1),
        (&[1, 5, 99], 8),
        // Only what this version does not know.
        (&[0, 99], 0),
    ];
    for (parts, count) in table {
        let request = v1::WatchRequest { parts: parts.to_vec(), ..v1::WatchRequest::default() };
        let mut teller = Teller::new(Parts::of(&request));
        let Message::Pass(pass) = event(teller.pass(&pass_of(1, &objects()), false)) else {
            panic!("no pass")
        };
        assert_eq!(pass.numbers.len(), count, "{parts:?}");
    }
}

#[test]
fn changes_of_the_inventory_are_told_once() {
    let mut teller = Teller::new(Parts::ALL);
    let (one, two) = (told("1", &["a"]), told("2", &[]));
    let all = teller.inventory(&[Arc::clone(&one), Arc::clone(&two)]);
    let expected = v1::Inventory { pods: vec![v1::Pod::clone(&one), v1::Pod::clone(&two)] };
    assert_eq!(all.into_iter().map(event).collect::<Vec<_>>(), [Message::Inventory(expected)]);
    // An equal one is no change, be it the same or a copy.
    assert_eq!(teller.inventory(&[Arc::clone(&one), told("2", &[])]), []);
    let changed = told("1", &["a", "b"]);
    let events: Vec<Message> = teller.inventory(&[Arc::clone(&changed)]).into_iter().map(event).collect();
    assert_eq!(
        events,
        [Message::PodPut(v1::Pod::clone(&changed)), Message::PodGone(v1::PodGone { uid: "2".to_owned() })]
    );
    // A pod that goes while another comes.
    let events: Vec<Message> = teller.inventory(&[Arc::clone(&two)]).into_iter().map(event).collect();
    assert_eq!(
        events,
        [Message::PodPut(v1::Pod::clone(&two)), Message::PodGone(v1::PodGone { uid: "1".to_owned() })]
    );
}

#[test]
fn numbers_of_gone_objects_are_given_anew() {
    let mut teller = Teller::new(Parts::ALL);
    let mut reader = reader();
    let container = |uid: &str, id: &str| {
        (Object::Container { pod_uid: uid.into(), id: id.into() }, Kind::ContainerCpuUsage)
    };
    let mut numbers = BTreeSet::new();
    teller.inventory(&[told("1", &["c0"])]);
    for restart in 0..100 {
        let id = format!("c{restart}");
        for message in teller.inventory(&[told("1", &[&id])]) {
            assert_eq!(reader.apply(message, Tick(3)), Ok(Event::InventoryChanged));
        }
        let pass = pass_of(restart, &[(Object::Pod("1".into()), Kind::PodCpuUsage), container("1", &id)]);
        let message = teller.pass(&pass, false);
        if let Some(Message::Pass(pass)) = &message.event {
            numbers.extend(pass.numbers.iter().copied());
        }
        assert_eq!(reader.apply(message, Tick(3)), Ok(Event::Pass(pass, Origin::Live)));
    }
    assert_eq!(numbers, BTreeSet::from([0, 1]));
}

#[test]
fn what_a_later_version_says_is_passed_over() {
    let mut reader = reader();
    assert_eq!(reader.apply(v1::WatchResponse { event: None }, Tick(1)), Ok(Event::Nothing));
    let node = || Some(v1::Object { object: Some(v1::object::Object::Node(v1::Node {})) });
    let series = |number, kind, object| v1::Series { number, kind, object };
    let pass = v1::Pass {
        tick: 7,
        series: vec![
            series(0, 1, node()),
            series(1, 60_000, node()),
            series(2, 1 << 20, node()),
            series(3, 1, None),
            series(4, 1, Some(v1::Object { object: None })),
            // A kind of pods for the node.
            series(5, Kind::PodCpuUsage.code().into(), node()),
            series(
                6,
                Kind::NodeBe.code().into(),
                Some(v1::Object { object: Some(v1::object::Object::Tier(9)) }),
            ),
        ],
        numbers: (0..7).collect(),
        values: (0..7).map(f64::from).collect(),
        ..v1::Pass::default()
    };
    let mut known = Pass::new(Tick(7));
    known.push(Object::Node, Kind::NodeCpuUsage, 0.0);
    assert_eq!(apply_pass(&mut reader, pass), Ok(Event::Pass(known, Origin::Live)));
}

#[test]
fn what_breaks_the_protocol_is_an_error() {
    let tick = Tick(7);
    let pass = |series: &[u32], numbers: &[u32], values: usize| v1::Pass {
        tick: 7,
        series: series
            .iter()
            .map(|number| v1::Series {
                number: *number,
                kind: 1,
                object: Some(v1::Object { object: Some(v1::object::Object::Node(v1::Node {})) }),
            })
            .collect(),
        numbers: numbers.to_vec(),
        values: vec![1.0; values],
        ..v1::Pass::default()
    };
    let table = [
        (pass(&[0], &[0], 0), WireError::Unpaired { tick, numbers: 1, values: 0 }),
        (pass(&[0], &[], 1), WireError::Unpaired { tick, numbers: 0, values: 1 }),
        (pass(&[0], &[1], 1), WireError::UnknownNumber { tick, number: 1 }),
        (pass(&[3, 3], &[3], 1), WireError::UsedNumber { tick, number: 3 }),
    ];
    for (message, error) in table {
        assert_eq!(apply_pass(&mut reader(), message), Err(error));
    }
    let response = |event| v1::WatchResponse { event: Some(event) };
    let pod = v1::Pod { uid: "1".to_owned(), ..v1::Pod::default() };
    assert_eq!(
        Reader::new().apply(response(Message::Pass(v1::Pass::default())), Tick(1)),
        Err(WireError::NoStart)
    );
    let mut started = Reader::new();
    assert_eq!(started.apply(start(), Tick(1)), Ok(Event::Started));
    for (event, error) in [
        (Message::Pass(v1::Pass::default()), WireError::NoInventory("a pass")),
        (Message::PodPut(pod), WireError::NoInventory("a pod")),
        (Message::PodGone(v1::PodGone::default()), WireError::NoInventory("the end of a pod")),
        (Message::PodPut(v1::Pod::default()), WireError::NoUid),
        (Message::Inventory(v1::Inventory { pods: vec![v1::Pod::default()] }), WireError::NoUid),
        (Message::Start(v1::Start::default()), WireError::SecondStart),
    ] {
        assert_eq!(started.apply(response(event), Tick(1)), Err(error));
    }
}

#[test]
fn silence_is_a_gap_after_three_seconds() {
    let mut reader = Reader::new();
    assert!(!reader.is_gap(Tick(1_000_000)));
    assert_eq!(reader.apply(start(), Tick(1_000)), Ok(Event::Started));
    assert!(!reader.is_gap(Tick(4_000)));
    assert!(reader.is_gap(Tick(4_001)));
    let mut reader = self::reader();
    assert!(apply_pass(&mut reader, v1::Pass { tick: 9, ..v1::Pass::default() }).is_ok());
    // Heard at 5.
    assert_eq!(reader.silence(Tick(3_005)), Duration::from_secs(3));
    assert!(!reader.is_gap(Tick(3_005)));
    assert!(reader.is_gap(Tick(3_006)));
}

#[test]
fn inventories_arrive_as_they_were_and_bad_pods_alone_are_refused() {
    let (one, mut two) = (entry("1", &["a", "b"]), entry("2", &[]));
    two.qos = None;
    let mut reader = reader();
    let stranger =
        v1::Pod { uid: "3".to_owned(), cgroup: "/system.slice/x".to_owned(), ..v1::Pod::default() };
    for pod in [pod(&one), pod(&two), stranger] {
        let message = v1::WatchResponse { event: Some(Message::PodPut(pod)) };
        assert_eq!(reader.apply(message, Tick(1)), Ok(Event::InventoryChanged));
    }
    let (inventory, refused) = reader.inventory(&layout());
    assert_eq!(inventory.pods, [Arc::new(one), Arc::new(two)]);
    assert_eq!(refused.iter().map(|pod| pod.uid.as_str()).collect::<Vec<_>>(), ["3"]);
}

#[test]
fn collectors_are_told_in_full() {
    let mut status = CollectorStatus {
        collector: Collector::Pressure,
        state: CollectorState::Failed("no file".to_owned()),
        last_success: Some(Tick(9)),
        duration: Duration::from_micros(1500),
        errors: 3,
        last_error: Some("bad".to_owned()),
        open_descriptors: 12,
    };
    let expected = v1::CollectorState {
        name: "pressure".to_owned(),
        phase: v1::collector_state::Phase::Failed.into(),
        reason: "no file".to_owned(),
        last_success_tick: Some(9),
        duration_microseconds: 1500,
        errors: 3,
        last_error: "bad".to_owned(),
        open_descriptors: 12,
    };
    assert_eq!(collector(&status), expected);
    status.state = CollectorState::Ready;
    status.last_error = None;
    let told = collector(&status);
    assert_eq!(
        (told.phase(), told.reason, told.last_error),
        (v1::collector_state::Phase::Ready, String::new(), String::new())
    );
}

proptest! {
    /// Pods and containers that come and go at random: a reader has what was told, and numbers do not run away.
    #[test]
    fn a_reader_follows_any_history(history in prop::collection::vec(
        prop::collection::btree_map(0_u8..6, prop::collection::btree_set(0_u8..4, 0..3), 0..6), 1..12,
    )) {
        let mut teller = Teller::new(Parts::ALL);
        let mut reader = Reader::new();
        reader.apply(start(), Tick(0)).expect("started");
        for (step, pods) in history.into_iter().enumerate() {
            let mut series = Vec::new();
            let mut all = Vec::new();
            for (uid, containers) in &pods {
                let uid = uid.to_string();
                let ids: Vec<String> = containers.iter().map(|id| format!("{uid}-{id}")).collect();
                let names: Vec<&str> = ids.iter().map(String::as_str).collect();
                all.push(told(&uid, &names));
                series.push((Object::Pod(uid.as_str().into()), Kind::PodCpuUsage));
                series.extend(ids.iter().map(|id| (
                    Object::Container { pod_uid: uid.as_str().into(), id: id.as_str().into() },
                    Kind::ContainerCpuUsage,
                )));
            }
            for message in teller.inventory(&all) {
                prop_assert_eq!(reader.apply(message, Tick(0)), Ok(Event::InventoryChanged));
            }
            let known: Vec<&str> = reader.pods().map(|pod| pod.uid.as_str()).collect();
            let wanted: Vec<&str> = all.iter().map(|pod| pod.uid.as_str()).collect();
            prop_assert_eq!(known, wanted);
            let pass = pass_of(step as u64, &series);
            let message = teller.pass(&pass, false);
            if let Some(Message::Pass(pass)) = &message.event {
                // Six pods of at most two containers at a time, before and after a change.
                prop_assert!(pass.numbers.iter().all(|number| *number < 36));
            }
            prop_assert_eq!(reader.apply(message, Tick(0)), Ok(Event::Pass(pass, Origin::Live)));
        }
    }

    /// Whatever octets arrive, reading ends with a value or an error.
    #[test]
    fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(message) = v1::WatchResponse::decode(octets.as_slice()) {
            let _ = reader().apply(message, Tick(1));
        }
    }
}
