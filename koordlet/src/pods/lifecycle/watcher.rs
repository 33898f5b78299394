//! Watching and listing directories.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use koord_cgroup::layout::{Controller, Layout};
use koord_extension::qos::KubeQos;
use koord_runtime::CancellationToken;
use koord_runtime::error_chain::Chain;

use super::{Change, Listing, changes, container_id, pod_uid};

/// How often directories are listed where they cannot be watched.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);

/// How often they are listed where they can.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Events that come within this time are one change: a pod's directories appear one after the other.
const SETTLE: Duration = Duration::from_millis(20);

/// Whether directories are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// They are.
    Watching,
    /// They are listed instead.
    Scanning,
}

/// Follows the directories of pods.
#[derive(Debug)]
pub struct Watcher {
    roots: Vec<(KubeQos, PathBuf)>,
    known: Listing,
    scan_interval: Duration,
}

fn folders(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

impl Watcher {
    /// A watcher of the groups of a layout: of the CPU controller's on version 1.
    pub fn new(layout: &Layout) -> Watcher {
        let folder = layout.directory(Controller::Cpu);
        let roots = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort]
            .map(|qos| (qos, folder.join(layout.qos_dir(qos).as_str())))
            .to_vec();
        Watcher { roots, known: Listing::new(), scan_interval: SCAN_INTERVAL }
    }

    /// The same with another pause between listings where nothing can be watched.
    #[must_use]
    pub fn with_scan_interval(self, scan_interval: Duration) -> Watcher {
        Watcher { scan_interval, ..self }
    }

    /// Lists all. What cannot be listed has nothing in it: it is gone or not there yet.
    fn list(&self) -> Listing {
        let mut listing = Listing::new();
        for (qos, root) in &self.roots {
            for name in folders(root).unwrap_or_default().into_iter().filter(|name| pod_uid(name).is_some()) {
                let containers = folders(&root.join(&name)).unwrap_or_default();
                let containers = containers.into_iter().filter(|name| container_id(name).is_some()).collect();
                listing.insert((*qos, name), containers);
            }
        }
        listing
    }

    /// What changed since the last time.
    pub fn look(&mut self) -> Vec<Change> {
        let now = self.list();
        let found = changes(&self.known, &now);
        self.known = now;
        found
    }

    /// Follows until `token` is cancelled. `changed` is told of changes, `health` whenever it changes.
    pub async fn run(
        mut self,
        token: CancellationToken,
        mut changed: impl FnMut(&[Change]),
        mut health: impl FnMut(Health),
    ) {
        let mut tell = |watcher: &mut Watcher| {
            let found = watcher.look();
            if !found.is_empty() {
                changed(&found);
            }
        };
        loop {
            // Watches first, then the listing: what appears in between is in the listing.
            match Watches::open(&self.roots) {
                Ok(mut watches) => {
                    health(Health::Watching);
                    tell(&mut self);
                    let error = loop {
                        if let Err(error) = watches.follow(&self.known, &self.roots) {
                            break error;
                        }
                        // Containers that appeared before their pod's watch was there.
                        tell(&mut self);
                        tokio::select! {
                            () = token.cancelled() => return,
                            () = tokio::time::sleep(CHECK_INTERVAL) => {}
                            event = watches.next() => if let Err(error) = event { break error },
                        }
                        tokio::time::sleep(SETTLE).await;
                        tell(&mut self);
                    };
                    tracing::warn!(error = %Chain(&error), "directories of pods cannot be watched, they are scanned");
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "directories of pods cannot be watched, they are scanned");
                }
            }
            health(Health::Scanning);
            let watch_again = tokio::time::Instant::now() + CHECK_INTERVAL;
            while tokio::time::Instant::now() < watch_again {
                tell(&mut self);
                tokio::select! {
                    () = token.cancelled() => return,
                    () = tokio::time::sleep(self.scan_interval) => {}
                }
            }
        }
    }
}

/// The watches of one inotify instance.
struct Watches {
    events: inotify::EventStream<Vec<u8>>,
    pods: BTreeMap<(KubeQos, String), WatchDescriptor>,
}

const MASK: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::ONLYDIR);

