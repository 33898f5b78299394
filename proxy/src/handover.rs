//! Hand-over to a new process of the same program without a failed call.
//!
//! The old process starts the new one with a channel as its standard input and sends the listening
//! socket over it. Then:
//!
//! | old process | new process |
//! |---|---|
//! | sends the socket | connects to the backend, rebuilds its store |
//! | | says `prepared PID` |
//! | stops accepting, writes its checkpoint, gives the state directory up, says `go` | |
//! | | takes the state directory, reads the checkpoint again, accepts, says `serving` |
//! | tells the service manager, drains | serves |
//!
//! New connections wait in the socket's backlog between `go` and `serving`. Whatever goes wrong before
//! `serving` leaves the old process serving as before. The new one learns when the old one has gone by
//! the end of the channel.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use koord_runtime::descriptors::{Channel, Message};
use koord_runtime::environment::{HANDOVER_VARIABLE, HandoverRole, VARIABLES_OF_ONE_PROCESS};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, timeout_at};

use crate::listener::{Listener, Ownership};

/// First words of the first message: name and version of this exchange.
const GREETING: &str = "koord-handover 1";
const PREPARED: &str = "prepared";
const GO: &str = "go";
const CANCEL: &str = "cancel";
const SERVING: &str = "serving";

/// How long a new process may take to prepare: it waits for the backend at most 5 s, and a node under
/// load takes its time to start a process.
pub const PREPARE_LIMIT: Duration = Duration::from_secs(60);

/// How long a prepared process may take from `go` to `serving`. Connections wait meanwhile.
pub const SERVE_LIMIT: Duration = Duration::from_secs(10);

/// The program to start.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its file, as it was named when this process started.
    pub file: PathBuf,
    /// Its arguments, without the program's name.
    pub arguments: Vec<OsString>,
}

/// The parts of the old process that take part in a hand-over.
pub trait Predecessor: Send + Sync {
    /// Stops accepting connections; those that exist live on. Takes effect before it returns.
    fn stop_accepting(&self);

    /// Accepts again, after a hand-over that failed.
    fn resume_accepting(&self);

