//! The query of `GET /qos/pods`.

/// Key of the query that names a pod or container.
const POD: &str = "pod";

/// Path and query that ask for what `text` names: `/qos/pods?pod=default%2Fweb`.
pub fn pods_target(text: &str) -> String {
    let mut target = format!("{}?{POD}=", crate::path::PODS);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            target.push(char::from(byte));
        } else {
            target.push_str(&format!("%{byte:02X}"));
        }
    }
    target
}

/// Why a query is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A key that is not known.
    #[error("query key {0:?} is not known; accepted: pod")]
    UnknownKey(String),
    /// The key is there more than once.
    #[error("query key pod is given more than once")]
    Repeated,
    /// A value that is not percent-encoded UTF-8.
    #[error("query value {0:?} is not percent-encoded UTF-8")]
    NotText(String),
}

/// The text of `pod=TEXT` in a query such as [`pods_target`] writes; nothing without one or if it is empty.
///
/// # Errors
/// The query holds something else.
pub fn pod_of_query(query: Option<&str>) -> Result<Option<String>, QueryError> {
    let mut found = None;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != POD {
            return Err(QueryError::UnknownKey(key.to_owned()));
        }
        let text = decode(value).ok_or_else(|| QueryError::NotText(value.to_owned()))?;
        if found.replace(text).is_some() {
            return Err(QueryError::Repeated);
        }
    }
    Ok(found.filter(|text| !text.is_empty()))
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => 16 * hexadecimal(bytes.next()?)? + hexadecimal(bytes.next()?)?,
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

fn hexadecimal(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queries() {
        assert_eq!(pods_target("default/web-0"), "/qos/pods?pod=default%2Fweb-0");
        assert_eq!(pod_of_query(None), Ok(None));
        assert_eq!(pod_of_query(Some("")), Ok(None));
        assert_eq!(pod_of_query(Some("pod=")), Ok(None));
        assert_eq!(pod_of_query(Some("pod")), Ok(None));
        assert_eq!(pod_of_query(Some("pod=a%2fb+c")), Ok(Some("a/b c".to_owned())));
        assert_eq!(pod_of_query(Some("name=a")), Err(QueryError::UnknownKey("name".to_owned())));
        assert_eq!(pod_of_query(Some("pod=a&pod=b")), Err(QueryError::Repeated));
        for wrong in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(
                pod_of_query(Some(&format!("pod={wrong}"))),
                Err(QueryError::NotText(wrong.to_owned()))
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_asked_is_understood(text in ".+") {
            let target = pods_target(&text);
            let (_, query) = target.split_once('?').unwrap();
            prop_assert_eq!(pod_of_query(Some(query)), Ok(Some(text)));
        }
    }
}
