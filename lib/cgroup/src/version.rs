//! Which of the kernel's two control group interfaces a node uses.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

/// `f_type` of a file system of control groups, version 2 (`CGROUP2_SUPER_MAGIC` of `linux/magic.h`).
pub const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// Version of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CgroupVersion {
    /// One hierarchy for each controller. A hybrid node, with version 1 controllers and a version 2 tree without
    /// controllers beside them, counts as version 1.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// The root of the control groups cannot be examined.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot examine the root of the control groups {root}")]
pub struct VersionError {
    /// The root asked about.
    pub root: PathBuf,
    /// What the kernel answered.
    pub source: Errno,
}

impl CgroupVersion {
    /// `v1` or `v2`.
    pub const fn as_str(self) -> &'static str {
        match self {
            CgroupVersion::V1 => "v1",
            CgroupVersion::V2 => "v2",
        }
    }

    /// The version mounted at `root`. A root that does not exist counts as version 1: that is what a user namespace
    /// without the mount looks like.
    pub fn detect(root: &Path) -> Result<CgroupVersion, VersionError> {
        match is_cgroup2(root) {
            Ok(true) => Ok(CgroupVersion::V2),
            Ok(false) | Err(Errno::NOENT) => Ok(CgroupVersion::V1),
            Err(source) => Err(VersionError { root: root.to_owned(), source }),
        }
    }
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// True if `place` is in a version 2 file system.
pub(crate) fn is_cgroup2(place: &Path) -> Result<bool, Errno> {
    let found = rustix::fs::statfs(place)?;
    Ok(u64::try_from(found.f_type).is_ok_and(|magic| magic == CGROUP2_MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_folder_and_a_missing_one_are_version_1() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(CgroupVersion::detect(folder.path()), Ok(CgroupVersion::V1));
        assert_eq!(CgroupVersion::detect(&folder.path().join("missing")), Ok(CgroupVersion::V1));
    }

    #[test]
    fn what_cannot_be_examined_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = CgroupVersion::detect(&file.join("below")).unwrap_err();
        assert_eq!(error.source, Errno::NOTDIR);
    }
}
