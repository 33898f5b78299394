//! What is to be measured, made of pods.

use std::path::Path;
use std::sync::Arc;

use koord_cgroup::driver::RuntimeName;
use koord_cgroup::layout::{Controller, Layout};
use koord_cgroup::path::{CgroupPath, ContainerId, group_uid};
use koord_crd::node_slo::{CgroupBase, HostApplication};
use koord_extension::keys::resource;
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::units::MilliCpu;
use koord_prediction::pod::{ContainerStatus, Pod};
use koord_usage::inventory::{ContainerEntry, HostApplicationEntry, Inventory, PodEntry};

use super::PodSet;

/// Whether a control group is there; tells candidates apart.
pub trait Groups {
    /// Whether there is a directory of that path.
    fn exists(&self, path: &CgroupPath) -> bool;
}

/// The groups of a machine.
#[derive(Debug)]
pub struct MountedGroups<'a>(pub &'a Layout);

impl Groups for MountedGroups<'_> {
    fn exists(&self, path: &CgroupPath) -> bool {
        let folder: &Path = &self.0.directory(Controller::Cpu);
        folder.join(path.as_str()).is_dir()
    }
}

/// What is left out, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The pod or host application.
    pub subject: String,
    /// Why.
    pub problem: String,
}

/// Batch CPU that a pod's containers and sidecars request.
pub fn batch_cpu_request(pod: &Pod) -> MilliCpu {
    let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
    pod.spec
        .containers
        .iter()
        .chain(sidecars)
        .filter_map(|container| container.resources.requests.get(resource::BATCH_CPU))
        // Batch CPU counts thousandths in whole units.
        .map(|quantity| MilliCpu(quantity.value()))
        .sum()
}

fn container(
    status: &ContainerStatus,
    is_init: bool,
    group: &CgroupPath,
    runtime: RuntimeName,
    groups: &impl Groups,
) -> Option<Result<ContainerEntry, String>> {
    if !status.state.running {
        return None;
    }
    let id = status.bare_id().filter(|id| !id.is_empty())?;
    let runtime = status.container_id.parse::<ContainerId>().map_or(runtime, |id| id.runtime);
    Some(match group.container_candidates(runtime, id) {
        Ok(candidates) => {
            let present =
                candidates.iter().find(|candidate| candidates.len() > 1 && groups.exists(candidate));
            match present.or_else(|| candidates.first()) {
                Some(cgroup) => Ok(ContainerEntry {
                    id: Arc::from(id),
                    name: Arc::from(status.name.as_str()),
                    cgroup: cgroup.clone(),
                    is_init,
                }),
                None => Err(format!("container {}: no name for its group", status.name)),
            }
        }
        Err(error) => Err(format!("container {}: {error}", status.name)),
    })
}

/// One pod. `previous` is shared if it is the same.
fn entry(
    pod: &Pod,
    layout: &Layout,
    runtime: RuntimeName,
    groups: &impl Groups,
    refused: &mut Vec<Refused>,
) -> Option<PodEntry> {
    let mut refuse = |problem: String| refused.push(Refused { subject: pod.key().to_string(), problem });
    let kube_qos: KubeQos = pod.kube_qos();
    let uid = group_uid(&pod.metadata.uid, &pod.metadata.annotations);
    let cgroup = match layout.pod(kube_qos, uid) {
        Ok(cgroup) => cgroup,
        Err(error) => {
            refuse(error.to_string());
            return None;
        }
    };
    let init = pod.status.init_container_statuses.iter().map(|status| (status, true));
    let main = pod.status.container_statuses.iter().map(|status| (status, false));
    let mut containers = Vec::new();
    for (status, is_init) in main.chain(init) {
        match container(status, is_init, &cgroup, runtime, groups) {
            Some(Ok(container)) => containers.push(container),
            Some(Err(problem)) => refuse(problem),
            None => {}
        }
    }
    Some(PodEntry {
        uid: Arc::from(pod.metadata.uid.as_str()),
        namespace: Arc::from(pod.metadata.namespace.as_str()),
        name: Arc::from(pod.metadata.name.as_str()),
        qos: QosClass::raw(&pod.metadata.labels),
        kube_qos,
        cgroup,
        batch_cpu_request: batch_cpu_request(pod),
        containers,
    })
}

/// The pods that have not ended, with those of their containers that run. Entries that did not change are those of
/// `previous`.
pub fn pods(
    set: &PodSet,
    previous: &[Arc<PodEntry>],
    layout: &Layout,
    runtime: RuntimeName,
    groups: &impl Groups,
) -> (Vec<Arc<PodEntry>>, Vec<Refused>) {
    let mut refused = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let known: std::collections::HashMap<&str, &Arc<PodEntry>> =
        previous.iter().map(|entry| (&*entry.uid, entry)).collect();
    let pods = set
        .live()
        .filter(|pod| seen.insert(pod.metadata.uid.as_str()))
        .filter_map(|pod| entry(pod, layout, runtime, groups, &mut refused))
        .map(|entry| match known.get(&*entry.uid) {
            Some(same) if ***same == entry => Arc::clone(same),
            _ => Arc::new(entry),
        })
        .collect();
    (pods, refused)
}

/// The groups of host applications. Those that the layout does not admit are refused.
pub fn host_applications(
    applications: &[HostApplication],
    layout: &Layout,
) -> (Vec<Arc<HostApplicationEntry>>, Vec<Refused>) {
    let mut entries: Vec<Arc<HostApplicationEntry>> = Vec::new();
    let mut refused = Vec::new();
    for application in applications {
        let mut refuse = |problem: String| {
            refused.push(Refused { subject: format!("host application {}", application.name), problem })
        };
        if entries.iter().any(|entry| *entry.name == *application.name) {
            refuse("its name is there already".to_owned());
            continue;
        }
        let directory = application.directory();
        let base = match &directory.base {
            CgroupBase::CgroupRoot | CgroupBase::Unset => String::new(),
            CgroupBase::Kubepods => layout.kubepods().as_str().to_owned(),
            CgroupBase::KubepodsBurstable => layout.qos_dir(KubeQos::Burstable).as_str().to_owned(),
            CgroupBase::KubepodsBesteffort => layout.qos_dir(KubeQos::BestEffort).as_str().to_owned(),
            CgroupBase::Other(word) => {
                refuse(format!("base {word:?} is not known"));
                continue;
            }
        };
        let path = [base.as_str(), directory.path.as_str()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>();
        // Reading harms nobody, so what the policy names is open to it.
        let found = layout
            .clone()
            .with_declared(&path.join("/"))
            .and_then(|layout| CgroupPath::new(&path.join("/"), &layout));
        match found {
            Ok(cgroup) => entries
                .push(Arc::new(HostApplicationEntry { name: Arc::from(application.name.as_str()), cgroup })),
            Err(error) => refuse(error.to_string()),
        }
    }
    (entries, refused)
}

/// What is to be measured.
pub fn inventory(pods: Vec<Arc<PodEntry>>, host_applications: Vec<Arc<HostApplicationEntry>>) -> Inventory {
    Inventory { pods, host_applications }
}

#[cfg(test)]
mod tests;
