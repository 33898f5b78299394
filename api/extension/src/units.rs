//! Numbers that carry their unit in the type.
//!
//! All are signed 64-bit, as in Kubernetes: a negative value often means "unlimited" or "not set", which the
//! user of the number decides.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl $name {
            /// Nothing.
            pub const ZERO: $name = $name(0);

            /// The bare number, in the unit of the type.
            pub const fn get(self) -> i64 {
                self.0
            }

            /// The sum, or `None` on overflow.
            pub const fn checked_add(self, other: $name) -> Option<$name> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Some($name(sum)),
                    None => None,
                }
            }

            /// The difference, or `None` on overflow.
            pub const fn checked_sub(self, other: $name) -> Option<$name> {
                match self.0.checked_sub(other.0) {
                    Some(difference) => Some($name(difference)),
                    None => None,
                }
            }

            /// The sum, held at the ends of the range.
            pub const fn saturating_add(self, other: $name) -> $name {
                $name(self.0.saturating_add(other.0))
            }

            /// The difference, held at the ends of the range.
            pub const fn saturating_sub(self, other: $name) -> $name {
                $name(self.0.saturating_sub(other.0))
            }

            /// `self` x `share`, truncated toward zero and held at the ends of the range.
            pub const fn percent(self, share: Percent) -> $name {
                $name(scale(self.0, share.0, 100))
            }
        }

        impl std::iter::Sum for $name {
            /// Held at the ends of the range.
            fn sum<I: Iterator<Item = $name>>(numbers: I) -> $name {
                numbers.fold($name::ZERO, $name::saturating_add)
            }
        }
    };
}

unit! {
    /// Thousandths of a CPU.
    MilliCpu
}
unit! {
    /// Bytes.
    Bytes
}
unit! {
    /// Microseconds.
    Micros
}
unit! {
    /// Hundredths of a whole; may exceed 100.
    Percent
}

/// `value` x `numerator` / `denominator`, truncated toward zero, held at the ends of the range.
///
/// A denominator of zero gives zero: there is nothing to share.
pub const fn scale(value: i64, numerator: i64, denominator: i64) -> i64 {
    if denominator == 0 {
        return 0;
    }
    let exact = value as i128 * numerator as i128 / denominator as i128;
    if exact > i64::MAX as i128 {
        i64::MAX
    } else if exact < i64::MIN as i128 {
        i64::MIN
    } else {
        #[allow(clippy::cast_possible_truncation, reason = "both ends were compared above")]
        let value = exact as i64;
        value
    }
}

impl MilliCpu {
    /// So many whole CPUs, held at the end of the range.
    pub const fn from_cpus(cpus: i64) -> MilliCpu {
        MilliCpu(cpus.saturating_mul(1000))
    }

    /// Whole CPUs, upward.
    pub const fn cpus_upward(self) -> i64 {
        self.0 / 1000 + if self.0 % 1000 > 0 { 1 } else { 0 }
    }
}

impl fmt::Display for MilliCpu {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}m", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.0)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} us", self.0)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} %", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_truncated_toward_zero() {
        assert_eq!(Bytes(999).percent(Percent(50)), Bytes(499));
        assert_eq!(Bytes(-999).percent(Percent(50)), Bytes(-499));
        assert_eq!(MilliCpu(1500).percent(Percent(130)), MilliCpu(1950));
        assert_eq!(scale(7, 3, 0), 0);
    }

    #[test]
    fn nothing_overflows() {
        assert_eq!(Bytes(i64::MAX).percent(Percent(200)), Bytes(i64::MAX));
        assert_eq!(Bytes(i64::MIN).percent(Percent(200)), Bytes(i64::MIN));
        assert_eq!(Bytes(i64::MAX).percent(Percent(100)), Bytes(i64::MAX));
        assert_eq!(Micros(i64::MAX).checked_add(Micros(1)), None);
        assert_eq!(Micros(i64::MIN).checked_sub(Micros(1)), None);
        assert_eq!([Micros(i64::MAX), Micros(1)].into_iter().sum::<Micros>(), Micros(i64::MAX));
    }

    #[test]
    fn whole_cpus_are_counted_upward() {
        assert_eq!(MilliCpu(3500).cpus_upward(), 4);
        assert_eq!(MilliCpu(4000).cpus_upward(), 4);
        assert_eq!(MilliCpu(1).cpus_upward(), 1);
        assert_eq!(MilliCpu(0).cpus_upward(), 0);
        assert_eq!(MilliCpu(-1500).cpus_upward(), -1);
        assert_eq!(MilliCpu::from_cpus(2), MilliCpu(2000));
    }

    #[test]
    fn texts_name_the_unit() {
        assert_eq!(MilliCpu(500).to_string(), "500m");
        assert_eq!(Bytes(1).to_string(), "1 bytes");
        assert_eq!(Micros(100_000).to_string(), "100000 us");
        assert_eq!(Percent(65).to_string(), "65 %");
    }
}
