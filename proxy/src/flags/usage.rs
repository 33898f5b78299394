//! Flags about the sampling of usage.

use std::time::Duration;

use koord_runtime::duration::format_go_duration;
use serde_json::{Value, json};

use super::config::{Checker, duration_within, one_of};
use super::table::{self, Flag};

/// Which usage metrics show beside the node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageMetrics {
    /// None.
    None,
    /// That of pods.
    Pod,
    /// That of pods and containers.
    Container,
}

impl UsageMetrics {
    /// The flag's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pod => "pod",
            Self::Container => "container",
        }
    }
}

/// What the command line says about the sampling of usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageConfig {
    /// Whether anything is sampled.
    pub enabled: bool,
    /// How often CPU is sampled.
    pub interval: Duration,
    /// How often memory of pods is sampled.
    pub memory_interval: Duration,
    /// Whether pressure is sampled.
    pub pressure: bool,
    /// What metrics show.
    pub metrics: UsageMetrics,
}

/// Reads the flags; `None` if one has a mistake.
pub(super) fn check(checker: &mut Checker<'_>) -> Option<UsageConfig> {
    let second = Duration::from_secs(1);
    let enabled = checker.read(&table::USAGE, on_or_off);
    let interval = checker.read(&table::USAGE_INTERVAL, duration_within(second, 60 * second));
    let memory_interval = checker.read(&table::USAGE_MEMORY_INTERVAL, duration_within(second, 300 * second));
    let pressure = checker.read(&table::USAGE_PRESSURE, on_or_off);
    let metrics = checker.read(
        &table::USAGE_METRICS,
        one_of(&[UsageMetrics::None, UsageMetrics::Pod, UsageMetrics::Container], UsageMetrics::as_str),
    );
    Some(UsageConfig {
        enabled: enabled?,
        interval: interval?,
        memory_interval: memory_interval?,
        pressure: pressure?,
        metrics: metrics?,
    })
}

impl UsageConfig {
    /// Flags and the values in force.
    pub(super) fn values(&self) -> Vec<(Flag, Value)> {
        let choice = |on: bool| json!(if on { "on" } else { "off" });
        vec![
            (table::USAGE, choice(self.enabled)),
            (table::USAGE_INTERVAL, json!(format_go_duration(self.interval))),
            (table::USAGE_MEMORY_INTERVAL, json!(format_go_duration(self.memory_interval))),
            (table::USAGE_PRESSURE, choice(self.pressure)),
            (table::USAGE_METRICS, json!(self.metrics.as_str())),
        ]
    }
}

fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("no such choice"),
    }
}
