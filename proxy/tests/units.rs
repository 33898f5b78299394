//! The units of `packaging/systemd`: what systemd says of them, and what must hold whatever it says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use koord_runtime_proxy::flags;
use koord_runtime_proxy::handover::{PREPARE_LIMIT, SERVE_LIMIT};

const SERVICE: &str = "koord-runtime-proxy.service";
const SOCKET: &str = "koord-runtime-proxy.socket";
const AGENT: &str = "koordlet.service";
const DROP_IN: &str = "kubelet.service.d/20-koord-runtime-proxy.conf";

/// Largest exposure of the proxy, in tenths.
const EXPOSURE: &str = "--threshold=20";

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd")
}

fn text(name: &str) -> String {
    let path = packaging().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The settings of a unit: section and key, and all values in their order.
fn settings(text: &str) -> BTreeMap<(String, String), Vec<String>> {
    let mut settings: BTreeMap<_, Vec<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else {
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{line:?} is no setting"));
            settings.entry((section.clone(), key.to_owned())).or_default().push(value.to_owned());
        }
    }
    settings
}

fn all(unit: &str, section: &str, key: &str) -> Vec<String> {
    settings(&text(unit)).remove(&(section.to_owned(), key.to_owned())).unwrap_or_default()
}

fn one(unit: &str, section: &str, key: &str) -> String {
    let [value] = <[String; 1]>::try_from(all(unit, section, key))
        .unwrap_or_else(|values| panic!("{unit}: {key} has the values {values:?}"));
    value
}

fn seconds(value: &str) -> f64 {
    let number = |digits: &str| digits.parse::<f64>().unwrap_or_else(|error| panic!("{value}: {error}"));
    match value.strip_suffix("ms") {
        Some(digits) => number(digits) / 1e3,
        None => number(value.strip_suffix('s').unwrap_or(value)),
    }
}

/// `systemd-analyze` with these arguments; nothing where it is not installed.
fn analyze(arguments: &[&str]) -> Option<Output> {
    Command::new("systemd-analyze").args(arguments).output().ok()
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A folder with the units, programs replaced by one that is there, and units of a runtime and a kubelet beside them.
fn installed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("kubelet.service.d")).expect("made");
    for unit in [SERVICE, SOCKET, AGENT, DROP_IN] {
        let text = text(unit)
            .replace("/usr/bin/koord-runtime-proxy", env!("CARGO_BIN_EXE_koord-runtime-proxy"))
            .replace("/usr/bin/koordlet", "/bin/true");
        fs::write(folder.path().join(unit), text).expect("written");
    }
    for (unit, after) in [("containerd.service", "network.target"), ("kubelet.service", "containerd.service")]
    {
        let text = format!(
            "[Unit]\nAfter={after}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
        );
        fs::write(folder.path().join(unit), text).expect("written");
    }
    folder
}

