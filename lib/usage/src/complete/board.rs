//! The latest figures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{CompletionOptions, HostApplicationMemory};
use crate::inventory::Inventory;
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;
use crate::time::Tick;

/// A figure and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// When it was measured.
    pub tick: Tick,
    /// Cores or bytes.
    pub value: f64,
}

/// Sums over all pods.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PodSums {
    /// CPU of the pods of one pass: cores.
    pub cpu: Option<Reading>,
    /// Memory without page cache, the newest figure of each pod.
    pub memory: Option<Reading>,
    /// Memory with page cache, the newest figure of each pod.
    pub memory_with_page_cache: Option<Reading>,
    /// Memory with page cache in use, the newest figure of each pod.
    pub memory_with_hot_page: Option<Reading>,
}

/// Sums over all host applications that gave figures in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HostApplicationSums {
    /// CPU: cores.
    pub cpu: Option<Reading>,
    /// The memory that [`HostApplicationMemory`] chooses.
    pub counted_memory: Option<Reading>,
    /// Memory with page cache and the kernel's own.
    pub memory_with_page_cache: Option<Reading>,
    /// Memory with page cache in use; without page cache where that is not known.
    pub memory_with_hot_page: Option<Reading>,
}

/// Figures of a NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NumaFigures {
    /// CPU: cores.
    pub cpu: Option<Reading>,
    /// Memory without page cache.
    pub memory: Option<Reading>,
    /// Memory of all pods there; absent if no pod tells.
    pub pods_memory: Option<Reading>,
}

/// The newest memory of one pod.
#[derive(Debug, Clone, Default)]
struct PodMemory {
    /// The pass in which the pod was among the live ones.
    seen: u64,
    memory: Option<Reading>,
    with_page_cache: Option<Reading>,
    with_hot_page: Option<Reading>,
    by_numa: Vec<(u32, Reading)>,
}

/// The latest figures of node, NUMA nodes, pods and host applications.
#[derive(Debug, Clone, Default)]
pub struct Board {
    /// CPU of the node: cores.
    pub node_cpu: Option<Reading>,
    /// Memory of the node without page cache.
    pub node_memory: Option<Reading>,
    /// Memory of the node with page cache.
    pub node_memory_with_page_cache: Option<Reading>,
    /// Memory of the node with page cache in use.
    pub node_memory_with_hot_page: Option<Reading>,
    /// NUMA nodes by number.
    pub numa: BTreeMap<u32, NumaFigures>,
    /// Sums over pods.
    pub pods: PodSums,
    /// Sums over host applications.
    pub host_applications: HostApplicationSums,
    /// By UID, in whose order sums are made: the same figures give the same sum, however they came.
    pod_memory: BTreeMap<Arc<str>, PodMemory>,
    passes: u64,
}

impl Board {
    /// Takes the figures of a pass that is not older than what is there.
    pub(super) fn take(&mut self, pass: &Pass, live: &Inventory, options: &CompletionOptions) {
        self.passes += 1;
        for pod in &live.pods {
            match self.pod_memory.get_mut(&pod.uid) {
                Some(memory) => memory.seen = self.passes,
                None => {
                    let memory = PodMemory { seen: self.passes, ..PodMemory::default() };
                    self.pod_memory.insert(Arc::clone(&pod.uid), memory);
                }
            }
        }
        if self.pod_memory.len() > live.pods.len() {
            let passes = self.passes;
            self.pod_memory.retain(|_, memory| memory.seen == passes);
        }
        let mut cpu: Vec<(&Arc<str>, f64)> = Vec::with_capacity(live.pods.len());
        let mut applications = Applications::default();
        for sample in pass.samples.iter().filter(|sample| sample.value.is_finite()) {
            let reading = Some(Reading { tick: pass.tick, value: sample.value });
            match (&sample.object, sample.kind) {
                (Object::Node, Kind::NodeCpuUsage) => self.node_cpu = reading,
                (Object::Node, Kind::NodeMemoryUsage) => self.node_memory = reading,
                (Object::Node, Kind::NodeMemoryUsageWithPageCache) => {
                    self.node_memory_with_page_cache = reading
                }
                (Object::Node, Kind::NodeMemoryWithHotPageUsage) => self.node_memory_with_hot_page = reading,
                (Object::Numa(numa), Kind::NumaCpuUsage) => self.numa.entry(*numa).or_default().cpu = reading,
                (Object::Numa(numa), Kind::NumaMemoryUsage) => {
                    self.numa.entry(*numa).or_default().memory = reading
                }
                (Object::Pod(uid), Kind::PodCpuUsage) if self.pod_memory.contains_key(uid) => {
                    cpu.push((uid, sample.value));
                }
                (Object::Pod(uid), kind) => {
                    if let Some(pod) = self.pod_memory.get_mut(uid) {
                        match kind {
                            Kind::PodMemoryUsage => pod.memory = reading,
                            Kind::PodMemoryUsageWithPageCache => pod.with_page_cache = reading,
                            Kind::PodMemoryWithHotPageUsage => pod.with_hot_page = reading,
                            _ => {}
                        }
                    }
                }
                (Object::PodNuma { pod_uid, numa }, Kind::PodNumaMemoryUsage) => {
                    if let (Some(pod), Some(reading)) = (self.pod_memory.get_mut(pod_uid), reading) {
                        pod.by_numa.retain(|(other, _)| other != numa);
                        pod.by_numa.push((*numa, reading));
                    }
                }
                (Object::HostApplication(name), kind) => applications.take(name, kind, sample.value),
                _ => {}
            }
        }
        self.sum_pods(pass.tick, cpu, live.pods.is_empty(), options.memory_outdated_after());
        self.host_applications = applications.sums(pass.tick, options.host_application_memory);
    }

