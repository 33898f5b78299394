//! The crate on the kernel of this machine: real groups, values read back from their files.
//!
//! Needs root and writable control groups of either version; without, every test fails and says so. Each test makes groups
//! of its own at the top of the hierarchies, `koord-cgroup-test-PID-NAME`, and removes them.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]
#![expect(clippy::print_stdout, reason = "a reader of the results must know what kernel gave them")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use koord_cgroup::driver::{CgroupDriver, DriverEvidence};
use koord_cgroup::error::CgroupError;
use koord_cgroup::executor::{Executor, Outcome, Owner, Support, Write, Written};
use koord_cgroup::layout::{Controller, DetectOptions, Layout};
use koord_cgroup::memory_limit::{MemoryLowering, Progress};
use koord_cgroup::oom::set_scores;
use koord_cgroup::path::CgroupPath;
use koord_cgroup::resource::Resource;
use koord_cgroup::stat::{CpuStat, Pressure};
use koord_cgroup::value::Value;
use koord_cgroup::version::CgroupVersion;
use koord_extension::cpuset::CpuSet;
use koord_extension::qos::KubeQos;
use koord_extension::units::Bytes;

const ROOT: &str = "/sys/fs/cgroup";
const CONTROLLERS: [Controller; 4] =
    [Controller::Cpu, Controller::Cpuset, Controller::Memory, Controller::Unified];
const ERRORS: [(&str, i32); 3] = [("EINVAL", 22), ("EACCES", 13), ("EBUSY", 16)];

/// Groups of a class, a pod and a container, removed at the end.
struct Tree {
    executor: Executor,
    top: String,
    class: CgroupPath,
    pod: CgroupPath,
    container: CgroupPath,
    processes: Vec<Child>,
}

fn tree(name: &str) -> Tree {
    let top = format!("koord-cgroup-test-{}-{name}", std::process::id());
    let driver = DriverEvidence { configured: Some(CgroupDriver::Cgroupfs), ..DriverEvidence::default() };
    let options = DetectOptions {
        root: PathBuf::from(ROOT),
        kubelet_root: format!("/{top}"),
        declared: Vec::new(),
        driver,
    };
    let (layout, _) = Layout::detect(&options).expect("control groups are mounted at /sys/fs/cgroup");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    println!(
        "{name}: control groups {}{}, kernel {}, {} CPUs",
        layout.version(),
        if layout.is_hybrid() { " with a version 2 tree" } else { "" },
        release.trim(),
        thread::available_parallelism().unwrap()
    );
    let class = layout.qos_dir(KubeQos::BestEffort);
    let pod = layout.pod(KubeQos::BestEffort, "11-22").unwrap();
    let container = pod.child("0123abcd").unwrap();
    let tree = Tree { executor: Executor::new(layout), top, class, pod, container, processes: Vec::new() };
    tree.make(&tree.container);
    tree
}

impl Tree {
    fn version(&self) -> CgroupVersion {
        self.executor.layout().version()
    }

    fn is_v1(&self) -> bool {
        self.version() == CgroupVersion::V1
    }

    fn roots(&self) -> Vec<PathBuf> {
        let layout = self.executor.layout();
        let mut roots: Vec<PathBuf> =
            CONTROLLERS.iter().map(|controller| layout.directory(*controller)).collect();
        roots.retain(|root| root.is_dir());
        roots.dedup();
        roots
    }

    /// Makes a group and those above it, with the CPUs and memory nodes of their parents.
    fn make(&self, path: &CgroupPath) {
        for root in self.roots() {
            let mut place = root.clone();
            for level in path.as_str().split('/') {
                if !self.is_v1() {
                    for controller in ["cpu", "cpuset", "memory", "io"] {
                        // One that is missing shows where it is used.
                        let _result =
                            fs::write(place.join("cgroup.subtree_control"), format!("+{controller}"));
                    }
                }
                let parent = place.clone();
                place.push(level);
                if let Err(error) = fs::create_dir(&place) {
                    assert!(
                        error.kind() == std::io::ErrorKind::AlreadyExists,
                        "cannot make {}: {error}; these tests need root and writable control groups",
                        place.display()
                    );
                }
                if self.is_v1() && place.join("cpuset.cpus").exists() {
                    for file in ["cpuset.cpus", "cpuset.mems"] {
                        fs::write(place.join(file), fs::read_to_string(parent.join(file)).unwrap()).unwrap();
                    }
                }
            }
        }
    }

