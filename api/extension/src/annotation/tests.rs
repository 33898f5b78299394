use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::keys::{annotation as key, label, resource};
use crate::quantity::{Quantity, ResourceList};

fn with(key: &str, text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), text.to_owned())])
}

fn list(entries: &[(&str, &str)]) -> ResourceList {
    entries.iter().map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).unwrap())).collect()
}

#[test]
fn keys_are_matched_exactly_first_and_then_in_any_case() {
    let cpuset = |text| ResourceStatus::parse(text).unwrap().cpuset;
    assert_eq!(cpuset(r#"{"cpuset":"0-3"}"#), "0-3");
    assert_eq!(cpuset(r#"{"CPUSet":"0-3"}"#), "0-3");
    assert_eq!(cpuset(r#"{"CPU\u017fET":"1"}"#), "1");
    // The last one wins, however it is written.
    assert_eq!(cpuset(r#"{"cpuset":"1","CPUSET":"2"}"#), "2");
    assert_eq!(cpuset(r#"{"CPUSET":"2","cpuset":"1"}"#), "1");
    assert_eq!(cpuset(r#"{"cpuset":"1","cpuset":null}"#), "1");
    assert_eq!(cpuset(r#"{"cpuset":null}"#), "");
    assert_eq!(cpuset(r#"{"unknown":{"deep":[1,2]},"cpuset":"4"}"#), "4");
    assert_eq!(cpuset("{}"), "");
    assert_eq!(cpuset("null"), "");
}

#[test]
fn wrong_types_and_broken_json_are_errors_with_the_key() {
    for text in
        ["", "not json", "[]", "\"\"", "{\"cpuset\":1}", "{\"cpuset\":[]}", "{} x", "{\"cpuset\":\"1\""]
    {
        let error = ResourceStatus::parse(text).unwrap_err();
        assert_eq!(error.key, key::RESOURCE_STATUS, "{text:?}");
        assert!(error.to_string().starts_with("annotation scheduling.koordinator.sh/resource-status: "));
    }
    let long = "x".repeat(1000);
    assert_eq!(ResourceStatus::parse(&long).unwrap_err().value.len(), 123);
    assert_eq!(ResourceStatus::from_annotations(&BTreeMap::new()), Ok(None));
}

#[test]
fn resource_status() {
    let text = r#"{"cpuset":"0-3,8","numaNodeResources":[{"node":0,"resources":{"cpu":"4"}}]}"#;
    let status = ResourceStatus::from_annotations(&with(key::RESOURCE_STATUS, text)).unwrap().unwrap();
    assert_eq!(status.cpus().unwrap().unwrap().len(), 5);
    assert!(status.is_numa_aware());
    assert_eq!(status.to_text(), text);
    let none = ResourceStatus::default();
    assert_eq!((none.cpus(), none.is_numa_aware(), none.to_text()), (Ok(None), false, "{}".into()));
    let broken = ResourceStatus { cpuset: "x".into(), ..none };
    assert!(broken.cpus().unwrap_err().to_string().contains("CPU list"));
    for (resources, aware) in [
        (list(&[("cpu", "0")]), false),
        (list(&[("memory", "1Gi")]), false),
        (list(&[(resource::BATCH_CPU, "1")]), true),
        (list(&[(resource::BATCH_CPU, "-1")]), false),
        (list(&[("cpu", "-1")]), true),
    ] {
        let node = NumaNodeResource { node: 1, resources };
        assert_eq!(node.gives_cpu(), aware, "{node:?}");
    }
    // A null entry of a list is an empty one.
    let status = ResourceStatus::parse(r#"{"numaNodeResources":[null,{"node":1}]}"#).unwrap();
    assert_eq!(status.numa_node_resources.len(), 2);
    assert_eq!(status.to_text(), r#"{"numaNodeResources":[{"node":0},{"node":1}]}"#);
}

#[test]
fn resource_spec() {
    let spec = ResourceSpec::parse(
        r#"{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"NewLevel"}"#,
    )
    .unwrap();
    assert_eq!(spec.required_cpu_bind_policy, CpuBindPolicy::FullPcpus);
    assert_eq!(spec.preferred_cpu_bind_policy, CpuBindPolicy::Unset);
    assert_eq!(spec.preferred_cpu_exclusive_policy, CpuExclusivePolicy::Other("NewLevel".into()));
    assert_eq!(
        spec.to_text(),
        r#"{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"NewLevel"}"#
    );
    let numa = r#"{"numaTopologyPolicy":"SingleNUMANode","singleNUMANodeExclusive":"Required"}"#;
    assert_eq!(NumaTopologySpec::parse(numa).unwrap().to_text(), numa);
}

#[test]
fn quantities_are_written_in_canonical_form() {
    let text = r#"{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":1000}}}}"#;
    let spec = ExtendedResourceSpec::parse(text).unwrap();
    assert_eq!(spec.to_text(), r#"{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}}"#);
    assert!(ExtendedResourceSpec::parse("null").unwrap().is_empty());
    assert!(ExtendedResourceSpec::parse(r#"{"containers":null}"#).unwrap().is_empty());
    assert!(ExtendedResourceSpec::parse(r#"{"containers":{"a":{"requests":{"x":"1g"}}}}"#).is_err());
}

#[test]
fn devices() {
    let text = r#"{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"16Gi"}}],"rdma":[{"minor":0,"resources":{},"id":"0000:09:00.0","extension":{"vfs":[{"busID":"0000:09:00.2"}]}}]}"#;
    let devices = DeviceAllocated::parse(text).unwrap();
    assert_eq!(devices.of_type(device_type::GPU)[0].minor, 1);
    assert_eq!(devices.of_type(device_type::RDMA)[0].id, "0000:09:00.0");
    assert!(devices.of_type(device_type::FPGA).is_empty());
    assert_eq!(devices.to_text(), text);
    assert_eq!(DeviceAllocated::parse("null"), Ok(DeviceAllocated::default()));
    let levels = ["Device", "PCIe", "NUMANode", "Node", "", "Moon"];
    assert_eq!(levels.map(|word| DeviceTopologyScope::from(word).level()), [4, 3, 2, 1, 0, 0]);
    let hints = r#"{"gpu":{"selector":{"matchLabels":{"type":"a"},"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]},"allocateStrategy":"ApplyForAll","requiredTopologyScope":"PCIe","exclusivePolicy":"PCIeLevel"}}"#;
    assert_eq!(DeviceAllocateHints::parse(hints).unwrap().to_text(), hints);
    let joint = r#"{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}"#;
    assert_eq!(DeviceJointAllocate::parse(joint).unwrap().to_text(), joint);
}

#[test]
fn gpu_partitions() {
    let spec = GpuPartitionSpec::from_annotations(&with(key::GPU_PARTITION_SPEC, "{}")).unwrap().unwrap();
    assert_eq!(spec.allocate_policy, GpuPartitionAllocatePolicy::Unset);
    assert!(!spec.allocate_policy.is_restricted());
    let spec = GpuPartitionSpec::parse(r#"{"allocatePolicy":"Restricted","ringBusBandwidth":"400Gi"}"#);
    assert!(spec.unwrap().allocate_policy.is_restricted());
    assert_eq!(GpuPartitionSpec::from_annotations(&BTreeMap::new()), Ok(None));
    let text = r#"{"1":[{"minors":[0]}],"2":[{"minors":[0,1],"gpuLinkType":"NVLink","ringBusBandwidth":"400Gi","allocationScore":1}]}"#;
    let table = GpuPartitions::from_annotations(&with(key::GPU_PARTITIONS, text)).unwrap().unwrap();
    assert_eq!(table.0[&2][0].minors, [0, 1]);
    assert_eq!(table.to_text(), text);
    assert_eq!(GpuPartitions::from_annotations(&with(key::GPU_PARTITIONS, "")), Ok(None));
    assert!(GpuPartitions::parse("null").is_err());
    assert!(GpuPartitions::parse(r#"{"one":[]}"#).is_err());
}

#[test]
fn reservations() {
    let allocated = r#"{"name":"r","uid":"u"}"#;
    assert_eq!(ReservationAllocated::parse(allocated).unwrap().to_text(), allocated);
    let affinity = |text| ReservationAffinity::from_annotations(&with(key::RESERVATION_AFFINITY, text));
    assert_eq!(affinity(""), Ok(Some(ReservationAffinity::default())));
    assert_eq!(ReservationAffinity::from_annotations(&BTreeMap::new()), Ok(None));
    let text = r#"{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":[{"matchExpressions":[{"key":"k","operator":"Exists"}]}]},"reservationSelector":{"a":"b"},"tolerations":[{"key":"t","operator":"Exists","tolerationSeconds":0}]}"#;
    assert_eq!(affinity(text).unwrap().unwrap().to_text(), text);
    let owners = r#"[{"controller":{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"n","uid":"u","controller":true,"namespace":"d"}},{"object":{"name":"p"}},{"labelSelector":{"matchLabels":{"a":"b"}}}]"#;
    assert_eq!(ReservationOwners::parse(owners).unwrap().to_text(), owners);
    let owner = r#"{"kind":"Pod","namespace":"d","name":"p","uid":"u"}"#;
    assert_eq!(ReservationCurrentOwner::parse(owner).unwrap().0.name, "p");
    let options = ReservationRestrictedOptions::parse(r#"{"resources":["cpu"]}"#).unwrap();
    assert_eq!(options.resources, ["cpu"]);
}

#[test]
fn an_exact_match_looks_at_all_names() {
    let names = |names: &[&str]| ExactMatchReservation {
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let (pod, reservation) = (list(&[("cpu", "1"), ("memory", "1Gi")]), list(&[("cpu", "1000m")]));
    assert!(names(&[]).matches(&pod, &reservation));
    assert!(names(&["cpu"]).matches(&pod, &reservation));
    assert!(!names(&["memory"]).matches(&pod, &reservation));
    assert!(names(&["gpu", "cpu"]).matches(&pod, &reservation));
    // A name that both lack does not end the comparison.
    assert!(!names(&["gpu", "memory"]).matches(&pod, &reservation));
    let key = key::EXACT_MATCH_RESERVATION;
    assert_eq!(ExactMatchReservation::from_annotations(&with(key, "")), Ok(None));
}

#[test]
fn eviction() {
    let cost = |text| eviction_cost(&with(key::EVICTION_COST, text));
    for (text, value) in
        [("10", 10), ("-5", -5), ("0", 0), ("2147483647", EVICTION_COST_NEVER), ("-2147483648", i32::MIN)]
    {
        assert_eq!(cost(text), Ok(value), "{text}");
    }
    for text in ["+10", "008", "00", "2147483648", "", "x", " 1", "1.0"] {
        assert!(cost(text).is_err(), "{text:?}");
    }
    assert_eq!(eviction_cost(&BTreeMap::new()), Ok(0));
    let priority = |text| eviction_priority(&with(key::EVICTION_PRIORITY, text));
    assert_eq!((priority("-7"), priority("+7")), (Ok(-7), Ok(7)));
    assert!(priority("0x10").is_err());
    assert_eq!(eviction_priority(&BTreeMap::new()), Ok(0));
    let allows = |text| EvictionPolicy::allows(&with(key::EVICTION_POLICY, text), "evictByMemory");
    assert!(EvictionPolicy::allows(&BTreeMap::new(), "evictByMemory"));
    assert!(allows(r#"["x","evictByMemory"]"#));
    assert!(!allows(r#"["x"]"#) && !allows("[]") && !allows("broken") && !allows(""));
    let soft =
        r#"{"timestamp":1700000000,"deleteOptions":{"gracePeriodSeconds":30},"initiator":"a","reason":"b"}"#;
    assert_eq!(SoftEviction::parse(soft).unwrap().to_text(), soft);
    assert!(SoftEviction::parse("true").is_err());
}

#[test]
fn cpu_qos_is_checked() {
    let parse = |text| CpuQos::from_annotations(&with(key::CPU_QOS, text));
    let qos = parse(r#"{"enable":true,"groupIdentity":-1,"schedIdle":0,"coreExpeller":false}"#);
    let qos = qos.unwrap().unwrap();
    assert_eq!((qos.enable, qos.group_identity, qos.core_expeller), (Some(true), Some(-1), Some(false)));
    assert_eq!(qos.to_text(), r#"{"enable":true,"groupIdentity":-1,"schedIdle":0,"coreExpeller":false}"#);
    assert!(parse(r#"{"groupIdentity":2}"#).is_ok());
    for text in [r#"{"groupIdentity":3}"#, r#"{"groupIdentity":-2}"#] {
        assert!(parse(text).unwrap_err().to_string().contains("wanted -1..2"), "{text}");
    }
    for text in [r#"{"groupIdentity":"1"}"#, r#"{"groupIdentity":1.0}"#, r#"{"groupIdentity":1e0}"#] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn qos_of_a_pod() {
    let burst = r#"{"policy":"auto","cpuBurstPercent":500,"cfsQuotaBurstPeriodSeconds":-1}"#;
    assert_eq!(CpuBurst::parse(burst).unwrap().to_text(), burst);
    let memory =
        MemoryQos::parse(r#"{"POLICY":"auto","minlimitpercent":10,"pageCacheEnable":true}"#).unwrap();
    assert_eq!(memory.policy, MemoryQosPolicy::Auto);
    assert_eq!(memory.values.min_limit_percent, Some(10));
    assert_eq!(memory.to_text(), r#"{"policy":"auto","minLimitPercent":10,"pageCacheEnable":true}"#);
    assert_eq!(MemoryQos::default().to_text(), "{}");
    let over = MemoryQosValues { wmark_ratio: Some(1), ..memory.values.clone() }.over(&MemoryQosValues {
        wmark_ratio: Some(95),
        priority: Some(3),
        ..MemoryQosValues::default()
    });
    assert_eq!((over.wmark_ratio, over.priority, over.min_limit_percent), (Some(1), Some(3), Some(10)));
    let blkio = r#"{"blocks":[{"name":"ssd","type":"device","ioCfg":{"readIOPS":0}},{"ioCfg":{}}]}"#;
    assert_eq!(BlkioQos::parse(blkio).unwrap().to_text(), blkio);
    assert_eq!(BlkioQos::parse(blkio).unwrap().blocks[1].block_type, BlockType::Unset);
}

#[test]
fn bandwidth_is_in_bits() {
    let qos = NetworkQos::parse(r#"{"ingressLimit":"10M","egressLimit":"50M"}"#).unwrap();
    assert_eq!(qos.ingress_bytes_per_second(), Ok(Some(1_250_000)));
    assert_eq!(qos.egress_bytes_per_second(), Ok(Some(6_250_000)));
    let qos = NetworkQos::parse(r#"{"ingressLimit":"fast"}"#).unwrap();
    assert!(qos.ingress_bytes_per_second().is_err());
    assert_eq!(qos.egress_bytes_per_second(), Ok(None));
    assert!(NetworkQos::parse(r#"{"ingressLimit":10}"#).is_err());
    let read = |text| serde_json::from_str::<Bandwidth>(text);
    assert_eq!(read("60").unwrap(), Bandwidth::Percent(60));
    assert_eq!(read("60").unwrap().bytes_per_second(1_000_000_000), 75_000_000);
    assert_eq!(read("\"80M\"").unwrap().bytes_per_second(1), 10_000_000);
    assert!(read("\"x\"").is_err() && read("1.5").is_err() && read("true").is_err());
    assert_eq!(serde_json::to_string(&read("\"80000k\"").unwrap()).unwrap(), "\"80M\"");
}

#[test]
fn a_containers_own_score_beats_its_pods() {
    let mut annotations = with(key::OOM_SCORE_ADJ, "-500");
    assert_eq!(oom_score_adj(&annotations, "a"), Ok(Some(-500)));
    annotations.insert(key::OOM_SCORE_ADJ_SPEC.to_owned(), r#"{"a":1000,"b":1001}"#.to_owned());
    assert_eq!(oom_score_adj(&annotations, "a"), Ok(Some(1000)));
    assert!(oom_score_adj(&annotations, "b").unwrap_err().to_string().contains("-1000..1000"));
    assert_eq!(oom_score_adj(&annotations, "c"), Ok(Some(-500)));
    for text in ["-1001", "1001", "x", "", "1.5"] {
        assert!(oom_score_adj(&with(key::OOM_SCORE_ADJ, text), "a").is_err(), "{text}");
    }
    assert_eq!(oom_score_adj(&BTreeMap::new(), "a"), Ok(None));
}

#[test]
fn resctrl() {
    let text = r#"{"llc":{"schemata":{"range":[20,80]},"schemataPerCache":[{"range":[20,50]},{"cacheID":1,"range":[20,60]}]},"mb":{"schemata":{"percent":20},"schemataPerCache":[{"cacheID":1,"percent":40}]}}"#;
    let resctrl = Resctrl::parse(text).unwrap();
    assert_eq!(resctrl.llc.schemata_per_cache[0].cache_id, 0);
    assert_eq!(resctrl.mb.schemata_per_cache[0].percent, 40);
    assert_eq!(resctrl.to_text(), text);
    for (range, wanted) in [
        (&[20, 80][..], Some((20, 80))),
        (&[0, 100], Some((0, 100))),
        (&[80, 20], None),
        (&[5, 5], None),
        (&[-1, 5], None),
        (&[0, 101], None),
        (&[], None),
        (&[1], None),
        (&[1, 2, 3], None),
    ] {
        assert_eq!(cache_range(range), wanted, "{range:?}");
    }
}

#[test]
fn gangs() {
    let mut annotations = with(key::GANG_MIN_AVAILABLE, "3");
    assert_eq!(gang_min_available(&annotations), Ok(3));
    assert!(gang_min_available(&BTreeMap::new()).is_err());
    assert_eq!(gang_total_number(&annotations, 3), Ok(3));
    annotations.insert(key::GANG_TOTAL_NUMBER.to_owned(), "0".to_owned());
    assert_eq!(gang_total_number(&annotations, 3), Ok(3));
    annotations.insert(key::GANG_TOTAL_NUMBER.to_owned(), "5".to_owned());
    assert_eq!(gang_total_number(&annotations, 3), Ok(5));
    assert_eq!(gang_mode(&annotations), GangMode::Strict);
    assert_eq!(gang_mode(&with(key::GANG_MODE, "NonStrict")), GangMode::NonStrict);
    assert_eq!(gang_mode(&with(key::GANG_MODE, "other")), GangMode::Strict);
    assert_eq!(gang_match_policy(&annotations), GangMatchPolicy::OnceSatisfied);
    let mut policy = with(key::GANG_MATCH_POLICY_ALIAS, "only-waiting");
    assert_eq!(gang_match_policy(&policy), GangMatchPolicy::OnlyWaiting);
    policy.insert(key::GANG_MATCH_POLICY.to_owned(), String::new());
    assert_eq!(gang_match_policy(&policy), GangMatchPolicy::OnlyWaiting);
    policy.insert(key::GANG_MATCH_POLICY.to_owned(), "waiting-and-running".to_owned());
    assert_eq!(gang_match_policy(&policy), GangMatchPolicy::WaitingAndRunning);
    assert_eq!(gang_network_topology_index(&annotations), Ok(-1));
    let labels = with(label::LIGHTWEIGHT_POD_GROUP_NAME, "old");
    let names = with(key::GANG_NAME, "annotated");
    assert_eq!(gang_name(&labels, &names), Some("old"));
    assert_eq!(gang_name(&BTreeMap::new(), &names), Some("annotated"));
    assert_eq!(gang_name(&with(label::POD_GROUP, "new"), &names), Some("new"));
    assert_eq!(gang_name(&BTreeMap::new(), &BTreeMap::new()), None);
    assert_eq!(GangGroups::parse(r#"["a/b"]"#).unwrap().0, ["a/b"]);
    let spec = r#"{"gatherStrategy":[{"layer":"spine","strategy":"MustGather","podCountMultiple":2}]}"#;
    assert_eq!(NetworkTopologySpec::parse(spec).unwrap().to_text(), spec);
}

#[test]
fn durations_of_go() {
    for (text, duration) in [
        ("0", Duration::ZERO),
        ("10s", Duration::from_secs(10)),
        ("1m30s", Duration::from_secs(90)),
        ("1.5h", Duration::from_secs(5400)),
        (".5s", Duration::from_millis(500)),
        ("1.s", Duration::from_secs(1)),
        ("+2ms", Duration::from_millis(2)),
        ("1us2ns", Duration::from_nanos(1002)),
        ("1\u{b5}s", Duration::from_micros(1)),
        ("0.0000000019s", Duration::from_nanos(1)),
        ("2562047h", Duration::from_secs(2_562_047 * 3600)),
    ] {
        assert_eq!(go_duration(text), Some(duration), "{text}");
    }
    for text in
        ["", "+", "-1s", "1", "s", ".s", "1x", "1 s", "1s ", "1..5s", "2562048h", "9999999999999999999999h"]
    {
        assert_eq!(go_duration(text), None, "{text:?}");
    }
    let waiting = |text| gang_waiting_time(&with(key::GANG_WAITING_TIME, text));
    assert_eq!(waiting("30s"), Ok(Some(Duration::from_secs(30))));
    assert_eq!((waiting(""), gang_waiting_time(&BTreeMap::new())), (Ok(None), Ok(None)));
    assert!(waiting("soon").is_err());
}

#[test]
fn quotas() {
    let labels = with(label::QUOTA_PARENT, "");
    assert_eq!(quota_parent("a", &labels), Some(reserved_quota::ROOT));
    assert_eq!(quota_parent(reserved_quota::ROOT, &labels), None);
    assert_eq!(quota_parent("a", &with(label::QUOTA_PARENT, "p")), Some("p"));
    assert!(quota_allows_lending(&BTreeMap::new()) && quota_preemptible(&BTreeMap::new()));
    assert!(!quota_allows_lending(&with(label::QUOTA_ALLOW_LENT_RESOURCE, "false")));
    assert!(quota_allows_lending(&with(label::QUOTA_ALLOW_LENT_RESOURCE, "False")));
    assert!(!quota_preemptible(&with(label::QUOTA_PREEMPTIBLE, "false")));
    let max = list(&[("cpu", "10")]);
    let weight = |text| quota_shared_weight(&with(key::QUOTA_SHARED_WEIGHT, text), &max);
    assert_eq!(weight(r#"{"cpu":"2"}"#), list(&[("cpu", "2")]));
    for text in [r#"{"cpu":"0"}"#, "{}", "broken", "null", ""] {
        assert_eq!(weight(text), max, "{text}");
    }
    assert_eq!(quota_shared_weight(&BTreeMap::new(), &max), max);
    assert!(quota_resources(&with(key::QUOTA_RUNTIME, r#"{"cpu":1} x"#), key::QUOTA_RUNTIME).is_err());
    assert_eq!(quota_names(&with(key::QUOTA_NAMESPACES, r#"["a","b"]"#), key::QUOTA_NAMESPACES), ["a", "b"]);
    assert!(quota_names(&with(key::QUOTA_NAMESPACES, "a,b"), key::QUOTA_NAMESPACES).is_empty());
}

#[test]
fn hints_and_estimates() {
    let mut annotations = with(key::SCHEDULING_HINT_OLD, r#"{"nodeNames":["old"]}"#);
    let names = |annotations: &_| SchedulingHint::from_annotations(annotations).unwrap().unwrap().node_names;
    assert_eq!(names(&annotations), ["old"]);
    annotations.insert(key::SCHEDULING_HINT.to_owned(), String::new());
    assert_eq!(names(&annotations), ["old"]);
    annotations.insert(key::SCHEDULING_HINT.to_owned(), r#"{"nodeNames":["new"]}"#.to_owned());
    assert_eq!(names(&annotations), ["new"]);
    let seconds = key::LOAD_ESTIMATED_SECONDS_AFTER_POD_SCHEDULED;
    assert_eq!(load_estimated_seconds(&BTreeMap::new(), seconds), Ok(-1));
    assert_eq!(load_estimated_seconds(&with(seconds, "60"), seconds), Ok(60));
    assert!(load_estimated_seconds(&with(seconds, "1m"), seconds).is_err());
    let factors = LoadEstimatedScalingFactors::parse(r#"{"cpu":80}"#).unwrap();
    assert_eq!(factors.0["cpu"], 80);
}

#[test]
fn reservations_of_nodes() {
    let cpus = |text| NodeReservation::parse(text).unwrap().cpus();
    assert_eq!(cpus(r#"{"resources":{"cpu":"3500m"}}"#), ReservedCpus::Count(4));
    assert_eq!(cpus(r#"{"resources":{"cpu":"4"},"reservedCPUs":"0-1"}"#), ReservedCpus::List("0-1".into()));
    assert_eq!(cpus("{}"), ReservedCpus::Count(0));
    assert_eq!(cpus(r#"{"resources":{"cpu":"-1"}}"#), ReservedCpus::Count(0));
    let key = key::NODE_RESERVATION;
    assert_eq!(NodeReservation::from_annotations(&with(key, "")), Ok(None));
    assert!(NodeReservation::from_annotations(&with(key, "x")).is_err());
    let takes = |text| NodeReservation::parse(text).unwrap().takes_resources();
    assert!(takes("{}") && takes(r#"{"applyPolicy":"Default"}"#));
    assert!(!takes(r#"{"applyPolicy":"ReservedCPUsOnly"}"#));
}

#[test]
fn cpus_of_system_pods() {
    let exclusive = |text| SystemQosResource::parse(text).unwrap().is_exclusive();
    assert!(exclusive(r#"{"cpuset":"0-1"}"#));
    assert!(!exclusive(r#"{"cpusetExclusive":false}"#));
    assert_eq!(SystemQosResource::default().to_text(), "{}");
    assert_eq!(SystemQosResource::published(&BTreeMap::new()), Ok(None));
    assert_eq!(SystemQosResource::published(&with("other", "")), Ok(Some(SystemQosResource::default())));
    assert!(SystemQosResource::published(&with(key::NODE_SYSTEM_QOS_RESOURCE, "x")).is_err());
}

#[test]
fn amplification() {
    let amplified = |name, text, ratio| amplify(name, Quantity::parse(text).unwrap(), ratio).to_string();
    assert_eq!(amplified("cpu", "1000m", 1.22), "1220m");
    assert_eq!(amplified("pods", "3", 1.1), "4");
    assert_eq!(amplified("cpu", "1000m", 0.8), "1");
    assert_eq!(amplified("cpu", "0", 2.0), "0");
    assert_eq!(amplified("memory", "1Gi", 1.5), "1536Mi");
    assert_eq!(amplified("memory", "1000", 1.0), "1k");
    assert_eq!(amplified("cpu", "1", f64::NAN), "1");
    assert_eq!(amplified("memory", "8E", 2.0), "9223372036854775807");
    let key = key::NODE_RESOURCE_AMPLIFICATION_RATIO;
    let ratios = AmplificationRatios::from_annotations(&with(key, r#"{"cpu":1.22,"memory":1}"#));
    let ratios = ratios.unwrap().unwrap();
    assert_eq!((ratios.of("cpu"), ratios.of("memory"), ratios.of("x")), (Some(1.22), Some(1.0), None));
    assert_eq!(ratios.to_text(), r#"{"cpu":1.22,"memory":1.00}"#);
    assert!(AmplificationRatios::from_annotations(&with(key, r#"{"cpu":"1.22"}"#)).is_err());
    assert_eq!(
        raw_allocatable(&with(key::NODE_RAW_ALLOCATABLE, r#"{"cpu":"4"}"#)).unwrap(),
        Some(list(&[("cpu", "4")]))
    );
}

#[test]
fn normalization() {
    let ratio = |text| cpu_normalization_ratio(&with(key::NODE_CPU_NORMALIZATION_RATIO, text));
    assert_eq!(cpu_normalization_ratio(&BTreeMap::new()), Ok(None));
    assert_eq!(ratio("1.2"), Ok(Some(1.2)));
    for text in ["0", "-1", "x", "", "NaN", "inf"] {
        assert!(ratio(text).is_err(), "{text}");
    }
    assert_eq!(cpu_normalization_text("3.1415926".parse().unwrap()), "3.14");
    assert_eq!(cpu_normalization_text(1.0), "1.00");
    assert!(!cpu_normalization_differs(1.20, 1.205));
    assert!(cpu_normalization_differs(1.20, 1.22));
    let info = CpuBasicInfo { cpu_model: "m".into(), turbo_enabled: true, ..CpuBasicInfo::default() };
    assert_eq!(cpu_model_key(&info), "m_false_true");
}

#[test]
fn other_annotations_of_nodes() {
    let key = key::NODE_NETWORK_BANDWIDTH;
    assert_eq!(network_bandwidth(&with(key, "10G")).unwrap().unwrap().value(), 10_000_000_000);
    assert!(network_bandwidth(&with(key, "fast")).is_err());
    let thresholds = r#"{"usageThresholds":{"cpu":65},"aggregatedUsage":{"usageThresholds":{"cpu":80},"usageAggregationType":"p95","usageAggregatedDuration":"5m0s"}}"#;
    assert_eq!(UsageThresholds::parse(thresholds).unwrap().to_text(), thresholds);
    let third = r#"{"allocations":[{"name":"hadoop","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"1k"}}]}"#;
    assert_eq!(ThirdPartyAllocations::parse(third).unwrap().to_text(), third);
    let strategy = ColocationStrategy::parse(r#"{"enable":true,"cpuReclaimThresholdPercent":70}"#).unwrap();
    assert_eq!((strategy.enable, strategy.cpu_reclaim_threshold_percent), (Some(true), Some(70)));
    let defaults = ColocationStrategy::defaults();
    assert_eq!(
        defaults.to_text(),
        r#"{"enable":false,"metricAggregateDurationSeconds":300,"metricReportIntervalSeconds":60,"metricAggregatePolicy":{"durations":["5m","10m","30m"]},"metricMemoryCollectPolicy":"usageWithoutPageCache","cpuReclaimThresholdPercent":60,"cpuCalculatePolicy":"usage","memoryReclaimThresholdPercent":65,"memoryCalculatePolicy":"usage","degradeTimeMinutes":15,"updateTimeThresholdSeconds":300,"resourceDiffThreshold":0.1,"midCPUThresholdPercent":100,"midMemoryThresholdPercent":100,"midUnallocatedPercent":0,"midStaticCPUReservedPercent":0,"midStaticMemoryReservedPercent":0}"#
    );
    assert_eq!(ColocationStrategy::parse(&defaults.to_text()), Ok(defaults));
}

#[test]
fn topology() {
    let cpu = |id| CpuInfo { id, core: id / 2, socket: 0, node: 0 };
    let topology = CpuTopology::sorted(vec![cpu(1), cpu(0)]);
    let text = r#"{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":0,"socket":0,"node":0}]}"#;
    assert_eq!(topology.to_text(), text);
    assert_eq!(CpuTopology::parse(text), Ok(topology));
    assert_eq!(PodCpuAllocs::default().to_text(), "null");
    assert_eq!(PodCpuAllocs::parse("null"), Ok(PodCpuAllocs::default()));
    let alloc = |uid: &str| PodCpuAlloc {
        uid: uid.into(),
        cpuset: "1".into(),
        managed_by_kubelet: true,
        ..PodCpuAlloc::default()
    };
    let allocs = PodCpuAllocs::sorted(vec![alloc("b"), alloc("a")]);
    assert_eq!(
        allocs.to_text(),
        r#"[{"uid":"a","cpuset":"1","managedByKubelet":true},{"uid":"b","cpuset":"1","managedByKubelet":true}]"#
    );
    let pool = |socket, node| CpuSharedPool { socket, node, cpuset: String::new() };
    let pools = CpuSharedPools::sorted(vec![pool(1, 0), pool(0, 1), pool(0, 0)]);
    assert_eq!(pools.to_text(), r#"[{"socket":0,"node":0},{"socket":0,"node":1},{"socket":1,"node":0}]"#);
    assert_eq!(BeCpuSharedPools::sorted(vec![pool(0, 0)]).to_text(), r#"[{"socket":0,"node":0}]"#);
    let info = r#"{"cpuModel":"m","hyperThreadEnabled":true,"catL3CbmMask":"fff","vendorID":"GenuineIntel"}"#;
    assert_eq!(CpuBasicInfo::parse(info).unwrap().to_text(), info);
}

#[test]
fn bind_policies_of_nodes() {
    let kubelet = |policy: &str, option: &str| KubeletCpuManagerPolicy {
        policy: policy.into(),
        options: with(KubeletCpuManagerPolicy::FULL_PCPUS_ONLY, option),
        reserved_cpus: String::new(),
    };
    let policy = |text: &str, kubelet: Option<&KubeletCpuManagerPolicy>| {
        NodeCpuBindPolicy::of_node(&with(label::NODE_CPU_BIND_POLICY, text), kubelet)
    };
    use NodeCpuBindPolicy::{FullPcpusOnly, SpreadByPcpus};
    assert_eq!(NodeCpuBindPolicy::of_node(&BTreeMap::new(), Some(&kubelet("static", "true"))), FullPcpusOnly);
    assert_eq!(policy("SpreadByPCPUs", Some(&kubelet("none", "true"))), SpreadByPcpus);
    assert_eq!(policy("SpreadByPCPUs", Some(&kubelet("static", "true"))), FullPcpusOnly);
    assert_eq!(policy("FullPCPUsOnly", None), FullPcpusOnly);
    assert_eq!(policy("None", Some(&kubelet("static", "false"))), NodeCpuBindPolicy::None);
    assert_eq!(policy("fullpcpusonly", None), NodeCpuBindPolicy::None);
    let labels = with(label::NODE_NUMA_ALLOCATE_STRATEGY, "DistributeEvenly");
    assert_eq!(NumaAllocateStrategy::of_node(&labels), NumaAllocateStrategy::DistributeEvenly);
    assert_eq!(NumaAllocateStrategy::of_node(&BTreeMap::new()), NumaAllocateStrategy::Unset);
    let labels = with(label::NODE_NUMA_TOPOLOGY_POLICY, "SingleNUMANode");
    assert_eq!(NumaTopologyPolicy::of_node(&labels), NumaTopologyPolicy::SingleNumaNode);
    assert_eq!(NumaTopologyPolicy::of_node(&BTreeMap::new()), NumaTopologyPolicy::None);
}
