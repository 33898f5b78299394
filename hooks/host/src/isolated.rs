//! A library in a child process.
//!
//! The child is this program again, with a first argument of its own: [`main_if_child`] notices it. It gets the
//! library's copy in memory over its socket, says what the library says of itself, and then answers one call after
//! the other. A child that ends takes the call with it that it was working on, and no other: it is started again at
//! once, after a second failure in a row with growing pauses. A child that does not answer in time is killed.

mod child;
mod children;
pub(crate) mod frame;

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use koord_hook::HookType;
use koord_runtime::supervisor::Supervisor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::library::image::Image;
use crate::library::{
    CallError, Description, Health, LOAD_LIMIT, MAX_ANSWER_BYTES, StartError, deadline_exceeded, in_place,
    status_of,
};
use frame::{Answer, AnswerHead, HEAD_BYTES};

pub use child::main_if_child;
pub use children::{Children, THIS_PROGRAM};
pub(crate) use children::{Running, Started, start as start_child};

/// First argument of a child. It is not an option, so no operator's flag can be mistaken for it.
pub(crate) const CHILD_ARGUMENT: &str = "hook-library-child";

/// First pause after a failure that follows another.
const PAUSE_BASE: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_CAP: Duration = Duration::from_secs(30);

/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;

/// What of an answer is read on the thread that asks: all of most.
const SMALL_ANSWER_BYTES: usize = 4 * 1024;

/// The pause before a child is started that has failed so often in a row.
fn pause(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => PAUSE_BASE.saturating_mul(2u32.saturating_pow(more - 2)).min(PAUSE_CAP),
    }
}

/// A library at work in a child.
pub(crate) struct Isolated {
    shared: Arc<Shared>,
    description: Description,
}

struct Shared {
    name: String,
    image: Arc<Image>,
    max_address_space: Option<u64>,
    supervisor: Supervisor,
    children: Arc<Children>,
    slot: Mutex<Slot>,
    closed: AtomicBool,
    restarts: AtomicU64,
    /// The child's process number, 0 while there is none.
    child: AtomicU32,
}

struct Slot {
    connection: Option<Connection>,
    /// Ends without an answer in between.
    failures: u32,
    /// Before this no child is started.
    next_start: Instant,
}

/// The socket to a running child.
struct Connection {
    stream: UnixStream,
    running: Running,
    /// Number of the last call.
    last: u64,
    /// A call is being written. If it still is at the next one, a part of it is missing for good.
    writing: bool,
    received: BytesMut,
    /// How long the last exchange took.
    last_took: Duration,
}

/// Why a child gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The socket is at its end or broken.
    Ended,
    /// The child breaks the rules.
    Nonsense,
}

