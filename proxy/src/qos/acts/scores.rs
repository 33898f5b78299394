//! Scores for the out-of-memory killer, of processes that run already.

use std::path::Path;

use koord_cgroup::executor::Executor;
use koord_cgroup::oom;
use koord_cgroup::path::CgroupPath;

use super::{Acted, gone_or_failed};

/// The score of the first process of a group.
pub(in super::super) fn found(executor: &Executor, path: &CgroupPath, proc_root: &Path) -> Option<String> {
    let first = executor.pids(path).ok()?.into_iter().min()?;
    let file = proc_root.join(first.to_string()).join("oom_score_adj");
    std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

/// Gives all processes of a group a score.
pub(super) fn set(executor: &Executor, path: &CgroupPath, score: i64, proc_root: &Path) -> Acted {
    let before = found(executor, path, proc_root);
    match oom::set_scores(executor, path, score, proc_root) {
        Err(error) => gone_or_failed(&error),
        Ok(report) => match report.error {
            Some(error) => Acted::Failed(error.to_string()),
            None if report.changed + report.same == 0 => Acted::Gone,
            None => Acted::Done { before, changed: report.changed > 0 },
        },
    }
}
