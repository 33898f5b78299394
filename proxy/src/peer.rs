//! Who may connect, besides what the socket's mode says (`--peer-check`).

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use koord_runtime::unix_socket::PeerCredentials;

use crate::flags::PeerCheck;

/// Decides about each new connection.
#[derive(Debug, Clone)]
pub struct PeerRule {
    check: PeerCheck,
    backend: PathBuf,
}

impl PeerRule {
    /// The rule; `backend` is the socket whose group counts.
    pub fn new(check: PeerCheck, backend: PathBuf) -> PeerRule {
        PeerRule { check, backend }
    }

    /// Whether the process that made this connection may use it. A peer the kernel does not name is
    /// refused.
    pub fn admits(&self, connection: impl AsFd) -> bool {
        if self.check == PeerCheck::Off {
            return true;
        }
        let peer = match PeerCredentials::of(connection) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!(error = %error, "connection refused: the peer is unknown");
                return false;
            }
        };
        // Asked each time, since a restarted backend may come up with another group. A missing socket
        // leaves root.
        let group = std::fs::metadata(&self.backend).ok().map(|metadata| metadata.gid());
        let admitted = admitted(&peer, group);
        if !admitted {
            tracing::warn!(
                user = peer.user,
                group = peer.group,
                process = peer.process,
                "connection refused: the peer is neither root nor of the backend socket's group"
            );
        }
        admitted
    }
}

fn admitted(peer: &PeerCredentials, group: Option<u32>) -> bool {
    peer.user == 0 || group.is_some_and(|group| peer.in_group(group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn root_or_the_group() {
        // No process has this id, so supplementary groups are none.
        let peer = |user, group| PeerCredentials { user, group, process: i32::MAX };
        assert!(admitted(&peer(0, 0), None));
        assert!(admitted(&peer(0, 5), Some(7)));
        assert!(admitted(&peer(1000, 7), Some(7)));
        assert!(!admitted(&peer(1000, 8), Some(7)));
        assert!(!admitted(&peer(1000, 7), None));
        assert!(!admitted(&peer(1000, 7), Some(0)));
        assert!(admitted(&peer(1000, 0), Some(0)));
    }

    #[test]
    fn off_admits_all_and_an_unknown_peer_is_refused() {
        let (near, _far) = UnixStream::pair().expect("a pair");
        let off = PeerRule::new(PeerCheck::Off, PathBuf::from("/nonexistent"));
        assert!(off.admits(&near));
        let on = PeerRule::new(PeerCheck::RootOrGroup, PathBuf::from("/nonexistent"));
        let own = PeerCredentials::of(&near).expect("connected");
        assert_eq!(on.admits(&near), own.user == 0);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        assert!(!on.admits(&listener));
        assert!(off.admits(&listener));
    }
}
