//! A gRPC client connection to a Unix socket: dialled when first needed, dialled again after a loss.
//!
//! Messages travel as bytes; whoever calls encodes and decodes. Failures read like those of Go's client,
//! because they reach the kubelet's log and users search for them.

use std::error::Error as StdError;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::Uri;
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::errno::Errno;
use prometheus_client::metrics::counter::Counter;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

use crate::endpoint::Endpoint;
use crate::trust::Trust;

/// Receive limit of Go's gRPC client, which hook servers are written against.
pub const DEFAULT_MESSAGE_LIMIT: usize = 4 * 1024 * 1024;

/// First pause after a failed dial.
const BACK_OFF_BASE: Duration = Duration::from_millis(100);
/// Longest pause between dials.
const BACK_OFF_CAP: Duration = Duration::from_secs(3);
/// Growth of the pause, that of gRPC's connection back-off.
const BACK_OFF_FACTOR: f64 = 1.6;
/// What one answer may keep in flight before the reader has taken it.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// One connection to one socket, shared by all calls.
#[derive(Debug)]
pub struct UnixChannel {
    endpoint: Endpoint,
    trust: Option<Trust>,
    reconnects: Option<Counter>,
    state: Mutex<State>,
    connection: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    sender: Option<Sender>,
    connections: u64,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    status: Status,
    pause: Duration,
    next_dial: Instant,
    socket: Option<SocketIdentity>,
}

/// Tells a re-created socket from the one a dial failed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketIdentity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl SocketIdentity {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl UnixChannel {
    /// A channel that connects to any owner's socket.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            trust: None,
            reconnects: None,
            state: Mutex::default(),
            connection: watch::Sender::new(0),
        }
    }

    /// Connects only to sockets owned, and served, by a trusted user.
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = Some(trust);
        self
    }

    /// Counts connections made after the first.
    #[must_use]
    pub fn counting_reconnects(mut self, counter: Counter) -> Self {
        self.reconnects = Some(counter);
        self
    }

    /// The socket.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The number of the connection there is now, counted from 1; 0 while there is none.
    pub fn connection(&self) -> watch::Receiver<u64> {
        self.connection.subscribe()
    }

    /// Calls a unary method.
    ///
    /// `limit` is the largest answer in bytes; `within` covers dialling and the call, and is told to the
    /// server.
    ///
    /// # Errors
    ///
    /// The server's status, or one of our own: UNAVAILABLE when the socket cannot be reached or the connection
    /// is lost, DEADLINE_EXCEEDED after `within`, RESOURCE_EXHAUSTED for an answer beyond `limit`.
    pub async fn unary(
        &self,
        method: &'static str,
        message: Bytes,
        limit: usize,
        within: Duration,
    ) -> Result<Bytes, Status> {
        self.bounded(within, limit, async {
            let mut again = true;
            loop {
                let sender = self.sender().await?;
                let mut client = Grpc::with_origin(sender, origin()).max_decoding_message_size(limit);
                let path = PathAndQuery::from_static(method);
                let answer = client.unary(request(&message, within), path, BytesCodec).await;
                match answer {
                    Ok(response) => return Ok(response.into_inner()),
                    Err(status) if again && was_not_sent(&status) => again = false,
                    Err(status) => return Err(status),
                }
            }
        })
        .await
    }

    /// Calls a method that answers with a stream and hands every message to `each`.
    ///
    /// # Errors
    ///
    /// As [`UnixChannel::unary`], `within` covering the whole stream; and whatever `each` returns.
    pub async fn server_stream<F>(
        &self,
        method: &'static str,
        message: Bytes,
        limit: usize,
        within: Duration,
        mut each: F,
    ) -> Result<(), Status>
    where
        F: FnMut(Bytes) -> Result<(), Status>,
    {
        self.bounded(within, limit, async {
            let sender = self.sender().await?;
            let mut client = Grpc::with_origin(sender, origin()).max_decoding_message_size(limit);
            let path = PathAndQuery::from_static(method);
            let answer = client.server_streaming(request(&message, within), path, BytesCodec).await?;
            let mut stream = answer.into_inner();
            while let Some(message) = stream.message().await? {
                each(message)?;
            }
            Ok(())
        })
        .await
    }

    async fn bounded<T>(
        &self,
        within: Duration,
        limit: usize,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        match timeout(within, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(status)) => Err(as_go_says(status, limit)),
            Err(_) => Err(Status::deadline_exceeded("context deadline exceeded")),
        }
    }

    async fn sender(&self) -> Result<Sender, Status> {
        let mut state = self.state.lock().await;
        if let Some(sender) = &mut state.sender {
            if sender.0.ready().await.is_ok() {
                return Ok(sender.clone());
            }
            state.sender = None;
        }
        if let Some(failure) = &state.failure
            && Instant::now() < failure.next_dial
            && failure.socket == SocketIdentity::of(self.endpoint.path())
        {
            return Err(failure.status.clone());
        }
        let socket = SocketIdentity::of(self.endpoint.path());
        let number = state.connections + 1;
        match self.dial(number).await {
            Ok(sender) => {
                state.connections = number;
                if number > 1
                    && let Some(counter) = &self.reconnects
                {
                    counter.inc();
                }
                state.failure = None;
                state.sender = Some(sender.clone());
                Ok(sender)
            }
            Err(status) => {
                let pause = match &state.failure {
                    Some(failure) if failure.socket == socket => {
                        failure.pause.mul_f64(BACK_OFF_FACTOR).min(BACK_OFF_CAP)
                    }
                    _ => BACK_OFF_BASE,
                };
                let next_dial = Instant::now() + pause;
                state.failure = Some(Failure { status: status.clone(), pause, next_dial, socket });
                Err(status)
            }
        }
    }

    async fn dial(&self, number: u64) -> Result<Sender, Status> {
        let path = self.endpoint.path();
        if let Some(trust) = &self.trust {
            let metadata = std::fs::metadata(path).map_err(|error| self.dial_error(&error))?;
            if !metadata.file_type().is_socket() {
                return Err(self.dial_error(&std::io::Error::from(Errno::ENOTSOCK)));
            }
            if !trust.accepts(metadata.uid()) {
                return Err(self.untrusted("is owned by", metadata.uid(), trust));
            }
        }
        let stream = UnixStream::connect(path).await.map_err(|error| self.dial_error(&error))?;
        if let Some(trust) = &self.trust {
            // The path may have changed hands since it was looked at.
            let peer = stream.peer_cred().map_err(|error| self.dial_error(&error))?;
            if !trust.accepts(peer.uid()) {
                return Err(self.untrusted("is served by", peer.uid(), trust));
            }
        }
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(4 * WINDOW_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Status::unavailable(format!("connection error: desc = \"{error}\"")))?;
        let endpoint = self.endpoint.clone();
        let current = self.connection.clone();
        current.send_replace(number);
        TokioExecutor::new().execute(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%endpoint, %error, "connection ended");
            }
            current.send_if_modified(|now| {
                let ended = *now == number;
                if ended {
                    *now = 0;
                }
                ended
            });
        });
        Ok(Sender(sender))
    }

    fn dial_error(&self, error: &std::io::Error) -> Status {
        let reason = match error.raw_os_error() {
            Some(code) => lower_first(Errno::from_raw(code).desc()),
            None => error.to_string(),
        };
        Status::unavailable(format!(
            "connection error: desc = \"transport: Error while dialing: dial unix {}: connect: {reason}\"",
            self.endpoint
        ))
    }

    fn untrusted(&self, relation: &str, uid: u32, trust: &Trust) -> Status {
        Status::unavailable(format!(
            "connection error: desc = \"transport: Error while dialing: dial unix {}: the socket {relation} \
             user {uid}, accepted is {trust}\"",
            self.endpoint
        ))
    }
}

