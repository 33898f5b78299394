//! What is no file, carried out on trees of plain files and on kernels that are made up.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use koord_admin::Mode;
use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::layout::Layout;
use koord_cgroup::resctrl::pod_groups::LEAST_AGE;
use koord_cgroup::systemd::{Property, SystemdError, UnitManager};
use koord_cgroup::version::CgroupVersion;
use koord_extension::gates::{Gate, Gates};
use koord_hook::v1alpha1::LinuxContainerResources;
use koord_rules::{DiskNumber, Options, Plan, Rule};

use super::super::apply::{Reached, Which};
use super::super::ledger::Level;
use super::super::tests::{Bed, ID, IDENTITY, PARENT, batch_pod, pod, some};
use super::cookies::tests::ModelCookies;
use super::*;

const SLICE: &str = "kubepods.slice/kubepods-besteffort.slice";
const CONTAINER: &str = "/kubepods/besteffort/podu1/c1";
const CACHE: &str = "resourceQOSStrategy:\n  beClass:\n    resctrlQOS:\n      enable: true\n      catRangeEndPercent: 30\n      mbaPercent: 50\n";
const OWN_CACHE: &str = r#"{"llc":{"schemata":{"range":[0,50]}},"mb":{"schemata":{"percent":20}}}"#;
const COOKIES: &str = "resourceQOSStrategy:\n  policies:\n    cpuPolicy: coreSched\n  beClass:\n    cpuQOS:\n      enable: true\n      groupIdentity: 0\n      coreExpeller: false\n      schedIdle: 0\n";

/// Makes a file of the machine, such as `sys/fs/resctrl/tasks`.
fn place(bed: &Bed, path: &str, text: &str) -> PathBuf {
    let path = bed.root.path().join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, text).expect("written");
    path
}

fn text(bed: &Bed, path: &str) -> String {
    fs::read_to_string(bed.root.path().join(path)).expect("read").trim().to_owned()
}

/// The processes of the container.
fn processes(bed: &Bed, pids: &[i32]) {
    let lines: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
    for file in ["cgroup.procs", "tasks"] {
        place(bed, &format!("cg/cpu{CONTAINER}/{file}"), &lines);
    }
}

#[test]
fn scores_are_kept_and_put_back() {
    let bed = Bed::with(Mode::Enforce, Gates::default().with(Gate::OomScoreAdj), Options::default());
    bed.run_pod(pod("BE", &[("koordinator.sh/oom-score-adj", "-500")]));
    processes(&bed, &[7, 8]);
    place(&bed, "proc/7/oom_score_adj", "-500\n");
    place(&bed, "proc/8/oom_score_adj", "-500\n");
    let carried = bed.start_container(LinuxContainerResources { oom_score_adj: 1000, ..Default::default() });
    assert_eq!(carried.patch.oom_score_adj, Some(-500));
    // Somebody has put a process in from outside.
    place(&bed, "proc/8/oom_score_adj", "0\n");
    bed.qos.round_for_test();
    assert_eq!(
        (&*text(&bed, "proc/7/oom_score_adj"), &*text(&bed, "proc/8/oom_score_adj")),
        ("-500", "-500")
    );
    assert_eq!(bed.field(true, "oom_score_adj"), (some("1000"), some("-500"), "OOMScoreAdj".to_owned()));
    bed.step_aside();
    assert_eq!(
        (&*text(&bed, "proc/7/oom_score_adj"), &*text(&bed, "proc/8/oom_score_adj")),
        ("1000", "1000")
    );
}

#[test]
fn the_score_that_a_stranger_was_created_with_is_found_in_its_process() {
    let bed = Bed::with(Mode::Enforce, Gates::default().with(Gate::OomScoreAdj), Options::default());
    bed.run_pod(pod("BE", &[("koordinator.sh/oom-score-adj", "-500")]));
    processes(&bed, &[7]);
    place(&bed, "proc/7/oom_score_adj", "1000\n");
    let record = koord_intercept::record::ContainerRecord { pod_id: "p1".into(), ..Default::default() };
    bed.store.put_container(ID.to_owned(), record);
    bed.qos.round_for_test();
    assert_eq!(text(&bed, "proc/7/oom_score_adj"), "-500");
    assert_eq!(bed.field(true, "oom_score_adj"), (some("1000"), some("-500"), "OOMScoreAdj".to_owned()));
    bed.step_aside();
    assert_eq!(text(&bed, "proc/7/oom_score_adj"), "1000");
}

