//! Rings as bytes, for a restart.

use crate::time::Tick;

/// Why a snapshot is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It does not begin as a snapshot of this version.
    #[error("is no snapshot of version {version}", version = 1)]
    Format,
    /// Its content is not what was written.
    #[error("is damaged: its check sum is {found:08x}, not {expected:08x}")]
    Checksum {
        /// The sum of what is there.
        found: u32,
        /// The sum of what was written.
        expected: u32,
    },
    /// Its content cannot be decoded.
    #[error("is damaged at octet {offset}: {problem}")]
    Content {
        /// Place in the snapshot.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// It was written before the machine booted.
    #[error("is of boot {found}, not {expected}")]
    Boot {
        /// Its boot.
        found: String,
        /// The current one.
        expected: String,
    },
    /// It is from the future or older than the longest window.
    #[error("is of {taken}, which is too far from {now}")]
    Age {
        /// Its newest sample.
        taken: Tick,
        /// The current moment.
        now: Tick,
    },
}
