//! Lowering a limit of memory below what is in use.
//!
//! Version 1 refuses the limit (EBUSY) until the group uses less; version 2 takes it, reclaims, and kills what does not
//! fit. Neither is what a rule wants, so a limit goes down by steps:
//! - version 1: the soft limit at once, so that reclaim aims there; the limit each second for 30 seconds; then the caller
//!   is told that it stays busy;
//! - version 2: `memory.high` first; up to 5 seconds for the use to fall; then `memory.max`, come what may.
//!
//! [`next`] decides, without I/O and without waiting; [`MemoryLowering`] takes one step at a time and says when to come
//! back, so nobody's thread is held.

use std::time::{Duration, Instant};

use koord_extension::units::Bytes;

use crate::error::CgroupError;
use crate::executor::{Executor, Outcome, Owner, Write, Written, usage};
use crate::path::CgroupPath;
use crate::resource::Resource;
use crate::value::{UNLIMITED, Value};
use crate::version::CgroupVersion;

/// Between two tries on version 1.
pub const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How long version 1 is tried.
pub const RETRY_FOR: Duration = Duration::from_secs(30);
/// Between two looks at the use on version 2.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the use may take to fall on version 2.
pub const FALL_WITHIN: Duration = Duration::from_secs(5);

/// What a lowering has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// The soft limit (version 1) or `memory.high` (version 2) is at the wanted value, or cannot be.
    pub is_aimed: bool,
    /// Time of the last try to set the limit, since the start.
    pub last_try: Option<Duration>,
}

/// The next step of a lowering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Aim reclaim at the wanted value.
    Aim,
    /// Set the limit if the use lets it; version 1 refuses it otherwise.
    Try,
    /// Set the limit, whatever is in use.
    Force,
    /// Come back at this time since the start.
    WaitUntil(Duration),
    /// Give up.
    GiveUp,
}

/// Decides the next step, `elapsed` after the start, with `usage` in use if that is known.
pub fn next(
    version: CgroupVersion,
    elapsed: Duration,
    done: Done,
    usage: Option<Bytes>,
    wanted: Bytes,
) -> Action {
    if !done.is_aimed {
        return Action::Aim;
    }
    let fits = usage.is_some_and(|usage| usage.0 <= wanted.0);
    match version {
        CgroupVersion::V1 => match done.last_try {
            None => Action::Try,
            Some(last) if elapsed >= last + RETRY_EVERY => {
                if last >= RETRY_FOR {
                    Action::GiveUp
                } else {
                    Action::Try
                }
            }
            Some(last) => Action::WaitUntil(last + RETRY_EVERY),
        },
        CgroupVersion::V2 if fits => Action::Try,
        CgroupVersion::V2 if elapsed >= FALL_WITHIN => Action::Force,
        CgroupVersion::V2 => Action::WaitUntil((elapsed + LOOK_EVERY).min(FALL_WITHIN)),
    }
}

/// How a lowering stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It is over: the limit is set, or the group is gone, or something else refused it.
    Over(Written),
    /// Call [`MemoryLowering::step`] again at this time.
    Again(Instant),
    /// The group kept using more than the limit for as long as was tried (version 1). Memory eviction should look here
    /// first.
    StillBusy(CgroupError),
}

/// A limit on its way down.
#[derive(Debug, Clone)]
pub struct MemoryLowering {
    path: CgroupPath,
    owner: Owner,
    /// Owns what is used to aim, for as long as that is needed.
    aim_owner: Owner,
    wanted: Bytes,
    started: Instant,
    done: Done,
    /// What `memory.high` was before it was used to aim, to put back.
    high_before: Option<Value>,
}

impl MemoryLowering {
    /// Starts to lower the limit of a group, after [`Executor::apply`] answered [`CgroupError::Busy`].
    pub fn new(path: CgroupPath, owner: Owner, wanted: Bytes, now: Instant) -> MemoryLowering {
        let aim_owner = Owner::new(&format!("{owner} lowering a limit"));
        MemoryLowering {
            path,
            owner,
            aim_owner,
            wanted,
            started: now,
            done: Done::default(),
            high_before: None,
        }
    }

    /// The group.
    pub fn path(&self) -> &CgroupPath {
        &self.path
    }

    /// The limit it goes to.
    pub const fn wanted(&self) -> Bytes {
        self.wanted
    }

