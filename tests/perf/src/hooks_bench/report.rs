//! Figures of the ways, the table and the targets.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::messages::Case;
use crate::report::{Round, Target, median, summarize};

/// How a call gets to the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// Without a proxy.
    Direct,
    /// Held and sent on; nobody is asked.
    Hold,
    /// The rules are asked and have nothing to say: no policy, all gates off.
    Asked,
    /// All rules, a policy that switches everything on.
    Rules,
    /// The rules and a plugin in the proxy.
    InProcess,
    /// The rules and a plugin in a process of its own.
    Isolated,
    /// The rules and a hook server.
    Remote,
}

impl Way {
    pub(super) const ALL: [Self; 7] =
        [Self::Direct, Self::Hold, Self::Asked, Self::Rules, Self::InProcess, Self::Isolated, Self::Remote];

    /// Its name in tables and files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Hold => "hold",
            Self::Asked => "asked",
            Self::Rules => "rules",
            Self::InProcess => "in-process",
            Self::Isolated => "isolated",
            Self::Remote => "remote",
        }
    }

    /// Whether requests must arrive edited.
    pub(super) fn edits(self) -> bool {
        matches!(self, Self::Rules | Self::InProcess | Self::Isolated | Self::Remote)
    }

    /// What it is compared with.
    pub(super) fn base(self) -> Option<Self> {
        match self {
            Self::Direct => None,
            Self::Hold => Some(Self::Direct),
            Self::Asked | Self::Rules => Some(Self::Hold),
            Self::InProcess | Self::Isolated | Self::Remote => Some(Self::Rules),
        }
    }

    /// Microseconds it may add to its base, p50.
    fn limit(self) -> Option<f64> {
        match self {
            Self::Rules => Some(20.0),
            Self::InProcess => Some(10.0),
            Self::Isolated => Some(60.0),
            Self::Direct | Self::Hold | Self::Asked | Self::Remote => None,
        }
    }
}

/// Memory of a proxy with the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// Resident before the first pod.
    pub(super) idle_kib: u64,
    /// Resident with 1,000 containers, all of whose values were written and compared.
    pub(super) full_kib: u64,
    /// Fields the ledger has then.
    pub(super) fields: u64,
    /// Fields of them that a rule changed.
    pub(super) changed: u64,
}

/// What a run gave.
#[derive(Debug, Clone, Default)]
pub(super) struct Results {
    /// By the name of the way.
    pub(super) rounds: BTreeMap<String, BTreeMap<Case, Vec<Round>>>,
    pub(super) memory: Option<Memory>,
    /// Resident memory of the child process of the isolated plugin.
    pub(super) child_kib: Option<u64>,
}

/// What a way adds to its base: medians over the differences within each round, because the machine's pace changes
/// from round to round.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Added {
    p50: f64,
    p99: f64,
    cpu: Option<f64>,
    /// Half of the range in which the middle half of the differences in p50 lies.
    spread: f64,
}

impl Results {
    fn of(&self, way: Way, case: Case) -> Option<&[Round]> {
        self.rounds.get(way.name())?.get(&case).map(Vec::as_slice)
    }

    fn added(&self, way: Way, case: Case) -> Option<Added> {
        let pairs = || Some(self.of(way, case)?.iter().zip(self.of(way.base()?, case)?));
        let difference = |pick: fn(&Round) -> f64| -> Option<Vec<f64>> {
            Some(pairs()?.map(|(own, base)| pick(own) - pick(base)).collect())
        };
        let cpu: Option<Vec<f64>> = pairs()?.map(|(own, base)| Some(own.cpu? - base.cpu?)).collect();
        let mut sorted = difference(|round| round.p50)?;
        sorted.sort_unstable_by(f64::total_cmp);
        let quarter = sorted.len() / 4;
        let spread = sorted.get(sorted.len().checked_sub(1 + quarter)?)? - sorted.get(quarter)?;
        Some(Added {
            p50: median(sorted)?,
            p99: median(difference(|round| round.p99)?)?,
            cpu: cpu.and_then(median),
            spread: spread / 2.0,
        })
    }
}

fn mebibytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}

/// The targets that can be judged from these results.
pub(super) fn targets(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    for case in Case::HOOKS {
        for way in Way::ALL {
            if let (Some(limit), Some(base), Some(added)) =
                (way.limit(), way.base(), results.added(way, case))
            {
                let what = format!("{}: {} p50 over {}, us", case.name(), way.name(), base.name());
                targets.push(Target { what, limit, measured: added.p50 });
            }
        }
    }
    if let Some(memory) = results.memory {
        let mut add = |what: &str, limit, kib| {
            targets.push(Target { what: what.to_owned(), limit, measured: mebibytes(kib) });
        };
        add("RSS idle, MiB", 12.0, memory.idle_kib);
        add("RSS with 1,000 containers, MiB", 25.0, memory.full_kib);
    }
    targets
}

