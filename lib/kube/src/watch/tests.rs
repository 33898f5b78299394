use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

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

fn object(name: &str, width: u32, generation: i64, version: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Box", "spec": {"width": width},
        "metadata": {"name": name, "uid": "u", "generation": generation, "resourceVersion": version}})
}

/// What the server does with the next request.
enum Answer {
    /// One body.
    Json(u16, Value),
    /// A watch: events come through the channel; when it closes the connection ends.
    Events(mpsc::UnboundedReceiver<Value>),
}

/// A server whose answers the test gives as they are needed.
#[derive(Clone)]
struct Server {
    answers: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

fn server() -> (Server, mpsc::UnboundedSender<Answer>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Server { answers: Arc::new(tokio::sync::Mutex::new(receiver)), asked: Arc::default() }, sender)
}

impl Server {
    fn access(&self) -> Access<BoxObject> {
        let server = self.clone();
        let client = kube::Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move {
                    let accept = request.headers().get(http::header::ACCEPT);
                    let what = match accept.and_then(|accept| accept.to_str().ok()) {
                        Some(accept) if accept.contains("as=PartialObjectMetadata") => "metadata",
                        _ => "whole",
                    };
                    let watch = if request.uri().query().unwrap_or_default().contains("watch=true") {
                        " watch"
                    } else {
                        ""
                    };
                    server.asked.lock().unwrap().push(format!("{what}{watch} {}", request.uri().path()));
                    let answer = server.answers.lock().await.recv().await;
                    Ok::<_, tower::BoxError>(match answer {
                        None => return Err("the server is away".into()),
                        Some(Answer::Json(code, value)) => {
                            let body = Full::new(Bytes::from(serde_json::to_vec(&value)?));
                            Response::builder()
                                .status(code)
                                .body(body.map_err(tower::BoxError::from).boxed_unsync())?
                        }
                        Some(Answer::Events(events)) => {
                            let frames = futures_util::stream::unfold(events, |mut events| async {
                                let event = events.recv().await?;
                                let line = Bytes::from(format!("{event}\n"));
                                Some((Ok::<_, tower::BoxError>(Frame::data(line)), events))
                            });
                            Response::new(StreamBody::new(frames).boxed_unsync())
                        }
                    })
                }
            }),
            "default",
        );
        Access::all(&client, &boxes(), "tester").with_retry(crate::retry::RetryPolicy::NEVER)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn list(items: Vec<Value>, version: &str) -> Answer {
    let list = json!({"apiVersion": "example.com/v1", "kind": "BoxList", "items": items,
        "metadata": {"resourceVersion": version}});
    Answer::Json(200, list)
}

fn events() -> (mpsc::UnboundedSender<Value>, Answer) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Answer::Events(receiver))
}

fn refusal(code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": reason});
    Answer::Json(code, status)
}

async fn until<T>(receiver: &mut watch::Receiver<T>, what: &str, right: impl Fn(&T) -> bool) {
    let waited =
        tokio::time::timeout(Duration::from_secs(600), receiver.wait_for(|value| right(value))).await;
    assert!(matches!(waited, Ok(Ok(_))), "not seen: {what}");
}

fn width(state: &Observed<BoxObject>) -> Option<u32> {
    state.present().and_then(|object| object.spec.width)
}

#[tokio::test(start_paused = true)]
async fn an_object_is_followed_through_its_life_and_through_outages() {
    let (server, answers) = server();
    let watch = Arc::new(ObjectWatch::new(server.access(), "a"));
    let (mut state, mut health) = (watch.subscribe(), watch.health());
    assert_eq!(*state.borrow(), Observed::Unknown);
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (watch, token) = (watch.clone(), token.clone());
        async move { watch.run(token).await }
    });

    assert!(answers.send(refusal(503, "Unavailable")).is_ok());
    until(&mut health, "a failure", |health| health.failures == 1 && !health.connected).await;
    assert_eq!(*state.borrow(), Observed::Unknown, "an outage says nothing of the object");

    assert!(answers.send(list(vec![], "1")).is_ok());
    until(&mut state, "absent", |state| *state == Observed::Absent).await;
    assert!(health.borrow_and_update().connected);
    let (feed, answer) = events();
    assert!(answers.send(answer).is_ok());
    feed.send(json!({"type": "ADDED", "object": object("a", 1, 1, "2")})).unwrap();
    until(&mut state, "added", |state| width(state) == Some(1)).await;
    feed.send(json!({"type": "MODIFIED", "object": object("a", 2, 2, "3")})).unwrap();
    until(&mut state, "modified", |state| width(state) == Some(2)).await;

    // The connection breaks and the server is away; the last state is kept. Then it no longer knows the version.
    drop(feed);
    assert!(answers.send(refusal(503, "Unavailable")).is_ok());
    until(&mut health, "the outage", |health| health.failures == 2).await;
    assert_eq!(width(&state.borrow()), Some(2));
    assert!(answers.send(refusal(410, "Expired")).is_ok());
    assert!(answers.send(list(vec![object("a", 3, 3, "9")], "9")).is_ok());
    until(&mut state, "the new list", |state| width(state) == Some(3)).await;

    let (feed, answer) = events();
    assert!(answers.send(answer).is_ok());
    feed.send(json!({"type": "DELETED", "object": object("a", 3, 3, "10")})).unwrap();
    until(&mut state, "deleted", |state| *state == Observed::Absent).await;
    token.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_same_version_wakes_nobody() {
    let (server, answers) = server();
    let watch = ObjectWatch::new(server.access(), "a");
    let mut state = watch.subscribe();
    watch.put(None);
    assert!(state.has_changed().unwrap());
    state.borrow_and_update();
    watch.put(None);
    assert!(!state.has_changed().unwrap());
    let read = |version| serde_json::from_value::<BoxObject>(object("a", 1, 1, version)).unwrap();
    watch.put(Some(read("5")));
    state.borrow_and_update();
    watch.put(Some(read("5")));
    assert!(!state.has_changed().unwrap());
    watch.put(Some(read("6")));
    assert!(state.has_changed().unwrap());
    drop(answers);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_long_enough_is_asked_for_a_new_list() {
    let (server, answers) = server();
    let watch = Arc::new(ObjectWatch::new(server.access(), "a"));
    let mut state = watch.subscribe();
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (watch, token) = (watch.clone(), token.clone());
        async move { watch.run(token).await }
    });
    assert!(answers.send(list(vec![object("a", 1, 1, "900")], "900")).is_ok());
    // The storage is an older one now; the server waits for a version it will not have, and gives up each time.
    for _ in 0..5 {
        assert!(answers.send(refusal(504, "Timeout")).is_ok());
    }
    assert!(answers.send(list(vec![object("a", 2, 1, "7")], "7")).is_ok());
    until(&mut state, "the new list", |state| width(state) == Some(2)).await;
    let path = "/apis/example.com/v1/boxes";
    let asked = server.asked();
    assert_eq!(asked.iter().filter(|line| **line == format!("whole watch {path}")).take(5).count(), 5);
    assert_eq!(asked.iter().filter(|line| **line == format!("whole {path}")).count(), 2);
    token.cancel();
    running.await.unwrap();
}

