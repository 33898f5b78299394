//! The documents against the program: flags, metrics, hook points and examples of registrations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use koord_intercept::HookType;
use koord_intercept::merge::{ResourceMerge, UpdateScope};
use koord_runtime_proxy::flags::{self, UsageConfig, UsageMetrics};
use koord_runtime_proxy::metrics::{
    BypassReason, CallKind, Direction, FailoverSource, HookResult, Metrics, PREFIX, Phase, UsageCollector,
    WriteCounter,
};
use koord_runtime_proxy::registration::{FailurePolicy, Registration};
use koord_runtime_proxy::usage::{Measured, Published, Usage};
use koord_usage::kind::{Kind, Pressure, PressureDegree, PressureFigure, PressureResource};
use koord_usage::object::{Object, TierSeries};
use koord_usage::pass::Pass;
use koord_usage::sampler::TickStatus;
use koord_usage::time::Tick;
use koord_usage_api::v1;
use prometheus_client::registry::Registry;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of all table rows whose first cell is code.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .filter(|row| row.starts_with('`'))
        .map(|row| row.split('|').map(str::trim).collect())
        .collect()
}

/// The first block of JSON in a document.
fn first_json(text: &str) -> &str {
    let (_, rest) = text.split_once("```json\n").expect("a block of JSON");
    rest.split_once("```").expect("its end").0
}

#[test]
fn every_flag_is_documented_as_the_help_text_has_it() {
    let text = document("docs/flags.md");
    let documented: BTreeMap<&str, Vec<&str>> = rows(&text)
        .into_iter()
        .filter(|row| row[0].starts_with("`--"))
        .map(|row| (row[0].trim_matches('`'), row[1..].to_vec()))
        .collect();
    let help = flags::help();
    let mut lines = help.lines().peekable();
    let mut wanted = BTreeMap::new();
    while let Some(line) = lines.next() {
        let Some(flag) = line.strip_prefix("  --") else { continue };
        let meaning = lines.next().expect("a meaning").trim();
        let accepted = lines.next_if(|line| line.trim_start().starts_with("accepted: "));
        let (accepted, default) = match accepted {
            Some(line) => {
                let line = line.trim().trim_start_matches("accepted: ");
                let (accepted, default) = line.rsplit_once("; default: ").expect("a default");
                let default = if default == "nothing" { default.to_owned() } else { format!("`{default}`") };
                (accepted, default)
            }
            None => ("true, or false", "off".to_owned()),
        };
        wanted.insert(format!("--{flag}"), vec![default, accepted.to_owned(), meaning.to_owned()]);
    }
    assert_eq!(wanted.len(), 43, "{help}");
    assert_eq!(documented.len(), wanted.len(), "{:?}", documented.keys());
    for (flag, cells) in &wanted {
        assert_eq!(
            documented.get(flag.as_str()).map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()),
            Some(cells.clone()),
            "{flag}"
        );
    }
}

/// One value of everything that is sampled.
fn usage() -> Arc<Usage> {
    let config = UsageConfig {
        enabled: true,
        interval: Duration::from_secs(1),
        memory_interval: Duration::from_secs(5),
        pressure: true,
        metrics: UsageMetrics::Container,
    };
    let usage = Arc::new(Usage::new(&config, Path::new("/proc")));
    let tick = Tick(1000);
    let mut pass = Pass::new(tick);
    let container = Object::Container { pod_uid: "u".into(), id: "c".into() };
    let pressure = Pressure {
        resource: PressureResource::Cpu,
        degree: PressureDegree::Some,
        figure: PressureFigure::Avg10,
    };
    for (object, kind) in [
        (Object::Node, Kind::NodeCpuUsage),
        (Object::Node, Kind::NodeMemoryUsage),
        (Object::Node, Kind::NodeMemoryUsageWithPageCache),
        (Object::Node, Kind::SystemCpuUsage),
        (Object::Node, Kind::SystemMemoryUsage),
        (Object::Tier(TierSeries::RealLimit), Kind::NodeBe),
        (Object::Tier(TierSeries::Usage), Kind::NodeBe),
        (Object::Pod("u".into()), Kind::PodCpuUsage),
        (Object::Pod("u".into()), Kind::PodCpuTime),
        (Object::Pod("u".into()), Kind::PodCpuThrottled),
        (Object::Pod("u".into()), Kind::PodMemoryUsage),
        (Object::Pod("u".into()), Kind::PodMemoryUsageWithPageCache),
        (Object::Pod("u".into()), Kind::PodPsi(pressure)),
        (container.clone(), Kind::ContainerCpuUsage),
        (container.clone(), Kind::ContainerCpuTime),
        (container.clone(), Kind::ContainerCpuThrottled),
        (container.clone(), Kind::ContainerMemoryUsage),
        (container.clone(), Kind::ContainerMemoryUsageWithPageCache),
        (container, Kind::ContainerPsi(pressure)),
    ] {
        pass.push(object, kind, 1.0);
    }
    let pod = v1::Pod {
        uid: "u".to_owned(),
        containers: vec![v1::Container { id: "c".to_owned(), ..v1::Container::default() }],
        ..v1::Pod::default()
    };
    let measured = Measured { pods: vec![Arc::new(pod)], ..Measured::default() };
    let collector = v1::CollectorState { name: "node".to_owned(), ..v1::CollectorState::default() };
    usage.publish(Published {
        pass,
        measured: Arc::new(measured),
        collectors: Arc::new(vec![collector]),
        ticks: TickStatus::default(),
    });
    usage
}

