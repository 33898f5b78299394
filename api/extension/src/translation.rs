//! Resources of a pod: native ones to batch and mid, former names, devices, and the annotation that tells
//! them to readers that do not see the spec.

use std::collections::BTreeMap;

use crate::annotation::{ContainerKind, ExtendedContainer, ExtendedResourceSpec};
use crate::json_object;
use crate::keys::{DEPRECATED_RESOURCES, resource};
use crate::priority::PriorityClass;
use crate::qos::KubeQos;
use crate::quantity::{Format, Quantity, ResourceList};

mod devices;
#[cfg(test)]
mod tests;

pub use devices::{Replacement, normalize_gpus, parse_replacements, replace_resources};

json_object! {
    /// Requests and limits.
    pub struct Requirements {
        /// Limits.
        limits: ResourceList = "limits",
        /// Requests.
        requests: ResourceList = "requests",
    }

    /// A container, as far as resources are concerned.
    pub struct ContainerResources {
        /// Its name.
        name: String = "name",
        /// Of an init container, Always makes it a sidecar.
        restart_policy: String = "restartPolicy",
        /// Requests and limits.
        resources: Requirements = "resources",
    }

    /// A pod's spec, as far as resources are concerned.
    pub struct PodResources {
        /// Init containers, in order.
        init_containers: Vec<ContainerResources> = "initContainers",
        /// Containers.
        containers: Vec<ContainerResources> = "containers",
        /// Overhead of the runtime.
        overhead: ResourceList = "overhead",
        /// Requests and limits of the pod as a whole (Kubernetes 1.32).
        resources: Option<Requirements> = "resources",
    }
}

/// Names of batch and mid resources.
pub const EXTENDED_RESOURCES: [&str; 4] =
    [resource::BATCH_CPU, resource::BATCH_MEMORY, resource::MID_CPU, resource::MID_MEMORY];

/// The name under which pods of a class ask for a resource. Only CPU and memory of batch and mid have
/// another one; it is never empty.
pub fn translated_name(class: Option<PriorityClass>, name: &str) -> &str {
    match (class, name) {
        (Some(PriorityClass::Batch), resource::CPU) => resource::BATCH_CPU,
        (Some(PriorityClass::Batch), resource::MEMORY) => resource::BATCH_MEMORY,
        (Some(PriorityClass::Mid), resource::CPU) => resource::MID_CPU,
        (Some(PriorityClass::Mid), resource::MEMORY) => resource::MID_MEMORY,
        _ => name,
    }
}

/// Renames CPU and memory for a class: CPU becomes a whole number of thousandths, upward, memory stays as
/// it is. What was there under the new name is overwritten. Gives whether something changed.
pub fn translate_list(class: PriorityClass, list: &mut ResourceList) -> bool {
    let mut changed = false;
    for native in [resource::CPU, resource::MEMORY] {
        let name = translated_name(Some(class), native);
        if name == native {
            continue;
        }
        let Some(quantity) = list.remove(native) else { continue };
        let quantity = if native == resource::CPU {
            Quantity::from_value(quantity.milli(), Format::DecimalSi)
        } else {
            quantity
        };
        list.insert(name.to_owned(), quantity);
        changed = true;
    }
    changed
}

/// Renames CPU and memory of one container for a class. A request that is missing where there is a limit
/// becomes the limit.
pub fn translate_container(class: PriorityClass, resources: &mut Requirements) -> bool {
    let mut changed = translate_list(class, &mut resources.requests);
    changed |= translate_list(class, &mut resources.limits);
    for native in [resource::CPU, resource::MEMORY] {
        let name = translated_name(Some(class), native);
        if name == native || resources.requests.contains_key(name) {
            continue;
        }
        if let Some(limit) = resources.limits.get(name).copied() {
            resources.requests.insert(name.to_owned(), limit);
            changed = true;
        }
    }
    changed
}

/// What a translation did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Translated {
    /// Whether something changed.
    pub changed: bool,
    /// Resources of the pod as a whole that were taken out of the spec, where such names are not allowed;
    /// they go into the annotation.
    pub pod: Option<Requirements>,
}

