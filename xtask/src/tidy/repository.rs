//! The repository as the rules see it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

/// Folders that hold no sources: version control, build results, caches, results of fuzzing.
const SKIPPED_FOLDERS: [&str; 8] =
    [".git", "target", ".cache", "artifacts", "coverage", "corpus", "node_modules", "__pycache__"];

/// A text file.
#[derive(Debug, Clone)]
pub(crate) struct TextFile {
    /// Path relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    pub(crate) fn extension(&self) -> Option<&str> {
        self.name().rsplit_once('.').map(|(_, extension)| extension)
    }

    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }

    /// Written by a program, not by hand.
    pub(crate) fn is_generated(&self) -> bool {
        self.path.contains("/gen/") || self.name().ends_with(".lock") || self.name().ends_with(".sum")
    }

    /// Copied from elsewhere.
    pub(crate) fn is_vendored(&self) -> bool {
        self.path.starts_with("api/") && self.path.contains("/proto/")
    }
}

/// A dependency of a member on another crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Folder of the crate relative to the root, if it is a member.
    pub(crate) folder: Option<String>,
    /// Only for tests.
    pub(crate) for_tests: bool,
}

/// A member of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Folder relative to the root.
    pub(crate) folder: String,
    pub(crate) license: Option<String>,
    pub(crate) published: bool,
    pub(crate) dependencies: Vec<Dependency>,
}

/// Everything the rules look at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Repository {
    pub(crate) files: Vec<TextFile>,
    pub(crate) packages: Vec<Package>,
}

impl Repository {
    /// Reads all text files below `root` and the members' metadata.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Repository> {
        let mut files = Vec::new();
        read_folder(root, "", &mut files)?;
        files.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(Repository { files, packages: packages(root)? })
    }

    pub(crate) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Rust sources written by hand.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.extension() == Some("rs") && !file.is_generated())
    }

    /// The member whose folder holds the file: the deepest one.
    pub(crate) fn package_of(&self, file: &TextFile) -> Option<&Package> {
        let holds = |package: &&Package| file.path.starts_with(&format!("{}/", package.folder));
        self.packages.iter().filter(holds).max_by_key(|package| package.folder.len())
    }
}

fn read_folder(root: &Path, folder: &str, files: &mut Vec<TextFile>) -> anyhow::Result<()> {
    let place = root.join(folder);
    for entry in fs::read_dir(&place).with_context(|| format!("cannot list {}", place.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                read_folder(root, &path, files)?;
            }
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(TextFile { path, text });
            }
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<RawPackage>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct RawPackage {
    name: String,
    manifest_path: String,
    license: Option<String>,
    publish: Option<Vec<String>>,
    dependencies: Vec<RawDependency>,
}

#[derive(Deserialize)]
struct RawDependency {
    name: String,
    path: Option<String>,
    kind: Option<String>,
}

fn packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot run {cargo}"))?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("metadata of the workspace")?;
    let relative = |path: &str| {
        path.strip_prefix(&metadata.workspace_root).unwrap_or(path).trim_start_matches('/').to_owned()
    };
    let packages = metadata
        .packages
        .iter()
        .map(|package| Package {
            name: package.name.clone(),
            folder: relative(&package.manifest_path).trim_end_matches("/Cargo.toml").to_owned(),
            license: package.license.clone(),
            published: package.publish.as_ref().is_none_or(|registries| !registries.is_empty()),
            dependencies: package
                .dependencies
                .iter()
                .map(|dependency| Dependency {
                    name: dependency.name.clone(),
                    folder: dependency.path.as_deref().map(relative),
                    for_tests: dependency.kind.as_deref() == Some("dev"),
                })
                .collect(),
        })
        .collect();
    Ok(packages)
}