/// A systemd that does as it is told, unless it is broken.
#[derive(Debug, Clone)]
struct ModelUnits {
    slice: PathBuf,
    version: u32,
    is_broken: bool,
    calls: Arc<Mutex<Vec<String>>>,
}

impl UnitManager for ModelUnits {
    fn version(&self) -> Result<u32, SystemdError> {
        Ok(self.version)
    }

    fn set(&self, unit: &str, properties: &[Property]) -> Result<(), SystemdError> {
        for property in properties {
            locked(&self.calls).push(format!("{unit} {property}"));
            if !self.is_broken {
                let idle = if *property == Property::CpuIdle { "1\n" } else { "0\n" };
                fs::write(self.slice.join("cpu.idle"), idle).expect("written");
            }
        }
        Ok(())
    }

    fn show(&self, _unit: &str, _property: &str) -> Result<String, SystemdError> {
        Ok("1".to_owned())
    }
}

/// A node with systemd and version 2 of cgroups.
fn systemd_bed(version: u32, is_broken: bool) -> (Bed, ModelUnits) {
    let mut bed = Bed::new(Mode::Enforce);
    for folder in ["kubepods.slice", SLICE] {
        for (file, value) in [("cpu.idle", "0\n"), ("cpu.weight", "1\n"), ("cpu.max", "max 100000\n")] {
            place(&bed, &format!("v2/{folder}/{file}"), value);
        }
    }
    let units = ModelUnits {
        slice: bed.root.path().join("v2").join(SLICE),
        version,
        is_broken,
        calls: Arc::default(),
    };
    let root = bed.root.path().join("v2");
    let layout = Layout::new(root, CgroupVersion::V2, CgroupDriver::Systemd, "/").expect("a layout");
    let qos = Arc::get_mut(&mut bed.qos).expect("one handle");
    qos.executor.store(Arc::new(Executor::new(layout)));
    qos.acts.use_units(units.clone());
    (bed, units)
}

#[test]
fn systemd_makes_its_slice_idle_and_ends_it() {
    let (bed, units) = systemd_bed(252, false);
    let calls = || std::mem::take(&mut *locked(&units.calls));
    let idle = || text(&bed, &format!("v2/{SLICE}/cpu.idle"));
    bed.policy(IDENTITY);
    bed.qos.round_for_test();
    assert_eq!(calls(), ["kubepods-besteffort.slice CPUWeight=idle"]);
    assert_eq!(idle(), "1");
    bed.qos.round_for_test();
    assert_eq!(calls(), Vec::<String>::new());
    // What the kubelet's own update of the weight does.
    fs::write(units.slice.join("cpu.idle"), "0\n").expect("written");
    bed.qos.round_for_test();
    assert_eq!(calls(), ["kubepods-besteffort.slice CPUWeight=idle"]);
    bed.policy("{}\n");
    bed.qos.round_for_test();
    assert_eq!((calls(), idle()), (vec!["kubepods-besteffort.slice CPUWeight=1".to_owned()], "0".to_owned()));

    bed.policy(IDENTITY);
    bed.qos.round_for_test();
    calls();
    let report = bed.step_aside();
    assert_eq!((report.restored, report.failed.len()), (1, 0));
    assert_eq!((calls(), idle()), (vec!["kubepods-besteffort.slice CPUWeight=1".to_owned()], "0".to_owned()));
}

