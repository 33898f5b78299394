//! One client connection: its thread, both sockets, the tap between them.

use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use koord_tap::{Options, Outputs, Refusal, Tap};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::calls::{ByteCounters, Call, Calls, tap_verdict};
use super::interceptor::Interceptor;
use super::mailbox::{Mailbox, Message};
use super::socket::{BULK_READ_SIZE, Backlog, ReadSize, send};
use super::{LAST_OCTETS, Service, Shared, UNAVAILABLE, dial};

/// Most octets of ours that may wait for a client that does not read; then its requests are no longer read.
const MAX_OWN_BACKLOG: usize = 1 << 20;
/// How long a drained connection is kept for its client to close it, as gRPC clients do at once. Until then calls that the
/// client had begun when it read GOAWAY may still come, and are served.
const DRAIN_LINGER: Duration = Duration::from_secs(1);

pub(super) struct Connection<I: Interceptor> {
    id: u64,
    shared: Arc<Shared<I>>,
    client: UnixStream,
    mailbox: Arc<Mailbox<I::Call>>,
}

/// Why the loop ended.
#[derive(Debug)]
enum End {
    /// The client has gone.
    Client,
    /// The runtime has gone.
    Backend,
    /// A drain is complete.
    Drained,
    /// We end it, with this status for what is open.
    Told(Refusal),
    /// The tap cannot go on.
    Broken(koord_tap::Broken),
}

impl<I: Interceptor> Connection<I> {
    pub(super) fn new(
        id: u64,
        shared: Arc<Shared<I>>,
        client: UnixStream,
        mailbox: Arc<Mailbox<I::Call>>,
    ) -> Self {
        Self { id, shared, client, mailbox }
    }

    pub(super) fn run(self) {
        let options = &self.shared.options;
        let mut received = Vec::new();
        let mut service = None;
        if options.image_backend.is_some() {
            let Some((octets, path)) = dial::peek_path(&self.client) else { return };
            received = octets;
            service = Some(path.as_deref().map_or(Service::Runtime, Service::of));
        }
        let backend_path = match (&options.image_backend, service) {
            (Some(image), Some(Service::Image)) => image.clone(),
            _ => options.backend.clone(),
        };
        let name = if service == Some(Service::Image) { "image" } else { "runtime" };
        let backend = match dial::connect(
            &backend_path,
            &self.client,
            options.backend_wait,
            !received.is_empty(),
        ) {
            None => return,
            Some(Ok(backend)) => backend,
            Some(Err(error)) => {
                self.shared.metrics.backend_connected(name, false);
                tracing::debug!(connection = self.id, %error, "backend not reachable: calls are answered UNAVAILABLE");
                // A client that does not take the answer has gone.
                let _ = dial::stand_in(&self.client, &backend_path, &error, &received);
                return;
            }
        };
        self.shared.metrics.backend_connected(name, true);
        if self.shared.backend_lost.swap(false, Ordering::Relaxed) {
            self.shared.metrics.backend_reconnects().inc();
        }
        if let Err(error) = self.client.set_nonblocking(true).and_then(|()| backend.set_nonblocking(true)) {
            tracing::error!(connection = self.id, %error, "cannot prepare the sockets of a connection");
            return;
        }
        tracing::debug!(connection = self.id, "client connected");
        let tap = Tap::new(Options {
            max_message: options.max_message_bytes,
            max_held: options.max_message_bytes.saturating_mul(2),
            withhold_headers: options.filter.is_some() || service.is_some(),
            greeted: service.is_some(),
            ..Options::default()
        });
        let calls = Calls::new(self.id, Arc::clone(&self.shared), Arc::clone(&self.mailbox), service);
        let bytes = ByteCounters::new(&self.shared.metrics);
        let mut pair = Pair {
            client: self.client,
            backend,
            mailbox: self.mailbox,
            tap,
            calls,
            bytes,
            out: Outputs::default(),
            to_client: Backlog::default(),
            to_backend: Backlog::default(),
            client_read_size: ReadSize::default(),
            backend_read_size: ReadSize::default(),
            draining: false,
            linger_until: None,
            client_ended: false,
            backend_path,
        };
        pair.mailbox.set_read(true);
        let end = pair.relay(&received);
        pair.mailbox.set_read(false);
        tracing::debug!(connection = self.id, ?end, "client connection ends");
        pair.end(end, &self.shared);
    }
}

