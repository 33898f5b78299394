//! Typed labels that have no module of their own.

use std::collections::BTreeMap;

use crate::keys::label;

/// A label that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("label {key}: \"{value}\" cannot be used: {problem}")]
pub struct LabelError {
    /// Key of the label.
    pub key: &'static str,
    /// Its text, cut to a printable length.
    pub value: String,
    /// What would be right.
    pub problem: &'static str,
}

impl LabelError {
    pub(crate) fn new(key: &'static str, value: &str, problem: &'static str) -> LabelError {
        LabelError { key, value: value.chars().take(80).collect(), problem }
    }
}

/// Whether a label says yes: only the exact text `true` does.
pub fn is_true(labels: &BTreeMap<String, String>, key: &str) -> bool {
    labels.get(key).is_some_and(|text| text == "true")
}

/// Reads a boolean in the wide form: `1 t T TRUE true True`, `0 f F FALSE false False`.
pub fn wide_boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Whether a node's label switches CPU normalization on or off; none if it has none.
pub fn cpu_normalization_enabled(labels: &BTreeMap<String, String>) -> Result<Option<bool>, LabelError> {
    let key = label::NODE_CPU_NORMALIZATION_ENABLED;
    let Some(text) = labels.get(key) else { return Ok(None) };
    wide_boolean(text).map(Some).ok_or_else(|| LabelError::new(key, text, "wanted 1, t, true, 0, f or false"))
}

/// How a ratio becomes a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RatioRounding {
    /// To the nearest percent.
    #[default]
    Nearest,
    /// As Koordinator does: cut off after a multiplication in floating point, so that 0.29 gives 28.
    Truncate,
}

/// The percent that a ratio label of a node states; none if it is absent, negative, or no number.
pub fn ratio_percent(labels: &BTreeMap<String, String>, key: &str, rounding: RatioRounding) -> Option<i64> {
    let ratio: f64 = labels.get(key)?.parse().ok()?;
    if !ratio.is_finite() || ratio < 0.0 {
        return None;
    }
    let percent = ratio * 100.0;
    let whole = match rounding {
        RatioRounding::Nearest => percent.round(),
        RatioRounding::Truncate => percent.trunc(),
    };
    #[allow(clippy::cast_possible_truncation, reason = "`as` holds a float at the ends of the range")]
    let whole = whole as i64;
    Some(whole)
}

/// Core-scheduling group of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreSchedGroup {
    /// The pod never has a cookie.
    Disabled,
    /// The pod is alone in its group.
    Exclusive,
    /// Pods with the same text share a group; "" if the pod states none.
    Named(String),
}

/// The core-scheduling group that a pod's labels state.
pub fn core_sched_group(labels: &BTreeMap<String, String>) -> CoreSchedGroup {
    match labels.get(label::CORE_SCHED_POLICY).map(String::as_str) {
        Some("none") => CoreSchedGroup::Disabled,
        Some("exclusive") => CoreSchedGroup::Exclusive,
        _ => CoreSchedGroup::Named(labels.get(label::CORE_SCHED_GROUP_ID).cloned().unwrap_or_default()),
    }
}

/// How GPU partitions of a node are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuPartitionPolicy {
    /// Used where possible.
    Prefer,
    /// Never crossed.
    Honor,
}

/// How GPU partitions of a node are treated: Honor for exactly that text, else Prefer.
pub fn gpu_partition_policy(labels: &BTreeMap<String, String>) -> GpuPartitionPolicy {
    match labels.get(label::NODE_GPU_PARTITION_POLICY).map(String::as_str) {
        Some("Honor") => GpuPartitionPolicy::Honor,
        _ => GpuPartitionPolicy::Prefer,
    }
}

/// The value of [`label::GPU_ISOLATION_PROVIDER`] that stands for HAMi's library.
pub const HAMI_CORE: &str = "HAMi-core";

/// Whether HAMi's library isolates the pod's share of a GPU.
pub fn is_isolated_by_hami(labels: &BTreeMap<String, String>) -> bool {
    labels.get(label::GPU_ISOLATION_PROVIDER).is_some_and(|provider| provider == HAMI_CORE)
}

/// Whether a pod may preempt others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// It may not.
    Never,
    /// Those of lower priority.
    PreemptLowerPriority,
}

impl PreemptionPolicy {
    /// As in a pod's spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            PreemptionPolicy::Never => "Never",
            PreemptionPolicy::PreemptLowerPriority => "PreemptLowerPriority",
        }
    }
}

/// The preemption policy that a pod's label states; Never if it is absent or says anything else.
pub fn preemption_policy(labels: &BTreeMap<String, String>) -> PreemptionPolicy {
    match labels.get(label::PREEMPTION_POLICY).map(String::as_str) {
        Some("PreemptLowerPriority") => PreemptionPolicy::PreemptLowerPriority,
        _ => PreemptionPolicy::Never,
    }
}

/// The scheduler's name as Koordinator sees it: the label's, even if it is empty, else the spec's.
pub fn scheduler_name<'a>(labels: &'a BTreeMap<String, String>, of_spec: &'a str) -> &'a str {
    labels.get(label::SCHEDULER_NAME).map_or(of_spec, String::as_str)
}

