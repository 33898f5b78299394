//! HTTP/2 frames as bytes, well-formed or not.
//!
//! Nothing here refuses to build a frame: a test must be able to send what the protocol forbids.

use std::io::{self, Read};

/// The client's connection preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types of RFC 9113 section 6.
pub mod kind {
    /// DATA.
    pub const DATA: u8 = 0;
    /// HEADERS.
    pub const HEADERS: u8 = 1;
    /// PRIORITY.
    pub const PRIORITY: u8 = 2;
    /// RST_STREAM.
    pub const RST_STREAM: u8 = 3;
    /// SETTINGS.
    pub const SETTINGS: u8 = 4;
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: u8 = 5;
    /// PING.
    pub const PING: u8 = 6;
    /// GOAWAY.
    pub const GOAWAY: u8 = 7;
    /// WINDOW_UPDATE.
    pub const WINDOW_UPDATE: u8 = 8;
    /// CONTINUATION.
    pub const CONTINUATION: u8 = 9;
}

/// Frame flags.
pub mod flag {
    /// END_STREAM, on DATA and HEADERS.
    pub const END_STREAM: u8 = 0x1;
    /// ACK, on SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// END_HEADERS, on HEADERS and CONTINUATION.
    pub const END_HEADERS: u8 = 0x4;
    /// PADDED, on DATA and HEADERS.
    pub const PADDED: u8 = 0x8;
    /// PRIORITY, on HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Settings of RFC 9113 section 6.5.2.
pub mod setting {
    /// SETTINGS_HEADER_TABLE_SIZE.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// SETTINGS_ENABLE_PUSH.
    pub const ENABLE_PUSH: u16 = 2;
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// SETTINGS_MAX_FRAME_SIZE.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// SETTINGS_MAX_HEADER_LIST_SIZE.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Error codes of RFC 9113 section 7.
pub mod code {
    /// NO_ERROR.
    pub const NO_ERROR: u32 = 0;
    /// PROTOCOL_ERROR.
    pub const PROTOCOL_ERROR: u32 = 1;
    /// INTERNAL_ERROR.
    pub const INTERNAL_ERROR: u32 = 2;
    /// FLOW_CONTROL_ERROR.
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    /// REFUSED_STREAM.
    pub const REFUSED_STREAM: u32 = 7;
    /// CANCEL.
    pub const CANCEL: u32 = 8;
    /// ENHANCE_YOUR_CALM.
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Frame type, see [`kind`].
    pub kind: u8,
    /// Flags, see [`flag`].
    pub flags: u8,
    /// Stream id; 0 is the connection.
    pub stream: u32,
    /// Payload, padding and all.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A frame of any type.
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, flags, stream, payload: payload.into() }
    }

    /// DATA without padding.
    pub fn data(stream: u32, bytes: impl Into<Vec<u8>>, end: bool) -> Self {
        Self::new(kind::DATA, if end { flag::END_STREAM } else { 0 }, stream, bytes)
    }

    /// DATA with `padding` zero bytes behind it.
    pub fn padded_data(stream: u32, bytes: &[u8], padding: u8, end: bool) -> Self {
        let mut payload = Vec::with_capacity(bytes.len() + usize::from(padding) + 1);
        payload.push(padding);
        payload.extend_from_slice(bytes);
        payload.resize(payload.len() + usize::from(padding), 0);
        Self::new(kind::DATA, flag::PADDED | if end { flag::END_STREAM } else { 0 }, stream, payload)
    }

    /// A header block in one HEADERS frame, or in HEADERS and CONTINUATIONs of at most `fragment` bytes each.
    pub fn headers(stream: u32, block: &[u8], end: bool, fragment: Option<usize>) -> Vec<Self> {
        let fragment = fragment.unwrap_or(16_384).max(1);
        let mut frames = Vec::new();
        let mut rest = block;
        loop {
            let (part, after) = rest.split_at(rest.len().min(fragment));
            rest = after;
            let mut flags = if rest.is_empty() { flag::END_HEADERS } else { 0 };
            let kind = if frames.is_empty() {
                flags |= if end { flag::END_STREAM } else { 0 };
                kind::HEADERS
            } else {
                kind::CONTINUATION
            };
            frames.push(Self::new(kind, flags, stream, part));
            if rest.is_empty() {
                return frames;
            }
        }
    }

