//! Who may write the state directory.
//!
//! Two proxies can be alive at once: an old one that drains, and its successor. Only the holder of the
//! directory's lock writes checkpoints, so the drained one cannot overwrite what the new one saved. The
//! lock ends with the process, however it ends.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Name of the locked file.
const LOCK_FILE: &str = "lock";

/// Pause between attempts while another process holds the lock.
const ATTEMPT_EVERY: Duration = Duration::from_millis(20);

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}", path = .path.display())]
pub struct StateDirectoryError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A state directory and, perhaps, the right to write in it.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    lock: Mutex<Option<File>>,
}

impl StateDirectory {
    /// Creates the directory with mode 0700 if it is missing. Takes no lock.
    ///
    /// # Errors
    /// It is missing and cannot be created.
    pub fn open(path: &Path) -> Result<StateDirectory, StateDirectoryError> {
        let failed = |source| StateDirectoryError { action: "create", path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
        }
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        Ok(StateDirectory { path: path.to_owned(), lock: Mutex::new(None) })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process may write.
    pub fn is_held(&self) -> bool {
        self.held().is_some()
    }

    /// Runs `write` while the lock is certain to be held. `None` if it is not held; `write` did not run then.
    ///
    /// [`StateDirectory::release`] waits for it, so nothing is written after the lock is gone.
    pub fn while_held<T>(&self, write: impl FnOnce(&Path) -> T) -> Option<T> {
        let held = self.held();
        held.as_ref().map(|_file| write(&self.path))
    }

    /// Tries to take the lock. False if another process has it.
    ///
    /// # Errors
    /// The lock file cannot be opened or locked.
    pub fn try_acquire(&self) -> Result<bool, StateDirectoryError> {
        let mut held = self.held();
        if held.is_some() {
            return Ok(true);
        }
        let path = self.path.join(LOCK_FILE);
        let failed = |action| {
            let path = path.clone();
            move |source| StateDirectoryError { action, path, source }
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {
                *held = Some(file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(failed("lock")(error)),
        }
    }

    /// Takes the lock, waiting for another process to give it up at most `limit`. False if it did not.
    ///
    /// # Errors
    /// The lock file cannot be opened or locked.
    pub async fn acquire(&self, limit: Duration) -> Result<bool, StateDirectoryError> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            if self.try_acquire()? {
                return Ok(true);
            }
            if tokio::time::Instant::now() >= deadline {
                return Ok(false);
            }
            tokio::time::sleep(ATTEMPT_EVERY).await;
        }
    }

    /// Gives the lock up.
    pub fn release(&self) {
        // Closing the file unlocks it. The file stays: removing it would let two processes lock two files.
        drop(self.held().take());
    }

    /// Removes the files of this directory whose name starts with `prefix`: what a process that was
    /// killed while writing left behind. Does nothing unless the lock is held.
    pub fn remove_leftovers(&self, prefix: &str) {
        let _ran = self.while_held(|path| {
            let Ok(entries) = fs::read_dir(path) else { return };
            for entry in entries.flatten() {
                if entry.file_name().to_string_lossy().starts_with(prefix)
                    && let Err(error) = fs::remove_file(entry.path())
                {
                    tracing::warn!(file = %entry.path().display(), error = %error, "leftover not removed");
                }
            }
        });
    }

    fn held(&self) -> MutexGuard<'_, Option<File>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("run/state");
        (parent, path)
    }

    #[test]
    fn one_holder_at_a_time() {
        let (_parent, path) = directory();
        let first = StateDirectory::open(&path).expect("made");
        let second = StateDirectory::open(&path).expect("there");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o700);
        assert!(!first.is_held());
        assert_eq!(first.while_held(|_| ()), None);

        assert!(first.try_acquire().expect("locked"));
        assert!(first.try_acquire().expect("held already"));
        assert!(!second.try_acquire().expect("refused"));
        assert_eq!(first.while_held(Path::to_owned), Some(path));
        assert_eq!(second.while_held(|_| ()), None);

        first.release();
        assert!(second.try_acquire().expect("locked"));
        assert!(!first.try_acquire().expect("refused"));
        drop(second);
        assert!(first.try_acquire().expect("freed by its end"));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_the_holder() {
        let (_parent, path) = directory();
        let first = StateDirectory::open(&path).expect("made");
        let second = StateDirectory::open(&path).expect("there");
        assert!(first.try_acquire().expect("locked"));
        assert!(!second.acquire(Duration::from_secs(1)).await.expect("timed out"));
        let (acquired, ()) = tokio::join!(second.acquire(Duration::from_secs(1)), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            first.release();
        });
        assert!(acquired.expect("locked"));
    }

    #[test]
    fn leftovers_are_removed_by_the_holder_only() {
        let (_parent, path) = directory();
        let state = StateDirectory::open(&path).expect("made");
        for name in [".store.v1.1", ".store.v1.2", "store.v1"] {
            fs::write(path.join(name), "x").expect("written");
        }
        state.remove_leftovers(".store.v1.");
        assert!(path.join(".store.v1.1").exists());
        assert!(state.try_acquire().expect("locked"));
        state.remove_leftovers(".store.v1.");
        let mut names: Vec<_> =
            fs::read_dir(&path).expect("listed").flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["lock", "store.v1"]);
    }

    #[test]
    fn a_path_through_a_file_is_an_error_that_names_it() {
        let parent = tempfile::tempdir().expect("a folder");
        fs::write(parent.path().join("file"), "x").expect("written");
        let path = parent.path().join("file/state");
        let error = StateDirectory::open(&path).expect_err("refused");
        assert_eq!(error.to_string(), format!("cannot create {}", path.display()));
    }
}
