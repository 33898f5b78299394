use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::layout::Controller;
use koord_cgroup::version::CgroupVersion;
use koord_extension::qos::KubeQos;
use koord_extension::units::MilliCpu;

use super::*;
use crate::collect::clock::Clock;
use crate::collect::fake::{FakeNode, VERSIONS, inventory};
use crate::collect::text::{GroupMemory, Throttling};
use crate::inventory::{ContainerEntry, PodEntry};
use crate::kind::Kind;
use crate::object::{Object, TierSeries};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn ticks_stay_on_their_grid() {
    let mut schedule = Schedule::new(Tick(500), SECOND);
    assert_eq!((schedule.advance(Tick(510)), schedule.next), (0, Tick(1500)));
    assert_eq!((schedule.advance(Tick(1499)), schedule.next), (0, Tick(2500)));
    // A pass that ended within the next tick makes that one late, not left out.
    assert_eq!((schedule.advance(Tick(4400)), schedule.next), (0, Tick(3500)));
    assert_eq!((schedule.advance(Tick(5500)), schedule.next), (1, Tick(5500)));
    assert_eq!((schedule.advance(Tick(65_600)), schedule.next), (59, Tick(65_500)));
}

fn state(sampler: &Sampler, collector: Collector) -> CollectorState {
    let status = sampler.status().iter().find(|status| status.collector == collector);
    status.expect("all are listed").state.clone()
}

#[test]
fn one_pass_reads_everything() {
    for version in VERSIONS {
        let node = FakeNode::new(version);
        let clock = Clock::manual(1_000_000_000);
        let options = SamplerOptions { clock: clock.clone(), ..SamplerOptions::default() };
        let mut sampler = Sampler::new(options, node.layout().clone(), node.roots());
        let pod = node.pod(KubeQos::BestEffort, "a", &["c"]);
        let memory = GroupMemory { active_anon: 5, ..GroupMemory::default() };
        let groups =
            [pod.cgroup.as_str(), pod.containers[0].cgroup.as_str(), "kubepods/besteffort", "kubepods", ""];
        let set = |nanoseconds| {
            for group in groups {
                let nanoseconds = if group.is_empty() { 2 * nanoseconds } else { nanoseconds };
                node.cpu(group, nanoseconds, Throttling::default());
                node.memory(group, memory);
            }
            node.stat(nanoseconds / 10_000_000, &[]);
            node.meminfo(100, 20, 50);
        };
        let all = inventory([pod.clone()]);
        set(0);
        let mut tick = Tick(60_000);
        let pass = sampler.sample(tick, &all);
        assert!(pass.samples.iter().all(|sample| sample.kind == Kind::NodeBe), "{:?}", pass.samples);
        assert_eq!(state(&sampler, Collector::Node), CollectorState::Waiting);
        assert_eq!(state(&sampler, Collector::Pods), CollectorState::Waiting);
        assert!(matches!(state(&sampler, Collector::Cpi), CollectorState::Disabled(_)));
        let mut pass = pass;
        for nanoseconds in [500_000_000, 1_000_000_000] {
            clock.advance(1_000_000_000);
            tick = tick.ahead(SECOND);
            set(nanoseconds);
            pass = sampler.sample(tick, &all);
        }
        assert_eq!(pass.tick, tick);
        let container = Object::Container { pod_uid: "a".into(), id: "c".into() };
        assert_eq!(pass.value(&Object::Node, Kind::NodeCpuUsage), Some(0.5));
        assert_eq!(pass.value(&Object::Numa(0), Kind::NumaCpuUsage), Some(0.5));
        assert_eq!(pass.value(&Object::Pod("a".into()), Kind::PodCpuUsage), Some(0.5));
        assert_eq!(pass.value(&container, Kind::ContainerCpuUsage), Some(0.5));
        assert_eq!(pass.value(&container, Kind::ContainerMemoryUsage), Some(5.0));
        assert_eq!(pass.value(&Object::Tier(TierSeries::Usage), Kind::NodeBe), Some(500.0));
        let direct = (version == CgroupVersion::V2).then_some(0.5);
        assert_eq!(pass.value(&Object::Node, Kind::SystemCpuUsageDirect), direct);
        for collector in
            [Collector::Node, Collector::Pods, Collector::BestEffort, Collector::HostApplications]
        {
            assert_eq!(state(&sampler, collector), CollectorState::Ready, "{collector}");
        }
        let own: usize = sampler.status().iter().map(|status| status.open_descriptors).sum();
        let direct = if version == CgroupVersion::V2 { 2 } else { 0 };
        assert_eq!(sampler.open_descriptors(), own + direct);
        assert_eq!(sampler.ticks().passes, 3);
    }
}

