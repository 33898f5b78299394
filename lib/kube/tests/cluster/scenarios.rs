//! What is tried, one function for each.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_kube::access::{Access, Created, Modified, Ownership, Written};
use koord_kube::client::{ClientOptions, Source, connect};
use koord_kube::error::Verb;
use koord_kube::events::{Report, Severity, event_sink, reference};
use koord_kube::k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use koord_kube::k8s_openapi::api::events::v1::Event;
use koord_kube::kube::api::{Api, ListParams};
use koord_kube::kube::core::ApiResource;
use koord_kube::kubelet::{KubeletAccess, KubeletClient, KubeletError, KubeletOptions, Verify};
use koord_kube::limit::Rate;
use koord_kube::observe::Outcome;
use koord_kube::resource::{Object, Plain, api_resource};
use koord_kube::retry::RetryPolicy;
use koord_kube::watch::{MetadataWatch, ObjectWatch, Observed, SetWatch};
use koord_kube::{Failure, kube};
use koord_runtime::CancellationToken;
use koord_runtime::supervisor::Backoff;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bed::{Bed, until};

type NodeMetric = Object<Value, Value>;

fn node_metrics() -> ApiResource {
    api_resource("slo.koordinator.sh", "v1alpha1", "NodeMetric", "nodemetrics")
}

fn metric(name: &str, seconds: u32) -> Value {
    json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": seconds}}})
}

fn seconds(object: &NodeMetric) -> Option<u64> {
    object.spec["metricCollectPolicy"]["reportIntervalSeconds"].as_u64()
}

fn status(cpu: &str) -> Value {
    json!({"updateTime": "2026-07-24T08:00:00Z",
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu}}, "systemUsage": {}}})
}

/// Runs all of them.
pub(crate) async fn run(kubeconfig: PathBuf) -> ExitCode {
    let mut bed = Bed::new(kubeconfig);
    server_side_apply(&bed).await;
    status_patches(&bed).await;
    writers_that_meet(&bed).await;
    forbidden(&bed).await;
    metadata_watch(&bed).await;
    pod_watch(&bed).await;
    events(&bed).await;
    limit(&bed).await;
    tls_and_tokens(&mut bed).await;
    outage(&mut bed).await;
    busy_server(&mut bed).await;
    bed.finish()
}

async fn access(bed: &Bed, manager: &str) -> Access<NodeMetric> {
    let (client, _) = bed.client(None).await;
    Access::all(&client, &node_metrics(), manager)
}

async fn server_side_apply(bed: &Bed) {
    println!("server-side apply");
    let (ours, theirs) = (access(bed, "ours").await, access(bed, "theirs").await);
    let created = ours.apply("applied", &metric("applied", 60), Ownership::Respect).await.unwrap();
    bed.equal("a missing object is created", seconds(&created), Some(60));
    let conflict = theirs.apply("applied", &metric("applied", 30), Ownership::Respect).await.unwrap_err();
    bed.check("another manager's field is a conflict", conflict.failure.is_conflict());
    let taken = theirs.apply("applied", &metric("applied", 30), Ownership::Take).await.unwrap();
    bed.equal("it can be taken", seconds(&taken), Some(30));
    let managers: Vec<_> =
        taken.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref()).collect();
    bed.equal("and has another owner then", managers, vec!["theirs"]);
    let unknown =
        json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "status": status("1")});
    let missing = ours.apply_status("nobody", &unknown, Ownership::Take).await.unwrap();
    bed.check("the status of a missing object is not applied", matches!(missing, Written::Missing));
    bed.check("deleting tells that it was there", ours.delete("applied").await.unwrap());
    bed.check("and that it no longer is", !ours.delete("applied").await.unwrap());
}

