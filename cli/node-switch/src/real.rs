//! The node this program runs on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, XattrFlags, flock, fsetxattr, getxattr, statvfs};

use crate::calls;
use crate::journal::{JOURNAL_FILE, LOCK_FILE, STATE_DIRECTORY};
use crate::system::{
    CommandResult, FileState, Files, NodeAccess, NodeView, Process, Room, RuntimeVersion, System, temporary,
};

/// Largest file that is read. A KubeletConfiguration with every field has about 20 KiB.
const LARGEST_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Where SELinux keeps the label of a file. A file that is replaced keeps it.
const LABEL: &str = "security.selinux";

/// The node; files are looked for below a root directory.
#[derive(Debug)]
pub struct RealSystem {
    root: PathBuf,
    admin_socket: PathBuf,
    start: Instant,
}

impl RealSystem {
    /// A node whose files are below `root`, and whose proxy has its admin socket at `admin_socket`.
    pub fn new(root: &Path, admin_socket: &Path) -> RealSystem {
        RealSystem { root: root.to_owned(), admin_socket: admin_socket.to_owned(), start: Instant::now() }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Makes this process the only one that switches.
    ///
    /// # Errors
    /// Another one does, or the file cannot be made.
    pub fn lock(&self) -> Result<Lock, LockError> {
        let path = self.at(Path::new(LOCK_FILE));
        let failed = |source| LockError::File { path: path.clone(), source };
        loop {
            fs::create_dir_all(self.at(Path::new(STATE_DIRECTORY))).map_err(failed)?;
            let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
            let file = match file {
                Ok(file) => file,
                // The one before has just removed the directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(LockError::Held),
                Err(error) => return Err(failed(error.into())),
            }
            let held = file.metadata().map_err(failed)?;
            // A lock on a file that was removed meanwhile keeps nobody out.
            if fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino())) {
                return Ok(Lock { _file: file, path, journal: self.at(Path::new(JOURNAL_FILE)) });
            }
        }
    }
}

/// No other process switches while this is held.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    path: PathBuf,
    journal: PathBuf,
}

impl Drop for Lock {
    /// Leaves no trace on a node that is not enabled.
    fn drop(&mut self) {
        if !self.journal.exists() {
            // What is not empty, or not there, stays.
            let _ignored = fs::remove_file(&self.path);
            for directory in self.path.ancestors().skip(1).take(2) {
                let _ignored = fs::remove_dir(directory);
            }
        }
    }
}

/// The lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("another `koordctl node enable` or `disable` is running on this node")]
    Held,
    /// Its file cannot be used.
    #[error("cannot lock {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Files for RealSystem {
    fn read(&self, path: &Path) -> io::Result<Option<FileState>> {
        let file = match File::open(self.at(path)) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        if metadata.len() > LARGEST_FILE_BYTES {
            let text = format!(
                "{} has {} bytes; at most {LARGEST_FILE_BYTES} are read",
                path.display(),
                metadata.len()
            );
            return Err(io::Error::other(text));
        }
        let mut text = String::new();
        file.take(LARGEST_FILE_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Some(FileState { text, mode: metadata.mode() & 0o7777, uid: metadata.uid(), gid: metadata.gid() }))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.at(directory)) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> bool {
        fs::symlink_metadata(self.at(path)).is_ok()
    }
}

