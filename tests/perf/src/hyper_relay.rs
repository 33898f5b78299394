//! A relay of the usual make: an HTTP/2 server, an HTTP/2 client, and a task per call between them.

use std::path::{Path, PathBuf};

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};

/// Windows as a CRI proxy needs them: 1 MiB per stream, 16 MiB per connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Serves for ever on one thread.
pub(crate) fn serve(listen: &Path, backend: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = UnixListener::bind(listen)?;
        loop {
            let (client, _) = listener.accept().await?;
            // A connection that fails is the measurement's business, not the relay's.
            tokio::spawn(connection(client, backend.to_owned()));
        }
    })
}

async fn connection(client: UnixStream, backend: PathBuf) -> anyhow::Result<()> {
    let backend = TokioIo::new(UnixStream::connect(backend).await?);
    let (sender, driver) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake::<_, Incoming>(backend)
        .await?;
    tokio::spawn(driver);
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(65_535)
        .serve_connection(TokioIo::new(client), service_fn(move |request| forward(sender.clone(), request)))
        .await?;
    Ok(())
}

async fn forward(
    mut sender: hyper::client::conn::http2::SendRequest<Incoming>,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, hyper::Error> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(Authority::from_static("localhost"));
    parts.path_and_query =
        request.uri().path_and_query().cloned().or_else(|| Some(PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    let response = sender.send_request(request).await?;
    debug_assert_eq!(response.status(), StatusCode::OK);
    Ok(response)
}
