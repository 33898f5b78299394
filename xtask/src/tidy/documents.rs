//! Rules about documents: links lead somewhere, and what people are told to type exists.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::Document;
use super::shell::{self, Command};
use super::{Finding, Repository, TextFile};

/// Pages whose commands are typed as they stand.
const TYPED: [&str; 4] =
    ["docs/install.md", "docs/upgrade.md", "docs/uninstall.md", "docs/troubleshooting.md"];

/// Pages that list names, which tests of the programs compare with the code.
const FLAG_PAGES: [(&str, &str); 2] =
    [("koord-runtime-proxy", "docs/flags.md"), ("koordlet", "docs/koordlet-flags.md")];
const COMMAND_PAGE: &str = "docs/koordctl-commands.md";
const FILE_PAGE: &str = "docs/files.md";
const INDEX: &str = "docs/README.md";

/// Pages whose flags and metrics of koordlet are looked up too.
const NAMING: [&str; 6] = [
    "docs/install.md",
    "docs/koordlet.md",
    "docs/operations.md",
    "docs/troubleshooting.md",
    "docs/uninstall.md",
    "docs/upgrade.md",
];
const METRIC_PAGE: &str = "docs/koordlet-metrics.md";

/// Flags of others.
const OTHER_FLAGS: [&str; 7] = [
    "--config",
    "--config-dir",
    "--container-runtime",
    "--container-runtime-endpoint",
    "--kubeconfig",
    "--purge",
    "--remove",
];

/// Programs of others that may be told to be run.
const OTHER_PROGRAMS: [&str; 19] = [
    "base64",
    "cat",
    "crictl",
    "curl",
    "dpkg",
    "id",
    "install",
    "journalctl",
    "kubeadm",
    "kubectl",
    "ls",
    "make",
    "rpm",
    "ss",
    "stat",
    "systemctl",
    "kill",
    "export",
    "grep",
];

/// Units of others.
const OTHER_UNITS: [&str; 4] =
    ["kubelet.service", "containerd.service", "crio.service", "my-kubelet.service"];

/// Paths of others.
const OTHER_PATHS: [&str; 6] = [
    "/etc/crictl.yaml",
    "/etc/kubernetes",
    "/etc/systemd/system",
    "/run/containerd/containerd.sock",
    "/var/lib/kubelet/kubeadm-flags.env",
    "/var/lib/kubelet/instance-config.yaml",
];

fn documents(repository: &Repository) -> BTreeMap<&str, Document> {
    let is_document = |file: &&TextFile| file.extension() == Some("md");
    repository
        .files
        .iter()
        .filter(is_document)
        .map(|file| (file.path.as_str(), Document::parse(&file.text)))
        .collect()
}

/// Each relative link leads to a file of the repository, and to a heading if it names one.
pub(super) fn links(repository: &Repository) -> Vec<Finding> {
    let documents = documents(repository);
    let mut found = Vec::new();
    for (path, document) in &documents {
        for (line, link) in &document.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, anchor) = link.split_once('#').map_or((link.as_str(), None), |(t, a)| (t, Some(a)));
            let Some(file) = joined(path, target) else {
                found.push(Finding::new(*path, *line, format!("{link} leads out of the repository")));
                continue;
            };
            let is_there = repository.file(&file).is_some()
                || repository.files.iter().any(|other| other.path.starts_with(&format!("{file}/")));
            if !is_there {
                found.push(Finding::new(*path, *line, format!("{link}: there is no {file}")));
            } else if let Some(anchor) = anchor
                && !documents
                    .get(file.as_str())
                    .is_some_and(|other| other.anchors.iter().any(|one| one == anchor))
            {
                found.push(Finding::new(*path, *line, format!("{link}: {file} has no heading of that name")));
            }
        }
    }
    found
}

