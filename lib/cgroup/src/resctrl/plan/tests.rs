use super::super::info::CacheInfo;
use super::*;

fn info(unit: BandwidthUnit) -> Info {
    let granularity = if unit == BandwidthUnit::Percent { 10 } else { 1 };
    Info {
        cache: Some(CacheInfo { cbm_mask: 0xfff, min_cbm_bits: 1, num_closids: 16, sparse_masks: false }),
        bandwidth: Some(BandwidthInfo { unit, granularity, least: granularity, num_closids: 16 }),
        monitoring: None,
    }
}

fn root(text: &str) -> Schemata {
    Schemata::parse(text).expect("a schemata")
}

fn two_caches() -> Schemata {
    root("MB:0= 100;1= 100\nL3:0=fff;1=fff\n")
}

fn share(class: RdtClass, cache_start: i64, cache_end: i64, bandwidth: Option<i64>) -> ClassShare {
    ClassShare { class, cache_start, cache_end, bandwidth }
}

#[test]
fn the_defaults_of_the_classes() {
    let classes = [
        share(RdtClass::Lsr, 0, 100, Some(100)),
        share(RdtClass::Ls, 0, 100, Some(100)),
        share(RdtClass::Be, 0, 30, Some(100)),
    ];
    let groups = ClassGroups::plan(&info(BandwidthUnit::Percent), &two_caches(), &classes);
    let texts: Vec<_> = groups.iter().map(|group| (group.class, group.schemata.to_text())).collect();
    let everything = "L3:0=fff;1=fff;\nMB:0=100;1=100;\n".to_owned();
    assert_eq!(
        texts,
        [
            (RdtClass::Lsr, everything.clone()),
            (RdtClass::Ls, everything),
            (RdtClass::Be, "L3:0=f;1=f;\nMB:0=100;1=100;\n".to_owned()),
        ]
    );
    assert!(groups.iter().all(|group| group.problems.is_empty()));
}

#[test]
fn ids_come_from_the_lines_of_the_root_group() {
    // Caches 0 and 4, and bandwidth domains of their own; no limit is what the root group has.
    let root = root("    L3:0=ffff;4=ffff\n    MB:2=2048;9=4096\n    L2:0=1\n");
    let mut amd = info(BandwidthUnit::of_vendor("AuthenticAMD"));
    amd.cache = Some(CacheInfo { cbm_mask: 0xffff, min_cbm_bits: 1, num_closids: 16, sparse_masks: false });
    let text = |bandwidth| {
        let groups = ClassGroups::plan(&amd, &root, &[share(RdtClass::Be, 0, 50, bandwidth)]);
        groups.iter().map(|group| group.schemata.to_text()).collect::<String>()
    };
    assert_eq!(text(Some(30)), "L3:0=ff;4=ff;\nMB:2=48;9=48;\n");
    assert_eq!(text(Some(100)), "L3:0=ff;4=ff;\nMB:2=2048;9=4096;\n");
    assert_eq!(text(None), "L3:0=ff;4=ff;\n");
    assert_eq!(ClassGroups::unlimited(&root).to_text(), "L3:0=ffff;4=ffff;\nMB:2=2048;9=4096;\n");
}

#[test]
fn a_line_without_a_value_is_left_out_and_said_why() {
    let plan = |info: &Info, share| {
        let mut groups = ClassGroups::plan(info, &two_caches(), &[share]);
        groups.pop().expect("one group")
    };
    let intel = info(BandwidthUnit::Percent);
    let group = plan(&intel, share(RdtClass::Be, 30, 30, Some(20)));
    assert_eq!(group.schemata.to_text(), "MB:0=20;1=20;\n");
    assert_eq!(group.problems, [PlanProblem::Cache(MaskError::Range { start: 30, end: 30 })]);

    let group = plan(&intel, share(RdtClass::Be, 0, 30, Some(0)));
    assert_eq!(group.schemata.to_text(), "L3:0=f;1=f;\n");
    assert_eq!(group.problems, [PlanProblem::Bandwidth(BandwidthError::Percent(0))]);

    let nothing = Info::default();
    let group = plan(&nothing, share(RdtClass::Be, 0, 30, Some(20)));
    assert_eq!(group.schemata, Schemata::default());
    assert_eq!(group.problems, [PlanProblem::Unsupported("L3"), PlanProblem::Unsupported("MB")]);
    // Nobody is told that what he did not limit cannot be limited.
    let group = plan(&nothing, share(RdtClass::Be, 0, 30, Some(100)));
    assert_eq!(group.problems, [PlanProblem::Unsupported("L3")]);
}

#[test]
fn classes_take_an_unknown_unit_for_percents() {
    let other = info(BandwidthUnit::of_vendor("0x41"));
    let groups = ClassGroups::plan(&other, &two_caches(), &[share(RdtClass::Be, 0, 30, Some(33))]);
    assert_eq!(groups[0].schemata.to_text(), "L3:0=f;1=f;\nMB:0=33;1=33;\n");
}

#[test]
fn only_classes_that_are_on_have_groups() {
    let wanted = ClassGroups::wanted([(RdtClass::Lsr, false), (RdtClass::Ls, true), (RdtClass::Be, true)]);
    assert_eq!(wanted, BTreeSet::from([RdtClass::Ls, RdtClass::Be]));
}

