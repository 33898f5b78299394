//! A tap between a random client and a random runtime that both keep their own books of flow control.
//!
//! Each run is a schedule of small steps (send a frame, deliver some octets, grant credit, change SETTINGS, give a
//! verdict) drawn from a seed. Checked at every step: the runtime never receives more than it allowed, the client is never
//! told more than exists. Checked at the end: every message arrived as decided, every call ended as decided, and no credit
//! was lost on either level.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of this model are small"
)]
#![expect(clippy::unwrap_used, reason = "a surprise is a failed test")]

use std::collections::{BTreeMap, HashMap, VecDeque};

use koord_tap::frame::{FrameHeader, HEADER_LEN, PREFACE, flag, kind, push_frame, push_window_update};
use koord_tap::hpack::Decoder;
use koord_tap::*;
use proptest::prelude::*;

/// splitmix64: a schedule from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Plan {
    Pass,
    Observe,
    Forward,
    Replace(usize),
    Refuse,
    Cancel,
    Oversize,
}

#[derive(Default)]
struct Decider {
    plans: HashMap<u32, Plan>,
    waiting: Vec<u32>,
    immediate: bool,
    hold_trailers: bool,
    held_trailers: Vec<u32>,
    closed: BTreeMap<u32, Closed>,
    requests: HashMap<u32, Vec<u8>>,
    bypassed: Vec<(u32, Bypass)>,
}

fn replacement(stream: u32, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32 ^ stream) as u8).collect()
}

fn verdict(plan: &Plan, stream: u32) -> Verdict {
    match plan {
        Plan::Replace(length) => Verdict::Replace(replacement(stream, *length)),
        Plan::Refuse => Verdict::Refuse(Refusal { code: 2, message: "no".into() }),
        _ => Verdict::Forward,
    }
}

impl Handler for Decider {
    type Call = u32;

    fn open(&mut self, stream: u32, head: Head) -> (Mode, u32) {
        assert_eq!(head.path, format!("/s/{stream}").as_bytes());
        let mode = match self.plans[&stream] {
            Plan::Pass => Mode::Pass,
            Plan::Observe => Mode::Observe,
            _ => Mode::Hold,
        };
        (mode, stream)
    }

    fn request(&mut self, stream: u32, call: &mut u32, request: Request<'_>) -> Decision {
        assert_eq!(*call, stream);
        self.requests.insert(stream, request.payload.to_vec());
        if self.immediate || self.plans[&stream] == Plan::Observe {
            return Decision::Now(verdict(&self.plans[&stream], stream));
        }
        self.waiting.push(stream);
        Decision::Later
    }

    fn bypassed(&mut self, stream: u32, _: &mut u32, why: Bypass) {
        self.bypassed.push((stream, why));
    }

    fn response(&mut self, stream: u32, _: &mut u32, end: ResponseEnd<'_>) -> Trailers {
        assert_eq!(end.status, Some(0));
        assert_eq!(end.message, Some(stream.to_be_bytes().as_slice()));
        if self.hold_trailers {
            self.held_trailers.push(stream);
            return Trailers::Hold;
        }
        Trailers::Pass
    }

    fn closed(&mut self, stream: u32, _: u32, how: Closed) {
        assert_eq!(self.closed.insert(stream, how), None);
    }
}

/// Cuts a stream of octets into frames.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    fn push(&mut self, octets: &[u8]) {
        self.0.extend_from_slice(octets);
    }

    fn next(&mut self) -> Option<(FrameHeader, Vec<u8>)> {
        let header = FrameHeader::parse(self.0.first_chunk::<HEADER_LEN>()?);
        let end = HEADER_LEN + header.length;
        if self.0.len() < end {
            return None;
        }
        let payload = self.0[HEADER_LEN..end].to_vec();
        self.0.drain(..end);
        Some((header, payload))
    }
}

struct Call {
    plan: Plan,
    message: Vec<u8>,
    opened: bool,
    sent: usize,
    window: i64,
    ended: bool,
    cancelled: bool,
    status: Option<u32>,
    answer: Vec<u8>,
}

