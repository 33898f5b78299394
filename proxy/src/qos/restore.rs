//! Stepping aside: everything is put back as the kubelet asked for it.

use std::sync::Arc;
use std::time::Duration;

use koord_admin::{Mode, RestoreFailure, RestoreReport};
use koord_cgroup::executor::{Outcome, Write};
use koord_cgroup::path::CgroupPath;
use koord_hook::v1alpha1::LinuxContainerResources;
use koord_rules::Level as RuleLevel;

use super::acts::{self, Acted};
use super::apply::{owner, resource_of, value_to_restore};
use super::ledger::{Entry, KUBELET, Level};
use super::reconcile::Among;
use super::{Qos, locked};
use crate::backend_client::BackendClient;

/// How long the runtime may take to update one container.
const UPDATE_LIMIT: Duration = Duration::from_secs(5);

impl Qos {
    /// Goes to the mode `off` and puts back what the kubelet asked.
    ///
    /// The runtime is told first, so that what it remembers, and with it systemd, agrees; the files follow, also
    /// those that the runtime has just written.
    pub async fn restore(self: &Arc<Self>, runtime: &BackendClient) -> RestoreReport {
        self.set_mode(Mode::Off);
        self.wait_for_senders().await;
        let qos = self.clone();
        let prepared = self.async_runtime.spawn_blocking(move || {
            qos.wait_for_writers();
            // What rules wish for those that no round has looked at yet: an earlier proxy may have written just that.
            qos.look_at_pods(Mode::Shadow, Among::Unknown);
        });
        if let Err(error) = prepared.await {
            tracing::error!(%error, "waiting for writers of values ended in a panic");
        }
        let mut failed = Vec::new();
        for (id, known) in self.store.containers() {
            let Some(level) = self.ledger().container(&id) else { continue };
            if known.container.stopped.is_some() || !level.entries.iter().any(is_told) {
                continue;
            }
            let asked = level.asked.clone().unwrap_or_default();
            let told = told_to_put_back(&level, &self.node().all_cpus.to_string());
            match runtime.update_container_resources(&id, &told, UPDATE_LIMIT).await {
                Ok(()) => {
                    let mut record = (*known.container).clone();
                    record.resources = Some(asked);
                    self.store.update_container(&id, record);
                }
                Err(status) => failed.push(RestoreFailure {
                    pod: format!("{}/{}", known.pod.metadata.namespace, known.pod.metadata.name),
                    container: known.container.metadata.name.clone(),
                    field: "UpdateContainerResources".to_owned(),
                    error: status.message().to_owned(),
                }),
            }
        }
        let qos = self.clone();
        let mut report = match self.async_runtime.spawn_blocking(move || qos.restore_files()).await {
            Ok(report) => report,
            Err(error) => {
                tracing::error!(%error, "putting values back ended in a panic");
                RestoreReport { restored: 0, same: 0, failed: Vec::new(), mode: Mode::Off }
            }
        };
        report.failed.splice(0..0, failed);
        tracing::info!(
            restored = report.restored,
            same = report.same,
            failed = report.failed.len(),
            "values of the kubelet put back"
        );
        report
    }

    fn restore_files(&self) -> RestoreReport {
        let mut report = RestoreReport { restored: 0, same: 0, failed: Vec::new(), mode: Mode::Off };
        // Containers first: a limit of the kubelet's may be below what a container has now.
        for (id, known) in self.store.containers() {
            let Some(level) = self.ledger().container(&id) else { continue };
            let mut level = (*level).clone();
            let pod = format!("{}/{}", known.pod.metadata.namespace, known.pod.metadata.name);
            let path = self.container_path(&id, &known.container, &known.pod);
            let name = known.container.metadata.name.clone();
            self.restore_level(path.as_ref(), RuleLevel::Container, &mut level, &mut report, &pod, &name);
            self.ledger().put_container(&id, level);
        }
        for (id, pod) in self.store.pods() {
            let Some(level) = self.ledger().pod(&id) else { continue };
            let mut level = (*level).clone();
            let name = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
            let mut sandbox = acts::take_sandbox(&mut level);
            let path = self.sandbox_path(&id, &pod);
            self.restore_level(path.as_ref(), RuleLevel::Container, &mut sandbox, &mut report, &name, "");
            let path = self.pod_path(&pod);
            self.restore_level(path.as_ref(), RuleLevel::Pod, &mut level, &mut report, &name, "");
            self.ledger().put_pod(&id, level);
        }
        let classes = std::mem::take(&mut locked(&self.dirty).classes);
        for (name, mut level) in classes {
            let class = super::reconcile::class_of(name);
            let path = class.map(|class| self.executor().layout().qos_dir(class));
            self.restore_level(path.as_ref(), RuleLevel::QosDirectory, &mut level, &mut report, "", "");
        }
        self.restore_node(&mut report);
        report
    }

