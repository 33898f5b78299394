use koord_extension::annotation::{Bandwidth, CpuBurst, CpuBurstPolicy, CpuQos, IoConfig, MemoryQos};
use koord_extension::qos::QosClass;
use koord_extension::quantity::Quantity;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn spec(value: Value) -> NodeSloSpec {
    NodeSloSpec::check(&value).unwrap()
}

fn mistakes(value: Value) -> Vec<String> {
    NodeSloSpec::check(&value).unwrap_err().iter().map(ToString::to_string).collect()
}

fn class(qos: Value) -> Value {
    json!({ "resourceQOSStrategy": { "lsClass": qos } })
}

/// A value for every field of the spec, at the lower or the upper end of its range.
fn full(upper: bool) -> Value {
    let ends = |lower: i64, higher: i64| if upper { higher } else { lower };
    let percent = ends(0, 100);
    let class = json!({
        "cpuQOS": {
            "enable": upper, "groupIdentity": ends(-1, 2), "schedIdle": ends(0, 1), "coreExpeller": upper,
        },
        "memoryQOS": {
            "enable": upper, "minLimitPercent": percent, "lowLimitPercent": percent,
            "throttlingPercent": percent, "wmarkRatio": percent, "wmarkScalePermill": ends(1, 1000),
            "wmarkMinAdj": ends(-25, 50), "priorityEnable": ends(0, 1), "priority": ends(0, 12),
            "oomKillGroup": ends(0, 1), "pageCacheEnable": upper, "pageCacheLimitPercent": percent,
            "pageCacheLimitSize": ends(0, i64::MAX), "pageCacheReclaimSync": upper,
        },
        "blkioQOS": { "enable": upper, "blocks": [{ "name": "sda", "type": "device", "ioCfg": {
            "readIOPS": ends(0, 9), "writeIOPS": ends(0, 9), "readBPS": ends(0, 9), "writeBPS": ends(0, 9),
            "ioWeightPercent": ends(1, 100), "readLatency": ends(0, 9), "writeLatency": ends(0, 9),
            "readLatencyPercent": percent, "writeLatencyPercent": percent, "enableUserModel": upper,
            "modelReadBPS": ends(1, 9), "modelWriteBPS": ends(1, 9), "modelReadSeqIOPS": ends(1, 9),
            "modelWriteSeqIOPS": ends(1, 9), "modelReadRandIOPS": ends(1, 9), "modelWriteRandIOPS": ends(1, 9),
        } }] },
        "resctrlQOS": {
            "enable": upper, "catRangeStartPercent": ends(0, 99), "catRangeEndPercent": ends(1, 100),
            "mbaPercent": percent,
        },
        "networkQOS": {
            "enable": upper, "ingressRequest": ends(0, 25), "ingressLimit": percent,
            "egressRequest": ends(0, 25), "egressLimit": percent,
        },
    });
    json!({
        "resourceUsedThresholdWithBE": {
            "enable": upper, "cpuSuppressThresholdPercent": percent, "cpuSuppressMinPercent": percent,
            "cpuSuppressPolicy": "cfsQuota", "memoryEvictThresholdPercent": ends(1, 100),
            "memoryEvictLowerPercent": ends(0, 99),
            "memoryAllocatableEvictThresholdPercent": ends(1, 500),
            "memoryAllocatableEvictLowerPercent": ends(0, 499),
            "cpuEvictBESatisfactionLowerPercent": ends(0, 99),
            "cpuEvictBESatisfactionUpperPercent": ends(1, 100),
            "cpuEvictBEUsageThresholdPercent": percent, "cpuEvictTimeWindowSeconds": ends(1, 3600),
            "cpuEvictThresholdPercent": ends(1, 100), "cpuEvictLowerPercent": ends(0, 99),
            "cpuAllocatableEvictThresholdPercent": ends(1, 500),
            "cpuAllocatableEvictLowerPercent": ends(0, 499), "cpuEvictPolicy": "evictByAllocatable",
            "evictEnabledPriorityThreshold": ends(i64::from(i32::MIN), i64::from(i32::MAX)),
            "allocatableEvictPriorityThreshold": ends(0, 7999),
        },
        "resourceQOSStrategy": {
            "policies": { "cpuPolicy": "coreSched", "netQOSPolicy": "terway-qos" },
            "lsrClass": class, "lsClass": class, "beClass": class, "systemClass": class, "cgroupRoot": class,
        },
        "cpuBurstStrategy": {
            "policy": "auto", "cpuBurstPercent": ends(0, 10_000), "cfsQuotaBurstPercent": ends(100, 1000),
            "cfsQuotaBurstPeriodSeconds": ends(-1, 60), "sharePoolThresholdPercent": percent,
        },
        "systemStrategy": {
            "minFreeKbytesFactor": ends(1, 100), "watermarkScaleFactor": ends(1, 400),
            "memcgReapBackGround": ends(0, 1), "pageCacheLimitEnabled": ends(0, 1),
            "schedGroupIdentityEnabled": ends(0, 1), "schedIdleSaverWmark": ends(0, 9),
            "schedFeatures": { "ID_EXPELLER_SHARE_CORE": upper }, "totalNetworkBandwidth": "10G",
        },
        "hostApplications": [{
            "name": "nginx", "priority": "koord-prod", "qos": "LS",
            "cgroupPath": { "base": "CgroupRoot", "parentDir": "host", "relativePath": "nginx" },
            "strategy": {},
        }],
        "extensions": { "other": [1, "two"] },
    })
}

