//! What a pod's labels and annotations say, read once for all its containers.

use std::collections::BTreeMap;

use koord_extension::annotation::{
    AnnotationError, BlkioQos, CpuBurst, CpuQos, DeviceAllocated, DeviceAllocation, ExtendedResourceSpec,
    MemoryQos, OomScoreAdjSpec, Resctrl, ResourceStatus,
};
use koord_extension::cpuset::CpuSet;
use koord_extension::gates::{Gate, Gates};
use koord_extension::keys::{BLOCKIO_CONTAINER_PREFIX, RDT_CONTAINER_PREFIX, annotation, resource};
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::quantity::Quantity;
use koord_extension::units::MilliCpu;

use crate::batch_resource::Amounts;
use crate::plan::{Plan, Rule};
pub(crate) use crate::resctrl::RuntimeClass;
use crate::view::PodView;

/// An annotation: absent, read, or what is wrong with it.
///
/// Most pods have few of them, and a node has many pods: what is absent takes no room.
pub(crate) type Fact<T> = Result<Option<Box<T>>, Box<str>>;

/// What an annotation says; `None` if it cannot be read, which is put on record.
pub(crate) fn known<'a, T>(fact: &'a Fact<T>, rule: Rule, plan: &mut Plan) -> Option<Option<&'a T>> {
    match fact {
        Ok(value) => Some(value.as_deref()),
        Err(message) => {
            plan.problem(rule, &**message);
            None
        }
    }
}

/// What a pod's labels and annotations say.
///
/// They never change while the pod lives, so one reading serves the pod and all its containers.
#[derive(Debug, Clone, PartialEq)]
pub struct PodFacts {
    qos: Option<QosClass>,
    kube_qos: KubeQos,
    pub(crate) placement: Fact<Placement>,
    pub(crate) extended: Fact<ExtendedResources>,
    pub(crate) cpu_qos: Fact<CpuQos>,
    pub(crate) cpu_burst: Fact<CpuBurst>,
    pub(crate) memory_qos: Fact<MemoryQos>,
    pub(crate) blkio_qos: Fact<BlkioQos>,
    pub(crate) devices: Fact<DeviceAllocated>,
    pub(crate) resctrl: Fact<Resctrl>,
    pub(crate) oom_default: Fact<i64>,
    pub(crate) oom_spec: Fact<OomScoreAdjSpec>,
    gpu_containers: Vec<String>,
    rdt: RuntimeClassUse,
    blockio: RuntimeClassUse,
}

/// For which containers the runtime itself was told a class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RuntimeClassUse {
    whole_pod: bool,
    containers: Vec<String>,
}

impl RuntimeClassUse {
    fn read(
        annotations: &BTreeMap<String, String>,
        pod_keys: [&str; 2],
        container_prefix: &str,
    ) -> RuntimeClassUse {
        let with_prefix = annotations.range(container_prefix.to_owned()..);
        RuntimeClassUse {
            whole_pod: pod_keys.into_iter().any(|key| annotations.contains_key(key)),
            containers: with_prefix
                .map_while(|(key, _)| key.strip_prefix(container_prefix).map(str::to_owned))
                .collect(),
        }
    }

    fn covers(&self, container: Option<&str>) -> bool {
        let named = |name: &str| self.containers.iter().any(|known| known == name);
        self.whole_pod || container.is_some_and(named)
    }
}

/// What the scheduler decided about CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// CPUs of the pod's own; may be empty.
    pub(crate) cpus: CpuSet,
    /// NUMA nodes chosen for it; empty if none gives it CPU.
    pub(crate) numa_nodes: Vec<i64>,
}

/// Batch or mid resources of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtendedResources {
    kind: Kind,
    /// The pod as a whole.
    pub(crate) pod: Amounts,
    containers: BTreeMap<String, Amounts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Batch,
    Mid,
}

