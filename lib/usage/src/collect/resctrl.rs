//! Monitors of cache and memory bandwidth, for the groups of the QoS classes.

use std::path::PathBuf;
use std::sync::Arc;

use koord_cgroup::resctrl::info::BandwidthUnit;
use koord_cgroup::resctrl::{GroupName, RdtClass, Resctrl, ResctrlError};
use koord_cgroup::system_file::SystemRoots;

use super::node::float;
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The processor has no monitors.
    #[error("the processor cannot monitor caches or memory bandwidth")]
    Processor,
    /// The file system of monitors is not there.
    #[error("resctrl cannot be read")]
    Resctrl(#[from] ResctrlError),
}

/// Reads monitors of the groups `LSR`, `LS` and `BE`.
#[derive(Debug)]
pub struct ResctrlCollector {
    root: PathBuf,
    proc_root: PathBuf,
    groups: [(GroupName, Arc<str>); 3],
    can_monitor: Option<bool>,
}

/// Whether a processor of this `/proc/cpuinfo` has monitors. ARM does not tell it there: the file system itself does.
fn can_monitor(text: &str) -> bool {
    let Some(flags) = text.lines().find(|line| line.starts_with("flags")) else { return true };
    let has = |flag: &str| flags.split_ascii_whitespace().any(|word| word == flag);
    has("cqm_llc") && ["cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local"].into_iter().any(has)
}

impl ResctrlCollector {
    /// Reads below `roots`.
    pub fn new(roots: &SystemRoots) -> ResctrlCollector {
        let group = |class: RdtClass| (GroupName::Class(class), Arc::from(class.as_str()));
        ResctrlCollector {
            root: roots.sys_root.join("fs/resctrl"),
            proc_root: roots.proc_root.clone(),
            groups: [group(RdtClass::Lsr), group(RdtClass::Ls), group(RdtClass::Be)],
            can_monitor: None,
        }
    }

    /// Reads every domain of every group that exists and appends the samples. A monitor without a value now ("Unavailable",
    /// "Unassigned") has none.
    ///
    /// # Errors
    /// The processor has no monitors, or the file system cannot be read.
    pub fn collect(&mut self, pass: &mut Pass) -> Result<(), MonitorError> {
        // Asked once: the file is slow to make on machines with many CPUs.
        let cpuinfo = || std::fs::read_to_string(self.proc_root.join("cpuinfo")).unwrap_or_default();
        if !*self.can_monitor.get_or_insert_with(|| can_monitor(&cpuinfo())) {
            return Err(MonitorError::Processor);
        }
        let resctrl = Resctrl::open(&self.root, BandwidthUnit::Percent)?;
        for (group, name) in &self.groups {
            for (cache, counters) in resctrl.counters(group)? {
                let readings = [
                    (Kind::ResctrlLlc, counters.llc_occupancy),
                    (Kind::ResctrlLocalBandwidth, counters.mbm_local),
                    (Kind::ResctrlTotalBandwidth, counters.mbm_total),
                ];
                for (kind, reading) in readings {
                    if let Some(value) = reading.value() {
                        pass.push(Object::Resctrl { group: name.clone(), cache }, kind, float(value));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