    /// Does what is due.
    pub fn step(&mut self, executor: &Executor, now: Instant) -> Progress {
        let version = executor.layout().version();
        loop {
            let elapsed = now.saturating_duration_since(self.started);
            match next(version, elapsed, self.done, usage(executor, &self.path), self.wanted) {
                Action::Aim => {
                    self.done.is_aimed = true;
                    if let Some(gone) = self.aim(executor) {
                        return Progress::Over(gone);
                    }
                }
                Action::WaitUntil(time) => return Progress::Again(self.started + time),
                Action::GiveUp => {
                    self.unaim(executor);
                    let used = usage(executor, &self.path).map_or(0, |used| used.0);
                    return Progress::StillBusy(CgroupError::Busy {
                        path: self.path.to_string(),
                        wanted: self.wanted.0,
                        usage: used,
                    });
                }
                action @ (Action::Try | Action::Force) => {
                    self.done.last_try = Some(elapsed);
                    let write = self.wish(Resource::MemoryLimit, Value::Integer(self.wanted.0), &self.owner);
                    let written = match action {
                        Action::Force => executor.apply_though_it_kills(&write),
                        _ => executor.apply(std::slice::from_ref(&write)).pop(),
                    };
                    let Some(written) = written else { continue };
                    match written.result {
                        // Version 2: more came into use since the look.
                        Outcome::Failed(CgroupError::Busy { .. }) => {
                            let wait = if version == CgroupVersion::V1 { RETRY_EVERY } else { LOOK_EVERY };
                            return Progress::Again(now + wait);
                        }
                        _ => {
                            self.unaim(executor);
                            return Progress::Over(written);
                        }
                    }
                }
            }
        }
    }

    /// Ends the lowering without the limit: what was used to aim is put back.
    pub fn cancel(mut self, executor: &Executor) {
        self.unaim(executor);
    }

    fn wish(&self, resource: Resource, value: Value, owner: &Owner) -> Write {
        Write { path: self.path.clone(), resource, value, owner: owner.clone() }
    }

    /// An answer if there is no group any more.
    fn aim(&mut self, executor: &Executor) -> Option<Written> {
        let resource = match executor.layout().version() {
            CgroupVersion::V1 => Resource::MemorySoftLimit,
            CgroupVersion::V2 => Resource::MemoryHigh,
        };
        let wish = self.wish(resource, Value::Integer(self.wanted.0), &self.aim_owner);
        let written = executor.apply(&[wish]).pop()?;
        match written.result {
            Outcome::Gone => Some(written),
            Outcome::Written => {
                self.high_before = written.before;
                None
            }
            // Somebody owns it, or it is not there: without aim the use falls later, or by force.
            _ => None,
        }
    }

