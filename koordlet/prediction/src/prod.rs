//! What production pods will not use of their requests, and what they will use at their peak.
//!
//! Two predictions are made and the more careful one counts: one from the models of the pods, one from the
//! models of the priority classes. The parts are kept, as gauges show them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};

use koord_extension::annotation::raw_allocatable;
use koord_extension::keys::resource;
use koord_extension::priority::{PriorityBands, PriorityClass};
use koord_extension::quantity::ResourceList;
use koord_extension::units::Percent;

use crate::model::{Item, ModelName};
use crate::pod::Pod;
use crate::predictor::{Predictor, PredictorOptions};
use crate::resources::Resources;
use crate::wall_time::WallTime;

/// What a prediction is made of, besides the models.
#[derive(Debug, Clone, Copy)]
pub struct ProdView<'a> {
    /// What the node can give to pods, before amplification; none if it is not known.
    pub allocatable: Option<Resources>,
    /// Which values of `spec.priority` are of which class.
    pub bands: &'a PriorityBands,
    /// Now.
    pub now: WallTime,
}

/// What a node can give to pods, before amplification: each resource as its annotation states, else as its
/// status does. None if neither states anything, or the annotation is the only one and cannot be read.
pub fn allocatable(annotations: &BTreeMap<String, String>, status: &ResourceList) -> Option<Resources> {
    let raw = raw_allocatable(annotations).ok().flatten().unwrap_or_default();
    if raw.is_empty() && status.is_empty() {
        return None;
    }
    let amount = |name: &str| raw.get(name).or_else(|| status.get(name)).copied().unwrap_or_default();
    Some(Resources { cpu: amount(resource::CPU).milli_cpu(), memory: amount(resource::MEMORY).bytes() })
}

/// Why there is no prediction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProdError {
    /// Nothing was learnt of a thing.
    #[error("there is no model of {0}")]
    NoModel(ModelName),
    /// The node is not known, or states no allocatable resources.
    #[error("the node's allocatable CPU and memory are not known")]
    NoAllocatable,
}

/// A pod that was left out, or is not predicted although it is old enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodProblem {
    /// `namespace/name`.
    pub pod: String,
    /// Why.
    pub problem: PodProblemKind,
}

/// What is wrong with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PodProblemKind {
    /// Its UID was there already.
    #[error("its UID occurs twice")]
    Duplicate,
    /// Nothing was learnt of it.
    #[error("there is no model of it")]
    NoModel,
}

/// The prediction from the models of the pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPart {
    /// Sum of the peaks of the predicted pods.
    pub unreclaimable: Resources,
    /// Sum of the requests of the pods that cannot be predicted yet.
    pub unpredicted: Resources,
    /// Sum of what the predicted pods request above their peaks.
    pub reclaimable: Resources,
    /// What can be reclaimed, within what the node has.
    pub result: Result<Resources, ProdError>,
}

/// The prediction from the models of the priority classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassPart {
    /// Sum of the pods' requests.
    pub request: Resources,
    /// Peak of the classes and the system.
    pub unreclaimable: Result<Resources, ProdError>,
    /// What can be reclaimed, within what the node has.
    pub result: Result<Resources, ProdError>,
}

/// Both parts and what follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProdPrediction {
    /// From the pods (`podReclaimablePredictor`).
    pub pod_part: PodPart,
    /// From the classes (`priorityReclaimablePredictor`).
    pub class_part: ClassPart,
    /// What can be reclaimed: of each resource the smaller amount (`minPredictor`).
    pub reclaimable: Result<Resources, ProdError>,
    /// The peak: of each resource the larger amount.
    pub peak: Result<Resources, ProdError>,
    /// Pods that were left out or not predicted.
    pub problems: Vec<PodProblem>,
}

/// Whether the requests of a class can be reclaimed for mid pods.
fn is_prod(class: Option<PriorityClass>) -> bool {
    matches!(class, None | Some(PriorityClass::Prod))
}

/// What a model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forecast {
    /// There is no model.
    Unknown,
    /// There is one, but it has not seen enough.
    Immature,
    /// The peak, without margin.
    Peak(Resources),
}

/// What becomes of a pod in the pods' part.
enum Outlook {
    Peak(Resources),
    Unpredicted,
    Ends,
    NoModel,
}

