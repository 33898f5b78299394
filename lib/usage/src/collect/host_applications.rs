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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use koord_cgroup::layout::Controller;

    use super::*;
    use crate::collect::clock::Clock;
    use crate::collect::fake::{FakeNode, VERSIONS};
    use crate::collect::file::{Buffer, Descriptors};
    use crate::collect::group::Trees;
    use crate::collect::text::{GroupMemory, Throttling};
    use crate::time::Tick;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn usage_of_applications() {
        for version in VERSIONS {
            let node = FakeNode::new(version);
            let (mut trees, room) = (Trees::new(node.layout()), Descriptors::new(100));
            let (mut buffer, clock) = (Buffer::new(), Clock::manual(SECOND));
            let mut collector = HostApplicationCollector::default();
            let mut pass_of = |inventory: &Inventory| {
                clock.advance(SECOND);
                let mut pass = Pass::new(Tick(1));
                let pause = Duration::from_secs(20);
                let mut reader =
                    Reader { trees: &mut trees, room: &room, buffer: &mut buffer, clock: &clock, pause };
                let faults = collector.collect(inventory, &mut reader, &mut pass);
                assert_eq!(faults, Faults::default());
                pass
            };
            let inventory = |names: &[&str]| Inventory {
                pods: Vec::new(),
                host_applications: names.iter().map(|name| Arc::new(node.application(name))).collect(),
            };
            let memory =
                GroupMemory { active_anon: 5, unevictable: 2, active_file: 9, ..GroupMemory::default() };
            for (name, time) in [("x", 0), ("y", 0)] {
                node.cpu(&format!("apps/{name}"), time, Throttling::default());
                node.memory(&format!("apps/{name}"), memory);
            }
            node.group(Controller::Memory, "apps/x", memory_usage_file(version), "4000\n");
            let both = inventory(&["x", "y"]);
            assert_eq!(pass_of(&both).samples, []);
            node.cpu("apps/x", SECOND / 4, Throttling::default());
            let pass = pass_of(&both);
            let (x, y) = (Object::HostApplication(Arc::from("x")), Object::HostApplication(Arc::from("y")));
            assert_eq!(pass.value(&x, Kind::HostApplicationCpuUsage), Some(0.25));
            assert_eq!(pass.value(&x, Kind::HostApplicationMemoryUsage), Some(7.0));
            assert_eq!(pass.value(&x, Kind::HostApplicationMemoryUsageWithPageCache), Some(4000.0));
            // One file is missing: nothing is told of it.
            assert!(pass.samples.iter().all(|sample| sample.object != y));
            // The same application in another inventory goes on.
            node.cpu("apps/x", SECOND, Throttling::default());
            let pass = pass_of(&inventory(&["x"]));
            assert_eq!(pass.value(&x, Kind::HostApplicationCpuUsage), Some(0.75));
            assert_eq!(room.open(), if version == koord_cgroup::version::CgroupVersion::V1 { 4 } else { 3 });
        }
    }
}
