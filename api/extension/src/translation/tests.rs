use super::*;
use crate::keys::annotation;

fn list(entries: &[(&str, &str)]) -> ResourceList {
    entries.iter().map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).unwrap())).collect()
}

fn texts(list: &ResourceList) -> Vec<(&str, String)> {
    list.iter().map(|(name, quantity)| (name.as_str(), quantity.to_string())).collect()
}

fn container(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ContainerResources {
    ContainerResources {
        name: "main".into(),
        resources: Requirements { requests: list(requests), limits: list(limits) },
        ..ContainerResources::default()
    }
}

fn pod(containers: Vec<ContainerResources>) -> PodResources {
    PodResources { containers, ..PodResources::default() }
}

fn batch_pod() -> PodResources {
    let mut pod =
        pod(vec![container(&[("cpu", "500m"), ("memory", "1Gi")], &[("cpu", "1"), ("memory", "2Gi")])]);
    assert_eq!(translate_pod(PriorityClass::Batch, &mut pod), Translated { changed: true, pod: None });
    pod
}

#[test]
fn native_resources_become_batch() {
    let pod = batch_pod();
    let resources = &pod.containers[0].resources;
    assert_eq!(
        texts(&resources.requests),
        [(resource::BATCH_CPU, "500".into()), (resource::BATCH_MEMORY, "1Gi".into())]
    );
    assert_eq!(
        texts(&resources.limits),
        [(resource::BATCH_CPU, "1k".into()), (resource::BATCH_MEMORY, "2Gi".into())]
    );
}

#[test]
fn a_missing_request_becomes_the_limit() {
    let mut pod = pod(vec![container(&[], &[("cpu", "2")])]);
    translate_pod(PriorityClass::Batch, &mut pod);
    let resources = &pod.containers[0].resources;
    assert_eq!(texts(&resources.requests), [(resource::BATCH_CPU, "2k".into())]);
    assert_eq!(texts(&resources.limits), [(resource::BATCH_CPU, "2k".into())]);
}

#[test]
fn a_part_of_a_thousandth_counts_whole() {
    let mut pod = pod(vec![container(&[("cpu", "0.0015")], &[])]);
    translate_pod(PriorityClass::Mid, &mut pod);
    assert_eq!(texts(&pod.containers[0].resources.requests), [(resource::MID_CPU, "2".into())]);
}

#[test]
fn overhead_and_init_containers_are_translated() {
    let mut pod = PodResources {
        init_containers: vec![container(&[("cpu", "1")], &[])],
        overhead: list(&[("cpu", "100m"), ("other", "1")]),
        ..PodResources::default()
    };
    translate_pod(PriorityClass::Batch, &mut pod);
    assert_eq!(texts(&pod.overhead), [(resource::BATCH_CPU, "100".into()), ("other", "1".into())]);
    assert_eq!(texts(&pod.init_containers[0].resources.requests), [(resource::BATCH_CPU, "1k".into())]);
}

#[test]
fn what_was_there_is_overwritten() {
    let mut requests = list(&[("cpu", "1"), (resource::BATCH_CPU, "7")]);
    assert!(translate_list(PriorityClass::Batch, &mut requests));
    assert_eq!(texts(&requests), [(resource::BATCH_CPU, "1k".into())]);
    assert!(!translate_list(PriorityClass::Batch, &mut requests));
}

#[test]
fn prod_and_free_stay_native() {
    for class in [PriorityClass::Prod, PriorityClass::Free] {
        let mut translated = pod(vec![container(&[("cpu", "1")], &[("memory", "1Gi")])]);
        translated.resources = Some(Requirements { requests: list(&[("cpu", "2")]), ..Default::default() });
        let before = translated.clone();
        assert_eq!(translate_pod(class, &mut translated), Translated::default());
        assert_eq!(translated, before);
    }
}

#[test]
fn resources_of_the_whole_pod_move_out_of_the_spec() {
    let mut pod = pod(vec![container(&[], &[])]);
    pod.resources = Some(Requirements {
        requests: list(&[("cpu", "1")]),
        limits: list(&[("cpu", "2"), ("memory", "1Gi"), ("hugepages-2Mi", "4Mi")]),
    });
    let translated = translate_pod(PriorityClass::Mid, &mut pod);
    let moved = translated.pod.unwrap();
    assert_eq!(
        texts(&moved.requests),
        [(resource::MID_CPU, "1k".into()), (resource::MID_MEMORY, "1Gi".into())]
    );
    assert_eq!(
        texts(&moved.limits),
        [(resource::MID_CPU, "2k".into()), (resource::MID_MEMORY, "1Gi".into())]
    );
    assert_eq!(texts(&pod.resources.clone().unwrap().limits), [("hugepages-2Mi", "4Mi".into())]);
    let spec = extended_resource_spec(&pod, Some(&moved), ExtendedScope::Everything);
    assert_eq!(
        spec.to_text(),
        r#"{"pod":{"limits":{"kubernetes.io/mid-cpu":"2k","kubernetes.io/mid-memory":"1Gi"},"requests":{"kubernetes.io/mid-cpu":"1k","kubernetes.io/mid-memory":"1Gi"}}}"#
    );
    assert_eq!(spec.pod_limit(resource::MID_CPU).unwrap().to_string(), "2k");
}

#[test]
fn names_are_never_empty() {
    for (class, name, translated) in [
        (Some(PriorityClass::Batch), "cpu", resource::BATCH_CPU),
        (Some(PriorityClass::Batch), "memory", resource::BATCH_MEMORY),
        (Some(PriorityClass::Mid), "cpu", resource::MID_CPU),
        (Some(PriorityClass::Mid), "memory", resource::MID_MEMORY),
        (Some(PriorityClass::Mid), "nvidia.com/gpu", "nvidia.com/gpu"),
        (Some(PriorityClass::Prod), "cpu", "cpu"),
        (Some(PriorityClass::Free), "cpu", "cpu"),
        (None, "memory", "memory"),
    ] {
        assert_eq!(translated_name(class, name), translated);
    }
}

const MAIN: &str = r#"{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"2Gi"},"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"}}}}"#;

#[test]
fn the_annotation_tells_batch_resources() {
    for scope in [ExtendedScope::Everything, ExtendedScope::RegularBatch] {
        let spec = extended_resource_spec(&batch_pod(), None, scope);
        assert_eq!(spec.to_text(), MAIN);
        assert_eq!(ExtendedResourceSpec::parse(MAIN), Ok(spec));
    }
}

#[test]
fn the_annotation_is_written_when_it_changes() {
    let with =
        |text: &str| BTreeMap::from([(annotation::EXTENDED_RESOURCE_SPEC.to_owned(), text.to_owned())]);
    let wanted = extended_resource_spec(&batch_pod(), None, ExtendedScope::Everything);
    let none = ExtendedResourceSpec::default();
    let update = update_extended_resource_spec;
    assert_eq!(update(&BTreeMap::new(), &none), AnnotationUpdate::Keep);
    assert_eq!(update(&with("{}"), &none), AnnotationUpdate::Keep);
    assert_eq!(update(&with(r#"{"containers":{}}"#), &none), AnnotationUpdate::Keep);
    assert_eq!(update(&with(MAIN), &none), AnnotationUpdate::Write("{}".into()));
    assert_eq!(update(&BTreeMap::new(), &wanted), AnnotationUpdate::Write(MAIN.into()));
    assert_eq!(update(&with(&MAIN.replace("1k", "1000")), &wanted), AnnotationUpdate::Keep);
    assert_eq!(update(&with("broken"), &wanted), AnnotationUpdate::Replace(MAIN.into()));
}

#[test]
fn sidecars_init_containers_and_overhead_count_as_in_kubernetes() {
    let cpu = |name: &str, policy: &str, amount: &str| ContainerResources {
        name: name.into(),
        restart_policy: policy.into(),
        resources: Requirements {
            requests: list(&[(resource::BATCH_CPU, amount)]),
            limits: list(&[(resource::BATCH_CPU, amount)]),
        },
    };
    let mut pod = PodResources {
        init_containers: vec![
            cpu("z-early", "", "3k"),
            cpu("proxy", "Always", "500"),
            cpu("a-late", "", "2k"),
        ],
        containers: vec![cpu("main", "", "1k")],
        overhead: list(&[(resource::BATCH_CPU, "100")]),
        resources: None,
    };
    let spec = extended_resource_spec(&pod, None, ExtendedScope::Everything);
    assert_eq!(spec.containers["z-early"].kind, ContainerKind::Init);
    assert_eq!(spec.containers["proxy"].kind, ContainerKind::Sidecar);
    assert_eq!((spec.containers["a-late"].order, spec.containers["proxy"].order), (2, 1));
    // max(1000 + 500, 3000, 500, 500 + 2000) + 100
    assert_eq!(spec.pod_request(resource::BATCH_CPU).value(), 3100);
    assert_eq!(spec.pod_limit(resource::BATCH_CPU).unwrap().value(), 3100);
    assert_eq!(pod.request(resource::BATCH_CPU).value(), 3100);
    assert_eq!(ExtendedResourceSpec::parse(&spec.to_text()), Ok(spec.clone()));
    pod.init_containers.remove(0);
    let spec = extended_resource_spec(&pod, None, ExtendedScope::Everything);
    assert_eq!(spec.pod_request(resource::BATCH_CPU).value(), 2600);
    assert_eq!(spec.pod_request(resource::BATCH_MEMORY), Quantity::ZERO);
    assert_eq!(spec.pod_limit(resource::BATCH_MEMORY), None);
    // One container without a limit makes the pod unlimited.
    pod.containers[0].resources.limits.clear();
    let spec = extended_resource_spec(&pod, None, ExtendedScope::Everything);
    assert_eq!(spec.pod_limit(resource::BATCH_CPU), None);
    let upstream = extended_resource_spec(&pod, None, ExtendedScope::RegularBatch);
    assert_eq!(upstream.containers.keys().collect::<Vec<_>>(), ["main"]);
    assert_eq!(ExtendedResourceSpec::default().pod_limit(resource::BATCH_CPU), None);
}

#[test]
fn former_names_are_renamed() {
    let mut names = list(&[
        ("koordinator.sh/batch-cpu", "1k"),
        ("kubernetes.io/gpu", "100"),
        ("kubernetes.io/rdma", "50"),
        (resource::RDMA, "60"),
        ("cpu", "1"),
    ]);
    assert!(rename_deprecated(&mut names));
    assert_eq!(
        texts(&names),
        [
            ("cpu", "1".into()),
            (resource::GPU, "100".into()),
            (resource::RDMA, "60".into()),
            (resource::BATCH_CPU, "1k".into()),
            ("kubernetes.io/rdma", "50".into()),
        ]
    );
    assert!(!rename_deprecated(&mut names));
    let mut pod = PodResources { overhead: list(&[("kubernetes.io/fpga", "1")]), ..Default::default() };
    assert!(rename_deprecated_in_pod(&mut pod));
    assert_eq!(texts(&pod.overhead), [(resource::FPGA, "1".into())]);
}

#[test]
fn names_are_replaced() {
    let replacement =
        |from: &str, to: Option<&str>| Replacement { from: from.into(), to: to.map(Into::into) };
    let replacements = parse_replacements("a:b, c:d ,e:,bad,x:y:z,:f");
    assert_eq!(
        replacements,
        [replacement("a", Some("b")), replacement("c", Some("d")), replacement("e", None)]
    );
    let mut names = list(&[("a", "1"), ("b", "2"), ("e", "3"), ("f", "4")]);
    assert!(replace_resources(&replacements, &mut names));
    assert_eq!(texts(&names), [("b", "1".into()), ("f", "4".into())]);
    assert!(!replace_resources(&[], &mut names));
}

#[test]
fn gpu_requests_get_their_full_form() {
    let normalized = |requests: &[(&str, &str)], limits: &[(&str, &str)]| {
        let mut resources = Requirements { requests: list(requests), limits: list(limits) };
        let changed = normalize_gpus(&mut resources);
        (changed, resources)
    };
    // Without a map of limits Koordinator's webhook would crash.
    let (changed, resources) = normalized(&[(resource::GPU, "200")], &[]);
    assert!(changed);
    let full = [
        (resource::GPU_CORE, "200".to_owned()),
        (resource::GPU_MEMORY_RATIO, "200".to_owned()),
        (resource::GPU_SHARED, "2".to_owned()),
    ];
    assert_eq!(texts(&resources.requests), full);
    assert_eq!(texts(&resources.limits), full);
    let shared =
        |requests: &[(&str, &str)]| normalized(requests, &[]).1.requests[resource::GPU_SHARED].value();
    assert_eq!(shared(&[(resource::GPU_MEMORY_RATIO, "50")]), 1);
    assert_eq!(shared(&[(resource::GPU_MEMORY_RATIO, "100")]), 1);
    assert_eq!(shared(&[(resource::GPU_MEMORY_RATIO, "150")]), 1);
    assert_eq!(shared(&[(resource::GPU_MEMORY_RATIO, "300")]), 3);
    assert_eq!(shared(&[(resource::GPU_CORE, "400")]), 4);
    assert_eq!(shared(&[(resource::GPU_CORE, "400"), (resource::GPU_MEMORY_RATIO, "50")]), 1);
    assert_eq!(shared(&[(resource::GPU_MEMORY, "16Gi")]), 1);
    assert_eq!(shared(&[(resource::GPU_SHARED, "5"), (resource::GPU_CORE, "400")]), 5);
    assert!(!normalized(&[("cpu", "1")], &[]).0);
}

#[test]
fn kubernetes_classes_of_pods() {
    let full = [("cpu", "1"), ("memory", "1Gi")];
    for (pod, class) in [
        (pod(vec![container(&full, &full)]), KubeQos::Guaranteed),
        (pod(vec![container(&full, &[("cpu", "2"), ("memory", "1Gi")])]), KubeQos::Burstable),
        (pod(vec![container(&full, &full), container(&[], &[])]), KubeQos::Burstable),
        (pod(vec![container(&[("cpu", "1")], &[("cpu", "1")])]), KubeQos::Burstable),
        (pod(vec![container(&[], &[])]), KubeQos::BestEffort),
        (pod(vec![container(&[("cpu", "0")], &[("memory", "0")])]), KubeQos::BestEffort),
        (pod(vec![container(&[("nvidia.com/gpu", "1")], &[])]), KubeQos::BestEffort),
        (batch_pod(), KubeQos::BestEffort),
        (pod(Vec::new()), KubeQos::BestEffort),
        (
            PodResources {
                init_containers: vec![container(&[("cpu", "1")], &[])],
                containers: vec![container(&full, &full)],
                ..PodResources::default()
            },
            KubeQos::Burstable,
        ),
        (
            PodResources {
                containers: vec![container(&[], &[])],
                resources: Some(Requirements { requests: list(&full), limits: list(&full) }),
                ..PodResources::default()
            },
            KubeQos::Guaranteed,
        ),
    ] {
        assert_eq!(pod.kube_qos(), class, "{pod:?}");
    }
}

#[test]
fn a_spec_is_read_from_json() {
    let pod: PodResources = serde_json::from_str(
        r#"{"nodeName":"n","containers":[{"name":"a","image":"i","resources":{"requests":{"cpu":"1"}}}],
            "initContainers":[{"name":"s","restartPolicy":"Always"}],"overhead":{"memory":"1Mi"}}"#,
    )
    .unwrap();
    assert_eq!(pod.containers[0].resources.requests["cpu"].milli(), 1000);
    assert_eq!(pod.init_containers[0].restart_policy, "Always");
    assert_eq!(pod.request("memory").value(), 1_048_576);
}
