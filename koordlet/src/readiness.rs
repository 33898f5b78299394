//! Whether the agent does its work.

use std::fmt::Write as _;
use std::time::Duration;

use crate::state::CollectorView;

/// Samples older than this are not of now.
const OLDEST_SAMPLE: Duration = Duration::from_secs(10);

/// Pods that were not heard of for longer may be others by now.
const OLDEST_PODS: Duration = Duration::from_secs(300);

/// What readiness depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Time since pods were heard of; nothing before the first time.
    pub pods_age: Option<Duration>,
    /// Whether there are pods to measure.
    pub has_pods: bool,
    /// Age of the newest sample of the node.
    pub node_sample_age: Option<Duration>,
    /// Age of the newest sample of any pod.
    pub pod_sample_age: Option<Duration>,
    /// Where samples come from.
    pub source: &'static str,
    /// How the collectors are doing.
    pub collectors: Vec<CollectorView>,
    /// What works, but not as it was asked for.
    pub notes: Vec<String>,
}

/// The answer: whether it is ready, and a line for everything.
pub fn judge(facts: &Facts) -> (bool, String) {
    let seconds = |age: Duration| format!("{:.1} s old", age.as_secs_f64());
    let pods = match facts.pods_age {
        None => Err("never heard of".to_owned()),
        Some(age) if age > OLDEST_PODS => Err(seconds(age)),
        Some(age) => Ok(seconds(age)),
    };
    let sample = |age: Option<Duration>| match age {
        None => Err("no sample yet".to_owned()),
        Some(age) if age > OLDEST_SAMPLE => Err(seconds(age)),
        Some(age) => Ok(seconds(age)),
    };
    let pod_usage = if facts.has_pods { sample(facts.pod_sample_age) } else { Ok("no pods".to_owned()) };
    let parts = [("pods", pods), ("node usage", sample(facts.node_sample_age)), ("pod usage", pod_usage)];
    let ready = parts.iter().all(|(_, part)| part.is_ok());
    let mut text = String::from(if ready { "ready\n" } else { "not ready\n" });
    for (name, part) in &parts {
        let (word, detail) = match part {
            Ok(detail) => ("ok", detail),
            Err(detail) => ("not ready", detail),
        };
        // Writing to a String cannot fail, here and below.
        let _infallible = writeln!(text, "{name}: {word}, {detail}");
    }
    let _infallible = writeln!(text, "source of samples: {}", facts.source);
    for collector in &facts.collectors {
        let _infallible = match collector.reason.as_str() {
            "" => writeln!(text, "collector {}: {}", collector.name, collector.state),
            reason => writeln!(text, "collector {}: {}: {reason}", collector.name, collector.state),
        };
    }
    for note in &facts.notes {
        let _infallible = writeln!(text, "note: {note}");
    }
    (ready, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            pods_age: Some(Duration::from_secs(300)),
            has_pods: true,
            node_sample_age: Some(Duration::from_secs(10)),
            pod_sample_age: Some(Duration::from_millis(500)),
            source: "proxy",
            collectors: vec![CollectorView {
                name: "cpi".to_owned(),
                state: "disabled".to_owned(),
                reason: "no such counters".to_owned(),
                last_success: None,
                duration_microseconds: 0,
                errors: 0,
                open_descriptors: 0,
            }],
            notes: vec!["memory is reported without page cache".to_owned()],
        }
    }

    #[test]
    fn ready_at_the_bounds() {
        assert_eq!(
            judge(&good()),
            (
                true,
                "ready\n\
                 pods: ok, 300.0 s old\n\
                 node usage: ok, 10.0 s old\n\
                 pod usage: ok, 0.5 s old\n\
                 source of samples: proxy\n\
                 collector cpi: disabled: no such counters\n\
                 note: memory is reported without page cache\n"
                    .to_owned()
            )
        );
    }

    #[test]
    fn not_ready_beyond_them() {
        let more = Duration::from_millis(1);
        for facts in [
            Facts { pods_age: None, ..good() },
            Facts { pods_age: Some(OLDEST_PODS + more), ..good() },
            Facts { node_sample_age: None, ..good() },
            Facts { node_sample_age: Some(OLDEST_SAMPLE + more), ..good() },
            Facts { pod_sample_age: None, ..good() },
            Facts { pod_sample_age: Some(OLDEST_SAMPLE + more), ..good() },
        ] {
            let (ready, text) = judge(&facts);
            assert!(!ready && text.starts_with("not ready\n"), "{facts:?}");
        }
        assert!(
            judge(&Facts { has_pods: false, pod_sample_age: None, ..good() }).0,
            "a node without pods has no usage of pods"
        );
    }
}
