//! CPU shares of version 1 and CPU weights of version 2, and the two formulas between them.
//!
//! Kubernetes and the CRI speak of shares. On version 2 a runtime makes a weight of them, by a line in older runtimes
//! and by a curve in newer ones (runc from 1.3.2), which keeps 1024 shares at the kernel's default
//! weight of 100. Groups whose weights come from different formulas share the CPU in the wrong ratio, so a node uses one.

use std::fmt;

use koord_extension::units::MilliCpu;

/// Fewest shares the kernel takes.
pub const SHARES_MIN: i64 = 2;
/// Most shares the kernel takes.
pub const SHARES_MAX: i64 = 262_144;
/// Smallest weight the kernel takes.
pub const WEIGHT_MIN: i64 = 1;
/// Largest weight the kernel takes.
pub const WEIGHT_MAX: i64 = 10_000;
/// Period of a CPU quota that the kernel starts with, in microseconds.
pub const PERIOD_DEFAULT: i64 = 100_000;
/// Shortest quota the kernel takes, in microseconds.
pub const QUOTA_MIN: i64 = 1_000;

/// How shares become a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Conversion {
    /// From 2..262144 to 1..10000 along a line: 1024 shares are weight 39.
    #[default]
    Linear,
    /// Along a quadratic curve in the logarithms: 1024 shares are weight 100.
    Quadratic,
}

impl Conversion {
    /// `linear` or `quadratic`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Conversion::Linear => "linear",
            Conversion::Quadratic => "quadratic",
        }
    }

    /// The weight of `shares`, or nothing if the kernel takes no such shares (2..262144).
    pub fn weight(self, shares: i64) -> Option<i64> {
        if !(SHARES_MIN..=SHARES_MAX).contains(&shares) {
            return None;
        }
        Some(match self {
            Conversion::Linear => (1 + (shares - SHARES_MIN) * 9_999 / 262_142).clamp(WEIGHT_MIN, WEIGHT_MAX),
            Conversion::Quadratic => quadratic_weight(shares),
        })
    }

    /// Shares that have `weight`, or nothing if the kernel takes no such weight (1..10000). Several shares have the same
    /// weight; on the curve it is the most of them, so that weight 100 gives 1024.
    pub fn shares(self, weight: i64) -> Option<i64> {
        if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) {
            return None;
        }
        Some(match self {
            Conversion::Linear => {
                ((weight - WEIGHT_MIN) * 262_142 / 9_999 + SHARES_MIN).clamp(SHARES_MIN, SHARES_MAX)
            }
            Conversion::Quadratic => {
                // The curve rises, so the most shares with at most this weight are found by halving.
                let (mut low, mut high) = (SHARES_MIN, SHARES_MAX);
                while low < high {
                    let middle = low + (high - low + 1) / 2;
                    if quadratic_weight(middle) <= weight {
                        low = middle;
                    } else {
                        high = middle - 1;
                    }
                }
                low
            }
        })
    }

    /// The formula that a runtime used, seen from the weight of a group for which it was asked `shares`. Nothing if both
    /// formulas give this weight, or none does.
    pub fn of_observation(shares: i64, weight: i64) -> Option<Conversion> {
        let linear = Conversion::Linear.weight(shares)? == weight;
        let quadratic = Conversion::Quadratic.weight(shares)? == weight;
        match (linear, quadratic) {
            (true, false) => Some(Conversion::Linear),
            (false, true) => Some(Conversion::Quadratic),
            (true, true) | (false, false) => None,
        }
    }
}

impl fmt::Display for Conversion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "both numbers are small")]
fn quadratic_weight(shares: i64) -> i64 {
    if shares <= SHARES_MIN {
        return WEIGHT_MIN;
    }
    if shares >= SHARES_MAX {
        return WEIGHT_MAX;
    }
    let logarithm = (shares as f64).log2();
    let exponent = (logarithm * logarithm + 125.0 * logarithm) / 612.0 - 7.0 / 34.0;
    // The formula goes through whole numbers (1024 shares: 100); an error of the last bit must not lift them by one.
    let weight = (10_f64.powf(exponent) - 1e-9).ceil();
    (weight as i64).clamp(WEIGHT_MIN, WEIGHT_MAX)
}

/// Shares of an amount of CPU: 1024 for each CPU, at least 2 (Kubernetes' `MilliCPUToShares`).
pub fn shares_of(cpu: MilliCpu) -> i64 {
    if cpu.0 <= 0 {
        return SHARES_MIN;
    }
    (i128::from(cpu.0) * 1_024 / 1_000)
        .clamp(i128::from(SHARES_MIN), i128::from(SHARES_MAX))
        .try_into()
        .unwrap_or(SHARES_MAX)
}

/// Quota in microseconds of a limit of CPU in the default period: −1 (no limit) for none, at least 1000.
pub fn quota_of(cpu: MilliCpu) -> i64 {
    if cpu.0 <= 0 { crate::value::UNLIMITED } else { cpu.0.saturating_mul(100).max(QUOTA_MIN) }
}

