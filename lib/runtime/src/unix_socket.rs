//! Listening unix sockets that appear whole: the path either leads to nothing, to the old socket, or
//! to a new one that already listens with its final owner and mode.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that may wait to be accepted. The kernel caps it at `net.core.somaxconn`.
pub const BACKLOG: i32 = 1024;

/// Mode and owner of a socket file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits.
    pub mode: u32,
    /// Owner to set, if not the process's own.
    pub owner: Option<(u32, u32)>,
}

impl SocketAccess {
    /// For the process's own user only.
    pub const PRIVATE: SocketAccess = SocketAccess { mode: 0o600, owner: None };

    /// The mode and owner that the file at `path` has.
    ///
    /// # Errors
    /// The file cannot be examined.
    pub fn of(path: &Path) -> io::Result<SocketAccess> {
        let metadata = fs::metadata(path)?;
        Ok(SocketAccess {
            mode: metadata.permissions().mode() & 0o777,
            owner: Some((metadata.uid(), metadata.gid())),
        })
    }
}

/// What to do with a socket that another process still listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupied {
    /// Fail.
    Refuse,
    /// Take the path over; the other process keeps its connections.
    TakeOver,
}

/// A socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The path is longer than the kernel allows.
    #[error("socket path {path} is {length} bytes long; the limit is 107")]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// Something that is not a socket is at the path.
    #[error("{path} exists and is not a socket; remove it or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A process is listening there.
    #[error("another process is listening on {path}")]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The folder would let others replace the socket.
    #[error("folder {folder} may be written by group or others (mode {mode:04o}); remove that right")]
    UnsafeFolder {
        /// The folder of the socket.
        folder: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The operating system refused a step.
    #[error("cannot {action} {path}")]
    Io {
        /// The step.
        action: &'static str,
        /// The file it was about.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

fn at<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> BindError + use<'a> {
    move |source| BindError::Io { action, path: path.to_owned(), source }
}

/// A socket file made by this process.
#[derive(Debug, Clone)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Takes over the file that is at `path` now, made by a predecessor.
    ///
    /// # Errors
    /// There is no socket.
    pub fn existing(path: &Path) -> Result<SocketFile, BindError> {
        let metadata = fs::symlink_metadata(path).map_err(at("examine", path))?;
        if !metadata.file_type().is_socket() {
            return Err(BindError::NotASocket { path: path.to_owned() });
        }
        Ok(SocketFile { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode of the file, which no other file has while this one exists.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// True while the path leads to the socket this process made or took over.
    pub fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity)
    }

    /// Removes the file, unless another process has put its own there meanwhile.
    pub fn remove(&self) {
        if self.is_ours()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(file = %self.path.display(), error = %error, "socket file not removed");
        }
    }

    /// Changes mode and owner, if the file is still ours.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn set_access(&self, access: SocketAccess) -> Result<(), BindError> {
        if self.is_ours() { apply(&self.path, access) } else { Ok(()) }
    }
}

/// Creates `path`'s folder if needed, binds a socket beside the path, gives it its owner and mode,
/// lets it listen and renames it to `path`. A stale socket is replaced.
///
/// # Errors
/// See [`BindError`].
pub fn bind(
    path: &Path,
    access: SocketAccess,
    occupied: Occupied,
) -> Result<(UnixListener, SocketFile), BindError> {
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    prepare_folder(folder)?;
    match examine(path)? {
        Present::InUse if occupied == Occupied::Refuse => {
            return Err(BindError::InUse { path: path.to_owned() });
        }
        Present::InUse | Present::Stale | Present::Nothing => {}
    }

    let temporary = folder.join(format!(".{}.sock", std::process::id()));
    // What is left of an earlier process with our id would make binding fail.
    if let Err(error) = fs::remove_file(&temporary)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(at("remove", &temporary)(error));
    }
    let length = path.as_os_str().len();
    if length > 107 {
        return Err(BindError::TooLong { path: path.to_owned(), length });
    }
    let address = SocketAddrUnix::new(&temporary).map_err(|error| at("bind", &temporary)(error.into()))?;
    let result = bind_temporary(&temporary, &address, access).and_then(|listener| {
        let metadata = fs::symlink_metadata(&temporary).map_err(at("examine", &temporary))?;
        fs::rename(&temporary, path).map_err(at("rename the new socket to", path))?;
        let file = SocketFile { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) };
        Ok((listener, file))
    });
    if result.is_err() {
        // The first error is the one to report.
        let _ignored = fs::remove_file(&temporary);
    }
    result
}

