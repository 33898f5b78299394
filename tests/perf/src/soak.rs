//! A long run under load and faults: no call may fail that need not, and nothing may grow.
//!
//! Callers run pods through the proxy while, in turn, hook servers die and come back, registrations change, the
//! runtime restarts, hostile clients come by, and the proxy's process is replaced. Each turn ends with a measurement
//! of the serving process; those of the last quarter are compared with those of the second.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use koord_cri::v1;
use koord_testing::client::{ByteClient, CallHead, SteadyClient, hpack_bomb, runtime_path};
use koord_testing::cri::{FakeCri, container_config, pod_config};
use koord_testing::frame::{Frame, code};
use koord_testing::harness::{Place, Proxy, ProxyOptions};
use koord_testing::hooks::{ALL_HOOKS, FakeHookServer, Script, decode};
use koord_testing::runtime::FakeRuntime;
use nix::sys::signal::Signal;
use prost::Message;

use crate::report::median;

/// Options of a soak run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// The proxy's program; the one beside this program when absent.
    #[arg(long)]
    proxy: Option<PathBuf>,
    /// Callers at a time.
    #[arg(long, default_value_t = 4)]
    callers: u32,
}

/// Kinds of turns.
const TURNS: usize = 10;
/// The turn in which the runtime restarts, and the next, in which the last of its victims may report.
const RUNTIME_RESTARTS: [usize; 2] = [5, 6];

/// What the callers share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    calls: AtomicU64,
    /// Calls that ended with UNAVAILABLE; only a restart of the runtime excuses them.
    unavailable: AtomicU64,
}

/// What one measurement saw.
#[derive(Debug, Clone, Copy)]
struct Sample {
    resident_kib: f64,
    descriptors: usize,
    threads: usize,
}

/// Runs the soak.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let program = match &options.proxy {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("koord-runtime-proxy"),
    };
    let cri = FakeCri::default();
    let place = Place::new()?;
    let mut runtime = FakeRuntime::start(place.backend(), cri.behaviour())?;
    let mut hooks = FakeHookServer::start(place.path("hook.sock"), Script::Echo)?;
    hooks.register(&place.hooks(), "soak.json", "Ignore", &ALL_HOOKS)?;
    let mut proxy = Proxy::start_in(place, ProxyOptions::new(&program).flag("--hook-timeout", "200ms"))?;
    proxy.wait_ready();

    let shared = Arc::new(Shared::default());
    let callers: Vec<_> = (0..options.callers)
        .map(|number| {
            let (shared, socket) = (Arc::clone(&shared), proxy.place.socket());
            thread::spawn(move || caller(number, &shared, &mut SteadyClient::new(&socket)))
        })
        .collect();

    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut samples = Vec::new();
    let mut turn = 0_usize;
    while Instant::now() < end {
        ensure!(
            !callers.iter().any(thread::JoinHandle::is_finished),
            "a caller gave up: {:?}",
            give_up(callers)
        );
        let excused = shared.unavailable.load(Ordering::SeqCst);
        disturb(turn, &mut proxy, &mut runtime, &mut hooks)?;
        let before = shared.calls.load(Ordering::SeqCst);
        let limit = Instant::now() + Duration::from_secs(60);
        while shared.calls.load(Ordering::SeqCst) < before + 500 {
            ensure!(Instant::now() < limit, "calls no longer get answers; turn {turn}\n{}", tail(&proxy));
            ensure!(
                !callers.iter().any(thread::JoinHandle::is_finished),
                "a caller gave up: {:?}",
                give_up(callers)
            );
            thread::sleep(Duration::from_millis(5));
        }
        let unavailable = shared.unavailable.load(Ordering::SeqCst) - excused;
        ensure!(
            unavailable == 0 || RUNTIME_RESTARTS.contains(&(turn % TURNS)),
            "{unavailable} calls ended UNAVAILABLE in turn {turn}, in which the runtime was there\n{}",
            tail(&proxy)
        );
        runtime.forget_calls();
        hooks.server().forget_calls();
        samples.push(sample(&proxy)?);
        turn += 1;
    }
    shared.stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.join().map_err(|_| anyhow!("a caller panicked"))?.context("a caller gave up")?;
    }
    let calls = shared.calls.load(Ordering::SeqCst);
    let unavailable = shared.unavailable.load(Ordering::SeqCst);
    println!("{turn} turns, {calls} calls, {unavailable} of them UNAVAILABLE while the runtime restarted");
    judge(&samples, &proxy, &cri)
}

