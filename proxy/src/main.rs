//! The `koord-runtime-proxy` program.

use std::io::Write as _;
use std::process::ExitCode;

use koord_runtime::environment::{Environment, HandoverRole};
use koord_runtime::exit::Exit;
use koord_runtime::notify::{Notification, Notifier};
use koord_runtime::telemetry::{self, LogOutput};
use koord_runtime_proxy::admin::Build;
use koord_runtime_proxy::failpoint::Failpoints;
use koord_runtime_proxy::flags::{self, Command, Config, Unchecked};
use koord_runtime_proxy::handover::{self, Program};
use koord_runtime_proxy::serve::{Start, serve};
use koord_runtime_proxy::validate::{Reader, Report, configuration, validate};

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
        Ok(Command::ServeWith(unchecked)) => match configuration(&unchecked) {
            Ok(config) => config,
            Err(report) => return refuse(&report, &environment),
        },
        Ok(Command::Validate(unchecked)) => return check(&unchecked, &environment),
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
    let log = telemetry::set_up(LogOutput::of(&environment), config.log_format.into(), config.verbosity)?;
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

fn check(unchecked: &Unchecked, environment: &Environment) -> ExitCode {
    let report = validate(unchecked);
    if report.mistakes.is_empty() {
        return print(&report.text(reader(environment)));
    }
    refuse(&report, environment)
}

fn reader(environment: &Environment) -> Reader {
    if environment.journal { Reader::Journal } else { Reader::Plain }
}

fn refuse(report: &Report, environment: &Environment) -> ExitCode {
    let text = report.text(reader(environment));
    // There is nowhere else to say it.
    let _ = std::io::stderr().write_all(text.as_bytes());
    // Run by the service manager before a start or a reload, it tells there too why that did not happen.
    if let (Some(status), Ok(notifier)) =
        (report.status(), Notifier::new(environment.notify_socket.as_deref()))
    {
        notifier.tell(&[Notification::Status(status)]);
    }
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
