//! Which samples stand behind a figure.

use std::cell::RefCell;
use std::time::Duration;

use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::store::Store;
use koord_usage::time::Tick;
use koord_usage::window::{Summary, Window, WindowError};
use serde::Serialize;

/// The samples behind one field of a status. Times are in milliseconds before the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The field, as a path in the status.
    pub field: String,
    /// What the samples are about.
    pub object: String,
    /// The series.
    pub series: &'static str,
    /// Length of the window.
    pub window_millis: u64,
    /// Number of samples in it.
    pub count: usize,
    /// Age of the oldest sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_millis: Option<u64>,
    /// Age of the newest sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_millis: Option<u64>,
    /// Why there is no figure, or why it is not the one that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Reads windows that end now, and notes what they hold where that is wanted.
#[derive(Debug)]
pub(crate) struct Windows<'a> {
    store: &'a Store,
    now: Tick,
    noted: Option<RefCell<Vec<Evidence>>>,
}

impl<'a> Windows<'a> {
    pub(crate) fn new(store: &'a Store, now: Tick) -> Windows<'a> {
        Windows { store, now, noted: None }
    }

    /// Notes the evidence of every figure.
    pub(crate) fn explained(self) -> Windows<'a> {
        Windows { noted: Some(RefCell::default()), ..self }
    }

    pub(crate) fn into_evidence(self) -> Vec<Evidence> {
        self.noted.map(RefCell::into_inner).unwrap_or_default()
    }

    /// The figures that need no order; none without samples.
    pub(crate) fn summary(
        &self,
        object: &Object,
        kind: Kind,
        window: Duration,
        field: impl FnOnce() -> String,
    ) -> Option<Summary> {
        let found = self.store.summary(object, kind, self.now.back(window), self.now);
        self.note(object, kind, window, field, found);
        found.ok()
    }

    /// All figures; none without samples.
    pub(crate) fn window(
        &self,
        object: &Object,
        kind: Kind,
        window: Duration,
        field: impl FnOnce() -> String,
    ) -> Option<Window> {
        let found = self.store.window(object, kind, self.now.back(window), self.now);
        self.note(object, kind, window, field, found.map(|window| window.summary));
        found.ok()
    }

    /// Adds a remark to what was noted last.
    pub(crate) fn remark(&self, remark: impl FnOnce() -> String) {
        let Some(noted) = &self.noted else { return };
        if let Some(last) = noted.borrow_mut().last_mut() {
            last.note = Some(remark());
        }
    }

    fn note(
        &self,
        object: &Object,
        kind: Kind,
        window: Duration,
        field: impl FnOnce() -> String,
        found: Result<Summary, WindowError>,
    ) {
        let Some(noted) = &self.noted else { return };
        let age = |tick: Tick| millis(self.now.since(tick));
        let summary = found.ok();
        noted.borrow_mut().push(Evidence {
            field: field(),
            object: object.to_string(),
            series: kind.as_str(),
            window_millis: millis(window),
            count: summary.map_or(0, |summary| summary.count),
            first_millis: summary.map(|summary| age(summary.first_tick)),
            last_millis: summary.map(|summary| age(summary.last_tick)),
            note: found.err().map(|error| error.to_string()),
        });
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
