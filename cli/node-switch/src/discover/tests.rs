use super::*;
use crate::testing::MemoryFiles;

const UNIT: &str = "/etc/systemd/system/kubelet.service";

fn found(files: &[(&str, &str)]) -> Discovery {
    discover(&MemoryFiles::of(files), &[], "Node-1", None).unwrap()
}

fn endpoint(found: &Discovery) -> &str {
    found.endpoint.as_ref().map_or("", Endpoint::as_str)
}

#[test]
fn versions() {
    let version = |major, minor| Some(Version { major, minor });
    for (text, expected) in [
        ("Kubernetes v1.34.4\n", version(1, 34)),
        ("k3s version v1.31.2+k3s1 (6da20424)\ngo version go1.22.8", version(1, 31)),
        ("Kubernetes v1.37.0-alpha.1", version(1, 37)),
        ("Kubernetes", None),
        ("version 1.2", None),
    ] {
        assert_eq!(Version::parse(text), expected, "{text:?}");
    }
    assert!(Version { major: 1, minor: 9 } < Version::OLDEST);
    assert!(Version { major: 2, minor: 0 } > Version::ENDPOINT_IN_FILE);
}

#[test]
fn a_flag_beats_drop_ins_and_these_the_file() {
    let unit =
        "[Service]\nExecStart=/usr/bin/kubelet --config=/k.yaml --config-dir=/k.d $X\nEnvironmentFile=/x\n";
    let mut files = vec![(UNIT, unit), ("/k.yaml", "containerRuntimeEndpoint: unix:///run/file.sock\n")];
    assert_eq!(endpoint(&found(&files)), "/run/file.sock");
    files.push(("/k.d/20-b.conf", "containerRuntimeEndpoint: unix:///run/second.sock\n"));
    files.push(("/k.d/10-a.conf", "containerRuntimeEndpoint: unix:///run/first.sock\nhealthzPort: 1\n"));
    files.push(("/k.d/30-c.yaml", "containerRuntimeEndpoint: unix:///run/no.sock\n"));
    let with_drop_ins = found(&files);
    assert_eq!(endpoint(&with_drop_ins), "/run/second.sock");
    assert_eq!(with_drop_ins.set_by, Some("/k.d/20-b.conf".into()));
    assert_eq!(with_drop_ins.health.as_deref(), Some("127.0.0.1:1"));
    files.push(("/k.d/25-inner/a.conf", "containerRuntimeEndpoint: unix:///run/inner.sock\n"));
    assert_eq!(endpoint(&found(&files)), "/run/inner.sock");
    files.push(("/k.d/26.conf", "containerRuntimeEndpoint: null\n"));
    let default = found(&files);
    assert_eq!((endpoint(&default), &default.set_by), (KUBELET_DEFAULT, &None));
    files.push(("/x", "X=--container-runtime-endpoint=unix:///run/flag.sock\n"));
    let with_flag = found(&files);
    assert_eq!(endpoint(&with_flag), "/run/flag.sock");
    assert_eq!(with_flag.set_by, Some("/x".into()));
    assert_eq!(with_flag.places.len(), 5);
    assert_eq!(with_flag.mistakes, Vec::<String>::new());
}

#[test]
fn without_any_setting_it_is_the_default() {
    let nothing =
        found(&[(UNIT, "[Service]\nExecStart=/usr/bin/kubelet --config=/k.yaml\n"), ("/k.yaml", "")]);
    assert_eq!(endpoint(&nothing), KUBELET_DEFAULT);
    assert_eq!((nothing.set_by, nothing.places), (None, vec![]));
}

#[test]
fn health_checks_and_names() {
    let unit = |flags: &str| format!("[Service]\nExecStart=/k --config /k.yaml {flags}\n");
    let with = |flags: &str, file: &str| found(&[(UNIT, unit(flags).as_str()), ("/k.yaml", file)]);
    for (flags, file, health) in [
        ("", "", Some("127.0.0.1:10248")),
        ("", "healthzBindAddress: 0.0.0.0\nhealthzPort: 9\n", Some("127.0.0.1:9")),
        ("--healthz-port 0", "healthzPort: 9\n", None),
        ("--healthz-bind-address=::1", "", Some("[::1]:10248")),
        ("", "healthzPort: 0\n", None),
    ] {
        assert_eq!(with(flags, file).health.as_deref(), health, "{flags} {file}");
    }
    let node = |flags: &str| with(flags, "").node.map(|node| (node.kubeconfig, node.name));
    assert_eq!(node(""), None);
    assert_eq!(node("--kubeconfig=/c"), Some(("/c".into(), "node-1".to_owned())));
    assert_eq!(node("--kubeconfig=/c --hostname-override=Other"), Some(("/c".into(), "other".to_owned())));
    assert_eq!(with("", "cgroupDriver: systemd\n").cgroup_driver.as_deref(), Some("systemd"));
}

