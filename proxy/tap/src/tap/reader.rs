//! Cutting one direction's octets into frames without collecting them.

use std::ops::Range;

use crate::frame::{FrameHeader, HEADER_LEN, MIN_MAX_FRAME_SIZE, flag, kind};

/// What happens with the payload of the frame being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    /// It is passed on as it comes.
    Pass,
    /// It is collected; the frame is judged when it is whole.
    Collect,
    /// It is passed on, and copied as part of a header block.
    PassBlock,
    /// It is collected as part of a header block that is judged when it is whole.
    CollectBlock,
    /// DATA: see [`Data`].
    Data(Data),
    /// It is dropped.
    Drop,
}

/// What happens with the payload of a DATA frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// Passed on and copied.
    Copy,
    /// Held until the verdict.
    Hold,
    /// Sent on as the runtime's windows allow.
    Queue,
}

/// Where the header of a frame is.
#[derive(Clone, Debug)]
pub(super) enum HeaderAt {
    /// In the input.
    Input(Range<usize>),
    /// It came in pieces.
    Own([u8; HEADER_LEN]),
}

/// Position in one direction's stream of frames.
#[derive(Debug)]
pub(super) struct Reader {
    partial: [u8; HEADER_LEN],
    have: usize,
    /// Frame whose payload is being read.
    pub frame: FrameHeader,
    /// Octets of its payload still to come.
    pub left: usize,
    /// Whether a payload is being read (also an empty one, for a moment).
    pub in_payload: bool,
    pub payload: Payload,
    /// Collected payload, or the whole frames of a collected header block.
    pub collected: Vec<u8>,
    /// Pad octets at the end of the DATA frame; `None` until its first octet is read.
    padding: Option<usize>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            partial: [0; HEADER_LEN],
            have: 0,
            frame: FrameHeader { length: 0, kind: 0, flags: 0, stream: 0 },
            left: 0,
            in_payload: false,
            payload: Payload::Pass,
            collected: Vec::new(),
            padding: None,
        }
    }

    /// Reads the next frame header from `input[*at..]`; `None` when it is not whole yet.
    pub(super) fn header(&mut self, input: &[u8], at: &mut usize) -> Option<HeaderAt> {
        let rest = &input[*at..];
        let (bytes, source) = if self.have == 0 && rest.len() >= HEADER_LEN {
            let source = HeaderAt::Input(*at..*at + HEADER_LEN);
            *at += HEADER_LEN;
            (*rest.first_chunk::<HEADER_LEN>()?, source)
        } else {
            let take = rest.len().min(HEADER_LEN - self.have);
            self.partial[self.have..self.have + take].copy_from_slice(&rest[..take]);
            self.have += take;
            *at += take;
            if self.have < HEADER_LEN {
                return None;
            }
            (self.partial, HeaderAt::Own(self.partial))
        };
        self.have = 0;
        self.frame = FrameHeader::parse(&bytes);
        self.left = self.frame.length;
        self.in_payload = true;
        self.padding = None;
        Some(source)
    }

    /// The part of `chunk`, the next octets of a DATA payload, that is data and not padding. Call before `left` is
    /// lowered.
    pub(super) fn data(&mut self, chunk: Range<usize>, input: &[u8]) -> Range<usize> {
        let mut chunk = chunk;
        let mut left = self.left;
        let padding = match self.padding {
            Some(padding) => padding,
            None if self.frame.has(flag::PADDED) => {
                let padding = input.get(chunk.start).map_or(0, |octet| usize::from(*octet));
                chunk.start = (chunk.start + 1).min(chunk.end);
                left = left.saturating_sub(1);
                self.padding = Some(padding);
                padding
            }
            None => {
                self.padding = Some(0);
                0
            }
        };
        let data_left = left.saturating_sub(padding);
        chunk.start..chunk.end.min(chunk.start + data_left)
    }
}

/// The header block being read, if one is.
#[derive(Debug, Default)]
pub(super) struct Block {
    head: Option<FrameHeader>,
    withheld: bool,
    fragments: Vec<u8>,
}

/// A whole header block.
#[derive(Debug)]
pub(super) struct WholeBlock {
    /// Its HEADERS frame.
    pub frame: FrameHeader,
    /// Its fragments, joined.
    pub fragments: Vec<u8>,
    /// Its frames, where they have not been passed on.
    pub withheld: Option<Vec<u8>>,
}

/// A header block cannot be followed.
#[derive(Debug)]
pub(super) struct BlockLost;

impl Block {
    /// A HEADERS frame begins; its frames pass or are withheld.
    pub(super) fn begin(&mut self, frame: FrameHeader, payload: Payload) {
        self.head = Some(frame);
        self.withheld = payload == Payload::CollectBlock;
        self.fragments.clear();
    }

