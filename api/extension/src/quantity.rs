//! Kubernetes quantities: exact decimal numbers with the text forms of the API.
//!
//! Source of the rules: `resource.Quantity` of Kubernetes (unchanged in all releases to 1.36). A number is
//! held in billionths; finer ones are rounded away from zero; magnitudes beyond 2^63-1 are held there. No
//! floating point is involved.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{Bytes, MilliCpu};

const NANOS: i128 = 1_000_000_000;

/// The largest magnitude, in billionths.
const MOST: i128 = i64::MAX as i128 * NANOS;

/// Which suffixes a quantity is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Powers of a thousand: `n u m k M G T P E`.
    #[default]
    DecimalSi,
    /// Powers of 1024: `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// Powers of ten: `e3`.
    DecimalExponent,
}

/// An exact number and the way it is written.
///
/// Comparison, equality and hash look at the number only: `1000m` equals `1`.
#[derive(Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// A list of resources: name to quantity, in lexical order.
pub type ResourceList = std::collections::BTreeMap<String, Quantity>;

/// A text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantity \"{text}\" is {problem}; wanted a decimal number with one of the suffixes n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3"
)]
pub struct QuantityError {
    /// The text, cut to a printable length.
    pub text: String,
    /// What is wrong with it: "empty", "not a number", "of an unknown suffix".
    pub problem: &'static str,
}

impl Quantity {
    /// Zero, written `0`.
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    /// So many whole units.
    pub const fn from_value(value: i64, format: Format) -> Quantity {
        Quantity { nanos: value as i128 * NANOS, format }
    }

    /// So many thousandths.
    pub const fn from_milli(milli: i64, format: Format) -> Quantity {
        Quantity { nanos: milli as i128 * (NANOS / 1000), format }
    }

    /// So many billionths, held at a magnitude of 2^63-1 whole units.
    pub const fn from_nanos(nanos: i128, format: Format) -> Quantity {
        let nanos = if nanos > MOST {
            MOST
        } else if nanos < -MOST {
            -MOST
        } else {
            nanos
        };
        Quantity { nanos, format }
    }

    /// Reads a quantity.
    ///
    /// Stricter than Kubernetes in one thing: a text without any digit, as `.` or `m`, is refused and is
    /// not zero.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        parse(text).map_err(|problem| QuantityError { text: text.chars().take(80).collect(), problem })
    }

    /// Billionths, exact.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// Which suffixes it is written with.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The same number, written otherwise.
    pub const fn with_format(self, format: Format) -> Quantity {
        Quantity { format, ..self }
    }

    /// Whole units, a fraction rounded away from zero: 1500u is 1.
    pub fn value(self) -> i64 {
        away_from_zero(self.nanos, NANOS)
    }

    /// Thousandths, a fraction of one rounded away from zero: 1500u is 2. Held at the ends of the range.
    pub fn milli(self) -> i64 {
        away_from_zero(self.nanos, NANOS / 1000)
    }

    /// The quantity of CPU, upward to a thousandth.
    pub fn milli_cpu(self) -> MilliCpu {
        MilliCpu(self.milli())
    }

    /// The quantity of memory, upward to a byte.
    pub fn bytes(self) -> Bytes {
        Bytes(self.value())
    }

    /// Whether it is zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is above zero.
    pub const fn is_positive(self) -> bool {
        self.nanos > 0
    }

    /// The sum, held at the ends of the range. The format is this quantity's, unless it is zero.
    #[must_use]
    pub const fn plus(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity::from_nanos(self.nanos + other.nanos, format)
    }

    /// The difference, held at the ends of the range. The format is this quantity's, unless it is zero.
    #[must_use]
    pub const fn minus(self, other: Quantity) -> Quantity {
        self.plus(Quantity { nanos: -other.nanos, ..other })
    }
}

fn away_from_zero(nanos: i128, unit: i128) -> i64 {
    let whole = nanos / unit + if nanos % unit == 0 { 0 } else { nanos.signum() };
    i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
}

