//! Figures out of the kernel's texts, without allocation.
//!
//! Everything here takes octets as one read gave them. What does not have the shape the kernel writes is an error of that
//! file; nothing panics and nothing is guessed. Counters of the kernel are 64 bits wide and not negative.

use koord_cgroup::version::CgroupVersion;

/// A text that does not read as the file it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{file} has no {wanted}")]
pub struct TextError {
    /// Name of the file, without the directory.
    pub file: &'static str,
    /// What should be there.
    pub wanted: &'static str,
}

impl TextError {
    pub(crate) const fn new(file: &'static str, wanted: &'static str) -> TextError {
        TextError { file, wanted }
    }
}

/// The whole number at the start of `text`, which ends at the first other octet. `None` without a digit and beyond 64 bits.
pub fn number(text: &[u8]) -> Option<u64> {
    let mut value: u64 = 0;
    let mut digits = 0;
    for octet in text.iter().take_while(|octet| octet.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u64::from(octet - b'0'))?;
        digits += 1;
    }
    (digits > 0).then_some(value)
}

/// The lines of a text without their ends.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|octet| *octet == b'\n').filter(|line| !line.is_empty())
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|octet| matches!(octet, b' ' | b'\t')).filter(|word| !word.is_empty())
}

/// What follows `key` and one blank in a line.
fn value_of<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(key)?.strip_prefix(b" ")
}

/// CPU time of a group, and its throttling where the controller counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCpu {
    /// CPU time in nanoseconds since the group was made. Version 1 has it in a file of its own.
    pub usage: Option<u64>,
    /// Periods and throttled periods. A group without the cpu controller has none (version 2 writes usage only).
    pub throttling: Option<Throttling>,
}

/// Enforcement periods of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttling {
    /// `nr_periods`.
    pub periods: u64,
    /// `nr_throttled`.
    pub throttled: u64,
}

impl Throttling {
    /// The part of the periods since `before` that were throttled. 0 without a period or when a counter went back; above 1
    /// if the kernel counted so.
    #[expect(clippy::cast_precision_loss, reason = "counts of periods are far below 2^53")]
    pub fn ratio_since(self, before: Throttling) -> f64 {
        let periods = self.periods.saturating_sub(before.periods);
        if periods == 0 {
            return 0.0;
        }
        self.throttled.saturating_sub(before.throttled) as f64 / periods as f64
    }
}

/// Reads `cpu.stat`. Version 2 counts usage in microseconds. All three figures of throttling are there, or none counts.
pub fn cpu_stat(text: &[u8], version: CgroupVersion) -> Result<GroupCpu, TextError> {
    let mut usage = None;
    let mut periods = None;
    let mut throttled = None;
    let mut throttled_time = None;
    let time_key: &[u8] = if version == CgroupVersion::V2 { b"throttled_usec" } else { b"throttled_time" };
    for line in lines(text) {
        match line.first() {
            Some(b'u') if version == CgroupVersion::V2 => {
                if let Some(value) = value_of(line, b"usage_usec") {
                    usage = number(value);
                }
            }
            Some(b'n') => {
                if let Some(value) = value_of(line, b"nr_periods") {
                    periods = number(value);
                } else if let Some(value) = value_of(line, b"nr_throttled") {
                    throttled = number(value);
                }
            }
            Some(b't') => {
                if let Some(value) = value_of(line, time_key) {
                    throttled_time = number(value);
                }
            }
            _ => {}
        }
        if throttled_time.is_some() && periods.is_some() && throttled.is_some() {
            break;
        }
    }
    let throttling = match (periods, throttled, throttled_time) {
        (Some(periods), Some(throttled), Some(_)) => Some(Throttling { periods, throttled }),
        _ => None,
    };
    match version {
        CgroupVersion::V2 => {
            let usage = usage.and_then(|micros: u64| micros.checked_mul(1000));
            let usage = usage.ok_or(TextError::new("cpu.stat", "usage_usec"))?;
            Ok(GroupCpu { usage: Some(usage), throttling })
        }
        CgroupVersion::V1 if throttling.is_none() => {
            Err(TextError::new("cpu.stat", "nr_periods, nr_throttled and throttled_time"))
        }
        CgroupVersion::V1 => Ok(GroupCpu { usage: None, throttling }),
    }
}

/// Reads a file that holds one number: `cpuacct.usage` (nanoseconds), `memory.current`, `memory.usage_in_bytes` (bytes).
pub fn single(text: &[u8], file: &'static str) -> Result<u64, TextError> {
    let text = text.trim_ascii();
    let value = number(text).filter(|_| text.iter().all(u8::is_ascii_digit));
    value.ok_or_else(|| TextError::new(file, "whole number"))
}

