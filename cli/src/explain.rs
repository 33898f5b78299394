//! `koordctl explain`: why a pod or container has the values it has.

use koord_admin::selection::Selected;
use koord_admin::{ContainerEntry, FieldEntry, PodEntry, Problem};
use serde::Serialize;

use crate::arguments::{Explain, Which};
use crate::outcome::{Failure, Outcome};
use crate::output::style::Tone;
use crate::output::table::Table;
use crate::output::wrap::lines;
use crate::output::{or_dash, printable, reason, value};
use crate::surroundings::Session;

/// Characters of an id that are shown in a narrow table, as `crictl` shows them.
const SHORT_ID: usize = 13;

/// A pod or a container, in JSON an item of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Level<'a> {
    /// `pod`, or `container NAME`.
    pub level: String,
    /// Id of the sandbox or container.
    pub id: &'a str,
    /// Directory below the mount point of the cgroup file system; empty if it has none.
    pub cgroup: &'a str,
    /// Its fields.
    pub fields: &'a [FieldEntry],
    /// What rules could not do.
    pub problems: &'a [Problem],
}

/// Explains what is asked for.
///
/// # Errors
/// See [`Failure`].
pub fn run(arguments: Explain, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    if let Some(file) = &arguments.filename {
        return crate::manifest::run(file, session);
    }
    let which = Which { what: Some(subject(&arguments.what)?), namespace: arguments.namespace };
    let pods = crate::node::pods(&session.client, &which)?;
    let selected = unambiguous(super::node::selected(&pods, &which), &which)?;
    let levels: Vec<Level<'_>> = selected.iter().copied().flat_map(levels_of).collect();
    session.print(&levels, |session| text(&selected, session))?;
    Ok(Outcome::Success)
}

/// What is meant: one word, or the kind and one word.
fn subject(words: &[String]) -> Result<String, Failure> {
    match words {
        [what] => Ok(what.clone()),
        [kind, what] if matches!(kind.as_str(), "pod" | "container") => Ok(what.clone()),
        [kind, ..] => Err(Failure::Usage(format!("{kind:?} is no kind; accepted: pod, container"))),
        [] => Err(Failure::Usage("no pod or container is named".to_owned())),
    }
}

/// Several sandboxes of one pod are all shown: a pod has two while it is replaced.
fn unambiguous<'a>(selected: Vec<Selected<'a>>, which: &Which) -> Result<Vec<Selected<'a>>, Failure> {
    let name = |found: &Selected<'a>| {
        let pod = found.pod();
        let container = match found {
            Selected::Pod(_) => None,
            Selected::Container(_, container) => Some(container.name.as_str()),
        };
        (pod.namespace.as_str(), pod.name.as_str(), container)
    };
    let first = selected.first().map(name);
    if selected.iter().all(|found| Some(name(found)) == first) {
        return Ok(selected);
    }
    let candidates = selected
        .iter()
        .map(|found| match found {
            Selected::Pod(pod) => format!("pod {}/{} ({})", pod.namespace, pod.name, pod.id),
            Selected::Container(pod, container) => {
                format!("container {}/{}/{} ({})", pod.namespace, pod.name, container.name, container.id)
            }
        })
        .map(|text| printable(&text))
        .collect();
    Err(Failure::Ambiguous { text: which.what.clone().unwrap_or_default(), candidates })
}

fn levels_of(selected: Selected<'_>) -> Vec<Level<'_>> {
    match selected {
        Selected::Pod(pod) => {
            let own = Level {
                level: "pod".to_owned(),
                id: &pod.id,
                cgroup: &pod.cgroup,
                fields: &pod.fields,
                problems: &pod.problems,
            };
            std::iter::once(own).chain(pod.containers.iter().map(level_of)).collect()
        }
        Selected::Container(_, container) => vec![level_of(container)],
    }
}

fn level_of(container: &ContainerEntry) -> Level<'_> {
    Level {
        level: format!("container {}", container.name),
        id: &container.id,
        cgroup: &container.cgroup,
        fields: &container.fields,
        problems: &container.problems,
    }
}

fn text(selected: &[Selected<'_>], session: &Session<'_, '_>) -> String {
    let mut parts = Vec::new();
    for found in selected {
        match *found {
            Selected::Pod(pod) => {
                parts.push(pod_text(pod, session));
                parts.extend(pod.containers.iter().map(|container| container_text(container, None, session)));
            }
            Selected::Container(pod, container) => parts.push(container_text(container, Some(pod), session)),
        }
    }
    parts.join("\n")
}

fn pod_text(pod: &PodEntry, session: &Session<'_, '_>) -> String {
    let title = format!("pod {}/{} ({})", pod.namespace, pod.name, shown_id(&pod.id, session));
    let label = if pod.qos.is_empty() { "no label" } else { "by its label" };
    let facts = format!(
        "QoS class {} ({label}), Kubernetes QoS class {}, priority class {}",
        or_dash(Some(&pod.effective_qos)),
        or_dash(Some(&pod.kube_qos)),
        or_dash(Some(&pod.priority_class))
    );
    level_text(&title, &facts, &pod.cgroup, &pod.fields, &pod.problems, session)
}

fn container_text(container: &ContainerEntry, pod: Option<&PodEntry>, session: &Session<'_, '_>) -> String {
    let title = format!("container {} ({})", container.name, shown_id(&container.id, session));
    let of = pod.map(|pod| format!(" in pod {}/{}", pod.namespace, pod.name)).unwrap_or_default();
    let facts = format!("{}{of}", container.state);
    level_text(&title, &facts, &container.cgroup, &container.fields, &container.problems, session)
}

fn level_text(
    title: &str,
    facts: &str,
    cgroup: &str,
    fields: &[FieldEntry],
    problems: &[Problem],
    session: &Session<'_, '_>,
) -> String {
    let mut text = session.style.paint(Tone::Heading, &printable(title)) + "\n";
    let room = session.width().map_or(usize::MAX, |width| width.saturating_sub(2));
    let mut say = |tone: Tone, said: &str| {
        for line in lines(&printable(said), room) {
            text.push_str(&format!("  {}\n", session.style.paint(tone, &line)));
        }
    };
    say(Tone::Plain, facts);
    if session.is_wide() {
        say(Tone::Plain, &format!("cgroup {}", or_dash(Some(cgroup))));
    }
    for problem in problems {
        say(Tone::Bad, &format!("problem: {}: {}", problem.rule, problem.message));
    }
    if fields.is_empty() {
        text.push_str("  no fields\n");
        return text;
    }
    let has_wishes = fields.iter().any(|field| field.wished.is_some());
    let mut table = if has_wishes {
        Table::new(&["FIELD", "ASKED", "SENT", "FOUND", "WANTED", "OWNER", "REASON"])
    } else {
        Table::new(&["FIELD", "ASKED", "SENT", "FOUND", "OWNER", "REASON"])
    }
    .indented(2);
    for field in fields {
        let mut row = vec![
            (&field.field).into(),
            value(field.asked.as_deref()).into(),
            value(field.sent.as_deref()).into(),
            value(field.found.as_deref()).into(),
        ];
        if has_wishes {
            row.push(value(field.wished.as_deref()).into());
        }
        row.push(or_dash(Some(&field.owner)).into());
        row.push(reason(&field.owner, &field.reason).into());
        table.row(row);
    }
    text + &table.text(session.style, session.width())
}

fn shown_id(id: &str, session: &Session<'_, '_>) -> String {
    if session.is_wide() { id.to_owned() } else { id.chars().take(SHORT_ID).collect() }
}