/// The path that a link in the file `from` leads to.
fn joined(from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Every page of `docs` is in its index.
pub(super) fn indexed(repository: &Repository) -> Vec<Finding> {
    let Some(index) = repository.file(INDEX) else { return Vec::new() };
    let index = Document::parse(&index.text);
    let pages = repository.files.iter().filter_map(|file| file.path.strip_prefix("docs/"));
    pages
        .filter(|page| page.ends_with(".md") && *page != "README.md")
        .filter(|page| !index.links.iter().any(|(_, link)| link == page))
        .map(|page| Finding::new(INDEX, 0, format!("does not name {page}")))
        .collect()
}

/// Names that may be told.
struct Names {
    /// Flags of the programs that have no commands.
    flags: BTreeMap<&'static str, BTreeSet<String>>,
    /// Commands of koordctl with their options, the common ones included, and whether they take words.
    commands: BTreeMap<String, (BTreeSet<String>, bool)>,
    units: BTreeSet<String>,
    paths: Vec<String>,
    targets: BTreeSet<String>,
}

impl Names {
    fn read(repository: &Repository) -> Names {
        let page = |path: &str| repository.file(path).map(|file| file.text.as_str()).unwrap_or_default();
        let flags = FLAG_PAGES
            .map(|(program, path)| {
                (program, Document::parse(page(path)).cells.iter().filter_map(|cell| dashed(cell)).collect())
            })
            .into();
        let mut commands = BTreeMap::new();
        let mut common = BTreeSet::new();
        for section in page(COMMAND_PAGE).split("\n## ").skip(1) {
            let (name, text) = section.split_once('\n').unwrap_or((section, ""));
            let cells = Document::parse(text).cells;
            let mut options: BTreeSet<String> = cells.iter().flat_map(|cell| options(cell)).collect();
            if name == "Options of every command" {
                common = options;
                continue;
            }
            options.extend(common.iter().cloned());
            let takes_words = cells.iter().any(|cell| {
                cell.strip_prefix('`')
                    .is_some_and(|cell| cell.starts_with(|c: char| c == '[' || c.is_ascii_uppercase()))
            });
            commands.insert(name.to_owned(), (options, takes_words));
        }
        let units = repository.files.iter().filter_map(|file| file.path.strip_prefix("packaging/systemd/"));
        let units = units.filter(|unit| !unit.contains('/')).chain(OTHER_UNITS).map(str::to_owned).collect();
        let mut paths: Vec<String> = OTHER_PATHS.map(str::to_owned).into();
        for cell in Document::parse(page(FILE_PAGE)).cells {
            paths.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
        let targets =
            page("Makefile").lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.to_owned());
        Names { flags, commands, units, paths, targets: targets.collect() }
    }

    /// What of a command does not exist.
    fn unknown(&self, repository: &Repository, command: &Command) -> Vec<String> {
        let mut unknown = Vec::new();
        let Some((program, words)) = command.words.split_first() else { return unknown };
        match program.as_str() {
            "koordctl" => unknown.extend(self.unknown_to_koordctl(words)),
            "make" => unknown.extend(
                words
                    .iter()
                    .filter(|word| !self.targets.contains(*word))
                    .map(|word| format!("make has no {word}")),
            ),
            program if self.flags.contains_key(program) => {
                let flags = &self.flags[program];
                let given = words.iter().filter(|word| word.starts_with("--"));
                let given = given.map(|word| word.split('=').next().unwrap_or(word));
                unknown.extend(
                    given
                        .filter(|flag| !flags.contains(*flag))
                        .map(|flag| format!("{program} has no {flag}")),
                );
            }
            program if OTHER_PROGRAMS.contains(&program) => {}
            program => unknown.push(format!("program {program} is none of this repository, nor a known one")),
        }
        for word in words {
            let value =
                word.split_once('=').map_or(word.as_str(), |(_, value)| value).trim_start_matches("unix://");
            let is_unit =
                [".service", ".socket"].iter().any(|end| value.ends_with(end)) && !value.contains('/');
            if is_unit && !self.units.contains(value) {
                unknown.push(format!("there is no unit {value}"));
            }
            if value.starts_with('/') && !self.knows_path(value) {
                unknown.push(format!("{value} is not in {FILE_PAGE}"));
            }
            if let Some(file) =
                word.strip_prefix("--filename=").filter(|file| file.contains('/') && !file.starts_with('/'))
                && !repository.files.iter().any(|other| other.path.starts_with(file))
            {
                unknown.push(format!("there is no {file}"));
            }
        }
        unknown
    }

    /// A path that is listed, one below a listed directory that ends in `/`, or the directory of one.
    fn knows_path(&self, path: &str) -> bool {
        let path = &real(path);
        self.paths.iter().map(|known| real(known)).any(|known| {
            known == *path
                || known.ends_with('/') && (path.starts_with(&known) || known.trim_end_matches('/') == path)
                || known.starts_with(&format!("{path}/"))
        })
    }

    fn unknown_to_koordctl(&self, words: &[String]) -> Vec<String> {
        let plain: Vec<&str> =
            words.iter().map(String::as_str).take_while(|word| !word.starts_with('-')).collect();
        let name = (1..=plain.len())
            .rev()
            .map(|count| plain[..count].join(" "))
            .find(|name| self.commands.contains_key(name));
        let Some((name, (options, takes_words))) =
            name.and_then(|name| Some((name.clone(), self.commands.get(&name)?)))
        else {
            return vec![format!("koordctl has no {}", plain.join(" "))];
        };
        let mut unknown = Vec::new();
        let count = name.split(' ').count();
        if plain.len() > count && !takes_words {
            unknown.push(format!("koordctl {name} takes no {}", plain[count]));
        }
        for word in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
            let flag = word.split('=').next().unwrap_or(word);
            if !options.contains(flag) {
                unknown.push(format!("koordctl {name} has no {flag}"));
            }
        }
        unknown
    }
}

