//! The load: calls on one connection, a fixed number under way at a time.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use koord_testing::frame::{Frame, PREFACE, flag, grpc_message, kind, setting};

use crate::frames::{Input, MAX_PAYLOAD, put, text};
use crate::messages::{Case, answer};

const CONNECTION_WINDOW: u32 = 16 << 20;
const STREAM_WINDOW: u32 = 4 << 20;

/// A connection that makes the calls of one case.
#[derive(Debug)]
pub(crate) struct Load {
    socket: UnixStream,
    input: Input,
    out: Vec<u8>,
    case: Case,
    body: Vec<u8>,
    answer_length: usize,
    first: bool,
    next_stream: u32,
    send_window: i64,
    received: u32,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    stream: u32,
    start: Instant,
    received: usize,
    since_update: u32,
}

impl Load {
    pub(crate) fn connect(socket: &Path, case: Case) -> io::Result<Self> {
        let socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut out = PREFACE.to_vec();
        let settings = [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW)];
        Frame::settings(&settings).write_to(&mut out);
        Frame::window_update(0, CONNECTION_WINDOW - 65_535).write_to(&mut out);
        Ok(Self {
            socket,
            input: Input::new(),
            out,
            case,
            body: grpc_message(&case.request()),
            answer_length: grpc_message(&answer(case.path())).len(),
            first: true,
            next_stream: 1,
            send_window: 65_535,
            received: 0,
            calls: Vec::new(),
        })
    }

    /// Makes `count` calls; how long each took.
    pub(crate) fn run(&mut self, count: usize) -> io::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        let mut started = 0;
        while times.len() < count {
            while started < count
                && self.calls.len() < self.case.outstanding()
                && self.send_window >= i64::try_from(self.body.len()).unwrap_or(i64::MAX)
            {
                self.start_call();
                started += 1;
            }
            if !self.out.is_empty() {
                self.socket.write_all(&self.out)?;
                self.out.clear();
            }
            if self.input.fill(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            while let Some((head, payload)) = self.input.next() {
                let number =
                    payload.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes) & 0x7fff_ffff);
                match head.kind {
                    kind::DATA => {
                        let length = u32::try_from(payload.len()).unwrap_or(0);
                        self.received += length;
                        if self.received >= CONNECTION_WINDOW / 2 {
                            Frame::window_update(0, self.received).write_to(&mut self.out);
                            self.received = 0;
                        }
                        if let Some(call) = self.calls.iter_mut().find(|call| call.stream == head.stream) {
                            call.received += payload.len();
                            call.since_update += length;
                            if call.since_update >= STREAM_WINDOW / 2 {
                                Frame::window_update(head.stream, call.since_update).write_to(&mut self.out);
                                call.since_update = 0;
                            }
                        }
                    }
                    kind::SETTINGS if head.flags & flag::ACK == 0 => {
                        put(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
                    }
                    kind::PING if head.flags & flag::ACK == 0 => {
                        put(&mut self.out, kind::PING, flag::ACK, 0, payload);
                    }
                    kind::WINDOW_UPDATE if head.stream == 0 => self.send_window += i64::from(number),
                    kind::RST_STREAM | kind::GOAWAY => {
                        return Err(io::Error::other(format!("frame {head:?}: {payload:?}")));
                    }
                    _ => {}
                }
                if matches!(head.kind, kind::DATA | kind::HEADERS) && head.flags & flag::END_STREAM != 0 {
                    let Some(at) = self.calls.iter().position(|call| call.stream == head.stream) else {
                        continue;
                    };
                    let call = self.calls.swap_remove(at);
                    if call.received != self.answer_length {
                        let (got, wanted) = (call.received, self.answer_length);
                        return Err(io::Error::other(format!(
                            "an answer of {got} bytes instead of {wanted}"
                        )));
                    }
                    times.push(call.start.elapsed());
                }
            }
        }
        Ok(times)
    }

    fn start_call(&mut self) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let mut block = vec![0x83, 0x86];
        if self.first {
            // With incremental indexing: the entries are 66 down to 62 from now on.
            block.push(0x40 | 4);
            text(&mut block, self.case.path());
            block.push(0x40 | 1);
            text(&mut block, "localhost");
            block.push(0x40 | 31);
            text(&mut block, "application/grpc");
            block.push(0x40 | 58);
            text(&mut block, "grpc-go/1.80.0");
            block.push(0x40);
            text(&mut block, "te");
            text(&mut block, "trailers");
            self.first = false;
        } else {
            block.extend([66, 65, 64, 63, 62].map(|index: u8| 0x80 | index));
        }
        put(&mut self.out, kind::HEADERS, flag::END_HEADERS, stream, &block);
        let parts = self.body.chunks(MAX_PAYLOAD);
        let last = parts.len();
        for (number, part) in parts.enumerate() {
            let flags = if number + 1 == last { flag::END_STREAM } else { 0 };
            put(&mut self.out, kind::DATA, flags, stream, part);
        }
        self.send_window -= i64::try_from(self.body.len()).unwrap_or(0);
        self.calls.push(Call { stream, start: Instant::now(), received: 0, since_update: 0 });
    }
}
