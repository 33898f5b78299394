//! Where a Unix socket lives, in the three spellings users write.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Longest socket path the kernel takes: `sun_path` has 108 bytes, one of them the closing NUL.
pub const MAX_PATH_BYTES: usize = 107;

/// The absolute, cleaned path of a Unix socket.
///
/// Accepted are `/path`, `unix:/path` and `unix:///path`. Duplicate slashes, `.` and `..` components are
/// resolved by text alone (no symbolic link is followed), as Go's `path.Clean` does.
///
/// ```
/// use koord_hooks::endpoint::Endpoint;
///
/// let endpoint: Endpoint = "unix:///var/run/koordlet//koordlet.sock".parse().unwrap();
/// assert_eq!(endpoint.as_str(), "/var/run/koordlet/koordlet.sock");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint(String);

/// Why a text is no endpoint. The message says what would be accepted; the caller adds the flag or file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing was given.
    #[error("is empty; give an absolute socket path, unix:/path or unix:///path")]
    Empty,
    /// A scheme other than `unix`.
    #[error("{value:?} has the scheme {scheme:?}; only unix is possible: /path, unix:/path or unix:///path")]
    Scheme {
        /// The text.
        value: String,
        /// Its scheme.
        scheme: String,
    },
    /// The path does not begin with a slash, or a host stands before it.
    #[error("{value:?} is not an absolute path; give /path, unix:/path or unix:///path")]
    NotAbsolute {
        /// The text.
        value: String,
    },
    /// The path is the root directory.
    #[error("{value:?} names the root directory, not a socket")]
    Root {
        /// The text.
        value: String,
    },
    /// The path holds a NUL byte, which no path can.
    #[error("{value:?} contains a NUL byte")]
    Nul {
        /// The text.
        value: String,
    },
    /// The path is longer than the kernel takes.
    #[error("{value:?} is {length} bytes long; a socket path has at most {MAX_PATH_BYTES}")]
    TooLong {
        /// The cleaned path.
        value: String,
        /// Its length in bytes.
        length: usize,
    },
}

impl Endpoint {
    /// The cleaned path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The cleaned path.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl AsRef<Path> for Endpoint {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        if value.is_empty() {
            return Err(EndpointError::Empty);
        }
        if value.contains('\0') {
            return Err(EndpointError::Nul { value: value.to_owned() });
        }
        let path = if value.starts_with('/') {
            value
        } else {
            match value.split_once(':') {
                Some(("unix", rest)) => match rest.strip_prefix("//") {
                    // `unix://name/x` has a host; `unix:////x` is an absolute path with a slash too many.
                    Some(after) => after,
                    None => rest,
                },
                Some((scheme, _)) if is_scheme(scheme) => {
                    return Err(EndpointError::Scheme { value: value.to_owned(), scheme: scheme.to_owned() });
                }
                _ => value,
            }
        };
        if !path.starts_with('/') {
            return Err(EndpointError::NotAbsolute { value: value.to_owned() });
        }
        let path = clean(path);
        if path == "/" {
            return Err(EndpointError::Root { value: value.to_owned() });
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(EndpointError::TooLong { length: path.len(), value: path });
        }
        Ok(Self(path))
    }
}

/// RFC 3986: a letter, then letters, digits, `+`, `-`, `.`.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_spellings_mean_one_path() {
        for text in ["/run/x.sock", "unix:/run/x.sock", "unix:///run/x.sock", "unix:////run//x.sock"] {
            assert_eq!(
                text.parse::<Endpoint>().map(|e| e.to_string()),
                Ok("/run/x.sock".to_owned()),
                "{text}"
            );
        }
        for (text, path) in [
            ("/var/run/koordlet//koordlet.sock", "/var/run/koordlet/koordlet.sock"),
            ("/a/./b/../c.sock", "/a/c.sock"),
            ("/../../c.sock", "/c.sock"),
            ("/a/b/", "/a/b"),
            ("/a:b", "/a:b"),
        ] {
            assert_eq!(text.parse::<Endpoint>().map(|e| e.to_string()), Ok(path.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_endpoint_says_why() {
        let error = |text: &str| text.parse::<Endpoint>().expect_err("refused").to_string();
        assert!(error("").contains("is empty"));
        assert!(error("tcp://1.2.3.4:5").contains("scheme \"tcp\""));
        assert!(error("http:/x").contains("scheme \"http\""));
        assert!(error("run/x.sock").contains("not an absolute path"));
        assert!(error("unix://host/x.sock").contains("not an absolute path"));
        assert!(error("unix:x.sock").contains("not an absolute path"));
        assert!(error("unix://").contains("not an absolute path"));
        assert!(error("UNIX:///x").contains("scheme"));
        assert!(error("/").contains("root directory"));
        assert!(error("//..").contains("root directory"));
        assert!(error("/a\0b").contains("NUL"));
    }

    #[test]
    fn the_longest_path_is_107_bytes() {
        let fits = format!("/{}", "x".repeat(106));
        assert_eq!(fits.parse::<Endpoint>().map(|e| e.as_str().len()), Ok(107));
        let too_long = format!("/{}", "x".repeat(107));
        assert!(too_long.parse::<Endpoint>().expect_err("refused").to_string().contains("108 bytes"));
        // Only the cleaned path counts.
        let slashes = format!("{}{}", "/".repeat(50), "x".repeat(106));
        assert!(slashes.parse::<Endpoint>().is_ok());
    }

    proptest! {
        #[test]
        fn cleaning_is_stable(text in "[/.a:]{0,40}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert!(endpoint.as_str().starts_with('/'));
                prop_assert!(!endpoint.as_str().contains("//"));
                prop_assert!(!endpoint.as_str().split('/').any(|part| part == "." || part == ".."));
                for again in [endpoint.to_string(), format!("unix:{endpoint}"), format!("unix://{endpoint}")] {
                    prop_assert_eq!(again.parse::<Endpoint>(), Ok(endpoint.clone()));
                }
            }
        }
    }
}
