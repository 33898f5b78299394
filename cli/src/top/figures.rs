//! What a stream tells, summed up for people and scripts.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use koord_admin::Timestamp;
use koord_admin::usage::{
    ClassUsage, CollectorEntry, ContainerUsage, GroupUsage, NodeUsage, NumaUsage, PodUsage, QosUsage,
    UsageFigures,
};
use koord_extension::qos::{KubeQos, QosClass};
use koord_usage::kind::{Kind, Pressure, PressureDegree, PressureFigure, PressureResource};
use koord_usage::object::{Object, TierSeries};
use koord_usage::store::{Retention, Store};
use koord_usage::time::Tick;
use koord_usage::wire::{Event, Reader};
use koord_usage_api::v1;

use super::AVERAGED;
use crate::arguments::{SortBy, TopPods};

/// Figures that are older are not shown: three times as old as memory of containers is by default.
const OUTDATED: Duration = Duration::from_secs(30);

/// Samples kept beyond the span of the averages.
const SLACK: Duration = Duration::from_secs(10);

/// Everything that a stream has told.
#[derive(Debug)]
pub struct Figures {
    windows: Store,
    start: v1::Start,
    pods: Vec<Arc<v1::Pod>>,
    collectors: Vec<v1::CollectorState>,
    tick: Tick,
}

impl Default for Figures {
    fn default() -> Figures {
        let kept = AVERAGED + SLACK;
        Figures {
            windows: Store::new(Retention { node: kept, pod: kept, container: kept }),
            start: v1::Start::default(),
            pods: Vec::new(),
            collectors: Vec::new(),
            tick: Tick::ZERO,
        }
    }
}

/// The kinds of CPU and memory of one sort of objects.
struct Kinds {
    cpu: Kind,
    memory: Kind,
    with_cache: Option<Kind>,
}

const NODE: Kinds = Kinds {
    cpu: Kind::NodeCpuUsage,
    memory: Kind::NodeMemoryUsage,
    with_cache: Some(Kind::NodeMemoryUsageWithPageCache),
};
const NUMA: Kinds = Kinds { cpu: Kind::NumaCpuUsage, memory: Kind::NumaMemoryUsage, with_cache: None };
const SYSTEM: Kinds = Kinds {
    cpu: Kind::SystemCpuUsage,
    memory: Kind::SystemMemoryUsage,
    with_cache: Some(Kind::SystemMemoryUsageWithPageCache),
};
const POD: Kinds = Kinds {
    cpu: Kind::PodCpuUsage,
    memory: Kind::PodMemoryUsage,
    with_cache: Some(Kind::PodMemoryUsageWithPageCache),
};
const CONTAINER: Kinds = Kinds {
    cpu: Kind::ContainerCpuUsage,
    memory: Kind::ContainerMemoryUsage,
    with_cache: Some(Kind::ContainerMemoryUsageWithPageCache),
};

impl Figures {
    /// Takes what a message brought; `reader` has applied it.
    pub fn take(&mut self, event: Event, reader: &Reader) {
        match event {
            Event::Started => self.start = reader.start().cloned().unwrap_or_default(),
            Event::InventoryChanged => {
                self.pods = reader.pods().cloned().collect();
                self.forget_gone();
            }
            Event::Pass(pass, _) => {
                self.tick = self.tick.max(pass.tick);
                self.windows.record(&pass);
            }
            Event::Collectors(states) => self.collectors = states,
            Event::Nothing | Event::Dropped(_) => {}
        }
    }

    fn forget_gone(&self) {
        let pods: HashSet<&str> = self.pods.iter().map(|pod| pod.uid.as_str()).collect();
        let containers: HashSet<&str> =
            self.pods.iter().flat_map(|pod| &pod.containers).map(|container| container.id.as_str()).collect();
        self.windows.retain(|object| match object {
            Object::Pod(uid) => pods.contains(&**uid),
            Object::Container { id, .. } => containers.contains(&**id),
            _ => true,
        });
    }

    /// Whether there are rates already, which need two samples each.
    pub fn has_rates(&self) -> bool {
        let has = |object: &Object, kind| self.value(object, kind).is_some();
        has(&Object::Node, Kind::NodeCpuUsage)
            && (self.pods.is_empty() || self.pods.iter().any(|pod| has(&pod_object(pod), Kind::PodCpuUsage)))
    }