impl System for RealSystem {
    fn write(&self, path: &Path, state: &FileState) -> io::Result<()> {
        let wanted = self.at(path);
        // The name stays a link; what it leads to is replaced.
        let target = match fs::symlink_metadata(&wanted) {
            Ok(metadata) if metadata.is_symlink() => fs::canonicalize(&wanted)?,
            _ => wanted,
        };
        let directory = target.parent().unwrap_or_else(|| Path::new("/"));
        fs::create_dir_all(directory)?;
        let new = temporary(&target);
        if new.exists() {
            fs::remove_file(&new)?;
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        let written = (|| {
            file.write_all(state.text.as_bytes())?;
            std::os::unix::fs::fchown(&file, Some(state.uid), Some(state.gid))?;
            file.set_permissions(fs::Permissions::from_mode(state.mode))?;
            let mut label = [0; 512];
            if let Ok(length) = getxattr(&target, LABEL, &mut label)
                && let Some(label) = label.get(..length)
            {
                fsetxattr(&file, LABEL, label, XattrFlags::empty())?;
            }
            file.sync_all()?;
            fs::rename(&new, &target)?;
            File::open(directory)?.sync_all()
        })();
        if written.is_err() {
            // The error that matters is the first.
            let _ignored = fs::remove_file(&new);
        }
        written
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = self.at(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => match path.parent().map(File::open) {
                Some(Ok(directory)) => directory.sync_all(),
                _ => Ok(()),
            },
        }
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir(self.at(path)) {
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn room(&self, path: &Path) -> io::Result<Room> {
        let path = self.at(path);
        let existing = path.ancestors().find(|path| path.exists()).unwrap_or_else(|| Path::new("/"));
        let found = statvfs(existing)?;
        Ok(Room {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            is_read_only: found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
        })
    }

    fn processes(&self) -> Vec<Process> {
        let folder = self.at(Path::new("/proc"));
        // A kubelet in a container of its own, as in clusters made of containers, is not this node's.
        let space = |pid: &str| fs::read_link(folder.join(pid).join("ns/pid")).ok();
        let own = space("self");
        let mut found = Vec::new();
        for name in self.list(Path::new("/proc")).unwrap_or_default() {
            let Ok(pid) = name.parse() else { continue };
            let Ok(bytes) = fs::read(folder.join(&name).join("cmdline")) else { continue };
            let arguments: Vec<String> = bytes
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            let Some((_, arguments)) = arguments.split_last().filter(|(_, words)| !words.is_empty()) else {
                continue;
            };
            if own.is_none() || space(&name).is_none_or(|other| Some(other) == own) {
                found.push(Process { pid, arguments: arguments.to_vec() });
            }
        }
        found
    }

    fn ask(&self, command: &[&str], limit: Duration) -> io::Result<CommandResult> {
        self.run(command, limit)
    }

    fn run(&self, command: &[&str], limit: Duration) -> io::Result<CommandResult> {
        // Programs and units are those of this node, which the files are not of.
        if self.root != Path::new("/") {
            return Err(io::Error::other("no commands are run for files below another root"));
        }
        run(command, limit)
    }

    fn admin(
        &self,
        method: &str,
        target: &str,
        body: &str,
        limit: Duration,
    ) -> Result<(u16, String), String> {
        calls::admin(&self.admin_socket, method, target, body, limit)
    }

    fn runtime_version(&self, socket: &Path, limit: Duration) -> Result<RuntimeVersion, String> {
        let (name, version) = calls::runtime_version(socket, limit)?;
        Ok(RuntimeVersion { name, version, listener: listener(socket) })
    }

    fn http_status(&self, address: &str, path: &str, limit: Duration) -> Result<u16, String> {
        calls::http_status(address, path, limit)
    }

    fn node(&self, access: &NodeAccess, limit: Duration) -> Result<NodeView, String> {
        calls::node(access, limit)
    }

    fn annotate(&self, access: &NodeAccess, value: &str, limit: Duration) -> Result<(), String> {
        calls::annotate(access, value, limit)
    }

    fn host_name(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().to_lowercase()
    }

    fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn seconds(&self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// Command line of the process that listens at a socket. A socket that systemd opened says systemd.
fn listener(socket: &Path) -> Option<Vec<String>> {
    let stream = UnixStream::connect(socket).ok()?;
    let pid = rustix::net::sockopt::socket_peercred(&stream).ok()?.pid.as_raw_nonzero();
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// Runs a command to its end, or to its limit.
fn run(command: &[&str], limit: Duration) -> io::Result<CommandResult> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::Error::other("no command"));
    };
    let mut child = Command::new(program)
        .args(arguments)
        // systemctl gives up after 25 s by itself, which a busy node may need for a daemon-reload.
        .env("SYSTEMD_BUS_TIMEOUT", limit.as_secs().max(1).to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (output, complaints) = (child.stdout.take(), child.stderr.take());
    // Both pipes are read at once, so that neither fills while the other is waited for.
    std::thread::scope(|scope| {
        let output = scope.spawn(|| output.map(text_of).unwrap_or_default());
        let complaints = scope.spawn(|| complaints.map(text_of).unwrap_or_default());
        let ended = wait(&mut child, limit);
        let mut result = CommandResult {
            code: None,
            output: output.join().unwrap_or_default(),
            complaints: complaints.join().unwrap_or_default(),
        };
        match ended? {
            Some(status) => result.code = status.code(),
            None => result.complaints.push_str(&format!("not done after {} s", limit.as_secs())),
        }
        Ok(result)
    })
}

/// How a child ended; nothing if it was ended at its limit.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
            ended => break ended,
        }
    };
    if !matches!(ended, Ok(Some(_))) {
        child.kill()?;
        child.wait()?;
    }
    ended
}

fn text_of(mut pipe: impl io::Read) -> String {
    let mut bytes = Vec::new();
    // What was read up to a broken pipe is of use too.
    let _ignored = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
