//! Usage of the node and its pods, put together when the page is asked for.
//!
//! Series of a pod disappear with it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Error;
use std::sync::Arc;
use std::time::Duration;

use koord_extension::qos::{KubeQos, QosClass};
use koord_usage::kind::{Kind, Pressure, PressureDegree, PressureFigure, PressureResource};
use koord_usage::object::{Object, TierSeries};
use koord_usage::time::Tick;
use koord_usage_api::v1;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::flags::UsageMetrics;
use crate::usage::{Published, Usage};

/// A value that is older is not shown: three times as old as memory of containers is by default.
const OUTDATED: Duration = Duration::from_secs(30);

/// Shows what is sampled.
#[derive(Debug)]
pub struct UsageCollector(Arc<Usage>);

impl UsageCollector {
    /// Registers the metrics; `registry` adds the prefix.
    pub fn register(registry: &mut Registry, usage: Arc<Usage>) {
        registry.register_collector(Box::new(UsageCollector(usage)));
    }
}

impl Collector for UsageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let usage = &self.0;
        counter(
            &mut encoder,
            "usage_dropped_passes",
            "Passes that clients of the usage stream lost because they read too slowly",
            None,
            [(Vec::new(), usage.dropped() as f64)],
        )?;
        gauge(
            &mut encoder,
            "usage_watchers",
            "Clients of the usage stream",
            None,
            [(Vec::new(), usage.watchers() as f64)],
        )?;
        let Some(published) = usage.latest() else { return Ok(()) };
        let page = Page { usage, published: &published, now: published.pass.tick };
        page.sampling(&mut encoder)?;
        page.node(&mut encoder)?;
        if usage.detail() == UsageMetrics::None {
            return Ok(());
        }
        let pods = page.pods();
        page.objects(&mut encoder, &POD, &pods)?;
        if usage.detail() == UsageMetrics::Container {
            page.objects(&mut encoder, &CONTAINER, &page.containers())?;
        }
        Ok(())
    }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Names, help texts and kinds of what is shown for pods, or for containers.
struct Names {
    cpu: (&'static str, &'static str, Kind),
    cpu_time: (&'static str, &'static str, Kind),
    throttled: (&'static str, &'static str, Kind),
    memory: (&'static str, &'static str, Kind),
    memory_with_cache: (&'static str, &'static str, Kind),
    pressure: (&'static str, &'static str, fn(Pressure) -> Kind),
}

const POD: Names = Names {
    cpu: ("pod_cpu_usage", "CPU that a pod uses, in cores", Kind::PodCpuUsage),
    cpu_time: ("pod_cpu", "CPU that a pod has used, in seconds", Kind::PodCpuTime),
    throttled: (
        "pod_cpu_throttled_ratio",
        "Part of the periods of a pod's quota in which it was throttled, from 0 to 1",
        Kind::PodCpuThrottled,
    ),
    memory: ("pod_memory_usage", "Memory of a pod without page cache, in bytes", Kind::PodMemoryUsage),
    memory_with_cache: (
        "pod_memory_usage_with_page_cache",
        "Memory of a pod with page cache, in bytes",
        Kind::PodMemoryUsageWithPageCache,
    ),
    pressure: (
        "pod_pressure_ratio",
        "Part of the last 10 s in which tasks of a pod waited for a resource, from 0 to 1",
        Kind::PodPsi,
    ),
};

const CONTAINER: Names = Names {
    cpu: ("container_cpu_usage", "CPU that a container uses, in cores", Kind::ContainerCpuUsage),
    cpu_time: ("container_cpu", "CPU that a container has used, in seconds", Kind::ContainerCpuTime),
    throttled: (
        "container_cpu_throttled_ratio",
        "Part of the periods of a container's quota in which it was throttled, from 0 to 1",
        Kind::ContainerCpuThrottled,
    ),
    memory: (
        "container_memory_usage",
        "Memory of a container without page cache, in bytes",
        Kind::ContainerMemoryUsage,
    ),
    memory_with_cache: (
        "container_memory_usage_with_page_cache",
        "Memory of a container with page cache, in bytes",
        Kind::ContainerMemoryUsageWithPageCache,
    ),
    pressure: (
        "container_pressure_ratio",
        "Part of the last 10 s in which tasks of a container waited for a resource, from 0 to 1",
        Kind::ContainerPsi,
    ),
};