    /// CPUs of the machine.
    pub fn cpus(&self) -> Option<u32> {
        Some(self.start.cpus).filter(|cpus| *cpus > 0)
    }

    fn value(&self, object: &Object, kind: Kind) -> Option<f64> {
        let (tick, value) = self.windows.latest(object, kind)?;
        (self.tick.since(tick) <= OUTDATED).then_some(value)
    }

    fn figures(&self, object: &Object, kinds: &Kinds) -> UsageFigures {
        let average = self.windows.summary(object, kinds.cpu, self.tick.back(AVERAGED), self.tick);
        UsageFigures {
            cpu_cores: self.value(object, kinds.cpu),
            cpu_cores_average_1m: average.ok().map(|window| window.average),
            memory_bytes: self.value(object, kinds.memory).map(bytes),
            memory_with_page_cache_bytes: kinds
                .with_cache
                .and_then(|kind| self.value(object, kind))
                .map(bytes),
        }
    }

    fn group(
        &self,
        object: &Object,
        kinds: &Kinds,
        throttled: Kind,
        psi: fn(Pressure) -> Kind,
    ) -> GroupUsage {
        let pressure = |resource| {
            let (degree, figure) = (PressureDegree::Some, PressureFigure::Avg10);
            self.value(object, psi(Pressure { resource, degree, figure }))
        };
        GroupUsage {
            figures: self.figures(object, kinds),
            cpu_throttled_ratio: self.value(object, throttled),
            cpu_pressure_some_10s: pressure(PressureResource::Cpu),
            memory_pressure_some_10s: pressure(PressureResource::Memory),
            io_pressure_some_10s: pressure(PressureResource::Io),
        }
    }

    /// The node.
    pub fn node(&self) -> NodeUsage {
        let mut numa_nodes: Vec<NumaUsage> = self
            .windows
            .objects()
            .into_iter()
            .filter_map(|object| match object {
                Object::Numa(numa_node) => {
                    let figures = self.figures(&object, &NUMA);
                    Some(NumaUsage { numa_node, figures })
                }
                _ => None,
            })
            .collect();
        numa_nodes.sort_by_key(|numa| numa.numa_node);
        let age = Tick::now().since(self.tick);
        NodeUsage {
            time: SystemTime::now().checked_sub(age).map(Timestamp::from_system_time),
            cpus: self.cpus(),
            memory_capacity_bytes: Some(self.start.memory_bytes).filter(|bytes| *bytes > 0),
            node: self.figures(&Object::Node, &NODE),
            pods: sum(self.pods.iter().map(|pod| self.figures(&pod_object(pod), &POD))),
            system: self.figures(&Object::Node, &SYSTEM),
            numa_nodes,
            pod_count: self.pods.len() as u64,
            collectors: self.collectors.iter().map(collector).collect(),
        }
    }

