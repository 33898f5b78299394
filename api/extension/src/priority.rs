//! Priority classes: how a cluster treats a pod.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::keys::label;
use crate::label::LabelError;
use crate::qos::QosClass;

/// Koordinator's priority class of a pod, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    /// Production: native resources.
    Prod,
    /// Mid: resources that are likely to stay idle.
    Mid,
    /// Batch: reclaimed resources.
    Batch,
    /// Free: native resources, evicted first.
    Free,
}

impl PriorityClass {
    /// All classes.
    pub const ALL: [PriorityClass; 4] =
        [PriorityClass::Prod, PriorityClass::Mid, PriorityClass::Batch, PriorityClass::Free];

    /// The class a text names, by its exact name.
    pub fn from_name(name: &str) -> Option<PriorityClass> {
        PriorityClass::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// As on the label, and the name of the PriorityClass object.
    pub const fn as_str(self) -> &'static str {
        match self {
            PriorityClass::Prod => "koord-prod",
            PriorityClass::Mid => "koord-mid",
            PriorityClass::Batch => "koord-batch",
            PriorityClass::Free => "koord-free",
        }
    }

    /// The class of a pod that may state none: batch for BE, prod for every other QoS class.
    pub const fn with_default(raw: Option<PriorityClass>, qos: QosClass) -> PriorityClass {
        match (raw, qos) {
            (Some(class), _) => class,
            (None, QosClass::Be) => PriorityClass::Batch,
            (None, _) => PriorityClass::Prod,
        }
    }
}

impl fmt::Display for PriorityClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Values of `spec.priority` of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityBand {
    /// The lowest value of the class.
    pub lowest: i32,
    /// The highest value of the class.
    pub highest: i32,
    /// The value of a pod that states none.
    pub default: i32,
}

/// Which values of `spec.priority` are of which class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityBands {
    prod: PriorityBand,
    mid: PriorityBand,
    batch: PriorityBand,
    free: PriorityBand,
}

/// A text of priority bands that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("priority bands: \"{item}\" {problem}")]
pub struct PriorityBandsError {
    /// The part that is wrong.
    pub item: String,
    /// What is wrong, and what would be right.
    pub problem: &'static str,
}

impl Default for PriorityBands {
    /// The bands of Koordinator: prod 9000-9999, mid 7000-7999, batch 5000-5999, free 3000-3999, each
    /// with its middle as default value.
    fn default() -> PriorityBands {
        let band = |lowest| PriorityBand { lowest, highest: lowest + 999, default: lowest + 500 };
        PriorityBands { prod: band(9000), mid: band(7000), batch: band(5000), free: band(3000) }
    }
}

impl PriorityBands {
    /// The band of a class.
    pub const fn band(&self, class: PriorityClass) -> PriorityBand {
        match class {
            PriorityClass::Prod => self.prod,
            PriorityClass::Mid => self.mid,
            PriorityClass::Batch => self.batch,
            PriorityClass::Free => self.free,
        }
    }

    /// The class of a value; none outside all bands.
    pub fn class_of(&self, priority: i32) -> Option<PriorityClass> {
        PriorityClass::ALL.into_iter().find(|class| {
            let band = self.band(*class);
            (band.lowest..=band.highest).contains(&priority)
        })
    }

    /// The class a pod states: if it has the label, the label alone decides, even if it says nothing known;
    /// else its `spec.priority`.
    pub fn raw(&self, labels: &BTreeMap<String, String>, priority: Option<i32>) -> Option<PriorityClass> {
        match labels.get(label::PRIORITY_CLASS) {
            Some(name) => PriorityClass::from_name(name),
            None => priority.and_then(|priority| self.class_of(priority)),
        }
    }

    /// The priority to reckon with where a number is needed: the pod's own, or its class's default where
    /// it has none or 0.
    pub const fn value_with_default(&self, priority: Option<i32>, class: PriorityClass) -> i32 {
        match priority {
            Some(priority) if priority != 0 => priority,
            _ => self.band(class).default,
        }
    }
}

impl FromStr for PriorityBands {
    type Err = PriorityBandsError;

