//! Feature gates: the names that deployments pass in `--feature-gates NAME=true,...`.

use std::fmt;

use crate::keys::nearest;
use crate::label::wide_boolean;

/// Which program reads a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// The node agent and the runtime proxy.
    Koordlet,
    /// The manager with its webhooks.
    Manager,
    /// The scheduler.
    Scheduler,
}

/// How settled a feature is. Beta features are on unless stated, alpha features are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Off unless stated; `AllAlpha` concerns it.
    Alpha,
    /// On unless stated; `AllBeta` concerns it.
    Beta,
}

macro_rules! gates {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $stage:ident, [$($component:ident),*];)*) => {
        /// A feature that can be switched on and off.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Gate {
            $($(#[$doc])* $variant,)*
        }

        impl Gate {
            /// All gates.
            pub const ALL: &'static [Gate] = &[$(Gate::$variant,)*];

            /// The name in `--feature-gates`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Gate::$variant => $name,)*
                }
            }

            /// How settled it is.
            pub const fn stage(self) -> Stage {
                match self {
                    $(Gate::$variant => Stage::$stage,)*
                }
            }

            /// The programs that read it.
            pub const fn components(self) -> &'static [Component] {
                match self {
                    $(Gate::$variant => &[$(Component::$component),*],)*
                }
            }
        }
    };
}

