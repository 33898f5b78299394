//! Rules about crates.

use super::{Finding, Package, Repository};

/// Folders of programs. A program may have crates below its folder.
const PROGRAMS: [&str; 6] = ["proxy", "koordlet", "scheduler", "descheduler", "manager", "cli"];

/// Crates that decide and do no I/O.
pub(super) const PURE_CRATES: [&str; 5] =
    ["api/crd", "api/extension", "hooks/rules", "proxy/intercept", "proxy/tap"];

/// Crates that are a border to C. Their manifests have a lint table of their own, which denies unsafe code; single files
/// may allow it again, see [`super::source::BORDERS`].
pub(super) const BORDER_CRATES: [&str; 3] = ["hooks/host", "hooks/plugins/rust-example", "hooks/sdk"];

/// Crates whose purpose is I/O, time or processes.
const IO_CRATES: [&str; 18] = [
    "async-std",
    "h2",
    "hyper",
    "hyper-util",
    "kube",
    "libc",
    "listenfd",
    "mio",
    "nix",
    "notify",
    "rustix",
    "signal-hook",
    "socket2",
    "tempfile",
    "tokio",
    "tokio-util",
    "tonic",
    "tracing-subscriber",
];

fn top(folder: &str) -> &str {
    folder.split('/').next().unwrap_or(folder)
}

fn manifest(package: &Package) -> String {
    format!("{}/Cargo.toml", package.folder)
}

/// `api` depends on nothing outside itself, `lib` on `api`, no program on another, and the proxy never on
/// the Kubernetes client: it must start where there is no API server.
pub(super) fn dependency_direction(repository: &Repository) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in &repository.packages {
        let room = top(&package.folder);
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.for_tests) {
            let Some(folder) = &dependency.folder else { continue };
            let other = top(folder);
            let problem = if room == "api" && other != "api" {
                "api/* depends on no other folder"
            } else if room == "lib" && !matches!(other, "api" | "lib") {
                "lib/* depends on api/* and lib/* only"
            } else if PROGRAMS.contains(&room) && PROGRAMS.contains(&other) && room != other {
                "programs do not depend on each other"
            } else if room == "proxy" && folder == "lib/kube" {
                "the proxy must work with no API server"
            } else if !matches!(room, "tests" | "xtask" | "fuzz") && matches!(other, "tests" | "xtask") {
                "only tests depend on tests"
            } else {
                continue;
            };
            found.push(Finding::new(
                manifest(package),
                0,
                format!("depends on {}: {problem}", dependency.name),
            ));
        }
    }
    found
}

/// A crate that does no I/O has no use for a crate that does.
pub(super) fn pure_dependencies(repository: &Repository) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in repository.packages.iter().filter(|package| PURE_CRATES.contains(&package.folder.as_str()))
    {
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.for_tests) {
            let own_pure = dependency
                .folder
                .as_deref()
                .is_none_or(|folder| folder.starts_with("api/") || PURE_CRATES.contains(&folder));
            if IO_CRATES.contains(&dependency.name.as_str()) || !own_pure {
                let message = format!("depends on {}, which does I/O; this crate does none", dependency.name);
                found.push(Finding::new(manifest(package), 0, message));
            }
        }
    }
    found
}

/// Versions of dependencies and lints are set once, in the root manifest; licence and publishing are the
/// workspace's.
pub(super) fn manifests(repository: &Repository) -> Vec<Finding> {
    let mut found = Vec::new();
    match repository.file("Cargo.toml") {
        Some(root) if root.text.contains("\nunsafe_code = \"forbid\"\n") => {}
        _ => found.push(Finding::new("Cargo.toml", 0, "workspace lints must say unsafe_code = \"forbid\"")),
    }
    for package in &repository.packages {
        let path = manifest(package);
        if package.license.as_deref() != Some("Apache-2.0") {
            found.push(Finding::new(&path, 0, "licence is not Apache-2.0; use license.workspace = true"));
        }
        if package.published {
            found.push(Finding::new(&path, 0, "can be published; use publish.workspace = true"));
        }
        let Some(file) = repository.file(&path) else { continue };
        let is_border = BORDER_CRATES.contains(&package.folder.as_str());
        let own_lints = is_border
            && file.text.contains("[lints.rust]\n")
            && file.text.contains("\nunsafe_code = \"deny\"\n");
        if !own_lints && !file.text.contains("[lints]\nworkspace = true\n") {
            found.push(Finding::new(&path, 0, "does not take the workspace's lints"));
        }
        let mut in_dependencies = false;
        for (number, line) in (1..).zip(file.text.lines()) {
            if line.starts_with('[') {
                in_dependencies = line.trim_end_matches(']').ends_with("dependencies");
                continue;
            }
            let is_entry = in_dependencies && line.contains('=') && !line.starts_with(['#', ' ', '\t']);
            if is_entry && !line.contains("workspace = true") {
                let message = "version is not the workspace's; put it in the root Cargo.toml";
                found.push(Finding::new(&path, number, message));
            }
        }
    }
    found
}

/// A newcomer finds every crate and what binds it.
pub(super) fn documented(repository: &Repository) -> Vec<Finding> {
    const FILE: &str = "ARCHITECTURE.md";
    let Some(text) = repository.file(FILE).map(|file| &file.text) else {
        return vec![Finding::new(FILE, 0, "is missing")];
    };
    repository
        .packages
        .iter()
        .filter(|package| {
            !text.contains(&format!("`{}`", package.folder))
                && !text.contains(&format!("`{}/`", package.folder))
        })
        .map(|package| {
            Finding::new(FILE, 0, format!("does not name `{}` ({})", package.folder, package.name))
        })
        .collect()
}

/// Every crate with code worth the name has tests beside it or under `tests/`. Fuzz targets are tests themselves.
pub(super) fn tested(repository: &Repository) -> Vec<Finding> {
    let mut found = Vec::new();
    if !repository.files.iter().any(|file| file.path.starts_with("tests/")) {
        found.push(Finding::new("tests", 0, "is missing"));
    }
    for package in repository.packages.iter().filter(|package| package.folder != "fuzz") {
        let sources = || {
            repository.sources().filter(|file| {
                repository.package_of(file).is_some_and(|owner| owner.folder == package.folder)
            })
        };
        let lines: usize = sources().map(|file| file.text.lines().count()).sum();
        let is_test = |line: &str| {
            let line = line.trim_start();
            line.starts_with("#[test]") || line.starts_with("#[tokio::test") || line.starts_with("proptest!")
        };
        if lines > 100 && !sources().any(|file| file.text.lines().any(is_test)) {
            found.push(Finding::new(&package.folder, 0, format!("{lines} lines and no test")));
        }
    }
    found
}
