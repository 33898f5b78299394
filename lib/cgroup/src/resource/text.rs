//! Values to the kernel's texts, back, and what counts as the same.

use std::collections::BTreeMap;

use koord_extension::cpuset::CpuSet;

use super::Resource;
use super::table::{self, Kind};
use crate::error::CgroupError;
use crate::io::DeviceNumber;
use crate::value::{UNLIMITED, Value};
use crate::version::CgroupVersion;
use crate::weight::{Conversion, PERIOD_DEFAULT, QUOTA_MIN, SHARES_MAX, SHARES_MIN};

/// From here on a limit of version 1 is none. The kernel shows its largest number of whole pages, which with pages of 4 KiB
/// is 0x7FFFFFFFFFFFF000 and with pages of 64 KiB 0x7FFFFFFFFFFF0000.
const NO_LIMIT_V1: i64 = i64::MAX - 0xFFFF;
/// Longest burst of version 1, in microseconds.
const BURST_MAX_V1: i64 = 100_000_000;
/// Shortest and longest period, in microseconds.
const PERIODS: std::ops::RangeInclusive<i64> = 1_000..=1_000_000;

pub(super) fn validate(resource: Resource, value: &Value, version: CgroupVersion) -> Result<(), CgroupError> {
    let accepted = |text: &str| CgroupError::value(resource, value, text);
    let row = table::row(resource);
    let number_in = |low: i64, high: i64| match value {
        Value::Integer(number) if (low..=high).contains(number) => Ok(()),
        Value::Integer(_) => Err(accepted(&format!("{low}..{high}"))),
        other => Err(accepted(&format!("{low}..{high}, not {}", other.kind()))),
    };
    match row.kind {
        Kind::ReadOnly | Kind::Pressure => Err(accepted("no value: it is read only")),
        Kind::Shares => number_in(SHARES_MIN, SHARES_MAX),
        Kind::Quota => match value {
            Value::Integer(number) if *number == UNLIMITED || *number >= QUOTA_MIN => Ok(()),
            _ => Err(accepted("-1 for no limit, or at least 1000 microseconds")),
        },
        Kind::Period => number_in(*PERIODS.start(), *PERIODS.end()),
        Kind::Burst => number_in(0, if version == CgroupVersion::V1 { BURST_MAX_V1 } else { i64::MAX }),
        Kind::Range(low, high) => number_in(low, high),
        Kind::Limit => {
            // A limit of nothing kills what is in the group; no rule means that.
            let least = i64::from(resource == Resource::MemoryLimit);
            match value {
                Value::Integer(number) if *number == UNLIMITED || *number >= least => Ok(()),
                _ => Err(accepted(&format!("-1 for no limit, or at least {least} bytes"))),
            }
        }
        Kind::Protection => match value {
            Value::Integer(number) if *number >= UNLIMITED => Ok(()),
            _ => Err(accepted("-1 for no bound, or at least 0 bytes")),
        },
        Kind::Clamp => match clamp_of(value) {
            Some(_) => Ok(()),
            None => Err(accepted("0..100 percent with at most two decimals, or max")),
        },
        Kind::Cpus => match value {
            Value::Cpus(_) => Ok(()),
            _ => Err(accepted("a list such as 0-3,8")),
        },
        Kind::Id => number_in(0, i64::from(i32::MAX)),
        Kind::Reclaim => match value {
            Value::Integer(number) if *number > 0 => Ok(()),
            Value::Text(text) if is_reclaim(text) => Ok(()),
            _ => Err(accepted("BYTES or BYTES swappiness=0..200")),
        },
        Kind::Word(words) => match value {
            Value::Text(text) if words.contains(&text.as_str()) => Ok(()),
            _ => Err(accepted(&words.join(", "))),
        },
        Kind::DeviceNumber(_) => match line_of(value) {
            Some((_, number)) if number != "max" && number_of(number).is_some_and(|number| number >= 0) => {
                Ok(())
            }
            _ => Err(accepted("MAJOR:MINOR N, N at least 0 and 0 for no limit")),
        },
        Kind::DeviceWeight { default, most } => {
            let in_range = |text: &str| number_of(text).is_some_and(|number| (1..=most).contains(&number));
            let good = match (value, line_of(value)) {
                (_, Some((_, number))) => in_range(number),
                (Value::Integer(number), None) if default => (1..=most).contains(number),
                (Value::Text(text), None) if default => text.strip_prefix("default ").is_some_and(in_range),
                _ => false,
            };
            let whole = if default { ", N or default N" } else { "" };
            if good { Ok(()) } else { Err(accepted(&format!("MAJOR:MINOR N{whole}, N 1..{most}"))) }
        }
        Kind::DeviceKeys(keys) => {
            let good = line_of(value).and_then(|(_, rest)| keys_of(rest)).is_some_and(|found| {
                !found.is_empty() && found.iter().all(|(key, word)| is_key(keys, key, word))
            });
            if good {
                Ok(())
            } else {
                Err(accepted(&format!("MAJOR:MINOR KEY=VALUE..., keys {}", keys.join(", "))))
            }
        }
    }
}

