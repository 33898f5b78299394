//! Makes the files that are made from others: the Rust types of the protocols from the `.proto` files in
//! the tree, the definitions of custom resources, the default node policy and the list of its keys from their Rust types.
//!
//! They are checked in, so that building the project needs neither a protobuf compiler nor a build script.

mod definitions;
mod policy;
mod policy_keys;
mod yaml;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use protox::file::{File, FileResolver};

/// One protocol package of the tree.
struct Package {
    /// Folder of the crate, relative to the root of the workspace.
    crate_folder: &'static str,
    /// Name of the `.proto` file below the crate's `proto` folder.
    proto: &'static str,
    /// Protobuf package; the generator names its output after it.
    package: &'static str,
    /// Name of the Rust file below the crate's `src/gen` folder.
    rust_file: &'static str,
}

/// Every package that has generated code.
const PACKAGES: &[Package] = &[
    Package {
        crate_folder: "api/hook",
        proto: "runtime/v1alpha1/api.proto",
        package: "runtime.v1alpha1",
        rust_file: "runtime_v1alpha1.rs",
    },
    Package {
        crate_folder: "api/cri",
        proto: "runtime/v1/api.proto",
        package: "runtime.v1",
        rust_file: "runtime_v1.rs",
    },
    Package {
        crate_folder: "api/cri",
        proto: "runtime/v1alpha2/api.proto",
        package: "runtime.v1alpha2",
        rust_file: "runtime_v1alpha2.rs",
    },
    Package {
        crate_folder: "api/usage",
        proto: "koord/usage/v1/usage.proto",
        package: "koord.usage.v1",
        rust_file: "usage_v1.rs",
    },
];

/// What to do with freshly generated files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write them into the tree.
    Write,
    /// Compare them with the tree and fail when they differ.
    Check,
}

/// A generated file.
struct Output {
    /// Where it is, relative to the root of the workspace.
    path: String,
    /// What it holds.
    text: String,
}

/// Generates every file below the workspace root `root`.
pub(crate) fn run(root: &Path, mode: Mode) -> anyhow::Result<()> {
    let mut outputs = definitions::outputs();
    outputs.push(policy::output()?);
    outputs.push(policy_keys::output()?);
    for package in PACKAGES {
        let text = generate(root, package)
            .with_context(|| format!("cannot generate code for package {}", package.package))?;
        let path = format!("{}/src/gen/{}", package.crate_folder, package.rust_file);
        outputs.push(Output { path, text });
    }
    let mut stale = Vec::new();
    for Output { path, text } in outputs {
        let file = root.join(&path);
        if fs::read_to_string(&file).is_ok_and(|present| present == text) {
            continue;
        }
        match mode {
            Mode::Write => {
                let folder = file.parent().context("generated file has no folder")?;
                fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
                fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            }
            Mode::Check => stale.push(path),
        }
    }
    ensure!(stale.is_empty(), "generated files are stale, run \"cargo xtask gen\": {}", stale.join(", "));
    Ok(())
}

/// Returns the generated code of one package.
fn generate(root: &Path, package: &Package) -> anyhow::Result<String> {
    let includes = root.join(package.crate_folder).join("proto");
    let mut compiler = protox::Compiler::with_file_resolver(Sources { folder: includes });
    compiler.include_source_info(true).include_imports(true);
    compiler.open_file(package.proto)?;
    let descriptors = compiler.file_descriptor_set();

    let output = OutputFolder::create(package.package)?;
    let mut config = prost_build::Config::new();
    // Ordered maps make encoding deterministic: the same message is always the same bytes.
    config.btree_map(["."]);
    tonic_prost_build::configure()
        .out_dir(&output.0)
        .build_transport(false)
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .compile_fds_with_config(descriptors, config)?;
    let produced = output.0.join(format!("{}.rs", package.package));
    fs::read_to_string(&produced).with_context(|| format!("cannot read {}", produced.display()))
}

/// A folder for the generator's output, removed when dropped.
struct OutputFolder(PathBuf);

impl OutputFolder {
    fn create(name: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("koord-generate-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        // A leftover in the temporary folder harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reads `.proto` files of one folder without the options of gogoproto.
///
/// Those options only steer a generator of Go code, and the file that declares them is
/// not part of the protocol.
struct Sources {
    folder: PathBuf,
}

impl FileResolver for Sources {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let path = self.folder.join(name);
        let Ok(text) = fs::read_to_string(&path) else {
            return Err(protox::Error::file_not_found(name));
        };
        File::from_source(name, &without_gogoproto(&text))
    }
}

/// Blanks the lines that import or use gogoproto; line numbers stay.
fn without_gogoproto(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for line in text.lines() {
        let trimmed = line.trim_start();
        let dropped = trimmed.starts_with("option (gogoproto.")
            || (trimmed.starts_with("import ") && trimmed.contains("gogoproto/gogo.proto"));
        if !dropped {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    kept
}

/// Parses the arguments after `gen`.
pub(crate) fn mode(arguments: &[String]) -> anyhow::Result<Mode> {
    match arguments {
        [] => Ok(Mode::Write),
        [flag] if flag == "--check" => Ok(Mode::Check),
        other => bail!("gen takes no argument but --check, got {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gogoproto_lines_go_and_others_stay() {
        let text = "syntax = \"proto3\";\nimport \"github.com/gogo/protobuf/gogoproto/gogo.proto\";\n\
                    import \"other.proto\";\noption (gogoproto.stringer_all) =  true;\nmessage A {}\n";
        assert_eq!(
            without_gogoproto(text),
            "syntax = \"proto3\";\n\nimport \"other.proto\";\n\nmessage A {}\n"
        );
    }

    #[test]
    fn only_check_is_an_argument() {
        assert_eq!(mode(&[]).unwrap(), Mode::Write);
        assert_eq!(mode(&["--check".to_owned()]).unwrap(), Mode::Check);
        assert!(mode(&["--chek".to_owned()]).is_err());
    }
}
