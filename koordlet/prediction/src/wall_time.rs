//! Times of the wall clock, as they stand in objects and checkpoints.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MILLIS_PER_DAY: i64 = 86_400_000;

/// The first and the last millisecond that RFC 3339 can write: of the year 1 (Go's zero time) and of 9999.
const EARLIEST: i64 = -62_135_596_800_000;
const LATEST: i64 = 253_402_300_799_999;

/// A time of the wall clock: milliseconds since 1970-01-01T00:00:00Z, from the year 1 to 9999.
///
/// In JSON it is RFC 3339. Any offset from UTC and any number of digits of a second are read; UTC is written,
/// with as many digits of a second as are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

/// A text that is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time of RFC 3339 such as 2026-07-01T12:00:00Z")]
pub struct NotATime(pub String);

impl WallTime {
    /// The zero time of Go, with which its programs write "never".
    pub const GO_ZERO: WallTime = WallTime(EARLIEST);

    /// From milliseconds since 1970-01-01T00:00:00Z, held within the years 1 to 9999.
    pub fn from_unix_millis(millis: i64) -> WallTime {
        WallTime(millis.clamp(EARLIEST, LATEST))
    }

    /// From seconds since 1970-01-01T00:00:00Z, held within the years 1 to 9999.
    pub fn from_unix_seconds(seconds: i64) -> WallTime {
        WallTime::from_unix_millis(seconds.saturating_mul(1000))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// Seconds since 1970-01-01T00:00:00Z, downward.
    pub const fn unix_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Milliseconds from `earlier` to this time; negative if it is later.
    pub const fn millis_since(self, earlier: WallTime) -> i64 {
        self.0 - earlier.0
    }

    /// So much later, held at the end of the range.
    #[must_use]
    pub fn plus(self, duration: Duration) -> WallTime {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        WallTime::from_unix_millis(self.0.saturating_add(millis))
    }

    /// The nearest multiple of `step` milliseconds since the beginning of the year 1, as Go rounds times;
    /// of two equally near the later. A step of zero or less changes nothing.
    #[must_use]
    pub fn rounded(self, step: i64) -> WallTime {
        if step <= 0 {
            return self;
        }
        let since = self.0 - EARLIEST;
        let over = since % step;
        let down = since - over;
        WallTime::from_unix_millis(EARLIEST + if over < step - over { down } else { down + step })
    }
}

impl From<SystemTime> for WallTime {
    fn from(time: SystemTime) -> WallTime {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        WallTime::from_unix_millis(match time.duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        })
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar. Years are reckoned from March, so that the day
/// that comes only every four years is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let cycle = year.div_euclid(400);
    let year = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    cycle * 146_097 + 365 * year + year / 4 - year / 100 + day_of_year - 719_468
}

fn date(days_since_1970: i64) -> (i64, i64, i64) {
    let days = days_since_1970 + 719_468;
    let cycle = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + carry, month, day_of_month)
}

impl fmt::Display for WallTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0.div_euclid(MILLIS_PER_DAY));
        let of_day = self.0.rem_euclid(MILLIS_PER_DAY);
        let (seconds, millis) = (of_day / 1000, of_day % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if millis != 0 {
            let digits = format!("{millis:03}");
            write!(formatter, ".{}", digits.trim_end_matches('0'))?;
        }
        formatter.write_str("Z")
    }
}

impl FromStr for WallTime {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<WallTime, NotATime> {
        parse(text).ok_or_else(|| NotATime(text.chars().take(80).collect()))
    }
}

