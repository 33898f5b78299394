//! Amounts of CPU and memory.

use koord_extension::units::{Bytes, MilliCpu, Percent};

/// CPU and memory together; the two resources that are predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// CPU.
    pub cpu: MilliCpu,
    /// Memory.
    pub memory: Bytes,
}

impl Resources {
    /// Nothing of either.
    pub const ZERO: Resources = Resources { cpu: MilliCpu::ZERO, memory: Bytes::ZERO };

    /// The sums, held at the ends of the range.
    #[must_use]
    pub const fn plus(self, other: Resources) -> Resources {
        Resources {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    /// What is left of each when `other` is taken away; nothing where more is taken than there is.
    #[must_use]
    pub fn less(self, other: Resources) -> Resources {
        Resources {
            cpu: self.cpu.saturating_sub(other.cpu).max(MilliCpu::ZERO),
            memory: self.memory.saturating_sub(other.memory).max(Bytes::ZERO),
        }
    }

    /// The smaller amount of each.
    #[must_use]
    pub fn smaller(self, other: Resources) -> Resources {
        Resources { cpu: self.cpu.min(other.cpu), memory: self.memory.min(other.memory) }
    }

    /// The larger amount of each.
    #[must_use]
    pub fn larger(self, other: Resources) -> Resources {
        Resources { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }

    /// So many percent of each, truncated.
    #[must_use]
    pub const fn percent(self, share: Percent) -> Resources {
        Resources { cpu: self.cpu.percent(share), memory: self.memory.percent(share) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(cpu: i64, memory: i64) -> Resources {
        Resources { cpu: MilliCpu(cpu), memory: Bytes(memory) }
    }

    #[test]
    fn each_resource_is_reckoned_alone() {
        assert_eq!(of(1, 20).plus(of(2, 30)), of(3, 50));
        assert_eq!(of(1, 20).less(of(2, 5)), of(0, 15));
        assert_eq!(of(1, 20).smaller(of(2, 5)), of(1, 5));
        assert_eq!(of(1, 20).larger(of(2, 5)), of(2, 20));
        assert_eq!(of(5, 113_133_819).percent(Percent(110)), of(5, 124_447_200));
        assert_eq!(of(i64::MAX, 0).plus(of(1, 0)), of(i64::MAX, 0));
    }
}