async fn status_patches(bed: &Bed) {
    println!("patches of the status");
    let (reporter, manager) = (access(bed, "koordlet").await, access(bed, "koord-manager").await);
    bed.check(
        "without an object there is nothing to write to",
        matches!(reporter.set_status("node-1", &status("1")).await.unwrap(), Written::Missing),
    );
    let wanted = serde_json::from_value::<NodeMetric>(metric("node-1", 60)).unwrap();
    bed.check("created", matches!(manager.create_if_missing(&wanted).await.unwrap(), Created::New(_)));
    bed.check("and found", matches!(manager.create_if_missing(&wanted).await.unwrap(), Created::Existing(_)));
    let mut large = status("1");
    large["prodReclaimableMetric"] = json!({"resource": {"resources": {"cpu": "1"}}});
    reporter.set_status("node-1", &large).await.unwrap();
    let Written::Done(first) = reporter.set_status("node-1", &status("2345m")).await.unwrap() else {
        panic!("node-1 is there");
    };
    let stored = reporter.get("node-1").await.unwrap().unwrap();
    bed.equal("nothing of the older status stays", stored.status, Some(status("2345m")));
    bed.equal("the spec is as it was", seconds(&Object { status: None, ..stored }), Some(60));
    // Both write to the same object at the same time, the reporter without looking.
    let reports = async {
        for n in 0..30 {
            let written = reporter.set_status("node-1", &status(&n.to_string())).await;
            if !matches!(written, Ok(Written::Done(_))) {
                return Err(written);
            }
        }
        Ok(())
    };
    let changes = async {
        for n in 0..30 {
            manager.merge("node-1", &json!({"metadata": {"labels": {"n": n.to_string()}}})).await.unwrap();
        }
    };
    let (reported, ()) = tokio::join!(reports, changes);
    bed.check("writers of other parts never make a status fail", reported.is_ok());
    let stored = reporter.get("node-1").await.unwrap().unwrap();
    bed.equal("the last status stays", stored.status, Some(status("29")));
    bed.equal("a status is no new generation", stored.metadata.generation, first.generation);
    let refused = reporter.set_status("node-1", &json!({"updateTime": 5})).await.unwrap_err();
    bed.equal("a status against the schema is refused", refused.failure.reason(), "invalid");
}

async fn writers_that_meet(bed: &Bed) {
    println!("writers that meet");
    let patient =
        RetryPolicy { tries: 40, backoff: Backoff::default(), longest_pause: Duration::from_secs(5) };
    let add = |writer: Access<NodeMetric>| async move {
        for _ in 0..15 {
            let change = |object: &mut NodeMetric| {
                let labels = object.metadata.labels.get_or_insert_default();
                let count: u32 = labels.get("count").and_then(|text| text.parse().ok()).unwrap_or(0);
                labels.insert("count".into(), (count + 1).to_string());
                true
            };
            assert!(matches!(writer.modify("node-1", change).await.unwrap(), Modified::Done(_)));
        }
    };
    let writers = (access(bed, "a").await.with_retry(patient), access(bed, "b").await.with_retry(patient));
    tokio::join!(add(writers.0), add(writers.1));
    let stored = access(bed, "c").await.get("node-1").await.unwrap().unwrap();
    let count = stored.metadata.labels.and_then(|labels| labels.get("count").cloned());
    bed.equal("no change of two writers is lost", count.as_deref(), Some("30"));
}

async fn forbidden(bed: &Bed) {
    println!("permissions");
    let (client, _) = bed.client(None).await;
    let failure = Failure::of(Api::<Secret>::namespaced(client, "default").get("a").await.unwrap_err());
    bed.equal("what may not be read is forbidden", failure.reason(), "forbidden");
}

async fn metadata_watch(bed: &Bed) {
    println!("watch of metadata");
    let (client, requests) = bed.client(None).await;
    let watch = Arc::new(MetadataWatch::new(
        Access::<NodeMetric>::all(&client, &node_metrics(), "koordlet"),
        "node-2",
    ));
    let mut state = watch.subscribe();
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (watch, token) = (watch.clone(), token.clone());
        async move { watch.run(token).await }
    });
    bed.check(
        "a missing object is absent",
        until(&mut state, |state| matches!(state, Observed::Absent)).await,
    );
    let writer = access(bed, "koord-manager").await;
    writer.apply("node-2", &metric("node-2", 60), Ownership::Take).await.unwrap();
    let shows = |wanted: u64| {
        move |state: &Observed<NodeMetric>| state.present().and_then(|object| seconds(object)) == Some(wanted)
    };
    bed.check("it is seen when it comes", until(&mut state, shows(60)).await);
    for n in 0..10 {
        writer.set_status("node-2", &status(&n.to_string())).await.unwrap();
    }
    writer.apply("node-2", &metric("node-2", 61), Ownership::Take).await.unwrap();
    bed.check("a new spec is seen", until(&mut state, shows(61)).await);
    bed.equal(
        "two generations and ten statuses are two reads",
        requests.count(Verb::Get, "nodemetrics", Outcome::Answer(200)),
        2,
    );
    writer.delete("node-2").await.unwrap();
    bed.check("its end is seen", until(&mut state, |state| matches!(state, Observed::Absent)).await);
    token.cancel();
    running.await.unwrap();
}

/// What is needed of a pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Slim {
    #[serde(default)]
    spec: Value,
}

