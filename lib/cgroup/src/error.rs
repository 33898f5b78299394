//! Everything that can go wrong with a control group.

use std::fmt;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use crate::executor::Owner;
use crate::resource::Resource;
use crate::value::Value;

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathProblem {
    /// It, or one of its names, is empty.
    Empty,
    /// It is the root.
    Root,
    /// It has `.` or `..`.
    Climbs,
    /// A name is too long or holds characters that no group has.
    Name,
    /// It is neither below the group of all pods nor below a declared directory.
    Outside,
    /// It is not the name of a slice.
    Slice,
}

impl fmt::Display for PathProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            PathProblem::Empty => "it or one of its names is empty",
            PathProblem::Root => "it is the root of the hierarchy",
            PathProblem::Climbs => "it has the name . or ..",
            PathProblem::Name => "a name is longer than 255 octets, or has a slash or a control character",
            PathProblem::Outside => {
                "it is neither below the kubelet's group of all pods nor below a declared directory"
            }
            PathProblem::Slice => "it is not the name of a slice (NAME.slice, no empty part between dashes)",
        })
    }
}

/// What was done when the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening a directory.
    Open,
    /// Listing a directory.
    List,
    /// Reading a file.
    Read,
    /// Writing a file.
    Write,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Operation::Open => "open",
            Operation::List => "list",
            Operation::Read => "read",
            Operation::Write => "write",
        })
    }
}

/// A control group cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CgroupError {
    /// A path that must not be touched.
    #[error("group {text:?} is refused: {problem}")]
    Path {
        /// The path as given.
        text: String,
        /// Why.
        problem: PathProblem,
    },
    /// A text that is no container id.
    #[error("container id {text:?} is not RUNTIME://ID: {reason}")]
    ContainerId {
        /// The text.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// The directories of a pod do not tell which is its sandbox.
    #[error("{candidates} directories may be the sandbox; exactly one must")]
    Sandbox {
        /// Directories of no known container.
        candidates: usize,
    },
    /// A value that a file does not take.
    #[error("{resource} takes {accepted}, not {value:?}")]
    Value {
        /// The file.
        resource: Resource,
        /// The value given.
        value: String,
        /// What it takes.
        accepted: String,
    },
    /// A file holds something that cannot be understood.
    #[error("{file} holds {text:?} instead of {expected}")]
    Parse {
        /// Name of the file.
        file: &'static str,
        /// Its text, cut short.
        text: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// The kernel refused.
    #[error("cannot {operation} {place}{}{}", value.as_ref().map(|value| format!(" to be {value:?}")).unwrap_or_default(), hint.map(|hint| format!(" ({hint})")).unwrap_or_default())]
    Kernel {
        /// What was tried.
        operation: Operation,
        /// Group and file.
        place: String,
        /// The text written.
        value: Option<String>,
        /// The kernel's rule behind this answer, where it is known.
        hint: Option<&'static str>,
        /// The answer.
        source: Errno,
    },
    /// The kernel took the value and has another.
    #[error("{place} is {found:?} after {wanted:?} was written")]
    NotKept {
        /// Group and file.
        place: String,
        /// The text written.
        wanted: String,
        /// The text found.
        found: String,
    },
    /// Another owner writes this file.
    #[error("{resource} of {path} belongs to {owner}")]
    Owned {
        /// The group.
        path: String,
        /// The file.
        resource: Resource,
        /// Who has it.
        owner: Owner,
    },
    /// More memory is in use than the new limit. See [`crate::memory_limit`].
    #[error("{path} uses {usage} bytes, more than the new limit of {wanted}")]
    Busy {
        /// The group.
        path: String,
        /// The new limit in bytes.
        wanted: i64,
        /// What is in use, in bytes; 0 if that is unknown.
        usage: i64,
    },
    /// The group does not exist (any more).
    #[error("there is no group {path}")]
    Gone {
        /// The group.
        path: String,
    },
    /// This kernel has no such file, or not for this group.
    #[error("there is no {resource} in {path}")]
    Unsupported {
        /// The group.
        path: String,
        /// The file.
        resource: Resource,
    },
    /// A score of the out-of-memory killer out of range.
    #[error("oom_score_adj takes -1000..1000, not {score}")]
    Score {
        /// The score.
        score: i64,
    },
    /// A file outside the control groups does not take a value.
    #[error("{path} takes {accepted}, not {value:?}")]
    SystemValue {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
        /// What it takes.
        accepted: String,
    },
    /// A file outside the control groups.
    #[error("cannot {operation} {path}")]
    System {
        /// What was tried.
        operation: Operation,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: Errno,
    },
}

impl CgroupError {
    /// The kernel's error number, for a metric; nothing if the kernel was not the one to refuse.
    pub fn errno(&self) -> Option<i32> {
        match self {
            CgroupError::Kernel { source, .. } | CgroupError::System { source, .. } => {
                Some(source.raw_os_error())
            }
            CgroupError::Busy { .. } => Some(Errno::BUSY.raw_os_error()),
            _ => None,
        }
    }

    pub(crate) fn value(resource: Resource, value: &Value, accepted: impl Into<String>) -> CgroupError {
        CgroupError::Value { resource, value: shown(&value.to_string()), accepted: accepted.into() }
    }

    pub(crate) fn parse(file: &'static str, text: &str, expected: &'static str) -> CgroupError {
        CgroupError::Parse { file, text: shown(text), expected }
    }
}

/// A text from outside as it goes into a message.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 120;
    let text = text.trim_end();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
