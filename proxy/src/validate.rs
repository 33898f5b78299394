//! The `validate` command: says whether the proxy would start, with which flags, policy, registrations and plugins.
//!
//! A mistake in one place hides none in another: flags that are wrong are left at their defaults for what else is looked
//! at, except for what they themselves name.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use koord_hooks::plugins::{self, Checked};
use koord_runtime::environment_file;
use koord_runtime::error_chain::Chain;

use crate::flags::{Config, Flags, Mistake, Unchecked, unexpected};
use crate::qos::read_policy;
use crate::registration::{DirectoryError, FoundFile, read_directory};
use crate::trust::Trust;

/// The variable that the service's unit takes its flags from.
pub const FLAGS_VARIABLE: &str = "KOORD_RUNTIME_PROXY_FLAGS";

/// Variables of this product start so.
const OWN_VARIABLES: &str = "KOORD_";

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What is well, one line each.
    pub notes: Vec<String>,
    /// What is wrong, one line each.
    pub mistakes: Vec<String>,
}

/// Where a report goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A person or a file.
    Plain,
    /// The service's journal, which takes the priority of a line from a number before it (`sd-daemon(3)`).
    Journal,
}

impl Report {
    /// Notes first, then mistakes, one a line.
    pub fn text(&self, reader: Reader) -> String {
        let (note_priority, mistake_priority) = match reader {
            Reader::Plain => ("", ""),
            Reader::Journal => ("<6>", "<3>"),
        };
        let mut text = String::new();
        for note in &self.notes {
            // Writing to a String cannot fail, here and below.
            let _infallible = writeln!(text, "{note_priority}ok: {note}");
        }
        for mistake in &self.mistakes {
            let _infallible = writeln!(text, "{mistake_priority}mistake: {mistake}");
        }
        text
    }

    /// One line on the mistakes for the service's status; nothing if there are none.
    pub fn status(&self) -> Option<String> {
        let first = self.mistakes.first()?;
        let count = match self.mistakes.len() {
            1 => "1 mistake".to_owned(),
            more => format!("{more} mistakes"),
        };
        Some(format!("{count} in the configuration, what is in force stays: {first}"))
    }

    fn note(&mut self, what: impl std::fmt::Display, note: impl std::fmt::Display) {
        self.notes.push(format!("{what}: {note}"));
    }

    fn mistake(&mut self, what: impl std::fmt::Display, mistake: impl std::fmt::Display) {
        self.mistakes.push(format!("{what}: {mistake}"));
    }
}

/// Checks a command line, the file of variables it names, and all files that both name.
pub fn validate(unchecked: &Unchecked) -> Report {
    let mut report = Report::default();
    let Configured { config, wrong, mut mistakes, notes, mut remarks } = configured(unchecked);
    report.mistakes.append(&mut remarks);
    report.mistakes.append(&mut mistakes);
    if report.mistakes.is_empty() {
        report.notes = notes;
        report.notes.push("command line".to_owned());
    }
    // The defaults stand in for wrong flags, so there is always one.
    let Some(config) = config else { return report };
    let trust = Trust::new(nix::unistd::geteuid().as_raw(), config.hook_trusted_uid);
    let is_wrong = |flag: &str| wrong.iter().any(|mistake| mistake.flag() == Some(flag));
    if !is_wrong("hook-config-dir") {
        registrations(&mut report, &config.hook_config_dir, &trust);
    }
    if let Some(file) = config.qos.node_policy.as_ref().filter(|_| !is_wrong("node-policy")) {
        policy(&mut report, file, &trust);
    }
    if let Some(directory) = config.qos.plugin_dir.as_ref().filter(|_| !is_wrong("plugin-dir")) {
        hook_libraries(&mut report, directory, &trust);
    }
    report
}

/// The configuration to serve with: that of the command line and of the file it names.
///
/// # Errors
/// All mistakes in flags. What else is wrong in the file keeps nobody from serving.
pub fn configuration(unchecked: &Unchecked) -> Result<Config, Report> {
    let Configured { config, mistakes, .. } = configured(unchecked);
    match config {
        Some(config) if mistakes.is_empty() => Ok(config),
        _ => Err(Report { notes: Vec::new(), mistakes }),
    }
}

/// What a command line and its file come to.
#[derive(Default)]
struct Configured {
    /// With defaults in place of what is wrong.
    config: Option<Config>,
    /// Values that are wrong.
    wrong: Vec<Mistake>,
    /// Everything wrong with flags, those values among them.
    mistakes: Vec<String>,
    notes: Vec<String>,
    /// What is wrong in the file beside the flags.
    remarks: Vec<String>,
}

