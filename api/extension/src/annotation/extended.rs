//! Batch and mid resources of a pod, for readers that do not see its spec.

use std::collections::BTreeMap;

use super::json_annotation;
use crate::keys::annotation;
use crate::quantity::{Quantity, ResourceList};
use crate::{json_object, json_words};

json_words! {
    /// What kind of container an entry is about.
    pub enum ContainerKind {
        /// Runs as long as the pod.
        Regular = "",
        /// An init container that runs to its end before the next one starts.
        Init = "init",
        /// An init container that keeps running (restart policy Always).
        Sidecar = "sidecar",
    }
}

json_object! {
    /// Batch and mid resources of a pod's containers.
    ///
    /// `pod`, `kind`, `order` and the name "" for the pod's overhead are additions to Koordinator's form;
    /// its own readers pass over them.
    pub struct ExtendedResourceSpec {
        /// By name of the container; [`OVERHEAD`](ExtendedResourceSpec::OVERHEAD) is the pod's overhead.
        containers: BTreeMap<String, ExtendedContainer> = "containers",
        /// Resources of the pod as a whole, where its spec has such.
        pod: Option<ExtendedContainer> = "pod",
    }

    /// Batch and mid resources of one container.
    pub struct ExtendedContainer {
        /// Limits.
        limits: ResourceList = "limits",
        /// Requests.
        requests: ResourceList = "requests",
        /// Kind of the container.
        kind: ContainerKind = "kind",
        /// Place of an init container among the init containers, from 0.
        order: i32 = "order",
    }
}

json_annotation!(ExtendedResourceSpec, annotation::EXTENDED_RESOURCE_SPEC);

impl ExtendedResourceSpec {
    /// Name of the entry of the pod's overhead: no container can have it.
    pub const OVERHEAD: &'static str = "";

    /// Whether the pod has no batch or mid resources as far as readers can tell.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.pod.is_none()
    }

    /// What the pod requests of `resource` as a whole, by the rule of Kubernetes 1.29 for sidecars:
    /// the larger of all that runs at the end and all that runs during any init container, plus overhead.
    /// A request of the pod itself stands in place of its containers'.
    pub fn pod_request(&self, resource: &str) -> Quantity {
        let request = |container: &ExtendedContainer| container.requests.get(resource).copied();
        let overhead = self.containers.get(Self::OVERHEAD).and_then(request).unwrap_or_default();
        let pod = self.pod.as_ref().and_then(request);
        let containers =
            || self.combined(|container| Some(request(container).unwrap_or_default())).unwrap_or_default();
        pod.unwrap_or_else(containers).plus(overhead)
    }

    /// The pod's limit of `resource` as a whole, by the same rule; none as soon as some container that
    /// counts has no limit above zero. A limit of the pod itself stands in place of its containers'.
    pub fn pod_limit(&self, resource: &str) -> Option<Quantity> {
        let limit = |container: &ExtendedContainer| {
            container.limits.get(resource).copied().filter(|limit| limit.is_positive())
        };
        let pod = self.pod.as_ref().and_then(limit);
        let total = pod.or_else(|| self.combined(limit))?;
        // Overhead has a request only; where a limit exists, it is room on top of it.
        let overhead = self.containers.get(Self::OVERHEAD).and_then(|entry| entry.requests.get(resource));
        Some(total.plus(overhead.copied().unwrap_or_default()))
    }

    /// Regular containers and sidecars together, or what runs during the largest init container. None if
    /// `of` gives none for one of them, or if there is no container.
    fn combined(&self, of: impl Fn(&ExtendedContainer) -> Option<Quantity>) -> Option<Quantity> {
        let mut containers: Vec<&ExtendedContainer> = self
            .containers
            .iter()
            .filter(|(name, _)| name.as_str() != Self::OVERHEAD)
            .map(|(_, container)| container)
            .collect();
        if containers.is_empty() {
            return None;
        }
        containers.sort_by_key(|container| container.order);
        let mut sidecars = Quantity::ZERO;
        let mut during_init = Quantity::ZERO;
        let mut regular = Quantity::ZERO;
        for container in containers {
            let amount = of(container)?;
            match container.kind {
                ContainerKind::Sidecar => {
                    sidecars = sidecars.plus(amount);
                    during_init = during_init.max(sidecars);
                }
                ContainerKind::Init => during_init = during_init.max(sidecars.plus(amount)),
                ContainerKind::Regular | ContainerKind::Other(_) => regular = regular.plus(amount),
            }
        }
        Some(regular.plus(sidecars).max(during_init))
    }
}
