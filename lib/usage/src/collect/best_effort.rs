//! Limit, request and usage of the best-effort tier, in thousandths of a CPU.

use std::sync::Arc;

use koord_cgroup::path::CgroupPath;
use koord_cgroup::version::CgroupVersion;
use koord_extension::cpuset::CpuSet;
use koord_extension::qos::{KubeQos, QosClass};

use super::file::{Importance, KeptFile, ReadError};
use super::group::Reader;
use super::rate::{Growth, Rate};
use super::text::{TextError, cpu_stat, number, single, words};
use crate::inventory::{Inventory, PodEntry};
use crate::kind::Kind;
use crate::object::{Object, TierSeries};
use crate::pass::Pass;

/// A quota as thousandths of a CPU: quota by period, whole. `None` for no quota.
pub fn quota_milli(quota: Option<u64>, period: u64) -> Option<u64> {
    quota?.checked_mul(1000)?.checked_div(period)
}

/// The smaller of what a quota and CPU sets allow, in thousandths of a CPU.
pub fn real_limit(quota: Option<u64>, smallest_set: Option<usize>) -> Option<u64> {
    let set = smallest_set.and_then(|cpus| u64::try_from(cpus).ok()).map(|cpus| cpus.saturating_mul(1000));
    match (quota, set) {
        (Some(quota), Some(set)) => Some(quota.min(set)),
        (one, other) => one.or(other),
    }
}

/// Usage in thousandths of a CPU: whole milliseconds of CPU by the time they took.
#[expect(clippy::cast_precision_loss, reason = "milliseconds are far below 2^53")]
pub fn usage_milli(growth: Growth) -> f64 {
    let used = (growth.amount / 1_000_000) as f64;
    let milliseconds = growth.nanoseconds as f64 / 1e6;
    used / milliseconds * 1000.0
}

/// Reads `cpu.max`: quota (`None` for `max`) and period.
///
/// # Errors
/// Another shape.
pub fn cpu_max(text: &[u8]) -> Result<(Option<u64>, u64), TextError> {
    let wrong = TextError::new("cpu.max", "quota and period");
    let mut words = words(text.trim_ascii());
    let (Some(quota), Some(period)) = (words.next(), words.next().and_then(number)) else {
        return Err(wrong);
    };
    if quota == b"max" {
        return Ok((None, period));
    }
    Ok((Some(number(quota).ok_or(wrong)?), period))
}

/// A file with a list of CPUs. Texts are compared: the list is read again only when it changed.
#[derive(Debug)]
struct SetFile {
    file: KeptFile,
    text: Box<[u8]>,
    cpus: usize,
}

impl SetFile {
    fn new(version: CgroupVersion, importance: Importance) -> SetFile {
        let name = match version {
            CgroupVersion::V1 => "cpuset.cpus",
            CgroupVersion::V2 => "cpuset.cpus.effective",
        };
        SetFile { file: KeptFile::new(name, importance), text: Box::default(), cpus: 0 }
    }

    /// Number of CPUs; `None` where the group has no set of its own.
    fn read(&mut self, reader: &mut Reader<'_>, group: &str) -> Result<Option<usize>, ReadError> {
        let text = self.file.read(&mut reader.trees.cpuset, group, reader.room, reader.buffer)?;
        if *text != *self.text {
            let set = std::str::from_utf8(text).ok().and_then(|text| CpuSet::parse(text).ok());
            self.cpus = set.ok_or(TextError::new("cpuset.cpus", "list of CPUs"))?.len();
            self.text = text.into();
        }
        Ok(Some(self.cpus).filter(|cpus| *cpus > 0))
    }
}

/// Sets of containers of one best-effort pod.
#[derive(Debug)]
struct PodSets {
    entry: Arc<PodEntry>,
    sets: Vec<SetFile>,
}

/// Reads the group of best-effort pods and the CPU sets of their containers.
#[derive(Debug)]
pub struct BestEffortCollector {
    group: CgroupPath,
    usage: KeptFile,
    quota: KeptFile,
    period: Option<KeptFile>,
    set: SetFile,
    pods: Vec<PodSets>,
    rate: Rate,
}

impl BestEffortCollector {
    /// The collector of `group`, the parent of best-effort pods.
    pub fn new(group: CgroupPath, version: CgroupVersion) -> BestEffortCollector {
        let needed = |name| KeptFile::new(name, Importance::Needed);
        let (usage, quota, period) = match version {
            CgroupVersion::V1 => ("cpuacct.usage", "cpu.cfs_quota_us", Some(needed("cpu.cfs_period_us"))),
            CgroupVersion::V2 => ("cpu.stat", "cpu.max", None),
        };
        BestEffortCollector {
            group,
            usage: needed(usage),
            quota: needed(quota),
            period,
            set: SetFile::new(version, Importance::Needed),
            pods: Vec::new(),
            rate: Rate::default(),
        }
    }

