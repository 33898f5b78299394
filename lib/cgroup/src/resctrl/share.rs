//! Percents of a cache and of memory bandwidth as the values of schemata.

use super::info::{BandwidthInfo, BandwidthUnit, CacheInfo};

/// Why a range of percents has no mask.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// The range is not within 0..100, or empty.
    #[error("cache range {start}..{end} percent; accepted are 0 <= start < end <= 100")]
    Range {
        /// Start in percent.
        start: i64,
        /// End in percent.
        end: i64,
    },
    /// The full mask has a gap or no bit at all.
    #[error("cbm_mask {mask:x} is not made of the lowest bits without a gap")]
    FullMask {
        /// The full mask.
        mask: u64,
    },
    /// The hardware wants more bits in a mask than there are.
    #[error("min_cbm_bits is {least}, and cbm_mask {mask:x} has fewer bits")]
    TooFewBits {
        /// Least number of bits.
        least: u32,
        /// The full mask.
        mask: u64,
    },
}

/// The mask of the percents `start..end` of a cache: with w bits, those from ⌈w·start/100⌉ up to, not including,
/// ⌈w·end/100⌉. A mask below the hardware's least number of bits is widened, downward from its upper end as far as
/// there are bits, then upward.
pub fn cache_mask(info: &CacheInfo, start: i64, end: i64) -> Result<u64, MaskError> {
    let mask = info.cbm_mask;
    let width = mask.trailing_ones();
    if mask == 0 || mask.count_ones() != width {
        return Err(MaskError::FullMask { mask });
    }
    let (Ok(low), Ok(high)) = (u32::try_from(start), u32::try_from(end)) else {
        return Err(MaskError::Range { start, end });
    };
    if low >= high || high > 100 {
        return Err(MaskError::Range { start, end });
    }
    let least = info.min_cbm_bits.max(1);
    if least > width {
        return Err(MaskError::TooFewBits { least, mask });
    }
    let (low, high) = ((width * low).div_ceil(100), (width * high).div_ceil(100));
    let low = low.min(high.saturating_sub(least));
    let high = high.max(low + least);
    Ok(lowest(high) & !lowest(low))
}

/// A mask of the lowest bits.
fn lowest(bits: u32) -> u64 {
    1_u64.checked_shl(bits).map_or(u64::MAX, |bit| bit - 1)
}

/// Why a percent of memory bandwidth has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthError {
    /// Not within 1..100.
    #[error("memory bandwidth of {0} percent; accepted are 1 to 100")]
    Percent(i64),
    /// It is not known in which unit this vendor's processors count.
    #[error("the unit of memory bandwidth of this processor is not known")]
    UnknownUnit,
    /// The root group has more than 100 percent: the file system counts in MB/s (mount option `mba_MBps`).
    #[error("the root group's memory bandwidth is {root}, so values are not percents")]
    NotPercent {
        /// The root group's value.
        root: u64,
    },
}

