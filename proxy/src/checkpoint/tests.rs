use proptest::prelude::*;

use super::*;
use crate::metrics::Metrics;

fn text_map() -> impl Strategy<Value = TextMap> {
    proptest::collection::btree_map(".{0,8}", ".{0,8}", 0..4)
}

fn resources() -> impl Strategy<Value = Option<LinuxContainerResources>> {
    proptest::option::of((any::<i64>(), any::<i64>(), ".{0,5}", text_map()).prop_map(
        |(cpu_quota, oom_score_adj, cpuset_cpus, unified)| LinuxContainerResources {
            cpu_quota,
            oom_score_adj,
            cpuset_cpus,
            unified,
            ..Default::default()
        },
    ))
}

fn stopped() -> impl Strategy<Value = Option<SystemTime>> {
    proptest::option::of((0u64..1 << 50).prop_map(|at| UNIX_EPOCH + Duration::from_millis(at)))
}

fn pods() -> impl Strategy<Value = (String, Arc<PodRecord>)> {
    (
        ".{1,8}",
        ".{0,8}",
        any::<u32>(),
        text_map(),
        text_map(),
        ".{0,8}",
        proptest::option::of(".{0,8}"),
        resources(),
        resources(),
        stopped(),
    )
        .prop_map(
            |(
                id,
                name,
                attempt,
                labels,
                annotations,
                cgroup_parent,
                kubelet,
                overhead,
                resources,
                stopped_at,
            )| {
                let record = PodRecord {
                    metadata: PodSandboxMetadata {
                        uid: name.clone(),
                        name,
                        namespace: "n".to_owned(),
                        attempt,
                    },
                    runtime_handler: "runc".to_owned(),
                    labels,
                    annotations,
                    cgroup_parent,
                    kubelet_cgroup_parent: kubelet,
                    overhead,
                    resources,
                    stopped: stopped_at,
                };
                (id, Arc::new(record))
            },
        )
}

fn containers() -> impl Strategy<Value = (String, Arc<ContainerRecord>)> {
    (".{1,8}", ".{0,8}", ".{0,8}", any::<u32>(), text_map(), resources(), ".{0,8}", stopped()).prop_map(
        |(id, pod_sandbox_id, name, attempt, annotations, resources, cgroup_parent, stopped_at)| {
            let record = ContainerRecord {
                pod_id: pod_sandbox_id,
                metadata: ContainerMetadata { name, attempt, id: id.clone() },
                annotations: annotations.into(),
                resources,
                cgroup_parent,
                envs: SharedMap::default(),
                stopped: stopped_at,
            };
            (id, Arc::new(record))
        },
    )
}

fn level_maps() -> impl Strategy<Value = BTreeMap<String, Arc<Level>>> {
    let value = || proptest::option::of(".{0,6}".prop_map(Text::from));
    let entry = (".{1,8}", value(), value(), value(), ".{0,8}", ".{0,8}", any::<bool>()).prop_map(
        |(field, asked, sent, wished, owner, reason, by_file)| Entry {
            field: field.into(),
            asked,
            sent,
            wished,
            owner: owner.into(),
            reason: reason.into(),
            by_file,
        },
    );
    let problem = (".{0,8}", ".{0,8}")
        .prop_map(|(rule, message)| Problem { rule: rule.into(), message: message.into() });
    let level =
        (resources(), proptest::collection::vec(entry, 0..3), proptest::collection::vec(problem, 0..2))
            .prop_map(|(asked, entries, problems)| Arc::new(Level { asked, entries, problems }));
    proptest::collection::btree_map(".{1,8}", level, 0..3)
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let levels = (level_maps(), level_maps()).prop_map(|(pods, containers)| Levels { pods, containers });
    (proptest::collection::vec(pods(), 0..4), proptest::collection::vec(containers(), 0..4), levels)
        .prop_map(|(pods, containers, levels)| Snapshot { pods, containers, levels })
}

proptest! {
    #[test]
    fn what_is_written_is_read(snapshot in snapshots()) {
        prop_assert_eq!(decode(&encode(&snapshot)).expect("decoded"), snapshot);
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed(
        snapshot in snapshots(), at in any::<proptest::sample::Index>(), flip in 1u8..,
    ) {
        let good = encode(&snapshot);
        let mut bad = good.clone();
        let index = at.index(bad.len());
        bad[index] ^= flip;
        prop_assert!(decode(&bad).is_err());
        prop_assert!(decode(&good[..index]).is_err());
    }

    #[test]
    fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = decode_payload(&bytes);
    }
}

#[test]
fn a_file_written_in_many_parts_is_the_encoded_one() {
    let pod =
        PodRecord { annotations: [("note".to_owned(), "n".repeat(1000))].into(), ..PodRecord::default() };
    let pod = Arc::new(pod);
    let snapshot = Snapshot {
        pods: (0..500).map(|number| (format!("pod-{number:03}"), pod.clone())).collect(),
        ..Snapshot::default()
    };
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), &snapshot, &Failpoints::default()).expect("written");
    let bytes = fs::read(directory.path().join(FILE_NAME)).expect("read");
    assert!(bytes.len() > 10 * PART_BYTES);
    assert!(bytes == encode(&snapshot));
    assert_eq!(read(directory.path()).expect("usable"), Some(snapshot));
}

