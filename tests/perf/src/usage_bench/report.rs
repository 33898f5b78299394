//! Figures, the table and the targets.

use std::fmt::Write as _;

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::report::Target;

/// One number of pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Size {
    pods: usize,
    /// CPU at a pass a second, percent of one core.
    cpu_percent: f64,
    naive_cpu_percent: f64,
    rss_kib: u64,
    /// What the child told beside these.
    figures: Value,
}

/// A pass of so many microseconds each second, in percent of a core.
fn percent(micros: u64) -> f64 {
    f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 10_000.0
}

impl Size {
    /// From what the two children told.
    pub(super) fn new(pods: usize, own: &Value, naive: &Value) -> anyhow::Result<Size> {
        let number =
            |of: &Value, key: &str| of.get(key).and_then(Value::as_u64).with_context(|| key.to_owned());
        Ok(Size {
            pods,
            cpu_percent: percent(number(own, "cpu_us_per_pass")?),
            naive_cpu_percent: percent(number(naive, "cpu_us_per_pass")?),
            rss_kib: number(own, "rss_kib")?,
            figures: own.clone(),
        })
    }

    fn number(&self, key: &str) -> u64 {
        self.figures.get(key).and_then(Value::as_u64).unwrap_or(0)
    }
}

/// What a run gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Results {
    pub(super) sizes: Vec<Size>,
}

fn mebibytes(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}

/// Limits by pods: percent of a core, MiB.
const LIMITS: [(usize, Option<f64>, Option<f64>); 3] =
    [(100, Some(1.0), None), (250, Some(1.0), Some(40.0)), (1000, Some(3.0), Some(80.0))];

/// The targets that can be judged from these results.
pub(super) fn targets(results: &Results) -> Vec<Target> {
    let mut targets = Vec::new();
    for size in &results.sizes {
        let Some((pods, cpu, memory)) = LIMITS.into_iter().find(|(pods, ..)| *pods == size.pods) else {
            continue;
        };
        if let Some(limit) = cpu {
            let what = format!("CPU at {pods} pods, percent of a core");
            targets.push(Target { what, limit, measured: size.cpu_percent });
        }
        if let Some(limit) = memory {
            let what = format!("RSS at {pods} pods, MiB");
            targets.push(Target { what, limit, measured: mebibytes(size.rss_kib) });
        }
    }
    targets
}

/// The file's content.
pub(super) fn to_json(results: &Results) -> Value {
    let rounded = |value: f64| json!((value * 10_000.0).round() / 10_000.0);
    let mut sizes = Map::new();
    for size in &results.sizes {
        let mut entry = size.figures.as_object().cloned().unwrap_or_default();
        entry.insert("cpu_percent_of_core".into(), rounded(size.cpu_percent));
        entry.insert("naive_cpu_percent_of_core".into(), rounded(size.naive_cpu_percent));
        entry.insert("rss_kib".into(), json!(size.rss_kib));
        sizes.insert(format!("pods_{}", size.pods), Value::Object(entry));
    }
    Value::Object(sizes)
}

/// The table for people.
pub(super) fn table(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "{:>6} {:>9} {:>9} {:>9} {:>11} {:>11} {:>9} {:>9} {:>9} {:>8}",
        "pods",
        "CPU %",
        "usual %",
        "times",
        "us a pass",
        "of it read",
        "worst us",
        "RSS MiB",
        "store MiB",
        "files"
    );
    for size in &results.sizes {
        let times = if size.cpu_percent > 0.0 { size.naive_cpu_percent / size.cpu_percent } else { 0.0 };
        let _ = writeln!(
            out,
            "{:>6} {:>9.3} {:>9.3} {:>9.1} {:>11} {:>11} {:>9} {:>9.1} {:>9.1} {:>8}",
            size.pods,
            size.cpu_percent,
            size.naive_cpu_percent,
            times,
            size.number("cpu_us_per_pass"),
            size.number("sampling_us_per_pass"),
            size.number("worst_us_per_pass"),
            mebibytes(size.rss_kib),
            mebibytes(size.number("store_bytes") / 1024),
            size.number("open_descriptors"),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(pods: usize, micros: u64, kib: u64) -> Size {
        let own = json!({ "cpu_us_per_pass": micros, "rss_kib": kib, "series": 7 });
        Size::new(pods, &own, &json!({ "cpu_us_per_pass": 25_000 })).expect("figures")
    }

    #[test]
    fn percents_are_of_a_pass_a_second() {
        let size = size(100, 9_900, 1024);
        assert_eq!((size.cpu_percent, size.naive_cpu_percent), (0.99, 2.5));
        assert!(Size::new(1, &json!({}), &json!({})).is_err());
    }

    #[test]
    fn targets_by_size() {
        let sizes = vec![
            size(100, 10_000, 1 << 30),
            size(250, 10_001, 40 << 10),
            size(300, 1, 1),
            size(1000, 1, (80 << 10) + 1),
        ];
        let targets = targets(&Results { sizes });
        let verdicts: Vec<bool> = targets.iter().map(Target::holds).collect();
        assert_eq!(verdicts, [true, false, true, true, false]);
    }

    #[test]
    fn figures_by_size() {
        let figures = to_json(&Results { sizes: vec![size(100, 1234, 2048)] });
        let expected = json!({ "pods_100": {
            "cpu_percent_of_core": 0.1234, "naive_cpu_percent_of_core": 2.5, "rss_kib": 2048,
            "cpu_us_per_pass": 1234, "series": 7,
        }});
        assert_eq!(figures, expected);
        assert!(table(&Results { sizes: vec![size(100, 1234, 2048)] }).contains("0.123"));
    }
}
