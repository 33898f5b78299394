//! Flags about quality of service.

use std::path::PathBuf;
use std::time::Duration;

use koord_admin::Mode;
use koord_extension::gates::{Component, Gate, Gates};
use koord_rules::{BeIdleScope, CpuQosBackend};
use koord_runtime::duration::format_go_duration;
use serde_json::{Value, json};

use super::config::{Checker, directory, duration_within, one_of, optional};
use super::table::{self, Flag};

/// How the kubelet names cgroups, as far as the command line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverChoice {
    /// To be found out.
    Auto,
    /// Slices and scopes of systemd.
    Systemd,
    /// Plain directories.
    Cgroupfs,
}

impl DriverChoice {
    /// The flag's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Systemd => "systemd",
            Self::Cgroupfs => "cgroupfs",
        }
    }
}

/// How the runtime turns shares into a weight, as far as the command line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversionChoice {
    /// To be found out.
    Auto,
    /// The straight line of runtimes before 2025.
    Linear,
    /// The curve of runc 1.3.2 and later.
    Quadratic,
}

impl ConversionChoice {
    /// The flag's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Linear => "linear",
            Self::Quadratic => "quadratic",
        }
    }
}

/// What the command line says about quality of service.
#[derive(Debug, Clone, PartialEq)]
pub struct QosConfig {
    /// The mode to start in.
    pub mode: Mode,
    /// The node's policy; none leaves the defaults.
    pub node_policy: Option<PathBuf>,
    /// Directory of plugins; none loads none.
    pub plugin_dir: Option<PathBuf>,
    /// Rules switched on or off.
    pub gates: Gates,
    /// The flag's text.
    pub feature_gates: String,
    /// Where cgroups are mounted.
    pub cgroup_root: PathBuf,
    /// How the kubelet names cgroups.
    pub cgroup_driver: DriverChoice,
    /// The kubelet's `cgroupRoot`, `/` if it has none.
    pub kubelet_cgroup_root: String,
    /// The kubelet's directory.
    pub kubelet_dir: PathBuf,
    /// What makes best-effort pods yield.
    pub cpu_qos_backend: CpuQosBackend,
    /// Which cgroups the idle backend marks.
    pub be_idle_scope: BeIdleScope,
    /// How shares become a weight.
    pub cpu_weight_conversion: ConversionChoice,
    /// Keep the quota of pods with CPUs of their own.
    pub keep_cpu_quota: bool,
    /// How often values are compared.
    pub reconcile_interval: Duration,
}

const BACKENDS: [(CpuQosBackend, &str); 5] = [
    (CpuQosBackend::Auto, "auto"),
    (CpuQosBackend::Bvt, "bvt"),
    (CpuQosBackend::Idle, "idle"),
    (CpuQosBackend::Weight, "weight"),
    (CpuQosBackend::Off, "off"),
];

const SCOPES: [(BeIdleScope, &str); 4] = [
    (BeIdleScope::Auto, "auto"),
    (BeIdleScope::Qos, "qos"),
    (BeIdleScope::Pod, "pod"),
    (BeIdleScope::Off, "off"),
];

/// The flag's word for a choice.
fn word<T: Copy + PartialEq>(choices: &[(T, &'static str)], choice: T) -> &'static str {
    choices.iter().find(|(known, _)| *known == choice).map_or("", |(_, word)| word)
}

fn choice<T: Copy>(choices: &'static [(T, &'static str)]) -> impl Fn(&str) -> Result<T, &'static str> {
    move |text| {
        choices.iter().find(|(_, word)| *word == text).map(|(choice, _)| *choice).ok_or("no such choice")
    }
}

