//! A CRI client on raw frames: a kubelet that can also misbehave.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::frame::{Frame, PREFACE};
use crate::peer::{Answer, Fields, Peer, PeerOptions, SendError, Stream, fields};
use crate::wait::LIMIT;

/// Path of a `runtime.v1.RuntimeService` method.
pub fn runtime_path(method: &str) -> String {
    format!("/runtime.v1.RuntimeService/{method}")
}

/// What `:authority` a call carries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Authority {
    /// The field is missing.
    Missing,
    /// This text, however odd.
    Text(String),
    /// `localhost`, as current clients send.
    #[default]
    Localhost,
}

/// The head of a call.
#[derive(Debug, Clone, Default)]
pub struct CallHead {
    /// `:path`.
    pub path: String,
    /// `:authority`.
    pub authority: Authority,
    /// `grpc-timeout` as text.
    pub timeout: Option<String>,
    /// More fields, behind the usual ones.
    pub extra: Fields,
}

impl CallHead {
    /// The head of a call of `path`, otherwise as current clients send it.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// With this `grpc-timeout`.
    #[must_use]
    pub fn timeout(mut self, text: &str) -> Self {
        self.timeout = Some(text.into());
        self
    }

    /// With this `:authority`.
    #[must_use]
    pub fn authority(mut self, authority: Authority) -> Self {
        self.authority = authority;
        self
    }

    /// With one more field.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.extra.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// All fields in the order of grpc-go.
    pub fn fields(&self) -> Fields {
        let mut all = fields(&[(":method", "POST"), (":scheme", "http"), (":path", &self.path)]);
        match &self.authority {
            Authority::Missing => {}
            Authority::Text(text) => all.push((b":authority".to_vec(), text.clone().into_bytes())),
            Authority::Localhost => all.extend(fields(&[(":authority", "localhost")])),
        }
        all.extend(fields(&[
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.80.0"),
            ("te", "trailers"),
        ]));
        if let Some(timeout) = &self.timeout {
            all.extend(fields(&[("grpc-timeout", timeout)]));
        }
        all.extend(self.extra.iter().cloned());
        all
    }
}

/// A connection to a CRI socket.
#[derive(Debug, Clone)]
pub struct RawClient {
    peer: Peer,
}

impl RawClient {
    /// Connects with usual settings.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        Self::connect_with(socket, PeerOptions::default())
    }

    /// Connects with these settings.
    pub fn connect_with(socket: &Path, options: PeerOptions) -> io::Result<Self> {
        Ok(Self { peer: Peer::client(UnixStream::connect(socket)?, options)? })
    }

    /// The connection.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Opens a stream and leaves it open for sending.
    pub fn open(&self, head: &CallHead) -> Stream {
        self.peer.open(&head.fields(), false)
    }

    /// Starts a unary call.
    pub fn start(&self, head: &CallHead, message: &[u8]) -> Result<Stream, SendError> {
        let stream = self.open(head);
        stream.send_message(message, true)?;
        Ok(stream)
    }

    /// A unary call that must end within [`LIMIT`].
    pub fn call(&self, head: &CallHead, message: &[u8]) -> Answer {
        self.call_within(head, message, LIMIT)
    }

    /// A unary call that must end within `limit`.
    pub fn call_within(&self, head: &CallHead, message: &[u8], limit: Duration) -> Answer {
        let stream = self.open(head);
        // A refusal may arrive before the request is sent in full; the answer then tells.
        let _ = stream.send_message(message, true);
        Answer::collect(&stream, limit)
    }

    /// A unary call of a `runtime.v1.RuntimeService` method.
    pub fn cri(&self, method: &str, message: &[u8]) -> Answer {
        self.call(&CallHead::new(runtime_path(method)), message)
    }

    /// Opens and resets `count` streams without waiting: the load of a rapid-reset attack.
    pub fn reset_flood(&self, head: &CallHead, count: usize, code: u32) {
        for _ in 0..count {
            let stream = self.open(head);
            stream.reset(code);
            stream.forget();
        }
    }
}

