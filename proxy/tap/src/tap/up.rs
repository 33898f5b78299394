//! From the client to the runtime.

use std::borrow::Cow;

use super::queue::Queue;
use super::reader::{Block, Data, HeaderAt, Payload, Reader, WholeBlock};
use super::stream::{OwnedField, Stream, Tapped};
use super::*;
use crate::call::{Encoding, Head, Mode, parse_timeout};
use crate::frame::PREFACE;

/// Control frames up to this size are collected and judged; larger ones pass unseen.
const MAX_CONTROL: usize = 64 * 1024;
/// Frames that may wait behind a barrier, in octets.
const MAX_BACKLOG: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Up {
    reader: Reader,
    /// Octets of the preface seen.
    preface: usize,
    decoder: hpack::Decoder,
    /// Header compression can no longer be followed: no new calls are tapped.
    pub hpack_lost: bool,
    block: Block,
    pub queue: Queue,
    /// Frames of our own that wait for the end of the frame being passed.
    pub pending: Vec<u8>,
    /// Octets of the DATA frame being queued that are not in the queue: still to come, or padding.
    unqueued: usize,
}

impl Up {
    pub(super) fn new() -> Self {
        Self {
            reader: Reader::new(),
            preface: 0,
            decoder: hpack::Decoder::default(),
            hpack_lost: false,
            block: Block::default(),
            queue: Queue::default(),
            pending: Vec::new(),
            unqueued: 0,
        }
    }

    /// Whether frames of our own can be sent to the runtime now.
    pub(super) fn at_boundary(&self) -> bool {
        let passing = self.reader.in_payload
            && matches!(self.reader.payload, Payload::Pass | Payload::PassBlock | Payload::Data(Data::Copy));
        let block_open = self.block.is_passing();
        self.preface == PREFACE.len() && !passing && !block_open
    }
}

impl<C> Tap<C> {
    /// Takes octets from the client.
    pub fn client_bytes(&mut self, input: &[u8], out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        let mut at = 0;
        while at < input.len() && self.broken.is_none() {
            if self.blind {
                out.to_backend.pass(at..input.len());
                return;
            }
            if self.up.preface < PREFACE.len() {
                let take = (PREFACE.len() - self.up.preface).min(input.len() - at);
                self.blind = input[at..at + take] != PREFACE[self.up.preface..self.up.preface + take];
                out.to_backend.pass(at..at + take);
                self.up.preface += take;
                at += take;
                continue;
            }
            if !self.up.reader.in_payload {
                let Some(source) = self.up.reader.header(input, &mut at) else { break };
                self.client_frame(source, out, handler);
            } else {
                let take = self.up.reader.left.min(input.len() - at);
                self.client_payload(input, at..at + take, out, handler);
                self.up.reader.left -= take;
                at += take;
            }
            if self.up.reader.in_payload && self.up.reader.left == 0 {
                self.up.reader.in_payload = false;
                self.client_frame_end(out, handler);
                self.pump(out);
            }
        }
        self.grant();
        self.down.flush(&mut out.to_client);
    }

    /// A frame header is complete: decides what happens with the frame.
    fn client_frame(&mut self, source: HeaderAt, out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        let frame = self.up.reader.frame;
        if self.up.block.is_open() && frame.kind != kind::CONTINUATION {
            // A connection error that is the runtime's to name.
            self.up.hpack_lost = true;
            if self.up.block.interrupt() {
                self.broken = Some(Broken::HeaderBlock);
            }
        }
        let payload = match frame.kind {
            kind::DATA => self.client_data(frame, handler),
            kind::HEADERS => {
                let payload = self.client_block(frame, handler, out);
                self.up.block.begin(frame, payload);
                payload
            }
            kind::CONTINUATION => self.up.block.continued().unwrap_or(Payload::Pass),
            kind::WINDOW_UPDATE if self.is_refused(frame.stream) => Payload::Drop,
            // It may overtake: it only lets answers flow.
            kind::WINDOW_UPDATE if frame.stream <= self.last_passed => Payload::Pass,
            kind::SETTINGS | kind::PING | kind::RST_STREAM if frame.length <= MAX_CONTROL => Payload::Collect,
            _ if self.up.queue.has_barrier() => Payload::Collect,
            _ => Payload::Pass,
        };
        if payload != Payload::CollectBlock || frame.kind == kind::HEADERS {
            self.up.reader.collected.clear();
        }
        if payload == Payload::CollectBlock {
            self.up.reader.collected.extend_from_slice(&frame.to_bytes());
        }
        self.up.reader.payload = payload;
        if matches!(payload, Payload::Pass | Payload::PassBlock | Payload::Data(Data::Copy)) {
            match source {
                HeaderAt::Input(range) => out.to_backend.pass(range),
                HeaderAt::Own(bytes) => out.to_backend.push(&bytes),
            }
        }
    }