    /// Reads `koord-prod=9000-9999:9500,koord-mid=7000-7999`: classes that are not named keep their band;
    /// without `:DEFAULT` the default value is the middle. Bands must not overlap.
    fn from_str(text: &str) -> Result<PriorityBands, PriorityBandsError> {
        let mut bands = PriorityBands::default();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let fail = |problem| PriorityBandsError { item: item.chars().take(80).collect(), problem };
            let (name, range) = item.split_once('=').ok_or_else(|| fail("is not CLASS=LOWEST-HIGHEST"))?;
            let class = PriorityClass::from_name(name)
                .ok_or_else(|| fail("names none of koord-prod, koord-mid, koord-batch, koord-free"))?;
            let (range, default) = match range.split_once(':') {
                Some((range, default)) => (range, Some(default)),
                None => (range, None),
            };
            let number =
                |text: &str| text.parse::<i32>().map_err(|_| fail("holds something that is no number"));
            let (lowest, highest) =
                range.split_once('-').ok_or_else(|| fail("is not CLASS=LOWEST-HIGHEST"))?;
            let (lowest, highest) = (number(lowest)?, number(highest)?);
            if lowest > highest {
                return Err(fail("ends before it starts"));
            }
            let default = match default {
                Some(default) => number(default)?,
                None => i32::midpoint(lowest, highest).saturating_add((highest - lowest) % 2),
            };
            if !(lowest..=highest).contains(&default) {
                return Err(fail("has a default outside its band"));
            }
            let band = PriorityBand { lowest, highest, default };
            match class {
                PriorityClass::Prod => bands.prod = band,
                PriorityClass::Mid => bands.mid = band,
                PriorityClass::Batch => bands.batch = band,
                PriorityClass::Free => bands.free = band,
            }
        }
        for (index, one) in PriorityClass::ALL.into_iter().enumerate() {
            for other in PriorityClass::ALL.into_iter().skip(index + 1) {
                let (band, next) = (bands.band(one), bands.band(other));
                if band.lowest <= next.highest && next.lowest <= band.highest {
                    return Err(PriorityBandsError {
                        item: format!("{one} and {other}"),
                        problem: "overlap",
                    });
                }
            }
        }
        Ok(bands)
    }
}

impl fmt::Display for PriorityBands {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for class in PriorityClass::ALL {
            let band = self.band(class);
            write!(formatter, "{separator}{class}={}-{}:{}", band.lowest, band.highest, band.default)?;
            separator = ",";
        }
        Ok(())
    }
}

/// The sub-priority a pod states inside its class, higher is more important; 0 if it states none.
///
/// The text is a signed 32-bit number as Go reads it with automatic base: `0x10`, `0o10`, `010`, `0b10`,
/// `1_000`. On an error callers go on with 0.
pub fn sub_priority(labels: &BTreeMap<String, String>) -> Result<i32, LabelError> {
    let key = label::PRIORITY;
    let text = labels.get(key).map_or("", String::as_str);
    if text.is_empty() {
        return Ok(0);
    }
    go_integer(text)
        .and_then(|value| i32::try_from(value).ok())
        .ok_or_else(|| LabelError::new(key, text, "wanted a whole number of 32 bits"))
}

