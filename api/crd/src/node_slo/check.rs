//! Looking at JSON before it is believed.

use std::fmt::Write;

use koord_extension::annotation::Bandwidth;
use koord_extension::keys::nearest;
use koord_extension::quantity::Quantity;
use serde_json::Value;

use super::effective::{BE_CAT_RANGE_END_PERCENT, MEMORY_EVICT_THRESHOLD_PERCENT};
use super::schema::{Kind, NODE_SLO_SPEC};
use super::spec::NodeSloSpec;

/// A mistake in one field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{path}: {value} {problem}; wanted {wanted}")]
pub struct FieldError {
    /// Path of the field, as `resourceQOSStrategy.beClass.cpuQOS.groupIdentity`; empty is the whole.
    pub path: String,
    /// Its value as JSON, cut to a printable length.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// What is accepted.
    pub wanted: String,
}

impl NodeSloSpec {
    /// Reads a spec that somebody wrote. Unknown fields, wrong types, values out of range and values that
    /// contradict each other are refused, all of them at once.
    pub fn check(value: &Value) -> Result<NodeSloSpec, Vec<FieldError>> {
        let mut look = Look { repair: false, path: String::new(), found: Vec::new() };
        let mut value = value.clone();
        look.at(&mut value, &NODE_SLO_SPEC);
        if look.found.is_empty() {
            look.together(&mut value);
        }
        if look.found.is_empty() { read(value).map_err(|error| vec![error]) } else { Err(look.found) }
    }

    /// Reads a spec from the API server, which may be of a newer release or written past all checks.
    ///
    /// Unknown fields are passed over, and so are known ones in another case, as the API server does. A number out of range is moved to the end of its range; any other
    /// unusable value is left out, and values that contradict each other as well, so that defaults hold.
    /// Everything that was changed is reported.
    pub fn clamped(value: &Value) -> (NodeSloSpec, Vec<FieldError>) {
        let mut look = Look { repair: true, path: String::new(), found: Vec::new() };
        let mut value = value.clone();
        look.at(&mut value, &NODE_SLO_SPEC);
        look.together(&mut value);
        match read(value) {
            Ok(spec) => (spec, look.found),
            Err(error) => {
                look.found.push(error);
                (NodeSloSpec::default(), look.found)
            }
        }
    }
}

/// Reads what was looked at.
fn read(value: Value) -> Result<NodeSloSpec, FieldError> {
    serde_json::from_value(value).map_err(|error| FieldError {
        path: String::new(),
        value: "the document".to_owned(),
        problem: error.to_string(),
        wanted: "a NodeSLO spec".to_owned(),
    })
}

struct Look {
    /// Whether unusable values are taken out or moved into range.
    repair: bool,
    path: String,
    found: Vec<FieldError>,
}

impl Look {
    fn report(&mut self, value: &Value, problem: impl Into<String>, wanted: impl Into<String>) {
        self.found.push(FieldError {
            path: self.path.clone(),
            value: shown(value),
            problem: problem.into(),
            wanted: wanted.into(),
        });
    }

    /// Reports a value that cannot be used and takes it out.
    fn refuse(&mut self, value: &mut Value, problem: impl Into<String>, wanted: impl Into<String>) {
        self.report(value, problem, wanted);
        *value = Value::Null;
    }

    fn inside(&mut self, key: &str, look: impl FnOnce(&mut Look)) {
        let length = self.path.len();
        if !self.path.is_empty() && !key.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(key);
        look(self);
        self.path.truncate(length);
    }

    fn at(&mut self, value: &mut Value, kind: &Kind) {
        if value.is_null() {
            return;
        }
        match kind {
            Kind::Boolean if !value.is_boolean() => self.refuse(value, "is not a boolean", "true or false"),
            Kind::Boolean | Kind::Anything => {}
            Kind::Integer(lowest, highest) => self.integer(value, *lowest, *highest),
            Kind::Words(words) => match value.as_str() {
                // An empty word is how Go writes one that is not set.
                Some(word) if word.is_empty() || words.contains(&word) => {}
                Some(word) => {
                    let problem = match nearest(word, words.iter().copied()) {
                        Some(word) => format!("is unknown, is {word} meant?"),
                        None => "is unknown".to_owned(),
                    };
                    self.refuse(value, problem, format!("one of {}", words.join(", ")));
                }
                None => self.refuse(value, "is not a string", format!("one of {}", words.join(", "))),
            },
            Kind::Quantity => self.quantity(value),
            Kind::Bandwidth if value.is_number() => self.integer(value, 0, 100),
            Kind::Bandwidth => self.quantity(value),
            Kind::Text if !value.is_string() => self.refuse(value, "is not a string", "a string"),
            Kind::Text => {}
            Kind::Name => match value.as_str() {
                Some(name) if !name.is_empty() && !name.contains('/') && name != ".." => {}
                _ => self.refuse(value, "is not a name", "a string that is not empty, without slashes"),
            },
            Kind::Path => match value.as_str() {
                Some(path) if path.split('/').all(|part| part != "..") && !path.contains('\0') => {}
                _ => self.refuse(value, "is not a path", "a path without .."),
            },
            Kind::Object(members) => self.object(value, members),
            Kind::List(item) => match value {
                Value::Array(items) => {
                    for (index, entry) in items.iter_mut().enumerate() {
                        self.inside(&format!("[{index}]"), |look| look.entry(entry, item));
                    }
                    items.retain(|entry| !entry.is_null());
                }
                _ => self.refuse(value, "is not a list", "a list"),
            },
            Kind::Switches => match value {
                Value::Object(map) => {
                    for (key, switch) in map.iter_mut() {
                        self.inside(key, |look| look.at(switch, &Kind::Boolean));
                    }
                    map.retain(|_, switch| !switch.is_null());
                }
                _ => self.refuse(value, "is not an object", "an object of booleans"),
            },
            Kind::Map if !value.is_object() => self.refuse(value, "is not an object", "an object"),
            Kind::Map => {}
        }
    }

