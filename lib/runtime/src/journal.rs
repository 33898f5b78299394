//! Log lines as entries of systemd's journal.
//!
//! The journal takes entries as datagrams of fields (its native protocol). Lines on standard error would arrive there
//! without priority and with their fields as text, so that `journalctl -p warning` or a search for one pod's lines found
//! nothing. Fields of lines and of the spans around them become `KOORD_` fields, and are part of `MESSAGE` as well, which is
//! what `journalctl` and `systemctl status` show. The crate `tracing-journald` does the first, and leaves the second out:
//! the reason of an error would not be seen.

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::environment::program;

/// Where the journal listens.
pub(crate) const SOCKET: &str = "/run/systemd/journal/socket";

/// Fields of the product's lines start with this.
const PREFIX: &str = "KOORD_";

/// The journal refuses longer names of fields.
const LONGEST_NAME: usize = 64;

/// A journal that is stuck must not hold up calls: after this a line is lost, and counted.
const SEND_TIMEOUT: Duration = Duration::from_millis(250);

/// Names and values, in the order they were recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn set(&mut self, field: &Field, value: String) {
        let name = field.name();
        let name = name.strip_prefix("r#").unwrap_or(name);
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}

/// Sends lines to the journal.
#[derive(Debug)]
pub(crate) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    /// The program, which the journal would otherwise cut after 15 letters.
    identifier: String,
    lost: AtomicU64,
}

impl Journal {
    /// The journal that listens at `path`.
    ///
    /// # Errors
    /// There is none, or no socket could be created.
    pub(crate) fn open(path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        // Not connected: the journal may be started anew, with a new socket at the path. One empty datagram, which
        // it ignores, tells whether it is there.
        socket.send_to(&[], path)?;
        let program = program().unwrap_or_default();
        let identifier = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Journal { socket, path: path.to_owned(), identifier, lost: AtomicU64::new(0) })
    }

    fn send(&self, entry: &Entry<'_>) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if self.socket.send_to(&entry.encode(lost), &self.path).is_ok() {
            return;
        }
        self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        // While the journal is started anew, its other way in may be open: the service manager holds that.
        if !matches!(entry.level, &Level::DEBUG | &Level::TRACE) {
            let _ = writeln!(io::stderr(), "<{}>{}", priority(entry.level), entry.message());
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Journal {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // The nearest span first: what it says is closest to the line.
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                let new: Vec<_> = of_span.0.iter().filter(|(name, _)| !fields.has(name)).cloned().collect();
                fields.0.extend(new);
            }
        }
        let metadata = event.metadata();
        self.send(&Entry {
            level: metadata.level(),
            identifier: &self.identifier,
            target: metadata.target(),
            file: metadata.file(),
            line: metadata.line(),
            fields: &fields,
        });
    }
}

/// One line.
struct Entry<'a> {
    level: &'a Level,
    identifier: &'a str,
    target: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    fields: &'a Fields,
}

impl Entry<'_> {
    /// The text and all fields, in one line.
    fn message(&self) -> String {
        let text = self.fields.0.iter().find(|(name, _)| *name == "message");
        let mut message = text.map_or_else(String::new, |(_, text)| text.clone());
        for (name, value) in self.fields.0.iter().filter(|(name, _)| *name != "message") {
            let plain = !value.is_empty()
                && value.chars().all(|letter| letter.is_ascii_graphic() && !matches!(letter, '"' | '='));
            // Writing to a String cannot fail.
            let _infallible =
                if plain { write!(message, " {name}={value}") } else { write!(message, " {name}={value:?}") };
        }
        message
    }

    /// The entry as the journal wants it. `lost` is the number of lines before it that could not be sent.
    fn encode(&self, lost: u64) -> Vec<u8> {
        let mut entry = Vec::with_capacity(512);
        put(&mut entry, "MESSAGE", &self.message());
        put(&mut entry, "PRIORITY", &priority(self.level).to_string());
        if !self.identifier.is_empty() {
            put(&mut entry, "SYSLOG_IDENTIFIER", self.identifier);
        }
        put(&mut entry, "TARGET", self.target);
        if let Some(file) = self.file {
            put(&mut entry, "CODE_FILE", file);
        }
        if let Some(line) = self.line {
            put(&mut entry, "CODE_LINE", &line.to_string());
        }
        if lost > 0 {
            put(&mut entry, &field_name("lost_lines"), &lost.to_string());
        }
        for (name, value) in self.fields.0.iter().filter(|(name, _)| *name != "message") {
            put(&mut entry, &field_name(name), value);
        }
        entry
    }
}

/// The numbers of `syslog(3)`.
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// `KOORD_` and the name in capital letters; what the journal does not take in a name becomes `_`.
fn field_name(name: &str) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' }
    };
    PREFIX.chars().chain(name.chars().map(letter)).take(LONGEST_NAME).collect()
}

/// Appends a field. A value with line breaks is sent with its length.
fn put(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}
