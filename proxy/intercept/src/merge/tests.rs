use koord_hook::v1alpha1::HugepageLimit;
use proptest::prelude::*;

use super::*;

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn merged(
    record: &LinuxContainerResources,
    answer: &LinuxContainerResources,
    rule: ResourceMerge,
) -> LinuxContainerResources {
    let mut current = record.clone();
    merge_resources(&mut current, answer, rule);
    current
}

fn full_record() -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_period: 1000,
        cpu_quota: 2000,
        cpu_shares: 500,
        oom_score_adj: 10,
        memory_swap_limit_in_bytes: 100,
        memory_limit_in_bytes: 300,
        cpuset_cpus: "0-64".into(),
        cpuset_mems: "0-2".into(),
        unified: map(&[("A", "a")]),
        hugepage_limits: Vec::new(),
    }
}

fn full_answer() -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_period: 2000,
        cpu_quota: 4000,
        cpu_shares: 1000,
        oom_score_adj: 20,
        memory_swap_limit_in_bytes: 200,
        memory_limit_in_bytes: 600,
        cpuset_cpus: "0-31".into(),
        cpuset_mems: "0-4".into(),
        unified: map(&[("B", "b")]),
        hugepage_limits: Vec::new(),
    }
}

#[test]
fn a_full_answer_replaces_everything_and_joins_unified() {
    let expected = LinuxContainerResources { unified: map(&[("A", "a"), ("B", "b")]), ..full_answer() };
    for rule in [ResourceMerge::Koordinator, ResourceMerge::Overlay] {
        assert_eq!(merged(&full_record(), &full_answer(), rule), expected);
    }
}

#[test]
fn a_request_never_changes_the_score() {
    let expected = LinuxContainerResources {
        unified: map(&[("A", "a"), ("B", "b")]),
        oom_score_adj: 10,
        ..full_answer()
    };
    assert_eq!(overlay_request(Some(&full_record()), full_answer()), expected);
    assert_eq!(overlay_request(None, full_answer()), full_answer());
}

#[test]
fn a_partial_answer() {
    let record = LinuxContainerResources {
        cpu_shares: 500,
        oom_score_adj: -997,
        cpuset_cpus: "0-3".into(),
        cpu_quota: 50_000,
        ..Default::default()
    };
    let answer = LinuxContainerResources { cpu_shares: 100, ..Default::default() };
    assert_eq!(
        merged(&record, &answer, ResourceMerge::Koordinator),
        LinuxContainerResources { cpu_shares: 100, cpu_quota: 50_000, ..Default::default() }
    );
    assert_eq!(
        merged(&record, &answer, ResourceMerge::Overlay),
        LinuxContainerResources { cpu_shares: 100, ..record }
    );
}

#[test]
fn quota_and_memory_edges() {
    let record =
        LinuxContainerResources { cpu_quota: 50_000, memory_limit_in_bytes: 300, ..Default::default() };
    for (quota, expected) in [(-1, -1), (0, 50_000), (1, 1)] {
        let answer = LinuxContainerResources { cpu_quota: quota, ..Default::default() };
        assert_eq!(merged(&record, &answer, ResourceMerge::Koordinator).cpu_quota, expected);
    }
    for (memory, expected) in [(-1, 300), (0, 300), (1, 1)] {
        let answer = LinuxContainerResources { memory_limit_in_bytes: memory, ..Default::default() };
        assert_eq!(merged(&record, &answer, ResourceMerge::Koordinator).memory_limit_in_bytes, expected);
    }
}

#[test]
fn score_edges() {
    let record = LinuxContainerResources { oom_score_adj: 7, ..Default::default() };
    for (score, koordinator, overlay) in
        [(1001, 7, 7), (1000, 1000, 1000), (0, 0, 7), (-1000, -1000, -1000), (-1001, 7, 7)]
    {
        let answer = LinuxContainerResources { oom_score_adj: score, ..Default::default() };
        assert_eq!(merged(&record, &answer, ResourceMerge::Koordinator).oom_score_adj, koordinator);
        assert_eq!(merged(&record, &answer, ResourceMerge::Overlay).oom_score_adj, overlay);
    }
}

#[test]
fn huge_page_limits_come_from_the_creation() {
    let limits = |size: &str| LinuxContainerResources {
        hugepage_limits: vec![HugepageLimit { page_size: size.into(), limit: 1 }],
        ..Default::default()
    };
    assert_eq!(merged(&limits("2MB"), &limits("1GB"), ResourceMerge::Koordinator), limits("2MB"));
    assert_eq!(overlay_request(Some(&limits("2MB")), limits("1GB")), limits("2MB"));
}

