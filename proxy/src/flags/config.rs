//! The checked form of the command line.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use koord_runtime::duration::{format_go_duration, parse_go_duration};
use serde_json::json;

use super::qos::{self, QosConfig};
use super::table::{self, Flag};
use super::usage::{self, UsageConfig};
use super::{Flags, Mistake};
use crate::endpoint::Endpoint;

/// Everything the proxy is told, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Socket to listen on.
    pub listen: Endpoint,
    /// Socket of the container runtime.
    pub runtime: Endpoint,
    /// Socket of the image service, if it is another one.
    pub image: Option<Endpoint>,
    /// Mode of the listening socket.
    pub socket_mode: SocketMode,
    /// Who may connect.
    pub peer_check: PeerCheck,
    /// The label that exempts pods from hooks.
    pub skip_label: SkipLabel,
    /// Directory of registrations.
    pub hook_config_dir: PathBuf,
    /// Upper bound of one hook call.
    pub hook_timeout: Duration,
    /// Share of a request's remaining deadline for all its hooks, above 0 and up to 1.
    pub hook_deadline_share: f64,
    /// User besides root who is trusted with registrations and hook sockets.
    pub hook_trusted_uid: Option<u32>,
    /// How long an unsent request waits for a missing backend.
    pub backend_wait: Duration,
    /// Largest held message, in bytes.
    pub max_message_bytes: usize,
    /// Services that are relayed.
    pub relay_services: RelayServices,
    /// Directory of the checkpoint; none keeps no state.
    pub state_dir: Option<PathBuf>,
    /// How long a shutdown waits for calls in flight.
    pub shutdown_grace: Duration,
    /// How long the old process lives on after a hand-over.
    pub handover_drain: Duration,
    /// Socket for operators.
    pub admin_socket: Option<Endpoint>,
    /// TCP address for metrics.
    pub metrics_bind_address: Option<SocketAddr>,
    /// Log verbosity, 0 to 10.
    pub verbosity: u8,
    /// Form of log lines.
    pub log_format: LogForm,
    /// Quality of service.
    pub qos: QosConfig,
    /// Sampling of usage.
    pub usage: UsageConfig,
}

/// Mode and owner of the listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketMode {
    /// Those of the backend's socket.
    Inherit,
    /// This mode, and the process's own user and group.
    Octal(u32),
}

impl fmt::Display for SocketMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketMode::Inherit => formatter.write_str("inherit"),
            SocketMode::Octal(mode) => write!(formatter, "{mode:04o}"),
        }
    }
}

/// Who may connect, besides what the socket's mode says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerCheck {
    /// Everyone.
    Off,
    /// Root, and members of the group that owns the backend's socket.
    RootOrGroup,
}

impl PeerCheck {
    /// The flag's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            PeerCheck::Off => "off",
            PeerCheck::RootOrGroup => "root-or-group",
        }
    }
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
    /// Readable lines.
    Text,
    /// JSON objects.
    Json,
}

impl LogForm {
    /// The flag's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            LogForm::Text => "text",
            LogForm::Json => "json",
        }
    }
}

impl From<LogForm> for koord_runtime::telemetry::LogFormat {
    fn from(form: LogForm) -> Self {
        match form {
            LogForm::Text => Self::Text,
            LogForm::Json => Self::Json,
        }
    }
}

/// The label that exempts a pod from hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkipLabel {
    /// Label key.
    pub key: String,
    /// The exact value it must have.
    pub value: String,
    /// Namespaces where it counts; empty means all.
    pub namespaces: Vec<String>,
}

/// Which gRPC services are relayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayServices {
    /// Every one.
    All,
    /// Those named: a whole package (`runtime.v1`) or one service (`runtime.v1.ImageService`).
    Listed(Vec<String>),
}

