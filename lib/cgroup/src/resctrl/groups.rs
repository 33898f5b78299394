//! Groups: made, filled, removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use koord_extension::qos::QosClass;

use super::ResctrlError;
use super::info::{BandwidthUnit, Info, last_status};
use super::schemata::{Schemata, holds};

/// Prefix of the groups of pods, before their UID. Koordinator's agent uses the same, so its groups are adopted.
pub const POD_PREFIX: &str = "koordlet-";

/// Folders below the root that are no groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_data", "mon_groups"];

/// Classes of pods that have a group in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RdtClass {
    /// Pods of the QoS classes LSE and LSR.
    Lsr,
    /// Pods of the QoS class LS.
    Ls,
    /// Pods of the QoS class BE.
    Be,
}

impl RdtClass {
    /// All classes.
    pub const ALL: [RdtClass; 3] = [RdtClass::Lsr, RdtClass::Ls, RdtClass::Be];

    /// The name of the group's folder.
    pub const fn as_str(self) -> &'static str {
        match self {
            RdtClass::Lsr => "LSR",
            RdtClass::Ls => "LS",
            RdtClass::Be => "BE",
        }
    }

    /// The class of a pod; system pods are in none. The QoS class is the one with defaults filled in.
    pub const fn of(qos: QosClass) -> Option<RdtClass> {
        match qos {
            QosClass::Lse | QosClass::Lsr => Some(RdtClass::Lsr),
            QosClass::Ls => Some(RdtClass::Ls),
            QosClass::Be => Some(RdtClass::Be),
            QosClass::System => None,
        }
    }
}

/// The name of a group of ours.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupName {
    /// The root group, in which every task starts.
    Root,
    /// The group of a class.
    Class(RdtClass),
    /// The group of one pod, by its UID.
    Pod(PodUid),
}

/// A pod's UID that can be part of a folder's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(String);

impl PodUid {
    /// The UID.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl GroupName {
    /// The group of a pod. UIDs of static pods are hashes; other characters than letters, digits, `-`, `_` and `.` would
    /// lead out of the root.
    pub fn pod(uid: &str) -> Result<GroupName, ResctrlError> {
        pod_uid(uid).map(GroupName::Pod)
    }

    fn folder(&self) -> String {
        match self {
            GroupName::Root => String::new(),
            GroupName::Class(class) => class.as_str().to_owned(),
            GroupName::Pod(uid) => format!("{POD_PREFIX}{}", uid.0),
        }
    }
}

/// The class of service that the runtime is told for a container of the group; the root group has an empty name.
impl fmt::Display for GroupName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.folder())
    }
}

pub(super) fn pod_uid(uid: &str) -> Result<PodUid, ResctrlError> {
    const LONGEST: usize = 200;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if uid.is_empty() || uid.len() > LONGEST || uid.starts_with('.') || !uid.bytes().all(allowed) {
        return Err(ResctrlError::PodUid { uid: uid.to_owned() });
    }
    Ok(PodUid(uid.to_owned()))
}

/// What making a group did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// The group is new: no task is in it, nothing is limited.
    New,
    /// It was there.
    Adopted,
}

/// Which line of a schemata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// `L3`
    Cache,
    /// `MB`
    Bandwidth,
}

/// What became of a line.
#[derive(Debug)]
pub enum LineResult {
    /// The group had these values.
    Same,
    /// The group has them now.
    Written,
    /// The kernel refused them; the group has what it had.
    Failed(ResctrlError),
}

/// What became of tasks that were to be moved.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Tasks that are in the group now and were not before.
    pub moved: Vec<u32>,
    /// How many were there.
    pub already: usize,
    /// Tasks that the kernel did not move, mostly because they had ended.
    pub failed: Vec<u32>,
}

/// The file system, mounted at a root.
#[derive(Debug, Clone)]
pub struct Resctrl {
    root: PathBuf,
    info: Info,
    unlimited: Schemata,
}

