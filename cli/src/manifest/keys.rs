//! Koordinator's keys on a pod: which are known, and whether their values can be used.

use std::collections::BTreeMap;

use koord_extension::annotation::{
    self as typed, BlkioQos, CpuBurst, CpuQos, DeviceAllocateHints, DeviceAllocated, DeviceJointAllocate,
    EvictionPolicy, ExactMatchReservation, ExtendedResourceSpec, GangGroups, GpuPartitionSpec,
    LoadEstimatedScalingFactors, MemoryQos, NetworkQos, NetworkTopologySpec, NumaTopologySpec,
    OomScoreAdjSpec, Resctrl, ReservationAffinity, ReservationAllocated, ReservationCurrentOwner,
    ReservationOwners, ReservationRestrictedOptions, ResourceSpec, ResourceStatus, SoftEviction,
};
use koord_extension::keys::{self, annotation, domain, label};
use koord_extension::priority::{PriorityClass, sub_priority};
use koord_extension::qos::QosClass;
use serde::Serialize;

type Texts = BTreeMap<String, String>;

/// Where a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Among the labels.
    Label,
    /// Among the annotations.
    Annotation,
}

impl Place {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Place::Label => "label",
            Place::Annotation => "annotation",
        }
    }

    fn known(self) -> &'static [&'static str] {
        match self {
            Place::Label => label::ALL,
            Place::Annotation => annotation::ALL,
        }
    }

    fn other(self) -> Place {
        match self {
            Place::Label => Place::Annotation,
            Place::Annotation => Place::Label,
        }
    }
}

/// What is to be said about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// The key is known and its value can be used.
    Recognised,
    /// The key is known, its value cannot be used or does not mean what it looks like.
    Invalid,
    /// The key is known in the other place only.
    Misplaced,
    /// The key is in one of Koordinator's domains and not known.
    Unrecognised,
    /// The key's domain looks like one of Koordinator's and is none.
    Foreign,
}

impl KeyState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyState::Recognised => "recognised",
            KeyState::Invalid => "invalid value",
            KeyState::Misplaced => "misplaced",
            KeyState::Unrecognised => "unrecognised",
            KeyState::Foreign => "foreign domain",
        }
    }
}

/// One key of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyReport {
    /// Where it is.
    pub place: Place,
    /// The key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// What is to be said about it.
    pub state: KeyState,
    /// More about it, in words; empty if there is nothing to add.
    pub note: String,
    /// The nearest key that is known, if this one is not and one is near.
    pub nearest: Option<String>,
}

/// All keys of a pod that are Koordinator's or look so, labels first, each group in lexical order.
pub fn of_pod(labels: &Texts, annotations: &Texts) -> Vec<KeyReport> {
    let mut reports = Vec::new();
    for (place, texts) in [(Place::Label, labels), (Place::Annotation, annotations)] {
        for (key, value) in texts {
            let Some((state, note, nearest)) = of_key(place, key, labels, annotations) else { continue };
            reports.push(KeyReport { place, key: key.clone(), value: value.clone(), state, note, nearest });
        }
    }
    reports
}

type Verdict = (KeyState, String, Option<String>);

fn of_key(place: Place, key: &str, labels: &Texts, annotations: &Texts) -> Option<Verdict> {
    // Every object may have this one, and it says nothing about a pod.
    if key == label::MANAGED_BY {
        return None;
    }
    if place.known().contains(&key) {
        let checked = match place {
            Place::Label => check_label(key, labels),
            Place::Annotation => check_annotation(key, labels, annotations),
        };
        return Some(match checked {
            Ok(()) => (KeyState::Recognised, String::new(), None),
            Err(problem) => (KeyState::Invalid, problem, None),
        });
    }
    if place.other().known().contains(&key) {
        let note = format!("is read as {} only", with_article(place.other()));
        return Some((KeyState::Misplaced, note, None));
    }
    if keys::is_koordinator_key(key) {
        let nearest = keys::nearest(key, place.known().iter().copied());
        let note = nearest.map(|nearest| format!("did you mean {nearest}?")).unwrap_or_default();
        return Some((KeyState::Unrecognised, note, nearest.map(str::to_owned)));
    }
    let (own, name) = key.split_once('/')?;
    let domains = [
        domain::KOORDINATOR,
        domain::SCHEDULING,
        domain::INTERNAL_SCHEDULING,
        domain::NODE,
        domain::POD,
        domain::QUOTA,
        domain::GANG,
    ];
    let meant = keys::nearest(own, domains.iter().map(|domain| domain.trim_end_matches('/')))?;
    let meant = format!("{meant}/{name}");
    let nearest = keys::nearest(&meant, place.known().iter().copied())?;
    Some((KeyState::Foreign, format!("did you mean {nearest}?"), Some(nearest.to_owned())))
}

fn with_article(place: Place) -> &'static str {
    match place {
        Place::Label => "a label",
        Place::Annotation => "an annotation",
    }
}

