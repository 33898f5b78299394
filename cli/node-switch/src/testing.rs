//! A node in memory: files, systemd, a kubelet, a runtime and a proxy, played. It can die after any of its changes, and
//! after each change it is asked whether it would work on.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::discover::discover;
use crate::endpoint::Endpoint;
use crate::plan::{
    PROXY_FLAGS_FILE, PROXY_FLAGS_VARIABLE, PROXY_PROGRAM, PROXY_SERVICE_UNIT, PROXY_SOCKET_UNIT,
    variable_words,
};
use crate::system::{
    CommandResult, FileState, Files, NodeAccess, NodeView, Process, Room, RuntimeVersion, System, temporary,
};
use crate::{flags, unit};

/// Files in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemoryFiles(pub(crate) BTreeMap<PathBuf, FileState>);

impl MemoryFiles {
    pub(crate) fn of(files: &[(&str, &str)]) -> MemoryFiles {
        MemoryFiles(files.iter().map(|(path, text)| (PathBuf::from(path), FileState::new(*text))).collect())
    }
}

impl Files for MemoryFiles {
    fn read(&self, path: &Path) -> io::Result<Option<FileState>> {
        Ok(self.0.get(path).cloned())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let name = |path: &PathBuf| {
            let rest = path.strip_prefix(directory).ok()?;
            rest.components().next()?.as_os_str().to_str().map(str::to_owned)
        };
        Ok(self.0.keys().filter_map(name).collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.keys().any(|file| file.starts_with(path))
    }
}

/// A unit of the played systemd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PlayedUnit {
    pub(crate) is_active: bool,
    pub(crate) is_enabled: bool,
    pub(crate) pid: u32,
    pub(crate) restarts: u32,
}

/// Everything that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) files: MemoryFiles,
    pub(crate) directories: BTreeSet<PathBuf>,
    pub(crate) units: BTreeMap<String, PlayedUnit>,
    pub(crate) sockets: BTreeSet<PathBuf>,
    /// Endpoint of the running kubelet.
    pub(crate) kubelet: Option<Endpoint>,
    /// Where the running proxy listens, and what it passes calls to.
    pub(crate) proxy: Option<(Endpoint, Endpoint)>,
    pub(crate) mode: &'static str,
    /// Containers have values of the proxy.
    pub(crate) has_values: bool,
    pub(crate) node: Option<NodeView>,
    next_pid: u32,
}

/// What is the same if nothing has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    files: BTreeMap<PathBuf, FileState>,
    directories: BTreeSet<PathBuf>,
    units: Vec<(String, bool, bool)>,
    sockets: BTreeSet<PathBuf>,
    kubelet: Option<Endpoint>,
    proxy: Option<(Endpoint, Endpoint)>,
    has_values: bool,
    annotation: Option<String>,
}

/// A played node.
#[derive(Debug, Clone)]
pub(crate) struct PlayedNode {
    pub(crate) world: RefCell<World>,
    pub(crate) kubelet_unit: String,
    pub(crate) runtime: Endpoint,
    pub(crate) version: &'static str,
    /// Calls that changed something, in their order.
    pub(crate) changes: RefCell<Vec<String>>,
    /// The process dies after so many changes.
    pub(crate) dies_after: Cell<Option<usize>>,
    is_dead: Cell<bool>,
    clock: Cell<Duration>,
    /// The kubelet does not come up behind the proxy.
    pub(crate) kubelet_fails: Cell<bool>,
    /// The proxy does not become ready.
    pub(crate) proxy_fails: Cell<bool>,
    pub(crate) validate_says: RefCell<CommandResult>,
    pub(crate) free_bytes: Cell<u64>,
    pub(crate) is_root: Cell<bool>,
    /// After each change it is asked whether the kubelet reaches its runtime.
    pub(crate) is_watched: Cell<bool>,
}

