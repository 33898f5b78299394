//! CPU and memory of applications outside of Kubernetes.

use std::sync::Arc;

use super::file::{Importance, KeptFile, ReadError};
use super::group::{GroupMeter, Reader, memory_usage_file};
use super::node::float;
use super::pods::Faults;
use super::text::single;
use crate::inventory::{HostApplicationEntry, Inventory};
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;

#[derive(Debug)]
struct Meter {
    entry: Arc<HostApplicationEntry>,
    group: GroupMeter,
    memory: KeptFile,
}

impl Meter {
    fn collect(&mut self, reader: &mut Reader<'_>, pass: &mut Pass) -> Result<(), ReadError> {
        let group = self.entry.cgroup.as_str();
        let usage = self.group.read(reader, group, true)?;
        let text = self.memory.read(&mut reader.trees.memory, group, reader.room, reader.buffer)?;
        let with_cache = single(text, self.memory.name())?;
        let Some(usage) = usage else { return Ok(()) };
        let object = || Object::HostApplication(self.entry.name.clone());
        pass.push(object(), Kind::HostApplicationCpuUsage, usage.cores);
        if let Some(memory) = usage.memory {
            pass.push(object(), Kind::HostApplicationMemoryUsage, float(memory.without_page_cache()));
        }
        pass.push(object(), Kind::HostApplicationMemoryUsageWithPageCache, float(with_cache));
        Ok(())
    }
}

/// Reads groups of host applications.
#[derive(Debug, Default)]
pub struct HostApplicationCollector {
    meters: Vec<Meter>,
}

impl HostApplicationCollector {
    /// Reads every application and appends its samples. One that cannot be read in all its files gives none.
    pub fn collect(&mut self, inventory: &Inventory, reader: &mut Reader<'_>, pass: &mut Pass) -> Faults {
        self.follow(inventory, reader.trees.version);
        let mut faults = Faults::default();
        for meter in &mut self.meters {
            if let Err(error) = meter.collect(reader, pass) {
                faults.add(error);
            }
        }
        faults
    }

    fn follow(&mut self, inventory: &Inventory, version: koord_cgroup::version::CgroupVersion) {
        let wanted = &inventory.host_applications;
        let same = self.meters.len() == wanted.len()
            && self.meters.iter().zip(wanted).all(|(meter, entry)| Arc::ptr_eq(&meter.entry, entry));
        if same {
            return;
        }
        let mut before = std::mem::take(&mut self.meters);
        for entry in wanted {
            let place = before.iter().position(|meter| *meter.entry == **entry);
            let meter = place.map(|place| before.swap_remove(place));
            let new = || Meter {
                entry: entry.clone(),
                group: GroupMeter::new(version, Importance::Needed),
                memory: KeptFile::new(memory_usage_file(version), Importance::Needed),
            };
            let mut meter = meter.unwrap_or_else(new);
            meter.entry = entry.clone();
            self.meters.push(meter);
        }
    }

    /// Files open.
    pub fn open_files(&self) -> usize {
        self.meters.iter().map(|meter| meter.group.open_files() + usize::from(meter.memory.is_open())).sum()
    }
}
