//! The whole of what one side of a stream said.

use std::time::{Duration, Instant};

use super::{Event, Fields, Stream, field};
use crate::frame::split_messages;

/// The whole of what the other end said on a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The first header block; of a trailers-only answer the only one.
    pub head: Fields,
    /// All DATA.
    pub body: Vec<u8>,
    /// The last header block, when there was one behind the head.
    pub trailers: Option<Fields>,
    /// The code of a RST_STREAM.
    pub reset: Option<u32>,
    /// Why the connection ended before the stream did.
    pub lost: Option<String>,
    /// The limit passed before the stream ended.
    pub unfinished: bool,
}

impl Answer {
    /// Collects events until the stream ends or `limit` passes.
    pub fn collect(stream: &Stream, limit: Duration) -> Self {
        let deadline = Instant::now() + limit;
        let mut answer = Self::default();
        let mut head_seen = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match stream.next(left) {
                None => answer.unfinished = true,
                Some(Event::Headers { fields, end }) => {
                    if head_seen {
                        answer.trailers = Some(fields);
                    } else {
                        answer.head = fields;
                        head_seen = true;
                    }
                    if !end {
                        continue;
                    }
                }
                Some(Event::Data { bytes, end }) => {
                    answer.body.extend_from_slice(&bytes);
                    if !end {
                        continue;
                    }
                }
                Some(Event::Reset(code)) => answer.reset = Some(code),
                Some(Event::Lost(reason)) => answer.lost = Some(reason),
            }
            return answer;
        }
    }

    /// The trailers, or the head of a trailers-only answer.
    pub fn ending(&self) -> &Fields {
        self.trailers.as_ref().unwrap_or(&self.head)
    }

    /// `grpc-status`; `None` when the stream ended without one.
    pub fn status(&self) -> Option<u32> {
        std::str::from_utf8(field(self.ending(), "grpc-status")?).ok()?.parse().ok()
    }

    /// `grpc-message` as sent, percent-encoded.
    pub fn status_message(&self) -> String {
        field(self.ending(), "grpc-message")
            .map_or_else(String::new, |text| String::from_utf8_lossy(text).into_owned())
    }

    /// The body's messages; `None` when it is cut or one is compressed.
    pub fn messages(&self) -> Option<Vec<Vec<u8>>> {
        split_messages(&self.body)?
            .into_iter()
            .map(|(compressed, payload)| (compressed == 0).then_some(payload))
            .collect()
    }

    /// The body's only message.
    ///
    /// # Panics
    /// When there is not exactly one; the message shows the whole answer's ending.
    #[track_caller]
    pub fn message(&self) -> Vec<u8> {
        match self.messages() {
            Some(messages) if messages.len() == 1 => messages.into_iter().next().unwrap_or_default(),
            other => panic!(
                "one message expected, got {:?}; ending {:?}, reset {:?}, lost {:?}, unfinished {}",
                other.map(|messages| messages.len()),
                self.ending(),
                self.reset,
                self.lost,
                self.unfinished
            ),
        }
    }

    /// The only message of an answer with status 0.
    ///
    /// # Panics
    /// When the status is another or there is not exactly one message.
    #[track_caller]
    pub fn expect_ok(&self) -> Vec<u8> {
        assert_eq!(
            self.status(),
            Some(0),
            "{}; reset {:?}, lost {:?}, unfinished {}",
            self.status_message(),
            self.reset,
            self.lost,
            self.unfinished
        );
        self.message()
    }
}
