//! Idle slices, where systemd owns them.
//!
//! The kubelet has systemd set the weight of the best-effort slice, about once a minute: systemd then ends the
//! idleness, and here it begins again with the next round.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::executor::Executor;
use koord_cgroup::layout::Layout;
use koord_cgroup::path::CgroupPath;
use koord_cgroup::resource::Resource;
use koord_cgroup::systemd::{IDLE_WEIGHT_SINCE, UnitManager, clear_idle, make_idle};
use koord_cgroup::value::Value;
use koord_cgroup::version::CgroupVersion;
use koord_extension::qos::KubeQos;

use super::{Acted, locked};

/// After so many failures in a row pods are made idle, not the slice.
const FAILURES_AT_MOST: u32 = 3;

/// The weight of the best-effort slice, as the kubelet has it.
const BEST_EFFORT_WEIGHT: i64 = 1;

/// The weight of a slice of which none is known: the kernel's.
const DEFAULT_WEIGHT: i64 = 100;

#[derive(Debug)]
pub(super) struct IdleUnits {
    units: Box<dyn UnitManager>,
    takes_idle: OnceLock<bool>,
    failures: AtomicU32,
    /// Weights before a slice was made idle.
    weights: Mutex<HashMap<String, i64>>,
}

fn is_systemds(layout: &Layout) -> bool {
    layout.version() == CgroupVersion::V2 && layout.driver() == CgroupDriver::Systemd
}

impl IdleUnits {
    pub(super) fn new(units: Box<dyn UnitManager>) -> Self {
        Self { units, takes_idle: OnceLock::new(), failures: AtomicU32::new(0), weights: Mutex::default() }
    }

    /// Asks systemd, once, whether it is there and new enough.
    pub(super) fn probe(&self, layout: &Layout) {
        if !is_systemds(layout) {
            return;
        }
        self.takes_idle.get_or_init(|| {
            let unit = layout.qos_dir(KubeQos::BestEffort);
            // The tool tells its version even where systemd does not run.
            let answer = self
                .units
                .version()
                .and_then(|version| self.units.show(unit.name(), "CPUWeight").map(|_| version));
            match answer {
                Ok(version) => {
                    tracing::info!(version, idle = version >= IDLE_WEIGHT_SINCE, "systemd");
                    version >= IDLE_WEIGHT_SINCE
                }
                Err(error) => {
                    tracing::info!(%error, "systemd cannot be asked for idle slices");
                    false
                }
            }
        });
    }

    /// Whether slices are systemd's to make idle, and nobody else's. False until [`IdleUnits::probe`] has asked.
    pub(super) fn is_systemds(&self, layout: &Layout) -> bool {
        is_systemds(layout) && self.takes_idle.get() == Some(&true)
    }

    /// Whether systemd does it.
    pub(super) fn works(&self, layout: &Layout) -> bool {
        self.is_systemds(layout) && self.failures.load(Ordering::Relaxed) < FAILURES_AT_MOST
    }

    /// Makes a slice idle, if it is not.
    pub(super) fn make(&self, executor: &Executor, path: &CgroupPath) -> Acted {
        let Some(found) = found(executor, path) else { return Acted::Gone };
        if found == 1 {
            return Acted::Done { before: Some(found.to_string()), changed: false };
        }
        let weight = self.weight(executor, path);
        match make_idle(&*self.units, executor, path, weight) {
            Ok(()) => {
                self.failures.store(0, Ordering::Relaxed);
                Acted::Done { before: Some(found.to_string()), changed: true }
            }
            Err(error) => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
                if failures == FAILURES_AT_MOST {
                    tracing::warn!(failures, %error, "slices are not made idle any more, pods are");
                }
                Acted::Failed(error.to_string())
            }
        }
    }

    /// Ends the idleness of a slice, if it is idle.
    pub(super) fn clear(&self, executor: &Executor, path: &CgroupPath) -> Acted {
        let Some(found) = found(executor, path) else { return Acted::Gone };
        let before = Some(found.to_string());
        if found == 0 {
            return Acted::Done { before, changed: false };
        }
        let weight = locked(&self.weights).remove(path.as_str());
        let weight = weight.unwrap_or_else(|| self.weight(executor, path));
        match clear_idle(&*self.units, executor, path, weight) {
            Ok(()) => Acted::Done { before, changed: true },
            Err(error) => Acted::Failed(error.to_string()),
        }
    }

    /// The weight to give back, remembered.
    fn weight(&self, executor: &Executor, path: &CgroupPath) -> i64 {
        if *path == executor.layout().qos_dir(KubeQos::BestEffort) {
            return BEST_EFFORT_WEIGHT;
        }
        let shown = self.units.show(path.name(), "CPUWeight").ok();
        let weight = shown
            .and_then(|text| text.parse().ok())
            .filter(|weight| (1..=10_000).contains(weight))
            .unwrap_or(DEFAULT_WEIGHT);
        *locked(&self.weights).entry(path.as_str().to_owned()).or_insert(weight)
    }
}

fn found(executor: &Executor, path: &CgroupPath) -> Option<i64> {
    match executor.read(path, Resource::CpuIdle) {
        Ok(Value::Integer(found)) => Some(found),
        _ => None,
    }
}