/// Renames CPU and memory of a pod whose class, with default, is batch or mid. Other classes stay native:
/// prod by definition, free because there are no resources of its own.
pub fn translate_pod(class: PriorityClass, pod: &mut PodResources) -> Translated {
    let mut translated = Translated::default();
    if !matches!(class, PriorityClass::Batch | PriorityClass::Mid) {
        return translated;
    }
    for container in pod.init_containers.iter_mut().chain(&mut pod.containers) {
        translated.changed |= translate_container(class, &mut container.resources);
    }
    translated.changed |= translate_list(class, &mut pod.overhead);
    if let Some(resources) = &mut pod.resources {
        let mut moved = Requirements::default();
        for (from, to) in
            [(&mut resources.requests, &mut moved.requests), (&mut resources.limits, &mut moved.limits)]
        {
            for native in [resource::CPU, resource::MEMORY] {
                if let Some((name, quantity)) = from.remove_entry(native) {
                    to.insert(name, quantity);
                }
            }
        }
        if translate_container(class, &mut moved) {
            translated.changed = true;
            translated.pod = Some(moved);
        }
        if resources.requests.is_empty() && resources.limits.is_empty() {
            pod.resources = None;
        }
    }
    translated
}

/// What the annotation tells about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExtendedScope {
    /// Batch and mid resources of all containers, overhead, and the pod as a whole.
    #[default]
    Everything,
    /// As Koordinator: batch resources of regular containers.
    RegularBatch,
}

/// The annotation of a pod. `moved` is what a translation took out of the spec.
pub fn extended_resource_spec(
    pod: &PodResources,
    moved: Option<&Requirements>,
    scope: ExtendedScope,
) -> ExtendedResourceSpec {
    let names: &[&str] = match scope {
        ExtendedScope::Everything => &EXTENDED_RESOURCES,
        ExtendedScope::RegularBatch => &[resource::BATCH_CPU, resource::BATCH_MEMORY],
    };
    let only = |list: &ResourceList| -> ResourceList {
        list.iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .map(|(name, quantity)| (name.clone(), *quantity))
            .collect()
    };
    let entry = |resources: &Requirements, kind, order| {
        let entry = ExtendedContainer {
            limits: only(&resources.limits),
            requests: only(&resources.requests),
            kind,
            order,
        };
        (!entry.limits.is_empty() || !entry.requests.is_empty()).then_some(entry)
    };
    let mut spec = ExtendedResourceSpec::default();
    if scope == ExtendedScope::Everything {
        for (order, container) in (0..).zip(&pod.init_containers) {
            let kind = match container.restart_policy.as_str() {
                "Always" => ContainerKind::Sidecar,
                _ => ContainerKind::Init,
            };
            if let Some(entry) = entry(&container.resources, kind, order) {
                spec.containers.insert(container.name.clone(), entry);
            }
        }
        let overhead = Requirements { requests: pod.overhead.clone(), ..Requirements::default() };
        if let Some(entry) = entry(&overhead, ContainerKind::Regular, 0) {
            spec.containers.insert(ExtendedResourceSpec::OVERHEAD.to_owned(), entry);
        }
        spec.pod = moved.and_then(|resources| entry(resources, ContainerKind::Regular, 0));
    }
    for container in &pod.containers {
        if let Some(entry) = entry(&container.resources, ContainerKind::Regular, 0) {
            spec.containers.insert(container.name.clone(), entry);
        }
    }
    spec
}

/// What becomes of the annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnnotationUpdate {
    /// It stays as it is, or absent.
    Keep,
    /// This text is written.
    Write(String),
    /// This text is written in place of one that cannot be read; users should hear of it.
    Replace(String),
}

/// Compares the annotation with what it should be. An absent one is as good as an empty one, so pods
/// without batch or mid resources are left alone and a stale annotation becomes `{}`.
pub fn update_extended_resource_spec(
    annotations: &BTreeMap<String, String>,
    wanted: &ExtendedResourceSpec,
) -> AnnotationUpdate {
    match ExtendedResourceSpec::from_annotations(annotations).map(Option::unwrap_or_default) {
        Ok(current) if current == *wanted => AnnotationUpdate::Keep,
        Ok(_) => AnnotationUpdate::Write(wanted.to_text()),
        Err(_) => AnnotationUpdate::Replace(wanted.to_text()),
    }
}

/// Renames former names of resources in one list, unless the name of today is there as well. Gives whether
/// something changed.
pub fn rename_deprecated(list: &mut ResourceList) -> bool {
    let mut changed = false;
    for (former, name) in DEPRECATED_RESOURCES {
        if list.contains_key(name) {
            continue;
        }
        if let Some(quantity) = list.remove(former) {
            list.insert(name.to_owned(), quantity);
            changed = true;
        }
    }
    changed
}

