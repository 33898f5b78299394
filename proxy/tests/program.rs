//! The program as a service manager and an operator see it: command line, exit codes, sockets, signals.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_koord-runtime-proxy");

/// Longer than anything here takes; reached only when a test fails.
const LIMIT: Duration = Duration::from_secs(60);

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn version_and_help_go_to_standard_output() {
    let version = run(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(text(&version.stdout).starts_with("koord-runtime-proxy 0."), "{version:?}");
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("--koord-runtimeproxy-endpoint SOCKET"));
    assert_eq!(text(&help.stderr), "");
}

#[test]
fn all_mistakes_of_a_command_line_are_told_at_once_with_exit_code_two() {
    let output = run(&["--hook-timeout=soon", "--nonsense", "--backend-runtime-mode=Docker", "--v", "11"]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    for part in [
        "--hook-timeout=soon: ",
        "accepted: a duration from 1ms to 10m",
        "--nonsense: unknown flag",
        "--backend-runtime-mode=Docker: Docker mode is not available in this version",
        "--v=11: out of range; accepted: a whole number from 0 to 10",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn validate_judges_registration_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let argument = format!("--hook-config-dir={}", folder.path().display());
    std::fs::write(folder.path().join("good.json"), r#"{"remote-endpoint": "/run/k.sock"}"#)
        .expect("written");
    let output = run(&["validate", &argument]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("good.json: /run/k.sock"), "{output:?}");
    std::fs::write(folder.path().join("bad.json"), "{").expect("written");
    let output = run(&["validate", &argument]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("bad.json"), "{output:?}");
}

/// A folder with everything a proxy needs, and the service manager's ear. There is no runtime.
struct Bed {
    folder: tempfile::TempDir,
    manager: UnixDatagram,
}

impl Bed {
    fn new() -> Bed {
        let folder = tempfile::tempdir().expect("a folder");
        let manager = UnixDatagram::bind(folder.path().join("notify")).expect("bound");
        manager.set_read_timeout(Some(LIMIT)).expect("allowed");
        Bed { folder, manager }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments(&self) -> Vec<String> {
        [
            ("koord-runtimeproxy-endpoint", "proxy.sock"),
            ("remote-runtime-service-endpoint", "runtime.sock"),
            ("hook-config-dir", "hooks"),
            ("state-dir", "state"),
            ("admin-socket", "admin.sock"),
        ]
        .into_iter()
        .map(|(flag, name)| format!("--{flag}={}", self.path(name).display()))
        .collect()
    }

    fn start(&self, more: &[&str]) -> Running {
        let child = Command::new(PROGRAM)
            .args(self.arguments())
            .args(more)
            .env("NOTIFY_SOCKET", self.path("notify"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        Running(child)
    }

    /// The next message to the service manager that has a line starting with `wanted`.
    fn heard(&self, wanted: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = match self.manager.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("{wanted}: {error}"),
            };
            let message = text(&buffer[..length]);
            if message.lines().any(|line| line.starts_with(wanted)) {
                return message;
            }
        }
    }

    fn admin(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(self.path("admin.sock")).expect("the admin socket listens");
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }
}

/// Ends with its test.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        send(self.0.id(), signal);
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn send(process: u32, signal: Signal) {
    let process = i32::try_from(process).expect("a process id");
    kill(Pid::from_raw(process), signal).expect("the process is there");
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn without_a_runtime_it_listens_and_is_not_ready_until_asked_to_end() {
    let bed = Bed::new();
    let mut proxy = bed.start(&["--shutdown-grace=0s"]);
    until("the socket appears", || bed.path("proxy.sock").exists());
    UnixStream::connect(bed.path("proxy.sock")).expect("it listens before anything else is ready");
    bed.heard("READY=1");
    assert!(bed.admin("GET /healthz").starts_with("HTTP/1.1 200 "));
    let ready = bed.admin("GET /readyz");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("\"backend_connected\":false"), "{ready}");

    // A second one must not take the socket away.
    let second = Command::new(PROGRAM)
        .args(bed.arguments())
        .arg(format!("--admin-socket={}", bed.path("other.sock").display()))
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    assert_eq!(second.status.code(), Some(1));
    let told = text(&second.stderr);
    assert!(told.contains("another process is listening on") && told.contains("proxy.sock"), "{told}");
    UnixStream::connect(bed.path("proxy.sock")).expect("the first still listens");

    assert!(bed.admin("POST /drain").starts_with("HTTP/1.1 202 "));
    bed.heard("STOPPING=1");
    assert_eq!(proxy.wait().code(), Some(0));
    assert!(!bed.path("proxy.sock").exists());
    assert!(!bed.path("admin.sock").exists());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let bed = Bed::new();
    let mut proxy = bed.start(&["--shutdown-grace=1h", "--backend-wait=10m"]);
    bed.heard("READY=1");
    // A client whose first call waits for the runtime keeps the drain going.
    let mut client = UnixStream::connect(bed.path("proxy.sock")).expect("connected");
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("written");
    until("the client is served", || {
        bed.admin("GET /tasks").contains("\"thread\":true")
            && bed.admin("GET /tasks").matches("\"thread\":true").count() > 1
    });
    proxy.signal(Signal::SIGTERM);
    bed.heard("STOPPING=1");
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait().code(), Some(1));
}

/// Starts the program as a service manager with a socket unit does.
fn start_activated(bed: &Bed, socket: &Path) -> Running {
    let listener = UnixListener::bind(socket).expect("bound");
    let child = Command::new("/bin/sh")
        .args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\" 3<&0 0</dev/null", PROGRAM])
        .args(bed.arguments())
        .args(["--shutdown-grace=0s", "--handover-drain=0s"])
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", "koord-runtime-proxy.socket")
        .env("NOTIFY_SOCKET", bed.path("notify"))
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the shell starts");
    Running(child)
}

/// A process that is not our child; ends with its test as well.
struct Successor(u32);

impl Successor {
    /// A process that nobody collects has no program any more.
    fn is_there(&self) -> bool {
        std::fs::read_link(format!("/proc/{}/exe", self.0)).is_ok()
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if self.is_there() {
            send(self.0, Signal::SIGKILL);
        }
    }
}

#[test]
fn a_passed_socket_outlives_the_program_and_is_handed_over() {
    let bed = Bed::new();
    let socket = bed.path("unit.sock");
    let mut old = start_activated(&bed, &socket);
    bed.heard("READY=1");
    assert!(!bed.path("proxy.sock").exists(), "the passed socket is the only one");

    old.signal(Signal::SIGHUP);
    assert!(bed.heard("RELOADING=1").contains("MONOTONIC_USEC="));
    let message = bed.heard("MAINPID=");
    let new: u32 = message
        .lines()
        .find_map(|line| line.strip_prefix("MAINPID="))
        .and_then(|pid| pid.parse().ok())
        .expect("a process id");
    assert_ne!(new, old.0.id());
    let new = Successor(new);
    assert!(message.contains("READY=1"), "{message}");
    assert_eq!(old.wait().code(), Some(0));
    assert!(bed.admin("GET /version").contains(&format!("\"pid\":{}", new.0)));
    UnixStream::connect(&socket).expect("the new process listens");

    send(new.0, Signal::SIGTERM);
    bed.heard("STOPPING=1");
    until("the new process ends", || !new.is_there());
    assert!(socket.exists(), "the service manager's path is left alone");
    assert!(!bed.path("admin.sock").exists());
}

#[test]
fn a_check_that_finds_mistakes_tells_the_service_manager_why() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("hooks")).expect("made");
    std::fs::write(bed.path("hooks/bad.json"), "{").expect("written");
    let output = Command::new(PROGRAM)
        .arg("validate")
        .args(bed.arguments())
        .env("NOTIFY_SOCKET", bed.path("notify"))
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told = bed.heard("STATUS=");
    let begin = format!(
        "STATUS=1 mistake in the configuration, what is in force stays: {}/bad.json: ",
        bed.path("hooks").display()
    );
    assert!(told.starts_with(&begin), "{told}");
}

