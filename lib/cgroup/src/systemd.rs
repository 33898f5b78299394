//! Properties of systemd's units.
//!
//! With the systemd driver the slices of pods and of classes are systemd's: a value written to a file behind its back is
//! lost when systemd next writes that slice, and an idle class makes the kubelet's own write fail, so that it does not
//! start. What systemd has a property for is therefore set as a property, until the next boot.

use std::fmt;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use koord_extension::cpuset::CpuSet;
use thiserror::Error;

use crate::executor::Executor;
use crate::path::CgroupPath;
use crate::resource::Resource;
use crate::value::{UNLIMITED, Value};
use crate::version::CgroupVersion;

/// First version that takes `CPUWeight=idle`.
pub const IDLE_WEIGHT_SINCE: u32 = 250;
/// How long one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether a call has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Most octets of an answer that are kept.
const ANSWER_OCTETS: u64 = 64 * 1024;

/// systemd does not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SystemdError {
    /// The name cannot be a unit's.
    #[error("{unit:?} is not the name of a slice, scope or service")]
    Unit {
        /// The name.
        unit: String,
    },
    /// `systemctl` cannot be run.
    #[error("cannot run {program}: {reason}")]
    Run {
        /// The program.
        program: String,
        /// What the system says.
        reason: String,
    },
    /// `systemctl` did not end in time.
    #[error("{program} did not answer within {} s", limit.as_secs())]
    Slow {
        /// The program.
        program: String,
        /// The time it had.
        limit: Duration,
    },
    /// `systemctl` failed.
    #[error("{program} {call} failed with {status}: {message}")]
    Refused {
        /// The program.
        program: String,
        /// What was asked.
        call: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        message: String,
    },
    /// The answer cannot be understood.
    #[error("cannot understand the version in {text:?}")]
    Version {
        /// The answer.
        text: String,
    },
    /// This systemd, or this version of control groups, knows no idle weight.
    #[error(
        "CPUWeight=idle needs version 2 of control groups and systemd {IDLE_WEIGHT_SINCE}; found {found}"
    )]
    NoIdleWeight {
        /// What was found.
        found: String,
    },
    /// The property was taken and the kernel does not show it.
    #[error("{unit} took {property}, and cpu.idle is {found}")]
    NotKept {
        /// The unit.
        unit: String,
        /// The property.
        property: String,
        /// What the kernel shows.
        found: String,
    },
}

/// A property of a unit that limits or weighs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Property {
    /// `CPUWeight=`: 1..10000.
    CpuWeight(i64),
    /// `CPUWeight=idle`.
    CpuIdle,
    /// `CPUQuota=`: microseconds of CPU time in each 100 ms; −1 for no limit.
    CpuQuota(i64),
    /// `AllowedCPUs=`: an empty set for all.
    AllowedCpus(CpuSet),
    /// `MemoryMin=` in bytes; −1 for all.
    MemoryMin(i64),
    /// `MemoryLow=` in bytes; −1 for all.
    MemoryLow(i64),
    /// `MemoryHigh=` in bytes; −1 for no limit.
    MemoryHigh(i64),
    /// `MemoryMax=` in bytes; −1 for no limit.
    MemoryMax(i64),
    /// `IOWeight=`: 1..10000.
    IoWeight(i64),
}

impl Property {
    /// The name as `systemctl show` has it.
    pub const fn name(&self) -> &'static str {
        match self {
            Property::CpuWeight(_) | Property::CpuIdle => "CPUWeight",
            Property::CpuQuota(_) => "CPUQuota",
            Property::AllowedCpus(_) => "AllowedCPUs",
            Property::MemoryMin(_) => "MemoryMin",
            Property::MemoryLow(_) => "MemoryLow",
            Property::MemoryHigh(_) => "MemoryHigh",
            Property::MemoryMax(_) => "MemoryMax",
            Property::IoWeight(_) => "IOWeight",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}=", self.name())?;
        match self {
            Property::CpuWeight(weight) | Property::IoWeight(weight) => write!(formatter, "{weight}"),
            Property::CpuIdle => formatter.write_str("idle"),
            Property::CpuQuota(UNLIMITED) => Ok(()),
            Property::CpuQuota(quota) => {
                // A percentage of one CPU, to the hundredth: 10 microseconds of 100 ms.
                let hundredths = (quota / 10).max(1);
                match hundredths % 100 {
                    0 => write!(formatter, "{}%", hundredths / 100),
                    rest => write!(formatter, "{}.{rest:02}%", hundredths / 100),
                }
            }
            Property::AllowedCpus(cpus) => write!(formatter, "{cpus}"),
            Property::MemoryMin(bytes)
            | Property::MemoryLow(bytes)
            | Property::MemoryHigh(bytes)
            | Property::MemoryMax(bytes) => {
                if *bytes == UNLIMITED || *bytes == i64::MAX {
                    formatter.write_str("infinity")
                } else {
                    write!(formatter, "{bytes}")
                }
            }
        }
    }
}

