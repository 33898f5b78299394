//! Switching: in steps that may be interrupted anywhere and done again.
//!
//! Invariants:
//! - before a file changes, the journal knows it as it was;
//! - while the kubelet may be set to the proxy's socket, the proxy's units are enabled and running;
//! - the journal goes last.
//!
//! So whatever the node does after an interruption, even a reboot, it has a kubelet that reaches its runtime; and a
//! second run of either direction ends what the first began.

mod back;
mod forth;
mod wait;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::checks::{self, Check, Situation, Verdict};
use crate::diff;
use crate::endpoint::Endpoint;
use crate::journal::{Change, JOURNAL_FILE, Journal, JournalError, STATE_DIRECTORY, Stage};
use crate::plan::Edit;
use crate::system::{FileState, System, temporary};

/// How the switch is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long the proxy, and then the kubelet, may take until it is well.
    pub timeout: Duration,
    /// Goes on in spite of doubts, and over files that others have changed.
    pub is_forced: bool,
    /// Unit of the kubelet, if it is not one of the usual ones.
    pub kubelet_unit: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { timeout: Duration::from_secs(120), is_forced: false, kubelet_unit: None }
    }
}

/// Why the switch was not done.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// Something is in the way; nothing was changed.
    #[error("{}\nnothing was changed", blocked(.0))]
    Blocked(Vec<Check>),
    /// Files are not as the switch left them; nothing was changed.
    #[error(
        "changed by others since `koordctl node enable`, and still naming the proxy's socket: {}; put the endpoint {runtime} \
         there by hand, or use --force to restore what they were before. Nothing was changed",
        joined(paths)
    )]
    Changed {
        /// The files.
        paths: Vec<PathBuf>,
        /// What the endpoint was.
        runtime: Endpoint,
    },
    /// The kubelet is set to the proxy, and this command has not done it.
    #[error("the kubelet is set to the proxy's socket by {}, not by `koordctl node enable`; change it there", joined(.0))]
    NotOurs(Vec<PathBuf>),
    /// The journal is of no use.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file cannot be read or written.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The node cannot be looked at.
    #[error("cannot look at the node's configuration")]
    Look(#[source] io::Error),
    /// A command failed.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// The command.
        command: String,
        /// What it said.
        reason: String,
    },
    /// The proxy did not become ready.
    #[error("the proxy is not ready after {} s: {reason}{}", seconds.as_secs(), quoted(log))]
    ProxyNotReady {
        /// How long was waited.
        seconds: Duration,
        /// What it lacks.
        reason: String,
        /// The end of its log.
        log: Vec<String>,
    },
    /// The files are written, and something else still sets the endpoint.
    #[error("the kubelet would still use {endpoint}{}", place.as_ref().map(|path| format!(", which {} sets", path.display())).unwrap_or_default())]
    NotInForce {
        /// The endpoint.
        endpoint: String,
        /// Where it is set.
        place: Option<PathBuf>,
    },
    /// The kubelet did not become healthy.
    #[error("the kubelet is not well: {reason}{}", quoted(log))]
    KubeletNotHealthy {
        /// What it lacks.
        reason: String,
        /// The end of its log.
        log: Vec<String>,
    },
    /// It failed, and everything was put back.
    #[error("enabling failed and was rolled back; the kubelet is on {runtime} again")]
    RolledBack {
        /// The kubelet's endpoint.
        runtime: Endpoint,
        /// What failed.
        source: Box<SwitchError>,
    },
    /// It failed, and so did putting everything back.
    #[error(
        "enabling failed ({}), and so did rolling back; `koordctl node disable` tries that again",
        koord_runtime::error_chain::Chain(cause)
    )]
    NotRolledBack {
        /// What failed first.
        cause: Box<SwitchError>,
        /// What failed then.
        source: Box<SwitchError>,
    },
}

fn blocked(checks: &[Check]) -> String {
    let bad = checks.iter().filter(|check| matches!(check.verdict, Verdict::Failed | Verdict::Doubtful));
    bad.map(|check| format!("{}: {}", check.subject, check.text)).collect::<Vec<_>>().join("\n")
}

