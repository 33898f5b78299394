use proptest::prelude::*;

use super::*;
use crate::version::CgroupVersion;

const UID: &str = "7712555c-ce62-454a-9e18-9ff0217b8941";

fn layout(driver: CgroupDriver) -> Layout {
    Layout::new("/sys/fs/cgroup", CgroupVersion::V1, driver, "/").unwrap()
}

fn container(driver: CgroupDriver, qos: KubeQos, uid: &str, id: &str) -> String {
    let id: ContainerId = id.parse().unwrap();
    let pod = layout(driver).pod(qos, uid).unwrap();
    pod.container(id.runtime, &id.id).unwrap().as_str().to_owned()
}

#[test]
fn paths_of_containers() {
    assert_eq!(
        container(CgroupDriver::Systemd, KubeQos::Burstable, UID, "containerd://ab12"),
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7712555c_ce62_454a_9e18_9ff0217b8941.slice/cri-containerd-ab12.scope"
    );
    assert_eq!(
        container(CgroupDriver::Cgroupfs, KubeQos::BestEffort, UID, "docker://ab12"),
        format!("kubepods/besteffort/pod{UID}/ab12")
    );
    assert_eq!(
        container(CgroupDriver::Systemd, KubeQos::Guaranteed, "a-b", "cri-o://x"),
        "kubepods.slice/kubepods-poda_b.slice/crio-x.scope"
    );
    assert_eq!(
        container(CgroupDriver::Systemd, KubeQos::BestEffort, "u", "pouch://x"),
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice/pouch-x.scope"
    );
    let pod = layout(CgroupDriver::Cgroupfs).pod(KubeQos::Guaranteed, "u").unwrap();
    let candidates = pod.container_candidates(RuntimeName::CriO, "x").unwrap();
    assert_eq!(
        candidates.iter().map(CgroupPath::as_str).collect::<Vec<_>>(),
        ["kubepods/podu/crio-x", "kubepods/podu/x"]
    );
}

#[test]
fn container_ids() {
    for text in ["ab12", "rkt://x", "", "://x", "docker://", "docker://..", "docker://a/b"] {
        assert!(text.parse::<ContainerId>().is_err(), "{text}");
    }
    let id: ContainerId = "cri-o://x".parse().unwrap();
    assert_eq!((id.runtime, id.to_string().as_str()), (RuntimeName::CriO, "cri-o://x"));
    let error = "rkt://x".parse::<ContainerId>().unwrap_err().to_string();
    assert!(error.contains("rkt") && error.contains("containerd, docker, cri-o, pouch"), "{error}");
}

#[test]
fn parents_in_calls() {
    let systemd = layout(CgroupDriver::Systemd);
    let from = |text| CgroupPath::from_cri_parent(text, &systemd).map(|path| path.as_str().to_owned());
    let expected = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice".to_owned();
    assert_eq!(from("kubepods-besteffort-pod1_2.slice"), Ok(expected.clone()));
    assert_eq!(from("/kubepods-besteffort-pod1_2.slice"), Ok(expected.clone()));
    let full = format!("/{expected}");
    assert_eq!(from(&full), Ok(expected));
    assert_eq!(from("kubepods.slice"), Ok("kubepods.slice".to_owned()));
    for text in
        ["", "/", "system.slice", "kubepods--a.slice", "-.slice", ".slice", "kubepods-.slice", "kubepods"]
    {
        assert!(from(text).is_err(), "{text}");
    }
    let cgroupfs = layout(CgroupDriver::Cgroupfs);
    let path = CgroupPath::from_cri_parent("/kubepods/besteffort/podU", &cgroupfs).unwrap();
    assert_eq!(path.as_str(), "kubepods/besteffort/podU");
    assert_eq!((path.depth(), path.name()), (3, "podU"));
    assert_eq!(path.parent().unwrap(), cgroupfs.qos_dir(KubeQos::BestEffort));
}

