use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::*;
use crate::event::Subject;
use crate::readers::TOKEN_LIFETIME;

struct Bed {
    auditor: Auditor,
    /// Removed when the test ends.
    folder: tempfile::TempDir,
    start: Instant,
    tokens: std::cell::Cell<u32>,
}

fn bed(events: u32) -> Bed {
    let folder = tempfile::tempdir().expect("a folder");
    let options = AuditOptions { folder: folder.path().to_owned(), ..AuditOptions::default() };
    let auditor = Auditor::new(options);
    for number in 1..=events {
        auditor.record(1, Event::about(Subject::Group(number.to_string())), UNIX_EPOCH).expect("a record");
    }
    Bed { auditor, folder, start: Instant::now(), tokens: 0.into() }
}

impl Bed {
    fn ask_at(&self, query: &str, accept: &str, since: Duration) -> Reply {
        let token = || {
            self.tokens.set(self.tokens.get() + 1);
            Ok(format!("token-{}", self.tokens.get()))
        };
        self.auditor.answer(Some(query), &[accept], token, UNIX_EPOCH, self.start + since)
    }

    /// Status, names of the records and the next token.
    fn ask(&self, query: &str) -> (u16, Vec<String>, String) {
        let reply = self.ask_at(query, "application/json", Duration::ZERO);
        if reply.status != 200 {
            return (reply.status, Vec::new(), String::new());
        }
        let page: Value = serde_json::from_str(&reply.body).expect("JSON");
        let names = page["Events"].as_array().expect("a list").iter();
        let names = names.map(|event| event["name"].as_str().expect("a text").to_owned()).collect();
        (200, names, page["NextPageToken"].as_str().expect("a text").to_owned())
    }
}

#[test]
fn pages_of_26_events() {
    let bed = bed(26);
    let (status, names, token) = bed.ask("size=10");
    assert_eq!((status, names.len()), (200, 10));
    assert_eq!((names[0].as_str(), names[9].as_str()), ("26", "17"));
    assert_eq!(token, "token-1");
    let mut all = names;
    for (size, wanted, next) in
        [(1, 1, "token-1"), (5, 5, "token-1"), (5, 5, "token-1"), (5, 5, "token-1"), (5, 0, "")]
    {
        let (status, names, token) = bed.ask(&format!("size={size}&pageToken=token-1"));
        assert_eq!((status, names.len(), token.as_str()), (200, wanted, next));
        all.extend(names);
    }
    let every: Vec<String> = (1..=26).rev().map(|number| number.to_string()).collect();
    assert_eq!(all, every);
    // The end stays the end, and needs no further token.
    assert_eq!(bed.ask("pageToken=token-1"), (200, Vec::new(), String::new()));
}

#[test]
fn sizes_and_tokens() {
    let bed = bed(300);
    assert_eq!(bed.ask("size=2049").0, 400);
    assert_eq!(bed.ask("size=abc").1.len(), 256);
    assert_eq!(bed.ask("size=-1").0, 400);
    assert_eq!(bed.ask("pageToken=unknown").0, 409);
    // What was refused made no reader.
    assert_eq!(bed.auditor.readers(), 1);
    assert_eq!(bed.ask("size=300").1.len(), 300);
}

#[test]
fn five_readers() {
    let bed = bed(3);
    for _ in 0..5 {
        assert_eq!(bed.ask("size=1").1, ["3"]);
    }
    assert_eq!(bed.ask("size=1&pageToken=token-1").0, 409);
    assert_eq!(bed.ask("size=1&pageToken=token-2").1, ["2"]);
    assert_eq!(bed.ask("size=1&pageToken=token-5").1, ["2"]);
}

#[test]
fn nine_readers() {
    let bed = bed(3);
    for _ in 0..9 {
        bed.ask("size=1");
    }
    assert_eq!(bed.auditor.readers(), 4);
    for number in 1..=9 {
        let status = bed.ask(&format!("size=1&pageToken=token-{number}")).0;
        assert_eq!(status, if number <= 5 { 409 } else { 200 }, "token {number}");
    }
}

