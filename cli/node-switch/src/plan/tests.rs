use super::*;
use crate::discover::{INSTANCE_CONFIGURATION, KUBEADM_FLAGS, discover};
use crate::testing::MemoryFiles;

const UNIT: &str = "/etc/systemd/system/kubelet.service";
const RUNTIME: &str = "unix:///run/containerd/containerd.sock";
const PROXY: &str = "unix:///run/koord-runtimeproxy/runtimeproxy.sock";

fn planned(files: &MemoryFiles, version: Option<Version>) -> Result<Vec<Edit>, PlanError> {
    let found = discover(files, &[], "n", None).unwrap();
    let runtime = found.endpoint.clone().unwrap();
    let target = Target { proxy: runtime.proxy(), runtime, version };
    plan(files, &found, &target)
}

/// What the files are after the plan, without the kubelet's drop-in.
fn after(files: &[(&str, &str)]) -> Vec<(String, String)> {
    edits_of(planned(&MemoryFiles::of(files), Some(Version { major: 1, minor: 34 })).unwrap())
}

fn edits_of(edits: Vec<Edit>) -> Vec<(String, String)> {
    let drop_in = |edit: &Edit| edit.path.ends_with(DROP_IN);
    assert_eq!(edits.iter().filter(|edit| drop_in(edit)).count(), 1, "{edits:?}");
    let others = edits.into_iter().filter(|edit| !drop_in(edit));
    others.map(|edit| (edit.path.display().to_string(), edit.after.text)).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn the_place_that_sets_it_changes_and_every_place_of_kubeadm() {
    let unit = "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nExecStart=/k --config=/k.yaml $KUBELET_KUBEADM_ARGS\n";
    let flags_file = format!("KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint={RUNTIME} --x=y\"\n");
    // Another spelling of the same socket.
    let config = "# mine\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: /var/run/containerd/containerd.sock # c\n";
    let instance = format!("containerRuntimeEndpoint: \"{RUNTIME}\"\n");
    let expected = [
        ("/k.yaml", format!("# mine\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: {PROXY} # c\n")),
        (INSTANCE_CONFIGURATION, format!("containerRuntimeEndpoint: {PROXY}\n")),
        (KUBEADM_FLAGS, format!("KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint={PROXY} --x=y\"\n")),
    ];
    let files = [
        (UNIT, unit),
        (KUBEADM_FLAGS, &flags_file),
        ("/k.yaml", config),
        (INSTANCE_CONFIGURATION, &instance),
    ];
    assert_eq!(after(&files), pairs(&expected.each_ref().map(|(path, text)| (*path, text.as_str()))));
}

#[test]
fn image_services_of_their_own_stay() {
    let unit = "[Service]\nExecStart=/k --config=/k.yaml\n";
    let with = |image: &str| {
        let text = format!("imageServiceEndpoint: {image}\ncontainerRuntimeEndpoint: {RUNTIME}\n");
        after(&[(UNIT, unit), ("/k.yaml", &text)]).remove(0).1
    };
    assert_eq!(with(RUNTIME), format!("imageServiceEndpoint: {PROXY}\ncontainerRuntimeEndpoint: {PROXY}\n"));
    let other = "unix:///run/images.sock";
    assert_eq!(with(other), format!("imageServiceEndpoint: {other}\ncontainerRuntimeEndpoint: {PROXY}\n"));
}

#[test]
fn units_of_the_administrator_are_edited_and_those_of_packages_are_not() {
    let unit =
        format!("[Service]\nExecStart=/k --a \\\n  --container-runtime-endpoint={RUNTIME} \\\n  --b\n");
    let edited = unit.replace(RUNTIME, PROXY);
    assert_eq!(after(&[(UNIT, &unit)]), pairs(&[(UNIT, &edited)]));

    let head = "# Made by `koordctl node enable`; `koordctl node disable` removes it.\n# As in ";
    let of_package = "/usr/lib/systemd/system/kubelet.service";
    let over = format!(
        "{head}{of_package}, with the proxy's endpoint.\n[Service]\nExecStart=\nExecStart=/k --a \\\n  \
         --container-runtime-endpoint={PROXY} \\\n  --b\n"
    );
    let path = "/etc/systemd/system/kubelet.service.d/90-koord-endpoint.conf";
    assert_eq!(after(&[(of_package, &unit)]), pairs(&[(path, &over)]));

    let late = "/usr/lib/systemd/system/kubelet.service.d/99-args.conf";
    let environment = format!("[Service]\nEnvironment=\"X=--container-runtime-endpoint={RUNTIME}\" Y=1\n");
    let over = format!(
        "{head}{late}, with the proxy's endpoint.\n[Service]\nEnvironment=\"X=--container-runtime-endpoint={PROXY}\" Y=1\n"
    );
    assert_eq!(
        after(&[(UNIT, "[Service]\nExecStart=/k $X\n"), (late, &environment)]),
        pairs(&[("/etc/systemd/system/kubelet.service.d/zz-koord-endpoint.conf", &over)])
    );
    let too_late = "/usr/lib/systemd/system/kubelet.service.d/zzzzz.conf";
    let files = MemoryFiles::of(&[(UNIT, "[Service]\nExecStart=/k $X\n"), (too_late, &environment)]);
    assert!(
        matches!(planned(&files, None), Err(PlanError::Override { path }) if path == Path::new(too_late))
    );
}

#[test]
fn an_endpoint_that_is_nowhere_is_added() {
    let with_file = "[Service]\nExecStart=/k --config=/k.yaml\n";
    assert_eq!(
        after(&[(UNIT, with_file), ("/k.yaml", "a: 1\n")]),
        pairs(&[("/k.yaml", &format!("a: 1\ncontainerRuntimeEndpoint: {PROXY}\n"))])
    );
    let with_variable =
        "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/k $KUBELET_EXTRA_ARGS\n";
    assert_eq!(
        after(&[(UNIT, with_variable), ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--v=2\n")]),
        pairs(&[(
            "/etc/default/kubelet",
            &format!("KUBELET_EXTRA_ARGS=\"--v=2 --container-runtime-endpoint={PROXY}\"\n")
        )])
    );
    let bare = after(&[(UNIT, "[Service]\nExecStart=/k --v=2\n")]);
    assert_eq!(bare.len(), 1);
    assert!(
        bare[0]
            .1
            .ends_with(&format!("ExecStart=\nExecStart=/k --v=2 --container-runtime-endpoint={PROXY}\n")),
        "{bare:?}"
    );
    // The file has that key from 1.27 on only.
    let files = MemoryFiles::of(&[(UNIT, with_file), ("/k.yaml", "a: 1\n")]);
    let old = edits_of(planned(&files, Some(Version { major: 1, minor: 26 })).unwrap());
    assert!(old[0].0.ends_with("90-koord-endpoint.conf"), "{old:?}");
}

#[test]
fn cri_o_keeps_the_end_of_its_path() {
    let unit = "[Service]\nExecStart=/k --container-runtime-endpoint=unix:///var/run/crio/crio.sock\n";
    let proxy = "/run/koord-runtimeproxy/run/crio/crio.sock";
    let head = "# Made by `koordctl node enable`; `koordctl node disable` removes it.\n";
    assert_eq!(
        after(&[(UNIT, unit), (PROXY_FLAGS_FILE, "# flags\nKOORD_RUNTIME_PROXY_FLAGS=\"--v=4\"\n")]),
        pairs(&[
            (
                PROXY_FLAGS_FILE,
                &format!(
                    "# flags\nKOORD_RUNTIME_PROXY_FLAGS=\"--v=4 --remote-runtime-service-endpoint=/var/run/crio/crio.sock \
                     --koord-runtimeproxy-endpoint={proxy}\"\n"
                )
            ),
            (
                "/etc/systemd/system/koord-runtime-proxy.socket.d/20-koord-endpoint.conf",
                &format!(
                    "{head}# The kubelet takes its statistics as with CRI-O only if its endpoint ends as CRI-O's does.\n\
                     [Socket]\nListenStream=\nListenStream={proxy}\n"
                )
            ),
            (UNIT, &format!("[Service]\nExecStart=/k --container-runtime-endpoint=unix://{proxy}\n")),
        ])
    );
}

#[test]
fn other_runtimes_are_waited_for_at_boot() {
    let unit = "[Service]\nExecStart=/k --container-runtime-endpoint=unix:///run/cri-dockerd.sock\n";
    let planned = after(&[(UNIT, unit)]);
    assert_eq!(
        planned[..2],
        pairs(&[
            (
                PROXY_FLAGS_FILE,
                "KOORD_RUNTIME_PROXY_FLAGS=\"--remote-runtime-service-endpoint=/run/cri-dockerd.sock\"\n"
            ),
            (
                "/etc/systemd/system/koord-runtime-proxy.service.d/20-koord-runtime.conf",
                "# Made by `koordctl node enable`; `koordctl node disable` removes it.\n[Unit]\nAfter=cri-docker.service\n"
            ),
        ])
    );
}

#[test]
fn the_shipped_unit_is_ordered_after_the_usual_runtimes() {
    let text = include_str!("../../../../packaging/systemd/koord-runtime-proxy.service");
    let after: Vec<String> = settings(text)
        .into_iter()
        .filter(|setting| setting.key == "After")
        .flat_map(|setting| flags::words(&setting.value))
        .collect();
    for unit in ORDERED {
        assert!(after.iter().any(|name| name == unit), "{unit} in {after:?}");
    }
    let socket = include_str!("../../../../packaging/systemd/koord-runtime-proxy.socket");
    let listen = settings(socket).into_iter().find(|setting| setting.key == "ListenStream").unwrap();
    assert_eq!(listen.value, PROXY_SOCKET);
    let command = settings(text).into_iter().find(|setting| setting.key == "ExecStart").unwrap();
    assert!(command.value.starts_with(PROXY_PROGRAM), "{}", command.value);
    // Read by the program or by systemd.
    let read = settings(text).into_iter().filter(|setting| setting.value.contains(PROXY_FLAGS_FILE)).count();
    assert!(read > 0, "{text}");
}

#[test]
fn k3s_gets_an_argument_or_another_endpoint() {
    let unit = ("/etc/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n");
    let flags_text = "KOORD_RUNTIME_PROXY_FLAGS=\"--remote-runtime-service-endpoint=/run/k3s/containerd/containerd.sock\"\n";
    let embedded = after(&[unit, (PROXY_FLAGS_FILE, "KOORD_RUNTIME_PROXY_FLAGS=\n")]);
    assert_eq!(
        embedded,
        pairs(&[
            (PROXY_FLAGS_FILE, flags_text),
            (
                "/etc/rancher/k3s/config.yaml.d/90-koord-runtime-proxy.yaml",
                &format!(
                    "# Made by `koordctl node enable`; `koordctl node disable` removes it.\nkubelet-arg+:\n  - \
                     container-runtime-endpoint={PROXY}\n"
                )
            ),
        ])
    );
    let config = "/etc/rancher/k3s/config.yaml";
    let external = format!("a: 1\ncontainer-runtime-endpoint: {RUNTIME}\n");
    assert_eq!(after(&[unit, (config, &external)]), pairs(&[(config, &external.replace(RUNTIME, PROXY))]));
    let argument = format!("kubelet-arg: [\"container-runtime-endpoint={RUNTIME}\", 'v=2']\n");
    assert_eq!(after(&[unit, (config, &argument)]), pairs(&[(config, &argument.replace(RUNTIME, PROXY))]));
}

#[test]
fn a_second_plan_has_nothing_to_do() {
    let unit = format!("[Service]\nExecStart=/k --container-runtime-endpoint={RUNTIME}\n");
    let mut files = MemoryFiles::of(&[(UNIT, &unit)]);
    let found = discover(&files, &[], "n", None).unwrap();
    let runtime = found.endpoint.clone().unwrap();
    let target = Target { proxy: runtime.proxy(), runtime, version: None };
    for edit in plan(&files, &found, &target).unwrap() {
        files.0.insert(edit.path, edit.after);
    }
    let found = discover(&files, &[], "n", None).unwrap();
    assert!(found.is_through_proxy());
    assert_eq!(plan(&files, &found, &target).unwrap(), vec![]);
}

#[test]
fn flags_go_into_variables() {
    for (text, expected) in [
        ("", "V=\"--f=x\"\n"),
        ("A=1", "A=1\nV=\"--f=x\"\n"),
        ("V=\n", "V=\"--f=x\"\n"),
        ("V=\"\"\n", "V=\"--f=x\"\n"),
        ("V='--a'\n", "V='--a --f=x'\n"),
        ("V=--a\nW=1\n", "V=\"--a --f=x\"\nW=1\n"),
        ("V=\"--f=old --a\"\n", "V=\"--f=x --a\"\n"),
        ("# V=1\nV=--f old\n", "# V=1\nV=--f x\n"),
        ("V=1\nV=2\n", "V=1\nV=\"2 --f=x\"\n"),
    ] {
        let changed = with_flag(text, "V", "f", "x");
        assert_eq!(changed, expected, "{text:?}");
        assert_eq!(flags::value(&variable_words(&changed, "V"), "f"), Some("x"));
    }
}
