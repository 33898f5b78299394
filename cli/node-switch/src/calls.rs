//! Calls to programs on this node and to the API server. Failures are texts for people.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use koord_cri::v1::{VersionRequest, VersionResponse};
use koord_kube::k8s_openapi::api::core::v1::Node;
use koord_kube::{Access, ClientOptions, Source, connect};
use koord_runtime::error_chain::Chain;
use prost::Message as _;
use tokio::net::{TcpStream, UnixStream};

use crate::system::{CRI_SOCKET_ANNOTATION, NodeAccess, NodeView};

/// The largest answer. The proxy's status has a few KiB.
const LARGEST_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Packages of the protocol, newest first.
const PACKAGES: [&str; 2] = ["runtime.v1", "runtime.v1alpha2"];

/// gRPC's code of a method that is not known.
const UNIMPLEMENTED: &str = "12";

fn within<T>(limit: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(async {
        tokio::time::timeout(limit, work)
            .await
            .unwrap_or_else(|_elapsed| Err(format!("no answer within {} s", limit.as_secs_f32())))
    })
}

fn said(error: impl std::error::Error + 'static) -> String {
    Chain(&error).to_string()
}

/// One request of HTTP/1.1 on a connection of its own.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(u16, Bytes), String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(said)?;
        let (head, body) = answer.into_parts();
        let body =
            Limited::new(body, LARGEST_ANSWER_BYTES).collect().await.map_err(|error| error.to_string())?;
        Ok((head.status.as_u16(), body.to_bytes()))
    };
    let mut answer = std::pin::pin!(answer);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        answer = &mut answer => answer,
        // What arrived before the connection ended is still to be taken.
        _ended = &mut connection => answer.await,
    }
}

/// Status and body of a request to the proxy's admin socket.
pub(crate) fn admin(
    socket: &Path,
    method: &str,
    target: &str,
    body: &str,
    limit: Duration,
) -> Result<(u16, String), String> {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .map_err(said)?;
    within(limit, async {
        let stream =
            UnixStream::connect(socket).await.map_err(|error| format!("{}: {error}", socket.display()))?;
        let (status, body) = exchange(stream, request).await?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    })
}

/// Status of `GET http://ADDRESS/PATH`.
pub(crate) fn http_status(address: &str, path: &str, limit: Duration) -> Result<u16, String> {
    let request = Request::builder()
        .uri(path)
        .header(header::HOST, address)
        .body(Full::new(Bytes::new()))
        .map_err(said)?;
    within(limit, async {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        Ok(exchange(stream, request).await?.0)
    })
}

/// Name and version of a runtime.
pub(crate) fn runtime_version(socket: &Path, limit: Duration) -> Result<(String, String), String> {
    within(limit, async {
        let mut last = String::new();
        for package in PACKAGES {
            let answer = version_of(socket, package).await?;
            match answer {
                Ok(answer) => return Ok((answer.runtime_name, answer.runtime_version)),
                Err(problem) => last = problem,
            }
        }
        Err(last)
    })
}

/// The inner error is that of a runtime that does not know the package.
async fn version_of(socket: &Path, package: &str) -> Result<Result<VersionResponse, String>, String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(said)?;
    let message = VersionRequest { version: "0.1.0".to_owned() }.encode_to_vec();
    let mut frame = BytesMut::new();
    // Not compressed, then the length.
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message);
    let request = Request::builder()
        .method("POST")
        .uri(format!("http://localhost/{package}.RuntimeService/Version"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(frame.freeze()))
        .map_err(said)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(said)?;
        let (head, body) = answer.into_parts();
        let body =
            Limited::new(body, LARGEST_ANSWER_BYTES).collect().await.map_err(|error| error.to_string())?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        // An answer without a message has its status at the head.
        let field = |name: &str| {
            let value = trailers.get(name).or_else(|| head.headers.get(name))?;
            Some(value.to_str().unwrap_or_default().to_owned())
        };
        let status = field("grpc-status").unwrap_or_default();
        if status != "0" {
            let text = format!("status {status}: {}", field("grpc-message").unwrap_or_default());
            return if status == UNIMPLEMENTED { Ok(Err(text)) } else { Err(text) };
        }
        let bytes = body.to_bytes();
        let message = bytes.get(5..).unwrap_or_default();
        VersionResponse::decode(message).map(Ok).map_err(said)
    };
    let mut answer = std::pin::pin!(answer);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        answer = &mut answer => answer,
        _ended = &mut connection => answer.await,
    }
}

