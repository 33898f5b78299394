use std::time::Duration;

use koord_extension::cpuset::CpuSet;
use koord_extension::qos::KubeQos;
use proptest::prelude::*;

use super::order::{Change, order};
use super::*;
use crate::driver::CgroupDriver;
use crate::testing::{ManualClock, ModelKernel};

const V1: CgroupVersion = CgroupVersion::V1;
const V2: CgroupVersion = CgroupVersion::V2;
const POD: &str = "kubepods/besteffort/podu";
const CONTAINER: &str = "kubepods/besteffort/podu/c";

struct Bed {
    kernel: ModelKernel,
    clock: ManualClock,
    executor: Executor,
}

fn bed(version: CgroupVersion) -> Bed {
    let kernel = ModelKernel::new(version, 8);
    kernel.make(CONTAINER);
    let clock = ManualClock::default();
    let layout = Layout::new("/model", version, CgroupDriver::Cgroupfs, "").unwrap().with_page_size(4096);
    let executor = Executor::builder(layout).files(kernel.clone()).clock(clock.clone()).build();
    Bed { kernel, clock, executor }
}

impl Bed {
    fn write(&self, path: &str, resource: Resource, value: impl Into<Value>) -> Write {
        let path = CgroupPath::new(path, self.executor.layout()).unwrap();
        Write { path, resource, value: value.into(), owner: Owner::new("rule") }
    }

    fn apply(&self, path: &str, resource: Resource, value: impl Into<Value>) -> Written {
        self.executor.apply(&[self.write(path, resource, value)]).remove(0)
    }

    fn log(&self) -> Vec<String> {
        let log = self.kernel.take_log();
        log.into_iter().map(|(path, file, text)| format!("{path} {file}={}", text.trim())).collect()
    }

    fn text(&self, path: &str, file: &str) -> String {
        self.kernel.text(path, file).unwrap()
    }
}

fn cpus(text: &str) -> Value {
    Value::Cpus(CpuSet::parse(text).unwrap())
}

fn steps(changes: &[(&str, Resource, Value, Value)]) -> Vec<String> {
    let layout = Layout::new("/", V1, CgroupDriver::Cgroupfs, "").unwrap();
    let changes: Vec<Change> = changes
        .iter()
        .map(|(path, resource, before, wanted)| Change {
            path: CgroupPath::new(path, &layout).unwrap(),
            resource: *resource,
            before: Some(before.clone()),
            wanted: wanted.clone(),
        })
        .collect();
    order(&changes)
        .iter()
        .map(|step| format!("{} {}", changes[step.change].path.name(), step.value))
        .collect()
}

#[test]
fn quotas_widen_from_the_top_and_narrow_from_the_bottom() {
    let quota = |path, before: i64, wanted: i64| {
        (path, Resource::CpuQuota, Value::Integer(before), Value::Integer(wanted))
    };
    assert_eq!(steps(&[quota(CONTAINER, 10_000, -1), quota(POD, 10_000, -1)]), ["podu -1", "c -1"]);
    assert_eq!(steps(&[quota(POD, -1, 10_000), quota(CONTAINER, -1, 10_000)]), ["c 10000", "podu 10000"]);
    assert_eq!(
        steps(&[quota(POD, -1, 10_000), quota("kubepods/besteffort", 5_000, 20_000)]),
        ["besteffort 20000", "podu 10000"]
    );
}

#[test]
fn cpu_sets_that_do_both_hold_the_union_on_the_way() {
    let set = |path, before: &str, wanted: &str| (path, Resource::CpusetCpus, cpus(before), cpus(wanted));
    assert_eq!(
        steps(&[set(POD, "0-3", "2-5"), set(CONTAINER, "0-3", "2-5")]),
        ["podu 0-5", "c 0-5", "c 2-5", "podu 2-5"]
    );
    // Without a relative there is nothing to stay compatible with.
    assert_eq!(steps(&[set(POD, "0-3", "2-5")]), ["podu 2-5"]);
    assert_eq!(steps(&[set(POD, "0-3", "0-5"), set(CONTAINER, "0-3", "0-1")]), ["podu 0-5", "c 0-1"]);
}

