//! What the executor remembers.

use std::collections::HashMap;
use std::time::Instant;

use super::{Outcome, Owner, Released, VERIFY_AFTER};
use crate::files::Identity;
use crate::layout::Controller;
use crate::path::CgroupPath;
use crate::resource::Resource;
use crate::value::Value;

/// How often what happened since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Files written and read back.
    pub changed: u64,
    /// Files read that held the value.
    pub same: u64,
    /// Wishes that were known to hold, without a look at the file.
    pub fresh: u64,
    /// Wishes kept for later.
    pub deferred: u64,
    /// Wishes for groups that do not exist.
    pub gone: u64,
    /// Wishes for files that do not exist.
    pub unsupported: u64,
    /// Wishes refused by the kernel or by a check.
    pub failed: u64,
    /// Of the failed ones, those for a file of another owner.
    pub conflicts: u64,
    /// Writes to the kernel, failed ones and steps between included.
    pub kernel_writes: u64,
    /// Reads of files.
    pub kernel_reads: u64,
}

impl Counts {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Written => &mut self.changed,
            Outcome::Same => &mut self.same,
            Outcome::Deferred => &mut self.deferred,
            Outcome::Gone => &mut self.gone,
            Outcome::Unsupported => &mut self.unsupported,
            Outcome::Failed(_) => &mut self.failed,
        };
        *counter += 1;
    }
}

/// What is known of one file, or of one device's line in it.
#[derive(Debug, Clone)]
pub(super) struct FileState {
    pub(super) resource: Resource,
    /// The device of the line.
    pub(super) key: Option<Box<str>>,
    pub(super) owner: Owner,
    pub(super) wanted: Value,
    /// What was there before the first write.
    pub(super) before: Option<Value>,
    /// What was found last.
    pub(super) found: Option<Value>,
    /// When the file was known to hold the value; nothing if it does not, or may not.
    pub(super) verified: Option<Instant>,
    /// The value waits for the group to be idle no more.
    pub(super) is_deferred: bool,
}

/// What is known of one group.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupState {
    pub(super) identities: Vec<(Controller, Identity)>,
    pub(super) files: Vec<FileState>,
    /// Text of the file of shares before the group was made idle: shares or weight, which do not convert without loss.
    pub(super) shares_before_idle: Option<String>,
}

impl GroupState {
    pub(super) fn file(&self, resource: Resource, key: Option<&str>) -> Option<&FileState> {
        self.files.iter().find(|file| file.resource == resource && file.key.as_deref() == key)
    }

    pub(super) fn file_mut(&mut self, resource: Resource, key: Option<&str>) -> Option<&mut FileState> {
        self.files.iter_mut().find(|file| file.resource == resource && file.key.as_deref() == key)
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    groups: HashMap<CgroupPath, GroupState>,
    pub(super) counts: Counts,
}

impl State {
    pub(super) fn group(&self, path: &CgroupPath) -> Option<&GroupState> {
        self.groups.get(path)
    }

    pub(super) fn group_mut(&mut self, path: &CgroupPath) -> &mut GroupState {
        self.groups.entry(path.clone()).or_default()
    }

    /// Notes which directory a group has in a hierarchy. If it is another than before, all that was known of the old one
    /// is dropped.
    pub(super) fn identify(&mut self, path: &CgroupPath, controller: Controller, identity: Identity) {
        let Some(group) = self.groups.get_mut(path) else { return };
        match group.identities.iter().find(|(known, _)| *known == controller) {
            Some((_, known)) if *known == identity => {}
            Some(_) => {
                self.groups.remove(path);
            }
            None => group.identities.push((controller, identity)),
        }
    }

    /// The file if it was known to hold `wanted` not long ago.
    pub(super) fn fresh(
        &self,
        path: &CgroupPath,
        resource: Resource,
        key: Option<&str>,
        wanted: &Value,
        now: Instant,
    ) -> Option<&FileState> {
        let file = self.groups.get(path)?.file(resource, key)?;
        let age = now.saturating_duration_since(file.verified?);
        (file.wanted == *wanted && age <= VERIFY_AFTER).then_some(file)
    }

    pub(super) fn release(&mut self, chosen: impl Fn(&CgroupPath, &Owner) -> bool) -> Vec<Released> {
        let mut released = Vec::new();
        self.groups.retain(|path, group| {
            group.files.retain(|file| {
                let keep = !chosen(path, &file.owner);
                if !keep {
                    released.push(Released {
                        path: path.clone(),
                        resource: file.resource,
                        before: file.before.clone(),
                        wanted: file.wanted.clone(),
                    });
                }
                keep
            });
            !group.files.is_empty() || group.shares_before_idle.is_some()
        });
        released.sort_by(|one, other| (&one.path, one.resource).cmp(&(&other.path, other.resource)));
        released
    }

    pub(super) fn forget(&mut self, path: &CgroupPath) {
        self.groups.retain(|group, _| !path.contains(group));
    }

    pub(super) fn drop_group(&mut self, path: &CgroupPath) {
        self.groups.remove(path);
    }

    pub(super) fn expire(&mut self, path: &CgroupPath) {
        for (_, group) in self.groups.iter_mut().filter(|(group, _)| path.contains(group)) {
            for file in &mut group.files {
                file.verified = None;
            }
        }
    }

    pub(super) fn groups(&self) -> Vec<(CgroupPath, Vec<(Controller, Identity)>)> {
        self.groups.iter().map(|(path, group)| (path.clone(), group.identities.clone())).collect()
    }

    pub(super) fn owned(&self) -> usize {
        self.groups.values().map(|group| group.files.len()).sum()
    }
}
