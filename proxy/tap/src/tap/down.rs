//! From the runtime to the client.

use super::reader::{Block, Data, HeaderAt, Payload, Reader, WholeBlock};
use super::stream::OwnedField;
use super::*;

/// SETTINGS and GOAWAY up to this size are collected and judged; larger ones pass unseen.
const MAX_CONTROL: usize = 64 * 1024;
/// Decoded fields that may be kept of one header block, in octets.
const MAX_FIELDS: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Down {
    reader: Reader,
    decoder: hpack::Decoder,
    pub hpack_lost: bool,
    /// The runtime's SETTINGS have passed: other frames may follow.
    pub started: bool,
    block: Block,
    /// Blocks are no longer passed as they come, since the client has missed or will miss one: they are rewritten
    /// without use of any table.
    rewriting: bool,
    /// Streams whose trailers are held.
    held_trailers: usize,
    /// Frames of our own that wait for the end of the frame being passed.
    pub pending: Vec<u8>,
    /// SETTINGS of the client that the runtime has not acknowledged, oldest first: the smallest and the last table size
    /// each asks for.
    asked_tables: VecDeque<Option<(usize, usize)>>,
    /// Table size the next block must begin with (RFC 7541, section 4.2).
    due_table: Option<usize>,
    current_table: usize,
}

impl Down {
    pub(super) fn new(started: bool) -> Self {
        Self {
            reader: Reader::new(),
            decoder: hpack::Decoder::default(),
            hpack_lost: false,
            started,
            block: Block::default(),
            rewriting: false,
            held_trailers: 0,
            pending: Vec::new(),
            asked_tables: VecDeque::new(),
            due_table: None,
            current_table: 4096,
        }
    }

    /// Whether frames of our own can be sent to the client now.
    pub(super) fn at_boundary(&self) -> bool {
        let passing = self.reader.in_payload
            && matches!(self.reader.payload, Payload::Pass | Payload::PassBlock | Payload::Data(Data::Copy));
        let block_open = self.block.is_passing();
        !passing && !block_open
    }

    /// Sends what waits, if it may go now.
    pub(super) fn flush(&mut self, out: &mut crate::out::Out) {
        if !self.pending.is_empty() && self.started && self.at_boundary() {
            out.push(&self.pending);
            self.pending.clear();
        }
    }

    /// SETTINGS of the client pass to the runtime; they may limit the table of its encoder.
    pub(super) fn client_settings(&mut self, payload: &[u8]) {
        let sizes = frame::settings(payload).filter(|(id, _)| *id == setting::HEADER_TABLE_SIZE);
        let sizes = sizes.map(|(_, size)| usize::try_from(size).unwrap_or(usize::MAX));
        let asked = sizes.fold(None, |asked: Option<(usize, usize)>, size| {
            Some((asked.map_or(size, |(smallest, _)| smallest.min(size)), size))
        });
        self.asked_tables.push_back(asked);
    }

    /// The runtime acknowledges SETTINGS of the client: from its next block on it keeps to the limit, and says so.
    fn settings_acknowledged(&mut self) {
        if let Some(Some((smallest, last))) = self.asked_tables.pop_front() {
            if smallest < self.current_table {
                self.due_table = Some(self.due_table.map_or(smallest, |due| due.min(smallest)));
            }
            self.current_table = last;
        }
    }

    /// A block of our own, with the table size update that is due.
    fn begin_block(&mut self) -> Vec<u8> {
        let mut block = Vec::new();
        if let Some(size) = self.due_table.take() {
            hpack::encode_size_update(&mut block, size);
        }
        block
    }

    /// Ends a call with a status of ours.
    pub(super) fn emit_status(&mut self, stream: u32, headers_passed: bool, refusal: &Refusal) {
        let mut block = self.begin_block();
        block.extend(if headers_passed {
            hpack::trailers(refusal.code, &refusal.message)
        } else {
            hpack::trailers_only(refusal.code, &refusal.message)
        });
        frame::push_header_block(&mut self.pending, stream, &block, true);
    }

    fn emit_fields(&mut self, stream: u32, fields: &[OwnedField], end: bool) {
        let mut block = self.begin_block();
        for field in fields {
            let (name, value) = (&field.name, &field.value);
            hpack::encode_literal(&mut block, hpack::Field { name, value, sensitive: field.sensitive });
        }
        frame::push_header_block(&mut self.pending, stream, &block, end);
    }

