use std::time::Duration;

use koord_extension::gates::Gate;

use super::table::FLAGS;
use super::*;

fn arguments(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn surroundings() -> Surroundings {
    Surroundings { node_name: "node-1".to_owned(), mode: AgentMode::Container }
}

fn config(line: &str) -> Config {
    match command(arguments(line), &surroundings()) {
        Ok(Command::Serve(config)) => *config,
        other => panic!("{line}: {other:?}"),
    }
}

fn mistakes(line: &str) -> Vec<String> {
    match command(arguments(line), &surroundings()) {
        Err(mistakes) => mistakes.0.iter().map(ToString::to_string).collect(),
        Ok(command) => panic!("{line}: {command:?}"),
    }
}

#[test]
fn defaults_are_koordinators() {
    let config = config("");
    assert_eq!(config.node_name, "node-1");
    assert_eq!(config.process.address.map(|address| address.port()), Some(9316));
    assert_eq!(config.process.profile_address, None);
    assert_eq!((config.process.requests_per_second, config.process.request_burst), (20, 30));
    assert_eq!(config.collect.interval, Duration::from_secs(1));
    assert_eq!(config.collect.outdated, Duration::from_secs(10));
    assert_eq!(config.collect.cpi_interval, Duration::from_secs(60));
    assert_eq!(config.collect.cpi_window, Duration::from_secs(10));
    assert_eq!(config.collect.psi_interval, Duration::from_secs(10));
    assert_eq!(config.collect.pod_metrics, PodMetrics::Container);
    assert_eq!(config.store.retention, Duration::from_secs(12 * 3600));
    assert_eq!(config.store.limit.get(), 104_857_600);
    assert_eq!(config.paths.cgroup, std::path::Path::new("/host-cgroup/"));
    assert_eq!(config.proxy, ProxyEndpoint::Auto("/host-run/koord-runtimeproxy/admin.sock".into()));
    assert_eq!(config.kubelet.address_type, AddressType::InternalIp);
    assert_eq!(config.kubelet.sync_interval, Duration::from_secs(10));
    assert_eq!(config.kubelet.timeout, Duration::from_secs(3));
    assert_eq!(config.kubelet.read_only_port, None);
    assert_eq!(config.kubelet.verify, KubeletVerify::Off);
    assert!(config.kubelet.reads_configuration);
    assert!(config.report.node_metric && config.report.node_topology);
    assert_eq!(config.prediction.cold_start, Duration::from_secs(24 * 3600));
    assert_eq!(config.prediction.memory_half_life, Duration::from_secs(24 * 3600));
    assert_eq!(config.prediction.cpu_half_life, Duration::from_secs(12 * 3600));
    assert_eq!(config.prediction.safety_margin_percent, 10);
    assert_eq!(config.prediction.least_samples, 60);
    assert_eq!(config.audit.disk_space.get(), 16_777_216);
    assert_eq!(config.audit.events_limit, 2048);
    assert!(config.gates.enabled(Gate::NodeTopologyReport) && !config.gates.enabled(Gate::CpiCollector));
    assert!(config.ignored.is_empty());
}

#[test]
fn on_the_host_paths_are_the_hosts() {
    let host = Surroundings { node_name: "n".to_owned(), mode: AgentMode::from_text("hostMode") };
    let Ok(Command::Serve(config)) = command(arguments(""), &host) else { panic!("refused") };
    assert_eq!(config.paths.cgroup, std::path::Path::new("/sys/fs/cgroup/"));
    assert_eq!(config.paths.sys, std::path::Path::new("/sys/"));
    assert_eq!(config.proxy, ProxyEndpoint::Auto("/run/koord-runtimeproxy/admin.sock".into()));
    assert!(!config.kubelet.is_pod);
    assert_eq!(AgentMode::from_text("dsMode"), AgentMode::Container);
    assert_eq!(AgentMode::from_text(""), AgentMode::Container);
}

#[test]
fn forms_of_go() {
    for line in ["--addr=:1", "-addr=:1", "--addr :1", "-addr :1"] {
        assert_eq!(config(line).process.address.map(|address| address.port()), Some(1), "{line}");
    }
    assert!(!config("--enable-node-metric-report=false").report.node_metric);
    assert!(config("--enable-node-metric-report=T").report.node_metric);
    assert!(config("--enable-node-metric-report").report.node_metric);
    // A switch does not take the next word.
    assert_eq!(
        mistakes("--enable-node-metric-report false"),
        ["\"false\": unexpected argument; the commands are validate, and metrics dump"]
    );
    assert!(config("--v=1 --v=4").process.verbosity == 4, "the last one counts");
}

#[test]
fn the_manifest_of_koordinator_is_understood() {
    let config = config(
        "-addr=:9316 -cgroup-root-dir=/host-cgroup/ -feature-gates=AllBeta=true,AllAlpha=false,BECPUSuppress=true \
         -runtime-hooks-network=unix -runtime-hooks-addr=/host-var-run-koordlet/koordlet.sock --logtostderr=true --v=4",
    );
    let ignored: Vec<&str> = config.ignored.iter().map(|(name, _)| *name).collect();
    assert_eq!(ignored, ["runtime-hooks-network", "runtime-hooks-addr", "logtostderr"]);
}

#[test]
fn a_sampling_interval_below_a_second_is_refused() {
    assert_eq!(
        mistakes("--collect-res-used-interval=500ms"),
        ["--collect-res-used-interval=500ms: too short; accepted: a duration of at least 1s"]
    );
    assert_eq!(config("--collect-res-used-interval=1s").collect.interval, Duration::from_secs(1));
}

#[test]
fn every_mistake_is_told_at_once() {
    let told =
        mistakes("--adr=:1 --kube-api-qps=0 --kubelet-sync-timeout=3 --feature-gates=No=true,X extra --v");
    assert_eq!(told.len(), 7, "{told:#?}");
    assert_eq!(told[0], "--adr: unknown flag; did you mean --addr?");
    assert!(told.iter().any(|line| line.starts_with("--v: needs a value")), "{told:#?}");
    assert!(told.iter().any(|line| line.starts_with("--kube-api-qps=0: out of range")), "{told:#?}");
    assert!(told.iter().any(|line| line.contains("missing unit after \"3\"")), "{told:#?}");
    assert!(told.iter().any(|line| line.contains("feature gate No does not exist")), "{told:#?}");
}

#[test]
fn a_node_without_a_name_is_refused() {
    let nameless = Surroundings::default();
    for line in ["", "validate"] {
        assert_eq!(command(arguments(line), &nameless), Err(Mistakes(vec![NO_NODE_NAME])), "{line}");
    }
    let Err(Mistakes(both)) = command(arguments("--v=x"), &nameless) else { panic!("accepted") };
    assert_eq!(both.len(), 2);
    // Whoever asks a running agent need not know the node.
    assert!(matches!(command(arguments("metrics dump"), &nameless), Ok(Command::Dump { .. })));
}

#[test]
fn commands() {
    let ask = |line: &str| command(arguments(line), &surroundings()).expect(line);
    assert!(matches!(ask("validate --v=3"), Command::Validate(_)));
    assert!(matches!(ask("--help --nonsense"), Command::Help));
    assert!(matches!(ask("-h"), Command::Help));
    assert!(matches!(ask("--version"), Command::Version));
    let Command::Dump { explain, object, .. } = ask("metrics dump --explain pod/") else { panic!("no dump") };
    assert!(explain);
    assert_eq!(object, "pod/");
    assert_eq!(mistakes("metrics").len(), 1);
    assert_eq!(mistakes("validate again").len(), 1);
}

#[test]
fn addresses_of_the_kubelet() {
    assert_eq!(config("--kubelet-preferred-address-type=Foo").kubelet.address_type, AddressType::InternalIp);
    assert_eq!(
        config("--kubelet-preferred-address-type=ExternalDNS").kubelet.address_type,
        AddressType::ExternalDns
    );
    assert_eq!(config("--kubelet-insecure-tls").kubelet.read_only_port, Some(10_255));
    assert_eq!(
        config("--kubelet-verify=ca --kubelet-ca-file=/x").kubelet.verify,
        KubeletVerify::Authorities(Some("/x".into()))
    );
}

#[test]
fn the_topology_interval_switches_the_report() {
    assert!(config("--node-topology-sync-interval=1s").report.node_topology);
    assert!(!config("--node-topology-sync-interval=0").report.node_topology);
    assert!(!config("--node-topology-sync-interval=-1s").report.node_topology);
    assert_eq!(mistakes("--node-topology-sync-interval=soon").len(), 1);
}

#[test]
fn the_proxys_socket() {
    assert_eq!(config("--proxy-endpoint=").proxy, ProxyEndpoint::Off);
    assert_eq!(config("--proxy-endpoint=unix:///a.sock").proxy, ProxyEndpoint::Socket("/a.sock".into()));
    assert_eq!(mistakes("--proxy-endpoint=a.sock").len(), 1);
}

#[test]
fn names_are_unique_and_the_defaults_are_accepted() {
    let mut names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FLAGS.len());
    for mode in [AgentMode::Container, AgentMode::Host] {
        // Giving every default is the same as giving none.
        let line: Vec<OsString> = FLAGS
            .iter()
            .filter(|flag| !matches!(flag.name, "help" | "version"))
            .map(|flag| format!("--{}={}", flag.name, flag.default(mode)).into())
            .collect();
        let surroundings = Surroundings { node_name: "n".to_owned(), mode };
        let Ok(Command::Serve(given)) = command(line, &surroundings) else { panic!("refused") };
        let Ok(Command::Serve(none)) = command([], &surroundings) else { panic!("refused") };
        assert_eq!(Config { ignored: Vec::new(), ..*given }, *none);
    }
}

#[test]
fn help_names_every_flag() {
    let help = help();
    for flag in FLAGS {
        assert!(help.contains(&format!("  --{}", flag.name)), "{}", flag.name);
    }
}