    /// Place of the file of a resource.
    fn place(&self, path: &CgroupPath, resource: Resource) -> PathBuf {
        let file = resource.file(self.version()).unwrap();
        self.executor.layout().directory(file.controller).join(path.as_str()).join(file.name)
    }

    fn text(&self, path: &CgroupPath, resource: Resource) -> String {
        fs::read_to_string(self.place(path, resource)).unwrap().trim().to_owned()
    }

    /// Writes past the executor: the kernel's answer.
    fn raw(&self, path: &CgroupPath, resource: Resource, text: &str) -> Result<(), String> {
        fs::write(self.place(path, resource), text).map_err(|error| {
            let number = error.raw_os_error();
            let name = ERRORS.iter().find(|(_, known)| Some(*known) == number);
            name.map_or_else(|| error.to_string(), |(name, _)| (*name).to_owned())
        })
    }

    fn write(&self, path: &CgroupPath, resource: Resource, value: impl Into<Value>) -> Write {
        Write { path: path.clone(), resource, value: value.into(), owner: Owner::new("test") }
    }

    fn apply(&self, path: &CgroupPath, resource: Resource, value: impl Into<Value>) -> Written {
        self.executor.apply(&[self.write(path, resource, value)]).remove(0)
    }

    fn levels(&self) -> [&CgroupPath; 3] {
        [&self.class, &self.pod, &self.container]
    }

    /// Starts a shell command inside a group of all hierarchies.
    fn start(&mut self, path: &CgroupPath, command: &str) -> i32 {
        let joins: Vec<String> = self
            .roots()
            .iter()
            .map(|root| format!("echo $$ > {}", root.join(path.as_str()).join("cgroup.procs").display()))
            .collect();
        let script = format!("{}; {command}", joins.join(" && "));
        let child = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        self.processes.push(child);
        wait_for("the process is in its group", || {
            self.executor.pids(path).is_ok_and(|pids| pids.contains(&pid))
                && self.roots().iter().all(|root| {
                    let list = fs::read_to_string(root.join(path.as_str()).join("cgroup.procs"));
                    list.is_ok_and(|list| list.lines().any(|line| line == pid.to_string()))
                })
        });
        pid
    }

