//! Rules carried out on trees of plain files in the shape of cgroup v1 or v2.

use std::fs;
use std::path::{Path, PathBuf};

use koord_cgroup::layout::Layout;
use koord_cgroup::version::CgroupVersion;
use koord_cgroup::weight::Conversion;
use koord_extension::gates::Gates;
use koord_hook::v1alpha1::{ContainerMetadata, LinuxContainerResources, PodSandboxMetadata};
use koord_intercept::record::ContainerRecord;
use koord_rules::Options;
use koord_topology::model::{Cpu, Topology};
use prometheus_client::registry::Registry;

use super::*;
use crate::metrics::Metrics;
use crate::trust::Trust;

pub(crate) const PARENT: &str = "/kubepods/besteffort/podu1";
pub(crate) const ID: &str = "c1";

/// One container that asks for half a core and may have one, by the batch resources.
const BATCH: &str = r#"{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"},"limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"1Gi"}}}}"#;

pub(super) const IDENTITY: &str =
    "resourceQOSStrategy:\n  beClass:\n    cpuQOS:\n      enable: true\n      groupIdentity: -1\n";

/// The files of a group, as the kernel and a kubelet that asks for nothing leave them.
const FILES_V1: [(&str, &str); 6] = [
    ("cpu.shares", "2\n"),
    ("cpu.cfs_quota_us", "-1\n"),
    ("cpu.cfs_period_us", "100000\n"),
    ("cpu.bvt_warp_ns", "0\n"),
    ("cpuset.cpus", "0-3\n"),
    ("memory.limit_in_bytes", "9223372036854771712\n"),
];
const FILES_V2: [(&str, &str); 4] =
    [("cpu.weight", "1\n"), ("cpu.max", "max 100000\n"), ("cpuset.cpus", "0-3\n"), ("memory.max", "max\n")];

pub(crate) struct Bed {
    version: CgroupVersion,
    pub(super) root: tempfile::TempDir,
    pub(crate) store: Arc<Store>,
    pub(crate) qos: Arc<Qos>,
    pub(crate) async_runtime: tokio::runtime::Runtime,
}

impl Bed {
    pub(crate) fn new(mode: Mode) -> Self {
        Self::with(mode, Gates::default(), Options::default())
    }

    pub(super) fn with(mode: Mode, gates: Gates, options: Options) -> Self {
        Self::on(CgroupVersion::V1, mode, gates, options)
    }

    /// On cgroup v2.
    pub(crate) fn on_v2(mode: Mode) -> Self {
        Self::on(CgroupVersion::V2, mode, Gates::default(), Options::default())
    }