gates! {
    /// CPUs of best-effort pods follow what the others leave.
    BeCpuSuppress = "BECPUSuppress", Beta, [Koordlet];
    /// CPU burst.
    CpuBurst = "CPUBurst", Beta, [Koordlet];
    /// Cache and memory bandwidth by class.
    RdtResctrl = "RdtResctrl", Beta, [Koordlet];
    /// CPU topology is published.
    NodeTopologyReport = "NodeTopologyReport", Beta, [Koordlet];
    /// Rule: CPU identity by class.
    GroupIdentity = "GroupIdentity", Beta, [Koordlet];
    /// Rule: CPUs by the scheduler's answer.
    CpuSetAllocator = "CPUSetAllocator", Beta, [Koordlet];
    /// Rule: shares, quota and memory of batch resources.
    BatchResource = "BatchResource", Beta, [Koordlet];
    /// Rule: shares, quota and memory of mid resources. Koordinator has none of it.
    MidResource = "MidResource", Beta, [Koordlet];
    /// Memory of pods on NUMA nodes is counted without page cache, as that of the nodes is. Koordinator has none of it.
    NumaMemoryWithoutCache = "NUMAMemoryWithoutCache", Beta, [Koordlet];
    /// Memory of the system follows the policy for memory. Koordinator has none of it.
    PolicyAwareSystemMemory = "PolicyAwareSystemMemory", Alpha, [Koordlet];
    /// Audit log.
    AuditEvents = "AuditEvents", Alpha, [Koordlet];
    /// Audit log over HTTP.
    AuditEventsHttpHandler = "AuditEventsHTTPHandler", Alpha, [Koordlet];
    /// NUMA pools for best-effort pods.
    BeCpuManager = "BECPUManager", Alpha, [Koordlet];
    /// Eviction of best-effort pods that starve.
    BeCpuEvict = "BECPUEvict", Alpha, [Koordlet];
    /// Eviction by CPU usage.
    CpuEvict = "CPUEvict", Alpha, [Koordlet];
    /// Eviction by allocatable CPU.
    CpuAllocatableEvict = "CPUAllocatableEvict", Alpha, [Koordlet];
    /// Eviction of best-effort pods by memory usage.
    BeMemoryEvict = "BEMemoryEvict", Alpha, [Koordlet];
    /// Eviction by memory usage.
    MemoryEvict = "MemoryEvict", Alpha, [Koordlet];
    /// Eviction by allocatable memory.
    MemoryAllocatableEvict = "MemoryAllocatableEvict", Alpha, [Koordlet];
    /// Kernel settings of the node.
    SystemConfig = "SystemConfig", Alpha, [Koordlet];
    /// Cache and memory bandwidth are measured.
    ResctrlCollector = "ResctrlCollector", Alpha, [Koordlet];
    /// Memory QoS.
    CgroupReconcile = "CgroupReconcile", Alpha, [Koordlet];
    /// GPUs are measured.
    Accelerators = "Accelerators", Alpha, [Koordlet];
    /// RDMA devices are reported.
    RdmaDevices = "RDMADevices", Alpha, [Koordlet];
    /// Cycles per instruction are measured.
    CpiCollector = "CPICollector", Alpha, [Koordlet];
    /// Cycles per instruction by libpfm4.
    Libpfm4 = "Libpfm4", Alpha, [Koordlet];
    /// Pressure is measured.
    PsiCollector = "PSICollector", Alpha, [Koordlet];
    /// Block I/O QoS.
    BlkIoReconcile = "BlkIOReconcile", Alpha, [Koordlet];
    /// Cold pages are measured.
    ColdPageCollector = "ColdPageCollector", Alpha, [Koordlet];
    /// Huge pages are reported.
    HugePageReport = "HugePageReport", Alpha, [Koordlet];
    /// Kubelet's pod resources are proxied.
    PodResourcesProxy = "PodResourcesProxy", Alpha, [Koordlet];
    /// HAMi's shares of GPUs are measured.
    HamiCoreVgpuMonitor = "HamiCoreVGPUMonitor", Alpha, [Koordlet];
    /// Usage of every CPU is measured.
    PerCpuMetric = "PerCPUMetric", Alpha, [Koordlet];
    /// Node metrics from Prometheus.
    NodeMetricPromMetrics = "NodeMetricPromMetrics", Alpha, [Koordlet];
    /// Rule: environment of GPU pods.
    GpuEnvInject = "GPUEnvInject", Alpha, [Koordlet];
    /// Rule: devices of RDMA pods.
    RdmaDeviceInject = "RDMADeviceInject", Alpha, [Koordlet];
    /// Rule: quotas follow the speed of the CPUs.
    CpuNormalization = "CPUNormalization", Alpha, [Koordlet];
    /// Rule: core scheduling.
    CoreSched = "CoreSched", Alpha, [Koordlet];
    /// Rule: network QoS by terway.
    TerwayQos = "TerwayQoS", Alpha, [Koordlet];
    /// Rule: network QoS by traffic control.
    TcNetworkQos = "TCNetworkQoS", Alpha, [Koordlet];
    /// Rule: cache and memory bandwidth of single pods.
    Resctrl = "Resctrl", Alpha, [Koordlet];
    /// Rule: OOM score adjustment.
    OomScoreAdj = "OOMScoreAdj", Alpha, [Koordlet];
    /// Pods are changed at admission.
    PodMutatingWebhook = "PodMutatingWebhook", Beta, [Manager];
    /// Pods are checked at admission.
    PodValidatingWebhook = "PodValidatingWebhook", Beta, [Manager];
    /// Quotas are changed at admission.
    ElasticMutatingWebhook = "ElasticMutatingWebhook", Beta, [Manager];
    /// Quotas are checked at admission.
    ElasticValidatingWebhook = "ElasticValidatingWebhook", Beta, [Manager];
    /// Webhooks at all.
    WebhookFramework = "WebhookFramework", Beta, [Manager];
    /// Nodes are changed at admission.
    NodeMutatingWebhook = "NodeMutatingWebhook", Alpha, [Manager];
    /// Nodes are checked at admission.
    NodeValidatingWebhook = "NodeValidatingWebhook", Alpha, [Manager];
    /// The configuration map is checked at admission.
    ConfigMapValidatingWebhook = "ConfigMapValidatingWebhook", Alpha, [Manager];
    /// Reservations are changed at admission.
    ReservationMutatingWebhook = "ReservationMutatingWebhook", Alpha, [Manager];
    /// Profiles do not translate resources.
    ColocationProfileSkipMutatingResources = "ColocationProfileSkipMutatingResources", Alpha, [Manager];
    /// The sub-priority may change.
    ColocationProfileSkipValidatingPriority = "ColocationProfileSkipValidatingPriority", Alpha, [Manager];
    /// Profiles are applied to existing pods.
    ColocationProfileController = "ColocationProfileController", Alpha, [Manager];
    /// Several quota trees.
    MultiQuotaTree = "MultiQuotaTree", Alpha, [Manager, Scheduler];
    /// Overhead does not count in quotas.
    ElasticQuotaIgnorePodOverhead = "ElasticQuotaIgnorePodOverhead", Alpha, [Manager, Scheduler];
    /// Used resources are guaranteed.
    ElasticQuotaGuaranteeUsage = "ElasticQuotaGuaranteeUsage", Alpha, [Manager, Scheduler];
    /// Resource keys of quotas may change.
    ElasticQuotaEnableUpdateResourceKey = "ElasticQuotaEnableUpdateResourceKey", Alpha, [Manager];
    /// Quotas count pods after their transformation.
    ElasticQuotaEvaluationTransformPod = "ElasticQuotaEvaluationTransformPod", Alpha, [Manager];
    /// No default quota.
    DisableDefaultQuota = "DisableDefaultQuota", Alpha, [Manager, Scheduler];
    /// Pods in parent quotas.
    SupportParentQuotaSubmitPod = "SupportParentQuotaSubmitPod", Alpha, [Manager, Scheduler];
    /// Quotas are enforced at admission.
    EnableQuotaAdmission = "EnableQuotaAdmission", Alpha, [Manager];
    /// Quotas are enforced on updates.
    EnableQuotaAdmissionOnUpdate = "EnableQuotaAdmissionOnUpdate", Alpha, [Manager];
    /// Shares of GPUs are published on nodes.
    EnableSyncGpuSharedResource = "EnableSyncGPUSharedResource", Alpha, [Manager];
    /// Device requests are checked at admission.
    ValidatePodDeviceResource = "ValidatePodDeviceResource", Alpha, [Manager];
    /// Labels required of pods are checked at admission.
    EnablePodEnhancedValidator = "EnablePodEnhancedValidator", Alpha, [Manager];
    /// No extended-resource-spec is written.
    DisableExtendedResourceSpec = "DisableExtendedResourceSpec", Alpha, [Manager];
    /// Device requests are not normalized.
    DisableDeviceResourceSpec = "DisableDeviceResourceSpec", Alpha, [Manager];
    /// Bindings are checked at admission.
    BindingAdmissionWebhook = "BindingAdmissionWebhook", Alpha, [Manager];
    /// Volumes are not reserved.
    DisablePvcReservation = "DisablePVCReservation", Alpha, [Manager];
    /// Priorities are filled in.
    PriorityTransformer = "PriorityTransformer", Alpha, [Manager];
    /// Preemption policies are taken from labels.
    PreemptionPolicyTransformer = "PreemptionPolicyTransformer", Alpha, [Manager];
    /// Resource names are replaced.
    ReplaceResourcesTransformer = "ReplaceResourcesTransformer", Alpha, [Manager];
    /// A pod is looked at again before it is bound.
    DynamicSchedulerCheck = "DynamicSchedulerCheck", Beta, [Scheduler];
    /// Capacity of storage counts.
    CsiStorageCapacity = "CSIStorageCapacity", Beta, [Scheduler];
    /// Generic ephemeral volumes.
    GenericEphemeralVolume = "GenericEphemeralVolume", Beta, [Scheduler];
    /// Disruption budgets count.
    PodDisruptionBudget = "PodDisruptionBudget", Beta, [Scheduler];
    /// Conditions of waiting gang members are written.
    GangPendingPodsConditionPatch = "GangPendingPodsConditionPatch", Beta, [Scheduler];
    /// One snapshot for a batch of pods.
    EnableBatchScheduleNodeSnapshot = "EnableBatchScheduleNodeSnapshot", Beta, [Scheduler];
    /// Pods are resized in place.
    ResizePod = "ResizePod", Alpha, [Scheduler];
    /// Terminating pods do not count in quotas.
    ElasticQuotaIgnoreTerminatingPod = "ElasticQuotaIgnoreTerminatingPod", Alpha, [Scheduler];
    /// Terminating pods stop to count at once.
    ElasticQuotaImmediateIgnoreTerminatingPod = "ElasticQuotaImmediateIgnoreTerminatingPod", Alpha, [Scheduler];
    /// Reservations are restored when needed.
    LazyReservationRestore = "LazyReservationRestore", Alpha, [Scheduler];
    /// Node labels do not count for reservations.
    OmitNodeLabelsForReservation = "OmitNodeLabelsForReservation", Alpha, [Scheduler];
    /// Reservations are not checked against the node.
    SkipReservationFitsNode = "SkipReservationFitsNode", Alpha, [Scheduler];
    /// Device plugins are told of devices.
    DevicePluginAdaption = "DevicePluginAdaption", Alpha, [Scheduler];
    /// Marks of expired reservations are removed.
    CleanExpiredReservationAllocated = "CleanExpiredReservationAllocated", Alpha, [Scheduler];
    /// Nominated pods do not count in filters.
    SkipFilterWithNominatedPods = "SkipFilterWithNominatedPods", Alpha, [Scheduler];
    /// The scheduler waits for its caches.
    SyncBarrier = "SyncBarrier", Alpha, [Scheduler];
    /// Nominations of other schedulers count.
    CrossSchedulerNomination = "CrossSchedulerNomination", Alpha, [Scheduler];
    /// Batches are scheduled inline.
    EnableInlineBatchSchedule = "EnableInlineBatchSchedule", Alpha, [Scheduler];
}

