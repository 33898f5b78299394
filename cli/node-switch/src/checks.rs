//! What could go wrong, looked at before anything changes, and said all at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::discover::{Discovery, Flavor, RUNTIME_FLAG, Version, discover};
use crate::endpoint::Kind;
use crate::flags;
use crate::journal::{JOURNAL_FILE, Journal, Stage};
use crate::plan::{
    Edit, PROXY_FLAGS_FILE, PROXY_FLAGS_VARIABLE, PROXY_PROGRAM, PROXY_SERVICE_UNIT, PROXY_SOCKET_UNIT,
    PlanError, Target, plan, variable_words,
};
use crate::system::{NodeView, RuntimeVersion, System};
use crate::systemd::{self, UnitState};

/// Time for one answer of a program on this node.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// Room that has to be left where files are written.
const LEAST_FREE_BYTES: u64 = 1024 * 1024;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// Not done unless it is forced.
    Doubtful,
    /// Not done.
    Failed,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub subject: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found, and what to do about it.
    pub text: String,
}

impl Check {
    fn new(subject: &'static str, verdict: Verdict, text: impl Into<String>) -> Check {
        Check { subject, verdict, text: text.into() }
    }
}

/// Everything that is known before a switch.
#[derive(Debug)]
pub struct Situation {
    /// How the kubelet is configured.
    pub found: Discovery,
    /// Its release.
    pub version: Option<Version>,
    /// Its unit.
    pub kubelet: UnitState,
    /// Units of the proxy.
    pub units: BTreeMap<&'static str, UnitState>,
    /// What to reach; none if the runtime is not known.
    pub target: Option<Target>,
    /// The Node object.
    pub node: Result<NodeView, String>,
    /// The runtime behind its endpoint.
    pub runtime: Result<RuntimeVersion, String>,
    /// Edits that are left to do.
    pub edits: Result<Vec<Edit>, PlanError>,
    /// What is remembered.
    pub journal: Option<Journal>,
    /// Why systemd does not answer.
    pub systemd_problem: Option<String>,
}

/// Looks at the node.
///
/// # Errors
/// A file that matters cannot be read; the text of the path is in the error.
pub fn examine(
    system: &dyn System,
    unit: Option<&str>,
    journal: Option<Journal>,
) -> std::io::Result<Situation> {
    let unit = unit.or_else(|| journal.as_ref().map(|journal| journal.kubelet_unit.as_str()));
    let found = discover(system, &system.processes(), &system.host_name(), unit)?;
    let version = found.program.as_ref().and_then(|program| {
        let result = system.ask(&[program.to_str()?, "--version"], ANSWER).ok()?;
        Version::parse(&result.output)
    });
    let mut systemd_problem = None;
    let mut state = |name: &str| {
        systemd::state(system, name).unwrap_or_else(|problem| {
            systemd_problem = Some(problem);
            UnitState::default()
        })
    };
    let kubelet = found.unit_name().map(&mut state).unwrap_or_default();
    let units = [PROXY_SOCKET_UNIT, PROXY_SERVICE_UNIT].map(|name| (name, state(name))).into();
    let runtime_endpoint = match &journal {
        Some(journal) => Some(journal.runtime.clone()),
        None => found.endpoint.clone().filter(|endpoint| endpoint.kind() != Kind::Proxy),
    };
    let target = runtime_endpoint.map(|runtime| Target { proxy: runtime.proxy(), runtime, version });
    let node = match &found.node {
        Some(access) if system.exists(&access.kubeconfig) => system.node(access, ANSWER),
        Some(access) => Err(format!("{} is not there", access.kubeconfig.display())),
        None => Err("the kubelet has no --kubeconfig".to_owned()),
    };
    let runtime = match &target {
        Some(target) => system.runtime_version(target.runtime.path(), ANSWER),
        None => Err("no endpoint of a runtime is known".to_owned()),
    };
    let edits = match &target {
        Some(target) => plan(system, &found, target),
        None => Ok(Vec::new()),
    };
    Ok(Situation { found, version, kubelet, units, target, node, runtime, edits, journal, systemd_problem })
}