struct Pair<I: Interceptor> {
    client: UnixStream,
    backend: UnixStream,
    mailbox: Arc<Mailbox<I::Call>>,
    tap: Tap<Call<I::Call>>,
    calls: Calls<I>,
    bytes: ByteCounters,
    out: Outputs,
    to_client: Backlog,
    to_backend: Backlog,
    client_read_size: ReadSize,
    backend_read_size: ReadSize,
    draining: bool,
    /// When a drained connection is closed, if its client has not done so.
    linger_until: Option<Instant>,
    /// The client has ended its half without being an HTTP/2 client.
    client_ended: bool,
    backend_path: PathBuf,
}

impl<I: Interceptor> Pair<I> {
    /// Relays until there is a reason to end. `received` is what the client has sent already.
    fn relay(&mut self, received: &[u8]) -> End {
        if !received.is_empty() {
            self.bytes.request.inc_by(received.len() as u64);
            self.tap.client_bytes(received, &mut self.out, &mut self.calls);
            if let Some(end) = self.send(received, &[]) {
                return end;
            }
        }
        let mut buffer = vec![0; BULK_READ_SIZE];
        loop {
            if self.lingered() {
                return End::Drained;
            }
            let (client, backend, mailbox) = match self.wait() {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "poll failed on a connection");
                    return End::Client;
                }
            };
            if mailbox && let Some(refusal) = self.read_mailbox() {
                return End::Told(refusal);
            }
            // What waits is sent before anything new is read.
            if client.contains(PollFlags::POLLOUT) && self.to_client.flush(&self.client).is_err() {
                return End::Client;
            }
            if backend.contains(PollFlags::POLLOUT) && self.to_backend.flush(&self.backend).is_err() {
                return End::Backend;
            }
            let ended = PollFlags::POLLHUP | PollFlags::POLLERR;
            if client.intersects(PollFlags::POLLIN | ended)
                && let Some(end) = self.read_client(&mut buffer)
            {
                return end;
            }
            if backend.intersects(PollFlags::POLLIN | ended)
                && let Some(end) = self.read_backend(&mut buffer)
            {
                return end;
            }
            if let Some(broken) = self.tap.broken() {
                return End::Broken(broken);
            }
        }
    }

    /// Whether the drain is complete and the client has had its time to close the connection.
    fn lingered(&mut self) -> bool {
        let drained =
            self.draining && self.tap.drained() && self.to_client.is_empty() && self.to_backend.is_empty();
        if !drained {
            self.linger_until = None;
            return false;
        }
        let now = Instant::now();
        now >= *self.linger_until.get_or_insert(now + DRAIN_LINGER)
    }

    /// Waits for the sockets and the mailbox, and for the end of the linger time if it runs.
    fn wait(&self) -> Result<(PollFlags, PollFlags, bool), Errno> {
        let interest = |read: bool, write: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, read);
            flags.set(PollFlags::POLLOUT, write);
            flags
        };
        let read_client =
            self.to_backend.is_empty() && self.to_client.len() < MAX_OWN_BACKLOG && !self.client_ended;
        let client = interest(read_client, !self.to_client.is_empty());
        let backend = interest(self.to_client.is_empty(), !self.to_backend.is_empty());
        let mut descriptors = [
            PollFd::new(self.mailbox.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.client.as_fd(), client),
            PollFd::new(self.backend.as_fd(), backend),
        ];
        // poll(2) tells of a hang-up also when it was not asked: a side we want nothing of now is left out.
        let count = match (client.is_empty(), backend.is_empty()) {
            (_, true) => 2,
            (true, false) => {
                descriptors.swap(1, 2);
                2
            }
            (false, false) => 3,
        };
        poll(&mut descriptors[..count], self.linger_until.map_or(PollTimeout::NONE, timeout_until))?;
        let events = |at: usize| descriptors[at].revents().unwrap_or(PollFlags::empty());
        let mailbox = events(0).contains(PollFlags::POLLIN);
        Ok(match (client.is_empty(), backend.is_empty()) {
            (false, true) => (events(1), PollFlags::empty(), mailbox),
            (true, _) => (PollFlags::empty(), events(1), mailbox),
            (false, false) => (events(1), events(2), mailbox),
        })
    }

    /// Acts on what the async side says; a status ends everything.
    fn read_mailbox(&mut self) -> Option<Refusal> {
        let mut told = None;
        for message in self.mailbox.take() {
            match message {
                Message::Verdict { stream, verdict, call } => {
                    let calls = &mut self.calls;
                    let release = self.tap.with_call(stream, |entry| calls.started(stream, entry, call));
                    self.tap.resolve(stream, tap_verdict(verdict), &mut self.out, &mut self.calls);
                    if release == Some(true) {
                        self.tap.release(stream, &mut self.out, &mut self.calls);
                    }
                }
                Message::Release { stream } => self.tap.release(stream, &mut self.out, &mut self.calls),
                Message::Drain => {
                    self.draining = true;
                    self.tap.begin_drain(&mut self.out);
                }
                Message::End(refusal) => told = Some(refusal),
            }
        }
        // A lost peer shows itself when it is read.
        let _ = self.send(&[], &[]);
        told
    }

    fn read_client(&mut self, buffer: &mut [u8]) -> Option<End> {
        match (&self.client).read(&mut buffer[..self.client_read_size.get()]) {
            Ok(0) if self.tap.is_blind() => {
                // Such a client may still want its answer.
                self.client_ended = true;
                let _ = self.backend.shutdown(std::net::Shutdown::Write);
                None
            }
            Ok(0) => Some(End::Client),
            Ok(count) => {
                self.bytes.request.inc_by(count as u64);
                self.client_read_size.adapt(count);
                self.tap.client_bytes(&buffer[..count], &mut self.out, &mut self.calls);
                self.send(&buffer[..count], &[])
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => Some(End::Client),
        }
    }

    fn read_backend(&mut self, buffer: &mut [u8]) -> Option<End> {
        match (&self.backend).read(&mut buffer[..self.backend_read_size.get()]) {
            Ok(0) => Some(End::Backend),
            Ok(count) => {
                self.bytes.response.inc_by(count as u64);
                self.backend_read_size.adapt(count);
                self.tap.backend_bytes(&buffer[..count], &mut self.out, &mut self.calls);
                self.send(&[], &buffer[..count])
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => Some(End::Backend),
        }
    }

    /// Sends the tap's outputs of a step whose input came from one side.
    fn send(&mut self, from_client: &[u8], from_backend: &[u8]) -> Option<End> {
        let to_backend = send(&self.backend, &self.out.to_backend, from_client, &mut self.to_backend);
        let to_client = send(&self.client, &self.out.to_client, from_backend, &mut self.to_client);
        self.out.to_backend.clear();
        self.out.to_client.clear();
        if to_client.is_err() {
            return Some(End::Client);
        }
        // The runtime may have answered before it went: that is read first.
        if to_backend.is_err() {
            self.to_backend = Backlog::default();
        }
        None
    }

    /// Ends what is open and closes.
    fn end(mut self, end: End, shared: &Shared<I>) {
        let refusal = match end {
            End::Client => None,
            End::Drained => {
                self.tap.end_drain(&mut self.out);
                // A client that does not take it knows by the closed connection.
                let _ = self.send(&[], &[]);
                None
            }
            End::Backend => {
                shared.backend_lost.store(true, Ordering::Relaxed);
                let message = format!(
                    "connection error: desc = \"transport is closing: connection to {} was lost\"",
                    self.backend_path.display()
                );
                Some(Refusal { code: UNAVAILABLE, message })
            }
            End::Told(refusal) => Some(refusal),
            End::Broken(broken) => {
                tracing::warn!(reason = %broken, "a client connection cannot go on");
                Some(Refusal { code: UNAVAILABLE, message: broken.to_string() })
            }
        };
        if let Some(refusal) = refusal {
            self.tap.end_all(&refusal, &mut self.out, &mut self.calls);
            let _ = self.send(&[], &[]);
            let deadline = Instant::now() + LAST_OCTETS;
            while !self.to_client.is_empty() && Instant::now() < deadline {
                let mut descriptors = [PollFd::new(self.client.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut descriptors, timeout_until(deadline)).is_err()
                    || self.to_client.flush(&self.client).is_err()
                {
                    break;
                }
            }
        }
        self.tap.close(&mut self.calls);
    }
}

/// For poll(2): until then. Rounded up, so that time is over when poll returns for it.
fn timeout_until(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now());
    PollTimeout::try_from(left.as_millis().saturating_add(u128::from(!left.is_zero())))
        .unwrap_or(PollTimeout::MAX)
}
