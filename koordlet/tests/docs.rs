//! The documents against the program: flags and metrics. `KOORD_REWRITE_GOLDEN=1` writes the two documents that are made
//! from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use koordlet::flags;
use koordlet::metrics::{Definition, Kind, external, internal};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[track_caller]
fn assert_document(name: &str, text: &str) {
    let path = Path::new(ROOT).join("docs").join(name);
    if std::env::var_os("KOORD_REWRITE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("a document can be written");
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(present == text, "docs/{name} is not what KOORD_REWRITE_GOLDEN=1 would write:\n{text}");
}

/// A row of a table; empty cells are one space wide.
fn row<const N: usize>(cells: [&str; N]) -> String {
    let mut line = String::from("|");
    for cell in cells {
        let _infallible = match cell {
            "" => write!(line, " |"),
            cell => write!(line, " {} |", cell.replace('|', "\\|")),
        };
    }
    line + "\n"
}

const FLAGS_HEADER: &str = "\
# Flags of koordlet

Made from the program's help text by its tests; do not edit it by hand.

`koordlet [FLAGS]` runs the agent, `koordlet validate [FLAGS]` checks the flags and ends. A value follows as `--name value` or
`--name=value`, that of a switch after `=` only; one dash instead of two is accepted. A flag given twice has its last value. All
mistakes on a command line are reported at once. Names and defaults are those of Koordinator's koordlet.

Defaults of paths differ in a container, where the host's directories are mounted, and on the host (`agent_mode=hostMode` in the
environment, as in the unit of the package). The unit gives some flags itself; `systemctl cat koordlet.service` shows them.
";

/// The document of flags, from the help text.
fn flags_document(help: &str) -> String {
    let mut text = FLAGS_HEADER.to_owned();
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(heading) =
            line.strip_suffix(':').filter(|text| !text.starts_with(' ') && *text != "Usage")
        {
            let head = match heading {
                "Accepted without effect" => {
                    "Koordinator's koordlet has these flags. Here they are accepted, so that its manifests work, and change \
                     nothing.\n\n| flag | why it has no effect |\n|---|---|\n"
                }
                _ => "| flag | default | accepted | meaning |\n|---|---|---|---|\n",
            };
            let _infallible = write!(text, "\n## {heading}\n\n{head}");
            continue;
        }
        let Some(flag) = line.strip_prefix("  --") else { continue };
        let flag = format!("`--{flag}`");
        let meaning = lines.next().expect("a meaning").trim();
        let rest = lines.next_if(|line| line.trim_start().starts_with("accepted: "));
        match rest.map(|line| line.trim().trim_start_matches("accepted: ")) {
            None => text.push_str(&row([&flag, meaning])),
            Some(rest) => {
                let (accepted, default) = rest.rsplit_once("; default: ").expect("a default");
                let shown = |default: &str| match default {
                    "nothing" => "nothing".to_owned(),
                    default => format!("`{default}`"),
                };
                let default = match default.split_once(", on the host ") {
                    Some((container, host)) => format!("{}, on the host {}", shown(container), shown(host)),
                    None => shown(default),
                };
                text.push_str(&row([&flag, &default, accepted, meaning]));
            }
        }
    }
    text
}

#[test]
fn every_flag_is_documented_as_the_help_text_has_it() {
    let help = flags::help();
    let text = flags_document(&help);
    let flags = help.lines().filter(|line| line.starts_with("  --")).count();
    assert_eq!(text.lines().filter(|line| line.starts_with("| `--")).count(), flags);
    for wanted in [
        "| `--addr ADDRESS` | `:9316` | IP:PORT, :PORT for all addresses, or nothing for none | address of metrics, health and audit; plain HTTP |",
        "| `--run-root-dir PATH` | `/host-run/`, on the host `/run/` | an absolute path | the host's /run |",
        "| `--one_output` | lines have one form |",
    ] {
        assert!(text.lines().any(|line| line == wanted), "no line {wanted}\n{text}");
    }
    assert_document("koordlet-flags.md", &text);
}

