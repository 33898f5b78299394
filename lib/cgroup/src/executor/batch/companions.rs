//! Files that must change along with another: shares of an idle group, the burst of a quota.

use rustix::io::Errno;

use super::Batch;
use crate::layout::Controller;
use crate::path::CgroupPath;
use crate::resource::{Resource, number_of};
use crate::value::Value;
use crate::weight::SHARES_MIN;

impl Batch<'_> {
    pub(super) fn is_idle(&mut self, path: &CgroupPath) -> bool {
        self.read(Controller::Cpu, path, "cpu.idle").is_ok_and(|text| text.trim() == "1")
    }

    /// Keeps the shares of a group that is about to be idle: the kernel forgets them.
    pub(super) fn note_shares(&mut self, path: &CgroupPath) {
        let Some(file) = Resource::CpuShares.file(self.executor.version()) else { return };
        if self.is_idle(path) {
            return;
        }
        if let Ok(text) = self.read(file.controller, path, file.name) {
            self.executor.lock_state().group_mut(path).shares_before_idle = Some(text.trim().to_owned());
        }
    }

    /// Gives a group that is idle no more its shares: the wanted ones, else those it had before, else the fewest. Without
    /// this the kernel gives it 1024.
    pub(super) fn restore_shares(&mut self, path: &CgroupPath) -> Result<(), Errno> {
        let (version, conversion) = (self.executor.version(), self.executor.conversion());
        let (wanted, before) = {
            let mut state = self.executor.lock_state();
            let now = self.now;
            let group = state.group_mut(path);
            let before = group.shares_before_idle.take();
            let wanted = group.file_mut(Resource::CpuShares, None).map(|file| {
                file.is_deferred = false;
                file.verified = Some(now);
                file.found = Some(file.wanted.clone());
                file.wanted.clone()
            });
            (wanted, before)
        };
        let text = match (wanted, before) {
            (None, Some(before)) => before,
            (wanted, _) => Resource::CpuShares
                .to_kernel_text(&wanted.unwrap_or(Value::Integer(SHARES_MIN)), version, conversion)
                .map_err(|_| Errno::INVAL)?,
        };
        let file = Resource::CpuShares.file(version).ok_or(Errno::NOENT)?;
        self.write(file.controller, path, file.name, &text)
    }

    /// Lowers the burst to a new quota below it, which the kernel demands. True if it was more.
    pub(super) fn lower_burst(&mut self, path: &CgroupPath, quota: i64) -> bool {
        let Some(file) = Resource::CpuBurst.file(self.executor.version()) else { return false };
        let Ok(text) = self.read(file.controller, path, file.name) else { return false };
        if number_of(text.trim()).is_none_or(|burst| burst <= quota) {
            return false;
        }
        if let Some(file) = self.executor.lock_state().group_mut(path).file_mut(Resource::CpuBurst, None) {
            file.verified = None;
        }
        self.write(file.controller, path, file.name, &quota.to_string()).is_ok()
    }
}
