use std::time::Duration;

use koord_cgroup::version::CgroupVersion;
use koord_extension::qos::KubeQos;

use super::*;
use crate::collect::clock::Clock;
use crate::collect::fake::{FakeNode, VERSIONS, inventory};
use crate::collect::file::{Buffer, Descriptors};
use crate::collect::group::Trees;
use crate::collect::text::{GroupMemory, Throttling};
use crate::time::Tick;

const SECOND: u64 = 1_000_000_000;
const MEMORY: GroupMemory = GroupMemory {
    inactive_anon: 100,
    active_anon: 200,
    inactive_file: 2000,
    active_file: 1000,
    unevictable: 7,
};

struct Bench {
    node: FakeNode,
    trees: Trees,
    room: Descriptors,
    buffer: Buffer,
    clock: Clock,
    tick: Tick,
    numa_nodes: usize,
    collector: PodCollector,
    faults: Faults,
}

impl Bench {
    fn new(version: CgroupVersion, memory_seconds: u64, containers_seconds: u64) -> Bench {
        let node = FakeNode::new(version);
        let cycle = |seconds| Cycle::new(Duration::from_secs(seconds), Duration::from_secs(1));
        let options = PodOptions {
            pod_memory: cycle(memory_seconds),
            container_memory: cycle(containers_seconds),
            numa_memory: cycle(memory_seconds),
            numa: NumaMemory::WithoutCache,
            page_cache: true,
            containers: true,
            init_containers: true,
        };
        Bench {
            trees: Trees::new(node.layout()),
            node,
            room: Descriptors::new(1000),
            buffer: Buffer::new(),
            clock: Clock::manual(99 * SECOND),
            tick: Tick(99_000),
            numa_nodes: 0,
            collector: PodCollector::new(options),
            faults: Faults::default(),
        }
    }

    fn pass(&mut self, inventory: &Inventory) -> Pass {
        self.clock.advance(SECOND);
        self.tick = self.tick.ahead(Duration::from_secs(1));
        let mut pass = Pass::new(self.tick);
        let mut reader = Reader {
            trees: &mut self.trees,
            room: &self.room,
            buffer: &mut self.buffer,
            clock: &self.clock,
            pause: Duration::from_secs(20),
        };
        self.faults = self.collector.collect(inventory, self.numa_nodes, &mut reader, &mut pass);
        pass
    }

    /// CPU time of the groups of a pod and its containers.
    fn cpu(&self, pod: &PodEntry, nanoseconds: u64) {
        let groups = pod.containers.iter().map(|container| &container.cgroup);
        for group in groups.chain([&pod.cgroup]) {
            self.node.cpu(group.as_str(), nanoseconds, Throttling::default());
            self.node.memory(group.as_str(), MEMORY);
        }
    }
}

fn pod_object(uid: &str) -> Object {
    Object::Pod(Arc::from(uid))
}

fn container_object(uid: &str, id: &str) -> Object {
    Object::Container { pod_uid: Arc::from(uid), id: Arc::from(id) }
}

#[test]
fn a_pod_then_its_containers_start() {
    for version in VERSIONS {
        let mut bench = Bench::new(version, 1, 1);
        let pod = bench.node.pod(KubeQos::Burstable, "a", &["c"]);
        bench.cpu(&pod, 0);
        let all = inventory([pod.clone()]);
        assert_eq!(bench.pass(&all).samples, []);
        bench.cpu(&pod, SECOND / 2);
        let pass = bench.pass(&all);
        assert_eq!(pass.value(&pod_object("a"), Kind::PodCpuUsage), Some(0.5));
        assert_eq!(pass.value(&pod_object("a"), Kind::PodMemoryUsage), Some(307.0));
        assert_eq!(pass.value(&pod_object("a"), Kind::PodMemoryUsageWithPageCache), Some(3307.0));
        assert_eq!(pass.value(&pod_object("a"), Kind::PodCpuTime), Some(0.5));
        assert!(pass.samples.iter().all(|sample| sample.object == pod_object("a")));
        bench.cpu(&pod, SECOND);
        let pass = bench.pass(&all);
        assert_eq!(pass.value(&pod_object("a"), Kind::PodCpuUsage), Some(0.5));
        let container = container_object("a", "c");
        assert_eq!(pass.value(&container, Kind::ContainerCpuUsage), Some(0.5));
        assert_eq!(pass.value(&container, Kind::ContainerMemoryUsage), Some(307.0));
        assert_eq!(pass.value(&container, Kind::ContainerMemoryUsageWithPageCache), Some(3307.0));
        assert_eq!(pass.value(&container, Kind::ContainerCpuThrottled), Some(0.0));
        assert_eq!(bench.faults, Faults::default());
    }
}

