use koord_topology::sysfs;

use super::*;
use crate::collect::fake::FakeNode;
use crate::time::Tick;

const SECOND: u64 = 1_000_000_000;
const CYCLE: Duration = Duration::from_secs(5);

/// A node and its collector, a second a pass.
struct Bench {
    node: FakeNode,
    collector: NodeCollector,
    clock: Clock,
    tick: Tick,
}

impl Bench {
    fn new(cpus: &[u32]) -> Bench {
        let node = FakeNode::new(koord_cgroup::version::CgroupVersion::V2);
        node.cpus(cpus);
        node.meminfo(1_048_576, 262_144, 524_288);
        let mut collector = NodeCollector::new(&node.roots(), Duration::from_secs(20)).with_tick(10_000_000);
        let topology = sysfs::read(&node.roots().sys_root).expect("a layout");
        collector.set_topology(&topology);
        Bench { node, collector, clock: Clock::manual(50 * SECOND), tick: Tick(50_000) }
    }

    /// The next pass, `nanoseconds` after the last.
    fn pass(&mut self, nanoseconds: u64) -> Result<(Outcome, Pass), ReadError> {
        self.clock.advance(nanoseconds);
        self.tick = self.tick.ahead(Duration::from_secs(1));
        let mut pass = Pass::new(self.tick);
        let cycle = Cycle::new(CYCLE, Duration::from_secs(1));
        let (room, mut buffer) = (Descriptors::new(100), Buffer::new());
        let outcome = self.collector.collect(cycle, &self.clock, &room, &mut buffer, &mut pass)?;
        Ok((outcome, pass))
    }
}

#[test]
fn what_counts_as_used() {
    assert_eq!(used_ticks(b"cpu 100 5 50 1000 20 3 7 9 0 0"), Ok(165));
    assert_eq!(used_ticks(b"cpu  1 2 3 4 5 6 7"), Ok(1 + 2 + 3 + 6 + 7));
    assert!(used_ticks(b"cpu 1 2 3 4 5 6").is_err());
    assert!(used_ticks(b"cpu 1 2 3 4 5 6 x").is_err());
    assert!(used_ticks(b"").is_err());
}

#[test]
fn cores_of_the_node() {
    for (nanoseconds, tick, cores) in [
        (SECOND, 10_000_000, 2.5),
        (SECOND + SECOND / 100, 10_000_000, 2.5 / 1.01),
        (SECOND, 1_000_000, 0.25),
    ] {
        let mut bench = Bench::new(&[0]);
        bench.collector = bench.collector.with_tick(tick);
        bench.node.stat(1000, &[1000]);
        bench.pass(SECOND).expect("a pass");
        bench.node.stat(1250, &[1250]);
        let (_, pass) = bench.pass(nanoseconds).expect("a pass");
        let value = pass.value(&Object::Node, Kind::NodeCpuUsage).expect("a sample");
        assert!((value - cores).abs() < 1e-12, "{value} is not {cores}");
    }
}

#[test]
fn the_first_pass_has_nothing() {
    let mut bench = Bench::new(&[0]);
    bench.node.stat(1000, &[1000]);
    let (outcome, pass) = bench.pass(SECOND).expect("a pass");
    assert_eq!((outcome, pass.samples.len()), (Outcome::First, 0));
    let (outcome, pass) = bench.pass(SECOND).expect("a pass");
    assert_eq!(outcome, Outcome::Complete);
    assert_eq!(pass.value(&Object::Node, Kind::NodeCpuUsage), Some(0.0));
    assert_eq!(pass.value(&Object::Node, Kind::NodeMemoryUsage), Some(536_870_912.0));
    assert_eq!(pass.value(&Object::Node, Kind::NodeMemoryUsageWithPageCache), Some(805_306_368.0));
}

#[test]
fn a_counter_that_went_back_and_a_broken_file_give_nothing() {
    let mut bench = Bench::new(&[0]);
    bench.node.stat(1000, &[]);
    bench.pass(SECOND).expect("a pass");
    bench.node.stat(900, &[]);
    assert_eq!(bench.pass(SECOND).expect("a pass").1.samples, []);
    bench.node.stat(950, &[]);
    assert_eq!(bench.pass(SECOND).expect("a pass").1.value(&Object::Node, Kind::NodeCpuUsage), Some(0.5));
    bench.node.set("proc/stat", "cpu 1 2 3 4 5 6\n");
    assert!(matches!(bench.pass(SECOND), Err(ReadError::Text(_))));
    bench.node.set("proc/stat", "intr 1\n");
    assert!(matches!(bench.pass(SECOND), Err(ReadError::Text(_))));
    // What was read before still counts.
    bench.node.stat(1050, &[]);
    let cores = bench.pass(SECOND).expect("a pass").1.value(&Object::Node, Kind::NodeCpuUsage);
    assert_eq!(cores, Some(1.0 / 3.0));
}

#[test]
fn one_numa_node_is_the_node() {
    let mut bench = Bench::new(&[0, 0]);
    bench.node.stat(0, &[0, 0]);
    let text = "MemTotal: 1048576 kB\nMemFree: 200000 kB\nMemAvailable: 524288 kB\nActive(file): 300000 kB\n\
                Inactive(file): 80000 kB\nSReclaimable: 9824 kB\n";
    bench.node.set("proc/meminfo", text);
    bench.pass(SECOND).expect("a pass");
    bench.node.stat(100, &[1, 2]);
    let (_, pass) = bench.pass(SECOND).expect("a pass");
    assert_eq!(pass.value(&Object::Numa(0), Kind::NumaCpuUsage), Some(1.0));
    // 1048576 - 589824 kB, by parts, whatever the estimate of the kernel is.
    assert_eq!(pass.value(&Object::Numa(0), Kind::NumaMemoryUsage), Some(469_762_048.0));
    assert_eq!(pass.value(&Object::Node, Kind::NodeMemoryUsage), Some(536_870_912.0));
}

