//! What the spec of NodeMetric asks for.

use std::time::Duration;

use koord_extension::annotation::MemoryCollectPolicy;
use koord_extension::duration::GoDuration;
use koord_extension::json::same_key;
use serde_json::{Map, Value};

use crate::memory::MemoryMeasure;

/// A report every 30 s at most.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(30);

/// Averages over a minute at least.
const SHORTEST_AGGREGATE: Duration = Duration::from_secs(60);

/// What a node reports and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Time between two reports, at least 30 s.
    pub report_interval: Duration,
    /// Over which time averages are taken, at least 60 s.
    pub aggregate: Duration,
    /// Over which times percentiles are taken, in the order they are reported.
    pub durations: Vec<Duration>,
    /// What counts as memory in use.
    pub memory: MemoryMeasure,
}

impl Default for Policy {
    /// A report every minute, averages over 5 min, percentiles over 5, 10 and 30 min, memory without page
    /// cache.
    fn default() -> Policy {
        Policy {
            report_interval: Duration::from_secs(60),
            aggregate: Duration::from_secs(300),
            durations: [5, 10, 30].map(|minutes| Duration::from_secs(minutes * 60)).into(),
            memory: MemoryMeasure::WithoutPageCache,
        }
    }
}

/// A field of the spec that is passed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value} is passed over; wanted {wanted}")]
pub struct PolicyProblem {
    /// The field.
    pub field: &'static str,
    /// Its value, as JSON.
    pub value: String,
    /// What is wanted.
    pub wanted: &'static str,
}

impl Policy {
    /// The policy of a `spec`, which may be null. A field that is absent or null has its default; one that
    /// cannot be used is told and has its default; of durations only the bad ones are passed over.
    pub fn of_spec(spec: &Value) -> (Policy, Vec<PolicyProblem>) {
        let mut policy = Policy::default();
        let mut reader = Reader { problems: Vec::new() };
        if let Some(spec) = reader.object("spec", Some(spec))
            && let Some(collect) =
                reader.object("spec.metricCollectPolicy", field(spec, "metricCollectPolicy"))
        {
            reader.collect_policy(collect, &mut policy);
        }
        policy.report_interval = policy.report_interval.max(SHORTEST_INTERVAL);
        policy.aggregate = policy.aggregate.max(SHORTEST_AGGREGATE);
        (policy, reader.problems)
    }

    /// The longest time that a report looks back.
    pub fn longest_window(&self) -> Duration {
        self.durations.iter().copied().fold(self.aggregate, Duration::max)
    }
}

/// The value of a key, matched exactly first and then without regard to case, as Go reads it; null is none.
fn field<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object
        .get(key)
        .or_else(|| object.iter().find(|(name, _)| same_key(name, key)).map(|(_, value)| value))
        .filter(|value| !value.is_null())
}

struct Reader {
    problems: Vec<PolicyProblem>,
}

impl Reader {
    fn refuse(&mut self, field: &'static str, value: &Value, wanted: &'static str) {
        let value = value.to_string().chars().take(80).collect();
        self.problems.push(PolicyProblem { field, value, wanted });
    }

    fn object<'a>(&mut self, name: &'static str, value: Option<&'a Value>) -> Option<&'a Map<String, Value>> {
        match value? {
            Value::Object(object) => Some(object),
            Value::Null => None,
            other => {
                self.refuse(name, other, "an object");
                None
            }
        }
    }

    /// Seconds; a negative number is less than the shortest time there is.
    fn seconds(&mut self, name: &'static str, value: Option<&Value>) -> Option<Duration> {
        let value = value?;
        match value.as_i64() {
            Some(seconds) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
            None => {
                self.refuse(name, value, "a whole number of seconds below 2^63");
                None
            }
        }
    }