impl Isolated {
    /// Starts a child and waits until the library is ready in it.
    pub(crate) async fn start(
        name: &str,
        image: Arc<Image>,
        max_address_space: Option<u64>,
        supervisor: Supervisor,
        children: Arc<Children>,
    ) -> Result<Self, StartError> {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            image,
            max_address_space,
            supervisor,
            children,
            slot: Mutex::new(Slot { connection: None, failures: 0, next_start: Instant::now() }),
            closed: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
            child: AtomicU32::new(0),
        });
        let (connection, description) = shared.connect().await?;
        shared.slot.lock().await.connection = Some(connection);
        Ok(Self { shared, description })
    }

    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    pub(crate) fn health(&self) -> Health {
        let child = self.shared.child.load(Ordering::Relaxed);
        Health {
            restarts: self.shared.restarts.load(Ordering::Relaxed),
            child: (child != 0).then_some(child),
            ..Health::default()
        }
    }

    /// No child is started any more; the one there is ends with the last call.
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        if let Ok(mut slot) = self.shared.slot.try_lock()
            && let Some(connection) = slot.connection.take()
        {
            self.shared.child.store(0, Ordering::Relaxed);
            let Connection { stream, running, .. } = connection;
            drop(stream);
            self.shared.children.retire(running);
        }
    }

    pub(crate) async fn call(
        &self,
        stage: HookType,
        request: Bytes,
        within: Duration,
    ) -> Result<Bytes, Status> {
        let started = Instant::now();
        let deadline = started + within;
        let result = self.shared.call(stage, &request, deadline).await;
        if self.shared.closed.load(Ordering::Acquire) {
            self.close();
        }
        result
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Starts a child and greets it.
    async fn connect(&self) -> Result<(Connection, Description), StartError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StartError::Closed);
        }
        let Started { socket, running } = self.children.start(&self.name, self.max_address_space).await?;
        socket.set_nonblocking(true).map_err(StartError::Child)?;
        let stream = UnixStream::from_std(socket).map_err(StartError::Child)?;
        let mut connection = Connection {
            stream,
            running,
            last: 0,
            writing: false,
            received: BytesMut::new(),
            last_took: Duration::ZERO,
        };
        let greeted = tokio::time::timeout(LOAD_LIMIT, async {
            frame::send_image(connection.stream.as_fd(), self.image.memory(), &self.name)?;
            Ok::<_, std::io::Error>(connection.answer(0).await)
        })
        .await;
        match greeted {
            Err(_) => Err(StartError::Time),
            Ok(Err(error)) => Err(StartError::Child(error)),
            Ok(Ok(Err(Failed::Ended | Failed::Nonsense))) => Err(StartError::Ended),
            Ok(Ok(Ok(answer))) => {
                let description = frame::read_greeting(answer)?;
                self.child.store(connection.running.id(), Ordering::Relaxed);
                Ok((connection, description))
            }
        }
    }

    async fn call(
        self: &Arc<Self>,
        stage: HookType,
        request: &Bytes,
        deadline: Instant,
    ) -> Result<Bytes, Status> {
        // Others that are being served take this call's time, but it says nothing about the child.
        let Ok(mut slot) = timeout_at(deadline, self.slot.lock()).await else {
            return Err(deadline_exceeded());
        };
        if slot.connection.as_ref().is_some_and(|connection| connection.writing) {
            // The caller before went away in the middle of its request.
            self.failed(&mut slot, "was left with a part of a call");
        }
        if slot.connection.is_none() {
            if self.closed.load(Ordering::Acquire) {
                return Err(Status::unavailable("hook library was closed"));
            }
            let now = Instant::now();
            if now < slot.next_start {
                let milliseconds = (slot.next_start - now).as_millis();
                return Err(Status::unavailable(format!(
                    "process of the hook library is started again in {milliseconds} ms"
                )));
            }
            drop(slot);
            slot = self.restarted(deadline).await?;
        }
        let Some(connection) = slot.connection.as_mut() else {
            return Err(Status::unavailable("process of the hook library cannot be started"));
        };
        let answer = timeout_at(deadline, connection.exchange(stage, request)).await;
        match answer {
            Ok(Ok(answer)) => {
                slot.failures = 0;
                match answer.into_result() {
                    Ok(bytes) => Ok(bytes),
                    Err(error) => Err(status_of(error)),
                }
            }
            Ok(Err(Failed::Ended)) => {
                self.failed(&mut slot, "ended during a call");
                Err(Status::unavailable("process of the hook library ended during the call"))
            }
            Ok(Err(Failed::Nonsense)) => {
                self.failed(&mut slot, "breaks the rules of its socket");
                Err(Status::unavailable("process of the hook library breaks the rules of its socket"))
            }
            Err(_) => {
                self.failed(&mut slot, "did not answer in time");
                Err(deadline_exceeded())
            }
        }
    }

    /// Kills the child and has another one started, now or after a pause.
    fn failed(self: &Arc<Self>, slot: &mut Slot, what: &'static str) {
        if let Some(connection) = slot.connection.take() {
            self.child.store(0, Ordering::Relaxed);
            self.children.kill(connection.running);
        }
        slot.failures = slot.failures.saturating_add(1);
        let pause = pause(slot.failures);
        slot.next_start = Instant::now() + pause;
        let next_start = slot.next_start;
        tracing::warn!(
            library = self.name,
            failures = slot.failures,
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "process of a hook library {what}"
        );
        let shared = self.clone();
        self.supervisor.spawn_once("hook-child", async move {
            tokio::time::sleep_until(next_start).await;
            shared.ensure().await;
            Ok(())
        });
    }

    /// Starts a child unless there is one, or it is not time for one.
    async fn ensure(self: &Arc<Self>) {
        let mut slot = self.slot.lock().await;
        if slot.connection.is_some()
            || Instant::now() < slot.next_start
            || self.closed.load(Ordering::Acquire)
        {
            return;
        }
        match self.connect().await {
            Ok((connection, _)) => {
                slot.connection = Some(connection);
                self.restarts.fetch_add(1, Ordering::Relaxed);
            }
            Err(StartError::Closed) => {}
            Err(error) => {
                slot.failures = slot.failures.saturating_add(1);
                slot.next_start = Instant::now() + pause(slot.failures);
                tracing::warn!(library = self.name, %error, "process of a hook library not started");
            }
        }
    }

    /// Waits for a child that is started by a task of its own: a start must not end with the time of one call.
    async fn restarted(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<tokio::sync::MutexGuard<'_, Slot>, Status> {
        let (done, ended) = oneshot::channel::<()>();
        let shared = self.clone();
        self.supervisor.spawn_once("hook-child", async move {
            shared.ensure().await;
            drop(done);
            Ok(())
        });
        let slot = async {
            // Nothing is ever sent: the end is what is waited for.
            let _ = ended.await;
            self.slot.lock().await
        };
        timeout_at(deadline, slot).await.map_err(|_| deadline_exceeded())
    }
}