/// A quota for a CPU that does `ratio` times the work of a normal one: divided, rounded up, at least 1000. No limit stays
/// none; a ratio of at most 1, or one that is no number, changes nothing.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a quota is below 2^53")]
pub fn scaled_quota(quota: i64, ratio: f64) -> i64 {
    if quota <= 0 || !ratio.is_finite() || ratio <= 1.0 {
        return quota;
    }
    ((quota as f64 / ratio).ceil() as i64).max(QUOTA_MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_of_an_amount_of_cpu() {
        let amounts = [0, 1, 10, 250, 1000, 4000, 256_000, 300_000];
        let expected = [2, 2, 10, 256, 1024, 4096, 262_144, 262_144];
        assert_eq!(amounts.map(|milli| shares_of(MilliCpu(milli))), expected);
        assert_eq!([-1, i64::MIN, i64::MAX].map(|milli| shares_of(MilliCpu(milli))), [2, 2, 262_144]);
    }

    #[test]
    fn weights_along_the_line() {
        let shares = [2, 10, 256, 1024, 2048, 65_536, 262_144];
        let weights = [1, 1, 10, 39, 79, 2500, 10_000].map(Some);
        assert_eq!(shares.map(|shares| Conversion::Linear.weight(shares)), weights);
    }

    #[test]
    fn weights_along_the_curve() {
        let shares = [2, 10, 256, 1024, 2048, 65_536, 262_144];
        let weights = [1, 4, 35, 100, 174, 3023, 10_000].map(Some);
        assert_eq!(shares.map(|shares| Conversion::Quadratic.weight(shares)), weights);
    }

    #[test]
    fn shares_of_a_weight() {
        let weights = [1, 2, 39, 100, 1000, 10_000];
        let expected = [2, 28, 998, 2597, 26_192, 262_144].map(Some);
        assert_eq!(weights.map(|weight| Conversion::Linear.shares(weight)), expected);
        assert_eq!(
            [1, 100, 10_000].map(|weight| Conversion::Quadratic.shares(weight)),
            [Some(2), Some(1024), Some(262_144)]
        );
    }

    #[test]
    fn nothing_outside_what_the_kernel_takes() {
        for conversion in [Conversion::Linear, Conversion::Quadratic] {
            assert_eq!([1, 262_145, -1].map(|shares| conversion.weight(shares)), [None; 3]);
            assert_eq!([0, 10_001, -1].map(|weight| conversion.shares(weight)), [None; 3]);
        }
    }

    #[test]
    fn quotas() {
        let limits = [-1, 0, 1, 9, 10, 11, 500, 1500];
        let expected = [-1, -1, 1000, 1000, 1000, 1100, 50_000, 150_000];
        assert_eq!(limits.map(|milli| quota_of(MilliCpu(milli))), expected);
    }

    #[test]
    fn scaled_quotas() {
        assert_eq!(scaled_quota(200_000, 1.2), 166_667);
        assert_eq!(scaled_quota(100_000, 1.1), 90_910);
        assert_eq!(scaled_quota(150_000, 1.5), 100_000);
        assert_eq!(scaled_quota(1000, 1.5), 1000);
        assert_eq!(scaled_quota(-1, 1.5), -1);
        assert_eq!([1.0, 0.5, f64::NAN].map(|ratio| scaled_quota(5000, ratio)), [5000; 3]);
    }

    #[test]
    fn the_formula_of_a_runtime_is_seen_where_they_differ() {
        assert_eq!(Conversion::of_observation(1024, 39), Some(Conversion::Linear));
        assert_eq!(Conversion::of_observation(1024, 100), Some(Conversion::Quadratic));
        assert_eq!(Conversion::of_observation(1024, 50), None);
        assert_eq!(Conversion::of_observation(2, 1), None);
        assert_eq!(Conversion::of_observation(262_144, 10_000), None);
        assert_eq!(Conversion::of_observation(1, 1), None);
    }

    proptest! {
        #[test]
        fn a_weight_survives_shares(weight in WEIGHT_MIN..=WEIGHT_MAX) {
            let shares = Conversion::Linear.shares(weight).unwrap();
            let again = Conversion::Linear.weight(shares).unwrap();
            // Both directions round down, so the line loses at most one.
            prop_assert!((weight - 1..=weight).contains(&again));
        }

        #[test]
        fn a_weight_of_shares_has_shares_of_that_weight(shares in SHARES_MIN..=SHARES_MAX) {
            let weight = Conversion::Quadratic.weight(shares).unwrap();
            let most = Conversion::Quadratic.shares(weight).unwrap();
            prop_assert!(most >= shares);
            prop_assert_eq!(Conversion::Quadratic.weight(most), Some(weight));
        }

        #[test]
        fn more_shares_never_weigh_less(low in SHARES_MIN..SHARES_MAX) {
            for conversion in [Conversion::Linear, Conversion::Quadratic] {
                prop_assert!(conversion.weight(low) <= conversion.weight(low + 1));
            }
        }
    }
}
