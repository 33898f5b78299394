//! What Koordinator makes of one pod.

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::layout::Layout;
use koord_cgroup::path::group_uid;
use koord_cgroup::version::CgroupVersion;
use koord_extension::keys::{DEPRECATED_RESOURCES, label, resource};
use koord_extension::legality::is_suspicious_amount;
use koord_extension::priority::{PriorityBands, PriorityClass, sub_priority};
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::quantity::ResourceList;
use koord_extension::translation::{ContainerResources, PodResources, Requirements};
use serde::Serialize;

use super::keys::{self, KeyReport};
use super::outlook;
use super::pod::{self, Pod};
use super::source::PodSource;

/// Stands for the UID of a pod that has none yet.
const UNKNOWN_UID: &str = "UID";

/// Values of PriorityClasses that every cluster with Kubernetes and Koordinator has.
const PRIORITY_CLASSES: [(&str, i32); 6] = [
    ("koord-prod", 9_000),
    ("koord-mid", 7_000),
    ("koord-batch", 5_000),
    ("koord-free", 3_000),
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// What Koordinator makes of one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// Kind of the object the pod is or stands in.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name, of the object for a template.
    pub name: String,
    /// QoS class.
    pub qos: QosReport,
    /// Priority.
    pub priority: PriorityReport,
    /// Whether QoS class and priority class go together.
    pub legality: Legality,
    /// Resources of each container.
    pub containers: Vec<ContainerReport>,
    /// Where the pod's cgroup will be with resources as written.
    pub cgroup: CgroupReport,
    /// What becomes of the pod when a profile translates its resources; nothing if none would be.
    pub translation: Option<Translation>,
    /// Koordinator's keys on the pod.
    pub keys: Vec<KeyReport>,
    /// What the webhook would refuse or a user would not expect.
    pub warnings: Vec<String>,
    /// What cannot be read.
    pub problems: Vec<String>,
}

/// QoS class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QosReport {
    /// By the label alone; nothing if it names no class.
    pub raw: Option<QosClass>,
    /// By the label, else by the Kubernetes QoS class.
    pub effective: QosClass,
    /// Kubernetes QoS class.
    pub kube: KubeQos,
    /// `status`, or `computed`.
    pub kube_source: &'static str,
}

/// Priority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PriorityReport {
    /// By label or value alone; nothing if they name no class.
    pub raw_class: Option<&'static str>,
    /// By label or value, else by the QoS class.
    pub effective_class: &'static str,
    /// Sub-priority inside the class.
    pub sub_priority: i32,
    /// The value in the manifest, or the one its PriorityClass gives; nothing if neither is known.
    pub written: Option<i32>,
    /// The value that counts where a number is needed.
    pub effective: i32,
}

/// Whether QoS class and priority class go together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Legality {
    /// What the webhook says.
    pub verdict: Verdict,
    /// Why; empty if there is nothing to say.
    pub reason: String,
}

/// What the webhook says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Accepted.
    Ok,
    /// Accepted, with a warning.
    Warning,
    /// Refused.
    Forbidden,
    /// It depends on what the manifest does not tell.
    Unknown,
}

impl Verdict {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Forbidden => "forbidden",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Resources of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    /// Name; empty for what belongs to the pod as a whole.
    pub name: String,
    /// `container`, `init`, `sidecar`, `overhead` or `pod`.
    pub kind: &'static str,
    /// Requests.
    pub requests: ResourceList,
    /// Limits.
    pub limits: ResourceList,
}

/// Directories below the mount point of the cgroup file system, `UID` standing for a UID that is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CgroupReport {
    /// With the driver cgroupfs.
    pub cgroupfs: String,
    /// With the driver systemd.
    pub systemd: String,
}

/// What becomes of a pod when a profile translates its resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Translation {
    /// Resources of each container afterwards.
    pub containers: Vec<ContainerReport>,
    /// Text of the annotation `node.koordinator.sh/extended-resource-spec` afterwards.
    pub extended_resource_spec: String,
    /// Kubernetes QoS class afterwards.
    pub kube_qos: KubeQos,
    /// Where the pod's cgroup will be then.
    pub cgroup: CgroupReport,
}