fn store_with_secret() -> Arc<Store> {
    let store = Store::new(Metrics::default());
    store.keep_envs(true);
    store.put_pod("p".to_owned(), PodRecord::default());
    store.put_container(
        "c".to_owned(),
        ContainerRecord {
            pod_id: "p".to_owned(),
            envs: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
            ..Default::default()
        },
    );
    Arc::new(store)
}

fn bed() -> (tempfile::TempDir, Arc<StateDirectory>) {
    let directory = tempfile::tempdir().expect("a directory");
    let state = StateDirectory::open(&directory.path().join("state")).expect("opened");
    (directory, Arc::new(state))
}

#[tokio::test]
async fn the_file_is_private_and_without_env_values() {
    let (_directory, state) = bed();
    assert!(state.try_acquire().expect("locked"));
    // A left-over of a process that died while writing.
    let temporary = state.path().join(TEMPORARY_NAME);
    fs::write(&temporary, "junk").expect("written");
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o666)).expect("mode set");
    let store = store_with_secret();
    Checkpointer::new(store.clone(), state.clone(), Failpoints::default()).write().await;
    let path = state.path().join(FILE_NAME);
    assert_eq!(fs::metadata(&path).expect("written").permissions().mode() & 0o7777, 0o600);
    assert!(!temporary.exists());
    let bytes = fs::read(&path).expect("read");
    for secret in ["hunter2", "TOKEN"] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
    }
    let fresh = Store::new(Metrics::default());
    assert_eq!(load(state.path(), &fresh), (1, 1));
    assert!(fresh.container("c").expect("loaded").envs.is_empty());
    assert_eq!(fresh.container("c").expect("loaded").pod_id, "p");
}

#[tokio::test]
async fn nothing_is_written_without_the_lock() {
    let (_directory, state) = bed();
    Checkpointer::new(store_with_secret(), state.clone(), Failpoints::default()).write().await;
    assert!(!state.path().join(FILE_NAME).exists());
}

#[test]
fn a_missing_or_damaged_file_is_no_obstacle() {
    let (_directory, state) = bed();
    let store = Store::new(Metrics::default());
    assert_eq!(load(state.path(), &store), (0, 0));
    for content in [&b""[..], b"KRPSTOR", b"KRPSTOR\x02\0\0\0\0", b"KRPSTOR\x01\0\0\0\x01", b"\xff\xff"] {
        fs::write(state.path().join(FILE_NAME), content).expect("written");
        assert!(read(state.path()).is_err());
        assert_eq!(load(state.path(), &store), (0, 0));
    }
    assert!(store.is_empty());
    let mut bytes = encode(&Snapshot::default());
    fs::write(state.path().join(FILE_NAME), &bytes).expect("written");
    assert_eq!(read(state.path()).expect("read"), Some(Snapshot::default()));
    bytes.push(0);
    fs::write(state.path().join(FILE_NAME), &bytes).expect("written");
    assert!(matches!(read(state.path()), Err(CheckpointError::Checksum { .. })));
}

#[test]
fn a_pause_is_twenty_times_the_write_within_bounds() {
    let milliseconds = |write: u64| pause_after(Duration::from_micros(write)).as_millis();
    assert_eq!([0, 1_000, 1_001].map(milliseconds), [20, 20, 20]);
    assert_eq!([2_000, 49_950, 50_000, 50_001].map(milliseconds), [40, 999, 1_000, 1_000]);
    assert_eq!(pause_after(Duration::MAX), Duration::from_secs(1));
}

#[tokio::test]
async fn all_changes_of_a_burst_are_written() {
    let (_directory, state) = bed();
    assert!(state.try_acquire().expect("locked"));
    let store = Arc::new(Store::new(Metrics::default()));
    let checkpointer = Checkpointer::new(store.clone(), state.clone(), Failpoints::default());
    let running = tokio::spawn(async move { checkpointer.run().await });
    let pods = || read(state.path()).ok().flatten().map(|snapshot| snapshot.pods.len());
    while pods() != Some(0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for index in 0..50 {
        store.put_pod(format!("p{index}"), PodRecord::default());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while pods() != Some(50) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.abort();
}

#[cfg(feature = "failpoints")]
#[test]
fn a_failed_write_leaves_the_old_file() {
    let (_directory, state) = bed();
    let old = store_with_secret().snapshot();
    write(state.path(), &old, &Failpoints::default()).expect("written");
    for point in ["checkpoint-create", "checkpoint-write", "checkpoint-sync", "checkpoint-rename"] {
        let failpoints = Failpoints::parse(&format!("{point}=error")).expect("failpoints");
        assert!(write(state.path(), &Snapshot::default(), &failpoints).is_err());
        assert_eq!(read(state.path()).expect("read").map(|snapshot| snapshot.pods.len()), Some(1));
    }
}