/// The number of a text of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn parse(text: &str) -> Option<WallTime> {
    let part = |from: usize, to: usize| text.get(from..to);
    let number = |from: usize, to: usize| digits(part(from, to)?, to - from);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let separators = (part(4, 5)?, part(7, 8)?, part(10, 11)?, part(13, 14)?, part(16, 17)?);
    if separators != ("-", "-", "T", ":", ":") || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_since_1970(year, month, day);
    // A day that a month does not have comes back as another one.
    if date(days) != (year, month, day) {
        return None;
    }
    let rest = part(19, text.len())?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?),
        None => ("0", rest),
    };
    let millis = digits(&format!("{fraction:0<3}").get(..3)?.to_owned(), 3)?;
    if fraction.is_empty() {
        return None;
    }
    let offset_minutes = match zone {
        "Z" => 0,
        _ => {
            let sign = match zone.get(..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            sign * (hours * 60 + minutes)
        }
    };
    let seconds = (hour * 60 + minute - offset_minutes) * 60 + second;
    let unix = days * MILLIS_PER_DAY + seconds * 1000 + millis;
    (EARLIEST..=LATEST).contains(&unix).then_some(WallTime(unix))
}

impl Serialize for WallTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WallTime, D::Error> {
        std::borrow::Cow::<'_, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times_are_read_and_written() {
        // Worked out with date(1).
        for (millis, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_782_907_200_250, "2026-07-01T12:00:00.25Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (EARLIEST, "0001-01-01T00:00:00Z"),
            (LATEST, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(text.parse(), Ok(WallTime(millis)));
            assert_eq!(WallTime(millis).to_string(), text);
        }
    }

    #[test]
    fn offsets_and_fractions_are_read() {
        for (text, utc) in [
            ("2026-07-01T20:00:00+08:00", "2026-07-01T12:00:00Z"),
            ("2026-06-30T23:30:00-05:30", "2026-07-01T05:00:00Z"),
            ("2026-07-01T12:00:00.123456789Z", "2026-07-01T12:00:00.123Z"),
            ("2026-07-01T12:00:00.5Z", "2026-07-01T12:00:00.5Z"),
        ] {
            assert_eq!(text.parse::<WallTime>().unwrap().to_string(), utc);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2026-07-01",
            "2026-07-01T12:00:00",
            "2026-07-01 12:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-07-01T24:00:00Z",
            "2026-07-01T12:00:00.Z",
            "2026-07-01T12:00:00+8:00",
            "2026-07-01T12:00:00x08:00",
            "0000-12-31T00:00:00Z",
            "2026-07-01T12:00:00Z ",
            "2026-07-\u{660}1T12:00:00Z",
        ] {
            assert_eq!(text.parse::<WallTime>(), Err(NotATime(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn times_are_rounded_from_the_year_one() {
        const TWELVE_HOURS: i64 = 43_200_000;
        let round = |text: &str| text.parse::<WallTime>().unwrap().rounded(TWELVE_HOURS).to_string();
        assert_eq!(round("2026-07-01T05:59:59.999Z"), "2026-07-01T00:00:00Z");
        assert_eq!(round("2026-07-01T06:00:00Z"), "2026-07-01T12:00:00Z");
        assert_eq!(round("2026-07-01T12:00:00Z"), "2026-07-01T12:00:00Z");
        // Weeks count from Monday, the first day of the year 1.
        let week = "2026-07-01T12:00:00Z".parse::<WallTime>().unwrap().rounded(7 * MILLIS_PER_DAY);
        assert_eq!(week.to_string(), "2026-06-29T00:00:00Z");
        assert_eq!(WallTime(5).rounded(0), WallTime(5));
    }

    #[test]
    fn system_times_before_1970_are_negative() {
        assert_eq!(WallTime::from(UNIX_EPOCH + Duration::from_millis(1999)).unix_seconds(), 1);
        assert_eq!(WallTime::from(UNIX_EPOCH - Duration::from_millis(1)), WallTime(-1));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(millis in EARLIEST..=LATEST) {
            prop_assert_eq!(WallTime(millis).to_string().parse::<WallTime>().unwrap(), WallTime(millis));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9TZ:.+-]{0,32}") {
            drop(text.parse::<WallTime>());
        }
    }
}
