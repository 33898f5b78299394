//! `koordctl node enable` and `node disable`.

use std::path::Path;
use std::time::Duration;

use koord_node_switch::checks::{Check, Verdict};
use koord_node_switch::real::RealSystem;
use koord_node_switch::switch::{Done, Options, Preview, Switch};

use crate::arguments::{Kubelet, SwitchOptions};
use crate::outcome::{Failure, Outcome};
use crate::output::style::Tone;
use crate::output::table::{Cell, Table};
use crate::surroundings::Session;

/// How long the kubelet may take until it is healthy again, by default.
const HEALTHY: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Enable,
    Disable,
}

/// Puts the proxy between the kubelet and its runtime.
///
/// # Errors
/// Something is in the way, or it failed and was rolled back.
pub fn enable(options: &SwitchOptions, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    switch(Direction::Enable, options, session)
}

/// Takes the proxy out.
///
/// # Errors
/// Files were changed by others, or something could not be put back.
pub fn disable(options: &SwitchOptions, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    switch(Direction::Disable, options, session)
}

/// The node as the options say.
pub(super) fn system(kubelet: &Kubelet, session: &Session<'_, '_>) -> RealSystem {
    RealSystem::new(kubelet.root.as_deref().unwrap_or_else(|| Path::new("/")), session.client.socket())
}

fn switch(
    direction: Direction,
    options: &SwitchOptions,
    session: &mut Session<'_, '_>,
) -> Result<Outcome, Failure> {
    if options.kubelet.root.is_some() && !options.dry_run {
        return Err(Failure::Usage(
            "--root goes with --dry-run only: units are those of this node".to_owned(),
        ));
    }
    let system = system(&options.kubelet, session);
    let how = Options {
        timeout: session.timeout.unwrap_or(HEALTHY),
        is_forced: options.force,
        kubelet_unit: options.kubelet.kubelet_unit.clone(),
    };
    let preview = |how: &Options| {
        let mut silent = |_: &str| {};
        let switch = Switch::new(&system, how.clone(), &mut silent);
        match direction {
            Direction::Enable => switch.preview_enable(),
            Direction::Disable => switch.preview_disable(),
        }
    };
    if options.dry_run {
        let preview = preview(&how)?;
        session.print(&preview, |session| text(&preview, session))?;
        return Ok(if preview.is_possible(options.force) { Outcome::Success } else { Outcome::Failed });
    }
    let _lock = system.lock()?;
    if !options.yes && session.surroundings.terminal.can_ask {
        let preview = preview(&how)?;
        if !preview.commands.is_empty() && preview.is_possible(options.force) {
            let question = format!("{}\nGo on? [y/N] ", text(&preview, session).trim_end());
            if !super::mode::confirm(&question, session)? {
                session.note("nothing was changed")?;
                return Ok(Outcome::Failed);
            }
        }
    }
    let complaints = &mut *session.surroundings.complaints;
    let mut say = |line: &str| {
        // There is nowhere else to say it.
        let _ignored = writeln!(complaints, "{line}");
    };
    let mut switch = Switch::new(&system, how, &mut say);
    let done = match direction {
        Direction::Enable => switch.enable(),
        Direction::Disable => switch.disable(),
    }?;
    session.print(&done, |_| ended(direction, &done))?;
    Ok(Outcome::Success)
}

fn ended(direction: Direction, done: &Done) -> String {
    let state = match direction {
        Direction::Enable => "enabled",
        Direction::Disable => "disabled",
    };
    if done.is_changed { format!("{state}\n") } else { format!("{state} already\n") }
}

/// Checks, differences and commands.
fn text(preview: &Preview, session: &Session<'_, '_>) -> String {
    let mut text = String::new();
    if !preview.checks.is_empty() {
        let mut table = Table::new(&["CHECK", "", "FOUND"]);
        for Check { subject, verdict, text } in &preview.checks {
            let (tone, word) = match verdict {
                Verdict::Good => (Tone::Good, "ok"),
                Verdict::Note => (Tone::Plain, "note"),
                Verdict::Doubtful => (Tone::Warning, "doubt"),
                Verdict::Failed => (Tone::Bad, "failed"),
            };
            table.row(vec![(*subject).into(), Cell::toned(tone, word), text.replace('\n', "; ").into()]);
        }
        text.push_str(&table.text(session.style, session.width()));
        text.push('\n');
    }
    for difference in &preview.differences {
        text.push_str(difference);
    }
    if !preview.differences.is_empty() {
        text.push('\n');
    }
    for command in &preview.commands {
        text.push_str(&format!("$ {command}\n"));
    }
    if preview.differences.is_empty() && preview.commands.is_empty() {
        text.push_str("nothing to change\n");
    }
    text
}
