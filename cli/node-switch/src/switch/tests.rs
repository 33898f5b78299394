use super::*;
use crate::discover::{INSTANCE_CONFIGURATION, KUBEADM_FLAGS};
use crate::plan::{DROP_IN, PROXY_FLAGS_FILE, PROXY_PROGRAM};
use crate::system::{CommandResult, NodeView};
use crate::testing::{PlayedNode, Snapshot};
use proptest::prelude::*;

const RUNTIME: &str = "unix:///run/containerd/containerd.sock";
const PROXY: &str = "unix:///run/koord-runtimeproxy/runtimeproxy.sock";
const KUBELET: &str = "kubelet.service";
const UNIT: &str = "/etc/systemd/system/kubelet.service";
const OF_PACKAGE: &str = "/usr/lib/systemd/system/kubelet.service";
const KUBEADM_UNIT: &str = "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n";
const WITH_FILE: &str = "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml\n";
const CONFIGURATION: &str = "/var/lib/kubelet/config.yaml";

fn node_view() -> Option<NodeView> {
    Some(NodeView { is_ready: true, ready_heartbeat: None, cri_socket: Some(RUNTIME.to_owned()) })
}

/// Every form in which a kubelet may be configured.
fn forms() -> Vec<(&'static str, PlayedNode)> {
    let new = "Kubernetes v1.37.2";
    let not_annotated = node_view().map(|view| NodeView { cri_socket: None, ..view });
    let start =
        |files: &[(&str, &str)], version, node| PlayedNode::start(files, KUBELET, RUNTIME, version, node);
    let flags_file = format!("KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint={RUNTIME} --x=y\"\n");
    let key = format!("# mine\ncontainerRuntimeEndpoint: {RUNTIME} # here\nhealthzPort: 10248\n");
    let json = format!(
        "{{\n  \"kind\": \"KubeletConfiguration\",\n  \"containerRuntimeEndpoint\": \"{RUNTIME}\"\n}}\n"
    );
    let flag =
        format!("[Service]\nExecStart=/usr/bin/kubelet \\\n  --container-runtime-endpoint={RUNTIME}\n");
    let old_flag = format!(
        "[Service]\nExecStart=/usr/bin/kubelet --container-runtime=remote --container-runtime-endpoint={RUNTIME}\n"
    );
    let extra = format!("KUBELET_EXTRA_ARGS=--container-runtime-endpoint={RUNTIME}\n");
    let crio =
        "[Service]\nExecStart=/usr/bin/kubelet --container-runtime-endpoint=unix:///var/run/crio/crio.sock\n";
    let k3s = ("/etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent\n");
    let external = format!("container-runtime-endpoint: {RUNTIME}\n");
    let empty = (CONFIGURATION, "a: 1\n");
    vec![
        (
            "flags of kubeadm",
            start(&[(UNIT, KUBEADM_UNIT), (KUBEADM_FLAGS, &flags_file), empty], new, not_annotated),
        ),
        (
            "kubeadm with everything",
            start(
                &[
                    (UNIT, KUBEADM_UNIT),
                    (KUBEADM_FLAGS, &flags_file),
                    (CONFIGURATION, &key),
                    (INSTANCE_CONFIGURATION, &key),
                    (PROXY_FLAGS_FILE, "KOORD_RUNTIME_PROXY_FLAGS=\"\"\n"),
                ],
                new,
                node_view(),
            ),
        ),
        ("configuration file", start(&[(UNIT, WITH_FILE), (CONFIGURATION, &key)], new, None)),
        (
            "configuration in JSON",
            start(&[(UNIT, WITH_FILE), (CONFIGURATION, &json)], "Kubernetes v1.34.4", None),
        ),
        ("default endpoint", start(&[(UNIT, WITH_FILE), empty], new, None)),
        (
            "drop-in directory",
            start(
                &[
                    (
                        UNIT,
                        "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --config-dir=/etc/k.d\n",
                    ),
                    empty,
                    ("/etc/k.d/10-a.conf", &key),
                ],
                new,
                None,
            ),
        ),
        ("flag in a unit", start(&[(UNIT, &flag)], new, None)),
        ("flag in a unit of a package", start(&[(OF_PACKAGE, &flag)], new, None)),
        ("flag of 1.23", start(&[(UNIT, &old_flag)], "Kubernetes v1.23.17", None)),
        (
            "extra flags",
            start(&[(OF_PACKAGE, KUBEADM_UNIT), empty, ("/etc/default/kubelet", &extra)], new, None),
        ),
        ("CRI-O", PlayedNode::start(&[(UNIT, crio)], KUBELET, "/var/run/crio/crio.sock", new, None)),
        (
            "k3s",
            PlayedNode::start(
                &[k3s],
                "k3s-agent.service",
                "/run/k3s/containerd/containerd.sock",
                "k3s version v1.31.2+k3s1",
                None,
            ),
        ),
        (
            "k3s with another runtime",
            PlayedNode::start(
                &[k3s, ("/etc/rancher/k3s/config.yaml", &external)],
                "k3s-agent.service",
                RUNTIME,
                "k3s version v1.31.2+k3s1",
                None,
            ),
        ),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Enable,
    Disable,
}

fn run_with(node: &PlayedNode, verb: Verb, options: Options) -> Result<Done, SwitchError> {
    let mut say = |_: &str| {};
    let mut switch = Switch::new(node, options, &mut say);
    match verb {
        Verb::Enable => switch.enable(),
        Verb::Disable => switch.disable(),
    }
}

fn run(node: &PlayedNode, verb: Verb) -> Result<Done, SwitchError> {
    run_with(node, verb, Options::default())
}

/// Runs to its end, and gives the number of changes.
fn complete(node: &PlayedNode, verb: Verb, form: &str) -> usize {
    node.revive(None);
    let done = run(node, verb).unwrap_or_else(|error| {
        let chain = koord_runtime::error_chain::Chain(&error).to_string();
        panic!("{form}: {verb:?}: {chain}")
    });
    assert_eq!(done.notes, Vec::<String>::new(), "{form}");
    node.changes.borrow().len()
}

fn state_of(node: &PlayedNode) -> &'static str {
    status(node, None).unwrap().state
}

