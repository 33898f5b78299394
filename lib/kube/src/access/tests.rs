use std::sync::{Arc, Mutex};

use http::{Request as HttpRequest, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Node;
use koord_runtime::supervisor::Backoff;
use kube::client::Body;
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::resource::{Object, api_resource};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Size {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
}

type BoxObject = Object<Size, Size>;

fn boxes() -> ApiResource {
    api_resource("example.com", "v1", "Box", "boxes")
}

fn object(name: &str, width: u32, version: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Box",
        "metadata": {"name": name, "resourceVersion": version}, "spec": {"width": width}})
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("{reason} of the server")}),
    )
}

/// What was sent: method, URL, the two headers that say what is sent and wanted, body.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    line: String,
    content: String,
    accept: String,
    body: Value,
}

/// A server that gives the answers of a list, in order, and keeps what it was asked.
#[derive(Debug, Clone, Default)]
struct Server {
    answers: Arc<Mutex<Vec<(u16, Value)>>>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Server {
    fn new(answers: impl IntoIterator<Item = (u16, Value)>) -> Server {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        Server { answers: Arc::new(Mutex::new(answers)), sent: Arc::default() }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        Client::new(
            tower::service_fn(move |request: HttpRequest<Body>| {
                let server = server.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let header = |name| {
                        let value = parts.headers.get(name);
                        value
                            .map(|value: &HeaderValue| value.to_str().unwrap().to_owned())
                            .unwrap_or_default()
                    };
                    let (content, accept) = (header(http::header::CONTENT_TYPE), header(ACCEPT));
                    let line = format!("{} {}", parts.method, parts.uri);
                    let octets = body.collect().await?.to_bytes();
                    let body = if octets.is_empty() { Value::Null } else { serde_json::from_slice(&octets)? };
                    server.sent.lock().unwrap().push(Sent { line, content, accept, body });
                    let (code, answer) = server.answers.lock().unwrap().pop().ok_or("the server is away")?;
                    Ok::<_, tower::BoxError>(
                        Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?))?,
                    )
                }
            }),
            "default",
        )
    }

    fn lines(&self) -> Vec<String> {
        self.sent.lock().unwrap().iter().map(|sent| sent.line.clone()).collect()
    }
}

fn access(server: &Server) -> Access<BoxObject> {
    Access::all(&server.client(), &boxes(), "tester")
}

const BOXES: &str = "/apis/example.com/v1/boxes";

#[tokio::test]
async fn absence_is_a_value() {
    let server = Server::new([refusal(404, "NotFound"), (200, object("a", 1, "7"))]);
    let boxes = access(&server);
    assert_eq!(boxes.get("a").await.unwrap(), None);
    assert_eq!(boxes.get("a").await.unwrap().unwrap().spec.width, Some(1));
    assert_eq!(server.lines(), [format!("GET {BOXES}/a"), format!("GET {BOXES}/a")]);
}

