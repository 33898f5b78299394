//! The `koordctl` program, also installed as `kubectl-koord`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use koordctl::surroundings::{Surroundings, Terminal};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    // `hooks test` has a library loaded by a child of this program.
    if let Some(code) = koord_hooks::isolated::main_if_child(arguments.iter().skip(1).cloned()) {
        return code;
    }
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let on_screen = stdout.is_terminal();
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let terminal = Terminal {
        width: columns(on_screen),
        height: lines(on_screen),
        // https://no-color.org: any value but the empty one switches colours off.
        color: on_screen && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
        can_ask: on_screen && stdin.is_terminal(),
    };
    let mut surroundings = Surroundings {
        terminal,
        input: &mut stdin.lock(),
        output: &mut std::io::BufWriter::new(stdout.lock()),
        complaints: &mut std::io::stderr(),
    };
    koordctl::run(arguments, &mut surroundings).into()
}

/// Width of the screen. `COLUMNS`, if it is exported, beats what the terminal says.
fn columns(on_screen: bool) -> Option<usize> {
    let exported =
        std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|width| *width > 0);
    let asked = || {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        (on_screen && size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    exported.or_else(asked)
}

/// Height of the screen; that of the oldest terminals if it does not tell.
fn lines(on_screen: bool) -> Option<usize> {
    let asked = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_row));
    on_screen.then(|| asked.filter(|lines| *lines > 0).unwrap_or(24))
}