#[test]
fn protections_that_shrink_are_written_last() {
    let low = |path, before: i64, wanted: i64| {
        (path, Resource::MemoryMin, Value::Integer(before), Value::Integer(wanted))
    };
    assert_eq!(
        steps(&[low(POD, 2_097_152, 1_048_576), low(CONTAINER, 0, 1_048_576)]),
        ["c 1048576", "podu 1048576"]
    );
}

#[test]
fn a_batch_over_levels_is_taken_by_a_strict_kernel() {
    let bed = bed(V1);
    let all = |quota: i64, set: &str, order: [&str; 3]| {
        order
            .iter()
            .flat_map(|path| {
                [bed.write(path, Resource::CpuQuota, quota), bed.write(path, Resource::CpusetCpus, cpus(set))]
            })
            .collect::<Vec<_>>()
    };
    let top_down = ["kubepods/besteffort", POD, CONTAINER];
    let bottom_up = [CONTAINER, POD, "kubepods/besteffort"];
    for (quota, set) in [(50_000, "0-3"), (20_000, "2-5"), (-1, "0-7"), (30_000, "7"), (90_000, "0-1")] {
        for order in [top_down, bottom_up] {
            for written in bed.executor.apply(&all(quota, set, order)) {
                assert!(written.result.is_in_effect(), "{written:?}");
            }
            for path in order {
                assert_eq!(bed.text(path, "cpu.cfs_quota_us"), quota.to_string());
                assert_eq!(bed.text(path, "cpuset.cpus"), set);
            }
        }
    }
}

#[test]
fn the_answer_has_what_was_there() {
    let bed = bed(V1);
    let written = bed.apply(CONTAINER, Resource::CpuShares, 2048);
    assert_eq!(
        written,
        Written {
            before: Some(Value::Integer(1024)),
            found: Some(Value::Integer(2048)),
            result: Outcome::Written
        }
    );
    let again = bed.apply(CONTAINER, Resource::CpuShares, 2048);
    assert_eq!(again.result, Outcome::Same);
    assert_eq!(bed.log(), [format!("{CONTAINER} cpu.shares=2048")]);
}

#[test]
fn an_equal_value_in_other_words_is_not_written() {
    let v1 = bed(V1);
    v1.kernel.set(CONTAINER, "cpuset.cpus", "0,1,2,3");
    assert_eq!(v1.apply(CONTAINER, Resource::CpusetCpus, cpus("0-3")).result, Outcome::Same);
    assert_eq!(v1.apply(CONTAINER, Resource::MemoryLimit, i64::MAX).result, Outcome::Same);
    assert!(v1.log().is_empty());
    let v2 = bed(V2);
    assert_eq!(v2.apply(CONTAINER, Resource::CpuQuota, -1).result, Outcome::Same);
    assert_eq!(v2.apply(CONTAINER, Resource::MemoryHigh, i64::MAX).result, Outcome::Same);
    v2.kernel.set(CONTAINER, "cpu.weight", "39");
    let shares = v2.apply(CONTAINER, Resource::CpuShares, 1024);
    assert_eq!((shares.found, shares.result), (Some(Value::Integer(1024)), Outcome::Same));
    v2.kernel.set(CONTAINER, "cpu.max", "50000 100000");
    assert_eq!(v2.apply(CONTAINER, Resource::CpuQuota, 50_000).result, Outcome::Same);
    assert!(v2.log().is_empty());
}

#[test]
fn texts_of_version_2() {
    let bed = bed(V2);
    for (resource, value, file, text) in [
        (Resource::CpuShares, Value::Integer(256), "cpu.weight", "10"),
        (Resource::CpuQuota, Value::Integer(50_000), "cpu.max", "50000 100000"),
        (Resource::CpuPeriod, Value::Integer(50_000), "cpu.max", "50000 50000"),
        (Resource::CpuBurst, Value::Integer(20_000), "cpu.max.burst", "20000"),
        (Resource::MemoryLimit, Value::Integer(1 << 20), "memory.max", "1048576"),
        (Resource::MemoryLow, Value::Integer(5000), "memory.low", "4096"),
        (Resource::CpusetCpus, cpus("2-3"), "cpuset.cpus", "2-3"),
        (Resource::BlkioReadBps, Value::from("8:0 5"), "io.max", "8:0 rbps=5 wbps=max riops=max wiops=max\n"),
        (Resource::BlkioWriteIops, Value::from("8:0 7"), "io.max", "8:0 rbps=5 wbps=max riops=max wiops=7\n"),
        (Resource::IoWeight, Value::Integer(50), "io.weight", "default 50\n"),
    ] {
        let written = bed.apply(CONTAINER, resource, value);
        assert_eq!(written.result, Outcome::Written, "{resource}");
        assert_eq!(bed.text(CONTAINER, file), text, "{resource}");
    }
    let unlimited = bed.apply(CONTAINER, Resource::CpuQuota, -1);
    assert_eq!(unlimited.before, Some(Value::Integer(50_000)));
    assert_eq!(bed.text(CONTAINER, "cpu.max"), "max 50000");
}

