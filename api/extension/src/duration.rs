//! Durations in Go's text form, the one operators of Kubernetes know: `300ms`, `1.5h`, `2h45m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration that JSON holds in Go's text form: `"5m0s"`. Not negative, at most 292 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(pub Duration);

impl GoDuration {
    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> GoDuration {
        GoDuration(Duration::from_secs(seconds))
    }
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> GoDuration {
        GoDuration(duration)
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format_go_duration(self.0))
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<GoDuration, ParseDurationError> {
        parse_go_duration(text).map(GoDuration)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| serde::de::Error::custom(format!("duration {text:?}: {error}")))
    }
}

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// The text is empty or only a sign.
    #[error("empty duration; expected a number with a unit, such as 2s, 100ms or 1m30s")]
    Empty,
    /// The text starts with a minus sign.
    #[error("negative duration")]
    Negative,
    /// A number was expected.
    #[error("expected a number at {0:?}")]
    NoNumber(String),
    /// A number without a unit. Only `0` may stand alone.
    #[error("missing unit after {0:?}; accepted units: ns, us, ms, s, m, h")]
    MissingUnit(String),
    /// An unknown unit.
    #[error("unknown unit {0:?}; accepted units: ns, us, ms, s, m, h")]
    UnknownUnit(String),
    /// The value does not fit into Go's 63-bit count of nanoseconds (about 292 years).
    #[error("duration is too long; the largest is 2562047h47m16.854775807s")]
    TooLong,
}

/// The largest duration Go can hold, in nanoseconds.
const LARGEST_NANOSECONDS: u128 = i64::MAX as u128;

/// Parses a duration as Go's `time.ParseDuration` does, without its negative values.
///
/// A fraction finer than a nanosecond is cut off.
pub fn parse_go_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let mut rest = text;
    if let Some(stripped) = rest.strip_prefix('-') {
        return Err(if stripped.is_empty() {
            ParseDurationError::Empty
        } else {
            ParseDurationError::Negative
        });
    }
    rest = rest.strip_prefix('+').unwrap_or(rest);
    if rest.is_empty() {
        return Err(ParseDurationError::Empty);
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |byte| byte.is_ascii_digit() || byte == b'.');
        let (unit, next) = split_while(after, |byte| !byte.is_ascii_digit() && byte != b'.');
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) => (whole, fraction),
            None => (number, ""),
        };
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(ParseDurationError::NoNumber(rest.to_owned()));
        }
        let scale = unit_in_nanoseconds(unit).ok_or_else(|| {
            if unit.is_empty() {
                ParseDurationError::MissingUnit(number.to_owned())
            } else {
                ParseDurationError::UnknownUnit(unit.to_owned())
            }
        })?;
        let part = digits(whole)
            .and_then(|value| value.checked_mul(scale))
            .ok_or(ParseDurationError::TooLong)?
            .saturating_add(fraction_of(fraction, scale));
        nanoseconds = nanoseconds.saturating_add(part);
        if nanoseconds > LARGEST_NANOSECONDS {
            return Err(ParseDurationError::TooLong);
        }
        rest = next;
    }
    let nanoseconds = u64::try_from(nanoseconds).map_err(|_| ParseDurationError::TooLong)?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// Prints a duration as Go does: `1m30s`, `1.5s`, `100ms`, `0s`.
pub fn format_go_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    if nanoseconds < 1_000 {
        return format!("{nanoseconds}ns");
    }
    if nanoseconds < 1_000_000 {
        return decimal(nanoseconds, 1_000) + "µs";
    }
    if nanoseconds < 1_000_000_000 {
        return decimal(nanoseconds, 1_000_000) + "ms";
    }
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let tail = decimal(nanoseconds % 60_000_000_000, 1_000_000_000) + "s";
    if hours > 0 {
        format!("{hours}h{minutes}m{tail}")
    } else if minutes > 0 {
        format!("{minutes}m{tail}")
    } else {
        tail
    }
}

fn decimal(value: u128, scale: u128) -> String {
    let (whole, fraction) = (value / scale, value % scale);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = scale.ilog10() as usize;
    let digits = format!("{fraction:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

fn split_while(text: &str, wanted: impl Fn(u8) -> bool) -> (&str, &str) {
    // Only ASCII bytes end a run, so the cut is always at a character border.
    let end = text.bytes().position(|byte| !wanted(byte)).unwrap_or(text.len());
    text.split_at(end)
}

fn unit_in_nanoseconds(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // U+00B5 micro sign and U+03BC Greek mu, as in Go.
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn digits(text: &str) -> Option<u128> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

fn fraction_of(digits: &str, scale: u128) -> u128 {
    // Fifteen digits resolve a nanosecond of an hour; what follows cannot change the result.
    let digits = &digits[..digits.len().min(15)];
    if digits.is_empty() {
        return 0;
    }
    let exponent = u32::try_from(digits.len()).unwrap_or(15);
    digits.parse::<u128>().map_or(0, |value| value * scale / 10u128.pow(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("2s", 2_000_000_000),
            ("100ms", 100_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("+5us", 5_000),
            ("7µs", 7_000),
            ("7μs", 7_000),
            ("1ns", 1),
            ("1.9ns", 1),
            ("0s", 0),
            ("1h2m3.004s", 3_723_004_000_000),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(parse_go_duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        use ParseDurationError as E;
        for (text, error) in [
            ("", E::Empty),
            ("-", E::Empty),
            ("+", E::Empty),
            ("-1s", E::Negative),
            ("3", E::MissingUnit("3".into())),
            ("1s2", E::MissingUnit("2".into())),
            ("s", E::NoNumber("s".into())),
            (".s", E::NoNumber(".s".into())),
            ("1.2.3s", E::NoNumber("1.2.3s".into())),
            ("1d", E::UnknownUnit("d".into())),
            ("1 s", E::UnknownUnit(" s".into())),
            ("9223372036854775808ns", E::TooLong),
            ("99999999999999999999999999999999999999999h", E::TooLong),
        ] {
            assert_eq!(parse_go_duration(text), Err(error), "{text}");
        }
    }

    #[test]
    fn prints_as_go_prints() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_000, "1µs"),
            (1_100, "1.1µs"),
            (100_000_000, "100ms"),
            (1_000_000_000, "1s"),
            (90_000_000_000, "1m30s"),
            (3_600_000_000_000, "1h0m0s"),
            (3_723_004_000_000, "1h2m3.004s"),
        ] {
            assert_eq!(format_go_duration(Duration::from_nanos(nanoseconds)), text);
        }
    }

    #[test]
    fn json_holds_the_text() {
        let duration: GoDuration = serde_json::from_str(r#""5m""#).unwrap();
        assert_eq!(duration, GoDuration::from_secs(300));
        assert_eq!(serde_json::to_string(&duration).unwrap(), r#""5m0s""#);
        let error = serde_json::from_str::<GoDuration>(r#""5 min""#).unwrap_err();
        assert!(error.to_string().starts_with("duration \"5 min\": unknown unit \" min\""), "{error}");
        assert!(serde_json::from_str::<GoDuration>("300").is_err());
    }

    proptest! {
        #[test]
        fn printing_then_parsing_gives_the_same(nanoseconds in 0..i64::MAX as u64) {
            let duration = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse_go_duration(&format_go_duration(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[-+0-9.hmsuµn ]{0,40}|.{0,20}") {
            let _ = parse_go_duration(&text);
        }
    }
}
