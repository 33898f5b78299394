pub(crate) mod validator;

use std::sync::LazyLock;

use koord_extension::units::{Bytes, MilliCpu};
use proptest::prelude::*;
use serde_json::json;

use super::rules::RULES;
use super::*;
use crate::device::tests as devices;
use crate::node_metric::ResourceMap;
use crate::node_metric::tests as metrics;
use crate::node_resource_topology::tests as topologies;
use validator::problems;

/// An object of a definition with these fields.
fn object(definition: &Definition, fields: Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{}/{}", definition.group, definition.version),
        "kind": definition.object.name,
        "metadata": {"name": "node-1"},
    });
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Every schema in a schema, with its path.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{key}"), visit);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = schema.get(key) {
            walk(inner, &format!("{path}{mark}"), visit);
        }
    }
}

fn at<'a>(schema: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(schema, |schema, key| match key {
        "[]" => &schema["items"],
        "{}" => &schema["additionalProperties"],
        key => &schema["properties"][key],
    })
}

#[test]
fn definitions_have_the_names_of_koordinator() {
    let told: Vec<_> = all()
        .iter()
        .map(|definition| {
            let names = definition.manifest()["spec"]["names"].clone();
            let text = |key: &str| names[key].as_str().unwrap().to_owned();
            (definition.file_name(), text("kind"), text("listKind"), text("singular"))
        })
        .collect();
    let wanted = [
        ("scheduling.koordinator.sh_devices.yaml", "Device", "DeviceList", "device"),
        ("slo.koordinator.sh_nodemetrics.yaml", "NodeMetric", "NodeMetricList", "nodemetric"),
        ("slo.koordinator.sh_nodeslos.yaml", "NodeSLO", "NodeSLOList", "nodeslo"),
        (
            "topology.node.k8s.io_noderesourcetopologies.yaml",
            "NodeResourceTopology",
            "NodeResourceTopologyList",
            "noderesourcetopology",
        ),
    ]
    .map(|(file, kind, list, singular)| {
        (file.to_owned(), kind.to_owned(), list.to_owned(), singular.to_owned())
    });
    assert_eq!(told, wanted);
}

#[test]
fn a_manifest_is_what_the_api_server_takes() {
    let mut manifest = node_metric().manifest();
    let version = &mut manifest["spec"]["versions"][0];
    let schema = version["schema"]["openAPIV3Schema"].take();
    assert_eq!(schema, node_metric().schema());
    version["additionalPrinterColumns"] = version["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| json!([column["name"], column["type"], column["jsonPath"]]))
        .collect();
    assert_eq!(
        manifest,
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "nodemetrics.slo.koordinator.sh"},
            "spec": {
                "group": "slo.koordinator.sh",
                "names": {
                    "kind": "NodeMetric",
                    "listKind": "NodeMetricList",
                    "plural": "nodemetrics",
                    "singular": "nodemetric",
                },
                "scope": "Cluster",
                "versions": [{
                    "name": "v1alpha1",
                    "served": true,
                    "storage": true,
                    "schema": {"openAPIV3Schema": null},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        ["CPU", "string", ".status.nodeMetric.nodeUsage.resources.cpu"],
                        ["Memory", "string", ".status.nodeMetric.nodeUsage.resources.memory"],
                        ["Updated", "date", ".status.updateTime"],
                        ["Age", "date", ".metadata.creationTimestamp"],
                    ],
                }],
            },
        })
    );
    let topology = node_resource_topology().manifest();
    assert_eq!(
        topology["metadata"]["annotations"]["api-approved.kubernetes.io"],
        "https://github.com/kubernetes/enhancements/pull/1870"
    );
    assert_eq!(topology["spec"]["names"]["shortNames"], json!(["node-res-topo"]));
    for definition in [device(), node_resource_topology()] {
        assert_eq!(definition.manifest()["spec"]["versions"][0].get("subresources"), None);
    }
}

#[test]
fn columns_show_fields_that_exist() {
    for definition in all() {
        let schema = definition.schema();
        for column in definition.columns {
            let path = column.path.trim_start_matches('.');
            let is_resource = path.contains(".resources.");
            let path =
                path.replace(".resources.cpu", ".resources.{}").replace(".resources.memory", ".resources.{}");
            let is_field = at(&schema, &path).is_object();
            assert!(is_field || path.starts_with("metadata."), "{}", column.path);
            assert_eq!(is_resource, column.value_type == "string");
        }
    }
}

