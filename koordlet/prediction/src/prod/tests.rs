use std::collections::BTreeMap;
use std::time::Duration;

use koord_extension::units::{Bytes, MilliCpu};
use serde_json::json;

use super::*;
use crate::model::Usage;
use crate::predictor::{PodUsage, TrainingRound};

const GIB: i64 = 1 << 30;
const DAY: i64 = 86_400_000;

fn now() -> WallTime {
    "2026-07-24T08:00:00Z".parse().unwrap()
}

const fn of(cpu: i64, memory: i64) -> Resources {
    Resources { cpu: MilliCpu(cpu), memory: Bytes(memory) }
}

/// A prod pod of such an age in milliseconds, which requests two CPUs and 2 GiB.
fn pod(uid: &str, age: i64) -> Pod {
    let created = WallTime::from_unix_millis(now().unix_millis() - age);
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "shop", "uid": uid, "creationTimestamp": created},
        "spec": {"priority": 9500, "containers": [{"resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}]},
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }))
    .unwrap()
}

/// Peaks by name, as of the example: the pod "a", the system, prod pods and pods of no class.
fn peaks() -> BTreeMap<&'static str, Resources> {
    BTreeMap::from([
        ("a", of(500, GIB)),
        ("__node-sys__", of(300, GIB / 2)),
        ("__node-koord-prod__", of(1000, GIB)),
        ("__node-__", Resources::ZERO),
    ])
}

fn predicted(
    pods: &[Pod],
    allocatable: Option<Resources>,
    peaks: &BTreeMap<&str, Resources>,
) -> ProdPrediction {
    let bands = PriorityBands::default();
    let view = ProdView { allocatable, bands: &bands, now: now() };
    predict(pods, &view, &PredictorOptions::default(), |name| {
        peaks.get(name.to_string().as_str()).map_or(Forecast::Unknown, |peak| Forecast::Peak(*peak))
    })
}

const NODE: Option<Resources> = Some(of(8000, 16 * GIB));

