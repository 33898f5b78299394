//! `cargo xtask packages`: the packages `koord-node` and `koordlet`, each as .deb and .rpm.
//!
//! The programs are built, what belongs to them is made from them (manual pages, completions, licences), everything is put
//! below `target/package-files`, and `cargo-deb` and `cargo-generate-rpm` pack it by the tables in the manifests of the
//! programs. The same sources give the same bytes in any folder: times are those of the commit, paths of the machine are
//! taken out of the programs, and lists are sorted.

mod licences;
mod manual;
mod source_date;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use flate2::{Compression, GzBuilder};
use source_date::SourceDate;

/// Version of all packages, without what `--version-suffix` adds.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Number of the packaging of one version.
const REVISION: &str = "1";

/// Where the files of the packages are put, as the manifests name it.
const FILES: &str = "target/package-files";

/// Target folder of the build: other flags than those of everyday builds, which would take turns in one folder.
const BUILD: &str = "target/package-build";

/// Where the packages go unless `--out` says otherwise.
const OUT: &str = "target/packages";

/// One package.
struct Package {
    name: &'static str,
    /// The crate whose manifest describes it.
    described_by: &'static str,
    /// Folder of that crate.
    folder: &'static str,
    /// Folder of pages that are installed as they are.
    docs: Option<&'static str>,
    programs: &'static [Program],
}

/// A program of a package. Crate and program have the same name.
struct Program {
    name: &'static str,
    manual: Manual,
}

/// Where manual and completions of a program come from.
enum Manual {
    /// From its help text; section 8.
    Help { files: &'static [(&'static str, &'static str)] },
    /// The program writes them itself, for each of its commands; section 1. It is installed as `alias` as well.
    Own { alias: &'static str },
}

const PACKAGES: [Package; 2] = [
    Package {
        name: "koord-node",
        described_by: "koord-runtime-proxy",
        folder: "proxy",
        docs: Some("docs"),
        programs: &[
            Program {
                name: "koord-runtime-proxy",
                manual: Manual::Help {
                    files: &[
                        ("/etc/default/koord-runtime-proxy", "flags of the service"),
                        ("/etc/koord/node-slo.yaml", "policy of the node"),
                        ("/etc/runtime/hookserver.d/*.json", "registrations of hook servers"),
                        ("/usr/lib/koord/hooks.d/*.so", "hook plugins"),
                        ("/run/koord-runtimeproxy/runtimeproxy.sock", "socket that the kubelet connects to"),
                        ("/run/koord-runtimeproxy/admin.sock", "socket that koordctl(1) connects to"),
                    ],
                },
            },
            Program { name: "koordctl", manual: Manual::Own { alias: "kubectl-koord" } },
        ],
    },
    Package {
        name: "koordlet",
        described_by: "koordlet",
        folder: "koordlet",
        docs: None,
        programs: &[Program {
            name: "koordlet",
            manual: Manual::Help {
                files: &[
                    ("/etc/default/koordlet", "flags of the service"),
                    ("/etc/koord/koordlet.kubeconfig", "access to the API server"),
                    ("/var/lib/koordlet", "what the predictor has learnt"),
                    ("/var/log/koordlet", "audit log"),
                ],
            },
        }],
    },
];

/// How hard the packages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Effort {
    /// For those who download them: a minute of CPU time.
    #[default]
    Small,
    /// For tests: a few seconds, and a third larger.
    Fast,
}

/// Which packages are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Formats {
    #[default]
    All,
    Deb,
    Rpm,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Options {
    effort: Effort,
    formats: Formats,
    /// Folder of programs to take instead of building them.
    binaries: Option<PathBuf>,
    /// Folder the packages are written to, instead of [`OUT`].
    out: Option<PathBuf>,
    /// What follows the version: `+1` is a later build of it, `~1` an earlier one.
    suffix: String,
    /// The sources, instead of those this program was built from.
    pub(crate) root: Option<PathBuf>,
}

impl Options {
    /// Parses the arguments after `packages`.
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Options> {
        let mut options = Options::default();
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let value = arguments.next().with_context(|| format!("packages: {flag} needs a value"))?;
            let path = || std::path::absolute(value).with_context(|| format!("packages: {flag} {value}"));
            match flag.as_str() {
                "--compression" => {
                    options.effort = match value.as_str() {
                        "small" => Effort::Small,
                        "fast" => Effort::Fast,
                        other => bail!("packages: --compression {other:?}; accepted: small, fast"),
                    }
                }
                "--formats" => {
                    options.formats = match value.as_str() {
                        "all" => Formats::All,
                        "deb" => Formats::Deb,
                        "rpm" => Formats::Rpm,
                        other => bail!("packages: --formats {other:?}; accepted: all, deb, rpm"),
                    }
                }
                "--binaries" => options.binaries = Some(path()?),
                "--out" => options.out = Some(path()?),
                "--root" => options.root = Some(path()?),
                "--version-suffix" => options.suffix = suffix(value)?,
                other => bail!(
                    "packages: unknown {other}; accepted: --binaries DIR, --out DIR, --root DIR, --compression small|fast, --formats all|deb|rpm, --version-suffix TEXT"
                ),
            }
        }
        Ok(options)
    }
}