#[test]
fn a_version_is_a_generation_where_there_are_any() {
    let version = |uid: &str, generation, resource_version: &str| {
        Version::of(&ObjectMeta {
            uid: Some(uid.into()),
            generation,
            resource_version: Some(resource_version.into()),
            ..ObjectMeta::default()
        })
    };
    assert_eq!(version("u", Some(1), "1"), version("u", Some(1), "2"), "only the status was written");
    assert_ne!(version("u", Some(1), "1"), version("u", Some(2), "2"));
    assert_ne!(version("u", Some(1), "1"), version("v", Some(1), "2"), "deleted and created again");
    for none in [None, Some(0)] {
        assert_ne!(version("u", none, "1"), version("u", none, "2"));
        assert_eq!(version("u", none, "1"), version("u", none, "1"));
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_fetches_once_per_generation() {
    let (server, answers) = server();
    let watch = Arc::new(MetadataWatch::new(server.access(), "a"));
    let mut state = watch.subscribe();
    let mut health = watch.health();
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (watch, token) = (watch.clone(), token.clone());
        async move { watch.run(token).await }
    });
    let path = "/apis/example.com/v1/boxes";
    assert!(answers.send(list(vec![object("a", 0, 1, "1")], "1")).is_ok());
    // The object cannot be fetched at first; that is tried again without a new event.
    assert!(answers.send(refusal(503, "Unavailable")).is_ok());
    until(&mut health, "the failure", |health| health.failures == 1).await;
    assert!(answers.send(Answer::Json(200, object("a", 1, 1, "1"))).is_ok());
    until(&mut state, "the object", |state| width(state) == Some(1)).await;

    let (feed, answer) = events();
    assert!(answers.send(answer).is_ok());
    // The status is written three times, then the spec changes.
    for version in ["2", "3", "4"] {
        feed.send(json!({"type": "MODIFIED", "object": object("a", 0, 1, version)})).unwrap();
    }
    feed.send(json!({"type": "MODIFIED", "object": object("a", 0, 2, "5")})).unwrap();
    assert!(answers.send(Answer::Json(200, object("a", 7, 2, "5"))).is_ok());
    until(&mut state, "the second generation", |state| width(state) == Some(7)).await;
    let whole = format!("whole {path}/a");
    let expected =
        [format!("metadata {path}"), whole.clone(), whole.clone(), format!("metadata watch {path}"), whole];
    assert_eq!(server.asked(), expected);

    // Gone before it could be fetched.
    feed.send(json!({"type": "MODIFIED", "object": object("a", 0, 3, "6")})).unwrap();
    assert!(answers.send(refusal(404, "NotFound")).is_ok());
    until(&mut state, "gone", |state| *state == Observed::Absent).await;
    token.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_set_is_shown_whole() {
    let (server, answers) = server();
    let watch = Arc::new(SetWatch::new(server.access(), "spec.nodeName=node-1"));
    let mut state = watch.subscribe();
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (watch, token) = (watch.clone(), token.clone());
        async move { watch.run(token).await }
    });
    let names = |set: &Option<Arc<ObjectSet<BoxObject>>>| -> Option<String> {
        set.as_ref().map(|set| {
            let names: Vec<_> = set
                .iter()
                .map(|((_, name), object)| format!("{name}{}", object.spec.width.unwrap()))
                .collect();
            names.join(" ")
        })
    };
    assert_eq!(names(&state.borrow()), None);
    assert!(answers.send(list(vec![object("b", 1, 1, "1"), object("a", 1, 1, "1")], "1")).is_ok());
    until(&mut state, "the list", |set| names(set).as_deref() == Some("a1 b1")).await;
    let held = state.borrow().clone();
    let (feed, answer) = events();
    assert!(answers.send(answer).is_ok());
    feed.send(json!({"type": "MODIFIED", "object": object("a", 2, 2, "2")})).unwrap();
    feed.send(json!({"type": "DELETED", "object": object("b", 1, 1, "3")})).unwrap();
    feed.send(json!({"type": "ADDED", "object": object("c", 3, 1, "4")})).unwrap();
    until(&mut state, "the changes", |set| names(set).as_deref() == Some("a2 c3")).await;
    assert_eq!(names(&held).as_deref(), Some("a1 b1"), "who holds an old set keeps it");
    token.cancel();
    running.await.unwrap();
}
