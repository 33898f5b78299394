//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use koord_admin::Mode;
use koord_extension::qos::QosClass;
use koord_runtime::duration::parse_go_duration;

/// Where the proxy's admin socket is by default.
pub const DEFAULT_ADMIN_SOCKET: &str = "/run/koord-runtimeproxy/admin.sock";

/// Text about exit codes at the end of every help page.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  everything asked for was done
  1  `node diff --exit-code` found differences, or an action failed in whole or in part
  2  the command line, or a file it names, is wrong
  3  there is no such pod or container on this node
  4  the proxy does not answer";

/// Looks into koord-runtime-proxy on this node, and switches its rules.
///
/// Reading and switching go through the proxy's admin socket, which is for root. `explain -f` needs no proxy.
#[derive(Debug, Parser)]
#[command(name = "koordctl", version = crate::version::TEXT, after_help = EXIT_CODES, propagate_version = false)]
#[command(arg_required_else_help = true, subcommand_required = true, infer_subcommands = false)]
pub struct Arguments {
    /// Options every command has.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub topic: Topic,
}

/// Options every command has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Common options")]
pub struct Common {
    /// Admin socket of the proxy: an absolute path, unix:/path or unix:///path
    #[arg(long, global = true, value_name = "SOCKET", default_value = DEFAULT_ADMIN_SOCKET, value_parser = socket)]
    pub admin_socket: PathBuf,
    /// How long to wait for an answer of the proxy, such as 30s or 1m30s; for `node enable` and `node disable`, until
    /// the kubelet is healthy again [default: 30s; for these two 2m]
    #[arg(long, global = true, value_name = "DURATION", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// Form of the output
    #[arg(short, long, global = true, value_enum, value_name = "FORM", default_value = "table")]
    pub output: Format,
    /// Use no colours (as with a non-empty NO_COLOR)
    #[arg(long, global = true)]
    pub no_color: bool,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    Table,
    /// Columns with identifiers and directories in full
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// What a command is about.
#[derive(Debug, Subcommand)]
pub enum Topic {
    /// State of this node, its pods, and switching the proxy's rules
    #[command(subcommand)]
    Node(NodeAction),
    /// What the node, its pods or its QoS classes use; on a terminal, refreshed with each sample until interrupted
    #[command(subcommand)]
    Top(TopAction),
    /// Why a pod or container has the values it has
    Explain(Explain),
    /// Hooks of the proxy
    #[command(subcommand)]
    Hooks(HooksAction),
    /// Version of this program and of the proxy
    Version(Version),
    /// Script that completes command lines in a shell
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write manual pages
    #[command(hide = true)]
    Man {
        /// Directory the pages are written to
        directory: PathBuf,
    },
}

/// A shell that completes command lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// What to do with the node.
#[derive(Debug, Subcommand)]
pub enum NodeAction {
    /// Whether the kubelet goes through the proxy; mode, policy, cgroup tree, means in use, counts
    Status(Kubelet),
    /// Pods with their QoS class, values and who decided them
    Pods(Which),
    /// What enforcing would change: fields whose wanted value was not sent
    Diff {
        /// Pods to look at.
        #[command(flatten)]
        which: Which,
        /// End with code 1 if there are differences
        #[arg(long)]
        exit_code: bool,
    },
    /// Whether the proxy's rules act: enforce, shadow (compute and record only), or off
    Mode {
        /// The mode to go to
        #[arg(value_parser = mode_parser())]
        mode: Mode,
        /// With off: put back what the kubelet asked for, too
        #[arg(long)]
        restore: bool,
        /// Do not ask for confirmation of --restore
        #[arg(short, long, requires = "restore")]
        yes: bool,
    },
    /// Put the proxy between the kubelet and its runtime; if the kubelet does not get healthy, everything is put back
    Enable(SwitchOptions),
    /// Step aside: put back every value, file and unit that `node enable` and the proxy have changed
    Disable(SwitchOptions),
}

/// How the kubelet is switched to the proxy, or back.
#[derive(Debug, Clone, Default, Args)]
pub struct SwitchOptions {
    /// Show checks, differences of files and commands, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Go on in spite of doubts, and write over files that others have changed since
    #[arg(long)]
    pub force: bool,
    /// Which kubelet.
    #[command(flatten)]
    pub kubelet: Kubelet,
}

/// Which kubelet.
#[derive(Debug, Clone, Default, Args)]
pub struct Kubelet {
    /// The kubelet's unit, if it is not kubelet.service or one of k3s or rke2
    #[arg(long, value_name = "UNIT", value_parser = unit)]
    pub kubelet_unit: Option<String>,
    /// Look for files below this directory; for images and tests
    #[arg(long, value_name = "DIRECTORY", hide = true)]
    pub root: Option<PathBuf>,
}

/// Whose usage.
#[derive(Debug, Clone, Subcommand)]
pub enum TopAction {
    /// The node, its NUMA nodes, all pods together, and what is no pod
    Node {
        /// How long.
        #[command(flatten)]
        refresh: Refresh,
    },
    /// Pods
    Pods(TopPods),
    /// QoS classes, and what best-effort pods may use
    Qos {
        /// How long.
        #[command(flatten)]
        refresh: Refresh,
    },
}

/// How long usage is shown.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Refresh {
    /// Show one table and end, as if the output were no terminal; -o json and -o yaml do so too
    #[arg(long)]
    pub once: bool,
}