#[test]
fn an_old_or_broken_systemd_leaves_idleness_to_pods() {
    let (bed, units) = systemd_bed(249, false);
    bed.policy(IDENTITY);
    bed.qos.round_for_test();
    assert!(locked(&units.calls).is_empty());
    assert!(!bed.qos.node().view.kernel.systemd_idle_weight);

    let (bed, units) = systemd_bed(252, true);
    bed.policy(IDENTITY);
    for round in 0..6 {
        bed.qos.round_for_test();
        assert_eq!(bed.qos.node().view.kernel.systemd_idle_weight, round < 3, "{round}");
    }
    // Each time the weight is given back, and the file is not touched by anybody else.
    let (idle, weight) =
        ("kubepods-besteffort.slice CPUWeight=idle", "kubepods-besteffort.slice CPUWeight=1");
    assert_eq!(*locked(&units.calls), [idle, weight, idle, weight, idle, weight]);
    assert_eq!(text(&bed, &format!("v2/{SLICE}/cpu.idle")), "0");
}

#[test]
fn directories_protect_what_their_pods_do() {
    let bed = Bed::with(Mode::Enforce, Gates::default().with(Gate::CgroupReconcile), Options::default());
    for folder in ["kubepods", "kubepods/besteffort", "kubepods/burstable", PARENT] {
        for file in ["memory.min", "memory.low"] {
            place(&bed, &format!("cg/memory/{}/{file}", folder.trim_start_matches('/')), "0\n");
        }
        fs::create_dir_all(bed.root.path().join("cg/cpu").join(folder.trim_start_matches('/')))
            .expect("made");
    }
    bed.policy("resourceQOSStrategy:\n  beClass:\n    memoryQOS:\n      enable: true\n      minLimitPercent: 50\n      lowLimitPercent: 75\n");
    bed.run_pod(batch_pod());
    bed.qos.round_for_test();
    for folder in ["kubepods", "kubepods/besteffort", PARENT] {
        let found = (bed.found(folder, "memory.min"), bed.found(folder, "memory.low"));
        assert_eq!(found, ("536870912".to_owned(), "805306368".to_owned()), "{folder}");
    }
    assert_eq!(bed.found("kubepods/burstable", "memory.min"), "0");
    bed.store.remove_pod("p1");
    bed.qos.round_for_test();
    assert_eq!(bed.found("kubepods", "memory.min"), "0");
    assert_eq!(bed.found("kubepods/besteffort", "memory.low"), "0");
}

/// A mounted resctrl of twelve ways and `closids` classes of service, with these groups.
fn resctrl(bed: &Bed, closids: u32, groups: &[&str]) {
    let info = [
        ("info/L3/cbm_mask", "fff\n".to_owned()),
        ("info/L3/min_cbm_bits", "2\n".to_owned()),
        ("info/L3/num_closids", format!("{closids}\n")),
        ("info/MB/num_closids", format!("{closids}\n")),
        ("info/MB/bandwidth_gran", "10\n".to_owned()),
        ("info/MB/min_bandwidth", "10\n".to_owned()),
    ];
    for (file, value) in info {
        place(bed, &format!("sys/fs/resctrl/{file}"), &value);
    }
    place(bed, "proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n");
    for group in [""].iter().chain(groups) {
        place(bed, &format!("sys/fs/resctrl/{group}/schemata"), "L3:0=fff;1=fff\nMB:0=100;1=100\n");
        place(bed, &format!("sys/fs/resctrl/{group}/tasks"), "");
    }
}

#[test]
fn containers_are_in_the_group_of_their_class() {
    let bed = Bed::new(Mode::Enforce);
    resctrl(&bed, 4, &["BE", "LS"]);
    bed.policy(CACHE);
    bed.qos.round_for_test();
    // 30 % of 12 ways, rounded up.
    assert_eq!(text(&bed, "sys/fs/resctrl/BE/schemata"), "L3:0=f;1=f;\nMB:0=50;1=50;");
    bed.run_pod(batch_pod());
    processes(&bed, &[7, 8]);
    bed.start_container(LinuxContainerResources::default());
    assert_eq!(text(&bed, "sys/fs/resctrl/BE/tasks"), "7\n8");
    assert_eq!(bed.field(true, "resctrl class"), (None, some("BE"), "Resctrl".to_owned()));
    // The group of a class that nobody uses here is somebody else's.
    assert_eq!(text(&bed, "sys/fs/resctrl/LS/schemata"), "L3:0=fff;1=fff\nMB:0=100;1=100");
    // A task that came in from outside.
    processes(&bed, &[7, 8, 9]);
    bed.qos.round_for_test();
    assert_eq!(text(&bed, "sys/fs/resctrl/BE/tasks"), "7\n8\n9");
    // Stepping aside, tasks go back to where they came from. The folder cannot be removed here, with files in it.
    let report = bed.step_aside();
    assert_eq!(text(&bed, "sys/fs/resctrl/tasks"), "7\n8\n9");
    let failed: Vec<&str> = report.failed.iter().map(|failure| &*failure.field).collect();
    assert!(failed.contains(&"resctrl class"), "{report:?}");
}

