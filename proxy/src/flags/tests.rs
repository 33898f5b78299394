use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::table::Kind;
use super::*;

fn run(arguments: &[&str]) -> Result<Command, Mistakes> {
    command(arguments.iter().map(OsString::from))
}

fn config(arguments: &[&str]) -> Config {
    match run(arguments) {
        Ok(Command::Serve(config)) => *config,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn mistakes(arguments: &[&str]) -> Vec<String> {
    match run(arguments) {
        Err(Mistakes(mistakes)) => mistakes.iter().map(ToString::to_string).collect(),
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn defaults_are_upstreams_and_ours() {
    let config = config(&[]);
    assert_eq!(config.listen.as_str(), "/var/run/koord-runtimeproxy/runtimeproxy.sock");
    assert_eq!(config.runtime.as_str(), "/var/run/containerd/containerd.sock");
    assert_eq!(config.image, None);
    assert_eq!(config.socket_mode, SocketMode::Inherit);
    assert_eq!(config.peer_check, PeerCheck::Off);
    let label = SkipLabel {
        key: "runtimeproxy.koordinator.sh/skip-hookserver".into(),
        value: "true".into(),
        namespaces: vec![],
    };
    assert_eq!(config.skip_label, label);
    assert_eq!(config.hook_config_dir, Path::new("/etc/runtime/hookserver.d"));
    assert_eq!(config.hook_timeout, Duration::from_secs(2));
    assert!((config.hook_deadline_share - 0.5).abs() < f64::EPSILON);
    assert_eq!(config.hook_trusted_uid, None);
    assert_eq!(config.backend_wait, Duration::from_secs(3));
    assert_eq!(config.max_message_bytes, 33_554_432);
    assert_eq!(config.relay_services, RelayServices::All);
    assert_eq!(config.state_dir.as_deref(), Some(Path::new("/run/koord-runtimeproxy/state")));
    assert_eq!(config.shutdown_grace, Duration::from_secs(10));
    assert_eq!(config.handover_drain, Duration::from_secs(600));
    assert_eq!(
        config.admin_socket.as_ref().map(crate::endpoint::Endpoint::as_str),
        Some("/run/koord-runtimeproxy/admin.sock")
    );
    assert_eq!(config.metrics_bind_address, None);
    assert_eq!(config.verbosity, 2);
    assert_eq!(config.log_format, LogForm::Text);
    assert_eq!(
        config.usage,
        UsageConfig {
            enabled: true,
            interval: Duration::from_secs(1),
            memory_interval: Duration::from_secs(5),
            pressure: false,
            metrics: UsageMetrics::Pod,
        }
    );
}

#[test]
fn mistakes_of_usage_flags_name_what_is_accepted() {
    let given =
        ["--usage=yes", "--usage-interval=999ms", "--usage-memory-interval=301s", "--usage-metrics=all"];
    assert_eq!(
        mistakes(&given),
        [
            "--usage=yes: no such choice; accepted: on, or off",
            "--usage-interval=999ms: out of range; accepted: a duration from 1s to 1m, such as 1s or 10s",
            "--usage-memory-interval=301s: out of range; accepted: a duration from 1s to 5m, such as 5s or 1m",
            "--usage-metrics=all: no such choice; accepted: none, pod, or container",
        ]
    );
}

#[test]
fn every_flag_is_read_in_both_forms() {
    for (name, value, check) in [
        (
            "koord-runtimeproxy-endpoint",
            "unix:///a//b.sock",
            (|c| c.listen.as_str() == "/a/b.sock") as fn(&Config) -> bool,
        ),
        ("remote-runtime-service-endpoint", "unix:/r.sock", |c| c.runtime.as_str() == "/r.sock"),
        ("remote-image-service-endpoint", "/i.sock", |c| {
            c.image.as_ref().is_some_and(|i| i.as_str() == "/i.sock")
        }),
        ("backend-runtime-mode", "Containerd", |_| true),
        ("socket-mode", "0660", |c| c.socket_mode == SocketMode::Octal(0o660)),
        ("peer-check", "root-or-group", |c| c.peer_check == PeerCheck::RootOrGroup),
        ("runtime-hook-server-key", "k", |c| c.skip_label.key == "k"),
        ("runtime-hook-server-val", "yes=no", |c| c.skip_label.value == "yes=no"),
        ("skip-namespaces", "a, b-1", |c| c.skip_label.namespaces == ["a", "b-1"]),
        ("hook-config-dir", "/x//y/", |c| c.hook_config_dir == Path::new("/x/y")),
        ("hook-timeout", "1m30s", |c| c.hook_timeout == Duration::from_secs(90)),
        ("hook-deadline-share", "1", |c| c.hook_deadline_share >= 1.0),
        ("hook-trusted-uid", "1000", |c| c.hook_trusted_uid == Some(1000)),
        ("backend-wait", "0", |c| c.backend_wait.is_zero()),
        ("max-message-bytes", "4096", |c| c.max_message_bytes == 4096),
        ("relay-services", "runtime.v1", |c| {
            c.relay_services == RelayServices::Listed(vec!["runtime.v1".into()])
        }),
        ("state-dir", "", |c| c.state_dir.is_none()),
        ("shutdown-grace", "100ms", |c| c.shutdown_grace == Duration::from_millis(100)),
        ("handover-drain", "1h", |c| c.handover_drain == Duration::from_secs(3600)),
        ("admin-socket", "", |c| c.admin_socket.is_none()),
        ("metrics-bind-address", ":9101", |c| {
            c.metrics_bind_address.is_some_and(|a| a.to_string() == "[::]:9101")
        }),
        ("v", "10", |c| c.verbosity == 10),
        ("log-format", "json", |c| c.log_format == LogForm::Json),
        ("plugin-dir", "", |c| c.qos.plugin_dir.is_none()),
        ("mode", "shadow", |c| c.qos.mode == koord_admin::Mode::Shadow),
        ("node-policy", "/p.yaml", |c| c.qos.node_policy.as_deref() == Some(Path::new("/p.yaml"))),
        ("feature-gates", "CoreSched=true,BatchResource=false", |c| {
            use koord_extension::gates::Gate;
            c.qos.gates.enabled(Gate::CoreSched) && !c.qos.gates.enabled(Gate::BatchResource)
        }),
        ("cgroup-root", "/cg/", |c| c.qos.cgroup_root == Path::new("/cg")),
        ("cgroup-driver", "systemd", |c| c.qos.cgroup_driver == DriverChoice::Systemd),
        ("kubelet-cgroup-root", "/kind", |c| c.qos.kubelet_cgroup_root == "/kind"),
        ("kubelet-dir", "/k", |c| c.qos.kubelet_dir == Path::new("/k")),
        ("cpu-qos-backend", "weight", |c| c.qos.cpu_qos_backend == koord_rules::CpuQosBackend::Weight),
        ("be-idle-scope", "pod", |c| c.qos.be_idle_scope == koord_rules::BeIdleScope::Pod),
        ("cpu-weight-conversion", "linear", |c| c.qos.cpu_weight_conversion == ConversionChoice::Linear),
        ("runtime-hooks-reconcile-interval", "1m", |c| c.qos.reconcile_interval == Duration::from_secs(60)),
        ("usage", "off", |c| !c.usage.enabled),
        ("usage-interval", "10s", |c| c.usage.interval == Duration::from_secs(10)),
        ("usage-memory-interval", "5m", |c| c.usage.memory_interval == Duration::from_secs(300)),
        ("usage-pressure", "on", |c| c.usage.pressure),
        ("usage-metrics", "container", |c| c.usage.metrics == UsageMetrics::Container),
    ] {
        assert!(check(&config(&[&format!("--{name}={value}")])), "--{name}={value}");
        assert!(check(&config(&[&format!("--{name}"), value])), "--{name} {value}");
        assert!(check(&config(&[&format!("-{name}={value}")])), "-{name}={value}");
        assert!(FLAGS.iter().any(|flag| flag.name == name));
    }
    assert!(config(&["--disable-unset-cpu-quota"]).qos.keep_cpu_quota);
    // Thirty-five in the list, that switch, --version and --help.
    assert_eq!(FLAGS.len(), 43);
}

#[test]
fn the_last_value_of_a_flag_counts() {
    assert_eq!(config(&["--v=3", "--v", "7"]).verbosity, 7);
}

#[test]
fn an_image_endpoint_equal_to_the_runtimes_is_none() {
    let config = config(&[
        "--remote-runtime-service-endpoint=/r.sock",
        "--remote-image-service-endpoint=unix:///r.sock",
    ]);
    assert_eq!(config.image, None);
}

#[test]
fn values_at_and_past_the_edges() {
    for (flag, accepted, refused) in [
        ("hook-timeout", &["1ms", "10m"][..], &["999us", "10m1ns", "0", "-1s", "2", "", "soon"][..]),
        ("hook-deadline-share", &["0.001", "1.0"], &["0", "1.0001", "-0.5", "NaN", "half", ""]),
        ("backend-wait", &["0s", "10m"], &["10m1ns", "1"]),
        ("max-message-bytes", &["4096", "1073741824"], &["4095", "1073741825", "32MiB", "-1", "1e6", ""]),
        ("shutdown-grace", &["0", "1h"], &["1h1ns"]),
        ("handover-drain", &["0s", "24h"], &["24h1ns"]),
        ("v", &["0", "10"], &["11", "-1", "two", ""]),
        (
            "socket-mode",
            &["inherit", "0", "0777", "660", "0o640"],
            &["1000", "0888", "rw", "", "+66", "Inherit"],
        ),
        ("peer-check", &["off", "root-or-group"], &["on", ""]),
        ("log-format", &["text", "json"], &["JSON", ""]),
        ("hook-config-dir", &["/x"], &["", "x", "/", "/a/../b"]),
        ("state-dir", &["", "/x"], &["x", "/"]),
        ("hook-trusted-uid", &["", "0", "4294967294"], &["4294967295", "-1", "root"]),
        ("skip-namespaces", &["", "kube-system"], &["a,,b", "Upper", "-a", "a-", "a_b"]),
        (
            "relay-services",
            &["*", "runtime.v1,runtime.v1alpha2", "a.B"],
            &["", "a,", "a..b", "*,a", "1a", "a/b"],
        ),
        (
            "metrics-bind-address",
            &["", ":0", "0.0.0.0:9101", "[::1]:1"],
            &["9101", "localhost:1", ":x", ":65536", "1.2.3.4"],
        ),
        ("backend-runtime-mode", &["Containerd"], &["Docker", "containerd", "docker", ""]),
        ("koord-runtimeproxy-endpoint", &["/x"], &["", "x", "tcp://1.2.3.4:5"]),
        ("remote-image-service-endpoint", &["", "/x"], &["x"]),
    ] {
        for value in accepted {
            config(&[&format!("--{flag}={value}")]);
        }
        for value in refused {
            let argument = format!("--{flag}={value}");
            let found = mistakes(&[&argument]);
            assert_eq!(found.len(), 1, "{argument}: {found:?}");
            assert!(found[0].starts_with(&format!("{argument}: ")), "{}", found[0]);
            assert!(found[0].contains("; accepted: "), "{}", found[0]);
        }
    }
}

#[test]
fn docker_mode_is_known_but_not_available() {
    let found = mistakes(&["--backend-runtime-mode", "Docker"]);
    assert_eq!(
        found,
        ["--backend-runtime-mode=Docker: Docker mode is not available in this version; \
          accepted: Containerd (any CRI runtime)"]
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let found = mistakes(&["--v=99", "--hook-timeuot=1s", "stray", "--hook-timeout", "x", "--socket-mode"]);
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found[0].contains("--hook-timeuot: unknown flag; did you mean --hook-timeout?"));
    assert!(found[1].contains("--socket-mode: needs a value; accepted: inherit"));
    assert!(found[2].contains("\"stray\": unexpected argument"));
    assert!(found.iter().any(|text| text.starts_with("--v=99: out of range")));
    assert!(found.iter().any(|text| text.starts_with("--hook-timeout=x: expected a number")));
}

#[test]
fn unknown_flags_far_from_any_name_get_no_suggestion() {
    assert_eq!(mistakes(&["--entirely-different"]), ["--entirely-different: unknown flag"]);
    assert_eq!(
        mistakes(&["-"]),
        ["\"-\": unexpected argument; the commands are serve and validate, each with one file of variables"]
    );
    assert_eq!(mistakes(&["--", "--v=1"]).len(), 1);
}

#[test]
fn sockets_must_differ() {
    let same = ["--koord-runtimeproxy-endpoint=/x", "--remote-runtime-service-endpoint=unix:/x"];
    assert_eq!(
        mistakes(&same),
        ["--koord-runtimeproxy-endpoint=/x: is also --remote-runtime-service-endpoint"]
    );
    assert_eq!(mistakes(&["--koord-runtimeproxy-endpoint=/x", "--admin-socket=/x"]).len(), 1);
    assert_eq!(
        mistakes(&["--koord-runtimeproxy-endpoint=/x", "--remote-image-service-endpoint=/x"]).len(),
        1
    );
}

#[test]
fn commands() {
    let unchecked = |line: &[&str]| match run(line) {
        Ok(Command::Validate(unchecked)) => *unchecked,
        other => panic!("{other:?}"),
    };
    let plain = unchecked(&["validate", "--v=3"]);
    assert!(plain.flags.has("v") && plain.flags.word() == Some(Word::Validate) && plain.mistakes.is_empty());
    assert_eq!(plain.variables, None);
    assert_eq!(unchecked(&["--v=3", "validate"]), plain);
    let file = unchecked(&["validate", "/etc/default/x", "--v=99", "/etc/default/y"]);
    assert_eq!(file.variables.as_deref(), Some(Path::new("/etc/default/x")));
    assert_eq!(file.mistakes, [unexpected("/etc/default/y".to_owned())]);
    assert!(run(&["/etc/default/x"]).is_err(), "a file needs its command");
    assert!(matches!(run(&["serve", "--v=3"]), Ok(Command::Serve(config)) if config.verbosity == 3));
    let Ok(Command::ServeWith(with)) = run(&["serve", "/etc/default/x", "--v=3"]) else { panic!("refused") };
    assert_eq!(with.variables.as_deref(), Some(Path::new("/etc/default/x")));
    assert!(run(&["serve", "validate"]).is_err(), "one command at a time");
    assert_eq!(run(&["--version", "--v=bad"]), Ok(Command::Version));
    assert_eq!(run(&["--help"]), Ok(Command::Help));
    assert_eq!(run(&["-h"]), Ok(Command::Help));
    assert!(matches!(run(&["--version=false"]), Ok(Command::Serve(_))));
    assert_eq!(mistakes(&["--version=maybe"]).len(), 1);
    let twice = unchecked(&["validate", "validate"]);
    assert_eq!(twice.mistakes, [unexpected("validate".to_owned())]);
}

#[test]
fn arguments_that_are_no_text_are_mistakes() {
    let odd = OsString::from_vec(vec![b'-', b'-', 0xff]);
    let found = command([odd.clone(), OsString::from("--v"), odd.clone()]);
    assert_eq!(
        found,
        Err(Mistakes(vec![Mistake::NotText { argument: odd.clone() }, Mistake::NotText { argument: odd }]))
    );
}

#[test]
fn services_are_admitted_by_package_or_name() {
    let listed = config(&["--relay-services=runtime.v1,grpc.health.v1.Health"]).relay_services;
    for (path, admitted) in [
        ("/runtime.v1.RuntimeService/Version", true),
        ("/runtime.v1.ImageService/ListImages", true),
        ("/runtime.v1alpha2.RuntimeService/Version", false),
        ("/runtime.v1.deeper.Service/Call", false),
        ("/grpc.health.v1.Health/Check", true),
        ("/grpc.health.v1.Other/Check", false),
        ("/runtime.v1/Version", true),
        ("/Version", false),
        ("", false),
        ("runtime.v1.RuntimeService/Version", false),
    ] {
        assert_eq!(listed.admits(path), admitted, "{path}");
        assert!(RelayServices::All.admits(path));
    }
}

#[test]
fn the_configuration_in_force_names_every_flag() {
    let json = config(&["--hook-timeout=1m30s"]).to_json();
    assert_eq!(json["hook-timeout"], "1m30s");
    let fields = json.as_object().expect("an object");
    for flag in FLAGS.iter().filter(|flag| matches!(flag.kind, Kind::Value(_))) {
        assert!(fields.contains_key(flag.name), "{}", flag.name);
    }
    assert_eq!(fields.len(), FLAGS.len() - 2);
}

#[test]
fn help_names_every_flag_with_its_default() {
    let text = help();
    for flag in FLAGS {
        assert!(text.contains(&format!("  --{}", flag.name)), "{}", flag.name);
        if matches!(flag.kind, Kind::Value(_)) && !flag.default.is_empty() {
            assert!(text.contains(&format!("; default: {}\n", flag.default)), "{}", flag.name);
        }
    }
    assert!(text.lines().all(|line| line.chars().count() <= 160));
}

proptest! {
    /// Whatever is on the line, it is accepted or refused with reasons, and both forms of a flag mean the same.
    #[test]
    fn any_line_is_answered(
        arguments in prop::collection::vec("(--?[a-z-]{0,12}(=[ -~]{0,8})?|[ -~]{0,10})", 0..6),
        flag in prop::sample::select(FLAGS.to_vec()),
        value in "[ -~]{0,12}",
    ) {
        match command(arguments.iter().map(OsString::from)) {
            Ok(_) => {}
            Err(Mistakes(mistakes)) => prop_assert!(!mistakes.is_empty()),
        }
        if matches!(flag.kind, Kind::Value(_)) {
            let apart = run(&[&format!("--{}", flag.name), &value]);
            prop_assert_eq!(run(&[&format!("--{}={value}", flag.name)]), apart);
        }
    }
}