/// The value of a percent of memory bandwidth. 100 percent is the root group's value, which is no limit.
///
/// Where values are percents (Intel), they are rounded up to the granularity, and up to the hardware's least value.
/// Where they are absolute (AMD, in eighths of a GB/s), the percent is of the full scale, cut off.
pub fn bandwidth(info: &BandwidthInfo, root: u64, percent: i64) -> Result<u64, BandwidthError> {
    let share = match u64::try_from(percent) {
        Ok(share @ 1..=100) => share,
        _ => return Err(BandwidthError::Percent(percent)),
    };
    match info.unit {
        BandwidthUnit::Unknown => Err(BandwidthError::UnknownUnit),
        BandwidthUnit::Percent if root > 100 => Err(BandwidthError::NotPercent { root }),
        _ if share == 100 => Ok(root),
        BandwidthUnit::Percent => {
            let rounded = share.next_multiple_of(info.granularity.max(1));
            Ok(rounded.max(info.least).min(100))
        }
        BandwidthUnit::EighthGigabyte { full_scale } => {
            let value = full_scale.saturating_mul(share) / 100;
            Ok(value.max(info.least.max(1)).min(root.max(1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cache(cbm_mask: u64, min_cbm_bits: u32) -> CacheInfo {
        CacheInfo { cbm_mask, min_cbm_bits, num_closids: 16, sparse_masks: false }
    }

    #[test]
    fn masks_of_percents() {
        for (full, start, end, mask) in [
            (0x7ff, 0, 30, 0xf),
            (0x3ff, 10, 80, 0xfe),
            (0x7ff, 10, 50, 0x3c),
            (0xf_ffff, 0, 30, 0x3f),
            (0x7ff, 0, 100, 0x7ff),
            (u64::MAX, 0, 100, u64::MAX),
            (u64::MAX, 50, 100, 0xffff_ffff_0000_0000),
            (0x1, 0, 1, 0x1),
        ] {
            assert_eq!(cache_mask(&cache(full, 1), start, end), Ok(mask), "{full:x} {start}..{end}");
        }
    }

    #[test]
    fn ranges_without_a_mask() {
        let gap = MaskError::FullMask { mask: 0x7fe };
        assert_eq!(cache_mask(&cache(0x7fe, 1), 0, 100), Err(gap));
        assert_eq!(cache_mask(&cache(0x5ff, 1), 0, 100), Err(MaskError::FullMask { mask: 0x5ff }));
        assert_eq!(cache_mask(&cache(0, 1), 0, 100), Err(MaskError::FullMask { mask: 0 }));
        for (start, end) in [(50, 50), (0, 101), (-1, 50), (60, 50), (0, 0), (i64::MIN, i64::MAX)] {
            assert_eq!(cache_mask(&cache(0x7ff, 1), start, end), Err(MaskError::Range { start, end }));
        }
        assert_eq!(cache_mask(&cache(0x3, 3), 0, 50), Err(MaskError::TooFewBits { least: 3, mask: 0x3 }));
    }

    #[test]
    fn narrow_masks_are_widened() {
        // ⌈11·95/100⌉ = 11 = ⌈11·100/100⌉: no bit at all.
        assert_eq!(cache_mask(&cache(0x7ff, 2), 95, 100), Ok(0x600));
        assert_eq!(cache_mask(&cache(0x7ff, 1), 95, 100), Ok(0x400));
        assert_eq!(cache_mask(&cache(0x7ff, 0), 95, 100), Ok(0x400));
        // One bit where two are the least: downward; at the lower end there is nothing below.
        assert_eq!(cache_mask(&cache(0x7ff, 2), 45, 50), Ok(0x30));
        assert_eq!(cache_mask(&cache(0x7ff, 2), 0, 5), Ok(0x3));
    }

    #[test]
    fn bandwidth_in_percents() {
        let info = BandwidthInfo { unit: BandwidthUnit::Percent, granularity: 10, least: 10, num_closids: 8 };
        for (percent, value) in [(1, 10), (10, 10), (15, 20), (30, 30), (33, 40), (99, 100), (100, 100)] {
            assert_eq!(bandwidth(&info, 100, percent), Ok(value), "{percent}");
        }
        for percent in [0, -1, 101, i64::MAX, i64::MIN] {
            assert_eq!(bandwidth(&info, 100, percent), Err(BandwidthError::Percent(percent)));
        }
        assert_eq!(bandwidth(&info, 4096, 50), Err(BandwidthError::NotPercent { root: 4096 }));

        // Other granularities and a least value above it.
        let fine = BandwidthInfo { granularity: 5, least: 20, ..info };
        assert_eq!(bandwidth(&fine, 100, 1), Ok(20));
        assert_eq!(bandwidth(&fine, 100, 21), Ok(25));
        let coarse = BandwidthInfo { granularity: 30, ..info };
        assert_eq!(bandwidth(&coarse, 100, 95), Ok(100));
        let none = BandwidthInfo { granularity: 0, least: 0, ..info };
        assert_eq!(bandwidth(&none, 100, 7), Ok(7));
    }

    #[test]
    fn bandwidth_in_eighths_of_a_gigabyte() {
        let unit = BandwidthUnit::of_vendor("AuthenticAMD");
        let info = BandwidthInfo { unit, granularity: 1, least: 1, num_closids: 16 };
        for (percent, value) in [(1, 1), (30, 48), (50, 80), (99, 158), (100, 2048)] {
            assert_eq!(bandwidth(&info, 2048, percent), Ok(value), "{percent}");
        }
        // No limit is what the root group has, whatever it is.
        assert_eq!(bandwidth(&info, 4096, 100), Ok(4096));
        let unit = BandwidthUnit::EighthGigabyte { full_scale: 400 };
        assert_eq!(bandwidth(&BandwidthInfo { unit, ..info }, 2048, 50), Ok(200));
        let unit = BandwidthUnit::EighthGigabyte { full_scale: 40 };
        assert_eq!(bandwidth(&BandwidthInfo { unit, least: 0, ..info }, 2048, 1), Ok(1));
        assert_eq!(bandwidth(&BandwidthInfo { unit, ..info }, 16, 99), Ok(16));
    }

    #[test]
    fn bandwidth_in_an_unknown_unit() {
        let unit = BandwidthUnit::of_vendor("0x41");
        let info = BandwidthInfo { unit, granularity: 1, least: 1, num_closids: 16 };
        assert_eq!(bandwidth(&info, 100, 50), Err(BandwidthError::UnknownUnit));
        assert_eq!(bandwidth(&info, 100, 0), Err(BandwidthError::Percent(0)));
    }

    proptest! {
        #[test]
        fn masks_have_no_gap_and_stay_inside(
            width in 1_u32..=64, least in 0_u32..5, start in 0_i64..100, length in 1_i64..=100,
        ) {
            let full = lowest(width);
            let end = (start + length).min(100);
            match cache_mask(&cache(full, least), start, end) {
                Ok(mask) => {
                    prop_assert_eq!(mask & !full, 0);
                    prop_assert!(mask.count_ones() >= least.max(1));
                    let ones = mask >> mask.trailing_zeros();
                    prop_assert_eq!(ones.trailing_ones(), ones.count_ones());
                }
                Err(error) => prop_assert_eq!(error, MaskError::TooFewBits { least: least.max(1), mask: full }),
            }
        }

        #[test]
        fn more_percent_is_never_less_bandwidth(percent in 1_i64..100, granularity in 0_u64..40, full_scale in 1_u64..5000) {
            for unit in [BandwidthUnit::Percent, BandwidthUnit::EighthGigabyte { full_scale }] {
                let info = BandwidthInfo { unit, granularity, least: 0, num_closids: 4 };
                let root = if unit == BandwidthUnit::Percent { 100 } else { 5000 };
                let value = |percent| bandwidth(&info, root, percent).expect("a value");
                prop_assert!(value(percent) <= value(percent + 1));
            }
        }
    }
}
