use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use koord_intercept::record::ContainerRecord;
use prost::Message;
use tempfile::TempDir;

use super::*;
use crate::endpoint::Endpoint;
use crate::testing::{FakeServer, Reply};
use crate::unix_channel::UnixChannel;

const UID: &str = "6f1f4a5e-0000-1111-2222-333344445555";

fn pod(id: &str, uid: &str) -> v1::PodSandbox {
    v1::PodSandbox {
        id: id.to_owned(),
        metadata: Some(v1::PodSandboxMetadata {
            name: format!("name-{id}"),
            uid: uid.to_owned(),
            namespace: "n".to_owned(),
            attempt: 3,
        }),
        labels: [("a".to_owned(), "1".to_owned())].into(),
        annotations: [("x".to_owned(), "y".to_owned())].into(),
        runtime_handler: "runc".to_owned(),
        ..Default::default()
    }
}

fn container(id: &str, pod: &str, state: v1::ContainerState) -> v1::Container {
    v1::Container {
        id: id.to_owned(),
        pod_sandbox_id: pod.to_owned(),
        state: state.into(),
        ..Default::default()
    }
}

fn pod_status(pod: &v1::PodSandbox, info: &str) -> v1::PodSandboxStatusResponse {
    v1::PodSandboxStatusResponse {
        status: Some(v1::PodSandboxStatus {
            id: pod.id.clone(),
            metadata: pod.metadata.clone(),
            labels: pod.labels.clone(),
            annotations: pod.annotations.clone(),
            runtime_handler: pod.runtime_handler.clone(),
            ..Default::default()
        }),
        info: BTreeMap::from([("info".to_owned(), info.to_owned())]),
        ..Default::default()
    }
}

fn container_status(id: &str, info: &str) -> v1::ContainerStatusResponse {
    v1::ContainerStatusResponse {
        status: Some(v1::ContainerStatus {
            id: id.to_owned(),
            metadata: Some(v1::ContainerMetadata { name: format!("name-{id}"), attempt: 2 }),
            annotations: [("ca".to_owned(), "cb".to_owned())].into(),
            resources: Some(v1::ContainerResources {
                linux: Some(v1::LinuxContainerResources {
                    cpu_period: 100_000,
                    cpu_quota: 200_000,
                    cpu_shares: 2048,
                    memory_limit_in_bytes: 1 << 30,
                    ..Default::default()
                }),
                windows: None,
            }),
            ..Default::default()
        }),
        info: BTreeMap::from([("info".to_owned(), info.to_owned())]),
    }
}

/// A runtime with these objects.
#[derive(Default)]
struct World {
    pods: Mutex<Vec<(v1::PodSandbox, String)>>,
    containers: Mutex<Vec<(v1::Container, String)>>,
    list_too_large: AtomicBool,
    has_streams: bool,
    exited_too_large: bool,
    status_fails: AtomicBool,
}