/// Memory of a group and of all below it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupMemory {
    /// Not on the lists of recently used pages, anonymous.
    pub inactive_anon: u64,
    /// On them, anonymous.
    pub active_anon: u64,
    /// Page cache, rarely used.
    pub inactive_file: u64,
    /// Page cache, recently used.
    pub active_file: u64,
    /// Locked.
    pub unevictable: u64,
}

impl GroupMemory {
    /// What cannot be dropped without swapping: anonymous and locked memory.
    pub const fn without_page_cache(self) -> u64 {
        self.inactive_anon.saturating_add(self.active_anon).saturating_add(self.unevictable)
    }

    /// The same and the page cache.
    pub const fn with_page_cache(self) -> u64 {
        self.without_page_cache().saturating_add(self.active_file).saturating_add(self.inactive_file)
    }
}

/// Keys of `memory.stat` that must be there, in the order of [`GroupMemory`]'s fields, then two that only must be there.
const MEMORY_KEYS: [&[u8]; 7] =
    [b"inactive_anon", b"active_anon", b"inactive_file", b"active_file", b"unevictable", b"file", b"anon"];
const MEMORY_KEYS_V1: [&[u8]; 7] = [
    b"total_inactive_anon",
    b"total_active_anon",
    b"total_inactive_file",
    b"total_active_file",
    b"total_unevictable",
    b"total_cache",
    b"total_rss",
];
const MEMORY_NAMES: [&str; 7] =
    ["inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable", "file", "anon"];
const MEMORY_NAMES_V1: [&str; 7] = [
    "total_inactive_anon",
    "total_active_anon",
    "total_inactive_file",
    "total_active_file",
    "total_unevictable",
    "total_cache",
    "total_rss",
];

/// Where the keys of one `memory.stat` were when it was last read.
///
/// The order of keys is the kernel's and stays; offsets move only when figures get longer or shorter. A place that does not
/// hold its key any more is looked for again.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryHints([u16; 7]);

/// Reads `memory.stat`: figures of the group with all below it (`total_` keys on version 1).
pub fn memory_stat(
    text: &[u8],
    version: CgroupVersion,
    hints: &mut MemoryHints,
) -> Result<GroupMemory, TextError> {
    let (keys, names) = match version {
        CgroupVersion::V1 => (&MEMORY_KEYS_V1, &MEMORY_NAMES_V1),
        CgroupVersion::V2 => (&MEMORY_KEYS, &MEMORY_NAMES),
    };
    if let Some(values) = at_hints(text, keys, hints) {
        return Ok(memory_of(values));
    }
    let mut values = [None; 7];
    let mut missing = 7;
    let mut offset = 0;
    for line in text.split(|octet| *octet == b'\n') {
        let start = offset;
        offset += line.len() + 1;
        for ((key, slot), hint) in keys.iter().zip(&mut values).zip(&mut hints.0) {
            if slot.is_some() {
                continue;
            }
            let Some(value) = value_of(line, key) else { continue };
            *slot = number(value);
            *hint = u16::try_from(start).unwrap_or(0);
            missing -= usize::from(slot.is_some());
            break;
        }
        if missing == 0 {
            break;
        }
    }
    let mut whole = [0; 7];
    for ((value, place), name) in values.iter().zip(&mut whole).zip(names) {
        *place = value.ok_or(TextError::new("memory.stat", name))?;
    }
    Ok(memory_of(whole))
}

fn at_hints(text: &[u8], keys: &[&[u8]; 7], hints: &MemoryHints) -> Option<[u64; 7]> {
    let mut values = [0; 7];
    for ((key, hint), place) in keys.iter().zip(hints.0).zip(&mut values) {
        let start = usize::from(hint);
        let line = text.get(start..)?;
        if start > 0 && text.get(start - 1) != Some(&b'\n') {
            return None;
        }
        *place = number(value_of(line, key)?)?;
    }
    Some(values)
}

const fn memory_of(values: [u64; 7]) -> GroupMemory {
    let [inactive_anon, active_anon, inactive_file, active_file, unevictable, _, _] = values;
    GroupMemory { inactive_anon, active_anon, inactive_file, active_file, unevictable }
}

