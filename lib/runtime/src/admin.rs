//! A small HTTP server for operators: health, metrics, introspection, and gRPC services beside them.
//!
//! The program gives it a table of routes. It listens on a unix socket of mode 0600 and, if asked to,
//! on a TCP address with another table. HTTP/1.1 and, with prior knowledge as gRPC has it, HTTP/2 are spoken on the
//! same socket.

mod preface;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use preface::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::metrics::MetricsPage;
use crate::supervisor::{Policy, Supervisor, TaskHandle};
use crate::unix_socket::{self, BindError, Occupied, SocketAccess, SocketFile};

/// Body of an answer. Most are one piece; a handler may stream.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answer of a handler.
pub type Answer = Response<Body>;

/// A request with its body read in full.
pub type Call = Request<Bytes>;

type Handler = Arc<dyn Fn(Call) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync>;

/// A request with its body still to come.
pub type StreamedCall = Request<Incoming>;

/// What goes wrong while a body is sent.
#[derive(Debug, thiserror::Error)]
#[error("the rest of the answer cannot be had")]
pub struct BodyError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Answer of a service, trailers included.
pub type StreamedAnswer = Response<UnsyncBoxBody<Bytes, BodyError>>;

type Service =
    Arc<dyn Fn(StreamedCall) -> Pin<Box<dyn Future<Output = StreamedAnswer> + Send>> + Send + Sync>;

/// Among the extensions of a [`StreamedCall`]: cancelled when the server ends. An answer without an end of its own ends
/// then.
#[derive(Debug, Clone)]
pub struct Closing(pub CancellationToken);

/// The largest request body, in bytes.
const LARGEST_BODY: usize = 64 * 1024;

/// Connections served at a time; further ones wait.
const MOST_CONNECTIONS: usize = 64;

/// A client that sends nothing for this long is dropped.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls at a time on one connection.
const MOST_CALLS: u32 = 16;

/// Octets of an answer that wait for a client that does not read. What is beyond waits at its source.
const SEND_BUFFER: usize = 64 * 1024;

/// Table of routes: exact paths, and gRPC services by name.
#[derive(Clone, Default)]
pub struct Routes {
    routes: Vec<(Method, &'static str, Handler)>,
    services: Vec<(&'static str, Service)>,
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.routes.iter().map(|(method, path, _)| (method, path))).finish()
    }
}

impl Routes {
    /// An empty table: every path answers 404.
    pub fn new() -> Routes {
        Routes::default()
    }

    /// Adds a route. `GET` routes answer `HEAD` as well.
    #[must_use]
    pub fn route<F, Fut>(mut self, method: Method, path: &'static str, handler: F) -> Routes
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        self.routes.push((method, path, Arc::new(move |call| Box::pin(handler(call)))));
        self
    }

    /// Adds a `GET` route whose answer needs nothing of the request and no waiting.
    #[must_use]
    pub fn get(self, path: &'static str, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Routes {
        self.route(Method::GET, path, move |_call| std::future::ready(answer()))
    }

