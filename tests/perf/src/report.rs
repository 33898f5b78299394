//! Figures, the table and the targets.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::messages::Case;

/// What one round of one case gave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) cpu: Option<f64>,
}

impl Round {
    /// From the times of all calls and the relay's CPU time; `None` when there were no calls.
    pub(crate) fn new(mut times: Vec<Duration>, cpu: Option<Duration>) -> Option<Self> {
        times.sort_unstable();
        let calls = f64::from(u32::try_from(times.len()).ok()?);
        let at = |percent: usize| times.get(times.len() * percent / 100).map(micros);
        Some(Self { p50: at(50)?, p99: at(99)?, cpu: cpu.map(|time| micros(&time) / calls) })
    }
}

fn micros(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The figures of one relay: medians over the rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) cases: BTreeMap<Case, Round>,
    pub(crate) rss_idle_kib: Option<u64>,
    pub(crate) rss_1000_kib: Option<u64>,
}

/// The median; the lower of the two middle ones of an even number.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// Medians of rounds.
pub(crate) fn summarize(rounds: &[Round]) -> Option<Round> {
    let of = |pick: fn(&Round) -> f64| median(rounds.iter().map(pick).collect());
    let cpu: Option<Vec<f64>> = rounds.iter().map(|round| round.cpu).collect();
    Some(Round { p50: of(|round| round.p50)?, p99: of(|round| round.p99)?, cpu: cpu.and_then(median) })
}

/// All figures by the relay's name, in the order of the table.
pub(crate) type Results = Vec<(String, Figures)>;

fn find<'a>(results: &'a Results, name: &str) -> Option<&'a Figures> {
    results.iter().find(|(relay, _)| relay == name).map(|(_, figures)| figures)
}

/// The file's content: times in microseconds, rounded to a tenth; `added_*` is the difference to `direct`.
pub(crate) fn to_json(results: &Results) -> Value {
    let tenth = |value: f64| json!((value * 10.0).round() / 10.0);
    let direct = find(results, "direct");
    let mut all = Map::new();
    for (name, figures) in results {
        let mut relay = Map::new();
        for (case, round) in &figures.cases {
            let mut entry = Map::new();
            entry.insert("p50_us".into(), tenth(round.p50));
            entry.insert("p99_us".into(), tenth(round.p99));
            if let Some(cpu) = round.cpu {
                entry.insert("cpu_us_per_call".into(), tenth(cpu));
            }
            if let Some(base) = direct.and_then(|direct| direct.cases.get(case)).filter(|_| name != "direct")
            {
                entry.insert("added_p50_us".into(), tenth(round.p50 - base.p50));
                entry.insert("added_p99_us".into(), tenth(round.p99 - base.p99));
            }
            relay.insert(case.name().into(), Value::Object(entry));
        }
        for (key, value) in [("rss_idle_kib", figures.rss_idle_kib), ("rss_1000_kib", figures.rss_1000_kib)] {
            if let Some(value) = value {
                relay.insert(key.into(), json!(value));
            }
        }
        all.insert(name.clone(), Value::Object(relay));
    }
    Value::Object(all)
}

/// The table for people.
pub(crate) fn table(results: &Results) -> String {
    let mut out = String::new();
    let direct = find(results, "direct");
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "{:<14} {:<12} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "case", "relay", "p50 us", "p99 us", "+p50 us", "+p99 us", "CPU us"
    );
    for case in Case::RELAY {
        for (name, figures) in results {
            let Some(round) = figures.cases.get(&case) else { continue };
            let base = direct.and_then(|direct| direct.cases.get(&case)).filter(|_| name != "direct");
            let number =
                |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
            let _ = writeln!(
                out,
                "{:<14} {:<12} {:>10} {:>10} {:>10} {:>10} {:>10}",
                case.name(),
                name,
                number(Some(round.p50)),
                number(Some(round.p99)),
                number(base.map(|base| round.p50 - base.p50)),
                number(base.map(|base| round.p99 - base.p99)),
                number(round.cpu),
            );
        }
    }
    let _ = writeln!(out, "\n{:<14} {:>16} {:>32}", "relay", "RSS idle KiB", "RSS with 1,000 containers KiB");
    for (name, figures) in results {
        if let (Some(idle), Some(full)) = (figures.rss_idle_kib, figures.rss_1000_kib) {
            let _ = writeln!(out, "{name:<14} {idle:>16} {full:>32}");
        }
    }
    out
}

/// A target, what was measured, and whether it holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) limit: f64,
    pub(crate) measured: f64,
}

impl Target {
    pub(crate) fn holds(&self) -> bool {
        self.measured <= self.limit
    }
}

