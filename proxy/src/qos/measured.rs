//! Where pods and containers are, for whoever measures them.

use koord_cgroup::layout::Layout;
use koord_cgroup::path::CgroupPath;
use koord_cgroup::system_file::SystemRoots;
use koord_intercept::record::{ContainerRecord, PodRecord};

use super::Qos;

impl Qos {
    /// The tree of cgroups as it is known now; it may be found anew when the kubelet or the runtime comes.
    pub(crate) fn layout(&self) -> Layout {
        self.executor().layout().clone()
    }

    /// Whether the tree is still that one.
    pub(crate) fn has_layout(&self, layout: &Layout) -> bool {
        self.executor().layout() == layout
    }

    /// Where the machine describes itself.
    pub(crate) fn system_roots(&self) -> SystemRoots {
        let machine = &self.fixed.machine;
        SystemRoots { proc_root: machine.proc_root.clone(), sys_root: machine.sys_root.clone() }
    }

    /// The cgroup of a pod, if it is there.
    pub(crate) fn present_pod(&self, pod: &PodRecord) -> Option<CgroupPath> {
        self.pod_path(pod).filter(|path| self.executor().exists(path))
    }

    /// The cgroup of a container, if it is there.
    pub(crate) fn present_container(
        &self,
        id: &str,
        container: &ContainerRecord,
        pod: &PodRecord,
    ) -> Option<CgroupPath> {
        self.container_path(id, container, pod).filter(|path| self.executor().exists(path))
    }
}
