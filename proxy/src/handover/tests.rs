//! The exchange between two ends in one process, and with processes of their own: this test program
//! starts itself again in the roles of [`HandoverRole`].

use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use super::*;
use crate::flags::SocketMode;

const SHORT: Limits = Limits { prepare: Duration::from_secs(20), serve: Duration::from_secs(20) };

#[derive(Default)]
struct Recorder(Mutex<Vec<&'static str>>);

impl Recorder {
    fn note(&self, what: &'static str) {
        self.0.lock().expect("not poisoned").push(what);
    }
    fn noted(&self) -> Vec<&'static str> {
        self.0.lock().expect("not poisoned").clone()
    }
}

impl Predecessor for Recorder {
    fn stop_accepting(&self) {
        self.note("stop");
    }
    fn resume_accepting(&self) {
        self.note("resume");
    }
    fn release_state(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { self.note("release") })
    }
    fn retake_state(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { self.note("retake") })
    }
}

struct Bed {
    _folder: tempfile::TempDir,
    path: PathBuf,
    listener: Listener,
}

fn bed() -> Bed {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.sock");
    let endpoint = path.to_str().expect("text").parse().expect("a path");
    let mode = SocketMode::Octal(0o600);
    let listener = Listener::obtain(&endpoint, mode, &folder.path().join("none"), vec![]).expect("bound");
    Bed { _folder: folder, path, listener }
}

fn ends() -> (Channel, Succession) {
    let (ours, theirs) = Channel::pair().expect("a pair");
    (ours, Succession::over(Channel::adopt(theirs).expect("adopted")))
}

#[tokio::test]
async fn the_socket_and_its_ownership_arrive() {
    let bed = bed();
    let (old, mut new) = ends();
    let deadline = Instant::now() + SHORT.prepare;
    let (pid, inheritance) = tokio::join!(prepare(&old, &bed.listener, deadline, SHORT.prepare), async {
        let inheritance = new.receive().await.expect("received");
        old_says_go(&mut new, &old).await;
        inheritance
    });
    assert_eq!(pid.expect("prepared"), std::process::id());
    assert_eq!(inheritance.ownership, Ownership::Own);
    let _client = UnixStream::connect(&bed.path).expect("connected");
    inheritance.listener.set_nonblocking(false).expect("allowed");
    inheritance.listener.accept().expect("the same socket");
}

async fn old_says_go(new: &mut Succession, old: &Channel) {
    old.send(GO, &[]).await.expect("sent");
    assert_eq!(new.prepared().await.expect("go"), Go::Handed);
}

#[tokio::test]
async fn an_old_process_that_dies_leaves_the_service_to_the_new_one() {
    let bed = bed();
    let (old, mut new) = ends();
    old.send("koord-handover 1 passed", &[bed.listener.socket().as_fd()]).await.expect("sent");
    assert_eq!(new.receive().await.expect("received").ownership, Ownership::Passed);
    drop(old);
    assert_eq!(new.prepared().await.expect("go on"), Go::Orphaned);
    new.serving().await;
    new.predecessor_ended().await.expect("it ended");
}

#[tokio::test]
async fn an_old_process_that_dies_before_the_socket_ends_the_new_one() {
    let (old, mut new) = ends();
    drop(old);
    assert!(matches!(new.receive().await, Err(SuccessionError::Ended)));
}

#[tokio::test]
async fn other_versions_are_refused() {
    let bed = bed();
    for (greeting, with_socket) in [
        ("koord-handover 2 own", true),
        ("koord-handover 1 borrowed", true),
        ("koord-handover 1 own", false),
        ("hello", true),
    ] {
        let (old, mut new) = ends();
        let socket = [bed.listener.socket().as_fd()];
        let descriptors = if with_socket { &socket[..] } else { &[] };
        old.send(greeting, descriptors).await.expect("sent");
        match new.receive().await {
            Err(SuccessionError::Greeting(text)) => assert_eq!(text, greeting),
            other => panic!("{greeting}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_cancelled_new_process_is_told() {
    let (old, mut new) = ends();
    cancel(&old, None).await;
    assert!(matches!(new.prepared().await, Err(SuccessionError::Cancelled)));

    let (old, mut new) = ends();
    old_says_go(&mut new, &old).await;
    new.serving().await;
    cancel(&old, None).await;
    assert!(matches!(new.predecessor_ended().await, Err(SuccessionError::Cancelled)));
}

#[tokio::test(start_paused = true)]
async fn waiting_has_a_limit_and_answers_are_checked() {
    let bed = bed();
    let (old, _silent) = ends();
    let limit = Duration::from_secs(60);
    let error = prepare(&old, &bed.listener, Instant::now() + limit, limit).await.expect_err("silent");
    assert_eq!(error.to_string(), "the new process was not prepared within 60s");

    let (old, new) = ends();
    new.channel.send("prepared soon", &[]).await.expect("sent");
    let error = prepare(&old, &bed.listener, Instant::now() + limit, limit).await.expect_err("no number");
    assert!(matches!(error, HandoverError::Unexpected { step: "prepared", .. }), "{error}");
    new.channel.send("nonsense", &[]).await.expect("sent");
    let error = switch(&old, limit).await.expect_err("not serving");
    assert!(matches!(error, HandoverError::Unexpected { step: "serving", .. }), "{error}");
}

// ---- With processes. Each role below is a test that does nothing unless it was started for a hand-over.

fn program(role: &str) -> Program {
    let tests = std::env::current_exe().expect("this program");
    // Its report of one test passed is not one of this run's.
    let line = format!("exec '{}' --exact handover::tests::{role} --nocapture >/dev/null", tests.display());
    Program { file: "/bin/sh".into(), arguments: vec!["-c".into(), line.into()] }
}

/// Plays the part that the environment asks for; `succeed` is the new process after launching.
fn play(role: &str, succeed: impl AsyncFnOnce(Succession)) {
    let environment = koord_runtime::environment::Environment::from_process();
    match environment.handover {
        None => {}
        Some(HandoverRole::Launch) => launch(&program(role)).expect("started"),
        Some(HandoverRole::Succeed) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                succeed(Succession::from_standard_input().expect("a channel")).await;
            });
        }
    }
}

