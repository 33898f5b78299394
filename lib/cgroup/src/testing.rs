//! A model of the kernel's rules in memory, for tests that need a kernel they do not have, or one that fails on demand.
//!
//! It knows what the executor's order is about: quotas and CPU sets of parents and children on version 1, burst and quota,
//! idle groups, limits below what is in use. `tests/kernel.rs` asks a real kernel the same questions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use koord_extension::cpuset::CpuSet;
use rustix::io::Errno;

use crate::executor::Clock;
use crate::files::{Directory, Files, Identity};
use crate::version::CgroupVersion;

/// Bytes of a page of the model.
pub const PAGE: i64 = 4096;
const NO_LIMIT: i64 = i64::MAX - i64::MAX % PAGE;

/// A clock that a test moves.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Instant>>);

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock(Arc::new(Mutex::new(Instant::now())))
    }
}

impl ManualClock {
    /// Moves on.
    pub fn advance(&self, time: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
struct Group {
    inode: u64,
    files: BTreeMap<String, String>,
    has_tasks: bool,
}

#[derive(Debug)]
struct Tree {
    version: CgroupVersion,
    groups: BTreeMap<String, Group>,
    next_inode: u64,
    log: Vec<(String, String, String)>,
    reads: usize,
    failures: Vec<(String, Errno)>,
}

/// The model. A clone is another handle of the same one.
#[derive(Debug, Clone)]
pub struct ModelKernel(Arc<Mutex<Tree>>);

impl ModelKernel {
    /// A kernel of this version with `cpus` CPUs and no group but the root.
    pub fn new(version: CgroupVersion, cpus: u32) -> ModelKernel {
        let model = ModelKernel(Arc::new(Mutex::new(Tree {
            version,
            groups: BTreeMap::new(),
            next_inode: 1,
            log: Vec::new(),
            reads: 0,
            failures: Vec::new(),
        })));
        model.make("");
        if cpus > 0 {
            let all = CpuSet::range(0, cpus - 1).to_string();
            model.set("", "cpuset.cpus", &all);
            model.set("", "cpuset.cpus.effective", &all);
        }
        model
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a group and those above it, with the files of a new one.
    pub fn make(&self, path: &str) {
        let mut tree = self.lock();
        let mut made = String::new();
        for level in path.split('/') {
            if !made.is_empty() {
                made.push('/');
            }
            made.push_str(level);
            if tree.groups.contains_key(&made) {
                continue;
            }
            let inode = tree.next_inode;
            tree.next_inode += 1;
            let group = tree.new_group(inode, &made);
            tree.groups.insert(made.clone(), group);
        }
    }

    /// Removes a group and all below it.
    pub fn remove(&self, path: &str) {
        let below = format!("{path}/");
        self.lock().groups.retain(|group, _| group != path && !group.starts_with(&below));
    }

    /// A file's text, as a reader sees it.
    pub fn text(&self, path: &str, file: &str) -> Option<String> {
        self.lock().groups.get(path)?.files.get(file).cloned()
    }

    /// Sets a file's text without any rule: somebody else wrote, or usage changed.
    pub fn set(&self, path: &str, file: &str, text: &str) {
        if let Some(group) = self.lock().groups.get_mut(path) {
            group.files.insert(file.to_owned(), text.to_owned());
        }
    }

    /// Takes a file away, as a kernel without it.
    pub fn take_file(&self, path: &str, file: &str) {
        if let Some(group) = self.lock().groups.get_mut(path) {
            group.files.remove(file);
        }
    }

    /// Says that a group has tasks.
    pub fn add_task(&self, path: &str) {
        if let Some(group) = self.lock().groups.get_mut(path) {
            group.has_tasks = true;
        }
    }

    /// Lets the next write of a file fail.
    pub fn fail_next(&self, file: &str, error: Errno) {
        self.lock().failures.push((file.to_owned(), error));
    }

    /// All writes that were taken, as group, file, text; and starts anew.
    pub fn take_log(&self) -> Vec<(String, String, String)> {
        std::mem::take(&mut self.lock().log)
    }

    /// Number of files read so far.
    pub fn reads(&self) -> usize {
        self.lock().reads
    }
}

fn number(text: &str) -> Option<i64> {
    match text.trim() {
        "max" => Some(i64::MAX),
        text => text.parse().ok(),
    }
}

impl Tree {
    fn new_group(&self, inode: u64, path: &str) -> Group {
        let mut files = BTreeMap::new();
        let mut add = |name: &str, text: &str| files.insert(name.to_owned(), text.to_owned());
        add("cpu.idle", "0");
        add("cgroup.procs", "");
        match self.version {
            CgroupVersion::V1 => {
                for (name, text) in [
                    ("cpu.shares", "1024"),
                    ("cpu.cfs_quota_us", "-1"),
                    ("cpu.cfs_period_us", "100000"),
                    ("cpu.cfs_burst_us", "0"),
                    ("cpuset.cpus", ""),
                    ("memory.limit_in_bytes", &NO_LIMIT.to_string()),
                    ("memory.soft_limit_in_bytes", &NO_LIMIT.to_string()),
                    ("memory.memsw.limit_in_bytes", &NO_LIMIT.to_string()),
                    ("memory.usage_in_bytes", "0"),
                ] {
                    add(name, text);
                }
                // As kubelet and runtimes do for a new group.
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                if let Some(cpus) = self.groups.get(parent).and_then(|group| group.files.get("cpuset.cpus")) {
                    add("cpuset.cpus", cpus);
                }
            }
            CgroupVersion::V2 => {
                for (name, text) in [
                    ("cpu.weight", "100"),
                    ("cpu.max", "max 100000"),
                    ("cpu.max.burst", "0"),
                    ("cpuset.cpus", ""),
                    ("memory.max", "max"),
                    ("memory.high", "max"),
                    ("memory.low", "0"),
                    ("memory.min", "0"),
                    ("memory.oom.group", "0"),
                    ("memory.current", "0"),
                    ("io.max", ""),
                    ("io.weight", "default 100"),
                ] {
                    add(name, text);
                }
            }
        }
        Group { inode, files, has_tasks: false }
    }

    fn file(&self, path: &str, name: &str) -> Option<&str> {
        self.groups.get(path)?.files.get(name).map(String::as_str)
    }

    fn put(&mut self, path: &str, name: &str, text: &str) {
        if let Some(group) = self.groups.get_mut(path) {
            group.files.insert(name.to_owned(), text.to_owned());
        }
    }

    fn children<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.groups.keys().map(String::as_str).filter(move |group| {
            !group.is_empty() && group.rsplit_once('/').map_or("", |(parent, _)| parent) == path
        })
    }

    /// Quota and period of a group; no quota is `None`.
    fn bandwidth(&self, path: &str) -> (Option<i64>, i64) {
        let (quota, period) = match self.version {
            CgroupVersion::V1 => (
                self.file(path, "cpu.cfs_quota_us").and_then(number),
                self.file(path, "cpu.cfs_period_us").and_then(number),
            ),
            CgroupVersion::V2 => {
                let mut words = self.file(path, "cpu.max").unwrap_or("max 100000").split(' ');
                (words.next().filter(|word| *word != "max").and_then(number), words.next().and_then(number))
            }
        };
        (quota.filter(|quota| *quota >= 0), period.unwrap_or(100_000))
    }

    /// True if no group of version 1 has a greater share of the CPU than one above it.
    fn is_schedulable(&self, path: &str, above: Option<f64>) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a model with small numbers")]
        let own = match self.bandwidth(path) {
            (Some(quota), period) => Some(quota as f64 / period as f64),
            (None, _) => above,
        };
        let fits = match (own, above) {
            (Some(own), Some(above)) => own <= above,
            _ => true,
        };
        fits && self.children(path).all(|child| self.is_schedulable(child, own))
    }

    fn burst(&self, path: &str) -> i64 {
        let name = match self.version {
            CgroupVersion::V1 => "cpu.cfs_burst_us",
            CgroupVersion::V2 => "cpu.max.burst",
        };
        self.file(path, name).and_then(number).unwrap_or(0)
    }

    fn write(&mut self, path: &str, name: &str, text: &str) -> Result<(), Errno> {
        let old = self.file(path, name).ok_or(Errno::NOENT)?.to_owned();
        if let Some(index) = self.failures.iter().position(|(file, _)| file == name) {
            return Err(self.failures.remove(index).1);
        }
        let trimmed = text.trim();
        let is_idle = self.file(path, "cpu.idle") == Some("1");
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
        let stored = match name {
            "cpu.shares" if is_idle => return Err(Errno::INVAL),
            "cpu.shares" => number(trimmed).ok_or(Errno::INVAL)?.clamp(2, 262_144).to_string(),
            "cpu.weight" if is_idle => return Err(Errno::INVAL),
            "cpu.weight" => {
                let weight = number(trimmed).ok_or(Errno::INVAL)?;
                if !(1..=10_000).contains(&weight) {
                    return Err(Errno::RANGE);
                }
                weight.to_string()
            }
            "cpu.idle" => {
                let (file, shares) = match (self.version, trimmed) {
                    (CgroupVersion::V1, "1") => ("cpu.shares", "3"),
                    (CgroupVersion::V1, "0") => ("cpu.shares", "1024"),
                    (CgroupVersion::V2, "1") => ("cpu.weight", "0"),
                    (CgroupVersion::V2, "0") => ("cpu.weight", "100"),
                    _ => return Err(Errno::INVAL),
                };
                if trimmed != old {
                    self.put(path, file, shares);
                }
                trimmed.to_owned()
            }
            "cpu.cfs_quota_us" | "cpu.cfs_period_us" | "cpu.max" => {
                let (_, period) = self.bandwidth(path);
                let stored = if name == "cpu.max" {
                    let mut words = trimmed.split(' ');
                    let quota = words.next().ok_or(Errno::INVAL)?;
                    let period = words.next().map_or_else(|| period.to_string(), str::to_owned);
                    format!("{quota} {period}")
                } else {
                    number(trimmed).ok_or(Errno::INVAL)?.max(-1).to_string()
                };
                self.put(path, name, &stored);
                let (quota, period) = self.bandwidth(path);
                let good = quota.is_none_or(|quota| quota >= 1000 && self.burst(path) <= quota)
                    && (1000..=1_000_000).contains(&period)
                    && (self.version == CgroupVersion::V2 || self.is_schedulable("", None));
                if !good {
                    self.put(path, name, &old);
                    return Err(Errno::INVAL);
                }
                stored
            }
            "cpu.cfs_burst_us" | "cpu.max.burst" => {
                let burst = number(trimmed).filter(|burst| *burst >= 0).ok_or(Errno::INVAL)?;
                if self.bandwidth(path).0.is_some_and(|quota| burst > quota) {
                    return Err(Errno::INVAL);
                }
                burst.to_string()
            }
            "cpuset.cpus" => self.check_cpus(path, &parent, trimmed)?,
            "memory.limit_in_bytes" | "memory.memsw.limit_in_bytes" => {
                let limit = bytes(trimmed)?;
                let usage = self.file(path, "memory.usage_in_bytes").and_then(number).unwrap_or(0);
                let other = |file| self.file(path, file).and_then(number).unwrap_or(NO_LIMIT);
                let fits = match name {
                    "memory.limit_in_bytes" => limit <= other("memory.memsw.limit_in_bytes"),
                    _ => limit >= other("memory.limit_in_bytes"),
                };
                if !fits {
                    return Err(Errno::INVAL);
                }
                if usage > limit {
                    return Err(Errno::BUSY);
                }
                limit.to_string()
            }
            "memory.soft_limit_in_bytes" => bytes(trimmed)?.to_string(),
            "memory.max" | "memory.high" | "memory.low" | "memory.min" => match trimmed {
                "max" => "max".to_owned(),
                text => {
                    let bytes = number(text).filter(|bytes| *bytes >= 0).ok_or(Errno::INVAL)?;
                    (bytes - bytes % PAGE).to_string()
                }
            },
            "io.max" | "io.weight" => merge_line(&old, trimmed).ok_or(Errno::INVAL)?,
            _ => {
                number(trimmed).ok_or(Errno::INVAL)?;
                trimmed.to_owned()
            }
        };
        self.put(path, name, &stored);
        self.log.push((path.to_owned(), name.to_owned(), text.to_owned()));
        Ok(())
    }

    fn check_cpus(&self, path: &str, parent: &str, text: &str) -> Result<String, Errno> {
        let cpus = CpuSet::parse(text).map_err(|_| Errno::INVAL)?;
        if self.version == CgroupVersion::V1 {
            let of = |group: &str| {
                CpuSet::parse(self.file(group, "cpuset.cpus").unwrap_or_default()).unwrap_or_default()
            };
            if cpus.is_empty() && self.groups.get(path).is_some_and(|group| group.has_tasks) {
                return Err(Errno::NOSPC);
            }
            if !self.children(path).all(|child| of(child).is_subset(&cpus)) {
                return Err(Errno::BUSY);
            }
            if !cpus.is_subset(&of(parent)) {
                return Err(Errno::ACCESS);
            }
        }
        Ok(cpus.to_string())
    }
}

fn bytes(text: &str) -> Result<i64, Errno> {
    match number(text) {
        Some(-1) => Ok(NO_LIMIT),
        Some(bytes) if bytes >= 0 => Ok((bytes - bytes % PAGE).min(NO_LIMIT)),
        _ => Err(Errno::INVAL),
    }
}

/// A file of lines with one for each device, after one line was written.
fn merge_line(old: &str, line: &str) -> Option<String> {
    let (device, rest) = line.split_once(' ')?;
    let mut lines: BTreeMap<String, String> = old
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(device, rest)| (device.to_owned(), rest.to_owned()))
        .collect();
    let merged = if rest.contains('=') {
        let all = "rbps=max wbps=max riops=max wiops=max";
        let before = lines.get(device).map_or(all, String::as_str);
        let mut keys: Vec<(String, String)> = before
            .split(' ')
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        for (key, value) in rest.split(' ').filter_map(|word| word.split_once('=')) {
            keys.iter_mut().find(|(known, _)| known == key)?.1 = value.to_owned();
        }
        keys.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    } else {
        rest.to_owned()
    };
    lines.insert(device.to_owned(), merged);
    Some(lines.iter().map(|(device, rest)| format!("{device} {rest}\n")).collect())
}

