//! All collectors, in the order of a pass.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use koord_cgroup::layout::Layout;
use koord_cgroup::system_file::SystemRoots;
use koord_cgroup::version::CgroupVersion;
use koord_extension::cpuset::CpuSet;
use koord_extension::qos::KubeQos;
use koord_topology::sysfs;

use super::options::SamplerOptions;
use super::status::{Collector, CollectorStatus};
use crate::collect::best_effort::BestEffortCollector;
use crate::collect::clock::Clock;
use crate::collect::cold_memory::{ColdMemoryCollector, ColdMemoryError};
use crate::collect::cpi::{CounterSource, CpiCollector, CpiState};
use crate::collect::file::{Buffer, Descriptors, Importance, KeptFile};
use crate::collect::group::{Reader, Trees};
use crate::collect::host_applications::HostApplicationCollector;
use crate::collect::node::{NodeCollector, Outcome};
use crate::collect::pods::{Faults, PodCollector, PodOptions};
use crate::collect::pressure::{PressureCollector, Support};
use crate::collect::rate::Rate;
use crate::collect::resctrl::{MonitorError, ResctrlCollector};
use crate::collect::schedule::{Cycle, Turn};
use crate::collect::text::cpu_stat;
use crate::inventory::Inventory;
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;

/// Counters are compared with what they were at most this many passes ago.
const PAUSE_PASSES: u32 = 20;

/// What is not asked for.
const OFF: &str = "not switched on";

/// A collector that has its turn in some passes only.
#[derive(Debug)]
struct Timed<T> {
    collector: T,
    cycle: Cycle,
    turn: Turn,
}

/// Version 2's own figure of what is outside of pods: the root's CPU time less that of all pods.
#[derive(Debug)]
struct DirectSystem {
    root: KeptFile,
    pods: KeptFile,
    group: String,
    root_rate: Rate,
    pods_rate: Rate,
}

impl DirectSystem {
    fn new(layout: &Layout) -> DirectSystem {
        DirectSystem {
            root: KeptFile::new("cpu.stat", Importance::Needed),
            pods: KeptFile::new("cpu.stat", Importance::Needed),
            group: layout.kubepods().as_str().to_owned(),
            root_rate: Rate::default(),
            pods_rate: Rate::default(),
        }
    }

    /// Reads both, the root first: that sums up everything below.
    fn collect(&mut self, reader: &mut Reader<'_>, pass: &mut Pass) {
        let mut cores = |file: &mut KeptFile, rate: &mut Rate, group: &str| {
            let text = file.read(&mut reader.trees.cpuacct, group, reader.room, reader.buffer).ok()?;
            let used = cpu_stat(text, CgroupVersion::V2).ok()?.usage?;
            Some(rate.growth(used, reader.clock.now(), reader.pause)?.ratio())
        };
        let all = cores(&mut self.root, &mut self.root_rate, "");
        let pods = cores(&mut self.pods, &mut self.pods_rate, &self.group);
        if let Some((all, pods)) = all.zip(pods) {
            pass.push(Object::Node, Kind::SystemCpuUsageDirect, (all - pods).max(0.0));
        }
    }
}

/// What the collectors of groups share.
#[derive(Debug)]
struct Files {
    trees: Trees,
    room: Descriptors,
    buffer: Buffer,
    clock: Clock,
    pause: Duration,
}

impl Files {
    const fn reader(&mut self) -> Reader<'_> {
        Reader {
            trees: &mut self.trees,
            room: &self.room,
            buffer: &mut self.buffer,
            clock: &self.clock,
            pause: self.pause,
        }
    }
}

/// How each collector is doing.
#[derive(Debug)]
struct StatusList(Vec<CollectorStatus>);

impl StatusList {
    /// Notes how long a collector took and what it keeps open; `change` says how it went.
    fn note(
        &mut self,
        collector: Collector,
        start: Instant,
        open: usize,
        change: impl FnOnce(&mut CollectorStatus),
    ) {
        if let Some(status) = self.0.iter_mut().find(|status| status.collector == collector) {
            status.duration = start.elapsed();
            status.open_descriptors = open;
            change(status);
        }
    }
}

