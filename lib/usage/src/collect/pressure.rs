//! Pressure of pods and containers.

use std::collections::HashMap;
use std::sync::Arc;

use koord_cgroup::layout::{Controller, Layout};
use koord_cgroup::stat::{Pressure as Figures, Stall};
use koord_cgroup::version::CgroupVersion;

use super::file::{Buffer, Descriptors, Importance, KeptFile, ReadError, Tree};
use super::pods::Faults;
use super::schedule::{Cycle, Turn, spread};
use super::text::TextError;
use crate::inventory::Inventory;
use crate::kind::{Kind, Pressure, PressureDegree, PressureFigure, PressureResource};
use crate::object::Object;
use crate::pass::Pass;

/// The file of each resource, in the order of [`PressureResource::ALL`].
const FILES: [&str; 3] = ["cpu.pressure", "memory.pressure", "io.pressure"];

/// Figures of one group: a resource whose file the kernel does not have or does not fill is absent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GroupPressure([Option<Figures>; 3]);

impl GroupPressure {
    /// The samples: percents of `some`, those of `full` where the kernel has the line, seconds of both, and whether it has
    /// the line for CPU (Linux 5.13).
    pub fn samples(&self) -> impl Iterator<Item = (Pressure, f64)> {
        PressureResource::ALL.into_iter().zip(self.0).flat_map(|(resource, figures)| {
            let some = figures.map(|figures| (PressureDegree::Some, figures.some));
            let full = figures.filter(|figures| figures.has_full);
            let full = full.map(|figures| (PressureDegree::Full, figures.full));
            some.into_iter().chain(full).flat_map(move |(degree, stall)| {
                PressureFigure::ALL
                    .into_iter()
                    .map(move |figure| (Pressure { resource, degree, figure }, value(stall, figure)))
            })
        })
    }

