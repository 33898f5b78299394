//! Unit files of systemd and environment files: what they set, and where that stands.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::flags;
use crate::system::Files;

/// Where systemd looks for units, first match first (systemd.unit(5)).
pub const UNIT_DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// `KEY=VALUE` of a unit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Section, without brackets.
    pub section: String,
    /// Key.
    pub key: String,
    /// Value with continued lines joined.
    pub value: String,
    /// Where the value stands, as written.
    pub span: Range<usize>,
}

/// What a unit file sets, in its order.
pub fn settings(text: &str) -> Vec<Setting> {
    let (mut found, mut section, mut offset) = (Vec::<Setting>::new(), String::new(), 0);
    let mut continues = false;
    for line in text.split_inclusive('\n') {
        let begin = offset;
        offset += line.len();
        let content = line.trim_end_matches(['\n', '\r']);
        let trimmed = content.trim_start();
        // Comments may stand between continued lines.
        if trimmed.starts_with(['#', ';']) || (trimmed.is_empty() && !continues) {
            continue;
        }
        let joined = content.strip_suffix('\\');
        let part = joined.unwrap_or(content);
        if continues {
            if let Some(last) = found.last_mut() {
                last.value.push(' ');
                last.value.push_str(part.trim());
                last.span.end = begin + content.len();
            }
        } else if let Some(name) =
            trimmed.strip_prefix('[').and_then(|rest| rest.trim_end().strip_suffix(']'))
        {
            name.clone_into(&mut section);
            continue;
        } else if let Some((key, value)) = part.split_once('=') {
            let start = begin + key.len() + 1;
            found.push(Setting {
                section: section.clone(),
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
                span: start..begin + content.len(),
            });
        } else {
            continues = false;
            continue;
        }
        continues = joined.is_some();
    }
    found
}

/// A value and the file it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The file.
    pub file: PathBuf,
    /// The value with continued lines joined.
    pub value: String,
    /// Where it stands in the file, as written.
    pub span: Range<usize>,
}

/// The parts of a service that say how its process is called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unit {
    /// Such as `kubelet.service`.
    pub name: String,
    /// Its own file.
    pub fragment: PathBuf,
    /// Drop-ins, in the order systemd reads them.
    pub drop_ins: Vec<PathBuf>,
    /// The command in force.
    pub command: Option<Located>,
    /// Environment files in force: `-` in front marks those that may be missing.
    pub environment_files: Vec<Located>,
    /// `Environment=` in force.
    pub environment: Vec<Located>,
}

impl Unit {
    /// The unit as its files say; nothing if there is none.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn load(files: &dyn Files, name: &str) -> io::Result<Option<Unit>> {
        let mut unit = Unit { name: name.to_owned(), ..Unit::default() };
        let Some((fragment, text)) = UNIT_DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(name))
            .find_map(|path| match files.read(&path) {
                Ok(Some(file)) => Some(Ok((path, file.text))),
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            })
            .transpose()?
        else {
            return Ok(None);
        };
        unit.take(&fragment, &text);
        unit.fragment = fragment;
        for path in drop_ins(files, name)? {
            if let Some(file) = files.read(&path)? {
                unit.take(&path, &file.text);
                unit.drop_ins.push(path);
            }
        }
        Ok(Some(unit))
    }

    fn take(&mut self, file: &Path, text: &str) {
        for Setting { section, key, value, span } in settings(text) {
            if section != "Service" {
                continue;
            }
            let is_reset = value.is_empty();
            let located = Located { file: file.to_owned(), value, span };
            match key.as_str() {
                "ExecStart" if is_reset => self.command = None,
                "ExecStart" => self.command = Some(located),
                "EnvironmentFile" if is_reset => self.environment_files.clear(),
                "EnvironmentFile" => self.environment_files.push(located),
                "Environment" if is_reset => self.environment.clear(),
                "Environment" => self.environment.push(located),
                _ => {}
            }
        }
    }

    /// Environment files in force that may exist, in the order systemd reads them.
    pub fn environment_paths(&self) -> Vec<PathBuf> {
        self.environment_files.iter().map(|file| PathBuf::from(file.value.trim_start_matches('-'))).collect()
    }

    /// Variables of the process, each with the file that sets it last.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn variables(&self, files: &dyn Files) -> io::Result<BTreeMap<String, Located>> {
        let mut variables = BTreeMap::new();
        for setting in &self.environment {
            for word in flags::words(&setting.value) {
                if let Some((name, value)) = word.split_once('=') {
                    variables.insert(name.to_owned(), Located { value: value.to_owned(), ..setting.clone() });
                }
            }
        }
        for path in self.environment_paths() {
            let Some(file) = files.read(&path)? else { continue };
            for Assignment { name, value, span } in assignments(&file.text) {
                variables.insert(name, Located { file: path.clone(), value, span });
            }
        }
        Ok(variables)
    }

    /// The words of the command with its variables put in, as systemd does it: `$NAME` as a word of its own is split,
    /// `${NAME}` is not. Without the signs in front of the program's path.
    pub fn arguments(&self, variables: &BTreeMap<String, Located>) -> Vec<String> {
        let Some(command) = &self.command else { return Vec::new() };
        let value = |name: &str| variables.get(name).map_or("", |variable| variable.value.as_str());
        let mut arguments = Vec::new();
        for word in flags::words(&command.value) {
            let name = word.strip_prefix('$').filter(|name| is_variable(name));
            match name {
                Some(name) => arguments.extend(flags::words(value(name))),
                None => arguments.push(with_variables(&word, value)),
            }
        }
        if let Some(program) = arguments.first_mut() {
            *program = program.trim_start_matches(['-', '@', ':', '+', '!']).to_owned();
        }
        arguments
    }

    /// Names of the variables that the command uses.
    pub fn used_variables(&self) -> Vec<String> {
        let Some(command) = &self.command else { return Vec::new() };
        let mut names = Vec::new();
        for part in command.value.split('$').skip(1) {
            let part = part.strip_prefix('{').unwrap_or(part);
            let end = part.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(part.len());
            names.extend(part.get(..end).filter(|name| is_variable(name)).map(str::to_owned));
        }
        names
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn with_variables<'a>(word: &str, value: impl Fn(&str) -> &'a str) -> String {
    let (mut result, mut rest) = (String::new(), word);
    while let Some((before, after)) = rest.split_once("${") {
        result.push_str(before);
        match after.split_once('}') {
            Some((name, behind)) if is_variable(name) => {
                result.push_str(value(name));
                rest = behind;
            }
            _ => {
                result.push_str("${");
                rest = after;
            }
        }
    }
    result + rest
}