/// The targets that can be judged from these results, with all limits as absolute numbers.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    let Some(relay) = find(results, "relay") else { return targets };
    let mut add = |what: String, limit: Option<f64>, measured: Option<f64>| {
        if let (Some(limit), Some(measured)) = (limit, measured) {
            targets.push(Target { what, limit, measured });
        }
    };
    let echo = find(results, "echo");
    let hyper = find(results, "hyper");
    for case in Case::RELAY {
        let name = case.name();
        let ours = relay.cases.get(&case);
        let floor = echo.and_then(|echo| echo.cases.get(&case));
        let (p50, margin) = if case == Case::Hold7k1 { ("hold p50", 20.0) } else { ("pass p50", 15.0) };
        add(
            format!("{name}: {p50} at most echo + {margin} us"),
            floor.map(|echo| echo.p50 + margin),
            ours.map(|relay| relay.p50),
        );
        if case != Case::Hold7k1 {
            add(
                format!("{name}: pass p99 at most echo + 50 us"),
                floor.map(|echo| echo.p99 + 50.0),
                ours.map(|relay| relay.p99),
            );
        }
        let other = hyper.and_then(|hyper| hyper.cases.get(&case)).and_then(|hyper| hyper.cpu);
        add(
            format!("{name}: CPU per call at most half of hyper's"),
            other.map(|cpu| cpu / 2.0),
            ours.and_then(|relay| relay.cpu),
        );
    }
    let mebibytes = |kib: u64| f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0;
    add("RSS idle at most 8 MiB".into(), Some(8.0), relay.rss_idle_kib.map(mebibytes));
    add("RSS with 1,000 containers at most 20 MiB".into(), Some(20.0), relay.rss_1000_kib.map(mebibytes));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(p50: f64, p99: f64, cpu: f64) -> Round {
        Round { p50, p99, cpu: Some(cpu) }
    }

    fn figures(p50: f64, p99: f64, cpu: f64) -> Figures {
        Figures {
            cases: BTreeMap::from([
                (Case::Small1, round(p50, p99, cpu)),
                (Case::Hold7k1, round(p50, p99, cpu)),
            ]),
            rss_idle_kib: Some(8 << 10),
            rss_1000_kib: Some((20 << 10) + 1),
        }
    }

    #[test]
    fn percentiles_and_medians() {
        let times = (0..100).map(Duration::from_micros).collect();
        let round = Round::new(times, Some(Duration::from_micros(500))).unwrap();
        assert_eq!((round.p50, round.p99, round.cpu), (50.0, 99.0, Some(5.0)));
        assert!(Round::new(Vec::new(), None).is_none());
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn targets_hold_up_to_their_limits_and_not_beyond() {
        let results = |p50, p99, cpu| {
            vec![
                ("direct".to_owned(), figures(50.0, 100.0, 0.0)),
                ("echo".to_owned(), figures(100.0, 200.0, 30.0)),
                ("relay".to_owned(), figures(p50, p99, cpu)),
                ("hyper".to_owned(), figures(200.0, 400.0, 80.0)),
            ]
        };
        let failing = |results: &Results| {
            targets(results)
                .into_iter()
                .filter(|target| !target.holds())
                .map(|target| target.what)
                .collect::<Vec<_>>()
        };
        let memory = "RSS with 1,000 containers at most 20 MiB";
        assert_eq!(targets(&results(115.0, 250.0, 40.0)).len(), 7);
        assert_eq!(failing(&results(115.0, 250.0, 40.0)), [memory]);
        assert_eq!(failing(&results(116.0, 250.0, 40.0)), ["small_1: pass p50 at most echo + 15 us", memory]);
        assert_eq!(failing(&results(115.0, 250.1, 40.0)), ["small_1: pass p99 at most echo + 50 us", memory]);
        assert_eq!(failing(&results(121.0, 250.0, 40.1)).len(), 5);
    }

    #[test]
    fn the_file_has_the_fields_its_readers_look_for() {
        let results = vec![
            ("direct".to_owned(), figures(50.0, 100.0, 0.0)),
            ("echo".to_owned(), figures(75.04, 200.0, 30.0)),
        ];
        let value = to_json(&results);
        assert_eq!(value["echo"]["small_1"]["p50_us"], json!(75.0));
        assert_eq!(value["echo"]["small_1"]["added_p99_us"], json!(100.0));
        assert_eq!(value["echo"]["hold7k_1"]["cpu_us_per_call"], json!(30.0));
        assert_eq!(value["echo"]["rss_1000_kib"], json!(20_481));
        assert_eq!(value["direct"]["small_1"].get("added_p50_us"), None);
    }
}
