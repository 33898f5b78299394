//! GPUEnvInject and RDMADeviceInject: devices that the scheduler gave to a pod reach its containers.

use koord_extension::gates::Gate;
use koord_extension::keys::{label, resource};

use crate::facts::{PodFacts, amount, bus_ids, known};
use crate::field::Field;
use crate::plan::{BindMount, DeviceNode, Plan, Rule, Value};
use crate::view::{NodeView, PodView};

/// Where HAMi-core's library lies if nothing else is said.
const HAMI_CORE_LIBRARY: &str = "/usr/local/vgpu/libvgpu.so";
/// Where HAMi-core's containers find each other.
const HAMI_CORE_LOCK: &str = "/tmp/vgpulock";
/// Nodes that every program with a GPU of NVIDIA opens, as far as the driver made them.
const NVIDIA_COMMON: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];
/// Node of the RDMA connection manager.
const RDMA_MANAGER: &str = "/dev/infiniband/rdma_cm";

fn env(plan: &mut Plan, name: &str, value: String, reason: &str) {
    plan.wish(Rule::GpuEnvInject, Field::Env(name.to_owned()), Value::Text(value), || reason.to_owned());
}

fn device(plan: &mut Plan, rule: Rule, node: &DeviceNode, reason: impl FnOnce() -> String) {
    plan.wish(rule, Field::Device(node.path.clone()), Value::Device(node.clone()), reason);
}

/// GPUs of a container.
pub(crate) fn gpu(node: &NodeView, pod: &PodView, facts: &PodFacts, container: &str, plan: &mut Plan) {
    const RULE: Rule = Rule::GpuEnvInject;
    if !node.gates.enabled(Gate::GpuEnvInject) {
        return;
    }
    let devices = match &facts.devices {
        Ok(Some(devices)) => devices,
        Ok(None) => return,
        Err(message) => return plan.refusal(RULE, &**message),
    };
    let gpus = devices.of_type("gpu");
    let Some(first) = gpus.first() else { return };
    if !facts.wants_gpu(container) {
        return;
    }
    let minors = gpus.iter().map(|gpu| gpu.minor.to_string()).collect::<Vec<_>>().join(",");
    env(plan, "NVIDIA_VISIBLE_DEVICES", minors.clone(), "the GPUs that the scheduler gave to the pod");

    let isolated =
        pod.labels.get(label::GPU_ISOLATION_PROVIDER).is_some_and(|provider| provider == "HAMi-core");
    if isolated {
        let Some(ratio) = amount(first, resource::GPU_MEMORY_RATIO) else {
            return plan
                .refusal(RULE, "the scheduler's answer has no gpu-memory-ratio, which HAMi-core needs");
        };
        if ratio < 100 {
            let Some(memory) = amount(first, resource::GPU_MEMORY) else {
                return plan.refusal(RULE, "the scheduler's answer has no gpu-memory, which HAMi-core needs");
            };
            hami_core(node, pod, container, (memory, amount(first, resource::GPU_CORE)), plan);
        }
    }

    // The runtime has to know the devices: what is opened behind its back is lost when device rules are rebuilt.
    let own: Option<Vec<&DeviceNode>> =
        gpus.iter().map(|gpu| node.devices.nodes.get(&format!("/dev/nvidia{}", gpu.minor))).collect();
    for found in own.into_iter().flatten() {
        device(plan, RULE, found, || format!("GPU of the pod ({minors})"));
    }
    let all_there =
        gpus.iter().all(|gpu| node.devices.nodes.contains_key(&format!("/dev/nvidia{}", gpu.minor)));
    for found in NVIDIA_COMMON.iter().filter(|_| all_there).filter_map(|path| node.devices.nodes.get(*path)) {
        device(plan, RULE, found, || "every program with a GPU opens it".to_owned());
    }
}