/// Talks to systemd.
pub trait UnitManager: Send + Sync + fmt::Debug {
    /// The version of systemd.
    fn version(&self) -> Result<u32, SystemdError>;
    /// Sets properties of a unit until the next boot.
    fn set(&self, unit: &str, properties: &[Property]) -> Result<(), SystemdError>;
    /// A property as `systemctl show` prints it.
    fn show(&self, unit: &str, property: &str) -> Result<String, SystemdError>;
}

/// systemd by its command-line tool.
#[derive(Debug, Clone)]
pub struct Systemctl {
    program: PathBuf,
    limit: Duration,
}

impl Default for Systemctl {
    fn default() -> Systemctl {
        Systemctl::new("systemctl")
    }
}

impl Systemctl {
    /// With this program.
    pub fn new(program: impl Into<PathBuf>) -> Systemctl {
        Systemctl { program: program.into(), limit: CALL_LIMIT }
    }

    /// With another limit for the time of a call.
    #[must_use]
    pub const fn with_limit(mut self, limit: Duration) -> Systemctl {
        self.limit = limit;
        self
    }

    fn call(&self, words: &[String]) -> Result<String, SystemdError> {
        let program = self.program.display().to_string();
        let failed =
            |error: std::io::Error| SystemdError::Run { program: program.clone(), reason: error.to_string() };
        let mut child = Command::new(&self.program)
            .args(words)
            .env("LC_ALL", "C")
            .env("SYSTEMD_PAGER", "")
            .env("SYSTEMD_COLORS", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let start = Instant::now();
        // The answers are a few lines, far below what a pipe holds, so the program ends without being read.
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None if start.elapsed() >= self.limit => {
                    child.kill().map_err(failed)?;
                    child.wait().map_err(failed)?;
                    return Err(SystemdError::Slow { program, limit: self.limit });
                }
                None => thread::sleep(LOOK_EVERY),
            }
        };
        let text_of = |pipe: Option<&mut dyn std::io::Read>| {
            let mut text = Vec::new();
            if let Some(pipe) = pipe {
                // What was said so far will do.
                let _count = pipe.take(ANSWER_OCTETS).read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).trim().to_owned()
        };
        let answer = text_of(child.stdout.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
        if status.success() {
            return Ok(answer);
        }
        let message = text_of(child.stderr.as_mut().map(|pipe| pipe as &mut dyn std::io::Read));
        let message = crate::error::shown(&message);
        Err(SystemdError::Refused { program, call: words.join(" "), status, message })
    }
}

impl UnitManager for Systemctl {
    fn version(&self) -> Result<u32, SystemdError> {
        parse_version(&self.call(&["--version".to_owned()])?)
    }

    fn set(&self, unit: &str, properties: &[Property]) -> Result<(), SystemdError> {
        check_unit(unit)?;
        let mut words = vec!["set-property".to_owned(), "--runtime".to_owned(), unit.to_owned()];
        words.extend(properties.iter().map(Property::to_string));
        self.call(&words).map(|_| ())
    }

    fn show(&self, unit: &str, property: &str) -> Result<String, SystemdError> {
        check_unit(unit)?;
        let words = ["show", "--value", "--property", property, unit];
        self.call(&words.map(str::to_owned))
    }
}

/// The version in the first line of `systemctl --version`: `systemd 252 (252.39-1~deb12u1)`.
pub fn parse_version(text: &str) -> Result<u32, SystemdError> {
    let number = text.lines().next().and_then(|line| line.strip_prefix("systemd ")).and_then(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    });
    number.ok_or_else(|| SystemdError::Version { text: crate::error::shown(text) })
}

fn check_unit(unit: &str) -> Result<(), SystemdError> {
    let is_kind = [".slice", ".scope", ".service"]
        .iter()
        .any(|kind| unit.strip_suffix(kind).is_some_and(|name| !name.is_empty()));
    let is_clean = unit
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, ':' | '-' | '_' | '.' | '\\' | '@'));
    if is_kind && is_clean && !unit.starts_with('-') && unit.len() < 256 {
        Ok(())
    } else {
        Err(SystemdError::Unit { unit: unit.to_owned() })
    }
}

