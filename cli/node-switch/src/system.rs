//! What the switch needs of the node, behind a trait: files, processes, commands, calls.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A regular text file. Everything the switch changes is text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Content.
    pub text: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl FileState {
    /// A new file of root that everybody may read.
    pub fn new(text: impl Into<String>) -> FileState {
        FileState { text: text.into(), mode: 0o644, uid: 0, gid: 0 }
    }

    /// The same file with another content.
    pub fn with_text(&self, text: impl Into<String>) -> FileState {
        FileState { text: text.into(), ..self.clone() }
    }
}

/// Reads files.
pub trait Files {
    /// The file; nothing if there is none, or if it is no regular file, such as the link to `/dev/null` of a masked unit.
    ///
    /// # Errors
    /// It cannot be read, or is not UTF-8.
    fn read(&self, path: &Path) -> io::Result<Option<FileState>>;
    /// Names in a directory, sorted; none if there is no directory.
    ///
    /// # Errors
    /// It cannot be read.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Whether anything is there.
    fn exists(&self, path: &Path) -> bool;
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub arguments: Vec<String>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandResult {
    /// Exit code; nothing if it was ended by a signal or by its time limit.
    pub code: Option<i32>,
    /// What it wrote.
    pub output: String,
    /// What it complained.
    pub complaints: String,
}

impl CommandResult {
    /// Whether it ended with 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// What it complained, or wrote, or how it ended.
    pub fn reason(&self) -> String {
        let said =
            [&self.complaints, &self.output].into_iter().map(|text| text.trim()).find(|t| !t.is_empty());
        match (said, self.code) {
            (Some(said), _) => said.to_owned(),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => "it was ended".to_owned(),
        }
    }
}

/// Room on the file system of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that may still be written.
    pub free_bytes: u64,
    /// Nothing may be written.
    pub is_read_only: bool,
}

/// What a runtime, or the proxy in front of it, says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// Such as `containerd`.
    pub name: String,
    /// Such as `v2.4.0`.
    pub version: String,
    /// Command line of the process that listens, as far as it can be known.
    pub listener: Option<Vec<String>>,
}

/// What the switch wants to know of the Node object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeView {
    /// Status of the condition `Ready` is `True`.
    pub is_ready: bool,
    /// When the kubelet last said so, in seconds since 1970.
    pub ready_heartbeat: Option<i64>,
    /// The annotation [`CRI_SOCKET_ANNOTATION`].
    pub cri_socket: Option<String>,
}

/// Where kubeadm keeps the endpoint of a node, unless it is told to keep it on the node.
pub const CRI_SOCKET_ANNOTATION: &str = "kubeadm.alpha.kubernetes.io/cri-socket";

/// How to ask for a Node object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAccess {
    /// The kubelet's own kubeconfig: it may read its node and write its annotations.
    pub kubeconfig: PathBuf,
    /// Name of the node.
    pub name: String,
}

/// The node. Calls that fail for want of an answer say why in a text for people.
pub trait System: Files {
    /// Replaces a file at once, so that after a crash there is the old one or the new one, and creates missing directories.
    /// A link is followed.
    ///
    /// # Errors
    /// It cannot be written; the old one stays.
    fn write(&self, path: &Path, state: &FileState) -> io::Result<()>;
    /// Removes a file; it need not exist.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory. One that is not there, or not empty, stays as it is.
    ///
    /// # Errors
    /// It cannot be removed for another reason.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Room at the nearest directory that exists.
    ///
    /// # Errors
    /// It cannot be found out.
    fn room(&self, path: &Path) -> io::Result<Room>;
    /// Processes that run.
    fn processes(&self) -> Vec<Process>;
    /// Runs a command that changes nothing.
    ///
    /// # Errors
    /// It cannot be started.
    fn ask(&self, command: &[&str], limit: Duration) -> io::Result<CommandResult>;
    /// Runs a command that changes something.
    ///
    /// # Errors
    /// It cannot be started.
    fn run(&self, command: &[&str], limit: Duration) -> io::Result<CommandResult>;
    /// Sends a request to the proxy's admin socket; gives the status and the body.
    ///
    /// # Errors
    /// There is no answer.
    fn admin(&self, method: &str, target: &str, body: &str, limit: Duration)
    -> Result<(u16, String), String>;
    /// Asks a runtime for its version, by the newest protocol it speaks.
    ///
    /// # Errors
    /// It does not answer, or not as a runtime does.
    fn runtime_version(&self, socket: &Path, limit: Duration) -> Result<RuntimeVersion, String>;
    /// Status of `GET http://ADDRESS/PATH`.
    ///
    /// # Errors
    /// There is no answer.
    fn http_status(&self, address: &str, path: &str, limit: Duration) -> Result<u16, String>;
    /// The Node object.
    ///
    /// # Errors
    /// It cannot be had.
    fn node(&self, access: &NodeAccess, limit: Duration) -> Result<NodeView, String>;
    /// Sets [`CRI_SOCKET_ANNOTATION`].
    ///
    /// # Errors
    /// It is refused, or the server does not answer.
    fn annotate(&self, access: &NodeAccess, value: &str, limit: Duration) -> Result<(), String>;
    /// Name of this host.
    fn host_name(&self) -> String;
    /// Whether this process may do everything.
    fn is_root(&self) -> bool;
    /// Time since some fixed instant.
    fn elapsed(&self) -> Duration;
    /// Seconds since 1970.
    fn seconds(&self) -> i64;
    /// Waits.
    fn sleep(&self, duration: Duration);
}

/// Where a file is written before it takes the name of `path`. No reader of configuration directories takes such a name.
pub fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.with_file_name(format!(".{name}.koord-switch"))
}