fn hami_core(
    node: &NodeView,
    pod: &PodView,
    container: &str,
    (memory, core): (i64, Option<i64>),
    plan: &mut Plan,
) {
    const RULE: Rule = Rule::GpuEnvInject;
    let library = node.options.hami_core_library.as_deref().unwrap_or(HAMI_CORE_LIBRARY);
    let reason = "HAMi-core holds the container to its part of the GPU";
    env(plan, "CUDA_DEVICE_MEMORY_LIMIT", memory.to_string(), reason);
    if let Some(core) = core {
        env(plan, "CUDA_DEVICE_SM_LIMIT", core.to_string(), reason);
    }
    env(plan, "LD_PRELOAD", library.to_owned(), reason);
    let mut mount = |host: String, inside: &str, create_directory: Option<u32>| {
        let value = BindMount {
            host_path: host,
            container_path: inside.to_owned(),
            recursive: true,
            create_directory,
        };
        plan.wish(RULE, Field::Mount(inside.to_owned()), Value::Mount(value), || reason.to_owned());
    };
    mount(library.to_owned(), library, None);
    mount(HAMI_CORE_LOCK.to_owned(), HAMI_CORE_LOCK, None);
    if node.gates.enabled(Gate::HamiCoreVgpuMonitor) {
        let directory = library.rsplit_once('/').map_or("/", |(directory, _)| directory);
        let name = format!("{}_{container}", pod.uid);
        mount(format!("{directory}/containers/{name}"), directory, Some(0o777));
        env(plan, "CUDA_DEVICE_MEMORY_SHARED_CACHE", format!("{directory}/{name}.cache"), reason);
    }
}

/// RDMA devices of a container.
pub(crate) fn rdma(node: &NodeView, facts: &PodFacts, plan: &mut Plan) {
    const RULE: Rule = Rule::RdmaDeviceInject;
    if !node.gates.enabled(Gate::RdmaDeviceInject) {
        return;
    }
    let devices = match &facts.devices {
        Ok(Some(devices)) => devices,
        Ok(None) => return,
        Err(message) => return plan.refusal(RULE, &**message),
    };
    let adapters = devices.of_type("rdma");
    if adapters.is_empty() {
        return;
    }
    let mut nodes = Vec::new();
    let mut missing = Vec::new();
    match node.devices.nodes.get(RDMA_MANAGER) {
        Some(found) => nodes.push((found, "the RDMA connection manager".to_owned())),
        None => missing.push(format!("the node has no {RDMA_MANAGER}")),
    }
    for bus_id in adapters.iter().flat_map(bus_ids) {
        match verbs(node, bus_id) {
            Ok(found) => {
                nodes.push((found, format!("RDMA device {bus_id} that the scheduler gave to the pod")))
            }
            Err(message) => missing.push(message),
        }
    }
    // Some of the devices are no use: the container gets all of them or is told what is missing.
    if missing.is_empty() {
        for (found, reason) in nodes {
            device(plan, RULE, found, || reason);
        }
    }
    for message in missing {
        plan.refusal(RULE, message);
    }
}

/// The device node of an adapter.
fn verbs<'a>(node: &'a NodeView, bus_id: &str) -> Result<&'a DeviceNode, String> {
    let names = node
        .devices
        .infiniband_verbs
        .get(bus_id)
        .ok_or_else(|| format!("PCI device {bus_id} has no directory infiniband_verbs"))?;
    let name = names
        .first()
        .ok_or_else(|| format!("the directory infiniband_verbs of PCI device {bus_id} is empty"))?;
    let path = format!("/dev/infiniband/{name}");
    node.devices.nodes.get(&path).ok_or_else(|| format!("PCI device {bus_id} has no {path}"))
}

/// Puts a malformed answer of the scheduler on record for the pod; containers are refused for it.
pub(crate) fn pod(node: &NodeView, facts: &PodFacts, plan: &mut Plan) {
    let gpus = node.gates.enabled(Gate::GpuEnvInject);
    if gpus || node.gates.enabled(Gate::RdmaDeviceInject) {
        known(&facts.devices, if gpus { Rule::GpuEnvInject } else { Rule::RdmaDeviceInject }, plan);
    }
}
