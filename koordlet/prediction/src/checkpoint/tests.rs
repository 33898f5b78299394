use koord_extension::priority::PriorityClass;
use proptest::prelude::*;

use super::*;
use crate::model::Usage;
use crate::predictor::{PodUsage, PredictorOptions, TrainingRound};

fn at(minutes: i64) -> WallTime {
    WallTime::from_unix_seconds(1_784_851_200 + minutes * 60)
}

fn round(uids: &[String], cpu: f64) -> TrainingRound {
    let usage = Usage { cpu, memory: 1e9 };
    let pods = uids.iter().map(|uid| PodUsage { uid: uid.as_str().into(), class: None, usage }).collect();
    TrainingRound { node: None, pods }
}

fn uids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("pod-{number:03}")).collect()
}

const TEN_MINUTES: Duration = Duration::from_secs(600);

#[test]
fn a_checkpoint_has_koordinators_form() {
    let mut predictor = Predictor::new(PredictorOptions::default());
    let one = ["u1".to_owned()];
    for _ in 0..2 {
        predictor.train(&round(&one, 1.0), at(0));
    }
    predictor.train(&round(&one, 8.0), at(0));
    let line = predictor.checkpoint(&ModelName::pod("u1")).unwrap().to_line();
    assert_eq!(
        line,
        concat!(
            r#"{"UID":"u1","CPU":{"referenceTimestamp":"2026-07-24T00:00:00Z","bucketWeights":{"22":10000,"58":5000},"totalWeight":3.0},"#,
            r#""Memory":{"referenceTimestamp":"2026-07-24T00:00:00Z","bucketWeights":{"48":10000},"totalWeight":3.0},"#,
            r#""LastUpdated":"2026-07-24T00:00:00Z"}"#,
            "\n"
        )
    );
}

#[test]
fn a_file_of_koordinator_is_read() {
    // As its koordlet writes it east of Greenwich; buckets in the order of their texts.
    let text = concat!(
        r#"{"UID":"other","CPU":{"referenceTimestamp":"2026-07-24T08:00:00+08:00","bucketWeights":{"3":10000,"5":5000},"totalWeight":30},"#,
        r#""Memory":{"referenceTimestamp":"2026-07-24T08:00:00.5+08:00","bucketWeights":{"10":10000,"9":1},"totalWeight":1.5e+3},"#,
        r#""LastUpdated":"2026-07-24T00:10:00Z"}"#,
        "\n{\"trailing\":1}"
    );
    let (name, checkpoint) = read_file("u1", text).unwrap();
    assert_eq!(name, ModelName::pod("u1"));
    let mut predictor = Predictor::new(PredictorOptions::default());
    let restored = predictor.restore([(name.clone(), checkpoint)], |uid| uid == "u1", at(10));
    assert_eq!(restored, Restored { models: 1, refused: Vec::new() });
    let model = predictor.model(&name).unwrap();
    // X27.
    assert_eq!((model.cpu().weights()[3], model.cpu().weights()[5]), (20.0, 10.0));
    assert_eq!(model.memory().total_weight(), 1500.0);
    assert_eq!(model.last_updated(), at(10));
}

#[test]
fn a_model_without_samples_is_written_as_never_trained() {
    let model = Model::new(&PredictorOptions::default(), at(0));
    let line = ModelCheckpoint::of(&ModelName::Node, &model).to_line();
    let empty = r#"{"referenceTimestamp":"0001-01-01T00:00:00Z"}"#;
    assert_eq!(
        line,
        format!(
            "{{\"UID\":\"__node__\",\"CPU\":{empty},\"Memory\":{empty},\"LastUpdated\":\"2026-07-24T00:00:00Z\"}}\n"
        )
    );
    let (read, bad) = read_lines(&line);
    assert_eq!(bad, []);
    let mut predictor = Predictor::new(PredictorOptions::default());
    assert_eq!(predictor.restore(read, |_| true, at(0)).models, 1);
    assert!(predictor.model(&ModelName::Node).unwrap().cpu().is_empty());
}

#[test]
fn checkpoints_that_cannot_be_used_are_refused() {
    let good = r#"{"referenceTimestamp":"2026-07-24T00:00:00Z","bucketWeights":{"3":1},"totalWeight":1}"#;
    let restore = |name: &str, cpu: &str, memory: &str| {
        let text = format!(
            "{{\"UID\":\"x\",\"CPU\":{cpu},\"Memory\":{memory},\"LastUpdated\":\"2026-07-24T00:00:00Z\"}}"
        );
        let mut predictor = Predictor::new(PredictorOptions::default());
        let restored = predictor.restore([read_file(name, &text).unwrap()], |uid| uid == "live", at(0));
        assert_eq!(predictor.len(), restored.models);
        restored.refused.into_iter().map(|(_, problem)| problem.to_string()).next()
    };
    assert_eq!(restore("live", good, good), None);
    assert_eq!(restore("__node-sys__", good, good), None);
    assert_eq!(restore("gone", good, good).as_deref(), Some("it is of a pod that is gone"));
    let beyond = good.replace("\"3\"", "\"204\"");
    assert_eq!(restore("live", good, &beyond), None);
    assert_eq!(
        restore("live", &beyond, good).as_deref(),
        Some("CPU: bucketWeights: bucket 204 is beyond the last one, 157")
    );
    let negative = good.replace("\"totalWeight\":1", "\"totalWeight\":-1");
    assert_eq!(
        restore("live", good, &negative).as_deref(),
        Some("Memory: totalWeight is -1; wanted a finite number of at least 0")
    );
    let later = good.replace("2026", "2036");
    assert!(restore("live", &later, good).unwrap().contains("is later than now"));
    for text in ["", "{}", "[]", r#"{"UID":"x","CPU":{"bucketWeights":{"-1":3}}}"#] {
        assert!(read_file("live", text).is_err(), "{text}");
    }
    assert!(read_file("../live", "{}").is_err());
}

