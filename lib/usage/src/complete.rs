//! What only the sum of all tells: the usage of the system itself.

use std::time::Duration;

use crate::inventory::Inventory;
use crate::pass::Pass;

/// Which memory of host applications is subtracted from the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostApplicationMemory {
    /// Without page cache.
    #[default]
    WithoutPageCache,
    /// With page cache.
    WithPageCache,
}

/// How usage of the system is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionOptions {
    /// Figures older than this are not subtracted.
    pub outdated_after: Duration,
    /// Which memory of host applications counts.
    pub host_application_memory: HostApplicationMemory,
}

impl Default for CompletionOptions {
    /// 10 s, without page cache.
    fn default() -> CompletionOptions {
        CompletionOptions {
            outdated_after: Duration::from_secs(10),
            host_application_memory: HostApplicationMemory::default(),
        }
    }
}

/// Keeps the latest figures and completes passes.
#[derive(Debug, Default)]
pub struct Completion {
    options: CompletionOptions,
}

impl Completion {
    /// One without figures.
    pub fn new(options: CompletionOptions) -> Completion {
        Completion { options }
    }

    /// Changes the options; figures stay.
    pub fn set_options(&mut self, options: CompletionOptions) {
        self.options = options;
    }

    /// Takes the samples of node, NUMA nodes, pods and host applications from `pass` and appends those of the system.
    /// `live` is what was to be measured: what is not in it leaves the sums at once.
    pub fn complete(&mut self, pass: &mut Pass, live: &Inventory) {
        let _ = (pass, live);
    }
}
