//! The predictor: training, forgetting, checkpoints of all models.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use koord_extension::priority::PriorityClass;
use koord_extension::units::Percent;

use crate::model::{Item, Model, ModelName, Percentiles, Usage};
use crate::wall_time::WallTime;

/// How a predictor learns and answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictorOptions {
    /// A pod this old or younger is not predicted.
    pub cold_start: Duration,
    /// What is added to a peak, in percent of it.
    pub safety_margin: Percent,
    /// In what time a sample of CPU loses half of its weight.
    pub cpu_half_life: Duration,
    /// In what time a sample of memory loses half of its weight.
    pub memory_half_life: Duration,
    /// Time between two trainings.
    pub training_interval: Duration,
    /// A model not trained for longer than this is forgotten.
    pub expiration: Duration,
    /// Samples, one training apart, that a pod's model needs before it is believed. 0: one is enough, as in
    /// Koordinator.
    pub min_samples: u32,
}

impl PredictorOptions {
    /// Samples that a pod's model needs by default: those of an hour. With less, a single idle minute of an
    /// old pod would free its whole request right after the checkpoints were lost.
    pub const DEFAULT_MIN_SAMPLES: u32 = 60;
}

impl Default for PredictorOptions {
    /// Koordinator's defaults, and [`DEFAULT_MIN_SAMPLES`](PredictorOptions::DEFAULT_MIN_SAMPLES).
    fn default() -> PredictorOptions {
        const HOUR: u64 = 3600;
        PredictorOptions {
            cold_start: Duration::from_secs(24 * HOUR),
            safety_margin: Percent(10),
            cpu_half_life: Duration::from_secs(12 * HOUR),
            memory_half_life: Duration::from_secs(24 * HOUR),
            training_interval: Duration::from_secs(60),
            expiration: Duration::from_secs(30 * 60),
            min_samples: PredictorOptions::DEFAULT_MIN_SAMPLES,
        }
    }
}

/// What was used since the last training.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainingRound {
    /// The 90th percentile of the node's usage; none if it is not known.
    pub node: Option<Usage>,
    /// Pods of which both CPU and memory are known.
    pub pods: Vec<PodUsage>,
}

/// What a pod used since the last training.
#[derive(Debug, Clone, PartialEq)]
pub struct PodUsage {
    /// Its UID.
    pub uid: Arc<str>,
    /// Its priority class, with the default for pods that state none.
    pub class: Option<PriorityClass>,
    /// The 90th percentile of its usage.
    pub usage: Usage,
}

/// What a training did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trained {
    /// Models that took a sample.
    pub models: usize,
    /// Whether the models of the node and its parts took none, because the node's usage is not known.
    pub node_skipped: bool,
}

/// All models of a node.
#[derive(Debug, Clone)]
pub struct Predictor {
    pub(crate) options: PredictorOptions,
    pub(crate) models: BTreeMap<ModelName, Model>,
}

impl Predictor {
    /// A predictor that has learnt nothing.
    pub const fn new(options: PredictorOptions) -> Predictor {
        Predictor { options, models: BTreeMap::new() }
    }

    /// How it learns and answers.
    pub const fn options(&self) -> &PredictorOptions {
        &self.options
    }

    /// Number of models.
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Whether there is no model.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// A model.
    pub fn model(&self, name: &ModelName) -> Option<&Model> {
        self.models.get(name)
    }

    /// Names of all models, in order.
    pub fn names(&self) -> impl Iterator<Item = &ModelName> {
        self.models.keys()
    }

    /// Percentiles of a model; none if there is no such model.
    pub fn percentiles(&self, name: &ModelName) -> Option<Percentiles> {
        self.models.get(name).map(Model::percentiles)
    }

    /// Adds one sample to the model of every pod, of the node, and of every part of it; a class without pods
    /// used nothing.
    ///
    /// Where the node's usage is not known, only pods are trained: the system's would be a guess. Koordinator
    /// takes the node's for zero then.
    pub fn train(&mut self, round: &TrainingRound, now: WallTime) -> Trained {
        let mut trained = Trained::default();
        let mut add = |models: &mut BTreeMap<ModelName, Model>, name: ModelName, usage: Usage| {
            models.entry(name).or_insert_with(|| Model::new(&self.options, now)).add(usage, now);
            trained.models += 1;
        };
        let mut by_class: BTreeMap<Option<PriorityClass>, Usage> = BTreeMap::new();
        let mut all = Usage::ZERO;
        for pod in &round.pods {
            add(&mut self.models, ModelName::Pod(pod.uid.clone()), pod.usage);
            let sum = by_class.entry(pod.class).or_default();
            *sum = sum.plus(pod.usage);
            all = all.plus(pod.usage);
        }
        match round.node {
            Some(node) => {
                add(&mut self.models, ModelName::Node, node);
                for item in Item::ALL {
                    let usage = match item {
                        Item::Class(class) => by_class.get(&class).copied().unwrap_or(Usage::ZERO),
                        Item::System => node.less(all),
                    };
                    add(&mut self.models, ModelName::Item(item), usage);
                }
            }
            None => trained.node_skipped = true,
        }
        trained
    }

    /// Forgets models that were not trained for longer than the expiration, and tells their names: their
    /// checkpoints are to go as well.
    pub fn expire(&mut self, now: WallTime) -> Vec<ModelName> {
        let most = i64::try_from(self.options.expiration.as_millis()).unwrap_or(i64::MAX);
        let mut expired = Vec::new();
        self.models.retain(|name, model| {
            // After the clock was set back, ages count from now on.
            model.last_updated = model.last_updated.min(now);
            let keep = now.millis_since(model.last_updated) <= most;
            if !keep {
                expired.push(name.clone());
            }
            keep
        });
        expired
    }
}
