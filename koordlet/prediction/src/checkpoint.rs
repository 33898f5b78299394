//! Checkpoints: what is learnt, as text that outlives the process.
//!
//! A checkpoint is the JSON object that Koordinator writes, one per model, on one line. Two layouts hold
//! them: Koordinator's directory with a file per model, and one file with all of them, written in one go.
//! What is to be written and what of a reading counts is decided here; [`checkpoint_files`](crate::checkpoint_files)
//! reads and writes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, HistogramError};
use crate::model::{Model, ModelName};
use crate::predictor::Predictor;
use crate::wall_time::WallTime;

/// The weight that the heaviest bucket has in a checkpoint.
const HEAVIEST: f64 = 10_000.0;

/// A model as Koordinator writes it, in fields of its names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCheckpoint {
    /// Name of the model.
    #[serde(rename = "UID", default)]
    pub uid: String,
    /// What it has learnt of CPU.
    #[serde(rename = "CPU")]
    pub cpu: HistogramCheckpoint,
    /// What it has learnt of memory.
    #[serde(rename = "Memory")]
    pub memory: HistogramCheckpoint,
    /// When it was trained last.
    #[serde(rename = "LastUpdated")]
    pub last_updated: WallTime,
}

/// A histogram as Koordinator writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistogramCheckpoint {
    /// When a sample weighs 1; before the first sample none, in JSON Go's zero time.
    #[serde(default, with = "go_time")]
    pub reference_timestamp: Option<WallTime>,
    /// Weight by bucket, the heaviest 10000; buckets that round to nothing are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bucket_weights: BTreeMap<u32, u32>,
    /// Weight of all samples.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_weight: f64,
}

/// A time that Go writes also when there is none.
mod go_time {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::wall_time::WallTime;

    const ZERO: &str = "0001-01-01T00:00:00Z";

    #[allow(clippy::ref_option, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(
        time: &Option<WallTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_str(ZERO),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<WallTime>, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        if text == ZERO { Ok(None) } else { text.parse().map(Some).map_err(serde::de::Error::custom) }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(weight: &f64) -> bool {
    *weight == 0.0
}

impl HistogramCheckpoint {
    /// Of a histogram.
    pub fn of(histogram: &Histogram) -> HistogramCheckpoint {
        let heaviest = histogram.weights().iter().copied().fold(0.0, f64::max);
        let scaled = |weight: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 10000")]
            let scaled = (weight * (HEAVIEST / heaviest) + 0.5).floor() as u32;
            scaled
        };
        let bucket_weights = if heaviest > 0.0 {
            (0..)
                .zip(histogram.weights())
                .map(|(bucket, weight)| (bucket, scaled(*weight)))
                .filter(|(_, weight)| *weight > 0)
                .collect()
        } else {
            BTreeMap::new()
        };
        HistogramCheckpoint {
            reference_timestamp: histogram.reference(),
            bucket_weights,
            total_weight: histogram.total_weight(),
        }
    }

    fn restore_into(&self, histogram: &mut Histogram, now: WallTime) -> Result<(), HistogramError> {
        let weights = self.bucket_weights.iter().map(|(bucket, weight)| (*bucket, *weight));
        histogram.restore(self.reference_timestamp, weights, self.total_weight, now)
    }
}

impl ModelCheckpoint {
    /// Of a model.
    pub fn of(name: &ModelName, model: &Model) -> ModelCheckpoint {
        ModelCheckpoint {
            uid: name.to_string(),
            cpu: HistogramCheckpoint::of(model.cpu()),
            memory: HistogramCheckpoint::of(model.memory()),
            last_updated: model.last_updated(),
        }
    }

    /// As one line of JSON, with its end.
    pub fn to_line(&self) -> String {
        // Maps with whole numbers as keys, texts and finite numbers: there is nothing JSON cannot say.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// Which layout checkpoints are written in. Both are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointLayout {
    /// One file for all models, written anew in one go. All models change with every training, so a file
    /// that is appended to would grow by the same amount each time.
    OneFile,
    /// Koordinator's: a file per model, so many at most in one step.
    FilePerModel {
        /// Files in one step.
        most: usize,
    },
}

/// When checkpoints are written.
#[derive(Debug, Clone)]
pub struct CheckpointSchedule {
    /// The layout.
    pub layout: CheckpointLayout,
    /// Time between two checkpoints of a model.
    pub interval: Duration,
    last_written: Option<WallTime>,
}

/// What is to be written in one step. Steps are a minute apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointPlan {
    /// Nothing.
    Nothing,
    /// The one file, with all models.
    OneFile,
    /// Files of these models, in this order.
    Files(Vec<ModelName>),
}

impl CheckpointSchedule {
    /// A schedule that has written nothing yet.
    pub const fn new(layout: CheckpointLayout, interval: Duration) -> CheckpointSchedule {
        CheckpointSchedule { layout, interval, last_written: None }
    }

    /// What is due.
    pub fn plan(&self, predictor: &Predictor, now: WallTime) -> CheckpointPlan {
        let interval = i64::try_from(self.interval.as_millis()).unwrap_or(i64::MAX);
        // After the clock was set back, what was written "later" is due.
        let is_due =
            |last: Option<WallTime>| last.is_none_or(|last| now.millis_since(last) >= interval || now < last);
        match self.layout {
            CheckpointLayout::OneFile if is_due(self.last_written) && !predictor.is_empty() => {
                CheckpointPlan::OneFile
            }
            CheckpointLayout::OneFile => CheckpointPlan::Nothing,
            CheckpointLayout::FilePerModel { most } => {
                let mut due: Vec<(Option<WallTime>, &ModelName)> = predictor
                    .models
                    .iter()
                    .filter(|(_, model)| is_due(model.last_checkpointed))
                    .map(|(name, model)| (model.last_checkpointed, name))
                    .collect();
                due.sort();
                due.truncate(most);
                if due.is_empty() {
                    CheckpointPlan::Nothing
                } else {
                    CheckpointPlan::Files(due.into_iter().map(|(_, name)| name.clone()).collect())
                }
            }
        }
    }