#[test]
fn a_file_is_trusted_for_a_minute() {
    let bed = bed(V1);
    bed.apply(CONTAINER, Resource::CpuShares, 2048);
    bed.kernel.set(CONTAINER, "cpu.shares", "7");
    let reads = bed.kernel.reads();
    bed.clock.advance(Duration::from_secs(60));
    assert_eq!(bed.apply(CONTAINER, Resource::CpuShares, 2048).result, Outcome::Same);
    assert_eq!((bed.kernel.reads(), bed.text(CONTAINER, "cpu.shares").as_str()), (reads, "7"));
    bed.clock.advance(Duration::from_secs(1));
    let written = bed.apply(CONTAINER, Resource::CpuShares, 2048);
    assert_eq!((written.before, written.result), (Some(Value::Integer(7)), Outcome::Written));
    assert_eq!(bed.text(CONTAINER, "cpu.shares"), "2048");
    // Somebody is known to have written: no trust.
    bed.kernel.set(CONTAINER, "cpu.shares", "8");
    bed.executor.expire(&CgroupPath::new(POD, bed.executor.layout()).unwrap());
    assert_eq!(bed.apply(CONTAINER, Resource::CpuShares, 2048).result, Outcome::Written);
    assert_eq!(bed.executor.counts().fresh, 1);
}

#[test]
fn a_file_has_one_owner() {
    let bed = bed(V1);
    bed.apply(CONTAINER, Resource::CpuQuota, 50_000);
    let mut other = bed.write(CONTAINER, Resource::CpuQuota, 20_000);
    other.owner = Owner::new("other");
    let refused = bed.executor.apply(std::slice::from_ref(&other)).remove(0);
    assert!(
        matches!(&refused.result, Outcome::Failed(CgroupError::Owned { owner, .. }) if owner.as_str() == "rule"),
        "{refused:?}"
    );
    assert_eq!(bed.text(CONTAINER, "cpu.cfs_quota_us"), "50000");
    assert_eq!(bed.executor.counts().conflicts, 1);
    // Another file of the group is free.
    other.resource = Resource::CpuShares;
    assert_eq!(bed.executor.apply(std::slice::from_ref(&other)).remove(0).result, Outcome::Written);
    assert_eq!(bed.executor.owned(), 2);
    bed.apply(CONTAINER, Resource::CpuQuota, 60_000);
    let released = bed.executor.release(&Owner::new("rule"));
    assert_eq!(released.len(), 1);
    assert_eq!(
        (released[0].resource, &released[0].before, &released[0].wanted),
        (Resource::CpuQuota, &Some(Value::Integer(-1)), &Value::Integer(60_000))
    );
    other.resource = Resource::CpuQuota;
    assert_eq!(bed.executor.apply(&[other]).remove(0).result, Outcome::Written);
}

#[test]
fn of_two_owners_in_one_batch_the_first_has_the_file() {
    let bed = bed(V1);
    let first = bed.write(CONTAINER, Resource::CpuShares, 5);
    let second = Write { value: Value::Integer(6), owner: Owner::new("other"), ..first.clone() };
    let answers = bed.executor.apply(&[first, second]);
    assert_eq!(answers[0].result, Outcome::Written);
    assert!(matches!(&answers[1].result, Outcome::Failed(CgroupError::Owned { .. })), "{answers:?}");
    assert_eq!(bed.text(CONTAINER, "cpu.shares"), "5");
    assert_eq!((bed.executor.counts().conflicts, bed.executor.owned()), (1, 1));
}

