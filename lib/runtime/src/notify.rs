//! Tells the service manager what the process is doing (`sd_notify(3)` and `systemd.service(5)`,
//! `Type=notify`).

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};

use crate::supervisor::{Policy, Supervisor};

/// One fact about the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// Start-up or a reload is finished.
    Ready,
    /// A reload has begun, at this many microseconds of the monotonic clock.
    Reloading {
        /// Taken from [`monotonic_microseconds`].
        monotonic_usec: u64,
    },
    /// The process has begun to end.
    Stopping,
    /// One line for `systemctl status`. Control characters are replaced by spaces.
    Status(String),
    /// Another process is the main one of the service from now on.
    MainPid(u32),
    /// Alive.
    Watchdog,
    /// The watchdog should count this process as failed now.
    WatchdogTrigger,
    /// Allows this much more time for starting, reloading or stopping.
    ExtendTimeout(Duration),
    /// Keep the descriptors sent along, under this name (letters, digits, `-`, `_`, `.` only; others
    /// are replaced by `_`), and pass them again at the next start.
    StoreDescriptors {
        /// The name they come back under.
        name: String,
    },
    /// Drop the descriptors kept under this name.
    RemoveDescriptors {
        /// The name they were stored under.
        name: String,
    },
}

/// A notification could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// The address is neither an absolute path nor an abstract name.
    #[error("NOTIFY_SOCKET {0:?} is neither an absolute path nor an abstract name starting with @")]
    Address(OsString),
    /// Sending failed.
    #[error("cannot notify the service manager at {address:?}")]
    Send {
        /// The address of the service manager's socket.
        address: OsString,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
}

/// Microseconds of the clock that `RELOADING=1` is measured on.
pub fn monotonic_microseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
}

/// The text form, one assignment a line.
fn encode(notifications: &[Notification]) -> String {
    let mut text = String::new();
    for notification in notifications {
        // Writing to a String cannot fail.
        let _infallible = match notification {
            Notification::Ready => writeln!(text, "READY=1"),
            Notification::Reloading { monotonic_usec } => {
                writeln!(text, "RELOADING=1\nMONOTONIC_USEC={monotonic_usec}")
            }
            Notification::Stopping => writeln!(text, "STOPPING=1"),
            Notification::Status(status) => {
                writeln!(text, "STATUS={}", status.replace(char::is_control, " "))
            }
            Notification::MainPid(pid) => writeln!(text, "MAINPID={pid}"),
            Notification::Watchdog => writeln!(text, "WATCHDOG=1"),
            Notification::WatchdogTrigger => writeln!(text, "WATCHDOG=trigger"),
            Notification::ExtendTimeout(more) => {
                writeln!(text, "EXTEND_TIMEOUT_USEC={}", more.as_micros())
            }
            Notification::StoreDescriptors { name } => {
                writeln!(text, "FDSTORE=1\nFDNAME={}", descriptor_name(name))
            }
            Notification::RemoveDescriptors { name } => {
                writeln!(text, "FDSTOREREMOVE=1\nFDNAME={}", descriptor_name(name))
            }
        };
    }
    text
}

fn descriptor_name(name: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    name.chars().take(255).map(|letter| if allowed(letter) { letter } else { '_' }).collect()
}

/// Sends notifications; does nothing if there is no service manager to tell.
#[derive(Debug)]
pub struct Notifier {
    target: Option<Target>,
    retired: AtomicBool,
}

#[derive(Debug)]
struct Target {
    name: OsString,
    address: SocketAddrUnix,
    socket: UnixDatagram,
}

/// A service manager that is busy (re-executing itself, say) must not hold the process up for ever.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

impl Notifier {
    /// A notifier for the address in `NOTIFY_SOCKET`, if there is one.
    ///
    /// # Errors
    /// The address has a form that is not supported, or no socket could be created.
    pub fn new(notify_socket: Option<&OsStr>) -> Result<Notifier, NotifyError> {
        let target = notify_socket.map(Target::new).transpose()?;
        Ok(Notifier { target, retired: AtomicBool::new(false) })
    }