#[test]
fn paths_that_must_not_be_touched() {
    let plain = layout(CgroupDriver::Cgroupfs);
    let problem = |text: &str| match CgroupPath::new(text, &plain) {
        Err(CgroupError::Path { problem, .. }) => Some(problem),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(problem(""), Some(PathProblem::Empty));
    assert_eq!(problem("/"), Some(PathProblem::Root));
    assert_eq!(problem("//"), Some(PathProblem::Root));
    assert_eq!(problem("kubepods//a"), Some(PathProblem::Empty));
    assert_eq!(problem("kubepods/../system.slice"), Some(PathProblem::Climbs));
    assert_eq!(problem("kubepods/./a"), Some(PathProblem::Climbs));
    assert_eq!(problem("system.slice"), Some(PathProblem::Outside));
    assert_eq!(problem("kubepods-more"), Some(PathProblem::Outside));
    assert_eq!(problem("kubepods/a\0b"), Some(PathProblem::Name));
    assert_eq!(problem(&format!("kubepods/{}", "x".repeat(256))), Some(PathProblem::Name));
    let declared = plain.with_declared("host-best-effort").unwrap();
    assert!(CgroupPath::new("host-best-effort/app", &declared).is_ok());
    assert!(CgroupPath::new("kubepods/", &declared).is_ok());
    assert!(CgroupPath::root().child("kubepods").is_err());
}

#[test]
fn names_are_read() {
    let pod = |driver, name| parse_pod_name(driver, name);
    let systemd = |qos, uid: &str| Some(PodGroup { qos: Some(qos), uid: uid.to_owned() });
    assert_eq!(pod(CgroupDriver::Systemd, "kubepods-poda_b.slice"), systemd(KubeQos::Guaranteed, "a-b"));
    assert_eq!(pod(CgroupDriver::Systemd, "kubepods-burstable-podu.slice"), systemd(KubeQos::Burstable, "u"));
    assert_eq!(
        pod(CgroupDriver::Systemd, "kubelet-kubepods-besteffort-podu.slice"),
        systemd(KubeQos::BestEffort, "u")
    );
    assert_eq!(pod(CgroupDriver::Systemd, "kubelet-kubepods-podu.slice"), systemd(KubeQos::Guaranteed, "u"));
    for name in
        ["kubepods-pod.slice", "kubepods.slice", "mykubepods-podu.slice", "kubepods-odd-podu.slice", "podu"]
    {
        assert_eq!(pod(CgroupDriver::Systemd, name), None, "{name}");
    }
    let plain = Some(PodGroup { qos: None, uid: "a-b".to_owned() });
    assert_eq!(pod(CgroupDriver::Cgroupfs, "poda-b"), plain);
    assert_eq!(pod(CgroupDriver::Cgroupfs, "besteffort"), None);

    for runtime in RuntimeName::ALL {
        for driver in [CgroupDriver::Systemd, CgroupDriver::Cgroupfs] {
            for name in runtime.group_names(driver, "ab12") {
                let (named, id) = parse_container_name(driver, &name).unwrap();
                assert_eq!(id, "ab12");
                assert!(named.is_none_or(|named| named == runtime), "{name}");
            }
        }
    }
    for name in ["crio-conmon-ab.scope", "docker-.scope", "x.scope", "ab12", "crio-.scope"] {
        assert_eq!(parse_container_name(CgroupDriver::Systemd, name), None, "{name}");
    }
    assert_eq!(parse_container_name(CgroupDriver::Cgroupfs, "crio-conmon-ab"), None);
}

#[test]
fn sandboxes() {
    let known = ["containerd://a".parse().unwrap()];
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let two = names(&["cri-containerd-a.scope", "cri-containerd-p.scope"]);
    let find = |directories: &[String], known: &[ContainerId], told: Option<&str>| {
        find_sandbox(CgroupDriver::Systemd, RuntimeName::Containerd, directories, known, told)
            .map(|found| found.map(|id| id.to_string()))
    };
    assert_eq!(find(&two, &known, None), Ok(Some("containerd://p".to_owned())));
    let three = names(&["cri-containerd-a.scope", "cri-containerd-e.scope", "cri-containerd-p.scope"]);
    assert_eq!(find(&three, &known, None), Err(CgroupError::Sandbox { candidates: 2 }));
    assert_eq!(find(&three, &known, Some("p")), Ok(Some("containerd://p".to_owned())));
    assert_eq!(find(&two, &[], None), Ok(None));
    assert_eq!(find(&two[..1], &known, None), Err(CgroupError::Sandbox { candidates: 0 }));
    let crio = names(&["crio-a.scope", "crio-p.scope", "crio-p"]);
    assert_eq!(
        find_sandbox(CgroupDriver::Systemd, RuntimeName::CriO, &crio, &["cri-o://a".parse().unwrap()], None)
            .unwrap()
            .unwrap()
            .to_string(),
        "cri-o://p"
    );
}

#[test]
fn static_pods_are_named_after_the_hash_of_their_file() {
    let annotations = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let mirror = annotations(&[(CONFIG_HASH, "hash"), (CONFIG_MIRROR, "hash")]);
    assert_eq!(group_uid("uid", &mirror), "hash");
    assert_eq!(group_uid("uid", &annotations(&[(CONFIG_HASH, "hash")])), "uid");
    assert_eq!(group_uid("uid", &annotations(&[])), "uid");
}

proptest! {
    #[test]
    fn what_is_accepted_stays_inside(text in "[a-z./-]{0,30}|kubepods[a-z./-]{0,30}") {
        let layout = layout(CgroupDriver::Cgroupfs);
        if let Ok(path) = CgroupPath::new(&text, &layout) {
            prop_assert!(path.as_str() == "kubepods" || path.as_str().starts_with("kubepods/"));
            prop_assert!(path.as_str().split('/').all(|level| !matches!(level, "" | "." | "..")));
            prop_assert_eq!(CgroupPath::new(path.as_str(), &layout), Ok(path));
        }
    }

    #[test]
    fn a_slice_lies_in_the_slices_that_its_name_tells(parts in proptest::collection::vec("[a-z_]{1,5}", 1..6)) {
        let unit = format!("{}.slice", parts.join("-"));
        let path = expand_slice(&unit).unwrap();
        let levels: Vec<&str> = path.split('/').collect();
        prop_assert_eq!(levels.len(), parts.len());
        for (index, level) in levels.iter().enumerate() {
            prop_assert_eq!(level, &format!("{}.slice", parts[..=index].join("-")));
        }
    }
}
