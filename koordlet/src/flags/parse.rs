//! Values of flags as Go's `flag` package reads them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use koord_extension::quantity::Quantity;
use koord_runtime::duration::{ParseDurationError, parse_go_duration};

/// A duration; one of zero or less is none.
pub(super) fn positive_duration(text: &str) -> Result<Option<Duration>, String> {
    match parse_go_duration(text) {
        Ok(duration) => Ok(Some(duration).filter(|duration| !duration.is_zero())),
        Err(ParseDurationError::Negative) => match parse_go_duration(text.trim_start_matches('-')) {
            Ok(_) => Ok(None),
            Err(error) => Err(error.to_string()),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// `host:port`, `:port` for all addresses, or nothing for none.
pub(super) fn listen_address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix(':') {
        return port.parse().ok().map(|port| SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
    }
    text.parse().ok()
}

/// A number of bytes: a quantity of Kubernetes, or units as the store's flags of Koordinator take them (`100MiB`, `1MB`;
/// both mean powers of 1024).
pub(super) fn bytes(text: &str) -> Option<i64> {
    let quantity = match text.strip_suffix('B') {
        Some(number) if number.ends_with('i') => Quantity::parse(number),
        Some(number) if number.ends_with(['K', 'M', 'G', 'T']) => Quantity::parse(&format!("{number}i")),
        Some(number) => Quantity::parse(number),
        None => Quantity::parse(text),
    };
    quantity.ok().map(Quantity::value).filter(|bytes| *bytes >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_zero_and_below_are_none() {
        assert_eq!(positive_duration("3s"), Ok(Some(Duration::from_secs(3))));
        assert_eq!(positive_duration("0"), Ok(None));
        assert_eq!(positive_duration("-3s"), Ok(None));
        assert!(positive_duration("3").is_err());
        assert!(positive_duration("-").is_err());
    }

    #[test]
    fn addresses() {
        let any = |port| Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
        assert_eq!(listen_address(":9316"), any(9316));
        assert_eq!(listen_address("127.0.0.1:0"), "127.0.0.1:0".parse().ok());
        for text in ["", ":", "9316", "localhost:9316", ":70000"] {
            assert_eq!(listen_address(text), None, "{text}");
        }
    }

    #[test]
    fn byte_sizes() {
        for (text, expected) in [
            ("100MiB", Some(104_857_600)),
            ("1MB", Some(1_048_576)),
            ("5MiB", Some(5_242_880)),
            ("104857600", Some(104_857_600)),
            ("100Mi", Some(104_857_600)),
            ("12B", Some(12)),
            ("0", Some(0)),
            ("-1", None),
            ("", None),
            ("many", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }
}
