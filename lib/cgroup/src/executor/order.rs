//! In which order a batch is written.
//!
//! On version 1 the kernel checks a write against the groups above and below: no child may have more quota, or CPUs that
//! its parent has not. So what grows is written from the top down, then what shrinks from the bottom up. A CPU set that
//! does both first holds the union. In one group the burst stays within the quota, the limit of memory within that of memory
//! and swap, and shares are written while the group is not idle.

use koord_extension::cpuset::CpuSet;

use crate::path::CgroupPath;
use crate::resource::{Resource, extent};
use crate::value::Value;

/// A file whose value differs from the wanted one.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) path: CgroupPath,
    pub(super) resource: Resource,
    pub(super) before: Option<Value>,
    pub(super) wanted: Value,
}

/// One write to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// Which change it belongs to.
    pub(super) change: usize,
    pub(super) value: Value,
    /// A step on the way, not the wanted value.
    pub(super) is_interim: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Groups that are idle no more, and their shares.
    ClearIdle,
    Widen,
    Neutral,
    Narrow,
    /// Groups made idle.
    SetIdle,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Direction {
    Widen,
    Narrow,
    /// Both: the union on the way.
    Mixed(CpuSet),
    Neutral,
}

fn direction(change: &Change) -> Direction {
    let Some(before) = &change.before else { return Direction::Neutral };
    if let (Value::Cpus(before), Value::Cpus(wanted)) = (before, &change.wanted) {
        // An empty set stands for all the parent has.
        return match (before.is_empty(), wanted.is_empty()) {
            (true, true) => Direction::Neutral,
            (true, false) => Direction::Narrow,
            (false, true) => Direction::Widen,
            _ if before.is_subset(wanted) => Direction::Widen,
            _ if wanted.is_subset(before) => Direction::Narrow,
            _ => Direction::Mixed(before.union(wanted)),
        };
    }
    match (extent(change.resource, before), extent(change.resource, &change.wanted)) {
        (Some(before), Some(wanted)) if wanted > before => Direction::Widen,
        (Some(before), Some(wanted)) if wanted < before => Direction::Narrow,
        _ => Direction::Neutral,
    }
}

/// Place among files of one group: the outer bound before the inner when widening, after it when narrowing.
const fn rank(resource: Resource) -> i64 {
    match resource {
        Resource::MemorySwapLimit => 0,
        Resource::CpuQuota | Resource::MemoryLimit => 1,
        Resource::CpuPeriod => 2,
        Resource::CpuBurst | Resource::MemoryHigh => 3,
        Resource::MemoryLow => 4,
        Resource::MemoryMin => 5,
        _ => 2,
    }
}

/// The writes for these changes, in their order.
pub(super) fn order(changes: &[Change]) -> Vec<Step> {
    let clears_idle = |path: &CgroupPath| {
        changes.iter().any(|change| {
            change.path == *path && change.resource == Resource::CpuIdle && change.wanted == Value::Integer(0)
        })
    };
    let mut keyed = Vec::with_capacity(changes.len());
    for (index, change) in changes.iter().enumerate() {
        let depth = i64::try_from(change.path.depth()).unwrap_or(i64::MAX);
        let rank = rank(change.resource);
        let mut push = |phase, depth: i64, rank: i64, value: Value, is_interim| {
            keyed.push(((phase, depth, rank, index), Step { change: index, value, is_interim }));
        };
        let wanted = change.wanted.clone();
        match (change.resource, &change.wanted) {
            (Resource::CpuIdle, Value::Integer(0)) => push(Phase::ClearIdle, depth, 0, wanted, false),
            (Resource::CpuIdle, _) => push(Phase::SetIdle, -depth, 0, wanted, false),
            (Resource::CpuShares, _) if clears_idle(&change.path) => {
                push(Phase::ClearIdle, depth, 1, wanted, false);
            }
            _ => match direction(change) {
                Direction::Widen => push(Phase::Widen, depth, rank, wanted, false),
                Direction::Narrow => push(Phase::Narrow, -depth, -rank, wanted, false),
                Direction::Neutral => push(Phase::Neutral, depth, rank, wanted, false),
                Direction::Mixed(union) => {
                    // Alone the change needs no detour: the kernel compares with the groups above and below only.
                    let has_relative = changes.iter().enumerate().any(|(other, relative)| {
                        other != index
                            && relative.resource == change.resource
                            && (relative.path.contains(&change.path) || change.path.contains(&relative.path))
                    });
                    if has_relative {
                        push(Phase::Widen, depth, rank, Value::Cpus(union), true);
                    }
                    push(Phase::Narrow, -depth, -rank, wanted, false);
                }
            },
        }
    }
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, step)| step).collect()
}
