//! The command line: raw flags ([`Flags`]) and what the program uses ([`Config`]).
//!
//! Names, defaults and meaning of the flags that Koordinator's proxy has are kept to the letter, so that
//! its unit files work.

mod config;
mod help;
mod qos;
mod table;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

pub use config::{Config, LogForm, PeerCheck, RelayServices, SkipLabel, SocketMode};
use koord_runtime::command_line::CommandLine;
pub use koord_runtime::command_line::{Mistake, Mistakes};
pub use qos::{ConversionChoice, DriverChoice, QosConfig};
use table::{FLAGS, Flag};
pub use usage::{UsageConfig, UsageMetrics};

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Run the proxy.
    Serve(Box<Config>),
    /// Run the proxy with flags of a file of variables, which is read at each start.
    ServeWith(Box<Unchecked>),
    /// Check everything that is configured, then end.
    Validate(Box<Unchecked>),
    /// Print the help text.
    Help,
    /// Print the version.
    Version,
}

/// A command line whose values are not checked yet, with what is wrong with its form.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Unchecked {
    /// The flags.
    pub flags: Flags,
    /// What could not be taken apart.
    pub mistakes: Vec<Mistake>,
    /// The file of variables that was named.
    pub variables: Option<PathBuf>,
}

/// The raw form: texts as given, by flag name. A flag given twice has its last value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flags {
    values: BTreeMap<&'static str, String>,
    word: Option<Word>,
    variables: Option<String>,
}

/// A command's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// `serve`, which may be left out where no file is named.
    Serve,
    /// `validate`.
    Validate,
}

impl Word {
    /// How it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Word::Serve => "serve",
            Word::Validate => "validate",
        }
    }

    fn read(text: &str) -> Option<Word> {
        [Word::Serve, Word::Validate].into_iter().find(|word| word.as_str() == text)
    }
}

impl Flags {
    /// The value of a flag of the table: as given, or its default.
    fn get(&self, flag: &Flag) -> &str {
        self.values.get(flag.name).map_or(flag.default, String::as_str)
    }

    fn is_on(&self, switch: &Flag) -> bool {
        self.get(switch) == "true"
    }

    /// True if the flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// These flags, and of `first` those that are not among them.
    #[must_use]
    pub fn after(mut self, first: &Flags) -> Flags {
        for (name, value) in &first.values {
            self.values.entry(name).or_insert_with(|| value.clone());
        }
        self
    }

    /// These flags without those that `mistakes` are about.
    #[must_use]
    pub fn without(mut self, mistakes: &[Mistake]) -> Flags {
        self.values.retain(|name, _| mistakes.iter().all(|mistake| mistake.flag() != Some(name)));
        self
    }

    /// The command among the flags.
    pub fn word(&self) -> Option<Word> {
        self.word
    }

    /// Takes the arguments apart (without the program's name), and collects what cannot be.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> (Flags, Vec<Mistake>) {
        let (line, mut mistakes) = CommandLine::parse(arguments, &FLAGS);
        let mut flags = Flags { values: line.values, ..Flags::default() };
        for text in line.words {
            let word = Word::read(&text).filter(|_| flags.word.is_none());
            if word.is_some() {
                flags.word = word;
            } else if flags.word.is_some() && flags.variables.is_none() && text.starts_with('/') {
                flags.variables = Some(text);
            } else {
                mistakes.push(unexpected(text));
            }
        }
        (flags, mistakes)
    }
}

/// That a word is none of the commands.
pub(crate) fn unexpected(word: String) -> Mistake {
    Mistake::UnexpectedArgument {
        word,
        accepted: "the commands are serve and validate, each with one file of variables",
    }
}

/// Reads the command line (without the program's name).
///
/// # Errors
/// All mistakes in it. `--help` and `--version` are answered even if there are some; where a file is named, or all is to
/// be checked, they are told with those of the rest.
pub fn command(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Mistakes> {
    let (flags, mut mistakes) = Flags::parse(arguments);
    if flags.is_on(&table::HELP) {
        return Ok(Command::Help);
    }
    if flags.is_on(&table::VERSION) {
        return Ok(Command::Version);
    }
    let variables = flags.variables.clone().map(PathBuf::from);
    match flags.word {
        Some(Word::Validate) => {
            return Ok(Command::Validate(Box::new(Unchecked { flags, mistakes, variables })));
        }
        Some(Word::Serve) if variables.is_some() => {
            return Ok(Command::ServeWith(Box::new(Unchecked { flags, mistakes, variables })));
        }
        Some(Word::Serve) | None => {}
    }
    match Config::check(&flags) {
        Ok(config) if mistakes.is_empty() => Ok(Command::Serve(Box::new(config))),
        Ok(_) => Err(Mistakes(mistakes)),
        Err(more) => {
            mistakes.extend(more);
            Err(Mistakes(mistakes))
        }
    }
}

/// The help text, flags in groups.
pub fn help() -> String {
    help::text()
}
