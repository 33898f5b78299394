//! Reads the few fields of CRI messages that matter to a proxy, borrowing from the bytes.
//!
//! Sub-messages that occur several times are merged, of a scalar the last occurrence counts
//! and of a map the last entry of each key, as in every protobuf library. Fields that are not
//! read here may hold anything that is well-formed.

use std::collections::BTreeMap;

use crate::wire::{Field, Reader, WireError};

/// A `map<string, string>`.
pub type TextMap<'a> = BTreeMap<&'a str, &'a str>;

/// Field numbers of the messages read here.
pub mod number {
    /// `RunPodSandboxRequest.config`.
    pub const RUN_CONFIG: u32 = 1;
    /// `RunPodSandboxRequest.runtime_handler`.
    pub const RUN_RUNTIME_HANDLER: u32 = 2;
    /// `PodSandboxConfig.metadata`.
    pub const POD_METADATA: u32 = 1;
    /// `PodSandboxConfig.labels`.
    pub const POD_LABELS: u32 = 6;
    /// `PodSandboxConfig.annotations`.
    pub const POD_ANNOTATIONS: u32 = 7;
    /// `PodSandboxConfig.linux`.
    pub const POD_LINUX: u32 = 8;
    /// `LinuxPodSandboxConfig.cgroup_parent`.
    pub const POD_LINUX_CGROUP_PARENT: u32 = 1;
    /// `LinuxPodSandboxConfig.overhead`.
    pub const POD_LINUX_OVERHEAD: u32 = 4;
    /// `LinuxPodSandboxConfig.resources`.
    pub const POD_LINUX_RESOURCES: u32 = 5;
    /// `CreateContainerRequest.pod_sandbox_id`.
    pub const CREATE_POD_ID: u32 = 1;
    /// `CreateContainerRequest.config`.
    pub const CREATE_CONFIG: u32 = 2;
    /// `CreateContainerRequest.sandbox_config`.
    pub const CREATE_SANDBOX_CONFIG: u32 = 3;
    /// `ContainerConfig.metadata`.
    pub const CONTAINER_METADATA: u32 = 1;
    /// `ContainerConfig.envs`.
    pub const CONTAINER_ENVS: u32 = 6;
    /// `ContainerConfig.mounts`.
    pub const CONTAINER_MOUNTS: u32 = 7;
    /// `ContainerConfig.devices`.
    pub const CONTAINER_DEVICES: u32 = 8;
    /// `ContainerConfig.annotations`.
    pub const CONTAINER_ANNOTATIONS: u32 = 10;
    /// `ContainerConfig.linux`.
    pub const CONTAINER_LINUX: u32 = 15;
    /// `LinuxContainerConfig.resources`.
    pub const CONTAINER_LINUX_RESOURCES: u32 = 1;
    /// `UpdateContainerResourcesRequest.container_id`.
    pub const UPDATE_CONTAINER_ID: u32 = 1;
    /// `UpdateContainerResourcesRequest.linux`.
    pub const UPDATE_LINUX: u32 = 2;
    /// `UpdateContainerResourcesRequest.annotations`.
    pub const UPDATE_ANNOTATIONS: u32 = 4;
    /// `UpdatePodSandboxResourcesRequest.pod_sandbox_id`.
    pub const UPDATE_POD_ID: u32 = 1;
    /// `UpdatePodSandboxResourcesRequest.overhead`.
    pub const UPDATE_POD_OVERHEAD: u32 = 2;
    /// `UpdatePodSandboxResourcesRequest.resources`.
    pub const UPDATE_POD_RESOURCES: u32 = 3;
    /// `RestorePodRequest.config`.
    pub const RESTORE_CONFIG: u32 = 2;
    /// `RestorePodRequest.runtime_handler`.
    pub const RESTORE_RUNTIME_HANDLER: u32 = 3;
    /// `RestorePodRequest.container_configs`.
    pub const RESTORE_CONTAINER_CONFIGS: u32 = 5;
    /// `RestorePodResponse.pod_sandbox_id`.
    pub const RESTORED_POD_ID: u32 = 1;
    /// `RestorePodResponse.restored_containers`.
    pub const RESTORED_CONTAINERS: u32 = 2;
    /// `LinuxContainerResources.cpu_period`.
    pub const CPU_PERIOD: u32 = 1;
    /// `LinuxContainerResources.cpu_quota`.
    pub const CPU_QUOTA: u32 = 2;
    /// `LinuxContainerResources.cpu_shares`.
    pub const CPU_SHARES: u32 = 3;
    /// `LinuxContainerResources.memory_limit_in_bytes`.
    pub const MEMORY_LIMIT: u32 = 4;
    /// `LinuxContainerResources.oom_score_adj`.
    pub const OOM_SCORE_ADJ: u32 = 5;
    /// `LinuxContainerResources.cpuset_cpus`.
    pub const CPUSET_CPUS: u32 = 6;
    /// `LinuxContainerResources.cpuset_mems`.
    pub const CPUSET_MEMS: u32 = 7;
    /// `LinuxContainerResources.hugepage_limits`.
    pub const HUGEPAGE_LIMITS: u32 = 8;
    /// `LinuxContainerResources.unified`.
    pub const UNIFIED: u32 = 9;
    /// `LinuxContainerResources.memory_swap_limit_in_bytes`.
    pub const MEMORY_SWAP_LIMIT: u32 = 10;
}

