//! What a kubelet's command line, configuration file and `/configz` say about control groups.
//!
//! Reading them is the caller's: the file is in the mount namespace of the host, `/configz` behind the kubelet's port.

use super::CgroupDriver;

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
}