fn verify(folder: &Path) -> Option<Output> {
    let units = [SERVICE, SOCKET, AGENT, "kubelet.service", "containerd.service"];
    let paths: Vec<String> = units.iter().map(|unit| folder.join(unit).display().to_string()).collect();
    let arguments: Vec<&str> =
        ["verify", "--man=no"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    analyze(&arguments)
}

#[test]
fn systemd_reads_all_units_without_a_word() {
    let folder = installed();
    let Some(output) = verify(folder.path()) else { return };
    assert!(output.status.success() && told(&output).is_empty(), "{}", told(&output));

    // A kubelet in front of what it waits for: the check above would see a cycle.
    let drop_in = folder.path().join(DROP_IN);
    fs::write(&drop_in, "[Unit]\nBefore=koord-runtime-proxy.service containerd.service\n").expect("written");
    let output = verify(folder.path()).expect("as before");
    assert!(told(&output).contains("ordering cycle"), "{}", told(&output));
}

/// What stays open in the proxy's unit, in the words of `systemd-analyze security`.
const OPEN: [&str; 14] = [
    "CapabilityBoundingSet=~CAP_(DAC_*|FOWNER|IPC_OWNER)",
    "CapabilityBoundingSet=~CAP_SYS_(NICE|RESOURCE)",
    "CapabilityBoundingSet=~CAP_SYS_PTRACE",
    // The clock itself may be read (ProtectClock=).
    "DeviceAllow=",
    "PrivateNetwork=",
    // Another name space of users would take root's rights over control groups.
    "PrivateUsers=",
    "ProcSubset=",
    "ProtectControlGroups=",
    "RestrictAddressFamilies=~AF_UNIX",
    // The files of the node are what the proxy works on.
    "RootDirectory=/RootImage=",
    // No options for root, which is explained with User=.
    "RemoveIPC=",
    "SupplementaryGroups=",
    "User=/DynamicUser=",
    // systemd 254 and later ask for this one: children start with the proxy's rights and lower them themselves.
    "NotifyAccess=",
];

#[test]
fn the_proxy_is_open_where_it_must_be_and_nowhere_else() {
    let path = packaging().join(SERVICE).display().to_string();
    let Some(output) = analyze(&["security", "--offline=yes", "--json=short", EXPOSURE, &path]) else {
        return;
    };
    assert!(output.status.success(), "exposed more than 2.0: {}", told(&output));
    let checks: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(checks.len() > 50, "{} checks", checks.len());
    let open: BTreeSet<&str> = checks
        .iter()
        .filter(|check| check["set"] != true)
        .map(|check| check["name"].as_str().expect("a name"))
        .collect();
    let expected: BTreeSet<&str> = OPEN.into();
    let unexpected: Vec<&&str> = open.difference(&expected).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");

    // The measure works: without its limits the unit would not pass.
    let folder = tempfile::tempdir().expect("a folder");
    let weaker = text(SERVICE).replace("NoNewPrivileges=yes\n", "").replace("ProtectSystem=strict\n", "");
    let weaker = weaker.replace("SystemCallFilter=", "#").replace("CapabilityBoundingSet=", "#");
    let path = folder.path().join(SERVICE);
    fs::write(&path, weaker).expect("written");
    let path = path.display().to_string();
    let output = analyze(&["security", "--offline=yes", EXPOSURE, &path]).expect("as before");
    assert!(!output.status.success(), "{}", told(&output));
}

#[test]
fn each_opening_is_explained() {
    for unit in [SERVICE, AGENT] {
        let text = text(unit);
        let lines: Vec<&str> = text.lines().collect();
        let start = lines.iter().position(|line| line.starts_with("# Open: ")).expect("openings");
        let end = lines.iter().position(|line| *line == "[Install]").expect("the next section");
        let mut explained = false;
        for line in &lines[start..end] {
            if line.starts_with('#') {
                explained = true;
            } else if line.is_empty() {
                explained = false;
            } else {
                assert!(explained, "{unit}: {line} has no comment above it");
            }
        }
        // What is open is at its place: above there are only closings.
        for key in ["CapabilityBoundingSet", "RestrictAddressFamilies", "SystemCallFilter", "ReadWritePaths"]
        {
            let first = lines.iter().position(|line| line.starts_with(&format!("{key}="))).expect("set");
            assert!(first > start, "{unit}: {key} is set before the openings");
        }
    }
}

#[test]
fn nothing_takes_the_kubelet_or_the_proxy_along() {
    for unit in [SERVICE, SOCKET, AGENT, DROP_IN] {
        for key in ["PartOf", "BindsTo", "Requisite", "Conflicts", "PropagatesStopTo", "StopPropagatedFrom"] {
            assert_eq!(all(unit, "Unit", key), Vec::<String>::new(), "{unit}: {key}");
        }
        let required = all(unit, "Unit", "Requires");
        let expected: &[&str] = if unit == SERVICE { &[SOCKET] } else { &[] };
        assert_eq!(required, expected, "{unit}");
    }
    assert_eq!(one(DROP_IN, "Unit", "Wants"), SERVICE);
    assert_eq!(one(DROP_IN, "Unit", "After"), SERVICE);
    assert_eq!(one(SERVICE, "Unit", "Before"), "kubelet.service");
    let after = one(SERVICE, "Unit", "After");
    assert_eq!(after.split(' ').collect::<Vec<_>>(), ["containerd.service", "crio.service", SOCKET]);
}

#[test]
fn the_way_to_the_runtime_never_closes_for_good() {
    assert_eq!(one(SERVICE, "Unit", "StartLimitIntervalSec"), "0");
    assert_eq!(one(SOCKET, "Socket", "TriggerLimitIntervalSec"), "0");
    assert_eq!(one(SERVICE, "Service", "Restart"), "always");
    assert!(seconds(&one(SERVICE, "Service", "RestartSec")) <= 0.1);
    assert_eq!(one(SOCKET, "Socket", "RemoveOnStop"), "no");
    for unit in [SERVICE, AGENT] {
        assert_eq!(one(unit, "Service", "RuntimeDirectoryPreserve"), "yes", "{unit}");
        assert_eq!(one(unit, "Service", "OOMPolicy"), "continue", "{unit}");
        assert_eq!(one(unit, "Service", "Type"), "notify", "{unit}");
    }
    let listen = one(SOCKET, "Socket", "ListenStream");
    let config = match flags::command(std::iter::empty()) {
        Ok(flags::Command::Serve(config)) => config,
        other => panic!("{other:?}"),
    };
    assert_eq!(config.listen.as_str().trim_start_matches("/var"), listen);
    let directory = one(SERVICE, "Service", "RuntimeDirectory");
    assert_eq!(Path::new(&listen).parent(), Some(Path::new("/run").join(directory).as_path()));
}

#[test]
fn times_of_the_unit_are_longer_than_those_of_the_program() {
    let watchdog = seconds(&one(SERVICE, "Service", "WatchdogSec"));
    assert!((10.0..=60.0).contains(&watchdog), "{watchdog}");
    let config = match flags::command(std::iter::empty()) {
        Ok(flags::Command::Serve(config)) => config,
        other => panic!("{other:?}"),
    };
    // Streams, checkpoint and tasks have eight seconds beyond the grace time.
    let stop = seconds(&one(SERVICE, "Service", "TimeoutStopSec"));
    assert!(stop > config.shutdown_grace.as_secs_f64() + 8.0, "{stop}");
    // The time limit of a start is that of a reload as well.
    let reload = seconds(&one(SERVICE, "Service", "TimeoutStartSec"));
    assert!(reload > (PREPARE_LIMIT + SERVE_LIMIT).as_secs_f64(), "{reload}");
}

#[test]
fn a_reload_is_checked_first_and_a_start_happens_all_the_same() {
    const CHECK: &str = "/usr/bin/koord-runtime-proxy validate /etc/default/koord-runtime-proxy";
    assert_eq!(all(SERVICE, "Service", "ExecReload"), [CHECK, "/bin/kill -HUP $MAINPID"]);
    assert_eq!(one(SERVICE, "Service", "ExecStartPre"), format!("-{CHECK}"));
    assert_eq!(one(SERVICE, "Service", "ExecStart"), CHECK.replace(" validate ", " serve "));
    // Main and control processes are heard: the check tells why a reload was refused.
    assert_eq!(one(SERVICE, "Service", "NotifyAccess"), "exec");
}
