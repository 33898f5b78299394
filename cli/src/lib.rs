//! `koordctl`, the command-line tool for nodes: what the proxy asked, sent and found, and switching its rules.
//!
//! [`run`] takes a command line and gives an [`Outcome`]. It reads no environment and owns no
//! stream: [`Surroundings`] has what it needs of both.

pub mod arguments;
pub mod client;
pub mod explain;
pub mod hooks;
pub mod manifest;
pub mod node;
pub mod outcome;
pub mod output;
pub mod pages;
pub mod surroundings;
pub mod top;
pub mod version;

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _};

use arguments::{Arguments, Topic};
use koord_runtime::error_chain::Chain;
use outcome::{Failure, Outcome};
use surroundings::{Session, Surroundings};

/// Name of the program.
pub const NAME: &str = "koordctl";

/// Name under which `kubectl` finds the program, as `kubectl koord`.
const PLUGIN_NAME: &str = "kubectl-koord";

/// The command line as it is called: by its own name, or by kubectl.
pub fn command(called_as: Option<&OsString>) -> clap::Command {
    let file = called_as.and_then(|path| Path::new(path).file_name());
    let command = Arguments::command();
    if file.is_some_and(|name| name == PLUGIN_NAME) {
        return command.name(PLUGIN_NAME).bin_name("kubectl koord");
    }
    command
}

/// Carries out one command line; `arguments` begin with the name the program was called by.
pub fn run(arguments: Vec<OsString>, surroundings: &mut Surroundings<'_>) -> Outcome {
    let command = command(arguments.first());
    let parsed = command
        .clone()
        .try_get_matches_from(arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return say(&error, surroundings),
    };
    let result = carry_out(arguments, command, surroundings)
        .and_then(|outcome| surroundings.output.flush().map(|()| outcome).map_err(Failure::Output));
    match result {
        Ok(outcome) => outcome,
        // Whoever reads has seen enough, as with `koordctl node pods | head`.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Outcome::Success,
        Err(failure) => {
            // There is nowhere else to say it.
            let _ = writeln!(surroundings.complaints, "{NAME}: {}", Chain(&failure));
            failure.outcome()
        }
    }
}

fn carry_out(
    arguments: Arguments,
    command: clap::Command,
    surroundings: &mut Surroundings<'_>,
) -> Result<Outcome, Failure> {
    let mut session = Session::new(&arguments.common, surroundings);
    match arguments.topic {
        Topic::Node(action) => node::run(action, &mut session),
        Topic::Top(action) => top::run(&action, &mut session),
        Topic::Explain(what) => explain::run(what, &mut session),
        Topic::Hooks(action) => hooks::run(action, &mut session),
        Topic::Version(options) => version::run(&options, &mut session),
        Topic::Completion { shell } => pages::completion(shell, command, &mut session),
        Topic::Man { directory } => pages::man(&directory, command, &mut session),
    }
}

/// Help goes to the output, a mistake to the complaints.
fn say(error: &clap::Error, surroundings: &mut Surroundings<'_>) -> Outcome {
    if error.use_stderr() {
        let _ = write!(surroundings.complaints, "{error}");
        return Outcome::Usage;
    }
    match write!(surroundings.output, "{error}").and_then(|()| surroundings.output.flush()) {
        Ok(()) => Outcome::Success,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Outcome::Success,
        Err(_) => Outcome::Failed,
    }
}
