use std::collections::BTreeMap;
use std::path::Path;

use koord_cri::v1;
use koord_hook::v1alpha1::{
    ContainerMetadata, ContainerResourceHookRequest, HugepageLimit, PodSandboxHookRequest, PodSandboxMetadata,
};
use serde::Deserialize;

use super::*;
use crate::merge::ResourceMerge;

type TextMap = BTreeMap<String, String>;

/// One call with the answers of hook servers, read from a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    path: String,
    request: String,
    pod: Option<PodVector>,
    container: Option<ContainerVector>,
    steps: Vec<Step>,
    sent: Option<String>,
    container_after: Option<ContainerVector>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(default)]
    stage: usize,
    hook: String,
    hook_request: Option<String>,
    answer: Option<AnswerVector>,
    answer_bytes: Option<String>,
    #[serde(default)]
    options: OptionsVector,
    #[serde(default)]
    ignored: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OptionsVector {
    resource_merge: String,
    update_scope: String,
    apply_pod_resources: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AnswerVector {
    labels: TextMap,
    annotations: TextMap,
    cgroup_parent: String,
    resources: Option<ResourcesVector>,
    envs: TextMap,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PodVector {
    name: String,
    uid: String,
    namespace: String,
    labels: TextMap,
    annotations: TextMap,
    cgroup_parent: String,
    kubelet_cgroup_parent: Option<String>,
    resources: Option<ResourcesVector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ContainerVector {
    name: String,
    attempt: u32,
    id: String,
    annotations: TextMap,
    resources: Option<ResourcesVector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ResourcesVector {
    cpu_period: i64,
    cpu_quota: i64,
    cpu_shares: i64,
    memory_limit_in_bytes: i64,
    oom_score_adj: i64,
    cpuset_cpus: String,
    cpuset_mems: String,
    hugepage_limits: BTreeMap<String, u64>,
    unified: TextMap,
    memory_swap_limit_in_bytes: i64,
}

impl From<ResourcesVector> for LinuxContainerResources {
    fn from(vector: ResourcesVector) -> Self {
        Self {
            cpu_period: vector.cpu_period,
            cpu_quota: vector.cpu_quota,
            cpu_shares: vector.cpu_shares,
            memory_limit_in_bytes: vector.memory_limit_in_bytes,
            oom_score_adj: vector.oom_score_adj,
            cpuset_cpus: vector.cpuset_cpus,
            cpuset_mems: vector.cpuset_mems,
            hugepage_limits: vector
                .hugepage_limits
                .into_iter()
                .map(|(page_size, limit)| HugepageLimit { page_size, limit })
                .collect(),
            unified: vector.unified,
            memory_swap_limit_in_bytes: vector.memory_swap_limit_in_bytes,
        }
    }
}

impl From<PodVector> for PodRecord {
    fn from(vector: PodVector) -> Self {
        Self {
            metadata: PodSandboxMetadata {
                name: vector.name,
                uid: vector.uid,
                namespace: vector.namespace,
                attempt: 0,
            },
            labels: vector.labels,
            annotations: vector.annotations,
            cgroup_parent: vector.cgroup_parent,
            kubelet_cgroup_parent: vector.kubelet_cgroup_parent,
            resources: vector.resources.map(Into::into),
            ..Self::default()
        }
    }
}

impl From<ContainerVector> for ContainerRecord {
    fn from(vector: ContainerVector) -> Self {
        Self {
            metadata: ContainerMetadata { name: vector.name, attempt: vector.attempt, id: vector.id },
            annotations: vector.annotations.into(),
            resources: vector.resources.map(Into::into),
            ..Self::default()
        }
    }
}

impl Step {
    fn options(&self) -> ServerOptions {
        ServerOptions {
            resource_merge: match self.options.resource_merge.as_str() {
                "" | "koordinator" => ResourceMerge::Koordinator,
                "overlay" => ResourceMerge::Overlay,
                other => panic!("resource merge {other:?}"),
            },
            update_scope: match self.options.update_scope.as_str() {
                "" | "full" => UpdateScope::Full,
                "changed" => UpdateScope::Changed,
                other => panic!("update scope {other:?}"),
            },
            apply_pod_resources: self.options.apply_pod_resources,
        }
    }

    fn answer(&mut self, stage: Stage) -> HookAnswer {
        if let Some(answer) = &self.answer_bytes {
            return Working::decode(stage, &bytes(answer)).unwrap();
        }
        let answer = self.answer.take().unwrap();
        let resources = answer.resources.map(Into::into);
        match stage.hook {
            HookType::PreRunPodSandbox => HookAnswer::Pod(PodSandboxHookResponse {
                labels: answer.labels,
                annotations: answer.annotations,
                cgroup_parent: answer.cgroup_parent,
                resources,
            }),
            _ => HookAnswer::Container(ContainerResourceHookResponse {
                container_annotations: answer.annotations,
                container_resources: resources,
                pod_cgroup_parent: answer.cgroup_parent,
                container_envs: answer.envs,
            }),
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    assert_eq!(hex.len() % 2, 0);
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn run_vector(vector: Vector) {
    let name = vector.name;
    let method = CriMethod::from_path(&vector.path).unwrap();
    let request = bytes(&vector.request);
    let known = Known {
        pod: vector.pod.map(|pod| Arc::new(pod.into())),
        container: vector.container.map(|container| Arc::new(container.into())),
    };
    let mut working = Working::from_request(method, &request, known).unwrap();
    for mut step in vector.steps {
        let stage = working.stages()[step.stage];
        assert_eq!(stage.hook.as_str(), step.hook, "{name}");
        if let Some(expected) = &step.hook_request {
            assert_eq!(&hex(&working.hook_request(stage)), expected, "{name}: message to the server");
        }
        let (answer, options) = (step.answer(stage), step.options());
        let ignored = working.merge(stage, answer, options).unwrap();
        assert_eq!(ignored.len(), step.ignored, "{name}: {ignored:?}");
    }
    let sent = working.patch(&request).unwrap();
    assert_eq!(sent.as_deref().map(hex), vector.sent, "{name}: message to the runtime");
    if let Some(expected) = vector.container_after {
        let [Change::PutContainer { record, .. }] = &working.commit(Some(&[])).unwrap()[..] else {
            panic!("{name}: no container to remember")
        };
        assert_eq!(record, &ContainerRecord::from(expected), "{name}: record");
    }
}

fn run_file(file: &str, count: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/intercept").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let vectors: Vec<Vector> = serde_json::from_str(&text).unwrap();
    assert_eq!(vectors.len(), count, "{file}");
    vectors.into_iter().for_each(run_vector);
}

#[test]
fn run_pod_sandbox_vectors() {
    run_file("run_pod_sandbox.json", 10);
}

#[test]
fn create_container_vectors() {
    run_file("create_container.json", 18);
}

#[test]
fn update_container_resources_vectors() {
    run_file("update_container_resources.json", 8);
}

#[test]
fn restore_pod_vectors() {
    run_file("restore_pod.json", 1);
}

fn pod() -> PodRecord {
    PodRecord {
        metadata: PodSandboxMetadata { name: "p".into(), uid: "u".into(), namespace: "n".into(), attempt: 2 },
        cgroup_parent: "/kp".into(),
        kubelet_cgroup_parent: Some("/kp".into()),
        ..PodRecord::default()
    }
}

fn container() -> ContainerRecord {
    ContainerRecord {
        pod_id: "s".into(),
        metadata: ContainerMetadata { name: "c".into(), attempt: 1, id: "c1".into() },
        envs: [("A".to_owned(), "1".to_owned())].into(),
        ..ContainerRecord::default()
    }
}

fn known() -> Known {
    Known { pod: Some(Arc::new(pod())), container: Some(Arc::new(container())) }
}

fn identified(method: CriMethod, id: &str, known: Known) -> Working {
    let request = v1::StartContainerRequest { container_id: id.into() }.encode_to_vec();
    Working::from_request(method, &request, known).unwrap()
}

#[test]
fn an_answer_of_the_wrong_kind_changes_nothing() {
    let request =
        v1::CreateContainerRequest { pod_sandbox_id: "s".into(), ..Default::default() }.encode_to_vec();
    let mut working = Working::from_request(CriMethod::CreateContainer, &request, known()).unwrap();
    let stage = working.stages()[0];
    let answer =
        HookAnswer::Pod(PodSandboxHookResponse { cgroup_parent: "/off".into(), ..Default::default() });
    let error = working.merge(stage, answer, ServerOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "hook PreCreateContainer was answered with a message of the wrong kind");
    assert_eq!(working.patch(&request).unwrap(), None);

    // Field 1 of a pod's answer is a map, where a container's answer has one too; field 2 differs.
    let pod_answer = PodSandboxHookResponse {
        annotations: [("k".to_owned(), "v".to_owned())].into(),
        ..Default::default()
    };
    assert!(matches!(
        Working::decode(stage, &pod_answer.encode_to_vec()),
        Err(AnswerError::Decode { hook: HookType::PreCreateContainer, .. })
    ));

    let request = v1::RunPodSandboxRequest::default().encode_to_vec();
    let mut working = Working::from_request(CriMethod::RunPodSandbox, &request, Known::default()).unwrap();
    let stage = working.stages()[0];
    let answer = HookAnswer::Container(ContainerResourceHookResponse::default());
    assert!(working.merge(stage, answer, ServerOptions::default()).is_err());
    assert_eq!(working.patch(&request).unwrap(), None);
}

#[test]
fn a_new_pod_is_remembered_with_what_hooks_made_of_it() {
    let request = v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "p".into(),
                uid: "u".into(),
                namespace: "n".into(),
                attempt: 2,
            }),
            linux: Some(v1::LinuxPodSandboxConfig { cgroup_parent: "/kp".into(), ..Default::default() }),
            ..Default::default()
        }),
        runtime_handler: String::new(),
    }
    .encode_to_vec();
    let mut working = Working::from_request(CriMethod::RunPodSandbox, &request, Known::default()).unwrap();
    let response = v1::RunPodSandboxResponse { pod_sandbox_id: "s".into() }.encode_to_vec();
    assert_eq!(working.commit(Some(&response)).unwrap(), [Change::PutPod { id: "s".into(), record: pod() }]);

    let stage = working.stages()[0];
    let answer = PodSandboxHookResponse { cgroup_parent: "/off".into(), ..Default::default() };
    working.merge(stage, HookAnswer::Pod(answer), ServerOptions::default()).unwrap();
    let moved = PodRecord { cgroup_parent: "/off".into(), ..pod() };
    assert!(moved.was_moved());
    assert_eq!(working.commit(Some(&response)).unwrap(), [Change::PutPod { id: "s".into(), record: moved }]);

    assert_eq!(working.commit(None).unwrap(), []);
    assert_eq!(working.commit(Some(&[])).unwrap(), []);
    assert!(working.commit(Some(&[0x0a])).is_err());
}

#[test]
fn a_new_container_is_remembered_under_its_identifier() {
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: "s".into(),
        config: Some(v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 1 }),
            envs: vec![v1::KeyValue { key: "A".into(), value: b"1".into() }],
            ..Default::default()
        }),
        sandbox_config: None,
    }
    .encode_to_vec();
    let response = v1::CreateContainerResponse { container_id: "c1".into() }.encode_to_vec();
    for known in [known(), Known::default()] {
        let working = Working::from_request(CriMethod::CreateContainer, &request, known).unwrap();
        assert_eq!(
            working.commit(Some(&response)).unwrap(),
            [Change::PutContainer { id: "c1".into(), record: container() }]
        );
    }
}

