//! Chores of the repository, run as `cargo xtask COMMAND`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

mod generate;
mod packages;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask gen [--check]
                   packages [--binaries DIR] [--out DIR] [--root DIR] [--compression small|fast]
                            [--version-suffix TEXT]
                   tidy";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else { bail!("no command\n{USAGE}") };
    match command.as_str() {
        "gen" => generate::run(&workspace_root()?, generate::mode(rest)?),
        "packages" => {
            let options = packages::Options::parse(rest)?;
            let root = options.root.clone().map_or_else(workspace_root, Ok)?;
            packages::run(&root, &options)
        }
        "tidy" if rest.is_empty() => tidy::run(&workspace_root()?),
        other => bail!("unknown command {other:?}\n{USAGE}"),
    }
}

/// The folder of the workspace this program was built in.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the crate has no parent folder")?;
    Ok(root.to_path_buf())
}