#[test]
fn schemas_are_structural_and_documented() {
    for definition in all() {
        let name = definition.object.name;
        walk(&definition.schema(), name, &mut |path, schema| {
            let is_either = schema["x-kubernetes-int-or-string"] == true;
            assert!(schema["type"].is_string() != is_either, "{path} has no type, or two");
            assert!(schema.get("$ref").is_none() && schema.get("nullable").is_none(), "{path}");
            assert!(schema["type"] != "array" || schema["items"].is_object(), "{path} has no items");
            assert!(
                schema.get("properties").is_none() || schema.get("additionalProperties").is_none(),
                "{path} has known and unknown keys"
            );
            let is_documented = schema["description"].as_str().is_some_and(|text| text.ends_with(['.', ')']));
            let is_part = path.ends_with(['}', ']']) || path.ends_with(".metadata");
            assert!(is_documented || is_part, "{path} has no description");
        });
    }
}

#[test]
fn unknown_fields_are_kept_where_anything_may_be() {
    let mut kept = Vec::new();
    for definition in all() {
        walk(&definition.schema(), definition.object.name, &mut |path, schema| {
            if schema["x-kubernetes-preserve-unknown-fields"] == true {
                kept.push(path.to_owned());
            }
        });
    }
    assert_eq!(
        kept,
        [
            "NodeMetric.status.podsMetric[].extensions",
            "NodeSLO.spec.extensions",
            "NodeSLO.spec.hostApplications[].strategy",
        ]
    );
}

#[test]
fn schemas_of_values() {
    let metric = node_metric().schema();
    let quantity = at(&metric, "status.nodeMetric.numaUsages.[].nodeUsage.resources.{}");
    assert_eq!(
        quantity,
        &json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$",
            "x-kubernetes-int-or-string": true,
        })
    );
    assert_eq!(
        at(&metric, "spec.metricCollectPolicy.nodeMemoryCollectPolicy"),
        &json!({
            "description": "What counts as memory in use. Default usageWithoutPageCache.",
            "enum": ["usageWithHotPageCache", "usageWithoutPageCache", "usageWithPageCache"],
            "type": "string",
        })
    );
    assert_eq!(at(&metric, "status.updateTime")["format"], "date-time");
    assert_eq!(at(&metric, "status.nodeMetric.numaUsages.[]")["required"], json!(["numaNodeID"]));
    assert_eq!(at(&metric, "status.nodeMetric.numaUsages.[].numaNodeID")["format"], "int32");
    assert_eq!(at(&metric, "status.podsMetric.[]").get("required"), None);
    let health = at(&metric, "status.podsMetric.[].podUsage.devices.[].health");
    assert_eq!((&health["type"], &health["default"]), (&json!("boolean"), &json!(false)));

    let slo = node_slo().schema();
    assert_eq!(
        at(&slo, "spec.resourceUsedThresholdWithBE.cpuSuppressPolicy"),
        &json!({
            "description": "How best-effort pods are held to what they may take. Default cpuset. Known values: cpuset, cfsQuota.",
            "type": "string",
        })
    );
    let wmark = at(&slo, "spec.resourceQOSStrategy.beClass.memoryQOS.wmarkMinAdj");
    assert_eq!((&wmark["minimum"], &wmark["maximum"]), (&json!(-25), &json!(50)));
    let low = at(&slo, "spec.resourceQOSStrategy.lsClass.memoryQOS.lowLimitPercent");
    assert_eq!((&low["minimum"], low.get("maximum")), (&json!(0), None));
    let bandwidth = at(&slo, "spec.resourceQOSStrategy.lsClass.networkQOS.ingressLimit");
    assert_eq!(bandwidth["x-kubernetes-int-or-string"], true);
    assert_eq!(at(&slo, "status"), &json!({"description": "Nothing at present.", "type": "object"}));
    assert_eq!(at(&slo, "spec.systemStrategy.schedFeatures.{}"), &json!({"type": "boolean"}));

    let topology = node_resource_topology().schema();
    assert_eq!(topology["required"], json!(["topologyPolicies", "zones"]));
    assert_eq!(
        at(&topology, "zones.[].resources.[]")["required"],
        json!(["allocatable", "available", "capacity", "name"])
    );
}