/// Gates of other releases of Koordinator and for clusters older than those we support. They mean nothing
/// here; deployments may still pass them.
pub const FORMER_GATES: [&str; 7] = [
    "BECgroupReconcile",
    "PerformanceCollector",
    "CompatibleCSIStorageCapacity",
    "DisableCSIStorageCapacityInformer",
    "CompatiblePodDisruptionBudget",
    "DisablePodDisruptionBudgetInformer",
    "DisableDynamicResourceAllocationInformer",
];

impl Gate {
    /// The gate of a name.
    pub fn from_name(name: &str) -> Option<Gate> {
        Gate::ALL.iter().copied().find(|gate| gate.as_str() == name)
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

const COUNT: usize = Gate::ALL.len();

/// Which features are on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    on: [bool; COUNT],
}

impl Default for Gates {
    /// Beta features on, alpha features off.
    fn default() -> Gates {
        let mut gates = Gates { on: [false; COUNT] };
        for gate in Gate::ALL {
            gates.set(*gate, gate.stage() == Stage::Beta);
        }
        gates
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.all_on()).finish()
    }
}

/// An item of `--feature-gates` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Not `NAME=BOOLEAN`.
    #[error("feature gate \"{item}\": wanted NAME=true or NAME=false")]
    NotAPair {
        /// The item.
        item: String,
    },
    /// The value is not a boolean.
    #[error("feature gate {name}: \"{value}\" is not a boolean; wanted true or false")]
    NotABoolean {
        /// Name of the gate.
        name: String,
        /// Its value.
        value: String,
    },
    /// No release has it.
    #[error("feature gate {name} does not exist{}", suggestion(nearest))]
    Unknown {
        /// Name of the gate.
        name: String,
        /// The known name nearest to it.
        nearest: Option<&'static str>,
    },
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!("; is {name} meant?")).unwrap_or_default()
}

