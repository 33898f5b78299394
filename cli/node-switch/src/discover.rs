//! How the kubelet of this node is configured: which files and flags set its endpoint, and which of them wins.
//!
//! Precedence is the kubelet's: a flag over the drop-in directory (`--config-dir`, last name wins) over the
//! configuration file (`--config`) over the default, which exists from 1.27 on.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::endpoint::{Endpoint, KUBELET_DEFAULT, Kind};
use crate::flags;
use crate::system::{Files, NodeAccess, Process};
use crate::unit::{Located, Unit};
use crate::yaml;

/// The flag of the endpoint.
pub const RUNTIME_FLAG: &str = "container-runtime-endpoint";
/// The flag of the image service's endpoint; empty is the runtime's.
pub const IMAGE_FLAG: &str = "image-service-endpoint";
/// The key of the endpoint in a KubeletConfiguration, from 1.27 on.
pub const RUNTIME_KEY: &str = "containerRuntimeEndpoint";
/// The key of the image service's endpoint.
pub const IMAGE_KEY: &str = "imageServiceEndpoint";
/// Flags that kubeadm writes, and writes again at an upgrade.
pub const KUBEADM_FLAGS: &str = "/var/lib/kubelet/kubeadm-flags.env";
/// What newer releases of kubeadm put over the cluster's configuration at an upgrade.
pub const INSTANCE_CONFIGURATION: &str = "/var/lib/kubelet/instance-config.yaml";

/// A release of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Such as 1.
    pub major: u32,
    /// Such as 34.
    pub minor: u32,
}

impl Version {
    /// The first release that takes the endpoint from its configuration file, has a default for it, and does not know
    /// `--container-runtime`.
    pub const ENDPOINT_IN_FILE: Version = Version { major: 1, minor: 27 };
    /// The first release without a runtime of its own (dockershim).
    pub const REMOTE_ONLY: Version = Version { major: 1, minor: 24 };
    /// The oldest release that is supported.
    pub const OLDEST: Version = Version { major: 1, minor: 20 };

    /// Reads what `kubelet --version`, or `k3s --version`, says.
    pub fn parse(text: &str) -> Option<Version> {
        text.split_whitespace().find_map(|word| {
            let mut parts = word.strip_prefix('v')?.split('.');
            let major = parts.next()?.parse().ok()?;
            let minor = parts.next()?.parse().ok()?;
            Some(Version { major, minor })
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// Programs that are, or contain, a kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// The kubelet itself.
    Kubelet,
    /// k3s or rke2, which contain one. The text is the name of the folder in `/etc/rancher`.
    Rancher(&'static str),
}

/// Units that run a kubelet, by how likely they are.
const UNITS: [(&str, Flavor); 5] = [
    ("kubelet.service", Flavor::Kubelet),
    ("k3s-agent.service", Flavor::Rancher("k3s")),
    ("k3s.service", Flavor::Rancher("k3s")),
    ("rke2-agent.service", Flavor::Rancher("rke2")),
    ("rke2-server.service", Flavor::Rancher("rke2")),
];

/// What an endpoint is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The runtime service, and images too unless they have one of their own.
    Runtime,
    /// The image service.
    Image,
}

/// How a place sets an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaceKind {
    /// A flag in `ExecStart=` or `Environment=` of a unit file or drop-in.
    Unit,
    /// A flag in an environment file.
    Environment,
    /// A key of the configuration file.
    Configuration,
    /// A key of a file in the drop-in directory.
    DropIn,
    /// A key of [`INSTANCE_CONFIGURATION`].
    Instance,
    /// The key `container-runtime-endpoint` of k3s' configuration: a runtime that k3s does not start itself.
    RancherRuntime,
    /// An item of the key `kubelet-arg` of k3s' configuration.
    RancherArgument,
}

/// A place that sets an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// How.
    pub kind: PlaceKind,
    /// Which.
    pub purpose: Purpose,
    /// To what.
    pub endpoint: Endpoint,
}

/// How the kubelet of this node is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// What runs it.
    pub flavor: Flavor,
    /// Its unit; none if it runs without.
    pub unit: Option<Unit>,
    /// The running kubelet; none if it does not run, or cannot be told from another program.
    pub process: Option<Process>,
    /// The program's path.
    pub program: Option<PathBuf>,
    /// Arguments that the next start will have.
    pub arguments: Vec<String>,
    /// `--config`.
    pub configuration: Option<PathBuf>,
    /// `--config-dir`.
    pub configuration_directory: Option<PathBuf>,
    /// How its Node object can be asked for.
    pub node: Option<NodeAccess>,
    /// `ADDRESS:PORT` of its health check; none if that is switched off.
    pub health: Option<String>,
    /// `cgroupDriver` of its configuration.
    pub cgroup_driver: Option<String>,
    /// Places that set endpoints, in force or not.
    pub places: Vec<Place>,
    /// The endpoint that the next start will have.
    pub endpoint: Option<Endpoint>,
    /// Where that is said; `None` if nowhere, so that it is a default.
    pub set_by: Option<PathBuf>,
    /// The endpoint in the arguments of the running process.
    pub running: Option<Endpoint>,
    /// What cannot be understood, one sentence each.
    pub mistakes: Vec<String>,
}

