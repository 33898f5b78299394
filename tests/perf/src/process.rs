//! What the kernel says about a process, and relays as child processes.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;

/// CPU time of all live threads of a process.
///
/// From the scheduler's own count, in nanoseconds: `/proc/PID/stat` counts in ticks of 10 ms. Threads that ended are
/// missed, so connections must outlive the measurement.
fn cpu_time(pid: Pid) -> anyhow::Result<Duration> {
    let mut total = 0;
    let tasks = format!("/proc/{pid}/task");
    for task in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        total += text.split(' ').next().unwrap_or_default().parse::<u64>().context(tasks.clone())?;
    }
    Ok(Duration::from_nanos(total))
}

/// CPU time of all live threads of a process and of its children.
pub(crate) fn family_cpu_time(pid: Pid) -> anyhow::Result<Duration> {
    let mut total = cpu_time(pid)?;
    for child in children(pid)? {
        // A child may end between the listing and the reading.
        total += cpu_time(child).unwrap_or_default();
    }
    Ok(total)
}

/// The children of a process.
pub(crate) fn children(pid: Pid) -> anyhow::Result<Vec<Pid>> {
    let mut children = Vec::new();
    let tasks = format!("/proc/{pid}/task");
    for task in fs::read_dir(&tasks).with_context(|| tasks.clone())? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(task?.path().join("children")) else { continue };
        children.extend(text.split_whitespace().filter_map(|id| id.parse().ok()).map(Pid::from_raw));
    }
    Ok(children)
}

/// The process that listens on a socket.
pub(crate) fn owner(socket: &Path) -> anyhow::Result<Pid> {
    let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    Ok(Pid::from_raw(getsockopt(&stream, PeerCredentials)?.pid()))
}

/// A child process, killed when dropped.
#[derive(Debug)]
pub(crate) struct Relay(Child);

impl Relay {
    /// Starts this program's `command` and waits for its socket.
    pub(crate) fn start(command: &str, listen: &Path, backend: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let mut child = Command::new(program);
        child.arg(command).arg("--listen").arg(listen).arg("--backend").arg(backend);
        Self::spawn(child, listen)
    }

    pub(crate) fn spawn(mut command: Command, listen: &Path) -> anyhow::Result<Self> {
        let mut relay = Self(command.stdin(Stdio::null()).spawn().with_context(|| format!("{command:?}"))?);
        let deadline = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(listen).is_err() {
            if let Some(status) = relay.0.try_wait()? {
                bail!("{command:?} ended: {status}");
            }
            if Instant::now() > deadline {
                bail!("{command:?} does not listen on {}", listen.display());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(relay)
    }

    pub(crate) fn pid(&self) -> Pid {
        // The kernel's process ids are below 2^22.
        Pid::from_raw(i32::try_from(self.0.id()).unwrap_or(i32::MAX))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
