//! `koordctl top` against a stream that is served.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::pin::Pin;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use http::StatusCode;
use http_body_util::BodyExt as _;
use koord_admin::usage::{NodeUsage, PodUsage, QosUsage};
use koord_runtime::admin::{BodyError, Routes, serve_unix, text};
use koord_runtime::supervisor::Supervisor;
use koord_runtime::unix_socket::{Occupied, SocketFile};
use koord_usage::kind::Kind;
use koord_usage::object::{Object, TierSeries};
use koord_usage::pass::Pass;
use koord_usage::time::Tick;
use koord_usage::wire::{Parts, Teller};
use koord_usage_api::v1;
use koord_usage_api::v1::usage_service_server::{UsageService, UsageServiceServer};
use koord_usage_api::v1::watch_response::Event;
use tonic::{Request, Response, Status};
use tower::Service as _;

type Messages = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

/// What a proxy says on its stream, and how that ends.
#[derive(Clone)]
struct Played {
    messages: Vec<v1::WatchResponse>,
    end: Option<Status>,
}

#[tonic::async_trait]
impl UsageService for Played {
    type WatchStream = Messages;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Messages>, Status> {
        assert_eq!(request.get_ref().backfill_milliseconds, 60_000);
        let messages = stream::iter(self.messages.clone().into_iter().map(Ok));
        let end: Messages = match self.end.clone() {
            Some(status) => Box::pin(stream::iter([Err(status)])),
            // As long as the client likes.
            None => Box::pin(stream::pending()),
        };
        Ok(Response::new(Box::pin(messages.chain(end))))
    }
}

struct Proxy {
    folder: tempfile::TempDir,
    _socket: SocketFile,
    _runtime: tokio::runtime::Runtime,
}

impl Proxy {
    fn serve(routes: Routes) -> Proxy {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::new(runtime.handle().clone());
        let (_task, socket) =
            serve_unix(&supervisor, &folder.path().join("admin.sock"), Occupied::Refuse, routes).unwrap();
        Proxy { folder, _socket: socket, _runtime: runtime }
    }

    fn playing(messages: Vec<v1::WatchResponse>, end: Option<Status>) -> Proxy {
        let server = UsageServiceServer::new(Played { messages, end });
        Proxy::serve(Routes::new().service("koord.usage.v1.UsageService", move |call| {
            let mut server = server.clone();
            async move {
                let answer = server.call(call).await.unwrap();
                answer.map(|body| body.map_err(|status| BodyError(Box::new(status))).boxed_unsync())
            }
        }))
    }

    fn run(&self, arguments: &str) -> Answer {
        let output = Command::new(env!("CARGO_BIN_EXE_koordctl"))
            .env_clear()
            .stdin(Stdio::null())
            .args(arguments.split_whitespace())
            .arg("--admin-socket")
            .arg(self.folder.path().join("admin.sock"))
            .output()
            .unwrap();
        answer(output)
    }
}

struct Answer {
    code: i32,
    output: String,
    complaints: String,
}

fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code().unwrap(),
        output: String::from_utf8(output.stdout).unwrap(),
        complaints: String::from_utf8(output.stderr).unwrap(),
    }
}

fn pod(namespace: &str, name: &str, qos: &str, priority: &str, containers: &[&str]) -> Arc<v1::Pod> {
    let uid = format!("uid-{name}");
    let cgroup = format!("/kubepods/burstable/pod{uid}");
    let container = |name: &&str| v1::Container {
        id: format!("id-{name}"),
        name: (*name).to_owned(),
        cgroup: format!("{cgroup}/id-{name}"),
        is_init: false,
    };
    let containers = containers.iter().map(container).collect();
    Arc::new(v1::Pod {
        uid,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        qos_class: qos.to_owned(),
        priority_class: priority.to_owned(),
        kube_qos_class: "Burstable".to_owned(),
        cgroup,
        containers,
        batch_milli_cpu_request: None,
    })
}

/// Two pods over two ticks.
fn messages() -> Vec<v1::WatchResponse> {
    let mut teller = Teller::new(Parts::ALL);
    let start = v1::Start { boot_id: "b".to_owned(), cpus: 4, memory_bytes: 8 << 30, ..v1::Start::default() };
    let mut messages = vec![v1::WatchResponse { event: Some(Event::Start(start)) }];
    messages.extend(teller.inventory(&[
        pod("shop", "web", "", "", &["app"]),
        pod("batch", "crunch", "BE", "koord-batch", &["main", "side"]),
    ]));
    let now = Tick::now();
    for (age, web, crunch) in [(1, 0.5, 1.5), (0, 1.5, 2.5)] {
        let mut pass = Pass::new(now.back(std::time::Duration::from_secs(age)));
        let of_pod = |name: &str| Object::Pod(format!("uid-{name}").into());
        pass.push(Object::Node, Kind::NodeCpuUsage, 3.75);
        pass.push(Object::Node, Kind::NodeMemoryUsage, f64::from(1 << 30) * 2.0);
        pass.push(Object::Node, Kind::SystemCpuUsage, 0.25);
        pass.push(Object::Numa(0), Kind::NumaCpuUsage, 3.75);
        pass.push(Object::Tier(TierSeries::RealLimit), Kind::NodeBe, 3000.0);
        pass.push(Object::Tier(TierSeries::Request), Kind::NodeBe, 2000.0);
        pass.push(of_pod("web"), Kind::PodCpuUsage, web);
        pass.push(of_pod("web"), Kind::PodMemoryUsage, f64::from(64 << 20));
        pass.push(of_pod("crunch"), Kind::PodCpuUsage, crunch);
        pass.push(of_pod("crunch"), Kind::PodCpuThrottled, 0.5);
        pass.push(of_pod("crunch"), Kind::PodMemoryUsage, f64::from(1 << 20));
        pass.push(of_pod("crunch"), Kind::PodMemoryUsageWithPageCache, f64::from(3 << 20));
        let main = Object::Container { pod_uid: "uid-crunch".into(), id: "id-main".into() };
        pass.push(main, Kind::ContainerCpuUsage, crunch);
        messages.push(teller.pass(&pass, age > 0));
    }
    messages
}