#[test]
fn cpus_are_summed_up_by_numa_node() {
    let mut bench = Bench::new(&[0, 1]);
    for (node, free) in [(0, 589_824), (1, 2_000_000)] {
        let text = format!("Node {node} MemTotal: 1048576 kB\nNode {node} MemFree: {free} kB\n");
        bench.node.set(&format!("sys/devices/system/node/node{node}/meminfo"), &text);
    }
    bench.node.stat(1000, &[1000, 1000, 1000]);
    bench.pass(SECOND).expect("a pass");
    // CPU 2 is in no layout.
    bench.node.stat(1700, &[1050, 1150, 1500]);
    let (_, pass) = bench.pass(SECOND).expect("a pass");
    assert_eq!(pass.value(&Object::Numa(0), Kind::NumaCpuUsage), Some(0.5));
    assert_eq!(pass.value(&Object::Numa(1), Kind::NumaCpuUsage), Some(1.5));
    assert_eq!(pass.value(&Object::Numa(0), Kind::NumaMemoryUsage), Some(469_762_048.0));
    // More free than there is.
    assert_eq!(pass.value(&Object::Numa(1), Kind::NumaMemoryUsage), Some(0.0));
    assert_eq!(pass.value(&Object::Numa(2), Kind::NumaCpuUsage), None);

    // A CPU whose counter went back is left out of the sum of its node.
    bench.node.stat(1800, &[1000, 1250, 1500]);
    let (_, pass) = bench.pass(SECOND).expect("a pass");
    assert_eq!(pass.value(&Object::Numa(0), Kind::NumaCpuUsage), None);
    assert_eq!(pass.value(&Object::Numa(1), Kind::NumaCpuUsage), Some(1.0));
}

#[test]
fn memory_of_numa_nodes_is_read_in_turns() {
    let mut bench = Bench::new(&[0, 1]);
    for node in 0..2 {
        let text = format!("Node {node} MemTotal: 8 kB\nNode {node} MemFree: 4 kB\n");
        bench.node.set(&format!("sys/devices/system/node/node{node}/meminfo"), &text);
    }
    bench.node.stat(1000, &[0, 0]);
    let mut seconds = Vec::new();
    for _ in 0..14 {
        let (_, pass) = bench.pass(SECOND).expect("a pass");
        if pass.value(&Object::Numa(1), Kind::NumaMemoryUsage).is_some() {
            seconds.push(pass.tick.milliseconds() / 1000);
        }
    }
    assert_eq!(seconds, [52, 55, 60]);
}

#[test]
fn memory_of_both_shapes() {
    let info = MemoryInfo::parse(
        b"MemTotal:       263432804 kB\nMemFree: 254391744 kB\nMemAvailable: 256703236 kB\n",
    );
    let info = info.expect("a text");
    assert_eq!(info.used(), 6_891_077_632);
    assert_eq!(info.used_with_page_cache(), 9_258_045_440);
    let text = b"Node 0 MemTotal: 100 kB\nNode 0 MemFree: 10 kB\nNode 0 Active(file): 20 kB\n\
                 Node 0 Inactive(file): 30 kB\nNode 0 SReclaimable: 5 kB\n";
    let info = MemoryInfo::parse(text).expect("a text");
    // No estimate of the kernel: its parts count for the node as well.
    assert_eq!((info.numa_used(), info.used()), (35 * 1024, 35 * 1024));
    for text in ["", "MemFree: 1 kB\n", "MemTotal: 1 kB\n", "MemTotal: x kB\nMemFree: 1 kB\n", "Node 0\n"] {
        assert!(MemoryInfo::parse(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn the_kernels_own_files() {
    let roots = SystemRoots::default();
    let mut collector = NodeCollector::new(&roots, Duration::from_secs(20));
    collector.set_topology(&sysfs::read(&roots.sys_root).expect("a layout"));
    let (room, mut buffer, clock) = (Descriptors::new(10), Buffer::new(), Clock::Kernel);
    let cycle = Cycle::new(CYCLE, Duration::from_secs(1));
    let mut pass = Pass::new(Tick::now());
    collector.collect(cycle, &clock, &room, &mut buffer, &mut pass).expect("the first pass");
    // Until the kernel's count has moved, which every CPU does 100 times a second.
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let outcome = collector.collect(cycle, &clock, &room, &mut buffer, &mut pass).expect("the second pass");
    assert_eq!(outcome, Outcome::Complete);
    let cores = pass.value(&Object::Node, Kind::NodeCpuUsage).expect("a sample");
    let cpus =
        f64::from(u32::try_from(std::thread::available_parallelism().expect("CPUs").get()).expect("few"));
    assert!(cores > 0.0 && cores < 3.0 * cpus, "{cores} of {cpus}");
    let memory = pass.value(&Object::Node, Kind::NodeMemoryUsage).expect("a sample");
    let with_cache = pass.value(&Object::Node, Kind::NodeMemoryUsageWithPageCache).expect("a sample");
    assert!(memory > 0.0 && with_cache > 0.0);
    assert!(pass.value(&Object::Numa(0), Kind::NumaCpuUsage).is_some());
    assert!(collector.open_files() >= 2);
}
