use std::os::unix::fs::PermissionsExt as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read");
    answer
}

fn request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn routes() -> Routes {
    Routes::new()
        .get("/healthz", || text(StatusCode::OK, "ok\n"))
        .route(
            Method::POST,
            "/echo",
            |call: Call| async move { text(StatusCode::ACCEPTED, call.into_body()) },
        )
        .metrics(MetricsPage::new(prometheus_client::registry::Registry::default()))
        .get("/broken", || panic!("handler"))
        .get("/json", || json(StatusCode::OK, &serde_json::json!({"a": 1})))
}

#[tokio::test]
async fn serves_its_table_on_a_private_socket() {
    let supervisor = Supervisor::new(tokio::runtime::Handle::current());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("admin.sock");
    let (_handle, file) = serve_unix(&supervisor, &path, Occupied::Refuse, routes()).expect("bound");
    let mode = std::fs::metadata(&path).expect("present").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let connect = || async { tokio::net::UnixStream::connect(&path).await.expect("connected") };

    let answer = exchange(connect().await, &request("GET", "/healthz", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
    let answer = exchange(connect().await, &request("HEAD", "/healthz?verbose", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = exchange(connect().await, &request("POST", "/echo", "hello")).await;
    assert!(answer.starts_with("HTTP/1.1 202 ") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    let answer = exchange(connect().await, &request("GET", "/echo", "")).await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: POST\r\n"), "{answer}");
    let answer = exchange(connect().await, &request("GET", "/nothing", "")).await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("POST /echo\n"), "{answer}");
    let answer = exchange(connect().await, &request("GET", "/json", "")).await;
    assert!(
        answer.contains("content-type: application/json\r\n") && answer.ends_with("{\"a\":1}\n"),
        "{answer}"
    );
    let answer = exchange(connect().await, &request("GET", "/metrics", "")).await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    let answer = exchange(connect().await, &request("POST", "/echo", &"x".repeat(LARGEST_BODY + 1))).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");

    // A panic in a handler costs its connection, nothing else.
    let answer = exchange(connect().await, &request("GET", "/broken", "")).await;
    assert_eq!(answer, "");
    assert_eq!(supervisor.panics(), 1);
    let answer = exchange(connect().await, &request("GET", "/healthz", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");

    // An idle kept-alive connection does not hold the end up.
    let mut idle = connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("written");
    let mut first = [0; 15];
    idle.read_exact(&mut first).await.expect("an answer");
    assert_eq!(supervisor.shut_down(Duration::from_secs(5)).await, Vec::<String>::new());
    file.remove();
    assert!(!path.exists());
}

#[tokio::test]
async fn serves_on_tcp() {
    let supervisor = Supervisor::new(tokio::runtime::Handle::current());
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let (_handle, bound) = serve_tcp(&supervisor, address, routes()).expect("bound");
    let stream = tokio::net::TcpStream::connect(bound).await.expect("connected");
    let answer = exchange(stream, &request("GET", "/healthz", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (_second, shared) = serve_tcp(&supervisor, bound, routes()).expect("a successor may listen as well");
    assert_eq!(shared, bound);

    let other = std::net::TcpListener::bind(address).expect("bound");
    let taken = other.local_addr().expect("bound");
    let error = serve_tcp(&supervisor, taken, routes()).expect_err("in use by a stranger");
    assert_eq!(error.to_string(), format!("cannot listen on {taken}"));
}

/// A service whose answer has one piece, and ends only when the server does; its trailers tell that it ended well.
fn with_service() -> Routes {
    routes().service("test.Service", |call: StreamedCall| async move {
        let Some(Closing(token)) = call.extensions().get::<Closing>().cloned() else {
            return Response::new(Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync());
        };
        let path = Bytes::from(call.uri().path().to_owned());
        let pieces = futures_util::stream::unfold(0, move |step| {
            let (token, path) = (token.clone(), path.clone());
            async move {
                match step {
                    0 => Some((Ok::<_, BodyError>(hyper::body::Frame::data(path)), 1)),
                    1 => {
                        token.cancelled().await;
                        let trailers = http::HeaderMap::from_iter([(
                            http::HeaderName::from_static("grpc-status"),
                            HeaderValue::from_static("14"),
                        )]);
                        Some((Ok(hyper::body::Frame::trailers(trailers)), 2))
                    }
                    _ => None,
                }
            }
        });
        Response::new(http_body_util::StreamBody::new(pieces).boxed_unsync())
    })
}

#[tokio::test]
async fn services_are_called_over_http2_on_the_same_socket() {
    let supervisor = Supervisor::new(tokio::runtime::Handle::current());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("admin.sock");
    let (handle, _file) = serve_unix(&supervisor, &path, Occupied::Refuse, with_service()).expect("bound");
    let connect = || async { tokio::net::UnixStream::connect(&path).await.expect("connected") };

    let answer = exchange(connect().await, &request("GET", "/healthz", "")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
    // Without HTTP/2 there are no trailers, so the service is not there.
    let answer = exchange(connect().await, &request("POST", "/test.Service/Watch", "")).await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("gRPC test.Service\n"), "{answer}");

    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(Calls(supervisor.clone()), TokioIo::new(connect().await))
            .await
            .expect("a connection");
    let client = supervisor.spawn_once("client", async move { Ok(connection.await?) });
    let call = |path: &str| {
        Request::post(format!("http://localhost{path}")).body(Full::new(Bytes::new())).expect("a request")
    };
    let answer = sender.send_request(call("/nothing")).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let mut unknown = call("/other.Service/Watch");
    unknown.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
    let answer = sender.send_request(unknown).await.expect("an answer");
    assert_eq!((answer.status(), &answer.headers()["grpc-status"]), (StatusCode::OK, &HeaderValue::from(12)));
    let mut answer = sender.send_request(call("/test.Service/Watch")).await.expect("an answer");
    let first = answer.body_mut().frame().await.expect("a frame").expect("no error");
    assert_eq!(first.into_data().expect("data"), "/test.Service/Watch");
    // Whoever ends the server ends the stream, in order.
    handle.cancel();
    let last = answer.body_mut().frame().await.expect("a frame").expect("no error");
    assert_eq!(last.into_trailers().expect("trailers")["grpc-status"], "14");
    assert!(answer.body_mut().frame().await.is_none());
    drop((sender, client));
    assert_eq!(supervisor.shut_down(Duration::from_secs(5)).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_is_dropped() {
    let supervisor = Supervisor::new(tokio::runtime::Handle::current());
    let (mut client, server) = tokio::io::duplex(64);
    let token = CancellationToken::new();
    let serving = serve_connection(server, Arc::new(with_service()), token, supervisor);
    let reading = async {
        client.write_all(b"PRI").await.expect("written");
        let mut octets = Vec::new();
        client.read_to_end(&mut octets).await.expect("read");
        octets
    };
    let ((), octets) = tokio::join!(serving, reading);
    assert_eq!(octets, b"");
}
