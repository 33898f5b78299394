use proptest::prelude::*;

use super::*;

const HOUR: i64 = 3_600_000;

fn at(millis: i64) -> WallTime {
    // 2026-07-24T00:00:00Z, a multiple of both half-lives.
    WallTime::from_unix_millis(1_784_851_200_000 + millis)
}

fn cpu() -> Histogram {
    Histogram::new(Scale::Cpu, Duration::from_secs(12 * 3600))
}

fn memory() -> Histogram {
    Histogram::new(Scale::Memory, Duration::from_secs(24 * 3600))
}

#[allow(clippy::cast_possible_truncation, reason = "truncation is the rule")]
fn milli(histogram: &Histogram, percentile: f64) -> i64 {
    (histogram.percentile(percentile) * 1000.0) as i64
}

const PERCENTILES: [f64; 5] = [0.6, 0.9, 0.95, 0.98, 1.0];

#[test]
fn the_number_of_buckets_follows_from_the_range() {
    for scale in [Scale::Cpu, Scale::Memory] {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number by then")]
        let buckets = position(scale.highest(), scale.first()).ceil() as usize + 1;
        assert_eq!(scale.buckets(), buckets);
        assert!(scale.start(buckets - 1) >= scale.highest());
        assert!(scale.start(buckets - 2) < scale.highest());
    }
}

#[test]
fn one_sample_of_cpu_is_every_percentile() {
    for (cores, expected) in [
        (0.0, 25),
        (0.05, 51),
        (0.1, 107),
        (0.25, 275),
        (0.3, 314),
        (0.5, 539),
        (0.75, 763),
        (1.0, 1035),
        (2.0, 2001),
        (4.0, 4217),
        (6.0, 6137),
        (8.0, 8394),
        (12.0, 12015),
        (16.0, 16272),
        (1024.0, 1_060_437),
        (5000.0, 1_060_437),
        (f64::INFINITY, 1_060_437),
        (-1.0, 25),
        (f64::NAN, 25),
    ] {
        let mut histogram = cpu();
        histogram.add(cores, at(0));
        for percentile in PERCENTILES {
            assert_eq!(milli(&histogram, percentile), expected, "{cores} cores, {percentile}");
        }
    }
}

#[test]
fn one_sample_of_memory_is_every_percentile() {
    const MIB: f64 = 1_048_576.0;
    for (bytes, expected) in [
        (MIB, 5_242_880),
        (100.0 * MIB, 113_133_819),
        (128.0 * MIB, 135_477_939),
        (300.0 * MIB, 326_750_499),
        (512.0 * MIB, 564_708_223),
        (1024.0 * MIB, 1_097_586_419),
        (10240.0 * MIB, 11_239_309_733),
        (20480.0 * MIB, 22_355_817_772),
        (65536.0 * MIB, 68_883_640_381_i64),
    ] {
        let mut histogram = memory();
        histogram.add(bytes, at(0));
        for percentile in PERCENTILES {
            #[allow(clippy::cast_possible_truncation, reason = "truncation is the rule")]
            let found = histogram.percentile(percentile) as i64;
            // Libraries of mathematics differ in the last bit.
            assert!((found - expected).abs() <= 1, "{bytes} bytes, {percentile}: {found}");
        }
    }
}

#[test]
fn percentiles_are_by_weight() {
    for (small, large, expected) in
        [(95, 5, [1035, 1035, 1035, 8394, 8394]), (94, 6, [1035, 1035, 8394, 8394, 8394])]
    {
        let mut histogram = cpu();
        for _ in 0..small {
            histogram.add(1.0, at(0));
        }
        for _ in 0..large {
            histogram.add(8.0, at(0));
        }
        assert_eq!(PERCENTILES.map(|percentile| milli(&histogram, percentile)), expected);
    }
}

#[test]
fn old_samples_fade() {
    let mut histogram = cpu();
    for _ in 0..60 {
        histogram.add(8.0, at(0));
    }
    for _ in 0..60 {
        histogram.add(1.0, at(24 * HOUR));
    }
    // 60 old ones weigh 15 of 75: the share of the new ones is 80 %.
    assert_eq!(PERCENTILES.map(|percentile| milli(&histogram, percentile)), [1035, 8394, 8394, 8394, 8394]);
    assert!((histogram.weight_at(at(24 * HOUR)) - 75.0).abs() < 1e-9);
}

#[test]
fn an_empty_histogram_says_nothing() {
    let histogram = cpu();
    assert!(histogram.is_empty());
    assert_eq!(histogram.percentile(0.95), 0.0);
    assert_eq!(histogram.weight_at(at(0)), 0.0);
    assert_eq!(histogram.reference(), None);
}

