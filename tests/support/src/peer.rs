//! One end of an HTTP/2 connection under the test's control.
//!
//! A reader thread follows the protocol (settings and pings are acknowledged, windows kept) and sorts what arrives
//! by stream; a writer thread empties a queue, so that a peer that does not read never stops the reader. Tests may
//! at any time write frames or bytes of their own with [`Peer::send_frame`] and [`Peer::send_bytes`].

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::frame::{Frame, PREFACE, code, flag, kind, read_frame, setting};
use crate::wait::LIMIT;

mod answer;
pub use answer::Answer;

/// Header fields in order; names and values are bytes.
pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The first value of a field.
pub fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a [u8]> {
    fields.iter().find(|(key, _)| key == name.as_bytes()).map(|(_, value)| value.as_slice())
}

/// Fields from text.
pub fn fields(pairs: &[(&str, &str)]) -> Fields {
    pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// When received DATA is given back to its sender as credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// With every frame.
    AtOnce,
    /// When half of the window is used up, as most implementations do.
    Half,
    /// Never: the sender must stop when the first window is full.
    Never,
}

/// How a header block is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Literals that leave the table alone.
    Literal,
    /// Through the dynamic table, as real peers do.
    Indexed,
}

/// How this end behaves.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// Values of the first SETTINGS frame.
    pub settings: Vec<(u16, u32)>,
    /// Size of the connection's receive window; above 65,535 the difference is announced at once.
    pub connection_window: u32,
    /// When credit is given back.
    pub grant: Grant,
    /// DATA frames are at most this long, whatever the other end allows.
    pub data_frame: usize,
    /// Zero bytes behind each DATA frame.
    pub padding: Option<u8>,
    /// Header blocks are cut into fragments of this many bytes.
    pub header_fragment: Option<usize>,
    /// How header blocks are written.
    pub coding: Coding,
    /// The writer hands over at most this many bytes per system call.
    pub write_size: usize,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self {
            settings: vec![(setting::INITIAL_WINDOW_SIZE, 1 << 20), (setting::MAX_HEADER_LIST_SIZE, 2 << 20)],
            connection_window: 16 << 20,
            grant: Grant::Half,
            data_frame: 16_384,
            padding: None,
            header_fragment: None,
            coding: Coding::Indexed,
            write_size: usize::MAX,
        }
    }
}

impl PeerOptions {
    fn initial_window(&self) -> u32 {
        let last = self.settings.iter().rev().find(|(name, _)| *name == setting::INITIAL_WINDOW_SIZE);
        last.map_or(65_535, |(_, value)| *value)
    }
}

/// What arrives on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A header block: the head, or trailers.
    Headers {
        /// The decoded fields.
        fields: Fields,
        /// Whether it ends the stream.
        end: bool,
    },
    /// DATA without padding.
    Data {
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether it ends the stream.
        end: bool,
    },
    /// RST_STREAM with its code.
    Reset(u32),
    /// The connection ended.
    Lost(String),
}

/// A GOAWAY frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goaway {
    /// Streams above this one were not looked at.
    pub last_stream: u32,
    /// Error code.
    pub code: u32,
    /// Free text.
    pub debug: Vec<u8>,
}

#[derive(Debug, Default)]
struct StreamState {
    send_window: i64,
    received: u32,
    events: VecDeque<Event>,
    reset: Option<u32>,
}

#[derive(Debug)]
struct State {
    send_window: i64,
    peer_initial_window: i64,
    peer_settings: Vec<(u16, u32)>,
    max_frame: usize,
    received: u32,
    total_received: u64,
    streams: HashMap<u32, StreamState>,
    goaway: Option<Goaway>,
    lost: Option<String>,
    paused: bool,
    pongs: Vec<[u8; 8]>,
    settings_acknowledged: usize,
    next_stream: u32,
    last_accepted: u32,
}

struct Shared {
    options: PeerOptions,
    state: Mutex<State>,
    changed: Condvar,
    outgoing: Mutex<Option<Sender<Vec<u8>>>>,
    encoder: Mutex<loona_hpack::Encoder<'static>>,
    socket: UnixStream,
}

/// One end of a connection. Clones share it; it is closed by [`Peer::close`] or when the process ends.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Peer").field("state", &*self.state()).finish_non_exhaustive()
    }
}

/// Which end.
enum Side {
    Client,
    Server(Box<dyn Fn(Stream) + Send>),
}

impl Peer {
    /// The client's end: sends the preface and SETTINGS.
    pub fn client(socket: UnixStream, options: PeerOptions) -> io::Result<Self> {
        Self::start(socket, options, Side::Client)
    }

