//! Licences of a package: its own, and those of the libraries that are linked into its programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::{cargo, output};

/// Names that files with a licence begin with, in any case.
const NAMES: [&str; 6] = ["licen", "copying", "notice", "copyright", "unlicense", "authors"];

/// Libraries without a file, and the library of the same repository whose files are theirs too.
const SAME_REPOSITORY: [(&str, &str); 1] = [("tonic-prost", "tonic")];

/// A library that is linked into a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Library {
    /// Name and version.
    pub(super) name: String,
    /// Its licence as an SPDX expression.
    pub(super) expression: String,
    /// The files of it that state licences.
    pub(super) texts: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<PathBuf>,
    manifest_path: PathBuf,
    /// Where it comes from; nothing for members of the workspace.
    source: Option<String>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// Nothing for what is linked; `dev` or `build` else.
    kind: Option<String>,
}

impl Package {
    /// Runs in the compiler and is not linked into anything.
    fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

/// The libraries that are linked into the programs of these crates, by name.
///
/// # Errors
/// A library states no licence, or has no text of it and none that stands for it.
pub(super) fn libraries(root: &Path, crates: &[&str]) -> anyhow::Result<Vec<Library>> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command: Command = cargo();
    command.current_dir(root).args(["metadata", "--format-version=1", "--locked", "--offline"]);
    let text = output(command.args(["--filter-platform", &platform]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("metadata of the workspace")?;
    let own = fs::read_to_string(root.join("LICENSE")).context("LICENSE")?;

    let mut found = Vec::new();
    for package in linked(&metadata, crates)? {
        let name = format!("{} {}", package.name, package.version);
        let Some(expression) = package.license.clone() else { bail!("{name} states no licence") };
        let mut texts = texts(package)?;
        if texts.is_empty() {
            let sibling = SAME_REPOSITORY.iter().find(|(without, _)| *without == package.name);
            texts = match sibling {
                Some((_, with)) => {
                    let with = metadata.packages.iter().find(|other| other.name == *with);
                    self::texts(with.with_context(|| format!("{name}: its sibling is not there"))?)?
                }
                None if expression.contains("Apache-2.0") => vec![own.clone()],
                None => bail!("{name} ({expression}) has no text of its licence"),
            };
        }
        found.push(Library { name, expression, texts });
    }
    Ok(found)
}

/// Libraries that are linked into the programs of these crates, by name and version.
fn linked<'a>(metadata: &'a Metadata, crates: &[&str]) -> anyhow::Result<Vec<&'a Package>> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let mut open: Vec<&str> = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_none() && crates.contains(&package.name.as_str()))
        .map(|package| package.id.as_str())
        .collect();
    ensure!(open.len() == crates.len(), "not all of these are members of the workspace: {crates:?}");
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        let package = packages.get(id).with_context(|| format!("no package {id}"))?;
        if package.is_macro() || !seen.insert(id) {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("no dependencies of {id}"))?;
        let is_linked =
            |dependency: &&Dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
        open.extend(node.deps.iter().filter(is_linked).map(|dependency| dependency.pkg.as_str()));
    }
    let mut found: Vec<&Package> = seen
        .iter()
        .filter_map(|id| packages.get(id).copied())
        .filter(|package| package.source.is_some())
        .collect();
    found.sort_by(|left, right| (&left.name, &left.version).cmp(&(&right.name, &right.version)));
    Ok(found)
}

/// The files of a package that state licences, in the order of their names.
fn texts(package: &Package) -> anyhow::Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest has a folder")?;
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) && !name.ends_with(".rs") {
            files.insert(path);
        }
    }
    if let Some(file) = &package.license_file {
        files.insert(folder.join(file));
    }
    files
        .iter()
        .map(|file| fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display())))
        .collect()
}

/// A text without what makes no difference: white space at ends of lines, empty lines around.
fn normalized(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// All licences of libraries: a list, then each text once.
pub(super) fn text(package: &str, libraries: &[Library]) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut list = String::new();
    for library in libraries {
        let mut numbers = Vec::new();
        for text in &library.texts {
            let text = normalized(text);
            let known = texts.iter().position(|known| *known == text);
            let index = known.unwrap_or_else(|| {
                texts.push(text);
                texts.len() - 1
            });
            numbers.push((index + 1).to_string());
        }
        list.push_str(&format!("  {:36} {:40} {}\n", library.name, library.expression, numbers.join(", ")));
    }
    let mut all = format!(
        "Licences of libraries in the programs of {package}\n\n\
         Name, version, licence, and which of the texts below are its own. Where a licence names several, any of them\n\
         may be chosen. The standard library of Rust (MIT OR Apache-2.0, by the Rust project) is linked in as well.\n\n{list}"
    );
    for (index, text) in texts.iter().enumerate() {
        all.push_str(&format!("\n{:=<100}\nText {}\n\n{text}\n", "", index + 1));
    }
    all
}