/// The collectors and what they share.
#[derive(Debug)]
pub(super) struct Collectors {
    sys_root: PathBuf,
    files: Files,
    online: CpuSet,
    layout_turn: Turn,
    layout_cycle: Cycle,
    numa_cycle: Cycle,
    /// Whether there was a pass before: rates need two.
    has_passed: bool,
    node: NodeCollector,
    direct: Option<DirectSystem>,
    pods: PodCollector,
    best_effort: BestEffortCollector,
    host_applications: HostApplicationCollector,
    pressure: Option<PressureCollector>,
    cold_memory: Option<Timed<ColdMemoryCollector>>,
    cpi: Option<CpiCollector>,
    resctrl: Option<Timed<ResctrlCollector>>,
    status: StatusList,
}

impl Collectors {
    pub(super) fn new(
        options: SamplerOptions,
        layout: &Layout,
        roots: &SystemRoots,
        counters: Box<dyn CounterSource>,
    ) -> Collectors {
        let interval = options.interval;
        let pause = interval.saturating_mul(PAUSE_PASSES);
        let cycle = |period| Cycle::new(period, interval);
        let pod_memory = cycle(options.memory_interval);
        let container_period = match pod_memory.passes() {
            1 => interval,
            _ => options.memory_interval.saturating_mul(2),
        };
        let pod_options = PodOptions {
            pod_memory,
            container_memory: cycle(container_period),
            numa_memory: cycle(options.numa_interval),
            numa: options.numa_memory,
            page_cache: options.page_cache,
            containers: options.containers,
            init_containers: options.init_containers,
        };
        let version = layout.version();
        let mut status = Collector::ALL.map(CollectorStatus::new).to_vec();
        for status in &mut status {
            let is_on = match status.collector {
                Collector::Pressure => options.pressure_interval.is_some(),
                Collector::ColdMemory => options.cold_memory_interval.is_some(),
                Collector::Cpi => options.cpi.is_some(),
                Collector::Resctrl => options.resctrl_interval.is_some(),
                _ => true,
            };
            if !is_on {
                status.disable(OFF);
            }
        }
        Collectors {
            sys_root: roots.sys_root.clone(),
            files: Files {
                trees: Trees::new(layout),
                room: Descriptors::new(options.descriptor_limit),
                buffer: Buffer::new(),
                clock: options.clock,
                pause,
            },
            online: CpuSet::new(),
            layout_turn: Turn::default(),
            layout_cycle: cycle(options.layout_interval),
            numa_cycle: cycle(options.numa_interval),
            has_passed: false,
            node: NodeCollector::new(roots, pause),
            direct: (version == CgroupVersion::V2).then(|| DirectSystem::new(layout)),
            pods: PodCollector::new(pod_options),
            best_effort: BestEffortCollector::new(layout.qos_dir(KubeQos::BestEffort), version),
            host_applications: HostApplicationCollector::default(),
            pressure: options.pressure_interval.map(|period| PressureCollector::new(layout, cycle(period))),
            cold_memory: options.cold_memory_interval.map(|period| Timed {
                collector: ColdMemoryCollector::new(layout, roots),
                cycle: cycle(period),
                turn: Turn::default(),
            }),
            cpi: options.cpi.map(|options| CpiCollector::new(options, layout, counters)),
            resctrl: options.resctrl_interval.map(|period| Timed {
                collector: ResctrlCollector::new(roots),
                cycle: cycle(period),
                turn: Turn::default(),
            }),
            status: StatusList(status),
        }
    }

    pub(super) fn status(&self) -> &[CollectorStatus] {
        &self.status.0
    }

    pub(super) fn open_descriptors(&self) -> usize {
        self.files.room.open()
    }

    /// Runs every collector. None depends on another's success.
    pub(super) fn collect(&mut self, inventory: &Inventory, pass: &mut Pass) {
        self.node(pass);
        self.groups(inventory, pass);
        self.pressure(inventory, pass);
        self.cold_memory(inventory, pass);
        self.cpi(inventory, pass);
        self.resctrl(pass);
        self.has_passed = true;
    }

    fn node(&mut self, pass: &mut Pass) {
        let start = Instant::now();
        let mut layout_error = None;
        if self.layout_turn.take(pass.tick, self.layout_cycle, 0) {
            match sysfs::read(&self.sys_root) {
                Ok(topology) => {
                    self.online = topology.cpu_set();
                    self.node.set_topology(&topology);
                }
                Err(error) => layout_error = Some(error),
            }
        }
        let Files { room, buffer, clock, .. } = &mut self.files;
        let result = self.node.collect(self.numa_cycle, clock, room, buffer, pass);
        if let Some(direct) = &mut self.direct {
            direct.collect(&mut self.files.reader(), pass);
        }
        let tick = pass.tick;
        self.status.note(Collector::Node, start, self.node.open_files(), |status| {
            if let Some(error) = layout_error {
                status.note(&error);
            }
            match result {
                Ok(Outcome::Complete) => status.succeed(tick),
                Ok(Outcome::First) => {}
                Err(error) => status.fail(&error),
            }
        });
    }

