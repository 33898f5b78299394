use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::{TokioExecutor, TokioIo};
use koord_extension::gates::{Component, Gates};
use koord_hook::v1alpha1::{ContainerMetadata, PodSandboxMetadata};
use koord_intercept::record::{ContainerRecord, PodRecord};
use koord_intercept::skip::SkipRule;
use koord_runtime::admin::serve_unix;
use koord_runtime::unix_socket::Occupied;
use koord_usage::inventory::Inventory;
use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::time::Tick;
use koord_usage::wire::{Event, Origin, Reader};
use koord_usage_api::v1::usage_service_client::UsageServiceClient;
use prometheus_client::registry::Registry;
use tonic::Code;
use tonic::body::Body;

use super::*;
use crate::metrics::{Metrics, UsageCollector, WriteCounter};
use crate::qos::{FixedNode, MachineRoots, NodePolicy, TreeOptions};
use crate::trust::Trust;

/// A node whose cgroups and machine are directories.
struct Bed {
    folder: tempfile::TempDir,
    store: Arc<Store>,
    qos: Arc<Qos>,
}

const POD: &str = "kubepods/burstable/podu1";

impl Bed {
    fn new() -> Bed {
        let folder = tempfile::tempdir().expect("a folder");
        let bed_root = folder.path().to_owned();
        let write = |path: &str, text: &str| write(&bed_root, path, text);
        // A directory that is no file system of cgroups is taken for a tree of version 1.
        for controller in ["cpu", "cpuacct", "memory"] {
            for group in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
                write(&format!("cgroup/{controller}/{group}/cgroup.procs"), "");
            }
        }
        write(
            "proc/stat",
            "cpu  100 0 100 1000 0 0 0 0 0 0\ncpu0 50 0 50 500 0 0 0 0 0 0\ncpu1 50 0 50 500 0 0 0 0 0 0\n",
        );
        write(
            "proc/meminfo",
            "MemTotal: 8192 kB\nMemFree: 2048 kB\nMemAvailable: 4096 kB\nActive(file): 0 kB\nInactive(file): 0 kB\nSReclaimable: 0 kB\n",
        );
        write("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n");
        let observer = Arc::new(WriteCounter::register(&mut Registry::default()));
        let tree = TreeOptions {
            root: folder.path().join("cgroup"),
            kubelet_root: "/".to_owned(),
            driver: Some(koord_cgroup::driver::CgroupDriver::Cgroupfs),
            conversion: None,
        };
        let store = Arc::new(Store::new(Metrics::default()));
        let machine = MachineRoots {
            proc_root: folder.path().join("proc"),
            sys_root: folder.path().join("sys"),
            dev_root: folder.path().join("dev"),
            ..MachineRoots::default()
        };
        let executor = tree.executor(None, &observer).expect("a tree");
        let qos = Arc::new(Qos::new(crate::qos::Parts {
            mode: koord_admin::Mode::Off,
            policy: NodePolicy::new(None, Trust::of_this_process()),
            fixed: FixedNode {
                machine,
                topology: None,
                gates: Gates::parse(Component::Koordlet, "").expect("no gates").0,
                options: koord_rules::Options::default(),
                kubelet_dir: folder.path().join("kubelet"),
            },
            tree,
            executor,
            observer,
            store: Arc::clone(&store),
            async_runtime: tokio::runtime::Handle::current(),
            interval: Duration::from_secs(10),
            skip: SkipRule { key: "skip".to_owned(), value: "true".to_owned(), namespaces: Vec::new() },
        }));
        Bed { folder, store, qos }
    }

    fn write(&self, path: &str, text: &str) {
        write(self.folder.path(), path, text);
    }

    /// A cgroup that has used so many nanoseconds of CPU.
    fn group(&self, path: &str, nanoseconds: u64) {
        self.write(&format!("cgroup/cpuacct/{path}/cpuacct.usage"), &format!("{nanoseconds}\n"));
        self.write(
            &format!("cgroup/cpu/{path}/cpu.stat"),
            "nr_periods 10\nnr_throttled 1\nthrottled_time 5\n",
        );
        let memory: String = ["inactive_anon 1024", "active_anon 3072", "inactive_file 4096"]
            .into_iter()
            .chain(["active_file 4096", "unevictable 0", "cache 8192", "rss 4096"])
            .map(|line| format!("{line}\ntotal_{line}\n"))
            .collect();
        self.write(&format!("cgroup/memory/{path}/memory.stat"), &memory);
    }

    fn remove(&self, path: &str) {
        for controller in ["cpu", "cpuacct", "memory"] {
            let directory = self.folder.path().join("cgroup").join(controller).join(path);
            std::fs::remove_dir_all(directory).expect("removed");
        }
    }

    fn follower(&self) -> Follower {
        Follower::new(Arc::clone(&self.qos), Arc::clone(&self.store))
    }
}