/// Renames former names of resources everywhere in a pod. Gives whether something changed.
pub fn rename_deprecated_in_pod(pod: &mut PodResources) -> bool {
    // Counted, because `any` would stop at the first list that changes.
    pod.lists_mut().filter_map(|list| rename_deprecated(list).then_some(())).count() > 0
}

impl PodResources {
    /// Every list of resources in the pod's containers and overhead.
    pub fn lists_mut(&mut self) -> impl Iterator<Item = &mut ResourceList> {
        self.init_containers
            .iter_mut()
            .chain(&mut self.containers)
            .flat_map(|container| [&mut container.resources.requests, &mut container.resources.limits])
            .chain([&mut self.overhead])
    }

    /// These resources, borrowed.
    pub fn borrowed(&self) -> BorrowedPodResources<'_> {
        BorrowedPodResources {
            init_containers: &self.init_containers,
            containers: &self.containers,
            overhead: &self.overhead,
            resources: self.resources.as_ref(),
        }
    }

    /// See [`BorrowedPodResources::kube_qos`].
    pub fn kube_qos(&self) -> KubeQos {
        self.borrowed().kube_qos()
    }

    /// See [`BorrowedPodResources::request`].
    pub fn request(&self, name: &str) -> Quantity {
        self.borrowed().request(name)
    }
}

impl ContainerResources {
    /// Whether it is, as an init container, one that keeps running beside the others (Kubernetes 1.29).
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

/// [`PodResources`] that are part of something else.
#[derive(Debug, Clone, Copy)]
pub struct BorrowedPodResources<'a> {
    /// Init containers, in order.
    pub init_containers: &'a [ContainerResources],
    /// Containers.
    pub containers: &'a [ContainerResources],
    /// Overhead of the runtime.
    pub overhead: &'a ResourceList,
    /// Requests and limits of the pod as a whole.
    pub resources: Option<&'a Requirements>,
}

impl BorrowedPodResources<'_> {
    /// The QoS class that Kubernetes gives the pod, from CPU and memory of all containers, or of the pod as
    /// a whole where it states them.
    pub fn kube_qos(&self) -> KubeQos {
        let stated: Vec<&Requirements> = match self.resources {
            Some(resources) if states_native(resources) => vec![resources],
            _ => self
                .init_containers
                .iter()
                .chain(self.containers)
                .map(|container| &container.resources)
                .collect(),
        };
        let native = [resource::CPU, resource::MEMORY];
        let sum = |of: fn(&Requirements) -> &ResourceList, name: &str| {
            stated
                .iter()
                .filter_map(|resources| of(resources).get(name).copied())
                .filter(|quantity| quantity.is_positive())
                .reduce(Quantity::plus)
        };
        let requests = native.map(|name| sum(|resources| &resources.requests, name));
        let limits = native.map(|name| sum(|resources| &resources.limits, name));
        if requests.iter().chain(&limits).all(Option::is_none) {
            return KubeQos::BestEffort;
        }
        let all_limited = stated.iter().all(|resources| {
            native
                .iter()
                .all(|name| resources.limits.get(*name).is_some_and(|quantity| quantity.is_positive()))
        });
        if all_limited && requests == limits { KubeQos::Guaranteed } else { KubeQos::Burstable }
    }

    /// What the pod requests of a resource as a whole: the larger of all that runs at the end and all that
    /// runs during any init container, plus overhead; a request of the pod itself stands in place of its
    /// containers'.
    pub fn request(&self, name: &str) -> Quantity {
        let of = |resources: &Requirements| resources.requests.get(name).copied();
        let (mut sidecars, mut during_init) = (Quantity::ZERO, Quantity::ZERO);
        for container in self.init_containers {
            let amount = of(&container.resources).unwrap_or_default();
            if container.is_sidecar() {
                sidecars = sidecars.plus(amount);
                during_init = during_init.max(sidecars);
            } else {
                during_init = during_init.max(sidecars.plus(amount));
            }
        }
        let regular = self
            .containers
            .iter()
            .filter_map(|container| of(&container.resources))
            .fold(Quantity::ZERO, Quantity::plus);
        let containers = regular.plus(sidecars).max(during_init);
        let pod = self.resources.and_then(of);
        pod.unwrap_or(containers).plus(self.overhead.get(name).copied().unwrap_or_default())
    }
}

fn states_native(resources: &Requirements) -> bool {
    [resource::CPU, resource::MEMORY]
        .iter()
        .any(|name| resources.requests.contains_key(*name) || resources.limits.contains_key(*name))
}
