//! Reading what runtimes put into the verbose part of a status: JSON under the key `info`.
//!
//! containerd writes the CRI configuration in snake case; CRI-O writes the OCI specification with its own
//! annotations. Whatever is missing or of an unexpected type is left out: these texts are no stable interface.

use std::collections::BTreeMap;

use koord_hook::v1alpha1 as hook;
use serde_json::Value;

use super::layout::expand_slice;

/// The annotation under which CRI-O keeps a sandbox's cgroup parent.
const CRIO_CGROUP_PARENT: &str = "io.kubernetes.cri-o.CgroupParent";

/// What the verbose status of a sandbox tells beyond the status itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodInfo {
    /// The parent cgroup; empty if not found.
    pub cgroup_parent: String,
    /// Resources of all containers, after a resize if there was one.
    pub resources: Option<hook::LinuxContainerResources>,
    /// Overhead of the sandbox.
    pub overhead: Option<hook::LinuxContainerResources>,
}

/// What the verbose status of a container tells beyond the status itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerInfo {
    /// The sandbox's id; empty if not found.
    pub sandbox_id: String,
    /// Resources as of creation.
    pub resources: Option<hook::LinuxContainerResources>,
    /// Environment as the CRI request gave it; values that are not text are left out.
    pub envs: BTreeMap<String, String>,
}

impl PodInfo {
    /// Reads the text; whatever it does not say stays empty.
    pub fn parse(info: &str) -> Self {
        let Ok(info) = serde_json::from_str::<Value>(info) else { return Self::default() };
        let linux = &info["config"]["linux"];
        let mut cgroup_parent = text(&linux["cgroup_parent"]);
        if cgroup_parent.is_empty() {
            cgroup_parent = expand_slice(&text(&info["runtimeSpec"]["annotations"][CRIO_CGROUP_PARENT]));
        }
        Self {
            cgroup_parent,
            resources: resources(&info["resources"]["linux"]).or_else(|| resources(&linux["resources"])),
            overhead: resources(&info["overhead"]["linux"]).or_else(|| resources(&linux["overhead"])),
        }
    }
}

impl ContainerInfo {
    /// Reads the text; whatever it does not say stays empty.
    pub fn parse(info: &str) -> Self {
        let Ok(info) = serde_json::from_str::<Value>(info) else { return Self::default() };
        let config = &info["config"];
        let process_environment: Vec<&str> = info["runtimeSpec"]["process"]["env"]
            .as_array()
            .map(|entries| entries.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut envs = BTreeMap::new();
        for entry in config["envs"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let Some(key) = entry["key"].as_str() else { continue };
            let value = entry["value"].as_str().unwrap_or_default();
            if let Some(value) = env_value(key, value, &process_environment) {
                envs.insert(key.to_owned(), value);
            }
        }
        Self {
            sandbox_id: text(&info["sandboxID"]),
            resources: resources(&config["linux"]["resources"]),
            envs,
        }
    }
}

/// The value as it was given. Runtimes whose protocol library declares values as bytes write them in base64,
/// older ones as text; the process environment tells which. `None` for a value that is no text.
fn env_value(key: &str, written: &str, process_environment: &[&str]) -> Option<String> {
    let matches = |value: &str| {
        process_environment
            .iter()
            .any(|entry| entry.split_once('=').is_some_and(|(name, have)| name == key && have == value))
    };
    if matches(written) {
        return Some(written.to_owned());
    }
    match decode_base64(written) {
        Some(bytes) => match String::from_utf8(bytes) {
            Ok(decoded) if matches(&decoded) => Some(decoded),
            Ok(_) => Some(written.to_owned()),
            // Text and not found in the environment, or bytes of no text, which no hook can be told.
            Err(_) if process_environment.is_empty() => Some(written.to_owned()),
            Err(_) => None,
        },
        None => Some(written.to_owned()),
    }
}

/// RFC 4648 with padding, as Go writes byte slices into JSON.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let data = text.trim_end_matches('=');
    if text.len() - data.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(data.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0u32);
    for character in data.bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(((bits >> count) & 0xff) as u8);
        }
    }
    // What is left over must be zero, or the text was not made from bytes.
    (count < 6 && bits & ((1 << count) - 1) == 0).then_some(bytes)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A 64-bit number, also if it is written as a text, as protobuf's JSON does.
