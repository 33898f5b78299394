//! The checked form of the command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use koord_cgroup::driver::CgroupDriver;
use koord_extension::gates::{Component, GateWarning, Gates};
use koord_extension::units::Bytes;
use koord_runtime::duration::parse_go_duration;
use koord_runtime::telemetry::LogFormat;

use super::table::{self, FLAGS, Flag, Group, Kind};
use super::{Flags, Mistake, Surroundings, parse};

/// Everything the agent is told, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Name of this machine's Node object.
    pub node_name: String,
    /// The process: addresses, log, requests.
    pub process: ProcessConfig,
    /// Which features are on.
    pub gates: Gates,
    /// Named features that have no effect.
    pub gate_warnings: Vec<GateWarning>,
    /// Where the host's files are.
    pub paths: PathConfig,
    /// The collectors.
    pub collect: CollectConfig,
    /// The sample store.
    pub store: StoreConfig,
    /// The proxy's usage stream.
    pub proxy: ProxyEndpoint,
    /// Pods and the kubelet.
    pub kubelet: KubeletConfig,
    /// Reports.
    pub report: ReportConfig,
    /// Prediction.
    pub prediction: PredictionConfig,
    /// The audit log.
    pub audit: AuditConfig,
    /// Given flags that have no effect, each with the reason.
    pub ignored: Vec<(&'static str, &'static str)>,
}

/// The process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Address of metrics, health and audit.
    pub address: Option<SocketAddr>,
    /// Address of `/debug/pprof`, if that is served.
    pub profile_address: Option<SocketAddr>,
    /// Socket for operators.
    pub admin_socket: PathBuf,
    /// How to reach the API server; none means as a pod does.
    pub kubeconfig: Option<PathBuf>,
    /// Requests a second to the API server.
    pub requests_per_second: u32,
    /// Requests to the API server at once.
    pub request_burst: u32,
    /// Log verbosity, 0 to 10.
    pub verbosity: u8,
    /// Form of log lines.
    pub log_format: LogFormat,
}