fn is_key(keys: &[&str], key: &str, word: &str) -> bool {
    keys.contains(&key)
        && match key {
            "ctrl" => matches!(word, "auto" | "user"),
            "model" => word == "linear",
            "enable" => matches!(word, "0" | "1"),
            _ => word == "max" || word.parse::<f64>().is_ok_and(|number| number.is_finite() && number >= 0.0),
        }
}

fn is_reclaim(text: &str) -> bool {
    let mut words = text.split(' ');
    let bytes = words.next().and_then(number_of).is_some_and(|bytes| bytes > 0);
    let swappiness = match words.next() {
        None => true,
        Some(word) => word
            .strip_prefix("swappiness=")
            .is_some_and(|word| word == "max" || number_of(word).is_some_and(|n| (0..=200).contains(&n))),
    };
    bytes && swappiness && words.next().is_none()
}

pub(super) fn to_kernel_text(
    resource: Resource,
    value: &Value,
    version: CgroupVersion,
    conversion: Conversion,
) -> Result<String, CgroupError> {
    validate(resource, value, version)?;
    let is_v2 = version == CgroupVersion::V2;
    Ok(match (table::row(resource).kind, value) {
        (Kind::Shares, Value::Integer(shares)) if is_v2 => match conversion.weight(*shares) {
            Some(weight) => weight.to_string(),
            None => return Err(CgroupError::value(resource, value, "2..262144")),
        },
        (Kind::Quota, Value::Integer(UNLIMITED)) if is_v2 => "max".to_owned(),
        (Kind::Period, Value::Integer(period)) if is_v2 => format!("max {period}"),
        (Kind::Limit, Value::Integer(limit)) if is_unlimited(*limit) => {
            if is_v2 {
                "max".to_owned()
            } else {
                UNLIMITED.to_string()
            }
        }
        (Kind::Protection, Value::Integer(bytes)) if is_unlimited(*bytes) => {
            if is_v2 {
                "max".to_owned()
            } else {
                i64::MAX.to_string()
            }
        }
        // An empty write is none at all: the kernel must see a line end.
        (Kind::Cpus, Value::Cpus(cpus)) if cpus.is_empty() => "\n".to_owned(),
        (Kind::DeviceNumber(key), Value::Text(_)) if is_v2 => match line_of(value) {
            Some((device, number)) if number_of(number) == Some(0) => format!("{device} {key}=max"),
            Some((device, number)) => format!("{device} {key}={number}"),
            None => return Err(CgroupError::value(resource, value, "MAJOR:MINOR N")),
        },
        (Kind::DeviceWeight { .. }, Value::Integer(number)) => format!("default {number}"),
        (Kind::DeviceKeys(_), Value::Text(_)) if resource == Resource::IoMax => {
            let Some((device, rest)) = line_of(value) else {
                return Err(CgroupError::value(resource, value, "MAJOR:MINOR KEY=N"));
            };
            let words = rest.split_ascii_whitespace().map(|word| match word.split_once('=') {
                Some((key, "0")) => format!("{key}=max"),
                _ => word.to_owned(),
            });
            std::iter::once(device.to_string()).chain(words).collect::<Vec<_>>().join(" ")
        }
        (_, value) => value.to_string(),
    })
}

