//! `koordctl node status`.

use koord_admin::{Mode, NodeStatus, PolicyState, path};
use koord_node_switch::switch::Status as Switched;
use koord_runtime::error_chain::Chain;
use serde::Serialize;

use crate::arguments::Kubelet;
use crate::outcome::{Failure, Outcome};
use crate::output::style::Tone;
use crate::output::table::{Cell, Table};
use crate::output::{counted, or_dash};
use crate::surroundings::Session;

/// What the proxy says, and whether the kubelet goes through it.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    proxy: Option<NodeStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<Switched>,
}

/// Shows the state of the node. What the proxy does not say is left out, and the command fails.
///
/// # Errors
/// The proxy does not answer, or the output cannot be written.
pub fn run(kubelet: &Kubelet, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let system = super::switch::system(kubelet, session);
    let switch = match koord_node_switch::switch::status(&system, kubelet.kubelet_unit.as_deref()) {
        // A node without a kubelet has nothing to switch.
        Ok(status) => {
            Some(status).filter(|status| status.kubelet_unit.is_some() || status.state != "disabled")
        }
        Err(error) => {
            session.note(&format!(
                "whether the kubelet goes through the proxy is not known: {}",
                Chain(&error)
            ))?;
            None
        }
    };
    let (proxy, failure) = match session.client.get::<NodeStatus>(path::STATUS) {
        Ok(status) => (Some(status), None),
        Err(error) => (None, Some(Failure::from(error))),
    };
    let shown = Shown { proxy, switch };
    if shown.proxy.is_some() || shown.switch.is_some() {
        session.print(&shown, |session| {
            let parts = [
                shown.switch.as_ref().map(|switch| switch_text(switch, session)),
                shown.proxy.as_ref().map(|status| text(status, session)),
            ];
            parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
        })?;
    }
    failure.map_or(Ok(Outcome::Success), Err)
}

fn switch_text(status: &Switched, session: &Session<'_, '_>) -> String {
    let mut facts = Table::new(&["KUBELET", ""]);
    let mut fact = |name: &str, tone: Tone, value: String| {
        facts.row(vec![name.into(), Cell::toned(tone, value)]);
    };
    let tone = match status.state {
        "enabled" => Tone::Good,
        "disabled" => Tone::Plain,
        _ => Tone::Warning,
    };
    fact("switch", tone, status.state.to_owned());
    let unit = status.kubelet_unit.as_deref().unwrap_or("without a unit");
    let version =
        status.version.as_ref().map(|version| format!(", Kubernetes {version}")).unwrap_or_default();
    let tone = if status.kubelet == "active" { Tone::Good } else { Tone::Bad };
    let state = if status.kubelet.is_empty() { "unknown" } else { &status.kubelet };
    fact("kubelet", tone, format!("{unit} {state}{version}"));
    let endpoint = or_dash(status.endpoint.as_deref());
    let place = status
        .set_by
        .as_ref()
        .map_or_else(|| ", the default".to_owned(), |path| format!(", set by {}", path.display()));
    fact("endpoint", Tone::Plain, format!("{endpoint}{place}"));
    if let Some(running) = status.running.as_ref().filter(|running| status.endpoint.as_ref() != Some(running))
    {
        fact("running with", Tone::Warning, format!("{running}, until the kubelet is started again"));
    }
    fact("runtime", Tone::Plain, or_dash(status.runtime.as_deref()).to_owned());
    for unit in &status.units {
        let tone = if unit.active == "active" { Tone::Good } else { Tone::Plain };
        fact(&unit.name, tone, format!("{}, {}", or_dash(Some(&unit.active)), or_dash(Some(&unit.file))));
    }
    for place in &status.places {
        fact("set in", Tone::Plain, format!("{}: {}", place.place, place.endpoint));
    }
    for path in &status.drift {
        fact("changed since", Tone::Warning, path.display().to_string());
    }
    for mistake in &status.mistakes {
        fact("mistake", Tone::Bad, mistake.clone());
    }
    fact("next", Tone::Plain, status.next.clone());
    facts.text(session.style, session.width())
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
