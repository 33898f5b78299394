//! What the process was given by whoever started it.
//!
//! Nothing else in the product reads environment variables: `main` captures them here, once, and
//! hands the parts on as values.

use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

/// Names the step of a hand-over a new process is started for, see [`HandoverRole`].
pub const HANDOVER_VARIABLE: &str = "KOORD_HANDOVER";

/// Variables of service managers that must not reach a successor process as they are: they name the
/// predecessor's process id, or descriptors it does not get.
pub const VARIABLES_OF_ONE_PROCESS: [&str; 4] =
    ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"];

/// Why a process was started by its predecessor. Either way its standard input is the
/// [`Channel`](crate::descriptors::Channel) to the predecessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverRole {
    /// Start the successor and end at once, so that the service manager becomes its parent.
    Launch,
    /// Be the successor.
    Succeed,
}

impl HandoverRole {
    /// The value of [`HANDOVER_VARIABLE`] for this role.
    pub fn value(self) -> &'static str {
        match self {
            HandoverRole::Launch => "launch",
            HandoverRole::Succeed => "succeed",
        }
    }

    fn parse(value: &str) -> Option<HandoverRole> {
        [HandoverRole::Launch, HandoverRole::Succeed].into_iter().find(|role| role.value() == value)
    }
}

/// A listening unix socket passed by the service manager.
#[derive(Debug)]
pub struct PassedListener {
    /// Its name, from `FileDescriptorName=` of the socket unit; `unknown` if it has none.
    pub name: String,
    /// The socket. It is not inherited by child processes.
    pub listener: UnixListener,
}

/// The captured environment.
#[derive(Debug, Default)]
pub struct Environment {
    /// Where to send notifications for the service manager.
    pub notify_socket: Option<OsString>,
    /// The service manager restarts the process when it hears nothing for this long.
    pub watchdog: Option<Duration>,
    /// Listening sockets passed to this process.
    pub listeners: Vec<PassedListener>,
    /// Passed descriptors that are not listening unix stream sockets: name and reason.
    pub unusable_descriptors: Vec<(String, String)>,
    /// Set if a predecessor started this process.
    pub handover: Option<HandoverRole>,
    /// The program's file as found at the start. Asking later would name a deleted file after an
    /// upgrade replaced it.
    pub program: Option<PathBuf>,
    /// True if standard error goes to the system's journal, which stamps lines itself.
    pub journal: bool,
}

impl Environment {
    /// Captures the environment of this process and takes over passed descriptors.
    ///
    /// Call it once, first thing in `main`, while there is one thread only: the variables that name
    /// descriptors are removed.
    pub fn from_process() -> Environment {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let watchdog = watchdog(
            std::env::var("WATCHDOG_USEC").ok().as_deref(),
            std::env::var("WATCHDOG_PID").ok().as_deref(),
            std::process::id(),
        );
        let (listeners, unusable_descriptors) = take_listeners(&names);
        Environment {
            notify_socket: std::env::var_os("NOTIFY_SOCKET").filter(|value| !value.is_empty()),
            watchdog,
            listeners,
            unusable_descriptors,
            handover: std::env::var(HANDOVER_VARIABLE).ok().and_then(|value| HandoverRole::parse(&value)),
            program: program(),
            journal: is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref(), standard_error()),
        }
    }
}

/// The file of this program.
pub(crate) fn program() -> Option<PathBuf> {
    std::env::current_exe().ok()
}

/// The rule of `systemd.exec(5)`: the variable names device and inode of the stream to the journal. A program that was
/// started by a service with its output elsewhere inherits the variable, but not the stream.
fn is_journal(stream: Option<&str>, standard_error: Option<(u64, u64)>) -> bool {
    let Some((device, inode)) = stream.and_then(|stream| stream.split_once(':')) else { return false };
    let named = device.parse().ok().zip(inode.parse().ok());
    named.is_some() && named == standard_error
}

/// Device and inode of standard error.
fn standard_error() -> Option<(u64, u64)> {
    rustix::fs::fstat(std::io::stderr()).ok().map(|status| (status.st_dev, status.st_ino))
}