impl Resctrl {
    /// Reads what the hardware can and what the root group has. The latter is what "no limit" means from now on, so this is
    /// called before anybody limits the root group.
    pub fn open(root: &Path, unit: BandwidthUnit) -> Result<Resctrl, ResctrlError> {
        let info = Info::read(root, unit)?;
        let unlimited = read_schemata(&root.join("schemata"))?;
        Ok(Resctrl { root: root.to_owned(), info, unlimited })
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the hardware can.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The root group's values when the file system was opened: those without a limit.
    pub fn unlimited(&self) -> &Schemata {
        &self.unlimited
    }

    /// The folder of a group.
    pub fn folder(&self, group: &GroupName) -> PathBuf {
        self.root.join(group.folder())
    }

    /// Names of all groups except the root group, ours and those of others.
    pub fn all_groups(&self) -> Result<BTreeSet<String>, ResctrlError> {
        folders(&self.root).map(|mut names| {
            names.retain(|name| !NO_GROUPS.contains(&name.as_str()));
            names
        })
    }

    /// UIDs of the pods that have a group.
    pub fn pods(&self) -> Result<BTreeSet<String>, ResctrlError> {
        let groups = self.all_groups()?;
        Ok(groups.iter().filter_map(|name| name.strip_prefix(POD_PREFIX)).map(str::to_owned).collect())
    }

    /// How many groups can still be made; absent where the hardware does not say.
    pub fn free_groups(&self) -> Result<Option<u32>, ResctrlError> {
        let Some(limit) = self.info.groups_at_most() else { return Ok(None) };
        let used = u32::try_from(self.all_groups()?.len()).unwrap_or(u32::MAX).saturating_add(1);
        Ok(Some(limit.saturating_sub(used)))
    }

    /// Makes a group, or takes over one that is there.
    ///
    /// Without a class of service left this is [`ResctrlError::NoClosid`], told before the kernel is asked where the
    /// hardware says how many there are.
    pub fn make(&self, group: &GroupName) -> Result<Made, ResctrlError> {
        let path = self.folder(group);
        if path.is_dir() {
            return Ok(Made::Adopted);
        }
        if self.free_groups()? == Some(0) {
            return Err(ResctrlError::NoClosid { path, limit: self.info.groups_at_most() });
        }
        match DirBuilder::new().mode(0o755).create(&path) {
            Ok(()) => Ok(Made::New),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Made::Adopted),
            Err(source) => Err(self.not_made(path, source)),
        }
    }

    fn not_made(&self, path: PathBuf, source: io::Error) -> ResctrlError {
        if source.kind() == io::ErrorKind::StorageFull {
            return ResctrlError::NoClosid { path, limit: self.info.groups_at_most() };
        }
        ResctrlError::Group { action: "make", path, status: last_status(&self.root), source }
    }

    /// Removes a group; its tasks fall back into the root group. False if it was not there.
    pub fn remove(&self, group: &GroupName) -> Result<bool, ResctrlError> {
        let path = self.folder(group);
        match fs::remove_dir(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => {
                let status = last_status(&self.root);
                Err(ResctrlError::Group { action: "remove", path, status, source })
            }
        }
    }

    /// The values of a group.
    pub fn schemata(&self, group: &GroupName) -> Result<Schemata, ResctrlError> {
        read_schemata(&self.folder(group).join("schemata"))
    }

