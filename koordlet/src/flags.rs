//! The command line: raw flags ([`Flags`]) and what the program uses ([`Config`]).
//!
//! Names, defaults and meaning of the flags of Koordinator's koordlet are kept, so that its manifests work.
//! Flags that mean nothing here are accepted, checked and told once.

mod config;
mod help;
mod parse;
mod table;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

pub use config::{
    AddressType, AuditConfig, CollectConfig, Config, KubeletConfig, KubeletVerify, PathConfig, PodMetrics,
    PodSource, PredictionConfig, ProcessConfig, Profile, ProxyEndpoint, ReportConfig, StoreConfig,
};
use koord_runtime::command_line::CommandLine;
pub use koord_runtime::command_line::{Mistake, Mistakes};
use table::{FLAGS, Flag};

const COMMANDS: &str = "the commands are validate, and metrics dump";

const NO_NODE_NAME: Mistake =
    Mistake::EmptyVariable { name: "NODE_NAME", accepted: "the name of this machine's Node object" };

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
    line: CommandLine,
    mode: AgentMode,
}

impl Flags {
    /// The value of a flag of the table: as given, or its default.
    fn text(&self, flag: &Flag) -> &str {
        self.line.values.get(flag.name).map_or_else(|| flag.default(self.mode), String::as_str)
    }

    /// Takes the arguments apart (without the program's name), and collects what cannot be.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>, mode: AgentMode) -> (Flags, Vec<Mistake>) {
        let (line, mistakes) = CommandLine::parse(arguments, FLAGS);
        (Flags { line, mode }, mistakes)
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
    mistakes.push(Mistake::UnexpectedArgument { word: unexpected.to_owned(), accepted: COMMANDS });
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
    if flags.line.is_on("help") {
        return Ok(Command::Help);
    }
    if flags.line.is_on("version") {
        return Ok(Command::Version);
    }
    let words = words(&flags.line.words, &mut mistakes);
    match Config::check(&flags, surroundings) {
        Ok(config) if mistakes.is_empty() => {
            let config = Box::new(config);
            Ok(match words {
                Words::Serve | Words::Validate if config.node_name.is_empty() => {
                    return Err(Mistakes(vec![NO_NODE_NAME]));
                }
                Words::Serve => Command::Serve(config),
                Words::Validate => Command::Validate(config),
                Words::Dump(object) => Command::Dump { config, explain: flags.line.is_on("explain"), object },
            })
        }
        result => {
            mistakes.extend(result.err().unwrap_or_default());
            if surroundings.node_name.is_empty() && !matches!(words, Words::Dump(_)) {
                mistakes.push(NO_NODE_NAME);
            }
            Err(Mistakes(mistakes))
        }
    }
}

/// The help text, flags in groups.
pub fn help() -> String {
    help::text()
}
