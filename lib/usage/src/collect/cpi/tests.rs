use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use koord_extension::qos::KubeQos;

use super::perf::PerfEvents;
use super::*;
use crate::collect::fake::{FakeNode, inventory};

#[test]
fn counts_are_scaled_to_the_whole_time() {
    let seconds = Duration::from_secs;
    let table = [
        (1000, seconds(10), seconds(5), 2000.0),
        (1000, seconds(10), seconds(0), 1000.0),
        (1000, seconds(0), seconds(5), 1000.0),
        (7, seconds(30), seconds(10), 21.0),
        (5, seconds(10), seconds(10), 5.0),
    ];
    for (value, enabled, running, expected) in table {
        assert_eq!(scale(value, enabled, running), expected, "{value} {enabled:?} {running:?}");
    }
}

/// Counters that count 1000 cycles and 500 instructions on each CPU.
#[derive(Debug, Default, Clone)]
struct FakeCounters {
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    opened: Arc<AtomicUsize>,
    refuse: Arc<Mutex<Option<Errno>>>,
    broken_cpu: Option<u32>,
}

#[derive(Debug)]
struct FakeGroup {
    open: Arc<AtomicUsize>,
    is_broken: bool,
}

impl CounterSource for FakeCounters {
    fn open(&self, _: &File, cpu: u32) -> io::Result<Box<dyn CounterGroup>> {
        if let Some(error) = *self.refuse.lock().expect("no panic") {
            return Err(error.into());
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(open, Ordering::Relaxed);
        Ok(Box::new(FakeGroup { open: Arc::clone(&self.open), is_broken: self.broken_cpu == Some(cpu) }))
    }
}

impl CounterGroup for FakeGroup {
    fn read(&mut self) -> io::Result<Counted> {
        if self.is_broken {
            return Err(Errno::IO.into());
        }
        let second = Duration::from_secs(1);
        Ok(Counted { cycles: 1000, instructions: 500, enabled: 2 * second, running: second })
    }
}

impl Drop for FakeGroup {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Bench {
    node: FakeNode,
    collector: CpiCollector,
    all: Inventory,
    tick: Tick,
    cpu_seconds: f64,
}

impl Bench {
    /// Pods `p0`, `p1`, ... of a container `c0`, `c1`, ... each, all on CPUs 0 and 1 of four.
    fn new(pods: usize, options: CpiOptions, counters: FakeCounters) -> Bench {
        let node = FakeNode::new(CgroupVersion::V2);
        let pods: Vec<_> = (0..pods)
            .map(|index| {
                let pod = node.pod(KubeQos::Burstable, &format!("p{index}"), &[&format!("c{index}")]);
                let group = pod.containers[0].cgroup.as_str();
                node.group(Controller::Cpuset, group, "cpuset.cpus.effective", "0-1,9\n");
                pod
            })
            .collect();
        let collector = CpiCollector::new(options, node.layout(), Box::new(counters));
        Bench { node, collector, all: inventory(pods), tick: Tick(1_000_000), cpu_seconds: 0.0 }
    }

    /// The next pass, with every container at `cores`; gives cycles and instructions by container.
    fn pass(&mut self, cores: f64) -> Vec<(String, f64, f64)> {
        self.tick = self.tick.ahead(Duration::from_secs(1));
        self.cpu_seconds += cores;
        let mut pass = Pass::new(self.tick);
        for pod in &self.all.pods {
            let object = Object::Container { pod_uid: pod.uid.clone(), id: pod.containers[0].id.clone() };
            pass.push(object.clone(), Kind::ContainerCpuUsage, cores);
            pass.push(object, Kind::ContainerCpuTime, self.cpu_seconds);
        }
        let (room, mut buffer) = (Descriptors::new(10), Buffer::new());
        self.collector.collect(&self.all, &CpuSet::range(0, 3), &room, &mut buffer, &mut pass);
        let cpi = |object: &Object, resource| pass.value(object, Kind::ContainerCpi(resource));
        pass.samples
            .iter()
            .filter(|sample| sample.kind == Kind::ContainerCpi(CpiResource::Cycle))
            .map(|sample| {
                let Object::Container { id, .. } = &sample.object else { panic!("no container") };
                let instructions = cpi(&sample.object, CpiResource::Instruction).expect("both or none");
                (id.to_string(), sample.value, instructions)
            })
            .collect()
    }

