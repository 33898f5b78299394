//! A gRPC server whose answers a test writes out.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// What the server does with a call.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Answers these messages and status 0.
    Messages(Vec<Vec<u8>>),
    /// Answers this status and nothing else.
    Status(u32, &'static str),
    /// Never answers.
    Hang,
}

impl Reply {
    pub(crate) fn message(message: &impl Message) -> Self {
        Self::Messages(vec![message.encode_to_vec()])
    }

    pub(crate) fn empty() -> Self {
        Self::Messages(vec![Vec::new()])
    }

    pub(crate) fn unimplemented() -> Self {
        Self::Status(12, "unknown method")
    }
}

/// One call as the server saw it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) message: Bytes,
    pub(crate) timeout: Option<String>,
}

impl Seen {
    pub(crate) fn decode<M: Message + Default>(&self) -> M {
        M::decode(self.message.clone()).expect("a message of that type")
    }
}

type Handler = Arc<dyn Fn(&str, Bytes) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync>;

/// A running server; it ends, with its connections, when this is dropped.
pub(crate) struct FakeServer {
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeServer {
    /// Serves `path`; `handler` gets the last part of the method's path and the message.
    pub(crate) fn serve(path: &Path, handler: impl Fn(&str, Bytes) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve_paths(path, move |path, message| handler(last_part(path), message))
    }

    /// Serves `path`; `handler` gets the method's full path.
    pub(crate) fn serve_paths(
        path: &Path,
        handler: impl Fn(&str, Bytes) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::serve_async(
            path,
            Arc::new(move |method, message| Box::pin(std::future::ready(handler(method, message)))),
        )
    }

    /// Serves `path`; `handler` gets the method's full path.
    pub(crate) fn serve_async(path: &Path, handler: Handler) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("bound");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let log = seen.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accepted");
                let (log, handler) = (log.clone(), handler.clone());
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let (log, handler) = (log.clone(), handler.clone());
                        async move { Ok::<_, std::convert::Infallible>(answer(request, &log, &handler).await) }
                    });
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { seen, task }
    }

    /// All calls so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("lock").clone()
    }

    /// The names of all calls so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.method).collect()
    }

    /// The last call of that method.
    pub(crate) fn last(&self, method: &str) -> Seen {
        self.seen()
            .into_iter()
            .rev()
            .find(|seen| seen.method == method)
            .unwrap_or_else(|| panic!("{method} among {:?}", self.methods()))
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

type Body = StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, std::io::Error>>>>;

async fn answer(
    request: http::Request<Incoming>,
    log: &Mutex<Vec<Seen>>,
    handler: &Handler,
) -> http::Response<Body> {
    let path = request.uri().path().to_owned();
    let method = last_part(&path).to_owned();
    let timeout = request.headers().get("grpc-timeout").map(|value| value.to_str().expect("text").to_owned());
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let message = body.slice(5..);
    log.lock().expect("lock").push(Seen { method, message: message.clone(), timeout });
    let response = http::Response::builder().header("content-type", "application/grpc");
    let (status, text, messages) = match handler(&path, message).await {
        Reply::Hang => std::future::pending().await,
        Reply::Status(status, text) => (status, text, Vec::new()),
        Reply::Messages(messages) => (0, "", messages),
    };
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from(status));
    trailers.insert("grpc-message", http::HeaderValue::from_static(text));
    let mut frames = Vec::new();
    for message in messages {
        let mut framed = vec![0];
        framed.extend(u32::try_from(message.len()).expect("small").to_be_bytes());
        framed.extend(message);
        frames.push(Ok(Frame::data(Bytes::from(framed))));
    }
    frames.push(Ok(Frame::trailers(trailers)));
    response.body(StreamBody::new(futures_util::stream::iter(frames))).expect("a response")
}
