//! What sampling a node's usage costs.
//!
//! Real control groups are made, empty ones, for so many pods of two containers each. A child process samples them with the
//! library, completes and keeps each pass; another reads the same figures as agents usually do: every file looked up, opened,
//! read and closed, every second. Passes follow each other faster than once a second, with a rest in between; what is read in
//! turns is read in as many passes as it would be. CPU is that of the thread, so other work on the machine makes it no larger
//! than its caches do.

mod naive;
mod report;
mod tree;

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use koord_cgroup::system_file::SystemRoots;
use koord_usage::complete::{Completion, CompletionOptions};
use koord_usage::inventory::Inventory;
use koord_usage::kind::Kind;
use koord_usage::sampler::{
    Collector, CollectorState, Sampler, SamplerOptions, Stop, raise_descriptor_limit,
};
use koord_usage::store::{Retention, Store};
use koord_usage::time::Tick;
use nix::unistd::Pid;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::bench::resident;
use report::{Results, Size};
use tree::Groups;

/// Passes after which every window of pods is full: 5 min, and some to warm up.
const PASSES: u64 = 320;

/// Passes whose CPU is not counted: files are opened in the first ones.
const WARM_UP: u64 = 20;

/// Passes of the usual way.
const NAIVE_PASSES: u64 = 10;

/// Options of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Numbers of pods, separated by commas; each has two containers.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 250, 1000])]
    pods: Vec<usize>,
    /// Rest between two passes, in milliseconds. With 1000 passes are as far apart as in a program.
    #[arg(long, default_value_t = 10)]
    rest_ms: u64,
    /// Passes of the library.
    #[arg(long, default_value_t = PASSES)]
    passes: u64,
    /// File for the figures.
    #[arg(long, default_value = "target/bench/usage.json")]
    out: PathBuf,
    /// End with status 1 when a target does not hold.
    #[arg(long)]
    check: bool,
}

