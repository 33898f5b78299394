//! A page of metrics as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Labels;

/// Content type of the text form of Prometheus.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A value of this moment.
    Gauge,
    /// Counted since the start.
    Counter,
    /// Counted since the start under a name that Prometheus' conventions do not allow for a counter.
    Untyped,
    /// Counted by size.
    Histogram,
}

impl Type {
    fn as_str(self) -> &'static str {
        match self {
            Type::Gauge => "gauge",
            Type::Counter => "counter",
            Type::Untyped => "untyped",
            Type::Histogram => "histogram",
        }
    }
}

/// All values of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    help: &'static str,
    kind: Type,
    /// By labels, in the order of adding where the suffix differs.
    rows: Vec<(&'static str, Labels, f64)>,
}

impl Family {
    /// Adds a value; the suffix follows the family's name.
    pub fn push(&mut self, suffix: &'static str, labels: Labels, value: f64) {
        self.rows.push((suffix, labels, value));
    }
}

/// Families by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    families: BTreeMap<&'static str, Family>,
}

impl Page {
    /// The family of a name, which is new if there is none.
    pub fn family(&mut self, name: &'static str, help: &'static str, kind: Type) -> &mut Family {
        self.families.entry(name).or_insert_with(|| Family { help, kind, rows: Vec::new() })
    }

    /// Takes the families of another page in. What both have becomes one family, in which of two values of the same
    /// series that of this page counts.
    pub fn merge(&mut self, other: Page) {
        for (name, family) in other.families {
            let Some(own) = self.families.get_mut(name) else {
                self.families.insert(name, family);
                continue;
            };
            for (suffix, labels, value) in family.rows {
                let known = own.rows.iter().any(|(one, same, _)| *one == suffix && *same == labels);
                if !known {
                    own.rows.push((suffix, labels, value));
                }
            }
        }
    }

    /// The text. A family without values is left out, as in Go's library.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, family) in self.families.iter().filter(|(_, family)| !family.rows.is_empty()) {
            // Writing to a String cannot fail, here and below.
            let _infallible = writeln!(text, "# HELP {name} {}", family.help);
            let _infallible = writeln!(text, "# TYPE {name} {}", family.kind.as_str());
            for (suffix, labels, value) in &family.rows {
                text.push_str(name);
                text.push_str(suffix);
                let mut separator = '{';
                for (label, value) in labels.iter() {
                    text.push(separator);
                    separator = ',';
                    let _infallible = write!(text, "{label}=\"");
                    escape(value, &mut text);
                    text.push('"');
                }
                text.push_str(if separator == ',' { "} " } else { " " });
                text.push_str(&number(*value));
                text.push('\n');
            }
        }
        text
    }
}

fn escape(value: &str, text: &mut String) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

/// A number as Prometheus reads it.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else {
        value.to_string()
    }
}

/// A count as a value.
pub fn count(count: u64) -> f64 {
    // Exact up to 2^53, which no counter here reaches.
    count as f64
}
