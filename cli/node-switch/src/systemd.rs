//! Units by `systemctl`, logs by `journalctl`.

use std::time::Duration;

use crate::system::System;

/// Time for a question.
const QUESTION: Duration = Duration::from_secs(15);

/// What systemd knows of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitState {
    /// `LoadState`: such as `loaded` or `not-found`.
    pub load: String,
    /// `ActiveState`: such as `active`, `activating`, `inactive` or `failed`.
    pub active: String,
    /// `UnitFileState`: such as `enabled` or `disabled`.
    pub file: String,
    /// `MainPID`; 0 for none.
    pub main_pid: u32,
    /// `NRestarts`: how often systemd has started it again by itself.
    pub restarts: u32,
}

impl UnitState {
    /// Reads what `systemctl show` says.
    pub fn parse(text: &str) -> UnitState {
        let mut state = UnitState::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let value = value.trim();
            match key {
                "LoadState" => value.clone_into(&mut state.load),
                "ActiveState" => value.clone_into(&mut state.active),
                "UnitFileState" => value.clone_into(&mut state.file),
                "MainPID" => state.main_pid = value.parse().unwrap_or(0),
                "NRestarts" => state.restarts = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        state
    }

    /// It runs.
    pub fn is_active(&self) -> bool {
        self.active == "active"
    }

    /// It is wanted to run, though it may be failing again and again.
    pub fn is_wanted(&self) -> bool {
        !matches!(self.active.as_str(), "inactive" | "")
    }

    /// It is started at boot.
    pub fn is_enabled(&self) -> bool {
        self.file == "enabled"
    }
}

/// Asks for the state of a unit.
///
/// # Errors
/// systemd does not answer; the text says why.
pub fn state(system: &dyn System, unit: &str) -> Result<UnitState, String> {
    let command =
        ["systemctl", "show", "--property=LoadState,ActiveState,UnitFileState,MainPID,NRestarts", unit];
    match system.ask(&command, QUESTION) {
        Ok(result) if result.is_success() => Ok(UnitState::parse(&result.output)),
        Ok(result) => Err(format!("systemctl show {unit}: {}", result.reason())),
        Err(error) => Err(format!("systemctl cannot be run: {error}")),
    }
}

/// The last lines of a unit's log; empty if there is none.
pub fn last_lines(system: &dyn System, unit: &str) -> Vec<String> {
    let command = ["journalctl", "--no-pager", "--output=cat", "--lines=12", "--unit", unit];
    match system.ask(&command, QUESTION) {
        Ok(result) if result.is_success() => {
            result.output.lines().filter(|line| !line.starts_with("-- ")).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}