    /// Seconds and containers of the passes with figures.
    fn passes(&mut self, count: usize, cores: f64) -> Vec<(u64, Vec<String>)> {
        let mut found = Vec::new();
        for _ in 0..count {
            let mut names: Vec<String> = self.pass(cores).into_iter().map(|(id, _, _)| id).collect();
            names.sort_unstable();
            if !names.is_empty() {
                found.push((self.tick.milliseconds() / 1000 - 1000, names));
            }
        }
        found
    }
}

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_container_is_counted_for_ten_seconds_a_minute() {
    let counters = FakeCounters::default();
    let mut bench = Bench::new(1, CpiOptions::default(), counters.clone());
    assert_eq!(bench.collector.state(), &CpiState::Waiting);
    assert!(bench.pass(1.0).is_empty());
    // Two CPUs of its set are online.
    assert_eq!((counters.open.load(Ordering::Relaxed), bench.collector.open_files()), (2, 4));
    for _ in 0..9 {
        assert!(bench.pass(1.0).is_empty());
    }
    assert_eq!(bench.pass(1.0), [("c0".to_owned(), 4000.0, 2000.0)]);
    assert_eq!(counters.open.load(Ordering::Relaxed), 0);
    assert_eq!(bench.collector.state(), &CpiState::Counting);
    // 60 s of pause after the round, then 10 s again.
    assert_eq!(bench.passes(100, 1.0), [(81, names(&["c0"]))]);
}

#[test]
fn idle_containers_are_not_counted() {
    let counters = FakeCounters::default();
    let mut bench = Bench::new(1, CpiOptions::default(), counters.clone());
    assert!(bench.passes(200, 0.2).is_empty());
    assert_eq!(counters.opened.load(Ordering::Relaxed), 0);
    assert_eq!(bench.collector.state(), &CpiState::Counting);
}

#[test]
fn a_budget_is_shared_in_turns() {
    let counters = FakeCounters::default();
    // Four descriptors a container: two at a time.
    let options = CpiOptions { max_descriptors: 9, ..CpiOptions::default() };
    let mut bench = Bench::new(3, options, counters.clone());
    let rounds = bench.passes(160, 1.0);
    assert_eq!(rounds, [(11, names(&["c0", "c1"])), (81, names(&["c0", "c2"])), (151, names(&["c1", "c2"]))]);
    assert_eq!(counters.most.load(Ordering::Relaxed), 4);
}

#[test]
fn many_containers_are_opened_over_several_passes() {
    let counters = FakeCounters::default();
    let mut bench = Bench::new(300, CpiOptions::default(), counters.clone());
    bench.pass(1.0);
    assert_eq!(bench.collector.open_files(), PER_PASS);
    bench.pass(1.0);
    assert_eq!(bench.collector.open_files(), 2 * PER_PASS);
    let counted: usize = bench.passes(12, 1.0).iter().map(|(_, names)| names.len()).sum();
    assert_eq!((counted, counters.open.load(Ordering::Relaxed)), (300, 0));
}

#[test]
fn one_broken_counter_silences_its_container() {
    let counters = FakeCounters { broken_cpu: Some(0), ..FakeCounters::default() };
    let mut bench = Bench::new(1, CpiOptions::default(), counters.clone());
    assert!(bench.passes(30, 1.0).is_empty());
    assert_eq!((bench.collector.skipped(), counters.open.load(Ordering::Relaxed)), (1, 0));
}

#[test]
fn machines_without_counters() {
    let table = [
        (Errno::NOENT, "no hardware counters"),
        (Errno::ACCESS, "does not allow"),
        (Errno::PERM, "does not allow"),
        (Errno::MFILE, "no descriptors"),
        (Errno::NOSYS, "no event counters"),
    ];
    for (error, words) in table {
        let counters = FakeCounters::default();
        *counters.refuse.lock().expect("no panic") = Some(error);
        let mut bench = Bench::new(2, CpiOptions::default(), counters.clone());
        bench.pass(1.0);
        let CpiState::NotSupported(reason) = bench.collector.state() else { panic!("{error:?} is a reason") };
        assert!(reason.contains(words), "{reason}");
        // It is tried again in the next round.
        *counters.refuse.lock().expect("no panic") = None;
        assert_eq!(bench.passes(100, 1.0).len(), 1, "{error:?}");
        assert_eq!(bench.collector.state(), &CpiState::Counting);
    }
    let counters = FakeCounters::default();
    *counters.refuse.lock().expect("no panic") = Some(Errno::BUSY);
    let mut bench = Bench::new(2, CpiOptions::default(), counters);
    bench.pass(1.0);
    assert_eq!((bench.collector.state(), bench.collector.skipped()), (&CpiState::Waiting, 2));
    assert_eq!(bench.node.version(), CgroupVersion::V2);
}

/// Counts with the counters that every machine has, where this one lets a group be made.
#[test]
fn the_kernels_counters() {
    let root = ["/sys/fs/cgroup/perf_event", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let Some(root) = root.into_iter().find(|root| std::path::Path::new(root).join("cgroup.procs").exists())
    else {
        return;
    };
    let folder = format!("{root}/test-of-usage-{}", std::process::id());
    if std::fs::create_dir(&folder).is_err() {
        return;
    }
    let directory = File::open(&folder).expect("it was made");
    let hardware = PerfEvents::Hardware.open(&directory, 0);
    let counters: io::Result<Vec<_>> = std::thread::available_parallelism()
        .map(|cpus| 0..u32::try_from(cpus.get()).expect("few"))
        .and_then(|cpus| cpus.map(|cpu| PerfEvents::Software.open(&directory, cpu)).collect());
    let counted = counters.map(|counters| {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell");
        let moved = std::fs::write(format!("{folder}/cgroup.procs"), child.id().to_string());
        let run_time = || -> Option<u64> {
            let text = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).ok()?;
            text.split(' ').next()?.parse().ok()
        };
        let start = run_time().expect("it runs");
        // 50 ms of CPU.
        while run_time().expect("it runs") < start + 50_000_000 {
            std::thread::yield_now();
        }
        let nanoseconds: u64 =
            counters.into_iter().map(|mut counter| counter.read().expect("a count").cycles).sum();
        let end = run_time().expect("it runs");
        child.kill().expect("ended");
        child.wait().expect("ended");
        moved.expect("the group takes it");
        (nanoseconds, end - start)
    });
    std::fs::remove_dir(&folder).expect("it is empty");
    match counted {
        Ok((counted, ran)) => {
            assert!(counted >= 25_000_000 && counted <= ran + ran / 2, "{counted} of {ran}")
        }
        Err(error) => assert!(!reason(&error).is_empty()),
    }
    // Not every machine has them; then the reason is told.
    if let Err(error) = hardware {
        assert!(reason(&error).contains(": "), "{error}");
    }
}
