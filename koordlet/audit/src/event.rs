//! A record of the audit log.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use koord_extension::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest message, in bytes; a longer one is cut. It bounds a record, and with it what a file may hold beyond its
/// limit.
pub const LONGEST_MESSAGE: usize = 16 * 1024;

/// The longest name of anything in a record, in bytes; a longer one is cut. Kubernetes allows 253.
pub const LONGEST_NAME: usize = 512;

/// What a record is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The node itself.
    Node,
    /// A pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Pods of a class, or a cgroup.
    Group(String),
    /// Something else, by name.
    Unknown(String),
}

/// One record. In JSON, what is empty is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// When, RFC 3339. Written in UTC with milliseconds; Koordinator writes local time with nanoseconds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub created_at: String,
    /// `node`, `pod`, `group` or `unknown`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// How important it is, in the writer's words. Koordinator leaves it empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub level: String,
    /// Namespace of the pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the pod, group or other thing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Container of the pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// Why, one word in camel case.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Event {
    /// A record about `subject`. The time is set when it is recorded.
    pub fn about(subject: Subject) -> Event {
        let (kind, namespace, name) = match subject {
            Subject::Node => ("node", String::new(), String::new()),
            Subject::Pod { namespace, name } => ("pod", namespace, name),
            Subject::Group(name) => ("group", String::new(), name),
            Subject::Unknown(name) => ("unknown", String::new(), name),
        };
        let kind = kind.to_owned();
        Event { kind, namespace, name, ..Event::default() }
    }

    /// With a reason.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Event {
        self.reason = reason.into();
        self
    }

    /// With a message.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Event {
        self.message = message.into();
        self
    }

    /// With the container of the pod.
    #[must_use]
    pub fn container(mut self, container: impl Into<String>) -> Event {
        self.container = container.into();
        self
    }

    /// With a time, and with texts cut to their limits.
    #[must_use]
    pub fn recorded(mut self, at: SystemTime) -> Event {
        self.created_at = time_text(at);
        cut(&mut self.message, LONGEST_MESSAGE);
        for text in [
            &mut self.kind,
            &mut self.level,
            &mut self.namespace,
            &mut self.name,
            &mut self.container,
            &mut self.reason,
        ] {
            cut(text, LONGEST_NAME);
        }
        self
    }

    /// The record as one line of JSON, without the line's end.
    pub fn to_line(&self) -> String {
        // Texts are always representable.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a line.
    pub fn parse(line: &[u8]) -> Result<Event, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

/// RFC 3339 in UTC with milliseconds.
fn time_text(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = Timestamp::from_unix_seconds(since.as_secs()).to_string();
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), since.subsec_millis())
}

/// Cuts a text at a border between characters.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(milliseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_record_as_json() {
        let subject = Subject::Pod { namespace: "default".into(), name: "web".into() };
        let event = Event::about(subject)
            .container("main")
            .reason("cpuBurst")
            .message("quota 100000 -> 150000")
            .recorded(at(1_782_907_200_045));
        assert_eq!(
            event.to_line(),
            r#"{"createdAt":"2026-07-01T12:00:00.045Z","type":"pod","namespace":"default","name":"web","container":"main","reason":"cpuBurst","message":"quota 100000 -> 150000"}"#
        );
        assert_eq!(Event::about(Subject::Node).to_line(), r#"{"type":"node"}"#);
        assert_eq!(
            Event::about(Subject::Group("besteffort".into())).to_line(),
            r#"{"type":"group","name":"besteffort"}"#
        );
        assert_eq!(Event::about(Subject::Unknown("x".into())).to_line(), r#"{"type":"unknown","name":"x"}"#);
    }

    #[test]
    fn a_record_of_koordinator() {
        let line = br#"{"createdAt":"2021-04-05T12:05:01.123456789+08:00","type":"node","level":"1","reason":"evictBE","later":[]}"#;
        let event = Event::parse(line).expect("a record");
        assert_eq!((&*event.kind, &*event.level, &*event.reason), ("node", "1", "evictBE"));
        assert_eq!(event.created_at, "2021-04-05T12:05:01.123456789+08:00");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let event = Event::about(Subject::Group("\u{e9}".repeat(LONGEST_NAME)))
            .message("x".repeat(LONGEST_MESSAGE + 1))
            .recorded(at(0));
        assert_eq!((event.name.len(), event.message.len()), (LONGEST_NAME, LONGEST_MESSAGE));
        let event =
            Event::about(Subject::Group(format!("x{}", "\u{e9}".repeat(LONGEST_NAME)))).recorded(at(0));
        assert_eq!(event.name.len(), LONGEST_NAME - 1);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(name in ".{0,40}", message in "(?s).{0,200}", time in 0_u64..253_402_300_799_000) {
            let event = Event::about(Subject::Unknown(name)).message(message).recorded(at(time));
            let line = event.to_line();
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(Event::parse(line.as_bytes()).expect("a record"), event);
        }

        #[test]
        fn any_octets_are_a_record_or_an_error(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Event::parse(&line);
        }
    }
}
