//! The tap between two peers that send anything: it never panics, holds a bounded amount, and what passes untouched is
//! the same however the octets are cut.

#![no_main]

use koord_tap::frame::PREFACE;
use koord_tap::{
    Bypass, Closed, Decision, Handler, Head, Mode, Options, Outputs, Refusal, Request, ResponseEnd, Tap,
    Trailers, Verdict,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Choice {
    Pass,
    Observe,
    HoldForward,
    HoldReplace,
    HoldRefuse,
    HoldLater,
    Refuse,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Client(Vec<u8>),
    Backend(Vec<u8>),
    Resolve(u8),
    Release(u8),
    Drain,
}

#[derive(Arbitrary, Debug)]
struct Input {
    preface: bool,
    withhold: bool,
    choices: Vec<Choice>,
    hold_trailers: bool,
    steps: Vec<Step>,
}

struct Decider {
    choices: Vec<Choice>,
    next: usize,
    hold_trailers: bool,
    open: i64,
}

fn refusal() -> Refusal {
    Refusal { code: 7, message: "no".to_owned() }
}

impl Handler for Decider {
    type Call = Choice;

    fn open(&mut self, _stream: u32, _head: Head) -> (Mode, Choice) {
        let choice = self.choices.get(self.next % self.choices.len().max(1)).copied().unwrap_or(Choice::Pass);
        self.next += 1;
        self.open += 1;
        let mode = match choice {
            Choice::Pass => Mode::Pass,
            Choice::Observe => Mode::Observe,
            Choice::Refuse => Mode::Refuse(refusal()),
            _ => Mode::Hold,
        };
        (mode, choice)
    }

    fn request(&mut self, _stream: u32, call: &mut Choice, request: Request<'_>) -> Decision {
        match call {
            Choice::HoldReplace => Decision::Now(Verdict::Replace([request.payload, b"more"].concat())),
            Choice::HoldRefuse => Decision::Now(Verdict::Refuse(refusal())),
            Choice::HoldLater => Decision::Later,
            _ => Decision::Now(Verdict::Forward),
        }
    }

    fn bypassed(&mut self, _stream: u32, _call: &mut Choice, _why: Bypass) {}

    fn response(&mut self, _stream: u32, _call: &mut Choice, _end: ResponseEnd<'_>) -> Trailers {
        if self.hold_trailers { Trailers::Hold } else { Trailers::Pass }
    }

    fn closed(&mut self, _stream: u32, _call: Choice, _how: Closed) {
        self.open -= 1;
    }
}

const MAX_HELD: usize = 4096;

fn run(input: &Input, cut: usize) -> (Vec<u8>, Vec<u8>) {
    let options = Options {
        max_message: 1024,
        max_held: MAX_HELD,
        max_header_block: 4096,
        max_path: 64,
        withhold_headers: input.withhold,
        ..Options::default()
    };
    let mut tap = Tap::new(options);
    let mut decider =
        Decider { choices: input.choices.clone(), next: 0, hold_trailers: input.hold_trailers, open: 0 };
    let mut out = Outputs::default();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let mut take = |out: &mut Outputs, client: &[u8], backend: &[u8]| {
        out.to_backend.slices(client).for_each(|slice| up.extend_from_slice(slice));
        out.to_client.slices(backend).for_each(|slice| down.extend_from_slice(slice));
        out.to_backend.clear();
        out.to_client.clear();
    };
    if input.preface {
        tap.client_bytes(PREFACE, &mut out, &mut decider);
        take(&mut out, PREFACE, &[]);
    }
    for step in &input.steps {
        match step {
            Step::Client(octets) => {
                for piece in octets.chunks(cut) {
                    tap.client_bytes(piece, &mut out, &mut decider);
                    take(&mut out, piece, &[]);
                }
            }
            Step::Backend(octets) => {
                for piece in octets.chunks(cut) {
                    tap.backend_bytes(piece, &mut out, &mut decider);
                    take(&mut out, &[], piece);
                }
            }
            Step::Resolve(stream) => {
                tap.resolve(u32::from(*stream), Verdict::Forward, &mut out, &mut decider);
                take(&mut out, &[], &[]);
            }
            Step::Release(stream) => {
                tap.release(u32::from(*stream), &mut out, &mut decider);
                take(&mut out, &[], &[]);
            }
            Step::Drain => {
                tap.begin_drain(&mut out);
                take(&mut out, &[], &[]);
            }
        }
        if tap.broken().is_some() {
            break;
        }
    }
    tap.end_all(&refusal(), &mut out, &mut decider);
    take(&mut out, &[], &[]);
    tap.close(&mut decider);
    assert_eq!(decider.open, 0, "every opened call is closed once");
    (up, down)
}

fuzz_target!(|input: Input| {
    let whole = run(&input, usize::MAX);
    let cut = run(&input, 1);
    // Where nothing is held, the cut makes no difference at all.
    let passing = input.choices.iter().all(|choice| matches!(choice, Choice::Pass | Choice::Observe));
    let quiet = !input.hold_trailers
        && !input.withhold
        && input.steps.iter().all(|step| matches!(step, Step::Client(_) | Step::Backend(_)));
    if passing && quiet {
        assert_eq!(whole.0, cut.0);
    }
});