/// A suffix that versions of Debian and of RPM can both have.
fn suffix(text: &str) -> anyhow::Result<String> {
    let begins_well = text.is_empty() || text.starts_with(['+', '~']);
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || ".+~".contains(letter);
    ensure!(
        begins_well && text.chars().all(is_good),
        "packages: --version-suffix {text:?}; accepted: + or ~ with letters, digits and dots behind it, or nothing"
    );
    Ok(text.to_owned())
}

/// What all packages of one run share.
struct Order<'a> {
    root: &'a Path,
    out: &'a Path,
    version: &'a str,
    date: &'a SourceDate,
    effort: Effort,
}

/// Makes the packages.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let date = SourceDate::of(root)?;
    let version = format!("{VERSION}{}", options.suffix);
    let binaries = match &options.binaries {
        Some(folder) => folder.clone(),
        None => build(root)?,
    };
    let out = options.out.clone().unwrap_or_else(|| root.join(OUT));
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let order = Order { root, out: &out, version: &version, date: &date, effort: options.effort };
    for package in &PACKAGES {
        put_together(&order, package, &binaries)
            .with_context(|| format!("files of package {}", package.name))?;
        let mut files = Vec::new();
        if options.formats != Formats::Rpm {
            files.push(deb(&order, package)?);
        }
        if options.formats != Formats::Deb {
            files.push(rpm(&order, package)?);
        }
        for file in files {
            let size = fs::metadata(&file).with_context(|| format!("cannot read {}", file.display()))?.len();
            eprintln!("{} ({} KiB)", file.display(), size.div_ceil(1024));
        }
    }
    Ok(())
}

/// Builds the programs and returns the folder they are in. Paths of the machine are not in them.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let cargo_home = match env::var_os("CARGO_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => {
            PathBuf::from(env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?).join(".cargo")
        }
    };
    let remaps = [
        format!("--remap-path-prefix={}=/usr/src/koord", root.display()),
        format!("--remap-path-prefix={}=/usr/src/libraries", cargo_home.join("registry/src").display()),
    ];
    let commit = output(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(root))?;
    let mut command = cargo();
    command.current_dir(root).args(["build", "--locked", "--release", "--target-dir", BUILD]);
    for program in PACKAGES.iter().flat_map(|package| package.programs) {
        command.args(["-p", program.name]);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", remaps.join("\u{1f}")).env("KOORD_COMMIT", commit.trim());
    run_to_end(&mut command)?;
    Ok(root.join(BUILD).join("release"))
}

/// Puts the files of a package below [`FILES`] that are not in the tree as they are.
fn put_together(order: &Order<'_>, package: &Package, binaries: &Path) -> anyhow::Result<()> {
    let Order { root, version, date, .. } = *order;
    let folder = root.join(FILES).join(package.name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let place = |path: &str, bytes: &[u8]| write(&folder.join(path), bytes);
    for program in package.programs {
        let file = folder.join("bin").join(program.name);
        write(&file, &[])?;
        let built = binaries.join(program.name);
        fs::copy(&built, &file).with_context(|| format!("cannot copy {}", built.display()))?;
        // Sections with the compiler's version are of no use to anybody; symbols stay with the build.
        let strip = ["--strip-unneeded", "--remove-section=.comment", "--remove-section=.note"];
        run_to_end(Command::new("strip").args(strip).arg(&file))?;
        let ask = |arguments: &[&OsStr]| output(Command::new(&file).args(arguments));
        match &program.manual {
            Manual::Help { files } => {
                let help = ask(&["--help".as_ref()])?;
                let page = manual::page(program.name, &help, files, version, &date.day()?)?;
                place(&format!("man8/{}.8.gz", program.name), &compressed(page.as_bytes())?)?;
                let completion = manual::bash_completion(program.name, &help);
                place(&format!("bash/{}", program.name), completion.as_bytes())?;
            }
            Manual::Own { alias } => {
                let pages = folder.join("pages");
                fs::create_dir_all(&pages)?;
                ask(&["man".as_ref(), pages.as_os_str()])?;
                for entry in fs::read_dir(&pages)? {
                    let entry = entry?;
                    let name =
                        entry.file_name().into_string().ok().context("page without a name in UTF-8")?;
                    place(&format!("man1/{name}.gz"), &compressed(&fs::read(entry.path())?)?)?;
                }
                fs::remove_dir_all(&pages)?;
                let other = format!(".so man1/{}.1\n", program.name);
                place(&format!("man1/{alias}.1.gz"), &compressed(other.as_bytes())?)?;
                for (shell, path) in [("bash", ""), ("fish", ".fish"), ("zsh", "")] {
                    let script = ask(&["completion".as_ref(), shell.as_ref()])?;
                    let mark = if shell == "zsh" { "_" } else { "" };
                    place(&format!("{shell}/{mark}{}{path}", program.name), script.as_bytes())?;
                }
            }
        }
    }
    let crates: Vec<&str> = package.programs.iter().map(|program| program.name).collect();
    let libraries = licences::libraries(root, &crates)?;
    place(
        "doc/third-party-licences.txt.gz",
        &compressed(licences::text(package.name, &libraries).as_bytes())?,
    )?;
    place("doc/NOTICE", &fs::read(root.join("NOTICE"))?)?;
    place("doc/changelog.gz", &compressed(&fs::read(root.join("CHANGELOG.md"))?)?)?;
    if let Some(docs) = package.docs {
        for entry in fs::read_dir(root.join(docs)).with_context(|| format!("cannot list {docs}"))? {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            if path.extension() == Some(OsStr::new("md")) {
                place(&format!("doc/{}", name.to_string_lossy()), &fs::read(&path)?)?;
            }
        }
    }
    place("copyright", licences::copyright(package.name).as_bytes())?;
    let changes = format!(
        "{} ({version}-{REVISION}) stable; urgency=medium\n\n  * What changed is in changelog.gz.\n\n -- {}  {}\n",
        package.name,
        maintainer(root, package)?,
        date.mail()?
    );
    place("changelog.Debian", changes.as_bytes())
}

/// The maintainer as the manifest names them.
fn maintainer(root: &Path, package: &Package) -> anyhow::Result<String> {
    let path = root.join(package.folder).join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("maintainer = \"")?.strip_suffix('"'));
    line.map(str::to_owned).with_context(|| format!("{} names no maintainer", path.display()))
}

