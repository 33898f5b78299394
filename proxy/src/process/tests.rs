use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use koord_runtime::descriptors::Channel;
use tokio::sync::Notify;

use super::*;
use crate::flags::SocketMode;

/// A relay and a state that note what they are told. Streams end when the test says so.
#[derive(Default)]
struct Fake {
    noted: Mutex<Vec<String>>,
    streams: AtomicUsize,
    changed: Notify,
}

impl Fake {
    fn note(&self, what: impl Into<String>) {
        self.noted.lock().expect("not poisoned").push(what.into());
        self.changed.notify_waiters();
    }
    fn noted(&self) -> Vec<String> {
        self.noted.lock().expect("not poisoned").clone()
    }
    async fn until(&self, what: &str) {
        loop {
            let changed = self.changed.notified();
            if self.noted().iter().any(|noted| noted == what) {
                return;
            }
            changed.await;
        }
    }
    fn end_streams(&self) {
        self.streams.store(0, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

impl Relay for Fake {
    fn stop_accepting(&self) {
        self.note("stop");
    }
    fn resume_accepting(&self) {
        self.note("resume");
    }
    fn drain(&self, deadline: Instant) -> BoxFuture<'_> {
        let seconds = deadline.saturating_duration_since(Instant::now()).as_secs_f64().round();
        self.note(format!("drain {seconds}"));
        Box::pin(async {
            loop {
                let changed = self.changed.notified();
                if self.active_streams() == 0 {
                    return;
                }
                changed.await;
            }
        })
    }
    fn active_streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }
}

impl State for Fake {
    fn release(&self) -> BoxFuture<'_> {
        Box::pin(async { self.note("release") })
    }
    fn retake(&self) -> BoxFuture<'_> {
        Box::pin(async { self.note("retake") })
    }
    fn predecessor_ended(&self) {
        self.note("predecessor ended");
    }
}

struct Bed {
    folder: tempfile::TempDir,
    manager: UnixDatagram,
    fake: Arc<Fake>,
    life: Life,
    orders: mpsc::Sender<Order>,
    supervisor: Supervisor,
}

impl Bed {
    fn new(streams: usize) -> (Bed, Process) {
        let folder = tempfile::tempdir().expect("a folder");
        let manager = UnixDatagram::bind(folder.path().join("notify")).expect("bound");
        manager.set_nonblocking(true).expect("allowed");
        let notifier = Notifier::new(Some(folder.path().join("notify").as_os_str())).expect("a manager");
        let path = folder.path().join("x.sock").to_str().expect("text").parse().expect("a path");
        let mode = SocketMode::Octal(0o600);
        let listener = Listener::obtain(&path, mode, folder.path(), vec![]).expect("bound");
        let fake = Arc::new(Fake::default());
        fake.streams.store(streams, Ordering::SeqCst);
        let (orders, receiver) = mpsc::channel(ORDER_QUEUE);
        let life = Life::new();
        let supervisor = Supervisor::new(tokio::runtime::Handle::current());
        let process = Process {
            life: life.clone(),
            supervisor: supervisor.clone(),
            notifier: Arc::new(notifier),
            listener,
            admin_socket: None,
            admin_tasks: Vec::new(),
            program: None,
            relay: Arc::clone(&fake) as Arc<dyn Relay>,
            state: Arc::clone(&fake) as Arc<dyn State>,
            orders: receiver,
            log: None,
            shutdown_grace: Duration::from_secs(10),
            handover_drain: Duration::from_secs(600),
            limits: Limits { prepare: Duration::from_secs(20), serve: Duration::from_secs(20) },
            predecessor: None,
            status: watch::channel("as told".to_owned()).1,
        };
        (Bed { folder, manager, fake, life, orders, supervisor }, process)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("x.sock")
    }

    async fn order(&self, order: Order) {
        self.orders.send(order).await.expect("the process runs");
    }

    /// What the service manager heard so far, one message each.
    fn heard(&self) -> Vec<String> {
        let mut heard = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length) = self.manager.recv(&mut buffer) {
            heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        heard
    }
}