#[test]
fn two_devices_of_one_file_do_not_disturb_each_other() {
    let bed = bed(V2);
    bed.apply(CONTAINER, Resource::BlkioReadBps, "8:0 5");
    let mut other = bed.write(CONTAINER, Resource::BlkioReadBps, "8:16 6");
    other.owner = Owner::new("other");
    assert_eq!(bed.executor.apply(&[other]).remove(0).result, Outcome::Written);
    assert_eq!(bed.executor.owned(), 2);
}

#[test]
fn a_group_that_was_made_again_is_another_one() {
    let bed = bed(V1);
    bed.apply(CONTAINER, Resource::CpuShares, 2048);
    bed.kernel.remove(POD);
    assert_eq!(bed.apply(CONTAINER, Resource::CpuShares, 2048).result, Outcome::Gone);
    assert_eq!(bed.executor.owned(), 0);
    bed.kernel.make(CONTAINER);
    bed.apply(CONTAINER, Resource::CpuShares, 2048);
    bed.kernel.remove(POD);
    bed.kernel.make(CONTAINER);
    let mut other = bed.write(CONTAINER, Resource::CpuShares, 2048);
    other.owner = Owner::new("other");
    assert_eq!(bed.executor.apply(&[other]).remove(0).result, Outcome::Written);
    assert_eq!(bed.text(CONTAINER, "cpu.shares"), "2048");
    bed.kernel.remove(POD);
    assert_eq!((bed.executor.sweep(), bed.executor.owned()), (1, 0));
    assert_eq!(bed.executor.sweep(), 0);
}

#[test]
fn files_that_are_not_there() {
    let bed = bed(V1);
    assert_eq!(bed.apply(CONTAINER, Resource::CpuBvtWarpNs, 2).result, Outcome::Unsupported);
    assert_eq!(bed.apply(CONTAINER, Resource::MemorySwapMax, 0).result, Outcome::Unsupported);
    assert_eq!(bed.apply(CONTAINER, Resource::BlkioCostModel, "8:0 ctrl=auto").result, Outcome::Unsupported);
    assert_eq!(bed.executor.owned(), 0);
    assert_eq!(bed.executor.supported(Resource::CpuBvtWarpNs), Support::No);
    bed.kernel.set("kubepods", "cpu.bvt_warp_ns", "0");
    assert_eq!(bed.executor.supported(Resource::CpuBvtWarpNs), Support::Yes);
    bed.kernel.remove("kubepods");
    assert_eq!(bed.executor.supported(Resource::CpuBvtWarpNs), Support::Yes);
    assert_eq!(bed.executor.supported(Resource::CpuBurst), Support::Unknown);
    bed.kernel.make("kubepods");
    assert_eq!(bed.executor.supported(Resource::CpuBurst), Support::Yes);
    assert_eq!(bed.executor.supported(Resource::IoMax), Support::No);
}

#[test]
fn nothing_is_written_outside() {
    let bed = bed(V1);
    let wide =
        Layout::new("/model", V1, CgroupDriver::Cgroupfs, "").unwrap().with_declared("system").unwrap();
    bed.kernel.make("system/x");
    for (path, problem) in [
        (CgroupPath::root(), crate::error::PathProblem::Root),
        (CgroupPath::new("system/x", &wide).unwrap(), crate::error::PathProblem::Outside),
    ] {
        let mut write = bed.write(POD, Resource::CpuShares, 5);
        write.path = path;
        let refused = bed.executor.apply(&[write]).remove(0).result;
        assert!(
            matches!(&refused, Outcome::Failed(CgroupError::Path { problem: found, .. }) if *found == problem),
            "{refused:?}"
        );
    }
    assert!(bed.log().is_empty());
}

