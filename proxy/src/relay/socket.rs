//! Writing the tap's outputs to a socket without waiting for it.

use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::os::unix::net::UnixStream;

use koord_tap::Out;

/// Pieces written at once.
const MAX_SLICES: usize = 64;
/// Spare memory that an emptied backlog keeps.
const KEPT_CAPACITY: usize = 64 * 1024;

/// Octets that a socket did not take yet.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    octets: Vec<u8>,
    written: usize,
}

impl Backlog {
    pub(super) fn len(&self) -> usize {
        self.octets.len() - self.written
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Writes what the socket takes now.
    pub(super) fn flush(&mut self, mut socket: &UnixStream) -> io::Result<()> {
        while !self.is_empty() {
            match socket.write(&self.octets[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.octets.clear();
        self.octets.shrink_to(KEPT_CAPACITY);
        self.written = 0;
        Ok(())
    }
}

/// Sends the tap's output; what the socket does not take goes to the backlog.
pub(super) fn send(
    mut socket: &UnixStream,
    out: &Out,
    input: &[u8],
    backlog: &mut Backlog,
) -> io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    if !backlog.is_empty() {
        out.slices(input).for_each(|slice| backlog.push(slice));
        return backlog.flush(socket);
    }
    let mut rest = out.slices(input).peekable();
    while rest.peek().is_some() {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let mut count = 0;
        while count < MAX_SLICES
            && let Some(slice) = rest.next()
        {
            slices[count] = IoSlice::new(slice);
            count += 1;
        }
        let mut pending = &mut slices[..count];
        while !pending.is_empty() {
            match socket.write_vectored(pending) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut pending, written),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    pending.iter().for_each(|slice| backlog.push(slice));
                    rest.for_each(|slice| backlog.push(slice));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
