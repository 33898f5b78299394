//! Cache and memory bandwidth by group of tasks: the kernel's `resctrl` file system.
//!
//! Two layers. Pure: [`schemata`] reads and writes the text of the files, [`share`] turns percents into masks and
//! bandwidth values, [`plan`] turns a strategy or a pod's annotation into schemata, [`pod_groups`] decides which
//! groups are left over, [`runtime_class`] which containers belong to the container runtime, [`class_file`] what a
//! runtime's own classes mean. I/O, all below a root
//! that is `/sys/fs/resctrl` on a real machine: [`info`] reads what the hardware can, [`groups`] makes, fills and
//! removes groups, [`monitor`] reads counters.
//!
//! A group costs a *closid* (class of service id), of which the hardware has few (4 to 16, the root group included).
//! Monitoring groups below a group cost an *rmid* and no closid.

pub mod class_file;
pub mod groups;
pub mod info;
pub mod monitor;
pub mod plan;
pub mod pod_groups;
pub mod runtime_class;
pub mod schemata;
pub mod share;

use std::io;
use std::path::{Path, PathBuf};

pub use groups::{GroupName, RdtClass, Resctrl};
pub use info::{BandwidthInfo, BandwidthUnit, CacheInfo, Info};
pub use plan::{ClassGroup, ClassGroups, ClassShare, PodSchemata, PodShare, pod_schemata};
pub use schemata::Schemata;

/// Where the file system is mounted.
pub const MOUNT_POINT: &str = "/sys/fs/resctrl";

/// Why something could not be done in `resctrl`.
#[derive(Debug, thiserror::Error)]
pub enum ResctrlError {
    /// A file or folder could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file of `info` does not hold what it should.
    #[error("{} says {text:?}; expected {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its text.
        text: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A schemata file could not be understood.
    #[error("{} is no schemata", path.display())]
    Schemata {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: schemata::SchemataError,
    },
    /// The kernel refused a value.
    #[error("cannot write {value:?} to {}{}", path.display(), status_text(status.as_deref()))]
    Write {
        /// The file.
        path: PathBuf,
        /// What was written.
        value: String,
        /// What `info/last_cmd_status` says about it.
        status: Option<String>,
        /// What the kernel said.
        source: io::Error,
    },
    /// A group could not be made or removed.
    #[error("cannot {action} the group {}{}", path.display(), status_text(status.as_deref()))]
    Group {
        /// `make` or `remove`.
        action: &'static str,
        /// The group's folder.
        path: PathBuf,
        /// What `info/last_cmd_status` says about it.
        status: Option<String>,
        /// What the kernel said.
        source: io::Error,
    },
    /// All classes of service are in use. The tasks of a class then stay in the root group, and a pod does not get a group
    /// of its own.
    #[error("no class of service is left for the group {}: {}", path.display(), limit_text(*limit))]
    NoClosid {
        /// The folder that was to be made.
        path: PathBuf,
        /// How many the hardware has, the root group's included; unknown where `info` does not say.
        limit: Option<u32>,
    },
    /// All monitoring ids are in use.
    #[error("no monitoring id is left for the group {}", path.display())]
    NoRmid {
        /// The folder that was to be made.
        path: PathBuf,
    },
    /// A pod's UID that cannot be the name of a folder.
    #[error("pod UID {uid:?} cannot name a group; expected letters, digits, '-', '_' and '.' only")]
    PodUid {
        /// The UID.
        uid: String,
    },
    /// The file system could not be mounted.
    #[error("cannot mount resctrl at {}", path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

fn status_text(status: Option<&str>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}

fn limit_text(limit: Option<u32>) -> String {
    limit.map_or_else(|| "the kernel has none".to_owned(), |limit| format!("all {limit} are in use"))
}

/// True if a processor with these flags of `/proc/cpuinfo` can divide both the last level cache and memory bandwidth.
pub fn can_allocate(has_flag: impl Fn(&str) -> bool) -> bool {
    has_flag("cat_l3") && has_flag("mba")
}

/// True if a processor with these flags of `/proc/cpuinfo` counts cache and bandwidth by group.
pub fn can_monitor(has_flag: impl Fn(&str) -> bool) -> bool {
    has_flag("cqm_occup_llc") && (has_flag("cqm_mbm_total") || has_flag("cqm_mbm_local"))
}

/// What [`mount`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mounted {
    /// It was mounted before.
    Before,
    /// It is mounted now.
    Now,
}