#[test]
fn burst_stays_within_the_quota() {
    for version in [V1, V2] {
        let bed = bed(version);
        let both = |quota: i64, burst: i64| {
            vec![
                bed.write(CONTAINER, Resource::CpuQuota, quota),
                bed.write(CONTAINER, Resource::CpuBurst, burst),
            ]
        };
        for (quota, burst) in
            [(100_000, 100_000), (20_000, 10_000), (50_000, 40_000), (-1, 90_000), (30_000, 0)]
        {
            for reversed in [false, true] {
                let mut writes = both(quota, burst);
                if reversed {
                    writes.reverse();
                }
                for written in bed.executor.apply(&writes) {
                    assert!(written.result.is_in_effect(), "{quota} {burst} {written:?}");
                }
            }
        }
        // The burst is nobody's wish now, and in the way of the quota.
        bed.apply(CONTAINER, Resource::CpuBurst, 25_000);
        assert_eq!(bed.apply(CONTAINER, Resource::CpuQuota, 10_000).result, Outcome::Written);
        let burst = Resource::CpuBurst.file(version).unwrap().name;
        assert_eq!(bed.text(CONTAINER, burst), "10000");
    }
}

#[test]
fn an_idle_group_gets_its_shares_when_it_is_idle_no_more() {
    for (version, file, own, fewest, wished) in
        [(V1, "cpu.shares", "500", "2", "2048"), (V2, "cpu.weight", "20", "1", "79")]
    {
        let bed = bed(version);
        // Made idle by somebody else: what it had is not known.
        bed.kernel.set(CONTAINER, "cpu.idle", "1");
        assert_eq!(bed.apply(CONTAINER, Resource::CpuIdle, 0).result, Outcome::Written);
        assert_eq!(bed.text(CONTAINER, file), fewest);
        // Made idle here: it gets back what it had.
        bed.kernel.set(CONTAINER, file, own);
        bed.apply(CONTAINER, Resource::CpuIdle, 1);
        bed.apply(CONTAINER, Resource::CpuIdle, 0);
        assert_eq!(bed.text(CONTAINER, file), own);
        // Shares wished for meanwhile are kept for then.
        bed.apply(CONTAINER, Resource::CpuIdle, 1);
        assert_eq!(bed.apply(CONTAINER, Resource::CpuShares, 2048).result, Outcome::Deferred);
        assert_eq!(bed.apply(CONTAINER, Resource::CpuShares, 2048).result, Outcome::Deferred);
        bed.apply(CONTAINER, Resource::CpuIdle, 0);
        assert_eq!(bed.text(CONTAINER, file), wished);
        assert_eq!(bed.apply(CONTAINER, Resource::CpuShares, 2048).result, Outcome::Same);
        bed.log();
        // Both in one batch, in either order of wishes.
        for (idle, shares, outcome) in [(1, 4096, Outcome::Deferred), (0, 1024, Outcome::Written)] {
            let batch = [
                bed.write(CONTAINER, Resource::CpuIdle, idle),
                bed.write(CONTAINER, Resource::CpuShares, shares),
            ];
            let answers = bed.executor.apply(&batch);
            assert_eq!((&answers[0].result, &answers[1].result), (&Outcome::Written, &outcome));
        }
        let log = bed.log();
        let files: Vec<&str> = log.iter().filter_map(|line| line.split([' ', '=']).nth(1)).collect();
        assert_eq!(files, [file, "cpu.idle", "cpu.idle", file]);
    }
}

#[test]
fn as_the_parent_is_the_parents_set_on_version_1() {
    let v1 = bed(V1);
    v1.kernel.add_task(CONTAINER);
    v1.kernel.set(CONTAINER, "cpuset.cpus", "3");
    let written = v1.apply(CONTAINER, Resource::CpusetCpus, CpuSet::new());
    assert_eq!((written.result, written.found), (Outcome::Written, Some(cpus("0-7"))));
    assert_eq!(v1.text(CONTAINER, "cpuset.cpus"), "0-7");
    let v2 = bed(V2);
    v2.kernel.set(CONTAINER, "cpuset.cpus", "3");
    v2.kernel.set(CONTAINER, "cpuset.cpus.effective", "0-7");
    let written = v2.apply(CONTAINER, Resource::CpusetCpus, CpuSet::new());
    assert_eq!((written.result, written.found), (Outcome::Written, Some(cpus("0-7"))));
    assert_eq!(v2.text(CONTAINER, "cpuset.cpus"), "");
}

