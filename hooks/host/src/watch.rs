//! Following a directory of hooks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use tokio::time::{Instant, timeout_at};

/// Something that is read from a directory.
pub(crate) trait Reload: Sync {
    /// The directory.
    fn directory(&self) -> &Path;

    /// What is read from it, for the log.
    fn what(&self) -> &'static str;

    /// Reads it again.
    fn reload(&self) -> impl Future<Output = ()> + Send;
}

/// How long a burst of events is waited out: an editor or a non-atomic writer is done by then.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// A burst without end is acted upon after this.
const DEBOUNCE_LIMIT: Duration = Duration::from_millis(500);
/// Safety net for lost events and for file systems that send none.
const POLL: Duration = Duration::from_secs(10);

/// Reloads after each change, for ever.
pub(crate) async fn follow(reader: &impl Reload) {
    let mut watcher = Watcher::new(reader.directory(), reader.what());
    loop {
        // Whatever happened while no watch was set is read now.
        watcher.settle();
        reader.reload().await;
        // The reload may have created the directory, and then there is a watch to set.
        if watcher.settle() {
            reader.reload().await;
        }
        let poll = Instant::now() + POLL;
        if timeout_at(poll, watcher.event()).await.is_ok() {
            let limit = Instant::now() + DEBOUNCE_LIMIT;
            while timeout_at(limit.min(Instant::now() + DEBOUNCE), watcher.event()).await.is_ok()
                && Instant::now() < limit
            {}
        }
    }
}

struct Watcher<'a> {
    directory: &'a Path,
    events: Option<EventStream<[u8; 4096]>>,
    watched: Option<Watched>,
}

/// The directory a watch is set on, which may no longer be the one of that path.
struct Watched {
    descriptor: WatchDescriptor,
    identity: Option<(u64, u64)>,
}

impl<'a> Watcher<'a> {
    fn new(directory: &'a Path, what: &'static str) -> Self {
        let events = Inotify::init()
            .and_then(|inotify| inotify.into_event_stream([0; 4096]))
            .inspect_err(|error| {
                tracing::warn!(%error, "no change events for the directory of {what}; polling it");
            })
            .ok();
        Self { directory, events, watched: None }
    }

    /// Sets the watch on the directory that now has the path; true if it is a new one.
    fn settle(&mut self) -> bool {
        let Some(events) = &self.events else { return false };
        let identity = fs::metadata(self.directory).map(|directory| (directory.dev(), directory.ino())).ok();
        if identity.is_some() && identity == self.watched.as_ref().and_then(|watched| watched.identity) {
            return false;
        }
        if let Some(old) = self.watched.take() {
            // Fails if the directory is gone, and the watch with it.
            let _ = events.watches().remove(old.descriptor);
        }
        if identity.is_none() {
            return false;
        }
        let mask = WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::CLOSE_WRITE
            | WatchMask::ATTRIB
            | WatchMask::MOVED_FROM
            | WatchMask::MOVED_TO
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        match events.watches().add(self.directory, mask) {
            Ok(descriptor) => {
                self.watched = Some(Watched { descriptor, identity });
                true
            }
            Err(error) => {
                tracing::warn!(directory = %self.directory.display(), %error, "cannot watch; polling");
                false
            }
        }
    }

    /// Waits for something to happen in the directory, or to it.
    async fn event(&mut self) {
        let event = match &mut self.events {
            Some(events) => events.next().await,
            None => None,
        };
        match event {
            Some(Ok(event)) => {
                let gone =
                    EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT;
                if event.mask.intersects(gone)
                    && let Some(watched) = &mut self.watched
                    && watched.descriptor == event.wd
                {
                    // An inode number may be used again at once: compare with none that is gone.
                    watched.identity = None;
                }
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "reading change events failed; polling");
                self.events = None;
            }
            None => std::future::pending().await,
        }
    }
}
