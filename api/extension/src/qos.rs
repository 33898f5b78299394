//! QoS classes: how a node treats a pod at run time.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::keys::label;

/// Koordinator's QoS class of a pod.
///
/// The order is that of importance, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Latency sensitive with CPUs of its own that nobody else uses.
    Lse,
    /// Latency sensitive with reserved CPUs; best-effort pods may run on them when they are idle.
    Lsr,
    /// Latency sensitive on the shared pool.
    Ls,
    /// Best effort on what the others leave.
    Be,
    /// Daemons of the system.
    System,
}

impl QosClass {
    /// All classes.
    pub const ALL: [QosClass; 5] =
        [QosClass::Lse, QosClass::Lsr, QosClass::Ls, QosClass::Be, QosClass::System];

    /// The class a text names. Case matters and nothing is trimmed: anything but the five names is none.
    pub fn from_name(name: &str) -> Option<QosClass> {
        QosClass::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// The class that the pod's label states; none if it is absent or says anything else.
    pub fn raw(labels: &BTreeMap<String, String>) -> Option<QosClass> {
        labels.get(label::QOS_CLASS).and_then(|name| QosClass::from_name(name))
    }

    /// The class of a pod that may state none: Guaranteed pods are [`Lsr`](QosClass::Lsr), Burstable ones
    /// [`Ls`](QosClass::Ls), BestEffort ones [`Be`](QosClass::Be).
    pub const fn with_default(raw: Option<QosClass>, kube: KubeQos) -> QosClass {
        match (raw, kube) {
            (Some(class), _) => class,
            (None, KubeQos::Guaranteed) => QosClass::Lsr,
            (None, KubeQos::Burstable) => QosClass::Ls,
            (None, KubeQos::BestEffort) => QosClass::Be,
        }
    }

    /// As on the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            QosClass::Lse => "LSE",
            QosClass::Lsr => "LSR",
            QosClass::Ls => "LS",
            QosClass::Be => "BE",
            QosClass::System => "SYSTEM",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Serialize for QosClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Kubernetes' own QoS class of a pod, which decides where its cgroup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KubeQos {
    /// Every container has limits of CPU and memory equal to its requests.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// No request and no limit of CPU or memory.
    BestEffort,
}

impl KubeQos {
    /// All classes.
    pub const ALL: [KubeQos; 3] = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];

    /// The class a pod's status states; none if it states nothing or something else.
    pub fn from_name(name: &str) -> Option<KubeQos> {
        KubeQos::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// The class of a cgroup's path, of either driver: one that contains "besteffort" or "burstable" is of
    /// that class, any other Guaranteed.
    pub fn of_cgroup_path(path: &str) -> KubeQos {
        if path.contains("besteffort") {
            KubeQos::BestEffort
        } else if path.contains("burstable") {
            KubeQos::Burstable
        } else {
            KubeQos::Guaranteed
        }
    }

    /// As in a pod's status.
    pub const fn as_str(self) -> &'static str {
        match self {
            KubeQos::Guaranteed => "Guaranteed",
            KubeQos::Burstable => "Burstable",
            KubeQos::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for KubeQos {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Serialize for KubeQos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(label::QOS_CLASS.to_owned(), text.to_owned())])
    }

    #[test]
    fn only_the_exact_names_count() {
        for class in QosClass::ALL {
            assert_eq!(QosClass::raw(&labelled(class.as_str())), Some(class));
        }
        for text in ["ls", "Ls", " LS", "LS ", "", "none", "LSX", "system"] {
            assert_eq!(QosClass::raw(&labelled(text)), None, "{text:?}");
        }
        assert_eq!(QosClass::raw(&BTreeMap::new()), None);
    }

    #[test]
    fn what_is_not_stated_comes_from_kubernetes() {
        assert_eq!(QosClass::with_default(Some(QosClass::Be), KubeQos::Guaranteed), QosClass::Be);
        assert_eq!(
            QosClass::with_default(QosClass::raw(&labelled("ls")), KubeQos::Guaranteed),
            QosClass::Lsr
        );
        assert_eq!(QosClass::with_default(None, KubeQos::Burstable), QosClass::Ls);
        assert_eq!(QosClass::with_default(None, KubeQos::BestEffort), QosClass::Be);
    }

    #[test]
    fn cgroup_paths_tell_the_class() {
        for (path, class) in [
            ("/kubepods/besteffort/pod1", KubeQos::BestEffort),
            ("kubepods-besteffort-pod1.slice", KubeQos::BestEffort),
            ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice", KubeQos::Burstable),
            ("/kubepods/pod1", KubeQos::Guaranteed),
            ("", KubeQos::Guaranteed),
            ("/burstable/besteffort", KubeQos::BestEffort),
        ] {
            assert_eq!(KubeQos::of_cgroup_path(path), class, "{path}");
        }
    }

    #[test]
    fn names_are_those_of_kubernetes() {
        for class in KubeQos::ALL {
            assert_eq!(KubeQos::from_name(class.as_str()), Some(class));
        }
        assert_eq!(KubeQos::from_name("guaranteed"), None);
    }
}
