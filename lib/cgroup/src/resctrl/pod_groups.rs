//! Which pods have a group of their own, which of them must be looked at, and which groups are left over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A group is not removed before this age: its pod may be known to the runtime and not yet to the caller.
pub const LEAST_AGE: Duration = Duration::from_secs(10);

/// After the hardware had no class of service left, none is asked for during this time.
pub const PAUSE_AFTER_EXHAUSTION: Duration = Duration::from_secs(600);

/// What is known of the groups of pods. It makes no group itself and reads no clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodGroups {
    groups: BTreeMap<String, PodGroup>,
    exhausted: Option<Instant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PodGroup {
    since: Instant,
    /// The annotation that was written, unless the group was found.
    annotation: Option<String>,
}

impl PodGroups {
    /// Takes over groups that were found, as after a restart. What is in them is not known, so their pods are to be
    /// looked at.
    pub fn adopt(&mut self, uids: impl IntoIterator<Item = String>, now: Instant) {
        for uid in uids {
            self.groups.entry(uid).or_insert(PodGroup { since: now, annotation: None });
        }
    }

    /// True unless exactly this annotation was written for the pod.
    pub fn needs_work(&self, uid: &str, annotation: &str) -> bool {
        self.groups.get(uid).is_none_or(|group| group.annotation.as_deref() != Some(annotation))
    }

    /// A pod's group is there, and holds what the annotation says.
    pub fn written(&mut self, uid: &str, annotation: &str, now: Instant) {
        let group = self.groups.entry(uid.to_owned()).or_insert(PodGroup { since: now, annotation: None });
        group.annotation = Some(annotation.to_owned());
    }

    /// A pod's group was removed, or was found to be gone. Both are the same here: a group that no longer exists is not
    /// asked for again.
    pub fn removed(&mut self, uid: &str) {
        self.groups.remove(uid);
        // A class of service is free again.
        self.exhausted = None;
    }

    /// Groups to remove: those of pods that are not among the live ones, and old enough.
    pub fn left_over(&self, live: &BTreeSet<String>, now: Instant) -> Vec<String> {
        self.groups
            .iter()
            .filter(|(uid, group)| {
                !live.contains(*uid) && now.saturating_duration_since(group.since) >= LEAST_AGE
            })
            .map(|(uid, _)| uid.clone())
            .collect()
    }

    /// The hardware had no class of service left. True if that is news: the pod's owner is told once, not each round.
    pub fn exhausted(&mut self, now: Instant) -> bool {
        let news = self.may_make(now);
        if news {
            self.exhausted = Some(now);
        }
        news
    }

    /// False while there is no point in asking for a group.
    pub fn may_make(&self, now: Instant) -> bool {
        self.exhausted.is_none_or(|since| now.saturating_duration_since(since) >= PAUSE_AFTER_EXHAUSTION)
    }

    /// The pods that have a group.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(uids: &[&str]) -> BTreeSet<String> {
        uids.iter().map(|uid| (*uid).to_owned()).collect()
    }

    #[test]
    fn an_unchanged_annotation_is_no_work() {
        let start = Instant::now();
        let mut groups = PodGroups::default();
        assert!(groups.needs_work("u", "{}"));
        groups.written("u", "{}", start);
        assert!(!groups.needs_work("u", "{}"));
        assert!(groups.needs_work("u", "{ }"));
        groups.adopt(["v".to_owned(), "u".to_owned()], start);
        assert!(groups.needs_work("v", "{}"));
        // What was known of a pod before stays known.
        assert!(!groups.needs_work("u", "{}"));
        assert_eq!(groups.uids().collect::<Vec<_>>(), ["u", "v"]);
    }

    #[test]
    fn groups_of_pods_that_are_gone_are_removed_when_they_are_old_enough() {
        let start = Instant::now();
        let mut groups = PodGroups::default();
        groups.adopt(["old".to_owned()], start);
        groups.written("young", "{}", start + Duration::from_secs(1));
        let just_before = start + LEAST_AGE - Duration::from_millis(1);
        assert_eq!(groups.left_over(&live(&[]), just_before), Vec::<String>::new());
        assert_eq!(groups.left_over(&live(&[]), start + LEAST_AGE), ["old"]);
        assert_eq!(groups.left_over(&live(&["old"]), start + LEAST_AGE), Vec::<String>::new());
        assert_eq!(groups.left_over(&live(&[]), start + Duration::from_secs(60)), ["old", "young"]);
        groups.removed("old");
        assert_eq!(groups.left_over(&live(&[]), start + Duration::from_secs(60)), ["young"]);
        // Writing again does not make a group younger.
        groups.written("young", "{1}", start + Duration::from_secs(59));
        assert_eq!(groups.left_over(&live(&[]), start + Duration::from_secs(60)), ["young"]);
    }

    #[test]
    fn exhaustion_is_told_once_and_ends() {
        let start = Instant::now();
        let mut groups = PodGroups::default();
        assert!(groups.may_make(start));
        assert!(groups.exhausted(start));
        assert!(!groups.may_make(start) && !groups.exhausted(start + Duration::from_secs(1)));
        let just_before = start + PAUSE_AFTER_EXHAUSTION - Duration::from_millis(1);
        assert!(!groups.may_make(just_before));
        assert!(groups.may_make(start + PAUSE_AFTER_EXHAUSTION));
        assert!(groups.exhausted(start + PAUSE_AFTER_EXHAUSTION));
        groups.removed("u");
        assert!(groups.may_make(start + PAUSE_AFTER_EXHAUSTION));
    }
}
