//! What a kubelet's command line, configuration file and `/configz` say about control groups.
//!
//! [`find`] looks for the kubelet among the node's processes. `/configz` is behind the kubelet's port, and asking there the
//! caller's.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CgroupDriver, DriverEvidence};

/// What a kubelet says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KubeletSettings {
    /// The driver, if said and known.
    pub driver: Option<CgroupDriver>,
    /// The group below which the kubelet makes its groups, as written (`/` or `/kubelet`).
    pub cgroup_root: Option<String>,
    /// Path of the configuration file, as written: a relative one starts at the kubelet's working directory.
    pub configuration_file: Option<String>,
}

impl KubeletSettings {
    /// Reads the words of a command line, as in `/proc/PID/cmdline` split at its zero octets. Flags are `--name=value` or
    /// `--name value`; of several the last counts.
    pub fn of_command_line<'a>(words: impl IntoIterator<Item = &'a str>) -> KubeletSettings {
        let mut settings = KubeletSettings::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
            let (name, given) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            if !matches!(name, "cgroup-driver" | "cgroup-root" | "config") {
                continue;
            }
            let Some(value) = given.or_else(|| words.next()) else { break };
            match name {
                "cgroup-driver" => settings.driver = value.parse().ok(),
                "cgroup-root" => settings.cgroup_root = filled(value),
                _ => settings.configuration_file = filled(value),
            }
        }
        settings
    }

    /// Reads a configuration file, YAML or JSON. Of YAML only keys at the start of a line are seen, which is where the two
    /// wanted ones are.
    pub fn of_configuration(text: &str) -> KubeletSettings {
        if text.trim_start().starts_with('{') {
            return match serde_json::from_str::<serde_json::Value>(text) {
                Ok(document) => of_json(&document),
                Err(_) => KubeletSettings::default(),
            };
        }
        let mut settings = KubeletSettings::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            match key.trim_end().trim_matches(['"', '\'']) {
                "cgroupDriver" => settings.driver = scalar(value).parse().ok(),
                "cgroupRoot" => settings.cgroup_root = filled(scalar(value)),
                _ => {}
            }
        }
        settings
    }

    /// Reads the answer of `/configz`.
    pub fn of_configz(text: &str) -> KubeletSettings {
        serde_json::from_str::<serde_json::Value>(text)
            .ok()
            .and_then(|document| document.get("kubeletconfig").map(of_json))
            .unwrap_or_default()
    }
}

/// A kubelet that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundKubelet {
    /// What its command line says.
    pub flags: KubeletSettings,
    /// What its configuration file says, if it has one that can be read.
    pub file: KubeletSettings,
}

impl FoundKubelet {
    /// The group below which it makes its groups: the flag counts before the file.
    pub fn cgroup_root(&self) -> Option<&str> {
        self.flags.cgroup_root.as_deref().or(self.file.cgroup_root.as_deref())
    }

    /// Adds what it says to what is known of the driver.
    pub fn add_to(&self, evidence: &mut DriverEvidence) {
        evidence.has_kubelet = true;
        evidence.kubelet_flag = self.flags.driver.or(evidence.kubelet_flag);
        evidence.kubelet_configuration = self.file.driver.or(evidence.kubelet_configuration);
    }
}

/// Finds the kubelet among the processes below `proc_root` (`/proc`), by the name of its program. Its configuration file is
/// read as it sees it: below its own root, from its own working directory.
pub fn find(proc_root: &Path) -> Option<FoundKubelet> {
    let mut processes: Vec<u32> = fs::read_dir(proc_root)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    // The same one each time, should there be several.
    processes.sort_unstable();
    processes.into_iter().find_map(|pid| {
        let process = proc_root.join(pid.to_string());
        // Processes of the kernel have no command line, and one that has ended has no directory.
        let words = String::from_utf8(fs::read(process.join("cmdline")).ok()?).ok()?;
        let mut words = words.split('\0');
        let program = words.next()?;
        if program.rsplit('/').next() != Some("kubelet") {
            return None;
        }
        let flags = KubeletSettings::of_command_line(words);
        let file = flags
            .configuration_file
            .as_deref()
            .and_then(|file| fs::read_to_string(place_of(&process, file)).ok())
            .map(|text| KubeletSettings::of_configuration(&text))
            .unwrap_or_default();
        Some(FoundKubelet { flags, file })
    })
}

