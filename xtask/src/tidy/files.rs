//! Rules about files of every kind.

use super::{Finding, Repository, TextFile};

/// Past this a file is split by idea.
const MOST_LINES: usize = 1000;

/// Written by hand, as far as a script can tell.
fn handwritten(repository: &Repository) -> impl Iterator<Item = &TextFile> {
    repository.files.iter().filter(|file| !file.is_generated() && !file.is_vendored())
}

/// Data and prose may be as long as they are.
pub(super) fn length(repository: &Repository) -> Vec<Finding> {
    handwritten(repository)
        .filter(|file| !matches!(file.extension(), Some("json" | "md" | "txt" | "hex" | "csv" | "yaml")))
        .filter_map(|file| {
            let lines = file.text.lines().count();
            (lines > MOST_LINES).then(|| {
                Finding::new(&file.path, 0, format!("{lines} lines; split it by idea ({MOST_LINES} at most)"))
            })
        })
        .collect()
}

pub(super) fn no_mod_rs(repository: &Repository) -> Vec<Finding> {
    repository
        .files
        .iter()
        .filter(|file| file.name() == "mod.rs" && !file.is_generated())
        .map(|file| Finding::new(&file.path, 0, "use a file named after the module beside its folder"))
        .collect()
}

/// No notes to self, no conflict markers, no stray white space.
pub(super) fn clean_text(repository: &Repository) -> Vec<Finding> {
    // Put together here so that this file does not hold the words it looks for.
    let notes = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X:"].concat()];
    let mut found = Vec::new();
    // Test data is what some other program wrote, to the byte.
    for file in handwritten(repository).filter(|file| !file.path.starts_with("tests/vectors/")) {
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            found.push(Finding::new(
                &file.path,
                file.text.lines().count(),
                "no line end at the end of the file",
            ));
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            for note in &notes {
                if has_word(line, note) {
                    found.push(Finding::new(
                        &file.path,
                        number,
                        format!("{note}: finish it or write an issue"),
                    ));
                }
            }
            if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
                found.push(Finding::new(&file.path, number, "conflict marker"));
            }
            if line.ends_with([' ', '\t', '\r']) {
                found.push(Finding::new(&file.path, number, "white space at the end of the line"));
            }
        }
    }
    found
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = line[..start].chars().next_back().is_some_and(letter);
        let after = line[start + word.len()..].chars().next().is_some_and(letter);
        !before && !after
    })
}

/// Nothing depends on, or tells of, the machine it was written on; registries are reached through their
/// clients' own settings.
pub(super) fn no_foreign_places(repository: &Repository) -> Vec<Finding> {
    let hosts: Vec<String> = [
        &["crates", "io"][..],
        &["proxy", "golang", "org"],
        &["sum", "golang", "org"],
        &["pypi", "org"],
        &["registry", "npmjs", "org"],
        &["deb", "debian", "org"],
    ]
    .iter()
    .map(|parts| parts.join("."))
    .collect();
    let places: Vec<String> =
        [&["", "home", ""][..], &["", "Users", ""], &["", "work", ""], &["", "var", "tmp", "brief"]]
            .iter()
            .map(|parts| parts.join("/"))
            .collect();
    let mut found = Vec::new();
    for file in handwritten(repository) {
        for (number, line) in (1..).zip(file.text.lines()) {
            for host in hosts.iter().filter(|host| line.contains(host.as_str())) {
                found.push(Finding::new(&file.path, number, format!("names the registry host {host}")));
            }
            for place in places.iter().filter(|place| starts_path(line, place)) {
                found.push(Finding::new(
                    &file.path,
                    number,
                    format!("names a place on some machine: {place}"),
                ));
            }
        }
    }
    found
}

/// True if `place` stands in `line` as the start of an absolute path.
fn starts_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| {
            c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | ')' | '/' | '*' | '$')
        })
    })
}

/// Every folder of protocol files says where they come from and which version they are.
pub(super) fn pinned_protocols(repository: &Repository) -> Vec<Finding> {
    let mut folders: Vec<&str> = repository
        .files
        .iter()
        .filter(|file| file.path.starts_with("api/") && file.extension() == Some("proto"))
        .filter_map(|file| file.path.find("/proto/").map(|at| &file.path[..at]))
        .collect();
    folders.dedup();
    let mut found = Vec::new();
    for folder in folders {
        let path = format!("{folder}/proto/PIN");
        match repository.file(&path) {
            None => found.push(Finding::new(path, 0, "is missing; name project, version, path and licence")),
            Some(pin) => {
                for key in ["project:", "version:", "path:", "licence:"] {
                    let given = pin
                        .text
                        .lines()
                        .any(|line| line.strip_prefix(key).is_some_and(|value| !value.trim().is_empty()));
                    if !given {
                        found.push(Finding::new(&path, 0, format!("has no line {key}")));
                    }
                }
            }
        }
    }
    found
}
