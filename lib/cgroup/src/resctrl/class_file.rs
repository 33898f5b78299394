//! Classes from a file in the form that container runtimes take (`rdt_config_file` of containerd and CRI-O): partitions
//! with shares of the cache that do not overlap, in them classes with shares of their partition.
//!
//! A node that comes from such a runtime keeps its classes: each becomes a group with the values the file means. Read are
//! L3 caches without a division into code and data, and memory bandwidth.

use std::collections::{BTreeMap, BTreeSet};

use koord_extension::cpuset::CpuSet;
use serde_json::{Map, Value};

use super::info::{BandwidthUnit, CacheInfo, Info};
use super::schemata::Schemata;
use super::share::{bandwidth, cache_mask};

/// The class that is the root group.
pub const DEFAULT_CLASS: &str = "DEFAULT";

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value}; {wanted}")]
pub struct ClassFileError {
    /// Path of the field, names separated by dots.
    pub field: String,
    /// What is there.
    pub value: String,
    /// What is accepted.
    pub wanted: String,
}

/// The classes of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassFile {
    partitions: BTreeMap<String, Partition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Partition {
    share: Share,
    classes: BTreeMap<String, Share>,
}

/// What a partition has of the machine, or a class of its partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Share {
    cache: PerDomain<CacheShare>,
    bandwidth: PerDomain<BandwidthShare>,
}

/// A value for all domains, and others for single ones. None is everything.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PerDomain<T> {
    all: Option<T>,
    of: BTreeMap<u32, T>,
}

impl<T> Default for PerDomain<T> {
    fn default() -> PerDomain<T> {
        PerDomain { all: None, of: BTreeMap::new() }
    }
}

