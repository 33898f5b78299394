//! An HTTP/2 server for the time when there is no runtime: it answers every call with one status, then asks the client to
//! connect again.

use crate::call::Refusal;
use crate::frame::{self, FrameHeader, HEADER_LEN, PREFACE, error_code, flag, kind};
use crate::hpack;

/// Header blocks are not read, only their ends are found; DATA is dropped.
#[derive(Debug)]
pub struct StandIn {
    refusal: Refusal,
    preface: usize,
    header: [u8; HEADER_LEN],
    have: usize,
    /// Frame whose payload is being skipped or collected, and what is left of it.
    current: Option<(FrameHeader, usize)>,
    collected: Vec<u8>,
    last_stream: u32,
    said_goaway: bool,
    broken: bool,
}

impl StandIn {
    /// A stand-in that answers with `refusal`.
    pub fn new(refusal: Refusal) -> Self {
        Self {
            refusal,
            preface: 0,
            header: [0; HEADER_LEN],
            have: 0,
            current: None,
            collected: Vec::new(),
            last_stream: 0,
            said_goaway: false,
            broken: false,
        }
    }

    /// The server's first octets; to be sent before anything else.
    pub fn greeting(&self, out: &mut Vec<u8>) {
        frame::push_frame(out, kind::SETTINGS, 0, 0, &[]);
    }

    /// The client speaks no HTTP/2: the caller closes.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Calls have been answered and the client was asked to go: the caller closes when the client does not.
    pub fn is_done(&self) -> bool {
        self.said_goaway
    }

    /// Takes octets from the client and appends the answer to `out`.
    pub fn client_bytes(&mut self, input: &[u8], out: &mut Vec<u8>) {
        let mut rest = input;
        let answered = self.last_stream;
        while !rest.is_empty() && !self.broken {
            if self.preface < PREFACE.len() {
                let take = rest.len().min(PREFACE.len() - self.preface);
                self.broken = rest[..take] != PREFACE[self.preface..self.preface + take];
                self.preface += take;
                rest = &rest[take..];
                continue;
            }
            let Some((frame, left)) = self.current else {
                let take = rest.len().min(HEADER_LEN - self.have);
                self.header[self.have..self.have + take].copy_from_slice(&rest[..take]);
                self.have += take;
                rest = &rest[take..];
                if self.have == HEADER_LEN {
                    self.have = 0;
                    let frame = FrameHeader::parse(&self.header);
                    self.collected.clear();
                    self.current = Some((frame, frame.length));
                    self.end_if_whole(out);
                }
                continue;
            };
            let take = rest.len().min(left);
            if frame.kind == kind::PING && frame.length == 8 {
                self.collected.extend_from_slice(&rest[..take]);
            }
            rest = &rest[take..];
            self.current = Some((frame, left - take));
            self.end_if_whole(out);
        }
        if self.last_stream > answered && !self.said_goaway {
            self.said_goaway = true;
            frame::push_goaway(out, self.last_stream, error_code::NO_ERROR);
        }
    }

    fn end_if_whole(&mut self, out: &mut Vec<u8>) {
        let Some((frame, 0)) = self.current else { return };
        self.current = None;
        match frame.kind {
            kind::SETTINGS if !frame.has(flag::ACK) => {
                frame::push_frame(out, kind::SETTINGS, flag::ACK, 0, &[])
            }
            kind::PING if !frame.has(flag::ACK) && self.collected.len() == 8 => {
                frame::push_frame(out, kind::PING, flag::ACK, 0, &self.collected);
            }
            // Behind GOAWAY the client sends a call again elsewhere.
            kind::HEADERS | kind::CONTINUATION
                if frame.has(flag::END_HEADERS) && frame.stream > self.last_stream && !self.said_goaway =>
            {
                self.last_stream = frame.stream;
                let block = hpack::trailers_only(self.refusal.code, &self.refusal.message);
                frame::push_header_block(out, frame.stream, &block, true);
                frame::push_reset(out, frame.stream, error_code::NO_ERROR);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(mut octets: &[u8]) -> Vec<(u8, u8, u32)> {
        let mut seen = Vec::new();
        while let Some(header) = octets.first_chunk::<HEADER_LEN>() {
            let header = FrameHeader::parse(header);
            seen.push((header.kind, header.flags, header.stream));
            octets = &octets[HEADER_LEN + header.length..];
        }
        seen
    }

    #[test]
    fn answers_every_call_of_a_batch_and_says_goaway_once() {
        let mut input = PREFACE.to_vec();
        frame::push_frame(&mut input, kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 1, 0]);
        frame::push_header_block(&mut input, 1, &[0x83], false);
        frame::push_frame(&mut input, kind::DATA, flag::END_STREAM, 1, b"xxxxx");
        frame::push_header_block(&mut input, 3, &[0x83], true);
        frame::push_frame(&mut input, kind::PING, 0, 0, b"12345678");
        for cut in 0..input.len() {
            let mut stand_in = StandIn::new(Refusal { code: 14, message: "gone".into() });
            let mut out = Vec::new();
            stand_in.client_bytes(&input[..cut], &mut out);
            stand_in.client_bytes(&input[cut..], &mut out);
            let mut seen = frames(&out);
            assert!(stand_in.is_done() && !stand_in.is_broken());
            assert_eq!(seen.iter().filter(|frame| frame.0 == kind::GOAWAY).count(), 1);
            seen.retain(|frame| frame.0 != kind::GOAWAY && frame.2 != 3);
            assert_eq!(
                seen,
                [
                    (kind::SETTINGS, flag::ACK, 0),
                    (kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, 1),
                    (kind::RST_STREAM, 0, 1),
                    (kind::PING, flag::ACK, 0)
                ]
            );
        }
        let mut stand_in = StandIn::new(Refusal { code: 14, message: String::new() });
        stand_in.client_bytes(b"GET / HTTP/1.1\r\n", &mut Vec::new());
        assert!(stand_in.is_broken());
    }
}