    /// Whether frames of a block are still to come.
    pub(super) fn is_open(&self) -> bool {
        self.head.is_some()
    }

    /// Whether a block is open that is being passed on: nothing may be put in.
    pub(super) fn is_passing(&self) -> bool {
        self.head.is_some() && !self.withheld
    }

    /// What happens with a CONTINUATION frame; `None` where it continues nothing.
    pub(super) fn continued(&self) -> Option<Payload> {
        self.head.map(|_| if self.withheld { Payload::CollectBlock } else { Payload::PassBlock })
    }

    /// Another frame came inside the block: there is no block any more. Says whether frames were withheld.
    pub(super) fn interrupt(&mut self) -> bool {
        self.head = None;
        std::mem::take(&mut self.withheld)
    }

    /// Octets kept of the block, the frame being read included.
    pub(super) fn kept(&self, reader: &Reader) -> usize {
        self.fragments.len() + reader.collected.len()
    }

    /// A HEADERS or CONTINUATION frame is whole, its payload (of a withheld block: all frames so far) in the reader. Gives
    /// the block when it ends, and whether it can be followed: fragments beyond `limit` octets are not kept.
    pub(super) fn part(
        &mut self,
        reader: &mut Reader,
        limit: usize,
    ) -> (Option<WholeBlock>, Result<(), BlockLost>) {
        let frame = reader.frame;
        let collected = std::mem::take(&mut reader.collected);
        let start = if self.withheld { collected.len().saturating_sub(frame.length) } else { 0 };
        let payload = &collected[start..];
        let fragment =
            if frame.kind == kind::HEADERS { headers_fragment(frame, payload) } else { Some(payload) };
        let followed = match fragment {
            Some(fragment) if self.fragments.len() + fragment.len() <= limit => {
                self.fragments.extend_from_slice(fragment);
                Ok(())
            }
            _ => Err(BlockLost),
        };
        if !frame.has(flag::END_HEADERS) {
            if self.withheld {
                reader.collected = collected;
            }
            return (None, followed);
        }
        let withheld = self.withheld.then_some(collected);
        let head = self.head.take().unwrap_or(frame);
        let fragments = std::mem::take(&mut self.fragments);
        (Some(WholeBlock { frame: head, fragments, withheld }), followed)
    }

    /// Takes the memory of a block back for the next one.
    pub(super) fn reuse(&mut self, mut fragments: Vec<u8>) {
        fragments.clear();
        fragments.shrink_to(MIN_MAX_FRAME_SIZE);
        self.fragments = fragments;
    }
}

/// The header block fragment in a HEADERS payload: without pad length, priority and padding; `None` if malformed.
pub(crate) fn headers_fragment(frame: FrameHeader, payload: &[u8]) -> Option<&[u8]> {
    let mut rest = payload;
    let mut padding = 0;
    if frame.has(flag::PADDED) {
        let (&pad, behind) = rest.split_first()?;
        (padding, rest) = (usize::from(pad), behind);
    }
    if frame.has(flag::PRIORITY) {
        rest = rest.get(5..)?;
    }
    rest.get(..rest.len().checked_sub(padding)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_lose_padding_and_priority() {
        let frame = |flags| FrameHeader { length: 0, kind: 1, flags, stream: 1 };
        assert_eq!(headers_fragment(frame(0), b"abc"), Some(&b"abc"[..]));
        assert_eq!(headers_fragment(frame(flag::PADDED), b"\x02abc\0\0"), Some(&b"abc"[..]));
        assert_eq!(
            headers_fragment(frame(flag::PADDED | flag::PRIORITY), b"\x01.....abc\0"),
            Some(&b"abc"[..])
        );
        assert_eq!(headers_fragment(frame(flag::PADDED), b"\x03ab"), None);
        assert_eq!(headers_fragment(frame(flag::PADDED), b""), None);
        assert_eq!(headers_fragment(frame(flag::PRIORITY), b"...."), None);
    }

    #[test]
    fn padded_data_in_any_pieces() {
        let payload = b"\x03abcde\0\0\0";
        for cut in 0..=payload.len() {
            let mut reader = Reader::new();
            let header = FrameHeader { length: payload.len(), kind: 0, flags: flag::PADDED, stream: 1 };
            assert!(reader.header(&header.to_bytes(), &mut 0).is_some());
            let mut seen = Vec::new();
            for part in [0..cut, cut..payload.len()] {
                if !part.is_empty() {
                    let length = part.len();
                    seen.extend_from_slice(&payload[reader.data(part, payload)]);
                    reader.left -= length;
                }
            }
            assert_eq!(seen.as_slice(), b"abcde", "cut at {cut}");
        }
    }
}
