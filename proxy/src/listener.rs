//! Where the listening socket comes from, and what happens to its path in the end.
//!
//! The path never leads to nothing while a proxy runs: an own socket is bound beside it and renamed over
//! it, a passed one is used as it is and never unlinked.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use koord_runtime::environment::PassedListener;
use koord_runtime::notify::{Notification, Notifier};
use koord_runtime::unix_socket::{self, BindError, Occupied, SocketAccess, SocketFile};

use crate::endpoint::Endpoint;
use crate::flags::SocketMode;

/// Sockets that the service manager keeps for us are named so, with device and inode of the socket's file behind it: as long
/// as the path leads to that very file, its clients come out at that very socket.
const KEPT_PREFIX: &str = "own-";

/// Mode of an own socket while there is no backend socket to copy it from.
const FALLBACK_MODE: u32 = 0o660;

/// Who made the socket.
#[derive(Debug)]
enum Origin {
    /// The service manager; it owns the path.
    Passed,
    /// This proxy or a predecessor that handed it over.
    Own(SocketFile),
}

/// Who made a socket, as told to a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The service manager owns the path.
    Passed,
    /// The proxy owns the path.
    Own,
}

/// No listening socket could be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// An own socket could not be made.
    #[error("cannot listen on {path}")]
    Bind {
        /// The path asked for.
        path: Endpoint,
        /// Why not.
        #[source]
        source: BindError,
    },
    /// The service manager passed several sockets, none of them for our path.
    #[error("none of the passed sockets ({names}) listens on {path}", names = .names.join(", "))]
    Ambiguous {
        /// The path asked for.
        path: Endpoint,
        /// Names of the passed sockets.
        names: Vec<String>,
    },
    /// The socket cannot be prepared for accepting.
    #[error("cannot use the listening socket {name}")]
    Unusable {
        /// Its name or path.
        name: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// The listening socket of the proxy.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    origin: Origin,
    /// The service manager keeps this socket already.
    kept: bool,
    /// Names of sockets the service manager keeps that nothing leads to any more.
    stale: Vec<String>,
}

impl Listener {
    /// Takes the passed socket if there is one, else the one that the service manager kept of an earlier process if
    /// `path` still leads to it, else makes one at `path`.
    ///
    /// `backend` is the socket that [`SocketMode::Inherit`] copies from; while it is missing the mode is
    /// 0660, and [`AccessCopy::copy`] corrects it later.
    ///
    /// # Errors
    /// See [`ListenerError`].
    pub fn obtain(
        path: &Endpoint,
        mode: SocketMode,
        backend: &Path,
        passed: Vec<PassedListener>,
    ) -> Result<Listener, ListenerError> {
        let (mut kept, passed): (Vec<_>, Vec<_>) =
            passed.into_iter().partition(|listener| listener.name.starts_with(KEPT_PREFIX));
        if let Some(listener) = choose(path, passed)? {
            let name = listener.name;
            tracing::info!(name, "listening on the socket passed by the service manager");
            let listener = Listener::adopt(listener.listener, Origin::Passed, &name)?;
            return Ok(listener.with_stale(kept));
        }
        if let Ok(file) = SocketFile::existing(path.path())
            && let Some(index) = kept.iter().position(|listener| listener.name == kept_name(&file))
        {
            let listener = kept.swap_remove(index);
            tracing::info!(file = path.as_str(), "listening on the socket that the service manager kept");
            if let SocketMode::Octal(mode) = mode
                && let Err(error) = file.set_access(SocketAccess { mode, owner: None })
            {
                let error = koord_runtime::error_chain::Chain(&error).to_string();
                tracing::warn!(file = path.as_str(), error, "mode of the socket not set");
            }
            let listener = Listener::adopt(listener.listener, Origin::Own(file), path.as_str())?;
            return Ok(Listener { kept: true, ..listener }.with_stale(kept));
        }
        let (socket, file) = unix_socket::bind(path.path(), access(mode, backend), Occupied::Refuse)
            .map_err(|source| ListenerError::Bind { path: path.clone(), source })?;
        tracing::info!(file = path.as_str(), "listening");
        Ok(Listener::adopt(socket, Origin::Own(file), path.as_str())?.with_stale(kept))
    }

    fn with_stale(self, stale: Vec<PassedListener>) -> Listener {
        Listener { stale: stale.into_iter().map(|listener| listener.name).collect(), ..self }
    }