fn bind_temporary(
    temporary: &Path,
    address: &SocketAddrUnix,
    access: SocketAccess,
) -> Result<UnixListener, BindError> {
    let os = |action| move |error: rustix::io::Errno| at(action, temporary)(error.into());
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(os("create a socket for"))?;
    // The file takes its mode from the unbound socket, so it is never open to others, whatever the umask.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(os("set the mode of"))?;
    rustix::net::bind(&socket, address).map_err(os("bind"))?;
    apply(temporary, access)?;
    rustix::net::listen(&socket, BACKLOG).map_err(os("listen on"))?;
    Ok(UnixListener::from(socket))
}

fn apply(path: &Path, access: SocketAccess) -> Result<(), BindError> {
    if let Some((user, group)) = access.owner {
        let metadata = fs::metadata(path).map_err(at("examine", path))?;
        // Not asked for nothing: a service whose system calls are filtered may not change owners at all.
        if (metadata.uid(), metadata.gid()) != (user, group)
            && let Err(error) = std::os::unix::fs::chown(path, Some(user), Some(group))
        {
            if error.kind() != io::ErrorKind::PermissionDenied {
                return Err(at("set the owner of", path)(error));
            }
            // Fewer may connect than were meant to, which is no reason to serve nobody.
            tracing::warn!(file = %path.display(), user, group, "the owner of a socket may not be changed, it stays");
        }
    }
    fs::set_permissions(path, fs::Permissions::from_mode(access.mode)).map_err(at("set the mode of", path))
}

/// Creates the folder with mode 0755 if it is missing, and refuses one in which others could replace
/// our socket. A sticky folder such as `/tmp` does not let them.
fn prepare_folder(folder: &Path) -> Result<(), BindError> {
    let missing = !folder.exists();
    if missing {
        fs::create_dir_all(folder).map_err(at("create folder", folder))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
            .map_err(at("set the mode of", folder))?;
    }
    let mode = fs::metadata(folder).map_err(at("examine", folder))?.permissions().mode() & 0o7777;
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        return Err(BindError::UnsafeFolder { folder: folder.to_owned(), mode });
    }
    Ok(())
}

/// What is at a socket path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Present {
    Nothing,
    Stale,
    InUse,
}

fn examine(path: &Path) -> Result<Present, BindError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Present::Nothing),
        Err(error) => return Err(at("examine", path)(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    let address = SocketAddrUnix::new(path).map_err(|error| at("examine", path)(error.into()))?;
    // Non-blocking: a listener whose backlog is full would hold us up otherwise, and is a live one.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| at("create a socket for", path)(error.into()))?;
    match rustix::net::connect(&probe, &address) {
        Ok(()) | Err(rustix::io::Errno::AGAIN) => Ok(Present::InUse),
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => Ok(Present::Stale),
        Err(error) => Err(at("probe", path)(error.into())),
    }
}

/// User, group and process at the other end of a connection when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Effective user id.
    pub user: u32,
    /// Effective group id.
    pub group: u32,
    /// Process id.
    pub process: i32,
}

impl PeerCredentials {
    /// Asks the kernel who is at the other end (`SO_PEERCRED`).
    ///
    /// # Errors
    /// The descriptor is not a connected unix socket.
    pub fn of(connection: impl std::os::fd::AsFd) -> io::Result<PeerCredentials> {
        let credentials = rustix::net::sockopt::socket_peercred(connection)?;
        Ok(PeerCredentials {
            user: credentials.uid.as_raw(),
            group: credentials.gid.as_raw(),
            process: credentials.pid.as_raw_nonzero().get(),
        })
    }

    /// Whether the peer belongs to `group`, by its effective or a supplementary group.
    ///
    /// Supplementary groups are read from `/proc`; they count only if the process found there still
    /// has the user and group the kernel vouched for, since process ids are used again.
    pub fn in_group(&self, group: u32) -> bool {
        if self.group == group {
            return true;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.process)).unwrap_or_default();
        supplementary_groups(&status, self.user, self.group).contains(&group)
    }
}

