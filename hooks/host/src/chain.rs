//! All hooks in the order they are asked: the built-in rules, libraries, and servers.

use std::cmp::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use koord_hook::{FailurePolicy, HookSet, HookType, ServerOptions};
use tokio::sync::watch;

use crate::endpoint::Endpoint;
use crate::library::Plugin;
use crate::plugins::Plugins;
use crate::registration::Registrations;

/// Name of the built-in rules among the hooks.
pub const BUILT_IN: &str = "built-in";

/// How a hook is reached.
#[derive(Debug, Clone)]
pub enum Carrier {
    /// The program's own rules. They have a place in the order; the program runs them itself when it is their turn.
    BuiltIn,
    /// A library.
    Library(Arc<Plugin>),
    /// A hook server.
    Remote(Endpoint),
}

impl Carrier {
    /// The name used in logs and reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Library(_) => "library",
            Self::Remote(_) => "remote",
        }
    }

    /// At equal priority the nearer one is asked first.
    fn distance(&self) -> u8 {
        match self {
            Self::BuiltIn => 0,
            Self::Library(_) => 1,
            Self::Remote(_) => 2,
        }
    }
}

/// Two are equal if they lead to the same place; each load of a library is another one.
impl PartialEq for Carrier {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::BuiltIn, Self::BuiltIn) => true,
            (Self::Library(one), Self::Library(other)) => Arc::ptr_eq(one, other),
            (Self::Remote(one), Self::Remote(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Carrier {}

/// A hook in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name of its file, which identifies it in logs and metrics; [`BUILT_IN`] for the rules.
    pub name: String,
    /// Hooks with lower numbers are asked first.
    pub priority: i64,
    /// The stages it is asked at.
    pub stages: HookSet,
    /// What its failure means.
    pub failure_policy: FailurePolicy,
    /// Cap of its calls; `None` leaves only the cap of the program.
    pub timeout: Option<Duration>,
    /// How its answers are used.
    pub options: ServerOptions,
    /// How it is reached.
    pub carrier: Carrier,
}

impl Entry {
    /// By priority, then by how near it is, then by the octets of its name.
    fn order(&self, other: &Self) -> Ordering {
        let key = |entry: &Self| (entry.priority, entry.carrier.distance());
        key(self).cmp(&key(other)).then_with(|| self.name.as_bytes().cmp(other.name.as_bytes()))
    }
}

/// The place of the built-in rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Their priority; at equal priority they are before all others.
    pub priority: i64,
    /// The stages they have something to say at.
    pub stages: HookSet,
}

impl Default for BuiltIn {
    /// Priority 0, at the stages whose request can be changed.
    fn default() -> Self {
        let stages =
            [HookType::PreRunPodSandbox, HookType::PreCreateContainer, HookType::PreUpdateContainerResources];
        Self { priority: 0, stages: stages.into_iter().collect() }
    }
}

impl BuiltIn {
    fn entry(self) -> Entry {
        Entry {
            name: BUILT_IN.to_owned(),
            priority: self.priority,
            stages: self.stages,
            failure_policy: FailurePolicy::Ignore,
            timeout: None,
            options: ServerOptions::default(),
            carrier: Carrier::BuiltIn,
        }
    }
}

/// All hooks in force at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    entries: Vec<Arc<Entry>>,
    stages: HookSet,
    generation: u64,
}

impl Snapshot {
    /// These hooks, brought into order.
    pub fn of(entries: impl IntoIterator<Item = Arc<Entry>>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by(|one, other| one.order(other));
        let stages = entries.iter().fold(HookSet::default(), |all, entry| all.union(entry.stages));
        Self { entries, stages, generation: 0 }
    }

    /// The hooks, in the order they are asked.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The hooks asked at `stage`, in their order.
    pub fn entries_for(&self, stage: HookType) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().filter(move |entry| entry.stages.contains(stage))
    }

    /// Every stage at which at least one hook is asked.
    pub fn stages(&self) -> HookSet {
        self.stages
    }

    /// The number of the snapshot, which grows with each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// The hooks in force, put together of everything that names hooks.
#[derive(Debug)]
pub struct Chain {
    registrations: Arc<Registrations>,
    plugins: Option<Arc<Plugins>>,
    built_in: RwLock<Option<BuiltIn>>,
    snapshot: ArcSwap<Snapshot>,
    changes: watch::Sender<u64>,
}

impl Chain {
    /// The hooks of these registrations and libraries, and the built-in rules if they have a place.
    pub fn new(
        registrations: Arc<Registrations>,
        plugins: Option<Arc<Plugins>>,
        built_in: Option<BuiltIn>,
    ) -> Self {
        let chain = Self {
            registrations,
            plugins,
            built_in: RwLock::new(built_in),
            snapshot: ArcSwap::default(),
            changes: watch::Sender::new(0),
        };
        chain.rebuild();
        chain
    }

    /// The registrations it is made of.
    pub fn registrations(&self) -> &Arc<Registrations> {
        &self.registrations
    }

    /// The libraries it is made of.
    pub fn plugins(&self) -> Option<&Arc<Plugins>> {
        self.plugins.as_ref()
    }

