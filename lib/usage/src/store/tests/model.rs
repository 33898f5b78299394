//! Windows are those of a list of all samples, whatever happened to the rings.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What happens.
#[derive(Debug, Clone)]
enum Event {
    /// A pass so many milliseconds after the newest, with samples of these series.
    Pass { step: u64, series: Vec<(usize, f64)> },
    /// A pass so many milliseconds before the newest.
    Late { back: u64, series: Vec<(usize, f64)> },
    /// Other retention, in seconds.
    Retention { seconds: u64 },
    /// A restart with a snapshot: series of containers are lost.
    Restart,
    /// The pod of series 2 and 3 goes.
    Gone,
}

/// Series of all sorts: shared timeline and own ones, carried by snapshots and not.
fn series(index: usize) -> (Object, Kind) {
    match index {
        0 => (Object::Node, Kind::NodeCpuUsage),
        1 => (Object::Numa(1), Kind::NumaMemoryUsage),
        2 => (pod("a"), Kind::PodCpuUsage),
        3 => (pod("a"), Kind::PodMemoryUsage),
        4 => (pod("b"), Kind::PodMemoryUsage),
        5 => (pod("b"), Kind::PodMemoryUsageWithPageCache),
        6 => (container("a", "c"), Kind::ContainerMemoryUsage),
        _ => (container("a", "c"), Kind::ContainerCpuUsage),
    }
}

const SERIES: usize = 8;

fn some_series() -> impl Strategy<Value = Vec<(usize, f64)>> {
    prop::collection::vec((0..SERIES, -100.0_f64..100.0), 0..10)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => (900_u64..1_100, some_series()).prop_map(|(step, series)| Event::Pass { step, series }),
        2 => (0_u64..40_000, some_series()).prop_map(|(step, series)| Event::Pass { step, series }),
        4 => (0_u64..20_000, some_series()).prop_map(|(back, series)| Event::Late { back, series }),
        1 => (60_u64..600).prop_map(|seconds| Event::Retention { seconds }),
        1 => Just(Event::Restart),
        1 => Just(Event::Gone),
    ]
}

/// All samples that were recorded and not lost, and how far back they are complete.
#[derive(Debug, Default)]
struct Model {
    samples: [BTreeMap<u64, f64>; SERIES],
    newest: u64,
    /// Before this tick a shorter retention may have forgotten something.
    complete_from: u64,
}

impl Model {
    fn window(&self, index: usize, from: u64, to: u64) -> Option<Vec<(u64, f64)>> {
        let values: Vec<_> =
            self.samples[index].range(from..=to).map(|(&tick, &value)| (tick, value)).collect();
        (!values.is_empty()).then_some(values)
    }
}

fn retention(seconds: u64) -> Retention {
    let duration = Duration::from_secs(seconds);
    Retention { node: duration, pod: duration, container: duration }
}

fn apply(event: &Event, store: &mut Store, model: &mut Model) {
    let record = |store: &Store, model: &mut Model, tick: u64, samples: &[(usize, f64)]| {
        let mut pass = Pass::new(Tick(tick));
        for &(index, value) in samples {
            let (object, kind) = series(index);
            pass.push(object, kind, value);
            // What is too old is not kept; windows of the test do not go back so far.
            model.samples[index].insert(tick, value);
        }
        model.newest = model.newest.max(tick);
        store.record(&pass);
    };
    match event {
        Event::Pass { step, series } => {
            let tick = model.newest + step;
            record(store, model, tick, series);
        }
        Event::Late { back, series } => {
            let tick = model.newest.saturating_sub(*back);
            record(store, model, tick, series);
        }
        Event::Retention { seconds } => {
            let longest = store.retention().longest();
            let kept = longest.min(Duration::from_secs(*seconds));
            let oldest = Tick(model.newest).back(kept).milliseconds();
            model.complete_from = model.complete_from.max(oldest);
            store.set_retention(retention(*seconds));
        }
        Event::Restart => {
            let bytes = store.snapshot("boot");
            let other = Store::new(store.retention());
            let newest = store.stats().newest.unwrap_or(Tick::ZERO);
            other.restore(&bytes, "boot", newest).expect("it was just made");
            *store = other;
            model.samples[6].clear();
            model.samples[7].clear();
            // Its newest sample may be older than the newest pass, which had none.
            model.complete_from =
                model.complete_from.max(Tick(model.newest).back(store.retention().longest()).0);
        }
        Event::Gone => {
            store.retain(|object| *object != pod("a"));
            model.samples[2].clear();
            model.samples[3].clear();
        }
    }
}

fn check(store: &Store, model: &Model, index: usize, from: u64, to: u64) -> Result<(), TestCaseError> {
    let (object, kind) = series(index);
    let found = store.window(&object, kind, Tick(from), Tick(to));
    let samples = store.samples(&object, kind, Tick(from), Tick(to));
    match model.window(index, from, to) {
        None => {
            prop_assert!(found.is_err(), "{found:?} of series {index} from {from} to {to}");
            prop_assert!(samples.is_empty());
        }
        Some(expected) => {
            let window = found.expect("there are samples");
            let values: Vec<f64> = expected.iter().map(|&(_, value)| value).collect();
            let count = values.len();
            prop_assert_eq!(
                &samples,
                &expected.iter().map(|&(tick, value)| (Tick(tick), value)).collect::<Vec<_>>()
            );
            prop_assert_eq!(window.count(), count);
            prop_assert_eq!(window.average(), values.iter().sum::<f64>() / count as f64);
            prop_assert_eq!(window.last(), values[count - 1]);
            prop_assert_eq!(window.first_tick(), Tick(expected[0].0));
            prop_assert_eq!(window.last_tick(), Tick(expected[count - 1].0));
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            for percentile in Percentile::ALL {
                prop_assert_eq!(window.percentile(percentile), sorted[percentile.index(count)]);
            }
            prop_assert_eq!(store.summary(&object, kind, Tick(from), Tick(to)), Ok(window.summary));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn windows_are_those_of_all_samples(
        start in 0_u64..5_000_000,
        events in prop::collection::vec(event(), 1..300),
        windows in prop::collection::vec((0..SERIES, 0_u64..1_000, 0_u64..1_000), 20),
    ) {
        let mut store = Store::new(retention(300));
        let mut model = Model { newest: start, complete_from: start.saturating_sub(20_000), ..Model::default() };
        for (number, event) in events.iter().enumerate() {
            apply(event, &mut store, &mut model);
            let oldest = Tick(model.newest).back(store.retention().longest()).0.max(model.complete_from);
            // Some windows after each event, all at the end.
            let count = if number + 1 == events.len() { windows.len() } else { 1 };
            for &(index, from, length) in windows.iter().cycle().skip(number).take(count) {
                let span = model.newest - oldest;
                let from = oldest + span * from / 1_000;
                let to = from + span * length / 1_000;
                check(&store, &model, index, from, to)?;
                check(&store, &model, index, oldest, model.newest)?;
            }
        }
        // The list tells of the same samples.
        for info in store.list() {
            let samples = store.samples(&info.object, info.kind, Tick::ZERO, END);
            prop_assert_eq!(samples.len(), info.count);
            prop_assert_eq!(samples.last().copied(), Some((info.last_tick, info.last)));
            prop_assert_eq!(samples.first().map(|&(tick, _)| tick), Some(info.first_tick));
            prop_assert_eq!(store.latest(&info.object, info.kind), Some((info.last_tick, info.last)));
        }
    }
}