#[test]
fn a_restored_pod_is_remembered_with_its_containers() {
    let named = |name: &str| v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: name.into(), attempt: 0 }),
        ..Default::default()
    };
    let request = v1::RestorePodRequest {
        config: Some(v1::PodSandboxConfig::default()),
        container_configs: vec![named("a"), named("b"), named("c")],
        ..Default::default()
    }
    .encode_to_vec();
    let working = Working::from_request(CriMethod::RestorePod, &request, Known::default()).unwrap();
    assert_eq!(working.stages().len(), 4);
    let restored =
        |name: &str, id: &str| v1::RestoredContainer { name: name.into(), container_id: id.into() };
    let response = v1::RestorePodResponse {
        pod_sandbox_id: "s".into(),
        restored_containers: vec![
            restored("b", "2"),
            restored("x", "9"),
            restored("a", "1"),
            restored("c", ""),
        ],
    }
    .encode_to_vec();
    let record = |name: &str, id: &str| ContainerRecord {
        pod_id: "s".into(),
        metadata: ContainerMetadata { name: name.into(), attempt: 0, id: id.into() },
        ..ContainerRecord::default()
    };
    assert_eq!(
        working.commit(Some(&response)).unwrap(),
        [
            Change::PutPod {
                id: "s".into(),
                record: PodRecord { kubelet_cgroup_parent: Some(String::new()), ..PodRecord::default() }
            },
            Change::PutContainer { id: "2".into(), record: record("b", "2") },
            Change::PutContainer { id: "1".into(), record: record("a", "1") },
        ]
    );
    assert_eq!(working.commit(None).unwrap(), []);
}