fn configured(unchecked: &Unchecked) -> Configured {
    let mut found = Configured::default();
    found.mistakes.extend(unchecked.mistakes.iter().map(ToString::to_string));
    let of_file = unchecked.variables.as_deref().map(|file| variables(&mut found, file)).unwrap_or_default();
    let flags = unchecked.flags.clone().after(&of_file);
    match Config::check(&flags) {
        Ok(config) => found.config = Some(config),
        Err(wrong) => {
            found.config = Config::check(&flags.without(&wrong)).ok();
            found.wrong = wrong;
        }
    }
    for mistake in &found.wrong {
        let from_file = mistake.flag().is_some_and(|flag| of_file.has(flag) && !unchecked.flags.has(flag));
        found.mistakes.push(match &unchecked.variables {
            Some(file) if from_file => format!("{}: {FLAGS_VARIABLE}: {mistake}", file.display()),
            _ => mistake.to_string(),
        });
    }
    found
}

/// Reads the flags that a file of variables has for the service.
fn variables(found: &mut Configured, path: &Path) -> Flags {
    let file = path.display();
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            found.notes.push(format!("{file}: missing, there are no flags of the service"));
            return Flags::default();
        }
        Err(error) => {
            found.mistakes.push(format!("{file}: cannot be read: {error}"));
            return Flags::default();
        }
    };
    let Ok(text) = String::from_utf8(bytes) else {
        found.mistakes.push(format!("{file}: not UTF-8 text"));
        return Flags::default();
    };
    let (variables, lines) = environment_file::parse(&text);
    found.remarks.extend(lines.iter().map(|line| format!("{file}: {line}")));
    for variable in &variables {
        if variable.name.starts_with(OWN_VARIABLES) && variable.name != FLAGS_VARIABLE {
            let (line, name) = (variable.line, &variable.name);
            found.remarks.push(format!(
                "{file}: line {line}: {name}: no variable of this program; accepted: {FLAGS_VARIABLE}"
            ));
        }
    }
    // As for the service manager, the last one counts.
    let value = variables.iter().rfind(|variable| variable.name == FLAGS_VARIABLE);
    let words = value.map(|variable| environment_file::words(&variable.value)).unwrap_or_default();
    let (flags, wrong) = Flags::parse(words.into_iter().map(Into::into));
    let command = flags.word().map(|word| unexpected(word.as_str().to_owned()));
    found
        .mistakes
        .extend(wrong.iter().chain(&command).map(|mistake| format!("{file}: {FLAGS_VARIABLE}: {mistake}")));
    let note = if value.is_some() { "flags of the service" } else { "no flags of the service" };
    found.notes.push(format!("{file}: {note}"));
    flags
}

fn registrations(report: &mut Report, path: &Path, trust: &Trust) {
    let directory = path.display();
    match read_directory(path, trust) {
        Ok(files) if files.is_empty() => report.note(directory, "no registration files"),
        Ok(files) => {
            for FoundFile { name, registration } in files {
                match registration {
                    Ok(registration) => {
                        let hooks: Vec<&str> = registration.hooks.iter().map(|hook| hook.as_str()).collect();
                        let hooks = if hooks.is_empty() { "no hooks".to_owned() } else { hooks.join(", ") };
                        let (endpoint, policy) = (registration.endpoint, registration.failure_policy);
                        report.note(
                            format_args!("{directory}/{name}"),
                            format_args!("{endpoint} for {hooks} ({})", policy.as_str()),
                        );
                    }
                    Err(error) => report.mistake(format_args!("{directory}/{name}"), Chain(&error)),
                }
            }
        }
        Err(DirectoryError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            report.note(directory, "missing, will be created at the start");
        }
        Err(error) => report.mistakes.push(Chain(&error).to_string()),
    }
}

fn policy(report: &mut Report, path: &Path, trust: &Trust) {
    let file = path.display();
    match read_policy(path, trust) {
        Ok(Some(_policy)) => report.note(file, "node policy"),
        Ok(None) => report.note(file, "missing, the defaults hold"),
        Err(error) => report.mistakes.extend(error.sentences()),
    }
}

fn hook_libraries(report: &mut Report, path: &Path, trust: &Trust) {
    let directory = path.display();
    match plugins::check(path, trust) {
        Ok(files) if files.is_empty() => report.note(directory, "no hook libraries"),
        Ok(files) => {
            for Checked { name, settings, problems } in files {
                let file = format!("{directory}/{name}");
                for problem in &problems {
                    report.mistake(&file, Chain(problem));
                }
                if let (Some(settings), true) = (settings, problems.is_empty()) {
                    let (mode, policy) = (settings.mode.as_str(), settings.failure_policy);
                    report.note(file, format_args!("hook library, {mode} ({})", policy.as_str()));
                }
            }
        }
        Err(error) => report.mistakes.push(Chain(&error).to_string()),
    }
}
