//! Empty control groups of pods, in a name of their own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::layout::{Controller, Layout};
use koord_cgroup::version::CgroupVersion;
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::units::MilliCpu;
use koord_usage::inventory::{ContainerEntry, Inventory, PodEntry};

/// Containers of a pod.
const CONTAINERS: [&str; 2] = ["main", "side"];

/// The layout of groups below `name`.
pub(super) fn layout(name: &str) -> anyhow::Result<Layout> {
    let root = Path::new("/sys/fs/cgroup");
    let version = CgroupVersion::detect(root)?;
    Ok(Layout::new(root, version, CgroupDriver::Cgroupfs, name)?)
}

/// Pods of classes in turn, best-effort every third, with two containers each.
pub(super) fn inventory(layout: &Layout, pods: usize) -> anyhow::Result<Inventory> {
    let mut inventory = Inventory::default();
    for number in 0..pods {
        let qos = [KubeQos::Burstable, KubeQos::Guaranteed, KubeQos::BestEffort][number % 3];
        let uid = format!("6f1c2d7e-0000-4000-8000-{number:012}");
        let cgroup = layout.pod(qos, &uid)?;
        let container = |name: &str| -> anyhow::Result<ContainerEntry> {
            let id = format!("{number:032}{name:0>32}");
            let cgroup = cgroup.child(&id)?;
            Ok(ContainerEntry { id: Arc::from(id), name: Arc::from(name), cgroup, is_init: false })
        };
        inventory.pods.push(Arc::new(PodEntry {
            uid: Arc::from(uid),
            namespace: Arc::from("bench"),
            name: Arc::from(format!("pod-{number}")),
            qos: (qos == KubeQos::BestEffort).then_some(QosClass::Be),
            kube_qos: qos,
            batch_cpu_request: MilliCpu(500),
            containers: CONTAINERS.into_iter().map(container).collect::<Result<_, _>>()?,
            cgroup,
        }));
    }
    Ok(inventory)
}

/// Groups of the kernel, removed when dropped.
#[derive(Debug)]
pub(super) struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes the groups of so many pods.
    pub(super) fn make(name: &str, pods: usize) -> anyhow::Result<Groups> {
        let layout = layout(name)?;
        let inventory = inventory(&layout, pods)?;
        let mut groups = Groups(Vec::new());
        for controller in [Controller::Cpu, Controller::Cpuacct, Controller::Memory, Controller::Cpuset] {
            let root = layout.directory(controller);
            for pod in &inventory.pods {
                for container in &pod.containers {
                    let mut directory = root.clone();
                    for level in container.cgroup.as_str().split('/') {
                        if layout.version() == CgroupVersion::V2 {
                            // Handed down already, or refused: then the files below tell.
                            let _ =
                                fs::write(directory.join("cgroup.subtree_control"), "+cpu +memory +cpuset");
                        }
                        directory.push(level);
                        match fs::create_dir(&directory) {
                            Ok(()) => groups.0.push(directory.clone()),
                            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                            Err(error) => return Err(error).context(directory.display().to_string()),
                        }
                    }
                }
            }
        }
        Ok(groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // Children of a directory were made after it. One that stays is empty and harms nothing.
        for directory in self.0.drain(..).rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}
