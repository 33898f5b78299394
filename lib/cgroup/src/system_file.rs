//! Files of the node as a whole that rules of quality of service set: below `/proc/sys` and `/sys`.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{CgroupError, Operation};
use crate::files::{read_all, write_once};

/// A file of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemFile {
    /// Memory that the kernel keeps free, in KiB.
    MinFreeKbytes,
    /// Distance between the watermarks of reclaim, in 1/10000 of memory.
    WatermarkScaleFactor,
    /// 1 to reclaim memory of removed groups in the background (vendor).
    MemcgReapBackground,
    /// 1 to let groups limit their page cache (vendor).
    PageCacheLimitEnabled,
    /// Seconds between two scans for idle pages, 0 for none (vendor).
    KidledScanPeriod,
    /// 1 to count idle pages of groups below as well (vendor).
    KidledUseHierarchy,
    /// 1 to use identities of groups in the scheduler (vendor).
    GroupIdentityEnabled,
    /// 1 to allow core scheduling (vendor).
    SchedCore,
    /// Watermark for saving idle CPUs (vendor).
    SchedIdleSaverWatermark,
    /// 1 if hardware threads share cores. Read only.
    SmtActive,
    /// 1 if Intel's turbo is off.
    IntelNoTurbo,
}

/// Where `/proc` and `/sys` are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemRoots {
    /// Usually `/proc`.
    pub proc_root: PathBuf,
    /// Usually `/sys`.
    pub sys_root: PathBuf,
}

impl Default for SystemRoots {
    fn default() -> SystemRoots {
        SystemRoots { proc_root: PathBuf::from("/proc"), sys_root: PathBuf::from("/sys") }
    }
}

impl SystemFile {
    /// All of them.
    pub const ALL: [SystemFile; 11] = [
        SystemFile::MinFreeKbytes,
        SystemFile::WatermarkScaleFactor,
        SystemFile::MemcgReapBackground,
        SystemFile::PageCacheLimitEnabled,
        SystemFile::KidledScanPeriod,
        SystemFile::KidledUseHierarchy,
        SystemFile::GroupIdentityEnabled,
        SystemFile::SchedCore,
        SystemFile::SchedIdleSaverWatermark,
        SystemFile::SmtActive,
        SystemFile::IntelNoTurbo,
    ];

    /// Where it is.
    pub fn path(self, roots: &SystemRoots) -> PathBuf {
        let in_proc = |path: &str| roots.proc_root.join("sys").join(path);
        let in_sys = |path: &str| roots.sys_root.join(path);
        match self {
            SystemFile::MinFreeKbytes => in_proc("vm/min_free_kbytes"),
            SystemFile::WatermarkScaleFactor => in_proc("vm/watermark_scale_factor"),
            SystemFile::MemcgReapBackground => in_sys("kernel/mm/memcg_reaper/reap_background"),
            SystemFile::PageCacheLimitEnabled => in_sys("kernel/mm/pagecache_limit/enabled"),
            SystemFile::KidledScanPeriod => in_sys("kernel/mm/kidled/scan_period_in_seconds"),
            SystemFile::KidledUseHierarchy => in_sys("kernel/mm/kidled/use_hierarchy"),
            SystemFile::GroupIdentityEnabled => in_proc("kernel/sched_group_identity_enabled"),
            SystemFile::SchedCore => in_proc("kernel/sched_core"),
            SystemFile::SchedIdleSaverWatermark => in_proc("kernel/sched_idle_saver_wmark"),
            SystemFile::SmtActive => in_sys("devices/system/cpu/smt/active"),
            SystemFile::IntelNoTurbo => in_sys("devices/system/cpu/intel_pstate/no_turbo"),
        }
    }

    /// Least and largest value that is written; nothing for a file that is only read.
    pub const fn range(self) -> Option<(i64, i64)> {
        match self {
            SystemFile::MinFreeKbytes => Some((10_240, 10_485_760)),
            SystemFile::WatermarkScaleFactor => Some((10, 400)),
            SystemFile::KidledScanPeriod | SystemFile::SchedIdleSaverWatermark => Some((0, i64::MAX)),
            SystemFile::MemcgReapBackground
            | SystemFile::PageCacheLimitEnabled
            | SystemFile::KidledUseHierarchy
            | SystemFile::GroupIdentityEnabled
            | SystemFile::SchedCore
            | SystemFile::IntelNoTurbo => Some((0, 1)),
            SystemFile::SmtActive => None,
        }
    }

    /// Its value; nothing if this kernel has no such file.
    pub fn read(self, roots: &SystemRoots) -> Result<Option<i64>, CgroupError> {
        let path = self.path(roots);
        match read_text(&path)? {
            None => Ok(None),
            Some(text) => {
                let number = text.trim().parse();
                number.map(Some).map_err(|_| CgroupError::parse("a file of the node", &text, "a number"))
            }
        }
    }