/// Makes a slice idle by its property, and sees to it that the kernel shows it. If it does not, the slice gets
/// `weight` back. The slice's group is `path`; its unit is the last name of that.
pub fn make_idle(
    manager: &dyn UnitManager,
    executor: &Executor,
    path: &CgroupPath,
    weight: i64,
) -> Result<(), SystemdError> {
    let unit = path.name();
    if executor.layout().version() != CgroupVersion::V2 {
        return Err(SystemdError::NoIdleWeight { found: "version 1 of control groups".to_owned() });
    }
    let version = manager.version()?;
    if version < IDLE_WEIGHT_SINCE {
        return Err(SystemdError::NoIdleWeight { found: format!("systemd {version}") });
    }
    manager.set(unit, &[Property::CpuIdle])?;
    match executor.read(path, Resource::CpuIdle) {
        Ok(Value::Integer(1)) => Ok(()),
        found => {
            manager.set(unit, &[Property::CpuWeight(weight)])?;
            Err(not_kept(unit, &Property::CpuIdle, found))
        }
    }
}

/// Ends what [`make_idle`] did: the slice gets `weight`, which also makes it idle no more.
pub fn clear_idle(
    manager: &dyn UnitManager,
    executor: &Executor,
    path: &CgroupPath,
    weight: i64,
) -> Result<(), SystemdError> {
    let property = Property::CpuWeight(weight);
    manager.set(path.name(), std::slice::from_ref(&property))?;
    match executor.read(path, Resource::CpuIdle) {
        Ok(Value::Integer(0)) => Ok(()),
        found => Err(not_kept(path.name(), &property, found)),
    }
}