    /// Reads the tier and appends its three samples. Without the group all are zero but what pods ask for.
    ///
    /// # Errors
    /// A file of the tier's own group does not read as it should.
    pub fn collect(
        &mut self,
        inventory: &Inventory,
        reader: &mut Reader<'_>,
        pass: &mut Pass,
    ) -> Result<(), ReadError> {
        let read = self.figures(inventory, reader);
        let (limit, usage) = match read {
            Ok(figures) => figures,
            Err(ReadError::Gone) => {
                self.rate.forget();
                (Some(0), 0.0)
            }
            Err(error) => return Err(error),
        };
        // Added up as whole numbers: no floats at all add up to minus zero.
        let request = inventory
            .pods
            .iter()
            .filter(|pod| pod.qos == Some(QosClass::Be))
            .fold(0_i64, |sum, pod| sum.saturating_add(pod.batch_cpu_request.get()));
        if let Some(limit) = limit {
            let object = Object::Tier(TierSeries::RealLimit);
            pass.push(object, Kind::NodeBe, super::node::float(limit));
        }
        pass.push(Object::Tier(TierSeries::Request), Kind::NodeBe, milli(request));
        pass.push(Object::Tier(TierSeries::Usage), Kind::NodeBe, usage);
        Ok(())
    }

    fn figures(
        &mut self,
        inventory: &Inventory,
        reader: &mut Reader<'_>,
    ) -> Result<(Option<u64>, f64), ReadError> {
        let version = reader.trees.version;
        let group = self.group.as_str();
        let text = self.usage.read(&mut reader.trees.cpuacct, group, reader.room, reader.buffer)?;
        let now = reader.clock.now();
        let used = match version {
            CgroupVersion::V1 => single(text, self.usage.name())?,
            CgroupVersion::V2 => cpu_stat(text, version)?.usage.unwrap_or(0),
        };
        let quota = self.quota(reader)?;
        let mut smallest = present(self.set.read(reader, self.group.as_str()))?;
        self.follow(inventory, version);
        for pod in &mut self.pods {
            for (set, container) in pod.sets.iter_mut().zip(&pod.entry.containers) {
                // A container that goes, or one with a text that is no list, narrows nothing.
                let cpus = set.read(reader, container.cgroup.as_str()).ok().flatten();
                smallest = [smallest, cpus].into_iter().flatten().min();
            }
        }
        let usage = self.rate.growth(used, now, reader.pause).map_or(0.0, usage_milli);
        Ok((real_limit(quota, smallest), usage))
    }

    /// The quota in thousandths of a CPU. A group without the controller has none.
    fn quota(&mut self, reader: &mut Reader<'_>) -> Result<Option<u64>, ReadError> {
        let group = self.group.as_str();
        let text = present_text(self.quota.read(&mut reader.trees.cpu, group, reader.room, reader.buffer))?;
        let Some(text) = text else { return Ok(None) };
        let Some(period) = &mut self.period else {
            let (quota, period) = cpu_max(text)?;
            return Ok(quota_milli(quota, period));
        };
        // -1, no quota, is no number without a sign.
        let Some(quota) = number(text) else { return Ok(None) };
        let text = period.read(&mut reader.trees.cpu, group, reader.room, reader.buffer)?;
        Ok(quota_milli(Some(quota), single(text, "cpu.cfs_period_us")?))
    }

    fn follow(&mut self, inventory: &Inventory, version: CgroupVersion) {
        let wanted = || inventory.pods.iter().filter(|pod| pod.kube_qos == KubeQos::BestEffort);
        let same = wanted().count() == self.pods.len()
            && wanted().zip(&self.pods).all(|(entry, pod)| Arc::ptr_eq(entry, &pod.entry));
        if same {
            return;
        }
        let mut before = std::mem::take(&mut self.pods);
        for entry in wanted() {
            let place = before.iter().position(|pod| Arc::ptr_eq(&pod.entry, entry));
            let new = || PodSets {
                entry: entry.clone(),
                sets: entry.containers.iter().map(|_| SetFile::new(version, Importance::Optional)).collect(),
            };
            self.pods.push(place.map_or_else(new, |place| before.swap_remove(place)));
        }
    }

    /// Files open.
    pub fn open_files(&self) -> usize {
        let own = [&self.usage, &self.quota, &self.set.file].into_iter().chain(&self.period);
        let sets = self.pods.iter().flat_map(|pod| &pod.sets).map(|set| &set.file);
        own.chain(sets).filter(|file| file.is_open()).count()
    }
}

/// A file that a group may do without.
fn present_text(read: Result<&[u8], ReadError>) -> Result<Option<&[u8]>, ReadError> {
    match read {
        Ok(text) => Ok(Some(text)),
        Err(ReadError::Gone) => Ok(None),
        Err(error) => Err(error),
    }
}

fn present(read: Result<Option<usize>, ReadError>) -> Result<Option<usize>, ReadError> {
    match read {
        Err(ReadError::Gone) => Ok(None),
        read => read,
    }
}

#[expect(clippy::cast_precision_loss, reason = "thousandths of CPUs are far below 2^53")]
const fn milli(value: i64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;
