//! What `koordctl top` prints as JSON or YAML.
//!
//! CPU is in cores, memory in bytes, ratios are from 0 to 1, pressure is in percent of the last 10 s. `null` means that
//! something is not measured, or not yet.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Usage of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageFigures {
    /// CPU over the last interval of sampling.
    pub cpu_cores: Option<f64>,
    /// CPU over the last minute, or as much of it as was sampled.
    pub cpu_cores_average_1m: Option<f64>,
    /// Memory without page cache.
    pub memory_bytes: Option<u64>,
    /// Memory with page cache.
    pub memory_with_page_cache_bytes: Option<u64>,
}

/// Usage of a pod or container.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupUsage {
    /// CPU and memory.
    #[serde(flatten)]
    pub figures: UsageFigures,
    /// Part of the periods of its CPU quota in which it was throttled, over the last interval of sampling.
    pub cpu_throttled_ratio: Option<f64>,
    /// Time in which at least one task waited for CPU.
    pub cpu_pressure_some_10s: Option<f64>,
    /// Time in which at least one task waited for memory.
    pub memory_pressure_some_10s: Option<f64>,
    /// Time in which at least one task waited for a block device.
    pub io_pressure_some_10s: Option<f64>,
}

/// Answer of `koordctl top pods`, one for each pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodUsage {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// QoS class as the pod's label says it; empty without one.
    pub qos: String,
    /// QoS class in force.
    pub effective_qos: String,
    /// QoS class of Kubernetes.
    pub kube_qos: String,
    /// Priority class as the pod's label says it; empty without one.
    pub priority_class: String,
    /// What the pod uses.
    #[serde(flatten)]
    pub usage: GroupUsage,
    /// Its containers.
    pub containers: Vec<ContainerUsage>,
}

/// What a container uses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerUsage {
    /// Name.
    pub name: String,
    /// Id at the runtime.
    pub id: String,
    /// What it uses.
    #[serde(flatten)]
    pub usage: GroupUsage,
}

/// Answer of `koordctl top node`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUsage {
    /// When it was sampled.
    pub time: Option<Timestamp>,
    /// CPUs of the machine that are on.
    pub cpus: Option<u32>,
    /// Memory of the machine.
    pub memory_capacity_bytes: Option<u64>,
    /// The whole node.
    pub node: UsageFigures,
    /// All pods together.
    pub pods: UsageFigures,
    /// What is no pod.
    pub system: UsageFigures,
    /// NUMA nodes.
    pub numa_nodes: Vec<NumaUsage>,
    /// Number of pods that are measured.
    pub pod_count: u64,
    /// How the sampling goes.
    pub collectors: Vec<CollectorEntry>,
}

/// What a NUMA node uses.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaUsage {
    /// Its number.
    pub numa_node: u32,
    /// CPU and memory.
    #[serde(flatten)]
    pub figures: UsageFigures,
}

/// A collector of samples.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectorEntry {
    /// Its name.
    pub name: String,
    /// `ready`, `waiting`, `failed` or `disabled`.
    pub state: String,
    /// Why; empty if there is nothing to tell.
    pub reason: String,
}

/// Answer of `koordctl top qos`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QosUsage {
    /// Classes with pods, LSE first.
    pub classes: Vec<ClassUsage>,
    /// CPU that best-effort pods may use together: the smaller of their CPU set and their quota.
    pub best_effort_cpu_limit_cores: Option<f64>,
    /// Batch CPU that best-effort pods ask for together.
    pub best_effort_cpu_request_cores: Option<f64>,
}

/// What the pods of a QoS class use together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassUsage {
    /// The class in force.
    pub qos: String,
    /// Number of its pods.
    pub pods: u64,
    /// CPU and memory.
    #[serde(flatten)]
    pub figures: UsageFigures,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_frozen() {
        let figures = UsageFigures {
            cpu_cores: Some(0.5),
            cpu_cores_average_1m: Some(0.25),
            memory_bytes: Some(1024),
            memory_with_page_cache_bytes: None,
        };
        let usage = GroupUsage { figures, cpu_throttled_ratio: Some(0.125), ..GroupUsage::default() };
        let pod = PodUsage {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u".to_owned(),
            effective_qos: "LS".to_owned(),
            kube_qos: "Burstable".to_owned(),
            usage,
            containers: vec![ContainerUsage { name: "app".to_owned(), id: "c".to_owned(), usage }],
            ..PodUsage::default()
        };
        let of_group = r#""cpuCores":0.5,"cpuCoresAverage1m":0.25,"memoryBytes":1024,"memoryWithPageCacheBytes":null,"cpuThrottledRatio":0.125,"cpuPressureSome10s":null,"memoryPressureSome10s":null,"ioPressureSome10s":null"#;
        let text = format!(
            r#"{{"namespace":"shop","name":"web","uid":"u","qos":"","effectiveQos":"LS","kubeQos":"Burstable","priorityClass":"",{of_group},"containers":[{{"name":"app","id":"c",{of_group}}}]}}"#
        );
        assert_eq!(serde_json::to_string(&pod).unwrap(), text);
        assert_eq!(serde_json::from_str::<PodUsage>(&text).unwrap(), pod);

        let node = NodeUsage {
            cpus: Some(2),
            node: figures,
            numa_nodes: vec![NumaUsage { numa_node: 1, figures }],
            collectors: vec![CollectorEntry {
                name: "node".to_owned(),
                state: "ready".to_owned(),
                reason: String::new(),
            }],
            ..NodeUsage::default()
        };
        let some =
            r#""cpuCores":0.5,"cpuCoresAverage1m":0.25,"memoryBytes":1024,"memoryWithPageCacheBytes":null"#;
        let none = some.replace("0.5", "null").replace("0.25", "null").replace("1024", "null");
        let text = format!(
            r#"{{"time":null,"cpus":2,"memoryCapacityBytes":null,"node":{{{some}}},"pods":{{{none}}},"system":{{{none}}},"numaNodes":[{{"numaNode":1,{some}}}],"podCount":0,"collectors":[{{"name":"node","state":"ready","reason":""}}]}}"#
        );
        assert_eq!(serde_json::to_string(&node).unwrap(), text);
        assert_eq!(serde_json::from_str::<NodeUsage>(&text).unwrap(), node);

        let qos = QosUsage {
            classes: vec![ClassUsage { qos: "BE".to_owned(), pods: 3, figures }],
            best_effort_cpu_limit_cores: Some(1.5),
            best_effort_cpu_request_cores: None,
        };
        let text = format!(
            r#"{{"classes":[{{"qos":"BE","pods":3,{some}}}],"bestEffortCpuLimitCores":1.5,"bestEffortCpuRequestCores":null}}"#
        );
        assert_eq!(serde_json::to_string(&qos).unwrap(), text);
        assert_eq!(serde_json::from_str::<QosUsage>(&text).unwrap(), qos);
    }
}
