//! A node's view of a pod: the part of a Kubernetes pod that a node agent decides by.
//!
//! [`PodList::decode`] reads what the kubelet answers to `GET /pods` (or the API server to a list). Every
//! user shares a pod as `Arc<Pod>`; nobody copies it. A pod that cannot be read is told and left out, the
//! others are kept.

mod list;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use koord_extension::keys::resource;
use koord_extension::priority::{PriorityBands, PriorityClass};
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::quantity::ResourceList;
use koord_extension::translation::BorrowedPodResources;
pub use koord_extension::translation::{ContainerResources as Container, Requirements};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

pub use list::{PodList, PodListError, RefusedPod};

use crate::resources::Resources;
use crate::wall_time::WallTime;

/// A pod.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What was asked for.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// What the kubelet says of it.
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// Identity of a pod.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// UID.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    /// Labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, without the copy of the whole object that `kubectl apply` keeps in one of them.
    #[serde(deserialize_with = "annotations")]
    pub annotations: BTreeMap<String, String>,
    /// When it was created.
    pub creation_timestamp: Option<WallTime>,
    /// When it is to be gone; set as soon as it is to end.
    pub deletion_timestamp: Option<WallTime>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Priority.
    pub priority: Option<i32>,
    /// Init containers, in order.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// Containers, in order.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Resources of the pod as a whole (Kubernetes 1.32).
    pub resources: Option<Requirements>,
    /// What running it takes besides its containers.
    #[serde(deserialize_with = "or_default")]
    pub overhead: ResourceList,
    /// Its runtime class, if not the default one.
    pub runtime_class_name: Option<String>,
    /// Whether it is in the host's network.
    #[serde(deserialize_with = "or_default")]
    pub host_network: bool,
}

/// What the kubelet says of a pod.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// Phase.
    #[serde(deserialize_with = "or_default")]
    pub phase: Phase,
    /// Kubernetes' QoS class, as it is written; empty where the status has none.
    #[serde(deserialize_with = "or_default")]
    pub qos_class: String,
    /// When the kubelet took it on.
    pub start_time: Option<WallTime>,
    /// Init containers.
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Containers.
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
}

/// Phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Phase {
    /// Not all containers are there yet.
    Pending,
    /// Bound to the node, with all containers made.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, some badly.
    Failed,
    /// Not stated, or a word that is not known.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What the kubelet says of a container.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Id with the runtime's name, `containerd://0123...`; empty before it is made.
    #[serde(rename = "containerID", deserialize_with = "or_default")]
    pub container_id: String,
    /// State.
    #[serde(deserialize_with = "or_default")]
    pub state: ContainerState,
}

/// State of a container: at most one of its parts is there, and only whether it is matters.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It runs.
    #[serde(deserialize_with = "is_present")]
    pub running: bool,
    /// It has ended.
    #[serde(deserialize_with = "is_present")]
    pub terminated: bool,
}

impl ContainerStatus {
    /// The id without the runtime's name, as cgroups and the runtime have it; none before it is made.
    pub fn bare_id(&self) -> Option<&str> {
        let id = self.container_id.split_once("://").map_or(self.container_id.as_str(), |(_, id)| id);
        (!id.is_empty()).then_some(id)
    }
}

impl PodSpec {
    /// What decides about resources.
    pub fn borrowed(&self) -> BorrowedPodResources<'_> {
        BorrowedPodResources {
            init_containers: &self.init_containers,
            containers: &self.containers,
            overhead: &self.overhead,
            resources: self.resources.as_ref(),
        }
    }
}

impl Pod {
    /// `namespace/name`, as in logs.
    pub fn key(&self) -> PodKey<'_> {
        PodKey(self)
    }

    /// Whether it is to end.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it has ended, well or badly, and will not run again.
    pub fn is_terminated(&self) -> bool {
        matches!(self.status.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Kubernetes' QoS class: as its status states, else by its containers' CPU and memory.
    pub fn kube_qos(&self) -> KubeQos {
        KubeQos::from_name(&self.status.qos_class).unwrap_or_else(|| self.spec.borrowed().kube_qos())
    }

    /// CPU and memory it requests, by the rule of Kubernetes; each at least 0.
    pub fn request(&self) -> Resources {
        let resources = self.spec.borrowed();
        let requested = Resources {
            cpu: resources.request(resource::CPU).milli_cpu(),
            memory: resources.request(resource::MEMORY).bytes(),
        };
        requested.larger(Resources::ZERO)
    }

    /// The QoS class that its label states.
    pub fn raw_qos(&self) -> Option<QosClass> {
        QosClass::raw(&self.metadata.labels)
    }

    /// The QoS class with the default for pods that state none.
    pub fn qos(&self) -> QosClass {
        QosClass::with_default(self.raw_qos(), self.kube_qos())
    }

    /// The priority class with the default for pods that state none.
    pub fn priority_class(&self, bands: &PriorityBands) -> PriorityClass {
        PriorityClass::with_default(bands.raw(&self.metadata.labels, self.spec.priority), self.qos())
    }

    /// Milliseconds since it was created; a pod without that time counts as just created.
    pub fn age_millis(&self, now: WallTime) -> i64 {
        self.metadata.creation_timestamp.map_or(0, |created| now.millis_since(created))
    }
}

/// `namespace/name` of a pod.
#[derive(Clone, Copy)]
pub struct PodKey<'a>(&'a Pod);

impl fmt::Display for PodKey<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.0.metadata.namespace, self.0.metadata.name)
    }
}

impl fmt::Debug for PodKey<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// `null` is what Go writes for an empty list or map.
fn or_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// The annotation in which `kubectl apply` keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Annotations;

    impl<'de> Visitor<'de> for Annotations {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut annotations = BTreeMap::new();
            while let Some(key) = map.next_key::<String>()? {
                if key == LAST_APPLIED {
                    map.next_value::<IgnoredAny>()?;
                } else {
                    annotations.insert(key, map.next_value()?);
                }
            }
            Ok(annotations)
        }
    }

    deserializer.deserialize_any(Annotations)
}