impl World {
    /// Two pods and three containers, the sandbox of one of them absent, and an exited one.
    fn of_v30() -> Arc<Self> {
        use v1::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};
        let world = Self::default();
        *world.pods.lock().expect("lock") = vec![
            (pod("p1", UID), r#"{"config":{"linux":{"cgroup_parent":"/kp/p1"}}}"#.to_owned()),
            (pod("p2", "u2"), r#"{"config":{"linux":{"cgroup_parent":"/kp/p2"}}}"#.to_owned()),
        ];
        let info = |pod: &str| {
            format!(
                r#"{{"sandboxID":"{pod}","config":{{"envs":[{{"key":"A","value":"1"}}],"linux":{{"resources":{{"cpu_shares":2,"hugepage_limits":[{{"page_size":"2MB","limit":7}}]}}}}}}}}"#
            )
        };
        *world.containers.lock().expect("lock") = vec![
            (container("c1", "p1", ContainerRunning), info("p1")),
            (container("c2", "p2", ContainerCreated), info("p2")),
            (container("c3", "absent", ContainerRunning), info("absent")),
            (container("c4", "p1", ContainerExited), info("p1")),
        ];
        Arc::new(world)
    }

    fn answer(&self, method: &str, message: Bytes) -> Reply {
        let too_large = self.list_too_large.load(Ordering::SeqCst);
        let pods = || self.pods.lock().expect("lock").iter().map(|(pod, _)| pod.clone()).collect::<Vec<_>>();
        let containers =
            || self.containers.lock().expect("lock").iter().map(|(c, _)| c.clone()).collect::<Vec<_>>();
        match method {
            "Version" => Reply::message(&v1::VersionResponse::default()),
            "ListPodSandbox" => {
                let request = v1::ListPodSandboxRequest::decode(message).expect("a request");
                match request.filter.and_then(|filter| filter.state) {
                    None if too_large => Reply::Status(8, "grpc: trying to send message larger than max"),
                    state => Reply::message(&v1::ListPodSandboxResponse {
                        items: pods()
                            .into_iter()
                            .filter(|pod| state.is_none_or(|state| state.state == pod.state))
                            .collect(),
                    }),
                }
            }
            "ListContainers" => {
                let filter = v1::ListContainersRequest::decode(message).expect("a request").filter;
                let filter = filter.unwrap_or_default();
                let exited = i32::from(v1::ContainerState::ContainerExited);
                let state = filter.state.map(|state| state.state);
                if (too_large && state.is_none() && filter.id.is_empty())
                    || (self.exited_too_large && state == Some(exited))
                {
                    return Reply::Status(8, "grpc: trying to send message larger than max");
                }
                Reply::message(&v1::ListContainersResponse {
                    containers: containers()
                        .into_iter()
                        .filter(|c| state.is_none_or(|state| state == c.state))
                        .filter(|c| filter.id.is_empty() || filter.id == c.id)
                        .collect(),
                })
            }
            "StreamPodSandboxes" if self.has_streams => Reply::Messages(
                pods()
                    .into_iter()
                    .map(|pod| v1::StreamPodSandboxesResponse { pod_sandboxes: vec![pod] }.encode_to_vec())
                    .collect(),
            ),
            "StreamContainers" if self.has_streams => Reply::Messages(
                containers()
                    .into_iter()
                    .map(|c| v1::StreamContainersResponse { containers: vec![c] }.encode_to_vec())
                    .collect(),
            ),
            _ if self.status_fails.load(Ordering::SeqCst) => Reply::Status(2, "broken"),
            "PodSandboxStatus" => {
                let request = v1::PodSandboxStatusRequest::decode(message).expect("a request");
                assert!(request.verbose);
                match self.pods.lock().expect("lock").iter().find(|(p, _)| p.id == request.pod_sandbox_id) {
                    Some((pod, info)) => Reply::message(&pod_status(pod, info)),
                    None => Reply::Status(5, "not found"),
                }
            }
            "ContainerStatus" => {
                let request = v1::ContainerStatusRequest::decode(message).expect("a request");
                assert!(request.verbose);
                let containers = self.containers.lock().expect("lock");
                match containers.iter().find(|(c, _)| c.id == request.container_id) {
                    Some((container, info)) => Reply::message(&container_status(&container.id, info)),
                    None => Reply::Status(5, "not found"),
                }
            }
            _ => Reply::unimplemented(),
        }
    }
}

struct Bed {
    directory: TempDir,
    endpoint: Endpoint,
    store: Arc<Store>,
    failover: Arc<Failover>,
    registry: prometheus_client::registry::Registry,
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let endpoint: Endpoint =
            directory.path().join("b.sock").to_str().expect("text").parse().expect("an endpoint");
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = Metrics::register(&mut registry);
        let store = Arc::new(Store::new(metrics.clone()));
        store.keep_envs(true);
        let client = BackendClient::new(UnixChannel::new(endpoint.clone()));
        let roots = vec![directory.path().join("cgroup")];
        let failover = Arc::new(Failover::new(client, store.clone(), metrics, roots));
        Self { directory, endpoint, store, failover, registry }
    }

    fn serve(&self, world: &Arc<World>) -> FakeServer {
        let world = world.clone();
        FakeServer::serve(self.endpoint.path(), move |method, message| world.answer(method, message))
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("encoded");
        text
    }
}

#[tokio::test]
async fn two_pods_and_three_containers_one_without_sandbox() {
    let bed = Bed::new();
    let server = bed.serve(&World::of_v30());
    let report = bed.failover.rebuild().await.expect("rebuilt");
    assert_eq!(report, Report { known: 0, status: 4, cgroup: 0, missing: 1 });
    assert_eq!(bed.store.len(), (2, 2));

    let known = bed.store.container_and_pod("c1").expect("known");
    assert_eq!(known.pod.metadata.uid, UID);
    assert_eq!(known.pod.metadata.attempt, 3);
    assert_eq!(known.pod.cgroup_parent, "/kp/p1");
    assert_eq!(known.pod.runtime_handler, "runc");
    assert_eq!(known.pod.labels["a"], "1");
    assert_eq!(known.pod.annotations["x"], "y");
    assert_eq!(known.container.metadata.name, "name-c1");
    assert_eq!(known.container.metadata.attempt, 2);
    assert_eq!(known.container.metadata.id, "c1");
    assert_eq!(known.container.annotations["ca"], "cb");
    assert_eq!(known.container.envs["A"], "1");
    let resources = known.container.resources.clone().expect("resources");
    // The status, not the configuration; only the huge pages are from there.
    assert_eq!(
        (resources.cpu_period, resources.cpu_quota, resources.cpu_shares, resources.memory_limit_in_bytes),
        (100_000, 200_000, 2048, 1 << 30)
    );
    assert_eq!(resources.hugepage_limits[0].limit, 7);
    // The exited one cost no question.
    assert_eq!(server.methods().iter().filter(|method| *method == "ContainerStatus").count(), 2);
    let metrics = bed.metrics();
    assert!(metrics.contains("failover_objects_total{source=\"status\"} 4"), "{metrics}");
    assert!(metrics.contains("failover_objects_total{source=\"missing\"} 1"), "{metrics}");
    assert!(metrics.contains("store_records{kind=\"container\"} 2"), "{metrics}");
}

