//! What rules and hooks add to a call that is held.
//!
//! The base is a *plain hold*: the call of a pod whose label exempts it from hooks, through a proxy that is configured
//! like the one with the rules. It is held until its request is there, read, remembered and sent on as it came; nobody
//! is asked. The other ways are the same call of the same pod without the label.
//!
//! Every proxy has a tree of cgroups of its own in a temporary directory; nothing of the machine is written to.

mod report;
mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use koord_cri::v1;
use koord_testing::client::RawClient;
use koord_testing::cri::FakeCri;
use koord_testing::harness::{Place, Proxy, ProxyOptions};
use koord_testing::hooks::{decode, write_registration};
use koord_testing::runtime::FakeRuntime;
use koord_testing::wait::until_true;
use prost::Message;
use serde_json::{Value, json};

use crate::backend::Backend;
use crate::bench::{as_the_unit, beside, resident};
use crate::messages::{Case, SERVER_PATHS, hooks};
use crate::process::children;
use crate::route::{Route, run_rounds};
use report::{Results, Way};
use tree::Tree;

/// Containers of the memory's measurement.
const CONTAINERS: usize = 1_000;

/// Containers of each of its pods.
const NAMES: [&str; 2] = ["main", "side"];

/// Options of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; each figure is the median over them.
    #[arg(long, default_value_t = 28)]
    rounds: usize,
    /// Percentage of the usual number of calls per round.
    #[arg(long, default_value_t = 100)]
    calls: usize,
    /// The proxy's program; the one beside this program when absent.
    #[arg(long)]
    proxy: Option<PathBuf>,
    /// The example plugin; the one beside this program when absent.
    #[arg(long)]
    plugin: Option<PathBuf>,
    /// Only these ways, separated by commas.
    #[arg(long, value_delimiter = ',')]
    ways: Vec<String>,
    /// Leave the memory out.
    #[arg(long)]
    without_memory: bool,
    /// File for the figures.
    #[arg(long, default_value = "target/bench/hooks.json")]
    out: PathBuf,
    /// End with status 1 when a target does not hold.
    #[arg(long)]
    check: bool,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let ways = selected(&options.ways)?;
    let program = beside("koord-runtime-proxy", "--proxy", options.proxy.as_deref())?;
    let plugin = beside("libkoord_plugin_example.so", "--plugin", options.plugin.as_deref())?;
    let place = tempfile::Builder::new().prefix("koord-bench-").tempdir_in("/tmp")?;
    let backend = Backend::start(
        &place.path().join("backend.sock"),
        Case::HOOKS.map(Case::path).into_iter().chain([Case::Hold7k1.path()]),
    )?;
    let server = place.path().join("hook.sock");
    let _server = Backend::start(&server, SERVER_PATHS)?;

    let mut routes = Vec::new();
    let mut proxies = Vec::new();
    for way in ways {
        let mut route = Route::new(way.name(), way.edits());
        if way == Way::Direct {
            route.connect(&Case::HOOKS, backend.socket(), None)?;
        } else {
            let proxy = start(way, &program, &plugin, &server, backend.socket())?;
            create(way, &proxy).with_context(|| way.name())?;
            route.connect(&Case::HOOKS, &proxy.place.socket(), Some(proxy.pid()))?;
            proxies.push(proxy);
        }
        routes.push(route);
    }
    run_rounds(&mut routes, &Case::HOOKS, options.rounds, options.calls, &backend)?;
    let mut results = Results {
        rounds: routes.into_iter().map(|route| (route.name, route.rounds)).collect::<BTreeMap<_, _>>(),
        memory: None,
        child_kib: None,
    };
    for proxy in &proxies {
        for child in children(proxy.pid())? {
            results.child_kib = Some(resident(child)?);
        }
    }
    drop(proxies);
    if !options.without_memory {
        results.memory = Some(memory(&program)?);
    }
    report(options, &results)
}