    /// Lets the service manager keep a socket of our own, and drop those that nothing leads to: should this process end
    /// without order, clients wait for the next one instead of failing.
    pub fn keep(&self, notifier: &Notifier) {
        for name in &self.stale {
            notifier.tell(&[Notification::RemoveDescriptors { name: name.clone() }]);
        }
        if let (Origin::Own(file), false) = (&self.origin, self.kept) {
            let store = Notification::StoreDescriptors { name: kept_name(file) };
            if let Err(error) = notifier.send_with_descriptors(&[store], &[self.socket.as_fd()]) {
                let error = koord_runtime::error_chain::Chain(&error).to_string();
                tracing::warn!(error, "the service manager does not keep the listening socket");
            }
        }
    }

    /// Lets the service manager drop our own socket, whose path is about to go.
    pub fn forget(&self, notifier: &Notifier) {
        if let Origin::Own(file) = &self.origin {
            notifier.tell(&[Notification::RemoveDescriptors { name: kept_name(file) }]);
        }
    }

    /// Takes over a socket that a predecessor handed over.
    ///
    /// # Errors
    /// The socket cannot be prepared for accepting.
    pub fn inherit(
        socket: UnixListener,
        ownership: Ownership,
        path: &Endpoint,
    ) -> Result<Listener, ListenerError> {
        let origin = match ownership {
            Ownership::Passed => Origin::Passed,
            Ownership::Own => match SocketFile::existing(path.path()) {
                Ok(file) => Origin::Own(file),
                // Somebody removed the path; there is nothing to remove in the end.
                Err(error) => {
                    tracing::warn!(file = path.as_str(), error = %error, "path of the listening socket is gone");
                    Origin::Passed
                }
            },
        };
        Listener::adopt(socket, origin, path.as_str())
    }

    fn adopt(socket: UnixListener, origin: Origin, name: &str) -> Result<Listener, ListenerError> {
        // Accepting follows poll: a client that is gone again must not block the acceptor.
        socket
            .set_nonblocking(true)
            .map_err(|source| ListenerError::Unusable { name: name.to_owned(), source })?;
        Ok(Listener { socket, origin, kept: false, stale: Vec::new() })
    }

    /// The socket, non-blocking.
    pub fn socket(&self) -> &UnixListener {
        &self.socket
    }

    /// Who owns the path, to tell a successor.
    pub fn ownership(&self) -> Ownership {
        match self.origin {
            Origin::Passed => Ownership::Passed,
            Origin::Own(_) => Ownership::Own,
        }
    }

    /// What copies mode and owner from the backend's socket once that is there.
    pub fn access_copy(&self, mode: SocketMode, backend: &Path) -> AccessCopy {
        let file = match &self.origin {
            Origin::Own(file) if mode == SocketMode::Inherit => Some(file.clone()),
            _ => None,
        };
        AccessCopy { file, backend: backend.to_owned() }
    }

    /// Closes the socket at the end of the process and removes its path, unless the service manager or
    /// another proxy owns that by now.
    pub fn close(self) {
        if let Origin::Own(file) = &self.origin {
            file.remove();
        }
    }

    /// Closes this process's copy of the socket and leaves the path to the successor.
    pub fn leave(self) {
        drop(self.socket);
    }
}

/// Copies mode and owner of the backend's socket to the listening socket; see [`Listener::access_copy`].
#[derive(Debug, Clone)]
pub struct AccessCopy {
    /// None for other modes and for passed sockets, where there is nothing to do.
    file: Option<SocketFile>,
    backend: PathBuf,
}

impl AccessCopy {
    /// Copies now. Does nothing while the backend's socket is missing.
    pub fn copy(&self) {
        let Some(file) = &self.file else { return };
        let Ok(access) = SocketAccess::of(&self.backend) else { return };
        if let Err(error) = file.set_access(access) {
            tracing::warn!(
                file = %file.path().display(),
                error = %koord_runtime::error_chain::Chain(&error),
                "mode of the backend's socket not copied"
            );
        }
    }
}

fn kept_name(file: &SocketFile) -> String {
    let (device, inode) = file.identity();
    format!("{KEPT_PREFIX}{device:x}-{inode:x}")
}

