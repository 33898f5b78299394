//! Reading the registration directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use koord_runtime::error_chain::Chain;
use nix::fcntl::OFlag;

use crate::metrics::HookMetrics;
use crate::trust::Trust;

use super::{FileReport, MAX_FILE_BYTES, Registration, RegistrationError, Server, Table};

/// Mode of the directory when the proxy creates it.
const DIRECTORY_MODE: u32 = 0o755;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It is missing and cannot be created.
    #[error("cannot create the directory {directory}", directory = .directory.display())]
    Create {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be listed.
    #[error("cannot read the directory {directory}", directory = .directory.display())]
    Read {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A user who is not trusted owns it.
    #[error("the directory {directory} is owned by user {uid}; accepted is {accepted}", directory = .directory.display())]
    Owner {
        /// The directory.
        directory: PathBuf,
        /// Its owner.
        uid: u32,
        /// Who is accepted.
        accepted: String,
    },
    /// Others may write to it.
    #[error("the directory {directory} has the mode {mode:04o}; it must not be writable by group or others", directory = .directory.display())]
    Mode {
        /// The directory.
        directory: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// Why a file's content is not in force. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot be read")]
    Read(#[from] io::Error),
    /// It is a directory's sibling of some other kind: a socket, a pipe, a device.
    #[error("is not a regular file")]
    Kind,
    /// A user who is not trusted owns it.
    #[error("is owned by user {uid}; accepted is {accepted}")]
    Owner {
        /// Its owner.
        uid: u32,
        /// Who is accepted.
        accepted: String,
    },
    /// Others may write to it.
    #[error("has the mode {mode:04o}; it must not be writable by group or others")]
    Mode {
        /// Its permission bits.
        mode: u32,
    },
    /// It is too large.
    #[error("is {size} bytes long; at most {MAX_FILE_BYTES} are accepted")]
    Size {
        /// Its size, or how much was read of a growing file.
        size: u64,
    },
    /// Its content is no registration.
    #[error(transparent)]
    Content(#[from] RegistrationError),
}

/// A file as it was read.
#[derive(Debug)]
pub(crate) struct ReadFile {
    pub(super) identity: Identity,
    pub(crate) content: Vec<u8>,
}

impl ReadFile {
    pub(super) fn parse(&self) -> Result<Registration, FileError> {
        Ok(Registration::parse(&self.content)?)
    }
}

/// What makes a content a new one. Includes a hash of the content: clocks are coarse and inodes are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    content_hash: u64,
}

/// The readable files by name, each with its content or what is wrong.
pub(super) type Scan = BTreeMap<String, Result<ReadFile, FileError>>;

/// Lists the directory, creating it first if it is missing.
pub(super) fn scan(directory: &Path, trust: &Trust) -> Result<Scan, DirectoryError> {
    match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new()
                .recursive(true)
                .mode(DIRECTORY_MODE)
                .create(directory)
                .map_err(|source| DirectoryError::Create { directory: directory.to_owned(), source })?;
        }
        _ => {}
    }
    scan_existing(directory, trust)
}

/// Lists a directory whose owner and mode are acceptable.
pub(crate) fn list(directory: &Path, trust: &Trust) -> Result<Vec<fs::DirEntry>, DirectoryError> {
    let unreadable = |source| DirectoryError::Read { directory: directory.to_owned(), source };
    let metadata = fs::metadata(directory).map_err(unreadable)?;
    if !trust.accepts(metadata.uid()) {
        return Err(DirectoryError::Owner {
            directory: directory.to_owned(),
            uid: metadata.uid(),
            accepted: trust.to_string(),
        });
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(DirectoryError::Mode { directory: directory.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    fs::read_dir(directory).and_then(Iterator::collect).map_err(unreadable)
}

pub(super) fn scan_existing(directory: &Path, trust: &Trust) -> Result<Scan, DirectoryError> {
    let mut files = Scan::new();
    for entry in list(directory, trust)? {
        let Some(name) = registration_name(entry.file_name()) else { continue };
        match read_file(&entry.path(), trust) {
            Ok(Some(file)) => {
                files.insert(name, Ok(file));
            }
            Ok(None) => {}
            // Gone between listing and opening.
            Err(FileError::Read(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                files.insert(name, Err(error));
            }
        }
    }
    Ok(files)
}

/// The name, if it is one of a registration: it ends in `json` and is not hidden.
fn registration_name(name: OsString) -> Option<String> {
    let name = name.to_string_lossy().into_owned();
    (name.ends_with("json") && !name.starts_with('.')).then_some(name)
}

/// Reads a small file; `None` for a directory.
pub(crate) fn read_file(path: &Path, trust: &Trust) -> Result<Option<ReadFile>, FileError> {
    // Not blocking: a pipe of that name must not hang the reader.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Ok(None);
    }
    if !metadata.is_file() {
        return Err(FileError::Kind);
    }
    if !trust.accepts(metadata.uid()) {
        return Err(FileError::Owner { uid: metadata.uid(), accepted: trust.to_string() });
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(FileError::Mode { mode });
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(FileError::Size { size: metadata.len() });
    }
    let content = read_capped(file)?;
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let identity = Identity {
        inode: metadata.ino(),
        size: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        content_hash: hasher.finish(),
    };
    Ok(Some(ReadFile { identity, content }))
}

fn read_capped(file: File) -> Result<Vec<u8>, FileError> {
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    let size = content.len() as u64;
    if size > MAX_FILE_BYTES { Err(FileError::Size { size }) } else { Ok(content) }
}

/// What is remembered of the files between scans.
#[derive(Debug, Default)]
pub(super) struct Known {
    files: BTreeMap<String, KnownFile>,
    directory_error: Option<String>,
}

#[derive(Debug, Default)]
struct KnownFile {
    /// Of the content looked at last, good or bad.
    identity: Option<Identity>,
    error: Option<String>,
    in_force: Option<Arc<Server>>,
}

impl Known {
    /// Takes a scan in and gives the table that follows from it.
    pub(super) fn take(
        &mut self,
        scan: Result<Scan, DirectoryError>,
        directory: &Path,
        metrics: &dyn HookMetrics,
    ) -> Table {
        match scan {
            Ok(scan) => {
                self.directory_error = None;
                self.take_files(scan, directory, metrics);
            }
            Err(error) => {
                let error = Chain(&error).to_string();
                if self.directory_error.as_ref() != Some(&error) {
                    tracing::error!(directory = %directory.display(), error, "registration directory not usable");
                    metrics.config_rejected(&directory.display().to_string());
                    self.directory_error = Some(error);
                }
            }
        }
        let servers = self.files.values().filter_map(|file| file.in_force.clone()).collect();
        let reports = self
            .files
            .iter()
            .map(|(name, file)| FileReport {
                name: name.clone(),
                error: file.error.clone(),
                in_force: file.in_force.is_some(),
            })
            .collect();
        Table::new(servers, reports, self.directory_error.clone())
    }

    fn take_files(&mut self, scan: Scan, directory: &Path, metrics: &dyn HookMetrics) {
        self.files.retain(|name, _| {
            let there = scan.contains_key(name);
            if !there {
                tracing::info!(file = %directory.join(name).display(), "hook server registration removed");
                metrics.config_removed(name);
            }
            there
        });
        for (name, read) in scan {
            let known = self.files.entry(name.clone()).or_default();
            let identity = read.as_ref().ok().map(|file| file.identity);
            if identity.is_some() && identity == known.identity {
                continue;
            }
            let path = directory.join(&name);
            match read.and_then(|file| file.parse()) {
                Ok(registration) => {
                    tracing::info!(
                        file = %path.display(),
                        endpoint = %registration.endpoint,
                        policy = registration.failure_policy.as_str(),
                        hooks = ?registration.hooks,
                        "hook server registered"
                    );
                    metrics.config_loaded(&name);
                    known.error = None;
                    known.in_force = Some(Arc::new(Server { name, registration }));
                }
                Err(error) => {
                    let error = Chain(&error).to_string();
                    if identity.is_some() || known.error.as_ref() != Some(&error) {
                        tracing::warn!(
                            file = %path.display(),
                            error,
                            previous_content_in_force = known.in_force.is_some(),
                            "registration file rejected"
                        );
                        metrics.config_rejected(&name);
                    }
                    known.error = Some(error);
                }
            }
            known.identity = identity;
        }
    }
}
