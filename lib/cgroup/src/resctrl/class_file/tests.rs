use serde_json::json;

use super::super::info::BandwidthInfo;
use super::*;

fn machine(mask: u64, unit: BandwidthUnit) -> Info {
    Info {
        cache: Some(CacheInfo { cbm_mask: mask, min_cbm_bits: 1, num_closids: 16, sparse_masks: false }),
        bandwidth: Some(BandwidthInfo { unit, granularity: 10, least: 10, num_closids: 8 }),
        monitoring: None,
    }
}

/// The groups as "class: text", on a machine with twenty ways and these values of the root group.
fn groups(file: &Value, root: &str) -> Vec<String> {
    let root = Schemata::parse(root).expect("a schemata");
    let file = ClassFile::parse(file).expect("a file");
    let groups = file.plan(&machine(0xf_ffff, BandwidthUnit::Percent), &root).expect("a plan");
    groups
        .iter()
        .map(|group| {
            let name = group.class.as_deref().unwrap_or("(root)");
            format!("{name}: {}", group.schemata.to_text().replace('\n', " ").trim_end())
        })
        .collect()
}

const ROOT: &str = "L3:0=fffff;2=fffff\nMB:0=100;2=100\n";

#[test]
fn partitions_side_by_side_and_classes_in_them() {
    let file = json!({
        "options": {"l3": {"optional": true}},
        "partitions": {
            "exclusive": {
                "l2Allocation": "80%", "l3Allocation": "60%", "mbAllocation": ["100%"],
                "classes": {"guaranteed": {"l3Allocation": "100%"}},
            },
            "shared": {
                "l3Allocation": "40%", "mbAllocation": ["50%"],
                "classes": {
                    "burstable": null,
                    "besteffort": {"l3Allocation": "50%", "mbAllocation": ["50%"], "kubernetes": {"denyPodAnnotation": true}},
                    "DEFAULT": {"l3Allocation": "30%"},
                },
            },
        },
    });
    // Twelve of twenty ways, then eight; of those all, four and ⌈8·30/100⌉ = 3. Bandwidth: 50 percent, and half of that,
    // 25, in steps of ten.
    assert_eq!(
        groups(&file, ROOT),
        [
            "(root): L3:0=7000;2=7000; MB:0=50;2=50;",
            "besteffort: L3:0=f000;2=f000; MB:0=30;2=30;",
            "burstable: L3:0=ff000;2=ff000; MB:0=50;2=50;",
            "guaranteed: L3:0=fff;2=fff; MB:0=100;2=100;",
        ]
    );
}

#[test]
fn values_of_single_caches() {
    let file = json!({"partitions": {
        "a": {"l3Allocation": "60%", "classes": {"x": {"mbAllocation": {"all": ["80%"], "2-3": ["50%"]}}}},
        "b": {"l3Allocation": {"all": "40%", "2,5": {"unified": "20%"}}, "classes": {"y": {}}},
    }});
    assert_eq!(
        groups(&file, ROOT),
        ["x: L3:0=fff;2=fff; MB:0=80;2=50;", "y: L3:0=ff000;2=f000; MB:0=100;2=100;"]
    );
}

#[test]
fn bits_and_ranges_of_percents() {
    let file = json!({"partitions": {
        "a": {"l3Allocation": "0xff", "classes": {"whole": {}, "low": {"l3Allocation": "0-3"}, "mid": {"l3Allocation": "26-75%"}}},
        "b": {"l3Allocation": "8-19", "classes": {"rest": {"l3Allocation": {"unified": "0xf00"}}}},
    }});
    // Percents 26 to 75 of eight bits start at bit ⌈8·25/100⌉ = 2 and end before bit 6.
    assert_eq!(
        groups(&file, "L3:0=fffff\n"),
        ["low: L3:0=f;", "mid: L3:0=3c;", "rest: L3:0=f00;", "whole: L3:0=ff;"]
    );
    let file = json!({"partitions": {"a": {"l3Allocation": "51-100%", "classes": {"x": {}}}}});
    assert_eq!(groups(&file, "L3:0=fffff\n"), ["x: L3:0=ffc00;"]);
}

#[test]
fn rates_where_the_file_system_counts_in_megabytes() {
    let file = json!({"partitions": {
        "a": {"mbAllocation": ["50%", "2000MBps"], "classes": {"x": {"mbAllocation": ["50%", "1000MBps"]}, "y": {}}},
        "b": {"l3Allocation": "0x1", "classes": {}},
    }});
    let root = Schemata::parse("MB:0=4294967295\n").expect("a schemata");
    let plan = |unit| {
        let groups =
            ClassFile::parse(&file).expect("a file").plan(&machine(0xff, unit), &root).expect("a plan");
        groups.iter().map(|group| group.schemata.to_text()).collect::<String>()
    };
    assert_eq!(plan(BandwidthUnit::Percent), "MB:0=1000;\nMB:0=2000;\n");
    let amd = BandwidthUnit::EighthGigabyte { full_scale: 160 };
    assert_eq!(plan(amd), "MB:0=40;\nMB:0=80;\n");
}

