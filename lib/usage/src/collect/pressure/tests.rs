use std::collections::BTreeMap;
use std::time::Duration;

use koord_extension::qos::KubeQos;

use super::*;
use crate::collect::fake::{FakeNode, inventory};
use crate::time::Tick;

const SOME: &str = "some avg10=1.50 avg60=0.75 avg300=0.10 total=2500000\n";
const FULL: &str = "full avg10=0.50 avg60=0.25 avg300=0.05 total=500000\n";

fn group_pressure(texts: [Option<&str>; 3]) -> GroupPressure {
    GroupPressure(texts.map(|text| text.map(|text| Figures::parse(text).expect("a text"))))
}

fn key(resource: PressureResource, degree: PressureDegree, figure: PressureFigure) -> Pressure {
    Pressure { resource, degree, figure }
}

#[test]
fn samples_of_a_group() {
    let both = format!("{SOME}{FULL}");
    let found = group_pressure([Some(&both); 3]);
    let samples: BTreeMap<Pressure, f64> = found.samples().collect();
    // Three percents and a total of each resource and degree.
    assert_eq!(samples.len(), 24);
    let percents = samples.keys().filter(|pressure| pressure.figure != PressureFigure::Total).count();
    assert_eq!(percents, 18);
    let value = |degree, figure| samples.get(&key(PressureResource::Memory, degree, figure)).copied();
    assert_eq!(value(PressureDegree::Some, PressureFigure::Avg10), Some(1.5));
    assert_eq!(value(PressureDegree::Full, PressureFigure::Avg300), Some(0.05));
    assert_eq!(value(PressureDegree::Some, PressureFigure::Total), Some(2.5));
    assert_eq!(found.cpu_full_supported(), Some(true));
}

#[test]
fn a_file_without_the_line_of_all_tasks() {
    let found = group_pressure([Some(SOME), None, None]);
    let percents: Vec<Pressure> = found
        .samples()
        .map(|(pressure, _)| pressure)
        .filter(|pressure| pressure.figure != PressureFigure::Total)
        .collect();
    assert_eq!(percents.len(), 3);
    assert!(percents.iter().all(|pressure| pressure.degree == PressureDegree::Some));
    assert_eq!(found.cpu_full_supported(), Some(false));
    assert_eq!(GroupPressure::default().cpu_full_supported(), None);
}

struct Bench {
    node: FakeNode,
    collector: PressureCollector,
    room: Descriptors,
    buffer: Buffer,
    tick: Tick,
}

impl Bench {
    fn new(version: CgroupVersion) -> Bench {
        let node = FakeNode::new(version);
        let cycle = Cycle::new(Duration::from_secs(10), Duration::from_secs(1));
        let collector = PressureCollector::new(node.layout(), cycle);
        Bench { node, collector, room: Descriptors::new(100), buffer: Buffer::new(), tick: Tick(100_000) }
    }

    fn pass(&mut self, inventory: &Inventory) -> (Pass, Support, Faults) {
        self.tick = self.tick.ahead(Duration::from_secs(1));
        let mut pass = Pass::new(self.tick);
        let (support, faults) = self.collector.collect(inventory, &self.room, &mut self.buffer, &mut pass);
        (pass, support, faults)
    }

    fn files(&self, controller: Controller, group: &str, text: &str) {
        for file in FILES {
            self.node.group(controller, group, file, text);
        }
    }
}

#[test]
fn pods_and_containers_in_turns() {
    let mut bench = Bench::new(CgroupVersion::V2);
    let pod = bench.node.pod(KubeQos::Burstable, "a", &["c"]);
    let both = format!("{SOME}{FULL}");
    bench.files(Controller::Cpu, "kubepods", &both);
    bench.files(Controller::Cpu, pod.cgroup.as_str(), &both);
    bench.files(Controller::Cpu, pod.containers[0].cgroup.as_str(), SOME);
    let all = inventory([pod]);
    let (pass, support, faults) = bench.pass(&all);
    assert_eq!((support, faults), (Support::Present, Faults::default()));
    let (pod, container) =
        (Object::Pod("a".into()), Object::Container { pod_uid: "a".into(), id: "c".into() });
    assert_eq!(pass.value(&pod, Kind::PodPsiCpuFullSupported), Some(1.0));
    assert_eq!(pass.value(&container, Kind::ContainerPsiCpuFullSupported), Some(0.0));
    let io = key(PressureResource::Io, PressureDegree::Some, PressureFigure::Avg60);
    assert_eq!(pass.value(&pod, Kind::PodPsi(io)), Some(0.75));
    assert_eq!(pass.value(&container, Kind::ContainerPsi(io)), Some(0.75));
    assert_eq!(bench.collector.open_files(), 6);
    // One turn each in ten passes after the first.
    let turns: usize = (0..10)
        .map(|_| bench.pass(&all).0.samples.iter().filter(|sample| sample.kind == Kind::PodPsi(io)).count())
        .sum();
    assert_eq!(turns, 1);
    bench.pass(&Inventory::default());
    assert_eq!((bench.room.open(), bench.collector.open_files()), (0, 0));
}

#[test]
fn a_text_that_is_no_pressure_is_a_fault_of_its_object() {
    let mut bench = Bench::new(CgroupVersion::V2);
    let pods = ["a", "b"].map(|uid| bench.node.pod(KubeQos::Burstable, uid, &[]));
    bench.files(Controller::Cpu, "kubepods", SOME);
    bench.files(Controller::Cpu, pods[0].cgroup.as_str(), "none avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    bench.files(Controller::Cpu, pods[1].cgroup.as_str(), SOME);
    let (pass, _, faults) = bench.pass(&inventory(pods));
    assert_eq!(faults.count, 1);
    assert!(!pass.samples.is_empty());
    assert!(pass.samples.iter().all(|sample| sample.object == Object::Pod("b".into())));
}

#[test]
fn version_1_has_it_with_some_kernels_only() {
    let mut bench = Bench::new(CgroupVersion::V1);
    let pod = bench.node.pod(KubeQos::Burstable, "a", &[]);
    bench.files(Controller::Cpuacct, pod.cgroup.as_str(), SOME);
    let all = inventory([pod.clone()]);
    assert_eq!(bench.pass(&all).1, Support::Absent);
    bench.files(Controller::Cpuacct, "kubepods", SOME);
    // It is looked for again, in turns.
    let found = (0..10).map(|_| bench.pass(&all)).find(|(_, support, _)| *support == Support::Present);
    let (pass, _, _) = found.expect("files are there");
    assert!(pass.samples.iter().any(|sample| sample.object == Object::Pod("a".into())));
}
