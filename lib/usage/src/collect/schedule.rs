//! When what is not read in every pass is read.

use std::time::Duration;

use crate::time::Tick;

/// Every how many passes something is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    interval: u64,
    passes: u64,
}

impl Cycle {
    /// Something read every `period`, of passes every `interval`. Periods are rounded to whole passes, at least one.
    pub fn new(period: Duration, interval: Duration) -> Cycle {
        let interval = crate::time::milliseconds(interval).max(1);
        let passes = crate::time::milliseconds(period).saturating_add(interval / 2) / interval;
        Cycle { interval, passes: passes.max(1) }
    }

    /// The number of passes.
    pub const fn passes(self) -> u64 {
        self.passes
    }
}

/// When one of many objects has its turn: in the first pass it is seen in, then in those passes that its name picks, so that
/// the objects are spread over all passes. A turn that fell into a pass left out is made up for in the next.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    next: u64,
}

impl Turn {
    /// Whether `tick` is a turn of the object with this `hash`; if so the next one is set.
    pub const fn take(&mut self, tick: Tick, cycle: Cycle, hash: u64) -> bool {
        let index = tick.milliseconds() / cycle.interval;
        if index < self.next {
            return false;
        }
        let phase = hash % cycle.passes;
        let ahead = (phase + cycle.passes - index % cycle.passes) % cycle.passes;
        self.next = index + if ahead == 0 { cycle.passes } else { ahead };
        true
    }

    /// Makes the next pass one of its turns.
    pub const fn again(&mut self) {
        self.next = 0;
    }
}

/// A number of a name that spreads names evenly and is the same in every process (FNV-1a, its upper half folded in).
pub const fn spread(name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let octets = name.as_bytes();
    let mut index = 0;
    while index < octets.len() {
        hash = (hash ^ octets[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn turns(hash: u64, cycle: Cycle, ticks: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut turn = Turn::default();
        ticks.filter(|second| turn.take(Tick(second * 1000 + 7), cycle, hash)).collect()
    }

    #[test]
    fn the_first_pass_then_those_of_the_name() {
        let five = Cycle::new(Duration::from_secs(5), SECOND);
        assert_eq!(turns(0, five, 101..120), [101, 105, 110, 115]);
        assert_eq!(turns(1, five, 101..120), [101, 106, 111, 116]);
        assert_eq!(turns(4, five, 103..120), [103, 104, 109, 114, 119]);
        assert_eq!(turns(9, Cycle::new(SECOND, SECOND), 3..7), [3, 4, 5, 6]);
        assert_eq!(turns(9, Cycle::new(Duration::ZERO, SECOND), 3..5), [3, 4]);
    }

    #[test]
    fn a_turn_in_a_pass_left_out_is_made_up_for() {
        let five = Cycle::new(Duration::from_secs(5), SECOND);
        let ticks = (100..120).filter(|second| !(104..107).contains(second));
        assert_eq!(turns(0, five, ticks), [100, 107, 110, 115]);
    }

    #[test]
    fn names_spread_over_the_passes() {
        let mut counts = [0; 10];
        for index in 0..1000 {
            let name = format!("6f1c2d7e-0000-4000-8000-{index:012}");
            counts[usize::try_from(spread(&name) % 10).expect("below 10")] += 1;
        }
        assert!(counts.iter().all(|count| (60..=140).contains(count)), "{counts:?}");
        assert_eq!(spread(""), 0xcbf2_9ce4_8422_2325 ^ 0xcbf2_9ce4);
    }
}