    fn sum_pods(
        &mut self,
        tick: Tick,
        mut cpu: Vec<(&Arc<str>, f64)>,
        no_pods: bool,
        outdated_after: Duration,
    ) {
        if !cpu.is_empty() || no_pods {
            cpu.sort_unstable_by_key(|&(uid, _)| uid);
            self.pods.cpu =
                Some(Reading { tick, value: cpu.iter().fold(0.0, |sum, (_, value)| sum + value) });
        }
        let fresh = |reading: Option<Reading>| {
            reading.filter(|reading| tick.since(reading.tick) <= outdated_after).map(|reading| reading.value)
        };
        let sum = |choose: fn(&PodMemory) -> Option<Reading>| {
            let mut values = self.pod_memory.values().filter_map(|pod| fresh(choose(pod))).peekable();
            (no_pods || values.peek().is_some())
                .then(|| Reading { tick, value: values.fold(0.0, |sum, value| sum + value) })
        };
        let sums = PodSums {
            cpu: self.pods.cpu,
            memory: sum(|pod| pod.memory),
            memory_with_page_cache: sum(|pod| pod.with_page_cache),
            memory_with_hot_page: sum(|pod| pod.with_hot_page),
        };
        self.pods = sums;
        for (&numa, figures) in &mut self.numa {
            let mut values = self.pod_memory.values().filter_map(|pod| {
                fresh(pod.by_numa.iter().find(|(other, _)| *other == numa).map(|&(_, reading)| reading))
            });
            figures.pods_memory = values
                .next()
                .map(|first| Reading { tick, value: values.fold(first, |sum, value| sum + value) });
        }
    }
}

/// Figures of host applications in one pass, by name: without cache, with cache, with cache in use.
#[derive(Debug, Default)]
struct Applications {
    by_name: BTreeMap<Arc<str>, [Option<f64>; 4]>,
}

impl Applications {
    fn take(&mut self, name: &Arc<str>, kind: Kind, value: f64) {
        let place = match kind {
            Kind::HostApplicationCpuUsage => 0,
            Kind::HostApplicationMemoryUsage => 1,
            Kind::HostApplicationMemoryUsageWithPageCache => 2,
            Kind::HostApplicationMemoryWithHotPageUsage => 3,
            _ => return,
        };
        if let Some(slot) = self.by_name.entry(Arc::clone(name)).or_default().get_mut(place) {
            *slot = Some(value);
        }
    }

    fn sums(&self, tick: Tick, counted: HostApplicationMemory) -> HostApplicationSums {
        let sum = |choose: fn(&[Option<f64>; 4]) -> Option<f64>| {
            let value = self.by_name.values().filter_map(choose).fold(0.0, |sum, value| sum + value);
            Some(Reading { tick, value })
        };
        let with_page_cache = sum(|&[_, _, with, _]| with);
        HostApplicationSums {
            cpu: sum(|&[cpu, ..]| cpu),
            counted_memory: match counted {
                HostApplicationMemory::WithoutPageCache => sum(|&[_, without, ..]| without),
                HostApplicationMemory::WithPageCache => with_page_cache,
            },
            memory_with_page_cache: with_page_cache,
            memory_with_hot_page: sum(|&[_, without, _, hot]| hot.or(without)),
        }
    }
}