#[test]
fn the_reference_moves_after_a_hundred_half_lives() {
    let mut histogram = cpu();
    histogram.add(1.0, at(7 * HOUR));
    assert_eq!(histogram.reference(), Some(at(12 * HOUR)));
    // Exactly a hundred half-lives after the reference it stays.
    histogram.add(2.0, at(12 * HOUR + 1200 * HOUR));
    assert_eq!(histogram.reference(), Some(at(12 * HOUR)));
    assert_eq!(histogram.total_weight(), 2f64.powf(-5.0 / 12.0) + 2f64.powi(100));
    histogram.add(2.0, at(12 * HOUR + 1200 * HOUR + 1));
    assert_eq!(histogram.reference(), Some(at(12 * HOUR + 1200 * HOUR)));
    assert!((histogram.total_weight() - 2.0).abs() < 1e-6);
    // The first sample has no weight worth the name any more.
    assert_eq!(milli(&histogram, 0.0), 2001);
}

#[test]
fn a_clock_set_far_back_does_not_stop_learning() {
    let mut histogram = cpu();
    histogram.add(8.0, at(10 * 365 * 24 * HOUR));
    histogram.add(1.0, at(0));
    assert_eq!(milli(&histogram, 1.0), 1035);
    assert_eq!(histogram.reference(), Some(at(0)));
    // A little back is only a smaller weight.
    histogram.add(8.0, at(-12 * HOUR));
    assert_eq!(histogram.total_weight(), 1.5);
}

#[test]
fn stored_weights_are_scaled_to_their_total() {
    let mut histogram = cpu();
    let stored = [(3, 10_000), (5, 5_000)];
    histogram.restore(Some(at(0)), stored.into_iter(), 30.0, at(HOUR)).unwrap();
    assert_eq!((histogram.weights()[3], histogram.weights()[5]), (20.0, 10.0));
    assert_eq!(histogram.total_weight(), 30.0);
    assert_eq!(histogram.reference(), Some(at(0)));
    // What is there is not overwritten.
    histogram.restore(Some(at(0)), [(1, 1)].into_iter(), 5.0, at(HOUR)).unwrap();
    assert_eq!(histogram.total_weight(), 30.0);
}

#[test]
fn weights_that_cannot_be_used_are_refused() {
    let restore = |reference, stored: (u32, u32), total| {
        let mut histogram = cpu();
        let result = histogram.restore(Some(at(reference)), [stored].into_iter(), total, at(0));
        assert!(result.is_ok() || histogram == cpu());
        result
    };
    assert_eq!(restore(0, (157, 1), 1.0), Ok(()));
    assert_eq!(restore(0, (158, 1), 1.0), Err(HistogramError::UnknownBucket { bucket: 158, last: 157 }));
    assert_eq!(restore(0, (0, 1), -1.0), Err(HistogramError::Total(-1.0)));
    assert!(restore(0, (0, 1), f64::NAN).is_err());
    assert_eq!(restore(12 * HOUR, (0, 1), 1.0), Ok(()));
    let future = HistogramError::Future { reference: at(12 * HOUR + 1), now: at(0) };
    assert_eq!(restore(12 * HOUR + 1, (0, 1), 1.0), Err(future));
    // No weight: nothing to take over.
    let mut histogram = cpu();
    histogram.restore(None, [(0, 0)].into_iter(), 0.0, at(0)).unwrap();
    assert_eq!(histogram, cpu());
}

#[test]
fn regular_samples_weigh_what_they_weigh() {
    let mut histogram = cpu();
    for minute in 0..60 {
        histogram.add(1.0, at(minute * 60_000));
    }
    let weight = histogram.weight_at(at(59 * 60_000));
    assert!((weight - histogram.weight_of_regular(60.0, Duration::from_secs(60))).abs() < 1e-9);
    assert!((58.0..58.5).contains(&weight), "{weight}");
    assert_eq!(histogram.weight_of_regular(60.0, Duration::ZERO), 60.0);
}

proptest! {
    #[test]
    fn an_answer_is_at_most_a_bucket_too_large(cores in 0.0..1000.0_f64) {
        let mut histogram = cpu();
        histogram.add(cores, at(0));
        let found = histogram.percentile(0.95);
        prop_assert!(found >= cores);
        prop_assert!(found <= cores * 1.05 + 0.025 + 1e-9, "{}", found);
    }

    #[test]
    fn buckets_cover_the_range_without_gaps(value in 0.0..2.0e12_f64) {
        let bucket = Scale::Memory.bucket(value);
        // A value next to a border may be taken for its neighbour's.
        prop_assert!(Scale::Memory.start(bucket) <= value * (1.0 + 1e-12));
        prop_assert!(value <= Scale::Memory.end(bucket) * (1.0 + 1e-12));
    }

    #[test]
    fn percentiles_rise(values in prop::collection::vec((0.0..64.0_f64, 0..5000_i64), 1..60)) {
        let mut histogram = cpu();
        for (value, minutes) in &values {
            histogram.add(*value, at(minutes * 60_000));
        }
        let found = PERCENTILES.map(|percentile| histogram.percentile(percentile));
        prop_assert!(found.is_sorted());
        let largest = values.iter().map(|(value, _)| *value).fold(0.0, f64::max);
        prop_assert_eq!(found[4], Scale::Cpu.end(Scale::Cpu.bucket(largest)));
    }
}
