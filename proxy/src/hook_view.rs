//! The chain of hooks, as operators are shown it.

use koord_admin::{HookCarrier, HookEntry, HookState, LibraryMode};
use koord_hooks::chain::{Carrier, Chain, Entry};
use koord_hooks::dispatcher::Dispatcher;
use koord_hooks::library::Mode;
use koord_hooks::registration::FileReport;

/// All hooks in the order they are asked, then the files that were rejected.
pub(crate) fn entries(chain: &Chain, dispatcher: &Dispatcher) -> Vec<HookEntry> {
    let snapshot = chain.snapshot();
    let mut shown: Vec<HookEntry> =
        snapshot.entries().iter().map(|entry| hook(chain, dispatcher, entry)).collect();
    let servers = chain.registrations().table();
    let directory = chain.registrations().directory();
    let rejected = |report: &FileReport, carrier, directory: &std::path::Path| {
        let error = report.error.clone()?;
        Some(HookEntry {
            name: report.name.clone(),
            carrier,
            mode: None,
            priority: 0,
            stages: Vec::new(),
            failure_policy: String::new(),
            timeout_ms: None,
            state: HookState::Rejected,
            detail: error,
            calls: 0,
            errors: 0,
            file: Some(directory.join(&report.name).display().to_string()),
        })
    };
    shown.extend(servers.files().iter().filter_map(|file| rejected(file, HookCarrier::Remote, directory)));
    if let Some(plugins) = chain.plugins() {
        let directory = plugins.directory();
        let table = plugins.table();
        shown.extend(table.files().iter().filter_map(|file| rejected(file, HookCarrier::Library, directory)));
    }
    shown
}

fn hook(chain: &Chain, dispatcher: &Dispatcher, entry: &Entry) -> HookEntry {
    let counts = dispatcher.counts(&entry.name);
    let mut state = if counts.skipped { HookState::OpenBreaker } else { HookState::Ok };
    let mut detail = String::new();
    if counts.skipped {
        detail.push_str("several calls in a row took too long; it is tried again soon");
    }
    let (carrier, mode, directory) = match &entry.carrier {
        Carrier::BuiltIn => (HookCarrier::BuiltIn, None, None),
        Carrier::Remote(_) => (HookCarrier::Remote, None, Some(chain.registrations().directory())),
        Carrier::Library(plugin) => {
            let health = plugin.health();
            if health.quarantined {
                state = HookState::Quarantined;
                detail = format!("{} calls hang in it; replace the file", health.hung_calls);
            } else if health.restarts > 0 && detail.is_empty() {
                detail = format!("its process was started again {} times", health.restarts);
            }
            let mode = match plugin.mode() {
                Mode::InProcess => LibraryMode::InProcess,
                Mode::Isolated => LibraryMode::Isolated,
            };
            (HookCarrier::Library, Some(mode), chain.plugins().map(|plugins| plugins.directory()))
        }
    };
    let built_in = carrier == HookCarrier::BuiltIn;
    HookEntry {
        name: entry.name.clone(),
        carrier,
        mode,
        priority: entry.priority,
        stages: entry.stages.iter().map(|stage| stage.as_str().to_owned()).collect(),
        failure_policy: if built_in { String::new() } else { entry.failure_policy.as_str().to_owned() },
        timeout_ms: entry.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        state,
        detail,
        calls: counts.calls,
        errors: counts.errors,
        file: directory.map(|directory| directory.join(&entry.name).display().to_string()),
    }
}