/// Whether a pod is itself a reservation.
pub fn is_operating_as_reservation(labels: &BTreeMap<String, String>) -> bool {
    labels.get(label::OPERATING_MODE).is_some_and(|mode| mode == "Reservation")
}

/// Order of a reservation: lower non-zero first; 0, or none that can be read, is by score.
pub fn reservation_order(labels: &BTreeMap<String, String>) -> i64 {
    labels.get(label::RESERVATION_ORDER).and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(key: &str, text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), text.to_owned())])
    }

    #[test]
    fn only_true_is_true() {
        for text in ["True", "TRUE", "1", "t", "", " true", "yes"] {
            assert!(!is_true(&labels(label::EVICTION_ENABLED, text), label::EVICTION_ENABLED), "{text:?}");
        }
        assert!(is_true(&labels(label::EVICTION_ENABLED, "true"), label::EVICTION_ENABLED));
        assert!(!is_true(&BTreeMap::new(), label::EVICTION_ENABLED));
    }

    #[test]
    fn wide_booleans() {
        let key = label::NODE_CPU_NORMALIZATION_ENABLED;
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(cpu_normalization_enabled(&labels(key, text)), Ok(Some(true)));
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(cpu_normalization_enabled(&labels(key, text)), Ok(Some(false)));
        }
        for text in ["", "yes", "tRUE", "2"] {
            assert!(cpu_normalization_enabled(&labels(key, text)).is_err(), "{text:?}");
        }
        assert_eq!(cpu_normalization_enabled(&BTreeMap::new()), Ok(None));
    }

    #[test]
    fn ratios_become_percents() {
        use RatioRounding::*;
        let key = label::NODE_CPU_RECLAIM_RATIO;
        for (text, nearest, truncated) in [
            ("0.6", Some(60), Some(60)),
            ("0.29", Some(29), Some(28)),
            ("0.57", Some(57), Some(56)),
            ("1.15", Some(115), Some(114)),
            ("1.1", Some(110), Some(110)),
            ("0", Some(0), Some(0)),
            ("-1", None, None),
            ("abc", None, None),
            ("", None, None),
            ("NaN", None, None),
            ("inf", None, None),
            ("1e300", Some(i64::MAX), Some(i64::MAX)),
        ] {
            assert_eq!(ratio_percent(&labels(key, text), key, Nearest), nearest, "{text}");
            assert_eq!(ratio_percent(&labels(key, text), key, Truncate), truncated, "{text}");
        }
        assert_eq!(ratio_percent(&BTreeMap::new(), key, Nearest), None);
    }

    #[test]
    fn core_scheduling_groups() {
        let mut both = labels(label::CORE_SCHED_GROUP_ID, "g1");
        assert_eq!(core_sched_group(&both), CoreSchedGroup::Named("g1".into()));
        assert_eq!(core_sched_group(&BTreeMap::new()), CoreSchedGroup::Named(String::new()));
        both.insert(label::CORE_SCHED_POLICY.to_owned(), "none".to_owned());
        assert_eq!(core_sched_group(&both), CoreSchedGroup::Disabled);
        both.insert(label::CORE_SCHED_POLICY.to_owned(), "exclusive".to_owned());
        assert_eq!(core_sched_group(&both), CoreSchedGroup::Exclusive);
        both.insert(label::CORE_SCHED_POLICY.to_owned(), "None".to_owned());
        assert_eq!(core_sched_group(&both), CoreSchedGroup::Named("g1".into()));
    }

    #[test]
    fn words_count_exactly() {
        let key = label::NODE_GPU_PARTITION_POLICY;
        assert_eq!(gpu_partition_policy(&labels(key, "Honor")), GpuPartitionPolicy::Honor);
        assert_eq!(gpu_partition_policy(&labels(key, "honor")), GpuPartitionPolicy::Prefer);
        let key = label::PREEMPTION_POLICY;
        assert_eq!(
            preemption_policy(&labels(key, "PreemptLowerPriority")),
            PreemptionPolicy::PreemptLowerPriority
        );
        assert_eq!(preemption_policy(&labels(key, "Always")), PreemptionPolicy::Never);
        assert_eq!(preemption_policy(&BTreeMap::new()), PreemptionPolicy::Never);
        assert!(is_isolated_by_hami(&labels(label::GPU_ISOLATION_PROVIDER, "HAMi-core")));
        assert!(!is_isolated_by_hami(&labels(label::GPU_ISOLATION_PROVIDER, "hami-core")));
        assert_eq!(reservation_order(&labels(label::RESERVATION_ORDER, "-3")), -3);
        assert_eq!(reservation_order(&labels(label::RESERVATION_ORDER, "x")), 0);
        assert_eq!(scheduler_name(&BTreeMap::new(), "default-scheduler"), "default-scheduler");
        assert_eq!(scheduler_name(&labels(label::SCHEDULER_NAME, ""), "default-scheduler"), "");
        assert_eq!(scheduler_name(&labels(label::SCHEDULER_NAME, "koord"), "default-scheduler"), "koord");
        assert!(is_operating_as_reservation(&labels(label::OPERATING_MODE, "Reservation")));
        assert!(!is_operating_as_reservation(&labels(label::OPERATING_MODE, "Runnable")));
    }
}
