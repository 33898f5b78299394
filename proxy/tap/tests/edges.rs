//! Single situations that the random model does not reach.

use koord_tap::frame::{FrameHeader, HEADER_LEN, PREFACE, flag, kind, push_frame, push_header_block};
use koord_tap::hpack::{Decoder, Field, encode_literal};
use koord_tap::*;

#[derive(Default)]
struct Decider {
    mode: Option<Mode>,
    closed: Vec<(u32, Closed)>,
    waiting: Vec<u32>,
}

impl Handler for Decider {
    type Call = ();

    fn open(&mut self, _stream: u32, _head: Head) -> (Mode, ()) {
        (self.mode.clone().unwrap_or(Mode::Pass), ())
    }

    fn request(&mut self, stream: u32, _call: &mut (), _request: Request<'_>) -> Decision {
        self.waiting.push(stream);
        Decision::Later
    }

    fn bypassed(&mut self, _stream: u32, _call: &mut (), _why: Bypass) {}

    fn response(&mut self, _stream: u32, _call: &mut (), _end: ResponseEnd<'_>) -> Trailers {
        Trailers::Pass
    }

    fn closed(&mut self, stream: u32, _call: (), how: Closed) {
        self.closed.push((stream, how));
    }
}

struct Bed {
    tap: Tap<()>,
    decider: Decider,
    out: Outputs,
    up: Vec<u8>,
    down: Vec<u8>,
}

impl Bed {
    fn new(mode: Mode, options: Options) -> Self {
        let decider = Decider { mode: Some(mode), ..Decider::default() };
        Self { tap: Tap::new(options), decider, out: Outputs::default(), up: Vec::new(), down: Vec::new() }
    }

    fn client(&mut self, octets: &[u8]) {
        self.tap.client_bytes(octets, &mut self.out, &mut self.decider);
        self.take(octets, &[]);
    }

    fn backend(&mut self, octets: &[u8]) {
        self.tap.backend_bytes(octets, &mut self.out, &mut self.decider);
        self.take(&[], octets);
    }

    fn refuse(&mut self, stream: u32) {
        let verdict = Verdict::Refuse(refusal());
        self.tap.resolve(stream, verdict, &mut self.out, &mut self.decider);
        self.take(&[], &[]);
    }

    fn take(&mut self, client: &[u8], backend: &[u8]) {
        self.up.extend(self.out.to_backend.slices(client).flatten());
        self.down.extend(self.out.to_client.slices(backend).flatten());
        self.out.to_backend.clear();
        self.out.to_client.clear();
    }

    /// Opens stream 1 with a whole request, past the greetings.
    fn opened(mode: Mode, client_settings: &[u8]) -> Self {
        let mut bed = Self::new(mode, Options::default());
        let mut octets = PREFACE.to_vec();
        push_frame(&mut octets, kind::SETTINGS, 0, 0, client_settings);
        push_header_block(&mut octets, 1, &path("/s/m"), false);
        push_frame(&mut octets, kind::DATA, flag::END_STREAM, 1, &[0, 0, 0, 0, 1, 7]);
        bed.client(&octets);
        let mut octets = Vec::new();
        push_frame(&mut octets, kind::SETTINGS, 0, 0, &[]);
        push_frame(&mut octets, kind::SETTINGS, flag::ACK, 0, &[]);
        bed.backend(&octets);
        bed.up.clear();
        bed.down.clear();
        bed
    }

    /// Begins a drain; the client's answer to the PING behind GOAWAY.
    fn drain_answer(&mut self) -> Vec<u8> {
        self.tap.begin_drain(&mut self.out);
        self.take(&[], &[]);
        let mut octets = Vec::new();
        push_frame(&mut octets, kind::PING, flag::ACK, 0, frames(&self.down)[1].1);
        octets
    }

    fn end_drain(&mut self) {
        self.down.clear();
        self.tap.end_drain(&mut self.out);
        self.take(&[], &[]);
    }
}

fn refusal() -> Refusal {
    Refusal { code: 14, message: "gone".to_owned() }
}

fn path(path: &str) -> Vec<u8> {
    let mut block = vec![0x83];
    encode_literal(&mut block, Field { name: b":path", value: path.as_bytes(), sensitive: false });
    block
}

fn frames(mut octets: &[u8]) -> Vec<(FrameHeader, &[u8])> {
    let mut seen = Vec::new();
    while let Some(header) = octets.first_chunk::<HEADER_LEN>() {
        let header = FrameHeader::parse(header);
        seen.push((header, &octets[HEADER_LEN..HEADER_LEN + header.length]));
        octets = &octets[HEADER_LEN + header.length..];
    }
    seen
}

