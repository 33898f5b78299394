//! The command line: raw flags ([`Flags`]) and what the program uses ([`Config`]).
//!
//! Names, defaults and meaning of the flags of Koordinator's koordlet are kept, so that its manifests work.
//! `--name value` and `--name=value` are accepted, with one dash as well (Go's rule); a switch takes its value after
//! `=` only. All mistakes are found before any is reported. Flags that mean nothing here are accepted, checked and
//! told once.

mod config;
mod help;
mod parse;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

pub use config::{
    AddressType, AuditConfig, CollectConfig, Config, KubeletConfig, KubeletVerify, PathConfig, PodMetrics,
    PodSource, PredictionConfig, ProcessConfig, Profile, ProxyEndpoint, ReportConfig, StoreConfig,
};
use table::{Flag, Kind};

/// How the agent was deployed: where it sees the host's files by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentMode {
    /// In a container, the host's directories mounted at paths that start with `/host-`.
    #[default]
    Container,
    /// On the host itself (`agent_mode=hostMode`).
    Host,
}

impl AgentMode {
    /// The mode that a value of the environment variable `agent_mode` names. Any other text is the container's.
    pub fn from_text(text: &str) -> AgentMode {
        if text == "hostMode" { AgentMode::Host } else { AgentMode::Container }
    }
}

/// What the command line is read together with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// The environment variable `NODE_NAME`: name of the Node object of this machine.
    pub node_name: String,
    /// How the agent was deployed.
    pub mode: AgentMode,
}

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
        accepted: String,
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
        accepted: String,
    },
    /// The environment does not say which node this is.
    #[error("NODE_NAME: the environment variable is empty; accepted: the name of this machine's Node object")]
    NoNodeName,
    /// A word that is neither a flag nor a command.
    #[error("{word:?}: unexpected argument; the commands are validate, and metrics dump")]
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
    /// Run the agent.
    Serve(Box<Config>),
    /// Check the flags, then end.
    Validate(Box<Config>),
    /// Ask the running agent for its latest samples and the next report.
    Dump {
        /// The flags, of which the admin socket counts.
        config: Box<Config>,
        /// Tell for every field of the report where it comes from.
        explain: bool,
        /// Only objects whose text starts so; empty for all.
        object: String,
    },
    /// Print the help text.
    Help,
    /// Print the version.
    Version,
}

/// The raw form: texts as given, by flag name. A flag given twice has its last value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flags {
    values: BTreeMap<&'static str, String>,
    words: Vec<String>,
    mode: AgentMode,
}

impl Flags {
    /// The value of a flag of the table: as given, or its default.
    fn text(&self, flag: &Flag) -> &str {
        self.values.get(flag.name).map_or_else(|| flag.default(self.mode), String::as_str)
    }

    fn is_set(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| value == "true")
    }

    /// Takes the arguments apart (without the program's name), and collects what cannot be.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>, mode: AgentMode) -> (Flags, Vec<Mistake>) {
        let mut flags = Flags { mode, ..Flags::default() };
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
                flags.words.push(text);
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
            let Some(flag) = table::find(name) else {
                mistakes
                    .push(Mistake::UnknownFlag { name: name.to_owned(), suggestion: table::nearest(name) });
                continue;
            };
            let value = match (flag.kind, attached) {
                (Kind::Switch, attached) => match parse::switch(attached.as_deref()) {
                    Some(on) => on.to_string(),
                    None => {
                        mistakes.push(flag.refusal(&attached.unwrap_or_default(), "not a truth value"));
                        continue;
                    }
                },
                (_, Some(value)) => value,
                (_, None) => match arguments.next().map(OsString::into_string) {
                    Some(Ok(value)) => value,
                    Some(Err(argument)) => {
                        mistakes.push(Mistake::NotText { argument });
                        continue;
                    }
                    None => {
                        mistakes.push(Mistake::MissingValue { flag: flag.name, accepted: flag.accepted() });
                        continue;
                    }
                },
            };
            flags.values.insert(flag.name, value);
        }
        (flags, mistakes)
    }
}

/// The words beside the flags.
enum Words {
    Serve,
    Validate,
    Dump(String),
}

fn words(words: &[String], mistakes: &mut Vec<Mistake>) -> Words {
    let texts: Vec<&str> = words.iter().map(String::as_str).collect();
    let unexpected = match texts.as_slice() {
        [] => return Words::Serve,
        ["validate"] => return Words::Validate,
        ["metrics", "dump"] => return Words::Dump(String::new()),
        ["metrics", "dump", object] => return Words::Dump((*object).to_owned()),
        ["validate", word, ..] | ["metrics", "dump", _, word, ..] | ["metrics", word, ..] | [word, ..] => {
            *word
        }
    };
    mistakes.push(Mistake::UnexpectedArgument { word: unexpected.to_owned() });
    Words::Serve
}

/// Reads the command line (without the program's name).
///
/// # Errors
/// All mistakes in it. `--help` and `--version` are answered even if there are some.
pub fn command(
    arguments: impl IntoIterator<Item = OsString>,
    surroundings: &Surroundings,
) -> Result<Command, Mistakes> {
    let (flags, mut mistakes) = Flags::parse(arguments, surroundings.mode);
    if flags.is_set("help") {
        return Ok(Command::Help);
    }
    if flags.is_set("version") {
        return Ok(Command::Version);
    }
    let words = words(&flags.words, &mut mistakes);
    match Config::check(&flags, surroundings) {
        Ok(config) if mistakes.is_empty() => {
            let config = Box::new(config);
            Ok(match words {
                Words::Serve | Words::Validate if config.node_name.is_empty() => {
                    return Err(Mistakes(vec![Mistake::NoNodeName]));
                }
                Words::Serve => Command::Serve(config),
                Words::Validate => Command::Validate(config),
                Words::Dump(object) => Command::Dump { config, explain: flags.is_set("explain"), object },
            })
        }
        result => {
            mistakes.extend(result.err().unwrap_or_default());
            if surroundings.node_name.is_empty() && !matches!(words, Words::Dump(_)) {
                mistakes.push(Mistake::NoNodeName);
            }
            Err(Mistakes(mistakes))
        }
    }
}

/// The help text, flags in groups.
pub fn help() -> String {
    help::text()
}
