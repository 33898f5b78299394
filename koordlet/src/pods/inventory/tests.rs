use koord_cgroup::driver::CgroupDriver;
use koord_cgroup::version::CgroupVersion;
use koord_crd::node_slo::NodeSloSpec;
use serde_json::json;

use super::*;

struct Only(&'static [&'static str]);

impl Groups for Only {
    fn exists(&self, path: &CgroupPath) -> bool {
        self.0.contains(&path.as_str())
    }
}

fn layout(driver: CgroupDriver) -> Layout {
    Layout::new("/x", CgroupVersion::V2, driver, "/").expect("a layout")
}

fn pod(value: serde_json::Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(value).expect("a pod"))
}

fn web() -> Arc<Pod> {
    pod(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "a-b", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {
            "initContainers": [
                {"name": "once", "resources": {"requests": {"kubernetes.io/batch-cpu": "9000"}}},
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"kubernetes.io/batch-cpu": "200"}}},
            ],
            "containers": [
                {"name": "main", "resources": {"requests": {"kubernetes.io/batch-cpu": "1000"}}},
                {"name": "other"},
            ],
        },
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "initContainerStatuses": [
                {"name": "once", "containerID": "containerd://11", "state": {"terminated": {}}},
                {"name": "side", "containerID": "containerd://22", "state": {"running": {}}},
            ],
            "containerStatuses": [
                {"name": "main", "containerID": "containerd://33", "state": {"running": {}}},
                {"name": "other", "containerID": "", "state": {"waiting": {}}},
            ],
        },
    }))
}

#[test]
fn running_containers_are_measured() {
    let set = PodSet::new(vec![web()]);
    let (pods, refused) =
        pods(&set, &[], &layout(CgroupDriver::Systemd), RuntimeName::Containerd, &Only(&[]));
    assert_eq!(refused, []);
    let [entry] = pods.as_slice() else { panic!("{pods:?}") };
    assert_eq!(entry.qos, Some(QosClass::Be));
    assert_eq!(entry.kube_qos, KubeQos::Burstable);
    assert_eq!(entry.batch_cpu_request, MilliCpu(1200));
    let group = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice";
    assert_eq!(entry.cgroup.as_str(), group);
    let containers: Vec<_> = entry
        .containers
        .iter()
        .map(|container| (&*container.name, container.cgroup.as_str().to_owned(), container.is_init))
        .collect();
    assert_eq!(
        containers,
        [
            ("main", format!("{group}/cri-containerd-33.scope"), false),
            ("side", format!("{group}/cri-containerd-22.scope"), true),
        ]
    );
}

#[test]
fn entries_that_did_not_change_are_shared() {
    let set = PodSet::new(vec![web()]);
    let make = |previous: &[Arc<PodEntry>]| {
        pods(&set, previous, &layout(CgroupDriver::Cgroupfs), RuntimeName::Containerd, &Only(&[])).0
    };
    let first = make(&[]);
    let second = make(&first);
    assert!(Arc::ptr_eq(&first[0], &second[0]));
}

#[test]
fn pods_that_ended_are_left_out() {
    let ended = pod(json!({"metadata": {"name": "e", "uid": "e"}, "status": {"phase": "Succeeded"}}));
    let failed = pod(json!({"metadata": {"name": "f", "uid": "f"}, "status": {"phase": "Failed"}}));
    let twice = web();
    let set = PodSet::new(vec![ended, failed, Arc::clone(&twice), twice]);
    let (pods, _) = pods(&set, &[], &layout(CgroupDriver::Cgroupfs), RuntimeName::Containerd, &Only(&[]));
    assert_eq!(pods.iter().map(|pod| &*pod.uid).collect::<Vec<_>>(), ["a-b"]);
}

#[test]
fn the_group_that_exists_is_taken() {
    let crio = pod(json!({
        "metadata": {"name": "c", "uid": "u"},
        "status": {"phase": "Running", "qosClass": "Guaranteed", "containerStatuses": [
            {"name": "c", "containerID": "cri-o://44", "state": {"running": {}}}]},
    }));
    let set = PodSet::new(vec![crio]);
    let group = |present: &'static [&'static str]| {
        let layout = layout(CgroupDriver::Cgroupfs);
        let (pods, _) = pods(&set, &[], &layout, RuntimeName::Containerd, &Only(present));
        pods[0].containers[0].cgroup.as_str().to_owned()
    };
    assert_eq!(group(&["kubepods/podu/44"]), "kubepods/podu/44");
    assert_eq!(group(&["kubepods/podu/crio-44"]), "kubepods/podu/crio-44");
    assert_eq!(group(&[]), "kubepods/podu/crio-44");
}

#[test]
fn a_mirror_pod_has_the_group_of_its_file() {
    let mirror = pod(json!({
        "metadata": {"name": "m", "uid": "u", "annotations":
            {"kubernetes.io/config.mirror": "h", "kubernetes.io/config.hash": "h"}},
        "status": {"phase": "Running", "qosClass": "BestEffort"},
    }));
    let (pods, _) = pods(
        &PodSet::new(vec![mirror]),
        &[],
        &layout(CgroupDriver::Cgroupfs),
        RuntimeName::Containerd,
        &Only(&[]),
    );
    assert_eq!(pods[0].cgroup.as_str(), "kubepods/besteffort/podh");
}

#[test]
fn host_applications_are_where_the_policy_says() {
    let value = json!({"hostApplications": [
        {"name": "nginx", "qos": "LS"},
        {"name": "nginx", "qos": "BE"},
        {"name": "job", "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "job"}},
        {"name": "bad", "cgroupPath": {"base": "CgroupRoot", "relativePath": "../x"}},
    ]});
    let (spec, _) = NodeSloSpec::clamped(&value);
    let (entries, refused) = host_applications(&spec.host_applications, &layout(CgroupDriver::Cgroupfs));
    let found: Vec<_> = entries.iter().map(|entry| (&*entry.name, entry.cgroup.as_str())).collect();
    assert_eq!(found, [("nginx", "host-latency-sensitive/nginx"), ("job", "kubepods/besteffort/job")]);
    assert_eq!(
        refused.iter().map(|refused| refused.subject.as_str()).collect::<Vec<_>>(),
        ["host application nginx", "host application bad"]
    );
}
