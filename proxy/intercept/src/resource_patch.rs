//! What built-in rules change in a container's request: single fields, each with or without a value.
//!
//! The answer of a hook server cannot say "clear the cpuset" or "leave it"; a rule can.

use std::collections::BTreeMap;

use koord_cri::v1;
use koord_hook::v1alpha1::LinuxContainerResources;
use prost::Message;

/// Fields of a request that get another value; `None` and absent entries leave what is there.
#[derive(Clone, PartialEq, Default)]
pub struct ResourcePatch {
    /// CFS period in microseconds.
    pub cpu_period: Option<i64>,
    /// CFS quota in microseconds a period; -1 removes the limit.
    pub cpu_quota: Option<i64>,
    /// Relative weight, 2 to 262144.
    pub cpu_shares: Option<i64>,
    /// Memory limit in bytes; -1 removes the limit.
    pub memory_limit: Option<i64>,
    /// Score adjustment of the OOM killer, -1000 to 1000.
    pub oom_score_adj: Option<i64>,
    /// CPU list; empty clears the kubelet's.
    pub cpuset_cpus: Option<String>,
    /// Files of cgroup v2 and their texts.
    pub unified: BTreeMap<String, String>,
    /// Environment variables, added or replaced.
    pub envs: BTreeMap<String, String>,
    /// Annotations of the container, added or replaced.
    pub annotations: BTreeMap<String, String>,
    /// Devices the container needs besides those it has.
    pub devices: Vec<v1::Device>,
    /// Mounts the container needs besides those it has.
    pub mounts: Vec<v1::Mount>,
}

/// Environment values are often secrets: only their number is printed.
impl std::fmt::Debug for ResourcePatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ResourcePatch")
            .field("cpu_period", &self.cpu_period)
            .field("cpu_quota", &self.cpu_quota)
            .field("cpu_shares", &self.cpu_shares)
            .field("memory_limit", &self.memory_limit)
            .field("oom_score_adj", &self.oom_score_adj)
            .field("cpuset_cpus", &self.cpuset_cpus)
            .field("unified", &self.unified)
            .field("envs", &format_args!("{} values", self.envs.len()))
            .field("annotations", &self.annotations)
            .field("devices", &self.devices)
            .field("mounts", &self.mounts)
            .finish()
    }
}

impl ResourcePatch {
    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a field of the resources is named.
    pub(crate) fn names_resources(&self) -> bool {
        let numbers =
            [self.cpu_period, self.cpu_quota, self.cpu_shares, self.memory_limit, self.oom_score_adj];
        numbers.iter().any(Option::is_some) || self.cpuset_cpus.is_some() || !self.unified.is_empty()
    }

    /// Lays the named fields over `resources`.
    ///
    /// A swap limit counts memory and swap together, so one that is set follows a memory limit that rises
    /// above it: runtimes refuse a smaller one.
    pub(crate) fn lay_over(&self, resources: &mut LinuxContainerResources) {
        let set = |current: &mut i64, new: Option<i64>| {
            if let Some(new) = new {
                *current = new;
            }
        };
        set(&mut resources.cpu_period, self.cpu_period);
        set(&mut resources.cpu_quota, self.cpu_quota);
        set(&mut resources.cpu_shares, self.cpu_shares);
        set(&mut resources.memory_limit_in_bytes, self.memory_limit);
        set(&mut resources.oom_score_adj, self.oom_score_adj);
        if let Some(limit) = self.memory_limit
            && resources.memory_swap_limit_in_bytes > 0
        {
            let swap = resources.memory_swap_limit_in_bytes;
            resources.memory_swap_limit_in_bytes = if limit < 0 { limit } else { swap.max(limit) };
        }
        if let Some(cpus) = &self.cpuset_cpus {
            resources.cpuset_cpus.clone_from(cpus);
        }
        resources.unified.extend(self.unified.iter().map(|(file, text)| (file.clone(), text.clone())));
    }

    pub(crate) fn encoded_devices(&self) -> impl Iterator<Item = Vec<u8>> {
        self.devices.iter().map(Message::encode_to_vec)
    }

    pub(crate) fn encoded_mounts(&self) -> impl Iterator<Item = Vec<u8>> {
        self.mounts.iter().map(Message::encode_to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_limit_follows_a_rising_memory_limit() {
        let over = |swap, limit| {
            let mut resources =
                LinuxContainerResources { memory_swap_limit_in_bytes: swap, ..Default::default() };
            ResourcePatch { memory_limit: Some(limit), ..Default::default() }.lay_over(&mut resources);
            (resources.memory_limit_in_bytes, resources.memory_swap_limit_in_bytes)
        };
        assert_eq!(over(0, 100), (100, 0));
        assert_eq!(over(99, 100), (100, 100));
        assert_eq!(over(101, 100), (100, 101));
        assert_eq!(over(101, -1), (-1, -1));
        assert_eq!(over(-1, 100), (100, -1));
    }

    #[test]
    fn an_empty_cpuset_clears_and_no_cpuset_keeps() {
        let mut resources = LinuxContainerResources { cpuset_cpus: "0-3".into(), ..Default::default() };
        ResourcePatch { cpu_shares: Some(2), ..Default::default() }.lay_over(&mut resources);
        assert_eq!(resources.cpuset_cpus, "0-3");
        ResourcePatch { cpuset_cpus: Some(String::new()), ..Default::default() }.lay_over(&mut resources);
        assert_eq!(resources.cpuset_cpus, "");
    }

    #[test]
    fn debug_text_hides_environment_values() {
        let patch =
            ResourcePatch { envs: [("TOKEN".into(), "s3cret".into())].into(), ..ResourcePatch::default() };
        let text = format!("{patch:?}");
        assert!(!text.contains("s3cret") && text.contains("1 values"), "{text}");
    }
}
