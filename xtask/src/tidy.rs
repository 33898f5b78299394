//! `cargo xtask tidy`: rules of the repository that a script can check.
//!
//! Each rule is a function from a [`Repository`], read once, to findings.

mod crates;
mod documents;
mod files;
mod markdown;
mod repository;
mod shell;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use anyhow::bail;
pub(crate) use repository::{Package, Repository, TextFile};

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File, relative to the root.
    pub(crate) file: String,
    /// Line in it, from 1; 0 for the whole file.
    pub(crate) line: usize,
    /// What is wrong and what would be right.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(file: impl Into<String>, line: usize, message: impl Into<String>) -> Finding {
        Finding { file: file.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(formatter, "{}: {}", self.file, self.message)
        } else {
            write!(formatter, "{}:{}: {}", self.file, self.line, self.message)
        }
    }
}

/// A rule: its name and its check.
type Rule = (&'static str, fn(&Repository) -> Vec<Finding>);

/// All rules.
const RULES: [Rule; 19] = [
    ("crates depend one way", crates::dependency_direction),
    ("crates free of I/O depend on no I/O crate", crates::pure_dependencies),
    ("members share versions and lints", crates::manifests),
    ("every crate is in ARCHITECTURE.md", crates::documented),
    ("every crate has tests", crates::tested),
    ("files stay readable", files::length),
    ("no mod.rs", files::no_mod_rs),
    ("text is clean", files::clean_text),
    ("nothing names a developer's machine or a package registry", files::no_foreign_places),
    ("vendored protocols are pinned", files::pinned_protocols),
    ("links of documents lead somewhere", documents::links),
    ("every document is in the index", documents::indexed),
    ("documents have people type what exists", documents::typed),
    ("flags and metrics in documents exist", documents::named),
    ("docs/files.md lists every file", documents::listed_files),
    ("no unsafe code", source::no_unsafe),
    ("crates free of I/O do none", source::pure_source),
    ("only main reads the environment", source::environment),
    ("only the supervisor starts tasks and threads", source::supervised),
];

/// All findings in the repository at `root`.
pub(crate) fn findings(root: &Path) -> anyhow::Result<Vec<(&'static str, Vec<Finding>)>> {
    let repository = Repository::read(root)?;
    let mut broken = Vec::new();
    for (rule, check) in RULES {
        let mut found = check(&repository);
        if !found.is_empty() {
            found.sort();
            broken.push((rule, found));
        }
    }
    Ok(broken)
}

/// Prints the findings; fails if there are any.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let broken = findings(root)?;
    let report = report(&broken);
    if !broken.is_empty() {
        let count: usize = broken.iter().map(|(_, found)| found.len()).sum();
        bail!("{report}tidy: {count} findings");
    }
    eprintln!("tidy: {} rules hold", RULES.len());
    Ok(())
}

fn report(broken: &[(&'static str, Vec<Finding>)]) -> String {
    let mut report = String::new();
    for (rule, found) in broken {
        report.push_str(&format!("broken rule: {rule}\n"));
        for finding in found {
            report.push_str(&format!("  {finding}\n"));
        }
    }
    report
}