/// Which pods, in which order.
#[derive(Debug, Clone, Default, Args)]
pub struct TopPods {
    /// Pods whose name, or NAMESPACE/NAME, contains this
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// Pods of this namespace only
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Pods of this QoS class in force only: LSE, LSR, LS, BE or SYSTEM
    #[arg(long, value_name = "CLASS", value_parser = class)]
    pub qos: Option<QosClass>,
    /// Order of the rows, the largest first except for names
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "cpu")]
    pub sort: SortBy,
    /// Show the containers of each pod as well
    #[arg(long)]
    pub containers: bool,
    /// Show so many pods at most
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// How long.
    #[command(flatten)]
    pub refresh: Refresh,
}

/// Column that rows are ordered by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// CPU now
    #[default]
    Cpu,
    /// CPU over the last minute
    CpuAverage,
    /// Throttled part of the quota's periods
    Throttled,
    /// Memory without page cache
    Memory,
    /// Pressure on CPU
    Pressure,
    /// Namespace and name
    Name,
}

/// Which pods.
#[derive(Debug, Clone, Default, Args)]
pub struct Which {
    /// Id or its first characters (at least 4), pod UID, name, NAMESPACE/NAME or NAMESPACE/NAME/CONTAINER
    #[arg(value_name = "POD|CONTAINER")]
    pub what: Option<String>,
    /// Pods of this namespace only
    #[arg(short, long)]
    pub namespace: Option<String>,
}

/// What to explain.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("subject").args(["what", "filename"]).required(true).multiple(false))]
pub struct Explain {
    /// Id or its first characters (at least 4), pod UID, name, NAMESPACE/NAME or NAMESPACE/NAME/CONTAINER; the word
    /// pod or container may stand before it
    #[arg(value_name = "POD|CONTAINER", num_args = 1..=2)]
    pub what: Vec<String>,
    /// Pods of this namespace only
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Explain the pods of a manifest (YAML or JSON, - for standard input) without asking the proxy
    #[arg(short, long, value_name = "FILE")]
    pub filename: Option<PathBuf>,
}

/// What to do with hooks.
#[derive(Debug, Subcommand)]
pub enum HooksAction {
    /// Hooks in the order they are asked
    List,
    /// Load a hook library in a process of its own and say what it is
    Test(HookTest),
}

/// How to test a hook library.
#[derive(Debug, Args)]
pub struct HookTest {
    /// The library, such as /usr/lib/koord/hooks.d/example.so
    pub file: PathBuf,
    /// Send a request of this stage, such as PreCreateContainer; without it, of every stage the library takes
    #[arg(long)]
    pub stage: Option<String>,
    /// Request to send, as JSON or YAML; without it, that of a burstable pod with one container
    #[arg(long, value_name = "FILE", requires = "stage")]
    pub sample: Option<PathBuf>,
}

/// Which versions.
#[derive(Debug, Args)]
pub struct Version {
    /// This program's only
    #[arg(long)]
    pub client: bool,
}

fn mode_parser() -> impl clap::builder::TypedValueParser<Value = Mode> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
    let values = [
        PossibleValue::new(Mode::Enforce.as_str()).help("Values are changed"),
        PossibleValue::new(Mode::Shadow.as_str())
            .help("Everything is computed and recorded, nothing is changed"),
        PossibleValue::new(Mode::Off.as_str()).help("Requests pass as they came; values already set stay"),
    ];
    PossibleValuesParser::new(values).try_map(|text| text.parse::<Mode>())
}

fn class(text: &str) -> Result<QosClass, String> {
    QosClass::from_name(text).ok_or_else(|| "accepted: LSE, LSR, LS, BE, SYSTEM".to_owned())
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    if path.starts_with('/') {
        Ok(PathBuf::from(path))
    } else {
        Err("accepted: an absolute path, unix:/path or unix:///path".to_owned())
    }
}

