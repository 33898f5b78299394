//! The `koordlet` program.

use std::io::Write as _;
use std::process::ExitCode;

use koord_runtime::exit::Exit;
use koordlet::flags::{self, AgentMode, Command, Surroundings};

fn main() -> ExitCode {
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    let surroundings =
        Surroundings { node_name: text("NODE_NAME"), mode: AgentMode::from_text(&text("agent_mode")) };
    match flags::command(std::env::args_os().skip(1), &surroundings) {
        Ok(Command::Help) => print(&flags::help()),
        Ok(_) => Exit::Success.into(),
        Err(mistakes) => {
            complain(&mistakes.to_string());
            Exit::Usage.into()
        }
    }
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
