use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};

use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tonic::body::Body as ServerBody;

use super::*;

const METHOD: &str = "/test.Service/Method";
const PLENTY: Duration = Duration::from_secs(20);

/// What the server does with a call.
#[derive(Clone)]
enum Answer {
    Messages(Vec<Vec<u8>>),
    Status(&'static str, &'static str),
    Never,
    Raw(Vec<u8>),
}

struct Server {
    requests: Arc<StdMutex<Vec<http::request::Parts>>>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(u32::try_from(message.len()).expect("small").to_be_bytes());
    bytes.extend(message);
    bytes
}

fn respond(answer: &Answer) -> http::Response<ServerBody> {
    let response = http::Response::builder().header("content-type", "application/grpc");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let body = match answer {
        Answer::Status(code, message) => {
            return response
                .header("grpc-status", *code)
                .header("grpc-message", *message)
                .body(ServerBody::new(Full::new(Bytes::new())))
                .expect("a response");
        }
        Answer::Messages(messages) => messages.iter().flat_map(|message| framed(message)).collect(),
        Answer::Raw(bytes) => bytes.clone(),
        Answer::Never => Vec::new(),
    };
    let frames: Vec<Result<Frame<Bytes>, Status>> =
        vec![Ok(Frame::data(Bytes::from(body))), Ok(Frame::trailers(trailers))];
    response.body(ServerBody::new(StreamBody::new(futures_util::stream::iter(frames)))).expect("a response")
}

