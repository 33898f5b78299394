//! What the host counts, said to whoever keeps the counters.

use std::fmt;
use std::time::Duration;

use koord_hook::{FailurePolicy, HookType};

/// How a hook call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookResult {
    /// The hook answered.
    Ok,
    /// The hook could not be reached, refused, or answered something unusable.
    Error,
    /// The hook did not answer in time.
    Timeout,
}

impl HookResult {
    /// The name used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
        }
    }
}

/// Keeps the counts of hook calls and of the files that name hooks.
pub trait HookMetrics: fmt::Debug + Send + Sync + 'static {
    /// One hook call has ended after `elapsed`.
    fn hook_called(
        &self,
        server: &str,
        hook: HookType,
        result: HookResult,
        policy: FailurePolicy,
        elapsed: Duration,
    );

    /// A hook call was skipped or failed while the CRI call went on; `reason` is one of a fixed set.
    fn hook_fail_open(&self, hook: HookType, reason: &'static str);

    /// The content of a registration file or library came into force.
    fn config_loaded(&self, file: &str);

    /// A registration file or library was rejected; its previous valid content, if any, stays in force.
    fn config_rejected(&self, file: &str);

    /// A registration file or library is gone.
    fn config_removed(&self, file: &str);
}

/// Counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetrics;

impl HookMetrics for NoMetrics {
    fn hook_called(&self, _: &str, _: HookType, _: HookResult, _: FailurePolicy, _: Duration) {}
    fn hook_fail_open(&self, _: HookType, _: &'static str) {}
    fn config_loaded(&self, _: &str) {}
    fn config_rejected(&self, _: &str) {}
    fn config_removed(&self, _: &str) {}
}