fn cores() -> Unit {
    Unit::Other("cores".to_owned())
}

/// One page of figures, all of one moment.
struct Page<'a> {
    usage: &'a Usage,
    published: &'a Published,
    now: Tick,
}

impl Page<'_> {
    /// The newest value that is not outdated.
    fn value(&self, object: &Object, kind: Kind) -> Option<f64> {
        let (tick, value) = self.usage.windows().latest(object, kind)?;
        (self.now.since(tick) <= OUTDATED).then_some(value)
    }

    /// How the sampling goes.
    fn sampling(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let ticks = &self.published.ticks;
        let none = Vec::new;
        counter(
            encoder,
            "usage_passes",
            "Times that everything was sampled",
            None,
            [(none(), ticks.passes as f64)],
        )?;
        counter(
            encoder,
            "usage_skipped_ticks",
            "Times that were left out because the pass before had not ended",
            None,
            [(none(), ticks.skipped as f64)],
        )?;
        gauge(
            encoder,
            "usage_pass_duration",
            "Time of the last pass, in seconds",
            Some(Unit::Seconds),
            [(none(), ticks.duration.as_secs_f64())],
        )?;
        let stats = self.usage.windows().stats();
        gauge(encoder, "usage_series", "Series that are kept", None, [(none(), stats.series as f64)])?;
        gauge(
            encoder,
            "usage_store",
            "Memory of the series that are kept, in bytes",
            Some(Unit::Bytes),
            [(none(), stats.bytes as f64)],
        )?;
        let collectors = &*self.published.collectors;
        let of = |figure: fn(&v1::CollectorState) -> f64| {
            collectors
                .iter()
                .map(move |state| (vec![("collector", state.name.as_str())], figure(state)))
                .collect::<Vec<_>>()
        };
        let ready = v1::collector_state::Phase::Ready;
        gauge(
            encoder,
            "usage_collector_ready",
            "1 for a collector that samples, else 0",
            None,
            collectors.iter().map(|state| {
                (vec![("collector", state.name.as_str())], f64::from(u8::from(state.phase() == ready)))
            }),
        )?;
        counter(
            encoder,
            "usage_collector_errors",
            "Files that a collector could not read as it should",
            None,
            of(|state| state.errors as f64),
        )?;
        gauge(
            encoder,
            "usage_collector_open_files",
            "Files that a collector keeps open",
            None,
            of(|state| state.open_descriptors as f64),
        )
    }

    fn node(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let node = |kind| self.value(&Object::Node, kind).map(|value| (Vec::new(), value));
        let tier = |series| {
            self.value(&Object::Tier(series), Kind::NodeBe).map(|value| (Vec::new(), value / 1000.0))
        };
        for (name, help, unit, value) in [
            ("node_cpu_usage", "CPU that the node uses, in cores", cores(), node(Kind::NodeCpuUsage)),
            (
                "node_memory_usage",
                "Memory of the node without page cache, in bytes",
                Unit::Bytes,
                node(Kind::NodeMemoryUsage),
            ),
            (
                "node_memory_usage_with_page_cache",
                "Memory of the node with page cache, in bytes",
                Unit::Bytes,
                node(Kind::NodeMemoryUsageWithPageCache),
            ),
            (
                "system_cpu_usage",
                "CPU that the node uses beside its pods, in cores",
                cores(),
                node(Kind::SystemCpuUsage),
            ),
            (
                "system_memory_usage",
                "Memory of the node beside its pods, in bytes",
                Unit::Bytes,
                node(Kind::SystemMemoryUsage),
            ),
            (
                "best_effort_cpu_limit",
                "CPU that best-effort pods may use together, in cores",
                cores(),
                tier(TierSeries::RealLimit),
            ),
            (
                "best_effort_cpu_usage",
                "CPU that best-effort pods use together, in cores",
                cores(),
                tier(TierSeries::Usage),
            ),
        ] {
            gauge(encoder, name, help, Some(unit), value)?;
        }
        Ok(())
    }

    /// Pods with their labels. While a pod is replaced there may be two of a name; the page has one.
    fn pods(&self) -> Vec<(Labels<'_>, Object)> {
        let named: BTreeMap<(&str, &str), &v1::Pod> = self
            .published
            .measured
            .pods
            .iter()
            .map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), &**pod))
            .collect();
        named.into_values().map(|pod| (labels_of(pod), Object::Pod(pod.uid.as_str().into()))).collect()
    }

    /// Containers with their labels; of two of a name in one pod the page has one.
    fn containers(&self) -> Vec<(Labels<'_>, Object)> {
        let mut named = BTreeMap::new();
        for pod in &self.published.measured.pods {
            for container in &pod.containers {
                let key = (pod.namespace.as_str(), pod.name.as_str(), container.name.as_str());
                named.insert(key, (&**pod, container));
            }
        }
        named
            .into_values()
            .map(|(pod, container)| {
                let mut labels = labels_of(pod);
                labels.insert(2, ("container", container.name.as_str()));
                let (pod_uid, id) = (pod.uid.as_str().into(), container.id.as_str().into());
                (labels, Object::Container { pod_uid, id })
            })
            .collect()
    }

    fn objects(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        names: &Names,
        objects: &[(Labels<'_>, Object)],
    ) -> Result<(), Error> {
        let of = |kind: Kind| {
            objects
                .iter()
                .filter_map(|(labels, object)| Some((labels.clone(), self.value(object, kind)?)))
                .collect::<Vec<_>>()
        };
        let (name, help, kind) = names.cpu;
        gauge(encoder, name, help, Some(cores()), of(kind))?;
        // A counter is in the pass only, since windows of it would mean nothing.
        let (name, help, kind) = names.cpu_time;
        let samples = &self.published.pass.samples;
        let times: HashMap<&Object, f64> = samples
            .iter()
            .filter(|sample| sample.kind == kind)
            .map(|sample| (&sample.object, sample.value))
            .collect();
        let times = objects.iter().filter_map(|(labels, object)| Some((labels.clone(), *times.get(object)?)));
        counter(encoder, name, help, Some(Unit::Seconds), times)?;
        let (name, help, kind) = names.throttled;
        gauge(encoder, name, help, None, of(kind))?;
        let (name, help, kind) = names.memory;
        gauge(encoder, name, help, Some(Unit::Bytes), of(kind))?;
        let (name, help, kind) = names.memory_with_cache;
        gauge(encoder, name, help, Some(Unit::Bytes), of(kind))?;
        let (name, help, kind) = names.pressure;
        let mut pressures = Vec::new();
        for resource in PressureResource::ALL {
            for degree in PressureDegree::ALL {
                let pressure = Pressure { resource, degree, figure: PressureFigure::Avg10 };
                for (mut labels, percent) in of(kind(pressure)) {
                    labels.push(("resource", word(resource)));
                    labels.push(("degree", degree.as_str()));
                    pressures.push((labels, percent / 100.0));
                }
            }
        }
        gauge(encoder, name, help, None, pressures)
    }
}

/// Metrics spell names out.
fn word(resource: PressureResource) -> &'static str {
    match resource {
        PressureResource::Cpu => "cpu",
        PressureResource::Memory => "memory",
        PressureResource::Io => "io",
    }
}

