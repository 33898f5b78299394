//! `docs/troubleshooting.md` has every message of the checks and of the switch, and none that does not exist.

use std::collections::BTreeSet;
use std::path::Path;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// Sources that have messages for people.
const SOURCES: [&str; 11] = [
    "checks.rs",
    "discover.rs",
    "journal.rs",
    "plan.rs",
    "real.rs",
    "switch.rs",
    "switch/back.rs",
    "switch/forth.rs",
    "switch/wait.rs",
    "systemd.rs",
    "yaml.rs",
];

fn read(path: &str) -> String {
    let path = Path::new(FOLDER).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// String literals of Rust with the parts that are filled in as line ends: `a {b} c` has the pieces `a ` and ` c`.
fn literals(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '/' if characters.peek() == Some(&'/') => while characters.next_if(|c| *c != '\n').is_some() {},
            // A letter between quotes may be a quote.
            '\'' if characters.peek() == Some(&'"') => {
                characters.next();
            }
            '"' => {
                let mut literal = String::new();
                while let Some(inner) = characters.next() {
                    match inner {
                        '"' => break,
                        '\\' => match characters.next() {
                            Some('\n') => while characters.next_if(|c| c.is_whitespace()).is_some() {},
                            Some('n') => literal.push('\n'),
                            Some(other) => literal.push(other),
                            None => break,
                        },
                        inner => literal.push(inner),
                    }
                }
                found.push(pieces(&literal));
            }
            _ => {}
        }
    }
    found
}

fn pieces(literal: &str) -> Vec<String> {
    let mut text = String::new();
    let mut depth = 0;
    for character in literal.chars() {
        match character {
            '{' => {
                depth += 1;
                text.push('\n');
            }
            '}' => depth = 0,
            '`' => {}
            character if depth == 0 => text.push(character),
            _ => {}
        }
    }
    text.split('\n').map(|piece| piece.trim().to_owned()).filter(|piece| !piece.is_empty()).collect()
}

/// The pieces of all literals of the sources, and those of messages a person must be told about.
fn messages() -> (String, BTreeSet<String>) {
    let (mut everything, mut wanted) = (String::new(), BTreeSet::new());
    for source in SOURCES {
        let text = read(&format!("src/{source}"));
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for pieces in literals(text) {
            for piece in &pieces {
                everything.push_str(piece);
                everything.push('\n');
            }
        }
        // Errors, texts of checks, and what discovery cannot understand.
        let parts: Vec<&str> = match source {
            "checks.rs" => vec![text.split("impl Situation {").nth(1).unwrap_or_default()],
            _ => text.split("#[error(").skip(1).filter_map(|rest| rest.split(")]").next()).collect(),
        };
        for pieces in parts.into_iter().flat_map(literals) {
            // The longest piece tells a message from others; words and names are no messages.
            let longest = pieces.iter().max_by_key(|piece| piece.len());
            wanted.extend(longest.filter(|piece| piece.contains(' ') && piece.len() > 10).cloned());
        }
    }
    (everything, wanted)
}

/// Text without the marks of code, in one line, with names of flags that the sources hold as constants.
fn plain(text: &str) -> String {
    text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_message_is_in_the_document() {
    let document = plain(&read("../../docs/troubleshooting.md"));
    let (_, wanted) = messages();
    assert!(wanted.len() > 40, "{wanted:?}");
    let missing: Vec<&String> = wanted.iter().filter(|piece| !document.contains(piece.as_str())).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md does not have {missing:#?}");
}

#[test]
fn the_document_has_no_message_that_does_not_exist() {
    let text = read("../../docs/troubleshooting.md");
    let (everything, _) = messages();
    let everything = plain(&everything.replace('\n', " \u{0} "));
    let sections = text.split("\n## ").filter(|section| {
        ["Checks of koordctl", "koordctl node enable", "koordctl node disable"]
            .iter()
            .any(|start| section.starts_with(start))
    });
    let mut seen = 0;
    for row in sections.flat_map(str::lines).filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        // Of checks the second cell is the message, of errors the first.
        let message = if cells.len() > 2 { cells[1] } else { cells[0].trim_start_matches("| ") };
        for quoted in message.split('`').skip(1).step_by(2) {
            for piece in quoted.split("...").map(plain).filter(|piece| piece.len() > 12) {
                let piece = piece.trim_matches([' ', ':', ',', '(', ')', ';']);
                // What a constant is put into has its name in the sources.
                let parts = [
                    "--container-runtime-endpoint",
                    "/usr/bin/koord-runtime-proxy",
                    "koord-runtime-proxy.service",
                    "/var/lib/koord/node-switch/journal.json",
                ];
                let parts = parts.iter().fold(piece.to_owned(), |text, part| text.replace(part, "\n"));
                for part in parts.split('\n').map(str::trim).filter(|part| part.len() > 8) {
                    seen += 1;
                    assert!(everything.contains(part), "no message has {part:?}: {row}");
                }
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn the_list_of_files_has_those_of_the_switch() {
    let document = read("../../docs/files.md");
    let mut names = BTreeSet::new();
    for source in ["discover.rs", "journal.rs", "plan.rs"] {
        let text = read(&format!("src/{source}"));
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for piece in literals(text).into_iter().flatten() {
            let name = piece.rsplit('/').next().unwrap_or_default().to_owned();
            let is_file =
                name.ends_with(".conf") || name.ends_with(".yaml") || piece.contains("/node-switch/");
            if is_file && (piece.contains("koord") || piece.contains("kubelet")) && !name.contains(' ') {
                names.insert(name);
            }
        }
    }
    for name in
        ["20-koord-runtime-proxy.conf", "90-koord-runtime-proxy.yaml", "instance-config.yaml", "journal.json"]
    {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    let missing: Vec<&String> = names.iter().filter(|name| !document.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/files.md does not have {missing:?}");
}

#[test]
fn literals_are_taken_apart() {
    let text = "a(\"one {x} two \\\n      three\", '\"', \"say \\\"no\\\"\") // \"not this\"\nformat!(\"{a}{b:?} `c`\")";
    let expected: Vec<Vec<String>> = vec![
        vec!["one".to_owned(), "two three".to_owned()],
        vec!["say \"no\"".to_owned()],
        vec!["c".to_owned()],
    ];
    assert_eq!(literals(text), expected);
}
