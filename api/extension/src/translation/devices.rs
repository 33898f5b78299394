//! Devices and other names that are not CPU and memory.

use super::Requirements;
use crate::keys::resource;
use crate::quantity::{Format, Quantity, ResourceList};

const GPU_RESOURCES: [&str; 5] = [
    resource::GPU,
    resource::GPU_CORE,
    resource::GPU_MEMORY,
    resource::GPU_MEMORY_RATIO,
    resource::GPU_SHARED,
];

/// Brings the GPU request of a container to its full form: percent of cores, percent of memory, number of
/// GPUs to share. Gives whether something changed.
pub fn normalize_gpus(resources: &mut Requirements) -> bool {
    let asks = GPU_RESOURCES
        .iter()
        .any(|name| resources.requests.contains_key(*name) || resources.limits.contains_key(*name));
    if !asks {
        return false;
    }
    let before = resources.clone();
    let mut write = |name: &str, quantity: Quantity| {
        resources.requests.insert(name.to_owned(), quantity);
        resources.limits.insert(name.to_owned(), quantity);
    };
    if let Some(gpu) = before.requests.get(resource::GPU).copied() {
        write(resource::GPU_CORE, gpu);
        write(resource::GPU_MEMORY_RATIO, gpu);
        resources.requests.remove(resource::GPU);
        resources.limits.remove(resource::GPU);
    }
    if !resources.requests.contains_key(resource::GPU_SHARED) {
        let requested = |name| resources.requests.get(name).copied();
        let percent = requested(resource::GPU_MEMORY_RATIO).or_else(|| requested(resource::GPU_CORE));
        let shared = match percent.map(Quantity::value) {
            Some(percent) if percent > 100 && percent % 100 == 0 => percent / 100,
            _ => 1,
        };
        let shared = Quantity::from_value(shared, Format::DecimalSi);
        resources.requests.insert(resource::GPU_SHARED.to_owned(), shared);
        resources.limits.insert(resource::GPU_SHARED.to_owned(), shared);
    }
    *resources != before
}

/// A resource name to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// The name.
    pub from: String,
    /// Its replacement; none erases it.
    pub to: Option<String>,
}

/// Reads the text of the annotation that replaces resource names, `a:b,c:d,e:`. Items that are not two
/// parts, or have no left one, are passed over.
pub fn parse_replacements(text: &str) -> Vec<Replacement> {
    text.split(',')
        .filter_map(|item| {
            let (from, to) = item.split_once(':')?;
            let (from, to) = (from.trim(), to.trim());
            (!from.is_empty() && !to.contains(':'))
                .then(|| Replacement { from: from.to_owned(), to: (!to.is_empty()).then(|| to.to_owned()) })
        })
        .collect()
}

/// Replaces names in one list, in order. Gives whether something changed.
pub fn replace_resources(replacements: &[Replacement], list: &mut ResourceList) -> bool {
    let mut changed = false;
    for replacement in replacements {
        let Some(quantity) = list.remove(&replacement.from) else { continue };
        changed = true;
        if let Some(to) = &replacement.to {
            list.insert(to.clone(), quantity);
        }
    }
    changed
}