impl ExtendedResources {
    /// `batch` or `mid`.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Batch => "batch",
            Kind::Mid => "mid",
        }
    }

    /// Batch resources count for BE pods only, mid resources for LS pods too.
    pub(crate) fn acts_on(&self, qos: Option<QosClass>, gates: &Gates) -> bool {
        match self.kind {
            Kind::Batch => qos == Some(QosClass::Be),
            Kind::Mid => matches!(qos, Some(QosClass::Be | QosClass::Ls)) && gates.enabled(Gate::MidResource),
        }
    }

    /// One container.
    pub(crate) fn container(&self, name: &str) -> Option<&Amounts> {
        self.containers.get(name)
    }

    fn read(spec: &ExtendedResourceSpec) -> Option<ExtendedResources> {
        let has = |name: &str| {
            spec.containers
                .iter()
                .filter(|(container, _)| container.as_str() != ExtendedResourceSpec::OVERHEAD)
                .map(|(_, entry)| entry)
                .chain(&spec.pod)
                .any(|entry| entry.requests.contains_key(name) || entry.limits.contains_key(name))
        };
        let (kind, cpu, memory) = if has(resource::BATCH_CPU) || has(resource::BATCH_MEMORY) {
            (Kind::Batch, resource::BATCH_CPU, resource::BATCH_MEMORY)
        } else if has(resource::MID_CPU) || has(resource::MID_MEMORY) {
            (Kind::Mid, resource::MID_CPU, resource::MID_MEMORY)
        } else {
            return None;
        };
        // The unit of these resources is a whole thousandth of a CPU.
        let milli = |amount: Quantity| MilliCpu(amount.value());
        let pod = Amounts {
            cpu_request: milli(spec.pod_request(cpu)),
            cpu_limit: spec.pod_limit(cpu).map(milli),
            memory_request: spec.pod_request(memory).bytes(),
            memory_limit: spec.pod_limit(memory).map(Quantity::bytes),
        };
        let containers = spec
            .containers
            .iter()
            .filter(|(name, _)| name.as_str() != ExtendedResourceSpec::OVERHEAD)
            .map(|(name, entry)| {
                let request = |name: &str| entry.requests.get(name).copied().unwrap_or_default();
                let limit = |name: &str| entry.limits.get(name).copied().filter(|limit| limit.is_positive());
                let amounts = Amounts {
                    cpu_request: milli(request(cpu)),
                    cpu_limit: limit(cpu).map(milli),
                    memory_request: request(memory).bytes(),
                    memory_limit: limit(memory).map(Quantity::bytes),
                };
                (name.clone(), amounts)
            })
            .collect();
        Some(ExtendedResources { kind, pod, containers })
    }
}

/// Containers that ask for a GPU, as far as the annotation lists such requests.
fn gpu_containers(spec: &ExtendedResourceSpec) -> Vec<String> {
    let names = [
        resource::GPU,
        resource::GPU_CORE,
        resource::GPU_MEMORY,
        resource::GPU_MEMORY_RATIO,
        resource::GPU_SHARED,
    ];
    spec.containers
        .iter()
        .filter(|(_, entry)| {
            names.iter().any(|name| entry.requests.contains_key(*name) || entry.limits.contains_key(*name))
        })
        .map(|(name, _)| name.clone())
        .collect()
}

fn text(error: AnnotationError) -> Box<str> {
    error.to_string().into()
}

fn fact<T>(read: Result<Option<T>, AnnotationError>) -> Fact<T> {
    read.map(|value| value.map(Box::new)).map_err(text)
}

fn oom_default(annotations: &BTreeMap<String, String>) -> Fact<i64> {
    let Some(text) = annotations.get(annotation::OOM_SCORE_ADJ) else { return Ok(None) };
    let wanted = |_| format!("annotation {}: {text:?} is no whole number", annotation::OOM_SCORE_ADJ).into();
    text.parse().map(|score| Some(Box::new(score))).map_err(wanted)
}