    fn client_data(&mut self, frame: frame::FrameHeader, handler: &mut impl Handler<Call = C>) -> Payload {
        let length = i64::try_from(frame.length).unwrap_or(i64::MAX);
        if self.is_refused(frame.stream) {
            self.connection.keep(length);
            return Payload::Drop;
        }
        let barrier = self.up.queue.has_barrier();
        let payload = match self.streams.get_mut(&frame.stream) {
            Some(state) => {
                let room = match &state.tapped {
                    Tapped::Collecting { held } => {
                        let message_fits =
                            held.len() + frame.length <= self.options.max_message.saturating_add(5);
                        Some(message_fits && self.held + frame.length <= self.options.max_held)
                    }
                    _ => None,
                };
                if room == Some(false) {
                    self.bypass(frame.stream, Bypass::Size, handler);
                }
                let Some(state) = self.streams.get_mut(&frame.stream) else { return Payload::Pass };
                if room == Some(true) {
                    self.connection.keep(length);
                    state.level(&self.window, |level| level.keep(length));
                    state.held_octets += length;
                    Payload::Data(Data::Hold)
                } else if barrier
                    || state.queued_entries > 0
                    || self.connection.to_backend < length
                    || state.sendable(&self.window) < length
                {
                    self.connection.keep(length);
                    state.level(&self.window, |level| level.keep(length));
                    self.up.unqueued = frame.length;
                    Payload::Data(Data::Queue)
                } else {
                    self.connection.pass(length);
                    state.level(&self.window, |level| level.pass(length));
                    match state.tapped {
                        Tapped::Observed { .. } => Payload::Data(Data::Copy),
                        _ => Payload::Pass,
                    }
                }
            }
            // A stream that is over already, or none at all: that is the runtime's to judge. Its DATA still counts on
            // the connection; where the runtime could not take it, it is dropped.
            None if self.connection.to_backend < length => {
                self.connection.keep(length);
                Payload::Drop
            }
            None => {
                self.connection.pass(length);
                Payload::Pass
            }
        };
        if self.connection.client < 0 {
            self.broken = Some(Broken::FlowControl);
        }
        payload
    }

    /// Whether a header block passes as it comes.
    fn client_block(
        &mut self,
        frame: frame::FrameHeader,
        handler: &mut impl Handler<Call = C>,
        out: &mut Outputs,
    ) -> Payload {
        if let Some(state) = self.streams.get(&frame.stream)
            && matches!(state.tapped, Tapped::Collecting { .. })
        {
            // Request trailers: such a call is nobody's of ours.
            self.bypass(frame.stream, Bypass::Framing, handler);
            self.up.reader.in_payload = false;
            self.pump(out);
            self.up.reader.in_payload = true;
        }
        let queued = self.streams.get(&frame.stream).is_some_and(|state| state.queued_entries > 0);
        if self.options.withhold_headers
            || self.up.queue.has_barrier()
            || queued
            || self.is_refused(frame.stream)
        {
            Payload::CollectBlock
        } else {
            Payload::PassBlock
        }
    }