/// `/var/run` is a link to `/run`.
fn real(path: &str) -> String {
    path.strip_prefix("/var/run/").map_or_else(|| path.to_owned(), |rest| format!("/run/{rest}"))
}

/// The flag of a cell such as `--name VALUE` in code.
fn dashed(cell: &str) -> Option<String> {
    let flag = cell.strip_prefix('`')?.trim_end_matches('`').split(' ').next()?;
    flag.starts_with("--").then(|| flag.to_owned())
}

/// The options of a cell such as `-o, --output FORM` in code.
fn options(cell: &str) -> Vec<String> {
    let words = cell.trim_matches('`').split([' ', ',']);
    words.filter(|word| word.starts_with('-')).map(str::to_owned).collect()
}

/// Commands of pages that are typed as they stand can be read, and name programs, commands, flags, units, paths and targets of
/// make that exist.
pub(super) fn typed(repository: &Repository) -> Vec<Finding> {
    let names = Names::read(repository);
    let mut found = Vec::new();
    for file in TYPED.iter().filter_map(|path| repository.file(path)) {
        let document = Document::parse(&file.text);
        let scripts = document.blocks.iter().filter(|(_, language, _)| language == "sh");
        let scripts = scripts.map(|(line, _, text)| (*line, text.as_str()));
        // A line of a document that runs one of our programs, or has systemd do something to its units.
        let is_ours = |code: &str| {
            ["koordctl ", "koord-runtime-proxy ", "systemctl "].iter().any(|start| code.starts_with(start))
                && !code.contains("...")
        };
        let codes = document.codes.iter().filter(|(_, code)| is_ours(code));
        let codes = codes.map(|(line, text)| (*line, text.as_str()));
        for (start, script) in scripts.chain(codes) {
            match shell::commands(script) {
                Err((line, problem)) => {
                    found.push(Finding::new(&file.path, start + line, format!("no shell command: {problem}")))
                }
                Ok(commands) => {
                    for command in commands {
                        let unknown = names.unknown(repository, &command);
                        found.extend(
                            unknown
                                .into_iter()
                                .map(|text| Finding::new(&file.path, start + command.line, text)),
                        );
                    }
                }
            }
        }
    }
    found
}

