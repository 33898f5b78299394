//! The store's checkpoint: a file that spares a restarted proxy most of its questions to the runtime.
//!
//! It is a cache. What the runtime lists wins, and a file that cannot be read is as good as none. Values of
//! environment variables are never in it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use koord_cri::wire::put_bytes_field;
use koord_hook::v1alpha1::{ContainerMetadata, LinuxContainerResources, PodSandboxMetadata};
use koord_intercept::SharedMap;
use koord_intercept::record::{ContainerRecord, PodRecord};
use prost::Message;

use crate::failpoint::Failpoints;
use crate::qos::ledger::{Entry, Level, Levels, Problem, Text};
use crate::state_directory::StateDirectory;
use crate::store::{Snapshot, Store};

/// Name of the file in the state directory.
pub const FILE_NAME: &str = "store.v1";
const TEMPORARY_NAME: &str = "store.v1.new";

/// First bytes of the file; the last one is the version of the format.
const MAGIC: &[u8; 8] = b"KRPSTOR\x01";
const HEADER_BYTES: usize = MAGIC.len() + 4;

/// Nobody has this many pods; a larger file is not ours.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Pause between two writes, in times of the write before it: writing takes a twentieth of one CPU at the most.
const PAUSE_FACTOR: u32 = 20;

/// Shortest and longest pause. A process that is killed loses what it was told in the pause, among it what the kubelet asked
/// for where another value was sent, so a small store is written almost at once.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The pause after a write that took so long.
fn pause_after(write: Duration) -> Duration {
    let [shortest, longest] = PAUSES;
    write.saturating_mul(PAUSE_FACTOR).clamp(shortest, longest)
}

/// Why a checkpoint is not used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Read(#[from] io::Error),
    /// It is larger than any checkpoint.
    #[error("is larger than {MAX_FILE_BYTES} bytes")]
    Size,
    /// It does not begin as a checkpoint of this version.
    #[error("is no checkpoint of version {version}", version = MAGIC[7])]
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
    #[error("is damaged")]
    Content(#[from] prost::DecodeError),
}

type TextMap = BTreeMap<String, String>;

#[derive(Clone, PartialEq, Message)]
struct FileContent {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<PodEntry>,
    #[prost(message, repeated, tag = "2")]
    containers: Vec<ContainerEntry>,
    #[prost(message, repeated, tag = "3")]
    pod_levels: Vec<LevelEntry>,
    #[prost(message, repeated, tag = "4")]
    container_levels: Vec<LevelEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct LevelEntry {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    asked: Option<LinuxContainerResources>,
    #[prost(message, repeated, tag = "3")]
    fields: Vec<FieldEntry>,
    #[prost(message, repeated, tag = "4")]
    problems: Vec<ProblemEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct FieldEntry {
    #[prost(string, tag = "1")]
    field: String,
    #[prost(string, optional, tag = "2")]
    asked: Option<String>,
    #[prost(string, optional, tag = "3")]
    sent: Option<String>,
    #[prost(string, optional, tag = "4")]
    wished: Option<String>,
    #[prost(string, tag = "5")]
    owner: String,
    #[prost(string, tag = "6")]
    reason: String,
    #[prost(bool, tag = "7")]
    by_file: bool,
}

#[derive(Clone, PartialEq, Message)]
struct ProblemEntry {
    #[prost(string, tag = "1")]
    rule: String,
    #[prost(string, tag = "2")]
    message: String,
}

fn level_entry(id: &str, level: &Level) -> LevelEntry {
    let text = |value: &Option<Text>| value.as_deref().map(str::to_owned);
    let field = |entry: &Entry| FieldEntry {
        field: entry.field.to_string(),
        asked: text(&entry.asked),
        sent: text(&entry.sent),
        wished: text(&entry.wished),
        owner: entry.owner.to_string(),
        reason: entry.reason.to_string(),
        by_file: entry.by_file,
    };
    let problem = |problem: &Problem| ProblemEntry {
        rule: problem.rule.to_string(),
        message: problem.message.to_string(),
    };
    LevelEntry {
        id: id.to_owned(),
        asked: level.asked.clone(),
        fields: level.entries.iter().map(field).collect(),
        problems: level.problems.iter().map(problem).collect(),
    }
}

fn levels(entries: Vec<LevelEntry>) -> BTreeMap<String, Arc<Level>> {
    let text = |value: Option<String>| value.map(Text::from);
    let field = |entry: FieldEntry| Entry {
        field: entry.field.into(),
        asked: text(entry.asked),
        sent: text(entry.sent),
        wished: text(entry.wished),
        owner: entry.owner.into(),
        reason: entry.reason.into(),
        by_file: entry.by_file,
    };
    entries
        .into_iter()
        .filter(|entry| !entry.id.is_empty())
        .map(|entry| {
            let problems = entry.problems.into_iter();
            let level = Level {
                asked: entry.asked,
                entries: entry.fields.into_iter().map(field).collect(),
                problems: problems
                    .map(|problem| Problem { rule: problem.rule.into(), message: problem.message.into() })
                    .collect(),
            };
            (entry.id, Arc::new(level))
        })
        .collect()
}

#[derive(Clone, PartialEq, Message)]
struct PodEntry {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    meta: Option<PodSandboxMetadata>,
    #[prost(string, tag = "3")]
    runtime_handler: String,
    #[prost(btree_map = "string, string", tag = "4")]
    labels: TextMap,
    #[prost(btree_map = "string, string", tag = "5")]
    annotations: TextMap,
    #[prost(string, tag = "6")]
    cgroup_parent: String,
    #[prost(string, optional, tag = "7")]
    kubelet_cgroup_parent: Option<String>,
    #[prost(message, optional, tag = "8")]
    overhead: Option<LinuxContainerResources>,
    #[prost(message, optional, tag = "9")]
    resources: Option<LinuxContainerResources>,
    #[prost(uint64, optional, tag = "10")]
    stopped_at_milliseconds: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerEntry {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    pod_id: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(uint32, tag = "4")]
    attempt: u32,
    #[prost(btree_map = "string, string", tag = "5")]
    annotations: TextMap,
    #[prost(message, optional, tag = "6")]
    resources: Option<LinuxContainerResources>,
    #[prost(string, tag = "7")]
    cgroup_parent: String,
    #[prost(uint64, optional, tag = "8")]
    stopped_at_milliseconds: Option<u64>,
}

fn milliseconds(time: Option<SystemTime>) -> Option<u64> {
    let since = time?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn time(milliseconds: Option<u64>) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds?))
}

