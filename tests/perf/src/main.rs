//! Measures what a CRI proxy adds to a call.
//!
//! One run measures, in turn and round by round: the backend itself (`direct`), a relay that copies bytes (`echo`),
//! the proxy (`relay`), a relay of two HTTP/2 endpoints (`hyper`), and any other proxy given by its socket. The
//! load, the backend and the measuring are in this process; every relay is a process of its own, whose CPU time is
//! read from the kernel.
//!
//! Another run, `hooks`, measures in the same way what the proxy's rules and hooks add to a call that is only held. A third,
//! `usage`, measures what it costs to sample the usage of pods.

#![expect(clippy::print_stdout, reason = "a report for people is this program's purpose")]

mod backend;
mod bench;
mod echo;
mod frames;
mod held;
mod hooks_bench;
mod hyper_relay;
mod load;
mod messages;
mod process;
mod report;
mod route;
mod soak;
mod usage_bench;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "Measures what a CRI proxy adds to a call")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the benchmark, print its table and write the figures.
    Run(bench::Options),
    /// Measure what rules, hook plugins and a hook server add to a held call, and write the figures.
    Hooks(hooks_bench::Options),
    /// Measure what sampling the usage of pods costs, and write the figures.
    Usage(usage_bench::Options),
    /// A process that the run above starts.
    #[command(hide = true)]
    UsageChild(usage_bench::ChildOptions),
    /// Copy bytes between a socket and the backend: one thread and poll(2) per connection.
    Echo(Sockets),
    /// Relay with hyper's HTTP/2 server and client on one thread.
    Hyper(Sockets),
    /// The proxy's relay with an interceptor that adds an annotation to pods.
    Held(Sockets),
    /// Run the proxy under load and faults and look for leaks and failed calls.
    Soak(soak::Options),
    /// Only the backend, for measuring a proxy with other tools.
    Backend {
        /// Socket to listen on.
        #[arg(long)]
        listen: PathBuf,
    },
}

#[derive(Debug, Clone, clap::Args)]
struct Sockets {
    /// Socket to listen on.
    #[arg(long)]
    listen: PathBuf,
    /// Socket of the backend.
    #[arg(long)]
    backend: PathBuf,
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run(options) => return bench::run(&options),
        Command::Hooks(options) => return hooks_bench::run(&options),
        Command::Usage(options) => return usage_bench::run(&options),
        Command::UsageChild(options) => usage_bench::run_child(&options)?,
        Command::Soak(options) => return soak::run(&options),
        Command::Echo(sockets) => echo::serve(&sockets.listen, &sockets.backend)?,
        Command::Held(sockets) => held::serve(&sockets.listen, &sockets.backend)?,
        Command::Hyper(sockets) => hyper_relay::serve(&sockets.listen, &sockets.backend)?,
        Command::Backend { listen } => {
            backend::Backend::start(&listen, messages::Case::RELAY.map(messages::Case::path))?.wait()
        }
    }
    Ok(ExitCode::SUCCESS)
}