    /// Sends trailers that were held.
    pub(super) fn emit_held(&mut self, stream: u32, trailers: &HeldTrailers) {
        self.held_trailers = self.held_trailers.saturating_sub(1);
        if self.rewriting {
            self.emit_fields(stream, &trailers.fields, true);
        } else {
            self.pending.extend_from_slice(&trailers.frames);
        }
        self.pending.extend_from_slice(&trailers.reset);
    }

    /// Held trailers will never be sent: the client's table misses them.
    pub(super) fn lose_held(&mut self) {
        self.held_trailers = self.held_trailers.saturating_sub(1);
        self.rewriting = true;
    }
}

impl<C> Tap<C> {
    /// Takes octets from the runtime.
    pub fn backend_bytes(&mut self, input: &[u8], out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        let mut at = 0;
        while at < input.len() && self.broken.is_none() {
            if self.blind {
                out.to_client.pass(at..input.len());
                return;
            }
            if !self.down.reader.in_payload {
                let Some(source) = self.down.reader.header(input, &mut at) else { break };
                self.backend_frame(source, out);
            } else {
                let take = self.down.reader.left.min(input.len() - at);
                self.backend_payload(input, at..at + take, out);
                self.down.reader.left -= take;
                at += take;
            }
            if self.down.reader.in_payload && self.down.reader.left == 0 {
                self.down.reader.in_payload = false;
                self.backend_frame_end(out, handler);
                self.pump(out);
                self.down.flush(&mut out.to_client);
            }
        }
    }

    fn backend_frame(&mut self, source: HeaderAt, out: &mut Outputs) {
        let frame = self.down.reader.frame;
        if self.down.block.is_open() && frame.kind != kind::CONTINUATION {
            // A connection error that is the client's to name.
            self.down.hpack_lost = true;
            if self.down.block.interrupt() {
                self.broken = Some(Broken::HeaderBlock);
            }
        }
        let payload = match frame.kind {
            kind::DATA if self.is_refused(frame.stream) => Payload::Drop,
            kind::DATA => match self.streams.get(&frame.stream) {
                Some(state) if state.response.is_some() => Payload::Data(Data::Copy),
                _ => Payload::Pass,
            },
            kind::HEADERS => {
                if self.down.held_trailers > 0 {
                    self.down.rewriting = true;
                }
                let may_hold = frame.has(flag::END_STREAM)
                    && self
                        .streams
                        .get(&frame.stream)
                        .is_some_and(|state| !matches!(state.tapped, Tapped::No));
                let withhold = self.down.rewriting || may_hold || self.is_refused(frame.stream);
                let payload = if withhold { Payload::CollectBlock } else { Payload::PassBlock };
                self.down.block.begin(frame, payload);
                payload
            }
            kind::CONTINUATION => self.down.block.continued().unwrap_or(Payload::Pass),
            kind::PUSH_PROMISE => {
                // No gRPC client allows these; their header block goes by unread.
                self.down.hpack_lost = true;
                Payload::Pass
            }
            kind::RST_STREAM if self.is_refused(frame.stream) => Payload::Drop,
            kind::SETTINGS | kind::WINDOW_UPDATE | kind::RST_STREAM | kind::GOAWAY
                if frame.length <= MAX_CONTROL =>
            {
                Payload::Collect
            }
            _ => Payload::Pass,
        };
        if payload != Payload::CollectBlock || frame.kind == kind::HEADERS {
            self.down.reader.collected.clear();
        }
        if payload == Payload::CollectBlock {
            self.down.reader.collected.extend_from_slice(&frame.to_bytes());
        }
        self.down.reader.payload = payload;
        if matches!(payload, Payload::Pass | Payload::PassBlock | Payload::Data(_)) {
            match source {
                HeaderAt::Input(range) => out.to_client.pass(range),
                HeaderAt::Own(bytes) => out.to_client.push(&bytes),
            }
        }
    }

    fn backend_payload(&mut self, input: &[u8], chunk: std::ops::Range<usize>, out: &mut Outputs) {
        match self.down.reader.payload {
            Payload::Pass => out.to_client.pass(chunk),
            Payload::PassBlock => {
                self.down.reader.collected.extend_from_slice(&input[chunk.clone()]);
                out.to_client.pass(chunk);
                if self.down.block.kept(&self.down.reader) > self.options.max_header_block {
                    self.down.hpack_lost = true;
                    self.down.reader.collected.clear();
                }
            }
            Payload::Collect | Payload::CollectBlock => {
                self.down.reader.collected.extend_from_slice(&input[chunk]);
                if self.down.reader.collected.len() > MAX_FIELDS {
                    self.broken = Some(Broken::HeaderBlock);
                }
            }
            Payload::Data(_) => {
                let data = self.down.reader.data(chunk.clone(), input);
                if let Some(state) = self.streams.get_mut(&self.down.reader.frame.stream) {
                    state.copy_response(&input[data]);
                }
                out.to_client.pass(chunk);
            }
            Payload::Drop => {}
        }
    }

