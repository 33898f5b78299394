//! Log output: level, form, and the panic hook.
//!
//! Verbosity follows the numbers operators know from Kubernetes programs:
//!
//! | `--v` | what is printed |
//! |---|---|
//! | 0 | warnings and errors |
//! | 1 | also life cycle and configuration |
//! | 2, 3 | also one line per hooked call ([`CALL_TARGET`]); the default is 2 |
//! | 4, 5 | also decisions with their inputs (debug) |
//! | 6 to 9 | also payload shapes (trace), and debug lines of libraries |
//! | 10 | everything |

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use crate::environment::Environment;
use crate::journal::{self, Journal};

/// Target of lines that are printed once per hooked call, from verbosity 2 on.
pub const CALL_TARGET: &str = "koord::call";

/// The highest verbosity.
pub const HIGHEST_VERBOSITY: u8 = 10;

/// The verbosity that the toggle signal switches to.
const TOGGLED_VERBOSITY: u8 = 5;

/// Crates of the product start with this; everything else is a library.
const OWN_TARGETS: &str = "koord";

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One readable line.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Where log lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogOutput {
    /// Standard error.
    #[default]
    StandardError,
    /// systemd's journal, with priority and fields. JSON lines, which somebody asked for, go to standard error all the same;
    /// so does everything if the journal does not listen.
    Journal,
}

impl LogOutput {
    /// The journal, for a process whose standard error goes there.
    pub fn of(environment: &Environment) -> Self {
        if environment.journal { Self::Journal } else { Self::StandardError }
    }
}

/// The log was set up already.
#[derive(Debug, thiserror::Error)]
#[error("log output is set up already")]
pub struct AlreadySetUp;

/// Changes the verbosity of a running process. Clones act on the same output.
#[derive(Debug, Clone)]
pub struct LogControl {
    handle: reload::Handle<Targets, Registry>,
    configured: Arc<AtomicU8>,
    current: Arc<AtomicU8>,
}

impl LogControl {
    /// The verbosity in force.
    pub fn verbosity(&self) -> u8 {
        self.current.load(Ordering::Relaxed)
    }

    /// Sets the verbosity.
    pub fn set_verbosity(&self, verbosity: u8) {
        self.configured.store(verbosity, Ordering::Relaxed);
        self.apply(verbosity);
    }

    /// Switches to debug output, or back to the configured verbosity. Returns the one now in force.
    pub fn toggle(&self) -> u8 {
        let configured = self.configured.load(Ordering::Relaxed);
        let next =
            if self.verbosity() == configured { configured.max(TOGGLED_VERBOSITY) } else { configured };
        self.apply(next);
        tracing::warn!(verbosity = next, "log verbosity changed");
        next
    }

    fn apply(&self, verbosity: u8) {
        self.current.store(verbosity, Ordering::Relaxed);
        if let Err(error) = self.handle.reload(filter(verbosity)) {
            tracing::error!(error = %error, "log verbosity not changed");
        }
    }
}

/// Which lines are printed at a verbosity.
fn filter(verbosity: u8) -> Targets {
    let own = match verbosity {
        0 => LevelFilter::WARN,
        1..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let libraries = match verbosity {
        0..=5 => LevelFilter::WARN,
        6..=9 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let calls = match verbosity {
        0..=1 => LevelFilter::WARN,
        _ => own,
    };
    Targets::new().with_default(libraries).with_target(OWN_TARGETS, own).with_target(CALL_TARGET, calls)
}

/// Sets up log output for the whole process, and reports panics through it.
///
/// # Errors
/// Something set it up before.
pub fn set_up(output: LogOutput, format: LogFormat, verbosity: u8) -> Result<LogControl, AlreadySetUp> {
    let (filter, handle) = reload::Layer::new(filter(verbosity));
    let journal = match (output, format) {
        (LogOutput::Journal, LogFormat::Text) => Journal::open(Path::new(journal::SOCKET)).ok(),
        _ => None,
    };
    let lines = match journal {
        Some(journal) => Box::new(journal),
        None => layer(format, std::io::stderr().is_terminal(), std::io::stderr),
    };
    let subscriber = Registry::default().with(lines.with_filter(filter));
    tracing::subscriber::set_global_default(subscriber).map_err(|_error| AlreadySetUp)?;
    report_panics();
    Ok(LogControl {
        handle,
        configured: Arc::new(AtomicU8::new(verbosity)),
        current: Arc::new(AtomicU8::new(verbosity)),
    })
}

fn layer<W>(format: LogFormat, colours: bool, writer: W) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours);
    match format {
        LogFormat::Text => Box::new(lines),
        LogFormat::Json => {
            Box::new(lines.json().flatten_event(true).with_current_span(true).with_span_list(false))
        }
    }
}