/// Writes a file of the kernel: who reads meanwhile, through a descriptor of before too, finds the old text or the new
/// one and never an empty file, for the text is written over the old one at once.
fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path).expect("opened");
    file.write_all_at(text.as_bytes(), 0).expect("written");
    file.set_len(text.len().try_into().expect("a length")).expect("no rest of the old text");
}

fn pod(uid: &str, attempt: u32) -> PodRecord {
    PodRecord {
        metadata: PodSandboxMetadata {
            name: format!("pod-{uid}"),
            namespace: "default".to_owned(),
            uid: uid.to_owned(),
            attempt,
        },
        cgroup_parent: format!("/kubepods/burstable/pod{uid}"),
        ..PodRecord::default()
    }
}

fn container(pod_id: &str, name: &str) -> ContainerRecord {
    ContainerRecord {
        pod_id: pod_id.to_owned(),
        metadata: ContainerMetadata { name: name.to_owned(), ..ContainerMetadata::default() },
        ..ContainerRecord::default()
    }
}

fn names(measured: &Measured) -> BTreeMap<String, Vec<String>> {
    measured
        .inventory
        .pods
        .iter()
        .map(|pod| (pod.uid.to_string(), pod.containers.iter().map(|c| c.id.to_string()).collect()))
        .collect()
}

fn one(uid: &str, containers: &[&str]) -> BTreeMap<String, Vec<String>> {
    [(uid.to_owned(), containers.iter().map(|id| (*id).to_owned()).collect())].into()
}

#[tokio::test]
async fn who_is_measured_follows_records_and_cgroups() {
    let bed = Bed::new();
    let mut follower = bed.follower();
    let at = |seconds: u64| Tick(1_000_000 + seconds * 1000);
    assert_eq!(names(&follower.refresh_at(at(0))), BTreeMap::new());
    // A pod is measured once its cgroup is there, a container as well; the sandbox is none of them.
    bed.store.put_pod("sandbox".to_owned(), pod("u1", 0));
    bed.store.put_container("c1".to_owned(), container("sandbox", "app"));
    assert_eq!(names(&follower.refresh_at(at(1))), BTreeMap::new());
    bed.group(POD, 1);
    bed.group(&format!("{POD}/sandbox"), 1);
    let first = follower.refresh_at(at(2));
    assert_eq!(names(&first), one("u1", &[]));
    bed.group(&format!("{POD}/c1"), 1);
    // It is looked for again after one second, two, four.
    assert!(Arc::ptr_eq(&follower.refresh_at(at(2)), &first));
    let second = follower.refresh_at(at(6));
    assert_eq!(names(&second), one("u1", &["c1"]));
    // Nothing changes: the same inventory, whatever else is in the store.
    assert!(Arc::ptr_eq(&follower.refresh_at(at(7)), &second));
    bed.store
        .put_pod("stranger".to_owned(), PodRecord { cgroup_parent: "/elsewhere".to_owned(), ..pod("u9", 0) });
    assert!(Arc::ptr_eq(&follower.refresh_at(at(8)), &second));
    // A container that was stopped goes at once, one that ended by itself with the next full look.
    bed.store.put_container("c2".to_owned(), container("sandbox", "side"));
    bed.group(&format!("{POD}/c2"), 1);
    assert_eq!(names(&follower.refresh_at(at(9))), one("u1", &["c1", "c2"]));
    bed.store.mark_container_stopped("c1", std::time::SystemTime::now());
    assert_eq!(names(&follower.refresh_at(at(10))), one("u1", &["c2"]));
    bed.remove(&format!("{POD}/c2"));
    assert_eq!(names(&follower.refresh_at(at(11))), one("u1", &["c2"]));
    assert_eq!(names(&follower.refresh_at(at(41))), one("u1", &[]));
    bed.store.mark_pod_stopped("sandbox", std::time::SystemTime::now());
    assert_eq!(names(&follower.refresh_at(at(42))), BTreeMap::new());
}

