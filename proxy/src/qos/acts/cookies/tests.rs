//! Cookies of a kernel that is made up, and what the running kernel says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::super::super::locked;
use super::*;

/// A kernel that gives out cookies. A clone is another handle of the same one.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct ModelCookies(Arc<Mutex<Model>>);

#[derive(Debug, Default)]
struct Model {
    cookies: BTreeMap<i32, u64>,
    made: u64,
}

impl ModelCookies {
    pub(in super::super) fn of(pids: &[i32]) -> Self {
        let model = Self::default();
        locked(&model.0).cookies = pids.iter().map(|pid| (*pid, NONE)).collect();
        model
    }

    pub(in super::super) fn cookie(&self, pid: i32) -> Option<u64> {
        locked(&self.0).cookies.get(&pid).copied()
    }

    fn set(&self, pid: i32, cookie: u64) {
        locked(&self.0).cookies.insert(pid, cookie);
    }

    fn end(&self, pid: i32) {
        locked(&self.0).cookies.remove(&pid);
    }

    fn made(&self) -> u64 {
        locked(&self.0).made
    }
}

impl CookieCalls for ModelCookies {
    fn supported(&self) -> bool {
        true
    }

    fn get(&self, pid: i32) -> io::Result<u64> {
        self.cookie(pid).ok_or_else(|| Errno::SRCH.into())
    }

    fn create(&self, pid: i32) -> io::Result<()> {
        let mut model = locked(&self.0);
        model.made += 1;
        let cookie = 1000 + model.made;
        *model.cookies.get_mut(&pid).ok_or(Errno::SRCH)? = cookie;
        Ok(())
    }

    fn share(&self, from: Option<i32>, to: &[i32]) -> io::Result<usize> {
        let cookie = from.map_or(Ok(NONE), |from| self.get(from))?;
        let mut model = locked(&self.0);
        let mut count = 0;
        for pid in to {
            if let Some(own) = model.cookies.get_mut(pid) {
                *own = cookie;
                count += 1;
            }
        }
        Ok(count)
    }
}

#[test]
fn containers_of_a_group_share_a_cookie_and_others_do_not() {
    let kernel = ModelCookies::of(&[1, 2, 3, 4, 5]);
    let mut groups = CookieGroups::default();
    assert_eq!(groups.give(&kernel, "a", "g", &[1, 2]), Acted::done(true));
    assert_eq!(groups.give(&kernel, "b", "g", &[3]), Acted::done(true));
    // The group without a name is one too.
    assert_eq!(groups.give(&kernel, "c", "", &[4, 5]), Acted::done(true));
    let cookies = [1, 2, 3, 4, 5].map(|pid| kernel.cookie(pid).unwrap());
    assert_eq!(cookies, [1001, 1001, 1001, 1002, 1002]);
    assert_eq!(groups.give(&kernel, "a", "g", &[1, 2]), Acted::done(false));
    assert_eq!(kernel.made(), 2);
    // Nobody is there any more.
    assert_eq!(groups.give(&kernel, "a", "g", &[8, 9]), Acted::Gone);
    assert_eq!(groups.give(&kernel, "a", "g", &[]), Acted::Gone);
}

#[test]
fn a_task_from_outside_gets_the_cookie_of_a_sibling_that_still_has_it() {
    let kernel = ModelCookies::of(&[1, 2, 3]);
    let mut groups = CookieGroups::default();
    groups.give(&kernel, "a", "g", &[1, 2]);
    // The first one has ended, and its number is another task's.
    kernel.set(1, 77);
    assert_eq!(groups.give(&kernel, "b", "g", &[3]), Acted::done(true));
    assert_eq!((kernel.cookie(3), kernel.cookie(1)), (Some(1001), Some(77)));
    assert_eq!(kernel.made(), 1);
    // With no sibling left the group begins anew.
    kernel.end(2);
    kernel.end(3);
    kernel.set(4, NONE);
    assert_eq!(groups.give(&kernel, "c", "g", &[4]), Acted::done(true));
    assert_eq!((kernel.cookie(4), kernel.made()), (Some(1002), 2));
}

#[test]
fn cookies_of_an_earlier_life_are_taken_over() {
    let kernel = ModelCookies::of(&[1, 2, 3, 4]);
    for (pid, cookie) in [(1, 50), (2, 50), (3, 60), (4, 50)] {
        kernel.set(pid, cookie);
    }
    let mut groups = CookieGroups::default();
    assert_eq!(groups.give(&kernel, "a", "g", &[1, 2]), Acted::done(false));
    // Two cookies of one group: the first one counts.
    assert_eq!(groups.give(&kernel, "b", "g", &[3]), Acted::done(true));
    assert_eq!(kernel.cookie(3), Some(50));
    // A cookie that is another group's is not taken over.
    assert_eq!(groups.give(&kernel, "c", "other", &[4]), Acted::done(true));
    assert_eq!(kernel.cookie(4), Some(1001));
}

#[test]
fn a_container_that_changes_groups_leaves_no_member_behind() {
    let kernel = ModelCookies::of(&[1, 2]);
    let mut groups = CookieGroups::default();
    groups.give(&kernel, "a", "g", &[1]);
    groups.give(&kernel, "a", "h", &[1]);
    assert_eq!(kernel.cookie(1), Some(1002));
    groups.give(&kernel, "b", "g", &[2]);
    assert_eq!(kernel.cookie(2), Some(1003));
}

#[test]
fn cookies_are_taken_away_where_there_are_any() {
    let kernel = ModelCookies::of(&[1, 2]);
    let mut groups = CookieGroups::default();
    groups.give(&kernel, "a", "g", &[1]);
    assert!(groups.forget("a") && !groups.forget("a"));
    assert_eq!(clear(&kernel, &[1, 2]), Acted::done(true));
    assert_eq!((kernel.cookie(1), kernel.cookie(2)), (Some(NONE), Some(NONE)));
    assert_eq!(clear(&kernel, &[1, 2]), Acted::done(false));
    groups.sweep(&kernel);
    assert!(groups.groups.is_empty());
}

/// On a kernel with core scheduling a child gets a cookie and loses it; another one says that it has none.
#[test]
fn the_running_kernel_answers() {
    let kernel = KernelCookies::default();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
    let pid = i32::try_from(child.id()).expect("a process id");
    let created = kernel.create(pid);
    if !kernel.supported() {
        let error = created.expect_err("no core scheduling").raw_os_error();
        assert_eq!(error, Some(Errno::INVAL.raw_os_error()));
        assert!(kernel.get(pid).is_err() && kernel.share(Some(pid), &[pid]).is_err());
    } else if let Err(error) = created {
        assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()), "cores have one thread");
    } else {
        let cookie = kernel.get(pid).expect("a cookie");
        assert_ne!(cookie, NONE);
        assert_eq!(kernel.get(rustix::process::getpid().as_raw_nonzero().get()).expect("read"), NONE);
        assert_eq!(clear(&kernel, &[pid]), Acted::done(true));
        assert_eq!(kernel.get(pid).expect("read"), NONE);
    }
    assert!(kernel.get(0).is_err());
    child.kill().expect("ended");
    child.wait().expect("ended");
}
