//! Completion scripts and manual pages.

use std::path::Path;

use crate::arguments::Shell;
use crate::outcome::{Failure, Outcome};
use crate::surroundings::Session;

/// Writes the script that completes command lines.
///
/// # Errors
/// The output cannot be written.
pub fn completion(
    shell: Shell,
    mut command: clap::Command,
    session: &mut Session<'_, '_>,
) -> Result<Outcome, Failure> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    session.surroundings.output.write_all(&script).map_err(Failure::Output)?;
    Ok(Outcome::Success)
}

/// Writes a page for each command: `koordctl.1`, `koordctl-node.1`, `koordctl-node-status.1`, ...
///
/// # Errors
/// A page cannot be written.
pub fn man(
    directory: &Path,
    command: clap::Command,
    session: &mut Session<'_, '_>,
) -> Result<Outcome, Failure> {
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory)
        .map_err(|source| Failure::Write { path: directory.to_owned(), source })?;
    session.note(&format!("manual pages are in {}", directory.display()))?;
    Ok(Outcome::Success)
}
