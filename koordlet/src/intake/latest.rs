//! The latest readings, for metrics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use koord_usage::inventory::Inventory;
use koord_usage::kind::{CpiResource, Kind, Pressure};
use koord_usage::object::{GpuUser, Object};
use koord_usage::pass::Pass;
use koord_usage::time::Tick;

/// Readings older than this are of something that is no longer measured. Longer than two rounds of the slowest collector,
/// which counts for ten seconds a minute.
const OUTDATED: Duration = Duration::from_secs(150);

/// Pressure of one pod or container.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PressureReading {
    /// Percent, or seconds for totals.
    pub figures: BTreeMap<Pressure, f64>,
    /// Whether the kernel tells when all tasks wait for CPU.
    pub is_cpu_full_supported: bool,
}

/// Cycles and instructions of one container.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpiReading {
    /// Cycles.
    pub cycles: Option<f64>,
    /// Instructions.
    pub instructions: Option<f64>,
}

/// What metrics tell, at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Readings {
    /// Pressure by pod or container.
    pub pressure: Vec<(Object, PressureReading)>,
    /// Events by container.
    pub cpi: Vec<(Object, CpiReading)>,
    /// Other readings by object and kind: host applications, caches, the node.
    pub others: Vec<(Object, Kind, f64)>,
}

/// The latest reading of each object.
#[derive(Debug, Default)]
pub struct Latest {
    pressure: HashMap<Object, (Tick, PressureReading)>,
    cpi: HashMap<Object, (Tick, CpiReading)>,
    others: BTreeMap<(Object, Kind), (Tick, f64)>,
    newest: BTreeMap<Kind, Tick>,
}

impl Latest {
    /// Takes the samples of a pass.
    pub fn take(&mut self, pass: &Pass) {
        let tick = pass.tick;
        for sample in &pass.samples {
            match sample.kind {
                Kind::PodPsi(pressure) | Kind::ContainerPsi(pressure) => {
                    let (last, reading) = self.pressure.entry(sample.object.clone()).or_default();
                    *last = tick;
                    reading.figures.insert(pressure, sample.value);
                }
                Kind::PodPsiCpuFullSupported | Kind::ContainerPsiCpuFullSupported => {
                    let (last, reading) = self.pressure.entry(sample.object.clone()).or_default();
                    *last = tick;
                    reading.is_cpu_full_supported = sample.value != 0.0;
                }
                Kind::ContainerCpi(resource) => {
                    let (last, reading) = self.cpi.entry(sample.object.clone()).or_default();
                    // A reading of an earlier round has no place beside one of this round.
                    if *last != tick {
                        *reading = CpiReading::default();
                    }
                    *last = tick;
                    match resource {
                        CpiResource::Cycle => reading.cycles = Some(sample.value),
                        CpiResource::Instruction => reading.instructions = Some(sample.value),
                    }
                }
                kind => match &sample.object {
                    Object::Node | Object::HostApplication(_) | Object::Resctrl { .. } => {
                        self.others.insert((sample.object.clone(), kind), (tick, sample.value));
                        self.newest.insert(kind, tick);
                    }
                    Object::Pod(_) => {
                        self.newest.insert(kind, tick);
                    }
                    _ => {}
                },
            }
        }
    }

    /// Forgets what is not live, and what was not read for long.
    pub fn forget(&mut self, live: &Inventory, now: Tick) {
        let is_recent = |tick: Tick| now.since(tick) <= OUTDATED;
        let pods: HashMap<&str, &Arc<_>> = live.pods.iter().map(|pod| (&*pod.uid, pod)).collect();
        let is_live = |object: &Object| match object {
            Object::Pod(uid) | Object::Gpu { user: GpuUser::Pod(uid), .. } => pods.contains_key(&**uid),
            Object::Container { pod_uid, id } => pods
                .get(&**pod_uid)
                .is_some_and(|pod| pod.containers.iter().any(|container| container.id == *id)),
            Object::HostApplication(name) => live.host_applications.iter().any(|one| one.name == *name),
            _ => true,
        };
        self.pressure.retain(|object, (tick, _)| is_recent(*tick) && is_live(object));
        self.cpi.retain(|object, (tick, _)| is_recent(*tick) && is_live(object));
        self.others.retain(|(object, _), (tick, _)| is_recent(*tick) && is_live(object));
    }

    /// Everything, at this moment.
    pub fn readings(&self) -> Readings {
        let mut pressure: Vec<_> =
            self.pressure.iter().map(|(object, (_, reading))| (object.clone(), reading.clone())).collect();
        pressure.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut cpi: Vec<_> =
            self.cpi.iter().map(|(object, (_, reading))| (object.clone(), *reading)).collect();
        cpi.sort_by(|(one, _), (other, _)| one.cmp(other));
        let others =
            self.others.iter().map(|((object, kind), (_, value))| (object.clone(), *kind, *value)).collect();
        Readings { pressure, cpi, others }
    }

    /// The newest sample of a kind, of the node or of any pod.
    pub fn newest(&self, kind: Kind) -> Option<Tick> {
        self.newest.get(&kind).copied()
    }
}