fn pod_entry(id: &str, pod: &PodRecord) -> PodEntry {
    PodEntry {
        id: id.to_owned(),
        meta: Some(pod.metadata.clone()),
        runtime_handler: pod.runtime_handler.clone(),
        labels: pod.labels.clone(),
        annotations: pod.annotations.clone(),
        cgroup_parent: pod.cgroup_parent.clone(),
        kubelet_cgroup_parent: pod.kubelet_cgroup_parent.clone(),
        overhead: pod.overhead.clone(),
        resources: pod.resources.clone(),
        stopped_at_milliseconds: milliseconds(pod.stopped),
    }
}

fn container_entry(id: &str, container: &ContainerRecord) -> ContainerEntry {
    ContainerEntry {
        id: id.to_owned(),
        pod_id: container.pod_id.clone(),
        name: container.metadata.name.clone(),
        attempt: container.metadata.attempt,
        annotations: (*container.annotations).clone(),
        resources: container.resources.clone(),
        cgroup_parent: container.cgroup_parent.clone(),
        stopped_at_milliseconds: milliseconds(container.stopped),
    }
}

/// The content, handed to `take` in parts: as a whole it would be several times the size of the store.
fn in_parts(snapshot: &Snapshot, take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut parts = Parts { buffer: Vec::with_capacity(2 * PART_BYTES), take };
    // The field numbers of `FileContent`.
    for (id, pod) in &snapshot.pods {
        parts.put(1, &pod_entry(id, pod))?;
    }
    for (id, container) in &snapshot.containers {
        parts.put(2, &container_entry(id, container))?;
    }
    for (id, level) in &snapshot.levels.pods {
        parts.put(3, &level_entry(id, level))?;
    }
    for (id, level) in &snapshot.levels.containers {
        parts.put(4, &level_entry(id, level))?;
    }
    parts.flush()
}

/// A part is handed on when it has this size.
const PART_BYTES: usize = 32 << 10;

struct Parts<F> {
    buffer: Vec<u8>,
    take: F,
}

