//! `koordctl hooks test`: what a hook library is, and what it answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use koord_hook::HookType;
use koord_hook::v1alpha1::{ContainerResourceHookResponse, LinuxContainerResources, PodSandboxHookResponse};
use koord_hooks::probe::{CallReport, Probe, ProbeAnswer};
use koord_runtime::error_chain::Chain;
use koord_runtime::yaml;
use serde::Serialize;

use super::sample::Sample;
use crate::arguments::HookTest;
use crate::outcome::{Failure, Outcome};
use crate::output::style::Tone;
use crate::output::table::{Cell, Table};
use crate::output::{or_dash, printable};
use crate::surroundings::Session;

/// What is known of a library after it was tested.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// The file.
    file: PathBuf,
    /// Name the library gives itself.
    name: String,
    /// Version the library gives itself.
    version: String,
    /// Version of the binary interface, as `1.0`.
    abi: String,
    /// Whether it takes one call at a time only.
    serial: bool,
    /// Stages it wants to be asked at.
    stages: Vec<&'static str>,
    /// Why the proxy would not take it from the folder it is in; nothing if it would.
    folder_problem: Option<String>,
    /// Calls made.
    calls: Vec<Call>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    /// The stage.
    stage: &'static str,
    /// How long it took, with the way to the library's process and back.
    elapsed_microseconds: u64,
    /// Why there is no answer; nothing if there is one.
    error: Option<String>,
    /// What the answer changes, by field.
    changes: BTreeMap<String, String>,
}

/// Tests a library in a process of its own.
///
/// # Errors
/// The library cannot be loaded, or the sample cannot be used.
pub fn run(test: &HookTest, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let stage = test.stage.as_deref().map(stage_named).transpose()?;
    let request = match (stage, &test.sample) {
        (Some(stage), Some(file)) => Some(sample(file)?.encode(stage)),
        _ => None,
    };
    let probe = Probe { only: stage, request, ..Probe::of_this_program() };
    let tried = probe
        .run(&test.file)
        .map_err(|source| Failure::Probe { path: test.file.clone(), source: source.into() })?;
    let report = Report {
        file: test.file.clone(),
        name: tried.description.name.clone(),
        version: tried.description.version.clone(),
        abi: format!("{}.{}", tried.description.abi_major, tried.description.abi_minor),
        serial: tried.description.serial,
        stages: tried.description.stages().iter().map(HookType::as_str).collect(),
        folder_problem: tried.folder.as_ref().map(|error| Chain(error).to_string()),
        calls: tried.calls.into_iter().map(call_of).collect(),
    };
    session.print(&report, |session| text(&report, session))?;
    let has_failed = report.calls.iter().any(|call| call.error.is_some());
    Ok(if has_failed { Outcome::Failed } else { Outcome::Success })
}

fn stage_named(name: &str) -> Result<HookType, Failure> {
    HookType::from_name(name).ok_or_else(|| {
        let all = HookType::ALL.map(HookType::as_str).join(", ");
        Failure::Usage(format!("stage {name:?} is not known; accepted: {all}"))
    })
}

fn sample(path: &Path) -> Result<Sample, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Failure::Read { path: path.to_owned(), source })?;
    let value =
        yaml::document(&text).map_err(|source| Failure::Malformed { path: path.to_owned(), source })?;
    serde_json::from_value(value).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

fn call_of(report: CallReport) -> Call {
    let (error, changes) = match report.outcome {
        Err(error) => (Some(error), BTreeMap::new()),
        Ok(ProbeAnswer::Nothing) => (None, BTreeMap::new()),
        Ok(ProbeAnswer::Pod(answer)) => (None, changes_of_pod(answer)),
        Ok(ProbeAnswer::Container(answer)) => (None, changes_of_container(answer)),
    };
    Call {
        stage: report.stage.as_str(),
        elapsed_microseconds: u64::try_from(report.elapsed.as_micros()).unwrap_or(u64::MAX),
        error,
        changes,
    }
}