    /// True if there is a service manager to tell.
    pub fn is_enabled(&self) -> bool {
        self.target.is_some() && !self.retired.load(Ordering::Relaxed)
    }

    /// Another process speaks for the service from now on: later notifications are dropped.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Sends all of them as one message.
    ///
    /// # Errors
    /// The service manager could not be reached.
    pub fn send(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        self.send_with_descriptors(notifications, &[])
    }

    /// Sends all of them as one message, with descriptors for [`Notification::StoreDescriptors`].
    ///
    /// # Errors
    /// The service manager could not be reached.
    pub fn send_with_descriptors(
        &self,
        notifications: &[Notification],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), NotifyError> {
        let Some(target) = self.target.as_ref().filter(|_| self.is_enabled()) else { return Ok(()) };
        let text = encode(notifications);
        let mut space = vec![std::mem::MaybeUninit::uninit(); descriptor_space(descriptors.len())];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            let source = std::io::Error::from(std::io::ErrorKind::InvalidInput);
            return Err(NotifyError::Send { address: target.name.clone(), source });
        }
        sendmsg_addr(
            &target.socket,
            &target.address,
            &[IoSlice::new(text.as_bytes())],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
        .map(|_length| ())
        .map_err(|error| NotifyError::Send { address: target.name.clone(), source: error.into() })
    }

    /// Sends and logs a failure; for facts nobody depends on.
    pub fn tell(&self, notifications: &[Notification]) {
        if let Err(error) = self.send(notifications) {
            tracing::warn!(error = %crate::error_chain::Chain(&error), "service manager not told");
        }
    }
}

fn descriptor_space(count: usize) -> usize {
    if count == 0 {
        0
    } else {
        SendAncillaryMessage::ScmRights(&[]).size().max(rustix::cmsg_space!(ScmRights(count)))
    }
}

impl Target {
    fn new(name: &OsStr) -> Result<Target, NotifyError> {
        let unsupported = || NotifyError::Address(name.to_owned());
        let address = match name.as_bytes() {
            [b'@', rest @ ..] if !rest.is_empty() => SocketAddrUnix::new_abstract_name(rest),
            [b'/', ..] => SocketAddrUnix::new(name.as_bytes()),
            _ => return Err(unsupported()),
        }
        .map_err(|_too_long| unsupported())?;
        let failed = |source| NotifyError::Send { address: name.to_owned(), source };
        let socket = UnixDatagram::unbound().map_err(failed)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT)).map_err(failed)?;
        Ok(Target { name: name.to_owned(), address, socket })
    }
}

/// A sign of life of something that waits for events: it is asked at times, and answers when it comes around to do so.
///
/// Asking is cheap and answering cheaper, so that what is asked need not be woken by a clock of its own.
#[derive(Debug, Default)]
pub struct Pulse {
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Pulse {
    /// Asks; whatever is to answer has to be woken after this.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Release);
    }

    /// Answers all that was asked.
    pub fn answer(&self) {
        let asked = self.asked.load(Ordering::Acquire);
        self.answered.store(asked, Ordering::Release);
    }

    /// True if the last question was answered, or none was asked yet.
    pub fn beats(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.load(Ordering::Acquire)
    }
}

/// Keeps the watchdog content while `healthy` says so. See [`start_watchdog_of`].
pub fn start_watchdog(
    supervisor: &Supervisor,
    notifier: std::sync::Arc<Notifier>,
    interval: Duration,
    healthy: impl Fn() -> bool + Send + Sync + 'static,
) {
    start_watchdog_of(supervisor, notifier, interval, move || {
        if healthy() { Vec::new() } else { vec!["the process".to_owned()] }
    });
}

