use super::*;

fn layout(driver: CgroupDriver, kubelet_root: &str) -> Layout {
    Layout::new("/sys/fs/cgroup", CgroupVersion::V1, driver, kubelet_root).unwrap()
}

#[test]
fn directories_of_the_classes() {
    let systemd = layout(CgroupDriver::Systemd, "/");
    let expected = [
        "kubepods.slice",
        "kubepods.slice/kubepods-burstable.slice",
        "kubepods.slice/kubepods-besteffort.slice",
    ];
    let classes = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];
    assert_eq!(classes.map(|qos| systemd.qos_dir(qos).as_str().to_owned()), expected);
    let cgroupfs = layout(CgroupDriver::Cgroupfs, "");
    assert_eq!(
        classes.map(|qos| cgroupfs.qos_dir(qos).as_str().to_owned()),
        ["kubepods", "kubepods/burstable", "kubepods/besteffort"]
    );
}

#[test]
fn a_root_of_the_kubelet_comes_first() {
    let pod = |driver| layout(driver, "/kubelet").pod(KubeQos::BestEffort, "a-b").unwrap();
    assert_eq!(
        pod(CgroupDriver::Systemd).as_str(),
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-poda_b.slice"
    );
    assert_eq!(pod(CgroupDriver::Cgroupfs).as_str(), "kubelet/kubepods/besteffort/poda-b");
}

#[test]
fn roots_that_climb_are_refused() {
    for root in ["/..", "a/../b", "/a/.", "a\nb"] {
        assert!(Layout::new("/", CgroupVersion::V1, CgroupDriver::Cgroupfs, root).is_err(), "{root}");
    }
    let plain = layout(CgroupDriver::Cgroupfs, "");
    for directory in ["", "/", "..", "a//b", "a/../b"] {
        assert!(plain.clone().with_declared(directory).is_err(), "{directory}");
    }
    for uid in ["", "a/b", "..", "a\0"] {
        assert!(plain.pod(KubeQos::Burstable, uid).is_err(), "{uid}");
    }
}

#[test]
fn controllers_have_directories_on_version_1_only() {
    let v1 = layout(CgroupDriver::Cgroupfs, "").with_folder(Controller::Cpu, "cpu,cpuacct");
    assert_eq!(v1.directory(Controller::Cpu), Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    assert_eq!(v1.directory(Controller::Memory), Path::new("/sys/fs/cgroup/memory"));
    let v2 = Layout::new("/sys/fs/cgroup", CgroupVersion::V2, CgroupDriver::Systemd, "").unwrap();
    assert_eq!(v2.directory(Controller::Memory), Path::new("/sys/fs/cgroup"));
}

#[test]
fn a_tree_is_examined() {
    let root = tempfile::tempdir().unwrap();
    let detect = |kubelet_root: &str| {
        let options = DetectOptions {
            root: root.path().to_owned(),
            kubelet_root: kubelet_root.to_owned(),
            declared: vec!["/host-best-effort".to_owned()],
            driver: DriverEvidence::default(),
        };
        Layout::detect(&options).unwrap()
    };
    std::fs::create_dir_all(root.path().join("cpu,cpuacct")).unwrap();
    let (nothing, source) = detect("/");
    assert_eq!((nothing.version(), nothing.driver()), (CgroupVersion::V1, CgroupDriver::Systemd));
    assert_eq!(source, DriverSource::Assumed);
    assert_eq!(nothing.directory(Controller::Cpuacct), root.path().join("cpu,cpuacct"));
    assert!(!nothing.is_hybrid());
    std::fs::create_dir_all(root.path().join("cpu,cpuacct/kubelet/kubepods")).unwrap();
    assert_eq!(detect("/").1, DriverSource::Assumed);
    let (found, source) = detect("/kubelet");
    assert_eq!((found.driver(), source), (CgroupDriver::Cgroupfs, DriverSource::Directories));
    assert!(found.allows("host-best-effort/app"));
    assert!(!found.allows("host-best-effort-not"));
    std::fs::create_dir_all(root.path().join("cpu,cpuacct/kubelet.slice/kubelet-kubepods.slice")).unwrap();
    assert_eq!(detect("/kubelet").0.driver(), CgroupDriver::Systemd);
}
