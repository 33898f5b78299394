//! Which values groups get: of a class by the node's strategy, of a pod by its annotation.

use std::collections::{BTreeMap, BTreeSet};

use koord_extension::annotation;

use super::groups::RdtClass;
use super::info::{BandwidthInfo, BandwidthUnit, Info};
use super::schemata::Schemata;
use super::share::{BandwidthError, MaskError, bandwidth, cache_mask};

/// The shares of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassShare {
    /// The class.
    pub class: RdtClass,
    /// Start of its cache in percent, 0..100 (`catRangeStartPercent`).
    pub cache_start: i64,
    /// End of its cache in percent, above the start (`catRangeEndPercent`).
    pub cache_end: i64,
    /// Memory bandwidth in percent, 1..100 (`mbaPercent`); absent is left as it is.
    pub bandwidth: Option<i64>,
}

/// Why a line, or a part of one, is not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanProblem {
    /// The range has no mask.
    #[error("L3 cache is left as it is: {0}")]
    Cache(MaskError),
    /// The range is not two numbers.
    #[error("L3 cache range {0:?}; expected two numbers, the start and the end in percent")]
    Range(Vec<i64>),
    /// The percent has no value.
    #[error("memory bandwidth is left as it is: {0}")]
    Bandwidth(BandwidthError),
    /// This machine cannot divide it.
    #[error("this machine cannot divide {0}")]
    Unsupported(&'static str),
    /// There is no such cache.
    #[error("{resource} has no domain {id}; there are {known:?}")]
    UnknownDomain {
        /// `L3` or `MB`.
        resource: &'static str,
        /// The id that was named.
        id: i64,
        /// The ids there are.
        known: Vec<u32>,
    },
}

const CACHE: &str = "L3";
const BANDWIDTH: &str = "MB";

/// What a group is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassGroup {
    /// The class.
    pub class: RdtClass,
    /// Values to write. Lines that cannot be made are empty, which leaves them as they are.
    pub schemata: Schemata,
    /// Why lines are empty.
    pub problems: Vec<PlanProblem>,
}

/// The groups of the classes.
#[derive(Debug, Clone, Copy)]
pub struct ClassGroups;

impl ClassGroups {
    /// The values of each class. Ids of caches are those of the lines of the root group. A line that has no value
    /// for one id is not written at all.
    pub fn plan(info: &Info, root: &Schemata, classes: &[ClassShare]) -> Vec<ClassGroup> {
        classes.iter().map(|share| class_group(info, root, share)).collect()
    }

    /// The values that take every limit away: those of the root group.
    pub fn unlimited(root: &Schemata) -> Schemata {
        Schemata { other: Vec::new(), ..root.clone() }
    }

    /// The groups to have: those of classes that are on. A class that is off has no use for a class of service.
    pub fn wanted(enabled: impl IntoIterator<Item = (RdtClass, bool)>) -> BTreeSet<RdtClass> {
        enabled.into_iter().filter(|(_, on)| *on).map(|(class, _)| class).collect()
    }
}

fn class_group(info: &Info, root: &Schemata, share: &ClassShare) -> ClassGroup {
    let mut group = ClassGroup { class: share.class, schemata: Schemata::default(), problems: Vec::new() };
    match &info.cache {
        None => group.problems.push(PlanProblem::Unsupported(CACHE)),
        Some(cache) => match cache_mask(cache, share.cache_start, share.cache_end) {
            Ok(mask) => group.schemata.cache = root.cache.keys().map(|id| (*id, mask)).collect(),
            Err(error) => group.problems.push(PlanProblem::Cache(error)),
        },
    }
    match (&info.bandwidth, share.bandwidth) {
        (_, None) => {}
        (None, Some(100)) => {}
        (None, Some(_)) => group.problems.push(PlanProblem::Unsupported(BANDWIDTH)),
        (Some(limits), Some(percent)) => {
            let limits = &in_percents_unless_known(limits);
            let values: Result<BTreeMap<u32, u64>, _> = root
                .bandwidth
                .iter()
                .map(|(id, most)| Ok((*id, bandwidth(limits, *most, percent)?)))
                .collect();
            match values {
                Ok(values) => group.schemata.bandwidth = values,
                Err(error) => group.problems.push(PlanProblem::Bandwidth(error)),
            }
        }
    }
    group
}

/// Classes take values of vendors whose unit is not known for percents, as Koordinator does; the architectures that
/// Linux knows besides x86 do count in percents. Pods get no value there.
fn in_percents_unless_known(limits: &BandwidthInfo) -> BandwidthInfo {
    let unit = match limits.unit {
        BandwidthUnit::Unknown => BandwidthUnit::Percent,
        known => known,
    };
    BandwidthInfo { unit, ..limits.clone() }
}

