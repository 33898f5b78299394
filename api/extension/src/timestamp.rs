//! Times in JSON.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SECONDS_PER_DAY: u64 = 86_400;

/// The last second of the year 9999: RFC 3339 writes years with four digits.
const LATEST: u64 = 253_402_300_799;

/// A time in UTC to the second, in JSON as RFC 3339: `"2026-07-01T12:00:00Z"`. From the year 1970 to 9999.
///
/// JSON is read in every form of RFC 3339 that Kubernetes accepts: with an offset, and with a fraction of a
/// second, which is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From seconds since 1970-01-01T00:00:00Z; later than the year 9999 counts as its last second.
    pub fn from_unix_seconds(seconds: u64) -> Timestamp {
        Timestamp(seconds.min(LATEST))
    }

    /// From the system's time; fractions of a second are dropped, times before 1970 count as its start.
    pub fn from_system_time(time: SystemTime) -> Timestamp {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::from_unix_seconds(since.as_secs())
    }

    /// Reads any form of RFC 3339: with an offset from UTC, and with a fraction of a second, which is dropped.
    pub fn from_rfc3339(text: &str) -> Result<Timestamp, NotATimestamp> {
        lenient(text).ok_or_else(|| NotATimestamp(text.to_owned()))
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    pub fn unix_seconds(self) -> u64 {
        self.0
    }
}

/// Years in this module begin in March, so that the day that comes only every four years is the last one.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01 of the proleptic Gregorian calendar, and the cycle of 400 years they are in.
    let days = days_since_1970 + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Months from March have 153 days in every five.
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + carry, month, day_of_month)
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let (cycle, year) = (year / 400, year % 400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    (cycle * 146_097 + 365 * year + year / 4 - year / 100 + day_of_year).checked_sub(719_468)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = (self.0 / SECONDS_PER_DAY, self.0 % SECONDS_PER_DAY);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        formatter.pad(&format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
    }
}

/// A text that is not a time as [`Timestamp`] writes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time in UTC such as 2026-07-01T12:00:00Z")]
pub struct NotATimestamp(pub String);

impl FromStr for Timestamp {
    type Err = NotATimestamp;

    fn from_str(text: &str) -> Result<Timestamp, NotATimestamp> {
        parse(text)
            // A day that a month does not have comes back as another one.
            .filter(|time| time.to_string() == text)
            .ok_or_else(|| NotATimestamp(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator: char| -> Option<(u64, u64, u64)> {
        let mut parts = text.split(separator).map(|part| {
            (part.len() <= 4 && part.bytes().all(|c| c.is_ascii_digit())).then(|| part.parse().ok())?
        });
        let numbers = (parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(numbers)
    };
    let (year, month, day) = numbers(date, '-')?;
    let (hour, minute, second) = numbers(time, ':')?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_since_1970(year, month, day)?;
    Some(Timestamp::from_unix_seconds(days * SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second))
}

fn lenient(text: &str) -> Option<Timestamp> {
    let (local, east) = match text.strip_suffix('Z') {
        Some(local) => (local, 0),
        None => {
            let (local, offset) = text.split_at_checked(text.len().checked_sub("+00:00".len())?)?;
            (local, seconds_east(offset)?)
        }
    };
    let whole = match local.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|c| c.is_ascii_digit()) => {
            whole
        }
        Some(_) => return None,
        None => local,
    };
    let time: Timestamp = format!("{whole}Z").parse().ok()?;
    time.0.checked_add_signed(-east).map(Timestamp::from_unix_seconds)
}

/// An offset such as `+02:00`, in seconds.
fn seconds_east(offset: &str) -> Option<i64> {
    let (sign, offset) = match offset.strip_prefix('+') {
        Some(offset) => (1, offset),
        None => (-1, offset.strip_prefix('-')?),
    };
    let (hours, minutes) = offset.split_once(':')?;
    let number = |text: &str| -> Option<i64> {
        (text.len() == 2 && text.bytes().all(|c| c.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        Timestamp::from_rfc3339(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        // Worked out with date(1).
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_208_000, "2024-02-29T12:00:00Z"),
            (1_782_907_200, "2026-07-01T12:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LATEST, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_unix_seconds(seconds).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp(seconds)));
        }
        assert_eq!(Timestamp::from_unix_seconds(LATEST + 1), Timestamp(LATEST));
        assert_eq!(Timestamp::from_system_time(UNIX_EPOCH - Duration::from_secs(1)), Timestamp(0));
        assert_eq!(Timestamp::from_system_time(UNIX_EPOCH + Duration::from_millis(1_999)), Timestamp(1));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2026-07-01",
            "2026-07-01T12:00:00",
            "2026-07-01T12:00:00+02:00",
            "2026-07-01 12:00:00Z",
            "2026-7-1T12:00:00Z",
            "2026-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-07-00T00:00:00Z",
            "2026-07-01T24:00:00Z",
            "2026-07-01T12:60:00Z",
            "1969-12-31T23:59:59Z",
            "0000-01-01T00:00:00Z",
            "99999999999999999999-01-01T00:00:00Z",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(NotATimestamp(text.to_owned())));
        }
    }

    #[test]
    fn json_is_read_in_every_form_of_rfc_3339() {
        for (text, seconds) in [
            ("2026-07-01T12:00:00Z", 1_782_907_200),
            ("2026-07-01T12:00:00.999999999Z", 1_782_907_200),
            ("2026-07-01T14:00:00+02:00", 1_782_907_200),
            ("2026-07-01T06:30:00.5-05:30", 1_782_907_200),
            ("1970-01-01T00:00:00-00:01", 60),
        ] {
            assert_eq!(Timestamp::from_rfc3339(text), Ok(Timestamp(seconds)), "{text}");
        }
        for text in [
            "2026-07-01T12:00:00",
            "2026-07-01T12:00:00.Z",
            "2026-07-01T12:00:00.5xZ",
            "2026-07-01T12:00:00+24:00",
            "2026-07-01T12:00:00+02:60",
            "2026-07-01T12:00:00+2:000",
            "1970-01-01T00:00:00+00:01",
            "\u{e9}:00",
            "",
        ] {
            assert_eq!(Timestamp::from_rfc3339(text), Err(NotATimestamp(text.to_owned())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 0..=LATEST) {
            let time = Timestamp(seconds);
            let json = serde_json::to_string(&time).unwrap();
            prop_assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9TZ:-]{0,24}") {
            if let Ok(time) = text.parse::<Timestamp>() {
                prop_assert_eq!(time.to_string(), text);
            }
        }
    }
}
