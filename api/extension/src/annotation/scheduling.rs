//! Further notes between pods and the scheduler: load estimates, hints, gangs, quotas.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{AnnotationError, json_annotation, json_newtype};
use crate::keys::{annotation, label};
use crate::quantity::ResourceList;
use crate::{json_object, json_words};

json_newtype! {
    /// Factors of a pod's load estimate in percent, by resource.
    pub struct LoadEstimatedScalingFactors(BTreeMap<String, i64>);
}

json_newtype! {
    /// Gangs that are placed together, each `namespace/name`.
    pub struct GangGroups(Vec<String>);
}

json_words! {
    /// What happens to a gang of which one member cannot be placed.
    pub enum GangMode {
        /// All members are given up.
        Strict = "Strict",
        /// The others keep their places.
        NonStrict = "NonStrict",
    }

    /// Which members of a gang count.
    pub enum GangMatchPolicy {
        /// Once the gang was complete, it stays so.
        OnceSatisfied = "once-satisfied",
        /// Those that wait.
        OnlyWaiting = "only-waiting",
        /// Those that wait or run.
        WaitingAndRunning = "waiting-and-running",
    }

    /// How strictly a layer of the network is shared.
    pub enum GatherStrategy {
        /// If possible.
        PreferGather = "PreferGather",
        /// Or not placed.
        MustGather = "MustGather",
    }
}

json_object! {
    /// Nodes to try first.
    pub struct SchedulingHint {
        /// These only.
        node_names: Vec<String> = "nodeNames",
        /// These first.
        preferred_node_names: Vec<String> = "preferredNodeNames",
        /// More, by name.
        extensions: BTreeMap<String, serde_json::Value> = "extensions",
    }

    /// How a gang is to be gathered in the network.
    pub struct NetworkTopologySpec {
        /// One rule for each layer.
        gather_strategy: Vec<GatherRule> = "gatherStrategy",
    }

    /// How a gang is to be gathered in one layer.
    pub struct GatherRule {
        /// Name of the layer.
        layer: String = "layer" keep,
        /// How strictly.
        strategy: GatherStrategy = "strategy" keep,
        /// Pods at one place are a multiple of this.
        pod_count_multiple: i64 = "podCountMultiple",
    }
}

json_annotation!(LoadEstimatedScalingFactors, annotation::LOAD_ESTIMATED_SCALING_FACTORS);
json_annotation!(NetworkTopologySpec, annotation::GANG_NETWORK_TOPOLOGY_SPEC, empty = absent);
json_annotation!(GangGroups, annotation::GANG_GROUPS, empty = absent);

impl SchedulingHint {
    /// Reads the annotation. The key of today wins over the former one unless its text is empty.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<SchedulingHint>, AnnotationError> {
        for key in [annotation::SCHEDULING_HINT, annotation::SCHEDULING_HINT_OLD] {
            if let Some(text) = annotations.get(key).filter(|text| !text.is_empty()) {
                return serde_json::from_str(text)
                    .map(Some)
                    .map_err(|error| AnnotationError::new(key, text, error));
            }
        }
        Ok(None)
    }

    /// The text of the annotation.
    pub fn to_text(&self) -> String {
        // Strings, lists and maps of strings are always representable.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A number of seconds for which a load estimate counts; -1 if the pod states none.
///
/// `key` is one of the two annotations about it.
pub fn load_estimated_seconds(
    annotations: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<i64, AnnotationError> {
    integer(annotations, key, -1)
}

/// The least number of a gang's members that are placed together. It has no default.
pub fn gang_min_available(annotations: &BTreeMap<String, String>) -> Result<i32, AnnotationError> {
    let key = annotation::GANG_MIN_AVAILABLE;
    let text = annotations.get(key).map_or("", String::as_str);
    text.parse().map_err(|_| AnnotationError::new(key, text, "wanted a whole number"))
}

/// All members of a gang; the least number if it is unset, empty or 0.
pub fn gang_total_number(
    annotations: &BTreeMap<String, String>,
    min_available: i32,
) -> Result<i32, AnnotationError> {
    let key = annotation::GANG_TOTAL_NUMBER;
    match annotations.get(key).map(String::as_str) {
        None | Some("") => Ok(min_available),
        Some(text) => match text.parse() {
            Ok(0) => Ok(min_available),
            Ok(number) => Ok(number),
            Err(_) => Err(AnnotationError::new(key, text, "wanted a whole number")),
        },
    }
}

/// How long placed members of a gang wait for the others; none if it is unset.
pub fn gang_waiting_time(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<Duration>, AnnotationError> {
    let key = annotation::GANG_WAITING_TIME;
    match annotations.get(key).map(String::as_str) {
        None | Some("") => Ok(None),
        Some(text) => go_duration(text)
            .map(Some)
            .ok_or_else(|| AnnotationError::new(key, text, "wanted a duration such as 1m30s")),
    }
}

/// What happens to the gang of a pod of which one member cannot be placed; Strict unless stated otherwise.
pub fn gang_mode(annotations: &BTreeMap<String, String>) -> GangMode {
    match annotations.get(annotation::GANG_MODE).map(String::as_str) {
        Some("NonStrict") => GangMode::NonStrict,
        _ => GangMode::Strict,
    }
}

/// Which members count; the other key is read when the main one is empty.
pub fn gang_match_policy(annotations: &BTreeMap<String, String>) -> GangMatchPolicy {
    [annotation::GANG_MATCH_POLICY, annotation::GANG_MATCH_POLICY_ALIAS]
        .into_iter()
        .filter_map(|key| annotations.get(key))
        .find(|text| !text.is_empty())
        .map_or(GangMatchPolicy::OnceSatisfied, |text| GangMatchPolicy::from(text.as_str()))
}

/// Index of a pod in its gang; -1 if it states none.
pub fn gang_network_topology_index(annotations: &BTreeMap<String, String>) -> Result<i64, AnnotationError> {
    integer(annotations, annotation::GANG_NETWORK_TOPOLOGY_INDEX, -1)
}

/// Name of a pod's gang: the pod group's label, the deprecated label, the annotation; none if all are
/// empty.
pub fn gang_name<'a>(
    labels: &'a BTreeMap<String, String>,
    annotations: &'a BTreeMap<String, String>,
) -> Option<&'a str> {
    [
        labels.get(label::POD_GROUP),
        labels.get(label::LIGHTWEIGHT_POD_GROUP_NAME),
        annotations.get(annotation::GANG_NAME),
    ]
    .into_iter()
    .flatten()
    .map(String::as_str)
    .find(|name| !name.is_empty())
}

/// Names of quotas that Koordinator makes itself.
pub mod reserved_quota {
    /// Of the system's pods. It cannot be changed.
    pub const SYSTEM: &str = "koordinator-system-quota";
    /// Of all quotas. It cannot be changed.
    pub const ROOT: &str = "koordinator-root-quota";
    /// Of pods that have no other.
    pub const DEFAULT: &str = "koordinator-default-quota";
}

/// Parent of a quota: as labelled, else the root; the root has none.
pub fn quota_parent<'a>(name: &str, labels: &'a BTreeMap<String, String>) -> Option<&'a str> {
    match labels.get(label::QUOTA_PARENT).map(String::as_str) {
        Some(parent) if !parent.is_empty() => Some(parent),
        _ if name == reserved_quota::ROOT => None,
        _ => Some(reserved_quota::ROOT),
    }
}

