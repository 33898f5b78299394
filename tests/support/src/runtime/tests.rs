use super::*;
use crate::client::{ByteClient, CallHead, RawClient};
use crate::frame::{Frame, PREFACE, kind, setting};
use crate::peer::{Coding, Grant};

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    (directory, socket)
}

fn echo() -> Behaviour {
    unary(|_, message| Reply::ok(message))
}

#[test]
fn a_unary_call_is_recorded_and_answered() {
    let (_directory, socket) = place();
    let runtime = FakeRuntime::start(&socket, echo()).unwrap();
    let client = RawClient::connect(&socket).unwrap();
    let head =
        CallHead::new("/a.b/C").timeout("4M").field("x-a", "1").field("x-a", "2").field("x-bin", [0xff, 0]);
    for round in 0..3_u8 {
        assert_eq!(client.call(&head, &[round; 10]).expect_ok(), [round; 10]);
    }
    let calls = runtime.calls();
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[2].head, head.fields());
    assert_eq!(calls[2].message(), [2; 10]);
    assert_eq!((calls[2].stream, calls[2].connection, calls[2].method()), (5, 1, "C"));
    assert!(calls[2].complete);
}

#[test]
fn small_windows_padding_and_fragments_carry_a_large_body() {
    let (_directory, socket) = place();
    let server = PeerOptions {
        settings: vec![(setting::INITIAL_WINDOW_SIZE, 1_000)],
        connection_window: 65_535,
        grant: Grant::AtOnce,
        ..PeerOptions::default()
    };
    let _runtime = FakeRuntime::start_with(&socket, server, echo()).unwrap();
    let client = PeerOptions {
        settings: vec![(setting::INITIAL_WINDOW_SIZE, 3_000)],
        connection_window: 65_535,
        padding: Some(7),
        header_fragment: Some(3),
        coding: Coding::Literal,
        write_size: 11,
        ..PeerOptions::default()
    };
    let client = RawClient::connect_with(&socket, client).unwrap();
    let body: Vec<u8> = (0..200_000_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
    assert_eq!(client.call(&CallHead::new("/a.b/C"), &body).expect_ok(), body);
}

#[test]
fn without_credit_the_sender_stops() {
    let (_directory, socket) = place();
    let server = PeerOptions {
        settings: vec![(setting::INITIAL_WINDOW_SIZE, 1_000)],
        grant: Grant::Never,
        ..PeerOptions::default()
    };
    let _runtime = FakeRuntime::start_with(&socket, server, echo()).unwrap();
    let client = RawClient::connect(&socket).unwrap();
    client.peer().peer_settings().unwrap();
    let stream = client.open(&CallHead::new("/a.b/C"));
    let sent = stream.send_data_within(&[0; 1_001], true, Duration::from_millis(50));
    assert_eq!(sent, Err(SendError::NoCredit(1)));
}

#[test]
fn endings_are_seen_by_the_client() {
    let (_directory, socket) = place();
    let extra = fields(&[("x-a", "1"), ("x-a", "2")]);
    let runtime = FakeRuntime::start(&socket, {
        let extra = extra.clone();
        unary(move |call, _| match call.method() {
            "Error" => {
                Reply::ending(Ending::Trailers { status: 9, message: "no".into(), extra: extra.clone() })
            }
            "Only" => Reply::error(14, "gone"),
            "Reset" => Reply::ending(Ending::Reset(7)),
            "Goaway" => Reply::ending(Ending::Goaway),
            "Disconnect" => Reply::ending(Ending::Disconnect),
            _ => Reply::ending(Ending::Hang),
        })
    })
    .unwrap();
    let client = RawClient::connect(&socket).unwrap();
    let error = client.call(&CallHead::new("/a.b/Error"), b"");
    assert_eq!((error.status(), error.status_message().as_str()), (Some(9), "no"));
    assert_eq!(error.trailers.unwrap()[2..], extra);
    let only = client.call(&CallHead::new("/a.b/Only"), b"");
    assert_eq!((only.status(), only.trailers), (Some(14), None));
    assert_eq!(client.call(&CallHead::new("/a.b/Reset"), b"").reset, Some(7));
    let hanging = client.start(&CallHead::new("/a.b/Hang"), b"").unwrap();
    runtime.wait_call("Hang", 1);
    hanging.cancel();
    crate::wait::until_true("the cancellation", || runtime.calls_of("Hang")[0].reset == Some(code::CANCEL));
    let goaway = client.call(&CallHead::new("/a.b/Goaway"), b"");
    assert!(goaway.lost.is_some());
    assert_eq!(client.peer().wait_goaway(Duration::ZERO).unwrap().last_stream, 7);
    let client = RawClient::connect(&socket).unwrap();
    assert!(client.call(&CallHead::new("/a.b/Disconnect"), b"").lost.is_some());
}

#[test]
fn it_dies_and_comes_back() {
    let (_directory, socket) = place();
    let mut runtime = FakeRuntime::start(&socket, echo()).unwrap();
    let client = RawClient::connect(&socket).unwrap();
    client.cri("Version", b"").expect_ok();
    runtime.kill();
    assert!(client.peer().wait_lost(LIMIT).is_some());
    assert!(RawClient::connect(&socket).is_err());
    runtime.listen().unwrap();
    RawClient::connect(&socket).unwrap().cri("Version", b"").expect_ok();
    assert_eq!((runtime.calls().len(), runtime.connections()), (2, 2));
}

#[test]
fn a_byte_client_says_what_it_likes() {
    let (_directory, socket) = place();
    let _runtime = FakeRuntime::start(&socket, echo()).unwrap();
    let mut client = ByteClient::connect(&socket).unwrap();
    client.send(PREFACE).unwrap();
    client.send_frame(&Frame::settings(&[])).unwrap();
    client.send_frame(&Frame::ping(*b"12345678")).unwrap();
    let pong = client.read_until(|frame| frame.kind == kind::PING).unwrap();
    assert_eq!(pong, Frame::new(kind::PING, 1, 0, *b"12345678"));
    client.send_frame(&Frame::new(kind::HEADERS, 4, 1, [0xff; 5])).unwrap();
    client.drain(1 << 20).unwrap();
}
