use koord_extension::keys::{annotation, label};
use koord_extension::qos::KubeQos;
use serde_json::json;

use super::*;

fn device(path: &str, major: u32, minor: u32) -> (String, DeviceNode) {
    let node = DeviceNode { path: path.to_owned(), major, minor, permissions: "rwm", file_mode: 0o666 };
    (path.to_owned(), node)
}

fn device_node(gates: &[Gate]) -> NodeView {
    let mut node = a_node(json!({}), KernelView::bare(CgroupVersion::V2), gates);
    node.devices.nodes = [
        device("/dev/nvidia0", 195, 0),
        device("/dev/nvidia1", 195, 1),
        device("/dev/nvidiactl", 195, 255),
        device("/dev/nvidia-uvm", 511, 0),
        device("/dev/infiniband/rdma_cm", 10, 58),
        device("/dev/infiniband/uverbs0", 231, 192),
        device("/dev/infiniband/uverbs1", 231, 193),
    ]
    .into();
    node.devices.infiniband_verbs = [
        ("0000:1f:00.2".to_owned(), vec!["uverbs0".to_owned()]),
        ("0000:1f:00.3".to_owned(), vec!["uverbs1".to_owned(), "uverbs9".to_owned()]),
        ("0000:1f:00.4".to_owned(), vec![]),
        ("0000:1f:00.5".to_owned(), vec!["uverbs5".to_owned()]),
    ]
    .into();
    node
}

fn gpu_node() -> NodeView {
    device_node(&[Gate::GpuEnvInject])
}

fn rdma_node() -> NodeView {
    device_node(&[Gate::RdmaDeviceInject])
}

fn with_devices(text: &str) -> PodView {
    a_pod("LS", KubeQos::Burstable, &[(annotation::DEVICE_ALLOCATED, text)])
}

fn env(plan: &Plan, name: &str) -> Option<String> {
    text_of(plan, &Field::Env(name.to_owned()))
}

fn devices(plan: &Plan) -> Vec<&str> {
    plan.wishes
        .iter()
        .filter_map(|wish| match &wish.field {
            Field::Device(path) => Some(path.as_str()),
            _ => None,
        })
        .collect()
}

const TWO_GPUS: &str = r#"{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}},
                                  {"minor":1,"resources":{"koordinator.sh/gpu-core":"100"}}]}"#;
const HALF_A_GPU: &str = r#"{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50",
    "koordinator.sh/gpu-memory-ratio":"50","koordinator.sh/gpu-memory":"8Gi"}}]}"#;

#[test]
fn gpus_are_visible_and_known_to_the_runtime() {
    let plan = plan_of(&gpu_node(), &with_devices(TWO_GPUS), "a");
    assert_eq!(env(&plan, "NVIDIA_VISIBLE_DEVICES").as_deref(), Some("0,1"));
    assert_eq!(devices(&plan), ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]);
    assert_eq!(env(&plan, "LD_PRELOAD"), None);
    assert_eq!(plan.problems, []);
    let found = plan.get(&Field::Device("/dev/nvidia1".to_owned())).unwrap().value.clone();
    assert_eq!(found, Value::Device(device("/dev/nvidia1", 195, 1).1));
}

