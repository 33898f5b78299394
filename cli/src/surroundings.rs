//! What a command is given: streams, terminal, and the options every command has.

use std::fmt;
use std::io::{BufRead, Write};
use std::time::Duration;

use serde::Serialize;

use crate::arguments::{Common, Format};
use crate::client::Client;
use crate::outcome::Failure;
use crate::output;
use crate::output::style::Style;

/// How long an answer of the proxy is waited for by default.
const ANSWER: Duration = Duration::from_secs(30);

/// What is known about the terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terminal {
    /// Width in characters; nothing if the output is no terminal, so that lines are not wrapped.
    pub width: Option<usize>,
    /// Height in lines; nothing if the output is no terminal, which cannot be drawn on again.
    pub height: Option<usize>,
    /// Colours may be used.
    pub color: bool,
    /// Somebody is there who can answer a question.
    pub can_ask: bool,
}

/// Everything a command takes from, and gives to, its surroundings.
pub struct Surroundings<'a> {
    /// What is known about the terminal.
    pub terminal: Terminal,
    /// Where answers to questions come from.
    pub input: &'a mut dyn BufRead,
    /// Where results go.
    pub output: &'a mut dyn Write,
    /// Where questions, notes and mistakes go.
    pub complaints: &'a mut dyn Write,
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Surroundings").field("terminal", &self.terminal).finish_non_exhaustive()
    }
}

/// One command at work.
#[derive(Debug)]
pub struct Session<'a, 'b> {
    /// Asks the proxy.
    pub client: Client,
    /// `--timeout`, if it was given.
    pub timeout: Option<Duration>,
    /// Form of the output.
    pub format: Format,
    /// How texts are emphasised.
    pub style: Style,
    /// Streams and terminal.
    pub surroundings: &'a mut Surroundings<'b>,
}

impl<'a, 'b> Session<'a, 'b> {
    /// A session with the options every command has.
    pub fn new(common: &Common, surroundings: &'a mut Surroundings<'b>) -> Session<'a, 'b> {
        let style = if surroundings.terminal.color && !common.no_color { Style::Color } else { Style::Plain };
        Session {
            client: Client::new(common.admin_socket.clone(), common.timeout.unwrap_or(ANSWER)),
            timeout: common.timeout,
            format: common.output,
            style,
            surroundings,
        }
    }

    /// Writes `value` as JSON or YAML if one of these was asked for; else the text that `text` makes of it.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn print<T: Serialize>(
        &mut self,
        value: &T,
        text: impl FnOnce(&Session<'_, '_>) -> String,
    ) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => output::json(value)?,
            Format::Yaml => output::yaml(value)?,
            Format::Table | Format::Wide => text(self),
        };
        self.surroundings.output.write_all(text.as_bytes()).map_err(Failure::Output)
    }

    /// Says something beside the result.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.surroundings.complaints, "{text}").map_err(Failure::Output)
    }

    /// Width to wrap lines to, if at all.
    pub fn width(&self) -> Option<usize> {
        self.surroundings.terminal.width
    }

    /// Whether identifiers and directories are shown in full.
    pub fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }
}