/// Labels of metrics beside `node`, and their meaning. The tests compare them with the places that set the metrics.
const LABELS: &[(&str, &[&str])] = &[
    ("koordlet_collect_node_cpu_info_status", &["status"]),
    ("koordlet_collect_node_numa_info_status", &["status"]),
    ("koordlet_cpuset_share_pool_info", &["cpu"]),
    ("koordlet_cpuset_be_share_pool_info", &["cpu"]),
    ("koordlet_node_predicted_resource_reclaimable", &["predictor", "resource", "unit"]),
    ("koordlet_node_predicted_resource_peak", &["predictor", "resource", "unit"]),
    ("koordlet_node_metric_node_usage", &["resource", "unit"]),
    ("koordlet_node_metric_system_usage", &["resource", "unit"]),
    ("koordlet_node_metric_numa_node_usage", &["numa_node_id", "resource", "unit"]),
    ("koordlet_node_metric_numa_system_usage", &["numa_node_id", "resource", "unit"]),
    (
        "koordlet_host_application_resource_usage",
        &["host_application_name", "priority_class", "qos", "resource"],
    ),
    ("koordlet_kubelet_request_duration_seconds", &["code", "path", "verb"]),
    ("koordlet_collect_duration_seconds", &["collector"]),
    ("koordlet_collect_errors_total", &["class", "collector"]),
    ("koordlet_collector_ready", &["collector", "reason"]),
    ("koordlet_store_disk_full", &["content"]),
    ("koordlet_open_fds", &["kind"]),
    ("koordlet_pod_syncs_total", &["result", "source"]),
    ("koordlet_sample_source", &["source"]),
    ("koordlet_node_metric_report_total", &["result"]),
    ("koordlet_node_topology_writes_total", &["result"]),
    ("koordlet_apiserver_requests_total", &["code", "resource", "verb"]),
    ("koordlet_node_resource_allocatable", &["resource", "unit"]),
    ("koordlet_node_priority_resource_reclaimable", &["priority", "resource", "unit"]),
    ("koordlet_node_resource_priority_reclaimable_status", &["priority"]),
    (
        "koordlet_container_resource_requests",
        &["container_id", "container_name", "pod_name", "pod_namespace", "pod_uid", "resource", "unit"],
    ),
    (
        "koordlet_container_resource_limits",
        &["container_id", "container_name", "pod_name", "pod_namespace", "pod_uid", "resource", "unit"],
    ),
    (
        "koordlet_container_cpi",
        &["container_id", "container_name", "cpi_field", "pod_name", "pod_namespace", "pod_uid"],
    ),
    (
        "koordlet_container_psi",
        &[
            "container_id",
            "container_name",
            "cpu_full_supported",
            "pod_name",
            "pod_namespace",
            "pod_uid",
            "psi_degree",
            "psi_precision",
            "psi_resource_type",
        ],
    ),
    (
        "koordlet_pod_psi",
        &[
            "cpu_full_supported",
            "pod_name",
            "pod_namespace",
            "pod_uid",
            "psi_degree",
            "psi_precision",
            "psi_resource_type",
        ],
    ),
    ("koordlet_resctrl_llc_occupancy", &["cache_id", "qos"]),
    ("koordlet_resctrl_memory_bandwidth", &["cache_id", "mb_type", "qos"]),
    ("koordlet_resctrl_memory_bytes_total", &["cache_id", "mb_type", "qos"]),
    (
        "koordlet_psi_stall_seconds_total",
        &[
            "container_id",
            "container_name",
            "degree",
            "level",
            "pod_name",
            "pod_namespace",
            "pod_uid",
            "resource",
        ],
    ),
];