/// An item of `--feature-gates` that has no effect here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateWarning {
    /// Name of the gate.
    pub name: String,
    /// Why it has no effect.
    pub reason: IgnoredGate,
}

/// Why a gate has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredGate {
    /// Only other releases have it.
    Former,
    /// Another program reads it.
    OtherComponent,
}

impl fmt::Display for GateWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            IgnoredGate::Former => "only other releases have it",
            IgnoredGate::OtherComponent => "another program reads it",
        };
        write!(formatter, "feature gate {} has no effect: {reason}", self.name)
    }
}

impl Gates {
    /// Reads the text of `--feature-gates` for one program. All mistakes are reported at once.
    ///
    /// `AllAlpha` and `AllBeta` set the gates of a stage that are not named themselves, wherever they
    /// stand. A name given twice has its last value.
    pub fn parse(component: Component, text: &str) -> Result<(Gates, Vec<GateWarning>), Vec<GateError>> {
        let mut gates = Gates::default();
        let mut named = [None; COUNT];
        let (mut all_alpha, mut all_beta) = (None, None);
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let Some((name, value)) = item.split_once('=') else {
                errors.push(GateError::NotAPair { item: shown(item) });
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let Some(switch) = wide_boolean(value) else {
                errors.push(GateError::NotABoolean { name: shown(name), value: shown(value) });
                continue;
            };
            let ignored = |reason| GateWarning { name: shown(name), reason };
            match (name, Gate::from_name(name)) {
                ("AllAlpha", _) => all_alpha = Some(switch),
                ("AllBeta", _) => all_beta = Some(switch),
                (_, Some(gate)) => {
                    if gate.components().contains(&component) {
                        if let Some(slot) = named.get_mut(gate as usize) {
                            *slot = Some(switch);
                        }
                    } else {
                        warnings.push(ignored(IgnoredGate::OtherComponent));
                    }
                }
                _ if FORMER_GATES.contains(&name) => warnings.push(ignored(IgnoredGate::Former)),
                _ => {
                    let known = Gate::ALL
                        .iter()
                        .filter(|gate| gate.components().contains(&component))
                        .map(|gate| gate.as_str());
                    errors.push(GateError::Unknown { name: shown(name), nearest: nearest(name, known) });
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        for (gate, named) in Gate::ALL.iter().zip(named) {
            let of_stage = match gate.stage() {
                Stage::Alpha => all_alpha,
                Stage::Beta => all_beta,
            };
            if let Some(switch) = named.or(of_stage) {
                gates.set(*gate, switch);
            }
        }
        Ok((gates, warnings))
    }

    /// Whether a feature is on.
    pub fn enabled(&self, gate: Gate) -> bool {
        self.on.get(gate as usize).copied().unwrap_or_default()
    }

    /// Switches a feature.
    pub fn set(&mut self, gate: Gate, on: bool) {
        if let Some(slot) = self.on.get_mut(gate as usize) {
            *slot = on;
        }
    }

    /// These gates with a feature on.
    #[must_use]
    pub fn with(mut self, gate: Gate) -> Gates {
        self.set(gate, true);
        self
    }

    /// These gates with a feature off.
    #[must_use]
    pub fn without(mut self, gate: Gate) -> Gates {
        self.set(gate, false);
        self
    }

    /// The features that are on.
    pub fn all_on(&self) -> impl Iterator<Item = Gate> + '_ {
        Gate::ALL.iter().copied().filter(|gate| self.enabled(*gate))
    }
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn koordlet(text: &str) -> Result<(Gates, Vec<GateWarning>), Vec<GateError>> {
        Gates::parse(Component::Koordlet, text)
    }

    #[test]
    fn names_are_unique() {
        assert_eq!(Gate::ALL.iter().map(|gate| gate.as_str()).collect::<BTreeSet<_>>().len(), COUNT);
        assert!(FORMER_GATES.iter().all(|name| Gate::from_name(name).is_none()));
    }

    #[test]
    fn defaults_are_those_of_the_release() {
        let on = |component| {
            Gates::default()
                .all_on()
                .filter(|gate| gate.components().contains(&component))
                .map(Gate::as_str)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            on(Component::Koordlet),
            [
                "BECPUSuppress",
                "CPUBurst",
                "RdtResctrl",
                "NodeTopologyReport",
                "GroupIdentity",
                "CPUSetAllocator",
                "BatchResource",
                "MidResource",
                "NUMAMemoryWithoutCache",
            ]
        );
        assert_eq!(
            on(Component::Manager),
            [
                "PodMutatingWebhook",
                "PodValidatingWebhook",
                "ElasticMutatingWebhook",
                "ElasticValidatingWebhook",
                "WebhookFramework",
            ]
        );
        assert_eq!(
            on(Component::Scheduler),
            [
                "DynamicSchedulerCheck",
                "CSIStorageCapacity",
                "GenericEphemeralVolume",
                "PodDisruptionBudget",
                "GangPendingPodsConditionPatch",
                "EnableBatchScheduleNodeSnapshot",
            ]
        );
    }

    #[test]
    fn gates_are_switched_by_name() {
        let (gates, warnings) = koordlet("CPUBurst=false, Resctrl=T,,CPUBurst=0").unwrap();
        assert_eq!(gates, Gates::default().with(Gate::Resctrl).without(Gate::CpuBurst));
        assert_eq!(warnings, []);
        assert_eq!(koordlet("").unwrap(), (Gates::default(), Vec::new()));
    }

    #[test]
    fn stages_yield_to_names() {
        let (gates, _) = koordlet("AllAlpha=true,Resctrl=false,AllBeta=false").unwrap();
        assert!(gates.enabled(Gate::CoreSched) && !gates.enabled(Gate::Resctrl));
        assert!(!gates.enabled(Gate::CpuBurst));
        let (gates, _) = koordlet("CPUBurst=true,AllBeta=false").unwrap();
        assert!(gates.enabled(Gate::CpuBurst) && !gates.enabled(Gate::BatchResource));
    }

    #[test]
    fn names_without_effect_are_told() {
        let (gates, warnings) = koordlet("BECgroupReconcile=true,PodMutatingWebhook=false").unwrap();
        assert_eq!(gates, Gates::default());
        assert_eq!(
            warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "feature gate BECgroupReconcile has no effect: only other releases have it",
                "feature gate PodMutatingWebhook has no effect: another program reads it",
            ]
        );
    }

    #[test]
    fn all_mistakes_are_told() {
        let errors = koordlet("CpuBurst=true,Resctrl,CoreSched=maybe,Whatever=true").unwrap_err();
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "feature gate CpuBurst does not exist; is CPUBurst meant?",
                "feature gate \"Resctrl\": wanted NAME=true or NAME=false",
                "feature gate CoreSched: \"maybe\" is not a boolean; wanted true or false",
                "feature gate Whatever does not exist",
            ]
        );
    }
}