/// Every metric with one value of each.
fn page() -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    let metrics = Metrics::register(&mut registry);
    let writes = WriteCounter::register(&mut registry);
    writes.mode(koord_admin::Mode::Enforce);
    writes.written("cpu.shares", "changed");
    writes.refused("cpu.shares");
    metrics.build("1", "c");
    metrics.cri_requests("s", "m", 0, CallKind::Hooked).inc();
    metrics.cri_request_duration("s", "m", Phase::Total).observe(1.0);
    metrics.hook_called("f", "h", HookResult::Ok, "Fail", Duration::ZERO);
    metrics.hook_fail_open("h", "timeout");
    metrics.intercept_bypassed("m", BypassReason::Size);
    metrics.request_patched("m");
    metrics.store_records(1, 1);
    metrics.failover_finished(Duration::ZERO);
    metrics.failover_object(FailoverSource::Checkpoint);
    metrics.backend_connected("runtime", true);
    metrics.backend_reconnects().inc();
    metrics.hook_config_loaded("f");
    metrics.hook_config_rejected("f");
    metrics.streams_active().inc();
    metrics.bytes(Direction::Request).inc();
    UsageCollector::register(&mut registry, usage());
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes any text");
    text
}

/// Name, type and labels of each metric on a page.
fn exposed(page: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut found: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut kind = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            rest.rsplit_once(' ').expect("a type").1.clone_into(&mut kind);
        }
        if line.starts_with('#') {
            continue;
        }
        let (sample, _value) = line.rsplit_once(' ').expect("a sample");
        let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
        let mut name = name.strip_prefix(PREFIX).and_then(|name| name.strip_prefix('_')).expect("the prefix");
        if kind == "histogram" {
            name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|part| name.strip_suffix(part))
                .expect("a part of a histogram");
        }
        // No value used here has a comma in it.
        let labels = labels
            .trim_end_matches('}')
            .split(',')
            .filter_map(|label| label.split_once('=').map(|(label, _)| label.to_owned()))
            .filter(|label| label != "le");
        let entry = found.entry(name.to_owned()).or_insert_with(|| (kind.clone(), BTreeSet::new()));
        entry.1.extend(labels);
    }
    found
}

#[test]
fn every_metric_is_documented_with_its_type_and_labels() {
    let text = document("docs/metrics.md");
    let documented: BTreeMap<String, (String, BTreeSet<String>)> = rows(&text)
        .into_iter()
        .filter(|row| matches!(row.get(1), Some(&("counter" | "gauge" | "histogram"))))
        .map(|row| {
            let labels = row[2].split(',').map(|label| label.trim().trim_matches('`').to_owned());
            let labels = labels.filter(|label| !label.is_empty()).collect();
            (row[0].trim_matches('`').to_owned(), (row[1].to_owned(), labels))
        })
        .collect();
    let exposed = exposed(&page());
    assert_eq!(exposed.len(), 50, "{:?}", exposed.keys());
    assert_eq!(documented, exposed);
}

#[test]
fn label_values_with_a_fixed_set_are_documented() {
    let text = document("docs/metrics.md");
    let values = [
        CallKind::Hooked.as_str(),
        CallKind::Observed.as_str(),
        CallKind::Passthrough.as_str(),
        Phase::Total.as_str(),
        Phase::Pre.as_str(),
        Phase::Backend.as_str(),
        Phase::Post.as_str(),
        Phase::Added.as_str(),
        HookResult::Ok.as_str(),
        HookResult::Error.as_str(),
        HookResult::Timeout.as_str(),
        BypassReason::Size.as_str(),
        BypassReason::Decode.as_str(),
        BypassReason::Encoding.as_str(),
        BypassReason::SkipLabel.as_str(),
        BypassReason::UnknownId.as_str(),
        FailoverSource::Checkpoint.as_str(),
        FailoverSource::Status.as_str(),
        FailoverSource::Cgroup.as_str(),
        FailoverSource::Missing.as_str(),
        Direction::Request.as_str(),
        Direction::Response.as_str(),
    ];
    for value in values {
        assert!(text.contains(&format!("`{value}`")), "{value}");
    }
}

#[test]
fn every_hook_point_is_documented_with_its_method() {
    let text = document("docs/hooks.md");
    let rows = rows(&text);
    for hook in HookType::ALL {
        let name = format!("`{hook}`");
        let row = rows.iter().find(|row| row[0] == name && row.len() == 5);
        let row = row.unwrap_or_else(|| panic!("{name} has no row"));
        let method = hook.grpc_path().rsplit('/').next().expect("a method");
        assert_eq!(row[3], format!("`{method}`"));
        assert_eq!(row[2].starts_with("after"), hook.is_post(), "{name}");
    }
}

#[test]
fn the_examples_of_registrations_mean_what_the_documents_say() {
    let hooks =
        [HookType::PreRunPodSandbox, HookType::PreCreateContainer, HookType::PreUpdateContainerResources];
    let plain = Registration {
        endpoint: "/var/run/koordlet/koordlet.sock".parse().expect("an endpoint"),
        failure_policy_text: "Ignore".to_owned(),
        failure_policy: FailurePolicy::Ignore,
        hooks: hooks.into_iter().collect(),
        timeout: None,
        priority: 0,
        resource_merge: ResourceMerge::Koordinator,
        apply_pod_resources: false,
        update_scope: UpdateScope::Full,
    };
    let readme = document("README.md");
    assert_eq!(Registration::parse(first_json(&readme).as_bytes()), Ok(plain.clone()));
    let full = Registration {
        timeout: Some(Duration::from_millis(500)),
        priority: 10,
        resource_merge: ResourceMerge::Overlay,
        update_scope: UpdateScope::Changed,
        ..plain
    };
    let page = document("docs/hooks.md");
    assert_eq!(Registration::parse(first_json(&page).as_bytes()), Ok(full));
}
