//! The metrics page.
//!
//! A program builds one [`Registry`], hands it down (with a prefix per part) while it wires itself
//! up, and then freezes it into a [`MetricsPage`].

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The frozen registry. Clones are the same page.
#[derive(Debug, Clone)]
pub struct MetricsPage {
    registry: Arc<Registry>,
}

/// Content type of the OpenMetrics text form.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl MetricsPage {
    /// Freezes the registry.
    pub fn new(registry: Registry) -> MetricsPage {
        MetricsPage { registry: Arc::new(registry) }
    }

    /// The page in the form that the request's `Accept` header asks for, and its content type:
    /// OpenMetrics if it is named there, else the Prometheus text form that every scraper and
    /// `promtool` read.
    ///
    /// # Errors
    /// A metric cannot be written as text.
    pub fn render(&self, accept: Option<&str>) -> Result<(&'static str, String), std::fmt::Error> {
        use prometheus_client::encoding::{prometheus_text, text};
        let mut page = String::new();
        if accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
            text::encode(&mut page, &self.registry)?;
            return Ok((OPEN_METRICS, page));
        }
        prometheus_text::encode(&mut page, &self.registry)?;
        Ok((prometheus_text::CONTENT_TYPE, page))
    }
}

/// The usual `process_*` metrics, read from `/proc` when the page is asked for.
#[derive(Debug)]
pub struct ProcessCollector {
    started: Option<f64>,
}

impl ProcessCollector {
    /// Adds the metrics to a registry. They carry no prefix by convention, so it should have none.
    pub fn register(registry: &mut Registry) {
        registry.register_collector(Box::new(ProcessCollector { started: start_time() }));
    }
}

/// Clock ticks a second in `/proc`. The kernel shows all of these times to user space at this fixed rate.
const TICKS_A_SECOND: f64 = 100.0;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let metric = ConstGauge::<f64>::new(value);
            let descriptor =
                encoder.encode_descriptor(name, help, None, prometheus_client::metrics::MetricType::Gauge)?;
            metric.encode(descriptor)
        };
        gauge("process_start_time_seconds", "Start time of the process since the epoch.", self.started)?;
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let page_size = rustix::param::page_size() as f64;
        let pages = |field: usize| {
            sizes
                .split_whitespace()
                .nth(field)
                .and_then(|text| text.parse::<f64>().ok())
                .map(|n| n * page_size)
        };
        gauge("process_virtual_memory_bytes", "Virtual memory size.", pages(0))?;
        gauge("process_resident_memory_bytes", "Resident memory size.", pages(1))?;
        let open = std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
        gauge("process_open_fds", "Open file descriptors.", open)?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        gauge("process_max_fds", "Limit of open file descriptors.", limit.map(|limit| limit as f64))?;
        gauge("process_threads", "Threads of the process.", stat_field(20))?;

        let user_and_system = stat_field(14).zip(stat_field(15));
        if let Some((user, system)) = user_and_system {
            let seconds = ConstCounter::<f64>::new((user + system) / TICKS_A_SECOND);
            let descriptor = encoder.encode_descriptor(
                "process_cpu_seconds",
                "User and system CPU time spent, in seconds.",
                None,
                prometheus_client::metrics::MetricType::Counter,
            )?;
            seconds.encode(descriptor)?;
        }
        Ok(())
    }
}

/// A numbered field of `/proc/self/stat` (`proc(5)`, counted from 1; not the first two).
fn stat_field(number: usize) -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name may hold spaces and brackets; fields are counted after its end.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn start_time() -> Option<f64> {
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat_field(22)? / TICKS_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;

    fn page() -> MetricsPage {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc_by(3);
        registry.sub_registry_with_prefix("koord_test").register("calls", "Calls served", counter);
        ProcessCollector::register(&mut registry);
        MetricsPage::new(registry)
    }

    #[test]
    fn plain_text_unless_open_metrics_is_asked_for() {
        let (kind, text) = page().render(Some("text/plain, */*;q=0.1")).expect("rendered");
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
        assert!(text.contains("# TYPE koord_test_calls_total counter\nkoord_test_calls_total 3\n"), "{text}");
        assert!(!text.contains("# EOF"));
        assert_eq!(page().render(None).expect("rendered").0, kind);

        let (kind, text) =
            page().render(Some("application/openmetrics-text;version=1.0.0")).expect("rendered");
        assert_eq!(kind, OPEN_METRICS);
        assert!(text.contains("# TYPE koord_test_calls counter\nkoord_test_calls_total 3\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn process_metrics_are_plausible() {
        let (_, text) = page().render(None).expect("rendered");
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
            line.rsplit(' ').next().expect("a value").parse().expect("a number")
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let age = now.as_secs_f64() - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
