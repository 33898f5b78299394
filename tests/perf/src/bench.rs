//! One run: all relays, all cases, round by round.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use koord_cri::v1;
use koord_testing::client::RawClient;
use koord_testing::cri::{FakeCri, container_config, pod_config};
use koord_testing::harness::{Proxy, ProxyOptions, resident_kib};
use koord_testing::hooks::{ALL_HOOKS, FakeHookServer, Script, decode};
use koord_testing::runtime::FakeRuntime;
use nix::unistd::Pid;
use prost::Message;

use crate::backend::Backend;
use crate::messages::Case;
use crate::process::{Relay, owner};
use crate::report::{Results, table, targets, to_json};
use crate::route::{Route, run_rounds};

/// Options of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; each figure is the median over them.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Percentage of the usual number of calls per round.
    #[arg(long, default_value_t = 100)]
    calls: usize,
    /// Only these cases, separated by commas.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// The proxy's program; the one beside this program when absent.
    #[arg(long)]
    proxy: Option<PathBuf>,
    /// Leave the proxy out.
    #[arg(long)]
    without_proxy: bool,
    /// Another proxy to measure: its name and the socket it listens on. It must relay to `--backend-socket`.
    #[arg(long, value_name = "NAME=SOCKET")]
    peer: Vec<String>,
    /// Where the backend listens; a private path when absent.
    #[arg(long)]
    backend_socket: Option<PathBuf>,
    /// Wait for this many seconds for the peers' sockets.
    #[arg(long, default_value_t = 60)]
    peer_wait: u64,
    /// File for the figures.
    #[arg(long, default_value = "target/bench/relay.json")]
    out: PathBuf,
    /// End with status 1 when a target does not hold.
    #[arg(long)]
    check: bool,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let cases = selected(&options.cases)?;
    let place = tempfile::Builder::new().prefix("koord-bench-").tempdir_in("/tmp")?;
    let socket = |name: &str| place.path().join(format!("{name}.sock"));
    let backend = Backend::start(
        options.backend_socket.as_deref().unwrap_or(&socket("backend")),
        Case::RELAY.map(Case::path),
    )?;

    let mut direct = Route::new("direct", false);
    direct.connect(&cases, backend.socket(), None)?;
    let echo = Relay::start("echo", &socket("echo"), backend.socket())?;
    let mut echo_route = Route::new("echo", false);
    echo_route.connect(&cases, &socket("echo"), Some(echo.pid()))?;
    let hyper = Relay::start("hyper", &socket("hyper"), backend.socket())?;
    let mut hyper_route = Route::new("hyper", false);
    hyper_route.connect(&cases, &socket("hyper"), Some(hyper.pid()))?;
    let mut routes = vec![direct, echo_route];
    let program = proxy_program(options)?;
    let mut proxy = None;
    if let Some(program) = &program {
        let held = Relay::start("held", &socket("held"), backend.socket())?;
        let running = Proxy::start(as_the_unit(ProxyOptions::new(program)).backend(backend.socket()))?;
        running.wait_ready();
        let mut route = Route::new("relay", true);
        let (hold, pass): (Vec<Case>, Vec<Case>) = cases.iter().partition(|case| **case == Case::Hold7k1);
        route.connect(&pass, &running.place.socket(), Some(running.pid()))?;
        route.connect(&hold, &socket("held"), Some(held.pid()))?;
        routes.push(route);
        proxy = Some((running, held));
    }
    routes.push(hyper_route);
    for peer in &options.peer {
        routes.push(peer_route(peer, &cases, options.peer_wait)?);
    }

    run_rounds(&mut routes, &cases, options.rounds, options.calls, &backend)?;
    let mut results: Results = routes.iter().map(|route| (route.name.clone(), route.figures())).collect();
    drop((routes, proxy, echo, hyper));

    for (name, figures) in &mut results {
        let memory = match (name.as_str(), &program) {
            ("echo" | "hyper", _) => Some(relay_memory(name)?),
            ("relay", Some(program)) => Some(proxy_memory(program)?),
            _ => None,
        };
        if let Some((idle, full)) = memory {
            (figures.rss_idle_kib, figures.rss_1000_kib) = (Some(idle), Some(full));
        }
    }
    report(options, &results)
}