fn give_up(callers: Vec<thread::JoinHandle<anyhow::Result<()>>>) -> Vec<String> {
    let finished = callers.into_iter().filter(thread::JoinHandle::is_finished);
    finished.map(|caller| format!("{:?}", caller.join().map_err(|_| "panic"))).collect()
}

fn tail(proxy: &Proxy) -> String {
    let log = proxy.log();
    log.get(log.len().saturating_sub(4_096)..).unwrap_or(&log).to_owned()
}

/// A fault of this turn.
fn disturb(
    turn: usize,
    proxy: &mut Proxy,
    runtime: &mut FakeRuntime,
    hooks: &mut FakeHookServer,
) -> anyhow::Result<()> {
    let directory = proxy.place.hooks();
    match turn % TURNS {
        0 => {
            hooks.listen()?;
            hooks.script(Script::Echo);
        }
        1 => hooks.script(Script::Crash),
        2 => hooks.script(Script::Bytes(vec![0xff; 64])),
        3 => hooks.script(Script::Hang),
        4 => {
            hooks.script(Script::Echo);
            hooks.kill();
        }
        5 => {
            hooks.listen()?;
            runtime.listen()?;
        }
        6 => hostile(proxy)?,
        7 => std::fs::remove_file(directory.join("soak.json"))?,
        8 => hooks.register(&directory, "soak.json", "Ignore", &ALL_HOOKS)?,
        _ => {
            proxy.signal(Signal::SIGHUP);
            proxy.wait_successor();
        }
    }
    Ok(())
}

fn hostile(proxy: &Proxy) -> anyhow::Result<()> {
    let socket = proxy.place.socket();
    proxy.client().reset_flood(&CallHead::new(runtime_path("RunPodSandbox")), 500, code::CANCEL);
    let mut bomb = ByteClient::greet(&socket)?;
    let mut junk = ByteClient::connect(&socket)?;
    for frame in Frame::headers(1, &hpack_bomb(4_000, 20_000), true, None) {
        // The other end may close while we write.
        let _ = bomb.send_frame(&frame);
    }
    let _ = junk.send(&[0x55; 10_000]);
    Ok(())
}

