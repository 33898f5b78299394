//! The one outside thing of this crate: directories and files of control groups.
//!
//! A directory is opened once and its files are opened relative to it, so that a group which is removed and made again
//! between two steps is never mistaken for the first one. No step follows a link or leaves the tree.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Longest file read, in octets: room for the ids of half a million tasks.
const FILE_OCTETS: usize = 4 << 20;

/// Tells a directory from another that had its name before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Number of the file system.
    pub device: u64,
    /// Number in it.
    pub inode: u64,
}

/// An open directory of a group.
pub trait Directory: Send {
    /// Which directory it is.
    fn identity(&self) -> Result<Identity, Errno>;
    /// The text of a file.
    fn read(&self, file: &str) -> Result<String, Errno>;
    /// Writes a file's text in one call.
    fn write(&self, file: &str, text: &str) -> Result<(), Errno>;
    /// True if the file exists.
    fn has(&self, file: &str) -> Result<bool, Errno>;
    /// Names of the groups right below.
    fn children(&self) -> Result<Vec<String>, Errno>;
}

/// Opens directories of groups.
pub trait Files: Send + Sync + fmt::Debug {
    /// Opens `path`, relative and without `..`, below `root`.
    fn open(&self, root: &std::path::Path, path: &str) -> Result<Box<dyn Directory>, Errno>;

    /// Which directory `path` is now, without opening it.
    fn identity(&self, root: &std::path::Path, path: &str) -> Result<Identity, Errno> {
        self.open(root, path)?.identity()
    }
}

/// The kernel's files.
#[derive(Debug, Default)]
pub struct KernelFiles {
    /// Open roots of hierarchies.
    roots: Mutex<HashMap<PathBuf, Arc<OwnedFd>>>,
}

impl KernelFiles {
    fn root(&self, root: &std::path::Path) -> Result<Arc<OwnedFd>, Errno> {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = roots.get(root) {
            return Ok(Arc::clone(open));
        }
        let open = rustix::fs::openat(CWD, root, directory_flags(), Mode::empty())?;
        let open = Arc::new(open);
        roots.insert(root.to_owned(), Arc::clone(&open));
        Ok(open)
    }
}

fn directory_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

impl Files for KernelFiles {
    fn open(&self, root: &std::path::Path, path: &str) -> Result<Box<dyn Directory>, Errno> {
        let root = self.root(root)?;
        let path = if path.is_empty() { "." } else { path };
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(&*root, path, directory_flags(), Mode::empty(), beneath);
        let directory = match opened {
            // Kernels before 5.6 have no openat2, and some filters of system calls refuse it.
            Err(Errno::NOSYS | Errno::PERM) => open_by_levels(&root, path)?,
            other => other?,
        };
        Ok(Box::new(KernelDirectory(directory)))
    }

    fn identity(&self, root: &std::path::Path, path: &str) -> Result<Identity, Errno> {
        // One system call. A link on the way would give another directory than `open` finds, so another identity than
        // the remembered one, and then `open` has the last word.
        let root = self.root(root)?;
        let path = if path.is_empty() { "." } else { path };
        let found = rustix::fs::statat(&*root, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Identity { device: found.st_dev, inode: found.st_ino })
    }
}

fn open_by_levels(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = directory_flags() | OFlags::NOFOLLOW;
    let mut levels = path.split('/');
    let first = levels.next().unwrap_or(".");
    let open = |parent: &OwnedFd, level: &str| match level {
        ".." => Err(Errno::XDEV),
        level => rustix::fs::openat(parent, level, flags, Mode::empty()),
    };
    let mut directory = open(root, first)?;
    for level in levels {
        directory = open(&directory, level)?;
    }
    Ok(directory)
}

/// An open directory of the kernel's.
struct KernelDirectory(OwnedFd);

impl Directory for KernelDirectory {
    fn identity(&self) -> Result<Identity, Errno> {
        let found = rustix::fs::fstat(&self.0)?;
        Ok(Identity { device: found.st_dev, inode: found.st_ino })
    }

    fn read(&self, file: &str) -> Result<String, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = rustix::fs::openat(&self.0, file, flags, Mode::empty())?;
        read_all(open.as_fd())
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Errno> {
        // Truncating does nothing to the kernel's files; it lets plain files stand in for them.
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = rustix::fs::openat(&self.0, file, flags, Mode::empty())?;
        write_once(open.as_fd(), text)
    }

