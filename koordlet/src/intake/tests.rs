use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::layout::Layout;
use koord_cgroup::version::CgroupVersion;
use koord_extension::qos::KubeQos;
use koord_extension::units::MilliCpu;
use koord_usage::inventory::PodEntry;
use koord_usage::kind::CpiResource;

use super::*;

fn live() -> Inventory {
    let layout = Layout::new("/x", CgroupVersion::V2, CgroupDriver::Cgroupfs, "/").expect("a layout");
    let pod = PodEntry {
        uid: "u".into(),
        namespace: "n".into(),
        name: "p".into(),
        qos: Some(QosClass::Be),
        kube_qos: KubeQos::BestEffort,
        cgroup: layout.pod(KubeQos::BestEffort, "u").expect("a path"),
        batch_cpu_request: MilliCpu(1500),
        containers: Vec::new(),
    };
    Inventory { pods: vec![Arc::new(pod)], host_applications: Vec::new() }
}

fn pass(second: u64) -> Pass {
    let mut pass = Pass::new(Tick(second * 1000));
    pass.push(Object::Node, Kind::NodeCpuUsage, 4.0);
    pass.push(Object::Node, Kind::NodeMemoryUsage, 4000.0);
    pass.push(Object::Pod("u".into()), Kind::PodCpuUsage, 2.5);
    pass.push(Object::Pod("u".into()), Kind::PodMemoryUsage, 1000.0);
    pass
}

fn intake() -> Intake {
    Intake::new(Arc::new(Store::default()), CompletionOptions::default())
}

fn all(store: &Store) -> Vec<(Object, Kind, usize, f64)> {
    store.list().into_iter().map(|info| (info.object, info.kind, info.count, info.last)).collect()
}

#[test]
fn both_sources_give_the_same_series() {
    let (own, streamed) = (intake(), intake());
    for second in 1..=5 {
        let mut measured = pass(second);
        measured.push(Object::Tier(TierSeries::Request), Kind::NodeBe, best_effort_request(&live()));
        own.own(measured, &live());
        // The proxy does not know the request and says nothing or something else.
        let mut told = pass(second);
        if second > 2 {
            told.push(Object::Tier(TierSeries::Request), Kind::NodeBe, 7.0);
        }
        streamed.streamed(told, &live());
    }
    let (own, streamed) = (all(own.store()), all(streamed.store()));
    assert_eq!(own, streamed);
    let value = |object: Object, kind| {
        own.iter().find(|row| row.0 == object && row.1 == kind).map(|row| (row.2, row.3))
    };
    assert_eq!(value(Object::Node, Kind::SystemCpuUsage), Some((5, 1.5)));
    assert_eq!(value(Object::Node, Kind::SystemMemoryUsage), Some((5, 3000.0)));
    assert_eq!(value(Object::Tier(TierSeries::Request), Kind::NodeBe), Some((5, 1500.0)));
}

#[test]
fn samples_beside_the_stream_come_with_its_next_pass() {
    let intake = intake();
    let sample = Sample {
        object: Object::HostApplication("nginx".into()),
        kind: Kind::HostApplicationCpuUsage,
        value: 1.0,
    };
    intake.beside(vec![sample]);
    assert_eq!(all(intake.store()), []);
    let mut live = live();
    live.host_applications.push(Arc::new(koord_usage::inventory::HostApplicationEntry {
        name: "nginx".into(),
        cgroup: live.pods[0].cgroup.clone(),
    }));
    intake.streamed(pass(1), &live);
    let found =
        intake.store().latest(&Object::HostApplication("nginx".into()), Kind::HostApplicationCpuUsage);
    assert_eq!(found, Some((Tick(1000), 1.0)));
    intake.streamed(pass(2), &live);
    let again =
        intake.store().latest(&Object::HostApplication("nginx".into()), Kind::HostApplicationCpuUsage);
    assert_eq!(again, Some((Tick(1000), 1.0)), "each sample counts once");
}

#[test]
fn a_round_of_events_is_told_as_a_whole() {
    let mut latest = Latest::default();
    let object = Object::Container { pod_uid: "u".into(), id: "c".into() };
    let mut first = Pass::new(Tick(1000));
    first.push(object.clone(), Kind::ContainerCpi(CpiResource::Cycle), 10.0);
    first.push(object.clone(), Kind::ContainerCpi(CpiResource::Instruction), 5.0);
    latest.take(&first);
    let mut second = Pass::new(Tick(61_000));
    second.push(object.clone(), Kind::ContainerCpi(CpiResource::Cycle), 20.0);
    latest.take(&second);
    let [(_, reading)] = latest.readings().cpi[..] else { panic!("one container") };
    assert_eq!((reading.cycles, reading.instructions), (Some(20.0), None));
    latest.forget(&live(), Tick(62_000));
    assert_eq!(latest.readings().cpi, [], "the container is not in the inventory");
}

#[test]
fn what_is_gone_is_forgotten() {
    let intake = intake();
    intake.own(pass(1), &live());
    assert_eq!(intake.newest(Kind::PodCpuUsage), Some(Tick(1000)));
    intake.own(Pass::new(Tick(20_000)), &Inventory::default());
    assert!(intake.store().latest(&Object::Pod("u".into()), Kind::PodCpuUsage).is_none());
}