impl RelayServices {
    /// Whether calls with this `:path` (`/package.Service/Method`) are relayed.
    pub fn admits(&self, path: &str) -> bool {
        let RelayServices::Listed(names) = self else { return true };
        let Some((service, _method)) = path.strip_prefix('/').and_then(|path| path.rsplit_once('/')) else {
            return false;
        };
        let package = service.rsplit_once('.').map(|(package, _)| package);
        names.iter().any(|name| name == service || Some(name.as_str()) == package)
    }
}

impl fmt::Display for RelayServices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayServices::All => formatter.write_str("*"),
            RelayServices::Listed(names) => formatter.write_str(&names.join(",")),
        }
    }
}

/// Collects mistakes while values are read; a value with a mistake is `None`.
pub(super) struct Checker<'a> {
    flags: &'a Flags,
    mistakes: Vec<Mistake>,
}

impl Checker<'_> {
    pub(super) fn read<T, E: fmt::Display>(
        &mut self,
        flag: &Flag,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.flags.get(flag);
        match read(value) {
            Ok(read) => Some(read),
            Err(problem) => {
                self.mistakes.push(Mistake::bad_value(flag, value, problem.to_string()));
                None
            }
        }
    }

    fn conflict(&mut self, flag: &Flag, problem: String) {
        let value = self.flags.get(flag).to_owned();
        self.mistakes.push(Mistake::Conflict { flag: flag.name, value, problem });
    }
}

impl Config {
    /// Checks the raw form.
    ///
    /// # Errors
    /// Every mistake found.
    pub fn check(flags: &Flags) -> Result<Config, Vec<Mistake>> {
        let mut checker = Checker { flags, mistakes: Vec::new() };
        let listen = checker.read(&table::LISTEN, endpoint);
        let runtime = checker.read(&table::RUNTIME, endpoint);
        let image = checker.read(&table::IMAGE, optional(endpoint));
        checker.read(&table::MODE, backend_mode);
        let socket_mode = checker.read(&table::SOCKET_MODE, socket_mode);
        let peer_check = checker
            .read(&table::PEER_CHECK, one_of(&[PeerCheck::Off, PeerCheck::RootOrGroup], PeerCheck::as_str));
        let skip_key = checker.read(&table::SKIP_KEY, any_text);
        let skip_value = checker.read(&table::SKIP_VALUE, any_text);
        let skip_namespaces = checker.read(&table::SKIP_NAMESPACES, namespaces);
        let hook_config_dir = checker.read(&table::HOOK_CONFIG_DIR, directory);
        let hook_timeout = checker
            .read(&table::HOOK_TIMEOUT, duration_within(Duration::from_millis(1), Duration::from_secs(600)));
        let hook_deadline_share = checker.read(&table::HOOK_DEADLINE_SHARE, share);
        let hook_trusted_uid = checker.read(&table::HOOK_TRUSTED_UID, optional(user));
        let backend_wait =
            checker.read(&table::BACKEND_WAIT, duration_within(Duration::ZERO, Duration::from_secs(600)));
        let max_message_bytes = checker.read(&table::MAX_MESSAGE_BYTES, number_within(4096, 1 << 30));
        let relay_services = checker.read(&table::RELAY_SERVICES, relay_services);
        let state_dir = checker.read(&table::STATE_DIR, optional(directory));
        let shutdown_grace =
            checker.read(&table::SHUTDOWN_GRACE, duration_within(Duration::ZERO, Duration::from_secs(3600)));
        let handover_drain = checker
            .read(&table::HANDOVER_DRAIN, duration_within(Duration::ZERO, Duration::from_secs(86_400)));
        let admin_socket = checker.read(&table::ADMIN_SOCKET, optional(endpoint));
        let metrics_bind_address = checker.read(&table::METRICS_BIND_ADDRESS, optional(tcp_address));
        let verbosity = checker.read(&table::VERBOSITY, number_within(0, 10));
        let log_format =
            checker.read(&table::LOG_FORMAT, one_of(&[LogForm::Text, LogForm::Json], LogForm::as_str));

        let qos = qos::check(&mut checker);
        let usage = usage::check(&mut checker);

        // A proxy that is its own backend would call itself without end.
        if listen.is_some() && listen == runtime {
            checker.conflict(&table::LISTEN, format!("is also --{}", table::RUNTIME.name));
        }
        if listen.is_some() && Some(&listen) == image.as_ref() {
            checker.conflict(&table::LISTEN, format!("is also --{}", table::IMAGE.name));
        }
        if listen.is_some() && Some(&listen) == admin_socket.as_ref() {
            checker.conflict(&table::ADMIN_SOCKET, format!("is also --{}", table::LISTEN.name));
        }

        let config = (|| {
            Some(Config {
                listen: listen?,
                image: image?.filter(|image| Some(image) != runtime.as_ref()),
                runtime: runtime?,
                socket_mode: socket_mode?,
                peer_check: peer_check?,
                skip_label: SkipLabel { key: skip_key?, value: skip_value?, namespaces: skip_namespaces? },
                hook_config_dir: hook_config_dir?,
                hook_timeout: hook_timeout?,
                hook_deadline_share: hook_deadline_share?,
                hook_trusted_uid: hook_trusted_uid?,
                backend_wait: backend_wait?,
                max_message_bytes: usize::try_from(max_message_bytes?).ok()?,
                relay_services: relay_services?,
                state_dir: state_dir?,
                shutdown_grace: shutdown_grace?,
                handover_drain: handover_drain?,
                admin_socket: admin_socket?,
                metrics_bind_address: metrics_bind_address?,
                verbosity: u8::try_from(verbosity?).ok()?,
                log_format: log_format?,
                qos: qos?,
                usage: usage?,
            })
        })();
        match config {
            Some(config) if checker.mistakes.is_empty() => Ok(config),
            _ => Err(checker.mistakes),
        }
    }

