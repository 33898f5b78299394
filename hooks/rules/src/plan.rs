//! What rules answer: wishes with their reasons, and what stood in a rule's way.

use std::fmt;

use koord_extension::cpuset::CpuSet;

use crate::field::{Field, Level};

/// What a field shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number in the unit of the field; -1 = unlimited, where the field knows that.
    Integer(i64),
    /// CPUs; the empty set clears what was asked.
    Cpus(CpuSet),
    /// Text, as the kernel or the CRI has it.
    Text(String),
    /// A device node of the host, given to a container at the same path.
    Device(DeviceNode),
    /// A bind mount.
    Mount(BindMount),
    /// The setting shall not be there at all: no cookie, no group of its own.
    Unset,
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(number) => write!(formatter, "{number}"),
            Value::Cpus(cpus) => write!(formatter, "{cpus}"),
            Value::Text(text) => formatter.write_str(text),
            Value::Device(device) => {
                write!(formatter, "c {}:{} {}", device.major, device.minor, device.permissions)
            }
            Value::Mount(mount) => write!(formatter, "{}", mount.host_path),
            Value::Unset => formatter.write_str(""),
        }
    }
}

/// A character device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNode {
    /// Path on the host and in the container.
    pub path: String,
    /// Number of the driver.
    pub major: u32,
    /// Number of the device at its driver.
    pub minor: u32,
    /// Rights in the device cgroup: letters of `rwm`.
    pub permissions: &'static str,
    /// Mode of the node in the container, such as `0o666`.
    pub file_mode: u32,
}

/// A bind mount of a path of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMount {
    /// Path on the host.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Whether mounts below it come along (`rbind`).
    pub recursive: bool,
    /// Mode of the host's directory, which has to be made anew, empty, before the container starts.
    pub create_directory: Option<u32>,
}

/// A rule. The order of the variants is the order of precedence: of two rules that wish for one field of one
/// directory, the earlier one is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// CPUs of pods, and no quota for those that own CPUs.
    CpusetAllocator,
    /// Shares, quota and memory limit from batch and mid resources.
    BatchResource,
    /// Quota by the speed of the node's CPUs.
    CpuNormalization,
    /// Who gives way to whom on a CPU.
    GroupIdentity,
    /// Who may share a core with whom.
    CoreSched,
    /// Quota saved up for short peaks.
    CpuBurst,
    /// Protection and throttling of memory.
    MemoryQos,
    /// Cache and memory bandwidth groups.
    Resctrl,
    /// Order of the out-of-memory killer.
    OomScoreAdj,
    /// Throttling and weights of disks.
    BlkioQos,
    /// GPUs of a container.
    GpuEnvInject,
    /// RDMA devices of a container.
    RdmaDeviceInject,
    /// Slices of the scheduler.
    SchedulerSlice,
    /// Bounds of the CPU frequency.
    CpuUclamp,
}

impl Rule {
    /// All rules, in the order of precedence.
    pub const ALL: [Rule; 14] = [
        Rule::CpusetAllocator,
        Rule::BatchResource,
        Rule::CpuNormalization,
        Rule::GroupIdentity,
        Rule::CoreSched,
        Rule::CpuBurst,
        Rule::MemoryQos,
        Rule::Resctrl,
        Rule::OomScoreAdj,
        Rule::BlkioQos,
        Rule::GpuEnvInject,
        Rule::RdmaDeviceInject,
        Rule::SchedulerSlice,
        Rule::CpuUclamp,
    ];