#[test]
fn a_cut_line_costs_one_model() {
    let mut predictor = Predictor::new(PredictorOptions::default());
    predictor.train(&round(&uids(3), 1.0), at(0));
    let text = predictor.checkpoint_lines();
    assert_eq!(text.lines().count(), 3);
    let (read, bad) = read_lines(&text[..text.len() - 10]);
    assert_eq!((read.len(), bad.len(), bad[0].line), (2, 1, 3));
}

#[test]
fn the_checkpoint_trained_last_counts() {
    let mut old = Predictor::new(PredictorOptions::default());
    old.train(&round(&uids(1), 1.0), at(0));
    let mut new = Predictor::new(PredictorOptions::default());
    new.train(&round(&uids(1), 8.0), at(1));
    let text = new.checkpoint_lines() + &old.checkpoint_lines();
    let mut predictor = Predictor::new(PredictorOptions::default());
    let restored = predictor.restore(read_lines(&text).0, |_| true, at(2));
    assert_eq!(restored.models, 1);
    assert_eq!(predictor.checkpoint_lines(), new.checkpoint_lines());
    // What was learnt meanwhile is not overwritten.
    assert_eq!(predictor.restore(read_lines(&old.checkpoint_lines()).0, |_| true, at(2)).models, 0);
    assert_eq!(predictor.checkpoint_lines(), new.checkpoint_lines());
}

#[test]
fn at_most_twelve_files_are_written_in_a_step() {
    // X25.
    let mut predictor = Predictor::new(PredictorOptions::default());
    let mut schedule = CheckpointSchedule::new(CheckpointLayout::FilePerModel { most: 12 }, TEN_MINUTES);
    let names: Vec<ModelName> = uids(13).iter().map(|uid| ModelName::pod(uid)).collect();
    predictor.train(&round(&uids(13), 1.0), at(0));
    // The first one was written last.
    for (minute, name) in (0..).zip(names.iter().skip(1).chain(names.first())) {
        let plan = CheckpointPlan::Files(vec![name.clone()]);
        schedule.tried(&mut predictor, &plan, WallTime::from_unix_millis(at(0).unix_millis() + minute));
    }
    let due = schedule.plan(&predictor, at(11));
    assert_eq!(due, CheckpointPlan::Files(names[1..].to_vec()));
    schedule.tried(&mut predictor, &due, at(11));
    let due = schedule.plan(&predictor, at(12));
    assert_eq!(due, CheckpointPlan::Files(names[..1].to_vec()));
    schedule.tried(&mut predictor, &due, at(12));
    assert_eq!(schedule.plan(&predictor, at(20)), CheckpointPlan::Nothing);
    assert_eq!(schedule.plan(&predictor, at(21)), CheckpointPlan::Files(names[1..].to_vec()));
    // The clock was set back: nobody waits for the old time to come.
    assert!(matches!(schedule.plan(&predictor, at(5)), CheckpointPlan::Files(due) if due.len() == 12));
}

#[test]
fn the_one_file_is_written_every_interval() {
    let mut predictor = Predictor::new(PredictorOptions::default());
    let mut schedule = CheckpointSchedule::new(CheckpointLayout::OneFile, TEN_MINUTES);
    assert_eq!(schedule.plan(&predictor, at(0)), CheckpointPlan::Nothing);
    predictor.train(&round(&uids(200), 1.0), at(0));
    assert_eq!(schedule.plan(&predictor, at(0)), CheckpointPlan::OneFile);
    schedule.tried(&mut predictor, &CheckpointPlan::OneFile, at(0));
    assert_eq!(schedule.plan(&predictor, at(9)), CheckpointPlan::Nothing);
    assert_eq!(schedule.plan(&predictor, at(10)), CheckpointPlan::OneFile);
    assert_eq!(schedule.plan(&predictor, at(-1)), CheckpointPlan::OneFile);
}

proptest! {
    #[test]
    fn what_is_restored_answers_alike(
        samples in prop::collection::vec((0.0..64.0_f64, 0.0..1e11_f64, 0..3000_i64), 1..80),
    ) {
        let mut predictor = Predictor::new(PredictorOptions::default());
        for (cpu, memory, minute) in &samples {
            let usage = Usage { cpu: *cpu, memory: *memory };
            let pods = vec![PodUsage { uid: "u".into(), class: Some(PriorityClass::Prod), usage }];
            predictor.train(&TrainingRound { node: None, pods }, at(*minute));
        }
        let name = ModelName::pod("u");
        let line = predictor.checkpoint(&name).unwrap().to_line();
        let (read, bad) = read_lines(&line);
        prop_assert!(bad.is_empty());
        let mut copy = Predictor::new(PredictorOptions::default());
        prop_assert_eq!(copy.restore(read, |_| true, at(3000)).models, 1);
        let (one, other) = (predictor.model(&name).unwrap(), copy.model(&name).unwrap());
        let (kept, read) = (one.cpu().total_weight(), other.cpu().total_weight());
        // The reader of JSON may be off in the last bit.
        prop_assert!((kept - read).abs() <= kept * 1e-14);
        for (kept, read) in one.cpu().weights().iter().zip(other.cpu().weights()) {
            // Rounding to a ten-thousandth of the heaviest bucket, and once more when all are scaled.
            let most = one.cpu().weights().iter().copied().fold(0.0, f64::max);
            prop_assert!((kept - read).abs() <= most * 0.01);
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in ".{0,200}") {
        drop(read_lines(&text));
        drop(read_file("u", &text));
    }
}