/// A panic is one log line with its place, so that it reaches wherever the log goes.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = crate::supervisor::panic_message(panic.payload());
        let thread = std::thread::current();
        tracing::event!(
            target: "koord::panic",
            Level::ERROR,
            place,
            message,
            thread = thread.name().unwrap_or_default(),
            "panic caught"
        );
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Buffer {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().expect("not poisoned"))).expect("text")
        }
    }

    #[test]
    fn verbosity_selects_lines() {
        // (verbosity, target, level) -> printed
        for (verbosity, target, level, printed) in [
            (0, "koord_runtime", Level::WARN, true),
            (0, "koord_runtime", Level::INFO, false),
            (1, "koord_runtime::admin", Level::INFO, true),
            (1, CALL_TARGET, Level::INFO, false),
            (2, CALL_TARGET, Level::INFO, true),
            (2, "hyper::proto", Level::INFO, false),
            (3, "koord_tap", Level::DEBUG, false),
            (4, "koord_tap", Level::DEBUG, true),
            (5, "h2", Level::DEBUG, false),
            (5, "koord_tap", Level::TRACE, false),
            (6, "koord_tap", Level::TRACE, true),
            (6, "h2", Level::DEBUG, true),
            (9, "h2", Level::TRACE, false),
            (10, "h2", Level::TRACE, true),
        ] {
            assert_eq!(
                filter(verbosity).would_enable(target, &level),
                printed,
                "{verbosity} {target} {level}"
            );
        }
    }

    #[test]
    fn json_lines_are_flat_objects_and_the_level_can_change() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let (layered, handle) = reload::Layer::new(filter(2));
        let lines = layer(LogFormat::Json, false, move || writer.clone());
        let control = LogControl {
            handle,
            configured: Arc::new(AtomicU8::new(2)),
            current: Arc::new(AtomicU8::new(2)),
        };
        let subscriber = Registry::default().with(lines.with_filter(layered));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(pod = "p", "shown");
            let line: serde_json::Value = serde_json::from_str(&buffer.take()).expect("one object");
            assert_eq!(line["message"], "shown");
            assert_eq!(line["pod"], "p");
            assert_eq!(line["level"], "INFO");

            tracing::debug!("hidden");
            assert_eq!(buffer.take(), "");
            assert_eq!(control.toggle(), 5);
            assert!(buffer.take().contains("log verbosity changed"));
            tracing::debug!("now shown");
            assert!(buffer.take().contains("now shown"));
            assert_eq!(control.toggle(), 2);
            control.set_verbosity(0);
            let _change = buffer.take();
            tracing::info!("hidden again");
            assert_eq!(buffer.take(), "");
        });
    }

    #[test]
    fn text_lines_carry_fields() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let lines = layer(LogFormat::Text, false, move || writer.clone());
        tracing::subscriber::with_default(Registry::default().with(lines), || {
            tracing::warn!(file = "/x", "refused");
        });
        let line = buffer.take();
        assert!(line.contains("WARN") && line.contains("refused") && line.contains("file=\"/x\""), "{line}");
    }
}
