//! Whom the proxy believes: the owners of registration files and hook sockets.

use std::fmt;

/// Users whose files and sockets are accepted.
///
/// Root always; the proxy's own user, which could do no more than the proxy itself; and one more if it is
/// configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    own: u32,
    extra: Option<u32>,
}

impl Trust {
    /// Root, the user `own` the proxy runs as, and `extra`.
    pub fn new(own: u32, extra: Option<u32>) -> Self {
        Self { own, extra }
    }

    /// Root and the user this process runs as.
    pub fn of_this_process() -> Self {
        Self::new(nix::unistd::geteuid().as_raw(), None)
    }

    /// Whether a file or socket of user `uid` is accepted.
    pub fn accepts(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own || self.extra == Some(uid)
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("user 0")?;
        if self.own != 0 {
            write!(formatter, " or {}", self.own)?;
        }
        match self.extra {
            Some(extra) if extra != 0 && extra != self.own => write!(formatter, " or {extra}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_self_and_the_configured_user_are_trusted() {
        let trust = Trust::new(1000, Some(77));
        assert!(trust.accepts(0) && trust.accepts(1000) && trust.accepts(77));
        assert!(!trust.accepts(1) && !trust.accepts(76) && !trust.accepts(u32::MAX));
        assert_eq!(trust.to_string(), "user 0 or 1000 or 77");
        assert_eq!(Trust::new(0, None).to_string(), "user 0");
        assert!(!Trust::new(0, None).accepts(1000));
    }
}