/// Labels that say yes with the exact text `true` only.
const SWITCHES: [&str; 6] = [
    label::EVICTION_ENABLED,
    label::MUTATING_UPDATE,
    label::SKIP_ENHANCED_VALIDATION,
    label::IS_PRE_ALLOCATABLE,
    label::DISABLE_PREEMPTIBLE,
    label::RESERVATION_IGNORED,
];

fn check_label(key: &str, labels: &Texts) -> Result<(), String> {
    let value = labels.get(key).map(String::as_str).unwrap_or_default();
    let one_of = |accepted: &[&str]| {
        if accepted.contains(&value) {
            return Ok(());
        }
        let meant = keys::nearest(value, accepted.iter().copied());
        let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        Err(format!("counts as absent; accepted: {}{meant}", accepted.join(", ")))
    };
    match key {
        label::QOS_CLASS => one_of(&QosClass::ALL.map(QosClass::as_str)),
        label::PRIORITY_CLASS => one_of(&PriorityClass::ALL.map(PriorityClass::as_str)).map_err(|problem| {
            problem.replacen("counts as absent", "makes the pod one without a priority class", 1)
        }),
        label::PRIORITY => {
            sub_priority(labels).map(drop).map_err(|error| format!("counts as 0; {}", error.problem))
        }
        label::PREEMPTION_POLICY => one_of(&["Never", "PreemptLowerPriority"])
            .map_err(|problem| problem.replacen("absent", "Never", 1)),
        label::OPERATING_MODE => one_of(&["Runnable", "Reservation"]),
        label::QUOTA_PREEMPTIBLE => {
            one_of(&["true", "false"]).map_err(|problem| problem.replacen("absent", "true", 1))
        }
        _ if SWITCHES.contains(&key) => match value {
            "true" | "false" => Ok(()),
            _ => Err("counts as false; only the exact text true switches it on".to_owned()),
        },
        _ => Ok(()),
    }
}

macro_rules! readers {
    ($key:ident, $annotations:ident, $($type:ident),*) => {
        match $key {
            $($type::KEY => $type::from_annotations($annotations).map(drop).map_err(problem),)*
            _ => check_text($key, $annotations),
        }
    };
}

fn check_annotation(key: &str, labels: &Texts, annotations: &Texts) -> Result<(), String> {
    match key {
        annotation::RESERVE_POD => {
            let is_reservation = labels.get(label::OPERATING_MODE).is_some_and(|mode| mode == "Reservation");
            let problem = "is the scheduler's own mark; the webhook refuses pods of users that have it";
            if is_reservation { Ok(()) } else { Err(problem.to_owned()) }
        }
        _ => readers!(
            key,
            annotations,
            BlkioQos,
            CpuBurst,
            CpuQos,
            DeviceAllocateHints,
            DeviceAllocated,
            DeviceJointAllocate,
            EvictionPolicy,
            ExactMatchReservation,
            ExtendedResourceSpec,
            GangGroups,
            GpuPartitionSpec,
            LoadEstimatedScalingFactors,
            MemoryQos,
            NetworkQos,
            NetworkTopologySpec,
            NumaTopologySpec,
            OomScoreAdjSpec,
            ReservationAffinity,
            ReservationAllocated,
            ReservationCurrentOwner,
            ReservationOwners,
            ReservationRestrictedOptions,
            Resctrl,
            ResourceSpec,
            ResourceStatus,
            SoftEviction
        ),
    }
}

/// Annotations that are no JSON objects.
fn check_text(key: &str, annotations: &Texts) -> Result<(), String> {
    let checked = match key {
        annotation::EVICTION_COST => typed::eviction_cost(annotations).map(drop),
        annotation::EVICTION_PRIORITY => typed::eviction_priority(annotations).map(drop),
        // No container has an empty name, so this is the pod's own value.
        annotation::OOM_SCORE_ADJ => {
            let own: Texts = annotations.iter().filter(|(other, _)| *other == key).map(owned).collect();
            typed::oom_score_adj(&own, "").map(drop)
        }
        annotation::LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED => {
            typed::load_estimated_seconds(annotations, annotation::LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED)
                .map(drop)
        }
        annotation::LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED => {
            typed::load_estimated_seconds(annotations, annotation::LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED)
                .map(drop)
        }
        annotation::SCHEDULING_HINT | annotation::SCHEDULING_HINT_OLD => {
            let own: Texts = annotations.iter().filter(|(other, _)| *other == key).map(owned).collect();
            typed::SchedulingHint::from_annotations(&own).map(drop)
        }
        annotation::GANG_MIN_AVAILABLE => typed::gang_min_available(annotations).map(drop),
        annotation::GANG_TOTAL_NUMBER => typed::gang_total_number(annotations, 0).map(drop),
        annotation::GANG_WAITING_TIME => typed::gang_waiting_time(annotations).map(drop),
        annotation::GANG_NETWORK_TOPOLOGY_INDEX => typed::gang_network_topology_index(annotations).map(drop),
        _ => Ok(()),
    };
    checked.map_err(problem)
}