#[test]
fn all_device_nodes_or_none() {
    let pod = with_devices(r#"{"gpu":[{"minor":0},{"minor":7}]}"#);
    let plan = plan_of(&gpu_node(), &pod, "a");
    assert_eq!(env(&plan, "NVIDIA_VISIBLE_DEVICES").as_deref(), Some("0,7"));
    assert_eq!(devices(&plan), Vec::<&str>::new());
}

#[test]
fn shares_of_a_gpu_are_held_by_hami_core() {
    let mut pod = with_devices(HALF_A_GPU);
    assert_eq!(env(&plan_of(&gpu_node(), &pod, "a"), "LD_PRELOAD"), None);
    pod.labels.insert(label::GPU_ISOLATION_PROVIDER.to_owned(), "HAMi-core".to_owned());
    let plan = plan_of(&gpu_node(), &pod, "a");
    assert_eq!(env(&plan, "NVIDIA_VISIBLE_DEVICES").as_deref(), Some("1"));
    assert_eq!(env(&plan, "CUDA_DEVICE_MEMORY_LIMIT").as_deref(), Some("8589934592"));
    assert_eq!(env(&plan, "CUDA_DEVICE_SM_LIMIT").as_deref(), Some("50"));
    assert_eq!(env(&plan, "LD_PRELOAD").as_deref(), Some("/usr/local/vgpu/libvgpu.so"));
    assert_eq!(env(&plan, "CUDA_DEVICE_MEMORY_SHARED_CACHE"), None);
    for path in ["/usr/local/vgpu/libvgpu.so", "/tmp/vgpulock"] {
        let value = plan.get(&Field::Mount(path.to_owned())).unwrap().value.clone();
        let mount = BindMount {
            host_path: path.to_owned(),
            container_path: path.to_owned(),
            recursive: true,
            create_directory: None,
        };
        assert_eq!(value, Value::Mount(mount));
    }
}

#[test]
fn the_monitor_of_hami_core_has_a_directory_for_each_container() {
    let mut pod = with_devices(HALF_A_GPU);
    pod.labels.insert(label::GPU_ISOLATION_PROVIDER.to_owned(), "HAMi-core".to_owned());
    let mut node = device_node(&[Gate::GpuEnvInject, Gate::HamiCoreVgpuMonitor]);
    node.options.hami_core_library = Some("/opt/vgpu/lib.so".to_owned());
    let plan = plan_of(&node, &pod, "a");
    assert_eq!(env(&plan, "CUDA_DEVICE_MEMORY_SHARED_CACHE").as_deref(), Some("/opt/vgpu/u-1_a.cache"));
    let mount = BindMount {
        host_path: "/opt/vgpu/containers/u-1_a".to_owned(),
        container_path: "/opt/vgpu".to_owned(),
        recursive: true,
        create_directory: Some(0o777),
    };
    assert_eq!(plan.get(&Field::Mount("/opt/vgpu".to_owned())).unwrap().value, Value::Mount(mount));
}

#[test]
fn a_whole_gpu_needs_no_holding() {
    let mut pod =
        with_devices(r#"{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory-ratio":"100"}}]}"#);
    pod.labels.insert(label::GPU_ISOLATION_PROVIDER.to_owned(), "HAMi-core".to_owned());
    let plan = plan_of(&gpu_node(), &pod, "a");
    assert_eq!((env(&plan, "LD_PRELOAD"), plan.problems), (None, vec![]));
}

#[test]
fn missing_amounts_refuse_the_container() {
    for text in [
        r#"{"gpu":[{"minor":0}]}"#,
        r#"{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory-ratio":"50"}}]}"#,
    ] {
        let mut pod = with_devices(text);
        pod.labels.insert(label::GPU_ISOLATION_PROVIDER.to_owned(), "HAMi-core".to_owned());
        let plan = plan_of(&gpu_node(), &pod, "a");
        assert_eq!(plan.problems.len(), 1, "{text}");
        assert_eq!(
            (plan.problems[0].rule, plan.problems[0].severity),
            (Rule::GpuEnvInject, Severity::Refuses)
        );
        assert_eq!(env(&plan, "LD_PRELOAD"), None);
    }
}

#[test]
fn only_containers_that_ask_for_a_gpu_get_it_where_that_is_known() {
    let spec = r#"{"containers":{"a":{"requests":{"koordinator.sh/gpu-core":"100"}},"b":{}}}"#;
    let annotations = [(annotation::DEVICE_ALLOCATED, TWO_GPUS), (annotation::EXTENDED_RESOURCE_SPEC, spec)];
    let pod = a_pod("LS", KubeQos::Burstable, &annotations);
    assert!(env(&plan_of(&gpu_node(), &pod, "a"), "NVIDIA_VISIBLE_DEVICES").is_some());
    assert!(env(&plan_of(&gpu_node(), &pod, "b"), "NVIDIA_VISIBLE_DEVICES").is_none());
}

#[test]
fn an_unreadable_allocation_refuses_the_container() {
    let pod = with_devices("not json");
    for (node, rule) in [(gpu_node(), Rule::GpuEnvInject), (rdma_node(), Rule::RdmaDeviceInject)] {
        let plan = plan_of(&node, &pod, "a");
        assert_eq!(plan.problems.len(), 1);
        assert_eq!((plan.problems[0].rule, plan.problems[0].severity), (rule, Severity::Refuses));
    }
    assert_eq!(plan_of(&device_node(&[]), &pod, "a").problems, []);
}

#[test]
fn virtual_functions_and_adapters() {
    let plan = plan_of(
        &rdma_node(),
        &with_devices(
            r#"{"rdma":[{"minor":0,"id":"0000:1f:00.0","extension":{"vfs":[{"minor":1,"busID":"0000:1f:00.2"},
                                                                        {"minor":2,"busID":"0000:1f:00.3"}]}}]}"#,
        ),
        "a",
    );
    assert_eq!(
        devices(&plan),
        ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"]
    );
    assert_eq!(plan.problems, []);
    let plan = plan_of(&rdma_node(), &with_devices(r#"{"rdma":[{"minor":0,"id":"0000:1f:00.3"}]}"#), "a");
    assert_eq!(devices(&plan), ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs1"]);
    let plan = plan_of(&rdma_node(), &with_devices(TWO_GPUS), "a");
    assert_eq!(plan, plan_of(&device_node(&[]), &with_devices(TWO_GPUS), "a"));
}

#[test]
fn a_missing_adapter_refuses_the_container_and_says_which() {
    let vector = [
        ("0000:1f:00.4", "the directory infiniband_verbs of PCI device 0000:1f:00.4 is empty"),
        ("0000:1f:00.5", "PCI device 0000:1f:00.5 has no /dev/infiniband/uverbs5"),
        ("0000:1f:00.6", "PCI device 0000:1f:00.6 has no directory infiniband_verbs"),
    ];
    for (bus_id, message) in vector {
        let plan = plan_of(
            &rdma_node(),
            &with_devices(&format!(r#"{{"rdma":[{{"minor":0,"id":"{bus_id}"}}]}}"#)),
            "a",
        );
        assert_eq!(devices(&plan), Vec::<&str>::new(), "{bus_id}");
        assert_eq!(plan.problems.len(), 1, "{bus_id}");
        assert_eq!(plan.problems[0].message, message);
        assert_eq!(plan.problems[0].severity, Severity::Refuses);
    }
}
