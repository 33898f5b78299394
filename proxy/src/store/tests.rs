use super::*;

fn store() -> Store {
    let store = Store::new(Metrics::default());
    store.keep_envs(true);
    store
}

fn pod(name: &str) -> PodRecord {
    PodRecord {
        metadata: koord_hook::v1alpha1::PodSandboxMetadata { name: name.to_owned(), ..Default::default() },
        ..Default::default()
    }
}

fn container(pod: &str) -> ContainerRecord {
    ContainerRecord {
        pod_id: pod.to_owned(),
        envs: [("A".to_owned(), "1".to_owned())].into(),
        ..Default::default()
    }
}

fn filled() -> Store {
    let store = store();
    store.put_pod("p1".to_owned(), pod("one"));
    store.put_pod("p2".to_owned(), pod("two"));
    for (id, pod) in [("c1", "p1"), ("c2", "p1"), ("c3", "p2")] {
        store.put_container(id.to_owned(), container(pod));
    }
    store
}

fn ids(store: &Store) -> (Vec<String>, Vec<String>) {
    let snapshot = store.snapshot();
    (
        snapshot.pods.into_iter().map(|(id, _)| id).collect(),
        snapshot.containers.into_iter().map(|(id, _)| id).collect(),
    )
}

#[test]
fn a_removed_pod_takes_its_containers_along() {
    let store = filled();
    store.remove_pod("p1");
    assert_eq!(ids(&store), (vec!["p2".to_owned()], vec!["c3".to_owned()]));
    store.remove_container("c3");
    store.remove_container("unknown");
    store.remove_pod("unknown");
    assert_eq!(store.len(), (1, 0));
}

#[test]
fn whoever_holds_a_record_keeps_it() {
    let store = filled();
    let before = store.container_and_pod("c1").expect("known").container;
    let mut changed = (*before).clone();
    changed.metadata.name = "new".to_owned();
    store.update_container("c1", changed);
    assert_eq!(before.metadata.name, "");
    assert_eq!(store.container("c1").expect("known").metadata.name, "new");
}

#[test]
fn an_update_neither_revives_nor_restarts() {
    let store = filled();
    let record = (*store.container("c1").expect("known")).clone();
    let now = SystemTime::now();
    store.mark_container_stopped("c1", now);
    store.update_container("c1", record.clone());
    assert_eq!(store.container("c1").expect("known").stopped, Some(now));
    store.remove_container("c1");
    store.update_container("c1", record);
    assert_eq!(store.container("c1"), None);
}

#[test]
fn the_first_stop_counts() {
    let store = filled();
    let now = SystemTime::now();
    let later = now + Duration::from_secs(5);
    store.mark_pod_stopped("p1", now);
    store.mark_pod_stopped("p1", later);
    assert_eq!(store.pod("p1").expect("known").stopped, Some(now));
    store.mark_container_stopped("c1", now);
    store.mark_container_stopped("c1", later);
    assert_eq!(store.container("c1").expect("known").stopped, Some(now));
    store.mark_pod_stopped("unknown", now);
    store.mark_container_stopped("unknown", now);
    assert_eq!(store.len(), (2, 3));
}

#[test]
fn stopped_records_go_after_ten_minutes() {
    let store = filled();
    let now = SystemTime::now();
    store.mark_pod_stopped("p1", now);
    store.mark_container_stopped("c3", now);
    store.forget_stopped(now + Duration::from_secs(599));
    assert_eq!(store.len(), (2, 3));
    // A clock that went back is no reason to forget.
    store.forget_stopped(now - Duration::from_secs(3600));
    assert_eq!(store.len(), (2, 3));
    store.forget_stopped(now + Duration::from_secs(600));
    assert_eq!(ids(&store), (vec!["p2".to_owned()], vec![]));
}

#[test]
fn what_came_after_the_list_was_asked_for_stays() {
    let store = filled();
    let moment = store.moment();
    store.put_pod("p3".to_owned(), pod("three"));
    store.put_container("c4".to_owned(), container("p3"));
    store.put_container("c5".to_owned(), container("p2"));
    store.retain_pods(moment, |id| id == "p2");
    assert_eq!(
        ids(&store),
        (vec!["p2".to_owned(), "p3".to_owned()], vec!["c3".to_owned(), "c4".to_owned(), "c5".to_owned()])
    );
    store.retain_containers(moment, |_| false);
    assert_eq!(ids(&store).1, ["c4", "c5"]);
}

#[test]
fn what_is_there_is_newer_than_what_is_found() {
    let store = filled();
    assert_eq!(store.put_pod_if_absent("p1", pod("found")).metadata.name, "one");
    assert_eq!(store.put_pod_if_absent("p9", pod("found")).metadata.name, "found");
    let mut found = container("p1");
    found.metadata.name = "found".to_owned();
    assert_eq!(store.put_container_if_absent("c1", found.clone(), true).metadata.name, "");
    assert_eq!(store.put_container_if_absent("c9", found, true).metadata.name, "found");
}

