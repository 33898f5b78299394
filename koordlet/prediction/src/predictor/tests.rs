use koord_extension::units::{Bytes, MilliCpu};

use super::*;
use crate::resources::Resources;

fn at(seconds: i64) -> WallTime {
    WallTime::from_unix_seconds(1_784_851_200 + seconds)
}

fn pod(uid: &str, class: PriorityClass, cpu: f64, memory: f64) -> PodUsage {
    PodUsage { uid: uid.into(), class: Some(class), usage: Usage { cpu, memory } }
}

fn p90(predictor: &Predictor, name: &str) -> Option<(i64, i64)> {
    predictor
        .percentiles(&name.parse().unwrap())
        .map(|Percentiles { p90: Resources { cpu: MilliCpu(cpu), memory: Bytes(memory) }, .. }| (cpu, memory))
}

const GIB: f64 = 1_073_741_824.0;

#[test]
fn every_pod_and_every_part_of_the_node_is_trained() {
    let mut predictor = Predictor::new(PredictorOptions::default());
    let round = TrainingRound {
        node: Some(Usage { cpu: 3.5, memory: 4.0 * GIB }),
        pods: vec![pod("a", PriorityClass::Prod, 1.0, GIB), pod("b", PriorityClass::Prod, 1.0, GIB)],
    };
    let trained = predictor.train(&round, at(0));
    assert_eq!(trained, Trained { models: 9, node_skipped: false });
    assert_eq!(predictor.len(), 9);
    assert_eq!(p90(&predictor, "a").unwrap().0, 1035);
    assert_eq!(p90(&predictor, "__node-koord-prod__").unwrap().0, 2001);
    // A class without pods has a sample of nothing.
    for class in ["koord-mid", "koord-batch", "koord-free", ""] {
        assert_eq!(p90(&predictor, &format!("__node-{class}__")), Some((25, 5_242_880)));
    }
    // The system has what no pod used: 1.5 cores, bucket from 1.4987... worked out as all others.
    let system = p90(&predictor, "__node-sys__").unwrap().0;
    assert!((1500..=1600).contains(&system), "{system}");
    assert_eq!(p90(&predictor, "c"), None);
}

#[test]
fn the_system_uses_no_less_than_nothing() {
    let mut predictor = Predictor::new(PredictorOptions::default());
    let round = TrainingRound {
        node: Some(Usage { cpu: 1.0, memory: GIB }),
        pods: vec![pod("a", PriorityClass::Batch, 8.0, 2.0 * GIB)],
    };
    predictor.train(&round, at(0));
    assert_eq!(p90(&predictor, "__node-sys__"), Some((25, 5_242_880)));
    assert_eq!(p90(&predictor, "__node-koord-batch__").unwrap().0, 8394);
}

#[test]
fn an_unknown_node_is_no_idle_node() {
    let mut predictor = Predictor::new(PredictorOptions::default());
    let round = TrainingRound { node: None, pods: vec![pod("a", PriorityClass::Prod, 1.0, GIB)] };
    assert_eq!(predictor.train(&round, at(0)), Trained { models: 1, node_skipped: true });
    assert_eq!(predictor.names().map(ToString::to_string).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn models_not_trained_for_half_an_hour_are_forgotten() {
    let mut predictor = Predictor::new(PredictorOptions::default());
    let round = |uid| TrainingRound { node: None, pods: vec![pod(uid, PriorityClass::Prod, 1.0, GIB)] };
    predictor.train(&round("a"), at(0));
    predictor.train(&round("b"), at(1));
    assert_eq!(predictor.expire(at(1800)), []);
    assert_eq!(predictor.expire(at(1801)), [ModelName::pod("a")]);
    assert_eq!(predictor.names().collect::<Vec<_>>(), [&ModelName::pod("b")]);
}

#[test]
fn a_clock_set_back_does_not_keep_models_for_ever() {
    let mut predictor = Predictor::new(PredictorOptions::default());
    let round = TrainingRound { node: None, pods: vec![pod("a", PriorityClass::Prod, 1.0, GIB)] };
    predictor.train(&round, at(1_000_000));
    assert_eq!(predictor.expire(at(0)), []);
    assert_eq!(predictor.expire(at(1801)), [ModelName::pod("a")]);
}