#[test]
fn memory_and_swap_keep_their_order() {
    let bed = bed(V1);
    let both = |limit: i64| {
        [
            bed.write(CONTAINER, Resource::MemoryLimit, limit),
            bed.write(CONTAINER, Resource::MemorySwapLimit, limit),
        ]
    };
    for limit in [1 << 20, 1 << 22, 1 << 19, -1, 1 << 21] {
        for written in bed.executor.apply(&both(limit)) {
            assert_eq!(written.result, Outcome::Written, "{limit}");
        }
    }
}

#[test]
fn a_limit_below_the_usage_is_busy_on_both_versions() {
    for (version, usage, limit) in
        [(V1, "memory.usage_in_bytes", "memory.limit_in_bytes"), (V2, "memory.current", "memory.max")]
    {
        let bed = bed(version);
        bed.kernel.set(CONTAINER, usage, "8192");
        let before = bed.text(CONTAINER, limit);
        let refused = bed.apply(CONTAINER, Resource::MemoryLimit, 4096).result;
        let Outcome::Failed(error) = refused else { panic!("{refused:?}") };
        assert_eq!(error, CgroupError::Busy { path: CONTAINER.to_owned(), wanted: 4096, usage: 8192 });
        assert_eq!(error.errno(), Some(Errno::BUSY.raw_os_error()));
        assert_eq!(bed.text(CONTAINER, limit), before);
        assert_eq!(bed.apply(CONTAINER, Resource::MemoryLimit, 8192).result, Outcome::Written);
    }
}

#[test]
fn what_the_kernel_refuses_is_told_with_its_rule() {
    let bed = bed(V1);
    bed.kernel.set(POD, "cpu.cfs_quota_us", "10000");
    let refused = bed.apply(CONTAINER, Resource::CpuQuota, 20_000);
    let Outcome::Failed(error) = refused.result else { panic!("{refused:?}") };
    assert_eq!(error.errno(), Some(Errno::INVAL.raw_os_error()));
    assert_eq!(
        error.to_string(),
        "cannot write cpu.cfs_quota_us of kubepods/besteffort/podu/c to be \"20000\" (more than the parent's quota, less than a child's, or less than the burst)"
    );
    // The wish stays its owner's, and is tried again each time.
    assert_eq!(bed.executor.owned(), 1);
    bed.kernel.set(POD, "cpu.cfs_quota_us", "-1");
    assert_eq!(bed.apply(CONTAINER, Resource::CpuQuota, 20_000).result, Outcome::Written);
    let invalid = bed.apply(CONTAINER, Resource::CpuQuota, 999).result;
    assert!(matches!(invalid, Outcome::Failed(CgroupError::Value { .. })), "{invalid:?}");
}

#[test]
fn what_was_busy_for_a_moment_is_tried_again() {
    let bed = bed(V1);
    bed.kernel.fail_next("cpuset.cpus", Errno::BUSY);
    assert_eq!(bed.apply(CONTAINER, Resource::CpusetCpus, cpus("1")).result, Outcome::Written);
    for _ in 0..4 {
        bed.kernel.fail_next("cpuset.cpus", Errno::BUSY);
    }
    assert!(matches!(bed.apply(CONTAINER, Resource::CpusetCpus, cpus("2")).result, Outcome::Failed(_)));
}

#[test]
fn of_several_wishes_for_a_file_the_last_counts() {
    let bed = bed(V1);
    let batch = [
        bed.write(CONTAINER, Resource::CpuShares, 5),
        bed.write(POD, Resource::CpuShares, 6),
        bed.write(CONTAINER, Resource::CpuShares, 7),
    ];
    let answers = bed.executor.apply(&batch);
    assert_eq!(
        answers.iter().map(|answer| answer.found.clone()).collect::<Vec<_>>(),
        [Some(Value::Integer(7)), Some(Value::Integer(6)), Some(Value::Integer(7))]
    );
    assert_eq!(bed.log(), [format!("{POD} cpu.shares=6"), format!("{CONTAINER} cpu.shares=7")]);
    assert!(bed.executor.apply(&[]).is_empty());
}