    /// Gives a group these values. Values are compared by id with what the group has; only lines that differ are
    /// written, both in one go, and one by one if the kernel refuses that. Lines without values are not in the answer.
    pub fn apply(&self, group: &GroupName, wanted: &Schemata) -> Vec<(Line, LineResult)> {
        let path = self.folder(group).join("schemata");
        // What cannot be read is written.
        let found = read_schemata(&path).unwrap_or_default();
        let mut results = Vec::new();
        let mut differing = Vec::new();
        for (line, text, same) in [
            (Line::Cache, wanted.cache_line(), holds(&found.cache, &wanted.cache)),
            (Line::Bandwidth, wanted.bandwidth_line(), holds(&found.bandwidth, &wanted.bandwidth)),
        ] {
            match (text.is_empty(), same) {
                (true, _) => {}
                (false, true) => results.push((line, LineResult::Same)),
                (false, false) => differing.push((line, text)),
            }
        }
        let together: String = differing.iter().map(|(_, text)| text.as_str()).collect();
        let at_once = differing.len() > 1 && self.write(&path, &together).is_ok();
        results.extend(differing.into_iter().map(|(line, text)| {
            let written = if at_once { Ok(()) } else { self.write(&path, &text) };
            (line, written.map_or_else(LineResult::Failed, |()| LineResult::Written))
        }));
        results
    }

    fn write(&self, path: &Path, value: &str) -> Result<(), ResctrlError> {
        // A file that is not there is no file of the kernel's, so none is created.
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|source| ResctrlError::Write {
                path: path.to_owned(),
                value: value.to_owned(),
                status: last_status(&self.root),
                source,
            })
    }

    /// The tasks (threads) of a group.
    pub fn tasks(&self, group: &GroupName) -> Result<BTreeSet<u32>, ResctrlError> {
        read_tasks(&self.folder(group).join("tasks"))
    }

    /// Moves tasks into a group: one id per write, ascending, those that are there left out. A task that the kernel does
    /// not move does not keep the others. What tasks start later is in the group as well, so a container's first
    /// process is enough right after its creation.
    pub fn move_tasks(&self, group: &GroupName, tasks: &BTreeSet<u32>) -> Result<Moved, ResctrlError> {
        move_tasks(&self.folder(group).join("tasks"), tasks)
    }
}

pub(super) fn folders(path: &Path) -> Result<BTreeSet<String>, ResctrlError> {
    let fail = |source| ResctrlError::Read { path: path.to_owned(), source };
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_type().map_err(fail)?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

fn read_schemata(path: &Path) -> Result<Schemata, ResctrlError> {
    let text =
        fs::read_to_string(path).map_err(|source| ResctrlError::Read { path: path.to_owned(), source })?;
    Schemata::parse(&text).map_err(|source| ResctrlError::Schemata { path: path.to_owned(), source })
}

fn read_tasks(path: &Path) -> Result<BTreeSet<u32>, ResctrlError> {
    let text =
        fs::read_to_string(path).map_err(|source| ResctrlError::Read { path: path.to_owned(), source })?;
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

pub(super) fn move_tasks(path: &Path, tasks: &BTreeSet<u32>) -> Result<Moved, ResctrlError> {
    let there = read_tasks(path)?;
    let mut file = OpenOptions::new()
        .append(true)
        .open(path)
        .map_err(|source| ResctrlError::Read { path: path.to_owned(), source })?;
    Ok(move_into(&mut file, &there, tasks))
}

fn move_into(file: &mut impl Write, there: &BTreeSet<u32>, tasks: &BTreeSet<u32>) -> Moved {
    let mut moved = Moved::default();
    for task in tasks {
        if there.contains(task) {
            moved.already += 1;
        } else if file.write_all(format!("{task}\n").as_bytes()).is_ok() {
            moved.moved.push(*task);
        } else {
            moved.failed.push(*task);
        }
    }
    moved
}

/// The groups of classes that are there and not wanted, each with its tasks. One without tasks only costs a class of
/// service and is to be removed.
pub fn superfluous(
    resctrl: &Resctrl,
    wanted: &BTreeSet<RdtClass>,
) -> Result<BTreeMap<RdtClass, BTreeSet<u32>>, ResctrlError> {
    let there = resctrl.all_groups()?;
    let mut found = BTreeMap::new();
    for class in RdtClass::ALL {
        if there.contains(class.as_str()) && !wanted.contains(&class) {
            found.insert(class, resctrl.tasks(&GroupName::Class(class))?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
