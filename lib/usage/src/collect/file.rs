//! Files that stay open, and the one buffer they are read into.
//!
//! Finding and opening a small file of a control group costs several times what reading it costs. A file is opened once and
//! read again from its start; the kernel then says whether its group still exists.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, pread};

use super::text::TextError;

/// Why a file gave no figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is no such file, or its group was removed.
    #[error("gone")]
    Gone,
    /// The kernel has the file and does not fill it: the feature is off.
    #[error("not supported by the kernel as it was started")]
    Unsupported,
    /// Another error.
    #[error("cannot read {file}")]
    Failed {
        /// Name of the file, without the directory.
        file: &'static str,
        /// What the kernel said.
        source: Errno,
    },
    /// It does not read as it should.
    #[error(transparent)]
    Text(#[from] TextError),
}

impl ReadError {
    fn new(file: &'static str, source: Errno) -> ReadError {
        match source {
            Errno::NOENT | Errno::NODEV | Errno::NOTDIR => ReadError::Gone,
            Errno::OPNOTSUPP | Errno::NOSYS => ReadError::Unsupported,
            source => ReadError::Failed { file, source },
        }
    }
}

/// Octets that a read fills, again and again.
#[derive(Debug)]
pub struct Buffer(Vec<u8>);

/// Files of the kernel that are read here end far below this.
const LARGEST: usize = 4 << 20;

impl Buffer {
    /// One of 4 KiB, which holds the files of most groups; it grows when a file is larger.
    pub fn new() -> Buffer {
        Buffer(vec![0; 4096])
    }

    /// The whole text of an open file.
    ///
    /// # Errors
    /// The kernel's; `EFBIG` for more than 4 MiB.
    pub fn fill(&mut self, file: impl AsFd) -> Result<&[u8], Errno> {
        loop {
            let length = pread(&file, self.0.as_mut_slice(), 0)?;
            if length < self.0.len() {
                return self.0.get(..length).ok_or(Errno::IO);
            }
            // The text may go on. It is read again from its start, so that it is of one moment.
            if self.0.len() >= LARGEST {
                return Err(Errno::FBIG);
            }
            self.0.resize(self.0.len() * 2, 0);
        }
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::new()
    }
}

/// How much depends on a file being kept open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Importance {
    /// Read in every pass, or by a whole group of figures.
    Needed,
    /// Read rarely: opened for each read when descriptors get scarce.
    Optional,
}

/// How many files may be kept open.
#[derive(Debug, Clone)]
pub struct Descriptors(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    limit: usize,
    open: AtomicUsize,
}

impl Descriptors {
    /// Room for `limit` files.
    pub fn new(limit: usize) -> Descriptors {
        Descriptors(Arc::new(Counts { limit, open: AtomicUsize::new(0) }))
    }

    /// Files open now.
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// A place for one more file. Optional ones get three quarters of all places, so that those remain that matter.
    fn take(&self, importance: Importance) -> Option<Place> {
        let limit = match importance {
            Importance::Needed => self.0.limit,
            Importance::Optional => self.0.limit / 4 * 3,
        };
        let taken = self
            .0
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open < limit).then_some(open + 1));
        taken.is_ok().then(|| Place(Arc::clone(&self.0)))
    }
}