    fn client_payload(
        &mut self,
        input: &[u8],
        chunk: std::ops::Range<usize>,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        let stream = self.up.reader.frame.stream;
        match self.up.reader.payload {
            Payload::Pass => out.to_backend.pass(chunk),
            Payload::PassBlock => {
                self.up.reader.collected.extend_from_slice(&input[chunk.clone()]);
                out.to_backend.pass(chunk);
                if self.up.block.kept(&self.up.reader) > self.options.max_header_block {
                    self.up.hpack_lost = true;
                    self.up.reader.collected.clear();
                }
            }
            Payload::Collect | Payload::CollectBlock => {
                self.up.reader.collected.extend_from_slice(&input[chunk]);
                if self.up.queue.barrier_octets() + self.up.reader.collected.len() > MAX_BACKLOG {
                    self.broken = Some(Broken::Backlog);
                }
            }
            Payload::Data(Data::Copy) => {
                let data = self.up.reader.data(chunk.clone(), input);
                out.to_backend.pass(chunk);
                let max = self.options.max_message.saturating_add(5);
                let too_large = match self.streams.get_mut(&stream) {
                    Some(Stream { tapped: Tapped::Observed { copy }, .. }) => {
                        let fits = copy.len() + data.len() <= max;
                        if fits {
                            copy.extend_from_slice(&input[data]);
                        }
                        !fits
                    }
                    _ => false,
                };
                if too_large {
                    self.bypass(stream, Bypass::Size, handler);
                }
            }
            Payload::Data(Data::Hold) => {
                let data = self.up.reader.data(chunk, input);
                if let Some(Stream { tapped: Tapped::Collecting { held }, .. }) =
                    self.streams.get_mut(&stream)
                {
                    self.held += data.len();
                    held.extend_from_slice(&input[data]);
                }
            }
            Payload::Data(Data::Queue) => {
                let data = self.up.reader.data(chunk, input);
                if let Some(state) = self.streams.get_mut(&stream) {
                    if let Tapped::Observed { copy } = &mut state.tapped
                        && copy.len() + data.len() <= self.options.max_message.saturating_add(5)
                    {
                        copy.extend_from_slice(&input[data.clone()]);
                    }
                    if !data.is_empty() {
                        self.up.unqueued -= data.len();
                        if self.up.queue.push_data(stream, (&input[data]).into(), false) {
                            state.queued_entries += 1;
                        }
                    }
                    // In debt nothing waits for a whole frame.
                    self.pump(out);
                }
            }
            Payload::Drop => {}
        }
    }

    fn client_frame_end(&mut self, out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        let frame = self.up.reader.frame;
        match self.up.reader.payload {
            Payload::Data(how) => self.client_data_end(frame, how, out, handler),
            Payload::PassBlock | Payload::CollectBlock => self.client_block_part(out, handler),
            Payload::Collect => self.client_control(frame, out, handler),
            Payload::Drop if frame.kind == kind::DATA => {
                // The runtime never sees it: the credit goes back at once.
                let length = i64::try_from(frame.length).unwrap_or(i64::MAX);
                self.connection.change(length, 0);
                self.settle(None);
            }
            Payload::Pass if frame.kind == kind::DATA && frame.has(flag::END_STREAM) => {
                if let Some(state) = self.streams.get_mut(&frame.stream) {
                    state.client_ended = true;
                    state.ended_to_backend = true;
                    self.forget_if_done(frame.stream);
                }
            }
            Payload::Pass | Payload::Drop => {}
        }
    }

    fn client_data_end(
        &mut self,
        frame: frame::FrameHeader,
        how: Data,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        let end = frame.has(flag::END_STREAM);
        let unqueued = match how {
            Data::Queue => i64::try_from(std::mem::take(&mut self.up.unqueued)).unwrap_or(0),
            Data::Copy | Data::Hold => 0,
        };
        self.connection.change(unqueued, 0);
        let Some(state) = self.streams.get_mut(&frame.stream) else {
            // The stream was dropped while this frame came in; what had arrived was given back then.
            self.settle(None);
            return;
        };
        state.client_ended |= end;
        match how {
            Data::Copy => state.ended_to_backend |= end,
            // Dropped padding goes back when the held octets are replaced.
            Data::Hold => {}
            Data::Queue => {
                let kept = state.level(&self.window, |level| level.change(unqueued, 0)).is_some();
                if !kept && !end && unqueued > 0 {
                    frame::push_window_update(&mut self.down.pending, frame.stream, unqueued);
                }
                if end && self.up.queue.push_data(frame.stream, Cow::default(), true) {
                    state.queued_entries += 1;
                }
                self.settle(Some(frame.stream));
            }
        }
        if end {
            self.request_complete(frame.stream, out, handler);
            self.forget_if_done(frame.stream);
        }
    }