#[test]
fn the_group_of_a_class_goes_with_the_policy() {
    let bed = Bed::new(Mode::Enforce);
    resctrl(&bed, 4, &["BE"]);
    bed.policy(CACHE);
    bed.qos.round_for_test();
    // The kernel removes a group with its files.
    for file in ["schemata", "tasks"] {
        fs::remove_file(bed.root.path().join("sys/fs/resctrl/BE").join(file)).expect("removed");
    }
    bed.policy("{}\n");
    bed.qos.round_for_test();
    assert!(!bed.root.path().join("sys/fs/resctrl/BE").exists());
}

#[test]
fn a_node_without_a_class_of_service_says_so_at_the_container() {
    let bed = Bed::new(Mode::Enforce);
    resctrl(&bed, 1, &[]);
    bed.policy(CACHE);
    bed.qos.round_for_test();
    bed.run_pod(pod("BE", &[]));
    processes(&bed, &[7]);
    bed.start_container(LinuxContainerResources::default());
    let level = bed.qos.ledger().container(ID).expect("a level");
    let problem = level.problems.iter().find(|problem| &*problem.rule == "Resctrl").expect("a problem");
    assert!(problem.message.contains("all 1 are in use"), "{problem:?}");
    assert_eq!(level.entry("resctrl class").expect("an entry").sent, None);
    assert_eq!(text(&bed, "sys/fs/resctrl/tasks"), "");
}

#[test]
fn what_the_runtime_puts_into_a_group_is_left_there() {
    let bed = Bed::new(Mode::Enforce);
    resctrl(&bed, 4, &["BE"]);
    bed.policy(CACHE);
    bed.qos.round_for_test();
    bed.run_pod(pod("BE", &[]));
    processes(&bed, &[7]);
    let record = koord_intercept::record::ContainerRecord {
        pod_id: "p1".into(),
        annotations: [("io.kubernetes.cri.rdt-class".to_owned(), "gold".to_owned())].into(),
        ..Default::default()
    };
    bed.store.put_container(ID.to_owned(), record);
    bed.qos.round_for_test();
    assert_eq!(text(&bed, "sys/fs/resctrl/BE/tasks"), "");
    assert!(bed.qos.ledger().container(ID).expect("a level").entry("resctrl class").is_none());
}

#[test]
fn a_pod_has_a_group_of_its_own_before_its_sandbox() {
    let gates = Gates::default().with(Gate::Resctrl);
    let bed = Bed::with(Mode::Enforce, gates, Options::default());
    resctrl(&bed, 8, &["koordlet-u1"]);
    bed.qos.refresh_node();
    bed.run_pod(pod("LS", &[("node.koordinator.sh/resctrl", OWN_CACHE)]));
    assert_eq!(text(&bed, "sys/fs/resctrl/koordlet-u1/schemata"), "L3:0=3f;1=3f;\nMB:0=20;1=20;");
    assert_eq!(bed.field(false, "resctrl class"), (None, some("koordlet-u1"), "Resctrl".to_owned()));
    processes(&bed, &[7]);
    bed.start_container(LinuxContainerResources::default());
    assert_eq!(text(&bed, "sys/fs/resctrl/koordlet-u1/tasks"), "7");

    // Without its pod a group is removed, when it is old enough.
    let cache = &bed.qos.acts.cache;
    fs::create_dir(bed.root.path().join("sys/fs/resctrl/koordlet-u2")).expect("made");
    let now = Instant::now();
    assert!(matches!(cache.make_pod_group("koordlet-u2", now), Acted::Done { .. }));
    let live = std::collections::BTreeSet::from(["u1".to_owned()]);
    let folder = bed.root.path().join("sys/fs/resctrl/koordlet-u2");
    assert!(cache.remove_ghosts(&live, now + LEAST_AGE - Duration::from_millis(1)).is_empty());
    assert!(folder.exists());
    assert!(cache.remove_ghosts(&live, now + LEAST_AGE).is_empty());
    assert!(!folder.exists());
    assert!(bed.root.path().join("sys/fs/resctrl/koordlet-u1").exists());
}

