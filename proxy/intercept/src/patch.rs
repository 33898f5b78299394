//! Turns merged values into edits of the request.

use std::collections::BTreeMap;

use koord_cri::edit::{Edit, Patch};
use koord_cri::view::number;
use koord_hook::v1alpha1::LinuxContainerResources;

/// Writes every field of `resources` but the huge page limits, which only the request sets.
pub(crate) fn set_resources(patch: &mut Patch, resources: &LinuxContainerResources) {
    for (field, value) in numbers(resources) {
        patch.set(field, Edit::Varint(value.cast_unsigned()));
    }
    for (field, value) in texts(resources) {
        patch.set(field, Edit::Bytes(value.as_bytes().to_vec()));
    }
    set_map(patch, number::UNIFIED, resources.unified.clone());
}

/// Writes the fields in which `after` differs from `before`.
pub(crate) fn set_changed_resources(
    patch: &mut Patch,
    before: Option<&LinuxContainerResources>,
    after: &LinuxContainerResources,
) {
    let nothing = LinuxContainerResources::default();
    let before = before.unwrap_or(&nothing);
    for ((field, value), (_, earlier)) in numbers(after).into_iter().zip(numbers(before)) {
        if value != earlier {
            patch.set(field, Edit::Varint(value.cast_unsigned()));
        }
    }
    for ((field, value), (_, earlier)) in texts(after).into_iter().zip(texts(before)) {
        if value != earlier {
            patch.set(field, Edit::Bytes(value.as_bytes().to_vec()));
        }
    }
    set_map(patch, number::UNIFIED, changed_entries(&before.unified, &after.unified));
}

/// The entries of `after` that `before` has not, or has with another value.
pub(crate) fn changed_entries(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Adds and changes entries of a map field.
pub(crate) fn set_map(patch: &mut Patch, field: u32, entries: BTreeMap<String, String>) {
    if !entries.is_empty() {
        patch.set(field, Edit::Map(entries));
    }
}

/// Writes a text field.
pub(crate) fn set_text(patch: &mut Patch, field: u32, value: &str) {
    patch.set(field, Edit::Bytes(value.as_bytes().to_vec()));
}

fn numbers(resources: &LinuxContainerResources) -> [(u32, i64); 6] {
    [
        (number::CPU_PERIOD, resources.cpu_period),
        (number::CPU_QUOTA, resources.cpu_quota),
        (number::CPU_SHARES, resources.cpu_shares),
        (number::MEMORY_LIMIT, resources.memory_limit_in_bytes),
        (number::OOM_SCORE_ADJ, resources.oom_score_adj),
        (number::MEMORY_SWAP_LIMIT, resources.memory_swap_limit_in_bytes),
    ]
}

fn texts(resources: &LinuxContainerResources) -> [(u32, &str); 2] {
    [(number::CPUSET_CPUS, &resources.cpuset_cpus), (number::CPUSET_MEMS, &resources.cpuset_mems)]
}
