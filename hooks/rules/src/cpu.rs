//! Shares and quota from thousandths of a CPU, as the kubelet computes them.

use koord_extension::units::{Micros, MilliCpu, scale};

/// Least shares that the kernel takes (v1).
pub(crate) const MIN_SHARES: i64 = 2;
/// Most shares that the kernel takes (v1).
pub(crate) const MAX_SHARES: i64 = 262_144;
/// Least quota that the kernel takes, microseconds.
pub(crate) const MIN_QUOTA: i64 = 1_000;
/// No limit.
pub(crate) const UNLIMITED: i64 = -1;

/// `cpu.shares` of a request: 1024 for a CPU, 2 to 262144.
pub fn shares(request: MilliCpu) -> i64 {
    if request.0 <= 0 { MIN_SHARES } else { scale(request.0, 1024, 1000).clamp(MIN_SHARES, MAX_SHARES) }
}

/// `cpu.cfs_quota_us` of a limit: a period for a CPU, at least 1 ms; -1 without a limit.
pub fn quota(limit: MilliCpu, period: Micros) -> i64 {
    if limit.0 <= 0 { UNLIMITED } else { scale(limit.0, period.0, 1000).max(MIN_QUOTA) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{DEFAULT_PERIOD, NormalizationRatio};

    #[test]
    fn shares_of_requests() {
        let vector = [
            (-5, 2),
            (0, 2),
            (1, 2),
            (2, 2),
            (3, 3),
            (10, 10),
            (250, 256),
            (1000, 1024),
            (4000, 4096),
            (255_999, 262_142),
            (256_000, 262_144),
            (300_000, 262_144),
            (i64::MAX, 262_144),
        ];
        for (milli, expected) in vector {
            assert_eq!(shares(MilliCpu(milli)), expected, "{milli}");
        }
    }

    #[test]
    fn quotas_of_limits() {
        let vector =
            [(-1, -1), (0, -1), (1, 1000), (9, 1000), (10, 1000), (11, 1100), (500, 50_000), (1500, 150_000)];
        for (milli, expected) in vector {
            assert_eq!(quota(MilliCpu(milli), DEFAULT_PERIOD), expected, "{milli}");
        }
        assert_eq!(quota(MilliCpu(1500), Micros(50_000)), 75_000);
        assert_eq!(quota(MilliCpu(1), Micros(1_000_000)), 1000);
    }

    #[test]
    fn quotas_on_faster_cpus() {
        let ratio = |ratio: f64| NormalizationRatio::new(ratio).unwrap();
        assert_eq!(ratio(1.2).divide(200_000), 166_667);
        assert_eq!(ratio(1.1).divide(100_000), 90_910);
        assert_eq!(ratio(1.5).divide(150_000), 100_000);
        // The kernel refuses the 667 that the division gives.
        assert_eq!(ratio(1.5).divide(1_000), 1_000);
        // In floating point 110000 / 1.1 is not whole.
        assert_eq!(ratio(1.1).divide(110_000), 100_000);
        assert_eq!(ratio(1.2).divide(-1), -1);
        assert_eq!(ratio(1.0).divide(200_000), 200_000);
        assert_eq!(ratio(0.8).divide(200_000), 200_000);
        assert_eq!(ratio(1.01).divide(i64::MAX), 9_132_051_521_638_391_889);
    }

    #[test]
    fn ratios() {
        assert_eq!(NormalizationRatio::new(0.0), None);
        assert_eq!(NormalizationRatio::new(-1.0), None);
        assert_eq!(NormalizationRatio::new(f64::NAN), None);
        assert_eq!(NormalizationRatio::new(f64::INFINITY), None);
        assert_eq!(NormalizationRatio::new(1.2).unwrap().to_string(), "1.20");
        assert_eq!(NormalizationRatio::new(1.125).unwrap().to_string(), "1.13");
    }
}