    fn on(version: CgroupVersion, mode: Mode, gates: Gates, options: Options) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let async_runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let mut registry = Registry::default();
        let store = Arc::new(Store::new(Metrics::register(&mut registry)));
        let files: &[_] = if version == CgroupVersion::V1 { &FILES_V1 } else { &FILES_V2 };
        for directory in ["kubepods", "kubepods/besteffort", PARENT, &format!("{PARENT}/{ID}")] {
            for (file, text) in files {
                let file = file_in(root.path(), version, directory, file);
                fs::create_dir_all(file.parent().expect("a folder")).expect("made");
                fs::write(file, text).expect("written");
            }
        }
        let tree = TreeOptions {
            root: root.path().join("cg"),
            kubelet_root: "/".to_owned(),
            driver: Some(CgroupDriver::Cgroupfs),
            conversion: None,
        };
        let observer = Arc::new(WriteCounter::default());
        // A plain folder is taken for version 1.
        let executor = if version == CgroupVersion::V1 {
            tree.executor(None, &observer).expect("a tree")
        } else {
            Executor::new(Layout::new(&tree.root, version, CgroupDriver::Cgroupfs, "/").expect("a layout"))
        };
        let cpus = (0..4).map(|id| Cpu { id, core: id / 2, socket: 0, node: 0, cache: None });
        let fixed = FixedNode {
            machine: MachineRoots {
                dev_root: root.path().join("dev"),
                proc_root: root.path().join("proc"),
                sys_root: root.path().join("sys"),
                systemctl: root.path().join("systemctl"),
            },
            topology: Some(Topology::new(cpus).expect("a machine")),
            gates,
            options,
            kubelet_dir: root.path().join("kubelet"),
        };
        let qos = Arc::new(Qos::new(Parts {
            mode,
            policy: NodePolicy::new(Some(root.path().join("policy.yaml")), Trust::of_this_process()),
            fixed,
            tree,
            executor,
            observer,
            store: store.clone(),
            async_runtime: async_runtime.handle().clone(),
            interval: Duration::from_secs(10),
            skip: SkipRule { key: "skip".into(), value: "true".into(), namespaces: Vec::new() },
        }));
        Self { version, root, store, qos, async_runtime }
    }

    pub(super) fn file(&self, directory: &str, file: &str) -> PathBuf {
        file_in(self.root.path(), self.version, directory, file)
    }

    pub(crate) fn found(&self, directory: &str, file: &str) -> String {
        fs::read_to_string(self.file(directory, file)).expect("read").trim().to_owned()
    }

    pub(crate) fn set(&self, directory: &str, file: &str, text: &str) {
        fs::write(self.file(directory, file), text).expect("written");
    }

    pub(super) fn policy(&self, text: &str) {
        fs::write(self.root.path().join("policy.yaml"), text).expect("written");
    }

    /// What the pipeline does around RunPodSandbox.
    pub(crate) fn run_pod(&self, pod: PodRecord) -> Draft {
        let mut draft = Draft::of_pod();
        let mode = self.qos.mode();
        self.async_runtime.block_on(self.qos.prepare_pod(Arc::new(pod.clone()), &mut draft, mode));
        self.store.put_pod("p1".to_owned(), pod);
        self.qos.ledger().put_pod("p1", draft.clone().finish_pod());
        draft
    }

    /// What it does around CreateContainer and StartContainer; gives the resources that were sent.
    pub(super) fn start_container(&self, asked: LinuxContainerResources) -> Carried {
        let carried = self.create_container(asked);
        if self.qos.mode() == Mode::Enforce {
            self.async_runtime.block_on(self.qos.settle_container(ID));
        }
        carried
    }

    /// What it does around CreateContainer.
    fn create_container(&self, asked: LinuxContainerResources) -> Carried {
        let pod = self.store.pod("p1").expect("a pod");
        let mut draft = Draft::of_container("main", asked.clone());
        let (_, carried) = self.qos.decide_container(Some("p1"), &pod, &mut draft);
        let applied = self.qos.mode() == Mode::Enforce;
        self.qos.ledger().put_container(ID, draft.finish(applied, None));
        let sent = LinuxContainerResources {
            cpu_shares: carried.patch.cpu_shares.filter(|_| applied).unwrap_or(asked.cpu_shares),
            ..asked
        };
        let record = ContainerRecord {
            pod_id: "p1".into(),
            metadata: ContainerMetadata { name: "main".into(), id: ID.into(), ..Default::default() },
            resources: Some(sent),
            ..ContainerRecord::default()
        };
        self.store.put_container(ID.to_owned(), record);
        carried
    }

    /// Whether a call is under way whose request carries values.
    pub(crate) fn is_sending(&self) -> bool {
        self.qos.sending.try_write().is_err()
    }

    /// What it does after RunPodSandbox.
    pub(super) fn settle_pod(&self) {
        self.async_runtime.block_on(self.qos.settle_pod("p1"));
    }

    /// Steps aside, without a runtime that could be told.
    pub(super) fn step_aside(&self) -> koord_admin::RestoreReport {
        let nobody: crate::endpoint::Endpoint =
            self.root.path().join("no.sock").to_str().expect("text").parse().expect("an endpoint");
        let runtime = BackendClient::new(crate::unix_channel::UnixChannel::new(nobody));
        self.async_runtime.block_on(self.qos.restore(&runtime))
    }

    pub(crate) fn field(&self, container: bool, field: &str) -> (Option<String>, Option<String>, String) {
        let level = if container { self.qos.ledger().container(ID) } else { self.qos.ledger().pod("p1") };
        let level = level.expect("a level");
        let entry = level.entry(field).unwrap_or_else(|| panic!("{field} is not in {level:?}"));
        let text = |value: &Option<ledger::Text>| value.as_deref().map(str::to_owned);
        (text(&entry.asked), text(&entry.sent), entry.owner.to_string())
    }
}

