//! Disabling, and rolling back.

use std::path::Path;

use koord_admin::{NodeStatus, RestoreReport};

use super::wait::Expected;
use super::{Done, Switch, SwitchError};
use crate::checks::ANSWER;
use crate::endpoint::Endpoint;
use crate::journal::{AnnotationBefore, Change, Journal, Stage, UnitBefore};
use crate::plan::{Owner, PROXY_SERVICE_UNIT, PROXY_SOCKET_UNIT};
use crate::system::CRI_SOCKET_ANNOTATION;
use crate::systemd;

/// Where the proxy's sockets are.
const PROXY_DIRECTORY: &str = "/run/koord-runtimeproxy";

/// How long a proxy that was not running may take until it can be asked to put values back.
const LATE_START: std::time::Duration = std::time::Duration::from_secs(10);

impl Switch<'_> {
    /// Takes the proxy out: every value, file and unit is put back as it was. Does what is left after an interruption.
    ///
    /// # Errors
    /// See [`SwitchError`].
    pub fn disable(&mut self) -> Result<Done, SwitchError> {
        let Some(mut journal) = Journal::load(self.system)? else {
            self.not_ours()?;
            self.clear_state_directory()?;
            (self.say)("the node is not enabled");
            return Ok(Done { is_changed: false, notes: Vec::new() });
        };
        self.refuse_changed(&journal)?;
        let situation = self.situation()?;
        let expected = Expected::of(&situation, &journal.kubelet_unit);
        self.backward(&mut journal, &expected)?;
        Ok(Done { is_changed: true, notes: std::mem::take(&mut self.notes) })
    }

    pub(super) fn backward(&mut self, journal: &mut Journal, expected: &Expected) -> Result<(), SwitchError> {
        if journal.stage != Stage::KubeletRestored {
            journal.stage = Stage::Disabling;
            self.save(journal)?;
            if journal.is_kubelet_touched {
                self.restore_values(journal)?;
            }
            self.restore_all(journal, Owner::Kubelet)?;
            if let Some(AnnotationBefore { access, value }) = journal.annotation.clone() {
                self.restore_annotation(journal, &access, &value);
            }
            if journal.is_kubelet_touched {
                self.command(&["systemctl", "daemon-reload"])?;
                self.kubelet_back(journal, expected)?;
            }
            journal.stage = Stage::KubeletRestored;
            self.save(journal)?;
        }
        self.proxy_back(journal)?;
        self.sweep(journal)?;
        for directory in &journal.directories {
            if self.system.exists(directory) {
                self.remove_directory(directory)?;
            }
        }
        self.forget()?;
        (self.say)("the kubelet is on the runtime's socket, as before");
        Ok(())
    }

    /// Has the proxy put back what the kubelet asked for. A proxy that cannot is no reason to keep it.
    fn restore_values(&mut self, journal: &mut Journal) -> Result<(), SwitchError> {
        if self.system.admin("GET", "/readyz", "", ANSWER).is_err() {
            (self.say)("starting the proxy, so that it can put values back");
            let start = ["systemctl", "start", PROXY_SOCKET_UNIT, PROXY_SERVICE_UNIT];
            if let Err(error) = self.command(&start) {
                self.note(format!("values were not put back: {}", koord_runtime::error_chain::Chain(&error)));
                return Ok(());
            }
            let begin = self.system.elapsed();
            while self.system.admin("GET", "/readyz", "", ANSWER).is_ok_and(|(status, _)| status != 200)
                && self.system.elapsed().saturating_sub(begin) < LATE_START
            {
                self.system.sleep(std::time::Duration::from_millis(500));
            }
        }
        if journal.mode.is_none()
            && let Ok((200, body)) = self.system.admin("GET", koord_admin::path::STATUS, "", ANSWER)
            && let Ok(status) = serde_json::from_str::<NodeStatus>(&body)
        {
            journal.mode = Some(status.mode.as_str().to_owned());
            self.save(journal)?;
        }
        (self.say)("putting values back");
        match self.system.admin("POST", koord_admin::path::RESTORE, "", self.options.timeout.max(ANSWER)) {
            Ok((200, body)) => {
                if let Ok(report) = serde_json::from_str::<RestoreReport>(&body) {
                    for failure in &report.failed {
                        self.note(format!(
                            "not put back: {} of {} {}: {}",
                            failure.field, failure.pod, failure.container, failure.error
                        ));
                    }
                }
            }
            Ok((status, body)) => self.note(format!("values were not put back: {status} {}", body.trim())),
            Err(problem) => self.note(format!("values were not put back: {problem}")),
        }
        Ok(())
    }

    /// Puts files back, last changed first.
    fn restore_all(&mut self, journal: &Journal, owner: Owner) -> Result<(), SwitchError> {
        for change in journal.changes.iter().rev().filter(|change| change.owner == owner) {
            let Change { path, before, .. } = change;
            let now = self.read(path)?;
            if now == *before || self.is_left_alone(journal, change, now.as_ref()) {
                continue;
            }
            (self.say)(&format!("restoring {}", path.display()));
            match before {
                Some(file) => self.write(path, file)?,
                None => self.remove(path)?,
            }
        }
        Ok(())
    }

    fn restore_annotation(&mut self, journal: &Journal, access: &crate::system::NodeAccess, value: &str) {
        match self.system.node(access, ANSWER) {
            Ok(view) => {
                let is_ours = view
                    .cri_socket
                    .as_deref()
                    .and_then(Endpoint::parse)
                    .is_some_and(|now| now.is_same(&journal.proxy));
                if is_ours {
                    self.annotate(access, value);
                }
            }
            Err(problem) => self.note(format!(
                "the Node object could not be read ({problem}); set its annotation back: kubectl annotate node {} \
                 --overwrite {CRI_SOCKET_ANNOTATION}={value}",
                access.name
            )),
        }
    }

    fn kubelet_back(&mut self, journal: &Journal, expected: &Expected) -> Result<(), SwitchError> {
        let state = systemd::state(self.system, &journal.kubelet_unit).unwrap_or_default();
        if state.load == "not-found" || !state.is_wanted() {
            self.note(format!("{} does not run and was not started", journal.kubelet_unit));
            return Ok(());
        }
        match self.restart_kubelet(expected) {
            Err(error @ SwitchError::KubeletNotHealthy { .. }) if self.options.is_forced => {
                self.note(koord_runtime::error_chain::Chain(&error).to_string());
                Ok(())
            }
            other => other,
        }
    }

    /// Stops the proxy and puts its files and units back.
    fn proxy_back(&mut self, journal: &Journal) -> Result<(), SwitchError> {
        let mut stopped = Vec::new();
        let mut switched_off = Vec::new();
        for unit in &journal.units {
            let state = systemd::state(self.system, &unit.name).unwrap_or_default();
            if state.load == "not-found" {
                continue;
            }
            if !unit.is_active && state.is_wanted() {
                stopped.push(unit.name.as_str());
            }
            if !unit.is_enabled && state.is_enabled() {
                switched_off.push(unit.name.as_str());
            }
        }
        if !stopped.is_empty() {
            (self.say)("stopping the proxy");
            let mut command = vec!["systemctl", "stop"];
            command.extend(stopped);
            self.command(&command)?;
        }
        if !switched_off.is_empty() {
            let mut command = vec!["systemctl", "disable"];
            command.extend(switched_off);
            self.command(&command)?;
        }
        let changed = journal.changes.iter().any(|change| change.owner == Owner::Proxy);
        self.restore_all(journal, Owner::Proxy)?;
        self.command(&["systemctl", "daemon-reload"])?;
        let was_active = |name: &str| journal.units.iter().any(|unit| unit.name == name && unit.is_active);
        if was_active(PROXY_SERVICE_UNIT) && changed {
            self.command(&["systemctl", "restart", PROXY_SERVICE_UNIT])?;
        }
        // The socket unit leaves its socket when it stops, so that a restart of it is not seen.
        if !was_active(PROXY_SOCKET_UNIT) && !was_active(PROXY_SERVICE_UNIT) {
            let path: &Path = journal.proxy.path();
            if self.system.exists(path) {
                self.remove(path)?;
            }
            // Below the proxy's own directory, which systemd has made.
            for directory in path.ancestors().skip(1).take_while(|path| *path != Path::new(PROXY_DIRECTORY)) {
                if directory.starts_with(PROXY_DIRECTORY) && self.system.exists(directory) {
                    self.remove_directory(directory)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn commands_to_disable(&self, journal: &Journal) -> Vec<String> {
        let mut commands = Vec::new();
        if journal.stage != Stage::KubeletRestored && journal.is_kubelet_touched {
            commands.push("POST /restore".to_owned());
            commands.push("systemctl daemon-reload".to_owned());
            commands.push(format!("systemctl restart {}", journal.kubelet_unit));
        }
        if let Some(AnnotationBefore { access, value }) = &journal.annotation {
            let name = &access.name;
            commands
                .push(format!("kubectl annotate node {name} --overwrite {CRI_SOCKET_ANNOTATION}={value}"));
        }
        for (verb, is_before) in [
            ("stop", (|unit| unit.is_active) as fn(&UnitBefore) -> bool),
            ("disable", |unit| unit.is_enabled),
        ] {
            let names: Vec<&str> =
                journal.units.iter().filter(|unit| !is_before(unit)).map(|unit| unit.name.as_str()).collect();
            if !names.is_empty() {
                commands.push(format!("systemctl {verb} {}", names.join(" ")));
            }
        }
        commands
    }
}