fn joined(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn quoted(log: &[String]) -> String {
    match log.is_empty() {
        true => String::new(),
        false => format!("; its last lines:\n  {}", log.join("\n  ")),
    }
}

/// What a switch would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Checks, good and bad.
    pub checks: Vec<Check>,
    /// Unified differences of files.
    pub differences: Vec<String>,
    /// Commands, in their order.
    pub commands: Vec<String>,
}

impl Preview {
    /// Nothing is in the way.
    pub fn is_possible(&self, is_forced: bool) -> bool {
        !self.checks.iter().any(|check| is_in_the_way(check, is_forced))
    }
}

fn is_in_the_way(check: &Check, is_forced: bool) -> bool {
    match check.verdict {
        Verdict::Failed => true,
        Verdict::Doubtful => !is_forced,
        Verdict::Good | Verdict::Note => false,
    }
}

/// How a switch ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// Something was done; else the node was so already.
    pub is_changed: bool,
    /// What is left to be done by hand, or to be known; one sentence each.
    pub notes: Vec<String>,
}

/// The switch of a node.
pub struct Switch<'a> {
    system: &'a dyn System,
    options: Options,
    say: &'a mut dyn FnMut(&str),
    notes: Vec<String>,
}

impl std::fmt::Debug for Switch<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Switch").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<'a> Switch<'a> {
    /// A switch that tells `say` each step.
    pub fn new(system: &'a dyn System, options: Options, say: &'a mut dyn FnMut(&str)) -> Switch<'a> {
        Switch { system, options, say, notes: Vec::new() }
    }

    fn situation(&self) -> Result<Situation, SwitchError> {
        let journal = Journal::load(self.system)?;
        checks::examine(self.system, self.options.kubelet_unit.as_deref(), journal).map_err(SwitchError::Look)
    }

    /// What [`Switch::enable`] would do.
    ///
    /// # Errors
    /// The node cannot be looked at.
    pub fn preview_enable(&self) -> Result<Preview, SwitchError> {
        let situation = self.situation()?;
        let edits: &[Edit] = situation.edits.as_deref().unwrap_or_default();
        let differences = edits
            .iter()
            .map(|edit| {
                let before = edit.before.as_ref().map(|file| file.text.as_str());
                diff::unified(&edit.path, before, Some(&edit.after.text))
            })
            .collect();
        let commands = self.commands_to_enable(&situation);
        Ok(Preview { checks: situation.checks(self.system), differences, commands })
    }

    /// What [`Switch::disable`] would do.
    ///
    /// # Errors
    /// The node cannot be looked at, or [`Switch::disable`] would refuse.
    pub fn preview_disable(&self) -> Result<Preview, SwitchError> {
        let Some(journal) = Journal::load(self.system)? else {
            self.not_ours()?;
            return Ok(Preview { checks: Vec::new(), differences: Vec::new(), commands: Vec::new() });
        };
        self.refuse_changed(&journal)?;
        let mut differences = Vec::new();
        for change in &journal.changes {
            let now = self.read(&change.path)?;
            let before = change.before.as_ref().map(|file| file.text.as_str());
            if !self.is_left_alone(&journal, change, now.as_ref()) {
                let now = now.as_ref().map(|file| file.text.as_str());
                differences.push(diff::unified(&change.path, now, before));
            }
        }
        differences.retain(|text| !text.is_empty());
        Ok(Preview { checks: Vec::new(), differences, commands: self.commands_to_disable(&journal) })
    }

    fn read(&self, path: &Path) -> Result<Option<FileState>, SwitchError> {
        self.system.read(path).map_err(|source| SwitchError::File { path: path.to_owned(), source })
    }

    fn write(&self, path: &Path, state: &FileState) -> Result<(), SwitchError> {
        self.system.write(path, state).map_err(|source| SwitchError::File { path: path.to_owned(), source })
    }

    fn remove(&self, path: &Path) -> Result<(), SwitchError> {
        self.system.remove(path).map_err(|source| SwitchError::File { path: path.to_owned(), source })
    }

    fn save(&self, journal: &Journal) -> Result<(), SwitchError> {
        Ok(journal.save(self.system)?)
    }

    fn command(&self, command: &[&str]) -> Result<(), SwitchError> {
        let failed = |reason: String| SwitchError::Command { command: command.join(" "), reason };
        match self.system.run(command, self.options.timeout.max(Duration::from_secs(30))) {
            Ok(result) if result.is_success() => Ok(()),
            Ok(result) => Err(failed(result.reason())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn note(&mut self, text: String) {
        (self.say)(&text);
        self.notes.push(text);
    }

    /// A file that is neither as it was nor as the switch made it, and has nothing of the proxy any more, is no business of
    /// the switch: a kubeadm upgrade has restored the endpoint by itself, for example.
    fn is_left_alone(&self, journal: &Journal, change: &Change, now: Option<&FileState>) -> bool {
        let text = now.map(|file| file.text.as_str());
        let before = change.before.as_ref().map(|file| file.text.as_str());
        if text == before || text == Some(change.after.text.as_str()) {
            return false;
        }
        match text {
            None => true,
            Some(text) => !names_proxy(text, journal),
        }
    }

    /// # Errors
    /// Files still have the proxy's socket and something else that others wrote.
    fn refuse_changed(&self, journal: &Journal) -> Result<(), SwitchError> {
        let mut paths = Vec::new();
        for change in &journal.changes {
            let now = self.read(&change.path)?;
            let text = now.as_ref().map(|file| file.text.as_str());
            let is_known = text == change.before.as_ref().map(|file| file.text.as_str())
                || text == Some(change.after.text.as_str());
            if !is_known && !self.is_left_alone(journal, change, now.as_ref()) {
                paths.push(change.path.clone());
            }
        }
        if paths.is_empty() || self.options.is_forced {
            return Ok(());
        }
        Err(SwitchError::Changed { paths, runtime: journal.runtime.clone() })
    }

    /// # Errors
    /// Without a journal, the kubelet is set to the proxy.
    fn not_ours(&self) -> Result<(), SwitchError> {
        let situation = self.situation()?;
        if situation.found.is_through_proxy() {
            return Err(SwitchError::NotOurs(situation.found.set_by.into_iter().collect()));
        }
        Ok(())
    }

    /// Removes what an interrupted write may have left.
    fn sweep(&self, journal: &Journal) -> Result<(), SwitchError> {
        let paths = journal.changes.iter().map(|change| change.path.as_path());
        for path in paths.chain([Path::new(JOURNAL_FILE)]) {
            let leftover = temporary(path);
            if self.system.exists(&leftover) {
                self.remove(&leftover)?;
            }
        }
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> Result<(), SwitchError> {
        self.system
            .remove_directory(path)
            .map_err(|source| SwitchError::File { path: path.to_owned(), source })
    }

    /// Removes the journal, and what it lies in.
    fn forget(&self) -> Result<(), SwitchError> {
        self.remove(Path::new(JOURNAL_FILE))?;
        self.clear_state_directory()
    }

    fn clear_state_directory(&self) -> Result<(), SwitchError> {
        let leftover = temporary(Path::new(JOURNAL_FILE));
        if self.system.exists(&leftover) {
            self.remove(&leftover)?;
        }
        for path in [Path::new(STATE_DIRECTORY), Path::new("/var/lib/koord")] {
            if self.system.exists(path) {
                self.remove_directory(path)?;
            }
        }
        Ok(())
    }
}

/// Whether a file names the proxy's socket, or is a drop-in for the proxy's sake.
fn names_proxy(text: &str, journal: &Journal) -> bool {
    let path = journal.proxy.as_str();
    text.contains(path)
        || text.contains("/run/koord-runtimeproxy/")
        || text.contains("koord-runtime-proxy.service")
}

/// Where the switch stands, for people and scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// In one word: `disabled`, `enabled`, `interrupted`, `drifted` or `foreign`.
    pub state: &'static str,
    /// Unit of the kubelet.
    pub kubelet_unit: Option<String>,
    /// How systemd calls its state, such as `active`.
    pub kubelet: String,
    /// Its release.
    pub version: Option<String>,
    /// The endpoint that its next start will have.
    pub endpoint: Option<String>,
    /// The file that sets it.
    pub set_by: Option<PathBuf>,
    /// The endpoint that the running process was given, if it was given one by a flag.
    pub running: Option<String>,
    /// All places that set endpoints.
    pub places: Vec<PlaceStatus>,
    /// The runtime's endpoint.
    pub runtime: Option<String>,
    /// How systemd calls the state of the proxy's units.
    pub units: Vec<UnitStatus>,
    /// Files that are not as the switch left them.
    pub drift: Vec<PathBuf>,
    /// What cannot be understood.
    pub mistakes: Vec<String>,
    /// What to do next.
    pub next: String,
}

/// A place that sets an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceStatus {
    /// The file; for the Node object, the annotation.
    pub place: String,
    /// What it is set to.
    pub endpoint: String,
}

/// A unit of the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitStatus {
    /// Its name.
    pub name: String,
    /// Such as `active`.
    pub active: String,
    /// Such as `enabled`.
    pub file: String,
}