    /// The configuration in force, by flag name, for introspection.
    pub fn to_json(&self) -> serde_json::Value {
        let text = |endpoint: &Option<Endpoint>| endpoint.as_ref().map(Endpoint::as_str).map(str::to_owned);
        let values = [
            (table::LISTEN, json!(self.listen.as_str())),
            (table::RUNTIME, json!(self.runtime.as_str())),
            (table::IMAGE, json!(text(&self.image).unwrap_or_default())),
            (table::MODE, json!(table::MODE.default)),
            (table::SOCKET_MODE, json!(self.socket_mode.to_string())),
            (table::PEER_CHECK, json!(self.peer_check.as_str())),
            (table::SKIP_KEY, json!(self.skip_label.key)),
            (table::SKIP_VALUE, json!(self.skip_label.value)),
            (table::SKIP_NAMESPACES, json!(self.skip_label.namespaces.join(","))),
            (table::HOOK_CONFIG_DIR, json!(self.hook_config_dir)),
            (table::HOOK_TIMEOUT, json!(format_go_duration(self.hook_timeout))),
            (table::HOOK_DEADLINE_SHARE, json!(self.hook_deadline_share)),
            (table::HOOK_TRUSTED_UID, json!(self.hook_trusted_uid)),
            (table::BACKEND_WAIT, json!(format_go_duration(self.backend_wait))),
            (table::MAX_MESSAGE_BYTES, json!(self.max_message_bytes)),
            (table::RELAY_SERVICES, json!(self.relay_services.to_string())),
            (table::STATE_DIR, json!(self.state_dir.clone().unwrap_or_default())),
            (table::SHUTDOWN_GRACE, json!(format_go_duration(self.shutdown_grace))),
            (table::HANDOVER_DRAIN, json!(format_go_duration(self.handover_drain))),
            (table::ADMIN_SOCKET, json!(text(&self.admin_socket).unwrap_or_default())),
            (
                table::METRICS_BIND_ADDRESS,
                json!(self.metrics_bind_address.map(|address| address.to_string()).unwrap_or_default()),
            ),
            (table::VERBOSITY, json!(self.verbosity)),
            (table::LOG_FORMAT, json!(self.log_format.as_str())),
        ];
        values
            .into_iter()
            .chain(self.qos.values())
            .chain(self.usage.values())
            .map(|(flag, value)| (flag.name.to_owned(), value))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    text.parse().map_err(|error: crate::endpoint::EndpointError| error.to_string())
}

pub(super) fn optional<T>(
    read: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<Option<T>, String> {
    move |text| if text.is_empty() { Ok(None) } else { read(text).map(Some) }
}

fn backend_mode(text: &str) -> Result<(), &'static str> {
    match text {
        "Containerd" => Ok(()),
        "Docker" => Err("Docker mode is not available in this version"),
        _ => Err("no such mode; the names are case-sensitive"),
    }
}

fn socket_mode(text: &str) -> Result<SocketMode, &'static str> {
    if text == "inherit" {
        return Ok(SocketMode::Inherit);
    }
    let digits = text.strip_prefix("0o").unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not an octal number");
    }
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 => Ok(SocketMode::Octal(mode)),
        Ok(_) => Err("out of range"),
        Err(_) => Err("not an octal number"),
    }
}