#[test]
fn maps_are_joined() {
    for (current, answer, expected) in [
        (map(&[]), map(&[]), map(&[])),
        (map(&[("k1", "v1")]), map(&[("k1", "v2")]), map(&[("k1", "v2")])),
        (map(&[("k1", "v1")]), map(&[("k2", "v2")]), map(&[("k1", "v1"), ("k2", "v2")])),
        (map(&[("A", "true")]), map(&[("B", "true")]), map(&[("A", "true"), ("B", "true")])),
    ] {
        let mut ignored = Vec::new();
        let (mut labels, mut annotations) = (current.clone(), current);
        merge_labels(&mut labels, answer.clone(), &mut ignored);
        merge_annotations(&mut annotations, answer, &mut ignored);
        assert_eq!(labels, expected);
        assert_eq!(annotations, expected);
        assert_eq!(ignored, []);
    }
}

#[test]
fn reserved_keys_stay() {
    let current = map(&[("io.kubernetes.pod.uid", "u"), ("a", "1")]);
    let answer = map(&[
        ("io.kubernetes.pod.uid", "other"),
        ("io.kubernetes.new", "x"),
        ("io.kubernetesx", "y"),
        ("a", "2"),
    ]);
    let expected = map(&[("io.kubernetes.pod.uid", "u"), ("io.kubernetesx", "y"), ("a", "2")]);

    let (mut labels, mut ignored) = (current.clone(), Vec::new());
    merge_labels(&mut labels, answer.clone(), &mut ignored);
    assert_eq!(labels, expected);
    assert_eq!(
        ignored,
        [
            Ignored::Label { key: "io.kubernetes.new".into() },
            Ignored::Label { key: "io.kubernetes.pod.uid".into() }
        ]
    );

    let (mut annotations, mut ignored) = (current.clone(), Vec::new());
    merge_annotations(&mut annotations, answer, &mut ignored);
    assert_eq!(annotations, expected);
    assert_eq!(ignored.len(), 2);

    let (mut labels, mut ignored) = (current.clone(), Vec::new());
    merge_labels(&mut labels, current.clone(), &mut ignored);
    assert_eq!((labels, ignored), (current, Vec::new()));
}

#[test]
fn cgroup_parents() {
    let long = format!("/{}", "a".repeat(MAX_CGROUP_PARENT_BYTES - 1));
    let too_long = format!("{long}a");
    use CgroupParentFault::*;
    for (answer, original, fault) in [
        ("/offline/besteffort", "/kubepods/besteffort", None),
        ("/a..b/..c", "/kubepods", None),
        (&long, "/kubepods", None),
        (&too_long, "/kubepods", Some(TooLong)),
        ("/a/../b", "/kubepods", Some(ParentComponent)),
        ("..", "", Some(ParentComponent)),
        ("/a\0b", "/kubepods", Some(Nul)),
        ("a/b", "/kubepods", Some(Relative)),
        ("a.slice", "b.slice", None),
        ("a.slice", "", None),
        ("/a", "b.slice", None),
    ] {
        let (mut current, mut ignored) = (original.to_owned(), Vec::new());
        merge_cgroup_parent(&mut current, answer.to_owned(), original, &mut ignored);
        assert_eq!(current, if fault.is_none() { answer } else { original });
        assert_eq!(
            ignored,
            fault.map(|reason| ignored_cgroup_parent(answer, reason)).into_iter().collect::<Vec<_>>()
        );
    }
    let (mut current, mut ignored) = ("/kubepods".to_owned(), Vec::new());
    merge_cgroup_parent(&mut current, String::new(), "/kubepods", &mut ignored);
    assert_eq!((current.as_str(), ignored), ("/kubepods", Vec::new()));
}

fn resources() -> impl Strategy<Value = LinuxContainerResources> {
    let number = || prop_oneof![Just(0), Just(-1), 1..5_i64, any::<i64>()];
    (
        (number(), number(), number(), number(), -1002..1003_i64, number()),
        ("[0-3]?", "[01]?"),
        proptest::collection::btree_map("[a-c]", "[xy]?", 0..3),
    )
        .prop_map(|((period, quota, shares, memory, score, swap), (cpus, mems), unified)| {
            LinuxContainerResources {
                cpu_period: period,
                cpu_quota: quota,
                cpu_shares: shares,
                memory_limit_in_bytes: memory,
                oom_score_adj: score,
                cpuset_cpus: cpus,
                cpuset_mems: mems,
                hugepage_limits: Vec::new(),
                unified,
                memory_swap_limit_in_bytes: swap,
            }
        })
}

proptest! {
    #[test]
    fn an_echo_changes_nothing(record in resources()) {
        for rule in [ResourceMerge::Koordinator, ResourceMerge::Overlay] {
            prop_assert_eq!(&merged(&record, &record, rule), &record);
        }
        prop_assert_eq!(&overlay_request(Some(&record), record.clone()), &record);
    }

    #[test]
    fn a_merge_repeated_changes_nothing_more(record in resources(), answer in resources()) {
        for rule in [ResourceMerge::Koordinator, ResourceMerge::Overlay] {
            let once = merged(&record, &answer, rule);
            prop_assert_eq!(&merged(&once, &answer, rule), &once);
        }
    }

    #[test]
    fn an_empty_answer_changes_nothing_in_an_overlay(record in resources()) {
        let answer = LinuxContainerResources::default();
        prop_assert_eq!(&merged(&record, &answer, ResourceMerge::Overlay), &record);
    }
}
