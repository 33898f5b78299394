//! The sandbox's own (pause) container: a few rules mean it too, and it has no record of its own.
//!
//! What was written into its cgroup is recorded with its pod, under names that begin with `sandbox`.

use koord_cgroup::driver::RuntimeName;
use koord_cgroup::path::CgroupPath;
use koord_intercept::record::PodRecord;
use koord_rules::{Asked, ContainerView, Field, Level as RuleLevel, Value};

use super::super::Qos;
use super::super::apply::Which;
use super::super::ledger::{Entry, Level};

const PREFIX: &str = "sandbox ";

/// The name of the sandbox's field behind an entry of its pod.
pub(in super::super) fn field_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

/// Takes the sandbox's entries out of its pod's.
pub(in super::super) fn take(pod: &mut Level) -> Level {
    let mut sandbox = Level::default();
    pod.entries.retain_mut(|entry| {
        let Some(field) = field_of(&entry.field) else { return true };
        let field = field.into();
        sandbox.entries.push(Entry { field, ..std::mem::take(entry) });
        false
    });
    sandbox
}

/// Puts them back, those that were written or could not be.
pub(in super::super) fn put(pod: &mut Level, sandbox: Level) {
    for entry in sandbox.entries {
        if entry.changes() {
            pod.entries.push(Entry { field: format!("{PREFIX}{}", entry.field).into(), ..entry });
        }
    }
    for problem in sandbox.problems {
        if !pod.problems.contains(&problem) {
            pod.problems.push(problem);
        }
    }
}

impl Qos {
    /// The cgroup of a pod's sandbox, if it is there.
    pub(in super::super) fn sandbox_path(&self, id: &str, pod: &PodRecord) -> Option<CgroupPath> {
        let parent = self.pod_path(pod)?;
        let executor = self.executor();
        [RuntimeName::Containerd, RuntimeName::CriO]
            .into_iter()
            .filter_map(|runtime| executor.container(&parent, runtime, id).ok())
            .find(|path| executor.exists(path))
    }

    /// Writes what rules wish for a sandbox.
    pub(in super::super) fn write_sandbox(
        &self,
        id: &str,
        pod: &std::sync::Arc<PodRecord>,
        sandbox: &mut Level,
    ) {
        let node = self.node();
        let known = self.facts(Some(id), pod);
        let asked = Asked::default();
        let view = ContainerView { name: "", asked: &asked, memory_request: None, is_sandbox: true };
        let mut plan = koord_rules::container_with(&node.view, &known.view, &known.facts, &view);
        // All CPUs, or none of its own, mean nothing where nobody asked for fewer.
        if sandbox.entry(&Field::CpusetCpus.as_str()).is_none() {
            let says_nothing = |value: &Value| matches!(value, Value::Cpus(cpus) if cpus.is_empty() || *cpus == node.all_cpus);
            plan.wishes.retain(|wish| wish.field != Field::CpusetCpus || !says_nothing(&wish.value));
        }
        if plan.wishes.is_empty() && sandbox.entries.is_empty() {
            return;
        }
        if let Some(path) = self.sandbox_path(id, pod) {
            self.carry_out(&path, RuleLevel::Container, &plan, sandbox, Which::All);
        }
    }
}