fn parse(text: &str) -> Result<Quantity, &'static str> {
    const NUMBER: &str = "not a number";
    const SUFFIX: &str = "of an unknown suffix";
    if text.is_empty() {
        return Err("empty");
    }
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
    let (digits, suffix) = rest.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
        return Err(NUMBER);
    }
    let (multiplier, power, format) = scale_of(suffix).ok_or(SUFFIX)?;
    let magnitude = magnitude(whole, fraction, multiplier, power);
    // A fraction below one is a fraction in binary notation as well, which reads as decimals only.
    let format = if format == Format::BinarySi && 0 < magnitude && magnitude < NANOS {
        Format::DecimalSi
    } else {
        format
    };
    Ok(Quantity::from_nanos(if negative { -magnitude } else { magnitude }, format))
}

/// What a suffix stands for: a factor, a power of ten, and the format.
fn scale_of(suffix: &str) -> Option<(i128, i32, Format)> {
    let decimal = |power| Some((1, power, Format::DecimalSi));
    let binary = |shift: u32| Some((1 << shift, 0, Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Some((1, exponent.parse().ok()?, Format::DecimalExponent))
        }
    }
}

/// `whole.fraction` x `multiplier` x 10^`power`, in billionths, upward, held at the maximum.
fn magnitude(whole: &str, fraction: &str, multiplier: i128, power: i32) -> i128 {
    let digits = whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0'));
    let point = length(whole) + 9 + i64::from(power);
    if multiplier == 1 {
        return shifted(digits, point);
    }
    // Multiplication by hand, from the last digit on, so that no digit is lost however many there are.
    let mut product: Vec<i128> = Vec::with_capacity(whole.len() + fraction.len() + 20);
    let mut carry = 0;
    for digit in digits.rev() {
        let sum = digit * multiplier + carry;
        product.push(sum % 10);
        carry = sum / 10;
    }
    let mut point = point;
    while carry > 0 {
        product.push(carry % 10);
        carry /= 10;
        point += 1;
    }
    shifted(product.into_iter().rev(), point)
}

fn length(digits: &str) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}

/// The number of the first `point` digits, as many zeros added as are missing, plus one if a digit after
/// them is not zero; held at the maximum.
fn shifted(digits: impl Iterator<Item = i128>, point: i64) -> i128 {
    let mut number: i128 = 0;
    let mut left = point;
    for digit in digits {
        if left > 0 {
            number = number * 10 + digit;
            if number >= MOST {
                return MOST;
            }
        } else if digit != 0 {
            return number + 1;
        }
        left -= 1;
    }
    if number == 0 {
        return 0;
    }
    while left > 0 {
        number *= 10;
        if number >= MOST {
            return MOST;
        }
        left -= 1;
    }
    number
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        Quantity::parse(text)
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Quantity({self})")
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix that leaves a whole number; a number in binary notation below
    /// 1024, or with a fraction, in decimal notation.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return formatter.write_str("0");
        }
        let whole = self.nanos / NANOS;
        if self.format == Format::BinarySi && self.nanos % NANOS == 0 && whole.abs() >= 1024 {
            let mut number = whole;
            let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
            let mut suffix = suffixes.next().unwrap_or_default();
            while number % 1024 == 0 {
                let Some(next) = suffixes.next() else { break };
                number /= 1024;
                suffix = next;
            }
            return write!(formatter, "{number}{suffix}");
        }
        let mut number = self.nanos;
        let mut power = -9;
        while number % 1000 == 0 {
            number /= 1000;
            power += 3;
        }
        match (self.format, power) {
            (Format::DecimalExponent, 0) => write!(formatter, "{number}"),
            (Format::DecimalExponent, power) => write!(formatter, "{number}e{power}"),
            (_, power) => {
                let suffix = match power {
                    -9 => "n",
                    -6 => "u",
                    -3 => "m",
                    0 => "",
                    3 => "k",
                    6 => "M",
                    9 => "G",
                    12 => "T",
                    15 => "P",
                    _ => "E",
                };
                write!(formatter, "{number}{suffix}")
            }
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// A string or a bare number.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a quantity such as \"500m\", \"1Gi\" or 2")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                // The API server's decoder trims as well.
                Quantity::parse(text.trim()).map_err(E::custom)
            }

            fn visit_i64<E>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_value(value, Format::DecimalSi))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity::from_nanos(i128::from(value) * NANOS, Format::DecimalSi))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                // The shortest text that reads back as the same number is the one that was written, up to
                // the fifteen digits any writer of JSON keeps.
                Quantity::parse(&value.to_string()).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests;