    /// The server's end: expects the preface, sends SETTINGS; `accept` is called on the reader's thread with each
    /// new stream, whose head is its first event.
    pub fn server(
        socket: UnixStream,
        options: PeerOptions,
        accept: impl Fn(Stream) + Send + 'static,
    ) -> io::Result<Self> {
        Self::start(socket, options, Side::Server(Box::new(accept)))
    }

    fn start(socket: UnixStream, options: PeerOptions, side: Side) -> io::Result<Self> {
        let (outgoing, queue) = channel();
        let mut greeting = if matches!(side, Side::Client) { PREFACE.to_vec() } else { Vec::new() };
        Frame::settings(&options.settings).write_to(&mut greeting);
        if options.connection_window > 65_535 {
            Frame::window_update(0, options.connection_window - 65_535).write_to(&mut greeting);
        }
        let state = State {
            send_window: 65_535,
            peer_initial_window: 65_535,
            peer_settings: Vec::new(),
            max_frame: 16_384,
            received: 0,
            total_received: 0,
            streams: HashMap::new(),
            goaway: None,
            lost: None,
            paused: false,
            pongs: Vec::new(),
            settings_acknowledged: 0,
            next_stream: 1,
            last_accepted: 0,
        };
        let write_size = options.write_size;
        let shared = Arc::new(Shared {
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            outgoing: Mutex::new(Some(outgoing)),
            encoder: Mutex::new(loona_hpack::Encoder::new()),
            socket: socket.try_clone()?,
        });
        let writer_socket = socket.try_clone()?;
        thread::Builder::new()
            .name("peer-writer".into())
            .spawn(move || write_all(writer_socket, &queue, write_size))?;
        let peer = Self { shared };
        peer.send_bytes(greeting);
        let reader = peer.clone();
        thread::Builder::new().name("peer-reader".into()).spawn(move || reader.read(socket, &side))?;
        Ok(peer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `probe` gives a value, at most for `limit`.
    fn wait<T>(&self, limit: Duration, mut probe: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        loop {
            if let Some(value) = probe(&mut state) {
                return Some(value);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Queues bytes as they are. After the connection's end they go nowhere.
    pub fn send_bytes(&self, bytes: Vec<u8>) {
        if let Some(outgoing) = &*self.shared.outgoing.lock().unwrap_or_else(PoisonError::into_inner) {
            // A failed send means the writer has ended; the reader reports the lost connection.
            let _ = outgoing.send(bytes);
        }
    }

    /// Queues a frame as it is.
    pub fn send_frame(&self, frame: &Frame) {
        self.send_bytes(frame.bytes());
    }

    /// Opens the next client stream with these header fields.
    pub fn open(&self, head: &Fields, end: bool) -> Stream {
        // The encoder's lock keeps stream ids and header blocks in one order on the wire.
        let mut encoder = self.shared.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        let id = {
            let mut state = self.state();
            let id = state.next_stream;
            state.next_stream += 2;
            let send_window = state.peer_initial_window;
            state.streams.insert(id, StreamState { send_window, ..StreamState::default() });
            id
        };
        self.encode_and_send(&mut encoder, id, head, end);
        drop(encoder);
        Stream { peer: self.clone(), id }
    }

    fn encode_and_send(
        &self,
        encoder: &mut loona_hpack::Encoder<'static>,
        id: u32,
        head: &Fields,
        end: bool,
    ) {
        let block = match self.shared.options.coding {
            Coding::Literal => literal_block(head),
            Coding::Indexed => {
                encoder.encode(head.iter().map(|(name, value)| (name.as_slice(), value.as_slice())))
            }
        };
        let mut bytes = Vec::new();
        for frame in Frame::headers(id, &block, end, self.shared.options.header_fragment) {
            frame.write_to(&mut bytes);
        }
        self.send_bytes(bytes);
    }

    fn send_headers(&self, id: u32, head: &Fields, end: bool) {
        let mut encoder = self.shared.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        self.encode_and_send(&mut encoder, id, head, end);
    }

    /// Stops reading the socket, so that the kernel's buffers and then the other end fill up.
    pub fn pause_reading(&self, paused: bool) {
        self.state().paused = paused;
        self.shared.changed.notify_all();
    }

    /// Waits for the other end's first SETTINGS; gives all of its values so far, in order.
    pub fn peer_settings(&self) -> Option<Vec<(u16, u32)>> {
        self.wait(LIMIT, |state| (!state.peer_settings.is_empty()).then(|| state.peer_settings.clone()))
    }

    /// Waits for `count` acknowledged SETTINGS of ours.
    pub fn wait_settings_acknowledged(&self, count: usize) -> bool {
        self.wait(LIMIT, |state| (state.settings_acknowledged >= count).then_some(())).is_some()
    }

    /// Sends a PING and waits for its answer: whether it came within the limit.
    pub fn ping(&self, payload: [u8; 8], limit: Duration) -> bool {
        self.send_frame(&Frame::ping(payload));
        self.wait(limit, |state| state.pongs.contains(&payload).then_some(())).is_some()
    }

    /// Waits for a GOAWAY.
    pub fn wait_goaway(&self, limit: Duration) -> Option<Goaway> {
        self.wait(limit, |state| state.goaway.clone())
    }

    /// Waits for the end of the connection; gives its reason.
    pub fn wait_lost(&self, limit: Duration) -> Option<String> {
        self.wait(limit, |state| state.lost.clone())
    }

    /// Whether the connection has ended.
    pub fn is_lost(&self) -> bool {
        self.state().lost.is_some()
    }

    /// Bytes of DATA received so far, padding included.
    pub fn total_received(&self) -> u64 {
        self.state().total_received
    }

    /// What we may still send on the connection.
    pub fn connection_credit(&self) -> i64 {
        self.state().send_window
    }

    /// Closes both directions.
    pub fn close(&self) {
        self.shared.outgoing.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Already closed is as good.
        let _ = self.shared.socket.shutdown(Shutdown::Both);
        self.pause_reading(false);
    }

    fn read(&self, socket: UnixStream, side: &Side) {
        let reason = self.follow(socket, side).unwrap_or_else(|error| error.to_string());
        let mut state = self.state();
        for stream in state.streams.values_mut() {
            stream.events.push_back(Event::Lost(reason.clone()));
        }
        state.lost = Some(reason);
        drop(state);
        self.shared.changed.notify_all();
        self.close();
    }

    fn follow(&self, socket: UnixStream, side: &Side) -> io::Result<String> {
        let mut input = io::BufReader::with_capacity(1 << 16, socket);
        if matches!(side, Side::Server(_)) {
            let mut preface = [0; PREFACE.len()];
            input.read_exact(&mut preface)?;
            if preface != PREFACE {
                return Ok("the preface is wrong".into());
            }
        }
        let mut decoder = loona_hpack::Decoder::new();
        decoder.set_max_allowed_table_size(1 << 16);
        // Stream, END_STREAM and the fragments of a header block that is not complete yet.
        let mut block: Option<(u32, bool, Vec<u8>)> = None;
        loop {
            self.wait(Duration::from_secs(1 << 30), |state| (!state.paused).then_some(()));
            let Some(frame) = read_frame(&mut input)? else { return Ok("the other end closed".into()) };
            if block.is_some() && frame.kind != kind::CONTINUATION {
                return Ok(format!("frame type {} within a header block", frame.kind));
            }
            let id = frame.stream;
            match frame.kind {
                kind::HEADERS | kind::CONTINUATION => {
                    let Some(content) = frame.content() else { return Ok("padding beyond the frame".into()) };
                    let (stream, end, bytes) =
                        block.get_or_insert_with(|| (id, frame.has(flag::END_STREAM), Vec::new()));
                    if *stream != id {
                        return Ok("CONTINUATION of another stream".into());
                    }
                    bytes.extend_from_slice(content);
                    if frame.has(flag::END_HEADERS) {
                        let Ok(fields) = decoder.decode(bytes) else {
                            return Ok(format!("header block of stream {id} does not decode"));
                        };
                        let end = *end;
                        block = None;
                        self.arrived_headers(id, fields, end, side);
                    }
                }
                kind::DATA => {
                    let Some(content) = frame.content() else { return Ok("padding beyond the frame".into()) };
                    self.arrived_data(id, content.to_vec(), &frame);
                }
                kind::RST_STREAM => {
                    if let Some(stream) = self.state().streams.get_mut(&id) {
                        stream.reset = Some(frame.number());
                        stream.events.push_back(Event::Reset(frame.number()));
                    }
                }
                kind::SETTINGS if frame.has(flag::ACK) => self.state().settings_acknowledged += 1,
                kind::SETTINGS => self.arrived_settings(&frame),
                kind::PING if frame.has(flag::ACK) => {
                    if let Some(payload) = frame.payload.first_chunk::<8>() {
                        self.state().pongs.push(*payload);
                    }
                }
                kind::PING => self.send_frame(&Frame::new(kind::PING, flag::ACK, 0, frame.payload)),
                kind::GOAWAY => {
                    let number = |at: usize| {
                        frame.payload.get(at..at + 4).map_or(0, |bytes| {
                            bytes.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte))
                        })
                    };
                    let debug = frame.payload.get(8..).unwrap_or_default().to_vec();
                    if self.state().goaway.as_ref().is_some_and(|earlier| earlier.last_stream < number(0)) {
                        return Ok(
                            "a GOAWAY takes back what an earlier one said (RFC 9113 section 6.8)".into()
                        );
                    }
                    self.state().goaway = Some(Goaway { last_stream: number(0), code: number(4), debug });
                }
                kind::WINDOW_UPDATE => {
                    let mut state = self.state();
                    let increment = i64::from(frame.number());
                    if id == 0 {
                        state.send_window += increment;
                    } else if let Some(stream) = state.streams.get_mut(&id) {
                        stream.send_window += increment;
                    }
                    let limit = i64::from(i32::MAX);
                    if state.send_window > limit
                        || state.streams.get(&id).is_some_and(|stream| stream.send_window > limit)
                    {
                        return Ok(format!("window of stream {id} overflows"));
                    }
                }
                _ => {}
            }
            self.shared.changed.notify_all();
        }
    }

    fn arrived_headers(&self, id: u32, fields: Fields, end: bool, side: &Side) {
        let mut state = self.state();
        let event = Event::Headers { fields, end };
        if let Some(stream) = state.streams.get_mut(&id) {
            stream.events.push_back(event);
            return;
        }
        // A block for a stream that was forgotten is not a new stream: ids only grow.
        if let (Side::Server(accept), true) = (side, id > state.last_accepted) {
            state.last_accepted = id;
            let stream = StreamState { send_window: state.peer_initial_window, ..StreamState::default() };
            state.streams.entry(id).or_insert(stream).events.push_back(event);
            drop(state);
            accept(Stream { peer: self.clone(), id });
        }
    }

    fn arrived_data(&self, id: u32, bytes: Vec<u8>, frame: &Frame) {
        let length = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
        let end = frame.has(flag::END_STREAM);
        let options = &self.shared.options;
        let mut updates = Vec::new();
        let mut state = self.state();
        state.total_received += u64::from(length);
        state.received += length;
        if due(options.grant, state.received, options.connection_window.max(65_535)) {
            Frame::window_update(0, state.received).write_to(&mut updates);
            state.received = 0;
        }
        if let Some(stream) = state.streams.get_mut(&id) {
            stream.received += length;
            if !end && due(options.grant, stream.received, options.initial_window()) {
                Frame::window_update(id, stream.received).write_to(&mut updates);
                stream.received = 0;
            }
            stream.events.push_back(Event::Data { bytes, end });
        }
        drop(state);
        if !updates.is_empty() {
            self.send_bytes(updates);
        }
    }

    fn arrived_settings(&self, frame: &Frame) {
        let mut state = self.state();
        for entry in frame.payload.chunks_exact(6) {
            let name = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            state.peer_settings.push((name, value));
            match name {
                setting::INITIAL_WINDOW_SIZE => {
                    let change = i64::from(value) - state.peer_initial_window;
                    state.peer_initial_window += change;
                    for stream in state.streams.values_mut() {
                        stream.send_window += change;
                    }
                }
                setting::MAX_FRAME_SIZE => state.max_frame = value as usize,
                _ => {}
            }
        }
        drop(state);
        self.send_frame(&Frame::new(kind::SETTINGS, flag::ACK, 0, []));
    }
}

fn due(grant: Grant, received: u32, window: u32) -> bool {
    match grant {
        Grant::AtOnce => received > 0,
        Grant::Half => received > 0 && received >= window / 2,
        Grant::Never => false,
    }
}

fn write_all(mut socket: UnixStream, queue: &Receiver<Vec<u8>>, write_size: usize) {
    while let Ok(bytes) = queue.recv() {
        for part in bytes.chunks(write_size) {
            if socket.write_all(part).is_err() {
                return;
            }
        }
    }
}

/// A header block of literals without indexing, names and values as they are.
pub fn literal_block(fields: &Fields) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // RFC 7541 section 5.1 with a prefix of seven bits; the Huffman bit stays clear.
            let mut length = text.len();
            if length < 127 {
                block.push(u8::try_from(length).unwrap_or(0));
            } else {
                block.push(127);
                length -= 127;
                while length >= 128 {
                    block.push(u8::try_from(length % 128).unwrap_or(0) | 128);
                    length /= 128;
                }
                block.push(u8::try_from(length).unwrap_or(0));
            }
            block.extend_from_slice(text);
        }
    }
    block
}