    pub(super) fn restore_level(
        &self,
        path: Option<&CgroupPath>,
        at: RuleLevel,
        level: &mut Level,
        report: &mut RestoreReport,
        pod: &str,
        container: &str,
    ) {
        let mut fields = Vec::new();
        let mut writes = Vec::new();
        for entry in level.entries.iter().filter(|entry| entry.is_owned() && entry.sent.is_some()) {
            let Some(path) = path else { continue };
            if let Some(undone) = self.undo(path, at, entry) {
                match undone {
                    Acted::Done { changed: true, .. } => report.restored += 1,
                    Acted::Done { changed: false, .. } => report.same += 1,
                    Acted::Gone => {}
                    Acted::Failed(error) => report.failed.push(RestoreFailure {
                        pod: pod.to_owned(),
                        container: container.to_owned(),
                        field: entry.field.to_string(),
                        error,
                    }),
                }
                continue;
            }
            let Some(resource) = resource_of(&entry.field) else { continue };
            let Some(value) = value_to_restore(entry) else { continue };
            writes.push(Write { path: path.clone(), resource, value, owner: owner() });
            fields.push(entry.field.clone());
        }
        for (field, written) in fields.iter().zip(self.write_all(&writes)) {
            match written.result {
                Outcome::Written => report.restored += 1,
                Outcome::Same => report.same += 1,
                // What is gone needs nothing.
                Outcome::Gone | Outcome::Unsupported => {}
                Outcome::Deferred => report.restored += 1,
                Outcome::Failed(error) => report.failed.push(RestoreFailure {
                    pod: pod.to_owned(),
                    container: container.to_owned(),
                    field: field.to_string(),
                    error: error.to_string(),
                }),
            }
        }
        if let Some(path) = path {
            self.executor().release_in(path, &owner());
        }
        level.problems.clear();
        level.entries.retain_mut(|entry| {
            if !entry.is_owned() {
                return true;
            }
            entry.owner = KUBELET.into();
            entry.reason = "put back".into();
            entry.wished = None;
            entry.sent.clone_from(&entry.asked);
            entry.asked.is_some()
        });
    }
}

/// Whether the runtime may remember another value than the kubelet's: also of an entry that a file carries now, since a
/// request can have carried it in the life of a proxy that was killed before it had noted that.
fn is_told(entry: &Entry) -> bool {
    let is_limit =
        matches!(&*entry.field, "cpu.shares" | "cpu.cfs_quota_us" | "memory.limit_in_bytes" | "cpuset.cpus");
    entry.changes() && (is_limit || !entry.by_file)
}

/// What the runtime is told of a container: what the kubelet asked, and "no limit" where it asked nothing and has one now.
///
/// A field that is not set keeps its value: files would be put back, and the limit would come back with the next update
/// that the kubelet sends, or when systemd, which remembers what the runtime told it, reads its units again.
fn told_to_put_back(level: &Level, all_cpus: &str) -> LinuxContainerResources {
    let mut told = level.asked.clone().unwrap_or_default();
    for entry in level.entries.iter().filter(|entry| is_told(entry) && entry.asked.is_none()) {
        match &*entry.field {
            "cpu.cfs_quota_us" if told.cpu_quota == 0 => told.cpu_quota = -1,
            "memory.limit_in_bytes" if told.memory_limit_in_bytes == 0 => told.memory_limit_in_bytes = -1,
            "cpuset.cpus" if told.cpuset_cpus.is_empty() => all_cpus.clone_into(&mut told.cpuset_cpus),
            _ => {}
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_nobody_asked_are_taken_away_at_the_runtime_too() {
        let mut level = Level { asked: Some(LinuxContainerResources::default()), ..Level::default() };
        for (field, asked) in
            [("cpu.cfs_quota_us", None), ("memory.limit_in_bytes", None), ("cpu.shares", Some("2"))]
        {
            let entry = level.entry_mut(field);
            entry.owner = "BatchResource".into();
            entry.asked = asked.map(Into::into);
            entry.sent = Some("50000".into());
        }
        let told = told_to_put_back(&level, "0-3");
        assert_eq!((told.cpu_quota, told.memory_limit_in_bytes, told.cpu_shares), (-1, -1, 0));
        assert_eq!(told.cpuset_cpus, "");

        // A file carries it now: a request may have carried it before.
        level.entry_mut("cpu.cfs_quota_us").by_file = true;
        assert_eq!(told_to_put_back(&level, "0-3").cpu_quota, -1);
        let cpus = level.entry_mut("cpuset.cpus");
        (cpus.owner, cpus.sent) = ("CpuSet".into(), Some("2".into()));
        assert_eq!(told_to_put_back(&level, "0-3").cpuset_cpus, "0-3");

        // What the kubelet asked is told as it is, and what nobody changed is not told.
        level.entry_mut("memory.limit_in_bytes").owner = KUBELET.into();
        level.entry_mut("cpu.cfs_quota_us").asked = Some("20000".into());
        level.entry_mut("cpuset.cpus").asked = Some("1".into());
        level.asked = Some(LinuxContainerResources {
            cpu_quota: 20000,
            cpuset_cpus: "1".into(),
            ..LinuxContainerResources::default()
        });
        let told = told_to_put_back(&level, "0-3");
        assert_eq!((told.cpu_quota, told.memory_limit_in_bytes, &*told.cpuset_cpus), (20000, 0, "1"));
    }

    #[test]
    fn the_runtime_is_told_of_values_that_a_request_can_carry() {
        let mut level = Level::default();
        let entry = level.entry_mut("cpu.bvt_warp_ns");
        (entry.owner, entry.sent, entry.by_file) = ("GroupIdentity".into(), Some("-1".into()), true);
        assert!(!level.entries.iter().any(is_told));
        let entry = level.entry_mut("cpu.shares");
        (entry.asked, entry.sent) = (Some("2".into()), Some("512".into()));
        assert!(!level.entries.iter().any(is_told), "it is the kubelet's");
        level.entry_mut("cpu.shares").owner = "BatchResource".into();
        for by_file in [false, true] {
            level.entry_mut("cpu.shares").by_file = by_file;
            assert!(level.entries.iter().any(is_told));
        }
    }
}
