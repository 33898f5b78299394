use koord_crd::node_resource_topology::TopologyPolicy;
use koord_extension::annotation::CpuBasicInfo;
use koord_extension::cpuset::CpuSet;
use koord_extension::keys::{annotation, label};
use koord_extension::qos::QosClass;
use koord_extension::quantity::{Quantity, ResourceList};
use koord_extension::units::Bytes;
use koord_topology::kubelet::CpuManagerState;
use koord_topology::{Cpu, Topology};
use proptest::prelude::*;

use super::*;
use crate::zones::NumaMemory;

/// One socket, cores 0 to 3; core i has CPUs i and i + 4.
fn t8() -> Topology {
    Topology::new((0..8).map(|id| Cpu { id, core: id % 4, socket: 0, node: 0, cache: None }))
        .expect("a layout")
}

/// CPUs i and i + 6 are core i; even cores are in socket and node 0, odd ones in 1.
fn t12() -> Topology {
    let cpu = |id: u32| Cpu { id, core: id % 6, socket: id % 2, node: id % 2, cache: None };
    Topology::new((0..12).map(cpu)).expect("a layout")
}

/// A node with everything a test may change.
struct Bed {
    topology: Topology,
    processor: CpuBasicInfo,
    memory: BTreeMap<u32, NumaMemory>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    capacity: ResourceList,
    allocatable: ResourceList,
    kubelet: Option<KubeletConfig>,
    state: Option<CpuManagerState>,
    pods: Vec<(&'static str, Option<QosClass>, Option<&'static str>)>,
}

fn bed(topology: Topology) -> Bed {
    let memory = topology
        .nodes()
        .keys()
        .map(|node| (*node, NumaMemory { total: Bytes(1 << 34), ..NumaMemory::default() }));
    Bed {
        memory: memory.collect(),
        topology,
        processor: CpuBasicInfo { cpu_model: "M".to_owned(), ..CpuBasicInfo::default() },
        labels: BTreeMap::new(),
        // A node always has some.
        annotations: BTreeMap::from([("node.alpha.kubernetes.io/ttl".to_owned(), "0".to_owned())]),
        capacity: ResourceList::new(),
        allocatable: ResourceList::new(),
        kubelet: Some(KubeletConfig { cpu_manager_policy: "none".to_owned(), ..KubeletConfig::default() }),
        state: None,
        pods: Vec::new(),
    }
}

impl Bed {
    fn with_kubelet(mut self, configz: &str) -> Bed {
        self.kubelet = Some(KubeletConfig::from_configz(configz.as_bytes()).expect("a configuration"));
        self
    }

    fn with_annotation(mut self, key: &str, text: &str) -> Bed {
        self.annotations.insert(key.to_owned(), text.to_owned());
        self
    }

    fn with_state(mut self, text: &str) -> Bed {
        self.state = Some(CpuManagerState::parse(text).expect("a state"));
        self
    }

    fn try_report(&self, published: Option<Published<'_>>) -> Result<Report, ReportError> {
        let pods: Vec<PodFacts<'_>> = self
            .pods
            .iter()
            .map(|(uid, qos, status)| PodFacts {
                uid,
                namespace: "default",
                name: uid,
                qos: *qos,
                resource_status: *status,
            })
            .collect();
        report(&Input {
            node: NodeFacts {
                labels: &self.labels,
                annotations: &self.annotations,
                capacity: &self.capacity,
                allocatable: &self.allocatable,
            },
            topology: &self.topology,
            processor: &self.processor,
            memory: &self.memory,
            kubelet: self.kubelet.as_ref(),
            cpu_manager_state: self.state.as_ref(),
            pods: &pods,
            published,
            report_huge_pages: false,
        })
    }

    fn report(&self) -> Report {
        self.try_report(None).expect("a report")
    }

    fn annotation(&self, key: &str) -> String {
        self.report().annotations[key].clone()
    }
}

fn list(entries: &[(&str, &str)]) -> ResourceList {
    entries
        .iter()
        .map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).expect("a quantity")))
        .collect()
}

const STATIC_2_CPUS: &str = r#"{"kubeletconfig":{"cpuManagerPolicy":"static","kubeReserved":{"cpu":"1800m"},
    "systemReserved":{"cpu":"200m"},"topologyManagerPolicy":"single-numa-node","topologyManagerScope":"pod"}}"#;

