use super::*;
use proptest::prelude::*;

fn window(values: &[f64]) -> Window {
    let ticks = |index: usize| Tick(index as u64 * 1000);
    Window::of(&mut values.to_vec(), ticks(0), ticks(values.len() - 1))
}

#[test]
fn places_of_percentiles() {
    let table: [(usize, [usize; 4]); 16] = [
        (1, [0, 0, 0, 0]),
        (2, [0, 0, 0, 0]),
        (9, [3, 7, 7, 7]),
        (10, [4, 8, 8, 8]),
        (20, [9, 17, 18, 18]),
        (21, [9, 17, 18, 19]),
        (50, [24, 44, 46, 48]),
        (60, [29, 53, 56, 58]),
        (100, [49, 89, 94, 98]),
        (150, [74, 134, 141, 147]),
        (200, [99, 179, 189, 197]),
        (299, [148, 268, 283, 295]),
        (300, [149, 269, 284, 296]),
        (599, [298, 538, 568, 592]),
        (600, [299, 539, 569, 593]),
        (1800, [899, 1619, 1709, 1781]),
    ];
    for (count, expected) in table {
        assert_eq!(Percentile::ALL.map(|percentile| percentile.index(count)), expected, "{count}");
    }
    assert_eq!(Percentile::P50.index(0), 0);
}

/// Koordinator multiplies two 32-bit numbers and cuts.
#[test]
fn places_are_those_of_single_precision() {
    for count in 0..4000_usize {
        for (percentile, share) in Percentile::ALL.into_iter().zip([0.5_f32, 0.9, 0.95, 0.99]) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "what is compared with"
            )]
            let place = ((count as f32 * share) as usize).saturating_sub(1);
            assert_eq!(percentile.index(count), place, "{count} values, {}", percentile.as_str());
        }
    }
}

#[test]
fn nine_values() {
    let values: Vec<f64> = (0..9).map(|step| f64::from(step) * 100.0).collect();
    let window = window(&values);
    assert_eq!(window.percentile(Percentile::P50), 300.0);
    assert_eq!(window.percentile(Percentile::P90), 700.0);
    assert_eq!(window.average(), 400.0);
    assert_eq!(window.last(), 800.0);
    assert_eq!(window.count(), 9);
    assert_eq!(window.duration(), Duration::from_secs(8));
}

#[test]
fn one_value() {
    let window = window(&[5.0]);
    assert_eq!(Percentile::ALL.map(|percentile| window.percentile(percentile)), [5.0; 4]);
    assert_eq!(
        (window.average(), window.last(), window.count(), window.duration()),
        (5.0, 5.0, 1, Duration::ZERO)
    );
}

#[test]
fn two_values() {
    let window = window(&[1.0, 9.0]);
    assert_eq!(Percentile::ALL.map(|percentile| window.percentile(percentile)), [1.0; 4]);
    assert_eq!(window.last(), 9.0);
}

#[test]
fn equal_values() {
    let window = window(&[2.5; 11]);
    assert_eq!(Percentile::ALL.map(|percentile| window.percentile(percentile)), [2.5; 4]);
    assert_eq!((window.average(), window.last(), window.count()), (2.5, 2.5, 11));
}

proptest! {
    #[test]
    fn selections_are_those_of_a_sort(values in prop::collection::vec(-1e6_f64..1e6, 1..700)) {
        let window = window(&values);
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        for percentile in Percentile::ALL {
            prop_assert_eq!(window.percentile(percentile), sorted[percentile.index(sorted.len())]);
        }
        prop_assert_eq!(window.last(), values[values.len() - 1]);
    }
}
