//! The encoding that programs of different versions share.

use prost::Message as _;

use crate::v1::object::Object as Kind;
use crate::v1::watch_response::Event;
use crate::v1::{Node, Object, Pass, Series, WatchRequest, WatchResponse};

#[test]
fn field_numbers_are_frozen() {
    let pass = Pass {
        tick: 1000,
        series: vec![Series {
            number: 7,
            kind: 1,
            object: Some(Object { object: Some(Kind::Node(Node {})) }),
        }],
        forgotten: vec![3],
        numbers: vec![7],
        values: vec![0.5],
        is_backfill: true,
    };
    let mut expected = vec![0x08, 0xe8, 0x07];
    expected.extend([0x12, 0x08, 0x08, 0x07, 0x10, 0x01, 0x1a, 0x02, 0x0a, 0x00]);
    expected.extend([0x1a, 0x01, 0x03, 0x22, 0x01, 0x07, 0x2a, 0x08]);
    expected.extend(0.5_f64.to_le_bytes());
    expected.extend([0x30, 0x01]);
    assert_eq!(pass.encode_to_vec(), expected);
    assert_eq!(Pass::decode(expected.as_slice()), Ok(pass));
}

#[test]
fn an_event_of_a_later_version_is_no_event() {
    // Field 100, length-delimited, of two octets.
    let later = [0xa2, 0x06, 0x02, 0x08, 0x01];
    assert_eq!(WatchResponse::decode(later.as_slice()), Ok(WatchResponse { event: None }));
}

#[test]
fn cut_messages_are_errors() {
    let whole = WatchResponse {
        event: Some(Event::Pass(Pass { tick: 5, values: vec![1.0, 2.0], ..Pass::default() })),
    }
    .encode_to_vec();
    for length in 1..whole.len() {
        assert!(WatchResponse::decode(&whole[..length]).is_err(), "{length} octets");
    }
}

#[test]
fn parts_that_are_not_known_stay_numbers() {
    let request = WatchRequest { backfill_milliseconds: 300_000, parts: vec![1, 77] };
    let read = WatchRequest::decode(request.encode_to_vec().as_slice());
    assert_eq!(read, Ok(request));
}