    fn backend_frame_end(&mut self, out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        let frame = self.down.reader.frame;
        match self.down.reader.payload {
            Payload::PassBlock | Payload::CollectBlock => self.backend_block_part(out, handler),
            Payload::Collect => self.backend_control(frame, out, handler),
            Payload::Drop if frame.kind == kind::DATA && frame.length > 0 => {
                // The client never sees it, so it will not give this credit back.
                let length = i64::try_from(frame.length).unwrap_or(0);
                let mut update = Vec::new();
                frame::push_window_update(&mut update, 0, length);
                if self.up.at_boundary() {
                    out.to_backend.push(&update);
                } else {
                    self.up.pending.extend_from_slice(&update);
                }
            }
            Payload::Pass | Payload::Data(_) if frame.kind == kind::DATA && frame.has(flag::END_STREAM) => {
                self.backend_ended(frame.stream, out, handler);
            }
            _ => {}
        }
    }

    fn backend_block_part(&mut self, out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        let (whole, followed) = self.down.block.part(&mut self.down.reader, self.options.max_header_block);
        self.down.hpack_lost |= followed.is_err();
        if let Some(WholeBlock { frame, fragments, withheld }) = whole {
            self.backend_headers(frame, &fragments, withheld, out, handler);
            self.down.block.reuse(fragments);
        }
    }

    fn backend_headers(
        &mut self,
        frame: frame::FrameHeader,
        block: &[u8],
        withheld: Option<Vec<u8>>,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        let (stream, end) = (frame.stream, frame.has(flag::END_STREAM));
        let mut status = None;
        let mut fields = Vec::new();
        let mut size = 0;
        let mut effect = hpack::TableEffect::None;
        if !self.down.hpack_lost {
            let keep = withheld.is_some();
            let outcome = self.down.decoder.decode(block, |field| {
                if field.name == b"grpc-status" {
                    status = std::str::from_utf8(field.value).ok().and_then(|text| text.parse().ok());
                }
                size += field.name.len() + field.value.len();
                if keep && size <= MAX_FIELDS {
                    fields.push(OwnedField {
                        name: field.name.to_vec(),
                        value: field.value.to_vec(),
                        sensitive: field.sensitive,
                    });
                }
            });
            match outcome {
                Ok(seen) => effect = seen,
                Err(_) => self.down.hpack_lost = true,
            }
        }
        let readable = !self.down.hpack_lost && size <= MAX_FIELDS;
        if self.down.rewriting && !readable {
            self.broken = Some(Broken::HeaderBlock);
            return;
        }
        if !self.down.rewriting {
            // The runtime's own block carries the update that is due.
            self.down.due_table = None;
        }
        if self.is_refused(stream) {
            // The call is over for the client, but its table may need the block all the same.
            if let Some(frames) = withheld
                && !self.down.rewriting
                && effect != hpack::TableEffect::None
            {
                self.down.pending.extend_from_slice(&frames);
            }
            return;
        }
        if let Some(state) = self.streams.get_mut(&stream) {
            state.headers_passed = true;
            if end {
                state.status = status;
            }
        }
        let Some(frames) = withheld else {
            if end {
                self.backend_ended(stream, out, handler);
            }
            return;
        };
        if end && readable && self.hold_trailers(stream, status, handler) {
            if let Some(state) = self.streams.get_mut(&stream) {
                self.down.held_trailers += 1;
                state.trailers = Some(HeldTrailers { frames, fields, reset: Vec::new() });
            }
            self.backend_half_ended(stream, out);
            return;
        }
        if self.down.rewriting {
            self.down.emit_fields(stream, &fields, end);
        } else {
            self.down.pending.extend_from_slice(&frames);
        }
        if end {
            self.backend_ended(stream, out, handler);
        }
    }