/// Reads a whole number as Go does with base 0.
fn go_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)?),
        [b'0', b'o', ..] => (8, lower.get(2..)?),
        [b'0', b'b', ..] => (2, lower.get(2..)?),
        // The leading zero is part of the number, so that an underscore may follow it.
        [b'0', _, ..] => (8, lower.as_str()),
        _ => (10, lower.as_str()),
    };
    // An underscore stands between digits, or between the prefix and a digit.
    let bare = lower.len() == digits.len();
    let misplaced = digits.ends_with('_') || digits.contains("__") || bare && digits.starts_with('_');
    let digits: String = digits.chars().filter(|letter| *letter != '_').collect();
    if misplaced || digits.is_empty() || digits.starts_with(['+', '-']) {
        return None;
    }
    let value = i64::from_str_radix(&digits, base).ok()?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(key: &str, text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), text.to_owned())])
    }

    #[test]
    fn values_have_classes() {
        use PriorityClass::*;
        let bands = PriorityBands::default();
        for (value, class) in [
            (9000, Some(Prod)),
            (9999, Some(Prod)),
            (8999, None),
            (10000, None),
            (7999, Some(Mid)),
            (7000, Some(Mid)),
            (6999, None),
            (8000, None),
            (5000, Some(Batch)),
            (5999, Some(Batch)),
            (4999, None),
            (6000, None),
            (3999, Some(Free)),
            (3000, Some(Free)),
            (2999, None),
            (4000, None),
            (0, None),
            (-1, None),
            (2_000_001_000, None),
        ] {
            assert_eq!(bands.raw(&BTreeMap::new(), Some(value)), class, "{value}");
        }
        assert_eq!(bands.raw(&BTreeMap::new(), None), None);
    }

    #[test]
    fn the_label_alone_decides() {
        let bands = PriorityBands::default();
        let raw = |name| bands.raw(&labels(label::PRIORITY_CLASS, name), Some(9500));
        assert_eq!(raw("koord-mid"), Some(PriorityClass::Mid));
        for name in ["gold", "", "Koord-mid", "koord-mid "] {
            assert_eq!(raw(name), None, "{name:?}");
        }
    }

    #[test]
    fn what_is_not_stated_comes_from_the_qos_class() {
        use PriorityClass::*;
        for (qos, class) in [
            (QosClass::Lse, Prod),
            (QosClass::Lsr, Prod),
            (QosClass::Ls, Prod),
            (QosClass::System, Prod),
            (QosClass::Be, Batch),
        ] {
            assert_eq!(PriorityClass::with_default(None, qos), class);
            assert_eq!(PriorityClass::with_default(Some(Free), qos), Free);
        }
    }

    #[test]
    fn numbers_have_defaults() {
        let bands = PriorityBands::default();
        for (priority, class, value) in [
            (None, PriorityClass::Prod, 9500),
            (Some(0), PriorityClass::Prod, 9500),
            (Some(-10), PriorityClass::Prod, -10),
            (Some(1000), PriorityClass::Prod, 1000),
            (Some(0), PriorityClass::Batch, 5500),
            (None, PriorityClass::Mid, 7500),
            (None, PriorityClass::Free, 3500),
        ] {
            assert_eq!(bands.value_with_default(priority, class), value);
        }
    }

    #[test]
    fn sub_priorities_are_read_as_go_reads_them() {
        for (text, value) in [
            ("5300", 5300),
            ("0x10", 16),
            ("0X1f", 31),
            ("010", 8),
            ("0o17", 15),
            ("0O17", 15),
            ("0b101", 5),
            ("0B11", 3),
            ("", 0),
            ("0", 0),
            ("1_000", 1000),
            ("0x_10", 16),
            ("0_7", 7),
            ("-5", -5),
            ("+5", 5),
            ("-0x10", -16),
            ("2147483647", i32::MAX),
            ("-2147483648", i32::MIN),
        ] {
            assert_eq!(sub_priority(&labels(label::PRIORITY, text)), Ok(value), "{text:?}");
        }
        assert_eq!(sub_priority(&BTreeMap::new()), Ok(0));
        for text in [
            "2147483648",
            "-2147483649",
            "abc",
            "08",
            "0x",
            "0b2",
            "_1",
            "1_",
            "1__0",
            " 1",
            "1 ",
            "--1",
            "+-1",
            "0x-1",
            "1.0",
            "_",
            "-",
            "99999999999999999999",
        ] {
            assert!(sub_priority(&labels(label::PRIORITY, text)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn bands_can_be_set() {
        let text = "koord-prod=9000-9999:9500,koord-mid=7000-7999:7500,koord-batch=5000-5999:5500,\
                    koord-free=3000-3999:3500";
        assert_eq!(PriorityBands::default().to_string(), text);
        assert_eq!(text.parse(), Ok(PriorityBands::default()));
        assert_eq!("koord-free=3000-3999".parse(), Ok(PriorityBands::default()));
        let bands: PriorityBands = "koord-prod=20000-29999:21000".parse().unwrap();
        assert_eq!(bands.class_of(20000), Some(PriorityClass::Prod));
        assert_eq!(bands.class_of(9500), None);
        assert_eq!(bands.value_with_default(None, PriorityClass::Prod), 21000);
        for wrong in [
            "koord-prod",
            "koord-prod=1",
            "gold=1-2",
            "koord-prod=2-1",
            "koord-prod=1-x",
            "koord-prod=1-2:3",
            "koord-prod=5999-6500",
        ] {
            assert!(wrong.parse::<PriorityBands>().is_err(), "{wrong}");
        }
    }
}
