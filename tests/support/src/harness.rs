//! The proxy's program, run in a directory of its own with every socket private.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::client::RawClient;
use crate::wait::{LIMIT, until, until_true};

/// What to run and how.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// The program.
    pub program: PathBuf,
    /// More flags, behind those of the harness.
    pub flags: Vec<OsString>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// The runtime's socket, when it is not the place's.
    pub backend: Option<PathBuf>,
}

impl ProxyOptions {
    /// The program at this path, no flags but the harness's.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), flags: Vec::new(), environment: Vec::new(), backend: None }
    }

    /// With one more flag and its value.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.push(format!("{name}={value}").into());
        self
    }

    /// In front of the runtime at this socket.
    #[must_use]
    pub fn backend(mut self, socket: &Path) -> Self {
        self.backend = Some(socket.into());
        self
    }

    /// With an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// The private directory: sockets, registrations, state and log.
#[derive(Debug)]
pub struct Place {
    directory: TempDir,
}

impl Place {
    /// Makes a new directory. Its path is short: a socket's path has room for 107 bytes.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("koord-").tempdir_in("/tmp")?;
        // The proxy refuses a registration directory that others may write to.
        fs::create_dir(directory.path().join("hooks"))?;
        Ok(Self { directory })
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The runtime's socket.
    pub fn backend(&self) -> PathBuf {
        self.path("backend.sock")
    }

    /// The proxy's socket.
    pub fn socket(&self) -> PathBuf {
        self.path("run/proxy.sock")
    }

    /// The proxy's admin socket.
    pub fn admin(&self) -> PathBuf {
        self.path("run/admin.sock")
    }

    /// The registration directory.
    pub fn hooks(&self) -> PathBuf {
        self.path("hooks")
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The log of all proxies run here.
    pub fn log(&self) -> PathBuf {
        self.path("proxy.log")
    }
}

/// An answer of the admin socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminAnswer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: String,
}

/// A running proxy; killed when dropped.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    /// Where it runs.
    pub place: Place,
    options: ProxyOptions,
    successors: Vec<Successor>,
}

impl Proxy {
    /// Starts the proxy in a new directory and waits for its socket.
    pub fn start(options: ProxyOptions) -> io::Result<Self> {
        Self::start_in(Place::new()?, options)
    }

    /// Starts the proxy in `place` and waits for its socket.
    pub fn start_in(place: Place, options: ProxyOptions) -> io::Result<Self> {
        let child = spawn(&place, &options)?;
        let mut proxy = Self { child, place, options, successors: Vec::new() };
        proxy.wait_socket();
        Ok(proxy)
    }