fn file_in(root: &Path, version: CgroupVersion, directory: &str, file: &str) -> PathBuf {
    let (controller, _) = file.split_once('.').expect("a file of a controller");
    let tree = root.join("cg");
    let tree = if version == CgroupVersion::V1 { tree.join(controller) } else { tree };
    tree.join(directory.trim_start_matches('/')).join(file)
}

pub(super) fn pod(qos: &str, annotations: &[(&str, &str)]) -> PodRecord {
    PodRecord {
        metadata: PodSandboxMetadata {
            name: "pod".into(),
            namespace: "default".into(),
            uid: "u1".into(),
            ..Default::default()
        },
        labels: [("koordinator.sh/qosClass".to_owned(), qos.to_owned())].into(),
        annotations: annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        cgroup_parent: PARENT.into(),
        ..PodRecord::default()
    }
}

pub(crate) fn batch_pod() -> PodRecord {
    pod("BE", &[("node.koordinator.sh/extended-resource-spec", BATCH)])
}

pub(super) fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_batch_pod_gets_its_values_before_its_sandbox_and_in_its_containers() {
    let bed = Bed::new(Mode::Enforce);
    bed.run_pod(batch_pod());
    assert_eq!(bed.found(PARENT, "cpu.shares"), "512");
    assert_eq!(bed.found(PARENT, "cpu.cfs_quota_us"), "100000");
    assert_eq!(bed.found(PARENT, "memory.limit_in_bytes"), "1073741824");
    assert_eq!(bed.field(false, "cpu.shares"), (some("2"), some("512"), "BatchResource".to_owned()));

    let carried = bed.start_container(LinuxContainerResources { cpu_shares: 2, ..Default::default() });
    assert_eq!(carried.patch.cpu_shares, Some(512));
    assert_eq!(carried.patch.cpu_quota, Some(100_000));
    assert_eq!(carried.patch.memory_limit, Some(1 << 30));
    assert_eq!(bed.field(true, "cpu.shares"), (some("2"), some("512"), "BatchResource".to_owned()));
    // The runtime is a plain file here, so the check after the start has written it.
    assert_eq!(bed.found(&format!("{PARENT}/{ID}"), "cpu.shares"), "512");
}

/// The runtime made a weight of 59 of 512 shares; linearly it would be 20.
#[test]
fn a_round_before_the_start_leaves_the_weight_that_the_runtime_has_made() {
    let bed = Bed::on_v2(Mode::Enforce);
    let container = format!("{PARENT}/{ID}");
    bed.run_pod(batch_pod());
    // No container has shown the formula yet.
    assert_eq!(bed.found(PARENT, "cpu.weight"), "20");
    bed.create_container(LinuxContainerResources { cpu_shares: 2, ..Default::default() });
    bed.set(&container, "cpu.weight", "59\n");
    bed.qos.round_for_test();
    assert_eq!(bed.found(&container, "cpu.weight"), "59");
    assert_eq!(bed.qos.executor().conversion(), Conversion::Quadratic);
    bed.qos.round_for_test();
    assert_eq!(
        (bed.found(PARENT, "cpu.weight"), bed.found(&container, "cpu.weight")),
        ("59".into(), "59".into())
    );
}

#[test]
fn what_the_proxy_wrote_itself_is_not_taken_for_the_formula_of_the_runtime() {
    let bed = Bed::on_v2(Mode::Enforce);
    let container = format!("{PARENT}/{ID}");
    bed.run_pod(batch_pod());
    bed.create_container(LinuxContainerResources { cpu_shares: 2, ..Default::default() });
    bed.set(&container, "cpu.weight", "59\n");
    bed.qos.round_for_test();
    // As a start and a change of the mode do; meanwhile somebody has written what 512 shares are linearly.
    bed.set(&container, "cpu.weight", "20\n");
    bed.qos.learn_from_running();
    bed.async_runtime.block_on(bed.qos.settle_container(ID));
    bed.qos.executor().expire(&bed.qos.executor().layout().kubepods());
    bed.qos.round_for_test();
    assert_eq!(bed.found(&container, "cpu.weight"), "59");
}

