//! The backend: answers each path with its message, as fast as a thread can.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use koord_testing::frame::{Frame, PREFACE, flag, grpc_message, kind, setting};

use crate::frames::{Input, MAX_PAYLOAD, put, text};
use crate::messages::{answer, is_held};

const CONNECTION_WINDOW: u32 = 16 << 20;
const STREAM_WINDOW: u32 = 4 << 20;

/// A running backend; its threads end with the process.
#[derive(Debug)]
pub(crate) struct Backend {
    socket: PathBuf,
    largest_held_request: Arc<AtomicUsize>,
    acceptor: thread::JoinHandle<()>,
}

impl Backend {
    /// Listens on `socket` and answers calls of `paths` with their messages, others with an empty one.
    pub(crate) fn start<'a>(socket: &Path, paths: impl IntoIterator<Item = &'a str>) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let largest_held_request = Arc::new(AtomicUsize::new(0));
        let answers: Arc<HashMap<String, Arc<Vec<u8>>>> = Arc::new(
            paths.into_iter().map(|path| (path.to_owned(), Arc::new(grpc_message(&answer(path))))).collect(),
        );
        let largest = Arc::clone(&largest_held_request);
        let acceptor = thread::Builder::new().name("backend".into()).spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let connection = Connection::new(Arc::clone(&answers), Arc::clone(&largest));
                // A lost connection ends its thread; the load sees it.
                thread::spawn(move || drop(connection.serve(client)));
            }
        })?;
        Ok(Self { socket: socket.to_owned(), largest_held_request, acceptor })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Size of the largest body of a held call since the last question: tells whether requests were edited.
    pub(crate) fn take_largest_held_request(&self) -> usize {
        self.largest_held_request.swap(0, Ordering::SeqCst)
    }

    /// Waits for ever.
    pub(crate) fn wait(self) {
        // The acceptor only ends when its listener fails; there is nothing to tell then.
        let _ = self.acceptor.join();
    }
}

struct StreamState {
    answer: Arc<Vec<u8>>,
    held: bool,
    received: usize,
    sent: usize,
    window: i64,
}

struct Connection {
    answers: Arc<HashMap<String, Arc<Vec<u8>>>>,
    largest_held_request: Arc<AtomicUsize>,
    decoder: loona_hpack::Decoder<'static>,
    /// Blocks that left the decoder's table alone, since it last changed.
    known_blocks: HashMap<Vec<u8>, String>,
    streams: HashMap<u32, StreamState>,
    ready: VecDeque<u32>,
    window: i64,
    initial_window: i64,
    received: u32,
    first_head: bool,
    out: Vec<u8>,
}

impl Connection {
    fn new(answers: Arc<HashMap<String, Arc<Vec<u8>>>>, largest_held_request: Arc<AtomicUsize>) -> Self {
        Self {
            answers,
            largest_held_request,
            decoder: loona_hpack::Decoder::new(),
            known_blocks: HashMap::new(),
            streams: HashMap::new(),
            ready: VecDeque::new(),
            window: 65_535,
            initial_window: 65_535,
            received: 0,
            first_head: true,
            out: Vec::new(),
        }
    }