    /// Writes a value unless it is there already: true if it was written.
    pub fn write(self, roots: &SystemRoots, value: i64) -> Result<bool, CgroupError> {
        let path = self.path(roots);
        let accepted = match self.range() {
            None => "no value: it is read only".to_owned(),
            Some((least, most)) if (least..=most).contains(&value) => {
                if self.read(roots)? == Some(value) {
                    return Ok(false);
                }
                return write_text(&path, &value.to_string()).map(|()| true);
            }
            Some((least, most)) => format!("{least}..{most}"),
        };
        Err(CgroupError::SystemValue { path, value: value.to_string(), accepted })
    }
}

impl fmt::Display for SystemFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path(&SystemRoots::default()).display())
    }
}

/// The scheduler's features, from a text such as `GENTLE_FAIR_SLEEPERS NO_CORE_SCHED`: true if `name` is on, false if it is
/// off, nothing if the kernel does not know it.
pub fn sched_feature(text: &str, name: &str) -> Option<bool> {
    text.split_ascii_whitespace().find_map(|word| {
        if word == name { Some(true) } else { (word.strip_prefix("NO_") == Some(name)).then_some(false) }
    })
}

/// Switches a feature of the scheduler: true if it was written, nothing if the kernel does not know it.
pub fn set_sched_feature(roots: &SystemRoots, name: &str, on: bool) -> Result<Option<bool>, CgroupError> {
    let path = roots.sys_root.join("kernel/debug/sched_features");
    let Some(text) = read_text(&path)? else { return Ok(None) };
    match sched_feature(&text, name) {
        None => Ok(None),
        Some(now) if now == on => Ok(Some(false)),
        Some(_) => {
            let word = if on { name.to_owned() } else { format!("NO_{name}") };
            write_text(&path, &word).map(|()| Some(true))
        }
    }
}

fn read_text(path: &Path) -> Result<Option<String>, CgroupError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let read = rustix::fs::openat(CWD, path, flags, Mode::empty())
        .and_then(|file| read_all(std::os::fd::AsFd::as_fd(&file)));
    match read {
        Ok(text) => Ok(Some(text)),
        Err(Errno::NOENT) => Ok(None),
        Err(source) => Err(CgroupError::System { operation: Operation::Read, path: path.to_owned(), source }),
    }
}

fn write_text(path: &Path, text: &str) -> Result<(), CgroupError> {
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
        .and_then(|file| write_once(std::os::fd::AsFd::as_fd(&file), text))
        .map_err(|source| CgroupError::System { operation: Operation::Write, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn roots(folder: &Path) -> SystemRoots {
        SystemRoots { proc_root: folder.join("proc"), sys_root: folder.join("sys") }
    }

    fn place(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn values_are_written_inside_their_range_and_when_they_differ() {
        let folder = tempfile::tempdir().unwrap();
        let roots = roots(folder.path());
        let file = SystemFile::MinFreeKbytes;
        assert_eq!(file.read(&roots), Ok(None));
        place(&file.path(&roots), "67584\n");
        assert_eq!(file.read(&roots), Ok(Some(67_584)));
        assert_eq!(file.write(&roots, 671_088), Ok(true));
        assert_eq!(file.write(&roots, 671_088), Ok(false));
        for (value, good) in [(10_239, false), (10_240, true), (10_485_760, true), (10_485_761, false)] {
            assert_eq!(file.write(&roots, value).is_ok(), good, "{value}");
        }
        let error = file.write(&roots, 6710).unwrap_err().to_string();
        assert!(error.contains("10240..10485760") && error.contains("6710"), "{error}");
        place(&SystemFile::SmtActive.path(&roots), "1\n");
        assert_eq!(SystemFile::SmtActive.read(&roots), Ok(Some(1)));
        assert!(SystemFile::SmtActive.write(&roots, 1).is_err());
        let missing = SystemFile::SchedCore.write(&roots, 1).unwrap_err();
        assert_eq!(missing.errno(), Some(Errno::NOENT.raw_os_error()));
    }

    #[test]
    fn every_file_has_a_place_of_its_own() {
        let roots = SystemRoots::default();
        let mut places: Vec<PathBuf> = SystemFile::ALL.iter().map(|file| file.path(&roots)).collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), SystemFile::ALL.len());
        assert_eq!(SystemFile::WatermarkScaleFactor.to_string(), "/proc/sys/vm/watermark_scale_factor");
    }

    #[test]
    fn features_of_the_scheduler() {
        let folder = tempfile::tempdir().unwrap();
        let roots = roots(folder.path());
        let path = roots.sys_root.join("kernel/debug/sched_features");
        assert_eq!(set_sched_feature(&roots, "CORE_SCHED", true), Ok(None));
        place(&path, "GENTLE NO_CORE_SCHED NO_X\n");
        assert_eq!(set_sched_feature(&roots, "ID_SCHED", true), Ok(None));
        assert_eq!(set_sched_feature(&roots, "CORE_SCHED", false), Ok(Some(false)));
        assert_eq!(set_sched_feature(&roots, "CORE_SCHED", true), Ok(Some(true)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "CORE_SCHED");
        assert_eq!(sched_feature("NO_NO_A A", "NO_A"), Some(false));
    }
}