#[tokio::test]
async fn a_pod_with_two_sandboxes_is_one_pod() {
    let bed = Bed::new();
    bed.group(POD, 1);
    bed.group(&format!("{POD}/old"), 1);
    bed.group(&format!("{POD}/new"), 1);
    let labelled = |attempt, class: &str| {
        let mut pod = pod("u1", attempt);
        pod.labels.insert("koordinator.sh/qosClass".to_owned(), class.to_owned());
        pod.labels.insert("koordinator.sh/priority-class".to_owned(), "koord-batch".to_owned());
        pod.annotations.insert(
            "node.koordinator.sh/extended-resource-spec".to_owned(),
            r#"{"containers":{"new":{"requests":{"kubernetes.io/batch-cpu":"1500"}}}}"#.to_owned(),
        );
        pod
    };
    bed.store.put_pod("first".to_owned(), labelled(0, "LS"));
    bed.store.put_pod("second".to_owned(), labelled(1, "BE"));
    bed.store.put_container("old".to_owned(), container("first", "old"));
    bed.store.put_container("new".to_owned(), container("second", "new"));
    let measured = bed.follower().refresh_at(Tick(1));
    assert_eq!(names(&measured), one("u1", &["new", "old"]));
    // The newest sandbox tells labels and requests.
    let told = &measured.pods[0];
    assert_eq!((told.qos_class.as_str(), told.priority_class.as_str()), ("BE", "koord-batch"));
    assert_eq!(told.batch_milli_cpu_request, Some(1500));
    assert_eq!(
        (told.kube_qos_class.as_str(), told.cgroup.as_str()),
        ("Burstable", "/kubepods/burstable/podu1")
    );
}

fn config() -> UsageConfig {
    UsageConfig {
        enabled: true,
        interval: Duration::from_secs(1),
        memory_interval: Duration::from_secs(1),
        pressure: false,
        metrics: UsageMetrics::Container,
    }
}

/// A usage that is published by hand.
fn usage() -> Arc<Usage> {
    Arc::new(Usage::new(&config(), Path::new("/proc")))
}

fn measured(uids: &[&str]) -> Arc<Measured> {
    let pods =
        uids.iter().map(|uid| Arc::new(v1::Pod { uid: (*uid).to_owned(), ..v1::Pod::default() })).collect();
    Arc::new(Measured { inventory: Arc::new(Inventory::default()), pods })
}

fn publish(usage: &Usage, tick: u64, measured: &Arc<Measured>, samples: u32) {
    let mut pass = Pass::new(Tick(tick));
    pass.push(Object::Node, Kind::NodeCpuUsage, tick as f64);
    // Many NUMA nodes make a large pass.
    for number in 0..samples {
        pass.push(Object::Numa(number), Kind::NumaCpuUsage, 1.0);
    }
    usage.publish(Published {
        pass,
        measured: Arc::clone(measured),
        collectors: Arc::new(vec![v1::CollectorState {
            name: "node".to_owned(),
            ..v1::CollectorState::default()
        }]),
        ticks: TickStatus::default(),
    });
}

