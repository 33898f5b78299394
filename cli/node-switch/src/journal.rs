//! What the switch remembers on disk, so that it can be interrupted at any point and taken back.
//!
//! The journal holds each changed file as it was and as it was made, and is written before a file changes. While it is
//! there the node is enabled, or on its way there or back; [`Stage`] says which. It is one file, replaced at once.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::plan::Owner;
use crate::system::{FileState, Files, NodeAccess, System};

/// Folder of the switch.
pub const STATE_DIRECTORY: &str = "/var/lib/koord/node-switch";
/// The journal.
pub const JOURNAL_FILE: &str = "/var/lib/koord/node-switch/journal.json";
/// Who changes something holds a lock on this file.
pub const LOCK_FILE: &str = "/var/lib/koord/node-switch/lock";
/// Form of the journal that this release writes and reads.
const FORMAT: u32 = 1;

/// How far the switch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The proxy is made ready; nothing of the kubelet has changed.
    Preparing,
    /// The proxy serves; the kubelet's files change and the kubelet is started again.
    ProxyReady,
    /// The kubelet is healthy behind the proxy.
    Enabled,
    /// On the way back: values and the kubelet's files are put back.
    Disabling,
    /// The kubelet is healthy without the proxy; what is left is to stop the proxy and to clean up.
    KubeletRestored,
}

impl Stage {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Preparing => "the proxy is being made ready",
            Stage::ProxyReady => "the kubelet is being switched to the proxy",
            Stage::Enabled => "enabled",
            Stage::Disabling => "the kubelet is being switched back",
            Stage::KubeletRestored => "the proxy is being stopped",
        }
    }
}

/// A file that the switch changes or makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// Whose it is.
    pub owner: Owner,
    /// As it was; nothing if it was not there.
    pub before: Option<FileState>,
    /// As the switch made it.
    pub after: FileState,
}

/// A unit of the proxy before the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitBefore {
    /// Its name.
    pub name: String,
    /// Started at boot.
    pub is_enabled: bool,
    /// Running.
    pub is_active: bool,
}

/// The annotation of the Node object before the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnnotationBefore {
    /// How to ask for the object.
    pub access: NodeAccess,
    /// The value.
    pub value: String,
}

/// Everything that is needed to go on, and to go back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// Form of this text.
    pub format: u32,
    /// How far it is.
    pub stage: Stage,
    /// Unit of the kubelet.
    pub kubelet_unit: String,
    /// The runtime's endpoint.
    pub runtime: Endpoint,
    /// The proxy's endpoint.
    pub proxy: Endpoint,
    /// Files, the proxy's first.
    pub changes: Vec<Change>,
    /// Units of the proxy.
    pub units: Vec<UnitBefore>,
    /// Directories that the switch makes.
    pub directories: Vec<PathBuf>,
    /// Files of the kubelet may have changed, so that it has to be started again on the way back.
    pub is_kubelet_touched: bool,
    /// The annotation, if it is to be changed.
    pub annotation: Option<AnnotationBefore>,
    /// Mode of the proxy before its values were put back.
    pub mode: Option<String>,
}

impl Journal {
    /// A journal of a node that nothing has happened to.
    pub fn new(kubelet_unit: &str, runtime: Endpoint, proxy: Endpoint) -> Journal {
        Journal {
            format: FORMAT,
            stage: Stage::Preparing,
            kubelet_unit: kubelet_unit.to_owned(),
            runtime,
            proxy,
            changes: Vec::new(),
            units: Vec::new(),
            directories: Vec::new(),
            is_kubelet_touched: false,
            annotation: None,
            mode: None,
        }
    }

    /// The journal of this node; nothing if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(files: &dyn Files) -> Result<Option<Journal>, JournalError> {
        let Some(file) = files.read(Path::new(JOURNAL_FILE)).map_err(JournalError::Read)? else {
            return Ok(None);
        };
        let journal: Journal = serde_json::from_str(&file.text).map_err(JournalError::NotUnderstood)?;
        if journal.format != FORMAT {
            return Err(JournalError::Format(journal.format));
        }
        Ok(Some(journal))
    }

    /// Writes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, system: &dyn System) -> Result<(), JournalError> {
        let text = serde_json::to_string_pretty(self).map_err(JournalError::NotUnderstood)?;
        // Files of the kubelet may hold what is not for everybody.
        let file = FileState { text: text + "\n", mode: 0o600, uid: 0, gid: 0 };
        system.write(Path::new(JOURNAL_FILE), &file).map_err(JournalError::Write)
    }

    /// The entry of a file.
    pub fn change_of(&self, path: &Path) -> Option<&Change> {
        self.changes.iter().find(|change| change.path == path)
    }
}

/// The journal is of no use.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read.
    #[error("cannot read {JOURNAL_FILE}")]
    Read(#[source] io::Error),
    /// It cannot be written.
    #[error("cannot write {JOURNAL_FILE}")]
    Write(#[source] io::Error),
    /// It is no journal of this release.
    #[error("{JOURNAL_FILE} is not understood; was it written by another release of koordctl?")]
    NotUnderstood(#[source] serde_json::Error),
    /// It is of another form.
    #[error("{JOURNAL_FILE} has form {0}; this koordctl knows form {FORMAT}")]
    Format(u32),
}