#[test]
fn there_and_back_in_every_form() {
    for (form, node) in forms() {
        let before = node.snapshot();
        assert_eq!(state_of(&node), "disabled", "{form}");
        complete(&node, Verb::Enable, form);
        assert_eq!(state_of(&node), "enabled", "{form}");
        let enabled = node.snapshot();
        let kubelet = node.world.borrow().kubelet.clone().unwrap();
        assert_eq!(kubelet.kind(), crate::endpoint::Kind::Proxy, "{form}");
        let drop_in = format!("/etc/systemd/system/{}.d/{DROP_IN}", node.kubelet_unit);
        assert!(node.text(&drop_in).unwrap().contains("Wants=koord-runtime-proxy.service"), "{form}");
        if form == "kubeadm with everything" {
            let annotation = node.world.borrow().node.clone().and_then(|view| view.cri_socket);
            assert_eq!(annotation.as_deref(), Some(PROXY), "{form}");
        }
        // A second time nothing happens, with no change at all.
        assert_eq!(complete(&node, Verb::Enable, form), 0, "{form}");
        assert_eq!(node.snapshot(), enabled, "{form}");
        complete(&node, Verb::Disable, form);
        assert_eq!(node.snapshot(), before, "{form}");
        assert_eq!(state_of(&node), "disabled", "{form}");
        assert_eq!(complete(&node, Verb::Disable, form), 0, "{form}");
    }
}

/// The node after a run that was killed after `steps` changes.
fn killed(node: &PlayedNode, verb: Verb, steps: usize) -> PlayedNode {
    let node = node.clone();
    node.revive(Some(steps));
    let _killed = run(&node, verb);
    assert!(node.was_killed(), "{verb:?} has fewer than {steps} changes");
    node
}

