//! Rules about Rust sources.

use super::crates::PURE_CRATES;
use super::{Finding, Repository, TextFile};

/// The lines that run in a program: without comments and without tests.
fn program_lines(file: &TextFile) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = file.text.lines().collect();
    // Tests come last in a file, so everything after their start is tests.
    let end = lines
        .windows(2)
        .position(|pair| pair[0].trim() == "#[cfg(test)]" && pair[1].trim_end().ends_with('{'))
        .unwrap_or(lines.len());
    (1..).zip(lines.into_iter().take(end)).filter_map(|(number, line)| {
        let code = line.split("//").next().unwrap_or(line);
        (!code.trim().is_empty()).then_some((number, code))
    })
}

/// A file that is compiled for tests only, or is a chore of the repository.
fn is_for_tests(repository: &Repository, file: &TextFile) -> bool {
    let in_folder =
        |name: &str| file.path.contains(&format!("/{name}/")) || file.path.starts_with(&format!("{name}/"));
    file.name() == "tests.rs"
        || in_folder("tests")
        || in_folder("benches")
        || in_folder("examples")
        || file.path.starts_with("xtask/")
        || file.path.starts_with("fuzz/")
        || is_test_module(repository, file)
}

/// Declared as a module for tests by the crate's root.
fn is_test_module(repository: &Repository, file: &TextFile) -> bool {
    let Some((folder, name)) = file.path.rsplit_once('/') else { return false };
    let declaration = format!(
        "#[cfg(test)]
mod {};
",
        name.trim_end_matches(".rs")
    );
    repository.file(&format!("{folder}/lib.rs")).is_some_and(|root| root.text.contains(&declaration))
}

fn program_sources(repository: &Repository) -> impl Iterator<Item = &TextFile> {
    repository.sources().filter(|file| !is_for_tests(repository, file))
}

/// Lines of `files` that hold one of `patterns`, each with the message for it.
fn lines_with<'a>(
    files: impl Iterator<Item = &'a TextFile>,
    patterns: &[&str],
    message: &str,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files {
        for (number, code) in program_lines(file) {
            for pattern in patterns.iter().filter(|pattern| code.contains(**pattern)) {
                found.push(Finding::new(&file.path, number, format!("{}: {message}", pattern.trim())));
            }
        }
    }
    found
}

/// The files in which the program meets code in C: what they need cannot be said in safe Rust. Types of C functions may
/// stand in the first of them, without a block that calls one.
pub(super) const BORDERS: [&str; 4] = [
    "hooks/sdk/src/abi.rs",
    "hooks/sdk/src/export.rs",
    "hooks/sdk/src/export/tests.rs",
    "hooks/host/src/library/native.rs",
];

/// The compiler refuses it as well; this finds attempts to switch that off.
pub(super) fn no_unsafe(repository: &Repository) -> Vec<Finding> {
    let keyword = ["un", "safe"].concat();
    let mut found = Vec::new();
    for file in repository.sources().filter(|file| !file.path.starts_with("xtask/src/tidy")) {
        if BORDERS.contains(&file.path.as_str()) {
            continue;
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let code = line.split("//").next().unwrap_or(line);
            let used = [" {", " fn", " impl", " trait", " extern", "_code)"]
                .iter()
                .any(|after| code.contains(&format!("{keyword}{after}")));
            if used {
                found.push(Finding::new(&file.path, number, format!("{keyword} code is not allowed here")));
            }
        }
    }
    found
}

/// Crates that decide are given what they need: no files, sockets, clocks, threads.
pub(super) fn pure_source(repository: &Repository) -> Vec<Finding> {
    let pure = program_sources(repository)
        .filter(|file| PURE_CRATES.iter().any(|folder| file.path.starts_with(&format!("{folder}/src/"))));
    let patterns = [
        "std::fs",
        "std::net",
        "std::os",
        "std::process",
        "std::thread",
        "std::env",
        "std::io::std",
        "Instant::now",
        "SystemTime::now",
        "println!",
        "thread::spawn",
        "thread::sleep",
    ];
    lines_with(pure, &patterns, "this crate does no I/O and reads no clock")
}

/// Values from outside come in through one place, and are handed on.
pub(super) fn environment(repository: &Repository) -> Vec<Finding> {
    let elsewhere = program_sources(repository)
        .filter(|file| file.name() != "main.rs" && file.path != "lib/runtime/src/environment.rs");
    let patterns = [
        "env::var(",
        "env::var_os(",
        "env::vars",
        "env::set_var",
        "env::remove_var",
        "env::args",
        "env::current_exe",
    ];
    lines_with(elsewhere, &patterns, "only main reads arguments and environment")
}

/// A task nobody owns is a task nobody stops.
pub(super) fn supervised(repository: &Repository) -> Vec<Finding> {
    let elsewhere = program_sources(repository).filter(|file| file.path != "lib/runtime/src/supervisor.rs");
    let patterns = ["tokio::spawn(", "task::spawn(", "thread::spawn(", "thread::Builder"];
    lines_with(elsewhere, &patterns, "use the supervisor of koord-runtime")
}