    /// A HEADERS or CONTINUATION frame is whole.
    fn client_block_part(&mut self, out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        let (whole, followed) = self.up.block.part(&mut self.up.reader, self.options.max_header_block);
        self.up.hpack_lost |= followed.is_err();
        if let Some(WholeBlock { frame, fragments, withheld }) = whole {
            self.client_headers(frame, &fragments, withheld, out, handler);
            self.up.block.reuse(fragments);
        }
    }

    /// A whole header block; `withheld` has its frames where they have not been passed on.
    fn client_headers(
        &mut self,
        frame: frame::FrameHeader,
        block: &[u8],
        withheld: Option<Vec<u8>>,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        let stream = frame.stream;
        let end = frame.has(flag::END_STREAM);
        let mut head = Head::default();
        let mut fields = Vec::new();
        let keep_fields = self.options.withhold_headers;
        let max_path = self.options.max_path;
        let mut effect = hpack::TableEffect::None;
        if !self.up.hpack_lost {
            let outcome = self.up.decoder.decode(block, |field| {
                match field.name {
                    b":path" if field.value.len() <= max_path => head.path = field.value.to_vec(),
                    b"grpc-timeout" => head.timeout = parse_timeout(field.value),
                    b"grpc-encoding" => {
                        head.encoding = match field.value {
                            b"identity" | b"" => Encoding::Identity,
                            b"gzip" => Encoding::Gzip,
                            _ => Encoding::Other,
                        }
                    }
                    _ => {}
                }
                if keep_fields {
                    fields.push(OwnedField {
                        name: field.name.to_vec(),
                        value: field.value.to_vec(),
                        sensitive: field.sensitive,
                    });
                }
            });
            match outcome {
                Ok(seen) => effect = seen,
                Err(_) => self.up.hpack_lost = true,
            }
        }
        let opens = stream % 2 == 1 && stream > self.last_opened;
        let mut refusal = None;
        if opens {
            self.last_opened = stream;
            let (mode, call) = if self.up.hpack_lost {
                (Mode::Pass, None)
            } else {
                let (mode, call) = handler.open(stream, head);
                (mode, Some(call))
            };
            let mut unframed = false;
            let tapped = match mode {
                Mode::Hold if !end => {
                    self.collecting += 1;
                    Tapped::Collecting { held: Vec::new() }
                }
                Mode::Observe | Mode::Hold if !end => Tapped::Observed { copy: Vec::new() },
                Mode::Observe | Mode::Hold => {
                    unframed = true;
                    Tapped::Answer
                }
                Mode::Pass => Tapped::No,
                Mode::Refuse(with) => {
                    refusal = Some(with);
                    Tapped::No
                }
            };
            let mut state = Stream::new(call, tapped);
            state.client_ended = end;
            if unframed && let Some(call) = &mut state.call {
                handler.bypassed(stream, call, Bypass::Framing);
            }
            self.streams.insert(stream, state);
        } else if let Some(state) = self.streams.get_mut(&stream) {
            state.client_ended |= end;
            if end && matches!(state.tapped, Tapped::Observed { .. }) {
                state.tapped = Tapped::Answer;
            }
        }
        if self.up.hpack_lost && self.options.withhold_headers {
            self.broken = Some(Broken::HeaderBlock);
            return;
        }
        match (withheld, refusal) {
            (Some(_), Some(refusal)) => {
                // It leaves no trace: the runtime is not even told of a reset.
                self.refuse_unopened(stream, &refusal, handler);
                return;
            }
            (None, Some(refusal)) => {
                self.last_passed = self.last_passed.max(stream);
                self.refuse(stream, &refusal, out, handler);
                return;
            }
            (Some(frames), None) => {
                if self.is_refused(stream) {
                    // Trailers of a call that is over; the runtime's table may need them all the same.
                    if effect != hpack::TableEffect::None && !self.options.withhold_headers {
                        self.broken = Some(Broken::HeaderBlock);
                    }
                    return;
                }
                let frames =
                    if self.options.withhold_headers { reencode(stream, &fields, end) } else { frames };
                let queued = self.streams.get(&stream).is_some_and(|state| state.queued_entries > 0);
                if self.up.queue.has_barrier() || queued {
                    self.up.queue.push_barrier(frames, false, end.then_some(stream));
                    return;
                }
                out.to_backend.push(&frames);
            }
            (None, None) => {}
        }
        self.last_passed = self.last_passed.max(stream);
        if end && let Some(state) = self.streams.get_mut(&stream) {
            state.ended_to_backend = true;
            self.forget_if_done(stream);
        }
    }