    fn serve(mut self, mut socket: UnixStream) -> io::Result<()> {
        let settings =
            [(setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW), (setting::MAX_HEADER_LIST_SIZE, 1 << 20)];
        Frame::settings(&settings).write_to(&mut self.out);
        Frame::window_update(0, CONNECTION_WINDOW - 65_535).write_to(&mut self.out);
        socket.write_all(&self.out)?;
        self.out.clear();
        let mut input = Input::new();
        let mut greeted = false;
        while input.fill(&mut socket)? > 0 {
            if !greeted {
                match input.take(PREFACE.len()) {
                    Some(bytes) if bytes == PREFACE => greeted = true,
                    Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                    None => continue,
                }
            }
            while let Some((head, payload)) = input.next() {
                let frame =
                    Frame { kind: head.kind, flags: head.flags, stream: head.stream, payload: Vec::new() };
                self.take(&frame, payload)?;
            }
            self.send();
            socket.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn take(&mut self, frame: &Frame, payload: &[u8]) -> io::Result<()> {
        let id = frame.stream;
        let number =
            || payload.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes) & 0x7fff_ffff);
        match frame.kind {
            kind::HEADERS => {
                let mut block = payload;
                if frame.has(flag::PRIORITY) {
                    block = block.get(5..).unwrap_or_default();
                }
                let path = self.path(block)?;
                let answer = self.answers.get(&path).cloned().unwrap_or_else(|| Arc::new(grpc_message(b"")));
                let held = is_held(&path);
                let stream = StreamState { answer, held, received: 0, sent: 0, window: self.initial_window };
                self.streams.insert(id, stream);
                if frame.has(flag::END_STREAM) {
                    self.ready.push_back(id);
                }
            }
            kind::DATA => {
                self.received += u32::try_from(payload.len()).unwrap_or(0);
                if self.received >= CONNECTION_WINDOW / 2 {
                    Frame::window_update(0, self.received).write_to(&mut self.out);
                    self.received = 0;
                }
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.received += payload.len();
                    if frame.has(flag::END_STREAM) {
                        self.ready.push_back(id);
                        if stream.held {
                            self.largest_held_request.fetch_max(stream.received, Ordering::SeqCst);
                        }
                    }
                }
            }
            kind::RST_STREAM => {
                self.streams.remove(&id);
                self.ready.retain(|ready| *ready != id);
            }
            kind::SETTINGS if !frame.has(flag::ACK) => {
                for entry in payload.chunks_exact(6) {
                    let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
                    if u16::from_be_bytes([entry[0], entry[1]]) == setting::INITIAL_WINDOW_SIZE {
                        let change = i64::from(value) - self.initial_window;
                        self.initial_window += change;
                        self.streams.values_mut().for_each(|stream| stream.window += change);
                    }
                }
                put(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
            }
            kind::PING if !frame.has(flag::ACK) => put(&mut self.out, kind::PING, flag::ACK, 0, payload),
            kind::WINDOW_UPDATE if id == 0 => self.window += i64::from(number()),
            kind::WINDOW_UPDATE => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.window += i64::from(number());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The path a header block names. Blocks that do not touch the table are decoded once.
    fn path(&mut self, block: &[u8]) -> io::Result<String> {
        if let Some(path) = self.known_blocks.get(block) {
            return Ok(path.clone());
        }
        let fields = self.decoder.decode(block).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let path = fields.into_iter().find(|(name, _)| name == b":path").map(|(_, value)| value);
        let path = String::from_utf8_lossy(&path.unwrap_or_default()).into_owned();
        if touches_table(block) {
            self.known_blocks.clear();
        } else {
            self.known_blocks.insert(block.to_vec(), path.clone());
        }
        Ok(path)
    }

    /// Sends of the answers what the windows allow.
    fn send(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { return };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if stream.sent == 0 {
                // The first head puts `content-type` into the table as entry 62.
                let mut block = vec![0x88];
                if self.first_head {
                    block.push(0x40 | 31);
                    text(&mut block, "application/grpc");
                    self.first_head = false;
                } else {
                    block.push(0x80 | 62);
                }
                put(&mut self.out, kind::HEADERS, flag::END_HEADERS, id, &block);
            }
            loop {
                let left = stream.answer.len() - stream.sent;
                let credit = usize::try_from(self.window.min(stream.window)).unwrap_or(0);
                let count = left.min(credit).min(MAX_PAYLOAD);
                if count == 0 {
                    break;
                }
                put(&mut self.out, kind::DATA, 0, id, &stream.answer[stream.sent..stream.sent + count]);
                stream.sent += count;
                let used = i64::try_from(count).unwrap_or(0);
                stream.window -= used;
                self.window -= used;
            }
            if stream.sent < stream.answer.len() {
                self.ready.push_back(id);
                continue;
            }
            let mut block = vec![0];
            text(&mut block, "grpc-status");
            text(&mut block, "0");
            put(&mut self.out, kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, id, &block);
            self.streams.remove(&id);
        }
    }
}

/// Whether a header block adds entries to the dynamic table or resizes it.
fn touches_table(block: &[u8]) -> bool {
    // What is left behind an integer with this prefix (RFC 7541 section 5.1), and the integer.
    fn integer(bytes: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
        let (first, mut rest) = bytes.split_first()?;
        let mask = (1_usize << prefix) - 1;
        let mut value = usize::from(*first) & mask;
        let mut shift = 0;
        if value == mask {
            loop {
                let (byte, after) = rest.split_first()?;
                rest = after;
                value += usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 || shift > 28 {
                    break;
                }
            }
        }
        Some((value, rest))
    }
    fn skip_text(bytes: &[u8]) -> Option<&[u8]> {
        let (length, rest) = integer(bytes, 7)?;
        rest.get(length..)
    }
    fn scan(mut rest: &[u8]) -> Option<bool> {
        while let Some(first) = rest.first() {
            if first & 0x80 != 0 {
                rest = integer(rest, 7)?.1;
            } else if first & 0xf0 <= 0x10 {
                let (name, after) = integer(rest, 4)?;
                rest = if name == 0 { skip_text(after)? } else { after };
                rest = skip_text(rest)?;
            } else {
                return Some(true);
            }
        }
        Some(false)
    }
    scan(block).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_change_the_table_are_told_apart() {
        assert!(!touches_table(&[0x83, 0x80 | 62]));
        assert!(!touches_table(&[0x00, 1, b'a', 1, b'b', 0x04, 2, b'/', b'x', 0x10, 1, b'n', 0x81, 0xff]));
        assert!(touches_table(&[0x83, 0x40, 1, b'a', 1, b'b']));
        assert!(touches_table(&[0x20]));
        assert!(touches_table(&[0x00, 5, b'a']), "a block that cannot be read is not kept");
    }
}
