//! Cookies of core scheduling: tasks with the same one may run on the threads of one core at the same moment
//! (`prctl(PR_SCHED_CORE)`, Linux 5.14).
//!
//! The kernel makes a cookie for a task and hands it on from task to task; its number says nothing but whether
//! two are the same. What a task starts has its cookie, so one hand-over after a container's start is enough,
//! and later ones are for tasks that came in from outside.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::io;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{
    CoreSchedulingScope, core_scheduling_cookie, create_core_scheduling_cookie, pull_core_scheduling_cookie,
    push_core_scheduling_cookie,
};

use super::Acted;

/// The cookie of tasks that have none.
const NONE: u64 = 0;

/// What the kernel does.
pub(super) trait CookieCalls: Send + Sync + Debug {
    /// Whether it does it at all.
    fn supported(&self) -> bool;
    /// The cookie of a process's first task.
    fn get(&self, pid: i32) -> io::Result<u64>;
    /// Gives all tasks of a process a new cookie.
    fn create(&self, pid: i32) -> io::Result<()>;
    /// Gives all tasks of processes the cookie of the process `from`, or no cookie; tells for how many it worked.
    fn share(&self, from: Option<i32>, to: &[i32]) -> io::Result<usize>;
}

/// The running kernel.
#[derive(Debug, Default)]
pub(super) struct KernelCookies {
    supported: OnceLock<bool>,
}

fn pid(id: i32) -> io::Result<Pid> {
    Pid::from_raw(id).ok_or_else(|| io::Error::from(Errno::SRCH))
}

impl CookieCalls for KernelCookies {
    fn supported(&self) -> bool {
        *self.supported.get_or_init(|| {
            let own = core_scheduling_cookie(rustix::process::getpid(), CoreSchedulingScope::Thread);
            // It says "no device" where it could, and no core has a second thread.
            matches!(own, Ok(_) | Err(Errno::NODEV))
        })
    }

    fn get(&self, id: i32) -> io::Result<u64> {
        Ok(core_scheduling_cookie(pid(id)?, CoreSchedulingScope::Thread)?)
    }

    fn create(&self, id: i32) -> io::Result<()> {
        Ok(create_core_scheduling_cookie(pid(id)?, CoreSchedulingScope::ThreadGroup)?)
    }

    fn share(&self, from: Option<i32>, to: &[i32]) -> io::Result<usize> {
        let work = || {
            match from {
                Some(from) => pull_core_scheduling_cookie(pid(from)?, CoreSchedulingScope::Thread)?,
                // A thread starts with the cookie of the one that started it.
                None if core_scheduling_cookie(rustix::thread::gettid(), CoreSchedulingScope::Thread)?
                    != NONE =>
                {
                    return Err(io::Error::other("this process has a cookie itself; it must be without one"));
                }
                None => {}
            }
            let push = |id: &i32| {
                pid(*id)
                    .is_ok_and(|id| push_core_scheduling_cookie(id, CoreSchedulingScope::ThreadGroup).is_ok())
            };
            Ok(to.iter().filter(|id| push(id)).count())
        };
        // A thread of its own takes the cookie and ends with it: no other work of this process runs with it.
        std::thread::scope(|scope| {
            scope.spawn(work).join().unwrap_or_else(|_| Err(io::Error::other("the thread ended in a panic")))
        })
    }
}

/// A group that has a cookie.
#[derive(Debug)]
struct Group {
    cookie: u64,
    members: BTreeSet<i32>,
}

/// Which group has which cookie, and which container is in which group.
#[derive(Debug, Default)]
pub(super) struct CookieGroups {
    groups: HashMap<String, Group>,
    containers: HashMap<String, String>,
}

