//! Which pods are exempt from hooks.

use crate::record::PodRecord;

/// The label that exempts a pod and its containers from hooks.
///
/// It lets a hook server run as a pod: that pod must be able to start while the server is
/// down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkipRule {
    /// Key of the label.
    pub key: String,
    /// The exact value it must have.
    pub value: String,
    /// Namespaces in which the label is honoured; empty honours it in all of them. Labels are
    /// set by the authors of pods, so this keeps tenants from escaping their limits.
    pub namespaces: Vec<String>,
}

impl SkipRule {
    /// Whether no hook runs for the pod and its containers.
    pub fn skips(&self, pod: &PodRecord) -> bool {
        pod.labels.get(&self.key).is_some_and(|value| *value == self.value)
            && (self.namespaces.is_empty() || self.namespaces.contains(&pod.metadata.namespace))
    }
}

#[cfg(test)]
mod tests {
    use koord_hook::v1alpha1::PodSandboxMetadata;

    use super::*;

    const KEY: &str = "runtimeproxy.koordinator.sh/skip-hookserver";

    fn pod(value: &str) -> PodRecord {
        PodRecord {
            metadata: PodSandboxMetadata { namespace: "kube-system".into(), ..Default::default() },
            labels: [(KEY.to_owned(), value.to_owned())].into(),
            ..PodRecord::default()
        }
    }

    fn rule(namespaces: &[&str]) -> SkipRule {
        SkipRule {
            key: KEY.into(),
            value: "true".into(),
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn the_value_must_be_exact() {
        assert!(rule(&[]).skips(&pod("true")));
        for value in ["True", "1", "", "true "] {
            assert!(!rule(&[]).skips(&pod(value)), "{value:?}");
        }
        assert!(!rule(&[]).skips(&PodRecord::default()));
    }

    #[test]
    fn an_annotation_does_not_count() {
        let mut pod = pod("true");
        pod.annotations = std::mem::take(&mut pod.labels);
        assert!(!rule(&[]).skips(&pod));
    }

    #[test]
    fn only_in_the_named_namespaces() {
        assert!(rule(&["default", "kube-system"]).skips(&pod("true")));
        assert!(!rule(&["default"]).skips(&pod("true")));
    }
}
