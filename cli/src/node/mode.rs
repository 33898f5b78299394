//! `koordctl node mode`.

use koord_admin::{Mode, ModeChange, NodeStatus, RestoreReport, path};

use crate::outcome::{Failure, Outcome};
use crate::output::counted;
use crate::output::table::Table;
use crate::surroundings::Session;

/// Switches the proxy's rules.
///
/// # Errors
/// The proxy does not answer or refuses, or the output cannot be written.
pub fn change(mode: Mode, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let status: NodeStatus = session.client.post(path::MODE, &ModeChange { mode })?;
    session.print(&status, |session| {
        let mode = session.style.paint(super::status::tone_of(status.mode), status.mode.as_str());
        format!("mode is {mode} now\n")
    })?;
    if status.mode != mode {
        session.note(&format!("the proxy has not gone to mode {mode}"))?;
        return Ok(Outcome::Failed);
    }
    Ok(Outcome::Success)
}

/// Has the proxy put back what the kubelet asked for.
///
/// # Errors
/// The proxy does not answer or refuses, or the output cannot be written.
pub fn restore(confirmed: bool, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    if !confirmed && !confirm(QUESTION, session)? {
        session.note("nothing was changed")?;
        return Ok(Outcome::Failed);
    }
    let report: RestoreReport = session.client.order(path::RESTORE)?;
    session.print(&report, |session| text(&report, session))?;
    Ok(if report.failed.is_empty() { Outcome::Success } else { Outcome::Failed })
}

const QUESTION: &str = "All values that the proxy's rules and hooks have set on this node go back to what the kubelet asked \
                        for, and the rules are switched off.\nGo on? [y/N] ";

/// Asks, if somebody is there who can answer; else the answer is yes.
///
/// # Errors
/// The question cannot be written, or the answer not be read.
pub fn confirm(question: &str, session: &mut Session<'_, '_>) -> Result<bool, Failure> {
    let surroundings = &mut *session.surroundings;
    if !surroundings.terminal.can_ask {
        return Ok(true);
    }
    write!(surroundings.complaints, "{question}").map_err(Failure::Output)?;
    surroundings.complaints.flush().map_err(Failure::Output)?;
    let mut answer = String::new();
    surroundings.input.read_line(&mut answer).map_err(Failure::Input)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn text(report: &RestoreReport, session: &Session<'_, '_>) -> String {
    let RestoreReport { restored, same, failed, mode } = report;
    let number = u64::try_from(failed.len()).unwrap_or(u64::MAX);
    let mut text = format!(
        "{} put back to what the kubelet asked for, {same} were so already, {number} failed; mode is {mode} now\n",
        counted(*restored, "field", "fields")
    );
    if !failed.is_empty() {
        let mut table = Table::new(&["POD", "CONTAINER", "FIELD", "ERROR"]);
        for failure in failed {
            table.row(vec![
                crate::output::or_dash(Some(&failure.pod)).into(),
                crate::output::or_dash(Some(&failure.container)).into(),
                (&failure.field).into(),
                (&failure.error).into(),
            ]);
        }
        text.push_str(&table.text(session.style, session.width()));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::arguments::{Common, Format};
    use crate::surroundings::{Surroundings, Terminal};

    fn restore_with(answer: &str) -> (Result<Outcome, Failure>, String) {
        let (mut output, mut complaints) = (Vec::new(), Vec::new());
        let mut surroundings = Surroundings {
            terminal: Terminal { can_ask: true, ..Terminal::default() },
            input: &mut answer.as_bytes(),
            output: &mut output,
            complaints: &mut complaints,
        };
        let common = Common {
            admin_socket: "/nonexistent/admin.sock".into(),
            timeout: Some(Duration::from_secs(1)),
            output: Format::Table,
            no_color: true,
        };
        let result = restore(false, &mut Session::new(&common, &mut surroundings));
        (result, String::from_utf8(complaints).unwrap())
    }

    #[test]
    fn only_yes_is_yes() {
        for no in ["", "\n", "n\n", "no\n", "yess\n", "ja\n"] {
            let (result, complaints) = restore_with(no);
            assert_eq!(result.unwrap(), Outcome::Failed, "{no:?}");
            assert!(complaints.ends_with("Go on? [y/N] nothing was changed\n"), "{complaints}");
        }
        for yes in ["y\n", "yes\n", "Y\n", " YES \n"] {
            // The proxy is asked, and is not there.
            let (result, _) = restore_with(yes);
            assert_eq!(result.unwrap_err().outcome(), Outcome::Unreachable, "{yes:?}");
        }
    }
}