#[tokio::test]
async fn a_known_object_is_not_asked_for_and_an_unlisted_one_is_forgotten() {
    let bed = Bed::new();
    let server = bed.serve(&World::of_v30());
    let record = PodRecord { cgroup_parent: "/moved".to_owned(), ..PodRecord::default() };
    bed.store.put_pod("p1".to_owned(), record);
    bed.store.put_pod("gone".to_owned(), PodRecord::default());
    for (id, pod) in [("c1", "p1"), ("gone", "p1"), ("of-gone", "gone")] {
        let record = ContainerRecord { pod_id: pod.to_owned(), ..ContainerRecord::default() };
        bed.store.put_container(id.to_owned(), record);
    }
    let report = bed.failover.rebuild().await.expect("rebuilt");
    assert_eq!(report, Report { known: 2, status: 2, cgroup: 0, missing: 1 });
    assert_eq!(bed.store.pod("p1").expect("known").cgroup_parent, "/moved");
    assert_eq!(bed.store.len(), (2, 2));
    assert!(bed.store.container("gone").is_none() && bed.store.container("of-gone").is_none());
    let asked: Vec<String> = server
        .seen()
        .iter()
        .filter(|seen| seen.method == "PodSandboxStatus")
        .map(|seen| seen.decode::<v1::PodSandboxStatusRequest>().pod_sandbox_id)
        .collect();
    assert_eq!(asked, ["p2"]);
}

#[tokio::test]
async fn the_kubelet_s_cgroup_stands_in_and_tells_a_moved_pod() {
    let bed = Bed::new();
    let world = World::of_v30();
    world.pods.lock().expect("lock")[1].1 = "{}".to_owned();
    let _server = bed.serve(&world);
    let kubelets = format!("/kubepods/besteffort/pod{UID}");
    for path in [kubelets.as_str(), "/kubepods/burstable/podu2"] {
        std::fs::create_dir_all(bed.directory.path().join("cgroup").join(&path[1..])).expect("created");
    }
    let report = bed.failover.rebuild().await.expect("rebuilt");
    assert_eq!((report.status, report.cgroup), (3, 1));
    let moved = bed.store.pod("p1").expect("known");
    assert_eq!(moved.cgroup_parent, "/kp/p1");
    assert_eq!(moved.kubelet_cgroup_parent.as_deref(), Some(kubelets.as_str()));
    assert!(moved.was_moved());
    let found = bed.store.pod("p2").expect("known");
    assert_eq!(found.cgroup_parent, "/kubepods/burstable/podu2");
    assert!(!found.was_moved());
}

#[tokio::test]
async fn a_failed_status_leaves_what_the_list_says() {
    let bed = Bed::new();
    let world = World::of_v30();
    world.status_fails.store(true, Ordering::SeqCst);
    let _server = bed.serve(&world);
    let report = bed.failover.rebuild().await.expect("rebuilt");
    assert_eq!(report, Report { known: 0, status: 0, cgroup: 0, missing: 5 });
    let pod = bed.store.pod("p1").expect("from the list");
    assert_eq!((pod.metadata.uid.as_str(), pod.cgroup_parent.as_str()), (UID, ""));
    assert_eq!(bed.store.len(), (2, 0));
    // The container is found when it is needed.
    world.status_fails.store(false, Ordering::SeqCst);
    assert!(bed.failover.find_container("c1", false).await.is_some());
}

#[tokio::test]
async fn too_large_lists_are_streamed() {
    let bed = Bed::new();
    let world = Arc::new(World { has_streams: true, ..Arc::into_inner(World::of_v30()).expect("one") });
    world.list_too_large.store(true, Ordering::SeqCst);
    let server = bed.serve(&world);
    bed.failover.rebuild().await.expect("rebuilt");
    assert_eq!(bed.store.len(), (2, 2));
    assert!(server.methods().contains(&"StreamContainers".to_owned()));
}

