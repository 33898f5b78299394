//! Counters of groups: cache in use and bytes moved, for each L3 domain.
//!
//! A pod can have counters of its own in the group of its class (`mon_groups`, Linux 4.14): that takes a monitoring id
//! and no class of service.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::ResctrlError;
use super::groups::{GroupName, Made, Moved, Resctrl, folders, move_tasks, pod_uid};
use super::info::last_status;

/// One counter of one domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reading {
    /// Its value. Bytes; cache in use goes up and down, bytes moved only go up.
    Value(u64),
    /// The hardware has no value right now: the monitoring id was given to the group only just.
    Unavailable,
    /// The counter is assigned to another group (AMD, Linux 6.18).
    Unassigned,
    /// The hardware reports an error.
    Error,
    /// There is no such counter.
    #[default]
    Absent,
}

impl Reading {
    /// Reads the text of a counter's file, its line end included. Texts of later kernels are errors of that counter.
    pub fn parse(text: &str) -> Reading {
        match text.trim() {
            "Unavailable" => Reading::Unavailable,
            "Unassigned" => Reading::Unassigned,
            number if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
                number.parse().map_or(Reading::Error, Reading::Value)
            }
            _ => Reading::Error,
        }
    }

    /// The value, if there is one.
    pub fn value(self) -> Option<u64> {
        match self {
            Reading::Value(value) => Some(value),
            _ => None,
        }
    }
}

/// The counters of one domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Cache in use in bytes (`llc_occupancy`).
    pub llc_occupancy: Reading,
    /// Bytes moved to and from memory (`mbm_total_bytes`).
    pub mbm_total: Reading,
    /// Bytes moved to and from memory of the own NUMA node (`mbm_local_bytes`).
    pub mbm_local: Reading,
}

impl Resctrl {
    /// The counters of a group by id of the L3 domain; empty where nothing is counted. Domains below a cache (sub-NUMA
    /// clustering) are summed up by the kernel in the cache's own files.
    pub fn counters(&self, group: &GroupName) -> Result<BTreeMap<u32, Counters>, ResctrlError> {
        counters(&self.folder(group).join("mon_data"))
    }

    /// The counters of a pod inside a group.
    pub fn pod_counters(
        &self,
        group: &GroupName,
        uid: &str,
    ) -> Result<BTreeMap<u32, Counters>, ResctrlError> {
        counters(&self.monitoring_folder(group, uid)?.join("mon_data"))
    }

    /// UIDs of the pods that have counters of their own in a group.
    pub fn monitored_pods(&self, group: &GroupName) -> Result<BTreeSet<String>, ResctrlError> {
        folders(&self.folder(group).join("mon_groups"))
    }

    /// Gives a pod counters of its own in a group.
    pub fn make_monitored(&self, group: &GroupName, uid: &str) -> Result<Made, ResctrlError> {
        let path = self.monitoring_folder(group, uid)?;
        match DirBuilder::new().mode(0o755).create(&path) {
            Ok(()) => Ok(Made::New),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Made::Adopted),
            Err(source) => Err(self.not_monitored(path, source)),
        }
    }

    fn not_monitored(&self, path: PathBuf, source: io::Error) -> ResctrlError {
        if source.kind() == io::ErrorKind::StorageFull {
            return ResctrlError::NoRmid { path };
        }
        let status = last_status(self.root());
        ResctrlError::Group { action: "make", path, status, source }
    }

    /// Takes a pod's counters away. False if it had none.
    pub fn remove_monitored(&self, group: &GroupName, uid: &str) -> Result<bool, ResctrlError> {
        let path = self.monitoring_folder(group, uid)?;
        match fs::remove_dir(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => {
                let status = last_status(self.root());
                Err(ResctrlError::Group { action: "remove", path, status, source })
            }
        }
    }

    /// Counts tasks for a pod. They must be in the group already, or the kernel refuses them.
    pub fn move_monitored(
        &self,
        group: &GroupName,
        uid: &str,
        tasks: &BTreeSet<u32>,
    ) -> Result<Moved, ResctrlError> {
        move_tasks(&self.monitoring_folder(group, uid)?.join("tasks"), tasks)
    }

    fn monitoring_folder(&self, group: &GroupName, uid: &str) -> Result<PathBuf, ResctrlError> {
        Ok(self.folder(group).join("mon_groups").join(pod_uid(uid)?.as_str()))
    }
}

fn counters(folder: &Path) -> Result<BTreeMap<u32, Counters>, ResctrlError> {
    let mut found = BTreeMap::new();
    if !folder.is_dir() {
        return Ok(found);
    }
    for name in folders(folder)? {
        let Some(id) = name.strip_prefix("mon_L3_").and_then(|id| id.parse().ok()) else { continue };
        let domain = folder.join(&name);
        let counters = Counters {
            llc_occupancy: reading(&domain.join("llc_occupancy")),
            mbm_total: reading(&domain.join("mbm_total_bytes")),
            mbm_local: reading(&domain.join("mbm_local_bytes")),
        };
        found.insert(id, counters);
    }
    Ok(found)
}

