//! How a command ends.

use std::path::PathBuf;
use std::process::ExitCode;

use koord_node_switch::real::LockError;
use koord_node_switch::switch::SwitchError;
use koord_runtime::yaml::YamlError;

use crate::client::ClientError;

/// How a command ended, and the number the process ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done (0).
    Success,
    /// `node diff --exit-code` has found differences (1).
    Differences,
    /// An action failed, in whole or in part (1).
    Failed,
    /// The command line, or a file it names, is wrong (2).
    Usage,
    /// There is no such pod or container (3).
    NotFound,
    /// The proxy does not answer (4).
    Unreachable,
}

impl Outcome {
    /// The number the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Outcome::Success => 0,
            Outcome::Differences | Outcome::Failed => 1,
            Outcome::Usage => 2,
            Outcome::NotFound => 3,
            Outcome::Unreachable => 4,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(outcome.code())
    }
}

/// Why a command could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The proxy gave no answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Nothing on this node has that name.
    #[error(
        "no pod or container {0:?} on this node; accepted: id or at least 4 of its first characters, pod UID, \
         name, NAMESPACE/NAME, NAMESPACE/NAME/CONTAINER; `koordctl node pods` lists what there is"
    )]
    NotFound(String),
    /// More than one thing has that name.
    #[error("{text:?} may be any of these; say which:\n  {}", candidates.join("\n  "))]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// What it may be, each with its id.
        candidates: Vec<String>,
    },
    /// The command line is wrong in a way its grammar does not tell.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file is not YAML or JSON.
    #[error("{}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: YamlError,
    },
    /// A manifest has nothing to explain.
    #[error(
        "{} has no pod; looked for: Pod, PodTemplate, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, \
         ReplicationController, and lists of these",
        path.display()
    )]
    NoPods {
        /// The file.
        path: PathBuf,
    },
    /// The answer cannot be written in the form asked for.
    #[error("the answer cannot be written as {form}")]
    Form {
        /// `JSON` or `YAML`.
        form: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A library was not tested.
    #[error("{}", path.display())]
    Probe {
        /// The library.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kubelet was not switched.
    #[error(transparent)]
    Switch(Box<SwitchError>),
    /// Another process switches.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The answer to the question could not be read.
    #[error("no answer could be read")]
    Input(#[source] std::io::Error),
    /// The output cannot be written.
    #[error("cannot write the output")]
    Output(#[source] std::io::Error),
}

impl Failure {
    /// How the command ends.
    pub fn outcome(&self) -> Outcome {
        match self {
            Failure::Client(error) if error.is_unreachable() => Outcome::Unreachable,
            Failure::NotFound(_) => Outcome::NotFound,
            Failure::Ambiguous { .. }
            | Failure::Usage(_)
            | Failure::Read { .. }
            | Failure::Malformed { .. }
            | Failure::NoPods { .. } => Outcome::Usage,
            Failure::Client(_)
            | Failure::Write { .. }
            | Failure::Form { .. }
            | Failure::Probe { .. }
            | Failure::Switch(_)
            | Failure::Lock(_)
            | Failure::Input(_)
            | Failure::Output(_) => Outcome::Failed,
        }
    }
}

impl From<SwitchError> for Failure {
    fn from(error: SwitchError) -> Failure {
        Failure::Switch(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_help_text() {
        use Outcome::{Differences, Failed, NotFound, Success, Unreachable, Usage};
        let codes = [Success, Differences, Failed, Usage, NotFound, Unreachable].map(Outcome::code);
        assert_eq!(codes, [0, 1, 1, 2, 3, 4]);
        for code in 0..=4 {
            assert!(crate::arguments::EXIT_CODES.contains(&format!("  {code}  ")), "{code}");
        }
    }
}
