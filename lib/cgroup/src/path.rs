//! Paths of groups, relative to the root of a hierarchy, and the names in them.
//!
//! A [`CgroupPath`] is checked when it is made: it never is the root, never climbs, and lies below the kubelet's group of
//! all pods or a directory that was declared. So no mistake of a caller writes to the groups of the node itself.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use koord_extension::qos::KubeQos;

use crate::driver::{CgroupDriver, RuntimeName};
use crate::error::{CgroupError, PathProblem};
use crate::layout::Layout;

/// Longest name of a file (`NAME_MAX`).
const NAME_OCTETS: usize = 255;

/// Annotation with the hash that a static pod's groups are named after.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Annotation that marks a static pod in the API server.
const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// A group, as a path below the root of each hierarchy. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CgroupPath(Arc<str>);

impl CgroupPath {
    /// A path made of parts that were checked.
    pub(crate) fn trusted(text: String) -> CgroupPath {
        CgroupPath(text.into())
    }

    /// The root of a hierarchy. Only files that exist nowhere else (`io.cost.qos`, `io.cost.model`) can be written there.
    pub fn root() -> CgroupPath {
        CgroupPath::trusted(String::new())
    }

    /// Checks a path relative to the root of the hierarchies; one leading slash is let through.
    pub fn new(text: &str, layout: &Layout) -> Result<CgroupPath, CgroupError> {
        let refused = |problem| CgroupError::Path { text: text.to_owned(), problem };
        let relative = text.strip_prefix('/').unwrap_or(text);
        let relative = relative.strip_suffix('/').unwrap_or(relative);
        if relative.is_empty() {
            return Err(refused(if text.is_empty() { PathProblem::Empty } else { PathProblem::Root }));
        }
        for level in relative.split('/') {
            check_level(text, level)?;
        }
        if !layout.allows(relative) {
            return Err(refused(PathProblem::Outside));
        }
        Ok(CgroupPath::trusted(relative.to_owned()))
    }

    /// The group that the field `cgroup_parent` of a call of the CRI names: the name of a slice with systemd, otherwise a
    /// path from the root.
    pub fn from_cri_parent(text: &str, layout: &Layout) -> Result<CgroupPath, CgroupError> {
        let bare = text.strip_prefix('/').unwrap_or(text);
        if layout.driver() == CgroupDriver::Systemd && !bare.contains('/') && bare.ends_with(".slice") {
            return CgroupPath::new(&expand_slice(bare)?, layout);
        }
        CgroupPath::new(text, layout)
    }

    /// The path, without a leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How many levels below the root it is.
    pub fn depth(&self) -> usize {
        if self.is_root() { 0 } else { self.0.bytes().filter(|octet| *octet == b'/').count() + 1 }
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// True for [`CgroupPath::root`].
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `other` is this group or below it.
    pub fn contains(&self, other: &CgroupPath) -> bool {
        self.is_root()
            || other.0.strip_prefix(&*self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The group above, if it is not the root.
    pub fn parent(&self) -> Option<CgroupPath> {
        self.0.rsplit_once('/').map(|(parent, _)| CgroupPath::trusted(parent.to_owned()))
    }

    /// A group right below.
    pub fn child(&self, name: &str) -> Result<CgroupPath, CgroupError> {
        check_level(name, name)?;
        if self.is_root() {
            return Err(CgroupError::Path { text: name.to_owned(), problem: PathProblem::Outside });
        }
        Ok(CgroupPath::trusted(format!("{}/{name}", self.0)))
    }

    /// Where the group of a container of this pod may be, the likeliest first (see [`RuntimeName::group_names`]).
    pub fn container_candidates(
        &self,
        runtime: RuntimeName,
        container_id: &str,
    ) -> Result<Vec<CgroupPath>, CgroupError> {
        runtime.group_names(self.driver(), container_id).iter().map(|name| self.child(name)).collect()
    }

    /// The likeliest place of the group of a container of this pod; ask
    /// [`crate::executor::Executor::container`] where it really is.
    pub fn container(&self, runtime: RuntimeName, container_id: &str) -> Result<CgroupPath, CgroupError> {
        let names = runtime.group_names(self.driver(), container_id);
        self.child(names.first().map_or(container_id, String::as_str))
    }

    /// The driver that made this group, seen from its name.
    fn driver(&self) -> CgroupDriver {
        if self.0.ends_with(".slice") { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs }
    }
}

impl fmt::Debug for CgroupPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CgroupPath({:?})", &*self.0)
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.is_root() { "/" } else { &self.0 })
    }
}

/// Checks one name of a path; `text` is the whole of it, for the message.
pub(crate) fn check_level(text: &str, level: &str) -> Result<(), CgroupError> {
    let problem = if level.is_empty() {
        PathProblem::Empty
    } else if level == "." || level == ".." {
        PathProblem::Climbs
    } else if level.len() > NAME_OCTETS
        || level.contains('/')
        || level.chars().any(|character| character.is_control())
    {
        PathProblem::Name
    } else {
        return Ok(());
    };
    Err(CgroupError::Path { text: text.to_owned(), problem })
}

/// The path of a slice: `a-b.slice` lies in `a.slice` (systemd.slice(5)).
pub fn expand_slice(unit: &str) -> Result<String, CgroupError> {
    let refused = || CgroupError::Path { text: unit.to_owned(), problem: PathProblem::Slice };
    let name = unit.strip_suffix(".slice").ok_or_else(refused)?;
    check_level(unit, unit)?;
    if name.split('-').any(str::is_empty) {
        return Err(refused());
    }
    let mut path = String::new();
    for (end, _) in name.match_indices('-') {
        path.push_str(&name[..end]);
        path.push_str(".slice/");
    }
    path.push_str(unit);
    Ok(path)
}