async fn nodes(access: &NodeAccess, limit: Duration) -> Result<Access<Node>, String> {
    let source = Source::Kubeconfig { path: access.kubeconfig.clone(), context: None };
    let options = ClientOptions { request_limit: limit, ..ClientOptions::new(source, "koordctl") };
    let client = connect(&options, Arc::new(())).await.map_err(said)?;
    Ok(Access::all(&client, &(), "koordctl"))
}

/// What a Node object says.
pub(crate) fn node(access: &NodeAccess, limit: Duration) -> Result<NodeView, String> {
    within(limit, async {
        let node = nodes(access, limit).await?.get(&access.name).await.map_err(said)?;
        let node = node.ok_or_else(|| format!("there is no node {}", access.name))?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        Ok(NodeView {
            is_ready: ready.as_ref().is_some_and(|condition| condition.status == "True"),
            ready_heartbeat: ready
                .and_then(|condition| condition.last_heartbeat_time)
                .map(|time| time.0.as_second()),
            cri_socket: node.metadata.annotations.unwrap_or_default().remove(CRI_SOCKET_ANNOTATION),
        })
    })
}

/// Sets the annotation of a Node object.
pub(crate) fn annotate(access: &NodeAccess, value: &str, limit: Duration) -> Result<(), String> {
    within(limit, async {
        let body = serde_json::json!({ "metadata": { "annotations": { CRI_SOCKET_ANNOTATION: value } } });
        nodes(access, limit).await?.merge(&access.name, &body).await.map_err(said).map(|_written| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Response};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A runtime that knows one package, and answers one call on each of `connections` connections.
    fn runtime(
        package: &'static str,
        connections: usize,
    ) -> (tempfile::TempDir, std::thread::JoinHandle<Vec<String>>) {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join("x.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::UnixListener::from_std(listener).unwrap();
                let mut paths = Vec::new();
                for _ in 0..connections {
                    let (stream, _) = listener.accept().await.unwrap();
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(call) = connection.accept().await {
                        let Ok((request, mut respond)) = call else { break };
                        let path = request.uri().path().to_owned();
                        if path == format!("/{package}.RuntimeService/Version") {
                            let head =
                                Response::builder().header("content-type", "application/grpc").body(());
                            let mut stream = respond.send_response(head.unwrap(), false).unwrap();
                            let answer = VersionResponse {
                                version: "0.1.0".into(),
                                runtime_name: "containerd".into(),
                                runtime_version: "v2.4.0".into(),
                                runtime_api_version: "v1".into(),
                            }
                            .encode_to_vec();
                            let mut frame = vec![0, 0, 0, 0, u8::try_from(answer.len()).unwrap()];
                            frame.extend(answer);
                            stream.send_data(frame.into(), false).unwrap();
                            let mut trailers = HeaderMap::new();
                            trailers.insert("grpc-status", "0".parse().unwrap());
                            stream.send_trailers(trailers).unwrap();
                        } else {
                            let head = Response::builder()
                                .header("content-type", "application/grpc")
                                .header("grpc-status", UNIMPLEMENTED)
                                .header("grpc-message", "unknown service")
                                .body(());
                            respond.send_response(head.unwrap(), true).unwrap();
                        }
                        paths.push(path);
                    }
                }
                paths
            })
        });
        (folder, thread)
    }

    #[test]
    fn runtimes_are_asked_by_the_newest_protocol_they_speak() {
        for (package, connections) in [("runtime.v1", 1), ("runtime.v1alpha2", 2)] {
            let (folder, thread) = runtime(package, connections);
            let answer = runtime_version(&folder.path().join("x.sock"), LIMIT);
            assert_eq!(answer, Ok(("containerd".to_owned(), "v2.4.0".to_owned())), "{package}");
            assert_eq!(thread.join().unwrap().len(), connections);
        }
        let (folder, thread) = runtime("none", 2);
        let answer = runtime_version(&folder.path().join("x.sock"), LIMIT);
        assert_eq!(answer, Err("status 12: unknown service".to_owned()));
        thread.join().unwrap();
    }

    #[test]
    fn a_node_that_cannot_be_asked_is_a_text() {
        let access = NodeAccess { kubeconfig: "/nonexistent/kubelet.conf".into(), name: "n".to_owned() };
        let problem = node(&access, LIMIT).unwrap_err();
        assert!(problem.contains("/nonexistent/kubelet.conf"), "{problem}");
        assert!(annotate(&access, "x", LIMIT).is_err());
    }
}