#[test]
fn a_pod_for_which_no_class_of_service_is_left_is_told_so() {
    let bed = Bed::with(Mode::Enforce, Gates::default().with(Gate::Resctrl), Options::default());
    resctrl(&bed, 1, &[]);
    bed.qos.refresh_node();
    bed.run_pod(pod("LS", &[("node.koordinator.sh/resctrl", OWN_CACHE)]));
    let level = bed.qos.ledger().pod("p1").expect("a level");
    assert!(level.problems.iter().any(|problem| problem.message.contains("all 1 are in use")), "{level:?}");
    assert!(!bed.root.path().join("sys/fs/resctrl/koordlet-u1").exists());
}

fn cookie_bed() -> (Bed, ModelCookies) {
    let gates = Gates::default().with(Gate::CoreSched);
    let mut bed = Bed::with(Mode::Enforce, gates, Options::default());
    place(&bed, "sys/devices/system/cpu/smt/active", "1\n");
    let kernel = ModelCookies::of(&[7, 8]);
    Arc::get_mut(&mut bed.qos).expect("one handle").acts.use_cookies(kernel.clone());
    bed.policy(COOKIES);
    bed.qos.refresh_node();
    (bed, kernel)
}

#[test]
fn a_container_gets_the_cookie_of_its_group_and_loses_it_again() {
    let (bed, kernel) = cookie_bed();
    bed.run_pod(pod("BE", &[]));
    processes(&bed, &[7]);
    bed.start_container(LinuxContainerResources::default());
    let cookie = kernel.cookie(7);
    assert!(cookie > Some(0), "{cookie:?}");
    assert_eq!(bed.field(true, "core scheduling group"), (None, some(""), "CoreSched".to_owned()));
    processes(&bed, &[7, 8]);
    bed.qos.round_for_test();
    assert_eq!(kernel.cookie(8), cookie);
    bed.step_aside();
    assert_eq!((kernel.cookie(7), kernel.cookie(8)), (Some(0), Some(0)));
}

#[test]
fn without_a_second_thread_on_a_core_nobody_gets_a_cookie() {
    let (bed, kernel) = cookie_bed();
    place(&bed, "sys/devices/system/cpu/smt/active", "0\n");
    bed.qos.refresh_node();
    bed.run_pod(pod("BE", &[]));
    processes(&bed, &[7]);
    bed.start_container(LinuxContainerResources::default());
    bed.qos.round_for_test();
    assert_eq!(kernel.cookie(7), Some(0));
}

#[test]
fn switches_are_set_in_their_order_and_put_back() {
    let bed = Bed::new(Mode::Enforce);
    place(&bed, "proc/sys/kernel/sched_core", "1\n");
    place(&bed, "proc/sys/kernel/sched_group_identity_enabled", "0\n");
    bed.policy(IDENTITY);
    bed.qos.round_for_test();
    assert_eq!(text(&bed, "proc/sys/kernel/sched_core"), "0");
    assert_eq!(text(&bed, "proc/sys/kernel/sched_group_identity_enabled"), "1");
    assert_eq!(bed.found("kubepods/besteffort", "cpu.bvt_warp_ns"), "-1");
    assert!(bed.step_aside().failed.is_empty());
    assert_eq!(text(&bed, "proc/sys/kernel/sched_core"), "1");
    assert_eq!(text(&bed, "proc/sys/kernel/sched_group_identity_enabled"), "0");
}