#[test]
fn memory_is_read_in_turns() {
    let mut bench = Bench::new(CgroupVersion::V2, 5, 10);
    let pod = bench.node.pod(KubeQos::Burstable, "a", &["c"]);
    bench.cpu(&pod, 0);
    let all = inventory([pod.clone()]);
    let (mut of_pod, mut of_container) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        let pass = bench.pass(&all);
        let second = pass.tick.milliseconds() / 1000;
        if pass.value(&pod_object("a"), Kind::PodMemoryUsage).is_some() {
            of_pod.push(second);
        }
        if pass.value(&container_object("a", "c"), Kind::ContainerMemoryUsage).is_some() {
            of_container.push(second);
        }
    }
    // The first pass in which there is a rate, then every fifth and tenth.
    assert_eq!(of_pod.first(), Some(&101));
    assert_eq!(of_container.first(), Some(&102));
    let steady =
        |seconds: &[u64]| seconds.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
    assert!(steady(&of_pod).iter().all(|gap| *gap == 5), "{of_pod:?}");
    assert!(steady(&of_container).iter().all(|gap| *gap == 10), "{of_container:?}");
    assert!(of_pod.len() >= 8 && of_container.len() >= 4, "{of_pod:?} {of_container:?}");
}

#[test]
fn a_pod_that_cannot_be_read_does_not_stop_others() {
    for version in VERSIONS {
        let mut bench = Bench::new(version, 1, 1);
        let pods = ["a", "b", "c"].map(|uid| bench.node.pod(KubeQos::Guaranteed, uid, &[]));
        let [gone, broken, good] = &pods;
        bench.cpu(broken, 0);
        bench.cpu(good, 0);
        let all = inventory(pods.clone());
        bench.pass(&all);
        assert_eq!(bench.faults, Faults::default(), "a group that is gone is no fault");
        let text = "file 1\n";
        bench.node.group(
            koord_cgroup::layout::Controller::Memory,
            broken.cgroup.as_str(),
            "memory.stat",
            text,
        );
        let pass = bench.pass(&all);
        assert_eq!(pass.value(&pod_object("c"), Kind::PodCpuUsage), Some(0.0));
        assert!(pass.samples.iter().all(|sample| sample.object == pod_object("c")), "{:?}", gone.uid);
        assert_eq!(bench.faults.count, 1);
        assert!(matches!(bench.faults.first, Some(ReadError::Text(_))));
    }
}