impl PlayedNode {
    /// A node with these files, whose kubelet runs.
    pub(crate) fn start(
        files: &[(&str, &str)],
        kubelet_unit: &str,
        runtime: &str,
        version: &'static str,
        node: Option<NodeView>,
    ) -> PlayedNode {
        let mut files = MemoryFiles::of(files);
        files.0.insert(PROXY_PROGRAM.into(), FileState { mode: 0o755, ..FileState::new("program") });
        for unit in [PROXY_SOCKET_UNIT, PROXY_SERVICE_UNIT] {
            let path = Path::new("/usr/lib/systemd/system").join(unit);
            files.0.insert(path, FileState::new("[Service]\nExecStart=/usr/bin/koord-runtime-proxy\n"));
        }
        files.0.insert("/run/systemd/system/x".into(), FileState::new(""));
        if node.is_some() {
            files.0.insert("/etc/kubernetes/kubelet.conf".into(), FileState::new("x"));
        }
        let mut directories: BTreeSet<PathBuf> =
            ["/var/lib", "/etc/systemd/system", "/etc/default"].map(PathBuf::from).into();
        directories.extend(files.0.keys().flat_map(|path| path.ancestors().skip(1).map(Path::to_owned)));
        for path in directories.clone() {
            directories.extend(path.ancestors().map(Path::to_owned));
        }
        let runtime = Endpoint::parse(runtime).unwrap();
        let units = [kubelet_unit, PROXY_SOCKET_UNIT, PROXY_SERVICE_UNIT]
            .map(|name| (name.to_owned(), PlayedUnit::default()));
        let world = World {
            files,
            directories,
            units: units.into(),
            sockets: [runtime.path().to_owned()].into(),
            kubelet: None,
            proxy: None,
            mode: "enforce",
            has_values: false,
            node,
            next_pid: 100,
        };
        let played = PlayedNode {
            world: RefCell::new(world),
            kubelet_unit: kubelet_unit.to_owned(),
            runtime,
            version,
            changes: RefCell::default(),
            dies_after: Cell::new(None),
            is_dead: Cell::new(false),
            clock: Cell::default(),
            kubelet_fails: Cell::new(false),
            proxy_fails: Cell::new(false),
            validate_says: RefCell::new(CommandResult { code: Some(0), ..CommandResult::default() }),
            free_bytes: Cell::new(1 << 30),
            is_root: Cell::new(true),
            is_watched: Cell::new(true),
        };
        played.world.borrow_mut().units.get_mut(kubelet_unit).unwrap().is_enabled = true;
        played.start_kubelet();
        assert_eq!(played.world.borrow().kubelet.as_ref(), Some(&played.runtime));
        played
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let world = self.world.borrow();
        let mut files = world.files.0.clone();
        // Its text says how the switch came about, too.
        if let Some(file) = files.get_mut(Path::new(crate::journal::JOURNAL_FILE)) {
            file.text.clear();
        }
        Snapshot {
            files,
            directories: world.directories.clone(),
            units: world.units.iter().map(|(name, u)| (name.clone(), u.is_active, u.is_enabled)).collect(),
            sockets: world.sockets.clone(),
            kubelet: world.kubelet.clone(),
            proxy: world.proxy.clone(),
            has_values: world.has_values,
            annotation: world.node.as_ref().and_then(|node| node.cri_socket.clone()),
        }
    }

    /// The process is started anew.
    pub(crate) fn revive(&self, dies_after: Option<usize>) {
        self.is_dead.set(false);
        self.changes.borrow_mut().clear();
        self.dies_after.set(dies_after);
    }

    pub(crate) fn was_killed(&self) -> bool {
        self.is_dead.get()
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let mut world = self.world.borrow_mut();
        let file =
            world.files.0.get(Path::new(path)).map_or_else(|| FileState::new(text), |f| f.with_text(text));
        world.files.0.insert(path.into(), file);
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.world.borrow().files.0.get(Path::new(path)).map(|file| file.text.clone())
    }

    fn alive(world: &World, runtime: &Endpoint, endpoint: &Endpoint) -> bool {
        endpoint.is_same(runtime)
            || world
                .proxy
                .as_ref()
                .is_some_and(|(listen, backend)| listen.is_same(endpoint) && backend.is_same(runtime))
    }

    fn configured(world: &World) -> Option<Endpoint> {
        discover(&world.files, &[], "node-1", None).unwrap().endpoint
    }