fn report(options: &Options, results: &Results) -> anyhow::Result<ExitCode> {
    #![expect(clippy::print_stdout, reason = "a report for people is this program's purpose")]
    println!("{}", report::table(results));
    let targets = report::targets(results);
    for target in &targets {
        let verdict = if target.holds() { "holds" } else { "MISSED" };
        println!("{verdict:<7} {}: {:.1}, limit {:.1}", target.what, target.measured, target.limit);
    }
    if let Some(directory) = options.out.parent() {
        fs::create_dir_all(directory)?;
    }
    let text = format!("{:#}\n", report::to_json(results));
    fs::write(&options.out, text).with_context(|| options.out.display().to_string())?;
    println!("\nfigures: {}", options.out.display());
    let missed = targets.iter().any(|target| !target.holds());
    Ok(if options.check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn selected(names: &[String]) -> anyhow::Result<Vec<Way>> {
    if names.is_empty() {
        return Ok(Way::ALL.to_vec());
    }
    let find = |name: &String| Way::ALL.into_iter().find(|way| way.name() == name);
    names.iter().map(|name| find(name).with_context(|| format!("--ways: no way {name:?}"))).collect()
}

/// Flags of a proxy whose cgroups and policy are in `place`.
fn flags(place: &Place, program: &Path, policy: bool) -> anyhow::Result<(Tree, ProxyOptions)> {
    let tree = Tree::new(place.path("cgroup"))?;
    let text = |path: PathBuf| path.display().to_string();
    let mut options = as_the_unit(ProxyOptions::new(program))
        .flag("--cgroup-root", &text(place.path("cgroup")))
        .flag("--cgroup-driver", "cgroupfs")
        .flag("--kubelet-dir", &text(place.path("kubelet")))
        .flag("--plugin-dir", &text(place.path("plugins")));
    fs::create_dir(place.path("plugins"))?;
    if policy {
        fs::write(place.path("node-slo.yaml"), tree::policy())?;
        options = options
            .flag("--node-policy", &text(place.path("node-slo.yaml")))
            .flag("--feature-gates", "AllAlpha=true,AllBeta=true");
    } else {
        options = options.flag("--node-policy", "").flag("--feature-gates", "AllAlpha=false,AllBeta=false");
    }
    Ok((tree, options))
}

/// Starts the proxy of a way.
fn start(way: Way, program: &Path, plugin: &Path, server: &Path, backend: &Path) -> anyhow::Result<Proxy> {
    let place = Place::new()?;
    let (tree, mut options) = flags(&place, program, way != Way::Asked)?;
    let pod = hooks::cgroup_parent(hooks::UID);
    tree.make(&pod)?;
    tree.make(&format!("{pod}/{}", hooks::container_id()))?;
    match way {
        Way::InProcess | Way::Isolated => {
            fs::copy(plugin, place.path("plugins/example.so"))?;
            let mode = if way == Way::InProcess { "in-process" } else { "isolated" };
            let settings = json!({ "mode": mode, "failure-policy": "Fail" });
            fs::write(place.path("plugins/example.json"), settings.to_string())?;
        }
        Way::Remote => {
            let registration = json!({
                "remote-endpoint": server,
                "failure-policy": "Fail",
                "runtime-hooks": ["PreCreateContainer", "PreUpdateContainerResources"],
                "resource-merge": "overlay",
            });
            write_registration(&place.hooks(), "server.json", &registration.to_string())?;
        }
        Way::Direct | Way::Hold | Way::Asked | Way::Rules => {}
    }
    options = options.backend(backend);
    let proxy = Proxy::start_in(place, options)?;
    proxy.wait_ready();
    let state = status(&proxy)?["policy"]["state"].clone();
    let wanted = if way == Way::Asked { "default" } else { "in force" };
    ensure!(state == wanted, "{}: the policy is {state}, not {wanted}\n{}", way.name(), proxy.log());
    Ok(proxy)
}

fn status(proxy: &Proxy) -> anyhow::Result<Value> {
    let answer = proxy.admin("/qos/status")?;
    ensure!(answer.status == 200, "/qos/status: {}", answer.status);
    Ok(serde_json::from_str(&answer.body)?)
}

/// Makes the pod and the container that the calls are about known.
fn create(way: Way, proxy: &Proxy) -> anyhow::Result<()> {
    let client = proxy.client();
    let config = Some(hooks::measured_pod(way == Way::Hold));
    let run = v1::RunPodSandboxRequest { config, runtime_handler: "runc".into() };
    call(&client, "RunPodSandbox", &run.encode_to_vec())?;
    call(&client, "CreateContainer", &Case::Create7k1.request())?;
    let start = v1::StartContainerRequest { container_id: hooks::container_id() };
    call(&client, "StartContainer", &start.encode_to_vec())?;
    Ok(())
}

fn call(client: &RawClient, method: &str, message: &[u8]) -> anyhow::Result<Vec<u8>> {
    let answer = client.cri(method, message);
    if answer.status() != Some(0) {
        bail!("{method}: {:?} {}", answer.status(), answer.status_message());
    }
    Ok(answer.message())
}

/// Resident memory of the proxy with the rules, idle and after 1,000 containers of 500 pods were started.
fn memory(program: &Path) -> anyhow::Result<report::Memory> {
    let place = Place::new()?;
    let (tree, options) = flags(&place, program, true)?;
    let _runtime = FakeRuntime::start(place.backend(), FakeCri::default().behaviour())?;
    let proxy = Proxy::start_in(place, options.flag("--runtime-hooks-reconcile-interval", "1s"))?;
    proxy.wait_ready();
    await_reconcile(&proxy)?;
    let idle_kib = proxy.resident_kib();
    let client = proxy.client();
    for number in 0..CONTAINERS / NAMES.len() {
        let uid = format!("0f4e2c0e-6f9c-4a53-9f0e-{number:012}");
        let parent = hooks::cgroup_parent(&uid);
        tree.make(&parent)?;
        let mut config = hooks::pod(&format!("batch-{number}"), &uid, &NAMES);
        config.annotations.extend((0..5).map(|note| (format!("example.com/note-{note}"), "n".repeat(60))));
        let run = v1::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: "runc".into() };
        let pod: v1::RunPodSandboxResponse = decode(&call(&client, "RunPodSandbox", &run.encode_to_vec())?);
        for name in NAMES {
            let create = v1::CreateContainerRequest {
                pod_sandbox_id: pod.pod_sandbox_id.clone(),
                config: Some(hooks::container(name, 20)),
                sandbox_config: Some(config.clone()),
            };
            let created: v1::CreateContainerResponse =
                decode(&call(&client, "CreateContainer", &create.encode_to_vec())?);
            tree.make(&format!("{parent}/{}", created.container_id))?;
            let start = v1::StartContainerRequest { container_id: created.container_id };
            call(&client, "StartContainer", &start.encode_to_vec())?;
        }
    }
    await_reconcile(&proxy)?;
    let counts = status(&proxy)?["counts"].clone();
    ensure!(counts["containers"] == CONTAINERS, "the proxy knows {counts}, not {CONTAINERS} containers");
    let full_kib = proxy.resident_kib();
    let of_ledger = |name: &str| counts[name].as_u64().unwrap_or(0);
    Ok(report::Memory { idle_kib, full_kib, fields: of_ledger("fields"), changed: of_ledger("changed") })
}

/// Waits until all values were compared once more.
fn await_reconcile(proxy: &Proxy) -> anyhow::Result<()> {
    let last = || status(proxy).map(|status| status["lastReconcile"].clone());
    // The comparison under way may have begun before what it is to see.
    for _ in 0..2 {
        let before = last()?;
        until_true("values to be compared", || last().is_ok_and(|last| last != before && !last.is_null()));
    }
    Ok(())
}