#[test]
fn a_checkpoint_knows_better_than_the_runtime_except_for_envs() {
    let store = filled();
    let mut checkpoint = store.snapshot();
    checkpoint.pods.truncate(1);
    Arc::make_mut(&mut checkpoint.pods[0].1).cgroup_parent = "/moved".to_owned();
    for (_, container) in &mut checkpoint.containers {
        let container = Arc::make_mut(container);
        container.envs.clear();
        container.cgroup_parent = "/own".to_owned();
    }
    checkpoint.containers.push(("c9".to_owned(), Arc::default()));
    store.restore(checkpoint);
    assert_eq!(store.pod("p1").expect("known").cgroup_parent, "/moved");
    assert_eq!(store.pod("p2").expect("known").metadata.name, "two");
    let known = store.container_and_pod("c1").expect("known");
    assert_eq!((known.envs_known, known.container.envs.len()), (true, 1));
    assert_eq!(known.container.cgroup_parent, "/own");
    assert_eq!(store.len(), (2, 4));
}

#[test]
fn envs_are_kept_only_for_those_who_ask() {
    let envs = |store: &Store, id: &str| {
        let known = store.container_and_pod(id).expect("known");
        (known.envs_known, known.container.envs.len())
    };
    let store = filled();
    assert_eq!(envs(&store, "c1"), (true, 1));
    store.keep_envs(false);
    assert_eq!(envs(&store, "c1"), (false, 0));
    store.put_container("c4".to_owned(), container("p1"));
    assert_eq!(envs(&store, "c4"), (false, 0));
    store.keep_envs(true);
    // Only a look-up can bring the lost ones back.
    assert_eq!(envs(&store, "c1"), (false, 0));
    store.put_container_if_absent("c1", container("p1"), false);
    assert_eq!(envs(&store, "c1"), (false, 0));
    store.put_container_if_absent("c1", container("p1"), true);
    assert_eq!(envs(&store, "c1"), (true, 1));
}

#[test]
fn a_resize_replaces_what_it_names() {
    let store = filled();
    let shares = |cpu_shares| Some(LinuxContainerResources { cpu_shares, ..Default::default() });
    store.update_pod_resources("p1", shares(1), shares(2));
    store.update_pod_resources("p1", None, shares(4096));
    let pod = store.pod("p1").expect("known");
    assert_eq!((pod.overhead.clone(), pod.resources.clone()), (shares(1), shares(4096)));
    store.update_pod_resources("unknown", None, shares(1));
    assert_eq!(store.pod("unknown"), None);
}

#[test]
fn a_change_is_announced_and_a_non_change_is_not() {
    let store = filled();
    let mut changes = store.changes();
    changes.mark_unchanged();
    store.remove_container("unknown");
    store.retain_pods(store.moment(), |_| true);
    store.forget_stopped(SystemTime::now());
    assert!(!changes.has_changed().expect("the store lives"));
    store.remove_container("c1");
    assert!(changes.has_changed().expect("the store lives"));
}

#[tokio::test]
async fn turns_of_one_container_follow_each_other() {
    let store = store();
    let Ordered::Ready(first) = store.order("c1") else { panic!("nobody is there") };
    let Ordered::Waiting(second) = store.order("c1") else { panic!("the first is there") };
    let Ordered::Waiting(third) = store.order("c1") else { panic!("the first is there") };
    assert!(matches!(store.order("c2"), Ordered::Ready(_)), "another container waits for nobody");
    let order = Arc::new(Mutex::new(Vec::new()));
    let (log, log_third) = (order.clone(), order.clone());
    let second = tokio::spawn(async move {
        let guard = second.turn().await;
        log.lock().expect("lock").push(2);
        drop(guard);
    });
    while !matches!(store.orders.len(), 1) {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    drop(first);
    second.await.expect("ran");
    let guard = third.turn().await;
    log_third.lock().expect("lock").push(3);
    assert_eq!(*order.lock().expect("lock"), [2, 3]);
    drop(guard);
    assert_eq!(store.orders.len(), 0);
}

#[tokio::test]
async fn whoever_gives_up_waiting_holds_nobody_up() {
    let store = store();
    let Ordered::Ready(first) = store.order("c1") else { panic!("nobody is there") };
    let Ordered::Waiting(second) = store.order("c1") else { panic!("the first is there") };
    let waiting = tokio::spawn(second.turn());
    tokio::task::yield_now().await;
    waiting.abort();
    assert!(waiting.await.is_err());
    drop(first);
    assert!(matches!(store.order("c1"), Ordered::Ready(_)));
    assert_eq!(store.orders.len(), 0);
}