/// Which memory `memory.numa_stat` is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumaMemory {
    /// Anonymous and locked memory, as [`GroupMemory::without_page_cache`], of the group and all below it; bytes as the
    /// kernel writes them.
    WithoutCache,
    /// What Koordinator's agent takes: on version 1 the line `total` of the group itself; on version 2 anonymous memory and
    /// page cache, in whole units of 4096 bytes which are then counted as pages of the machine.
    Compatible,
}

/// The page size Koordinator's agent divides version 2's bytes by.
const COMPATIBLE_PAGE: u64 = 4096;

/// Reads `memory.numa_stat` into bytes of each NUMA node, which must be numbered from 0 without gaps.
///
/// Version 1 writes pages, version 2 bytes. `into` is emptied first.
pub fn numa_stat(
    text: &[u8],
    version: CgroupVersion,
    page_size: u64,
    which: NumaMemory,
    into: &mut Vec<u64>,
) -> Result<(), TextError> {
    const FILE: &str = "memory.numa_stat";
    into.clear();
    match (version, which) {
        (CgroupVersion::V1, NumaMemory::Compatible) => {
            let line = line_of(text, b"total=").ok_or(TextError::new(FILE, "line total="))?;
            add_nodes(line, page_size, into)?;
        }
        (CgroupVersion::V1, NumaMemory::WithoutCache) => {
            // Lines of the group with all below it: since Linux 3.18.
            let anon = line_of(text, b"hierarchical_anon=").or_else(|| line_of(text, b"anon="));
            add_nodes(anon.ok_or(TextError::new(FILE, "line anon="))?, page_size, into)?;
            let locked =
                line_of(text, b"hierarchical_unevictable=").or_else(|| line_of(text, b"unevictable="));
            if let Some(line) = locked {
                add_nodes(line, page_size, into)?;
            }
        }
        (CgroupVersion::V2, NumaMemory::Compatible) => {
            let mut first = lines(text);
            let anon = first.next().and_then(|line| value_of(line, b"anon"));
            let file = first.next().and_then(|line| value_of(line, b"file"));
            let (Some(anon), Some(file)) = (anon, file) else {
                return Err(TextError::new(FILE, "lines anon and file first"));
            };
            for line in [anon, file] {
                add_pages(line, page_size, into)?;
            }
        }
        (CgroupVersion::V2, NumaMemory::WithoutCache) => {
            // The lists of pages are what memory.stat is read for; `anon` is for kernels that do not write them here.
            let lists = (line_of(text, b"inactive_anon "), line_of(text, b"active_anon "));
            if let (Some(inactive), Some(active)) = lists {
                add_nodes(inactive, 1, into)?;
                add_nodes(active, 1, into)?;
            } else {
                let anon = line_of(text, b"anon ").ok_or(TextError::new(FILE, "line anon"))?;
                add_nodes(anon, 1, into)?;
            }
            if let Some(line) = line_of(text, b"unevictable ") {
                add_nodes(line, 1, into)?;
            }
        }
    }
    Ok(())
}

fn line_of<'a>(text: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    lines(text).find_map(|line| line.strip_prefix(start))
}

fn add_nodes(line: &[u8], unit: u64, into: &mut Vec<u64>) -> Result<(), TextError> {
    each_node(line, into, |value| value.saturating_mul(unit))
}

fn add_pages(line: &[u8], page_size: u64, into: &mut Vec<u64>) -> Result<(), TextError> {
    each_node(line, into, |value| (value / COMPATIBLE_PAGE).saturating_mul(page_size))
}

/// Adds `N0=..`, `N1=..` to the sums, the first line of a file makes them.
fn each_node(line: &[u8], into: &mut Vec<u64>, bytes: impl Fn(u64) -> u64) -> Result<(), TextError> {
    let wrong = TextError::new("memory.numa_stat", "nodes N0=, N1=, ... in order");
    let expected = into.len();
    let mut next = 0;
    for word in words(line) {
        let Some(word) = word.strip_prefix(b"N") else { continue };
        let id = number(word).ok_or(wrong)?;
        let rest = word.get(word.iter().take_while(|octet| octet.is_ascii_digit()).count()..);
        let value = rest.and_then(|rest| rest.strip_prefix(b"=")).and_then(number).ok_or(wrong)?;
        if usize::try_from(id) != Ok(next) {
            return Err(wrong);
        }
        match into.get_mut(next) {
            Some(sum) => *sum = sum.saturating_add(bytes(value)),
            None if expected == 0 => into.push(bytes(value)),
            None => return Err(wrong),
        }
        next += 1;
    }
    if next == 0 || (expected > 0 && next != expected) { Err(wrong) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