    /// `memory.high` at the limit would throttle for good. The soft limit of version 1 does no harm and stays.
    fn unaim(&mut self, executor: &Executor) {
        if executor.layout().version() == CgroupVersion::V2
            && let Some(before) = self.high_before.take()
        {
            let before = if before.integer().is_some() { before } else { Value::Integer(UNLIMITED) };
            // If the group is gone, so is its memory.high; anything else shows at the next look of its owner.
            let _answer = executor.apply(&[self.wish(Resource::MemoryHigh, before, &self.aim_owner)]);
        }
        executor.release_in(&self.path, &self.aim_owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::CgroupDriver;
    use crate::layout::Layout;
    use crate::testing::ModelKernel;

    const PATH: &str = "kubepods/podu/c";

    fn bed(version: CgroupVersion) -> (ModelKernel, Executor, CgroupPath) {
        let kernel = ModelKernel::new(version, 2);
        kernel.make(PATH);
        let layout = Layout::new("/model", version, CgroupDriver::Cgroupfs, "").unwrap().with_page_size(4096);
        let executor = Executor::builder(layout).files(kernel.clone()).build();
        let path = CgroupPath::new(PATH, executor.layout()).unwrap();
        (kernel, executor, path)
    }

    #[test]
    fn version_1_is_tried_each_second_for_30_seconds() {
        let (v1, wanted) = (CgroupVersion::V1, Bytes(10));
        let at = |seconds, done| next(v1, Duration::from_secs(seconds), done, Some(Bytes(20)), wanted);
        let tried = |seconds| Done { is_aimed: true, last_try: Some(Duration::from_secs(seconds)) };
        assert_eq!(at(0, Done::default()), Action::Aim);
        assert_eq!(at(0, Done { is_aimed: true, last_try: None }), Action::Try);
        assert_eq!(at(0, tried(0)), Action::WaitUntil(Duration::from_secs(1)));
        assert_eq!(at(1, tried(0)), Action::Try);
        assert_eq!(at(30, tried(29)), Action::Try);
        assert_eq!(at(30, tried(30)), Action::WaitUntil(Duration::from_secs(31)));
        assert_eq!(at(31, tried(30)), Action::GiveUp);
    }

    #[test]
    fn version_2_waits_5_seconds_for_the_use_to_fall() {
        let aimed = Done { is_aimed: true, last_try: None };
        let at =
            |millis, usage| next(CgroupVersion::V2, Duration::from_millis(millis), aimed, usage, Bytes(10));
        assert_eq!(at(0, Some(Bytes(11))), Action::WaitUntil(Duration::from_millis(250)));
        assert_eq!(at(0, Some(Bytes(10))), Action::Try);
        assert_eq!(at(4900, Some(Bytes(11))), Action::WaitUntil(Duration::from_secs(5)));
        assert_eq!(at(4900, None), Action::WaitUntil(Duration::from_secs(5)));
        assert_eq!(at(5000, Some(Bytes(11))), Action::Force);
        assert_eq!(at(5000, Some(Bytes(10))), Action::Try);
    }

    #[test]
    fn a_busy_limit_of_version_1_is_set_when_the_use_falls() {
        let (kernel, executor, path) = bed(CgroupVersion::V1);
        kernel.set(PATH, "memory.usage_in_bytes", "8192");
        let start = Instant::now();
        let mut lowering = MemoryLowering::new(path, Owner::new("rule"), Bytes(4096), start);
        assert_eq!(lowering.step(&executor, start), Progress::Again(start + RETRY_EVERY));
        assert_eq!(kernel.text(PATH, "memory.soft_limit_in_bytes").unwrap(), "4096");
        assert_eq!(lowering.step(&executor, start), Progress::Again(start + RETRY_EVERY));
        kernel.set(PATH, "memory.usage_in_bytes", "4096");
        let Progress::Over(written) = lowering.step(&executor, start + RETRY_EVERY) else {
            panic!("not over");
        };
        assert_eq!((written.result, written.before), (Outcome::Written, Some(Value::Integer(-1))));
        assert_eq!(kernel.text(PATH, "memory.limit_in_bytes").unwrap(), "4096");
    }

    #[test]
    fn a_limit_of_version_1_that_stays_busy_is_told() {
        let (kernel, executor, path) = bed(CgroupVersion::V1);
        kernel.set(PATH, "memory.usage_in_bytes", "8192");
        let start = Instant::now();
        let mut lowering = MemoryLowering::new(path, Owner::new("rule"), Bytes(4096), start);
        let mut now = start;
        let mut tries = 0;
        let error = loop {
            match lowering.step(&executor, now) {
                Progress::Again(time) => {
                    tries += 1;
                    now = time;
                }
                Progress::StillBusy(error) => break error,
                Progress::Over(written) => panic!("{written:?}"),
            }
        };
        assert_eq!((tries, now - start), (31, Duration::from_secs(31)));
        assert_eq!(error, CgroupError::Busy { path: PATH.to_owned(), wanted: 4096, usage: 8192 });
    }

    #[test]
    fn version_2_aims_waits_and_forces() {
        for falls in [true, false] {
            let (kernel, executor, path) = bed(CgroupVersion::V2);
            kernel.set(PATH, "memory.current", "8192");
            let start = Instant::now();
            let mut lowering = MemoryLowering::new(path, Owner::new("rule"), Bytes(4096), start);
            assert_eq!(lowering.step(&executor, start), Progress::Again(start + LOOK_EVERY));
            assert_eq!(kernel.text(PATH, "memory.high").unwrap(), "4096");
            assert_eq!(kernel.text(PATH, "memory.max").unwrap(), "max");
            let end = if falls {
                kernel.set(PATH, "memory.current", "4096");
                start + LOOK_EVERY
            } else {
                start + FALL_WITHIN
            };
            let Progress::Over(written) = lowering.step(&executor, end) else { panic!("not over") };
            assert_eq!(written.result, Outcome::Written);
            assert_eq!(kernel.text(PATH, "memory.max").unwrap(), "4096");
            assert_eq!(kernel.text(PATH, "memory.high").unwrap(), "max");
            // What was used to aim is free again; the limit has its owner.
            assert_eq!(executor.owned(), 1);
        }
    }

    #[test]
    fn a_group_that_goes_away_ends_it() {
        for version in [CgroupVersion::V1, CgroupVersion::V2] {
            let (kernel, executor, path) = bed(version);
            kernel.remove("kubepods/podu");
            let start = Instant::now();
            let mut lowering = MemoryLowering::new(path, Owner::new("rule"), Bytes(4096), start);
            let Progress::Over(written) = lowering.step(&executor, start) else { panic!("not over") };
            assert_eq!(written.result, Outcome::Gone);
        }
    }
}