    /// Tells the handler of the end of a tapped call, and asks whether the trailers wait.
    fn hold_trailers(
        &mut self,
        stream: u32,
        status: Option<u32>,
        handler: &mut impl Handler<Call = C>,
    ) -> bool {
        let Some(state) = self.streams.get_mut(&stream) else { return false };
        if matches!(state.tapped, Tapped::No) {
            return false;
        }
        let response = state.response.take();
        let message = response.as_deref().and_then(only_message).filter(|message| !message.compressed);
        let end = ResponseEnd { status, message: message.map(|message| message.payload) };
        match &mut state.call {
            Some(call) => handler.response(stream, call, end) == Trailers::Hold,
            None => false,
        }
    }

    /// The runtime's half has ended and the client knows.
    pub(super) fn backend_ended(
        &mut self,
        stream: u32,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        self.answered(stream, handler);
        self.backend_half_ended(stream, out);
    }

    fn backend_half_ended(&mut self, stream: u32, out: &mut Outputs) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        state.backend_ended = true;
        let unsent = matches!(state.tapped, Tapped::Collecting { .. } | Tapped::Waiting { .. })
            || state.queued_entries > 0;
        if unsent && state.trailers.is_none() {
            // The answer came before the request went out: what is held has no receiver any more. The runtime still
            // waits for the end of the stream.
            let client_ended = state.client_ended;
            self.drop_request(stream);
            self.streams.remove(&stream);
            self.reset_backend(stream, error_code::CANCEL, out);
            if !client_ended {
                frame::push_reset(&mut self.down.pending, stream, error_code::NO_ERROR);
            }
            self.remember_refused(stream);
            return;
        }
        self.forget_if_done(stream);
    }

    fn backend_control(
        &mut self,
        frame: frame::FrameHeader,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        let payload = std::mem::take(&mut self.down.reader.collected);
        let mut whole = Vec::with_capacity(frame::HEADER_LEN + payload.len());
        whole.extend_from_slice(&frame.to_bytes());
        whole.extend_from_slice(&payload);
        match frame.kind {
            kind::SETTINGS if frame.has(flag::ACK) => self.down.settings_acknowledged(),
            kind::SETTINGS => {
                let last =
                    frame::settings(&payload).filter(|(id, _)| *id == setting::INITIAL_WINDOW_SIZE).last();
                self.window.announce(last.map(|(_, value)| i64::from(value)));
                if !self.down.started {
                    // Nothing of ours may come before the runtime's first SETTINGS.
                    self.down.started = true;
                    out.to_client.push(&whole);
                    return;
                }
            }
            kind::WINDOW_UPDATE => {
                if let Some(octets) = payload.first_chunk::<4>()
                    && payload.len() == 4
                {
                    let octets = i64::from(u32::from_be_bytes(*octets) & 0x7fff_ffff);
                    if octets > 0 && self.backend_update(frame.stream, octets) {
                        return;
                    }
                }
            }
            kind::RST_STREAM => {
                if let Some(state) = self.streams.get_mut(&frame.stream) {
                    if let Some(trailers) = &mut state.trailers {
                        trailers.reset = whole;
                        return;
                    }
                    let code = payload.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
                    if let Some(call) = state.call.take() {
                        handler.closed(frame.stream, call, Closed::Reset(code));
                    }
                    self.drop_request(frame.stream);
                    self.streams.remove(&frame.stream);
                }
            }
            kind::GOAWAY => {
                if let Some(last) = payload.first_chunk::<4>() {
                    self.unprocessed(u32::from_be_bytes(*last) & 0x7fff_ffff, handler);
                }
            }
            _ => {}
        }
        self.down.pending.extend_from_slice(&whole);
    }

    /// The runtime's WINDOW_UPDATE; says whether it is dealt with, that is, must not pass as it is.
    fn backend_update(&mut self, stream: u32, octets: i64) -> bool {
        if stream == 0 {
            self.connection.update(octets);
            self.settle(None);
            return true;
        }
        if self.is_refused(stream) {
            return true;
        }
        let Some(state) = self.streams.get_mut(&stream) else { return false };
        if state.level(&self.window, |level| level.update(octets)).is_none() {
            return false;
        }
        self.settle(Some(stream));
        true
    }

    /// GOAWAY: the runtime ignores streams above `last`; the client may send those calls again elsewhere.
    fn unprocessed(&mut self, last: u32, handler: &mut impl Handler<Call = C>) {
        self.last_allowed = self.last_allowed.min(last);
        let above: Vec<u32> = self.streams.keys().copied().filter(|stream| *stream > last).collect();
        for stream in above {
            self.drop_request(stream);
            if let Some(call) = self.streams.remove(&stream).and_then(|state| state.call) {
                handler.closed(stream, call, Closed::Unprocessed);
            }
        }
    }
}