/// The rule of `sd_watchdog_enabled(3)`: an interval in microseconds, meant for us if no process id
/// is given or if it is ours.
fn watchdog(microseconds: Option<&str>, meant_for: Option<&str>, own: u32) -> Option<Duration> {
    let microseconds: u64 = microseconds?.parse().ok().filter(|value| *value > 0)?;
    match meant_for {
        Some(pid) if pid.parse() != Ok(own) => None,
        _ => Some(Duration::from_micros(microseconds)),
    }
}

fn take_listeners(names: &str) -> (Vec<PassedListener>, Vec<(String, String)>) {
    let mut passed = listenfd::ListenFd::from_env();
    let mut names = names.split(':').filter(|name| !name.is_empty());
    let mut listeners = Vec::new();
    let mut unusable = Vec::new();
    for index in 0..passed.len() {
        let name = names.next().unwrap_or("unknown").to_owned();
        match passed.take_unix_listener(index) {
            Ok(Some(listener)) => listeners.push(PassedListener { name, listener }),
            Ok(None) => {}
            Err(error) => unusable.push((name, error.to_string())),
        }
    }
    (listeners, unusable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_recognized_by_its_stream() {
        let open = Some((9, 1234));
        assert!(is_journal(Some("9:1234"), open));
        assert!(!is_journal(Some("9:1235"), open), "standard error was redirected");
        assert!(!is_journal(Some("9:1234"), None));
        assert!(!is_journal(None, None));
        for nonsense in ["", ":", "9", "9:", "x:1234", "9:1234:1"] {
            assert!(!is_journal(Some(nonsense), open), "{nonsense}");
        }
    }

    #[test]
    fn watchdog_is_for_the_named_process_only() {
        let interval = Some(Duration::from_secs(30));
        assert_eq!(watchdog(Some("30000000"), None, 7), interval);
        assert_eq!(watchdog(Some("30000000"), Some("7"), 7), interval);
        assert_eq!(watchdog(Some("30000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("30000000"), Some("x"), 7), None);
        assert_eq!(watchdog(Some("0"), None, 7), None);
        assert_eq!(watchdog(Some("soon"), None, 7), None);
        assert_eq!(watchdog(None, Some("7"), 7), None);
    }

    /// Does nothing unless it was started with passed sockets.
    #[test]
    fn role_activated() {
        use std::io::Write as _;
        let environment = Environment::from_process();
        if let Some(passed) = environment.listeners.first() {
            let (mut client, _) = passed.listener.accept().expect("a client");
            let names: Vec<&str> = environment.listeners.iter().map(|passed| passed.name.as_str()).collect();
            let flags = rustix::io::fcntl_getfd(&passed.listener).expect("open");
            let unusable: Vec<&str> =
                environment.unusable_descriptors.iter().map(|(name, _)| name.as_str()).collect();
            let kept = flags.contains(rustix::io::FdFlags::CLOEXEC);
            write!(client, "{names:?} {unusable:?} {kept} {:?}", environment.watchdog).expect("written");
        }
    }

    #[test]
    fn sockets_passed_by_a_service_manager_are_taken_over() {
        use std::io::Read as _;
        use std::os::unix::net::{UnixListener, UnixStream};
        use std::process::{Command, Stdio};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let listener = UnixListener::bind(&path).expect("bound");
        let tests = std::env::current_exe().expect("this program");
        // The shell puts the socket where a service manager would: at 3, with something unusable behind it.
        let line = format!(
            "LISTEN_PID=$$ WATCHDOG_PID=$$ exec '{}' --exact environment::tests::role_activated \
             3<&0 4</dev/null 0</dev/null >/dev/null",
            tests.display()
        );
        let mut child = Command::new("/bin/sh")
            .args(["-c", &line])
            .env("LISTEN_FDS", "2")
            .env("LISTEN_FDNAMES", "proxy.socket:file")
            .env("WATCHDOG_USEC", "2000000")
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
            .spawn()
            .expect("started");
        let mut heard = String::new();
        UnixStream::connect(&path).expect("listening").read_to_string(&mut heard).expect("answered");
        assert_eq!(heard, "[\"proxy.socket\"] [\"file\"] true Some(2s)");
        assert!(child.wait().expect("waited for").success());
    }

    #[test]
    fn roles_are_read_back() {
        for role in [HandoverRole::Launch, HandoverRole::Succeed] {
            assert_eq!(HandoverRole::parse(role.value()), Some(role));
        }
        assert_eq!(HandoverRole::parse(""), None);
    }
}