#[test]
fn every_rule_is_about_a_field() {
    fn fields(shape: &Shape, seen: &mut Vec<(&'static str, &'static str)>) {
        match shape {
            Shape::List(inner) | Shape::Map(inner) => fields(inner, seen),
            Shape::Object(object) => {
                for field in &object.fields {
                    seen.push((object.name, field.key));
                    fields(&field.shape, seen);
                }
            }
            _ => {}
        }
    }
    let mut seen = Vec::new();
    for definition in all() {
        fields(&Shape::Object(definition.object), &mut seen);
    }
    let mut ruled = Vec::new();
    for (type_name, keys, _) in RULES {
        for key in *keys {
            assert!(seen.contains(&(type_name, key)), "{type_name}.{key} does not exist");
            assert!(!ruled.contains(&(type_name, key)), "{type_name}.{key} has two entries");
            ruled.push((type_name, key));
        }
    }
}

#[test]
fn what_programs_write_is_accepted() {
    let none: [String; 0] = [];
    let metric = node_metric();
    let spec = json!({"metricCollectPolicy": {
        "aggregateDurationSeconds": 300,
        "reportIntervalSeconds": 60,
        "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "nodeMemoryCollectPolicy": "usageWithoutPageCache",
    }});
    let status = parsed(metrics::STATUS);
    assert_eq!(problems(&metric.schema(), &object(&metric, json!({"spec": spec, "status": status}))), none);

    let devices = device();
    assert_eq!(problems(&devices.schema(), &object(&devices, json!({"spec": parsed(devices::SPEC)}))), none);

    let topology = node_resource_topology();
    let fields = parsed(topologies::TOPOLOGY);
    assert_eq!(problems(&topology.schema(), &object(&topology, fields)), none);

    let slo = node_slo();
    let spec = json!({
        "resourceUsedThresholdWithBE": {"enable": true, "cpuSuppressThresholdPercent": 65},
        "resourceQOSStrategy": {
            "policies": {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"},
            "beClass": {
                "cpuQOS": {"enable": true, "groupIdentity": -1},
                "memoryQOS": {"enable": true, "wmarkRatio": 95, "wmarkMinAdj": 50},
                "blkioQOS": {"enable": true, "blocks": [
                    {"name": "/dev/sdb", "type": "device", "ioCfg": {"readIOPS": 0, "ioWeightPercent": 100}},
                ]},
                "resctrlQOS": {"enable": true, "catRangeStartPercent": 0, "catRangeEndPercent": 30},
                "networkQOS": {"enable": true, "ingressLimit": 50, "egressLimit": "100M"},
            },
        },
        "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPeriodSeconds": -1},
        "systemStrategy": {"totalNetworkBandwidth": "10G", "schedFeatures": {"ID_EXPELLEE": true}},
        "hostApplications": [{"name": "nginx", "priority": "koord-prod", "qos": "LS", "strategy": {"any": 1},
            "cgroupPath": {"base": "CgroupRoot", "parentDir": "host", "relativePath": "nginx"}}],
        "extensions": {"vendor": {"list": [1, "a", null]}},
    });
    let read: NodeSloSpec = serde_json::from_value(spec.clone()).unwrap();
    assert_eq!(json!(read), spec);
    assert_eq!(problems(&slo.schema(), &object(&slo, json!({"spec": spec, "status": {}}))), none);
}