fn fields(decoder: &mut Decoder, block: &[u8]) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    decoder.decode(block, |field| seen.push((text(field.name), text(field.value)))).expect("a good block");
    seen
}

#[test]
fn a_runtime_lost_before_its_first_octet_is_greeted_for() {
    let mut bed = Bed::new(Mode::Pass, Options::default());
    let mut octets = PREFACE.to_vec();
    push_header_block(&mut octets, 1, &path("/s/m"), true);
    bed.client(&octets);
    assert!(bed.tap.end_all(&refusal(), &mut bed.out, &mut bed.decider));
    bed.take(&[], &[]);
    let seen = frames(&bed.down);
    assert_eq!(
        seen.iter().map(|(frame, _)| frame.kind).collect::<Vec<_>>(),
        [kind::SETTINGS, kind::HEADERS, kind::GOAWAY]
    );
    assert_eq!(fields(&mut Decoder::default(), seen[1].1)[2], ("grpc-status".to_owned(), "14".to_owned()));
    assert_eq!(bed.decider.closed, [(1, Closed::Disconnected)]);
}

#[test]
fn a_runtime_lost_inside_a_frame_leaves_nothing_to_say() {
    let mut bed = Bed::opened(Mode::Pass, &[]);
    let mut octets = Vec::new();
    push_frame(&mut octets, kind::DATA, 0, 1, b"abcdef");
    bed.backend(&octets[..12]);
    bed.down.clear();
    assert!(!bed.tap.end_all(&refusal(), &mut bed.out, &mut bed.decider));
    bed.take(&[], &[]);
    assert!(bed.down.is_empty());
}

#[test]
fn a_block_of_ours_right_after_a_table_reduction_carries_the_update() {
    // HEADER_TABLE_SIZE 0, then 100 in the same SETTINGS: the smallest counts.
    let mut bed = Bed::opened(Mode::Hold, &[0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 100]);
    bed.refuse(1);
    // The octets that the runtime never saw are the client's again.
    let seen = frames(&bed.down);
    assert_eq!((seen[0].0.kind, seen[0].1), (kind::WINDOW_UPDATE, &[0, 0, 0, 6][..]));
    assert_eq!((seen[1].0.kind, seen[1].1[0]), (kind::HEADERS, 0x20));
    assert_eq!(frames(&bed.up)[0].0.kind, kind::RST_STREAM);
    assert_eq!(bed.decider.closed, [(1, Closed::Refused(14))]);
}

#[test]
fn the_runtimes_headers_of_a_refused_call_still_reach_the_clients_table() {
    let mut bed = Bed::opened(Mode::Hold, &[]);
    bed.refuse(1);
    let mut client = Decoder::default();
    let refused = frames(&bed.down)[1].1.to_vec();
    assert_eq!(fields(&mut client, &refused)[2].1, "14");
    bed.down.clear();
    // x-a: b with incremental indexing on the refused stream, then a reference to it on the next one.
    let mut octets = Vec::new();
    push_header_block(&mut octets, 1, b"\x88\x40\x03x-a\x01b", false);
    push_frame(&mut octets, kind::DATA, 0, 1, b"dropped");
    push_header_block(&mut octets, 3, &[0x88, 0xbe], true);
    bed.backend(&octets);
    let mut last = Vec::new();
    for (frame, payload) in frames(&bed.down) {
        assert_ne!(frame.kind, kind::DATA);
        if frame.kind == kind::HEADERS {
            last = fields(&mut client, payload);
        }
    }
    assert_eq!(last[1], ("x-a".to_owned(), "b".to_owned()));
    // The dropped octets' credit goes back to the runtime, since the client never will.
    let update =
        frames(&bed.up).into_iter().find(|(frame, _)| frame.kind == kind::WINDOW_UPDATE).expect("an update");
    assert_eq!((update.0.stream, update.1), (0, &[0, 0, 0, 7][..]));
}

#[test]
fn a_malformed_block_ends_the_tap_and_nothing_else() {
    let mut bed = Bed::opened(Mode::Hold, &[]);
    bed.refuse(1);
    bed.up.clear();
    let mut octets = Vec::new();
    push_header_block(&mut octets, 3, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], false);
    push_frame(&mut octets, kind::DATA, flag::END_STREAM, 3, &[0, 0, 0, 0, 1, 7]);
    push_header_block(&mut octets, 5, &path("/s/m"), false);
    push_frame(&mut octets, kind::DATA, flag::END_STREAM, 5, &[0, 0, 0, 0, 1, 7]);
    bed.client(&octets);
    assert_eq!(bed.up, octets);
    assert!(bed.tap.untapped() && bed.tap.broken().is_none());
    assert!(bed.decider.waiting == [1]);
}