/// Whether others may borrow what a quota does not use: unless the label is exactly `false`.
pub fn quota_allows_lending(labels: &BTreeMap<String, String>) -> bool {
    labels.get(label::QUOTA_ALLOW_LENT_RESOURCE).is_none_or(|text| text != "false")
}

/// Whether a pod may be preempted within its quota: unless the label is exactly `false`.
pub fn quota_preemptible(labels: &BTreeMap<String, String>) -> bool {
    labels.get(label::QUOTA_PREEMPTIBLE).is_none_or(|text| text != "false")
}

/// Weight of a quota: `max` if the annotation is absent, unreadable, or all zero.
pub fn quota_shared_weight(annotations: &BTreeMap<String, String>, max: &ResourceList) -> ResourceList {
    match quota_resources(annotations, annotation::QUOTA_SHARED_WEIGHT) {
        Ok(Some(weight)) if weight.values().any(|quantity| !quantity.is_zero()) => weight,
        _ => max.clone(),
    }
}

/// An annotation of a quota that holds a list of resources; `key` is one of the quota annotations.
pub fn quota_resources(
    annotations: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Option<ResourceList>, AnnotationError> {
    resources(annotations, key)
}

/// An annotation of a quota that holds a list of names; unreadable is none.
pub fn quota_names(annotations: &BTreeMap<String, String>, key: &'static str) -> Vec<String> {
    annotations.get(key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

pub(super) fn resources(
    annotations: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Option<ResourceList>, AnnotationError> {
    let Some(text) = annotations.get(key) else { return Ok(None) };
    let mut reader = serde_json::Deserializer::from_str(text);
    let list = crate::json::filled(&mut reader).and_then(|list| reader.end().map(|()| list));
    list.map(Some).map_err(|error: serde_json::Error| AnnotationError::new(key, text, error))
}

fn integer(
    annotations: &BTreeMap<String, String>,
    key: &'static str,
    absent: i64,
) -> Result<i64, AnnotationError> {
    match annotations.get(key) {
        None => Ok(absent),
        Some(text) => text.parse().map_err(|_| AnnotationError::new(key, text, "wanted a whole number")),
    }
}

/// Reads a duration as Go writes it: `1h2m3.5s`, `250ms`, `0`; not negative. None if it is none, or longer
/// than Go can hold (about 292 years).
pub fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, tail) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let unit_end =
            tail.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(nanos)?)?;
        // Digits beyond these cannot change the whole number of nanoseconds.
        let digits = fraction.get(..15.min(fraction.len()))?;
        let (part, scale) = digits
            .bytes()
            .fold((0, 1), |(part, scale), digit| (part * 10 + i128::from(digit - b'0'), scale * 10));
        total = total.checked_add(part * nanos / scale)?;
        rest = tail;
    }
    let nanos = i64::try_from(total).ok()?;
    Some(Duration::from_nanos(nanos.unsigned_abs()))
}
