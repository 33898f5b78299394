//! How much is read from a socket at once, and writing the tap's outputs to one without waiting for it.

use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::os::unix::net::UnixStream;

use koord_tap::Out;

/// Pieces written at once.
const MAX_SLICES: usize = 64;
/// Spare memory that an emptied backlog keeps.
const KEPT_CAPACITY: usize = 64 * 1024;

/// Octets read at once. A relay that takes a whole message of a few hundred KiB before it passes on the first octet
/// leaves the other side idle meanwhile.
const READ_SIZE: usize = 64 * 1024;
/// Octets read at once in the midst of a long message, where fewer calls of the kernel are worth more.
pub(super) const BULK_READ_SIZE: usize = 256 * 1024;
/// Full reads in a row that make a message a long one.
const BULK_AFTER: u32 = 6;

/// How much to read next from one side.
#[derive(Debug, Default)]
pub(super) struct ReadSize {
    /// Full reads in a row.
    full: u32,
}

impl ReadSize {
    pub(super) fn get(&self) -> usize {
        if self.full < BULK_AFTER { READ_SIZE } else { BULK_READ_SIZE }
    }

    /// Adapts to how much the last read gave.
    pub(super) fn adapt(&mut self, count: usize) {
        self.full = if count < READ_SIZE { 0 } else { self.full.saturating_add(1) };
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_message_is_read_in_large_pieces() {
        let mut size = ReadSize::default();
        for _ in 0..6 {
            assert_eq!(size.get(), 65_536);
            size.adapt(65_536);
        }
        assert_eq!(size.get(), 262_144);
        size.adapt(65_536);
        assert_eq!(size.get(), 262_144);
        size.adapt(65_535);
        assert_eq!(size.get(), 65_536);
    }
}