#[test]
fn a_start_changes_the_record_and_never_the_request() {
    let mut working = identified(CriMethod::StartContainer, "c1", known());
    let request = v1::StartContainerRequest { container_id: "c1".into() }.encode_to_vec();
    assert_eq!(working.commit(Some(&[])).unwrap(), []);
    let stage = working.stages()[0];
    let shown = ContainerResourceHookRequest::decode(&working.hook_request(stage)[..]).unwrap();
    assert_eq!(shown, container().hook_request(&pod()));
    assert_eq!(shown.pod_cgroup_parent, "/kp");
    let answer = ContainerResourceHookResponse {
        container_annotations: [("k".to_owned(), "v".to_owned())].into(),
        pod_cgroup_parent: "/kp".into(),
        ..Default::default()
    };
    working.merge(stage, HookAnswer::Container(answer), ServerOptions::default()).unwrap();
    assert_eq!(working.patch(&request).unwrap(), None);
    let record = ContainerRecord { annotations: [("k".to_owned(), "v".to_owned())].into(), ..container() };
    assert_eq!(
        working.commit(Some(&[])).unwrap(),
        [Change::PutContainer { id: "c1".into(), record: record.clone() }]
    );
    assert_eq!(
        working.post_hook(),
        Some((HookType::PostStartContainer, record.hook_request(&pod()).encode_to_vec()))
    );
}

