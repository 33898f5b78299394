//! Starting children and taking note of their end.
//!
//! One thread starts all of them, because a child is told of the end of the thread that started it, not of the
//! process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use koord_runtime::supervisor::{Supervisor, ThreadOptions};
use tokio::sync::oneshot;

use super::CHILD_ARGUMENT;
use crate::library::StartError;

/// The program a child runs: this one, also if its file has been replaced since.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// How often killed children are looked after until their end has been noted.
const REAP_PAUSE: Duration = Duration::from_millis(20);

/// How long a library may take to shut down.
const GRACE: Duration = Duration::from_secs(1);

/// A running child. One that is dropped is killed.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    child: Child,
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(&mut self) -> io::Result<std::process::ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of no effect after its end has been noted. Otherwise nobody is left to do that, and it takes a moment.
        let _ = self.kill();
    }
}

/// A child that was started.
pub(crate) struct Started {
    /// The program's end of its socket.
    pub(crate) socket: UnixStream,
    pub(crate) running: Running,
}

enum Order {
    Start {
        name: String,
        max_address_space: Option<u64>,
        started: oneshot::Sender<io::Result<Started>>,
    },
    /// Kill it; what it was doing has failed.
    Kill(Running),
    /// Its socket is closed: it ends by itself, or is killed after [`GRACE`].
    Retire(Running),
}

/// Starts the children of a program.
#[derive(Debug)]
pub struct Children {
    program: PathBuf,
    supervisor: Supervisor,
    orders: Mutex<Thread>,
}

#[derive(Debug, Default)]
enum Thread {
    /// Nothing to start yet.
    #[default]
    None,
    Running(Sender<Order>),
    Closed,
}

impl Children {
    /// Children that run `program`, whose `main` calls [`super::main_if_child`]; [`THIS_PROGRAM`] is what programs
    /// give.
    pub fn new(program: impl Into<PathBuf>, supervisor: Supervisor) -> Self {
        Self { program: program.into(), supervisor, orders: Mutex::default() }
    }

    /// No child is started any more, and the thread ends with its children.
    pub fn close(&self) {
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = Thread::Closed;
    }

    fn sender(&self) -> Result<Sender<Order>, StartError> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        match &*orders {
            Thread::Running(sender) => Ok(sender.clone()),
            Thread::Closed => Err(StartError::Closed),
            Thread::None => {
                let (sender, receiver) = channel();
                let program = self.program.clone();
                self.supervisor
                    .thread("hook-children", ThreadOptions::default(), move |_token| {
                        serve(&program, &receiver);
                        Ok(())
                    })
                    .map_err(StartError::Thread)?;
                *orders = Thread::Running(sender.clone());
                Ok(sender)
            }
        }
    }

    pub(crate) async fn start(
        &self,
        name: &str,
        max_address_space: Option<u64>,
    ) -> Result<Started, StartError> {
        let (started, answer) = oneshot::channel();
        let order = Order::Start { name: name.to_owned(), max_address_space, started };
        self.sender()?.send(order).map_err(|_| StartError::Closed)?;
        answer.await.map_err(|_| StartError::Closed)?.map_err(StartError::Child)
    }

    /// Kills a child; how it ended is logged.
    pub(crate) fn kill(&self, running: Running) {
        self.order(Order::Kill(running));
    }

    /// Waits for a child whose socket is closed, and kills it if it takes too long.
    pub(crate) fn retire(&self, running: Running) {
        self.order(Order::Retire(running));
    }

    fn order(&self, order: Order) {
        if let Ok(sender) = self.sender() {
            // Given back, a child is dropped and thereby killed.
            drop(sender.send(order));
        }
    }
}

/// The body of the thread.
fn serve(program: &PathBuf, orders: &Receiver<Order>) {
    let mut dying: Vec<(Running, Instant)> = Vec::new();
    loop {
        let order = if dying.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(REAP_PAUSE)
        };
        match order {
            Ok(Order::Start { name, max_address_space, started }) => {
                // Nobody to tell: what was started is dropped and thereby killed.
                drop(started.send(start(program, name, max_address_space)));
            }
            Ok(Order::Kill(running)) => dying.push((running, Instant::now())),
            Ok(Order::Retire(running)) => dying.push((running, Instant::now() + GRACE)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        dying.retain_mut(|(running, kill_at)| {
            let gone = ended(running);
            if !gone && Instant::now() >= *kill_at {
                let _ = running.child.kill();
            }
            !gone
        });
    }
}

/// Whether a child has ended, which is logged.
fn ended(running: &mut Running) -> bool {
    match running.child.try_wait() {
        Ok(None) => false,
        Ok(Some(status)) => {
            tracing::info!(library = running.name, process = running.id(), %status, "process of a hook library ended");
            true
        }
        Err(error) => {
            tracing::warn!(library = running.name, %error, "cannot wait for the process of a hook library");
            true
        }
    }
}

/// Starts a child. It inherits its socket as standard input, the standard error output for messages, and nothing
/// else: no environment, no other descriptor.
pub(crate) fn start(program: &PathBuf, name: String, max_address_space: Option<u64>) -> io::Result<Started> {
    let (socket, theirs) = UnixStream::pair()?;
    let child = Command::new(program)
        .arg0("koord-hook")
        .arg(CHILD_ARGUMENT)
        .arg(std::process::id().to_string())
        .arg(max_address_space.unwrap_or(0).to_string())
        .arg(&name)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Started { socket, running: Running { name, child } })
}
