//! The flags: name, default, what they accept and mean.

use koord_runtime::command_line;

/// Whether a flag takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Takes a value; the word stands for it in the help text.
    Value(&'static str),
    /// Is on or off.
    Switch,
}

/// Heading a flag is listed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Endpoints,
    Hooks,
    Qos,
    Usage,
    Relaying,
    State,
    Operation,
}

impl Group {
    pub(super) const ALL: [Group; 7] = [
        Group::Endpoints,
        Group::Hooks,
        Group::Qos,
        Group::Usage,
        Group::Relaying,
        Group::State,
        Group::Operation,
    ];

    pub(super) fn heading(self) -> &'static str {
        match self {
            Group::Endpoints => "Sockets and backend",
            Group::Hooks => "Hook servers and plugins",
            Group::Qos => "Quality of service",
            Group::Usage => "Usage",
            Group::Relaying => "Relaying",
            Group::State => "State and restart",
            Group::Operation => "Observation and log",
        }
    }
}

/// One flag.
#[derive(Debug)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) group: Group,
    pub(super) kind: Kind,
    pub(super) default: &'static str,
    pub(super) accepted: &'static str,
    pub(super) meaning: &'static str,
}

impl command_line::Flag for Flag {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_switch(&self) -> bool {
        self.kind == Kind::Switch
    }

    fn accepted(&self) -> String {
        self.accepted.to_owned()
    }
}

const SOCKET: &str = "an absolute socket path, unix:/path or unix:///path";

