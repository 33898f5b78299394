//! Hook server registrations: one JSON file per server in a watched directory.
//!
//! [`Registration::parse`] turns bytes into a registration and does nothing else. [`Registrations`] reads the
//! directory, keeps the table in force, and follows changes.

pub(crate) mod directory;
mod parse;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::chain::{Carrier, Entry};
use crate::endpoint::Endpoint;
use crate::metrics::HookMetrics;
use crate::trust::Trust;
use crate::watch::{self, Reload};
use koord_hook::{HookSet, HookType, ServerOptions};

pub use crate::keys::KeyError as RegistrationError;
pub use directory::{DirectoryError, FileError};
pub use koord_hook::options::{FailurePolicy, ResourceMerge, UpdateScope};

/// Largest registration file.
pub const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The content of one registration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The server's socket.
    pub endpoint: Endpoint,
    /// `failure-policy` as it was written.
    pub failure_policy_text: String,
    /// What the text means.
    pub failure_policy: FailurePolicy,
    /// The hooks the server wants to be asked at.
    pub hooks: HookSet,
    /// Cap of this server's calls; `None` leaves only the cap of the program.
    pub timeout: Option<Duration>,
    /// Servers with lower numbers are asked first.
    pub priority: i64,
    /// How answered resources are merged.
    pub resource_merge: ResourceMerge,
    /// Whether answered pod resources are written into the request.
    pub apply_pod_resources: bool,
    /// What an update request is made to carry.
    pub update_scope: UpdateScope,
}

impl Registration {
    /// How the server's answers are used.
    pub fn options(&self) -> ServerOptions {
        ServerOptions {
            resource_merge: self.resource_merge,
            apply_pod_resources: self.apply_pod_resources,
            update_scope: self.update_scope,
        }
    }
}

/// A registration in force.
#[derive(Debug, PartialEq, Eq)]
pub struct Server {
    /// The file's name, which identifies the server in logs and metrics.
    pub name: String,
    /// What the file says.
    pub registration: Registration,
}

impl Server {
    /// The server as one of the chain of hooks.
    pub fn entry(&self) -> Entry {
        Entry {
            name: self.name.clone(),
            priority: self.registration.priority,
            stages: self.registration.hooks,
            failure_policy: self.registration.failure_policy,
            timeout: self.registration.timeout,
            options: self.registration.options(),
            carrier: Carrier::Remote(self.registration.endpoint.clone()),
        }
    }
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// The file's name.
    pub name: String,
    /// Why its present content is rejected; `None` if it is in force.
    pub error: Option<String>,
    /// Whether a (possibly earlier) content of the file is in force.
    pub in_force: bool,
}

/// All registrations in force at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table {
    servers: Vec<Arc<Server>>,
    hooks: HookSet,
    files: Vec<FileReport>,
    directory_error: Option<String>,
}

impl Table {
    fn new(mut servers: Vec<Arc<Server>>, files: Vec<FileReport>, directory_error: Option<String>) -> Self {
        servers.sort_by(|a, b| {
            (a.registration.priority, a.name.as_bytes()).cmp(&(b.registration.priority, b.name.as_bytes()))
        });
        let hooks =
            servers.iter().fold(HookSet::default(), |all, server| all.union(server.registration.hooks));
        Self { servers, hooks, files, directory_error }
    }

    /// A table of these servers, for tests and for programs that bring their own.
    pub fn of(servers: impl IntoIterator<Item = Server>) -> Self {
        Self::new(servers.into_iter().map(Arc::new).collect(), Vec::new(), None)
    }

    /// The servers, in the order they are asked.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// The servers registered for `hook`, in the order they are asked.
    pub fn servers_for(&self, hook: HookType) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.iter().filter(move |server| server.registration.hooks.contains(hook))
    }

    /// Every hook at least one server is registered for.
    pub fn hooks(&self) -> HookSet {
        self.hooks
    }

    /// What became of each file.
    pub fn files(&self) -> &[FileReport] {
        &self.files
    }

    /// Why the directory itself could not be used, if so; the servers are those from before.
    pub fn directory_error(&self) -> Option<&str> {
        self.directory_error.as_deref()
    }
}

/// The table in force and the means to renew it.
pub struct Registrations {
    directory: PathBuf,
    trust: Trust,
    metrics: Arc<dyn HookMetrics>,
    table: ArcSwap<Table>,
    known: Mutex<directory::Known>,
    changes: tokio::sync::watch::Sender<u64>,
}

impl std::fmt::Debug for Registrations {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Registrations")
            .field("directory", &self.directory)
            .field("table", &self.table.load())
            .finish_non_exhaustive()
    }
}

impl Registrations {
    /// Nothing is read yet: follow with [`Registrations::reload`] and run [`Registrations::watch`].
    pub fn new(directory: PathBuf, trust: Trust, metrics: impl HookMetrics) -> Self {
        Self {
            directory,
            trust,
            metrics: Arc::new(metrics),
            table: ArcSwap::default(),
            known: Mutex::default(),
            changes: tokio::sync::watch::Sender::new(0),
        }
    }

    /// The watched directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The table in force.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// The hooks in force, without taking hold of the table.
    pub fn hooks(&self) -> HookSet {
        self.table.load().hooks
    }

    /// Announces each new table by a number that grows.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Puts `table` in force, whatever the directory says.
    pub fn replace(&self, table: Table) {
        self.table.store(Arc::new(table));
        self.changes.send_modify(|number| *number += 1);
    }

    /// Reads the directory, creating it if it is missing, and puts the result in force at once.
    ///
    /// Whatever cannot be used leaves what was in force before; it is logged, counted and reported in the
    /// table. Returns whether the table changed.
    pub fn reload(&self) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let scan = directory::scan(&self.directory, &self.trust);
        let table = known.take(scan, &self.directory, &*self.metrics);
        if *self.table.load_full() == table {
            return false;
        }
        self.replace(table);
        true
    }

    /// Follows the directory until the future is dropped.
    pub async fn watch(&self) {
        watch::follow(self).await;
    }
}

impl Reload for Registrations {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn what(&self) -> &'static str {
        "hook server registrations"
    }

    async fn reload(&self) {
        Self::reload(self);
    }
}

/// A registration file as it was found.
#[derive(Debug)]
pub struct FoundFile {
    /// The file's name.
    pub name: String,
    /// Its registration, or what is wrong with it.
    pub registration: Result<Registration, FileError>,
}

/// Reads a directory once, for `validate`. Nothing is created.
///
/// # Errors
///
/// The directory is missing, unreadable, or its owner or mode is not acceptable.
pub fn read_directory(directory: &Path, trust: &Trust) -> Result<Vec<FoundFile>, DirectoryError> {
    let scan = directory::scan_existing(directory, trust)?;
    Ok(scan
        .into_iter()
        .map(|(name, file)| FoundFile { name, registration: file.and_then(|file| file.parse()) })
        .collect())
}

#[cfg(test)]
mod tests;
