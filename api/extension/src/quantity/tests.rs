use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

#[test]
fn canonical_texts() {
    for (text, written) in [
        ("0", "0"),
        ("-0", "0"),
        ("0Mi", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("500", "500"),
        ("1000", "1k"),
        ("2000", "2k"),
        ("1500", "1500"),
        ("1000000", "1M"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("0.0015", "1500u"),
        (".5", "500m"),
        ("5.", "5"),
        ("100m", "100m"),
        ("1073741824", "1073741824"),
        ("1Gi", "1Gi"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("0.1Ki", "102400m"),
        ("0.0001Ki", "102400u"),
        ("1.00001Ki", "1024010240u"),
        ("-1Gi", "-1Gi"),
        ("-1.5", "-1500m"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("12e-1", "1200e-3"),
        ("5e0", "5"),
        ("1E", "1E"),
        ("1Ei", "1Ei"),
        ("7Ei", "7Ei"),
        ("0.1n", "1n"),
        ("1.1n", "2n"),
        ("-1.1n", "-2n"),
        ("0.0000000001", "1n"),
        ("1e-100", "1e-9"),
        ("100000000000000000000e-20", "1"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775807"),
        ("8Ei", "9223372036854775807"),
        ("100E", "9223372036854775807"),
        ("-100E", "-9223372036854775807"),
        ("1e1000000000", "9223372036854775807"),
        ("1234567890123456789.123456789", "1234567890123456789123456789n"),
        ("0.1234567890123456789012345Ei", "142335986942043633765524350n"),
    ] {
        assert_eq!(quantity(text).to_string(), written, "{text}");
    }
}

#[test]
fn values_are_rounded_away_from_zero() {
    for (text, milli, value) in [
        ("1500u", 2, 1),
        ("500m", 500, 1),
        ("-500m", -500, -1),
        ("1", 1000, 1),
        ("1001m", 1001, 2),
        ("0.0015", 2, 1),
        ("0.0011", 2, 1),
        ("0.001", 1, 1),
        ("1n", 1, 1),
        ("0", 0, 0),
        ("2Gi", 2_147_483_648_000, 2_147_483_648),
        ("9223372036854775807", i64::MAX, i64::MAX),
        ("-9223372036854775807", i64::MIN, -i64::MAX),
    ] {
        let quantity = quantity(text);
        assert_eq!((quantity.milli(), quantity.value()), (milli, value), "{text}");
    }
}

#[test]
fn broken_texts_are_refused() {
    for text in [
        "",
        ".",
        "m",
        "-",
        "+-1",
        "1.1.1",
        "1.1.M",
        "1 ",
        " 1",
        "1mi",
        "1i",
        "1K",
        "1g",
        "1e",
        "1e-",
        "1e+",
        "1ee3",
        "1e99999999999",
        "0x10",
        "1_000",
        "aoeu",
        "1.5Gb",
        "\u{0661}",
        "--1",
        "1Zi",
    ] {
        assert!(Quantity::parse(text).is_err(), "{text:?}");
    }
    assert_eq!(
        Quantity::parse("1g").unwrap_err(),
        QuantityError { text: "1g".into(), problem: "of an unknown suffix" }
    );
}

#[test]
fn comparison_ignores_the_format() {
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert_eq!(quantity("1000m"), quantity("1e0"));
    assert!(quantity("1Gi") > quantity("1G"));
    assert!(quantity("-1") < quantity("0"));
}

#[test]
fn arithmetic_keeps_the_first_format() {
    assert_eq!(quantity("1Gi").plus(quantity("1024")).to_string(), "1048577Ki");
    assert_eq!(Quantity::ZERO.plus(quantity("1Ki")).to_string(), "1Ki");
    assert_eq!(quantity("1").minus(quantity("1500m")).to_string(), "-500m");
    assert_eq!(quantity("9E").plus(quantity("9E")), quantity("9223372036854775807"));
    assert_eq!(Quantity::from_milli(1500, Format::DecimalSi).to_string(), "1500m");
    assert_eq!(Quantity::from_value(2048, Format::BinarySi).to_string(), "2Ki");
    assert_eq!(quantity("2Ki").with_format(Format::DecimalSi).to_string(), "2048");
}

#[test]
fn json_is_a_string_or_a_number() {
    for (json, written) in [
        ("\"1k\"", "\"1k\""),
        ("1000", "\"1k\""),
        ("-5", "\"-5\""),
        ("0.5", "\"500m\""),
        ("18446744073709551615", "\"9223372036854775807\""),
        ("\" 2 \"", "\"2\""),
    ] {
        let quantity: Quantity = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&quantity).unwrap(), written, "{json}");
    }
    for json in ["true", "null", "[]", "\"\"", "\"x\"", "1e400"] {
        assert!(serde_json::from_str::<Quantity>(json).is_err(), "{json}");
    }
}

/// As in apimachinery: 39000 is no multiple of 1024, so it has no binary suffix, and what has none is read as decimal.
#[test]
fn a_binary_number_without_a_suffix_is_read_as_decimal() {
    let text = Quantity::from_nanos(39_000 * NANOS, Format::BinarySi).to_string();
    assert_eq!(text, "39000");
    assert_eq!(Quantity::parse(&text).unwrap().to_string(), "39k");
}

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        nanos in prop_oneof![
            -MOST..=MOST,
            (-5_000i128..5_000).prop_map(|value| value * NANOS),
            (-5_000i128..5_000, 0u32..50).prop_map(|(value, shift)| (value * NANOS) << shift),
        ],
        format in format(),
    ) {
        let quantity = Quantity::from_nanos(nanos, format);
        let text = quantity.to_string();
        let again = Quantity::parse(&text).unwrap();
        prop_assert_eq!(again, quantity, "{}", text);
        // A number without a suffix is read as a decimal one, whatever wrote it.
        let plain = format == Format::BinarySi && !text.ends_with('i');
        let written_again = if plain { Quantity::from_nanos(nanos, Format::DecimalSi).to_string() } else { text };
        prop_assert_eq!(again.to_string(), written_again);
    }

    #[test]
    fn rounding_never_loses(nanos in -MOST..=MOST) {
        let quantity = Quantity::from_nanos(nanos, Format::DecimalSi);
        let value = i128::from(quantity.value()) * NANOS;
        prop_assert!(value.abs() >= nanos.abs() && (value - nanos).abs() < NANOS);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-+]?[0-9.]{0,40}[numkMGTPEie]{0,3}[-+]?[0-9]{0,12}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            prop_assert_eq!(Quantity::parse(&quantity.to_string()).unwrap(), quantity);
        }
    }
}
