use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::event::Subject;
use crate::log::{FILE_SIZE, Log};

fn lines_of(octets: &[u8]) -> Vec<Vec<u8>> {
    let mut file = tempfile::tempfile().expect("a file");
    io::Write::write_all(&mut file, octets).expect("written");
    let mut lines = ReverseLines::new(file).expect("a reader");
    let mut found = Vec::new();
    while let Some(line) = lines.next_line().expect("readable") {
        found.push(line);
    }
    // The end stays the end.
    assert_eq!(lines.next_line().expect("readable"), None);
    found
}

#[test]
fn lines_come_last_first() {
    assert_eq!(lines_of(b""), Vec::<Vec<u8>>::new());
    assert_eq!(lines_of(b"\n\n"), Vec::<Vec<u8>>::new());
    assert_eq!(lines_of(b"one"), [b"one"]);
    assert_eq!(lines_of(b"one\ntwo\n\nthree\n"), [&b"three"[..], b"two", b"one"]);
    assert_eq!(lines_of(b"\none\ntail"), [&b"tail"[..], b"one"]);
}

#[test]
fn lines_around_the_size_of_a_block() {
    for length in [BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
        let long = vec![b'x'; length];
        let mut text = b"first\n".to_vec();
        text.extend(&long);
        text.extend(b"\nlast\n");
        assert_eq!(lines_of(&text), [&b"last"[..], &long, b"first"], "{length}");
    }
}

#[test]
fn a_line_that_is_too_long_is_passed_over() {
    let mut text = b"first\n".to_vec();
    text.extend(vec![b'x'; LONGEST_LINE + 2 * BLOCK]);
    text.extend(b"\nlast\n");
    assert_eq!(lines_of(&text), [&b"last"[..], b"first"]);
    let only = vec![b'x'; LONGEST_LINE + 2 * BLOCK];
    assert_eq!(lines_of(&only), Vec::<Vec<u8>>::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_lines_and_no_others(
        lines in proptest::collection::vec("[a-z]{0,2500}", 0..12), is_ended in any::<bool>(),
    ) {
        let mut text = lines.join("\n");
        if is_ended {
            text.push('\n');
        }
        let wanted: Vec<Vec<u8>> =
            lines.into_iter().rev().filter(|line| !line.is_empty()).map(String::into_bytes).collect();
        prop_assert_eq!(lines_of(text.as_bytes()), wanted);
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn write(log: &mut Log, number: u32, now: SystemTime, size: usize) {
    let event = Event::about(Subject::Group(number.to_string())).message("x".repeat(size));
    log.append(&event, now).expect("a record");
}

fn numbers(reader: &mut ReverseReader) -> Vec<u32> {
    let mut found = Vec::new();
    while let Some(event) = reader.next_event().expect("readable") {
        found.push(event.name.parse().expect("a number"));
    }
    found
}

#[test]
fn records_of_all_files_newest_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = Log::new(folder.path().to_owned(), 16);
    let third = usize::try_from(FILE_SIZE / 3 + 1).expect("a size").min(LONGEST_LINE - 1_000);
    let mut wanted = Vec::new();
    for number in 0..40 {
        write(&mut log, number, at(1_000 + u64::from(number)), third);
        wanted.insert(0, number);
    }
    log.flush(at(2_000)).expect("written");
    assert!(rotated_files(folder.path()).expect("files").len() >= 4, "nothing was rotated");
    let mut reader = ReverseReader::open(folder.path()).expect("a reader");
    assert_eq!(numbers(&mut reader), wanted);
}

#[test]
fn what_happens_to_the_files_while_they_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let record = |number: u32| format!("{{\"type\":\"group\",\"name\":\"{number}\"}}\n");
    fs::write(path("audit-2026-07-01-12-00-00-0.log"), record(1)).expect("a file");
    fs::write(path("audit-2026-07-01-12-00-00-1.log"), record(2)).expect("a file");
    fs::write(path("audit-2026-07-01-12-00-01-0.log"), record(3)).expect("a file");
    fs::write(path(CURRENT_FILE), record(4)).expect("a file");
    let mut reader = ReverseReader::open(folder.path()).expect("a reader");
    // Rotated, written anew, and one of the old files removed.
    fs::rename(path(CURRENT_FILE), path("audit-2026-07-01-12-00-02-0.log")).expect("renamed");
    fs::write(path(CURRENT_FILE), record(5)).expect("a file");
    fs::remove_file(path("audit-2026-07-01-12-00-00-1.log")).expect("removed");
    assert_eq!(numbers(&mut reader), [4, 3, 1]);
    assert_eq!(numbers(&mut ReverseReader::open(folder.path()).expect("a reader")), [5, 4, 3, 1]);
}

#[test]
fn a_file_is_read_once_even_if_it_has_two_names() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join(CURRENT_FILE), "{\"name\":\"1\"}\n").expect("a file");
    fs::hard_link(folder.path().join(CURRENT_FILE), folder.path().join("audit-2026-07-01-12-00-00-0.log"))
        .expect("a link");
    assert_eq!(numbers(&mut ReverseReader::open(folder.path()).expect("a reader")), [1]);
}

#[test]
fn what_is_no_record_is_passed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join(CURRENT_FILE), "{\"name\":\"1\"}\nnoise\n{\"name\":\"2\"}\n{\"na")
        .expect("a file");
    let mut reader = ReverseReader::open(folder.path()).expect("a reader");
    assert_eq!(numbers(&mut reader), [2, 1]);
    assert_eq!(reader.malformed(), 2);
}

#[test]
fn no_folder_no_records() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(numbers(&mut ReverseReader::open(&folder.path().join("none")).expect("a reader")), [0_u32; 0]);
    assert_eq!(numbers(&mut ReverseReader::open(folder.path()).expect("a reader")), [0_u32; 0]);
}