/// The UID that the groups of a pod are named after. The API server's copy of a static pod has another UID than the
/// kubelet's original, whose UID is a hash of its file.
pub fn group_uid<'a>(uid: &'a str, annotations: &'a BTreeMap<String, String>) -> &'a str {
    match annotations.get(CONFIG_HASH) {
        Some(hash) if !hash.is_empty() && annotations.contains_key(CONFIG_MIRROR) => hash,
        _ => uid,
    }
}

/// What the name of a pod's group says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroup {
    /// The class whose directory it is in, for a slice; for a plain directory its name does not tell.
    pub qos: Option<KubeQos>,
    /// UID of the pod, with `-`.
    pub uid: String,
}

/// Reads the name of a pod's group, or nothing if it is none. A slice may have prefixes of the kubelet's root.
pub fn parse_pod_name(driver: CgroupDriver, name: &str) -> Option<PodGroup> {
    let (qos, uid) = match driver {
        CgroupDriver::Cgroupfs => (None, name.strip_prefix("pod")?.to_owned()),
        CgroupDriver::Systemd => {
            let (before, uid) = name.strip_suffix(".slice")?.rsplit_once("-pod")?;
            let qos = match before.strip_suffix("kubepods") {
                Some(root) if root.is_empty() || root.ends_with('-') => KubeQos::Guaranteed,
                _ => {
                    let (root, class) = before.rsplit_once('-')?;
                    if root != "kubepods" && !root.ends_with("-kubepods") {
                        return None;
                    }
                    match class {
                        "burstable" => KubeQos::Burstable,
                        "besteffort" => KubeQos::BestEffort,
                        _ => return None,
                    }
                }
            };
            (Some(qos), uid.replace('_', "-"))
        }
    };
    (!uid.is_empty()).then_some(PodGroup { qos, uid })
}

/// A container's id with its runtime, `containerd://ID`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerId {
    /// The runtime.
    pub runtime: RuntimeName,
    /// The id.
    pub id: String,
}

impl FromStr for ContainerId {
    type Err = CgroupError;

    fn from_str(text: &str) -> Result<ContainerId, CgroupError> {
        let refused = |reason: String| CgroupError::ContainerId { text: text.to_owned(), reason };
        let (runtime, id) = text.split_once("://").ok_or_else(|| refused("it has no ://".to_owned()))?;
        let runtime = runtime.parse::<RuntimeName>().map_err(|error| refused(error.to_string()))?;
        if id.is_empty() {
            return Err(refused("nothing follows ://".to_owned()));
        }
        check_level(id, id)?;
        Ok(ContainerId { runtime, id: id.to_owned() })
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", self.runtime, self.id)
    }
}

/// Reads the name of a container's group below a pod's, or nothing if it is none. The runtime is not told by a plain
/// directory, except CRI-O's.
pub fn parse_container_name(driver: CgroupDriver, name: &str) -> Option<(Option<RuntimeName>, &str)> {
    // CRI-O's monitors have groups of their own beside the containers'.
    let is_container = |id: &str| !id.is_empty() && !id.starts_with("conmon-");
    let bare_crio = || {
        let id = name.strip_prefix("crio-")?;
        (is_container(id) && !id.ends_with(".scope")).then_some((Some(RuntimeName::CriO), id))
    };
    match driver {
        CgroupDriver::Systemd => {
            let Some(scope) = name.strip_suffix(".scope") else { return bare_crio() };
            RuntimeName::ALL.into_iter().find_map(|runtime| {
                let id = scope.strip_prefix(runtime.scope_prefix())?;
                is_container(id).then_some((Some(runtime), id))
            })
        }
        CgroupDriver::Cgroupfs => {
            if name.is_empty() || name.starts_with('.') {
                return None;
            }
            if name.starts_with("crio-") { bare_crio() } else { Some((None, name)) }
        }
    }
}

/// Finds the sandbox of a pod among the directories below its group.
///
/// The runtime's word counts if there is one. Without it the one directory that belongs to no known container is it; that
/// rule is Koordinator's and fails for pods with containers that are in no status yet. CRI-O's bare directories
/// (`crio-ID` with systemd) hold its monitor and never count. Nothing known about the containers is no answer.
pub fn find_sandbox(
    driver: CgroupDriver,
    runtime: RuntimeName,
    directories: &[String],
    known: &[ContainerId],
    told_by_runtime: Option<&str>,
) -> Result<Option<ContainerId>, CgroupError> {
    if let Some(id) = told_by_runtime {
        return Ok(Some(ContainerId { runtime, id: id.to_owned() }));
    }
    if known.is_empty() {
        return Ok(None);
    }
    let mut candidates = directories.iter().filter_map(|name| {
        if driver == CgroupDriver::Systemd && name.starts_with("crio-") && !name.ends_with(".scope") {
            return None;
        }
        let (named, id) = parse_container_name(driver, name)?;
        let is_known = known.iter().any(|container| container.id == id);
        (!is_known).then(|| ContainerId { runtime: named.unwrap_or(runtime), id: id.to_owned() })
    });
    match (candidates.next(), candidates.count()) {
        (Some(only), 0) => Ok(Some(only)),
        (None, _) => Err(CgroupError::Sandbox { candidates: 0 }),
        (Some(_), more) => Err(CgroupError::Sandbox { candidates: more + 1 }),
    }
}

#[cfg(test)]
mod tests;
