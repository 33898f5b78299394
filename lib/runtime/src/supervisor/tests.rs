use std::sync::atomic::AtomicUsize;

use super::*;

fn supervisor() -> Supervisor {
    Supervisor::new(tokio::runtime::Handle::current())
}

async fn until_idle(supervisor: &Supervisor) {
    let mut running = supervisor.inner.running.subscribe();
    running.wait_for(|count| *count == 0).await.map(|_| ()).expect("the supervisor is alive");
}

#[tokio::test(start_paused = true)]
async fn restarts_after_panic_and_error_until_a_good_end() {
    let supervisor = supervisor();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let handle = supervisor.spawn("flaky", Policy::Restart(Backoff::default()), move |_token| {
        let run = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match run {
                0 => panic!("first"),
                1 => Err("second".into()),
                _ => Ok(()),
            }
        }
    });
    handle.finished().await;
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!(supervisor.panics(), 1);
    assert_eq!(supervisor.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_building_the_future_is_caught_too() {
    let supervisor = supervisor();
    let mut first = true;
    let handle = supervisor.spawn("builder", Policy::Restart(Backoff::default()), move |_token| {
        let panic_now = std::mem::replace(&mut first, false);
        assert!(!panic_now, "while building");
        async { Ok(()) }
    });
    handle.finished().await;
    assert_eq!(supervisor.panics(), 1);
}

#[tokio::test]
async fn essential_task_that_ends_is_a_failure_of_the_process() {
    let supervisor = supervisor();
    let _first = supervisor.spawn("good", Policy::EndProcess, |_token| async { Ok(()) });
    let failure = supervisor.failed().await;
    assert_eq!(failure, Failure { task: "good".into(), reason: "it returned".into() });

    let other = Supervisor::new(tokio::runtime::Handle::current());
    let _second = other.spawn("bad", Policy::EndProcess, |_token| async { panic!("boom {}", 7) });
    assert_eq!(other.failed().await.reason, "panic: boom 7");
}

#[tokio::test]
async fn essential_task_may_end_when_asked() {
    let supervisor = supervisor();
    let _handle = supervisor.spawn("asked", Policy::EndProcess, |token| async move {
        token.cancelled().await;
        Err("on the way out".into())
    });
    assert_eq!(supervisor.shut_down(Duration::from_secs(60)).await, Vec::<String>::new());
    assert!(supervisor.inner.failure.borrow().is_none());
}

#[tokio::test(start_paused = true)]
async fn shut_down_names_and_drops_what_does_not_end() {
    let supervisor = supervisor();
    let _deaf = supervisor.spawn_once("deaf", async {
        std::future::pending::<()>().await;
        Ok(())
    });
    let _polite = supervisor.spawn("polite", Policy::Report, |token| async move {
        token.cancelled().await;
        Ok(())
    });
    assert_eq!(supervisor.shut_down(Duration::from_secs(1)).await, vec!["deaf".to_owned()]);
    until_idle(&supervisor).await;
}

#[tokio::test]
async fn cancelling_one_task_leaves_the_others() {
    let supervisor = supervisor();
    let wait = |token: CancellationToken| async move {
        token.cancelled().await;
        Ok(())
    };
    let first = supervisor.spawn("first", Policy::EndProcess, wait);
    let _second = supervisor.spawn("second", Policy::EndProcess, wait);
    first.cancel();
    first.finished().await;
    let names: Vec<String> = supervisor.status().into_iter().map(|status| status.name).collect();
    assert_eq!(names, ["second"]);
    assert!(supervisor.inner.failure.borrow().is_none());
}

#[tokio::test]
async fn a_thread_is_named_counted_and_its_panic_caught() {
    let supervisor = supervisor();
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let (named, name) = tokio::sync::oneshot::channel();
    supervisor
        .thread("connection", ThreadOptions::default(), move |_token| {
            let _sent = named.send(std::thread::current().name().map(str::to_owned));
            let _closed = receive.recv();
            panic!("in the thread");
        })
        .expect("a thread starts");
    assert_eq!(name.await.expect("sent"), Some("connection".to_owned()));
    assert_eq!(supervisor.running(), 1);
    assert!(supervisor.status()[0].thread);
    drop(send);
    until_idle(&supervisor).await;
    assert_eq!(supervisor.panics(), 1);
    assert!(supervisor.inner.failure.borrow().is_none());
}

#[tokio::test]
async fn an_essential_thread_that_ends_is_a_failure() {
    let supervisor = supervisor();
    let options = ThreadOptions { essential: true, ..ThreadOptions::default() };
    supervisor.thread("acceptor", options, |_token| Err("socket gone".into())).expect("a thread starts");
    assert_eq!(supervisor.failed().await, Failure { task: "acceptor".into(), reason: "socket gone".into() });
}