/// Where the host's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathConfig {
    /// Control groups.
    pub cgroup: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/sys/fs`.
    pub sys_fs: PathBuf,
    /// `/run`.
    pub run: PathBuf,
    /// The kubelet's directory.
    pub kubelet: PathBuf,
    /// The kubelet's `cgroupRoot`.
    pub kubelet_cgroup_root: String,
    /// The kubelet's driver, if it is stated.
    pub cgroup_driver: Option<CgroupDriver>,
    /// The runtime that names cgroups of containers where nothing else tells.
    pub runtime: String,
}

/// The collectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectConfig {
    /// Pause between samples of usage.
    pub interval: Duration,
    /// Greatest age of what system usage is computed from.
    pub outdated: Duration,
    /// Pause between looks at CPUs and NUMA nodes.
    pub node_facts_interval: Duration,
    /// Pause between samples of several NUMA nodes.
    pub numa_interval: Duration,
    /// Pause between samples of the memory of pods.
    pub memory_stat_interval: Duration,
    /// Pause between counts of cycles.
    pub cpi_interval: Duration,
    /// How long cycles are counted.
    pub cpi_window: Duration,
    /// Most descriptors of a count of cycles.
    pub cpi_descriptors: usize,
    /// Pause between samples of pressure.
    pub psi_interval: Duration,
    /// Pause between samples of cold memory.
    pub cold_page_interval: Duration,
    /// Pause between samples of caches.
    pub resctrl_interval: Duration,
    /// Whether figures with page cache are kept.
    pub page_cache: bool,
    /// Whether caches are measured, if the gate agrees.
    pub resctrl: bool,
    /// The finest objects that metrics tell of.
    pub pod_metrics: PodMetrics,
}

/// The finest objects that metrics tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodMetrics {
    /// No pods.
    None,
    /// Pods, no containers.
    Pod,
    /// Pods and containers.
    Container,
}

/// The sample store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Directory of the snapshot.
    pub directory: PathBuf,
    /// Longest time samples are kept.
    pub retention: Duration,
    /// Most memory and disk space.
    pub limit: Bytes,
}

/// Where the proxy's usage stream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyEndpoint {
    /// There is no proxy.
    Off,
    /// At its usual place, while there is a socket.
    Auto(PathBuf),
    /// At this socket.
    Socket(PathBuf),
}

impl ProxyEndpoint {
    /// The socket to look for, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            ProxyEndpoint::Off => None,
            ProxyEndpoint::Auto(path) | ProxyEndpoint::Socket(path) => Some(path),
        }
    }
}

/// Where pods are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodSource {
    /// The kubelet; the API server while that fails.
    Auto,
    /// The kubelet only.
    Kubelet,
    /// The API server only.
    ApiServer,
}

/// A type of address of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressType {
    /// Address inside the cluster.
    InternalIp,
    /// The host's name.
    Hostname,
    /// Address outside the cluster.
    ExternalIp,
    /// Name outside the cluster.
    ExternalDns,
    /// Name inside the cluster.
    InternalDns,
}

impl AddressType {
    /// The type of a word; an unknown word is the address inside the cluster, as in Koordinator.
    pub fn from_text(text: &str) -> AddressType {
        match text {
            "Hostname" => AddressType::Hostname,
            "ExternalIP" => AddressType::ExternalIp,
            "ExternalDNS" => AddressType::ExternalDns,
            "InternalDNS" => AddressType::InternalDns,
            _ => AddressType::InternalIp,
        }
    }

    /// The word of the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            AddressType::InternalIp => "InternalIP",
            AddressType::Hostname => "Hostname",
            AddressType::ExternalIp => "ExternalIP",
            AddressType::ExternalDns => "ExternalDNS",
            AddressType::InternalDns => "InternalDNS",
        }
    }
}

/// Whether the kubelet's certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeletVerify {
    /// Never, as Koordinator does.
    Off,
    /// Against the authorities of a file; none means those of the cluster.
    Authorities(Option<PathBuf>),
}

/// Pods and the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletConfig {
    /// Where pods are asked for.
    pub source: PodSource,
    /// The preferred type of address.
    pub address_type: AddressType,
    /// Pause between looks at the pods.
    pub sync_interval: Duration,
    /// Time limit of a request.
    pub timeout: Duration,
    /// The read-only port, if that is asked over plain HTTP instead.
    pub read_only_port: Option<u16>,
    /// Whether its certificate is checked.
    pub verify: KubeletVerify,
    /// Whether its configuration is read.
    pub reads_configuration: bool,
    /// Whether this program runs in a pod, so that an empty list of pods cannot be true.
    pub is_pod: bool,
}

/// What is left out of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Nothing.
    Full,
    /// The aggregated system usage.
    Slim,
}

/// Reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportConfig {
    /// Whether NodeMetric is written.
    pub node_metric: bool,
    /// Greatest change of a figure, in percent, for which a report may be skipped; 0 for never.
    pub deadband_percent: u32,
    /// What is left out.
    pub profile: Profile,
    /// Whether NodeResourceTopology is written, if the gate agrees.
    pub node_topology: bool,
}

/// Prediction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictionConfig {
    /// Directory of the models.
    pub directory: PathBuf,
    /// Age up to which a pod's requests count as used.
    pub cold_start: Duration,
    /// What is added to a peak, in percent.
    pub safety_margin_percent: u32,
    /// Half-life of memory samples.
    pub memory_half_life: Duration,
    /// Half-life of CPU samples.
    pub cpu_half_life: Duration,
    /// Pause between trainings.
    pub training_interval: Duration,
    /// Age after which a model without samples is removed.
    pub expiration: Duration,
    /// Age after which a model is saved again.
    pub checkpoint_interval: Duration,
    /// Samples below which a model is not trusted.
    pub least_samples: u32,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditConfig {
    /// Directory.
    pub directory: PathBuf,
    /// Greatest verbosity of kept events; 0 keeps all.
    pub verbosity: u32,
    /// Disk space.
    pub disk_space: Bytes,
    /// Readers at a time.
    pub readers: usize,
    /// Most events of an answer.
    pub events_limit: usize,
}

/// Socket of the proxy below the host's `/run`.
const PROXY_SOCKET: &str = "koord-runtimeproxy/admin.sock";

/// Reads values and collects what is wrong with them. After a mistake any value will do: none is used.
struct Reader<'a> {
    flags: &'a Flags,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> &str {
        table::find(name).map_or("", |flag| self.flags.text(flag))
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(self.text(name))
    }

    fn optional_path(&self, name: &str) -> Option<PathBuf> {
        Some(self.path(name)).filter(|path| !path.as_os_str().is_empty())
    }

    fn switch(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    fn duration(&self, name: &str) -> Duration {
        parse_go_duration(self.text(name)).unwrap_or_default()
    }

    fn number<N: TryFrom<i64> + Default>(&self, name: &str) -> N {
        self.text(name).parse().ok().and_then(|number| N::try_from(number).ok()).unwrap_or_default()
    }

    fn bytes(&self, name: &str) -> Bytes {
        Bytes(parse::bytes(self.text(name)).unwrap_or_default())
    }

    /// Checks a given value by the table.
    fn check(&mut self, flag: &'static Flag) {
        let text = self.flags.text(flag);
        let problem = match flag.kind {
            Kind::Switch | Kind::Text(_) => None,
            Kind::Path if text.is_empty() && flag.default(self.flags.mode).is_empty() => None,
            Kind::Path => (!text.starts_with('/')).then(|| "not an absolute path".to_owned()),
            Kind::Duration(least) => match parse_go_duration(text) {
                Ok(duration) if duration >= Duration::from_millis(least) => None,
                Ok(_) => Some("too short".to_owned()),
                Err(error) => Some(error.to_string()),
            },
            Kind::DurationOrOff => parse::positive_duration(text).err(),
            Kind::Number(least, most) => match text.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => None,
                Ok(_) => Some("out of range".to_owned()),
                Err(_) => Some("not a whole number".to_owned()),
            },
            Kind::Bytes => parse::bytes(text).is_none().then(|| "not a number of bytes".to_owned()),
            Kind::Address if text.is_empty() => None,
            Kind::Address => parse::listen_address(text).is_none().then(|| "not an address".to_owned()),
            Kind::Choice(words) => (!words.contains(&text)).then(|| "no such choice".to_owned()),
        };
        if let Some(problem) = problem {
            self.mistakes.push(Mistake::bad_value(flag, text, problem));
        }
    }

    fn refuse(&mut self, name: &str, problem: impl Into<String>) {
        if let Some(flag) = table::find(name) {
            self.mistakes.push(Mistake::bad_value(flag, self.flags.text(flag), problem));
        }
    }

    fn gates(&mut self) -> (Gates, Vec<GateWarning>) {
        match Gates::parse(Component::Koordlet, self.text("feature-gates")) {
            Ok(gates) => gates,
            Err(errors) => {
                for error in errors {
                    self.refuse("feature-gates", error.to_string());
                }
                (Gates::default(), Vec::new())
            }
        }
    }

    fn proxy(&mut self) -> ProxyEndpoint {
        match self.text("proxy-endpoint") {
            "auto" => ProxyEndpoint::Auto(self.path("run-root-dir").join(PROXY_SOCKET)),
            "" => ProxyEndpoint::Off,
            text => {
                let path =
                    text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
                let path = PathBuf::from(path);
                if !path.is_absolute() {
                    self.refuse("proxy-endpoint", "not an absolute path");
                }
                ProxyEndpoint::Socket(path)
            }
        }
    }
}

impl Config {
    /// Checks raw flags.
    ///
    /// # Errors
    /// Every mistake in the values.
    pub(super) fn check(flags: &Flags, surroundings: &Surroundings) -> Result<Config, Vec<Mistake>> {
        let mut read = Reader { flags, mistakes: Vec::new() };
        for flag in FLAGS {
            read.check(flag);
        }
        let (gates, gate_warnings) = read.gates();
        let proxy = read.proxy();
        let ignored = FLAGS
            .iter()
            .filter(|flag| flag.group == Group::Ignored && flags.line.values.contains_key(flag.name))
            .map(|flag| (flag.name, flag.meaning))
            .collect();
        let address = |name: &str| parse::listen_address(read.text(name));
        let config = Config {
            node_name: surroundings.node_name.clone(),
            process: ProcessConfig {
                address: address("addr"),
                profile_address: address("pprof-addr").filter(|_| read.switch("enable-pprof")),
                admin_socket: read.path("admin-socket"),
                kubeconfig: read.optional_path("kubeconfig"),
                requests_per_second: read.number("kube-api-qps"),
                request_burst: read.number("kube-api-burst"),
                verbosity: read.number("v"),
                log_format: match read.text("log-format") {
                    "json" => LogFormat::Json,
                    _ => LogFormat::Text,
                },
            },
            gates,
            gate_warnings,
            paths: PathConfig {
                cgroup: read.path("cgroup-root-dir"),
                proc: read.path("proc-root-dir"),
                sys: read.path("sys-root-dir"),
                sys_fs: read.path("sys-fs-root-dir"),
                run: read.path("run-root-dir"),
                kubelet: read.path("var-lib-kubelet-dir"),
                kubelet_cgroup_root: read.text("kubelet-cgroup-root").to_owned(),
                cgroup_driver: match read.text("cgroup-driver") {
                    "systemd" => Some(CgroupDriver::Systemd),
                    "cgroupfs" => Some(CgroupDriver::Cgroupfs),
                    _ => None,
                },
                runtime: read.text("default-runtime-type").to_owned(),
            },
            collect: CollectConfig {
                interval: read.duration("collect-res-used-interval"),
                outdated: read.duration("collect-sys-metric-outdated-interval"),
                node_facts_interval: read.duration("collect-node-cpu-info-interval"),
                numa_interval: read.duration("collect-numa-interval"),
                memory_stat_interval: read.duration("collect-memory-stat-interval"),
                cpi_interval: read.duration("cpi-collector-interval"),
                cpi_window: read.duration("collect-cpi-timewindow"),
                cpi_descriptors: read.number("cpi-max-fds"),
                psi_interval: read.duration("psi-collector-interval"),
                cold_page_interval: read.duration("coldpage-collector-interval"),
                resctrl_interval: read.duration("resctrl-collector-interval"),
                page_cache: read.switch("enable-pagecache-collector"),
                resctrl: read.switch("enable-resctrl-collector"),
                pod_metrics: match read.text("pod-metrics") {
                    "none" => PodMetrics::None,
                    "pod" => PodMetrics::Pod,
                    _ => PodMetrics::Container,
                },
            },
            store: StoreConfig {
                directory: read.path("tsdb-path"),
                retention: read.duration("tsdb-retention-duration"),
                limit: read.bytes("tsdb-max-bytes"),
            },
            proxy,
            kubelet: KubeletConfig {
                source: match read.text("pod-source") {
                    "kubelet" => PodSource::Kubelet,
                    "apiserver" => PodSource::ApiServer,
                    _ => PodSource::Auto,
                },
                address_type: AddressType::from_text(read.text("kubelet-preferred-address-type")),
                sync_interval: read.duration("kubelet-sync-interval"),
                timeout: read.duration("kubelet-sync-timeout"),
                read_only_port: read
                    .switch("kubelet-insecure-tls")
                    .then(|| read.number("kubelet-read-only-port")),
                verify: match read.text("kubelet-verify") {
                    "ca" => KubeletVerify::Authorities(read.optional_path("kubelet-ca-file")),
                    _ => KubeletVerify::Off,
                },
                reads_configuration: !read.switch("disable-query-kubelet-config"),
                is_pod: surroundings.mode == super::AgentMode::Container,
            },
            report: ReportConfig {
                node_metric: read.switch("enable-node-metric-report"),
                deadband_percent: read.number("node-metric-deadband-percent"),
                profile: match read.text("node-metric-profile") {
                    "slim" => Profile::Slim,
                    _ => Profile::Full,
                },
                node_topology: parse::positive_duration(read.text("node-topology-sync-interval"))
                    .is_ok_and(|interval| interval.is_some()),
            },
            prediction: PredictionConfig {
                directory: read.path("prediction-checkpoint-filepath"),
                cold_start: read.duration("prediction-cold-start-duration"),
                safety_margin_percent: read.number("prediction-safety-margin-percent"),
                memory_half_life: read.duration("prediction-memory-histogram-decay-halflife"),
                cpu_half_life: read.duration("prediction-cpu-histogram-decay-halflife"),
                training_interval: read.duration("prediction-training-interval"),
                expiration: read.duration("prediction-model-expiration-duration"),
                checkpoint_interval: read.duration("prediction-model-checkpoint-interval"),
                least_samples: read.number("prediction-min-samples"),
            },
            audit: AuditConfig {
                directory: read.path("audit-log-dir"),
                verbosity: read.number("audit-verbose"),
                disk_space: Bytes(read.number::<i64>("audit-max-disk-space-mb").saturating_mul(1024 * 1024)),
                readers: read.number("audit-max-concurrent-readers"),
                events_limit: read.number("audit-max-events-limit"),
            },
            ignored,
        };
        if read.mistakes.is_empty() { Ok(config) } else { Err(read.mistakes) }
    }
}