pub(super) fn one_of<T: Copy + 'static>(
    choices: &'static [T],
    word: impl Fn(T) -> &'static str,
) -> impl Fn(&str) -> Result<T, &'static str> {
    move |text| choices.iter().copied().find(|choice| word(*choice) == text).ok_or("no such choice")
}

fn any_text(text: &str) -> Result<String, &'static str> {
    Ok(text.to_owned())
}

fn namespaces(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|name| {
            let name = name.trim();
            let letters = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            if name.is_empty() || name.len() > 63 || !letters || name.starts_with('-') || name.ends_with('-')
            {
                Err(format!("{name:?} is not a namespace name"))
            } else {
                Ok(name.to_owned())
            }
        })
        .collect()
}

pub(super) fn directory(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if text.contains('\0') {
        return Err("contains a NUL byte".to_owned());
    }
    if !path.is_absolute() {
        return Err("not an absolute path".to_owned());
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("contains ..".to_owned());
    }
    // Collecting the components drops duplicate and trailing slashes.
    let path: PathBuf = path.components().collect();
    if path == Path::new("/") { Err("is the root directory".to_owned()) } else { Ok(path) }
}

pub(super) fn duration_within(least: Duration, most: Duration) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| {
        let duration = parse_go_duration(text).map_err(|error| error.to_string())?;
        if (least..=most).contains(&duration) { Ok(duration) } else { Err("out of range".to_owned()) }
    }
}

fn number_within(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, &'static str> {
    move |text| {
        let number: u64 = text.parse().map_err(|_error| "not a whole number in range")?;
        if (least..=most).contains(&number) { Ok(number) } else { Err("out of range") }
    }
}

fn share(text: &str) -> Result<f64, &'static str> {
    let share: f64 = text.parse().map_err(|_error| "not a number")?;
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err("out of range") }
}

fn user(text: &str) -> Result<u32, String> {
    // The last id is the one that means "no change" to the kernel.
    match text.parse() {
        Ok(u32::MAX) => Err("out of range".to_owned()),
        Ok(user) => Ok(user),
        Err(_) => Err("not a user id".to_owned()),
    }
}

fn relay_services(text: &str) -> Result<RelayServices, String> {
    if text == "*" {
        return Ok(RelayServices::All);
    }
    let part = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    text.split(',')
        .map(|name| {
            let name = name.trim();
            if name.split('.').all(part) {
                Ok(name.to_owned())
            } else {
                Err(format!("{name:?} is not a gRPC package or service"))
            }
        })
        .collect::<Result<_, _>>()
        .map(RelayServices::Listed)
}

fn tcp_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().map_err(|_error| "not a port number".to_owned())?;
        return Ok(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
    }
    text.parse().map_err(|_error| "not an IP address with a port".to_owned())
}
