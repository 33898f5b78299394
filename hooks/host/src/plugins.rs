//! The directory of hook libraries: `NAME.so`, and beside it `NAME.json` if there is something to say of its use.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use koord_hook::HookSet;
use koord_runtime::error_chain::Chain as ErrorChain;
use koord_runtime::supervisor::Supervisor;
use tokio::sync::{Mutex, watch};

use crate::chain::{Carrier, Entry};
use crate::isolated::Children;
use crate::keys::KeyError;
use crate::library::image::{Identity, OpenLibrary};
use crate::library::{ImageError, Mode, Plugin, Settings, StartError};
use crate::metrics::HookMetrics;
use crate::registration::directory::{list, read_file};
use crate::registration::{DirectoryError, FileError, FileReport};
use crate::trust::Trust;
use crate::watch::{self as directory_watch, Reload};

const LIBRARY_ENDING: &str = ".so";
const SETTINGS_ENDING: &str = ".json";

/// Why a library is not in force. The caller adds the library's name.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The file is not acceptable.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The file beside it is not acceptable.
    #[error("settings file")]
    SettingsFile(#[source] FileError),
    /// The file beside it says something wrong.
    #[error("settings file: {0}")]
    Settings(#[from] KeyError),
    /// The library cannot be put to work.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The settings name stages the library does not want.
    #[error("settings file: key \"stages\" names {named}; the library wants {wanted}")]
    Stages {
        /// The stages that are too many.
        named: String,
        /// The library's stages.
        wanted: String,
    },
    /// A settings file stands alone.
    #[error("names no library: there is no file {0}")]
    Alone(String),
}

impl PluginError {
    fn is_lasting(&self) -> bool {
        match self {
            Self::Start(error) => error.is_lasting(),
            Self::Image(ImageError::Read(_) | ImageError::Copy(_)) | Self::SettingsFile(_) => false,
            _ => true,
        }
    }
}

/// All libraries in force at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PluginTable {
    entries: Vec<Arc<Entry>>,
    files: Vec<FileReport>,
    directory_error: Option<String>,
}

impl PluginTable {
    /// The libraries, by name.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// What became of each library.
    pub fn files(&self) -> &[FileReport] {
        &self.files
    }

    /// Why the directory itself could not be used, if so; the libraries are those from before.
    pub fn directory_error(&self) -> Option<&str> {
        self.directory_error.as_deref()
    }
}

