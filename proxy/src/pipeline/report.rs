//! The one log line of a hooked call.

use std::fmt::Write;
use std::time::{Duration, Instant};

use koord_intercept::HookType;
use koord_intercept::working::Working;

use super::RequestHead;

/// Collected while the call is under way. Holds names and results only: no values of labels, annotations or
/// environment variables.
#[derive(Debug)]
pub(super) struct Report {
    method: String,
    peer: u64,
    begun: Instant,
    namespace: String,
    pod: String,
    uid: String,
    container: String,
    container_id: String,
    results: String,
    asked: bool,
    before: Duration,
    after: Duration,
    patched: bool,
    refused: Option<u32>,
    written: bool,
}

impl Report {
    pub(super) fn new(head: &RequestHead) -> Self {
        Self {
            method: head.path.rsplit('/').next().unwrap_or_default().to_owned(),
            peer: head.peer,
            begun: Instant::now(),
            namespace: String::new(),
            pod: String::new(),
            uid: String::new(),
            container: String::new(),
            container_id: String::new(),
            results: String::new(),
            asked: false,
            before: Duration::ZERO,
            after: Duration::ZERO,
            patched: false,
            refused: None,
            written: false,
        }
    }

    pub(super) fn describe(&mut self, working: &Working, container_id: Option<&str>) {
        if let Some(pod) = working.pod() {
            self.namespace.clone_from(&pod.metadata.namespace);
            self.pod.clone_from(&pod.metadata.name);
            self.uid.clone_from(&pod.metadata.uid);
        }
        if let Some(container) = working.container() {
            self.container.clone_from(&container.metadata.name);
        }
        container_id.unwrap_or_default().clone_into(&mut self.container_id);
    }

    pub(super) fn method(&self) -> &str {
        &self.method
    }

    /// Whether a hook was asked before the backend.
    pub(super) fn asked(&self) -> bool {
        self.asked
    }

    pub(super) fn answered(&mut self, server: &str, hook: HookType) {
        self.result(server, hook, "ok");
    }

    pub(super) fn failed(&mut self, server: &str, hook: HookType, reason: &str) {
        self.result(server, hook, reason);
        if !hook.is_post() {
            self.asking_done();
        }
    }

    fn result(&mut self, server: &str, hook: HookType, result: &str) {
        self.asked |= !hook.is_post();
        let separator = if self.results.is_empty() { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(self.results, "{separator}{server}/{hook}={result}");
    }

    pub(super) fn asking_done(&mut self) {
        self.before = self.begun.elapsed();
    }

    pub(super) fn after_took(&mut self, time: Duration) {
        self.after = time;
    }

    pub(super) fn patched(&mut self) {
        self.patched = true;
    }

    pub(super) fn refused(&mut self, code: u32) {
        self.refused = Some(code);
    }

    /// Writes the line, once, if any hook was asked. `status` is what the caller gets.
    pub(super) fn write(&mut self, status: u32) {
        if self.results.is_empty() || std::mem::replace(&mut self.written, true) {
            return;
        }
        let added = self.before + self.after;
        tracing::info!(
            target: koord_runtime::telemetry::CALL_TARGET,
            method = self.method,
            namespace = self.namespace,
            pod = self.pod,
            uid = self.uid,
            container = self.container,
            container_id = self.container_id,
            hooks = self.results,
            added_us = u64::try_from(added.as_micros()).unwrap_or(u64::MAX),
            patched = self.patched,
            code = status,
            peer = self.peer,
            "call hooked"
        );
    }
}

/// A call that ends without the backend's answer, refused or cancelled, has its line too.
impl Drop for Report {
    fn drop(&mut self) {
        self.write(self.refused.unwrap_or(super::CANCELLED));
    }
}