#[test]
fn what_koordinator_refuses_is_refused() {
    let metric = node_metric();
    let mut devices = parsed(devices::SPEC);
    devices["devices"][0]["conditions"][0]["reason"] = json!("-8001");
    devices["devices"][1].as_object_mut().unwrap().remove("health");
    devices["devices"][0]["topology"] = json!({"nodeID": 0, "socketID": 2_147_483_648_i64});
    let mut topology = parsed(topologies::TOPOLOGY);
    topology.as_object_mut().unwrap().remove("topologyPolicies");
    topology["zones"][0]["resources"][0]["available"] = json!(0.5);

    let cases = [
        (
            &metric,
            json!({
                "spec": {"metricCollectPolicy": {
                    "nodeMemoryCollectPolicy": "all",
                    "nodeAggregatePolicy": {"durations": [60]},
                }},
                "status": {
                    "updateTime": "today",
                    "nodeMetric": {
                        "nodeUsage": {"cpu": "1"},
                        "systemUsage": {"resources": {"cpu": "1 core", "memory": null}},
                        "numaUsages": [{"nodeUsage": {}}],
                    },
                    "podsMetric": [{"extensions": {"any": {"thing": null}}}],
                },
            }),
            vec![
                ".spec.metricCollectPolicy.nodeAggregatePolicy.durations[0]: 60 is not of type \"string\"",
                ".spec.metricCollectPolicy.nodeMemoryCollectPolicy: \"all\" is none of",
                ".status.nodeMetric.nodeUsage.cpu: unknown",
                ".status.nodeMetric.numaUsages[0].numaNodeID: missing",
                ".status.nodeMetric.systemUsage.resources.cpu: \"1 core\" does not match",
                ".status.nodeMetric.systemUsage.resources.memory: null",
                ".status.updateTime: \"today\" is not a time",
            ],
        ),
        (
            &device(),
            json!({"spec": devices}),
            vec![
                ".spec.devices[0].conditions[0].reason: \"-8001\" does not match",
                ".spec.devices[0].topology.pcieID: missing",
                ".spec.devices[0].topology.socketID: 2147483648 has more than 32 bits",
                ".spec.devices[1].health: missing",
            ],
        ),
        (
            &node_resource_topology(),
            topology,
            vec![".topologyPolicies: missing", ".zones[0].resources[0].available: 0.5 is not of type"],
        ),
        (
            &node_slo(),
            json!({"spec": {
                "cpuBurstStrategy": {"cpuBurstPercent": 10_001},
                "resourceUsedThresholdWithBE": {"memoryEvictThresholdPercent": -1},
                "resourceQOSStrategy": {"beClass": {"memoryQOS": {"wmarkScalePermill": 0}}},
            }}),
            vec![
                ".spec.cpuBurstStrategy.cpuBurstPercent: 10001 is above 10000",
                ".spec.resourceQOSStrategy.beClass.memoryQOS.wmarkScalePermill: 0 is below 1",
                ".spec.resourceUsedThresholdWithBE.memoryEvictThresholdPercent: -1 is below 0",
            ],
        ),
    ];
    for (definition, fields, wanted) in cases {
        let mut found = problems(&definition.schema(), &object(definition, fields));
        found.sort();
        assert_eq!(found.len(), wanted.len(), "{found:#?}");
        for (found, wanted) in found.iter().zip(wanted) {
            assert!(found.starts_with(wanted), "{found}\nis not\n{wanted}");
        }
    }
}

#[test]
fn a_reason_made_of_an_error_code_is_accepted() {
    let reason = device();
    let schema = reason.schema();
    let schema = at(&schema, "spec.devices.[].conditions.[].reason");
    for code in ["-8001", "Xid79", "", "\u{4e0d}", &"x".repeat(2000)] {
        assert!(problems(schema, &json!(device::Condition::reason_of(code))).is_empty(), "{code}");
    }
    assert!(!problems(schema, &json!("")).is_empty());
    assert!(!problems(schema, &json!("x".repeat(1025))).is_empty());
}

static METRIC: LazyLock<Value> = LazyLock::new(|| node_metric().schema());

proptest! {
    #[test]
    fn every_report_is_accepted(status in metrics::any_status()) {
        let schema = at(&METRIC, "status");
        prop_assert_eq!(problems(schema, &json!(status)), Vec::<String>::new());
    }

    #[test]
    fn every_amount_is_accepted(milli in any::<i64>(), bytes in any::<i64>()) {
        let schema = at(&METRIC, "status.nodeMetric.nodeUsage");
        let usage = json!(ResourceMap::cpu_and_memory(MilliCpu(milli), Bytes(bytes)));
        prop_assert_eq!(problems(schema, &usage), Vec::<String>::new());
    }
}
