use proptest::prelude::*;
use serde_json::json as value;

use super::*;
use crate::device::DeviceType;

/// A report, as it is written to the byte.
pub(crate) const STATUS: &str = concat!(
    r#"{"updateTime":"2026-07-24T08:00:00Z","#,
    r#""nodeMetric":{"nodeUsage":{"resources":{"cpu":"2345m","memory":"512Mi"}},"#,
    r#""aggregatedNodeUsages":[{"usage":{"avg":{"resources":{"cpu":"2300m","memory":"512Mi"}},"#,
    r#""p50":{},"p90":{},"p95":{},"p99":{}},"duration":"5m0s"}],"#,
    r#""systemUsage":{"resources":{"cpu":"200m","memory":"100Mi"}},"#,
    r#""numaUsages":[{"numaNodeID":0,"nodeUsage":{"resources":{"cpu":"2345m","memory":"500Mi"}},"#,
    r#""systemUsage":{}}]},"#,
    r#""podsMetric":[{"name":"web-0","namespace":"shop","#,
    r#""podUsage":{"resources":{"cpu":"1001m","memory":"300Mi"}},"priority":"koord-prod","qos":"LS"}],"#,
    r#""prodReclaimableMetric":{"resource":{"resources":{"cpu":"1450m","memory":"966367642"}}},"#,
    r#""prodPeakMetric":{"resource":{"resources":{"cpu":"550m","memory":"1181116006"}}}}"#,
);

const MIB: i64 = 1 << 20;

fn amounts(milli: i64, bytes: i64) -> ResourceMap {
    ResourceMap::cpu_and_memory(MilliCpu(milli), Bytes(bytes))
}

pub(crate) fn status() -> NodeMetricStatus {
    let mut window: BTreeMap<String, ResourceMap> =
        aggregation::ALL.iter().map(|key| ((*key).to_owned(), ResourceMap::default())).collect();
    window.insert(aggregation::AVERAGE.to_owned(), amounts(2300, 512 * MIB));
    NodeMetricStatus {
        update_time: Some(Timestamp::from_unix_seconds(1_784_880_000)),
        node_metric: Some(NodeMetricInfo {
            node_usage: amounts(2345, 512 * MIB),
            aggregated_node_usages: vec![AggregatedUsage {
                usage: window,
                duration: GoDuration::from_secs(300),
            }],
            system_usage: amounts(200, 100 * MIB),
            aggregated_system_usages: Vec::new(),
            numa_usages: vec![NumaUsage {
                numa_node_id: 0,
                node_usage: amounts(2345, 500 * MIB),
                system_usage: ResourceMap::default(),
            }],
        }),
        pods_metric: vec![PodMetricInfo {
            name: "web-0".to_owned(),
            namespace: "shop".to_owned(),
            pod_usage: amounts(1001, 300 * MIB),
            priority: "koord-prod".to_owned(),
            qos: "LS".to_owned(),
            extensions: BTreeMap::new(),
        }],
        host_application_metric: Vec::new(),
        prod_reclaimable_metric: Some(PredictedMetric { resource: amounts(1450, 966_367_642) }),
        prod_peak_metric: Some(PredictedMetric { resource: amounts(550, 1_181_116_006) }),
    }
}

#[test]
fn a_report_has_these_bytes() {
    assert_eq!(serde_json::to_string(&status()).unwrap(), STATUS);
    assert_eq!(serde_json::from_str::<NodeMetricStatus>(STATUS).unwrap(), status());
}