    fn refuse_unopened(&mut self, stream: u32, refusal: &Refusal, handler: &mut impl Handler<Call = C>) {
        let Some(state) = self.streams.remove(&stream) else { return };
        self.down.emit_status(stream, false, refusal);
        if !state.client_ended {
            frame::push_reset(&mut self.down.pending, stream, error_code::NO_ERROR);
        }
        self.remember_refused(stream);
        if let Some(call) = state.call {
            handler.closed(stream, call, Closed::Refused(refusal.code));
        }
    }

    /// A collected control frame is whole.
    fn client_control(
        &mut self,
        frame: frame::FrameHeader,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        let payload = std::mem::take(&mut self.up.reader.collected);
        let acknowledges = frame.kind == kind::SETTINGS && frame.has(flag::ACK);
        match frame.kind {
            kind::SETTINGS if acknowledges && std::mem::take(&mut self.greeting_unacknowledged) => return,
            kind::SETTINGS if acknowledges => self.window.acknowledge(),
            kind::SETTINGS => self.down.client_settings(&payload),
            kind::PING
                if frame.has(flag::ACK) && payload == DRAIN_PING && self.draining == Drain::Announced =>
            {
                self.draining = Drain::Confirmed;
                return;
            }
            kind::RST_STREAM => {
                if self.is_refused(frame.stream) {
                    return;
                }
                self.client_reset(frame.stream, out, handler);
            }
            _ => {}
        }
        let mut frames = Vec::with_capacity(frame::HEADER_LEN + payload.len());
        frames.extend_from_slice(&frame.to_bytes());
        frames.extend_from_slice(&payload);
        if self.up.queue.has_barrier() || (acknowledges && !self.up.queue.is_empty()) {
            self.up.queue.push_barrier(frames, acknowledges, None);
            return;
        }
        out.to_backend.push(&frames);
        if acknowledges {
            self.window.acknowledgement_passed();
        }
        self.up.reader.collected = payload;
    }

    fn client_reset(&mut self, stream: u32, out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        if let Some(state) = self.streams.get_mut(&stream) {
            if state.trailers.take().is_some() {
                // The client's table misses a block from here on.
                self.down.lose_held();
            }
            if let Some(call) = state.call.take() {
                handler.closed(stream, call, Closed::Cancelled);
            }
            self.forget(stream, out);
        }
    }

    /// Barriers that have been sent may have opened streams.
    pub(super) fn note_passed_barrier(&mut self, frames: &[u8]) {
        if let Some(bytes) = frames.first_chunk::<{ frame::HEADER_LEN }>() {
            let header = frame::FrameHeader::parse(bytes);
            if header.kind == kind::HEADERS {
                self.last_passed = self.last_passed.max(header.stream);
            }
        }
    }
}

/// A header block that needs no table.
fn reencode(stream: u32, fields: &[OwnedField], end: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for field in fields {
        hpack::encode_literal(
            &mut block,
            hpack::Field { name: &field.name, value: &field.value, sensitive: field.sensitive },
        );
    }
    let mut frames = Vec::new();
    frame::push_header_block(&mut frames, stream, &block, end);
    frames
}