fn ends_as(node: &PlayedNode, verb: Verb, expected: &Snapshot, context: &str) {
    let node = node.clone();
    complete(&node, verb, context);
    assert_eq!(&node.snapshot(), expected, "{context}, then {verb:?}");
}

#[test]
fn killed_after_each_step_the_second_run_ends_it() {
    for (form, node) in forms() {
        let before = node.snapshot();
        let enabled_node = node.clone();
        let steps = complete(&enabled_node, Verb::Enable, form);
        let enabled = enabled_node.snapshot();
        assert!(steps > 10, "{form}: {steps}");
        for step in 1..=steps {
            let node = killed(&node, Verb::Enable, step);
            let context = format!("{form}: enable killed after change {step} of {steps}");
            ends_as(&node, Verb::Enable, &enabled, &context);
            ends_as(&node, Verb::Disable, &before, &context);
        }
        let back = enabled_node.clone();
        let steps = complete(&back, Verb::Disable, form);
        for step in 1..=steps {
            let node = killed(&enabled_node, Verb::Disable, step);
            let context = format!("{form}: disable killed after change {step} of {steps}");
            ends_as(&node, Verb::Enable, &enabled, &context);
            ends_as(&node, Verb::Disable, &before, &context);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn killed_again_and_again(
        form in 0_usize..13, runs in proptest::collection::vec((any::<bool>(), 1_usize..40), 1..5), last in any::<bool>()
    ) {
        let (name, node) = forms().into_iter().nth(form).unwrap();
        let before = node.snapshot();
        let there = node.clone();
        complete(&there, Verb::Enable, name);
        let enabled = there.snapshot();
        for (enable, steps) in runs {
            node.revive(Some(steps));
            // It may come to its end before.
            let _ended = run(&node, if enable { Verb::Enable } else { Verb::Disable });
        }
        let (verb, expected) = if last { (Verb::Enable, &enabled) } else { (Verb::Disable, &before) };
        complete(&node, verb, name);
        prop_assert_eq!(&node.snapshot(), expected);
    }
}

#[test]
fn a_kubelet_that_does_not_come_up_is_put_back() {
    for (form, node) in forms() {
        let before = node.snapshot();
        let node = node.clone();
        node.kubelet_fails.set(true);
        node.revive(None);
        let error = run(&node, Verb::Enable).unwrap_err();
        let text = koord_runtime::error_chain::Chain(&error).to_string();
        assert!(matches!(error, SwitchError::RolledBack { .. }), "{form}: {text}");
        assert!(text.contains("has ended 3 times") && text.contains("last words"), "{form}: {text}");
        // Values of pods that were made meanwhile are gone too.
        assert_eq!(node.snapshot(), before, "{form}");
        // And killed on that way.
        let steps = node.changes.borrow().len();
        let (_, fresh) = forms().into_iter().find(|(name, _)| *name == form).unwrap();
        fresh.kubelet_fails.set(true);
        for step in (1..=steps).step_by(3) {
            let node = killed(&fresh, Verb::Enable, step);
            ends_as(&node, Verb::Disable, &before, &format!("{form}: failing enable killed after {step}"));
        }
    }
}

#[test]
fn a_proxy_that_is_not_ready_leaves_the_kubelet_alone() {
    let (form, node) = forms().swap_remove(0);
    let before = node.snapshot();
    let pid = node.world.borrow().units[KUBELET].pid;
    node.proxy_fails.set(true);
    let error = run(&node, Verb::Enable).unwrap_err();
    let text = koord_runtime::error_chain::Chain(&error).to_string();
    assert!(text.contains("not ready after 120 s: /readyz answers 503: backend_connected: false"), "{text}");
    assert_eq!(node.snapshot(), before, "{form}");
    assert_eq!(node.world.borrow().units[KUBELET].pid, pid, "the kubelet was not restarted");
}

#[test]
fn what_others_changed_is_not_written_over() {
    let (form, node) = forms().swap_remove(0);
    let before = node.snapshot();
    complete(&node, Verb::Enable, form);
    let mine = node.text(KUBEADM_FLAGS).unwrap().replace("--x=y", "--x=z");
    node.put(KUBEADM_FLAGS, &mine);
    node.revive(None);
    let error = run(&node, Verb::Disable).unwrap_err();
    assert!(
        matches!(&error, SwitchError::Changed { paths, .. } if *paths == [Path::new(KUBEADM_FLAGS)]),
        "{error}"
    );
    assert_eq!(node.changes.borrow().len(), 0);
    // Enabled it stays, and that is no reason to complain.
    assert_eq!(state_of(&node), "enabled");
    assert_eq!(complete(&node, Verb::Enable, form), 0);
    let forced = Options { is_forced: true, ..Options::default() };
    run_with(&node, Verb::Disable, forced).unwrap();
    assert_eq!(node.snapshot(), before);
}

#[test]
fn an_upgrade_that_restored_the_endpoint_is_drift() {
    let (form, node) = forms().swap_remove(0);
    complete(&node, Verb::Enable, form);
    // As kubeadm writes it, with another flag.
    let upgraded = format!("KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint={RUNTIME} --new\"\n");
    node.put(KUBEADM_FLAGS, &upgraded);
    let seen = status(&node, None).unwrap();
    assert_eq!((seen.state, seen.drift), ("drifted", vec![PathBuf::from(KUBEADM_FLAGS)]));
    let drifted = node.clone();
    complete(&node, Verb::Enable, form);
    assert_eq!(state_of(&node), "enabled");
    assert_eq!(node.text(KUBEADM_FLAGS), Some(upgraded.replace(RUNTIME, PROXY)));
    complete(&node, Verb::Disable, form);
    // The newer file is what was before the switch.
    assert_eq!(node.text(KUBEADM_FLAGS), Some(upgraded.clone()));
    // Without enabling again, there is nothing of the switch in it.
    complete(&drifted, Verb::Disable, form);
    assert_eq!(drifted.text(KUBEADM_FLAGS), Some(upgraded));
    assert_eq!(drifted.world.borrow().kubelet, Endpoint::parse(RUNTIME));
}

#[test]
fn a_proxy_that_was_stopped_is_started_again() {
    let (form, node) = forms().swap_remove(2);
    complete(&node, Verb::Enable, form);
    let enabled = node.snapshot();
    {
        let mut world = node.world.borrow_mut();
        world.proxy = None;
        world.units.get_mut("koord-runtime-proxy.service").unwrap().is_active = false;
    }
    assert_eq!(status(&node, None).unwrap().next, "the proxy does not run; `koordctl node enable` starts it");
    let pid = node.world.borrow().units[KUBELET].pid;
    // The kubelet is cut off until the proxy runs, which is not the switch's doing.
    node.is_watched.set(false);
    complete(&node, Verb::Enable, form);
    assert_eq!(node.snapshot(), enabled);
    assert_eq!(node.world.borrow().units[KUBELET].pid, pid);
}

#[test]
fn everything_in_the_way_is_said_at_once() {
    let unit = "[Service]\nExecStart=/usr/bin/kubelet --container-runtime=remote --container-runtime-endpoint=unix:///var/run/cri-resmgr/cri-resmgr.sock\n";
    let node = PlayedNode::start(
        &[(UNIT, unit)],
        KUBELET,
        "/var/run/cri-resmgr/cri-resmgr.sock",
        "Kubernetes v1.34.4",
        None,
    );
    let before = node.snapshot();
    *node.validate_says.borrow_mut() = CommandResult {
        code: Some(2),
        output: "ok: command line\nmistake: /etc/koord/node-slo.yaml: bad\n".to_owned(),
        complaints: String::new(),
    };
    node.free_bytes.set(10);
    node.is_root.set(false);
    node.world.borrow_mut().units.get_mut(KUBELET).unwrap().is_active = false;
    let error = run(&node, Verb::Enable).unwrap_err().to_string();
    for part in [
        "user: not root",
        "kubelet: kubelet.service is activating",
        "kubelet release: 1.34 does not know --container-runtime",
        "another proxy (CRI resource manager)",
        "validate` finds mistakes:\nmistake: /etc/koord/node-slo.yaml: bad",
        "room: 10 bytes are free",
        "nothing was changed",
    ] {
        assert!(error.contains(part), "{part:?} in {error}");
    }
    assert!(!error.contains("ok: command line"), "{error}");
    node.world.borrow_mut().units.get_mut(KUBELET).unwrap().is_active = true;
    assert_eq!(node.snapshot(), before);
    assert_eq!(node.changes.borrow().len(), 0);
}

#[test]
fn doubts_can_be_forced_and_mistakes_cannot() {
    let unit = "[Service]\nExecStart=/usr/bin/kubelet --container-runtime-endpoint=unix:///run/mine.sock\n";
    let node = PlayedNode::start(&[(UNIT, unit)], KUBELET, "/run/mine.sock", "Kubernetes v1.34.4", None);
    let error = run(&node, Verb::Enable).unwrap_err().to_string();
    assert!(error.contains("unix:///run/mine.sock is not the socket of a runtime that is known"), "{error}");
    let forced = Options { is_forced: true, ..Options::default() };
    let before = node.snapshot();
    run_with(&node, Verb::Enable, forced.clone()).unwrap();
    complete(&node, Verb::Disable, "forced");
    assert_eq!(node.snapshot(), before);
    node.world.borrow_mut().files.0.remove(Path::new(PROXY_PROGRAM));
    let error = run_with(&node, Verb::Enable, forced).unwrap_err().to_string();
    assert!(error.contains("/usr/bin/koord-runtime-proxy is not there"), "{error}");
}

#[test]
fn a_kubelet_that_others_set_to_the_proxy() {
    let unit = format!("[Service]\nExecStart=/usr/bin/kubelet --container-runtime-endpoint={PROXY}\n");
    let node = PlayedNode::start(&[(UNIT, &unit)], KUBELET, PROXY, "Kubernetes v1.34.4", None);
    assert_eq!(state_of(&node), "foreign");
    let error = run(&node, Verb::Enable).unwrap_err().to_string();
    assert!(error.contains("already by /etc/systemd/system/kubelet.service, not by this command"), "{error}");
    assert!(
        matches!(run(&node, Verb::Disable), Err(SwitchError::NotOurs(paths)) if paths == [Path::new(UNIT)])
    );
    assert_eq!(node.changes.borrow().len(), 0);
}

#[test]
fn previews_say_what_happens() {
    let (form, node) = forms().swap_remove(2);
    let mut say = |_: &str| {};
    let there = Switch::new(&node, Options::default(), &mut say).preview_enable().unwrap();
    assert!(there.is_possible(false));
    assert_eq!(there.differences.len(), 2);
    assert_eq!(
        there.differences[1],
        format!(
            "--- {CONFIGURATION}\n+++ {CONFIGURATION}\n@@ -1,3 +1,3 @@\n # mine\n-containerRuntimeEndpoint: {RUNTIME} # \
             here\n+containerRuntimeEndpoint: {PROXY} # here\n healthzPort: 10248\n"
        )
    );
    assert_eq!(
        there.commands,
        [
            "systemctl daemon-reload",
            "systemctl enable koord-runtime-proxy.socket koord-runtime-proxy.service",
            "systemctl start koord-runtime-proxy.socket koord-runtime-proxy.service",
            "systemctl restart kubelet.service",
        ]
    );
    assert_eq!(node.changes.borrow().len(), 0);
    complete(&node, Verb::Enable, form);
    let mut say = |_: &str| {};
    let again = Switch::new(&node, Options::default(), &mut say).preview_enable().unwrap();
    assert_eq!((again.differences.len(), again.commands.len()), (0, 0));
    node.revive(None);
    let mut say = |_: &str| {};
    let back = Switch::new(&node, Options::default(), &mut say).preview_disable().unwrap();
    assert!(
        back.differences
            .iter()
            .any(|text| text.contains(&format!("+containerRuntimeEndpoint: {RUNTIME} # here")))
    );
    assert_eq!(back.commands.first().map(String::as_str), Some("POST /restore"));
    assert_eq!(node.changes.borrow().len(), 0);
}