#[tokio::test]
async fn without_streams_lists_are_asked_for_by_state() {
    let bed = Bed::new();
    let world = Arc::new(World { exited_too_large: true, ..Arc::into_inner(World::of_v30()).expect("one") });
    world.list_too_large.store(true, Ordering::SeqCst);
    let _server = bed.serve(&world);
    bed.store.put_pod("p1".to_owned(), PodRecord::default());
    let record = ContainerRecord { pod_id: "p1".to_owned(), ..ContainerRecord::default() };
    bed.store.put_container("exited-perhaps".to_owned(), record);
    bed.failover.rebuild().await.expect("rebuilt");
    // One part was too large even so: nothing is forgotten on the strength of the rest.
    assert!(bed.store.container("exited-perhaps").is_some());
    assert_eq!(bed.store.len(), (2, 3));
}

#[tokio::test]
async fn an_old_runtime_is_asked_in_its_own_package() {
    let bed = Bed::new();
    let world = World::of_v30();
    let old = world.clone();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = refused.clone();
    let _server = FakeServer::serve_paths(bed.endpoint.path(), move |path, message| {
        match path.strip_prefix("/runtime.v1alpha2.RuntimeService/") {
            Some(method) => old.answer(method, message),
            None => {
                count.fetch_add(1, Ordering::SeqCst);
                Reply::Status(12, "unknown service runtime.v1.RuntimeService")
            }
        }
    });
    bed.failover.rebuild().await.expect("rebuilt");
    assert_eq!(bed.store.len(), (2, 2));
    assert_eq!(bed.failover.client().cri_version(), Some(crate::backend_client::CriVersion::V1Alpha2));
    assert!(refused.load(Ordering::SeqCst) >= 1);
}

#[tokio::test]
async fn many_waiters_one_question() {
    let bed = Bed::new();
    let server = bed.serve(&World::of_v30());
    let finds = (0..20).map(|_| bed.failover.find_container("c4", false));
    for found in futures_util::future::join_all(finds).await {
        assert_eq!(found.expect("known").pod.cgroup_parent, "/kp/p1");
    }
    let count = |method: &str| server.methods().iter().filter(|seen| *seen == method).count();
    assert_eq!((count("ContainerStatus"), count("PodSandboxStatus")), (1, 1));
    // Known by now.
    assert!(bed.failover.find_pod("p1").await.is_some());
    assert_eq!(count("PodSandboxStatus"), 1);
    // Unknown everywhere.
    assert!(bed.failover.find_pod("nope").await.is_none());
    assert!(bed.failover.find_container("nope", true).await.is_none());
    // Its sandbox is unknown.
    assert!(bed.failover.find_container("c3", false).await.is_none());
}

#[tokio::test]
async fn a_lost_environment_is_asked_for_when_needed() {
    let bed = Bed::new();
    let server = bed.serve(&World::of_v30());
    bed.store.put_pod("p1".to_owned(), PodRecord::default());
    let record = ContainerRecord { pod_id: "p1".to_owned(), ..ContainerRecord::default() };
    bed.store.put_container_if_absent("c1", record, false);
    assert!(bed.failover.find_container("c1", false).await.expect("known").container.envs.is_empty());
    assert!(server.seen().is_empty());
    let known = bed.failover.find_container("c1", true).await.expect("known");
    assert_eq!(known.container.envs["A"], "1");
    assert!(known.envs_known);
}

#[tokio::test]
async fn a_sandbox_id_missing_in_the_status_is_taken_from_the_list() {
    let bed = Bed::new();
    let world = World::of_v30();
    world.containers.lock().expect("lock")[0].1 = "{}".to_owned();
    let _server = bed.serve(&world);
    assert_eq!(bed.failover.find_container("c1", false).await.expect("known").container.pod_id, "p1");
}

#[tokio::test(start_paused = true)]
async fn a_look_up_takes_at_most_a_second() {
    let bed = Bed::new();
    let _server = FakeServer::serve(bed.endpoint.path(), |_, _| Reply::Hang);
    let started = Instant::now();
    assert!(bed.failover.find_pod("p1").await.is_none());
    assert_eq!(started.elapsed().as_secs(), 1);
}

#[tokio::test]
async fn a_runtime_that_comes_late_or_again_is_noticed() {
    let bed = Bed::new();
    let world = World::of_v30();
    let failover = bed.failover.clone();
    let mut progress = failover.progress();
    let running = tokio::spawn(async move { failover.run().await });
    assert_eq!(*progress.borrow(), Progress::default());
    let server = bed.serve(&world);
    progress.wait_for(|p| p.connected && p.rebuilt).await.expect("running");
    assert_eq!(bed.store.len(), (2, 2));
    assert!(bed.metrics().contains("backend_connected{service=\"runtime\"} 1"));

    drop(server);
    progress.wait_for(|p| !p.connected && p.rebuilt).await.expect("running");
    world.pods.lock().expect("lock").truncate(1);
    let _server = bed.serve(&world);
    progress.wait_for(|p| p.connected).await.expect("running");
    let mut changes = bed.store.changes();
    while bed.store.len() != (1, 1) {
        changes.changed().await.expect("the store lives");
    }
    running.abort();
}