/// Drop-ins of a unit in the order systemd reads them: by name, and of one name the first directory's only.
///
/// # Errors
/// A directory cannot be read.
pub fn drop_ins(files: &dyn Files, unit: &str) -> io::Result<Vec<PathBuf>> {
    let mut by_name = BTreeMap::new();
    for directory in UNIT_DIRECTORIES {
        let folder = Path::new(directory).join(format!("{unit}.d"));
        for name in files.list(&folder)? {
            if name.ends_with(".conf") {
                let path = folder.join(&name);
                by_name.entry(name).or_insert(path);
            }
        }
    }
    Ok(by_name.into_values().collect())
}

/// `NAME=VALUE` of an environment file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Name.
    pub name: String,
    /// Value without its quotes.
    pub value: String,
    /// Where the value stands, with its quotes.
    pub span: Range<usize>,
}

/// What an environment file sets, in its order; a quoted value may have several lines.
pub fn assignments(text: &str) -> Vec<Assignment> {
    let (mut found, mut offset) = (Vec::new(), 0);
    while let Some(rest) = text.get(offset..).filter(|rest| !rest.is_empty()) {
        let line_length = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let line = rest.get(..line_length).unwrap_or(rest);
        let trimmed = line.trim_start();
        let parts = line.split_once('=').filter(|_| !trimmed.starts_with(['#', ';']));
        let Some((name, after)) =
            parts.filter(|(name, _)| is_variable(name.trim().trim_start_matches("export ")))
        else {
            offset += line_length;
            continue;
        };
        let start = offset + name.len() + 1 + (after.len() - after.trim_start_matches([' ', '\t']).len());
        let length = value_length(text.get(start..).unwrap_or_default());
        let raw = text.get(start..start + length).unwrap_or_default();
        found.push(Assignment {
            name: name.trim().trim_start_matches("export ").to_owned(),
            value: unquoted(raw.trim_end()),
            span: start..start + raw.trim_end().len(),
        });
        offset = (start + length).max(offset + 1);
        if text.get(offset..).is_some_and(|rest| rest.starts_with('\n')) {
            offset += 1;
        }
    }
    found
}

/// Bytes up to the line end that ends the value.
fn value_length(text: &str) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for (offset, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quote != Some('\'') => escaped = true,
            '\n' if quote.is_none() => return offset,
            close if quote == Some(close) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(character),
            _ => {}
        }
    }
    text.len()
}

