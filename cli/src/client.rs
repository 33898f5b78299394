//! Asks the proxy over its admin socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use koord_admin::ErrorBody;
use koord_runtime::duration::format_go_duration;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// The largest answer, in bytes. A thousand containers with twenty fields each take about 6 MiB.
const LARGEST_ANSWER: usize = 256 * 1024 * 1024;

/// Why there is no answer to use.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no socket.
    #[error(
        "no admin socket at {}: is koord-runtime-proxy running on this node? If its --admin-socket is another one, \
         name it with --admin-socket",
        socket.display()
    )]
    Missing {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// This user may not use the socket.
    #[error("not permitted to use the admin socket {}: it is for root; run koordctl as root", socket.display())]
    Denied {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// There is a socket, and nobody behind it.
    #[error(
        "nobody listens at the admin socket {}: koord-runtime-proxy has ended and left it; start the proxy",
        socket.display()
    )]
    Refused {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// The socket cannot be used for another reason.
    #[error("cannot connect to the admin socket {}", socket.display())]
    Connect {
        /// Path of the socket.
        socket: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The answer takes too long.
    #[error(
        "no answer to {request} from {} within {}; a longer --timeout may help",
        socket.display(),
        format_go_duration(*limit)
    )]
    Timeout {
        /// Path of the socket.
        socket: PathBuf,
        /// Method and path.
        request: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The connection broke.
    #[error("the connection to {} broke during {request}", socket.display())]
    Lost {
        /// Path of the socket.
        socket: PathBuf,
        /// Method and path.
        request: String,
        /// What happened.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The program at the socket does not know the request.
    #[error("the program at {} does not know {request}: is it a koord-runtime-proxy of this release?", socket.display())]
    Unknown {
        /// Path of the socket.
        socket: PathBuf,
        /// Method and path.
        request: String,
    },
    /// The proxy said no.
    #[error("{request} was refused ({status}): {message}")]
    Refusal {
        /// Method and path.
        request: String,
        /// Status of HTTP.
        status: StatusCode,
        /// What the proxy said.
        message: String,
    },
    /// The proxy does not sample usage.
    #[error(
        "the program at {} does not tell usage: is it a koord-runtime-proxy of this release that runs with --usage=on?",
        socket.display()
    )]
    NoUsage {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// The proxy serves as many as it can.
    #[error("{request} was refused: {message}; try again when one of them has ended")]
    Busy {
        /// The call.
        request: String,
        /// What the proxy said.
        message: String,
    },
    /// The answer is not what this program understands.
    #[error("the answer to {request} is not understood: are proxy and koordctl of the same release?")]
    NotUnderstood {
        /// Method and path.
        request: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The request cannot be made.
    #[error("{request} cannot be sent")]
    Request {
        /// Method and path.
        request: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ClientError {
    /// Whether the proxy did not answer at all.
    pub fn is_unreachable(&self) -> bool {
        match self {
            ClientError::Missing { .. }
            | ClientError::Denied { .. }
            | ClientError::Refused { .. }
            | ClientError::Connect { .. }
            | ClientError::Timeout { .. }
            | ClientError::Lost { .. } => true,
            ClientError::Unknown { .. }
            | ClientError::Refusal { .. }
            | ClientError::NoUsage { .. }
            | ClientError::Busy { .. }
            | ClientError::NotUnderstood { .. }
            | ClientError::Request { .. } => false,
        }
    }
}

/// Asks the proxy: one connection for each request.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    limit: Duration,
}

impl Client {
    /// Asks at `socket`, and waits for each answer at most `limit`.
    pub fn new(socket: PathBuf, limit: Duration) -> Client {
        Client { socket, limit }
    }

    /// The socket it asks at.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How long it waits for an answer.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The answer to `GET target`, where `target` is a path with an optional query.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, target, Bytes::new())
    }

    /// The answer to `POST target` with `body` as JSON.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post<T: DeserializeOwned>(&self, target: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let bytes = serde_json::to_vec(body).map_err(|source| ClientError::Request {
            request: format!("POST {target}"),
            source: source.into(),
        })?;
        self.ask(Method::POST, target, bytes.into())
    }

    /// The answer to `POST target` without a body.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn order<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        self.ask(Method::POST, target, Bytes::new())
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, target: &str, body: Bytes) -> Result<T, ClientError> {
        // The query is left out: it repeats what the user typed.
        let request = format!("{method} {}", target.split('?').next().unwrap_or(target));
        let (status, answer) = self.exchange_within_limit(&request, method, target, body)?;
        if status.is_success() {
            return serde_json::from_slice(&answer)
                .map_err(|source| ClientError::NotUnderstood { request, source });
        }
        match serde_json::from_slice::<ErrorBody>(&answer) {
            Ok(ErrorBody { error }) => Err(ClientError::Refusal { request, status, message: error }),
            Err(_) if matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => {
                Err(ClientError::Unknown { socket: self.socket.clone(), request })
            }
            Err(_) => {
                let message = String::from_utf8_lossy(&answer).trim().to_owned();
                Err(ClientError::Refusal { request, status, message })
            }
        }
    }

    fn exchange_within_limit(
        &self,
        request: &str,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let cannot = |source| ClientError::Request { request: request.to_owned(), source };
        let message = Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, "localhost")
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|source| cannot(source.into()))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| cannot(source.into()))?;
        runtime.block_on(async {
            tokio::time::timeout(self.limit, self.exchange(request, message)).await.unwrap_or_else(
                |_elapsed| {
                    Err(ClientError::Timeout {
                        socket: self.socket.clone(),
                        request: request.to_owned(),
                        limit: self.limit,
                    })
                },
            )
        })
    }

    /// A connection to the socket.
    ///
    /// # Errors
    /// There is none to be had; the error says why.
    pub async fn connect(&self) -> Result<UnixStream, ClientError> {
        UnixStream::connect(&self.socket).await.map_err(|source| self.not_connected(source))
    }

    async fn exchange(
        &self,
        request: &str,
        message: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let lost =
            |source| ClientError::Lost { socket: self.socket.clone(), request: request.to_owned(), source };
        let stream = self.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|source| lost(source.into()))?;
        let answer = async {
            let answer = sender.send_request(message).await.map_err(|source| lost(source.into()))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LARGEST_ANSWER).collect().await.map_err(lost)?;
            Ok((head.status, body.to_bytes()))
        };
        let mut answer = std::pin::pin!(answer);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            answer = &mut answer => answer,
            // What arrived before the connection ended is still to be taken.
            _ended = &mut connection => answer.await,
        }
    }

    fn not_connected(&self, source: std::io::Error) -> ClientError {
        let socket = self.socket.clone();
        match source.kind() {
            std::io::ErrorKind::NotFound => ClientError::Missing { socket },
            std::io::ErrorKind::PermissionDenied => ClientError::Denied { socket },
            std::io::ErrorKind::ConnectionRefused => ClientError::Refused { socket },
            _ => ClientError::Connect { socket, source },
        }
    }
}
