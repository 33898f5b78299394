//! What was asked of the API server and how it ended, for a program's metrics.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, Uri};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::error::Verb;

/// What a request is about. Names of objects are left out: they are too many for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestInfo {
    /// What it is to do.
    pub verb: Verb,
    /// Group of the API; empty for the core API.
    pub group: String,
    /// Resource in URLs, for example `nodemetrics`; empty for a path that is no resource, like `/version`.
    pub resource: String,
    /// Subresource, for example `status`; empty for the object itself.
    pub subresource: String,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The server answered with this HTTP status.
    Answer(u16),
    /// There was no answer.
    NoAnswer,
}

impl Outcome {
    /// The status, or `<error>` as client-go's metrics have it.
    pub fn code(self) -> String {
        match self {
            Outcome::Answer(code) => code.to_string(),
            Outcome::NoAnswer => "<error>".to_owned(),
        }
    }
}

/// Is told of every request, each try counted.
pub trait Observer: Send + Sync + 'static {
    /// A request ended: the head of its answer came after `elapsed`. The time in the queue of the limit is not part of
    /// it.
    fn finished(&self, request: &RequestInfo, outcome: Outcome, elapsed: Duration);
}

/// Is told nothing.
impl Observer for () {
    fn finished(&self, _request: &RequestInfo, _outcome: Outcome, _elapsed: Duration) {}
}

impl RequestInfo {
    /// Reads method and URL as the API server does.
    pub fn of(method: &Method, uri: &Uri) -> RequestInfo {
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty()).skip_while(|part| {
            // A prefix that a proxy in front of the server takes away.
            !matches!(*part, "api" | "apis")
        });
        let group = match parts.next() {
            Some("apis") => parts.next().unwrap_or_default().to_owned(),
            _ => String::new(),
        };
        let _version = parts.next();
        let rest: Vec<&str> = parts.collect();
        let (resource, name, subresource) = match rest.as_slice() {
            // A namespace is an object itself and holds objects of others.
            ["namespaces", _, subresource @ ("status" | "finalize")] => ("namespaces", true, *subresource),
            ["namespaces", _, resource, rest @ ..] | [resource, rest @ ..] => {
                (*resource, !rest.is_empty(), rest.get(1).copied().unwrap_or_default())
            }
            [] => ("", false, ""),
        };
        let watched = || {
            uri.query()
                .unwrap_or_default()
                .split('&')
                .any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
        };
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if name => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ if watched() => Verb::Watch,
            _ if name || resource.is_empty() => Verb::Get,
            _ => Verb::List,
        };
        RequestInfo { verb, group, resource: resource.to_owned(), subresource: subresource.to_owned() }
    }
}

/// Tells an [`Observer`] of each request.
#[derive(Clone)]
pub struct ObserveLayer {
    observer: Arc<dyn Observer>,
}

impl std::fmt::Debug for ObserveLayer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ObserveLayer").finish_non_exhaustive()
    }
}

impl ObserveLayer {
    /// A layer that tells `observer`.
    pub fn new(observer: Arc<dyn Observer>) -> ObserveLayer {
        ObserveLayer { observer }
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe { inner, observer: Arc::clone(&self.observer) }
    }
}

/// The service of [`ObserveLayer`].
#[derive(Clone)]
pub struct Observe<S> {
    inner: S,
    observer: Arc<dyn Observer>,
}

impl<S> std::fmt::Debug for Observe<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observe").finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for Observe<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let info = RequestInfo::of(request.method(), request.uri());
        let observer = Arc::clone(&self.observer);
        let start = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let outcome = match &answer {
                Ok(answer) => Outcome::Answer(answer.status().as_u16()),
                Err(_) => Outcome::NoAnswer,
            };
            observer.finished(&info, outcome, start.elapsed());
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;
    use tower::ServiceExt as _;

    use super::*;

    #[test]
    fn requests_are_read_as_the_server_reads_them() {
        for (method, uri, verb, group, resource, subresource) in [
            (Method::GET, "/api/v1/nodes/a", Verb::Get, "", "nodes", ""),
            (
                Method::GET,
                "/api/v1/pods?fieldSelector=spec.nodeName%3Da&limit=500",
                Verb::List,
                "",
                "pods",
                "",
            ),
            (Method::GET, "/api/v1/pods?watch=true&timeoutSeconds=290", Verb::Watch, "", "pods", ""),
            (Method::GET, "/api/v1/namespaces/a", Verb::Get, "", "namespaces", ""),
            (Method::GET, "/api/v1/namespaces", Verb::List, "", "namespaces", ""),
            (Method::PUT, "/api/v1/namespaces/a/finalize", Verb::Update, "", "namespaces", "finalize"),
            (Method::GET, "/api/v1/namespaces/a/pods", Verb::List, "", "pods", ""),
            (Method::GET, "/api/v1/namespaces/a/pods/b/log", Verb::Get, "", "pods", "log"),
            (Method::DELETE, "/api/v1/namespaces/a/pods", Verb::DeleteCollection, "", "pods", ""),
            (Method::DELETE, "/api/v1/namespaces/a/pods/b", Verb::Delete, "", "pods", ""),
            (
                Method::PATCH,
                "https://127.0.0.1:1/apis/slo.koordinator.sh/v1alpha1/nodemetrics/a/status?fieldManager=koordlet",
                Verb::Patch,
                "slo.koordinator.sh",
                "nodemetrics",
                "status",
            ),
            (
                Method::POST,
                "/k8s/clusters/c/apis/events.k8s.io/v1/namespaces/default/events",
                Verb::Create,
                "events.k8s.io",
                "events",
                "",
            ),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                Verb::Update,
                "coordination.k8s.io",
                "leases",
                "",
            ),
            (Method::GET, "/version", Verb::Get, "", "", ""),
            (Method::GET, "/", Verb::Get, "", "", ""),
        ] {
            let expected = RequestInfo {
                verb,
                group: group.into(),
                resource: resource.into(),
                subresource: subresource.into(),
            };
            assert_eq!(RequestInfo::of(&method, &uri.parse().unwrap()), expected, "{method} {uri}");
        }
    }

    #[derive(Default)]
    struct Kept(Mutex<Vec<(Verb, String)>>);

    impl Observer for Kept {
        fn finished(&self, request: &RequestInfo, outcome: Outcome, _elapsed: Duration) {
            self.0.lock().unwrap().push((request.verb, outcome.code()));
        }
    }

    #[tokio::test]
    async fn the_observer_hears_of_answers_and_of_none() {
        let kept = Arc::new(Kept::default());
        let service =
            ObserveLayer::new(kept.clone()).layer(tower::service_fn(|request: Request<()>| async move {
                match request.method() {
                    &Method::GET => Ok(Response::builder().status(429).body(()).unwrap()),
                    _ => Err("connection refused"),
                }
            }));
        let request = |method| Request::builder().method(method).uri("/api/v1/nodes/a").body(()).unwrap();
        assert!(service.clone().oneshot(request(Method::GET)).await.is_ok());
        assert!(service.clone().oneshot(request(Method::PATCH)).await.is_err());
        let expected = [(Verb::Get, "429".to_owned()), (Verb::Patch, "<error>".to_owned())];
        assert_eq!(*kept.0.lock().unwrap(), expected);
    }

    proptest! {
        #[test]
        fn any_path_is_read(path in "(/[a-z0-9.]{0,8}){0,9}") {
            if let Ok(uri) = format!("http://h{path}").parse::<Uri>() {
                let _info = RequestInfo::of(&Method::GET, &uri);
            }
        }
    }
}
