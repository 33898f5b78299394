//! Metrics under the names of Koordinator.
//!
//! Several of its counters have no `_total` in their names, and vectors of pods must change all at once, so values are
//! kept here and written as text here: a [`Registry`] has [`Definition`]s with a cell for each set of labels. There are
//! two registries, [`internal`] for operators of the agent and [`external`] for users of the node; `/metrics` shows both.

mod definition;
pub mod external;
pub mod internal;
pub mod page;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use definition::{Definition, Kind, Labels};
use page::Page;

/// A cell of a metric.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Number(f64),
    Histogram { buckets: Vec<u64>, count: u64, sum: f64 },
}

/// The cells of one metric, by labels.
type Cells = BTreeMap<Labels, Cell>;

/// Metrics of one kind of readers.
#[derive(Debug)]
pub struct Registry {
    node: String,
    families: Mutex<BTreeMap<&'static str, (&'static Definition, Cells)>>,
}

impl Registry {
    /// A registry with these metrics and no value yet. `node` is the value of the label of that name.
    pub fn new(node: &str, definitions: &[&'static Definition]) -> Registry {
        let families =
            definitions.iter().map(|definition| (definition.name, (*definition, Cells::new()))).collect();
        Registry { node: node.to_owned(), families: Mutex::new(families) }
    }

    /// The map is consistent between statements, so a panic elsewhere does not spoil it.
    fn families(&self) -> MutexGuard<'_, BTreeMap<&'static str, (&'static Definition, Cells)>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn labels(&self, definition: &Definition, labels: &[(&'static str, &str)]) -> Labels {
        Labels::new(definition.has_node.then_some(self.node.as_str()), labels)
    }

    fn change(
        &self,
        definition: &'static Definition,
        labels: &[(&'static str, &str)],
        change: impl FnOnce(&mut Cell),
    ) {
        let labels = self.labels(definition, labels);
        let mut families = self.families();
        let (_, cells) = families.entry(definition.name).or_insert_with(|| (definition, Cells::new()));
        change(cells.entry(labels).or_insert_with(|| match definition.kind {
            Kind::Gauge | Kind::Counter => Cell::Number(0.0),
            Kind::Histogram(bounds) => Cell::Histogram { buckets: vec![0; bounds.len()], count: 0, sum: 0.0 },
        }));
    }

    /// Sets a gauge, or a counter that is counted elsewhere.
    pub fn set(&self, definition: &'static Definition, labels: &[(&'static str, &str)], value: f64) {
        self.change(definition, labels, |cell| {
            if let Cell::Number(number) = cell {
                *number = value;
            }
        });
    }

    /// Adds to a counter.
    pub fn add(&self, definition: &'static Definition, labels: &[(&'static str, &str)], value: f64) {
        self.change(definition, labels, |cell| {
            if let Cell::Number(number) = cell {
                *number += value;
            }
        });
    }

    /// Adds a value to a histogram.
    pub fn observe(&self, definition: &'static Definition, labels: &[(&'static str, &str)], value: f64) {
        let Kind::Histogram(bounds) = definition.kind else { return };
        self.change(definition, labels, |cell| {
            if let Cell::Histogram { buckets, count, sum } = cell {
                for (bucket, _) in buckets.iter_mut().zip(bounds).filter(|(_, bound)| value <= **bound) {
                    *bucket += 1;
                }
                *count += 1;
                *sum += value;
            }
        });
    }

    /// Replaces all cells of a metric at once. A scrape sees the old ones or the new ones.
    pub fn replace(&self, definition: &'static Definition, rows: Rows) {
        let cells = rows
            .0
            .into_iter()
            .map(|(labels, value)| {
                let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
                (self.labels(definition, &labels), Cell::Number(value))
            })
            .collect();
        self.families().insert(definition.name, (definition, cells));
    }

    /// Everything, for a page.
    pub fn page(&self) -> Page {
        let mut page = Page::default();
        for (definition, cells) in self.families().values() {
            let family = page.family(definition.name, definition.help, definition.page_type());
            for (labels, cell) in cells {
                match (cell, definition.kind) {
                    (Cell::Number(value), _) => family.push("", labels.clone(), *value),
                    (Cell::Histogram { buckets, count, sum }, Kind::Histogram(bounds)) => {
                        for (bound, bucket) in bounds.iter().zip(buckets) {
                            family.push(
                                "_bucket",
                                labels.with("le", &page::number(*bound)),
                                page::count(*bucket),
                            );
                        }
                        family.push("_bucket", labels.with("le", "+Inf"), page::count(*count));
                        family.push("_sum", labels.clone(), *sum);
                        family.push("_count", labels.clone(), page::count(*count));
                    }
                    (Cell::Histogram { .. }, _) => {}
                }
            }
        }
        page
    }
}

/// New cells of a metric.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows(Vec<(Vec<(&'static str, String)>, f64)>);

impl Rows {
    /// None yet.
    pub fn new() -> Rows {
        Rows::default()
    }

    /// Adds one. Of two with the same labels the later one counts.
    pub fn push<const N: usize>(&mut self, labels: [(&'static str, &str); N], value: f64) {
        self.0.push((labels.map(|(name, value)| (name, value.to_owned())).to_vec(), value));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