fn deb(order: &Order<'_>, package: &Package) -> anyhow::Result<PathBuf> {
    let Order { root, out, version, date, effort } = order;
    let architecture = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let file = out.join(format!("{}_{version}-{REVISION}_{architecture}.deb", package.name));
    let mut command = Command::new("cargo-deb");
    command.current_dir(root).args(["--quiet", "--no-build", "--no-strip", "--locked", "--offline"]);
    command.args(["--package", package.described_by, "--deb-version", &format!("{version}-{REVISION}")]);
    command.args((*effort == Effort::Fast).then_some("--fast"));
    command.arg("--output").arg(&file).env("SOURCE_DATE_EPOCH", date.seconds());
    run_to_end(&mut command)?;
    Ok(file)
}

fn rpm(order: &Order<'_>, package: &Package) -> anyhow::Result<PathBuf> {
    let Order { root, out, version, date, effort } = order;
    let architecture = env::consts::ARCH;
    let file = out.join(format!("{}-{version}-{REVISION}.{architecture}.rpm", package.name));
    let mut command = Command::new("cargo-generate-rpm");
    let compression = match effort {
        Effort::Small => "zstd",
        Effort::Fast => "gzip",
    };
    command.current_dir(root).args(["--package", package.folder, "--payload-compress", compression]);
    // The other way asks a program of the machine's RPM, if it has one.
    command.args(["--auto-req", "builtin", "--source-date", &date.seconds()]);
    command.args(["--set-metadata", &format!("version = {version:?}\nrelease = {REVISION:?}")]);
    command.arg("--output").arg(&file);
    run_to_end(&mut command)?;
    Ok(file)
}

/// gzip as `gzip -9n` writes it: without a name and a time.
fn compressed(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn run_to_end(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot run {name}; tests/setup release installs the tools"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// What a command writes.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}: {complaints}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("output of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Options> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        let none = parse("").unwrap();
        assert_eq!((none.effort, none.formats), (Effort::Small, Formats::All));
        assert_eq!(none, Options::default());
        let options =
            parse("--binaries /a --out /b --root /c --version-suffix +1 --compression fast --formats deb")
                .unwrap();
        assert_eq!(
            options,
            Options {
                effort: Effort::Fast,
                formats: Formats::Deb,
                binaries: Some("/a".into()),
                out: Some("/b".into()),
                suffix: "+1".to_owned(),
                root: Some("/c".into()),
            }
        );
        for wrong in ["--out", "--in /a", "/a /b", "--compression best", "--formats apk"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn suffixes() {
        for good in ["", "+", "+1", "~rc1", "+1.2~x"] {
            assert_eq!(suffix(good).unwrap(), good);
        }
        // RPM splits at "-", Debian at ":", and a letter would be a part of the last number.
        for bad in ["1", "a", "+1-2", "+1:2", "+1 2", "+1_2", "-1", "+é"] {
            assert!(suffix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn compressed_bytes_depend_on_the_content_alone() {
        let bytes = compressed(b"text").unwrap();
        // Magic, deflate, no flags, no time, best compression.
        assert_eq!(bytes[..9], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2]);
        assert_eq!(bytes, compressed(b"text").unwrap());
    }

    #[test]
    fn manifests_name_the_maintainer() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let [node, koordlet] = &PACKAGES;
        assert_eq!(maintainer(root, node).unwrap(), maintainer(root, koordlet).unwrap());
    }
}
