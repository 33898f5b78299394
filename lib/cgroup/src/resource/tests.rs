use koord_extension::cpuset::CpuSet;
use proptest::prelude::*;

use super::*;

const V1: CgroupVersion = CgroupVersion::V1;
const V2: CgroupVersion = CgroupVersion::V2;

fn text(resource: Resource, value: impl Into<Value>, version: CgroupVersion) -> Option<String> {
    resource.to_kernel_text(&value.into(), version, Conversion::Linear).ok()
}

fn parse(resource: Resource, text: &str, version: CgroupVersion) -> Option<Value> {
    resource.parse_kernel_text(text, version, Conversion::Linear).ok()
}

fn same(resource: Resource, wanted: impl Into<Value>, found: &str, version: CgroupVersion) -> bool {
    let wanted = wanted.into();
    FileText { resource, version, conversion: Conversion::Linear, page_size: 4096, wanted: &wanted }
        .is_same(found)
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn every_resource_is_in_the_table_once() {
    for (index, resource) in Resource::ALL.iter().enumerate() {
        assert_eq!(Resource::from_name(resource.as_str()), Some(*resource));
        assert!(resource.file(V1).is_some() || resource.file(V2).is_some(), "{resource}");
        assert!(!Resource::ALL[..index].contains(resource), "{resource}");
    }
    // The last variant: a forgotten one before it would be missing above.
    assert_eq!(Resource::ALL.len(), Resource::NetClsClassId as usize + 1);
}

#[test]
fn files_of_both_versions() {
    let names = |resource: Resource| {
        (resource.file(V1).map(|file| file.name), resource.file(V2).map(|file| file.name))
    };
    assert_eq!(names(Resource::CpuShares), (Some("cpu.shares"), Some("cpu.weight")));
    assert_eq!(names(Resource::CpuQuota), (Some("cpu.cfs_quota_us"), Some("cpu.max")));
    assert_eq!(names(Resource::CpuPeriod), (Some("cpu.cfs_period_us"), Some("cpu.max")));
    assert_eq!(names(Resource::CpuBurst), (Some("cpu.cfs_burst_us"), Some("cpu.max.burst")));
    assert_eq!(names(Resource::Tasks), (Some("tasks"), Some("cgroup.threads")));
    assert_eq!(names(Resource::CpuacctUsage), (Some("cpuacct.usage"), Some("cpu.stat")));
    assert_eq!(names(Resource::MemoryLimit), (Some("memory.limit_in_bytes"), Some("memory.max")));
    assert_eq!(names(Resource::MemoryUsage), (Some("memory.usage_in_bytes"), Some("memory.current")));
    assert_eq!(names(Resource::MemoryPageCacheSize), (None, Some("memory.pagecache_limit.size")));
    assert_eq!(names(Resource::NetClsClassId), (Some("net_cls.classid"), None));
    assert_eq!(names(Resource::BlkioReadBps), (Some("blkio.throttle.read_bps_device"), Some("io.max")));
    let cpus = Resource::CpusetCpus.file(V2).unwrap();
    assert_eq!((cpus.name, cpus.effective), ("cpuset.cpus", Some("cpuset.cpus.effective")));
}

#[test]
fn shares_on_version_2_are_weights() {
    assert_eq!(text(Resource::CpuShares, 1024, V2), some("39"));
    assert_eq!(text(Resource::CpuShares, 1024, V1), some("1024"));
    for shares in [1, 262_145] {
        assert_eq!(text(Resource::CpuShares, shares, V2), None);
        assert_eq!(text(Resource::CpuShares, shares, V1), None);
    }
    assert_eq!(parse(Resource::CpuShares, "39\n", V2), Some(Value::Integer(998)));
    assert_eq!(parse(Resource::CpuShares, "0\n", V2), Some(Value::Integer(0)));
    assert_eq!(parse(Resource::CpuShares, "10001\n", V2), None);
    assert!(same(Resource::CpuShares, 1024, "39\n", V2));
    assert!(!same(Resource::CpuShares, 1024, "100\n", V2));
    let curve = Resource::CpuShares.to_kernel_text(&Value::Integer(1024), V2, Conversion::Quadratic);
    assert_eq!(curve, Ok("100".to_owned()));
}

#[test]
fn quotas() {
    assert_eq!(text(Resource::CpuQuota, -1, V2), some("max"));
    assert_eq!(text(Resource::CpuQuota, -1, V1), some("-1"));
    assert_eq!(text(Resource::CpuQuota, 50_000, V2), some("50000"));
    for quota in [0, 999, -2] {
        assert_eq!(text(Resource::CpuQuota, quota, V1), None, "{quota}");
    }
    assert_eq!(text(Resource::CpuQuota, 1000, V1), some("1000"));
    let both = |text| (parse(Resource::CpuQuota, text, V2), parse(Resource::CpuPeriod, text, V2));
    let numbers = |quota, period| (Some(Value::Integer(quota)), Some(Value::Integer(period)));
    assert_eq!(both("max 100000\n"), numbers(-1, 100_000));
    assert_eq!(both("50000 100000\n"), numbers(50_000, 100_000));
    for wrong in ["50000", "", "max", "1 2 3", "x 100000", "-1 100000", "50000 0"] {
        assert_eq!(both(wrong), (None, None), "{wrong}");
    }
    assert_eq!(parse(Resource::CpuQuota, "-1\n", V1), Some(Value::Integer(-1)));
    assert!(same(Resource::CpuQuota, 50_000, "50000 100000\n", V2));
    assert!(same(Resource::CpuQuota, -1, "max 50000\n", V2));
    assert!(!same(Resource::CpuQuota, -1, "50000 100000\n", V2));
    assert_eq!(text(Resource::CpuPeriod, 50_000, V2), some("max 50000"));
    let period = Value::Integer(50_000);
    let compare = FileText {
        resource: Resource::CpuPeriod,
        version: V2,
        conversion: Conversion::Linear,
        page_size: 4096,
        wanted: &period,
    };
    assert_eq!(compare.with_quota_of("max 50000".to_owned(), Some("20000 100000\n")), "20000 50000");
    assert_eq!(compare.with_quota_of("max 50000".to_owned(), Some("max 100000\n")), "max 50000");
}

#[test]
fn limits_of_memory() {
    assert_eq!(parse(Resource::MemoryLimit, "9223372036854771712\n", V1), Some(Value::Integer(-1)));
    assert_eq!(parse(Resource::MemoryLimit, "18446744073709551615\n", V1), Some(Value::Integer(-1)));
    assert_eq!(parse(Resource::MemoryLimit, "max\n", V2), Some(Value::Integer(-1)));
    assert_eq!(parse(Resource::MemoryLimit, "4096\n", V2), Some(Value::Integer(4096)));
    assert_eq!(text(Resource::MemoryLimit, -1, V2), some("max"));
    assert_eq!(text(Resource::MemoryLimit, -1, V1), some("-1"));
    assert_eq!(text(Resource::MemoryHigh, i64::MAX, V2), some("max"));
    assert_eq!(text(Resource::MemoryHigh, -1, V1), some("9223372036854775807"));
    assert_eq!(text(Resource::MemoryLimit, 0, V1), None);
    assert_eq!(text(Resource::MemoryLow, 0, V2), some("0"));
    assert!(same(Resource::MemoryHigh, i64::MAX, "max\n", V2));
    assert!(same(Resource::MemoryLimit, i64::MAX, "9223372036854771712\n", V1));
    // The kernel keeps whole pages.
    assert!(same(Resource::MemoryLimit, 10_485_761, "10485760\n", V1));
    assert!(!same(Resource::MemoryLimit, 10_489_856, "10485760\n", V1));
}

#[test]
fn use_of_cpu_in_nanoseconds() {
    assert_eq!(
        parse(Resource::CpuacctUsage, "usage_usec 1500\nuser_usec 1\n", V2),
        Some(Value::Integer(1_500_000))
    );
    assert_eq!(parse(Resource::CpuacctUsage, "1500\n", V1), Some(Value::Integer(1500)));
    assert_eq!(parse(Resource::CpuacctUsage, "user_usec 1\n", V2), None);
}

#[test]
fn sets_of_cpus() {
    let cpus = CpuSet::parse("0-3").unwrap();
    assert_eq!(text(Resource::CpusetCpus, cpus.clone(), V1), some("0-3"));
    assert_eq!(text(Resource::CpusetCpus, CpuSet::new(), V2), some("\n"));
    assert!(same(Resource::CpusetCpus, cpus.clone(), "0,1,2,3\n", V1));
    assert!(!same(Resource::CpusetCpus, cpus, "0-4\n", V1));
    assert_eq!(parse(Resource::CpusetCpus, "\n", V2), Some(Value::Cpus(CpuSet::new())));
    assert_eq!(parse(Resource::CpusetCpus, "a\n", V2), None);
    assert_eq!(text(Resource::CpusetCpus, 3, V1), None);
}

#[test]
fn ranges() {
    for (resource, least, most) in [
        (Resource::CpuBvtWarpNs, -1, 2),
        (Resource::CpuIdle, 0, 1),
        (Resource::MemoryWmarkRatio, 0, 100),
        (Resource::MemoryWmarkScaleFactor, 1, 1000),
        (Resource::MemoryWmarkMinAdj, -25, 50),
        (Resource::MemoryPriority, 0, 12),
        (Resource::MemoryUsePriorityOom, 0, 1),
        (Resource::MemoryOomGroup, 0, 1),
        (Resource::CpuBurst, 0, 100_000_000),
        (Resource::CpuPeriod, 1000, 1_000_000),
        (Resource::CpuShares, 2, 262_144),
        (Resource::NetClsClassId, 0, 0xFFFF_FFFF),
    ] {
        assert!(text(resource, least, V1).is_some() && text(resource, most, V1).is_some(), "{resource}");
        assert_eq!(text(resource, least - 1, V1), None, "{resource}");
        assert_eq!(text(resource, most + 1, V1), None, "{resource}");
        let error = resource.validate(&Value::Integer(most + 1), V1).unwrap_err();
        assert!(error.to_string().contains(&format!("{least}..{most}")), "{error}");
    }
    assert_eq!(text(Resource::CpuBurst, i64::MAX, V2), Some(i64::MAX.to_string()));
    assert_eq!(text(Resource::CpuStat, 1, V1), None);
}

#[test]
fn classes_of_packets_are_decimal_or_hexadecimal() {
    let class = |text| parse(Resource::NetClsClassId, text, V1).and_then(|value| value.integer());
    assert_eq!(class("65538\n"), Some(65_538));
    assert_eq!(class("0x10002"), Some(65_538));
    assert_eq!(class("0xFFFFFFFF"), Some(0xFFFF_FFFF));
    for wrong in ["0x100000000", "4294967296", "", "0x", "0x+1", "-1", "max"] {
        assert_eq!(class(wrong), None, "{wrong}");
    }
}

#[test]
fn percentages() {
    assert_eq!(text(Resource::CpuUclampMax, 50, V2), some("50"));
    assert!(same(Resource::CpuUclampMax, 50, "50.00\n", V2));
    assert!(same(Resource::CpuUclampMax, 100, "max\n", V2));
    assert!(same(Resource::CpuUclampMin, "12.5", "12.50\n", V2));
    assert_eq!(parse(Resource::CpuUclampMin, "12.50\n", V2), Some(Value::from("12.50")));
    assert_eq!(parse(Resource::CpuUclampMax, "max\n", V2), Some(Value::Integer(100)));
    for wrong in ["100.01", "1.234", "-1", "x", "", "."] {
        assert_eq!(text(Resource::CpuUclampMin, wrong, V2), None, "{wrong}");
    }
}

#[test]
fn limits_of_devices() {
    let wanted = "8:0 1048576";
    assert_eq!(text(Resource::BlkioReadBps, wanted, V1), some(wanted));
    assert_eq!(text(Resource::BlkioReadBps, wanted, V2), some("8:0 rbps=1048576"));
    assert_eq!(text(Resource::BlkioWriteIops, "8:0 0", V2), some("8:0 wiops=max"));
    for wrong in ["8:0", "8 5", "8:0 -1", "8:0 x", "8:0 5 6", "8:0 5\n8:1 5", ""] {
        assert_eq!(text(Resource::BlkioReadBps, wrong, V1), None, "{wrong}");
    }
    assert!(same(Resource::BlkioReadBps, wanted, "8:16 5\n8:0 1048576\n", V1));
    assert!(!same(Resource::BlkioReadBps, wanted, "8:0 5\n", V1));
    let line = "8:0 rbps=1048576 wbps=max riops=max wiops=9\n";
    assert!(same(Resource::BlkioReadBps, wanted, line, V2));
    assert!(same(Resource::BlkioReadIops, "8:0 0", line, V2));
    assert!(!same(Resource::BlkioWriteIops, "8:0 0", line, V2));
    // No limit is wanted where no line is: nothing to write.
    assert!(same(Resource::BlkioReadBps, "8:0 0", "", V1));
    assert!(same(Resource::BlkioReadBps, "8:0 0", "", V2));

    assert_eq!(text(Resource::IoMax, "8:0 rbps=5 wbps=0", V2), some("8:0 rbps=5 wbps=max"));
    assert!(same(Resource::IoMax, "8:0 rbps=1048576 riops=0", line, V2));
    assert!(same(Resource::IoMax, "8:0 rbps=max", "", V2));
    assert!(!same(Resource::IoMax, "8:0 rbps=1", line, V2));
    for wrong in ["8:0 rbps=x", "8:0 speed=1", "8:0", "8:0 rbps", "8:0 "] {
        assert_eq!(text(Resource::IoMax, wrong, V2), None, "{wrong}");
    }
}

#[test]
fn weights_latencies_and_costs_of_devices() {
    assert_eq!(text(Resource::IoWeight, 50, V2), some("default 50"));
    assert_eq!(text(Resource::IoWeight, "8:0 10000", V2), some("8:0 10000"));
    assert_eq!(text(Resource::IoWeight, "default 10001", V2), None);
    assert_eq!(text(Resource::IoBfqWeight, 1001, V2), None);
    assert_eq!(text(Resource::BlkioCostWeight, "8:0 100", V1), some("8:0 100"));
    assert_eq!(text(Resource::BlkioCostWeight, "8:0 101", V1), None);
    assert!(same(Resource::IoWeight, 100, "default 100\n8:0 50\n", V2));
    assert!(same(Resource::IoWeight, "default 100", "default 100\n", V2));
    assert!(same(Resource::IoWeight, "8:0 50", "default 100\n8:0 50\n", V2));
    assert!(same(Resource::IoWeight, "8:16 100", "default 100\n8:0 50\n", V2));
    assert!(same(Resource::IoBfqWeight, 100, "100\n", V2));
    assert!(same(Resource::IoLatency, "8:0 target=3000", "8:0 target=3000\n", V2));
    assert!(same(Resource::IoLatency, "8:0 target=0", "", V2));
    let cost = "8:0 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=50 max=150";
    assert_eq!(text(Resource::BlkioCostQos, cost, V2), some(cost));
    assert!(same(Resource::BlkioCostQos, "8:0 enable=1 rpct=95", &format!("{cost}\n"), V2));
    assert!(same(Resource::BlkioCostQos, "8:0 enable=0", "", V2));
    assert_eq!(text(Resource::BlkioCostQos, "8:0 enable=2", V2), None);
    assert_eq!(text(Resource::BlkioCostModel, "8:0 ctrl=auto", V2), some("8:0 ctrl=auto"));
    assert!(Resource::BlkioCostModel.is_root_only() && !Resource::IoMax.is_root_only());
    assert_eq!(text(Resource::IoPrioClass, "idle", V2), some("idle"));
    assert_eq!(text(Resource::IoPrioClass, "best", V2), None);
    assert_eq!(text(Resource::CpusetPartition, "root", V2), some("root"));
    assert!(!same(Resource::CpusetPartition, "root", "root invalid (Parent is not a partition root)\n", V2));
    assert_eq!(text(Resource::MemoryReclaim, "1048576 swappiness=0", V2), some("1048576 swappiness=0"));
    assert_eq!(text(Resource::MemoryReclaim, "1048576 swappiness=201", V2), None);
}

#[test]
fn long_texts_are_cut_in_messages() {
    let error = Resource::CpuBurst.parse_kernel_text(&"x".repeat(500), V1, Conversion::Linear).unwrap_err();
    assert!(error.to_string().len() < 250, "{error}");
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Integer),
        (-2_i64..2000).prop_map(Value::Integer),
        proptest::collection::vec(0_u32..64, 0..6).prop_map(|cpus| Value::Cpus(cpus.into_iter().fold(
            CpuSet::new(),
            |mut set, cpu| {
                set.insert(cpu);
                set
            }
        ))),
        "[0-9]{1,3}:[0-9]{1,3} [0-9]{1,12}".prop_map(Value::Text),
        "(default )?[0-9]{1,5}".prop_map(Value::Text),
    ]
}