fn unquoted(raw: &str) -> String {
    let (mut value, mut quote) = (String::new(), None);
    let mut characters = raw.chars();
    while let Some(character) = characters.next() {
        match character {
            close if quote == Some(close) => quote = None,
            '\\' if quote != Some('\'') => match characters.next() {
                Some('\n') | None => {}
                Some(next) => value.push(next),
            },
            '"' | '\'' if quote.is_none() => quote = Some(character),
            other => value.push(other),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryFiles;
    use proptest::prelude::*;

    /// The unit and drop-in of kubeadm's packages.
    const KUBEADM: [(&str, &str); 4] = [
        (
            "/usr/lib/systemd/system/kubelet.service",
            "[Unit]\nDescription=kubelet\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n",
        ),
        (
            "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
            "# Note: made by kubeadm\n[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\"\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
        ),
        (
            "/var/lib/kubelet/kubeadm-flags.env",
            "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --pod-infra-container-image=x\"\n",
        ),
        ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1\n"),
    ];

    #[test]
    fn kubeadm_s_unit() {
        let files = MemoryFiles::of(&KUBEADM);
        let unit = Unit::load(&files, "kubelet.service").unwrap().unwrap();
        assert_eq!(unit.fragment, Path::new("/usr/lib/systemd/system/kubelet.service"));
        assert_eq!(unit.drop_ins.len(), 1);
        let variables = unit.variables(&files).unwrap();
        assert_eq!(
            unit.arguments(&variables),
            [
                "/usr/bin/kubelet",
                "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
                "--kubeconfig=/etc/kubernetes/kubelet.conf",
                "--config=/var/lib/kubelet/config.yaml",
                "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
                "--pod-infra-container-image=x",
                "--node-ip=10.0.0.1",
            ]
        );
        assert_eq!(
            unit.used_variables(),
            ["KUBELET_KUBECONFIG_ARGS", "KUBELET_CONFIG_ARGS", "KUBELET_KUBEADM_ARGS", "KUBELET_EXTRA_ARGS"]
        );
        assert_eq!(variables["KUBELET_KUBEADM_ARGS"].file, Path::new("/var/lib/kubelet/kubeadm-flags.env"));
    }

    #[test]
    fn nearer_directories_hide_and_names_give_the_order() {
        let files = MemoryFiles::of(&[
            ("/usr/lib/systemd/system/k.service", "[Service]\nExecStart=/far\n"),
            ("/etc/systemd/system/k.service", "[Service]\nExecStart=/near\n"),
            ("/usr/lib/systemd/system/k.service.d/20-a.conf", "[Service]\nEnvironment=A=far\n"),
            ("/etc/systemd/system/k.service.d/20-a.conf", "[Service]\nEnvironment=A=near\n"),
            ("/etc/systemd/system/k.service.d/10-a.conf", "[Service]\nEnvironment=A=first B=1\n"),
            ("/etc/systemd/system/k.service.d/notes.txt", "[Service]\nEnvironment=A=no\n"),
        ]);
        let unit = Unit::load(&files, "k.service").unwrap().unwrap();
        let variables = unit.variables(&files).unwrap();
        assert_eq!(unit.arguments(&variables), ["/near"]);
        assert_eq!((variables["A"].value.as_str(), variables["B"].value.as_str()), ("near", "1"));
        assert_eq!(Unit::load(&files, "x.service").unwrap(), None);
    }

    #[test]
    fn commands_with_signs_continued_lines_and_variables() {
        let text =
            "[Service]\nExecStart=-/k --a=${A}/x \\\n# between\n  $B \\\n  --c\n[Install]\nExecStart=/no\n";
        let files = MemoryFiles::of(&[("/etc/systemd/system/k.service", text)]);
        let unit = Unit::load(&files, "k.service").unwrap().unwrap();
        let mut variables = BTreeMap::new();
        for (name, value) in [("A", "1 2"), ("B", "--x --y")] {
            let located = Located { file: PathBuf::new(), value: value.to_owned(), span: 0..0 };
            variables.insert(name.to_owned(), located);
        }
        assert_eq!(unit.arguments(&variables), ["/k", "--a=1 2/x", "--x", "--y", "--c"]);
        let span = unit.command.unwrap().span;
        assert_eq!(&text[span], "-/k --a=${A}/x \\\n# between\n  $B \\\n  --c");
    }

    #[test]
    fn environment_files() {
        let text =
            "# A=0\nA=1\nB=\"x y\"\n C = 'z\\'\nexport D=a\\ b\nE=\"one \\\ntwo\"\nF=\nbad line\nG=g # h\n";
        let found: Vec<(String, String)> =
            assignments(text).into_iter().map(|found| (found.name, found.value)).collect();
        let expected = [
            ("A", "1"),
            ("B", "x y"),
            ("C", "z\\"),
            ("D", "a b"),
            ("E", "one two"),
            ("F", ""),
            ("G", "g # h"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for Assignment { name, span, .. } in assignments("A=1\nB=\"x\"\n") {
            assert_eq!(&"A=1\nB=\"x\"\n"[span], if name == "A" { "1" } else { "\"x\"" });
        }
    }

    proptest! {
        #[test]
        fn any_text_is_looked_at(text in "[ -~\n]{0,120}") {
            for setting in settings(&text) {
                prop_assert!(text.get(setting.span).is_some());
            }
            for assignment in assignments(&text) {
                prop_assert!(text.get(assignment.span).is_some());
            }
        }

        #[test]
        fn what_is_written_is_read(values in proptest::collection::vec("[a-z =/#-]{0,12}", 1..6)) {
            let text: String = values.iter().enumerate().map(|(i, v)| format!("N{i}=\"{v}\"\n")).collect();
            let read: Vec<String> = assignments(&text).into_iter().map(|found| found.value).collect();
            prop_assert_eq!(read, values);
        }
    }
}
