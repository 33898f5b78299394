use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Answers each connection with the next text and keeps the heads of the requests. What follows an answer's text is
/// silence if `hang` is set, else the end of the connection.
async fn kubelet(answers: Vec<&'static str>, hang: bool) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = heads.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            kept.lock().unwrap().push(String::from_utf8(head).unwrap());
            stream.write_all(answer.as_bytes()).await.unwrap();
            if hang {
                open.push(stream);
            }
        }
        std::future::pending::<()>().await;
    });
    (port, heads)
}

fn options(port: u16, limit: Duration) -> KubeletOptions {
    KubeletOptions {
        host: "127.0.0.1".into(),
        port,
        access: KubeletAccess::ReadOnly,
        limit,
        user_agent: "koordlet".into(),
    }
}

#[tokio::test]
async fn the_read_only_port_is_asked_without_a_token() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\nconnection: close\r\n\r\n{\"items\":[]}";
    let (port, heads) = kubelet(vec![answer], false).await;
    let client = KubeletClient::new(&options(port, KUBELET_LIMIT)).unwrap();
    assert_eq!(client.url(), format!("http://127.0.0.1:{port}"));
    assert_eq!(client.get("/pods/").await.unwrap(), "{\"items\":[]}");
    let head = heads.lock().unwrap()[0].to_lowercase();
    assert!(head.starts_with("get /pods/ http/1.1\r\n"), "{head}");
    assert!(head.contains("user-agent: koordlet\r\n") && !head.contains("authorization"), "{head}");
}

#[tokio::test]
async fn refusals_show_code_and_text() {
    let answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 10\r\nconnection: close\r\n\r\nnot you   ";
    let (port, _) = kubelet(vec![answer], false).await;
    let client = KubeletClient::new(&options(port, KUBELET_LIMIT)).unwrap();
    let error = client.get("/configz").await.unwrap_err();
    assert_eq!(error.to_string(), format!("http://127.0.0.1:{port}/configz answers 403 Forbidden: not you"));
}

#[tokio::test]
async fn silence_is_a_timeout_before_and_within_the_answer() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"items\""] {
        let (port, _) = kubelet(vec![answer], true).await;
        let client = KubeletClient::new(&options(port, Duration::from_millis(100))).unwrap();
        let error = client.get("/pods/").await.unwrap_err();
        assert!(matches!(error, KubeletError::Timeout { .. }), "{answer:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_broken_answer_is_none() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"items\"";
    let (port, _) = kubelet(vec![answer], false).await;
    let client = KubeletClient::new(&options(port, KUBELET_LIMIT)).unwrap();
    assert!(matches!(client.get("/pods/").await.unwrap_err(), KubeletError::NoAnswer { .. }));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let client = KubeletClient::new(&options(port, KUBELET_LIMIT)).unwrap();
    assert!(matches!(client.get("/pods/").await.unwrap_err(), KubeletError::NoAnswer { .. }));
}

#[tokio::test]
async fn a_client_needs_no_file_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let mut options = options(1, KUBELET_LIMIT);
    options.access = KubeletAccess::Authenticated { token: Some(token.clone()), verify: Verify::Off };
    let client = KubeletClient::new(&options).unwrap();
    assert_eq!(client.url(), "https://127.0.0.1:1");
    let error = client.get("/pods/").await.unwrap_err();
    assert_eq!(
        koord_runtime::error_chain::Chain(&error).to_string(),
        format!(
            "no answer from https://127.0.0.1:1/pods/: cannot read the token file {}: No such file or directory (os error 2)",
            token.display()
        )
    );
    options.host = "fd00::1".into();
    assert_eq!(KubeletClient::new(&options).unwrap().url(), "https://[fd00::1]:1");
    options.host = "not a host".into();
    assert!(matches!(KubeletClient::new(&options), Err(KubeletError::SetUp { .. })));
    options.host = "127.0.0.1".into();
    options.access =
        KubeletAccess::Authenticated { token: None, verify: Verify::AuthorityFile(folder.path().join("ca")) };
    assert!(matches!(KubeletClient::new(&options), Err(KubeletError::SetUp { .. })));
}