/// The file's content: times in microseconds, rounded to a tenth.
pub(super) fn to_json(results: &Results) -> Value {
    let tenth = |value: f64| json!((value * 10.0).round() / 10.0);
    let mut ways = Map::new();
    for way in Way::ALL {
        let mut cases = Map::new();
        for case in Case::HOOKS {
            let Some(round) = results.of(way, case).and_then(summarize) else { continue };
            let mut entry = Map::new();
            let mut put = |key: &str, value: Option<f64>| {
                if let Some(value) = value {
                    entry.insert(key.to_owned(), tenth(value));
                }
            };
            let added = results.added(way, case);
            put("p50_us", Some(round.p50));
            put("p99_us", Some(round.p99));
            put("cpu_us_per_call", round.cpu);
            put("added_p50_us", added.map(|added| added.p50));
            put("added_p50_spread_us", added.map(|added| added.spread));
            put("added_p99_us", added.map(|added| added.p99));
            put("added_cpu_us_per_call", added.and_then(|added| added.cpu));
            if let Some(base) = way.base() {
                entry.insert("added_to".into(), json!(base.name()));
            }
            cases.insert(case.name().into(), Value::Object(entry));
        }
        if !cases.is_empty() {
            ways.insert(way.name().into(), Value::Object(cases));
        }
    }
    let memory = results.memory.map(|memory| {
        json!({
            "rss_idle_kib": memory.idle_kib,
            "rss_1000_kib": memory.full_kib,
            "ledger_fields": memory.fields,
            "ledger_fields_changed": memory.changed,
        })
    });
    let targets: Vec<Value> = targets(results)
        .iter()
        .map(|target| {
            json!({
                "what": target.what,
                "limit": target.limit,
                "measured": tenth(target.measured),
                "holds": target.holds(),
            })
        })
        .collect();
    json!({ "ways": ways, "memory": memory, "plugin_child_rss_kib": results.child_kib, "targets": targets })
}

/// The table for people.
pub(super) fn table(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "{:<11} {:<11} {:>9} {:>9} {:>9}   {:<8} {:>9} {:>7} {:>9} {:>9}",
        "case", "way", "p50 us", "p99 us", "CPU us", "added to", "+p50 us", "+/-", "+p99 us", "+CPU us"
    );
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    for case in Case::HOOKS {
        for way in Way::ALL {
            let Some(round) = results.of(way, case).and_then(summarize) else { continue };
            let added = results.added(way, case);
            let _ = writeln!(
                out,
                "{:<11} {:<11} {:>9} {:>9} {:>9}   {:<8} {:>9} {:>7} {:>9} {:>9}",
                case.name(),
                way.name(),
                number(Some(round.p50)),
                number(Some(round.p99)),
                number(round.cpu),
                way.base().map_or("-", Way::name),
                number(added.map(|added| added.p50)),
                number(added.map(|added| added.spread)),
                number(added.map(|added| added.p99)),
                number(added.and_then(|added| added.cpu)),
            );
        }
    }
    if let Some(memory) = results.memory {
        let _ = writeln!(
            out,
            "\nRSS: {:.1} MiB idle, {:.1} MiB with 1,000 containers ({} fields in the ledger, {} changed)",
            mebibytes(memory.idle_kib),
            mebibytes(memory.full_kib),
            memory.fields,
            memory.changed
        );
    }
    if let Some(kib) = results.child_kib {
        let _ = writeln!(out, "RSS of an isolated plugin's process: {:.1} MiB", mebibytes(kib));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(p50: &[f64]) -> BTreeMap<Case, Vec<Round>> {
        let of = |p50: &f64| Round { p50: *p50, p99: p50 * 2.0, cpu: Some(p50 / 2.0) };
        BTreeMap::from([(Case::Create7k1, p50.iter().map(of).collect())])
    }

    fn results(ways: &[(Way, &[f64])]) -> Results {
        Results {
            rounds: ways.iter().map(|(way, p50)| (way.name().to_owned(), rounds(p50))).collect(),
            memory: Some(Memory { idle_kib: 12 << 10, full_kib: (25 << 10) + 1, fields: 9, changed: 3 }),
            child_kib: None,
        }
    }

    #[test]
    fn differences_are_taken_within_rounds() {
        // The machine is three times slower in the second half; the medians alone would differ by 100.
        let results = results(&[
            (Way::Hold, &[50.0, 50.0, 50.0, 150.0, 150.0]),
            (Way::Rules, &[60.0, 60.0, 170.0, 170.0, 170.0]),
        ]);
        let added = results.added(Way::Rules, Case::Create7k1).unwrap();
        assert_eq!((added.p50, added.p99, added.cpu, added.spread), (20.0, 40.0, Some(10.0), 5.0));
        assert_eq!(results.added(Way::Hold, Case::Create7k1), None);
        assert_eq!(results.added(Way::Rules, Case::Update7k1), None);
    }

    #[test]
    fn targets_hold_up_to_their_limits_and_not_beyond() {
        let failing = |rules, plugin| -> Vec<String> {
            let results = results(&[
                (Way::Hold, &[50.0]),
                (Way::Rules, &[rules]),
                (Way::InProcess, &[plugin]),
                (Way::Isolated, &[rules + 60.0]),
            ]);
            let missed = targets(&results).into_iter().filter(|target| !target.holds());
            missed.map(|target| target.what).collect()
        };
        let memory = "RSS with 1,000 containers, MiB";
        assert_eq!(failing(70.0, 80.0), [memory]);
        assert_eq!(failing(71.0, 81.0), ["create7k_1: rules p50 over hold, us", memory]);
        assert_eq!(failing(70.0, 81.0), ["create7k_1: in-process p50 over rules, us", memory]);
    }

    #[test]
    fn the_file_has_the_fields_its_readers_look_for() {
        let value = to_json(&results(&[(Way::Hold, &[50.0]), (Way::Rules, &[60.04])]));
        let rules = &value["ways"]["rules"]["create7k_1"];
        assert_eq!(rules["added_p50_us"], json!(10.0));
        assert_eq!(rules["added_to"], json!("hold"));
        assert_eq!(value["memory"]["rss_idle_kib"], json!(12_288));
        assert_eq!(value["targets"][0]["holds"], json!(true));
        assert_eq!(value["targets"][0]["limit"], json!(20.0));
    }
}
