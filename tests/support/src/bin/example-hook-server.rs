//! An example hook server for the CRI proxy.
//!
//! It registers itself, echoes what it is asked, and sets the fields given on its command line:
//!
//! ```text
//! example-hook-server --socket /run/example.sock --register /etc/runtime/hookserver.d/example.json --cpu-shares 512
//! ```

use std::path::PathBuf;

use clap::Parser;
use koord_testing::example::{ExampleOptions, Overrides, serve};
use koord_testing::hooks::ALL_HOOKS;
use tokio::signal::unix::{SignalKind, signal};

/// Answers the runtime hooks of a CRI proxy.
#[derive(Debug, Parser)]
struct Arguments {
    /// Socket to listen on; a stale file is replaced.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Registration file to write once the socket answers; removed at the end.
    #[arg(long, value_name = "FILE")]
    register: Option<PathBuf>,
    /// Hook types to register for, separated by commas; all seven when absent.
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    hooks: Vec<String>,
    /// What a failed hook does to the call.
    #[arg(long, default_value = "Ignore", value_parser = ["Ignore", "Fail"])]
    policy: String,
    /// Set the CPU shares of containers.
    #[arg(long, value_name = "N")]
    cpu_shares: Option<i64>,
    /// Set the CPU quota, microseconds per period; -1 is no limit.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    cpu_quota: Option<i64>,
    /// Set the CPU period, microseconds.
    #[arg(long, value_name = "N")]
    cpu_period: Option<i64>,
    /// Set the memory limit, bytes.
    #[arg(long, value_name = "BYTES")]
    memory: Option<i64>,
    /// Set the CPUs, such as 0-3,8.
    #[arg(long, value_name = "LIST")]
    cpuset: Option<String>,
    /// Set the OOM score adjustment, -1000 to 1000.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    oom_score_adj: Option<i64>,
    /// Add an annotation to pods and containers; may be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    annotation: Vec<(String, String)>,
    /// Set the cgroup parent of pods.
    #[arg(long, value_name = "PATH")]
    cgroup_parent: Option<String>,
    /// Only echo; refused together with fields to set.
    #[arg(long, conflicts_with_all = [
        "cpu_shares", "cpu_quota", "cpu_period", "memory", "cpuset", "oom_score_adj", "annotation", "cgroup_parent",
    ])]
    echo: bool,
    /// File that gets one JSON line per call.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

fn annotation(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let hooks =
        if arguments.hooks.is_empty() { ALL_HOOKS.map(str::to_owned).to_vec() } else { arguments.hooks };
    let options = ExampleOptions {
        socket: arguments.socket,
        register: arguments.register,
        policy: arguments.policy,
        hooks,
        overrides: Overrides {
            cpu_shares: arguments.cpu_shares,
            cpu_quota: arguments.cpu_quota,
            cpu_period: arguments.cpu_period,
            memory: arguments.memory,
            cpuset: arguments.cpuset,
            oom_score_adj: arguments.oom_score_adj,
            annotations: arguments.annotation.into_iter().collect(),
            cgroup_parent: arguments.cgroup_parent,
        },
        log: arguments.log,
    };
    serve(options, async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await
}
