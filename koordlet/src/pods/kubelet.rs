//! Answers of the kubelet about pods.
//!
//! A request that fails keeps the pods, and so does an empty list: that is what a kubelet answers that has just started.
//! On a node whose agent runs in no pod an empty list may be true; it is believed when it lasts. A body of the same bytes
//! as the one before means no change, and is not even decoded.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use koord_prediction::pod::{PodList, PodListError};
use koord_usage::time::Tick;

use super::PodSet;

/// Empty answers in a row that are believed.
const BELIEVED_EMPTY_ANSWERS: u32 = 3;

/// Time of empty answers after which they are believed.
const BELIEVED_EMPTY_TIME: Duration = Duration::from_secs(30);

/// What an answer means.
#[derive(Debug)]
pub enum Heard {
    /// The same as before.
    Unchanged,
    /// An empty list, which is not believed.
    Empty,
    /// A list that cannot be read; the pods stay.
    Unreadable(PodListError),
    /// New pods.
    Changed(Arc<PodSet>),
}

impl Heard {
    /// A word for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Heard::Unchanged => "unchanged",
            Heard::Empty => "empty",
            Heard::Unreadable(_) => "unreadable",
            Heard::Changed(_) => "changed",
        }
    }
}

/// Judges answers, one after the other.
#[derive(Debug)]
pub struct KubeletPods {
    /// Whether the agent itself is one of the pods.
    is_pod: bool,
    digest: Option<u64>,
    empty_answers: u32,
    empty_since: Option<Tick>,
    /// The last answer that was understood and believed.
    heard: Option<Tick>,
    decoded: u64,
}

impl KubeletPods {
    /// One that has heard nothing.
    pub fn new(is_pod: bool) -> KubeletPods {
        KubeletPods { is_pod, digest: None, empty_answers: 0, empty_since: None, heard: None, decoded: 0 }
    }

    /// Takes the body of an answer.
    pub fn answer(&mut self, body: &[u8], now: Tick) -> Heard {
        let mut hasher = DefaultHasher::new();
        hasher.write(body);
        let digest = hasher.finish();
        if self.digest == Some(digest) {
            self.heard = Some(now);
            return Heard::Unchanged;
        }
        self.decoded += 1;
        let list = match PodList::decode(body) {
            Ok(list) => list,
            Err(error) => return Heard::Unreadable(error),
        };
        for refused in &list.refused {
            tracing::warn!(error = %refused, "a pod is left out");
        }
        let pods = list.pods;
        if pods.is_empty() && !self.believes_empty(now) {
            return Heard::Empty;
        }
        if !pods.is_empty() {
            (self.empty_answers, self.empty_since) = (0, None);
        }
        self.digest = Some(digest);
        self.heard = Some(now);
        Heard::Changed(Arc::new(PodSet::new(pods)))
    }

    fn believes_empty(&mut self, now: Tick) -> bool {
        if self.is_pod {
            return false;
        }
        self.empty_answers = self.empty_answers.saturating_add(1);
        let since = *self.empty_since.get_or_insert(now);
        self.empty_answers >= BELIEVED_EMPTY_ANSWERS || now.since(since) >= BELIEVED_EMPTY_TIME
    }

    /// Takes a failure: the pods stay, and empty answers are counted anew.
    pub fn failed(&mut self) {
        (self.empty_answers, self.empty_since) = (0, None);
    }

    /// Whether pods have been heard of.
    pub fn is_synced(&self) -> bool {
        self.heard.is_some()
    }

    /// When pods were last heard of.
    pub fn heard(&self) -> Option<Tick> {
        self.heard
    }

    /// Bodies that were decoded.
    pub fn decoded(&self) -> u64 {
        self.decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"items":[{"metadata":{"name":"a","namespace":"x","uid":"u"}}]}"#;
    const NONE: &str = r#"{"items":null}"#;

    fn second(number: u64) -> Tick {
        Tick(number * 1000)
    }

    #[test]
    fn errors_and_empty_lists_keep_the_pods() {
        let mut pods = KubeletPods::new(true);
        assert!(!pods.is_synced());
        assert!(matches!(pods.answer(NONE.as_bytes(), second(1)), Heard::Empty));
        assert!(!pods.is_synced(), "not synced before the first list with pods");
        let Heard::Changed(set) = pods.answer(ONE.as_bytes(), second(2)) else { panic!("not taken") };
        assert_eq!(set.pods.len(), 1);
        pods.failed();
        for at in 3..40 {
            assert!(matches!(pods.answer(NONE.as_bytes(), second(at)), Heard::Empty));
        }
        assert!(pods.is_synced());
        assert_eq!(pods.heard(), Some(second(2)));
        assert!(matches!(pods.answer(b"{\"items\":3}", second(41)), Heard::Unreadable(_)));
    }

    #[test]
    fn on_a_node_without_pods_an_empty_list_is_believed_when_it_lasts() {
        let mut pods = KubeletPods::new(false);
        assert!(matches!(pods.answer(NONE.as_bytes(), second(1)), Heard::Empty));
        assert!(matches!(pods.answer(NONE.as_bytes(), second(2)), Heard::Empty));
        assert!(
            matches!(pods.answer(NONE.as_bytes(), second(3)), Heard::Changed(set) if set.pods.is_empty())
        );

        let mut slow = KubeletPods::new(false);
        assert!(matches!(slow.answer(NONE.as_bytes(), second(1)), Heard::Empty));
        assert!(matches!(slow.answer(NONE.as_bytes(), second(31)), Heard::Changed(_)));

        let mut failing = KubeletPods::new(false);
        assert!(matches!(failing.answer(NONE.as_bytes(), second(1)), Heard::Empty));
        assert!(matches!(failing.answer(NONE.as_bytes(), second(2)), Heard::Empty));
        failing.failed();
        assert!(matches!(failing.answer(NONE.as_bytes(), second(3)), Heard::Empty), "a restart begins anew");
    }

    #[test]
    fn the_same_body_is_decoded_once() {
        let mut pods = KubeletPods::new(true);
        let changes = (0..10)
            .filter(|at| matches!(pods.answer(ONE.as_bytes(), second(*at)), Heard::Changed(_)))
            .count();
        assert_eq!((changes, pods.decoded()), (1, 1));
        assert_eq!(pods.heard(), Some(second(9)), "it counts as heard all the same");
    }
}
