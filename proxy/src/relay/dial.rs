//! Getting a connection to the runtime, and what clients see while there is none.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use koord_tap::Refusal;
use koord_tap::peek::{GREETING, Peek, first_path};
use koord_tap::stand_in::StandIn;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{UNAVAILABLE, unreachable_message};

/// Pause between attempts while a call waits: a runtime that comes back is used at once.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);
/// Pause between attempts while no call waits.
const IDLE_PAUSE: Duration = Duration::from_millis(500);
/// How long a client that was told to go may stay.
const LINGER: Duration = Duration::from_secs(5);

/// Most octets read before a connection's first call is known.
const MAX_PEEK: usize = 256 * 1024;

/// Greets a client and reads until the path of its first call is known: what it sent, and the path if it is readable.
/// `None` when it has gone.
pub(super) fn peek_path(mut client: &UnixStream) -> Option<(Vec<u8>, Option<String>)> {
    client.write_all(&GREETING).ok()?;
    let mut octets = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => octets.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return None,
        }
        match first_path(&octets) {
            Peek::More if octets.len() < MAX_PEEK => {}
            Peek::Path(path) => return Some((octets, String::from_utf8(path).ok())),
            Peek::More | Peek::Unreadable => return Some((octets, None)),
        }
    }
}

/// Connects to the runtime. While it is missing, a client that has sent something waits up to `wait`; then the last
/// error is returned. `has_sent`: it has, and that was read already. `None` when the client has gone.
pub(super) fn connect(
    backend: &Path,
    client: &UnixStream,
    wait: Duration,
    has_sent: bool,
) -> Option<Result<UnixStream, io::Error>> {
    let mut waiting_since = has_sent.then(Instant::now);
    loop {
        let error = match UnixStream::connect(backend) {
            Ok(stream) => return Some(Ok(stream)),
            Err(error) => error,
        };
        let now = Instant::now();
        let pause = match waiting_since {
            Some(since) if now.duration_since(since) >= wait => return Some(Err(error)),
            Some(_) => ATTEMPT_PAUSE,
            None => IDLE_PAUSE,
        };
        // A client that waits is no longer asked whether it has sent something: only whether it is still there.
        let interest = if waiting_since.is_some() { PollFlags::empty() } else { PollFlags::POLLIN };
        let mut descriptors = [PollFd::new(client.as_fd(), interest)];
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::ZERO);
        if poll(&mut descriptors, timeout).is_err() {
            std::thread::sleep(ATTEMPT_PAUSE);
        }
        let events = descriptors[0].revents().unwrap_or(PollFlags::empty());
        if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            return None;
        }
        if waiting_since.is_none() && events.contains(PollFlags::POLLIN) {
            waiting_since = Some(now);
        }
    }
}

/// Answers every call of the client with UNAVAILABLE and sends it away, so that its next connection finds the runtime.
///
/// `received` is what the client has sent already.
pub(super) fn stand_in(
    client: &UnixStream,
    backend: &Path,
    error: &io::Error,
    received: &[u8],
) -> io::Result<()> {
    let refusal = Refusal { code: UNAVAILABLE, message: unreachable_message(backend, error) };
    let mut server = StandIn::new(refusal);
    let mut client = client;
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(LINGER))?;
    client.set_write_timeout(Some(LINGER))?;
    let deadline = Instant::now() + LINGER;
    let mut answer = Vec::new();
    server.greeting(&mut answer);
    server.client_bytes(received, &mut answer);
    client.write_all(&answer)?;
    let mut buffer = vec![0; 16 * 1024];
    while !server.is_broken() && Instant::now() < deadline {
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                answer.clear();
                server.client_bytes(&buffer[..count], &mut answer);
                client.write_all(&answer)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    Ok(())
}