/// Where the switch stands.
///
/// # Errors
/// The node cannot be looked at.
pub fn status(system: &dyn System, kubelet_unit: Option<&str>) -> Result<Status, SwitchError> {
    let journal = Journal::load(system)?;
    let situation = checks::examine(system, kubelet_unit, journal).map_err(SwitchError::Look)?;
    let Situation { found, version, kubelet, units, target, node, edits, journal, .. } = situation;
    let drift: Vec<PathBuf> = match (&journal, &edits) {
        (Some(_), Ok(edits)) => edits.iter().map(|edit| edit.path.clone()).collect(),
        _ => Vec::new(),
    };
    let proxy_runs = units.values().all(|unit| unit.is_active());
    let (state, next) = match &journal {
        None if found.is_through_proxy() => (
            "foreign",
            "the kubelet is set to the proxy, but not by this command; to let it manage that, set the runtime's endpoint \
             first, then `koordctl node enable`"
                .to_owned(),
        ),
        None => ("disabled", "`koordctl node enable --dry-run` shows what enabling would change".to_owned()),
        Some(journal) if journal.stage != Stage::Enabled => (
            "interrupted",
            format!(
                "a switch was interrupted while {}; `koordctl node enable` or `koordctl node disable` ends it",
                journal.stage.as_str()
            ),
        ),
        Some(_) if !drift.is_empty() => (
            "drifted",
            "files were changed since, perhaps by an upgrade; `koordctl node enable` sets them again".to_owned(),
        ),
        Some(_) if !proxy_runs => ("enabled", "the proxy does not run; `koordctl node enable` starts it".to_owned()),
        Some(_) if !kubelet.is_active() => {
            ("enabled", format!("the kubelet is {}; see its log", kubelet.active))
        }
        Some(_) => ("enabled", "nothing".to_owned()),
    };
    let mut places: Vec<PlaceStatus> = found
        .places
        .iter()
        .map(|place| PlaceStatus { place: place.file.display().to_string(), endpoint: place.endpoint.url() })
        .collect();
    if let Ok(Some(value)) = node.map(|view| view.cri_socket) {
        let place = format!("annotation {}", crate::system::CRI_SOCKET_ANNOTATION);
        places.push(PlaceStatus { place, endpoint: value });
    }
    let units = units.into_iter().map(|(name, unit)| UnitStatus {
        name: name.to_owned(),
        active: unit.active,
        file: unit.file,
    });
    Ok(Status {
        state,
        kubelet_unit: found.unit_name().map(str::to_owned),
        kubelet: kubelet.active,
        version: version.map(|version| version.to_string()),
        endpoint: found.endpoint.as_ref().map(Endpoint::url),
        running: found.running.as_ref().map(Endpoint::url),
        runtime: target.map(|target| target.runtime.url()),
        set_by: found.set_by,
        places,
        units: units.collect(),
        drift,
        mistakes: found.mistakes,
        next,
    })
}

#[cfg(test)]
mod tests;
