use std::time::Duration;

use koord_cgroup::layout::Controller;
use koord_extension::units::MilliCpu;

use super::*;
use crate::collect::clock::Clock;
use crate::collect::fake::{FakeNode, VERSIONS, inventory};
use crate::collect::file::{Buffer, Descriptors};
use crate::collect::group::Trees;
use crate::collect::text::Throttling;
use crate::time::Tick;

const SECOND: u64 = 1_000_000_000;

#[test]
fn limits_by_quota_and_set() {
    let table = [
        (Some(250_000), 100_000, Some(8), Some(2500)),
        (Some(1_000_000), 100_000, Some(8), Some(8000)),
        (None, 100_000, Some(8), Some(8000)),
        (Some(150_000), 50_000, Some(2), Some(2000)),
        (Some(12_345), 100_000, Some(8), Some(123)),
        (Some(1000), 0, Some(8), Some(8000)),
        (Some(250_000), 100_000, None, Some(2500)),
        (None, 100_000, None, None),
    ];
    for (quota, period, set, limit) in table {
        assert_eq!(real_limit(quota_milli(quota, period), set), limit, "{quota:?} {period} {set:?}");
    }
}

#[test]
fn usage_is_cut_to_milliseconds() {
    let usage = |amount, nanoseconds| usage_milli(Growth { amount, nanoseconds });
    assert_eq!(usage(1_234_567_890, SECOND), 1234.0);
    assert_eq!(usage(999_999, SECOND), 0.0);
    assert_eq!(usage(500_000_000, SECOND / 2), 1000.0);
}

#[test]
fn quotas_of_version_2() {
    assert_eq!(cpu_max(b"max 100000\n"), Ok((None, 100_000)));
    assert_eq!(cpu_max(b"250000 100000\n"), Ok((Some(250_000), 100_000)));
    for text in ["", "max", "max x", "x 100000", "-1 100000"] {
        assert!(cpu_max(text.as_bytes()).is_err(), "{text:?}");
    }
}

struct Bench {
    node: FakeNode,
    trees: Trees,
    room: Descriptors,
    buffer: Buffer,
    clock: Clock,
    collector: BestEffortCollector,
}

impl Bench {
    fn new(version: CgroupVersion) -> Bench {
        let node = FakeNode::new(version);
        let group = node.layout().qos_dir(KubeQos::BestEffort);
        Bench {
            trees: Trees::new(node.layout()),
            node,
            room: Descriptors::new(100),
            buffer: Buffer::new(),
            clock: Clock::manual(SECOND),
            collector: BestEffortCollector::new(group, version),
        }
    }

    fn group(&self) -> String {
        self.collector.group.as_str().to_owned()
    }

    fn quota(&self, quota: Option<u64>, period: u64) {
        let group = self.group();
        match self.node.version() {
            CgroupVersion::V1 => {
                let quota = quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string());
                self.node.group(Controller::Cpu, &group, "cpu.cfs_quota_us", &format!("{quota}\n"));
                self.node.group(Controller::Cpu, &group, "cpu.cfs_period_us", &format!("{period}\n"));
            }
            CgroupVersion::V2 => {
                let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
                self.node.group(Controller::Cpu, &group, "cpu.max", &format!("{quota} {period}\n"));
            }
        }
    }

    fn set(&self, group: &str, cpus: &str) {
        let file = match self.node.version() {
            CgroupVersion::V1 => "cpuset.cpus",
            CgroupVersion::V2 => "cpuset.cpus.effective",
        };
        self.node.group(Controller::Cpuset, group, file, &format!("{cpus}\n"));
    }

    /// Limit, request and usage.
    fn pass(&mut self, inventory: &Inventory) -> Result<[Option<f64>; 3], ReadError> {
        self.clock.advance(SECOND);
        let mut pass = Pass::new(Tick(1));
        let mut reader = Reader {
            trees: &mut self.trees,
            room: &self.room,
            buffer: &mut self.buffer,
            clock: &self.clock,
            pause: Duration::from_secs(20),
        };
        self.collector.collect(inventory, &mut reader, &mut pass)?;
        Ok(TierSeries::ALL.map(|series| pass.value(&Object::Tier(series), Kind::NodeBe)))
    }
}

#[test]
fn the_tier_of_a_node() {
    for version in VERSIONS {
        let mut bench = Bench::new(version);
        let group = bench.group();
        bench.node.cpu(&group, 0, Throttling::default());
        bench.quota(Some(250_000), 100_000);
        bench.set(&group, "0-7");
        let none = Inventory::default();
        let first = bench.pass(&none);
        assert_eq!(first, Ok([Some(2500.0), Some(0.0), Some(0.0)]));
        // Minus zero is equal to zero, and is written otherwise.
        assert!(first.is_ok_and(|samples| samples[1].is_some_and(f64::is_sign_positive)));
        bench.node.cpu(&group, 1_234_567_000, Throttling::default());
        bench.quota(None, 100_000);
        assert_eq!(bench.pass(&none), Ok([Some(8000.0), Some(0.0), Some(1234.0)]));
        // A container with a smaller set narrows the tier.
        let mut pod = bench.node.pod(KubeQos::BestEffort, "a", &["c", "d"]);
        pod.batch_cpu_request = MilliCpu(1500);
        bench.set(pod.containers[0].cgroup.as_str(), "2-3");
        bench.set(pod.containers[1].cgroup.as_str(), "0-6");
        bench.quota(Some(150_000), 50_000);
        let mut other = bench.node.pod(KubeQos::Burstable, "b", &["e"]);
        other.batch_cpu_request = MilliCpu(300);
        bench.set(other.containers[0].cgroup.as_str(), "1");
        let all = inventory([pod, other]);
        assert_eq!(bench.pass(&all), Ok([Some(2000.0), Some(1500.0), Some(0.0)]));
        let files = if version == CgroupVersion::V1 { 6 } else { 5 };
        assert_eq!((bench.room.open(), bench.collector.open_files()), (files, files));
        assert_eq!(bench.pass(&none), Ok([Some(3000.0), Some(0.0), Some(0.0)]));
    }
}

#[test]
fn requests_are_those_of_the_raw_class() {
    let mut bench = Bench::new(CgroupVersion::V2);
    let mut pods = ["a", "b"].map(|uid| bench.node.pod(KubeQos::Burstable, uid, &[]));
    for pod in &mut pods {
        pod.batch_cpu_request = MilliCpu(700);
    }
    pods[0].qos = Some(QosClass::Be);
    assert_eq!(bench.pass(&inventory(pods)), Ok([Some(0.0), Some(700.0), Some(0.0)]));
}

#[test]
fn without_the_group_all_is_zero() {
    for version in VERSIONS {
        let mut bench = Bench::new(version);
        let none = Inventory::default();
        assert_eq!(bench.pass(&none), Ok([Some(0.0), Some(0.0), Some(0.0)]));
        // It comes: its sets and quota may be missing still.
        let group = bench.group();
        bench.node.cpu(&group, 0, Throttling::default());
        assert_eq!(bench.pass(&none), Ok([None, Some(0.0), Some(0.0)]));
        bench.set(&group, "");
        assert_eq!(bench.pass(&none), Ok([None, Some(0.0), Some(0.0)]), "an empty set is none");
        bench.set(&group, "nonsense");
        assert!(matches!(bench.pass(&none), Err(ReadError::Text(_))));
    }
}