/// A connection that sends bytes as given and follows no protocol.
#[derive(Debug)]
pub struct ByteClient {
    socket: UnixStream,
}

impl ByteClient {
    /// Connects and sends nothing.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(LIMIT))?;
        socket.set_write_timeout(Some(LIMIT))?;
        Ok(Self { socket })
    }

    /// Connects and sends preface and empty SETTINGS.
    pub fn greet(socket: &Path) -> io::Result<Self> {
        let mut client = Self::connect(socket)?;
        client.send(PREFACE)?;
        client.send_frame(&Frame::settings(&[]))?;
        Ok(client)
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Sends a frame.
    pub fn send_frame(&mut self, frame: &Frame) -> io::Result<()> {
        self.send(&frame.bytes())
    }

    /// Closes the sending half.
    pub fn finish(&self) -> io::Result<()> {
        self.socket.shutdown(std::net::Shutdown::Write)
    }

    /// Reads until the other end closes, at most `limit` bytes.
    pub fn drain(&mut self, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&self.socket).take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads frames until one fits.
    pub fn read_until(&mut self, fits: impl Fn(&Frame) -> bool) -> io::Result<Frame> {
        loop {
            match crate::frame::read_frame(&mut self.socket)? {
                Some(frame) if fits(&frame) => return Ok(frame),
                Some(_) => {}
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
}

/// A header block that costs little to send and much to hold: one field of `size` bytes put into the dynamic table,
/// then `references` one-byte references to it.
pub fn hpack_bomb(size: usize, references: usize) -> Vec<u8> {
    let mut block = crate::peer::literal_block(&CallHead::new("/bomb.v1.Bomb/Go").fields());
    // 0x40: literal with incremental indexing, new name (RFC 7541 section 6.2.1).
    let literal = crate::peer::literal_block(&vec![(b"x-bomb".to_vec(), vec![b'a'; size])]);
    block.push(0x40);
    block.extend_from_slice(&literal[1..]);
    // 62 is the first entry of the dynamic table.
    block.extend(std::iter::repeat_n(0x80 | 62, references));
    block
}

/// A client that keeps a connection and renews it as gRPC libraries do.
///
/// A call that the other end says it has not looked at (its stream is above GOAWAY's last one, or it was refused) is
/// made again on a new connection; any other failure is the caller's to see.
#[derive(Debug)]
pub struct SteadyClient {
    socket: std::path::PathBuf,
    client: Option<RawClient>,
}

impl SteadyClient {
    /// Connects when first used.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.into(), client: None }
    }

    /// A unary call. A connection that cannot be made is an error.
    pub fn call(&mut self, head: &CallHead, message: &[u8]) -> io::Result<Answer> {
        for _ in 0..10 {
            let usable =
                self.client.take().filter(|client| !client.peer.is_lost() && client.goaway_after().is_none());
            let client = match usable {
                Some(client) => client,
                None => RawClient::connect(&self.socket)?,
            };
            let stream = client.open(head);
            // A refusal may arrive before the request is sent in full; the answer then tells.
            let _ = stream.send_message(message, true);
            let answer = Answer::collect(&stream, LIMIT);
            let unprocessed = client.goaway_after().is_some_and(|last| stream.id() > last)
                || answer.reset == Some(crate::frame::code::REFUSED_STREAM);
            stream.forget();
            self.client = Some(client);
            if !(unprocessed && answer.status().is_none()) {
                return Ok(answer);
            }
            if let Some(client) = self.client.take() {
                client.peer.close();
            }
        }
        Err(io::Error::other("ten connections in a row did not look at the call"))
    }
}

impl RawClient {
    /// The last stream that is looked at, once a GOAWAY has come.
    fn goaway_after(&self) -> Option<u32> {
        self.peer.wait_goaway(Duration::ZERO).map(|goaway| goaway.last_stream)
    }
}