    /// An item of a list. One without its name is no use.
    fn entry(&mut self, value: &mut Value, kind: &Kind) {
        if value.is_null() {
            self.report(value, "is empty", "an object");
        }
        self.at(value, kind);
        let Kind::Object(members) = kind else { return };
        let nameless = members
            .iter()
            .any(|(key, kind)| matches!(kind, Kind::Name) && value.get(key).is_none_or(Value::is_null));
        if nameless && value.is_object() {
            let name_was_refused = self.found.iter().any(|error| error.path == format!("{}.name", self.path));
            if !name_was_refused {
                self.report(value, "has no name", "a name");
            }
            *value = Value::Null;
        }
    }

    fn integer(&mut self, value: &mut Value, lowest: i64, highest: i64) {
        let wanted = || match (lowest, highest) {
            (lowest, i64::MAX) => format!("a whole number, at least {lowest}"),
            (lowest, highest) => format!("a whole number, {lowest}..{highest}"),
        };
        let number = match (value.as_i64(), value.as_u64()) {
            (Some(number), _) => number,
            (None, Some(_)) => i64::MAX,
            (None, None) => return self.refuse(value, "is not a whole number", wanted()),
        };
        // Beyond 64 bits even an open range ends.
        if (lowest..=highest).contains(&number) && value.as_i64().is_some() {
            return;
        }
        self.report(value, "is out of range", wanted());
        *value = Value::from(number.clamp(lowest, highest));
    }

    fn quantity(&mut self, value: &mut Value) {
        const WANTED: &str = "a quantity such as \"100M\", not negative";
        match serde_json::from_value::<Quantity>(value.clone()) {
            Ok(quantity) if quantity >= Quantity::ZERO => {}
            Ok(_) => self.refuse(value, "is negative", WANTED),
            Err(_) => self.refuse(value, "is not a quantity", WANTED),
        }
    }

    fn object(&mut self, value: &mut Value, members: &[(&str, Kind)]) {
        let Value::Object(map) = value else {
            return self.refuse(value, "is not an object", "an object");
        };
        if self.repair {
            // The reader takes a key in any case; one that was not looked at must not get there.
            map.retain(|key, _| members.iter().any(|(name, _)| name == key));
        }
        for (key, value) in map.iter_mut() {
            let known = members.iter().find(|(name, _)| name == key);
            self.inside(key, |look| match known {
                Some((_, kind)) => look.at(value, kind),
                None => look.unknown(key, value, members),
            });
        }
    }

