//! Sets of logical CPUs and the kernel's text for them.
//!
//! The text is a comma-separated list of numbers and ranges, as in `0-3,8`. It is written sorted and merged
//! into ranges; it may be read unsorted and overlapping. An empty text is the empty set. White space around
//! the whole text is accepted, because the kernel ends its files with a line end; inside it is not.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const BITS: u32 = u64::BITS;

/// A set of logical CPUs.
///
/// Equality, order of construction and spare room do not matter to each other: two sets with the same CPUs
/// are equal and hash alike.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct CpuSet {
    // Bit `n % 64` of word `n / 64` is CPU n. The last word is never zero, so equal sets have equal words.
    words: Vec<u64>,
}

/// A text that is not a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CPU list \"{text}\": \"{item}\" is {problem}; wanted numbers and ranges such as 0-3,8, each 0..{highest}", highest = CpuSet::HIGHEST_CPU)]
pub struct CpuSetError {
    /// The whole text, cut to a printable length.
    pub text: String,
    /// The item that is wrong.
    pub item: String,
    /// What is wrong with it.
    pub problem: CpuSetProblem,
}

/// What is wrong with an item of a CPU list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuSetProblem {
    /// Neither a number nor a range.
    NotANumber,
    /// Ends before it starts.
    Reversed,
    /// Beyond [`CpuSet::HIGHEST_CPU`].
    TooLarge,
}

impl fmt::Display for CpuSetProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            CpuSetProblem::NotANumber => "not a number or a range",
            CpuSetProblem::Reversed => "a range that ends before it starts",
            CpuSetProblem::TooLarge => "too large",
        })
    }
}

impl CpuSet {
    /// The highest CPU a set can hold. Linux is built for at most 8192; the bound keeps a text of a few
    /// octets from asking for gigabytes.
    pub const HIGHEST_CPU: u32 = 65_535;

    /// The empty set.
    pub const fn new() -> CpuSet {
        CpuSet { words: Vec::new() }
    }

    /// The CPUs `first..=last`; empty if `first > last`. What lies beyond [`CpuSet::HIGHEST_CPU`] is left
    /// out.
    pub fn range(first: u32, last: u32) -> CpuSet {
        let mut set = CpuSet::new();
        set.insert_range(first, last);
        set
    }

    /// Reads a CPU list.
    pub fn parse(text: &str) -> Result<CpuSet, CpuSetError> {
        let mut set = CpuSet::new();
        let list = text.trim();
        if list.is_empty() {
            return Ok(set);
        }
        for item in list.split(',') {
            let fail = |problem| CpuSetError { text: shortened(text), item: shortened(item), problem };
            let (first, last) = match item.split_once('-') {
                Some((first, last)) => (number(first).map_err(fail)?, number(last).map_err(fail)?),
                None => {
                    let cpu = number(item).map_err(fail)?;
                    (cpu, cpu)
                }
            };
            if first > last {
                return Err(fail(CpuSetProblem::Reversed));
            }
            set.insert_range(first, last);
        }
        Ok(set)
    }

    /// Adds a CPU. Gives false, and changes nothing, if it is beyond [`CpuSet::HIGHEST_CPU`] or was there.
    pub fn insert(&mut self, cpu: u32) -> bool {
        if cpu > CpuSet::HIGHEST_CPU || self.contains(cpu) {
            return false;
        }
        self.insert_range(cpu, cpu);
        true
    }

    /// Takes a CPU out. Gives whether it was there.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let found = self.contains(cpu);
        if let Some(word) = self.words.get_mut((cpu / BITS) as usize) {
            *word &= !(1 << (cpu % BITS));
            self.trim();
        }
        found
    }

    /// Whether the CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get((cpu / BITS) as usize).is_some_and(|word| word & (1 << (cpu % BITS)) != 0)
    }

    /// The number of CPUs.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is no CPU.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        (0..CpuSet::HIGHEST_CPU + 1).step_by(BITS as usize).zip(self.words.iter()).flat_map(|(base, word)| {
            (0..BITS).filter(move |bit| word & (1 << bit) != 0).map(move |bit| base + bit)
        })
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The highest CPU.
    pub fn last(&self) -> Option<u32> {
        self.iter().next_back()
    }

    /// CPUs in either set.
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        let (longer, shorter) =
            if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut union = longer.clone();
        for (word, other) in union.words.iter_mut().zip(&shorter.words) {
            *word |= other;
        }
        union
    }

    /// CPUs in both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        let words = self.words.iter().zip(&other.words).map(|(word, other)| word & other).collect();
        CpuSet { words }.trimmed()
    }

    /// CPUs in this set that are not in the other.
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        let mut difference = self.clone();
        for (word, other) in difference.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
        difference.trimmed()
    }

    /// Whether every CPU of this set is in the other. The empty set is a subset of every set.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.words.len() <= other.words.len()
            && self.words.iter().zip(&other.words).all(|(word, other)| word & !other == 0)
    }

    /// Whether no CPU is in both.
    pub fn is_disjoint(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).all(|(word, other)| word & other == 0)
    }

    fn insert_range(&mut self, first: u32, last: u32) {
        let last = last.min(CpuSet::HIGHEST_CPU);
        if first > last {
            return;
        }
        let (first_word, last_word) = (first / BITS, last / BITS);
        if self.words.len() <= last_word as usize {
            self.words.resize(last_word as usize + 1, 0);
        }
        for (index, word) in (first_word..=last_word).zip(self.words.iter_mut().skip(first_word as usize)) {
            let from = if index == first_word { first % BITS } else { 0 };
            let to = if index == last_word { last % BITS } else { BITS - 1 };
            *word |= (u64::MAX >> (BITS - 1 - to)) & (u64::MAX << from);
        }
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    fn trimmed(mut self) -> CpuSet {
        self.trim();
        self
    }
}

fn number(text: &str) -> Result<u32, CpuSetProblem> {
    // `parse` alone would accept a sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuSetProblem::NotANumber);
    }
    match text.parse() {
        Ok(cpu) if cpu <= CpuSet::HIGHEST_CPU => Ok(cpu),
        _ => Err(CpuSetProblem::TooLarge),
    }
}

/// Enough of an outside text to recognise it in a log line.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain("...".chars()).collect()
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<CpuSet, CpuSetError> {
        CpuSet::parse(text)
    }
}

impl FromIterator<u32> for CpuSet {
    /// What lies beyond [`CpuSet::HIGHEST_CPU`] is left out.
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        set.extend(cpus);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert_range(cpu, cpu);
        }
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(formatter, "{separator}{first}")?,
                _ => write!(formatter, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CpuSet({self})")
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CpuSet, D::Error> {
        let text = String::deserialize(deserializer)?;
        CpuSet::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
