//! What the writer of cgroups did.

use koord_cgroup::executor::{Observer, Owner, Write, WriteEvent};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    file: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FileLabel {
    file: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModeLabel {
    mode: &'static str,
}

/// Counts writes to files of cgroups, and tells the mode.
#[derive(Debug, Clone, Default)]
pub struct WriteCounter {
    writes: Family<WriteLabels, Counter>,
    conflicts: Family<FileLabel, Counter>,
    mode: Family<ModeLabel, Gauge>,
}

impl WriteCounter {
    /// Creates the metrics and registers them; `registry` adds the prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let counter = Self::default();
        registry.register(
            "cgroup_writes",
            "Values wished for files of cgroups, by what became of them",
            counter.writes.clone(),
        );
        registry.register(
            "cgroup_conflicts",
            "Values refused because another part of the program owns the file",
            counter.conflicts.clone(),
        );
        registry.register("qos_mode", "1 for the mode in force of rules and hooks", counter.mode.clone());
        counter
    }

    /// Tells the mode in force.
    pub fn mode(&self, mode: koord_admin::Mode) {
        for known in koord_admin::Mode::ALL {
            self.mode.get_or_create(&ModeLabel { mode: known.as_str() }).set(i64::from(known == mode));
        }
    }
}

impl WriteCounter {
    /// Counts a value and what became of it.
    pub fn written(&self, file: &'static str, result: &'static str) {
        self.writes.get_or_create(&WriteLabels { file, result }).inc();
    }

    /// Counts a value that was refused to a second owner.
    pub fn refused(&self, file: &'static str) {
        self.conflicts.get_or_create(&FileLabel { file }).inc();
    }
}

impl Observer for WriteCounter {
    fn handled(&self, event: &WriteEvent<'_>) {
        self.written(event.write.resource.as_str(), event.written.result.as_str());
    }

    fn conflict(&self, write: &Write, holder: &Owner) {
        tracing::warn!(cgroup = %write.path, file = write.resource.as_str(), %holder, "two owners of one file");
        self.refused(write.resource.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mode_is_in_force() {
        let mut registry = Registry::default();
        let counter = WriteCounter::register(&mut registry);
        counter.mode(koord_admin::Mode::Enforce);
        counter.mode(koord_admin::Mode::Shadow);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes any text");
        for line in
            ["qos_mode{mode=\"enforce\"} 0", "qos_mode{mode=\"shadow\"} 1", "qos_mode{mode=\"off\"} 0"]
        {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
