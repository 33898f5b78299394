//! The kernel's event counters, bound to a control group and a CPU.

use std::fs::File;
use std::io;
use std::time::Duration;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};

use super::{Counted, CounterGroup, CounterSource};

/// Which events are counted as cycles and as instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PerfEvents {
    /// Those of the processor.
    #[default]
    Hardware,
    /// Nanoseconds of CPU and context switches, which every machine has: to try the counters out where the processor's are
    /// not there.
    Software,
}

impl PerfEvents {
    /// One counter, off. User and kernel are both counted.
    fn builder(self, group: &File, cpu: usize, is_leader: bool) -> Builder<'_> {
        let mut builder = match (self, is_leader) {
            (PerfEvents::Hardware, true) => Builder::new(Hardware::CPU_CYCLES),
            (PerfEvents::Hardware, false) => Builder::new(Hardware::INSTRUCTIONS),
            (PerfEvents::Software, true) => Builder::new(Software::CPU_CLOCK),
            (PerfEvents::Software, false) => Builder::new(Software::CONTEXT_SWITCHES),
        };
        builder.observe_cgroup(group).one_cpu(cpu).include_kernel().include_hv();
        // The leader's switch is for both.
        builder.enabled(!is_leader);
        builder
    }
}

impl CounterSource for PerfEvents {
    fn open(&self, group: &File, cpu: u32) -> io::Result<Box<dyn CounterGroup>> {
        let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
        let mut cycles = self.builder(group, cpu, true).build()?;
        let instructions = self.builder(group, cpu, false).build_with_group(&mut cycles)?;
        cycles.enable_group()?;
        Ok(Box::new(PerfGroup { cycles, instructions }))
    }
}

/// Two counters that are on together.
#[derive(Debug)]
struct PerfGroup {
    cycles: Counter,
    instructions: Counter,
}

impl CounterGroup for PerfGroup {
    fn read(&mut self) -> io::Result<Counted> {
        self.cycles.disable_group()?;
        let cycles = self.cycles.read_full()?;
        let instructions = self.instructions.read_full()?;
        Ok(Counted {
            cycles: cycles.count(),
            instructions: instructions.count(),
            enabled: cycles.time_enabled().unwrap_or(Duration::ZERO),
            running: cycles.time_running().unwrap_or(Duration::ZERO),
        })
    }
}
