//! The ledger's record of one call while its hooks and rules are asked.

use std::borrow::Cow;

use koord_hook::v1alpha1::LinuxContainerResources;
use koord_intercept::record::ContainerRecord;
use koord_rules::Plan;

use super::carry::Carried;
use super::ledger::{Level, Problem};

/// What stands for a value that is not shown.
const REDACTED: &str = "<redacted>";

/// Fields of resources that a request carries, as texts; `None` for what it does not say.
pub fn texts(resources: &LinuxContainerResources) -> Vec<(Cow<'_, str>, Option<String>)> {
    let number = |value: i64| (value != 0).then(|| value.to_string());
    let text = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    let mut texts = vec![
        (Cow::Borrowed("cpu.shares"), number(resources.cpu_shares)),
        (Cow::Borrowed("cpu.cfs_quota_us"), number(resources.cpu_quota)),
        (Cow::Borrowed("cpu.cfs_period_us"), number(resources.cpu_period)),
        (Cow::Borrowed("cpuset.cpus"), text(&resources.cpuset_cpus)),
        (Cow::Borrowed("cpuset.mems"), text(&resources.cpuset_mems)),
        (Cow::Borrowed("memory.limit_in_bytes"), number(resources.memory_limit_in_bytes)),
        (Cow::Borrowed("memory.memsw.limit_in_bytes"), number(resources.memory_swap_limit_in_bytes)),
        (Cow::Borrowed("oom_score_adj"), Some(resources.oom_score_adj.to_string())),
    ];
    texts.extend(
        resources.unified.iter().map(|(file, text)| (Cow::Borrowed(file.as_str()), Some(text.clone()))),
    );
    texts
}

/// A level of the ledger in the making.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// Name of the container; empty for a pod.
    name: String,
    level: Level,
    /// What is asked was not asked of this proxy: the runtime told of it.
    adopted: bool,
}

impl Draft {
    /// Begins with what the kubelet asks of a container.
    pub fn of_container(name: &str, asked: LinuxContainerResources) -> Self {
        let mut level = Level::default();
        for (field, value) in texts(&asked) {
            if let Some(value) = value {
                let entry = level.entry_mut(&field);
                entry.asked = Some(value.into());
                entry.reason = "as asked".into();
            }
        }
        level.asked = Some(asked);
        Self { name: name.to_owned(), level, adopted: false }
    }

    /// Begins with what the runtime was told of a container before this proxy knew it, and what a request changes.
    pub fn of_adopted_container(name: &str, asked: LinuxContainerResources) -> Self {
        Self { adopted: true, ..Self::of_container(name, asked) }
    }

    /// Begins a pod's fields, whose asked values are found in the kernel when they are first written.
    pub fn of_pod() -> Self {
        Self::default()
    }

    /// Name of the container; empty for a pod.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kubelet asks of the container.
    pub fn asked(&self) -> Option<&LinuxContainerResources> {
        self.level.asked.as_ref()
    }

    /// Whether what is asked may be what a proxy before this one made of it.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// The level as it is by now.
    pub fn level_mut(&mut self) -> &mut Level {
        &mut self.level
    }

    /// What rules wish for, and on which way it goes.
    pub fn rules(&mut self, plan: &Plan, carried: &Carried) {
        for (at, wish) in plan.wishes.iter().enumerate() {
            let by_request = carried.by_request.get(at).copied().unwrap_or(false);
            let entry = self.level.entry_mut(&wish.field.as_str());
            entry.wished = Some(wish.value.to_string().into());
            entry.owner = wish.rule.as_str().into();
            entry.reason = wish.reason.as_str().into();
            entry.by_file = !by_request;
        }
        self.level.problems.extend(plan.problems.iter().map(|problem| Problem {
            rule: problem.rule.as_str().into(),
            message: problem.message.as_str().into(),
        }));
    }

    /// What a hook made of a container.
    pub fn hook(&mut self, name: &str, stage: &str, before: &ContainerRecord, after: &ContainerRecord) {
        let mut wish = |field: &str, value: Option<&str>| {
            let entry = self.level.entry_mut(field);
            entry.wished = Some(value.unwrap_or_default().into());
            entry.owner = name.into();
            entry.reason = format!("answered at {stage}").into();
            entry.by_file = false;
        };
        let empty = LinuxContainerResources::default();
        let earlier = texts(before.resources.as_ref().unwrap_or(&empty));
        for (field, value) in texts(after.resources.as_ref().unwrap_or(&empty)) {
            let had = earlier.iter().find(|(name, _)| *name == field).and_then(|(_, value)| value.as_ref());
            if had != value.as_ref() {
                wish(&field, value.as_deref());
            }
        }
        for (name, value) in &after.envs {
            if before.envs.get(name) != Some(value) {
                wish(&format!("env {name}"), Some(REDACTED));
            }
        }
        for (key, value) in &after.annotations {
            if before.annotations.get(key) != Some(value) {
                wish(&format!("annotation {key}"), Some(value));
            }
        }
    }

    /// The level, after the request was sent with (`applied`) or without what was wished.
    ///
    /// What goes by file is not sent yet, unless it was before, with a request that was `earlier`. Values of
    /// environment variables are not kept.
    pub fn finish(self, applied: bool, earlier: Option<&Level>) -> Level {
        let mut level = self.level;
        for entry in &mut level.entries {
            if entry.field.starts_with("env ") {
                for value in [&mut entry.asked, &mut entry.wished].into_iter().flatten() {
                    *value = REDACTED.into();
                }
            }
            if !entry.is_owned() {
                entry.sent.clone_from(&entry.asked);
            } else if entry.by_file {
                let before = earlier.and_then(|level| level.entry(&entry.field));
                entry.asked = before.and_then(|before| before.asked.clone());
                entry.sent = before.and_then(|before| before.sent.clone());
                if entry.sent == entry.wished {
                    entry.wished = None;
                }
            } else if applied {
                entry.sent = entry.wished.take();
            } else {
                entry.sent.clone_from(&entry.asked);
            }
        }
        level
    }

    /// The level of a pod, whose values were written already or wait for its cgroup.
    pub fn finish_pod(self) -> Level {
        self.level
    }
}