pub(super) const LISTEN: Flag = Flag {
    name: "koord-runtimeproxy-endpoint",
    group: Group::Endpoints,
    kind: Kind::Value("SOCKET"),
    default: "/var/run/koord-runtimeproxy/runtimeproxy.sock",
    accepted: SOCKET,
    meaning: "socket that the kubelet and crictl connect to",
};
pub(super) const RUNTIME: Flag = Flag {
    name: "remote-runtime-service-endpoint",
    group: Group::Endpoints,
    kind: Kind::Value("SOCKET"),
    default: "/var/run/containerd/containerd.sock",
    accepted: SOCKET,
    meaning: "socket of the container runtime",
};
pub(super) const IMAGE: Flag = Flag {
    name: "remote-image-service-endpoint",
    group: Group::Endpoints,
    kind: Kind::Value("SOCKET"),
    default: "",
    accepted: "an absolute socket path, unix:/path, unix:///path, or nothing for the runtime's",
    meaning: "socket of the image service, if it is not the runtime's",
};
pub(super) const MODE: Flag = Flag {
    name: "backend-runtime-mode",
    group: Group::Endpoints,
    kind: Kind::Value("MODE"),
    default: "Containerd",
    accepted: "Containerd (any CRI runtime)",
    meaning: "kind of the backend; Containerd means any CRI runtime",
};
pub(super) const SOCKET_MODE: Flag = Flag {
    name: "socket-mode",
    group: Group::Endpoints,
    kind: Kind::Value("MODE"),
    default: "inherit",
    accepted: "inherit, or an octal number from 0 to 0777",
    meaning: "mode of the listening socket; inherit copies mode and owner of the runtime's socket",
};
pub(super) const PEER_CHECK: Flag = Flag {
    name: "peer-check",
    group: Group::Endpoints,
    kind: Kind::Value("RULE"),
    default: "off",
    accepted: "off, or root-or-group",
    meaning: "who may connect besides what the socket's mode says; root-or-group admits root and \
              the group of the runtime's socket",
};
pub(super) const SKIP_KEY: Flag = Flag {
    name: "runtime-hook-server-key",
    group: Group::Hooks,
    kind: Kind::Value("KEY"),
    default: "runtimeproxy.koordinator.sh/skip-hookserver",
    accepted: "a label key",
    meaning: "key of the pod label that exempts a pod from hooks",
};
pub(super) const SKIP_VALUE: Flag = Flag {
    name: "runtime-hook-server-val",
    group: Group::Hooks,
    kind: Kind::Value("TEXT"),
    default: "true",
    accepted: "a label value",
    meaning: "exact value that label must have",
};
pub(super) const SKIP_NAMESPACES: Flag = Flag {
    name: "skip-namespaces",
    group: Group::Hooks,
    kind: Kind::Value("LIST"),
    default: "",
    accepted: "namespace names separated by commas, or nothing for all",
    meaning: "namespaces in which that label is honoured",
};
pub(super) const HOOK_CONFIG_DIR: Flag = Flag {
    name: "hook-config-dir",
    group: Group::Hooks,
    kind: Kind::Value("DIRECTORY"),
    default: "/etc/runtime/hookserver.d",
    accepted: "an absolute path",
    meaning: "directory of hook server registrations, one JSON file each",
};
pub(super) const HOOK_TIMEOUT: Flag = Flag {
    name: "hook-timeout",
    group: Group::Hooks,
    kind: Kind::Value("DURATION"),
    default: "2s",
    accepted: "a duration from 1ms to 10m, such as 2s, 100ms or 1m30s",
    meaning: "upper bound of one hook call",
};
pub(super) const HOOK_DEADLINE_SHARE: Flag = Flag {
    name: "hook-deadline-share",
    group: Group::Hooks,
    kind: Kind::Value("SHARE"),
    default: "0.5",
    accepted: "a number above 0 and up to 1",
    meaning: "share of a request's remaining deadline that its hooks may use together",
};
pub(super) const HOOK_TRUSTED_UID: Flag = Flag {
    name: "hook-trusted-uid",
    group: Group::Hooks,
    kind: Kind::Value("UID"),
    default: "",
    accepted: "a user id from 0 to 4294967294, or nothing",
    meaning: "user besides root whose registration files and hook sockets are trusted",
};
pub(super) const PLUGIN_DIR: Flag = Flag {
    name: "plugin-dir",
    group: Group::Hooks,
    kind: Kind::Value("DIRECTORY"),
    default: "/usr/lib/koord/hooks.d",
    accepted: "an absolute path, or nothing for none",
    meaning: "directory of hook plugins, one NAME.so each with an optional NAME.json",
};
pub(super) const QOS_MODE: Flag = Flag {
    name: "mode",
    group: Group::Qos,
    kind: Kind::Value("MODE"),
    default: "enforce",
    accepted: "enforce, shadow, or off",
    meaning: "what becomes of the decisions of rules and hooks: enforce applies them, shadow only records them, off makes none",
};
pub(super) const NODE_POLICY: Flag = Flag {
    name: "node-policy",
    group: Group::Qos,
    kind: Kind::Value("FILE"),
    default: "/etc/koord/node-slo.yaml",
    accepted: "an absolute path, or nothing for the defaults",
    meaning: "policy of this node in YAML, shaped as the specification of a NodeSLO; a missing file means the defaults",
};
pub(super) const FEATURE_GATES: Flag = Flag {
    name: "feature-gates",
    group: Group::Qos,
    kind: Kind::Value("LIST"),
    default: "",
    accepted: "NAME=true or NAME=false, separated by commas",
    meaning: "rules to switch on or off, by the names of Koordinator",
};
pub(super) const CGROUP_ROOT: Flag = Flag {
    name: "cgroup-root",
    group: Group::Qos,
    kind: Kind::Value("DIRECTORY"),
    default: "/sys/fs/cgroup",
    accepted: "an absolute path",
    meaning: "where cgroups are mounted",
};
pub(super) const CGROUP_DRIVER: Flag = Flag {
    name: "cgroup-driver",
    group: Group::Qos,
    kind: Kind::Value("DRIVER"),
    default: "auto",
    accepted: "auto, systemd, or cgroupfs",
    meaning: "how the kubelet names cgroups; auto finds out",
};
pub(super) const KUBELET_CGROUP_ROOT: Flag = Flag {
    name: "kubelet-cgroup-root",
    group: Group::Qos,
    kind: Kind::Value("PATH"),
    default: "/",
    accepted: "an absolute path within the cgroups",
    meaning: "the kubelet's cgroupRoot",
};
pub(super) const KUBELET_DIR: Flag = Flag {
    name: "kubelet-dir",
    group: Group::Qos,
    kind: Kind::Value("DIRECTORY"),
    default: "/var/lib/kubelet",
    accepted: "an absolute path",
    meaning: "the kubelet's directory, where its CPU manager keeps its state",
};
pub(super) const CPU_QOS_BACKEND: Flag = Flag {
    name: "cpu-qos-backend",
    group: Group::Qos,
    kind: Kind::Value("BACKEND"),
    default: "auto",
    accepted: "auto, bvt, idle, weight, or off",
    meaning: "what makes best-effort pods yield the CPU; auto takes the first that works here",
};
pub(super) const BE_IDLE_SCOPE: Flag = Flag {
    name: "be-idle-scope",
    group: Group::Qos,
    kind: Kind::Value("SCOPE"),
    default: "auto",
    accepted: "auto, qos, pod, or off",
    meaning: "cgroups that the idle backend marks: that of all best-effort pods (qos), or each of them",
};
pub(super) const CPU_WEIGHT_CONVERSION: Flag = Flag {
    name: "cpu-weight-conversion",
    group: Group::Qos,
    kind: Kind::Value("FORMULA"),
    default: "auto",
    accepted: "auto, linear, or quadratic",
    meaning: "how the runtime turns cpu.shares into cpu.weight; auto finds out",
};
pub(super) const DISABLE_UNSET_CPU_QUOTA: Flag = Flag {
    name: "disable-unset-cpu-quota",
    group: Group::Qos,
    kind: Kind::Switch,
    default: "false",
    accepted: "true, or false",
    meaning: "keep the CPU quota of pods with CPUs of their own",
};
pub(super) const RECONCILE_INTERVAL: Flag = Flag {
    name: "runtime-hooks-reconcile-interval",
    group: Group::Qos,
    kind: Kind::Value("DURATION"),
    default: "10s",
    accepted: "a duration from 1s to 1h, such as 10s or 1m",
    meaning: "how often values in cgroups are compared with the wished ones",
};
pub(super) const USAGE: Flag = Flag {
    name: "usage",
    group: Group::Usage,
    kind: Kind::Value("CHOICE"),
    default: "on",
    accepted: "on, or off",
    meaning: "whether usage of the node and its pods is sampled, for metrics and for the stream on the admin socket",
};
pub(super) const USAGE_INTERVAL: Flag = Flag {
    name: "usage-interval",
    group: Group::Usage,
    kind: Kind::Value("DURATION"),
    default: "1s",
    accepted: "a duration from 1s to 1m, such as 1s or 10s",
    meaning: "how often CPU usage is sampled",
};
pub(super) const USAGE_MEMORY_INTERVAL: Flag = Flag {
    name: "usage-memory-interval",
    group: Group::Usage,
    kind: Kind::Value("DURATION"),
    default: "5s",
    accepted: "a duration from 1s to 5m, such as 5s or 1m",
    meaning: "how often memory of pods is sampled; that of containers half as often",
};
pub(super) const USAGE_PRESSURE: Flag = Flag {
    name: "usage-pressure",
    group: Group::Usage,
    kind: Kind::Value("CHOICE"),
    default: "off",
    accepted: "on, or off",
    meaning: "whether pressure of pods and containers is sampled too, every 10s, where the kernel has it",
};
pub(super) const USAGE_METRICS: Flag = Flag {
    name: "usage-metrics",
    group: Group::Usage,
    kind: Kind::Value("DETAIL"),
    default: "pod",
    accepted: "none, pod, or container",
    meaning: "which usage the metrics show beside the node's: none, that of pods, or that of pods and containers",
};
pub(super) const BACKEND_WAIT: Flag = Flag {
    name: "backend-wait",
    group: Group::Relaying,
    kind: Kind::Value("DURATION"),
    default: "3s",
    accepted: "a duration from 0s to 10m, such as 3s, 100ms or 1m30s",
    meaning: "how long a request that was not sent yet waits for a missing runtime",
};
pub(super) const MAX_MESSAGE_BYTES: Flag = Flag {
    name: "max-message-bytes",
    group: Group::Relaying,
    kind: Kind::Value("BYTES"),
    default: "33554432",
    accepted: "a whole number from 4096 to 1073741824",
    meaning: "largest message that is held for hooks; larger ones pass without",
};
pub(super) const RELAY_SERVICES: Flag = Flag {
    name: "relay-services",
    group: Group::Relaying,
    kind: Kind::Value("LIST"),
    default: "*",
    accepted: "* for all, or gRPC packages or services separated by commas, such as \
               runtime.v1,runtime.v1alpha2",
    meaning: "services that are relayed; calls of others get PERMISSION_DENIED",
};
pub(super) const STATE_DIR: Flag = Flag {
    name: "state-dir",
    group: Group::State,
    kind: Kind::Value("DIRECTORY"),
    default: "/run/koord-runtimeproxy/state",
    accepted: "an absolute path, or nothing to keep no state",
    meaning: "directory of the store's checkpoint",
};
pub(super) const SHUTDOWN_GRACE: Flag = Flag {
    name: "shutdown-grace",
    group: Group::State,
    kind: Kind::Value("DURATION"),
    default: "10s",
    accepted: "a duration from 0s to 1h, such as 10s or 1m30s",
    meaning: "how long SIGTERM waits for calls in flight",
};
pub(super) const HANDOVER_DRAIN: Flag = Flag {
    name: "handover-drain",
    group: Group::State,
    kind: Kind::Value("DURATION"),
    default: "10m",
    accepted: "a duration from 0s to 24h, such as 10m or 1h30m",
    meaning: "how long the old process keeps its calls after a hand-over (SIGHUP)",
};
pub(super) const ADMIN_SOCKET: Flag = Flag {
    name: "admin-socket",
    group: Group::Operation,
    kind: Kind::Value("SOCKET"),
    default: "/run/koord-runtimeproxy/admin.sock",
    accepted: "an absolute socket path, unix:/path, unix:///path, or nothing for none",
    meaning: "socket for introspection and metrics",
};
pub(super) const METRICS_BIND_ADDRESS: Flag = Flag {
    name: "metrics-bind-address",
    group: Group::Operation,
    kind: Kind::Value("ADDRESS"),
    default: "",
    accepted: "IP:PORT, :PORT for all addresses, or nothing for none",
    meaning: "TCP address that serves /metrics as well",
};
pub(super) const VERBOSITY: Flag = Flag {
    name: "v",
    group: Group::Operation,
    kind: Kind::Value("LEVEL"),
    default: "2",
    accepted: "a whole number from 0 to 10",
    meaning: "log verbosity: 0 warnings, 1 life cycle, 2 hooked calls, 4 decisions, 6 payload shapes, 10 all",
};
pub(super) const LOG_FORMAT: Flag = Flag {
    name: "log-format",
    group: Group::Operation,
    kind: Kind::Value("FORM"),
    default: "text",
    accepted: "text, or json",
    meaning: "form of log lines",
};
pub(super) const VERSION: Flag = Flag {
    name: "version",
    group: Group::Operation,
    kind: Kind::Switch,
    default: "false",
    accepted: "true, or false",
    meaning: "print the version and end",
};
pub(super) const HELP: Flag = Flag {
    name: "help",
    group: Group::Operation,
    kind: Kind::Switch,
    default: "false",
    accepted: "true, or false",
    meaning: "print this text and end",
};