#[test]
fn a_size_of_zero() {
    let bed = bed(2);
    assert_eq!(bed.ask("size=0"), (200, Vec::new(), "token-1".to_owned()));
    assert_eq!(bed.ask("size=0&pageToken=token-1"), (200, Vec::new(), "token-1".to_owned()));
    assert_eq!(bed.ask("size=1&pageToken=token-1").1, ["2"]);
}

#[test]
fn a_token_expires() {
    let bed = bed(5);
    let ask = |query, since| bed.ask_at(query, "*/*", since).status;
    assert_eq!(ask("size=1", Duration::ZERO), 200);
    assert_eq!(ask("size=1&pageToken=token-1", TOKEN_LIFETIME), 200);
    assert_eq!(ask("size=1&pageToken=token-1", TOKEN_LIFETIME * 2), 200);
    assert_eq!(ask("size=1&pageToken=token-1", TOKEN_LIFETIME * 3 + Duration::from_millis(1)), 409);
    assert_eq!(ask("size=1", Duration::ZERO), 200);
    assert_eq!(bed.auditor.readers(), 1);
    bed.auditor.housekeep(UNIX_EPOCH, bed.start + TOKEN_LIFETIME + Duration::from_millis(1)).expect("kept");
    assert_eq!(bed.auditor.readers(), 0);
}

#[test]
fn lines_and_the_header() {
    let bed = bed(2);
    let reply = bed.ask_at("size=2", "*/*", Duration::ZERO);
    assert_eq!(reply.next_page_token.as_deref(), Some("token-1"));
    assert_eq!(reply.body.lines().count(), 2);
    assert!(
        reply
            .body
            .starts_with("{\"createdAt\":\"1970-01-01T00:00:00.000Z\",\"type\":\"group\",\"name\":\"2\"}\n")
    );
    let reply = bed.ask_at("pageToken=token-1", "*/*", Duration::ZERO);
    assert_eq!((reply.next_page_token, reply.body.as_str()), (None, ""));
}

#[test]
fn events_above_the_verbosity_are_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    for (limit, wanted) in [(0, 4), (1, 2), (3, 3)] {
        let folder = folder.path().join(limit.to_string());
        let options = AuditOptions { folder, verbosity: limit, ..AuditOptions::default() };
        let auditor = Auditor::new(options);
        for verbosity in [0, 1, 3, 4] {
            auditor.record(verbosity, Event::about(Subject::Node), UNIX_EPOCH).expect("a record");
        }
        let reply = auditor.answer(None, &[], random_token, UNIX_EPOCH, Instant::now());
        assert_eq!(reply.body.lines().count(), wanted, "limit {limit}");
    }
}

#[test]
fn events_recorded_while_pages_are_read_are_not_in_them() {
    let bed = bed(3);
    assert_eq!(bed.ask("size=1").1, ["3"]);
    bed.auditor.record(1, Event::about(Subject::Group("4".to_owned())), UNIX_EPOCH).expect("a record");
    assert_eq!(bed.ask("pageToken=token-1").1, ["2", "1"]);
    assert_eq!(bed.ask("size=1").1, ["4"]);
}

#[test]
fn the_pages_of_a_log_that_cannot_be_written() {
    let bed = bed(2);
    assert_eq!(bed.ask("").1, ["2", "1"]);
    let file = bed.folder.path().join("audit.log");
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("a folder in the file's place");
    let blocked =
        Auditor::new(AuditOptions { folder: bed.folder.path().to_owned(), ..AuditOptions::default() });
    assert!(blocked.record(1, Event::about(Subject::Node), UNIX_EPOCH).is_err());
    let reply = blocked.answer(None, &[], random_token, UNIX_EPOCH, Instant::now());
    assert_eq!(reply.status, 500);
}

#[test]
fn without_a_token_there_is_no_reader() {
    let bed = bed(1);
    let none = || Err(io::Error::other("no entropy"));
    let reply = bed.auditor.answer(None, &[], none, UNIX_EPOCH, bed.start);
    assert_eq!((reply.status, reply.body.as_str()), (500, "the audit log cannot be read: no entropy\n"));
    assert_eq!(bed.auditor.readers(), 0);
}

#[test]
fn tokens_are_not_repeated() {
    let (one, other) = (random_token().expect("a token"), random_token().expect("a token"));
    assert_eq!(one.len(), 36);
    assert_ne!(one, other);
}
