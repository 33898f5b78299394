//! The time at which a counter was read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// A clock in nanoseconds that no step of the wall clock moves.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// `CLOCK_BOOTTIME`.
    #[default]
    Kernel,
    /// One that its owner moves: for tests and for recorded files.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that stands at `nanoseconds`.
    pub fn manual(nanoseconds: u64) -> Clock {
        Clock::Manual(Arc::new(AtomicU64::new(nanoseconds)))
    }

    /// Nanoseconds since boot.
    pub fn now(&self) -> u64 {
        match self {
            Clock::Kernel => {
                let time = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
            }
            Clock::Manual(time) => time.load(Ordering::Relaxed),
        }
    }

    /// Moves a manual clock on; the kernel's goes by itself.
    pub fn advance(&self, nanoseconds: u64) {
        if let Clock::Manual(time) = self {
            time.fetch_add(nanoseconds, Ordering::Relaxed);
        }
    }
}
