//! Usage of GPUs.

use std::sync::Arc;
use std::time::Duration;

use koord_crd::device::{DeviceInfo, DeviceType};
use koord_extension::duration::GoDuration;
use koord_extension::keys::resource;
use koord_extension::quantity::{Format, Quantity, ResourceList};
use koord_extension::units::Bytes;
use koord_prediction::pod::Pod;
use koord_usage::kind::Kind;
use koord_usage::object::{GpuUser, Object};

use super::node::all_of;
use super::{Reader, truncated};

/// What is known of a GPU besides its usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFacts {
    /// Minor number.
    pub minor: u32,
    /// UUID.
    pub uuid: Arc<str>,
    /// Memory in total.
    pub memory: Bytes,
    /// Whether it works, as the Device object says; false where nobody knows. Koordinator always reports
    /// false.
    pub healthy: bool,
}

impl Reader<'_> {
    pub(super) fn node_gpus(&self) -> Vec<DeviceInfo> {
        self.gpus(&GpuUser::Node, Kind::NodeGpuCoreUsage, Kind::NodeGpuMemoryUsage, || {
            "nodeMetric.nodeUsage".to_owned()
        })
    }

    pub(super) fn pod_gpus(&self, uid: &Arc<str>, pod: &Pod) -> Vec<DeviceInfo> {
        if self.view.gpus.is_empty() {
            return Vec::new();
        }
        self.gpus(&GpuUser::Pod(uid.clone()), Kind::PodGpuCoreUsage, Kind::PodGpuMemoryUsage, || {
            format!("podsMetric[{}].podUsage", pod.key())
        })
    }

    /// An entry for each GPU with samples.
    fn gpus(&self, user: &GpuUser, core: Kind, memory: Kind, usage: impl Fn() -> String) -> Vec<DeviceInfo> {
        let window = self.aggregate();
        let entry = |gpu: &GpuFacts| {
            let object = Object::Gpu { user: user.clone(), minor: gpu.minor, uuid: gpu.uuid.clone() };
            let average = |kind, name: &str| {
                let field = || format!("{}.devices[{}].resources.{name}", usage(), gpu.minor);
                self.windows.summary(&object, kind, window, field).map(|found| found.average)
            };
            let core = average(core, resource::GPU_CORE)?;
            let memory = average(memory, resource::GPU_MEMORY)?;
            Some(device(gpu, core, memory))
        };
        self.view.gpus.iter().filter_map(entry).collect()
    }

    /// Average and percentiles of a GPU of the node; none unless both of its figures are known.
    pub(super) fn gpu_percentiles(
        &self,
        list: &str,
        duration: Duration,
        gpu: &GpuFacts,
    ) -> Option<Vec<DeviceInfo>> {
        let object = Object::Gpu { user: GpuUser::Node, minor: gpu.minor, uuid: gpu.uuid.clone() };
        let figures = |kind, name: &str| {
            let field = || {
                format!(
                    "nodeMetric.{list}[{}].usage.*.devices[{}].resources.{name}",
                    GoDuration(duration),
                    gpu.minor
                )
            };
            self.windows.window(&object, kind, duration, field).map(|window| all_of(&window))
        };
        let core = figures(Kind::NodeGpuCoreUsage, resource::GPU_CORE)?;
        let memory = figures(Kind::NodeGpuMemoryUsage, resource::GPU_MEMORY)?;
        Some(core.into_iter().zip(memory).map(|(core, memory)| device(gpu, core, memory)).collect())
    }
}

fn device(gpu: &GpuFacts, core: f64, memory: f64) -> DeviceInfo {
    DeviceInfo {
        device_type: DeviceType::Gpu,
        id: gpu.uuid.to_string(),
        // The kernel numbers devices far below 2^31.
        minor: i32::try_from(gpu.minor).ok(),
        health: gpu.healthy,
        resources: resources(core, memory, gpu.memory),
        ..DeviceInfo::default()
    }
}

pub(super) fn resources(core: f64, memory: f64, total: Bytes) -> ResourceList {
    #[allow(clippy::cast_precision_loss, reason = "no GPU has 2^53 bytes")]
    let total = total.get() as f64;
    let ratio = if total > 0.0 { 100.0 * memory / total } else { 0.0 };
    ResourceList::from([
        (resource::GPU_CORE.to_owned(), Quantity::from_value(truncated(core), Format::DecimalSi)),
        (resource::GPU_MEMORY.to_owned(), Quantity::from_value(truncated(memory), Format::BinarySi)),
        (resource::GPU_MEMORY_RATIO.to_owned(), Quantity::from_value(truncated(ratio), Format::DecimalSi)),
    ])
}
