//! The `koordlet` program.

use std::io::Write as _;
use std::process::ExitCode;

use koord_cgroup::layout::DetectError;
use koord_kube::client::{ConfigError, Source};
use koord_runtime::environment::Environment;
use koord_runtime::error_chain::Chain;
use koord_runtime::exit::Exit;
use koord_runtime::telemetry::{self, LogOutput};
use koordlet::dump::dump;
use koordlet::flags::{self, AgentMode, Command, Config, Surroundings};
use koordlet::serve::{Start, serve};

/// Threads of the async runtime. The sampler has one of its own.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    let environment = Environment::from_process();
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let surroundings =
        Surroundings { node_name: text("NODE_NAME"), mode: AgentMode::from_text(&text("agent_mode")) };
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let config = match flags::command(arguments, &surroundings) {
        Ok(Command::Serve(config)) => *config,
        Ok(Command::Validate(_)) => return print("the flags are good\n"),
        Ok(Command::Dump { config, explain, object }) => {
            return match dump(&config.process.admin_socket, &object, explain) {
                Ok(text) => print(&text),
                Err(error) => {
                    complain(&Chain(&error).to_string());
                    Exit::RuntimeError.into()
                }
            };
        }
        Ok(Command::Help) => return print(&flags::help()),
        Ok(Command::Version) => return print(concat!("koordlet ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(mistakes) => {
            complain(&mistakes.to_string());
            return Exit::Usage.into();
        }
    };
    let (host, port) = (text("KUBERNETES_SERVICE_HOST"), text("KUBERNETES_SERVICE_PORT"));
    let server = match Source::choose(config.process.kubeconfig.clone(), Some(&host), Some(&port)) {
        Ok(server) => server,
        Err(error) => {
            complain(&format!("--kubeconfig: {}", Chain(&error)));
            return Exit::Usage.into();
        }
    };
    match run(config, environment, server) {
        Ok(exit) => exit.into(),
        Err(error) => {
            complain(&format!("{error:#}"));
            // What the flags name is not there or not what it should be; anything else may pass.
            let of_flags = error.is::<DetectError>() || error.is::<ConfigError>();
            if of_flags { Exit::Usage.into() } else { Exit::RuntimeError.into() }
        }
    }
}

fn run(config: Config, environment: Environment, server: Source) -> anyhow::Result<Exit> {
    let log =
        telemetry::set_up(LogOutput::of(&environment), config.process.log_format, config.process.verbosity)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(4)
        .thread_name("koordlet-async")
        .enable_all()
        .build()?;
    let exit = runtime.block_on(serve(Start { config, environment, server, log }));
    // Nothing that still runs may hold up the end.
    runtime.shutdown_background();
    exit
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Exit::Success.into(),
        Err(_) => Exit::RuntimeError.into(),
    }
}

fn complain(text: &str) {
    // There is nowhere else to say it.
    let _ = writeln!(std::io::stderr(), "koordlet: {}", text.trim_end());
}