#[test]
fn a_broken_file_of_the_node_stops_no_pod() {
    let node = FakeNode::new(CgroupVersion::V2);
    let clock = Clock::manual(1_000_000_000);
    let options = SamplerOptions { clock: clock.clone(), ..SamplerOptions::default() };
    let mut sampler = Sampler::new(options, node.layout().clone(), node.roots());
    let pod = node.pod(KubeQos::Burstable, "a", &[]);
    node.cpu(pod.cgroup.as_str(), 0, Throttling::default());
    node.memory(pod.cgroup.as_str(), GroupMemory::default());
    node.set("proc/stat", "nonsense\n");
    let all = inventory([pod]);
    for second in 1..3 {
        clock.advance(1_000_000_000);
        sampler.sample(Tick(second * 1000), &all);
    }
    assert_eq!(state(&sampler, Collector::Node), CollectorState::Failed("stat has no line cpu".to_owned()));
    assert_eq!(state(&sampler, Collector::Pods), CollectorState::Ready);
    let status =
        sampler.status().iter().find(|status| status.collector == Collector::Node).expect("it is listed");
    assert_eq!((status.errors, status.last_success), (2, None));
}

#[test]
fn few_descriptors_change_no_figure() {
    let node = FakeNode::new(CgroupVersion::V2);
    let pods: Vec<PodEntry> =
        (0..5).map(|pod| node.pod(KubeQos::Burstable, &format!("p{pod}"), &["c"])).collect();
    node.stat(0, &[]);
    node.meminfo(100, 20, 50);
    let all = inventory(pods.clone());
    let passes_of = |descriptor_limit| {
        let clock = Clock::manual(1_000_000_000);
        let options = SamplerOptions { descriptor_limit, clock: clock.clone(), ..SamplerOptions::default() };
        let mut sampler = Sampler::new(options, node.layout().clone(), node.roots());
        (1..12)
            .map(|second: u64| {
                for group in pods.iter().flat_map(|pod| [&pod.cgroup, &pod.containers[0].cgroup]) {
                    node.cpu(group.as_str(), second * 1_000_000, Throttling::default());
                    node.memory(
                        group.as_str(),
                        GroupMemory { active_anon: second, ..GroupMemory::default() },
                    );
                }
                clock.advance(1_000_000_000);
                let pass = sampler.sample(Tick(second * 1000), &all);
                assert!(sampler.open_descriptors() <= descriptor_limit);
                pass
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(passes_of(0), passes_of(1000));
    assert_eq!(passes_of(7), passes_of(1000));
}

#[test]
fn a_run_ends_when_told() {
    let node = FakeNode::new(CgroupVersion::V2);
    let options = SamplerOptions { interval: Duration::from_millis(2), ..SamplerOptions::default() };
    let mut sampler = Sampler::new(options.clone(), node.layout().clone(), node.roots());
    let (stop, mut ticks) = (Stop::default(), Vec::new());
    let inventory = Arc::new(Inventory::default());
    sampler.run(
        &stop,
        || Arc::clone(&inventory),
        |pass, _, sampler| {
            ticks.push(pass.tick);
            assert_eq!(u64::try_from(ticks.len()).expect("few"), sampler.ticks().passes);
            if ticks.len() == 5 {
                stop.stop();
            }
            ControlFlow::Continue(())
        },
    );
    assert!(stop.is_stopped());
    assert_eq!(ticks.len(), 5);
    assert!(ticks.windows(2).all(|pair| pair[0] < pair[1] && (pair[1].0 - pair[0].0) % 2 == 0), "{ticks:?}");

    let mut passes = 0;
    sampler.run(
        &Stop::default(),
        || Arc::clone(&inventory),
        |_, _, _| {
            passes += 1;
            ControlFlow::Break(())
        },
    );
    assert_eq!(passes, 1);

    // A wait of an hour ends at once.
    let hourly = SamplerOptions { interval: Duration::from_secs(3600), ..options };
    let mut sampler = Sampler::new(hourly, node.layout().clone(), node.roots());
    let stop = Stop::default();
    std::thread::scope(|scope| {
        let (sent, delivered) = std::sync::mpsc::channel();
        let inner = stop.clone();
        let inventory = Arc::clone(&inventory);
        let run = scope.spawn(move || {
            sampler.run(
                &inner,
                || Arc::clone(&inventory),
                |_, _, _| {
                    sent.send(()).expect("somebody waits");
                    ControlFlow::Continue(())
                },
            );
        });
        delivered.recv().expect("the first pass");
        stop.stop();
        run.join().expect("it ends");
    });
}

/// Groups of this machine's kernel, removed at the end.
struct Groups {
    layout: Layout,
    directories: Vec<PathBuf>,
    child: Option<Child>,
}

impl Groups {
    /// A pod with a container, in groups of a name of their own; `None` where this process may make none.
    fn make(name: &str) -> Option<(Groups, PodEntry)> {
        let root = Path::new("/sys/fs/cgroup");
        let version = CgroupVersion::detect(root).ok()?;
        let kubelet_root = format!("test-of-usage-{name}-{}", std::process::id());
        let layout = Layout::new(root, version, CgroupDriver::Cgroupfs, &kubelet_root).expect("a layout");
        let cgroup = layout.pod(KubeQos::Burstable, "a").expect("a path");
        let container = cgroup.child("c").expect("a path");
        let mut groups = Groups { layout, directories: Vec::new(), child: None };
        let mut controllers = vec![Controller::Cpu, Controller::Cpuacct, Controller::Memory];
        controllers.truncate(if version == CgroupVersion::V2 { 1 } else { 3 });
        for controller in controllers {
            let mut directory = groups.layout.directory(controller);
            for level in container.as_str().split('/') {
                if version == CgroupVersion::V2 {
                    // What is not handed down has no files below.
                    let _ = fs::write(directory.join("cgroup.subtree_control"), "+cpu +memory");
                }
                directory.push(level);
                fs::create_dir(&directory).ok()?;
                groups.directories.push(directory.clone());
            }
        }
        if !groups.file(Controller::Memory, container.as_str(), "memory.stat").exists() {
            return None;
        }
        let entry = ContainerEntry { id: "c".into(), name: "c".into(), cgroup: container, is_init: false };
        let pod = PodEntry {
            uid: "a".into(),
            namespace: "default".into(),
            name: "a".into(),
            qos: None,
            kube_qos: KubeQos::Burstable,
            cgroup,
            batch_cpu_request: MilliCpu::ZERO,
            containers: vec![entry],
        };
        Some((groups, pod))
    }

    fn file(&self, controller: Controller, group: &str, file: &str) -> PathBuf {
        self.layout.directory(controller).join(group).join(file)
    }

    /// A busy process in a group.
    fn start(&mut self, group: &str) {
        // What it has before it is moved stays with the group it comes from: it begins anew inside.
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read go; exec /bin/sh -c 'while :; do :; done'"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        for controller in [Controller::Cpu, Controller::Cpuacct, Controller::Memory] {
            let procs = self.file(controller, group, "cgroup.procs");
            fs::write(procs, child.id().to_string()).expect("the group takes it");
        }
        child.stdin.take().expect("it is piped").write_all(b"go\n").expect("it reads");
        self.child = Some(child);
    }

    /// Whether the kernel has summed up some anonymous memory of a group, which it does within seconds.
    fn has_memory(&self, group: &str) -> bool {
        let text = fs::read_to_string(self.file(Controller::Memory, group, "memory.stat")).expect("a file");
        text.lines().any(|line| {
            line.trim_start_matches("total_")
                .split_once("active_anon ")
                .is_some_and(|(_, pages)| pages != "0")
        })
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ended");
        }
        // Children of a directory were made after it.
        for directory in self.directories.drain(..).rev() {
            let _ = fs::remove_dir(directory);
        }
    }

    /// CPU time in nanoseconds.
    fn cpu_time(&self, group: &str) -> u64 {
        let number = |text: &str| text.trim().parse::<u64>().expect("a number");
        match self.layout.version() {
            CgroupVersion::V1 => number(
                &fs::read_to_string(self.file(Controller::Cpuacct, group, "cpuacct.usage")).expect("a file"),
            ),
            CgroupVersion::V2 => {
                let text = fs::read_to_string(self.file(Controller::Cpu, group, "cpu.stat")).expect("a file");
                let line = text.lines().find_map(|line| line.strip_prefix("usage_usec ")).expect("a line");
                number(line) * 1000
            }
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a few seconds")]
fn the_kernels_own_groups() {
    let Some((mut groups, pod)) = Groups::make("sampler") else { return };
    let container = pod.containers[0].cgroup.clone();
    groups.start(container.as_str());
    while !groups.has_memory(container.as_str()) {
        std::thread::yield_now();
    }
    let options = SamplerOptions { memory_interval: SECOND, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(options, groups.layout.clone(), SystemRoots::default());
    let all = inventory([pod]);
    let mut tick = Tick::now();
    let mut times = [0; 3];
    for time in &mut times {
        sampler.sample(tick, &all);
        tick = tick.ahead(SECOND);
        *time = groups.cpu_time(container.as_str());
        // Until it has used 20 ms more.
        while groups.cpu_time(container.as_str()) < *time + 20_000_000 {
            std::thread::yield_now();
        }
    }
    let before = groups.cpu_time(container.as_str());
    let pass = sampler.sample(tick, &all);
    let after = groups.cpu_time(container.as_str());
    let object = Object::Container { pod_uid: "a".into(), id: "c".into() };
    let seconds = pass.value(&object, Kind::ContainerCpuTime).expect("a sample");
    assert!(seconds >= before as f64 / 1e9 && seconds <= after as f64 / 1e9, "{before} {seconds} {after}");
    let cores = pass.value(&object, Kind::ContainerCpuUsage).expect("a sample");
    assert!(cores > 0.0 && cores < 1.2, "{cores}");
    let of_pod = pass.value(&Object::Pod("a".into()), Kind::PodCpuUsage).expect("a sample");
    assert!(of_pod > 0.0 && of_pod < 1.2, "{of_pod}");
    let memory = pass.value(&object, Kind::ContainerMemoryUsage).expect("a sample");
    assert!((4096.0..64e6).contains(&memory), "{memory}");

    // The groups go: no samples, no faults, no files left open of them.
    let others = sampler.status().iter().filter(|status| status.collector != Collector::Pods);
    let others: usize = others.map(|status| status.open_descriptors).sum();
    groups.end();
    let pass = sampler.sample(tick.ahead(SECOND), &all);
    assert!(
        pass.samples.iter().all(|sample| !matches!(sample.object, Object::Pod(_) | Object::Container { .. }))
    );
    let pods =
        sampler.status().iter().find(|status| status.collector == Collector::Pods).expect("it is listed");
    assert_eq!((pods.errors, &pods.state), (0, &CollectorState::Ready));
    sampler.sample(tick.ahead(2 * SECOND), &Inventory::default());
    let direct = if groups.layout.version() == CgroupVersion::V2 { 2 } else { 0 };
    assert!(sampler.open_descriptors() <= others + direct, "{} files", sampler.open_descriptors());
}