pub(super) fn parse_kernel_text(
    resource: Resource,
    text: &str,
    version: CgroupVersion,
    conversion: Conversion,
) -> Result<Value, CgroupError> {
    let is_v2 = version == CgroupVersion::V2;
    let name = resource.file(version).map_or(resource.as_str(), |file| file.name);
    let wrong = |expected| CgroupError::parse(name, text, expected);
    let trimmed = text.trim();
    let number = |expected| number_of(trimmed).ok_or_else(|| wrong(expected));
    Ok(match table::row(resource).kind {
        Kind::Shares if is_v2 => match number("a weight of 0..10000")? {
            // What an idle group shows, up to kernel 6.11; later ones show 1.
            0 => Value::Integer(0),
            weight => Value::Integer(conversion.shares(weight).ok_or_else(|| wrong("a weight of 0..10000"))?),
        },
        Kind::Quota if is_v2 => Value::Integer(bandwidth_of(trimmed).ok_or_else(|| wrong("QUOTA PERIOD"))?.0),
        Kind::Period if is_v2 => {
            Value::Integer(bandwidth_of(trimmed).ok_or_else(|| wrong("QUOTA PERIOD"))?.1)
        }
        Kind::Quota => Value::Integer(number("a number")?.max(UNLIMITED)),
        Kind::Limit | Kind::Protection => {
            let bytes = number("a number of bytes or max")?;
            Value::Integer(if is_unlimited(bytes) { UNLIMITED } else { bytes })
        }
        Kind::Range(..) if resource == Resource::NetClsClassId => {
            Value::Integer(class_of(trimmed).ok_or_else(|| wrong("a class, decimal or 0x hexadecimal"))?)
        }
        Kind::Shares | Kind::Period | Kind::Burst | Kind::Range(..) => Value::Integer(number("a number")?),
        Kind::Clamp => {
            let hundredths = clamp_text(trimmed).ok_or_else(|| wrong("a percentage or max"))?;
            if hundredths % 100 == 0 {
                Value::Integer(hundredths / 100)
            } else {
                Value::Text(trimmed.to_owned())
            }
        }
        Kind::Cpus => Value::Cpus(CpuSet::parse(trimmed).map_err(|_| wrong("a list such as 0-3,8"))?),
        Kind::ReadOnly => match resource {
            Resource::CpuacctUsage if is_v2 => {
                let used =
                    crate::stat::field(text, "usage_usec").ok_or_else(|| wrong("a line usage_usec N"))?;
                Value::Integer(used.saturating_mul(1000))
            }
            Resource::CpuacctUsage | Resource::MemoryUsage => Value::Integer(number("a number")?),
            _ => Value::Text(text.to_owned()),
        },
        Kind::Word(_) => Value::Text(trimmed.to_owned()),
        Kind::Pressure
        | Kind::Id
        | Kind::Reclaim
        | Kind::DeviceNumber(_)
        | Kind::DeviceWeight { .. }
        | Kind::DeviceKeys(_) => Value::Text(text.trim_end().to_owned()),
    })
}

/// A number in a file: decimal, or `max`. Beyond what fits it is the largest.
pub(crate) fn number_of(text: &str) -> Option<i64> {
    match text {
        "max" => Some(i64::MAX),
        _ => match text.parse::<i64>() {
            Ok(number) => Some(number),
            // Old kernels show "no limit" as the largest unsigned number.
            Err(_) => text.parse::<u64>().ok().map(|_| i64::MAX),
        },
    }
}

/// Quota and period of `cpu.max`: exactly two words.
fn bandwidth_of(text: &str) -> Option<(i64, i64)> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period) = (words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let quota = if quota == "max" { UNLIMITED } else { quota.parse().ok().filter(|quota| *quota >= 0)? };
    Some((quota, period.parse().ok().filter(|period| *period > 0)?))
}

/// Class of packets: decimal, or hexadecimal after `0x`.
fn class_of(text: &str) -> Option<i64> {
    let class = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok()?,
        Some(_) => return None,
        None => text.parse::<u32>().ok()?,
    };
    Some(i64::from(class))
}

const fn is_unlimited(bytes: i64) -> bool {
    bytes == UNLIMITED || bytes >= NO_LIMIT_V1
}

