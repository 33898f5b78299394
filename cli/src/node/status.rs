//! `koordctl node status`.

use koord_admin::{Mode, NodeStatus, PolicyState, path};

use crate::outcome::{Failure, Outcome};
use crate::output::style::Tone;
use crate::output::table::{Cell, Table};
use crate::output::{counted, or_dash};
use crate::surroundings::Session;

/// Shows the state of the node.
///
/// # Errors
/// The proxy does not answer, or the output cannot be written.
pub fn run(session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let status: NodeStatus = session.client.get(path::STATUS)?;
    session.print(&status, |session| text(&status, session))?;
    Ok(Outcome::Success)
}

/// How a mode is emphasised.
pub fn tone_of(mode: Mode) -> Tone {
    match mode {
        Mode::Enforce => Tone::Good,
        Mode::Shadow | Mode::Off => Tone::Warning,
    }
}

fn text(status: &NodeStatus, session: &Session<'_, '_>) -> String {
    let NodeStatus { mode, version, policy, cgroup, backends, runtime, counts, last_reconcile } = status;
    // A table without headings: names and values.
    let mut facts = Table::new(&["NODE", ""]);
    let mut fact = |name: &str, tone: Tone, value: String| {
        facts.row(vec![name.into(), Cell::toned(tone, value)]);
    };
    fact("mode", tone_of(*mode), mode.to_string());
    fact("proxy", Tone::Plain, version.clone());
    let loaded = policy.loaded_at.map(|time| format!(", loaded {time}")).unwrap_or_default();
    let (tone, policy_text) = match policy.state {
        PolicyState::InForce => {
            (Tone::Good, format!("{} in force, generation {}{loaded}", policy.file, policy.generation))
        }
        PolicyState::LastGood => (
            Tone::Bad,
            format!(
                "{} was refused; its last good form is in force, generation {}{loaded}",
                policy.file, policy.generation
            ),
        ),
        PolicyState::Default if policy.errors.is_empty() => {
            (Tone::Plain, format!("built-in defaults; there is no {}", policy.file))
        }
        PolicyState::Default => {
            (Tone::Bad, format!("built-in defaults are in force; {} was refused", policy.file))
        }
    };
    fact("policy", tone, policy_text);
    for error in &policy.errors {
        fact("policy error", Tone::Bad, error.clone());
    }
    fact(
        "cgroup",
        Tone::Plain,
        format!(
            "{} at {}, driver {}, kubelet root {}, cpu weight conversion {}",
            cgroup.version, cgroup.root, cgroup.driver, cgroup.kubelet_root, cgroup.weight_conversion
        ),
    );
    let (tone, connection) =
        if runtime.connected { (Tone::Good, "connected") } else { (Tone::Bad, "not connected") };
    let runtime = [runtime.name.as_str(), runtime.version.as_str(), connection];
    let runtime: Vec<&str> = runtime.into_iter().filter(|part| !part.is_empty()).collect();
    fact("runtime", tone, runtime.join(" "));
    fact(
        "known",
        Tone::Plain,
        format!(
            "{}, {}, {}",
            counted(counts.pods, "pod", "pods"),
            counted(counts.containers, "container", "containers"),
            counted(counts.fields, "field", "fields")
        ),
    );
    let changed = match mode {
        Mode::Enforce | Mode::Off => format!("{} of these fields", counts.changed),
        Mode::Shadow => format!("none; enforcing would change {} of these fields", counts.changed),
    };
    fact("changed", Tone::Plain, changed);
    let tone = if counts.conflicts > 0 { Tone::Warning } else { Tone::Plain };
    fact("conflicts", tone, counts.conflicts.to_string());
    let time = last_reconcile.map(|time| time.to_string());
    fact("last reconcile", Tone::Plain, or_dash(time.as_deref()).to_owned());

    let mut text = facts.text(session.style, session.width());
    if !backends.is_empty() {
        let mut table = Table::new(&["INTENT", "MEANS", "REASON"]);
        for backend in backends {
            table.row(vec![(&backend.intent).into(), (&backend.backend).into(), (&backend.reason).into()]);
        }
        text.push('\n');
        text.push_str(&table.text(session.style, session.width()));
    }
    text
}