struct ModelDirectory {
    model: ModelKernel,
    path: String,
    inode: u64,
}

impl ModelDirectory {
    fn with<T>(&self, act: impl FnOnce(&mut Tree) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut tree = self.model.lock();
        match tree.groups.get(&self.path) {
            Some(group) if group.inode == self.inode => act(&mut tree),
            _ => Err(Errno::NODEV),
        }
    }
}

impl Directory for ModelDirectory {
    fn identity(&self) -> Result<Identity, Errno> {
        Ok(Identity { device: 1, inode: self.inode })
    }

    fn read(&self, file: &str) -> Result<String, Errno> {
        self.with(|tree| {
            tree.reads += 1;
            let text = tree.file(&self.path, file).ok_or(Errno::NOENT)?;
            Ok(if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") })
        })
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Errno> {
        self.with(|tree| tree.write(&self.path, file, text))
    }

    fn has(&self, file: &str) -> Result<bool, Errno> {
        self.with(|tree| Ok(tree.file(&self.path, file).is_some()))
    }

    fn children(&self) -> Result<Vec<String>, Errno> {
        self.with(|tree| {
            Ok(tree
                .children(&self.path)
                .map(|child| child.rsplit_once('/').map_or(child, |(_, name)| name).to_owned())
                .collect())
        })
    }
}

impl Files for ModelKernel {
    /// All hierarchies are one tree here: file names tell the controllers apart.
    fn open(&self, _root: &Path, path: &str) -> Result<Box<dyn Directory>, Errno> {
        let inode = self.lock().groups.get(path).ok_or(Errno::NOENT)?.inode;
        Ok(Box::new(ModelDirectory { model: self.clone(), path: path.to_owned(), inode }))
    }
}
