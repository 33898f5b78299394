//! `koordctl hooks`.

pub mod sample;
pub mod test;

use koord_admin::{HookEntry, HookState, path};

use crate::arguments::HooksAction;
use crate::outcome::{Failure, Outcome};
use crate::output::or_dash;
use crate::output::style::Tone;
use crate::output::table::{Cell, Table};
use crate::surroundings::Session;

/// Carries out one command about hooks.
///
/// # Errors
/// See [`Failure`].
pub fn run(action: HooksAction, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    match action {
        HooksAction::List => list(session),
        HooksAction::Test(test) => test::run(&test, session),
    }
}

fn list(session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let hooks: Vec<HookEntry> = session.client.get(path::HOOKS)?;
    session.print(&hooks, |session| text(&hooks, session))?;
    Ok(Outcome::Success)
}

fn text(hooks: &[HookEntry], session: &Session<'_, '_>) -> String {
    if hooks.is_empty() {
        return "no hooks\n".to_owned();
    }
    let mut table = if session.is_wide() {
        Table::new(&[
            "NAME", "CARRIER", "PRIORITY", "STATE", "POLICY", "TIMEOUT", "CALLS", "ERRORS", "STAGES", "FILE",
            "DETAIL",
        ])
    } else {
        Table::new(&[
            "NAME", "CARRIER", "PRIORITY", "STATE", "POLICY", "TIMEOUT", "CALLS", "ERRORS", "DETAIL",
        ])
    };
    for hook in hooks {
        let carrier = match hook.mode {
            Some(mode) => format!("{} ({})", hook.carrier.as_str(), mode.as_str()),
            None => hook.carrier.as_str().to_owned(),
        };
        let tone = match hook.state {
            HookState::Ok => Tone::Good,
            HookState::OpenBreaker => Tone::Warning,
            HookState::Quarantined | HookState::Rejected => Tone::Bad,
        };
        let timeout = hook.timeout_ms.map(|milliseconds| format!("{milliseconds}ms"));
        let mut row = vec![
            (&hook.name).into(),
            carrier.into(),
            hook.priority.to_string().into(),
            Cell::toned(tone, hook.state.as_str()),
            or_dash(Some(&hook.failure_policy)).into(),
            or_dash(timeout.as_deref()).into(),
            hook.calls.to_string().into(),
            hook.errors.to_string().into(),
        ];
        if session.is_wide() {
            row.push(or_dash(Some(&hook.stages.join(","))).into());
            row.push(or_dash(hook.file.as_deref()).into());
        }
        row.push((&hook.detail).into());
        table.row(row);
    }
    table.text(session.style, session.width())
}