    /// Adds `GET /metrics`.
    #[must_use]
    pub fn metrics(self, page: MetricsPage) -> Routes {
        self.route(Method::GET, "/metrics", move |call| {
            let accept = call.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
            std::future::ready(match page.render(accept) {
                Ok((kind, text)) => answer(StatusCode::OK, kind, text),
                Err(error) => {
                    tracing::error!(error = %error, "metrics page cannot be written");
                    text(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written as text\n")
                }
            })
        })
    }

    /// Adds a gRPC service by its full name, such as `package.Service`. It gets the calls of all its methods that come
    /// over HTTP/2.
    #[must_use]
    pub fn service<F, Fut>(mut self, name: &'static str, handler: F) -> Routes
    where
        F: Fn(StreamedCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = StreamedAnswer> + Send + 'static,
    {
        self.services.push((name, Arc::new(move |call| Box::pin(handler(call)))));
        self
    }

    fn service_of(&self, path: &str) -> Option<&Service> {
        let (name, _method) = path.strip_prefix('/')?.split_once('/')?;
        self.services.iter().find(|(service, _)| *service == name).map(|(_, handler)| handler)
    }

    async fn serve(self: Arc<Self>, mut request: StreamedCall, closing: Closing) -> StreamedAnswer {
        if request.version() == Version::HTTP_2 {
            if let Some(service) = self.service_of(request.uri().path()) {
                request.extensions_mut().insert(closing);
                return service(request).await;
            }
            let kind = request.headers().get(header::CONTENT_TYPE);
            if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
                return unknown_service();
            }
        }
        self.answer(request).await.map(|body| body.map_err(|never| match never {}).boxed_unsync())
    }

    async fn answer(&self, request: StreamedCall) -> Answer {
        let path = request.uri().path();
        let wanted = match *request.method() {
            Method::HEAD => Method::GET,
            ref method => method.clone(),
        };
        let known: Vec<_> = self.routes.iter().filter(|(_, route, _)| *route == path).collect();
        if known.is_empty() {
            return text(StatusCode::NOT_FOUND, self.overview());
        }
        let Some((_, _, handler)) = known.iter().find(|(method, _, _)| *method == wanted) else {
            let allowed: Vec<&str> = known.iter().map(|(method, _, _)| method.as_str()).collect();
            let allowed = allowed.join(", ");
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} accepts {allowed} only\n"));
            if let Ok(value) = HeaderValue::from_str(&allowed) {
                answer.headers_mut().insert(header::ALLOW, value);
            }
            return answer;
        };
        let handler = Arc::clone(handler);
        let (head, body) = request.into_parts();
        match Limited::new(body, LARGEST_BODY).collect().await {
            Ok(body) => handler(Request::from_parts(head, body.to_bytes())).await,
            Err(_too_large_or_cut) => text(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("request body is cut short or over {LARGEST_BODY} bytes\n"),
            ),
        }
    }

    fn overview(&self) -> String {
        let mut overview = String::from("no such path; there is:\n");
        for (method, path, _) in &self.routes {
            overview.push_str(&format!("{method} {path}\n"));
        }
        for (name, _) in &self.services {
            overview.push_str(&format!("gRPC {name}\n"));
        }
        overview
    }
}

/// The answer to a gRPC call of a service that is not there, in the words of gRPC: UNIMPLEMENTED.
fn unknown_service() -> StreamedAnswer {
    let mut response = Response::new(Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static("12"));
    headers.insert("grpc-message", HeaderValue::from_static("unknown service"));
    response
}

/// An answer of one piece.
pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A plain-text answer.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, "text/plain; charset=utf-8", body)
}

/// A JSON answer, one line with a line end.
pub fn json(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(mut body) => {
            body.push(b'\n');
            answer(status, "application/json", body)
        }
        Err(error) => {
            tracing::error!(error = %error, "answer cannot be written as JSON");
            text(StatusCode::INTERNAL_SERVER_ERROR, "answer cannot be written as JSON\n")
        }
    }
}

/// The TCP address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct TcpBindError {
    /// The address.
    pub address: SocketAddr,
    /// What the operating system said.
    #[source]
    pub source: std::io::Error,
}

/// Serves `routes` on a unix socket of mode 0600 at `path`. A stale socket is replaced; `occupied`
/// says what happens to a live one. The caller removes the returned file when it is done.
///
/// # Errors
/// The socket cannot be made.
pub fn serve_unix(
    supervisor: &Supervisor,
    path: &Path,
    occupied: Occupied,
    routes: Routes,
) -> Result<(TaskHandle, SocketFile), BindError> {
    let (listener, file) = unix_socket::bind(path, SocketAccess::PRIVATE, occupied)?;
    let failed = |source| BindError::Io { action: "watch", path: path.to_owned(), source };
    listener.set_nonblocking(true).map_err(failed)?;
    let _context = supervisor.runtime().enter();
    let listener = Arc::new(tokio::net::UnixListener::from_std(listener).map_err(failed)?);
    let handle = serve(supervisor, "admin", routes, move || {
        let listener = Arc::clone(&listener);
        async move { listener.accept().await.map(|(stream, _)| stream) }
    });
    Ok((handle, file))
}