#[test]
fn shadow_records_and_changes_nothing() {
    let bed = Bed::new(Mode::Shadow);
    bed.policy(IDENTITY);
    bed.qos.refresh_node();
    bed.run_pod(batch_pod());
    bed.start_container(LinuxContainerResources { cpu_shares: 2, ..Default::default() });
    bed.qos.round_for_test();
    for (file, text) in [
        ("cpu.shares", "2"),
        ("cpu.cfs_quota_us", "-1"),
        ("cpu.bvt_warp_ns", "0"),
        ("memory.limit_in_bytes", "9223372036854771712"),
    ] {
        assert_eq!(bed.found(PARENT, file), text, "{file}");
        assert_eq!(bed.found(&format!("{PARENT}/{ID}"), file), text, "{file}");
    }
    let level = bed.qos.ledger().container(ID).expect("a level");
    let entry = level.entry("cpu.shares").expect("an entry");
    assert_eq!((entry.sent.as_deref(), entry.wished.as_deref()), (Some("2"), Some("512")));
    assert!(bed.qos.ledger().sums().changed >= 4);
}

#[test]
fn a_policy_that_comes_and_goes_takes_its_values_along() {
    let bed = Bed::new(Mode::Enforce);
    bed.run_pod(batch_pod());
    assert_eq!(bed.found(PARENT, "cpu.bvt_warp_ns"), "0");
    bed.policy(IDENTITY);
    bed.qos.round_for_test();
    assert_eq!(bed.found(PARENT, "cpu.bvt_warp_ns"), "-1");
    assert_eq!(bed.found("kubepods/besteffort", "cpu.bvt_warp_ns"), "-1");
    assert_eq!(bed.field(false, "cpu.bvt_warp_ns"), (some("0"), some("-1"), "GroupIdentity".to_owned()));
    bed.policy("{}\n");
    bed.qos.round_for_test();
    assert_eq!(bed.found(PARENT, "cpu.bvt_warp_ns"), "0");
    assert_eq!(bed.found("kubepods/besteffort", "cpu.bvt_warp_ns"), "0");
    // What has nothing to do with the policy stays.
    assert_eq!(bed.found(PARENT, "cpu.shares"), "512");
}

#[test]
fn what_others_write_is_written_again() {
    let bed = Bed::new(Mode::Enforce);
    bed.run_pod(batch_pod());
    bed.start_container(LinuxContainerResources::default());
    let container = format!("{PARENT}/{ID}");
    bed.set(&container, "cpu.shares", "2\n");
    bed.qos.check_soon(ID);
    bed.qos.round_for_test();
    assert_eq!(bed.found(&container, "cpu.shares"), "512");
}

