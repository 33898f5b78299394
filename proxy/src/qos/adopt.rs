//! What pods and containers had before this proxy knew them: what the kubelet asked, or what a proxy before it wrote.

use koord_cgroup::path::CgroupPath;
use koord_hook::v1alpha1::LinuxContainerResources;
use koord_rules::{Plan, Rule};

use super::Qos;
use super::apply::resource_of;
use super::ledger::Level;

impl Qos {
    /// Finds out what the kubelet has set on a pod's cgroup, before it is written to. Returns the fields that were not
    /// known.
    pub(super) fn find_asked(&self, path: &CgroupPath, level: &mut Level) -> Vec<&'static str> {
        let mut new = Vec::new();
        for field in ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes"] {
            if level.entry(field).is_some() {
                continue;
            }
            let Some(found) = resource_of(field).and_then(|file| self.executor().read(path, file).ok())
            else {
                continue;
            };
            let entry = level.entry_mut(field);
            entry.asked = Some(found.to_string().into());
            entry.sent.clone_from(&entry.asked);
            entry.reason = "as found in the cgroup".into();
            entry.by_file = true;
            new.push(field);
        }
        new
    }
}

/// What the kubelet gives a pod or container that asks for no CPU (MinShares).
const LEAST_SHARES: i64 = 2;

/// Values that were found and are what a rule wishes anyway: a proxy wrote them that was killed before it had noted what
/// the kubelet asked. Only for batch resources is it known what that was: pods that have them ask for nothing else.
pub(super) fn disown(level: &mut Level, plan: &Plan, is_new: impl Fn(&str) -> bool) {
    for wish in plan.wishes.iter().filter(|wish| wish.rule == Rule::BatchResource) {
        let (field, value) = (wish.field.as_str(), wish.value.to_string());
        let unlimited = value == "-1";
        let found = level.entry(&field).is_some_and(|entry| entry.asked.as_deref() == Some(&value));
        if !found || unlimited || !is_new(&field) {
            continue;
        }
        let mut nothing = LinuxContainerResources::default();
        let told = level.asked.as_mut().unwrap_or(&mut nothing);
        let asked = match &*field {
            "cpu.shares" => {
                told.cpu_shares = LEAST_SHARES;
                Some(LEAST_SHARES.to_string().into())
            }
            "cpu.cfs_quota_us" => {
                told.cpu_quota = 0;
                None
            }
            "memory.limit_in_bytes" => {
                told.memory_limit_in_bytes = 0;
                None
            }
            _ => continue,
        };
        level.entry_mut(&field).asked = asked;
    }
}

pub(super) fn asked_of_level(level: &Level) -> koord_rules::Asked {
    let number = |field: &str| level.entry(field)?.asked.as_ref()?.parse().ok();
    koord_rules::Asked {
        cpu_shares: number("cpu.shares"),
        cpu_quota: number("cpu.cfs_quota_us"),
        cpu_period: number("cpu.cfs_period_us"),
        memory_limit: number("memory.limit_in_bytes"),
        ..koord_rules::Asked::default()
    }
}