#[test]
fn what_was_there_before_amplification_counts() {
    let status = ResourceList::from([
        ("cpu".to_owned(), "12".parse().unwrap()),
        ("memory".to_owned(), "16Gi".parse().unwrap()),
    ]);
    let raw =
        |text: &str| BTreeMap::from([("node.koordinator.sh/raw-allocatable".to_owned(), text.to_owned())]);
    assert_eq!(allocatable(&BTreeMap::new(), &status), Some(of(12_000, 16 * GIB)));
    assert_eq!(allocatable(&raw(r#"{"cpu":"8","memory":"8Gi"}"#), &status), Some(of(8000, 8 * GIB)));
    assert_eq!(allocatable(&raw(r#"{"cpu":"8"}"#), &status), Some(of(8000, 16 * GIB)));
    assert_eq!(allocatable(&raw("no JSON"), &status), Some(of(12_000, 16 * GIB)));
    assert_eq!(allocatable(&raw("no JSON"), &ResourceList::new()), None);
    assert_eq!(allocatable(&raw(r#"{"cpu":"8"}"#), &ResourceList::new()), Some(of(8000, 0)));
}

#[test]
fn the_pod_part_is_requests_less_peaks() {
    // R1.
    let found = predicted(&[pod("a", 2 * DAY)], NODE, &peaks());
    assert_eq!(found.pod_part.unreclaimable, of(550, 1_181_116_006));
    assert_eq!(found.pod_part.unpredicted, Resources::ZERO);
    assert_eq!(found.pod_part.result, Ok(of(1450, 966_367_642)));
    // R3: the node has less than that.
    let found = predicted(&[pod("a", 2 * DAY)], Some(of(1000, GIB)), &peaks());
    assert_eq!(found.pod_part.result, Ok(of(450, 0)));
}

#[test]
fn the_class_part_is_all_requests_less_the_peak_of_the_class_and_the_system() {
    // R2: with a fresh pod that requests the third CPU and GiB.
    let mut fresh = pod("b", 0);
    let requests = [("cpu".to_owned(), "1".parse().unwrap()), ("memory".to_owned(), "1Gi".parse().unwrap())];
    fresh.spec.containers[0].resources.requests = BTreeMap::from(requests);
    let found = predicted(&[pod("a", 2 * DAY), fresh], NODE, &peaks());
    assert_eq!(found.class_part.request, of(3000, 3 * GIB));
    assert_eq!(found.class_part.unreclaimable, Ok(of(1430, 1_771_674_009)));
    assert_eq!(found.class_part.result, Ok(of(1570, 1_449_551_463)));
    assert_eq!(found.reclaimable, Ok(of(1450, 966_367_642)));
    // 550m and the fresh pod's 1000m; 1181116006 and 1 GiB.
    assert_eq!(found.peak, Ok(of(1550, 1_181_116_006 + GIB)));
    assert_eq!(found.problems, []);
}

#[test]
fn a_fresh_pod_is_not_predicted() {
    // R4 and X23: exactly as old as the cold start, and a millisecond older.
    let found = predicted(&[pod("a", DAY)], NODE, &peaks());
    assert_eq!((found.pod_part.unpredicted, found.pod_part.result), (of(2000, 2 * GIB), Ok(Resources::ZERO)));
    assert_eq!(found.class_part.request, of(2000, 2 * GIB));
    assert_eq!(found.reclaimable, Ok(Resources::ZERO));
    assert_eq!(found.peak, Ok(of(2000, 2 * GIB)));
    let found = predicted(&[pod("a", DAY + 1)], NODE, &peaks());
    assert_eq!(found.pod_part.unreclaimable, of(550, 1_181_116_006));
}

#[test]
fn a_pod_that_ends_has_nothing_to_give() {
    // R5.
    let mut terminating = pod("a", 2 * DAY);
    terminating.metadata.deletion_timestamp = Some(now());
    let mut succeeded = pod("a", 2 * DAY);
    succeeded.status.phase = crate::pod::Phase::Succeeded;
    for pod in [terminating.clone(), succeeded] {
        let found = predicted(&[pod], NODE, &peaks());
        assert_eq!(found.pod_part.unreclaimable, Resources::ZERO);
        assert_eq!(found.pod_part.unpredicted, Resources::ZERO);
        assert_eq!(found.class_part.request, Resources::ZERO);
    }
    // Within its cold start it still counts as fresh in the pods' part.
    terminating.metadata.creation_timestamp = Some(now());
    let found = predicted(&[terminating], NODE, &peaks());
    assert_eq!(found.pod_part.unpredicted, of(2000, 2 * GIB));
    assert_eq!(found.class_part.request, Resources::ZERO);
}

#[test]
fn pods_of_other_classes_do_not_count() {
    // R6.
    for priority in [5500, 7500, 3500] {
        let mut other = pod("a", 2 * DAY);
        other.spec.priority = Some(priority);
        let found = predicted(&[other], NODE, &peaks());
        assert_eq!(found.pod_part.unreclaimable, Resources::ZERO);
        assert_eq!(found.class_part.request, Resources::ZERO);
    }
    // Outside of all bands and latency sensitive: prod by default.
    let mut other = pod("a", 2 * DAY);
    other.spec.priority = Some(1);
    assert_eq!(predicted(&[other], NODE, &peaks()).class_part.request, of(2000, 2 * GIB));
}

#[test]
fn a_pod_counts_once() {
    // R7.
    let once = predicted(&[pod("a", 2 * DAY)], NODE, &peaks());
    let twice = predicted(&[pod("a", 2 * DAY), pod("a", 2 * DAY)], NODE, &peaks());
    let problem = PodProblem { pod: "shop/a".to_owned(), problem: PodProblemKind::Duplicate };
    assert_eq!(twice, ProdPrediction { problems: vec![problem], ..once });
}

#[test]
fn an_old_pod_without_model_counts_as_its_request() {
    // R8.
    let found = predicted(&[pod("x", 2 * DAY)], NODE, &peaks());
    assert_eq!(found.pod_part.unpredicted, of(2000, 2 * GIB));
    assert_eq!(found.class_part.request, Resources::ZERO);
    assert_eq!(found.problems, [PodProblem { pod: "shop/x".to_owned(), problem: PodProblemKind::NoModel }]);
    assert_eq!(found.problems[0].problem.to_string(), "there is no model of it");
}

#[test]
fn a_model_that_is_missing_leaves_nothing_to_say() {
    // R9.
    for missing in [Item::System, Item::Class(Some(PriorityClass::Prod)), Item::Class(None)] {
        let name = ModelName::Item(missing);
        let mut peaks = peaks();
        peaks.remove(name.to_string().as_str());
        let found = predicted(&[pod("a", 2 * DAY)], NODE, &peaks);
        assert_eq!(found.reclaimable, Err(ProdError::NoModel(name.clone())));
        assert_eq!(found.peak, Err(ProdError::NoModel(name)));
        assert!(found.pod_part.result.is_ok());
    }
}

#[test]
fn an_unknown_node_has_a_peak_all_the_same() {
    // R10.
    let found = predicted(&[pod("a", 2 * DAY)], None, &peaks());
    assert_eq!(found.reclaimable, Err(ProdError::NoAllocatable));
    assert_eq!(found.pod_part.result, Err(ProdError::NoAllocatable));
    assert_eq!(found.class_part.result, Err(ProdError::NoAllocatable));
    // The larger of the pod's 550m and the classes' 1430m; of memory likewise.
    assert_eq!(found.peak, Ok(of(1430, 1_771_674_009)));
}

#[test]
fn a_peak_is_truncated_after_the_margin() {
    // X24.
    let peaks = BTreeMap::from([("a", of(5, 5))]);
    assert_eq!(predicted(&[pod("a", 2 * DAY)], NODE, &peaks).pod_part.unreclaimable, of(5, 5));
}

#[test]
fn margins_of_single_samples() {
    // The third columns of H1 to H13 and X18 to X21: peak of one sample and ten percent.
    for (cpu, memory, expected) in [
        (0.0, 1.0, (27, 5_767_168)),
        (0.05, 100.0, (56, 124_447_200)),
        (0.1, 128.0, (117, 149_025_732)),
        (0.25, 300.0, (302, 359_425_548)),
        (0.3, 512.0, (345, 621_179_045)),
        (0.5, 1024.0, (592, 1_207_345_060)),
        (0.75, 10_240.0, (839, 12_363_240_706)),
        (1.0, 20_480.0, (1138, 24_591_399_549)),
        (2.0, 65_536.0, (2201, 75_772_004_419)),
        (4.0, 1.0, (4638, 5_767_168)),
        (6.0, 1.0, (6750, 5_767_168)),
        (8.0, 1.0, (9233, 5_767_168)),
        (12.0, 1.0, (13216, 5_767_168)),
        (16.0, 1.0, (17899, 5_767_168)),
    ] {
        let mut predictor =
            Predictor::new(PredictorOptions { min_samples: 0, ..PredictorOptions::default() });
        let usage = Usage { cpu, memory: memory * 1_048_576.0 };
        let pod_usage = PodUsage { uid: "a".into(), class: Some(PriorityClass::Prod), usage };
        predictor.train(&TrainingRound { node: None, pods: vec![pod_usage] }, now());
        let bands = PriorityBands::default();
        let found =
            predictor.prod(&[pod("a", 2 * DAY)], &ProdView { allocatable: NODE, bands: &bands, now: now() });
        let Resources { cpu: MilliCpu(cpu), memory: Bytes(memory) } = found.pod_part.unreclaimable;
        assert_eq!(cpu, expected.0);
        // A byte of difference between libraries of mathematics becomes up to two.
        assert!((memory - expected.1).abs() <= 2, "{memory} instead of {}", expected.1);
    }
}

#[test]
fn a_model_is_believed_after_an_hour_of_samples() {
    let bands = PriorityBands::default();
    let old = pod("a", 2 * DAY);
    let view = |now| ProdView { allocatable: NODE, bands: &bands, now };
    let round = TrainingRound {
        node: Some(Usage { cpu: 1.0, memory: 1e9 }),
        pods: vec![PodUsage {
            uid: "a".into(),
            class: Some(PriorityClass::Prod),
            usage: Usage { cpu: 0.5, memory: 1e9 },
        }],
    };
    for half_life in [Duration::from_secs(600), Duration::from_secs(12 * 3600)] {
        let options = PredictorOptions { cpu_half_life: half_life, ..PredictorOptions::default() };
        let mut predictor = Predictor::new(options);
        for sample in 1..=60 {
            let then = now().plus(Duration::from_secs(60 * sample));
            predictor.train(&round, then);
            let found = predictor.prod([&old], &view(then));
            let unpredicted = if sample < 60 { of(2000, 2 * GIB) } else { Resources::ZERO };
            assert_eq!(found.pod_part.unpredicted, unpredicted, "{sample} samples");
            // Meanwhile its request counts for the class, and it is no problem.
            assert_eq!(found.class_part.request, of(2000, 2 * GIB));
            assert_eq!(found.problems, []);
            assert!(found.peak.is_ok());
        }
    }
    // As Koordinator does it: one sample is enough.
    let mut predictor = Predictor::new(PredictorOptions { min_samples: 0, ..PredictorOptions::default() });
    predictor.train(&round, now());
    assert_eq!(predictor.prod([&old], &view(now())).pod_part.unreclaimable.cpu, MilliCpu(592));
}