#[test]
fn a_relative_parent_cannot_replace_the_pods_absolute_one() {
    let mut working = identified(CriMethod::StartContainer, "c1", known());
    let stage = working.stages()[0];
    let answer = ContainerResourceHookResponse { pod_cgroup_parent: "x.slice".into(), ..Default::default() };
    let ignored = working.merge(stage, HookAnswer::Container(answer), ServerOptions::default()).unwrap();
    assert_eq!(
        ignored,
        [Ignored::CgroupParent { value: "x.slice".into(), reason: CgroupParentFault::Relative }]
    );
}

#[test]
fn stops_have_their_hook_once() {
    let stop = identified(CriMethod::StopContainer, "c1", known());
    assert_eq!(stop.stages(), []);
    assert_eq!(stop.commit(None).unwrap(), [Change::StopContainer { id: "c1".into() }]);
    assert_eq!(
        stop.post_hook(),
        Some((HookType::PostStopContainer, container().hook_request(&pod()).encode_to_vec()))
    );
    let stop = identified(CriMethod::StopPodSandbox, "s", known());
    assert_eq!(stop.commit(None).unwrap(), [Change::StopPod { id: "s".into() }]);
    let (hook, request) = stop.post_hook().unwrap();
    assert_eq!(hook, HookType::PostStopPodSandbox);
    assert_eq!(PodSandboxHookRequest::decode(&request[..]).unwrap(), pod().hook_request());

    let stopped = Some(std::time::UNIX_EPOCH);
    let known = Known {
        pod: Some(Arc::new(PodRecord { stopped, ..pod() })),
        container: Some(Arc::new(ContainerRecord { stopped, ..container() })),
    };
    assert_eq!(identified(CriMethod::StopContainer, "c1", known.clone()).post_hook(), None);
    assert_eq!(identified(CriMethod::StopPodSandbox, "s", known).post_hook(), None);
}

