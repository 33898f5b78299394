//! The `koord-runtime-proxy` program.

use std::io::Write as _;
use std::process::ExitCode;

use koord_runtime::environment::{Environment, HandoverRole};
use koord_runtime::exit::Exit;
use koord_runtime::telemetry;
use koord_runtime_proxy::admin::Build;
use koord_runtime_proxy::failpoint::Failpoints;
use koord_runtime_proxy::flags::{self, Command, Config};
use koord_runtime_proxy::handover::{self, Program};
use koord_runtime_proxy::serve::{Start, serve};
use koord_runtime_proxy::trust::Trust;
use koord_runtime_proxy::validate::validate;

/// Threads of the async runtime: hooks, admin, and following the world. The relay has threads of its own.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    // Before anything else: a process that hosts a plugin is nothing of this program.
    if let Some(code) = koord_hooks::isolated::main_if_child(std::env::args_os().skip(1)) {
        return code;
    }
    let environment = Environment::from_process();
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let config = match flags::command(arguments.iter().cloned()) {
        Ok(Command::Serve(config)) => *config,
        Ok(Command::Validate(config)) => return check(&config),
        Ok(Command::Help) => return print(&flags::help()),
        Ok(Command::Version) => return print(&format!("{}\n", Build::THIS)),
        Err(mistakes) => {
            complain(&mistakes.to_string());
            return Exit::Usage.into();
        }
    };
    match run(config, environment, arguments) {
        Ok(exit) => exit.into(),
        Err(error) => {
            complain(&format!("{error:#}"));
            Exit::RuntimeError.into()
        }
    }
}

fn run(config: Config, environment: Environment, arguments: Vec<std::ffi::OsString>) -> anyhow::Result<Exit> {
    if environment.handover == Some(HandoverRole::Launch) {
        let file =
            environment.program.ok_or_else(|| anyhow::anyhow!("the file of this program is not known"))?;
        handover::launch(&Program { file, arguments })?;
        return Ok(Exit::Success);
    }
    let log = telemetry::set_up(config.log_format.into(), config.verbosity)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(8)
        .thread_name("koord-async")
        .enable_all()
        .build()?;
    let exit =
        runtime.block_on(serve(Start { config, environment, arguments, log, failpoints: failpoints()? }));
    // Nothing that still runs may hold up the end.
    runtime.shutdown_background();
    exit
}

fn check(config: &Config) -> ExitCode {
    let report = validate(config, &Trust::of_this_process());
    if report.mistakes.is_empty() {
        return print(&report.text());
    }
    complain(&report.text());
    Exit::Usage.into()
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Exit::Success.into(),
        Err(_) => Exit::RuntimeError.into(),
    }
}

fn complain(text: &str) {
    // There is nowhere else to say it.
    let _ = writeln!(std::io::stderr(), "koord-runtime-proxy: {}", text.trim_end());
}

/// Points at which tests stop the process, from `KOORD_FAILPOINTS`.
#[cfg(feature = "failpoints")]
fn failpoints() -> anyhow::Result<Failpoints> {
    Ok(Failpoints::parse(&std::env::var("KOORD_FAILPOINTS").unwrap_or_default())?)
}

#[cfg(not(feature = "failpoints"))]
fn failpoints() -> anyhow::Result<Failpoints> {
    Ok(Failpoints::default())
}