/// The shares of a pod, as its annotation `node.koordinator.sh/resctrl` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodShare {
    /// Cache of every domain: start and end in percent; empty is none.
    pub cache: Vec<i64>,
    /// Cache of single domains, by id, in place of the above.
    pub cache_of: Vec<(i64, Vec<i64>)>,
    /// Bandwidth of every domain in percent; 0 is none.
    pub bandwidth: i64,
    /// Bandwidth of single domains, by id, in place of the above.
    pub bandwidth_of: Vec<(i64, i64)>,
}

impl From<&annotation::Resctrl> for PodShare {
    fn from(annotation: &annotation::Resctrl) -> PodShare {
        PodShare {
            cache: annotation.llc.schemata.range.clone(),
            cache_of: annotation
                .llc
                .schemata_per_cache
                .iter()
                .map(|cache| (cache.cache_id, cache.range.clone()))
                .collect(),
            bandwidth: annotation.mb.schemata.percent,
            bandwidth_of: annotation
                .mb
                .schemata_per_cache
                .iter()
                .map(|cache| (cache.cache_id, cache.percent))
                .collect(),
        }
    }
}

/// What the group of a pod is to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSchemata {
    /// Values to write. Empty lines leave the group as the kernel makes it.
    pub schemata: Schemata,
    /// What of the annotation could not be followed.
    pub problems: Vec<PlanProblem>,
}

/// The values of a pod: those for every domain, then those of single ones. An invalid cache range ends the reading of
/// cache ranges; what was read before it counts. A line with an invalid bandwidth is left out as a whole. Domains that
/// do not exist are passed over.
pub fn pod_schemata(info: &Info, root: &Schemata, share: &PodShare) -> PodSchemata {
    let mut pod = PodSchemata::default();
    pod_bandwidth(info, root, share, &mut pod);
    pod_cache(info, root, share, &mut pod);
    pod
}

fn pod_bandwidth(info: &Info, root: &Schemata, share: &PodShare, pod: &mut PodSchemata) {
    if share.bandwidth == 0 && share.bandwidth_of.is_empty() {
        return;
    }
    let Some(limits) = &info.bandwidth else {
        pod.problems.push(PlanProblem::Unsupported(BANDWIDTH));
        return;
    };
    let mut percents: BTreeMap<u32, i64> = BTreeMap::new();
    if share.bandwidth != 0 {
        percents.extend(root.bandwidth.keys().map(|id| (*id, share.bandwidth)));
    }
    for (id, percent) in &share.bandwidth_of {
        match known(&root.bandwidth, *id) {
            Some(id) => {
                percents.insert(id, *percent);
            }
            None => pod.problems.push(unknown(BANDWIDTH, &root.bandwidth, *id)),
        }
    }
    let value = |id: &u32, percent| {
        let most = root.bandwidth.get(id).copied().unwrap_or(0);
        bandwidth(limits, most, percent)
    };
    let values: Result<BTreeMap<u32, u64>, _> =
        percents.iter().map(|(id, percent)| Ok((*id, value(id, *percent)?))).collect();
    match values {
        Ok(values) => pod.schemata.bandwidth = values,
        Err(error) => pod.problems.push(PlanProblem::Bandwidth(error)),
    }
}

fn pod_cache(info: &Info, root: &Schemata, share: &PodShare, pod: &mut PodSchemata) {
    if share.cache.is_empty() && share.cache_of.is_empty() {
        return;
    }
    let Some(cache) = &info.cache else {
        pod.problems.push(PlanProblem::Unsupported(CACHE));
        return;
    };
    let mask = |range: &[i64]| match range {
        [start, end] => cache_mask(cache, *start, *end).map_err(PlanProblem::Cache),
        _ => Err(PlanProblem::Range(range.to_vec())),
    };
    if !share.cache.is_empty() {
        match mask(&share.cache) {
            Ok(mask) => pod.schemata.cache = root.cache.keys().map(|id| (*id, mask)).collect(),
            Err(problem) => {
                pod.problems.push(problem);
                return;
            }
        }
    }
    for (id, range) in &share.cache_of {
        match (known(&root.cache, *id), mask(range)) {
            (_, Err(problem)) => {
                pod.problems.push(problem);
                return;
            }
            (Some(id), Ok(mask)) => {
                pod.schemata.cache.insert(id, mask);
            }
            (None, Ok(_)) => pod.problems.push(unknown(CACHE, &root.cache, *id)),
        }
    }
}

fn known(domains: &BTreeMap<u32, u64>, id: i64) -> Option<u32> {
    u32::try_from(id).ok().filter(|id| domains.contains_key(id))
}

fn unknown(resource: &'static str, domains: &BTreeMap<u32, u64>, id: i64) -> PlanProblem {
    PlanProblem::UnknownDomain { resource, id, known: domains.keys().copied().collect() }
}

#[cfg(test)]
mod tests;