fn origin() -> Uri {
    Uri::from_static("http://localhost")
}

fn request(message: &Bytes, within: Duration) -> Request<Bytes> {
    let mut request = Request::new(message.clone());
    request.set_timeout(within);
    request
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// A status as Go's client prints it: `rpc error: code = Unavailable desc = ...`.
pub fn go_error_text(status: &Status) -> String {
    let code = match status.code() {
        Code::Ok => "OK".to_owned(),
        // Go has one l here.
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}

/// How sending failed; found again as the source of the status tonic makes of it.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the connection closed before the request was sent")]
    NotSent,
    #[error("{0}")]
    Lost(String),
    #[error("{}", .0.message())]
    Status(Status),
}

fn send_error(status: &Status) -> Option<&SendError> {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        source = error.source();
    }
    None
}

fn was_not_sent(status: &Status) -> bool {
    matches!(send_error(status), Some(SendError::NotSent))
}

fn as_go_says(status: Status, limit: usize) -> Status {
    match send_error(&status) {
        Some(SendError::NotSent) => Status::unavailable("the connection is closing"),
        Some(SendError::Lost(reason)) => Status::unavailable(format!("error reading from server: {reason}")),
        Some(SendError::Status(status)) => status.clone(),
        None if status.code() == Code::OutOfRange
            && status.message().contains("message length too large") =>
        {
            let size: String = status
                .message()
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect();
            Status::resource_exhausted(format!("grpc: received message larger than max ({size} vs. {limit})"))
        }
        None => status,
    }
}

fn classify(error: &hyper::Error) -> SendError {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(h2) = cause.downcast_ref::<h2::Error>() {
            if h2.is_reset() {
                let code = match h2.reason() {
                    Some(h2::Reason::CANCEL) => Code::Cancelled,
                    Some(h2::Reason::REFUSED_STREAM) => Code::Unavailable,
                    Some(h2::Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
                    Some(h2::Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
                    _ => Code::Internal,
                };
                let reason = h2.reason().map_or_else(String::new, |reason| format!("{reason:?}"));
                return SendError::Status(Status::new(
                    code,
                    format!("stream terminated by RST_STREAM with error code: {reason}"),
                ));
            }
            return SendError::Lost(if h2.is_io() { "EOF".to_owned() } else { h2.to_string() });
        }
        source = cause.source();
    }
    SendError::Lost("EOF".to_owned())
}

#[derive(Debug, Clone)]
struct Sender(SendRequest<Body>);

impl tower::Service<http::Request<Body>> for Sender {
    type Response = http::Response<Body>;
    type Error = SendError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, SendError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.0.poll_ready(context).map_err(|_| SendError::NotSent)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.0.try_send_request(request);
        Box::pin(async move {
            match answer.await {
                Ok(response) => Ok(response.map(|body: Incoming| {
                    Body::new(body.map_err(|error| match classify(&error) {
                        SendError::Status(status) => status,
                        other => Status::from_error(Box::new(other)),
                    }))
                })),
                Err(mut error) => match error.take_message() {
                    Some(_) => Err(SendError::NotSent),
                    None => Err(classify(error.error())),
                },
            }
        })
    }
}

/// Messages as they are on the wire.
#[derive(Debug, Clone, Copy)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(source.copy_to_bytes(source.remaining())))
    }
}

#[cfg(test)]
mod tests;