#[test]
fn wishes_wait_for_a_switch_that_cannot_be_set() {
    let bed = Bed::new(Mode::Enforce);
    let switch = place(&bed, "proc/sys/kernel/sched_core", "1\n");
    place(&bed, "proc/sys/kernel/sched_group_identity_enabled", "0\n");
    bed.policy(IDENTITY);
    bed.qos.refresh_node();
    // The first switch can be written no more.
    fs::remove_file(&switch).expect("removed");
    fs::create_dir(&switch).expect("made");
    bed.qos.look_at_node(Mode::Enforce);
    assert!(bed.qos.waits(Rule::GroupIdentity) && !bed.qos.waits(Rule::CoreSched));
    assert_eq!(text(&bed, "proc/sys/kernel/sched_group_identity_enabled"), "0");
    bed.run_pod(batch_pod());
    assert_eq!(
        (bed.found(PARENT, "cpu.bvt_warp_ns"), bed.found(PARENT, "cpu.shares")),
        ("0".into(), "512".into())
    );
    assert_eq!(bed.field(false, "cpu.bvt_warp_ns").1, None);
    fs::remove_dir(&switch).expect("removed");
    place(&bed, "proc/sys/kernel/sched_core", "1\n");
    bed.qos.round_for_test();
    assert_eq!(text(&bed, "proc/sys/kernel/sched_group_identity_enabled"), "1");
    assert_eq!(bed.found(PARENT, "cpu.bvt_warp_ns"), "-1");
}

#[test]
fn lines_in_the_root_of_the_tree_are_written_and_put_back() {
    let (bed, _) = systemd_bed(252, false);
    place(&bed, "v2/io.cost.qos", "8:0 enable=0\n");
    let mut plan = Plan::default();
    plan.wishes.push(Wish {
        field: Field::IoCostQos(DiskNumber { major: 8, minor: 0 }),
        value: Value::Text("8:0 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000".to_owned()),
        rule: Rule::BlkioQos,
        reason: "the policy".to_owned(),
    });
    let mut level = Level::default();
    let root = CgroupPath::root();
    let reached = bed.qos.carry_out(&root, RuleLevel::Node, &plan, &mut level, Which::All);
    assert_eq!(reached, Reached::Yes, "{level:?}");
    assert!(text(&bed, "v2/io.cost.qos").contains("enable=1"), "{level:?}");
    bed.qos.carry_out(&root, RuleLevel::Node, &Plan::default(), &mut level, Which::All);
    assert!(text(&bed, "v2/io.cost.qos").contains("enable=0"));
}

#[test]
fn the_sandbox_has_the_identity_of_its_pod() {
    let bed = Bed::new(Mode::Enforce);
    let sandbox = format!("{PARENT}/p1");
    for (file, value) in [("cpu.bvt_warp_ns", "0\n"), ("cpu.shares", "2\n")] {
        place(&bed, &format!("cg/cpu{sandbox}/{file}"), value);
    }
    place(&bed, &format!("cg/cpuset{sandbox}/cpuset.cpus"), "0-3\n");
    bed.policy(IDENTITY);
    bed.qos.refresh_node();
    bed.run_pod(batch_pod());
    bed.settle_pod();
    assert_eq!(bed.found(&sandbox, "cpu.bvt_warp_ns"), "-1");
    // What has to do with the pod's resources is not the sandbox's.
    assert_eq!(bed.found(&sandbox, "cpu.shares"), "2");
    let field = bed.field(false, "sandbox cpu.bvt_warp_ns");
    assert_eq!(field, (some("0"), some("-1"), "GroupIdentity".to_owned()));
    let shown = bed.qos.pods();
    let shown = shown[0].fields.iter().find(|field| field.field == "sandbox cpu.bvt_warp_ns");
    assert_eq!(shown.expect("shown").found, some("-1"));
    // Nothing of it is recorded as the pod's own, and nothing twice.
    bed.qos.round_for_test();
    let level = bed.qos.ledger().pod("p1").expect("a level");
    let sandboxes = level.entries.iter().filter(|entry| entry.field.starts_with("sandbox")).count();
    assert_eq!(sandboxes, 1, "{level:?}");
    bed.step_aside();
    assert_eq!(bed.found(&sandbox, "cpu.bvt_warp_ns"), "0");
}
