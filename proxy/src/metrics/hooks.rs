//! The counts of hook calls and registrations, as the host of the hooks reports them.

use std::time::Duration;

use koord_hooks::metrics::{HookMetrics, HookResult};
use koord_intercept::HookType;

use super::Metrics;
use crate::registration::FailurePolicy;

impl HookMetrics for Metrics {
    fn hook_called(
        &self,
        server: &str,
        hook: HookType,
        result: HookResult,
        policy: FailurePolicy,
        elapsed: Duration,
    ) {
        Self::hook_called(self, server, hook.as_str(), result, policy.as_str(), elapsed);
    }

    fn hook_fail_open(&self, hook: HookType, reason: &'static str) {
        Self::hook_fail_open(self, hook.as_str(), reason);
    }

    fn config_loaded(&self, file: &str) {
        self.hook_config_loaded(file);
    }

    fn config_rejected(&self, file: &str) {
        self.hook_config_rejected(file);
    }

    fn config_removed(&self, file: &str) {
        self.hook_config_removed(file);
    }
}