#[test]
fn amounts_are_written_in_canonical_form() {
    // CPU is a decimal number of cores, memory a binary number of bytes.
    for (milli, bytes, json) in [
        (1001, 536_870_912, r#"{"resources":{"cpu":"1001m","memory":"512Mi"}}"#),
        (290, 4_404_019_200, r#"{"resources":{"cpu":"290m","memory":"4200Mi"}}"#),
        (2345, 1_073_741_824, r#"{"resources":{"cpu":"2345m","memory":"1Gi"}}"#),
        (579, 1_073_741_823, r#"{"resources":{"cpu":"579m","memory":"1073741823"}}"#),
        (4350, 1024, r#"{"resources":{"cpu":"4350m","memory":"1Ki"}}"#),
        // Fewer bytes than 1024 are a decimal number, as Kubernetes writes them.
        (2000, 1000, r#"{"resources":{"cpu":"2","memory":"1k"}}"#),
        (1_000_000, 1536, r#"{"resources":{"cpu":"1k","memory":"1536"}}"#),
        (0, 0, r#"{"resources":{"cpu":"0","memory":"0"}}"#),
    ] {
        assert_eq!(serde_json::to_string(&amounts(milli, bytes)).unwrap(), json);
    }
}

#[test]
fn devices_stand_beside_resources() {
    let mut usage = amounts(1000, MIB);
    usage.devices.push(DeviceInfo {
        device_type: DeviceType::Gpu,
        id: "GPU-0".to_owned(),
        minor: Some(0),
        resources: ResourceList::from([
            ("koordinator.sh/gpu-core".to_owned(), Quantity::from_value(37, Format::DecimalSi)),
            ("koordinator.sh/gpu-memory".to_owned(), Quantity::from_value(4200 * MIB, Format::BinarySi)),
            ("koordinator.sh/gpu-memory-ratio".to_owned(), Quantity::from_value(52, Format::DecimalSi)),
        ]),
        ..DeviceInfo::default()
    });
    assert_eq!(
        serde_json::to_string(&usage).unwrap(),
        concat!(
            r#"{"resources":{"cpu":"1","memory":"1Mi"},"#,
            r#""devices":[{"type":"gpu","id":"GPU-0","minor":0,"health":false,"resources":{"#,
            r#""koordinator.sh/gpu-core":"37","koordinator.sh/gpu-memory":"4200Mi","#,
            r#""koordinator.sh/gpu-memory-ratio":"52"}}]}"#,
        )
    );
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn what_is_empty_is_left_out_except_usages() {
    assert_eq!(json(&NodeMetricSpec::default()), "{}");
    assert_eq!(json(&NodeMetricStatus::default()), "{}");
    assert_eq!(json(&ResourceMap::default()), "{}");
    assert_eq!(json(&NodeMetricInfo::default()), r#"{"nodeUsage":{},"systemUsage":{}}"#);
    assert_eq!(json(&NumaUsage::default()), r#"{"numaNodeID":0,"nodeUsage":{},"systemUsage":{}}"#);
    assert_eq!(json(&AggregatedUsage::default()), r#"{"duration":"0s"}"#);
    assert_eq!(json(&PodMetricInfo::default()), r#"{"podUsage":{}}"#);
    assert_eq!(json(&HostApplicationMetricInfo::default()), r#"{"usage":{}}"#);
    assert_eq!(json(&PredictedMetric::default()), r#"{"resource":{}}"#);
}

#[test]
fn applications_of_the_host_follow_pods() {
    let status = NodeMetricStatus {
        host_application_metric: vec![HostApplicationMetricInfo {
            name: "nginx".to_owned(),
            usage: amounts(500, MIB),
            priority: "koord-prod".to_owned(),
            qos: "LS".to_owned(),
        }],
        prod_peak_metric: Some(PredictedMetric::default()),
        ..NodeMetricStatus::default()
    };
    assert_eq!(
        serde_json::to_string(&status).unwrap(),
        concat!(
            r#"{"hostApplicationMetric":[{"name":"nginx","usage":{"resources":{"cpu":"500m","memory":"1Mi"}},"#,
            r#""priority":"koord-prod","qos":"LS"}],"prodPeakMetric":{"resource":{}}}"#,
        )
    );
}

#[test]
fn a_policy_tells_an_empty_list_from_an_absent_one() {
    let policy = |json: &str| {
        let spec: NodeMetricSpec = serde_json::from_str(json).unwrap();
        spec.metric_collect_policy.unwrap_or_default()
    };
    let durations =
        |policy: MetricCollectPolicy| policy.node_aggregate_policy.and_then(|aggregate| aggregate.durations);

    let given = policy(r#"{"metricCollectPolicy":{"nodeAggregatePolicy":{"durations":["1m"]}}}"#);
    assert_eq!(given.aggregate_duration_seconds, None);
    assert_eq!(given.report_interval_seconds, None);
    assert_eq!(given.node_memory_collect_policy, None);
    assert_eq!(durations(given), Some(vec![GoDuration::from_secs(60)]));

    for (json, wanted) in [
        (r#"{"metricCollectPolicy":{"nodeAggregatePolicy":{"durations":[]}}}"#, Some(Vec::new())),
        (r#"{"metricCollectPolicy":{"nodeAggregatePolicy":{"durations":null}}}"#, None),
        (r#"{"metricCollectPolicy":{"nodeAggregatePolicy":{}}}"#, None),
        (r#"{"metricCollectPolicy":{"nodeAggregatePolicy":null}}"#, None),
        (r#"{"metricCollectPolicy":null}"#, None),
        ("{}", None),
    ] {
        assert_eq!(durations(policy(json)), wanted, "{json}");
    }

    let whole = policy(
        r#"{"metricCollectPolicy":{"aggregateDurationSeconds":300,"reportIntervalSeconds":60,
            "nodeAggregatePolicy":{"durations":["5m0s","10m0s","30m0s"]},
            "nodeMemoryCollectPolicy":"usageWithPageCache"}}"#,
    );
    assert_eq!(whole.aggregate_duration_seconds, Some(300));
    assert_eq!(whole.report_interval_seconds, Some(60));
    assert_eq!(whole.node_memory_collect_policy, Some(MemoryCollectPolicy::UsageWithPageCache));
    assert_eq!(durations(whole), Some([300, 600, 1800].map(GoDuration::from_secs).to_vec()));
}

#[test]
fn objects_of_other_writers_are_read() {
    let json = value!({
        "UpdateTime": "2026-07-24T10:00:00.25+02:00",
        "nodeMetric": {
            "nodeUsage": {"resources": {"cpu": 2, "memory": "0.5Gi", "example.com/thing": "1e3"}, "new": [1]},
            "systemUsage": null,
            "aggregatedNodeUsages": [{"usage": {"p99": {"resources": {"cpu": "1.5"}}, "max": {}}}],
        },
        "podsMetric": [{"name": "a", "extensions": {"vendor": {"score": 0.5}}, "unknown": {"deep": [{}]}}],
        "newField": true,
    });
    let status: NodeMetricStatus = serde_json::from_value(json).unwrap();
    assert_eq!(status.update_time, Some(Timestamp::from_unix_seconds(1_784_880_000)));
    let node = status.node_metric.unwrap();
    assert_eq!(
        serde_json::to_string(&node.node_usage).unwrap(),
        r#"{"resources":{"cpu":"2","example.com/thing":"1e3","memory":"512Mi"}}"#
    );
    assert!(node.system_usage.is_empty() && !node.node_usage.is_empty());
    let window = &node.aggregated_node_usages[0];
    assert_eq!(window.usage.keys().collect::<Vec<_>>(), ["max", "p99"]);
    assert_eq!(window.duration, GoDuration::from_secs(0));
    assert_eq!(status.pods_metric[0].extensions["vendor"], value!({"score": 0.5}));
}

#[test]
fn mistakes_are_errors_that_name_the_value() {
    for (json, part) in [
        (r#"{"updateTime":"yesterday"}"#, "\"yesterday\" is not a time"),
        (r#"{"nodeMetric":{"nodeUsage":{"resources":{"cpu":"many"}}}}"#, "many"),
        (r#"{"nodeMetric":{"aggregatedNodeUsages":[{"duration":"5 min"}]}}"#, "duration \"5 min\""),
        (r#"{"podsMetric":{}}"#, "a list"),
    ] {
        let error = serde_json::from_str::<NodeMetricStatus>(json).unwrap_err().to_string();
        assert!(error.contains(part), "{json}: {error}");
    }
}

#[test]
fn keys_of_aggregations_are_in_the_order_of_json() {
    assert!(aggregation::ALL.is_sorted());
}

fn any_amounts() -> impl Strategy<Value = ResourceMap> {
    let device = (any::<bool>(), proptest::option::of(any::<i32>()), "[a-z0-9-]{0,8}").prop_map(
        |(health, minor, id)| DeviceInfo {
            device_type: DeviceType::Gpu,
            id,
            minor,
            health,
            ..DeviceInfo::default()
        },
    );
    let both = (any::<u32>(), 0..i64::MAX).prop_map(|(milli, bytes)| amounts(milli.into(), bytes));
    let usage = prop_oneof![Just(ResourceMap::default()), both];
    (usage, proptest::collection::vec(device, 0..3))
        .prop_map(|(usage, devices)| ResourceMap { devices, ..usage })
}

prop_compose! {
    fn any_window()(
        usage in proptest::collection::btree_map("avg|p50|p90|p95|p99", any_amounts(), 0..5),
        seconds in any::<u32>(),
    ) -> AggregatedUsage {
        AggregatedUsage { usage, duration: GoDuration::from_secs(seconds.into()) }
    }
}

prop_compose! {
    pub(crate) fn any_status()(
        seconds in 0..253_402_300_799_u64,
        node_usage in any_amounts(),
        system_usage in any_amounts(),
        aggregated_node_usages in proptest::collection::vec(any_window(), 0..3),
        aggregated_system_usages in proptest::collection::vec(any_window(), 0..3),
        numa in proptest::collection::vec((any::<i32>(), any_amounts(), any_amounts()), 0..3),
        pods in proptest::collection::vec(("[a-z]{0,4}", "[a-z]{0,4}", any_amounts(), "LS|BE|"), 0..4),
        hosts in proptest::collection::vec(("[a-z]{0,4}", any_amounts()), 0..2),
        predicted in proptest::option::of(any_amounts()),
        peak in proptest::option::of(any_amounts()),
    ) -> NodeMetricStatus {
        NodeMetricStatus {
            update_time: Some(Timestamp::from_unix_seconds(seconds)),
            node_metric: Some(NodeMetricInfo {
                node_usage,
                aggregated_node_usages,
                system_usage,
                aggregated_system_usages,
                numa_usages: numa.into_iter().map(|(numa_node_id, node_usage, system_usage)| {
                    NumaUsage { numa_node_id, node_usage, system_usage }
                }).collect(),
            }),
            pods_metric: pods.into_iter().map(|(name, namespace, pod_usage, qos)| {
                PodMetricInfo { name, namespace, pod_usage, qos, ..PodMetricInfo::default() }
            }).collect(),
            host_application_metric: hosts.into_iter().map(|(name, usage)| {
                HostApplicationMetricInfo { name, usage, ..HostApplicationMetricInfo::default() }
            }).collect(),
            prod_reclaimable_metric: predicted.map(|resource| PredictedMetric { resource }),
            prod_peak_metric: peak.map(|resource| PredictedMetric { resource }),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(status in any_status()) {
        let read: NodeMetricStatus = serde_json::from_str(&json(&status)).unwrap();
        prop_assert_eq!(&read, &status);
        // A number of bytes without a suffix is read as a decimal number, so its text may change once.
        let again: NodeMetricStatus = serde_json::from_str(&json(&read)).unwrap();
        prop_assert_eq!(json(&again), json(&read));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        let _ = serde_json::from_str::<NodeMetricStatus>(&text);
        let _ = serde_json::from_str::<NodeMetricSpec>(&text);
    }
}
