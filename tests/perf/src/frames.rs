//! The few bytes of HTTP/2 that load and backend need, made for speed: no allocation per frame.

/// Length of a frame's head.
pub(crate) const HEAD: usize = 9;
/// Largest payload anybody accepts without having said so.
pub(crate) const MAX_PAYLOAD: usize = 16_384;

/// A frame's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl Head {
    /// Reads a head; `None` when there are too few bytes.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEAD>()?;
        Some(Self {
            length: usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]),
            kind: bytes[3],
            flags: bytes[4],
            stream: u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) & 0x7fff_ffff,
        })
    }
}

/// Appends a frame.
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Bytes from a socket, taken off frame by frame.
#[derive(Debug)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; 256 << 10], start: 0, end: 0 }
    }

    /// Reads once; the number of bytes.
    pub(crate) fn fill(&mut self, source: &mut impl std::io::Read) -> std::io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < MAX_PAYLOAD + HEAD {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let count = source.read(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// Takes exactly `count` bytes off, if they are there.
    pub(crate) fn take(&mut self, count: usize) -> Option<&[u8]> {
        let taken = self.buffer[self.start..self.end].get(..count)?;
        self.start += count;
        Some(taken)
    }

    /// Takes the next whole frame off.
    pub(crate) fn next(&mut self) -> Option<(Head, &[u8])> {
        let head = Head::read(&self.buffer[self.start..self.end])?;
        let bytes = self.buffer[self.start..self.end].get(HEAD..HEAD + head.length)?;
        self.start += HEAD + head.length;
        Some((head, bytes))
    }
}

/// A string as HPACK writes it, without Huffman coding.
///
/// # Panics
/// When it is longer than 126 bytes: none here is.
pub(crate) fn text(out: &mut Vec<u8>, value: &str) {
    assert!(value.len() < 127, "{value}");
    out.push(u8::try_from(value.len()).unwrap_or(0));
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_off_whole() {
        let mut bytes = Vec::new();
        put(&mut bytes, 0, 1, 7, b"abc");
        put(&mut bytes, 6, 0, 0, b"12345678");
        let mut input = Input::new();
        input.fill(&mut &bytes[..11]).unwrap();
        assert_eq!(input.next(), None);
        input.fill(&mut &bytes[11..]).unwrap();
        let (head, payload) = input.next().unwrap();
        assert_eq!((head, payload), (Head { length: 3, kind: 0, flags: 1, stream: 7 }, &b"abc"[..]));
        assert_eq!(input.next().unwrap().1, b"12345678");
        assert_eq!(input.next(), None);
    }
}
