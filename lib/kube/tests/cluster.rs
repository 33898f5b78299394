//! The crate against a real API server. `tests/cluster/kube` starts the server and this program, which talks with it on
//! standard input and output: a line `> ACTION` asks the bed to do something, which answers with a line when it is done.
//!
//! Without `KOORD_CLUSTER=1` it does nothing: `cargo test` has no API server.

#![allow(clippy::print_stdout, reason = "its output is for the bed and for people")]
#![allow(clippy::unwrap_used, reason = "what is not as a scenario needs it ends the run, with the place")]

#[path = "cluster/bed.rs"]
mod bed;
#[path = "cluster/candidate.rs"]
mod candidate;
#[path = "cluster/scenarios.rs"]
mod scenarios;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::var("KOORD_CLUSTER").as_deref() != Ok("1") {
        println!("not run: tests/cluster/kube runs it with an API server");
        return ExitCode::SUCCESS;
    }
    let Some(kubeconfig) = std::env::var_os("KUBECONFIG") else {
        eprintln!("KOORD_CLUSTER=1 asks for a run against an API server, and KUBECONFIG names none");
        return ExitCode::FAILURE;
    };
    if std::env::var_os("KOORD_CLUSTER_LOG").is_some() {
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(std::io::stderr).init();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["scenarios"] => runtime.block_on(scenarios::run(kubeconfig.into())),
        ["candidate", name] => runtime.block_on(candidate::run(kubeconfig.into(), name)),
        other => {
            eprintln!("unknown arguments {other:?}: scenarios, or candidate NAME");
            ExitCode::FAILURE
        }
    }
}
