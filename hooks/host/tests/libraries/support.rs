//! What the tests of libraries need: a compiler and a directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_hook::v1alpha1::ContainerResourceHookResponse;
use koord_hooks::chain::{Carrier, Entry};
use koord_hooks::isolated::Children;
use koord_hooks::library::Plugin;
use koord_hooks::metrics::NoMetrics;
use koord_hooks::plugins::Plugins;
use koord_hooks::trust::Trust;
use koord_runtime::supervisor::Supervisor;
use prost::Message;
use tempfile::TempDir;

/// Time that is enough for everything that ends.
pub(crate) const PLENTY: Duration = Duration::from_secs(20);

/// Both ways to run a library.
pub(crate) const MODES: [&str; 2] = ["isolated", "in-process"];

/// A plugin directory and what runs its libraries.
pub(crate) struct Bed {
    pub(crate) directory: TempDir,
    pub(crate) plugins: Arc<Plugins>,
    pub(crate) supervisor: Supervisor,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let hooks = directory.path().join("hooks.d");
        fs::create_dir(&hooks).expect("created");
        fs::set_permissions(&hooks, fs::Permissions::from_mode(0o755)).expect("mode set");
        let supervisor = Supervisor::new(tokio::runtime::Handle::current());
        let children = Arc::new(Children::new(child_program(), supervisor.clone()));
        let plugins = Plugins::new(hooks, Trust::of_this_process(), NoMetrics, supervisor.clone(), children);
        Self { directory, plugins: Arc::new(plugins), supervisor }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.plugins.directory().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
        self.mode(name, 0o644);
    }

    pub(crate) fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("mode set");
    }

    pub(crate) fn settings(&self, stem: &str, text: &str) {
        self.write(&format!("{stem}.json"), text);
    }

    /// Puts a library into the directory under another name, whole.
    pub(crate) fn install(&self, library: &Path, name: &str) {
        let temporary = self.directory.path().join(name);
        fs::copy(library, &temporary).expect("copied");
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)).expect("mode set");
        fs::rename(temporary, self.path(name)).expect("renamed");
    }

    /// Compiles a test library and puts it into the directory.
    pub(crate) fn compiled(&self, source: &str, flags: &[&str], name: &str) {
        let library = compile(self.directory.path(), source, flags, &format!("compiled-{name}"));
        self.install(&library, name);
    }

    pub(crate) fn entry(&self, name: &str) -> Arc<Entry> {
        let table = self.plugins.table();
        let found = table.entries().iter().find(|entry| entry.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {:?}", table.files())).clone()
    }

    pub(crate) fn plugin(&self, name: &str) -> Arc<Plugin> {
        match &self.entry(name).carrier {
            Carrier::Library(plugin) => plugin.clone(),
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(crate) fn error(&self, name: &str) -> String {
        let table = self.plugins.table();
        let report = table.files().iter().find(|report| report.name == name).expect("a report");
        report.error.clone().unwrap_or_else(|| panic!("{name} has no error"))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.plugins.close();
    }
}

/// Compiles a source of the folder `plugins` to a shared object.
pub(crate) fn compile(directory: &Path, source: &str, flags: &[&str], name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = directory.join(name);
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unused-function",
            "-fPIC",
            "-shared",
        ])
        .args(flags)
        .arg("-I")
        .arg(root.join("../sdk/include"))
        .arg("-o")
        .arg(&library)
        .arg(root.join("tests/plugins").join(source))
        .output()
        .expect("cc runs");
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    fs::set_permissions(&library, fs::Permissions::from_mode(0o755)).expect("mode set");
    library
}

/// The program children run.
pub(crate) fn child_program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_koord-hook-child"))
}

/// The example in Rust, which is built as a dependency of the tests, into the folder they are in themselves.
pub(crate) fn example_library() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    test.parent().expect("a folder").join("libkoord_plugin_example.so")
}

/// The pod's cgroup parent of an answer.
pub(crate) fn parent_of(answer: &[u8]) -> String {
    ContainerResourceHookResponse::decode(answer).expect("a message").pod_cgroup_parent
}

/// Waits for a state that nothing announces.
pub(crate) async fn until(reached: impl Fn() -> bool) {
    let limit = Instant::now() + PLENTY;
    while !reached() {
        assert!(Instant::now() < limit, "not reached");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