/// Every number of the tree, as a path to it.
fn numbers(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(path.to_owned()),
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| *key != "extensions") {
                numbers(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                numbers(value, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn both_ends_of_every_range_are_accepted() {
    for upper in [false, true] {
        let value = full(upper);
        let read = spec(value.clone());
        // Nothing of it is lost.
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
        let (clamped, changed) = NodeSloSpec::clamped(&value);
        assert_eq!((clamped, changed), (read, Vec::new()));
    }
}

#[test]
fn no_number_has_an_open_end() {
    let mut paths = Vec::new();
    numbers(&full(true), "", &mut paths);
    assert_eq!(paths.len(), 5 * (2 + 11 + 15 + 3 + 4) + 16 + 4 + 6);
    for path in paths {
        for wrong in [json!(i64::MIN), json!(u64::MAX), json!(1.5), json!("x"), json!(true), json!([])] {
            let mut value = full(true);
            *value.pointer_mut(&path).unwrap() = wrong.clone();
            assert!(NodeSloSpec::check(&value).is_err(), "{path} {wrong}");
            let (clamped, changed) = NodeSloSpec::clamped(&value);
            assert!(!changed.is_empty(), "{path} {wrong}");
            // What is left is right.
            let again = serde_json::to_value(&clamped).unwrap();
            assert_eq!(NodeSloSpec::check(&again), Ok(clamped), "{path} {wrong}");
        }
    }
}

#[test]
fn numbers_beside_the_range_are_refused() {
    for (field, lowest, highest) in [
        ("cpuQOS/groupIdentity", -1, 2),
        ("cpuQOS/schedIdle", 0, 1),
        ("memoryQOS/minLimitPercent", 0, 100),
        ("memoryQOS/wmarkScalePermill", 1, 1000),
        ("memoryQOS/wmarkMinAdj", -25, 50),
        ("memoryQOS/priority", 0, 12),
        ("resctrlQOS/mbaPercent", 0, 100),
        ("networkQOS/egressLimit", 0, 100),
    ] {
        let (part, name) = field.split_once('/').unwrap();
        for (number, right) in [(lowest - 1, false), (lowest, true), (highest, true), (highest + 1, false)] {
            let value = class(json!({ part: { name: number } }));
            assert_eq!(NodeSloSpec::check(&value).is_ok(), right, "{field} {number}");
            let (clamped, changed) = NodeSloSpec::clamped(&value);
            assert_eq!(changed.is_empty(), right, "{field} {number}");
            let held = class(json!({ part: { name: number.clamp(lowest, highest) } }));
            assert_eq!(clamped, spec(held), "{field} {number}");
        }
    }
}

#[test]
fn every_mistake_is_told() {
    assert_eq!(
        mistakes(json!({
            "cpuBurstStrategy": { "policy": "Auto", "cpuBurstPercent": -1, "cfsQuotaBurstPercent": 99 },
            "resourceQOSStrategy": {
                "beClass": { "cpuQOS": { "groupIdentity": 3, "enable": "yes" }, "cpuQos": {} },
                "policies": [],
            },
            "systemStrategy": { "totalNetworkBandwidth": "fast", "schedFeatures": { "X": 1 } },
            "hostApplications": [
                { "name": "a", "qos": "ls", "cgroupPath": { "relativePath": "a/../b" } }, {}, null,
            ],
            "extension": {},
        })),
        [
            "cpuBurstStrategy.cfsQuotaBurstPercent: 99 is out of range; wanted a whole number, at least 100",
            "cpuBurstStrategy.cpuBurstPercent: -1 is out of range; wanted a whole number, 0..10000",
            "cpuBurstStrategy.policy: \"Auto\" is unknown, is auto meant?; \
             wanted one of none, cpuBurstOnly, cfsQuotaBurstOnly, auto",
            "extension: {} is in an unknown field, is extensions meant?; \
             wanted one of resourceUsedThresholdWithBE, resourceQOSStrategy, cpuBurstStrategy, \
             systemStrategy, hostApplications, extensions",
            "hostApplications[0].cgroupPath.relativePath: \"a/../b\" is not a path; wanted a path without ..",
            "hostApplications[0].qos: \"ls\" is unknown, is LS meant?; wanted one of LSE, LSR, LS, BE, SYSTEM",
            "hostApplications[1]: {} has no name; wanted a name",
            "hostApplications[2]: null is empty; wanted an object",
            "resourceQOSStrategy.beClass.cpuQOS.enable: \"yes\" is not a boolean; wanted true or false",
            "resourceQOSStrategy.beClass.cpuQOS.groupIdentity: 3 is out of range; \
             wanted a whole number, -1..2",
            "resourceQOSStrategy.beClass.cpuQos: {} is in an unknown field, is cpuQOS meant?; \
             wanted one of cpuQOS, memoryQOS, blkioQOS, resctrlQOS, networkQOS",
            "resourceQOSStrategy.policies: [] is not an object; wanted an object",
            "systemStrategy.schedFeatures.X: 1 is not a boolean; wanted true or false",
            "systemStrategy.totalNetworkBandwidth: \"fast\" is not a quantity; \
             wanted a quantity such as \"100M\", not negative",
        ]
    );
    assert_eq!(mistakes(json!([]))[0], ": [] is not an object; wanted an object");
    assert_eq!(spec(json!(null)), NodeSloSpec::default());
    assert_eq!(spec(json!({ "cpuBurstStrategy": null })), NodeSloSpec::default());
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let threshold = |value: Value| json!({ "resourceUsedThresholdWithBE": value });
    for (value, right) in [
        (json!({ "memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 79 }), true),
        (json!({ "memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 80 }), false),
        // The default threshold is 70.
        (json!({ "memoryEvictLowerPercent": 69 }), true),
        (json!({ "memoryEvictLowerPercent": 70 }), false),
        (
            json!({ "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 50 }),
            false,
        ),
        (json!({ "cpuEvictBESatisfactionLowerPercent": 60 }), true),
        (json!({ "cpuEvictLowerPercent": 5, "cpuEvictThresholdPercent": 4 }), false),
        (
            json!({ "cpuAllocatableEvictLowerPercent": 110, "cpuAllocatableEvictThresholdPercent": 110 }),
            false,
        ),
        (
            json!({ "memoryAllocatableEvictLowerPercent": 1, "memoryAllocatableEvictThresholdPercent": 0 }),
            false,
        ),
    ] {
        let value = threshold(value);
        assert_eq!(NodeSloSpec::check(&value).is_ok(), right, "{value}");
        let (clamped, changed) = NodeSloSpec::clamped(&value);
        assert_eq!(changed.len(), usize::from(!right), "{value}");
        if !right {
            assert_eq!(clamped.effective(), EffectiveNodeSlo::default(), "{value}");
        }
    }
    let range =
        |class: &str, range: Value| json!({ "resourceQOSStrategy": { class: { "resctrlQOS": range } } });
    assert!(NodeSloSpec::check(&range("lsClass", json!({ "catRangeStartPercent": 99 }))).is_ok());
    assert!(NodeSloSpec::check(&range("lsClass", json!({ "catRangeEndPercent": 0 }))).is_err());
    // The default end of best-effort pods is 30.
    assert!(NodeSloSpec::check(&range("beClass", json!({ "catRangeStartPercent": 29 }))).is_ok());
    assert_eq!(
        mistakes(range("beClass", json!({ "catRangeStartPercent": 30 }))),
        ["resourceQOSStrategy.beClass.resctrlQOS.catRangeStartPercent: 30 contradicts another field; \
          wanted less than catRangeEndPercent, which is 30"]
    );
}

#[test]
fn bandwidth_that_is_requested_must_exist() {
    let network = |ls: Value, be: Value| {
        json!({
            "resourceQOSStrategy": {
                "lsClass": { "networkQOS": { "egressRequest": ls } },
                "beClass": { "networkQOS": { "egressRequest": be } },
            },
            "systemStrategy": { "totalNetworkBandwidth": "1G" },
        })
    };
    for (ls, be, right) in [
        (json!(60), json!(40), true),
        (json!(60), json!(50), false),
        (json!("600M"), json!("400M"), true),
        (json!("600M"), json!("500M"), false),
        (json!(60), json!("100M"), false),
        (json!(0), json!("100M"), true),
        (json!("-1"), json!(0), false),
        (json!(-1), json!(0), false),
    ] {
        let value = network(ls, be);
        assert_eq!(NodeSloSpec::check(&value).is_ok(), right, "{value}");
        let (clamped, changed) = NodeSloSpec::clamped(&value);
        assert_eq!(changed.is_empty(), right, "{value}");
        assert!(NodeSloSpec::check(&serde_json::to_value(&clamped).unwrap()).is_ok(), "{value}");
    }
    assert_eq!(
        mistakes(network(json!(60), json!(50))),
        ["resourceQOSStrategy: \"egressRequest\" is 110 percent together; \
          wanted at most 100 in all classes together"]
    );
    // Where the total is not known, percents and quantities are still accepted.
    let mut unknown = network(json!("600M"), json!("500M"));
    unknown["systemStrategy"] = json!({});
    assert!(NodeSloSpec::check(&unknown).is_ok());
}

#[test]
fn what_the_api_server_hands_out_is_made_the_best_of() {
    let (clamped, changed) = NodeSloSpec::clamped(&json!({
        "fieldOfTomorrow": { "x": 1 },
        "cpuBurstStrategy": { "policy": "often", "cpuBurstPercent": 20_000, "new": 1 },
        "resourceQOSStrategy": "no",
        "hostApplications": [{ "name": "a" }, { "name": "" }, 5],
    }));
    let burst = clamped.cpu_burst_strategy.clone().unwrap();
    assert_eq!((burst.policy, burst.cpu_burst_percent), (CpuBurstPolicy::Unset, Some(10_000)));
    assert_eq!(clamped.resource_qos_strategy, None);
    assert_eq!(clamped.host_applications.len(), 1);
    assert_eq!(
        changed.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(),
        [
            "cpuBurstStrategy.cpuBurstPercent",
            "cpuBurstStrategy.policy",
            "hostApplications[1].name",
            "hostApplications[2]",
            "resourceQOSStrategy",
        ]
    );
    assert_eq!(NodeSloSpec::clamped(&json!(7)).0, NodeSloSpec::default());
    // A field in another case is unknown, and its number does not get past the ranges.
    let odd = json!({ "cpuBurstStrategy": { "cpuburstpercent": 20_000 } });
    assert_eq!(NodeSloSpec::clamped(&odd).0, spec(json!({ "cpuBurstStrategy": {} })));
}

#[test]
fn defaults_are_those_of_koordinator() {
    let slo = EffectiveNodeSlo::default();
    assert_eq!(slo.cpu_policy, CpuPolicy::GroupIdentity);
    assert_eq!(slo.network_policy, NetworkPolicy::Tc);
    assert!(!slo.threshold.enable);
    assert_eq!(slo.threshold.cpu_suppress_threshold_percent, 65);
    assert_eq!(slo.threshold.cpu_suppress_min_percent, None);
    assert_eq!(slo.threshold.cpu_suppress_policy, CpuSuppressPolicy::Cpuset);
    assert_eq!(slo.threshold.memory_evict_threshold_percent, 70);
    assert_eq!(slo.threshold.memory_evict_lower_percent, 68);
    assert_eq!(slo.threshold.cpu_evict_lower_percent, None);
    assert_eq!(slo.threshold.cpu_evict_policy, CpuEvictPolicy::EvictByRealLimit);
    assert_eq!(slo.cpu_burst.policy, CpuBurstPolicy::None);
    assert_eq!(slo.cpu_burst.cpu_burst_percent, 1000);
    assert_eq!(slo.cpu_burst.cfs_quota_burst_percent, 300);
    assert_eq!(slo.cpu_burst.cfs_quota_burst_period_seconds, -1);
    assert_eq!(slo.cpu_burst.share_pool_threshold_percent, 50);
    assert_eq!(slo.system_strategy, SystemStrategy::default());
    for qos in [QosClass::Lse, QosClass::Lsr, QosClass::Ls, QosClass::Be] {
        let class = slo.class(qos);
        assert_eq!(class.cpu, ClassCpuQos::NONE, "{qos}");
        assert_eq!(class.memory, ClassMemoryQos::NONE, "{qos}");
        assert_eq!(class.resctrl, ClassResctrlQos::NONE, "{qos}");
        assert_eq!(class.network, ClassNetworkQos::default(), "{qos}");
        assert_eq!(class.blkio, ClassBlkioQos { enable: false, blocks: Vec::new() }, "{qos}");
    }
    assert_eq!(ClassMemoryQos::NONE.wmark_scale_permill, 50);
    assert_eq!(slo.threshold.cpu_allocatable_evict_lower_percent, None);
}

#[test]
fn enabled_features_have_the_defaults_of_their_class() {
    let on = json!({ "cpuQOS": { "enable": true }, "memoryQOS": { "enable": true },
                     "resctrlQOS": { "enable": true }, "blkioQOS": { "enable": true } });
    let slo = spec(json!({ "resourceQOSStrategy": {
        "lsrClass": on, "lsClass": on, "beClass": on, "systemClass": on,
    } }))
    .effective();
    for (qos, identity, expeller, ratio, scale, adj, end) in [
        (QosClass::Lse, 2, true, 95, 20, -25, 100),
        (QosClass::Lsr, 2, true, 95, 20, -25, 100),
        (QosClass::Ls, 2, true, 95, 20, -25, 100),
        (QosClass::Be, -1, false, 95, 20, 50, 30),
        (QosClass::System, 0, false, 0, 50, 0, 100),
    ] {
        let class = slo.class(qos);
        assert!(class.cpu.enable && class.memory.enable && class.resctrl.enable && class.blkio.enable);
        assert_eq!((class.cpu.group_identity, class.cpu.core_expeller), (identity, expeller), "{qos}");
        assert!(!class.cpu.sched_idle);
        let memory = class.memory;
        assert_eq!(
            (memory.wmark_ratio, memory.wmark_scale_permill, memory.wmark_min_adj),
            (ratio, scale, adj)
        );
        assert_eq!(
            (memory.min_limit_percent, memory.low_limit_percent, memory.throttling_percent),
            (0, 0, 0)
        );
        assert_eq!((memory.priority, memory.priority_enable, memory.oom_kill_group), (0, false, false));
        assert_eq!(memory.page_cache_enable, None);
        assert_eq!(class.resctrl.cat_range_start_percent, 0);
        assert_eq!((class.resctrl.cat_range_end_percent, class.resctrl.mba_percent), (end, 100), "{qos}");
    }
}

#[test]
fn disabled_features_lose_their_numbers() {
    let off = json!({
        "cpuQOS": { "groupIdentity": 1, "schedIdle": 1, "coreExpeller": true },
        "memoryQOS": { "enable": false, "minLimitPercent": 50 },
        "resctrlQOS": { "mbaPercent": 10 },
        "networkQOS": { "egressLimit": 50 },
        "blkioQOS": { "blocks": [{ "name": "sda" }] },
    });
    let slo = spec(json!({ "resourceQOSStrategy": {
        "lsrClass": off, "lsClass": off, "beClass": off, "systemClass": off, "cgroupRoot": off,
    } }))
    .effective();
    for (class, blocks) in [(&slo.lsr, 1), (&slo.ls, 1), (&slo.be, 0)] {
        assert_eq!(class.cpu, ClassCpuQos::NONE);
        assert_eq!(class.memory, ClassMemoryQos::NONE);
        assert_eq!(class.resctrl, ClassResctrlQos::NONE);
        assert_eq!(class.network.egress_limit, Bandwidth::Percent(50));
        assert_eq!(class.blkio.blocks.len(), blocks);
    }
    // SYSTEM keeps them; users look at the switch.
    assert_eq!((slo.system.cpu.enable, slo.system.cpu.group_identity), (false, 1));
    assert_eq!((slo.system.memory.min_limit_percent, slo.system.resctrl.mba_percent), (50, 10));
    assert!(slo.cgroup_root.blkio.blocks.is_empty());
}

#[test]
fn eviction_goes_two_percent_below_its_threshold() {
    let slo = spec(json!({ "resourceUsedThresholdWithBE": {
        "memoryEvictThresholdPercent": 1, "cpuEvictThresholdPercent": 90,
    } }))
    .effective();
    assert_eq!(slo.threshold.memory_evict_lower_percent, 0);
    assert_eq!(slo.threshold.cpu_evict_lower_percent, Some(88));
}

#[test]
fn pods_state_their_own_cpu_qos_in_ls_only() {
    let slo = spec(json!({ "resourceQOSStrategy": {
        "lsClass": { "cpuQOS": { "enable": true } }, "beClass": { "cpuQOS": { "enable": true } },
    } }))
    .effective();
    let parse = |text| CpuQos::parse(text).unwrap();
    let on = parse(r#"{"enable":true,"groupIdentity":1}"#);
    assert_eq!(slo.cpu_of_pod(QosClass::Ls, Some(&on)).group_identity, 1);
    assert_eq!(slo.cpu_of_pod(QosClass::Be, Some(&on)).group_identity, -1);
    assert_eq!(slo.cpu_of_pod(QosClass::Ls, Some(&parse(r#"{"groupIdentity":1}"#))).group_identity, 0);
    assert_eq!(slo.cpu_of_pod(QosClass::Ls, Some(&parse(r#"{"enable":true}"#))).group_identity, 2);
    let off = slo.cpu_of_pod(QosClass::Ls, Some(&parse("{}")));
    assert_eq!((off.enable, off.group_identity, off.core_expeller), (false, 0, true));
    assert_eq!(slo.cpu_of_pod(QosClass::Ls, None), slo.ls.cpu);
}

#[test]
fn pods_state_their_own_memory_qos() {
    let node = |enable| {
        spec(class(json!({ "memoryQOS": { "enable": enable, "minLimitPercent": 20, "wmarkRatio": 80 } })))
            .effective()
    };
    let of = |slo: &EffectiveNodeSlo, text| {
        let memory = slo.memory_of_pod(QosClass::Ls, Some(&MemoryQos::parse(text).unwrap()));
        (memory.enable, memory.min_limit_percent, memory.wmark_ratio, memory.wmark_min_adj)
    };
    for (enable, text, wanted) in [
        (true, "{}", (true, 20, 80, -25)),
        (true, r#"{"policy":"default","minLimitPercent":5}"#, (true, 5, 80, -25)),
        (true, r#"{"policy":"none"}"#, (false, 0, 0, 0)),
        (true, r#"{"policy":"none","wmarkRatio":7}"#, (false, 0, 7, 0)),
        (true, r#"{"policy":"auto"}"#, (true, 0, 95, -25)),
        (false, r#"{"policy":"auto","minLimitPercent":5}"#, (true, 5, 95, -25)),
        (false, "{}", (false, 0, 0, 0)),
    ] {
        assert_eq!(of(&node(enable), text), wanted, "{enable} {text}");
    }
    assert_eq!(node(true).memory_of_pod(QosClass::Ls, None), node(true).ls.memory);
}

#[test]
fn pods_state_their_own_burst_field_by_field() {
    let slo = spec(json!({ "cpuBurstStrategy": { "policy": "auto", "cpuBurstPercent": 500,
        "sharePoolThresholdPercent": 40 } }))
    .effective();
    let burst = slo.cpu_burst_of_pod(Some(&CpuBurst::parse(r#"{"cfsQuotaBurstPercent":200}"#).unwrap()));
    assert_eq!((burst.cpu_burst_percent, burst.cfs_quota_burst_percent), (500, 200));
    assert_eq!(burst.share_pool_threshold_percent, 40);
    assert!(burst.keeps_unused_quota() && burst.raises_quota());
    let burst = slo.cpu_burst_of_pod(Some(&CpuBurst::parse(r#"{"policy":"cpuBurstOnly"}"#).unwrap()));
    assert!(burst.keeps_unused_quota() && !burst.raises_quota());
    assert_eq!(slo.cpu_burst_of_pod(None), slo.cpu_burst);
    let off = EffectiveNodeSlo::default().cpu_burst;
    assert!(!off.keeps_unused_quota() && !off.raises_quota());
}

#[test]
fn host_applications_have_directories() {
    for (value, base, path) in [
        (json!({ "name": "nginx", "qos": "LS" }), CgroupBase::CgroupRoot, "host-latency-sensitive/nginx"),
        (json!({ "name": "a", "qos": "LSE" }), CgroupBase::CgroupRoot, "host-latency-sensitive/a"),
        (json!({ "name": "a", "qos": "LSR" }), CgroupBase::CgroupRoot, "host-latency-sensitive/a"),
        (json!({ "name": "job", "qos": "BE" }), CgroupBase::CgroupRoot, "host-best-effort/job"),
        (json!({ "name": "a", "qos": "SYSTEM" }), CgroupBase::CgroupRoot, "a"),
        (json!({ "name": "a" }), CgroupBase::CgroupRoot, "a"),
        (
            json!({ "name": "a", "qos": "LS", "cgroupPath": {
                "base": "KubepodsBesteffort", "parentDir": "/p/", "relativePath": "r/s" } }),
            CgroupBase::KubepodsBesteffort,
            "p/r/s",
        ),
        (json!({ "name": "a", "cgroupPath": { "relativePath": "r" } }), CgroupBase::CgroupRoot, "r"),
    ] {
        let application = spec(json!({ "hostApplications": [value] })).host_applications.remove(0);
        assert_eq!(application.directory(), HostDirectory { base, path: path.into() });
    }
}

#[test]
fn block_io_has_defaults() {
    let settings = IoSettings::from(&IoConfig { read_iops: Some(7), ..IoConfig::default() });
    assert_eq!((settings.read_iops, settings.write_iops, settings.read_bps), (7, 0, 0));
    assert_eq!(
        (settings.io_weight_percent, settings.read_latency, settings.write_latency),
        (100, 3000, 3000)
    );
    assert_eq!((settings.read_latency_percent, settings.write_latency_percent), (95, 95));
    assert_eq!((settings.enable_user_model, settings.model_read_bps), (false, 1));
}

#[test]
fn one_spec_is_laid_over_another() {
    let base = spec(json!({
        "cpuBurstStrategy": { "policy": "auto", "cpuBurstPercent": 500 },
        "resourceQOSStrategy": { "lsClass": { "cpuQOS": { "enable": true, "groupIdentity": 1 } } },
        "hostApplications": [{ "name": "a" }],
        "systemStrategy": { "totalNetworkBandwidth": "1G" },
    }));
    let over = spec(json!({
        "cpuBurstStrategy": { "cpuBurstPercent": 0 },
        "resourceQOSStrategy": { "lsClass": { "cpuQOS": { "enable": false } } },
        "hostApplications": [{ "name": "b" }],
    }));
    let merged = over.over(&base);
    let burst = merged.cpu_burst_strategy.unwrap();
    assert_eq!((burst.policy, burst.cpu_burst_percent), (CpuBurstPolicy::Auto, Some(0)));
    let cpu = merged.resource_qos_strategy.unwrap().ls_class.unwrap().cpu_qos.unwrap();
    assert_eq!((cpu.enable, cpu.group_identity), (Some(false), Some(1)));
    assert_eq!(merged.host_applications.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["b"]);
    let total = merged.system_strategy.unwrap().total_network_bandwidth;
    assert_eq!(total, Some(Quantity::parse("1G").unwrap()));
    assert_eq!(NodeSloSpec::default().over(&base), base);
    assert_eq!(base.over(&NodeSloSpec::default()), base);
}

#[test]
fn keys_of_objects_are_read_in_any_case() {
    let read: NodeSloSpec =
        serde_json::from_str(r#"{"CPUBurstStrategy":{"CPUBURSTPERCENT":5},"new":1}"#).unwrap();
    assert_eq!(read.cpu_burst_strategy.unwrap().cpu_burst_percent, Some(5));
    let memory: MemoryQosStrategy = serde_json::from_str(r#"{"Enable":true,"minlimitpercent":1}"#).unwrap();
    assert_eq!((memory.enable, memory.values.min_limit_percent), (Some(true), Some(1)));
}

fn some_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-200i64..200).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z0-9./]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{1,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    // A case is a whole spec, read four times.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands at whatever place: it is refused or understood, and what is made the best of is
    /// right.
    #[test]
    fn any_document_is_refused_or_understood(place in 0usize..300, odd in some_json()) {
        let mut paths = vec![String::new()];
        numbers(&full(true), "", &mut paths);
        for path in paths.clone() {
            if let Some((parent, _)) = path.rsplit_once('/') {
                paths.push(parent.to_owned());
            }
        }
        let mut value = full(true);
        *value.pointer_mut(&paths[place % paths.len()]).unwrap() = odd;
        let (clamped, changed) = NodeSloSpec::clamped(&value);
        match NodeSloSpec::check(&value) {
            Ok(spec) => prop_assert_eq!(spec, clamped.clone()),
            Err(errors) => prop_assert!(!errors.is_empty()),
        }
        let again = serde_json::to_value(&clamped).unwrap();
        prop_assert_eq!(NodeSloSpec::check(&again), Ok(clamped), "{:?}", changed);
    }
}
