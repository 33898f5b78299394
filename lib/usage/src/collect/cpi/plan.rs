//! Which containers are counted in a round.

use std::sync::Arc;

/// A container that is busy enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: Arc<str>,
    /// Descriptors that counting it takes.
    pub descriptors: usize,
}

/// The containers of this round, at most `budget` descriptors together: in the order of their ids, from the one after
/// `last_served` on and around, so that each has its turn. One that takes more than the whole budget has none.
pub fn choose(mut candidates: Vec<Candidate>, last_served: Option<&str>, budget: usize) -> Vec<Arc<str>> {
    candidates.retain(|candidate| candidate.descriptors > 0 && candidate.descriptors <= budget);
    candidates.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    let start = match last_served {
        Some(last) => candidates.partition_point(|candidate| *candidate.id <= *last),
        None => 0,
    };
    let (before, after) = candidates.split_at(start.min(candidates.len()));
    let around: Vec<Candidate> = after.iter().chain(before).cloned().collect();
    let mut left = budget;
    let mut chosen = Vec::new();
    for candidate in around {
        // The first that does not fit ends the round: it is the first of the next.
        let Some(rest) = left.checked_sub(candidate.descriptors) else { break };
        left = rest;
        chosen.push(candidate.id);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(of: &[(&str, usize)]) -> Vec<Candidate> {
        of.iter()
            .map(|(id, descriptors)| Candidate { id: Arc::from(*id), descriptors: *descriptors })
            .collect()
    }

    #[test]
    fn rounds_go_around() {
        let all = [("c", 4), ("a", 4), ("b", 4), ("d", 4)];
        let round = |last: Option<&str>| -> Vec<String> {
            choose(candidates(&all), last, 8).iter().map(|id| id.to_string()).collect()
        };
        assert_eq!(round(None), ["a", "b"]);
        assert_eq!(round(Some("b")), ["c", "d"]);
        assert_eq!(round(Some("d")), ["a", "b"]);
        assert_eq!(round(Some("c")), ["d", "a"]);
        assert_eq!(round(Some("bb")), ["c", "d"], "the last one has gone");
    }

    #[test]
    fn what_never_fits_is_left_out() {
        let all = [("a", 9), ("b", 8), ("c", 0), ("d", 1)];
        assert_eq!(choose(candidates(&all), None, 8), [Arc::from("b")]);
        assert_eq!(choose(candidates(&all), Some("b"), 8), [Arc::from("d")]);
        assert!(choose(candidates(&all), None, 0).is_empty());
    }

    proptest! {
        /// The budget holds, and everybody that fits is served within as many rounds as there are candidates.
        #[test]
        fn nobody_starves(sizes in proptest::collection::vec(1_usize..20, 1..20), budget in 1_usize..60) {
            let names: Vec<String> = (0..sizes.len()).map(|index| format!("{index:03}")).collect();
            let all: Vec<(&str, usize)> = names.iter().map(String::as_str).zip(sizes.iter().copied()).collect();
            let mut last: Option<Arc<str>> = None;
            let mut served = std::collections::BTreeSet::new();
            for _ in 0..sizes.len() {
                let round = choose(candidates(&all), last.as_deref(), budget);
                let cost: usize = all.iter().filter(|(id, _)| round.iter().any(|one| **one == **id)).map(|(_, size)| size).sum();
                prop_assert!(cost <= budget);
                last = round.last().cloned().or(last);
                served.extend(round);
            }
            prop_assert_eq!(served.len(), sizes.iter().filter(|size| **size <= budget).count());
        }
    }
}
