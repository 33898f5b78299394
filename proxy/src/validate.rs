//! The `validate` command: says whether the proxy would start, and with which registrations.

use std::fmt::Write as _;
use std::io;

use koord_runtime::error_chain::Chain;

use crate::flags::Config;
use crate::qos::read_policy;
use crate::registration::{DirectoryError, FoundFile, read_directory};
use crate::trust::Trust;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What is well, one line each.
    pub notes: Vec<String>,
    /// What is wrong, one line each.
    pub mistakes: Vec<String>,
}

impl Report {
    /// Notes first, then mistakes, one a line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            // Writing to a String cannot fail, here and below.
            let _infallible = writeln!(text, "ok: {note}");
        }
        for mistake in &self.mistakes {
            let _infallible = writeln!(text, "mistake: {mistake}");
        }
        text
    }
}

/// Checks the registration files and the node policy; the flags are checked already.
pub fn validate(config: &Config, trust: &Trust) -> Report {
    let mut report = Report { notes: vec!["command line".to_owned()], mistakes: Vec::new() };
    let directory = config.hook_config_dir.display();
    match read_directory(&config.hook_config_dir, trust) {
        Ok(files) if files.is_empty() => report.notes.push(format!("{directory}: no registration files")),
        Ok(files) => {
            for FoundFile { name, registration } in files {
                match registration {
                    Ok(registration) => {
                        let hooks: Vec<&str> = registration.hooks.iter().map(|hook| hook.as_str()).collect();
                        report.notes.push(format!(
                            "{directory}/{name}: {} for {} ({})",
                            registration.endpoint,
                            if hooks.is_empty() { "no hooks".to_owned() } else { hooks.join(", ") },
                            registration.failure_policy.as_str(),
                        ));
                    }
                    Err(error) => report.mistakes.push(format!("{directory}/{name}: {}", Chain(&error))),
                }
            }
        }
        Err(DirectoryError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            report.notes.push(format!("{directory}: missing, will be created at the start"));
        }
        Err(error) => report.mistakes.push(Chain(&error).to_string()),
    }
    if let Some(file) = &config.qos.node_policy {
        match read_policy(file, trust) {
            Ok(Some(_policy)) => report.notes.push(format!("{}: node policy", file.display())),
            Ok(None) => report.notes.push(format!("{}: missing, the defaults hold", file.display())),
            Err(error) => report.mistakes.extend(error.sentences()),
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Command, command};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    fn check(directory: &Path) -> Report {
        let argument = format!("--hook-config-dir={}", directory.display());
        let Ok(Command::Serve(config)) = command([argument.into(), "--node-policy=".into()]) else {
            panic!("flags are refused")
        };
        validate(&config, &Trust::of_this_process())
    }

    #[test]
    fn all_mistakes_of_a_policy_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let policy = folder.path().join("policy.yaml");
        let check = || {
            let flags = [
                format!("--hook-config-dir={}", folder.path().join("none").display()),
                format!("--node-policy={}", policy.display()),
            ];
            let Ok(Command::Serve(config)) = command(flags.map(Into::into)) else {
                panic!("flags are refused")
            };
            validate(&config, &Trust::of_this_process())
        };
        assert_eq!(check().notes[2], format!("{}: missing, the defaults hold", policy.display()));
        fs::write(&policy, "cpuBurstStrategy:\n  cpuBurstPercent: 0\n").expect("written");
        assert_eq!(check().mistakes, Vec::<String>::new());
        fs::write(&policy, "cpuBurstStrategy:\n  cpuBurstPercent: -1\n  colour: red\n").expect("written");
        assert_eq!(check().mistakes.len(), 2, "{:?}", check().mistakes);
    }

    #[test]
    fn every_bad_file_is_named_beside_the_good_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("hookserver.d");
        let shown = directory.display();
        let report = check(&directory);
        assert_eq!(report.mistakes, Vec::<String>::new());
        assert_eq!(report.notes[1], format!("{shown}: missing, will be created at the start"));

        fs::create_dir(&directory).expect("made");
        assert_eq!(check(&directory).notes[1], format!("{shown}: no registration files"));

        let write = |name: &str, content: &str| {
            let path = directory.join(name);
            fs::write(&path, content).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        };
        write("a.json", r#"{"remote-endpoint": "/k.sock", "runtime-hooks": ["PreRunPodSandbox"]}"#);
        write("b.json", "not JSON");
        write("c.json", r#"{"remote-endpoint": "tcp://k"}"#);
        let report = check(&directory);
        assert_eq!(report.notes[1], format!("{shown}/a.json: /k.sock for PreRunPodSandbox (Ignore)"));
        assert_eq!(report.mistakes.len(), 2, "{report:?}");
        assert!(report.mistakes[0].starts_with(&format!("{shown}/b.json: ")), "{report:?}");
        assert!(report.mistakes[1].starts_with(&format!("{shown}/c.json: ")), "{report:?}");
        let text = report.text();
        assert_eq!(text.lines().filter(|line| line.starts_with("ok: ")).count(), 2);
        assert_eq!(text.lines().filter(|line| line.starts_with("mistake: ")).count(), 2);
    }

    #[test]
    fn a_directory_others_may_write_is_a_mistake() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("set");
        let report = check(folder.path());
        assert_eq!(report.mistakes.len(), 1, "{report:?}");
        assert!(report.mistakes[0].contains("0777"), "{report:?}");
    }
}