    fn start_kubelet(&self) {
        let mut world = self.world.borrow_mut();
        let endpoint = PlayedNode::configured(&world);
        let works = endpoint.as_ref().is_some_and(|endpoint| {
            let through_proxy = !endpoint.is_same(&self.runtime);
            PlayedNode::alive(&world, &self.runtime, endpoint) && !(through_proxy && self.kubelet_fails.get())
        });
        world.next_pid += 1;
        let pid = world.next_pid;
        world.kubelet = endpoint.filter(|_| works);
        if works && world.kubelet.as_ref() != Some(&self.runtime) {
            world.has_values = true;
        }
        let unit = world.units.get_mut(&self.kubelet_unit).unwrap();
        *unit =
            PlayedUnit { is_active: works, pid: if works { pid } else { 0 }, restarts: 0, ..unit.clone() };
        let seconds = self.seconds();
        if let Some(node) = &mut world.node {
            node.is_ready = works;
            node.ready_heartbeat = Some(seconds);
        }
    }

    /// What a start of the proxy would give: where it listens and what it passes calls to. Socket unit and flags must agree.
    fn proxy_of(files: &MemoryFiles) -> Option<(Endpoint, Endpoint)> {
        let text =
            files.0.get(Path::new(PROXY_FLAGS_FILE)).map(|file| file.text.as_str()).unwrap_or_default();
        let words = variable_words(text, PROXY_FLAGS_VARIABLE);
        let flag = |name: &str, default: &str| {
            Endpoint::parse(flags::value(&words, name).unwrap_or(default)).unwrap()
        };
        let listen = flag("koord-runtimeproxy-endpoint", "/run/koord-runtimeproxy/runtimeproxy.sock");
        let backend = flag("remote-runtime-service-endpoint", "/run/containerd/containerd.sock");
        let mut stream = "/run/koord-runtimeproxy/runtimeproxy.sock".to_owned();
        for path in unit::drop_ins(files, PROXY_SOCKET_UNIT).unwrap() {
            for setting in unit::settings(&files.0[&path].text) {
                if setting.key == "ListenStream" && !setting.value.is_empty() {
                    stream = setting.value;
                }
            }
        }
        (stream == listen.as_str()).then_some((listen, backend))
    }

    /// Whatever happens now, the kubelet reaches its runtime.
    fn assert_works(&self, after: &str) {
        if !self.is_watched.get() {
            return;
        }
        let world = self.world.borrow();
        let killed = "if the switch were killed";
        if let Some(endpoint) = &world.kubelet {
            assert!(
                PlayedNode::alive(&world, &self.runtime, endpoint),
                "{killed} after {after}: {endpoint} is dead"
            );
        }
        let configured = PlayedNode::configured(&world).unwrap();
        assert!(
            PlayedNode::alive(&world, &self.runtime, &configured),
            "{killed} after {after}, a restarted kubelet would use {configured}, which is dead"
        );
        let at_boot =
            [PROXY_SOCKET_UNIT, PROXY_SERVICE_UNIT].iter().all(|name| world.units[*name].is_enabled);
        let booted = PlayedNode::proxy_of(&world.files).filter(|_| at_boot);
        assert!(
            configured.is_same(&self.runtime)
                || booted.is_some_and(
                    |(listen, backend)| listen.is_same(&configured) && backend.is_same(&self.runtime)
                ),
            "{killed} after {after}, a reboot would leave the kubelet without {configured}"
        );
    }

    fn change<T>(&self, what: String, change: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        if self.is_dead.get() {
            return Err(io::Error::other("killed"));
        }
        let result = change(&mut self.world.borrow_mut())?;
        self.assert_works(&what);
        self.changes.borrow_mut().push(what);
        if self.dies_after.get() == Some(self.changes.borrow().len()) {
            self.is_dead.set(true);
            return Err(io::Error::other("killed"));
        }
        Ok(result)
    }

    fn living(&self) -> io::Result<()> {
        if self.is_dead.get() { Err(io::Error::other("killed")) } else { Ok(()) }
    }