fn number(value: &Value) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => text.parse().unwrap_or(0),
        _ => 0,
    }
}

fn resources(value: &Value) -> Option<hook::LinuxContainerResources> {
    if !value.is_object() {
        return None;
    }
    let unified = value["unified"].as_object().map(|entries| {
        entries
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect::<BTreeMap<_, _>>()
    });
    let hugepage_limits = value["hugepage_limits"].as_array().map(|limits| {
        limits
            .iter()
            .map(|limit| hook::HugepageLimit {
                page_size: text(&limit["page_size"]),
                limit: match &limit["limit"] {
                    Value::Number(number) => number.as_u64().unwrap_or(0),
                    Value::String(text) => text.parse().unwrap_or(0),
                    _ => 0,
                },
            })
            .collect()
    });
    Some(hook::LinuxContainerResources {
        cpu_period: number(&value["cpu_period"]),
        cpu_quota: number(&value["cpu_quota"]),
        cpu_shares: number(&value["cpu_shares"]),
        memory_limit_in_bytes: number(&value["memory_limit_in_bytes"]),
        oom_score_adj: number(&value["oom_score_adj"]),
        cpuset_cpus: text(&value["cpuset_cpus"]),
        cpuset_mems: text(&value["cpuset_mems"]),
        hugepage_limits: hugepage_limits.unwrap_or_default(),
        unified: unified.unwrap_or_default(),
        memory_swap_limit_in_bytes: number(&value["memory_swap_limit_in_bytes"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector(name: &str) -> String {
        let path = format!("{}/../tests/vectors/failover/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn containerd_tells_parent_resources_and_overhead() {
        for version in ["1.6", "2.4"] {
            let info = PodInfo::parse(&vector(&format!("containerd-{version}-pod-info.json")));
            assert_eq!(info.cgroup_parent, "/krpbed/podx", "{version}");
            assert_eq!(
                info.resources,
                Some(hook::LinuxContainerResources {
                    cpu_shares: 512,
                    unified: [("a".to_owned(), "b".to_owned())].into(),
                    ..Default::default()
                })
            );
            assert_eq!(
                info.overhead,
                Some(hook::LinuxContainerResources {
                    memory_limit_in_bytes: 1_048_576,
                    ..Default::default()
                })
            );
        }
    }

    #[test]
    fn containerd_tells_a_container_s_creation() {
        for (version, sandbox) in [
            ("1.6", "fb5a23782c9952a1e36dd66d9723a773451a3aa6bac5e094610ad74a4406281a"),
            ("2.4", "3157330c3d0cf47d893e9600050100ee176664a7fedeb5f51fe6b7b48f5e2295"),
        ] {
            let info = ContainerInfo::parse(&vector(&format!("containerd-{version}-container-info.json")));
            assert_eq!(info.sandbox_id, sandbox);
            assert_eq!(
                info.resources,
                Some(hook::LinuxContainerResources {
                    cpu_period: 100_000,
                    cpu_quota: 200_000,
                    cpu_shares: 2048,
                    memory_limit_in_bytes: 1_073_741_824,
                    oom_score_adj: 5,
                    cpuset_cpus: "0-1".to_owned(),
                    hugepage_limits: vec![hook::HugepageLimit {
                        page_size: "2MB".to_owned(),
                        limit: 4_194_304
                    }],
                    ..Default::default()
                })
            );
            assert_eq!(
                info.envs,
                [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "x=y".to_owned())].into()
            );
        }
    }

    #[test]
    fn a_resize_shows_at_the_top_level() {
        let info = PodInfo::parse(
            r#"{"config":{"linux":{"cgroup_parent":"/p","resources":{"cpu_shares":2},"overhead":{"cpu_shares":3}}},
                "resources":{"linux":{"cpu_shares":4096}},"overhead":{"linux":{"cpu_shares":"5"}}}"#,
        );
        assert_eq!(info.resources.map(|r| r.cpu_shares), Some(4096));
        assert_eq!(info.overhead.map(|r| r.cpu_shares), Some(5));
    }

    #[test]
    fn crio_keeps_the_parent_in_an_annotation() {
        let slice = r#"{"sandboxID":"s","runtimeSpec":{"annotations":{"io.kubernetes.cri-o.CgroupParent":"kubepods-besteffort-podu.slice"}}}"#;
        assert_eq!(
            PodInfo::parse(slice).cgroup_parent,
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice"
        );
        let path = r#"{"runtimeSpec":{"annotations":{"io.kubernetes.cri-o.CgroupParent":"/kubepods/podu"}}}"#;
        assert_eq!(PodInfo::parse(path).cgroup_parent, "/kubepods/podu");
        assert_eq!(ContainerInfo::parse(slice).sandbox_id, "s");
    }

    #[test]
    fn env_values_in_base64_are_told_from_text() {
        let info = |value: &str, process: &str| {
            let json = format!(
                r#"{{"config":{{"envs":[{{"key":"K","value":"{value}"}}]}},"runtimeSpec":{{"process":{{"env":[{process}]}}}}}}"#
            );
            ContainerInfo::parse(&json).envs.get("K").cloned()
        };
        assert_eq!(info("MQ==", r#""K=1""#).as_deref(), Some("1"));
        assert_eq!(info("MQ==", r#""K=MQ==""#).as_deref(), Some("MQ=="));
        assert_eq!(info("MQ==", "").as_deref(), Some("MQ=="));
        assert_eq!(info("plain", r#""K=plain""#).as_deref(), Some("plain"));
        // ff fe, which is no text.
        assert_eq!(info("//4=", "\"K=\u{fffd}\""), None);
        assert_eq!(ContainerInfo::parse(r#"{"config":{"envs":[{"key":"K"}]}}"#).envs["K"], "");
    }

    #[test]
    fn unexpected_shapes_are_left_out() {
        for text in ["", "null", "[]", "3", r#"{"config":3}"#, r#"{"config":{"linux":[],"envs":{}}}"#, "{"] {
            assert_eq!(PodInfo::parse(text), PodInfo::default(), "{text}");
            assert_eq!(ContainerInfo::parse(text), ContainerInfo::default(), "{text}");
        }
        let odd = r#"{"config":{"linux":{"resources":{"cpu_shares":"x","cpuset_cpus":7,"unified":{"a":1},"hugepage_limits":[{}]}}}}"#;
        let resources = PodInfo::parse(odd).resources.expect("present");
        assert_eq!(resources.cpu_shares, 0);
        assert_eq!(resources.cpuset_cpus, "");
        assert!(resources.unified.is_empty());
    }

    proptest! {
        #[test]
        fn base64_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let mut text = String::new();
            for chunk in bytes.chunks(3) {
                let mut bits = 0u32;
                for index in 0..3 {
                    bits = (bits << 8) | u32::from(chunk.get(index).copied().unwrap_or(0));
                }
                for index in 0..4u32 {
                    let kept = (index as usize) <= chunk.len();
                    let value = (bits >> (18 - 6 * index)) & 63;
                    text.push(if kept { ALPHABET[value as usize] as char } else { '=' });
                }
            }
            prop_assert_eq!(decode_base64(&text), Some(bytes));
        }

        #[test]
        fn junk_never_panics(text in ".{0,60}") {
            let _ = (PodInfo::parse(&text), ContainerInfo::parse(&text), decode_base64(&text));
        }
    }
}
