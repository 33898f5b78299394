//! The floor: a relay that copies bytes and looks at none of them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Serves for ever; one thread per connection.
pub(crate) fn serve(listen: &Path, backend: &Path) -> io::Result<()> {
    for client in UnixListener::bind(listen)?.incoming() {
        let client = client?;
        let Ok(backend) = UnixStream::connect(backend) else { continue };
        thread::spawn(move || copy_both(&client, &backend));
    }
    Ok(())
}

/// Bytes read from one side and not yet written to the other.
struct Direction {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    open: bool,
}

impl Direction {
    fn new() -> Self {
        Self { buffer: vec![0; 64 << 10], start: 0, end: 0, open: true }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads once and writes what the other side takes at once.
    fn advance(&mut self, mut from: &UnixStream, mut to: &UnixStream) -> io::Result<()> {
        if self.is_empty() && self.open {
            match from.read(&mut self.buffer) {
                Ok(0) => {
                    self.open = false;
                    return to.shutdown(Shutdown::Write);
                }
                Ok(count) => (self.start, self.end) = (0, count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        while !self.is_empty() {
            match to.write(&self.buffer[self.start..self.end]) {
                Ok(count) => self.start += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn copy_both(client: &UnixStream, backend: &UnixStream) -> io::Result<()> {
    client.set_nonblocking(true)?;
    backend.set_nonblocking(true)?;
    let (mut up, mut down) = (Direction::new(), Direction::new());
    while up.open || down.open || !up.is_empty() || !down.is_empty() {
        let wanted = |incoming: &Direction, outgoing: &Direction| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, incoming.open && incoming.is_empty());
            flags.set(PollFlags::POLLOUT, !outgoing.is_empty());
            flags
        };
        let mut both = [
            PollFd::new(client.as_fd(), wanted(&up, &down)),
            PollFd::new(backend.as_fd(), wanted(&down, &up)),
        ];
        match poll(&mut both, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = both.each_ref().map(|side| side.any().unwrap_or(false));
        if ready[0] || !up.is_empty() {
            up.advance(client, backend)?;
        }
        if ready[1] || !down.is_empty() {
            down.advance(backend, client)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_half_closes_pass_both_ways() {
        let (client, client_side) = UnixStream::pair().unwrap();
        let (backend, backend_side) = UnixStream::pair().unwrap();
        let relay = thread::spawn(move || copy_both(&client_side, &backend_side));
        let sent: Vec<u8> = (0..1 << 20).map(|number: u32| number.to_le_bytes()[1]).collect();
        let writer = thread::spawn({
            let (mut client, sent) = (client.try_clone().unwrap(), sent.clone());
            move || {
                client.write_all(&sent).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            }
        });
        let mut arrived = Vec::new();
        (&backend).read_to_end(&mut arrived).unwrap();
        assert!(arrived == sent);
        writer.join().unwrap();
        (&backend).write_all(b"answer").unwrap();
        backend.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        (&client).read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
        relay.join().unwrap().unwrap();
    }
}
