use koord_extension::quantity::{Format, Quantity};
use proptest::prelude::*;
use regex::Regex;

use super::*;

/// Devices of a node with a GPU and a network card, as they are written to the byte.
pub(crate) const SPEC: &str = concat!(
    r#"{"devices":["#,
    r#"{"type":"gpu","labels":{"pool":"a"},"id":"GPU-8f","minor":0,"moduleID":3,"health":true,"#,
    r#""resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"8000Mi","#,
    r#""koordinator.sh/gpu-memory-ratio":"100"},"#,
    r#""topology":{"socketID":-1,"nodeID":0,"pcieID":"0000:3a","busID":"0000:3b:00.0"},"#,
    r#""conditions":[{"type":"Healthy","status":"True","lastTransitionTime":"2026-07-24T08:00:00Z","#,
    r#""reason":"DeviceHealthy","message":"device is healthy"}]},"#,
    r#"{"type":"rdma","id":"0000:1a:00.0","minor":2,"health":false,"resources":{"koordinator.sh/rdma":"100"},"#,
    r#""vfGroups":[{"vfs":[{"minor":-1,"busID":"0000:1a:00.1"},{"minor":-1,"busID":"0000:1a:00.2"}]}]}"#,
    r#"]}"#,
);

pub(crate) fn spec() -> DeviceSpec {
    let whole = |value| Quantity::from_value(value, Format::DecimalSi);
    let gpu = DeviceInfo {
        device_type: DeviceType::Gpu,
        labels: BTreeMap::from([("pool".to_owned(), "a".to_owned())]),
        id: "GPU-8f".to_owned(),
        minor: Some(0),
        module_id: Some(3),
        health: true,
        resources: ResourceList::from([
            ("koordinator.sh/gpu-core".to_owned(), whole(100)),
            ("koordinator.sh/gpu-memory".to_owned(), Quantity::from_value(8_388_608_000, Format::BinarySi)),
            ("koordinator.sh/gpu-memory-ratio".to_owned(), whole(100)),
        ]),
        topology: Some(DeviceTopology {
            socket_id: -1,
            node_id: 0,
            pcie_id: "0000:3a".to_owned(),
            bus_id: "0000:3b:00.0".to_owned(),
        }),
        vf_groups: Vec::new(),
        conditions: vec![Condition {
            condition_type: Condition::HEALTHY.to_owned(),
            status: ConditionStatus::True,
            observed_generation: 0,
            last_transition_time: Timestamp::from_unix_seconds(1_784_880_000),
            reason: "DeviceHealthy".to_owned(),
            message: "device is healthy".to_owned(),
        }],
    };
    let function = |bus_id: &str| VirtualFunction { minor: -1, bus_id: bus_id.to_owned() };
    let card = DeviceInfo {
        device_type: DeviceType::Rdma,
        id: "0000:1a:00.0".to_owned(),
        minor: Some(2),
        resources: ResourceList::from([("koordinator.sh/rdma".to_owned(), whole(100))]),
        vf_groups: vec![VirtualFunctionGroup {
            labels: BTreeMap::new(),
            virtual_functions: vec![function("0000:1a:00.1"), function("0000:1a:00.2")],
        }],
        ..DeviceInfo::default()
    };
    DeviceSpec { devices: vec![gpu, card] }
}

#[test]
fn devices_have_these_bytes() {
    assert_eq!(serde_json::to_string(&spec()).unwrap(), SPEC);
    assert_eq!(serde_json::from_str::<DeviceSpec>(SPEC).unwrap(), spec());
    assert_eq!(serde_json::to_string(&DeviceSpec::default()).unwrap(), "{}");
    assert_eq!(serde_json::to_string(&DeviceInfo::default()).unwrap(), r#"{"health":false}"#);
}

#[test]
fn devices_of_other_writers_are_read() {
    let json = r#"{"devices":[{"type":"xpu","UUID":"x","minor":null,"health":true,"topology":
        {"socketID":1,"nodeID":1,"pcieID":"","numa":2},"conditions":[{"type":"Healthy","status":"Maybe"}]}]}"#;
    let spec: DeviceSpec = serde_json::from_str(json).unwrap();
    let device = &spec.devices[0];
    assert_eq!(device.device_type, DeviceType::Other("xpu".to_owned()));
    assert_eq!((device.id.as_str(), device.minor, device.health), ("", None, true));
    assert_eq!(device.topology.as_ref().unwrap().socket_id, 1);
    assert_eq!(device.conditions[0].status, ConditionStatus::Other("Maybe".to_owned()));
}

#[test]
fn allocations_have_these_bytes() {
    let json = concat!(
        r#"{"allocations":[{"type":"gpu","entries":[{"name":"train-0","namespace":"ml","#,
        r#""uuid":"u-1","minors":[0,1]}]}]}"#,
    );
    let status: DeviceStatus = serde_json::from_str(json).unwrap();
    assert_eq!(status.allocations[0].entries[0].minors, [0, 1]);
    assert_eq!(serde_json::to_string(&status).unwrap(), json);
}

#[test]
fn an_error_code_becomes_a_reason() {
    for (code, reason) in [
        ("Xid79", "Xid79"),
        ("DeviceHealthCheckNotSupported", "DeviceHealthCheckNotSupported"),
        ("a:b,c_d", "a:b,c_d"),
        ("-8001", "ErrCode_8001"),
        ("8001", "ErrCode_8001"),
        ("Xid 79", "ErrCode_Xid_79"),
        ("ends:", "ErrCode_ends"),
        ("", "Unknown"),
        ("--", "Unknown"),
        ("\u{4e0d}", "Unknown"),
    ] {
        assert_eq!(Condition::reason_of(code), reason, "{code:?}");
    }
    assert_eq!(Condition::reason_of(&"x".repeat(1024)), "x".repeat(1024));
    assert_eq!(Condition::reason_of(&"x".repeat(1025)).len(), 1024);
}

proptest! {
    #[test]
    fn every_code_becomes_a_reason_that_is_accepted(code in "\\PC{0,12}|[-A-Z0-9_:,]{0,8}|x{1020,1030}-?") {
        let pattern = Regex::new("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$").unwrap();
        let reason = Condition::reason_of(&code);
        prop_assert!(pattern.is_match(&reason) && reason.len() <= 1024, "{reason:?}");
        prop_assert_eq!(Condition::reason_of(&reason), reason);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        let _ = serde_json::from_str::<DeviceSpec>(&text);
    }
}
