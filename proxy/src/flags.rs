//! The command line: raw flags ([`Flags`]) and what the program uses ([`Config`]).
//!
//! Names, defaults and meaning of the flags that Koordinator's proxy has are kept to the letter, so that
//! its unit files work. `--name value` and `--name=value` are accepted, with one dash as well (Go's rule).
//! All mistakes are found before any is reported.

mod config;
mod help;
mod qos;
mod table;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

pub use config::{Config, LogForm, PeerCheck, RelayServices, SkipLabel, SocketMode};
pub use qos::{ConversionChoice, DriverChoice, QosConfig};
use table::{FLAGS, Flag, Kind};
pub use usage::{UsageConfig, UsageMetrics};

/// One mistake on the command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// No such flag.
    #[error("--{name}: unknown flag{}", suggestion.map(|near| format!("; did you mean --{near}?")).unwrap_or_default())]
    UnknownFlag {
        /// The flag as it was written.
        name: String,
        /// A flag with nearly that name.
        suggestion: Option<&'static str>,
    },
    /// A flag at the end of the line without its value.
    #[error("--{flag}: needs a value; accepted: {accepted}")]
    MissingValue {
        /// The flag.
        flag: &'static str,
        /// What it accepts.
        accepted: &'static str,
    },
    /// A value that the flag does not accept.
    #[error("--{flag}={value}: {problem}; accepted: {accepted}")]
    BadValue {
        /// The flag.
        flag: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        problem: String,
        /// What the flag accepts.
        accepted: &'static str,
    },
    /// Two flags that contradict each other.
    #[error("--{flag}={value}: {problem}")]
    Conflict {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What it conflicts with.
        problem: String,
    },
    /// A word that is neither a flag nor a command.
    #[error(
        "{word:?}: unexpected argument; the commands are serve and validate, each with one file of variables"
    )]
    UnexpectedArgument {
        /// The word.
        word: String,
    },
    /// An argument that is not text.
    #[error("{argument:?}: argument is not valid UTF-8")]
    NotText {
        /// The argument.
        argument: OsString,
    },
}

impl Mistake {
    /// The flag it is about, if that is known.
    pub fn flag(&self) -> Option<&'static str> {
        match self {
            Mistake::MissingValue { flag, .. }
            | Mistake::BadValue { flag, .. }
            | Mistake::Conflict { flag, .. } => Some(flag),
            Mistake::UnknownFlag { .. } | Mistake::UnexpectedArgument { .. } | Mistake::NotText { .. } => {
                None
            }
        }
    }
}

/// Everything wrong with a command line, one mistake a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.0 {
            writeln!(formatter, "{mistake}")?;
        }
        write!(formatter, "see --help for all flags")
    }
}

impl std::error::Error for Mistakes {}

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

    fn is_set(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| value == "true")
    }

    /// Takes the arguments apart (without the program's name), and collects what cannot be.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> (Flags, Vec<Mistake>) {
        let mut flags = Flags::default();
        let mut mistakes = Vec::new();
        let mut only_words = false;
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let text = match argument.into_string() {
                Ok(text) => text,
                Err(argument) => {
                    mistakes.push(Mistake::NotText { argument });
                    continue;
                }
            };
            let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).filter(|_| !only_words);
            let Some(name) = name else {
                let word = Word::read(&text).filter(|_| flags.word.is_none());
                if word.is_some() {
                    flags.word = word;
                } else if flags.word.is_some() && flags.variables.is_none() && text.starts_with('/') {
                    flags.variables = Some(text);
                } else {
                    mistakes.push(Mistake::UnexpectedArgument { word: text });
                }
                continue;
            };
            if name.is_empty() {
                if text == "--" {
                    only_words = true;
                } else {
                    mistakes.push(Mistake::UnexpectedArgument { word: text });
                }
                continue;
            }
            let (name, attached) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            let name = if name == "h" { "help" } else { name };
            let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) else {
                mistakes
                    .push(Mistake::UnknownFlag { name: name.to_owned(), suggestion: table::nearest(name) });
                continue;
            };
            match (flag.kind, attached) {
                (Kind::Switch, attached) => match switch(attached.as_deref()) {
                    Some(on) => {
                        flags.values.insert(flag.name, on.to_string());
                    }
                    None => mistakes.push(Mistake::BadValue {
                        flag: flag.name,
                        value: attached.unwrap_or_default(),
                        problem: "not a truth value".to_owned(),
                        accepted: flag.accepted,
                    }),
                },
                (Kind::Value(_), Some(value)) => {
                    flags.values.insert(flag.name, value);
                }
                (Kind::Value(_), None) => match arguments.next().map(OsString::into_string) {
                    Some(Ok(value)) => {
                        flags.values.insert(flag.name, value);
                    }
                    Some(Err(argument)) => mistakes.push(Mistake::NotText { argument }),
                    None => {
                        mistakes.push(Mistake::MissingValue { flag: flag.name, accepted: flag.accepted });
                    }
                },
            }
        }
        (flags, mistakes)
    }
}

/// Go's `strconv.ParseBool`; a switch without a value is on.
fn switch(value: Option<&str>) -> Option<bool> {
    match value {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Some(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Some(false),
        Some(_) => None,
    }
}

/// Reads the command line (without the program's name).
///
/// # Errors
/// All mistakes in it. `--help` and `--version` are answered even if there are some; where a file is named, or all is to
/// be checked, they are told with those of the rest.
pub fn command(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Mistakes> {
    let (flags, mut mistakes) = Flags::parse(arguments);
    if flags.is_set("help") {
        return Ok(Command::Help);
    }
    if flags.is_set("version") {
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
