//! Waiting until the proxy is ready and the kubelet is healthy.

use std::time::Duration;

use super::{Switch, SwitchError};
use crate::checks::{ANSWER, Situation};
use crate::endpoint::Endpoint;
use crate::plan::PROXY_SERVICE_UNIT;
use crate::system::NodeAccess;
use crate::systemd::{self, UnitState};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// So long a unit may still be called failed after an order to start it.
const ORDER_TAKEN: Duration = Duration::from_secs(3);

/// A kubelet that systemd has started again so often does not come up.
const MOST_RESTARTS: u32 = 3;

/// What is waited for after the kubelet's start.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// Its unit.
    pub(super) unit: String,
    /// Its health check.
    pub(super) health: Option<String>,
    /// Its Node object, if that was Ready before.
    pub(super) node: Option<NodeAccess>,
}

impl Expected {
    pub(super) fn of(situation: &Situation, unit: &str) -> Expected {
        let was_ready = situation.node.as_ref().is_ok_and(|view| view.is_ready);
        Expected {
            unit: unit.to_owned(),
            health: situation.found.health.clone(),
            node: situation.found.node.clone().filter(|_| was_ready),
        }
    }
}

impl Switch<'_> {
    /// Waits until the proxy serves, and the runtime answers through it.
    pub(super) fn wait_for_proxy(&mut self, proxy: &Endpoint) -> Result<(), SwitchError> {
        let start = self.system.elapsed();
        loop {
            let ready = match self.system.admin("GET", "/readyz", "", ANSWER) {
                Ok((200, _)) => self.system.runtime_version(proxy.path(), ANSWER).map(|_version| ()),
                Ok((status, body)) => Err(format!("/readyz answers {status}: {}", body.trim())),
                Err(problem) => Err(problem),
            };
            let Err(reason) = ready else { return Ok(()) };
            if self.system.elapsed().saturating_sub(start) >= self.options.timeout {
                let log = systemd::last_lines(self.system, PROXY_SERVICE_UNIT);
                return Err(SwitchError::ProxyNotReady { seconds: self.options.timeout, reason, log });
            }
            self.system.sleep(PAUSE);
        }
    }

    /// Starts the kubelet again and waits until it is healthy, and its node Ready if it was before.
    pub(super) fn restart_kubelet(&mut self, expected: &Expected) -> Result<(), SwitchError> {
        (self.say)(&format!("restarting {}", expected.unit));
        let before = systemd::state(self.system, &expected.unit).unwrap_or_default();
        let since = self.system.seconds();
        // Does not wait: a unit that says when it is ready would be waited for without an end.
        self.command(&["systemctl", "--no-block", "restart", &expected.unit])?;
        let start = self.system.elapsed();
        let mut healthy_pid = None;
        // systemd counts from zero again at an order, after a moment.
        let mut baseline = before.restarts;
        loop {
            let state = systemd::state(self.system, &expected.unit);
            let look = match state {
                Ok(state) => {
                    baseline = baseline.min(state.restarts);
                    let restarts = state.restarts.saturating_sub(baseline);
                    let is_settled = self.system.elapsed().saturating_sub(start) >= ORDER_TAKEN;
                    if restarts >= MOST_RESTARTS {
                        Look::Never(format!(
                            "{} has ended {restarts} times since it was started",
                            expected.unit
                        ))
                    } else if state.active == "failed" && is_settled {
                        Look::Never(format!("{} has failed", expected.unit))
                    } else {
                        self.look(expected, &state, before.main_pid, since)
                    }
                }
                Err(problem) => Look::NotYet(problem),
            };
            let reason = match look {
                Look::Well(pid) if healthy_pid == Some(pid) => return Ok(()),
                // Twice the same process, so that one that is about to end is not taken for well.
                Look::Well(pid) => {
                    healthy_pid = Some(pid);
                    String::new()
                }
                Look::NotYet(reason) => {
                    healthy_pid = None;
                    reason
                }
                Look::Never(reason) => return Err(self.not_healthy(expected, reason)),
            };
            if self.system.elapsed().saturating_sub(start) >= self.options.timeout && healthy_pid.is_none() {
                let reason = format!("{reason} after {} s", self.options.timeout.as_secs());
                return Err(self.not_healthy(expected, reason));
            }
            self.system.sleep(PAUSE);
        }
    }

    fn not_healthy(&self, expected: &Expected, reason: String) -> SwitchError {
        SwitchError::KubeletNotHealthy { reason, log: systemd::last_lines(self.system, &expected.unit) }
    }

    fn look(&self, expected: &Expected, state: &UnitState, pid_before: u32, since: i64) -> Look {
        if state.main_pid == 0 || state.main_pid == pid_before || !state.is_active() {
            return Look::NotYet(format!("{} is {}", expected.unit, state.active));
        }
        if let Some(address) = &expected.health {
            match self.system.http_status(address, "/healthz", ANSWER) {
                Ok(200) => {}
                Ok(status) => return Look::NotYet(format!("http://{address}/healthz answers {status}")),
                Err(problem) => return Look::NotYet(format!("http://{address}/healthz: {problem}")),
            }
        }
        if let Some(access) = &expected.node {
            match self.system.node(access, ANSWER) {
                // What the kubelet said before the restart does not count.
                Ok(view) if view.is_ready && view.ready_heartbeat.is_some_and(|time| time >= since) => {}
                Ok(_) => return Look::NotYet(format!("node {} is not Ready", access.name)),
                Err(problem) => return Look::NotYet(format!("node {}: {problem}", access.name)),
            }
        }
        Look::Well(state.main_pid)
    }
}

enum Look {
    Well(u32),
    NotYet(String),
    Never(String),
}
