//! What a sample is about.

use std::fmt;
use std::sync::Arc;

/// One figure of the best-effort tier; all are thousandths of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TierSeries {
    /// What the tier may use: the smaller of its CPU set and its quota.
    RealLimit,
    /// What pods of raw class BE ask for as batch CPU.
    Request,
    /// What the tier used.
    Usage,
}

impl TierSeries {
    /// All, in the order of their names in this type.
    pub const ALL: [TierSeries; 3] = [TierSeries::RealLimit, TierSeries::Request, TierSeries::Usage];

    /// The value of label `be_allocation`.
    pub const fn as_str(self) -> &'static str {
        match self {
            TierSeries::RealLimit => "real-limit",
            TierSeries::Request => "request",
            TierSeries::Usage => "usage",
        }
    }
}

/// Whose part of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuUser {
    /// Everybody.
    Node,
    /// The pod of this UID.
    Pod(Arc<str>),
    /// The container of this id, without its runtime.
    Container(Arc<str>),
}

/// What a sample is about, with every label that its kind does not imply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The whole machine; also what belongs to no pod and no host application.
    Node,
    /// A NUMA node, by number.
    Numa(u32),
    /// The best-effort tier.
    Tier(TierSeries),
    /// A pod, by UID.
    Pod(Arc<str>),
    /// A pod's part of a NUMA node.
    PodNuma {
        /// UID of the pod.
        pod_uid: Arc<str>,
        /// Number of the NUMA node.
        numa: u32,
    },
    /// A container.
    Container {
        /// UID of its pod.
        pod_uid: Arc<str>,
        /// Its id, without the runtime's prefix.
        id: Arc<str>,
    },
    /// An application outside of Kubernetes, by the name that NodeSLO gives it.
    HostApplication(Arc<str>),
    /// A GPU and who uses it.
    Gpu {
        /// Whose part.
        user: GpuUser,
        /// Minor number of the device.
        minor: u32,
        /// UUID of the device.
        uuid: Arc<str>,
    },
    /// A group of the cache and bandwidth monitor in one cache domain.
    Resctrl {
        /// Name of the group: `LSR`, `LS`, `BE`.
        group: Arc<str>,
        /// Number of the level 3 cache.
        cache: u32,
    },
}

/// Sort of an [`Object`]: its variant without the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectClass {
    /// [`Object::Node`]
    Node,
    /// [`Object::Numa`]
    Numa,
    /// [`Object::Tier`]
    Tier,
    /// [`Object::Pod`]
    Pod,
    /// [`Object::PodNuma`]
    PodNuma,
    /// [`Object::Container`]
    Container,
    /// [`Object::HostApplication`]
    HostApplication,
    /// [`Object::Gpu`] of the node.
    NodeGpu,
    /// [`Object::Gpu`] of a pod.
    PodGpu,
    /// [`Object::Gpu`] of a container.
    ContainerGpu,
    /// [`Object::Resctrl`]
    Resctrl,
}

impl Object {
    /// The sort of this object.
    pub const fn class(&self) -> ObjectClass {
        match self {
            Object::Node => ObjectClass::Node,
            Object::Numa(_) => ObjectClass::Numa,
            Object::Tier(_) => ObjectClass::Tier,
            Object::Pod(_) => ObjectClass::Pod,
            Object::PodNuma { .. } => ObjectClass::PodNuma,
            Object::Container { .. } => ObjectClass::Container,
            Object::HostApplication(_) => ObjectClass::HostApplication,
            Object::Gpu { user: GpuUser::Node, .. } => ObjectClass::NodeGpu,
            Object::Gpu { user: GpuUser::Pod(_), .. } => ObjectClass::PodGpu,
            Object::Gpu { user: GpuUser::Container(_), .. } => ObjectClass::ContainerGpu,
            Object::Resctrl { .. } => ObjectClass::Resctrl,
        }
    }