/// A message that takes over its fields from bytes.
trait Merge<'a>: Default {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError>;

    fn merge(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        Reader::new(message).try_for_each(|field| self.field(&field?))
    }

    fn read(message: &'a [u8]) -> Result<Self, WireError> {
        let mut read = Self::default();
        read.merge(message)?;
        Ok(read)
    }
}

fn merge_optional<'a, M: Merge<'a>>(slot: &mut Option<M>, field: &Field<'a>) -> Result<(), WireError> {
    slot.get_or_insert_with(M::default).merge(field.bytes()?)
}

fn merge_entry<'a>(map: &mut TextMap<'a>, field: &Field<'a>) -> Result<(), WireError> {
    let (mut key, mut value) = ("", "");
    for part in Reader::new(field.bytes()?) {
        let part = part?;
        match part.number {
            1 => key = part.text()?,
            2 => value = part.text()?,
            _ => {}
        }
    }
    map.insert(key, value);
    Ok(())
}

/// `PodSandboxMetadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodMetadata<'a> {
    /// Name of the pod.
    pub name: &'a str,
    /// Unique identifier of the pod.
    pub uid: &'a str,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Attempt number of creating the sandbox.
    pub attempt: u32,
}

impl<'a> Merge<'a> for PodMetadata<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            1 => self.name = field.text()?,
            2 => self.uid = field.text()?,
            3 => self.namespace = field.text()?,
            4 => self.attempt = field.uint32()?,
            _ => {}
        }
        Ok(())
    }
}

/// `HugepageLimit`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HugepageLimit<'a> {
    /// Page size such as `2MB`.
    pub page_size: &'a str,
    /// Limit in bytes.
    pub limit: u64,
}

impl<'a> Merge<'a> for HugepageLimit<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            1 => self.page_size = field.text()?,
            2 => self.limit = field.varint()?,
            _ => {}
        }
        Ok(())
    }
}

/// `LinuxContainerResources`; zero and empty mean "not specified".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources<'a> {
    /// Microseconds.
    pub cpu_period: i64,
    /// Microseconds per period; -1 is no limit.
    pub cpu_quota: i64,
    /// Relative weight.
    pub cpu_shares: i64,
    /// Bytes.
    pub memory_limit_in_bytes: i64,
    /// -1000 to 1000.
    pub oom_score_adj: i64,
    /// CPUs as a list of the kernel.
    pub cpuset_cpus: &'a str,
    /// NUMA nodes as a list of the kernel.
    pub cpuset_mems: &'a str,
    /// Limits of huge pages.
    pub hugepage_limits: Vec<HugepageLimit<'a>>,
    /// Control files of cgroup v2 and their text.
    pub unified: TextMap<'a>,
    /// Bytes, memory plus swap.
    pub memory_swap_limit_in_bytes: i64,
}

impl<'a> Merge<'a> for Resources<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::CPU_PERIOD => self.cpu_period = field.int64()?,
            number::CPU_QUOTA => self.cpu_quota = field.int64()?,
            number::CPU_SHARES => self.cpu_shares = field.int64()?,
            number::MEMORY_LIMIT => self.memory_limit_in_bytes = field.int64()?,
            number::OOM_SCORE_ADJ => self.oom_score_adj = field.int64()?,
            number::CPUSET_CPUS => self.cpuset_cpus = field.text()?,
            number::CPUSET_MEMS => self.cpuset_mems = field.text()?,
            number::HUGEPAGE_LIMITS => self.hugepage_limits.push(HugepageLimit::read(field.bytes()?)?),
            number::UNIFIED => merge_entry(&mut self.unified, field)?,
            number::MEMORY_SWAP_LIMIT => self.memory_swap_limit_in_bytes = field.int64()?,
            _ => {}
        }
        Ok(())
    }
}