#[track_caller]
fn assert_golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("KOORD_REWRITE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{path} has\n{expected}\nand the program wrote\n{text}");
}

#[test]
fn tables_are_shown_once_where_there_is_no_terminal() {
    let proxy = Proxy::playing(messages(), None);
    for (name, arguments) in [
        ("top-node.txt", "top node"),
        ("top-pods.txt", "top pods"),
        ("top-pods-wide.txt", "top pods -o wide --containers --sort memory"),
        ("top-qos.txt", "top qos --once"),
    ] {
        let Answer { code, output, complaints } = proxy.run(arguments);
        assert_eq!((code, complaints.as_str()), (0, ""), "{arguments}");
        assert_golden(name, &output);
    }
    assert_eq!(proxy.run("top pods nothing").output, "no pods\n");
}

#[test]
fn scripts_get_exact_figures() {
    let proxy = Proxy::playing(messages(), None);
    let pods: Vec<PodUsage> = serde_json::from_str(&proxy.run("top pods --once -o json").output).unwrap();
    let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["crunch", "web"]);
    let usage = &pods[0].usage;
    assert_eq!(usage.figures.cpu_cores, Some(2.5));
    assert_eq!(usage.figures.cpu_cores_average_1m, Some(2.0));
    assert_eq!(usage.figures.memory_bytes, Some(1_048_576));
    assert_eq!(usage.figures.memory_with_page_cache_bytes, Some(3_145_728));
    assert_eq!(usage.cpu_throttled_ratio, Some(0.5));
    assert_eq!(pods[0].containers.len(), 2);
    let node: NodeUsage = serde_json::from_str(&proxy.run("top node -o json").output).unwrap();
    assert_eq!((node.cpus, node.memory_capacity_bytes), (Some(4), Some(8 << 30)));
    assert_eq!(node.pods.cpu_cores, Some(4.0));
    assert!(node.time.is_some());
    let text = proxy.run("top qos -o yaml").output;
    let qos: QosUsage = serde_json::from_value(koord_runtime::yaml::document(&text).unwrap()).unwrap();
    assert_eq!(qos.best_effort_cpu_limit_cores, Some(3.0));
    assert_eq!(qos.classes.iter().map(|class| class.qos.as_str()).collect::<Vec<_>>(), ["LS", "BE"]);
}

#[test]
fn a_sampling_that_has_just_begun_is_waited_for_a_moment() {
    let mut teller = Teller::new(Parts::ALL);
    let start = v1::WatchResponse { event: Some(Event::Start(v1::Start::default())) };
    let mut messages = vec![start];
    messages.extend(teller.inventory(&[]));
    // Three passes without anything are enough to see that there is nothing.
    messages.extend((1..=3).map(|tick| teller.pass(&Pass::new(Tick(tick)), false)));
    let proxy = Proxy::playing(messages, None);
    let Answer { code, output, complaints } = proxy.run("top qos");
    assert_eq!((code, output.as_str(), complaints.as_str()), (0, "no pods\n", ""));
}

#[test]
fn whatever_goes_wrong_is_told() {
    let hint = "does not tell usage: is it a koord-runtime-proxy of this release that runs with --usage=on?";
    let without = Proxy::serve(Routes::new().get("/healthz", || text(StatusCode::OK, "ok\n")));
    for (proxy, code, complaint) in [
        (&without, 1, hint),
        (&Proxy::playing(Vec::new(), Some(Status::unimplemented("no"))), 1, hint),
        (
            &Proxy::playing(Vec::new(), Some(Status::resource_exhausted("16 clients watch already"))),
            1,
            "was refused: 16 clients watch already; try again",
        ),
        (&Proxy::playing(messages()[..2].to_vec(), Some(Status::unavailable("ending"))), 4, "broke during"),
        // A pass before the inventory.
        (
            &Proxy::playing(vec![messages()[0].clone(), messages()[2].clone()], None),
            4,
            "a pass came before the inventory",
        ),
    ] {
        let answer = proxy.run("top node");
        assert_eq!((answer.code, answer.output.as_str()), (code, ""), "{}", answer.complaints);
        assert!(answer.complaints.starts_with("koordctl: "), "{}", answer.complaints);
        assert!(answer.complaints.contains(complaint), "{}", answer.complaints);
    }
    let silent = Proxy::playing(messages()[..2].to_vec(), None);
    let answer = silent.run("top node --timeout 200ms");
    assert_eq!(answer.code, 4);
    assert!(answer.complaints.contains("no answer to UsageService/Watch"), "{}", answer.complaints);
    let missing = Proxy::playing(Vec::new(), None);
    std::fs::remove_file(missing.folder.path().join("admin.sock")).unwrap();
    let answer = missing.run("top node");
    assert_eq!(answer.code, 4);
    assert!(answer.complaints.starts_with("koordctl: no admin socket at "), "{}", answer.complaints);
}