/// Serves `routes` on a TCP address. Returns the address in use, with its port if 0 was asked for.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve_tcp(
    supervisor: &Supervisor,
    address: SocketAddr,
    routes: Routes,
) -> Result<(TaskHandle, SocketAddr), TcpBindError> {
    let failed = |source| TcpBindError { address, source };
    let _context = supervisor.runtime().enter();
    let listener = Arc::new(listen_tcp(address).map_err(failed)?);
    let bound = listener.local_addr().map_err(failed)?;
    let handle = serve(supervisor, "admin-tcp", routes, move || {
        let listener = Arc::clone(&listener);
        async move { listener.accept().await.map(|(stream, _)| stream) }
    });
    Ok((handle, bound))
}

/// Shares the port with a process of the same user, so that a successor can listen before its
/// predecessor has stopped.
fn listen_tcp(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(128)
}

fn serve<A, Fut, S>(supervisor: &Supervisor, name: &'static str, routes: Routes, accept: A) -> TaskHandle
where
    A: Fn() -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = std::io::Result<S>> + Send,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = Arc::new(routes);
    let connections = supervisor.clone();
    supervisor.spawn(name, Policy::Restart(crate::supervisor::Backoff::default()), move |token| {
        let (routes, accept, connections) = (Arc::clone(&routes), accept.clone(), connections.clone());
        async move {
            let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
            loop {
                let permit = Arc::clone(&permits).acquire_owned().await?;
                let stream = tokio::select! {
                    () = token.cancelled() => return Ok(()),
                    stream = accept() => stream,
                };
                let stream = match stream {
                    Ok(stream) => stream,
                    Err(error) => {
                        // Out of descriptors, or the client is gone already: go on, but not in a tight loop.
                        tracing::warn!(error = %error, "admin connection not accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                let serving =
                    serve_connection(stream, Arc::clone(&routes), token.clone(), connections.clone());
                let _detached = connections.spawn_once("admin-connection", async move {
                    serving.await;
                    drop(permit);
                    Ok(())
                });
            }
        }
    })
}

async fn serve_connection<S>(stream: S, routes: Arc<Routes>, token: CancellationToken, supervisor: Supervisor)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn({
        let (routes, token) = (Arc::clone(&routes), token.clone());
        move |request| {
            let (routes, closing) = (Arc::clone(&routes), Closing(token.clone()));
            async move { Ok::<_, Infallible>(routes.serve(request, closing).await) }
        }
    });
    let found = tokio::select! {
        () = token.cancelled() => return,
        found = tokio::time::timeout(HEADER_TIMEOUT, preface::find(stream)) => found,
    };
    let result = match found {
        Ok(Ok((Protocol::Http1, stream))) => {
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).half_close(true);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            until_cancelled(connection, &token, |connection| connection.graceful_shutdown()).await
        }
        Ok(Ok((Protocol::Http2, stream))) => {
            let mut builder = hyper::server::conn::http2::Builder::new(Calls(supervisor));
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(MOST_CALLS)
                .max_send_buf_size(SEND_BUFFER);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            until_cancelled(connection, &token, |connection| connection.graceful_shutdown()).await
        }
        Ok(Err(error)) => {
            tracing::debug!(error = %error, "admin connection ended before its first request");
            return;
        }
        Err(_elapsed) => {
            tracing::debug!("admin connection without a request");
            return;
        }
    };
    if let Err(error) = result {
        tracing::debug!(error = %crate::error_chain::Chain(&error), "admin connection ended early");
    }
}

/// Waits for a connection to end; once `token` is cancelled, it is told to.
async fn until_cancelled<C: Future>(
    connection: C,
    token: &CancellationToken,
    end: impl FnOnce(Pin<&mut C>),
) -> C::Output {
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        result = &mut connection => result,
        () = token.cancelled() => {
            end(connection.as_mut());
            connection.await
        }
    }
}

/// Runs the calls of a connection with several at a time.
#[derive(Debug, Clone)]
struct Calls(Supervisor);

impl<F> hyper::rt::Executor<F> for Calls
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        let _detached = self.0.spawn_once("admin-call", async move {
            call.await;
            Ok(())
        });
    }
}