/// Where a file that a process names is.
fn place_of(process: &Path, file: &str) -> PathBuf {
    match file.strip_prefix('/') {
        Some(absolute) => process.join("root").join(absolute),
        None => process.join("cwd").join(file),
    }
}

fn of_json(document: &serde_json::Value) -> KubeletSettings {
    let text = |key: &str| document.get(key).and_then(serde_json::Value::as_str);
    KubeletSettings {
        driver: text("cgroupDriver").and_then(|word| word.parse().ok()),
        cgroup_root: text("cgroupRoot").and_then(filled),
        configuration_file: None,
    }
}

/// A scalar of YAML on one line: without a comment, without quotes.
fn scalar(text: &str) -> &str {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some((inside, _)) = text.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inside;
        }
    }
    text.split(" #").next().unwrap_or(text).trim_end()
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_in_both_spellings_and_the_last_one() {
        let words = [
            "/usr/bin/kubelet",
            "--cgroup-driver=systemd",
            "--config",
            "conf/kubelet.yaml",
            "--v=2",
            "-cgroup-root=/kubelet",
            "--cgroup-driver",
            "cgroupfs",
        ];
        assert_eq!(
            KubeletSettings::of_command_line(words),
            KubeletSettings {
                driver: Some(CgroupDriver::Cgroupfs),
                cgroup_root: Some("/kubelet".to_owned()),
                configuration_file: Some("conf/kubelet.yaml".to_owned()),
            }
        );
        assert_eq!(
            KubeletSettings::of_command_line(["kubelet", "--cgroup-driver"]),
            KubeletSettings::default()
        );
        assert_eq!(KubeletSettings::of_command_line(["kubelet", "--cgroup-driver=x"]).driver, None);
    }

    #[test]
    fn configuration_files() {
        let yaml = "kind: KubeletConfiguration\n\"cgroupDriver\": 'systemd' # as the runtime\ncgroupRoot: /kubelet # x\n";
        let expected = KubeletSettings {
            driver: Some(CgroupDriver::Systemd),
            cgroup_root: Some("/kubelet".to_owned()),
            configuration_file: None,
        };
        assert_eq!(KubeletSettings::of_configuration(yaml), expected);
        let json = r#" {"cgroupDriver":"systemd","cgroupRoot":"/kubelet"}"#;
        assert_eq!(KubeletSettings::of_configuration(json), expected);
        let configz = r#"{"kubeletconfig":{"cgroupDriver":"systemd","cgroupRoot":"/kubelet"}}"#;
        assert_eq!(KubeletSettings::of_configz(configz), expected);
        for nothing in ["", "{", "other:\n  cgroupDriver: systemd\n", "cgroupRoot: \"\""] {
            assert_eq!(KubeletSettings::of_configuration(nothing), KubeletSettings::default(), "{nothing}");
        }
    }

    #[test]
    fn a_kubelet_is_found_by_its_name() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: &str, words: &str| {
            let folder = proc.path().join(pid);
            for sub in ["root/etc", "cwd"] {
                fs::create_dir_all(folder.join(sub)).unwrap();
            }
            fs::write(folder.join("cmdline"), words.replace(' ', "\0")).unwrap();
        };
        process("1", "/sbin/init");
        process("self", "kubelet --cgroup-driver=systemd");
        assert_eq!(find(proc.path()), None);
        process("30", "/usr/bin/kubelet --config=/etc/kubelet.yaml --cgroup-root /a ");
        fs::write(proc.path().join("30/root/etc/kubelet.yaml"), "cgroupDriver: systemd\ncgroupRoot: /b\n")
            .unwrap();
        let found = find(proc.path()).unwrap();
        assert_eq!(found.cgroup_root(), Some("/a"));
        let mut evidence = DriverEvidence::default();
        found.add_to(&mut evidence);
        assert_eq!(
            evidence,
            DriverEvidence {
                has_kubelet: true,
                kubelet_configuration: Some(CgroupDriver::Systemd),
                ..DriverEvidence::default()
            }
        );
        process("4", "kubelet --config conf.json --cgroup-driver=cgroupfs");
        fs::write(proc.path().join("4/cwd/conf.json"), "{\"cgroupRoot\":\"/c\"}").unwrap();
        let found = find(proc.path()).unwrap();
        assert_eq!((found.cgroup_root(), found.flags.driver), (Some("/c"), Some(CgroupDriver::Cgroupfs)));
    }
}
