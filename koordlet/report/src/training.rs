//! What the predictor learns from.

use std::sync::Arc;
use std::time::Duration;

use koord_extension::priority::PriorityBands;
use koord_prediction::model::Usage;
use koord_prediction::pod::Pod;
use koord_prediction::predictor::{PodUsage, TrainingRound};
use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::store::Store;
use koord_usage::time::Tick;
use koord_usage::window::Percentile;

/// The usage since the last training: 90th percentiles over the last `interval`, memory without page cache.
///
/// A pod of which CPU or memory is not known is left out, and so is one that has ended.
pub fn training_round(
    store: &Store,
    now: Tick,
    interval: Duration,
    pods: &[Arc<Pod>],
    bands: &PriorityBands,
) -> TrainingRound {
    let p90 = |object: &Object, kind| {
        let window = store.window(object, kind, now.back(interval), now).ok()?;
        Some(window.percentile(Percentile::P90))
    };
    let usage =
        |object: &Object, cpu, memory| Some(Usage { cpu: p90(object, cpu)?, memory: p90(object, memory)? });
    TrainingRound {
        node: usage(&Object::Node, Kind::NodeCpuUsage, Kind::NodeMemoryUsage),
        pods: pods
            .iter()
            .filter(|pod| !pod.is_terminated())
            .filter_map(|pod| {
                let uid: Arc<str> = pod.metadata.uid.as_str().into();
                let object = Object::Pod(uid.clone());
                let usage = usage(&object, Kind::PodCpuUsage, Kind::PodMemoryUsage)?;
                Some(PodUsage { uid, class: Some(pod.priority_class(bands)), usage })
            })
            .collect(),
    }
}