#[test]
fn meters_follow_the_inventory() {
    let mut bench = Bench::new(CgroupVersion::V2, 1, 1);
    let a = bench.node.pod(KubeQos::Burstable, "a", &["c"]);
    let b = bench.node.pod(KubeQos::BestEffort, "b", &["d"]);
    bench.cpu(&a, 0);
    bench.cpu(&b, 0);
    let both = inventory([a.clone(), b.clone()]);
    for _ in 0..3 {
        bench.pass(&both);
    }
    assert_eq!(bench.room.open(), 8);
    // Another entry of a pod, in another order, with one container more: what was known goes on.
    let more = bench.node.pod(KubeQos::Burstable, "a", &["new", "c"]);
    bench.cpu(&more, SECOND);
    let pass = bench.pass(&inventory([b.clone(), more.clone()]));
    assert_eq!(pass.value(&container_object("a", "c"), Kind::ContainerCpuUsage), Some(1.0));
    assert_eq!(pass.value(&container_object("a", "new"), Kind::ContainerCpuUsage), None);
    assert_eq!(pass.value(&container_object("b", "d"), Kind::ContainerCpuUsage), Some(0.0));
    // A pod that left is forgotten, with its files.
    let pass = bench.pass(&inventory([more.clone()]));
    assert!(pass.samples.iter().all(|sample| sample.object != pod_object("b")));
    assert_eq!(bench.room.open(), 6);
    // One that moved to another class is another group.
    let moved = bench.node.pod(KubeQos::Guaranteed, "a", &["c"]);
    bench.cpu(&moved, 0);
    assert_eq!(bench.pass(&inventory([moved])).samples, []);
    assert_eq!(bench.pass(&Inventory::default()).samples, []);
    assert_eq!((bench.room.open(), bench.collector.open_files()), (0, 0));
}

#[test]
fn init_containers_can_be_left_out() {
    for (init_containers, seen) in [(true, Some(0.0)), (false, None)] {
        let mut bench = Bench::new(CgroupVersion::V2, 1, 1);
        bench.collector = PodCollector::new(PodOptions { init_containers, ..bench.collector.options });
        let mut pod = bench.node.pod(KubeQos::Burstable, "a", &["i", "c"]);
        pod.containers[0].is_init = true;
        bench.cpu(&pod, 0);
        let all = inventory([pod]);
        let passes = [(); 3].map(|()| bench.pass(&all));
        assert_eq!(passes[2].value(&container_object("a", "i"), Kind::ContainerCpuUsage), seen);
        assert_eq!(passes[2].value(&container_object("a", "c"), Kind::ContainerCpuUsage), Some(0.0));
    }
}

#[test]
fn memory_of_numa_nodes() {
    let numa_object = |numa| Object::PodNuma { pod_uid: Arc::from("a"), numa };
    for version in VERSIONS {
        let mut bench = Bench::new(version, 1, 1);
        let pod = bench.node.pod(KubeQos::Burstable, "a", &[]);
        bench.cpu(&pod, 0);
        let all = inventory([pod.clone()]);
        bench.numa_nodes = 1;
        bench.pass(&all);
        // One node: the pod's own figure, no further file.
        let pass = bench.pass(&all);
        assert_eq!(pass.value(&numa_object(0), Kind::PodNumaMemoryUsage), Some(307.0));
        bench.numa_nodes = 2;
        let pass = bench.pass(&all);
        assert_eq!(pass.value(&numa_object(0), Kind::PodNumaMemoryUsage), None, "there is no file");
        assert_eq!(bench.faults, Faults::default());
        let text = match version {
            CgroupVersion::V1 => "total=3 N0=1 N1=2\nanon=3 N0=1 N1=2\n",
            CgroupVersion::V2 => "anon N0=4096 N1=8192\nfile N0=0 N1=0\n",
        };
        let group = pod.cgroup.as_str();
        bench.node.group(koord_cgroup::layout::Controller::Memory, group, "memory.numa_stat", text);
        let pass = bench.pass(&all);
        assert_eq!(pass.value(&numa_object(0), Kind::PodNumaMemoryUsage), Some(4096.0));
        assert_eq!(pass.value(&numa_object(1), Kind::PodNumaMemoryUsage), Some(8192.0));
        let text = text.replace("N1", "N2");
        bench.node.group(koord_cgroup::layout::Controller::Memory, group, "memory.numa_stat", &text);
        let pass = bench.pass(&all);
        assert_eq!(pass.value(&numa_object(0), Kind::PodNumaMemoryUsage), None);
        assert_eq!(
            pass.value(&pod_object("a"), Kind::PodCpuUsage),
            Some(0.0),
            "the pod is told all the same"
        );
        assert_eq!(bench.faults.count, 1);
    }
}