/// Hundredths of a percent.
fn clamp_text(text: &str) -> Option<i64> {
    if text == "max" {
        return Some(10_000);
    }
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|octet| octet.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 2 || !digits(whole) || !digits(decimals) {
        return None;
    }
    let fraction = match decimals.len() {
        0 => 0,
        1 => decimals.parse::<i64>().ok()? * 10,
        _ => decimals.parse::<i64>().ok()?,
    };
    let hundredths = whole.parse::<i64>().ok()?.checked_mul(100)?.checked_add(fraction)?;
    (hundredths <= 10_000).then_some(hundredths)
}

fn clamp_of(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(percent) => (0..=100).contains(percent).then(|| percent * 100),
        Value::Text(text) => clamp_text(text),
        Value::Cpus(_) => None,
    }
}

/// Device and rest of a line `MAJOR:MINOR REST`.
fn line_of(value: &Value) -> Option<(DeviceNumber, &str)> {
    let Value::Text(text) = value else { return None };
    if text.contains('\n') {
        return None;
    }
    let (device, rest) = text.split_once(' ')?;
    Some((device.parse().ok()?, rest))
}

fn keys_of(rest: &str) -> Option<BTreeMap<&str, &str>> {
    rest.split_ascii_whitespace().map(|word| word.split_once('=')).collect()
}

/// What two texts of one file are compared by.
#[derive(Debug, Clone, PartialEq)]
enum Normal {
    Number(i64),
    Cpus(CpuSet),
    Word(String),
}

/// A value as the kernel will have it, for comparison with what a file holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileText<'a> {
    pub(crate) resource: Resource,
    pub(crate) version: CgroupVersion,
    pub(crate) conversion: Conversion,
    /// Bytes of a page.
    pub(crate) page_size: i64,
    /// What is wanted.
    pub(crate) wanted: &'a Value,
}