fn unit(text: &str) -> Result<String, String> {
    let is_name = text.ends_with(".service")
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_@:\\".contains(c))
        && !text.starts_with('-');
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("accepted: the name of a service, such as kubelet.service".to_owned())
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let duration = parse_go_duration(text).map_err(|error| error.to_string())?;
    if duration < Duration::from_millis(1) || duration > Duration::from_secs(3_600) {
        return Err("accepted: from 1ms to 1h".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    /// Every command and option that is shown, with the words before it.
    fn shown(command: &clap::Command, before: &str, names: &mut Vec<String>) {
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let global = ["help", "version"].contains(&argument.get_id().as_str());
            names.extend(argument.get_long().filter(|_| !global).map(|long| format!("--{long}")));
        }
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            let name = format!("{before} {}", inner.get_name()).trim_start().to_owned();
            if !inner.has_subcommands() {
                names.push(name.clone());
            }
            shown(inner, &name, names);
        }
    }

    #[test]
    fn the_document_names_everything() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/koordctl.md");
        let text = std::fs::read_to_string(path).unwrap();
        let mut names = Vec::new();
        shown(&Arguments::command(), "", &mut names);
        assert!(
            names.contains(&"hooks test".to_owned()) && names.contains(&"--exit-code".to_owned()),
            "{names:?}"
        );
        // The document says -o, -n and -f.
        for name in
            names.iter().filter(|name| !["--output", "--namespace", "--filename"].contains(&name.as_str()))
        {
            assert!(text.contains(name.as_str()), "{path} does not name {name}");
        }
        assert!(text.contains(DEFAULT_ADMIN_SOCKET));
    }

    #[test]
    fn sockets() {
        for text in ["/a/b.sock", "unix:/a/b.sock", "unix:///a/b.sock"] {
            assert_eq!(socket(text), Ok(PathBuf::from("/a/b.sock")), "{text}");
        }
        for text in ["", "a.sock", "unix:a.sock", "unix://a.sock", "tcp://1.2.3.4:1"] {
            assert!(socket(text).is_err(), "{text}");
        }
    }

    #[test]
    fn timeouts() {
        assert_eq!(timeout("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(timeout("1h"), Ok(Duration::from_secs(3_600)));
        for text in ["0", "999us", "1h1ns", "5", "-1s", "soon"] {
            assert!(timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn commands() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' ')).map(|_| ()).map_err(|e| e.kind());
        for right in [
            "koordctl node status",
            "koordctl node pods -o wide",
            "koordctl -o yaml node pods web -n default",
            "koordctl node diff --exit-code",
            "koordctl node mode shadow --admin-socket unix:/x",
            "koordctl node disable --yes",
            "koordctl node enable --dry-run --kubelet-unit my-kubelet.service --timeout 5m",
            "koordctl node mode off --restore --yes",
            "koordctl top node",
            "koordctl top pods web -n default --qos BE --sort memory --containers --limit 5 --once",
            "koordctl top qos --once -o json",
            "koordctl explain web",
            "koordctl explain pod web",
            "koordctl explain -f pod.yaml",
            "koordctl hooks test a.so --stage PreCreateContainer --sample s.json",
            "koordctl completion zsh",
            "koordctl man /x",
            "koordctl version --client",
        ] {
            assert_eq!(parse(right), Ok(()), "{right}");
        }
        use clap::error::ErrorKind;
        for (wrong, kind) in [
            ("koordctl node mode on", ErrorKind::InvalidValue),
            ("koordctl node mode off --yes", ErrorKind::MissingRequiredArgument),
            ("koordctl node enable --kubelet-unit kubelet", ErrorKind::ValueValidation),
            ("koordctl node enable --kubelet-unit=--x.service", ErrorKind::ValueValidation),
            ("koordctl explain", ErrorKind::MissingRequiredArgument),
            ("koordctl explain web -f pod.yaml", ErrorKind::ArgumentConflict),
            ("koordctl explain pod web x", ErrorKind::TooManyValues),
            ("koordctl hooks test a.so --sample s.json", ErrorKind::MissingRequiredArgument),
            ("koordctl node pods -o xml", ErrorKind::InvalidValue),
            ("koordctl nodes", ErrorKind::InvalidSubcommand),
            ("koordctl top pods --qos be", ErrorKind::ValueValidation),
            ("koordctl top pods --limit 0", ErrorKind::ValueValidation),
            ("koordctl top pods --sort disk", ErrorKind::InvalidValue),
        ] {
            assert_eq!(parse(wrong), Err(kind), "{wrong}");
        }
    }
}