/// Mounts the file system unless it is there, which the mask of the L3 cache tells. Processors without cache
/// allocation are left alone by the caller ([`can_allocate`]).
pub fn mount(root: &Path) -> Result<Mounted, ResctrlError> {
    if root.join("info/L3/cbm_mask").exists() {
        return Ok(Mounted::Before);
    }
    rustix::mount::mount("resctrl", root, "resctrl", rustix::mount::MountFlags::empty(), None)
        .map_err(|error| ResctrlError::Mount { path: root.to_owned(), source: error.into() })?;
    Ok(Mounted::Now)
}

/// How a container gets into its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The runtime is told the class in the container's creation.
    RuntimeClass,
    /// The container's first process is moved after its creation; its children follow.
    MoveTasks,
    /// Not at all.
    Nowhere,
}

/// How containers get into groups on this node. A runtime that is told a class without having `resctrl` refuses to
/// create the container, so both the kernel and the runtime are asked first.
pub fn placement(kernel: Option<&Info>, runtime_has_rdt: Option<bool>) -> Placement {
    match (kernel.and_then(Info::groups_at_most), runtime_has_rdt) {
        (None, _) => Placement::Nowhere,
        (Some(_), Some(true)) => Placement::RuntimeClass,
        (Some(_), _) => Placement::MoveTasks,
    }
}

#[cfg(test)]
pub(crate) mod test_tree;

#[cfg(test)]
mod tests {
    use super::test_tree::Tree;
    use super::*;

    #[test]
    fn both_abilities_are_needed() {
        let with = |flags: &'static [&str]| move |flag: &str| flags.contains(&flag);
        assert!(can_allocate(with(&["cat_l3", "mba"])));
        assert!(!can_allocate(with(&["cat_l3"])) && !can_allocate(with(&["mba"])));
        assert!(can_monitor(with(&["cqm_occup_llc", "cqm_mbm_local"])));
        assert!(!can_monitor(with(&["cqm_occup_llc"])) && !can_monitor(with(&["cqm_mbm_total"])));
    }

    #[test]
    fn a_mounted_file_system_is_left_alone() {
        let tree = Tree::intel();
        assert_eq!(mount(tree.root()).expect("there"), Mounted::Before);
        // A folder that is missing cannot be mounted on, with or without the right to.
        let missing = tree.root().join("missing");
        assert!(matches!(mount(&missing), Err(ResctrlError::Mount { path, .. }) if path == missing));
    }

    #[test]
    fn a_runtime_without_resctrl_is_told_nothing() {
        let tree = Tree::intel();
        let info = Info::read(tree.root(), BandwidthUnit::Percent).expect("info");
        assert_eq!(placement(Some(&info), Some(true)), Placement::RuntimeClass);
        assert_eq!(placement(Some(&info), Some(false)), Placement::MoveTasks);
        assert_eq!(placement(Some(&info), None), Placement::MoveTasks);
        assert_eq!(placement(None, Some(true)), Placement::Nowhere);
        assert_eq!(placement(Some(&Info::default()), Some(true)), Placement::Nowhere);
    }

    #[test]
    fn errors_tell_what_was_tried_and_what_the_kernel_said() {
        let error = ResctrlError::Write {
            path: "/r/BE/schemata".into(),
            value: "L3:0=0;\n".to_owned(),
            status: Some("Mask out of range".to_owned()),
            source: io::Error::from_raw_os_error(22),
        };
        assert_eq!(error.to_string(), "cannot write \"L3:0=0;\\n\" to /r/BE/schemata (Mask out of range)");
        let error = ResctrlError::NoClosid { path: "/r/BE".into(), limit: Some(4) };
        assert_eq!(error.to_string(), "no class of service is left for the group /r/BE: all 4 are in use");
    }
}
