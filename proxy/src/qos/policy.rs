//! The node's policy: a file shaped as the specification of a NodeSLO.
//!
//! A file that cannot be used leaves what was in force before; all its mistakes are told at once.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use koord_admin::{PolicyState, PolicyStatus, Timestamp};
use koord_crd::node_slo::NodeSloSpec;
use koord_runtime::yaml::{LARGEST_TEXT, YamlError, document};

use crate::trust::Trust;

/// Why a policy file is not used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be opened or read.
    #[error("{file}: cannot be read: {source}")]
    Read {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// Others than root could change it.
    #[error("{file}: {problem}")]
    Untrusted {
        /// The file.
        file: String,
        /// What is wrong with its owner or mode.
        problem: String,
    },
    /// It is not text in UTF-8.
    #[error("{file}: not UTF-8 text")]
    NotText {
        /// The file.
        file: String,
    },
    /// It is not YAML.
    #[error("{file}: {source}")]
    Yaml {
        /// The file.
        file: String,
        /// Where and why.
        source: YamlError,
    },
    /// It says what a NodeSLO cannot say.
    #[error("{}", .mistakes.join("; "))]
    Content {
        /// One for each mistake, with file, field, value and what is accepted.
        mistakes: Vec<String>,
    },
}

impl PolicyError {
    /// One sentence for each mistake.
    pub fn sentences(&self) -> Vec<String> {
        match self {
            Self::Content { mistakes } => mistakes.clone(),
            other => vec![other.to_string()],
        }
    }
}

/// Reads a policy file; `None` if there is none.
///
/// # Errors
///
/// See [`PolicyError`].
pub fn read(path: &Path, trust: &Trust) -> Result<Option<NodeSloSpec>, PolicyError> {
    let name = || path.display().to_string();
    let failed = |source| PolicyError::Read { file: name(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if let Some(problem) = fault(&metadata, trust) {
        return Err(PolicyError::Untrusted { file: name(), problem });
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_TEXT as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_error| PolicyError::NotText { file: name() })?;
    parse(&text, &name()).map(Some)
}

/// Reads the text of a policy.
///
/// # Errors
///
/// [`PolicyError::Yaml`] and [`PolicyError::Content`].
pub(super) fn parse(text: &str, file: &str) -> Result<NodeSloSpec, PolicyError> {
    let value = document(text).map_err(|source| PolicyError::Yaml { file: file.to_owned(), source })?;
    // A file of comments says nothing, which is a policy too.
    let value = if value.is_null() { serde_json::json!({}) } else { value };
    NodeSloSpec::check(&value).map_err(|mistakes| PolicyError::Content {
        mistakes: mistakes.iter().map(|mistake| format!("{file}: {mistake}")).collect(),
    })
}

fn fault(metadata: &Metadata, trust: &Trust) -> Option<String> {
    if !metadata.is_file() {
        return Some("not a regular file".to_owned());
    }
    if !trust.accepts(metadata.uid()) {
        return Some(format!("owned by user {}; accepted: {trust}", metadata.uid()));
    }
    (metadata.mode() & 0o022 != 0).then(|| {
        format!(
            "mode {:04o} lets others write; accepted: no write for group and others",
            metadata.mode() & 0o7777
        )
    })
}

/// What a file looked like when it was read.
type Stamp = Option<(u64, u64, i64, i64, u64)>;

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    let ctime = (metadata.ctime(), metadata.ctime_nsec());
    Some((metadata.dev(), metadata.ino(), ctime.0, ctime.1, metadata.size()))
}

/// The policy in force and the state of its file.
#[derive(Debug)]
pub struct NodePolicy {
    file: Option<PathBuf>,
    trust: Trust,
    seen: Option<Stamp>,
    /// There was no file when it was looked for last.
    missed: bool,
    spec: NodeSloSpec,
    state: PolicyState,
    generation: u64,
    loaded_at: Option<Timestamp>,
    errors: Vec<String>,
}

impl NodePolicy {
    /// The defaults are in force until [`NodePolicy::refresh`].
    pub fn new(file: Option<PathBuf>, trust: Trust) -> Self {
        Self {
            file,
            trust,
            seen: None,
            missed: false,
            spec: NodeSloSpec::default(),
            state: PolicyState::Default,
            generation: 0,
            loaded_at: None,
            errors: Vec::new(),
        }
    }

    /// The policy in force.
    pub fn spec(&self) -> &NodeSloSpec {
        &self.spec
    }

    /// Looks at the file, and reads it if it is another one than before. True if another policy is in force now.
    pub fn refresh(&mut self, now: SystemTime) -> bool {
        let Some(file) = &self.file else { return false };
        let stamp = stamp(file);
        if self.seen == Some(stamp) {
            return false;
        }
        self.seen = Some(stamp);
        if stamp.is_some() {
            self.missed = false;
        }
        let before = self.spec.clone();
        match read(file, &self.trust) {
            Ok(Some(spec)) => {
                self.spec = spec;
                self.state = PolicyState::InForce;
                self.generation += 1;
                self.loaded_at = Some(Timestamp::from_system_time(now));
                self.errors.clear();
                tracing::info!(file = %file.display(), generation = self.generation, "node policy in force");
            }
            // Some editors take a file away for a moment before they put the new one in its place.
            Ok(None) if self.generation > 0 && !std::mem::replace(&mut self.missed, true) => {
                self.seen = None;
                return false;
            }
            Ok(None) => {
                self.errors.clear();
                if self.generation == 0 {
                    tracing::info!(file = %file.display(), "no node policy: the defaults are in force");
                } else {
                    // A file that is taken away takes its policy along: that is how it is withdrawn.
                    self.spec = NodeSloSpec::default();
                    self.state = PolicyState::Default;
                    self.loaded_at = None;
                    tracing::warn!(file = %file.display(), "the node policy is gone: the defaults are in force");
                }
            }
            Err(error) => {
                self.errors = error.sentences();
                if self.generation > 0 && self.state != PolicyState::Default {
                    self.state = PolicyState::LastGood;
                }
                for error in &self.errors {
                    tracing::error!(%error, in_force = self.state.as_str(), "node policy refused");
                }
            }
        }
        self.spec != before
    }

    /// The state of the file, for people.
    pub fn status(&self) -> PolicyStatus {
        PolicyStatus {
            file: self.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
            state: self.state,
            generation: self.generation,
            loaded_at: self.loaded_at,
            errors: self.errors.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
