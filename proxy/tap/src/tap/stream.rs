//! What the tap remembers of one stream.

use crate::credit::{InitialWindow, Level};

/// Answers of tapped calls are copied up to this size: they are looked at for identifiers only.
const MAX_RESPONSE_COPY: usize = 64 * 1024;

/// The tap's part in a stream.
#[derive(Debug)]
pub(super) enum Tapped {
    /// Nothing is copied.
    No,
    /// Copied while it passes.
    Observed {
        /// DATA so far, without padding.
        copy: Vec<u8>,
    },
    /// Held, the request is not complete.
    Collecting {
        /// DATA so far, without padding.
        held: Vec<u8>,
    },
    /// Held, the verdict is awaited.
    Waiting {
        /// All DATA, without padding.
        held: Vec<u8>,
    },
    /// The request has passed; the answer is copied.
    Answer,
}

/// Trailers that wait for [`crate::Tap::release`].
#[derive(Debug)]
pub(super) struct HeldTrailers {
    /// The frames as they came.
    pub frames: Vec<u8>,
    /// The fields, for the case that the frames can no longer be sent as they are.
    pub fields: Vec<OwnedField>,
    /// A RST_STREAM that came behind them.
    pub reset: Vec<u8>,
}

/// A decoded header field.
#[derive(Clone, Debug)]
pub(super) struct OwnedField {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub sensitive: bool,
}

/// One open stream.
#[derive(Debug)]
pub(super) struct Stream<C> {
    /// The handler's part; gone once the call is over for the client.
    pub call: Option<C>,
    pub tapped: Tapped,
    /// Flow control of held streams, relative to the initial windows.
    level: Option<Level>,
    /// Octets of DATA frames (padding included) in `held`.
    pub held_octets: i64,
    /// Entries of the send queue.
    pub queued_entries: usize,
    /// The client has ended its half.
    pub client_ended: bool,
    /// The end of the client's half has been passed on.
    pub ended_to_backend: bool,
    /// The runtime has ended its half.
    pub backend_ended: bool,
    /// Response headers have been passed on.
    pub headers_passed: bool,
    /// Copy of the answer's DATA, while it is wanted.
    pub response: Option<Vec<u8>>,
    pub trailers: Option<HeldTrailers>,
    /// `grpc-status` of the last header block.
    pub status: Option<u32>,
}

impl<C> Stream<C> {
    pub(super) fn new(call: Option<C>, tapped: Tapped) -> Self {
        let held = matches!(tapped, Tapped::Collecting { .. });
        let copied = !matches!(tapped, Tapped::No);
        Self {
            call,
            tapped,
            level: held.then(|| Level::new(0)),
            held_octets: 0,
            queued_entries: 0,
            client_ended: false,
            ended_to_backend: false,
            backend_ended: false,
            headers_passed: false,
            response: copied.then(Vec::new),
            trailers: None,
            status: None,
        }
    }

    /// Works on the stream's flow control, if it is kept.
    pub(super) fn level<R>(
        &mut self,
        window: &InitialWindow,
        work: impl FnOnce(&mut Level) -> R,
    ) -> Option<R> {
        let level = self.level.as_mut()?;
        let (usable, client) = (window.usable(), window.client());
        level.to_backend += usable;
        level.client += client;
        let result = work(level);
        level.to_backend -= usable;
        level.client -= client;
        Some(result)
    }

    /// What the stream's window allows to send on; unlimited where it is not kept, since both sides then count alike.
    pub(super) fn sendable(&mut self, window: &InitialWindow) -> i64 {
        self.level(window, |level| level.to_backend).unwrap_or(i64::MAX)
    }

    /// Copies response DATA; past the limit the copy is given up.
    pub(super) fn copy_response(&mut self, data: &[u8]) {
        if let Some(copy) = &mut self.response {
            if copy.len() + data.len() > MAX_RESPONSE_COPY {
                self.response = None;
            } else {
                copy.extend_from_slice(data);
            }
        }
    }
}