impl<T> PerDomain<T> {
    fn get(&self, id: u32) -> Option<&T> {
        self.of.get(&id).or(self.all.as_ref())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheShare {
    /// So much, from 1 to 100.
    Percent(u32),
    /// The percents from the first to the last, counted from 1.
    Percents(u32, u32),
    /// These bits of the schemata.
    Bits(u64),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BandwidthShare {
    percent: Option<u32>,
    megabytes: Option<u64>,
}

/// A class and what its group is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileGroup {
    /// Name of the class; absent for the root group.
    pub class: Option<String>,
    /// Its values.
    pub schemata: Schemata,
}

impl ClassFile {
    /// Reads the value of a YAML or JSON text. All mistakes are told.
    pub fn parse(value: &Value) -> Result<ClassFile, Vec<ClassFileError>> {
        let mut reader = Reader { errors: Vec::new(), names: BTreeSet::new() };
        let file = reader.file(value);
        if reader.errors.is_empty() { Ok(file) } else { Err(reader.errors) }
    }

    /// The groups for a machine: its masks, its units, the ids of its root group.
    ///
    /// Partitions with a percent lie one after the other in the order of their names; those with bits lie where they say.
    /// Classes with a percent start where their partition starts.
    pub fn plan(&self, info: &Info, root: &Schemata) -> Result<Vec<FileGroup>, Vec<ClassFileError>> {
        let mut errors = Vec::new();
        let mut groups: BTreeMap<&str, Schemata> = BTreeMap::new();
        for class in self.partitions.values().flat_map(|partition| partition.classes.keys()) {
            groups.insert(class, Schemata::default());
        }
        if let Some(cache) = &info.cache {
            for id in root.cache.keys() {
                match self.masks(cache, *id) {
                    Ok(masks) => masks.into_iter().for_each(|(class, mask)| {
                        groups.entry(class).or_default().cache.insert(*id, mask);
                    }),
                    Err(error) => errors.push(error),
                }
            }
        }
        for (partition_name, partition) in &self.partitions {
            for (name, class) in &partition.classes {
                let values = groups.entry(name).or_default();
                for (id, most) in &root.bandwidth {
                    let shares = [partition.share.bandwidth.get(*id), class.bandwidth.get(*id)];
                    match limit(info, *most, shares) {
                        Ok(Some(limit)) => {
                            values.bandwidth.insert(*id, limit);
                        }
                        Ok(None) => {}
                        Err(wanted) => errors.push(ClassFileError {
                            field: format!("partitions.{partition_name}.classes.{name}.mbAllocation"),
                            value: format!("memory bandwidth {id}"),
                            wanted,
                        }),
                    }
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let named = |class: &str| (class != DEFAULT_CLASS && !class.is_empty()).then(|| class.to_owned());
        Ok(groups.into_iter().map(|(class, schemata)| FileGroup { class: named(class), schemata }).collect())
    }

    /// The mask of each class in one cache.
    fn masks(&self, cache: &CacheInfo, id: u32) -> Result<Vec<(&str, u64)>, ClassFileError> {
        let mut percents_used = 0;
        let mut bits_used = 0;
        let mut found = Vec::new();
        for (name, partition) in &self.partitions {
            let field = format!("partitions.{name}.l3Allocation");
            let fail = |wanted: String| ClassFileError {
                field: field.clone(),
                value: format!("cache {id}"),
                wanted,
            };
            let base = match partition.share.cache.get(id).copied().unwrap_or(CacheShare::Percent(100)) {
                CacheShare::Percent(percent) => {
                    let low = percents_used;
                    percents_used += percent;
                    if percents_used > 100 {
                        return Err(fail("percents of all partitions may add up to 100".to_owned()));
                    }
                    part_of(cache.cbm_mask, low, percents_used)
                }
                CacheShare::Percents(first, last) => part_of(cache.cbm_mask, first - 1, last),
                CacheShare::Bits(bits) => bits,
            };
            if base & !cache.cbm_mask != 0 || base.count_ones() < cache.min_cbm_bits.max(1) {
                let (full, least) = (cache.cbm_mask, cache.min_cbm_bits.max(1));
                return Err(fail(format!("{base:x} must be at least {least} bits of {full:x}")));
            }
            if base & bits_used != 0 {
                return Err(fail(format!("{base:x} overlaps other partitions, which have {bits_used:x}")));
            }
            bits_used |= base;
            for (class, share) in &partition.classes {
                found
                    .push((class.as_str(), mask_in(cache, base, share.cache.get(id).copied(), name, class)?));
            }
        }
        Ok(found)
    }
}

/// The percents `low..high` of a mask, rounded down at both ends, so that neighbours do not overlap.
fn part_of(mask: u64, low: u32, high: u32) -> u64 {
    let width = mask.count_ones();
    let bits = |percent: u32| {
        let count = width * percent / 100;
        1_u64.checked_shl(count).map_or(u64::MAX, |bit| bit - 1)
    };
    (bits(high) & !bits(low)) << mask.trailing_zeros().min(63)
}

/// The mask of a class inside the mask of its partition.
fn mask_in(
    cache: &CacheInfo,
    base: u64,
    share: Option<CacheShare>,
    partition: &str,
    class: &str,
) -> Result<u64, ClassFileError> {
    let fail = |wanted: String| ClassFileError {
        field: format!("partitions.{partition}.classes.{class}.l3Allocation"),
        value: format!("{share:?}"),
        wanted,
    };
    let (start, end) = match share {
        None => return Ok(base),
        Some(CacheShare::Bits(bits)) => {
            if bits & !base != 0 || bits.count_ones() < cache.min_cbm_bits.max(1) {
                return Err(fail(format!("bits must be in the partition's mask {base:x}")));
            }
            return Ok(bits);
        }
        Some(CacheShare::Percent(percent)) => (0, percent),
        Some(CacheShare::Percents(first, last)) => (first - 1, last),
    };
    let shift = base.trailing_zeros();
    let inside = CacheInfo { cbm_mask: base >> shift, ..cache.clone() };
    cache_mask(&inside, i64::from(start), i64::from(end))
        .map(|mask| mask << shift)
        .map_err(|error| fail(error.to_string()))
}

/// The value of a class, of which a partition is a part. `None` leaves the line out.
fn limit(info: &Info, most: u64, shares: [Option<&BandwidthShare>; 2]) -> Result<Option<u64>, String> {
    let Some(limits) = &info.bandwidth else { return Ok(None) };
    let given = || shares.iter().flatten();
    if limits.unit == BandwidthUnit::Percent && most > 100 {
        // Mounted with mba_MBps: the smaller of the two counts.
        return Ok(Some(given().filter_map(|share| share.megabytes).min().unwrap_or(most).min(most)));
    }
    if given().any(|share| share.percent.is_none()) {
        return Err("a percent is needed unless the file system is mounted with mba_MBps".to_owned());
    }
    let percent = given()
        .filter_map(|share| share.percent)
        .fold(10_000, |product, percent| product * u64::from(percent) / 100)
        .div_ceil(100)
        .max(1);
    let percent = i64::try_from(percent).unwrap_or(100);
    bandwidth(limits, most, percent).map(Some).map_err(|error| error.to_string())
}

struct Reader {
    errors: Vec<ClassFileError>,
    names: BTreeSet<String>,
}

impl Reader {
    fn fail(&mut self, field: &str, value: &Value, wanted: &str) {
        const MOST: usize = 80;
        let value = value.to_string().chars().take(MOST).collect();
        self.errors.push(ClassFileError { field: field.to_owned(), value, wanted: wanted.to_owned() });
    }

    /// The entries of a mapping whose keys are known; nothing for `null`.
    fn known<'a>(&mut self, field: &str, value: &'a Value, keys: &[&str]) -> Option<&'a Map<String, Value>> {
        let map = self.mapping(field, value)?;
        for (key, value) in map {
            if !keys.contains(&key.as_str()) {
                self.fail(&format!("{field}.{key}"), value, &format!("known fields are {}", keys.join(", ")));
            }
        }
        Some(map)
    }

    fn mapping<'a>(&mut self, field: &str, value: &'a Value) -> Option<&'a Map<String, Value>> {
        match value {
            Value::Object(map) => return Some(map),
            Value::Null => {}
            _ => self.fail(field, value, "a mapping"),
        }
        None
    }

    fn file(&mut self, value: &Value) -> ClassFile {
        let mut file = ClassFile::default();
        let top = self.known("file", value, &["options", "partitions"]);
        let Some(partitions) = top.and_then(|top| top.get("partitions")) else { return file };
        for (name, partition) in self.mapping("partitions", partitions).into_iter().flatten() {
            let field = format!("partitions.{name}");
            let keys = ["l2Allocation", "l3Allocation", "mbAllocation", "classes"];
            let Some(entries) = self.known(&field, partition, &keys) else {
                file.partitions.insert(name.clone(), Partition::default());
                continue;
            };
            let mut read = Partition { share: self.share(&field, entries), classes: BTreeMap::new() };
            let classes =
                entries.get("classes").and_then(|value| self.mapping(&format!("{field}.classes"), value));
            for (class, value) in classes.into_iter().flatten() {
                let field = format!("{field}.classes.{class}");
                if class.contains('/') || class.starts_with('.') {
                    self.fail(&field, value, "the name of a class must be able to be the name of a folder");
                }
                if !self.names.insert(class.clone()) {
                    self.fail(&field, value, "a class may be in one partition only");
                }
                let keys = ["l2Allocation", "l3Allocation", "mbAllocation", "kubernetes"];
                let share = match self.known(&field, value, &keys) {
                    Some(entries) => self.share(&field, entries),
                    None => Share::default(),
                };
                read.classes.insert(class.clone(), share);
            }
            file.partitions.insert(name.clone(), read);
        }
        file
    }

    fn share(&mut self, field: &str, entries: &Map<String, Value>) -> Share {
        let mut share = Share::default();
        if let Some(value) = entries.get("l3Allocation") {
            let field = format!("{field}.l3Allocation");
            share.cache = self.per_domain(&field, value, |value| match value {
                Value::Object(parts) => parts.get("unified").and_then(Value::as_str).and_then(cache_share),
                value => value.as_str().and_then(cache_share),
            }, "a percent as \"60%\", a range as \"20-60%\", a mask as \"0xf0\" or bits as \"4-7\", without a gap");
        }
        if let Some(value) = entries.get("mbAllocation") {
            let field = format!("{field}.mbAllocation");
            let wanted = "a list of a percent and a rate, as [\"50%\", \"1000MBps\"]";
            share.bandwidth = self.per_domain(&field, value, bandwidth_share, wanted);
        }
        share
    }

    fn per_domain<T: Copy>(
        &mut self,
        field: &str,
        value: &Value,
        read: impl Fn(&Value) -> Option<T>,
        wanted: &str,
    ) -> PerDomain<T> {
        let mut domains = PerDomain::default();
        let map = match value {
            Value::Object(map) if !map.contains_key("unified") => map,
            value => {
                domains.all = read(value);
                if domains.all.is_none() {
                    self.fail(field, value, wanted);
                }
                return domains;
            }
        };
        for (ids, value) in map {
            let field = format!("{field}.{ids}");
            let Some(share) = read(value) else {
                self.fail(&field, value, wanted);
                continue;
            };
            if ids == "all" {
                domains.all = Some(share);
                continue;
            }
            match CpuSet::parse(ids) {
                Ok(ids) => domains.of.extend(ids.iter().map(|id| (id, share))),
                Err(_) => self.fail(&field, value, "\"all\" or a list of cache ids as 0,2-3"),
            }
        }
        domains
    }
}

fn percent(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|percent| digits && (1..=100).contains(percent))
}

