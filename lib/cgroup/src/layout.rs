//! Where the control groups of a node are: the root, its version, its driver, and what lies below the kubelet's.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use koord_extension::qos::KubeQos;

use crate::driver::{CgroupDriver, DriverEvidence, DriverSource};
use crate::error::{CgroupError, PathProblem};
use crate::path::{self, CgroupPath};
use crate::version::{CgroupVersion, VersionError, is_cgroup2};

/// A controller of version 1 that has a hierarchy of its own. Version 2 has one for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Controller {
    /// Shares, quota, idle.
    Cpu,
    /// Which CPUs and memory nodes.
    Cpuset,
    /// CPU time used.
    Cpuacct,
    /// Memory.
    Memory,
    /// Block devices.
    Blkio,
    /// Class of network packets.
    NetCls,
    /// Performance counters.
    PerfEvent,
    /// The tree of version 2 without controllers that a hybrid node has beside those of version 1. It holds pressure
    /// figures.
    Unified,
}

impl Controller {
    /// All of them.
    pub const ALL: [Controller; 8] = [
        Controller::Cpu,
        Controller::Cpuset,
        Controller::Cpuacct,
        Controller::Memory,
        Controller::Blkio,
        Controller::NetCls,
        Controller::PerfEvent,
        Controller::Unified,
    ];

    /// Its folder below the root on version 1.
    pub const fn as_str(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Cpuset => "cpuset",
            Controller::Cpuacct => "cpuacct",
            Controller::Memory => "memory",
            Controller::Blkio => "blkio",
            Controller::NetCls => "net_cls",
            Controller::PerfEvent => "perf_event",
            Controller::Unified => "unified",
        }
    }

    /// Folders under which distributions mount it, the first that exists counts. Some mount controllers in pairs and
    /// leave a link for each.
    const fn folders(self) -> &'static [&'static str] {
        match self {
            Controller::Cpu => &["cpu", "cpu,cpuacct"],
            Controller::Cpuacct => &["cpuacct", "cpu,cpuacct"],
            Controller::NetCls => &["net_cls", "net_cls,net_prio"],
            Controller::Cpuset => &["cpuset"],
            Controller::Memory => &["memory"],
            Controller::Blkio => &["blkio"],
            Controller::PerfEvent => &["perf_event"],
            Controller::Unified => &["unified"],
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The layout of a node's control groups. Cheap enough to clone at start; share it after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
    version: CgroupVersion,
    driver: CgroupDriver,
    /// The kubelet's `cgroupRoot` as names of levels: empty for `/`.
    kubelet_root: Vec<String>,
    /// Paths outside the kubelet's that may be written.
    declared: Vec<String>,
    /// Folders of controllers that differ from their plain name.
    folders: BTreeMap<Controller, PathBuf>,
    /// The page of this machine in bytes.
    page_size: i64,
    /// The group of all pods.
    kubepods: CgroupPath,
}

/// What [`Layout::detect`] is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectOptions {
    /// Root of the control groups, `/sys/fs/cgroup` unless the host's are mounted elsewhere.
    pub root: PathBuf,
    /// The kubelet's `cgroupRoot`, `/` unless set.
    pub kubelet_root: String,
    /// Directories outside the kubelet's that may be written: host applications.
    pub declared: Vec<String>,
    /// What is known of the driver. What directories say is filled in.
    pub driver: DriverEvidence,
}

impl Default for DetectOptions {
    fn default() -> DetectOptions {
        DetectOptions {
            root: PathBuf::from("/sys/fs/cgroup"),
            kubelet_root: "/".to_owned(),
            declared: Vec::new(),
            driver: DriverEvidence::default(),
        }
    }
}