/// The admin socket of a proxy, and a client of it.
struct Served {
    supervisor: Supervisor,
    task: TaskHandle,
    path: PathBuf,
    _folder: tempfile::TempDir,
    _file: koord_runtime::unix_socket::SocketFile,
}

fn serve(usage: &Arc<Usage>) -> Served {
    let supervisor = Supervisor::new(tokio::runtime::Handle::current());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("admin.sock");
    let routes = routes(koord_runtime::admin::Routes::new(), Arc::clone(usage));
    let (task, file) = serve_unix(&supervisor, &path, Occupied::Refuse, routes).expect("bound");
    Served { supervisor, task, path, _folder: folder, _file: file }
}

impl Served {
    async fn client(&self) -> UsageServiceClient<Http2> {
        let stream = tokio::net::UnixStream::connect(&self.path).await.expect("connected");
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            // What a client is sent before it reads.
            .initial_stream_window_size(65_535)
            .initial_connection_window_size(65_535)
            .handshake(TokioIo::new(stream))
            .await
            .expect("a connection");
        tokio::spawn(connection);
        UsageServiceClient::new(Http2(sender)).max_decoding_message_size(64 << 20)
    }
}

/// One connection, as clients of gRPC want it.
struct Http2(hyper::client::conn::http2::SendRequest<Body>);

impl tonic::codegen::Service<http::Request<Body>> for Http2 {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        *request.uri_mut() = format!("http://localhost{path}").parse().expect("an address");
        Box::pin(self.0.send_request(request))
    }
}

async fn next(reader: &mut Reader, stream: &mut tonic::Streaming<v1::WatchResponse>) -> Event {
    let message = tokio::time::timeout(Duration::from_secs(30), stream.message()).await.expect("in time");
    let message = message.expect("a message").expect("no end");
    reader.apply(message, Tick(0)).expect("by the rules")
}

#[tokio::test]
async fn a_client_gets_the_past_the_present_and_a_proper_end() {
    let usage = usage();
    let pods = measured(&["a"]);
    for tick in [1000, 2000, 3000] {
        publish(&usage, tick, &pods, 0);
    }
    let served = serve(&usage);
    let mut client = served.client().await;
    let request = v1::WatchRequest { backfill_milliseconds: 1000, parts: Vec::new() };
    let mut stream = client.watch(request).await.expect("a stream").into_inner();
    let mut reader = Reader::new();
    assert_eq!(next(&mut reader, &mut stream).await, Event::Started);
    let start = reader.start().expect("a start").clone();
    assert_eq!((start.boot_id.len(), start.interval_milliseconds), (36, 1000));
    assert!(start.cpus > 0 && start.memory_bytes > 1 << 20, "{start:?}");
    assert_eq!(next(&mut reader, &mut stream).await, Event::InventoryChanged);
    for tick in [2000, 3000] {
        let Event::Pass(pass, Origin::Backfill) = next(&mut reader, &mut stream).await else {
            panic!("no pass")
        };
        assert_eq!(
            (pass.tick, pass.value(&Object::Node, Kind::NodeCpuUsage)),
            (Tick(tick), Some(tick as f64))
        );
    }
    publish(&usage, 4000, &pods, 0);
    let Event::Pass(pass, Origin::Live) = next(&mut reader, &mut stream).await else { panic!("no pass") };
    assert_eq!(pass.tick, Tick(4000));
    assert!(matches!(next(&mut reader, &mut stream).await, Event::Collectors(_)));
    // A change of the inventory comes before the pass, and collectors only if they changed.
    publish(&usage, 5000, &measured(&["a", "b"]), 0);
    assert_eq!(next(&mut reader, &mut stream).await, Event::InventoryChanged);
    assert_eq!(reader.pods().map(|pod| pod.uid.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(matches!(next(&mut reader, &mut stream).await, Event::Pass(..)));
    assert_eq!(usage.watchers(), 1);
    // Whoever ends the server, or hands over, ends the stream with a status that says so.
    served.task.cancel();
    let status = stream.message().await.expect_err("the end");
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "the server is ending"));
    drop((stream, client));
    assert_eq!(served.supervisor.shut_down(Duration::from_secs(5)).await, Vec::<String>::new());
    assert_eq!(usage.watchers(), 0);
}