    fn wait_socket(&mut self) {
        until("the proxy's socket", LIMIT, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the proxy ended: {status}\n{}", self.log());
            }
            UnixStream::connect(self.place.socket()).ok()
        });
    }

    /// Waits until `/readyz` answers 200.
    pub fn wait_ready(&self) {
        until_true("/readyz to answer 200", || {
            self.admin("/readyz").is_ok_and(|answer| answer.status == 200)
        });
    }

    /// A new client connection.
    ///
    /// # Panics
    /// When the socket refuses.
    pub fn client(&self) -> RawClient {
        RawClient::connect(&self.place.socket()).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// GETs a path of the admin socket.
    pub fn admin(&self, path: &str) -> io::Result<AdminAnswer> {
        admin(&self.place.admin(), "GET", path)
    }

    /// POSTs to a path of the admin socket.
    pub fn admin_post(&self, path: &str) -> io::Result<AdminAnswer> {
        admin(&self.place.admin(), "POST", path)
    }

    /// The sum of a metric's series whose labels contain all of `labels` (as `name="value"`); 0 when there is none.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.admin("/metrics").map_or(0.0, |answer| metric(&answer.body, name, labels))
    }

    /// The id of the process that serves: the one the harness started, or the last one that took over.
    pub fn pid(&self) -> Pid {
        self.successors.last().map_or_else(|| self.first_pid(), |successor| successor.pid)
    }

    fn first_pid(&self) -> Pid {
        // The kernel's process ids are below 2^22.
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// Resident memory, KiB.
    pub fn resident_kib(&self) -> u64 {
        resident_kib(self.pid()).unwrap_or(0)
    }

    /// Whether the process started by the harness still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the process that serves.
    pub fn signal(&self, signal: Signal) {
        // A process that has just ended needs no signal.
        let _ = match self.successors.last() {
            Some(successor) => successor.signal(signal),
            // Its number is its own until the harness has waited for it.
            None => kill(self.first_pid(), signal),
        };
    }

    /// Waits for the end of the process started by the harness.
    pub fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        until("the proxy to end", limit, || self.child.try_wait().ok().flatten())
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the program again in the same place.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        self.child = spawn(&self.place, &self.options)?;
        self.wait_socket();
        Ok(())
    }

    /// Starts the program again in the same place with other options.
    pub fn restart_with(&mut self, options: ProxyOptions) -> io::Result<()> {
        self.options = options;
        self.restart()
    }

    /// Waits until another process serves the admin socket and is ready; it is asked and killed from now on.
    pub fn wait_successor(&mut self) -> Pid {
        let before = self.pid();
        let successor = until("another process to take over", LIMIT * 3, || {
            Successor::of(&self.place.admin()).filter(|successor| successor.pid != before)
        });
        let pid = successor.pid;
        self.successors.retain(Successor::is_running);
        self.successors.push(successor);
        self.wait_ready();
        pid
    }

    /// The same for a program that may end before it serves; says whether it serves.
    pub fn try_restart_with(&mut self, options: ProxyOptions) -> io::Result<bool> {
        self.kill();
        self.options = options;
        self.child = spawn(&self.place, &self.options)?;
        Ok(until("the proxy to serve or to end", LIMIT, || {
            if self.is_running() {
                UnixStream::connect(self.place.socket()).ok().map(|_| true)
            } else {
                Some(false)
            }
        }))
    }

    /// What the proxies run here logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.place.log()).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.kill();
        for successor in &self.successors {
            // Already ended is as good.
            let _ = successor.signal(Signal::SIGKILL);
        }
        if std::thread::panicking() {
            let log = self.log();
            let tail = log.len().saturating_sub(8_192);
            eprintln!("--- end of the proxy's log ---\n{}", log.get(tail..).unwrap_or(&log));
        }
    }
}

/// A process that took over. It is not the harness's child: once it has ended the kernel may give its number to any other
/// process or thread, of this program too. Signals go through a descriptor, which stands for this process only.
#[derive(Debug)]
struct Successor {
    pid: Pid,
    process: OwnedFd,
}

impl Successor {
    /// The process that made the socket listen.
    fn of(socket: &Path) -> Option<Self> {
        let pid = listener_pid(socket)?;
        let process = pidfd_open(rustix::process::Pid::from_raw(pid.as_raw())?, PidfdFlags::empty()).ok()?;
        // If it serves still, it is the one that the descriptor stands for.
        (listener_pid(socket) == Some(pid)).then_some(Self { pid, process })
    }

    fn is_running(&self) -> bool {
        // The descriptor of a process that has ended can be read.
        let mut ended = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        poll(&mut ended, PollTimeout::ZERO) == Ok(0)
    }

    fn signal(&self, signal: Signal) -> nix::Result<()> {
        let signal = rustix::process::Signal::from_named_raw(signal as i32).ok_or(Errno::EINVAL)?;
        pidfd_send_signal(&self.process, signal).map_err(|error| Errno::from_raw(error.raw_os_error()))
    }
}