#[test]
fn unknown_identifiers_have_no_hooks() {
    for method in CriMethod::ALL {
        if matches!(method, CriMethod::RunPodSandbox | CriMethod::RestorePod) {
            continue;
        }
        let working = identified(method, "unknown", Known::default());
        assert_eq!(working.stages(), [], "{method}");
        assert_eq!(working.post_hook(), None, "{method}");
    }
}

#[test]
fn removals_are_remembered() {
    let removed = identified(CriMethod::RemovePodSandbox, "s", Known::default());
    assert_eq!(removed.commit(None).unwrap(), [Change::RemovePod { id: "s".into() }]);
    let removed = identified(CriMethod::RemoveContainer, "c1", Known::default());
    assert_eq!(removed.commit(None).unwrap(), [Change::RemoveContainer { id: "c1".into() }]);
}

#[test]
fn a_resized_pod_is_remembered() {
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: "s".into(),
        overhead: None,
        resources: Some(v1::LinuxContainerResources { cpu_shares: 4096, ..Default::default() }),
    }
    .encode_to_vec();
    let working = Working::from_request(CriMethod::UpdatePodSandboxResources, &request, known()).unwrap();
    assert_eq!(working.patch(&request).unwrap(), None);
    assert_eq!(
        working.commit(Some(&[])).unwrap(),
        [Change::SetPodResources {
            id: "s".into(),
            overhead: None,
            resources: Some(LinuxContainerResources { cpu_shares: 4096, ..Default::default() }),
        }]
    );
}

#[test]
fn malformed_requests_are_errors() {
    for method in CriMethod::ALL {
        assert!(Working::from_request(method, &[0x0a, 0x7f], Known::default()).is_err(), "{method}");
    }
}