#[test]
fn header_blocks_of_a_megabyte_pass_and_longer_ones_end_the_tap() {
    for (length, tapped) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let mut bed = Bed::opened(Mode::Observe, &[]);
        // Static entry 2, one octet a field.
        let block = vec![0x82; length];
        let mut octets = Vec::new();
        push_header_block(&mut octets, 3, &block, true);
        bed.client(&octets);
        assert_eq!(bed.up, octets);
        assert_eq!(bed.tap.untapped(), !tapped, "{length}");
    }
}

#[test]
fn another_protocol_passes_as_it_is() {
    let mut bed = Bed::new(Mode::Hold, Options::default());
    bed.client(b"PRI * HTTP/1");
    bed.client(b".1\r\n");
    bed.backend(b"HTTP/1.1 400\r\n");
    assert_eq!(
        (bed.up.as_slice(), bed.down.as_slice()),
        (&b"PRI * HTTP/1.1\r\n"[..], &b"HTTP/1.1 400\r\n"[..])
    );
    assert!(bed.tap.is_blind());
}

#[test]
fn a_drain_is_over_when_the_client_has_confirmed_and_its_calls_have_ended() {
    let mut bed = Bed::opened(Mode::Pass, &[]);
    let answer = bed.drain_answer();
    let seen = frames(&bed.down);
    assert_eq!((seen[0].0.kind, seen[0].1), (kind::GOAWAY, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0][..]));
    bed.up.clear();
    bed.client(&answer);
    assert!(bed.up.is_empty(), "the runtime knows nothing of our PING");
    assert!(!bed.tap.drained());
    let mut octets = Vec::new();
    push_header_block(&mut octets, 1, &[0x88], true);
    bed.backend(&octets);
    assert!(bed.tap.drained());
    assert_eq!(bed.decider.closed, [(1, Closed::Answered(None))]);
}

/// Without the second GOAWAY a client cannot know whether a stream that it opened too late was looked at.
#[test]
fn the_end_of_a_drain_names_the_last_stream() {
    let mut bed = Bed::opened(Mode::Pass, &[]);
    let mut octets = bed.drain_answer();
    bed.end_drain();
    assert!(bed.down.is_empty(), "the client has not confirmed yet");
    // Begun before GOAWAY was read, sent after it was confirmed.
    push_header_block(&mut octets, 5, &path("/s/m"), true);
    bed.client(&octets);
    let mut octets = Vec::new();
    push_header_block(&mut octets, 1, &[0x88], true);
    bed.backend(&octets);
    assert!(!bed.tap.drained());
    let mut octets = Vec::new();
    push_header_block(&mut octets, 5, &[0x88], true);
    bed.backend(&octets);
    assert!(bed.tap.drained());
    bed.end_drain();
    let seen = frames(&bed.down);
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].0.kind, seen[0].1), (kind::GOAWAY, &[0, 0, 0, 5, 0, 0, 0, 0][..]));
}

#[test]
fn the_end_of_a_drain_in_the_middle_of_a_frame_says_nothing() {
    let mut bed = Bed::opened(Mode::Pass, &[]);
    let answer = bed.drain_answer();
    bed.client(&answer);
    let mut octets = Vec::new();
    push_frame(&mut octets, kind::PING, 0, 0, b"12345678");
    bed.backend(&octets[..12]);
    bed.end_drain();
    assert!(bed.down.is_empty());
}

#[test]
fn a_frame_inside_a_header_block_ends_the_tap_and_nothing_else() {
    let mut bed = Bed::opened(Mode::Hold, &[]);
    bed.refuse(1);
    bed.up.clear();
    let block = path("/s/m");
    let mut octets = Vec::new();
    push_header_block(&mut octets, 3, &block, false);
    push_frame(&mut octets, kind::DATA, 0, 3, &[0, 0, 0]);
    bed.client(&octets);
    let held = bed.up.len();
    let mut octets = Vec::new();
    push_frame(&mut octets, kind::HEADERS, 0, 5, &block[..2]);
    push_frame(&mut octets, kind::DATA, 0, 3, &[0, 1]);
    push_frame(&mut octets, kind::CONTINUATION, flag::END_HEADERS, 5, &block[2..]);
    bed.client(&octets);
    assert!(bed.tap.untapped() && bed.tap.broken().is_none());
    // Stream 3's DATA stays held; the rest is the runtime's to judge.
    let passed: Vec<_> =
        frames(&bed.up[held..]).iter().map(|(frame, _)| (frame.kind, frame.stream)).collect();
    assert_eq!(passed, [(kind::HEADERS, 5), (kind::CONTINUATION, 5)]);
}
