//! Enabling.

use std::path::Path;

use super::wait::Expected;
use super::{Done, Switch, SwitchError, is_in_the_way, names_proxy};
use crate::checks::{ANSWER, Situation};
use crate::discover::discover;
use crate::journal::{AnnotationBefore, Change, Journal, Stage, UnitBefore};
use crate::plan::{Edit, Owner, PROXY_SERVICE_UNIT, PROXY_SOCKET_UNIT};
use crate::system::CRI_SOCKET_ANNOTATION;
use crate::systemd;

impl Switch<'_> {
    /// Puts the proxy in front of the runtime. If that does not end well, everything is put back. Does what is left after
    /// an interruption, and sets files again that an upgrade has restored.
    ///
    /// # Errors
    /// See [`SwitchError`].
    pub fn enable(&mut self) -> Result<Done, SwitchError> {
        let situation = self.situation()?;
        let checks = situation.checks(self.system);
        if checks.iter().any(|check| is_in_the_way(check, self.options.is_forced)) {
            return Err(SwitchError::Blocked(checks));
        }
        let (Some(target), Ok(edits)) = (&situation.target, &situation.edits) else {
            // Both are failed checks.
            return Err(SwitchError::Blocked(checks));
        };
        let Some(unit) = situation.found.unit_name().map(str::to_owned) else {
            return Err(SwitchError::Blocked(checks));
        };
        let mut journal = match &situation.journal {
            Some(journal) => journal.clone(),
            None => {
                let mut journal = Journal::new(&unit, target.runtime.clone(), target.proxy.clone());
                journal.units = situation
                    .units
                    .iter()
                    .map(|(name, state)| UnitBefore {
                        name: (*name).to_owned(),
                        is_enabled: state.is_enabled(),
                        is_active: state.is_active(),
                    })
                    .collect();
                journal
            }
        };
        let proxy_runs = situation.units.values().all(|state| state.is_active() && state.is_enabled());
        if journal.stage == Stage::Enabled && edits.is_empty() && proxy_runs && situation.kubelet.is_active()
        {
            self.sweep(&journal)?;
            (self.say)("the node is enabled already");
            return Ok(Done { is_changed: false, notes: std::mem::take(&mut self.notes) });
        }
        self.record(&mut journal, edits)?;
        self.record_annotation(&mut journal, &situation);
        let kubelet_edits = edits.iter().any(|edit| edit.owner == Owner::Kubelet);
        let proxy_edits = edits.iter().any(|edit| edit.owner == Owner::Proxy);
        let restart_kubelet =
            journal.stage != Stage::Enabled || kubelet_edits || !situation.kubelet.is_active();
        // The proxy is not in use yet, or keeps what it has: see the stages.
        let restart_proxy = proxy_edits || matches!(journal.stage, Stage::Preparing | Stage::KubeletRestored);
        if journal.stage == Stage::KubeletRestored {
            journal.is_kubelet_touched = false;
        }
        journal.stage = match journal.stage {
            Stage::Preparing | Stage::KubeletRestored => Stage::Preparing,
            Stage::ProxyReady | Stage::Enabled | Stage::Disabling => Stage::ProxyReady,
        };
        self.save(&journal)?;
        let expected = Expected::of(&situation, &journal.kubelet_unit);
        match self.forward(&mut journal, &expected, restart_proxy, restart_kubelet) {
            Ok(()) => {
                self.sweep(&journal)?;
                Ok(Done { is_changed: true, notes: std::mem::take(&mut self.notes) })
            }
            Err(cause) => {
                (self.say)(&format!("failed: {}", koord_runtime::error_chain::Chain(&cause)));
                (self.say)("rolling back");
                let runtime = journal.runtime.clone();
                match self.backward(&mut journal, &expected) {
                    Ok(()) => Err(SwitchError::RolledBack { runtime, source: Box::new(cause) }),
                    Err(source) => {
                        Err(SwitchError::NotRolledBack { cause: Box::new(cause), source: Box::new(source) })
                    }
                }
            }
        }
    }

    /// Adds to the journal what the edits change.
    fn record(&self, journal: &mut Journal, edits: &[Edit]) -> Result<(), SwitchError> {
        // What others have written anew, and the kubelet no longer takes its endpoint from, is not the switch's any more.
        let mut kept = Vec::new();
        for change in journal.changes.drain(..).collect::<Vec<_>>() {
            let now = self.read(&change.path)?;
            let is_edited = edits.iter().any(|edit| edit.path == change.path);
            if is_edited || !self.is_left_alone(journal, &change, now.as_ref()) {
                kept.push(change);
            }
        }
        journal.changes = kept;
        let mut refused = Vec::new();
        for edit in edits {
            match journal.changes.iter().position(|change| change.path == edit.path) {
                None => journal.changes.push(Change {
                    path: edit.path.clone(),
                    owner: edit.owner,
                    before: edit.before.clone(),
                    after: edit.after.clone(),
                }),
                Some(index) => {
                    let Some(change) = journal.changes.get_mut(index) else { continue };
                    let is_ours = edit.before == change.before
                        || edit.before.as_ref().is_some_and(|file| file.text == change.after.text);
                    if !is_ours {
                        // Somebody has written the file anew. Without the proxy's socket that is what it is before the
                        // switch now; with it, what it was before can no longer be told.
                        match &edit.before {
                            Some(file) if names_proxy(&file.text, journal) => {
                                if !self.options.is_forced {
                                    refused.push(edit.path.clone());
                                }
                            }
                            now => {
                                if let Some(change) = journal.changes.get_mut(index) {
                                    change.before.clone_from(now);
                                }
                            }
                        }
                    }
                    if let Some(change) = journal.changes.get_mut(index) {
                        change.after.clone_from(&edit.after);
                    }
                }
            }
        }
        if !refused.is_empty() {
            return Err(SwitchError::Changed { paths: refused, runtime: journal.runtime.clone() });
        }
        journal.changes.sort_by_key(|change| change.owner == Owner::Kubelet);
        for change in journal.changes.clone() {
            let mut directory = change.path.parent();
            while let Some(path) = directory.filter(|path| !self.system.exists(path)) {
                if !journal.directories.iter().any(|known| known == path) {
                    journal.directories.push(path.to_owned());
                }
                directory = path.parent();
            }
        }
        // Deepest first, as they are removed.
        journal.directories.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        Ok(())
    }

    fn record_annotation(&mut self, journal: &mut Journal, situation: &Situation) {
        let Some(access) = &situation.found.node else { return };
        match &situation.node {
            Ok(view) => {
                let is_runtime = |text: &String| {
                    crate::endpoint::Endpoint::parse(text)
                        .is_some_and(|value| value.is_same(&journal.runtime))
                };
                if let Some(value) = view.cri_socket.clone().filter(is_runtime) {
                    journal.annotation = Some(AnnotationBefore { access: access.clone(), value });
                }
            }
            Err(problem) if self.system.exists(Path::new(crate::discover::KUBEADM_FLAGS)) => {
                let text = format!(
                    "the Node object could not be read ({problem}); if it has the annotation, set it: kubectl annotate \
                     node {} --overwrite {CRI_SOCKET_ANNOTATION}={}",
                    access.name, journal.proxy
                );
                self.note(text);
            }
            Err(_) => {}
        }
    }

    fn forward(
        &mut self,
        journal: &mut Journal,
        expected: &Expected,
        restart_proxy: bool,
        restart_kubelet: bool,
    ) -> Result<(), SwitchError> {
        self.write_all(journal, Owner::Proxy)?;
        self.command(&["systemctl", "daemon-reload"])?;
        (self.say)("starting the proxy");
        self.command(&["systemctl", "enable", PROXY_SOCKET_UNIT, PROXY_SERVICE_UNIT])?;
        let service = systemd::state(self.system, PROXY_SERVICE_UNIT).unwrap_or_default();
        if restart_proxy && service.is_wanted() {
            if journal.stage == Stage::Preparing {
                // The kubelet does not use it, so that its socket may move.
                self.command(&["systemctl", "stop", PROXY_SERVICE_UNIT, PROXY_SOCKET_UNIT])?;
            } else {
                self.command(&["systemctl", "restart", PROXY_SERVICE_UNIT])?;
            }
        }
        self.command(&["systemctl", "start", PROXY_SOCKET_UNIT, PROXY_SERVICE_UNIT])?;
        self.wait_for_proxy(&journal.proxy.clone())?;
        if let Some(mode) = journal.mode.take() {
            // A disabling that was interrupted has switched the rules off.
            let body = serde_json::json!({ "mode": mode }).to_string();
            match self.system.admin("POST", koord_admin::path::MODE, &body, ANSWER) {
                Ok((200, _)) => {}
                Ok((status, body)) => self.note(format!("mode {mode} was refused ({status}): {body}")),
                Err(problem) => self.note(format!("mode {mode} was not set: {problem}")),
            }
        }
        journal.stage = Stage::ProxyReady;
        journal.is_kubelet_touched = true;
        self.save(journal)?;
        self.write_all(journal, Owner::Kubelet)?;
        self.assert_in_force(journal)?;
        if let Some(AnnotationBefore { access, .. }) = journal.annotation.clone() {
            self.annotate(&access, &journal.proxy.url());
        }
        if restart_kubelet {
            self.command(&["systemctl", "daemon-reload"])?;
            self.restart_kubelet(expected)?;
        }
        journal.stage = Stage::Enabled;
        self.save(journal)?;
        (self.say)("the kubelet is healthy behind the proxy");
        Ok(())
    }

    /// Reads the configuration again, as the kubelet will.
    fn assert_in_force(&self, journal: &Journal) -> Result<(), SwitchError> {
        let found = discover(
            self.system,
            &self.system.processes(),
            &self.system.host_name(),
            Some(&journal.kubelet_unit),
        )
        .map_err(SwitchError::Look)?;
        if found.endpoint.as_ref().is_some_and(|endpoint| endpoint.is_same(&journal.proxy)) {
            return Ok(());
        }
        let endpoint =
            found.endpoint.map_or_else(|| "another endpoint".to_owned(), |endpoint| endpoint.url());
        Err(SwitchError::NotInForce { endpoint, place: found.set_by })
    }

    fn write_all(&mut self, journal: &Journal, owner: Owner) -> Result<(), SwitchError> {
        for Change { path, after, before, .. } in
            journal.changes.iter().filter(|change| change.owner == owner)
        {
            let now = self.read(path)?;
            // What somebody has written between the look and now is not written over.
            let is_before = now == *before;
            if is_before {
                (self.say)(&format!("writing {}", path.display()));
                self.write(path, after)?;
            } else if now.as_ref().is_none_or(|file| file.text != after.text) {
                if self.options.is_forced {
                    self.write(path, after)?;
                } else if !now.as_ref().is_some_and(|file| names_proxy(&file.text, journal)) {
                    return Err(SwitchError::Changed {
                        paths: vec![path.clone()],
                        runtime: journal.runtime.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Sets the annotation; a failure is a note, since the kubelet does not need it.
    pub(super) fn annotate(&mut self, access: &crate::system::NodeAccess, value: &str) {
        if let Err(problem) = self.system.annotate(access, value, ANSWER) {
            self.note(format!(
                "the annotation was not set ({problem}); set it: kubectl annotate node {} --overwrite \
                 {CRI_SOCKET_ANNOTATION}={value}",
                access.name
            ));
        }
    }

    pub(super) fn commands_to_enable(&self, situation: &Situation) -> Vec<String> {
        let edits: &[Edit] = situation.edits.as_deref().unwrap_or_default();
        let is_enabled = situation.journal.as_ref().is_some_and(|journal| journal.stage == Stage::Enabled);
        let runs = situation.units.values().all(|state| state.is_active() && state.is_enabled());
        if edits.is_empty() && is_enabled && runs {
            return Vec::new();
        }
        let unit = situation.found.unit_name().unwrap_or("kubelet.service");
        let mut commands = vec![
            "systemctl daemon-reload".to_owned(),
            format!("systemctl enable {PROXY_SOCKET_UNIT} {PROXY_SERVICE_UNIT}"),
            format!("systemctl start {PROXY_SOCKET_UNIT} {PROXY_SERVICE_UNIT}"),
        ];
        if edits.iter().any(|edit| edit.owner == Owner::Kubelet) || !is_enabled {
            commands.push(format!("systemctl restart {unit}"));
        }
        if let (Ok(view), Some(access), Some(target)) =
            (&situation.node, &situation.found.node, &situation.target)
            && view.cri_socket.is_some()
        {
            commands.push(format!(
                "kubectl annotate node {} --overwrite {CRI_SOCKET_ANNOTATION}={}",
                access.name, target.proxy
            ));
        }
        commands
    }
}