/// `LinuxPodSandboxConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodLinux<'a> {
    /// Parent cgroup of the pod in cgroupfs style.
    pub cgroup_parent: &'a str,
    /// Overhead of the sandbox itself.
    pub overhead: Option<Resources<'a>>,
    /// Sum of the resources of the pod's containers.
    pub resources: Option<Resources<'a>>,
}

impl<'a> Merge<'a> for PodLinux<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::POD_LINUX_CGROUP_PARENT => self.cgroup_parent = field.text()?,
            number::POD_LINUX_OVERHEAD => merge_optional(&mut self.overhead, field)?,
            number::POD_LINUX_RESOURCES => merge_optional(&mut self.resources, field)?,
            _ => {}
        }
        Ok(())
    }
}

/// `PodSandboxConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodConfig<'a> {
    /// Identity of the pod.
    pub metadata: PodMetadata<'a>,
    /// Labels of the pod.
    pub labels: TextMap<'a>,
    /// Annotations of the pod.
    pub annotations: TextMap<'a>,
    /// Settings of Linux; `None` when the section is missing.
    pub linux: Option<PodLinux<'a>>,
}

impl<'a> Merge<'a> for PodConfig<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::POD_METADATA => self.metadata.merge(field.bytes()?)?,
            number::POD_LABELS => merge_entry(&mut self.labels, field)?,
            number::POD_ANNOTATIONS => merge_entry(&mut self.annotations, field)?,
            number::POD_LINUX => merge_optional(&mut self.linux, field)?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> PodConfig<'a> {
    /// The parent cgroup, empty when there is none.
    pub fn cgroup_parent(&self) -> &'a str {
        self.linux.as_ref().map_or("", |linux| linux.cgroup_parent)
    }
}

/// `KeyValue`; neither part need be text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyValue<'a> {
    /// Name of the variable.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Merge<'a> for KeyValue<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            1 => self.key = field.bytes()?,
            2 => self.value = field.bytes()?,
            _ => {}
        }
        Ok(())
    }
}

/// `ContainerConfig`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerConfig<'a> {
    /// Name of the container.
    pub name: &'a str,
    /// Attempt number of creating the container.
    pub attempt: u32,
    /// Environment, in order and with repeated keys.
    pub envs: Vec<KeyValue<'a>>,
    /// Annotations of the container.
    pub annotations: TextMap<'a>,
    /// `linux.resources`; `None` when either is missing.
    pub resources: Option<Resources<'a>>,
}

impl<'a> Merge<'a> for ContainerConfig<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::CONTAINER_METADATA => {
                for part in Reader::new(field.bytes()?) {
                    let part = part?;
                    match part.number {
                        1 => self.name = part.text()?,
                        2 => self.attempt = part.uint32()?,
                        _ => {}
                    }
                }
            }
            number::CONTAINER_ENVS => self.envs.push(KeyValue::read(field.bytes()?)?),
            number::CONTAINER_ANNOTATIONS => merge_entry(&mut self.annotations, field)?,
            number::CONTAINER_LINUX => {
                for part in Reader::new(field.bytes()?) {
                    let part = part?;
                    if part.number == number::CONTAINER_LINUX_RESOURCES {
                        merge_optional(&mut self.resources, &part)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl<'a> ContainerConfig<'a> {
    /// The variables whose last occurrence is text, each with that value.
    pub fn text_envs(&self) -> TextMap<'a> {
        let last: BTreeMap<&[u8], &[u8]> = self.envs.iter().map(|env| (env.key, env.value)).collect();
        last.into_iter()
            .filter_map(|(key, value)| {
                Some((std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?))
            })
            .collect()
    }
}

macro_rules! readable {
    ($($message:ident),+) => {$(
        impl<'a> $message<'a> {
            /// Reads the message.
            ///
            /// # Errors
            ///
            /// [`WireError`] when it is malformed.
            pub fn read(message: &'a [u8]) -> Result<Self, WireError> {
                <Self as Merge<'a>>::read(message)
            }
        }
    )+};
}

readable!(
    Resources,
    PodConfig,
    ContainerConfig,
    RunPodSandbox,
    CreateContainer,
    UpdateContainerResources,
    UpdatePodSandboxResources,
    RestorePod,
    Identified,
    Restored
);

/// `RunPodSandboxRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunPodSandbox<'a> {
    /// The pod.
    pub config: PodConfig<'a>,
    /// Named runtime configuration.
    pub runtime_handler: &'a str,
}

impl<'a> Merge<'a> for RunPodSandbox<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::RUN_CONFIG => self.config.merge(field.bytes()?)?,
            number::RUN_RUNTIME_HANDLER => self.runtime_handler = field.text()?,
            _ => {}
        }
        Ok(())
    }
}

