use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

#[test]
fn lists_are_written_sorted_and_merged() {
    for (text, written) in [
        ("", ""),
        ("\n", ""),
        ("0", "0"),
        ("0-3,8\n", "0-3,8"),
        ("8,0-3", "0-3,8"),
        ("3,1,2", "1-3"),
        ("0-5,3-8", "0-8"),
        ("4,4,4", "4"),
        ("63,64", "63-64"),
        ("0-63,65-127", "0-63,65-127"),
        ("007", "7"),
        ("2-2", "2"),
        ("65535", "65535"),
    ] {
        assert_eq!(set(text).to_string(), written, "{text:?}");
    }
}

#[test]
fn broken_lists_are_refused() {
    use CpuSetProblem::*;
    for (text, item, problem) in [
        ("a", "a", NotANumber),
        ("0-", "0-", NotANumber),
        ("-1", "-1", NotANumber),
        ("+1", "+1", NotANumber),
        ("0-1-2", "0-1-2", NotANumber),
        ("0,,1", "", NotANumber),
        ("0, 1", " 1", NotANumber),
        ("0-31:2/4", "0-31:2/4", NotANumber),
        ("3-1", "3-1", Reversed),
        ("65536", "65536", TooLarge),
        ("0-99999999999999999999", "0-99999999999999999999", TooLarge),
    ] {
        let error = CpuSet::parse(text).unwrap_err();
        assert_eq!((error.item.as_str(), error.problem), (item, problem), "{text:?}");
    }
    let long = "x".repeat(1000);
    assert_eq!(CpuSet::parse(&long).unwrap_err().text.len(), 83);
    assert_eq!(
        CpuSet::parse("3-1").unwrap_err().to_string(),
        "CPU list \"3-1\": \"3-1\" is a range that ends before it starts; \
         wanted numbers and ranges such as 0-3,8, each 0..65535"
    );
}

#[test]
fn members_come_and_go() {
    let mut cpus = CpuSet::new();
    assert!(cpus.is_empty());
    assert!(cpus.insert(70));
    assert!(!cpus.insert(70));
    assert!(!cpus.insert(CpuSet::HIGHEST_CPU + 1));
    assert!(cpus.contains(70) && !cpus.contains(6));
    assert_eq!((cpus.first(), cpus.last(), cpus.len()), (Some(70), Some(70), 1));
    assert!(cpus.remove(70) && !cpus.remove(70) && !cpus.remove(1_000_000));
    assert_eq!(cpus, CpuSet::new());
    assert_eq!(CpuSet::range(5, 4), CpuSet::new());
    assert_eq!(CpuSet::range(62, 66).iter().rev().collect::<Vec<_>>(), [66, 65, 64, 63, 62]);
}

#[test]
fn json_is_the_list() {
    assert_eq!(serde_json::to_string(&set("2,0-1")).unwrap(), "\"0-2\"");
    assert_eq!(serde_json::from_str::<CpuSet>("\"2,0\"").unwrap(), set("0,2"));
    assert!(serde_json::from_str::<CpuSet>("\"x\"").is_err());
}

fn some_cpus() -> impl Strategy<Value = BTreeSet<u32>> {
    prop::collection::btree_set(prop_oneof![0u32..200, 0u32..=CpuSet::HIGHEST_CPU], 0..60)
}

fn of(cpus: &BTreeSet<u32>) -> CpuSet {
    cpus.iter().copied().collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read(cpus in some_cpus()) {
        let set = of(&cpus);
        prop_assert_eq!(CpuSet::parse(&set.to_string()).unwrap(), set.clone());
        prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(set.len(), cpus.len());
    }

    #[test]
    fn algebra_is_that_of_sets(left in some_cpus(), right in some_cpus()) {
        let (a, b) = (of(&left), of(&right));
        prop_assert_eq!(a.union(&b), of(&left.union(&right).copied().collect()));
        prop_assert_eq!(a.intersection(&b), of(&left.intersection(&right).copied().collect()));
        prop_assert_eq!(a.difference(&b), of(&left.difference(&right).copied().collect()));
        prop_assert_eq!(a.is_subset(&b), left.is_subset(&right));
        prop_assert_eq!(a.is_disjoint(&b), left.is_disjoint(&right));
        prop_assert!(a.intersection(&b).is_subset(&a) && a.is_subset(&a.union(&b)));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9,\\- ]{0,40}") {
        if let Ok(set) = CpuSet::parse(&text) {
            prop_assert_eq!(CpuSet::parse(&set.to_string()).unwrap(), set);
        }
    }
}
