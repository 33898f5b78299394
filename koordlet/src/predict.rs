//! Trains the predictor and keeps its models on disk.

use std::sync::Arc;
use std::time::Duration;

use koord_extension::priority::PriorityBands;
use koord_extension::units::Percent;
use koord_node_report::training::training_round;
use koord_prediction::checkpoint::{CheckpointLayout, CheckpointPlan, CheckpointSchedule};
use koord_prediction::checkpoint_files::{CheckpointDirectory, CheckpointError};
use koord_prediction::{ModelName, PredictorOptions};
use koord_runtime::CancellationToken;
use koord_runtime::error_chain::Chain;
use koord_usage::time::Tick;

use crate::flags::PredictionConfig;
use crate::metrics::internal;
use crate::reporter::wall_time;
use crate::state::State;

/// How long models wait for the pods before they are taken over without knowing which pods are gone.
const PODS_WAIT: Duration = Duration::from_secs(60);

/// Options of the predictor by the flags.
pub fn options(config: &PredictionConfig) -> PredictorOptions {
    PredictorOptions {
        cold_start: config.cold_start,
        safety_margin: Percent(i64::from(config.safety_margin_percent)),
        cpu_half_life: config.cpu_half_life,
        memory_half_life: config.memory_half_life,
        training_interval: config.training_interval,
        expiration: config.expiration,
        min_samples: config.least_samples,
    }
}

fn complain(state: &State, errors: &[CheckpointError]) {
    let is_full = errors.iter().any(CheckpointError::is_full);
    let labels = [("content", "models")];
    state.internal.set(&internal::STORE_DISK_FULL, &labels, f64::from(u8::from(is_full)));
    for error in errors {
        tracing::warn!(error = %Chain(error), "a checkpoint of the predictor failed");
    }
}

/// Takes over the models of before, without those of pods that are gone.
async fn restore(state: &State, directory: &CheckpointDirectory) {
    let mut pods = state.pods.subscribe();
    let heard = pods.wait_for(|view| view.heard.is_some());
    // Without the pods every model is kept; those of pods that are gone expire.
    let known = tokio::time::timeout(PODS_WAIT, heard).await.is_ok();
    let set = Arc::clone(&state.pods.borrow().set);
    let loaded = directory.load();
    for error in &loaded.errors {
        tracing::warn!(error = %Chain(error), "a checkpoint of the predictor was not read");
    }
    for (path, problem) in &loaded.unreadable {
        tracing::warn!(path = %path.display(), problem, "a file is no checkpoint of the predictor, it is removed");
    }
    let mut errors = directory.remove_unreadable(&loaded);
    let is_live = |uid: &str| !known || set.pods.iter().any(|pod| pod.metadata.uid == uid);
    let restored = state.predictor().restore(loaded.checkpoints, is_live, wall_time());
    for (name, problem) in &restored.refused {
        tracing::debug!(model = %name, %problem, "a model is not taken over");
        errors.extend(directory.remove(name).err());
    }
    complain(state, &errors);
    tracing::info!(
        models = restored.models,
        refused = restored.refused.len(),
        "models of before are taken over"
    );
}

/// Trains at intervals until `token` is cancelled, and saves once more at the end.
pub async fn run(state: Arc<State>, token: CancellationToken) {
    let config = &state.config.prediction;
    let directory = CheckpointDirectory::new(&config.directory);
    tokio::select! {
        () = token.cancelled() => return,
        () = restore(&state, &directory) => {}
    }
    let mut schedule = CheckpointSchedule::new(CheckpointLayout::OneFile, config.checkpoint_interval);
    let mut ticks = tokio::time::interval(config.training_interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick comes at once; there is nothing to learn yet.
    ticks.tick().await;
    loop {
        tokio::select! {
            () = token.cancelled() => break,
            _ = ticks.tick() => {}
        }
        let expired = train(&state);
        let errors: Vec<CheckpointError> =
            expired.iter().filter_map(|name| directory.remove(name).err()).collect();
        complain(&state, &errors);
        save(&state, &directory, &mut schedule);
    }
    let errors = directory.write(&CheckpointPlan::OneFile, &state.predictor());
    complain(&state, &errors);
}

/// One training. Returns models that are forgotten.
fn train(state: &State) -> Vec<ModelName> {
    let pods = Arc::clone(&state.pods.borrow().set);
    let interval = state.config.prediction.training_interval;
    let store = state.intake.store();
    let round = training_round(store, Tick::now(), interval, &pods.pods, &PriorityBands::default());
    let now = wall_time();
    let mut predictor = state.predictor();
    let trained = predictor.train(&round, now);
    if trained.node_skipped {
        tracing::debug!("the node's usage is not known, only pods were trained");
    }
    let expired = predictor.expire(now);
    state.internal.set(&internal::PREDICTION_MODELS, &[], predictor.len() as f64);
    expired
}

fn save(state: &State, directory: &CheckpointDirectory, schedule: &mut CheckpointSchedule) {
    let now = wall_time();
    let mut predictor = state.predictor();
    let plan = schedule.plan(&predictor, now);
    if plan == CheckpointPlan::Nothing {
        return;
    }
    let errors = directory.write(&plan, &predictor);
    schedule.tried(&mut predictor, &plan, now);
    drop(predictor);
    complain(state, &errors);
}