    /// Octets of the names in it.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Object::Node | Object::Numa(_) | Object::Tier(_) => 0,
            Object::Pod(text) | Object::HostApplication(text) | Object::PodNuma { pod_uid: text, .. } => {
                text.len()
            }
            Object::Container { id, .. } => id.len(),
            Object::Gpu { uuid, .. } => uuid.len(),
            Object::Resctrl { group, .. } => group.len(),
        }
    }

    /// Whether both are the same object, told without a look at the text where it is shared.
    pub(crate) fn is_same(&self, other: &Object) -> bool {
        match (self, other) {
            (Object::Pod(one), Object::Pod(two)) => Arc::ptr_eq(one, two) || one == two,
            (
                Object::Container { id: one, pod_uid: first },
                Object::Container { id: two, pod_uid: second },
            ) => (Arc::ptr_eq(one, two) || one == two) && (Arc::ptr_eq(first, second) || first == second),
            (one, two) => one == two,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Node => formatter.write_str("node"),
            Object::Numa(number) => write!(formatter, "numa/{number}"),
            Object::Tier(series) => write!(formatter, "best-effort/{}", series.as_str()),
            Object::Pod(uid) => write!(formatter, "pod/{uid}"),
            Object::PodNuma { pod_uid, numa } => write!(formatter, "pod/{pod_uid}/numa/{numa}"),
            Object::Container { pod_uid, id } => write!(formatter, "pod/{pod_uid}/container/{id}"),
            Object::HostApplication(name) => write!(formatter, "host-application/{name}"),
            Object::Gpu { user, minor, uuid } => {
                match user {
                    GpuUser::Node => formatter.write_str("node")?,
                    GpuUser::Pod(uid) => write!(formatter, "pod/{uid}")?,
                    GpuUser::Container(id) => write!(formatter, "container/{id}")?,
                }
                write!(formatter, "/gpu/{minor}/{uuid}")
            }
            Object::Resctrl { group, cache } => write!(formatter, "resctrl/{group}/{cache}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_a_name_and_a_class() {
        let gpu = |user| Object::Gpu { user, minor: 2, uuid: "GPU-1".into() };
        let table = [
            (Object::Node, "node", ObjectClass::Node),
            (Object::Numa(3), "numa/3", ObjectClass::Numa),
            (Object::Tier(TierSeries::RealLimit), "best-effort/real-limit", ObjectClass::Tier),
            (Object::Pod("0f".into()), "pod/0f", ObjectClass::Pod),
            (Object::PodNuma { pod_uid: "0f".into(), numa: 1 }, "pod/0f/numa/1", ObjectClass::PodNuma),
            (
                Object::Container { pod_uid: "0f".into(), id: "1e".into() },
                "pod/0f/container/1e",
                ObjectClass::Container,
            ),
            (Object::HostApplication("nginx".into()), "host-application/nginx", ObjectClass::HostApplication),
            (gpu(GpuUser::Node), "node/gpu/2/GPU-1", ObjectClass::NodeGpu),
            (gpu(GpuUser::Pod("0f".into())), "pod/0f/gpu/2/GPU-1", ObjectClass::PodGpu),
            (gpu(GpuUser::Container("1e".into())), "container/1e/gpu/2/GPU-1", ObjectClass::ContainerGpu),
            (Object::Resctrl { group: "LS".into(), cache: 1 }, "resctrl/LS/1", ObjectClass::Resctrl),
        ];
        for (object, name, class) in table {
            assert_eq!((object.to_string().as_str(), object.class()), (name, class));
        }
    }

    #[test]
    fn the_same_object_may_be_named_twice() {
        let container =
            |pod_uid: &str, id: &str| Object::Container { pod_uid: pod_uid.into(), id: id.into() };
        assert!(Object::Pod("a".into()).is_same(&Object::Pod("a".into())));
        assert!(!Object::Pod("a".into()).is_same(&Object::Pod("b".into())));
        assert!(container("a", "b").is_same(&container("a", "b")));
        assert!(!container("a", "b").is_same(&container("a", "c")));
        assert!(!container("a", "b").is_same(&container("c", "b")));
        assert!(!Object::Pod("a".into()).is_same(&Object::HostApplication("a".into())));
    }
}