#[test]
fn role_good() {
    play("role_good", async |mut succession| {
        let inheritance = succession.receive().await.expect("received");
        assert_eq!(succession.prepared().await.expect("go"), Go::Handed);
        inheritance.listener.set_nonblocking(true).expect("allowed");
        let listener = tokio::net::UnixListener::from_std(inheritance.listener).expect("watched");
        succession.serving().await;
        use tokio::io::AsyncWriteExt as _;
        let (mut client, _) = listener.accept().await.expect("accepted");
        client.write_all(b"new").await.expect("written");
        succession.predecessor_ended().await.expect("ended");
        client.write_all(b" alone").await.expect("written");
    });
}

#[test]
fn role_dies_at_once() {
    play("role_dies_at_once", async |_succession| {});
}

#[test]
fn role_dies_after_go() {
    play("role_dies_after_go", async |mut succession| {
        let _inheritance = succession.receive().await.expect("received");
        assert_eq!(succession.prepared().await.expect("go"), Go::Handed);
    });
}

#[test]
fn role_never_serves() {
    play("role_never_serves", async |mut succession| {
        let _inheritance = succession.receive().await.expect("received");
        assert_eq!(succession.prepared().await.expect("go"), Go::Handed);
        std::future::pending::<()>().await;
    });
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[tokio::test]
async fn a_new_process_takes_over() {
    let Bed { _folder, path, listener } = bed();
    let recorder = Recorder::default();
    let successor = hand_over(&program("role_good"), &listener, &recorder, SHORT, std::future::pending())
        .await
        .expect("handed over");
    assert_eq!(recorder.noted(), ["stop", "release"]);
    assert_ne!(successor.pid(), std::process::id());
    assert_ne!(parent_of(successor.pid()), Some(std::process::id()), "it is not our child");
    listener.leave();

    use tokio::io::AsyncReadExt as _;
    let mut client = tokio::net::UnixStream::connect(&path).await.expect("served");
    let mut first = [0; 3];
    client.read_exact(&mut first).await.expect("answered");
    assert_eq!(&first, b"new");
    drop(successor);
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.expect("answered");
    assert_eq!(rest, " alone");
}

async fn failed(program: &Program, limits: Limits) -> (HandoverError, Vec<&'static str>) {
    let bed = bed();
    let recorder = Recorder::default();
    let error = hand_over(program, &bed.listener, &recorder, limits, std::future::pending())
        .await
        .expect_err("failed");
    UnixStream::connect(&bed.path).expect("the old process still listens");
    bed.listener.socket().accept().expect("and can accept");
    (error, recorder.noted())
}

#[tokio::test]
async fn the_old_process_serves_on_when_the_new_one_fails() {
    let (error, noted) = failed(&program("role_dies_at_once"), SHORT).await;
    // Its end may be seen while the socket is being sent, or after.
    assert!(
        matches!(
            error,
            HandoverError::Ended { step: "prepared" } | HandoverError::Channel { step: "prepared", .. }
        ),
        "{error}"
    );
    assert_eq!(noted, Vec::<&str>::new());

    let (error, noted) = failed(&program("role_dies_after_go"), SHORT).await;
    assert!(matches!(error, HandoverError::Ended { step: "serving" }), "{error}");
    assert_eq!(noted, ["stop", "release", "retake", "resume"]);

    let quick = Limits { serve: Duration::from_millis(100), ..SHORT };
    let (error, noted) = failed(&program("role_never_serves"), quick).await;
    assert!(matches!(error, HandoverError::TooSlow { step: "serving", .. }), "{error}");
    assert_eq!(noted, ["stop", "release", "retake", "resume"]);
}

#[tokio::test]
async fn a_hand_over_can_be_given_up() {
    let bed = bed();
    let recorder = Recorder::default();
    let error = hand_over(&program("role_never_serves"), &bed.listener, &recorder, SHORT, async {
        while !recorder.noted().contains(&"release") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect_err("given up");
    assert!(matches!(error, HandoverError::GivenUp), "{error}");
    assert_eq!(recorder.noted(), ["stop", "release", "retake", "resume"]);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_named() {
    let missing = Program { file: "/nonexistent/proxy".into(), arguments: vec![] };
    let (error, noted) = failed(&missing, SHORT).await;
    assert_eq!(error.to_string(), "cannot start /nonexistent/proxy");
    assert_eq!(noted, Vec::<&str>::new());
    let refusing = Program { file: "/bin/false".into(), arguments: vec![] };
    let (error, _) = failed(&refusing, SHORT).await;
    assert_eq!(error.to_string(), "starting /bin/false failed with exit status: 1");
}
