//! Models: what is learnt of a pod, of the node and of its parts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use koord_extension::priority::PriorityClass;
use koord_extension::units::{Bytes, MilliCpu};

use crate::histogram::{Histogram, Scale};
use crate::predictor::PredictorOptions;
use crate::resources::Resources;
use crate::wall_time::WallTime;

/// What a model is about. Its text is the name of its checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelName {
    /// The pod of a UID.
    Pod(Arc<str>),
    /// The node.
    Node,
    /// A part of the node.
    Item(Item),
}

/// A part of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// All pods of a priority class; pods of no class are a class of their own.
    Class(Option<PriorityClass>),
    /// Everything that is no pod.
    System,
}

impl Item {
    /// All parts.
    pub const ALL: [Item; 6] = [
        Item::Class(Some(PriorityClass::Prod)),
        Item::Class(Some(PriorityClass::Mid)),
        Item::Class(Some(PriorityClass::Batch)),
        Item::Class(Some(PriorityClass::Free)),
        Item::Class(None),
        Item::System,
    ];

    /// As in a model's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Item::Class(Some(class)) => class.as_str(),
            Item::Class(None) => "",
            Item::System => "sys",
        }
    }
}

/// A text that names no model: it is empty, or would be more than a file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a model; wanted __node__, __node-ITEM__ or the UID of a pod: letters, digits, - and _"
)]
pub struct NotAModelName(pub String);

impl ModelName {
    /// The model of a pod.
    pub fn pod(uid: &str) -> ModelName {
        ModelName::Pod(uid.into())
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelName::Pod(uid) => formatter.write_str(uid),
            ModelName::Node => formatter.write_str("__node__"),
            ModelName::Item(item) => write!(formatter, "__node-{}__", item.as_str()),
        }
    }
}

impl FromStr for ModelName {
    type Err = NotAModelName;

    fn from_str(text: &str) -> Result<ModelName, NotAModelName> {
        if text == "__node__" {
            return Ok(ModelName::Node);
        }
        let refused = || NotAModelName(text.chars().take(80).collect());
        if text.starts_with("__") {
            let item = Item::ALL.into_iter().find(|item| ModelName::Item(*item).to_string() == text);
            return item.map(ModelName::Item).ok_or_else(refused);
        }
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if text.is_empty() || text.len() > 128 || !text.bytes().all(is_word) {
            return Err(refused());
        }
        Ok(ModelName::pod(text))
    }
}

/// CPU and memory used, as measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Cores.
    pub cpu: f64,
    /// Bytes.
    pub memory: f64,
}

impl Usage {
    /// Nothing used.
    pub const ZERO: Usage = Usage { cpu: 0.0, memory: 0.0 };

    /// The sums.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }

    /// What is left of each, at least 0.
    #[must_use]
    pub fn less(self, other: Usage) -> Usage {
        Usage { cpu: (self.cpu - other.cpu).max(0.0), memory: (self.memory - other.memory).max(0.0) }
    }
}

/// What is learnt of one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) cpu: Histogram,
    pub(crate) memory: Histogram,
    pub(crate) last_updated: WallTime,
    pub(crate) last_checkpointed: Option<WallTime>,
}

/// Percentiles of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Percentiles {
    /// 60 % of the samples.
    pub p60: Resources,
    /// 90 % of the samples.
    pub p90: Resources,
    /// 95 % of the samples.
    pub p95: Resources,
    /// 98 % of the samples.
    pub p98: Resources,
    /// All samples.
    pub max: Resources,
}

impl Model {
    pub(crate) fn new(options: &PredictorOptions, now: WallTime) -> Model {
        Model {
            cpu: Histogram::new(Scale::Cpu, options.cpu_half_life),
            memory: Histogram::new(Scale::Memory, options.memory_half_life),
            last_updated: now,
            last_checkpointed: None,
        }
    }

    pub(crate) fn add(&mut self, usage: Usage, now: WallTime) {
        self.cpu.add(usage.cpu, now);
        self.memory.add(usage.memory, now);
        self.last_updated = now;
    }

    /// When it was trained last.
    pub const fn last_updated(&self) -> WallTime {
        self.last_updated
    }

    /// What it has learnt of CPU.
    pub const fn cpu(&self) -> &Histogram {
        &self.cpu
    }

    /// What it has learnt of memory.
    pub const fn memory(&self) -> &Histogram {
        &self.memory
    }

    /// Its percentiles, truncated to thousandths of a CPU and to bytes.
    pub fn percentiles(&self) -> Percentiles {
        let at = |percentile| Resources {
            cpu: MilliCpu(truncated(self.cpu.percentile(percentile) * 1000.0)),
            memory: Bytes(truncated(self.memory.percentile(percentile))),
        };
        Percentiles { p60: at(0.6), p90: at(0.9), p95: at(0.95), p98: at(0.98), max: at(1.0) }
    }

    /// What counts as the peak: the 95th percentile of CPU, the 98th of memory.
    pub fn peak(&self) -> Resources {
        Resources {
            cpu: MilliCpu(truncated(self.cpu.percentile(0.95) * 1000.0)),
            memory: Bytes(truncated(self.memory.percentile(0.98))),
        }
    }

    /// Whether it has learnt from fewer than the wanted number of samples, one training apart.
    ///
    /// Samples fade, so their weight is compared with what as many regular samples weigh; half a sample less
    /// will do, as rounds are not exact to the millisecond.
    pub(crate) fn is_immature(&self, options: &PredictorOptions) -> bool {
        if options.min_samples == 0 {
            return false;
        }
        let samples = f64::from(options.min_samples) - 0.5;
        [&self.cpu, &self.memory].into_iter().any(|histogram| {
            let wanted = histogram.weight_of_regular(samples, options.training_interval);
            histogram.weight_at(self.last_updated) < wanted
        })
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "truncation is the rule; out of range it is held at the ends"
)]
fn truncated(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_koordinator() {
        for (name, text) in [
            (ModelName::Node, "__node__"),
            (ModelName::Item(Item::System), "__node-sys__"),
            (ModelName::Item(Item::Class(None)), "__node-__"),
            (ModelName::Item(Item::Class(Some(PriorityClass::Prod))), "__node-koord-prod__"),
            (ModelName::Item(Item::Class(Some(PriorityClass::Mid))), "__node-koord-mid__"),
            (ModelName::Item(Item::Class(Some(PriorityClass::Batch))), "__node-koord-batch__"),
            (ModelName::Item(Item::Class(Some(PriorityClass::Free))), "__node-koord-free__"),
            (ModelName::pod("1b2c3d4e-0000-4000-8000-000000000001"), "1b2c3d4e-0000-4000-8000-000000000001"),
        ] {
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
    }

    #[test]
    fn a_name_is_no_path() {
        for text in
            ["", ".", "..", "a/b", "/etc/passwd", "a.tmp", "models.jsonl", "__node", "__other__", "a\0b"]
        {
            assert_eq!(text.parse::<ModelName>(), Err(NotAModelName(text.to_owned())));
        }
        assert!("a".repeat(128).parse::<ModelName>().is_ok());
        assert!("a".repeat(129).parse::<ModelName>().is_err());
    }
}