/// The file `copyright` of a package, in the form of Debian
/// (<https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/>).
pub(super) fn copyright(package: &str) -> String {
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: {package}\n\
         Comment: Licences of the libraries in the programs, with their texts, are in third-party-licences.txt.gz\n \
          beside this file; what was taken from other projects is in NOTICE.\n\
         \n\
         Files: *\n\
         Copyright: 2026 the authors of koord-runtime-proxy and its workspace\n\
         License: Apache-2.0\n\
         \n\
         License: Apache-2.0\n \
          Licensed under the Apache License, Version 2.0 (the \"License\"); you may not use these files except in\n \
          compliance with the License. You may obtain a copy of the License at\n \
          .\n   \
            https://www.apache.org/licenses/LICENSE-2.0\n \
          .\n \
          Unless required by applicable law or agreed to in writing, software distributed under the License is\n \
          distributed on an \"AS IS\" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.\n \
          See the License for the specific language governing permissions and limitations under the License.\n \
          .\n \
          On Debian systems, its text is in /usr/share/common-licenses/Apache-2.0; it is also one of the texts in\n \
          third-party-licences.txt.gz.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, texts: &[&str]) -> Library {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        Library { name: name.to_owned(), expression: "MIT".to_owned(), texts }
    }

    #[test]
    fn a_text_stands_once() {
        let all = text("p", &[library("a 1", &["one\n", "two"]), library("b 2", &["\ntwo  \n\n"])]);
        let row = |name: &str, numbers: &str| format!("  {name:36} {:40} {numbers}\n", "MIT");
        assert!(all.contains(&row("a 1", "1, 2")), "{all}");
        assert!(all.contains(&row("b 2", "2")), "{all}");
        assert_eq!(all.matches("\nText ").count(), 2);
        assert_eq!(all.matches("\ntwo\n").count(), 1);
    }

    #[test]
    fn what_is_linked_is_listed() {
        let metadata: Metadata = serde_json::from_str(
            r#"{
              "packages": [
                {"id": "p", "name": "p", "version": "1", "license": null, "license_file": null, "manifest_path": "/p/Cargo.toml",
                 "source": null, "targets": [{"kind": ["bin"]}]},
                {"id": "m", "name": "m", "version": "1", "license": "MIT", "license_file": null, "manifest_path": "/m/Cargo.toml",
                 "source": "r", "targets": [{"kind": ["proc-macro"]}]},
                {"id": "z", "name": "z", "version": "1", "license": "MIT", "license_file": null, "manifest_path": "/z/Cargo.toml",
                 "source": "r", "targets": [{"kind": ["lib"]}]},
                {"id": "a", "name": "a", "version": "1", "license": "MIT", "license_file": null, "manifest_path": "/a/Cargo.toml",
                 "source": "r", "targets": [{"kind": ["lib"]}]},
                {"id": "d", "name": "d", "version": "1", "license": "MIT", "license_file": null, "manifest_path": "/d/Cargo.toml",
                 "source": "r", "targets": [{"kind": ["lib"]}]}
              ],
              "resolve": {"nodes": [
                {"id": "p", "deps": [{"pkg": "m", "dep_kinds": [{"kind": null}]}, {"pkg": "z", "dep_kinds": [{"kind": null}]},
                                     {"pkg": "d", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "m", "deps": [{"pkg": "d", "dep_kinds": [{"kind": null}]}]},
                {"id": "z", "deps": [{"pkg": "a", "dep_kinds": [{"kind": "build"}, {"kind": null}]}]},
                {"id": "a", "deps": []}, {"id": "d", "deps": []}
              ]}
            }"#,
        )
        .unwrap();
        let names = |crates: &[&str]| {
            linked(&metadata, crates)
                .map(|found| found.iter().map(|package| package.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(names(&["p"]).unwrap(), ["a", "z"]);
        assert!(names(&["p", "q"]).is_err());
        // A library is not a member, whatever it is called.
        assert!(names(&["z"]).is_err());
    }

    #[test]
    fn every_library_has_a_text() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let found = libraries(root, &["koord-runtime-proxy", "koordctl", "koordlet"]).unwrap();
        assert!(found.iter().all(|library| !library.texts.is_empty()));
        assert!(found.iter().any(|library| library.name.starts_with("tokio ")));
        // Only for tests, and only in the compiler.
        assert!(
            !found
                .iter()
                .any(|library| library.name.starts_with("proptest ") || library.name.starts_with("syn "))
        );
    }

    #[test]
    fn copyright_has_the_form_of_debian() {
        let text = copyright("koord-node");
        assert!(
            text.starts_with("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n")
        );
        assert!(text.contains("\nUpstream-Name: koord-node\n"));
        for line in text.lines() {
            // A field, the end of a paragraph, or what goes on.
            let is_field = line.split_once(':').is_some_and(|(name, _)| !name.contains(' '));
            assert!(line.is_empty() || line.starts_with(' ') || is_field, "{line:?}");
        }
    }
}