    fn unknown(&mut self, key: &str, value: &Value, members: &[(&str, Kind)]) {
        let names = || members.iter().map(|(name, _)| *name);
        let problem = match nearest(key, names()) {
            Some(name) => format!("is in an unknown field, is {name} meant?"),
            None => "is in an unknown field".to_owned(),
        };
        let mut wanted = String::from("one of ");
        for (index, name) in names().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(wanted, "{}{name}", if index > 0 { ", " } else { "" });
        }
        self.report(value, problem, wanted);
    }

    /// Values that are right by themselves and contradict each other.
    fn together(&mut self, spec: &mut Value) {
        if let Some(threshold) = spec.get_mut("resourceUsedThresholdWithBE") {
            self.inside("resourceUsedThresholdWithBE", |look| {
                for (lower, upper, default) in [
                    (
                        "memoryEvictLowerPercent",
                        "memoryEvictThresholdPercent",
                        Some(MEMORY_EVICT_THRESHOLD_PERCENT),
                    ),
                    ("memoryAllocatableEvictLowerPercent", "memoryAllocatableEvictThresholdPercent", None),
                    ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent", None),
                    ("cpuEvictLowerPercent", "cpuEvictThresholdPercent", None),
                    ("cpuAllocatableEvictLowerPercent", "cpuAllocatableEvictThresholdPercent", None),
                ] {
                    look.ordered(threshold, (lower, None), (upper, default));
                }
            });
        }
        let Some(qos) = spec.get_mut("resourceQOSStrategy") else { return };
        self.inside("resourceQOSStrategy", |look| {
            for (class, end) in [
                ("lsrClass", 100),
                ("lsClass", 100),
                ("beClass", BE_CAT_RANGE_END_PERCENT),
                ("systemClass", 100),
                ("cgroupRoot", 100),
            ] {
                let path = format!("{class}.resctrlQOS");
                if let Some(resctrl) = qos.get_mut(class).and_then(|class| class.get_mut("resctrlQOS")) {
                    look.inside(&path, |look| {
                        look.ordered(
                            resctrl,
                            ("catRangeStartPercent", Some(0)),
                            ("catRangeEndPercent", Some(end)),
                        );
                    });
                }
            }
        });
        let total = spec
            .pointer("/systemStrategy/totalNetworkBandwidth")
            .and_then(|total| serde_json::from_value::<Quantity>(total.clone()).ok());
        if let Some(qos) = spec.get_mut("resourceQOSStrategy") {
            self.network(qos, total.filter(|total| total.is_positive()));
        }
    }

    /// The first value must be below the second; each with the default that holds where it is not stated.
    fn ordered(
        &mut self,
        object: &mut Value,
        (lower, lower_default): (&str, Option<i64>),
        (upper, upper_default): (&str, Option<i64>),
    ) {
        let number = |key| object.get(key).and_then(Value::as_i64);
        let (stated_lower, stated_upper) = (number(lower), number(upper));
        if stated_lower.is_none() && stated_upper.is_none() {
            return;
        }
        let (Some(low), Some(high)) = (stated_lower.or(lower_default), stated_upper.or(upper_default)) else {
            return;
        };
        if low < high {
            return;
        }
        let (wrong, value, wanted) = match stated_lower {
            Some(_) => (lower, low, format!("less than {upper}, which is {high}")),
            None => (upper, high, format!("more than {lower}, which is {low}")),
        };
        self.inside(wrong, |look| look.report(&Value::from(value), "contradicts another field", wanted));
        for key in [lower, upper] {
            if let Some(value) = object.get_mut(key) {
                *value = Value::Null;
            }
        }
    }

    /// Bandwidths of a strategy are of one kind, and what is requested exists.
    fn network(&mut self, qos: &mut Value, total: Option<Quantity>) {
        const CLASSES: [&str; 4] = ["lsrClass", "lsClass", "beClass", "systemClass"];
        const FIELDS: [&str; 4] = ["ingressRequest", "ingressLimit", "egressRequest", "egressLimit"];
        let stated = |class: &str, field: &str| -> Option<Bandwidth> {
            let value = qos.get(class)?.get("networkQOS")?.get(field)?;
            serde_json::from_value(value.clone()).ok()
        };
        let mut wrong = None;
        let all = CLASSES.iter().flat_map(|class| FIELDS.iter().filter_map(|field| stated(class, field)));
        let (mut percents, mut quantities) = (false, false);
        for bandwidth in all {
            match bandwidth {
                // Nothing is nothing in either kind.
                Bandwidth::Percent(0) => {}
                Bandwidth::Percent(_) => percents = true,
                Bandwidth::BitsPerSecond(_) => quantities = true,
            }
        }
        if percents && quantities {
            wrong = Some(("networkQOS", "mixes percents and quantities".to_owned(), "one kind".to_owned()));
        }
        for field in ["ingressRequest", "egressRequest"] {
            let (mut percent, mut bits) = (0i64, Quantity::ZERO);
            for class in CLASSES {
                match stated(class, field) {
                    Some(Bandwidth::Percent(share)) => percent = percent.saturating_add(share),
                    Some(Bandwidth::BitsPerSecond(share)) => bits = bits.plus(share),
                    None => {}
                }
            }
            if percent > 100 {
                let wanted = "at most 100 in all classes together".to_owned();
                wrong = Some((field, format!("is {percent} percent together"), wanted));
            }
            if let Some(total) = total.filter(|total| bits > *total) {
                let wanted = format!("at most totalNetworkBandwidth, which is {total}");
                wrong = Some((field, format!("is {bits} bits per second together"), wanted));
            }
        }
        let Some((field, problem, wanted)) = wrong else { return };
        let shown = Value::from(field);
        self.inside("resourceQOSStrategy", |look| look.report(&shown, problem, wanted));
        for class in CLASSES {
            if let Some(network) = qos.get_mut(class).and_then(|class| class.get_mut("networkQOS")) {
                *network = Value::Null;
            }
        }
    }
}

fn shown(value: &Value) -> String {
    const MOST: usize = 80;
    let text = value.to_string();
    if text.chars().count() <= MOST {
        return text;
    }
    text.chars().take(MOST).chain("...".chars()).collect()
}