impl Discovery {
    /// Name of the unit.
    pub fn unit_name(&self) -> Option<&str> {
        self.unit.as_ref().map(|unit| unit.name.as_str())
    }

    /// The first place that sets the endpoint to something of ours.
    pub fn is_through_proxy(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| endpoint.kind() == Kind::Proxy)
    }

    /// Whether k3s starts the runtime itself.
    pub fn is_embedded(&self) -> bool {
        matches!(self.flavor, Flavor::Rancher(_))
            && !self.places.iter().any(|place| place.kind == PlaceKind::RancherRuntime)
            && flags::value(&self.arguments, RUNTIME_FLAG).is_none()
    }
}

/// Looks at files and processes. `wanted` is the name of the kubelet's unit, if it is told.
///
/// # Errors
/// A file that matters cannot be read.
pub fn discover(
    files: &dyn Files,
    processes: &[Process],
    host_name: &str,
    wanted: Option<&str>,
) -> io::Result<Discovery> {
    let (flavor, unit) = find_unit(files, wanted)?;
    let process = processes.iter().find(|process| is_kubelet(process, flavor)).cloned();
    let (arguments, mut places) = match &unit {
        Some(unit) => (unit.arguments(&unit.variables(files)?), unit_places(files, unit)?),
        None => (process.as_ref().map(|process| process.arguments.clone()).unwrap_or_default(), Vec::new()),
    };
    let path_of =
        |name: &str| flags::value(&arguments, name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut found = Discovery {
        flavor,
        program: arguments.first().map(PathBuf::from),
        configuration: path_of("config").filter(|_| flavor == Flavor::Kubelet),
        configuration_directory: path_of("config-dir").filter(|_| flavor == Flavor::Kubelet),
        running: process
            .as_ref()
            .and_then(|process| flags::value(&process.arguments, RUNTIME_FLAG))
            .and_then(Endpoint::parse),
        process,
        node: None,
        health: None,
        cgroup_driver: None,
        endpoint: None,
        set_by: None,
        mistakes: Vec::new(),
        places: Vec::new(),
        unit,
        arguments,
    };
    match flavor {
        Flavor::Kubelet => kubelet(files, &mut found, host_name, &mut places)?,
        Flavor::Rancher(folder) => rancher(files, &mut found, host_name, folder, &mut places)?,
    }
    found.places = places;
    Ok(found)
}

fn find_unit(files: &dyn Files, wanted: Option<&str>) -> io::Result<(Flavor, Option<Unit>)> {
    if let Some(name) = wanted {
        let flavor =
            UNITS.iter().find(|(unit, _)| *unit == name).map_or(Flavor::Kubelet, |(_, flavor)| *flavor);
        return Ok((flavor, Unit::load(files, name)?));
    }
    for (name, flavor) in UNITS {
        if let Some(unit) = Unit::load(files, name)? {
            return Ok((flavor, Some(unit)));
        }
    }
    Ok((Flavor::Kubelet, None))
}

fn is_kubelet(process: &Process, flavor: Flavor) -> bool {
    let program = process.arguments.first().map(String::as_str).unwrap_or_default();
    // k3s writes its name and command into the first argument.
    let mut words = program.split(' ');
    let file = words.next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    match flavor {
        Flavor::Kubelet => file == "kubelet",
        Flavor::Rancher(name) => file == name,
    }
}

/// Flags in the unit's files and environment files.
fn unit_places(files: &dyn Files, unit: &Unit) -> io::Result<Vec<Place>> {
    let mut places = Vec::new();
    for Located { file, value, .. } in unit.environment.iter().chain(&unit.command) {
        flag_places(file, value, PlaceKind::Unit, &mut places);
    }
    for path in unit.environment_paths() {
        if let Some(file) = files.read(&path)? {
            flag_places(&path, &file.text, PlaceKind::Environment, &mut places);
        }
    }
    Ok(places)
}

fn flag_places(file: &Path, text: &str, kind: PlaceKind, places: &mut Vec<Place>) {
    for (flag, purpose) in [(RUNTIME_FLAG, Purpose::Runtime), (IMAGE_FLAG, Purpose::Image)] {
        for span in flags::spans(text, flag) {
            if let Some(endpoint) = text.get(span).and_then(Endpoint::parse) {
                places.push(Place { file: file.to_owned(), kind: kind.clone(), purpose, endpoint });
            }
        }
    }
}

fn kubelet(
    files: &dyn Files,
    found: &mut Discovery,
    host_name: &str,
    places: &mut Vec<Place>,
) -> io::Result<()> {
    // Kubeadm's flags count even where the unit does not use them.
    let flags_file = Path::new(KUBEADM_FLAGS);
    let is_known =
        found.unit.as_ref().is_some_and(|unit| unit.environment_paths().iter().any(|p| p == flags_file));
    if let Some(file) = files.read(flags_file)?.filter(|_| !is_known) {
        flag_places(flags_file, &file.text, PlaceKind::Environment, places);
    }
    // Base first, then what goes over it.
    let mut merged: Map<String, Value> = Map::new();
    let mut set_by = None;
    let mut layers: Vec<(PathBuf, PlaceKind)> = Vec::new();
    layers.extend(found.configuration.clone().map(|path| (path, PlaceKind::Configuration)));
    if let Some(directory) = &found.configuration_directory {
        drop_ins(files, directory, DEEPEST, &mut layers)?;
    }
    for (path, kind) in layers {
        let Some(file) = files.read(&path)? else {
            found.mistakes.push(format!("{}: the kubelet's configuration is not there", path.display()));
            continue;
        };
        let map = match yaml::mapping(&file.text) {
            Ok(map) => map,
            Err(error) => {
                found.mistakes.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        if key_places(&path, &map, &kind, places) {
            set_by = Some(path);
        }
        // As a merge patch: null takes a key away.
        for (key, value) in map {
            if value.is_null() {
                if key == RUNTIME_KEY {
                    set_by = None;
                }
                merged.remove(&key);
            } else {
                merged.insert(key, value);
            }
        }
    }
    let instance = Path::new(INSTANCE_CONFIGURATION);
    if let Some(file) = files.read(instance)? {
        match yaml::mapping(&file.text) {
            Ok(map) => {
                key_places(instance, &map, &PlaceKind::Instance, places);
            }
            Err(error) => found.mistakes.push(format!("{INSTANCE_CONFIGURATION}: {error}")),
        }
    }
    let text = |key: &str| match merged.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let flag = |name: &str| flags::value(&found.arguments, name).filter(|value| !value.is_empty());
    let port = flag("healthz-port").map(str::to_owned).or_else(|| text("healthzPort"));
    let address = flag("healthz-bind-address").map(str::to_owned).or_else(|| text("healthzBindAddress"));
    found.health = health(address.as_deref(), port.as_deref());
    found.cgroup_driver = flag("cgroup-driver").map(str::to_owned).or_else(|| text("cgroupDriver"));
    found.node = flag("kubeconfig").map(|path| NodeAccess {
        kubeconfig: path.into(),
        name: flag("hostname-override").unwrap_or(host_name).to_lowercase(),
    });
    let from_flag = flag(RUNTIME_FLAG).map(str::to_owned);
    let (value, is_flag) = match from_flag {
        Some(value) => (Some(value), true),
        None => (text(RUNTIME_KEY), false),
    };
    match value {
        Some(value) => match Endpoint::parse(&value) {
            Some(endpoint) => {
                found.set_by = if is_flag { flag_place(&endpoint, places) } else { set_by };
                if is_flag && found.set_by.is_none() {
                    found.mistakes.push(format!(
                        "--{RUNTIME_FLAG}={value} of the kubelet comes from no unit file, drop-in or environment file of \
                         its unit; write it into one"
                    ));
                }
                found.endpoint = Some(endpoint);
            }
            None => found.mistakes.push(format!("the kubelet's endpoint {value:?} is no unix socket")),
        },
        None => found.endpoint = Endpoint::parse(KUBELET_DEFAULT),
    }
    Ok(())
}

/// Directories below the drop-in directory that are looked into.
const DEEPEST: u32 = 8;

/// Files of the drop-in directory and of directories in it, in the order of their names, as the kubelet reads them.
fn drop_ins(
    files: &dyn Files,
    directory: &Path,
    depth: u32,
    layers: &mut Vec<(PathBuf, PlaceKind)>,
) -> io::Result<()> {
    for name in files.list(directory)? {
        let path = directory.join(&name);
        if depth > 0 && !files.list(&path)?.is_empty() {
            drop_ins(files, &path, depth - 1, layers)?;
        } else if name.ends_with(".conf") && files.read(&path)?.is_some() {
            layers.push((path, PlaceKind::DropIn));
        }
    }
    Ok(())
}

/// The last place of a flag with this endpoint.
fn flag_place(endpoint: &Endpoint, places: &[Place]) -> Option<PathBuf> {
    places
        .iter()
        .rev()
        .find(|place| {
            matches!(place.kind, PlaceKind::Unit | PlaceKind::Environment)
                && place.purpose == Purpose::Runtime
                && place.endpoint == *endpoint
        })
        .map(|place| place.file.clone())
}

/// Whether the runtime's endpoint is set.
fn key_places(file: &Path, map: &Map<String, Value>, kind: &PlaceKind, places: &mut Vec<Place>) -> bool {
    let mut is_set = false;
    for (key, purpose) in [(RUNTIME_KEY, Purpose::Runtime), (IMAGE_KEY, Purpose::Image)] {
        if let Some(endpoint) = map.get(key).and_then(Value::as_str).and_then(Endpoint::parse) {
            is_set |= purpose == Purpose::Runtime;
            places.push(Place { file: file.to_owned(), kind: kind.clone(), purpose, endpoint });
        }
    }
    is_set
}

fn health(address: Option<&str>, port: Option<&str>) -> Option<String> {
    let port = port.unwrap_or("10248");
    if port == "0" {
        return None;
    }
    Some(match address.unwrap_or("127.0.0.1") {
        "0.0.0.0" => format!("127.0.0.1:{port}"),
        "::" => format!("[::1]:{port}"),
        address if address.contains(':') => format!("[{address}]:{port}"),
        address => format!("{address}:{port}"),
    })
}

/// The drop-in of k3s' configuration that is ours.
pub fn rancher_drop_in(folder: &str) -> PathBuf {
    PathBuf::from(format!("/etc/rancher/{folder}/config.yaml.d/90-koord-runtime-proxy.yaml"))
}

fn rancher(
    files: &dyn Files,
    found: &mut Discovery,
    host_name: &str,
    folder: &str,
    places: &mut Vec<Place>,
) -> io::Result<()> {
    let flag = |name: &str| flags::value(&found.arguments, name).filter(|value| !value.is_empty());
    let main = flag("config")
        .map_or_else(|| PathBuf::from(format!("/etc/rancher/{folder}/config.yaml")), PathBuf::from);
    let mut layers = vec![main.clone()];
    let directory = PathBuf::from(format!("{}.d", main.display()));
    for name in files.list(&directory)?.into_iter().filter(|name| name.ends_with(".yaml")) {
        layers.push(directory.join(name));
    }
    let (mut external, mut argument) = (None, None);
    let mut node_name = flag("node-name").map(str::to_owned);
    let mut data = flag("data-dir").map(str::to_owned);
    let mut docker = found.arguments.iter().any(|word| word == "--docker");
    for path in layers {
        let Some(file) = files.read(&path)? else { continue };
        let map = match yaml::mapping(&file.text) {
            Ok(map) => map,
            Err(error) => {
                found.mistakes.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
        node_name = node_name.or_else(|| text("node-name"));
        data = data.or_else(|| text("data-dir"));
        docker |= map.get("docker") == Some(&Value::Bool(true));
        if let Some(endpoint) = text(RUNTIME_FLAG).as_deref().and_then(Endpoint::parse) {
            let place = Place {
                file: path.clone(),
                kind: PlaceKind::RancherRuntime,
                purpose: Purpose::Runtime,
                endpoint: endpoint.clone(),
            };
            places.push(place);
            external = Some((endpoint, path.clone()));
        }
        for endpoint in argument_endpoints(&map) {
            let place = Place {
                file: path.clone(),
                kind: PlaceKind::RancherArgument,
                purpose: Purpose::Runtime,
                endpoint: endpoint.clone(),
            };
            places.push(place);
            argument = Some((endpoint, path.clone()));
        }
    }
    if docker {
        found
            .mistakes
            .push(format!("{folder} runs containers with its own adapter of Docker; that is not supported"));
    }
    let from_flag = flag(RUNTIME_FLAG)
        .and_then(Endpoint::parse)
        .map(|endpoint| (flag_place(&endpoint, places).unwrap_or_default(), endpoint))
        .map(|(path, endpoint)| (endpoint, path));
    let data = data.unwrap_or_else(|| format!("/var/lib/rancher/{folder}"));
    found.node = Some(NodeAccess {
        kubeconfig: PathBuf::from(data).join("agent/kubelet.kubeconfig"),
        name: node_name.unwrap_or_else(|| host_name.to_owned()).to_lowercase(),
    });
    found.health = health(None, None);
    match argument.or(from_flag).or(external) {
        Some((endpoint, path)) => {
            found.endpoint = Some(endpoint);
            found.set_by = Some(path);
        }
        // Both put their own containerd there.
        None => found.endpoint = Endpoint::parse("/run/k3s/containerd/containerd.sock"),
    }
    Ok(())
}

/// Endpoints among the kubelet's arguments in k3s' configuration.
fn argument_endpoints(map: &Map<String, Value>) -> Vec<Endpoint> {
    let mut found = Vec::new();
    for key in ["kubelet-arg", "kubelet-arg+"] {
        let items = match map.get(key) {
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(item)) => vec![item.as_str()],
            _ => Vec::new(),
        };
        for item in items {
            let item = item.strip_prefix("--").unwrap_or(item);
            let value = item.strip_prefix(RUNTIME_FLAG).and_then(|rest| rest.strip_prefix('='));
            found.extend(value.and_then(Endpoint::parse));
        }
    }
    found
}

#[cfg(test)]
mod tests;
