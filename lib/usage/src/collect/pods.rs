//! CPU, memory and throttling of pods and containers.

use std::collections::HashMap;
use std::sync::Arc;

use super::file::{Importance, KeptFile, ReadError};
use super::group::{GroupMeter, GroupUsage, Reader};
use super::node::float;
use super::schedule::{Cycle, Turn, spread};
use super::text::{NumaMemory, numa_stat};
use crate::inventory::{ContainerEntry, Inventory, PodEntry};
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;

/// How pods are read.
#[derive(Debug, Clone, Copy)]
pub struct PodOptions {
    /// How often memory of pods is read.
    pub pod_memory: Cycle,
    /// How often memory of containers is read.
    pub container_memory: Cycle,
    /// How often memory of NUMA nodes is read.
    pub numa_memory: Cycle,
    /// Which memory counts for NUMA nodes.
    pub numa: NumaMemory,
    /// Whether memory with page cache is told.
    pub page_cache: bool,
    /// Whether containers are read.
    pub containers: bool,
    /// Whether init containers are.
    pub init_containers: bool,
}

/// A container that is read.
#[derive(Debug)]
struct ContainerMeter {
    id: Arc<str>,
    group: GroupMeter,
    hash: u64,
    memory: Turn,
}

/// A pod that is read.
#[derive(Debug)]
struct PodMeter {
    entry: Arc<PodEntry>,
    group: GroupMeter,
    numa: KeptFile,
    hash: u64,
    memory: Turn,
    numa_turn: Turn,
    containers: Vec<ContainerMeter>,
}

impl PodMeter {
    fn new(entry: Arc<PodEntry>, version: koord_cgroup::version::CgroupVersion) -> PodMeter {
        PodMeter {
            group: GroupMeter::new(version, Importance::Needed),
            numa: KeptFile::new("memory.numa_stat", Importance::Optional),
            hash: spread(&entry.uid),
            memory: Turn::default(),
            numa_turn: Turn::default(),
            containers: Vec::with_capacity(entry.containers.len()),
            entry,
        }
    }
}

/// Errors of one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// How many.
    pub count: u64,
    /// The first.
    pub first: Option<ReadError>,
}

impl Faults {
    /// Counts an error. Groups go all the time, so one that is gone is none.
    pub fn add(&mut self, error: ReadError) {
        if error != ReadError::Gone {
            self.count += 1;
            self.first.get_or_insert(error);
        }
    }
}

/// Reads groups of pods and containers.
#[derive(Debug)]
pub struct PodCollector {
    options: PodOptions,
    pods: Vec<PodMeter>,
    /// NUMA figures of one file.
    numa_bytes: Vec<u64>,
}

impl PodCollector {
    /// One that has read nothing.
    pub const fn new(options: PodOptions) -> PodCollector {
        PodCollector { options, pods: Vec::new(), numa_bytes: Vec::new() }
    }

    /// Reads every pod, then its containers, and appends their samples.
    ///
    /// A pod without a rate gives nothing in this pass, nor do its containers. One whose group is gone gives nothing.
    pub fn collect(
        &mut self,
        inventory: &Inventory,
        numa_nodes: usize,
        reader: &mut Reader<'_>,
        pass: &mut Pass,
    ) -> Faults {
        self.follow(inventory, reader.trees.version);
        let mut faults = Faults::default();
        for pod in &mut self.pods {
            let with_memory = pod.memory.take(pass.tick, self.options.pod_memory, pod.hash);
            let usage = match pod.group.read(reader, pod.entry.cgroup.as_str(), with_memory) {
                Ok(Some(usage)) => usage,
                Ok(None) => {
                    pod.memory.again();
                    continue;
                }
                Err(error) => {
                    pod.memory.again();
                    faults.add(error);
                    continue;
                }
            };
            push_pod(pass, &pod.entry.uid, usage, self.options.page_cache);
            if let Err(error) =
                numa_memory(pod, usage, numa_nodes, &self.options, &mut self.numa_bytes, reader, pass)
            {
                faults.add(error);
            }
            for (container, entry) in pod.containers.iter_mut().zip(containers(&pod.entry, &self.options)) {
                let with_memory =
                    container.memory.take(pass.tick, self.options.container_memory, container.hash);
                match container.group.read(reader, entry.cgroup.as_str(), with_memory) {
                    Ok(Some(usage)) => {
                        let object =
                            Object::Container { pod_uid: pod.entry.uid.clone(), id: container.id.clone() };
                        push_container(pass, &object, usage, self.options.page_cache);
                    }
                    Ok(None) => container.memory.again(),
                    Err(error) => {
                        container.memory.again();
                        faults.add(error);
                    }
                }
            }
        }
        faults
    }

