//! The path of a connection's first call, before the connection has a server: to choose one by it.
//!
//! Clients of gRPC wait for the server's SETTINGS before they send a call. So the client is given empty SETTINGS first
//! ([`GREETING`]); the chosen server's own SETTINGS follow later as an update, and the client's acknowledgement of the
//! greeting must be kept from it ([`crate::Options::greeted`]).

use crate::frame::{FrameHeader, HEADER_LEN, PREFACE, flag, kind};
use crate::hpack;

/// An empty SETTINGS frame.
pub const GREETING: [u8; HEADER_LEN] = [0, 0, 0, kind::SETTINGS, 0, 0, 0, 0, 0];

/// What a client's first octets say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// Not enough octets yet.
    More,
    /// The first call's path.
    Path(Vec<u8>),
    /// They are no HTTP/2, or cannot be read.
    Unreadable,
}

/// Looks at all octets a client has sent so far.
pub fn first_path(octets: &[u8]) -> Peek {
    let start = octets.len().min(PREFACE.len());
    if octets[..start] != PREFACE[..start] {
        return Peek::Unreadable;
    }
    let mut rest = &octets[start..];
    let mut block = Vec::new();
    let mut in_block = false;
    while let Some(header) = rest.first_chunk::<HEADER_LEN>() {
        let frame = FrameHeader::parse(header);
        let Some(payload) = rest[HEADER_LEN..].get(..frame.length) else { return Peek::More };
        rest = &rest[HEADER_LEN + frame.length..];
        match frame.kind {
            kind::HEADERS => {
                let Some(fragment) = crate::tap::headers_fragment(frame, payload) else {
                    return Peek::Unreadable;
                };
                block.extend_from_slice(fragment);
                in_block = true;
            }
            kind::CONTINUATION if in_block => block.extend_from_slice(payload),
            _ if in_block => return Peek::Unreadable,
            _ => continue,
        }
        if frame.has(flag::END_HEADERS) {
            let mut path = None;
            let outcome = hpack::Decoder::default().decode(&block, |field| {
                if field.name == b":path" {
                    path = Some(field.value.to_vec());
                }
            });
            return match (outcome, path) {
                (Ok(_), Some(path)) => Peek::Path(path),
                _ => Peek::Unreadable,
            };
        }
    }
    Peek::More
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::push_frame;

    #[test]
    fn any_cut_is_more_until_the_block_is_whole() {
        let mut octets = PREFACE.to_vec();
        push_frame(&mut octets, kind::SETTINGS, 0, 0, &[]);
        push_frame(&mut octets, kind::WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]);
        push_frame(&mut octets, kind::HEADERS, flag::PADDED, 1, &[1, 0x83, 0x44, 0]);
        push_frame(&mut octets, kind::CONTINUATION, flag::END_HEADERS, 1, b"\x04/a/b");
        for cut in 0..octets.len() {
            assert_eq!(first_path(&octets[..cut]), Peek::More, "cut at {cut}");
        }
        assert_eq!(first_path(&octets), Peek::Path(b"/a/b".to_vec()));
        assert_eq!(first_path(b"GET / HTTP/1.1"), Peek::Unreadable);
        let mut pathless = PREFACE.to_vec();
        push_frame(&mut pathless, kind::HEADERS, flag::END_HEADERS, 1, &[0x83]);
        assert_eq!(first_path(&pathless), Peek::Unreadable);
    }
}
