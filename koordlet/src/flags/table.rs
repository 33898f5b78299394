//! The flags: name, default, what they accept and mean.

use koord_runtime::command_line;

use super::AgentMode;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Is on or off.
    Switch,
    /// Any text.
    Text(&'static str),
    /// An absolute path, or nothing where that is the default.
    Path,
    /// A duration of Go of at least so many milliseconds.
    Duration(u64),
    /// A duration of Go; zero and less mean off.
    DurationOrOff,
    /// A whole number within bounds.
    Number(i64, i64),
    /// A size in bytes.
    Bytes,
    /// An address to listen on.
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// The word that stands for the value in the help text.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Switch => "",
            Kind::Text(word) => word,
            Kind::Path => "PATH",
            Kind::Duration(_) | Kind::DurationOrOff => "DURATION",
            Kind::Number(..) => "NUMBER",
            Kind::Bytes => "BYTES",
            Kind::Address => "ADDRESS",
            Kind::Choice(_) => "WORD",
        }
    }
}

/// Heading a flag is listed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Process,
    Paths,
    Collect,
    Store,
    State,
    Report,
    Prediction,
    Audit,
    Ignored,
}

impl Group {
    pub(super) const ALL: [Group; 9] = [
        Group::Process,
        Group::Paths,
        Group::Collect,
        Group::Store,
        Group::State,
        Group::Report,
        Group::Prediction,
        Group::Audit,
        Group::Ignored,
    ];

    pub(super) fn heading(self) -> &'static str {
        match self {
            Group::Process => "Process",
            Group::Paths => "Where the host's files are",
            Group::Collect => "Collectors",
            Group::Store => "Samples",
            Group::State => "Node, pods and policies",
            Group::Report => "Reports",
            Group::Prediction => "Prediction",
            Group::Audit => "Audit log",
            Group::Ignored => "Accepted without effect",
        }
    }
}

/// One flag.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) group: Group,
    pub(super) kind: Kind,
    default: &'static str,
    /// The default on the host, where it differs.
    host_default: Option<&'static str>,
    pub(super) meaning: &'static str,
}

impl Flag {
    /// The default in a mode of deployment.
    pub(super) fn default(&self, mode: AgentMode) -> &'static str {
        match (mode, self.host_default) {
            (AgentMode::Host, Some(default)) => default,
            _ => self.default,
        }
    }
}

impl command_line::Flag for Flag {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_switch(&self) -> bool {
        self.kind == Kind::Switch
    }