    /// The hooks in force.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The stages in force, without taking hold of the snapshot.
    pub fn stages(&self) -> HookSet {
        self.snapshot.load().stages
    }

    /// Announces each new snapshot by its generation.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Gives the built-in rules another place, or none. Returns whether anything changed.
    pub fn set_built_in(&self, built_in: Option<BuiltIn>) -> bool {
        *self.built_in.write().unwrap_or_else(PoisonError::into_inner) = built_in;
        self.rebuild()
    }

    /// Puts the hooks together again. Returns whether anything changed.
    pub fn rebuild(&self) -> bool {
        // One at a time, or an older state could replace a newer one.
        let built_in = self.built_in.write().unwrap_or_else(PoisonError::into_inner);
        let rules = built_in.map(|place| Arc::new(place.entry()));
        let servers = self.registrations.table();
        let servers = servers.servers().iter().map(|server| Arc::new(server.entry()));
        let libraries = self.plugins.as_ref().map(|plugins| plugins.table());
        let libraries = libraries.iter().flat_map(|table| table.entries().iter().cloned());
        let mut snapshot = Snapshot::of(rules.into_iter().chain(libraries).chain(servers));
        let before = self.snapshot.load_full();
        snapshot.generation = before.generation;
        if snapshot == *before {
            return false;
        }
        snapshot.generation += 1;
        let generation = snapshot.generation;
        self.snapshot.store(Arc::new(snapshot));
        self.changes.send_replace(generation);
        true
    }

    /// Follows registrations and libraries until the future is dropped.
    pub async fn follow(&self) {
        let mut registrations = self.registrations.changes();
        let mut plugins = self.plugins.as_ref().map(|plugins| plugins.changes());
        loop {
            self.rebuild();
            let plugins_changed = async {
                match &mut plugins {
                    Some(plugins) => plugins.changed().await,
                    None => std::future::pending().await,
                }
            };
            // Neither sender goes before `self` does.
            let ended = tokio::select! {
                changed = registrations.changed() => changed.is_err(),
                changed = plugins_changed => changed.is_err(),
            };
            if ended {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::NoMetrics;
    use crate::registration::{Registration, Server, Table};
    use crate::trust::Trust;

    fn server(name: &str, priority: i64) -> Server {
        let text = format!(
            r#"{{"remote-endpoint":"/{name}","priority":{priority},"runtime-hooks":["PostStopContainer"]}}"#
        );
        Server {
            name: name.to_owned(),
            registration: Registration::parse(text.as_bytes()).expect("a registration"),
        }
    }

    fn chain(built_in: Option<BuiltIn>) -> Chain {
        let directory = tempfile::tempdir().expect("a directory");
        let registrations =
            Registrations::new(directory.path().join("d"), Trust::of_this_process(), NoMetrics);
        Chain::new(Arc::new(registrations), None, built_in)
    }

    fn names(chain: &Chain) -> Vec<String> {
        chain.snapshot().entries().iter().map(|entry| entry.name.clone()).collect()
    }

    #[test]
    fn the_order_is_by_priority_then_nearness_then_name() {
        let chain = chain(Some(BuiltIn::default()));
        assert_eq!(names(&chain), ["built-in"]);
        let servers = [server("b", 0), server("a", 0), server("C", 0), server("z", -1), server("0", 1)];
        chain.registrations().replace(Table::of(servers));
        assert!(chain.rebuild());
        assert_eq!(names(&chain), ["z", "built-in", "C", "a", "b", "0"]);
        assert!(chain.set_built_in(Some(BuiltIn { priority: 5, ..BuiltIn::default() })));
        assert_eq!(names(&chain), ["z", "C", "a", "b", "0", "built-in"]);
        assert!(chain.set_built_in(None));
        assert_eq!(names(&chain), ["z", "C", "a", "b", "0"]);
        let stages: Vec<_> = chain.stages().iter().collect();
        assert_eq!(stages, [HookType::PostStopContainer]);
        assert_eq!(chain.snapshot().entries_for(HookType::PreCreateContainer).count(), 0);
    }

    #[test]
    fn a_change_has_a_new_generation_and_nothing_else_has() {
        let chain = chain(Some(BuiltIn::default()));
        let generation = chain.snapshot().generation();
        let before = chain.snapshot();
        assert!(!chain.rebuild());
        assert!(Arc::ptr_eq(&before, &chain.snapshot()));
        let mut changes = chain.changes();
        chain.registrations().replace(Table::of([server("a", 0)]));
        assert!(chain.rebuild());
        assert_eq!(chain.snapshot().generation(), generation + 1);
        assert_eq!(*changes.borrow_and_update(), generation + 1);
    }

    #[tokio::test]
    async fn registrations_are_followed() {
        let chain = chain(None);
        let mut changes = chain.changes();
        let followed = async {
            chain.registrations().replace(Table::of([server("a", 0)]));
            changes.changed().await.expect("the chain lives");
            assert_eq!(names(&chain), ["a"]);
        };
        tokio::select! {
            () = chain.follow() => panic!("it follows for ever"),
            () = followed => {}
        }
    }
}
