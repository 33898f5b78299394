//! Metrics for users of the node.

use super::Kind::{Counter, Gauge};
use super::definition::definitions;

definitions! {
    NODE_ALLOCATABLE = "koordlet_node_resource_allocatable", Gauge, "Allocatable batch and mid resources of the node";
    PRIORITY_RECLAIMABLE = "koordlet_node_priority_resource_reclaimable", Gauge, "What pods of a priority class request and are predicted not to use";
    PRIORITY_RECLAIMABLE_STATUS = "koordlet_node_resource_priority_reclaimable_status", Gauge, "0 while the prediction succeeds, 1 while it fails";
    CONTAINER_REQUESTS = "koordlet_container_resource_requests", Gauge, "Requests of batch and mid resources of a container";
    CONTAINER_LIMITS = "koordlet_container_resource_limits", Gauge, "Limits of batch and mid resources of a container";
    CONTAINER_CPI = "koordlet_container_cpi", Gauge, "Container cpi collected by koordlet";
    CONTAINER_PSI = "koordlet_container_psi", Gauge, "Container psi collected by koordlet";
    POD_PSI = "koordlet_pod_psi", Gauge, "Pod psi collected by koordlet";
    LLC_OCCUPANCY = "koordlet_resctrl_llc_occupancy", Gauge, "Occupancy of a last level cache in bytes by class";
    MEMORY_BANDWIDTH = "koordlet_resctrl_memory_bandwidth", Gauge, "Memory traffic in bytes since the start of the monitor by class";
    RESCTRL_MEMORY_BYTES = "koordlet_resctrl_memory_bytes_total", Counter, "Memory traffic in bytes since the start of the monitor by class";
    PSI_STALL_SECONDS = "koordlet_psi_stall_seconds_total", Counter, "Seconds that tasks of a pod or container waited";
    SYSTEM_CPU_DIRECT = "koordlet_system_cpu_usage_direct_cores", Gauge, "CPU cores that control groups beside those of pods use, as the kernel counts them; version 2 only";
    NODE_WORKING_SET = "koordlet_node_memory_working_set_bytes", Gauge, "Memory in bytes of the node without inactive files, as kubectl top shows it";
}