    /// SETTINGS with these values.
    pub fn settings(values: &[(u16, u32)]) -> Self {
        let mut payload = Vec::with_capacity(values.len() * 6);
        for (identifier, value) in values {
            payload.extend_from_slice(&identifier.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        Self::new(kind::SETTINGS, 0, 0, payload)
    }

    /// WINDOW_UPDATE.
    pub fn window_update(stream: u32, increment: u32) -> Self {
        Self::new(kind::WINDOW_UPDATE, 0, stream, increment.to_be_bytes())
    }

    /// RST_STREAM.
    pub fn reset(stream: u32, code: u32) -> Self {
        Self::new(kind::RST_STREAM, 0, stream, code.to_be_bytes())
    }

    /// PING.
    pub fn ping(payload: [u8; 8]) -> Self {
        Self::new(kind::PING, 0, 0, payload)
    }

    /// GOAWAY.
    pub fn goaway(last_stream: u32, code: u32, debug: &[u8]) -> Self {
        let mut payload = last_stream.to_be_bytes().to_vec();
        payload.extend_from_slice(&code.to_be_bytes());
        payload.extend_from_slice(debug);
        Self::new(kind::GOAWAY, 0, 0, payload)
    }

    /// Appends the frame's bytes to `out`. A payload too long for the length field is cut off in that field only.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_be_bytes()[1..]);
        out.push(self.kind);
        out.push(self.flags);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.payload);
    }

    /// The frame's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.payload.len() + 9);
        self.write_to(&mut out);
        out
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding and priority fields; `None` when the padding is longer than the frame.
    pub fn content(&self) -> Option<&[u8]> {
        let mut content = self.payload.as_slice();
        let mut padding = 0;
        if self.has(flag::PADDED) && matches!(self.kind, kind::DATA | kind::HEADERS) {
            padding = usize::from(*content.first()?);
            content = content.get(1..)?;
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            content = content.get(5..)?;
        }
        content.get(..content.len().checked_sub(padding)?)
    }

    /// The first four bytes of the payload as a number: an error code, an increment, a last stream id.
    pub fn number(&self) -> u32 {
        self.payload.first_chunk::<4>().map_or(0, |bytes| {
            u32::from_be_bytes(*bytes) & if self.kind == kind::RST_STREAM { u32::MAX } else { 0x7fff_ffff }
        })
    }
}

/// Reads one frame; `Ok(None)` at a clean end of the stream.
pub fn read_frame(input: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0_u8; 9];
    let mut have = 0;
    while have < head.len() {
        match input.read(&mut head[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    input.read_exact(&mut payload)?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    Ok(Some(Frame { kind: head[3], flags: head[4], stream, payload }))
}

/// One gRPC message with its five-byte prefix, not compressed.
pub fn grpc_message(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 5);
    out.push(0);
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Splits a gRPC body into its messages: compressed flag and payload of each; `None` if it ends within one.
pub fn split_messages(mut body: &[u8]) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut messages = Vec::new();
    while let Some((&compressed, rest)) = body.split_first() {
        let length = u32::from_be_bytes(*rest.first_chunk::<4>()?) as usize;
        messages.push((compressed, rest.get(4..4 + length)?.to_vec()));
        body = &rest[4 + length..];
    }
    Some(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let frame = Frame::padded_data(5, b"abc", 2, true);
        let bytes = frame.bytes();
        assert_eq!(bytes, [0, 0, 6, 0, 9, 0, 0, 0, 5, 2, b'a', b'b', b'c', 0, 0]);
        assert_eq!(read_frame(&mut bytes.as_slice()).unwrap(), Some(frame.clone()));
        assert_eq!(frame.content(), Some(&b"abc"[..]));
        assert_eq!(read_frame(&mut io::empty()).unwrap(), None);
        assert!(read_frame(&mut &bytes[..14]).is_err());
    }

    #[test]
    fn padding_longer_than_the_frame_has_no_content() {
        assert_eq!(Frame::new(kind::DATA, flag::PADDED, 1, [3, 0, 0]).content(), None);
        assert_eq!(Frame::new(kind::DATA, flag::PADDED, 1, [2, 0, 0]).content(), Some(&[][..]));
        assert_eq!(Frame::new(kind::DATA, flag::PADDED, 1, []).content(), None);
    }

    #[test]
    fn a_header_block_is_cut_into_continuations() {
        let frames = Frame::headers(7, b"abcde", true, Some(2));
        let shape: Vec<_> =
            frames.iter().map(|frame| (frame.kind, frame.flags, frame.payload.as_slice())).collect();
        assert_eq!(shape, [(1, 1, &b"ab"[..]), (9, 0, &b"cd"[..]), (9, 4, &b"e"[..])]);
        assert_eq!(
            Frame::headers(7, b"", false, None),
            [Frame::new(kind::HEADERS, flag::END_HEADERS, 7, [])]
        );
    }

    #[test]
    fn messages_are_split_and_a_cut_one_is_seen() {
        let mut body = grpc_message(b"one");
        body.extend(grpc_message(b""));
        assert_eq!(split_messages(&body), Some(vec![(0, b"one".to_vec()), (0, Vec::new())]));
        assert_eq!(split_messages(&body[..4]), None);
        assert_eq!(split_messages(&body[..7]), None);
    }
}