fn not_kept(unit: &str, property: &Property, found: Result<Value, crate::CgroupError>) -> SystemdError {
    SystemdError::NotKept {
        unit: unit.to_owned(),
        property: property.to_string(),
        found: found.map_or_else(|error| error.to_string(), |value| value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Mutex;

    use koord_extension::qos::KubeQos;

    use super::*;
    use crate::driver::CgroupDriver;
    use crate::layout::Layout;
    use crate::testing::ModelKernel;

    #[test]
    fn properties_in_words() {
        for (property, text) in [
            (Property::CpuIdle, "CPUWeight=idle"),
            (Property::CpuWeight(1), "CPUWeight=1"),
            (Property::CpuQuota(50_000), "CPUQuota=50%"),
            (Property::CpuQuota(150_000), "CPUQuota=150%"),
            (Property::CpuQuota(12_345), "CPUQuota=12.34%"),
            (Property::CpuQuota(1_050), "CPUQuota=1.05%"),
            (Property::CpuQuota(-1), "CPUQuota="),
            (Property::AllowedCpus(CpuSet::range(0, 3)), "AllowedCPUs=0-3"),
            (Property::AllowedCpus(CpuSet::new()), "AllowedCPUs="),
            (Property::MemoryMax(-1), "MemoryMax=infinity"),
            (Property::MemoryHigh(4096), "MemoryHigh=4096"),
            (Property::MemoryLow(0), "MemoryLow=0"),
            (Property::MemoryMin(i64::MAX), "MemoryMin=infinity"),
            (Property::IoWeight(100), "IOWeight=100"),
        ] {
            assert_eq!(property.to_string(), text);
        }
    }

    #[test]
    fn versions() {
        assert_eq!(parse_version("systemd 252 (252.39-1~deb12u1)\n+PAM +AUDIT\n"), Ok(252));
        assert_eq!(parse_version("systemd 257~rc1"), Ok(257));
        for text in ["", "systemd", "systemd x", "upstart 1"] {
            assert!(parse_version(text).is_err(), "{text}");
        }
    }

    /// A program that notes its words and answers.
    fn program(folder: &std::path::Path, script: &str) -> Systemctl {
        let path = folder.join("systemctl");
        let words = folder.join("words").display().to_string();
        std::fs::write(&path, format!("#!/bin/sh\necho \"$@\" >> {words}\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Systemctl::new(path)
    }

    #[test]
    fn the_tool_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let systemctl = program(folder.path(), "echo 'systemd 252 (252)'");
        assert_eq!(systemctl.version(), Ok(252));
        let properties = [Property::CpuIdle, Property::CpuQuota(-1)];
        systemctl.set("kubepods-besteffort.slice", &properties).unwrap();
        assert_eq!(systemctl.show("a.slice", "CPUWeight"), Ok("systemd 252 (252)".to_owned()));
        assert_eq!(
            std::fs::read_to_string(folder.path().join("words")).unwrap(),
            "--version\nset-property --runtime kubepods-besteffort.slice CPUWeight=idle CPUQuota=\nshow --value --property CPUWeight a.slice\n"
        );
        for unit in ["", ".slice", "a", "-a.slice", "a b.slice", "a/b.slice", "a;.slice"] {
            assert_eq!(systemctl.set(unit, &[]), Err(SystemdError::Unit { unit: unit.to_owned() }));
        }
    }

    #[test]
    fn a_tool_that_fails_or_hangs_or_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let failing = program(folder.path(), "echo 'Unknown assignment' >&2; exit 3");
        let error = failing.set("a.slice", &[Property::CpuIdle]).unwrap_err();
        assert!(
            matches!(&error, SystemdError::Refused { message, .. } if message == "Unknown assignment"),
            "{error}"
        );
        let hanging = program(folder.path(), "exec sleep 100").with_limit(Duration::from_millis(50));
        assert!(matches!(hanging.version(), Err(SystemdError::Slow { .. })));
        let missing = Systemctl::new(folder.path().join("missing"));
        assert!(matches!(missing.version(), Err(SystemdError::Run { .. })));
    }

    /// A systemd that writes to the model as the real one does.
    #[derive(Debug)]
    struct FakeManager {
        kernel: ModelKernel,
        version: u32,
        ignores_idle: bool,
        calls: Mutex<Vec<String>>,
    }

    impl UnitManager for FakeManager {
        fn version(&self) -> Result<u32, SystemdError> {
            Ok(self.version)
        }

        fn set(&self, unit: &str, properties: &[Property]) -> Result<(), SystemdError> {
            let path = format!("kubepods.slice/{unit}");
            for property in properties {
                self.calls.lock().unwrap().push(format!("{unit} {property}"));
                match property {
                    Property::CpuIdle if !self.ignores_idle => self.kernel.set(&path, "cpu.idle", "1"),
                    Property::CpuWeight(weight) => {
                        self.kernel.set(&path, "cpu.idle", "0");
                        self.kernel.set(&path, "cpu.weight", &weight.to_string());
                    }
                    _ => {}
                }
            }
            Ok(())
        }

        fn show(&self, _unit: &str, _property: &str) -> Result<String, SystemdError> {
            Ok(String::new())
        }
    }

    fn manager(version: u32, ignores_idle: bool) -> (FakeManager, Executor, CgroupPath) {
        let kernel = ModelKernel::new(CgroupVersion::V2, 2);
        let layout = Layout::new("/model", CgroupVersion::V2, CgroupDriver::Systemd, "").unwrap();
        let path = layout.qos_dir(KubeQos::BestEffort);
        kernel.make(path.as_str());
        let executor = Executor::builder(layout).files(kernel.clone()).build();
        (FakeManager { kernel, version, ignores_idle, calls: Mutex::new(Vec::new()) }, executor, path)
    }

    #[test]
    fn a_slice_is_made_idle_and_back() {
        let (manager, executor, path) = manager(250, false);
        assert_eq!(make_idle(&manager, &executor, &path, 1), Ok(()));
        assert_eq!(executor.read(&path, Resource::CpuIdle), Ok(Value::Integer(1)));
        assert_eq!(clear_idle(&manager, &executor, &path, 1), Ok(()));
        assert_eq!(manager.kernel.text(path.as_str(), "cpu.weight").unwrap(), "1");
        assert_eq!(
            *manager.calls.lock().unwrap(),
            ["kubepods-besteffort.slice CPUWeight=idle", "kubepods-besteffort.slice CPUWeight=1"]
        );
    }

    #[test]
    fn a_systemd_without_idle_weight_leaves_all_as_it_was() {
        let (old, executor, path) = manager(249, false);
        assert_eq!(
            make_idle(&old, &executor, &path, 1),
            Err(SystemdError::NoIdleWeight { found: "systemd 249".to_owned() })
        );
        assert!(old.calls.lock().unwrap().is_empty());
        let (deaf, executor, path) = manager(252, true);
        assert!(matches!(
            make_idle(&deaf, &executor, &path, 1),
            Err(SystemdError::NotKept { found, .. }) if found == "0"
        ));
        assert_eq!(deaf.kernel.text(path.as_str(), "cpu.weight").unwrap(), "1");
    }
}
