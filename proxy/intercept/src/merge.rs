//! Rules by which the answers of hook servers change what is known and sent.

use std::collections::BTreeMap;

use koord_cri::view;
use koord_hook::v1alpha1::LinuxContainerResources;

pub use koord_hook::options::{ResourceMerge, ServerOptions, UpdateScope};

/// A part of an answer that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Labels of Kubernetes identify pods to the kubelet.
    #[error("label {key:?} is reserved, its new value is ignored")]
    Label {
        /// The label's key.
        key: String,
    },
    /// Annotations of Kubernetes identify containers to the kubelet.
    #[error("annotation {key:?} is reserved, its new value is ignored")]
    Annotation {
        /// The annotation's key.
        key: String,
    },
    /// The cgroup parent cannot be used.
    #[error("cgroup parent {value:?} is ignored: {reason}")]
    CgroupParent {
        /// The first 256 characters of the value.
        value: String,
        /// What is wrong with it.
        reason: CgroupParentFault,
    },
}

/// What is wrong with an answered cgroup parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CgroupParentFault {
    /// It could leave the subtree it names.
    #[error("it has a component \"..\"")]
    ParentComponent,
    /// No path has a NUL.
    #[error("it contains a NUL")]
    Nul,
    /// It exceeds the longest path of Linux.
    #[error("it is longer than {MAX_CGROUP_PARENT_BYTES} bytes")]
    TooLong,
    /// The request's was absolute.
    #[error("it does not start with \"/\" as the one before does")]
    Relative,
    /// A restored pod has one cgroup parent for all its containers.
    #[error("a container of a restored pod has none of its own")]
    NoPlace,
}

/// Longest cgroup parent accepted, in bytes; `PATH_MAX` of Linux.
pub const MAX_CGROUP_PARENT_BYTES: usize = 4096;

/// Labels and annotations that begin so belong to Kubernetes.
const RESERVED_PREFIX: &str = "io.kubernetes.";

/// How much of a bad value is repeated in a message.
const SHOWN_CHARACTERS: usize = 256;

/// Owned form of resources read from a request.
pub(crate) fn owned_resources(resources: &view::Resources<'_>) -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit_in_bytes,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus.to_owned(),
        cpuset_mems: resources.cpuset_mems.to_owned(),
        hugepage_limits: resources
            .hugepage_limits
            .iter()
            .map(|limit| koord_hook::v1alpha1::HugepageLimit {
                page_size: limit.page_size.to_owned(),
                limit: limit.limit,
            })
            .collect(),
        unified: owned_map(&resources.unified),
        memory_swap_limit_in_bytes: resources.memory_swap_limit_in_bytes,
    }
}

/// Owned form of a map read from a request.
pub(crate) fn owned_map(map: &view::TextMap<'_>) -> BTreeMap<String, String> {
    map.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn take_positive(current: &mut i64, new: i64) {
    if new > 0 {
        *current = new;
    }
}

fn take_text(current: &mut String, new: &str) {
    if !new.is_empty() {
        new.clone_into(current);
    }
}

/// The fields both kinds of merge treat alike.
fn take_common(current: &mut LinuxContainerResources, new: &LinuxContainerResources) {
    take_positive(&mut current.cpu_period, new.cpu_period);
    take_positive(&mut current.cpu_shares, new.cpu_shares);
    take_positive(&mut current.memory_limit_in_bytes, new.memory_limit_in_bytes);
    take_positive(&mut current.memory_swap_limit_in_bytes, new.memory_swap_limit_in_bytes);
    // -1 removes the limit, so every value but 0 is one.
    if new.cpu_quota != 0 {
        current.cpu_quota = new.cpu_quota;
    }
    current.unified.extend(new.unified.iter().map(|(file, text)| (file.clone(), text.clone())));
}

/// Lays the resources of an update request over those known of the container.
///
/// `oom_score_adj` and huge page limits are fixed at creation and never taken. When nothing
/// is known, the request's resources are all that is.
pub fn overlay_request(
    known: Option<&LinuxContainerResources>,
    request: LinuxContainerResources,
) -> LinuxContainerResources {
    let Some(known) = known else { return request };
    let mut merged = known.clone();
    take_common(&mut merged, &request);
    take_text(&mut merged.cpuset_cpus, &request.cpuset_cpus);
    take_text(&mut merged.cpuset_mems, &request.cpuset_mems);
    merged
}

/// Merges the resources a hook server answered into `current`; huge page limits are never
/// taken.
pub fn merge_resources(
    current: &mut LinuxContainerResources,
    answer: &LinuxContainerResources,
    rule: ResourceMerge,
) {
    take_common(current, answer);
    let valid_score = (-1000..=1000).contains(&answer.oom_score_adj);
    match rule {
        ResourceMerge::Koordinator => {
            if valid_score {
                current.oom_score_adj = answer.oom_score_adj;
            }
            current.cpuset_cpus.clone_from(&answer.cpuset_cpus);
            current.cpuset_mems.clone_from(&answer.cpuset_mems);
        }
        ResourceMerge::Overlay => {
            if valid_score && answer.oom_score_adj != 0 {
                current.oom_score_adj = answer.oom_score_adj;
            }
            take_text(&mut current.cpuset_cpus, &answer.cpuset_cpus);
            take_text(&mut current.cpuset_mems, &answer.cpuset_mems);
        }
    }
}

/// Adds answered labels; nothing is ever removed.
pub(crate) fn merge_labels(
    current: &mut BTreeMap<String, String>,
    answer: BTreeMap<String, String>,
    ignored: &mut Vec<Ignored>,
) {
    merge_map(current, answer, |key| ignored.push(Ignored::Label { key }));
}

/// Adds answered annotations; nothing is ever removed.
pub(crate) fn merge_annotations(
    current: &mut BTreeMap<String, String>,
    answer: BTreeMap<String, String>,
    ignored: &mut Vec<Ignored>,
) {
    merge_map(current, answer, |key| ignored.push(Ignored::Annotation { key }));
}

fn merge_map(
    current: &mut BTreeMap<String, String>,
    answer: BTreeMap<String, String>,
    mut refuse: impl FnMut(String),
) {
    for (key, value) in answer {
        if current.get(&key) == Some(&value) {
            continue;
        }
        if key.starts_with(RESERVED_PREFIX) {
            refuse(key);
        } else {
            current.insert(key, value);
        }
    }
}

/// Takes an answered cgroup parent; `original` is the one of the request.
pub(crate) fn merge_cgroup_parent(
    current: &mut String,
    answer: String,
    original: &str,
    ignored: &mut Vec<Ignored>,
) {
    if answer.is_empty() || answer == *current {
        return;
    }
    match cgroup_parent_fault(&answer, original) {
        None => *current = answer,
        Some(reason) => ignored.push(ignored_cgroup_parent(&answer, reason)),
    }
}

pub(crate) fn ignored_cgroup_parent(value: &str, reason: CgroupParentFault) -> Ignored {
    Ignored::CgroupParent { value: value.chars().take(SHOWN_CHARACTERS).collect(), reason }
}

fn cgroup_parent_fault(answer: &str, original: &str) -> Option<CgroupParentFault> {
    if answer.len() > MAX_CGROUP_PARENT_BYTES {
        Some(CgroupParentFault::TooLong)
    } else if answer.contains('\0') {
        Some(CgroupParentFault::Nul)
    } else if answer.split('/').any(|component| component == "..") {
        Some(CgroupParentFault::ParentComponent)
    } else if original.starts_with('/') && !answer.starts_with('/') {
        Some(CgroupParentFault::Relative)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