/// Runs pods until told to stop, and then until each removal has been answered: of a pod that was removed without an answer
/// the store learns at its next look at the runtime only. UNAVAILABLE is counted, any other failure ends the run.
fn caller(number: u32, shared: &Shared, client: &mut SteadyClient) -> anyhow::Result<()> {
    let mut call = |method: &str, message: Vec<u8>| -> anyhow::Result<Option<Vec<u8>>> {
        let answer =
            client.call(&CallHead::new(runtime_path(method)), &message).context(method.to_owned())?;
        shared.calls.fetch_add(1, Ordering::SeqCst);
        match answer.status() {
            Some(0) => Ok(Some(answer.message())),
            Some(14) => {
                shared.unavailable.fetch_add(1, Ordering::SeqCst);
                Ok(None)
            }
            _ => Err(anyhow!("{method}: {} {:?} {:?}", answer.status_message(), answer.reset, answer.lost)),
        }
    };
    let mut round = 0_u64;
    // Pods whose removal has not been answered yet.
    let mut left = Vec::new();
    loop {
        let stopping = shared.stop.load(Ordering::SeqCst);
        if stopping && left.is_empty() {
            return Ok(());
        }
        round += 1;
        let config = pod_config("pod", &format!("uid-{number}-{round}"), "default", "/kubepods/burstable");
        let run = v1::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        if !stopping && let Some(message) = call("RunPodSandbox", run.encode_to_vec())? {
            let pod = decode::<v1::RunPodSandboxResponse>(&message).pod_sandbox_id;
            left.push(pod.clone());
            let create = v1::CreateContainerRequest {
                pod_sandbox_id: pod,
                config: Some(container_config("main", v1::LinuxContainerResources::default())),
                sandbox_config: Some(config),
            };
            if let Some(message) = call("CreateContainer", create.encode_to_vec())? {
                let container_id = decode::<v1::CreateContainerResponse>(&message).container_id;
                let start = v1::StartContainerRequest { container_id: container_id.clone() };
                call("StartContainer", start.encode_to_vec())?;
                let linux = Some(v1::LinuxContainerResources { cpu_shares: 512, ..Default::default() });
                let update = v1::UpdateContainerResourcesRequest {
                    container_id: container_id.clone(),
                    linux,
                    ..Default::default()
                };
                call("UpdateContainerResources", update.encode_to_vec())?;
                call("StopContainer", v1::StopContainerRequest { container_id, timeout: 0 }.encode_to_vec())?;
            }
        }
        call("ListContainers", Vec::new())?;
        let mut kept = Vec::new();
        for pod_sandbox_id in left {
            let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            let stopped = call("StopPodSandbox", stop.encode_to_vec())?;
            let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
            if stopped.is_none() || call("RemovePodSandbox", remove.encode_to_vec())?.is_none() {
                kept.push(pod_sandbox_id);
            }
        }
        left = kept;
    }
}

fn sample(proxy: &Proxy) -> anyhow::Result<Sample> {
    let count = |name: &str| -> anyhow::Result<usize> {
        let path = format!("/proc/{}/{name}", proxy.pid());
        Ok(std::fs::read_dir(&path).context(path)?.count())
    };
    let resident = u32::try_from(proxy.resident_kib())?;
    Ok(Sample { resident_kib: f64::from(resident), descriptors: count("fd")?, threads: count("task")? })
}

fn judge(samples: &[Sample], proxy: &Proxy, cri: &FakeCri) -> anyhow::Result<ExitCode> {
    let quarter = samples.len() / 4;
    let middle = |samples: &[Sample]| median(samples.iter().map(|sample| sample.resident_kib).collect());
    let most = |samples: &[Sample], of: fn(&Sample) -> usize| samples.iter().map(of).max().unwrap_or(0);
    let (early, late) = (&samples[quarter..quarter * 2], &samples[samples.len() - quarter..]);
    let mut failures = Vec::new();
    if let (Some(before), Some(after)) = (middle(early), middle(late)) {
        println!("resident memory: {before:.0} KiB in the second quarter, {after:.0} KiB in the last");
        if after > before * 1.25 + 2_048.0 {
            failures.push("resident memory grows");
        }
    }
    for (name, of) in [
        ("descriptors", (|sample| sample.descriptors) as fn(&Sample) -> usize),
        ("threads", |sample| sample.threads),
    ] {
        let (before, after) = (most(early, of), most(late, of));
        println!("{name}: at most {before} in the second quarter, {after} in the last");
        if after > before + 16 {
            failures.push(name);
        }
    }
    // Pods whose creation was not answered stay in the runtime; the store knows them after its next look.
    let records = proxy.metric("koord_runtime_proxy_store_records", &["kind=\"pod\""]);
    let (pods, _) = cri.counts();
    println!("pods left: {pods} in the runtime, {records} in the store");
    if records > f64::from(u32::try_from(pods)?) {
        failures.push("the store keeps pods that the runtime no longer has");
    }
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
