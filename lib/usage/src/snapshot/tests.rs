use super::*;
use proptest::prelude::*;

use crate::kind::{Pressure, PressureDegree, PressureFigure, PressureResource};

fn content() -> Content {
    let pressure = Pressure {
        resource: PressureResource::Cpu,
        degree: PressureDegree::Some,
        figure: PressureFigure::Avg10,
    };
    let series = |kind, samples: &[(u64, f64)]| SeriesContent {
        kind,
        samples: samples.iter().map(|&(tick, value)| (Tick(tick), value)).collect(),
    };
    let gpu = |user| Object::Gpu { user, minor: 3, uuid: "GPU-1".into() };
    let objects = vec![
        (Object::Node, vec![series(Kind::NodeCpuUsage, &[(0, 0.0), (1_000, 1.5), (2_001, -0.0)])]),
        (Object::Numa(300), vec![series(Kind::NumaMemoryUsage, &[(2_000, 5e9)])]),
        (Object::Tier(TierSeries::Usage), vec![series(Kind::NodeBe, &[(2_000, 1234.0)])]),
        (Object::Tier(TierSeries::RealLimit), vec![series(Kind::NodeBe, &[])]),
        (
            Object::Pod("0f".into()),
            vec![series(Kind::PodCpuUsage, &[(5, 1.0)]), series(Kind::PodPsi(pressure), &[(7, 99.9)])],
        ),
        (Object::PodNuma { pod_uid: "0f".into(), numa: 1 }, vec![]),
        (
            Object::Container { pod_uid: "0f".into(), id: "1e".into() },
            vec![series(Kind::ContainerCpuUsage, &[(5, 1.0)])],
        ),
        (Object::HostApplication("nginx".into()), vec![series(Kind::HostApplicationCpuUsage, &[(6, 0.5)])]),
        (gpu(GpuUser::Node), vec![series(Kind::NodeGpuCoreUsage, &[(6, 50.0)])]),
        (gpu(GpuUser::Pod("0f".into())), vec![]),
        (gpu(GpuUser::Container("1e".into())), vec![]),
        (Object::Resctrl { group: "LSR".into(), cache: 0 }, vec![series(Kind::ResctrlLlc, &[(9, 4096.0)])]),
    ];
    let objects = objects.into_iter().map(|(object, series)| ObjectContent { object, series }).collect();
    Content { boot_id: "boot".to_owned(), newest: Tick(2_001), objects }
}

fn payload(bytes: &[u8]) -> Vec<u8> {
    bytes[HEADER_BYTES..].to_vec()
}

#[test]
fn what_is_written_is_read() {
    let content = content();
    let bytes = content.encode();
    assert_eq!(decode(&bytes), Ok(content.clone()));
    assert_eq!(decode_payload(&payload(&bytes)), Ok(content));
}

#[test]
fn the_format_stays() {
    let content = Content {
        boot_id: "b".to_owned(),
        newest: Tick(300),
        objects: vec![ObjectContent {
            object: Object::Pod("p".into()),
            series: vec![SeriesContent {
                kind: Kind::PodCpuUsage,
                samples: vec![(Tick(100), 1.0), (Tick(300), 2.0)],
            }],
        }],
    };
    let expected = [
        &b"\x01b\xac\x02"[..],
        b"\x04\x01p\x01",
        b"\x40\x02\x00\x00\x00",
        b"\x64\x00\x00\x00\x00\x00\x00\xf0\x3f",
        b"\xc8\x01\x00\x00\x00\x00\x00\x00\x00\x40",
    ];
    let bytes = content.encode();
    assert_eq!(payload(&bytes), expected.concat());
    assert_eq!(bytes[..8], *b"KUSAGES\x01");
}

#[test]
fn every_damage_is_noticed() {
    let bytes = content().encode();
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "cut to {length}");
    }
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        let error = decode(&damaged).expect_err("a changed octet");
        match place {
            0..8 => assert_eq!(error, SnapshotError::Format),
            _ => assert!(matches!(error, SnapshotError::Checksum { .. }), "{error}"),
        }
    }
    assert_eq!(decode(b"KUSAGES\x02\0\0\0\0"), Err(SnapshotError::Format), "another version");
}

