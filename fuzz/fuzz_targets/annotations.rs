//! Texts of labels and annotations, and a node's policy: what is read survives being written again, and
//! what is made the best of is right.

#![no_main]

use std::collections::BTreeMap;
use std::fmt::Debug;

use koord_crd::node_slo::NodeSloSpec;
use koord_extension::annotation::*;
use koord_extension::cpuset::CpuSet;
use koord_extension::gates::{Component, Gates};
use koord_extension::keys::{annotation, label};
use koord_extension::label::{RatioRounding, ratio_percent};
use koord_extension::priority::{PriorityBands, sub_priority};
use koord_extension::quantity::Quantity;
use koord_extension::translation::{PodResources, parse_replacements, translate_pod};
use koord_extension::{legality, priority::PriorityClass};
use libfuzzer_sys::fuzz_target;

/// What is read, written and read again is the same.
fn survives<T: PartialEq + Debug, E>(text: &str, read: fn(&str) -> Result<T, E>, write: fn(&T) -> String) {
    if let Ok(value) = read(text) {
        let written = write(&value);
        match read(&written) {
            Ok(again) => assert_eq!(again, value, "{written}"),
            Err(_) => panic!("{written} cannot be read"),
        }
    }
}

macro_rules! all_survive {
    ($text:ident: $($name:ident)*) => {
        $(survives($text, $name::parse, $name::to_text);)*
    };
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    survives(text, Quantity::parse, Quantity::to_string);
    survives(text, CpuSet::parse, CpuSet::to_string);
    survives(text, str::parse::<PriorityBands>, PriorityBands::to_string);
    all_survive!(text:
        ResourceSpec ResourceStatus NumaTopologySpec ExtendedResourceSpec DeviceAllocated DeviceAllocateHints
        DeviceJointAllocate GpuPartitionSpec GpuPartitions ReservationAllocated ReservationAffinity
        ExactMatchReservation ReservationRestrictedOptions ReservationOwners ReservationCurrentOwner
        EvictionPolicy LoadEstimatedScalingFactors NetworkTopologySpec GangGroups CpuBurst CpuQos
        MemoryQos BlkioQos NetworkQos OomScoreAdjSpec Resctrl NodeReservation SystemQosResource
        OriginExtendedAllocatable ThirdPartyAllocations UsageThresholds CpuTopology
        PodCpuAllocs CpuSharedPools BeCpuSharedPools CpuBasicInfo KubeletCpuManagerPolicy
    );
    // Their fractions are floating point, which JSON does not always give back to the last bit.
    let _ = (SoftEviction::parse(text), ColocationStrategy::parse(text));
    texts(text);
    if let Ok(mut pod) = serde_json::from_str::<PodResources>(text) {
        let _ = (pod.kube_qos(), pod.request("cpu"));
        translate_pod(PriorityClass::Batch, &mut pod);
    }
    if let Ok(value) = serde_json::from_str(text) {
        let (clamped, changed) = NodeSloSpec::clamped(&value);
        clamped.effective();
        let again = serde_json::to_value(&clamped).expect("a spec is representable");
        assert_eq!(NodeSloSpec::check(&again).as_ref(), Ok(&clamped), "{changed:?}");
        if let Ok(spec) = NodeSloSpec::check(&value) {
            assert_eq!(spec, clamped);
        }
    }
});

/// Texts that are no JSON: they are read or refused.
fn texts(text: &str) {
    let of = |key: &str| BTreeMap::from([(key.to_owned(), text.to_owned())]);
    let _ = sub_priority(&of(label::PRIORITY));
    let _ = legality::unknown_qos(&of(label::QOS_CLASS));
    let _ = ratio_percent(
        &of(label::NODE_CPU_RECLAIM_RATIO),
        label::NODE_CPU_RECLAIM_RATIO,
        RatioRounding::Nearest,
    );
    let _ = eviction_cost(&of(annotation::EVICTION_COST));
    let _ = eviction_priority(&of(annotation::EVICTION_PRIORITY));
    let _ = oom_score_adj(&of(annotation::OOM_SCORE_ADJ), "main");
    let _ = oom_score_adj(&of(annotation::OOM_SCORE_ADJ_SPEC), "main");
    let _ = cpu_normalization_ratio(&of(annotation::NODE_CPU_NORMALIZATION_RATIO));
    let _ = network_bandwidth(&of(annotation::NODE_NETWORK_BANDWIDTH));
    let _ = raw_allocatable(&of(annotation::NODE_RAW_ALLOCATABLE));
    let _ = AmplificationRatios::from_annotations(&of(AmplificationRatios::KEY));
    let _ = SchedulingHint::from_annotations(&of(annotation::SCHEDULING_HINT));
    let _ = parse_replacements(text);
    let _ = go_duration(text);
    let _ = Gates::parse(Component::Koordlet, text);
}