    fn has(&self, file: &str) -> Result<bool, Errno> {
        match rustix::fs::statat(&self.0, file, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn children(&self) -> Result<Vec<String>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::openat(&self.0, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let is_directory = entry.file_type() == rustix::fs::FileType::Directory;
            if let (true, Ok(name)) = (is_directory, entry.file_name().to_str())
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

/// The whole text of an open file.
pub(crate) fn read_all(file: std::os::fd::BorrowedFd<'_>) -> Result<String, Errno> {
    let mut text = vec![0; 4096];
    let mut length = 0;
    loop {
        if length == text.len() {
            if length >= FILE_OCTETS {
                return Err(Errno::FBIG);
            }
            text.resize(length * 4, 0);
        }
        let room = text.get_mut(length..).unwrap_or_default();
        match rustix::io::read(file, room) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    text.truncate(length);
    String::from_utf8(text).map_err(|_| Errno::ILSEQ)
}

/// Writes a text in one call, as files of the kernel want it.
pub(crate) fn write_once(file: std::os::fd::BorrowedFd<'_>, text: &str) -> Result<(), Errno> {
    loop {
        return match rustix::io::write(file, text.as_bytes()) {
            Ok(count) if count == text.len() => Ok(()),
            Ok(_) => Err(Errno::IO),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_of_an_open_directory() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/cpu.shares"), "1024\n").unwrap();
        let files = KernelFiles::default();
        let directory = files.open(root.path(), "a").unwrap();
        assert_eq!(directory.read("cpu.shares").unwrap(), "1024\n");
        directory.write("cpu.shares", "2").unwrap();
        assert_eq!(fs::read_to_string(root.path().join("a/cpu.shares")).unwrap(), "2");
        assert_eq!(directory.write("cpu.idle", "1"), Err(Errno::NOENT));
        assert_eq!(directory.has("cpu.shares"), Ok(true));
        assert_eq!(directory.has("cpu.idle"), Ok(false));
        assert_eq!(directory.children().unwrap(), ["b"]);
        assert_eq!(files.open(root.path(), "").unwrap().children().unwrap(), ["a"]);
        // The same directory has the same identity, a new one of the same name another.
        let first = directory.identity().unwrap();
        assert_eq!(files.open(root.path(), "a").unwrap().identity().unwrap(), first);
        assert_eq!(files.identity(root.path(), "a"), Ok(first));
        assert_eq!(files.identity(root.path(), "b"), Err(Errno::NOENT));
        fs::rename(root.path().join("a"), root.path().join("old")).unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        assert_ne!(files.open(root.path(), "a").unwrap().identity().unwrap(), first);
        assert_eq!(directory.read("cpu.shares").unwrap(), "2");
    }

    #[test]
    fn no_link_is_followed_and_nothing_left() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("cpu.shares"), "5").unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("cpu.shares"), root.path().join("a/cpu.shares"))
            .unwrap();
        let files = KernelFiles::default();
        assert_eq!(files.open(root.path(), "link").err(), Some(Errno::LOOP));
        assert!(files.open(root.path(), "a/../..").is_err());
        let directory = files.open(root.path(), "a").unwrap();
        assert_eq!(directory.write("cpu.shares", "7"), Err(Errno::LOOP));
        assert_eq!(directory.read("cpu.shares"), Err(Errno::LOOP));
        let open = rustix::fs::openat(CWD, root.path(), directory_flags(), Mode::empty()).unwrap();
        assert!(open_by_levels(&open, "a").is_ok());
        // Opened as a directory the link itself is none.
        assert_eq!(open_by_levels(&open, "link").err(), Some(Errno::NOTDIR));
        assert_eq!(open_by_levels(&open, "a/..").err(), Some(Errno::XDEV));
    }

    #[test]
    fn long_files_are_read_whole() {
        let root = tempfile::tempdir().unwrap();
        let text: String = (0..40_000).map(|id| format!("{id}\n")).collect();
        fs::write(root.path().join("tasks"), &text).unwrap();
        assert_eq!(KernelFiles::default().open(root.path(), "").unwrap().read("tasks").unwrap(), text);
    }
}