/// What labels say.
const VALUES: &[(&str, &str)] = &[
    ("`node`", "name of the Node"),
    (
        "`pod_uid`, `pod_name`, `pod_namespace`, `container_id`, `container_name`",
        "whose value it is; the id has the runtime's name before it",
    ),
    (
        "`resource`",
        "`cpu`, `memory`, or the name of a resource such as `kubernetes.io/batch-cpu`; of `koordlet_apiserver_requests_total` the kind of objects; of `koordlet_psi_stall_seconds_total` `cpu`, `mem`, `io`",
    ),
    ("`unit`", "`core`, `byte` or `integer`; limits of containers always say `byte`, as in Koordinator"),
    ("`status`", "`succeeded`, `failed`"),
    (
        "`predictor`",
        "`podReclaimablePredictor`, `priorityReclaimablePredictor`, `minPredictor` (the smaller of both, which is reported)",
    ),
    ("`priority`", "`koord-prod`"),
    (
        "`priority_class`, `qos`",
        "of a host application as the NodeSLO has it; of caches the class of their group",
    ),
    (
        "`verb`, `path`, `code`",
        "of a request: verb, path at the kubelet, status of the answer (`error` without an answer)",
    ),
    ("`collector`, `kind`", "name of a collector, such as `node`, `pods`, `pressure`"),
    ("`reason`", "why a collector gives no samples"),
    ("`class`", "`read`"),
    ("`content`", "`samples`, `models`"),
    ("`source` of `koordlet_pod_syncs_total`", "`kubelet`, `apiserver`"),
    ("`source` of `koordlet_sample_source`", "`proxy`, `own`"),
    ("`result` of `koordlet_pod_syncs_total`", "`changed`, `unchanged`, `empty`, `failed`"),
    (
        "`result` of `koordlet_node_metric_report_total`",
        "`written`, `skipped` (nothing has moved), `limited` (too many in a short time), `absent` (there is no object), `failed`",
    ),
    ("`result` of `koordlet_node_topology_writes_total`", "`written`, `failed`"),
    ("`level`", "`pod`, `container`"),
    ("`degree`, `psi_degree`", "`some` (at least one task waited), `full` (all waited)"),
    ("`psi_resource_type`", "`cpu`, `mem`, `io`"),
    ("`psi_precision`", "`avg10`, `avg60`, `avg300`"),
    ("`cpu_full_supported`", "whether the kernel tells of full stalls of CPU"),
    ("`cpi_field`", "`cycles`, `instructions`"),
    ("`mb_type`", "`mbm_local_bytes`, `mbm_total_bytes`"),
    ("`cache_id`", "number of the cache in resctrl"),
    ("`numa_node_id`", "number of the NUMA node"),
];

const METRICS_HEADER: &str = "\
# Metrics of koordlet

Made from the program's definitions by its tests; do not edit it by hand.

`GET /metrics` on `--addr` (port 9316) has them all, and the usual `process_*` metrics; `/internal-metrics` and
`/external-metrics` have one part each. The page is Prometheus text. Names are Koordinator's where it has such a metric; several of
its counters have no `_total`. The unit is the end of the name, or in the meaning, or the label `unit`; others are counts, or 0
and 1. A metric without values is not on the page. All but the time of requests to the kubelet have the
label `node`, which is left out below. Those of pods and containers follow `--pod-metrics`.
";

/// Metrics that Koordinator has and this program never sets.
const NEVER_SET: [&str; 1] = ["koordlet_collect_node_local_storage_info_status"];

fn labels_of(name: &str) -> &'static [&'static str] {
    LABELS.iter().find(|(metric, _)| *metric == name).map_or(&[], |(_, labels)| labels)
}

fn metrics_document() -> String {
    let mut text = METRICS_HEADER.to_owned();
    for (heading, path, definitions) in [
        ("For operators of the agent", "/internal-metrics", internal::ALL),
        ("For users of the node", "/external-metrics", external::ALL),
    ] {
        let _infallible = write!(
            text,
            "\n## {heading}\n\n`{path}`\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
        );
        for definition in definitions {
            let kind = match definition.kind {
                Kind::Gauge => "gauge",
                Kind::Counter => "counter",
                Kind::Histogram(_) => "histogram",
            };
            let meaning = match NEVER_SET.contains(&definition.name) {
                true => format!("{}; never set by this program", definition.help),
                false => definition.help.to_owned(),
            };
            let labels: Vec<String> =
                labels_of(definition.name).iter().map(|label| format!("`{label}`")).collect();
            text.push_str(&row([&format!("`{}`", definition.name), kind, &labels.join(", "), &meaning]));
        }
    }
    text.push_str("\n## Labels\n\n| label | says |\n|---|---|\n");
    for (label, says) in VALUES {
        text.push_str(&row([label, says]));
    }
    text
}

