//! Every metric of the proxy, registered in one place.
//!
//! The names below carry no prefix: the registry handed to [`Metrics::register`] is expected to add
//! `koord_runtime_proxy_` (see [`PREFIX`]). Counters get their `_total` ending from the text encoder.

mod hooks;
mod labels;
mod qos;
mod usage;
mod values;

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use std::sync::atomic::AtomicU64;

use labels::{
    BuildLabels, BypassLabels, DirectionLabel, DurationLabels, FailOpenLabels, FileLabel, HookLabels,
    HookRequestLabels, KindLabel, MethodLabel, RequestLabels, ServiceLabel, SourceLabel,
};

pub use koord_hooks::metrics::HookResult;
pub use qos::WriteCounter;
pub use usage::UsageCollector;
pub use values::{BypassReason, CallKind, Direction, FailoverSource, Phase};

/// The prefix every metric name of this program starts with.
pub const PREFIX: &str = "koord_runtime_proxy";

/// Distinct `(service, method)` names kept apart before further unknown ones share [`OTHER`].
pub const MAX_METHOD_NAMES: usize = 100;

/// The label value that stands for every name beyond [`MAX_METHOD_NAMES`].
pub const OTHER: &str = "other";

/// Upper bounds in seconds, from well under one hop (50 microseconds) to a slow hook or a long call.
const DURATION_BUCKETS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
    30.0,
];

fn duration_histogram() -> Histogram {
    Histogram::new(DURATION_BUCKETS)
}

type ServiceMethod = (Arc<str>, Arc<str>);

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Handles of all metrics; cloning shares them.
#[derive(Debug, Clone)]
pub struct Metrics {
    cri_requests: Family<RequestLabels, Counter>,
    cri_request_duration: Histograms<DurationLabels>,
    hook_requests: Family<HookRequestLabels, Counter>,
    hook_duration: Histograms<HookLabels>,
    hook_fail_open: Family<FailOpenLabels, Counter>,
    intercept_bypassed: Family<BypassLabels, Counter>,
    request_patched: Family<MethodLabel, Counter>,
    store_records: Family<KindLabel, Gauge>,
    failover_duration: Gauge<f64, AtomicU64>,
    failover_objects: Family<SourceLabel, Counter>,
    backend_connected: Family<ServiceLabel, Gauge>,
    backend_reconnects: Counter,
    hook_config_files: Family<FileLabel, Gauge>,
    hook_config_errors: Family<FileLabel, Counter>,
    hook_config_reloads: Family<FileLabel, Counter>,
    streams_active: Gauge,
    bytes: Family<DirectionLabel, Counter>,
    build_info: Family<BuildLabels, Gauge>,
    method_names: Arc<RwLock<HashSet<ServiceMethod>>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            cri_requests: Family::default(),
            cri_request_duration: Family::new_with_constructor(duration_histogram),
            hook_requests: Family::default(),
            hook_duration: Family::new_with_constructor(duration_histogram),
            hook_fail_open: Family::default(),
            intercept_bypassed: Family::default(),
            request_patched: Family::default(),
            store_records: Family::default(),
            failover_duration: Gauge::default(),
            failover_objects: Family::default(),
            backend_connected: Family::default(),
            backend_reconnects: Counter::default(),
            hook_config_files: Family::default(),
            hook_config_errors: Family::default(),
            hook_config_reloads: Family::default(),
            streams_active: Gauge::default(),
            bytes: Family::default(),
            build_info: Family::default(),
            method_names: Arc::default(),
        }
    }
}