    /// Whether the kernel tells when all tasks wait for CPU; `None` without a figure of CPU.
    pub fn cpu_full_supported(&self) -> Option<bool> {
        let [cpu, _, _] = self.0;
        cpu.map(|figures| figures.has_full)
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of stall, told in seconds")]
fn value(stall: Stall, figure: PressureFigure) -> f64 {
    match figure {
        PressureFigure::Avg10 => stall.average_10,
        PressureFigure::Avg60 => stall.average_60,
        PressureFigure::Avg300 => stall.average_300,
        PressureFigure::Total => stall.total as f64 / 1e6,
    }
}

/// The three files of one group.
#[derive(Debug)]
struct Meter {
    files: [KeptFile; 3],
    turn: Turn,
    hash: u64,
}

impl Meter {
    fn new(name: &str) -> Meter {
        Meter {
            files: FILES.map(|file| KeptFile::new(file, Importance::Optional)),
            turn: Turn::default(),
            hash: spread(name),
        }
    }

    fn read(
        &mut self,
        group: &str,
        tree: &mut Tree,
        room: &Descriptors,
        buffer: &mut Buffer,
    ) -> Result<GroupPressure, ReadError> {
        let mut found = GroupPressure::default();
        for (file, place) in self.files.iter_mut().zip(&mut found.0) {
            *place = match file.read(tree, group, room, buffer) {
                Ok(text) => {
                    let figures = std::str::from_utf8(text).ok().and_then(|text| Figures::parse(text).ok());
                    Some(figures.ok_or_else(|| TextError::new(file.name(), "lines some and full"))?)
                }
                // Switched off at boot (psi=0) or for this group (cgroup.pressure), or an older kernel.
                Err(ReadError::Gone | ReadError::Unsupported) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(found)
    }
}

/// Where a machine has pressure files of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// In the tree that is read.
    Present,
    /// Nowhere.
    Absent,
}

/// Reads pressure files.
#[derive(Debug)]
pub struct PressureCollector {
    trees: Vec<Tree>,
    kubepods: String,
    chosen: Option<usize>,
    cycle: Cycle,
    probe: Turn,
    meters: HashMap<Arc<str>, (Arc<str>, Meter)>,
    generation: Vec<Arc<crate::inventory::PodEntry>>,
}

impl PressureCollector {
    /// The collector of a layout. Version 1 has pressure files in the directories of `cpuacct` with some vendors' kernels, and
    /// where a version 2 tree is mounted beside it in that tree.
    pub fn new(layout: &Layout, cycle: Cycle) -> PressureCollector {
        let trees = match layout.version() {
            CgroupVersion::V2 => vec![Tree::new(layout.root())],
            CgroupVersion::V1 => vec![
                Tree::new(layout.directory(Controller::Cpuacct)),
                Tree::new(layout.directory(Controller::Unified)),
            ],
        };
        PressureCollector {
            trees,
            kubepods: layout.kubepods().as_str().to_owned(),
            chosen: None,
            cycle,
            probe: Turn::default(),
            meters: HashMap::new(),
            generation: Vec::new(),
        }
    }

    /// Reads the containers and pods whose turn it is and appends their samples.
    pub fn collect(
        &mut self,
        inventory: &Inventory,
        room: &Descriptors,
        buffer: &mut Buffer,
        pass: &mut Pass,
    ) -> (Support, Faults) {
        let mut faults = Faults::default();
        if self.chosen.is_none() && self.probe.take(pass.tick, self.cycle, 0) {
            self.chosen =
                self.trees.iter().position(|tree| tree.path().join(&self.kubepods).join(FILES[0]).exists());
        }
        let Some(tree) = self.chosen.and_then(|chosen| self.trees.get_mut(chosen)) else {
            return (Support::Absent, faults);
        };
        follow(&mut self.meters, &mut self.generation, inventory);
        for pod in &inventory.pods {
            let groups = pod
                .containers
                .iter()
                .map(|container| (&container.id, &container.cgroup, true))
                .chain(std::iter::once((&pod.uid, &pod.cgroup, false)));
            for (name, group, is_container) in groups {
                let Some((_, meter)) = self.meters.get_mut(name) else { continue };
                if !meter.turn.take(pass.tick, self.cycle, meter.hash) {
                    continue;
                }
                let found = match meter.read(group.as_str(), tree, room, buffer) {
                    Ok(found) => found,
                    Err(error) => {
                        faults.add(error);
                        continue;
                    }
                };
                let object = if is_container {
                    Object::Container { pod_uid: pod.uid.clone(), id: name.clone() }
                } else {
                    Object::Pod(name.clone())
                };
                push(pass, &object, is_container, &found);
            }
        }
        (Support::Present, faults)
    }

    /// Files open.
    pub fn open_files(&self) -> usize {
        let files = self.meters.values().flat_map(|(_, meter)| &meter.files);
        files.filter(|file| file.is_open()).count()
    }
}

fn push(pass: &mut Pass, object: &Object, is_container: bool, found: &GroupPressure) {
    let full = if is_container { Kind::ContainerPsiCpuFullSupported } else { Kind::PodPsiCpuFullSupported };
    let kind: fn(Pressure) -> Kind = if is_container { Kind::ContainerPsi } else { Kind::PodPsi };
    if let Some(supported) = found.cpu_full_supported() {
        pass.push(object.clone(), full, if supported { 1.0 } else { 0.0 });
    }
    for (pressure, value) in found.samples() {
        pass.push(object.clone(), kind(pressure), value);
    }
}

/// Makes the meters those of the inventory. A group that moved has a new one.
fn follow(
    meters: &mut HashMap<Arc<str>, (Arc<str>, Meter)>,
    generation: &mut Vec<Arc<crate::inventory::PodEntry>>,
    inventory: &Inventory,
) {
    let same = generation.len() == inventory.pods.len()
        && generation.iter().zip(&inventory.pods).all(|(one, other)| Arc::ptr_eq(one, other));
    if same {
        return;
    }
    generation.clone_from(&inventory.pods);
    let mut before = std::mem::take(meters);
    for pod in &inventory.pods {
        let groups = pod.containers.iter().map(|container| (&container.id, &container.cgroup));
        for (name, group) in groups.chain(std::iter::once((&pod.uid, &pod.cgroup))) {
            let kept = before.remove(name).filter(|(path, _)| **path == *group.as_str());
            let entry = kept.unwrap_or_else(|| (group.as_str().into(), Meter::new(name)));
            meters.insert(name.clone(), entry);
        }
    }
}

#[cfg(test)]
mod tests;
