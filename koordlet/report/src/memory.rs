//! What counts as memory in use.

use koord_extension::annotation::MemoryCollectPolicy;
use koord_usage::kind::Kind;

/// How memory in use is measured. Of a node, "without page cache" is total less available, which includes
/// what the kernel cannot give back; of a pod it is anonymous and unevictable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MemoryMeasure {
    /// Without page cache.
    #[default]
    WithoutPageCache,
    /// With the page cache that is in use, which few kernels tell.
    WithHotPageCache,
    /// With all page cache.
    WithPageCache,
}

impl MemoryMeasure {
    /// As NodeMetric names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            MemoryMeasure::WithoutPageCache => "usageWithoutPageCache",
            MemoryMeasure::WithHotPageCache => "usageWithHotPageCache",
            MemoryMeasure::WithPageCache => "usageWithPageCache",
        }
    }

    /// The measure of a policy; none if the policy is not stated or not known.
    pub const fn of_policy(policy: &MemoryCollectPolicy) -> Option<MemoryMeasure> {
        match policy {
            MemoryCollectPolicy::UsageWithoutPageCache => Some(MemoryMeasure::WithoutPageCache),
            MemoryCollectPolicy::UsageWithHotPageCache => Some(MemoryMeasure::WithHotPageCache),
            MemoryCollectPolicy::UsageWithPageCache => Some(MemoryMeasure::WithPageCache),
            MemoryCollectPolicy::Unset | MemoryCollectPolicy::Other(_) => None,
        }
    }

    /// The series of the node.
    pub const fn of_node(self) -> Kind {
        match self {
            MemoryMeasure::WithoutPageCache => Kind::NodeMemoryUsage,
            MemoryMeasure::WithHotPageCache => Kind::NodeMemoryWithHotPageUsage,
            MemoryMeasure::WithPageCache => Kind::NodeMemoryUsageWithPageCache,
        }
    }

    /// The series of what is neither a pod nor a host application.
    pub const fn of_system(self) -> Kind {
        match self {
            MemoryMeasure::WithoutPageCache => Kind::SystemMemoryUsage,
            MemoryMeasure::WithHotPageCache => Kind::SystemMemoryWithHotPageUsage,
            MemoryMeasure::WithPageCache => Kind::SystemMemoryUsageWithPageCache,
        }
    }

    /// The series of a pod.
    pub const fn of_pod(self) -> Kind {
        match self {
            MemoryMeasure::WithoutPageCache => Kind::PodMemoryUsage,
            MemoryMeasure::WithHotPageCache => Kind::PodMemoryWithHotPageUsage,
            MemoryMeasure::WithPageCache => Kind::PodMemoryUsageWithPageCache,
        }
    }

    /// The series of a host application.
    pub const fn of_host_application(self) -> Kind {
        match self {
            MemoryMeasure::WithoutPageCache => Kind::HostApplicationMemoryUsage,
            MemoryMeasure::WithHotPageCache => Kind::HostApplicationMemoryWithHotPageUsage,
            MemoryMeasure::WithPageCache => Kind::HostApplicationMemoryUsageWithPageCache,
        }
    }
}