fn spawn(place: &Place, options: &ProxyOptions) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(place.log())?;
    let flag = |name: &str, path: PathBuf| {
        let mut flag = OsString::from(format!("{name}="));
        flag.push(path);
        flag
    };
    Command::new(&options.program)
        .args([
            flag("--koord-runtimeproxy-endpoint", place.socket()),
            flag(
                "--remote-runtime-service-endpoint",
                options.backend.clone().unwrap_or_else(|| place.backend()),
            ),
            flag("--hook-config-dir", place.hooks()),
            flag("--state-dir", place.state()),
            flag("--admin-socket", place.admin()),
            // Tests of hook servers expect the requests they sent; rules are asked all the same.
            "--feature-gates=GroupIdentity=false,CPUSetAllocator=false,BatchResource=false".into(),
            "--node-policy=".into(),
            "--plugin-dir=".into(),
        ])
        .args(&options.flags)
        .env_remove("NOTIFY_SOCKET")
        .env_remove("LISTEN_FDS")
        .env_remove("LISTEN_PID")
        .envs(options.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

/// One HTTP/1.1 request over a unix socket, the connection closed behind it.
pub fn admin(socket: &Path, method: &str, path: &str) -> io::Result<AdminAnswer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse_answer(&answer).ok_or_else(|| io::Error::other("not an HTTP answer"))
}

fn parse_answer(answer: &[u8]) -> Option<AdminAnswer> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut rest = &answer[end + 4..];
    if !head.contains("\r\ntransfer-encoding: chunked") {
        return Some(AdminAnswer { status, body: String::from_utf8_lossy(rest).into_owned() });
    }
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(AdminAnswer { status, body: String::from_utf8_lossy(&body).into_owned() });
        }
        body.extend_from_slice(rest.get(line + 2..line + 2 + size)?);
        rest = rest.get(line + 2 + size + 2..)?;
    }
}

/// The sum of a metric's series in Prometheus text.
pub fn metric(text: &str, name: &str, labels: &[&str]) -> f64 {
    text.lines()
        .filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (series, value) =
                if rest.starts_with('{') { rest.rsplit_once(' ')? } else { ("", rest.strip_prefix(' ')?) };
            labels.iter().all(|label| series.contains(label)).then(|| value.trim().parse::<f64>().ok())?
        })
        .sum()
}

/// The process that made a socket listen.
pub fn listener_pid(socket: &Path) -> Option<Pid> {
    let stream = UnixStream::connect(socket).ok()?;
    getsockopt(&stream, PeerCredentials).ok().map(|credentials| Pid::from_raw(credentials.pid()))
}

/// Whether a process runs; one that ended and was not yet waited for does not.
pub fn is_alive(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z')))
}

/// Resident memory of a process, KiB.
pub fn resident_kib(pid: Pid) -> Option<u64> {
    status_kib(pid, "VmRSS:")
}

/// Highest resident memory of a process so far, KiB.
pub fn peak_kib(pid: Pid) -> Option<u64> {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: Pid, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn chunked_and_plain_answers_are_read() {
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse_answer(chunked), Some(AdminAnswer { status: 200, body: "abcde".into() }));
        let plain = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno";
        assert_eq!(parse_answer(plain), Some(AdminAnswer { status: 503, body: "no".into() }));
        assert_eq!(parse_answer(b"HTTP/1.1 200 OK\r\n"), None);
    }

    #[test]
    fn series_are_summed_by_label() {
        let text =
            "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\",y=\"2\"} 4\na_total_more 9\nb 5\n";
        assert_eq!(metric(text, "a_total", &[]), 7.0);
        assert_eq!(metric(text, "a_total", &["x=\"2\""]), 4.0);
        assert_eq!(metric(text, "a_total", &["x=\"2\"", "y=\"3\""]), 0.0);
        assert_eq!(metric(text, "b", &[]), 5.0);
    }

    #[test]
    fn a_signal_goes_to_the_process_itself_and_to_none_after_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = pidfd_open(rustix::process::Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let successor = Successor { pid: Pid::from_raw(pid), process };
        assert!(successor.is_running());
        assert_eq!(successor.signal(Signal::SIGTERM), Ok(()));
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert!(!successor.is_running());
        // Whoever has its number now is not meant.
        assert_eq!(successor.signal(Signal::SIGKILL), Err(Errno::ESRCH));
    }

    #[test]
    fn own_memory_can_be_read() {
        assert!(resident_kib(Pid::this()).unwrap() > 100);
        assert!(peak_kib(Pid::this()).unwrap() >= resident_kib(Pid::this()).unwrap() / 2);
    }
}
