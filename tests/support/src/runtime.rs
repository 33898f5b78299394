//! A scriptable container runtime: a gRPC server on raw frames.
//!
//! It accepts any `:authority`, any path and any kind of stream, records what arrived, and answers through a
//! [`Behaviour`] which may delay, reset, disconnect or never answer. It can be killed and started again on its socket.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, shutdown};

use crate::frame::{Frame, code};
use crate::peer::{Answer, Event, Fields, Peer, PeerOptions, SendError, Stream, field, fields};
use crate::wait::LIMIT;

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Number of the connection, from 1.
    pub connection: u64,
    /// Stream id.
    pub stream: u32,
    /// `:path`.
    pub path: String,
    /// All header fields in order.
    pub head: Fields,
    /// All DATA, gRPC prefixes included.
    pub body: Vec<u8>,
    /// RST_STREAM code, when the client cancelled.
    pub reset: Option<u32>,
    /// Whether the request arrived in full.
    pub complete: bool,
    /// When the head arrived.
    pub arrived: Instant,
}

impl Recorded {
    /// The last part of the path.
    pub fn method(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The request's only message, without its prefix.
    ///
    /// # Panics
    /// When the body is not one uncompressed message.
    #[track_caller]
    pub fn message(&self) -> Vec<u8> {
        let answer = Answer { body: self.body.clone(), ..Answer::default() };
        answer.message()
    }

    /// The value of a header field as text.
    pub fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name).map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

/// How an answer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Trailers, behind a head; `grpc-status` first.
    Trailers {
        /// `grpc-status`.
        status: u32,
        /// `grpc-message`, already percent-encoded.
        message: String,
        /// More fields, in order.
        extra: Fields,
    },
    /// One header block only, with END_STREAM.
    TrailersOnly {
        /// `grpc-status`.
        status: u32,
        /// `grpc-message`, already percent-encoded.
        message: String,
        /// More fields, in order.
        extra: Fields,
    },
    /// RST_STREAM.
    Reset(u32),
    /// GOAWAY with the last stream id below this stream, then the connection closes.
    Goaway,
    /// The connection closes.
    Disconnect,
    /// Nothing more is said until the client or the connection goes.
    Hang,
}

/// An answer to a unary or server-streaming call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Time between the end of the request and the answer.
    pub delay: Duration,
    /// More fields of the head, in order.
    pub head: Fields,
    /// Messages without prefix.
    pub messages: Vec<Vec<u8>>,
    /// What comes last.
    pub ending: Ending,
}

impl Reply {
    /// One message and status 0.
    pub fn ok(message: impl Into<Vec<u8>>) -> Self {
        Self {
            delay: Duration::ZERO,
            head: Fields::new(),
            messages: vec![message.into()],
            ending: Ending::Trailers { status: 0, message: String::new(), extra: Fields::new() },
        }
    }

    /// A trailers-only answer with this status.
    pub fn error(status: u32, message: &str) -> Self {
        let ending = Ending::TrailersOnly { status, message: message.into(), extra: Fields::new() };
        Self { ending, messages: Vec::new(), ..Self::ok([]) }
    }

    /// No message; ends like this.
    pub fn ending(ending: Ending) -> Self {
        Self { ending, messages: Vec::new(), ..Self::ok([]) }
    }

    /// The same after `delay`.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sends the answer on `stream`.
    pub fn send(&self, stream: &Stream) -> Result<(), SendError> {
        if !self.delay.is_zero() {
            // The client going away ends the wait.
            stream.wait_reset(self.delay);
        }
        if let Some(code) = stream.was_reset() {
            return Err(SendError::Reset(code));
        }
        let standard = fields(&[(":status", "200"), ("content-type", "application/grpc")]);
        let ending = |status: &u32, message: &String, extra: &Fields| {
            let mut ending = fields(&[("grpc-status", &status.to_string())]);
            if !message.is_empty() {
                ending.extend(fields(&[("grpc-message", message)]));
            }
            ending.extend(extra.iter().cloned());
            ending
        };
        if let Ending::TrailersOnly { status, message, extra } = &self.ending {
            stream
                .send_headers(&[standard, self.head.clone(), ending(status, message, extra)].concat(), true);
            return Ok(());
        }
        if !self.messages.is_empty() || matches!(self.ending, Ending::Trailers { .. }) {
            stream.send_headers(&[standard, self.head.clone()].concat(), false);
        }
        for message in &self.messages {
            stream.send_message(message, false)?;
        }
        match &self.ending {
            Ending::Trailers { status, message, extra } => {
                stream.send_headers(&ending(status, message, extra), true);
            }
            Ending::TrailersOnly { .. } => {}
            Ending::Reset(code) => stream.reset(*code),
            Ending::Goaway => {
                let last = stream.id().saturating_sub(2);
                stream.peer().send_frame(&Frame::goaway(last, code::NO_ERROR, b"going"));
                // A peer that reads sees GOAWAY before the end of the connection.
                stream.peer().ping(*b"goodbye!", Duration::from_millis(200));
                stream.peer().close();
            }
            Ending::Disconnect => stream.peer().close(),
            Ending::Hang => {
                stream.wait_reset(Duration::from_secs(3600));
            }
        }
        Ok(())
    }
}