#[test]
fn kubeadm_s_places_are_all_seen() {
    let unit = "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nExecStart=/k --config=/k.yaml $KUBELET_KUBEADM_ARGS\n";
    let runtime = "unix:///run/containerd/containerd.sock";
    let flags_file = format!("KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint={runtime}\"\n");
    let instance = format!("containerRuntimeEndpoint: {runtime}\n");
    let seen = found(&[
        (UNIT, unit),
        (KUBEADM_FLAGS, flags_file.as_str()),
        ("/k.yaml", instance.as_str()),
        (INSTANCE_CONFIGURATION, instance.as_str()),
    ]);
    let kinds: Vec<PlaceKind> = seen.places.iter().map(|place| place.kind.clone()).collect();
    assert_eq!(kinds, [PlaceKind::Environment, PlaceKind::Configuration, PlaceKind::Instance]);
    assert_eq!(seen.set_by, Some(KUBEADM_FLAGS.into()));
    // Not in the unit, and an upgrade writes it all the same.
    let unused = found(&[(UNIT, "[Service]\nExecStart=/k\n"), (KUBEADM_FLAGS, flags_file.as_str())]);
    assert_eq!(unused.places.len(), 1);
}

#[test]
fn a_kubelet_without_a_unit() {
    let process = Process {
        pid: 7,
        arguments: ["/opt/kubelet", "--config=/k.yaml", "--container-runtime-endpoint", "unix:///run/a.sock"]
            .map(str::to_owned)
            .to_vec(),
    };
    let files = MemoryFiles::of(&[("/k.yaml", "a: 1\n")]);
    let seen = discover(&files, &[process], "n", None).unwrap();
    assert_eq!((seen.unit.is_none(), endpoint(&seen)), (true, "/run/a.sock"));
    assert_eq!(seen.running, Endpoint::parse("/run/a.sock"));
    assert_eq!(seen.mistakes.len(), 1, "{:?}", seen.mistakes);
    assert!(seen.mistakes[0].contains("comes from no unit file"));
}

#[test]
fn all_mistakes_are_told() {
    let unit =
        "[Service]\nExecStart=/k --config=/missing --config-dir=/k.d --container-runtime-endpoint=tcp://x\n";
    let seen = found(&[(UNIT, unit), ("/k.d/a.conf", "a: [\n"), (INSTANCE_CONFIGURATION, "- a\n")]);
    assert_eq!(seen.mistakes.len(), 4, "{:?}", seen.mistakes);
}

#[test]
fn k3s() {
    let unit = ("/etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent\n");
    let embedded = found(&[unit, ("/etc/rancher/k3s/config.yaml", "node-name: Edge\n")]);
    assert_eq!(embedded.flavor, Flavor::Rancher("k3s"));
    assert!(embedded.is_embedded());
    assert_eq!(endpoint(&embedded), "/run/k3s/containerd/containerd.sock");
    let node = embedded.node.unwrap();
    assert_eq!(node.name, "edge");
    assert_eq!(node.kubeconfig, Path::new("/var/lib/rancher/k3s/agent/kubelet.kubeconfig"));

    let external = found(&[
        unit,
        (
            "/etc/rancher/k3s/config.yaml",
            "container-runtime-endpoint: unix:///run/containerd/containerd.sock\n",
        ),
    ]);
    assert!(!external.is_embedded());
    assert_eq!(endpoint(&external), KUBELET_DEFAULT);

    let argument = found(&[
        unit,
        (
            "/etc/rancher/k3s/config.yaml.d/90-koord-runtime-proxy.yaml",
            "kubelet-arg+:\n  - container-runtime-endpoint=unix:///run/koord-runtimeproxy/runtimeproxy.sock\n",
        ),
    ]);
    assert!(argument.is_through_proxy());
    assert_eq!(found(&[unit, ("/etc/rancher/k3s/config.yaml", "docker: true\n")]).mistakes.len(), 1);
}