/// Control groups cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DetectError {
    /// The root cannot be examined.
    #[error("cannot tell the version of the control groups")]
    Version(#[from] VersionError),
    /// The kubelet's root or a declared directory is no usable path.
    #[error("cannot use a configured directory")]
    Path(#[from] CgroupError),
}

impl Layout {
    /// A layout of known parts. `kubelet_root` is the kubelet's `cgroupRoot`: `/` or empty unless it was set.
    pub fn new(
        root: impl Into<PathBuf>,
        version: CgroupVersion,
        driver: CgroupDriver,
        kubelet_root: &str,
    ) -> Result<Layout, CgroupError> {
        let mut levels = Vec::new();
        for level in kubelet_root.split('/').filter(|level| !level.is_empty()) {
            path::check_level(kubelet_root, level)?;
            levels.push(level.to_owned());
        }
        let mut layout = Layout {
            root: root.into(),
            version,
            driver,
            kubelet_root: levels,
            declared: Vec::new(),
            folders: BTreeMap::new(),
            page_size: i64::try_from(page_size()).unwrap_or(4096),
            kubepods: CgroupPath::root(),
        };
        layout.kubepods = layout.group(&["kubepods"]);
        Ok(layout)
    }

    /// Finds the layout below a root. The driver may be [`DriverSource::Assumed`]; then ask again when the kubelet has
    /// come.
    pub fn detect(options: &DetectOptions) -> Result<(Layout, DriverSource), DetectError> {
        let version = CgroupVersion::detect(&options.root)?;
        let layout_with = |driver| Layout::new(&options.root, version, driver, &options.kubelet_root);
        let mut evidence = options.driver;
        let exists = |driver| -> Result<bool, CgroupError> {
            let layout = layout_with(driver)?.with_mounted_folders();
            Ok(layout.directory(Controller::Cpu).join(layout.kubepods().as_str()).is_dir())
        };
        evidence.has_kubepods_slice |= exists(CgroupDriver::Systemd)?;
        evidence.has_kubepods_directory |= exists(CgroupDriver::Cgroupfs)?;
        let (driver, source) = evidence.conclude();
        let mut layout = layout_with(driver)?.with_mounted_folders();
        for directory in &options.declared {
            layout = layout.with_declared(directory)?;
        }
        Ok((layout, source))
    }

    /// The same with a directory outside the kubelet's, and all below it, open to writes.
    pub fn with_declared(mut self, directory: &str) -> Result<Layout, CgroupError> {
        let text = directory.trim_matches('/');
        if text.is_empty() {
            return Err(CgroupError::Path { text: directory.to_owned(), problem: PathProblem::Root });
        }
        for level in text.split('/') {
            path::check_level(directory, level)?;
        }
        self.declared.push(text.to_owned());
        Ok(self)
    }

    /// The same with the folder of one controller elsewhere, relative to the root or absolute. Only version 1 has such
    /// folders.
    #[must_use]
    pub fn with_folder(mut self, controller: Controller, folder: impl Into<PathBuf>) -> Layout {
        self.folders.insert(controller, folder.into());
        self
    }

    /// The same with pages of `bytes`, for trees that are not this machine's.
    #[must_use]
    pub const fn with_page_size(mut self, bytes: i64) -> Layout {
        self.page_size = if bytes > 0 { bytes } else { 1 };
        self
    }

    fn with_mounted_folders(mut self) -> Layout {
        if self.version == CgroupVersion::V1 {
            for controller in Controller::ALL {
                let names = controller.folders();
                let mounted = names.iter().find(|name| self.root.join(name).is_dir());
                if let Some(name) = mounted.filter(|name| **name != controller.as_str()) {
                    self.folders.insert(controller, PathBuf::from(name));
                }
            }
        }
        self
    }

    /// Root of the control groups.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Version of the interface.
    pub const fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Driver of the kubelet and the runtime.
    pub const fn driver(&self) -> CgroupDriver {
        self.driver
    }

    /// Bytes of a page: the kernel rounds limits of memory down to it.
    pub const fn page_size(&self) -> i64 {
        self.page_size
    }

    /// The directory that holds the tree of `controller`. On version 2 the root itself.
    pub fn directory(&self, controller: Controller) -> PathBuf {
        match self.version {
            CgroupVersion::V2 => self.root.clone(),
            CgroupVersion::V1 => match self.folders.get(&controller) {
                Some(folder) => self.root.join(folder),
                None => self.root.join(controller.as_str()),
            },
        }
    }

    /// True if the node has version 1 controllers and a version 2 tree beside them.
    pub fn is_hybrid(&self) -> bool {
        self.version == CgroupVersion::V1 && is_cgroup2(&self.directory(Controller::Unified)).unwrap_or(false)
    }

    /// The group of all pods, which is also the parent of Guaranteed pods.
    pub fn kubepods(&self) -> CgroupPath {
        self.kubepods.clone()
    }

    /// The parent of the pods of a class.
    pub fn qos_dir(&self, qos: KubeQos) -> CgroupPath {
        match qos {
            KubeQos::Guaranteed => self.kubepods(),
            KubeQos::Burstable => self.group(&["kubepods", "burstable"]),
            KubeQos::BestEffort => self.group(&["kubepods", "besteffort"]),
        }
    }

    /// The group of a pod, by the UID that its group is named after (see [`path::group_uid`]).
    pub fn pod(&self, qos: KubeQos, uid: &str) -> Result<CgroupPath, CgroupError> {
        path::check_level(uid, uid)?;
        let name = match self.driver {
            CgroupDriver::Systemd => format!("pod{}", uid.replace('-', "_")),
            CgroupDriver::Cgroupfs => format!("pod{uid}"),
        };
        Ok(match qos {
            KubeQos::Guaranteed => self.group(&["kubepods", &name]),
            KubeQos::Burstable => self.group(&["kubepods", "burstable", &name]),
            KubeQos::BestEffort => self.group(&["kubepods", "besteffort", &name]),
        })
    }

    /// Path of a group named by levels below the kubelet's root. With systemd each level is a slice whose name holds
    /// those of all above: `a`, `b` is `a.slice/a-b.slice`.
    fn group(&self, levels: &[&str]) -> CgroupPath {
        let all = self.kubelet_root.iter().map(String::as_str).chain(levels.iter().copied());
        let text = match self.driver {
            CgroupDriver::Cgroupfs => all.collect::<Vec<_>>().join("/"),
            CgroupDriver::Systemd => {
                let mut unit = String::new();
                let mut text = String::new();
                for level in all {
                    if !unit.is_empty() {
                        unit.push('-');
                        text.push('/');
                    }
                    unit.push_str(level);
                    text.push_str(&unit);
                    text.push_str(".slice");
                }
                text
            }
        };
        CgroupPath::trusted(text)
    }

    /// True if `text`, a relative path, is the group of all pods or below it, or is a declared directory or below it.
    pub(crate) fn allows(&self, text: &str) -> bool {
        let below = |parent: &str| {
            text.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        below(self.kubepods.as_str()) || self.declared.iter().any(|directory| below(directory))
    }
}

/// Bytes of a page.
fn page_size() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests;