/// Every flag, in the order of the help text.
pub(super) const FLAGS: [&Flag; 43] = [
    &LISTEN,
    &RUNTIME,
    &IMAGE,
    &MODE,
    &SOCKET_MODE,
    &PEER_CHECK,
    &SKIP_KEY,
    &SKIP_VALUE,
    &SKIP_NAMESPACES,
    &HOOK_CONFIG_DIR,
    &HOOK_TIMEOUT,
    &HOOK_DEADLINE_SHARE,
    &HOOK_TRUSTED_UID,
    &PLUGIN_DIR,
    &QOS_MODE,
    &NODE_POLICY,
    &FEATURE_GATES,
    &CGROUP_ROOT,
    &CGROUP_DRIVER,
    &KUBELET_CGROUP_ROOT,
    &KUBELET_DIR,
    &CPU_QOS_BACKEND,
    &BE_IDLE_SCOPE,
    &CPU_WEIGHT_CONVERSION,
    &DISABLE_UNSET_CPU_QUOTA,
    &RECONCILE_INTERVAL,
    &USAGE,
    &USAGE_INTERVAL,
    &USAGE_MEMORY_INTERVAL,
    &USAGE_PRESSURE,
    &USAGE_METRICS,
    &BACKEND_WAIT,
    &MAX_MESSAGE_BYTES,
    &RELAY_SERVICES,
    &STATE_DIR,
    &SHUTDOWN_GRACE,
    &HANDOVER_DRAIN,
    &ADMIN_SOCKET,
    &METRICS_BIND_ADDRESS,
    &VERBOSITY,
    &LOG_FORMAT,
    &VERSION,
    &HELP,
];