#[tokio::test]
async fn a_slow_client_loses_passes_and_nobody_waits_for_it() {
    let usage = usage();
    let pods = measured(&[]);
    publish(&usage, 1, &pods, 0);
    let served = serve(&usage);
    let (mut slow, mut quick) = (served.client().await, served.client().await);
    let mut slow_stream = slow.watch(v1::WatchRequest::default()).await.expect("a stream").into_inner();
    let mut quick_stream = quick.watch(v1::WatchRequest::default()).await.expect("a stream").into_inner();
    let (mut slow_reader, mut quick_reader) = (Reader::new(), Reader::new());
    // 60 passes of about 50 KiB each are far more than a client that does not read is sent.
    let passes = 60;
    for tick in 2..=passes + 1 {
        publish(&usage, tick, &pods, 4_000);
        loop {
            if let Event::Pass(pass, _) = next(&mut quick_reader, &mut quick_stream).await {
                assert_eq!(pass.tick, Tick(tick));
                break;
            }
        }
    }
    // Now the slow one reads: what was under way, then how many it lost, then the newest.
    let (mut got, mut lost) = (0, 0);
    loop {
        match next(&mut slow_reader, &mut slow_stream).await {
            Event::Pass(pass, _) => {
                got += 1;
                if pass.tick == Tick(passes + 1) {
                    break;
                }
            }
            Event::Dropped(passes) => lost += passes,
            _ => {}
        }
    }
    assert_eq!(got + lost, passes);
    assert!(lost > passes / 2, "{lost}");
    assert_eq!(usage.dropped(), lost);
}