/// The libraries of a directory and the means to follow it.
pub struct Plugins {
    directory: PathBuf,
    trust: Trust,
    metrics: Arc<dyn HookMetrics>,
    supervisor: Supervisor,
    children: Arc<Children>,
    table: ArcSwap<PluginTable>,
    known: Mutex<Known>,
    changes: watch::Sender<u64>,
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Plugins")
            .field("directory", &self.directory)
            .field("table", &self.table.load())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Known {
    libraries: BTreeMap<String, KnownLibrary>,
    directory_error: Option<String>,
}

#[derive(Debug, Default)]
struct KnownLibrary {
    /// Of what was looked at last, good or bad.
    identity: Option<FoundIdentity>,
    error: Option<String>,
    in_force: Option<InForce>,
}

#[derive(Debug)]
struct InForce {
    library: Identity,
    settings: Settings,
    plugin: Arc<Plugin>,
    entry: Arc<Entry>,
}

/// A library's file and the content of its settings file.
type FoundIdentity = (Identity, Option<Vec<u8>>);

struct Found {
    library: Result<OpenLibrary, ImageError>,
    settings: Result<Option<Vec<u8>>, FileError>,
}

impl Found {
    fn identity(&self) -> Option<FoundIdentity> {
        let library = self.library.as_ref().ok()?.identity;
        let settings = self.settings.as_ref().ok()?.clone();
        Some((library, settings))
    }
}

/// What became of a file that was checked.
#[derive(Debug)]
pub struct Checked {
    /// Name of the library, or of a settings file without one.
    pub name: String,
    /// How it would be used; nothing if that cannot be told.
    pub settings: Option<Settings>,
    /// All that is wrong.
    pub problems: Vec<PluginError>,
}

/// Looks at all files of a directory without loading a library. A missing directory means no libraries.
///
/// # Errors
/// The directory cannot be read, or others may write to it.
pub fn check(directory: &Path, trust: &Trust) -> Result<Vec<Checked>, DirectoryError> {
    let scan = scan(directory, trust)?;
    let libraries = scan.libraries.into_iter().map(|(name, found)| {
        let mut problems = Vec::new();
        if let Err(error) = found.library.and_then(|library| library.image(&name)) {
            problems.push(error.into());
        }
        let settings = match found.settings {
            Ok(None) => Some(Settings::default()),
            Ok(Some(content)) => Settings::parse(&content).map_err(|error| problems.push(error.into())).ok(),
            Err(error) => {
                problems.push(PluginError::SettingsFile(error));
                None
            }
        };
        Checked { name, settings, problems }
    });
    let alone = scan.alone.into_iter().map(|name| {
        let library = name.strip_suffix(SETTINGS_ENDING).unwrap_or(&name).to_owned() + LIBRARY_ENDING;
        Checked { name, settings: None, problems: vec![PluginError::Alone(library)] }
    });
    Ok(libraries.chain(alone).collect())
}

/// What is in the directory.
#[derive(Default)]
struct Scan {
    libraries: BTreeMap<String, Found>,
    /// Settings files without a library.
    alone: BTreeSet<String>,
}

impl Plugins {
    /// Nothing is read yet: follow with [`Plugins::reload`] and run [`Plugins::watch`].
    pub fn new(
        directory: PathBuf,
        trust: Trust,
        metrics: impl HookMetrics,
        supervisor: Supervisor,
        children: Arc<Children>,
    ) -> Self {
        Self {
            directory,
            trust,
            metrics: Arc::new(metrics),
            supervisor,
            children,
            table: ArcSwap::default(),
            known: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// The watched directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The table in force.
    pub fn table(&self) -> Arc<PluginTable> {
        self.table.load_full()
    }

    /// Announces each new table by a number that grows.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Reads the directory and puts the result in force. A missing directory means no libraries.
    ///
    /// Whatever cannot be used leaves what was in force before; it is logged, counted and reported in the table.
    /// A library that is replaced serves the calls it has, and ends then. Returns whether the table changed.
    pub async fn reload(&self) -> bool {
        let mut known = self.known.lock().await;
        let (directory, trust) = (self.directory.clone(), self.trust);
        // Reading is a matter of files in memory mostly, but there may be many, and large ones.
        let scan = match tokio::task::spawn_blocking(move || scan(&directory, &trust)).await {
            Ok(scan) => scan,
            Err(error) => {
                tracing::error!(%error, "reading the directory of hook libraries failed");
                return false;
            }
        };
        match scan {
            Ok(scan) => {
                known.directory_error = None;
                self.take(&mut known, scan).await;
            }
            Err(error) => {
                let error = ErrorChain(&error).to_string();
                if known.directory_error.as_ref() != Some(&error) {
                    tracing::error!(directory = %self.directory.display(), error, "directory of hook libraries not usable");
                    self.metrics.config_rejected(&self.directory.display().to_string());
                    known.directory_error = Some(error);
                }
            }
        }
        let table = known.table();
        if *self.table.load_full() == table {
            return false;
        }
        self.table.store(Arc::new(table));
        self.changes.send_modify(|number| *number += 1);
        true
    }

    /// Follows the directory until the future is dropped.
    pub async fn watch(&self) {
        directory_watch::follow(self).await;
    }

    /// Ends all libraries: none is called any more, and their threads and processes end.
    pub fn close(&self) {
        for entry in self.table.load().entries() {
            if let Carrier::Library(plugin) = &entry.carrier {
                plugin.close();
            }
        }
        self.children.close();
    }

    async fn take(&self, known: &mut Known, scan: Scan) {
        known.libraries.retain(|name, _| {
            let there = scan.libraries.contains_key(name) || scan.alone.contains(name);
            if !there {
                tracing::info!(file = %self.directory.join(name).display(), "hook library removed");
                self.metrics.config_removed(name);
            }
            there
        });
        for name in scan.alone {
            let library = format!("{}{LIBRARY_ENDING}", name.trim_end_matches(SETTINGS_ENDING));
            let known = known.libraries.entry(name.clone()).or_default();
            self.rejected(&name, known, &PluginError::Alone(library));
        }
        for (name, found) in scan.libraries {
            let known = known.libraries.entry(name.clone()).or_default();
            let identity = found.identity();
            if identity.is_some() && identity == known.identity {
                continue;
            }
            known.identity = None;
            match self.usable(&name, found, known.in_force.as_ref()).await {
                Ok(in_force) => {
                    let description = in_force.plugin.description();
                    tracing::info!(
                        file = %self.directory.join(&name).display(),
                        library = description.name,
                        version = description.version,
                        mode = in_force.plugin.mode().as_str(),
                        policy = in_force.entry.failure_policy.as_str(),
                        stages = ?in_force.entry.stages,
                        "hook library in force"
                    );
                    self.metrics.config_loaded(&name);
                    known.error = None;
                    known.identity = identity;
                    known.in_force = Some(in_force);
                }
                Err(error) => {
                    if error.is_lasting() {
                        known.identity = identity;
                    }
                    self.rejected(&name, known, &error);
                }
            }
        }
    }

    fn rejected(&self, name: &str, known: &mut KnownLibrary, error: &PluginError) {
        let error = ErrorChain(error).to_string();
        if known.error.as_ref() != Some(&error) {
            tracing::warn!(
                file = %self.directory.join(name).display(),
                error,
                previous_content_in_force = known.in_force.is_some(),
                "hook library rejected"
            );
            self.metrics.config_rejected(name);
        }
        known.error = Some(error);
    }

    /// Loads a library, unless the one that is loaded is the same and runs as it is to run.
    async fn usable(
        &self,
        name: &str,
        found: Found,
        before: Option<&InForce>,
    ) -> Result<InForce, PluginError> {
        let settings = match found.settings.map_err(PluginError::SettingsFile)? {
            Some(content) => Settings::parse(&content)?,
            None => Settings::default(),
        };
        let library = found.library?;
        let identity = library.identity;
        let same_run = |before: &&InForce| {
            before.library == identity
                && before.settings.mode == settings.mode
                && (settings.mode == Mode::InProcess
                    || before.settings.max_address_space == settings.max_address_space)
        };
        let plugin = match before.filter(same_run) {
            Some(before) => before.plugin.clone(),
            None => {
                let image = {
                    let name = name.to_owned();
                    tokio::task::spawn_blocking(move || library.image(&name))
                        .await
                        .map_err(|error| ImageError::Copy(io::Error::other(error)))??
                };
                let plugin =
                    Plugin::start(name, Arc::new(image), &settings, &self.supervisor, &self.children).await?;
                Arc::new(plugin)
            }
        };
        let entry = Arc::new(entry(name, &settings, &plugin)?);
        Ok(InForce { library: identity, settings, plugin, entry })
    }
}

fn entry(name: &str, settings: &Settings, plugin: &Arc<Plugin>) -> Result<Entry, PluginError> {
    let wanted = plugin.description().stages();
    let stages = settings.stages.unwrap_or(wanted);
    let too_many: HookSet = stages.iter().filter(|stage| !wanted.contains(*stage)).collect();
    if too_many != HookSet::default() {
        return Err(PluginError::Stages { named: listed(too_many), wanted: listed(wanted) });
    }
    Ok(Entry {
        name: name.to_owned(),
        priority: settings.priority,
        stages,
        failure_policy: settings.failure_policy,
        timeout: settings.timeout,
        options: settings.options,
        carrier: Carrier::Library(plugin.clone()),
    })
}

fn listed(stages: HookSet) -> String {
    stages.iter().map(koord_hook::HookType::as_str).collect::<Vec<_>>().join(", ")
}

impl Known {
    fn table(&self) -> PluginTable {
        let entries = self.libraries.values().filter_map(|library| library.in_force.as_ref());
        PluginTable {
            entries: entries.map(|in_force| in_force.entry.clone()).collect(),
            files: self
                .libraries
                .iter()
                .map(|(name, library)| FileReport {
                    name: name.clone(),
                    error: library.error.clone(),
                    in_force: library.in_force.is_some(),
                })
                .collect(),
            directory_error: self.directory_error.clone(),
        }
    }
}

impl Reload for Plugins {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn what(&self) -> &'static str {
        "hook libraries"
    }

    async fn reload(&self) {
        Self::reload(self).await;
    }
}

fn scan(directory: &Path, trust: &Trust) -> Result<Scan, DirectoryError> {
    let entries = match list(directory, trust) {
        Err(DirectoryError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Scan::default());
        }
        other => other?,
    };
    let names: BTreeSet<String> = entries
        .iter()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    let mut scan = Scan::default();
    for name in &names {
        if let Some(stem) = name.strip_suffix(LIBRARY_ENDING) {
            let settings = directory.join(format!("{stem}{SETTINGS_ENDING}"));
            let library = OpenLibrary::open(&directory.join(name), trust);
            // Gone between listing and opening.
            if matches!(&library, Err(ImageError::Read(error)) if error.kind() == io::ErrorKind::NotFound) {
                continue;
            }
            let settings = match read_file(&settings, trust) {
                Ok(file) => Ok(file.map(|file| file.content)),
                Err(FileError::Read(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            };
            scan.libraries.insert(name.clone(), Found { library, settings });
        } else if let Some(stem) = name.strip_suffix(SETTINGS_ENDING)
            && !names.contains(&format!("{stem}{LIBRARY_ENDING}"))
        {
            scan.alone.insert(name.clone());
        }
    }
    Ok(scan)
}
