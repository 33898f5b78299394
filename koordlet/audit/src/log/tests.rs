use std::time::UNIX_EPOCH;

use super::*;
use crate::event::Subject;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a text"))
        .collect();
    names.sort();
    names
}

fn event(message: String) -> Event {
    Event::about(Subject::Node).message(message)
}

/// A record whose line has exactly `size` bytes, its end included.
fn sized(size: usize) -> Event {
    let empty = event("x".to_owned()).to_line().len() + 1;
    event("x".repeat(size - empty + 1))
}

/// Makes the current file a byte short of its size and writes a record, which ends it.
fn fill(log: &mut Log, now: SystemTime) {
    let file = File::create(log.folder().join(CURRENT_FILE)).expect("a file");
    file.set_len(FILE_SIZE - 1).expect("a size");
    log.append(&event("last".to_owned()), now).expect("a record");
}

#[test]
fn records_wait_at_most_five_seconds_while_others_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = Log::new(folder.path().join("deep/er"), 16);
    let path = log.folder().join(CURRENT_FILE);
    let lines = || fs::read_to_string(&path).map_or(0, |text| text.lines().count());
    assert!(!log.folder().exists());
    log.append(&event("1".to_owned()), at(1_000)).expect("a record");
    assert_eq!(lines(), 1);
    log.append(&event("2".to_owned()), at(1_004)).expect("a record");
    assert_eq!(lines(), 1);
    log.append(&event("3".to_owned()), at(1_005)).expect("a record");
    assert_eq!(lines(), 3);
    log.append(&event("4".to_owned()), at(1_006)).expect("a record");
    assert_eq!(lines(), 3);
    log.flush(at(1_007)).expect("written");
    assert_eq!(lines(), 4);
    // The clock is set back.
    log.append(&event("5".to_owned()), at(500)).expect("a record");
    assert_eq!(lines(), 5);
}

#[test]
fn a_file_is_rotated_at_two_mebibytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = Log::new(folder.path().to_owned(), 16);
    let size = usize::try_from(FILE_SIZE).expect("a size");
    log.append(&sized(size - 100), at(1_782_907_200)).expect("a record");
    log.append(&sized(99), at(1_782_907_200)).expect("a record");
    assert_eq!(names(folder.path()), ["audit.log"]);
    // One byte short of the limit; the next record, however small, ends the file.
    log.append(&sized(50), at(1_782_907_200)).expect("a record");
    assert_eq!(names(folder.path()), ["audit-2026-07-01-12-00-00-0.log"]);
    log.append(&sized(50), at(1_782_907_201)).expect("a record");
    assert_eq!(names(folder.path()), ["audit-2026-07-01-12-00-00-0.log", "audit.log"]);
}

#[test]
fn files_of_one_second_have_numbers_from_0_to_8() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = Log::new(folder.path().to_owned(), 64);
    for _ in 0..11 {
        fill(&mut log, at(1_782_907_200));
    }
    let wanted: Vec<String> =
        (0..=8).map(|number| format!("audit-2026-07-01-12-00-00-{number}.log")).collect();
    assert_eq!(names(folder.path()), wanted);
}

#[test]
fn the_disk_holds_one_file_for_every_two_mebibytes() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("audit-notes.txt"), "not ours").expect("a file");
    let mut second = 1_000;
    for (megabytes, files) in [(16, 8), (5, 2), (4, 2), (2, 1), (1, 1)] {
        let mut log = Log::new(folder.path().to_owned(), megabytes);
        for _ in 0..10 {
            second += 1;
            fill(&mut log, at(second));
            log.append(&event("current".to_owned()), at(second)).expect("a record");
            let ours = names(folder.path()).iter().filter(|name| name.ends_with(".log")).count();
            assert!(ours <= files, "{ours} files with {megabytes} MiB");
            // The next round makes the current file anew.
            log = Log::new(folder.path().to_owned(), megabytes);
            fs::remove_file(folder.path().join(CURRENT_FILE)).expect("removed");
        }
        let ours: Vec<String> =
            names(folder.path()).into_iter().filter(|name| name.ends_with(".log")).collect();
        assert_eq!(ours.len(), files - 1);
        // The newest ones stay.
        assert!(ours.last().is_none_or(|name| *name == rotated_name(at(second), 0)), "{ours:?}");
    }
    assert!(folder.path().join("audit-notes.txt").exists());
}

#[test]
fn a_log_goes_on_where_another_process_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(CURRENT_FILE);
    let size = usize::try_from(FILE_SIZE).expect("a size");
    fs::write(&path, format!("{}\n{{\"type\":\"no", "x".repeat(size - 100))).expect("a file");
    let mut log = Log::new(folder.path().to_owned(), 16);
    log.append(&event("first".to_owned()), at(0)).expect("a record");
    let text = fs::read_to_string(&path).expect("a file");
    assert!(
        text.ends_with("\n{\"type\":\"no\n{\"type\":\"node\",\"message\":\"first\"}\n"),
        "half a record was continued"
    );
    // What was there counts towards the size.
    log.append(&sized(100), at(1)).expect("a record");
    assert_eq!(names(folder.path()), ["audit-1970-01-01-00-00-01-0.log"]);
}

#[test]
fn a_failure_loses_a_record_and_not_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let blocked = folder.path().join("audit");
    fs::write(&blocked, "a file in the folder's place").expect("a file");
    let mut log = Log::new(blocked.clone(), 16);
    let error = log.append(&event("lost".to_owned()), at(0)).expect_err("no folder");
    assert_eq!((error.action, &error.path), ("create", &blocked));
    fs::remove_file(&blocked).expect("removed");
    log.append(&event("kept".to_owned()), at(0)).expect("a record");
    log.flush(at(0)).expect("written");
    let text = fs::read_to_string(blocked.join(CURRENT_FILE)).expect("a file");
    assert_eq!(text, "{\"type\":\"node\",\"message\":\"kept\"}\n");
}

#[test]
fn a_full_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/dev/full", folder.path().join(CURRENT_FILE)).expect("a link");
    let mut log = Log::new(folder.path().to_owned(), 16);
    let error = log.append(&event("lost".to_owned()), at(0)).expect_err("no space");
    assert_eq!((error.action, error.source.kind()), ("write", io::ErrorKind::StorageFull));
    fs::remove_file(folder.path().join(CURRENT_FILE)).expect("removed");
    log.append(&event("kept".to_owned()), at(0)).expect("a record");
}