/// Makes the report of one pod.
pub fn of_pod(source: &PodSource<'_>) -> PodReport {
    let pod = pod::read(source.pod, source.object);
    let bands = PriorityBands::default();
    let status = pod.status_qos.as_deref().and_then(KubeQos::from_name);
    let kube = status.unwrap_or_else(|| pod.resources.kube_qos());
    let raw = QosClass::raw(&pod.labels);
    let effective = QosClass::with_default(raw, kube);

    let mut warnings = Vec::new();
    let written = written_priority(&pod, &mut warnings);
    let raw_class = bands.raw(&pod.labels, written);
    let class = PriorityClass::with_default(raw_class, effective);
    let translated = outlook::translated(&pod.resources, class);
    warnings.extend(warnings_of(&pod, raw, class, kube));
    PodReport {
        kind: source.kind.to_owned(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        qos: QosReport {
            raw,
            effective,
            kube,
            kube_source: if status.is_some() { "status" } else { "computed" },
        },
        priority: PriorityReport {
            raw_class: raw_class.map(PriorityClass::as_str),
            effective_class: class.as_str(),
            sub_priority: sub_priority(&pod.labels).unwrap_or(0),
            written,
            effective: bands.value_with_default(written, class),
        },
        legality: match &pod.priority_class_name {
            // The label decides alone; without it the value does, and that is not in the manifest.
            Some(name) if written.is_none() && !pod.labels.contains_key(label::PRIORITY_CLASS) => Legality {
                verdict: Verdict::Unknown,
                reason: format!("it depends on the value of PriorityClass {name}"),
            },
            _ => outlook::legality(raw, raw_class),
        },
        containers: containers_of(&pod.resources),
        cgroup: cgroup_of(&pod, kube),
        translation: translated.map(|outlook::Translated { resources, annotation }| {
            let kube = resources.kube_qos();
            Translation {
                containers: containers_of(&resources),
                extended_resource_spec: annotation.to_text(),
                kube_qos: kube,
                cgroup: cgroup_of(&pod, kube),
            }
        }),
        keys: keys::of_pod(&pod.labels, &pod.annotations),
        warnings,
        problems: pod.problems,
    }
}

fn written_priority(pod: &Pod, warnings: &mut Vec<String>) -> Option<i32> {
    if pod.priority.is_some() {
        return pod.priority;
    }
    let name = pod.priority_class_name.as_deref()?;
    let known = PRIORITY_CLASSES.iter().find(|(class, _)| *class == name).map(|(_, value)| *value);
    if known.is_none() {
        warnings.push(format!(
            "the value of PriorityClass {name} is known in the cluster only; reckoned with none"
        ));
    }
    known
}

fn cgroup_of(pod: &Pod, kube: KubeQos) -> CgroupReport {
    let uid = pod.uid.as_deref().map_or(UNKNOWN_UID, |uid| group_uid(uid, &pod.annotations));
    let directory = |driver| {
        let path = Layout::new("/sys/fs/cgroup", CgroupVersion::V2, driver, "")
            .and_then(|layout| layout.pod(kube, uid));
        match path {
            Ok(path) => format!("/{}", path.as_str().trim_start_matches('/')),
            Err(error) => format!("none: {error}"),
        }
    };
    CgroupReport { cgroupfs: directory(CgroupDriver::Cgroupfs), systemd: directory(CgroupDriver::Systemd) }
}

fn containers_of(pod: &PodResources) -> Vec<ContainerReport> {
    let report = |name: &str, kind, resources: &Requirements| ContainerReport {
        name: name.to_owned(),
        kind,
        requests: resources.requests.clone(),
        limits: resources.limits.clone(),
    };
    let mut reports = Vec::new();
    for ContainerResources { name, restart_policy, resources } in &pod.init_containers {
        let kind = if restart_policy == "Always" { "sidecar" } else { "init" };
        reports.push(report(name, kind, resources));
    }
    for ContainerResources { name, resources, .. } in &pod.containers {
        reports.push(report(name, "container", resources));
    }
    if let Some(own) = &pod.resources {
        reports.push(report("", "pod", own));
    }
    if !pod.overhead.is_empty() {
        let overhead = Requirements { requests: pod.overhead.clone(), ..Requirements::default() };
        reports.push(report("", "overhead", &overhead));
    }
    reports
}

fn warnings_of(pod: &Pod, raw: Option<QosClass>, class: PriorityClass, kube: KubeQos) -> Vec<String> {
    let mut warnings = Vec::new();
    let containers = containers_of(&pod.resources);
    let lists = || {
        containers.iter().flat_map(|container| {
            let name = if container.name.is_empty() { container.kind } else { container.name.as_str() };
            [(name, &container.requests), (name, &container.limits)]
        })
    };
    let has = |name: &str| lists().any(|(_, list)| list.get(name).is_some_and(|value| value.is_positive()));
    let has_native = has(resource::CPU) || has(resource::MEMORY);
    let has_batch = has(resource::BATCH_CPU) || has(resource::BATCH_MEMORY);
    let has_mid = has(resource::MID_CPU) || has(resource::MID_MEMORY);

    if has_batch && raw != Some(QosClass::Be) {
        warnings.push(format!(
            "batch resources need the label {}=BE; the webhook refuses the pod",
            label::QOS_CLASS
        ));
    }
    if matches!(raw, Some(QosClass::Lse | QosClass::Lsr)) {
        let cores = pod.resources.request(resource::CPU).milli();
        if cores == 0 {
            warnings.push("LSE and LSR need a request of cpu; the webhook refuses the pod".to_owned());
        } else if cores % 1_000 != 0 {
            warnings.push(format!(
                "LSE and LSR need whole cores and the pod requests {cores}m of cpu; the webhook refuses it"
            ));
        }
    }
    if raw == Some(QosClass::Be) && has_native && !has_batch && !has_mid {
        warnings.push(format!(
            "BE with native resources: unless a profile translates them, the pod stays {kube} for the kubelet and \
             uses up native capacity"
        ));
    }
    if has_mid && raw != Some(QosClass::Be) {
        warnings.push(
            "a pod with mid resources only is BestEffort for the kubelet; without the gate MidResource nothing limits it"
                .to_owned(),
        );
    }
    if class == PriorityClass::Free {
        warnings.push(
            "koord-free has no resources of its own: native ones are used, and it is evicted first"
                .to_owned(),
        );
    }
    for (name, list) in lists() {
        for (key, quantity) in list {
            if is_suspicious_amount(key, *quantity) {
                warnings.push(format!(
                    "{name}: {key} {quantity} is {}/1000 of a core: its unit is a thousandth, and 1000 is one core",
                    quantity.value()
                ));
            }
            if let Some((_, today)) = DEPRECATED_RESOURCES.iter().find(|(former, _)| former == key) {
                warnings.push(format!("{name}: {key} is a former name; today it is {today}"));
            }
        }
    }
    warnings.sort();
    warnings.dedup();
    warnings
}