#[tokio::test]
async fn ready_when_the_rebuild_is_done() {
    let (bed, process) = Bed::new(0);
    become_ready(&bed.life, Some(&process.notifier), async {
        assert_eq!(bed.life.phase(), Phase::Recovering);
    })
    .await;
    assert_eq!(bed.life.phase(), Phase::Serving);
    assert_eq!(bed.heard(), ["READY=1\nSTATUS=serving\n"]);
}

#[tokio::test(start_paused = true)]
async fn ready_after_five_seconds_at_the_latest() {
    let life = Life::new();
    let started = tokio::time::Instant::now();
    become_ready(&life, None, std::future::pending()).await;
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    assert_eq!(life.phase(), Phase::Serving);
}

#[tokio::test]
async fn an_order_to_end_drains_saves_and_removes_the_socket() {
    let (bed, process) = Bed::new(3);
    let _worker = bed.supervisor.spawn("worker", Policy::EndProcess, |token| async move {
        token.cancelled().await;
        Ok(())
    });
    let (exit, ()) = tokio::join!(process.run(), async {
        bed.order(Order::ToggleLogLevel).await;
        bed.order(Order::End).await;
        bed.fake.until("drain 10").await;
        assert_eq!(bed.life.phase(), Phase::Draining);
        bed.fake.end_streams();
    });
    assert_eq!(exit, Exit::Success);
    assert_eq!(bed.fake.noted(), ["stop", "drain 10", "release"]);
    assert_eq!(bed.life.phase(), Phase::Stopped);
    assert_eq!(bed.supervisor.running(), 0);
    assert!(!bed.socket().exists());
    let heard = bed.heard();
    assert_eq!(heard[0], "STOPPING=1\nSTATUS=draining 3 streams\nEXTEND_TIMEOUT_USEC=18000000\n");
    // The kept socket is given up: whoever starts next binds one of its own.
    assert!(heard.len() == 2 && heard[1].starts_with("FDSTOREREMOVE=1\nFDNAME=own-"), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_hangs_does_not_keep_the_checkpoint_from_being_written() {
    let (bed, process) = Bed::new(1);
    bed.order(Order::Drain).await;
    let started = tokio::time::Instant::now();
    assert_eq!(process.run().await, Exit::Success);
    assert_eq!(started.elapsed(), Duration::from_secs(13));
    assert_eq!(bed.fake.noted(), ["stop", "drain 10", "release"]);
}

#[tokio::test]
async fn the_second_signal_ends_at_once() {
    let (bed, process) = Bed::new(1);
    bed.order(Order::End).await;
    bed.order(Order::End).await;
    assert_eq!(process.run().await, Exit::RuntimeError);
    assert!(!bed.fake.noted().contains(&"release".to_owned()));
    assert!(!bed.socket().exists());

    // A signal after a drain that an operator asked for is the first one.
    let (bed, process) = Bed::new(1);
    for order in [Order::Drain, Order::End, Order::Reload, Order::Drain, Order::End] {
        bed.order(order).await;
    }
    assert_eq!(process.run().await, Exit::RuntimeError);
}

#[tokio::test]
async fn the_end_of_an_essential_task_is_a_runtime_error() {
    let (bed, process) = Bed::new(0);
    let _task = bed.supervisor.spawn("acceptor", Policy::EndProcess, |_token| async { Err("gone".into()) });
    assert_eq!(process.run().await, Exit::RuntimeError);
    assert_eq!(bed.fake.noted(), ["stop", "drain 10", "release"]);
}

#[tokio::test]
async fn a_reload_that_fails_leaves_the_service_as_it_was() {
    let (bed, mut process) = Bed::new(0);
    process.program = Some(Program { file: "/nonexistent/proxy".into(), arguments: vec![] });
    bed.life.advance(Phase::Serving);
    let (exit, ()) = tokio::join!(process.run(), async {
        bed.order(Order::Reload).await;
        let heard = loop {
            let heard = bed.heard();
            if heard.len() >= 2 {
                break heard;
            }
            assert!(heard.is_empty(), "both messages are sent without a pause between");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(heard[0].starts_with("RELOADING=1\nMONOTONIC_USEC="), "{heard:?}");
        assert!(
            heard[1].starts_with(
                "READY=1\nSTATUS=serving; the last hand-over failed: cannot start /nonexistent/proxy: "
            ),
            "{heard:?}"
        );
        assert_eq!(bed.life.phase(), Phase::Serving);
        UnixStream::connect(bed.socket()).expect("still listening");
        bed.order(Order::Drain).await;
    });
    assert_eq!(exit, Exit::Success);
    assert_eq!(bed.fake.noted(), ["stop", "drain 10", "release"]);
}

/// Does nothing unless it was started for a hand-over.
#[test]
fn role_successor() {
    let environment = koord_runtime::environment::Environment::from_process();
    match environment.handover {
        None => {}
        Some(koord_runtime::environment::HandoverRole::Launch) => {
            handover::launch(&program("role_successor")).expect("started");
        }
        Some(koord_runtime::environment::HandoverRole::Succeed) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut succession = Succession::from_standard_input().expect("a channel");
                let _inheritance = succession.receive().await.expect("received");
                succession.prepared().await.expect("go");
                succession.serving().await;
                succession.predecessor_ended().await.expect("ended");
            });
        }
    }
}

