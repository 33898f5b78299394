//! Scores for the out-of-memory killer, of all processes of a group.
//!
//! A process may end, and its id be given to another, between the moment it is listed and the moment it is written to. So
//! its directory below `/proc` is opened first, and written through only if the id is still listed afterwards: then the
//! open directory is that of a process of the group, or of one that has ended and takes no writes any more.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{CgroupError, Operation};
use crate::executor::Executor;
use crate::files::{read_all, write_once};
use crate::path::CgroupPath;

/// Lowest score: never killed.
pub const SCORE_MIN: i64 = -1000;
/// Highest score: killed first.
pub const SCORE_MAX: i64 = 1000;

/// File with the score, in a process's directory.
const FILE: &str = "oom_score_adj";
/// How often the list is read again for processes that started meanwhile.
const ROUNDS: usize = 5;

/// What became of the processes of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OomReport {
    /// Processes whose score was changed.
    pub changed: usize,
    /// Processes that had it already.
    pub same: usize,
    /// Processes that ended meanwhile.
    pub ended: usize,
    /// Processes that could not be changed; the first error.
    pub failed: usize,
    /// The first of the errors.
    pub error: Option<CgroupError>,
}

/// Gives all processes of a group and of all below it a score (`-1000..1000`). `proc_root` is `/proc`. Processes inherit
/// the score of their parent, so once is enough unless something is put into the group from outside.
pub fn set_scores(
    executor: &Executor,
    path: &CgroupPath,
    score: i64,
    proc_root: &Path,
) -> Result<OomReport, CgroupError> {
    set_scores_of(|| executor.pids(path), score, proc_root)
}

/// The same for whatever `list` lists.
pub fn set_scores_of(
    list: impl Fn() -> Result<Vec<i32>, CgroupError>,
    score: i64,
    proc_root: &Path,
) -> Result<OomReport, CgroupError> {
    if !(SCORE_MIN..=SCORE_MAX).contains(&score) {
        return Err(CgroupError::Score { score });
    }
    let mut report = OomReport::default();
    let mut handled = BTreeSet::new();
    for _ in 0..ROUNDS {
        let new: Vec<i32> = list()?.into_iter().filter(|pid| !handled.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        let open: Vec<(i32, Result<OwnedFd, Errno>)> =
            new.iter().map(|pid| (*pid, open_process(proc_root, *pid))).collect();
        let still: BTreeSet<i32> = list()?.into_iter().collect();
        for (pid, process) in open {
            handled.insert(pid);
            let result = match process {
                Ok(process) if still.contains(&pid) => set_score(&process, score),
                Ok(_) => Err(Errno::SRCH),
                Err(error) => Err(error),
            };
            match result {
                Ok(true) => report.changed += 1,
                Ok(false) => report.same += 1,
                Err(Errno::SRCH | Errno::NOENT) => report.ended += 1,
                Err(source) => {
                    report.failed += 1;
                    report.error.get_or_insert_with(|| CgroupError::System {
                        operation: Operation::Write,
                        path: process_path(proc_root, pid).join(FILE),
                        source,
                    });
                }
            }
        }
    }
    Ok(report)
}

fn process_path(proc_root: &Path, pid: i32) -> PathBuf {
    proc_root.join(pid.to_string())
}

fn open_process(proc_root: &Path, pid: i32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, process_path(proc_root, pid), flags, Mode::empty())
}

/// True if it was another before.
fn set_score(process: &OwnedFd, score: i64) -> Result<bool, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(process, FILE, flags, Mode::empty())?;
    let found = read_all(file.as_fd())?;
    if found.trim().parse::<i64>().is_ok_and(|found| found == score) {
        return Ok(false);
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    write_once(file.as_fd(), &score.to_string())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    fn process(root: &Path, pid: i32, score: &str) {
        let folder = process_path(root, pid);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(FILE), score).unwrap();
    }

    fn score(root: &Path, pid: i32) -> String {
        fs::read_to_string(process_path(root, pid).join(FILE)).unwrap()
    }

    #[test]
    fn scores_are_written_where_they_differ() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 7, "0\n");
        process(root.path(), 8, "200\n");
        let report = set_scores_of(|| Ok(vec![7, 8, 9]), 200, root.path()).unwrap();
        assert_eq!((report.changed, report.same, report.ended, report.failed), (1, 1, 1, 0));
        assert_eq!(score(root.path(), 7).trim(), "200");
        let again = set_scores_of(|| Ok(vec![7, 8]), 200, root.path()).unwrap();
        assert_eq!((again.changed, again.same), (0, 2));
    }

    #[test]
    fn a_process_that_left_the_group_is_left_alone_and_a_new_one_is_found() {
        let root = tempfile::tempdir().unwrap();
        for pid in [7, 8, 9] {
            process(root.path(), pid, "0");
        }
        let reads = Cell::new(0);
        // Read first: 7, 8. Then 8 is gone and 9 came.
        let list = || {
            reads.set(reads.get() + 1);
            Ok(if reads.get() == 1 { vec![7, 8] } else { vec![7, 9] })
        };
        let report = set_scores_of(list, -500, root.path()).unwrap();
        assert_eq!((report.changed, report.ended), (2, 1));
        assert_eq!([7, 8, 9].map(|pid| score(root.path(), pid)), ["-500", "0", "-500"]);
    }

    #[test]
    fn scores_outside_are_refused() {
        let root = tempfile::tempdir().unwrap();
        for score in [-1001, 1001] {
            assert_eq!(set_scores_of(|| Ok(vec![1]), score, root.path()), Err(CgroupError::Score { score }));
        }
        for score in [-1000, 1000] {
            assert_eq!(set_scores_of(|| Ok(vec![]), score, root.path()), Ok(OomReport::default()));
        }
    }
}
