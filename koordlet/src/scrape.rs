//! What is told as metrics when a page is asked for.

use std::collections::HashMap;
use std::sync::Arc;

use koord_prediction::pod::Pod;
use koord_runtime::metrics::ProcessCollector;
use koord_usage::kind::{Kind, PressureDegree, PressureFigure, PressureResource};
use koord_usage::object::Object;
use koord_usage::time::Tick;
use prometheus_client::registry::Registry as ProcessRegistry;

use crate::flags::PodMetrics;
use crate::intake::Readings;
use crate::metrics::page::Page;
use crate::metrics::{Rows, external, internal};
use crate::pods::PodSet;
use crate::reporter::{Reporter, quantities};
use crate::source::Source;
use crate::state::State;

/// Labels of pods and containers by the ids in samples.
struct Names<'a> {
    pods: HashMap<&'a str, &'a Pod>,
}

/// Who a sample is about.
struct Who<'a> {
    pod: &'a Pod,
    /// Id with the runtime's name, and name.
    container: Option<(&'a str, &'a str)>,
}

impl<'a> Names<'a> {
    fn new(set: &'a PodSet) -> Names<'a> {
        Names { pods: set.pods.iter().map(|pod| (pod.metadata.uid.as_str(), &**pod)).collect() }
    }

    fn of(&self, object: &Object) -> Option<Who<'a>> {
        match object {
            Object::Pod(uid) => Some(Who { pod: self.pods.get(&**uid)?, container: None }),
            Object::Container { pod_uid, id } => {
                let pod = *self.pods.get(&**pod_uid)?;
                let statuses =
                    pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
                let status = statuses.into_iter().find(|status| status.bare_id() == Some(&**id))?;
                Some(Who { pod, container: Some((&status.container_id, &status.name)) })
            }
            _ => None,
        }
    }
}

fn pressure(readings: &Readings, names: &Names<'_>, finest: PodMetrics) -> (Rows, Rows, Rows) {
    let (mut pods, mut containers, mut stalls) = (Rows::new(), Rows::new(), Rows::new());
    for (object, reading) in &readings.pressure {
        let Some(who) = names.of(object) else { continue };
        let metadata = &who.pod.metadata;
        let supported = reading.is_cpu_full_supported.to_string();
        for (figure, value) in &reading.figures {
            // Without the line about full stalls of CPU its figures are zeros that say nothing.
            let says_nothing = figure.resource == PressureResource::Cpu
                && figure.degree == PressureDegree::Full
                && !reading.is_cpu_full_supported;
            if figure.figure == PressureFigure::Total {
                if !says_nothing {
                    let level = if who.container.is_some() { "container" } else { "pod" };
                    let (id, name) = who.container.unwrap_or(("", ""));
                    let labels = [
                        ("level", level),
                        ("resource", figure.resource.as_str()),
                        ("degree", figure.degree.as_str()),
                        ("pod_uid", metadata.uid.as_str()),
                        ("pod_name", metadata.name.as_str()),
                        ("pod_namespace", metadata.namespace.as_str()),
                        ("container_id", id),
                        ("container_name", name),
                    ];
                    stalls.push(labels, *value);
                }
                continue;
            }
            if says_nothing {
                continue;
            }
            let shared = [
                ("pod_uid", metadata.uid.as_str()),
                ("pod_name", metadata.name.as_str()),
                ("pod_namespace", metadata.namespace.as_str()),
                ("psi_resource_type", figure.resource.as_str()),
                ("psi_precision", figure.figure.as_str()),
                ("psi_degree", figure.degree.as_str()),
                ("cpu_full_supported", supported.as_str()),
            ];
            match who.container {
                None => pods.push(shared, *value),
                Some((id, name)) if finest >= PodMetrics::Container => {
                    let [uid, pod, namespace, resource, precision, degree, full] = shared;
                    let labels = [
                        uid,
                        pod,
                        namespace,
                        resource,
                        precision,
                        degree,
                        full,
                        ("container_id", id),
                        ("container_name", name),
                    ];
                    containers.push(labels, *value);
                }
                Some(_) => {}
            }
        }
    }
    (pods, containers, stalls)
}

fn cpi(readings: &Readings, names: &Names<'_>) -> Rows {
    let mut rows = Rows::new();
    for (object, reading) in &readings.cpi {
        let Some(Who { pod, container: Some((id, name)) }) = names.of(object) else { continue };
        let fields = [("cycles", reading.cycles), ("instructions", reading.instructions)];
        for (field, value) in fields.into_iter().filter_map(|(field, value)| Some((field, value?))) {
            let labels = [
                ("container_id", id),
                ("container_name", name),
                ("pod_uid", pod.metadata.uid.as_str()),
                ("pod_name", pod.metadata.name.as_str()),
                ("pod_namespace", pod.metadata.namespace.as_str()),
                ("cpi_field", field),
            ];
            rows.push(labels, value);
        }
    }
    rows
}

