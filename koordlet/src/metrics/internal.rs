//! Metrics for operators of the agent.

use super::Kind::{Counter, Gauge, Histogram};
use super::definition::definitions;

/// Upper bounds of requests to the kubelet, in seconds: 1 ms and six times four times as much.
const KUBELET_SECONDS: &[f64] = &[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096];

/// Upper bounds of passes of collectors, in seconds.
const PASS_SECONDS: &[f64] = &[0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0];

definitions! {
    START_TIME = "koordlet_start_time", Gauge, "Start of the agent in seconds since the epoch";
    CPU_INFO_STATUS = "koordlet_collect_node_cpu_info_status", Counter, "Looks at the CPUs of the node by status";
    NUMA_INFO_STATUS = "koordlet_collect_node_numa_info_status", Counter, "Looks at the NUMA nodes by status";
    STORAGE_INFO_STATUS = "koordlet_collect_node_local_storage_info_status", Counter, "Looks at the block devices by status";
    NODE_USED_CPU = "koordlet_node_used_cpu_cores", Gauge, "CPU cores that the node uses, latest sample";
    NODE_USED_MEMORY = "koordlet_node_used_memory_bytes", Gauge, "Memory in bytes that the node uses without page cache, latest sample";
    SHARE_POOL_CORES = "koordlet_cpuset_share_pool_cpu_cores", Gauge, "CPUs in the pool that latency-sensitive pods share";
    BE_SHARE_POOL_CORES = "koordlet_cpuset_be_share_pool_cpu_cores", Gauge, "CPUs in the pool that best-effort pods share";
    SHARE_POOL_INFO = "koordlet_cpuset_share_pool_info", Gauge, "Always 1, the label cpu lists the pool that latency-sensitive pods share";
    BE_SHARE_POOL_INFO = "koordlet_cpuset_be_share_pool_info", Gauge, "Always 1, the label cpu lists the pool that best-effort pods share";
    PREDICTED_RECLAIMABLE = "koordlet_node_predicted_resource_reclaimable", Gauge, "What production pods request and are predicted not to use";
    PREDICTED_PEAK = "koordlet_node_predicted_resource_peak", Gauge, "Predicted peak of production pods and system";
    NODE_METRIC_NODE = "koordlet_node_metric_node_usage", Gauge, "Usage of the node in the last report";
    NODE_METRIC_SYSTEM = "koordlet_node_metric_system_usage", Gauge, "Usage of the system in the last report";
    NODE_METRIC_NUMA_NODE = "koordlet_node_metric_numa_node_usage", Gauge, "Usage of a NUMA node in the last report";
    NODE_METRIC_NUMA_SYSTEM = "koordlet_node_metric_numa_system_usage", Gauge, "Usage of the system on a NUMA node in the last report";
    HOST_APPLICATION_USAGE = "koordlet_host_application_resource_usage", Gauge, "Usage of a host application, latest sample: CPU in cores, memory in bytes";
    KUBELET_REQUEST = "koordlet_kubelet_request_duration_seconds", Histogram(KUBELET_SECONDS), "Time of requests to the kubelet in seconds", nodeless;
    COLLECT_DURATION = "koordlet_collect_duration_seconds", Histogram(PASS_SECONDS), "Time of a collector's part of a pass in seconds";
    COLLECT_ERRORS = "koordlet_collect_errors_total", Counter, "Files that a collector could not read or understand";
    SKIPPED_TICKS = "koordlet_collect_skipped_ticks_total", Counter, "Ticks without samples because the pass before them had not ended";
    COLLECTOR_READY = "koordlet_collector_ready", Gauge, "1 for a collector that gives samples, else 0 with the reason";
    STORE_SERIES = "koordlet_store_series", Gauge, "Series of samples that are kept";
    STORE_BYTES = "koordlet_store_bytes", Gauge, "Memory in bytes of the samples that are kept";
    STORE_DISK_FULL = "koordlet_store_disk_full", Gauge, "1 while the directory of the named content has no room, else 0";
    OPEN_FDS = "koordlet_open_fds", Gauge, "Descriptors that collectors keep open";
    PODS = "koordlet_pods", Gauge, "Pods of the node that are known";
    POD_SYNC_AGE = "koordlet_pod_sync_age_seconds", Gauge, "Seconds since pods were last heard of";
    POD_SYNCS = "koordlet_pod_syncs_total", Counter, "Looks at the pods by source and result";
    PLEG_DEGRADED = "koordlet_pleg_degraded", Gauge, "1 while directories of pods are scanned because they cannot be watched, else 0";
    SAMPLE_SOURCE = "koordlet_sample_source", Gauge, "1 for where samples come from now: proxy or own";
    REPORTS = "koordlet_node_metric_report_total", Counter, "Reports of usage by result";
    REPORT_BYTES = "koordlet_node_metric_report_bytes", Gauge, "Size in bytes of the last report";
    REPORT_AGE = "koordlet_node_metric_last_report_age_seconds", Gauge, "Seconds since the last report was written";
    POLICY_FALLBACK = "koordlet_node_metric_memory_policy_fallback", Gauge, "1 while memory is reported without page cache though the policy asks for another figure, else 0";
    NODE_TOPOLOGY_WRITES = "koordlet_node_topology_writes_total", Counter, "Writes of the NodeResourceTopology by result";
    API_REQUESTS = "koordlet_apiserver_requests_total", Counter, "Requests to the API server by what is asked and the answer";
    PREDICTION_MODELS = "koordlet_prediction_models", Gauge, "Models of the predictor";
}