#[test]
fn a_machine_that_cannot_divide_has_empty_values() {
    let file = ClassFile::parse(&json!({"partitions": {"a": {"classes": {"x": {"mbAllocation": ["10%"]}}}}}));
    let root = Schemata::parse("MB:0=100\n").expect("a schemata");
    let groups = file.expect("a file").plan(&Info::default(), &root).expect("a plan");
    assert_eq!(groups, [FileGroup { class: Some("x".to_owned()), schemata: Schemata::default() }]);
    assert_eq!(ClassFile::parse(&Value::Null), Ok(ClassFile::default()));
}

#[test]
fn all_mistakes_are_told() {
    let file = json!({
        "partition": {},
        "partitions": {
            "a": {"l3Allocation": "0%", "mbAllocation": "50%", "classes": {"../up": {}, "x": {"l3": "50%"}}},
            "b": {"l3Allocation": {"all": "60-20%", "x": "10%"}, "classes": {"x": {"l3Allocation": "0x5"}, "z": 3}},
            "c": {"l3Allocation": "101%", "mbAllocation": ["5GBps"], "classes": {"w": {"l3Allocation": "64"}}},
        },
    });
    let fields: Vec<String> =
        ClassFile::parse(&file).expect_err("mistakes").into_iter().map(|error| error.field).collect();
    assert_eq!(
        fields,
        [
            "file.partition",
            "partitions.a.l3Allocation",
            "partitions.a.mbAllocation",
            "partitions.a.classes.../up",
            "partitions.a.classes.x.l3",
            "partitions.b.l3Allocation.all",
            "partitions.b.l3Allocation.x",
            "partitions.b.classes.x",
            "partitions.b.classes.x.l3Allocation",
            "partitions.b.classes.z",
            "partitions.c.l3Allocation",
            "partitions.c.mbAllocation",
            "partitions.c.classes.w.l3Allocation",
        ]
    );
    let error = ClassFile::parse(&json!({"partitions": 1})).expect_err("a mistake");
    assert_eq!(error[0].to_string(), "partitions: 1; a mapping");
}

#[test]
fn plans_that_do_not_fit_the_machine() {
    let errors = |file: Value| {
        let root = Schemata::parse("L3:0=ff\nMB:0=100\n").expect("a schemata");
        let file = ClassFile::parse(&file).expect("a file");
        let errors = file.plan(&machine(0xff, BandwidthUnit::Percent), &root).expect_err("no plan");
        errors.into_iter().map(|error| (error.field, error.wanted)).collect::<Vec<_>>()
    };
    let one = |field: &str, wanted: &str| vec![(field.to_owned(), wanted.to_owned())];
    assert_eq!(
        errors(json!({"partitions": {"a": {"l3Allocation": "60%"}, "b": {"l3Allocation": "41%"}}})),
        one("partitions.b.l3Allocation", "percents of all partitions may add up to 100")
    );
    // Five of eight bits, and the upper four.
    assert_eq!(
        errors(json!({"partitions": {"a": {"l3Allocation": "70%"}, "b": {"l3Allocation": "0xf0"}}})),
        one("partitions.b.l3Allocation", "f0 overlaps other partitions, which have 1f")
    );
    // ⌊8·10/100⌋ = 0 bits.
    assert_eq!(
        errors(json!({"partitions": {"a": {"l3Allocation": "10%"}}})),
        one("partitions.a.l3Allocation", "0 must be at least 1 bits of ff")
    );
    assert_eq!(
        errors(json!({"partitions": {"a": {"l3Allocation": "0x1f0"}}})),
        one("partitions.a.l3Allocation", "1f0 must be at least 1 bits of ff")
    );
    assert_eq!(
        errors(
            json!({"partitions": {"a": {"l3Allocation": "0xf", "classes": {"x": {"l3Allocation": "4"}}}}})
        ),
        one("partitions.a.classes.x.l3Allocation", "bits must be in the partition's mask f")
    );
    assert_eq!(
        errors(json!({"partitions": {"a": {"classes": {"x": {"mbAllocation": ["5MBps"]}}}}})),
        one(
            "partitions.a.classes.x.mbAllocation",
            "a percent is needed unless the file system is mounted with mba_MBps"
        )
    );
}

#[test]
fn neighbours_fit_as_long_as_their_percents_do() {
    let file = json!({"partitions": {
        "a": {"l3Allocation": "60%", "classes": {"x": {}}},
        "b": {"l3Allocation": "0xf0", "classes": {"y": {}}},
    }});
    let root = Schemata::parse("L3:0=ff\n").expect("a schemata");
    let file = ClassFile::parse(&file).expect("a file");
    // ⌊8·60/100⌋ = 4 bits and the four above them.
    let groups = file.plan(&machine(0xff, BandwidthUnit::Percent), &root).expect("a plan");
    let masks: Vec<u64> = groups.iter().map(|group| group.schemata.cache[&0]).collect();
    assert_eq!(masks, [0xf, 0xf0]);
}