impl Situation {
    /// A switch was begun and not ended.
    pub fn is_interrupted(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.stage != Stage::Enabled)
    }

    /// Everything to be known before enabling.
    pub fn checks(&self, system: &dyn System) -> Vec<Check> {
        let mut checks = Vec::new();
        self.rights(system, &mut checks);
        self.kubelet(&mut checks);
        self.endpoint(&mut checks);
        self.proxy(system, &mut checks);
        self.room(system, &mut checks);
        self.plugins(system, &mut checks);
        self.api_server(&mut checks);
        checks
    }

    fn rights(&self, system: &dyn System, checks: &mut Vec<Check>) {
        if !system.is_root() {
            checks.push(Check::new("user", Verdict::Failed, "not root; run koordctl as root"));
        }
        if !system.exists(Path::new("/run/systemd/system")) {
            checks.push(Check::new("systemd", Verdict::Failed, "systemd does not run this node"));
        } else if let Some(problem) = &self.systemd_problem {
            checks.push(Check::new("systemd", Verdict::Failed, problem.clone()));
        }
    }

    fn kubelet(&self, checks: &mut Vec<Check>) {
        const SUBJECT: &str = "kubelet";
        let Some(unit) = self.found.unit_name() else {
            let text = match &self.found.process {
                Some(process) => format!("it runs as process {} without a unit of systemd", process.pid),
                None => "there is no kubelet.service, nor a unit of k3s or rke2; name it with --kubelet-unit"
                    .to_owned(),
            };
            checks.push(Check::new(SUBJECT, Verdict::Failed, text));
            return;
        };
        if self.kubelet.is_active() {
            checks.push(Check::new(SUBJECT, Verdict::Good, format!("{unit} is active")));
        } else if self.is_interrupted() {
            let text = format!("{unit} is {}, after a switch that was interrupted", self.kubelet.active);
            checks.push(Check::new(SUBJECT, Verdict::Note, text));
        } else {
            let state =
                if self.kubelet.active.is_empty() { "in an unknown state" } else { &self.kubelet.active };
            let text = format!("{unit} is {state}; it must run before the switch");
            checks.push(Check::new(SUBJECT, Verdict::Failed, text));
        }
        for mistake in &self.found.mistakes {
            checks.push(Check::new("kubelet configuration", Verdict::Failed, mistake.clone()));
        }
        let remote = flags::value(&self.found.arguments, "container-runtime");
        let is_plain = self.found.flavor == Flavor::Kubelet;
        const RELEASE: &str = "kubelet release";
        match self.version {
            None => checks.push(Check::new(
                RELEASE,
                Verdict::Doubtful,
                "unknown: the program does not answer to --version",
            )),
            Some(version) if version < Version::OLDEST => checks.push(Check::new(
                RELEASE,
                Verdict::Failed,
                format!("{version}; supported is {} and newer", Version::OLDEST),
            )),
            Some(version) if is_plain && version >= Version::ENDPOINT_IN_FILE && remote.is_some() => {
                let text = format!(
                    "{version} does not know --container-runtime and would not start again; remove that flag first"
                );
                checks.push(Check::new(RELEASE, Verdict::Failed, text));
            }
            Some(version) if is_plain && version < Version::REMOTE_ONLY && remote != Some("remote") => {
                let text = format!(
                    "{version} without --container-runtime=remote uses dockershim, which has no CRI socket"
                );
                checks.push(Check::new(RELEASE, Verdict::Failed, text));
            }
            Some(version)
                if is_plain && version < Version::ENDPOINT_IN_FILE && self.found.set_by.is_none() =>
            {
                let text = format!("{version} has no default endpoint, and no place sets --{RUNTIME_FLAG}");
                checks.push(Check::new(RELEASE, Verdict::Failed, text));
            }
            Some(version) => checks.push(Check::new(RELEASE, Verdict::Good, version.to_string())),
        }
        if let Some(driver) = &self.found.cgroup_driver {
            checks.push(Check::new("cgroup driver", Verdict::Good, driver.clone()));
        }
        if let Err(error) = &self.edits {
            let text = koord_runtime::error_chain::Chain(error).to_string();
            checks.push(Check::new("kubelet configuration", Verdict::Failed, text));
        }
    }

    fn endpoint(&self, checks: &mut Vec<Check>) {
        const SUBJECT: &str = "runtime";
        if self.journal.is_none() && self.found.is_through_proxy() {
            let place =
                self.found.set_by.as_ref().map(|path| format!(" by {}", path.display())).unwrap_or_default();
            let text = format!(
                "the kubelet is set to the proxy's socket already{place}, not by this command; set it to the runtime's first"
            );
            checks.push(Check::new(SUBJECT, Verdict::Failed, text));
            return;
        }
        let Some(target) = &self.target else {
            checks.push(Check::new(SUBJECT, Verdict::Failed, "the kubelet's endpoint is not known"));
            return;
        };
        match target.runtime.kind() {
            Kind::Runtime("dockershim") => checks.push(Check::new(
                SUBJECT,
                Verdict::Failed,
                "the kubelet uses dockershim, which has no CRI socket",
            )),
            Kind::Runtime(_) | Kind::Proxy => {}
            Kind::OtherProxy(name) => {
                let text = format!(
                    "{} is the socket of another proxy ({name}); remove that one first",
                    target.runtime
                );
                checks.push(Check::new(SUBJECT, Verdict::Failed, text));
            }
            Kind::Unknown => {
                let listener = match &self.runtime {
                    Ok(RuntimeVersion { listener: Some(listener), .. }) => {
                        format!("; {} listens there", listener.first().map_or("something", String::as_str))
                    }
                    _ => String::new(),
                };
                let text = format!(
                    "{} is not the socket of a runtime that is known{listener}: another proxy may be in front; --force takes \
                     it for the runtime",
                    target.runtime
                );
                checks.push(Check::new(SUBJECT, Verdict::Doubtful, text));
            }
        }
        match &self.runtime {
            Ok(RuntimeVersion { name, version, .. }) => {
                checks.push(Check::new(
                    SUBJECT,
                    Verdict::Good,
                    format!("{name} {version} at {}", target.runtime),
                ));
            }
            Err(problem) => {
                let text = format!("{} does not answer: {problem}", target.runtime);
                checks.push(Check::new(SUBJECT, Verdict::Failed, text));
            }
        }
    }

    fn proxy(&self, system: &dyn System, checks: &mut Vec<Check>) {
        const SUBJECT: &str = "proxy";
        if !system.exists(Path::new(PROXY_PROGRAM)) {
            let text = format!("{PROXY_PROGRAM} is not there; install the package koord-node");
            checks.push(Check::new(SUBJECT, Verdict::Failed, text));
            return;
        }
        for (name, state) in &self.units {
            if state.load != "loaded" && self.systemd_problem.is_none() {
                let text = format!("the unit {name} is {}; install the package koord-node", state.load);
                checks.push(Check::new(SUBJECT, Verdict::Failed, text));
            }
        }
        let service = self.units.get(PROXY_SERVICE_UNIT);
        if let Some(target) = &self.target
            && !service.is_some_and(UnitState::is_active)
            && !self.units.get(PROXY_SOCKET_UNIT).is_some_and(UnitState::is_active)
            && let Ok(answer) = system.runtime_version(target.proxy.path(), ANSWER)
        {
            let who =
                answer.listener.as_ref().and_then(|words| words.first()).map_or("a program", String::as_str);
            let text = format!(
                "{who} serves {} already, and {PROXY_SERVICE_UNIT} does not run: stop that program first",
                target.proxy
            );
            checks.push(Check::new(SUBJECT, Verdict::Failed, text));
        }
        let text = match self
            .edits
            .as_ref()
            .ok()
            .and_then(|edits| edits.iter().find(|e| e.path == Path::new(PROXY_FLAGS_FILE)))
        {
            Some(edit) => edit.after.text.clone(),
            None => system
                .read(Path::new(PROXY_FLAGS_FILE))
                .ok()
                .flatten()
                .map(|file| file.text)
                .unwrap_or_default(),
        };
        let flags = variable_words(&text, PROXY_FLAGS_VARIABLE);
        let mut command = vec![PROXY_PROGRAM, "validate"];
        command.extend(flags.iter().map(String::as_str));
        match system.ask(&command, ANSWER) {
            Ok(result) if result.is_success() => {
                checks.push(Check::new(SUBJECT, Verdict::Good, "installed, its configuration is valid"));
            }
            Ok(result) => {
                let said = format!("{}\n{}", result.output, result.complaints);
                let mistakes: Vec<&str> =
                    said.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("ok:")).collect();
                let text = format!("`{PROXY_PROGRAM} validate` finds mistakes:\n{}", mistakes.join("\n"));
                checks.push(Check::new(SUBJECT, Verdict::Failed, text));
            }
            Err(error) => {
                checks.push(Check::new(
                    SUBJECT,
                    Verdict::Failed,
                    format!("{PROXY_PROGRAM} cannot be run: {error}"),
                ));
            }
        }
    }

    fn room(&self, system: &dyn System, checks: &mut Vec<Check>) {
        let mut paths: Vec<PathBuf> = vec![JOURNAL_FILE.into()];
        let mut bytes = LEAST_FREE_BYTES;
        for edit in self.edits.iter().flatten() {
            paths.push(edit.path.clone());
            // The journal has both forms, the file system for a moment too.
            bytes += 4 * u64::try_from(edit.after.text.len()).unwrap_or(u64::MAX / 8);
        }
        let mut problems = Vec::new();
        for path in &paths {
            match system.room(path) {
                Ok(room) if room.is_read_only => {
                    problems.push(format!("{} cannot be written: read-only", path.display()))
                }
                Ok(room) if room.free_bytes < bytes => problems.push(format!(
                    "{} bytes are free at {}; {bytes} are needed",
                    room.free_bytes,
                    path.display()
                )),
                Ok(_) => {}
                Err(error) => problems.push(format!("{}: {error}", path.display())),
            }
        }
        match problems.is_empty() {
            true => checks.push(Check::new("room", Verdict::Good, "enough where files are written")),
            false => checks.push(Check::new("room", Verdict::Failed, problems.join("\n"))),
        }
    }

    /// Plugins of the runtime that would change containers beside the proxy.
    fn plugins(&self, system: &dyn System, checks: &mut Vec<Check>) {
        let name = self.runtime.as_ref().map(|runtime| runtime.name.as_str()).unwrap_or_default();
        if name != "containerd" {
            return;
        }
        let text = system.read(Path::new("/etc/containerd/config.toml")).ok().flatten().map(|file| file.text);
        let version = self.runtime.as_ref().map(|runtime| runtime.version.as_str()).unwrap_or_default();
        let is_on = nri_state(text.as_deref().unwrap_or_default())
            .unwrap_or_else(|| Version::parse(&with_v(version)).is_some_and(|version| version.major >= 2));
        let koordlet = system.processes().into_iter().find(|process| {
            process.arguments.first().is_some_and(|program| program.rsplit('/').next() == Some("koordlet"))
        });
        let plugin = system
            .list(Path::new("/opt/nri/plugins"))
            .unwrap_or_default()
            .into_iter()
            .find(|name| name.contains("koord"));
        let (verdict, text) = match (is_on, plugin, koordlet) {
            (true, Some(plugin), _) => (
                Verdict::Doubtful,
                format!("/opt/nri/plugins/{plugin} changes containers too; remove it, or --force"),
            ),
            (true, None, Some(process)) => (
                Verdict::Note,
                format!(
                    "on in containerd; if koordlet (process {}) is registered there as a plugin, switch that off: two would set the same values",
                    process.pid
                ),
            ),
            (true, None, None) => (Verdict::Good, "on in containerd, no plugin of Koordinator".to_owned()),
            (false, ..) => (Verdict::Good, "off in containerd".to_owned()),
        };
        checks.push(Check::new("NRI", verdict, text));
    }

    fn api_server(&self, checks: &mut Vec<Check>) {
        let check = match &self.node {
            Ok(view) if view.is_ready => Check::new("node", Verdict::Good, "Ready"),
            Ok(_) => Check::new(
                "node",
                Verdict::Note,
                "not Ready before the switch; it is not waited for afterwards",
            ),
            Err(problem) => Check::new("node", Verdict::Note, format!("not asked for: {problem}")),
        };
        checks.push(check);
    }
}

fn with_v(version: &str) -> String {
    format!("v{}", version.trim_start_matches('v'))
}

/// Whether a containerd configuration has the Node Resource Interface on; nothing if it does not say.
pub fn nri_state(text: &str) -> Option<bool> {
    let (mut in_section, mut state) = (false, None);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_section = line.contains("io.containerd.nri.v1.nri");
        } else if in_section
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "disable"
        {
            let value = value.split('#').next().unwrap_or_default().trim();
            state = value.parse::<bool>().ok().map(|is_off| !is_off);
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_s_plugins() {
        for (text, expected) in [
            ("version = 3\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = false # on\n", Some(true)),
            ("[plugins.'io.containerd.nri.v1.nri']\n  disable = true\n", Some(false)),
            ("[plugins.\"io.containerd.nri.v1.nri\"]\n[other]\ndisable = true\n", None),
            ("disable = true\n", None),
            ("", None),
        ] {
            assert_eq!(nri_state(text), expected, "{text:?}");
        }
    }
}
