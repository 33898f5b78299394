//! A message channel between two processes that can carry open file descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The most descriptors one message can carry.
pub const MOST_DESCRIPTORS: usize = 16;

/// The longest message, in bytes.
pub const LONGEST_MESSAGE: usize = 4096;

/// A received message.
#[derive(Debug)]
pub struct Message {
    /// The text.
    pub text: String,
    /// Descriptors that came along, in the order they were sent. Child processes do not inherit them.
    pub descriptors: Vec<OwnedFd>,
}

/// One end of the channel. Messages keep their borders.
#[derive(Debug)]
pub struct Channel {
    // A sequenced-packet socket. The stream type only watches it; bytes move by sendmsg and recvmsg.
    socket: UnixStream,
}

impl Channel {
    /// A connected pair: this process's end, and the end to give to another process as its standard
    /// input. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel::adopt(ours)?, theirs))
    }

    /// Takes over an end received from another process.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub fn adopt(descriptor: OwnedFd) -> io::Result<Channel> {
        let socket = std::os::unix::net::UnixStream::from(descriptor);
        socket.set_nonblocking(true)?;
        Ok(Channel { socket: UnixStream::from_std(socket)? })
    }

    /// Takes over standard input as a channel and puts `/dev/null` in its place.
    ///
    /// # Errors
    /// Standard input is closed or cannot be replaced.
    pub fn from_standard_input() -> io::Result<Channel> {
        let copy = io::stdin().as_fd().try_clone_to_owned()?;
        let nothing = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        Channel::adopt(copy)
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The other end is gone, or the message or the number of descriptors is over the limit.
    pub async fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if text.is_empty() || text.len() > LONGEST_MESSAGE || descriptors.len() > MOST_DESCRIPTORS {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            sendmsg(&self.socket, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)
                .map_err(io::Error::from)
        };
        self.socket.async_io(Interest::WRITABLE, send).await.map(|_length| ())
    }

    /// Receives the next message; `None` once the other end is gone.
    ///
    /// # Errors
    /// The channel failed, or a message was over the limit.
    pub async fn receive(&self) -> io::Result<Option<Message>> {
        match self.socket.async_io(Interest::READABLE, || receive_now(&self.socket)).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            other => other,
        }
    }
}

fn receive_now(socket: &UnixStream) -> io::Result<Option<Message>> {
    let mut text = [0; LONGEST_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message over the limit"));
    }
    // Messages are never empty, so no bytes means the other end is closed.
    if received.bytes == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
    Ok(Some(Message { text, descriptors }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream as StdStream;

    #[tokio::test]
    async fn messages_keep_their_borders_and_their_descriptors() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        let theirs = Channel::adopt(theirs).expect("adopted");
        let (mut near, far) = StdStream::pair().expect("a pair");
        ours.send("first", &[far.as_fd()]).await.expect("sent");
        ours.send("second", &[]).await.expect("sent");
        drop(far);

        let first = theirs.receive().await.expect("received").expect("open");
        assert_eq!(first.text, "first");
        let [descriptor] = <[OwnedFd; 1]>::try_from(first.descriptors).expect("one descriptor");
        let flags = rustix::io::fcntl_getfd(&descriptor).expect("a descriptor");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        near.write_all(b"through").expect("written");
        drop(near);
        let mut text = String::new();
        StdStream::from(descriptor).read_to_string(&mut text).expect("read");
        assert_eq!(text, "through");

        let second = theirs.receive().await.expect("received").expect("open");
        assert_eq!((second.text.as_str(), second.descriptors.len()), ("second", 0));
        drop(ours);
        assert!(theirs.receive().await.expect("no failure").is_none());
    }

    #[tokio::test]
    async fn limits_hold() {
        let (ours, _theirs) = Channel::pair().expect("a pair");
        assert!(ours.send("", &[]).await.is_err());
        assert!(ours.send(&"x".repeat(LONGEST_MESSAGE + 1), &[]).await.is_err());
        ours.send(&"x".repeat(LONGEST_MESSAGE), &[]).await.expect("at the limit");
        let descriptor = io::stdin();
        let many = vec![descriptor.as_fd(); MOST_DESCRIPTORS + 1];
        assert!(ours.send("x", &many).await.is_err());
    }
}
