//! What only the sum of all tells: the usage of the system itself, which is neither in a pod nor in a host application.
//!
//! It is the node's usage less that of all pods and host applications. All four are taken from a board of latest figures, and
//! nothing is said when one of them is missing or too old: a pod that is not measured would be taken for the system. A pod
//! that is gone leaves the sum at once.

mod board;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::board::{Board, HostApplicationSums, NumaFigures, PodSums, Reading};
use crate::inventory::Inventory;
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::Pass;
use crate::time::Tick;

/// Which memory of host applications is subtracted from the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostApplicationMemory {
    /// Without page cache.
    #[default]
    WithoutPageCache,
    /// With page cache and the kernel's own.
    WithPageCache,
}

/// How usage of the system is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletionOptions {
    /// Figures older than this are not subtracted.
    pub outdated_after: Duration,
    /// Time between two samples of a pod's memory. Twice as much is never too old.
    pub memory_interval: Duration,
    /// Which memory of host applications counts.
    pub host_application_memory: HostApplicationMemory,
}

impl Default for CompletionOptions {
    /// 10 s, memory each 5 s, without page cache.
    fn default() -> CompletionOptions {
        CompletionOptions {
            outdated_after: Duration::from_secs(10),
            memory_interval: Duration::from_secs(5),
            host_application_memory: HostApplicationMemory::default(),
        }
    }
}

impl CompletionOptions {
    fn memory_outdated_after(&self) -> Duration {
        self.outdated_after.max(self.memory_interval.saturating_mul(2))
    }
}

/// Keeps the latest figures and completes passes.
#[derive(Debug, Default)]
pub struct Completion {
    options: CompletionOptions,
    board: Board,
    newest: Tick,
}

impl Completion {
    /// One without figures.
    pub fn new(options: CompletionOptions) -> Completion {
        Completion { options, ..Completion::default() }
    }

    /// Changes the options; figures stay.
    pub const fn set_options(&mut self, options: CompletionOptions) {
        self.options = options;
    }

    /// The latest figures.
    pub const fn board(&self) -> &Board {
        &self.board
    }

    /// Takes the samples of node, NUMA nodes, pods and host applications from `pass` and appends those of the system, in place
    /// of such as it has already.
    ///
    /// `live` is what was to be measured: what is not in it leaves the sums at once. A node without pods has sums of zero, and
    /// so has one without host applications, as those may not be running; pods all without a sample are a failure: the last
    /// sum of their CPU stays until it is too old.
    ///
    /// A pass that is older than the newest only loses its samples of the system: the board does not go back.
    pub fn complete(&mut self, pass: &mut Pass, live: &Inventory) {
        pass.samples.retain(|sample| !is_of_system(sample.kind));
        if pass.tick < self.newest {
            return;
        }
        self.newest = pass.tick;
        self.board.take(pass, live, &self.options);
        let now = pass.tick;
        let Board { pods, host_applications, .. } = &self.board;
        let fresh = |reading: Option<Reading>| self.fresh(reading, now);
        // Like from like: each kind of memory with itself.
        let less =
            |node, pods, applications| Some((fresh(node)? - fresh(pods)? - fresh(applications)?).max(0.0));
        let cpu = less(self.board.node_cpu, pods.cpu, host_applications.cpu);
        let memory = less(self.board.node_memory, pods.memory, host_applications.counted_memory);
        // Both or none.
        if let (Some(cpu), Some(memory)) = (cpu, memory) {
            pass.push(Object::Node, Kind::SystemCpuUsage, cpu);
            pass.push(Object::Node, Kind::SystemMemoryUsage, memory);
            for (numa, share) in self.numa_cpu(now) {
                pass.push(Object::Numa(numa), Kind::SystemNumaCpuUsage, cpu * share);
            }
        }
        let others = [
            (
                Kind::SystemMemoryUsageWithPageCache,
                less(
                    self.board.node_memory_with_page_cache,
                    pods.memory_with_page_cache,
                    host_applications.memory_with_page_cache,
                ),
            ),
            (
                Kind::SystemMemoryWithHotPageUsage,
                less(
                    self.board.node_memory_with_hot_page,
                    pods.memory_with_hot_page,
                    host_applications.memory_with_hot_page,
                ),
            ),
        ];
        for (kind, value) in others {
            if let Some(value) = value {
                pass.push(Object::Node, kind, value);
            }
        }
        for (numa, value) in self.numa_memory(now) {
            pass.push(Object::Numa(numa), Kind::SystemNumaMemoryUsage, value);
        }
    }

    fn fresh(&self, reading: Option<Reading>, now: Tick) -> Option<f64> {
        reading
            .filter(|reading| now.since(reading.tick) <= self.options.outdated_after)
            .map(|reading| reading.value)
    }

    /// The share of each NUMA node in the CPU of all; nothing if one is not known.
    fn numa_cpu(&self, now: Tick) -> Vec<(u32, f64)> {
        let figures: Option<Vec<(u32, f64)>> = self
            .board
            .numa
            .iter()
            .map(|(&numa, figures)| Some((numa, self.fresh(figures.cpu, now)?)))
            .collect();
        let mut figures = figures.unwrap_or_default();
        let sum: f64 = figures.iter().map(|(_, cpu)| cpu).sum();
        for (_, cpu) in &mut figures {
            *cpu = if sum > 0.0 { *cpu / sum } else { 0.0 };
        }
        figures
    }

    /// Memory of each NUMA node that no pod uses; nothing without figures of pods.
    fn numa_memory(&self, now: Tick) -> Vec<(u32, f64)> {
        let numa = &self.board.numa;
        let pods_known = numa.values().any(|figures| figures.pods_memory.is_some());
        let only_one = numa.len() == 1;
        let pods = |figures: &NumaFigures| match figures.pods_memory {
            Some(reading) => self.fresh(Some(reading), now),
            None if pods_known => Some(0.0),
            // What pods use lies on the only node that there is.
            None if only_one => self.fresh(self.board.pods.memory, now),
            None => None,
        };
        numa.iter()
            .filter_map(|(&numa, figures)| {
                let (node, pods) = (self.fresh(figures.memory, now)?, pods(figures)?);
                Some((numa, (node - pods).max(0.0)))
            })
            .collect()
    }
}

const fn is_of_system(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::SystemCpuUsage
            | Kind::SystemMemoryUsage
            | Kind::SystemNumaCpuUsage
            | Kind::SystemNumaMemoryUsage
            | Kind::SystemMemoryUsageWithPageCache
            | Kind::SystemMemoryWithHotPageUsage
    )
}
