//! Reports for people.

use koord_extension::quantity::ResourceList;

use super::keys::KeyState;
use super::report::{CgroupReport, ContainerReport, PodReport, Verdict};
use crate::output::style::Tone;
use crate::output::table::{Cell, Table};
use crate::output::{or_dash, printable};
use crate::surroundings::Session;

/// How far everything below a title is indented.
const INDENT: usize = 2;

/// Values of keys longer than this are cut in a narrow table.
const LONGEST_VALUE: usize = 40;

/// All reports, one after the other.
pub fn of_reports(reports: &[PodReport], session: &Session<'_, '_>) -> String {
    reports.iter().map(|report| of_report(report, session)).collect::<Vec<_>>().join("\n")
}

fn of_report(report: &PodReport, session: &Session<'_, '_>) -> String {
    let PodReport { kind, namespace, name, qos, priority, legality, cgroup, translation, .. } = report;
    let title = match kind.as_str() {
        "Pod" => format!("pod {namespace}/{name}"),
        _ => format!("pod of {kind} {namespace}/{name}"),
    };
    let mut text = session.style.paint(Tone::Heading, &printable(&title)) + "\n";

    let mut facts = Table::new(&["FACT", "VALUE"]).indented(INDENT);
    let mut fact = |name: &str, tone: Tone, value: &str| {
        facts.row(vec![name.into(), Cell::toned(tone, value)]);
    };
    let source = if qos.raw.is_some() { "by its label" } else { "by default, no label names one" };
    fact("QoS class", Tone::Plain, &format!("{} ({source})", qos.effective));
    fact("Kubernetes QoS class", Tone::Plain, &format!("{} ({})", qos.kube, qos.kube_source));
    let source =
        if priority.raw_class.is_some() { "by label or value" } else { "by default, from the QoS class" };
    fact("priority class", Tone::Plain, &format!("{} ({source})", priority.effective_class));
    let source = match priority.written {
        Some(0) => " (0 is written, which counts as none)".to_owned(),
        Some(_) => String::new(),
        None => " (by default)".to_owned(),
    };
    fact("priority value", Tone::Plain, &format!("{}{source}", priority.effective));
    fact("sub-priority", Tone::Plain, &priority.sub_priority.to_string());
    let tone = match legality.verdict {
        Verdict::Ok => Tone::Good,
        Verdict::Warning | Verdict::Unknown => Tone::Warning,
        Verdict::Forbidden => Tone::Bad,
    };
    let reason = if legality.reason.is_empty() { String::new() } else { format!(": {}", legality.reason) };
    fact("legality", tone, &format!("{}{reason}", legality.verdict.as_str()));
    cgroup_facts(cgroup, &mut fact);
    for problem in &report.problems {
        fact("problem", Tone::Bad, problem);
    }
    for warning in &report.warnings {
        fact("warning", Tone::Warning, warning);
    }
    text.push_str(&facts.text(session.style, session.width()));

    if report.containers.iter().any(has_resources) {
        text.push('\n');
        text.push_str(&resources("RESOURCE", &report.containers, session));
    }
    if let Some(translation) = translation {
        let said = "if a profile matches, its resources are translated, and then:";
        text.push_str(&format!("\n{}{said}\n\n", " ".repeat(INDENT)));
        text.push_str(&resources("RESOURCE", &translation.containers, session));
        text.push('\n');
        let mut facts = Table::new(&["FACT", "VALUE"]).indented(INDENT);
        let mut fact = |name: &str, tone: Tone, value: &str| {
            facts.row(vec![name.into(), Cell::toned(tone, value)]);
        };
        fact("Kubernetes QoS class", Tone::Plain, translation.kube_qos.as_str());
        cgroup_facts(&translation.cgroup, &mut fact);
        if session.is_wide() {
            fact("extended-resource-spec", Tone::Plain, &translation.extended_resource_spec);
        }
        text.push_str(&facts.text(session.style, session.width()));
    }
    if !report.keys.is_empty() {
        text.push('\n');
        text.push_str(&keys(report, session));
    }
    text
}

fn cgroup_facts(cgroup: &CgroupReport, fact: &mut impl FnMut(&str, Tone, &str)) {
    fact("cgroup (cgroupfs)", Tone::Plain, &cgroup.cgroupfs);
    fact("cgroup (systemd)", Tone::Plain, &cgroup.systemd);
}

fn has_resources(container: &ContainerReport) -> bool {
    !container.requests.is_empty() || !container.limits.is_empty()
}

fn resources(heading: &str, containers: &[ContainerReport], session: &Session<'_, '_>) -> String {
    let mut table = Table::new(&["CONTAINER", "KIND", heading, "REQUEST", "LIMIT"]).indented(INDENT);
    for container in containers {
        let shown = |list: &ResourceList, name: &str| list.get(name).map(ToString::to_string);
        let mut names: Vec<&String> = container.requests.keys().chain(container.limits.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            table.row(vec![
                or_dash(Some(&container.name)).into(),
                container.kind.into(),
                name.into(),
                or_dash(shown(&container.requests, name).as_deref()).into(),
                or_dash(shown(&container.limits, name).as_deref()).into(),
            ]);
        }
    }
    table.text(session.style, session.width())
}

fn keys(report: &PodReport, session: &Session<'_, '_>) -> String {
    let mut table = Table::new(&["PLACE", "KEY", "VALUE", "STATE", "NOTE"]).indented(INDENT);
    for key in &report.keys {
        let tone = match key.state {
            KeyState::Recognised => Tone::Good,
            KeyState::Invalid | KeyState::Misplaced => Tone::Bad,
            KeyState::Unrecognised | KeyState::Foreign => Tone::Warning,
        };
        table.row(vec![
            key.place.as_str().into(),
            (&key.key).into(),
            shortened(&key.value, session).into(),
            Cell::toned(tone, key.state.as_str()),
            (&key.note).into(),
        ]);
    }
    table.text(session.style, session.width())
}

fn shortened(value: &str, session: &Session<'_, '_>) -> String {
    if session.is_wide() || value.chars().count() <= LONGEST_VALUE {
        return value.to_owned();
    }
    let beginning: String = value.chars().take(LONGEST_VALUE - 3).collect();
    beginning + "..."
}
