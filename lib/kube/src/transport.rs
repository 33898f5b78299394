//! The HTTP stack below the client: connections with TLS, headers, credentials, a time limit.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use tower::util::{BoxCloneService, option_layer};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt as _};

use crate::token::{TokenFile, TokenLayer};

/// How long a connection may take to be made, TLS not included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// An unused connection is closed before a load balancer between forgets it.
const IDLE_CONNECTION: Duration = Duration::from_secs(60);

/// A peer that vanished is noticed after this and some probes.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Requests in, answers out.
pub(crate) type Transport = BoxCloneService<Request<Body>, Response<hyper::body::Incoming>, BoxError>;

/// The head of an answer did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} ms", limit.as_millis())]
pub(crate) struct NoAnswerInTime {
    /// How long was waited.
    pub(crate) limit: Duration,
}

/// Puts the stack together. Nothing is connected yet. `limit` is the time until the head of an answer; the body of a
/// watch may take as long as it likes.
pub(crate) fn transport(
    config: &Config,
    token: Option<TokenFile>,
    limit: Duration,
) -> Result<Transport, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(config.connect_timeout.unwrap_or(CONNECT_LIMIT).min(limit)));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_nodelay(true);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .build::<_, Body>(connector)
        .map_err(BoxError::from);
    // From outside to inside: where to, who we are, how long.
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer()?)
        .layer(option_layer(config.auth_layer()?))
        .map_err(BoxError::from)
        .layer(option_layer(token.map(TokenLayer::new)))
        .layer(HeadLimitLayer { limit })
        .service(http);
    Ok(BoxCloneService::new(service))
}

/// Limits the time until the head of the answer.
#[derive(Debug, Clone, Copy)]
struct HeadLimitLayer {
    limit: Duration,
}

impl<S> Layer<S> for HeadLimitLayer {
    type Service = HeadLimit<S>;

    fn layer(&self, inner: S) -> HeadLimit<S> {
        HeadLimit { inner, limit: self.limit }
    }
}

#[derive(Debug, Clone)]
struct HeadLimit<S> {
    inner: S,
    limit: Duration,
}

impl<S, R> Service<R> for HeadLimit<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let limit = self.limit;
        let answer = tokio::time::timeout(limit, self.inner.call(request));
        Box::pin(async move {
            match answer.await {
                Ok(answer) => answer,
                Err(_elapsed) => Err(NoAnswerInTime { limit }.into()),
            }
        })
    }
}
