//! Groups below groups, and the tasks in them.

use std::collections::BTreeSet;

use rustix::io::Errno;

use super::Executor;
use crate::error::{CgroupError, Operation};
use crate::layout::Controller;
use crate::path::CgroupPath;
use crate::resource::Resource;

/// Deepest nesting followed below a group.
const LEVELS: usize = 16;

impl Executor {
    /// Names of the groups right below one, sorted.
    pub fn children(&self, path: &CgroupPath) -> Result<Vec<String>, CgroupError> {
        let failed = |error| match error {
            Errno::NOENT | Errno::NODEV => CgroupError::Gone { path: path.to_string() },
            source => CgroupError::Kernel {
                operation: Operation::List,
                place: path.to_string(),
                value: None,
                hint: None,
                source,
            },
        };
        self.open(Controller::Cpu, path).and_then(|open| open.children()).map_err(failed)
    }

    /// The group and all below it, parents first. Groups that disappear meanwhile are left out.
    pub fn subtree(&self, path: &CgroupPath) -> Result<Vec<CgroupPath>, CgroupError> {
        let mut found = vec![path.clone()];
        let mut level = vec![path.clone()];
        for depth in 0..LEVELS {
            let mut next = Vec::new();
            for group in &level {
                match self.children(group) {
                    Ok(names) => {
                        // What the kernel lists are names; one that is none of ours to use is passed over.
                        next.extend(names.iter().filter_map(|name| group.child(name).ok()));
                    }
                    Err(error) if depth == 0 => return Err(error),
                    Err(_) => {}
                }
            }
            if next.is_empty() {
                break;
            }
            found.extend(next.iter().cloned());
            level = next;
        }
        Ok(found)
    }

    /// Ids of the processes in a group and all below it, sorted. Runtimes that nest (sandboxes in a machine of their own,
    /// an init system in a container) have none in the group itself.
    pub fn pids(&self, path: &CgroupPath) -> Result<Vec<i32>, CgroupError> {
        self.tasks_below(path, Resource::Procs)
    }

    /// Ids of the threads in a group and all below it, sorted.
    pub fn threads(&self, path: &CgroupPath) -> Result<Vec<i32>, CgroupError> {
        self.tasks_below(path, Resource::Tasks)
    }

    fn tasks_below(&self, path: &CgroupPath, resource: Resource) -> Result<Vec<i32>, CgroupError> {
        let Some(file) = resource.file(self.version()) else {
            return Err(CgroupError::Unsupported { path: path.to_string(), resource });
        };
        let mut tasks = BTreeSet::new();
        for group in self.subtree(path)? {
            let text = match self.open(file.controller, &group).and_then(|open| open.read(file.name)) {
                Ok(text) => text,
                // Gone meanwhile, or a threaded group, whose processes are its parent's.
                Err(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => continue,
                Err(error) => return Err(self.failed(Operation::Read, &group, resource, None, error)),
            };
            tasks.extend(parse_ids(&text));
        }
        Ok(tasks.into_iter().collect())
    }
}

/// Ids of a task list, one a line. 0 stands for a task outside the reader's namespace and is none.
pub(crate) fn parse_ids(text: &str) -> impl Iterator<Item = i32> + '_ {
    text.lines().filter_map(|line| line.trim().parse().ok()).filter(|id| *id > 0)
}