#[tokio::test]
async fn the_number_of_clients_is_bounded() {
    let usage = usage();
    publish(&usage, 1, &measured(&[]), 0);
    let served = serve(&usage);
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = served.client().await;
        clients.push((client.watch(v1::WatchRequest::default()).await.expect("a stream"), client));
    }
    let status = served.client().await.watch(v1::WatchRequest::default()).await.expect_err("refused");
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "16 clients watch already"));
    clients.pop();
    // The place is free once the server has seen the client go.
    let mut client = served.client().await;
    loop {
        match client.watch(v1::WatchRequest::default()).await {
            Ok(_) => break,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_sampled_and_shown() {
    let bed = Bed::new();
    bed.store.put_pod("sandbox".to_owned(), pod("u1", 0));
    bed.store.put_container("c1".to_owned(), container("sandbox", "app"));
    bed.group("kubepods", 0);
    bed.group(POD, 1_000_000_000);
    bed.group(&format!("{POD}/c1"), 1_000_000_000);
    let usage = Arc::new(Usage::new(&config(), &bed.folder.path().join("proc")));
    let served = serve(&usage);
    let sampling = Sampling {
        usage: Arc::clone(&usage),
        qos: Arc::clone(&bed.qos),
        store: Arc::clone(&bed.store),
        config: config(),
    };
    let task = sampling.start(&served.supervisor);
    let mut client = served.client().await;
    let mut stream = client.watch(v1::WatchRequest::default()).await.expect("a stream").into_inner();
    let mut reader = Reader::new();
    let pod_object = Object::Pod("u1".into());
    let container_object = Object::Container { pod_uid: "u1".into(), id: "c1".into() };
    let mut used = 1_000_000_000;
    // Until the CPU of both was seen to grow; each pass the groups have used more. A container has its first rate a
    // pass after its pod.
    let pass = loop {
        if let Event::Pass(pass, _) = next(&mut reader, &mut stream).await {
            let grown =
                |object: &Object, kind: Kind| pass.value(object, kind).is_some_and(|cores| cores > 0.0);
            if grown(&pod_object, Kind::PodCpuUsage) && grown(&container_object, Kind::ContainerCpuUsage) {
                break pass;
            }
            assert!(used < 20_000_000_000, "no CPU after {pass:?}");
            used += 500_000_000;
            bed.group(POD, used);
            bed.group(&format!("{POD}/c1"), used);
        }
    };
    assert_eq!(
        reader.start().map(|start| start.boot_id.as_str()),
        Some("11111111-2222-3333-4444-555555555555")
    );
    assert_eq!(reader.start().map(|start| (start.cpus, start.memory_bytes)), Some((2, 8192 << 10)));
    assert_eq!(reader.pods().map(|pod| pod.uid.as_str()).collect::<Vec<_>>(), ["u1"]);
    assert!(pass.value(&pod_object, Kind::PodCpuTime).is_some_and(|seconds| seconds >= 1.5));
    let mut registry = Registry::default();
    UsageCollector::register(&mut registry, Arc::clone(&usage));
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).expect("a String takes any text");
    for line in [
        "pod_memory_usage_bytes{namespace=\"default\",pod=\"pod-u1\",qos=\"LS\"} 4096.0",
        "pod_memory_usage_with_page_cache_bytes{namespace=\"default\",pod=\"pod-u1\",qos=\"LS\"} 12288.0",
        "usage_collector_ready{collector=\"pods\"} 1.0",
    ] {
        assert!(page.lines().any(|have| have == line), "{line} is not in\n{page}");
    }
    for beginning in [
        "pod_cpu_usage_cores{namespace=\"default\",pod=\"pod-u1\",qos=\"LS\"} ",
        "pod_cpu_seconds_total{namespace=\"default\",pod=\"pod-u1\",qos=\"LS\"} ",
        "container_cpu_usage_cores{namespace=\"default\",pod=\"pod-u1\",container=\"app\",qos=\"LS\"} ",
    ] {
        assert!(page.lines().any(|have| have.starts_with(beginning)), "{beginning} is not in\n{page}");
    }
    // Its thread ends with it, a moment later.
    task.cancel();
    task.finished().await;
    let ended = async {
        while served.supervisor.status().iter().any(|task| task.name.contains("usage")) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the thread ends");
}

/// The proxy has 13 MiB for a thousand containers beyond what it needs for itself; windows may take less than half.
#[test]
fn windows_of_a_thousand_containers_are_small() {
    let usage = usage();
    let pods: Vec<Arc<str>> =
        (0..500).map(|number| format!("{number:08}-0000-4000-8000-000000000001").into()).collect();
    let containers: Vec<Object> = (0..1000)
        .map(|number| Object::Container {
            pod_uid: Arc::clone(&pods[number / 2]),
            id: format!("{number:064}").into(),
        })
        .collect();
    for second in 0..300 {
        let mut pass = Pass::new(Tick(1000 * (second + 1)));
        for uid in &pods {
            pass.push(Object::Pod(Arc::clone(uid)), Kind::PodCpuUsage, 1.0);
            pass.push(Object::Pod(Arc::clone(uid)), Kind::PodCpuThrottled, 0.0);
            if second % 5 == 0 {
                pass.push(Object::Pod(Arc::clone(uid)), Kind::PodMemoryUsage, 1.0);
                pass.push(Object::Pod(Arc::clone(uid)), Kind::PodMemoryUsageWithPageCache, 1.0);
            }
        }
        for object in &containers {
            pass.push(object.clone(), Kind::ContainerCpuUsage, 1.0);
            pass.push(object.clone(), Kind::ContainerCpuThrottled, 0.0);
            if second % 10 == 0 {
                pass.push(object.clone(), Kind::ContainerMemoryUsage, 1.0);
                pass.push(object.clone(), Kind::ContainerMemoryUsageWithPageCache, 1.0);
            }
        }
        usage.windows().record(&pass);
    }
    let bytes = usage.windows().stats().bytes;
    assert!(bytes < 6 << 20, "{bytes} bytes");
    assert!(bytes > 3 << 20, "{bytes} bytes: are all samples there?");
}
