//! `docs/koordctl-commands.md` against the command line. `KOORD_REWRITE_GOLDEN=1` writes it.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command};

const HEADER: &str = "\
# Commands of koordctl

Made from the program's command line by its tests; do not edit it by hand. What the commands show and how to read it is in
[koordctl.md](koordctl.md).

";

fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// How an argument is written.
fn written(argument: &Arg) -> String {
    let values: Vec<String> = match argument.get_value_names() {
        Some(names) if argument.get_action().takes_values() => {
            names.iter().map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    };
    let value = values.join(" ");
    let mut names = Vec::new();
    names.extend(argument.get_short().map(|short| format!("-{short}")));
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    match (names.join(", "), value.is_empty()) {
        (names, true) => names,
        (names, false) if names.is_empty() => match argument.is_required_set() {
            true => value,
            false => format!("[{value}]"),
        },
        (names, false) => format!("{names} {value}"),
    }
}

/// What it means, which words it takes and what it is by default.
fn meaning(argument: &Arg) -> String {
    let mut text = cell(&argument.get_help().map(ToString::to_string).unwrap_or_default());
    let words: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|word| argument.get_action().takes_values() && !word.is_hide_set())
        .map(|word| match word.get_help() {
            Some(help) => format!("`{}` ({})", word.get_name(), cell(&help.to_string())),
            None => format!("`{}`", word.get_name()),
        })
        .collect();
    if !words.is_empty() {
        let _infallible = write!(text, ": {}", words.join(", "));
    }
    let default: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if !default.is_empty() && argument.get_action().takes_values() {
        let _infallible = write!(text, "; default `{}`", default.join(" "));
    }
    text
}

fn table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let rows: Vec<String> = arguments
        .filter(|argument| {
            !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
        })
        .map(|argument| format!("| `{}` | {} |\n", cell(&written(argument)), meaning(argument)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n| argument | meaning |\n|---|---|\n{}", rows.concat())
}

/// The commands below one, in their order. Those that are hidden from the help page are documented all the same.
fn commands(command: &Command, before: &str, text: &mut String) {
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        let name = format!("{before} {}", inner.get_name());
        if inner.has_subcommands() {
            commands(inner, &name, text);
            continue;
        }
        let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
        let _infallible = write!(text, "\n## {}\n\n{}.\n", name.trim_start(), cell(&about));
        text.push_str(&table(inner.get_arguments().filter(|argument| !argument.is_global_set())));
    }
}

fn document() -> String {
    let command = koordctl::command(None);
    let mut text = HEADER.to_owned();
    text.push_str("## Options of every command\n");
    text.push_str(&table(command.get_arguments()));
    commands(&command, "", &mut text);
    let _infallible = write!(text, "\n## Exit codes\n\n```text\n{}\n```\n", koordctl::arguments::EXIT_CODES);
    text
}

#[test]
fn every_command_and_option_is_documented() {
    let text = document();
    for wanted in [
        "## node enable",
        "## top pods",
        "| `--dry-run` | Show checks, differences of files and commands, and change nothing |",
        "| `[POD\\|CONTAINER]` |",
    ] {
        assert!(text.lines().any(|line| line.starts_with(wanted)), "no line {wanted}\n{text}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/koordctl-commands.md");
    if std::env::var_os("KOORD_REWRITE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("a document can be written");
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(present == text, "{} is not what KOORD_REWRITE_GOLDEN=1 would write:\n{text}", path.display());
}
