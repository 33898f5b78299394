//! Accepting clients.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use koord_runtime::notify::Pulse;
use koord_runtime::supervisor::{Supervisor, ThreadOptions};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::connection::Connection;
use super::mailbox::{Mailbox, Message};
use super::{Interceptor, Relay};
use crate::peer::PeerRule;

/// Client connections at a time. A node has a handful; past this something is wrong, and more threads would make it worse.
const MAX_CONNECTIONS: usize = 4096;
/// Requests are decoded on these stacks, up to 64 levels deep.
const CONNECTION_THREAD: ThreadOptions = ThreadOptions { stack_bytes: 512 * 1024, essential: false };
/// Pause when the process is out of descriptors or threads.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Why clients cannot be accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptorError {
    /// The listening socket or the wake-up descriptor could not be had.
    #[error("cannot prepare the acceptor")]
    Prepare(#[source] std::io::Error),
    /// Its thread could not be started.
    #[error("cannot start the acceptor")]
    Start(#[from] koord_runtime::supervisor::SpawnError),
}

/// The acceptor's switch; its thread ends when this is dropped.
#[derive(Debug)]
pub struct Acceptor {
    gate: Arc<Gate>,
    /// Set once the thread has been told to end.
    ended: AtomicBool,
}

#[derive(Debug)]
struct Gate {
    /// Held while a connection is accepted.
    state: Mutex<State>,
    wake: EventFd,
    pulse: Pulse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Accepting,
    Paused,
    Ended,
}

impl Gate {
    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        // It fails only when 2^64 - 2 wake-ups are pending, and then the thread wakes anyway.
        let _ = self.wake.write(1);
    }

    fn get(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Acceptor {
    /// Starts to accept on `listener`, which must not block.
    ///
    /// # Errors
    /// See [`AcceptorError`].
    pub fn start<I: Interceptor>(
        relay: &Relay<I>,
        listener: &UnixListener,
        peers: PeerRule,
        supervisor: &Supervisor,
    ) -> Result<Self, AcceptorError> {
        let listener = listener.try_clone().map_err(AcceptorError::Prepare)?;
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(|error| AcceptorError::Prepare(error.into()))?;
        let gate = Arc::new(Gate { state: Mutex::new(State::Accepting), wake, pulse: Pulse::default() });
        let (relay, thread_gate) = (relay.clone(), Arc::clone(&gate));
        supervisor.thread(
            "acceptor",
            ThreadOptions { essential: true, ..ThreadOptions::default() },
            move |token| {
                accept_all(&relay, listener, &peers, &thread_gate);
                drop(relay);
                // Told to end: no failure, so the thread stays until the whole process ends.
                while !token.is_cancelled() {
                    std::thread::park_timeout(Duration::from_millis(200));
                }
                Ok(())
            },
        )?;
        Ok(Self { gate, ended: AtomicBool::new(false) })
    }

    /// Accepts no more; nothing is accepted after this returns. New clients wait in the socket's backlog.
    pub fn pause(&self) {
        self.gate.set(State::Paused);
    }

    /// Gives the listening socket up for good.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.gate.set(State::Ended);
    }

    /// True if the thread has not answered the last [`Acceptor::ask`]. One that has ended owes no answer.
    pub fn is_silent(&self) -> bool {
        // Not through the state, which a thread that hangs may hold.
        !self.gate.pulse.beats() && !self.ended.load(Ordering::Acquire)
    }

    /// Asks the thread for a sign of life.
    pub fn ask(&self) {
        self.gate.pulse.ask();
        // As in `Gate::set`.
        let _ = self.gate.wake.write(1);
    }

    /// Accepts again.
    pub fn resume(&self) {
        self.gate.set(State::Accepting);
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.gate.set(State::Ended);
    }
}

fn accept_all<I: Interceptor>(relay: &Relay<I>, listener: UnixListener, peers: &PeerRule, gate: &Gate) {
    loop {
        let state = gate.get();
        let interest = if state == State::Accepting { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut descriptors =
            [PollFd::new(gate.wake.as_fd(), PollFlags::POLLIN), PollFd::new(listener.as_fd(), interest)];
        if state == State::Ended {
            return;
        }
        if let Err(error) = poll(&mut descriptors, PollTimeout::NONE)
            && error != nix::errno::Errno::EINTR
        {
            tracing::error!(%error, "poll failed in the acceptor");
            std::thread::sleep(EXHAUSTED_PAUSE);
        }
        // It fails when nothing is pending, which is as good.
        let _ = gate.wake.read();
        gate.pulse.answer();
        loop {
            let state = gate.state.lock().unwrap_or_else(PoisonError::into_inner);
            if *state != State::Accepting {
                break;
            }
            match listener.accept() {
                Ok((client, _)) => {
                    if peers.admits(&client) {
                        serve(relay, client);
                    }
                    gate.pulse.answer();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    drop(state);
                    tracing::error!(%error, "cannot accept a connection");
                    std::thread::sleep(EXHAUSTED_PAUSE);
                    break;
                }
            }
        }
    }
}

/// Starts the thread of a connection.
fn serve<I: Interceptor>(relay: &Relay<I>, client: std::os::unix::net::UnixStream) {
    let shared = &relay.shared;
    if relay.connections() >= MAX_CONNECTIONS {
        tracing::warn!(limit = MAX_CONNECTIONS, "too many client connections: one refused");
        return;
    }
    let mailbox = match Mailbox::new() {
        Ok(mailbox) => Arc::new(mailbox),
        Err(error) => {
            tracing::error!(%error, "no descriptor for a connection: refused");
            return;
        }
    };
    let id = shared.next_connection.fetch_add(1, Ordering::Relaxed);
    shared.connections().insert(id, Arc::clone(&mailbox));
    if shared.draining.load(Ordering::SeqCst) {
        mailbox.send(Message::Drain);
    }
    shared.open.send_modify(|open| *open += 1);
    let registered = Registered { relay: relay.clone(), id };
    let thread_mailbox = Arc::clone(&mailbox);
    let started = shared.supervisor.thread("connection", CONNECTION_THREAD, move |_token| {
        let shared = Arc::clone(&registered.relay.shared);
        Connection::new(id, shared, client, thread_mailbox).run();
        drop(registered);
        Ok(())
    });
    if let Err(error) = started {
        tracing::error!(%error, "no thread for a connection: refused");
    }
}

/// Takes a connection off the books when its thread ends, however it ends.
struct Registered<I: Interceptor> {
    relay: Relay<I>,
    id: u64,
}

impl<I: Interceptor> Drop for Registered<I> {
    fn drop(&mut self) {
        self.relay.shared.connections().remove(&self.id);
        self.relay.shared.open.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::PeerCheck;
    use crate::metrics::Metrics;
    use crate::relay::{PassThrough, RelayOptions};
    use prometheus_client::registry::Registry;
    use std::time::Instant;

    #[test]
    fn one_that_hangs_is_silent_until_it_goes_on() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("proxy")).expect("bound");
        listener.set_nonblocking(true).expect("allowed");
        let backend = folder.path().join("backend");
        let options = RelayOptions {
            backend: backend.clone(),
            image_backend: None,
            backend_wait: Duration::ZERO,
            max_message_bytes: 4096,
            filter: None,
        };
        let supervisor = Supervisor::new(runtime.handle().clone());
        let metrics = Metrics::register(&mut Registry::default());
        let relay = Relay::new(options, Arc::new(PassThrough), metrics, supervisor.clone());
        let peers = PeerRule::new(PeerCheck::Off, backend);
        let acceptor = Acceptor::start(&relay, &listener, peers, &supervisor).expect("started");
        let answered = |within: Duration| {
            acceptor.ask();
            let start = Instant::now();
            while acceptor.is_silent() && start.elapsed() < within {
                std::thread::sleep(Duration::from_millis(2));
            }
            !acceptor.is_silent()
        };
        let ample = Duration::from_secs(60);
        assert!(answered(ample));
        // Whatever it waits for: here the lock that it takes around each accept.
        let state = acceptor.gate.state.lock().expect("not poisoned");
        // It may have taken the first question with it on the way to the lock, but not the second.
        let _first = answered(Duration::from_millis(100));
        assert!(!answered(Duration::from_millis(100)));
        drop(state);
        assert!(answered(ample));
    }
}