/// Reads the flags; `None` if one has a mistake.
pub(super) fn check(checker: &mut Checker<'_>) -> Option<QosConfig> {
    let mode = checker.read(&table::QOS_MODE, one_of(&Mode::ALL, Mode::as_str));
    let node_policy = checker.read(&table::NODE_POLICY, optional(directory));
    let plugin_dir = checker.read(&table::PLUGIN_DIR, optional(directory));
    let gates = checker.read(&table::FEATURE_GATES, gates);
    let feature_gates = checker.read(&table::FEATURE_GATES, |text| Ok::<_, String>(text.to_owned()));
    let cgroup_root = checker.read(&table::CGROUP_ROOT, directory);
    let cgroup_driver = checker.read(
        &table::CGROUP_DRIVER,
        one_of(&[DriverChoice::Auto, DriverChoice::Systemd, DriverChoice::Cgroupfs], DriverChoice::as_str),
    );
    let kubelet_cgroup_root = checker.read(&table::KUBELET_CGROUP_ROOT, cgroup_path);
    let kubelet_dir = checker.read(&table::KUBELET_DIR, directory);
    let cpu_qos_backend = checker.read(&table::CPU_QOS_BACKEND, choice(&BACKENDS));
    let be_idle_scope = checker.read(&table::BE_IDLE_SCOPE, choice(&SCOPES));
    let cpu_weight_conversion = checker.read(
        &table::CPU_WEIGHT_CONVERSION,
        one_of(
            &[ConversionChoice::Auto, ConversionChoice::Linear, ConversionChoice::Quadratic],
            ConversionChoice::as_str,
        ),
    );
    let keep_cpu_quota = checker.read(&table::DISABLE_UNSET_CPU_QUOTA, switch);
    let reconcile_interval = checker
        .read(&table::RECONCILE_INTERVAL, duration_within(Duration::from_secs(1), Duration::from_secs(3600)));
    Some(QosConfig {
        mode: mode?,
        node_policy: node_policy?,
        plugin_dir: plugin_dir?,
        gates: gates?,
        feature_gates: feature_gates?,
        cgroup_root: cgroup_root?,
        cgroup_driver: cgroup_driver?,
        kubelet_cgroup_root: kubelet_cgroup_root?,
        kubelet_dir: kubelet_dir?,
        cpu_qos_backend: cpu_qos_backend?,
        be_idle_scope: be_idle_scope?,
        cpu_weight_conversion: cpu_weight_conversion?,
        keep_cpu_quota: keep_cpu_quota?,
        reconcile_interval: reconcile_interval?,
    })
}

impl QosConfig {
    /// Flags and the values in force.
    pub(super) fn values(&self) -> Vec<(Flag, Value)> {
        let path = |path: &Option<PathBuf>| json!(path.clone().unwrap_or_default());
        vec![
            (table::QOS_MODE, json!(self.mode.as_str())),
            (table::NODE_POLICY, path(&self.node_policy)),
            (table::PLUGIN_DIR, path(&self.plugin_dir)),
            (table::FEATURE_GATES, json!(self.feature_gates)),
            (table::CGROUP_ROOT, json!(self.cgroup_root)),
            (table::CGROUP_DRIVER, json!(self.cgroup_driver.as_str())),
            (table::KUBELET_CGROUP_ROOT, json!(self.kubelet_cgroup_root)),
            (table::KUBELET_DIR, json!(self.kubelet_dir)),
            (table::CPU_QOS_BACKEND, json!(word(&BACKENDS, self.cpu_qos_backend))),
            (table::BE_IDLE_SCOPE, json!(word(&SCOPES, self.be_idle_scope))),
            (table::CPU_WEIGHT_CONVERSION, json!(self.cpu_weight_conversion.as_str())),
            (table::DISABLE_UNSET_CPU_QUOTA, json!(self.keep_cpu_quota)),
            (table::RECONCILE_INTERVAL, json!(format_go_duration(self.reconcile_interval))),
        ]
    }
}

fn switch(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_error| "neither true nor false")
}

fn cgroup_path(text: &str) -> Result<String, &'static str> {
    if !text.starts_with('/') {
        return Err("not an absolute path");
    }
    if text.split('/').any(|part| part == ".." || part == ".") {
        return Err("contains . or ..");
    }
    Ok(text.to_owned())
}

/// Gates that koordlet has off and the proxy has on: these rules act only where the node's policy or a pod says
/// so, which is all the consent they need.
const ON_HERE: [Gate; 3] = [Gate::CgroupReconcile, Gate::BlkIoReconcile, Gate::OomScoreAdj];

/// Names are those of koordlet, whose rules these are.
fn gates(text: &str) -> Result<Gates, String> {
    match Gates::parse(Component::Koordlet, text) {
        Ok((mut gates, _ignored)) => {
            let named = |gate: Gate| {
                text.split(',').any(|item| {
                    let name = item.split('=').next().unwrap_or_default().trim();
                    name == gate.as_str() || name.starts_with("All")
                })
            };
            for gate in ON_HERE.into_iter().filter(|gate| !named(*gate)) {
                gates.set(gate, true);
            }
            Ok(gates)
        }
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}