struct World {
    random: Random,
    tap: Tap<u32>,
    decider: Decider,
    out: Outputs,
    to_tap_from_client: VecDeque<u8>,
    to_tap_from_backend: VecDeque<u8>,
    // The client's books.
    calls: BTreeMap<u32, Call>,
    client_connection: i64,
    client_initial: i64,
    client_frames: Frames,
    client_decoder: Decoder,
    started: bool,
    // The runtime's books.
    backend_frames: Frames,
    backend_decoder: Decoder,
    backend_preface: usize,
    backend_connection: i64,
    backend_unread: i64,
    /// Acknowledged and announced initial windows: the runtime must accept the largest still possible.
    backend_windows: VecDeque<i64>,
    backend_streams: BTreeMap<u32, BackendStream>,
    lazy: bool,
    encoder: loona_hpack::Encoder<'static>,
    settings_left: usize,
    /// No more small steps: everything goes as far as it can.
    finishing: bool,
}

#[derive(Default)]
struct BackendStream {
    data: Vec<u8>,
    used: i64,
    granted: i64,
    unread: i64,
    ended: bool,
    reset: bool,
    answered: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let greeted = random.one_in(4);
        let options = Options {
            greeted,
            max_message: 400_000,
            max_held: 900_000,
            withhold_headers: random.one_in(4),
            ..Options::default()
        };
        let lazy = random.one_in(3);
        let decider =
            Decider { immediate: random.one_in(3), hold_trailers: random.one_in(2), ..Decider::default() };
        let settings_left = random.below(4);
        let mut world = Self {
            random,
            tap: Tap::new(options),
            decider,
            out: Outputs::default(),
            to_tap_from_client: PREFACE.iter().copied().collect(),
            to_tap_from_backend: VecDeque::new(),
            calls: BTreeMap::new(),
            client_connection: 65_535,
            client_initial: 65_535,
            client_frames: Frames::default(),
            client_decoder: Decoder::default(),
            started: false,
            backend_frames: Frames::default(),
            backend_decoder: Decoder::default(),
            backend_preface: 0,
            backend_connection: 65_535,
            backend_unread: 0,
            backend_windows: VecDeque::from([65_535]),
            backend_streams: BTreeMap::new(),
            lazy,
            encoder: loona_hpack::Encoder::new(),
            settings_left,
            finishing: false,
        };
        let mut settings = Vec::new();
        push_frame(&mut settings, kind::SETTINGS, 0, 0, &[]);
        world.to_tap_from_client.extend(&settings);
        if greeted {
            // The client has acknowledged SETTINGS that the runtime knows nothing of.
            world.started = true;
            let mut acknowledgement = Vec::new();
            push_frame(&mut acknowledgement, kind::SETTINGS, flag::ACK, 0, &[]);
            world.to_tap_from_client.extend(&acknowledgement);
        }
        world.backend_settings();
        let calls = 1 + world.random.below(6);
        for at in 0..calls {
            world.plan_call(at as u32 * 2 + 1);
        }
        world
    }

    fn plan_call(&mut self, stream: u32) {
        let length = match self.random.below(4) {
            0 => self.random.below(3),
            1 => self.random.below(300),
            2 => self.random.below(70_000),
            _ => self.random.below(200_000),
        };
        let plan = match self.random.below(8) {
            0 => Plan::Pass,
            1 => Plan::Observe,
            2 => Plan::Forward,
            3 => Plan::Refuse,
            4 => Plan::Cancel,
            5 => Plan::Replace(self.random.below(300)),
            6 => Plan::Oversize,
            _ => Plan::Replace(self.random.below(300_000)),
        };
        let length = if plan == Plan::Oversize { 400_001 + self.random.below(100_000) } else { length };
        let payload: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        let mut message = vec![0];
        message.extend((payload.len() as u32).to_be_bytes());
        message.extend(payload);
        self.decider.plans.insert(stream, plan.clone());
        let call = Call {
            plan,
            message,
            opened: false,
            sent: 0,
            window: 0,
            ended: false,
            cancelled: false,
            status: None,
            answer: Vec::new(),
        };
        self.calls.insert(stream, call);
    }

    fn backend_settings(&mut self) {
        let window = match self.random.below(4) {
            0 => 50 + self.random.below(50),
            1 => 3000,
            2 => 65_535,
            _ => self.random.below(300_000) + 1,
        };
        self.backend_windows.push_back(window as i64);
        let mut payload = vec![0, 4];
        payload.extend((window as u32).to_be_bytes());
        let mut frame = Vec::new();
        push_frame(&mut frame, kind::SETTINGS, 0, 0, &payload);
        self.to_tap_from_backend.extend(frame);
    }

    /// One random step of one of the two peers or of the decider.
    fn step(&mut self) {
        match self.random.below(10) {
            0..=2 => self.client_sends(),
            3..=4 => self.deliver_from_client(),
            5..=6 => self.deliver_from_backend(),
            7 => self.backend_reads(),
            8 => self.decide(),
            _ => {
                if self.settings_left > 0 && self.random.one_in(4) {
                    self.settings_left -= 1;
                    self.backend_settings();
                } else if self.random.one_in(5) {
                    self.cancel_one();
                }
            }
        }
    }

    fn client_sends(&mut self) {
        if self.random.one_in(3)
            && let Some((stream, call)) = self.calls.iter_mut().find(|(_, call)| !call.opened)
        {
            call.opened = true;
            call.window = self.client_initial;
            let path = format!("/s/{stream}");
            let mut block = vec![0x83, 0x86, 0x44, path.len() as u8]; // :path with incremental indexing
            block.extend(path.as_bytes());
            let mut frames = Vec::new();
            let padded = self.random.one_in(4);
            let cut = self.random.below(block.len());
            let mut first = Vec::new();
            if padded {
                first.push(2);
            }
            first.extend(&block[..cut]);
            if padded {
                first.extend([0, 0]);
            }
            push_frame(&mut frames, kind::HEADERS, if padded { flag::PADDED } else { 0 }, *stream, &first);
            push_frame(&mut frames, kind::CONTINUATION, flag::END_HEADERS, *stream, &block[cut..]);
            self.to_tap_from_client.extend(frames);
            return;
        }
        let ready: Vec<u32> = self
            .calls
            .iter()
            .filter(|(_, call)| call.opened && !call.ended && !call.cancelled && call.status.is_none())
            .map(|(stream, _)| *stream)
            .collect();
        if ready.is_empty() {
            return;
        }
        let stream = ready[self.random.below(ready.len())];
        let call = self.calls.get_mut(&stream).unwrap();
        let room = call.window.min(self.client_connection).min(16_384);
        let left = call.message.len() - call.sent;
        if room < if self.finishing { 1 } else { 12 } && left > 0 {
            return;
        }
        let padding = if !self.finishing && self.random.one_in(5) { self.random.below(10) } else { 0 };
        let overhead = if padding > 0 { padding + 1 } else { 0 };
        let limit = left.min((room.max(0) as usize).saturating_sub(overhead));
        let count =
            if self.finishing || self.random.one_in(2) { limit } else { self.random.below(limit + 1) };
        let end = call.sent + count == call.message.len() && self.random.one_in(2);
        if count == 0 && !end {
            return;
        }
        let overhead = if room < overhead as i64 { 0 } else { overhead };
        let mut payload = Vec::new();
        if overhead > 0 {
            payload.push(padding as u8);
        }
        payload.extend(&call.message[call.sent..call.sent + count]);
        if overhead > 0 {
            payload.extend(vec![0; padding]);
        }
        let flags = if end { flag::END_STREAM } else { 0 } | if overhead > 0 { flag::PADDED } else { 0 };
        call.sent += count;
        call.ended = end;
        call.window -= payload.len() as i64;
        self.client_connection -= payload.len() as i64;
        let mut frame = Vec::new();
        push_frame(&mut frame, kind::DATA, flags, stream, &payload);
        self.to_tap_from_client.extend(frame);
    }

    fn cancel_one(&mut self) {
        let open = self.calls.iter_mut().find(|(_, call)| {
            call.plan == Plan::Cancel && call.opened && !call.cancelled && call.status.is_none()
        });
        if let Some((stream, call)) = open {
            call.cancelled = true;
            let mut frame = Vec::new();
            push_frame(&mut frame, kind::RST_STREAM, 0, *stream, &8u32.to_be_bytes());
            self.to_tap_from_client.extend(frame);
        }
    }

    fn amount(&mut self, available: usize) -> usize {
        if self.finishing {
            return available;
        }
        match self.random.below(3) {
            0 => available.min(1 + self.random.below(12)),
            1 => available.min(self.random.below(20_000) + 1),
            _ => available,
        }
    }

    fn deliver_from_client(&mut self) {
        let amount = self.amount(self.to_tap_from_client.len());
        let input: Vec<u8> = self.to_tap_from_client.drain(..amount).collect();
        self.tap.client_bytes(&input, &mut self.out, &mut self.decider);
        self.take_outputs(&input, &[]);
    }

    fn deliver_from_backend(&mut self) {
        let amount = self.amount(self.to_tap_from_backend.len());
        let input: Vec<u8> = self.to_tap_from_backend.drain(..amount).collect();
        self.tap.backend_bytes(&input, &mut self.out, &mut self.decider);
        self.take_outputs(&[], &input);
    }

    fn decide(&mut self) {
        if !self.decider.waiting.is_empty() {
            let at = self.random.below(self.decider.waiting.len());
            let stream = self.decider.waiting.swap_remove(at);
            let verdict = verdict(&self.decider.plans[&stream], stream);
            self.tap.resolve(stream, verdict, &mut self.out, &mut self.decider);
            self.take_outputs(&[], &[]);
        }
        if !self.decider.held_trailers.is_empty() {
            let at = self.random.below(self.decider.held_trailers.len());
            let stream = self.decider.held_trailers.swap_remove(at);
            self.tap.release(stream, &mut self.out, &mut self.decider);
            self.take_outputs(&[], &[]);
        }
    }

    fn take_outputs(&mut self, from_client: &[u8], from_backend: &[u8]) {
        assert_eq!(self.tap.broken(), None);
        let up = self.out.to_backend.slices(from_client).collect::<Vec<_>>().concat();
        let down = self.out.to_client.slices(from_backend).collect::<Vec<_>>().concat();
        self.out.to_backend.clear();
        self.out.to_client.clear();
        self.client_receives(&down);
        self.backend_receives(&up);
    }

    fn client_receives(&mut self, octets: &[u8]) {
        self.client_frames.push(octets);
        while let Some((header, payload)) = self.client_frames.next() {
            assert!(self.started || header.kind == kind::SETTINGS, "{header:?} before SETTINGS");
            self.started = true;
            let number = || u32::from_be_bytes(payload[..4].try_into().unwrap());
            match header.kind {
                kind::SETTINGS if !header.has(flag::ACK) => {
                    let value = i64::from(u32::from_be_bytes(payload[2..6].try_into().unwrap()));
                    for call in self.calls.values_mut().filter(|call| call.opened) {
                        call.window += value - self.client_initial;
                    }
                    self.client_initial = value;
                    let mut frame = Vec::new();
                    push_frame(&mut frame, kind::SETTINGS, flag::ACK, 0, &[]);
                    self.to_tap_from_client.extend(frame);
                }
                kind::WINDOW_UPDATE if header.stream == 0 => {
                    assert!(number() > 0);
                    self.client_connection += i64::from(number());
                    assert!(self.client_connection <= 65_535, "more credit than the runtime ever gave");
                }
                kind::WINDOW_UPDATE => {
                    assert!(number() > 0);
                    self.calls.get_mut(&header.stream).unwrap().window += i64::from(number());
                }
                kind::HEADERS => {
                    assert!(header.has(flag::END_HEADERS));
                    let call = self.calls.get_mut(&header.stream).unwrap();
                    let ended = call.status.is_some();
                    self.client_decoder
                        .decode(&payload, |field| {
                            if field.name == b"grpc-status" && !ended {
                                call.status =
                                    Some(std::str::from_utf8(field.value).unwrap().parse().unwrap());
                            }
                        })
                        .unwrap();
                    assert_eq!(call.status.is_some(), header.has(flag::END_STREAM) || ended);
                }
                kind::DATA => {
                    let call = self.calls.get_mut(&header.stream).unwrap();
                    assert_eq!(call.status, None);
                    call.answer.extend(payload);
                }
                _ => {}
            }
        }
    }

    fn backend_receives(&mut self, octets: &[u8]) {
        let preface = octets.len().min(PREFACE.len() - self.backend_preface);
        assert_eq!(octets[..preface], PREFACE[self.backend_preface..self.backend_preface + preface]);
        self.backend_preface += preface;
        self.backend_frames.push(&octets[preface..]);
        while let Some((header, payload)) = self.backend_frames.next() {
            match header.kind {
                kind::HEADERS => {
                    self.backend_streams.insert(header.stream, BackendStream::default());
                    let (pad, padding) =
                        if header.has(flag::PADDED) { (1, payload[0] as usize) } else { (0, 0) };
                    let mut block = payload[pad..payload.len() - padding].to_vec();
                    if !header.has(flag::END_HEADERS) {
                        let Some((next, rest)) = self.backend_frames.next() else {
                            // Put it back until the block is whole.
                            let mut again = header.to_bytes().to_vec();
                            again.extend(&payload);
                            again.extend(&self.backend_frames.0);
                            self.backend_frames.0 = again;
                            return;
                        };
                        assert_eq!(
                            (next.kind, next.stream),
                            (kind::CONTINUATION, header.stream),
                            "a block was cut open"
                        );
                        block.extend(rest);
                    }
                    let mut path = Vec::new();
                    self.backend_decoder
                        .decode(&block, |field| {
                            if field.name == b":path" {
                                path = field.value.to_vec();
                            }
                        })
                        .unwrap();
                    assert_eq!(path, format!("/s/{}", header.stream).as_bytes());
                }
                kind::DATA => {
                    let length = payload.len() as i64;
                    let widest = *self.backend_windows.iter().max().unwrap();
                    let stream =
                        self.backend_streams.get_mut(&header.stream).expect("DATA of an unopened stream");
                    assert!(
                        !stream.ended && !stream.reset,
                        "DATA behind the end of stream {}",
                        header.stream
                    );
                    stream.used += length;
                    stream.unread += length;
                    self.backend_connection -= length;
                    self.backend_unread += length;
                    assert!(self.backend_connection >= 0, "connection window overrun");
                    assert!(length == 0 || stream.used <= stream.granted + widest, "stream window overrun");
                    let (pad, padding) =
                        if header.has(flag::PADDED) { (1, payload[0] as usize) } else { (0, 0) };
                    stream.data.extend(&payload[pad..payload.len() - padding]);
                    stream.ended = header.has(flag::END_STREAM);
                }
                kind::RST_STREAM => {
                    let stream = self
                        .backend_streams
                        .get_mut(&header.stream)
                        .expect("RST_STREAM of an unopened stream");
                    stream.reset = true;
                }
                kind::SETTINGS if header.has(flag::ACK) => {
                    self.backend_windows.pop_front();
                }
                _ => {}
            }
        }
    }

    /// The runtime's application reads, grants credit, answers.
    fn backend_reads(&mut self) {
        let mut frames = Vec::new();
        let eager = !self.lazy || self.random.one_in(8);
        if self.backend_unread > 0 && (eager || self.backend_connection < 20_000) {
            let n = if eager {
                self.backend_unread
            } else {
                1 + self.random.below(self.backend_unread as usize) as i64
            };
            self.backend_unread -= n;
            self.backend_connection += n;
            push_window_update(&mut frames, 0, n);
        }
        let narrow = *self.backend_windows.front().unwrap();
        for (stream, state) in &mut self.backend_streams {
            let left = state.granted + narrow - state.used;
            if state.unread > 0 && !state.ended && !state.reset && (eager || left < narrow / 2 + 1) {
                state.granted += state.unread;
                push_window_update(&mut frames, *stream, state.unread);
                state.unread = 0;
            }
            if state.ended && !state.answered && !state.reset {
                state.answered = true;
                let headers = self
                    .encoder
                    .encode([(&b":status"[..], &b"200"[..]), (b"x-a", stream.to_string().as_bytes())]);
                push_frame(&mut frames, kind::HEADERS, flag::END_HEADERS, *stream, &headers);
                let mut message = vec![0, 0, 0, 0, 4];
                message.extend(stream.to_be_bytes());
                push_frame(&mut frames, kind::DATA, 0, *stream, &message);
                let trailers = self
                    .encoder
                    .encode([(&b"grpc-status"[..], &b"0"[..]), (b"x-b", stream.to_string().as_bytes())]);
                push_frame(
                    &mut frames,
                    kind::HEADERS,
                    flag::END_HEADERS | flag::END_STREAM,
                    *stream,
                    &trailers,
                );
            }
        }
        self.to_tap_from_backend.extend(frames);
    }

    fn finish(&mut self) {
        self.lazy = false;
        self.finishing = true;
        // A runtime with an initial window of two octets takes about a turn for each of them. It ends when all is done.
        for _ in 0..4_000_000 {
            for _ in 0..4 {
                self.client_sends();
            }
            self.deliver_from_client();
            self.backend_reads();
            self.deliver_from_backend();
            self.decide();
            let done = self.calls.values().all(|call| call.cancelled || call.status.is_some());
            if done
                && self.to_tap_from_client.is_empty()
                && self.to_tap_from_backend.is_empty()
                && self.backend_unread == 0
            {
                break;
            }
        }
        for (stream, call) in &self.calls {
            let at_backend = self.backend_streams.get(stream);
            let bypassed = self.decider.bypassed.iter().any(|(of, _)| of == stream);
            let data = at_backend.map(|state| state.data.clone()).unwrap_or_default();
            assert!(
                call.cancelled || call.status.is_some(),
                "call {stream} hangs: {:?}, {} of {} sent, window {} / {}, {:?}",
                call.plan,
                call.sent,
                call.message.len(),
                call.window,
                self.client_connection,
                self.backend_windows
            );
            if call.cancelled {
                continue;
            }
            match &call.plan {
                Plan::Refuse => {
                    assert_eq!((call.status, data.len()), (Some(2), 0));
                    assert_eq!(self.decider.closed[stream], Closed::Refused(2));
                    continue;
                }
                // Several large requests at once may exceed what is held on a connection.
                Plan::Replace(_) if bypassed => assert_eq!(data, call.message),
                Plan::Replace(length) => {
                    let payload = replacement(*stream, *length);
                    assert_eq!(data[1..5], (payload.len() as u32).to_be_bytes());
                    assert!(data[5..] == payload);
                }
                Plan::Oversize => {
                    assert!(bypassed);
                    assert!(data == call.message);
                }
                _ => assert!(data == call.message, "message {stream} changed"),
            }
            if !bypassed && call.plan != Plan::Pass {
                assert!(self.decider.requests[stream] == call.message[5..]);
            }
            assert_eq!(call.status, Some(0));
            assert_eq!(call.answer[5..], stream.to_be_bytes());
            assert_eq!(self.decider.closed[stream], Closed::Answered(Some(0)));
        }
        assert_eq!(self.backend_connection, 65_535);
        assert_eq!(self.client_connection, 65_535, "connection credit was lost");
        assert_eq!((self.tap.open_streams(), self.tap.held_octets()), (0, 0));
        assert_eq!(self.decider.closed.len(), self.calls.values().filter(|call| call.opened).count());
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let steps = world.random.below(600);
    for _ in 0..steps {
        world.step();
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_peers(seed in any::<u64>()) {
        run(seed);
    }
}

/// Large messages through windows of two octets: slow, and no hang.
#[test]
fn small_windows_end_all_calls() {
    run(1_052_421_301_055_302_354);
}
