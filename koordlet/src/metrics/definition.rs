//! What a metric is.

use super::page;

/// What its values mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A value of this moment.
    Gauge,
    /// Counted since the start.
    Counter,
    /// Counted by size, with these upper bounds.
    Histogram(&'static [f64]),
}

/// One metric.
#[derive(Debug, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// What it tells, and in which unit.
    pub help: &'static str,
    /// What its values mean.
    pub kind: Kind,
    /// Whether it has the label `node`.
    pub has_node: bool,
}

impl Definition {
    /// The type that pages tell. Some counters of Koordinator's have no `_total` in their names, which Prometheus'
    /// conventions ask of a counter; their names stay, so they have no type.
    pub fn page_type(&self) -> page::Type {
        match self.kind {
            Kind::Gauge => page::Type::Gauge,
            Kind::Counter if self.name.ends_with("_total") => page::Type::Counter,
            Kind::Counter => page::Type::Untyped,
            Kind::Histogram(_) => page::Type::Histogram,
        }
    }
}

/// Labels, ascending by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Labels(Vec<(&'static str, Box<str>)>);

impl Labels {
    /// These labels and that of the node.
    pub fn new(node: Option<&str>, labels: &[(&'static str, &str)]) -> Labels {
        let mut all: Vec<(&'static str, Box<str>)> =
            labels.iter().map(|(name, value)| (*name, Box::from(*value))).collect();
        all.extend(node.map(|node| ("node", Box::from(node))));
        all.sort_unstable_by_key(|(name, _)| *name);
        Labels(all)
    }

    /// These and one more.
    #[must_use]
    pub fn with(&self, name: &'static str, value: &str) -> Labels {
        let mut all = self.0.clone();
        all.push((name, Box::from(value)));
        all.sort_unstable_by_key(|(name, _)| *name);
        Labels(all)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }
}

macro_rules! definitions {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $kind:expr, $help:literal $(, $without:ident)?;)*) => {
        $($(#[$doc])*
        #[doc = concat!("`", $name, "`: ", $help, ".")]
        pub static $constant: $crate::metrics::Definition = $crate::metrics::Definition {
            name: $name,
            help: $help,
            kind: $kind,
            has_node: definitions!(@node $($without)?),
        };)*

        /// All of them.
        pub static ALL: &[&$crate::metrics::Definition] = &[$(&$constant),*];
    };
    (@node) => { true };
    (@node nodeless) => { false };
}

pub(super) use definitions;