fn supplementary_groups(status: &str, user: u32, group: u32) -> Vec<u32> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    // Four numbers: real, effective, saved, file system.
    let effective = |name| field(name).and_then(|numbers| numbers.get(1).copied());
    if effective("Uid:") == Some(user) && effective("Gid:") == Some(group) {
        field("Groups:").unwrap_or_default()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("present").permissions().mode() & 0o777
    }

    #[test]
    fn appears_with_its_mode_and_serves() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("made/here/x.sock");
        let access = SocketAccess { mode: 0o640, owner: None };
        let (listener, file) = bind(&path, access, Occupied::Refuse).expect("bound");
        assert_eq!(mode_of(&path), 0o640);
        assert_eq!(mode_of(&folder.path().join("made/here")), 0o755);
        let mut client = UnixStream::connect(&path).expect("connected");
        client.write_all(b"x").expect("written");
        let (mut server, _) = listener.accept().expect("accepted");
        let mut byte = [0];
        server.read_exact(&mut byte).expect("read");
        assert_eq!(&byte, b"x");
        let names: Vec<_> = fs::read_dir(folder.path().join("made/here")).expect("listed").collect();
        assert_eq!(names.len(), 1, "the temporary name is gone");

        file.set_access(SocketAccess { mode: 0o600, owner: None }).expect("changed");
        assert_eq!(mode_of(&path), 0o600);
        file.remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_live_socket_is_refused_a_stale_one_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let (listener, first) = bind(&path, SocketAccess::PRIVATE, Occupied::Refuse).expect("bound");
        let refused = bind(&path, SocketAccess::PRIVATE, Occupied::Refuse).expect_err("in use");
        assert_eq!(refused.to_string(), format!("another process is listening on {}", path.display()));
        assert!(first.is_ours());

        let (second_listener, second) =
            bind(&path, SocketAccess::PRIVATE, Occupied::TakeOver).expect("taken over");
        assert!(!first.is_ours());
        first.remove();
        assert!(second.is_ours(), "the first owner leaves the second's socket alone");

        drop((listener, second_listener));
        assert!(path.exists());
        let (_third, file) = bind(&path, SocketAccess::PRIVATE, Occupied::Refuse).expect("stale replaced");
        assert!(file.is_ours());
    }

    #[test]
    fn other_files_and_open_folders_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        fs::write(&path, "data").expect("written");
        let error = bind(&path, SocketAccess::PRIVATE, Occupied::TakeOver).expect_err("a file");
        assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
        assert_eq!(fs::read(&path).expect("kept"), b"data");

        let open = folder.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("set");
        let error = bind(&open.join("x"), SocketAccess::PRIVATE, Occupied::Refuse).expect_err("open");
        assert!(matches!(error, BindError::UnsafeFolder { mode: 0o777, .. }), "{error}");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("set");
        bind(&open.join("x"), SocketAccess::PRIVATE, Occupied::Refuse).expect("sticky is safe");

        let long = folder.path().join("x".repeat(108));
        let error = bind(&long, SocketAccess::PRIVATE, Occupied::Refuse).expect_err("long");
        assert!(matches!(error, BindError::TooLong { .. }), "{error}");
    }

    #[test]
    fn access_of_another_socket_can_be_copied() {
        let folder = tempfile::tempdir().expect("a folder");
        let model = folder.path().join("model");
        let (_listener, _file) =
            bind(&model, SocketAccess { mode: 0o666, owner: None }, Occupied::Refuse).expect("bound");
        let access = SocketAccess::of(&model).expect("examined");
        assert_eq!(access.mode, 0o666);
        let owner = fs::metadata(&model).expect("present");
        assert_eq!(access.owner, Some((owner.uid(), owner.gid())));
        let copy = folder.path().join("copy");
        bind(&copy, access, Occupied::Refuse).expect("bound");
        assert_eq!(mode_of(&copy), 0o666);
    }

    #[test]
    fn the_peer_is_known() {
        let (near, _far) = UnixStream::pair().expect("a pair");
        let peer = PeerCredentials::of(&near).expect("connected");
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        assert_eq!(peer.process.unsigned_abs(), std::process::id());
        assert!(peer.in_group(rustix::process::getegid().as_raw()));
        assert!(!peer.in_group(u32::MAX - 7));
    }

    #[test]
    fn groups_count_only_for_the_same_user() {
        let status = "Name:\tx\nUid:\t5\t6\t6\t6\nGid:\t7\t8\t8\t8\nGroups:\t10 20 \nMore:\t1\n";
        assert_eq!(supplementary_groups(status, 6, 8), [10, 20]);
        assert_eq!(supplementary_groups(status, 5, 8), Vec::<u32>::new());
        assert_eq!(supplementary_groups(status, 6, 7), Vec::<u32>::new());
        assert_eq!(supplementary_groups("", 6, 8), Vec::<u32>::new());
        assert_eq!(supplementary_groups("Uid:\t1 1\nGid:\t1 1\nGroups:\tx\n", 1, 1), Vec::<u32>::new());
    }
}