    /// The name that is shown as the owner of a value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::CpusetAllocator => "CPUSetAllocator",
            Rule::BatchResource => "BatchResource",
            Rule::CpuNormalization => "CPUNormalization",
            Rule::GroupIdentity => "GroupIdentity",
            Rule::CoreSched => "CoreSched",
            Rule::CpuBurst => "CPUBurst",
            Rule::MemoryQos => "MemoryQOS",
            Rule::Resctrl => "Resctrl",
            Rule::OomScoreAdj => "OOMScoreAdj",
            Rule::BlkioQos => "BlkIOQOS",
            Rule::GpuEnvInject => "GPUEnvInject",
            Rule::RdmaDeviceInject => "RDMADeviceInject",
            Rule::SchedulerSlice => "SchedulerSlice",
            Rule::CpuUclamp => "CPUUclamp",
        }
    }

    /// The rule of that name.
    pub fn from_name(name: &str) -> Option<Rule> {
        Rule::ALL.into_iter().find(|rule| rule.as_str() == name)
    }

    /// The fields that a rule owns at most at a level, without those that there is one of per disk, variable,
    /// device or mount: see [`Rule::may_own`].
    ///
    /// A value that a rule set and wishes no longer, because the policy or the mode changed, is to be put back;
    /// this is the list of what may have to be.
    pub const fn releases(self, level: Level) -> &'static [Field] {
        use Field::*;
        match (self, level) {
            (Rule::CpusetAllocator, Level::HostApplication) => &[CpusetCpus],
            (Rule::CpusetAllocator, Level::Pod) => &[CpuQuota],
            (Rule::CpusetAllocator, Level::Container) => &[CpusetCpus, CpuQuota],
            (Rule::BatchResource, Level::Pod | Level::Container) => &[CpuShares, CpuQuota, MemoryLimit],
            (Rule::CpuNormalization, Level::Pod | Level::Container) => &[CpuQuota],
            (Rule::GroupIdentity, Level::QosDirectory) => &[CpuBvtWarpNs, CpuIdle],
            (Rule::GroupIdentity, Level::Pod | Level::HostApplication) => &[CpuBvtWarpNs, CpuIdle, CpuShares],
            (Rule::GroupIdentity, Level::Container) => &[CpuBvtWarpNs],
            (Rule::CoreSched, Level::QosDirectory | Level::Pod) => &[CpuIdle],
            (Rule::CoreSched, Level::Container) => &[CoreSchedGroup],
            (Rule::CpuBurst, Level::Pod | Level::Container) => &[CpuBurst],
            (Rule::MemoryQos, Level::QosDirectory) => {
                &[MemoryMin, MemoryLow, MemoryUsePriorityOom, MemoryPriority, MemoryOomGroup]
            }
            (Rule::MemoryQos, Level::Pod) => &[
                MemoryMin,
                MemoryLow,
                MemoryOomGroup,
                MemoryUsePriorityOom,
                MemoryPriority,
                MemoryWmarkRatio,
                MemoryWmarkScaleFactor,
                MemoryWmarkMinAdj,
                MemoryPageCacheLimitEnable,
                MemoryPageCacheLimitSize,
                MemoryPageCacheLimitSync,
            ],
            (Rule::MemoryQos, Level::Container) => &[
                MemoryMin,
                MemoryLow,
                MemoryHigh,
                MemoryOomGroup,
                MemoryUsePriorityOom,
                MemoryPriority,
                MemoryWmarkRatio,
                MemoryWmarkScaleFactor,
                MemoryWmarkMinAdj,
            ],
            (Rule::Resctrl, Level::Pod | Level::Container) => &[ResctrlClass],
            (Rule::OomScoreAdj, Level::Container) => &[OomScoreAdj],
            (Rule::SchedulerSlice, Level::Container) => &[SchedulerSlice],
            (Rule::CpuUclamp, Level::Pod) => &[CpuUclampMin, CpuUclampMax],
            _ => &[],
        }
    }

    /// Whether a rule may own a field at a level.
    pub fn may_own(self, field: &Field, level: Level) -> bool {
        match field {
            Field::Env(_) | Field::Device(_) | Field::Mount(_) => {
                level == Level::Container && matches!(self, Rule::GpuEnvInject | Rule::RdmaDeviceInject)
            }
            field if field.disk().is_some() => {
                self == Rule::BlkioQos && matches!(level, Level::Node | Level::QosDirectory | Level::Pod)
            }
            field => self.releases(level).contains(field),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One field, the value it shall have, who says so and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// What to set.
    pub field: Field,
    /// To what.
    pub value: Value,
    /// Who wishes it.
    pub rule: Rule,
    /// Why, in words and with numbers, without the rule's name.
    pub reason: String,
}

/// What follows from a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The rule did what it could; the rest is left as the kubelet asked.
    Skipped,
    /// Without what is missing the container must not start, if the policy is to fail closed: it was given
    /// devices and would run without them.
    Refuses,
}

/// Something that kept a rule from doing its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The rule.
    pub rule: Rule,
    /// What is wrong and what follows.
    pub message: String,
    /// How bad it is.
    pub severity: Severity,
}

/// Wishes of all rules for one directory: at most one for each field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What shall be, in the order of precedence of the rules.
    pub wishes: Vec<Wish>,
    /// What stood in the way; the other rules went on.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// The wish for a field.
    pub fn get(&self, field: &Field) -> Option<&Wish> {
        self.wishes.iter().find(|wish| wish.field == *field)
    }

    /// The number wished for a field; `None` if there is no wish or no number.
    pub fn integer(&self, field: &Field) -> Option<i64> {
        match self.get(field)?.value {
            Value::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// Adds a wish unless a rule of higher precedence has one for the field.
    pub(crate) fn wish(&mut self, rule: Rule, field: Field, value: Value, reason: impl FnOnce() -> String) {
        if self.get(&field).is_none() {
            self.wishes.push(Wish { field, value, rule, reason: reason() });
        }
    }

    /// [`Plan::wish`] for a number.
    pub(crate) fn number(&mut self, rule: Rule, field: Field, value: i64, reason: impl FnOnce() -> String) {
        self.wish(rule, field, Value::Integer(value), reason);
    }

    /// Adds a problem.
    pub(crate) fn problem(&mut self, rule: Rule, message: impl Into<String>) {
        self.problems.push(Problem { rule, message: message.into(), severity: Severity::Skipped });
    }

    /// Adds a problem that a container must not start with.
    pub(crate) fn refusal(&mut self, rule: Rule, message: impl Into<String>) {
        self.problems.push(Problem { rule, message: message.into(), severity: Severity::Refuses });
    }
}