/// Readings of the node, host applications and caches.
fn others(state: &State, readings: &Readings) {
    let policy = Arc::clone(&state.policy.borrow());
    let (mut applications, mut occupancy, mut bandwidth, mut traffic) =
        (Rows::new(), Rows::new(), Rows::new(), Rows::new());
    for (object, kind, value) in &readings.others {
        match (object, kind) {
            (Object::Node, Kind::NodeCpuUsage) => state.internal.set(&internal::NODE_USED_CPU, &[], *value),
            (Object::Node, Kind::NodeMemoryUsage) => {
                state.internal.set(&internal::NODE_USED_MEMORY, &[], *value)
            }
            (Object::Node, Kind::SystemCpuUsageDirect) => {
                state.external.set(&external::SYSTEM_CPU_DIRECT, &[], *value);
            }
            (Object::HostApplication(name), kind) => {
                let resource = match kind {
                    Kind::HostApplicationCpuUsage => "cpu",
                    Kind::HostApplicationMemoryUsage => "memory",
                    _ => continue,
                };
                let Some(application) = policy.host_applications.iter().find(|one| *one.name == **name)
                else {
                    continue;
                };
                let labels = [
                    ("resource", resource),
                    ("host_application_name", &**name),
                    ("priority_class", application.priority.as_str()),
                    ("qos", application.qos.as_str()),
                ];
                applications.push(labels, *value);
            }
            (Object::Resctrl { group, cache }, kind) => {
                let cache = cache.to_string();
                match kind {
                    Kind::ResctrlLlc => {
                        occupancy.push([("cache_id", cache.as_str()), ("qos", &**group)], *value)
                    }
                    Kind::ResctrlLocalBandwidth | Kind::ResctrlTotalBandwidth => {
                        let of = if *kind == Kind::ResctrlLocalBandwidth {
                            "mbm_local_bytes"
                        } else {
                            "mbm_total_bytes"
                        };
                        let labels = [("cache_id", cache.as_str()), ("qos", &**group), ("mb_type", of)];
                        bandwidth.push(labels, *value);
                        traffic.push(labels, *value);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    state.internal.replace(&internal::HOST_APPLICATION_USAGE, applications);
    state.external.replace(&external::LLC_OCCUPANCY, occupancy);
    state.external.replace(&external::MEMORY_BANDWIDTH, bandwidth);
    state.external.replace(&external::RESCTRL_MEMORY_BYTES, traffic);
}

/// Batch and mid resources of the node.
fn allocatable(state: &State) {
    let mut rows = Rows::new();
    let node = state.node.borrow().present().cloned();
    let list = node.and_then(|node| node.status.as_ref()?.allocatable.clone()).unwrap_or_default();
    for (name, quantity) in &quantities(&list) {
        let unit = match name.as_str() {
            koord_extension::keys::resource::BATCH_CPU | koord_extension::keys::resource::MID_CPU => {
                "integer"
            }
            koord_extension::keys::resource::BATCH_MEMORY | koord_extension::keys::resource::MID_MEMORY => {
                "byte"
            }
            _ => continue,
        };
        rows.push([("resource", name.as_str()), ("unit", unit)], quantity.value() as f64);
    }
    state.external.replace(&external::NODE_ALLOCATABLE, rows);
}

/// Memory of the node in use without inactive files, from the text of `/proc/meminfo`.
fn working_set(meminfo: &str) -> Option<f64> {
    let kib = |name: &str| -> Option<i64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let used = kib("MemTotal")?.checked_sub(kib("MemFree")?)?.checked_sub(kib("Inactive(file)")?)?;
    Some(used.max(0).saturating_mul(1024) as f64)
}

/// Brings all gauges up to date.
pub fn refresh(state: &State, reporter: Option<&Reporter>) {
    let now = Tick::now();
    let set = Arc::clone(&state.pods.borrow().set);
    let names = Names::new(&set);
    let readings = state.intake.readings();
    let finest = state.config.collect.pod_metrics;
    if finest >= PodMetrics::Pod {
        let (pods, containers, stalls) = pressure(&readings, &names, finest);
        state.external.replace(&external::POD_PSI, pods);
        state.external.replace(&external::CONTAINER_PSI, containers);
        state.external.replace(&external::PSI_STALL_SECONDS, stalls);
    }
    if finest >= PodMetrics::Container {
        state.external.replace(&external::CONTAINER_CPI, cpi(&readings, &names));
    }
    others(state, &readings);
    allocatable(state);
    let meminfo = std::fs::read_to_string(state.config.paths.proc.join("meminfo")).unwrap_or_default();
    if let Some(bytes) = working_set(&meminfo) {
        state.external.set(&external::NODE_WORKING_SET, &[], bytes);
    }
    let internal = &state.internal;
    let stats = state.intake.store().stats();
    internal.set(&internal::STORE_SERIES, &[], stats.series as f64);
    internal.set(&internal::STORE_BYTES, &[], stats.bytes as f64);
    if let Some(age) = state.pods_age(now) {
        internal.set(&internal::POD_SYNC_AGE, &[], age.as_secs_f64());
    }
    if let Some(age) = reporter.and_then(Reporter::age) {
        internal.set(&internal::REPORT_AGE, &[], age.as_secs_f64());
    }
    let mut sources = Rows::new();
    let current = state.source();
    for source in [Source::Proxy, Source::Own] {
        sources.push([("source", source.as_str())], f64::from(u8::from(source == current)));
    }
    internal.replace(&internal::SAMPLE_SOURCE, sources);
    let (mut ready, mut descriptors) = (Rows::new(), Rows::new());
    for view in state.collectors() {
        let value = f64::from(u8::from(view.state == "ready"));
        let reason = if view.reason.is_empty() && view.state != "ready" { &view.state } else { &view.reason };
        ready.push([("collector", view.name.as_str()), ("reason", reason.as_str())], value);
        descriptors.push([("kind", view.name.as_str())], view.open_descriptors as f64);
    }
    internal.replace(&internal::COLLECTOR_READY, ready);
    internal.replace(&internal::OPEN_FDS, descriptors);
}

/// The metrics of the process, as text.
pub fn process() -> String {
    let mut registry = ProcessRegistry::default();
    ProcessCollector::register(&mut registry);
    let mut text = String::new();
    match prometheus_client::encoding::prometheus_text::encode(&mut text, &registry) {
        Ok(()) => text,
        Err(error) => {
            tracing::warn!(error = %error, "metrics of the process cannot be written as text");
            String::new()
        }
    }
}

/// Which metrics a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// Those for operators.
    Internal,
    /// Those for users.
    External,
}

/// The text of a page.
pub fn text(state: &State, reporter: Option<&Reporter>, which: Which) -> String {
    refresh(state, reporter);
    let mut page = Page::default();
    if which != Which::External {
        page.merge(state.internal.page());
    }
    if which != Which::Internal {
        page.merge(state.external.page());
    }
    let mut text = page.render();
    if which != Which::External {
        text.push_str(&process());
    }
    text
}

#[cfg(test)]
mod tests {
    use koord_usage::kind::Pressure;

    use super::*;
    use crate::intake::PressureReading;

    #[test]
    fn working_set_leaves_inactive_files_out() {
        let meminfo = "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive: 9 kB\nInactive(file): 200 kB\n";
        assert_eq!(working_set(meminfo), Some(512_000.0));
        assert_eq!(working_set("MemTotal: 1000 kB\n"), None);
    }

    fn readings(is_cpu_full_supported: bool) -> Readings {
        let mut reading = PressureReading { is_cpu_full_supported, ..PressureReading::default() };
        for resource in PressureResource::ALL {
            for degree in PressureDegree::ALL {
                for figure in PressureFigure::ALL {
                    reading.figures.insert(Pressure { resource, degree, figure }, 1.0);
                }
            }
        }
        let container = Object::Container { pod_uid: "u".into(), id: "c".into() };
        Readings {
            pressure: vec![
                (container, reading.clone()),
                (Object::Pod("u".into()), reading.clone()),
                (Object::Pod("gone".into()), reading),
            ],
            ..Readings::default()
        }
    }

    #[test]
    fn eighteen_series_of_pressure_with_full_and_fifteen_without() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "status": {"containerStatuses": [{"name": "main", "containerID": "containerd://c"}]},
        }))
        .expect("a pod");
        let set = PodSet::new(vec![Arc::new(pod)]);
        let names = Names::new(&set);
        for (supported, averages, totals) in [(true, 18, 6), (false, 15, 5)] {
            let (pods, containers, stalls) = pressure(&readings(supported), &names, PodMetrics::Container);
            assert_eq!((pods.len(), containers.len(), stalls.len()), (averages, averages, 2 * totals));
        }
        let (pods, containers, _) = pressure(&readings(true), &names, PodMetrics::Pod);
        assert_eq!((pods.len(), containers.len()), (18, 0));
    }
}
