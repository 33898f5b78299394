//! Trees of files that look like `/proc`, `/sys` and control groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::layout::{Controller, Layout};
use koord_cgroup::path::CgroupPath;
use koord_cgroup::system_file::SystemRoots;
use koord_cgroup::version::CgroupVersion;
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::units::MilliCpu;

use super::text::{GroupMemory, Throttling};
use crate::inventory::{ContainerEntry, HostApplicationEntry, Inventory, PodEntry};

/// Both versions: what holds for one must hold for the other.
pub(crate) const VERSIONS: [CgroupVersion; 2] = [CgroupVersion::V1, CgroupVersion::V2];

/// A machine in a folder.
#[derive(Debug)]
pub(crate) struct FakeNode {
    folder: tempfile::TempDir,
    layout: Layout,
}

impl FakeNode {
    /// One with a CPU in one NUMA node.
    pub(crate) fn new(version: CgroupVersion) -> FakeNode {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(folder.path().join("cgroup"), version, CgroupDriver::Cgroupfs, "/")
            .expect("a layout")
            .with_declared("apps")
            .expect("a directory")
            .with_page_size(4096);
        let node = FakeNode { folder, layout };
        node.cpus(&[0]);
        node
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn version(&self) -> CgroupVersion {
        self.layout.version()
    }

    pub(crate) fn roots(&self) -> SystemRoots {
        SystemRoots { proc_root: self.folder.path().join("proc"), sys_root: self.folder.path().join("sys") }
    }

    /// The NUMA node of each CPU.
    pub(crate) fn cpus(&self, nodes: &[u32]) {
        let _ = fs::remove_dir_all(self.folder.path().join("sys/devices/system/node"));
        self.set("sys/devices/system/cpu/online", &format!("0-{}\n", nodes.len() - 1));
        for (cpu, node) in nodes.iter().enumerate() {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            self.set(&format!("{topology}/physical_package_id"), "0\n");
            self.set(&format!("{topology}/core_cpus_list"), &format!("{cpu}\n"));
            let list = format!("sys/devices/system/node/node{node}/cpulist");
            let path = self.folder.path().join(&list);
            let before =
                fs::read_to_string(&path).map(|text| format!("{},", text.trim())).unwrap_or_default();
            self.set(&list, &format!("{before}{cpu}\n"));
        }
    }

    /// Writes a file below the folder.
    pub(crate) fn set(&self, path: &str, text: &str) {
        write(&self.folder.path().join(path), text);
    }

    /// Ticks of user time of all CPUs together, then of each.
    pub(crate) fn stat(&self, all: u64, each: &[u64]) {
        let mut text = format!("cpu {all} 0 0 1000 0 0 0 0 0 0\n");
        for (cpu, ticks) in each.iter().enumerate() {
            text += &format!("cpu{cpu} {ticks} 0 0 500 0 0 0 0 0 0\n");
        }
        self.set("proc/stat", &(text + "intr 5 0\nctxt 7\n"));
    }

    /// `/proc/meminfo` in kilobytes.
    pub(crate) fn meminfo(&self, total: u64, free: u64, available: u64) {
        let text = format!(
            "MemTotal: {total} kB\nMemFree: {free} kB\nMemAvailable: {available} kB\nBuffers: 1 kB\n"
        );
        self.set("proc/meminfo", &text);
    }

    pub(crate) fn directory(&self, controller: Controller, group: &str) -> PathBuf {
        self.layout.directory(controller).join(group)
    }

    /// Writes a file of a group.
    pub(crate) fn group(&self, controller: Controller, group: &str, file: &str, text: &str) {
        write(&self.directory(controller, group).join(file), text);
    }

    /// CPU time of a group in nanoseconds and its throttling.
    pub(crate) fn cpu(&self, group: &str, nanoseconds: u64, throttling: Throttling) {
        let Throttling { periods, throttled } = throttling;
        let counts = format!("nr_periods {periods}\nnr_throttled {throttled}\n");
        match self.version() {
            CgroupVersion::V1 => {
                self.group(Controller::Cpuacct, group, "cpuacct.usage", &format!("{nanoseconds}\n"));
                self.group(Controller::Cpu, group, "cpu.stat", &format!("{counts}throttled_time 9\n"));
            }
            CgroupVersion::V2 => {
                let usage = nanoseconds / 1000;
                let text =
                    format!("usage_usec {usage}\nuser_usec 1\nsystem_usec 1\n{counts}throttled_usec 9\n");
                self.group(Controller::Cpu, group, "cpu.stat", &text);
            }
        }
    }

    pub(crate) fn memory(&self, group: &str, memory: GroupMemory) {
        let text = memory_text(self.version(), memory);
        self.group(Controller::Memory, group, "memory.stat", &text);
    }

    /// Removes a group as the kernel does.
    pub(crate) fn remove(&self, group: &str) {
        for controller in Controller::ALL {
            let _ = fs::remove_dir_all(self.directory(controller, group));
        }
    }

    /// A pod of class `qos` with running containers, whose groups have no files yet.
    pub(crate) fn pod(&self, qos: KubeQos, uid: &str, containers: &[&str]) -> PodEntry {
        let cgroup = self.layout.pod(qos, uid).expect("a path");
        let containers = containers.iter().map(|id| ContainerEntry {
            id: Arc::from(*id),
            name: Arc::from(*id),
            cgroup: cgroup.child(id).expect("a path"),
            is_init: false,
        });
        PodEntry {
            uid: Arc::from(uid),
            namespace: Arc::from("default"),
            name: Arc::from(uid),
            qos: (qos == KubeQos::BestEffort).then_some(QosClass::Be),
            kube_qos: qos,
            batch_cpu_request: MilliCpu::ZERO,
            containers: containers.collect(),
            cgroup,
        }
    }

    /// A host application in a group below `apps`.
    pub(crate) fn application(&self, name: &str) -> HostApplicationEntry {
        let cgroup = CgroupPath::new(&format!("apps/{name}"), &self.layout).expect("a path");
        HostApplicationEntry { name: Arc::from(name), cgroup }
    }
}

/// The inventory of some pods.
pub(crate) fn inventory(pods: impl IntoIterator<Item = PodEntry>) -> Inventory {
    Inventory { pods: pods.into_iter().map(Arc::new).collect(), host_applications: Vec::new() }
}

pub(crate) fn memory_text(version: CgroupVersion, memory: GroupMemory) -> String {
    let GroupMemory { inactive_anon, active_anon, inactive_file, active_file, unevictable } = memory;
    match version {
        CgroupVersion::V1 => format!(
            "cache 1\nrss 1\ninactive_anon 1\nhierarchical_memory_limit 9\ntotal_cache 5\ntotal_rss 6\n\
             total_inactive_anon {inactive_anon}\ntotal_active_anon {active_anon}\n\
             total_inactive_file {inactive_file}\ntotal_active_file {active_file}\ntotal_unevictable {unevictable}\n"
        ),
        CgroupVersion::V2 => format!(
            "anon 6\nfile 5\nkernel 1\nfile_mapped 3\ninactive_anon {inactive_anon}\nactive_anon {active_anon}\n\
             inactive_file {inactive_file}\nactive_file {active_file}\nunevictable {unevictable}\nslab 4\n"
        ),
    }
}

/// The same file with another text where it exists, as a file of the kernel is.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
    fs::write(path, text).expect("written");
}