impl<F: FnMut(&[u8]) -> io::Result<()>> Parts<F> {
    fn put(&mut self, number: u32, entry: &impl Message) -> io::Result<()> {
        put_bytes_field(&mut self.buffer, number, &entry.encode_to_vec());
        if self.buffer.len() < PART_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        (self.take)(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// The bytes of a checkpoint file.
pub fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.resize(HEADER_BYTES, 0);
    let mut sum = crc32fast::Hasher::new();
    // Appending does not fail.
    let _ = in_parts(snapshot, |part| {
        sum.update(part);
        bytes.extend_from_slice(part);
        Ok(())
    });
    bytes.splice(MAGIC.len()..HEADER_BYTES, sum.finalize().to_be_bytes());
    bytes
}

/// Reads the bytes of a checkpoint file.
///
/// # Errors
///
/// Another format or version, or damage.
pub fn decode(bytes: &[u8]) -> Result<Snapshot, CheckpointError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(CheckpointError::Format)?;
    let (sum, payload) = rest.split_first_chunk::<4>().ok_or(CheckpointError::Format)?;
    let expected = u32::from_be_bytes(*sum);
    let found = crc32fast::hash(payload);
    if found != expected {
        return Err(CheckpointError::Checksum { found, expected });
    }
    decode_payload(payload)
}

/// Reads what follows the check sum, for fuzzing.
///
/// # Errors
///
/// Not an encoded content.
pub fn decode_payload(payload: &[u8]) -> Result<Snapshot, CheckpointError> {
    let content = FileContent::decode(payload)?;
    let pods = content.pods.into_iter().filter(|entry| !entry.id.is_empty()).map(|entry| {
        let record = PodRecord {
            metadata: entry.meta.unwrap_or_default(),
            runtime_handler: entry.runtime_handler,
            labels: entry.labels,
            annotations: entry.annotations,
            cgroup_parent: entry.cgroup_parent,
            kubelet_cgroup_parent: entry.kubelet_cgroup_parent,
            overhead: entry.overhead,
            resources: entry.resources,
            stopped: time(entry.stopped_at_milliseconds),
        };
        (entry.id, Arc::new(record))
    });
    let containers = content.containers.into_iter().filter(|entry| !entry.id.is_empty()).map(|entry| {
        let record = ContainerRecord {
            pod_id: entry.pod_id,
            metadata: ContainerMetadata { name: entry.name, attempt: entry.attempt, id: entry.id.clone() },
            annotations: entry.annotations.into(),
            resources: entry.resources,
            cgroup_parent: entry.cgroup_parent,
            envs: SharedMap::default(),
            stopped: time(entry.stopped_at_milliseconds),
        };
        (entry.id, Arc::new(record))
    });
    Ok(Snapshot {
        pods: pods.collect(),
        containers: containers.collect(),
        levels: Levels { pods: levels(content.pod_levels), containers: levels(content.container_levels) },
    })
}

/// Writes a checkpoint so that a reader finds the old one or the new one, whenever this process dies.
///
/// # Errors
///
/// What the file system said.
pub fn write(directory: &Path, snapshot: &Snapshot, failpoints: &Failpoints) -> io::Result<()> {
    let temporary = directory.join(TEMPORARY_NAME);
    failpoints.pass("checkpoint-create")?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    // A left-over file keeps its mode when it is opened.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    failpoints.pass("checkpoint-write")?;
    file.write_all(MAGIC)?;
    file.write_all(&[0; HEADER_BYTES - MAGIC.len()])?;
    let mut sum = crc32fast::Hasher::new();
    in_parts(snapshot, |part| {
        sum.update(part);
        file.write_all(part)
    })?;
    file.write_all_at(&sum.finalize().to_be_bytes(), MAGIC.len() as u64)?;
    failpoints.pass("checkpoint-sync")?;
    file.sync_data()?;
    failpoints.pass("checkpoint-rename")?;
    fs::rename(&temporary, directory.join(FILE_NAME))?;
    failpoints.pass("checkpoint-done")
}

/// Reads the checkpoint; `None` if there is none.
///
/// # Errors
///
/// It cannot be read or used.
pub fn read(directory: &Path) -> Result<Option<Snapshot>, CheckpointError> {
    let file = match File::open(directory.join(FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(CheckpointError::Size);
    }
    decode(&bytes).map(Some)
}

/// Puts the checkpoint's records into the store, where the next list of the runtime will sort them out. Only
/// before calls are served.
///
/// A damaged file is worth one warning and nothing else. Returns how many pods and containers were read.
pub fn load(directory: &Path, store: &Store) -> (usize, usize) {
    match read(directory) {
        Ok(Some(snapshot)) => {
            let count = (snapshot.pods.len(), snapshot.containers.len());
            store.restore(snapshot);
            count
        }
        Ok(None) => (0, 0),
        Err(error) => {
            tracing::warn!(
                file = %directory.join(FILE_NAME).display(),
                error = %koord_runtime::error_chain::Chain(&error),
                "checkpoint ignored"
            );
            (0, 0)
        }
    }
}

/// Writes the store to its state directory while the directory's lock is held.
#[derive(Debug)]
pub struct Checkpointer {
    store: Arc<Store>,
    directory: Arc<StateDirectory>,
    failpoints: Failpoints,
}

impl Checkpointer {
    /// Nothing is written before [`Checkpointer::run`].
    pub fn new(store: Arc<Store>, directory: Arc<StateDirectory>, failpoints: Failpoints) -> Self {
        Self { store, directory, failpoints }
    }

    /// Writes after changes, with a pause after each write, until the future is dropped.
    pub async fn run(&self) {
        let (mut changes, mut levels) = (self.store.changes(), self.store.ledger().changes());
        changes.mark_changed();
        loop {
            tokio::select! {
                Ok(()) = changes.changed() => {}
                Ok(()) = levels.changed() => {}
                else => return,
            }
            levels.mark_unchanged();
            changes.mark_unchanged();
            let begun = Instant::now();
            self.write().await;
            tokio::time::sleep(pause_after(begun.elapsed())).await;
        }
    }

    /// Writes now; for the shutdown. A failure is logged, and the next change tries again.
    pub async fn write(&self) {
        let snapshot = self.store.snapshot();
        let (directory, failpoints) = (self.directory.clone(), self.failpoints.clone());
        let written = tokio::task::spawn_blocking(move || {
            directory.while_held(|path| write(path, &snapshot, &failpoints))
        });
        match written.await {
            Ok(None | Some(Ok(()))) => {}
            Ok(Some(Err(error))) => {
                tracing::warn!(directory = %self.directory.path().display(), %error, "checkpoint not written");
            }
            Err(error) => tracing::error!(%error, "writing the checkpoint ended in a panic"),
        }
    }
}

#[cfg(test)]
mod tests;