    /// The pods that are asked for, in the order asked for.
    pub fn pods(&self, options: &TopPods) -> Vec<PodUsage> {
        let mut pods: Vec<PodUsage> = self
            .pods
            .iter()
            .filter(|pod| options.namespace.as_ref().is_none_or(|namespace| *namespace == pod.namespace))
            .filter(|pod| options.qos.is_none_or(|class| class == class_of(pod)))
            .filter(|pod| {
                let name = format!("{}/{}", pod.namespace, pod.name);
                options.text.as_ref().is_none_or(|text| name.contains(text.as_str()))
            })
            .map(|pod| self.pod(pod))
            .collect();
        pods.sort_by(|one, two| {
            (&one.namespace, &one.name, &one.uid).cmp(&(&two.namespace, &two.name, &two.uid))
        });
        if let Some(column) = column(options.sort) {
            // Stable: equal ones stay in the order of their names. Those without a figure come last.
            pods.sort_by_key(|pod| Reverse(column(&pod.usage).map(Ordered)));
        }
        if let Some(limit) = options.limit {
            pods.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        pods
    }

    fn pod(&self, pod: &v1::Pod) -> PodUsage {
        let uid: Arc<str> = pod.uid.as_str().into();
        let mut containers: Vec<ContainerUsage> = pod
            .containers
            .iter()
            .map(|container| {
                let object =
                    Object::Container { pod_uid: Arc::clone(&uid), id: container.id.as_str().into() };
                let usage = self.group(&object, &CONTAINER, Kind::ContainerCpuThrottled, Kind::ContainerPsi);
                ContainerUsage { name: container.name.clone(), id: container.id.clone(), usage }
            })
            .collect();
        containers.sort_by(|one, two| (&one.name, &one.id).cmp(&(&two.name, &two.id)));
        PodUsage {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            qos: pod.qos_class.clone(),
            effective_qos: class_of(pod).as_str().to_owned(),
            kube_qos: pod.kube_qos_class.clone(),
            priority_class: pod.priority_class.clone(),
            usage: self.group(&Object::Pod(uid), &POD, Kind::PodCpuThrottled, Kind::PodPsi),
            containers,
        }
    }

    /// The QoS classes that have pods.
    pub fn qos(&self) -> QosUsage {
        let classes = [QosClass::Lse, QosClass::Lsr, QosClass::Ls, QosClass::Be, QosClass::System];
        let tier = |series| {
            self.value(&Object::Tier(series), Kind::NodeBe).map(|thousandths| thousandths / 1000.0 + 0.0)
        };
        QosUsage {
            classes: classes
                .into_iter()
                .filter_map(|class| {
                    let pods = || self.pods.iter().filter(move |pod| class_of(pod) == class);
                    let count = pods().count() as u64;
                    let figures = || sum(pods().map(|pod| self.figures(&pod_object(pod), &POD)));
                    (count > 0).then(|| ClassUsage {
                        qos: class.as_str().to_owned(),
                        pods: count,
                        figures: figures(),
                    })
                })
                .collect(),
            best_effort_cpu_limit_cores: tier(TierSeries::RealLimit),
            best_effort_cpu_request_cores: tier(TierSeries::Request),
        }
    }
}

fn pod_object(pod: &v1::Pod) -> Object {
    Object::Pod(pod.uid.as_str().into())
}

/// The class in force.
fn class_of(pod: &v1::Pod) -> QosClass {
    let kube_qos =
        KubeQos::from_name(&pod.kube_qos_class).unwrap_or_else(|| KubeQos::of_cgroup_path(&pod.cgroup));
    QosClass::with_default(QosClass::from_name(&pod.qos_class), kube_qos)
}

fn collector(state: &v1::CollectorState) -> CollectorEntry {
    use v1::collector_state::Phase;
    let word = match state.phase() {
        Phase::Ready => "ready",
        Phase::Waiting => "waiting",
        Phase::Failed => "failed",
        Phase::Disabled => "disabled",
        Phase::Unspecified => "unknown",
    };
    CollectorEntry { name: state.name.clone(), state: word.to_owned(), reason: state.reason.clone() }
}

/// The sum of what is known; nothing if nothing is.
fn sum(all: impl Iterator<Item = UsageFigures>) -> UsageFigures {
    fn add<T: std::ops::Add<Output = T>>(one: Option<T>, two: Option<T>) -> Option<T> {
        match (one, two) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        }
    }
    all.fold(UsageFigures::default(), |sum, one| UsageFigures {
        cpu_cores: add(sum.cpu_cores, one.cpu_cores),
        cpu_cores_average_1m: add(sum.cpu_cores_average_1m, one.cpu_cores_average_1m),
        memory_bytes: add(sum.memory_bytes, one.memory_bytes),
        memory_with_page_cache_bytes: add(sum.memory_with_page_cache_bytes, one.memory_with_page_cache_bytes),
    })
}

type Column = fn(&GroupUsage) -> Option<f64>;

/// The figure that rows are ordered by; none for names.
fn column(sort: SortBy) -> Option<Column> {
    Some(match sort {
        SortBy::Cpu => |usage| usage.figures.cpu_cores,
        SortBy::CpuAverage => |usage| usage.figures.cpu_cores_average_1m,
        SortBy::Throttled => |usage| usage.cpu_throttled_ratio,
        SortBy::Memory => |usage| usage.figures.memory_bytes.map(|bytes| bytes as f64),
        SortBy::Pressure => |usage| usage.cpu_pressure_some_10s,
        SortBy::Name => return None,
    })
}

/// A number in the order of its size.
#[derive(Debug, Clone, Copy)]
struct Ordered(f64);

impl PartialEq for Ordered {
    fn eq(&self, other: &Ordered) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A number of bytes, whole and not below 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion holds numbers at the ends of the range, which is what is wanted"
)]
fn bytes(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests;
