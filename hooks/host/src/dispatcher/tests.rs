use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::*;
use crate::metrics::NoMetrics;
use crate::registration::Registration;
use koord_hook::HookSet;

fn server(directory: &TempDir, name: &str, text: &str) -> Server {
    let socket = directory.path().join(format!("{name}.sock"));
    let text = format!(r#"{{"remote-endpoint":"{}"{text}}}"#, socket.display());
    Server {
        name: name.to_owned(),
        registration: Registration::parse(text.as_bytes()).expect("a registration"),
    }
}

/// Accepts connections and says nothing, counting them.
fn silent(path: &Path) -> (Arc<AtomicUsize>, JoinHandle<()>) {
    let listener = UnixListener::bind(path).expect("bound");
    let count: Arc<AtomicUsize> = Arc::default();
    let counter = count.clone();
    let task = tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            kept.push(listener.accept().await.expect("accepted"));
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    (count, task)
}

async fn call(dispatcher: &Dispatcher, server: &Server, milliseconds: u64) -> Result<Bytes, HookError> {
    let within = Duration::from_millis(milliseconds);
    let decode = |bytes: &[u8]| Ok(Bytes::copy_from_slice(bytes));
    dispatcher.call(server, HookType::PreRunPodSandbox, Bytes::new(), within, decode).await
}

fn is_timeout(result: &Result<Bytes, HookError>) -> bool {
    matches!(result, Err(HookError::Call(status)) if status.code() == Code::DeadlineExceeded)
}

#[tokio::test]
async fn a_hung_server_is_skipped_after_three_timeouts_if_it_may_be_ignored() {
    let directory = tempfile::tempdir().expect("a directory");
    let dispatcher = Dispatcher::new(Trust::of_this_process(), NoMetrics);
    let ignore = server(&directory, "ignore", "");
    let (_, serving) = silent(ignore.registration.endpoint.path());
    for _ in 0..3 {
        assert!(is_timeout(&call(&dispatcher, &ignore, 100).await));
    }
    let started = Instant::now();
    let skipped = call(&dispatcher, &ignore, 20_000).await.expect_err("skipped");
    assert!(matches!(skipped, HookError::Skipped) && skipped.reason() == "breaker");
    assert!(started.elapsed() < Duration::from_secs(20), "nobody is waited for");

    let fail = server(&directory, "fail", r#","failure-policy":"Fail""#);
    let (_, serving_fail) = silent(fail.registration.endpoint.path());
    for _ in 0..4 {
        assert!(is_timeout(&call(&dispatcher, &fail, 100).await));
    }
    serving.abort();
    serving_fail.abort();
}

#[tokio::test]
async fn too_short_a_time_says_nothing_about_the_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let dispatcher = Dispatcher::new(Trust::of_this_process(), NoMetrics);
    let ignore = server(&directory, "ignore", "");
    let (connections, serving) = silent(ignore.registration.endpoint.path());
    for _ in 0..5 {
        assert!(is_timeout(&call(&dispatcher, &ignore, 10).await));
    }
    // With no time at all the server is not even called.
    let connections_before = connections.load(Ordering::SeqCst);
    for _ in 0..5 {
        assert!(is_timeout(&call(&dispatcher, &ignore, 0).await));
    }
    assert_eq!(connections.load(Ordering::SeqCst), connections_before);
    assert!(is_timeout(&call(&dispatcher, &ignore, 100).await));
    serving.abort();
}

#[tokio::test]
async fn prompt_failures_never_open_the_breaker() {
    let directory = tempfile::tempdir().expect("a directory");
    let dispatcher = Dispatcher::new(Trust::of_this_process(), NoMetrics);
    let absent = server(&directory, "absent", "");
    for _ in 0..10 {
        let error = call(&dispatcher, &absent, 1000).await.expect_err("no server");
        assert_eq!(error.reason(), "unavailable");
        assert!(
            error.to_string().starts_with("rpc error: code = Unavailable desc = connection error"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn connections_go_with_their_registrations() {
    let directory = tempfile::tempdir().expect("a directory");
    let dispatcher = Dispatcher::new(Trust::of_this_process(), NoMetrics);
    let one = server(&directory, "one", "");
    let two = server(&directory, "two", "");
    for server in [&one, &two, &one] {
        assert!(call(&dispatcher, server, 1000).await.is_err());
    }
    assert_eq!(dispatcher.connections(), 2);
    dispatcher.retain(&Table::of([two]));
    assert_eq!(dispatcher.connections(), 1);
    dispatcher.retain(&Table::default());
    assert_eq!(dispatcher.connections(), 0);
}

#[test]
fn registrations_without_hooks_are_not_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = Table::of([server(&directory, "none", "")]);
    assert_eq!(table.hooks(), HookSet::default());
    assert_eq!(table.servers_for(HookType::PreRunPodSandbox).count(), 0);
}