impl Predictor {
    /// Predicts for `pods`, which are those with known usage, in the order of the pod list.
    pub fn prod<'p>(&self, pods: impl IntoIterator<Item = &'p Pod>, view: &ProdView<'_>) -> ProdPrediction {
        predict(pods, view, &self.options, |name| match self.models.get(name) {
            None => Forecast::Unknown,
            Some(model) if matches!(name, ModelName::Pod(_)) && model.is_immature(&self.options) => {
                Forecast::Immature
            }
            Some(model) => Forecast::Peak(model.peak()),
        })
    }
}

fn predict<'p>(
    pods: impl IntoIterator<Item = &'p Pod>,
    view: &ProdView<'_>,
    options: &PredictorOptions,
    forecast: impl Fn(&ModelName) -> Forecast,
) -> ProdPrediction {
    let share = Percent(options.safety_margin.get().saturating_add(100));
    let cold_start = i64::try_from(options.cold_start.as_millis()).unwrap_or(i64::MAX);
    let outlook = |pod: &Pod| {
        // A pod that ends within its cold start counts as fresh, as in Koordinator.
        if pod.age_millis(view.now) <= cold_start {
            return Outlook::Unpredicted;
        }
        if pod.is_terminating() || pod.is_terminated() {
            return Outlook::Ends;
        }
        match forecast(&ModelName::pod(&pod.metadata.uid)) {
            Forecast::Unknown => Outlook::NoModel,
            Forecast::Immature => Outlook::Unpredicted,
            Forecast::Peak(peak) => Outlook::Peak(peak.percent(share)),
        }
    };

    let mut seen = HashSet::new();
    let mut problems = Vec::new();
    let mut unreclaimable = Resources::ZERO;
    let mut unpredicted = Resources::ZERO;
    let mut reclaimable = Resources::ZERO;
    let mut class_request = Resources::ZERO;
    for pod in pods {
        if !is_prod(Some(pod.priority_class(view.bands))) {
            continue;
        }
        let mut problem = |problem| problems.push(PodProblem { pod: pod.key().to_string(), problem });
        if !seen.insert(pod.metadata.uid.as_str()) {
            problem(PodProblemKind::Duplicate);
            continue;
        }
        let request = pod.request();
        match outlook(pod) {
            Outlook::Peak(peak) => {
                unreclaimable = unreclaimable.plus(peak);
                reclaimable = reclaimable.plus(request.less(peak));
            }
            Outlook::Unpredicted => unpredicted = unpredicted.plus(request),
            Outlook::Ends => {}
            Outlook::NoModel => {
                unpredicted = unpredicted.plus(request);
                problem(PodProblemKind::NoModel);
                continue;
            }
        }
        // A fresh pod's usage is in the model of its class already, so its request counts here.
        if !pod.is_terminating() && !pod.is_terminated() {
            class_request = class_request.plus(request);
        }
    }

    let within = |unreclaimable: Resources, reclaimable: Resources| {
        let allocatable = view.allocatable.ok_or(ProdError::NoAllocatable)?;
        Ok(allocatable.less(unreclaimable).smaller(reclaimable))
    };
    let pod_part =
        PodPart { unreclaimable, unpredicted, reclaimable, result: within(unreclaimable, reclaimable) };
    let class_peak = class_peak(forecast).map(|peak| peak.percent(share));
    let class_part = ClassPart {
        request: class_request,
        result: class_peak.clone().and_then(|peak| within(peak, class_request.less(peak))),
        unreclaimable: class_peak.clone(),
    };
    let reclaimable = pod_part
        .result
        .clone()
        .and_then(|of_pods| class_part.result.clone().map(|of_classes| of_pods.smaller(of_classes)));
    let peak = class_peak.map(|of_classes| unreclaimable.plus(unpredicted).larger(of_classes));
    ProdPrediction { pod_part, class_part, reclaimable, peak, problems }
}

/// Peak of the system and of the classes that are reclaimed from. Their models count from the first sample
/// on: a class is as old as the node.
fn class_peak(forecast: impl Fn(&ModelName) -> Forecast) -> Result<Resources, ProdError> {
    let parts = [Item::System, Item::Class(Some(PriorityClass::Prod)), Item::Class(None)];
    parts.into_iter().try_fold(Resources::ZERO, |sum, item| {
        let name = ModelName::Item(item);
        match forecast(&name) {
            Forecast::Peak(peak) => Ok(sum.plus(peak)),
            Forecast::Unknown | Forecast::Immature => Err(ProdError::NoModel(name)),
        }
    })
}