#[test]
fn wrong_content_is_told_with_its_place() {
    let table: [(&[u8], usize, &str); 12] = [
        (b"", 0, "it ends too early"),
        (b"\x02b", 1, "it ends too early"),
        (b"\x01\xff\x00", 2, "a name is no text"),
        (b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "a number is too large"),
        (b"\x00\x05\x7f", 3, "an unknown sort of object"),
        (b"\x00\x05\x03\x03", 4, "an unknown figure of the tier"),
        (b"\x00\x05\x08\x02", 4, "an unknown user of a GPU"),
        (b"\x00\x05\x01\x01\x40\x00\x00\x00\x00", 9, "a kind that is not measured for its object"),
        (b"\x00\x05\x01\x01\x01\x01\x00\x00\x00", 9, "more samples than octets for them"),
        (b"\x00\x05\x01\x01\x01\x01\x00\x00\x00\x06\0\0\0\0\0\0\0\0", 10, "a sample newer than the newest"),
        (b"\x00\x05\x01\x01\x01\x01\x00\x00\x00\x05\0\0\0\0\0\0\xf0\x7f", 18, "a value that is no number"),
        (
            b"\x00\x05\x01\x01\x01\x02\x00\x00\x00\x05\0\0\0\0\0\0\0\0\x00\0\0\0\0\0\0\0\0",
            19,
            "two samples of the same time",
        ),
    ];
    for (payload, offset, problem) in table {
        assert_eq!(decode_payload(payload), Err(SnapshotError::Content { offset, problem }), "{payload:?}");
    }
}

#[test]
fn unknown_kinds_are_skipped() {
    // Kind 20000 with one sample, then the node's CPU with one.
    let payload =
        b"\x00\x05\x01\x02\xa0\x9c\x01\x01\0\0\0\x01\0\0\0\0\0\0\0\0\x01\x01\0\0\0\x02\0\0\0\0\0\0\0\0";
    let content = decode_payload(payload).expect("it is sound");
    let series = SeriesContent { kind: Kind::NodeCpuUsage, samples: vec![(Tick(2), 0.0)] };
    assert_eq!(content.objects, [ObjectContent { object: Object::Node, series: vec![series] }]);
}

#[test]
fn other_boots_and_ages_are_refused() {
    let content = Content { boot_id: "b".to_owned(), newest: Tick(1_000_000), objects: Vec::new() };
    let longest = Duration::from_secs(1800);
    let check = |boot: &str, now| content.check(boot, Tick(now), longest);
    assert_eq!(check("b", 1_000_000), Ok(()));
    assert_eq!(
        check("c", 1_000_000),
        Err(SnapshotError::Boot { found: "b".to_owned(), expected: "c".to_owned() })
    );
    assert_eq!(check("b", 2_800_000), Ok(()), "as old as the longest window");
    assert_eq!(
        check("b", 2_800_001),
        Err(SnapshotError::Age { taken: Tick(1_000_000), now: Tick(2_800_001) })
    );
    assert_eq!(check("b", 940_000), Ok(()), "a minute ahead");
    assert_eq!(check("b", 939_999), Err(SnapshotError::Age { taken: Tick(1_000_000), now: Tick(939_999) }));
    let text = SnapshotError::Boot { found: "b".to_owned(), expected: "c".to_owned() }.to_string();
    assert_eq!(text, "is of boot \"b\", not \"c\"");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        if let Ok(content) = decode_payload(&bytes) {
            prop_assert_eq!(decode(&content.encode()), Ok(content));
        }
    }

    #[test]
    fn samples_survive(steps in prop::collection::vec((1_u64..10_000_000, -1e18_f64..1e18), 0..50), start in 0_u64..1 << 50) {
        let mut tick = start;
        let samples: Vec<_> = steps.iter().map(|&(step, value)| { tick += step; (Tick(tick), value) }).collect();
        let objects = vec![ObjectContent {
            object: Object::Pod("uid".into()),
            series: vec![SeriesContent { kind: Kind::PodMemoryUsage, samples }],
        }];
        let content = Content { boot_id: "b".to_owned(), newest: Tick(tick), objects };
        prop_assert_eq!(decode(&content.encode()), Ok(content));
    }
}