#[test]
fn a_plain_node() {
    let report = bed(Topology::regular(2, 1, 1, 2).expect("a layout")).report();
    let wanted = [
        ("kubelet.koordinator.sh/cpu-manager-policy", r#"{"policy":"none"}"#),
        (
            "node.koordinator.sh/be-cpu-shared-pools",
            r#"[{"socket":0,"node":0,"cpuset":"0-1"},{"socket":1,"node":1,"cpuset":"2-3"}]"#,
        ),
        ("node.koordinator.sh/cpu-basic-info", r#"{"cpuModel":"M"}"#),
        (
            "node.koordinator.sh/cpu-shared-pools",
            r#"[{"socket":0,"node":0,"cpuset":"0-1"},{"socket":1,"node":1,"cpuset":"2-3"}]"#,
        ),
        (
            "node.koordinator.sh/cpu-topology",
            r#"{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":0,"socket":0,"node":0},{"id":2,"core":1,"socket":1,"node":1},{"id":3,"core":1,"socket":1,"node":1}]}"#,
        ),
        ("node.koordinator.sh/pod-cpu-allocs", "null"),
        ("node.koordinator.sh/reservation", "{}"),
        ("node.koordinator.sh/system-qos-resource", "{}"),
    ];
    let written: Vec<(&str, &str)> =
        report.annotations.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
    assert_eq!(written, wanted);
    assert_eq!(report.warnings, []);
    let body = serde_json::to_string(&report.body).expect("JSON");
    let zone = |node: u32| {
        let resource = |name: &str, amount: &str| {
            format!(
                r#"{{"name":"{name}","capacity":"{amount}","allocatable":"{amount}","available":"{amount}"}}"#
            )
        };
        let resources = [("cpu", "2"), ("hugepages-1Gi", "0"), ("hugepages-2Mi", "0"), ("memory", "16Gi")]
            .map(|(n, a)| resource(n, a));
        format!(r#"{{"name":"node-{node}","type":"Node","resources":[{}]}}"#, resources.join(","))
    };
    assert_eq!(body, format!(r#"{{"topologyPolicies":["None"],"zones":[{},{}]}}"#, zone(0), zone(1)));
}

#[test]
fn the_eight_annotations_are_those_that_are_compared() {
    let report = bed(t8()).report();
    let mut keys = change::ANNOTATIONS.to_vec();
    keys.sort_unstable();
    assert_eq!(report.annotations.keys().map(String::as_str).collect::<Vec<_>>(), keys);
}

#[test]
fn a_static_kubelet() {
    let node = bed(t12()).with_kubelet(STATIC_2_CPUS);
    let report = node.report();
    assert_eq!(
        report.annotations[annotation::KUBELET_CPU_MANAGER_POLICY],
        r#"{"policy":"static","reservedCPUs":"0,6"}"#
    );
    assert_eq!(report.body.topology_policies, [TopologyPolicy::SingleNumaNodePodLevel]);
    // The kubelet's reserved CPUs stay shared.
    assert_eq!(
        report.annotations[annotation::NODE_CPU_SHARED_POOLS],
        r#"[{"socket":0,"node":0,"cpuset":"0,2,4,6,8,10"},{"socket":1,"node":1,"cpuset":"1,3,5,7,9,11"}]"#
    );
    // There should be a state and is none.
    assert_eq!(report.warnings, [Warning::NoKubeletState]);
}

#[test]
fn reserved_cpus_of_the_kubelet() {
    let policy = |fields: &str| {
        let configz = format!(r#"{{"kubeletconfig":{{"cpuManagerPolicy":"static",{fields}}}}}"#);
        let node =
            bed(t8()).with_kubelet(&configz).with_state(r#"{"policyName":"static","defaultCpuSet":"0-7"}"#);
        let report = node.report();
        (report.annotations[annotation::KUBELET_CPU_MANAGER_POLICY].clone(), report.warnings.len())
    };
    assert_eq!(
        policy(r#""reservedSystemCPUs":"1-4","kubeReserved":{"cpu":"500m"}"#),
        (r#"{"policy":"static","reservedCPUs":"1-4"}"#.to_owned(), 0)
    );
    let empty = (r#"{"policy":"static"}"#.to_owned(), 1);
    assert_eq!(policy(r#""kubeReserved":{"memory":"1Gi"}"#), empty);
    assert_eq!(policy(r#""kubeReserved":{"cpu":"x"}"#), empty);
    assert_eq!(policy(r#""kubeReserved":{"cpu":"9"}"#), empty);
    assert_eq!(policy(r#""reservedSystemCPUs":"4-1""#), empty);
}

#[test]
fn the_kubelet_is_not_asked() {
    let mut node = bed(t8()).with_state(r#"{"policyName":"static","entries":{"podA":{"c":"1-2"}}}"#);
    node.kubelet = None;
    let report = node.report();
    assert_eq!(report.annotations[annotation::KUBELET_CPU_MANAGER_POLICY], "{}");
    assert_eq!(report.annotations[annotation::NODE_POD_CPU_ALLOCS], "null");
    assert_eq!(report.body.topology_policies, [TopologyPolicy::None]);
    assert_eq!(
        report.annotations[annotation::NODE_CPU_SHARED_POOLS],
        r#"[{"socket":0,"node":0,"cpuset":"0-7"}]"#
    );
    assert_eq!(report.warnings, [Warning::HiddenStaticPolicy]);
    node.state = None;
    assert_eq!(node.report().warnings, []);
}

const POD_A: &str =
    r#"{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"podA":{"c1":"1-2","c2":"2-3","c3":"x"}}}"#;

#[test]
fn cpus_that_the_kubelet_gave_away() {
    let mut node = bed(t8()).with_kubelet(STATIC_2_CPUS).with_state(POD_A);
    let report = node.report();
    let allocs = r#"[{"uid":"podA","cpuset":"1-3","managedByKubelet":true}]"#;
    assert_eq!(report.annotations[annotation::NODE_POD_CPU_ALLOCS], allocs);
    let pool = r#"[{"socket":0,"node":0,"cpuset":"0,4-7"}]"#;
    assert_eq!(report.annotations[annotation::NODE_CPU_SHARED_POOLS], pool);
    assert_eq!(report.annotations[annotation::NODE_BE_CPU_SHARED_POOLS], pool);
    assert!(matches!(&report.warnings[..], [Warning::KubeletState(text)] if text.contains("podA.c3")));
    // The pod is known, and is the kubelet's by its class.
    node.pods = vec![("podA", Some(QosClass::Lsr), None)];
    assert_eq!(
        node.annotation(annotation::NODE_POD_CPU_ALLOCS),
        r#"[{"namespace":"default","name":"podA","uid":"podA","cpuset":"1-3","managedByKubelet":true}]"#
    );
    // It is ours by its class, or by the CPUs that the scheduler gave it.
    for (pod, conflicts) in [
        (("podA", Some(QosClass::Be), None), 1),
        (("podA", Some(QosClass::Ls), None), 1),
        (("podA", Some(QosClass::Lsr), Some(r#"{"cpuset":"1-3"}"#)), 0),
        (("podA", Some(QosClass::Lsr), Some(r#"{"cpuset":"4-5"}"#)), 1),
    ] {
        node.pods = vec![pod];
        let report = node.report();
        assert_eq!(report.annotations[annotation::NODE_POD_CPU_ALLOCS], "null");
        let found =
            report.warnings.iter().filter(|warning| matches!(warning, Warning::KubeletConflict { .. }));
        assert_eq!(found.count(), conflicts, "{pod:?}");
    }
}

#[test]
fn a_kubelet_that_was_static_once() {
    // The state file of a former policy does not count.
    let node = bed(t8()).with_state(POD_A);
    assert_eq!(node.annotation(annotation::NODE_POD_CPU_ALLOCS), "null");
    assert_eq!(node.report().warnings, []);
}

#[test]
fn pods_with_cpus_of_their_own() {
    let mut node = bed(t8());
    node.pods = vec![
        ("lsr", Some(QosClass::Lsr), Some(r#"{"cpuset":"2-3"}"#)),
        ("lse", Some(QosClass::Lse), Some(r#"{"cpuset":"4-5"}"#)),
        ("none", None, None),
        ("empty", None, Some("{}")),
    ];
    assert_eq!(
        node.annotation(annotation::NODE_CPU_SHARED_POOLS),
        r#"[{"socket":0,"node":0,"cpuset":"0-1,6-7"}]"#
    );
    assert_eq!(
        node.annotation(annotation::NODE_BE_CPU_SHARED_POOLS),
        r#"[{"socket":0,"node":0,"cpuset":"0-3,6-7"}]"#
    );
    assert_eq!(node.report().warnings, []);
    // A pod whose annotation is broken counts as one without CPUs of its own.
    for broken in ["{", r#"{"cpuset":"5-4"}"#] {
        node.pods = vec![("broken", Some(QosClass::Lse), Some(broken))];
        let report = node.report();
        assert_eq!(
            report.annotations[annotation::NODE_CPU_SHARED_POOLS],
            r#"[{"socket":0,"node":0,"cpuset":"0-7"}]"#
        );
        assert!(matches!(&report.warnings[..], [Warning::PodAnnotation { name, .. }] if name == "broken"));
    }
}

#[test]
fn the_reservation_of_a_node() {
    let reservation = |text: &str| {
        let report = bed(t12()).with_annotation(annotation::NODE_RESERVATION, text).report();
        (report.annotations[annotation::NODE_RESERVATION].clone(), report.warnings.len())
    };
    for (text, wanted, warnings) in [
        (r#"{"resources":{"cpu":"2"}}"#, r#"{"resources":{"cpu":"2"},"reservedCPUs":"0,6"}"#, 0),
        (r#"{"resources":{"cpu":"2500m"}}"#, r#"{"resources":{"cpu":"2500m"},"reservedCPUs":"0,2,6"}"#, 0),
        (r#"{"resources":{"cpu":"-2"}}"#, r#"{"resources":{"cpu":"-2"}}"#, 0),
        (r#"{"reservedCPUs":"-1"}"#, "{}", 1),
        (
            r#"{"reservedCPUs":"3,1-2","applyPolicy":"ReservedCPUsOnly","resources":{"memory":"1Gi"}}"#,
            r#"{"resources":{"memory":"1Gi"},"reservedCPUs":"1-3","applyPolicy":"ReservedCPUsOnly"}"#,
            0,
        ),
        (r#"{"resources":{"cpu":"13"}}"#, r#"{"resources":{"cpu":"13"}}"#, 1),
        ("{", "{}", 1),
        ("", "{}", 0),
    ] {
        assert_eq!(reservation(text), (wanted.to_owned(), warnings), "{text}");
    }
    let node = bed(t8()).with_annotation(annotation::NODE_RESERVATION, r#"{"reservedCPUs":"0-1"}"#);
    for key in [annotation::NODE_CPU_SHARED_POOLS, annotation::NODE_BE_CPU_SHARED_POOLS] {
        assert_eq!(node.annotation(key), r#"[{"socket":0,"node":0,"cpuset":"2-7"}]"#);
    }
}

#[test]
fn cpus_of_system_daemons() {
    let node = |text: &str| bed(t8()).with_annotation(annotation::NODE_SYSTEM_QOS_RESOURCE, text);
    for (text, written, pool) in [
        (r#"{"cpuset":"0-1"}"#, r#"{"cpuset":"0-1"}"#, "2-7"),
        (
            r#"{ "cpusetExclusive" : true, "cpuset" : "0-1" }"#,
            r#"{"cpuset":"0-1","cpusetExclusive":true}"#,
            "2-7",
        ),
        (r#"{"cpuset":"0-1","cpusetExclusive":false}"#, r#"{"cpuset":"0-1","cpusetExclusive":false}"#, "0-7"),
    ] {
        let report = node(text).report();
        assert_eq!(report.annotations[annotation::NODE_SYSTEM_QOS_RESOURCE], written);
        let pool = format!(r#"[{{"socket":0,"node":0,"cpuset":"{pool}"}}]"#);
        assert_eq!(report.annotations[annotation::NODE_CPU_SHARED_POOLS], pool);
        assert_eq!(report.annotations[annotation::NODE_BE_CPU_SHARED_POOLS], pool);
        assert_eq!(report.warnings, []);
    }
    assert!(matches!(node(r#"{"cpuset":"x"}"#).report().warnings[..], [Warning::SystemCpus(_)]));
    assert!(matches!(node("{").try_report(None), Err(ReportError::SystemQosResource(_))));
    let mut bare = bed(t8());
    bare.annotations.clear();
    assert_eq!(bare.annotation(annotation::NODE_SYSTEM_QOS_RESOURCE), "null");
}

#[test]
fn a_zone_bears_a_part_of_what_the_kubelet_keeps() {
    let mut node = bed(Topology::regular(2, 1, 24, 1).expect("a layout"));
    node.capacity = list(&[("cpu", "48"), ("memory", "32Gi")]);
    node.allocatable = list(&[("cpu", "44"), ("memory", "32Gi")]);
    node.labels.insert(label::NODE_ENABLE_NUMA_RESERVATION.to_owned(), "true".to_owned());
    let shown = |node: &Bed| {
        let cpu = |zone: &koord_crd::node_resource_topology::Zone| {
            let cpu = zone.resources.iter().find(|resource| resource.name == "cpu").expect("CPU").clone();
            (cpu.capacity.to_string(), cpu.allocatable.to_string())
        };
        node.report().body.zones.iter().map(cpu).collect::<Vec<_>>()
    };
    let pair = |capacity: &str, allocatable: &str| (capacity.to_owned(), allocatable.to_owned());
    assert_eq!(shown(&node), [pair("24", "22"), pair("24", "22")]);
    assert_eq!(node.report().labels[label::NODE_ENABLE_NUMA_RESERVATION].as_deref(), Some("true"));
    node.allocatable = node.capacity.clone();
    assert_eq!(shown(&node), [pair("24", "24"), pair("24", "24")]);
    node.labels.clear();
    assert_eq!(node.report().labels[label::NODE_ENABLE_NUMA_RESERVATION], None);
}

/// What the API server holds.
#[derive(Default)]
struct Server {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    body: NodeResourceTopology,
}

impl Server {
    /// One round of a reporter; what was written, if anything.
    fn round(&mut self, node: &Bed) -> Option<Change> {
        let published = Published { labels: &self.labels, annotations: &self.annotations, body: &self.body };
        let report = node.try_report(Some(published)).expect("a report");
        let change = report.change(&published)?;
        self.labels = report.labels_over(&self.labels);
        self.annotations = report.annotations_over(&self.annotations);
        // As it comes back from the server.
        let text = serde_json::to_string(&report.body).expect("JSON");
        self.body = serde_json::from_str(&text).expect("the same");
        Some(change)
    }
}

#[test]
fn sixteen_sockets_of_one_cpu_are_written_once() {
    for node_of in [|_| 0, |id: u32| id / 4, |id: u32| id % 4] {
        let cpu = |id| Cpu { id, core: id, socket: id, node: node_of(id), cache: None };
        let mut node = bed(Topology::new((0..16).map(cpu)).expect("a layout"));
        node.pods = vec![("lsr", Some(QosClass::Lsr), Some(r#"{"cpuset":"0"}"#))];
        let mut server = Server::default();
        assert!(server.round(&node).is_some());
        for _ in 0..20 {
            assert_eq!(server.round(&node), None);
        }
        // The lowest CPU of a node names its pool's socket, whether it is shared or not.
        assert!(
            server.annotations[annotation::NODE_CPU_SHARED_POOLS].starts_with(r#"[{"socket":0,"node":0,"#)
        );
    }
}

#[test]
fn what_makes_a_write() {
    let mut node = bed(t12());
    let mut server = Server::default();
    server.annotations.insert("other".to_owned(), "stays".to_owned());
    server.labels.insert("other".to_owned(), "stays".to_owned());
    assert!(server.round(&node).is_some());
    assert_eq!(server.round(&node), None);

    // Spaces and the order of keys do not matter.
    let spaced = server.annotations[annotation::NODE_CPU_SHARED_POOLS].replace(':', " : ");
    server.annotations.insert(annotation::NODE_CPU_SHARED_POOLS.to_owned(), spaced);
    assert_eq!(server.round(&node), None);
    // Each of the eight is looked after: changed, broken or removed.
    for key in change::ANNOTATIONS {
        for spoilt in [Some("{\"x\":1}"), Some("{"), Some(""), None] {
            match spoilt {
                Some(text) => server.annotations.insert(key.to_owned(), text.to_owned()),
                None => server.annotations.remove(key),
            };
            assert_eq!(server.round(&node), Some(Change::Annotation(key)), "{spoilt:?}");
            assert_eq!(server.round(&node), None);
        }
    }

    node.pods.push(("lsr", Some(QosClass::Lsr), Some(r#"{"cpuset":"2-3"}"#)));
    assert_eq!(server.round(&node), Some(Change::Annotation(annotation::NODE_CPU_SHARED_POOLS)));
    node.labels.insert(label::NODE_ENABLE_NUMA_RESERVATION.to_owned(), "true".to_owned());
    assert_eq!(server.round(&node), Some(Change::Label(label::NODE_ENABLE_NUMA_RESERVATION)));
    node.labels.clear();
    assert_eq!(server.round(&node), Some(Change::Label(label::NODE_ENABLE_NUMA_RESERVATION)));
    assert_eq!(server.labels, BTreeMap::from([("other".to_owned(), "stays".to_owned())]));

    server.body.topology_policies.push(TopologyPolicy::None);
    assert_eq!(server.round(&node), Some(Change::Policies));
    server.body.zones.pop();
    assert_eq!(server.round(&node), Some(Change::Zones));
    server.body.zones[0].zone_type = "Socket".to_owned();
    assert_eq!(server.round(&node), Some(Change::Zones));
    node.memory.insert(1, NumaMemory { total: Bytes(1 << 33), ..NumaMemory::default() });
    let memory = Change::Resource { zone: "node-1".to_owned(), resource: "memory" };
    assert_eq!(server.round(&node), Some(memory));
    assert_eq!(server.annotations["other"], "stays");
}

#[test]
fn what_others_write_makes_no_write() {
    let node = bed(t12());
    let mut server = Server::default();
    assert!(server.round(&node).is_some());
    let foreign = |name: &str| koord_crd::node_resource_topology::ZoneResource {
        name: name.to_owned(),
        capacity: Quantity::parse("3").expect("a quantity"),
        ..koord_crd::node_resource_topology::ZoneResource::default()
    };
    server.body.zones[0].resources.insert(0, foreign("aaa.com/x"));
    server.body.zones[0].resources.push(foreign("koordinator.sh/gpu"));
    server.annotations.insert("other".to_owned(), "{".to_owned());
    assert_eq!(server.round(&node), None);
    // A write for another reason keeps them.
    server.annotations.remove(annotation::NODE_CPU_TOPOLOGY);
    assert!(server.round(&node).is_some());
    let names: Vec<&str> =
        server.body.zones[0].resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["aaa.com/x", "cpu", "hugepages-1Gi", "hugepages-2Mi", "koordinator.sh/gpu", "memory"]);
}

#[test]
fn a_local_change_without_an_api_server() {
    let mut node = bed(t8());
    let first = node.report();
    let labels = first.labels_over(&BTreeMap::new());
    assert_eq!(node.report().change(&first.as_published(&labels)), None);
    node.pods.push(("lsr", Some(QosClass::Lsr), Some(r#"{"cpuset":"2-3"}"#)));
    assert!(node.report().change(&first.as_published(&labels)).is_some());
}

#[test]
fn the_metadata_of_a_new_object() {
    let creation = creation("node-a", "1234");
    assert_eq!(creation.name, "node-a");
    assert_eq!(
        creation.labels,
        BTreeMap::from([("app.kubernetes.io/managed-by".into(), "Koordinator".into())])
    );
    assert_eq!((creation.owner.api_version, creation.owner.kind), ("v1", "Node"));
    assert_eq!((creation.owner.name.as_str(), creation.owner.uid.as_str()), ("node-a", "1234"));
}

proptest! {
    #[test]
    fn the_order_of_pods_does_not_matter(
        (one, other) in proptest::collection::btree_map(0_usize..6, 0_usize..4, 0..6).prop_flat_map(|pods| {
            let pods: Vec<_> = pods.into_iter().collect();
            (Just(pods.clone()), Just(pods).prop_shuffle())
        }),
    ) {
        const UIDS: [&str; 6] = ["a", "b", "c", "d", "e", "podA"];
        const STATUS: [Option<&str>; 4] = [None, Some("{"), Some(r#"{"cpuset":"1-2"}"#), Some(r#"{"cpuset":"5"}"#)];
        let report = |pods: &[(usize, usize)]| {
            let mut node = bed(t8()).with_kubelet(STATIC_2_CPUS).with_state(POD_A);
            node.pods = pods
                .iter()
                .map(|(uid, status)| (UIDS[*uid], Some(QosClass::ALL[*uid % 5]), STATUS[*status]))
                .collect();
            node.report()
        };
        let report_of_one = report(&one);
        prop_assert_eq!(&report_of_one, &report(&other));
        // Pods with CPUs of their own are not on the shared ones, and those on the LS pool are on the BE pool.
        let ls = koord_topology::pools::all_cpus(&report_of_one.pools.latency_sensitive);
        let be = koord_topology::pools::all_cpus(&report_of_one.pools.best_effort);
        prop_assert!(ls.is_subset(&be));
        prop_assert!(!one.iter().any(|(_, status)| *status == 3) || !ls.contains(5));
        prop_assert!(!one.iter().any(|(_, status)| *status == 2) || ls.is_disjoint(&CpuSet::range(1, 2)));
    }
}