    /// Notes that a plan was tried at `now`, whether or not it could be written: a full disk is not tried
    /// every minute.
    pub fn tried(&mut self, predictor: &mut Predictor, plan: &CheckpointPlan, now: WallTime) {
        match plan {
            CheckpointPlan::Nothing => {}
            CheckpointPlan::OneFile => self.last_written = Some(now),
            CheckpointPlan::Files(names) => {
                for name in names {
                    if let Some(model) = predictor.models.get_mut(name) {
                        model.last_checkpointed = Some(now);
                    }
                }
            }
        }
    }
}

/// Why a checkpoint was not taken over.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RefusedCheckpoint {
    /// Its model is of no pod and no part of the node.
    #[error("it is of a pod that is gone")]
    Gone,
    /// CPU cannot be used.
    #[error("CPU: {0}")]
    Cpu(#[source] HistogramError),
    /// Memory cannot be used.
    #[error("Memory: {0}")]
    Memory(#[source] HistogramError),
}

/// What came of reading checkpoints.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Restored {
    /// Number of models taken over.
    pub models: usize,
    /// Models that were not, and why. Their files are of no use.
    pub refused: Vec<(ModelName, RefusedCheckpoint)>,
}

impl Predictor {
    /// The checkpoint of a model.
    pub fn checkpoint(&self, name: &ModelName) -> Option<ModelCheckpoint> {
        self.models.get(name).map(|model| ModelCheckpoint::of(name, model))
    }

    /// The text of the one file: a line for each model, in order.
    pub fn checkpoint_lines(&self) -> String {
        self.models.iter().map(|(name, model)| ModelCheckpoint::of(name, model).to_line()).collect()
    }

    /// Takes over checkpoints of models that are not there yet: of pods for which `is_live`, of the node and
    /// its parts. Of several of one model the one trained last counts.
    pub fn restore(
        &mut self,
        checkpoints: impl IntoIterator<Item = (ModelName, ModelCheckpoint)>,
        is_live: impl Fn(&str) -> bool,
        now: WallTime,
    ) -> Restored {
        let mut newest: BTreeMap<ModelName, ModelCheckpoint> = BTreeMap::new();
        for (name, checkpoint) in checkpoints {
            let is_newer =
                newest.get(&name).is_none_or(|other| other.last_updated <= checkpoint.last_updated);
            if is_newer {
                newest.insert(name, checkpoint);
            }
        }
        let mut restored = Restored::default();
        for (name, checkpoint) in newest {
            let live = match &name {
                ModelName::Pod(uid) => is_live(uid),
                ModelName::Node | ModelName::Item(_) => true,
            };
            let model = if live { self.model_of(&checkpoint, now) } else { Err(RefusedCheckpoint::Gone) };
            match model {
                Ok(model) => {
                    if let std::collections::btree_map::Entry::Vacant(vacant) = self.models.entry(name) {
                        vacant.insert(model);
                        restored.models += 1;
                    }
                }
                Err(problem) => restored.refused.push((name, problem)),
            }
        }
        restored
    }

    fn model_of(&self, checkpoint: &ModelCheckpoint, now: WallTime) -> Result<Model, RefusedCheckpoint> {
        let mut model = Model::new(&self.options, checkpoint.last_updated.min(now));
        checkpoint.cpu.restore_into(&mut model.cpu, now).map_err(RefusedCheckpoint::Cpu)?;
        checkpoint.memory.restore_into(&mut model.memory, now).map_err(RefusedCheckpoint::Memory)?;
        Ok(model)
    }
}

/// A line of the one file that is no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

/// Reads a file with all models. A line that cannot be read, such as a last one that was cut off, is told;
/// the others count.
pub fn read_lines(text: &str) -> (Vec<(ModelName, ModelCheckpoint)>, Vec<BadLine>) {
    let mut read = Vec::new();
    let mut bad = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let parsed = serde_json::from_str::<ModelCheckpoint>(text).map_err(|error| error.to_string());
        let parsed = parsed.and_then(|checkpoint| {
            let name = checkpoint.uid.parse::<ModelName>().map_err(|error| error.to_string())?;
            Ok((name, checkpoint))
        });
        match parsed {
            Ok(checkpoint) => read.push(checkpoint),
            Err(problem) => bad.push(BadLine { line, problem }),
        }
    }
    (read, bad)
}

/// Reads Koordinator's file of one model. Its name is that of the file, whatever stands in it.
pub fn read_file(name: &str, text: &str) -> Result<(ModelName, ModelCheckpoint), String> {
    let name: ModelName = name.parse().map_err(|error: crate::model::NotAModelName| error.to_string())?;
    // Koordinator reads one object and does not look at what follows.
    let mut objects = serde_json::Deserializer::from_str(text).into_iter::<ModelCheckpoint>();
    match objects.next() {
        Some(Ok(checkpoint)) => Ok((name, checkpoint)),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("it is empty".to_owned()),
    }
}