    fn groups(&mut self, inventory: &Inventory, pass: &mut Pass) {
        let tick = pass.tick;
        let has_rates = self.has_passed;
        let complete = |status: &mut CollectorStatus, faults: Faults| {
            note(status, faults);
            if has_rates {
                status.succeed(tick);
            }
        };

        let start = Instant::now();
        let numa = self.node.numa_count();
        let faults = self.pods.collect(inventory, numa, &mut self.files.reader(), pass);
        let open = self.pods.open_files();
        self.status.note(Collector::Pods, start, open, |status| complete(status, faults));

        let start = Instant::now();
        let result = self.best_effort.collect(inventory, &mut self.files.reader(), pass);
        let open = self.best_effort.open_files();
        self.status.note(Collector::BestEffort, start, open, |status| match result {
            Ok(()) => status.succeed(tick),
            Err(error) => status.fail(&error),
        });

        let start = Instant::now();
        let faults = self.host_applications.collect(inventory, &mut self.files.reader(), pass);
        let open = self.host_applications.open_files();
        self.status.note(Collector::HostApplications, start, open, |status| complete(status, faults));
    }

    fn pressure(&mut self, inventory: &Inventory, pass: &mut Pass) {
        let Some(pressure) = &mut self.pressure else { return };
        let start = Instant::now();
        let Files { room, buffer, .. } = &mut self.files;
        let (support, faults) = pressure.collect(inventory, room, buffer, pass);
        let (open, tick) = (pressure.open_files(), pass.tick);
        self.status.note(Collector::Pressure, start, open, |status| {
            note(status, faults);
            match support {
                Support::Present => status.succeed(tick),
                Support::Absent => status.disable("the kernel has no pressure files for groups of pods"),
            }
        });
    }

    fn cold_memory(&mut self, inventory: &Inventory, pass: &mut Pass) {
        let Some(Timed { collector, cycle, turn }) = &mut self.cold_memory else { return };
        if !turn.take(pass.tick, *cycle, 0) {
            return;
        }
        let start = Instant::now();
        let Files { room, buffer, .. } = &mut self.files;
        let result = collector.collect(inventory, room, buffer, pass);
        let tick = pass.tick;
        self.status.note(Collector::ColdMemory, start, 0, |status| match result {
            Ok(faults) => {
                note(status, faults);
                status.succeed(tick);
            }
            Err(error @ ColdMemoryError::Unsupported) => status.disable(error.to_string()),
            Err(error) => status.fail(&error),
        });
    }

    fn cpi(&mut self, inventory: &Inventory, pass: &mut Pass) {
        let Some(cpi) = &mut self.cpi else { return };
        let start = Instant::now();
        let Files { room, buffer, .. } = &mut self.files;
        cpi.collect(inventory, &self.online, room, buffer, pass);
        let tick = pass.tick;
        self.status.note(Collector::Cpi, start, cpi.open_files(), |status| match cpi.state() {
            CpiState::Waiting => {}
            CpiState::Counting => status.succeed(tick),
            CpiState::NotSupported(reason) => status.disable(format!("not supported: {reason}")),
        });
    }

    fn resctrl(&mut self, pass: &mut Pass) {
        let Some(Timed { collector, cycle, turn }) = &mut self.resctrl else { return };
        if !turn.take(pass.tick, *cycle, 0) {
            return;
        }
        let start = Instant::now();
        let result = collector.collect(pass);
        let tick = pass.tick;
        self.status.note(Collector::Resctrl, start, 0, |status| match result {
            Ok(()) => status.succeed(tick),
            Err(error @ MonitorError::Processor) => status.disable(error.to_string()),
            Err(error) => status.fail(&error),
        });
    }
}

/// Counts what single objects could not tell; the collector itself works.
fn note(status: &mut CollectorStatus, faults: Faults) {
    if let Some(error) = faults.first {
        status.note(&error);
        status.errors = status.errors.saturating_add(faults.count - 1);
    }
}