fn cache_share(text: &str) -> Option<CacheShare> {
    if let Some(percents) = text.strip_suffix('%') {
        return match percents.split_once('-') {
            None => percent(percents).map(CacheShare::Percent),
            Some((first, last)) => {
                let (first, last) = (percent(first)?, percent(last)?);
                (first <= last).then_some(CacheShare::Percents(first, last))
            }
        };
    }
    let bits = match text.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok()?,
        Some(_) => return None,
        None => CpuSet::parse(text)
            .ok()?
            .iter()
            .try_fold(0, |bits: u64, bit| 1_u64.checked_shl(bit).map(|bit| bits | bit))?,
    };
    let is_whole = bits != 0 && (bits >> bits.trailing_zeros()).trailing_ones() == bits.count_ones();
    is_whole.then_some(CacheShare::Bits(bits))
}

fn bandwidth_share(value: &Value) -> Option<BandwidthShare> {
    let mut share = BandwidthShare::default();
    for text in value.as_array()? {
        let text = text.as_str()?;
        match (text.strip_suffix('%'), text.strip_suffix("MBps")) {
            (Some(number), _) => share.percent = Some(percent(number)?),
            (_, Some(number)) => {
                share.megabytes = Some(number.parse().ok().filter(|_| !number.starts_with('+'))?);
            }
            _ => return None,
        }
    }
    (share != BandwidthShare::default()).then_some(share)
}

#[cfg(test)]
mod tests;
