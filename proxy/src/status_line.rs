//! The line that `systemctl status` shows of a proxy in service.

use std::sync::Arc;
use std::time::Duration;

use koord_admin::{PolicyState, PolicyStatus};
use koord_runtime::life::{Life, Phase};
use koord_runtime::notify::{Notification, Notifier};
use koord_runtime::supervisor::{Backoff, Policy, Supervisor};
use tokio::sync::watch;

use crate::qos::Qos;

/// What is told when nothing is out of order.
pub const SERVING: &str = "serving";

/// How often the policy's state is looked at. Its file is looked at every second.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The line for a state of the policy.
fn text(policy: &PolicyStatus) -> String {
    let Some(first) = policy.errors.first() else { return SERVING.to_owned() };
    let in_force = match policy.state {
        PolicyState::Default => "the defaults are in force",
        _ => "the one before is in force",
    };
    let more = match policy.errors.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{SERVING}; node policy refused, {in_force}: {first}{more}")
}

/// Tells the service manager when the policy's file is refused, and when it is well again. The line as it was told last
/// can be seen in what is returned.
pub fn follow(
    supervisor: &Supervisor,
    notifier: &Arc<Notifier>,
    life: &Life,
    qos: Option<&Arc<Qos>>,
) -> watch::Receiver<String> {
    let (line, seen) = watch::channel(SERVING.to_owned());
    let Some(qos) = qos else { return seen };
    let (notifier, life, qos, line) = (Arc::clone(notifier), life.clone(), Arc::clone(qos), Arc::new(line));
    let _detached = supervisor.spawn("status line", Policy::Restart(Backoff::default()), move |token| {
        let (notifier, life, qos, line) =
            (Arc::clone(&notifier), life.clone(), Arc::clone(&qos), Arc::clone(&line));
        async move {
            let mut looks = tokio::time::interval(LOOK_EVERY);
            looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                tokio::select! {
                    () = token.cancelled() => return Ok(()),
                    _ = looks.tick() => {}
                }
                let now = text(&qos.policy_status());
                if life.phase() == Phase::Serving && *line.borrow() != now {
                    notifier.tell(&[Notification::Status(now.clone())]);
                    line.send_replace(now);
                }
            }
        }
    });
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_policy_is_in_the_line_with_its_first_mistake() {
        let status = |state, errors: &[&str]| PolicyStatus {
            file: "/p.yaml".to_owned(),
            state,
            generation: 1,
            loaded_at: None,
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
        };
        for (state, errors, expected) in [
            (PolicyState::InForce, vec![], "serving"),
            (PolicyState::Default, vec![], "serving"),
            (
                PolicyState::LastGood,
                vec!["/p.yaml: a", "/p.yaml: b", "/p.yaml: c"],
                "serving; node policy refused, the one before is in force: /p.yaml: a (and 2 more)",
            ),
            (
                PolicyState::Default,
                vec!["/p.yaml: a"],
                "serving; node policy refused, the defaults are in force: /p.yaml: a",
            ),
        ] {
            assert_eq!(text(&status(state, &errors)), expected);
        }
    }
}
