//! The relay of one connection pair: octets in, octets out, no sockets, no clock.

mod down;
mod queue;
mod reader;
mod stream;
mod up;

use std::collections::VecDeque;

use crate::call::{
    Bypass, Closed, Decision, Handler, Refusal, ResponseEnd, Trailers, Verdict, only_message, with_prefix,
};
use crate::credit::{InitialWindow, Level};
use crate::frame::{self, DEFAULT_WINDOW, MIN_MAX_FRAME_SIZE, error_code, flag, kind, setting};
use crate::hpack;
use crate::out::Outputs;
use down::Down;
use queue::Entry;
pub(crate) use reader::headers_fragment;
use stream::{HeldTrailers, Stream, Tapped};
use up::Up;

/// Payload of the PING that confirms that a client has read our GOAWAY.
const DRAIN_PING: [u8; 8] = *b"\xd7koorddr";
/// The highest stream identifier.
const LAST_STREAM: u32 = 0x7fff_ffff;
/// Refused streams that are remembered, so that late frames of them are dropped.
const REMEMBERED_REFUSALS: usize = 256;

/// Limits and choices of a tap.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Largest message that is held or copied, in octets; a larger one passes unseen.
    pub max_message: usize,
    /// Most octets held on one connection; a request that would exceed it passes unseen.
    pub max_held: usize,
    /// Longest header block that is decoded, in octets; past it the connection is no longer tapped.
    pub max_header_block: usize,
    /// Longest `:path` that is looked at, in octets.
    pub max_path: usize,
    /// Request headers wait for [`Handler::open`], so that a refused call leaves no trace at the runtime. Costs a
    /// re-encoding of every request's headers.
    pub withhold_headers: bool,
    /// The client has been sent empty SETTINGS already ([`crate::peek`]).
    pub greeted: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_message: 32 << 20,
            max_held: 64 << 20,
            max_header_block: 1 << 20,
            max_path: 4096,
            withhold_headers: false,
            greeted: false,
        }
    }
}

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Header blocks had to be rewritten, and one cannot be read.
    #[error("a header block that has to be rewritten cannot be decoded")]
    HeaderBlock,
    /// The client sent more DATA than any window allowed.
    #[error("the client ignores flow control")]
    FlowControl,
    /// Too many frames wait behind a message that outgrew the runtime's windows.
    #[error("too many frames wait for the runtime's flow-control credit")]
    Backlog,
}

/// The tap. See the crate's documentation for the rules.
#[derive(Debug)]
pub struct Tap<C> {
    options: Options,
    up: Up,
    down: Down,
    /// Connection-level flow control from client to runtime.
    connection: Level,
    window: InitialWindow,
    streams: foldhash::HashMap<u32, Stream<C>>,
    refused: VecDeque<u32>,
    /// Streams whose request is still being collected.
    collecting: usize,
    /// Octets in held requests.
    held: usize,
    /// Highest stream the client has opened, and the highest whose headers have been passed on.
    last_opened: u32,
    last_passed: u32,
    /// The lowest last stream of the runtime's GOAWAYs: one of ours must not name a higher one (RFC 9113, section 6.8).
    last_allowed: u32,
    /// The client does not speak HTTP/2: everything passes.
    blind: bool,
    draining: Drain,
    broken: Option<Broken>,
    /// The client's next acknowledgement of SETTINGS is of our greeting.
    greeting_unacknowledged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    /// GOAWAY and PING are sent.
    Announced,
    /// The client has answered the PING. It opens no more streams, except those it had begun: the `h2` crate answers
    /// before it sends headers that it has queued.
    Confirmed,
}