/// `CreateContainerRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateContainer<'a> {
    /// Sandbox the container is created in.
    pub pod_id: &'a str,
    /// The container.
    pub config: ContainerConfig<'a>,
    /// The pod, as the kubelet sent it for the sandbox.
    pub sandbox_config: PodConfig<'a>,
}

impl<'a> Merge<'a> for CreateContainer<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::CREATE_POD_ID => self.pod_id = field.text()?,
            number::CREATE_CONFIG => self.config.merge(field.bytes()?)?,
            number::CREATE_SANDBOX_CONFIG => self.sandbox_config.merge(field.bytes()?)?,
            _ => {}
        }
        Ok(())
    }
}

/// `UpdateContainerResourcesRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateContainerResources<'a> {
    /// The container.
    pub container_id: &'a str,
    /// New resources.
    pub linux: Option<Resources<'a>>,
    /// Annotations for the runtime.
    pub annotations: TextMap<'a>,
}

impl<'a> Merge<'a> for UpdateContainerResources<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::UPDATE_CONTAINER_ID => self.container_id = field.text()?,
            number::UPDATE_LINUX => merge_optional(&mut self.linux, field)?,
            number::UPDATE_ANNOTATIONS => merge_entry(&mut self.annotations, field)?,
            _ => {}
        }
        Ok(())
    }
}

/// `UpdatePodSandboxResourcesRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdatePodSandboxResources<'a> {
    /// The sandbox.
    pub pod_id: &'a str,
    /// New overhead of the sandbox itself.
    pub overhead: Option<Resources<'a>>,
    /// New sum of the resources of the pod's containers.
    pub resources: Option<Resources<'a>>,
}

impl<'a> Merge<'a> for UpdatePodSandboxResources<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::UPDATE_POD_ID => self.pod_id = field.text()?,
            number::UPDATE_POD_OVERHEAD => merge_optional(&mut self.overhead, field)?,
            number::UPDATE_POD_RESOURCES => merge_optional(&mut self.resources, field)?,
            _ => {}
        }
        Ok(())
    }
}

/// `RestorePodRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestorePod<'a> {
    /// The pod.
    pub config: PodConfig<'a>,
    /// Named runtime configuration.
    pub runtime_handler: &'a str,
    /// Its containers.
    pub container_configs: Vec<ContainerConfig<'a>>,
}

impl<'a> Merge<'a> for RestorePod<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::RESTORE_CONFIG => self.config.merge(field.bytes()?)?,
            number::RESTORE_RUNTIME_HANDLER => self.runtime_handler = field.text()?,
            number::RESTORE_CONTAINER_CONFIGS => {
                self.container_configs.push(ContainerConfig::read(field.bytes()?)?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A request or response whose field 1 is the identifier of a pod sandbox or container: the
/// requests to start, stop, remove or update one, the responses of RunPodSandbox and
/// CreateContainer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identified<'a> {
    /// The identifier.
    pub id: &'a str,
}

impl<'a> Merge<'a> for Identified<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        if field.number == 1 {
            self.id = field.text()?;
        }
        Ok(())
    }
}

/// `RestorePodResponse`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored<'a> {
    /// The new sandbox.
    pub pod_id: &'a str,
    /// Its containers.
    pub containers: Vec<RestoredContainer<'a>>,
}

impl<'a> Merge<'a> for Restored<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            number::RESTORED_POD_ID => self.pod_id = field.text()?,
            number::RESTORED_CONTAINERS => self.containers.push(RestoredContainer::read(field.bytes()?)?),
            _ => {}
        }
        Ok(())
    }
}

/// `RestoredContainer`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoredContainer<'a> {
    /// Name of the container.
    pub name: &'a str,
    /// Its identifier.
    pub container_id: &'a str,
}

impl<'a> Merge<'a> for RestoredContainer<'a> {
    fn field(&mut self, field: &Field<'a>) -> Result<(), WireError> {
        match field.number {
            1 => self.name = field.text()?,
            2 => self.container_id = field.text()?,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