impl Metrics {
    /// Creates all metrics and registers them.
    ///
    /// `registry` adds the prefix: hand down `registry.sub_registry_with_prefix(PREFIX)` or a registry made
    /// `with_prefix(PREFIX)`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("cri_requests", "CRI calls by outcome", metrics.cri_requests.clone());
        registry.register_with_unit(
            "cri_request_duration",
            "Time of a CRI call by phase",
            Unit::Seconds,
            metrics.cri_request_duration.clone(),
        );
        registry.register("hook_requests", "Calls of hook servers", metrics.hook_requests.clone());
        registry.register_with_unit(
            "hook_duration",
            "Time of a hook call",
            Unit::Seconds,
            metrics.hook_duration.clone(),
        );
        registry.register(
            "hook_fail_open",
            "Hook calls that were skipped or failed and let the CRI call through",
            metrics.hook_fail_open.clone(),
        );
        registry.register(
            "intercept_bypassed",
            "Calls of intercepted methods relayed without their hooks",
            metrics.intercept_bypassed.clone(),
        );
        registry.register(
            "request_patched",
            "Requests changed before they were relayed",
            metrics.request_patched.clone(),
        );
        registry.register("store_records", "Records held in memory", metrics.store_records.clone());
        registry.register_with_unit(
            "failover_duration",
            "Time of the last rebuild of the store",
            Unit::Seconds,
            metrics.failover_duration.clone(),
        );
        registry.register(
            "failover_objects",
            "Pods and containers met during rebuilds, by source of their record",
            metrics.failover_objects.clone(),
        );
        registry.register(
            "backend_connected",
            "1 while the backend of a service answers, else 0",
            metrics.backend_connected.clone(),
        );
        registry.register(
            "backend_reconnects",
            "Connections to the backend made again after a loss",
            metrics.backend_reconnects.clone(),
        );
        registry.register(
            "hook_config_files",
            "1 for a registration file whose content is in force, 0 for a rejected one",
            metrics.hook_config_files.clone(),
        );
        registry.register(
            "hook_config_errors",
            "Rejected loads of a registration file",
            metrics.hook_config_errors.clone(),
        );
        registry.register(
            "hook_config_reloads",
            "Accepted loads of a registration file",
            metrics.hook_config_reloads.clone(),
        );
        registry.register("streams_active", "Calls in flight", metrics.streams_active.clone());
        registry.register("bytes", "Relayed bytes", metrics.bytes.clone());
        registry.register("build_info", "Always 1; the labels name the build", metrics.build_info.clone());
        metrics
    }

    /// Names the running build; call once.
    pub fn build(&self, version: &str, commit: &str) {
        let labels = BuildLabels { version: version.to_owned(), commit: commit.to_owned() };
        self.build_info.get_or_create(&labels).set(1);
    }

    /// The counter of `cri_requests_total` for one kind of outcome.
    ///
    /// `code` is the numeric gRPC status. The handle may be kept and counted on without a lookup.
    pub fn cri_requests(&self, service: &str, method: &str, code: u32, kind: CallKind) -> Counter {
        let (service, method) = self.bounded(service, method);
        let labels = RequestLabels { service, method, code: code_name(code), kind: kind.as_str() };
        self.cri_requests.get_or_create(&labels).clone()
    }

    /// The histogram of `cri_request_duration_seconds` for one phase of a method.
    ///
    /// The handle may be kept and observed on without a lookup.
    pub fn cri_request_duration(&self, service: &str, method: &str, phase: Phase) -> Histogram {
        let (_, method) = self.bounded(service, method);
        self.cri_request_duration.get_or_create(&DurationLabels { method, phase: phase.as_str() }).clone()
    }

    /// Counts one hook call and its time.
    pub fn hook_called(
        &self,
        server: &str,
        hook: &'static str,
        result: HookResult,
        policy: &'static str,
        elapsed: Duration,
    ) {
        let labels = HookRequestLabels { server: server.to_owned(), hook, result: result.as_str(), policy };
        self.hook_requests.get_or_create(&labels).inc();
        let labels = HookLabels { server: server.to_owned(), hook };
        self.hook_duration.get_or_create(&labels).observe(elapsed.as_secs_f64());
    }

    /// Counts a hook call that was skipped or failed while the CRI call went on.
    pub fn hook_fail_open(&self, hook: &'static str, reason: &'static str) {
        self.hook_fail_open.get_or_create(&FailOpenLabels { hook, reason }).inc();
    }

    /// Counts a call of an intercepted method that went through without its hooks.
    pub fn intercept_bypassed(&self, method: &str, reason: BypassReason) {
        let labels = BypassLabels { method: Arc::from(method), reason: reason.as_str() };
        self.intercept_bypassed.get_or_create(&labels).inc();
    }

    /// Counts a request that was changed before it was relayed.
    pub fn request_patched(&self, method: &str) {
        self.request_patched.get_or_create(&MethodLabel { method: Arc::from(method) }).inc();
    }

    /// Sets the number of records held.
    pub fn store_records(&self, pods: usize, containers: usize) {
        self.store_records.get_or_create(&KindLabel { kind: "pod" }).set(gauge_value(pods));
        self.store_records.get_or_create(&KindLabel { kind: "container" }).set(gauge_value(containers));
    }

    /// Sets the time of the last rebuild.
    pub fn failover_finished(&self, elapsed: Duration) {
        self.failover_duration.set(elapsed.as_secs_f64());
    }

    /// Counts one object met during a rebuild.
    pub fn failover_object(&self, source: FailoverSource) {
        self.failover_objects.get_or_create(&SourceLabel { source: source.as_str() }).inc();
    }

    /// Says whether the backend of `service` (`runtime` or `image`) answers.
    pub fn backend_connected(&self, service: &str, connected: bool) {
        let labels = ServiceLabel { service: service.to_owned() };
        self.backend_connected.get_or_create(&labels).set(i64::from(connected));
    }

    /// The counter `backend_reconnects_total`.
    pub fn backend_reconnects(&self) -> &Counter {
        &self.backend_reconnects
    }

    /// Says that the content of a registration file came into force.
    pub fn hook_config_loaded(&self, file: &str) {
        let labels = FileLabel { file: file.to_owned() };
        self.hook_config_reloads.get_or_create(&labels).inc();
        self.hook_config_files.get_or_create(&labels).set(1);
    }

    /// Says that a registration file was rejected; its previous valid content, if any, stays in force.
    pub fn hook_config_rejected(&self, file: &str) {
        let labels = FileLabel { file: file.to_owned() };
        self.hook_config_errors.get_or_create(&labels).inc();
        self.hook_config_files.get_or_create(&labels).set(0);
    }

    /// Forgets a registration file that is gone.
    pub fn hook_config_removed(&self, file: &str) {
        self.hook_config_files.remove(&FileLabel { file: file.to_owned() });
    }

    /// The gauge `streams_active`.
    pub fn streams_active(&self) -> &Gauge {
        &self.streams_active
    }

    /// The counter `bytes_total` of one direction; keep the handle on hot paths.
    pub fn bytes(&self, direction: Direction) -> Counter {
        self.bytes.get_or_create(&DirectionLabel { direction: direction.as_str() }).clone()
    }

    /// The names to use as labels: the given ones while fewer than [`MAX_METHOD_NAMES`] are known.
    fn bounded(&self, service: &str, method: &str) -> ServiceMethod {
        let key: ServiceMethod = (Arc::from(service), Arc::from(method));
        if self.method_names.read().unwrap_or_else(PoisonError::into_inner).contains(&key) {
            return key;
        }
        let mut names = self.method_names.write().unwrap_or_else(PoisonError::into_inner);
        if names.contains(&key) || names.len() < MAX_METHOD_NAMES {
            names.insert(key.clone());
            return key;
        }
        let other: Arc<str> = Arc::from(OTHER);
        (other.clone(), other)
    }
}

fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The name of a gRPC status code, as in the gRPC specification; numbers outside it stay numbers.
pub fn code_name(code: u32) -> String {
    let name = match code {
        0 => "OK",
        1 => "CANCELLED",
        2 => "UNKNOWN",
        3 => "INVALID_ARGUMENT",
        4 => "DEADLINE_EXCEEDED",
        5 => "NOT_FOUND",
        6 => "ALREADY_EXISTS",
        7 => "PERMISSION_DENIED",
        8 => "RESOURCE_EXHAUSTED",
        9 => "FAILED_PRECONDITION",
        10 => "ABORTED",
        11 => "OUT_OF_RANGE",
        12 => "UNIMPLEMENTED",
        13 => "INTERNAL",
        14 => "UNAVAILABLE",
        15 => "DATA_LOSS",
        16 => "UNAUTHENTICATED",
        _ => "OTHER",
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(fill: impl FnOnce(&Metrics)) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        let metrics = Metrics::register(&mut registry);
        fill(&metrics);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes any text");
        text
    }

    #[test]
    fn names_and_labels_are_the_documented_ones() {
        let text = encoded(|metrics| {
            metrics.build("1.2.3", "abc");
            metrics.cri_requests("runtime.v1.RuntimeService", "Version", 0, CallKind::Passthrough).inc();
            metrics
                .cri_request_duration("runtime.v1.RuntimeService", "Version", Phase::Added)
                .observe(0.000_07);
            metrics.hook_called(
                "koordlet.json",
                "PreRunPodSandbox",
                HookResult::Error,
                "Fail",
                Duration::from_millis(3),
            );
            metrics.hook_fail_open("PreRunPodSandbox", "timeout");
            metrics.intercept_bypassed("CreateContainer", BypassReason::Size);
            metrics.request_patched("CreateContainer");
            metrics.store_records(2, 3);
            metrics.failover_finished(Duration::from_millis(1500));
            metrics.failover_object(FailoverSource::Status);
            metrics.backend_connected("runtime", true);
            metrics.backend_reconnects().inc();
            metrics.hook_config_loaded("a.json");
            metrics.hook_config_rejected("b.json");
            metrics.streams_active().inc();
            metrics.bytes(Direction::Request).inc_by(7);
        });
        for line in [
            "koord_runtime_proxy_cri_requests_total{service=\"runtime.v1.RuntimeService\",method=\"Version\",code=\"OK\",kind=\"passthrough\"} 1",
            "koord_runtime_proxy_cri_request_duration_seconds_bucket{le=\"0.00005\",method=\"Version\",phase=\"added\"} 0",
            "koord_runtime_proxy_cri_request_duration_seconds_bucket{le=\"0.0001\",method=\"Version\",phase=\"added\"} 1",
            "koord_runtime_proxy_hook_requests_total{server=\"koordlet.json\",hook=\"PreRunPodSandbox\",result=\"error\",policy=\"Fail\"} 1",
            "koord_runtime_proxy_hook_duration_seconds_count{server=\"koordlet.json\",hook=\"PreRunPodSandbox\"} 1",
            "koord_runtime_proxy_hook_fail_open_total{hook=\"PreRunPodSandbox\",reason=\"timeout\"} 1",
            "koord_runtime_proxy_intercept_bypassed_total{method=\"CreateContainer\",reason=\"size\"} 1",
            "koord_runtime_proxy_request_patched_total{method=\"CreateContainer\"} 1",
            "koord_runtime_proxy_store_records{kind=\"pod\"} 2",
            "koord_runtime_proxy_store_records{kind=\"container\"} 3",
            "koord_runtime_proxy_failover_duration_seconds 1.5",
            "koord_runtime_proxy_failover_objects_total{source=\"status\"} 1",
            "koord_runtime_proxy_backend_connected{service=\"runtime\"} 1",
            "koord_runtime_proxy_backend_reconnects_total 1",
            "koord_runtime_proxy_hook_config_files{file=\"a.json\"} 1",
            "koord_runtime_proxy_hook_config_files{file=\"b.json\"} 0",
            "koord_runtime_proxy_hook_config_errors_total{file=\"b.json\"} 1",
            "koord_runtime_proxy_hook_config_reloads_total{file=\"a.json\"} 1",
            "koord_runtime_proxy_streams_active 1",
            "koord_runtime_proxy_bytes_total{direction=\"request\"} 7",
            "koord_runtime_proxy_build_info{version=\"1.2.3\",commit=\"abc\"} 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn the_hundred_and_first_method_name_is_other() {
        let text = encoded(|metrics| {
            for index in 0..=MAX_METHOD_NAMES {
                metrics.cri_requests("s", &format!("M{index}"), 12, CallKind::Passthrough).inc();
            }
            metrics.cri_requests("s", "M5", 12, CallKind::Passthrough).inc();
        });
        let line = |service: &str, method: &str, value: u32| {
            format!(
                "koord_runtime_proxy_cri_requests_total{{service=\"{service}\",method=\"{method}\",code=\"UNIMPLEMENTED\",kind=\"passthrough\"}} {value}"
            )
        };
        assert!(text.contains(&line("s", "M99", 1)), "{text}");
        assert!(!text.contains("method=\"M100\""), "{text}");
        assert!(text.contains(&line(OTHER, OTHER, 1)), "{text}");
        assert!(text.contains(&line("s", "M5", 2)), "{text}");
    }

    #[test]
    fn a_removed_file_leaves_no_gauge() {
        let text = encoded(|metrics| {
            metrics.hook_config_loaded("a.json");
            metrics.hook_config_removed("a.json");
        });
        assert!(!text.contains("hook_config_files{"), "{text}");
        assert!(text.contains("hook_config_reloads_total{file=\"a.json\"} 1"), "{text}");
    }
}