    fn accepted(&self) -> String {
        match self.kind {
            Kind::Switch => "true, or false".to_owned(),
            Kind::Text(_) => match self.name {
                "feature-gates" => "NAME=true or NAME=false, separated by commas".to_owned(),
                "proxy-endpoint" => {
                    "auto, an absolute socket path, unix:///path, or nothing for none".to_owned()
                }
                _ => "any text".to_owned(),
            },
            Kind::Path if self.default.is_empty() => "an absolute path, or nothing".to_owned(),
            Kind::Path => "an absolute path".to_owned(),
            Kind::Duration(0) => "a duration such as 500ms, 10s or 1h30m".to_owned(),
            Kind::Duration(least) => {
                let least = std::time::Duration::from_millis(least);
                format!("a duration of at least {}", koord_runtime::duration::format_go_duration(least))
            }
            Kind::DurationOrOff => "a duration such as 3s; 0 and less mean off".to_owned(),
            Kind::Number(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Bytes => "a number of bytes such as 104857600, 100Mi or 100MiB".to_owned(),
            Kind::Address => "IP:PORT, :PORT for all addresses, or nothing for none".to_owned(),
            Kind::Choice(words) => words.join(", "),
        }
    }
}

macro_rules! flags {
    ($($group:ident { $($name:literal $kind:expr, $default:literal $(, host $host:literal)? => $meaning:literal;)* })*) => {
        /// Every flag, in the order of the help text.
        pub(super) const FLAGS: &[Flag] = &[$($(
            Flag {
                name: $name,
                group: Group::$group,
                kind: $kind,
                default: $default,
                host_default: flags!(@host $($host)?),
                meaning: $meaning,
            },
        )*)*];
    };
    (@host) => { None };
    (@host $host:literal) => { Some($host) };
}

const ANY: (i64, i64) = (0, i64::MAX);
const COUNT: Kind = Kind::Number(ANY.0, ANY.1);

flags! {
    Process {
        "addr" Kind::Address, ":9316" => "address of metrics, health and audit; plain HTTP";
        "enable-pprof" Kind::Switch, "false" => "serve /debug/pprof; a build without a profiler answers 404 there";
        "pprof-addr" Kind::Address, ":9317" => "address of /debug/pprof";
        "admin-socket" Kind::Path, "/var/run/koordlet/admin.sock" => "socket for metrics dump, of mode 0600";
        "kubeconfig" Kind::Path, "" => "file that tells how to reach the API server; nothing means as a pod does";
        "kube-api-qps" Kind::Number(1, 10_000), "20" => "requests a second to the API server";
        "kube-api-burst" Kind::Number(1, 10_000), "30" => "requests to the API server at once";
        "feature-gates" Kind::Text("LIST"), "" => "features to switch on or off, by the names of Koordinator";
        "v" Kind::Number(0, 10), "2" => "log verbosity: 0 warnings, 1 life cycle, 4 decisions, 6 details, 10 all";
        "log-format" Kind::Choice(&["text", "json"]), "text" => "form of log lines";
        "explain" Kind::Switch, "false" => "for metrics dump: tell where every field of the report comes from";
        "version" Kind::Switch, "false" => "print the version and end";
        "help" Kind::Switch, "false" => "print this text and end";
    }
    Paths {
        "cgroup-root-dir" Kind::Path, "/host-cgroup/", host "/sys/fs/cgroup/" => "the host's control groups";
        "proc-root-dir" Kind::Path, "/proc/" => "the host's /proc";
        "sys-root-dir" Kind::Path, "/host-sys/", host "/sys/" => "the host's /sys";
        "sys-fs-root-dir" Kind::Path, "/host-sys-fs/", host "/sys/fs/" => "the host's /sys/fs, for resctrl";
        "run-root-dir" Kind::Path, "/host-run/", host "/run/" => "the host's /run";
        "var-lib-kubelet-dir" Kind::Path, "/var/lib/kubelet/" => "the kubelet's directory";
        "kubelet-cgroup-root" Kind::Path, "/" => "the kubelet's cgroupRoot";
        "cgroup-driver" Kind::Choice(&["auto", "systemd", "cgroupfs"]), "auto" => "driver of the kubelet; auto finds out";
        "default-runtime-type" Kind::Choice(&["containerd", "docker", "pouch", "cri-o"]), "containerd" => "runtime whose names the cgroups of containers have, where nothing else tells";
    }
    Collect {
        "collect-res-used-interval" Kind::Duration(1000), "1s" => "pause between samples of usage";
        "collect-sys-metric-outdated-interval" Kind::Duration(1), "10s" => "greatest age of what system usage is computed from";
        "collect-node-cpu-info-interval" Kind::Duration(1000), "60s" => "pause between looks at CPUs and NUMA nodes";
        "collect-numa-interval" Kind::Duration(1000), "5s" => "pause between samples of NUMA nodes, where there are several";
        "collect-memory-stat-interval" Kind::Duration(1000), "5s" => "pause between samples of the memory of pods; containers take twice that, except with 1s";
        "cpi-collector-interval" Kind::Duration(1000), "60s" => "pause between counts of cycles and instructions";
        "collect-cpi-timewindow" Kind::Duration(1), "10s" => "how long cycles and instructions are counted";
        "cpi-max-fds" Kind::Number(2, 1_000_000), "8192" => "most descriptors of a count of cycles and instructions";
        "psi-collector-interval" Kind::Duration(1000), "10s" => "pause between samples of pressure";
        "coldpage-collector-interval" Kind::Duration(1000), "5s" => "pause between samples of cold memory";
        "resctrl-collector-interval" Kind::Duration(1000), "10s" => "pause between samples of caches and memory bandwidth";
        "enable-pagecache-collector" Kind::Switch, "true" => "keep the figures with page cache, which cost nothing extra";
        "enable-resctrl-collector" Kind::Switch, "false" => "measure caches and memory bandwidth; with gate ResctrlCollector";
        "pod-metrics" Kind::Choice(&["none", "pod", "container"]), "container" => "finest objects that metrics tell of";
    }
    Store {
        "tsdb-path" Kind::Path, "/metric-data/" => "directory of the snapshot that lets windows survive a restart";
        "tsdb-retention-duration" Kind::Duration(60_000), "12h" => "longest time samples are kept";
        "tsdb-max-bytes" Kind::Bytes, "100MiB" => "most memory and disk space of samples";
    }
    State {
        "proxy-endpoint" Kind::Text("SOCKET"), "auto" => "admin socket of koord-runtime-proxy; auto means the usual one below --run-root-dir while it is there";
        "pod-source" Kind::Choice(&["auto", "kubelet", "apiserver"]), "auto" => "where pods are asked for; auto is the kubelet, and the API server while that fails";
        "kubelet-preferred-address-type" Kind::Text("TYPE"), "InternalIP" => "address of the node the kubelet is asked at: InternalIP, Hostname, ExternalIP, ExternalDNS or InternalDNS";
        "kubelet-sync-interval" Kind::Duration(100), "10s" => "pause between looks at the kubelet's pods";
        "kubelet-sync-timeout" Kind::Duration(1), "3s" => "time limit of a request to the kubelet";
        "kubelet-insecure-tls" Kind::Switch, "false" => "ask the read-only port over plain HTTP and without a token";
        "kubelet-read-only-port" Kind::Number(1, 65_535), "10255" => "the kubelet's read-only port";
        "kubelet-verify" Kind::Choice(&["off", "ca"]), "off" => "whether the kubelet's certificate is checked";
        "kubelet-ca-file" Kind::Path, "" => "authorities of the kubelet's certificate, for --kubelet-verify=ca; nothing means the cluster's";
        "disable-query-kubelet-config" Kind::Switch, "false" => "do not read the kubelet's configuration";
    }
    Report {
        "enable-node-metric-report" Kind::Switch, "true" => "write the status of the NodeMetric of this node";
        "node-metric-deadband-percent" Kind::Number(0, 50), "0" => "skip a report, never two in a row, when no figure of the node moved by more; 0 reports always";
        "node-metric-profile" Kind::Choice(&["full", "slim"]), "full" => "slim leaves out the aggregated system usage";
        "node-topology-sync-interval" Kind::DurationOrOff, "3s" => "whether the NodeResourceTopology is written: off with 0 and less";
    }
    Prediction {
        "prediction-checkpoint-filepath" Kind::Path, "/prediction-checkpoints" => "directory of the models";
        "prediction-cold-start-duration" Kind::Duration(0), "24h" => "age up to which a pod's requests count as used";
        "prediction-safety-margin-percent" Kind::Number(0, 1000), "10" => "what is added to a predicted peak";
        "prediction-memory-histogram-decay-halflife" Kind::Duration(1000), "24h" => "time after which a memory sample counts half";
        "prediction-cpu-histogram-decay-halflife" Kind::Duration(1000), "12h" => "time after which a CPU sample counts half";
        "prediction-training-interval" Kind::Duration(1000), "1m" => "pause between trainings";
        "prediction-model-expiration-duration" Kind::Duration(1000), "30m" => "age after which a model without samples is removed";
        "prediction-model-checkpoint-interval" Kind::Duration(1000), "10m" => "age after which a model is saved again";
        "prediction-min-samples" Kind::Number(0, 100_000), "60" => "samples below which a model is not trusted; 0 trusts a single one";
    }
    Audit {
        "audit-log-dir" Kind::Path, "/var/log/koordlet" => "directory of the audit log";
        "audit-verbose" Kind::Number(0, 10), "3" => "greatest verbosity of kept events; 0 keeps all";
        "audit-max-disk-space-mb" Kind::Number(1, 1_048_576), "16" => "disk space of the audit log";
        "audit-max-concurrent-readers" Kind::Number(1, 1024), "4" => "readers at a time";
        "audit-max-events-limit" Kind::Number(1, 1_000_000), "2048" => "most events of an answer";
    }
    Ignored {
        "report-interval" Kind::Duration(0), "0s" => "the object says how often is reported";
        "configmap-name" Kind::Text("NAME"), "koordlet-config" => "nothing is configured by it";
        "configmap-namespace" Kind::Text("NAME"), "koordinator-system" => "nothing is configured by it";
        "metric-gc-interval-seconds" COUNT, "300" => "samples leave by age and number";
        "metric-expire-seconds" COUNT, "1800" => "samples leave by age and number";
        "tsdb-enable-prometheus-metric" Kind::Switch, "true" => "samples are not in a database of Prometheus";
        "tsdb-stripe-size" COUNT, "16384" => "samples are not in a database of Prometheus";
        "tsdb-wal-segment-size" Kind::Bytes, "1MiB" => "samples are not in a database of Prometheus";
        "tsdb-max-block-chunk-segment-size" Kind::Bytes, "5MiB" => "samples are not in a database of Prometheus";
        "tsdb-head-chunks-write-buffer-size" Kind::Bytes, "1MiB" => "samples are not in a database of Prometheus";
        "tsdb-min-block-duration" Kind::Duration(0), "10m" => "samples are not in a database of Prometheus";
        "tsdb-max-block-duration" Kind::Duration(0), "10m" => "samples are not in a database of Prometheus";
        "var-run-root-dir" Kind::Path, "/host-var-run/", host "/var/run/" => "nothing there is read";
        "collect-node-storage-info-interval" Kind::Duration(1000), "1s" => "block devices are not looked at by this program";
        "prediction-model-checkpoint-max-per-step" Kind::Number(1, 100_000), "12" => "all models share one file";
        "enable-pod-taskids" Kind::Switch, "false" => "tasks are not listed";
        "xpu-enforce-collect-from-device-infos" Kind::Switch, "false" => "accelerators are not reported by this program";
        "xpu-device-infos-dir" Kind::Path, "/var/run/koordlet/xpu-device-infos/" => "accelerators are not reported by this program";
        "pod-resources-proxy-path" Kind::Path, "/var/run/koordlet/pod-resources" => "the kubelet's pod resources are not served by this program";
        "hami-core-library-directory-path" Kind::Text("PATH"), "/usr/local/vgpu/libvgpu.so" => "shares of GPUs are not measured";
        "containerd-endpoint" Kind::Text("SOCKET"), "" => "the runtime is not asked by this program";
        "docker-endpoint" Kind::Text("SOCKET"), "" => "the runtime is not asked by this program";
        "pouch-endpoint" Kind::Text("SOCKET"), "" => "the runtime is not asked by this program";
        "crio-endpoint" Kind::Text("SOCKET"), "" => "the runtime is not asked by this program";
        "runtime-hooks-network" Kind::Text("WORD"), "unix" => "hooks run in the proxy";
        "runtime-hooks-addr" Kind::Text("SOCKET"), "/host-var-run-koordlet/koordlet.sock" => "hooks run in the proxy";
        "runtime-hooks-host-endpoint" Kind::Text("SOCKET"), "/var/run/koordlet/koordlet.sock" => "hooks run in the proxy";
        "runtime-hooks-config-path" Kind::Text("PATH"), "/host-etc-hookserver/" => "hooks run in the proxy";
        "runtime-hooks-failure-policy" Kind::Text("WORD"), "Ignore" => "hooks run in the proxy";
        "runtime-hooks-plugin-failure-policy" Kind::Text("WORD"), "Ignore" => "hooks run in the proxy";
        "runtime-hooks-disable-stages" Kind::Text("LIST"), "" => "hooks run in the proxy";
        "runtime-hooks-reconcile-interval" Kind::Duration(0), "10s" => "hooks run in the proxy";
        "runtime-hooks-nri-socket-path" Kind::Text("SOCKET"), "nri/nri.sock" => "hooks run in the proxy";
        "runtime-hooks-nri-plugin-name" Kind::Text("NAME"), "koordlet_nri" => "hooks run in the proxy";
        "runtime-hooks-nri-plugin-index" Kind::Text("NUMBER"), "00" => "hooks run in the proxy";
        "runtime-hooks-nri-connect-timeout" Kind::Duration(0), "6s" => "hooks run in the proxy";
        "runtime-hooks-nri-backoff-duration" Kind::Duration(0), "1s" => "hooks run in the proxy";
        "runtime-hooks-nri-backoff-factor" Kind::Text("NUMBER"), "2" => "hooks run in the proxy";
        "runtime-hooks-nri-backoff-steps" COUNT, "2147483647" => "hooks run in the proxy";
        "runtime-hooks-nri-backoff-cap" Kind::Duration(0), "1281023h53m38.427387903s" => "hooks run in the proxy";
        "enable-nri-runtime-hook" Kind::Switch, "true" => "hooks run in the proxy";
        "disable-unset-cpu-quota" Kind::Switch, "false" => "hooks run in the proxy";
        "resource-force-update-seconds" COUNT, "60" => "values in control groups are the proxy's";
        "reconcile-interval-seconds" COUNT, "1" => "values in control groups are the proxy's";
        "cpu-suppress-interval-seconds" COUNT, "1" => "no strategy runs in this program";
        "cpu-evict-interval-seconds" COUNT, "1" => "no strategy runs in this program";
        "memory-evict-interval-seconds" COUNT, "1" => "no strategy runs in this program";
        "cpu-evict-cool-time-seconds" COUNT, "20" => "no strategy runs in this program";
        "memory-evict-cool-time-seconds" COUNT, "4" => "no strategy runs in this program";
        "only-evict-by-api" Kind::Switch, "false" => "no strategy runs in this program";
        "evict-by-copilot-agent" Kind::Switch, "false" => "no strategy runs in this program";
        "evict-by-copilot-endpoint" Kind::Text("SOCKET"), "/var/run/yarn-copilot/yarn-copilot.sock" => "no strategy runs in this program";
        "evict-by-copilot-pod-label-key" Kind::Text("KEY"), "app.kubernetes.io/component" => "no strategy runs in this program";
        "evict-by-copilot-pod-label-value" Kind::Text("TEXT"), "node-manager" => "no strategy runs in this program";
        "qos-extension-plugins" Kind::Text("LIST"), "" => "no strategy runs in this program";
        "logtostderr" Kind::Switch, "true" => "the log always goes to standard error";
        "alsologtostderr" Kind::Switch, "false" => "the log always goes to standard error";
        "log_dir" Kind::Text("PATH"), "" => "the log always goes to standard error";
        "log_file" Kind::Text("PATH"), "" => "the log always goes to standard error";
        "log_file_max_size" COUNT, "1800" => "the log always goes to standard error";
        "stderrthreshold" Kind::Text("LEVEL"), "2" => "the log always goes to standard error";
        "add_dir_header" Kind::Switch, "false" => "lines have one form";
        "skip_headers" Kind::Switch, "false" => "lines have one form";
        "skip_log_headers" Kind::Switch, "false" => "lines have one form";
        "one_output" Kind::Switch, "false" => "lines have one form";
        "log_backtrace_at" Kind::Text("PLACE"), ":0" => "lines have one form";
        "vmodule" Kind::Text("LIST"), "" => "verbosity is the same everywhere";
    }
}

/// The flag of a name.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}