async fn pod_watch(bed: &Bed) {
    println!("watch of a node's pods");
    let (client, _) = bed.client(None).await;
    let pods = api_resource("", "v1", "Pod", "pods");
    let watch = Arc::new(SetWatch::new(
        Access::<Plain<Slim>>::all(&client, &pods, "koordlet"),
        "spec.nodeName=node-1",
    ));
    let mut state = watch.subscribe();
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (watch, token) = (watch.clone(), token.clone());
        async move { watch.run(token).await }
    });
    bed.check(
        "an empty node has an empty set",
        until(&mut state, |set| set.as_ref().is_some_and(|set| set.is_empty())).await,
    );
    let writer = Access::<Plain<Slim>>::namespaced(&client, "default", &pods, "tester");
    for (name, node) in [("here", "node-1"), ("elsewhere", "node-9")] {
        let spec = json!({"nodeName": node, "containers": [{"name": "main", "image": "none"}]});
        writer.create_if_missing(&Plain::new(name, &pods, Slim { spec })).await.unwrap();
    }
    let names = |set: &koord_kube::watch::ObjectSet<Plain<Slim>>| -> Vec<String> {
        set.keys().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
    };
    let seen = until(&mut state, |set| set.as_ref().is_some_and(|set| names(set) == ["default/here"])).await;
    bed.check("pods of other nodes are not in it", seen);
    token.cancel();
    running.await.unwrap();
}

async fn events(bed: &Bed) {
    println!("events");
    let (client, _) = bed.client(None).await;
    let node = Api::<Node>::all(client.clone()).get("node-1").await.unwrap();
    let (sink, writer) = event_sink(&client, "koordlet", "node-1");
    for _ in 0..3 {
        sink.report(Report {
            about: reference("v1", "Node", "node-1", node.metadata.uid.as_deref().unwrap_or_default()),
            severity: Severity::Warning,
            reason: "CollectorFailed".into(),
            action: "Collect".into(),
            note: "no counters".into(),
        });
    }
    let seen = sink.clone();
    drop(sink);
    let token = CancellationToken::new();
    let writing = writer.run(token.clone());
    let watching = async {
        while seen.counts().written + seen.counts().failed < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        token.cancel();
    };
    tokio::join!(writing, watching);
    let found = Api::<Event>::namespaced(client, "default").list(&ListParams::default()).await.unwrap();
    let ours: Vec<_> =
        found.items.iter().filter(|event| event.reason.as_deref() == Some("CollectorFailed")).collect();
    bed.equal("three reports are one event", ours.len(), 1);
    let first = ours.first().copied().cloned().unwrap_or_default();
    bed.equal("with a count", first.series.map(|series| series.count), Some(3));
    bed.equal("about the node", first.regarding.and_then(|about| about.name).as_deref(), Some("node-1"));
    bed.equal("by its author", first.reporting_controller.as_deref(), Some("koordlet"));
}

async fn limit(bed: &Bed) {
    println!("limit of requests");
    let (client, requests) = bed.client(Some(Rate { per_second: 20.0, burst: 5 })).await;
    let metrics = Access::<NodeMetric>::all(&client, &node_metrics(), "tester");
    let start = Instant::now();
    let reads = (0..25).map(|_| metrics.get("node-1"));
    futures_util::future::try_join_all(reads).await.unwrap();
    let elapsed = start.elapsed();
    println!("  25 requests in {} ms", elapsed.as_millis());
    // The five of the burst at once, the others 50 ms apart.
    bed.check("25 requests take a second or more", elapsed >= Duration::from_millis(1000));
    bed.equal("each was sent once", requests.count(Verb::Get, "nodemetrics", Outcome::Answer(200)), 25);
}