    fn collect_policy(&mut self, collect: &Map<String, Value>, policy: &mut Policy) {
        let interval = self.seconds("reportIntervalSeconds", field(collect, "reportIntervalSeconds"));
        policy.report_interval = interval.unwrap_or(policy.report_interval);
        let aggregate = self.seconds("aggregateDurationSeconds", field(collect, "aggregateDurationSeconds"));
        policy.aggregate = aggregate.unwrap_or(policy.aggregate);

        let of_node = self.object("nodeAggregatePolicy", field(collect, "nodeAggregatePolicy"));
        match of_node.and_then(|of_node| field(of_node, "durations")) {
            Some(Value::Array(durations)) => policy.durations = self.durations(durations),
            Some(other) => self.refuse("nodeAggregatePolicy.durations", other, "a list of durations"),
            None => {}
        }

        if let Some(word) = field(collect, "nodeMemoryCollectPolicy") {
            let stated = serde_json::from_value::<MemoryCollectPolicy>(word.clone()).ok();
            match stated.as_ref().and_then(MemoryMeasure::of_policy) {
                Some(measure) => policy.memory = measure,
                None => self.refuse(
                    "nodeMemoryCollectPolicy",
                    word,
                    "usageWithoutPageCache, usageWithPageCache or usageWithHotPageCache",
                ),
            }
        }
    }

    fn durations(&mut self, durations: &[Value]) -> Vec<Duration> {
        let mut read = Vec::new();
        for duration in durations {
            match duration.as_str().and_then(|text| text.parse::<GoDuration>().ok()) {
                Some(GoDuration(duration)) => read.push(duration),
                None => {
                    self.refuse("nodeAggregatePolicy.durations", duration, "a duration of Go such as 5m0s")
                }
            }
        }
        read
    }
}

/// The policy in force, and which spec it comes from.
#[derive(Debug, Clone, Default)]
pub struct PolicyInForce {
    policy: Policy,
    seen: Option<(i64, Value)>,
}

/// What a spec changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// Nothing: its generation or its content is known.
    Same,
    /// It is in force from the next wait on.
    Changed(Vec<PolicyProblem>),
}

impl PolicyInForce {
    /// The policy.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Takes over the spec of an object of some generation. One of the generation seen last, and one with
    /// the same content, changes nothing.
    pub fn observe(&mut self, generation: i64, spec: &Value) -> Observed {
        if let Some((known, content)) = &mut self.seen {
            if *known == generation {
                return Observed::Same;
            }
            if content == spec {
                *known = generation;
                return Observed::Same;
            }
        }
        self.seen = Some((generation, spec.clone()));
        let (policy, problems) = Policy::of_spec(spec);
        self.policy = policy;
        Observed::Changed(problems)
    }