impl Connection {
    async fn exchange(&mut self, stage: HookType, request: &[u8]) -> Result<Answer, Failed> {
        let begun = Instant::now();
        self.last += 1;
        let head = frame::request_head(stage, self.last, request)?;
        self.writing = true;
        self.send(&head, request).await?;
        self.writing = false;
        self.receive_in_place(in_place::wait_limit(self.last_took))?;
        let answer = self.answer(self.last).await;
        self.last_took = begun.elapsed();
        answer
    }

    /// Sleeps until there are octets, at most as long as `limit`, and takes them. Past the reactor: what it has not seen
    /// yet does not exist for the stream.
    fn receive_in_place(&mut self, limit: Duration) -> Result<(), Failed> {
        let Ok(limit) = Timespec::try_from(limit) else { return Ok(()) };
        let mut readable = [PollFd::new(&self.stream, PollFlags::IN)];
        if limit == Timespec::default() || !matches!(poll(&mut readable, Some(&limit)), Ok(1)) {
            return Ok(());
        }
        let mut bytes = [0; SMALL_ANSWER_BYTES];
        match rustix::io::read(&self.stream, &mut bytes) {
            Ok(0) => Err(Failed::Ended),
            Ok(count) => {
                self.received.extend_from_slice(bytes.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Failed::Ended),
        }
    }

    async fn send(&mut self, head: &[u8], body: &[u8]) -> Result<(), Failed> {
        let mut sent = 0;
        while sent < head.len() + body.len() {
            let parts = [
                std::io::IoSlice::new(head.get(sent..).unwrap_or_default()),
                std::io::IoSlice::new(body.get(sent.saturating_sub(head.len())..).unwrap_or_default()),
            ];
            match self.stream.try_write_vectored(&parts) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stream.writable().await.map_err(|_| Failed::Ended)?;
                }
                Err(_) => return Err(Failed::Ended),
            }
        }
        Ok(())
    }

    /// The answer to the call of that number; answers to calls whose callers have gone are passed over.
    async fn answer(&mut self, number: u64) -> Result<Answer, Failed> {
        loop {
            while let Some((head, body)) = self.complete()? {
                match head.number.cmp(&number) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => return Ok(Answer { head, body }),
                    std::cmp::Ordering::Greater => return Err(Failed::Nonsense),
                }
            }
            self.receive().await?;
        }
    }

    /// The first answer received whole.
    fn complete(&mut self) -> Result<Option<(AnswerHead, Bytes)>, Failed> {
        let Some(head) = self.received.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let head = AnswerHead::read(head);
        if head.length > MAX_ANSWER_BYTES {
            return Err(Failed::Nonsense);
        }
        if self.received.len() < HEAD_BYTES + head.length {
            return Ok(None);
        }
        let mut whole = self.received.split_to(HEAD_BYTES + head.length);
        Ok(Some((head, whole.split_off(HEAD_BYTES).freeze())))
    }

    /// Waits for octets.
    async fn receive(&mut self) -> Result<(), Failed> {
        self.received.reserve(READ_BYTES);
        loop {
            self.stream.readable().await.map_err(|_| Failed::Ended)?;
            match self.stream.try_read_buf(&mut self.received) {
                Ok(0) => return Err(Failed::Ended),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(Failed::Ended),
            }
        }
    }
}

impl Answer {
    fn into_result(self) -> Result<Bytes, CallError> {
        self.head.outcome(self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_costs_no_pause_and_later_ones_up_to_half_a_minute() {
        let milliseconds: Vec<u128> = (0..13).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(
            milliseconds,
            [0, 0, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]
        );
        assert_eq!(pause(u32::MAX), PAUSE_CAP);
    }
}
