//! The `NodeResourceTopology` object of a node: what it should say, and whether it has to be written.
//!
//! [`report`] is a function of the node object, the machine's layout, the kubelet's configuration and state, and the pods'
//! annotations. Koordinator's scheduler reads the result, so keys, shapes and rules are Koordinator's. [`kubelet`] reads
//! the configuration that the kubelet publishes, [`zones`] computes resources by NUMA node, [`change`] compares, and
//! [`pace`] says when.
//!
//! The same facts give the same object, however pods and files are ordered.

mod annotations;
pub mod change;
mod input;
pub mod kubelet;
mod object;
pub mod pace;
#[cfg(test)]
mod tests;
pub mod zones;

use koord_crd::node_resource_topology::NodeResourceTopology;
use koord_extension::annotation::AnnotationError;
use koord_topology::pools::SharePools;

pub use change::{Change, Published};
pub use input::{Input, NodeFacts, PodFacts};
pub use kubelet::KubeletConfig;
pub use object::{Creation, OwnerReference, creation};

use std::collections::BTreeMap;

/// What the object should say.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The annotations this report owns, by key. Others of the object stay.
    pub annotations: BTreeMap<String, String>,
    /// The labels this report owns, by key; one that is absent here is to be removed. Others of the object stay.
    pub labels: BTreeMap<&'static str, Option<String>>,
    /// All fields of the object but its metadata, with what others have put into them.
    pub body: NodeResourceTopology,
    /// The pools as they are published.
    pub pools: SharePools,
    /// What an operator should know. The same ones come again as long as their reasons last.
    pub warnings: Vec<Warning>,
}

/// Why there is no report. What was published before stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The node's annotation about system daemons cannot be read; they might lose their CPUs.
    #[error(transparent)]
    SystemQosResource(#[from] AnnotationError),
}

/// Something that was left out of a report, or that does not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The annotation does not count.
    #[error(transparent)]
    NodeAnnotation(AnnotationError),
    /// The pod counts as one without CPUs of its own.
    #[error("pod {namespace}/{name}: {problem}")]
    PodAnnotation {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: AnnotationError,
    },
    /// The node reservation reserves no CPUs.
    #[error("no CPUs are reserved on the node: {0}")]
    NodeReservation(String),
    /// CPUs of system daemons stay in the shared pools.
    #[error("cpuset of the node's system-qos-resource: {0}")]
    SystemCpus(String),
    /// The kubelet's reserved CPUs are not known.
    #[error("the kubelet's reserved CPUs are not known: {0}")]
    KubeletReservation(String),
    /// A container's CPUs in the kubelet's state do not count.
    #[error("{0}")]
    KubeletState(String),
    /// The policy is static and there is no state file.
    #[error("the kubelet's CPU manager is static and has no state; no CPUs count as given away by it")]
    NoKubeletState,
    /// The kubelet's configuration is not to be read, while its CPU manager gives CPUs away.
    #[error(
        "the kubelet's CPU manager gives CPUs to pods, and its configuration is not read; the scheduler may give the same CPUs to others"
    )]
    HiddenStaticPolicy,
    /// The kubelet and the scheduler have given the pod different CPUs.
    #[error("the kubelet gives pod {uid} CPUs {cpus}, the scheduler others")]
    KubeletConflict {
        /// The pod.
        uid: String,
        /// What the kubelet gives.
        cpus: String,
    },
}

/// Computes the report.
///
/// # Errors
///
/// If a fact is broken without which the report would be harmful. Everything else is left out with a warning.
pub fn report(input: &Input<'_>) -> Result<Report, ReportError> {
    let mut warnings = Vec::new();
    let (annotations, pools) = annotations::annotations(input, &mut warnings)?;
    let computed = zones::zones(&zones::ZoneInput {
        topology: input.topology,
        memory: input.memory,
        report_huge_pages: input.report_huge_pages,
        reserved: zones::kubelet_reservation(input.node),
    });
    let existing = input.published.map(|published| published.body);
    let body = NodeResourceTopology {
        topology_policies: vec![input.kubelet.map(KubeletConfig::topology_policy).unwrap_or_default()],
        zones: zones::merged(existing.map_or(&[], |body| &body.zones), computed),
        attributes: existing.map(|body| body.attributes.clone()).unwrap_or_default(),
    };
    let labels = change::LABELS
        .map(|key| (key, input.node.labels.get(key).filter(|value| !value.is_empty()).cloned()));
    Ok(Report { annotations, labels: labels.into_iter().collect(), body, pools, warnings })
}

impl Report {
    /// What differs from what is published. Nothing has to be written if nothing does.
    pub fn change(&self, published: &Published<'_>) -> Option<Change> {
        change::change(self, published)
    }

    /// This report as something published, to compare a later one with.
    pub fn as_published<'a>(&'a self, labels: &'a BTreeMap<String, String>) -> Published<'a> {
        Published { labels, annotations: &self.annotations, body: &self.body }
    }

    /// The labels of an object that has `labels`, after a write.
    pub fn labels_over(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut all = labels.clone();
        for (key, value) in &self.labels {
            match value {
                Some(value) => all.insert((*key).to_owned(), value.clone()),
                None => all.remove(*key),
            };
        }
        all
    }

    /// The annotations of an object that has `annotations`, after a write.
    pub fn annotations_over(&self, annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut all = annotations.clone();
        all.extend(self.annotations.iter().map(|(key, value)| (key.clone(), value.clone())));
        all
    }
}
