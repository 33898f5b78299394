//! What the merged records make of the request.

use std::collections::BTreeMap;

use koord_cri::edit::{Edit, Patch};
use koord_cri::view::number;

use super::{ContainerWork, PodWork};
use crate::patch::{changed_entries, set_changed_resources, set_map, set_resources, set_text};

/// Edits of a `PodSandboxConfig`.
pub(super) fn pod_patch(config: &mut Patch, pod: &PodWork) {
    if !pod.answered {
        return;
    }
    let record = &pod.record;
    set_map(config, number::POD_LABELS, record.labels.clone());
    set_map(config, number::POD_ANNOTATIONS, record.annotations.clone());
    let linux = config.message(number::POD_LINUX);
    set_text(linux, number::POD_LINUX_CGROUP_PARENT, &record.cgroup_parent);
    if let (true, Some(resources)) = (pod.resources_applied, &record.resources) {
        set_resources(linux.message(number::POD_LINUX_RESOURCES), resources);
    }
}

/// Edits of a `ContainerConfig`.
pub(super) fn container_patch(config: &mut Patch, container: &ContainerWork) {
    let record = &container.record;
    // The record was read from the request, so what has not changed since is there as it is.
    let before = &container.before;
    set_map(config, number::CONTAINER_ANNOTATIONS, changed_entries(&before.annotations, &record.annotations));
    if record.envs != before.envs {
        config.set(number::CONTAINER_ENVS, Edit::KeyValues((*record.envs).clone()));
    }
    for mount in &container.mounts {
        config.present(number::CONTAINER_MOUNTS, mount.clone());
    }
    for device in &container.devices {
        config.present(number::CONTAINER_DEVICES, device.clone());
    }
    if let Some(resources) = &record.resources {
        let linux = config.message(number::CONTAINER_LINUX);
        let linux_resources = linux.message(number::CONTAINER_LINUX_RESOURCES);
        set_changed_resources(linux_resources, before.resources.as_ref(), resources);
    }
}

/// Edits of an `UpdateContainerResourcesRequest`.
pub(super) fn update_patch(patch: &mut Patch, container: &ContainerWork) {
    let (before, after) = (&container.before, &container.record);
    let annotations: BTreeMap<String, String> = if container.full_scope {
        (*after.annotations).clone()
    } else {
        changed_entries(&before.annotations, &after.annotations)
    };
    set_map(patch, number::UPDATE_ANNOTATIONS, annotations);
    let Some(resources) = &after.resources else { return };
    let linux = patch.message(number::UPDATE_LINUX);
    if container.full_scope {
        set_resources(linux, resources);
    } else {
        set_changed_resources(linux, before.resources.as_ref(), resources);
    }
}