fn program(role: &str) -> Program {
    let tests = std::env::current_exe().expect("this program");
    // Its report of one test passed is not one of this run's.
    let line = format!("exec '{}' --exact process::tests::{role} --nocapture >/dev/null", tests.display());
    Program { file: "/bin/sh".into(), arguments: vec!["-c".into(), line.into()] }
}

#[tokio::test]
async fn after_a_hand_over_the_old_process_drains_and_leaves_the_path() {
    let (bed, mut process) = Bed::new(2);
    process.program = Some(program("role_successor"));
    process.admin_tasks.push(bed.supervisor.spawn("admin", Policy::EndProcess, |token| async move {
        token.cancelled().await;
        Ok(())
    }));
    let (exit, ()) = tokio::join!(process.run(), async {
        bed.order(Order::Reload).await;
        bed.fake.until("drain 600").await;
        assert_eq!(bed.life.phase(), Phase::Draining);
        // The admin listener has been told to end.
        while bed.supervisor.running() > 0 {
            tokio::task::yield_now().await;
        }
        // A signal shortens the drain to the grace time of a shutdown.
        bed.order(Order::End).await;
        bed.fake.until("drain 10").await;
        bed.fake.end_streams();
    });
    assert_eq!(exit, Exit::Success);
    assert_eq!(bed.fake.noted(), ["stop", "release", "drain 600", "drain 10"]);
    assert!(bed.socket().exists());
    let heard = bed.heard();
    assert_eq!(heard.len(), 2, "{heard:?}");
    let pid: u32 = heard[1]
        .strip_prefix("MAINPID=")
        .and_then(|rest| rest.split('\n').next())
        .and_then(|pid| pid.parse().ok())
        .expect("a process id");
    assert_ne!(pid, std::process::id());
    assert!(heard[1].contains("\nREADY=1\n"), "{heard:?}");
}

#[tokio::test]
async fn a_successor_follows_its_predecessor() {
    let (bed, mut process) = Bed::new(0);
    let (old, theirs) = Channel::pair().expect("a pair");
    process.predecessor = Some(Succession::over(Channel::adopt(theirs).expect("adopted")));
    let (exit, ()) = tokio::join!(process.run(), async {
        drop(old);
        bed.fake.until("predecessor ended").await;
        bed.order(Order::Drain).await;
    });
    assert_eq!(exit, Exit::Success);
    let heard = bed.heard();
    assert_eq!(heard.first().map(String::as_str), Some("STATUS=as told\n"), "it drains no longer: {heard:?}");

    // One that was given up leaves everything to its predecessor.
    let (bed, mut process) = Bed::new(0);
    let (old, theirs) = Channel::pair().expect("a pair");
    process.predecessor = Some(Succession::over(Channel::adopt(theirs).expect("adopted")));
    old.send("cancel", &[]).await.expect("sent");
    assert_eq!(process.run().await, Exit::RuntimeError);
    assert_eq!(bed.fake.noted(), ["stop"]);
    assert!(bed.socket().exists());
}
