use std::collections::BTreeMap;

use proptest::prelude::*;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

/// Reads an entry back, as the journal does.
fn decode(mut entry: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while !entry.is_empty() {
        let at = entry.iter().position(|byte| matches!(byte, b'=' | b'\n')).expect("a field");
        let name = String::from_utf8(entry[..at].to_vec()).expect("text");
        let (value, rest) = if entry[at] == b'=' {
            let end = at + entry[at..].iter().position(|byte| *byte == b'\n').expect("an end");
            (&entry[at + 1..end], &entry[end + 1..])
        } else {
            let length = u64::from_le_bytes(entry[at + 1..at + 9].try_into().expect("eight bytes"));
            let end = at + 9 + usize::try_from(length).expect("small");
            assert_eq!(entry[end], b'\n');
            (&entry[at + 9..end], &entry[end + 1..])
        };
        fields.insert(name, String::from_utf8(value.to_vec()).expect("text"));
        entry = rest;
    }
    fields
}

struct Ear {
    socket: UnixDatagram,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Ear {
    fn new() -> Ear {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("allowed");
        Ear { socket, path, _folder: folder }
    }

    /// The next entry that is not empty.
    fn heard(&self) -> BTreeMap<String, String> {
        let mut buffer = [0; 65536];
        loop {
            let length = self.socket.recv(&mut buffer).expect("an entry");
            if length > 0 {
                return decode(&buffer[..length]);
            }
        }
    }
}

#[test]
fn lines_arrive_with_priority_text_and_fields() {
    let ear = Ear::new();
    let journal = Journal::open(&ear.path).expect("it listens");
    let subscriber = tracing_subscriber::Registry::default().with(journal);
    tracing::subscriber::with_default(subscriber, || {
        let span = tracing::info_span!(
            "task",
            task = "failover",
            pod = "of the span",
            later = tracing::field::Empty
        );
        let _entered = span.enter();
        span.record("later", 7);
        tracing::error!(pod = "a/b", error = "two\nlines", free = 3, "values not written");
        let entry = ear.heard();
        let field = |name: &str| entry.get(name).map(String::as_str);
        assert_eq!(
            field("MESSAGE"),
            Some("values not written pod=a/b error=\"two\\nlines\" free=3 task=failover later=7")
        );
        assert_eq!(field("PRIORITY"), Some("3"));
        assert_eq!(field("TARGET"), Some("koord_runtime::journal::tests"));
        assert!(field("CODE_FILE").is_some_and(|file| file.ends_with("journal/tests.rs")));
        assert!(field("CODE_LINE").is_some_and(|line| line.parse::<u32>().is_ok()));
        assert_eq!(field("KOORD_POD"), Some("a/b"), "the line's own value counts");
        assert_eq!(field("KOORD_ERROR"), Some("two\nlines"));
        assert_eq!(field("KOORD_FREE"), Some("3"));
        assert_eq!(field("KOORD_TASK"), Some("failover"));
        assert_eq!(field("KOORD_LATER"), Some("7"));
        assert!(
            field("SYSLOG_IDENTIFIER").is_some_and(|name| name.starts_with("koord_runtime-")),
            "{entry:?}"
        );
        assert_eq!(entry.len(), 11, "{entry:?}");

        for (level, priority) in [("warn", "4"), ("info", "6"), ("debug", "7"), ("trace", "7")] {
            match level {
                "warn" => tracing::warn!("x"),
                "info" => tracing::info!("x"),
                "debug" => tracing::debug!("x"),
                _ => tracing::trace!("x"),
            }
            assert_eq!(ear.heard().get("PRIORITY").map(String::as_str), Some(priority), "{level}");
        }
    });
}

#[test]
fn lost_lines_are_counted_when_the_journal_is_back() {
    let ear = Ear::new();
    let journal = Journal::open(&ear.path).expect("it listens");
    let moved = ear.path.with_extension("away");
    let subscriber = tracing_subscriber::Registry::default().with(journal);
    tracing::subscriber::with_default(subscriber, || {
        std::fs::rename(&ear.path, &moved).expect("moved");
        tracing::debug!("one");
        tracing::debug!("two");
        std::fs::rename(&moved, &ear.path).expect("moved back");
        tracing::debug!("three");
        tracing::debug!("four");
    });
    let (third, fourth) = (ear.heard(), ear.heard());
    assert_eq!(third.get("MESSAGE").map(String::as_str), Some("three"));
    assert_eq!(third.get("KOORD_LOST_LINES").map(String::as_str), Some("2"));
    assert_eq!(fourth.get("KOORD_LOST_LINES"), None);
}

#[test]
fn without_a_journal_there_is_none_to_open() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(Journal::open(&folder.path().join("none")).is_err());
}

#[test]
fn names_are_those_the_journal_takes() {
    for (name, expected) in [("pod", "KOORD_POD"), ("pid.host", "KOORD_PID_HOST"), ("é", "KOORD__")] {
        assert_eq!(field_name(name), expected);
    }
    assert_eq!(field_name(&"x".repeat(80)).len(), LONGEST_NAME);
}

proptest! {
    #[test]
    fn any_value_is_read_back(value in ".*(\n.*)?", name in "[A-Z][A-Z0-9_]{0,20}") {
        let mut entry = Vec::new();
        put(&mut entry, &name, &value);
        put(&mut entry, "AFTER", "x");
        let fields = decode(&entry);
        prop_assert_eq!(fields.get(&name), Some(&value));
        prop_assert_eq!(fields.get("AFTER").map(String::as_str), Some("x"));
    }
}