fn serve(path: &Path, answer: Answer) -> Server {
    let listener = UnixListener::bind(path).expect("bound");
    let requests: Arc<StdMutex<Vec<http::request::Parts>>> = Arc::default();
    let connections: Arc<AtomicUsize> = Arc::default();
    let (seen, counter) = (requests.clone(), connections.clone());
    let task = tokio::spawn(async move {
        let mut serving = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("accepted");
            counter.fetch_add(1, Ordering::SeqCst);
            let (answer, seen) = (answer.clone(), seen.clone());
            serving.spawn(async move {
                let service = hyper::service::service_fn(move |request: http::Request<Incoming>| {
                    let (answer, seen) = (answer.clone(), seen.clone());
                    async move {
                        seen.lock().expect("lock").push(request.into_parts().0);
                        if matches!(answer, Answer::Never) {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, std::convert::Infallible>(respond(&answer))
                    }
                });
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Server { requests, connections, task }
}

fn bed() -> (TempDir, Endpoint) {
    let directory = tempfile::tempdir().expect("a directory");
    let endpoint = directory.path().join("s.sock").to_str().expect("text").parse().expect("an endpoint");
    (directory, endpoint)
}

async fn text_of_error(channel: &UnixChannel, within: Duration) -> String {
    go_error_text(&channel.unary(METHOD, Bytes::new(), 1024, within).await.expect_err("an error"))
}

#[tokio::test]
async fn answers_come_back_over_one_connection_to_localhost() {
    let (_directory, endpoint) = bed();
    let server = serve(endpoint.path(), Answer::Messages(vec![b"pong".to_vec()]));
    let channel = UnixChannel::new(endpoint).with_trust(Trust::of_this_process());
    let calls = (0..20).map(|_| channel.unary(METHOD, Bytes::from_static(b"ping"), 1024, PLENTY));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.expect("an answer"), "pong");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let requests = server.requests.lock().expect("lock");
    assert_eq!(requests.len(), 20);
    assert_eq!(requests[0].uri.authority().map(|authority| authority.as_str()), Some("localhost"));
    assert_eq!(requests[0].uri.path(), METHOD);
    assert!(requests[0].headers.contains_key("grpc-timeout"));
}

#[tokio::test]
async fn a_missing_socket_fails_at_once_as_in_go() {
    let (_directory, endpoint) = bed();
    let channel = UnixChannel::new(endpoint.clone()).with_trust(Trust::of_this_process());
    let started = std::time::Instant::now();
    assert_eq!(
        text_of_error(&channel, PLENTY).await,
        format!(
            "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial \
             unix {endpoint}: connect: no such file or directory\""
        )
    );
    assert!(started.elapsed() < Duration::from_secs(1));
    // Back-off or not: a socket that appears is used at once.
    let _server = serve(endpoint.path(), Answer::Messages(vec![Vec::new()]));
    channel.unary(METHOD, Bytes::new(), 1024, PLENTY).await.expect("an answer");
}

#[tokio::test]
async fn a_left_over_socket_refuses_and_is_left_alone_between_dials() {
    let (_directory, endpoint) = bed();
    drop(std::os::unix::net::UnixListener::bind(endpoint.path()).expect("bound"));
    let channel = UnixChannel::new(endpoint.clone());
    for _ in 0..3 {
        assert!(text_of_error(&channel, PLENTY).await.ends_with("connect: connection refused\""));
    }
    let pause = |channel: &UnixChannel| {
        channel.state.try_lock().expect("free").failure.as_ref().map(|failure| failure.pause)
    };
    // Three calls, one dial.
    assert_eq!(pause(&channel), Some(Duration::from_millis(100)));
}

#[tokio::test(start_paused = true)]
async fn pauses_between_dials_grow_to_three_seconds() {
    let (_directory, endpoint) = bed();
    drop(std::os::unix::net::UnixListener::bind(endpoint.path()).expect("bound"));
    let channel = UnixChannel::new(endpoint);
    let mut pauses = Vec::new();
    for _ in 0..10 {
        text_of_error(&channel, PLENTY).await;
        let pause =
            channel.state.lock().await.failure.as_ref().map(|failure| failure.pause).expect("a failure");
        pauses.push(pause.as_millis());
        tokio::time::advance(pause).await;
    }
    assert_eq!(pauses, [100, 160, 256, 409, 655, 1048, 1677, 2684, 3000, 3000]);
}

#[tokio::test]
async fn a_restarted_server_is_found_and_counted() {
    let (_directory, endpoint) = bed();
    let reconnects = Counter::default();
    let channel = UnixChannel::new(endpoint.clone()).counting_reconnects(reconnects.clone());
    let server = serve(endpoint.path(), Answer::Messages(vec![Vec::new()]));
    channel.unary(METHOD, Bytes::new(), 1024, PLENTY).await.expect("an answer");
    assert_eq!(reconnects.get(), 0);
    let mut connection = channel.connection();
    assert_eq!(*connection.borrow(), 1);
    // The old server's connections end with its task.
    drop(server);
    connection.wait_for(|number| *number == 0).await.expect("the channel lives");
    let status = channel.unary(METHOD, Bytes::new(), 1024, PLENTY).await.expect_err("nobody is there");
    assert_eq!(status.code(), Code::Unavailable);
    std::fs::remove_file(endpoint.path()).expect("removed");
    let _server = serve(endpoint.path(), Answer::Messages(vec![Vec::new()]));
    channel.unary(METHOD, Bytes::new(), 1024, PLENTY).await.expect("an answer");
    assert_eq!(reconnects.get(), 1);
    assert_eq!(*connection.borrow(), 2);
}

#[tokio::test]
async fn a_server_that_never_answers_costs_the_time_given() {
    let (_directory, endpoint) = bed();
    let _server = serve(endpoint.path(), Answer::Never);
    let channel = UnixChannel::new(endpoint);
    let started = std::time::Instant::now();
    assert_eq!(
        text_of_error(&channel, Duration::from_millis(120)).await,
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    );
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_millis(120) && elapsed < Duration::from_secs(5), "{elapsed:?}");
}

#[tokio::test]
async fn statuses_and_sizes_read_as_in_go() {
    let (_directory, endpoint) = bed();
    let server = serve(endpoint.path(), Answer::Status("3", "bad%20value"));
    let channel = UnixChannel::new(endpoint.clone());
    assert_eq!(text_of_error(&channel, PLENTY).await, "rpc error: code = InvalidArgument desc = bad value");
    drop(server);
    std::fs::remove_file(endpoint.path()).expect("removed");

    let _server = serve(endpoint.path(), Answer::Messages(vec![vec![7; 1025]]));
    let channel = UnixChannel::new(endpoint.clone());
    assert_eq!(
        text_of_error(&channel, PLENTY).await,
        "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (1025 vs. 1024)"
    );
    let answer = channel.unary(METHOD, Bytes::new(), 1025, PLENTY).await.expect("an answer");
    assert_eq!(answer.len(), 1025);
    assert!(go_error_text(&Status::cancelled("x")).starts_with("rpc error: code = Canceled desc = x"));
}

#[tokio::test]
async fn a_cut_message_is_an_error() {
    let (_directory, endpoint) = bed();
    let _server = serve(endpoint.path(), Answer::Raw(vec![0, 0, 0, 0, 9, 1]));
    let channel = UnixChannel::new(endpoint);
    assert_eq!(
        channel.unary(METHOD, Bytes::new(), 1024, PLENTY).await.expect_err("an error").code(),
        Code::Internal
    );
}

#[tokio::test]
async fn a_peer_that_speaks_something_else_is_an_error() {
    let (_directory, endpoint) = bed();
    let listener = UnixListener::bind(endpoint.path()).expect("bound");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .expect("written");
        stream
    });
    let channel = UnixChannel::new(endpoint);
    let status = channel.unary(METHOD, Bytes::new(), 1024, PLENTY).await.expect_err("an error");
    assert_eq!(status.code(), Code::Unavailable);
    server.await.expect("served");
}

#[tokio::test]
async fn streams_are_read_to_their_end() {
    let (_directory, endpoint) = bed();
    let _server = serve(endpoint.path(), Answer::Messages(vec![b"a".to_vec(), Vec::new(), b"c".to_vec()]));
    let channel = UnixChannel::new(endpoint);
    let mut messages = Vec::new();
    channel
        .server_stream(METHOD, Bytes::new(), 1024, PLENTY, |message| {
            messages.push(message);
            Ok(())
        })
        .await
        .expect("the end");
    assert_eq!(messages, ["a", "", "c"]);
}

#[tokio::test]
async fn sockets_of_other_users_are_not_connected_to() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (_directory, endpoint) = bed();
    let server = serve(endpoint.path(), Answer::Messages(vec![Vec::new()]));
    std::os::unix::fs::chown(endpoint.path(), Some(4242), None).expect("given away");
    let channel = UnixChannel::new(endpoint.clone()).with_trust(Trust::new(0, None));
    assert!(text_of_error(&channel, PLENTY).await.contains("owned by user 4242"));
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
    let channel = UnixChannel::new(endpoint).with_trust(Trust::new(0, Some(4242)));
    channel.unary(METHOD, Bytes::new(), 1024, PLENTY).await.expect("an answer");
}

#[tokio::test]
async fn a_file_is_not_a_socket() {
    let (_directory, endpoint) = bed();
    std::fs::write(endpoint.path(), "").expect("written");
    let channel = UnixChannel::new(endpoint).with_trust(Trust::of_this_process());
    assert!(text_of_error(&channel, PLENTY).await.contains("socket operation on non-socket"));
}
