//! What a pod requests as a whole, and the QoS class that follows from it.

use koord_extension::keys::resource;
use koord_extension::qos::KubeQos;
use koord_extension::quantity::{Quantity, ResourceList};

use super::{Container, Pod, PodSpec, Requirements};
use crate::resources::Resources;

impl Pod {
    /// CPU and memory it requests, by the rule of Kubernetes; each at least 0.
    pub fn request(&self) -> Resources {
        Resources {
            cpu: self.request_of(resource::CPU).milli_cpu(),
            memory: self.request_of(resource::MEMORY).bytes(),
        }
    }

    /// What it requests of one resource, by the rule of Kubernetes (1.29 for sidecars, 1.32 for resources of
    /// the pod): the larger of all that runs at the end (containers and sidecars) and all that runs during
    /// any init container (the sidecars before it and itself). CPU, memory and huge pages that the pod as a
    /// whole requests stand in place of that. Overhead is added.
    pub fn request_of(&self, name: &str) -> Quantity {
        let amount = |list: &ResourceList| {
            list.get(name).copied().filter(|quantity| quantity.is_positive()).unwrap_or_default()
        };
        let of_pod = self
            .spec
            .resources
            .as_ref()
            .filter(|_| is_pod_level(name))
            .and_then(|whole| whole.requests.contains_key(name).then(|| amount(&whole.requests)));
        let containers = || {
            let regular = self.spec.containers.iter().map(|container| amount(&container.resources.requests));
            let mut sidecars = Quantity::ZERO;
            let mut during_init = Quantity::ZERO;
            for container in &self.spec.init_containers {
                let own = amount(&container.resources.requests);
                if container.is_sidecar() {
                    sidecars = sidecars.plus(own);
                    during_init = during_init.max(sidecars);
                } else {
                    during_init = during_init.max(sidecars.plus(own));
                }
            }
            regular.fold(sidecars, Quantity::plus).max(during_init)
        };
        of_pod.unwrap_or_else(containers).plus(amount(&self.spec.overhead))
    }
}

/// Resources that a pod as a whole may request.
fn is_pod_level(name: &str) -> bool {
    matches!(name, resource::CPU | resource::MEMORY) || name.starts_with("hugepages-")
}

/// Kubernetes' QoS class of a pod whose status states none: by CPU and memory of the pod as a whole where
/// it has such, else of all containers, init containers included.
pub(super) fn kube_qos(spec: &PodSpec) -> KubeQos {
    const COMPUTE: [&str; 2] = [resource::CPU, resource::MEMORY];
    let positive =
        |list: &ResourceList, name: &str| list.get(name).copied().filter(|quantity| quantity.is_positive());
    let asks = |all: &Requirements| {
        COMPUTE
            .iter()
            .any(|name| positive(&all.requests, name).is_some() || positive(&all.limits, name).is_some())
    };
    let is_guaranteed = |all: &Requirements| {
        COMPUTE.iter().all(|name| {
            let limit = positive(&all.limits, name);
            // The API server fills in a request that is not stated from the limit.
            limit.is_some() && positive(&all.requests, name).or(limit) == limit
        })
    };
    if let Some(whole) = spec.resources.as_ref().filter(|whole| asks(whole)) {
        return if is_guaranteed(whole) { KubeQos::Guaranteed } else { KubeQos::Burstable };
    }
    let containers = || spec.init_containers.iter().chain(&spec.containers);
    let resources = |container: &Container| asks(&container.resources);
    if !containers().any(resources) {
        KubeQos::BestEffort
    } else if containers().all(|container| is_guaranteed(&container.resources)) {
        KubeQos::Guaranteed
    } else {
        KubeQos::Burstable
    }
}