#[test]
fn the_formula_is_learnt_from_a_runtime() {
    let v2 = bed(V2);
    let path = CgroupPath::new(CONTAINER, v2.executor.layout()).unwrap();
    assert_eq!(v2.executor.learn_conversion(&path, 2048), None);
    assert_eq!(v2.executor.conversion(), Conversion::Linear);
    assert_eq!(v2.executor.learn_conversion(&path, 1024), Some(Conversion::Quadratic));
    assert_eq!(v2.executor.conversion(), Conversion::Quadratic);
    v2.apply(CONTAINER, Resource::CpuShares, 256);
    assert_eq!(v2.text(CONTAINER, "cpu.weight"), "35");
    // 39 is 1024 by the linear formula, but the executor has set this group's shares.
    v2.kernel.set(CONTAINER, "cpu.weight", "39");
    assert_eq!(v2.executor.learn_conversion(&path, 1024), None);
    assert_eq!(v2.executor.conversion(), Conversion::Quadratic);
    let fixed = Executor::builder(v2.executor.layout().clone())
        .files(v2.kernel.clone())
        .conversion(Some(Conversion::Linear))
        .build();
    v2.kernel.set(CONTAINER, "cpu.weight", "100");
    assert_eq!(fixed.learn_conversion(&path, 1024), Some(Conversion::Quadratic));
    assert_eq!(fixed.conversion(), Conversion::Linear);
    let v1 = bed(V1);
    assert_eq!(v1.executor.learn_conversion(&path, 1024), None);
}

#[test]
fn containers_are_found_under_the_name_that_exists() {
    let bed = bed(V1);
    let pod = bed.executor.layout().pod(KubeQos::BestEffort, "u").unwrap();
    let find = |id| bed.executor.container(&pod, RuntimeName::CriO, id).unwrap().name().to_owned();
    assert_eq!(find("c"), "c");
    bed.kernel.make(&format!("{POD}/crio-x"));
    assert_eq!(find("x"), "crio-x");
    assert_eq!(find("later"), "crio-later");
}

#[test]
fn tasks_of_nested_groups_are_found() {
    let bed = bed(V1);
    bed.kernel.make(&format!("{CONTAINER}/init.scope/deeper"));
    bed.kernel.set(CONTAINER, "cgroup.procs", "30\n0\n");
    bed.kernel.set(&format!("{CONTAINER}/init.scope/deeper"), "cgroup.procs", "7\n30\n12\n");
    let path = CgroupPath::new(POD, bed.executor.layout()).unwrap();
    assert_eq!(bed.executor.pids(&path), Ok(vec![7, 12, 30]));
    let names: Vec<String> =
        bed.executor.subtree(&path).unwrap().iter().map(|group| group.name().to_owned()).collect();
    assert_eq!(names, ["podu", "c", "init.scope", "deeper"]);
    bed.kernel.remove(POD);
    assert_eq!(bed.executor.pids(&path), Err(CgroupError::Gone { path: POD.to_owned() }));
}

#[derive(Debug, Default, Clone)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Observer for Seen {
    fn handled(&self, event: &WriteEvent<'_>) {
        let line = format!("{} {}", event.write.resource, event.written.result.as_str());
        self.0.lock().unwrap().push(line);
    }

    fn conflict(&self, write: &Write, holder: &Owner) {
        self.0.lock().unwrap().push(format!("{} of {} wanted by {}", write.resource, holder, write.owner));
    }
}

#[test]
fn an_observer_sees_what_happens() {
    let bed = bed(V1);
    let seen = Seen::default();
    let executor = Executor::builder(bed.executor.layout().clone())
        .files(bed.kernel.clone())
        .observer(seen.clone())
        .build();
    let write = bed.write(CONTAINER, Resource::CpuShares, 5);
    executor.apply(std::slice::from_ref(&write));
    executor.apply(std::slice::from_ref(&write));
    executor.apply(&[Write { owner: Owner::new("other"), ..write }]);
    let expected = ["cpu.shares changed", "cpu.shares of rule wanted by other", "cpu.shares error"];
    assert_eq!(*seen.0.lock().unwrap(), expected);
    let counts = executor.counts();
    assert_eq!((counts.changed, counts.fresh, counts.failed, counts.kernel_writes), (1, 1, 1, 1));
}

