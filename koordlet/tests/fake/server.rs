//! A small HTTP server that plays API server or kubelet, and a client for one request.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Writes a file and the folders above it.
pub(crate) fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, content).expect("written");
}

/// One request; nothing if nobody answers.
pub(crate) fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: koordlet\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

type Request = (String, String, String);

#[derive(Default)]
struct Content {
    answers: BTreeMap<String, String>,
    requests: Vec<Request>,
}

/// Answers paths with what was put there; watches stay silent.
pub(crate) struct Server {
    port: u16,
    content: Arc<Mutex<Content>>,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let content = Arc::new(Mutex::new(Content::default()));
        let shared = Arc::clone(&content);
        // It lives as long as the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let content = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &content));
            }
        });
        Server { port, content }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn put(&self, path: &str, value: &Value) {
        self.content.lock().expect("whole").answers.insert(path.to_owned(), value.to_string());
    }

    pub(crate) fn put_list(&self, path: &str, version: &str, kind: &str, items: &[Value]) {
        self.put(path, &json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "9"}, "items": items}));
    }

    pub(crate) fn take(&self, path: &str) {
        self.content.lock().expect("whole").answers.remove(path);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.content.lock().expect("whole").requests.clone()
    }
}

fn serve(stream: TcpStream, content: &Mutex<Content>) {
    let Ok(writer) = stream.try_clone() else { return };
    let mut writer = writer;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut words = line.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) == 0 {
                return;
            }
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        if query.contains("watch=true") {
            // The head comes, events do not.
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            let _ = writer.write_all(head.as_bytes());
            let _ = writer.flush();
            let mut rest = Vec::new();
            let _ = reader.read_to_end(&mut rest);
            return;
        }
        let (status, text) = {
            let mut content = content.lock().expect("whole");
            content.requests.push((method.clone(), path.to_owned(), body.clone()));
            match (method.as_str(), content.answers.get(path)) {
                ("POST", _) => ("201 Created", body),
                (_, Some(text)) => ("200 OK", text.clone()),
                (_, None) => (
                    "404 Not Found",
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "not found", "reason": "NotFound", "code": 404})
                    .to_string(),
                ),
            }
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(text.as_bytes())).is_err() {
            return;
        }
    }
}