fn owned((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

/// Key and text are shown beside it.
fn problem(error: typed::AnnotationError) -> String {
    error.problem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn verdict(place: Place, key: &str, value: &str) -> Option<(KeyState, String)> {
        let own = texts(&[(key, value)]);
        let none = Texts::new();
        let reports = match place {
            Place::Label => of_pod(&own, &none),
            Place::Annotation => of_pod(&none, &own),
        };
        assert!(reports.len() <= 1);
        reports.into_iter().next().map(|report| (report.state, report.note))
    }

    #[test]
    fn labels() {
        use KeyState::{Foreign, Invalid, Misplaced, Recognised, Unrecognised};
        for (key, value, state, note) in [
            ("koordinator.sh/qosClass", "LS", Recognised, ""),
            (
                "koordinator.sh/qosClass",
                "ls",
                Invalid,
                "counts as absent; accepted: LSE, LSR, LS, BE, SYSTEM; did you mean LS?",
            ),
            (
                "koordinator.sh/qosClass",
                "Guaranteed",
                Invalid,
                "counts as absent; accepted: LSE, LSR, LS, BE, SYSTEM",
            ),
            ("koordinator.sh/priority-class", "koord-mid", Recognised, ""),
            (
                "koordinator.sh/priority-class",
                "gold",
                Invalid,
                "makes the pod one without a priority class; accepted: koord-prod, koord-mid, koord-batch, koord-free",
            ),
            ("koordinator.sh/priority", "0x10", Recognised, ""),
            ("koordinator.sh/priority", "abc", Invalid, "counts as 0; wanted a whole number of 32 bits"),
            ("koordinator.sh/eviction-enabled", "true", Recognised, ""),
            (
                "koordinator.sh/eviction-enabled",
                "True",
                Invalid,
                "counts as false; only the exact text true switches it on",
            ),
            ("koordinator.sh/qosclass", "LS", Unrecognised, "did you mean koordinator.sh/qosClass?"),
            ("koordinator.sh/zzzzzzzzzzzzzzzzzzzzzzzzzz", "", Unrecognised, ""),
            ("koordinator.sh/cpuQOS", "{}", Misplaced, "is read as an annotation only"),
            ("kordinator.sh/qosClass", "LS", Foreign, "did you mean koordinator.sh/qosClass?"),
        ] {
            assert_eq!(verdict(Place::Label, key, value), Some((state, note.to_owned())), "{key}={value}");
        }
        for key in ["app", "app.kubernetes.io/name", "app.kubernetes.io/managed-by", "example.com/qosClass"] {
            assert_eq!(verdict(Place::Label, key, "x"), None, "{key}");
        }
    }

    #[test]
    fn annotations() {
        use KeyState::{Invalid, Misplaced, Recognised};
        let state = |key: &str, value: &str| verdict(Place::Annotation, key, value).map(|(state, _)| state);
        for (key, good, bad) in [
            ("koordinator.sh/cpuQOS", r#"{"groupIdentity":2}"#, r#"{"groupIdentity":3}"#),
            ("koordinator.sh/oom-score-adj", "-999", "-1001"),
            ("koordinator.sh/oom-score-adj-spec", r#"{"c":5}"#, "[]"),
            ("koordinator.sh/eviction-priority", "-5", "x"),
            ("scheduling.koordinator.sh/eviction-cost", "10", "+10"),
            ("scheduling.koordinator.sh/resource-status", r#"{"cpuset":"0-3"}"#, "0-3"),
            ("node.koordinator.sh/extended-resource-spec", "{}", "{"),
            ("gang.scheduling.koordinator.sh/min-available", "2", "two"),
            ("gang.scheduling.koordinator.sh/waiting-time", "1m30s", "90"),
        ] {
            assert_eq!(state(key, good), Some(Recognised), "{key}: {good}");
            assert_eq!(state(key, bad), Some(Invalid), "{key}: {bad}");
        }
        assert_eq!(state("koordinator.sh/qosClass", "LS"), Some(Misplaced));
        assert_eq!(state("scheduling.koordinator.sh/reserve-pod", "true"), Some(Invalid));
        assert_eq!(state("kubectl.kubernetes.io/last-applied-configuration", "{}"), None);
    }

    #[test]
    fn every_key_of_the_protocol_is_recognised_in_its_place() {
        for (place, all) in [(Place::Label, label::ALL), (Place::Annotation, annotation::ALL)] {
            for key in all.iter().filter(|key| **key != label::MANAGED_BY) {
                let (state, _) = verdict(place, key, "").unwrap_or_else(|| panic!("{key}"));
                assert!(matches!(state, KeyState::Recognised | KeyState::Invalid), "{key}: {state:?}");
            }
        }
    }
}
