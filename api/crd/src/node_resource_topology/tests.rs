use koord_extension::quantity::Format;
use proptest::prelude::*;

use super::*;

/// A node with one NUMA node, as it is written to the byte.
pub(crate) const TOPOLOGY: &str = concat!(
    r#"{"topologyPolicies":["SingleNUMANodePodLevel"],"zones":[{"name":"node-0","type":"Node","resources":["#,
    r#"{"name":"cpu","capacity":"24","allocatable":"22","available":"22"},"#,
    r#"{"name":"hugepages-1Gi","capacity":"0","allocatable":"0","available":"0"},"#,
    r#"{"name":"memory","capacity":"64Gi","allocatable":"65140337322666m","available":"65140337322666m"}]}]}"#,
);

pub(crate) fn topology() -> NodeResourceTopology {
    let resource = |name: &str, capacity: Quantity, left: Quantity| ZoneResource {
        name: name.to_owned(),
        capacity,
        allocatable: left,
        available: left,
    };
    let cpus = |count: i64| Quantity::from_milli(count * 1000, Format::DecimalSi);
    let capacity = Quantity::from_value(64 << 30, Format::BinarySi);
    // A third of 10 GiB, upward to a thousandth of a byte, is kept back.
    let left = Quantity::from_milli(capacity.milli() - 3_579_139_413_334, Format::BinarySi);
    NodeResourceTopology {
        topology_policies: vec![TopologyPolicy::SingleNumaNodePodLevel],
        zones: vec![Zone {
            name: "node-0".to_owned(),
            zone_type: ZONE_TYPE_NODE.to_owned(),
            resources: vec![
                resource("cpu", cpus(24), cpus(22)),
                resource("hugepages-1Gi", Quantity::ZERO, Quantity::ZERO),
                resource("memory", capacity, left),
            ],
            ..Zone::default()
        }],
        attributes: Vec::new(),
    }
}

#[test]
fn a_topology_has_these_bytes() {
    assert_eq!(serde_json::to_string(&topology()).unwrap(), TOPOLOGY);
    assert_eq!(serde_json::from_str::<NodeResourceTopology>(TOPOLOGY).unwrap(), topology());
}

#[test]
fn lists_of_the_object_are_written_when_they_are_empty() {
    let empty = NodeResourceTopology {
        topology_policies: vec![TopologyPolicy::None],
        ..NodeResourceTopology::default()
    };
    assert_eq!(serde_json::to_string(&empty).unwrap(), r#"{"topologyPolicies":["None"],"zones":[]}"#);
    assert_eq!(
        serde_json::to_string(&NodeResourceTopology::default()).unwrap(),
        r#"{"topologyPolicies":[],"zones":[]}"#
    );
    assert_eq!(serde_json::to_string(&Zone::default()).unwrap(), r#"{"name":"","type":""}"#);
}

#[test]
fn objects_of_other_writers_are_read() {
    let json = r#"{"apiVersion":"topology.node.k8s.io/v1alpha1","kind":"NodeResourceTopology",
        "metadata":{"name":"node-1","labels":{"a":"b"}},"topologyPolicies":["Restricted"],
        "attributes":[{"name":"topologyManagerScope","value":"pod"}],
        "zones":[{"name":"node-0","type":"Node","parent":"socket-0","costs":[{"name":"node-1","value":21}],
        "attributes":[{"name":"a","value":"b"}],
        "resources":[{"name":"cpu","capacity":4,"allocatable":"3.5","available":"3500m"}]}]}"#;
    let topology: NodeResourceTopology = serde_json::from_str(json).unwrap();
    assert_eq!(
        serde_json::to_string(&topology).unwrap(),
        concat!(
            r#"{"topologyPolicies":["Restricted"],"zones":[{"name":"node-0","type":"Node","#,
            r#""parent":"socket-0","costs":[{"name":"node-1","value":21}],"#,
            r#""attributes":[{"name":"a","value":"b"}],"#,
            r#""resources":[{"name":"cpu","capacity":"4","allocatable":"3500m","available":"3500m"}]}],"#,
            r#""attributes":[{"name":"topologyManagerScope","value":"pod"}]}"#,
        )
    );
    let lists: NodeResourceTopology = serde_json::from_str(r#"{"topologyPolicies":null}"#).unwrap();
    assert_eq!(lists, NodeResourceTopology::default());
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        zones in proptest::collection::vec(("[a-z0-9-]{0,8}", 0..i64::MAX, any::<i64>()), 0..4),
        policy in "[A-Za-z]{1,12}",
    ) {
        let topology = NodeResourceTopology {
            topology_policies: vec![TopologyPolicy::from(policy.as_str())],
            zones: zones.into_iter().map(|(name, bytes, milli)| Zone {
                name,
                zone_type: ZONE_TYPE_NODE.to_owned(),
                resources: vec![ZoneResource {
                    name: "memory".to_owned(),
                    capacity: Quantity::from_value(bytes, Format::BinarySi),
                    allocatable: Quantity::from_milli(milli, Format::BinarySi),
                    available: Quantity::from_milli(milli, Format::DecimalSi),
                }],
                costs: vec![Cost { name: "self".to_owned(), value: milli }],
                ..Zone::default()
            }).collect(),
            attributes: Vec::new(),
        };
        let json = serde_json::to_string(&topology).unwrap();
        let read: NodeResourceTopology = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&read, &topology);
        // A number of bytes without a suffix is read as a decimal number, so its text may change once.
        let json = serde_json::to_string(&read).unwrap();
        let again: NodeResourceTopology = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(serde_json::to_string(&again).unwrap(), json);
    }
}
