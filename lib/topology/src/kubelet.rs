//! What the kubelet's CPU manager says in its state file, and which CPUs are reserved.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use koord_extension::annotation::{KubeletCpuManagerPolicy, NodeReservation, ReservedCpus};
use koord_extension::cpuset::{CpuSet, CpuSetError};
use koord_extension::units::MilliCpu;
use serde::Deserialize;

use crate::model::Topology;
use crate::packing::{self, NotEnoughCpus};

/// The file's name in the kubelet's folder, which is `/var/lib/kubelet` unless set otherwise.
pub const STATE_FILE: &str = "cpu_manager_state";

/// Why a state file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeletStateError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The text is not JSON of the shape `{policyName, defaultCpuSet, entries: {POD UID: {CONTAINER: CPU list}}}`,
    /// which kubelet 1.18 and later write.
    #[error("the state of the kubelet's CPU manager is malformed")]
    Malformed(#[source] serde_json::Error),
    /// The default set is no CPU list.
    #[error("defaultCpuSet in the state of the kubelet's CPU manager")]
    DefaultSet(#[source] CpuSetError),
}

/// One container whose CPUs could not be read; the others count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entries.{pod_uid}.{container} in the state of the kubelet's CPU manager")]
pub struct UnreadableEntry {
    /// The pod.
    pub pod_uid: String,
    /// The container.
    pub container: String,
    /// What is wrong with its list.
    pub source: CpuSetError,
}

/// What the kubelet's CPU manager has given away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuManagerState {
    /// `none` or `static`.
    pub policy: String,
    /// The CPUs of all containers without CPUs of their own.
    pub default_cpus: CpuSet,
    /// CPUs of their own, by pod UID and container. Containers with an empty list are left out.
    pub entries: BTreeMap<String, BTreeMap<String, CpuSet>>,
    /// Containers whose list could not be read.
    pub unreadable: Vec<UnreadableEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawState {
    policy_name: String,
    #[serde(default, rename = "defaultCpuSet")]
    default_cpu_set: String,
    #[serde(default)]
    entries: Option<BTreeMap<String, BTreeMap<String, String>>>,
}

impl CpuManagerState {
    /// Reads the text of the file. The checksum is not looked at: it covers the Go types of one kubelet version.
    /// Fields of later versions are passed over.
    pub fn parse(text: &str) -> Result<CpuManagerState, KubeletStateError> {
        // A type with named fields would be read from a list of values as well.
        let raw = serde_json::from_str(text).and_then(|object: serde_json::Map<_, _>| {
            serde_json::from_value::<RawState>(serde_json::Value::Object(object))
        });
        let raw = raw.map_err(KubeletStateError::Malformed)?;
        let mut state = CpuManagerState {
            policy: raw.policy_name,
            default_cpus: CpuSet::parse(&raw.default_cpu_set).map_err(KubeletStateError::DefaultSet)?,
            ..CpuManagerState::default()
        };
        for (pod_uid, containers) in raw.entries.unwrap_or_default() {
            let mut known = BTreeMap::new();
            for (container, list) in containers {
                match CpuSet::parse(&list) {
                    Ok(cpus) if cpus.is_empty() => {}
                    Ok(cpus) => {
                        known.insert(container, cpus);
                    }
                    Err(source) => {
                        let pod_uid = pod_uid.clone();
                        state.unreadable.push(UnreadableEntry { pod_uid, container, source });
                    }
                }
            }
            if !known.is_empty() {
                state.entries.insert(pod_uid, known);
            }
        }
        Ok(state)
    }

    /// Reads the file; `None` if it is missing or empty, as it is before the kubelet's first start with a policy.
    pub fn read(path: &Path) -> Result<Option<CpuManagerState>, KubeletStateError> {
        match fs::read_to_string(path) {
            Ok(text) if text.trim().is_empty() => Ok(None),
            Ok(text) => CpuManagerState::parse(&text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(KubeletStateError::Read { path: path.to_owned(), source }),
        }
    }

    /// True under the static policy, the only one that gives CPUs away.
    pub fn is_static(&self) -> bool {
        self.policy == KubeletCpuManagerPolicy::STATIC
    }

    /// The CPUs of each pod, its containers taken together, ascending by UID.
    pub fn pods(&self) -> impl Iterator<Item = (&str, CpuSet)> {
        self.entries.iter().map(|(pod_uid, containers)| {
            let cpus = containers.values().fold(CpuSet::new(), |all, cpus| all.union(cpus));
            (pod_uid.as_str(), cpus)
        })
    }
}

/// Why the CPUs the kubelet keeps for the system are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReservedCpusError {
    /// `reservedSystemCPUs` is no CPU list.
    #[error("reservedSystemCPUs in the kubelet's configuration")]
    List(#[source] CpuSetError),
    /// The static policy needs a reservation above zero.
    #[error(
        "kubeReserved.cpu and systemReserved.cpu are {0} thousandths of a CPU together; the static policy needs more than 0"
    )]
    Nothing(i64),
    /// More is reserved than there is.
    #[error(transparent)]
    NotEnough(#[from] NotEnoughCpus),
}

/// The CPUs that the kubelet keeps for the system under the static policy: its list if there is one, else as many
/// whole CPUs as hold `kubeReserved` and `systemReserved`, taken as [`packing::take`] does.
pub fn reserved_cpus(
    topology: &Topology,
    reserved_system_cpus: &str,
    kube_reserved: MilliCpu,
    system_reserved: MilliCpu,
) -> Result<CpuSet, ReservedCpusError> {
    let list = CpuSet::parse(reserved_system_cpus).map_err(ReservedCpusError::List)?;
    if !list.is_empty() {
        return Ok(list);
    }
    let reserved = kube_reserved.saturating_add(system_reserved);
    match whole_cpus(reserved) {
        0 => Err(ReservedCpusError::Nothing(reserved.get())),
        count => Ok(packing::take(topology, &topology.cpu_set(), count)?),
    }
}

/// Why the CPUs of a node reservation are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeReservationError {
    /// `reservedCPUs` is no CPU list.
    #[error("reservedCPUs of the node reservation")]
    List(#[source] CpuSetError),
    /// More is reserved than there is.
    #[error("resources.cpu of the node reservation: {0}")]
    NotEnough(NotEnoughCpus),
}

/// The CPUs a node reservation stands for. A list wins over `resources.cpu`; without one, as many whole CPUs as hold the
/// amount are taken as [`packing::take`] does; zero and less reserve nothing.
pub fn node_reservation(
    topology: &Topology,
    reservation: &NodeReservation,
) -> Result<CpuSet, NodeReservationError> {
    match reservation.cpus() {
        ReservedCpus::List(list) => CpuSet::parse(&list).map_err(NodeReservationError::List),
        ReservedCpus::Count(count) => {
            let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
            packing::take(topology, &topology.cpu_set(), count).map_err(NodeReservationError::NotEnough)
        }
    }
}

/// CPUs that hold the amount, rounded up; 0 for negative amounts.
fn whole_cpus(amount: MilliCpu) -> usize {
    usize::try_from(amount.get().max(0).unsigned_abs().div_ceil(1000)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packing::tests::two_sockets;

    fn set(list: &str) -> CpuSet {
        CpuSet::parse(list).expect("a list")
    }

    #[test]
    fn the_state_of_a_static_kubelet() {
        let state = CpuManagerState::parse(
            r#"{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"podA":{"c1":"1-2","c2":"2-3","c3":""},
                "podB":{"bad":"x"}},"checksum":3736216045,"later":[1]}"#,
        )
        .expect("a state");
        assert!(state.is_static());
        assert_eq!(state.default_cpus, set("0,4-7"));
        assert_eq!(state.pods().collect::<Vec<_>>(), [("podA", set("1-3"))]);
        assert_eq!(state.entries["podA"].keys().collect::<Vec<_>>(), ["c1", "c2"]);
        assert_eq!(state.unreadable.len(), 1);
        assert_eq!(
            state.unreadable[0].to_string(),
            "entries.podB.bad in the state of the kubelet's CPU manager"
        );
    }

    #[test]
    fn the_state_of_a_kubelet_that_shares_all() {
        let state =
            CpuManagerState::parse(r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#)
                .expect("a state");
        assert!(!state.is_static());
        assert_eq!(state.pods().count(), 0);
        let null = CpuManagerState::parse(r#"{"policyName":"none","entries":null}"#).expect("a state");
        assert_eq!(null.entries, BTreeMap::new());
    }

    #[test]
    fn malformed_states() {
        for text in [
            "",
            "{",
            "[]",
            r#"["static"]"#,
            "{}",
            r#"{"policyName":1}"#,
            r#"{"policyName":"static","entries":[]}"#,
            // Kubelets before 1.18 wrote container ids without their pods.
            r#"{"policyName":"static","defaultCpuSet":"0","entries":{"id":"1-2"}}"#,
        ] {
            assert!(
                matches!(CpuManagerState::parse(text), Err(KubeletStateError::Malformed(_))),
                "{text} was accepted"
            );
        }
        let text = r#"{"policyName":"static","defaultCpuSet":"3-1"}"#;
        assert!(matches!(CpuManagerState::parse(text), Err(KubeletStateError::DefaultSet(_))));
    }

    #[test]
    fn a_file_that_is_missing_empty_or_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(STATE_FILE);
        assert_eq!(CpuManagerState::read(&path).expect("missing"), None);
        fs::write(&path, "\n").expect("a file");
        assert_eq!(CpuManagerState::read(&path).expect("empty"), None);
        fs::write(&path, r#"{"policyName":"static","defaultCpuSet":"0-1"}"#).expect("a file");
        let state = CpuManagerState::read(&path).expect("a state").expect("a state");
        assert_eq!(state.default_cpus, set("0-1"));
        assert!(matches!(
            CpuManagerState::read(folder.path()),
            Err(KubeletStateError::Read { path, .. }) if path == folder.path()
        ));
    }

    #[test]
    fn cpus_the_kubelet_reserves() {
        let topology = two_sockets();
        let reserved = |list, kube, system| {
            reserved_cpus(&topology, list, MilliCpu(kube), MilliCpu(system)).map(|cpus| cpus.to_string())
        };
        assert_eq!(reserved("", 1800, 200).as_deref(), Ok("0,6"));
        assert_eq!(reserved("", 1800, 201).as_deref(), Ok("0,2,6"));
        assert_eq!(reserved("3,5", 1800, 200).as_deref(), Ok("3,5"));
        assert_eq!(reserved("", 0, 0), Err(ReservedCpusError::Nothing(0)));
        assert_eq!(
            reserved("", 12_001, 0),
            Err(ReservedCpusError::NotEnough(NotEnoughCpus { wanted: 13, available: 12 }))
        );
        assert!(matches!(reserved("x", 1000, 0), Err(ReservedCpusError::List(_))));
    }

    #[test]
    fn cpus_of_a_node_reservation() {
        let topology = two_sockets();
        let reserved = |text| {
            let reservation = NodeReservation::parse(text).expect("an annotation");
            node_reservation(&topology, &reservation).map(|cpus| cpus.to_string())
        };
        assert_eq!(reserved(r#"{"resources":{"cpu":"2"}}"#).as_deref(), Ok("0,6"));
        assert_eq!(reserved(r#"{"resources":{"cpu":"2500m"}}"#).as_deref(), Ok("0,2,6"));
        // 3.5 CPUs are four.
        assert_eq!(reserved(r#"{"resources":{"cpu":"3500m"}}"#).as_deref(), Ok("0,2,6,8"));
        assert_eq!(reserved(r#"{"resources":{"cpu":"-2"}}"#).as_deref(), Ok(""));
        assert_eq!(reserved("{}").as_deref(), Ok(""));
        // A list wins over an amount.
        assert_eq!(reserved(r#"{"resources":{"cpu":"4"},"reservedCPUs":"0-1"}"#).as_deref(), Ok("0-1"));
        assert!(matches!(reserved(r#"{"reservedCPUs":"-1"}"#), Err(NodeReservationError::List(_))));
        assert_eq!(
            reserved(r#"{"resources":{"cpu":"12001m"}}"#),
            Err(NodeReservationError::NotEnough(NotEnoughCpus { wanted: 13, available: 12 }))
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_state_or_an_error(text in ".{0,200}") {
            let _ = CpuManagerState::parse(&text);
        }

        #[test]
        fn what_the_kubelet_writes_is_read(
            entries in proptest::collection::btree_map("[a-f0-9-]{1,36}", proptest::collection::btree_map(
                "[a-z]{1,8}", proptest::collection::btree_set(0_u32..512, 1..20), 1..4), 0..5),
        ) {
            let written: BTreeMap<String, BTreeMap<String, CpuSet>> = entries
                .into_iter()
                .map(|(pod, containers)| {
                    let read = |(name, cpus): (String, std::collections::BTreeSet<u32>)| (name, cpus.into_iter().collect());
                    (pod, containers.into_iter().map(read).collect())
                })
                .collect();
            let texts: BTreeMap<&String, BTreeMap<&String, String>> = written
                .iter()
                .map(|(pod, containers)| {
                    (pod, containers.iter().map(|(name, cpus)| (name, cpus.to_string())).collect())
                })
                .collect();
            let text = serde_json::json!({"policyName": "static", "defaultCpuSet": "0", "entries": texts}).to_string();
            prop_assert_eq!(CpuManagerState::parse(&text).expect("a state").entries, written);
        }
    }
}