fn report(options: &Options, results: &Results) -> anyhow::Result<ExitCode> {
    println!("{}", table(results));
    let targets = targets(results);
    for target in &targets {
        let verdict = if target.holds() { "holds" } else { "MISSED" };
        println!("{verdict:<7} {}: {:.1}, limit {:.1}", target.what, target.measured, target.limit);
    }
    if let Some(directory) = options.out.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let text = format!("{:#}\n", to_json(results));
    std::fs::write(&options.out, text).with_context(|| options.out.display().to_string())?;
    println!("\nfigures: {}", options.out.display());
    let missed = targets.iter().any(|target| !target.holds());
    Ok(if options.check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn selected(names: &[String]) -> anyhow::Result<Vec<Case>> {
    if names.is_empty() {
        return Ok(Case::RELAY.to_vec());
    }
    let find = |name: &String| Case::RELAY.into_iter().find(|case| case.name() == name);
    names.iter().map(|name| find(name).with_context(|| format!("--cases: no case {name:?}"))).collect()
}

/// With the environment of the proxy's unit.
pub(crate) fn as_the_unit(options: ProxyOptions) -> ProxyOptions {
    options.variable("MALLOC_ARENA_MAX", "2")
}

fn proxy_program(options: &Options) -> anyhow::Result<Option<PathBuf>> {
    if options.without_proxy {
        return Ok(None);
    }
    beside("koord-runtime-proxy", "--proxy", options.proxy.as_deref()).map(Some)
}

/// A file that was built: the one `given` with `flag`, or the one of that name beside this program.
pub(crate) fn beside(name: &str, flag: &str, given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let file = match given {
        Some(file) => file.to_owned(),
        None => std::env::current_exe()?.with_file_name(name),
    };
    if !file.exists() {
        bail!("{} is missing: build it in the same profile, or give {flag}", file.display());
    }
    Ok(file)
}

fn peer_route(peer: &str, cases: &[Case], wait: u64) -> anyhow::Result<Route> {
    let (name, socket) = peer.split_once('=').with_context(|| format!("--peer {peer:?}: not NAME=SOCKET"))?;
    let socket = Path::new(socket);
    let deadline = std::time::Instant::now() + Duration::from_secs(wait);
    let pid = loop {
        match owner(socket) {
            Ok(pid) => break pid,
            Err(error) if std::time::Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let mut route = Route::new(name, false);
    route.connect(cases, socket, Some(pid))?;
    Ok(route)
}

/// Resident memory of a relay of this program: idle, and after 1,000 containers were created through it.
fn relay_memory(command: &str) -> anyhow::Result<(u64, u64)> {
    let place = tempfile::Builder::new().prefix("koord-bench-").tempdir_in("/tmp")?;
    let (listen, backend) = (place.path().join("r.sock"), place.path().join("b.sock"));
    let _runtime = FakeRuntime::start(&backend, FakeCri::default().behaviour())?;
    let relay = Relay::start(command, &listen, &backend)?;
    let idle = resident(relay.pid())?;
    thousand_containers(&RawClient::connect(&listen)?)?;
    Ok((idle, resident(relay.pid())?))
}

/// The same of the proxy, with a hook server on all hooks so that it stores everything it can be asked for.
fn proxy_memory(program: &Path) -> anyhow::Result<(u64, u64)> {
    let place = koord_testing::harness::Place::new()?;
    let _runtime = FakeRuntime::start(place.backend(), FakeCri::default().behaviour())?;
    let hooks = FakeHookServer::start(place.path("hook.sock"), Script::Echo)?;
    hooks.register(&place.hooks(), "echo.json", "Fail", &ALL_HOOKS)?;
    let proxy = Proxy::start_in(place, as_the_unit(ProxyOptions::new(program)))?;
    proxy.wait_ready();
    let idle = proxy.resident_kib();
    thousand_containers(&proxy.client())?;
    ensure!(
        hooks.calls("PreCreateContainer").len() == 1_000,
        "the hook server was asked {} times instead of 1000",
        hooks.calls("PreCreateContainer").len()
    );
    let records = proxy.metric("koord_runtime_proxy_store_records", &["kind=\"container\""]);
    ensure!((999.5..1_000.5).contains(&records), "the store has {records} containers instead of 1000");
    Ok((idle, proxy.resident_kib()))
}

pub(crate) fn resident(pid: Pid) -> anyhow::Result<u64> {
    resident_kib(pid).with_context(|| format!("/proc/{pid}/status"))
}

/// 500 pods of two containers each, with the environment and annotations of ordinary ones.
fn thousand_containers(client: &RawClient) -> anyhow::Result<()> {
    for number in 0..500 {
        let uid = format!("0f4e2c0e-6f9c-4a53-9f0e-{number:012}");
        let mut config =
            pod_config(&format!("pod-{number}"), &uid, "default", &format!("/kubepods/burstable/pod{uid}"));
        config.labels = (0..5).map(|label| (format!("example.com/label-{label}"), "value".into())).collect();
        config.annotations =
            (0..5).map(|note| (format!("example.com/note-{note}"), "n".repeat(60))).collect();
        let run = v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: "runc".into() };
        let answer = client.cri("RunPodSandbox", &run.encode_to_vec());
        ensure!(answer.status() == Some(0), "RunPodSandbox: {}", answer.status_message());
        let pod: v1::RunPodSandboxResponse = decode(&answer.message());
        for name in ["main", "side"] {
            let resources =
                v1::LinuxContainerResources { cpu_shares: 512, cpu_period: 100_000, ..Default::default() };
            let mut container = container_config(name, resources);
            container.envs = (0..20)
                .map(|env| v1::KeyValue { key: format!("SERVICE_{env}_HOST"), value: b"10.96.0.1".to_vec() })
                .collect();
            let create = v1::CreateContainerRequest {
                pod_sandbox_id: pod.pod_sandbox_id.clone(),
                config: Some(container),
                sandbox_config: Some(config.clone()),
            };
            let answer = client.cri("CreateContainer", &create.encode_to_vec());
            ensure!(answer.status() == Some(0), "CreateContainer: {}", answer.status_message());
        }
    }
    Ok(())
}