#[test]
fn an_own_socket_is_given_to_the_service_manager_to_keep_and_signs_of_life_follow() {
    let bed = Bed::new();
    let child = Command::new(PROGRAM)
        .args(bed.arguments())
        .env("NOTIFY_SOCKET", bed.path("notify"))
        .env("WATCHDOG_USEC", "300000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut proxy = Running(child);
    let kept = bed.heard("FDSTORE=1");
    let name = kept.lines().find_map(|line| line.strip_prefix("FDNAME=own-")).expect("a name").to_owned();
    bed.heard("READY=1");
    // A client that says nothing has a thread that answers all the same.
    let _client = UnixStream::connect(bed.path("proxy.sock")).expect("listening");
    for _turn in 0..5 {
        bed.heard("WATCHDOG=1");
    }
    proxy.signal(Signal::SIGTERM);
    bed.heard("STOPPING=1");
    assert_eq!(bed.heard("FDSTOREREMOVE=1"), format!("FDSTOREREMOVE=1\nFDNAME=own-{name}\n"));
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_reload_reads_the_file_of_variables_anew() {
    let bed = Bed::new();
    let file = bed.path("default");
    std::fs::write(&file, "KOORD_RUNTIME_PROXY_FLAGS=\"--v=3 --handover-drain=0s --shutdown-grace=0s\"\n")
        .expect("written");
    let shown = file.display().to_string();
    let mut old = bed.start(&["serve", &shown]);
    bed.heard("READY=1");
    assert!(bed.admin("GET /config").contains("\"v\":3"));

    std::fs::write(&file, "KOORD_RUNTIME_PROXY_FLAGS=\"--v=5 --shutdown-grace=0s\"\n").expect("written");
    old.signal(Signal::SIGHUP);
    let message = bed.heard("MAINPID=");
    let pid =
        message.lines().find_map(|line| line.strip_prefix("MAINPID=")?.parse().ok()).expect("a process id");
    let new = Successor(pid);
    assert_eq!(old.wait().code(), Some(0));
    assert!(bed.admin("GET /config").contains("\"v\":5"));

    // A value that is wrong ends the new process, and this one stays.
    std::fs::write(&file, "KOORD_RUNTIME_PROXY_FLAGS=--v=11\n").expect("written");
    send(new.0, Signal::SIGHUP);
    bed.heard("STATUS=1 mistake in the configuration, what is in force stays: ");
    bed.heard("STATUS=serving; the last hand-over failed: ");
    assert!(new.is_there());
    send(new.0, Signal::SIGTERM);
    until("the process ends", || !new.is_there());
}
