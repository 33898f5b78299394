//! Containers whose cache, bandwidth or block I/O the container runtime divides itself.
//!
//! containerd, CRI-O and resource managers built on them know classes of their own, named by annotations of pods. Such a
//! container is the runtime's: it is in a group that the runtime made, and is not moved.

use std::collections::BTreeMap;

use koord_extension::keys::{BLOCKIO_CONTAINER_PREFIX, RDT_CONTAINER_PREFIX, annotation};

/// What a runtime divides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeResource {
    /// Cache and memory bandwidth.
    Rdt,
    /// Block I/O.
    BlockIo,
}

impl RuntimeResource {
    const fn keys(self) -> (&'static str, &'static str, &'static str) {
        match self {
            RuntimeResource::Rdt => (annotation::RDT_CRI_CLASS, RDT_CONTAINER_PREFIX, annotation::RDT_POD),
            RuntimeResource::BlockIo => {
                (annotation::BLOCKIO_CRI_CLASS, BLOCKIO_CONTAINER_PREFIX, annotation::BLOCKIO_POD)
            }
        }
    }
}

/// The class that the runtime puts a container into: the container's own annotation, else the pod's for that container, else
/// the pod's. Absent if the runtime leaves the container alone, and only then is it ours.
pub fn runtime_class<'a>(
    resource: RuntimeResource,
    pod_annotations: &'a BTreeMap<String, String>,
    container_annotations: &'a BTreeMap<String, String>,
    container_name: &str,
) -> Option<&'a str> {
    let (of_container, prefix, of_pod) = resource.keys();
    container_annotations
        .get(of_container)
        .or_else(|| pod_annotations.get(&format!("{prefix}{container_name}")))
        .or_else(|| pod_annotations.get(of_pod))
        .map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_closest_annotation_counts() {
        let pod = annotations(&[
            ("rdt.resources.beta.kubernetes.io/pod", "silver"),
            ("rdt.resources.beta.kubernetes.io/container.main", "gold"),
            ("blockio.resources.beta.kubernetes.io/container.main", "slow"),
        ]);
        let own =
            annotations(&[("io.kubernetes.cri.rdt-class", "own"), ("io.kubernetes.cri.blockio-class", "io")]);
        let none = BTreeMap::new();
        let rdt = |container, name| runtime_class(RuntimeResource::Rdt, &pod, container, name);
        assert_eq!(rdt(&own, "main"), Some("own"));
        assert_eq!(rdt(&none, "main"), Some("gold"));
        assert_eq!(rdt(&none, "side"), Some("silver"));
        let block = |container, name| runtime_class(RuntimeResource::BlockIo, &pod, container, name);
        assert_eq!(block(&own, "main"), Some("io"));
        assert_eq!(block(&none, "main"), Some("slow"));
        assert_eq!(block(&none, "side"), None);
        let of_pod = annotations(&[("blockio.resources.beta.kubernetes.io/pod", "fast")]);
        assert_eq!(runtime_class(RuntimeResource::BlockIo, &of_pod, &none, "side"), Some("fast"));
        assert_eq!(runtime_class(RuntimeResource::Rdt, &none, &none, "main"), None);
    }
}