fn changes_of_pod(answer: PodSandboxHookResponse) -> BTreeMap<String, String> {
    let mut changes = BTreeMap::new();
    add_map(&mut changes, "label", answer.labels);
    add_map(&mut changes, "annotation", answer.annotations);
    add_text(&mut changes, "cgroup_parent", answer.cgroup_parent);
    add_resources(&mut changes, answer.resources.unwrap_or_default());
    changes
}

fn changes_of_container(answer: ContainerResourceHookResponse) -> BTreeMap<String, String> {
    let mut changes = BTreeMap::new();
    add_map(&mut changes, "annotation", answer.container_annotations);
    add_map(&mut changes, "env", answer.container_envs);
    add_text(&mut changes, "cgroup_parent", answer.pod_cgroup_parent);
    add_resources(&mut changes, answer.container_resources.unwrap_or_default());
    changes
}

fn add_map(changes: &mut BTreeMap<String, String>, kind: &str, map: BTreeMap<String, String>) {
    changes.extend(map.into_iter().map(|(key, value)| (format!("{kind} {key}"), value)));
}

fn add_text(changes: &mut BTreeMap<String, String>, field: &str, text: String) {
    if !text.is_empty() {
        changes.insert(field.to_owned(), text);
    }
}

/// In the protocol 0 and the empty text are "nothing said".
fn add_resources(changes: &mut BTreeMap<String, String>, resources: LinuxContainerResources) {
    let numbers = [
        ("cpu_period", resources.cpu_period),
        ("cpu_quota", resources.cpu_quota),
        ("cpu_shares", resources.cpu_shares),
        ("memory_limit_in_bytes", resources.memory_limit_in_bytes),
        ("memory_swap_limit_in_bytes", resources.memory_swap_limit_in_bytes),
        ("oom_score_adj", resources.oom_score_adj),
    ];
    for (field, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
        changes.insert(field.to_owned(), number.to_string());
    }
    add_text(changes, "cpuset_cpus", resources.cpuset_cpus);
    add_text(changes, "cpuset_mems", resources.cpuset_mems);
    add_map(changes, "unified", resources.unified);
    for limit in resources.hugepage_limits {
        changes.insert(format!("hugepage {}", limit.page_size), limit.limit.to_string());
    }
}

fn text(report: &Report, session: &Session<'_, '_>) -> String {
    let title = format!("{} {} ({})", report.name, report.version, report.file.display());
    let mut text = session.style.paint(Tone::Heading, &printable(&title)) + "\n";
    let at_a_time = if report.serial { "one call at a time" } else { "several calls at a time" };
    let mut facts = Table::new(&["FACT", "VALUE"]).indented(2);
    facts.row(vec!["binary interface".into(), format!("{}, {at_a_time}", report.abi).into()]);
    facts.row(vec!["stages".into(), or_dash(Some(&report.stages.join(", "))).into()]);
    let folder = match &report.folder_problem {
        None => Cell::toned(Tone::Good, "can be used by the proxy"),
        Some(problem) => Cell::toned(Tone::Warning, format!("would be refused by the proxy: {problem}")),
    };
    facts.row(vec!["folder".into(), folder]);
    text.push_str(&facts.text(session.style, session.width()));
    if report.calls.is_empty() {
        return text;
    }
    let mut calls = Table::new(&["STAGE", "TIME", "ANSWER"]).indented(2);
    for call in &report.calls {
        let answer = match &call.error {
            Some(error) => Cell::toned(Tone::Bad, format!("failed: {error}")),
            None if call.changes.is_empty() => Cell::from("changes nothing"),
            None => {
                let changes: Vec<String> =
                    call.changes.iter().map(|(field, value)| format!("{field}={value}")).collect();
                Cell::toned(Tone::Good, changes.join(", "))
            }
        };
        calls.row(vec![call.stage.into(), format!("{} us", call.elapsed_microseconds).into(), answer]);
    }
    text.push('\n');
    text + &calls.text(session.style, session.width())
}