    /// Makes the meters those of the inventory, in its order. Meters of pods and containers that are still there stay.
    fn follow(&mut self, inventory: &Inventory, version: koord_cgroup::version::CgroupVersion) {
        let same = self.pods.len() == inventory.pods.len()
            && self.pods.iter().zip(&inventory.pods).all(|(meter, entry)| Arc::ptr_eq(&meter.entry, entry));
        if same {
            return;
        }
        let mut known: HashMap<Arc<str>, PodMeter> =
            self.pods.drain(..).map(|meter| (meter.entry.uid.clone(), meter)).collect();
        for entry in &inventory.pods {
            let kept = known.remove(&entry.uid).filter(|meter| meter.entry.cgroup == entry.cgroup);
            let mut meter = kept.unwrap_or_else(|| PodMeter::new(entry.clone(), version));
            if !Arc::ptr_eq(&meter.entry, entry) || meter.containers.is_empty() {
                let mut before = std::mem::take(&mut meter.containers);
                let old = std::mem::replace(&mut meter.entry, entry.clone());
                for container in containers(entry, &self.options) {
                    let same_group = old
                        .containers
                        .iter()
                        .any(|old| old.id == container.id && old.cgroup == container.cgroup);
                    let place = before.iter().position(|known| known.id == container.id && same_group);
                    meter.containers.push(match place {
                        Some(place) => before.swap_remove(place),
                        None => ContainerMeter {
                            id: container.id.clone(),
                            group: GroupMeter::new(version, Importance::Optional),
                            hash: spread(&container.id),
                            memory: Turn::default(),
                        },
                    });
                }
            }
            self.pods.push(meter);
        }
    }

    /// Files open.
    pub fn open_files(&self) -> usize {
        let of_pod = |pod: &PodMeter| {
            let containers: usize = pod.containers.iter().map(|container| container.group.open_files()).sum();
            pod.group.open_files() + usize::from(pod.numa.is_open()) + containers
        };
        self.pods.iter().map(of_pod).sum()
    }
}

/// The containers of a pod that are read, in its order.
fn containers<'a>(entry: &'a PodEntry, options: &PodOptions) -> impl Iterator<Item = &'a ContainerEntry> {
    let (all, init) = (options.containers, options.init_containers);
    entry.containers.iter().filter(move |container| all && (init || !container.is_init))
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of CPU, told in seconds")]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn push_pod(pass: &mut Pass, uid: &Arc<str>, usage: GroupUsage, page_cache: bool) {
    let object = || Object::Pod(uid.clone());
    pass.push(object(), Kind::PodCpuUsage, usage.cores);
    pass.push(object(), Kind::PodCpuTime, seconds(usage.cpu_time));
    if let Some(ratio) = usage.throttled {
        pass.push(object(), Kind::PodCpuThrottled, ratio);
    }
    if let Some(memory) = usage.memory {
        pass.push(object(), Kind::PodMemoryUsage, float(memory.without_page_cache()));
        if page_cache {
            pass.push(object(), Kind::PodMemoryUsageWithPageCache, float(memory.with_page_cache()));
        }
    }
}

fn push_container(pass: &mut Pass, object: &Object, usage: GroupUsage, page_cache: bool) {
    pass.push(object.clone(), Kind::ContainerCpuUsage, usage.cores);
    pass.push(object.clone(), Kind::ContainerCpuTime, seconds(usage.cpu_time));
    if let Some(ratio) = usage.throttled {
        pass.push(object.clone(), Kind::ContainerCpuThrottled, ratio);
    }
    if let Some(memory) = usage.memory {
        pass.push(object.clone(), Kind::ContainerMemoryUsage, float(memory.without_page_cache()));
        if page_cache {
            let with = float(memory.with_page_cache());
            pass.push(object.clone(), Kind::ContainerMemoryUsageWithPageCache, with);
        }
    }
}

/// Memory of a pod on each NUMA node. Where there is one node it is the pod's memory, and no further file is read.
fn numa_memory(
    pod: &mut PodMeter,
    usage: GroupUsage,
    numa_nodes: usize,
    options: &PodOptions,
    bytes: &mut Vec<u64>,
    reader: &mut Reader<'_>,
    pass: &mut Pass,
) -> Result<(), ReadError> {
    if numa_nodes == 1 && options.numa == NumaMemory::WithoutCache {
        if let Some(memory) = usage.memory {
            let object = Object::PodNuma { pod_uid: pod.entry.uid.clone(), numa: 0 };
            pass.push(object, Kind::PodNumaMemoryUsage, float(memory.without_page_cache()));
        }
        return Ok(());
    }
    if numa_nodes == 0 || !pod.numa_turn.take(pass.tick, options.numa_memory, pod.hash) {
        return Ok(());
    }
    let (version, page_size) = (reader.trees.version, reader.trees.page_size);
    let group = pod.entry.cgroup.as_str();
    let text = pod.numa.read(&mut reader.trees.memory, group, reader.room, reader.buffer)?;
    numa_stat(text, version, page_size, options.numa, bytes)?;
    for (numa, bytes) in (0..).zip(bytes.iter()) {
        let object = Object::PodNuma { pod_uid: pod.entry.uid.clone(), numa };
        pass.push(object, Kind::PodNumaMemoryUsage, float(*bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