/// A call being served.
#[derive(Debug)]
pub struct ServerCall {
    /// `:path`.
    pub path: String,
    /// All header fields.
    pub head: Fields,
    /// Number of the connection.
    pub connection: u64,
    /// How many calls of this path came before.
    pub earlier: u64,
    stream: Stream,
    record: Arc<Records>,
    index: usize,
}

impl ServerCall {
    /// The last part of the path.
    pub fn method(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The stream, to answer by hand.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Waits for the next piece of the request and records it.
    pub fn next(&self, limit: Duration) -> Option<Event> {
        let event = self.stream.next(limit)?;
        self.record.update(self.index, |recorded| match &event {
            Event::Data { bytes, end } => {
                recorded.body.extend_from_slice(bytes);
                recorded.complete |= *end;
            }
            Event::Headers { end, .. } => recorded.complete |= *end,
            Event::Reset(code) => recorded.reset = Some(*code),
            Event::Lost(_) => {}
        });
        Some(event)
    }

    /// Waits for the end of the request; its only message, or `None` when it was cancelled, lost or is not one message.
    pub fn message(&self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let last = match self.next(Duration::from_secs(3600))? {
                Event::Data { bytes, end } => {
                    body.extend_from_slice(&bytes);
                    end
                }
                Event::Headers { end, .. } => end,
                Event::Reset(_) | Event::Lost(_) => return None,
            };
            if last {
                let mut messages = crate::frame::split_messages(&body)?;
                return if messages.len() == 1 { messages.pop().map(|(_, payload)| payload) } else { None };
            }
        }
    }

    /// Waits for the end of the request and answers it.
    pub fn reply(&self, answer: impl FnOnce(&[u8]) -> Reply) {
        if let Some(message) = self.message() {
            // A client that went away needs no answer.
            let _ = answer(&message).send(&self.stream);
            self.note_reset();
        }
    }

    fn note_reset(&self) {
        if let Some(code) = self.stream.was_reset() {
            self.record.update(self.index, |recorded| recorded.reset = Some(code));
        }
    }
}

/// How the runtime serves a call; runs on a thread of its own.
pub type Behaviour = Arc<dyn Fn(&ServerCall) + Send + Sync>;

/// Unary behaviour from a function of method name and message.
pub fn unary(answer: impl Fn(&ServerCall, &[u8]) -> Reply + Send + Sync + 'static) -> Behaviour {
    Arc::new(move |call| call.reply(|message| answer(call, message)))
}

/// Answers every unary call with an empty message.
pub fn empty_answers() -> Behaviour {
    unary(|_, _| Reply::ok([]))
}

#[derive(Debug, Default)]
struct Records {
    state: Mutex<RecordState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RecordState {
    /// Number of the first request in `calls`: those before it were forgotten.
    first: usize,
    calls: Vec<Recorded>,
    seen: HashMap<String, u64>,
}

impl Records {
    fn lock(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, index: usize, change: impl FnOnce(&mut Recorded)) {
        let mut state = self.lock();
        let index = index.checked_sub(state.first);
        if let Some(recorded) = index.and_then(|index| state.calls.get_mut(index)) {
            change(recorded);
        }
        drop(state);
        self.changed.notify_all();
    }
}

struct Running {
    listener: UnixListener,
    peers: Arc<Mutex<Vec<Peer>>>,
    acceptor: thread::JoinHandle<()>,
}

/// The fake runtime.
pub struct FakeRuntime {
    socket: PathBuf,
    options: PeerOptions,
    behaviour: Arc<Mutex<Behaviour>>,
    records: Arc<Records>,
    connections: Arc<AtomicU64>,
    running: Option<Running>,
}

impl std::fmt::Debug for FakeRuntime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FakeRuntime").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl FakeRuntime {
    /// Listens on `socket`.
    pub fn start(socket: impl Into<PathBuf>, behaviour: Behaviour) -> io::Result<Self> {
        Self::start_with(socket, PeerOptions::default(), behaviour)
    }

    /// Listens on `socket` with these HTTP/2 settings.
    pub fn start_with(
        socket: impl Into<PathBuf>,
        options: PeerOptions,
        behaviour: Behaviour,
    ) -> io::Result<Self> {
        let mut runtime = Self::absent_with(socket, options, behaviour);
        runtime.listen()?;
        Ok(runtime)
    }

    /// A runtime whose socket does not exist until [`FakeRuntime::listen`].
    pub fn absent(socket: impl Into<PathBuf>, behaviour: Behaviour) -> Self {
        Self::absent_with(socket, PeerOptions::default(), behaviour)
    }