/// A counter that cannot be read says nothing about the others.
fn reading(path: &Path) -> Reading {
    match fs::read_to_string(path) {
        Ok(text) => Reading::parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Reading::Absent,
        Err(_) => Reading::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::super::groups::RdtClass;
    use super::super::info::BandwidthUnit;
    use super::super::test_tree::Tree;
    use super::*;

    fn open(tree: &Tree) -> Resctrl {
        Resctrl::open(tree.root(), BandwidthUnit::Percent).expect("a file system")
    }

    const BE: GroupName = GroupName::Class(RdtClass::Be);

    #[test]
    fn texts_of_counters() {
        assert_eq!(Reading::parse("1048576\n"), Reading::Value(1_048_576));
        assert_eq!(Reading::parse("0"), Reading::Value(0));
        assert_eq!(Reading::parse("18446744073709551615\n"), Reading::Value(u64::MAX));
        assert_eq!(Reading::parse("18446744073709551616\n"), Reading::Error);
        assert_eq!(Reading::parse("Unavailable\n"), Reading::Unavailable);
        assert_eq!(Reading::parse("Unassigned\n"), Reading::Unassigned);
        for text in ["", "\n", "Error\n", "-1", "+1", "1 2"] {
            assert_eq!(Reading::parse(text), Reading::Error, "{text:?}");
        }
        assert_eq!(Reading::Value(3).value(), Some(3));
        assert_eq!(Reading::Unavailable.value(), None);
    }

    #[test]
    fn counters_of_a_group_and_of_a_pod_in_it() {
        let tree = Tree::intel();
        tree.group("BE", "");
        tree.file("BE/mon_data/mon_L3_00/llc_occupancy", "65536\n");
        tree.file("BE/mon_data/mon_L3_00/mbm_total_bytes", "100\n");
        tree.file("BE/mon_data/mon_L3_10/llc_occupancy", "Unavailable\n");
        tree.file("BE/mon_data/mon_L3_10/mbm_local_bytes", "Unassigned\n");
        tree.file("BE/mon_data/mon_PERF_PKG_00/x", "1\n");
        let resctrl = open(&tree);
        let first = Counters {
            llc_occupancy: Reading::Value(65536),
            mbm_total: Reading::Value(100),
            mbm_local: Reading::Absent,
        };
        let second = Counters {
            llc_occupancy: Reading::Unavailable,
            mbm_total: Reading::Absent,
            mbm_local: Reading::Unassigned,
        };
        assert_eq!(resctrl.counters(&BE).expect("counters"), BTreeMap::from([(0, first), (10, second)]));
        tree.file("BE/mon_groups/u1/mon_data/mon_L3_01/llc_occupancy", "7\n");
        let own = resctrl.pod_counters(&BE, "u1").expect("counters");
        assert_eq!(own.get(&1).map(|counters| counters.llc_occupancy), Some(Reading::Value(7)));
        // Nothing is counted on a machine that cannot.
        assert_eq!(resctrl.counters(&GroupName::Class(RdtClass::Ls)).expect("none"), BTreeMap::new());
    }

    #[test]
    fn pods_with_counters_of_their_own() {
        let tree = Tree::intel();
        tree.group("BE", "");
        fs::create_dir(tree.root().join("BE/mon_groups")).expect("a folder");
        let resctrl = open(&tree);
        assert_eq!(resctrl.make_monitored(&BE, "u1").expect("room"), Made::New);
        assert_eq!(resctrl.make_monitored(&BE, "u1").expect("there"), Made::Adopted);
        assert_eq!(resctrl.monitored_pods(&BE).expect("uids"), BTreeSet::from(["u1".to_owned()]));
        // It costs no class of service: three of four were and are free, less the one of BE.
        assert_eq!(resctrl.free_groups().expect("a number"), Some(2));
        assert!(resctrl.remove_monitored(&BE, "u1").expect("removed"));
        assert!(!resctrl.remove_monitored(&BE, "u1").expect("gone"));

        tree.file("BE/mon_groups/u2/tasks", "");
        let moved = resctrl.move_monitored(&BE, "u2", &BTreeSet::from([9, 3])).expect("a group");
        assert_eq!(moved.moved, [3, 9]);
        assert_eq!(tree.text("BE/mon_groups/u2/tasks"), "3\n9\n");
        assert!(matches!(resctrl.make_monitored(&BE, "../x"), Err(ResctrlError::PodUid { .. })));
        assert!(matches!(
            resctrl.make_monitored(&GroupName::Class(RdtClass::Ls), "u1"),
            Err(ResctrlError::Group { action: "make", .. })
        ));
    }

    #[test]
    fn no_monitoring_id_is_left() {
        let tree = Tree::intel();
        let full = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let error = open(&tree).not_monitored("/r/mon_groups/u".into(), full);
        assert_eq!(error.to_string(), "no monitoring id is left for the group /r/mon_groups/u");
    }
}