fn pod(unit: BandwidthUnit, text: &str) -> PodSchemata {
    let annotation = annotation::Resctrl::parse(text).expect("an annotation");
    pod_schemata(&info(unit), &two_caches(), &PodShare::from(&annotation))
}

#[test]
fn a_pod_with_values_of_single_caches() {
    let pod = pod(
        BandwidthUnit::Percent,
        r#"{"llc":{"schemata":{"range":[20,80]},"schemataPerCache":[{"cacheID":0,"range":[20,50]},
            {"cacheID":1,"range":[20,60]}]},
            "mb":{"schemata":{"percent":20},"schemataPerCache":[{"cacheID":1,"percent":40}]}}"#,
    );
    assert_eq!(pod.schemata.cache_line(), "L3:0=38;1=f8;\n");
    assert_eq!(pod.schemata.bandwidth_line(), "MB:0=20;1=40;\n");
    assert_eq!(pod.problems, []);
}

#[test]
fn a_pod_with_one_kind_of_value() {
    let unit = BandwidthUnit::Percent;
    assert_eq!(pod(unit, "{}"), PodSchemata::default());
    assert_eq!(pod(unit, r#"{"mb":{"schemata":{"percent":33}}}"#).schemata.to_text(), "MB:0=40;1=40;\n");
    assert_eq!(pod(unit, r#"{"llc":{"schemata":{"range":[0,30]}}}"#).schemata.to_text(), "L3:0=f;1=f;\n");
    // Only one cache is named: the other stays as the kernel made it.
    let one = r#"{"llc":{"schemataPerCache":[{"cacheID":1,"range":[0,50]}]}}"#;
    assert_eq!(pod(unit, one).schemata.to_text(), "L3:1=3f;\n");
    let one = r#"{"mb":{"schemataPerCache":[{"cacheID":0,"percent":50}]}}"#;
    assert_eq!(pod(unit, one).schemata.to_text(), "MB:0=50;\n");
}

#[test]
fn an_invalid_range_ends_the_reading_of_ranges() {
    let unit = BandwidthUnit::Percent;
    let bad = pod(
        unit,
        r#"{"llc":{"schemata":{"range":[50,50]},"schemataPerCache":[{"cacheID":0,"range":[0,50]}]},
                            "mb":{"schemata":{"percent":20}}}"#,
    );
    assert_eq!(bad.schemata.to_text(), "MB:0=20;1=20;\n");
    assert_eq!(bad.problems, [PlanProblem::Cache(MaskError::Range { start: 50, end: 50 })]);

    let late = pod(
        unit,
        r#"{"llc":{"schemata":{"range":[0,100]},"schemataPerCache":[{"cacheID":0,"range":[0,50]},
            {"cacheID":1,"range":[0]},{"cacheID":0,"range":[0,10]}]}}"#,
    );
    assert_eq!(late.schemata.to_text(), "L3:0=3f;1=fff;\n");
    assert_eq!(late.problems, [PlanProblem::Range(vec![0])]);
}

#[test]
fn an_invalid_bandwidth_leaves_the_line_out() {
    let bad = pod(
        BandwidthUnit::Percent,
        r#"{"mb":{"schemata":{"percent":20},"schemataPerCache":[{"cacheID":1,"percent":0}]}}"#,
    );
    assert_eq!(bad.schemata, Schemata::default());
    assert_eq!(bad.problems, [PlanProblem::Bandwidth(BandwidthError::Percent(0))]);

    let vendor = pod(BandwidthUnit::of_vendor("0x41"), r#"{"mb":{"schemata":{"percent":20}}}"#);
    assert_eq!(vendor.schemata, Schemata::default());
    assert_eq!(vendor.problems, [PlanProblem::Bandwidth(BandwidthError::UnknownUnit)]);
}

#[test]
fn caches_that_do_not_exist_are_passed_over() {
    let pod = pod(
        BandwidthUnit::Percent,
        r#"{"llc":{"schemata":{"range":[0,50]},"schemataPerCache":[{"cacheID":7,"range":[0,30]},
            {"cacheID":1,"range":[0,30]}]},
            "mb":{"schemata":{"percent":20},"schemataPerCache":[{"cacheID":-1,"percent":40}]}}"#,
    );
    assert_eq!(pod.schemata.to_text(), "L3:0=3f;1=f;\nMB:0=20;1=20;\n");
    let unknown = |resource, id| PlanProblem::UnknownDomain { resource, id, known: vec![0, 1] };
    assert_eq!(pod.problems, [unknown("MB", -1), unknown("L3", 7)]);
}

#[test]
fn a_machine_that_cannot_divide_says_so_once_each() {
    let share = PodShare { cache: vec![0, 50], bandwidth: 20, ..PodShare::default() };
    let pod = pod_schemata(&Info::default(), &two_caches(), &share);
    assert_eq!(pod.schemata, Schemata::default());
    assert_eq!(pod.problems, [PlanProblem::Unsupported("MB"), PlanProblem::Unsupported("L3")]);
}