#[test]
fn a_pod_with_cpus_of_its_own_moves_others_off_them() {
    let bed = Bed::new(Mode::Enforce);
    bed.run_pod(pod("LS", &[]));
    bed.start_container(LinuxContainerResources::default());
    let container = format!("{PARENT}/{ID}");
    assert_eq!(bed.found(&container, "cpuset.cpus"), "0-3");
    let exclusive = PodRecord {
        metadata: PodSandboxMetadata { uid: "u2".into(), ..Default::default() },
        cgroup_parent: "/kubepods/podu2".into(),
        ..pod("LSR", &[("scheduling.koordinator.sh/resource-status", r#"{"cpuset":"2-3"}"#)])
    };
    let mut draft = Draft::of_pod();
    bed.async_runtime.block_on(bed.qos.prepare_pod(Arc::new(exclusive), &mut draft, Mode::Enforce));
    assert_eq!(bed.found(&container, "cpuset.cpus"), "0-1");
}

#[test]
fn stepping_aside_puts_everything_back() {
    let bed = Bed::new(Mode::Enforce);
    bed.policy(IDENTITY);
    bed.qos.refresh_node();
    bed.run_pod(batch_pod());
    bed.qos.round_for_test();
    let report = bed.step_aside();
    assert_eq!((report.mode, report.failed.len()), (Mode::Off, 0));
    assert!(report.restored >= 4, "{report:?}");
    for (directory, file, text) in [
        (PARENT, "cpu.shares", "2"),
        (PARENT, "cpu.cfs_quota_us", "-1"),
        (PARENT, "cpu.bvt_warp_ns", "0"),
        ("kubepods/besteffort", "cpu.bvt_warp_ns", "0"),
    ] {
        assert_eq!(bed.found(directory, file), text, "{directory}/{file}");
    }
    let limit = bed.found(PARENT, "memory.limit_in_bytes");
    assert!(limit == "-1" || limit == "9223372036854771712", "{limit}");
    assert_eq!(bed.qos.ledger().sums().changed, 0);
    // And nothing is written any more.
    bed.qos.round_for_test();
    assert_eq!(bed.found(PARENT, "cpu.shares"), "2");
}

#[test]
fn whoever_writes_has_ended_before_values_are_put_back() {
    let bed = Bed::new(Mode::Enforce);
    bed.run_pod(batch_pod());
    bed.qos.round_for_test();
    assert_eq!(bed.found(PARENT, "cpu.cfs_quota_us"), "100000");
    // A round that is under way: it has looked at the mode, and writes once values are put back if nobody waits for it.
    let held = bed.qos.enforcing().expect("enforced");
    std::thread::scope(|scope| {
        let stepping = scope.spawn(|| bed.step_aside());
        while bed.qos.mode() != Mode::Off {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(!stepping.is_finished());
        assert_eq!(bed.found(PARENT, "cpu.cfs_quota_us"), "100000");
        drop(held);
        assert_eq!(stepping.join().expect("no panic").failed.len(), 0);
    });
    assert_eq!(bed.found(PARENT, "cpu.cfs_quota_us"), "-1");
    assert!(bed.qos.enforcing().is_none());
    // What began before and comes to write now does not.
    bed.settle_pod();
    let mut draft = Draft::of_pod();
    bed.async_runtime.block_on(bed.qos.prepare_pod(Arc::new(batch_pod()), &mut draft, Mode::Enforce));
    assert_eq!(bed.found(PARENT, "cpu.cfs_quota_us"), "-1");
}

/// Values in the cgroups of the pod and its container, and the record that the runtime gives of the container.
fn left_by_an_earlier_life(bed: &Bed) -> ContainerRecord {
    for directory in [PARENT, &format!("{PARENT}/{ID}")] {
        for (file, text) in
            [("cpu.shares", "512"), ("cpu.cfs_quota_us", "100000"), ("memory.limit_in_bytes", "1073741824")]
        {
            bed.set(directory, file, text);
        }
    }
    let resources = LinuxContainerResources {
        cpu_shares: 512,
        cpu_quota: 100_000,
        cpu_period: 100_000,
        memory_limit_in_bytes: 1 << 30,
        ..Default::default()
    };
    ContainerRecord {
        pod_id: "p1".into(),
        metadata: ContainerMetadata { name: "main".into(), ..Default::default() },
        resources: Some(resources),
        ..Default::default()
    }
}

fn assert_nothing_is_left(bed: &Bed) {
    for directory in [PARENT, &format!("{PARENT}/{ID}")] {
        assert_eq!(bed.found(directory, "cpu.shares"), "2", "{directory}");
        assert_eq!(bed.found(directory, "cpu.cfs_quota_us"), "-1", "{directory}");
        assert_eq!(bed.found(directory, "memory.limit_in_bytes"), "-1", "{directory}");
    }
}

/// A proxy that was killed before it had noted what the kubelet asked has left its values behind.
#[test]
fn values_of_an_earlier_life_are_not_taken_for_those_of_the_kubelet() {
    let bed = Bed::new(Mode::Enforce);
    let container = left_by_an_earlier_life(&bed);
    bed.run_pod(batch_pod());
    bed.store.put_container(ID.to_owned(), container);
    bed.qos.round_for_test();
    for (container, field, asked) in [
        (false, "cpu.shares", Some("2")),
        (false, "cpu.cfs_quota_us", None),
        (false, "memory.limit_in_bytes", None),
        (true, "cpu.shares", Some("2")),
        (true, "cpu.cfs_quota_us", None),
        (true, "memory.limit_in_bytes", None),
        // No rule wishes for a period.
        (true, "cpu.cfs_period_us", Some("100000")),
    ] {
        assert_eq!(bed.field(container, field).0.as_deref(), asked, "{container} {field}");
    }
    let level = bed.qos.ledger().container(ID).expect("known");
    let asked = level.asked.as_ref().expect("known");
    assert_eq!((asked.cpu_shares, asked.cpu_quota, asked.memory_limit_in_bytes), (2, 0, 0));
    bed.step_aside();
    assert_nothing_is_left(&bed);
}

/// The kubelet may send an update before the first round.
#[test]
fn an_update_of_an_adopted_container_does_not_ask_for_what_an_earlier_life_sent() {
    let bed = Bed::new(Mode::Enforce);
    bed.run_pod(batch_pod());
    let pod = bed.store.pod("p1").expect("a pod");
    let told = LinuxContainerResources {
        cpu_shares: 512,
        cpu_quota: 100_000,
        memory_limit_in_bytes: 1 << 30,
        cpuset_cpus: "0-1".into(),
        ..Default::default()
    };
    for (mut draft, quota, shares) in [
        (Draft::of_adopted_container("main", told.clone()), 0, 2),
        (Draft::of_container("main", told), 100_000, 512),
    ] {
        let (_, carried) = bed.qos.decide_container(Some("p1"), &pod, &mut draft);
        assert_eq!((carried.patch.cpu_quota, carried.patch.cpu_shares), (Some(100_000), Some(512)));
        let level = draft.finish(true, None);
        let asked = level.asked.as_ref().expect("known");
        assert_eq!((asked.cpu_quota, asked.cpu_shares, &*asked.cpuset_cpus), (quota, shares, "0-1"));
        let entry = level.entry("cpu.cfs_quota_us").expect("noted");
        assert_eq!(entry.asked.is_none(), quota == 0);
        assert_eq!(entry.sent.as_deref(), Some("100000"));
    }
}

/// Stepping aside right after the start, when no round has looked at anything.
#[test]
fn values_of_an_earlier_life_are_put_back_before_the_first_round() {
    let bed = Bed::new(Mode::Enforce);
    bed.store.put_pod("p1".to_owned(), batch_pod());
    bed.store.put_container(ID.to_owned(), left_by_an_earlier_life(&bed));
    bed.step_aside();
    assert_nothing_is_left(&bed);
}

#[test]
fn calls_that_carry_values_have_ended_before_values_are_put_back() {
    let bed = Bed::new(Mode::Enforce);
    bed.run_pod(batch_pod());
    bed.qos.round_for_test();
    let (first, second) = (bed.qos.begin_sending(), bed.qos.begin_sending());
    assert!(first.is_some() && second.is_some(), "calls do not wait for each other");
    std::thread::scope(|scope| {
        let stepping = scope.spawn(|| bed.step_aside());
        while bed.qos.mode() != Mode::Off {
            std::thread::yield_now();
        }
        drop(first);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!stepping.is_finished());
        assert_eq!(bed.found(PARENT, "cpu.cfs_quota_us"), "100000");
        assert!(bed.qos.begin_sending().is_none(), "what comes now carries nothing");
        drop(second);
        assert_eq!(stepping.join().expect("no panic").failed.len(), 0);
    });
    assert_eq!(bed.found(PARENT, "cpu.cfs_quota_us"), "-1");
    bed.qos.set_mode(Mode::Enforce);
    assert!(bed.qos.begin_sending().is_some());
}

#[test]
fn an_exempt_pod_is_left_alone() {
    let bed = Bed::new(Mode::Enforce);
    let mut exempt = batch_pod();
    exempt.labels.insert("skip".into(), "true".into());
    bed.store.put_pod("p1".to_owned(), exempt);
    bed.settle_pod();
    bed.qos.round_for_test();
    assert_eq!(bed.found(PARENT, "cpu.shares"), "2");
}