impl CookieGroups {
    /// Gives the processes of a container the cookie of a group, which is made if there is none.
    pub(super) fn give(
        &mut self,
        calls: &dyn CookieCalls,
        container: &str,
        group: &str,
        pids: &[i32],
    ) -> Acted {
        let found: Vec<(i32, u64)> =
            pids.iter().filter_map(|pid| calls.get(*pid).ok().map(|cookie| (*pid, cookie))).collect();
        let Some(first) = found.first().map(|(pid, _)| *pid) else { return Acted::Gone };
        self.enter(container, group, pids);
        if !self.groups.contains_key(group)
            && let Some((_, cookie)) = found.iter().find(|(_, cookie)| *cookie != NONE)
            && !self.groups.values().any(|known| known.cookie == *cookie)
        {
            // Given in an earlier life of this process.
            self.groups.insert(group.to_owned(), Group { cookie: *cookie, members: BTreeSet::new() });
        }
        let cookie = self.groups.get(group).map(|known| known.cookie);
        let (same, differing): (Vec<_>, Vec<_>) = found.iter().partition(|(_, found)| Some(*found) == cookie);
        let same: Vec<i32> = same.into_iter().map(|(pid, _)| pid).collect();
        let mut differing: Vec<i32> = differing.into_iter().map(|(pid, _)| pid).collect();
        if let Some(known) = self.groups.get_mut(group) {
            known.members.extend(&same);
            if differing.is_empty() {
                return Acted::done(false);
            }
            // Stale members: ended, or another process by now.
            known.members.retain(|pid| calls.get(*pid).is_ok_and(|found| found == known.cookie));
        }
        let sibling = self.groups.get(group).and_then(|known| known.members.first().copied());
        let from = match sibling {
            Some(sibling) => sibling,
            None => {
                if let Err(error) = calls.create(first) {
                    return failed("a cookie cannot be made", &error);
                }
                let cookie = match calls.get(first) {
                    Ok(cookie) => cookie,
                    Err(error) => return failed("the new cookie cannot be read", &error),
                };
                differing.retain(|pid| *pid != first);
                let members = BTreeSet::from([first]);
                self.groups.insert(group.to_owned(), Group { cookie, members });
                first
            }
        };
        if differing.is_empty() {
            return Acted::done(true);
        }
        // Single ones that have ended meanwhile are no failure; those that were missed are found next time.
        match calls.share(Some(from), &differing) {
            Ok(_) => {
                if let Some(known) = self.groups.get_mut(group) {
                    known.members.extend(differing);
                }
                Acted::done(true)
            }
            Err(error) => failed("the cookie cannot be handed on", &error),
        }
    }

    /// Notes the container's group, and takes its processes out of the one it was in.
    fn enter(&mut self, container: &str, group: &str, pids: &[i32]) {
        let left = self.containers.insert(container.to_owned(), group.to_owned());
        if let Some(left) = left.filter(|left| left != group)
            && let Some(left) = self.groups.get_mut(&left)
        {
            left.members.retain(|pid| !pids.contains(pid));
        }
    }

    /// Forgets a container; true if it was in a group.
    pub(super) fn forget(&mut self, container: &str) -> bool {
        self.containers.remove(container).is_some()
    }

    /// The containers that are in a group.
    pub(super) fn containers(&self) -> impl Iterator<Item = &str> {
        self.containers.keys().map(String::as_str)
    }

    /// Forgets groups of which no process is left.
    pub(super) fn sweep(&mut self, calls: &dyn CookieCalls) {
        self.groups.retain(|_, group| {
            group.members.retain(|pid| calls.get(*pid).is_ok_and(|cookie| cookie == group.cookie));
            !group.members.is_empty()
        });
    }
}

/// Takes the cookies of processes away.
pub(super) fn clear(calls: &dyn CookieCalls, pids: &[i32]) -> Acted {
    let with_one: Vec<i32> =
        pids.iter().copied().filter(|pid| calls.get(*pid).is_ok_and(|cookie| cookie != NONE)).collect();
    if with_one.is_empty() {
        return Acted::done(false);
    }
    match calls.share(None, &with_one) {
        Ok(_) => Acted::done(true),
        Err(error) => failed("cookies cannot be taken away", &error),
    }
}

fn failed(what: &str, error: &io::Error) -> Acted {
    Acted::Failed(format!("{what}: {error}"))
}

#[cfg(test)]
pub(super) mod tests;