#[test]
fn a_plain_tree_of_files_will_do() {
    let root = tempfile::tempdir().unwrap();
    let group = root.path().join(CONTAINER);
    std::fs::create_dir_all(&group).unwrap();
    std::fs::write(group.join("cpu.max"), "max 100000\n").unwrap();
    std::fs::write(group.join("memory.max"), "max\n").unwrap();
    let layout = Layout::new(root.path(), V2, CgroupDriver::Cgroupfs, "").unwrap();
    let executor = Executor::new(layout);
    let path = CgroupPath::new(CONTAINER, executor.layout()).unwrap();
    let write = |resource, value: i64| {
        let write = Write { path: path.clone(), resource, value: value.into(), owner: "rule".into() };
        executor.apply(&[write]).remove(0)
    };
    assert_eq!(
        write(Resource::CpuQuota, 50_000),
        Written {
            before: Some(Value::Integer(-1)),
            found: Some(Value::Integer(50_000)),
            result: Outcome::Written
        }
    );
    assert_eq!(std::fs::read_to_string(group.join("cpu.max")).unwrap(), "50000");
    assert_eq!(write(Resource::MemoryLimit, 4096).result, Outcome::Written);
    assert_eq!(write(Resource::CpuBurst, 0).result, Outcome::Unsupported);
    std::fs::remove_dir_all(&group).unwrap();
    assert_eq!(write(Resource::MemoryLimit, 4096).result, Outcome::Gone);
}

proptest! {
    /// Whatever consistent state follows whatever other one, the kernel takes each write the first or the second time.
    #[test]
    fn any_consistent_state_is_reached(
        is_v2 in any::<bool>(),
        states in proptest::collection::vec(state(), 1..5),
    ) {
        let bed = bed(if is_v2 { V2 } else { V1 });
        bed.kernel.make("kubepods/besteffort/podu/d");
        for (quotas, bursts, sets, order) in states {
            let paths = ["kubepods/besteffort", POD, CONTAINER, "kubepods/besteffort/podu/d"];
            let mut writes = Vec::new();
            for (index, path) in paths.iter().enumerate() {
                writes.push(bed.write(path, Resource::CpuQuota, quotas[index]));
                writes.push(bed.write(path, Resource::CpuBurst, bursts[index]));
                writes.push(bed.write(path, Resource::CpusetCpus, sets[index].clone()));
            }
            let length = writes.len();
            writes.rotate_left(order % length);
            for (write, written) in writes.iter().zip(bed.executor.apply(&writes)) {
                prop_assert!(written.result.is_in_effect(), "{write:?} {written:?}");
            }
            // All is so afterwards: no later step of the batch undid an earlier one.
            bed.executor.expire(&bed.executor.layout().kubepods());
            for written in bed.executor.apply(&writes) {
                prop_assert_eq!(written.result, Outcome::Same);
            }
        }
    }
}

/// Quotas, bursts and CPU sets of a class, a pod and its two containers that a kernel of version 1 takes.
fn state() -> impl Strategy<Value = ([i64; 4], [i64; 4], [CpuSet; 4], usize)> {
    let level = (prop_oneof![Just(-1_i64), 1_000_i64..200_000], 0_i64..=100, 1_u32..256);
    (proptest::array::uniform4(level), any::<usize>()).prop_map(|(levels, order)| {
        let parent = [None, Some(0), Some(1), Some(1)];
        let (mut quotas, mut bursts) = ([-1; 4], [0; 4]);
        let mut sets: [CpuSet; 4] = std::array::from_fn(|_| CpuSet::range(0, 7));
        let mut bound = [i64::MAX; 4];
        for index in 0..4 {
            let (quota, share, bits) = levels[index];
            let above = parent[index].map_or(i64::MAX, |parent: usize| bound[parent]);
            quotas[index] = if quota == -1 { -1 } else { quota.min(above) };
            bound[index] = if quota == -1 { above } else { quotas[index] };
            bursts[index] = if quotas[index] == -1 { share * 1000 } else { quotas[index] * share / 100 };
            let mut set = CpuSet::new();
            for cpu in (0..8).filter(|cpu| bits & (1 << cpu) != 0) {
                set.insert(cpu);
            }
            if let Some(parent) = parent[index] {
                let kept = set.intersection(&sets[parent]);
                set = if kept.is_empty() { sets[parent].clone() } else { kept };
            }
            sets[index] = set;
        }
        (quotas, bursts, sets, order)
    })
}
