use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::collect::fake::{VERSIONS, memory_text};

#[test]
fn numbers_end_at_what_is_no_digit() {
    let table: [(&str, Option<u64>); 8] = [
        ("0", Some(0)),
        ("18446744073709551615\n", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("12kB", Some(12)),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
    ];
    for (text, value) in table {
        assert_eq!(number(text.as_bytes()), value, "{text:?}");
    }
}

#[test]
fn single_numbers_stand_alone() {
    assert_eq!(single(b"1500000000\n", "cpuacct.usage"), Ok(1_500_000_000));
    for text in ["", "\n", "1 2", "-1", "max", "1x"] {
        assert!(single(text.as_bytes(), "f").is_err(), "{text:?}");
    }
}

#[test]
fn cpu_of_version_2() {
    let text = b"usage_usec 10250000\nuser_usec 7\nsystem_usec 8\ncore_sched.force_idle_usec 0\nnr_periods 20\nnr_throttled 21\nthrottled_usec 5\nnr_bursts 0\nburst_usec 0\n";
    let cpu = cpu_stat(text, CgroupVersion::V2).expect("a text");
    assert_eq!(cpu.usage, Some(10_250_000_000));
    assert_eq!(cpu.throttling, Some(Throttling { periods: 20, throttled: 21 }));
}

#[test]
fn a_group_without_the_controller_has_usage_only() {
    let text = b"usage_usec 1\nuser_usec 1\nsystem_usec 0\n";
    let cpu = cpu_stat(text, CgroupVersion::V2).expect("a text");
    assert_eq!(cpu, GroupCpu { usage: Some(1000), throttling: None });
    // One of the three is not enough.
    let text = b"usage_usec 1\nnr_periods 3\nnr_throttled 1\n";
    assert_eq!(cpu_stat(text, CgroupVersion::V2).expect("a text").throttling, None);
    assert!(cpu_stat(b"user_usec 1\n", CgroupVersion::V2).is_err());
    assert!(cpu_stat(b"usage_usec 18446744073709551615\n", CgroupVersion::V2).is_err());
}

#[test]
fn throttling_of_version_1() {
    let text = b"nr_periods 10\nnr_throttled 4\nthrottled_time 800\nwait_sum 3\n";
    let throttling = Some(Throttling { periods: 10, throttled: 4 });
    assert_eq!(cpu_stat(text, CgroupVersion::V1), Ok(GroupCpu { usage: None, throttling }));
    for text in ["", "nr_periods 10\nnr_throttled 4\n", "nr_periods x\nnr_throttled 4\nthrottled_time 1\n"] {
        assert!(cpu_stat(text.as_bytes(), CgroupVersion::V1).is_err(), "{text:?}");
    }
}

#[test]
fn the_throttled_part_of_periods() {
    let at = |periods, throttled| Throttling { periods, throttled };
    let table = [
        (at(0, 0), at(10, 4), 0.4),
        (at(10, 4), at(10, 9), 0.0),
        (at(0, 0), at(20, 21), 1.05),
        (at(10, 4), at(20, 3), 0.0),
        (at(10, 4), at(9, 6), 0.0),
    ];
    for (before, now, ratio) in table {
        assert_eq!(now.ratio_since(before), ratio, "{before:?} {now:?}");
    }
}

const MEMORY: GroupMemory = GroupMemory {
    inactive_anon: 100,
    active_anon: 200,
    inactive_file: 2000,
    active_file: 1000,
    unevictable: 7,
};

#[test]
fn memory_without_and_with_page_cache() {
    for version in VERSIONS {
        let text = memory_text(version, MEMORY);
        let memory = memory_stat(text.as_bytes(), version, &mut MemoryHints::default()).expect("a text");
        assert_eq!(memory, MEMORY);
        assert_eq!((memory.without_page_cache(), memory.with_page_cache()), (307, 3307));
    }
}

#[test]
fn every_key_of_memory_is_needed() {
    for version in VERSIONS {
        let whole = memory_text(version, MEMORY);
        let keys = if version == CgroupVersion::V1 { MEMORY_NAMES_V1 } else { MEMORY_NAMES };
        for key in keys {
            let text: String = whole.lines().filter(|line| !line.starts_with(&format!("{key} "))).fold(
                String::new(),
                |mut text, line| {
                    let _ = writeln!(text, "{line}");
                    text
                },
            );
            let error = memory_stat(text.as_bytes(), version, &mut MemoryHints::default());
            assert_eq!(error, Err(TextError::new("memory.stat", key)));
        }
    }
}

#[test]
fn places_that_moved_are_found_again() {
    let mut hints = MemoryHints::default();
    for memory in
        [MEMORY, GroupMemory { inactive_anon: 123_456_789, ..MEMORY }, GroupMemory::default(), MEMORY]
    {
        for version in VERSIONS {
            // The places of the other version's text and of other lengths are wrong here.
            let text = memory_text(version, memory);
            for _ in 0..2 {
                assert_eq!(memory_stat(text.as_bytes(), version, &mut hints), Ok(memory));
            }
        }
    }
}

proptest! {
    /// Whatever was read before, a text gives the same figures.
    #[test]
    fn hints_never_change_a_figure(
        texts in proptest::collection::vec((any::<[u32; 5]>(), 0_usize..3), 1..12),
    ) {
        let mut hints = MemoryHints::default();
        for (values, ahead) in texts {
            let [inactive_anon, active_anon, inactive_file, active_file, unevictable] = values.map(u64::from);
            let memory = GroupMemory { inactive_anon, active_anon, inactive_file, active_file, unevictable };
            for version in VERSIONS {
                let text = "another 1\n".repeat(ahead) + &memory_text(version, memory);
                prop_assert_eq!(memory_stat(text.as_bytes(), version, &mut hints), Ok(memory));
            }
        }
    }

    /// No octets make a parser panic, and hints of one text are no danger for another.
    #[test]
    fn nothing_panics(octets in proptest::collection::vec(any::<u8>(), 0..400), text in "[ a-z_=N0-9\n]{0,200}") {
        let mut hints = MemoryHints([3, 400, 0, u16::MAX, 7, 9, 1]);
        let mut nodes = Vec::new();
        for text in [octets.as_slice(), text.as_bytes()] {
            for version in VERSIONS {
                let _ = cpu_stat(text, version);
                let _ = memory_stat(text, version, &mut hints);
                for which in [NumaMemory::WithoutCache, NumaMemory::Compatible] {
                    let _ = numa_stat(text, version, 4096, which, &mut nodes);
                }
            }
            let _ = single(text, "f");
        }
    }
}

fn numa(text: &str, version: CgroupVersion, page: u64, which: NumaMemory) -> Result<Vec<u64>, TextError> {
    let mut nodes = vec![77];
    numa_stat(text.as_bytes(), version, page, which, &mut nodes)?;
    Ok(nodes)
}

#[test]
fn numa_memory_as_the_other_agent_takes_it() {
    let compatible = |text, version, page| numa(text, version, page, NumaMemory::Compatible);
    let text = "total=47177 N0=47177 N1=0\nfile=1 N0=1 N1=0\n";
    assert_eq!(compatible(text, CgroupVersion::V1, 4096), Ok(vec![193_236_992, 0]));
    assert_eq!(compatible(text, CgroupVersion::V1, 65536), Ok(vec![3_091_791_872, 0]));
    let text = "anon N0=193236992 N1=0\nfile N0=4095 N1=0\n";
    assert_eq!(compatible(text, CgroupVersion::V2, 4096), Ok(vec![193_236_992, 0]));
    assert_eq!(compatible(text, CgroupVersion::V2, 65536), Ok(vec![3_091_791_872, 0]));
    // Each line is cut by itself.
    let text = "anon N0=4095\nfile N0=4097\n";
    assert_eq!(compatible(text, CgroupVersion::V2, 4096), Ok(vec![4096]));
    assert!(compatible("file N0=1\nanon N0=1\n", CgroupVersion::V2, 4096).is_err());
}

#[test]
fn numa_memory_without_cache() {
    let own = |text, version| numa(text, version, 65536, NumaMemory::WithoutCache);
    let text = "anon N0=193236992 N1=0\nfile N0=4095 N1=0\n";
    assert_eq!(own(text, CgroupVersion::V2), Ok(vec![193_236_992, 0]));
    let text = "anon N0=9 N1=9\nfile N0=1 N1=1\ninactive_anon N0=3 N1=4\nactive_anon N0=10 N1=20\nunevictable N0=100 N1=0\n";
    assert_eq!(own(text, CgroupVersion::V2), Ok(vec![113, 24]));
    let text = "total=9 N0=9\nfile=5 N0=5\nanon=1 N0=1\nunevictable=0 N0=0\nhierarchical_total=9 N0=9\n\
                hierarchical_anon=3 N0=3\nhierarchical_unevictable=2 N0=2\n";
    assert_eq!(own(text, CgroupVersion::V1), Ok(vec![5 * 65536]));
    assert_eq!(own("total=9 N0=9\nanon=1 N0=1\n", CgroupVersion::V1), Ok(vec![65536]));
    assert!(own("total=9 N0=9\n", CgroupVersion::V1).is_err());
}

#[test]
fn numa_nodes_have_no_gaps() {
    let lines = ["N0=1 N2=1", "N1=1", "N1=1 N0=1", "", "N=1", "N0=", "N0=x", "Nx=1"];
    for nodes in lines {
        let one = format!("total=2 {nodes}\nanon=2 {nodes}\n");
        let two = format!("anon {nodes}\nfile {nodes}\n");
        for which in [NumaMemory::WithoutCache, NumaMemory::Compatible] {
            assert!(numa(&one, CgroupVersion::V1, 4096, which).is_err(), "{one}");
            assert!(numa(&two, CgroupVersion::V2, 4096, which).is_err(), "{two}");
        }
    }
    let uneven = "anon N0=1 N1=1\nfile N0=1\n";
    assert!(numa(uneven, CgroupVersion::V2, 4096, NumaMemory::Compatible).is_err());
    let uneven = "anon N0=1\nfile N0=1 N1=1\n";
    assert!(numa(uneven, CgroupVersion::V2, 4096, NumaMemory::Compatible).is_err());
}