/// One taken place.
#[derive(Debug)]
struct Place(Arc<Counts>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A directory below which files are found.
#[derive(Debug)]
pub struct Tree {
    path: PathBuf,
    directory: Option<OwnedFd>,
}

impl Tree {
    /// The tree at `path`. That it exists is needed when a file is opened, not before.
    pub fn new(path: impl Into<PathBuf>) -> Tree {
        Tree { path: path.into(), directory: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open(&mut self, directory: &str, file: &str) -> Result<OwnedFd, Errno> {
        let root = match &self.directory {
            Some(root) => root,
            None => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                self.directory.insert(openat(CWD, &self.path, flags, Mode::empty())?)
            }
        };
        let mut name = Vec::with_capacity(directory.len() + 1 + file.len());
        name.extend_from_slice(directory.as_bytes());
        if !directory.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(file.as_bytes());
        openat(root, OsStr::from_bytes(&name), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens a directory below, for calls that take one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_directory(&mut self, directory: &str) -> io::Result<File> {
        File::open(self.path.join(directory))
    }
}

/// One file in a directory of a [`Tree`], kept open while there is room.
#[derive(Debug)]
pub struct KeptFile {
    name: &'static str,
    importance: Importance,
    held: Option<(OwnedFd, Place)>,
}

impl KeptFile {
    /// The file `name`, not opened yet.
    pub const fn new(name: &'static str, importance: Importance) -> KeptFile {
        KeptFile { name, importance, held: None }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it is open.
    pub const fn is_open(&self) -> bool {
        self.held.is_some()
    }

    /// Closes it.
    pub fn close(&mut self) {
        self.held = None;
    }

    /// Reads it whole. `directory` is relative to the tree and always the same.
    ///
    /// # Errors
    /// [`ReadError`]; after one the file is closed and will be looked up again.
    pub fn read<'a>(
        &mut self,
        tree: &mut Tree,
        directory: &str,
        room: &Descriptors,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8], ReadError> {
        let wrong = |error| ReadError::new(self.name, error);
        if self.held.is_none() {
            let file = tree.open(directory, self.name).map_err(wrong)?;
            match room.take(self.importance) {
                Some(place) => self.held = Some((file, place)),
                None => return buffer.fill(&file).map_err(wrong),
            }
        }
        let Some((file, _)) = &self.held else { return Err(ReadError::Gone) };
        match buffer.fill(file) {
            Ok(text) => Ok(text),
            Err(error) => {
                self.held = None;
                Err(ReadError::new(self.name, error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_read_from_its_start_each_time() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("a")).expect("a group");
        let path = folder.path().join("a/cpu.stat");
        fs::write(&path, "one").expect("written");
        let (mut tree, room, mut buffer) = (Tree::new(folder.path()), Descriptors::new(2), Buffer::new());
        let mut file = KeptFile::new("cpu.stat", Importance::Needed);
        assert_eq!(file.read(&mut tree, "a", &room, &mut buffer), Ok(&b"one"[..]));
        assert_eq!((file.is_open(), room.open()), (true, 1));
        // The same file with another text, as the kernel's are.
        fs::write(&path, "2").expect("written");
        assert_eq!(file.read(&mut tree, "a", &room, &mut buffer), Ok(&b"2"[..]));
        drop(file);
        assert_eq!(room.open(), 0);
        let mut missing = KeptFile::new("memory.stat", Importance::Needed);
        assert_eq!(missing.read(&mut tree, "a", &room, &mut buffer), Err(ReadError::Gone));
        assert_eq!(missing.read(&mut tree, "b", &room, &mut buffer), Err(ReadError::Gone));
    }

    #[test]
    fn a_large_file_is_read_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut tree, room, mut buffer) = (Tree::new(folder.path()), Descriptors::new(2), Buffer::new());
        for length in [0, 1, 4095, 4096, 4097, 70_000] {
            let text = vec![b'x'; length];
            fs::write(folder.path().join("stat"), &text).expect("written");
            let mut file = KeptFile::new("stat", Importance::Needed);
            assert_eq!(file.read(&mut tree, "", &room, &mut buffer), Ok(text.as_slice()), "{length}");
        }
    }

    #[test]
    fn optional_files_leave_room_for_needed_ones_and_are_read_all_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("f"), "7").expect("written");
        let (mut tree, room, mut buffer) = (Tree::new(folder.path()), Descriptors::new(4), Buffer::new());
        let mut optional = [(); 5].map(|()| KeptFile::new("f", Importance::Optional));
        for file in &mut optional {
            assert_eq!(file.read(&mut tree, "", &room, &mut buffer), Ok(&b"7"[..]));
        }
        assert_eq!(optional.iter().filter(|file| file.is_open()).count(), 3);
        let mut needed = [(); 2].map(|()| KeptFile::new("f", Importance::Needed));
        for file in &mut needed {
            assert_eq!(file.read(&mut tree, "", &room, &mut buffer), Ok(&b"7"[..]));
        }
        assert_eq!(needed.map(|file| file.is_open()), [true, false]);
        assert_eq!(room.open(), 3);
    }
}