    fn absent_with(socket: impl Into<PathBuf>, options: PeerOptions, behaviour: Behaviour) -> Self {
        Self {
            socket: socket.into(),
            options,
            behaviour: Arc::new(Mutex::new(behaviour)),
            records: Arc::default(),
            connections: Arc::default(),
            running: None,
        }
    }

    /// Starts to listen; a stale socket file is replaced.
    pub fn listen(&mut self) -> io::Result<()> {
        self.kill();
        let listener = UnixListener::bind(&self.socket)?;
        let accepting = listener.try_clone()?;
        let peers = Arc::new(Mutex::new(Vec::new()));
        let acceptor = thread::Builder::new().name("fake-runtime".into()).spawn({
            let peers = Arc::clone(&peers);
            let behaviour = Arc::clone(&self.behaviour);
            let records = Arc::clone(&self.records);
            let connections = Arc::clone(&self.connections);
            let options = self.options.clone();
            move || {
                while let Ok((socket, _)) = accepting.accept() {
                    let connection = connections.fetch_add(1, Ordering::SeqCst) + 1;
                    let accept = acceptor(connection, Arc::clone(&behaviour), Arc::clone(&records));
                    if let Ok(peer) = Peer::server(socket, options.clone(), accept) {
                        peers.lock().unwrap_or_else(PoisonError::into_inner).push(peer);
                    }
                }
            }
        })?;
        self.running = Some(Running { listener, peers, acceptor });
        Ok(())
    }

    /// Ends all connections and removes the socket, as a crash and a clean-up would.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            // Ends the wait for connections, whatever became of the socket's file.
            let _ = shutdown(running.listener.as_raw_fd(), Shutdown::Both);
            let _ = running.acceptor.join();
            for peer in running.peers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                peer.close();
            }
        }
        self.remove_socket();
    }

    fn remove_socket(&self) {
        // Absent is what is wanted.
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Calls from now on are served like this.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour;
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// The live connections' ends.
    pub fn peers(&self) -> Vec<Peer> {
        let Some(running) = &self.running else { return Vec::new() };
        let peers = running.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.iter().filter(|peer| !peer.is_lost()).cloned().collect()
    }

    /// All requests so far, in the order of their heads.
    pub fn calls(&self) -> Vec<Recorded> {
        self.records.lock().calls.clone()
    }

    /// The requests of one method (the last part of the path).
    pub fn calls_of(&self, method: &str) -> Vec<Recorded> {
        self.records.lock().calls.iter().filter(|call| call.method() == method).cloned().collect()
    }

    /// Forgets the requests so far.
    pub fn forget_calls(&self) {
        let mut state = self.records.lock();
        state.first += state.calls.len();
        state.calls.clear();
    }

    /// Waits for the `count`th request of a method that arrived in full.
    ///
    /// # Panics
    /// When it does not come within [`LIMIT`].
    #[track_caller]
    pub fn wait_call(&self, method: &str, count: usize) -> Recorded {
        crate::wait::until(&format!("call {count} of {method}"), LIMIT, || {
            self.calls_of(method).into_iter().filter(|call| call.complete).nth(count - 1)
        })
    }
}

impl Drop for FakeRuntime {
    fn drop(&mut self) {
        self.kill();
    }
}

fn acceptor(
    connection: u64,
    behaviour: Arc<Mutex<Behaviour>>,
    records: Arc<Records>,
) -> impl Fn(Stream) + Send {
    move |stream| {
        let (behaviour, records) = (Arc::clone(&behaviour), Arc::clone(&records));
        let serve = move || {
            let Some(Event::Headers { fields: head, end }) = stream.next(LIMIT) else { return };
            let path =
                field(&head, ":path").map_or_else(String::new, |path| String::from_utf8_lossy(path).into());
            let mut state = records.lock();
            let seen = state.seen.entry(path.clone()).or_default();
            let earlier = *seen;
            *seen += 1;
            let index = state.first + state.calls.len();
            state.calls.push(Recorded {
                connection,
                stream: stream.id(),
                path: path.clone(),
                head: head.clone(),
                body: Vec::new(),
                reset: None,
                complete: end,
                arrived: Instant::now(),
            });
            drop(state);
            records.changed.notify_all();
            let behaviour = Arc::clone(&behaviour.lock().unwrap_or_else(PoisonError::into_inner));
            let call = ServerCall {
                path,
                head,
                connection,
                earlier,
                stream: stream.clone(),
                record: records,
                index,
            };
            behaviour(&call);
            call.note_reset();
            stream.forget();
        };
        // Without a thread the call is never answered; the test's limit reports it.
        let _ = thread::Builder::new().name("fake-call".into()).spawn(serve);
    }
}

#[cfg(test)]
mod tests;