    /// Writes the checkpoint and gives up the state directory.
    fn release_state(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Takes the state directory back, after a hand-over that failed.
    fn retake_state(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Why a hand-over did not happen. The old process serves on.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The program's file is not known.
    #[error("the file of this program is not known")]
    UnknownProgram,
    /// The new process could not be started.
    #[error("cannot start {file}", file = .file.display())]
    Start {
        /// The program's file.
        file: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The process that should start it ended badly.
    #[error("starting {file} failed with {status}", file = .file.display())]
    Launch {
        /// The program's file.
        file: PathBuf,
        /// How it ended.
        status: ExitStatus,
    },
    /// The channel failed.
    #[error("cannot talk to the new process while it should be {step}")]
    Channel {
        /// What was being waited for.
        step: &'static str,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The new process ended.
    #[error("the new process ended before it was {step}")]
    Ended {
        /// What was being waited for.
        step: &'static str,
    },
    /// The new process took too long.
    #[error("the new process was not {step} within {limit:?}")]
    TooSlow {
        /// What was being waited for.
        step: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// This process was told to end meanwhile.
    #[error("given up, since this process was told to end")]
    GivenUp,
    /// The other process does not speak this exchange.
    #[error("unexpected message {text:?} while waiting for the new process to be {step}")]
    Unexpected {
        /// What was being waited for.
        step: &'static str,
        /// What came.
        text: String,
    },
}

/// The new process, serving. Dropping it tells the new process that this one is done.
#[derive(Debug)]
pub struct Successor {
    pid: u32,
    _channel: Channel,
}

impl Successor {
    /// Its process id, for the service manager.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// Time limits of a hand-over.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the start to `prepared`.
    pub prepare: Duration,
    /// From `go` to `serving`.
    pub serve: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { prepare: PREPARE_LIMIT, serve: SERVE_LIMIT }
    }
}

/// Starts a new process and lets it take over, unless `give_up` resolves first. On success this process no
/// longer accepts and has given its state up; on failure it serves as before.
///
/// # Errors
/// See [`HandoverError`].
pub async fn hand_over(
    program: &Program,
    listener: &Listener,
    predecessor: &dyn Predecessor,
    limits: Limits,
    give_up: impl Future<Output = ()>,
) -> Result<Successor, HandoverError> {
    let mut give_up = std::pin::pin!(give_up);
    let channel = start(program).await?;
    let deadline = Instant::now() + limits.prepare;
    let prepared = tokio::select! {
        prepared = prepare(&channel, listener, deadline, limits.prepare) => prepared,
        () = &mut give_up => Err(HandoverError::GivenUp),
    };
    let pid = match prepared {
        Ok(pid) => pid,
        Err(error) => {
            cancel(&channel, None).await;
            return Err(error);
        }
    };
    predecessor.stop_accepting();
    predecessor.release_state().await;
    let switched = tokio::select! {
        switched = switch(&channel, limits.serve) => switched,
        () = &mut give_up => Err(HandoverError::GivenUp),
    };
    match switched {
        Ok(()) => Ok(Successor { pid, _channel: channel }),
        Err(error) => {
            // It must not begin to accept beside us later on.
            cancel(&channel, Some(pid)).await;
            predecessor.retake_state().await;
            predecessor.resume_accepting();
            Err(error)
        }
    }
}

/// Starts the process that starts the successor, and waits for its end.
///
/// The successor must not be our child: the service manager notices the end of its main process only if
/// it is the parent, which it becomes when the process in between ends.
async fn start(program: &Program) -> Result<Channel, HandoverError> {
    let file = &program.file;
    let failed = |source| HandoverError::Start { file: file.clone(), source };
    let (channel, theirs) = Channel::pair().map_err(failed)?;
    let mut command = Command::new(file);
    command
        .args(&program.arguments)
        .stdin(Stdio::from(theirs))
        .env(HANDOVER_VARIABLE, HandoverRole::Launch.value());
    for name in VARIABLES_OF_ONE_PROCESS {
        command.env_remove(name);
    }
    let mut child = command.spawn().map_err(failed)?;
    // The command holds a copy of the channel's far end; while it is open the end of the new process
    // would go unnoticed.
    drop(command);
    let status = tokio::task::spawn_blocking(move || child.wait())
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(failed)?;
    if status.success() { Ok(channel) } else { Err(HandoverError::Launch { file: file.clone(), status }) }
}

/// What a process with [`HandoverRole::Launch`] does: starts the successor with the same arguments and
/// its own standard input, and returns at once.
///
/// # Errors
/// The successor could not be started.
pub fn launch(program: &Program) -> Result<(), HandoverError> {
    Command::new(&program.file)
        .args(&program.arguments)
        .env(HANDOVER_VARIABLE, HandoverRole::Succeed.value())
        .spawn()
        // It outlives this process; the service manager collects it.
        .map(|_child| ())
        .map_err(|source| HandoverError::Start { file: program.file.clone(), source })
}

async fn prepare(
    channel: &Channel,
    listener: &Listener,
    deadline: Instant,
    limit: Duration,
) -> Result<u32, HandoverError> {
    const STEP: &str = "prepared";
    let ownership = match listener.ownership() {
        Ownership::Passed => "passed",
        Ownership::Own => "own",
    };
    channel
        .send(&format!("{GREETING} {ownership}"), &[listener.socket().as_fd()])
        .await
        .map_err(|source| HandoverError::Channel { step: STEP, source })?;
    let text = expect(channel, STEP, deadline, limit).await?;
    text.strip_prefix(PREPARED)
        .and_then(|pid| pid.trim().parse().ok())
        .ok_or(HandoverError::Unexpected { step: STEP, text })
}

async fn switch(channel: &Channel, limit: Duration) -> Result<(), HandoverError> {
    const STEP: &str = "serving";
    channel.send(GO, &[]).await.map_err(|source| HandoverError::Channel { step: STEP, source })?;
    let text = expect(channel, STEP, Instant::now() + limit, limit).await?;
    if text == SERVING { Ok(()) } else { Err(HandoverError::Unexpected { step: STEP, text }) }
}

async fn expect(
    channel: &Channel,
    step: &'static str,
    deadline: Instant,
    limit: Duration,
) -> Result<String, HandoverError> {
    match timeout_at(deadline, channel.receive()).await {
        Err(_elapsed) => Err(HandoverError::TooSlow { step, limit }),
        Ok(Err(source)) => Err(HandoverError::Channel { step, source }),
        Ok(Ok(None)) => Err(HandoverError::Ended { step }),
        Ok(Ok(Some(message))) => Ok(message.text),
    }
}

async fn cancel(channel: &Channel, pid: Option<u32>) {
    // A process that is gone needs no telling.
    let _gone = channel.send(CANCEL, &[]).await;
    let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) else { return };
    if let Err(error) = kill_process(pid, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(process = pid.as_raw_nonzero().get(), error = %error, "new process not ended");
    }
}

/// Why a new process must end.
#[derive(Debug, thiserror::Error)]
pub enum SuccessionError {
    /// The channel failed.
    #[error("cannot talk to the old process")]
    Channel(#[source] io::Error),
    /// The first message was not what this version expects.
    #[error("the old process began the hand-over with {0:?}")]
    Greeting(String),
    /// The old process gave the hand-over up.
    #[error("the old process cancelled the hand-over")]
    Cancelled,
    /// The old process ended before it had sent the socket.
    #[error("the old process ended before it handed its socket over")]
    Ended,
}

/// The new process's side.
#[derive(Debug)]
pub struct Succession {
    channel: Channel,
}

/// What the old process handed over.
#[derive(Debug)]
pub struct Inheritance {
    /// The listening socket.
    pub listener: UnixListener,
    /// Who owns its path.
    pub ownership: Ownership,
}

/// How the new process came to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// The old process stopped accepting and has written its checkpoint.
    Handed,
    /// The old process is gone. What it had not saved is lost; the backend knows.
    Orphaned,
}

impl Succession {
    /// Takes standard input over as the channel to the old process. Must be called inside a tokio
    /// runtime, in a process with [`HandoverRole::Succeed`].
    ///
    /// # Errors
    /// Standard input is no such channel.
    pub fn from_standard_input() -> Result<Succession, SuccessionError> {
        Channel::from_standard_input().map(Succession::over).map_err(SuccessionError::Channel)
    }

    /// The new process's side over a channel of any origin.
    pub fn over(channel: Channel) -> Succession {
        Succession { channel }
    }

    /// Receives the listening socket.
    ///
    /// # Errors
    /// The old process is gone or speaks another version.
    pub async fn receive(&mut self) -> Result<Inheritance, SuccessionError> {
        let message = self.next().await?.ok_or(SuccessionError::Ended)?;
        let Message { text, mut descriptors } = message;
        let ownership = match text.strip_prefix(GREETING).map(str::trim) {
            Some("own") => Ownership::Own,
            Some("passed") => Ownership::Passed,
            _ => return Err(SuccessionError::Greeting(text)),
        };
        let descriptor = descriptors.pop().ok_or(SuccessionError::Greeting(text))?;
        Ok(Inheritance { listener: UnixListener::from(descriptor), ownership })
    }

    /// Says that everything is ready, and waits for the word to go.
    ///
    /// # Errors
    /// The old process serves on; this one must end.
    pub async fn prepared(&mut self) -> Result<Go, SuccessionError> {
        // If it is gone, receiving says so.
        let _gone = self.channel.send(&format!("{PREPARED} {}", std::process::id()), &[]).await;
        match self.next().await? {
            Some(message) if message.text == GO => Ok(Go::Handed),
            Some(_cancel_or_unknown) => Err(SuccessionError::Cancelled),
            None => Ok(Go::Orphaned),
        }
    }

    /// Says that this process accepts connections now. From here on it speaks for the service.
    pub async fn serving(&mut self) {
        if let Err(error) = self.channel.send(SERVING, &[]).await {
            tracing::debug!(error = %error, "the old process is gone already");
        }
    }

    /// Waits until the old process has ended, or has given the hand-over up after all.
    ///
    /// # Errors
    /// It cancelled: it did not hear [`Succession::serving`] in time, and serves on.
    pub async fn predecessor_ended(&mut self) -> Result<(), SuccessionError> {
        loop {
            match self.next().await {
                Ok(Some(message)) if message.text == CANCEL => return Err(SuccessionError::Cancelled),
                Ok(Some(_unknown)) => {}
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    async fn next(&mut self) -> Result<Option<Message>, SuccessionError> {
        self.channel.receive().await.map_err(SuccessionError::Channel)
    }
}