    fn start_units(world: &mut World, names: &[&str]) -> bool {
        for name in names {
            let Some(unit) = world.units.get_mut(*name) else { return false };
            unit.is_active = true;
        }
        if names.contains(&PROXY_SERVICE_UNIT) && world.proxy.is_none() {
            world.proxy = PlayedNode::proxy_of(&world.files);
            world.mode = "enforce";
            let Some((listen, _)) = &world.proxy else { return false };
            world.sockets.insert(listen.path().to_owned());
        }
        true
    }
}

impl Files for PlayedNode {
    fn read(&self, path: &Path) -> io::Result<Option<FileState>> {
        self.living()?;
        self.world.borrow().files.read(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.living()?;
        self.world.borrow().files.list(directory)
    }

    fn exists(&self, path: &Path) -> bool {
        let world = self.world.borrow();
        world.files.0.contains_key(path) || world.directories.contains(path) || world.sockets.contains(path)
    }
}

impl System for PlayedNode {
    fn write(&self, path: &Path, state: &FileState) -> io::Result<()> {
        let new = temporary(path);
        self.change(format!("begin {}", path.display()), |world| {
            world.directories.extend(path.ancestors().skip(1).map(Path::to_owned));
            world.files.0.insert(new.clone(), state.clone());
            Ok(())
        })?;
        self.change(format!("write {}", path.display()), |world| {
            world.files.0.remove(&new);
            world.files.0.insert(path.to_owned(), state.clone());
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(format!("remove {}", path.display()), |world| {
            world.files.0.remove(path);
            world.sockets.remove(path);
            Ok(())
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.change(format!("remove directory {}", path.display()), |world| {
            let is_empty = !world.files.exists(path)
                && !world.directories.iter().any(|other| other != path && other.starts_with(path));
            if is_empty {
                world.directories.remove(path);
            }
            Ok(())
        })
    }

    fn room(&self, _path: &Path) -> io::Result<Room> {
        Ok(Room { free_bytes: self.free_bytes.get(), is_read_only: false })
    }

    fn processes(&self) -> Vec<Process> {
        Vec::new()
    }

    fn ask(&self, command: &[&str], _limit: Duration) -> io::Result<CommandResult> {
        self.living()?;
        let output = match command {
            ["systemctl", "show", _, name] => {
                let mut world = self.world.borrow_mut();
                let kubelet = *name == self.kubelet_unit;
                match world.units.get_mut(*name) {
                    None => "LoadState=not-found\nActiveState=inactive\n".to_owned(),
                    Some(unit) => {
                        let mut active = if unit.is_active { "active" } else { "inactive" };
                        if kubelet && !unit.is_active && unit.is_enabled {
                            active = "activating";
                            unit.restarts += 1;
                        }
                        let file = if unit.is_enabled { "enabled" } else { "disabled" };
                        format!(
                            "LoadState=loaded\nActiveState={active}\nUnitFileState={file}\nMainPID={}\nNRestarts={}\n",
                            unit.pid, unit.restarts
                        )
                    }
                }
            }
            ["journalctl", ..] => "last words\n".to_owned(),
            [_, "--version"] => self.version.to_owned(),
            [PROXY_PROGRAM, "validate", ..] => return Ok(self.validate_says.borrow().clone()),
            other => panic!("not played: {other:?}"),
        };
        Ok(CommandResult { code: Some(0), output, complaints: String::new() })
    }

    fn run(&self, command: &[&str], _limit: Duration) -> io::Result<CommandResult> {
        let words: Vec<&str> = command.iter().copied().filter(|word| *word != "--no-block").collect();
        let restarts_kubelet = words.as_slice() == ["systemctl", "restart", self.kubelet_unit.as_str()];
        if restarts_kubelet {
            self.living()?;
            self.start_kubelet();
        }
        self.change(command.join(" "), |world| {
            let is_well = match words.as_slice() {
                ["systemctl", "daemon-reload"] => true,
                _ if restarts_kubelet => true,
                ["systemctl", verb @ ("enable" | "disable"), names @ ..] => {
                    for name in names {
                        world.units.get_mut(*name).unwrap().is_enabled = *verb == "enable";
                    }
                    true
                }
                ["systemctl", "start", names @ ..] => PlayedNode::start_units(world, names),
                ["systemctl", "stop", names @ ..] => {
                    for name in names {
                        world.units.get_mut(*name).unwrap().is_active = false;
                    }
                    if names.contains(&PROXY_SERVICE_UNIT) {
                        world.proxy = None;
                    }
                    true
                }
                ["systemctl", "restart", PROXY_SERVICE_UNIT] => {
                    world.proxy = None;
                    PlayedNode::start_units(world, &[PROXY_SERVICE_UNIT])
                }
                other => panic!("not played: {other:?}"),
            };
            Ok(CommandResult { code: Some(i32::from(!is_well)), ..CommandResult::default() })
        })
    }

    fn admin(
        &self,
        method: &str,
        target: &str,
        body: &str,
        _limit: Duration,
    ) -> Result<(u16, String), String> {
        self.living().map_err(|error| error.to_string())?;
        if self.world.borrow().proxy.is_none() {
            return Err("no such file".to_owned());
        }
        match (method, target) {
            ("GET", "/readyz") if self.proxy_fails.get() => Ok((503, "backend_connected: false".to_owned())),
            ("GET", "/readyz") => Ok((200, String::new())),
            ("GET", koord_admin::path::STATUS) => {
                let text = include_str!("../../tests/data/status.json");
                let mut status: serde_json::Value = serde_json::from_str(text).unwrap();
                status["mode"] = self.world.borrow().mode.into();
                Ok((200, status.to_string()))
            }
            ("POST", koord_admin::path::RESTORE) => {
                let answer = r#"{"restored":4,"same":1,"failed":[],"mode":"off"}"#;
                self.change("restore".to_owned(), |world| {
                    world.has_values = false;
                    world.mode = "off";
                    Ok((200, answer.to_owned()))
                })
                .map_err(|error| error.to_string())
            }
            ("POST", koord_admin::path::MODE) => {
                assert_eq!(body, r#"{"mode":"enforce"}"#);
                self.change("mode".to_owned(), |world| {
                    world.mode = "enforce";
                    world.has_values = world.kubelet.as_ref().is_some_and(|e| *e != self.runtime);
                    Ok((200, String::new()))
                })
                .map_err(|error| error.to_string())
            }
            other => panic!("not played: {other:?}"),
        }
    }

    fn runtime_version(&self, socket: &Path, _limit: Duration) -> Result<RuntimeVersion, String> {
        self.living().map_err(|error| error.to_string())?;
        let endpoint = Endpoint::parse(socket.to_str().unwrap()).unwrap();
        if PlayedNode::alive(&self.world.borrow(), &self.runtime, &endpoint) {
            Ok(RuntimeVersion { name: "containerd".to_owned(), version: "v2.4.0".to_owned(), listener: None })
        } else {
            Err("connection refused".to_owned())
        }
    }

    fn http_status(&self, _address: &str, _path: &str, _limit: Duration) -> Result<u16, String> {
        self.living().map_err(|error| error.to_string())?;
        if self.world.borrow().kubelet.is_some() { Ok(200) } else { Err("connection refused".to_owned()) }
    }

    fn node(&self, _access: &NodeAccess, _limit: Duration) -> Result<NodeView, String> {
        self.living().map_err(|error| error.to_string())?;
        self.world.borrow().node.clone().ok_or_else(|| "no server".to_owned())
    }

    fn annotate(&self, _access: &NodeAccess, value: &str, _limit: Duration) -> Result<(), String> {
        self.change(format!("annotate {value}"), |world| {
            world.node.as_mut().unwrap().cri_socket = Some(value.to_owned());
            Ok(())
        })
        .map_err(|error| error.to_string())
    }

    fn host_name(&self) -> String {
        "node-1".to_owned()
    }

    fn is_root(&self) -> bool {
        self.is_root.get()
    }

    fn elapsed(&self) -> Duration {
        self.clock.get()
    }

    fn seconds(&self) -> i64 {
        1_700_000_000 + i64::try_from(self.clock.get().as_secs()).unwrap()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.set(self.clock.get() + duration);
    }
}
