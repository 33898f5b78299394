use super::*;
use crate::collect::fake::{FakeNode, VERSIONS};
use crate::collect::file::Descriptors;

const SECOND: u64 = 1_000_000_000;
const GROUP: &str = "kubepods/poda";
const MEMORY: GroupMemory = GroupMemory {
    inactive_anon: 100,
    active_anon: 200,
    inactive_file: 2000,
    active_file: 1000,
    unevictable: 7,
};

struct Bench {
    node: FakeNode,
    trees: Trees,
    room: Descriptors,
    buffer: Buffer,
    clock: Clock,
    meter: GroupMeter,
}

impl Bench {
    fn new(version: CgroupVersion) -> Bench {
        let node = FakeNode::new(version);
        node.memory(GROUP, MEMORY);
        Bench {
            trees: Trees::new(node.layout()),
            node,
            room: Descriptors::new(100),
            buffer: Buffer::new(),
            clock: Clock::manual(SECOND),
            meter: GroupMeter::new(version, Importance::Needed),
        }
    }

    fn read(&mut self, nanoseconds: u64, with_memory: bool) -> Result<Option<GroupUsage>, ReadError> {
        self.clock.advance(nanoseconds);
        let mut reader = Reader {
            trees: &mut self.trees,
            room: &self.room,
            buffer: &mut self.buffer,
            clock: &self.clock,
            pause: Duration::from_secs(20),
        };
        self.meter.read(&mut reader, GROUP, with_memory)
    }

    fn cpu(&self, nanoseconds: u64, periods: u64, throttled: u64) {
        self.node.cpu(GROUP, nanoseconds, Throttling { periods, throttled });
    }
}

#[test]
fn rate_memory_and_throttling_of_a_group() {
    for version in VERSIONS {
        let mut bench = Bench::new(version);
        bench.cpu(1_000_000_000, 5, 1);
        assert_eq!(bench.read(SECOND, true), Ok(None));
        bench.cpu(1_500_000_000, 15, 5);
        let usage = bench.read(SECOND, true).expect("a read").expect("a rate");
        let expected =
            GroupUsage { cores: 0.5, cpu_time: 1_500_000_000, throttled: Some(0.4), memory: Some(MEMORY) };
        assert_eq!(usage, expected);
        bench.cpu(1_750_000_000, 15, 5);
        let usage = bench.read(SECOND / 2, false).expect("a read").expect("a rate");
        assert_eq!((usage.cores, usage.throttled, usage.memory), (0.5, Some(0.0), None));
        assert_eq!(bench.meter.open_files(), if version == CgroupVersion::V1 { 3 } else { 2 });
    }
}

#[test]
fn a_pause_of_25_seconds_is_a_new_start() {
    for version in VERSIONS {
        let mut bench = Bench::new(version);
        bench.cpu(0, 0, 0);
        assert_eq!(bench.read(SECOND, true), Ok(None));
        bench.cpu(SECOND, 0, 0);
        assert_eq!(bench.read(25 * SECOND, true), Ok(None));
        bench.cpu(2 * SECOND, 0, 0);
        assert_eq!(bench.read(SECOND, true).expect("a read").expect("a rate").cores, 1.0);
    }
}

#[test]
fn memory_that_does_not_read_makes_the_group_be_left_out() {
    for version in VERSIONS {
        let mut bench = Bench::new(version);
        bench.cpu(0, 0, 0);
        assert_eq!(bench.read(SECOND, true), Ok(None));
        bench.node.group(Controller::Memory, GROUP, "memory.stat", "anon 1\n");
        bench.cpu(SECOND, 0, 0);
        assert!(matches!(bench.read(SECOND, true), Err(ReadError::Text(_))));
        bench.node.memory(GROUP, MEMORY);
        // The time of the failed pass is in this rate.
        bench.cpu(3 * SECOND, 0, 0);
        assert_eq!(bench.read(SECOND, true).expect("a read").expect("a rate").cores, 1.5);
    }
}

#[test]
fn a_group_that_is_made_again_starts_anew() {
    for version in VERSIONS {
        let mut bench = Bench::new(version);
        bench.cpu(5 * SECOND, 9, 9);
        assert_eq!(bench.read(SECOND, true), Ok(None));
        bench.node.remove(GROUP);
        // A plain file can still be read when its folder is gone; the kernel's cannot.
        bench.meter = GroupMeter { rate: bench.meter.rate, ..GroupMeter::new(version, Importance::Needed) };
        assert_eq!(bench.read(SECOND, true), Err(ReadError::Gone));
        bench.cpu(SECOND, 1, 0);
        bench.node.memory(GROUP, MEMORY);
        assert_eq!(bench.read(SECOND, true), Ok(None));
        bench.cpu(2 * SECOND, 2, 0);
        let usage = bench.read(SECOND, true).expect("a read").expect("a rate");
        assert_eq!((usage.cores, usage.throttled), (1.0, Some(0.0)));
    }
}

#[test]
fn usage_is_told_without_throttling() {
    for version in VERSIONS {
        let mut bench = Bench::new(version);
        bench.cpu(0, 0, 0);
        bench.read(SECOND, true).expect("a read");
        match version {
            CgroupVersion::V1 => bench.node.group(Controller::Cpu, GROUP, "cpu.stat", "nr_periods 1\n"),
            CgroupVersion::V2 => {
                let text = "usage_usec 0\nuser_usec 0\nsystem_usec 0\n";
                bench.node.group(Controller::Cpu, GROUP, "cpu.stat", text);
            }
        }
        let usage = bench.read(SECOND, false).expect("a read").expect("a rate");
        assert_eq!((usage.cores, usage.throttled), (0.0, None));
    }
}