/// The only passed socket, or the one of several that is bound to our path.
fn choose(path: &Endpoint, mut passed: Vec<PassedListener>) -> Result<Option<PassedListener>, ListenerError> {
    if passed.len() <= 1 {
        return Ok(passed.pop());
    }
    // The unit may say /run where the flag says /var/run.
    let wanted = std::fs::canonicalize(path.path()).ok();
    let ours = |listener: &PassedListener| {
        let address = listener.listener.local_addr().ok();
        let bound = address.as_ref().and_then(|address| address.as_pathname());
        bound.is_some_and(|bound| {
            bound == path.path() || (wanted.is_some() && std::fs::canonicalize(bound).ok() == wanted)
        })
    };
    match passed.iter().position(ours) {
        Some(index) => Ok(Some(passed.swap_remove(index))),
        None => Err(ListenerError::Ambiguous {
            path: path.clone(),
            names: passed.into_iter().map(|listener| listener.name).collect(),
        }),
    }
}

fn access(mode: SocketMode, backend: &Path) -> SocketAccess {
    match mode {
        SocketMode::Octal(mode) => SocketAccess { mode, owner: None },
        SocketMode::Inherit => {
            SocketAccess::of(backend).unwrap_or(SocketAccess { mode: FALLBACK_MODE, owner: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    fn endpoint(path: &Path) -> Endpoint {
        path.to_str().expect("text").parse().expect("a path")
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("present").permissions().mode() & 0o777
    }

    fn passed(name: &str, path: &Path) -> PassedListener {
        PassedListener { name: name.into(), listener: UnixListener::bind(path).expect("bound") }
    }

    #[test]
    fn an_own_socket_inherits_the_backends_mode_when_it_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, backend) = (folder.path().join("run/x.sock"), folder.path().join("backend.sock"));
        let listener =
            Listener::obtain(&endpoint(&path), SocketMode::Inherit, &backend, vec![]).expect("bound");
        assert_eq!(listener.ownership(), Ownership::Own);
        assert_eq!(mode_of(&path), 0o660);
        listener.access_copy(SocketMode::Inherit, &backend).copy();
        assert_eq!(mode_of(&path), 0o660);

        let _backend = UnixListener::bind(&backend).expect("bound");
        fs::set_permissions(&backend, fs::Permissions::from_mode(0o606)).expect("set");
        listener.access_copy(SocketMode::Octal(0o600), &backend).copy();
        assert_eq!(mode_of(&path), 0o660);
        listener.access_copy(SocketMode::Inherit, &backend).copy();
        assert_eq!(mode_of(&path), 0o606);

        let second = Listener::obtain(&endpoint(&path), SocketMode::Inherit, &backend, vec![]);
        let error = second.expect_err("another proxy is there");
        let chain = koord_runtime::error_chain::Chain(&error).to_string();
        let path_text = path.display();
        assert_eq!(
            chain,
            format!("cannot listen on {path_text}: another process is listening on {path_text}")
        );
        UnixStream::connect(&path).expect("the first still serves");
        listener.close();
        assert!(!path.exists());
    }

    #[test]
    fn an_octal_mode_is_taken_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let mode = SocketMode::Octal(0o640);
        let listener =
            Listener::obtain(&endpoint(&path), mode, Path::new("/nonexistent"), vec![]).expect("bound");
        assert_eq!(mode_of(&path), 0o640);
        listener.leave();
        assert!(path.exists(), "the path is left to the successor");
    }

    #[test]
    fn a_passed_socket_is_used_and_its_path_never_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("unit.sock");
        let other = endpoint(&folder.path().join("flag.sock"));
        let listener =
            Listener::obtain(&other, SocketMode::Inherit, Path::new("/x"), vec![passed("unit", &path)])
                .expect("taken");
        assert_eq!(listener.ownership(), Ownership::Passed);
        assert!(!other.path().exists());
        let before = mode_of(&path);
        listener.access_copy(SocketMode::Inherit, folder.path()).copy();
        assert_eq!(mode_of(&path), before);
        listener.close();
        assert!(path.exists());
    }

    #[test]
    fn of_several_passed_sockets_the_one_on_our_path_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, second) = (folder.path().join("a.sock"), folder.path().join("b.sock"));
        // The flag's spelling goes through a symbolic link, as /var/run does.
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).expect("linked");
        let spelled = endpoint(&folder.path().join("link/b.sock"));
        let both = vec![passed("a", &first), passed("b", &second)];
        let listener = Listener::obtain(&spelled, SocketMode::Inherit, Path::new("/x"), both).expect("taken");
        let address = listener.socket().local_addr().expect("bound");
        assert_eq!(address.as_pathname(), Some(second.as_path()));

        fs::remove_file(&first).expect("removed");
        fs::remove_file(&second).expect("removed");
        let both = vec![passed("a", &first), passed("b", &second)];
        let neither = endpoint(&folder.path().join("c.sock"));
        let error = Listener::obtain(&neither, SocketMode::Inherit, Path::new("/x"), both).expect_err("none");
        assert_eq!(error.to_string(), format!("none of the passed sockets (a, b) listens on {neither}"));
    }

    #[test]
    fn a_kept_socket_is_used_while_the_path_leads_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, ear) = (folder.path().join("x.sock"), folder.path().join("notify"));
        let manager = std::os::unix::net::UnixDatagram::bind(&ear).expect("bound");
        manager.set_nonblocking(true).expect("allowed");
        let notifier = Notifier::new(Some(ear.as_os_str())).expect("a path");
        let heard = || {
            let mut buffer = [0; 256];
            let length = manager.recv(&mut buffer).expect("a message");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let octal = |mode| SocketMode::Octal(mode);
        let obtain =
            |mode, passed| Listener::obtain(&endpoint(&path), mode, Path::new("/x"), passed).expect("taken");
        let first = obtain(octal(0o600), vec![]);
        first.keep(&notifier);
        let told = heard();
        let name = told.strip_prefix("FDSTORE=1\nFDNAME=").expect("kept").trim().to_owned();
        let copy = |listener: &Listener| listener.socket().try_clone().expect("copied");
        let kept = |name: &str, listener| PassedListener { name: name.to_owned(), listener };

        // The process ends without order; what it had is passed to the next, along with what nothing leads to.
        let old = copy(&first);
        first.leave();
        let (stray, strays_name) =
            (UnixListener::bind(folder.path().join("stray")).expect("bound"), "own-1-2");
        let second = obtain(octal(0o640), vec![kept(strays_name, stray), kept(&name, old)]);
        assert_eq!(second.ownership(), Ownership::Own);
        assert_eq!(mode_of(&path), 0o640);
        let client = UnixStream::connect(&path).expect("listening");
        second.socket().accept().expect("the client comes out here");
        drop(client);
        second.keep(&notifier);
        assert_eq!(heard(), "FDSTOREREMOVE=1\nFDNAME=own-1-2\n");
        assert!(manager.recv(&mut [0; 8]).is_err(), "it is kept already");

        // A socket unit goes first.
        let unit = folder.path().join("unit.sock");
        let third = obtain(octal(0o600), vec![kept(&name, copy(&second)), passed("unit", &unit)]);
        assert_eq!(third.ownership(), Ownership::Passed);
        third.keep(&notifier);
        assert_eq!(heard(), format!("FDSTOREREMOVE=1\nFDNAME={name}\n"));
        third.forget(&notifier);
        assert!(manager.recv(&mut [0; 8]).is_err(), "the unit's socket is not ours to keep");

        // Another file at the path: the kept socket would wait for clients for ever.
        let old = copy(&second);
        second.forget(&notifier);
        assert_eq!(heard(), format!("FDSTOREREMOVE=1\nFDNAME={name}\n"));
        second.close();
        let _other = UnixListener::bind(&path).expect("bound");
        drop(_other);
        let fourth = obtain(octal(0o600), vec![kept(&name, old)]);
        UnixStream::connect(&path).expect("listening");
        fourth.socket().accept().expect("its own");
        fourth.keep(&notifier);
        assert_eq!(heard(), format!("FDSTOREREMOVE=1\nFDNAME={name}\n"));
        assert!(heard().starts_with("FDSTORE=1\nFDNAME=own-"));
    }

    #[test]
    fn an_inherited_own_socket_is_removed_unless_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let name = endpoint(&path);
        let old = Listener::obtain(&name, SocketMode::Octal(0o600), Path::new("/x"), vec![]).expect("bound");
        let copy = old.socket().try_clone().expect("copied");
        let new = Listener::inherit(copy, old.ownership(), &name).expect("inherited");
        old.leave();
        UnixStream::connect(&path).expect("the successor's copy listens");
        new.close();
        assert!(!path.exists());
    }
}
