//! Waiting for a state.

use std::thread;
use std::time::{Duration, Instant};

/// The limit of waits that should end at once: long enough for a machine under load.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Asks `probe` until it gives a value, at most for `limit`.
///
/// # Panics
/// When the limit passes; the message names what was waited for.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until `probe` says true, at most for [`LIMIT`].
///
/// # Panics
/// When the limit passes.
#[track_caller]
pub fn until_true(what: &str, mut probe: impl FnMut() -> bool) {
    until(what, LIMIT, || probe().then_some(()));
}
