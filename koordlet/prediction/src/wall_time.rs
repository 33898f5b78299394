//! Times of the wall clock, as they stand in objects and checkpoints.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use koord_extension::timestamp::{NotATimestamp, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// From the beginning of the year 1, from which Go counts, to that of 1970.
const YEAR_ONE_TO_1970: i64 = 62_135_596_800_000;

/// The last millisecond of the year 9999: RFC 3339 writes years with four digits.
const LATEST: i64 = 253_402_300_799_999;

/// A time of the wall clock: milliseconds since 1970-01-01T00:00:00Z, from the year 1970 to 9999.
///
/// Its text is RFC 3339, which is read in every form and written in UTC to the second: no time that is
/// written needs to be more exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// From milliseconds since 1970-01-01T00:00:00Z, held within the years 1970 to 9999.
    pub const fn from_unix_millis(millis: i64) -> WallTime {
        WallTime(if millis < 0 {
            0
        } else if millis > LATEST {
            LATEST
        } else {
            millis
        })
    }

    /// From seconds since 1970-01-01T00:00:00Z, held within the years 1970 to 9999.
    pub const fn from_unix_seconds(seconds: i64) -> WallTime {
        WallTime::from_unix_millis(seconds.saturating_mul(1000))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// Milliseconds from `earlier` to this time; negative if it is later.
    pub const fn millis_since(self, earlier: WallTime) -> i64 {
        self.0 - earlier.0
    }

    /// To the second.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_unix_seconds(self.0.unsigned_abs() / 1000)
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
    pub const fn rounded(self, step: i64) -> WallTime {
        if step <= 0 {
            return self;
        }
        let over = (self.0 + YEAR_ONE_TO_1970) % step;
        let up = if over < step - over { 0 } else { step };
        WallTime::from_unix_millis((self.0 - over).saturating_add(up))
    }
}

impl From<SystemTime> for WallTime {
    fn from(time: SystemTime) -> WallTime {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        WallTime(0).plus(since)
    }
}

impl From<Timestamp> for WallTime {
    fn from(time: Timestamp) -> WallTime {
        WallTime::from_unix_seconds(i64::try_from(time.unix_seconds()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.timestamp().fmt(formatter)
    }
}

impl FromStr for WallTime {
    type Err = NotATimestamp;

    fn from_str(text: &str) -> Result<WallTime, NotATimestamp> {
        Timestamp::from_rfc3339(text).map(WallTime::from)
    }
}

impl Serialize for WallTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.timestamp().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WallTime, D::Error> {
        Timestamp::deserialize(deserializer).map(WallTime::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_form_and_written_in_one() {
        for (text, written) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
            ("2026-07-01T20:00:00+08:00", "2026-07-01T12:00:00Z"),
            ("2026-07-01T12:00:00.5Z", "2026-07-01T12:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ] {
            let json = format!("\"{text}\"");
            let time: WallTime = serde_json::from_str(&json).unwrap();
            assert_eq!((time.to_string().as_str(), text.parse()), (written, Ok(time)));
            assert_eq!(serde_json::to_string(&time).unwrap(), format!("\"{written}\""));
        }
        assert!("yesterday".parse::<WallTime>().is_err());
    }

    #[test]
    fn times_are_rounded_from_the_year_one() {
        const HOUR: i64 = 3_600_000;
        let round = |text: &str, step| text.parse::<WallTime>().unwrap().rounded(step).to_string();
        assert_eq!(round("2026-07-01T05:59:59Z", 12 * HOUR), "2026-07-01T00:00:00Z");
        assert_eq!(round("2026-07-01T06:00:00Z", 12 * HOUR), "2026-07-01T12:00:00Z");
        assert_eq!(round("2026-07-01T12:00:00Z", 12 * HOUR), "2026-07-01T12:00:00Z");
        // Weeks count from Monday, the first day of the year 1.
        assert_eq!(round("2026-07-01T12:00:00Z", 7 * 24 * HOUR), "2026-06-29T00:00:00Z");
        assert_eq!(WallTime(5).rounded(0), WallTime(5));
        assert_eq!(WallTime(LATEST).rounded(i64::MAX / 2), WallTime(0));
    }

    #[test]
    fn times_stay_in_their_range() {
        assert_eq!(WallTime::from_unix_millis(-1), WallTime(0));
        assert_eq!(WallTime::from_unix_seconds(i64::MAX), WallTime(LATEST));
        assert_eq!(WallTime(1).plus(Duration::MAX), WallTime(LATEST));
        assert_eq!(WallTime::from(SystemTime::UNIX_EPOCH + Duration::from_millis(1999)), WallTime(1999));
        assert_eq!(WallTime::from(SystemTime::UNIX_EPOCH - Duration::from_millis(1)), WallTime(0));
        assert_eq!(WallTime(5).millis_since(WallTime(7)), -2);
    }
}