#[tokio::test(start_paused = true)]
async fn what_can_pass_is_tried_again_and_what_cannot_is_not() {
    let server = Server::new([
        refusal(429, "TooManyRequests"),
        refusal(503, "Unavailable"),
        (200, object("a", 1, "7")),
    ]);
    assert!(access(&server).get("a").await.unwrap().is_some());
    assert_eq!(server.lines().len(), 3);

    let server = Server::new([refusal(403, "Forbidden")]);
    let error = access(&server).get("a").await.unwrap_err();
    assert_eq!(
        koord_runtime::error_chain::Chain(&error).to_string(),
        "cannot get boxes.example.com a: forbidden: Forbidden of the server"
    );
    assert_eq!(server.lines().len(), 1);

    let server = Server::new([]);
    let error = access(&server).get("a").await.unwrap_err();
    assert_eq!((error.failure.reason(), server.lines().len()), ("no_answer", 4));
    let server = Server::new([]);
    access(&server).with_retry(RetryPolicy::NEVER).get("a").await.unwrap_err();
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn a_status_is_replaced_as_a_whole_and_without_version() {
    let partial = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": "a", "resourceVersion": "8", "generation": 2}});
    let server = Server::new([(200, partial), refusal(404, "NotFound")]);
    let boxes = access(&server);
    let Written::Done(metadata) = boxes.set_status("a", &Size { width: Some(2) }).await.unwrap() else {
        panic!("the object is there");
    };
    assert_eq!((metadata.generation, metadata.resource_version.as_deref()), (Some(2), Some("8")));
    assert_eq!(boxes.set_status("b", &Size::default()).await.unwrap(), Written::Missing);
    let sent = server.sent.lock().unwrap().clone();
    assert_eq!(sent[0].line, format!("PATCH {BOXES}/a/status?&fieldManager=tester"));
    assert_eq!(sent[0].content, "application/json-patch+json");
    assert_eq!(sent[0].accept, METADATA_ONLY.to_str().unwrap());
    assert_eq!(sent[0].body, json!([{"op": "add", "path": "/status", "value": {"width": 2}}]));
    assert_eq!(sent[1].body, json!([{"op": "add", "path": "/status", "value": {}}]));
}

#[tokio::test]
async fn server_side_apply_names_its_manager_and_takes_fields_when_told() {
    let server = Server::new([
        (200, object("a", 1, "1")),
        (200, object("a", 1, "2")),
        refusal(409, "Conflict"),
        refusal(404, "NotFound"),
    ]);
    let boxes = access(&server);
    let body = json!({"apiVersion": "example.com/v1", "kind": "Box", "spec": {"width": 1}});
    boxes.apply("a", &body, Ownership::Respect).await.unwrap();
    boxes.apply("a", &body, Ownership::Take).await.unwrap();
    let error = boxes.apply("a", &body, Ownership::Respect).await.unwrap_err();
    assert!(error.failure.is_conflict());
    assert_eq!(boxes.apply_status("b", &body, Ownership::Take).await.unwrap(), Written::Missing);
    let sent = server.sent.lock().unwrap().clone();
    assert!(sent.iter().all(|sent| sent.content == "application/apply-patch+yaml" && sent.body == body));
    let lines: Vec<_> = sent.iter().map(|sent| sent.line.replace("?&", "?")).collect();
    assert_eq!(
        lines,
        [
            format!("PATCH {BOXES}/a?fieldManager=tester"),
            format!("PATCH {BOXES}/a?force=true&fieldManager=tester"),
            format!("PATCH {BOXES}/a?fieldManager=tester"),
            format!("PATCH {BOXES}/b/status?force=true&fieldManager=tester"),
        ]
    );
}

#[tokio::test]
async fn merging_sends_what_was_given() {
    let server = Server::new([(200, object("a", 1, "1")), refusal(404, "NotFound")]);
    let boxes = access(&server);
    let body = json!({"metadata": {"labels": {"old": null}}});
    assert!(matches!(boxes.merge("a", &body).await.unwrap(), Written::Done(_)));
    assert!(matches!(boxes.merge("a", &body).await.unwrap(), Written::Missing));
    let sent = server.sent.lock().unwrap().clone();
    assert_eq!((sent[0].content.as_str(), &sent[0].body), ("application/merge-patch+json", &body));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_decided_on_what_is_there_then() {
    let server = Server::new([
        (200, object("a", 1, "1")),
        refusal(409, "Conflict"),
        (200, object("a", 5, "2")),
        (200, object("a", 6, "3")),
    ]);
    let mut seen = Vec::new();
    let result = access(&server)
        .modify("a", |object| {
            seen.push(object.spec.width);
            object.spec.width = object.spec.width.map(|width| width + 1);
            true
        })
        .await
        .unwrap();
    assert_eq!(seen, [Some(1), Some(5)]);
    let Modified::Done(object) = result else { panic!("it is written") };
    assert_eq!(object.spec.width, Some(6));
    let sent = server.sent.lock().unwrap().clone();
    assert_eq!(sent[3].line.replace("?&", "?"), format!("PUT {BOXES}/a?fieldManager=tester"));
    assert_eq!(sent[3].body["metadata"]["resourceVersion"], json!("2"));
    assert_eq!(sent[3].body["spec"], json!({"width": 6}));
}

#[tokio::test(start_paused = true)]
async fn modifying_ends() {
    let server = Server::new([refusal(404, "NotFound")]);
    assert_eq!(access(&server).modify("a", |_| true).await.unwrap(), Modified::Missing);

    let server = Server::new([(200, object("a", 1, "1"))]);
    assert!(matches!(access(&server).modify("a", |_| false).await.unwrap(), Modified::Unchanged(_)));
    assert_eq!(server.lines().len(), 1);

    // Deleted between reading and writing.
    let server = Server::new([(200, object("a", 1, "1")), refusal(404, "NotFound")]);
    assert_eq!(access(&server).modify("a", |_| true).await.unwrap(), Modified::Missing);

    let losing = (0..4).flat_map(|_| [(200, object("a", 1, "1")), refusal(409, "Conflict")]);
    let server = Server::new(losing);
    let error = access(&server).modify("a", |_| true).await.unwrap_err();
    assert!(error.failure.is_conflict());
    assert_eq!((error.verb, server.lines().len()), (Verb::Update, 8));
}

#[tokio::test(start_paused = true)]
async fn creating_finds_what_is_there() {
    let wanted = BoxObject::new("a", &boxes(), Size { width: Some(1) });
    let server = Server::new([(201, object("a", 1, "1"))]);
    assert!(matches!(access(&server).create_if_missing(&wanted).await.unwrap(), Created::New(_)));

    let server = Server::new([refusal(409, "AlreadyExists"), (200, object("a", 9, "1"))]);
    let Created::Existing(found) = access(&server).create_if_missing(&wanted).await.unwrap() else {
        panic!("it was there");
    };
    assert_eq!(found.spec.width, Some(9));

    // It goes between the two questions, once.
    let server =
        Server::new([refusal(409, "AlreadyExists"), refusal(404, "NotFound"), (201, object("a", 1, "2"))]);
    assert!(matches!(access(&server).create_if_missing(&wanted).await.unwrap(), Created::New(_)));
    let lines: Vec<_> = server.lines().iter().map(|line| line.replace("?&", "?")).collect();
    let post = format!("POST {BOXES}?fieldManager=tester");
    assert_eq!(lines, [post.clone(), format!("GET {BOXES}/a"), post]);
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let page = |names: &[&str], token: &str| {
        let items: Vec<_> = names.iter().map(|name| object(name, 1, "1")).collect();
        (
            200,
            json!({"apiVersion": "example.com/v1", "kind": "BoxList", "items": items, "metadata": {"continue": token}}),
        )
    };
    let server = Server::new([page(&["a", "b"], "t"), page(&["c"], "")]);
    let found = access(&server).list(&ListParams::default().fields("metadata.name=a")).await.unwrap();
    let names: Vec<_> = found.iter().filter_map(|object| object.metadata.name.as_deref()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let lines = server.lines();
    assert!(
        lines
            .iter()
            .all(|line| line.contains("limit=500") && line.contains("fieldSelector=metadata.name%3Da"))
    );
    assert!(!lines[0].contains("continue=") && lines[1].contains("continue=t"));
}

#[tokio::test]
async fn a_list_whose_pages_are_forgotten_is_read_whole() {
    let page = |names: &[&str], token: &str| {
        let items: Vec<_> = names.iter().map(|name| object(name, 1, "1")).collect();
        (
            200,
            json!({"apiVersion": "example.com/v1", "kind": "BoxList", "items": items, "metadata": {"continue": token}}),
        )
    };
    let server = Server::new([page(&["a"], "t"), refusal(410, "Expired"), page(&["b", "c"], "")]);
    let found = access(&server).list(&ListParams::default()).await.unwrap();
    let names: Vec<_> = found.iter().filter_map(|object| object.metadata.name.as_deref()).collect();
    assert_eq!(names, ["b", "c"]);
    assert!(!server.lines()[2].contains("limit="), "{:?}", server.lines());
    // Without pages there is nothing to start over.
    let server = Server::new([refusal(410, "Expired")]);
    assert!(access(&server).list(&ListParams::default()).await.unwrap_err().failure.is_gone());
}

#[tokio::test]
async fn deleting_tells_whether_there_was_one() {
    let server = Server::new([(200, object("a", 1, "1")), refusal(404, "NotFound")]);
    let boxes = access(&server);
    assert!(boxes.delete("a").await.unwrap());
    assert!(!boxes.delete("a").await.unwrap());
}

#[tokio::test]
async fn objects_are_described_in_full() {
    let client = Server::default().client();
    let nodes = Access::<Node>::all(&client, &(), "tester");
    assert_eq!(nodes.describe("node-1"), "nodes node-1");
    let boxes = Access::<BoxObject>::namespaced(&client, "shop", &boxes(), "tester");
    assert_eq!(boxes.describe("a"), "boxes.example.com shop/a");
    assert_eq!(boxes.api().resource_url(), "/apis/example.com/v1/namespaces/shop/boxes");
    assert_eq!(boxes.selector("a"), "metadata.name=a,metadata.namespace=shop");
    assert_eq!(nodes.selector("a"), "metadata.name=a");
}

#[tokio::test(start_paused = true)]
async fn a_call_has_a_time_limit() {
    let client = Client::new(
        tower::service_fn(|_request: HttpRequest<Body>| {
            std::future::pending::<Result<Response<Body>, tower::BoxError>>()
        }),
        "default",
    );
    let retry = RetryPolicy { tries: 2, backoff: Backoff::default(), longest_pause: Duration::ZERO };
    let boxes = Access::<BoxObject>::all(&client, &boxes(), "tester").with_retry(retry);
    let start = tokio::time::Instant::now();
    let error = boxes.get("a").await.unwrap_err();
    assert_eq!(error.failure.reason(), "timeout");
    let seconds = start.elapsed().as_secs_f64();
    assert!((60.0..60.2).contains(&seconds), "{seconds}");
}