impl FileText<'_> {
    /// Which part of the file the value is for: a device, or nothing for the whole file.
    pub(crate) fn key(&self) -> Option<String> {
        match table::row(self.resource).kind {
            Kind::DeviceNumber(_) | Kind::DeviceWeight { .. } | Kind::DeviceKeys(_) => {
                line_of(self.wanted).map(|(device, _)| device.to_string())
            }
            _ => None,
        }
    }

    /// The value that the file's text has where this one would be written; nothing if the text cannot be understood.
    pub(crate) fn current(&self, text: &str) -> Option<Value> {
        let is_v2 = self.version == CgroupVersion::V2;
        let device = line_of(self.wanted).map(|(device, _)| device);
        match (table::row(self.resource).kind, device) {
            (Kind::DeviceNumber(key), Some(device)) => {
                let number = match find_line(text, device) {
                    None => 0,
                    Some(rest) if is_v2 => match keys_of(rest)?.get(key) {
                        None | Some(&"max") => 0,
                        Some(number) => number_of(number)?,
                    },
                    Some(rest) => number_of(rest.trim())?,
                };
                Some(Value::Text(format!("{device} {number}")))
            }
            (Kind::DeviceWeight { .. }, Some(device)) => {
                let own = find_line(text, device).map(str::trim);
                let number = own.or_else(|| default_line(text)).unwrap_or("100");
                Some(Value::Text(format!("{device} {}", number_of(number)?)))
            }
            (Kind::DeviceWeight { .. }, None) => {
                let number = default_line(text).unwrap_or_else(|| text.trim());
                let number = number_of(number)?;
                Some(match self.wanted {
                    Value::Integer(_) => Value::Integer(number),
                    _ => Value::Text(format!("default {number}")),
                })
            }
            (Kind::DeviceKeys(_), Some(device)) => Some(Value::Text(match find_line(text, device) {
                Some(rest) => format!("{device} {}", rest.trim()),
                None => format!("{device} {}", self.without_line()),
            })),
            _ => parse_kernel_text(self.resource, text, self.version, self.conversion).ok(),
        }
    }

    /// What a device without a line has.
    const fn without_line(&self) -> &'static str {
        match self.resource {
            Resource::IoMax => "rbps=max wbps=max riops=max wiops=max",
            Resource::IoLatency => "target=0",
            Resource::BlkioCostQos => "enable=0",
            _ => "ctrl=auto",
        }
    }

    /// True if the file's text already says what is wanted.
    pub(crate) fn is_same(&self, text: &str) -> bool {
        let Some(current) = self.current(text) else { return false };
        if let Kind::DeviceKeys(_) = table::row(self.resource).kind {
            let (Some((_, wanted)), Some((_, found))) = (line_of(self.wanted), line_of(&current)) else {
                return false;
            };
            let (Some(wanted), Some(found)) = (keys_of(wanted), keys_of(found)) else { return false };
            return wanted
                .iter()
                .all(|(key, word)| found.get(key).is_some_and(|found| self.is_same_word(word, found)));
        }
        if self.resource == Resource::CpuShares && self.version == CgroupVersion::V2 {
            let weight = self.wanted.integer().and_then(|shares| self.conversion.weight(shares));
            return weight.is_some() && weight == number_of(text.trim());
        }
        matches!((self.normal(self.wanted), self.normal(&current)), (Some(one), Some(other)) if one == other)
    }

    fn is_same_word(&self, wanted: &str, found: &str) -> bool {
        let number = |word: &str| match word {
            "max" => Some(f64::INFINITY),
            "0" if self.resource == Resource::IoMax => Some(f64::INFINITY),
            word => word.parse::<f64>().ok(),
        };
        wanted == found
            || matches!((number(wanted), number(found)), (Some(one), Some(other)) if one.total_cmp(&other).is_eq())
    }

    fn normal(&self, value: &Value) -> Option<Normal> {
        let kind = table::row(self.resource).kind;
        Some(match (kind, value) {
            (Kind::Limit | Kind::Protection, Value::Integer(bytes)) if is_unlimited(*bytes) => {
                Normal::Number(UNLIMITED)
            }
            (Kind::Limit | Kind::Protection, Value::Integer(bytes)) => {
                Normal::Number(bytes - bytes % self.page_size.max(1))
            }
            (Kind::Clamp, value) => Normal::Number(clamp_of(value)?),
            (Kind::Word(_), Value::Text(text)) => {
                // A partition shows why it is none: "root invalid (REASON)".
                Normal::Word(text.clone())
            }
            (_, Value::Integer(number)) => Normal::Number(*number),
            (_, Value::Cpus(cpus)) => Normal::Cpus(cpus.clone()),
            (Kind::DeviceNumber(_) | Kind::DeviceWeight { .. }, Value::Text(text)) => {
                // Device, or "default", is the same in both already.
                Normal::Number(number_of(text.rsplit_once(' ')?.1)?)
            }
            (_, Value::Text(text)) => {
                Normal::Word(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
            }
        })
    }

    /// Text to write for a period on version 2, where quota and period share a file.
    pub(crate) fn with_quota_of(&self, written: String, current: Option<&str>) -> String {
        if self.resource != Resource::CpuPeriod || self.version != CgroupVersion::V2 {
            return written;
        }
        let quota = current.and_then(|text| bandwidth_of(text.trim())).map_or(UNLIMITED, |(quota, _)| quota);
        let period = self.wanted.integer().unwrap_or(PERIOD_DEFAULT);
        if quota == UNLIMITED { format!("max {period}") } else { format!("{quota} {period}") }
    }
}

fn find_line(text: &str, device: DeviceNumber) -> Option<&str> {
    text.lines().find_map(|line| {
        let (found, rest) = line.trim_start().split_once(' ')?;
        (found.parse::<DeviceNumber>().ok()? == device).then_some(rest)
    })
}

fn default_line(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("default ")).map(str::trim)
}

/// What a value is compared by to tell widening from narrowing: its size, with "no limit" as the largest. Nothing for
/// resources that have no such order.
pub(crate) fn extent(resource: Resource, value: &Value) -> Option<i64> {
    let number = value.integer()?;
    match table::row(resource).kind {
        Kind::Quota => Some(if number == UNLIMITED { i64::MAX } else { number }),
        Kind::Limit | Kind::Protection => Some(if is_unlimited(number) { i64::MAX } else { number }),
        Kind::Burst => Some(number),
        // The longer the period, the less CPU time a quota is.
        Kind::Period => Some(-number),
        _ => None,
    }
}
