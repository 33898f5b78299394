//! A program that is nothing but the child of a hook library: for hosts that are not programs themselves, as tests
//! are. The proxy is its own child.

use std::process::ExitCode;

fn main() -> ExitCode {
    koord_hooks::isolated::main_if_child(std::env::args_os().skip(1)).unwrap_or(ExitCode::FAILURE)
}