#[test]
fn subjects_of_requests() {
    use crate::request::Subject;
    let request = v1::StartContainerRequest { container_id: "x".into() }.encode_to_vec();
    for method in CriMethod::ALL {
        let expected = match method {
            CriMethod::RunPodSandbox | CriMethod::RestorePod => Subject::NewPod,
            CriMethod::CreateContainer
            | CriMethod::StopPodSandbox
            | CriMethod::RemovePodSandbox
            | CriMethod::UpdatePodSandboxResources => Subject::Pod("x"),
            CriMethod::StartContainer
            | CriMethod::StopContainer
            | CriMethod::RemoveContainer
            | CriMethod::UpdateContainerResources => Subject::Container("x"),
        };
        assert_eq!(Subject::of(method, &request), Ok(expected), "{method}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn text_map() -> impl Strategy<Value = TextMap> {
        proptest::collection::btree_map("(io.kubernetes.)?[a-c]", "[xy]{0,2}", 0..4)
    }

    fn resources() -> impl Strategy<Value = v1::LinuxContainerResources> {
        (-2..3_i64, -2..3_i64, -1001..1002_i64, "[0-3]?", text_map(), 0..2_usize).prop_map(
            |(quota, shares, score, cpus, unified, limits)| v1::LinuxContainerResources {
                cpu_quota: quota,
                cpu_shares: shares,
                oom_score_adj: score,
                cpuset_cpus: cpus,
                unified,
                hugepage_limits: vec![v1::HugepageLimit { page_size: "2MB".into(), limit: 1 }; limits],
                ..Default::default()
            },
        )
    }

    fn pod_config() -> impl Strategy<Value = v1::PodSandboxConfig> {
        (text_map(), text_map(), proptest::option::of(("[/.a]{0,4}", proptest::option::of(resources()))))
            .prop_map(|(labels, annotations, linux)| v1::PodSandboxConfig {
                labels,
                annotations,
                linux: linux.map(|(cgroup_parent, resources)| v1::LinuxPodSandboxConfig {
                    cgroup_parent,
                    resources,
                    ..Default::default()
                }),
                ..Default::default()
            })
    }

    fn container_config() -> impl Strategy<Value = v1::ContainerConfig> {
        let value = prop_oneof![Just(vec![0xff]), Just(b"x".to_vec()), Just(Vec::new())];
        let env = ("[a-c]?", value).prop_map(|(key, value)| v1::KeyValue { key, value });
        let envs = proptest::collection::vec(env, 0..5);
        (envs, text_map(), proptest::option::of(proptest::option::of(resources()))).prop_map(
            |(envs, annotations, linux)| v1::ContainerConfig {
                envs,
                annotations,
                linux: linux.map(|resources| v1::LinuxContainerConfig { resources, ..Default::default() }),
                ..Default::default()
            },
        )
    }

    fn options() -> impl Strategy<Value = ServerOptions> {
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(overlay, apply_pod_resources, changed)| {
            ServerOptions {
                resource_merge: if overlay { ResourceMerge::Overlay } else { ResourceMerge::Koordinator },
                apply_pod_resources,
                update_scope: if changed { UpdateScope::Changed } else { UpdateScope::Full },
            }
        })
    }

    /// Answers as a server does that copies every field of the request.
    fn echo(working: &mut Working, options: ServerOptions) {
        for stage in working.stages() {
            let request = working.hook_request(stage);
            let answer = match stage.hook {
                HookType::PreRunPodSandbox => {
                    let request = PodSandboxHookRequest::decode(&request[..]).unwrap();
                    HookAnswer::Pod(PodSandboxHookResponse {
                        labels: request.labels,
                        annotations: request.annotations,
                        cgroup_parent: request.cgroup_parent,
                        resources: request.resources,
                    })
                }
                _ => {
                    let request = ContainerResourceHookRequest::decode(&request[..]).unwrap();
                    HookAnswer::Container(ContainerResourceHookResponse {
                        container_annotations: request.container_annotations,
                        container_resources: request.container_resources,
                        pod_cgroup_parent: request.pod_cgroup_parent,
                        container_envs: request.container_envs,
                    })
                }
            };
            assert_eq!(working.merge(stage, answer, options).unwrap(), []);
        }
    }

    proptest! {
        #[test]
        fn an_echo_never_changes_a_new_pod(config in pod_config(), options in options()) {
            let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: "h".into() }.encode_to_vec();
            let mut working = Working::from_request(CriMethod::RunPodSandbox, &request, Known::default()).unwrap();
            let before = working.clone();
            echo(&mut working, options);
            prop_assert_eq!(working.patch(&request).unwrap(), None);
            prop_assert_eq!(working.pod(), before.pod());
        }

        #[test]
        fn an_echo_never_changes_a_new_container(
            config in container_config(),
            sandbox_config in proptest::option::of(pod_config()),
            options in options(),
        ) {
            let request = v1::CreateContainerRequest {
                pod_sandbox_id: "s".into(),
                config: Some(config),
                sandbox_config,
            }
            .encode_to_vec();
            let mut working = Working::from_request(CriMethod::CreateContainer, &request, known()).unwrap();
            echo(&mut working, options);
            prop_assert_eq!(working.patch(&request).unwrap(), None);
        }

        #[test]
        fn an_echo_never_changes_a_restored_pod(
            config in pod_config(),
            container_configs in proptest::collection::vec(container_config(), 0..3),
            options in options(),
        ) {
            let request = v1::RestorePodRequest { config: Some(config), container_configs, ..Default::default() }
                .encode_to_vec();
            let mut working = Working::from_request(CriMethod::RestorePod, &request, Known::default()).unwrap();
            echo(&mut working, options);
            prop_assert_eq!(working.patch(&request).unwrap(), None);
        }

        #[test]
        fn an_echo_never_changes_an_update_of_known_size(linux in resources(), annotations in text_map()) {
            let request = v1::UpdateContainerResourcesRequest {
                container_id: "c1".into(),
                linux: Some(linux),
                annotations,
                ..Default::default()
            }
            .encode_to_vec();
            let mut working = Working::from_request(CriMethod::UpdateContainerResources, &request, known()).unwrap();
            echo(&mut working, ServerOptions { update_scope: UpdateScope::Changed, ..Default::default() });
            prop_assert_eq!(working.patch(&request).unwrap(), None);
        }

        #[test]
        fn junk_never_panics(message in proptest::collection::vec(any::<u8>(), 0..48), method in 0..10_usize) {
            let method = CriMethod::ALL[method];
            if let Ok(mut working) = Working::from_request(method, &message, known()) {
                echo(&mut working, ServerOptions::default());
                let _ = working.patch(&message);
                let _ = working.commit(Some(&message));
                let _ = working.post_hook();
            }
        }
    }
}