impl Watches {
    fn open(roots: &[(KubeQos, PathBuf)]) -> io::Result<Watches> {
        let inotify = Inotify::init()?;
        let mut watched = false;
        for (_, root) in roots {
            match inotify.watches().add(root, MASK) {
                Ok(_) => watched = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if !watched {
            return Err(io::Error::new(io::ErrorKind::NotFound, "there are no directories of pods yet"));
        }
        Ok(Watches { events: inotify.into_event_stream(vec![0; 16 * 1024])?, pods: BTreeMap::new() })
    }

    /// Watches the directories of the known pods, and no others.
    fn follow(&mut self, known: &Listing, roots: &[(KubeQos, PathBuf)]) -> io::Result<()> {
        let mut watches = self.events.watches();
        let gone: BTreeSet<_> = self.pods.keys().filter(|key| !known.contains_key(*key)).cloned().collect();
        for key in gone {
            if let Some(descriptor) = self.pods.remove(&key) {
                // The kernel removes the watch of a deleted directory by itself.
                let _ = watches.remove(descriptor);
            }
        }
        for key in known.keys() {
            if self.pods.contains_key(key) {
                continue;
            }
            let Some((_, root)) = roots.iter().find(|(qos, _)| *qos == key.0) else { continue };
            match watches.add(root.join(&key.1), MASK) {
                Ok(descriptor) => {
                    self.pods.insert(key.clone(), descriptor);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for a change. After an overflow of the queue that is one as well: all directories are listed then.
    async fn next(&mut self) -> io::Result<()> {
        loop {
            match self.events.next().await {
                Some(Ok(event)) if event.mask.contains(EventMask::IGNORED) => {}
                Some(Ok(_)) => return Ok(()),
                Some(Err(error)) => return Err(error),
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the events ended")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use koord_cgroup::driver::CgroupDriver;
    use koord_cgroup::version::CgroupVersion;

    use super::*;

    async fn eventually(what: &str, check: impl Fn() -> bool) {
        for _ in 0..500 {
            if check() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not within 5 s: {what}");
    }

    #[tokio::test]
    async fn pods_and_containers_are_seen_whenever_they_appear() {
        let folder = tempfile::tempdir().expect("a folder");
        let layout =
            Layout::new(folder.path(), CgroupVersion::V2, CgroupDriver::Cgroupfs, "/").expect("a layout");
        let burstable = folder.path().join("kubepods/burstable");
        std::fs::create_dir_all(burstable.join("podearly/1")).expect("made");
        std::fs::create_dir_all(folder.path().join("kubepods/besteffort")).expect("made");

        let seen = Arc::new(Mutex::new(Vec::new()));
        let health = Arc::new(Mutex::new(Vec::new()));
        let token = CancellationToken::new();
        let (see, feel) = (Arc::clone(&seen), Arc::clone(&health));
        let run = Watcher::new(&layout).run(
            token.clone(),
            move |changes| see.lock().expect("whole").extend_from_slice(changes),
            move |now| feel.lock().expect("whole").push(now),
        );
        let task = tokio::task::spawn(run);
        let has = |change: Change| {
            let seen = Arc::clone(&seen);
            move || seen.lock().expect("whole").contains(&change)
        };
        eventually("a pod of before", has(Change::PodAdded { uid: "early".into() })).await;
        eventually("its container", has(Change::ContainerAdded { uid: "early".into(), id: "1".into() }))
            .await;

        std::fs::create_dir_all(burstable.join("podlate/2")).expect("made");
        eventually("a new pod", has(Change::PodAdded { uid: "late".into() })).await;
        eventually("its container", has(Change::ContainerAdded { uid: "late".into(), id: "2".into() })).await;
        std::fs::create_dir(burstable.join("podearly/3")).expect("made");
        eventually("a later container", has(Change::ContainerAdded { uid: "early".into(), id: "3".into() }))
            .await;
        std::fs::remove_dir_all(burstable.join("podlate")).expect("removed");
        eventually("the end of a pod", has(Change::PodDeleted { uid: "late".into() })).await;

        assert_eq!(*health.lock().expect("whole"), [Health::Watching]);
        token.cancel();
        task.await.expect("ended");
    }

    #[tokio::test]
    async fn what_cannot_be_watched_is_scanned() {
        let folder = tempfile::tempdir().expect("a folder");
        let layout =
            Layout::new(folder.path(), CgroupVersion::V2, CgroupDriver::Cgroupfs, "/").expect("a layout");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let token = CancellationToken::new();
        let see = Arc::clone(&seen);
        let degraded = Arc::new(Mutex::new(None));
        let feel = Arc::clone(&degraded);
        let run = Watcher::new(&layout).with_scan_interval(Duration::from_millis(10)).run(
            token.clone(),
            move |changes| see.lock().expect("whole").extend_from_slice(changes),
            move |now| *feel.lock().expect("whole") = Some(now),
        );
        let task = tokio::task::spawn(run);
        eventually("scanning", || *degraded.lock().expect("whole") == Some(Health::Scanning)).await;
        std::fs::create_dir_all(folder.path().join("kubepods/poda")).expect("made");
        eventually("a pod", || seen.lock().expect("whole").contains(&Change::PodAdded { uid: "a".into() }))
            .await;
        token.cancel();
        task.await.expect("ended");
    }
}
