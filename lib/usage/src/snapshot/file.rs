//! The file of a snapshot. It is replaced as a whole; it is a cache, so that no failure must end the process.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Name of the file in its directory.
pub const FILE_NAME: &str = "usage.snapshot";

/// The kernel's file with the identity of the boot, below the root of procfs.
const BOOT_ID: &str = "sys/kernel/random/boot_id";

/// Why the file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{path} cannot be read", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("{path} cannot be written", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// It is larger than allowed.
    #[error("{path} has {found} octets, more than {allowed}", path = path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its octets; when it is read, at least so many.
        found: u64,
        /// Octets at most.
        allowed: u64,
    },
}

impl FileError {
    /// Whether the file system has no room.
    pub fn is_no_space(&self) -> bool {
        let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, FileError::Write { source, .. } if kinds.contains(&source.kind()))
    }
}

/// The place of a snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotFile {
    directory: PathBuf,
    max_bytes: u64,
}

impl SnapshotFile {
    /// A file of at most `max_bytes` in `directory`, which is made when it is written.
    pub fn new(directory: impl Into<PathBuf>, max_bytes: u64) -> SnapshotFile {
        SnapshotFile { directory: directory.into(), max_bytes }
    }

    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    /// What was written last; `None` if there is no file.
    ///
    /// # Errors
    /// It cannot be read or is too large.
    pub fn load(&self) -> Result<Option<Vec<u8>>, FileError> {
        let path = self.path();
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(&path)?.take(self.max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) if bytes.len() as u64 > self.max_bytes => {
                Err(FileError::Size { path, found: bytes.len() as u64, allowed: self.max_bytes })
            }
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FileError::Read { path, source }),
        }
    }

    /// Replaces the file. After a failure the one before is still there.
    ///
    /// # Errors
    /// It is too large or cannot be written; see [`FileError::is_no_space`].
    pub fn save(&self, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.path();
        let found = bytes.len() as u64;
        if found > self.max_bytes {
            return Err(FileError::Size { path, found, allowed: self.max_bytes });
        }
        let temporary = self.directory.join(format!("{FILE_NAME}.new"));
        // Nothing is flushed to the disk: a crash of the machine ends the boot, and with it the use of the file.
        let written = fs::create_dir_all(&self.directory)
            .and_then(|()| fs::write(&temporary, bytes))
            .and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| {
            // What was written of it would only take room; that it is not there at all is as good.
            let _ = fs::remove_file(&temporary);
            FileError::Write { path, source }
        })
    }
}

/// The identity of the boot, from the procfs at `proc`.
///
/// # Errors
/// The file cannot be read.
pub fn boot_id(proc: &Path) -> Result<String, FileError> {
    let path = proc.join(BOOT_ID);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(source) => Err(FileError::Read { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = SnapshotFile::new(folder.path().join("metric-data"), 4);
        assert_eq!(file.load().expect("no file is no failure"), None);
        file.save(b"one").expect("the folder is made");
        file.save(b"four").expect("exactly as much as allowed");
        assert_eq!(file.load().expect("it is there"), Some(b"four".to_vec()));
        assert!(matches!(file.save(b"five5"), Err(FileError::Size { found: 5, allowed: 4, .. })));
        assert_eq!(file.load().expect("the one before stays"), Some(b"four".to_vec()));
        let names: Vec<_> = fs::read_dir(folder.path().join("metric-data")).expect("a folder").collect();
        assert_eq!(names.len(), 1);

        let narrow = SnapshotFile::new(folder.path().join("metric-data"), 3);
        assert!(matches!(narrow.load(), Err(FileError::Size { found: 4, allowed: 3, .. })));
    }

    #[test]
    fn failures_name_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), "").expect("a file");
        let error =
            SnapshotFile::new(folder.path().join("file"), 9).save(b"x").expect_err("a file is no folder");
        assert!(error.to_string().ends_with("file/usage.snapshot cannot be written"), "{error}");
        assert!(!error.is_no_space());
        let full = FileError::Write { path: PathBuf::new(), source: io::Error::from_raw_os_error(28) };
        assert!(full.is_no_space(), "ENOSPC");
    }

    #[test]
    fn the_boot_has_an_identity() {
        let id = boot_id(Path::new("/proc")).expect("the kernel has one");
        assert_eq!((id.len(), id.matches('-').count()), (36, 4), "{id}");
        assert!(boot_id(Path::new("/nonexistent")).is_err());
    }
}