/// Options of a child process.
#[derive(Debug, clap::Args)]
pub(crate) struct ChildOptions {
    /// Name of the groups.
    #[arg(long)]
    name: String,
    /// Number of pods.
    #[arg(long)]
    pods: usize,
    /// Rest between two passes.
    #[arg(long)]
    rest_ms: u64,
    /// Passes.
    #[arg(long)]
    passes: u64,
    /// Read as agents usually do.
    #[arg(long)]
    naive: bool,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    #![expect(clippy::print_stdout, reason = "a report for people is this program's purpose")]
    ensure!(options.passes > WARM_UP, "--passes: more than {WARM_UP}");
    let mut results = Results::default();
    for &pods in &options.pods {
        let name = format!("bench-of-usage-{}", std::process::id());
        let groups = Groups::make(&name, pods).with_context(|| format!("groups of {pods} pods"))?;
        let own = child(&name, pods, options.rest_ms, options.passes, false)?;
        let naive = child(&name, pods, options.rest_ms, NAIVE_PASSES, true)?;
        drop(groups);
        results.sizes.push(Size::new(pods, &own, &naive)?);
    }
    println!("{}", report::table(&results));
    let targets = report::targets(&results);
    for target in &targets {
        let verdict = if target.holds() { "holds" } else { "MISSED" };
        println!("{verdict:<7} {}: {:.2}, limit {:.2}", target.what, target.measured, target.limit);
    }
    if let Some(directory) = options.out.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(&options.out, format!("{:#}\n", report::to_json(&results)))
        .with_context(|| options.out.display().to_string())?;
    println!("\nfigures: {}", options.out.display());
    let missed = targets.iter().any(|target| !target.holds());
    Ok(if options.check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs this program again to measure one way.
fn child(name: &str, pods: usize, rest_ms: u64, passes: u64, naive: bool) -> anyhow::Result<Value> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("usage-child").args(["--name", name]);
    for (flag, value) in [("--pods", pods.to_string()), ("--rest-ms", rest_ms.to_string())] {
        command.args([flag, &value]);
    }
    command.args(["--passes", &passes.to_string()]);
    if naive {
        command.arg("--naive");
    }
    let output = command.output().context("the child process")?;
    ensure!(output.status.success(), "the child: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("what the child tells")
}

/// CPU time of this thread in nanoseconds.
fn cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Measures one way and prints its figures as JSON.
pub(crate) fn run_child(options: &ChildOptions) -> anyhow::Result<()> {
    #![expect(clippy::print_stdout, reason = "the parent process reads it")]
    let layout = tree::layout(&options.name)?;
    let inventory = tree::inventory(&layout, options.pods)?;
    let rest = Duration::from_millis(options.rest_ms);
    let figures = if options.naive {
        let mut cpu = 0;
        for _ in 0..options.passes {
            let before = cpu_time();
            naive::pass(&layout, &inventory)?;
            cpu += cpu_time() - before;
            std::thread::sleep(rest);
        }
        json!({ "cpu_us_per_pass": cpu / options.passes / 1000 })
    } else {
        sample(options, &layout, &Arc::new(inventory), rest)?
    };
    println!("{figures}");
    Ok(())
}

fn sample(
    options: &ChildOptions,
    layout: &koord_cgroup::layout::Layout,
    inventory: &Arc<Inventory>,
    rest: Duration,
) -> anyhow::Result<Value> {
    let descriptor_limit = raise_descriptor_limit() / 4 * 3;
    let sampling = SamplerOptions { descriptor_limit, ..SamplerOptions::default() };
    let interval = sampling.interval;
    let mut sampler = Sampler::new(sampling, layout.clone(), SystemRoots::default());
    let (store, mut completion) =
        (Store::new(Retention::default()), Completion::new(CompletionOptions::default()));
    let idle_kib = resident(Pid::this())?;
    let mut tick = Tick::now();
    let (mut sampling, mut keeping, mut worst, mut samples) = (0, 0, 0, 0);
    let mut pods = 0;
    for number in 0..options.passes {
        let start = cpu_time();
        let mut pass = sampler.sample(tick, inventory);
        let sampled = cpu_time();
        samples += pass.samples.len();
        pods = pass.samples.iter().filter(|sample| sample.kind == Kind::PodCpuUsage).count();
        completion.complete(&mut pass, inventory);
        store.record(&pass);
        let kept = cpu_time();
        if number >= WARM_UP {
            sampling += sampled - start;
            keeping += kept - sampled;
            worst = worst.max(kept - start);
        }
        tick = tick.ahead(interval);
        std::thread::sleep(rest);
    }
    let state = |collector| sampler.status().iter().find(|status| status.collector == collector);
    for collector in [Collector::Node, Collector::Pods] {
        let ready = state(collector)
            .is_some_and(|status| status.state == CollectorState::Ready && status.errors == 0);
        ensure!(ready, "the collector {collector} does not work: {:?}", state(collector));
    }
    ensure!(pods == options.pods, "only {pods} pods are read at the end: somebody removed groups");
    let counted = options.passes - WARM_UP;
    let stats = store.stats();
    let full_kib = resident(Pid::this())?;
    // The loop of a program: three ticks, to see how late they are.
    let mut lateness = Duration::ZERO;
    let mut ticks = 0;
    sampler.run(
        &Stop::default(),
        || Arc::clone(inventory),
        |_, _, sampler| {
            lateness = sampler.ticks().worst_lateness;
            ticks += 1;
            if ticks < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    );
    Ok(json!({
        "cpu_us_per_pass": (sampling + keeping) / counted / 1000,
        "sampling_us_per_pass": sampling / counted / 1000,
        "worst_us_per_pass": worst / 1000,
        "samples_per_pass": u64::try_from(samples)? / options.passes,
        "rss_kib": full_kib,
        "rss_idle_kib": idle_kib,
        "store_bytes": stats.bytes,
        "series": stats.series,
        "open_descriptors": sampler.open_descriptors(),
        "worst_lateness_us": u64::try_from(lateness.as_micros())?,
    }))
}
