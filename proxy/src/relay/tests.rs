//! Signs of life of the relay's threads.

use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::*;
use crate::flags::PeerCheck;
use crate::peer::PeerRule;
use crate::pipeline::{Outcome, RequestHead, TapMode, Verdict};

/// Looks at nothing, for as long as the test wants.
#[derive(Default)]
struct Dawdler {
    asked: AtomicBool,
    held: Mutex<()>,
}

impl Interceptor for Dawdler {
    type Call = ();

    fn mode(&self, _path: &str) -> TapMode {
        self.asked.store(true, Ordering::SeqCst);
        drop(self.held.lock().expect("not poisoned"));
        TapMode::Pass
    }

    fn start(self: &Arc<Self>, _head: RequestHead, _message: Vec<u8>) -> Begun<()> {
        Begun::Ready(Verdict::Forward, ())
    }

    fn finish(self: &Arc<Self>, _call: (), _outcome: Outcome<'_>) -> Option<BoxFuture<()>> {
        None
    }
}

struct Bed {
    serving: Serving<Dawdler>,
    interceptor: Arc<Dawdler>,
    folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
    _backend: UnixListener,
}

impl Bed {
    fn new() -> Bed {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let backend = UnixListener::bind(path("backend")).expect("bound");
        let listener = UnixListener::bind(path("proxy")).expect("bound");
        listener.set_nonblocking(true).expect("allowed");
        let interceptor = Arc::new(Dawdler::default());
        let options = RelayOptions {
            backend: path("backend"),
            image_backend: None,
            backend_wait: Duration::from_secs(1),
            max_message_bytes: 1 << 20,
            filter: None,
        };
        let supervisor = Supervisor::new(runtime.handle().clone());
        let metrics = Metrics::register(&mut Registry::default());
        let relay = Relay::new(options, Arc::clone(&interceptor), metrics, supervisor.clone());
        let peers = PeerRule::new(PeerCheck::Off, path("backend"));
        let acceptor = Acceptor::start(&relay, &listener, peers, &supervisor).expect("started");
        let serving = Serving { relay, acceptor };
        Bed { serving, interceptor, folder, _runtime: runtime, _backend: backend }
    }

    fn client(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("proxy")).expect("listening")
    }

    /// Asks until this is silent, and nothing else is.
    fn until_silent(&self, expected: &[&str]) {
        until(|| self.serving.silent() == expected);
    }

    /// A thread that works answers each question sooner or later, so that none is silent for long.
    fn answers(&self) {
        for _turn in 0..3 {
            until(|| !self.serving.acceptor.is_silent() && !self.any_connection_is_silent());
            assert_eq!(self.serving.silent(), Vec::<String>::new());
        }
    }

    fn any_connection_is_silent(&self) -> bool {
        self.serving.relay.shared.connections().values().any(|mailbox| mailbox.is_silent())
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "it did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The beginning of an HTTP/2 connection with one call.
fn call(path: &str) -> Vec<u8> {
    let mut octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // Empty settings; then headers with POST, http and the path as a literal.
    octets.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let length = u8::try_from(path.len()).expect("short");
    let block = [&[0x83, 0x86, 0x04, length], path.as_bytes()].concat();
    octets.extend([0, 0, u8::try_from(block.len()).expect("short"), 1, 4, 0, 0, 0, 1]);
    octets.extend(block);
    octets
}

#[test]
fn a_connection_that_hangs_is_named_until_it_goes_on() {
    let bed = Bed::new();
    let (_idle, mut busy) = (bed.client(), bed.client());
    until(|| bed.serving.relay.connections() == 2);
    bed.answers();

    let held = bed.interceptor.held.lock().expect("not poisoned");
    busy.write_all(&call("/runtime.v1.RuntimeService/Version")).expect("written");
    until(|| bed.interceptor.asked.load(Ordering::SeqCst));
    bed.until_silent(&["connection 2"]);
    // As long as it hangs; the others answer in their own time.
    bed.until_silent(&["connection 2"]);
    drop(held);
    bed.answers();
}

#[test]
fn an_acceptor_answers_also_while_it_pauses_and_owes_nothing_after_its_end() {
    let bed = Bed::new();
    bed.answers();
    bed.serving.acceptor.pause();
    bed.answers();
    bed.serving.acceptor.resume();
    let _client = bed.client();
    until(|| bed.serving.relay.connections() == 1);
    bed.answers();
    bed.serving.acceptor.end();
    for _turn in 0..3 {
        assert!(!bed.serving.acceptor.is_silent());
        bed.serving.acceptor.ask();
    }
}
