//! What the kernel and the machine offer: found by looking, never by version numbers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use koord_cgroup::driver::{CgroupDriver, DriverEvidence};
use koord_cgroup::executor::{Executor, Observer, Support};
use koord_cgroup::layout::{DetectError, DetectOptions, Layout};
use koord_cgroup::resource::Resource;
use koord_cgroup::version::CgroupVersion;
use koord_cgroup::weight::Conversion;
use koord_extension::units::Bytes;
use koord_rules::KernelView;

/// How the tree of cgroups is found.
#[derive(Debug, Clone)]
pub struct TreeOptions {
    /// Where cgroups are mounted.
    pub root: PathBuf,
    /// The kubelet's `cgroupRoot`.
    pub kubelet_root: String,
    /// The driver, if it was configured.
    pub driver: Option<CgroupDriver>,
    /// The formula between shares and weights, if it was configured.
    pub conversion: Option<Conversion>,
}

impl TreeOptions {
    /// The writer for the tree as it is now.
    ///
    /// `told` is what the runtime or a pod says of the driver.
    ///
    /// # Errors
    ///
    /// There are no cgroups at the root, or the kubelet's root is no path.
    pub fn executor(
        &self,
        told: Option<CgroupDriver>,
        observer: &Arc<impl Observer + 'static>,
    ) -> Result<Executor, DetectError> {
        let options = DetectOptions {
            root: self.root.clone(),
            kubelet_root: self.kubelet_root.clone(),
            declared: Vec::new(),
            driver: DriverEvidence { configured: self.driver, runtime: told, ..DriverEvidence::default() },
        };
        let (layout, source) = Layout::detect(&options)?;
        tracing::info!(
            root = %self.root.display(),
            version = layout.version().as_str(),
            driver = layout.driver().as_str(),
            source = source.as_str(),
            "control groups"
        );
        let observer = SharedObserver(Arc::clone(observer));
        Ok(Executor::builder(layout).conversion(self.conversion).observer(observer).build())
    }
}

/// One observer for all writers.
#[derive(Debug)]
struct SharedObserver<T>(Arc<T>);

impl<T: Observer> Observer for SharedObserver<T> {
    fn handled(&self, event: &koord_cgroup::executor::WriteEvent<'_>) {
        self.0.handled(event);
    }

    fn conflict(&self, write: &koord_cgroup::executor::Write, holder: &koord_cgroup::executor::Owner) {
        self.0.conflict(write, holder);
    }
}

/// Where the machine describes itself.
#[derive(Debug, Clone)]
pub struct MachineRoots {
    /// Usually `/proc`.
    pub proc_root: PathBuf,
    /// Usually `/sys`.
    pub sys_root: PathBuf,
    /// Usually `/dev`.
    pub dev_root: PathBuf,
    /// The program that systemd is spoken to with, usually `systemctl`.
    pub systemctl: PathBuf,
}

impl Default for MachineRoots {
    fn default() -> Self {
        Self {
            proc_root: PathBuf::from("/proc"),
            sys_root: PathBuf::from("/sys"),
            dev_root: PathBuf::from("/dev"),
            systemctl: PathBuf::from("systemctl"),
        }
    }
}

fn number(path: &Path) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What the kernel offers for the tree of `executor`.
///
/// A file counts as there once the kubelet's directory has it; until that directory exists it does not.
pub(super) fn kernel(executor: &Executor, machine: &MachineRoots) -> KernelView {
    let has = |resource: Resource| executor.supported(resource) == Support::Yes;
    let version = match executor.layout().version() {
        CgroupVersion::V1 => koord_rules::CgroupVersion::V1,
        CgroupVersion::V2 => koord_rules::CgroupVersion::V2,
    };
    let switch = machine.proc_root.join("sys/kernel/sched_group_identity_enabled");
    let identity_switch = number(&switch).map(|value| value != 0);
    let identity = has(Resource::CpuBvtWarpNs);
    KernelView {
        group_identity: identity || identity_switch.is_some(),
        group_identity_switch: identity_switch,
        cpu_idle: has(Resource::CpuIdle),
        cpu_burst: has(Resource::CpuBurst),
        // Kernels with group identity are the vendor's, whose burst may exceed the quota.
        burst_above_quota: identity,
        cpu_uclamp: has(Resource::CpuUclampMin),
        smt_active: number(&machine.sys_root.join("devices/system/cpu/smt/active")) == Some(1),
        memory_protection: has(Resource::MemoryMin) && has(Resource::MemoryLow),
        memory_high: has(Resource::MemoryHigh),
        memory_reclaim: has(Resource::MemoryReclaim),
        memory_oom_group: has(Resource::MemoryOomGroup),
        memory_watermarks: has(Resource::MemoryWmarkRatio),
        memory_priority: has(Resource::MemoryPriority),
        page_cache_limit: has(Resource::MemoryPageCacheEnable),
        page_size: Bytes(executor.layout().page_size()),
        blkio_throttle: has(Resource::BlkioReadBps),
        blkio_cost: has(Resource::BlkioCostWeight),
        io_max: has(Resource::IoMax),
        io_weight: has(Resource::IoWeight),
        io_latency: has(Resource::IoLatency),
        io_cost: has(Resource::BlkioCostQos),
        resctrl: machine.sys_root.join("fs/resctrl/info").is_dir(),
        ..KernelView::bare(version)
    }
}
