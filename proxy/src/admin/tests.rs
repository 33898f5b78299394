use std::sync::Mutex;

use koord_runtime::unix_socket::Occupied;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::flags::{Command, command};
use crate::metrics::Metrics;

#[test]
fn ready_only_while_calls_are_served() {
    let fact = |backend_connected, rebuild_done| Readiness { backend_connected, rebuild_done };
    for (phase, readiness_facts, expected) in [
        (Phase::Starting, fact(true, true), false),
        (Phase::Recovering, fact(true, true), true),
        (Phase::Serving, fact(true, true), true),
        (Phase::Serving, fact(false, true), false),
        (Phase::Serving, fact(true, false), false),
        (Phase::Draining, fact(true, true), false),
        (Phase::Stopped, fact(true, true), false),
    ] {
        let (ready, body) = readiness(phase, readiness_facts);
        assert_eq!(ready, expected, "{phase} {readiness_facts:?}");
        assert_eq!(body["ready"], expected);
        assert_eq!(body["phase"], phase.name());
    }
}

#[test]
fn env_values_are_redacted_in_every_form() {
    let mut store = json!({
        "containers": [{
            "id": "c1",
            "envs": {"PASSWORD": "secret", "EMPTY": ""},
            "annotations": {"envs-like": "kept"},
            "request": {"container_envs": [{"key": "A", "value": "secret"}], "env": ["B=secret"]},
            "nothing": {"containerEnvs": null},
        }],
    });
    redact(&mut store);
    assert_eq!(
        store,
        json!({
            "containers": [{
                "id": "c1",
                "envs": {"PASSWORD": "<redacted>", "EMPTY": "<redacted>"},
                "annotations": {"envs-like": "kept"},
                "request": {
                    "container_envs": [{"key": "A", "value": "<redacted>"}],
                    "env": ["<redacted>"],
                },
                "nothing": {"containerEnvs": null},
            }],
        })
    );
    assert!(!store.to_string().contains("secret"));
}

struct Parts {
    readiness: Mutex<Readiness>,
    table: Arc<Table>,
}

impl View for Parts {
    fn readiness(&self) -> Readiness {
        *self.readiness.lock().expect("not poisoned")
    }
    fn registrations(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }
    fn store(&self) -> Value {
        json!({"containers": [{"id": "c1", "envs": {"A": "secret"}}]})
    }
}

struct Bed {
    folder: tempfile::TempDir,
    parts: Arc<Parts>,
    admin: Admin,
    orders: mpsc::Receiver<Order>,
}

fn bed() -> Bed {
    let folder = tempfile::tempdir().expect("a folder");
    let registration = Registration::parse(
        br#"{"remote-endpoint": "/run//k.sock", "failure-policy": "Odd", "timeout": "1m30s",
             "runtime-hooks": ["PreCreateContainer"], "priority": -3}"#,
    )
    .expect("a registration");
    let parts = Arc::new(Parts {
        readiness: Mutex::new(Readiness { backend_connected: true, rebuild_done: false }),
        table: Arc::new(Table::of([Server { name: "koordlet.json".into(), registration }])),
    });
    let Ok(Command::Serve(config)) = command(["--v=3".into()]) else { panic!("flags are refused") };
    let mut registry = Registry::default();
    let prefixed = registry.sub_registry_with_prefix("koord_runtime_proxy");
    Metrics::register(prefixed).build(Build::THIS.version, Build::THIS.commit);
    let (sender, orders) = mpsc::channel(1);
    let admin = Admin {
        life: Life::new(),
        view: Arc::clone(&parts) as Arc<dyn View>,
        metrics: MetricsPage::new(registry),
        supervisor: Supervisor::new(tokio::runtime::Handle::current()),
        config: Arc::new(*config),
        orders: sender,
        qos: None,
        usage: None,
    };
    Bed { folder, parts, admin, orders }
}

impl Bed {
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("admin.sock")
    }

    async fn ask(&self, method: &str, path: &str) -> (u16, String) {
        let mut stream = tokio::net::UnixStream::connect(self.path()).await.expect("connected");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        (head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"), body.to_owned())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

#[tokio::test]
async fn every_endpoint_answers() {
    let mut bed = bed();
    let supervisor = bed.admin.supervisor.clone();
    let (_handle, _file) =
        koord_runtime::admin::serve_unix(&supervisor, &bed.path(), Occupied::Refuse, bed.admin.routes())
            .expect("bound");

    assert_eq!(bed.ask("GET", "/healthz").await, (200, "ok\n".to_owned()));

    let (status, body) = bed.ask("GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains("\"rebuild_done\":false") && body.contains("\"phase\":\"starting\""), "{body}");
    bed.admin.life.advance(Phase::Serving);
    assert_eq!(bed.ask("GET", "/readyz").await.0, 503);
    bed.parts.readiness.lock().expect("not poisoned").rebuild_done = true;
    assert_eq!(bed.ask("GET", "/readyz").await.0, 200);
    bed.admin.life.advance(Phase::Draining);
    assert_eq!(bed.ask("GET", "/readyz").await.0, 503);

    let config = bed.json("/config").await;
    assert_eq!(config["flags"]["v"], 3);
    let server = &config["registrations"]["servers"][0];
    assert_eq!(server["file"], "koordlet.json");
    assert_eq!(server["remote-endpoint"], "/run/k.sock");
    assert_eq!(server["failure-policy"], "Odd");
    assert_eq!(server["effective-failure-policy"], "Ignore");
    assert_eq!(server["runtime-hooks"], json!(["PreCreateContainer"]));
    assert_eq!(server["timeout"], "1m30s");
    assert_eq!(server["priority"], -3);

    assert_eq!(bed.json("/store").await, json!({"containers": [{"id": "c1", "envs": {"A": REDACTED}}]}));
    assert_eq!(bed.json("/version").await["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(bed.json("/tasks").await[0]["name"], "admin");

    let (status, page) = bed.ask("GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(page.contains("koord_runtime_proxy_build_info{"), "{page}");

    assert_eq!(bed.ask("GET", "/drain").await.0, 405);
    assert_eq!(bed.ask("POST", "/drain").await.0, 202);
    assert_eq!(bed.ask("POST", "/reload").await.0, 409);
    assert_eq!(bed.orders.recv().await, Some(Order::Drain));
    assert_eq!(bed.ask("POST", "/reload").await.0, 202);
    assert_eq!(bed.orders.recv().await, Some(Order::Reload));
    bed.orders.close();
    assert_eq!(bed.ask("POST", "/drain").await.0, 503);
}

#[tokio::test]
async fn the_tcp_listener_shows_metrics_only() {
    let bed = bed();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let supervisor = bed.admin.supervisor.clone();
    let (_handle, bound) =
        koord_runtime::admin::serve_tcp(&supervisor, address, bed.admin.metrics_routes()).expect("bound");
    for (path, status) in [("/metrics", "200"), ("/store", "404"), ("/drain", "404")] {
        let mut stream = tokio::net::TcpStream::connect(bound).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        assert_eq!(answer.split(' ').nth(1), Some(status), "{path}: {answer}");
    }
}