    fn stop_all(&mut self) {
        for mut child in self.processes.drain(..) {
            // It may have ended by itself.
            let _result = child.kill();
            let _status = child.wait();
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.stop_all();
        for root in self.roots() {
            remove(&root.join(&self.top));
        }
    }
}

/// Removes a group and all below it, waiting for its last tasks to be gone.
fn remove(place: &std::path::Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    let end = Instant::now() + Duration::from_secs(5);
    while fs::remove_dir(place).is_err() && place.exists() {
        if Instant::now() > end {
            eprintln!("cannot remove {}", place.display());
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "waited too long: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn cpus(text: &str) -> Value {
    Value::Cpus(CpuSet::parse(text).unwrap())
}

#[test]
fn quotas_are_ordered_over_levels() {
    let tree = tree("quota");
    let quota = Resource::CpuQuota;
    // The rules of the kernel that the order is for.
    tree.raw(&tree.pod, quota, "50000").unwrap();
    if tree.is_v1() {
        assert_eq!(tree.raw(&tree.container, quota, "60000"), Err("EINVAL".to_owned()));
        tree.raw(&tree.container, quota, "50000").unwrap();
        assert_eq!(tree.raw(&tree.pod, quota, "40000"), Err("EINVAL".to_owned()));
    } else {
        assert_eq!(tree.raw(&tree.container, quota, "60000"), Ok(()));
        assert_eq!(tree.raw(&tree.pod, quota, "40000"), Ok(()));
    }
    assert_eq!(tree.raw(&tree.container, quota, "999"), Err("EINVAL".to_owned()));

    for value in [20_000, 80_000, -1, 30_000, 1_000] {
        for reversed in [false, true] {
            let mut writes: Vec<Write> =
                tree.levels().iter().map(|path| tree.write(path, quota, value)).collect();
            if reversed {
                writes.reverse();
            }
            for written in tree.executor.apply(&writes) {
                assert!(written.result.is_in_effect(), "{value} {written:?}");
                assert_eq!(written.found, Some(Value::Integer(value)));
            }
            let expected = match (tree.is_v1(), value) {
                (true, value) => value.to_string(),
                (false, -1) => "max 100000".to_owned(),
                (false, value) => format!("{value} 100000"),
            };
            for path in tree.levels() {
                assert_eq!(tree.text(path, quota), expected);
            }
        }
    }
    if tree.is_v1() {
        let refused = tree.apply(&tree.container, quota, 50_000);
        assert!(
            matches!(&refused.result, Outcome::Failed(CgroupError::Kernel { hint: Some(_), .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn periods_keep_the_quota() {
    let tree = tree("period");
    tree.apply(&tree.container, Resource::CpuQuota, 20_000);
    let written = tree.apply(&tree.container, Resource::CpuPeriod, 50_000);
    assert_eq!((written.before, written.result), (Some(Value::Integer(100_000)), Outcome::Written));
    assert_eq!(tree.executor.read(&tree.container, Resource::CpuQuota), Ok(Value::Integer(20_000)));
    assert_eq!(tree.executor.read(&tree.container, Resource::CpuPeriod), Ok(Value::Integer(50_000)));
}

#[test]
fn burst_stays_within_the_quota() {
    let tree = tree("burst");
    let (quota, burst) = (Resource::CpuQuota, Resource::CpuBurst);
    tree.raw(&tree.container, quota, "50000").unwrap();
    tree.raw(&tree.container, burst, "50000").unwrap();
    assert_eq!(tree.raw(&tree.container, burst, "50001"), Err("EINVAL".to_owned()));
    assert_eq!(tree.raw(&tree.container, quota, "40000"), Err("EINVAL".to_owned()));

    for (quota_value, burst_value) in [(20_000, 20_000), (90_000, 80_000), (-1, 5_000), (10_000, 1_000)] {
        for reversed in [false, true] {
            let mut writes = vec![
                tree.write(&tree.container, quota, quota_value),
                tree.write(&tree.container, burst, burst_value),
            ];
            if reversed {
                writes.reverse();
            }
            for written in tree.executor.apply(&writes) {
                assert!(written.result.is_in_effect(), "{written:?}");
            }
            assert_eq!(tree.executor.read(&tree.container, quota), Ok(Value::Integer(quota_value)));
            assert_eq!(tree.text(&tree.container, burst), burst_value.to_string());
        }
    }
    // A burst that no wish names gives way.
    tree.apply(&tree.container, quota, 50_000);
    tree.raw(&tree.container, burst, "50000").unwrap();
    assert_eq!(tree.apply(&tree.container, quota, 20_000).result, Outcome::Written);
    assert_eq!(tree.text(&tree.container, burst), "20000");
}

#[test]
fn idle_groups_take_no_shares() {
    let tree = tree("idle");
    let (idle, shares) = (Resource::CpuIdle, Resource::CpuShares);
    let path = &tree.container;
    let (own, reset, fewest, wished, direct) =
        if tree.is_v1() { ("500", "1024", "2", "2048", "2") } else { ("20", "100", "1", "79", "1") };
    // The documentation of version 2 says 0; kernels from 6.12 on have 1.
    let idle_texts: &[&str] = if tree.is_v1() { &["3"] } else { &["0", "1"] };
    let shows_idle = || idle_texts.contains(&tree.text(path, shares).as_str());
    // The rules of the kernel.
    tree.raw(path, shares, own).unwrap();
    tree.raw(path, idle, "1").unwrap();
    assert!(shows_idle());
    assert_eq!(tree.raw(path, shares, direct), Err("EINVAL".to_owned()));
    tree.raw(path, idle, "0").unwrap();
    assert_eq!(tree.text(path, shares), reset);
    // Made idle by somebody else: the fewest.
    tree.raw(path, idle, "1").unwrap();
    assert_eq!(tree.apply(path, idle, 0).result, Outcome::Written);
    assert_eq!(tree.text(path, shares), fewest);
    // Made idle here: what was there.
    tree.raw(path, shares, own).unwrap();
    assert_eq!(tree.apply(path, idle, 1).result, Outcome::Written);
    assert!(shows_idle());
    assert_eq!(tree.apply(path, idle, 0).result, Outcome::Written);
    assert_eq!(tree.text(path, shares), own);
    // Shares wished for while idle: afterwards.
    tree.apply(path, idle, 1);
    assert_eq!(tree.apply(path, shares, 2048).result, Outcome::Deferred);
    assert!(shows_idle());
    tree.apply(path, idle, 0);
    assert_eq!(tree.text(path, shares), wished);
    // Both at once.
    let both = |value: i64, amount: i64| [tree.write(path, idle, value), tree.write(path, shares, amount)];
    let answers = tree.executor.apply(&both(1, 1024));
    assert_eq!((&answers[0].result, &answers[1].result), (&Outcome::Written, &Outcome::Deferred));
    let answers = tree.executor.apply(&both(0, 2048));
    assert_eq!((&answers[0].result, &answers[1].result), (&Outcome::Written, &Outcome::Written));
    assert_eq!(tree.text(path, shares), wished);
}

#[test]
fn cpu_sets_are_ordered_over_levels() {
    let mut tree = tree("cpuset");
    let resource = Resource::CpusetCpus;
    assert!(thread::available_parallelism().unwrap().get() >= 2, "this test needs two CPUs");
    if tree.is_v1() {
        tree.raw(&tree.container, resource, "0").unwrap();
        tree.raw(&tree.pod, resource, "0").unwrap();
        assert_eq!(tree.raw(&tree.container, resource, "0-1"), Err("EACCES".to_owned()));
        tree.raw(&tree.pod, resource, "0-1").unwrap();
        assert_eq!(tree.raw(&tree.pod, resource, "1"), Err("EBUSY".to_owned()));
    }
    for set in ["0-1", "0", "1", "0-1", "1", "0"] {
        for reversed in [false, true] {
            let mut writes: Vec<Write> =
                tree.levels().iter().map(|path| tree.write(path, resource, cpus(set))).collect();
            if reversed {
                writes.reverse();
            }
            for written in tree.executor.apply(&writes) {
                assert!(written.result.is_in_effect(), "{set} {written:?}");
                assert_eq!(written.found, Some(cpus(set)), "{set}");
            }
            for path in tree.levels() {
                assert_eq!(tree.text(path, resource), set);
            }
        }
    }
    // "As the parent", with a task inside.
    let container = tree.container.clone();
    tree.start(&container, "exec sleep 60");
    let written = tree.apply(&tree.container, resource, CpuSet::new());
    assert_eq!((written.before, written.found), (Some(cpus("0")), Some(cpus("0"))));
    assert!(written.result.is_in_effect(), "{:?}", written.result);
    tree.apply(&tree.class, resource, cpus("0-1"));
    tree.apply(&tree.pod, resource, cpus("0-1"));
    tree.executor.expire(&tree.container);
    let written = tree.apply(&tree.container, resource, CpuSet::new());
    assert_eq!((written.found, written.result.is_in_effect()), (Some(cpus("0-1")), true));
    // The kernel's own words for a set count as the same.
    let again = tree.apply(&tree.pod, resource, cpus("0,1"));
    assert_eq!(again.result, Outcome::Same);
}

#[test]
fn limits_of_memory_are_whole_pages_and_go_down_by_steps() {
    let mut tree = tree("memory");
    let limit = Resource::MemoryLimit;
    let page = tree.executor.layout().page_size();
    let written = tree.apply(&tree.container, limit, (64 << 20) + 1);
    assert_eq!((written.before, written.result), (Some(Value::Integer(-1)), Outcome::Written));
    assert_eq!(tree.text(&tree.container, limit), (64 << 20).to_string());
    assert_eq!(tree.apply(&tree.container, limit, -1).result, Outcome::Written);
    let unlimited = if tree.is_v1() { (i64::MAX - i64::MAX % page).to_string() } else { "max".to_owned() };
    assert_eq!(tree.text(&tree.container, limit), unlimited);
    assert_eq!(tree.apply(&tree.container, limit, i64::MAX).result, Outcome::Same);

    // 24 MiB that cannot be reclaimed.
    let container = tree.container.clone();
    tree.start(&container, "x=$(head -c 25165824 /dev/zero | tr '\\0' a); while :; do sleep 1; done");
    wait_for("the memory is in use", || {
        let usage = tree.executor.read(&tree.container, Resource::MemoryUsage);
        usage.is_ok_and(|usage| usage.integer().is_some_and(|usage| usage > 24 << 20))
    });
    let wanted = 8 << 20;
    let refused = tree.apply(&tree.container, limit, wanted);
    assert!(
        matches!(&refused.result, Outcome::Failed(CgroupError::Busy { usage, .. }) if *usage > wanted),
        "{refused:?}"
    );
    assert_eq!(tree.text(&tree.container, limit), unlimited);
    let start = Instant::now();
    let mut lowering = MemoryLowering::new(tree.container.clone(), Owner::new("test"), Bytes(wanted), start);
    let Progress::Again(next) = lowering.step(&tree.executor, start) else { panic!("not busy") };
    let aim = if tree.is_v1() { Resource::MemorySoftLimit } else { Resource::MemoryHigh };
    assert_eq!(tree.text(&tree.container, aim), wanted.to_string());
    assert_eq!(tree.text(&tree.container, limit), unlimited);
    tree.stop_all();
    wait_for("the memory is free", || {
        let usage = tree.executor.read(&tree.container, Resource::MemoryUsage);
        usage.is_ok_and(|usage| usage.integer().is_some_and(|usage| usage < wanted))
    });
    let over = lowering.step(&tree.executor, next);
    assert!(matches!(&over, Progress::Over(Written { result: Outcome::Written, .. })), "{over:?}");
    assert_eq!(tree.text(&tree.container, limit), wanted.to_string());
    if !tree.is_v1() {
        assert_eq!(tree.text(&tree.container, Resource::MemoryHigh), "max");
    }
}

#[test]
fn protections_and_weights_of_version_2() {
    let tree = tree("v2");
    let resources = [
        (Resource::MemoryMin, Value::Integer(1 << 20), "1048576"),
        (Resource::MemoryLow, Value::Integer(-1), "max"),
        (Resource::MemoryHigh, Value::Integer(1 << 30), "1073741824"),
        (Resource::MemoryOomGroup, Value::Integer(1), "1"),
        (Resource::MemorySwapMax, Value::Integer(0), "0"),
        (Resource::CpuShares, Value::Integer(256), "10"),
    ];
    for (resource, value, text) in resources {
        let written = tree.apply(&tree.container, resource, value.clone());
        match (tree.is_v1(), resource) {
            (true, Resource::CpuShares) => assert_eq!(tree.text(&tree.container, resource), "256"),
            (true, _) => assert_eq!(written.result, Outcome::Unsupported, "{resource}"),
            (false, _) => {
                assert_eq!((written.found, written.result), (Some(value), Outcome::Written), "{resource}");
                assert_eq!(tree.text(&tree.container, resource), text, "{resource}");
            }
        }
    }
}

#[test]
fn a_removed_group_is_gone_and_a_new_one_is_new() {
    let tree = tree("gone");
    tree.apply(&tree.container, Resource::CpuShares, 512);
    for root in tree.roots() {
        remove(&root.join(tree.pod.as_str()));
    }
    assert_eq!(tree.apply(&tree.container, Resource::CpuShares, 512).result, Outcome::Gone);
    assert_eq!(tree.executor.owned(), 0);
    tree.make(&tree.container);
    assert_eq!(tree.apply(&tree.container, Resource::CpuShares, 512).result, Outcome::Written);
    for root in tree.roots() {
        remove(&root.join(tree.pod.as_str()));
    }
    tree.make(&tree.container);
    // Nothing the first group was known to hold is believed of the new one.
    assert_eq!(tree.apply(&tree.container, Resource::CpuShares, 512).result, Outcome::Written);
    for root in tree.roots() {
        remove(&root.join(tree.pod.as_str()));
    }
    assert_eq!((tree.executor.sweep(), tree.executor.owned()), (1, 0));
}

#[test]
fn scores_reach_processes_of_nested_groups() {
    let mut tree = tree("oom");
    let nested = tree.container.child("init.scope").unwrap();
    tree.make(&nested);
    let pid = tree.start(&nested, "exec sleep 60");
    let executor = tree.executor.clone();
    assert_eq!(executor.pids(&tree.pod), Ok(vec![pid]));
    let score = || fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().to_owned();
    let proc_root = std::path::Path::new("/proc");
    let report = set_scores(&executor, &tree.pod, 555, proc_root).unwrap();
    assert_eq!((report.changed, report.same, report.failed), (1, 0, 0));
    assert_eq!(score(), "555");
    let again = set_scores(&executor, &tree.pod, 555, proc_root).unwrap();
    assert_eq!((again.changed, again.same), (0, 1));
    if tree.is_v1() {
        assert_eq!(executor.threads(&tree.pod), Ok(vec![pid]));
    }
}

#[test]
fn every_file_that_exists_is_understood() {
    let tree = tree("files");
    let mut understood = Vec::new();
    for resource in Resource::ALL.iter().copied().filter(|resource| !resource.is_root_only()) {
        match tree.executor.read(&tree.container, resource) {
            Ok(_) => understood.push(resource),
            Err(CgroupError::Unsupported { .. } | CgroupError::Gone { .. }) => {}
            // Files that are only written.
            Err(CgroupError::Kernel { .. }) if resource == Resource::MemoryReclaim => {}
            Err(error) => panic!("{resource}: {error}"),
        }
    }
    for resource in [
        Resource::CpuShares,
        Resource::CpuQuota,
        Resource::CpuIdle,
        Resource::CpuBurst,
        Resource::CpusetCpus,
        Resource::MemoryLimit,
        Resource::MemoryUsage,
    ] {
        assert!(understood.contains(&resource), "{resource}");
        assert_eq!(tree.executor.supported_in(&tree.container, resource), Support::Yes);
    }
    println!("understood: {understood:?}");
    let stat = tree.executor.read_text(&tree.container, Resource::CpuStat).unwrap();
    assert!(CpuStat::parse(&stat, tree.version()).is_ok(), "{stat}");
    if !tree.is_v1() || tree.executor.layout().is_hybrid() {
        for resource in [Resource::CpuPressure, Resource::MemoryPressure, Resource::IoPressure] {
            let text = tree.executor.read_text(&tree.container, resource).unwrap();
            assert!(Pressure::parse(&text).is_ok(), "{text}");
        }
    }
    assert_eq!(tree.executor.supported(Resource::CpuBvtWarpNs), Support::No);
    assert_eq!(tree.executor.supported(Resource::CpuIdle), Support::Yes);
}

#[test]
fn a_second_look_writes_nothing() {
    let tree = tree("steady");
    let writes: Vec<Write> = tree
        .levels()
        .iter()
        .flat_map(|path| {
            [
                tree.write(path, Resource::CpuShares, 700),
                tree.write(path, Resource::CpuQuota, 50_000),
                tree.write(path, Resource::CpusetCpus, cpus("0")),
                tree.write(path, Resource::MemoryLimit, 1 << 30),
            ]
        })
        .collect();
    assert!(tree.executor.apply(&writes).iter().all(|written| written.result.is_in_effect()));
    let first = tree.executor.counts();
    for _ in 0..3 {
        tree.executor.expire(&tree.class);
        assert!(tree.executor.apply(&writes).iter().all(|written| written.result == Outcome::Same));
    }
    let looked = tree.executor.counts();
    assert_eq!(looked.kernel_writes, first.kernel_writes);
    let start = Instant::now();
    for _ in 0..100 {
        assert!(tree.executor.apply(&writes).iter().all(|written| written.result == Outcome::Same));
    }
    println!("a wish that holds: {} ns", start.elapsed().as_nanos() / 1200);
    assert_eq!(tree.executor.counts().kernel_reads, looked.kernel_reads);
}