async fn tls_and_tokens(bed: &mut Bed) {
    println!("certificates and tokens");
    let folder = PathBuf::from(bed.ask("service-account-folder").await);
    let port: u16 = bed.ask("port").await.parse().unwrap();
    let source = Source::InCluster { host: "127.0.0.1".into(), port, folder: folder.clone() };
    let client = connect(&ClientOptions::new(source, "koord-kube-test"), Arc::new(())).await.unwrap();
    let metrics = Access::<NodeMetric>::all(&client, &node_metrics(), "tester");
    bed.check("a pod's service account is let in", metrics.get("node-1").await.unwrap().is_some());
    bed.equal("its namespace is the default", client.default_namespace(), "koordinator-system");

    let kubelet = |token: bool, verify: Verify| {
        let options = KubeletOptions {
            host: "127.0.0.1".into(),
            port,
            access: KubeletAccess::Authenticated { token: token.then(|| folder.join("token")), verify },
            limit: Duration::from_secs(10),
            user_agent: "koord-kube-test".into(),
        };
        KubeletClient::new(&options).unwrap()
    };
    let authority = Verify::AuthorityFile(folder.join("ca.crt"));
    // The API server stands in for a kubelet: the same TLS, the same tokens.
    for (name, client, wanted) in [
        ("an unchecked certificate will do", kubelet(true, Verify::Off), None),
        ("a certificate of the authority will do", kubelet(true, authority.clone()), None),
        ("without a token the answer is no", kubelet(false, authority), Some("refused")),
        (
            "a certificate of another authority is refused",
            kubelet(true, Verify::AuthorityFile(bed.ask("other-authority").await.into())),
            Some("no answer"),
        ),
    ] {
        let ended = match client.get("/apis/slo.koordinator.sh/v1alpha1/nodemetrics").await {
            Ok(body) => (!body.starts_with(b"{\"apiVersion\"")).then_some("something else"),
            Err(KubeletError::Refused { .. }) => Some("refused"),
            Err(KubeletError::NoAnswer { .. }) => Some("no answer"),
            Err(_) => Some("another error"),
        };
        bed.equal(name, ended, wanted);
    }

    bed.ask("break-token").await;
    let failure = metrics.get("node-1").await.unwrap_err().failure;
    bed.equal("a token that is no longer good is refused", failure.reason(), "unauthenticated");
    bed.ask("new-token").await;
    bed.check("a replaced token is used at once", metrics.get("node-1").await.is_ok());
}

async fn outage(bed: &mut Bed) {
    println!("an outage");
    let (client, requests) = bed.client(None).await;
    let metrics = Access::<NodeMetric>::all(&client, &node_metrics(), "tester");
    let watch = Arc::new(ObjectWatch::new(metrics.clone(), "node-1"));
    let (mut state, mut health) = (watch.subscribe(), watch.health());
    let token = CancellationToken::new();
    let running = tokio::spawn({
        let (watch, token) = (watch.clone(), token.clone());
        async move { watch.run(token).await }
    });
    let shows = |wanted: u64| {
        move |state: &Observed<NodeMetric>| state.present().and_then(|object| seconds(object)) == Some(wanted)
    };
    bed.check("the object is seen", until(&mut state, shows(60)).await);

    bed.ask("kill-apiserver").await;
    let once = metrics.clone().with_retry(RetryPolicy::NEVER);
    let failure = once.get("node-1").await.unwrap_err().failure;
    bed.equal("a request gets no answer", failure.reason(), "no_answer");
    bed.check("and is counted", requests.count(Verb::Get, "nodemetrics", Outcome::NoAnswer) >= 1);
    bed.check(
        "the watch knows of the outage",
        until(&mut health, |health| !health.connected && health.failures > 0).await,
    );
    bed.check("the last state is kept", shows(60)(&state.borrow()));
    // Made while the server is away.
    let (late, _) = bed.client(None).await;
    let late = Access::<NodeMetric>::all(&late, &node_metrics(), "tester").with_retry(RetryPolicy::NEVER);
    bed.check("a client that is new then has no answer either", late.get("node-1").await.is_err());

    bed.ask("start-apiserver").await;
    bed.check("a client made in the outage works", late.get("node-1").await.unwrap().is_some());
    metrics.merge("node-1", &metric("node-1", 77)).await.unwrap();
    bed.check("the watch goes on", until(&mut state, shows(77)).await);
    bed.check(
        "and says so",
        until(&mut health, |health| health.connected && health.last_failure.is_none()).await,
    );
    token.cancel();
    running.await.unwrap();
}

async fn busy_server(bed: &mut Bed) {
    println!("a server with too much to do");
    bed.ask("few-requests").await;
    let (client, requests) = bed.client(None).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let large = json!({"metadata": {"name": "large"}, "data": {"text": "x".repeat(900_000)}});
    maps.create(&kube::api::PostParams::default(), &serde_json::from_value(large).unwrap()).await.unwrap();
    let patient =
        RetryPolicy { tries: 50, backoff: Backoff::default(), longest_pause: Duration::from_secs(5) };
    let maps = Access::<ConfigMap>::all(&client, &(), "tester").with_retry(patient);
    let lists = (0..40).map(|_| {
        let maps = maps.clone();
        async move { maps.list(&ListParams::default().fields("metadata.name=large")).await }
    });
    let ended = futures_util::future::join_all(lists).await;
    let refused = requests.count(Verb::List, "configmaps", Outcome::Answer(429));
    println!("  {refused} answers were 429");
    bed.check("some requests are refused", refused > 0);
    bed.check(
        "all succeed in the end",
        ended.iter().all(|list| list.as_ref().is_ok_and(|list| list.len() == 1)),
    );
}