impl<C> Tap<C> {
    /// A tap for a new connection pair.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            up: Up::new(),
            down: Down::new(options.greeted),
            connection: Level::new(DEFAULT_WINDOW),
            window: InitialWindow::default(),
            streams: foldhash::HashMap::default(),
            refused: VecDeque::new(),
            collecting: 0,
            held: 0,
            last_opened: 0,
            last_passed: 0,
            last_allowed: LAST_STREAM,
            blind: false,
            draining: Drain::No,
            broken: None,
            greeting_unacknowledged: options.greeted,
        }
    }

    /// Why the connection cannot go on, if so. The caller sends what is in the outputs and closes.
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Whether calls are no longer looked at: the client speaks another protocol, or header compression was lost.
    pub fn untapped(&self) -> bool {
        self.blind || self.up.hpack_lost || self.down.hpack_lost
    }

    /// Whether the client does not speak HTTP/2, so that everything passes.
    pub fn is_blind(&self) -> bool {
        self.blind
    }

    /// Works on the handler's part of an open call; `None` when the call is over.
    pub fn with_call<R>(&mut self, stream: u32, work: impl FnOnce(&mut C) -> R) -> Option<R> {
        self.streams.get_mut(&stream).and_then(|state| state.call.as_mut()).map(work)
    }

    /// Open streams.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Octets that the tap holds: held requests and what waits for credit.
    pub fn held_octets(&self) -> usize {
        usize::try_from(self.connection.queued).unwrap_or(0) + self.up.queue.barrier_octets()
    }

    /// The verdict on a held request, any time after [`Decision::Later`]. Without effect when the call is over already.
    pub fn resolve(
        &mut self,
        stream: u32,
        verdict: Verdict,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        self.apply(stream, verdict, out, handler);
        self.pump(out);
        self.down.flush(&mut out.to_client);
    }

    /// Lets held trailers reach the client. Without effect when the call is over already.
    pub fn release(&mut self, stream: u32, out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        if let Some(state) = self.streams.get_mut(&stream)
            && let Some(trailers) = state.trailers.take()
        {
            self.down.emit_held(stream, &trailers);
            if trailers.reset.is_empty() {
                self.backend_ended(stream, out, handler);
            } else {
                self.answered(stream, handler);
                self.forget(stream, out);
            }
        }
        self.pump(out);
        self.down.flush(&mut out.to_client);
    }

    /// Asks the client to open no more streams on this connection (GOAWAY that loses none, RFC 9113, section 6.8).
    pub fn begin_drain(&mut self, out: &mut Outputs) {
        if self.draining == Drain::No && !self.blind {
            self.draining = Drain::Announced;
            let pending = &mut self.down.pending;
            frame::push_goaway(pending, self.last_allowed, error_code::NO_ERROR);
            frame::push_frame(pending, kind::PING, 0, 0, &DRAIN_PING);
            self.down.flush(&mut out.to_client);
        }
    }

    /// Whether a drained connection has nothing left to do.
    pub fn drained(&self) -> bool {
        self.draining == Drain::Confirmed && self.streams.is_empty() && self.up.queue.is_empty()
    }

    /// Names the last stream that was looked at in a second GOAWAY (RFC 9113, section 6.8), so that a client knows of one
    /// that it opened too late that it may make the call again. In the middle of a frame nothing is said.
    pub fn end_drain(&mut self, out: &mut Outputs) {
        if self.draining == Drain::Confirmed {
            self.push_last_goaway();
            self.down.flush(&mut out.to_client);
        }
    }

    fn push_last_goaway(&mut self) {
        let last = self.last_opened.min(self.last_allowed);
        frame::push_goaway(&mut self.down.pending, last, error_code::NO_ERROR);
    }

    /// Ends every open call with a status and says GOAWAY. Says whether the client could be told: in the middle of a
    /// frame nothing can be inserted.
    pub fn end_all(
        &mut self,
        refusal: &Refusal,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) -> bool {
        let can_tell = !self.blind && self.down.at_boundary();
        if can_tell && !self.down.started {
            // The runtime has gone before its first octet: its part of the greeting is ours to give.
            self.down.started = true;
            let mut greeting = Vec::new();
            frame::push_frame(&mut greeting, kind::SETTINGS, 0, 0, &[]);
            greeting.append(&mut self.down.pending);
            self.down.pending = greeting;
        }
        let mut open: Vec<u32> = self.streams.keys().copied().collect();
        open.sort_unstable();
        for stream in open {
            if self.streams.get(&stream).is_some_and(|state| state.trailers.is_some()) {
                self.release(stream, out, handler);
            }
            let Some(state) = self.streams.remove(&stream) else { continue };
            if let Some(call) = state.call {
                handler.closed(stream, call, Closed::Disconnected);
            }
            if !state.backend_ended && can_tell {
                self.down.emit_status(stream, state.headers_passed, refusal);
            }
        }
        if can_tell {
            self.push_last_goaway();
            self.down.flush(&mut out.to_client);
        }
        can_tell
    }

    /// Ends the books when the connection is closed: every call still open is reported.
    pub fn close(&mut self, handler: &mut impl Handler<Call = C>) {
        for (stream, state) in self.streams.drain() {
            if let Some(call) = state.call {
                handler.closed(stream, call, Closed::Disconnected);
            }
        }
    }

    /// Acts on a verdict; the caller pumps and flushes.
    fn apply(
        &mut self,
        stream: u32,
        verdict: Verdict,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if !matches!(state.tapped, Tapped::Waiting { .. }) {
            return;
        }
        match verdict {
            Verdict::Forward => self.unhold(stream, None),
            Verdict::Replace(message) => self.unhold(stream, Some(with_prefix(&message))),
            Verdict::Refuse(refusal) => self.refuse(stream, &refusal, out, handler),
        }
    }

    /// Moves a held request to the send queue, as it is or replaced.
    fn unhold(&mut self, stream: u32, replacement: Option<Vec<u8>>) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let held = match std::mem::replace(&mut state.tapped, Tapped::Answer) {
            Tapped::Collecting { held } => {
                self.collecting -= 1;
                held
            }
            Tapped::Waiting { held } => held,
            other => {
                state.tapped = other;
                return;
            }
        };
        self.held -= held.len();
        let octets = replacement.unwrap_or(held);
        let after = i64::try_from(octets.len()).unwrap_or(i64::MAX);
        let before = std::mem::take(&mut state.held_octets);
        self.connection.change(before, after);
        state.level(&self.window, |level| level.change(before, after));
        if (state.client_ended || !octets.is_empty())
            && self.up.queue.push_data(stream, octets.into(), state.client_ended)
        {
            state.queued_entries += 1;
        }
        self.settle(Some(stream));
    }

    /// Passes a request that is not to be looked at.
    fn bypass(&mut self, stream: u32, why: Bypass, handler: &mut impl Handler<Call = C>) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if let Some(call) = &mut state.call {
            handler.bypassed(stream, call, why);
        }
        if matches!(state.tapped, Tapped::Observed { .. }) {
            state.tapped = Tapped::Answer;
        }
        self.unhold(stream, None);
    }

    /// The client's half of a held or observed request is complete.
    fn request_complete(&mut self, stream: u32, out: &mut Outputs, handler: &mut impl Handler<Call = C>) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let (collected, held) = match &mut state.tapped {
            Tapped::Observed { copy } => (std::mem::take(copy), false),
            Tapped::Collecting { held } => (std::mem::take(held), true),
            _ => return,
        };
        if held {
            self.collecting -= 1;
            state.tapped = Tapped::Waiting { held: collected };
        } else {
            state.tapped = Tapped::Answer;
            if let (Some(call), Some(request)) = (&mut state.call, only_message(&collected)) {
                handler.request(stream, call, request);
            } else if let Some(call) = &mut state.call {
                handler.bypassed(stream, call, Bypass::Framing);
            }
            return;
        }
        let Tapped::Waiting { held } = &state.tapped else { return };
        let decision = match (&mut state.call, only_message(held)) {
            (Some(call), Some(request)) => handler.request(stream, call, request),
            (Some(call), None) => {
                handler.bypassed(stream, call, Bypass::Framing);
                Decision::Now(Verdict::Forward)
            }
            (None, _) => Decision::Now(Verdict::Forward),
        };
        if let Decision::Now(verdict) = decision {
            self.apply(stream, verdict, out, handler);
        }
    }

    /// Ends a call in the runtime's place.
    fn refuse(
        &mut self,
        stream: u32,
        refusal: &Refusal,
        out: &mut Outputs,
        handler: &mut impl Handler<Call = C>,
    ) {
        self.drop_request(stream);
        let Some(state) = self.streams.remove(&stream) else { return };
        self.reset_backend(stream, error_code::CANCEL, out);
        self.down.emit_status(stream, state.headers_passed, refusal);
        if !state.client_ended {
            frame::push_reset(&mut self.down.pending, stream, error_code::NO_ERROR);
        }
        self.remember_refused(stream);
        if let Some(call) = state.call {
            handler.closed(stream, call, Closed::Refused(refusal.code));
        }
    }

    fn remember_refused(&mut self, stream: u32) {
        if self.refused.len() == REMEMBERED_REFUSALS {
            self.refused.pop_front();
        }
        self.refused.push_back(stream);
    }

    fn is_refused(&self, stream: u32) -> bool {
        !self.refused.is_empty() && self.refused.contains(&stream)
    }

    /// Drops what is held or queued of a stream and gives the credit back.
    fn drop_request(&mut self, stream: u32) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        match std::mem::replace(&mut state.tapped, Tapped::Answer) {
            Tapped::Collecting { held } => {
                self.collecting -= 1;
                self.held -= held.len();
            }
            Tapped::Waiting { held } => self.held -= held.len(),
            _ => {}
        }
        let mut dropped = std::mem::take(&mut state.held_octets);
        if state.queued_entries > 0 {
            state.queued_entries = 0;
            dropped += i64::try_from(self.up.queue.drop_data(stream)).unwrap_or(0);
        }
        if dropped > 0 {
            self.connection.change(dropped, 0);
            state.level(&self.window, |level| level.change(dropped, 0));
            self.settle(None);
        }
    }

    /// The call is answered as far as the client can see.
    fn answered(&mut self, stream: u32, handler: &mut impl Handler<Call = C>) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if let Some(call) = state.call.take() {
            handler.closed(stream, call, Closed::Answered(state.status));
        }
    }

    /// Removes a stream whose both halves have ended.
    fn forget_if_done(&mut self, stream: u32) {
        if let Some(state) = self.streams.get(&stream)
            && state.backend_ended
            && state.ended_to_backend
            && state.trailers.is_none()
        {
            self.streams.remove(&stream);
        }
    }

    /// Removes a stream that was reset.
    fn forget(&mut self, stream: u32, out: &mut Outputs) {
        self.drop_request(stream);
        self.streams.remove(&stream);
        self.down.flush(&mut out.to_client);
    }

    /// Sends RST_STREAM to the runtime, behind everything that has to come first.
    fn reset_backend(&mut self, stream: u32, code: u32, out: &mut Outputs) {
        if stream > self.last_opened {
            return;
        }
        let mut frames = Vec::new();
        frame::push_reset(&mut frames, stream, code);
        if self.up.queue.has_barrier() {
            self.up.queue.push_barrier(frames, false, None);
        } else if self.up.at_boundary() {
            out.to_backend.push(&frames);
        } else {
            self.up.pending.extend_from_slice(&frames);
        }
    }

    /// Gives the client what is its by right, on the connection and on a stream.
    fn settle(&mut self, stream: Option<u32>) {
        let surplus = self.connection.settle();
        if surplus > 0 {
            frame::push_window_update(&mut self.down.pending, 0, surplus);
        }
        if let Some(stream) = stream
            && let Some(state) = self.streams.get_mut(&stream)
            && !state.client_ended
            && let Some(surplus) = state.level(&self.window, Level::settle)
            && surplus > 0
        {
            frame::push_window_update(&mut self.down.pending, stream, surplus);
        }
    }

    /// Lends credit so that held requests can arrive. Asked after every event: the last one may have been an update that
    /// was swallowed.
    fn grant(&mut self) {
        if self.collecting == 0 {
            return;
        }
        let lent = self.connection.grant();
        if lent > 0 {
            frame::push_window_update(&mut self.down.pending, 0, lent);
        }
        for (stream, state) in &mut self.streams {
            if matches!(state.tapped, Tapped::Collecting { .. })
                && let Some(lent) = state.level(&self.window, Level::grant)
                && lent > 0
            {
                frame::push_window_update(&mut self.down.pending, *stream, lent);
            }
        }
    }

    /// Sends what waits for credit, as far as it reaches; then lends credit where it is needed.
    fn pump(&mut self, out: &mut Outputs) {
        if self.up.at_boundary() {
            if !self.up.pending.is_empty() {
                out.to_backend.push(&self.up.pending);
                self.up.pending.clear();
            }
            if !self.up.queue.is_empty() {
                self.send_queue(out);
            }
        }
        self.grant();
    }

    fn send_queue(&mut self, out: &mut Outputs) {
        let mut at = 0;
        let mut blocked: Vec<u32> = Vec::new();
        let mut ended: Vec<u32> = Vec::new();
        loop {
            if at == 0
                && let Some((frames, acknowledges, ends)) = self.up.queue.pop_barrier()
            {
                out.to_backend.push(&frames);
                if acknowledges {
                    self.window.acknowledgement_passed();
                }
                self.note_passed_barrier(&frames);
                ended.extend(ends);
                continue;
            }
            let Some(Entry::Data { stream, octets, sent, end_stream }) = self.up.queue.entries.get_mut(at)
            else {
                break;
            };
            let stream = *stream;
            let Some(state) = self.streams.get_mut(&stream) else {
                // The stream ended meanwhile; its DATA was accounted for when it did.
                self.up.queue.entries.remove(at);
                continue;
            };
            if blocked.contains(&stream) {
                at += 1;
                continue;
            }
            let finished = loop {
                let left = octets.len() - *sent;
                let credit = self.connection.to_backend.min(state.sendable(&self.window)).max(0);
                let now = left.min(MIN_MAX_FRAME_SIZE).min(usize::try_from(credit).unwrap_or(usize::MAX));
                if now == 0 && !(left == 0 && *end_stream) {
                    break left == 0;
                }
                let last = now == left;
                let flags = if last && *end_stream { flag::END_STREAM } else { 0 };
                let piece = &octets[*sent..*sent + now];
                out.to_backend.own(|own| frame::push_frame(own, kind::DATA, flags, stream, piece));
                *sent += now;
                let count = i64::try_from(now).unwrap_or(0);
                self.connection.send(count);
                state.level(&self.window, |level| level.send(count));
                if last {
                    break true;
                }
            };
            if finished {
                state.queued_entries = state.queued_entries.saturating_sub(1);
                if *end_stream {
                    ended.push(stream);
                }
                self.up.queue.entries.remove(at);
            } else {
                blocked.push(stream);
                at += 1;
            }
        }
        for stream in ended {
            if let Some(state) = self.streams.get_mut(&stream) {
                state.ended_to_backend = true;
            }
            self.forget_if_done(stream);
        }
    }
}