fn all() -> impl Iterator<Item = &'static Definition> {
    internal::ALL.iter().chain(external::ALL).copied()
}

#[test]
fn every_metric_is_documented_with_its_type_and_labels() {
    let names: BTreeSet<&str> = all().map(|definition| definition.name).collect();
    for (name, labels) in LABELS {
        assert!(names.contains(name), "there is no metric {name}");
        assert!(labels.is_sorted() && !labels.is_empty(), "{name}");
    }
    let nodeless: Vec<&str> = all().filter(|one| !one.has_node).map(|one| one.name).collect();
    assert_eq!(nodeless, ["koordlet_kubelet_request_duration_seconds"], "the document says so");
    let explained: String = VALUES.iter().map(|(label, _)| *label).collect();
    for label in LABELS
        .iter()
        .flat_map(|(_, labels)| *labels)
        .filter(|label| **label != "cpu" && **label != "host_application_name")
    {
        assert!(explained.contains(&format!("`{label}`")), "label {label} is not explained");
    }
    assert_document("koordlet-metrics.md", &metrics_document());
}

/// Sources of the program, without tests.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let text = read(&path);
            let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            found.push((path, text[..end].to_owned()));
        }
    }
}

/// Names in `("NAME", ...)`.
fn pairs(text: &str) -> BTreeSet<&str> {
    text.split("(\"").skip(1).filter_map(|rest| rest.split_once("\",").map(|(name, _)| name)).collect()
}

/// The constant of each metric, by its name.
fn constants() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/metrics");
    let mut found = BTreeMap::new();
    for module in ["internal", "external"] {
        for line in read(&folder.join(format!("{module}.rs"))).lines() {
            let Some((constant, rest)) = line.trim().split_once(" = \"koordlet_") else { continue };
            let name = rest.split('"').next().expect("a name");
            found.insert(format!("koordlet_{name}"), format!("{module}::{constant}"));
        }
    }
    found
}

#[test]
fn labels_are_those_of_the_places_that_set_the_metrics() {
    let constants = constants();
    assert_eq!(constants.len(), all().count());
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let (mut exact, mut set) = (0, BTreeSet::new());
    for (name, constant) in &constants {
        let wanted: BTreeSet<&str> = labels_of(name).iter().copied().collect();
        let mut near: BTreeSet<&str> = BTreeSet::new();
        for (path, text) in &files {
            for (start, _) in text.match_indices(constant.as_str()) {
                let rest = &text[start + constant.len()..];
                if rest.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_') {
                    continue;
                }
                set.insert(name.as_str());
                near.extend(pairs(text));
                // Labels that are written at the call are all there are.
                let call = rest.trim_start_matches([',', ' ', '\n']);
                if let Some(inline) = call.strip_prefix("&[").and_then(|rest| rest.split_once(']')) {
                    assert_eq!(pairs(inline.0), wanted, "{name} in {}", path.display());
                    exact += 1;
                }
            }
        }
        // Others are put together in the same file, or in the one that hands them over.
        let of_resources = ["koordlet_container_resource_requests", "koordlet_container_resource_limits"];
        if of_resources.contains(&name.as_str()) {
            near = files
                .iter()
                .filter(|(path, _)| path.ends_with("pods/resources.rs"))
                .flat_map(|(_, text)| pairs(text))
                .collect();
        }
        assert!(
            wanted.is_subset(&near) || !set.contains(name.as_str()),
            "{name}: {wanted:?} not all in {near:?}"
        );
    }
    assert!(exact >= 15, "{exact} calls have their labels beside them");
    let never: Vec<&str> = constants.keys().map(String::as_str).filter(|name| !set.contains(name)).collect();
    assert_eq!(never, NEVER_SET);
}