/// Flags and metrics in the text of pages exist.
pub(super) fn named(repository: &Repository) -> Vec<Finding> {
    let names = Names::read(repository);
    let metrics =
        repository.file(METRIC_PAGE).map(|file| Document::parse(&file.text).cells).unwrap_or_default();
    let mut found = Vec::new();
    for file in NAMING.iter().filter_map(|path| repository.file(path)) {
        for (line, code) in Document::parse(&file.text).codes {
            let word = code.split([' ', '=', ':']).next().unwrap_or_default();
            let is_known = match word {
                flag if flag.starts_with("--") => {
                    OTHER_FLAGS.contains(&flag)
                        || names.flags.values().any(|flags| flags.contains(flag))
                        || names.commands.values().any(|(options, _)| options.contains(flag))
                }
                metric if metric.starts_with("koordlet_") => {
                    metrics.iter().any(|cell| cell.trim_matches('`') == metric)
                }
                _ => true,
            };
            if !is_known {
                found.push(Finding::new(&file.path, line, format!("there is no {word}")));
            }
        }
    }
    found
}

/// Files that packages install, that units name and that flags have by default are in the list of files.
pub(super) fn listed_files(repository: &Repository) -> Vec<Finding> {
    let names = Names::read(repository);
    let mut told: BTreeSet<(String, String)> = BTreeSet::new();
    for manifest in ["proxy/Cargo.toml", "koordlet/Cargo.toml"] {
        let text = repository.file(manifest).map(|file| file.text.as_str()).unwrap_or_default();
        for line in
            text.lines().map(str::trim).filter(|line| line.starts_with("[\"") && line.ends_with("\"],"))
        {
            let parts: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            let [source, target, _mode] = parts.as_slice() else { continue };
            let name = source.rsplit('/').next().filter(|name| target.ends_with('/') && !name.contains('*'));
            told.insert((manifest.to_owned(), format!("/{target}{}", name.unwrap_or_default())));
        }
    }
    for file in repository.files.iter().filter(|file| file.path.starts_with("packaging/systemd/")) {
        let lines = file.text.lines().filter(|line| !line.starts_with('#'));
        for word in lines.flat_map(|line| line.split([' ', '=', ':'])) {
            told.extend(word.starts_with('/').then(|| (file.path.clone(), word.to_owned())));
        }
    }
    for (_, page) in FLAG_PAGES {
        let text = repository.file(page).map(|file| file.text.as_str()).unwrap_or_default();
        for row in text.lines().filter(|line| line.starts_with("| `--")) {
            let default = row.split(" | ").nth(1).unwrap_or_default();
            let paths = default.split('`').filter(|part| part.starts_with('/') && part.len() > 1);
            told.extend(paths.map(|path| (page.to_owned(), path.to_owned())));
        }
    }
    // Mounts of the container, and the kernel's own files.
    let is_foreign = |path: &str| {
        path == "/run/" || ["/host-", "/bin/", "/proc/", "/sys/"].iter().any(|start| path.starts_with(start))
    };
    told.into_iter()
        .filter(|(_, path)| !is_foreign(path) && !names.knows_path(path))
        .map(|(file, path)| Finding::new(file, 0, format!("{path} is not in {FILE_PAGE}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const NOTHING: [&str; 0] = [];

    fn with(files: &[(&str, &str)]) -> Repository {
        let files = files.iter().map(|(path, text)| TextFile { path: (*path).into(), text: (*text).into() });
        Repository { files: files.collect(), packages: vec![] }
    }

    fn shown(found: Vec<Finding>) -> Vec<String> {
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let repository = with(&[
            (
                "docs/a.md",
                "# A b: `c` & d\n## Same\n## Same\n[x](b.md#one) [y](#a-b-c--d) [z](#same-1)\n[w](../README.md) [v](../docs)\n",
            ),
            ("docs/b.md", "# [One](a.md)\n"),
            ("README.md", "`[no](link)` [s](https://h/x#y)\n    [code](x)\n```\n[code](x)\n```\n"),
        ]);
        assert_eq!(shown(links(&repository)), NOTHING);
        let broken = with(&[("docs/a.md", "# A\n\n[x](b.md) [y](#b) [z](../../c.md)\n")]);
        assert_eq!(
            shown(links(&broken)),
            [
                "docs/a.md:3: b.md: there is no docs/b.md",
                "docs/a.md:3: #b: docs/a.md has no heading of that name",
                "docs/a.md:3: ../../c.md leads out of the repository",
            ]
        );
    }

    #[test]
    fn the_index_names_every_page() {
        let repository = with(&[("docs/README.md", "[a](a.md)\n"), ("docs/a.md", ""), ("docs/b.md", "")]);
        assert_eq!(shown(indexed(&repository)), ["docs/README.md: does not name b.md"]);
    }

    const PAGES: [(&str, &str); 5] = [
        (
            "docs/flags.md",
            "| `--mode MODE` | `enforce` |\n| `--state-dir DIRECTORY` | `/run/p/state` | a | b |\n",
        ),
        (
            "docs/koordctl-commands.md",
            "\n## Options of every command\n| `-o, --output FORM` | x |\n\n## node enable\n| `-y, --yes` | x |\n\n## explain\n| `POD` | x |\n",
        ),
        ("docs/files.md", "| `/etc/koord/node-slo.yaml` | x |\n| `/run/p/` | x |\n"),
        ("Makefile", "packages:\n\tx\n"),
        ("packaging/systemd/p.service", "ExecStart=/usr/bin/p --a=/run/p/q\n#/no\n"),
    ];

    #[test]
    fn what_is_typed_exists() {
        let check = |script: &str| {
            let page = format!("text\n```sh\n{script}\n```\n");
            let mut files = PAGES.to_vec();
            files.push(("docs/install.md", &page));
            shown(typed(&with(&files)))
        };
        for good in [
            "koordctl node enable --yes -o json",
            "koordctl explain NAME --output=yaml",
            "koord-runtime-proxy validate --mode=off /etc/koord/node-slo.yaml",
            "make packages && systemctl restart p.service kubelet.service",
            "cat /run/p/x | grep y # /nowhere",
        ] {
            assert_eq!(check(good), NOTHING, "{good}");
        }
        for (bad, said) in [
            ("koordctl node enabel", "koordctl has no node enabel"),
            ("koordctl node enable now", "koordctl node enable takes no now"),
            ("koordctl node enable --force", "koordctl node enable has no --force"),
            ("koord-runtime-proxy --modes=off", "koord-runtime-proxy has no --modes"),
            ("make package", "make has no package"),
            ("systemctl stop q.service", "there is no unit q.service"),
            ("cat /etc/koord/other", "/etc/koord/other is not in docs/files.md"),
            ("frobnicate", "program frobnicate is none of this repository, nor a known one"),
            ("cat 'x", "no shell command: a quote without its end"),
        ] {
            assert_eq!(check(bad), [format!("docs/install.md:3: {said}")], "{bad}");
        }
    }

    #[test]
    fn flags_and_metrics_that_are_named_exist() {
        let page =
            "`--mode=off` `--yes` `-o` `--config` `koordlet_pods`\n`--mood` `koordlet_pod` `--exit-code`\n";
        let mut files = PAGES.to_vec();
        files.extend([
            ("docs/koordlet-metrics.md", "| `koordlet_pods` | gauge |\n"),
            ("docs/koordlet.md", page),
        ]);
        assert_eq!(
            shown(named(&with(&files))),
            ["--mood", "koordlet_pod", "--exit-code"]
                .map(|name| format!("docs/koordlet.md:2: there is no {name}"))
        );
    }

    #[test]
    fn files_that_are_named_are_listed() {
        let manifest = "    [\"../target/x/bin/p\", \"usr/bin/\", \"755\"],\n    [\"../a/node-slo.yaml\", \"etc/koord/\", \"644\"],\n";
        let mut files = PAGES.to_vec();
        files.push(("proxy/Cargo.toml", manifest));
        assert_eq!(
            shown(listed_files(&with(&files))),
            [
                "packaging/systemd/p.service: /usr/bin/p is not in docs/files.md",
                "proxy/Cargo.toml: /usr/bin/p is not in docs/files.md",
            ]
        );
    }

    #[test]
    fn shells_read_the_blocks_too() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut count = 0;
        for path in TYPED {
            let text = std::fs::read_to_string(root.join(path)).unwrap();
            for (line, _, script) in
                Document::parse(&text).blocks.iter().filter(|(_, language, _)| language == "sh")
            {
                let status = std::process::Command::new("bash").args(["-n", "-c", script]).status().unwrap();
                assert!(status.success(), "{path}:{line}: {script}");
                count += 1;
            }
        }
        assert!(count > 20, "{count}");
    }
}