proptest! {
    #[test]
    fn what_is_written_reads_as_the_same(
        index in 0..Resource::ALL.len(),
        value in any_value(),
        is_v2 in any::<bool>(),
        is_curve in any::<bool>(),
    ) {
        let resource = Resource::ALL[index];
        let version = if is_v2 { V2 } else { V1 };
        let conversion = if is_curve { Conversion::Quadratic } else { Conversion::Linear };
        if resource.file(version).is_none() || resource.is_act() {
            return Ok(());
        }
        if let Ok(text) = resource.to_kernel_text(&value, version, conversion) {
            prop_assert!(!text.is_empty());
            let compare = FileText { resource, version, conversion, page_size: 1, wanted: &value };
            // Quota and period of version 2 share a file, whose text has both.
            let shown = if resource == Resource::CpuQuota && is_v2 { format!("{text} 100000\n") } else { format!("{text}\n") };
            prop_assert!(compare.is_same(&shown), "{resource} {value:?} {shown:?}");
        }
    }

    #[test]
    fn no_text_of_a_kernel_makes_a_parser_fail_badly(index in 0..Resource::ALL.len(), text in "\\PC{0,40}|[0-9a-z:=. \n-]{0,40}") {
        let resource = Resource::ALL[index];
        for version in [V1, V2] {
            let parsed = resource.parse_kernel_text(&text, version, Conversion::Quadratic);
            if let (Ok(value), true) = (parsed, resource.is_writable()) {
                // What is understood is the same as itself, if it may be written at all.
                let compare = FileText { resource, version, conversion: Conversion::Quadratic, page_size: 4096, wanted: &value };
                let whole = !matches!(value, Value::Text(_)) && value != Value::Integer(0);
                if whole && resource.validate(&value, version).is_ok() && compare.key().is_none() {
                    prop_assert!(compare.is_same(&text), "{resource} {value:?} {text:?}");
                }
            }
        }
    }
}
