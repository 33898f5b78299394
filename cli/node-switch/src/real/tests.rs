use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;

use super::*;

fn node() -> (tempfile::TempDir, RealSystem) {
    let folder = tempfile::tempdir().unwrap();
    let system = RealSystem::new(folder.path(), Path::new("/nonexistent/admin.sock"));
    (folder, system)
}

/// A file of whoever runs the test.
fn own(text: &str, mode: u32) -> FileState {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    FileState { text: text.to_owned(), mode, uid, gid }
}

#[test]
fn files_are_replaced_with_mode_and_owner() {
    let (folder, system) = node();
    let path = Path::new("/etc/a/b.conf");
    assert_eq!(system.read(path).unwrap(), None);
    for state in [own("one\n", 0o640), own("two", 0o600), own("", 0o755)] {
        system.write(path, &state).unwrap();
        assert_eq!(system.read(path).unwrap(), Some(state));
        assert_eq!(system.list(Path::new("/etc/a")).unwrap(), ["b.conf"]);
    }
    // What an interrupted write has left is no obstacle.
    fs::write(folder.path().join("etc/a/.b.conf.koord-switch"), "half").unwrap();
    system.write(path, &own("three", 0o644)).unwrap();
    assert_eq!(system.list(Path::new("/etc/a")).unwrap(), ["b.conf"]);
    system.remove(path).unwrap();
    system.remove(path).unwrap();
    assert!(!system.exists(path));
    system.remove_directory(Path::new("/etc")).unwrap();
    assert!(system.exists(Path::new("/etc/a")), "a directory with something in it stays");
    system.remove_directory(Path::new("/etc/a")).unwrap();
    assert!(!system.exists(Path::new("/etc/a")));
}

#[test]
fn links_stay_links() {
    let (folder, system) = node();
    fs::create_dir(folder.path().join("real")).unwrap();
    fs::write(folder.path().join("real/file"), "old").unwrap();
    std::os::unix::fs::symlink(folder.path().join("real/file"), folder.path().join("link")).unwrap();
    system.write(Path::new("/link"), &own("new", 0o644)).unwrap();
    assert!(fs::symlink_metadata(folder.path().join("link")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(folder.path().join("real/file")).unwrap(), "new");
    // A masked unit is a link to no regular file.
    std::os::unix::fs::symlink("/dev/null", folder.path().join("masked")).unwrap();
    assert_eq!(system.read(Path::new("/masked")).unwrap(), None);
}

#[test]
fn files_that_are_no_text_are_refused() {
    let (folder, system) = node();
    fs::write(folder.path().join("binary"), [0xff, 0xfe]).unwrap();
    let error = system.read(Path::new("/binary")).unwrap_err().to_string();
    assert!(error.contains("/binary"), "{error}");
}

#[test]
fn one_switch_at_a_time_and_no_trace_of_the_lock() {
    let (folder, system) = node();
    let lock = system.lock().unwrap();
    assert!(matches!(system.lock(), Err(LockError::Held)));
    drop(lock);
    assert!(!folder.path().join("var/lib/koord").exists());
    // With a journal it stays where it is.
    let lock = system.lock().unwrap();
    system.write(Path::new(JOURNAL_FILE), &own("{}", 0o600)).unwrap();
    drop(lock);
    assert!(system.exists(Path::new(LOCK_FILE)));
    assert!(system.lock().is_ok());
}

#[test]
fn commands_end_or_are_ended() {
    let result = run(&["sh", "-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(30)).unwrap();
    assert_eq!(result, CommandResult { code: Some(3), output: "out\n".into(), complaints: "err\n".into() });
    assert_eq!(result.reason(), "err");
    let result = run(&["sleep", "100"], Duration::from_millis(20)).unwrap();
    assert_eq!((result.code, result.is_success()), (None, false));
    assert!(run(&["/nonexistent/program"], Duration::from_secs(1)).is_err());
    // More than a pipe holds.
    let result =
        run(&["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"], Duration::from_secs(30)).unwrap();
    assert_eq!(result.output.len(), 300_000);
}

#[test]
fn processes_of_this_node_are_seen() {
    let system = RealSystem::new(Path::new("/"), Path::new("/x"));
    let own = std::process::id();
    let found = system.processes().into_iter().find(|process| process.pid == own).unwrap();
    assert_eq!(found.arguments, std::env::args().collect::<Vec<_>>());
    assert!(system.room(Path::new("/nonexistent/x")).unwrap().free_bytes > 0);
    assert!(!system.host_name().is_empty());
}

#[test]
fn health_checks_are_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let first = BufReader::new(stream.try_clone().unwrap()).lines().next().unwrap().unwrap();
        stream.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n").unwrap();
        first
    });
    let system = RealSystem::new(Path::new("/"), Path::new("/x"));
    assert_eq!(system.http_status(&address, "/healthz", Duration::from_secs(10)), Ok(503));
    assert_eq!(server.join().unwrap(), "GET /healthz HTTP/1.1");
    assert!(system.http_status("127.0.0.1:1", "/", Duration::from_secs(10)).is_err());
    assert!(system.runtime_version(Path::new("/nonexistent/x.sock"), Duration::from_secs(10)).is_err());
    assert!(system.admin("GET", "/readyz", "", Duration::from_secs(10)).is_err());
}