    /// Notes that the object is gone. Its policy stays in force, and an object that takes its place is
    /// looked at whatever its generation.
    pub fn forget(&mut self) {
        self.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(collect: Value) -> Policy {
        let (policy, problems) = Policy::of_spec(&json!({"metricCollectPolicy": collect}));
        assert_eq!(problems, []);
        policy
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_not_stated_has_its_default() {
        for spec in [Value::Null, json!({}), json!({"metricCollectPolicy": null})] {
            assert_eq!(Policy::of_spec(&spec), (Policy::default(), Vec::new()));
        }
        let nulls = json!({"aggregateDurationSeconds": null, "reportIntervalSeconds": null,
            "nodeAggregatePolicy": {"durations": null}, "nodeMemoryCollectPolicy": null});
        assert_eq!(of(nulls), Policy::default());
        assert_eq!(of(json!({"nodeAggregatePolicy": {}})), Policy::default());
        let default = Policy::default();
        assert_eq!((default.report_interval, default.aggregate), (seconds(60), seconds(300)));
        assert_eq!(default.durations, [seconds(300), seconds(600), seconds(1800)]);
        assert_eq!(default.longest_window(), seconds(1800));
    }

    #[test]
    fn intervals_have_a_least_length() {
        // M2 and X11.
        for (stated, expected) in [
            (json!(10), 30),
            (json!(0), 30),
            (json!(29), 30),
            (json!(30), 30),
            (json!(31), 31),
            (json!(-5), 30),
            (Value::Null, 60),
        ] {
            assert_eq!(of(json!({"reportIntervalSeconds": stated})).report_interval, seconds(expected));
        }
        // M3 and X12.
        for (stated, expected) in [
            (json!(30), 60),
            (json!(59), 60),
            (json!(60), 60),
            (json!(61), 61),
            (json!(-1), 60),
            (Value::Null, 300),
        ] {
            assert_eq!(of(json!({"aggregateDurationSeconds": stated})).aggregate, seconds(expected));
        }
    }

    #[test]
    fn stated_durations_replace_the_default_ones() {
        // M4.
        let policy = of(json!({"nodeAggregatePolicy": {"durations": ["1m"]}}));
        assert_eq!(policy, Policy { durations: vec![seconds(60)], ..Policy::default() });
        // X13.
        let policy = of(json!({"nodeAggregatePolicy": {"durations": []}}));
        assert_eq!((policy.durations.len(), policy.longest_window()), (0, seconds(300)));
        let policy = of(json!({"nodeAggregatePolicy": {"durations": ["30m0s", "1h", "90s"]}}));
        assert_eq!(policy.durations, [seconds(1800), seconds(3600), seconds(90)]);
    }

    #[test]
    fn memory_policies_are_words() {
        for (word, measure) in [
            ("usageWithoutPageCache", MemoryMeasure::WithoutPageCache),
            ("usageWithPageCache", MemoryMeasure::WithPageCache),
            ("usageWithHotPageCache", MemoryMeasure::WithHotPageCache),
        ] {
            assert_eq!(of(json!({"nodeMemoryCollectPolicy": word})).memory, measure);
            assert_eq!(measure.as_str(), word);
        }
    }

    #[test]
    fn a_bad_field_leaves_the_others() {
        let spec = json!({"metricCollectPolicy": {
            "aggregateDurationSeconds": 9_223_372_036_854_775_808_u64,
            "reportIntervalSeconds": "90",
            "nodeAggregatePolicy": {"durations": ["5m", "soon", 7, "-1m", "10m"]},
            "nodeMemoryCollectPolicy": "all",
        }});
        let (policy, problems) = Policy::of_spec(&spec);
        assert_eq!(policy, Policy { durations: vec![seconds(300), seconds(600)], ..Policy::default() });
        let told: Vec<(&str, &str)> =
            problems.iter().map(|problem| (problem.field, problem.value.as_str())).collect();
        assert_eq!(
            told,
            [
                ("reportIntervalSeconds", "\"90\""),
                ("aggregateDurationSeconds", "9223372036854775808"),
                ("nodeAggregatePolicy.durations", "\"soon\""),
                ("nodeAggregatePolicy.durations", "7"),
                ("nodeAggregatePolicy.durations", "\"-1m\""),
                ("nodeMemoryCollectPolicy", "\"all\""),
            ]
        );
        assert_eq!(
            problems[2].to_string(),
            "nodeAggregatePolicy.durations \"soon\" is passed over; wanted a duration of Go such as 5m0s"
        );
        for spec in [json!([]), json!("x"), json!({"metricCollectPolicy": 1})] {
            let (policy, problems) = Policy::of_spec(&spec);
            assert_eq!((policy, problems.len()), (Policy::default(), 1));
        }
    }

    #[test]
    fn a_known_spec_changes_nothing() {
        let spec = |interval| json!({"metricCollectPolicy": {"reportIntervalSeconds": interval}});
        let mut in_force = PolicyInForce::default();
        assert_eq!(in_force.policy(), &Policy::default());
        assert_eq!(in_force.observe(1, &spec(90)), Observed::Changed(Vec::new()));
        assert_eq!(in_force.policy().report_interval, seconds(90));
        // The same generation is not looked at; M16: a new one with the same content is no change.
        assert_eq!(in_force.observe(1, &spec(100)), Observed::Same);
        assert_eq!(in_force.observe(2, &spec(90)), Observed::Same);
        assert_eq!(in_force.policy().report_interval, seconds(90));
        assert_eq!(in_force.observe(3, &spec(100)), Observed::Changed(Vec::new()));
        assert_eq!(in_force.policy().report_interval, seconds(100));
        // A new object starts from the first generation again.
        in_force.forget();
        assert_eq!(in_force.policy().report_interval, seconds(100));
        assert_eq!(in_force.observe(3, &json!({})), Observed::Changed(Vec::new()));
        assert_eq!(in_force.policy(), &Policy::default());
    }
}