fn labels_of(pod: &v1::Pod) -> Labels<'_> {
    let kube_qos =
        KubeQos::from_name(&pod.kube_qos_class).unwrap_or_else(|| KubeQos::of_cgroup_path(&pod.cgroup));
    let class = QosClass::with_default(QosClass::from_name(&pod.qos_class), kube_qos);
    vec![("namespace", pod.namespace.as_str()), ("pod", pod.name.as_str()), ("qos", class.as_str())]
}

/// A gauge with its values; nothing without any.
fn gauge<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    values: impl IntoIterator<Item = (Labels<'a>, f64)>,
) -> Result<(), Error> {
    family(encoder, (name, help, unit, MetricType::Gauge), values, |value, at| {
        ConstGauge::new(value).encode(at)
    })
}

/// A counter with its values; nothing without any.
fn counter<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    values: impl IntoIterator<Item = (Labels<'a>, f64)>,
) -> Result<(), Error> {
    family(encoder, (name, help, unit, MetricType::Counter), values, |value, at| {
        ConstCounter::new(value).encode(at)
    })
}

fn family<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit, kind): (&str, &str, Option<Unit>, MetricType),
    values: impl IntoIterator<Item = (Labels<'a>, f64)>,
    encode: impl Fn(f64, MetricEncoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut values = values.into_iter().peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    for (labels, value) in values {
        if labels.is_empty() {
            return encode(value, metric);
        }
        encode(value, metric.encode_family(&labels)?)?;
    }
    Ok(())
}
