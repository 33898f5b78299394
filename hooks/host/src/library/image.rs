//! Reading a library's file: who may have written it, and a copy that nobody can change.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use rustix::fs::{MemfdFlags, SealFlags};

use super::elf::{self, ElfError};
use crate::trust::Trust;

/// Largest library.
pub(crate) const MAX_LIBRARY_BYTES: u64 = 256 * 1024 * 1024;

const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a file cannot be loaded. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It cannot be read.
    #[error("cannot be read")]
    Read(#[source] io::Error),
    /// It is a symbolic link, which could lead anywhere.
    #[error("is a symbolic link; put the file itself there")]
    Link,
    /// It is something else.
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
    #[error("is {size} bytes long; at most {MAX_LIBRARY_BYTES} are accepted")]
    Size {
        /// Its size in bytes.
        size: u64,
    },
    /// It is no library for this machine.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// There is no memory for the copy.
    #[error("cannot be copied into memory")]
    Copy(#[source] io::Error),
}

/// What makes a file a new one. A change of its content changes the time of the last change of its inode, which
/// nobody can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A library's file, checked and open.
#[derive(Debug)]
pub(crate) struct OpenLibrary {
    file: File,
    pub(crate) identity: Identity,
}

impl OpenLibrary {
    /// Opens a file and checks whose it is.
    pub(crate) fn open(path: &Path, trust: &Trust) -> Result<Self, ImageError> {
        // Not blocking: a pipe of that name must not hang the reader.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(|error| {
            if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
                ImageError::Link
            } else {
                ImageError::Read(error)
            }
        })?;
        let metadata = file.metadata().map_err(ImageError::Read)?;
        if !metadata.is_file() {
            return Err(ImageError::Kind);
        }
        if !trust.accepts(metadata.uid()) {
            return Err(ImageError::Owner { uid: metadata.uid(), accepted: trust.to_string() });
        }
        let mode = metadata.mode() & 0o7777;
        if mode & WRITABLE_BY_OTHERS != 0 {
            return Err(ImageError::Mode { mode });
        }
        if metadata.len() > MAX_LIBRARY_BYTES {
            return Err(ImageError::Size { size: metadata.len() });
        }
        let identity = Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        Ok(Self { file, identity })
    }

    /// Copies the file into memory and looks at the copy. `name` shows in `/proc/PID/maps`.
    pub(crate) fn image(self, name: &str) -> Result<Image, ImageError> {
        let mut copy = memory_file(name).map_err(|error| ImageError::Copy(error.into()))?;
        let size =
            io::copy(&mut self.file.take(MAX_LIBRARY_BYTES + 1), &mut copy).map_err(ImageError::Copy)?;
        if size > MAX_LIBRARY_BYTES {
            return Err(ImageError::Size { size });
        }
        copy.flush().and_then(|()| copy.rewind()).map_err(ImageError::Copy)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&copy, seals).map_err(|error| ImageError::Copy(error.into()))?;
        let mut header = vec![0; elf::HEADER_BYTES.min(usize::try_from(size).unwrap_or(usize::MAX))];
        copy.read_exact_at(&mut header, 0).map_err(ImageError::Copy)?;
        let found = elf::check_header(&header, size)?;
        let mut segments = vec![0; found.length];
        copy.read_exact_at(&mut segments, found.offset).map_err(ImageError::Copy)?;
        elf::check_segments(&segments, size)?;
        Ok(Image { memory: copy.into() })
    }
}

/// A file in memory that can be sealed. Code can be mapped from it although it cannot be executed as a program.
fn memory_file(name: &str) -> Result<File, rustix::io::Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know the last flag.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    }
    .map(File::from)
}

/// A copy of a library that does not change any more.
#[derive(Debug)]
pub(crate) struct Image {
    memory: OwnedFd,
}

impl Image {
    /// The file in memory.
    pub(crate) fn memory(&self) -> &OwnedFd {
        &self.memory
    }
}
