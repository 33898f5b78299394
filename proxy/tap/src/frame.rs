//! HTTP/2 frame headers (RFC 9113, section 4.1): reading, writing, and the constants the relay needs.

/// Octets of a frame header.
pub const HEADER_LEN: usize = 9;
/// What a client sends before its first frame (RFC 9113, section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The payload size every endpoint must accept (RFC 9113, section 4.2): the relay's own frames never exceed it.
pub const MIN_MAX_FRAME_SIZE: usize = 16_384;
/// Flow-control window of a new connection and of a new stream before any SETTINGS (RFC 9113, section 6.9.2).
pub const DEFAULT_WINDOW: i64 = 65_535;

/// Frame types (RFC 9113, section 6).
pub mod kind {
    /// DATA.
    pub const DATA: u8 = 0;
    /// HEADERS.
    pub const HEADERS: u8 = 1;
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

/// Frame flags (RFC 9113, section 6).
pub mod flag {
    /// On DATA and HEADERS: the sender's half of the stream ends here.
    pub const END_STREAM: u8 = 0x1;
    /// On SETTINGS and PING.
    pub const ACK: u8 = 0x1;
    /// On HEADERS and CONTINUATION: the header block ends here.
    pub const END_HEADERS: u8 = 0x4;
    /// On DATA and HEADERS.
    pub const PADDED: u8 = 0x8;
    /// On HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Error codes (RFC 9113, section 7).
pub mod error_code {
    /// No error.
    pub const NO_ERROR: u32 = 0;
    /// The stream is no longer needed.
    pub const CANCEL: u32 = 8;
    /// The header compression context cannot be kept.
    pub const COMPRESSION_ERROR: u32 = 9;
}

/// Identifiers of SETTINGS parameters (RFC 9113, section 6.5.2).
pub mod setting {
    /// Limit of the peer encoder's dynamic table, in octets.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Window of new streams, in octets.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// One frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Payload octets that follow, at most 2^24 - 1.
    pub length: usize,
    /// Frame type, see [`kind`].
    pub kind: u8,
    /// Flags, see [`flag`].
    pub flags: u8,
    /// Stream identifier without the reserved bit; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads a header; the reserved bit of the stream identifier is ignored, as RFC 9113 asks.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        Self {
            length: usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]),
            kind: bytes[3],
            flags: bytes[4],
            stream: u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) & 0x7fff_ffff,
        }
    }

    /// The nine octets of the header.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let length = u32::try_from(self.length).unwrap_or(0xff_ffff).min(0xff_ffff).to_be_bytes();
        let stream = self.stream.to_be_bytes();
        [length[1], length[2], length[3], self.kind, self.flags, stream[0], stream[1], stream[2], stream[3]]
    }

    /// Whether `flag` is set.
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a whole frame to `out`. The payload must be at most [`MIN_MAX_FRAME_SIZE`] octets.
pub fn push_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    debug_assert!(payload.len() <= MIN_MAX_FRAME_SIZE);
    out.extend_from_slice(&FrameHeader { length: payload.len(), kind, flags, stream }.to_bytes());
    out.extend_from_slice(payload);
}

/// Appends a WINDOW_UPDATE of `increment` octets (1 to 2^31 - 1).
pub fn push_window_update(out: &mut Vec<u8>, stream: u32, increment: i64) {
    let increment = u32::try_from(increment.clamp(1, 0x7fff_ffff)).unwrap_or(1);
    push_frame(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends a RST_STREAM.
pub fn push_reset(out: &mut Vec<u8>, stream: u32, code: u32) {
    push_frame(out, kind::RST_STREAM, 0, stream, &code.to_be_bytes());
}

/// Appends a GOAWAY.
pub fn push_goaway(out: &mut Vec<u8>, last_stream: u32, code: u32) {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last_stream.to_be_bytes());
    payload[4..].copy_from_slice(&code.to_be_bytes());
    push_frame(out, kind::GOAWAY, 0, 0, &payload);
}

/// Appends a header block as HEADERS and, where it is long, CONTINUATION frames.
pub fn push_header_block(out: &mut Vec<u8>, stream: u32, block: &[u8], end_stream: bool) {
    let mut rest = block;
    let mut kind = kind::HEADERS;
    let mut flags = if end_stream { flag::END_STREAM } else { 0 };
    loop {
        let (now, later) = rest.split_at(rest.len().min(MIN_MAX_FRAME_SIZE));
        if later.is_empty() {
            push_frame(out, kind, flags | flag::END_HEADERS, stream, now);
            return;
        }
        push_frame(out, kind, flags, stream, now);
        (rest, kind, flags) = (later, kind::CONTINUATION, 0);
    }
}

/// Reads the parameters of a SETTINGS payload; an incomplete last entry is left out.
pub fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> + '_ {
    payload.chunks_exact(6).map(|entry| {
        (
            u16::from_be_bytes([entry[0], entry[1]]),
            u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip_ignores_the_reserved_bit() {
        let bytes = [0x01, 0x02, 0x03, 0x00, 0x09, 0x80, 0x00, 0x00, 0x05];
        let header = FrameHeader::parse(&bytes);
        assert_eq!(header, FrameHeader { length: 0x010203, kind: 0, flags: 9, stream: 5 });
        assert!(header.has(flag::END_STREAM) && header.has(flag::PADDED) && !header.has(flag::END_HEADERS));
        assert_eq!(header.to_bytes()[5], 0);
    }

    #[test]
    fn long_header_blocks_are_split_at_16384() {
        let mut out = Vec::new();
        push_header_block(&mut out, 3, &vec![0x88; MIN_MAX_FRAME_SIZE + 1], true);
        let first = FrameHeader::parse(out[..9].try_into().unwrap());
        let second = FrameHeader::parse(out[9 + MIN_MAX_FRAME_SIZE..][..9].try_into().unwrap());
        assert_eq!(
            (first.kind, first.flags, first.length),
            (kind::HEADERS, flag::END_STREAM, MIN_MAX_FRAME_SIZE)
        );
        assert_eq!((second.kind, second.flags, second.length), (kind::CONTINUATION, flag::END_HEADERS, 1));
        assert_eq!(out.len(), 9 + MIN_MAX_FRAME_SIZE + 9 + 1);
    }

    #[test]
    fn settings_skip_an_incomplete_entry() {
        let payload = [0, 4, 0, 0, 0, 50, 0, 1, 0, 0, 16, 0, 0, 3];
        assert_eq!(settings(&payload).collect::<Vec<_>>(), [(4, 50), (1, 4096)]);
    }
}
