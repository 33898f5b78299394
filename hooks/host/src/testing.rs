//! A recorder of counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use koord_hook::{FailurePolicy, HookType};

use crate::metrics::{HookMetrics, HookResult};

/// Remembers how often each thing was counted, by a text like `rejected a.json`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<BTreeMap<String, u32>>>);

impl Recorder {
    pub(crate) fn count(&self, what: &str) -> u32 {
        self.0.lock().expect("lock").get(what).copied().unwrap_or_default()
    }

    fn add(&self, what: String) {
        *self.0.lock().expect("lock").entry(what).or_default() += 1;
    }
}

impl HookMetrics for Recorder {
    fn hook_called(
        &self,
        server: &str,
        hook: HookType,
        result: HookResult,
        policy: FailurePolicy,
        _elapsed: Duration,
    ) {
        self.add(format!("called {server} {hook} {} {}", result.as_str(), policy.as_str()));
    }

    fn hook_fail_open(&self, hook: HookType, reason: &'static str) {
        self.add(format!("open {hook} {reason}"));
    }

    fn config_loaded(&self, file: &str) {
        self.add(format!("loaded {file}"));
    }

    fn config_rejected(&self, file: &str) {
        self.add(format!("rejected {file}"));
    }

    fn config_removed(&self, file: &str) {
        self.add(format!("removed {file}"));
    }
}
