//! The log and its readers together, shared by whoever records and whoever asks.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use crate::event::Event;
use crate::log::{Log, LogError};
use crate::query::{self, Page, Refusal, Reply, Request};
use crate::readers::Readers;
use crate::reverse::ReverseReader;

/// What the audit log does. The defaults are Koordinator's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOptions {
    /// Folder of the files.
    pub folder: PathBuf,
    /// Events of a higher verbosity are not recorded; 0 records all.
    pub verbosity: u32,
    /// Disk space in MiB, at least 1.
    pub most_megabytes: u64,
    /// Readers at a time; the oldest gives way.
    pub most_readers: usize,
    /// Records of a page at most.
    pub most_events: usize,
}

impl Default for AuditOptions {
    fn default() -> AuditOptions {
        AuditOptions {
            folder: PathBuf::from("/var/log/koordlet"),
            verbosity: 3,
            most_megabytes: 16,
            most_readers: 4,
            most_events: 2048,
        }
    }
}

impl AuditOptions {
    /// True if events of a verbosity are recorded.
    pub fn records(&self, verbosity: u32) -> bool {
        self.verbosity == 0 || verbosity <= self.verbosity
    }
}

/// The audit log of a process. Calls do I/O on files and are short; they may wait for each other.
#[derive(Debug)]
pub struct Auditor {
    options: AuditOptions,
    log: Mutex<Log>,
    readers: Mutex<Readers<ReverseReader>>,
}

impl Auditor {
    /// An audit log. Nothing is opened before the first record.
    pub fn new(options: AuditOptions) -> Auditor {
        Auditor {
            log: Mutex::new(Log::new(options.folder.clone(), options.most_megabytes)),
            readers: Mutex::new(Readers::new(options.most_readers)),
            options,
        }
    }

    /// What it was made with.
    pub fn options(&self) -> &AuditOptions {
        &self.options
    }

    /// Records an event, if its verbosity is within the limit. After an error the event is lost and the log goes on.
    pub fn record(&self, verbosity: u32, event: Event, now: SystemTime) -> Result<(), LogError> {
        if !self.options.records(verbosity) {
            return Ok(());
        }
        self.lock_log().append(&event.recorded(now), now)
    }

    /// To be called once a minute: writes what waits in memory and forgets readers that nobody continues.
    pub fn housekeep(&self, now: SystemTime, monotonic: Instant) -> Result<(), LogError> {
        self.lock_readers().expire(monotonic);
        self.flush(now)
    }

    /// Writes what waits in memory, as at the end of the process.
    pub fn flush(&self, now: SystemTime) -> Result<(), LogError> {
        self.lock_log().flush(now)
    }

    /// How many readers may be continued.
    pub fn readers(&self) -> usize {
        self.lock_readers().len()
    }

    /// Answers `GET /events`. `token` makes a new token that nobody can guess, as [`random_token`] does.
    pub fn answer(
        &self,
        query: Option<&str>,
        accept: &[&str],
        token: impl FnOnce() -> io::Result<String>,
        now: SystemTime,
        monotonic: Instant,
    ) -> Reply {
        let answer = Request::parse(query, accept, self.options.most_events).and_then(|request| {
            let page = self.page(&request, token, now, monotonic)?;
            Ok(query::reply(&page, request.format))
        });
        answer.unwrap_or_else(|refusal| refusal.reply())
    }

    fn page(
        &self,
        request: &Request,
        token: impl FnOnce() -> io::Result<String>,
        now: SystemTime,
        monotonic: Instant,
    ) -> Result<Page, Refusal> {
        let unreadable = |error: io::Error| Refusal::Unreadable(error.to_string());
        let token = match &request.token {
            Some(token) => token.clone(),
            None => {
                // Records that cannot be written are missing from the page; those on disk are not.
                let _ = self.flush(now);
                let token = token().map_err(unreadable)?;
                let reader = ReverseReader::open(&self.options.folder).map_err(unreadable)?;
                self.lock_readers().add(token.clone(), reader, monotonic);
                token
            }
        };
        let mut readers = self.lock_readers();
        let reader = readers.get(&token, monotonic).ok_or_else(|| Refusal::Token(token.clone()))?;
        let mut events = Vec::new();
        while events.len() < request.size {
            match reader.next_event().map_err(unreadable)? {
                Some(event) => events.push(event),
                None => return Ok(Page { events, next_token: None }),
            }
        }
        Ok(Page { events, next_token: Some(token) })
    }

    /// Neither lock is held by code that can leave half a change behind, so a panic elsewhere does not matter.
    fn lock_log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_readers(&self) -> MutexGuard<'_, Readers<ReverseReader>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A random UUID from the kernel.
pub fn random_token() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests;