fn placement(annotations: &BTreeMap<String, String>) -> Fact<Placement> {
    let Some(status) = ResourceStatus::from_annotations(annotations).map_err(text)? else { return Ok(None) };
    Ok(Some(Box::new(Placement {
        cpus: status.cpus().map_err(text)?.unwrap_or_default(),
        numa_nodes: if status.is_numa_aware() {
            status.numa_node_resources.iter().map(|entry| i64::from(entry.node)).collect()
        } else {
            Vec::new()
        },
    })))
}

impl PodFacts {
    /// Reads them.
    pub fn new(pod: &PodView) -> PodFacts {
        let annotations = &pod.annotations;
        let spec = ExtendedResourceSpec::from_annotations(annotations).map_err(text);
        let gpu_containers = match &spec {
            Ok(Some(spec)) => gpu_containers(spec),
            _ => Vec::new(),
        };
        PodFacts {
            qos: QosClass::raw(&pod.labels),
            kube_qos: pod.kube_qos,
            placement: placement(annotations),
            extended: spec.map(|spec| spec.as_ref().and_then(ExtendedResources::read).map(Box::new)),
            cpu_qos: fact(CpuQos::from_annotations(annotations)),
            cpu_burst: fact(CpuBurst::from_annotations(annotations)),
            memory_qos: fact(MemoryQos::from_annotations(annotations)),
            blkio_qos: fact(BlkioQos::from_annotations(annotations)),
            devices: fact(DeviceAllocated::from_annotations(annotations)),
            resctrl: fact(Resctrl::from_annotations(annotations)),
            oom_default: oom_default(annotations),
            oom_spec: fact(OomScoreAdjSpec::from_annotations(annotations)),
            gpu_containers,
            rdt: RuntimeClassUse::read(
                annotations,
                [annotation::RDT_POD, annotation::RDT_CRI_CLASS],
                RDT_CONTAINER_PREFIX,
            ),
            blockio: RuntimeClassUse::read(
                annotations,
                [annotation::BLOCKIO_POD, annotation::BLOCKIO_CRI_CLASS],
                BLOCKIO_CONTAINER_PREFIX,
            ),
        }
    }

    /// The class that the pod's label names.
    pub fn qos(&self) -> Option<QosClass> {
        self.qos
    }

    /// The class of the pod's directory.
    pub fn kube_qos(&self) -> KubeQos {
        self.kube_qos
    }

    /// The label's class, else the one that fits the directory.
    pub fn qos_with_default(&self) -> QosClass {
        QosClass::with_default(self.qos, self.kube_qos)
    }

    /// What the pod wants in a resctrl group of its own, if it asks for one.
    pub fn own_resctrl(&self) -> Option<&Resctrl> {
        self.resctrl.as_ref().ok()?.as_deref()
    }

    /// Whether a rule about batch and mid resources could apply at all.
    pub(crate) fn may_have_extended_resources(&self) -> bool {
        matches!(self.qos, Some(QosClass::Be | QosClass::Ls))
    }

    /// Whether the runtime was told a class for the pod, or for the container.
    pub(crate) fn runtime_class_of(&self, class: RuntimeClass, container: Option<&str>) -> bool {
        match class {
            RuntimeClass::Rdt => self.rdt.covers(container),
            RuntimeClass::Blockio => self.blockio.covers(container),
        }
    }

    /// Whether a container gets the pod's GPUs: those that ask for one, all if that is not known.
    pub(crate) fn wants_gpu(&self, container: &str) -> bool {
        self.gpu_containers.is_empty() || self.gpu_containers.iter().any(|name| name == container)
    }
}

/// An amount of a device's resource, whole units.
pub(crate) fn amount(device: &DeviceAllocation, name: &str) -> Option<i64> {
    device.resources.get(name).map(|amount| amount.value())
}

/// Bus ids of an adapter: those of its virtual functions, else its own.
pub(crate) fn bus_ids(device: &DeviceAllocation) -> Vec<&str> {
    let functions =
        device.extension.as_ref().map_or(&[][..], |extension| extension.virtual_functions.as_slice());
    if functions.is_empty() {
        vec![device.id.as_str()]
    } else {
        functions.iter().map(|function| function.bus_id.as_str()).collect()
    }
}