/// One stream of a [`Peer`].
#[derive(Debug, Clone)]
pub struct Stream {
    peer: Peer,
    id: u32,
}

/// Why DATA could not be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The other end reset the stream.
    Reset(u32),
    /// The connection ended.
    Lost(String),
    /// No credit came within the limit; so many bytes were left.
    NoCredit(usize),
}

impl Stream {
    /// The stream's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The connection.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Sends a header block: an answer's head, or trailers.
    pub fn send_headers(&self, head: &Fields, end: bool) {
        self.peer.send_headers(self.id, head, end);
    }

    /// Sends DATA within the other end's windows.
    pub fn send_data(&self, bytes: &[u8], end: bool) -> Result<(), SendError> {
        self.send_data_within(bytes, end, LIMIT)
    }

    /// Sends DATA within the other end's windows; waits at most `limit` for credit at a time.
    pub fn send_data_within(&self, bytes: &[u8], end: bool, limit: Duration) -> Result<(), SendError> {
        let options = &self.peer.shared.options;
        let overhead = options.padding.map_or(0, |padding| usize::from(padding) + 1);
        let mut rest = bytes;
        loop {
            let wanted = rest.len().min(options.data_frame.saturating_sub(overhead).max(1));
            let id = self.id;
            let granted = if wanted + overhead == 0 {
                Some(Ok(0))
            } else {
                self.peer.wait(limit, |state| take_credit(state, id, wanted, overhead))
            };
            let count = granted.unwrap_or(Err(SendError::NoCredit(rest.len())))?;
            let (part, after) = rest.split_at(count);
            rest = after;
            let last = end && rest.is_empty();
            self.peer.send_frame(&match options.padding {
                Some(padding) => Frame::padded_data(id, part, padding, last),
                None => Frame::data(id, part, last),
            });
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends one gRPC message.
    pub fn send_message(&self, payload: &[u8], end: bool) -> Result<(), SendError> {
        self.send_data(&crate::frame::grpc_message(payload), end)
    }

    /// Resets the stream.
    pub fn reset(&self, code: u32) {
        self.peer.send_frame(&Frame::reset(self.id, code));
    }

    /// Cancels the call, as a client does whose context ended.
    pub fn cancel(&self) {
        self.reset(code::CANCEL);
    }

    /// What the other end reset the stream with, if it did.
    pub fn was_reset(&self) -> Option<u32> {
        self.peer.state().streams.get(&self.id).and_then(|stream| stream.reset)
    }

    /// Waits for the other end's RST_STREAM.
    pub fn wait_reset(&self, limit: Duration) -> Option<u32> {
        self.peer.wait(limit, |state| state.streams.get(&self.id).and_then(|stream| stream.reset))
    }

    /// Waits for the next event; `None` when none came within `limit`.
    pub fn next(&self, limit: Duration) -> Option<Event> {
        self.peer.wait(limit, |state| match state.streams.get_mut(&self.id) {
            Some(stream) => stream.events.pop_front().or_else(|| state.lost.clone().map(Event::Lost)),
            None => Some(Event::Lost("the stream was forgotten".into())),
        })
    }

    /// Forgets the stream's state, for connections with very many streams.
    pub fn forget(&self) {
        self.peer.state().streams.remove(&self.id);
    }
}

fn take_credit(
    state: &mut State,
    id: u32,
    wanted: usize,
    overhead: usize,
) -> Option<Result<usize, SendError>> {
    if let Some(reason) = &state.lost {
        return Some(Err(SendError::Lost(reason.clone())));
    }
    let connection = state.send_window;
    let max_frame = state.max_frame;
    let stream = state.streams.get_mut(&id)?;
    if let Some(code) = stream.reset {
        return Some(Err(SendError::Reset(code)));
    }
    let overhead_credit = i64::try_from(overhead).unwrap_or(i64::MAX);
    let credit = connection.min(stream.send_window) - overhead_credit;
    let room = usize::try_from(credit).ok()?.min(max_frame.saturating_sub(overhead));
    if room == 0 && wanted > 0 {
        return None;
    }
    let count = wanted.min(room);
    let used = i64::try_from(count + overhead).unwrap_or(i64::MAX);
    stream.send_window -= used;
    state.send_window -= used;
    Some(Ok(count))
}