/// Keeps the watchdog content: a task that tells it three times per interval, so that one turn may be missed, while
/// `silent` names nothing that does not answer. The names go to the log and into the status line. That the task runs at all
/// shows that the async runtime does.
pub fn start_watchdog_of(
    supervisor: &Supervisor,
    notifier: std::sync::Arc<Notifier>,
    interval: Duration,
    silent: impl Fn() -> Vec<String> + Send + Sync + 'static,
) {
    let silent = std::sync::Arc::new(silent);
    // The handle is not needed: the task lives as long as the process.
    let _detached = supervisor.spawn("watchdog", Policy::EndProcess, move |token| {
        let (notifier, silent) = (std::sync::Arc::clone(&notifier), std::sync::Arc::clone(&silent));
        async move {
            let mut ticks = tokio::time::interval(interval / 3);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                tokio::select! {
                    () = token.cancelled() => return Ok(()),
                    _ = ticks.tick() => {
                        let silent = silent();
                        if silent.is_empty() {
                            notifier.tell(&[Notification::Watchdog]);
                        } else {
                            let names = silent.join(", ");
                            tracing::error!(silent = names, "no sign of life, the watchdog is left to expire");
                            notifier.tell(&[Notification::Status(format!("no sign of life of {names}"))]);
                        }
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsFd as _;

    #[test]
    fn encodes_one_assignment_a_line() {
        let text = encode(&[
            Notification::Ready,
            Notification::Reloading { monotonic_usec: 42 },
            Notification::Stopping,
            Notification::Status("two\nlines".into()),
            Notification::MainPid(17),
            Notification::Watchdog,
            Notification::WatchdogTrigger,
            Notification::ExtendTimeout(Duration::from_secs(2)),
            Notification::StoreDescriptors { name: "a b:c".into() },
            Notification::RemoveDescriptors { name: "x.y".into() },
        ]);
        assert_eq!(
            text,
            "READY=1\nRELOADING=1\nMONOTONIC_USEC=42\nSTOPPING=1\nSTATUS=two lines\nMAINPID=17\nWATCHDOG=1\n\
             WATCHDOG=trigger\nEXTEND_TIMEOUT_USEC=2000000\nFDSTORE=1\nFDNAME=a_b_c\nFDSTOREREMOVE=1\nFDNAME=x.y\n"
        );
    }

    #[test]
    fn the_monotonic_clock_moves_forward() {
        let first = monotonic_microseconds();
        assert!(first > 0);
        assert!(monotonic_microseconds() >= first);
    }

    #[test]
    fn without_a_manager_nothing_is_sent() {
        let notifier = Notifier::new(None).expect("no address to refuse");
        assert!(!notifier.is_enabled());
        notifier.send(&[Notification::Ready]).expect("nothing to do");
    }

    #[test]
    fn odd_addresses_are_refused() {
        for address in ["", "relative", "@", "vsock:2:1234"] {
            let result = Notifier::new(Some(OsStr::new(address)));
            assert!(matches!(result, Err(NotifyError::Address(_))), "{address}");
        }
        let long = format!("/{}", "x".repeat(108));
        assert!(Notifier::new(Some(OsStr::new(&long))).is_err());
    }

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 1024];
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a valid timeout");
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn sends_to_a_path_and_to_an_abstract_name() {
        use std::os::linux::net::SocketAddrExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notifier = Notifier::new(Some(path.as_os_str())).expect("a path");
        notifier.send(&[Notification::Ready, Notification::Status("up".into())]).expect("sent");
        assert_eq!(receive(&manager), "READY=1\nSTATUS=up\n");

        let name = format!("koord-runtime-test-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("bound");
        let notifier = Notifier::new(Some(OsStr::new(&format!("@{name}")))).expect("a name");
        notifier.send(&[Notification::Stopping]).expect("sent");
        assert_eq!(receive(&manager), "STOPPING=1\n");
        notifier.retire();
        notifier.send(&[Notification::Ready]).expect("dropped");
        manager.set_nonblocking(true).expect("allowed");
        assert!(manager.recv(&mut [0; 8]).is_err());
    }

    #[test]
    fn a_missing_manager_is_an_error_with_its_address() {
        let notifier = Notifier::new(Some(OsStr::new("/nonexistent/notify"))).expect("a path");
        let error = notifier.send(&[Notification::Ready]).expect_err("nobody there");
        assert_eq!(error.to_string(), "cannot notify the service manager at \"/nonexistent/notify\"");
    }

    #[test]
    fn descriptors_travel_along() {
        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notifier = Notifier::new(Some(path.as_os_str())).expect("a path");
        let file = tempfile::tempfile_in(folder.path()).expect("a file");
        std::io::Write::write_all(&mut &file, b"kept").expect("written");
        notifier
            .send_with_descriptors(
                &[Notification::StoreDescriptors { name: "listener".into() }],
                &[file.as_fd(), file.as_fd()],
            )
            .expect("sent");

        let mut text = [0; 256];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let message = recvmsg(
            &manager,
            &mut [std::io::IoSliceMut::new(&mut text)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
        .expect("a message");
        assert_eq!(&text[..message.bytes], b"FDSTORE=1\nFDNAME=listener\n");
        let mut received = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                received.extend(descriptors);
            }
        }
        assert_eq!(received.len(), 2);
        let mut copy = std::fs::File::from(received.remove(0));
        copy.rewind().expect("seekable");
        let mut content = String::new();
        copy.read_to_string(&mut content).expect("readable");
        assert_eq!(content, "kept");
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_is_fed_while_healthy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let notifier = std::sync::Arc::new(Notifier::new(Some(path.as_os_str())).expect("a path"));
        let supervisor = Supervisor::new(tokio::runtime::Handle::current());
        let healthy = std::sync::Arc::new(AtomicBool::new(true));
        let asked = std::sync::Arc::clone(&healthy);
        start_watchdog(&supervisor, notifier, Duration::from_secs(10), move || asked.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(5_100)).await;
        assert_eq!(receive(&manager), "WATCHDOG=1\n");
        assert_eq!(receive(&manager), "WATCHDOG=1\n");
        healthy.store(false, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(20)).await;
        manager.set_nonblocking(true).expect("allowed");
        let mut buffer = [0; 256];
        let mut told = 0;
        while let Ok(length) = manager.recv(&mut buffer) {
            assert_eq!(&buffer[..length], b"STATUS=no sign of life of the process\n");
            told += 1;
        }
        assert!(told >= 5, "said {told} times");
    }

    #[tokio::test(start_paused = true)]
    async fn one_missed_turn_does_not_end_the_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        manager.set_nonblocking(true).expect("allowed");
        let notifier = std::sync::Arc::new(Notifier::new(Some(path.as_os_str())).expect("a path"));
        let supervisor = Supervisor::new(tokio::runtime::Handle::current());
        let turn = std::sync::Arc::new(AtomicU64::new(0));
        let turns = std::sync::Arc::clone(&turn);
        let interval = Duration::from_secs(30);
        start_watchdog_of(&supervisor, notifier, interval, move || {
            let slow = turns.fetch_add(1, Ordering::Relaxed) == 1;
            if slow { vec!["acceptor".to_owned(), "connection 3".to_owned()] } else { Vec::new() }
        });
        let (mut last, mut longest, mut statuses) = (tokio::time::Instant::now(), Duration::ZERO, 0);
        let mut buffer = [0; 256];
        while turn.load(Ordering::Relaxed) < 6 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            while let Ok(length) = manager.recv(&mut buffer) {
                match &buffer[..length] {
                    b"WATCHDOG=1\n" => {
                        longest = longest.max(last.elapsed());
                        last = tokio::time::Instant::now();
                    }
                    b"STATUS=no sign of life of acceptor, connection 3\n" => statuses += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(statuses, 1);
        let expected = Duration::from_secs(20)..Duration::from_millis(20_200);
        assert!(expected.contains(&longest), "{longest:?} of {interval:?}");
    }

    #[test]
    fn a_pulse_beats_until_a_question_stays_open() {
        let pulse = Pulse::default();
        assert!(pulse.beats());
        pulse.ask();
        assert!(!pulse.beats());
        pulse.answer();
        assert!(pulse.beats());
        pulse.answer();
        assert!(pulse.beats());
        pulse.ask();
        pulse.ask();
        assert!(!pulse.beats());
        pulse.answer();
        assert!(pulse.beats(), "one answer is for all questions before it");
    }
}
